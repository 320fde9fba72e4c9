"""Shingles: the overlapping pieces of texts by which their likeness is measured, as 32-bit hashes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from beam_pipes.errors import DeclarationError

Unit = Literal["words", "characters"]
UNITS: tuple[Unit, ...] = ("words", "characters")

# Bytes of text hashed at once; tables of powers are as long. Longer texts are cut where a unit begins.
PIECE_BYTES = 1 << 18

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Shingles:
    """Which pieces of a text are compared: every `width` consecutive words, or characters.

        Shingles("words", 2)        "to be or not"  →  {"to be", "be or", "or not"}
        Shingles("characters", 3)   "to be"         →  {"to ", "o b", " be"}

    Words are what whitespace separates; a run of whitespace counts as one space in both. A text that is shorter than
    one shingle is a shingle by itself, the empty text too, so that equal texts have equal shingles.

    Wider shingles tell more texts apart: five words (the default) are rarely shared by accident. For short texts, or
    languages that put no spaces between words, take characters.

    Raises `DeclarationError` for another unit, or a width below 1.

    Source: A. Broder, "On the resemblance and containment of documents" (1997), section 2.
    """

    of: Unit = "words"
    width: int = 5

    def __post_init__(self) -> None:
        if self.of not in UNITS:
            raise DeclarationError(f"shingles are made of {' or '.join(UNITS)}, got {self.of!r}.")
        if not isinstance(self.width, int) or isinstance(self.width, bool) or self.width < 1:
            raise DeclarationError(f"the width of shingles should be a count of at least 1, got {self.width!r}.")


def shingle_hashes(texts: Sequence[str], shingles: Shingles) -> Iterator[tuple[Array, Array]]:
    """The hashes of the shingles of `texts`, for about 256 KiB of text at a time.

    Yields (numbers of the texts, hashes): for every shingle the index of its text, ascending, and its hash, uint32. A
    shingle that occurs twice is there twice; a text may go on in what is yielded next.
    """
    pieces: list[bytes] = []
    owners: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        data = " ".join(text.split()).encode("utf-8", "surrogatepass")
        for piece in _pieces(data, shingles):
            if pieces and size + len(piece) > PIECE_BYTES:
                yield _hashed(pieces, owners, shingles)
                pieces, owners, size = [], [], 0
            pieces.append(piece)
            owners.append(number)
            size += len(piece) + 1
    if pieces:
        yield _hashed(pieces, owners, shingles)


def _pieces(data: bytes, shingles: Shingles) -> Iterator[bytes]:
    """A long text in parts that together have its shingles: each begins `width` - 1 units before the last ended."""
    if len(data) <= PIECE_BYTES:
        yield data
        return
    starts, ends = _units(np.frombuffer(data, np.uint8), shingles)
    first, overlap = 0, shingles.width - 1
    while True:
        # As many units as fit, and at least one shingle.
        last = int(np.searchsorted(ends, starts[first] + PIECE_BYTES // 2, side="right"))
        last = min(max(last, first + shingles.width), len(starts))
        yield data[starts[first] : ends[last - 1]]
        if last == len(starts):
            return
        first = last - overlap


def _units(data: Array, shingles: Shingles) -> tuple[Array, Array]:
    """Where words or characters begin and end in UTF-8 text without doubled spaces."""
    if shingles.of == "words":
        spaces = np.flatnonzero(data == 32)
        return np.concatenate([[0], spaces + 1]), np.concatenate([spaces, [len(data)]])
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    if not len(starts):
        starts = np.zeros(1, np.int64)
    return starts, np.concatenate([starts[1:], [len(data)]])


def _hashed(pieces: list[bytes], owners: list[int], shingles: Shingles) -> tuple[Array, Array]:
    """Hashes of every shingle of every piece: differences of prefix sums of a polynomial, then mixed."""
    data = np.frombuffer(b"\n".join(pieces), np.uint8)
    sizes = np.array([len(piece) for piece in pieces])
    piece_ends = np.cumsum(sizes + 1) - 1
    piece_starts = piece_ends - sizes
    if shingles.of == "words":
        ends = np.flatnonzero((data == 32) | (data == 10))
        ends = np.concatenate([ends, [len(data)]])
        starts = np.concatenate([[0], ends[:-1] + 1])
    else:
        # Every piece has at least one unit, also where it is empty.
        is_start = (data & 0xC0) != 0x80
        is_start[piece_ends[:-1]] = False
        starts = np.union1d(np.flatnonzero(is_start), piece_starts)
        ends = np.concatenate([starts[1:], [len(data)]])
        piece_of_unit = np.searchsorted(piece_starts, starts, side="right") - 1
        ends = np.minimum(ends, piece_ends[piece_of_unit])
    piece_of_unit = np.searchsorted(piece_starts, starts, side="right") - 1
    units = np.bincount(piece_of_unit, minlength=len(pieces))
    first_unit = np.cumsum(units) - units
    per_piece = np.maximum(units - shingles.width + 1, 1)
    piece_of_shingle = np.repeat(np.arange(len(pieces)), per_piece)
    within = np.arange(len(piece_of_shingle)) - np.repeat(np.cumsum(per_piece) - per_piece, per_piece)
    first = first_unit[piece_of_shingle] + within
    last = first + np.minimum(shingles.width, units[piece_of_shingle]) - 1
    begin, end = starts[first], ends[last]
    # Only a text with very long words makes a piece that needs longer tables.
    letters, powers, inverses = _tables() if len(data) < 2 * PIECE_BYTES else _make_tables(len(data) + 1)
    prefix = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(letters[data] * powers[: len(data)], out=prefix[1:])
    hashes = _mix((prefix[end] - prefix[begin]) * inverses[begin])
    return np.array(owners)[piece_of_shingle], (hashes >> np.uint64(32)).astype(np.uint32)


# An odd number: it has an inverse modulo 2^64.
_BASE = 0x9E3779B97F4A7C15


@lru_cache(maxsize=1)
def _tables() -> tuple[Array, Array, Array]:
    return _make_tables(PIECE_BYTES * 2)


def _make_tables(size: int) -> tuple[Array, Array, Array]:
    """A random word for each byte; the powers of the base and of its inverse."""
    letters = _mix(np.arange(1, 257, dtype=np.uint64))
    powers = np.full(size, _BASE, np.uint64)
    inverses = np.full(size, pow(_BASE, -1, 1 << 64), np.uint64)
    powers[0] = inverses[0] = 1
    return letters, np.cumprod(powers), np.cumprod(inverses)


def _mix(words: Array) -> Array:
    """Spreads every bit over all others (the finalizer of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = words ^ (words >> np.uint64(31))
    return mixed
