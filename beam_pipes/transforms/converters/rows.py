"""Rows: task features laid out in fixed length, with the segment id and the position of every step.

A row holds, for each feature `f` of length L: `f` (its values, then zeros), `f_segment_ids` (1, 2, … for the
first, second, … example in the row, 0 on padding) and `f_positions` (0, 1, … within each example). Batches of rows
have one more leading axis. A padded example is a row with one segment. An example has the same segment id in all its
features; an example that is empty in a feature skips its id there, and the numbering continues:

    inputs   [7, 5 | 4]   inputs_segment_ids   [1, 1, 2]
    targets  [     | 5]   targets_segment_ids  [2, 0, 0]

Online packing, a packing plan and padding all give this form, so one conversion serves them all.

`pack_examples` packs a stream of NumPy examples into the rows of `trim_and_pack_dataset`, without TensorFlow.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.errors import TaskError

Rows = dict[str, np.ndarray]


def padded_rows(values: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray | int]) -> Rows:
    """Rows of one segment each, from arrays that are padded already and the true lengths.

    `padded_rows({"targets": [[3, 0, 9, 0]]}, {"targets": [3]})` → `{"targets": [[3, 0, 9, 0]], "targets_segment_ids":
    [[1, 1, 1, 0]], "targets_positions": [[0, 1, 2, 0]]}`. Features without an entry in `lengths` are passed on alone.
    `values` are (batch, length, …), lengths (batch,); one row is (length, …) and a number.

    Raises `TaskError` when a length exceeds the array it belongs to.
    """
    rows: Rows = {}
    for name, value in values.items():
        rows[name] = value = np.asarray(value)
        if name not in lengths:
            continue
        counts = np.asarray(lengths[name])
        size = value.shape[counts.ndim]
        if counts.size and int(counts.max()) > size:
            raise TaskError(
                f"feature {name!r}: a length of {int(counts.max())} was given for an array padded to {size}; "
                "lengths count what is before the padding",
                feature=name,
            )
        steps = np.arange(size, dtype=np.int32)
        inside = steps < counts[..., None]
        rows[f"{name}_segment_ids"] = inside.astype(np.int32)
        rows[f"{name}_positions"] = np.where(inside, steps, 0).astype(np.int32)
    return rows


def pad_example(example: Mapping[str, np.ndarray], limits: Mapping[str, Mapping[int, int]]) -> Rows:
    """One example as a row: each feature of `limits` is trimmed or zero-padded on the axes given, the others dropped.

    `pad_example({"targets": [3, 9, 1]}, {"targets": {0: 5}})["targets"]` → `[3, 9, 1, 0, 0]`. Ids and positions follow
    the first limited axis.
    """
    rows: Rows = {}
    for name, sizes in limits.items():
        value = np.asarray(example[name])
        value = value[tuple(slice(sizes.get(axis)) for axis in range(value.ndim))]
        shape = [sizes.get(axis, size) for axis, size in enumerate(value.shape)]
        padded = np.full(shape, b"", object) if value.dtype.kind in "SUO" else np.zeros(shape, value.dtype)
        padded[tuple(map(slice, value.shape))] = value
        rows[name] = padded
        for axis in list(sizes)[:1]:
            steps = np.arange(sizes[axis], dtype=np.int32)
            inside = steps < value.shape[axis]
            rows[f"{name}_segment_ids"] = inside.astype(np.int32)
            rows[f"{name}_positions"] = steps * inside
    return rows


def parts_with_ends(parts: Sequence[str]) -> Sequence[str]:
    """The parts whose ends a joined row marks: for inputs and targets the inputs; for three parts every one.

    If an example has no suffix, its targets replace it, which only the end of the last part reveals.
    """
    return parts[:1] if len(parts) == 2 else parts


def join_segments(rows: Mapping[str, np.ndarray], features: Sequence[str]) -> Rows:
    """Concatenates the `features` of each example inside its row, as a prefix language model reads them.

    `inputs` `[7, 8 | 4]` with ids `[1, 1, 2]` and `targets` `[9 | 6, 6]` with ids `[1, 2, 2]` →
    `targets` `[7, 8, 9 | 4, 6, 6]`, ids `[1, 1, 1, 2, 2, 2]`, positions `[0, 1, 2, 0, 1, 2]`, and for every step where
    the parts of its example end: `inputs_ends` `[2, 2, 2 | 1, 1, 1]` (`targets_ends` `[3, 3, 3 | 3, 3, 3]`).

    The joined row is as long as its parts together. One row, or batches of them.

    Raises `TaskError` if the segments of a row are not in ascending order.
    """
    ids = [np.asarray(rows[f"{name}_segment_ids"]) for name in features]
    shape = (*ids[0].shape[:-1], sum(array.shape[-1] for array in ids))
    ids = [array.reshape(-1, array.shape[-1]) for array in ids]
    num_rows, num_ids = len(ids[0]), max(int(array.max(initial=0)) for array in ids)
    # (rows, examples, parts): tokens of each part of each example.
    counts = np.stack([_count(array, num_ids, name) for array, name in zip(ids, features, strict=True)], axis=-1)
    part_ends = counts.cumsum(axis=-1)
    totals = part_ends[..., -1]
    starts = totals.cumsum(axis=-1) - totals

    # Each row is one run of steps per example, and a last run of padding.
    runs = np.concatenate([totals, shape[-1] - totals.sum(axis=-1, keepdims=True)], axis=-1).reshape(-1)

    def over_runs(values: np.ndarray) -> np.ndarray:
        padded = np.concatenate([values, np.zeros((num_rows, 1), np.int64)], axis=-1).astype(np.int32)
        return np.repeat(padded.reshape(-1), runs).reshape(shape)

    joined_ids = over_runs(np.broadcast_to(np.arange(1, num_ids + 1), totals.shape))
    steps = np.arange(shape[-1], dtype=np.int32)
    joined: Rows = {
        "targets_segment_ids": joined_ids,
        "targets_positions": (steps - over_runs(starts)) * (joined_ids > 0),
        **{f"{name}_ends": over_runs(part_ends[..., index]) for index, name in enumerate(features)},
    }
    tokens = np.zeros(num_rows * shape[-1], np.result_type(*(np.asarray(rows[name]).dtype for name in features)))
    row_starts = np.arange(num_rows)[:, None] * shape[-1]
    for index, name in enumerate(features):
        sizes = counts[..., index].reshape(-1)
        places = (row_starts + starts + part_ends[..., index]).reshape(-1) - sizes.cumsum()
        values = np.asarray(rows[name]).reshape(ids[index].shape)[ids[index] > 0]
        tokens[np.repeat(places, sizes) + np.arange(len(values))] = values
    joined["targets"] = tokens.reshape(shape)
    return joined


def _count(segment_ids: np.ndarray, num_ids: int, name: str) -> np.ndarray:
    """(rows, num_ids): how many steps have the ids 1, 2, …"""
    if ((segment_ids > 0) & (segment_ids < np.maximum.accumulate(segment_ids, axis=-1))).any():
        raise TaskError(
            f"feature {name!r}: the segment ids of a row should ascend (1, 1, 2, 2, …, 0), so that its examples can be "
            "joined in order",
            feature=name,
        )
    flat = (np.arange(len(segment_ids))[:, None] * (num_ids + 1) + segment_ids).reshape(-1)
    counts: np.ndarray = np.bincount(flat, minlength=len(segment_ids) * (num_ids + 1))
    return counts.reshape(-1, num_ids + 1)[:, 1:]


def with_feature_names(rows: Mapping[str, np.ndarray], features: Collection[str]) -> Rows:
    """Names the ids and positions of a single feature after it: `segment_ids` → `targets_segment_ids`."""
    named = dict(rows)
    if len(features) == 1:
        (feature,) = features
        for part in ("segment_ids", "positions"):
            if part in named and f"{feature}_{part}" not in named:
                named[f"{feature}_{part}"] = named.pop(part)
    return named


def check_rows(rows: Mapping[str, np.ndarray], features: Iterable[str], converter: str) -> None:
    """Checks that every feature is present, with ids and positions of its shape.

    Raises `TaskError` naming the converter, the missing key, or the shapes found.
    """
    for name in features:
        for key in (name, f"{name}_segment_ids", f"{name}_positions"):
            if key not in rows:
                raise TaskError(
                    f"{converter}: the rows lack {key!r}; expected {name!r}, '{name}_segment_ids' and "
                    f"'{name}_positions', found {sorted(rows)}. padded_rows() makes them from arrays and lengths.",
                    feature=name,
                    converter=converter,
                )
        shape = np.shape(rows[f"{name}_segment_ids"])
        if np.shape(rows[name])[: len(shape)] != shape or np.shape(rows[f"{name}_positions"]) != shape:
            raise TaskError(
                f"{converter}: feature {name!r} has shape {np.shape(rows[name])}, its segment ids {shape} and its "
                f"positions {np.shape(rows[f'{name}_positions'])}; they should have the same leading axes",
                feature=name,
                converter=converter,
            )


def pack_examples(examples: Iterable[Mapping[str, np.ndarray]], lengths: Mapping[str, int]) -> Iterator[Rows]:
    """Fills one row after the other, in stream order; an example that does not fit begins the next row.

    With lengths `{"targets": 6}`: `[3, 9, 1], [4, 1], [5, 5]` → `[3, 9, 1, 4, 1, 0]` with ids `[1, 1, 1, 2, 2, 0]`,
    then `[5, 5, 0, 0, 0, 0]`. Examples are cut to the lengths. As in online packing, a row is closed after as many
    examples as the largest feature is long, and only those are held in memory. Features without a length are left out;
    further axes and all dtypes are kept.
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
