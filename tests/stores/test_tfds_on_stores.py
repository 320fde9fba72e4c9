"""Data sets of TFDS on an object store are loaded from there, in both formats of their files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from beam_pipes import Loader
from beam_pipes.loader import Windows
from beam_pipes.sources import open_tfds, tfds_splits
from beam_pipes.storage.objects import ObjectStorage


def prepared(top: Path, file_format: str) -> Path:
    features = tfds.features.FeaturesDict(
        {
            "label": tfds.features.ClassLabel(names=["a", "b"]),
            "steps": tfds.features.Dataset({"action": tfds.features.Tensor(shape=(2,), dtype=np.float32)}),
        }
    )
    episodes = [
        (str(n), {"label": n % 2, "steps": [{"action": [n, at]} for at in range(n % 4 + 1)]}) for n in range(20)
    ]
    tfds.dataset_builders.store_as_tfds_dataset(
        name=file_format, version="1.0.0", data_dir=top, features=features, split_datasets={"train": episodes},
        file_format=file_format,
    )  # fmt: skip
    return top / file_format / "1.0.0"


def test_prepared_data_sets_are_loaded_as_they_are(storage: ObjectStorage, bucket: str, tmp_path: Path) -> None:
    for file_format in ("tfrecord", "array_record"):
        here, there = prepared(tmp_path, file_format), f"{bucket}/{file_format}/1.0.0"
        for file in here.iterdir():
            storage.replace(f"{there}/{file.name}", file.read_bytes())
        expected = [batch["steps/action"] for batch in Loader(open_tfds(here)["train"], batch_size=6, seed=2)]

        opened = open_tfds(there, local_directory=tmp_path / f"copies-{file_format}")
        again = pickle.loads(pickle.dumps(open_tfds(there)["train"]))  # by the index that is there now

        assert opened["train"].spec["label"].classes == ("a", "b") and len(opened["train"]) == 20
        for split in (opened["train"], again):
            found = [batch["steps/action"] for batch in Loader(split, batch_size=6, seed=2)]
            assert all(map(np.array_equal, found, expected)) and len(found) == 3
        assert len(Windows(opened["train"], offsets={"steps/action": range(2)})) == sum(n % 4 + 1 for n in range(20))
        assert [*(tmp_path / f"copies-{file_format}").rglob(f"{file_format}-train.{file_format}-00000-of-00001")]
        assert opened["train"].record_ids([3])[0].startswith(f"{file_format}-train.{file_format}-00000-of-00001@")
    [source] = tfds_splits(f"{bucket}/tfrecord/1.0.0").values()
    shards = source.plan(target_shard_bytes=1 << 20).shards
    assert sum(len(batch.values) for shard in shards for batch in source.read(shard)) == 20
