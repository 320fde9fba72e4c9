"""Reading the examples of one batch; whatever goes wrong names the example."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import ExampleError
from beam_pipes.map_style.datasets.base import MapStyle
from beam_pipes.map_style.datasets.epoch import reading_epoch


def load_examples(dataset: MapStyle, indices: list[int], epoch: int) -> list[Any]:
    """Returns the examples at `indices`, in one call where the dataset has `__getitems__(indices)` as torch's may.

    Any exception becomes an `ExampleError` with the `index` (or the `indices`) and the original as its cause.
    """
    with reading_epoch(epoch):
        return _load_all(dataset, indices)


def _load_all(dataset: MapStyle, indices: list[int]) -> list[Any]:
    together = getattr(dataset, "__getitems__", None)
    if together is None:
        return [_load(dataset, index) for index in indices]
    try:
        examples = list(together(indices))
    except Exception as error:
        raise ExampleError(
            f"loading examples {short(indices)} failed: {type(error).__name__}: {error}", indices=indices
        ) from error
    if len(examples) != len(indices):
        raise ExampleError(
            f"{type(dataset).__name__}.__getitems__ should give one example for each of {len(indices)} indices, "
            f"got {len(examples)} for {short(indices)}",
            indices=indices,
        )
    return examples


def short(indices: list[int]) -> str:
    """Shows indices, the first eight of many."""
    if len(indices) <= 8:
        return str(indices)
    return f"[{', '.join(map(str, indices[:8]))}, … {len(indices) - 8} more]"


def _load(dataset: MapStyle, index: int) -> Any:
    try:
        return dataset[index]
    except Exception as error:
        raise ExampleError(f"loading example {index} failed: {type(error).__name__}: {error}", index=index) from error
