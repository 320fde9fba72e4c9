"""Small tasks with caches, built by the engine; no TensorFlow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes import tasks
from beam_pipes.runners.options import LocalOptions
from beam_pipes.tasks.caches.cache_tasks import cache_tasks

VOCABULARY = tasks.PassThroughVocabulary(60_000, eos_id=1)
FEATURES = {
    "inputs": tasks.Feature(VOCABULARY, add_eos=False),
    "targets": tasks.Feature(VOCABULARY),
}
Example = dict[str, list[int]]


def pairs(identity: int, lengths: Sequence[tuple[int, int]]) -> list[Example]:
    """Examples with known tokens, which encode feature, task and number. Token 0 occurs."""
    return [
        {
            "inputs": [2 + (1000 * identity + 7 * number + place) % 50_000 for place in range(inputs)],
            "targets": [
                (3 + 1000 * identity + 11 * number + place) % 50_000 * (place != 1) for place in range(targets)
            ],
        }
        for number, (inputs, targets) in enumerate(lengths)
    ]


def some_lengths(seed: int, count: int, longest: tuple[int, int] = (30, 20)) -> list[tuple[int, int]]:
    """Lengths of inputs and targets, empty ones among them."""
    drawn = np.random.default_rng(seed).integers(0, np.array(longest) + 1, (count, 2))
    return [(int(inputs), int(targets)) for inputs, targets in drawn]


def pair_task(
    name: str,
    examples: Mapping[str, Sequence[Example]] | Sequence[Example],
    steps: Sequence[Any] = (tasks.preprocessors.append_eos_after_trim,),
    features: Mapping[str, tasks.Feature] = FEATURES,
) -> tasks.Task:
    """A registered task of these examples; `steps` come after the cut."""
    splits = dict(examples) if isinstance(examples, Mapping) else {"train": examples}

    def read(split: str, shuffle_files: bool = False) -> list[Example]:
        return list(splits[split])

    source = tasks.FunctionDataSource(read, splits=list(splits))
    return tasks.TaskRegistry.add(name, source, features, [tasks.CacheDatasetPlaceholder(), *steps])


def build_caches(directory: Path, names: str = ".*") -> None:
    """The caches of the registered tasks."""
    cache_tasks(names, directory, options=LocalOptions(workers=1), seqio_files=False, ignore_other_caches=True)


@contextlib.contextmanager
def fresh_registries(directory: Path) -> Iterator[None]:
    """Clears tasks and mixtures and searches for caches in `directory`; restores everything at the end."""
    registries = (tasks.TaskRegistry, tasks.MixtureRegistry)
    providers = [{name: registry.get(name) for name in registry.names()} for registry in registries]
    before = tasks.get_global_cache_dirs()
    for registry in registries:
        registry.reset()
    tasks.set_global_cache_dirs([str(directory)])
    try:
        yield
    finally:
        for registry, registered in zip(registries, providers, strict=True):
            registry.reset()
            for name, provider in registered.items():
                registry.add_provider(name, provider)
        tasks.set_global_cache_dirs(before)
