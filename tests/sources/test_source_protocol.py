"""What every source promises: plans that concatenate to all records, stable ids, JSON and pickle round trips."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python import array_record_module

import beam_pipes.sources
from beam_pipes.errors import SourceError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.messages import Example
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.sources import (
    CSV,
    MDS,
    TSV,
    ArrayRecords,
    ArrowRows,
    Files,
    JSONLines,
    MegatronTokens,
    Memory,
    Parquet,
    Slice,
    Source,
    SourcePlan,
    SourceShard,
    Tar,
    TextLines,
    TFRecords,
)

SPEC = ExampleSpec({"n": FeatureSpec("int64")})


def write_input(root: Path) -> None:
    """Forty small files and a large one of each kind."""
    import pyarrow
    import pyarrow.parquet

    codec = ExampleCodec(SPEC)
    for kind in ("text", "csv", "tsv", "json", "tfrecord", "parquet", "arrow", "tar", "megatron", "array", "mds"):
        (root / kind).mkdir(parents=True)
    for index, count in enumerate([*range(1, 40), 400]):
        name = f"{index:02d}"
        (root / "text" / f"{name}.txt").write_text("".join(f"line {n} of {name}\n" for n in range(count)))
        (root / "csv" / f"{name}.csv").write_text("n,t\n" + "".join(f'{n},"w {n}"\n' for n in range(count)))
        (root / "tsv" / f"{name}.tsv").write_text("n\tt\n" + "".join(f"{n}\tw {n}\n" for n in range(count)))
        (root / "json" / f"{name}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))
        with RecordWriter(root / "tfrecord" / f"{name}.tfrecord") as writer:
            for n in range(count):
                writer.write(codec.encode({"n": n}))
        table = pyarrow.table({"n": list(range(count)), "t": [[n, n] for n in range(count)]})
        pyarrow.parquet.write_table(table, root / "parquet" / f"{name}.parquet", row_group_size=20)
        with pyarrow.ipc.new_stream(root / "arrow" / f"{name}.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=20)
        write_mds(root / "mds" / f"{name}.mds", [(n, np.arange(n + 1, dtype=np.uint16)) for n in range(count)])
        with tarfile.open(root / "tar" / f"{name}.tar", "w") as archive:
            for n in range(count):
                member = tarfile.TarInfo(f"{n}.cls")
                member.size = len(str(n))
                archive.addfile(member, io.BytesIO(str(n).encode()))
        write_megatron(root / "megatron" / name, [np.arange(n + 1, dtype=np.uint16) for n in range(count)])
        writer = array_record_module.ArrayRecordWriter(str(root / "array" / f"{name}.array_record"), "group_size:1")
        for n in range(count):
            writer.write(f"record {n} of {name}".encode())
        writer.close()


def write_megatron(prefix: Path, documents: list[np.ndarray[Any, Any]]) -> None:
    """By the layout of the reference's reader: every document is one sequence."""
    data = np.concatenate(documents) if documents else np.empty(0, np.uint16)
    prefix.with_suffix(".bin").write_bytes(data.tobytes())
    lengths = np.array([len(each) for each in documents], "<i4")
    pointers = (np.cumsum(lengths, dtype="<i8") - lengths) * data.itemsize
    header = b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + bytes([8])
    counts = np.array([len(documents), len(documents) + 1], "<u8")
    parts = [counts, lengths, pointers.astype("<i8"), np.arange(len(documents) + 1, dtype="<i8")]
    prefix.with_suffix(".idx").write_bytes(header + b"".join(each.tobytes() for each in parts))


