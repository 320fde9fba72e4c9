"""The default batch function: an array of structures becomes a structure of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.cache.exact import NotExactError, natural_array
from beam_pipes.errors import DatasetError


def default_collate(examples: Sequence[Any]) -> Any:
    """Turns a list of examples into one structure like an example, whose leaves are batches.

        [(1.2, [7, 8]), (1.6, [9, 9])]         → (array([1.2, 1.6]), [array([7, 9]), array([8, 9])])
        [{"x": array(4,)}, {"x": array(4,)}]   → {"x": array(2, 4)}

    Arrays of one shape are stacked; numbers become arrays (int64, float64, bool); `str`, `bytes` and paths become
    lists; tuples, named tuples, lists and dicts are gone through field by field. Raises `DatasetError`, with the place
    of the field, where examples differ in shape, length, keys or type: sequences of different length need a batch
    function that pads.
    """
    if not len(examples):
        raise DatasetError("default_collate needs at least one example, got an empty list")
    return _collate(list(examples), "example")


def _collate(values: list[Any], place: str) -> Any:
    first = values[0]
    if isinstance(first, (int, float, complex, np.generic)) and not isinstance(first, (str, bytes)):
        return _numbers(values, place)
    _check_types(values, place)
    if isinstance(first, np.ndarray):
        return _stack(values, place)
    if isinstance(first, (str, bytes)) or hasattr(first, "__fspath__"):
        return values
    if isinstance(first, Mapping):
        return {key: _collate(column, f"{place}[{key!r}]") for key, column in _columns_by_key(values, place).items()}
    if isinstance(first, (tuple, list)):
        columns = [_collate(column, f"{place}[{field}]") for field, column in enumerate(_columns(values, place))]
        if isinstance(first, list):
            return columns
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    raise DatasetError(
        f"default_collate cannot batch {place} of type {type(first).__name__}; it takes arrays, numbers, strings, "
        "bytes, paths, tuples, lists and dicts of them. Pass a collate_fn for anything else."
    )


def _numbers(values: list[Any], place: str) -> np.ndarray[Any, Any]:
    integral = all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values)
    kinds = {np.asarray(value).dtype.kind for value in values}
    try:
        array = natural_array(values) if integral or len(kinds) == 1 else None
    except NotExactError:
        raise DatasetError(
            f"default_collate found integers at {place} that no 64-bit integer dtype holds together"
        ) from None
    if array is None or array.dtype.kind not in "biufcmM":
        names = sorted({type(value).__name__ for value in values})
        raise DatasetError(f"default_collate found values of different types at {place}: {', '.join(names)}")
    return array


def _stack(arrays: list[np.ndarray[Any, Any]], place: str) -> np.ndarray[Any, Any]:
    for row, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DatasetError(
                f"default_collate found arrays of different shape at {place}: {arrays[0].shape} in example 0, "
                f"{array.shape} in example {row} of the batch. Pass a collate_fn that pads, such as batch_sequences."
            )
        if array.dtype != arrays[0].dtype:
            raise DatasetError(
                f"default_collate found arrays of different dtype at {place}: {arrays[0].dtype} in example 0, "
                f"{array.dtype} in example {row} of the batch. Convert them, or pass a collate_fn."
            )
    return np.stack(arrays)


def _check_types(values: list[Any], place: str) -> None:
    names = sorted({type(value).__name__ for value in values})
    if len(names) > 1 and not (all(isinstance(value, Mapping) or hasattr(value, "__fspath__") for value in values)):
        raise DatasetError(f"default_collate found values of different types at {place}: {', '.join(names)}")


def _columns_by_key(records: list[Any], place: str) -> dict[Any, list[Any]]:
    keys = list(records[0])
    for row, record in enumerate(records):
        if set(record) != set(keys):
            raise DatasetError(
                f"default_collate found dicts of different keys at {place}: {keys} in example 0, {list(record)} in "
                f"example {row} of the batch"
            )
    return {key: [record[key] for record in records] for key in keys}


def _columns(records: list[Any], place: str) -> list[list[Any]]:
    sizes = [len(record) for record in records]
    if len(set(sizes)) > 1:
        raise DatasetError(
            f"default_collate found sequences of different length at {place}: {sizes}. "
            "Pass a collate_fn that pads, such as batch_sequences or batch_text_id."
        )
    return [[record[field] for record in records] for field in range(sizes[0])]
