"""What a loader gives, computed the slow way: records in lists, orders of every row, batches put together by value.

It shares with the loader the orders of an epoch (which have tests of their own) and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from beam_pipes.cache import FeatureSpec, Split
from beam_pipes.loader import BlockOrder, BlockShuffle, KeyedPermutation, PackingPlan
from beam_pipes.loader.row_source import PaddedSplit

Row = dict[str, Any]
Batch = dict[str, np.ndarray[Any, Any]]
Transform = Callable[[Batch], Batch]


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Records, and the same records in a cache: as they are, packed, or padded one by one."""

    spec: Mapping[str, FeatureSpec]
    records: Sequence[Mapping[str, Any]]
    split: Split
    given: Any  # what the loader gets: the split, a PackingPlan, a PaddedSplit

    def rows(self, pad_value: int) -> list[Row]:
        """The rows with their values as arrays of the declared dtypes; padded where the source itself pads."""
        if isinstance(self.given, PackingPlan):
            return [self._packed(self.given, row, pad_value) for row in range(len(self.given))]
        if isinstance(self.given, PaddedSplit):
            return [self._padded(self.given, record, pad_value) for record in self.records]
        return [{name: as_array(value, self.spec[name]) for name, value in record.items()} for record in self.records]

    def _packed(self, plan: PackingPlan, row: int, pad_value: int) -> Row:
        (name,), width = plan.features, next(iter(plan.sequence_lengths.values()))
        spec, inner = self.spec[name], np.shape(self.records[0][name])[1:]
        values, segments, positions = np.full((width, *inner), pad_value, spec.numpy_dtype), [], []
        for entry in range(int(plan.bin_offsets[row]), int(plan.bin_offsets[row + 1])):
            start, length = int(plan.starts[entry, 0]), int(plan.lengths[entry, 0])
            piece = as_array(self.records[int(plan.records[entry])][name], spec)[start : start + length]
            values[len(segments) : len(segments) + length] = piece
            segment = entry - int(plan.bin_offsets[row]) + 1
            segments += [segment] * length
            positions += range(length)
        rest = [0] * (width - len(segments))
        return {
            name: values,
            "segment_ids": np.array(segments + rest, np.int32),
            "positions": np.array(positions + rest, np.int32),
        }

    def _padded(self, padded: PaddedSplit, record: Mapping[str, Any], pad_value: int) -> Row:
        row: Row = {}
        for name, length in padded.sequence_lengths.items():
            spec, value = self.spec[name], as_array(record[name], self.spec[name])
            if not spec.ragged:
                row[name] = value
                continue
            value = value if length is None else value[:length]
            inside = np.ones(len(value), np.int32)
            columns = {
                name: value,
                f"{name}_segment_ids": inside,
                f"{name}_positions": np.cumsum(inside, dtype=np.int32) - 1,
            }
            for column, array in columns.items():
                row[column] = array.astype(array.dtype)
                if length is not None:
                    row[column] = padded_to(
                        array, (length, *array.shape[1:]), fill_of(spec, pad_value if column == name else 0)
                    )
        return row


def as_array(value: Any, spec: FeatureSpec) -> np.ndarray[Any, Any]:
    """A value of a record as an array of the declared dtype; texts as objects."""
    if not spec.is_text:
        return np.asarray(value).astype(spec.numpy_dtype)
    array = np.empty(np.shape(value), object)
    array[...] = value
    return array


def fill_of(spec: FeatureSpec, pad_value: Any) -> Any:
    return {"bytes": b"", "str": ""}.get(spec.dtype, pad_value)


def padded_to(array: np.ndarray[Any, Any], shape: Sequence[int], fill: Any) -> np.ndarray[Any, Any]:
    if not array.ndim:
        return array
    made = np.empty(tuple(shape), array.dtype)
    made[...] = fill
    made[tuple(slice(size) for size in array.shape)] = array
    return made


def _fit_together(one: Mapping[str, tuple[Any, ...]], other: Mapping[str, tuple[Any, ...]]) -> bool:
    if not one or one.keys() != other.keys():
        return False
    for name, (dtype, form, sizes) in one.items():
        same_kind = (dtype, form, len(sizes)) == (other[name][0], other[name][1], len(other[name][2]))
        if not same_kind or any(
            None not in pair and pair[0] != pair[1] for pair in zip(sizes, other[name][2], strict=True)
        ):
            return False
    return True


