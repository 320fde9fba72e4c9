"""Prepared TFDS and RLDS data sets as sources, and caches as such data sets: both compared with TFDS itself."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

from beam_pipes import build
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import CorruptRecordError, SourceError
from beam_pipes.sources import TfdsFeatures, TFRecords, tfds_splits

CLASSES = ["cat", "dog", "emu"]


class Kinds(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """One feature of every kind, as TFDS itself writes it."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        kinds = tfds.features
        features = {
            "id": np.int64,
            "text": kinds.Text(),
            "label": kinds.ClassLabel(names=CLASSES),
            "image": kinds.Image(shape=(None, None, 3), encoding_format="png"),
            "grey": kinds.Image(shape=(4, 5, 1)),
            "box": kinds.BBoxFeature(),
            "raw": kinds.Tensor(shape=(), dtype=np.object_),
            "zip": kinds.Tensor(shape=(2, None), dtype=np.float32, encoding="zlib"),
            "grid": kinds.Tensor(shape=(None, None), dtype=np.int32, encoding="bytes"),
            "audio": kinds.Audio(shape=(None,)),
            "words": kinds.Sequence(kinds.Text()),
            "pair": kinds.Sequence(np.float32, length=2),
            "objects": kinds.Sequence({"label": kinds.ClassLabel(names=CLASSES), "box": kinds.BBoxFeature()}),
            "group": {"deep": {"flag": np.bool_}, "translation": kinds.Translation(["de", "en"])},
            "steps": kinds.Dataset(
                {
                    "observation": {
                        "image": kinds.Image(shape=(3, 2, 3), encoding_format="png"),
                        "state": kinds.Tensor(shape=(7,), dtype=np.float32),
                    },
                    "action": kinds.Tensor(shape=(2,), dtype=np.float64),
                    "is_last": np.bool_,
                    "say": kinds.Text(),
                }
            ),
        }
        return tfds.core.DatasetInfo(builder=self, features=kinds.FeaturesDict(features))

    def _split_generators(self, dl_manager: object) -> Any:
        return {"train": self._generate_examples(9), "test": self._generate_examples(2)}

    def _generate_examples(self, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for at in range(count):
            picture = np.random.default_rng(at).integers(0, 256, (at + 1, 6, 3), np.uint8)
            box = tfds.features.BBox(0.0, 0.25, 0.5, 1.0)
            yield (
                at,
                {
                    "id": at,
                    "text": f"é {at}",
                    "label": at % 3,
                    "image": picture,
                    "grey": picture[:1, :5, :1].repeat(4, 0),
                    "box": box,
                    "raw": b"\x00" * at + b"\xff\x00",
                    "zip": np.full((2, at), at / 3, np.float32),
                    "grid": np.full((at + 1, 2 * at + 1), at, np.int32),
                    "audio": np.arange(at + 1, dtype=np.int64),
                    "words": [f"wörd{each}" for each in range(at)],
                    "pair": np.array([at, 1 / 3], np.float32),
                    "objects": [{"label": each % 3, "box": box} for each in range(at)],
                    "group": {"deep": {"flag": at % 2 == 0}, "translation": {"de": "ja", "en": "yes"}},
                    "steps": [
                        {
                            "observation": {
                                "image": np.full((3, 2, 3), step, np.uint8),
                                "state": np.full(7, step, np.float32),
                            },
                            "action": np.array([at, step / 3]),
                            "is_last": step == at - 1,
                            "say": f"step {step}",
                        }
                        for step in range(at)
                    ],
                },
            )


NAMES = ["id", "label", "image", "steps/observation/image", "steps/action", "group/translation/de"]


def chosen(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in NAMES}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = Kinds(data_dir=str(tmp_path_factory.mktemp("tfds")))
    builder.download_and_prepare(file_format="tfrecord")
    return Path(builder.data_dir)


def values_of(source: TFRecords) -> list[Any]:
    batches = [batch for shard in source.plan(target_shard_bytes=1 << 20).shards for batch in source.read(shard)]
    assert not [bad for batch in batches for bad in batch.bad]
    return [value for batch in batches for value in batch.values]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What `as_dataset` gives, by joined names; steps as lists."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from flat(each, f"{name}/{key}" if name else key)
    elif hasattr(value, "__iter__") and not isinstance(value, np.ndarray | np.generic | bytes):
        steps = [dict(flat(step, name)) for step in value]
        for key in steps[0] if steps else ():
            yield key, [step[key] for step in steps]
    else:
        yield name, value


def test_values_are_those_of_tfds(prepared: Path) -> None:
    splits = tfds_splits(prepared)
    assert list(splits) == ["test", "train"]
    for split, source in splits.items():
        expected = [
            dict(flat(each)) for each in tfds.as_numpy(tfds.builder_from_directory(prepared).as_dataset(split=split))
        ]
        found = values_of(source)
        assert len(found) == len(expected) == {"train": 9, "test": 2}[split]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.keys() >= theirs.keys()
            for name, value in ours.items():
                other = theirs.get(name, [])
                if isinstance(value, str):
                    assert value.encode() == other, name
                elif isinstance(value, list):
                    assert [each.encode() for each in value] == list(other), name
                else:
                    np.testing.assert_array_equal(
                        value, np.asarray(other, getattr(value, "dtype", None)).reshape(np.shape(value)), name
                    )
                    assert type(value) is bytes or value.dtype == np.asarray(other).dtype or not np.size(value), name


def test_a_build_takes_them_and_keeps_names_of_classes(prepared: Path, tmp_path: Path) -> None:
    splits = tfds_splits(prepared, encoded=["image", "steps/observation/image"])
    message = splits["train"].message
    assert isinstance(message, TfdsFeatures)
    spec = {name: message.spec[name] for name in NAMES}
    assert spec["image"] == FeatureSpec("bytes") and spec["steps/action"] == FeatureSpec("float64", shape=(None, 2))
    assert spec["label"].classes == tuple(CLASSES)

    result = build("kinds", splits, [chosen], features=spec, to=tmp_path / "cache", workers=1)

    assert result.account.written == 11
    cache = Cache.open(tmp_path / "cache")
    assert cache["train"].spec["label"].class_names == tuple(CLASSES)
    for row in cache["train"]:
        assert row["image"].startswith(b"\x89PNG") and len(row["steps/observation/image"]) == row["id"]
        assert row["steps/action"].shape == (row["id"], 2)


def test_a_file_with_fewer_records_than_were_written_is_refused(prepared: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "kinds")
    file = tmp_path / "kinds" / "kinds-train.tfrecord-00000-of-00001"
    whole = file.read_bytes()
    (length,) = np.frombuffer(whole, "<u8", 1).tolist()
    for rest in (whole[: length + 16], b""):  # cut where a record ends, and where none is left
        file.write_bytes(rest)
        with pytest.raises(
            SourceError, match=r"train.tfrecord-00000-of-00001 holds [01] records, and dataset_info.json says 9\."
        ):
            tfds_splits(tmp_path / "kinds")["train"].plan(target_shard_bytes=1 << 20)
    file.unlink()
    with pytest.raises(SourceError, match="kinds-train.tfrecord-00000-of-00001"):
        tfds_splits(tmp_path / "kinds")["train"].plan(target_shard_bytes=1 << 20)


def test_errors_say_what_is_wrong(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"expected a data set that TFDS has prepared.*Name the directory of a version"
    ):
        tfds_splits(tmp_path)
    with pytest.raises(SourceError, match=r"there is no feature 'imag'\. Did you mean 'image'\?"):
        tfds_splits(prepared, encoded=["imag"])
    shutil.copytree(prepared, tmp_path / "kinds")
    info = tmp_path / "kinds" / "dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"fileFormat": "riegeli"}))
    with pytest.raises(
        SourceError,
        match=r"is stored as riegeli; tfrecord and array_record are read\. Prepare it as one of these: builder",
    ):
        tfds_splits(tmp_path / "kinds")
    source = TFRecords(str(prepared), pattern="*train*", message=TfdsFeatures(str(prepared)))
    assert values_of(pickle.loads(pickle.dumps(source)))[0]["id"] == values_of(tfds_splits(prepared)["train"])[0]["id"]
    with pytest.raises(CorruptRecordError, match="TFDS reads it as TypeError"):
        TfdsFeatures(str(prepared)).decode(b"")


def test_a_feature_that_a_record_lacks_is_not_filled_in(tmp_path: Path) -> None:
    features = tfds.features.FeaturesDict({"x": np.float32, "y": np.float32})
    record = features.serialize_example({"x": 1.0, "y": 2.0})
    (tmp_path / "a-train.tfrecord-00000-of-00001").write_bytes(b"")
    split = tfds.core.SplitInfo(name="train", shard_lengths=[1], num_bytes=len(record))
    tfds.folder_dataset.write_metadata(data_dir=tmp_path, features=features, split_infos=[split], check_data=False)
    described = TfdsFeatures(str(tmp_path))
    assert described.decode(record) == {"x": 1.0, "y": 2.0}

    with pytest.raises(CorruptRecordError, match="there is no feature 'y' in it"):
        described.decode(tfds.features.FeaturesDict({"x": np.float32}).serialize_example({"x": 1.0}))
