"""Workers that are forked are like workers that are not."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_tasks

from beam_pipes.building.workers import tasks
from beam_pipes.building.workers.fork_server import ForkServer, can_fork
from beam_pipes.building.workers.process import WorkerProcess
from beam_pipes.errors import BuildError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    server = ForkServer("beam_pipes.building.workers.pool")
    yield server
    server.close()


def result_of(worker: WorkerProcess) -> object:
    kind, value = worker.connection.recv()
    assert kind == "result", value
    return value


def is_there(pid: int) -> bool:
    """Whether it runs; a process that has ended and waits to be asked for its exit code does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_linux_forks() -> None:
    assert can_fork()


def test_a_system_without_handles_of_processes_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    assert not can_fork()


def test_the_server_has_one_thread_and_no_beam_and_no_message_descriptors(server: ForkServer) -> None:
    worker = WorkerProcess(server)  # the server has done its imports once it can fork

    assert len(os.listdir(f"/proc/{server.process.pid}/task")) == 1
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "numpy" in maps
    assert not any(name in maps for name in ("apache_beam", "tensorflow", "google/_upb"))
    worker.close()


@pytest.mark.parametrize("imported", ["beam_pipes.building.workers.pool", "numpy.random"])
def test_forks_draw_random_numbers_of_their_own(imported: str) -> None:
    server = ForkServer("beam_pipes.building.workers.pool", imported)
    workers = [WorkerProcess(server) for _ in range(3)]
    for worker in workers:
        worker.send((worker_tasks.draw, ()))

    drawn = [result_of(worker) for worker in workers]

    assert len({number for numbers in drawn for number in numbers}) == 6
    for worker in workers:
        worker.close()
    server.close()


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL, -signal.SIGSEGV])
def test_how_a_fork_ended_is_known_while_another_continues(server: ForkServer, code: int) -> None:
    one, other = WorkerProcess(server), WorkerProcess(server)
    with pytest.raises(subprocess.TimeoutExpired, match=f"process {one.process.pid}"):
        one.process.wait(0.01)

    one.send((worker_tasks.end, (code,)))

    assert one.wait(timeout_secs=60) == code
    one.process.kill()  # of a process that is gone nothing is asked
    other.send((worker_tasks.draw, ()))
    assert len(result_of(other)) == 2
    one.close()
    other.close()
    assert not is_there(other.process.pid)


def test_where_the_server_is_killed_its_forks_end_and_no_more_are_made(server: ForkServer) -> None:
    worker = WorkerProcess(server)
    server.process.kill()

    assert worker.process.wait(timeout=60) == -signal.SIGKILL
    worker.close()
    with pytest.raises(
        BuildError, match=r"process \d+, which starts the workers, has ended \(SIGKILL\)\. .*--workers 1"
    ):
        WorkerProcess(server)


def test_a_server_that_cannot_import_its_modules_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    server = ForkServer("no_such_module")

    with pytest.raises(BuildError, match=r"which starts the workers, has ended \(exit code 1\)"):
        WorkerProcess(server)

    server.close()
    assert "No module named 'no_such_module'" in capfd.readouterr().err


def test_a_server_that_does_not_end_is_killed(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beam_pipes.building.workers.fork_server._END_SECS", 0.1)
    server.process.send_signal(signal.SIGSTOP)

    server.close()

    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("forked", [True, False])
def test_a_worker_that_dies_is_noticed_while_a_program_that_it_started_continues(
    server: ForkServer, forked: bool
) -> None:
    worker = WorkerProcess(server if forked else None)
    worker.send((worker_tasks.start_sleeper, ()))
    sleeper = result_of(worker)
    worker.process.kill()

    assert worker.connection.poll(20)
    with pytest.raises((EOFError, ConnectionResetError)):
        worker.connection.recv()
    assert isinstance(sleeper, int)
    assert is_there(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    worker.close()


@pytest.mark.parametrize("forked", [True, False])
def test_what_a_stage_prints_is_seen(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # under which nothing waits to be flushed
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.closing(ForkServer())) if forked else None
        worker = stack.enter_context(contextlib.closing(WorkerProcess(server)))
        worker.send((worker_tasks.say, ("printed in a worker",)))
        result_of(worker)

        assert capfd.readouterr().out == "printed in a worker\n"


def test_a_pool_that_cannot_fork_builds_the_same(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = LocalOptions(workers=2)
    forked = build("sample_declarations:words", tmp_path / "forked", options=both)
    monkeypatch.setattr(tasks, "fork_server", lambda *modules: None)

    fresh = build("sample_declarations:words", tmp_path / "fresh", options=both)

    assert fresh.manifest_id == forked.manifest_id


def test_a_parent_that_is_killed_while_it_asks_leaves_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asking = """
import os, signal, sys, threading, time
from beam_pipes.building.workers.fork_server import ForkServer
from beam_pipes.building.workers.process import WorkerProcess
server = ForkServer("time")
server.process.send_signal(signal.SIGSTOP)
threading.Thread(target=WorkerProcess, args=[server], daemon=True).start()
time.sleep(0.5)
open(sys.argv[1], "w").write(str(server.process.pid))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", asking, str(tmp_path / "pid")])
    pid = int((tmp_path / "pid").read_text())

    os.kill(pid, signal.SIGCONT)  # it reads what it was asked, and has nobody to answer

    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "Traceback" not in capfd.readouterr().err


def test_a_server_whose_parent_is_killed_before_it_reads_an_answer_ends_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = ForkServer()
    lifeline, ours = os.pipe()
    end, output = os.pipe()
    socket.send_fds(server._control, [b"."], [lifeline, output])
    select.select([server._control], [], [], 20)  # the answer is there, and nobody reads it

    server._control.close()

    assert server.process.wait(60) == 0
    assert "ConnectionResetError" not in capfd.readouterr().err
    for file in (lifeline, ours, end, output):
        os.close(file)
