from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import (
    ORDER_VERSION,
    BalancedOrder,
    KeyedPermutation,
    SequentialOrder,
    derive_key,
    records_of_each,
)

# The contract of ORDER_VERSION 1: (size, seed, epoch, stream) → records at six positions spread over the epoch. If one
# of these changes, saved states would continue with other records: raise ORDER_VERSION instead of editing them.
GOLDEN = {
    (1, 0, 0, 0): [0],
    (2, 0, 0, 0): [1, 0],
    (7, 1, 2, 0): [1, 6, 0, 2, 5, 4],
    (10, 0, 0, 0): [5, 4, 9, 8, 2, 1],
    (100, 7, 0, 0): [26, 28, 78, 81, 66, 79],
    (1000, 7, 1, 3): [310, 352, 136, 56, 822, 398],
    (4096, 0, 0, 0): [1833, 2223, 1125, 453, 3726, 2160],
    (65537, 1, 0, 0): [55897, 33315, 55400, 55847, 52979, 10205],
    (10**9, 12345, 6, 0): [482450078, 126920385, 249664465, 56762340, 136714508, 264184463],
    (2**40 + 7, 2**64 - 1, 10**6, 2): [
        718039568349,
        997598106021,
        697884386161,
        240555458948,
        361822537737,
        374587059746,
    ],
}


@pytest.mark.parametrize(("arguments", "records"), GOLDEN.items(), ids=str)
def test_golden_vectors_of_order_version_1(arguments, records):
    size, seed, epoch, stream = arguments
    order = KeyedPermutation(size, seed=seed, epoch=epoch, stream=stream)
    positions = np.linspace(0, size - 1, len(records)).astype(np.int64)

    assert order.records(positions).tolist() == records
    assert order.positions(records).tolist() == positions.tolist()
    assert ORDER_VERSION == 1


def test_golden_vectors_of_balanced_orders():
    order = BalancedOrder([5, 1, 9, 2, 7, 3, 8, 4, 6, 0], rows=3, seed=11, epoch=2)

    assert order.records(np.arange(10)).tolist() == [1, 2, 5, 9, 4, 0, 3, 8, 7, 6]


