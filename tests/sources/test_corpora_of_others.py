"""Corpora of other training stacks as sources: what our export writes comes back, and damage is named."""

from __future__ import annotations

import numpy as np
import pytest
from test_source_protocol import write_megatron

from beam_pipes import Cache, FeatureSpec, declare, stage, write_cache
from beam_pipes.errors import SourceError
from beam_pipes.export import export
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import ArrayRecords, MegatronTokens

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
