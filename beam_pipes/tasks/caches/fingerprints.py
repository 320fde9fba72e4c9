"""What the cache of a task depends on, as digests: a cache is reused only when none of it has changed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import StaleCacheError
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.tasks.python_step import PythonMap
from beam_pipes.tasks.steps import Step

if TYPE_CHECKING:
    from beam_pipes.tasks.task import Task

_PREFIX = "task/"


def task_fingerprints(task: Task) -> dict[str, str]:
    """Part of a task → digest of what it depends on: `features`, and `step 0: tokenize`, ... for each offline step.

    Made of names, bound arguments, the code of functions and of what they refer to, and the content of vocabularies:
    never of paths, times, line numbers or comments. The data of the source is not in it: that is fingerprinted shard by
    shard, by the build.
    """
    steps = enumerate(task.offline_steps())
    return {"features": features_digest(task), **{part_name(n, step): step_digest(step) for n, step in steps}}


def features_digest(task: Task) -> str:
    """Digest of the output features with their vocabularies."""
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
    return hashlib.sha256(json.dumps(features, sort_keys=True).encode()).hexdigest()


def part_name(number: int, step: Step) -> str:
    """What an offline step is called in messages, accounts and fingerprints: `step 0: tokenize`."""
    return f"step {number}: {step.name}"


def step_digest(step: Step) -> str:
    """What one step depends on. Worked out once for each step: the code of a process does not change."""
    if step.digest is None:
        step.digest = fingerprint(plain_preprocessor(step.preprocessor)).digest
    return step.digest


def plain_preprocessor(preprocessor: Any) -> Any:
    """The user's function or pipeline itself, with what is bound to it, out of the wrapper of `python_map`."""
    if isinstance(preprocessor, PythonMap):
        return preprocessor.fn
    if isinstance(preprocessor, functools.partial):
        return functools.partial(plain_preprocessor(preprocessor.func), *preprocessor.args, **preprocessor.keywords)
    return preprocessor


def fingerprint_digests(task: Task) -> dict[str, str]:
    """`task_fingerprints`, named `task/<part>`: what a build stores in the manifest."""
    return {_PREFIX + part: digest for part, digest in task_fingerprints(task).items()}


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
