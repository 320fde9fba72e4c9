"""What a function takes, and what it is called."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.errors import TaskError

INJECTED = ("output_features", "sequence_length")


def function_name(function: Any) -> str:
    """Name of a function, a `functools.partial`, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def fully_qualified_class_name(instance: Any) -> str:
    """`package.module.Class` of an object."""
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Parameters by name; those that a `functools.partial` binds by keyword have a default."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def bound_names(function: Any) -> frozenset[str]:
    """Names of the keyword arguments that a `functools.partial` has bound, also inside of others and of decorators."""
    names: set[str] = set()
    while True:
        if isinstance(function, functools.partial):
            names.update(function.keywords)
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return frozenset(names)


def injectable(transform: Any) -> frozenset[str]:
    """Names that `add_kwargs_to_transform` gives a value: parameters that are not bound, and fields of a dataclass."""
    return _fields(transform) | (parameters(transform).keys() - bound_names(transform))


def add_kwargs_to_transform(transform: Any, **kwargs: Any) -> Any:
    """A function or a callable dataclass with those arguments that it takes: `f(ds, output_features)` → `f(ds)`.

    Fields of a dataclass are replaced, whatever they hold. What a `functools.partial` has bound stays. A function with
    `**kwargs` is given what it names.
    """
    fields = _fields(transform)
    replaced = {name: value for name, value in kwargs.items() if name in fields}
    if replaced:
        transform = dataclasses.replace(transform, **replaced)
    accepted = injectable(transform) - fields
    bound = {name: value for name, value in kwargs.items() if name in accepted}
    return functools.partial(transform, **bound) if bound else transform


def _fields(transform: Any) -> frozenset[str]:
    """Fields of an object of a callable dataclass; none of anything else, such as a typed stage."""
    if not dataclasses.is_dataclass(transform) or isinstance(transform, type) or not callable(transform):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(transform) if field.init)


def required_positional(function: Any) -> list[str]:
    """Names of the parameters that a caller has to give by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [n for n, p in parameters(function).items() if p.kind in kinds and p.default is p.empty]


def validate_args(function: Callable[..., Any], expected: Sequence[str]) -> None:
    """Checks that a function begins with these parameters and asks for no others.

    Raises:
        TaskError: it does not.
    """
    expected = list(expected)
    actual = list(parameters(function))
    if actual[: len(expected)] != expected:
        raise TaskError(
            f"'{function_name(function)}' must have initial args {expected}, got: {actual}", expected=expected
        )
    needed = required_positional(function)
    if not set(needed) <= set(expected):
        raise TaskError(
            f"'{function_name(function)}' may only have positional args {expected}, got: {needed}", expected=expected
        )
