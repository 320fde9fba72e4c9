"""Declarations of TFRecord features for `fn.readers.tfrecord`, with DALI's names.

import beam_pipes.graph.functions as tfrec

{"image": tfrec.FixedLenFeature([], tfrec.string, ""), "label": tfrec.FixedLenFeature([1], tfrec.int64, -1)}

The public form of operators: a function (`fn.flip`) and a class (`ops.Flip`) for each, generated from its declaration.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_number
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.spec import user_frame
from beam_pipes.graph.trace import call

int64: Final = "int64"
float32: Final = "float32"
string: Final = "string"

#: What a feature holds → the dtype of its samples, and the list of an Example that stores it.
DTYPES: Final[dict[str, np.dtype]] = {
    int64: np.dtype("int64"),
    float32: np.dtype("float32"),
    string: np.dtype("uint8"),
}
LISTS: Final = {int64: "int64_list", float32: "float_list", string: "bytes_list"}


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class TFRecordFeature:
    """A declared feature. `shape` is None if the number of values varies; then values come in rows of
    `partial_shape`.
    """

    dtype: str
    default_value: object
    shape: tuple[int, ...] | None
    partial_shape: tuple[int, ...]

    def _set(self, dtype: str, default: object, shape: Sequence[int] | None, partial: Sequence[int]) -> None:
        if dtype not in DTYPES:
            raise OperatorArgumentError(f"a feature is one of {', '.join(DTYPES)}, got {dtype!r}.")
        for extents in (shape or (), partial):
            if any(isinstance(one, bool) or not isinstance(one, (int, np.integer)) or one < 0 for one in extents):
                raise OperatorArgumentError(f"the shape of a feature holds extents from 0 on, got {list(extents)}.")
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "default_value", default)
        object.__setattr__(self, "shape", None if shape is None else tuple(map(int, shape)))
        object.__setattr__(self, "partial_shape", tuple(map(int, partial)))
        if dtype == string and (self.partial_shape or math.prod(self.shape or ()) != 1):
            raise OperatorArgumentError(
                f"a feature of strings holds one string, shape [], got {list(self.shape or self.partial_shape)}."
            )
        if dtype != string:
            self.default()  # raises here, at the declaration, if the default is invalid

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype of samples: strings are uint8, their bytes."""
        return DTYPES[self.dtype]

    def default(self) -> np.ndarray:
        """The sample of a record that lacks the feature."""
        if self.dtype == string:
            given: Any = self.default_value or b""
            return np.frombuffer(given.encode() if isinstance(given, str) else bytes(given), np.uint8)
        try:
            given = np.asarray(exact_number(0 if self.default_value is None else self.default_value, self.numpy_dtype))
        except (NotExactError, NotNumbersError):
            raise OperatorArgumentError(
                f"default_value={self.default_value!r:.40} is not {self.dtype}, the dtype of the feature. Choose a "
                "number that is."
            ) from None
        if self.shape is not None:
            try:
                return np.array(np.broadcast_to(given, self.shape), order="C")
            except ValueError:
                raise OperatorArgumentError(
                    f"default_value={self.default_value!r:.40} has shape {list(given.shape)}, and the feature has "
                    f"{list(self.shape)}. Give one number, or an array of that shape."
                ) from None
        made = np.atleast_1d(given) if self.default_value is not None else np.zeros(0, self.numpy_dtype)
        row = math.prod(self.partial_shape)
        return np.resize(made, row * max(1, made.size // row)).reshape(-1, *self.partial_shape) if row != 1 else made


class FixedLenFeature(TFRecordFeature):
    """The number of values in `shape` in every record, or `default_value` (one, or an array of that shape).

    A `string` has shape [] and yields its bytes, (number of bytes,) uint8.
    """

    def __init__(self, shape: Sequence[int], dtype: str, default_value: object = None) -> None:
        self._set(dtype, default_value, list(shape), ())


class VarLenFeature(TFRecordFeature):
    """Any number of values: `VarLenFeature(int64, -1)` gives (n,), `VarLenFeature([2], int64, -1)` gives (n / 2, 2).

    Records without the feature yield the default: one value, or none if it is None.
    """

    def __init__(self, *args: Any, partial_shape: Sequence[int] = ()) -> None:
        if args and not isinstance(args[0], str):
            partial_shape, args = args[0], args[1:]
        if not 1 <= len(args) <= 2:
            raise OperatorArgumentError(
                "VarLenFeature takes (dtype, default_value) or (partial_shape, dtype, default_value)."
            )
        self._set(args[0], args[1] if len(args) > 1 else None, None, partial_shape)


def function_of(operator: type[Operator]) -> Callable[..., object]:
    """`fn.…` of an operator: call it with data nodes and arguments to add the operator to the current pipeline."""

    def function(*inputs: object, **arguments: object) -> object:
        if not operator.inputs:
            inputs, arguments = (), _by_position(operator, inputs, arguments)
        return call(operator, _positional(operator, inputs, arguments), arguments)

    function.__name__ = function.__qualname__ = operator.op_name.rpartition(".")[2]
    function.__doc__ = documentation(operator)
    function.__module__ = ".".join(["beam_pipes.transforms.fn", *operator.op_name.split(".")[:-1]])
    function.__signature__ = signature(operator)  # type: ignore[attr-defined]
    return function


class OperatorClass:
    """The base of `ops.…`: made with an operator's constants, then called with data nodes."""

    operator: ClassVar[type[Operator]]

    def __init__(self, *values: object, **arguments: object) -> None:
        common = self.operator.common_arguments()
        self.arguments = _by_position(self.operator, values, arguments)
        self.operator.check_names([name for name in self.arguments if name not in common])

    def __call__(self, *inputs: object, **arguments: object) -> object:
        together = {**self.arguments, **arguments}
        return call(self.operator, _positional(self.operator, inputs, together), together)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.operator.title()}({shown})"


def class_of(operator: type[Operator]) -> type[OperatorClass]:
    """`ops.…` of an operator."""
    keywords = [p for p in signature(operator).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    module = ".".join(["beam_pipes.transforms.ops", *operator.op_name.split(".")[:-1]])
    members = {"operator": operator, "__signature__": inspect.Signature(keywords)}
    return type(
        operator.__name__, (OperatorClass,), {**members, "__doc__": documentation(operator), "__module__": module}
    )


def _by_position(
    operator: type[Operator], values: Sequence[object], arguments: Mapping[str, object]
) -> dict[str, object]:
    """Arguments, with positional ones under their names."""
    names = operator.positional
    if len(values) > len(names):
        takes = f"at most {len(names)} ({', '.join(names)})" if names else "none"
        raise OperatorArgumentError(
            f"{operator.title()} got {len(values)} values by position and takes {takes}. Data nodes are given when it "
            f"is called, arguments by keyword: {', '.join(operator.arguments)}. ({user_frame()})",
            operator=operator.title(),
        )
    given = dict(zip(names, values, strict=False))
    for name in given:
        if name in arguments:
            raise OperatorArgumentError(f"{operator.title()}: {name} was given twice. ({user_frame()})")
    return {**given, **arguments}


def _positional(operator: type[Operator], inputs: Sequence[object], arguments: dict[str, object]) -> list[object]:
    """Inputs in their order; a declared input may also be given by its name."""
    given = list(inputs)
    for name in operator.inputs[len(given) :]:
        if name in arguments and name not in operator.arguments:
            given.append(arguments.pop(name))
    return given


def signature(operator: type[Operator]) -> inspect.Signature:
    """`(images, /, *, horizontal=1, …, device=None)`."""
    parameters: list[inspect.Parameter] = []
    kind = inspect.Parameter.POSITIONAL_ONLY if operator.variadic else inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = len(operator.inputs) - operator.optional_inputs
    for position, name in enumerate(operator.inputs):
        if operator.variadic and position == len(operator.inputs) - 1:
            parameters.append(inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL))
        else:
            default: object = inspect.Parameter.empty if position < required else None
            parameters.append(inspect.Parameter(name, kind, default=default))
    if not operator.inputs:
        for name in operator.positional:
            parameters.append(inspect.Parameter(name, kind, default=operator.arguments[name].default))
    own = [a for a in operator.arguments.values() if operator.inputs or a.name not in operator.positional]
    for argument in sorted(own, key=lambda argument: not argument.is_required):
        default = inspect.Parameter.empty if argument.is_required else argument.default
        parameters.append(inspect.Parameter(argument.name, inspect.Parameter.KEYWORD_ONLY, default=default))
    for name in operator.common_arguments():
        default = False if name == "preserve" else None
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(parameters)


def documentation(operator: type[Operator]) -> str:
    """The docstring of the function: the operator's own, its inputs and arguments, and its places."""
    lines = [inspect.getdoc(operator) or operator.title(), ""]
    if operator.inputs:
        lines.append(f"Inputs: {', '.join(operator.inputs)}{' …' if operator.variadic else ''}.")
    if operator.arguments:
        lines.append("Args:")
    for argument in operator.arguments.values():
        what = argument.words + ("" if argument.constant_only else ", or a data node")
        default = "" if argument.is_required else f" Default: {argument.default!r}."
        lines.append(f"    {argument.name}: {argument.doc or what} ({what}).{default}")
    lines.append(f"Places: {', '.join(operator.devices)}." + (" Draws random numbers." if operator.random else ""))
    return "\n".join(lines)
