"""A cached split after the Python steps that run when it is read.

A split after the steps that work on columns: EOS, truncation, trimming to the lengths of the model.
"""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.loader.columns import Column, columns_of
from beam_pipes.loader.row_source import MeasuredSplit
from beam_pipes.tasks.caches.offline import cached_spec
from beam_pipes.tasks.steps.examples import ExampleValue, RawExample, dtype_name, rank_of
from beam_pipes.tasks.steps.features import SequenceLength
from beam_pipes.tasks.steps.seeds import KeyedBy, fold, map_seed_manager
from beam_pipes.tasks.steps.sequences import TokenColumn
from beam_pipes.tasks.steps.step import BoundStep, Step

if TYPE_CHECKING:
    from beam_pipes.tasks.providers.task import Task
    from beam_pipes.tasks.sources.cached import BuiltCacheSource


Int64 = npt.NDArray[np.int64]

_CHUNK = 256


class StepChain:
    """Steps on single examples, one after the other, with the draws of one seed; None refuses to draw."""

    def __init__(
        self, task: Task, steps: Sequence[Step], sequence_length: SequenceLength | None, *, seed: int | None
    ) -> None:
        self.name = ", ".join(f"'{step.name}'" for step in steps)
        self.task = task
        keyed_by: KeyedBy = "nothing" if seed is None else "position"
        with map_seed_manager(fold(seed or 0, task.name), keyed_by=keyed_by):
            self._steps: list[BoundStep] = [step.bind(task.step_context(sequence_length)) for step in steps]

    def __call__(self, example: object, position: int) -> list[RawExample]:
        """The steps' results for the example at a position, which is the key of draws."""
        made = [example]
        for step in self._steps:
            made = [after for before in made for after in step(before, position)]
        return made


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The steps' results for every record: each example's record, its number there, and the lengths of features."""

    records: Int64
    ordinals: Int64
    lengths: Mapping[str, Int64]


class SteppedSplit:
    """The results of Python steps over a cached split, readable like a split.

    *Measured*: every record goes through the steps once when rows are planned, so steps may drop examples or make
    several, rows have exact lengths, and the steps must give the same results when rows are read. *Not measured*: a
    record gives exactly one example, with new draws in every epoch: `records` then are `record + epoch · len(self)`.

    Args:
        source: the cache.
        chain: the steps.
        features: names of the features that are read.
        identity: what the steps depend on, in a few characters.
        measure: whether to measure.

    Raises:
        TaskError: a step fails, or (not measured) does not make exactly one example from a record.
    """

    def __init__(
        self, source: BuiltCacheSource, chain: StepChain, features: Sequence[str], *, identity: str, measure: bool
    ) -> None:
        self._source = source
        self._chain = chain
        self._features = tuple(features)
        self._count = len(source.records)
        self.name = source.records.name
        self.manifest_id = f"{source.records.manifest_id}+{identity}"
        self.draws_anew = not measure
        first = next(source.examples_at(np.arange(min(1, self._count))), None)
        made = [] if first is None else chain(first, 0)
        position = 1
        while measure and not made and position < self._count:  # the first ones may have been dropped
            made = chain(next(source.examples_at(np.array([position]))), position)
            position += 1
        self._task = chain.task
        self.spec = self._spec_of(made[0] if made else None)
        self._measured = self._measure() if measure else None

    def __len__(self) -> int:
        return self._count if self._measured is None else len(self._measured.records)

    def __repr__(self) -> str:
        return f"SteppedSplit({self._source!r}, {self._chain.name})"

    @property
    def path(self) -> str:
        """The directory of the cache."""
        return str(self._source.records.path)

    @property
    def shard_sizes(self) -> Int64:
        """Examples of each shard of the cache."""
        sizes = self._source.records.shard_sizes
        if self._measured is None:
            return sizes
        ends = np.searchsorted(self._measured.records, np.cumsum(sizes))
        return np.diff(ends, prepend=0)

    @property
    def takedown_revision(self) -> int:
        """That of the cache."""
        return int(self._source.records.takedown_revision)

    @property
    def removed_rows(self) -> Int64:
        """The examples whose records are taken down."""
        removed = self._source.records.removed_rows
        if self._measured is None:
            return removed
        return np.flatnonzero(np.isin(self._measured.records, removed))

    def lengths(self, feature: str, indices: Int64 | None = None) -> Int64:
        """(n,) int64: the leading dimension of a feature of every example, or of those given.

        Raises `TaskError` if the split was not measured.
        """
        if self._measured is None:
            raise TaskError(f"{self!r} is not measured: the lengths of {feature!r} are known when it is read")
        lengths = self._measured.lengths[feature]
        return lengths if indices is None else lengths[indices]

    def columns_of(self, features: Sequence[str], records: Int64) -> dict[str, Column]:
        """Features of some examples: the steps run now."""
        examples = self._examples(np.asarray(records, np.int64))
        return {name: self._column(name, [example[name] for example in examples]) for name in features}

    def _examples(self, rows: Int64) -> list[Mapping[str, ExampleValue]]:
        if self._measured is None:
            records, positions = rows % max(1, self._count), rows
        else:
            records = positions = self._measured.records[rows]
        examples = []
        for row, (position, example) in enumerate(
            zip(positions.tolist(), self._source.examples_at(records), strict=True)
        ):
            made = self._chain(example, position)
            if self._measured is None:
                if len(made) != 1:
                    raise self._error(
                        f"made {len(made)} examples of record {int(records[row])}. Rows that are not packed are one a "
                        "record: drop or split examples before the CacheDatasetPlaceholder and build again, or pack"
                    )
                examples.append(made[0])
                continue
            ordinal = int(self._measured.ordinals[rows[row]])
            if ordinal >= len(made):
                raise self._changed(int(records[row]), f"{len(made)} examples")
            for name, lengths in self._measured.lengths.items():
                if len(made[ordinal][name]) != lengths[rows[row]]:
                    raise self._changed(int(records[row]), f"{len(made[ordinal][name])} entries of '{name}'")
            examples.append(made[ordinal])
        return examples

    def _measure(self) -> Measured:
        ragged = [name for name in self._features if self.spec[name].shape]
        records, ordinals = array.array("q"), array.array("q")
        lengths = {name: array.array("q") for name in ragged}
        for start in range(0, self._count, _CHUNK):
            chunk = np.arange(start, min(start + _CHUNK, self._count))
            for record, example in zip(chunk.tolist(), self._source.examples_at(chunk), strict=True):
                for ordinal, made in enumerate(self._chain(example, record)):
                    self._check(made, record)
                    records.append(record)
                    ordinals.append(ordinal)
                    for name in ragged:
                        lengths[name].append(len(made[name]))
        return Measured(
            np.array(records, np.int64),
            np.array(ordinals, np.int64),
            {name: np.array(column, np.int64) for name, column in lengths.items()},
        )

    def _spec_of(self, example: Mapping[str, ExampleValue] | None) -> ExampleSpec:
        """Features that are read; the inner dimensions of one example are assumed for all."""
        found = cached_spec(self._task, example)
        missing = [name for name in self._features if name not in found]
        if missing:
            raise self._error(f"made examples without the features {missing}; they have: {', '.join(sorted(found))}")
        features = {}
        for name in self._features:
            inner = () if example is None or not found[name].shape else np.shape(example[name])[1:]
            features[name] = dataclasses.replace(found[name], shape=(*found[name].shape[:1], *inner))
        return ExampleSpec(features)

    def _check(self, example: Mapping[str, ExampleValue], record: int) -> None:
        for name in self._features:
            spec, value = self.spec[name], example.get(name)
            kind = None if value is None else ("bytes" if dtype_name(value) == "string" else dtype_name(value))
            if value is None or kind != spec.dtype or rank_of(value) != len(spec.shape):
                found = "nothing" if value is None else f"{kind} of rank {rank_of(value)}"
                raise self._error(
                    f"made {found} as feature '{name}' of record {record}, and {spec.dtype} of rank {len(spec.shape)} "
                    "of those before: all examples need the same dtypes and ranks"
                )
            if spec.shape and np.shape(value)[1:] != spec.shape[1:]:
                raise self._error(
                    f"made feature '{name}' of record {record} of shape {np.shape(value)}, and {spec.shape} of those "
                    "before: only the leading dimension may vary"
                )

    def _column(self, name: str, values: list[Any]) -> Column:
        spec = self.spec[name]
        dtype = spec.numpy_dtype
        if not spec.shape:
            stacked = np.empty(len(values), dtype)
            stacked[:] = values
            return Column(stacked)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        empty = np.empty((0, *(size or 0 for size in spec.shape[1:])), dtype)
        return Column(np.concatenate([empty, *values]), lengths)

    def _error(self, words: str) -> TaskError:
        return TaskError(
            f"the steps {self._chain.name} of task '{self._chain.task.name}', after its CacheDatasetPlaceholder, "
            f"{words}",
            task=self._chain.task.name,
        )

    def _changed(self, record: int, found: str) -> TaskError:
        return self._error(
            f"gave {found} of record {record} now, and something else when rows were planned: they have to do the same "
            "every time. Draw random numbers in a python_map with an `rng` argument, and do not pack"
        )


ColumnStep = Callable[[Mapping[str, TokenColumn]], Mapping[str, TokenColumn]]


class TrimmedSplit:
    """The results of column steps over a split, readable like a split. Nothing is copied before it is read.

    Args:
        split: a split of a cache, or anything read like one.
        steps: applied in order to the features that have a leading dimension.
        features: names of the features that are read.
        identity: what the steps depend on, in a few characters.
    """

    def __init__(
        self, split: MeasuredSplit, steps: Sequence[ColumnStep], features: Sequence[str], *, identity: str
    ) -> None:
        self._split = split
        self._steps = tuple(steps)
        self.name = split.name
        self.manifest_id = f"{split.manifest_id}+{identity}"
        self.draws_anew = bool(getattr(split, "draws_anew", False))
        specs: dict[str, FeatureSpec] = {}
        for name in features:
            spec = split.spec[name]
            # A fixed sequence may be cut, or get an EOS: from here on its length varies.
            specs[name] = _with_shape(spec, (None, *spec.shape[1:])) if spec.shape else spec
        self.spec = ExampleSpec(specs)

    def __len__(self) -> int:
        return len(self._split)

    def __repr__(self) -> str:
        return f"TrimmedSplit({self._split!r})"

    @property
    def shard_sizes(self) -> Int64:
        """Records of each shard."""
        sizes: Int64 = self._split.shard_sizes
        return sizes

    def counted(self, feature: str) -> TokenColumn:
        """A feature of all records, without its values: its lengths, and the entries cut off and inserted."""
        column = TokenColumn(np.asarray(self._split.lengths(feature), np.int64))
        return self._stepped({feature: column})[feature]

    def lengths(self, feature: str, indices: Int64 | None = None) -> Int64:
        """(n,) int64: the leading dimension of a feature of every record, or of those given."""
        if indices is None:
            return self.counted(feature).lengths
        column = TokenColumn(np.asarray(self._split.lengths(feature, indices), np.int64))
        return self._stepped({feature: column})[feature].lengths

    def gather_values(self, feature: str, indices: npt.ArrayLike) -> tuple[np.ndarray, Int64]:
        """The values of a feature for some records, concatenated, and their lengths."""
        values, lengths = self.columns_of([feature], np.asarray(indices, np.int64))[feature]
        assert lengths is not None
        return values, lengths

    def columns_of(self, features: Sequence[str], records: Int64) -> dict[str, Column]:
        """Features of some records."""
        read = columns_of(self._split, features, records)
        columns = {name: _token_column(column) for name, column in read.items() if self.spec[name].shape}
        stepped = self._stepped(columns)
        made = {}
        for name in features:
            if name in stepped:
                values = stepped[name].values
                assert values is not None
                made[name] = Column(values, stepped[name].lengths)
            else:
                made[name] = read[name]
        return made

    def _stepped(self, columns: Mapping[str, TokenColumn]) -> Mapping[str, TokenColumn]:
        for step in self._steps:
            columns = step(columns)
        return columns


def _token_column(column: Column) -> TokenColumn:
    values, lengths = column
    if lengths is None:  # a fixed sequence
        lengths = np.full(len(values), values.shape[1], np.int64)
        values = values.reshape(-1, *values.shape[2:])
    return TokenColumn(np.asarray(lengths, np.int64), values)


def _with_shape(spec: FeatureSpec, shape: tuple[int | None, ...]) -> FeatureSpec:
    return FeatureSpec(spec.dtype, shape=shape)
