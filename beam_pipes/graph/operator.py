"""`Argument` and `Constant`: the keyword arguments of an operator, declared once.

A *kind* defines values: it converts constants at definition, and data nodes' samples when they arrive.

`Operator`: the base class of everything that creates data nodes.

An *operator* is declared by a class: inputs, arguments, places, and its work on samples. An instance holds the
constants of one call. It works in one of these methods; the first that fits is used:

| method | works on | for |
| --- | --- | --- |
| `run_batch(samples, *columns, **arguments)` | `TensorList`s of the batch | columns, ragged outputs, draws |
| `run_arrays(xp, *arrays, **arguments)` | stacked arrays of NumPy, JAX, torch | equal shapes; devices |
| `run(sample, *arrays, **arguments)` | one sample | everything else, in threads |

On JAX and torch, `run_arrays` is used. An operator that draws there also has `host_draws(samples, shapes,
**arguments)`: the host calls it with the shape of a sample of each input, and its result, name → array (n, …), is
passed to `run_arrays` as keywords, instead of the arguments. So draws are the same everywhere.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeVar

import numpy as np

from beam_pipes.checks import Bounds, brief, exclusive, listed, nearest
from beam_pipes.errors import InferenceError, OperatorArgumentError
from beam_pipes.graph import tensors
from beam_pipes.graph.spec import UNKNOWN, TensorSpec

#: A data node; this module does not know its class.
Node = TypeVar("Node")


class _Required:
    """Marks an argument without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


def _integer(value: object) -> int:
    if not isinstance(value, (int, np.integer, np.bool_)):  # mirror=False too, as DALI's examples write
        if not (isinstance(value, (float, np.floating)) and float(value).is_integer()):
            raise TypeError
    return int(value)


def _number(value: str | float) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
        raise TypeError
    return bool(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _letter(value: object) -> str:
    if len(made := _string(value)) != 1:
        raise TypeError
    return made


def _array_of(dtype: str) -> Callable[[object], object]:
    def convert(value: object) -> object:
        array = np.atleast_1d(np.asarray(value))
        if array.ndim != 1 or array.dtype.kind not in "iufb":
            raise TypeError
        made = array.astype(dtype)
        if not np.array_equal(made, array):
            raise TypeError
        return made

    return convert


def _strings(value: str | Iterable[object]) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [_string(one) for one in value]


def _callable(value: object) -> object:
    if not callable(value):
        raise TypeError
    return value


@dataclasses.dataclass(frozen=True)
class Kind:
    """How values of a kind are checked and named: `dtype` is that of data nodes' samples, `rank` 0 or 1."""

    name: str
    words: str
    annotation: str
    convert: Callable[[Any], object]
    dtype: str | None = None
    rank: int = 0
    #: Whether a sample may be of any rank, and is taken row by row.
    flat: bool = False


#: The one table of kinds.
KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("bool", "a bool", "bool", _boolean, "bool"),
        Kind("int", "an int", "int", _integer, "int64"),
        Kind("float", "a number", "float", _number, "float64"),
        Kind("str", "a str", "str", _string),
        Kind("letter", "one letter", "str", _letter),
        Kind("ints", "an int or a list of ints", "int | Sequence[int]", _array_of("int64"), "int64", 1),
        Kind("floats", "a number or a list of numbers", "float | Sequence[float]", _array_of("float64"), "float64", 1),
        Kind(
            "matrix",
            "numbers, or rows of them",
            "float | Sequence[float] | Sequence[Sequence[float]]",
            lambda value: _array_of("float64")(np.ravel(value)),
            "float64",
            1,
            flat=True,
        ),
        Kind("strs", "a str or a list of str", "str | Sequence[str]", _strings),
        Kind("dtype", "a dtype such as types.FLOAT", "DALIDataType | DTypeLike", tensors.to_numpy_type),
        Kind("callable", "a callable", "Callable[..., Any]", _callable),
        Kind("any", "any value", "Any", lambda value: value),
    )
}


def _enum_kind(cls: type[enum.Enum]) -> Kind:
    def convert(value: object) -> object:
        if isinstance(value, str):
            by_name = {member.name: member for member in cls} | {member.value: member for member in cls}
            if value in by_name:
                return by_name[value]
        if not isinstance(value, cls):
            raise TypeError
        return value

    return Kind(cls.__name__, f"a {cls.__name__}", f"{cls.__name__} | str", convert)


