"""Likeness of texts: shingles, MinHash signatures, and bands.

A text is cut into overlapping pieces (*shingles*, hashed to 32 bits). Its MinHash is a row of numbers; the share of
equal numbers between two texts estimates the share of common shingles. Signatures are cut into bands; texts that share
a whole band are compared (locality-sensitive hashing).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from beam_pipes.checks import choice, integer

Array = np.ndarray

# Shingles hashed at once: one MiB of numbers with 128 functions, which fits into a core's cache.
_BLOCK_SHINGLES = 1024


@lru_cache(maxsize=8)
def hash_family(count: int, seed: int) -> tuple[Array, Array]:
    """The constants (a, b) of `count` functions x → (a·x + b mod 2^64) >> 32; a seed gives the same ones in every
    version.
    """
    stream = hashlib.shake_128(b"minhash" + str(seed).encode()).digest(16 * count)
    words = np.frombuffer(stream, "<u8").reshape(count, 2)
    return words[:, 0].copy(), words[:, 1].copy()


def min_hash(num_texts: int, hashed: Iterable[tuple[Array, Array]], *, count: int, seed: int) -> Array:
    """The signatures of texts, (texts, count) uint32, from the hashes of their shingles (`shingle_hashes`).

    Number i of a signature is the least value that the i-th function takes on the text's shingles. The functions are
    multiply-add-shift, x → (a·x + b mod 2^64) >> 32 over 32-bit hashes: the values of any two shingles are independent.
    The share of equal numbers in two signatures estimates the Jaccard similarity s of the sets of shingles, with a
    standard error of √(s(1 − s)/count): 0.035 at s = 0.8 for 128 functions.

    Sources: A. Broder, "On the resemblance and containment of documents" (1997). The functions: M. Dietzfelbinger,
    "Universal hashing and k-wise independent random variables via integer arithmetic without primes" (1996).
    """
    a, b = (words[:, None] for words in hash_family(count, seed))
    least = np.full((num_texts, count), np.iinfo(np.uint64).max, np.uint64)
    scratch = np.empty((count, _BLOCK_SHINGLES), np.uint64)
    for owners, hashes in hashed:
        for start in range(0, len(hashes), _BLOCK_SHINGLES):
            part = owners[start : start + _BLOCK_SHINGLES]
            values = scratch[:, : len(part)]
            np.multiply(a, hashes[None, start : start + len(part)].astype(np.uint64), out=values)
            values += b
            begins = np.concatenate([[0], np.flatnonzero(part[1:] != part[:-1]) + 1])
            texts = part[begins]
            # Shifting keeps the order, so it can be done after the minimum is found.
            least[texts] = np.minimum(least[texts], np.minimum.reduceat(values, begins, axis=1).T)
    signatures: Array = (least >> np.uint64(32)).astype(np.uint32)
    return signatures


def estimated_jaccard(left: Array, right: Array) -> Array:
    """The share of equal numbers of signatures, row by row: (rows, count) twice → (rows,) float32 between 0 and 1."""
    same: Array = (left == right).mean(axis=-1, dtype=np.float32)
    return same


def band_digests(signatures: Array, *, bands: int, rows: int) -> Array:
    """One word for the whole signature, then one for every band of `rows` numbers: (texts, 1 + bands) uint64.

    Two texts get the same word if they share the band. An accidental match has a probability of 2^-64 and costs
    only a comparison.
    """
    parts = signatures.reshape(len(signatures), bands, rows).astype(np.uint64)
    words = np.full((len(signatures), bands), 0x9E3779B97F4A7C15, np.uint64)
    for row in range(rows):
        words = (words ^ parts[:, :, row]) * np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(29)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    whole = np.full(len(signatures), 1, np.uint64)
    for band in range(bands):
        whole = (whole ^ words[:, band]) * np.uint64(0xBF58476D1CE4E5B9)
        whole ^= whole >> np.uint64(32)
    return np.concatenate([whole[:, None], words], axis=1)


def compared_probability(similarity: float, *, bands: int, rows: int) -> float:
    """The probability that two texts of a Jaccard similarity share a band, and so are compared: 1 − (1 − s^r)^b.

    For 16 bands of 8 rows:

    | s | 0.5 | 0.6 | 0.7 | 0.75 | 0.8 | 0.85 | 0.9 | 0.95 |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | compared | 0.061 | 0.237 | 0.613 | 0.815 | 0.947 | 0.994 | 1.000 | 1.000 |

    Source: J. Leskovec, A. Rajaraman, J. Ullman, "Mining of Massive Datasets", section 3.4.
    """
    return float(1 - (1 - similarity**rows) ** bands)


def found_probability(similarity: float, *, threshold: float, bands: int, rows: int) -> float:
    """The probability that two texts share a band *and* that their estimated similarity reaches the threshold.

    Each of the b·r numbers agrees with probability s, independently. For 16 bands of 8 rows and a threshold of 0.8:

    | s | 0.6 | 0.7 | 0.75 | 0.8 | 0.85 | 0.9 | 0.95 | 1 |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | found | 0.000 | 0.005 | 0.089 | 0.496 | 0.934 | 1.000 | 1.000 | 1 |
    """
    agreeing = np.array([math.comb(rows, n) * similarity**n * (1 - similarity) ** (rows - n) for n in range(rows + 1)])
    not_whole = agreeing.copy()
    not_whole[rows] = 0.0
    total, without = np.ones(1), np.ones(1)
    for _ in range(bands):
        total, without = np.convolve(total, agreeing), np.convolve(without, not_whole)
    return float((total - without)[least_agreeing(threshold, bands * rows) :].sum())


def least_agreeing(threshold: float, count: int) -> int:
    """The least number of equal numbers out of `count` for an estimate that reaches `threshold`."""
    return math.ceil(threshold * count - 1e-9)


Unit = Literal["words", "characters"]
UNITS: tuple[Unit, ...] = ("words", "characters")

# Bytes of text hashed at once, and the length of tables of powers. Longer texts are cut at the start of a unit.
PIECE_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True)
class Shingles:
    """The pieces of a text that are compared: every `width` consecutive words or characters.

        Shingles("words", 2)        "to be or not"  →  {"to be", "be or", "or not"}
        Shingles("characters", 3)   "to be"         →  {"to ", "o b", " be"}

    Words are separated by whitespace; a run of whitespace counts as one space in both. A text shorter than one shingle,
    even an empty one, is a single shingle, so that equal texts have equal shingles.

    Wider shingles distinguish more texts: five words (the default) are rarely shared by accident. For short texts, or
    languages without spaces between words, use characters.

    Raises `DeclarationError` for another unit, or a width below 1.

    Source: A. Broder, "On the resemblance and containment of documents" (1997), section 2.
    """

    of: Unit = "words"
    width: int = 5

    def __post_init__(self) -> None:
        choice(self.of, of=UNITS, what="the unit of shingles")
        object.__setattr__(self, "width", integer(self.width, least=1, what="the width of shingles"))


def shingle_hashes(texts: Sequence[str], shingles: Shingles) -> Iterator[tuple[Array, Array]]:
    """The hashes of the shingles of `texts`, for about 256 KiB of text at a time.

    Yields (numbers of the texts, hashes): for every shingle the index of its text, ascending, and its hash, uint32. A
    shingle that occurs twice appears twice; a text may continue in the next item.
    """
    for owners, words in shingle_words(texts, shingles):
        yield owners, (words >> np.uint64(32)).astype(np.uint32)


def shingle_words(texts: Sequence[str], shingles: Shingles) -> Iterator[tuple[Array, Array]]:
    """As `shingle_hashes`, in the 64 bits of which those are the upper half."""
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
    """A long text in parts that together have its shingles: each begins `width` - 1 units before the previous part
    ends.
    """
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
    """The bounds of words or characters in UTF-8 text without doubled spaces."""
    if shingles.of == "words":
        spaces = np.flatnonzero(data == 32)
        return np.concatenate([[0], spaces + 1]), np.concatenate([spaces, [len(data)]])
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    if not len(starts):
        starts = np.zeros(1, np.int64)
    return starts, np.concatenate([starts[1:], [len(data)]])


def _hashed(pieces: list[bytes], owners: list[int], shingles: Shingles) -> tuple[Array, Array]:
    """64 bits for every shingle of every piece: differences of prefix sums of a polynomial, then mixed."""
    data = np.frombuffer(b"\n".join(pieces), np.uint8)
    sizes = np.array([len(piece) for piece in pieces])
    piece_ends = np.cumsum(sizes + 1) - 1
    piece_starts = piece_ends - sizes
    if shingles.of == "words":
        ends = np.flatnonzero((data == 32) | (data == 10))
        ends = np.concatenate([ends, [len(data)]])
        starts = np.concatenate([[0], ends[:-1] + 1])
    else:
        # Every piece has at least one unit, even if it is empty.
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
    # Only texts with very long words make pieces that need longer tables.
    letters, powers, inverses = _tables() if len(data) < 2 * PIECE_BYTES else _make_tables(len(data) + 1)
    prefix = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(letters[data] * powers[: len(data)], out=prefix[1:])
    return np.array(owners)[piece_of_shingle], _mix((prefix[end] - prefix[begin]) * inverses[begin])


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
