"""The loader: batches of NumPy arrays from a cache, in an order that is a function of (seed, epoch, position).

A *step* is one global batch. A *cursor* is the place (epoch, position) of the next row. Hosts take slices of global
batches: the slices of all hosts at a step, concatenated, are the global batch of that step, for any number of hosts.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from beam_pipes.checks import takes
from beam_pipes.errors import LoaderError, logger
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.columns import note_other_takedowns, takedown_revision
from beam_pipes.loader.delivery import Delivery, deliveries, places_of, splits_of
from beam_pipes.loader.describe import Description, described
from beam_pipes.loader.epochs import shuffle_label
from beam_pipes.loader.iterator import NOT_BY_INDEX, LoaderIterator, Progress, warn_of_repeated_order
from beam_pipes.loader.mesh import SequenceShare
from beam_pipes.loader.mixture import Mixture, RowSource
from beam_pipes.loader.options import LoaderOptions, check_batch_size
from beam_pipes.loader.order import ORDER_VERSION, check_integer
from beam_pipes.loader.prefetch import SharedIterator
from beam_pipes.loader.reads import SourceReads, times_read
from beam_pipes.loader.row_source import opened
from beam_pipes.loader.rows import Columns
from beam_pipes.loader.state import LoaderState, StateDict, Stateful
from beam_pipes.loader.steps import Cursor, RowPlace, Run
from beam_pipes.loader.stream import EffectiveRate, Stream
from beam_pipes.loader.world import HostSlice

_log = logger(__name__)


class Loader(Stateful):
    """Batches of a split, a packing plan or a mixture, as dicts of NumPy arrays.

    `for batch in Loader("cache/train", batch_size=32, seed=1): …` → {'tokens': int32 (32, 1024), …}

    Args:
      source: a split by its path (`"cache/train"`, `"gs://bucket/cache/train"`), `Cache.open("cache")["train"]`,
        `pack(cache["train"], …)`, `Windows(cache["train"], …)`, or `Mixture([(source, rate), …])`.
      batch_size: rows of a *global* batch, over all hosts; this host gets `host_batch_size` of them. The sequence of
        global batches does not depend on the number of hosts. `TokenBatches(max_tokens=…)` for batches of rows of
        similar length, as many as fit a budget of tokens; `loader.batch_size` is then the largest number of rows.
      decode: how records that are not examples are decoded, such as `{"labels": FeatureSpec("int64", shape=(None,))}`
        for SequenceExamples; see `Split.decoded`. It changes neither order nor state. Finding the longest row of a
        global batch means parsing all of it: if several hosts share batches, pass `pad_to`, so that each parses only
        its own rows.
      seed: determines the order. 0 ≤ seed < 2^64.
      epochs: the number of passes over the rows; every epoch has its own order. None never ends.
      shuffle: True for a global shuffle, False for the stored order, `BlockShuffle(window=…)` for remote caches,
        `BalancedShuffle(rows=…)` for batches of nearly equal cost.
      host_index, host_count: the slice of each global batch that this process reads: rows [i·B // n, (i + 1)·B // n).
        By default the share of this process in its world: rank and number of processes of `torch.distributed` or
        `jax.distributed` where one is initialised, else everything. `host_count=1` gives every process all rows.
      mesh, spec: the mesh of devices that train together, and the axes of it over which batches are divided: the first
        entry for the rows, the second one for the positions in a row (context parallelism), as in `Loader(…,
        mesh=device_mesh, spec=("dp", "cp"))`. Processes along all other axes read the same. A DeviceMesh of torch, a
        Mesh of JAX, a NamedSharding (which has its own spec), or the InputContext of a tf.distribute strategy. Replaces
        `host_index` and `host_count`.
      sequence_order: the positions of a row in each part of a sequence: "contiguous", "zigzag" (as much causal
        attention for each part), or "segments" (a zigzag in each document of `pack(…, segment_multiple=…)`); see
        `SequenceShare`. Every array with a second axis is cut, after `transform`; `cu_seqlens` refers to whole rows.
      last: the rows at the end of an epoch that do not fill a global batch: "drop" omits them (different ones each
        epoch, as the order changes), "pad" fills up with rows marked in the boolean column `valid`, which then every
        batch has (static shapes), "partial" gives a smaller batch (empty for some hosts, so that all take the same
        number of steps). With "pad" and "partial" an epoch is exactly the set of rows.
      features, ragged, pad_to, pad_value: the names to read, all by default; for the others see `GatherOptions`.
      transform: converts a batch of rows before it is returned, row by row: every array of its result has the rows of
        the batch as its first axis, and its dtypes and shapes do not depend on which rows come together. It is called
        with as many rows as are read at once, from every reading thread, and once with none to find its features.
      cu_seqlens: adds `cu_seqlens` to packed batches: int32 boundaries of the segments in the flattened batch, padding
        counted as a segment, from 0 to rows · sequence_length, as variable-length attention kernels expect. "padded"
        repeats the last one, so that all batches have the same number, rows · (segments of a row + 1) + 1, and compiled
        steps one shape.
      segments: what packed batches say about their segments. "ids": `segment_ids` and `positions`, each as large as the
        tokens. "lengths": `segment_lengths` alone, int32 (rows, most segments of a row), 0 where there is none, from
        which `beam_pipes.on_device.segments_of` makes both on the device: less to make, copy and send.
      appended: how a state of an older snapshot continues if records were added to the split since, for every way of
        restoring it. "next_epoch": the running epoch ends as it would have, and later ones have all records. "now": the
        rest of that epoch and the new records are read together, each once. The older records must be unchanged. None,
        the default, refuses such states.
      forgotten: what the place of a record holds that was taken down. "stand_in": another record of the split. "mask":
        nothing: zeros, the pad value or empty texts, and False in the boolean column `valid`, which then every batch
        has, so that a replay from an earlier checkpoint gives every other row at its step and nothing else. Orders
        and states are the same. Ragged features are as wide as the stand-in needs, unless `pad_to` says. In packed
        rows the record's place becomes padding, with segment id 0, instead of closing up behind it, and `valid` is
        False for rows of which nothing is left.
      workers: threads that prepare batches ahead; 0 makes each batch on request. One is enough to overlap with
        training; more help if reading waits (cold disks, remote shards).
      prefetch: the most batches prepared ahead, per process.

    Iterating starts at the cursor and moves it: a new loop continues where the previous one stopped. When all epochs
    are done the cursor is at the end; the next `iter()` starts over, with a warning if rows are shuffled. Restoring a
    state of the end yields nothing until `reset()`, or with more `epochs`. There is one iterator at a time, which
    threads may share. A loader is pickled and copied with its state; the copy continues independently.
    `batch_at(step)` reads any batch without moving the cursor, and is safe from several threads.

    A loader created before its world was initialised takes its share on the first read. Iterating is refused in worker
    processes of torch's DataLoader, and in a different world than that of its share.

    Raises `LoaderError` for options out of range, and names the choices; where only one of `host_index` and
    `host_count` is given; and if both are missing in a worker of a TensorFlow cluster, which may divide rows itself.
    """

    @takes(LoaderOptions)
    def __init__(self, options: LoaderOptions) -> None:
        stream = options.stream()
        self._options = options
        self._steps = options.steps(stream)
        self.batch_size = self._steps.batch_size
        self.seed = options.seed
        self.epochs = options.epochs
        self.shuffle = options.shuffle
        self.last = options.last
        self.workers = options.workers
        self.prefetch = options.prefetch
        if self.host_count > 1:
            stream.check_widths()
        self._features = options.features_of(stream)
        self._reader = options.reader(stream, self._steps)
        if self._run.steps_per_epoch == 0:  # a training loop over nothing would end silently
            raise LoaderError(f"{options.source!r}: {self._run.why_no_steps()}")
        self._progress = Progress(Cursor(0, 0))
        self._restored: Cursor | None = None  # the position of the last restored state
        self._iterator: weakref.ref[LoaderIterator] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The features that are read, or those that `transform` returns."""
        return self._features

    @property
    def columns(self) -> Columns:
        """The columns that are read, before `transform`, `valid` and `cu_seqlens`.

        `{"tokens": ColumnSpec(dtype="int32", shape=(None,)), …}`: `shape` is that of a row, with None if the longest
        row of the global batch decides.
        """
        return self._reader.stream.columns

    @property
    def host_index(self) -> int:
        """The slice of each global batch that this process reads, out of `host_count`."""
        return self._steps.share.index

    @property
    def host_count(self) -> int:
        """The number of hosts that share each global batch."""
        return self._steps.share.count

    @property
    def share(self) -> HostSlice:
        """This process's slice of each global batch, and whether it was given or taken from the world."""
        return self._steps.share

    @property
    def sequence_share(self) -> SequenceShare | None:
        """This process's part of each row, with its `places`, if a mesh divides sequences; else None."""
        return self._options.sequence

    @property
    def host_batch_size(self) -> int:
        """Rows of a full batch on this host; of the largest one if batches are cut by tokens."""
        return self._reader.host_rows

    @property
    def is_even(self) -> bool:
        """Whether all full batches have the same number of rows; False with `TokenBatches`."""
        return self._steps.even

    @property
    def rows_multiple(self) -> int:
        """A number that divides the rows of every full batch: the batch size, or `multiple_of` of `TokenBatches`."""
        return self._steps.rows_multiple

    @property
    def varying_features(self) -> tuple[str, ...]:
        """Features whose arrays may differ in shape between hosts, sorted: the concatenated ones of `ragged="values"`.

        Features of a `transform` are unknown; these are the ones that it reads.
        """
        return tuple(sorted(name for name, column in self.columns.items() if column.concatenated))

    @property
    def rows_per_epoch(self) -> int | None:
        """Rows of an epoch over all hosts; None for an endless mixture."""
        return self._reader.stream.size

    @property
    def steps_per_epoch(self) -> int | None:
        """Global batches of an epoch; None for an endless mixture."""
        return self._run.steps_per_epoch

    def __len__(self) -> int:
        """Steps of the whole run, all epochs; `UnboundedLoaderError` if it has no end, or an unknown one."""
        return len(self._run)

    def __repr__(self) -> str:
        return (
            f"Loader(rows_per_epoch={self.rows_per_epoch}, batch_size={self.batch_size}, seed={self.seed}, "
            f"epochs={self.epochs}, shuffle={shuffle_label(self.shuffle)!r}, last={self.last!r}, "
            f"host={self.host_index}/{self.host_count}, epoch={self.epoch}, position={self.position})"
        )

    def describe(self) -> str:
        """What this loader reads, as a tree in text: run, order, sources, rates, plans, splits and their fingerprints.

        `print(loader.describe())`; two processes that read the same data print the same, except for the line of their
        share. `beam_pipes.report.loader_html(loader)` is the same as a page, with the rows of a batch.
        """
        return str(self.description)

    @property
    def description(self) -> Description:
        """The output of `describe`, as nodes with a `title` and `parts`."""
        return described(self._run, self._options, self.features, self.epoch)

    def __reduce__(self) -> tuple[object, ...]:
        place = (self._cursor, self._restored, self._reader.stream.changes)
        return _rebuilt, (type(self), self._options, self.share, *place)

    def __iter__(self) -> LoaderIterator:
        self.share.refuse_copies()
        self._settle()
        if self._is_done and self._cursor != self._restored:
            if self.shuffle:
                warn_of_repeated_order(self.epochs)
            self.reset()
        previous = self._iterator() if self._iterator is not None else None
        if previous is not None:
            previous.close()
        # Not the lock of the previous iterator: a thread may still be reading for it.
        self._progress = Progress(self._cursor)
        iterator = LoaderIterator(self, workers=self.workers, prefetch=self.prefetch)
        self._iterator = weakref.ref(iterator)
        return iterator

    def __getitem__(self, index: object) -> NoReturn:
        raise LoaderError(NOT_BY_INDEX)

    def epoch_batches(self) -> Iterator[Batch]:
        """The batches from the cursor to the end of its epoch; call it once for each epoch."""
        return SharedIterator(self._epoch_batches())

    def _epoch_batches(self) -> Generator[Batch, None, None]:
        upcoming = self._run.next_step(self._cursor)
        if upcoming is None:
            return
        epoch = upcoming.epoch
        iterator = iter(self)
        try:
            while (upcoming := self._run.next_step(self._cursor)) is not None and upcoming.epoch == epoch:
                yield next(iterator)
        finally:
            iterator.close()

    def batch_at(self, step: int) -> Batch:
        """This process's slice of global batch number `step` of the run, wherever the cursor is."""
        self._settle_once()
        return self._reader.read_one(self._run.at(step))

    def batches_at(self, step: int, count: int) -> Batch:
        """Our slices of `count` global batches from number `step` on, stacked: `{'tokens': (count, rows, 1024)}`.

        Like `batch_at`, but cheaper for small batches. All batches need the same shapes: pass `pad_to` for ragged
        features, and include no partial batch.
        """
        count = check_integer("count", count, 1)
        self._settle_once()
        return self._reader.read_consecutive(self._run, step, count)

    def when(self, row: int, *, epoch: int = 0, source: int = 0) -> RowPlace | None:
        """When a row (a record, or a bin of a plan) comes in an epoch; None if it does not, under `last="drop"`.

        For an endless mixture, which is one epoch with number 0: when it comes first.
        """
        run = self._run
        epoch = run.check_epoch(epoch)
        position = run.stream.position_of(epoch, source, row)
        return None if position is None else run.place_of(epoch, position, source)

    def place_at(self, epoch: int, position: int) -> RowPlace | None:
        """Where the row at a position of an epoch comes; None if it does not, under `last="drop"`."""
        run = self._run
        epoch, position = run.check_epoch(epoch), check_integer("position", position, 0)
        source = 0
        if len(run.stream.sources) > 1:
            source = int(run.stream.rows_at(run.stream.locate(epoch, np.array([position])))[0][0])
        return run.place_of(epoch, position, source)

    def who(self, step: int) -> list[Delivery]:
        """The source records of global batch number `step`, over all hosts: `Delivery` names each record and its place.

        Computed from order and lineage alone, for any past or future step of the run.
        """
        return deliveries(self._run, step)

    def when_record(
        self, record_id: str, *, first_epoch: int = 0, epochs: int = 1, last_step: int | None = None
    ) -> list[RowPlace]:
        """When the source record `file@position` comes, the inverse of `who`; see `places_of` for the arguments.

        loader.when_record("plays/hamlet.txt@0", epochs=2)  →  [RowPlace(epoch=0, step=17, …), RowPlace(epoch=1, …)]
        """
        return places_of(self._run, record_id, first_epoch=first_epoch, epochs=epochs, last_step=last_step)

    def times_read(self) -> list[SourceReads]:
        """For each source, how often the run has read each of its records so far: `split`, `rows`, `times`.

            [books] = Loader("books/train", batch_size=4).times_read();  books.times  →  array([0, 0, …])

        Computed from the order, over all hosts, up to the cursor: restore a state to ask about its run.
        """
        return times_read(self._run, self._cursor)

    @property
    def first_known_step(self) -> int:
        """The first step that `when_record` covers: not 0 if the rates of a mixture were changed."""
        stream = self._reader.stream
        segment = stream.segment(stream.changed_epoch)
        if segment is None:
            return 0
        return self._run.steps_before(stream.changed_epoch) + -(-segment.start // self.batch_size)

    # Our share

    def take_share(self, share: HostSlice) -> None:
        """Reads another slice of each global batch from now on; the cursor stays, batches prepared ahead are dropped.

        Raises `LoaderError` if a global batch has fewer rows than there are slices.
        """
        other = not share.is_same_slice(self.share)
        if other:
            check_batch_size(self._steps.smallest_batch, share)
        if other and share.count > 1:
            self._reader.stream.check_widths()
        self._steps = dataclasses.replace(self._steps, share=share)
        if other:
            self._move(self._cursor, self._reader.stream)

    def _settle(self) -> None:
        """Takes the share in a world that was initialised after the loader was created."""
        share = self.share.now()
        if share is not self.share:
            self.take_share(share)
        elif share.is_preliminary:
            check_batch_size(self._steps.smallest_batch, share)  # no sharding has said that processes read the same

    def _settle_once(self) -> None:
        """`_settle`, if a share was not taken from the world yet, or cannot be read."""
        if self.share.world is None or self._steps.smallest_batch < self.share.count:
            self._settle()

    # State

    @property
    def epoch(self) -> int:
        """The epoch of the next row."""
        return self._cursor.epoch

    @property
    def position(self) -> int:
        """The position of the next row in its epoch, in rows over all hosts."""
        return self._cursor.position

    @property
    def upcoming_position(self) -> int | None:
        """The position at which the next batch begins, in the next epoch if no batch is left; None at the end.

        Equals `position`, except after restoring with another batch size.
        """
        upcoming = self._run.next_step(self._cursor)
        return None if upcoming is None else upcoming.position

    @property
    def is_inside_step(self) -> bool:
        """Whether the next batch begins within a step of this batch size, after restoring with another one."""
        upcoming = self._run.next_step(self._cursor)
        if upcoming is None:
            return False
        epoch, position = upcoming.epoch, upcoming.position
        return self._steps.placed(epoch, position, self._reader.stream.size_of(epoch)).start != position

    @property
    def step(self) -> int:
        """Finished steps: the number of the next global batch, if the batch size never changed.

        After a restore with another batch size, the steps of the run minus the remaining ones.

        Raises `UnboundedLoaderError` if a mixture's rates changed before the epoch in which it was restored.
        """
        return self._run.steps_done(self._cursor)

    @property
    def steps_left(self) -> int:
        """Steps of the next `iter()`: to the end of the run, or all of them if the run has ended.

        0 if a state of the end was restored. Raises `UnboundedLoaderError` if `len` does.
        """
        cursor = self._cursor
        return self._run.steps_left(cursor) or (0 if cursor == self._restored else len(self))

    @property
    def state(self) -> LoaderState:
        """The loader's position: after the last returned batch, regardless of prefetched ones."""
        return self._state_at(self._reader.stream, self._cursor)

    def _state_at(self, stream: Stream, cursor: Cursor) -> LoaderState:
        epoch, position = cursor
        splits = splits_of(stream)
        for split in splits:
            if hasattr(split, "stay_for_states"):
                split.stay_for_states()
        return LoaderState(
            source=stream.identity(),
            order_version=ORDER_VERSION,
            seed=self.seed,
            shuffle=self._options.order_label,
            epoch=epoch,
            position=position,
            takedown=takedown_revision(splits),
            segment=stream.stated_segment(epoch),
            appended=stream.additions,
        )

    def _mark(self, at_end: Callable[[], StateDict] | None = None) -> Callable[[], StateDict]:
        """`state_dict()` as it is now, computed when it is asked for; at the end of the run what `at_end` gives."""
        stream, cursor_then = self._reader.stream, self._progress.mark()

        def state() -> StateDict:
            cursor = cursor_then()
            if at_end is not None and self._run.next_step(cursor) is None:
                return at_end()
            return self._state_at(stream, cursor).to_dict()

        return state

    def restore(self, state: LoaderState, *, previous: RowSource | Mixture | None = None) -> None:
        """Continues from a state, in time that does not depend on the position.

        Batch size, hosts, workers, features and epochs may differ from those it was saved with. If no batch is
        left, as at the end of the run, the next loop is empty; `reset()` starts the run again.

        A loader that was given the path of a split moves to the snapshot that the state names, if that is still there:
        the run continues over its own data, whatever was published since. With `appended` it reads the newer one. One
        that was given a split stays there.

        previous: what the state was saved over, if this loader reads a mixture of other sources: sources in both
            continue where they are, in the same order; new ones start.

        Raises `StateMismatchError`, listing the differences, if it belongs to another sequence of rows.
        """
        if previous is None and (older := self._options.over_snapshot_of(state)) is not None:
            self._move_to(older, state)
            return
        stream = self._reader.stream
        epoch, position = state.epoch, state.position
        if previous is None:
            stream = self._options.stream_of_state(stream, state, self.state)
        else:
            before = self._options.stream(opened(previous))
            now = dataclasses.replace(self.state, source=before.identity())
            before = self._options.stream_of_state(before, state, now)
            stream, position = stream.restarted().taking_over(before.progress(epoch, position))
            epoch = 0
        note_other_takedowns(state.takedown, self.state.takedown)
        rows = stream.size_of(epoch)
        if rows is not None and position > rows:
            raise LoaderError(f"position {position} is outside an epoch of {rows} rows", position=position)
        self._move(Cursor(epoch, position), stream)
        self._restored = self._cursor

    def _move_to(self, options: LoaderOptions, state: LoaderState) -> None:
        other = type(self)(**vars(options))
        other.take_share(self.share)
        other.restore(state)
        _log.warning(
            "%r: continues over the snapshot of the state, %s; another one has been published since.",
            options.source,
            str(state.source.get("manifest"))[:16],
        )
        self._options, self._steps, self._features = other._options, other._steps, other._features
        self._move(other._cursor, other._reader.stream)
        self._restored = self._cursor

    def reset(self) -> None:
        """Returns to the first row of the first epoch, and a mixture to its declared rates.

        Use it to repeat a run that was restored at its end.
        """
        self._move(Cursor(0, 0), self._reader.stream.restarted())
        self._restored = None

    def set_rates(self, rates: Sequence[float | int | Fraction]) -> None:
        """Changes the rates of a mixture from the cursor on; each source continues where it is.

        If less than a batch is left at these rates, the run has ended: the next loop is empty, as after a restore at
        the end. Raises `LoaderError` once the run has ended.
        """
        cursor = self._cursor
        if self._is_done and self._reader.stream.segment(cursor.epoch) is not None:
            raise LoaderError(
                "this run has ended, so there is no row left whose source other rates could change. Call reset() for "
                "another run, at the declared rates, or make a Loader of a Mixture with these rates."
            )
        self._move(cursor, self._reader.stream.with_rates(rates, cursor.epoch, cursor.position))
        if self._is_done:
            self._restored = cursor

    def effective_rates(self) -> list[EffectiveRate]:
        """For each source of a mixture: its rows of this epoch so far, their share, its passes, its rate now.

        Between two epochs and at the end of the run, the numbers of the epoch that has ended. Rates (7, 3) after 10
        rows of sources of 14 and 30 rows → [(7, 0.7, 0.5, 0.7), (3, 0.3, 0.1, 0.3)].
        """
        stream = self._reader.stream
        epoch, position = self._cursor
        if epoch and not position:
            epoch, position = epoch - 1, stream.size_of(epoch - 1) or 0
        return stream.effective_rates(epoch, position)

    @property
    def _cursor(self) -> Cursor:
        return self._progress.cursor

    @property
    def _run(self) -> Run:
        return Run(self._reader.stream, self._steps)

    @property
    def _is_done(self) -> bool:
        return self._run.next_step(self._cursor) is None

    def seek_epoch(self, epoch: int) -> None:
        """Moves the cursor to the first row of an epoch; a mixture's rates stay as they are."""
        self._move(Cursor(check_integer("epoch", epoch, 0), 0), self._reader.stream)

    def _go_back(self, state: Mapping[str, object]) -> None:
        """Returns to a state of the same pass, as if later batches had never been read; not a restore."""
        restored = self._restored
        self.load_state_dict(state)
        self._restored = restored

    def _move(self, cursor: Cursor, stream: Stream) -> None:
        self._reader = self._options.reader(stream, self._steps)
        self._progress = Progress(cursor)
        iterator = self._iterator() if self._iterator is not None else None
        if iterator is not None:
            iterator.restart()


def _rebuilt(
    kind: type[Loader],
    options: LoaderOptions,
    share: HostSlice,
    cursor: Cursor,
    restored: Cursor | None,
    changes: Any,
) -> Loader:
    """A pickled or copied loader: files are reopened, threads start with the next loop.

    A share taken from a world or a sharding is copied too: the receiving process may be in none.
    """
    loader = kind(**vars(options))
    if share.world is not None or share.chosen_by == "sharding":
        loader.take_share(share)
    stream = loader._reader.stream
    if changes is not None:
        stream = stream.with_changes(changes)
    loader._move(cursor, stream)
    loader._restored = restored
    return loader
