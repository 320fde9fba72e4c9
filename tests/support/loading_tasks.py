"""Cached tasks and mixtures for tests of loading."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cached_tasks import build_caches, fresh_registries, pair_task, pairs, some_lengths

from beam_pipes import tasks

LENGTHS = {"inputs": 40, "targets": 32}
SIZES = {"a": 90, "b": 37, "c": 160}


@tasks.python_map
def doubled(example):
    return {**example, "targets": [*example["targets"], *example["targets"]]}


@tasks.python_map
def in_two_or_none(example):
    """An example with long targets becomes two, one without targets none."""
    targets = example["targets"]
    if not len(targets):
        return None
    parts = [targets[:10], targets[10:]] if len(targets) > 10 else [targets]
    return [{**example, "targets": part} for part in parts]


@tasks.python_map
def noisy(example, rng):
    return {**example, "inputs": rng.integers(2, 50_000, size=5, dtype=np.int32)}


def filtered(dataset):
    return dataset.filter(lambda example: True)


@contextlib.contextmanager
def cached_tasks_to_load(directory: Path) -> Iterator[Path]:
    """Tasks of pairs, some with steps after the cut, and mixtures of them, all cached in `directory`."""
    with fresh_registries(directory):
        for identity, (name, count) in enumerate(SIZES.items()):
            pair_task(name, pairs(identity, some_lengths(identity, count)))
        eos = tasks.preprocessors.append_eos
        pair_task("doubled", pairs(4, some_lengths(4, 30)), [doubled, eos])
        pair_task("divided", pairs(5, some_lengths(5, 50)), [in_two_or_none])
        pair_task("noisy", pairs(6, some_lengths(6, 40)), [noisy])
        pair_task("in_tensorflow", pairs(7, some_lengths(7, 3)), [filtered])
        pair_task("long", pairs(8, some_lengths(8, 60, (90, 90))))
        aligned = [(size, size) for size, _ in some_lengths(9, 60)]
        pair_task("aligned", pairs(9, aligned), [])
        pair_task("empty", {"train": [], "validation": pairs(10, some_lengths(10, 3))}, [])
        tasks.MixtureRegistry.add("abc", [("a", 1), ("b", 1), ("c", 3)])
        tasks.MixtureRegistry.add("ab", [("a", 0.7), ("b", 0.3)])
        tasks.MixtureRegistry.add("even", [("a", 1), ("b", 1)])
        build_caches(directory)
        yield directory


def text(batch: Mapping[str, np.ndarray]) -> list[str]:
    """Each row of a batch, as comparable text."""
    names = sorted(batch)
    rows = len(batch[names[0]])
    return [json.dumps({name: batch[name][row].tolist() for name in names}) for row in range(rows)]


def global_rows(loaders: list[Any], steps: int | None = None) -> list[list[str]]:
    """The global batches of all hosts together, as text."""
    iterators = [iter(loader) for loader in loaders]
    found: list[list[str]] = []
    while steps is None or len(found) < steps:
        parts = [next(iterator, None) for iterator in iterators]
        assert len({part is None for part in parts}) == 1, "hosts took other numbers of steps"
        if parts[0] is None:
            break
        found.append([row for part in parts if part is not None for row in text(part)])
    return found
