"""A disk that fails at its n-th call, and jobs that write to it: they must raise an error or succeed completely.

    python failing_disk.py               # every call of every job
    python failing_disk.py build export  # every call of these

Each try is a fork of this process in its own directory. Prints a line of JSON per job: its calls, the tries, and their
problems.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

NOT_FAILING, KINDS = 0, {"short": 1, "full": 2, "eio": 3}
STATE = struct.Struct("<4q")


class Job:
    """A job that writes, any number of times, to a directory filled by `prepare`."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def prepare(self, directory: Path) -> None: ...

    def run(self, directory: Path) -> object: ...

    def look(self, directory: Path) -> object:
        """What readers find there."""

    def allowed(self) -> list[object]:
        """The contents that readers may find after a failure; the last is the one after a success."""
        raise NotImplementedError


class Build(Job):
    """A build on top of an older one, with linked shards and one new shard."""

    declared = "sample_declarations:words"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        from sample_lines import make_lines

        (scratch / "input").mkdir(parents=True)
        os.environ["BEAM_PIPES_TEST_INPUT"] = str(scratch / "input")
        (scratch / "input" / "a.txt").write_text(make_lines(0, 120), encoding="utf-8")
        self.run(scratch / "old")
        self._before = self.look(scratch / "old")
        (scratch / "input" / "b.txt").write_text(make_lines(1, 60), encoding="utf-8")
        shutil.copytree(scratch / "old", scratch / "new")
        self.run(scratch / "new")
        self._after = self.look(scratch / "new")

    def prepare(self, directory: Path) -> None:
        shutil.copytree(self.scratch / "old", directory)

    def run(self, directory: Path) -> object:
        from beam_pipes.runners.build import build
        from beam_pipes.runners.options import LocalOptions

        return build(self.declared, directory, options=LocalOptions(workers=1))

    def look(self, directory: Path) -> object:
        from beam_pipes.cache import Cache

        cache = Cache.open(directory, verify=True)
        return cache.manifest.id, [dict(cache[split][0]).keys() for split in cache.splits]

    def allowed(self) -> list[object]:
        return [self._before, self._after]


class Analysis(Build):
    """The same, with analyzers: accumulators, results and assets."""

    declared = "analysis_declarations:analysed"


class Collection(Job):
    """`WriteToCache` on top of a snapshot that it has written before."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.count = 30
        self.run(scratch / "old")
        self._before = self.look(scratch / "old")
        self.count = 40
        self.run(scratch / "new")
        self._after = self.look(scratch / "new")

    def prepare(self, directory: Path) -> None:
        shutil.copytree(self.scratch / "old", directory)

    def run(self, directory: Path) -> object:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        from beam_pipes.beam import WriteToCache
        from beam_pipes.cache import FeatureSpec
        from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER

        with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
            values = pipeline | beam.Create([{"x": float(number)} for number in range(self.count)])
            values | WriteToCache(str(directory), features={"x": FeatureSpec("float64")}, num_shards=2, name="demo")
        return None

    look = Build.look
    allowed = Build.allowed


class Copies(Job):
    """Local copies of a remote cache."""

    def __init__(self, scratch: Path) -> None:
        import numpy as np

        from beam_pipes.cache import FeatureSpec, LocalStorage, write_cache

        class Far(LocalStorage):
            def local_path(self, path):
                return None

        super().__init__(scratch)
        self.far = Far()
        values = ({"x": np.full(999, number + 1, np.float32)} for number in range(20))
        write_cache(
            scratch / "far", {"train": values}, features={"x": FeatureSpec("float32", shape=(999,))}, num_shards=3
        )

    def run(self, directory: Path) -> object:
        from beam_pipes.loader import open_remote

        split = open_remote(
            str(self.scratch / "far"), "train", local_directory=directory, max_bytes=1 << 20, storage=self.far
        )
        found = split.gather(list(range(len(split))))["x"]
        if not ((found == found[:, :1]).all() and sorted(found[:, 0]) == list(range(1, 21))):
            raise AssertionError(f"wrong records: {found[:, 0].tolist()}")
        return None

    look = run

    def allowed(self) -> list[object]:
        return [None]


class Export(Job):
    """An export into formats that are written in different ways."""

    formats = ("parquet", "webdataset", "mds", "megatron", "tfx", "croissant")

    def __init__(self, scratch: Path) -> None:
        import numpy as np

        from beam_pipes.cache import FeatureSpec, write_cache

        super().__init__(scratch)
        values = ({"x": np.arange(number % 7 + 1, dtype=np.int32)} for number in range(40))
        write_cache(scratch / "cache", {"train": values}, features={"x": FeatureSpec("int32", shape=(None,))})
        self.run(scratch / "exported")
        self._exported = self.look(scratch / "exported")

    def prepare(self, directory: Path) -> None:
        directory.mkdir()

    def run(self, directory: Path) -> object:
        from beam_pipes.export import export

        directory.mkdir(exist_ok=True)
        for name in self.formats:
            if not (directory / name).exists():
                export(str(self.scratch / "cache"), directory / name, format=name)
        return None

    def look(self, directory: Path) -> object:
        whole = {name: {} for name in self.formats if (directory / name).exists()}
        for name, files in whole.items():
            for path in sorted((directory / name).rglob("*")):
                if path.is_file():
                    files[str(path.relative_to(directory))] = path.read_bytes()
        return whole

    def allowed(self) -> list[object]:
        made = self._exported
        return [{name: made[name] for name in self.formats[:number]} for number in range(len(self.formats) + 1)]


class ForeignExport(Export):
    """Exports by libraries that keep threads, so that a fork of this process may crash: not part of the suite."""

    formats = ("tfds", "arrayrecord")


class Cluster(Build):
    """The build by a worker that claims shards by files, and a second one that finishes what the first left."""

    def run(self, directory: Path) -> object:
        from beam_pipes.building.plan import make_plan, prepare
        from beam_pipes.building.references import DeclarationHandle
        from beam_pipes.runners import claims
        from beam_pipes.runners.claims import WorkOrder, work

        claims._WAIT_SECS = 0.05  # nobody else works here
        handle = DeclarationHandle.of(self.declared)
        plan = make_plan(handle.get(), directory)
        order = WorkOrder.write(
            handle, plan.header.root, prepare(plan), header=plan.header, is_followed=False, lease_secs=1.0
        )
        return work(order, worker="a worker")


class OfACache(Job):
    """What is written beside the shards of a cache, or about it."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.build = Build(scratch / "build")
        self.prepare(scratch / "tried")
        self._before = self.look(scratch / "tried")
        self.run(scratch / "tried")
        self._after = self.look(scratch / "tried")

    def prepare(self, directory: Path) -> None:
        shutil.copytree(self.scratch / "build" / "new", directory)

    def allowed(self) -> list[object]:
        return [self._before, self._after]


