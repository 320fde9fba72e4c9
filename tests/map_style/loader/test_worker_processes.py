"""Worker processes of the loader: order, errors, deaths, and that none is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import loader_datasets
import numpy as np
import pytest
from loader_datasets import Exiting, Numbers, Raising, Refusing, Sleeping, Unopenable, Unsendable, WhoAmI
from waiting import eventually

from beam_pipes.errors import ExampleError, LoaderWorkerError
from beam_pipes.map_style import DataLoader
from beam_pipes.map_style.workers import encode, receive, send

HERE = Path(loader_datasets.__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    if multiprocessing.active_children():
        gc.collect()
    assert [] == multiprocessing.active_children()


def alive(pid):
    """Whether a process still runs (and is no zombie waiting for its parent)."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_batches_come_in_order_and_workers_are_kept_between_epochs():
    expected = DataLoader(Numbers(20), 3, True)
    with DataLoader(Numbers(20), 3, True, num_workers=2, worker_type="process") as loader:
        for _ in range(2):
            for (ours, _), (theirs, values) in zip(expected, loader, strict=True):
                np.testing.assert_array_equal(ours, theirs)
                values += 1  # what came through the pipe can be written to

        pids = [process.pid for process in multiprocessing.active_children()]
        assert 2 == len(pids)
    assert not any(alive(pid) for pid in pids)


def test_every_worker_reads_and_the_loader_takes_them_along():
    loader = DataLoader(WhoAmI(4), num_workers=2, worker_type="process", collate_fn=lambda pids: pids[0])

    first, second, third, fourth = loader

    assert (first, second) == (third, fourth)
    assert 3 == len({first, second, os.getpid()})
    del loader
    gc.collect()
    assert not alive(first) and not alive(second)


def test_an_iterator_that_is_left_ends_its_workers():
    loader = DataLoader(WhoAmI(100), num_workers=1, worker_type="process", collate_fn=lambda pids: pids[0])
    iterator = iter(loader)
    pid = next(iterator)

    iterator.close()

    assert not alive(pid)


def test_two_iterators_have_workers_of_their_own():
    with DataLoader(Numbers(6), 2, num_workers=1, worker_type="process") as loader:
        pairs = [(one[0].tolist(), two[0].tolist()) for one, two in zip(loader, loader, strict=True)]

    assert [([0, 1], [0, 1]), ([2, 3], [2, 3]), ([4, 5], [4, 5])] == pairs


@pytest.mark.parametrize("error", [IndexError("x"), StopIteration("x")])
def test_an_error_in_a_worker_surfaces_with_index_cause_and_traceback(error):
    loader = DataLoader(Raising(12, error), batch_size=2, num_workers=2, worker_type="process")
    seen = []

    with pytest.raises(ExampleError, match=rf"^loading example 5 failed: {type(error).__name__}: x$") as caught:
        for batch in loader:
            seen.append(batch[0].tolist())

    assert [[0, 1], [2, 3]] == seen
    assert 5 == caught.value.index
    assert type(error) is type(caught.value.__cause__)
    assert re.search(r"in worker process 0:\n(.|\n)*loader_datasets.py", str(caught.value.__cause__.__cause__))


def test_an_exception_that_does_not_travel_still_tells_its_words():
    loader = DataLoader(Refusing(6), 6, num_workers=1, worker_type="process")

    with pytest.raises(ExampleError, match="^loading example 0 failed: Stubborn: left and right$") as caught:
        list(loader)

    assert "Stubborn: left and right" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        pytest.param(
            Unsendable(2), r"examples \[0, 1\] cannot be sent from a worker process: \w+: .*lambda", id="unsendable"
        ),
        pytest.param(
            Unopenable(2),
            "the dataset cannot be unpickled in a worker process: ValueError: no such file",
            id="unopenable",
        ),
    ],
)
def test_what_no_pickle_holds_is_named(dataset, words):
    with pytest.raises(ExampleError, match=f"^{words}"):
        list(DataLoader(dataset, 2, num_workers=1, worker_type="process"))


