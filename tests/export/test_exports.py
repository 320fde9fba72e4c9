"""Exports, opened with the readers of the formats themselves."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import mlcroissant
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow_datasets as tfds

from beam_pipes.building import Declaration
from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, ExampleSpec, FeatureSpec
from beam_pipes.errors import ExportError
from beam_pipes.export import FORMATS, export
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline

FEATURES: dict[str, Any] = {
    "text": FeatureSpec("str"),
    "raw": FeatureSpec("bytes"),
    "words": FeatureSpec("str", shape=(None,)),
    "tokens": FeatureSpec("int32", shape=(None,), minimum=0, maximum=200),
    "grid": FeatureSpec("float32", shape=(None, 2)),
    "half": FeatureSpec("float16", shape=(2,)),
    "brain": FeatureSpec("bfloat16", shape=(2,)),
    "flag": FeatureSpec("bool"),
    "count": FeatureSpec("int64"),
}


class Everything(Pipeline):
    """A line as an example with a feature of every kind; an empty line is dropped."""

    def __init__(self) -> None:
        super().__init__(str, dict, "Everything")

    def transform(self, line: str) -> list[dict[str, Any]]:
        if not line:
            return self.drop("empty")
        count = len(line)
        return [
            {
                "text": line,
                "raw": line.encode() + b"\xff",
                "words": np.array(line.split(), object),
                "tokens": np.frombuffer(line.encode("ascii"), np.uint8).astype(np.int32),
                "grid": np.arange(2 * (count % 3), dtype=np.float32).reshape(-1, 2) / 3,
                "half": np.array([count, 0.1], np.float16),
                "brain": np.array([count, 0.1], ml_dtypes.bfloat16),
                "flag": count % 2 == 0,
                "count": count,
            }
        ]


class Utf8(Pipeline):
    """A line as bytes."""

    def __init__(self) -> None:
        super().__init__(str, bytes, "Utf8")

    def transform(self, line: str) -> list[bytes]:
        return [line.encode()]


def built(tmp_path: Path, pipeline: Pipeline, features: Any = None) -> Cache:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / f"in/{number}.txt").write_text(
            "".join(f"line {n} of {number}\n" for n in range(5)) + "\nlast <one>\n"
        )
    source = TextLines(tmp_path / "in", pattern="*.txt")
    declaration = Declaration(name="all", source=source, pipeline=pipeline, features=features, target_shard_bytes=100)
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    return Cache.open(tmp_path / "cache")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return built(tmp_path, Everything(), FEATURES)


def test_parquet_holds_every_value_exactly(cache: Cache, tmp_path: Path) -> None:
    target = export(cache, tmp_path / "out", format="parquet")
    table = pyarrow.parquet.read_table(os.path.join(target, "train.parquet"))

    assert table.schema.field("tokens").type == pyarrow.list_(pyarrow.int32())
    assert table.schema.field("grid").type == pyarrow.list_(pyarrow.list_(pyarrow.float32()))
    assert table.schema.field("half").type == pyarrow.list_(pyarrow.float16())
    rows = table.to_pylist()
    assert len(rows) == len(cache["train"]) == 18
    for row, example in zip(rows, cache["train"], strict=True):
        assert row.keys() == example.keys()
        for name, value in example.items():
            plain = value.astype(np.float32) if name == "brain" else value
            assert row[name] == (plain.tolist() if isinstance(plain, (np.ndarray, np.generic)) else plain), name


def test_hugging_face_datasets_reads_the_parquet(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    target = export(cache, tmp_path / "out", format="parquet")
    import datasets

    files = {"train": os.path.join(target, "train.parquet")}
    read = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "hub"))["train"]

    assert read.features["tokens"] == datasets.List(datasets.Value("int32"))
    assert read.features["grid"] == datasets.List(datasets.List(datasets.Value("float32")))
    assert read.num_rows == 18
    for row, example in zip(read, cache["train"], strict=True):
        assert row["text"] == example["text"] and row["raw"] == example["raw"]
        assert row["tokens"] == example["tokens"].tolist()
        assert row["grid"] == example["grid"].tolist()
        assert (row["flag"], row["count"]) == (bool(example["flag"]), int(example["count"]))
    as_arrays = read.with_format("numpy")[3]
    assert as_arrays["tokens"].tolist() == cache["train"][3]["tokens"].tolist()


def test_records_that_are_no_examples_are_a_column_of_bytes(tmp_path: Path) -> None:
    cache = built(tmp_path, Utf8())
    export(cache.path, tmp_path / "out", format="parquet")

    table = pyarrow.parquet.read_table(tmp_path / "out/train.parquet")
    assert table.column("record").to_pylist() == list(cache["train"])
    with pytest.raises(ExportError, match="split 'train' holds bytes records, and TFX takes examples"):
        export(cache, tmp_path / "tfx", format="tfx")
    assert not list(tmp_path.glob("*tfx*"))


def test_mlcroissant_reads_the_records(cache: Cache, tmp_path: Path) -> None:
    target = export(cache, tmp_path / "out", format="croissant")

    dataset = mlcroissant.Dataset(os.path.join(target, "croissant.json"))
    assert list(dataset.metadata.issues.errors) == []
    records = list(dataset.records("train"))
    assert len(records) == 18
    for record, example in zip(records, cache["train"], strict=True):
        assert record["train/text"] == example["text"].encode()
        assert record["train/count"] == example["count"]
        assert list(record["train/tokens"]) == example["tokens"].tolist()


def test_tensorflow_reads_the_examples_of_tfx(cache: Cache, tmp_path: Path) -> None:
    target = export(cache, tmp_path / "out", format="tfx")
    import tensorflow

    files = sorted(map(str, Path(target).glob("Split-train/*")))
    assert [os.path.basename(file) for file in files] == ["data_tfrecord-00000-of-00001.gz"]
    read = list(tensorflow.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator())
    assert len(read) == 18
    for payload, example in zip(read, cache["train"], strict=True):
        features = tensorflow.train.Example.FromString(payload).features.feature
        assert list(features["tokens"].int64_list.value) == example["tokens"].tolist()
        assert list(features["grid"].float_list.value) == example["grid"].reshape(-1).tolist()
        assert features["text"].bytes_list.value[0] == example["text"].encode()


def test_what_is_taken_down_is_not_exported(cache: Cache, tmp_path: Path) -> None:
    gone = cache["train"].record_ids([4])[0]
    text = cache["train"][4]["text"]
    take_down(cache.path, [gone])

    for format in FORMATS:
        export(cache.path, tmp_path / format, format=format)

    for format in ("parquet", "croissant"):
        texts = pyarrow.parquet.read_table(tmp_path / format / "train.parquet").column("text").to_pylist()
        assert len(texts) == 17 and text not in texts
    texts = [
        row["text"] for row in tfds.builder_from_directory(tmp_path / "tfds").as_dataset("train").as_numpy_iterator()
    ]
    assert len(texts) == 17 and text.encode() not in texts
    assert all(text.encode() not in path.read_bytes() for path in (tmp_path / "tfds").glob("*-train.tfrecord-*"))
    (examples,) = (tmp_path / "tfx/Split-train").iterdir()
    assert text.encode() not in gzip.decompress(examples.read_bytes())


@pytest.mark.parametrize(
    ("target", "format", "message"),
    [
        (
            "out",
            "arrow",
            "format should be one of arrayrecord, croissant, mds, megatron, parquet, tfds, tfx, webdata",
        ),
        ("cache", "parquet", "is there already. Name a directory that is not, or remove it first."),
        ("gs://bucket/out", "parquet", "exports are written to a local directory, got 'gs://bucket/out'."),
    ],
)
def test_errors_say_what_cannot_be_exported(
    cache: Cache, tmp_path: Path, target: str, format: str, message: str
) -> None:
    with pytest.raises(ExportError, match=message.replace("(", r"\(")):
        export(cache, target if "//" in target else tmp_path / target, format=format)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    features = {**FEATURES, "count": FeatureSpec("float64")}
    cache = built(tmp_path, Everything(), ExampleSpec(features))

    with pytest.raises(ExportError, match="does not fit the lists of an Example: float64 cannot be kept exactly"):
        export(cache, tmp_path / "out", format="tfx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "in"]


def test_export_on_the_command_line(cache: Cache, tmp_path: Path) -> None:
    target = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = ["export", cache.path, "--format", "croissant", "--to", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipes", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )

    assert (done.returncode, done.stdout.strip()) == (0, str(target)), done.stderr
    assert json.loads((target / "croissant.json").read_text())["recordSet"][0]["name"] == "train"