class Column(OfACache):
    """A column of a cache."""

    def run(self, directory: Path) -> object:
        from beam_pipes import add_column, stage

        @stage
        def score(record: dict) -> dict[str, object]:
            return {"score": len(record)}

        return add_column("score", directory, score, workers=1)

    def look(self, directory: Path) -> object:
        from beam_pipes import Cache, with_columns
        from beam_pipes.errors import BeamPipesError

        splits = Cache.open(directory, verify=True).splits
        try:
            return [with_columns(directory / split, "score").gather([0, 1])["score"].tolist() for split in splits]
        except BeamPipesError:
            return "no column"


class Signature(OfACache):
    """A signature of a snapshot."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self.key = scratch / "key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
        subprocess.run(command, check=True)
        super().__init__(scratch)

    def run(self, directory: Path) -> object:
        from beam_pipes.cache.signature import sign

        return sign(directory, key=self.key)

    def look(self, directory: Path) -> object:
        from beam_pipes import Cache
        from beam_pipes.errors import SignatureError

        try:
            return Cache.open(directory, trusted=[f"{self.key}.pub"]).manifest.id
        except SignatureError as error:
            if "this snapshot is not signed" not in str(error):
                raise
            return "no signature"


class Beside(OfACache):
    """Single files about a cache: a packing plan, DALI's index, recorded losses, a page, records as JSON."""

    def prepare(self, directory: Path) -> None:
        directory.mkdir()

    def run(self, directory: Path) -> object:
        from beam_pipes import Cache, Loader
        from beam_pipes.export.export import export_dali_index
        from beam_pipes.loader import pack
        from beam_pipes.telemetry import LossRecorder

        directory.mkdir(exist_ok=True)
        cache = Cache.open(self.scratch / "build" / "new")
        split = cache[cache.splits[0]]
        export_dali_index(cache, directory / "dali")
        pack(split, sequence_length=64).save(directory / "plan")
        with LossRecorder(directory / "losses", Loader(split, batch_size=4, seed=1)) as losses:
            for step in range(3):
                losses.record([float(step)] * 4, step=step)
        return None

    def look(self, directory: Path) -> object:
        from beam_pipes.loader import PackingPlan
        from beam_pipes.telemetry.losses import _whole_bytes

        if (directory / "plan").exists():
            PackingPlan.load(directory / "plan")
        for losses in (directory / "losses").glob("*"):
            _whole_bytes(str(losses))  # an error if another record follows half of one
        paths = sorted(path for path in directory.rglob("*") if path.is_file() and "losses" not in path.parts)
        return [(str(path.relative_to(directory)), path.read_bytes()) for path in paths]

    def allowed(self) -> list[object]:
        # Each file is written whole, one after the other.
        return [self._after[:number] for number in range(len(self._after) + 1)]