def test_a_dataset_that_cannot_be_pickled_is_refused_before_a_process_starts():
    class Local(Numbers):
        pass

    words = (
        r"^the dataset \(Local\) cannot be sent to worker processes: \w+: .*Local.*\. Define its classes and functions "
        "at the top of a module, or use worker_type='thread'$"
    )
    with pytest.raises(LoaderWorkerError, match=words):
        list(DataLoader(Local(3), num_workers=1, worker_type="process"))


def test_a_worker_that_dies_is_an_error_and_not_a_hang():
    loader = DataLoader(Exiting(12), 2, num_workers=2, worker_type="process")

    words = (
        r"^worker process 0 \(pid \d+\) ended with exit code 3 while loading examples \[4, 5\]. A negative code is a "
        r"signal \(-9: killed, often for memory\)\. A script that loads with processes has to start under "
        r"`if __name__ == '__main__':`$"
    )
    with pytest.raises(LoaderWorkerError, match=words) as caught:
        list(loader)
    assert (0, 3) == (caught.value.worker, caught.value.exit_code)


def test_a_killed_worker_is_an_error():
    loader = DataLoader(WhoAmI(50), num_workers=1, worker_type="process", collate_fn=lambda pids: pids[0])

    with pytest.raises(LoaderWorkerError, match="exit code -9 while loading examples"):
        for pid in loader:
            os.kill(pid, signal.SIGKILL)


def test_a_worker_that_hangs_is_an_error_after_the_timeout():
    loader = DataLoader(Sleeping(6), sampler=[5], num_workers=1, worker_type="process", timeout=0.5)
    words = r"^worker process 0 \(pid \d+\) gave no batch within timeout=0.5 s; it is at examples \[5\]$"
    with pytest.raises(LoaderWorkerError, match=words):
        list(loader)


SCRIPT = """
import os, signal, sys
sys.path[:0] = {paths!r}
from loader_datasets import Sleeping, WhoAmI
from beam_pipes.map_style import ChainDataset
from beam_pipes.map_style import DataLoader

if __name__ == "__main__":
    data = ChainDataset(WhoAmI(2), Sleeping(6))
    loader = DataLoader(data, num_workers=2, worker_type="process", collate_fn=lambda examples: examples[0])
    iterator = iter(loader)
    print(next(iterator), next(iterator), flush=True)
    {end}
"""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", id="killed"),
        pytest.param("os._exit(0)", id="exits_at_once"),
        pytest.param("raise SystemExit(0)", id="exits_with_an_iterator_open"),
    ],
)
def test_no_worker_outlives_its_script(tmp_path, end):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(paths=[str(HERE), str(ROOT)], end=end))

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)

    pids = [int(word) for word in done.stdout.split()]
    assert 2 == len(pids), done.stderr
    eventually(lambda: not any(alive(pid) for pid in pids))


def test_a_script_without_a_guard_is_an_error_that_says_so(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(paths=[str(HERE), str(ROOT)], end="").replace('__name__ == "__main__"', "True"))

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)

    assert 0 != done.returncode
    assert "has to start under `if __name__ == '__main__':`" in done.stderr


def test_large_arrays_travel_beside_the_pickle():
    ours, theirs = multiprocessing.Pipe()
    value = {"large": np.arange(50_000.0), "small": np.arange(5), "empty": np.zeros((0, 3)), "text": "x"}

    messages = encode(value)
    assert 3 == len(messages)
    assert len(messages[1]) < 1000

    sender = threading.Thread(target=send, args=(ours, messages))
    sender.start()
    received = receive(theirs)
    sender.join()
    ours.close()
    with pytest.raises(EOFError):
        receive(theirs)
    theirs.close()

    for name in ("large", "small", "empty"):
        np.testing.assert_array_equal(value[name], received[name])
        assert value[name].dtype == received[name].dtype
    received["large"][0] = received["small"][0] = 1
    assert "x" == received["text"]
