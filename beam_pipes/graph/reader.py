"""The origin of samples: readers, and operators that are fed from Python.

A reader opens the records (`open`), and the graph decides which record is read when: a record's place is a function of
(seed, epoch, position), so that shards and epochs are exact and a run can be resumed anywhere.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from beam_pipes.checks import integer
from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.loader.order import Indices as Indices
from beam_pipes.sources.source import Source


@dataclasses.dataclass(frozen=True)
class BatchPlace:
    """The place of a batch: samples `first` … `first + size - 1` of this shard's epoch `epoch`.

    `padded` of them at the end repeat the last one. A stream may give fewer than `size`.
    """

    epoch: int
    iteration: int
    first: int
    size: int
    padded: int = 0
    marks_valid: bool = False


class Stream(abc.ABC):
    """Where the samples of one operator come from, batch after batch."""

    @abc.abstractmethod
    def next(self, place: BatchPlace) -> Sequence[TensorList] | None:
        """The next batch, a column for each output, or None at the end of the epoch."""

    @abc.abstractmethod
    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        """Continues at batch `iteration` of an epoch; raises `GraphError` if the source cannot."""

    @property
    @abc.abstractmethod
    def ends_quietly(self) -> bool:
        """Whether the next epoch begins automatically, without a `StopIteration` in between."""

    @property
    def needs_reset(self) -> bool:
        """Whether, once exhausted, it ends every run of the pipeline until `reset` is called."""
        return False

    @property
    def num_waiting(self) -> int | None:
        """The number of pushed batches not yet taken; None if batches are not pushed to this stream."""
        return None

    def forget(self) -> None:  # noqa: B027 - most streams have nothing to forget
        """Drops the pushed batches, because the run continues elsewhere."""


class Fed(Operator):
    """An operator whose samples are supplied."""

    is_source: ClassVar[bool] = True
    holds_gil: ClassVar[bool] = True

    @abc.abstractmethod
    def stream(self) -> Stream:
        """The stream of its samples."""


class NumberedRecords(abc.ABC):
    """The records of a data set by number, in their stored order: their number and names."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of records."""

    @abc.abstractmethod
    def record_ids(self, indices: Indices) -> Sequence[str]:
        """The names of records, `file@position`, used as keys of draws and in messages."""

    @abc.abstractmethod
    def identity(self) -> Mapping[str, object]:
        """The identity of the records, as JSON values without paths: a checkpoint is refused if it has changed."""

    def close(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Closes files."""


class RecordStore(NumberedRecords):
    """Readable records, opened by a reader."""

    @abc.abstractmethod
    def read(self, indices: Indices, outputs: Collection[int]) -> Sequence[TensorList | None]:
        """Records as columns, one for each output of the reader; those that are not in `outputs` may be None.

        It may raise anything for a record that cannot be read: then the graph reads the records one by one, and names
        the bad one.
        """


class Reader(Operator):
    """A reader; its subclasses add where the records are, and implement `open`.

    For use before a cut (`graph.cache`) a reader also implements `source` and `from_source`.
    """

    shard_id = Constant("int", default=0, doc="which of the `num_shards` parts of every epoch is read here")
    num_shards = Constant("int", default=1, doc="into how many disjoint parts an epoch is divided")
    random_shuffle = Constant("bool", default=False, doc="another order each epoch, over all records of the data set")
    stick_to_shard = Constant(
        "bool",
        default=False,
        doc="this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a whole",
    )
    shuffle_after_epoch = Constant("bool", default=False, doc="as random_shuffle")
    pad_last_batch = Constant(
        "bool", default=False, doc="fills the last batch of an epoch with its last record, as last='pad' of a pipeline"
    )
    seed = Constant("int", default=None, doc="the key of the order; the pipeline's seed by default")

    without_effect: ClassVar[tuple[str, ...]] = (
        *("bytes_per_sample_hint", "cache_header_information", "dont_use_mmap", "initial_fill", "lazy_init"),
        *("prefetch_queue_depth", "read_ahead", "register_buffers", "shuffle_after_epoch_seed", "skip_cached_images"),
        *("tensor_init_bytes", "use_o_direct"),
    )
    is_source: ClassVar[bool] = True

    #: Arguments that locate the records: a cache depends on the records, not on their location.
    locations: ClassVar[tuple[str, ...]] = ("file_root", "file_list", "files", "path", "index_path")
    _order_only: ClassVar[tuple[str, ...]] = (
        *("shard_id", "num_shards", "random_shuffle", "shuffle_after_epoch", "stick_to_shard", "seed"),
        "pad_last_batch",
    )

    def check(self) -> None:
        shards = integer(self.num_shards, least=1, what="num_shards", error=self.argument_error)
        integer(self.shard_id, least=0, most=shards - 1, what="shard_id", error=self.argument_error)

    def fingerprint_config(self) -> Mapping[str, object]:
        left_out = {*self.locations, *self._order_only}
        kept = {name: value for name, value in self.constants.items() if name not in left_out}
        return {"op_name": self.op_name, "version": self.version, **kept}

    @abc.abstractmethod
    def open(self) -> RecordStore:
        """The data set. Called when the graph is built, and again by each process that reads."""

    def source(self) -> Source:
        """The same records for a job that reads them all once, in the same order and with the same record ids."""
        raise self.argument_error("it cannot stand before a cut: it has no source of its own.")

    def from_source(self, value: Any) -> Sequence[Array]:
        """The outputs for one value of `source()`: a sample for each."""
        raise self.argument_error("it cannot stand before a cut: it has no source of its own.")
