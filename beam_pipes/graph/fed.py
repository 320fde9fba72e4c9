"""`Fed`: operators whose samples come from outside of the graph: pulled from Python, or pushed by the user."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_list import TensorList


@dataclasses.dataclass(frozen=True)
class FeedPlace:
    """What is asked for next: samples from `first` on of epoch `epoch`, at most `size` of them, batch `iteration`."""

    epoch: int
    iteration: int
    first: int
    size: int


class Stream(abc.ABC):
    """Where the samples of one operator come from, batch after batch."""

    @abc.abstractmethod
    def next(self, place: FeedPlace) -> Sequence[TensorList] | None:
        """The next batch, a column for each output, or None at the end of the epoch."""

    @abc.abstractmethod
    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        """Goes on at batch `iteration` of an epoch; raises `GraphError` where the source cannot."""

    @property
    @abc.abstractmethod
    def ends_quietly(self) -> bool:
        """Whether the next epoch begins by itself, rather than with a `StopIteration` in between."""

    @property
    def num_waiting(self) -> int | None:
        """How many batches were pushed and not taken yet; None where the stream needs no pushing to go on."""
        return None

    def forget(self) -> None:  # noqa: B027 - most streams have nothing to forget
        """Drops the batches that were pushed: the run goes on elsewhere."""


class Fed(Operator):
    """An operator that is given its samples."""

    is_source: ClassVar[bool] = True
    holds_gil: ClassVar[bool] = True

    @abc.abstractmethod
    def stream(self) -> Stream:
        """Where its samples come from."""
