"""Leases of readers: what a run reads, or comes back for, is kept by builds and `gc` everywhere, for a stated time."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner
from waiting import eventually

from beam_pipes import Cache, Loader, write_cache
from beam_pipes.building.leftovers import collect
from beam_pipes.commands import app
from beam_pipes.errors import CacheNotFoundError, DeclarationError, StateMismatchError
from beam_pipes.storage import leases
from beam_pipes.storage.local import LocalStorage

HOUR = 3600
TRAIN = """
import os, signal, sys
from beam_pipes import Loader

loader = Loader(sys.argv[1], batch_size=2, seed=1)
batches = iter(loader)
print(next(batches)["n"].tolist(), flush=True)
if "state" in sys.argv:
    print(loader.get_state().decode(), flush=True)
input()
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(path: Path, start: int) -> Cache:
    return write_cache(path, {"train": [{"n": start + n} for n in range(10)]})


def leases_in(path: Path) -> list[Path]:
    return sorted((path / "leases").glob("[!.]*.json"))


def wait_for(path: Path, count: int) -> list[Path]:
    eventually(lambda: len(leases_in(path)) == count)
    return leases_in(path)


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_run_that_comes_back_within_an_hour_finds_its_snapshot(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    older = write(path, 0).manifest.snapshot
    command = [sys.executable, "-c", TRAIN, f"{path}/train", "state", how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stdout is not None
        run.stdout.readline()
        state = run.stdout.readline()
        (file,) = wait_for(path, 1)
        run.communicate("\n")
    monkeypatch.setenv(leases.VARIABLE, "0")  # this process takes none
    for night in (1, 2, 3):
        write(path, 100 * night)

    kept = collect(path, keep=0)

    assert kept.kept == (older,) and len(kept.removed) == 2
    ((whose,),) = kept.held.values()
    assert whose.startswith(f"process {run.pid} on ") and ", since " in whose and ", until " in whose
    again = Loader(f"{path}/train", batch_size=2, seed=1)
    again.set_state(state)
    reference = Loader(Cache.open(path, snapshot=older)["train"], batch_size=2, seed=1)
    assert [b["n"].tolist() for b in again] == [b["n"].tolist() for b in reference][1:]

    del again, reference
    gc.collect()
    os.utime(file, (time.time() - HOUR - 1,) * 2)
    assert collect(path, keep=0).removed == (older,)
    assert not (path / "leases").exists()
    removed = rf"snapshot {older} was removed by process {os.getpid()} on .* an hour"
    with pytest.raises(StateMismatchError, match=removed):
        Loader(f"{path}/train", batch_size=2, seed=1).set_state(state)


def test_a_reader_without_a_state_gives_its_lease_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    monkeypatch.setattr(leases, "_LOCAL_DELAY_SECS", 0.0)
    split = write(path, 0)["train"]
    assert split[0]["n"] == 0
    (file,) = wait_for(path, 1)
    assert json.loads(file.read_bytes())["pid"] == os.getpid()

    split.close()

    wait_for(path, 0)
    assert split[1]["n"] == 1  # and takes another one
    wait_for(path, 1)
    shutil.rmtree(path)
    del split
    assert not path.exists()


def test_snapshots_kept_for_a_reader_are_named_and_can_be_removed_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "c"
    older = write(path, 0)
    split = older["train"]
    Loader(split, batch_size=2).get_state()
    wait_for(path, 1)
    write(path, 100)

    printed = CliRunner().invoke(app, ["gc", str(path), "--keep", "0"]).output
    assert f"snapshot {older.manifest.snapshot}: kept for process {os.getpid()} on " in printed
    printed = CliRunner().invoke(app, ["gc", str(path), "--keep", "0", "--ignore-leases"]).output
    assert f"snapshot {older.manifest.snapshot}: removed." in printed
    with pytest.raises(CacheNotFoundError, match=r"was removed by .*gc --ignore-leases"):
        split[0]


def test_a_cache_that_may_only_be_read_is_read_without_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Bucket(LocalStorage):
        def replace(self, path: str, data: bytes) -> None:
            raise PermissionError(13, "Permission denied", path)

        def local_path(self, path: str) -> str | None:
            return None

    write(tmp_path / "c", 0)
    monkeypatch.setenv(leases.VARIABLE, "0.03")  # renewed a hundred times a second
    with caplog.at_level(logging.WARNING):
        split = Cache.open(tmp_path / "c", storage=Bucket(), local_directory=tmp_path / "copies")["train"]
        assert [record["n"] for record in split] == list(range(10)) and len(split.gather([0, 1])["n"]) == 2
        time.sleep(0.1)
    output = [record.getMessage() for record in caplog.records if "lease" in record.getMessage()]
    assert len(output) == 1 and "a lease on snapshot" in output[0] and "--keep" in output[0]


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_the_time_of_a_lease_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(leases.VARIABLE, text)
    with pytest.raises(DeclarationError, match="should be a number of seconds, 0 or more, got"):
        leases.lease_secs()