def chairman(rates: Sequence[int]) -> Iterator[int]:
    """Sources by Tijdeman's rule, slot by slot, without end."""
    total, active = sum(rates), [index for index, rate in enumerate(rates) if rate]
    slack = Fraction(1, max(1, 2 * len(active) - 2))
    given = [0] * len(rates)
    for slot in itertools.count(1):
        if len(active) == 1:
            yield active[0]
            continue
        eligible = [i for i in active if Fraction(rates[i] * slot, total) - given[i] >= slack]
        chosen = min(eligible, key=lambda i: (math.floor(total * (given[i] + 1 - slack) / rates[i]), i))
        given[chosen] += 1
        yield chosen


def epoch_rows(
    sizes: Sequence[int], rates: Sequence[int] | None, exhausted: str, *, most: int
) -> list[tuple[int, int]]:
    """(source, how many of it came before) for each row of one epoch; `most` of one without end."""
    if rates is None:
        return [(0, ordinal) for ordinal in range(sizes[0])]
    given, found, rates = [0] * len(rates), [], list(rates)
    slots = chairman(rates)
    while exhausted != "repeat" or len(found) < most:
        source = next(slots)
        if given[source] >= sizes[source] and exhausted == "stop":
            break
        if given[source] >= sizes[source] and exhausted == "drop":
            # It would have to give a row again: all that have given theirs fall out, the others begin a new schedule.
            rates = [rate if given[i] < sizes[i] else 0 for i, rate in enumerate(rates)]
            if not any(rates):
                break
            slots = chairman([rate // math.gcd(*rates) for rate in rates])
            continue
        found.append((source, given[source]))
        given[source] += 1
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a loader: `options` are the loader's own, by its names."""

    sources: Sequence[Source]
    rates: Sequence[int] | None  # None: no mixture
    exhausted: str
    options: Mapping[str, Any]
    epochs: int
    most: int  # rows of a mixture without end

    def is_refused(self) -> bool:
        """Whether the sources have no common columns."""
        kinds = [self._kinds(source) for source in self.sources]
        return any(not _fit_together(one, other) for one, other in itertools.combinations(kinds, 2))

    def _kinds(self, source: Source) -> dict[str, tuple[Any, ...]]:
        """For each feature: its dtype, how it is laid out, and the sizes that are known."""
        if isinstance(source.given, PackingPlan):
            (name,) = source.given.features
            spec = source.spec[name]
            return {name: (spec.dtype, "", (*source.given.sequence_lengths.values(), *spec.shape[1:]))}
        kinds: dict[str, tuple[Any, ...]] = {}
        for name in self.options["features"] or source.spec:
            spec = source.spec.get(name)
            if spec is None:
                return {}
            if self.options["ragged"] == "values" and spec.ragged:
                form = (len(spec.shape), spec.shape[1:] if not spec.has_shape_feature else None)
                kinds[name] = (spec.dtype, form, ())
                continue
            pad_to = self.options["pad_to"]
            width = pad_to.get(name) if isinstance(pad_to, Mapping) else pad_to
            if isinstance(pad_to, Mapping) and width is not None and spec.shape[:1] not in ((None,), (width,)):
                return {}
            padded = spec.shape[:1] == (None,) and width is not None
            kinds[name] = (spec.dtype, "", (width, *spec.shape[1:]) if padded else spec.shape)
        return kinds

    def steps(self, epoch: int = 0, position: int = 0, batch_size: int | None = None) -> list[list[Row]]:
        """The rows of every global batch from a place of the run on."""
        rows = [source.rows(self.options["pad_value"]) for source in self.sources]
        if self.options["features"] is not None:
            rows = [[{name: row[name] for name in self.options["features"]} for row in one] for one in rows]
        batch_size, found = batch_size or self.options["batch_size"], []
        for current in range(epoch, self.epochs):
            places = epoch_rows([len(one) for one in rows], self.rates, self.exhausted, most=self.most)
            chosen = [rows[source][self._record(source, current, ordinal)] for source, ordinal in places]
            for start in range(position, len(chosen), batch_size):
                batch = chosen[start : start + batch_size]
                if len(batch) == batch_size or self.options["last"] != "drop":
                    found.append(batch)
            position = 0
        return found

    def _record(self, source: int, epoch: int, ordinal: int) -> int:
        given, shuffle, seed = self.sources[source].given, self.options["shuffle"], self.options["seed"]
        again, position = divmod(ordinal, len(given))
        if isinstance(shuffle, BlockShuffle):
            sizes = self.sources[source].split.shard_sizes
            order: Any = BlockOrder(sizes, window=shuffle.window, seed=seed, epoch=epoch + again, stream=source)
        elif shuffle:
            order = KeyedPermutation(len(given), seed=seed, epoch=epoch + again, stream=source)
        else:
            return position
        return int(order.records([position])[0])

    def batch(
        self,
        rows: Sequence[Row],
        host_index: int,
        host_count: int,
        transform: Transform | None,
        batch_size: int | None = None,
    ) -> Batch:
        """The slice of one host."""
        full, count = batch_size or self.options["batch_size"], len(rows)
        places = count if self.options["last"] == "partial" else full
        first, last = host_index * places // host_count, (host_index + 1) * places // host_count
        if self.options["ragged"] == "values":
            return self._values(rows[first:last], (last - first) - len(rows[first:last]), first)
        whole = self._whole(rows)
        if transform is not None:
            whole = transform(whole)
        mine = {name: array[min(first, count) : min(last, count)] for name, array in whole.items()}
        if self.options["last"] == "pad":
            missing = (last - first) - (min(last, count) - min(first, count))
            mine = {name: self._filled(name, array, missing, whole[name]) for name, array in mine.items()}
            mine["valid"] = np.arange(first, last) < count
        return mine

    def _ragged(self, name: str) -> bool:
        """Whether a feature is ragged in any of the sources."""
        return any(name in source.spec and source.spec[name].ragged for source in self.sources)

    def _whole(self, rows: Sequence[Row]) -> Batch:
        batch: Batch = {}
        for name in rows[0]:
            box = np.max([row[name].shape for row in rows], axis=0).astype(int).tolist()
            spec = self.sources[0].spec.get(name)
            if any(name in source.spec and source.spec[name].shape[:1] == (None,) for source in self.sources):
                wanted = self.options["pad_to"]
                wanted = wanted.get(name) if isinstance(wanted, Mapping) else wanted
                box[0] = box[0] if wanted is None else wanted
            fill = 0 if spec is None else fill_of(spec, self.options["pad_value"] if self._ragged(name) else 0)
            batch[name] = np.stack([padded_to(row[name], box, fill) for row in rows])
        return batch

    def _values(self, rows: Sequence[Row], missing: int, first: int) -> Batch:
        batch: Batch = {}
        for name in self.options["features"] or self.sources[0].spec:
            spec = self.sources[0].spec[name]
            arrays = [row[name] for row in rows]
            if not spec.ragged:
                stacked = np.stack([*arrays, np.empty(spec.shape, spec.numpy_dtype)])[:-1]
                batch[name] = self._filled(name, stacked, missing, stacked)
                continue
            inner = () if spec.has_shape_feature else spec.shape[1:]
            flat = [array.reshape(-1, *inner) for array in arrays]
            batch[name] = np.concatenate([np.empty((0, *inner), spec.numpy_dtype), *flat])
            batch[f"{name}/lengths"] = np.array([len(array) for array in arrays] + [0] * missing, np.int64)
            if spec.has_shape_feature:
                shapes = [array.shape for array in arrays] + [(0,) * len(spec.shape)] * missing
                batch[f"{name}/shape"] = np.array(shapes, np.int64).reshape(-1, len(spec.shape))
        if self.options["last"] == "pad":
            batch["valid"] = np.arange(len(rows) + missing) < len(rows)
        return batch

    def _filled(self, name: str, array: np.ndarray[Any, Any], missing: int, whole: Any) -> np.ndarray[Any, Any]:
        spec = self.sources[0].spec.get(name)
        fill = 0 if spec is None else fill_of(spec, self.options["pad_value"] if self._ragged(name) else 0)
        if array.dtype == object and fill == 0:
            fill = b"" if any(isinstance(one, bytes) for one in whole.flat) else ""
        padding = np.empty((missing, *array.shape[1:]), array.dtype)
        padding[...] = fill
        return np.concatenate([array, padding])
