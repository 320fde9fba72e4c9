"""Packing a stream of NumPy examples: the rows of `trim_and_pack_dataset`, without TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.transforms.converters.rows import Rows


def pack_examples(examples: Iterable[Mapping[str, np.ndarray]], lengths: Mapping[str, int]) -> Iterator[Rows]:
    """Fills one row after the other, in stream order; an example that does not fit begins the next row.

    With lengths `{"targets": 6}`: `[3, 9, 1], [4, 1], [5, 5]` → `[3, 9, 1, 4, 1, 0]` with ids `[1, 1, 1, 2, 2, 0]`,
    then `[5, 5, 0, 0, 0, 0]`. Examples are cut to the lengths. As online packing does, it closes a row after as many
    examples as the largest feature is long, and holds no more than those in memory. Features without a length are
    left out; further axes and all dtypes are kept.
    """
    window = max(1, *lengths.values())
    stream = iter(examples)
    while batch := list(itertools.islice(stream, window)):
        trimmed = [{name: np.asarray(example[name])[:limit] for name, limit in lengths.items()} for example in batch]
        start = 0
        while start < len(trimmed):
            end = _end_of_row(trimmed, start, lengths)
            yield _row(trimmed[start:end], lengths)
            start = end


def _end_of_row(examples: Sequence[Mapping[str, np.ndarray]], start: int, lengths: Mapping[str, int]) -> int:
    room = dict(lengths)
    for end in range(start, len(examples)):
        for name in lengths:
            room[name] -= len(examples[end][name])
        if min(room.values()) < 0:
            return end
    return len(examples)


def _row(examples: Sequence[Mapping[str, np.ndarray]], lengths: Mapping[str, int]) -> Rows:
    row: Rows = {}
    for name, limit in lengths.items():
        parts = [example[name] for example in examples]
        sizes = [len(part) for part in parts]
        used = sum(sizes)
        inner = np.max([part.shape[1:] for part in parts], axis=0).astype(int) if parts[0].ndim > 1 else ()
        values = np.zeros((limit, *inner), parts[0].dtype)
        segment_ids, positions = np.zeros(limit, np.int32), np.zeros(limit, np.int32)
        segment_ids[:used] = np.repeat(np.arange(1, len(parts) + 1), sizes)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
        positions[:used] = np.arange(used) - np.repeat(starts, sizes)
        for start, part in zip(starts, parts, strict=True):
            place = (slice(start, start + len(part)), *map(slice, part.shape[1:]))
            values[place] = part
        row |= {name: values, f"{name}_segment_ids": segment_ids, f"{name}_positions": positions}
    return row
