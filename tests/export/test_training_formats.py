"""Exports in the formats of other training stacks, opened with the readers of these stacks."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from grain.sources import ArrayRecordDataSource
from PIL import Image
from test_exports import FEATURES, Everything, Utf8, built

from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.cache.write_cache import write_cache
from beam_pipes.errors import ExportError
from beam_pipes.export import export
from beam_pipes.loader import Loader, pack
from beam_pipes.sources import MDS, Tar

GOLDEN = Path(__file__).parents[1] / "golden" / "mds"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    directory = tmp_path_factory.mktemp("training_formats")
    whole = built(directory, Everything(), FEATURES)
    take_down(whole.path, [whole["train"].record_ids([2])[0]])
    return Cache.open(whole.path)


def kept(cache: Cache, split: str) -> list[dict[str, Any]]:
    removed = set(cache[split].removed_rows.tolist())
    return [cache[split][row] for row in range(len(cache[split])) if row not in removed]


# In a process of its own: it imports Triton, which aborts a process that TensorFlow is loaded in.
MEGATRON = """
import json, sys
from megatron.core.datasets.indexed_dataset import IndexedDataset

from beam_pipes.loader import PackedSequences

plan, *prefixes = sys.argv[1:]
packed = PackedSequences(IndexedDataset(prefixes.pop()), plan)
found = {"packed": [row["tokens"].tolist() for row in packed]}
for prefix in prefixes:
    for mmap in (True, False):
        data = IndexedDataset(prefix, mmap=mmap)
        found[f"{prefix} {mmap}"] = {
            "dtype": data.index.dtype.__name__,
            "documents": data.document_indices.tolist(),
            "tokens": [data[index].tolist() for index in range(len(data))],
            "part": data.get(1, offset=1, length=2).tolist(),
        }
