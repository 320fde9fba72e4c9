"""The source of a DataLoader over a cache: the native loader's batches, handed to tf.data by step number.

    cache ──cache_source──► CacheSource ──dataset────► tf.data: range of step numbers → batches (or single records)
                                        ──tensors────► TensorFlow's tensors without a pipeline
                                        ──open_loader► the native Loader, for conversions that follow directly

tf.data sees only step numbers: order, hosts and epochs belong to the native loader. Conversions that follow
directly (`to_jax`, `to_torch`, `to_numpy`) read the native loader and need no TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Generator, Mapping
from typing import SupportsInt

import numpy as np

from beam_pipes.cache import Cache, ExampleSpec, Split, open_split
from beam_pipes.errors import CacheNotFoundError, LoaderError
from beam_pipes.extras import TfDataset, TfTensor, require, unbatched
from beam_pipes.loader import Loader
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.mixture import Mixture, RowSource
from beam_pipes.loader.rows import row_bytes
from beam_pipes.loader.state import StateDict
from beam_pipes.loader.world import HostSlice
from beam_pipes.on_device.conversions import aligned_copy
from beam_pipes.on_device.inference import ColumnSignature, tensor_dtype
from beam_pipes.on_device.python_source import taken_apart

# Single records are read in batches of this many rows.
RECORDS_AT_ONCE = 256
# A call from tf.data into Python costs about as much as 256 KiB of data, so small batches of one shape are handed over
# in groups.
GROUP_BYTES = 2 * 2**20
LARGEST_GROUP = 16
# TensorFlow shares arrays of this size and larger; smaller ones are cheaper to copy.
SMALLEST_SHARED_BYTES = 4096

_ENDLESS = 2**62


def cache_source(
    cache: RowSource | Mixture | Cache | Loader,
    split: str | None,
    batch_size: int | None,
    options: Mapping[str, object],
) -> CacheSource:
    """What `DataLoader.from_cache` reads, for its arguments."""
    if isinstance(cache, Loader):
        if batch_size is not None or options or split is not None:
            given = sorted([*options, *(["batch_size"] if batch_size else []), *(["split"] if split else [])])
            raise LoaderError(f"a native Loader has its own options; leave out {', '.join(given)}.")
        source = CacheSource(lambda: cache, spec=None, given=cache)
        source.made_of = cache, None, {}
    else:
        opened = _source_of(cache, split)
        source = _opened(opened, batch_size, options)
        source.made_of = opened, batch_size, dict(options)
    return source


class Passes:
    """Which epochs an iteration reads: `epochs` of them, following those of the previous iteration.

    Every iteration counts from its start, whatever starts it: a loop over the loader, tf.data, `repeat`, a conversion.
    A conversion reads a pass by a native loader, whose state says how far it is: a state saved inside a pass continues
    there, and one saved between two passes begins the next.
    """

    def __init__(self, epochs: int, open_loader: Callable[..., Loader]) -> None:
        self.epochs = epochs
        self._open_loader = open_loader
        self._lock = threading.Lock()
        self._epoch = 0
        self._last: Loader | None = None
        self._restored: Mapping[str, object] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._go_to(epoch, None)

    def _go_to(self, epoch: int, restored: Mapping[str, object] | None) -> None:
        with self._lock:
            self._epoch, self._last, self._restored = epoch, None, restored

    def endless(self) -> Loader:
        """A native loader over all passes, whose steps are counted from the first epoch."""
        return self._open_loader(epochs=None)

    def begin(self) -> int:
        """The first epoch of an iteration that begins now."""
        return self._begin()[0]

    def _begin(self) -> tuple[int, Mapping[str, object] | None]:
        """Also the restored state within it, taken at once: of two threads that begin, one continues there."""
        with self._lock:
            epoch, restored = self._epoch, self._restored
            self._epoch, self._last, self._restored = epoch + self.epochs, None, None
            return epoch, restored

    def open(self) -> Loader:
        """A native loader over the next pass, or over the rest of the one that was restored."""
        epoch, restored = self._begin()
        last = self._loader_at(epoch)
        if restored is not None:
            last.load_state_dict(restored)
        self._last = last
        return last

    def _loader_at(self, epoch: int) -> Loader:
        loader = self._open_loader(epochs=epoch + self.epochs)
        if epoch:
            loader.seek_epoch(epoch)
        return loader

    def next_state(self) -> StateDict:
        """The state at the beginning of the next iteration."""
        with self._lock:
            epoch, restored = self._epoch, self._restored
        return self._loader_at(epoch).state_dict() if restored is None else dict(restored)

    def state_dict(self) -> StateDict:
        """The native loader's state after the last batch of the last pass; at its end, that of the next pass."""
        last = self._last
        return self.next_state() if last is None or last.upcoming_position is None else last.state_dict()

    def _mark(self) -> Callable[[], StateDict]:
        """`state_dict()` as it is now, computed when it is asked for."""
        last = self._last
        if last is None:
            state = self.next_state()
            return lambda: state
        return last._mark(self.next_state)

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """The next iteration is the rest of the pass in which the state was saved."""
        saved: StateDict = dict(state_dict)
        epoch = int(saved["epoch"])
        first = epoch - epoch % self.epochs
        self._loader_at(first).load_state_dict(saved)  # raises now if it does not fit
        self._go_to(first, saved)

    def go_back(self, state_dict: Mapping[str, object]) -> None:
        """Restores the last pass, which had read ahead, to this state."""
        if self._last is not None:
            self._last.load_state_dict(state_dict)


