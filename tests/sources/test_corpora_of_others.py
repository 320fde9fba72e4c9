"""Corpora of other training stacks as sources: what our export writes comes back, and damage is named."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from test_source_protocol import write_mds, write_megatron

from beam_pipes import Cache, FeatureSpec, declare, stage, write_cache
from beam_pipes.errors import SourceError
from beam_pipes.export import export
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import MDS, ArrayRecords, ArrowRows, MegatronTokens, Parquet, dataset_splits

DOCUMENTS = [np.arange(n % 17, dtype=np.int32) * 3 for n in range(400)]
FEATURES = {"tokens": FeatureSpec("int32", shape=(None,))}


@stage
def as_they_are(record: dict) -> dict:
    return {"tokens": record["tokens"]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = tmp_path_factory.mktemp("formats") / "cache"
    write_cache(path, {"train": ({"tokens": each} for each in DOCUMENTS)}, features=FEATURES)
    return Cache.open(path)


def values(source, target=10**9):
    return [value for shard in source.plan(target_shard_bytes=target).shards for batch in source.read(shard)
            for value in batch.values]  # fmt: skip


def test_what_is_exported_to_megatron_is_built_into_the_same_cache(cache, tmp_path):
    export(cache.path, tmp_path / "megatron", format="megatron")

    declared = declare("again", MegatronTokens(tmp_path / "megatron"), [as_they_are], features=FEATURES)
    made = build(declared, tmp_path / "again", options=LocalOptions(workers=2))

    again = Cache.open(made.path)["train"]
    assert len(again) == 400
    assert all(np.array_equal(again[n]["tokens"], document) for n, document in enumerate(DOCUMENTS))


def test_array_records_hold_the_stored_bytes(cache, tmp_path):
    export(cache.path, tmp_path / "array", format="arrayrecord")

    assert values(ArrayRecords(tmp_path / "array"), 500) == [cache["train"].record_bytes(n) for n in range(400)]


def test_documents_of_several_sequences_come_whole_and_modes_are_passed_over(tmp_path):
    write_megatron(tmp_path / "two", [np.array([1, 2], np.uint16), np.array([3], np.uint16), np.array([4], np.uint16)])
    index = (tmp_path / "two.idx").read_bytes()
    header, lengths_and_pointers = index[:18], index[34 : 34 + 3 * 12]
    counts, bounds = np.array([3, 3], "<u8").tobytes(), np.array([0, 2, 3], "<i8").tobytes()
    (tmp_path / "two.idx").write_bytes(header + counts + lengths_and_pointers + bounds + bytes(3))

    found = values(MegatronTokens(tmp_path / "two.bin", field="ids"))

    assert [value["ids"].tolist() for value in found] == [[1, 2, 3], [4]] and found[0]["ids"].dtype == np.uint16


DAMAGE = {
    r"input d.bin needs its index d.idx beside it": lambda data, index: index.unlink(),
    r"input d.idx should begin with b'MMIDIDX.*found b'garb": lambda data, index: index.write_bytes(b"garbage" * 9),
    r"d.idx should have 82 bytes for 2 sequences and 2 documents, found 79": lambda data, index: _cut(index, 3),
    r"should have 10 bytes, as its .idx says, found 9. Copy": lambda data, index: _cut(data, 1),
    r"version 1 and dtype code 99; known are version 1 and the codes 1 \(uint8": lambda data, index: _set(
        index, 17, 99
    ),
    r"should describe sequences that follow each other, in documents from 0": lambda data, index: _set(index, 42, 1),
}


@pytest.mark.parametrize("words", DAMAGE)
def test_damage_is_named(tmp_path, words):
    write_megatron(tmp_path / "d", [np.arange(2, dtype=np.uint16), np.arange(3, dtype=np.uint16)])
    DAMAGE[words](tmp_path / "d.bin", tmp_path / "d.idx")

    with pytest.raises(SourceError, match=words):
        MegatronTokens(tmp_path).plan(target_shard_bytes=100)


def _cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def _set(path, at, value):
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(data)


def test_what_is_not_an_array_record_or_not_here_is_refused(tmp_path):
    (tmp_path / "x.array_record").write_bytes(b"garbage" * 100)
    with pytest.raises(SourceError, match=r"input x.array_record cannot be read as ArrayRecord: its footer is damaged"):
        ArrayRecords(tmp_path).plan(target_shard_bytes=100)


class TestMDS:
    def test_what_streaming_0_13_has_written_is_read_as_its_reader_gives_it(self):
        found = values(MDS(Path(__file__).parents[1] / "golden" / "mds"), 500)

        assert len(found) == 12
        for k, sample in enumerate(found):
            assert list(sample) == sorted(sample)
            assert (sample["text"], sample["raw"], sample["n"]) == (f"text {k} é" * (k % 3), bytes(range(k)), -k)
            assert (sample["u"], sample["f"]) == (k, np.float32(k / 3)) and sample["u"].dtype == np.uint16
            assert sample["tokens"].dtype == np.uint16 and sample["tokens"].tolist() == list(range(k + 1))
            assert np.array_equal(sample["fixed"], np.full((2, 3), k)) and sample["fixed"].dtype == np.int32
            assert np.array_equal(sample["any"], np.ones((1, k + 1, 2))) and sample["any"].dtype == np.float16
            assert (sample["big"], sample["price"], sample["ratio"]) == (10**30 + k, Decimal(k) / 8, k / 7)
            assert sample["meta"] == {"k": [k]}
            assert Image.open(io.BytesIO(sample["image"])).getpixel((1, 1)) == (k, 0, 0)
            assert [Image.open(io.BytesIO(each)).getpixel((0, 0)) for each in sample["images"]] == [k] * (k % 3)

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            (
                lambda path: _cut(path, 1),
                r"the offsets of 2 samples should go from 16 up to its 1\d\d bytes, found 1\d\d to",
            ),
            (
                lambda path: path.write_bytes(b"\x28\xb5"),
                r"d.mds cannot be read as a shard of MDS: expected 0 samples.*fo",
            ),
            (
                lambda path: path.write_bytes(b"\xff" * 99),
                r"expected 4294967295 samples and their offsets, found 99",
            ),
            (lambda path: _set(path, 17, 0), r"its header's description of the columns cannot be read: "),
            (
                lambda path: _replaced(path, b'"int"', b'"pkl"'),
                r"'n' of the encoding 'pkl', which is not read: unpickling",
            ),
            (
                lambda path: _replaced(path, b'"int"', b'"pil"'),
                r"'n' of the encoding 'pil', which is not read. Write it",
            ),
        ],
    )
    def test_damage_is_named(self, tmp_path, damage, words):
        write_mds(tmp_path / "d.mds", [(1, np.arange(2, dtype=np.uint16)), (2, np.arange(3, dtype=np.uint16))])
        damage(tmp_path / "d.mds")

        with pytest.raises(SourceError, match=words):
            MDS(tmp_path).plan(target_shard_bytes=100)

    def test_a_sample_that_is_cut_within_a_column_is_named(self, tmp_path):
        write_mds(tmp_path / "d.mds", [(1, np.arange(2, dtype=np.uint16))])
        data = bytearray((tmp_path / "d.mds").read_bytes())
        at = int(np.frombuffer(data, "<u4", 1, 4)[0])
        data[at] += 40  # the sample says that its tokens are longer than they are
        (tmp_path / "d.mds").write_bytes(data)

        with pytest.raises(
            SourceError, match=r"input d.mds has a sample that cannot be decoded: ValueError: it ends at"
        ):
            values(MDS(tmp_path))


def _replaced(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new))


class TestFoldersOfDatasets:
    TABLE = {
        "n": list(range(50)),
        "tokens": [[n] * (n % 4) for n in range(50)],
        "text": [f"text {n}" for n in range(50)],
    }

    def test_what_save_to_disk_has_written_is_read_by_split(self, tmp_path):
        whole = datasets.Dataset.from_dict(self.TABLE)
        # Selected rows: datasets keeps indices beside the table, and writes the rows themselves.
        made = datasets.DatasetDict({"train": whole.select(range(10, 50)), "test": whole.select([3, 1, 2])})
        made.save_to_disk(tmp_path / "both", num_shards={"train": 3, "test": 1})

        found = dataset_splits(tmp_path / "both")

        assert {split: type(source) for split, source in found.items()} == {"train": ArrowRows, "test": ArrowRows}
        for split, source in found.items():
            expected = list(datasets.load_from_disk(tmp_path / "both")[split])
            assert [{**row, "tokens": row["tokens"].tolist()} for row in values(source, 200)] == expected
        assert values(dataset_splits(tmp_path / "both", columns=["text"])["test"]) == [
            {"text": f"text {n}"} for n in (3, 1, 2)
        ]
        whole.save_to_disk(tmp_path / "one")
        assert list(dataset_splits(tmp_path / "one")) == ["train"]

    def test_they_are_built_into_splits(self, tmp_path):
        whole = datasets.Dataset.from_dict(self.TABLE)
        datasets.DatasetDict({"train": whole, "test": whole.select([3, 1])}).save_to_disk(tmp_path / "wiki")
        splits = dataset_splits(tmp_path / "wiki", columns=["tokens"])

        declared = declare("wiki", splits, [as_they_are], features={"tokens": FeatureSpec("int64", shape=(None,))})
        cache = Cache.open(build(declared, tmp_path / "cache", options=LocalOptions(workers=2)).path)

        assert {split: len(cache[split]) for split in cache.splits} == {"train": 50, "test": 2}
        assert cache["test"][0]["tokens"].tolist() == [3, 3, 3]

    @pytest.mark.parametrize(
        "names",
        [
            [f"data/{name}-of-00002.parquet" for name in ("train-00000", "train-00001", "test-00000")],
            ["train/0000.parquet", "train/0001.parquet", "test/0000.parquet"],
            ["default/train/0000.parquet", "default/train/0001.parquet", "default/test/0000.parquet"],
            ["train.parquet", "test.parquet"],
        ],
        ids=["sharded", "directories", "converted", "files"],
    )  # fmt: skip
    def test_parquet_files_belong_to_the_splits_of_their_names(self, tmp_path, names):
        for number, name in enumerate(names):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pyarrow.table({"n": [number]}), tmp_path / name)

        found = dataset_splits(tmp_path)

        assert list(found) == ["test", "train"] and all(isinstance(each, Parquet) for each in found.values())
        assert [row["n"] for row in values(found["train"])] == list(range(len(names) - 1))

    def test_what_is_not_a_folder_of_datasets_is_refused_in_words(self, tmp_path):
        for name in ("en/train-00000-of-00001.parquet", "de/train-00000-of-00001.parquet"):
            (tmp_path / name).parent.mkdir()
            pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), tmp_path / name)
        with pytest.raises(
            SourceError, match=r"files of the split 'train' in 'de', 'en': these are several configurations"
        ):
            dataset_splits(tmp_path)

        (tmp_path / "state.json").write_text('{"_data_files": []}')
        with pytest.raises(
            SourceError, match=r"expected a dataset that save_to_disk has written, with its files in state"
        ):
            dataset_splits(tmp_path)
        state = {"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}
        (tmp_path / "state.json").write_text(json.dumps(state))
        with pytest.raises(
            SourceError, match=r"saved with a mapping of indices, which is not read. Write it again: load"
        ):
            dataset_splits(tmp_path)
        (tmp_path / "state.json").write_text("{")
        with pytest.raises(SourceError, match=r"state.json cannot be read: Expecting"):
            dataset_splits(tmp_path)

    def test_a_stream_that_is_damaged_or_is_none_is_named(self, tmp_path):
        (tmp_path / "x.arrow").write_bytes(b"garbage" * 100)
        with pytest.raises(
            SourceError, match=r"input x.arrow cannot be read as a stream of Arrow, at or after row 0: "
        ):
            ArrowRows(tmp_path).plan(target_shard_bytes=100)
        table = pyarrow.table({"n": list(range(1000))})
        with pyarrow.ipc.new_file(tmp_path / "x.arrow", table.schema) as stream:
            stream.write_table(table)
        with pytest.raises(
            SourceError, match="It is in Arrow's file format: write it with pyarrow.ipc.new_stream, or as Parquet"
        ):
            ArrowRows(tmp_path).plan(target_shard_bytes=100)
        with pyarrow.ipc.new_stream(tmp_path / "x.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=100)
        _cut(tmp_path / "x.arrow", 1000)
        with pytest.raises(
            SourceError, match=r"input x.arrow cannot be read as a stream of Arrow, at or after row 800: "
        ):
            ArrowRows(tmp_path).plan(target_shard_bytes=100)
        with pytest.raises(SourceError, match=r"x.arrow should have columns \['m'\], found \['n'\]: \['m'\] missing"):
            with pyarrow.ipc.new_stream(tmp_path / "x.arrow", table.schema) as stream:
                stream.write_table(table)
            values(ArrowRows(tmp_path, columns=["m"]))
