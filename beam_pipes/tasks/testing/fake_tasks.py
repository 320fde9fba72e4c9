"""Test cases with a few tasks and mixtures over the fake data, in each kind of source. Need TensorFlow."""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from beam_pipes.errors import TaskError
from beam_pipes.tasks import preprocessors
from beam_pipes.tasks.caches.places import get_global_cache_dirs, set_global_cache_dirs
from beam_pipes.tasks.in_tensorflow.dataset_map import dict_to_tfexample
from beam_pipes.tasks.in_tensorflow.runtime import tensorflow
from beam_pipes.tasks.mixture import MixtureRegistry
from beam_pipes.tasks.provider import Feature, ShardInfo
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.sources.data_source import DataSourceInterface
from beam_pipes.tasks.sources.files import TextLineDataSource, TFExampleDataSource
from beam_pipes.tasks.sources.function_source import FunctionDataSource
from beam_pipes.tasks.steps import CacheDatasetPlaceholder
from beam_pipes.tasks.task import Task
from beam_pipes.tasks.testing.assertions import as_lists
from beam_pipes.tasks.testing.fakes import (
    FAKE_EXAMPLES,
    FAKE_ND_FEATURES,
    FAKE_RAGGED_FEATURES,
    get_fake_dataset,
    split_tsv_preprocessor,
    test_text_preprocessor,
)
from beam_pipes.tasks.vocabularies.characters import ByteVocabulary

DEFAULT_PREPROCESSORS = (
    test_text_preprocessor,
    preprocessors.tokenize,
    CacheDatasetPlaceholder(),
    preprocessors.append_eos_after_trim,
)


DEFAULT_SEQUENCE_LENGTH = {"inputs": 13, "targets": 13}


def clear_tasks() -> None:
    """Forgets all tasks."""
    TaskRegistry.reset()


def clear_mixtures() -> None:
    """Forgets all mixtures."""
    MixtureRegistry.reset()


