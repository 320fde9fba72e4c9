"""Workers without a server: claims that only one holds, workers that die, fall silent, meet errors or are ended."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kubernetes_validate
import pytest
from built_files import built_files
from portable_declarations import INPUT_VARIABLE, PACE_VARIABLE, write_files
from running_jobs import completions
from waiting import eventually

from beam_pipes.building.leftovers import remove_temporaries
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import storage_for
from beam_pipes.errors import BuildError, DeclarationError, StageError
from beam_pipes.runners import KubernetesOptions, LocalOptions, build
from beam_pipes.runners.claims import FAULT, MOST_CLAIMS, Claims, Standing, WorkOrder, work

PACED = "portable_declarations:paced"
NUM_SHARDS = 12


@pytest.fixture
def paced_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "paced"
    write_files(directory, range(NUM_SHARDS))
    monkeypatch.setenv(INPUT_VARIABLE, str(directory))
    return directory


def ordered(cache: Path, *, lease_secs: float = 60.0) -> str:
    """The order of a job that nobody has begun."""
    handle = DeclarationHandle.of(PACED)
    plan = make_plan(handle.get(), cache)
    return WorkOrder.write(handle, plan.header.root, prepare(plan), header=plan.header, lease_secs=lease_secs)


def claims_of(order: str, worker: str) -> Claims:
    return Claims(order, WorkOrder.read(order), worker=worker)


def started(order: str, name: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "beam_pipes", "work", order, "--worker", name, "--processes", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def expected(paced_input: Path, tmp_path: Path) -> dict[str, bytes]:
    build(PACED, tmp_path / "local", options=LocalOptions(workers=1))
    return built_files(tmp_path / "local")


def without_tasks(cache: Path) -> dict[str, bytes]:
    remove_temporaries(storage_for(str(cache)), str(cache))  # of killed workers, as launchers do, and the next build
    return {name: data for name, data in built_files(cache).items() if "/tasks/" not in name}


def has_completions(cache: Path, number: int) -> bool:
    return len(completions(cache)) >= number


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_killed_at_random_leave_the_same_bytes(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "0.02")
    draw, order = random.Random(seed), ordered(tmp_path / "cache")
    workers = [started(order, f"worker-{number}") for number in range(4)]
    for kills in range(1, 5):
        eventually(functools.partial(has_completions, tmp_path / "cache", 2 * kills))
        victim = draw.randrange(len(workers))
        workers[victim].kill()
        workers[victim].communicate()
        workers[victim] = started(order, f"worker-{victim}" if kills % 2 else f"other-{kills}")
    assert [worker.wait(120) for worker in workers] == [0] * len(workers), [each.communicate() for each in workers]
    assert without_tasks(tmp_path / "cache") == expected
    assert Standing.of(order) == Standing(done=NUM_SHARDS + 1, claimed=0, failed=None)


def test_a_worker_elsewhere_that_falls_silent_is_followed_after_its_lease(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    order = ordered(tmp_path / "cache", lease_secs=1.0)
    gone = Path(order).parent / "claims" / "00000003.0"
    gone.write_text(json.dumps({"pid": 1, "host": "elsewhere", "machine": "another", "worker": "gone"}))
    said: list[str] = []
    assert work(order, worker="here", say=said.append) == NUM_SHARDS
    assert said[0] == "taking over 1 source shard, left by workers that have ended."
    assert gone.with_suffix(".1").exists() and not gone.with_suffix(".2").exists()
    assert without_tasks(tmp_path / "cache") == expected


def test_a_worker_elsewhere_that_lives_is_waited_for(paced_input: Path, tmp_path: Path) -> None:
    """Its claims change, whatever its clock says."""
    order = ordered(tmp_path / "cache", lease_secs=2.0)
    slow = claims_of(order, "slow")
    slow.look()
    assert slow.take(0)
    path = Path(order).parent / "claims" / "00000000.0"
    waiting = claims_of(order, "waiting")
    for beat in range(6):
        stated = json.loads(path.read_bytes())
        path.write_text(json.dumps({**stated, "machine": "another", "beats": beat}))
        waiting.look()
        assert waiting.silent() == []
        time.sleep(0.5)
    path.write_text(json.dumps({**stated, "machine": "another", "worker": "waiting"}))
    assert waiting.silent() == [0], "it was restarted under its name"


def test_only_one_of_many_gets_a_task(paced_input: Path, tmp_path: Path) -> None:
    order = ordered(tmp_path / "cache")
    many = [claims_of(order, f"worker-{number}") for number in range(8)]
    for each in many:
        each.look()
    taken = [list(each.unclaimed([5, 7])) for each in many]
    assert sorted(number for numbers in taken for number in numbers) == [5, 7]
    many[0].give_back()
    many[1].look()
    assert list(many[1].unclaimed([5, 7])) == [5, 7]


def test_a_commit_that_another_worker_makes_is_waited_for(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes, as that of 100,000 source shards."""
    monkeypatch.setattr("beam_pipes.runners.claims._WAIT_SECS", 0.05)
    order = ordered(tmp_path / "cache")
    commit = Path(order).parent / "claims" / f"{NUM_SHARDS:08d}.0"
    who = {"pid": 1, "host": "elsewhere", "machine": "another", "worker": "slow"}
    storage = storage_for(order)  # in one step, as workers write them
    storage.replace(str(commit), json.dumps(who).encode())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work, order, worker="here")
        eventually(functools.partial(has_completions, tmp_path / "cache", NUM_SHARDS))
        for beat in range(20):
            storage.replace(str(commit), json.dumps({**who, "beats": beat}).encode())
            time.sleep(0.1)
        assert not waiting.done() and not commit.with_suffix(".1").exists()
        commit.unlink()
        assert waiting.result(60) == NUM_SHARDS
    assert without_tasks(tmp_path / "cache") == expected


