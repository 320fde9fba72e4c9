from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import LoaderError
from beam_pipes.loader import BlockOrder, BlockShuffle, KeyedPermutation


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(1, 8), st.integers(0, 2**32))
def test_a_block_order_is_a_permutation_and_positions_is_its_inverse(sizes, window, seed):
    order = BlockOrder(sizes, window=window, seed=seed)

    records = order.records(np.arange(order.size))

    assert np.array_equal(np.sort(records), np.arange(sum(sizes)))
    assert np.array_equal(order.positions(records), np.arange(order.size))


def test_golden_vector_of_the_block_order():
    order = BlockOrder([5, 3, 4, 2], window=2, seed=9, epoch=1)

    assert order.records(range(14)).tolist() == [9, 13, 8, 10, 11, 12, 1, 4, 0, 5, 6, 7, 3, 2]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 1000))
def test_a_window_reads_only_its_own_blocks_and_every_block_belongs_to_one_window(sizes, window, seed):
    order = BlockOrder(sizes, window=window, seed=seed)
    block_of_record = np.repeat(np.arange(len(sizes)), sizes)
    positions = np.arange(order.size)
    windows = np.array([order.window_of(position) for position in positions])

    read = block_of_record[order.records(positions)]

    for number in range(order.num_windows):
        assert set(read[windows == number]) == set(order.blocks_of_window(number).tolist())
    assert np.sort(np.concatenate([order.blocks_of_window(w) for w in range(order.num_windows)])).tolist() == list(
        range(len(sizes))
    )


def test_a_wider_window_mixes_batches_better_up_to_the_global_shuffle():
    blocks, per_block, batch = 64, 256, 64
    value_of_record = np.repeat(np.arange(blocks), per_block)  # neighbours in the store are alike
    spreads = []
    for window in (1, 4, 16, 64):
        order = BlockOrder([per_block] * blocks, window=window, seed=1)
        values = value_of_record[order.records(np.arange(order.size))]
        spreads.append(values.reshape(-1, batch).mean(axis=1).std())
    ideal = value_of_record[KeyedPermutation(blocks * per_block, seed=1).records(np.arange(blocks * per_block))]
    ideal_spread = ideal.reshape(-1, batch).mean(axis=1).std()

    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > 5 * ideal_spread
    assert spreads[-1] < 1.2 * ideal_spread


def test_a_window_without_blocks_is_refused():
    with pytest.raises(LoaderError, match="at least one block, got window=0"):
        BlockOrder([1, 2], window=0)
    with pytest.raises(LoaderError, match="window, a number of blocks, should be at least 1, got 0"):
        BlockShuffle(window=0)
