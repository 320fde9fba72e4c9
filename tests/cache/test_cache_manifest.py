"""The manifest: canonical bytes, and every contradiction is refused with the field that holds it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cache_examples import FIXED, MIXED, SNAPSHOT
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.cache import ExampleCodec, FileEntry, Manifest, ShardEntry, SplitManifest, shard_file_name
from beam_pipes.errors import CorruptManifestError, SpecError, UnsupportedFormatError
from beam_pipes.storage.checked_json import strict_json

STRIDE = ExampleCodec(FIXED).fixed_layout.stride  # type: ignore[union-attr]


def entry(number: int, records: int, *, split: str = "train", stride: int = STRIDE) -> ShardEntry:
    layout = ExampleCodec(FIXED).fixed_layout if stride == STRIDE else None
    name = shard_file_name("demo", split, number, 4)
    return ShardEntry(file=name, records=records, bytes=records * stride, crc32c=7, index_crc32c=8, layout=layout)


def manifest() -> Manifest:
    return Manifest(
        name="demo",
        snapshot=SNAPSHOT,
        splits={
            "train": SplitManifest.from_entries([entry(0, 3), entry(1, 0), entry(3, 5)], spec=FIXED),
            "eval": SplitManifest.from_entries([entry(0, 2, split="eval", stride=50)], kind="proto", proto="p.M"),
        },
        statistics=[{"name": "größe", "values": [0.1, 1e300]}],
        accounting={"stages": {"a": {"in": 3}}},
        fingerprints={"source": "ab", "declaration": "cd"},
        assets=[FileEntry(file="assets/vocab.txt", bytes=3, crc32c=1)],
        dead_letters=[FileEntry(file="dead_letters/x", bytes=3, crc32c=1, records=1)],
    )


def test_a_manifest_is_read_as_it_was_written() -> None:
    data = manifest().to_bytes()

    found = Manifest.from_bytes(data)

    assert found.to_bytes() == data and found.id == manifest().id and len(found.id) == 64
    assert found.splits["train"] == manifest().splits["train"]
    assert found.splits["train"].layout == ExampleCodec(FIXED).fixed_layout
    assert found.splits["train"].file_name("demo", "train", 2) == "demo-train.tfrecord-00003-of-00004"
    assert (found.splits["train"].num_records, found.splits["train"].num_bytes) == (8, 8 * STRIDE)


def test_golden_bytes_of_a_manifest() -> None:
    made = Manifest(
        name="demo",
        snapshot=SNAPSHOT,
        splits={"train": SplitManifest.from_entries([entry(0, 2, stride=50)], kind="bytes")},
        statistics=[1.5, {"b": 1, "a": "ä"}],
    )

    assert made.to_bytes().decode() == (
        '{"accounting":{},"assets":[],"dead_letters":[],"fingerprints":{},"format_version":1,"name":"demo",'
        '"snapshot":"0123456789abcdef","splits":{"train":{"bytes":100,"kind":"bytes","layout":null,"lengths":{},'
        '"proto":null,"records":2,"shard_count":4,"shards":{"bytes":[100],"crc32c":[7],"index_crc32c":[8],'
        '"number":[0],"records":[2]},"spec":null}},"statistics":[1.5,{"a":"ä","b":1}]}\n'
    )
    assert made.id == "d40077ca473987d62c22fadcf33426ad2d8406b0b1b766133064d5e2b0008991"


def changed(path: str, value: Any) -> bytes:
    made = json.loads(manifest().to_bytes())
    owner = made
    *parents, last = path.split(".")
    for name in parents:
        owner = owner[int(name)] if isinstance(owner, list) else owner[name]
    if value is REMOVED:
        del owner[last]
    else:
        owner[last] = value
    return json.dumps(made).encode()


REMOVED = object()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("name", 3, "name should be a string, got 3"),
        ("name", "../x", "name should be a name of letters"),
        ("snapshot", "..", "snapshot should be 16 hexadecimal digits, got '..'"),
        ("splits", [], "splits should be an object, got"),
        ("splits.tr/ain", {}, "splits should be an object of names.*'tr/ain' is none"),
        ("statistics", {}, "statistics should be a list"),
        ("accounting", [], "accounting should be an object"),
        ("fingerprints", {"a": 1}, "fingerprints should be an object of strings"),
        ("fingerprints", REMOVED, "fingerprints should be present, got 'nothing'"),
        ("surprise", 1, "surprise should be one of the known fields"),
        ("assets.0.file", "/etc/passwd", r"assets\[0\].file should be a relative path within the snapshot"),
        ("assets.0.file", "assets/../../x", r"assets\[0\].file should be a relative path"),
        ("assets.0.file", "..", r"assets\[0\].file should be a relative path"),
        ("assets.0.file", "a\\..\\b", r"assets\[0\].file should be a relative path"),
        ("dead_letters.0.bytes", -1, r"dead_letters\[0\].bytes should be an int from 0"),
        ("splits.train.kind", "csv", "splits.train.kind should be one of example, proto, bytes, got 'csv'"),
        ("splits.train.spec", None, "splits.train.spec should be there for examples"),
        ("splits.train.spec", {"x": 1}, "splits.train.spec should be an example spec .feature 'x': expected"),
        ("splits.eval.proto", None, "splits.eval.proto should be the full name of a message"),
        ("splits.train.records", 9, "splits.train.records should be the sum over all shards, 8, got 9"),
        ("splits.train.bytes", 1, "splits.train.bytes should be the sum over all shards"),
        ("splits.train.records", True, "splits.train.records should be an int from 0"),
        ("splits.train.shards.records", [3, 5], "shards.records should be a list of 3 values, as number is; it has 2"),
        ("splits.train.shards.records", [4, -1, 5], "shards.records should be a list of ints from 0"),
        ("splits.train.shards.bytes", [1.0, 2, 3], "shards.bytes should be a list of ints from 0"),
        ("splits.train.shards.crc32c", [1, 2, 1 << 32], "shards.crc32c should be a list of ints from 0 to 4294967295"),
        ("splits.train.shards.number", [0, 1, 4], "shards.number should be different ints below the shard_count of 4"),
        ("splits.train.shards.number", [0, 1, 1], "shards.number should be different ints"),
        ("splits.train.layout", None, "splits.train.layout should be there for a spec whose features"),
        ("splits.train.layout", {"stride": 1}, "splits.train.layout should be a layout"),
        ("splits.train.layout.stride", STRIDE + 8, "splits.train.layout should be one whose stride"),
        ("splits.train.layout.fields.id", [4, 8], "splits.train.layout should be that of the spec"),
        ("splits.train.layout.fields.id", [1 << 40, 8], "should lie in the .* bytes of the payload"),
        ("splits.train.lengths", {"x": [1]}, r"splits.train.lengths should be pairs \[sum, greatest\] by feature"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused_by_field(path: str, value: Any, words: str) -> None:
    with pytest.raises(CorruptManifestError, match=f"^the/manifest.json: .*{words}"):
        Manifest.from_bytes(changed(path, value), path="the/manifest.json")


def test_a_layout_that_does_not_fit_a_varying_spec_is_refused() -> None:
    made = json.loads(manifest().to_bytes())
    made["splits"]["train"]["spec"] = MIXED.to_json()

    with pytest.raises(CorruptManifestError, match="splits.train.layout should be one of the fields .'blob', 'grid'"):
        Manifest.from_bytes(json.dumps(made).encode())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "expected JSON, found 0 bytes that do not parse"),
        (b"\xff\xfe", "expected JSON, found 2 bytes that do not parse"),
        (b"[" * 100_000, "expected JSON, found 100000 bytes that do not parse"),
        (b"[]", r"the manifest should be a JSON object, got \[\]"),
        (b'{"a": 1, "a": 2}', "a should be there once, got 'two fields of this name'"),
        (b'{"a": NaN}', "a number should be finite, got 'NaN'"),
        (b"{}", "format_version should be an int, got None"),
        (b'{"format_version": "1"}', "format_version should be an int, got '1'"),
    ],
)
def test_bytes_that_are_no_manifest_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(CorruptManifestError, match=words):
        Manifest.from_bytes(data)


def test_every_truncation_of_a_manifest_is_refused() -> None:
    data = manifest().to_bytes()
    for size in range(len(data) - 1):
        with pytest.raises(CorruptManifestError):
            Manifest.from_bytes(data[:size])


def test_another_format_version_is_unsupported() -> None:
    expected = (
        "expected format version 1, found 2. Read it with the version of beam-pipes that wrote it, or build to another "
        "directory: a build here would replace what that version reads."
    )
    with pytest.raises(UnsupportedFormatError, match=expected):
        Manifest.from_bytes(b'{"format_version": 2, "new": "fields"}')


def test_malformed_names_are_refused_when_a_manifest_is_made() -> None:
    with pytest.raises(SpecError, match="name is part of file names and should consist of letters.*got 'a/b'"):
        Manifest(name="a/b", snapshot=SNAPSHOT, splits={})
    with pytest.raises(SpecError, match="a split's name is part of file names.*got ''"):
        Manifest(name="a", snapshot=SNAPSHOT, splits={"": SplitManifest.from_entries([], kind="bytes")})
    with pytest.raises(SpecError, match="snapshot should be 16 hexadecimal digits, got 'now'"):
        Manifest(name="a", snapshot="now", splits={})
    with pytest.raises(SpecError, match="a file of a snapshot should have a relative path within it, got '../x'"):
        Manifest(name="a", snapshot=SNAPSHOT, splits={}, assets=[FileEntry(file="../x", bytes=0, crc32c=0)])
    with pytest.raises(
        SpecError, match="a shard should be named 'NAME-SPLIT.tfrecord-00003-of-00064', got 'x.tfrecord'"
    ):
        SplitManifest.from_entries([ShardEntry(file="x.tfrecord", records=0, bytes=0, crc32c=0, index_crc32c=0)])
    with pytest.raises(SpecError, match=r"should all have the same count, got \[4, 5\]"):
        SplitManifest.from_entries([entry(0, 1)], shard_count=5)


def test_a_hundred_thousand_shards_load_in_a_second() -> None:
    count = 100_000
    split = SplitManifest(
        kind="bytes",
        shard_count=count,
        numbers=range(count),
        records=[1000] * count,
        bytes=[123_456] * count,
        crc32c=[4_000_000_000] * count,
        index_crc32c=[4_000_000_000] * count,
    )
    data = Manifest(name="demo", snapshot=SNAPSHOT, splits={"train": split}).to_bytes()

    found = Manifest.from_bytes(data)

    assert found.splits["train"].num_records == 1000 * count


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON_VALUES, sort_keys=st.booleans())
def test_strict_json_differs_from_json_in_what_json_has_no_number_for_alone(value, sort_keys):
    words = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
    expected = json.loads(json.dumps(value), parse_constant=words.__getitem__)

    made = strict_json(value, sort_keys=sort_keys)

    assert json.loads(made, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) == expected
    if json.dumps(expected) == json.dumps(value):
        assert made == json.dumps(value, sort_keys=sort_keys)


def test_strict_json_refuses_what_contains_itself():
    value = []
    value.append(value)

    with pytest.raises(ValueError, match="Circular reference"):
        strict_json(value)
