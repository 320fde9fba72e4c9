"""Why a stage's output differs for the same input: found by experiment, named by what the stage calls."""

from __future__ import annotations

import copy
import dataclasses
import io
import os
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_pipes.engine.graph import Stage
from beam_pipes.testing.one_unit import OneUnit
from beam_pipes.testing.values import value_digest

# (module or type, name) of a function written in C → the kind of cause, and its name for users.
_CALLS: dict[tuple[str, str], tuple[str, str]] = {
    **{
        ("time", name): ("clock", f"time.{name}")
        for name in (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
            "process_time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime",
        )
    },
    **{("datetime", name): ("clock", f"datetime.datetime.{name}") for name in ("now", "utcnow")},
    ("datetime", "today"): ("clock", "datetime.datetime.today"),
    ("date", "today"): ("clock", "datetime.date.today"),
    ("posix", "urandom"): ("entropy", "os.urandom"),
    ("posix", "getrandom"): ("entropy", "os.getrandom"),
    ("posix", "getpid"): ("process", "os.getpid"),
    ("posix", "getppid"): ("process", "os.getppid"),
    ("_thread", "get_ident"): ("process", "threading.get_ident"),
    ("_socket", "gethostname"): ("process", "socket.gethostname"),
    ("builtins", "id"): ("identity", "id"),
    ("builtins", "hash"): ("hash_seed", "hash"),
    ("posix", "getcwd"): ("working_directory", "os.getcwd"),
    ("posix", "getenv"): ("environment", "os.environ"),
}  # fmt: skip
# File of the standard library → prefix of functions whose calls count as the user's own, and the kind of cause.
_PYTHON_CALLS = {
    "uuid.py": ("uuid", "entropy"),
    "secrets.py": ("", "entropy"),
}
_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} | {"<frozen"})


@dataclasses.dataclass(frozen=True)
class Cause:
    """`kind` is one of `KINDS`; `what` the call, attribute or variable; `place` the line, if known."""

    kind: str
    what: str | None = None
    place: str | None = None


def calls_of(run: Callable[[], object]) -> dict[str, Cause]:
    """The calls of functions whose results do not depend on their arguments alone: kind → the first of them."""
    found: dict[str, Cause] = {}
    run()  # the first call imports and compiles, which makes such calls too
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def look(frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            owner = getattr(argument, "__self__", None)
            where = owner.__name__ if isinstance(owner, (types.ModuleType, type)) else ""
            known = _CALLS.get((where.rpartition(".")[2], argument.__name__))
        elif event == "call":
            file = os.path.basename(frame.f_code.co_filename)
            prefix, kind = _PYTHON_CALLS.get(file, ("-", ""))
            name = frame.f_code.co_name
            known = (kind, f"{file[:-3]}.{name}") if name.startswith(prefix) and name.isidentifier() else None
            if name == "__getitem__" and frame.f_globals.get("__name__") == "os":
                known = "environment", str(frame.f_locals.get("key"))
        else:
            return
        if known is None or known[0] in found:
            return
        user = _user_frame(frame, package)
        if user is not None:
            place = f"{os.path.basename(user.f_code.co_filename)}:{user.f_lineno}"
            found[known[0]] = Cause(known[0], known[1], place)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def _user_frame(frame: types.FrameType | None, package: str) -> types.FrameType | None:
    """The nearest frame outside our code and the standard library; None if our code comes first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(package + os.sep):
            return None
        if not file.startswith(_LIBRARY) or "site-packages" in file:
            return frame
        frame = frame.f_back
    return None


@dataclasses.dataclass(frozen=True)
class State:
    """Digests of the state that a stage may keep between records: its attributes and its module's variables."""

    attributes: dict[str, str]
    variables: dict[str, str]

    @classmethod
    def of(cls, stage: object) -> State:
        return cls(_attributes(stage), _variables(stage))


def cause_of(one: OneUnit, at: int, before: State) -> Cause:
    """Why the outcome of record `at` changes within a process, from one run to the next; `before` all runs."""
    stage = one.unit.stage

    def run(stage: Stage | None = None) -> str:
        return one.run([at], stage=stage).outcomes[at].digest

    generators = _moved_generators(run)
    if generators:
        states = _generator_states()
        first = run()
        _restore(states)
        if run() == first:
            return Cause("random", " and ".join(generators))
    calls = calls_of(run)
    if "entropy" in calls:
        return calls["entropy"]
    now = State.of(stage)
    attributes = _changed(before.attributes, now.attributes)
    if attributes and _fresh_ones_agree(stage, run):
        shown = stage.__dict__.get(attributes[0])
        what = "open file" if isinstance(shown, io.IOBase) else "attribute"
        return Cause("state", f"its {what} `{attributes[0]}` changes from record to record")
    for kind in ("clock", "identity", "process"):
        if kind in calls:
            return calls[kind]
    variables = _changed(before.variables, now.variables)
    if variables:
        return Cause("state", f"the variable `{variables[0]}` of its module changes from record to record")
    cached = _cached_functions(stage, run)
    if cached:
        return Cause("state", f"`{cached}` of its module remembers earlier calls")
    return Cause("state" if attributes else "unknown")


def _generator_states() -> tuple[object, object]:
    return random.getstate(), np.random.get_state()


def _restore(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _moved_generators(run: Callable[[], object]) -> list[str]:
    """Which of the global generators a call draws from."""
    before = _generator_states()
    run()
    after = _generator_states()
    moved = ["`random`"] if before[0] != after[0] else []
    return [*moved, "`numpy.random`"] if repr(before[1]) != repr(after[1]) or _moved(before[1], after[1]) else moved


def _moved(before: Any, after: Any) -> bool:
    return not all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def _fresh_ones_agree(stage: Stage, run: Callable[[Stage], str]) -> bool:
    try:
        return len({run(copy.deepcopy(stage)) for _ in range(2)}) == 1
    except Exception:
        return True  # cannot be copied; its attributes changed


def _changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in now if before.get(name) != now[name]]


def _attributes(stage: object) -> dict[str, str]:
    of_framework = {"_left_by_thread", "transform_batch"}
    return {name: _state_digest(value) for name, value in vars(stage).items() if name not in of_framework}


def _variables(stage: object) -> dict[str, str]:
    module = sys.modules.get(stage.__module__)
    kinds = (bool, int, float, str, bytes, list, dict, set, bytearray, np.ndarray, random.Random, io.IOBase)
    return {
        name: _state_digest(value)
        for name, value in vars(module).items()
        if not name.startswith("__") and (isinstance(value, kinds) or type(value).__module__ == "collections")
    }


def _cached_functions(stage: object, run: Callable[[], object]) -> str | None:
    module = sys.modules.get(stage.__module__)
    cached = {
        name: value
        for name, value in getattr(module, "__dict__", {}).items()
        if callable(getattr(value, "cache_clear", None))
    }
    for name, function in cached.items():
        before = function.cache_info()
        run()
        if function.cache_info() != before:
            return str(name)
    return None


def _state_digest(value: object) -> str:
    if isinstance(value, random.Random):
        return str(hash(value.getstate()))
    if isinstance(value, io.IOBase):
        return str(value.tell()) if not value.closed and value.seekable() else "not seekable"
    if isinstance(value, Iterator):
        return str(getattr(value, "__length_hint__", int)()) + repr(value)
    return value_digest(value)
