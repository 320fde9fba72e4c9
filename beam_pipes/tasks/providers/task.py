"""The task: a source, preprocessors, features, a postprocessor and metrics, under a name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from beam_pipes.checks import takes
from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor
from beam_pipes.tasks.providers.options import LoadOptions
from beam_pipes.tasks.steps.examples import ExampleValue, OwnExample
from beam_pipes.tasks.steps.features import (
    DatasetProviderBase,
    Feature,
    SequenceLength,
    ShardInfo,
    SourceInfo,
    checked_name,
    feature_from,
)
from beam_pipes.tasks.steps.seeds import map_seed_manager
from beam_pipes.tasks.steps.signatures import MetricFn, Postprocessor, metric_kind, metrics_of_kind
from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder, Step, StepContext, run_over_dataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipes.tasks.providers.options import Reading
    from beam_pipes.tasks.sources.data_source import DataSourceInterface

T = TypeVar("T")

#: A function of tensorflow-transform's kind, or its reference `package.module:name`.
PreprocessingFn: TypeAlias = Callable[[dict[str, TfTensor]], Mapping[str, object]] | str

SHUFFLE_BUFFER_SIZE = 1000

_REPLACEABLE = (
    "name",
    "source",
    "output_features",
    "preprocessors",
    "postprocess_fn",
    "metric_fns",
    "metric_objs",
    "shuffle_buffer_size",
    "preprocessing_fn",
)


class Task(DatasetProviderBase):
    """A source, the steps that turn its data into examples, and declarations about these.

    Args:
        name: letters, digits and `_ . : #`; `:` divides directories of the cache.
        source: where raw examples come from.
        output_features: name → `Feature`; each is checked after the last preprocessor. Examples may hold more.
        preprocessors: functions of a dataset, `python_map` functions, typed pipelines, and at most one
            `CacheDatasetPlaceholder`. They are applied in order.
        postprocess_fn: turns a decoded model output (or target) into the value that metrics compare.
        metric_fns: functions of `targets` and `predictions`, `scores`, or `predictions` and `aux_values`.
        metric_objs: metric objects.
        shuffle_buffer_size: size of the buffer that shuffles examples; None forbids shuffling.
        source_info: where the task was declared.
        preprocessing_fn: a function of tensorflow-transform's kind, or its reference `package.module:name`. Its
            analyzers learn from the cached examples of the split "train" when the cache is built; the function is then
            the first step after the cut. See docs/tensorflow-transform.md.

    Raises:
        TaskError: a name, step, feature or metric is declared wrongly.
    """

    def __init__(
        self,
        name: str,
        source: DataSourceInterface,
        output_features: Mapping[str, Feature],
        preprocessors: Sequence[object] | None = None,
        postprocess_fn: Postprocessor | None = None,
        metric_fns: Sequence[MetricFn] | None = None,
        metric_objs: Sequence[object] | None = None,
        shuffle_buffer_size: int | None = SHUFFLE_BUFFER_SIZE,
        source_info: SourceInfo | None = None,
        preprocessing_fn: PreprocessingFn | None = None,
    ) -> None:
        self._name = checked_name(name, "Task")
        if isinstance(source, type) or not hasattr(source, "get_dataset"):
            raise TaskError(f"the source of task '{name}' should be a DataSource, got {source!r}", task=name)
        if not isinstance(output_features, Mapping):
            raise TaskError(
                f"output_features of task '{name}' should map names to Feature objects, got {output_features!r}",
                task=name,
            )
        self._source = source
        self._output_features = {feature: feature_from(output_features[feature]) for feature in sorted(output_features)}
        self._preprocessors = _listed(preprocessors, "preprocessors", name)
        self._postprocess_fn = postprocess_fn
        self._metric_fns = _listed(metric_fns, "metric_fns", name)
        self._metric_objs = _listed(metric_objs, "metric_objs", name)
        self._shuffle_buffer_size = shuffle_buffer_size
        self._source_info = source_info
        self._preprocessing_fn = preprocessing_fn
        for metric_fn in self._metric_fns:
            metric_kind(metric_fn)
        self._split_steps()

    def _split_steps(self) -> None:
        cuts = [(i, p) for i, p in enumerate(self._preprocessors) if isinstance(p, CacheDatasetPlaceholder)]
        if len(cuts) > 1:
            raise TaskError(
                "`CacheDatasetPlaceholder` can appear at most once in the preprocessing pipeline. Found multiple in "
                f"'{self.name}'.",
                task=self.name,
            )
        cut, placeholder = cuts[0] if cuts else (0, None)
        self._placeholder = placeholder
        self._offline_steps = tuple(Step(p) for p in self._preprocessors[:cut])
        online = self._preprocessors[cut + 1 if cuts else 0 :]
        if self._preprocessing_fn is not None:
            if not cuts:
                raise TaskError(
                    f"task '{self.name}' has a preprocessing_fn, which is learned when the task is cached: add a "
                    "CacheDatasetPlaceholder to its preprocessors",
                    task=self.name,
                )
            from beam_pipes.tasks.providers.task_cache import apply_learned

            online = (functools.partial(apply_learned, task=self.name), *online)
        self._online_steps = tuple(Step(p) for p in online)
        if self._placeholder is not None and not self._source.caching_permitted:
            raise TaskError(
                f"Caching was requested for '{self.name}', but the underlying data source prohibits caching. Please "
                "remove `CacheDatasetPlaceholder` and try again.",
                task=self.name,
            )
        for step in self._offline_steps:
            if step.takes_sequence_length:
                raise TaskError(
                    f"'{step.name}' has a `sequence_length` argument but occurs before `CacheDatasetPlaceholder` in "
                    f"'{self.name}'. This is not allowed since the sequence length is specified at run time.",
                    task=self.name,
                    step=step.name,
                )

    # Its parts.

    @property
    def name(self) -> str:
        return self._name

    @property
    def source(self) -> DataSourceInterface:
        return self._source

    @property
    def source_info(self) -> SourceInfo | None:
        return self._source_info

    @property
    def output_features(self) -> Mapping[str, Feature]:
        return self._output_features

    @property
    def splits(self) -> Sequence[str]:
        splits = self._source.splits
        if not splits:
            raise TaskError(f"Task {self.name} has no splits", task=self.name)
        return splits

    @property
    def preprocessors(self) -> list[Any]:
        """A copy, as are the lists below: `replace` makes a task with other steps or metrics."""
        return list(self._preprocessors)

    @property
    def preprocessing_fn(self) -> PreprocessingFn | None:
        """The function learned when the task is cached, and applied to cached examples."""
        return self._preprocessing_fn

    @property
    def postprocessor(self) -> Postprocessor | None:
        return self._postprocess_fn

    @property
    def shuffle_buffer_size(self) -> int | None:
        return self._shuffle_buffer_size

    @property
    def metric_objs(self) -> list[object]:
        return list(self._metric_objs)

    @property
    def metric_fns(self) -> list[MetricFn]:
        return list(self._metric_fns)

    @functools.cached_property
    def predict_metric_fns(self) -> Sequence[MetricFn]:
        """Metric functions of `targets` and `predictions`."""
        return metrics_of_kind(self._metric_fns, "predict")

    @functools.cached_property
    def score_metric_fns(self) -> Sequence[MetricFn]:
        """Metric functions of `targets` and `scores`."""
        return metrics_of_kind(self._metric_fns, "score")

    @functools.cached_property
    def predict_with_aux_metric_fns(self) -> Sequence[MetricFn]:
        """Metric functions of `targets`, `predictions` and `aux_values`."""
        return metrics_of_kind(self._metric_fns, "predict_with_aux")

    def __str__(self) -> str:
        return f"Task(name={self.name}, source={self._source})"

    __repr__ = __str__

    def replace(self, **kwargs: object) -> Task:
        """A task like this one, with some arguments changed."""
        unknown = sorted(kwargs.keys() - set(_REPLACEABLE))
        if unknown:
            raise TaskError(
                f"Expected keys of kwargs argument task.replace to be one of {list(_REPLACEABLE)}. However, there were "
                f"keys in kwargs that are not in this set: {unknown}",
                keys=unknown,
            )
        arguments = {name: getattr(self, f"_{name}") for name in _REPLACEABLE}
        if arguments["preprocessing_fn"] is None:
            del arguments["preprocessing_fn"]  # unknown to subclasses written for SeqIO
        if self._source_info is not None:
            arguments["source_info"] = self._source_info
        make: Callable[..., Task] = type(self)
        return make(**{**arguments, **kwargs})

    def num_input_examples(self, split: str) -> int | None:
        return self._source.num_input_examples(split)

    def postprocess_fn(self, decoded_model_output: object, **postprocess_kwargs: object) -> Any:
        """The decoded output as metrics compare it; itself without a postprocessor."""
        if self._postprocess_fn is None:
            return decoded_model_output
        return self._postprocess_fn(decoded_model_output, **postprocess_kwargs)

    # Offline and online.

    @property
    def placeholder(self) -> CacheDatasetPlaceholder | None:
        return self._placeholder

    @property
    def supports_caching(self) -> bool:
        """It has a `CacheDatasetPlaceholder`."""
        return self._placeholder is not None

    @property
    def requires_caching(self) -> bool:
        return self._placeholder is not None and self._placeholder.required

    def offline_steps(self) -> Sequence[Step]:
        """The steps before the cut: done once, when the cache is built. Empty without a cut."""
        return self._offline_steps

    def online_steps(self) -> Sequence[Step]:
        """The steps after the cut (all of them, without one): done every time the data is read."""
        return self._online_steps

    @property
    def needs_tensorflow(self) -> bool:
        """Whether reading it uncached needs TensorFlow, because a source or step exists in no other form."""
        return self.needs_tensorflow_offline or not all(step.has_python_form for step in self._online_steps)

    @property
    def needs_tensorflow_offline(self) -> bool:
        """Whether building its cache takes TensorFlow."""
        native_source = getattr(self._source, "reads_without_tensorflow", False)
        return not native_source or not all(step.has_python_form for step in self._offline_steps)

    def step_context(self, sequence_length: SequenceLength | None = None) -> StepContext:
        return StepContext(self.name, self._output_features, sequence_length)

    def preprocess_precache(self, dataset: TfDataset, seed: int | None = None) -> TfDataset:
        """The offline steps over a `tf.data.Dataset`. Draws are keyed by the content of examples."""
        with map_seed_manager(seed, keyed_by="content"):
            return run_over_dataset(self._offline_steps, dataset, self.step_context())

    def preprocess_postcache(
        self,
        dataset: TfDataset,
        sequence_length: SequenceLength | None,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
    ) -> TfDataset:
        """The online steps over a `tf.data.Dataset`. Draws are keyed by the position of examples."""
        with map_seed_manager(seed, shard_info=shard_info):
            return run_over_dataset(self._online_steps, dataset, self.step_context(sequence_length))

    def run_offline(self, examples: Iterator[object], *, seed: int) -> Iterator[dict[str, ExampleValue]]:
        """Streams raw examples of one shard through the offline steps; see `task_examples.run_offline`."""
        from beam_pipes.tasks.providers.task_examples import run_offline

        return run_offline(self, examples, seed=seed)

    # Caches.

    @property
    def cache_dir(self) -> str | None:
        """Directory of the finished cache of this task under a global cache directory; or None."""
        from beam_pipes.tasks.sources.places import find_cache_dir

        return find_cache_dir(self.name)

    def assert_cached(self) -> None:
        """Raises `CacheNotFoundError` unless there is a finished cache."""
        from beam_pipes.tasks.sources.places import require_cache_dir

        require_cache_dir(self.name)

    def get_cached_stats(self, split: str = "train") -> Mapping[str, int | float]:
        """Statistics of a split of the cache: `examples`, `<feature>_tokens`, `<feature>_max_tokens`, ..."""
        from beam_pipes.tasks.providers.task_cache import cached_stats

        return cached_stats(self.name, split)

    # Examples.

    @takes(LoadOptions)
    def get_dataset(self, options: LoadOptions) -> TfDataset:  # type: ignore[override]
        """Preprocessed examples of a split, as a `tf.data.Dataset`. The arguments are the fields of `LoadOptions`.

        Args:
            sequence_length: feature → longest length; injected into steps, and features are cut to it at the end.
            split: name of the split.
            use_cached: read the cache, and apply only the steps after the cut.
            shuffle: shuffle files, and examples in a buffer.
            shuffle_buffer_size: size of the buffer; None for the task's. Does not allow what the task forbids.
            seed: same seed, same order and same draws; None for others every time.
            shard_info: this host's share. Every example goes to exactly one share, however many files there are.
            num_epochs: passes over the source; None for no end. Steps after the cut draw again in every pass.
            trim_output_features: cut features to `sequence_length`.
            try_in_mem_cache: keep a small split's raw examples in memory.

        Raises:
            TaskError: the task requires caching, forbids shuffling, or does not keep its promises.
            CacheNotFoundError: there is no cache.
        """
        from beam_pipes.tasks.providers.task_dataset import load_dataset

        return load_dataset(self, options)

    def examples(
        self,
        sequence_length: SequenceLength | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = False,
        **reading: Unpack[Reading],
    ) -> Iterator[OwnExample]:
        """Preprocessed examples of a split, as NumPy values.

        Needs TensorFlow only if the source or a step does (`needs_tensorflow`). Arguments as in `get_dataset`; not
        shuffled unless requested.
        """
        from beam_pipes.tasks.providers.task_examples import iterate_examples

        return iterate_examples(self, LoadOptions(sequence_length, split, use_cached, shuffle, **reading))


def _listed(values: Iterable[T] | None, what: str, task: str) -> tuple[T, ...]:
    if values is None or isinstance(values, Iterable):
        return tuple(values or ())
    raise TaskError(f"{what} of task '{task}' should be a list, got {values!r}: put it in brackets", task=task)
