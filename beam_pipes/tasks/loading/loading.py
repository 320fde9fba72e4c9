"""From the name of a cached task or mixture to model batches, without TensorFlow."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence

from beam_pipes.checks import listed
from beam_pipes.errors import TaskError
from beam_pipes.loader import Loader, PackingPlan, pack
from beam_pipes.loader.row_source import MeasuredSplit, PaddedSplit
from beam_pipes.loader.steps import Last
from beam_pipes.tasks.loading.loading_plan import LoadingPlan, TaskRows, TokenTotals, no_rows
from beam_pipes.tasks.loading.split_steps import ColumnStep, StepChain, SteppedSplit, TrimmedSplit
from beam_pipes.tasks.providers.by_name import maybe_get_mixture_or_task
from beam_pipes.tasks.providers.mixture import Mixture
from beam_pipes.tasks.providers.options import Exhaustion, checked_exhaustion
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.providers.task_cache import cached_source, step_digest
from beam_pipes.tasks.providers.task_dataset import check_promise, check_split, missing_feature
from beam_pipes.tasks.sources.cached import BuiltCacheSource
from beam_pipes.tasks.steps.features import RowConverter, SequenceLength, ShardInfo, row_converter
from beam_pipes.tasks.steps.sequences import trim_features
from beam_pipes.tasks.steps.step import Step
from beam_pipes.tasks.vocabularies.vocabulary import DType


def get_loader(
    mixture_or_task_name: object,
    task_feature_lengths: SequenceLength,
    feature_converter: object,
    *,
    batch_size: int,
    dataset_split: str = "train",
    shuffle: bool = True,
    num_epochs: int | None = 1,
    shard_info: ShardInfo | None = None,
    seed: int = 0,
    trim_output_features: bool = True,
    skip_missing_splits: bool = False,
    exhaustion: Exhaustion | None = None,
    last: Last = "drop",
    workers: int = 0,
    prefetch: int = 2,
) -> Loader:
    """Model batches of a cached task or mixture, as dicts of NumPy arrays; needs no TensorFlow.

    ```
    loader = tasks.get_loader("demo_mixture", {"targets": 1024}, LMFeatureConverter(), batch_size=32, seed=1)
    for batch in loader:        # {'decoder_target_tokens': int32 (32, 1024), …}
        ...
    ```

    The counterpart of `get_dataset(..., use_cached=True)`, with the same fields. Every example comes exactly once per
    epoch, rows are packed by best fit over the whole split, and batches are a function of (seed, step): the state of
    the loader (`state_dict`, `get_state`) is less than a kilobyte, and is restored at once, also on a different number
    of hosts.

    Arguments as for `plan_loading` and `LoadingPlan.loader`. To see padding and truncation before training, create the
    plan first: `plan = plan_loading(...)`, `print(plan)`, `plan.loader(...)`.
    """
    plan = plan_loading(
        mixture_or_task_name,
        task_feature_lengths,
        feature_converter,
        dataset_split=dataset_split,
        trim_output_features=trim_output_features,
        skip_missing_splits=skip_missing_splits,
        exhaustion=exhaustion,
    )
    return plan.loader(
        batch_size=batch_size,
        seed=seed,
        shuffle=shuffle,
        num_epochs=num_epochs,
        shard_info=shard_info,
        last=last,
        workers=workers,
        prefetch=prefetch,
    )


def plan_loading(
    mixture_or_task_name: object,
    task_feature_lengths: SequenceLength,
    feature_converter: object,
    *,
    dataset_split: str = "train",
    trim_output_features: bool = True,
    skip_missing_splits: bool = False,
    exhaustion: Exhaustion | None = None,
) -> LoadingPlan:
    """Plans the rows of a cached task or mixture. Reads the lengths in the indexes of the caches, and no records.

    Rows hold examples of one task each. A mixture's rates are proportions of *examples*: at any point each task has had
    its share of rows, weighted by its mean number of examples per row, to within one row.

    Steps after the cut: the library's `append_eos`, `append_eos_after_trim` and `truncate_inputs_left` run on many
    examples at once. Other Python steps run on single examples as rows are read; to pack, they run once over the cache
    to find the lengths, and may not draw random numbers. Functions of a `tf.data.Dataset` do not work on single
    examples and are refused.

    Args:
        mixture_or_task_name: a name, a `Task` or a `Mixture`, all of whose tasks have caches that beam-pipes built.
        task_feature_lengths: task feature → longest length; injected into steps as `sequence_length`.
        feature_converter: makes model features of rows; its `pack` says whether rows are packed.
        dataset_split: name of the split.
        trim_output_features: cut task features to their lengths. False leaves it to the converter: an error, or cut.
        skip_missing_splits: leave out tasks that do not have the split.
        exhaustion: another policy than the mixture's when a task has given all of its rows: "drop" continues with the
            others, "stop" ends the epoch, "repeat" starts it again in another order.

    Raises:
        CacheNotFoundError: a task has no cache.
        StaleCacheError: a cache was built for another version of its task.
        TaskError: a step after the cut cannot be run here, or a task does not keep its promises.
        WrongConverterError: the converter is something else.
    """
    provider = maybe_get_mixture_or_task(mixture_or_task_name)
    converter = row_converter(feature_converter, task_feature_lengths)
    lengths = converter.planned_lengths(task_feature_lengths)
    policy = checked_exhaustion(
        exhaustion or (provider.exhaustion if isinstance(provider, Mixture) else "drop"), provider.name
    )
    if isinstance(provider, Mixture):
        if provider.sample_fn is not None:
            raise TaskError(
                f"mixture '{provider.name}' has a sample_fn, which mixes tf.data.Datasets: a loader follows the rates "
                "exactly. Leave sample_fn out, or use get_dataset(..., use_cached=True)",
                mixture=provider.name,
            )
        if provider.reads_tasks_itself:
            raise TaskError(
                f"mixture '{provider.name}' overrides get_task_dataset, which makes tf.data.Datasets: a loader reads "
                "the caches of its tasks. Use get_dataset(..., use_cached=True)",
                mixture=provider.name,
            )
        rated = provider.rated_tasks(dataset_split, skip_missing_splits)
    else:
        rated = [(provider, 1.0)]
    total = sum(rate for _, rate in rated)
    digests: dict[int, str] = {}
    rows = [
        _TaskPlanner(
            task,
            split=dataset_split,
            converter=converter,
            lengths=lengths,
            task_feature_lengths=task_feature_lengths,
            trims=trim_output_features,
            digests=digests,
        ).plan(rate / total)
        for task, rate in rated
    ]
    having = [one for one in rows if one.rows]
    if not having:
        raise no_rows(provider.name, dataset_split)
    empty = [one.task for one in rows if not one.rows]
    if empty and policy != "drop":
        raise TaskError(
            f"tasks of mixture '{provider.name}' have no examples with tokens in split '{dataset_split}', so they "
            f"cannot keep their rates: {', '.join(empty)}. Take them out, or pass exhaustion='drop'",
            tasks=empty,
        )
    return LoadingPlan(
        name=provider.name, split=dataset_split, tasks=tuple(having), exhaustion=policy, converter=converter
    )


class _TaskPlanner:
    """Plans the rows of one task."""

    def __init__(
        self,
        task: Task,
        *,
        split: str,
        converter: RowConverter,
        lengths: Mapping[str, int | None],
        task_feature_lengths: SequenceLength,
        trims: bool,
        digests: dict[int, str],
    ) -> None:
        self._task = task
        self._converter = converter
        self._lengths = lengths
        self._sequence_length = task_feature_lengths
        self._overlong = "error" if converter.apply_length_check else "truncate"
        self._source = _cache_of(task, split)
        self._python_steps, column_steps = _divided(task, self._source)
        context = task.step_context(task_feature_lengths)
        self._column_steps: list[ColumnStep] = [step.bind_columns(context) for step in column_steps]
        if trims:
            self._column_steps.append(
                functools.partial(
                    trim_features,
                    sequence_length=task_feature_lengths,
                    output_features=task.output_features,
                )
            )
        self._features = self._features_read()
        for step in task.online_steps():  # the tasks of a mixture share most of their steps
            if id(step.preprocessor) not in digests:
                digests[id(step.preprocessor)] = step_digest(step)
        described = [[step.name, digests[id(step.preprocessor)]] for step in task.online_steps()]
        text = json.dumps([described, {k: repr(v) for k, v in sorted(task_feature_lengths.items())}, trims])
        self._identity = hashlib.sha256(text.encode()).hexdigest()[:12]

    def _features_read(self) -> list[str]:
        """Names of the task features in a row."""
        task = self._task
        names = list(self._converter.planned_features(task.output_features))
        stored = self._source.records.spec
        if self._python_steps:  # their results are known only after they have run
            return names
        optional = {name for name, feature in task.output_features.items() if not feature.required}
        for name in names:
            if name not in stored and name not in optional:
                raise missing_feature(task, name, sorted(stored))
        return [name for name in names if name in stored]

    def plan(self, rate: float) -> TaskRows:
        """The rows of the task."""
        packs = self._converter.pack
        random = [step.name for step in self._python_steps if step.takes_seeds]
        if packs and random:
            raise TaskError(
                f"step '{random[0]}' of task '{self._task.name}' draws random numbers after the "
                "CacheDatasetPlaceholder, so the lengths of its examples are not known and rows cannot be packed in "
                "advance. Draw before the cut, use a converter with pack=False, or get_dataset(..., use_cached=True), "
                "which packs as it goes",
                task=self._task.name,
                step=random[0],
            )
        split = self._steps_applied(seed=0)
        self._check_promises(split)
        planned = self._converter.planned_split(split)
        if packs:
            limits = {name: length for name, length in self._lengths.items() if length is not None}
            rows: PackingPlan | PaddedSplit = pack(planned, sequence_length=limits, overlong=self._overlong)
        else:
            rows = self._padded(planned)
        measured = packs or not self._python_steps
        return TaskRows(
            task=self._task.name,
            rate=rate,
            examples=len(rows.records) if isinstance(rows, PackingPlan) else len(rows),
            rows=len(rows),
            totals=self._totals(split, planned, rows) if measured else None,
            open=self._opened if self._python_steps and not packs else lambda seed: rows,
        )

    def _opened(self, seed: int) -> PaddedSplit:
        return self._padded(self._converter.planned_split(self._steps_applied(seed=seed)))

    def _padded(self, split: MeasuredSplit) -> PaddedSplit:
        lengths = dict(self._lengths) or dict.fromkeys(split.spec)
        lengths |= {name: None for name in self._features if name in split.spec and name not in lengths}
        return PaddedSplit(
            split=split,
            sequence_lengths={name: None if not split.spec[name].shape else lengths[name] for name in lengths},
            segments=self._converter.adds_segments,
            overlong=self._overlong,
        )

    def _steps_applied(self, *, seed: int) -> TrimmedSplit:
        split: MeasuredSplit = self._source.records
        if self._python_steps:
            drawing = None if self._converter.pack else seed
            chain = StepChain(self._task, self._python_steps, self._sequence_length, seed=drawing)
            split = SteppedSplit(
                self._source, chain, self._features, identity=self._identity, measure=self._converter.pack
            )
        return TrimmedSplit(split, self._column_steps, self._features, identity=self._identity)

    def _check_promises(self, split: TrimmedSplit) -> None:
        for name in self._features:
            if name in self._task.output_features:
                spec = split.spec[name]
                check_promise(self._task, name, "string" if spec.is_text else DType(spec.dtype).name, len(spec.shape))

    def _totals(
        self, split: TrimmedSplit, planned: MeasuredSplit, rows: PackingPlan | PaddedSplit
    ) -> dict[str, TokenTotals]:
        parts_of = getattr(planned, "parts_of", lambda name: (name,))
        totals = {}
        for name, length in self._lengths.items():
            parts = parts_of(name)
            if not parts or length is None or not planned.spec[name].shape:
                continue
            counted = [split.counted(part) for part in parts]
            stepped = sum(int(column.lengths.sum()) for column in counted)
            if isinstance(rows, PackingPlan):
                out = rows.totals[name].tokens_out
            else:
                out = int(sum(column.lengths for column in counted).clip(max=length).sum())  # type: ignore[union-attr]
            added = sum(column.added for column in counted)
            truncated = sum(column.truncated for column in counted)
            totals[name] = TokenTotals(
                tokens_in=stepped + truncated - added,
                tokens_added=added,
                tokens_out=out,
                truncated_tokens=truncated + stepped - out,
                places=len(rows) * length,
            )
        return totals


def _cache_of(task: Task, split: str) -> BuiltCacheSource:
    if not task.supports_caching:
        raise TaskError(
            f"task '{task.name}' has no CacheDatasetPlaceholder, so it has no cache to load: add one to its "
            "preprocessors and build it, or read it with get_dataset",
            task=task.name,
        )
    source = cached_source(task, split)
    check_split(task, source, split)
    if not isinstance(source, BuiltCacheSource):
        raise TaskError(
            f"the cache of task '{task.name}' is in the layout of info.{split}.json, which has no index to load by: "
            "build it with beam-pipes, or read it with get_dataset(..., use_cached=True)",
            task=task.name,
        )
    ragged = [name for name in source.ragged if name in task.output_features]
    if ragged:
        raise TaskError(
            f"task '{task.name}': the rows of {listed(ragged)} have different lengths within an example, of "
            "which no batch of arrays can be made. Read it with get_dataset(..., use_cached=True), or flatten them in "
            "a step before the CacheDatasetPlaceholder",
            task=task.name,
        )
    return source


def _divided(task: Task, source: BuiltCacheSource) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps after the cut: those that run on examples, and the last ones, which run on columns."""
    steps = list(task.online_steps())
    for step in steps:
        if not step.has_python_form:
            raise TaskError(
                f"step '{step.name}' of task '{task.name}' stands after the CacheDatasetPlaceholder and is a function "
                "of a tf.data.Dataset, which has no single examples that a loader could read in any order and resume "
                "at. Move it before the cut and build again, write it as a python_map, or read the task with "
                "get_dataset(..., use_cached=True)",
                task=task.name,
                step=step.name,
            )
    ranks = {name: len(spec.shape) for name, spec in source.records.spec.items()}
    ranks |= {name: feature.rank for name, feature in task.output_features.items()}
    # EOS goes to the end of the last axis; columns have only the first one.
    in_columns = all(ranks[name] == 1 for name, feature in task.output_features.items() if feature.add_eos)
    first = len(steps)
    while first and in_columns and steps[first - 1].has_column_form:
        first -= 1
    return steps[:first], steps[first:]
