"""What builds leave behind: nothing that the next one does not remove; and who is late is told."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sample_declarations
import worker_tasks
from built_files import built_files
from running_jobs import command_of
from waiting import eventually

from beam_pipes.building.leftovers import build_lock, collect, say_writing
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.building.workers.fork_server import ForkServer
from beam_pipes.building.workers.process import WorkerProcess
from beam_pipes.cache import Cache
from beam_pipes.errors import (
    BuildError,
    CacheBusyError,
    CacheNotFoundError,
    DeclarationError,
    StageError,
    WorkerDiedError,
)
from beam_pipes.publication.publish import snapshot_directory
from beam_pipes.runners.build import build
from beam_pipes.runners.local import StallWatch
from beam_pipes.runners.options import LocalOptions
from beam_pipes.sources.source import Slice, SourceShard
from beam_pipes.storage.locks import is_held
from benchmarks.harness import process_tree

ONE = LocalOptions(workers=1)


def temporaries(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if ".tmp-" in path.name]


def snapshots(cache: Path) -> set[str]:
    return set(os.listdir(cache / "snapshots"))


@pytest.mark.parametrize("up_to_date", [False, True])
def test_the_next_build_removes_every_temporary_file_wherever_a_dead_one_left_it(
    text_input: Path, tmp_path: Path, up_to_date: bool
) -> None:
    cache = tmp_path / "cache"
    first = build("sample_declarations:words", cache, options=ONE)
    expected = built_files(cache)
    own = cache / "snapshots" / first.snapshot
    (own / "dead_letters").mkdir()
    for directory in (cache, cache / "snapshots", own, own / "completions", own / "dead_letters"):
        (directory / ".tmp-1-00000000-something").write_bytes(b"half")
    (cache / "snapshots" / ".tmp-0123456789abcdef").mkdir()
    (cache / "snapshots" / ".tmp-0123456789abcdef" / "shard").write_bytes(b"half removed")
    if not up_to_date:
        (text_input / "zzz.txt").write_text("one more line\n")

    result = build("sample_declarations:words", cache, options=ONE)

    assert result.up_to_date == up_to_date
    assert temporaries(cache) == []
    assert {name: data for name, data in built_files(cache).items() if name in expected}.keys() == expected.keys()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_at_any_record_leaves_no_file_and_no_process(
    text_input: Path, tmp_path: Path, workers: int
) -> None:
    server = ForkServer()
    worker = WorkerProcess(server)
    assert children() == [server.process.pid, worker.process.pid]
    worker.close()
    server.close()
    cache = tmp_path / "cache"
    large = text_input / "large.txt"
    lines = large.read_text().splitlines()
    for position in (0, 137, 399):
        large.write_text("\n".join([*lines[:position], "boom", *lines[position + 1 :]]) + "\n")
        with pytest.raises(StageError, match="cannot split 'boom'"):
            build("sample_declarations:words", cache, options=LocalOptions(workers=workers))
        assert temporaries(cache) == []
        assert not (cache / ".build.lock").exists()
        assert children() == []
    large.write_text("\n".join(lines) + "\n")

    result = build("sample_declarations:words", cache, options=ONE)

    assert result.reused_shards > 0
    assert Cache.open(cache, verify=True).manifest.id == result.manifest_id


def children() -> list[int]:
    """The processes for builds that this one has started, and they, and that still run."""
    return [pid for pid in process_tree(os.getpid()) if any("beam_pipes.building." in word for word in command_of(pid))]


def test_a_worker_that_ends_by_a_signal_without_a_name_is_reported(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sample_declarations.DEADLY_SIGNAL_VARIABLE, "40")

    with pytest.raises(WorkerDiedError, match=r"a worker died \(signal 40\) while it built source shard \d+ \("):
        build("sample_declarations:kills_itself", tmp_path / "cache", options=LocalOptions(workers=2))


def test_a_worker_whose_parent_hangs_up_in_the_middle_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    worker = WorkerProcess()
    worker.send((worker_tasks.tell_until_it_fails, ()))
    assert worker.connection.recv()[0] == "tell"

    worker.connection.close()  # and not the lifeline, which would end it at once

    assert worker.process.wait(timeout=60) == 0
    assert capfd.readouterr().err == ""
    worker.close()


def test_a_worker_tells_of_an_error_and_continues() -> None:
    worker = WorkerProcess()
    for _ in range(2):
        worker.send((worker_tasks.fail, ()))
        kind, error = worker.connection.recv()
        assert kind == "error"
        assert "ValueError: " in str(error)
    worker.close()


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_what_would_end_a_worker_arrives_as_an_error_and_ends_nobody(kind: str) -> None:
    worker = WorkerProcess()
    for _ in range(2):
        worker.send((worker_tasks.leave, (kind,)))
        output, error = worker.connection.recv()
        assert (output, type(error)) == ("error", BuildError)
        assert re.search(rf"worker_tasks.py:\d+ raised {kind}\(0?\), which would have ended the process", str(error))
    worker.close()


@pytest.fixture
def three_snapshots(text_input: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """A cache with two old snapshots, one unfinished one, and the published one, oldest first."""
    cache = tmp_path / "cache"
    made = [build("sample_declarations:words", cache, options=ONE).snapshot]
    (text_input / "zzz.txt").write_text("one more line\n")
    made.append(build("sample_declarations:words", cache, options=ONE).snapshot)
    (text_input / "zzz.txt").write_text("boom\n")
    with pytest.raises(StageError):
        build("sample_declarations:words", cache, options=ONE)
    made += snapshots(cache) - set(made)
    (text_input / "zzz.txt").write_text("two more\nlines\n")
    made.append(build("sample_declarations:words", cache, options=ONE, keep=None).snapshot)
    for age, snapshot in enumerate(reversed(made)):
        for path in (cache / "snapshots" / snapshot, cache / "snapshots" / snapshot / "completions"):
            os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return cache, made


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_collection_keeps_the_published_snapshot_and_the_most_recent_others(
    three_snapshots: tuple[Path, list[str]], keep: int
) -> None:
    cache, made = three_snapshots

    collected = collect(cache, keep=keep)

    assert collected.published == made[3]
    assert collected.kept == tuple(reversed(made[:3]))[:keep]
    assert set(collected.removed) == set(made[:3]) - set(collected.kept)
    assert snapshots(cache) == {made[3], *collected.kept}
    assert (collected.bytes > 0) == (keep < 3)
    assert Cache.open(cache, verify=True).manifest.snapshot == made[3]


def test_a_dry_run_says_the_same_and_removes_nothing(three_snapshots: tuple[Path, list[str]]) -> None:
    cache, made = three_snapshots

    announced = collect(cache, keep=0, dry_run=True)

    assert snapshots(cache) == set(made)
    assert collect(cache, keep=0) == announced


def test_what_is_kept_of_an_unfinished_build_is_gone_on_with(
    three_snapshots: tuple[Path, list[str]], text_input: Path
) -> None:
    cache, _ = three_snapshots
    collect(cache, keep=1)

    (text_input / "zzz.txt").write_text("fine\n")
    result = build("sample_declarations:words", cache, options=ONE)

    assert result.num_shards - result.reused_shards == 1


def test_nothing_is_collected_while_a_build_is_writing(three_snapshots: tuple[Path, list[str]]) -> None:
    cache, made = three_snapshots

    with build_lock(cache), pytest.raises(CacheBusyError, match="another build is writing to"):
        collect(cache, keep=0)

    assert snapshots(cache) == set(made)


def test_what_a_reader_has_open_is_kept_until_it_ends(three_snapshots: tuple[Path, list[str]]) -> None:
    cache, made = three_snapshots
    split = Cache.open(cache, snapshot=made[0])["train"]
    first = split[0]["text"]
    code = f"from beam_pipes import Cache; split = Cache.open({str(cache)!r}, snapshot={made[1]!r})['train']; input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as other:
        assert other.stdin is not None
        while not is_held(f"{snapshot_directory(cache, made[1])}/manifest.json"):
            assert other.poll() is None
            time.sleep(0.01)
        assert set(collect(cache, keep=0).kept) == set(made[:2]) <= snapshots(cache)
        other.kill()
    assert collect(cache, keep=0).removed == (made[1],)
    assert split[len(split) - 1] and split[0]["text"] == first

    split.close()

    eventually(lambda: not [*cache.glob("leases/*.json")])  # it has one if this has taken more than a second
    assert collect(cache, keep=0).removed == (made[0],)
    removed = rf"{made[0]} was removed by process {os.getpid()} on .*; published then: \w+. Open the cache again"
    with pytest.raises(CacheNotFoundError, match=removed):
        split[0]


def test_what_is_being_written_by_others_is_kept_for_its_time(
    three_snapshots: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, made = three_snapshots
    directory = snapshot_directory(cache, made[0])
    say_writing(directory)
    half = Path(directory, ".tmp-1-abc-shard")
    half.write_text("half")

    assert collect(cache, keep=0).kept == (made[0],) and half.exists()

    later = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert collect(cache, keep=0).removed == (made[0],)


def test_collecting_where_nothing_is_and_a_negative_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheNotFoundError, match="'.*gone' does not exist: nothing was built there."):
        collect(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(CacheNotFoundError, match="expected the directory of a cache, and '.*file' is a file."):
        collect(tmp_path / "file")
    with pytest.raises(DeclarationError, match="keep should be an integer of at least 0, got -1."):
        collect(tmp_path, keep=-1)


def test_gc_on_the_command_line(three_snapshots: tuple[Path, list[str]]) -> None:
    cache, made = three_snapshots
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}

    def gc(*arguments: str) -> str:
        command = [sys.executable, "-m", "beam_pipes", "gc", str(cache), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    announced = gc("--keep", "1", "--dry-run")
    assert f"snapshot {made[0]}: would be removed." in announced
    assert f"kept: {made[3]} (published), {made[2]}." in announced
    assert json.loads(gc("--keep", "1", "--json"))["removed"] == [made[1], made[0]]
    assert gc("--keep", "0").startswith(f"snapshot {made[2]}: removed.\n")


def task(index: int, *files: str) -> ShardTask:
    slices = tuple(Slice(file=file, start=0, end=1, digest="") for file in files)
    return ShardTask(shard=SourceShard(index=index, slices=slices, num_bytes=1), fingerprint="")


def test_a_shard_that_tells_nothing_is_reported_once_with_its_files() -> None:
    output: list[str] = []
    watch = StallWatch(1e-9, report=output.append)
    watch.seen(task(7, "a.txt", "b.txt", "c.txt", "d.txt"), pid=42)

    watch.check()
    watch.check()

    assert len(output) == 1
    assert (
        "source shard 7 (a.txt, b.txt, c.txt…) has reported nothing for 0 s; process 42 is still working" in output[0]
    )
    watch.seen(task(7, "a.txt"), pid=42)
    watch.check()
    assert len(output) == 2
    watch.finished(task(7, "a.txt"))
    watch.check()
    assert len(output) == 2


def test_a_shard_that_is_not_late_is_not_reported() -> None:
    output: list[str] = []
    watch = StallWatch(60, report=output.append)
    watch.seen(task(0, "a.txt"), pid=42)

    watch.check()

    assert output == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stalled_worker_is_named_while_the_build_continues(
    text_input: Path, tmp_path: Path, workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (text_input / "zzz.txt").write_text("slow\n" * 8)

    options = LocalOptions(workers=workers, stall_secs=0.3)
    result = build("sample_declarations:slow", tmp_path / "cache", options=options)

    lines = [line for line in capfd.readouterr().err.splitlines() if "has reported nothing for" in line]
    assert any("zzz.txt" in line for line in lines)
    assert result.account.read > 8


def test_stall_secs_is_checked() -> None:
    with pytest.raises(DeclarationError, match="stall_secs should be a number above 0, got 0"):
        LocalOptions(stall_secs=0)


def test_a_lost_record_of_a_run_is_not_a_reason_to_build_again(text_input: Path, tmp_path: Path) -> None:
    declaration = sample_declarations.words()
    result = build(declaration, tmp_path / "cache", options=ONE)
    directory = tmp_path / "cache" / "snapshots" / result.snapshot
    for name in ("build.json", "fingerprint.json", "schema.pbtxt"):
        (directory / name).unlink()

    assert build(dataclasses.replace(declaration, max_bad=1), tmp_path / "cache", options=ONE).up_to_date