def write_mds(path: Path, samples: list[tuple[int, np.ndarray[Any, Any]]]) -> None:
    """By the layout of the reference's writer; recorded files of it are read in another test."""
    config = {"column_encodings": ["int", "ndarray:uint16"], "column_names": ["n", "tokens"], "column_sizes": [8, None]}
    header = json.dumps({"format": "mds", "version": 2, **config}, sort_keys=True).encode()
    values = [bytes([1 << 2, len(tokens)]) if len(tokens) < 256 else bytes([1 << 2 | 1]) +
              np.uint16(len(tokens)).tobytes() for _, tokens in samples]  # fmt: skip
    bodies = [
        np.uint32(len(shape) + tokens.nbytes).tobytes() + np.int64(n).tobytes() + shape + tokens.tobytes()
        for shape, (n, tokens) in zip(values, samples, strict=True)
    ]
    ends = np.cumsum([4 + 4 * (len(samples) + 1) + len(header), *map(len, bodies)]).astype("<u4")
    path.write_bytes(np.uint32(len(samples)).tobytes() + ends.tobytes() + header + b"".join(bodies))


def sources(root: Path) -> dict[str, Source]:
    return {
        "files": Files(root / "text"),
        "text": TextLines(root / "text"),
        "csv": CSV(root / "csv", schema={"n": int, "t": str}),
        "csv split": CSV(root / "csv", quoted_newlines=False),
        "tsv": TSV(root / "tsv"),
        "json": JSONLines(root / "json"),
        "json typed": JSONLines(root / "json", schema={"n": "int32"}),
        "tfrecord": TFRecords(root / "tfrecord"),
        "tfrecord of messages": TFRecords(root / "tfrecord", Example),
        "tfrecord of examples": TFRecords(root / "tfrecord", SPEC),
        "parquet": Parquet(root / "parquet"),
        "parquet columns": Parquet(root / "parquet", columns=["t"]),
        "arrow": ArrowRows(root / "arrow"),
        "arrow columns": ArrowRows(root / "arrow", columns=["t"]),
        "mds": MDS(root / "mds"),
        "tar": Tar(root / "tar"),
        "megatron": MegatronTokens(root / "megatron"),
        "arrayrecord": ArrayRecords(root / "array"),
        "memory": Memory([f"value {n}" for n in range(1180)], records_per_shard=100),
    }


NAMES = list(sources(Path("x")))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("input")
    write_input(root)
    return root


def read_all(source: Source, target: int, **options: Any) -> list[tuple[str, Any]]:
    records = []
    for shard in source.plan(target_shard_bytes=target).shards:
        for batch in source.read(shard, **options):
            assert not batch.bad
            records += zip(batch.record_ids(), batch.values, strict=True)
    return records


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(np.array_equal(a[key], b[key]) for key in a)
    return bool(a == b)


@pytest.mark.parametrize("name", NAMES)
def test_records_and_ids_do_not_depend_on_the_target_size(root, name):
    source = sources(root)[name]

    runs = [read_all(source, target, batch_records=n) for target, n in ((10**9, 256), (3000, 7), (500, 1000))]

    expected = 40 if name == "files" else 1180
    ids = [record_id for record_id, _ in runs[0]]
    assert len(ids) == len(set(ids)) == expected
    for run in runs[1:]:
        assert [record_id for record_id, _ in run] == ids
        assert all(same(a, b) for (_, a), (_, b) in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_values_are_of_the_output_type_and_ordinals_count_through_a_shard(root, name):
    source = sources(root)[name]

    for shard in source.plan(target_shard_bytes=1000).shards:
        ordinals = [ordinal for batch in source.read(shard, batch_records=9) for ordinal in batch.ordinals]
        assert ordinals == list(range(len(ordinals)))
    for batch in source.read(shard):
        assert all(isinstance(value, source.output_type) for value in batch.values)


@pytest.mark.parametrize("name", NAMES)
def test_raw_bytes_parse_to_the_value(root, name):
    source = sources(root)[name]
    shard = source.plan(target_shard_bytes=1000).shards[-1]

    for batch in source.read(shard):
        for i, value in enumerate(batch.values):
            parsed = source.parse(batch.raw(i), file=batch.file(i), position=batch.position(i))
            assert same(parsed, value)


@pytest.mark.parametrize("name", NAMES)
def test_plan_shards_and_batches_survive_json_and_pickle(root, name):
    source = pickle.loads(pickle.dumps(sources(root)[name]))
    plan = source.plan(target_shard_bytes=1000)

    assert SourcePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    for batch in source.read(plan.shards[1], batch_records=5):
        copy = pickle.loads(pickle.dumps(batch))
        assert copy.record_ids() == batch.record_ids()
        assert all(same(a, b) for a, b in zip(copy.values, batch.values, strict=True))
        assert [copy.raw(i) for i in range(len(copy))] == [batch.raw(i) for i in range(len(batch))]


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_is_json_without_paths(root, name):
    source = sources(root)[name]

    config = json.dumps(source.fingerprint_config())

    assert str(root) not in config
    assert hash(source) == hash(source)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("memory", "parquet columns")])
