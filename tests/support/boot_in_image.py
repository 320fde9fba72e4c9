"""Lays out an image of the Dockerfile in a directory, and runs its entrypoint there until a worker of Beam answers.

    unshare --mount --net --pid --fork python boot_in_image.py TARGET [ARGUMENT…]

Files that a step copies from another image come from this machine: Beam's boot program, built from the Go module proxy,
and Python with the packages of this environment, read-only. All other steps are carried out. The entrypoint runs in
that tree, as the user, with the environment and in the directory of the image; with `--worker_pool` the worker is
requested from the pool, as by Flink. Prints the worker's identity as JSON.

Mounts, network and processes are in namespaces of this program, and end with it.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
BOOT = Path(sys.executable).with_name("container")  # Go names a program after its directory
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
_SECS = 120.0


class Image:
    """The tree of a target, and what its steps say about the process that runs in it."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.workdir = "/"
        self.user = "0:0"
        self.entrypoint: list[str] = []
        self._lay_out_base()

    def _lay_out_base(self) -> None:
        """The Python image that the Dockerfile begins with: Debian, Python, and nobody but root."""
        _mount("-t", "tmpfs", "tmpfs", self.tree)
        self.tree.chmod(0o755)
        for name in ("usr", "bin", "sbin", "lib", "lib64"):
            place = Path("/", name)
            if place.is_symlink():
                (self.tree / name).symlink_to(os.readlink(place))
            elif place.exists():
                self._bind(place, self.tree / name)
        _mount("-t", "tmpfs", "tmpfs", self.tree / "usr/local")
        for name in ("etc", "dev", "proc", "root", "tmp", "usr/local/bin"):
            (self.tree / name).mkdir()
        (self.tree / "tmp").chmod(0o1777)
        (self.tree / "root").chmod(0o700)
        (self.tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (self.tree / "etc/group").write_text("root:x:0:\n")
        (self.tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
        if Path("/etc/ld.so.cache").exists():
            shutil.copy("/etc/ld.so.cache", self.tree / "etc")
        _mount("--rbind", "/dev", self.tree / "dev")
        _mount("-t", "proc", "proc", self.tree / "proc")
        python, version = Path(sys.base_prefix), Path(PACKAGES).parent.name
        self._bind(python / "lib", self.tree / "usr/local/lib")
        self.environment["LD_LIBRARY_PATH"] = "/usr/local/lib"  # a Python that was built elsewhere looks there
        self._bind(Path(PACKAGES), self.tree / "usr/local/lib" / version / "site-packages")
        self._bind(ROOT, self._below(ROOT))  # which the packages have by its path
        shutil.copy(python / "bin" / version, self.tree / "usr/local/bin/python")

    def _below(self, place: Path | str) -> Path:
        return self.tree / str(place).lstrip("/")

    def _bind(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        _mount("--bind", source, target)
        _mount("-o", "remount,ro,bind", target)

    def carry_out(self, step: dict[str, Any]) -> None:
        kind, value = step["instruction"], step["value"]
        if kind == "ENV":
            self.environment |= dict(re.findall(r"(\w+)=(\S+)", value))
        elif kind == "WORKDIR":
            self.workdir = value
            self._below(value).mkdir(parents=True, exist_ok=True)
        elif kind == "USER":
            self.user = value
        elif kind == "ENTRYPOINT":
            self.entrypoint = json.loads(value)
        elif kind == "RUN":
            subprocess.run(["chroot", self.tree, "sh", "-euc", value], env=self.environment, check=True)
        elif kind == "COPY":
            self._copy(value.split())
        elif kind != "FROM":
            raise NotImplementedError(step)

    def _copy(self, words: list[str]) -> None:
        *sources, target = words
        if sources[0] == "--from=beam":
            self._below(target).mkdir(parents=True)
            shutil.copy(BOOT, self._below(target) / "boot")
        elif not sources[0].startswith("--from="):
            self._below(target).mkdir(parents=True, exist_ok=True)
            for source in sources:
                shutil.copy(ROOT / source, self._below(target))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        user, group = self.user.split(":")
        ids = ["--reuid", user, "--regid", group, "--clear-groups"]
        # Not by `setpriv` outside the tree: user names are those of the image.
        inside = ["setpriv", *ids, "sh", "-c", f'cd {self.workdir} && exec "$@"', "sh", *self.entrypoint, *arguments]
        return subprocess.Popen(["chroot", self.tree, *inside], env=self.environment, stdout=sys.stderr)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def image_of(target: str) -> Image:
    """Lays out a target and the stages it is built from; both begin with the same Python image."""
    stages: dict[str, list[dict[str, Any]]] = {}
    bases: dict[str, str] = {}
    for step in DockerfileParser(path=str(ROOT / "Dockerfile")).structure:
        if step["instruction"] == "FROM":
            base, name = step["value"].split(" AS ")
            stages[name], bases[name] = [], base
            steps = stages[name]
        elif step["instruction"] != "COMMENT" and stages:
            steps.append(step)
    chain = [target]
    while bases[chain[-1]] in stages:
        chain.append(bases[chain[-1]])
    image = Image(Path(tempfile.mkdtemp(prefix="image-")))
    for name in reversed(chain):
        for step in stages[name]:
            image.carry_out(step)
    return image


class _Runner(
    beam_provision_api_pb2_grpc.ProvisionServiceServicer,
    beam_fn_api_pb2_grpc.BeamFnLoggingServicer,
    beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceServicer,
    beam_fn_api_pb2_grpc.BeamFnControlServicer,
):
    """A runner with one question for its worker."""

    def __init__(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        for add in (
            beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server,
            beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server,
            beam_artifact_api_pb2_grpc.add_ArtifactRetrievalServiceServicer_to_server,
            beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server,
        ):
            add(self, self._server)
        self.url = f"localhost:{self._server.add_insecure_port('localhost:0')}"
        self.answers: queue.Queue[Any] = queue.Queue()
        self._server.start()

    @property
    def endpoint(self) -> endpoints_pb2.ApiServiceDescriptor:
        return endpoints_pb2.ApiServiceDescriptor(url=self.url)

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        info = beam_provision_api_pb2.ProvisionInfo(
            logging_endpoint=self.endpoint, artifact_endpoint=self.endpoint, control_endpoint=self.endpoint
        )
        info.pipeline_options.update({"beam:option:job_name:v1": "books"})
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)

    def Logging(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            for entry in request.log_entries:
                print(entry.message, file=sys.stderr)
        yield from ()

    def Control(self, responses: Iterator[Any], context: Any) -> Iterator[Any]:
        yield beam_fn_api_pb2.InstructionRequest(
            instruction_id="question", harness_monitoring_infos=beam_fn_api_pb2.HarnessMonitoringInfosRequest()
        )
        for response in responses:
            self.answers.put(response)


def _ask_pool(runner: _Runner) -> None:
    """Asks the pool for a worker, once it serves."""
    channel = grpc.insecure_channel("localhost:50000")
    grpc.channel_ready_future(channel).result(timeout=_SECS)
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id="1",
        control_endpoint=runner.endpoint,
        logging_endpoint=runner.endpoint,
        artifact_endpoint=runner.endpoint,
        provision_endpoint=runner.endpoint,
    )
    started = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(request)
    assert not started.error, started.error


def _answered(runner: _Runner, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return not runner.answers.get(timeout=0.2).error
        except queue.Empty:
            continue
    return False


def _worker(tree: Path) -> dict[str, object]:
    """Who runs Beam's harness, and where."""
    for place in Path("/proc").glob("[0-9]*"):
        if b"apache_beam.runners.worker.sdk_worker_main" in (place / "cmdline").read_bytes():
            status = (place / "status").read_text()
            [user, group] = re.findall(r"^[UG]id:\t(\d+)", status, re.MULTILINE)
            workdir = "/" + os.path.relpath(os.readlink(place / "cwd"), tree)
            return {"user": f"{user}:{group}", "workdir": workdir}
    raise AssertionError("no process of Beam's harness")


def main(target: str, *arguments: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _mount("-t", "proc", "proc", "/proc")
    image, runner = image_of(target), _Runner()
    if arguments:
        process = image.start(*arguments)
        threading.Thread(target=_ask_pool, args=(runner,), daemon=True).start()
    else:
        process = image.start("--id=1", f"--provision_endpoint={runner.url}")
    answered = _answered(runner, process)
    print(json.dumps({"answered": answered, "exit": process.poll(), **(_worker(image.tree) if answered else {})}))
    sys.stdout.flush()
    os._exit(0)  # and with the first process of the namespace end all others


if __name__ == "__main__":
    main(*sys.argv[1:])
