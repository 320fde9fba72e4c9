"""`Telemetry`: a loader, measured while it is iterated over.

Sums since the start (`Totals`) hold what it delivered; the difference of two gives a window.
`TokenCounter` counts the tokens that are not padding. Arrays may be on a device: their count is started at
once and fetched later, so that counting never makes a training loop wait for the device.
`SourceRows` counts the rows that each source of a mixture has given, from positions.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Sized
from typing import Any, NoReturn, SupportsIndex, SupportsInt

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.format.spec import FeatureValue
from beam_pipes.loader import Loader, LoaderIterator
from beam_pipes.loader.columns import stored_split
from beam_pipes.loader.mixture_stream import MixtureStream
from beam_pipes.loader.prefetch import SharedIterator, not_copied
from beam_pipes.loader.steps import Cursor
from beam_pipes.map_style.batching import Collated
from beam_pipes.on_device.lambda_loader import ConvertedLoader


class Telemetry:
    """Iterates over a loader and measures how long the training loop waits for it.

        telemetry = Telemetry(loader)
        for step, batch in enumerate(telemetry):
            train(batch)
        telemetry.metrics()  →  {'data/wait_ms': 0.04, 'data/wait_frac': 0.002, 'data/tokens_per_s': 812003.1, …}

    Args:
      loader: a native `Loader`, a `DataLoader` or what it converts to (`to_jax`, `to_torch`, …),
        `beam_pipes.map_style.DataLoader`, or any iterable of batches. It is not touched:
        without this wrapper nothing is measured, at no cost.
      tokens: features whose tokens are counted. By default those whose padding is recognizable: ragged ones
        as values and lengths, packed ones with segment ids. In the padded rows of a feature named here, whatever is not
        the pad value is a token.
      pad_value: of the padded features in `tokens`; by default that of a native loader, else 0.
      source_names: names of a mixture's sources in `data/mix/<source>`; the names of their directories by default.
      clock: the time, in seconds.

    Each batch costs three clock readings and the counting of its tokens. Arrays on a device are counted there, and
    the counts fetched on request. The figures are those of this host, except `data/mix`, which covers all hosts.
    Metrics may be read from another thread.

    Raises `LoaderError` if `tokens` names a feature that batches lack, or for too few or too many `source_names`.
    """

    def __init__(
        self,
        loader: Any,
        *,
        tokens: str | Sequence[str] | None = None,
        pad_value: object = None,
        source_names: Sequence[str] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.loader = loader
        self._clock = clock
        native = native_of(loader)
        if pad_value is None:
            pad_value = getattr(native, "_pad_value", 0)
        self._tokens = TokenCounter((tokens,) if isinstance(tokens, str) else tokens, pad_value)
        self._native: Loader | None = native
        self._sources = SourceRows(native) if native is not None and SourceRows.are_known(native) else None
        self._names = self._named(source_names)
        self._lock = threading.Lock()
        self._batches = self._rows = 0
        self._queued: int | None = None
        self._wait_secs = self._busy_secs = 0.0

    def __iter__(self) -> Iterator[Collated]:
        return SharedIterator(self._iterate())

    def _iterate(self) -> Generator[object, None, None]:
        clock, iterator = self._clock, iter(self.loader)
        left: float | None = None  # when the consumer got its last batch
        try:
            while True:
                depth = self._ready(iterator)
                asked = clock()
                try:
                    batch = next(iterator)
                except StopIteration:
                    with self._lock:
                        self._wait_secs += clock() - asked
                        self._busy_secs += 0.0 if left is None else asked - left
                    return
                came = clock()
                self._took(batch, waited=came - asked, busy=0.0 if left is None else asked - left, depth=depth)
                left = clock()
                yield batch
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    def __len__(self) -> int:
        return len(self.loader)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise not_copied(
            "a Telemetry, which counts what its process waits for,", "Send its loader, and wrap that there."
        )

    def state_dict(self) -> dict[str, object]:
        """The loader's state."""
        state: dict[str, object] = self.loader.state_dict()
        return state

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Restores the loader's state."""
        self.loader.load_state_dict(state_dict)

    def totals(self) -> Totals:
        """The sums so far; `telemetry.totals().since(earlier).metrics()` covers the time in between."""
        with self._lock:
            by_source = None
            if self._sources is not None:
                by_source = dict(zip(self._names, self._sources.counts(), strict=True))
            return Totals(
                batches=self._batches,
                rows=self._rows,
                tokens=self._tokens.total(),
                wait_secs=self._wait_secs,
                busy_secs=self._busy_secs,
                queued=self._queued,
                rows_by_source=by_source,
            )

    def metrics(self, since: Totals | None = None) -> dict[str, float]:
        """Means and rates since `since`, or since the beginning; empty before the first batch.

        `data/wait_ms` (a batch), `data/wait_frac` (of the time), `data/batches_per_s`, `data/rows_per_s`,
        `data/tokens_per_s` if tokens are known, `data/queue_depth` (batches that were ready on request) if something
        prefetches, `data/mix/<source>` for a native loader of a mixture.
        """
        totals = self.totals()
        return (totals if since is None else totals.since(since)).metrics()

    def _took(self, batch: object, *, waited: float, busy: float, depth: int | None) -> None:
        with self._lock:
            self._batches += 1
            self._rows += _rows_of(batch)
            self._wait_secs += waited
            self._busy_secs += busy
            if depth is not None:
                self._queued = (self._queued or 0) + depth
            self._tokens.add(batch)
            if self._sources is not None:
                assert self._native is not None
                cursor = self.loader.cursor if isinstance(self.loader, ConvertedLoader) else None
                epoch, position = (self._native.epoch, self._native.position) if cursor is None else cursor
                self._sources.moved_to(epoch, position)

    def _ready(self, iterator: object) -> int | None:
        """How many batches are ready; None if nothing is prefetched."""
        if isinstance(iterator, LoaderIterator):
            return iterator.ready_batches
        return self.loader.ready_elements if isinstance(self.loader, ConvertedLoader) else None

    def _named(self, names: Sequence[str] | None) -> list[str]:
        if self._sources is None:
            return []
        found = self._sources.names()
        if names is None:
            return found
        if isinstance(names, str) or len(names) != len(found) or len(set(names)) != len(found):
            raise LoaderError(f"source_names should be {len(found)} different names, one a source, got {names!r}.")
        return list(names)