def test_a_file_that_changed_after_planning_is_named_when_its_slice_ends(tmp_path, name):
    write_input(tmp_path)
    source = sources(tmp_path)[name]
    shard = source.plan(target_shard_bytes=10**9).shards[0]
    file = shard.slices[0].file
    path = next(path for path in tmp_path.rglob(file))
    data = bytearray(path.read_bytes())
    # The last bytes of some are padding, or the mark of an end.
    at = 20 if data[:4] == b"PAR1" else {"arrayrecord": 65_600, "arrow": -9, "arrow columns": -9}.get(name, -1)
    data[at] ^= 1
    path.write_bytes(data)

    with pytest.raises(SourceError, match=file):
        for _ in source.read(shard):
            pass


@pytest.mark.parametrize("name", [name for name in NAMES if name != "memory"])
def test_a_file_that_vanished_after_planning_is_named_with_its_offset(tmp_path, name):
    write_input(tmp_path)
    source = sources(tmp_path)[name]
    shard = source.plan(target_shard_bytes=10**9).shards[0]
    file = shard.slices[-1].file
    next(tmp_path.rglob(file)).unlink()

    with pytest.raises(SourceError, match=rf"input {file} vanished \(at byte 0\)") as raised:
        for _ in source.read(shard):
            pass
    assert (raised.value.file, raised.value.offset) == (file, 0)


def test_a_shards_fingerprint_is_of_names_ranges_and_digests():
    piece = Slice(file="a", start=0, end=3, digest=hashlib.sha256(b"abc").hexdigest())
    shard = SourceShard(index=0, slices=(piece,), num_bytes=3)
    same_elsewhere = SourceShard(index=7, slices=(piece,), num_bytes=3)
    changed = SourceShard(
        index=0, slices=(Slice(file="a", start=0, end=3, digest=hashlib.sha256(b"abd").hexdigest()),), num_bytes=3
    )

    assert shard.fingerprint() == same_elsewhere.fingerprint()
    assert len({shard.fingerprint(), changed.fingerprint()}) == 2
    # Frozen: a cache is found again by it.
    assert shard.fingerprint() == "be66f7ace99570a17a82c0c5d33e4fd340132b264e5ac766aa796439a2b0804c"


def test_every_kind_of_source_that_is_offered_is_held_to_the_protocol(tmp_path):
    """The names of the package are loaded on first use, and all can be."""
    offered = {name: getattr(beam_pipes.sources, name) for name in beam_pipes.sources.__all__}
    kinds = {name for name, each in offered.items() if isinstance(each, type) and issubclass(each, Source)}
    bases, with_tests_of_their_own = {"FileSource", "Source"}, {"CachedRecords", "TfdsRecords"}
    around_others = {"JoinedSources", "RepairedSource", "SplitSources"}

    assert kinds - bases - with_tests_of_their_own - around_others == {
        type(each).__name__ for each in sources(tmp_path).values()
    }


@pytest.mark.parametrize("target", [0, -1, 1.5, "1"])
def test_a_target_that_is_not_a_size_is_refused(target):
    with pytest.raises(SourceError, match=f"target_shard_bytes should be an integer of at least 1, got {target!r}"):
        Memory(["a"]).plan(target_shard_bytes=target)


@pytest.mark.parametrize("option", ["batch_records", "batch_bytes"])
def test_limits_of_a_batch_are_positive(root, option):
    source = sources(root)["text"]
    shard = source.plan(target_shard_bytes=1000).shards[0]

    with pytest.raises(SourceError, match=f"{option} should be an integer of at least 1, got 0"):
        next(source.read(shard, **{option: 0}))
