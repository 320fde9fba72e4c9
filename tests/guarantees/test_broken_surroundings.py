"""Full disks, directories that are read-only, inputs that vanish or break: one clear error, and a repair suffices."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sample_declarations
from built_files import built_files
from own_mounts import run_with_read_only, run_with_small_disk

from beam_pipes.building import Declaration
from beam_pipes.building.leftovers import writing
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import Cache, LocalStorage
from beam_pipes.errors import BuildError, CacheNotFoundError, CacheWriteError, SourceError
from beam_pipes.runners.build import build
from beam_pipes.runners.local import run_local
from beam_pipes.runners.options import LocalOptions
from beam_pipes.runners.progress import Counts, Silent
from beam_pipes.sources import TextLines

ONE = LocalOptions(workers=1)
KEPT = "finished shards are kept, and the published snapshot is untouched."


def test_a_full_disk_ends_in_one_error_and_more_room_is_enough(text_input: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    code = f"""
from beam_pipes.cache import Cache
from beam_pipes.errors import CacheWriteError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
cache = {str(tmp_path / "disk" / "cache")!r}
try:
    build("sample_declarations:words", cache, options=LocalOptions(workers=1))
except CacheWriteError as error:
    print(error)
more_room()
result = build("sample_declarations:words", cache, options=LocalOptions(workers=1))
print(result.num_shards, result.reused_shards, result.manifest_id, Cache.open(cache, verify=True).splits)
"""

    done = run_with_small_disk(tmp_path / "disk", code, kib=128)

    assert done.returncode == 0, done.stderr
    message, result = done.stdout.splitlines()
    assert "disk/cache' cannot be written: " in message
    assert "Free or allow more space, or build to another directory, and run the build again" in message
    assert message.endswith(KEPT)
    shards, reused, manifest_id, _ = result.split(maxsplit=3)
    cold = build("sample_declarations:words", tmp_path / "cold", options=ONE)
    assert manifest_id == cold.manifest_id
    assert int(reused) < int(shards)


def test_a_write_that_the_disk_takes_only_a_part_of_is_an_error_and_not_a_short_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            LocalStorage().replace(str(tmp_path / "file"), bytes(1500))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_limit_on_the_size_of_files_is_named_by_every_runner(text_input: Path, tmp_path: Path, workers: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
    try:
        with pytest.raises(CacheWriteError, match="cannot be written: a file may not become larger") as caught:
            build("sample_declarations:words", tmp_path / "cache", options=LocalOptions(workers=workers))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert caught.value.path == str(tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob(".tmp-*"))
    build("sample_declarations:words", tmp_path / "cache", options=ONE)
    build("sample_declarations:words", tmp_path / "cold", options=ONE)
    assert built_files(tmp_path / "cache") == built_files(tmp_path / "cold")


def test_a_read_only_directory_is_named_and_can_still_be_planned_for(text_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build("sample_declarations:words", cache, options=ONE)
    (text_input / "zzz.txt").write_text("one more line\n")
    code = f"""
from beam_pipes.errors import CacheWriteError
from beam_pipes.building.plan import make_plan
from beam_pipes.runners.build import build
import sample_declarations
print(make_plan(sample_declarations.words(), {str(cache)!r}).published_as_planned)
try:
    build("sample_declarations:words", {str(cache)!r})
except CacheWriteError as error:
    print(error)