def test_a_shard_that_ends_every_worker_ends_the_job(paced_input: Path, tmp_path: Path) -> None:
    order = ordered(tmp_path / "cache")
    for attempt in range(MOST_CLAIMS):
        who = {"pid": 1, "machine": "another", "worker": "lost"}
        (Path(order).parent / "claims" / f"00000002.{attempt}").write_text(json.dumps(who))
    with pytest.raises(BuildError, match=r"5 workers took the source shard of .*2.txt .*--processes.*are kept"):
        work(order, worker="lost")
    standing = Standing.of(order)
    assert standing is not None and "5 workers took" in str(standing.failed)
    assert standing.done == NUM_SHARDS - 1


def test_an_error_of_a_stage_ends_all_workers(
    paced_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ordered(tmp_path / "cache")
    other = started(order, "other", **{PACE_VARIABLE: "0.3"})
    eventually(lambda: Standing.of(order) != Standing(done=0, claimed=0, failed=None))
    monkeypatch.setenv(PACE_VARIABLE, "no number")
    with pytest.raises(StageError, match="no number"):
        work(order, worker="unlucky")
    said = other.communicate(timeout=120)[1]
    assert other.returncode == FAULT and re.search("the job has ended: .*StageError: stage 'Paced' failed", said)


def test_sigterm_gives_claims_back(expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ordered(tmp_path / "cache")
    ended = started(order, "preempted", **{PACE_VARIABLE: "0.2"})
    eventually(lambda: completions(tmp_path / "cache"))
    ended.send_signal(signal.SIGTERM)
    ended.communicate(timeout=60)
    assert ended.returncode == 128 + signal.SIGTERM
    standing = Standing.of(order)
    assert standing is not None and standing.claimed == 0 and standing.done < NUM_SHARDS
    before = signal.getsignal(signal.SIGTERM)
    work(order, worker="next", processes=2)
    assert signal.getsignal(signal.SIGTERM) is before
    assert without_tasks(tmp_path / "cache") == expected


def test_an_order_that_was_changed_is_not_run(paced_input: Path, tmp_path: Path) -> None:
    order = ordered(tmp_path / "cache")
    Path(order).write_bytes(Path(order).read_bytes() + b".")
    with pytest.raises(BuildError, match="is not the order that was written: its name is the SHA-256 of its bytes"):
        work(order, worker="careful")
    with pytest.raises(BuildError, match="expected the order of a job in .*found nothing. The job has ended"):
        work(str(tmp_path / "cache" / "order-00"), worker="late")


def test_a_disk_that_refuses_ends_one_worker_and_not_the_job(paced_input: Path, tmp_path: Path) -> None:
    order = ordered(tmp_path / "cache")
    full = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", sys.executable, "-m", "beam_pipes", "work", order],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert full.returncode == 1, full.stderr
    assert re.search("this worker ends, others go on: .*File too large", full.stderr)
    standing = Standing.of(order)
    assert standing is not None and (standing.claimed, standing.failed) == (0, None)


# In place of the cluster's: it starts the command of the container, once for each index.
KUBECTL = """#!{python}
import json, pathlib, subprocess, sys
here = pathlib.Path("{directory}")
with (here / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "create":
    manifest = json.load(sys.stdin)
    (here / "manifest").write_text(json.dumps(manifest))
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    for index in range(0 if (here / "refuses").exists() else manifest["spec"]["completions"]):
        command = [part.replace("$(JOB_COMPLETION_INDEX)", str(index)) for part in container["command"]]
        subprocess.Popen([sys.executable, *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("job.batch/paced")
elif sys.argv[1] == "get":
    if not (here / "answer").exists():
        sys.exit('Error from server (NotFound): jobs.batch "paced" not found')
    print((here / "answer").read_text())
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "kubectl"
    directory.mkdir()
    program = directory / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable, directory=directory))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr("beam_pipes.runners.clusters._ASK_EVERY_SECS", 1)
    return directory


KUBERNETES = KubernetesOptions(
    workers=2,
    image="registry.example.com/books:1",
    memory="2Gi",
    volume_claim="caches:/",
    service_account="builder",
    beam_args=("--namespace=data",),
)


def test_an_indexed_job_of_kubernetes(kubectl: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    (kubectl / "answer").write_text('{"status": {"active": 2, "ready": 2}}')
    build(PACED, tmp_path / "cache", options=KUBERNETES)
    assert built_files(tmp_path / "cache") == expected
    manifest = json.loads((kubectl / "manifest").read_bytes())
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    assert "create --filename=- --output=name --namespace=data" in (kubectl / "calls").read_text()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"conditions": [{"type": "Failed", "status": "True", "message": "DeadlineExceeded"}]}, "Failed: Deadline"),
        (None, "does not know it any more"),
    ],
    ids=["failed", "gone"],
)
def test_a_job_of_kubernetes_that_ends_early_is_lost(
    kubectl: Path, paced_input: Path, tmp_path: Path, answer: object, words: str
) -> None:
    (kubectl / "refuses").touch()
    if answer is not None:
        (kubectl / "answer").write_text(json.dumps({"status": answer}))
    with pytest.raises(BuildError, match=rf"job paced \(kubernetes\) has ended.*{words}.*0 of 13 steps are done"):
        build(PACED, tmp_path / "cache", options=KUBERNETES)


def test_pods_do_not_see_files_of_this_machine(paced_input: Path, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"which pods cannot see. Build to gs.*--volume_claim=NAME:/PATH"):
        build(PACED, tmp_path / "cache", options=KubernetesOptions(workers=2, image="books:1"))
    with pytest.raises(DeclarationError, match="volume_claim should look like 'caches:/shared', got 'caches'"):
        KubernetesOptions(workers=2, image="books:1", volume_claim="caches")
