"""Orders: which record is at which position of an epoch, as a function.

An *order* of size n is a bijection of [0, n). `records(positions)` answers "which record comes at position p",
`positions(records)` answers "when does record r come". Both are computed per index, in memory that does not
depend on n, so a place in an epoch of 10^9 records can be reached at once and shared between hosts by slicing.

What an order returns is frozen by `ORDER_VERSION`: the golden vectors in the tests are the contract, and the version
is part of every saved loader state.

A block-wise order, for caches with remote shards.

A globally shuffled batch of 32 touches up to 32 shards, which is free on a local disk and very slow on an object store.
A *block* is a run of consecutive records (here: a shard). Blocks are permuted; `window` consecutive blocks of that
permutation form a *window*; all records of a window are permuted together. So a reader that holds one window while
it fetches the next one reads every block once per epoch.

The order of a shard, for readers that each take a part of every epoch.

A balanced order, for rows of unequal cost: each batch takes one row of each class of costs, at random within the class.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array

ORDER_VERSION = 1

Indices = npt.NDArray[np.int64]
IndexLike = Sequence[int] | Array

_MASK_64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15  # of SplitMix64
_CHUNK = 1 << 14  # intermediate arrays stay in the L2 cache: 45 M indices/s against 25 M/s at a million at once
_SMALL_SIZE = 4096  # below, a permutation is kept as a whole: 32 KiB at most
_FEW = 512  # more positions of one order are no slower by themselves
_MAX_SIZE = 1 << 62  # both halves of the network fit 31 bits


class Order(Protocol):
    """A bijection of [0, size), evaluated on arrays of indices."""

    @property
    def size(self) -> int: ...

    def records(self, positions: IndexLike) -> Indices: ...

    def positions(self, records: IndexLike) -> Indices: ...


def derive_key(seed: int, *words: int) -> int:
    """A 64-bit key from a seed and any number of integers (epoch, stream, window, ...).

    One round of SplitMix64 per word (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA'14).
    """
    state = seed & _MASK_64
    for word in (len(words), *words):
        state = _mix(state ^ _mix(word & _MASK_64))
    return state


def _mix(value: int) -> int:
    value = (value + GAMMA) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return value ^ (value >> 31)


RowKeys = npt.NDArray[np.uint64]
_RoundKey = tuple[Array, Array]


def mixed(keys: RowKeys, words: int | Array) -> RowKeys:
    """Keys derived from keys and words, which are broadcast together: pseudorandom, and equal for equal inputs."""
    mixed_words = np.uint64(_mix(words & _MASK_64)) if isinstance(words, int) else splitmix64(words)
    return splitmix64(keys ^ mixed_words)


def row_keys(epoch: int, rows: Indices) -> RowKeys:
    """A key for each of these rows in an epoch."""
    return mixed(rows.astype(np.uint64), derive_key(epoch))


def splitmix64(values: Array) -> RowKeys:
    """One round of SplitMix64 on each value: 64 pseudorandom bits."""
    values = values.astype(np.uint64, copy=False) + np.uint64(GAMMA)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    made: RowKeys = values ^ (values >> np.uint64(31))
    return made


def check_indices(indices: IndexLike, size: int, what: str) -> Indices:
    """`indices` as int64, all within [0, size); raises `LoaderError` otherwise."""
    array = np.asarray(indices)
    if array.dtype.kind not in "iu" and array.size:
        raise LoaderError(f"{what}s must be integers, got dtype {array.dtype}", dtype=str(array.dtype))
    array = array.astype(np.int64, copy=False)
    if array.size and (int(array.min()) < 0 or int(array.max()) >= size):
        wrong = int(array[(array < 0) | (array >= size)][0])
        raise LoaderError(f"{what} {wrong} is outside [0, {size})", index=wrong, size=size)
    return array


def check_integer(name: str, value: object, least: int, most: int | None = None) -> int:
    """`value` as a Python integer: a NumPy integer has a width, would overflow in sums, and does not fit into JSON.

    Raises `LoaderError` unless it is an integer within bounds; NumPy's integers are integers, bools are not.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise LoaderError(f"{name} should be an integer, got {value!r}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise LoaderError(f"{name} should be {bounds}, got {value}")
    return int(value)


class SequentialOrder:
    """The stored order: position p holds record p. What `shuffle=False` uses."""

    def __init__(self, size: int) -> None:
        self.size = size

    def records(self, positions: IndexLike) -> Indices:
        return check_indices(positions, self.size, "position")

    def positions(self, records: IndexLike) -> Indices:
        return check_indices(records, self.size, "record")


class KeyedPermutation:
    """A pseudorandom permutation of [0, size), keyed by (seed, epoch, stream); 40-50 M indices/s on one core.

    A generalised Feistel network over Z_A × {0,1}^b with A·2^b just above `size`, and cycle walking back into
    [0, size) for the few indices that fall outside (Black and Rogaway, "Ciphers with arbitrary finite domains",
    CT-RSA 2002). The mixed domain matters for speed: with halves of equal bits up to three indices in four fall
    outside, here fewer than one in sqrt(size). Not cryptography: the round function is a 32-bit multiply-xorshift hash.

    `KeyedPermutation(10, seed=0).records(range(10))` → `[5, 4, 6, 9, 7, 8, 3, 2, 0, 1]`
    """

    def __init__(self, size: int, *, seed: int = 0, epoch: int = 0, stream: int = 0) -> None:
        if not 0 <= size <= _MAX_SIZE:
            raise LoaderError(f"an order has between 0 and 2^62 records, got {size}", size=size)
        self.size = size
        low_bits = max(1, max(size - 1, 1).bit_length() // 2)
        # Small domains have small halves, where a round changes little: chi-square over all permutations of five
        # records needs 16 rounds; from thousands of records on, no test here distinguishes eight rounds from a random
        # permutation.
        rounds = 24 if size < _SMALL_SIZE else 8
        self._small: Indices | None = None  # all of it, once most of it was requested
        words = splitmix64(np.uint64(derive_key(seed, epoch, stream)) + _STEPS[:rounds])
        #: What a network is made of: two words a round, bits of the lower half, size of the upper one, size of all.
        self.keys = np.stack([words >> _UPPER_HALF, words & _LOWER_WORD | _ONE], axis=1).astype(np.uint32)
        self.domain = (low_bits, max(1, -(-size // (1 << low_bits))), size)

    @functools.cached_property
    def _network(self) -> _Network:
        return _Network([(key[0, ...], key[1, ...]) for key in self.keys], np.array(self.domain, np.uint64))

    def records(self, positions: IndexLike) -> Indices:
        wanted = check_indices(positions, self.size, "position")
        if self._small is None:
            if self.size >= _SMALL_SIZE or 8 * wanted.size < self.size:
                return _in_chunks(wanted, self._network.forward)
            self._small = _in_chunks(np.arange(self.size), self._network.forward)
        return self._small[wanted]

    def is_asked_alone(self, count: int) -> bool:
        """Whether a request for so many positions shares no call: they are many, or all records are or will be kept."""
        if count > _FEW or self._small is not None:
            return True
        return self.size < _SMALL_SIZE and 2 * count < self.size <= 8 * count

    def positions(self, records: IndexLike) -> Indices:
        return _in_chunks(check_indices(records, self.size, "record"), self._network.backward)


def records_of_each(orders: Sequence[Order], counts: Sequence[int], positions: Indices) -> Indices:
    """The first `counts[0]` positions in `orders[0]`, the next ones in `orders[1]` …: (n,), as `records` gives them.

    A call of an order takes 70 to 110 µs however few its positions are, so orders that are asked for few share one: of
    a thousand, each asked for eight, an order takes 3 µs.
    """
    found = np.empty(len(positions), np.int64)
    together: dict[int, list[tuple[KeyedPermutation, int, int]]] = {}
    stop = 0
    for order, count in zip(orders, counts, strict=True):
        start, stop = stop, stop + count
        if isinstance(order, KeyedPermutation) and not order.is_asked_alone(count):
            together.setdefault(len(order.keys), []).append((order, start, stop))
        else:
            found[start:stop] = order.records(positions[start:stop])
    for requests in together.values():
        keys = np.stack([order.keys for order, _, _ in requests], axis=-1)
        domains = np.array([order.domain for order, _, _ in requests], np.uint64).T
        owners = np.repeat(np.arange(len(requests)), [stop - start for _, start, stop in requests])
        places = np.concatenate([np.arange(start, stop) for _, start, stop in requests])
        if np.any(positions[places].view(np.uint64) >= domains[2, owners]):
            for order, start, stop in requests:
                check_indices(positions[start:stop], order.size, "position")
        for first in range(0, len(places), _CHUNK // 4):  # the words of each index also stay in the L2 cache
            own, mine = owners[first : first + _CHUNK // 4], places[first : first + _CHUNK // 4]
            found[mine] = _Network(keys[..., own], domains[:, own]).forward(positions[mine].view(np.uint64))
    return found


def _in_chunks(indices: Indices, mapped: Callable[[RowKeys], RowKeys]) -> Indices:
    flat = np.ascontiguousarray(indices).reshape(-1)
    out = np.empty(flat.shape, np.int64)
    for start in range(0, len(flat), _CHUNK):
        out[start : start + _CHUNK] = mapped(flat[start : start + _CHUNK].view(np.uint64)).view(np.int64)
    return out.reshape(indices.shape)


class _Network:
    """The rounds of one permutation for all indices, or of a permutation for each index.

    `keys` are two words for each round, `domains` (bits of the lower half, size of the upper one, size of all): arrays
    of no dimension, or with an element for each index.
    """

    def __init__(self, keys: Sequence[_RoundKey] | Array, domains: Array) -> None:
        self._keys, self._domains = keys, domains
        self._low_bits, self._wide_high, self._size = domains[0, ...], domains[1, ...], domains[2, ...]
        self._low_mask = (_ONE << self._low_bits) - _ONE
        self._shift = np.asarray(32 - self._low_bits.astype(np.uint32))
        self._high = self._wide_high.astype(np.uint32)

    def forward(self, values: RowKeys) -> RowKeys:
        """Where each index comes out, within [0, size)."""
        return self._walk(values, _Network._forward)

    def backward(self, values: RowKeys) -> RowKeys:
        return self._walk(values, _Network._backward)

    def _walk(self, values: RowKeys, way: Callable[[_Network, RowKeys], RowKeys]) -> RowKeys:
        values = way(self, values)
        outside = np.flatnonzero(values >= self._size)
        while len(outside):
            some = self._some(outside)
            walked = way(some, values[outside])
            values[outside] = walked
            outside = outside[walked >= some._size]
        return values

    def _some(self, places: Indices) -> _Network:
        """The network of some of the indices."""
        if isinstance(self._keys, np.ndarray):
            return _Network(self._keys[..., places], self._domains[:, places])
        return self

    def _forward(self, values: RowKeys) -> RowKeys:
        high, low = self._split(values)
        scratch = _Scratch(len(values))
        for index, key in enumerate(self._keys):
            if index % 2:
                np.bitwise_xor(low, scratch.hash_bits(high, key, self._shift), out=low)
            else:
                np.add(high, scratch.hash_below(low, key, self._wide_high), out=high)
                # Modulo without a division: the smaller of x and x - A (mod 2^32) is the one within [0, A).
                np.minimum(high, np.subtract(high, self._high, out=scratch.spare), out=high)
        return self._join(high, low)

    def _backward(self, values: RowKeys) -> RowKeys:
        high, low = self._split(values)
        scratch = _Scratch(len(values))
        for index, key in reversed(list(enumerate(self._keys))):
            if index % 2:
                np.bitwise_xor(low, scratch.hash_bits(high, key, self._shift), out=low)
            else:
                np.subtract(high, scratch.hash_below(low, key, self._wide_high), out=high)
                np.minimum(high, np.add(high, self._high, out=scratch.spare), out=high)
        return self._join(high, low)

    def _split(self, values: RowKeys) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        return (values >> self._low_bits).astype(np.uint32), (values & self._low_mask).astype(np.uint32)

    def _join(self, high: npt.NDArray[np.uint32], low: npt.NDArray[np.uint32]) -> RowKeys:
        joined = high.astype(np.uint64)
        np.left_shift(joined, self._low_bits, out=joined)
        return np.bitwise_or(joined, low, out=joined)


def _number(value: int, dtype: type[np.unsignedinteger] = np.uint32) -> Array:
    """A zero-dimensional array: in operations with an array it costs half of what a scalar does, 0.3 µs per call."""
    return np.array(value, dtype)


_HASH_SHIFT, _HASH_FACTOR, _UPPER_HALF = _number(15), _number(0x9E3779B1), _number(32, np.uint64)
_LOWER_WORD, _ONE = _number(0xFFFFFFFF, np.uint64), _number(1, np.uint64)
_STEPS = np.arange(24, dtype=np.uint64) * np.uint64(GAMMA)  # from the key of one round to that of the next


class _Scratch:
    """Buffers of one pass through the network, so that its rounds allocate nothing."""

    def __init__(self, size: int) -> None:
        self.hashed = np.empty(size, np.uint32)
        self.spare = np.empty(size, np.uint32)
        self.wide = np.empty(size, np.uint64)

    def hash_bits(self, values: npt.NDArray[np.uint32], key: _RoundKey, shift: Array) -> npt.NDArray[np.uint32]:
        """A hash in [0, 2^(32 - shift))."""
        np.right_shift(self._hash(values, key), shift, out=self.hashed)
        return self.hashed

    def hash_below(self, values: npt.NDArray[np.uint32], key: _RoundKey, size: Array) -> npt.NDArray[np.uint32]:
        """A hash in [0, size), scaled by its upper bits (Lemire's multiply-shift)."""
        np.multiply(self._hash(values, key), size, out=self.wide)
        np.right_shift(self.wide, _UPPER_HALF, out=self.wide)
        self.hashed[:] = self.wide
        return self.hashed

    def _hash(self, values: npt.NDArray[np.uint32], key: _RoundKey) -> npt.NDArray[np.uint32]:
        hashed, spare = self.hashed, self.spare
        np.add(values, key[0], out=hashed)
        np.multiply(hashed, _HASH_FACTOR, out=hashed)
        np.bitwise_xor(hashed, np.right_shift(hashed, _HASH_SHIFT, out=spare), out=hashed)
        np.multiply(hashed, key[1], out=hashed)
        return hashed


@dataclasses.dataclass(frozen=True)
class ShardOrder:
    """Which record a shard reads at which position in which epoch.

    Shard s of n has the places s, s + n, s + 2n … of the epoch. With `sticky` these are records s, s + n, … and only
    their order changes.
    """

    size: int
    seed: int
    shard_id: int = 0
    num_shards: int = 1
    shuffle: bool = False
    sticky: bool = False

    def size_of(self, shard_id: int) -> int:
        """Records of one shard: sizes differ by at most one."""
        return len(range(shard_id, self.size, self.num_shards))

    @property
    def shard_size(self) -> int:
        """Records of this shard."""
        return self.size_of(self.shard_id)

    def is_dealt_as(self, other: ShardOrder) -> bool:
        """Whether position i of this shard's epoch is the same position of the whole epoch in both."""
        return (self.size, self.shard_id, self.num_shards) == (other.size, other.shard_id, other.num_shards)

    def records(self, epoch: int, positions: Indices) -> Indices:
        """The records at positions of this shard's epoch, counted from 0."""
        if not self.shuffle or not len(positions):
            return self._records(epoch, positions)
        first, last = int(positions.min()) // _PART, int(positions.max()) // _PART
        if last - first > 1:
            return self._records(epoch, positions)
        parts = [_part(self, epoch, part) for part in range(first, last + 1)]
        together: Indices = (parts[0] if len(parts) == 1 else np.concatenate(parts))[positions - first * _PART]
        return together

    def _records(self, epoch: int, positions: Indices) -> Indices:
        if self.sticky:
            own = self._order(self.shard_size, epoch, stream=1 + self.shard_id).records(positions)
            return own * self.num_shards + self.shard_id
        return self._order(self.size, epoch, stream=0).records(positions * self.num_shards + self.shard_id)

    def _order(self, size: int, epoch: int, *, stream: int) -> KeyedPermutation | SequentialOrder:
        if not self.shuffle:
            return SequentialOrder(size)
        return KeyedPermutation(size, seed=self.seed, epoch=epoch, stream=stream)


# Places that are permuted at once: 256 take 0.15 ms, 8,192 take 0.32.
_PART = 8192


@functools.lru_cache(maxsize=16)
def _part(order: ShardOrder, epoch: int, part: int) -> Indices:
    """The records at places `part * _PART` and following ones; read only."""
    found = order._records(epoch, np.arange(part * _PART, min((part + 1) * _PART, order.shard_size)))
    found.flags.writeable = False
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockShuffle:
    """Requests a block-wise order from a loader: `Loader(split, shuffle=BlockShuffle(window=8), …)`; blocks are shards.

    A larger `window` shuffles better and needs room for twice as many shards.
    """

    window: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", check_integer("window, a number of blocks,", self.window, 1))


# Streams within a loader's own stream: derived keys never collide with those of a global order.
_BLOCKS, _WINDOW = 1, 2


class BlockOrder:
    """Shuffles blocks, then the records of `window` neighbouring blocks together.

    Memory is 24 bytes per *block*, and none per record. `block_sizes` are the record counts of consecutive blocks.

    The price is quality: a batch comes from at most `window` blocks (two windows at a seam). If neighbours in the
    cache are similar (sorted by date or language), batch means then vary more than under a global shuffle;
    docs/how-to/shuffle-a-remote-cache.md has the measured table.
    """

    def __init__(self, block_sizes: IndexLike, *, window: int, seed: int = 0, epoch: int = 0, stream: int = 0) -> None:
        if window < 1:
            raise LoaderError(f"a window holds at least one block, got window={window}", window=window)
        sizes = np.asarray(block_sizes, np.int64)
        count = len(sizes)
        self.size = int(sizes.sum())
        self.window = window
        self._key = derive_key(seed, epoch, stream)
        self._blocks = KeyedPermutation(count, seed=derive_key(self._key, _BLOCKS)).records(np.arange(count))
        self._block_starts = np.concatenate(([0], np.cumsum(sizes)))
        self._slot_starts = np.concatenate(([0], np.cumsum(sizes[self._blocks])))
        self._slot_of_block = np.empty(count, np.int64)
        self._slot_of_block[self._blocks] = np.arange(count)
        self._window_starts = self._slot_starts[np.minimum(np.arange(0, count + window, window), count)]

    @property
    def num_windows(self) -> int:
        return len(self._window_starts) - 1

    def blocks_of_window(self, window: int) -> Indices:
        """The blocks that must be available while window number `window` is read, in the order of the epoch."""
        return self._blocks[window * self.window : (window + 1) * self.window]

    def window_of(self, position: int) -> int:
        """The window that `position` falls into."""
        return int(np.searchsorted(self._window_starts, position, side="right")) - 1

    def records(self, positions: IndexLike) -> Indices:
        positions = check_indices(positions, self.size, "position")
        shuffled = self._permute_within_windows(positions, inverse=False)
        slots = np.searchsorted(self._slot_starts, shuffled, side="right") - 1
        return self._block_starts[self._blocks[slots]] + (shuffled - self._slot_starts[slots])

    def positions(self, records: IndexLike) -> Indices:
        records = check_indices(records, self.size, "record")
        blocks = np.searchsorted(self._block_starts, records, side="right") - 1
        shuffled = self._slot_starts[self._slot_of_block[blocks]] + (records - self._block_starts[blocks])
        return self._permute_within_windows(shuffled, inverse=True)

    def _permute_within_windows(self, places: Indices, *, inverse: bool) -> Indices:
        windows = np.searchsorted(self._window_starts, places, side="right") - 1
        out = np.empty_like(places)
        for window in np.unique(windows):
            start, stop = self._window_starts[window], self._window_starts[window + 1]
            key = derive_key(self._key, _WINDOW, int(window))
            local = KeyedPermutation(int(stop - start), seed=key)
            inside = windows == window
            mapped = (local.positions if inverse else local.records)(places[inside] - start)
            out[inside] = start + mapped
        return out


@dataclasses.dataclass(frozen=True, kw_only=True)
class BalancedShuffle:
    """Requests batches of nearly equal cost from a loader: `Loader(plan, batch_size=64,
    shuffle=BalancedShuffle(rows=64))`.

    A row costs the sum of the squared lengths of its segments, to which the time of attention is proportional. Costs
    [1, 2, 3, 10, 20, 30] and `rows=2` → batches such as (2, 20), (1, 30), (3, 10) rather than (20, 30) and (1, 2).

    `rows` is the number of rows whose total is balanced, in most cases the global batch size. It belongs to the order,
    so a state keeps its meaning when it is restored with another batch size. Takes 16 bytes of memory per row, and 0.3
    s per million rows at the start of an epoch.
    """

    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", check_integer("rows", self.rows, 1))


class BalancedOrder:
    """Every `rows` consecutive rows hold one row of each of `rows` cost classes.

    A random permutation decides which rows are left over at the end of the epoch, if the number of rows is not
    a multiple of `rows`. The others are sorted by cost and cut into `rows` classes; each class is shuffled, and step s
    takes the s-th row of each. Within a step, classes are in bit-reversed order (van der Corput), so that every slice
    of the step, which one of several hosts reads, has both cheap and expensive rows.
    """

    def __init__(self, costs: IndexLike, *, rows: int, seed: int = 0, epoch: int = 0, stream: int = 0) -> None:
        found = np.asarray(costs, np.int64)
        self.size = len(found)
        key = derive_key(seed, epoch, stream)
        drawn = KeyedPermutation(self.size, seed=derive_key(key, _BLOCKS)).records(np.arange(self.size))
        steps = self.size // rows
        balanced = drawn[: steps * rows]
        classes = balanced[np.argsort(found[balanced], kind="stable")].reshape(rows, steps)
        keys = KeyedPermutation(steps * rows, seed=derive_key(key, _WINDOW)).records(np.arange(steps * rows))
        classes = np.take_along_axis(classes, np.argsort(keys.reshape(rows, steps), axis=1), axis=1)
        self._records = np.concatenate([classes[_bit_reversed(rows)].T.reshape(-1), drawn[steps * rows :]])
        self._positions: Indices | None = None

    def records(self, positions: IndexLike) -> Indices:
        return self._records[check_indices(positions, self.size, "position")]

    def positions(self, records: IndexLike) -> Indices:
        if self._positions is None:
            positions = np.empty(self.size, np.int64)
            positions[self._records] = np.arange(self.size)
            self._positions = positions
        return self._positions[check_indices(records, self.size, "record")]


def _bit_reversed(count: int) -> Indices:
    """[0, count) in the order of their reversed bits: `_bit_reversed(6)` → `[0, 4, 2, 1, 5, 3]`."""
    bits = max(1, (count - 1).bit_length())
    reversed_bits = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits)]
    return np.array([number for number in reversed_bits if number < count], np.int64)
