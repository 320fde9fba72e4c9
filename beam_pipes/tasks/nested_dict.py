"""Nested dicts as flat ones, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DELIMITER = "/"


def flatten_dict(nested_dct: Mapping[str, Any], delimiter: str = DELIMITER) -> dict[str, Any]:
    """`{"a": {"b": 1}, "c": 2}` → `{"a/b": 1, "c": 2}`."""
    flat: dict[str, Any] = {}
    for name, value in nested_dct.items():
        if isinstance(value, Mapping):
            inner = flatten_dict(value, delimiter)
            flat.update({f"{name}{delimiter}{rest}": leaf for rest, leaf in inner.items()})
        else:
            flat[name] = value
    return flat


def unflatten_dict(dct: Mapping[str, Any], delimiter: str = DELIMITER) -> dict[str, Any]:
    """`{"a/b": 1, "c": 2}` → `{"a": {"b": 1}, "c": 2}`."""
    nested: dict[str, Any] = {}
    for name, value in dct.items():
        *path, leaf = name.split(delimiter)
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = value
    return nested