class FakeTaskTest(unittest.TestCase):
    """Registers, for the time of each test: `function_task`, `text_line_task`, `tf_example_task`, `uncached_task`.

    All hold `FAKE_EXAMPLES` and the same features. `self.test_data_dir` and `self.get_tempdir()` are directories
    that go away.
    """

    DEFAULT_PREPROCESSORS = DEFAULT_PREPROCESSORS
    DEFAULT_OUTPUT_FEATURES: ClassVar[Mapping[str, Feature]] = {
        "inputs": Feature(ByteVocabulary(extra_ids=3), add_eos=False, required=False),
        "targets": Feature(ByteVocabulary(extra_ids=3)),
    }

    def setUp(self) -> None:
        super().setUp()
        self._saved = (dict(TaskRegistry._REGISTRY), dict(MixtureRegistry._REGISTRY), get_global_cache_dirs())
        self._directory = tempfile.TemporaryDirectory()
        self.test_data_dir = self._directory.name
        clear_tasks()
        clear_mixtures()
        set_global_cache_dirs([os.path.join(self.test_data_dir, "cache")])
        counts = {split: len(examples) for split, examples in FAKE_EXAMPLES.items()}
        self.function_source = FunctionDataSource(get_fake_dataset, list(counts), num_input_examples=counts)
        self.text_line_source = TextLineDataSource(self._write_lines(), num_input_examples=counts)
        self.tf_example_source = TFExampleDataSource(
            self._write_records(), _record_features(), num_input_examples=counts
        )
        self.add_task("function_task", self.function_source)
        self.add_task("text_line_task", self.text_line_source, (split_tsv_preprocessor, *DEFAULT_PREPROCESSORS))
        self.add_task("tf_example_task", self.tf_example_source)
        without_cut = [step for step in DEFAULT_PREPROCESSORS if not isinstance(step, CacheDatasetPlaceholder)]
        self.add_task("uncached_task", self.function_source, without_cut)

    def tearDown(self) -> None:
        tasks, mixtures, directories = self._saved
        clear_tasks()
        clear_mixtures()
        TaskRegistry._REGISTRY.update(tasks)
        MixtureRegistry._REGISTRY.update(mixtures)
        set_global_cache_dirs(directories)
        self._directory.cleanup()
        super().tearDown()

    def get_tempdir(self) -> str:
        """A new directory inside `self.test_data_dir`."""
        return tempfile.mkdtemp(dir=self.test_data_dir)

    def add_task(
        self,
        name: str,
        source: DataSourceInterface,
        preprocessors: Sequence[Any] = DEFAULT_PREPROCESSORS,
        output_features: Mapping[str, Feature] | None = None,
        **kwargs: Any,
    ) -> Task:
        """Registers a task with the default steps and features."""
        return TaskRegistry.add(
            name,
            source=source,
            preprocessors=preprocessors,
            output_features=output_features or self.DEFAULT_OUTPUT_FEATURES,
            **kwargs,
        )

    def _write_lines(self) -> dict[str, str]:
        patterns = {}
        for split, examples in FAKE_EXAMPLES.items():
            patterns[split] = os.path.join(self.test_data_dir, f"{split}.tsv*")
            for index, part in enumerate((examples[:2], examples[2:])):
                with open(os.path.join(self.test_data_dir, f"{split}.tsv-{index}"), "w", encoding="utf-8") as file:
                    file.writelines(f"{example['prefix']}\t{example['suffix']}\n" for example in part)
        return patterns

    def _write_records(self) -> dict[str, str]:
        tf = tensorflow("FakeTaskTest")
        patterns = {}
        for split, examples in FAKE_EXAMPLES.items():
            patterns[split] = os.path.join(self.test_data_dir, f"{split}.tfrecord*")
            for index, part in enumerate((examples[:2], examples[2:])):
                path = os.path.join(self.test_data_dir, f"{split}.tfrecord-{index}")
                with tf.io.TFRecordWriter(path) as writer:
                    for example in part:
                        writer.write(dict_to_tfexample(example).SerializeToString())
        return patterns

    def verify_task_matches_fake_datasets(
        self,
        task_name: str = "",
        use_cached: bool = False,
        token_preprocessed: bool = False,
        ndfeatures: bool = False,
        ragged_features: bool = False,
        splits: Sequence[str] = ("train", "validation"),
        sequence_length: Mapping[str, int] | None = DEFAULT_SEQUENCE_LENGTH,
        num_shards: int | None = None,
        task: Task | None = None,
    ) -> None:
        """Raises `AssertionError` unless a task gives the fake examples, all shares together, preprocessed by the
        default steps.

        With `token_preprocessed`, `test_token_preprocessor` must be among the steps. `ndfeatures` and
        `ragged_features` ask for it too, and for the features that `get_fake_dataset` adds with them.
        """
        if ndfeatures and ragged_features:
            raise TaskError("At most one of ndfeatures and ragged_features can be True at once.")
        added = FAKE_ND_FEATURES if ndfeatures else FAKE_RAGGED_FEATURES if ragged_features else None
        changed = token_preprocessed or added is not None
        task = task or TaskRegistry.get(task_name)
        for split in splits:
            shares: list[ShardInfo | None] = [None]
            if num_shards is not None:
                shares = [ShardInfo(index, num_shards) for index in range(num_shards)]
            found = []
            for share in shares:
                dataset = task.get_dataset(
                    sequence_length, split, use_cached=use_cached, shuffle=False, shard_info=share
                )
                found += as_lists(dataset)
            wanted = [self._expected(example, sequence_length or {}, changed) for example in FAKE_EXAMPLES[split]]
            if added is not None:
                wanted = [{**example, **more} for example, more in zip(wanted, added[split], strict=True)]
            names = sorted(wanted[0])
            self.assertEqual(_in_order(wanted, names), _in_order(found, names))

    def _expected(self, example: Mapping[str, Any], lengths: Mapping[str, int], changed: bool) -> dict[str, object]:
        vocabulary = ByteVocabulary()
        inputs = vocabulary.encode("complete: " + example["prefix"])[: lengths.get("inputs")]
        length = lengths.get("targets")
        targets = vocabulary.encode(example["suffix"])[: None if length is None else length - 1]
        return {
            "inputs": [50 if changed and token > 15 else token for token in inputs],
            "targets": [*targets, vocabulary.eos_id],
        }


def _record_features() -> dict[str, object]:
    tf = tensorflow("FakeTaskTest")
    return {
        "prefix": tf.io.FixedLenFeature([], tf.string),
        "suffix": tf.io.FixedLenFeature([], tf.string),
        "idx": tf.io.FixedLenFeature([], tf.int64),
    }


def _in_order(examples: Iterable[Mapping[str, object]], names: Sequence[str]) -> list[str]:
    return sorted(repr([(name, example.get(name)) for name in names]) for example in examples)


class FakeMixtureTest(FakeTaskTest):
    """Also registers the mixtures `uncached_mixture` and `cached_mixture`."""

    def setUp(self) -> None:
        super().setUp()
        MixtureRegistry.add("uncached_mixture", [("uncached_task", 1.0)])
        MixtureRegistry.add("cached_mixture", [("function_task", 1.0), ("text_line_task", 2.0)])
