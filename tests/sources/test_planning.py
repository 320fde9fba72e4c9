"""Plans: deterministic, local in their changes, quick, and cached by file."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import SourceError
from beam_pipes.sources import DigestCache, Files, SourcePlan, TextLines, file_source, selection
from beam_pipes.sources.file_source import MAX_TARGETS, even_cuts, group_small_files
from beam_pipes.sources.helpers import Helpers
from beam_pipes.sources.source import SourceShard, WholeFiles

TARGET = 10_000
sizes = st.dictionaries(st.text("abcdef/", min_size=1, max_size=6), st.integers(0, TARGET), min_size=1, max_size=200)


def groups_of(files: dict[str, int]) -> list[tuple[str, ...]]:
    rows = sorted(files.items())
    return [tuple(rows[i][0] for i in group) for group in group_small_files(rows, target_shard_bytes=TARGET)]


@given(sizes)
def test_groups_hold_every_file_once_in_order_and_are_bounded(files):
    groups = groups_of(files)

    assert [name for group in groups for name in group] == sorted(files)
    assert all(sum(files[name] for name in group) <= MAX_TARGETS * TARGET for group in groups)


@given(sizes, st.text("abcdef/", min_size=1, max_size=6), st.integers(0, TARGET))
def test_adding_removing_or_changing_a_file_changes_few_groups(files, name, size):
    before = set(groups_of(files))
    after = set(groups_of({**files, name: size}))

    # The file's own group is split in two, or two become one. Where a run of files without a boundary of its own
    # fills several groups up to the limit, those that follow in the run move along: at most the run.
    assert len(after - before) <= 2 + sum(size for _, size in files.items()) // (2 * TARGET)


def test_adding_a_file_to_thousands_changes_two_shards_at_most():
    files = {f"{n:05d}": 900 + n % 200 for n in range(5000)}
    before = set(groups_of(files))

    changed = [len(set(groups_of({**files, f"{n:05d}x": 1000})) - before) for n in range(0, 5000, 53)]

    assert max(changed) <= 3
    assert sum(changed) / len(changed) < 2


def test_groups_are_about_as_large_as_the_target():
    files = {f"{n:05d}": 1000 for n in range(5000)}
    groups = groups_of(files)

    assert 0.5 < sum(files.values()) / len(groups) / TARGET < 2


def test_groups_are_frozen():
    files = {f"{n:02d}": 3000 for n in range(12)}

    assert groups_of(files) == [("00", "01", "02", "03"), ("04", "05", "06"), ("07", "08", "09", "10", "11")]


@given(st.integers(1, 10**6), st.integers(10**3, 10**6), st.integers(0, 10**6))
def test_cuts_leave_no_small_rest_and_stay_when_a_file_grows(size, target, growth):
    cuts = even_cuts(size, target)
    bounds = [0, *cuts, size]

    assert all(end - start >= target / 2 for start, end in zip(bounds[:-1], bounds[1:], strict=True)) or not cuts
    assert even_cuts(size + growth, target)[: len(cuts)] == cuts


def lines_of(source: TextLines, plan: SourcePlan) -> list[str]:
    return [line for shard in plan.shards for batch in source.read(shard) for line in batch.values]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=60), st.integers(1, 300), st.booleans())
def test_a_split_file_holds_every_line_once(tmp_path_factory, lines, target, final_newline):
    lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    text = "\n".join(lines) + ("\n" if final_newline else "")
    path = tmp_path_factory.mktemp("split") / "a.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass").replace(b"\xed", b"?"))
    source = TextLines(path)
    whole = lines_of(source, source.plan(target_shard_bytes=10**9))

    split = source.plan(target_shard_bytes=target)

    assert lines_of(source, split) == whole
    ends = [(piece.start, piece.end) for shard in split.shards for piece in shard.slices]
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]


def test_a_growing_file_keeps_its_first_slices(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    before = TextLines(path).plan(target_shard_bytes=1000).shards
    with path.open("a") as file:
        file.write("one more\n" * 300)
    after = TextLines(path).plan(target_shard_bytes=1000).shards

    assert [shard.fingerprint() for shard in after[: len(before) - 1]] == [s.fingerprint() for s in before[:-1]]


def test_small_files_do_not_share_a_shard_with_pieces_of_a_large_one(tmp_path):
    for name, count in (("a", 5), ("b", 500), ("c", 5), ("d", 5)):
        (tmp_path / name).write_text("line of text\n" * count)

    shards = TextLines(tmp_path).plan(target_shard_bytes=2000).shards

    assert {tuple(piece.file for piece in shard.slices) for shard in shards} >= {("a",), ("b",)}
    assert all(len(shard.slices) == 1 for shard in shards if shard.slices[0].file == "b")
    assert [shard.index for shard in shards] == list(range(len(shards)))


def test_zero_byte_files_are_records_of_files_and_nothing_to_lines(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "one").write_bytes(b"1")

    files = Files(tmp_path).plan(target_shard_bytes=100)
    lines = TextLines(tmp_path).plan(target_shard_bytes=100)

    assert [piece.file for shard in files.shards for piece in shard.slices] == ["empty", "one"]
    assert [piece.file for shard in lines.shards for piece in shard.slices] == ["one"]
    assert (lines.num_files, lines.num_bytes) == (2, 1)


def test_the_plan_does_not_depend_on_the_number_of_cores(tmp_path, monkeypatch):
    for n in range(700):
        (tmp_path / f"{n}").write_text(f"{n}\n" * n)
    plans = []
    for cores in (1, 2, 64):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        plans.append(TextLines(tmp_path).plan(target_shard_bytes=1000))

    assert plans[0] == plans[1] == plans[2]


def test_twenty_thousand_small_files_are_planned(tmp_path):
    for n in range(20_000):
        if n % 200 == 0:
            (tmp_path / str(n)).mkdir()
            directory = tmp_path / str(n)
        (directory / f"{n}.txt").write_bytes(b"%d" % n)

    plan = Files(tmp_path).plan(target_shard_bytes=1 << 14)

    assert plan.num_files == 20_000
    assert sum(len(shard.slices) for shard in plan.shards) == 20_000


def age(path: Path, *, seconds: int = 10) -> None:
    """Files that were written or changed a moment ago are not entered into the cache."""
    for each in path.rglob("*"):
        now = time.time_ns() - seconds * 10**9
        os.utime(each, ns=(now, now))
    time.sleep(0.06)


def test_unchanged_files_are_not_read_again(tmp_path):
    for n in range(20):
        (tmp_path / f"{n}.txt").write_text(f"{n}\n" * 400)
    age(tmp_path)
    cache = DigestCache()
    first = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)
    cache.save(tmp_path / ".digests")
    cache = DigestCache.load(tmp_path / ".digests")

    again = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)

    assert again == first
    assert (cache.hits, cache.misses) == (20, 0)


def overwritten_in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def unpacked_in_its_place(path: Path, content: bytes) -> None:
    """As `tar` does over a removed tree: the file system may give the inode of the old file to the new one."""
    inode = path.stat().st_ino
    path.unlink()
    others = []
    for number in range(64):
        path.write_bytes(content)
        if path.stat().st_ino == inode:
            return
        others.append(path.rename(path.with_name(f"{number}.other")))


@pytest.mark.parametrize("replaced", [overwritten_in_place, unpacked_in_its_place])
def test_other_content_of_the_old_size_mtime_and_inode_is_seen(
    tmp_path: Path, replaced: Callable[[Path, bytes], None]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    age(tmp_path)
    cache = DigestCache()
    source = TextLines(tmp_path, pattern="*.txt")
    first = source.plan(target_shard_bytes=500, digests=cache)
    status = path.stat()
    replaced(path, b"b\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert source.plan(target_shard_bytes=500, digests=cache) != first
    assert cache.hits == 0


def test_a_touched_file_is_hashed_again_and_keeps_its_digest(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    age(tmp_path)
    cache = DigestCache()
    first = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)
    age(tmp_path, seconds=20)

    again = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)

    assert again == first
    assert (cache.hits, cache.misses) == (0, 2)


def test_a_changed_file_of_the_same_size_is_seen(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    age(tmp_path, seconds=20)
    cache = DigestCache()
    first = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)
    path.write_text("b\n")

    assert TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache) != first


def test_a_file_written_a_moment_ago_is_not_entered(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    os.utime(path, ns=(time.time_ns() + 10**9,) * 2)
    cache = DigestCache()
    TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)
    TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)

    assert (cache.hits, cache.misses) == (0, 2)


def test_the_target_is_part_of_how_a_large_file_is_cached_and_not_of_a_small_one(tmp_path):
    (tmp_path / "large").write_text("line\n" * 1000)
    (tmp_path / "small").write_text("line\n")
    age(tmp_path)
    cache = DigestCache()
    TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)

    other = TextLines(tmp_path).plan(target_shard_bytes=700, digests=cache)

    assert (cache.hits, cache.misses) == (1, 3)
    assert other == TextLines(tmp_path).plan(target_shard_bytes=700)


def with_digests(directory: Path) -> Path:
    """The saved digests of three files in the directory."""
    for n in range(3):
        (directory / f"{n}.txt").write_text(f"{n}\n")
    age(directory)
    cache = DigestCache()
    TextLines(directory).plan(target_shard_bytes=500, digests=cache)
    path = directory / ".digests"
    cache.save(path)
    return path


def test_a_file_of_digests_that_is_not_what_was_written_is_empty(tmp_path: Path) -> None:
    path = with_digests(tmp_path)
    kept = path.read_bytes()
    sizes = []

    for at in range(0, len(kept), 7):
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        sizes.append(len(DigestCache.load(path)))
        path.write_bytes(kept[:at])
        sizes.append(len(DigestCache.load(path)))

    path.write_bytes(kept)
    assert (set(sizes), len(DigestCache.load(path)), len(kept)) == ({0}, 3, 24 + 3 * 48 + len("{}") + 4)


def test_digests_of_files_that_are_gone_are_not_kept(tmp_path: Path) -> None:
    with_digests(tmp_path)
    (tmp_path / "1.txt").unlink()
    cache = DigestCache.load(tmp_path / ".digests")
    TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)
    cache.save(tmp_path / ".digests")

    assert len(DigestCache.load(tmp_path / ".digests")) == 2


@pytest.mark.parametrize("cores", [1, 2])
def test_many_files_are_listed_and_hashed_by_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """Whatever they do, the plan is that of one process: also for a source that other processes cannot import."""
    for n in range(300):
        (tmp_path / f"{n % 20}").mkdir(exist_ok=True)
        (tmp_path / f"{n % 20}" / f"{n}.txt").write_text(f"{n}\n")
    plain = TextLines(tmp_path).plan(target_shard_bytes=500)
    monkeypatch.setattr(selection, "MANY_FILES", 10)
    monkeypatch.setattr(file_source, "MANY_FILES", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    class Local(TextLines):
        pass

    assert TextLines(tmp_path).plan(target_shard_bytes=500) == plain
    assert Local(tmp_path).plan(target_shard_bytes=500) == plain
    (tmp_path / "7" / "gone.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"input \S+gone.txt is a link to nothing: there is no"):
        TextLines(tmp_path).plan(target_shard_bytes=500)


def test_a_helper_that_dies_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    here = os.getpid()

    with Helpers() as helpers:
        assert here not in helpers.map(_process_of, [1, 2])
        assert helpers.map(_ends_helpers, [here] * 4) == [here] * 4
        assert helpers.map(_process_of, [1, 2]) == [here] * 2


def _process_of(_: int) -> int:
    return os.getpid()


def _ends_helpers(parent: int) -> int:
    if os.getpid() != parent:
        os._exit(1)
    return parent


def test_a_shard_of_many_files_is_what_a_tuple_of_slices_is(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n:02d}.txt").write_text(f"{n}\n")
    [shard] = TextLines(tmp_path).plan(target_shard_bytes=10**6).shards
    as_tuple = dataclasses.replace(shard, slices=tuple(shard.slices))

    assert isinstance(shard.slices, WholeFiles)
    assert (shard, hash(shard), shard.fingerprint()) == (as_tuple, hash(as_tuple), as_tuple.fingerprint())
    assert pickle.loads(pickle.dumps(shard)) == as_tuple == SourceShard.from_json(shard.to_json())
    assert (shard.slices[3].file, len(shard.slices[2:5])) == ("03.txt", 3)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 2, "files": {}}', b'{"version": 1, "files": {"PATH": 3}}', b"\xff\xfe"],
)
def test_a_damaged_digest_cache_is_empty(tmp_path, content):
    (tmp_path / "a.txt").write_text("a\n")
    path = tmp_path / ".digests"
    path.write_bytes(content.replace(b"PATH", json.dumps(str(tmp_path / "a.txt")).encode()[1:-1]))

    cache = DigestCache.load(path)
    plan = TextLines(tmp_path).plan(target_shard_bytes=500, digests=cache)

    assert plan == TextLines(tmp_path).plan(target_shard_bytes=500)
    assert cache.hits == 0