class CacheSource:
    """Passes over a native loader, as NumPy batches or as a tf.data.Dataset."""

    one_shot = False

    def __init__(
        self,
        open_loader: Callable[..., Loader],
        *,
        spec: ExampleSpec | None,
        by_record: bool = False,
        given: Loader | None = None,
    ) -> None:
        self.given = given
        self.open_loader = open_loader
        self.by_record = by_record
        self.error: BaseException | None = None
        self.made_of: tuple[RowSource | Mixture | Loader, int | None, dict[str, object]] | None = None
        self._spec = spec
        self._loader = open_loader()
        epochs = None if given is not None or self._loader.rows_per_epoch is None else self._loader.epochs
        self.passes = None if epochs is None else Passes(epochs, open_loader)

    def open_pass(self) -> Loader:
        """A native loader over the next pass, or over the rest of the one that was restored."""
        return self.open_loader() if self.passes is None else self.passes.open()

    @property
    def loader(self) -> Loader:
        """The native loader that tf.data reads; every pass without tf.data has one like it."""
        return self._loader

    @property
    def known_n_samples(self) -> int | None:
        """Records (rows of a plan) of one epoch over all hosts; `None` for an endless mixture."""
        return self._loader.rows_per_epoch

    def count(self) -> int:
        """Like `known_n_samples`, but raises for an endless mixture."""
        rows = self.known_n_samples
        if rows is None:
            raise LoaderError("a mixture that repeats its sources never ends, so its samples cannot be counted.")
        return rows

    def refuse_consuming(self, purpose: str) -> None:
        """A cache can be read again."""

    def first_step(self) -> int:
        """The first step of an iteration: the cursor's, or at the end of a run the one that `iter` begins with."""
        loader = self._loader
        if loader.epochs is not None and not loader.steps_left:
            return len(loader)  # a state of the end was restored
        position = loader.upcoming_position
        if position is None:
            return 0
        if loader.is_inside_step:
            raise LoaderError(
                f"tf.data reads whole steps, and this loader stands inside one (position {position}, batch_size "
                f"{loader.batch_size}). Use the batch_size that its state was saved with."
            )
        return loader.step

    def num_batches(self) -> int:
        """Batches of an iteration that begins now; `UnboundedLoaderError` for one without end."""
        return len(self._loader) if self.given is None else self._loader.steps_left

    @property
    def gives_tensors(self) -> bool:
        """Whether `tensors` gives what iterating `dataset` gives: not if a given loader's cursor would move."""
        return self.given is None and not self.by_record

    def tensors(self) -> Generator[dict[str, TfTensor], None, None]:
        """The batches as TensorFlow's tensors without a tf.data pipeline, whose every step costs more than reading."""
        tf = require("tensorflow", purpose="DataLoader.from_cache")
        from_dlpack = tf.experimental.dlpack.from_dlpack

        def tensor(array: np.ndarray) -> TfTensor:
            if array.dtype.kind in "iuf" and array.nbytes >= SMALLEST_SHARED_BYTES:
                return from_dlpack(aligned_copy(array).__dlpack__())
            with tf.device("/cpu:0"):
                return tf.constant(array, tensor_dtype(array.dtype))

        for batch in self.open_pass():
            yield {name: tensor(array) for name, array in batch.items()}

    @functools.cached_property
    def dataset(self) -> TfDataset:
        """The batches (or records) as a tf.data.Dataset."""
        tf = require("tensorflow", purpose="DataLoader.from_cache with tf.data transformations")
        loader = self._loader
        first_step = self.first_step()
        first = loader.batch_at(first_step if loader.epochs is None else min(first_step, len(loader) - 1))
        share = loader.share
        # Steps are numbered over all passes: step 3 of an epoch of 10 batches is step 13 in the second pass.
        passes, pass_steps = self.passes, 0 if self.passes is None else len(loader)
        per_epoch = 0 if self.passes is None else pass_steps // self.passes.epochs
        endless = loader if passes is None else self.open_loader(epochs=None)
        names = list(first)
        specs = [tf.TensorSpec(self._shape(name, first), tensor_dtype(first[name].dtype)) for name in names]
        at_once = _batches_at_once(first) if all(spec.shape.is_fully_defined() for spec in specs) else 1

        def bounds(_: object = None) -> np.ndarray:
            try:
                if passes is not None:
                    start = passes.begin() * per_epoch
                    return np.array([start, start + pass_steps], np.int64)
                return np.array([self.first_step(), _ENDLESS if loader.epochs is None else len(loader)], np.int64)
            except Exception as error:
                self.error = error
                raise

        def read(step: SupportsInt, stop: SupportsInt) -> list[np.ndarray]:
            try:
                _check_same_share(share, loader.share.now())
                batches = endless.batch_at(int(step)) if at_once == 1 else read_group(int(step), int(stop))
            except Exception as error:
                self.error = error
                raise
            return [aligned_copy(batches[name]) for name in names]

        def read_group(step: int, stop: int) -> Batch:
            count = min(at_once, stop - step)
            if count <= 0:
                return {name: np.empty((0, *first[name].shape), first[name].dtype) for name in names}
            try:
                return endless.batches_at(step, count)
            except Exception:
                good: list[Batch] = []
                with contextlib.suppress(Exception):  # the batches before the failing one are delivered first
                    while len(good) < count:
                        good.append(endless.batch_at(step + len(good)))
                if not good:
                    raise
                return {name: np.stack([batch[name] for batch in good]) for name in names}

        def fetched(step: TfTensor, stop: TfTensor) -> dict[str, TfTensor]:
            values = tf.numpy_function(read, [step, stop], [spec.dtype for spec in specs], stateful=False)
            shapes = [spec.shape if at_once == 1 else [None, *spec.shape] for spec in specs]
            return {
                name: tf.ensure_shape(value, shape) for name, value, shape in zip(names, values, shapes, strict=True)
            }

        def fetched_from(step: TfTensor, stop: TfTensor) -> tuple[TfTensor, dict[str, TfTensor]]:
            batches = fetched(step, stop)
            return step + tf.shape(batches[names[0]], tf.int64)[0], batches

        as_written = tf.autograph.experimental.do_not_convert  # nothing to convert

        def steps(start: TfTensor, stop: TfTensor) -> TfDataset:
            if at_once == 1:
                return tf.data.Dataset.range(start, stop).map(as_written(lambda step: fetched(step, stop)))
            # A group ends before a failing batch, and the next group begins with it: hence one more group.
            numbers = tf.data.Dataset.range(start, stop + at_once, at_once)
            return numbers.scan(tf.cast(start, tf.int64), as_written(lambda step, _: fetched_from(step, stop)))

        def found_bounds(element: TfTensor) -> TfTensor:
            # Declared stateless, so that iterators can be checkpointed; it is nevertheless called once for each
            # element.
            return tf.ensure_shape(tf.numpy_function(bounds, [element], tf.int64, stateful=False), [2])

        if self.given is None and passes is None:
            batches = steps(*bounds().tolist())
        else:
            # Bounds are an element: a checkpoint of an iterator holds the bounds that it found.
            found = tf.data.Dataset.from_tensors(0).map(as_written(found_bounds))
            batches = found.flat_map(as_written(lambda bounds: steps(bounds[0], bounds[1])))
        if at_once > 1:
            # Slices of what was prefetched: no copy.
            batches = batches.prefetch(2).flat_map(as_written(tf.data.Dataset.from_tensor_slices))
        if loader.epochs is None:
            batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        elif self.given is None:
            batches = batches.apply(tf.data.experimental.assert_cardinality(len(loader)))
        batches = batches.prefetch(2)
        return self._records(batches) if self.by_record else batches

    def _shape(self, name: str, batch: Batch) -> tuple[int | None, ...]:
        """What is known about a column's shape: the rows if every batch is full, the rest if all rows agree."""
        array = batch[name]
        values_of_ragged = f"{name}/lengths" in batch
        full = self._loader.last in ("drop", "pad") and not values_of_ragged and name != "cu_seqlens"
        rows = self._loader.host_batch_size if full and self._loader.is_even else None
        columns, inner = self._loader.columns, array.shape[1:]
        if row_bytes(columns) is not None:
            return (rows, *inner)  # after a transform too: it treats every row like the first ones
        known = columns[name].shape if name in columns else ()
        if len(known) == len(inner) and all(size in (None, found) for size, found in zip(known, inner, strict=True)):
            return (rows, *known)
        return (rows, *([None] * len(inner)))

    def _records(self, batches: TfDataset) -> TfDataset:
        """Single records from batches, ragged ones from values and lengths."""
        assert self._spec is not None
        tf = require("tensorflow", purpose="DataLoader.from_cache")
        columns = []
        for name in self._loader.features:
            feature = self._spec[name]
            columns.append(ColumnSignature(path=(name,), dtype=feature.numpy_dtype, shape=tuple(feature.shape)))
        awkward = [column.key for column in columns if column.layout == "flat"]
        if awkward:
            raise LoaderError(
                f"{awkward} vary in more than their first dimension, which single records cannot have: pass batch_size."
            )
        ragged = [column.key for column in columns if column.layout == "concatenated"]
        if not ragged:
            return self._counted(unbatched(batches))

        def records(batch: dict[str, TfTensor]) -> TfDataset:
            lengths = {key: batch[f"{key}/lengths"] for key in ragged}
            return taken_apart({column.key: batch[column.key] for column in columns}, lengths, columns)

        return self._counted(batches.flat_map(tf.autograph.experimental.do_not_convert(records)))

    def _counted(self, records: TfDataset) -> TfDataset:
        """Single records with their number, if one host reads all of them."""
        tf = require("tensorflow", purpose="DataLoader.from_cache")
        loader = self._loader
        if loader.epochs is None or loader.host_count > 1:
            return records
        count = (loader.rows_per_epoch or 0) * loader.epochs
        return records.apply(tf.data.experimental.assert_cardinality(count))


