"""The transforms of `seqio.beam_utils`: a task's cache in pieces, for your own Beam pipelines.

    with beam.Pipeline() as pipeline:
        examples = pipeline | PreprocessTask(task, "train")
        _ = examples | "records" >> WriteExampleTfRecord("cache/train.tfrecord", num_shards=64)
        _ = examples | GetInfo(num_shards=64) | "info" >> WriteJson("cache/info.train.json")
        _ = examples | GetStats(task.output_features) | "stats" >> WriteJson("cache/stats.train.json")

`PreprocessTask` reads and preprocesses with the code of builds: its output is what `beam-pipes build --tasks`
caches. Unlike a build, such a pipeline keeps no lineage, starts again when it fails, and its output is not published as
a whole: `beam_pipes.tasks.caches.cache_tasks` has none of these limits.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import SupportsInt

import apache_beam as beam
import numpy as np

from beam_pipes.errors import InputNotFoundError, logger
from beam_pipes.extras import names_of
from beam_pipes.seqio import ABSENT
from beam_pipes.tasks import Feature, SentencePieceVocabulary, Task, TaskRegistry
from beam_pipes.tasks.caches.task_steps import count_tokens
from beam_pipes.tasks.providers.task_examples import as_mapping, stream_shard
from beam_pipes.tasks.sources.sidecars import LAYOUT_VERSION
from beam_pipes.tasks.sources.tfds import set_tfds_data_dir_override
from beam_pipes.tasks.steps.dataset_map import dict_to_tfexample
from beam_pipes.tasks.steps.examples import RawExample, dtype_name, normalised

PROVENANCE_PREFIX = "provenance/"
TASK_PROVENANCE_KEY = f"{PROVENANCE_PREFIX}task"
SOURCE_SHARD_PROVENANCE_KEY = f"{PROVENANCE_PREFIX}source_shard"
SOURCE_SHARD_ID_PROVENANCE_KEY = f"{PROVENANCE_PREFIX}source_shard_index"
ID_WITHIN_SHARD_PROVENANCE_KEY = f"{PROVENANCE_PREFIX}index_within_shard"
PREPROCESSORS_SEED_PROVENANCE_KEY = f"{PROVENANCE_PREFIX}preprocessors_seed"
PROVENANCE_KEYS = [
    TASK_PROVENANCE_KEY,
    SOURCE_SHARD_PROVENANCE_KEY,
    SOURCE_SHARD_ID_PROVENANCE_KEY,
    ID_WITHIN_SHARD_PROVENANCE_KEY,
    PREPROCESSORS_SEED_PROVENANCE_KEY,
]

_log = logger(__name__)


def _nothing() -> None:
    return None


class PreprocessTask(beam.PTransform):  # type: ignore[misc]
    """The examples of a split after the steps before the task's `CacheDatasetPlaceholder`: dicts of NumPy values.

    Args:
        task: a registered task; workers find it by its name.
        split: name of the split.
        preprocessors_seed: seed of random draws; None is the same as 0.
        setup_fn: called on a worker before it looks for the task.
        modules_to_import: modules that register the task.
        add_provenance: examples also hold task, shard, index of the shard and index within it (`PROVENANCE_KEYS`).
        tfds_data_dir: directory that data sets of TFDS are read from.

    Attributes:
        shards: number and name of each shard of the split.

    Raises:
        InputNotFoundError: the split has no shards.
    """

    def __init__(
        self,
        task: Task,
        split: str,
        *,
        preprocessors_seed: int | None = None,
        setup_fn: Callable[[], object] = _nothing,
        modules_to_import: Sequence[str] = (),
        add_provenance: bool = False,
        tfds_data_dir: str | None = None,
    ) -> None:
        super().__init__()
        self._task_name = task.name
        self._split = split
        self._seed = preprocessors_seed
        self._setup_fn = setup_fn
        self._modules_to_import = tuple(modules_to_import)
        self._add_provenance = add_provenance
        self._tfds_data_dir = tfds_data_dir
        self.shards: list[tuple[int, str]] = list(enumerate(task.source.list_shards(split)))
        if not self.shards:
            raise InputNotFoundError(f"No shards found for {task.name} {split}", task=task.name, split=split)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        shards = pipeline | "create_shards" >> beam.Create(self.shards) | beam.Reshuffle()
        return shards | "emit_examples" >> beam.FlatMap(self._emit_examples)

    def _emit_examples(self, shard: tuple[int, str]) -> Iterator[dict[str, object]]:
        self._setup_fn()
        for module in filter(None, self._modules_to_import):
            importlib.import_module(module)
        if self._tfds_data_dir:
            set_tfds_data_dir_override(self._tfds_data_dir)
        task = TaskRegistry.get(self._task_name)
        index, name = shard
        group = f"{self._task_name}_{self._split}"
        beam.metrics.Metrics.counter(group, "input-shards").inc()
        examples = beam.metrics.Metrics.counter(group, "examples")
        for number, example in enumerate(stream_shard(task, self._split, name, seed=self._seed or 0)):
            examples.inc()
            made: dict[str, object] = dict(as_mapping(task, example))
            if self._add_provenance:
                made |= {
                    TASK_PROVENANCE_KEY: self._task_name,
                    SOURCE_SHARD_PROVENANCE_KEY: name,
                    SOURCE_SHARD_ID_PROVENANCE_KEY: index,
                    ID_WITHIN_SHARD_PROVENANCE_KEY: number,
                }
                if self._seed:
                    made[PREPROCESSORS_SEED_PROVENANCE_KEY] = self._seed
            yield made


class WriteExampleTfRecord(beam.PTransform):  # type: ignore[misc]
    """Writes dicts as `tf.train.Example` records to `{output_path}-00000-of-00064`; gives the paths.

    `num_shards=None` leaves the number of files to the runner.
    """

    def __init__(self, output_path: str, num_shards: int | None = None) -> None:
        super().__init__()
        self._output_path = output_path
        self._num_shards = num_shards

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        sink = beam.io.WriteToTFRecord(self._output_path, num_shards=self._num_shards or 0)
        return pcoll | beam.Map(_record_of) | beam.Reshuffle() | sink


def _record_of(example: Mapping[str, object]) -> bytes:
    record: bytes = dict_to_tfexample(example).SerializeToString(deterministic=True)
    return record


class WriteJson(beam.PTransform):  # type: ignore[misc]
    """Writes JSON values to one file, one after another; `prettify` indents and sorts keys."""

    def __init__(self, output_path: str, prettify: bool | None = True) -> None:
        super().__init__()
        self._output_path = output_path
        self._prettify = prettify

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        sink = beam.io.WriteToText(self._output_path, num_shards=1, shard_name_template="")
        return pcoll | beam.Map(self._text_of) | "write_info" >> sink

    def _text_of(self, value: object) -> str:
        return json.dumps(value, sort_keys=True, indent=2) if self._prettify else json.dumps(value)


class GetInfo(beam.PTransform):  # type: ignore[misc]
    """The facts that a reader of the cache needs, derived from one of its examples: shards, shapes and dtypes.

    `{"targets": int32 [5], "text": b"hi"}` → `{"num_shards": 3, "features": {"targets": {"shape": [None], "dtype":
    "int32"}, "text": {"shape": [], "dtype": "string"}}, "seqio_version": …}`; `{}` if there is no example.
    """

    def __init__(self, num_shards: int, exclude_provenance: bool = True) -> None:
        super().__init__()
        self._num_shards = num_shards
        self._exclude_provenance = exclude_provenance

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | beam.combiners.Sample.FixedSizeGlobally(1) | beam.Map(self._info)

    def _info(self, sample: Sequence[Mapping[str, object]]) -> dict[str, object]:
        if not sample:
            return {}
        features = {
            name: _shape_and_dtype(value, name)
            for name, value in sample[0].items()
            if not (self._exclude_provenance and name.startswith(PROVENANCE_PREFIX))
        }
        return {"num_shards": self._num_shards, "features": features, "seqio_version": LAYOUT_VERSION}


def _shape_and_dtype(value: RawExample, name: str) -> dict[str, object]:
    if hasattr(value, "element_spec") or hasattr(value, "row_splits") or hasattr(value, "numpy"):  # of TensorFlow
        shape, dtype = value.shape.as_list(), value.dtype.name
    else:
        value = normalised({name: list(value) if isinstance(value, range) else value})[name]
        shape, dtype = list(np.shape(value)), dtype_name(value)
    return {"shape": [None, *shape[1:]] if shape else [], "dtype": dtype}


class _CountTokens(beam.DoFn):  # type: ignore[misc]
    """`{"inputs": [5, 6, 1]}` → `("inputs_tokens", 2)`: int32 and int64 entries, without EOS and padding."""

    def __init__(self, output_features: Mapping[str, Feature]) -> None:
        super().__init__()
        self._output_features = output_features

    def process(self, example: Mapping[str, object]) -> Iterator[tuple[str, int]]:
        for name, feature in self._output_features.items():
            value = example.get(name)
            if hasattr(value, "numpy"):
                value = value.numpy()
            if isinstance(value, np.ndarray) and value.dtype in (np.int32, np.int64):
                special = [i for i in (feature.vocabulary.eos_id, feature.vocabulary.pad_id) if i is not None]
                yield f"{name}_tokens", int(count_tokens([value], special)[0])


class _CountCharacters(beam.DoFn):  # type: ignore[misc]
    """`{"text": b"hello"}` → `("text_chars", 5)`: for text, and for ids that a SentencePiece vocabulary decodes."""

    def __init__(self, output_features: Mapping[str, Feature]) -> None:
        super().__init__()
        self._output_features = output_features

    def process(self, example: Mapping[str, object]) -> Iterator[tuple[str, int]]:
        for name, feature in self._output_features.items():
            value = example.get(name)
            if isinstance(value, bytes):
                yield f"{name}_chars", len(value.decode("utf-8"))
            elif (
                isinstance(value, np.ndarray)
                and value.dtype in (np.int32, np.int64)
                and feature.rank == 1
                and isinstance(feature.vocabulary, SentencePieceVocabulary)
            ):
                yield f"{name}_chars", len(feature.vocabulary.decode(np.abs(value.astype(np.int32)).tolist()))


class GetStats(beam.PTransform):  # type: ignore[misc]
    """Counts of a collection of examples, as one dict.

    `{"examples": 2, "inputs_tokens": 3, "inputs_max_tokens": 2}`, with `inputs_chars` if `enable_char_counts`, and with
    the given `task_ids`.
    """

    def __init__(
        self,
        output_features: Mapping[str, Feature],
        task_ids: Mapping[str, SupportsInt] | None = None,
        enable_char_counts: bool = False,
    ) -> None:
        super().__init__()
        self._counters: list[_CountTokens | _CountCharacters]
        self._counters = [_CountTokens(output_features), *([_CountCharacters(output_features)] * enable_char_counts)]
        self._task_ids = {name: int(number) for name, number in (task_ids or {}).items()}

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | "count" >> beam.CombineGlobally(_Stats(self._counters, self._task_ids))


class _Stats(beam.CombineFn):  # type: ignore[misc]
    """Sums of the counters, and the largest number of tokens in one example."""

    def __init__(self, counters: Sequence[_CountTokens | _CountCharacters], task_ids: Mapping[str, int]) -> None:
        self._counters = counters
        self._task_ids = task_ids

    def create_accumulator(self) -> dict[str, int]:
        return {"examples": 0}

    def add_input(self, stats: dict[str, int], example: Mapping[str, object]) -> dict[str, int]:
        counted = itertools.chain.from_iterable(counter.process(example) for counter in self._counters)
        return self.merge_accumulators([stats, {"examples": 1, **_with_largest(counted)}])

    def merge_accumulators(self, accumulators: Iterable[dict[str, int]]) -> dict[str, int]:
        merged = self.create_accumulator()
        for stats in accumulators:
            for name, number in stats.items():
                largest = name.endswith("_max_tokens")
                merged[name] = max(merged.get(name, 0), number) if largest else merged.get(name, 0) + number
        return merged

    def extract_output(self, stats: dict[str, int]) -> Mapping[str, object]:
        return {**stats, "task_ids": dict(self._task_ids)} if self._task_ids and stats["examples"] else stats


def _with_largest(counted: Iterable[tuple[str, int]]) -> dict[str, int]:
    stats = {}
    for name, number in counted:
        stats[name] = number
        if name.endswith("_tokens"):
            stats[f"{name.removesuffix('_tokens')}_max_tokens"] = number
    return stats


__getattr__ = names_of(__name__, ABSENT, "SeqIO")
