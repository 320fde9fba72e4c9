"""Windows over sequences, as an index: every window is a row, found by arithmetic; no list of windows exists.

    records      an episode of 5 steps                an episode of 2
    anchors      0   1   2   3   4                    0   1          the step that a window belongs to
    rows         0   1   2   3   4                    5   6          numbered through all sequences
    row 4, offsets -1, 0, 1  →  steps 3, 4, (4)       valid 1, 1, 0: beyond the end, the last step is repeated

`Windows` is what users declare: which steps around an anchor each feature gives. `Sequences` finds the sequence and the
anchor of a row by a search in the cumulative numbers of windows: 16 to 24 bytes per sequence of any length, and the
inverse, which rows have a record. `WindowRows` reads them for a stream.

A sequence is a record whose features have a leading axis of steps, or, with `by`, a run of records that are its steps.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

import numpy as np

from beam_pipes import checks
from beam_pipes.cache.split import Split
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.lineage.takedown import is_removed, stand_in_key, stand_ins
from beam_pipes.loader.batches import Batch, checked_pad, pad_value_of, ranges
from beam_pipes.loader.columns import read_consistently
from beam_pipes.loader.first_steps import first_steps
from beam_pipes.loader.order import Indices, check_integer
from beam_pipes.loader.row_source import one_split
from beam_pipes.loader.rows import ColumnSpec, GatherOptions, Mask, Rows, Shapes, SplitRows, checked_name

#: What a window has for steps outside of its sequence; see `Windows`.
Ends = Literal["repeat", "fill", "drop"]


class WindowFeature(NamedTuple):
    """A feature with an axis of steps: entry i of a window is sample `floor(anchor · rate) + offsets[i]`."""

    name: str
    offsets: Indices
    rate: Fraction
    ends: Ends

    @property
    def is_consecutive(self) -> bool:
        return bool((np.diff(self.offsets) == 1).all())

    def samples(self, anchors: Indices) -> Indices:
        """(n, offsets): the samples of windows, some of which may lie outside of their sequences."""
        made: Indices = (anchors * self.rate.numerator // self.rate.denominator)[:, None] + self.offsets
        return made


class WindowPlace(NamedTuple):
    """Where a row is: its anchor, step `step` of sequence `sequence`, and the record that holds the anchor."""

    sequence: int
    step: int
    record: int


@dataclasses.dataclass(frozen=True, eq=False)
class Windows:
    """Every window of every sequence of a split, each one row; passed to `Loader` in place of the split.

        Windows(cache["train"], offsets={"image": range(-1, 1), "action": range(16)})           # episodes as records
        Windows(cache["train"], past=1, future=16, by="episode", step="frame")                  # steps as records
        Windows(cache["train"], past=168, future=24, ends="drop")                               # time series
        Windows(cache["train"], future=1024, stride=512, ends="fill")                           # tokens, sound

    A batch has each feature as (rows, offsets, …), and where windows can reach beyond their sequence a boolean column
    `<feature>_valid`, (rows, offsets), which is True for steps inside of it.

    Args:
      split: one split of a cache, or its path; `split.where(…)` for some of the sequences.
      past, future: a window has the steps from `past` before its anchor to `future` - 1 after it: `past=1, future=16`
        is -1 … 15. By default 0 and 1 where the other is given. This is for features that `offsets` does not name.
      offsets: feature → the steps around the anchor, such as `range(-1, 1)` or `[-10, -1, 0]`; None for a feature that
        is read whole, without an axis of steps: that of the sequence, or with `by` the value at the anchor.
        Without `past` and `future`, features that are not named are read in this way too, except those whose leading
        axis varies, which are not read.
      stride: steps between the anchors of a sequence; the first one is its first step.
      by: the feature, or features, that name the sequence of a record, if records are steps. The records of a sequence
        follow each other. None, the default: a record is a sequence, and its features have a leading axis of steps.
      step: with `by`: the feature that counts the steps of a sequence; checked to rise by one, so that no step is
        missing.
      rates: feature → its samples per step, if not one: `{"joints": 10}` for joints at 100 Hz beside images at 10 Hz;
        `Fraction(10, 3)` works too. Offsets of such a feature count its samples, from sample
        `floor(anchor · rate)` on. Without `by` only.
      ends: what stands for steps outside of the sequence, for all features or by name: "repeat" its first or last step,
        "fill" the `pad_value` of the loader; "drop" leaves out windows that have some: anchors begin later.

    Takes 16 bytes of memory per sequence, and 24 with `by`, for which that feature is read once: 10^8 steps take
    seconds, and what was found is kept beside the shards for the next run. Where records are sequences, only the index
    is read, and a window reads only its own bytes, if the values are stored as they are (`encoding="raw"` in a cache
    that is not decoded); otherwise its record.

    Raises `LoaderError` for features without an axis of steps or of other lengths, and for sequences with gaps.
    """

    split: Split | str | os.PathLike[str]
    _: dataclasses.KW_ONLY
    past: int | None = None
    future: int | None = None
    offsets: Mapping[str, Sequence[int] | None] = dataclasses.field(default_factory=dict)
    stride: int = 1
    by: str | Sequence[str] | None = None
    step: str | None = None
    rates: Mapping[str, int | Fraction] = dataclasses.field(default_factory=dict)
    ends: Ends | Mapping[str, Ends] = "repeat"
    #: The split, opened; the features that name the sequence of a record, none where records are sequences; the
    #: features with an axis of steps; and the numbers of the windows.
    source: Split = dataclasses.field(init=False)
    keys: tuple[str, ...] = dataclasses.field(init=False)
    features: tuple[WindowFeature, ...] = dataclasses.field(init=False)
    index: Sequences = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        split = one_split(self.split, "Windows")
        if not isinstance(split, Split):
            raise LoaderError(
                f"Windows takes one split of a cache, Cache.open(path)['train'], or its path; got {split!r}. Windows "
                "over the steps of a task or over several splits are not supported: mix windows of each split."
            )
        keys = () if self.by is None else (self.by,) if isinstance(self.by, str) else tuple(self.by)
        vars(self).update(split=split, source=split, keys=keys, stride=check_integer("stride", self.stride, 1))
        for option, names in (
            ("offsets", self.offsets),
            ("rates", self.rates),
            ("ends", self.ends if isinstance(self.ends, Mapping) else ()),
            ("by", keys),
            ("step", () if self.step is None else (self.step,)),
        ):
            where = f"{option} of Windows, split {split.name!r}"
            checks.known(*names, among=split.spec, what="feature", where=where, error=LoaderError)
        for ends in self.ends.values() if isinstance(self.ends, Mapping) else (self.ends,):
            checks.choice(ends, of=get_args(Ends), what="ends of Windows", error=LoaderError)
        if not keys and self.step is not None:
            raise LoaderError(f"step={self.step!r} counts records of a sequence, which by=… names; pass both or none.")
        if keys and self.rates:
            raise LoaderError(
                f"rates={dict(self.rates)!r}: with by=… a record is one step, which has one sample of each feature. "
                "Leave rates out, or store each sequence as one record."
            )
        vars(self)["features"] = self._features(split.spec)
        vars(self)["index"] = (_of_steps if keys else _of_records)(self)

    @property
    def whole(self) -> tuple[str, ...]:
        """The features without an axis of steps."""
        stepped, spec = {feature.name for feature in self.features}, self.source.spec
        known = [name for name in spec if name in self.offsets or self.keys or spec[name].shape[:1] != (None,)]
        return tuple(name for name in known if name not in stepped)

    @property
    def label(self) -> str:
        """Everything that the numbers of rows depend on, apart from the split; for states."""
        parts = [f"stride {self.stride}", *([f"by {', '.join(self.keys)}"] if self.keys else [])]
        for feature in self.features:
            if feature.ends == "drop":
                parts.append(f"{feature.offsets.min()} to {feature.offsets.max()} at rate {feature.rate} inside")
        return ", ".join(dict.fromkeys(parts))

    def __len__(self) -> int:
        """The number of windows."""
        return self.index.size

    def __repr__(self) -> str:
        return f"<{len(self):,} windows of {len(self.index.lengths):,} sequences of {self.split!r}: {self.label}>"

    def place_of(self, row: int) -> WindowPlace:
        """The sequence and the step of a row: `windows.place_of(4)` → `WindowPlace(sequence=0, step=4, record=0)`."""
        rows = np.array([check_integer("row", row, 0, len(self) - 1)])
        sequences, anchors = self.index.locate(rows)
        return WindowPlace(int(sequences[0]), int(anchors[0]), int(self.index.records(sequences, anchors)[0]))

    def _features(self, spec: Mapping[str, FeatureSpec]) -> tuple[WindowFeature, ...]:
        """The features with an axis of steps, checked."""
        given = dict(self.offsets)
        if self.past is not None or self.future is not None:
            past = 0 if self.past is None else check_integer("past", self.past, 0)
            future = 1 if self.future is None else check_integer("future", self.future, 0)
            own = {*self.keys, self.step}
            for name, feature in spec.items():
                if name not in own and (self.keys or feature.shape[:1] == (None,)):
                    given.setdefault(name, range(-past, future))
        made = []
        for name, offsets in given.items():
            if offsets is None:
                continue
            if not self.keys and (not spec[name].shape or spec[name].has_shape_feature):
                raise LoaderError(
                    f"feature {name!r} of shape {spec[name].shape} has no axis of steps of which windows could be cut: "
                    "its leading dimension counts steps, and no other one varies. Pass offsets={…, "
                    f"{name!r}: None}} to read it whole, or by=… if records are steps.",
                    feature=name,
                )
            ends = self.ends if isinstance(self.ends, str) else self.ends.get(name, "repeat")
            made.append(WindowFeature(name, _offsets(name, offsets), _rate(name, self.rates.get(name, 1)), ends))
        if not made:
            raise LoaderError(
                "Windows needs the steps of a window: past=… and future=…, or offsets={feature: range(-1, 16)}, with "
                f"at least one feature that has an axis of steps. There are: {', '.join(spec)}."
            )
        return tuple(made)


def _offsets(name: str, offsets: Sequence[int]) -> Indices:
    if isinstance(offsets, (str, bytes)) or not isinstance(offsets, (Sequence, np.ndarray)) or not len(offsets):
        raise LoaderError(
            f"offsets of {name!r} should be steps around the anchor, range(-1, 16), [-1, 0] or None, got {offsets!r}",
            feature=name,
        )
    return np.array([check_integer(f"an offset of {name!r}", each, -(2**40), 2**40) for each in offsets], np.int64)


def _rate(name: str, rate: object) -> Fraction:
    made = Fraction(int(rate)) if checks.is_integer(rate) else rate  # type: ignore[call-overload]
    if not isinstance(made, Fraction) or not 0 < made.numerator < 2**20 or made.denominator >= 2**20:
        raise LoaderError(
            f"the rate of {name!r} should be its samples per step, a positive integer or Fraction of numbers below "
            f"2^20, got {rate!r}",
            feature=name,
        )
    return made


class Sequences:
    """The windows of sequences, numbered: rows `starts[i]` to `starts[i + 1]` are those of sequence i.

    lengths: steps of each sequence. firsts: the record of each first step, where records are steps; else None, and
    record i is sequence i. last_anchors: the last step that may be an anchor, below `first_anchor` if there is none.
    """

    def __init__(
        self, lengths: Indices, firsts: Indices | None, *, stride: int, first_anchor: int, last_anchors: Indices
    ) -> None:
        self.lengths, self.firsts = lengths, firsts
        self.stride, self.first_anchor = stride, first_anchor
        counts = np.maximum(0, (last_anchors - first_anchor) // stride + 1)
        self.starts: Indices = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self.size = int(self.starts[-1])

    def locate(self, rows: Indices) -> tuple[Indices, Indices]:
        """The sequence of each row, and its anchor there."""
        sequences = np.searchsorted(self.starts, rows, side="right") - 1
        return sequences, self.first_anchor + (rows - self.starts[sequences]) * self.stride

    def records(self, sequences: Indices, anchors: Indices) -> Indices:
        """The records that hold these anchors."""
        return sequences if self.firsts is None else self.firsts[sequences] + anchors

    def rows_before(self, records: Indices) -> Indices:
        """How many rows have their anchor in a record before each of these; a number past the last counts all."""
        if self.firsts is None:
            return self.starts[records]
        if not len(self.firsts):
            return np.zeros(len(records), np.int64)
        sequences = np.searchsorted(self.firsts, records, side="right") - 1
        steps = records - self.firsts[sequences]
        before = -(-(steps - self.first_anchor) // self.stride)
        counts = self.starts[sequences + 1] - self.starts[sequences]
        found: Indices = self.starts[sequences] + np.clip(before, 0, counts)
        return found

    def rows_of(self, records: Indices, features: Sequence[WindowFeature]) -> Indices:
        """The rows, ascending, whose windows have any of these records (ascending), or their anchor there."""
        if self.firsts is None:
            return ranges(self.starts[records], self.starts[records + 1] - self.starts[records])
        return np.unique(np.concatenate([np.empty(0, np.int64), *self._rows_of_steps(records, features)]))

    def _rows_of_steps(self, records: Indices, features: Sequence[WindowFeature]) -> Iterator[Indices]:
        assert self.firsts is not None
        least = min(0, *(int(feature.offsets.min()) for feature in features))
        most = max(0, *(int(feature.offsets.max()) for feature in features))
        for record in records.tolist():
            sequence = int(np.searchsorted(self.firsts, record, side="right")) - 1
            step, length = record - int(self.firsts[sequence]), int(self.lengths[sequence])
            # A first or last step is repeated in windows that reach beyond it.
            low = 0 if step == 0 else max(0, step - most)
            high = length - 1 if step == length - 1 else min(length - 1, step - least)
            begin, end = self.starts[sequence : sequence + 2].tolist()
            first = begin + max(0, -(-(low - self.first_anchor) // self.stride))
            last = min(end, begin + (high - self.first_anchor) // self.stride + 1)
            rows = np.arange(first, max(first, last))
            anchors = self.locate(rows)[1]
            has = anchors == step
            for feature in features:
                has |= (steps_in(feature, anchors, np.int64(length)) == step).any(axis=1)
            yield rows[has]


def steps_in(feature: WindowFeature, anchors: Indices, lengths: Indices | np.int64) -> Indices:
    """(n, offsets): the steps that windows of steps have; -1 for those that are filled."""
    samples, most = feature.samples(anchors), np.asarray(lengths - 1).reshape(-1, 1)
    if feature.ends == "repeat":
        return np.clip(samples, 0, most)
    return np.where((samples >= 0) & (samples <= most), samples, -1)


def _anchored(windows: Windows, lengths: Indices, of_feature: Mapping[str, Array], firsts: Indices | None) -> Sequences:
    """The sequences of these lengths; `of_feature` has the samples of features whose windows lie inside."""
    first, last = 0, lengths - 1
    for feature in windows.features:
        if feature.ends == "drop":
            rate, least, most = feature.rate, int(feature.offsets.min()), int(feature.offsets.max())
            first = max(first, -(least * rate.denominator // rate.numerator))
            # floor(anchor · p / q) + most < samples  ⇔  anchor · p < q · (samples - most)
            beyond = rate.denominator * (of_feature[feature.name] - most)
            last = np.minimum(last, (beyond - 1) // rate.numerator)
    return Sequences(lengths, firsts, stride=windows.stride, first_anchor=first, last_anchors=last)


def _of_records(windows: Windows) -> Sequences:
    """The sequences of a split of whole sequences, from its index alone."""
    split, found = windows.source, {}
    for feature in windows.features:
        found[feature.name] = np.asarray(split.lengths(feature.name), np.int64)
    stepped = [feature.name for feature in windows.features if feature.rate == 1]
    if not stepped:
        raise LoaderError(
            f"rates={dict(windows.rates)!r}: no feature of these windows has one sample per step, so nothing says how "
            "many steps a sequence has. Count steps in samples of one feature, and leave it out of rates."
        )
    lengths = found[stepped[0]]
    for feature in windows.features:
        rate, samples = feature.rate, found[feature.name]
        low, high = (lengths - 1) * rate.numerator, (lengths + 1) * rate.numerator
        wrong = samples != lengths if rate == 1 else (samples * rate.denominator <= low) & (lengths > 0)
        if rate != 1:
            wrong |= samples * rate.denominator > high
        if wrong.any():
            record = int(np.argmax(wrong))
            raise LoaderError(
                f"record {record} of split {split.name!r} has {int(lengths[record])} steps of {stepped[0]!r} and "
                f"{int(samples[record])} of {feature.name!r}, expected {rate} per step. Pass rates={{{feature.name!r}: "
                f"samples per step}}, or offsets={{{feature.name!r}: None}} to read it whole.",
                feature=feature.name,
                record=record,
            )
    return _anchored(windows, lengths, found, None)


def _of_steps(windows: Windows) -> Sequences:
    """The sequences of a split of steps."""
    split, total = windows.source, len(windows.source)
    for name in (*windows.keys, *([windows.step] if windows.step else [])):
        spec = split.spec[name]
        if spec.shape or (name == windows.step and spec.numpy_dtype.kind not in "iu"):
            raise LoaderError(
                f"feature {name!r} should name the sequence or count the step of a record: a scalar, and an integer "
                f"for steps; it is {spec.dtype} {spec.shape}",
                feature=name,
            )
    firsts = first_steps(split, windows.keys, windows.step)
    lengths = np.diff(np.append(firsts, total))
    return _anchored(windows, lengths, {feature.name: lengths for feature in windows.features}, firsts)


class WindowRows(Rows):
    """The rows of `Windows`: values around an anchor, and which of them are steps of the sequence.

    A window is one copy of consecutive bytes, unless its sequence is shorter. Features that are read whole are rows of
    their split. A window with a record that is taken down is replaced by another, drawn for it, which has none.
    """

    split: Split

    def __init__(self, windows: Windows, options: GatherOptions) -> None:
        if options.ragged != "pad":
            raise LoaderError("windows have the lengths of their offsets; leave out ragged=")
        self.windows, self.index = windows, windows.index
        stepped = {feature.name: feature for feature in windows.features}
        there = [*stepped, *windows.whole]
        where = f"windows of split {windows.source.name!r}"
        checks.known(*(options.features or ()), among=there, what="feature", where=where, error=LoaderError)
        names = options.features or tuple(name for name in windows.source.spec if name in there)
        super().__init__(windows.source, len(windows), names, options.pad_value)
        self._stepped = {name: stepped[name] for name in names if name in stepped}
        read_by_split = [name for name in names if windows.keys or name not in stepped]
        # One by one where records are steps: the features of a window may have different offsets.
        self._rows_of = {
            name: SplitRows(self.split, dataclasses.replace(options, features=(name,))) for name in read_by_split
        }
        columns: dict[str, ColumnSpec] = {}
        for name in names:
            if name not in stepped:
                columns[name] = self._rows_of[name].columns[name]
                continue
            feature, spec = stepped[name], self.split.spec[name]
            inner = self._rows_of[name].columns[name].shape if windows.keys else spec.shape[1:]
            columns[name] = ColumnSpec(dtype=spec.dtype, shape=(len(feature.offsets), *inner))
            if feature.ends != "drop":
                mask = checked_name(f"{name}_valid", names)
                columns[mask] = ColumnSpec(dtype="bool", shape=(len(feature.offsets),))
            if not spec.is_text:
                value = pad_value_of(name, options.pad_value)
                self.fills = {**self.fills, name: checked_pad(value, spec.numpy_dtype, name)}
        self.columns = columns
        self._removed_at: Callable[[int], Indices] = functools.lru_cache(maxsize=2)(
            lambda revision: self.rows_with(np.asarray(self.split.removed_rows, np.int64))
        )

    @property
    def block_sizes(self) -> Indices:
        """The windows whose anchors are in each shard; some of them go on in the next one."""
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(self.split.shard_sizes, np.int64))])
        return np.diff(self.index.rows_before(bounds))

    def identity(self) -> dict[str, object]:
        return {**super().identity(), "rows": self.size, "windows": self.windows.label}

    def costs(self, epoch: int) -> Indices:
        raise LoaderError(
            "BalancedShuffle balances rows of different cost, and all windows have the same lengths. Pass shuffle=True."
        )

    # Records

    def records_of(self, row: int) -> Indices:
        """The records that a window is made of, ascending: that of its anchor, and those of its steps."""
        sequences, anchors = self.index.locate(np.array([row]))
        found = [self.index.records(sequences, anchors)]
        if self.index.firsts is not None:
            for feature in self.windows.features:
                steps = steps_in(feature, anchors, self.index.lengths[sequences])[0]
                found.append(self.index.firsts[sequences] + steps[steps >= 0])
        return np.unique(np.concatenate(found))

    def rows_with(self, records: Indices) -> Indices:
        """The rows, ascending, that are made of any of these records (ascending): the inverse of `records_of`."""
        return self.index.rows_of(records, self.windows.features)

    @property
    def removed(self) -> Indices:
        """The rows, ascending, that have a record which is taken down now."""
        return self._removed_at(self.split.takedown_revision)

    def stand_ins(self, rows: Indices) -> Indices:
        """The rows that are read for these."""
        removed = self.removed
        if not len(removed):
            return rows
        key = stand_in_key(self.split.manifest_id, f"{self.split.name}/{self.windows.label}")
        return stand_ins(rows, removed, self.size, key=key, where=repr(self.windows))

    def is_gone(self, rows: Indices) -> Mask:
        """Whether these rows have a record which is taken down."""
        return is_removed(rows, self.removed)

    # Reading

    def widest(self, rows: Indices) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        sequences, anchors = self.index.locate(self.stand_ins(rows))
        for name, inner in self._rows_of.items():
            if None not in self.columns[name].shape:
                continue
            if name in self._stepped:
                records = self._records_of_steps(self._stepped[name], sequences, anchors)[0]
                found[name] = (records.shape[1], *inner.widest(records.reshape(-1))[name])
            else:
                found[name] = inner.widest(self.index.records(sequences, anchors))[name]
        return found

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        return read_consistently([self.split], lambda: self._gather(self.stand_ins(rows), shapes or {}))

    def _gather(self, rows: Indices, shapes: Shapes) -> Batch:
        sequences, anchors = self.index.locate(rows)
        batch: Batch = {}
        for name in self.features:
            shape = shapes.get(name)
            if name not in self._stepped:
                records = self.index.records(sequences, anchors)
                batch[name] = self._rows_of[name].gather(records, None if shape is None else {name: shape})[name]
                continue
            feature = self._stepped[name]
            if self.index.firsts is None:
                made, inside = self._cut(feature, sequences, anchors)
            else:
                records, inside = self._records_of_steps(feature, sequences, anchors)
                widest = None if shape is None else {name: shape[1:]}
                flat = self._rows_of[name].gather(records.reshape(-1), widest)[name]
                made = flat.reshape(*records.shape, *flat.shape[1:])
            batch[name] = made
            if feature.ends == "fill":
                made[~inside] = self.fills[name]
            if feature.ends != "drop":
                batch[f"{name}_valid"] = inside
        return batch

    def _records_of_steps(self, feature: WindowFeature, sequences: Indices, anchors: Indices) -> tuple[Indices, Mask]:
        """(n, offsets): the record of each step, the first or last one of its sequence beyond that; and the mask."""
        assert self.index.firsts is not None
        steps, most = feature.samples(anchors), self.index.lengths[sequences][:, None] - 1
        inside = (steps >= 0) & (steps <= most)
        return self.index.firsts[sequences][:, None] + np.clip(steps, 0, most), inside

    def _cut(self, feature: WindowFeature, sequences: Indices, anchors: Indices) -> tuple[Array, Mask]:
        """The values of windows of records that are sequences, and which of them are inside of these."""
        samples, count = feature.samples(anchors), len(feature.offsets)
        if feature.rate == 1:
            lengths = self.index.lengths[sequences]
        else:
            lengths = np.asarray(self.split.lengths(feature.name, sequences), np.int64)
        inside = (samples >= 0) & (samples < lengths[:, None])
        in_one = (lengths >= count) & feature.is_consecutive
        if in_one.all():
            return self._runs(feature, sequences, samples, lengths), inside
        spec = self.split.spec[feature.name]
        made = np.empty((*samples.shape, *spec.shape[1:]), spec.numpy_dtype)
        made[in_one] = self._runs(feature, sequences[in_one], samples[in_one], lengths[in_one])
        steps = np.clip(samples[~in_one], 0, lengths[~in_one][:, None] - 1)
        made[~in_one] = self.split.gather_entries(feature.name, sequences[~in_one], steps)[:, :, 0]
        return made, inside

    def _runs(self, feature: WindowFeature, sequences: Indices, samples: Indices, lengths: Indices) -> Array:
        """The values of windows of consecutive samples that are no longer than their sequences."""
        count = samples.shape[1]
        starts = np.clip(samples[:, 0], 0, lengths - count)
        made = self.split.gather_entries(feature.name, sequences, starts[:, None], count=count)[:, 0]
        # The run at an end of the sequence has all samples that a window beyond it repeats.
        moved = np.flatnonzero(starts != samples[:, 0])
        clipped = np.clip(samples[moved], 0, lengths[moved][:, None] - 1)
        made[moved] = made[moved[:, None], clipped - starts[moved][:, None]]
        return made
