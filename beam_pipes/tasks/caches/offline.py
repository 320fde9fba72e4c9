"""What a build needs of a task: its shards and fingerprints, the spec of its cached examples, and how workers find it.

`TaskReference` travels to workers in place of the task: a name, and the modules that register it. `raw_bytes` and
`example_of` store raw examples other than text lines in a dead letter and restore them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.format import messages
from beam_pipes.format.exact import NotExactError, NotNumbersError, cast_exactly, natural_array
from beam_pipes.format.spec import Encoding, ExampleSpec, FeatureSpec
from beam_pipes.identity.source_code import import_user_module
from beam_pipes.tasks.providers.registry import TaskRegistry
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.providers.task_examples import as_mapping, stream_shard
from beam_pipes.tasks.steps.examples import ExampleValue, dtype_name, rank_of
from beam_pipes.tasks.steps.ragged import assembled, num_ragged, stored


@dataclasses.dataclass(frozen=True)
class TaskDeclarationParts:
    """What a build needs to know of a task.

    Attributes:
        task: the task.
        shards: split → names of the shards of its source, in order: the units of work.
        fingerprints: part of the task → digest of what it depends on: features with their vocabularies, and each
            offline step (its name, bound arguments and code, and the code that it refers to).
    """

    task: Task
    shards: Mapping[str, Sequence[str]]
    fingerprints: Mapping[str, str]

    def spec(self, split: str, *, seed: int, encoding: Encoding = "raw") -> ExampleSpec:
        """The spec of the cached examples of a split: reads until the first one."""
        examples = (example for shard in self.shards[split] for example in self.stream(split, shard, seed=seed))
        return cached_spec(self.task, next(examples, None), encoding=encoding)

    def stream(self, split: str, shard: str, *, seed: int) -> Iterator[dict[str, ExampleValue]]:
        """The cached examples of one shard."""
        made = stream_shard(self.task, split, shard, seed=seed)
        return (stored(as_mapping(self.task, example)) for example in made)


def task_declaration_parts(task: Task, splits: Iterable[str] | None = None) -> TaskDeclarationParts:
    """A task as units of work, for a build.

    Raises:
        TaskError: the task has no `CacheDatasetPlaceholder`.
    """
    from beam_pipes.tasks.providers.task_cache import task_fingerprints

    if not task.supports_caching:
        raise TaskError(
            f"task '{task.name}' cannot be cached: add a CacheDatasetPlaceholder to its preprocessors", task=task.name
        )
    shards = {split: tuple(task.source.list_shards(split)) for split in (splits or task.splits)}
    return TaskDeclarationParts(task, shards, task_fingerprints(task))


def cached_spec(task: Task, example: Mapping[str, ExampleValue] | None, *, encoding: Encoding = "raw") -> ExampleSpec:
    """The spec of a task's cached examples, from one of them; every dimension may vary.

    `{"targets": int32 [5], "targets_pretokenized": b"hi"}` → `targets: int32 (None,), targets_pretokenized: bytes ()`.

    Args:
        task: the task.
        example: a cached example; None, for a split without any, takes the output features.
        encoding: "list" for caches that readers of `tf.train.Example` lists should be able to open. Features that such
            lists cannot hold exactly (float64, uint64) stay raw.
    """
    if example is None:
        found = {name: (f.dtype.name, f.rank) for name, f in task.output_features.items()}
    else:
        found = {name: (dtype_name(value), rank_of(value)) for name, value in example.items()}
    features = {}
    for name, (dtype, rank) in found.items():
        kept: Encoding = "raw" if dtype in ("float64", "uint64") else encoding
        inner = (
            np.shape(example[name])[1:] if example is not None and num_ragged(name, example) else (None,) * (rank - 1)
        )
        shape = (None, *inner) if rank else ()
        features[name] = FeatureSpec("bytes" if dtype == "string" else dtype, shape=shape, encoding=kept)
    return ExampleSpec(features)


class TaskReference:
    """A task by its registered name, and the modules whose import registers it.

    It is sent to workers as names; they import the modules when the task is first requested.

    Args:
        task: a name, or an unregistered task, which cannot leave this process.
        modules: names of modules to import first.
    """

    def __init__(self, task: str | Task, modules: Sequence[str] = ()) -> None:
        self.name = task if isinstance(task, str) else task.name
        self.modules = tuple(modules)
        self._task: Task | None = None if isinstance(task, str) else task

    def get(self) -> Task:
        """The task.

        Raises `UnknownNameError` if no module has registered it, `DeclarationError` if a module cannot be found.
        """
        if self._task is None:
            import_modules(self.modules)
            self._task = TaskRegistry.get(self.name)
        return self._task

    def __getstate__(self) -> dict[str, object]:
        if self._task is not None and (
            self.name not in TaskRegistry.names() or TaskRegistry.get(self.name) is not self._task
        ):
            raise DeclarationError(
                f"task {self.name!r} is registered nowhere, so other processes cannot find it. Register it in a "
                "module with TaskRegistry.add, or build with workers=1.",
                task=self.name,
            )
        return {"name": self.name, "modules": self.modules, "_task": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"TaskReference({self.name!r}, modules={list(self.modules)})"


def import_modules(modules: Sequence[str]) -> None:
    """Imports the modules that register tasks. Raises `DeclarationError` if one is missing or fails."""
    for module in modules:
        import_user_module(module)


# The feature that holds an example that is a single value rather than a mapping.
_WHOLE = "value"


def raw_bytes(example: object) -> bytes:
    """A line unchanged; anything else as a `tf.train.Example` of lists of int64, float32 and bytes.

    Integers beyond int64, and floats that would become infinite, are kept as text: a stage that rereads the dead letter
    then fails instead of accepting another number.

    `b"a line"` → `b"a line"`; `{"id": 3, "text": b"a"}` → `id: int64_list [3], text: bytes_list ["a"]`.
    """
    if isinstance(example, bytes):
        return example
    message = messages.Example()
    for name, value in (stored(example) if isinstance(example, Mapping) else {_WHOLE: example}).items():
        fill_feature(message.features.feature[str(name)], value)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def fill_feature(feature: messages.Feature, value: object) -> None:
    """Fills a `tf.train.Feature` with the elements of a value, in row order."""
    if isinstance(value, (bytes, str)):
        feature.bytes_list.value.append(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
        return
    try:
        array = natural_array(value)
        if array.dtype.kind in "biu":
            feature.int64_list.value.extend(cast_exactly(array, np.dtype(np.int64)).reshape(-1).tolist())
            return
        if array.dtype.kind in "fV":
            values = cast_exactly(array, np.dtype(np.float32), rounds=True)
            feature.float_list.value.extend(values.reshape(-1).tolist())
            return
    except (NotExactError, NotNumbersError):
        array = np.array(value, object)
    for item in array.reshape(-1).tolist():
        fill_feature(feature, item if isinstance(item, (bytes, str)) else _text(item))


def _text(item: Any) -> str:
    try:
        return str(item)
    except ValueError:  # too many digits for Python's conversion
        return hex(item)


def example_of(raw: bytes) -> object:
    """The example of `raw_bytes`, its numbers as int64 and float32."""
    features = messages.Example.FromString(raw).features.feature
    values = {name: _value(feature) for name, feature in features.items()}
    return values[_WHOLE] if values.keys() == {_WHOLE} else assembled(values)


def _value(feature: messages.Feature) -> object:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        texts = list(feature.bytes_list.value)
        return texts[0] if len(texts) == 1 else texts
    if kind == "float_list":
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)
