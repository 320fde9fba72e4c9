"""Resources of a stage: what one of its calls needs of a machine, and how many calls run there at once.

The processes of a machine share its resources through a file for each kind, of which nothing but locks on ranges of
bytes is used: a call of a stage that asks for 2 of 8 GPUs holds 2,000 of 8,000 bytes while it runs. Calls of all stages
and builds of a user exclude each other there, whatever each asks for, and the kernel releases what a killed process
held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import glob
import hashlib
import math
import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping

from beam_pipes.checks import brief, known, number
from beam_pipes.engine.graph import Unit
from beam_pipes.errors import DeclarationError

# Bytes of the file for one GPU, CPU or GB: fractions of them are asked for too.
_BYTES_OF_ONE = 1000
_LOOK_EVERY_SECS = 0.01
_TIME = struct.Struct("<d")
_FAR_SECS = 24 * 3600

_GPU, _RAM, _CPU = "gpu", "ram_gb", "cpu"
_NAMES = (_GPU, "gpu_type", _RAM, _CPU)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """What one call of a stage needs: `{"gpu": 1, "gpu_type": "nvidia-l4", "ram_gb": 16, "cpu": 4}`, each optional.

    `gpu` may be a fraction, if calls share one. `gpu_type` is the name that a cloud has for the accelerator. `ram_gb`
    is in 10^9 bytes.
    """

    amounts: Mapping[str, float]
    gpu_type: str | None = None

    @classmethod
    def of(cls, asked: object, *, stage: str) -> Resources:
        """What a stage declares as its `resources`; raises `DeclarationError` for anything that is no such mapping."""
        where = f"stage {stage!r}: resources"
        if not isinstance(asked, Mapping) or not asked:
            raise DeclarationError(
                f'{where} should name what one call needs, such as {{"gpu": 1, "ram_gb": 16}}, got {brief(asked)}.',
                stage=stage,
            )
        for name in asked:
            known(name, among=_NAMES, what="resource", where=where, stage=stage)
        amounts = {
            name: float(number(asked[name], above=0, what=f"{where}[{name!r}]", stage=stage))
            for name in (_GPU, _RAM, _CPU)
            if name in asked
        }
        gpu_type = asked.get("gpu_type")
        if gpu_type is not None and (_GPU not in amounts or not isinstance(gpu_type, str)):
            raise DeclarationError(
                f"{where}: gpu_type is the name of an accelerator and goes with gpu, such as "
                f'{{"gpu": 1, "gpu_type": "nvidia-l4"}}, got {brief(asked)}.',
                stage=stage,
            )
        return cls(amounts=amounts, gpu_type=gpu_type)

    def hints(self) -> dict[str, str | int]:
        """Beam's resource hints. An accelerator without a type says as much as runners other than Dataflow read."""
        found: dict[str, str | int] = {}
        if _GPU in self.amounts:
            count = f"count:{math.ceil(self.amounts[_GPU])}"
            found["accelerator"] = f"type:{self.gpu_type};{count};install-nvidia-driver" if self.gpu_type else count
        if _RAM in self.amounts:
            found["min_ram"] = f"{self.amounts[_RAM]:.9g}GB"
        if _CPU in self.amounts:
            found["cpu_count"] = math.ceil(self.amounts[_CPU])
        return found

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Waits until this machine has what a call needs, and holds it. A machine with less runs one call at a time."""
        with contextlib.ExitStack() as stack:
            # Always in the same order, so that two calls never wait for each other.
            for kind, asked in self.amounts.items():
                stack.enter_context(_held(kind, asked))
            yield


def resources_of(units: Iterable[Unit]) -> dict[str, Resources]:
    """Unit → what it declares; units without resources are left out."""
    asked = {unit.name: getattr(unit.stage, "resources", None) for unit in units}
    return {name: Resources.of(each, stage=name) for name, each in asked.items() if each is not None}


def largest(several: Iterable[Resources]) -> Resources:
    """What a process needs in which one call of any of these runs at a time."""
    amounts: dict[str, float] = {}
    gpu_type = None
    for each in several:
        gpu_type = each.gpu_type or gpu_type
        for kind, amount in each.amounts.items():
            amounts[kind] = max(amount, amounts.get(kind, 0.0))
    return Resources(amounts=amounts, gpu_type=gpu_type)


def available(kind: str) -> float:
    """How much of a resource this machine has: GPUs that this process may see, GB of memory, CPUs."""
    if kind == _GPU:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return float(len([each for each in visible.split(",") if each.strip() not in ("", "-1")]))
        return float(len(glob.glob("/dev/nvidia[0-9]*")))
    if kind == _RAM:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def shared_file(name: str) -> int:
    """A descriptor of a file of this user that all processes of the machine share by its name."""
    path = f"{tempfile.gettempdir()}/beam-pipes-{os.getuid()}-{name}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def wait_for_turn(name: str, *, per_sec: float) -> None:
    """Waits so that all processes of the machine together come through at most so often, under one name."""
    file = shared_file(f"rate-{hashlib.sha256(name.encode()).hexdigest()[:16]}")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        now = time.monotonic()  # the same clock in all processes
        data = os.pread(file, _TIME.size, 0)
        before = _TIME.unpack(data)[0] if len(data) == _TIME.size else 0.0
        # A time far ahead is from before the machine was last started.
        at = max(now, before + 1 / per_sec) if before < now + _FAR_SECS else now
        os.pwrite(file, _TIME.pack(at), 0)
    finally:
        os.close(file)
    time.sleep(at - now)


@contextlib.contextmanager
def _held(kind: str, asked: float) -> Iterator[None]:
    file = shared_file(kind)
    try:
        size = max(1, round(asked * _BYTES_OF_ONE))
        starts = range(0, max(1, round(available(kind) * _BYTES_OF_ONE) - size + 1), size)
        while not any(_lock(file, start, size) for start in starts):
            time.sleep(_LOOK_EVERY_SECS)
        yield
    finally:
        os.close(file)  # which releases the lock


def _lock(file: int, start: int, size: int) -> bool:
    """Locks a range of bytes, unless somebody holds part of it."""
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):  # it belongs to this descriptor, and excludes other threads too
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, size, 0))
        else:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size, start)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