"""

    done = run_with_read_only(cache, code)

    assert done.returncode == 0, done.stderr
    planned, message = done.stdout.splitlines()
    assert planned == "None"
    assert f"the cache {str(cache)!r} cannot be written: writing there is not allowed (" in message
    assert "Make it writable, or build to another directory" in message
    assert build("sample_declarations:words", cache, options=ONE).reused_shards > 0


def test_a_path_below_a_file_is_named(text_input: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")

    with pytest.raises(CacheWriteError, match="file/cache' cannot be written: a part of that path is a file"):
        build("sample_declarations:words", tmp_path / "file" / "cache", options=ONE)
    with pytest.raises(CacheWriteError, match="file' cannot be written: a part of that path is a file"):
        build("sample_declarations:words", tmp_path / "file", options=ONE)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_input_that_vanishes_while_it_is_built_is_named(text_input: Path, tmp_path: Path, workers: int) -> None:
    plan = make_plan(sample_declarations.words(), tmp_path / "cache")
    tasks = prepare(plan)
    large = text_input / "large.txt"
    content = large.read_bytes()
    large.unlink()
    handle = DeclarationHandle(plan.declaration, "sample_declarations:words")

    with pytest.raises(SourceError, match=r"source shard \d+ cannot be read: input large.txt vanished") as caught:
        counts = Counts(num_shards=len(tasks))
        run_local(handle, plan.header, tasks, workers=workers, counts=counts, progress=Silent())

    assert str(caught.value).endswith(f"Repair or remove the input and run the build again: {KEPT}")
    assert caught.value.file == "large.txt"
    large.write_bytes(content)
    build("sample_declarations:words", tmp_path / "cache", options=ONE)
    build("sample_declarations:words", tmp_path / "cold", options=ONE)
    assert built_files(tmp_path / "cache") == built_files(tmp_path / "cold")


def test_an_input_that_vanished_before_the_build_rebuilds_nothing_else(text_input: Path, tmp_path: Path) -> None:
    first = build("sample_declarations:words", tmp_path / "cache", options=ONE)
    (text_input / "sub" / "small-0.txt").unlink()

    second = build("sample_declarations:words", tmp_path / "cache", options=ONE)

    assert second.account.read < first.account.read
    assert second.num_shards - second.reused_shards <= 1


def compressed(directory: Path) -> Declaration:
    return dataclasses.replace(
        sample_declarations.words(), source=TextLines(str(directory), pattern="*.gz"), name="compressed"
    )


def test_a_truncated_gzip_is_named_and_its_repair_is_enough(text_input: Path, tmp_path: Path) -> None:
    directory = tmp_path / "compressed"
    directory.mkdir()
    for number in range(3):
        text = "".join(f"{number} {line} word{line * 7919 % 1000}\n" for line in range(400))
        (directory / f"{number}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    whole = (directory / "1.txt.gz").read_bytes()
    (directory / "1.txt.gz").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(SourceError, match="input 1.txt.gz is damaged: gzip data breaks off") as caught:
        build(compressed(directory), tmp_path / "cache", options=ONE)

    assert "Repair or remove the input and run the build again" in str(caught.value)
    assert not (tmp_path / "cache" / "manifest.json").exists()
    (directory / "1.txt.gz").write_bytes(whole)
    result = build(compressed(directory), tmp_path / "cache", options=ONE)
    assert result.account.read == 1200
    assert len(Cache.open(tmp_path / "cache", verify=True)["words"]) == 3600


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(errno.ENOSPC, "there is no room left (No space left on device). Free or allow", id="full"),
        pytest.param(errno.EDQUOT, "there is no room left (Disk quota exceeded). Free or allow", id="quota"),
        pytest.param(errno.EROFS, "writing there is not allowed (Read-only file system). Make it", id="read_only"),
        pytest.param(errno.EIO, "writing there failed (Input/output error). Repair the file system", id="broken"),
    ],
)
def test_what_the_file_system_says_comes_with_what_to_do(number: int, words: str) -> None:
    with pytest.raises(CacheWriteError) as caught, writing("some/cache"):
        raise OSError(number, os.strerror(number), "some/cache/.tmp-1-x")

    assert f"the cache 'some/cache' cannot be written: {words}" in str(caught.value)
    assert str(caught.value).endswith(KEPT)
    assert (caught.value.path, caught.value.errno) == ("some/cache", number)
    assert isinstance(caught.value, BuildError) and isinstance(caught.value, OSError)


def test_errors_of_ours_pass_through_as_they_are() -> None:
    with pytest.raises(CacheNotFoundError, match="^not there$"), writing("some/cache"):
        raise CacheNotFoundError("not there")


@pytest.mark.parametrize("damage", ["manifest_cut_short", "shard_removed", "shard_cut_short", "snapshot_removed"])
def test_building_again_repairs_a_published_cache_whose_files_are_gone_or_short(
    damage: str, text_input: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = build("sample_declarations:words", cache, options=ONE)
    expected = built_files(cache)
    snapshot = cache / "snapshots" / first.snapshot
    shard = max(snapshot.glob("words-words.tfrecord-*-of-*[0-9]"), key=lambda path: path.stat().st_size)
    if damage == "manifest_cut_short":
        (cache / "manifest.json").write_bytes((cache / "manifest.json").read_bytes()[:100])
    elif damage == "shard_removed":
        shard.unlink()
    elif damage == "shard_cut_short":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        shutil.rmtree(snapshot)

    second = build("sample_declarations:words", cache, options=ONE)

    built_again = {"manifest_cut_short": 0, "snapshot_removed": first.num_shards}.get(damage, 1)
    assert second.num_shards - second.reused_shards == built_again
    assert built_files(cache) == expected
    assert Cache.open(cache, verify=True).manifest.id == first.manifest_id


@pytest.mark.parametrize("name", ["manifest.json", ".index", "-00000-of-00010"])
def test_a_cache_on_a_disk_that_fails_is_named_with_the_file(name: str, text_input: Path, tmp_path: Path) -> None:
    """The system call fails as it does on a broken disk; a shard that is mapped already ends its process (SIGBUS)."""
    build("sample_declarations:words", tmp_path / "cache", options=ONE)
    code = f"""
import errno, os, sys
from beam_pipes import Loader
from beam_pipes.errors import CacheError

def broken(event, arguments):
    if event == "open" and str(arguments[0]).endswith({name!r}):
        raise OSError(errno.EIO, os.strerror(errno.EIO), arguments[0])

sys.addaudithook(broken)
try:
    list(Loader({str(tmp_path / "cache" / "train")!r}, batch_size=2))
except CacheError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert re.search(f"'{tmp_path}.*{re.escape(name)}' cannot be read: Input/output error", done.stdout), done.stdout
