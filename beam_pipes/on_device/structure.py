"""Walking over an element: a tensor, or dicts, tuples and lists of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any

from beam_pipes.errors import LoaderError


@dataclasses.dataclass(frozen=True, eq=False)
class Skipped:
    """A value under a key of `skip_keys`: every conversion leaves it as it is."""

    value: Any


def map_leaves(function: Callable[[Any, str], Any], element: Any, key: str = "") -> Any:
    """`function(leaf, key)` on every leaf; the key of `{"a": ({"b": leaf},)}` is `a/0/b`."""
    if isinstance(element, dict):
        return {name: map_leaves(function, item, _joined(key, name)) for name, item in element.items()}
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        names = zip(element._fields, element, strict=True)
        return type(element)(*(map_leaves(function, item, _joined(key, name)) for name, item in names))
    if isinstance(element, list | tuple):
        return type(element)(map_leaves(function, item, _joined(key, i)) for i, item in enumerate(element))
    return element if isinstance(element, Skipped) else function(element, key)


def skipping(element: Any, skip_keys: Collection[str]) -> Any:
    """The element with the values of `skip_keys` marked `Skipped`, in every dict it holds."""
    if not skip_keys:
        return element
    if isinstance(element, dict):
        return {
            name: Skipped(item) if name in skip_keys else skipping(item, skip_keys) for name, item in element.items()
        }
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(skipping(item, skip_keys) for item in element))
    if isinstance(element, list | tuple):
        return type(element)(skipping(item, skip_keys) for item in element)
    return element


def unskipped(element: Any) -> Any:
    """The element with the marked values back in their places."""
    if isinstance(element, dict):
        return {name: unskipped(item) for name, item in element.items()}
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return type(element)(*(unskipped(item) for item in element))
    if isinstance(element, list | tuple):
        return type(element)(unskipped(item) for item in element)
    return element.value if isinstance(element, Skipped) else element


def checked_skip_keys(skip_keys: str | Iterable[str], element_spec: Any) -> frozenset[str]:
    """The keys as a set; one that no element has is an error where the element spec is known."""
    keys = frozenset([skip_keys] if isinstance(skip_keys, str) else skip_keys)
    if element_spec is not None and keys:
        known = set(_names(element_spec))
        if keys - known:
            raise LoaderError(
                f"skip_keys names {sorted(keys - known)}, but the elements have the keys {sorted(known)}.",
                keys=sorted(keys - known),
            )
    return keys


def _names(element: Any) -> Iterable[str]:
    if isinstance(element, dict):
        for name, item in element.items():
            yield str(name)
            yield from _names(item)
    elif isinstance(element, list | tuple):
        for item in element:
            yield from _names(item)


def _joined(key: str, name: Any) -> str:
    return f"{key}/{name}" if key else str(name)