def native_of(loader: object) -> Loader | None:
    """The native loader whose cursor moves with an iteration over `loader`, if there is one."""
    if isinstance(loader, ConvertedLoader):
        loader = loader.stateful_loader
    return loader if isinstance(loader, Loader) else None


def _rows_of(batch: object) -> int:
    """Rows of a batch: those marked in its column `valid`, else the first dimension of its first array."""
    if isinstance(batch, Mapping):
        valid = batch.get("valid")
        if isinstance(valid, np.ndarray):
            return int(np.count_nonzero(valid))
        lengths = (value for name, value in batch.items() if str(name).endswith("/lengths"))
        first = next(lengths, None)
        if first is None:
            first = next(iter(batch.values()), None)
    elif isinstance(batch, list | tuple):
        first = batch[0] if batch else None
    else:
        first = batch
    if isinstance(first, Mapping | tuple):
        return _rows_of(first)
    shape = getattr(first, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return len(first) if isinstance(first, Sized) else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all batches. `tokens`, `queued` and `rows_by_source` are None if the loader does not say.

    `wait_secs`: the consumer's time waiting for batches; `busy_secs`: its time between them. `queued`: the sum over
    batches of the number ready on request. `rows_by_source`: rows over all hosts, by name of a source.
    """

    batches: int = 0
    rows: int = 0
    tokens: int | None = None
    wait_secs: float = 0.0
    busy_secs: float = 0.0
    queued: int | None = None
    rows_by_source: Mapping[str, int] | None = None

    def since(self, earlier: Totals) -> Totals:
        """The difference from `earlier`."""
        by_source = None
        if self.rows_by_source is not None:
            before = earlier.rows_by_source or {}
            by_source = {name: rows - before.get(name, 0) for name, rows in self.rows_by_source.items()}
        return Totals(
            batches=self.batches - earlier.batches,
            rows=self.rows - earlier.rows,
            tokens=None if self.tokens is None else self.tokens - (earlier.tokens or 0),
            wait_secs=self.wait_secs - earlier.wait_secs,
            busy_secs=self.busy_secs - earlier.busy_secs,
            queued=None if self.queued is None else self.queued - (earlier.queued or 0),
            rows_by_source=by_source,
        )

    def metrics(self) -> dict[str, float]:
        """As a dict of numbers by name; empty before the first batch.

        Totals(batches=10, rows=320, wait_secs=0.1, busy_secs=0.9).metrics()  →
        {'data/wait_ms': 10.0, 'data/wait_frac': 0.1, 'data/batches_per_s': 10.0, 'data/rows_per_s': 320.0}
        """
        secs = self.wait_secs + self.busy_secs
        if not self.batches or secs <= 0:
            return {}
        metrics = {
            "data/wait_ms": 1000.0 * self.wait_secs / self.batches,
            "data/wait_frac": self.wait_secs / secs,
            "data/batches_per_s": self.batches / secs,
            "data/rows_per_s": self.rows / secs,
        }
        if self.tokens is not None:
            metrics["data/tokens_per_s"] = self.tokens / secs
        if self.queued is not None:
            metrics["data/queue_depth"] = self.queued / self.batches
        if self.rows_by_source is not None:
            rows = sum(self.rows_by_source.values())
            for name, count in self.rows_by_source.items():
                metrics[f"data/mix/{name}"] = count / rows if rows else 0.0
        return metrics


class SourceRows:
    """Rows by source, over all hosts, that a loader of a mixture has returned.

    rows = SourceRows(loader)                     # at the loader's cursor
    rows.moved_to(loader.epoch, loader.position)  # after every batch
    rows.counts()  →  (70, 30)
    """

    def __init__(self, loader: Loader) -> None:
        stream = loader._reader.stream
        assert isinstance(stream, MixtureStream)
        self._loader = loader
        self._stream: MixtureStream = stream
        self._settled = [0] * len(stream.sources)
        self._since = self._at = Cursor(loader.epoch, loader.position)

    @staticmethod
    def are_known(loader: object) -> bool:
        """Whether this is a native loader of a mixture."""
        return isinstance(loader, Loader) and isinstance(loader._reader.stream, MixtureStream)

    def names(self) -> list[str]:
        """The sources by the last part of their cache's path, numbered if several have the same name."""
        paths = [str(stored_split(rows.split).path) for rows in self._stream.sources]
        names = [path.rstrip("/").rpartition("/")[2] for path in paths]
        return [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names)]

    def moved_to(self, epoch: int, position: int) -> None:
        """Records that a batch was returned, and the loader's new position."""
        now, stream = Cursor(epoch, position), self._loader._reader.stream
        if stream is not self._stream or now <= self._at:  # other rates, a restored state, a new run
            follows = now > self._at and epoch == self._at.epoch and position - self._at.position <= self._batch_size
            start = self._at if follows else Cursor(epoch, max(0, position - self._batch_size))
            self._settle(self._at)
            assert isinstance(stream, MixtureStream)
            self._stream, self._since = stream, start
        elif epoch != self._at.epoch:
            size = self._stream.size_of(self._at.epoch) or 0
            whole = size - size % self._batch_size if self._loader.last == "drop" else size
            self._settle(Cursor(self._at.epoch, whole))
            self._since = Cursor(epoch, 0)
        self._at = now

    def counts(self) -> tuple[int, ...]:
        """Rows of each source so far."""
        return tuple(a + b for a, b in zip(self._settled, self._between(self._at), strict=True))

    @property
    def _batch_size(self) -> int:
        return self._loader.batch_size

    def _settle(self, end: Cursor) -> None:
        self._settled = [a + b for a, b in zip(self._settled, self._between(end), strict=True)]

    def _between(self, end: Cursor) -> Sequence[int]:
        if end.epoch != self._since.epoch or end.position <= self._since.position:
            return [0] * len(self._settled)
        before = self._stream.counts_at(self._since.epoch, self._since.position)
        after = self._stream.counts_at(end.epoch, end.position)
        return [b - a for a, b in zip(before, after, strict=True)]


