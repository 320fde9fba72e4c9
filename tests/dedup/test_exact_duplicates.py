"""`ExactDuplicates`: against a dictionary, whatever the shards, and with keys sorted on disk."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from found_duplicates import found_duplicates, removed_by_kept, result_file
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import CorruptCacheError, DeclarationError
from beam_pipes.transforms.dedup import Duplicate, Duplicates, ExactDuplicates, lower, squeeze_whitespace
from beam_pipes.transforms.dedup.exact import KeyGroups, group_starts, merge_exact
from beam_pipes.transforms.dedup.row_file import BLOCK_ROWS, Column, RowFile, RowFiles, RowWriter

WORDS = st.text("abé", max_size=2)
SHARDS = st.lists(st.lists(WORDS, max_size=20), max_size=5)


def expected(values: Sequence[str]) -> dict[int, int]:
    first: dict[str, int] = {}
    return {number: first[value] for number, value in enumerate(values) if first.setdefault(value, number) != number}


@settings(deadline=None)
@given(SHARDS)
def test_the_first_of_equal_contents_stays(shards: list[list[str]]) -> None:
    assert removed_by_kept(ExactDuplicates("exact"), shards) == expected([value for shard in shards for value in shard])


@settings(deadline=None)
@given(SHARDS, st.integers(1, 7))
def test_results_do_not_depend_on_shards_and_batches(shards: list[list[str]], batch: int) -> None:
    one = [value for shard in shards for value in shard]

    assert found_duplicates(ExactDuplicates("exact"), [one]) == found_duplicates(
        ExactDuplicates("exact"), shards, batch=batch
    )


FILES = st.dictionaries(st.text("abcd", min_size=1, max_size=2), st.lists(WORDS, max_size=8), max_size=5)


def cluster_keys(files: Mapping[str, Sequence[str]], directory: Path) -> dict[str, tuple[str, str]]:
    """Id of a record → (its content, the name of its cluster), in the order of files."""
    analyzer, paths = ExactDuplicates("exact"), []
    for name in sorted(files):
        accumulator = analyzer.accumulator()
        accumulator.add(files[name], [f"{name}@{number}" for number in range(len(files[name]))])
        paths.append(str(directory / f"accumulator-{len(paths)}"))
        accumulator.save(paths[-1])
    analyzer.merge(paths, str(directory / "result"))
    found = Duplicates(str(directory / "result"))
    contents = {f"{name}@{number}": value for name in files for number, value in enumerate(files[name])}
    return {record_id: (content, found.cluster_key(record_id)) for record_id, content in contents.items()}


@settings(deadline=None)
@given(FILES, FILES)
def test_a_cluster_has_one_name_and_keeps_it_unless_a_new_member_takes_it(
    files: dict[str, list[str]], more: dict[str, list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        before = cluster_keys(files, Path(directory))
        after = cluster_keys({**{f"new-{name}": values for name, values in more.items()}, **files}, Path(directory))

    for found in (before, after):
        names = dict(found.values())
        assert all(names[content] == key and found[key][0] == content for content, key in found.values())
    added = {content for record_id, (content, _) in after.items() if record_id not in before}
    for record_id, (content, key) in before.items():
        now = after[record_id][1]
        assert now == key or (content in added and now not in before)


@pytest.mark.parametrize(("copies", "moved"), [(1, 0.5), (3, 0.25), (9, 0.1)])
def test_a_new_member_renames_a_cluster_as_rarely_as_its_share_of_the_members(
    copies: int, moved: float, tmp_path: Path
) -> None:
    values = [f"text {number}" for number in range(2000)]
    files = {f"b{copy}": values for copy in range(copies)}

    before = cluster_keys(files, tmp_path)
    after = cluster_keys({**files, "a": values}, tmp_path)  # it sorts before the others

    changed = sum(before[f"b0@{number}"] != after[f"b0@{number}"] for number in range(len(values)))
    assert changed / len(values) == pytest.approx(moved, abs=0.03)


def test_what_a_normalizer_folds_is_the_same(tmp_path: Path) -> None:
    values = ["To be", "to  be", "to be ", "or not", "to be"]

    assert removed_by_kept(ExactDuplicates("a"), [values]) == {}
    assert removed_by_kept(ExactDuplicates("a", normalize=lower), [values]) == {4: 0}
    assert removed_by_kept(ExactDuplicates("a", normalize=(lower, squeeze_whitespace)), [values]) == {1: 0, 2: 0, 4: 0}


def test_keys_sorted_on_disk_give_the_same_bytes(tmp_path: Path) -> None:
    rng = random.Random(3)
    shards = [[rng.randrange(30_000) for _ in range(9_000)] for _ in range(3)]
    expected_bytes = result_file(ExactDuplicates("exact"), shards, tmp_path).read_bytes()

    merge_exact([str(tmp_path / f"accumulator-{n}") for n in range(3)], str(tmp_path / "spilled"), rows_in_memory=500)

    assert len(Duplicates(str(tmp_path / "spilled"))) > 5_000
    assert (tmp_path / "spilled").read_bytes() == expected_bytes


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 3), st.booleans())
def test_groups_are_sorted_whether_in_memory_or_on_disk(values: list[int], words: int, on_disk: bool) -> None:
    words = min(words, 2)
    rng = np.random.Generator(np.random.PCG64(5))
    digests = rng.integers(0, 2**64, (10, words), np.uint64)
    keys = digests[values].reshape(-1, words)

    rows_in_memory = 8 if on_disk else 1000
    with (
        tempfile.TemporaryDirectory() as directory,
        KeyGroups(num_rows=len(values), words=words, directory=directory, rows_in_memory=rows_in_memory) as groups,
    ):
        for start in range(0, len(values), 7):
            part = slice(start, start + 7)
            groups.add(keys[part], np.arange(len(values))[part])
        found = [
            (tuple(key), ordinal)
            for part_keys, ordinals in groups.partitions()
            for key, ordinal in zip(part_keys.tolist(), ordinals.tolist(), strict=True)
        ]

    assert found == sorted((tuple(key), ordinal) for ordinal, key in enumerate(keys.tolist()))


def test_where_runs_of_equal_keys_begin() -> None:
    assert group_starts(np.array([[5, 1], [5, 2], [5, 2], [7, 2]], np.uint64)).tolist() == [0, 1, 3, 4]
    assert group_starts(np.empty((0, 2), np.uint64)).tolist() == [0]


@pytest.mark.parametrize("count", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 5])
def test_rows_come_back_by_block_by_value_and_one_by_one(tmp_path: Path, count: int) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    wide = rng.integers(0, 2**32, (count, 5), np.uint32)
    transposed = rng.integers(0, 2**64, (count, 3), np.uint64)
    writer = RowWriter(Column("t", "<u8", 3, by_value=True), Column("w", "<u4", 5), owner="test")
    ids = [f"{'ab'[number % 10 // 5]}.txt@{number}" for number in range(count)]
    for start in range(0, count, 777):
        part = slice(start, start + 777)
        writer.add(ids[part], {"t": transposed[part], "w": wide[part]})

    writer.save(str(tmp_path / "rows"))

    file = RowFile(str(tmp_path / "rows"))
    assert file.num_rows == count
    assert np.array_equal(np.concatenate([np.empty((0, 5)), *file.blocks("w")]), wide)
    assert np.array_equal(np.concatenate([np.empty((0, 3)), *file.blocks("t")]), transposed)
    assert np.array_equal(np.concatenate([np.empty(0), *file.blocks("t", value=1)]), transposed[:, 1])
    places = RowFiles([str(tmp_path / "rows")])
    wanted = rng.permutation(count)[:100]
    files, positions = places.of(wanted)
    names = {number: name for name, number in places.names.items()}
    assert [f"{names[f]}@{p}" for f, p in zip(files.tolist(), positions.tolist(), strict=True)] == [
        ids[number] for number in wanted.tolist()
    ]
    data = (tmp_path / "rows").read_bytes()
    offsets, size = file.offsets("w", wanted)
    for offset, number in zip(offsets.tolist(), wanted.tolist(), strict=True):
        assert data[offset : offset + size] == wide[number].tobytes()


def test_a_result_is_looked_up_by_record(tmp_path: Path) -> None:
    exact = ExactDuplicates("exact")
    accumulator = exact.accumulator()
    ids = ["b.txt@0", "b.txt@9", "a@x.txt@0", "a@x.txt@4", "c.txt@0"]
    accumulator.add(["to be", "or not", "to be", "to see", "or not"], ids)
    accumulator.save(str(tmp_path / "accumulator"))
    exact.merge([str(tmp_path / "accumulator")], str(tmp_path / "result"))

    duplicates = exact.read(str(tmp_path / "result"))

    assert list(duplicates) == [
        Duplicate("a@x.txt@0", "b.txt@0", "exact", 1.0),
        Duplicate("c.txt@0", "b.txt@9", "exact", 1.0),
    ]
    assert [record_id in duplicates for record_id in ids] == [False, False, True, False, True]
    assert duplicates.find("c.txt@0/3/1") == list(duplicates)[1]
    assert duplicates.find("a@x.txt@1") is duplicates.find("nowhere@0") is duplicates.find("c.txt@1") is None
    assert (len(duplicates), duplicates.kind, duplicates.reason) == (2, "exact", "exact duplicate")


def test_a_result_is_written_as_a_table(tmp_path: Path) -> None:
    duplicates = Duplicates(str(result_file(ExactDuplicates("exact"), [["a", "a"], ["b", "a"]], tmp_path)))

    duplicates.write_tsv(str(tmp_path / "table.tsv"))

    assert (tmp_path / "table.tsv").read_text() == (
        "removed\tkept\tkind\tsimilarity\nf@1\tf@0\texact\t1.000\nf@3\tf@0\texact\t1.000\n"
    )


def test_input_without_duplicates_changes_no_byte_of_the_result(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    shards = [["to be", "or not"], ["to be"]]

    before = result_file(ExactDuplicates("exact"), shards, tmp_path / "before").read_bytes()
    after = result_file(ExactDuplicates("exact"), [*shards, ["to see", "to hear"]], tmp_path / "after").read_bytes()

    assert before == after


def test_the_bytes_of_a_result_are_frozen(tmp_path: Path) -> None:
    # Written down: snapshots hold it, and later versions read it.
    assert result_file(ExactDuplicates("exact"), [["a", "b", "a"]], tmp_path).read_bytes() == (
        b"BPDUPES1\x40\0\0\0\0\0\0\0"
        b'{"format":1,"kind":"exact","rows":1,"files":["f"],"facts":{}}   '
        b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
        b"\x02\0\0\0\0\0\0\0"
        b"\0\0\0\0\0\0\0\0"
        b"\0\0\0\0"
        b"\0\0\x80?"
    )


def test_a_record_with_two_contents_is_refused() -> None:
    accumulator = ExactDuplicates("exact").accumulator()
    message = (
        "analyzer 'exact': the record 'a.txt@5' gives several values to compare, but a record is kept or removed as a "
        "whole. Let `of` give one value a record, such as a list of its parts."
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        accumulator.add(["a", "b", "c"], ["a.txt@0", "a.txt@5", "a.txt@5"])


def test_a_value_that_names_no_record_is_refused() -> None:
    message = (
        "expected the id of a source record, file@position, got '17'. Records have ids in a build; to try a stage out, "
        "build a declaration over Memory([...])."
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        ExactDuplicates("exact").accumulator().add(["a"], ["17"])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(lambda data: b"x" + data[1:], "it does not begin with BPDUPES1", id="magic"),
        pytest.param(lambda data: data[:-1], "2 rows are announced, but the file has 143 bytes", id="short"),
        pytest.param(lambda data: data[:20], "the header is not whole", id="header"),
        pytest.param(
            lambda data: data.replace(b'"format":1', b'"format":9'),
            "it has format 9, and this version reads 1",
            id="format",
        ),
    ],
)
def test_a_damaged_result_is_refused(tmp_path: Path, damage: object, words: str) -> None:
    path = result_file(ExactDuplicates("exact"), [["a", "a", "a"]], tmp_path)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    message = f"{str(path)!r} does not hold duplicates: {words}. Build again, or take the asset from another snapshot."
    with pytest.raises(CorruptCacheError, match=f"^{re.escape(message)}$"):
        Duplicates(str(path))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(lambda data: data[:-1], "the file does not end with the footer of rows", id="end"),
        pytest.param(lambda data: data[8:], "rows are missing", id="start"),
        pytest.param(lambda data: b"", "the file does not end with the footer of rows", id="empty"),
    ],
)
def test_a_damaged_accumulator_is_refused(tmp_path: Path, damage: object, words: str) -> None:
    result_file(ExactDuplicates("exact"), [["a"]], tmp_path)
    path = tmp_path / "accumulator-0"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    message = f"{str(path)!r} does not hold the rows of an accumulator: {words}. Remove it and build again."
    with pytest.raises(CorruptCacheError, match=f"^{re.escape(message)}$"):
        RowFile(str(path))