class Takedown(Job):
    """A takedown of records, and its line in the audit."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.build = Build(scratch / "build")

    def prepare(self, directory: Path) -> None:
        shutil.copytree(self.scratch / "build" / "new", directory)

    def run(self, directory: Path) -> object:
        from beam_pipes.building.takedown import take_down

        if not self.look(directory):
            take_down(directory, ["a.txt@0", "b.txt@0"], by="me")
        return None

    def look(self, directory: Path) -> object:
        from beam_pipes.cache import Cache

        cache = Cache.open(directory, verify=True)
        audit = directory / "takedown.log"
        for line in audit.read_bytes().split(b"\n")[:-1] if audit.exists() else ():
            json.loads(line)
        return [each.ids for each in cache.takedowns.takedowns]

    def allowed(self) -> list[object]:
        return [[], [("a.txt@0", "b.txt@0")]]


JOBS: dict[str, type[Job]] = {
    "build": Build,
    "analysis": Analysis,
    "write_to_cache": Collection,
    "local_copies": Copies,
    "export": Export,
    "takedown": Takedown,
    "cluster": Cluster,
    "column": Column,
    "signature": Signature,
    "beside": Beside,
}
ALL_JOBS = {**JOBS, "foreign_export": ForeignExport}


class Disk:
    """The state that the preloaded library shares with us."""

    def __init__(self) -> None:
        self.directory = Path(os.environ["FAILING_DIRECTORY"])
        self._file = os.environ["FAILING_STATE"]

    def fail(self, kind: int, at: int) -> None:
        with open(self._file, "r+b") as file:
            file.write(STATE.pack(kind, at, 0, 0))

    def calls(self) -> tuple[int, bool]:
        _, _, calls, happened = STATE.unpack(Path(self._file).read_bytes())
        return calls, bool(happened)


def tried(job: Job, disk: Disk, kind: str, at: int) -> str:
    """Runs the job in a fork with one failing call; what was wrong, or nothing."""
    directory = disk.directory / f"{kind}-{at}"

    def trial() -> str:
        from beam_pipes.errors import BeamPipesError

        job.prepare(directory)
        failed: BaseException | None = None
        disk.fail(KINDS[kind], at)
        try:
            job.run(directory)
        except BeamPipesError as error:
            failed = error
        finally:
            disk.fail(NOT_FAILING, 0)
        allowed = job.allowed()
        found = job.look(directory)
        if found not in allowed or (failed is None and found != allowed[-1]):
            return f"after {failed or 'success'}: found {found!r:.300}"
        job.run(directory)
        if (found := job.look(directory)) != allowed[-1]:
            return f"after {failed or 'success'}, and once more: found {found!r:.300}"
        # Not of leases: readers write these on threads, at any time.
        files = [path for path in directory.rglob("*") if "leases" not in path.parts]
        left = [str(path) for path in files if path.name.startswith(".tmp-") or path.suffix == ".part"]
        return f"after {failed or 'success'}, and once more: left {left}" if left else ""

    wrong = in_fork(trial)
    shutil.rmtree(directory, ignore_errors=True)
    return wrong


def in_fork(call: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(120)
        try:
            told = call()
        except BaseException:
            told = traceback.format_exc()[-1500:]
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        told = file.read().decode()
    _, status = os.waitpid(pid, 0)
    return told if status == 0 else f"ended with status {status}"


def campaign(name: str, *, tries: int | None) -> dict[str, object]:
    """Tries calls of a job, `tries` of each kind or all of them."""
    disk = Disk()
    job = ALL_JOBS[name](Path(tempfile.mkdtemp(prefix=f"{name}-")))
    counted = disk.directory / "counted"

    def count() -> str:
        job.prepare(counted)
        disk.fail(KINDS["eio"], -1)
        job.run(counted)
        calls = disk.calls()[0]
        disk.fail(NOT_FAILING, 0)
        return str(calls)

    told = in_fork(count)
    shutil.rmtree(counted, ignore_errors=True)
    if not told.isdigit():
        return {"job": name, "wrong": [told]}
    calls = int(told)
    steps = range(1, calls + 1) if tries is None else sorted({1 + calls * n // tries for n in range(tries)})
    wrong = [
        f"{kind} at call {at} of {calls}: {told}"
        for kind in KINDS
        for at in steps
        if (told := tried(job, disk, kind, at))
    ]
    shutil.rmtree(job.scratch, ignore_errors=True)
    return {"job": name, "calls": calls, "tries": len(KINDS) * len(steps), "wrong": wrong}


def run_all(directory: Path, names: list[str], *, tries: int | None) -> list[dict[str, object]]:
    """Compiles the library and runs jobs below `directory`, in a process of their own."""
    library, state = directory / "failing_disk.so", directory / "state"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    state.write_bytes(bytes(STATE.size))
    (directory / "disk").mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAILING_STATE": str(state),
        "FAILING_DIRECTORY": str(directory / "disk"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, __file__, "here", "" if tries is None else str(tries), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"job"')]


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        for each in sys.argv[3:]:
            print(json.dumps(campaign(each, tries=int(sys.argv[2]) if sys.argv[2] else None)), flush=True)
    else:
        with tempfile.TemporaryDirectory() as made:
            for found in run_all(Path(made), sys.argv[1:] or list(ALL_JOBS), tries=None):
                print(json.dumps(found, indent=1))
