"""Random access: single records, batches, lengths and views equal what was written, on all kinds of region."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_examples import FIXED, MIXED, assert_same_example, build, fixed_example, mixed_example, shard_path

from beam_pipes.cache import Cache, ExampleSpec, FeatureSpec, Split, regions, shard_files, write_cache
from beam_pipes.errors import CacheError, CacheNotFoundError, CorruptRecordError, ExampleIndexError, SpecError

SHARD_SIZES = [3, 0, 11, 1, 0, 8, 20]


def examples_of(spec: ExampleSpec) -> list[dict[str, Any]]:
    make = fixed_example if spec is FIXED else mixed_example
    return [make(i) for i in range(sum(SHARD_SIZES))]


def sharded(examples: list[Any]) -> list[list[Any]]:
    ends = np.cumsum(SHARD_SIZES)
    return [examples[end - size : end] for size, end in zip(SHARD_SIZES, ends, strict=True)]


@pytest.fixture(params=["mapped region", "separate files", "read files"])
def region(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "separate files":
        monkeypatch.setattr(regions, "MAX_MAPS", 0)
        monkeypatch.setattr(regions, "MAX_SEPARATE_FILES", 2)
    if request.param == "read files":
        monkeypatch.setattr(regions, "_READ_FILES", 2)
        opened = regions.open_region
        monkeypatch.setattr(
            shard_files, "open_region", lambda *args, **options: opened(*args, **{**options, "mmap": False})
        )
    return str(request.param)


@pytest.fixture(params=[FIXED, MIXED], ids=["fixed", "mixed"])
def written(request: pytest.FixtureRequest, tmp_path: Path, region: str) -> tuple[Split, list[dict[str, Any]]]:
    spec = request.param
    examples = examples_of(spec)
    return Cache.open(build(tmp_path, spec, sharded(examples)))["train"], examples


@pytest.fixture
def mixed(tmp_path: Path, region: str) -> tuple[Split, list[dict[str, Any]]]:
    examples = examples_of(MIXED)
    return Cache.open(build(tmp_path, MIXED, sharded(examples)))["train"], examples


@pytest.fixture
def fixed(tmp_path: Path, region: str) -> tuple[Split, list[dict[str, Any]]]:
    examples = examples_of(FIXED)
    return Cache.open(build(tmp_path, FIXED, sharded(examples)))["train"], examples


def test_every_record_is_read_back_by_index_and_by_iteration(written: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = written

    assert len(split) == len(examples) == 43
    for position, (example, streamed) in enumerate(zip(examples, split, strict=True)):
        assert_same_example(example, split[position])
        assert_same_example(example, streamed)
    assert_same_example(examples[-1], split[-1])
    assert_same_example(examples[7], split[np.int32(7)])


def test_a_gathered_batch_of_fixed_features_is_the_stack_of_its_records(
    fixed: tuple[Split, list[dict[str, Any]]],
) -> None:
    split, examples = fixed
    indices = np.random.default_rng(0).integers(-43, 43, 100)

    batch = split.gather(indices)

    assert split.fixed
    for name in FIXED:
        expected = np.stack([examples[i][name] for i in indices])
        np.testing.assert_array_equal(batch[name], expected)
        assert batch[name].dtype == expected.dtype


def test_a_padded_batch_holds_each_record_and_the_pad_value_behind(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = mixed
    indices = [5, 42, 0, 5, 17, 31]

    batch = split.gather(indices, pad_value={"grid": -1})

    assert batch["grid"].shape == (6, 3, 2) and batch["image"].shape == (6, 2, 2)
    assert batch["text"].tolist() == [examples[i]["text"] for i in indices]
    assert batch["blob"].tolist() == [examples[i]["blob"] for i in indices]
    assert batch["label"].tolist() == [examples[i]["label"] for i in indices]
    for row, i in enumerate(indices):
        for name in ("grid", "image", "list", "größen", "words"):
            value = examples[i][name]
            inside = tuple(slice(size) for size in value.shape)
            np.testing.assert_array_equal(batch[name][row][inside], value, err_msg=name)
            outside = np.ones(batch[name][row].shape, bool)
            outside[inside] = False
            padding = batch[name][row][outside].tolist()
            assert set(padding) <= {{"grid": -1, "words": ""}.get(name, 0)}, name


def test_values_and_lengths_hold_each_record_one_after_the_other(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = mixed
    indices = np.random.default_rng(1).integers(0, 43, 60)

    batch = split.gather(indices, ragged="values")

    for name in ("grid", "list", "größen", "words"):
        expected = np.concatenate([examples[i][name] for i in indices])
        np.testing.assert_array_equal(batch[name], expected)
        assert batch[name].dtype == expected.dtype
        assert batch[f"{name}/lengths"].tolist() == [len(examples[i][name]) for i in indices]
    np.testing.assert_array_equal(batch["image"], np.concatenate([examples[i]["image"].reshape(-1) for i in indices]))
    assert batch["image/shape"].tolist() == [list(examples[i]["image"].shape) for i in indices]
    values, lengths = split.gather_values("text", indices)
    assert values.tobytes().decode() == "".join(examples[i]["text"] for i in indices)
    assert lengths.tolist() == [len(examples[i]["text"].encode()) for i in indices]


def test_long_and_short_runs_are_gathered_alike(tmp_path: Path, region: str) -> None:
    spec = ExampleSpec({"x": FeatureSpec("int32", shape=(None,), minimum=0, maximum=70_000)})
    rng = np.random.default_rng(0)
    examples = [{"x": rng.integers(0, 70_000, n)} for n in [0, 1, 2000, 3, 1500, 0, 700, 5]]
    split = Cache.open(build(tmp_path, spec, [examples[:3], examples[3:]]))["train"]

    for indices in ([0, 1, 3, 5, 7], [2, 4, 6], [2, 0, 4, 1]):
        values, lengths = split.gather_values("x", indices)
        np.testing.assert_array_equal(values, np.concatenate([examples[i]["x"] for i in indices]))
        assert lengths.tolist() == [len(examples[i]["x"]) for i in indices]
        padded = split.gather(indices, pad_to=2001)["x"]
        for row, i in enumerate(indices):
            np.testing.assert_array_equal(padded[row, : lengths[row]], examples[i]["x"])
            assert not padded[row, lengths[row] :].any()


def test_a_slice_is_a_list_of_examples(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = mixed
    for part in (slice(2, 5), slice(-3, None), slice(None, None, 10), slice(5, 2)):
        assert [str(each) for each in split[part]] == [str(split[index]) for index in range(len(split))[part]]
    assert len(split[:]) == 43


def test_lengths_come_from_the_index_for_every_record(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = mixed

    for name in ("grid", "image", "list", "größen", "words"):
        assert split.lengths(name).tolist() == [len(example[name]) for example in examples]
    assert split.lengths("text").tolist() == [len(example["text"].encode()) for example in examples]
    assert split.lengths("text").dtype == np.int64
    with pytest.raises(SpecError, match="'label': expected a feature with a leading dimension, got a scalar"):
        split.lengths("label")
    with pytest.raises(CacheNotFoundError, match=r"expected one of the features .*'label'.*, got 'nothing'"):
        split.lengths("nothing")


def test_records_of_equal_length_are_fixed_although_the_spec_lets_them_vary(tmp_path: Path, region: str) -> None:
    spec = ExampleSpec({"ids": FeatureSpec("int32", shape=(None,)), "text": FeatureSpec("bytes")})
    examples = [{"ids": np.arange(i, i + 5, dtype=np.int32), "text": b"%03d" % i} for i in range(12)]
    split = Cache.open(build(tmp_path, spec, [examples[:4], [], examples[4:]]))["train"]

    assert split.fixed and not split.spec.fixed
    batch = split.gather([11, 0, 4])
    assert batch["ids"].tolist() == [list(range(i, i + 5)) for i in (11, 0, 4)]
    assert batch["text"].tolist() == [b"011", b"000", b"004"]
    assert split.gather([3], pad_to=7)["ids"].tolist() == [[3, 4, 5, 6, 7, 0, 0]]
    assert split.gather_values("ids", [1, 2])[0].tolist() == [1, 2, 3, 4, 5, 2, 3, 4, 5, 6]
    assert split.lengths("ids").tolist() == [5] * 12
    assert split.views(2)["text"].tobytes()[:6] == b"004005"


def test_views_show_the_file_itself_and_cannot_be_written(fixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = fixed

    views = split.views(2)

    assert views["tokens"].dtype == np.uint16  # as stored; reading gives int32
    assert views["tokens"].tolist() == [examples[3 + i]["tokens"].tolist() for i in range(11)]
    assert views["weights"].shape == (11, 2, 2) and views["mask"].dtype == np.bool_
    assert not views["tokens"].flags.writeable and not views["tokens"].flags.owndata
    assert split.views(1)["tokens"].shape == (0, 4)
    with pytest.raises(CacheError, match="has 7 shards, and there is no shard 7"):
        split.views(7)


def test_views_are_refused_where_records_differ_in_size(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    with pytest.raises(CacheError, match="views need records of one layout.*Use gather"):
        mixed[0].views(0)


def test_what_is_returned_can_be_written_without_reaching_the_file(
    written: tuple[Split, list[dict[str, Any]]],
) -> None:
    split, examples = written
    for batch in (split[3], split.gather([3])):
        for value in batch.values():
            if isinstance(value, np.ndarray) and value.dtype != object:
                value[...] = 1

    assert_same_example(examples[3], split[3])


def test_runs_of_records_are_stored_as_they_are_gathered(fixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = fixed
    scalars = [name for name, spec in split.spec.items() if spec.shape == ()]
    unmapped = Cache.open(split.path, mmap=False)[split.name]

    for first, last in itertools.combinations_with_replacement(range(0, len(split) + 1, 3), 2):
        for name in scalars:
            expected = split.gather(np.arange(first, last), features=[name])[name]
            for each in (split, unmapped):
                np.testing.assert_array_equal(each.stored(name, first, last), expected)
    assert scalars and split.num_shards > 1


def test_shards_ordinals_and_bytes_of_a_record(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = mixed

    assert split.num_shards == 7 and split.shard_sizes.tolist() == SHARD_SIZES
    assert [split.shard_of(i) for i in (0, 2, 3, 13, 14, 15, 22, 23, -1)] == [0, 0, 2, 2, 3, 5, 5, 6, 6]
    assert split.source_ordinals.tolist() == [2 * i for size in SHARD_SIZES for i in range(size)]
    assert split.source_ordinals.dtype == np.uint64
    assert_same_example(examples[9], split._codec.decode(split.record_bytes(9)))


@pytest.mark.parametrize("index", [43, -44, 10**12])
def test_an_index_outside_the_split_is_an_index_error(mixed: tuple[Split, list[dict[str, Any]]], index: int) -> None:
    split, _ = mixed

    with pytest.raises(ExampleIndexError, match=f"has 43 records, but there is no record {index}.*from -43 to 42"):
        split[index]
    with pytest.raises(IndexError, match=f"there is no record {index}"):
        split.gather([0, index])


@pytest.mark.parametrize("indices", [[0.5], [[1]], 3, ["a"], np.array([2**63], np.uint64)], ids=repr)
def test_indices_that_are_no_list_of_ints_are_refused(mixed: tuple[Split, list[dict[str, Any]]], indices: Any) -> None:
    with pytest.raises(ExampleIndexError, match="expected indices, a list or one-dimensional array of ints, got"):
        mixed[0].gather(indices)


def test_an_empty_batch_has_the_dtypes_and_shapes_of_a_full_one(written: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = written
    full, empty = split.gather([0, 1]), split.gather([])

    assert {name: value.dtype for name, value in empty.items()} == {name: value.dtype for name, value in full.items()}
    assert {len(value) for value in empty.values()} == {0}
    assert {name: value.ndim for name, value in empty.items()} == {name: value.ndim for name, value in full.items()}


@pytest.mark.parametrize("spec", [FIXED, MIXED], ids=["fixed", "mixed"])
@pytest.mark.parametrize("shards", [[], [[]], [[], []]], ids=["no shard", "an empty shard", "two empty shards"])
def test_a_split_without_records_is_read(tmp_path: Path, spec: ExampleSpec, shards: list[Any], region: str) -> None:
    split = Cache.open(build(tmp_path, spec, shards), verify=True)["train"]

    assert len(split) == 0 and list(split) == [] and split.num_shards == len(shards)
    assert split.gather([])["id" if spec is FIXED else "label"].shape == (0,)
    assert split.lengths("tokens" if spec is FIXED else "grid").tolist() == []
    assert split.source_ordinals.tolist() == []
    with pytest.raises(ExampleIndexError, match="has 0 records"):
        split.gather([0])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3), (None, 0), (2, 0, None)], ids=str)
def test_features_without_elements_are_read(tmp_path: Path, shape: tuple[int | None, ...], region: str) -> None:
    value = np.zeros([2 if size is None else size for size in shape], np.int32)
    spec = ExampleSpec({"none": FeatureSpec("int32", shape=shape), "id": FeatureSpec("int64")})

    split = Cache.open(build(tmp_path, spec, [[{"none": value, "id": number} for number in range(3)]]))["train"]

    assert split.gather([2, 0])["none"].shape == (2, *value.shape)
    assert split.shapes("none", [2, 0]).tolist() == [list(value.shape)] * 2
    assert split[1]["none"].shape == value.shape


@pytest.mark.parametrize("encoding", ["raw", "list"])
@pytest.mark.parametrize("shape", [(None,), (None, 2), (None, None), (2, None)], ids=str)
def test_values_of_no_records_have_the_rank_of_those_of_some(tmp_path: Path, encoding: Any, shape: Any) -> None:
    spec = ExampleSpec({"x": FeatureSpec("int32", shape=shape, encoding=encoding)})
    value = np.ones([2 if size is None else size for size in shape], np.int32)
    split = Cache.open(
        build(
            tmp_path, spec, [[{"x": value}, {"x": value[:, :1] if shape[-1:] == (None,) and value.ndim > 1 else value}]]
        )
    )["train"]

    none, some = split.gather([], ragged="values"), split.gather([0, 1], ragged="values")

    assert {name: (array.dtype, array.shape[1:]) for name, array in none.items()} == {
        name: (array.dtype, array.shape[1:]) for name, array in some.items()
    }


def test_pad_to_takes_a_shape_and_leaves_fixed_dimensions_alone(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = mixed
    inner = split.shapes("image", [0, 2]).max(axis=0)[1:].tolist()
    assert split.gather([0, 2], features=["image"], pad_to={"image": (9, *inner)})["image"].shape == (2, 9, *inner)
    with pytest.raises(SpecError, match=r"'label' has the shape .* and cannot be padded to 77: only dimensions that"):
        split.gather([0], features=["label"], pad_to={"label": 77})
    with pytest.raises(SpecError, match=r"'image' has the shape .* and cannot be padded to \(9,\)"):
        split.gather([0], features=["image"], pad_to={"image": (9,)})


def test_pad_to_and_pad_value_are_checked(mixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = mixed

    with pytest.raises(SpecError, match="'grid': expected at most pad_to=1 elements, got a record with 3"):
        split.gather([3, 2], features=["grid"], pad_to={"grid": 1})
    with pytest.raises(SpecError, match="'image': expected at most pad_to=1 elements, got a record with 2"):
        split.gather([2], features=["image"], pad_to=1)
    with pytest.raises(SpecError, match="'image': expected a pad_value that is exact in uint8, got -1"):
        split.gather([2], features=["image"], pad_value=-1)
    with pytest.raises(SpecError, match='ragged should be "pad" or "values", got \'drop\''):
        split.gather([2], ragged="drop")  # type: ignore[arg-type]
    with pytest.raises(CacheNotFoundError, match="expected one of the features .* got 'nothing'"):
        split.gather([2], features=["nothing"])


def test_a_pad_value_is_rounded_to_a_float_and_stays_in_its_range(tmp_path: Path) -> None:
    examples = [{"mel": np.zeros(length, np.float32)} for length in (1, 2)]
    spec = ExampleSpec({"mel": FeatureSpec("float32", shape=(None,))})
    split = Cache.open(build(tmp_path, spec, [examples]))["train"]

    padded = split.gather([0, 1], pad_value=-11.512925464970229)

    assert padded["mel"][0].tolist() == [0.0, float(np.float32(-11.512925464970229))]
    with pytest.raises(SpecError, match=r"'mel': expected a pad_value that is exact in float32, got 1e\+39"):
        split.gather([0, 1], pad_value=1e39)


def test_a_pickled_split_reads_the_same_snapshot(written: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = written
    split.gather([0])

    pickled = pickle.dumps(split)

    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert again.manifest_id == split.manifest_id
    assert_same_example(examples[20], again[20])


def test_threads_that_read_at_once_get_what_one_would(written: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = written
    rng = np.random.default_rng(0)
    wanted = [rng.integers(0, 43, 16) for _ in range(200)]
    name = "tokens" if split.fixed else "grid"

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda indices: split.gather_values(name, indices)[0], wanted))

    for indices, values in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(values, split.gather_values(name, indices)[0])


@pytest.mark.parametrize("change", [-1, +8], ids=["truncated", "longer"])
def test_a_shard_of_another_size_is_an_error_when_it_is_first_read(tmp_path: Path, region: str, change: int) -> None:
    build(tmp_path, FIXED, sharded(examples_of(FIXED)))
    path = shard_path(tmp_path, 5, 7)
    data = path.read_bytes()
    path.write_bytes(data[:change] if change < 0 else data + b"\0" * change)
    split = Cache.open(tmp_path)["train"]

    split.gather([0, 5])
    with pytest.raises(
        CorruptRecordError, match=rf"{path.name}: expected {len(data)} bytes.*found {len(data) + change}"
    ):
        split.gather([0, 16])


def test_a_missing_shard_is_named(tmp_path: Path, region: str) -> None:
    build(tmp_path, FIXED, sharded(examples_of(FIXED)))
    path = shard_path(tmp_path, 5, 7)
    path.unlink()

    with pytest.raises(CacheNotFoundError, match=f"{path.name}: expected a file of .* bytes, as the manifest says"):
        Cache.open(tmp_path)["train"].gather([16])


def test_a_single_record_is_checked_against_its_checksum(tmp_path: Path, region: str) -> None:
    build(tmp_path, MIXED, sharded(examples_of(MIXED)))
    path = shard_path(tmp_path, 0, 7)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    split = Cache.open(tmp_path)["train"]

    for read in (lambda: split[0], lambda: split.record_bytes(0), lambda: next(iter(split))):
        with pytest.raises(CorruptRecordError, match=f"{path.name}: the payload of the record at offset 0 .* damaged"):
            read()


def test_regions_are_mapped_within_a_budget_of_maps_and_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(200)))

    gc.collect()
    first = regions.open_region(lambda _: str(path), [200])
    monkeypatch.setattr(regions, "MAX_MAPS", sum(regions._maps.values()) + 1)
    second = regions.open_region(lambda _: str(path), [200, 200])
    assert isinstance(first, regions.MappedRegion) and isinstance(second, regions.SeparateFiles)

    data = first.file(0)
    before = len(regions._maps)
    del first
    gc.collect()
    assert len(regions._maps) == before and data.tolist() == list(range(200))  # an array keeps the memory
    del data
    gc.collect()
    assert len(regions._maps) == before - 1


def test_a_closed_split_lets_go_of_its_files_and_opens_them_again(fixed: tuple[Split, list[dict[str, Any]]]) -> None:
    split, examples = fixed
    gc.collect()
    before = len(regions._maps)
    view = split.views(2)["id"]
    split.lengths("tokens")

    split.close()
    assert view[0] == examples[3]["id"]  # a view keeps what it shows
    del view
    gc.collect()

    assert len(regions._maps) == before
    assert split.gather([3])["id"].tolist() == [examples[3]["id"]]


def test_a_forked_process_reads_what_its_parent_has_opened(written: tuple[Split, list[dict[str, Any]]]) -> None:
    split, _ = written
    name = "tokens" if split.fixed else "grid"
    split.gather([0])
    expected = split.gather_values(name, list(range(43)))[0].tolist()

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(split.gather_values(name, list(range(43)))[0].tolist()))
    child.start()
    found = receiver.recv() if receiver.poll(30) else None
    child.join(30)

    assert found == expected and child.exitcode == 0


@pytest.mark.parametrize(
    ("max_bytes", "mmap"), [(None, True), (1 << 20, True), (None, False)], ids=["mapped", "separate", "read"]
)
def test_nothing_beyond_a_file_is_read_whatever_is_asked_for(tmp_path: Path, max_bytes: int | None, mmap: bool) -> None:
    for number, text in enumerate((b"first", b"second")):
        (tmp_path / str(number)).write_bytes(text)
    region = regions.open_region(lambda number: str(tmp_path / str(number)), [5, 6], max_bytes=max_bytes, mmap=mmap)

    found = [region.read(0, *asked) for asked in ((0, 5), (3, 5), (3, 1 << 40), (5, 1), (1 << 40, 8))]

    assert found == [b"first", b"st", b"st", b"", b""]
    assert region.read(1, 4, 100) == b"nd"


def test_an_arena_reads_as_zeros_where_no_file_is_mapped_and_after_files_were_let_go(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\x07" * 5_000)
    region = regions.MappedRegion(lambda _: str(path), [5_000, 5_000])
    arena = np.asarray(region.arena)
    begins = region.bases[:-1].tolist()

    region.prepare(np.array([1]))
    seen = [arena[begin : begin + 5_000].tolist() for begin in begins]
    words = repr(arena)
    del region
    gc.collect()

    assert seen == [[0] * 5_000, [7] * 5_000]
    assert words == "array([0, 0, 0, ..., 0, 0, 0], shape=(1099511627776,), dtype=uint8)" or "7" in words
    assert not arena[begins[1] : begins[1] + 5_000].any()


def test_regions_have_arenas_of_their_own_where_addresses_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(200)))
    monkeypatch.setattr(regions, "ARENA_BYTES", 1 << 60)  # more than a processor has
    monkeypatch.setattr(regions, "_arenas", [])

    first, second = (regions.MappedRegion(lambda _: str(path), [200]) for _ in range(2))

    assert first.arena is not second.arena and first.arena.size == 4096
    assert first.file(0).tolist() == second.file(0).tolist() == list(range(200))
    parts = [
        regions.ArenaValues(region.bases[:1], 200, np.dtype(np.uint8), (200,), (region,)) for region in (first, second)
    ]
    assert regions.merged(parts, np.array([0, 1])) is None


def test_rows_that_are_too_long_for_a_view_of_all_of_them_are_copied_too(tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)
    path.write_bytes(data.tobytes())
    region = regions.MappedRegion(lambda _: str(path), [300_000])
    region.prepare(np.array([0]))

    rows = region.rows(region.bases[0] + np.array([100_000, 7]), 100_000)

    assert rows.view(np.uint8).reshape(2, -1).tolist() == [data[100_000:200_000].tolist(), data[7:100_007].tolist()]


@pytest.mark.parametrize("max_bytes", [None, 1 << 20], ids=["mapped", "separate"])
def test_a_file_that_is_truncated_while_it_is_mapped_is_an_error(tmp_path: Path, max_bytes: int | None) -> None:
    path, others = tmp_path / "0", [tmp_path / str(number) for number in range(1, 40)]
    for each in (path, *others):
        each.write_bytes(bytes(10_000))
    region = regions.open_region(lambda number: str(tmp_path / str(number)), [10_000] * 40, max_bytes=max_bytes)
    for number in range(40):
        region.file(number)
    others[1].unlink()  # a removed file stays readable
    os.truncate(path, 100)

    with pytest.raises(CorruptRecordError, match=rf"{path}: expected 10000 bytes, as the manifest says, found 100"):
        while True:
            region.read(7, 0, 10)


def test_a_cache_without_maps_raises_where_a_file_ends(tmp_path: Path) -> None:
    write_cache(tmp_path / "c", {"train": [{"id": n} for n in range(50)]}, num_shards=3)
    split = pickle.loads(pickle.dumps(Cache.open(tmp_path / "c", mmap=False)["train"]))
    assert split.gather([40, 2])["id"].tolist() == Cache.open(tmp_path / "c")["train"].gather([40, 2])["id"].tolist()

    path = next((tmp_path / "c").rglob("*.tfrecord-00001-of-00003"))
    os.truncate(path, 64)

    with pytest.raises(CorruptRecordError, match="as the manifest says, found 64"):
        split.gather(np.arange(50))
