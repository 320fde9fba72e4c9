"""Batches: dicts of arrays that share their first dimension, apart from concatenated `values`.

A ragged feature taken as values has two entries, `tokens` (all values, concatenated) and `tokens/lengths`.

*Fills* are the padding of each column, by name: the pad value in ragged features, 0, False or an empty text in all
others. Columns without a fill are computed from the rows (lengths, segment ids), and are 0 for missing rows.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import brief
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_number
from beam_pipes.format.spec import FeatureSpec

Batch = dict[str, Array]
PadValue = int | float | Mapping[str, int | float]
Fills = Mapping[str, object]

LENGTHS = "/lengths"
SHAPE = "/shape"


def pad_value_of(feature: str, pad_value: PadValue) -> int | float:
    """The pad value of one feature; 0 for a feature that a mapping does not name."""
    return pad_value.get(feature, 0) if isinstance(pad_value, Mapping) else pad_value


def checked_pad(value: object, dtype: np.dtype, feature: str) -> object:
    """`value` as a scalar of `dtype`; raises `LoaderError` if it is not exactly representable (-1 in uint8 is 255)."""
    # Scalars of ml_dtypes (bfloat16) are NumPy's generics, and no numbers of Python's.
    if not isinstance(value, (numbers.Real, np.generic)):
        raise LoaderError(
            f"pad value of feature {feature!r} should be a number, got {value!r}", feature=feature, pad_value=value
        )
    try:
        if dtype.kind not in "biufV" and value == 0:  # V: bfloat16 and its kin
            return np.zeros((), dtype)[()]
        return exact_number(value, dtype)
    except (NotExactError, NotNumbersError, TypeError):
        raise LoaderError(
            f"pad value {brief(value)} of feature {feature!r} does not fit its dtype {dtype}; "
            "pass a value within the dtype's range",
            feature=feature,
            pad_value=value,
        ) from None


def fills_of(spec: Mapping[str, FeatureSpec], features: Iterable[str], pad_value: PadValue) -> dict[str, object]:
    """The padding of each feature: a single pad value applies to the ragged ones, a named one to its feature.

    Raises `LoaderError` for a pad value that the feature's dtype cannot hold.
    """
    fills: dict[str, object] = {}
    for name in features:
        feature = spec[name]
        named = isinstance(pad_value, Mapping) and name in pad_value
        value = pad_value_of(name, pad_value) if feature.ragged or named else 0
        if feature.numpy_dtype.kind == "O":
            empty: bytes | str = b"" if feature.dtype == "bytes" else ""
            fills[name] = value if isinstance(value, type(empty)) else empty
        else:
            fills[name] = checked_pad(value, feature.numpy_dtype, name)
    return fills


def fills_of_result(result: Batch, fills: Fills, pad_value: PadValue) -> dict[str, object]:
    """The padding of a transform's columns: that of the feature with the same name, or the pad value for the name."""
    found: dict[str, object] = {}
    for name, array in result.items():
        named = isinstance(pad_value, Mapping) and name in pad_value
        value = pad_value_of(name, pad_value) if named else fills.get(name, 0)
        if array.dtype.kind == "O":
            texts = (bytes, str) if not array.size else (bytes,) if isinstance(array.flat[0], bytes) else (str,)
            found[name] = value if isinstance(value, texts) else (b"" if texts == (bytes,) else "")
        elif array.dtype.kind not in "SU":
            found[name] = checked_pad(0 if isinstance(value, (bytes, str)) and not named else value, array.dtype, name)
    return found


def pad_rows(batch: Batch, rows: int, fills: Fills) -> Batch:
    """The batch with rows appended up to `rows`: {'x': [[1, 2]]}, 3 → {'x': [[1, 2], [0, 0], [0, 0]]}."""
    padded = {}
    for name, array in batch.items():
        if name + LENGTHS in batch:
            padded[name] = array  # concatenated values: the appended rows have none
            continue
        padded[name] = _filled((rows, *array.shape[1:]), array.dtype, fills.get(name))
        padded[name][: len(array)] = array
    return padded


def mask_rows(batch: Batch, hidden: Array, fills: Fills) -> Batch:
    """The batch with `hidden` rows replaced by their fills; arrays that others may hold are copied."""
    masked = {}
    for name, array in batch.items():
        masked[name] = array.copy()
        masked[name][hidden] = _filled((1, *array.shape[1:]), array.dtype, fills.get(name))[0]
    return masked


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Stacks batches of equal shapes, with the batches as first dimension; raises `LoaderError` for others."""
    for name, first in batches[0].items():
        other = next((batch[name].shape for batch in batches if batch[name].shape != first.shape), None)
        if other is not None:
            raise LoaderError(
                f"batches that are stacked need the same shapes, and feature {name!r} has {first.shape} and {other}: "
                "pass pad_to=…, leave out ragged='values', last='partial' and cu_seqlens, or read them one by one "
                "with batch_at",
                feature=name,
            )
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def merge_rows(
    parts: Sequence[tuple[Array, Batch]],
    rows: int,
    fills: Fills,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Batch:
    """Merges batches with the same columns: each part says which rows of the result it holds.

    Padded features of different widths get the largest one, or that in `shapes`.
    """
    first = parts[0][1]
    merged: Batch = {}
    for name in first:
        if name + LENGTHS in first:
            merged[name] = _merge_values(name, parts, rows)
            continue
        arrays = [part[name] for _, part in parts]
        inner = shapes.get(name) if shapes is not None else None
        shape = (rows, *(inner or np.max([array.shape[1:] for array in arrays], axis=0).astype(int).tolist()))
        uniform = all(array.shape[1:] == shape[1:] for array in arrays)
        if uniform:
            out = np.empty(shape, arrays[0].dtype)
        else:
            out = _filled(shape, arrays[0].dtype, fills.get(name))
        for (places, _), array in zip(parts, arrays, strict=True):
            if uniform:
                out[places] = array
            else:
                corner: tuple[Array | slice, ...] = (places, *(slice(0, size) for size in array.shape[1:]))
                out[corner] = array
        merged[name] = out
    return merged


def ranges(starts: Array, counts: Array) -> npt.NDArray[np.int64]:
    """Concatenated ranges: starts [5, 0], counts [2, 3] → [5, 6, 0, 1, 2]."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts: npt.NDArray[np.int64] = np.repeat(np.asarray(starts, np.int64) - (ends - counts), counts)
    shifts += np.arange(total)
    return shifts


def _merge_values(name: str, parts: Sequence[tuple[Array, Batch]], rows: int) -> Array:
    counts = np.zeros(rows, np.int64)
    for places, part in parts:
        counts[places] = _counts(name, part)
    starts = np.cumsum(counts) - counts
    values = [part[name] for _, part in parts]
    out = np.empty((int(counts.sum()), *values[0].shape[1:]), np.result_type(*values))
    for (places, part), array in zip(parts, values, strict=True):
        out[ranges(starts[places], _counts(name, part))] = array
    return out


def _counts(name: str, part: Batch) -> Array:
    """The number of concatenated values per row: values with a shape are concatenated flat."""
    shapes = part.get(name + SHAPE)
    return part[name + LENGTHS] if shapes is None else np.asarray(shapes.prod(axis=1))


def _filled(shape: tuple[int, ...], dtype: np.dtype, fill: object) -> Array:
    if fill is None and dtype.kind == "O":
        fill = ""
    return np.zeros(shape, dtype) if fill is None else np.full(shape, fill, dtype)
