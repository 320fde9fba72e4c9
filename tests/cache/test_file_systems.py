"""File systems that have no hard links or no `flock`: exFAT, SMB, some FUSE. Builds and commands work there too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_pipes.cache import Cache
from beam_pipes.storage.locks import BY_NAME, _end_of_dead, is_dead, this_process

# What such a file system answers, in the process that publishes. Workers write files of their own, and lock nothing.
WITHOUT = """
import errno, fcntl, json, os, sys

def refuse(number):
    def refused(*arguments, **options):
        raise OSError(number, os.strerror(number))
    return refused

os.link, fcntl.flock = refuse(errno.{link}), refuse(errno.{lock})
from beam_pipes.errors import BeamPipesError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.building.takedown import take_down
from beam_pipes.commands import app
"""
BUILD = "build('sample_declarations:words', sys.argv[1], options=LocalOptions(workers=2))\n"


def run(code: str, cache: Path, **errors: str) -> subprocess.CompletedProcess[str]:
    names = {"link": "EPERM", "lock": "ENOLCK", **errors}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = WITHOUT.format(**names) + code
    return subprocess.run(
        [sys.executable, "-c", program, str(cache)], capture_output=True, text=True, timeout=120, env=environment
    )


@pytest.mark.parametrize(("link", "lock"), [("EPERM", "ENOLCK"), ("EOPNOTSUPP", "ENOSYS"), ("ENOSYS", "EOPNOTSUPP")])
def test_a_build_is_published_rebuilt_and_taken_down(text_input: Path, tmp_path: Path, link: str, lock: str) -> None:
    built = run(BUILD, tmp_path / "cache", link=link, lock=lock)
    assert (built.returncode, "Traceback" in built.stderr) == (0, False), built.stderr
    first = Cache.open(tmp_path / "cache", verify=True)

    (text_input / "sub" / "new.txt").write_text("one more line\n")  # the other shards are taken over, as copies
    again = run(BUILD + "take_down(sys.argv[1], ['sub/new.txt@0'])\n", tmp_path / "cache", link=link, lock=lock)
    assert again.returncode == 0, again.stderr
    second = Cache.open(tmp_path / "cache", verify=True)

    assert first.manifest.snapshot != second.manifest.snapshot and second.takedowns.revision == 1
    left = [path.name for path in (tmp_path / "cache").rglob(".*") if path.is_file()]
    assert not [name for name in left if name.startswith(".tmp-") or "lock" in name]


HOLDER = {"pid": 1, "host": "other", "since": "2026-01-31 12:00:00", "machine": "another boot", "started": "1"}


def test_a_build_that_holds_the_lock_by_name_is_named(text_input: Path, tmp_path: Path) -> None:
    held = tmp_path / "cache" / f".build.lock{BY_NAME}"
    held.parent.mkdir()
    held.write_text(json.dumps(HOLDER))
    output = "try:\n    " + BUILD + "except BeamPipesError as error:\n    print(error)\n"

    busy = run(output, tmp_path / "cache").stdout
    assert "another build is writing to" in busy and "(process 1 on other, since 2026-01-31 12:00:00)" in busy
    assert (
        f"If no build is running, remove {str(held)!r}: locks on this file system are not released automatically."
        in busy
    )

    held.unlink()
    assert run(BUILD, tmp_path / "cache").returncode == 0


def test_a_lock_by_name_whose_process_is_gone_is_taken_over(text_input: Path, tmp_path: Path) -> None:
    stop = """
from beam_pipes.storage import locks
with locks.held_lock(sys.argv[1] + "/.build.lock", sys.argv[1]):
    os.kill(os.getpid(), 9)
"""
    (tmp_path / "cache").mkdir()
    assert run(stop, tmp_path / "cache").returncode == -9
    assert (tmp_path / "cache" / f".build.lock{BY_NAME}").exists()

    assert run(BUILD, tmp_path / "cache").returncode == 0
    assert not (tmp_path / "cache" / f".build.lock{BY_NAME}").exists()


def test_a_lock_that_another_process_took_over_meanwhile_is_not_removed(tmp_path: Path) -> None:
    """Two processes find a dead lock; the slower one must not remove the lock of the quicker one."""
    held = tmp_path / f".build.lock{BY_NAME}"
    gone = {**this_process(), "pid": 2**22 + 1}
    held.write_text(json.dumps(gone))
    (tmp_path / f"{held.name}.ending").mkdir()
    assert is_dead(gone) and not _end_of_dead(str(held)) and held.exists()

    (tmp_path / f"{held.name}.ending").rmdir()
    held.write_text(json.dumps(this_process()))
    assert _end_of_dead(str(held)) and held.exists()

    held.write_text(json.dumps(gone))
    assert _end_of_dead(str(held)) and list(tmp_path.iterdir()) == []


def test_local_copies_say_that_locks_are_missing(tmp_path: Path) -> None:
    code = """
from pathlib import Path
from beam_pipes.cache.local_copies import ShardStore
try:
    with ShardStore._locked(Path(sys.argv[1])):
        pass
except BeamPipesError as error:
    print(error)
"""
    output = run(code, tmp_path / "shard.lock").stdout
    assert f"{str(tmp_path)!r} is on a file system without locks (flock)" in output
    assert "Give a directory on another disk: local_directory=" in output