class Argument:
    """An argument that may be a constant or a data node, one value per sample.

        class Rotate(Operator):
            angle = Argument("float", doc="degrees, counter-clockwise")

    In `run` it arrives as the keyword `angle`: a Python scalar ("bool", "int", "float") or a 1-D array ("ints",
    "floats"); in `run_arrays` and `run_batch` as an array (n,) or (n, k). None if the default None was kept.

    Args:
        kind: a name in `KINDS`, or a class of `enum.Enum` (constants only).
        default: the value if none is passed; without a default, the argument is required.
        doc: one line for the operator's documentation, with the unit.
        static: on a device it determines the shape of the output. Samples are grouped by it, and `run_arrays` gets
            one Python value (a tuple for lists) instead of an array.
        choices: what it may be.
        least, most, above: bounds of it, or of each of its numbers. A default outside of them is allowed too.
        sizes: how many numbers a list may hold.
        ascending: whether no number of a list may be less than the one before.

    Limits are checked for constants at definition, and for values of data nodes when an operator gets them on the host.
    """

    constant_only = False

    def __init__(
        self,
        kind: str | type[enum.Enum],
        *,
        default: object = REQUIRED,
        doc: str = "",
        static: bool = False,
        choices: Iterable[object] = (),
        least: float | None = None,
        most: float | None = None,
        above: float | None = None,
        sizes: tuple[int, ...] = (),
        ascending: bool = False,
    ) -> None:
        self.kind = KINDS[kind] if isinstance(kind, str) else _enum_kind(kind)
        if not self.constant_only and self.kind.dtype is None:
            raise ValueError(f"an argument of kind {self.kind.name!r} cannot be a data node: declare it as Constant")
        self.default = default
        self.doc = doc
        self.static = static
        self.name = ""
        self._choices = list(choices) or ([] if isinstance(kind, str) else list(kind))
        self._bounds = Bounds(least, most, above)
        self._sizes = sizes
        self._ascending = ascending
        self.is_limited = bool(self._choices or str(self._bounds) or sizes or ascending)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def words(self) -> str:
        """The expected value in words: `an int of at least 1`, `1 or 2 numbers, each above 0, the lower one first`."""
        if self._choices:
            shown = [f"types.{one.name}" if isinstance(one, enum.Enum) else one for one in self._choices]
            return f"one of {listed(shown)}"
        words = self.kind.words
        if self._sizes:
            one = "int" if self.kind.name == "ints" else "number"
            words = f"{' or '.join(map(str, self._sizes))} {one}{'' if self._sizes == (1,) else 's'}"
        words += f", each{self._bounds}" if self.kind.rank and str(self._bounds) else str(self._bounds)
        return words + (", the lower one first" if self._ascending else "")

    def convert(self, value: object, *, operator: str) -> Any:
        """A constant as this argument's kind; raises `OperatorArgumentError`, naming operator and argument."""
        if value is None and self.default is None:
            return None
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        try:
            made = self.kind.convert(value)
            if self.is_limited and not self._allows(made):
                raise ValueError
        except OperatorArgumentError as error:
            raise OperatorArgumentError(f"{operator}: {self.name}: {error}", operator=operator) from error
        except (TypeError, ValueError, OverflowError) as error:
            near = (
                nearest(value, [one for one in self._choices if isinstance(one, str)]) if isinstance(value, str) else ""
            )
            raise OperatorArgumentError(
                f"{operator}: {self.name} should be {self.words}, got {brief(value)}.{near}",
                operator=operator,
                argument=self.name,
            ) from error
        return made

    def _allows(self, value: Any) -> bool:
        """Whether a value of the kind, or all of a batch's, are within the declared limits."""
        if self._choices:
            return any(value is one or value == one for one in self._choices)
        numbers = np.asarray(value)
        if self._sizes and numbers.shape[-1] not in self._sizes:
            return False
        if self._ascending and np.any(numbers[..., 1:] < numbers[..., :-1]):
            return False
        if not self.kind.rank and isinstance(self.default, (int, float)) and not self._bounds.hold(self.default):
            numbers = numbers[numbers != self.default]
        return not numbers.size or (self._bounds.hold(numbers.min()) and self._bounds.hold(numbers.max()))

    def check_values(self, values: Any) -> None:
        """Raises `ValueError` for values of a data node beyond the limits: of one sample, or several of one shape."""
        if self.is_limited and not self._allows(values):
            raise ValueError(f"{self.name} should be {self.words}, got {brief(np.squeeze(values).tolist())}")

    def __get__(self, instance: Operator | None, owner: type) -> Any:
        if instance is None:
            return self
        try:
            return instance.constants[self.name]
        except KeyError:
            raise AttributeError(
                f"{instance.name}: {self.name} is a data node here: its values come as the keyword {self.name!r}"
            ) from None