_LENGTHS = "/lengths"
_SEGMENT_IDS = "segment_ids"
_SEGMENT_LENGTHS = "segment_lengths"
# The number of counts in flight; by then the oldest are long done.
_PENDING = 256


class TokenCounter:
    """Sums the tokens of batches.

    Without `names`: all values of ragged features that come as values and lengths, and all places of packed rows with a
    segment id, or their segments' lengths. With `names`: of these features alone; in padded rows whatever is not
    `pad_value` is a token.

        {'tokens': [[5, 6, 0]], 'segment_ids': [[1, 1, 0]]}  →  2
    """

    def __init__(self, names: Sequence[str] | None, pad_value: object = 0) -> None:
        if isinstance(names, str):
            names = (names,)
        self._names = None if names is None else tuple(names)
        self._pad_value = pad_value
        self._pending: list[SupportsInt] = []
        self._total: int | None = None

    def add(self, batch: object) -> None:
        """Counts one batch."""
        if not isinstance(batch, Mapping):
            return
        if self._names is None:
            for name, array in batch.items():
                if name.endswith(_LENGTHS) and name.removesuffix(_LENGTHS) in batch:
                    self._count(batch[name.removesuffix(_LENGTHS)].shape[0])
                elif name == _SEGMENT_IDS or name.endswith(f"_{_SEGMENT_IDS}"):
                    self._count(_different(array, 0))
                elif name == _SEGMENT_LENGTHS or name.endswith(f"_{_SEGMENT_LENGTHS}"):
                    self._count(_sum(array))
            return
        for name in self._names:
            self._count(self._tokens_of(batch, name))

    def total(self) -> int | None:
        """All tokens so far; None if no batch had anything to count."""
        pending, self._pending = self._pending, []
        if pending:
            self._total = (self._total or 0) + sum(int(count) for count in pending)
        return self._total

    def _count(self, count: SupportsInt) -> None:
        if isinstance(count, int):
            self._total = (self._total or 0) + count
            return
        self._pending.append(count)
        if len(self._pending) > _PENDING:
            self._total = (self._total or 0) + sum(int(count) for count in self._pending[:_PENDING])
            del self._pending[:_PENDING]

    def _tokens_of(self, batch: Mapping[str, FeatureValue], name: str) -> SupportsInt:
        if name not in batch:
            raise LoaderError(
                f"telemetry should count the tokens of {name!r}, and batches have: {', '.join(map(str, batch))}.",
                feature=name,
            )
        if name + _LENGTHS in batch:
            return int(batch[name].shape[0])
        for segments in (f"{name}_{_SEGMENT_IDS}", _SEGMENT_IDS):
            if segments in batch:
                return _different(batch[segments], 0)
        pad_value = self._pad_value.get(name, 0) if isinstance(self._pad_value, Mapping) else self._pad_value
        return _different(batch[name], pad_value)


def _sum(array: Any) -> SupportsInt:
    total: SupportsInt = array.sum() if hasattr(array, "sum") else np.asarray(array).sum()
    return int(total) if isinstance(array, np.ndarray) else total


def _different(array: object, value: object) -> SupportsInt:
    """How many elements are not `value`: an int for host memory, an array for device memory."""
    if isinstance(array, np.ndarray):
        return int(np.count_nonzero(array if value == 0 else array != value))
    different = array != value
    if hasattr(different, "sum"):  # JAX and torch
        counted: SupportsInt = different.sum()
        return counted
    return int(np.count_nonzero(np.asarray(different)))  # TensorFlow, whose eager tensors are on the host
