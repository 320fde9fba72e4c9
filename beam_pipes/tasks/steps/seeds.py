"""Seeds of random preprocessors.

A seed manager is active while preprocessors are applied; each of them takes its *step seeds* from it. A step draws for
each example with a key made of its step seed and either the example's *position* (the default: new draws in every
epoch, and none shared between hosts) or its *content* (for steps before the cut: the same draws however the data is
sharded, cached or not).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor
from beam_pipes.tasks.steps.features import ShardInfo

KeyedBy = Literal["position", "content", "nothing"]


@dataclasses.dataclass
class SeedManager:
    """Provides step seeds: by the number of the step, and within a step in the order of its requests.

    So a step has the same seeds wherever it runs, alone or after others.
    """

    seed: int | None = None
    keyed_by: KeyedBy = "position"
    shard_info: ShardInfo | None = None
    steps_begun: int = 0
    taken: int = 0

    def begin_step(self) -> None:
        """Advances to the next step."""
        self.steps_begun, self.taken = self.steps_begun + 1, 0

    def next_step(self, *, name: str = "") -> StepSeed:
        number, self.taken = self.taken, self.taken + 1
        seed = secrets.randbits(63) if self.seed is None else fold(self.seed, self.steps_begun, number, name)
        return StepSeed(seed, self.keyed_by, self.shard_info)


@dataclasses.dataclass(frozen=True)
class StepSeed:
    """The randomness of one step over one dataset."""

    seed: int
    keyed_by: KeyedBy
    shard_info: ShardInfo | None

    def position_key(self, position: int | TfTensor) -> int | TfTensor:
        """Position of an example in the joint order of all hosts: no two hosts share one."""
        if self.keyed_by == "nothing":
            raise TaskError(
                "random numbers cannot be drawn after the CacheDatasetPlaceholder where rows are packed in advance, "
                "which needs the lengths of all examples: draw before the cut, or use a converter with pack=False"
            )
        if self.shard_info is None:
            return position
        return position * self.shard_info.num_shards + self.shard_info.index

    def generator(self, example: object, position: int) -> np.random.Generator:
        """A NumPy generator for one example of a Python step."""
        key = content_key(example) if self.keyed_by == "content" else int(self.position_key(position))
        return np.random.Generator(np.random.Philox(key=fold(self.seed, key, "generator")))


_manager: contextvars.ContextVar[SeedManager | None] = contextvars.ContextVar("seed_manager", default=None)


def current_seed_manager() -> SeedManager:
    """The active manager; without one, a fresh one that draws its seeds from the system."""
    return _manager.get() or SeedManager()


@contextlib.contextmanager
def map_seed_manager(
    initial_seed: int | None = None,
    *,
    keyed_by: KeyedBy = "position",
    shard_info: ShardInfo | None = None,
    steps_begun: int = 0,
) -> Iterator[SeedManager]:
    """Gives seeds to the preprocessors that are applied inside the `with` block.

    Args:
        initial_seed: same seed, same draws; None draws from the system.
        keyed_by: "position" gives new draws in every epoch; "content" the same for equal examples at any position.
            "nothing" refuses to draw.
        shard_info: the share of this host, so that no two hosts draw the same.
        steps_begun: number of earlier steps of the task, if they run elsewhere.
    """
    manager = SeedManager(initial_seed, keyed_by, shard_info, steps_begun)
    token = _manager.set(manager)
    try:
        yield manager
    finally:
        _manager.reset(token)


def set_preprocessor_seed(preprocessor_fn: Callable[..., object], seed: int | None = None) -> Callable[..., TfDataset]:
    """The preprocessor with its own seed: it draws the same whatever seed its task is loaded with."""
    import functools

    @functools.wraps(preprocessor_fn)
    def seeded(dataset: TfDataset, *args: object, **kwargs: object) -> TfDataset:
        outer = current_seed_manager()
        with map_seed_manager(seed, keyed_by=outer.keyed_by, shard_info=outer.shard_info):
            return preprocessor_fn(dataset, *args, **kwargs)

    return seeded


def fold(seed: int, *parts: object) -> int:
    """A 63-bit seed that depends on all its arguments."""
    text = "\0".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def content_key(example: object) -> int:
    """A 64-bit key of what an example holds, in plain Python; str and bytes of the same text are the same."""
    digest = hashlib.blake2b(digest_size=8)
    _absorb(digest.update, example)
    return int.from_bytes(digest.digest(), "little")


def _absorb(update: Callable[[bytes], None], value: object) -> None:
    if isinstance(value, Mapping):
        for name in sorted(value):
            update(b"{" + str(name).encode() + b"\0")
            _absorb(update, value[name])
    elif isinstance(value, (str, bytes)):
        text = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        update(b"s%d\0" % len(text) + text)
    else:
        array = np.asarray(value)
        update(b"a%s\0" % str(array.shape).encode())
        if array.dtype.kind in "OSU":
            for item in array.reshape(-1):
                _absorb(update, item if isinstance(item, (str, bytes)) else str(item))
        else:
            # Whole numbers and floats of any width hash alike: a value may be widened on its way through tf.data.
            update(np.ascontiguousarray(array, np.int64 if array.dtype.kind in "iub" else np.float64).tobytes())