class Constant(Argument):
    """An argument that is known at definition and the same for all samples: `self.shape` within the operator."""

    constant_only = True


Device = Literal["cpu", "mixed", "gpu"]
DEVICES: tuple[Device, ...] = ("cpu", "mixed", "gpu")

#: Keywords that every operator takes, besides its own arguments.
COMMON_ARGUMENTS = ("device", "name", "preserve", "on_error")


class Operator:
    """The operator of a call of `fn.…` or `ops.…`; see the module for how it runs.

    Class attributes of an operator:

    - `inputs`: names of its positional inputs. The last `optional_inputs` of them may be omitted; with `variadic`, the
      last one may be repeated.
    - `num_outputs`: the number of its data nodes (`output_count` if that depends on the arguments).
    - `devices`: where it can run.
    - `random`: it draws, by `samples` or `sample`; it takes `seed=` and may not be before a cut.
    - `side_effects`: it runs even if its output is unused, once per batch, in order; the current pipeline must be
      set.
    - `holds_gil`: its `run` is Python rather than a library that releases the interpreter lock: threads do not help.
    - `rounds_by_place`: its `run` and its `run_arrays` round differently. The host then uses `run` even if samples
      are stacked, so that results do not depend on stacking.
    - `fills_rows`: its `run` fills and returns `sample.empty(…)`: its row of the batch if its shape is known.
    - `version`: raise it when results change; part of the fingerprint of caches.
    """

    #: The name in the table of operators, such as `random.coin_flip`; set when the class is looked up there.
    op_name: ClassVar[str] = ""
    inputs: ClassVar[tuple[str, ...]] = ()
    optional_inputs: ClassVar[int] = 0
    variadic: ClassVar[bool] = False
    num_outputs: int = 1
    #: Arguments that may also be given by position: to `ops.…`, and to `fn.…` where there are no inputs.
    positional: ClassVar[tuple[str, ...]] = ()
    devices: ClassVar[tuple[Device, ...]] = ("cpu",)
    random: ClassVar[bool] = False
    side_effects: bool = False
    holds_gil: ClassVar[bool] = False
    rounds_by_place: ClassVar[bool] = False
    fills_rows: ClassVar[bool] = False
    version: ClassVar[str] = "1"
    #: DALI keywords for its buffers and threads: accepted, so that graphs can be ported; `explain` lists them.
    without_effect: ClassVar[tuple[str, ...]] = ("bytes_per_sample_hint",)
    #: It begins a graph: a reader, or fed from outside.
    is_source: ClassVar[bool] = False
    #: It takes nodes out of the branches of a condition.
    reads_branches: ClassVar[bool] = False
    #: Names of arguments that exclude each other; and of those that must be given together or not at all.
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    together: ClassVar[tuple[tuple[str, ...], ...]] = ()

    #: Name → declaration, those of base classes first; filled in by `__init_subclass__`.
    arguments: ClassVar[Mapping[str, Argument]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, Argument] = {}
        for base in reversed(cls.__mro__):
            found.update({name: value for name, value in vars(base).items() if isinstance(value, Argument)})
        cls.arguments = found

    def __init__(self, constants: Mapping[str, object], *, name: str = "", nodes: Sequence[str] = ()) -> None:
        """The operator of one call. `constants` are its arguments except those named in `nodes`, which are data nodes.

        Raises `OperatorArgumentError` for arguments that are unknown, missing or of another kind.
        """
        self.name = name or type(self).title()
        self.constants: dict[str, Any] = {}
        self.check_names([*constants, *nodes])
        for key, argument in self.arguments.items():
            if key in nodes:
                if argument.constant_only:
                    raise OperatorArgumentError(
                        f"{self.name}: {key} has to be known when the graph is defined, and is a data node here. Give "
                        "it a constant.",
                        operator=self.name,
                        argument=key,
                    )
            elif key in constants:
                self.constants[key] = argument.convert(constants[key], operator=self.name)
            elif argument.is_required:
                raise OperatorArgumentError(
                    f"{self.name}: {key} is missing ({argument.words}; {argument.doc or 'no default'}).",
                    operator=self.name,
                    argument=key,
                )
            else:
                self.constants[key] = argument.convert(argument.default, operator=self.name)
        for names in self.exclusive:
            exclusive({name: self.is_given(name) or None for name in names}, error=self.argument_error)
        for names in self.together:
            if len(given := [name for name in names if self.is_given(name)]) == 1:
                raise self.argument_error(f"{' and '.join(names)} go together: {given[0]} was given alone.")
        self.check()

    @classmethod
    def title(cls) -> str:
        """Its name in messages: the name in the table, or that of the class."""
        return cls.op_name or cls.__name__

    @classmethod
    def common_arguments(cls) -> list[str]:
        """The keywords that every operator takes, without those that it declares itself."""
        names = [*COMMON_ARGUMENTS, *(["seed"] if cls.random else [])]
        return [name for name in names if name not in cls.arguments]

    @classmethod
    def check_names(cls, names: Sequence[str]) -> None:
        """Raises `OperatorArgumentError` for a keyword that this operator does not take, naming the nearest one."""
        known = [*cls.arguments, *cls.common_arguments()]
        for name in names:
            if name not in cls.arguments and name not in cls.without_effect:
                raise OperatorArgumentError(
                    f"{cls.title()} has no argument {name!r}.{nearest(name, known)} It takes: {', '.join(known)}.",
                    operator=cls.title(),
                    argument=name,
                )

    def is_given(self, name: str) -> bool:
        """Whether an argument is a data node, or a constant that is not None."""
        return self.constants.get(name, self) is not None

    # For subclasses to override: declarations

    def check(self) -> None:
        """Raises `OperatorArgumentError` if constants contradict each other."""

    def output_count(self) -> int:
        """The number of data nodes of the call."""
        return int(self.num_outputs)

    def infer(self, *inputs: TensorSpec) -> TensorSpec | Sequence[TensorSpec]:
        """The specs of the outputs, given those of the inputs; raises `self.refuse(…)`."""
        return UNKNOWN if self.output_count() == 1 else (UNKNOWN,) * self.output_count()

    def result(self, nodes: Sequence[Node]) -> object:
        """The result of the call: a node, or a list of several."""
        return nodes[0] if len(nodes) == 1 else list(nodes)

    def fingerprint_config(self) -> Mapping[str, object]:
        """What determines the results besides its code: all constants."""
        return {"op_name": self.op_name, "version": self.version, **self.constants}

    @property
    def mixes_samples(self) -> bool:
        """Whether a sample's result depends on the rest of its batch: then the operator runs on the whole batch at
        once, and may not be before a cut."""
        return False

    # For subclasses to override: the work

    run_batch: Any = None
    run_arrays: Any = None
    run: Any = None
    host_draws: Any = None

    # Helpers

    def refuse(self, message: str) -> InferenceError:
        """`raise self.refuse("expected images of rank 3, got float32[·]")`: with the operator's name in front."""
        return InferenceError(f"{self.name}: {message}", operator=self.name)

    def expect(
        self,
        spec: TensorSpec,
        words: str,
        *,
        ranks: Sequence[int] = (),
        least_rank: int = 0,
        kinds: str = "",
        dtype: str | None = None,
    ) -> None:
        """Raises `InferenceError` for an input known to have another rank or dtype; `kinds` are letters of
        `dtype.kind`."""
        is_rank = spec.ndim is None or (spec.ndim >= least_rank and (not ranks or spec.ndim in ranks))
        is_dtype = spec.dtype is None or ((not kinds or spec.dtype.kind in kinds) and dtype in (None, spec.dtype.name))
        if not (is_rank and is_dtype):
            raise self.refuse(f"expected {words}, got {spec}")

    def argument_error(self, message: str) -> OperatorArgumentError:
        """`raise self.argument_error("size should be positive, got 0")`: with the operator's name in front."""
        return OperatorArgumentError(f"{self.name}: {message}", operator=self.name)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r:.40}" for name, value in self.constants.items() if value is not None)
        return f"{self.name}({shown})"
