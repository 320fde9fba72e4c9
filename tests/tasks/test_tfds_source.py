"""TFDS sources over a data set that the test writes: no network."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from beam_pipes.errors import TaskError
from beam_pipes.tasks import Feature, PassThroughVocabulary, ShardInfo, Task, TfdsDataSource
from beam_pipes.tasks.sources.tfds import TfdsSplit, set_tfds_data_dir_override


class LettersDataset(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({"number": tf.int64}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(20), "test": self._generate_examples(3)}

    def _generate_examples(self, count):
        for number in range(count):
            yield number, {"number": number}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = str(tmp_path_factory.mktemp("tfds"))
    builder = LettersDataset(data_dir=directory)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2))
    return directory


def numbers(dataset) -> list[int]:
    return [int(example["number"]) for example in dataset]


def test_splits_sizes_and_examples_come_from_the_data_set(data_dir: str) -> None:
    source = TfdsDataSource("letters_dataset:1.0.0", tfds_data_dir=data_dir)

    assert sorted(source.splits) == ["test", "train"]
    assert (source.num_input_examples("train"), source.num_input_examples("dev")) == (20, None)
    assert sorted(numbers(source.get_dataset("train", shuffle=False))) == list(range(20))
    assert source.tfds_dataset.resolved_tfds_name() == "letters_dataset:1.0.0"


def test_splits_can_be_mapped_to_parts_of_others(data_dir: str) -> None:
    splits = {"train": "train[:90%]", "validation": "train[90%:]"}
    source = TfdsDataSource("letters_dataset:1.0.0", tfds_data_dir=data_dir, splits=splits)

    assert tuple(source.splits) == ("train", "validation")
    assert source.num_input_examples("validation") == 2
    together = [n for split in splits for n in numbers(source.get_dataset(split, shuffle=False))]
    assert sorted(together) == list(range(20))


def test_splits_can_name_their_own_data_set(data_dir: str) -> None:
    own = TfdsSplit(dataset="letters_dataset:1.0.0", split="test", data_dir=data_dir)
    source = TfdsDataSource(splits={"dev": own})

    assert sorted(numbers(source.get_dataset("dev"))) == [0, 1, 2]
    assert source.num_input_examples("dev") == 3
    with pytest.raises(TaskError, match="`LazyTfdsLoader` refers to multiple datasets, pass `split` value"):
        source.tfds_dataset.get_split_params()
    with pytest.raises(
        TaskError, match="If split values are instances of `TfdsSplit`, `name` and `data_dir` must be `None`"
    ):
        TfdsDataSource("letters_dataset:1.0.0", splits={"dev": own})


def test_hosts_share_a_data_set(data_dir: str) -> None:
    source = TfdsDataSource("letters_dataset:1.0.0", tfds_data_dir=data_dir)
    task = Task("t", source, {"number": Feature(PassThroughVocabulary(99), dtype=tf.int64, rank=0)})

    for hosts in (2, 3):
        shares = [numbers(task.get_dataset(seed=1, shard_info=ShardInfo(i, hosts))) for i in range(hosts)]
        assert sorted(n for share in shares for n in share) == list(range(20))


def test_every_file_is_a_shard_that_can_be_read_alone(data_dir: str) -> None:
    source = TfdsDataSource("letters_dataset:1.0.0", tfds_data_dir=data_dir)
    shards = source.list_shards("train")

    read = [int(example["number"]) for shard in shards for example in source.read_shard("train", shard)]

    assert sorted(read) == list(range(20))


def test_the_directory_can_be_overridden(data_dir: str, tmp_path) -> None:
    set_tfds_data_dir_override(data_dir)
    try:
        source = TfdsDataSource("letters_dataset:1.0.0", tfds_data_dir=str(tmp_path))
        assert source.num_input_examples("test") == 3
    finally:
        set_tfds_data_dir_override(None)


def test_a_name_needs_a_version() -> None:
    with pytest.raises(TaskError, match="TFDS name must contain a version number, got: letters_dataset"):
        TfdsDataSource("letters_dataset")
