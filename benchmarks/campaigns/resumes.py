"""The resumption campaign: loading stopped anywhere and resumed with other hosts and workers gives the same batches."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.cache import Cache
from beam_pipes.loader import BlockShuffle, Loader, Mixture, pack

Steps = list[dict[str, "np.ndarray[Any, Any]"]]


@dataclasses.dataclass(kw_only=True)
class ResumeCounts:
    """A tuple is (source, order, step, hosts and workers before and after)."""

    tried: int = 0
    equal: int = 0
    different: list[str] = dataclasses.field(default_factory=list)


def resume_campaign(cache: Path, *, tuples: int, seed: int = 0) -> ResumeCounts:
    """`tuples` random states of loaders over the splits of a cache, each resumed to the end."""
    rng = random.Random(seed)
    split = Cache.open(cache)["train"]
    packed = pack(split, sequence_length=64, feature="lengths", overlong="split")
    sources: list[tuple[str, Any, Any]] = [
        ("rows", split, True),
        ("rows in blocks", split, BlockShuffle(window=3)),
        ("packed", packed, True),
        ("mixed", Mixture([(packed, 0.7), (packed, 0.3)], exhausted="drop"), True),
    ]
    counts = ResumeCounts()
    whole: dict[str, Steps] = {}
    for name, source, shuffle in itertools.cycle(sources):
        if counts.tried == tuples:
            return counts
        options = {"batch_size": 12, "seed": 7, "epochs": 2, "last": "pad", "shuffle": shuffle}
        if name not in whole:
            whole[name] = _global_steps([Loader(source, **options)], None)
        expected = whole[name]
        stop = rng.randint(0, len(expected))
        hosts, workers = (rng.choice([1, 2, 3, 4, 6]), rng.choice([1, 2, 3, 4, 6])), (rng.randint(0, 1), 0)
        before = _loaders(source, hosts[0], workers[0], options)
        begun = _global_steps(before, stop)
        state = before[rng.randrange(hosts[0])].get_state()
        after = _loaders(source, hosts[1], workers[1], options)
        for loader in after:
            loader.set_state(state)
        rest = _global_steps(after, None) if stop < len(expected) else []
        same = _equal(expected, begun + rest)
        counts.tried += 1
        counts.equal += same
        if not same:
            counts.different.append(f"{name} at step {stop}, hosts {hosts}, workers {workers}")
    raise AssertionError("unreachable")


def _loaders(source: Any, hosts: int, workers: int, options: dict[str, Any]) -> list[Loader]:
    return [Loader(source, host_index=host, host_count=hosts, workers=workers, **options) for host in range(hosts)]


def _global_steps(loaders: list[Loader], count: int | None) -> Steps:
    steps = []
    for batches in itertools.islice(zip(*loaders, strict=True), count):
        names = batches[0].keys()
        steps.append({name: _joined([batch[name] for batch in batches]) for name in names})
    return steps


def _joined(arrays: list[Any]) -> np.ndarray[Any, Any]:
    """Hosts pad ragged rows to their own longest; here all are padded to the overall longest before they are joined."""
    if arrays[0].ndim < 2:
        return np.concatenate(arrays)
    width = max(array.shape[1] for array in arrays)
    return np.concatenate([np.pad(array, [(0, 0), (0, width - array.shape[1])]) for array in arrays])


def _equal(left: Steps, right: Steps) -> bool:
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(left, right, strict=True)
    )