def _check_same_share(made_with: HostSlice, now: HostSlice) -> None:
    """tf.data knows the shapes that batches had when the pipeline was made."""
    if not now.is_same_slice(made_with):
        raise LoaderError(
            f"this tf.data pipeline was made of {made_with} of each global batch, and this process reads {now} "
            "now. Create it again, after init_process_group or jax.distributed.initialize."
        )


def _batches_at_once(batch: Batch) -> int:
    batch_bytes = int(sum(array.nbytes for array in batch.values()))
    return max(1, min(LARGEST_GROUP, GROUP_BYTES // max(1, batch_bytes)))


def _opened(source: RowSource | Mixture, batch_size: int | None, options: Mapping[str, object]) -> CacheSource:
    open_loader: Callable[..., Loader] = Loader
    if batch_size is not None:
        in_batches = functools.partial(open_loader, source, batch_size=batch_size, **options)
        return CacheSource(in_batches, spec=source.spec if isinstance(source, Split) else None)
    if not isinstance(source, Split):
        raise LoaderError("only the records of a split can be read one by one; pass batch_size.")
    refused = sorted({"last", "pad_to", "pad_value", "ragged", "cu_seqlens"} & set(options))
    if options.get("transform") is not None:
        raise LoaderError(
            "transform= makes batches of batches, and records are read one by one: use .map, or batch_size."
        )
    if refused:
        raise LoaderError(f"{', '.join(refused)} describe batches, and records are read one by one; pass batch_size.")
    rows = max(1, min(RECORDS_AT_ONCE, len(source)))
    by_record = functools.partial(open_loader, source, batch_size=rows, last="partial", ragged="values", **options)
    return CacheSource(by_record, spec=source.spec, by_record=True)


def _source_of(cache: RowSource | Mixture | Cache, split: str | None) -> RowSource | Mixture:
    if isinstance(cache, str | os.PathLike):
        return open_split(cache, split)
    if not isinstance(cache, Cache):
        if split is not None:
            raise LoaderError(f"split={split!r} chooses a split of a cache, and this is a {type(cache).__name__}.")
        return cache
    if split is None:
        if len(cache.splits) != 1:
            raise CacheNotFoundError(f"the cache has the splits {', '.join(cache.splits)}: choose one with split=….")
        split = cache.splits[0]
    return cache[split]
