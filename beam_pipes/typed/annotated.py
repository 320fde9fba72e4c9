"""What the annotations of a stage function say: which classes it takes and gives, and whether it gives several.

| annotation | takes, or gives |
| --- | --- |
| `str`, `np.ndarray`, `tf.train.Example` | that class |
| `dict[str, object]`, `list[int]`, `npt.NDArray[np.int32]` | the class before the brackets |
| a `TypedDict` | `dict` |
| `dict | None` | a `dict`, or nothing |
| `Iterator[dict]`, `Iterable[dict]`, `Generator[dict, None, None]` | any number of `dict` |
| `Any`, `object` | anything |
| nothing | what the stage before gives, or the stage after takes |
"""

from __future__ import annotations

import collections.abc
import dataclasses
import dis
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from beam_pipes.errors import InvalidTypeSignatureException
from beam_pipes.format.spec import Record

Classes = tuple[type, ...]

# Annotations of several outputs, one after the other; a list is one value, such as the words of a line.
_SEVERAL = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
)


@dataclasses.dataclass(frozen=True)
class Given:
    """What a function returns: the classes of one output (None: not annotated), and whether there may be several."""

    classes: Classes | None
    several: bool


def parameters_of(function: Callable[..., object], where: str) -> dict[str, inspect.Parameter]:
    """The parameters of a stage function, the record first. Raises if it takes no record."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except ValueError:  # a builtin without a signature: it takes a record
        return {"record": inspect.Parameter("record", inspect.Parameter.POSITIONAL_ONLY)}
    first = next(iter(parameters.values()), None)
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        raise InvalidTypeSignatureException(
            f"stage {where}: a stage takes the record as its first parameter, got "
            f"{inspect.signature(function)}. Write def {where}(line: str) -> dict: …, with the type of its record.",
            stage=where,
        )
    return parameters


def taken_classes(function: Callable[..., object], where: str, *, batched: bool) -> Classes | None:
    """The classes of record that a function takes; None if its first parameter has no annotation."""
    first = next(iter(parameters_of(function, where).values()))
    if first.annotation is inspect.Parameter.empty:
        return None
    place = f"stage {where}, parameter {first.name!r}"
    annotation = _resolved(function, first.annotation, place)
    if batched:
        annotation = _element_of_batch(annotation, place, f"list[{_a_type_of(first.name)}]")
    return None if annotation is None else _classes(annotation, place)


def given_classes(function: Callable[..., object], where: str, *, batched: bool) -> Given:
    """What a function returns."""
    try:
        annotation = inspect.signature(function).return_annotation
    except ValueError:
        annotation = inspect.Signature.empty
    generates = inspect.isgeneratorfunction(inspect.unwrap(_bare(function)))
    if annotation is inspect.Signature.empty:
        return Given(None, generates and not batched)
    place = f"stage {where}, what it returns"
    annotation = _resolved(function, annotation, place)
    if batched:
        annotation = _element_of_batch(annotation, place, "list[dict]")
        if annotation is None:
            return Given(None, False)
    several = False
    classes: list[type] = []
    for member in _members(annotation):
        if typing.get_origin(member) in _SEVERAL or member in _SEVERAL:
            several = True
            arguments = typing.get_args(member)
            members = _members(arguments[0]) if arguments else [object]
        else:
            members = [member]
        for each in members:
            classes += [one for one in _classes(each, place) if one is not type(None) and one not in classes]
    if not classes:
        raise InvalidTypeSignatureException(
            f"{place}: the annotation says None, so that no record would come out. Write what it returns, such as "
            "-> dict[str, object] or -> dict[str, object] | None.",
            stage=where,
        )
    if generates and not several and not batched:
        raise InvalidTypeSignatureException(
            f"{place}: a function that yields gives several outputs, and its annotation is {_shown(annotation)}. Write "
            f"-> Iterator[{_shown(annotation)}].",
            stage=where,
            found=annotation,
        )
    return Given(tuple(classes), several)


def single_class(classes: Classes | None) -> type:
    """One class for all of these, for a signature with only one: `object` for several."""
    return classes[0] if classes is not None and len(classes) == 1 else object


def describe_classes(classes: Classes | None) -> str:
    """`dict`, or `str | bytes`."""
    return "anything" if classes is None else " | ".join(one.__name__ for one in classes)


def has_fields(cls: type) -> bool:
    """Whether the fields of the class's objects make them examples: a dataclass or a NamedTuple."""
    return dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def fields_of(value: Record) -> dict[str, object]:
    """The fields of a dataclass or NamedTuple as a dict; values are unchanged."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(value._asdict())


def _bare(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _resolved(function: Callable[..., object], annotation: object, place: str) -> object:
    """An annotation as an object: `from __future__ import annotations` leaves text."""
    bare = inspect.unwrap(_bare(function))
    names = dict(getattr(bare, "__globals__", {}))
    code = getattr(bare, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(bare, "__closure__", None) or (), strict=False):
        if cell != types.CellType():
            names[name] = cell.cell_contents
    try:
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        return typing.get_type_hints(holder, globalns=names)["it"]
    except Exception as error:
        raise InvalidTypeSignatureException(
            f"{place}: the annotation {annotation!r} cannot be read: {type(error).__name__}: {error}. Import or define "
            "its names at the top of the module, outside of `if TYPE_CHECKING:`.",
            found=annotation,
        ) from error


def _members(annotation: object) -> list[object]:
    """The members of a union without None, with aliases and `Annotated` resolved."""
    annotation = _plain(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [each for one in typing.get_args(annotation) for each in _members(one)]
    return [] if annotation in (None, type(None)) else [annotation]


def _plain(annotation: Any) -> object:
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _classes(annotation: object, place: str) -> Classes:
    """The classes of values that an annotation admits."""
    found: list[type] = []
    for member in _members(annotation):
        cls = _class(member)
        if cls is None:
            raise InvalidTypeSignatureException(
                f"{place}: expected a class, such as str, dict[str, object] or np.ndarray, got the annotation "
                f"{_shown(member)}. Write the class of the value, or object for anything.",
                found=member,
            )
        found.append(cls)
    return tuple(dict.fromkeys(found)) or (type(None),)


def _class(member: object) -> type | None:
    if member is Any:
        return object
    if isinstance(member, typing.TypeVar):
        return object if member.__bound__ is None else _class(_plain(member.__bound__))
    if typing.is_typeddict(member):
        return dict
    origin = typing.get_origin(member)
    if origin is typing.Literal:
        kinds = {type(value) for value in typing.get_args(member)}
        return kinds.pop() if len(kinds) == 1 else object
    cls = member if origin is None else origin
    if typing.is_typeddict(cls):
        return dict
    if not isinstance(cls, type):
        return None
    try:
        isinstance(None, cls)
    except TypeError:
        return None
    return cls


def _element_of_batch(annotation: object, place: str, example: str) -> object:
    """The element of `list[T]`, or None if unspecified."""
    annotation = _plain(annotation)
    origin = typing.get_origin(annotation) or annotation
    if not (isinstance(origin, type) and issubclass(origin, collections.abc.Iterable)) or origin in (str, bytes, dict):
        raise InvalidTypeSignatureException(
            f"{place}: a batched stage takes a list of records and returns a list with one result for each, and the "
            f"annotation is {_shown(annotation)}. Write {example}.",
            found=annotation,
        )
    arguments = typing.get_args(annotation)
    return arguments[0] if arguments else None


def _a_type_of(name: str) -> str:
    return "str" if "line" in name or "text" in name else "dict"


def _shown(annotation: object) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")


def only_yields(function: object) -> bool:
    """Whether this is a generator function that surely returns nothing besides what it yields."""
    if not inspect.isgeneratorfunction(function):
        return False
    before: dis.Instruction | None = None
    for found in dis.get_instructions(getattr(function, "__func__", function)):
        if found.opname == "RETURN_CONST" and found.argval is not None:
            return False
        if found.opname == "RETURN_VALUE" and (
            found.is_jump_target or before is None or before.opname != "LOAD_CONST" or before.argval is not None
        ):
            return False
        before = found
    return True