@given(st.integers(0, 5000), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_an_order_is_a_permutation_and_positions_is_its_inverse(size, seed, epoch):
    order = KeyedPermutation(size, seed=seed, epoch=epoch)

    records = order.records(np.arange(size))

    assert np.array_equal(np.sort(records), np.arange(size))
    assert np.array_equal(order.positions(records), np.arange(size))


@given(st.integers(1, 2**62), st.integers(0, 2**64 - 1), st.data())
def test_single_indices_of_huge_orders_come_back_from_the_inverse(size, seed, data):
    position = data.draw(st.integers(0, size - 1))
    order = KeyedPermutation(size, seed=seed)

    (record,) = order.records([position])

    assert 0 <= record < size
    assert order.positions([record]).tolist() == [position]


def test_an_index_does_not_depend_on_the_others_asked_for_with_it():
    order = KeyedPermutation(100_003, seed=5)
    together = order.records(np.arange(50_000))

    one_by_one = [int(order.records([position])[0]) for position in range(0, 50_000, 997)]

    assert together[::997].tolist() == one_by_one


def test_seed_epoch_and_stream_each_change_the_order():
    base = KeyedPermutation(1000, seed=1, epoch=1, stream=1).records(np.arange(1000))

    for other in ({"seed": 2}, {"epoch": 2}, {"stream": 2}):
        keys = {"seed": 1, "epoch": 1, "stream": 1, **other}
        records = KeyedPermutation(1000, **keys).records(np.arange(1000))
        # A fixed point is a chance of 1 in 1000 for each of 1000 positions: more than 8 happen once in a million.
        assert (records == base).sum() <= 8


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_permutations_of_few_records_are_equally_likely(size):
    seen: dict[tuple[int, ...], int] = {}
    draws = 2000
    for seed in range(draws):
        records = tuple(KeyedPermutation(size, seed=seed).records(np.arange(size)).tolist())
        seen[records] = seen.get(records, 0) + 1
    num_permutations = int(np.prod(np.arange(1, size + 1)))
    expected = draws / num_permutations

    chi_square = sum((count - expected) ** 2 / expected for count in seen.values())
    chi_square += (num_permutations - len(seen)) * expected

    assert _standard_score(chi_square, num_permutations - 1) < 4


@pytest.mark.parametrize("size", [64, 1000, 5000, 100_003])
def test_a_position_gets_every_record_equally_often_over_seeds(size):
    position = size // 3
    buckets = 32
    records = np.array([KeyedPermutation(size, seed=seed).records([position])[0] for seed in range(2000)])

    assert _chi_square_score(records * buckets // size, buckets) < 4


@pytest.mark.parametrize("size", [64, 5000, 1_000_000])
def test_neighbours_in_the_epoch_are_independent_records(size):
    buckets = 8
    pairs = []
    for seed in range(max(1, 200_000 // size)):
        records = KeyedPermutation(size, seed=seed).records(np.arange(size)) * buckets // size
        pairs.append(records[0:-1:2] * buckets + records[1::2])
    pairs = np.concatenate(pairs)

    correlation = np.corrcoef(pairs // buckets, pairs % buckets)[0, 1]

    # Without replacement neighbours are anticorrelated by 1 / (size - 1).
    assert abs(correlation + 1 / (size - 1)) < 4 / np.sqrt(len(pairs))
    if size > 64:
        assert _chi_square_score(pairs, buckets * buckets) < 4


def test_orders_of_consecutive_epochs_are_uncorrelated():
    size = 200_000
    orders = [KeyedPermutation(size, seed=0, epoch=epoch).records(np.arange(size)) for epoch in range(4)]

    correlations = np.corrcoef(orders)[~np.eye(4, dtype=bool)]

    assert np.abs(correlations).max() < 4 / np.sqrt(size)


def test_indices_outside_and_of_a_wrong_type_are_refused_with_the_index():
    order = KeyedPermutation(10)

    with pytest.raises(LoaderError, match=r"position 10 is outside \[0, 10\)"):
        order.records([3, 10])
    with pytest.raises(LoaderError, match=r"record -1 is outside \[0, 10\)"):
        order.positions([-1])
    with pytest.raises(LoaderError, match="positions must be integers, got dtype float64"):
        order.records([0.5])
    with pytest.raises(LoaderError, match="between 0 and 2\\^62 records, got -1"):
        KeyedPermutation(-1)


def test_the_sequential_order_is_the_identity():
    order = SequentialOrder(5)

    assert order.records([4, 0]).tolist() == [4, 0]
    assert order.positions([2]).tolist() == [2]
    with pytest.raises(LoaderError, match="position 5 is outside"):
        order.records([5])


def test_derived_keys_differ_by_every_word_and_by_their_number():
    keys = {
        derive_key(0),
        derive_key(0, 0),
        derive_key(0, 0, 0),
        derive_key(0, 1),
        derive_key(1, 0),
        derive_key(0, 0, 1),
        derive_key(0, 1, 0),
    }

    assert len(keys) == 7


def _chi_square_score(values, buckets):
    counts = np.bincount(values, minlength=buckets)
    expected = len(values) / buckets
    return _standard_score(((counts - expected) ** 2 / expected).sum(), buckets - 1)


def _standard_score(chi_square, degrees):
    return (chi_square - degrees) / np.sqrt(2 * degrees)


@pytest.mark.parametrize("size", [1, 2, 1000, 4095, 4096])
def test_a_permutation_that_is_kept_is_the_one_that_is_computed(size):
    order, kept = (KeyedPermutation(size, seed=3, epoch=1) for _ in range(2))
    whole = kept.records(np.arange(size))

    one_by_one = [int(order.records([position])[0]) for position in range(0, size, 37)]

    assert one_by_one == whole[::37].tolist() == kept.records(range(0, size, 37)).tolist()
    assert kept.positions(whole).tolist() == list(range(size))
    with pytest.raises(LoaderError, match="outside"):
        kept.records([size])


@given(st.data(), st.integers(0, 2**64 - 1))
def test_orders_that_share_a_call_give_what_each_gives_by_itself(data, seed):
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 10, 700, 4095, 4096, 70_000, 2**40 + 7, 2**62]), max_size=12))
    counts = [data.draw(st.sampled_from([0, 1, 2, 9, 90, 600])) for _ in sizes]
    draw = np.random.default_rng(seed)
    positions = np.concatenate([np.empty(0, np.int64), *map(draw.integers, [0] * len(sizes), sizes, counts)])

    def orders():
        made = [KeyedPermutation(size, seed=seed, stream=number) for number, size in enumerate(sizes)]
        return [*made[:-1], *(SequentialOrder(order.size) for order in made[-1:])]

    alone = [
        order.records(part).tolist()
        for order, part in zip(orders(), np.split(positions, np.cumsum(counts)[:-1]), strict=False)
    ]

    assert records_of_each(orders(), counts, positions).tolist() == sum(alone, [])


def test_a_position_outside_is_refused_with_its_index_by_orders_that_share_a_call():
    orders = [KeyedPermutation(5_000, seed=seed) for seed in range(3)]

    with pytest.raises(LoaderError, match=r"position 5000 is outside \[0, 5000\)"):
        records_of_each(orders, [1, 1, 1], np.array([0, 5_000, 1]))
