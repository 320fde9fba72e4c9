"""Batches by a token budget: rows of similar length together, as many as fit the budget.

    boundaries   8        16       32          rows = max_tokens // boundary: many short rows or few long ones
    rows         a c f h  b e      d g         (lengths up to 8, to 16, to 32)
    batches      [a c f h] [b e] [d] [g]       max_tokens=32: 4 × 8, 2 × 16, 1 × 32
    an epoch     [d] [a c f h] [g] [b e]       both the rows of a bucket and the batches are shuffled

`TokenBatches` is the user's request, `Buckets` its result for one split, `BucketOrder` the order of one epoch: a
function like every order, so that a state is a place in it. `BucketStream` and `BucketSteps` put it behind a loader.
Known elsewhere as bucketing by sequence length (`tf.data.Dataset.bucket_by_sequence_length`), `--max-tokens` of fairseq
and dynamic bucketing of lhotse; these keep a buffer of rows, and so have no order that can be restored or computed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.columns import read_consistently
from beam_pipes.loader.mixture import Mixture
from beam_pipes.loader.order import (
    IndexLike,
    Indices,
    KeyedPermutation,
    Order,
    SequentialOrder,
    check_indices,
    check_integer,
    derive_key,
)
from beam_pipes.loader.row_source import SplitLike
from beam_pipes.loader.rows import GatherOptions, Shapes, SplitRows
from beam_pipes.loader.state import Addition
from beam_pipes.loader.steps import Cursor, Last, StepOfRow, StepOptions, Steps
from beam_pipes.loader.stream import OpenSource, Places, RowStream
from beam_pipes.loader.world import HostSlice

_LISTED_BOUNDARIES = 16
_ROUNDED_TO = 8  # boundaries chosen here are multiples of this, which suits tensor cores
_BATCHES, _RESTS, _ROWS = 1, 2, 3  # streams of keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenBatches:
    """Requests batches by tokens instead of rows from a loader: `Loader(split, batch_size=TokenBatches(…))`.

    Lengths [3, 30, 5, 8, 12, 2] with `max_tokens=32, boundaries=(8, 16, 32)` → a batch of shape (4, 8) with the rows
    of 3, 5, 8 and 2 tokens, one of shape (1, 16) and one of shape (1, 32). (Two rows of 16 tokens would fit, so the
    second batch is not full: `last` decides about it.)

    max_tokens: no *global* batch has more tokens, padding included: rows × boundary ≤ max_tokens.
    boundaries: ascending lengths at which buckets end; a row goes to the first one that holds it, and is padded to it.
        So there are as many shapes as boundaries, which is what compiled steps need. A number (by default 8) chooses
        that many from the lengths of the split, each bucket with about the same number of tokens.
    feature: the feature whose length counts; for several names, the longest. By default the only feature of varying
        length.
    multiple_of: the rows of every full batch are a multiple of this: the number of devices that share a batch, or 8 for
        tensor cores.
    max_rows: no batch has more rows, however short they are.

    Takes 8 bytes of memory per row, 16 above 2^31 rows. Raises `LoaderError` for values out of range.
    """

    max_tokens: int
    boundaries: int | Sequence[int] = 8
    feature: str | Sequence[str] | None = None
    multiple_of: int = 1
    max_rows: int | None = None

    def __post_init__(self) -> None:
        whole = functools.partial(object.__setattr__, self)
        whole("max_tokens", check_integer("max_tokens", self.max_tokens, 1))
        whole("multiple_of", check_integer("multiple_of", self.multiple_of, 1))
        if self.max_rows is not None:
            whole("max_rows", check_integer("max_rows", self.max_rows, self.multiple_of))
        if isinstance(self.boundaries, (str, bytes)) or not isinstance(self.boundaries, Sequence | np.ndarray):
            whole("boundaries", check_integer("boundaries, as a number of buckets,", self.boundaries, 1))
            return
        whole("boundaries", tuple(check_integer("a boundary", boundary, 1) for boundary in self.boundaries))
        ascending = sorted(set(self.boundaries))
        if not ascending or list(self.boundaries) != ascending:
            raise LoaderError(
                f"boundaries should be lengths in ascending order, got {self.boundaries!r}. Pass for instance "
                f"{tuple(ascending) or (128, 256, 512)}, or a number of buckets."
            )

    @property
    def label(self) -> str:
        """How a state names it; the chosen boundaries follow from the split, which the state also names."""
        given = self.boundaries
        bounds: object = [int(each) for each in given] if isinstance(given, Sequence) else int(given)
        if isinstance(bounds, list) and len(bounds) > _LISTED_BOUNDARIES:
            bounds = hashlib.sha256(repr(bounds).encode()).hexdigest()[:16]
        feature = self.feature if isinstance(self.feature, str | None) else list(self.feature)
        options = [("feature", feature, None), ("multiple_of", self.multiple_of, 1), ("max_rows", self.max_rows, None)]
        more = "".join(f", {name}={value}" for name, value, default in options if value != default)
        return f"max_tokens={self.max_tokens}, boundaries={bounds}{more}"


class Buckets:
    """The rows of a split by length: `members` are all row numbers, bucket after bucket.

    boundaries, rows_per_batch, counts: int64 (buckets,). offsets: where each bucket begins in `members`.
    """

    def __init__(self, lengths: Indices, option: TokenBatches, *, source: str) -> None:
        longest = int(lengths.max(initial=0))
        if isinstance(option.boundaries, Sequence):
            boundaries = np.asarray(option.boundaries, np.int64)
        else:
            boundaries = _chosen_boundaries(lengths, option.boundaries, most=option.max_tokens // option.multiple_of)
        if longest > boundaries[-1]:
            over = int(np.count_nonzero(lengths > boundaries[-1]))
            raise LoaderError(
                f"{over:,} rows of {source} are longer than {boundaries[-1]:,}; the longest has {longest:,} tokens. "
                f"Add a boundary of {longest} or more, or leave them out: "
                f"split.where('len({_first_name(option.feature)}) <= {boundaries[-1]}')."
            )
        rows = option.max_tokens // boundaries
        if option.max_rows is not None:
            rows = np.minimum(rows, option.max_rows)
        rows -= rows % option.multiple_of
        if not rows.all():
            least = int(boundaries[-1]) * option.multiple_of
            raise LoaderError(
                f"max_tokens={option.max_tokens} holds less than {option.multiple_of} rows of {boundaries[-1]} tokens, "
                f"the last boundary for {source}. Pass max_tokens={least} or more, or leave out long rows with "
                f"split.where('len({_first_name(option.feature)}) <= …')."
            )
        self.size, self.multiple_of = len(lengths), option.multiple_of
        self.boundaries, self.rows_per_batch = boundaries, rows
        bucket = np.searchsorted(boundaries, lengths)
        self.counts = np.bincount(bucket, minlength=len(boundaries)).astype(np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)))
        small = np.int32 if self.size < 1 << 31 else np.int64
        self.members = np.argsort(bucket, kind="stable").astype(small)
        self.tokens = int(lengths.sum())
        #: Batches of an epoch that are full, and those that are not: the same in all epochs.
        self.num_full = int((self.counts // rows).sum())
        self.num_rests = int(np.count_nonzero(self.counts % rows))

    @functools.cached_property
    def ranks(self) -> npt.NDArray[np.signedinteger]:
        """The place of each row in `members`."""
        ranks = np.empty_like(self.members)
        ranks[self.members] = np.arange(self.size, dtype=ranks.dtype)
        return ranks

    def boundary_of(self, row: int) -> int:
        """The width that the batch of a row is padded to."""
        return int(self.boundaries[int(np.searchsorted(self.offsets, self.ranks[row], side="right")) - 1])

    @property
    def padding(self) -> float:
        """The share of padding in all batches of an epoch."""
        padded = int((self.counts * self.boundaries).sum())
        return 1 - self.tokens / padded if padded else 0.0


def _first_name(feature: str | Sequence[str] | None) -> str:
    return feature if isinstance(feature, str) else next(iter(feature or ()), "tokens")


def _chosen_boundaries(lengths: Indices, number: int, *, most: int) -> Indices:
    """Boundaries with about the same number of tokens between them, rounded up to multiples of 8 if that fits."""
    ascending = np.sort(lengths)
    tokens = np.cumsum(ascending)
    if not len(tokens) or not tokens[-1]:
        return np.array([1], np.int64)
    ends = np.searchsorted(tokens, np.ceil(tokens[-1] * np.arange(1, number + 1) / number), side="left")
    found = ascending[np.minimum(ends, len(ascending) - 1)]
    rounded = -(-found // _ROUNDED_TO) * _ROUNDED_TO
    return np.unique(np.where(rounded <= max(most, int(ascending[-1])), rounded, found)).astype(np.int64)


class BucketOrder:
    """The order of one epoch: full batches first, shuffled over all buckets, then the rest of each bucket.

    `starts` are the positions at which batches begin, and the end of the epoch; `bucket` the bucket of each batch.
    Without `shuffle`, batches come from the shortest to the longest, with the rows of each bucket as they are stored.
    """

    def __init__(self, buckets: Buckets, *, shuffle: bool, seed: int, epoch: int) -> None:
        self.buckets = buckets
        self.size = buckets.size
        key = derive_key(seed, epoch)

        def permutation(size: int, *words: int) -> Order:
            return KeyedPermutation(size, seed=derive_key(key, *words)) if shuffle else SequentialOrder(size)

        rows, counts = buckets.rows_per_batch, buckets.counts
        full = counts // rows
        self._full_starts = np.concatenate(([0], np.cumsum(full)))
        num_full = buckets.num_full
        self._batches = permutation(num_full, _BATCHES)
        numbers = self._batches.records(np.arange(num_full))
        of_full = np.searchsorted(self._full_starts, numbers, side="right") - 1
        rests = np.flatnonzero(counts % rows)
        rests = rests[permutation(len(rests), _RESTS).records(np.arange(len(rests)))]
        self.bucket = np.concatenate([of_full, rests])
        self._first = np.concatenate(
            [(numbers - self._full_starts[of_full]) * rows[of_full], full[rests] * rows[rests]]
        )
        sizes = np.concatenate([rows[of_full], counts[rests] % rows[rests]])
        self.starts = np.concatenate(([0], np.cumsum(sizes)))
        self._rest_of = {int(bucket): num_full + place for place, bucket in enumerate(rests)}
        self._within = [permutation(int(count), _ROWS, number) for number, count in enumerate(counts)]

    def records(self, positions: IndexLike) -> Indices:
        positions = check_indices(positions, self.size, "position")
        steps = np.searchsorted(self.starts, positions, side="right") - 1
        ordinals = self._first[steps] + positions - self.starts[steps]
        of_position = self.bucket[steps]
        out = np.empty(len(positions), np.int64)
        for bucket in np.unique(of_position).tolist():
            mine = of_position == bucket
            places = self.buckets.offsets[bucket] + self._within[bucket].records(ordinals[mine])
            out[mine] = self.buckets.members[places]
        return out

    def positions(self, records: IndexLike) -> Indices:
        records = check_indices(records, self.size, "record")
        ranks = self.buckets.ranks[records].astype(np.int64)
        of_record = np.searchsorted(self.buckets.offsets, ranks, side="right") - 1
        out = np.empty(len(records), np.int64)
        for bucket in np.unique(of_record).tolist():
            mine = np.flatnonzero(of_record == bucket)
            ordinals = self._within[bucket].positions(ranks[mine] - self.buckets.offsets[bucket])
            batches = self._full_starts[bucket] + ordinals // self.buckets.rows_per_batch[bucket]
            in_full = batches < self._full_starts[bucket + 1]
            steps = np.full(len(mine), self._rest_of.get(bucket, 0))
            steps[in_full] = self._batches.positions(batches[in_full])
            out[mine] = self.starts[steps] + ordinals - self._first[steps]
        return out


class BucketStream(RowStream):
    """The rows of a split in batches by tokens: `RowStream` with another order, and widths that are boundaries."""

    def __init__(
        self,
        source: OpenSource | Mixture,
        options: GatherOptions,
        *,
        seed: int,
        shuffle: object,
        token_batches: TokenBatches,
    ) -> None:
        if not isinstance(shuffle, bool):
            raise LoaderError(
                f"TokenBatches decide which rows come together, and so does shuffle={shuffle!r}. Pass shuffle=True or "
                "False, or a number as batch_size."
            )
        if isinstance(source, Mixture):
            raise LoaderError(
                "TokenBatches take one split, got a mixture. Pack its sources, which fills rows to one length, and "
                "pass a number as batch_size."
            )
        super().__init__(source, options, seed=seed, shuffle=shuffle)
        if not isinstance(self._rows, SplitRows):
            raise LoaderError(
                f"TokenBatches group rows of different lengths, and all rows of {source!r} have one length. Pass a "
                "number as batch_size."
            )
        self.token_batches = token_batches
        split = self._rows.split
        counted = _counted_features(split, token_batches.feature)
        padded = options.pad_to if isinstance(options.pad_to, Mapping) else dict.fromkeys(counted, options.pad_to)
        if named := [name for name in counted if padded.get(name) is not None]:
            raise LoaderError(f"the boundaries of TokenBatches decide the width of {named[0]!r}. Leave out its pad_to.")
        self._counted = [name for name in counted if name in self._rows.columns and options.ragged == "pad"]
        lengths = functools.reduce(np.maximum, [np.asarray(split.lengths(name), np.int64) for name in counted])
        self.buckets = Buckets(lengths, token_batches, source=f"split {split.name!r}")
        self._order_of: Callable[[int], BucketOrder] = functools.lru_cache(maxsize=4)(
            lambda epoch: BucketOrder(self.buckets, shuffle=shuffle, seed=seed, epoch=epoch)
        )
        self._orders.of_epoch = self._order_of

    def steps(self, *, epochs: int | None, last: Last, share: HostSlice) -> BucketSteps:
        """How the rows of this stream become batches: the largest one has `batch_size` rows."""
        return BucketSteps(
            batch_size=int(self.buckets.rows_per_batch.max()),
            epochs=epochs,
            last=last,
            share=share,
            buckets=self.buckets,
            order_of=self._order_of,
        )

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        together = places if beside is None else beside
        if not len(together) or not self._counted:
            return super().gather(places, beside)
        boundary = self.buckets.boundary_of(int(together[0]))

        def shapes() -> Shapes:
            # A record that stands in for a removed one may be longer than the bucket: nothing is cut off.
            found = dict(self._rows.widest(together))
            for name in self._counted:
                found[name] = (max(boundary, found[name][0]), *found[name][1:])
            return found

        return read_consistently([self._rows.split], lambda: self._rows.gather(places, shapes=shapes()))

    def with_changes(self, changes: tuple[Addition, ...]) -> RowStream:
        if changes:
            raise LoaderError(
                "batches of TokenBatches cannot go on over a split to which records were added: their buckets are "
                "those of one snapshot. Finish the epoch over the older snapshot, or start a new run."
            )
        return self

    def lines(self) -> list[str]:
        buckets = self.buckets
        lines = [f"batches: {self.token_batches.label}, {buckets.padding:.1%} padding"]
        for boundary, rows, count in zip(buckets.boundaries, buckets.rows_per_batch, buckets.counts, strict=True):
            lines.append(f"lengths to {boundary:,}: {count:,} rows, {rows:,} in a batch")
        return lines


def _counted_features(split: SplitLike, feature: str | Sequence[str] | None) -> list[str]:
    ragged = sorted(name for name, spec in split.spec.items() if spec.ragged)
    if feature is None and len(ragged) == 1:
        return ragged
    named = [feature] if isinstance(feature, str) else list(feature or ())
    if not named or not set(named) <= set(ragged):
        found = f"got {feature!r}" if named else f"there are {len(ragged)}"
        raise LoaderError(
            f"TokenBatches count the length of one feature, {found}; features of varying length in split "
            f"{split.name!r}: {', '.join(ragged) or 'none'}. Pass feature= with one of them, or with several, whose "
            "longest counts."
        )
    return named


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketSteps(StepOptions):
    """The arithmetic of an epoch whose batches differ in rows: its order says where each begins."""

    buckets: Buckets
    order_of: Callable[[int], BucketOrder]

    even = False

    @property
    def smallest_batch(self) -> int:
        return int(self.buckets.rows_per_batch.min())

    @property
    def rows_multiple(self) -> int:
        return self.buckets.multiple_of

    def steps_of(self, rows: int) -> int:
        return self.buckets.num_full + (0 if self.last == "drop" else self.buckets.num_rests)

    def steps_from(self, epoch: int, position: int, rows: int) -> int:
        return max(0, self.steps_of(rows) - int(np.searchsorted(self.order_of(epoch).starts, position)))

    def start_of(self, epoch: int, step: int) -> int:
        starts = self.order_of(epoch).starts
        return int(starts[min(step, len(starts) - 1)])

    def placed(self, epoch: int, position: int, rows: int | None) -> StepOfRow:
        order = self.order_of(epoch)
        step = int(np.searchsorted(order.starts, position, side="right")) - 1
        start, end = order.starts[step : step + 2].tolist()
        return StepOfRow(step, start, end - start, self._full_rows(order, step))

    def next_steps(self, cursor: Cursor, size_of: Callable[[int], int | None], *, most: int = 1) -> Steps | None:
        epoch, position = cursor
        steps = self.steps_of(0)
        while steps and (self.epochs is None or epoch < self.epochs):
            order = self.order_of(epoch)
            step = int(np.searchsorted(order.starts, position, side="right")) - 1
            if step < steps:
                end = int(order.starts[step + 1])
                following = Cursor(epoch + 1, 0) if step + 1 == steps else Cursor(epoch, end)
                return Steps(epoch, position, end - position, 1, following, self._full_rows(order, step))
            epoch, position = epoch + 1, 0
        return None

    @staticmethod
    def _full_rows(order: BucketOrder, step: int) -> int:
        return int(order.buckets.rows_per_batch[order.bucket[step]])
