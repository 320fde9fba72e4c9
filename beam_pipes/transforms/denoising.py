"""Objectives drawn when rows are read: fill-in-the-middle and span corruption, as transforms of the loader.

    Loader(pack(split, sequence_length=1024), batch_size=32, transform=FillInTheMiddle(prefix_id=…, …))

The draws for a row and for each of its documents are a function of the transform's seed, the epoch and the row: the
same after a resume, on any number of hosts and with any number of threads, but different in every epoch. In a mixture,
whose rows may occur several times in an epoch, the position in the epoch replaces the row.

Nothing is stored: the cache holds the documents unchanged.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import number
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.batches import LENGTHS, Batch, ranges
from beam_pipes.loader.columns import rows_of
from beam_pipes.loader.order import Indices, RowKeys, derive_key, mixed

__all__ = ["FillInTheMiddle", "SpanCorruption", "noise_masks", "span_lengths"]

_SENTINELS = 3  # tokens that fill-in-the-middle adds to a document


def span_lengths(
    inputs_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[int, int]:
    """(tokens, targets): the longest row whose corrupted inputs fit `inputs_length`, and the length of its targets.

        span_lengths(512)  →  (568, 114)

    T5's `random_spans_helper`: rows packed to this many tokens give inputs of `inputs_length`, EOS included.
    """
    tokens = inputs_length

    def lengths(count: int) -> tuple[int, int]:
        noise = round(count * noise_density)
        spans = round(noise / mean_noise_span_length)
        return count - noise + spans + 1, noise + spans + 1

    while lengths(tokens + 1)[0] <= inputs_length:
        tokens += 1
    targets = lengths(tokens)[1]
    return (tokens - 1, targets - 1) if noise_density == 0.5 and targets > inputs_length else (tokens, targets)


def noise_masks(
    length: int, keys: RowKeys, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> npt.NDArray[np.bool_]:
    """(n, length) bool: which tokens are noise, for one key each; T5's `random_spans_noise_mask`.

    Spans of kept tokens and of noise alternate, starting with a kept one, and all masks have the same number of noise
    tokens and of spans: `round(length · noise_density)` and `round(noise / mean_noise_span_length)`, at least one.
    If that is more spans than kept tokens, where T5 fails, there are as many spans as kept tokens.
    """
    noise, spans = _noise_counts(length, noise_density, mean_noise_span_length)
    count = max(length, 2)
    lengths = np.empty((len(keys), 2 * spans), np.int64)
    lengths[:, 0::2] = _segmented(count - noise, spans, mixed(keys, 1))
    lengths[:, 1::2] = _segmented(noise, spans, mixed(keys, 2))
    kinds = np.tile(np.arange(2 * spans) % 2 == 1, len(keys))
    masks: npt.NDArray[np.bool_] = np.repeat(kinds, lengths.reshape(-1)).reshape(len(keys), count)[:, :length]
    return masks


def _noise_counts(length: int, density: float, mean: float) -> tuple[int, int]:
    """The number of noise tokens of a document, and of their spans."""
    count = max(length, 2)
    # In float32, rounding ties to even, as TensorFlow does.
    noise = min(max(int(np.round(np.float32(count) * np.float32(density))), 1), count - 1)
    spans = max(int(np.round(np.float32(noise) / np.float32(mean))), 1)
    return noise, min(spans, count - noise)


def _segmented(items: int, segments: int, keys: RowKeys) -> Indices:
    """(n, segments): `items` cut into segments of at least one, uniformly over all ways."""
    draws = mixed(keys[:, None], np.arange(items - 1, dtype=np.uint64))
    cuts = np.sort(np.argsort(draws, axis=1)[:, : segments - 1], axis=1) + 1
    bounds = np.empty((len(keys), segments + 1), np.int64)
    bounds[:, 0], bounds[:, 1:-1], bounds[:, -1] = 0, cuts, items
    return np.diff(bounds, axis=1)


def _segments(batch: Batch, feature: str) -> Array | None:
    """The segment ids of a feature of packed rows; None in other rows."""
    return next((batch[name] for name in (f"{feature}_segment_ids", "segment_ids") if name in batch), None)


def _inside(batch: Batch, feature: str, values: Array) -> npt.NDArray[np.bool_]:
    """The positions of rows that hold tokens: those of a segment, or all."""
    segments = _segments(batch, feature)
    return np.ones(values.shape, bool) if segments is None else segments != 0


class _Drawn:
    """A transform with draws for each row: the loader calls `of_rows` with the keys of the rows."""

    feature: str
    seed: int

    def __call__(self, batch: Batch) -> Batch:
        """The features that result for a batch without rows; rows need their keys."""
        rows = len(batch.get(self.feature + LENGTHS, batch.get(self.feature, ())))
        if rows:
            raise LoaderError(
                f"{type(self).__name__} draws by the place of each row, which only a loader knows: pass it as "
                "Loader(transform=…), or call of_rows(batch, keys)."
            )
        return self.of_rows(batch, np.empty(0, np.uint64))

    def of_rows(self, batch: Batch, keys: RowKeys) -> Batch:
        raise NotImplementedError

    def _values(self, batch: Batch) -> Array:
        if self.feature not in batch:
            raise LoaderError(
                f"{type(self).__name__} reads the feature {self.feature!r}, and the rows have: {', '.join(batch)}. "
                "Pass feature=….",
                feature=self.feature,
            )
        values = batch[self.feature]
        if values.dtype.kind not in "iu" or values.ndim != (1 if self.feature + LENGTHS in batch else 2):
            raise LoaderError(
                f"{type(self).__name__} reads token ids, integers of shape (rows, width), or values with lengths; "
                f"feature {self.feature!r} is {values.dtype} of shape {values.shape}.",
                feature=self.feature,
            )
        return values

    def _keys(self, keys: RowKeys) -> RowKeys:
        return mixed(keys, derive_key(self.seed))

    def _ids(self, dtype: np.dtype, ids: tuple[int, ...]) -> Array:
        if min(ids) < 0 or max(ids) > np.iinfo(dtype).max:
            raise LoaderError(
                f"{type(self).__name__} writes the ids {ids}, which feature {self.feature!r}, {dtype}, does not hold.",
                feature=self.feature,
            )
        return np.array(ids, dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillInTheMiddle(_Drawn):
    """Documents cut into prefix, middle and suffix, the middle moved to the end (Bavarian et al., 2022).

        [1, 2, 3, 4, 5, 6] cut at 2 and 4   PSM  [PRE, 1, 2, SUF, 5, 6, MID, 3, 4]
                                            SPM  [PRE, SUF, 5, 6, MID, 1, 2, 3, 4]

    prefix_id, suffix_id, middle_id: the ids of the three sentinels. rate: the fraction of documents transformed;
    spm_rate: the fraction of these in the order suffix, prefix, middle (the paper trains equally on both, hence 0.5). A
    document is a segment of a packed row, a row without its padding, or, with `ragged="values"`, a record. Both cuts
    are uniform over all positions, so that each part may be empty. eos_id: the token that ends documents, and stays at
    their ends; None if there is none. Default: 1, as in `SpanCorruption`, and every document has to end in it: a model
    that sees a document lose its end does not learn where to stop. Documents that were cut need the id to be given.
    pad_id: the padding of rows without segment ids, which belongs to no document.

    With `ragged="values"` documents are records, and a transformed one is three tokens longer, in values and lengths.
    In rows of a fixed width a document keeps its length and place, so that segment ids and positions stay valid: its
    last three tokens are cut off, and documents of fewer than four tokens (without EOS) are unchanged. All other
    columns stay. `middle_mask=True` adds `<feature>_middle`, bool of the shape of the feature: True on the tokens to
    fill in, for a loss on these alone.
    """

    prefix_id: int
    suffix_id: int
    middle_id: int
    feature: str = "tokens"
    rate: float = 0.5
    spm_rate: float = 0.5
    eos_id: int | Literal["assumed"] | None = "assumed"
    pad_id: int = 0
    middle_mask: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "spm_rate"):
            number(getattr(self, name), least=0, most=1, what=f"FillInTheMiddle: {name}", error=LoaderError)
        if len({self.prefix_id, self.suffix_id, self.middle_id}) < _SENTINELS:
            raise LoaderError(
                "FillInTheMiddle needs three sentinels that differ, got "
                f"{self.prefix_id}, {self.suffix_id} and {self.middle_id}"
            )

    def of_rows(self, batch: Batch, keys: RowKeys) -> Batch:
        """`batch` with the documents of `feature` transformed; `keys` (rows,) uint64 identifies the rows."""
        values, made = self._values(batch), dict(batch)
        if self.feature + LENGTHS in batch:
            lengths = batch[self.feature + LENGTHS]
            flat, marks, made[self.feature + LENGTHS] = self._moved(values, lengths, self._keys(keys), grows=True)
            shape: tuple[int, ...] = flat.shape
        else:
            lengths, owners = self._documents(batch, values, self._keys(keys))
            flat, marks, _ = self._moved(values.reshape(-1), lengths, owners, grows=False)
            shape = values.shape
        made[self.feature] = flat.reshape(shape)
        if self.middle_mask:
            made[f"{self.feature}_middle"] = marks.reshape(shape)
            if self.feature + LENGTHS in batch:
                made[f"{self.feature}_middle{LENGTHS}"] = made[self.feature + LENGTHS]
        return made

    def _documents(self, batch: Batch, values: Array, keys: RowKeys) -> tuple[Indices, RowKeys]:
        """The lengths of all runs of the flattened rows, including padding, and the key of each, 0 for padding."""
        segments = _segments(batch, self.feature)
        if segments is None:
            inside = np.cumsum((values != self.pad_id)[:, ::-1], axis=1)[:, ::-1] > 0
            segments = inside.astype(np.int32)
        new = np.ones(segments.shape, bool)
        new[:, 1:] = segments[:, 1:] != segments[:, :-1]
        starts = np.flatnonzero(new)
        numbers = segments.reshape(-1)[starts]
        owners = mixed(keys[starts // max(1, segments.shape[1])], numbers.astype(np.uint64))
        return np.diff(np.append(starts, segments.size)), np.where(numbers == 0, np.uint64(0), owners)

    def _moved(
        self, values: Array, lengths: Indices, keys: RowKeys, *, grows: bool
    ) -> tuple[Array, npt.NDArray[np.bool_], Indices]:
        """The values of all documents, which of them belong to a middle, and their number in each document."""
        starts = np.cumsum(lengths) - lengths
        ends_in_eos = np.zeros(len(lengths), np.int64)
        if self.eos_id is not None and len(values):
            last = values[np.maximum(starts + lengths - 1, 0)]
            eos_id = 1 if isinstance(self.eos_id, str) else self.eos_id
            other = np.flatnonzero((last != eos_id) & (lengths > 0) & (keys != 0))
            if isinstance(self.eos_id, str) and len(other):
                raise LoaderError(
                    "FillInTheMiddle moves the ends of documents, and has to know the token that stays there: expected "
                    f"1, its default, found a document that ends in {last[other[0]]}. Name the token that ends a text, "
                    "eos_id=… (beam-pipes tokens appends it; documents that were cut may lack it), or pass eos_id=None "
                    "if there is none.",
                    feature=self.feature,
                )
            ends_in_eos = ((last == eos_id) & (lengths > 0)).astype(np.int64)
        content = lengths - ends_in_eos - (0 if grows else _SENTINELS)
        chosen = (content > 0) & (keys != 0) & (_uniform(keys, 0) < self.rate)
        spm = (_uniform(keys, 1) < self.spm_rate) & chosen
        content = np.where(chosen, content, 0)
        cuts = np.sort([np.floor(_uniform(keys, n) * (content + 1)).astype(np.int64) for n in (2, 3)], axis=0)
        one, size = chosen.astype(np.int64), len(values)
        prefix, suffix = (starts, cuts[0]), (starts + cuts[1], content - cuts[1])
        middle = (starts + cuts[0], cuts[1] - cuts[0])
        # Places of the pieces in the values, each followed by its sentinel, and their lengths.
        sentinels = [(np.full(len(one), size + number), one) for number in range(_SENTINELS)]
        orders = (
            [sentinels[0], prefix, sentinels[1], suffix, sentinels[2], middle],
            [sentinels[0], sentinels[1], suffix, sentinels[2], prefix, middle],
        )
        pieces = np.where(spm, np.array(orders[1]), np.array(orders[0]))
        whole = np.array([[starts, np.where(chosen, 0, lengths)]])
        end = np.array([[starts + lengths - ends_in_eos, np.where(chosen, ends_in_eos, 0)]])
        pieces = np.concatenate([whole, pieces, end]).transpose(1, 2, 0)
        counts = pieces[1].reshape(-1)
        source = np.append(values, self._ids(values.dtype, (self.prefix_id, self.suffix_id, self.middle_id)))
        is_middle = np.zeros(pieces[1].shape, bool)
        is_middle[:, -2] = True
        marks = np.repeat(is_middle.reshape(-1), counts)
        return source[ranges(pieces[0].reshape(-1), counts)], marks, pieces[1].sum(axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption(_Drawn):
    """Replaces spans of tokens by sentinels, and gives the spans as targets (T5; Raffel et al., 2020).

        tokens  [1, 2, 3, 4, 5, 6, 7], noise on 3, 4 and 7, a vocabulary of 100
        inputs  [1, 2, 99, 5, 6, 98, EOS]   targets  [99, 3, 4, 98, 7, EOS]

    vocabulary_size: the sentinels are its last ids, in descending order, one for each span of noise. noise_density,
    mean_noise_span_length: see `noise_masks`. eos_id: ends inputs and targets; None adds nothing. inputs, targets: the
    names of the columns made.

    The feature, its segment ids and positions are replaced, other columns stay. A packed row is corrupted as a whole,
    as in T5, so pack with "concat_then_split": all inputs have one shape and all targets too, and `span_lengths` gives
    the width for a length of inputs. A row that ends in padding, such as the last one of a plan, gives shorter inputs
    and targets, which end in `pad_id`: mask the loss by `targets != pad_id`. With `ragged="values"` a record is a
    document, and inputs and targets are values with their lengths.
    """

    vocabulary_size: int
    feature: str = "tokens"
    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0
    eos_id: int | None = 1
    pad_id: int = 0
    inputs: str = "inputs"
    targets: str = "targets"
    seed: int = 0

    def __post_init__(self) -> None:
        number(self.noise_density, least=0, most=1, what="SpanCorruption: noise_density", error=LoaderError)
        what = "SpanCorruption: mean_noise_span_length"
        number(self.mean_noise_span_length, least=1, what=what, error=LoaderError)

    def of_rows(self, batch: Batch, keys: RowKeys) -> Batch:
        """`batch` with inputs and targets in place of `feature`; `keys` (rows,) uint64 identifies the rows."""
        values, keys = self._values(batch), self._keys(keys)
        gone = {self.feature, self.feature + LENGTHS}
        for added in ("segment_ids", "positions"):
            gone |= {added, f"{self.feature}_{added}"}
        made = {name: column for name, column in batch.items() if name not in gone}
        if self.feature + LENGTHS in batch:
            lengths = batch[self.feature + LENGTHS]
        else:
            inside = _inside(batch, self.feature, values)
            values, lengths = values[inside], inside.sum(axis=1)
        noise = self._noise(lengths, keys)
        for name, mask in ((self.inputs, noise), (self.targets, ~noise)):
            column, counts = self._with_sentinels(values, lengths, mask)
            if self.feature + LENGTHS in batch:
                made[name], made[name + LENGTHS] = column, counts
            else:
                width = self._width(inside.shape[1], name)
                made[name] = rows_of(column, counts, width, inner=(), fill=self.pad_id)
        return made

    def _width(self, width: int, name: str) -> int:
        """The width of inputs or targets of rows."""
        noise, spans = _noise_counts(width, self.noise_density, self.mean_noise_span_length)
        of_tokens = width if width < 2 else spans + (width - noise if name == self.inputs else noise)
        return of_tokens + (self.eos_id is not None)

    def _noise(self, lengths: Indices, keys: RowKeys) -> npt.NDArray[np.bool_]:
        """Which of all values, one document after the other, are noise. Documents of one length are drawn at once."""
        noise = np.zeros(int(lengths.sum()), bool)
        starts = np.cumsum(lengths) - lengths
        for length in np.unique(lengths).tolist():
            mine = np.flatnonzero(lengths == length)
            noise[starts[mine, None] + np.arange(length)] = noise_masks(
                length,
                keys[mine],
                noise_density=self.noise_density,
                mean_noise_span_length=self.mean_noise_span_length,
            )
        return noise

    def _with_sentinels(self, values: Array, lengths: Indices, mask: npt.NDArray[np.bool_]) -> tuple[Array, Indices]:
        """The values with each run of `mask` in a document replaced by a sentinel, and EOS after each document."""
        starts = np.cumsum(lengths) - lengths
        first = np.ones(len(values), bool)
        first[1:] = ~mask[:-1]
        first[starts[lengths > 0]] = True
        first &= mask
        owners = np.repeat(np.arange(len(lengths)), lengths)
        before = np.append(0, np.cumsum(first))
        numbers = before[1:] - before[starts[owners]]
        least = self.vocabulary_size - int(numbers.max(initial=0))
        self._ids(values.dtype, (least, self.vocabulary_size - 1))
        kept = ~mask | first
        counts = np.bincount(owners[kept], minlength=len(lengths)).astype(np.int64)
        made = np.where(first, self.vocabulary_size - numbers, values).astype(values.dtype)[kept]
        if self.eos_id is None:
            return made, counts
        return np.insert(made, np.cumsum(counts), self._ids(values.dtype, (self.eos_id,))[0]), counts + 1


def _uniform(keys: RowKeys, number: int) -> npt.NDArray[np.float64]:
    """A key's uniform draw from [0, 1) of the given number."""
    drawn: npt.NDArray[np.float64] = (mixed(keys, number) >> np.uint64(11)) * 2.0**-53
    return drawn
