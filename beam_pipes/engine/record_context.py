"""Which record is being processed: what randomness and identity inside a stage are keyed by.

The engine sets the context of the current thread before it calls a stage; the stage asks for it only when it draws.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from beam_pipes.errors import DeclarationError


class RecordContext:
    """The place of one call of `transform`: unit, record and the position among the record's inputs of that unit.

    `stage` is the object whose `transform` is running. `index` is None while a whole batch is transformed at once:
    then there is no single record, and drawing is refused. `direct` marks a call that no engine makes.
    """

    __slots__ = ("direct", "epoch", "index", "item", "record_id_of", "seed", "stage", "unit")

    def __init__(self, *, seed: int, unit: str, epoch: int = 0, stage: Any = None, direct: bool = False) -> None:
        self.seed = seed
        self.unit = unit
        self.epoch = epoch
        self.stage = stage
        self.direct = direct
        self.record_id_of: Callable[[int], str] = str
        self.index: int | None = 0
        self.item = 0

    @property
    def record_id(self) -> str:
        """The id of the record being processed, such as `books/emma.txt@1024`: the same however the job is cut."""
        if self.index is None:
            raise DeclarationError(
                f"stage {self.unit!r} draws in transform_batch, where no single record keys the draw. Draw in "
                "transform, and leave transform_batch out.",
                stage=self.unit,
            )
        return self.record_id_of(self.index)

    def key(self, *, size: int = 16) -> bytes:
        """`size` bytes that depend on (seed, unit, record, item, epoch) and nothing else."""
        text = f"{self.seed}\0{self.unit}\0{self.record_id}\0{self.item}\0{self.epoch}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


class ShownContext(RecordContext):
    """A context whose `index` stands in memory that another process may look at; -1 there for None."""

    __slots__ = ("_cell",)

    def __init__(self, context: RecordContext, cell: memoryview) -> None:
        self._cell = cell
        super().__init__(seed=context.seed, unit=context.unit, epoch=context.epoch, stage=context.stage)

    @property
    def index(self) -> int | None:
        index = self._cell[0]
        return None if index < 0 else index

    @index.setter
    def index(self, index: int | None) -> None:
        self._cell[0] = -1 if index is None else index


class _Current(threading.local):
    context: RecordContext | None = None


_current = _Current()


def current_context() -> RecordContext | None:
    """The context of the call of `transform` that is running in this thread, or None outside of one."""
    return _current.context


def set_context(context: RecordContext | None) -> RecordContext | None:
    """Makes `context` the current one of this thread and returns the one before it."""
    previous = _current.context
    _current.context = context
    return previous
