"""Type signatures: a class, or a one-level dict of name to class.

Graphs: the form that every declaration is turned into, with units in topological order and named outputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

from beam_pipes.errors import InvalidTypeSignatureException
from beam_pipes.format.spec import Record

# A class, or {'name': class, ...}.
Signature = type | Mapping[str, type]


def check_signature(signature: object, *, where: str) -> None:
    """Raises `InvalidTypeSignatureException` unless `signature` is a class or a one-level dict of name to class."""
    if _is_class(signature):
        return
    if isinstance(signature, Mapping):
        if not signature:
            raise InvalidTypeSignatureException(
                f"{where} should be a class or a dict of name to class, got an empty dict. Name at least one value.",
                found=signature,
            )
        for name, type_ in signature.items():
            if not isinstance(name, str):
                raise InvalidTypeSignatureException(
                    f"{where} should map names (str) to classes, got the key {name!r}.", found=signature
                )
            if not _is_class(type_):
                nested = isinstance(type_, Mapping)
                raise InvalidTypeSignatureException(
                    f"{where}[{name!r}] should be a class, got {type_!r}. "
                    f"{'Signatures nest one level only.' if nested else _ADVICE}",
                    found=signature,
                )
        return
    raise InvalidTypeSignatureException(
        f"{where} should be a class or a dict of name to class, got {signature!r} ({type(signature).__name__}). "
        f"{_ADVICE}",
        found=signature,
    )


_ADVICE = "Use a class that isinstance() accepts: list for list[int], object for anything."


def _is_class(type_: Any) -> bool:
    """Whether `isinstance(value, type_)` works: `list[int]`, `typing.Any` and most protocols are refused."""
    try:
        isinstance(None, type_)
    except TypeError:
        return False
    return isinstance(type_, type)


def describe(signature: Signature) -> str:
    """A signature in words: `str`, or `{'tokens': ndarray, 'path': str}`."""
    if isinstance(signature, Mapping):
        return "{" + ", ".join(f"{name!r}: {type_.__name__}" for name, type_ in signature.items()) + "}"
    return signature.__name__


def mismatch(value: object, signature: Signature) -> str | None:
    """Why `value` does not match `signature`, in words; None if it does."""
    if isinstance(signature, Mapping):
        if not isinstance(value, Mapping):
            return f"expected a dict with the keys {sorted(signature)}, got {brief(value)}"
        if value.keys() != signature.keys():
            return f"expected a dict with the keys {sorted(signature)}, got the keys {sorted(map(str, value))}"
        for name, type_ in signature.items():
            if not isinstance(value[name], type_):
                return f"expected {type_.__name__} for {name!r}, got {brief(value[name])}"
        return None
    if not isinstance(value, signature):
        return f"expected {signature.__name__}, got {brief(value)}"
    return None


def brief(value: object, *, limit: int = 80) -> str:
    """The type and the beginning of the repr of a value, for messages: `int: 1`."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"(its repr raises {type(error).__name__})"
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return f"{type(value).__name__}: {text}"


_PTRANSFORM = "apache_beam.transforms.ptransform.PTransform"


class BeamTransform(Protocol):
    """What we use of a `beam.PTransform`."""

    @property
    def label(self) -> str: ...


def is_beam_transform(value: object) -> TypeGuard[BeamTransform]:
    """Whether `value` is a `beam.PTransform`. Does not import Beam."""
    return _is_of_beam(type(value))


def _is_of_beam(class_: type) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}" == _PTRANSFORM for base in class_.__mro__)


def beam_transform_advice(value: object) -> str | None:
    """Advice for a Beam transform where none is allowed; None for anything else. Does not import Beam."""
    if isinstance(value, type) and _is_of_beam(value):
        return f"A PTransform is an object: write {value.__name__}() in the list of stages, see docs/beam.md."
    if not is_beam_transform(value):
        return None
    return (
        "A PTransform may regroup records, so it belongs in a list of stages, whose records are known by a key: "
        "declare(name, source, [stage, the PTransform, stage], key=…), see docs/beam.md."
    )


Join = Literal["product", "zip"]


# An element of a list that may hold PTransforms: a function, a stage, or a PTransform, which has no types.
Step = Any

# What `transform` returned, before the engine checks it: a list, or a dict with one list per output.
Produced = Any


class Stage(Protocol):
    """What a unit runs. `typed.Pipeline` is the base class to use; the engine needs no more than this."""

    @property
    def name(self) -> str: ...
    @property
    def input_type(self) -> Signature: ...
    @property
    def output_type(self) -> Signature: ...
    def transform(self, input_object: Record, /) -> Produced: ...


class Ref(NamedTuple):
    """One output of one unit: `Ref('Partition', 'train')`, or `Ref('Tokenize', None)` for a single output.

    The empty unit name denotes the input of the graph.
    """

    unit: str
    key: str | None

    def __str__(self) -> str:
        name = self.unit or "input"
        return name if self.key is None else f"{name}[{self.key!r}]"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """A stage at its place in a graph.

    `inputs` is one `Ref`, or name → `Ref` if the stage takes a dict; `join` then says how several lists become
    inputs: every combination ("product", as in the reference), or position by position ("zip").
    """

    name: str
    stage: Stage
    inputs: Ref | Mapping[str, Ref]
    join: Join = "product"

    def refs(self) -> tuple[Ref, ...]:
        """The outputs this unit reads."""
        return (self.inputs,) if isinstance(self.inputs, Ref) else tuple(self.inputs.values())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Units in a fixed topological order; `outputs` names what leaves the graph.

    `prefix` precedes the names of its units' statistics: a DAG's own name, nothing for a single stage.
    """

    name: str
    prefix: str = ""
    input_type: Signature
    units: tuple[Unit, ...]
    outputs: Mapping[str, Ref]
    output_type: Mapping[str, type]

    @functools.cached_property
    def last_uses(self) -> Mapping[Ref, int]:
        """For each output that is read, the position of the last unit that reads it; the graph's outputs stay."""
        last = {ref: position for position, unit in enumerate(self.units) for ref in unit.refs()}
        last.update(dict.fromkeys(self.outputs.values(), len(self.units)))
        return last


def graph_of(stage: Stage, *, default_output: str = "train") -> Graph:
    """The graph of a declaration: its own (`stage.graph`) if it has one, else a graph of this single stage.

    A stage with a single output type has one output called `default_output`.
    """
    own = getattr(stage, "graph", None)
    if isinstance(own, Graph):
        return own
    unit = Unit(name=stage.name, stage=stage, inputs=Ref("", None))
    if isinstance(stage.output_type, Mapping):
        outputs = {key: Ref(stage.name, key) for key in stage.output_type}
        output_type: Mapping[str, type] = dict(stage.output_type)
    else:
        outputs = {default_output: Ref(stage.name, None)}
        output_type = {default_output: stage.output_type}
    return Graph(name=stage.name, input_type=stage.input_type, units=(unit,), outputs=outputs, output_type=output_type)
