"""What the cache of a task depends on, as plain data: a cache is reused only when none of it has changed."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import StaleCacheError
from beam_pipes.tasks.python_step import PythonMap
from beam_pipes.tasks.signatures import fully_qualified_class_name
from beam_pipes.tasks.steps import Step
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary

if TYPE_CHECKING:
    from beam_pipes.tasks.task import Task

_PREFIX = "task/"


def task_fingerprints(task: Task) -> dict[str, Any]:
    """Part of a task → what it depends on: `features`, and `step 0: tokenize`, ... for each step before the cut.

    Made of names, bound arguments, the source code of functions and the content of vocabularies: never of
    paths, times, line numbers or
    pickles. The data of the source is not in it: that is fingerprinted shard by shard, by who reads it.
    """
    features = {
        name: {
            "vocabulary": feature.vocabulary.fingerprint(),
            "add_eos": feature.add_eos,
            "required": feature.required,
            "dtype": feature.dtype.name,
            "rank": feature.rank,
        }
        for name, feature in task.output_features.items()
    }
    parts: dict[str, Any] = {"features": features}
    for number, step in enumerate(task.offline_steps()):
        parts[f"step {number}: {step.name}"] = step_fingerprint(step)
    return parts


def fingerprint_digests(task: Task) -> dict[str, str]:
    """`task_fingerprints` as digests, named `task/<part>`: what a build stores in the manifest."""
    return {
        _PREFIX + part: hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        for part, content in task_fingerprints(task).items()
    }


def check_fingerprints(task: Task, stored: Mapping[str, str], where: str) -> None:
    """Raises `StaleCacheError` if a cache was built for another version of the task; caches without digests pass."""
    before = {name: digest for name, digest in stored.items() if name.startswith(_PREFIX)}
    now = fingerprint_digests(task)
    if not before or before == now:
        return
    changed = sorted(name[len(_PREFIX) :] for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    raise StaleCacheError(
        f"the cache {where} was built for another version of task '{task.name}'; what changed: {', '.join(changed)}. "
        f"Build it again, or undo the change",
        task=task.name,
        changed=changed,
    )


def step_fingerprint(step: Step) -> Any:
    """What one step depends on."""
    return canonical(step.preprocessor)


def canonical(value: Any) -> Any:
    """A JSON-able stand-in of a value that is the same in every process."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"bytes": hashlib.sha256(value).hexdigest()}
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, map(canonical, value)))
    if isinstance(value, Vocabulary):
        return {"vocabulary": value.fingerprint()}
    if isinstance(value, functools.partial):
        return {"function": canonical(value.func), "args": canonical(value.args), "kwargs": canonical(value.keywords)}
    if isinstance(value, PythonMap):
        return canonical(value.fn)
    if inspect.isfunction(value) or inspect.ismethod(value):
        return _function(value)
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return {"array": hashlib.sha256(value.tobytes()).hexdigest(), "shape": list(value.shape)}
    state = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_stats")}
    return {"class": fully_qualified_class_name(value), "source": _source(type(value)), "state": canonical(state)}


def _function(function: Any) -> dict[str, Any]:
    wrapped = inspect.unwrap(function)
    closure = getattr(wrapped, "__closure__", None) or ()
    names = wrapped.__code__.co_freevars if closure else ()
    bound = {}
    for name, cell in zip(names, closure, strict=True):
        try:
            bound[name] = canonical(cell.cell_contents)
        except ValueError:  # a cell that is still empty: the function refers to itself
            continue
        except RecursionError:
            bound[name] = "recursive"
    return {
        "name": f"{wrapped.__module__}.{wrapped.__qualname__}",
        "source": _source(wrapped),
        "defaults": canonical(wrapped.__defaults__),
        "keyword_defaults": canonical(wrapped.__kwdefaults__),
        "closure": bound,
        "version": getattr(function, "version", None),
    }


def _source(thing: Any) -> str:
    """Digest of the source code; of the byte code where there is no source."""
    try:
        code = inspect.cleandoc(inspect.getsource(thing)).encode()
    except (OSError, TypeError):
        code = getattr(getattr(thing, "__code__", None), "co_code", b"")
    return hashlib.sha256(code).hexdigest()
