"""The samples that an operator works on: their records, and draws keyed by record.

A draw depends only on (seed, operator, record, epoch), not on batch size, shard, place, order of outputs or other
draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.loader.order import GAMMA, RowKeys, splitmix64

_TO_UNIT = 1.0 / (1 << 53)
# Numbers drawn at a time for a sample: one sample takes 16 µs, and 32 of them 20 µs.
_DRAWN_AT_ONCE = 64


def text_key(text: str) -> int:
    """64 bits of a text: the first eight bytes of its BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class Records:
    """The records of one batch: ids, epoch, places; shared by all operators that run over the batch.

    `ids` is called at most once, when something draws or fails.
    """

    def __init__(
        self,
        *,
        size: int,
        ids: Callable[[], Sequence[str]],
        epoch: int = 0,
        first_in_epoch: int = 0,
        iteration: int = 0,
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.size = size
        self.epoch = epoch
        self.first_in_epoch = first_in_epoch
        self.iteration = iteration
        self.valid = valid
        self._make_ids = ids
        self._ids: Sequence[str] | None = None
        self._keys: RowKeys | None = None

    @property
    def ids(self) -> Sequence[str]:
        """The name of every record, such as `cats/1.jpg@0`."""
        if self._ids is None:
            self._ids = self._make_ids()
        return self._ids

    @property
    def keys(self) -> RowKeys:
        """(n,) uint64: 64 bits of every record's name."""
        if self._keys is None:
            digest = hashlib.blake2b
            packed = b"".join(
                digest(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in self.ids
            )
            self._keys = np.frombuffer(packed, "<u8").astype(np.uint64)
        return self._keys


class Samples:
    """The samples of one operator: those of a batch, or of a branch of it.

    `rows[i]` is the place of sample `i` in the batch.
    """

    __slots__ = ("_draw_keys", "_uniform", "draw_key", "records", "rows")

    def __init__(self, records: Records, rows: npt.NDArray[np.intp], draw_key: str) -> None:
        self.records = records
        self.rows = rows
        self.draw_key = draw_key
        self._draw_keys: RowKeys | None = None
        self._uniform = np.zeros((0, 0))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epoch(self) -> int:
        """The epoch of all samples of the batch, from 0."""
        return self.records.epoch

    def record_id(self, index: int) -> str:
        """The name of the record that sample `index` comes from, such as `cats/1.jpg@0`."""
        return self.records.ids[int(self.rows[index])]

    @property
    def draw_keys(self) -> RowKeys:
        """(n,) uint64: the keys of this operator's draws, one per sample."""
        if self._draw_keys is None:
            own = np.uint64(text_key(f"{self.draw_key}\0{self.epoch}"))
            self._draw_keys = splitmix64(self.records.keys[self.rows] ^ own)
        return self._draw_keys

    def bits(self, count: int) -> RowKeys:
        """(n, count) uint64: independent random bits, the same for a record everywhere."""
        steps = np.arange(count, dtype=np.uint64) * np.uint64(GAMMA)
        return splitmix64(self.draw_keys[:, None] + steps[None, :])

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """(n, count) float64 in [0, 1), with 53 random bits each."""
        values: npt.NDArray[np.float64] = (self.bits(count) >> np.uint64(11)).astype(np.float64) * _TO_UNIT
        return values

    def uniform_of(self, index: int, count: int) -> npt.NDArray[np.float64]:
        """(count,) float64: one row of `uniform`. A few numbers are drawn for all samples at once."""
        if count > _DRAWN_AT_ONCE:
            return self.take(np.array([index])).uniform(count).ravel()
        drawn = self._uniform
        if drawn.shape != (len(self), count):
            drawn = self._uniform = self.uniform(count)
        row: npt.NDArray[np.float64] = drawn[index]
        return row

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """(n, count) float64, standard normal, by Box and Muller (Annals of Mathematical Statistics 29, 1958)."""
        pairs = self.uniform(2 * count)
        radius = np.sqrt(-2.0 * np.log1p(-pairs[:, :count]))
        return radius * np.cos(2.0 * np.pi * pairs[:, count:])

    def integers(self, count: int, high: int) -> npt.NDArray[np.int64]:
        """(n, count) int64 in [0, high)."""
        return np.minimum((self.uniform(count) * high).astype(np.int64), high - 1)

    def take(self, indices: npt.NDArray[np.intp]) -> Samples:
        """The samples at `indices`."""
        return Samples(self.records, self.rows[indices], self.draw_key)


class Sample:
    """One sample, as `run` sees it."""

    __slots__ = ("_generator", "_one", "_row", "_samples", "index")

    def __init__(self, samples: Samples, index: int, row: np.ndarray | None = None) -> None:
        self._samples = samples
        self.index = index
        self._row = row
        self._one: Samples | None = None
        self._generator: np.random.Generator | None = None

    @property
    def record_id(self) -> str:
        """The name of the record, such as `cats/1.jpg@0`."""
        return self._samples.record_id(self.index)

    source_info = record_id

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._samples.epoch

    @property
    def idx_in_epoch(self) -> int:
        """The place of the sample in this shard's epoch, from 0."""
        return self._samples.records.first_in_epoch + int(self._samples.rows[self.index])

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Memory for the result of `run`: its row of the batch if known, which then needs no stacking."""
        row = self._row
        return row if row is not None and row.shape == shape and row.dtype == dtype else np.empty(shape, dtype)

    @property
    def _alone(self) -> Samples:
        if self._one is None:
            self._one = self._samples.take(np.array([self.index]))
        return self._one

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """(count,) float64 in [0, 1): the row of `Samples.uniform` that belongs to this sample."""
        return self._samples.uniform_of(self.index, count)

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """(count,) float64, standard normal."""
        return self._alone.normal(count).ravel()

    @property
    def generator(self) -> np.random.Generator:
        """A NumPy generator keyed by record, operator and epoch, for draws of an unknown number (10 µs)."""
        if self._generator is None:
            key = int(self._alone.draw_keys[0])
            self._generator = np.random.Generator(np.random.Philox(key=key))
        return self._generator