print(json.dumps(found))
"""


def test_megatron_reads_token_ids(cache: Cache, tmp_path: Path) -> None:
    out = export(cache, tmp_path / "out", format="megatron")

    assert sorted(path.name for path in Path(out).iterdir()) == sorted(
        f"{split}_tokens_document.{suffix}" for split in cache.splits for suffix in ("bin", "idx")
    )
    prefixes = {split: f"{out}/{split}_tokens_document" for split in cache.splits}
    documents = [{"tokens": np.arange(length, dtype=np.int32) + 1} for length in (6, 4, 25, 1)]
    packed = write_cache(tmp_path / "packed", {"train": documents})["train"]
    plan = pack(packed, sequence_length=10, bos_id=99)
    plan.save(tmp_path / "rows.plan")
    of_packed = f"{export(tmp_path / 'packed', tmp_path / 'of_packed', format='megatron')}/train_tokens_document"
    ran = subprocess.run(
        [sys.executable, "-c", MEGATRON, str(tmp_path / "rows.plan"), *prefixes.values(), of_packed],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["packed"] == Loader(plan, batch_size=len(plan), shuffle=False).batch_at(0)["tokens"].tolist()
    for split, prefix in prefixes.items():
        tokens = [example["tokens"].tolist() for example in kept(cache, split)]
        for mmap in (True, False):
            assert found[f"{prefix} {mmap}"] == {
                "dtype": "int32",
                "documents": list(range(len(tokens) + 1)),
                "tokens": tokens,
                "part": tokens[1][1:3],
            }


def test_grain_reads_the_stored_records(cache: Cache, tmp_path: Path) -> None:
    out = Path(export(cache, tmp_path / "out", format="arrayrecord"))

    for name in cache.splits:
        split = cache[name]
        removed = set(split.removed_rows.tolist())
        source = ArrayRecordDataSource(sorted(str(path) for path in out.glob(f"{name}-*.array_record")))
        stored = [bytes(split.record_bytes(row)) for row in range(len(split)) if row not in removed]
        assert [bytes(source[index]) for index in range(len(source))] == stored


def test_webdataset_decodes_every_feature(cache: Cache, tmp_path: Path) -> None:
    out = export(cache, tmp_path / "out", format="webdataset")

    for name in cache.splits:
        found = list(webdataset.WebDataset(f"{out}/{name}-000000.tar", shardshuffle=False).decode())
        expected = kept(cache, name)
        assert len(found) == len(expected)
        for sample, example in zip(found, expected, strict=True):
            assert sample["text.txt"] == example["text"] and sample["raw"] == example["raw"]
            assert sample["words.json"] == example["words"].tolist()
            assert (sample["flag.cls"], sample["count.cls"]) == (int(example["flag"]), int(example["count"]))
            for feature in ("tokens", "grid", "half", "brain"):
                value = np.asarray(example[feature])
                wide = value.astype(np.float32) if feature == "brain" else value
                assert sample[f"{feature}.npy"].dtype == wide.dtype
                assert np.array_equal(sample[f"{feature}.npy"], wide)

    again = export(cache, tmp_path / "again", format="webdataset")
    for path in Path(out).iterdir():
        assert path.read_bytes() == (Path(again) / path.name).read_bytes()
    source = Tar(out, pattern="train-*.tar")
    shards = source.plan(target_shard_bytes=1 << 20).shards
    samples = [sample for shard in shards for batch in source.read(shard) for sample in batch.values]
    assert [sample["raw"] for sample in samples] == [example["raw"] for example in kept(cache, "train")]


def test_webdataset_decodes_images_by_the_name_of_their_feature(tmp_path: Path) -> None:
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "png")
    examples = [{"png": encoded.getvalue(), "label": 3}]
    cache = write_cache(
        tmp_path / "images", {"train": examples}, features={"png": FeatureSpec("bytes"), "label": FeatureSpec("int32")}
    )

    out = export(cache, tmp_path / "out", format="webdataset")

    (sample,) = webdataset.WebDataset(f"{out}/train-000000.tar", shardshuffle=False).decode("rgb8")
    assert np.array_equal(sample["png"], pixels) and sample["label.cls"] == 3


def test_many_records_are_spread_over_files(tmp_path: Path) -> None:
    examples = ({"n": number} for number in range(10_001))
    cache = write_cache(tmp_path / "many", {"train": examples}, features={"n": FeatureSpec("int32")})

    arrays = export(cache, tmp_path / "arrays", format="arrayrecord")
    archives = export(cache, tmp_path / "archives", format="webdataset")

    assert len(ArrayRecordDataSource(sorted(str(path) for path in Path(arrays).iterdir()))) == 10_001
    names = sorted(path.name for path in Path(archives).iterdir())
    assert names == ["train-000000.tar", "train-000001.tar"]
    last = list(webdataset.WebDataset(f"{archives}/{names[1]}", shardshuffle=False).decode())
    assert [sample["n.cls"] for sample in last] == [10_000]


def test_what_a_format_cannot_hold_is_refused_in_words(tmp_path: Path) -> None:
    def cache_of(name: str, features: dict[str, FeatureSpec], example: dict[str, Any]) -> Cache:
        return write_cache(tmp_path / name, {"train": [example]}, features=features)

    wide = cache_of("wide", {"ids": FeatureSpec("uint32", shape=(None,))}, {"ids": np.ones(3, np.uint32)})
    with pytest.raises(ExportError, match=r"feature 'ids' of split 'train' is uint32.*Declare it as int32, or int64"):
        export(wide, tmp_path / "a", format="megatron")
    text = cache_of("text", {"text": FeatureSpec("str")}, {"text": "a"})
    with pytest.raises(ExportError, match=r"no token ids to export.*found text \(str\). Export it as parquet"):
        export(text, tmp_path / "a", format="megatron")
    blobs = cache_of("blobs", {"b": FeatureSpec("bytes", shape=(None,))}, {"b": np.array([b"x"], object)})
    with pytest.raises(ExportError, match=r"feature 'b' of split 'train' is a list of bytes.*Export it as parquet"):
        export(blobs, tmp_path / "a", format="webdataset")
    assert not (tmp_path / "a").exists()


def test_records_that_are_not_examples_are_samples_of_one_member(tmp_path: Path) -> None:
    cache = built(tmp_path, Utf8())

    out = export(cache, tmp_path / "out", format="webdataset")

    split = cache["train"]
    found = list(webdataset.WebDataset(f"{out}/train-000000.tar", shardshuffle=False))
    assert [sample["record"] for sample in found] == [bytes(split.record_bytes(row)) for row in range(len(split))]
    with pytest.raises(ExportError, match=r"no token ids to export.*records. Export it as parquet or webdataset"):
        export(cache, tmp_path / "m", format="megatron")


def of_mds(directory: str) -> list[dict[str, Any]]:
    source = MDS(directory)
    shards = source.plan(target_shard_bytes=1 << 20).shards
    return [sample for shard in shards for batch in source.read(shard) for sample in batch.values]


def test_mds_holds_every_feature_and_is_read_back(cache: Cache, tmp_path: Path) -> None:
    out = export(cache, tmp_path / "out", format="mds")

    for name in cache.splits:
        expected = kept(cache, name)
        found = of_mds(f"{out}/{name}")
        index = json.loads(Path(out, name, "index.json").read_text())
        assert len(found) == len(expected) == sum(shard["samples"] for shard in index["shards"])
        assert dict(zip(index["shards"][0]["column_names"], index["shards"][0]["column_encodings"], strict=True)) == {
            "brain": "ndarray:float32:2", "count": "int64", "flag": "uint8", "grid": "ndarray:float32",
            "half": "ndarray:float16:2", "raw": "bytes", "text": "str", "tokens": "ndarray:int32", "words": "json",
        }  # fmt: skip
        for sample, example in zip(found, expected, strict=True):
            assert (sample["text"], sample["raw"]) == (example["text"], example["raw"])
            assert (sample["flag"], sample["count"]) == (int(example["flag"]), example["count"])
            assert sample["words"] == example["words"].tolist()
            for feature in ("tokens", "grid", "half", "brain"):
                assert np.array_equal(sample[feature], np.asarray(example[feature]).astype(sample[feature].dtype))
    again = export(cache, tmp_path / "again", format="mds")
    for path in Path(out).rglob("*.*"):
        assert path.read_bytes() == (Path(again) / path.relative_to(out)).read_bytes()


def test_mds_is_cut_into_shards_and_gives_the_bytes_of_streaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded samples of Streaming's own writer, of the columns that a cache has too, are exported again."""
    recorded = of_mds(str(GOLDEN))
    names = ("any", "n", "f", "text", "raw", "tokens", "u", "fixed")
    examples = [{name: sample[name] for name in names} for sample in recorded]
    features = {
        "any": FeatureSpec("float16", shape=(1, None, 2)),
        "n": FeatureSpec("int64"),
        "f": FeatureSpec("float32"),
        "text": FeatureSpec("str"),
        "raw": FeatureSpec("bytes"),
        "tokens": FeatureSpec("uint16", shape=(None,)),
        "u": FeatureSpec("uint16"),
        "fixed": FeatureSpec("int32", shape=(2, 3)),
    }
    cache = write_cache(tmp_path / "cache", {"train": examples}, features=features)
    monkeypatch.setattr("beam_pipes.export.training_formats._MDS_SHARD_BYTES", 1000)

    out = Path(export(cache, tmp_path / "out", format="mds")) / "train"

    expected = GOLDEN.with_name("mds_export")
    assert len(list(expected.iterdir())) > 3
    for path in expected.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_what_mds_cannot_hold_is_refused_in_words(tmp_path: Path) -> None:
    empty = write_cache(
        tmp_path / "empty",
        {"train": [{"ids": np.ones(2, np.int32)}, {"ids": np.ones(0, np.int32)}]},
        features={"ids": FeatureSpec("int32", shape=(None,))},
    )
    with pytest.raises(
        ExportError, match=r"feature 'ids' of record 1 of split 'train' has no elements, and MDS holds no"
    ):
        export(empty, tmp_path / "a", format="mds")
    blobs = write_cache(
        tmp_path / "blobs",
        {"train": [{"b": np.array([b"x"], object)}]},
        features={"b": FeatureSpec("bytes", shape=(None,))},
    )
    with pytest.raises(
        ExportError, match=r"feature 'b' of split 'train' is a list of bytes, and a column of MDS is one"
    ):
        export(blobs, tmp_path / "a", format="mds")
    assert not (tmp_path / "a").exists()
