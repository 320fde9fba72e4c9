"""Which records are in which batch: the opened sources of a pipeline, and the places of their records.

The first source in the graph defines an epoch and the record of each sample, even if its output is unused, so that
outputs may change without changing a draw. Other readers cycle independently.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from beam_pipes.errors import GraphError
from beam_pipes.graph.apply import Outcome, joined, one_by_one
from beam_pipes.graph.data_node import OperatorNode
from beam_pipes.graph.reader import BatchPlace, Indices, NumberedRecords, Reader, RecordStore, Stream
from beam_pipes.graph.samples import Records, Samples
from beam_pipes.graph.tensors import TensorList
from beam_pipes.loader.order import ShardOrder

LAST = ("drop", "pad", "partial")


@dataclasses.dataclass(frozen=True)
class Cursor:
    """The position of a run: `position` counts samples of the epoch over all shards."""

    epoch: int = 0
    position: int = 0


@dataclasses.dataclass(frozen=True)
class Work:
    """A batch to be computed: its place, the data of fed operators, and the position of the run after it."""

    place: BatchPlace
    fed: Mapping[OperatorNode, Sequence[TensorList]]
    after: Cursor


@dataclasses.dataclass(frozen=True)
class OpenReader:
    """A reader with its records and their order."""

    node: OperatorNode
    store: NumberedRecords
    order: ShardOrder

    @classmethod
    def of(cls, node: OperatorNode, seed: int, store: NumberedRecords | None = None) -> OpenReader:
        """Opens a reader, or its part in a cache."""
        reader = node.operator
        assert isinstance(reader, Reader)
        store = reader.open() if store is None else store
        order = ShardOrder(
            size=len(store),
            seed=seed if reader.seed is None else reader.seed,
            shard_id=reader.shard_id,
            num_shards=reader.num_shards,
            shuffle=reader.random_shuffle or reader.shuffle_after_epoch,
            sticky=reader.stick_to_shard,
        )
        if order.size < order.num_shards:
            raise GraphError(
                f"{node.name}: {order.size} records cannot be divided into {order.num_shards} shards that all hold "
                f"something ({node.where}).",
                operator=node.name,
                where=node.where,
            )
        return cls(node, store, order)


class Feeding:
    """The sources of a pipeline, the defining one first."""

    def __init__(
        self,
        readers: Sequence[OpenReader],
        streams: Mapping[OperatorNode, Stream],
        *,
        first: OperatorNode | None,
        batch_size: int,
        last: str,
    ) -> None:
        self.readers = {reader.node: reader for reader in readers}
        self.streams = dict(streams)
        self.first = first
        self.primary = self.readers.get(first) if first is not None else None
        self.batch_size = batch_size
        self.last = last

    @property
    def num_shards(self) -> int:
        """The number of parts into which the epoch is divided."""
        return 1 if self.primary is None else self.primary.order.num_shards

    @property
    def epoch_size(self) -> int | None:
        """Samples of an epoch over all shards; None if unknown."""
        return None if self.primary is None else self.primary.order.size

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of an epoch, the same for all shards; None if unknown."""
        size = self.epoch_size
        if size is None:
            return None
        if self.last == "drop":
            return size // self.num_shards // self.batch_size
        return math.ceil(math.ceil(size / self.num_shards) / self.batch_size)

    @property
    def ends_quietly(self) -> bool:
        """Whether the next epoch begins automatically."""
        return all(stream.ends_quietly for stream in self.streams.values())

    @property
    def is_pushed(self) -> bool:
        """Whether batches are pushed: then none may be taken ahead of its request."""
        return any(hasattr(stream, "feed") for stream in self.streams.values())

    @property
    def is_dry(self) -> bool:
        """Whether a pushed epoch is at its end: no batch is waiting."""
        waiting = [count for stream in self.streams.values() if (count := stream.num_waiting) is not None]
        return self.primary is None and bool(waiting) and not any(waiting)

    def take(self, cursor: Cursor) -> Work | None:
        """The batch at a cursor; None at the end of the epoch. Pulls from streams, so call it in order."""
        place = self._place(cursor)
        if place is None:
            return None
        step = self.batch_size * self.num_shards
        after = Cursor(cursor.epoch, cursor.position + step)
        if not self.streams:
            return Work(place, {}, after)
        fed: dict[OperatorNode, Sequence[TensorList]] = {}
        for node, stream in self.streams.items():
            columns = stream.next(place)
            if columns is None and stream.ends_quietly and (self.primary is not None or not self.ends_quietly):
                stream.move(place.epoch, 0, batch_size=self.batch_size)  # cycles; the first source ends epochs
                columns = stream.next(place)
            if columns is None:
                return None
            fed[node] = columns
        sizes = {node: len(columns[0]) for node, columns in fed.items()}
        size = place.size if self.primary is not None else next(iter(sizes.values()))
        if size > self.batch_size or any(own != size for own in sizes.values()):
            found = ", ".join(f"{node.name}: {own}" for node, own in sizes.items())
            reading = f", and {self.primary.node.name} gives {place.size}" if self.primary is not None else ""
            raise GraphError(
                f"fed batches should have one size of at most batch_size={self.batch_size}, got {found}{reading}."
            )
        if self.primary is None and self.last == "drop" and size < self.batch_size:
            return None
        if self.primary is None and self.last == "pad":  # with the last sample
            rows = np.minimum(np.arange(self.batch_size), size - 1)
            fed = {node: [column.take(rows) for column in columns] for node, columns in fed.items()}
            place = dataclasses.replace(place, padded=self.batch_size - size, marks_valid=True)
        elif self.primary is None:
            place = dataclasses.replace(place, size=size)
        return Work(place, fed, after)

    def _place(self, cursor: Cursor) -> BatchPlace | None:
        size = self.batch_size
        iteration = -(-cursor.position // (size * self.num_shards))
        if self.primary is None:
            return BatchPlace(cursor.epoch, iteration, cursor.position, size)
        order = self.primary.order
        left = order.size - cursor.position
        if left <= 0 or (self.last == "drop" and left // order.num_shards < size):
            return None
        first = max(0, -(-(cursor.position - order.shard_id) // order.num_shards))
        own = min(size, max(0, order.shard_size - first))
        pads = self.last == "pad"
        if not pads:
            size = own
        return BatchPlace(cursor.epoch, iteration, first, size, padded=size - own, marks_valid=pads)

    def move(self, cursor: Cursor) -> None:
        """Moves the streams to a cursor."""
        iteration, rest = divmod(cursor.position, self.batch_size * self.num_shards)
        if rest and self.streams:
            raise GraphError(
                f"position {cursor.position} lies within a batch of {self.batch_size}: sources in Python go on between "
                "batches only. Use the batch size that the state was saved with."
            )
        for stream in self.streams.values():
            stream.move(cursor.epoch, iteration, batch_size=self.batch_size)

    def forget(self) -> None:
        """Drops the batches that were pushed."""
        for stream in self.streams.values():
            stream.forget()

    def records(self, place: BatchPlace) -> Records:
        """The records of a batch, used by draws and messages: those of the first source."""
        primary, first = self.primary, self.first
        valid = np.arange(place.size) < place.size - place.padded if place.marks_valid else None

        def ids() -> Sequence[str]:
            if primary is not None:
                return primary.store.record_ids(self.indices(primary, place))
            name = "sample" if first is None else first.name
            last = place.first + max(place.size - place.padded, 1) - 1
            return [f"{name}@{min(index, last)}" for index in range(place.first, place.first + place.size)]

        return Records(
            size=place.size,
            ids=ids,
            epoch=place.epoch,
            first_in_epoch=place.first,
            iteration=place.iteration,
            valid=valid,
        )

    def indices(self, reader: OpenReader, place: BatchPlace) -> Indices:
        """The records of a reader in a batch."""
        positions = np.arange(place.first, place.first + place.size)
        primary = self.primary
        size = reader.order.shard_size
        if reader is primary or (primary is not None and reader.order.is_dealt_as(primary.order)):
            return reader.order.records(place.epoch, np.minimum(positions, size - 1))
        if primary is not None:
            positions = np.minimum(positions, primary.order.shard_size - 1) + place.epoch * primary.order.shard_size
        epochs, own = np.divmod(positions, size)
        parts = [reader.order.records(int(epoch), own[epochs == epoch]) for epoch in np.unique(epochs)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def read(
        self,
        node: OperatorNode,
        place: BatchPlace,
        samples: Samples,
        used: frozenset[int],
        *,
        keep_failures: bool,
    ) -> Outcome:
        """The output of a reader for the samples of a batch."""
        store = self.readers[node].store
        assert isinstance(store, RecordStore), "a cache gives what its reader would"
        indices = self.indices(self.readers[node], place)[samples.rows]
        if not len(indices):
            return Outcome(joined(node, []), {})

        def run(some: Indices) -> list[TensorList]:
            return _checked(node, store.read(some, used), len(some), used)

        try:
            return Outcome(run(indices), {})
        except GraphError:
            raise
        except Exception as error:
            kept, failures = one_by_one(node, samples, lambda at: run(indices[at]), error, keep_failures=keep_failures)
            return Outcome(joined(node, kept), failures)

    def identity(self) -> Mapping[str, object]:
        """A description of what is read, for checkpoints."""
        found: dict[str, object] = {}
        for node, reader in self.readers.items():
            found[node.name] = {
                **reader.store.identity(),
                "num_records": reader.order.size,
                "shuffle": reader.order.shuffle,
                "sticky": reader.order.sticky,
                "seed": reader.order.seed,
            }
        for node in self.streams:
            found[node.name] = {"batch_size": self.batch_size}
        return found

    def close(self) -> None:
        """Closes the readers."""
        for reader in self.readers.values():
            reader.store.close()


def _checked(
    node: OperatorNode, columns: Sequence[TensorList | None], size: int, used: frozenset[int]
) -> list[TensorList]:
    if len(columns) != len(node.outputs):
        raise GraphError(f"{node.operator.title()} should read {len(node.outputs)} columns, got {len(columns)}.")
    made = []
    for index, (output, column) in enumerate(zip(node.outputs, columns, strict=True)):
        if column is None:
            column = TensorList([])
        elif index in used and len(column) != size:
            raise GraphError(f"{node.operator.title()} should read {size} records, got {len(column)}.")
        made.append(column.with_layout(output.spec.layout))
    return made
