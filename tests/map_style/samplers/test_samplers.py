"""The samplers: coverage, seeds and epochs, ranks, padding, and what their errors say."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DatasetError, UnknownNameError
from beam_pipes.map_style import (
    SAMPLERS,
    BatchSampler,
    DataLoader,
    DistributedSampler,
    PartialyRandomizedSimilarTimeLengthSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SimilarLengthBatchSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    padding_waste,
    sampler,
)
from beam_pipes.map_style.sampler import IndexSampler, digest

LENGTHS = st.lists(st.integers(0, 1000), max_size=150)
SEEDS = st.integers(0, 2**64)


def shuffling_samplers(size, **options):
    """One of each sampler that draws, over `size` examples."""
    lengths = [(7 * n) % 90 + 10 for n in range(size)]
    return [
        RandomSampler(size, **options),
        RandomSampler(size, replacement=True, **options),
        SubsetRandomSampler(range(size), **options),
        WeightedRandomSampler([1.0] * size, size, **options),
        WeightedRandomSampler([1.0] * size, size, replacement=False, **options),
        DistributedSampler(size, 2, 1, **options),
        PartialyRandomizedSimilarTimeLengthSampler(lengths, **options),
        SimilarLengthBatchSampler(lengths, 4, **options),
        BatchSampler(RandomSampler(size, **options), 4),
    ]


class PairsOfSpeakers(BatchSampler):
    """Makes batches itself, and does not call the constructor of its base: so does GE2E's sampler in Parakeet."""

    def __init__(self, utterances):
        self.utterances = utterances

    def __iter__(self):
        return iter([[2 * self.utterances[0], 1], [3, 0]])


class Backwards(Sampler):
    """A sampler over another one, written for Paddle."""

    def __init__(self, of):
        self.of = of

    def __iter__(self):
        return reversed(list(self.of))

    def __len__(self):
        return len(self.of)


def test_a_batch_sampler_need_not_call_the_constructor_of_its_base():
    speakers = PairsOfSpeakers([1])
    loader = DataLoader(["a", "b", "c", "d"], batch_sampler=speakers, collate_fn="".join)

    assert [list(loader), list(loader)] == [["cb", "da"]] * 2 and loader.epoch == 2
    other = DataLoader(["a", "b", "c", "d"], batch_sampler=PairsOfSpeakers([1]), collate_fn="".join)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 2 and "PairsOfSpeakers(seed=0, epoch=" in repr(speakers)
    with pytest.raises(TypeError, match="PairsOfSpeakers makes its batches itself and defines no __len__, so"):
        len(speakers)
    with pytest.raises(DatasetError, match=r"lists of indices, got \['a'\]; give the positions of these in the data"):
        next(iter(DataLoader(["a"], batch_sampler=[["a"]])))


def test_a_sampler_over_a_sampler_need_not_call_the_constructor_of_its_base():
    batches = BatchSampler(Backwards(SequentialSampler(5)), 2)
    batches.set_epoch(3)

    assert list(batches) == [[4, 3], [2, 1], [0]] and batches.epoch == 3
    assert batches.describe()["of"] == {"sampler": "Backwards", "seed": 0}


def test_an_epoch_repeats_itself_and_the_next_one_differs():
    for drawn in shuffling_samplers(200):
        first = list(drawn)
        assert first == list(drawn)

        drawn.set_epoch(1)
        assert first != list(drawn)

        drawn.set_epoch(0)
        assert first == list(drawn)


def test_seeds_differ_and_the_epoch_can_be_given_at_construction():
    for zero, one, late in zip(
        shuffling_samplers(200), shuffling_samplers(200, seed=1), shuffling_samplers(200, epoch=3), strict=True
    ):
        assert list(zero) != list(one)

        zero.set_epoch(3)
        assert list(zero) == list(late)


def test_every_sampler_gives_plain_ints_and_as_many_as_it_says():
    for drawn in [SequentialSampler(200), *shuffling_samplers(200)]:
        items = list(drawn)

        assert len(drawn) == len(items)
        flat = [index for item in items for index in (item if isinstance(item, list) else [item])]
        assert {int} == {type(index) for index in flat}
        assert 0 <= min(flat) and max(flat) < 200


def test_orders_are_frozen():
    assert [7, 3, 8, 0, 1, 6, 5, 2, 9, 4] == list(RandomSampler(10))
    assert [0, 8, 6, 5, 9, 1, 4, 2, 3, 7] == list(RandomSampler(10, epoch=1))
    assert [8, 6, 0, 9, 7, 1, 2, 4, 3, 5] == list(RandomSampler(10, seed=1))
    assert [5, 6, 8, 3, 9, 8, 7, 3, 4, 9] == list(RandomSampler(10, True))
    assert [11, 7, 5, 9] == list(SubsetRandomSampler([5, 7, 9, 11]))
    assert [2, 2, 2, 2, 2, 2, 0, 2] == list(WeightedRandomSampler([1, 0, 3], 8))
    assert [3, 2, 0] == list(WeightedRandomSampler([1, 0, 3, 1], 3, False))
    assert [[4, 2], [0], [1, 3]] == list(SimilarLengthBatchSampler([5, 1, 4, 2, 3], 2))
    assert [1, 0, 3, 6, 4, 2, 5] == list(PartialyRandomizedSimilarTimeLengthSampler([5, 1, 4, 2, 3, 9, 8], 2))


@given(st.integers(0, 200), SEEDS, st.integers(0, 1000))
def test_a_random_sampler_is_a_permutation(size, seed, epoch):
    assert list(range(size)) == sorted(RandomSampler(size, seed=seed, epoch=epoch))


def test_a_random_sampler_takes_the_length_of_a_dataset_and_a_number_of_samples():
    assert 3 == len(RandomSampler("abc"))
    assert 2 == len(set(RandomSampler("abc", num_samples=2)))
    assert 9 == len(list(RandomSampler("abc", replacement=True, num_samples=9)))
    assert [0, 1, 2] == list(SequentialSampler("abc"))


def test_a_random_order_has_no_place_that_prefers_an_index():
    counts = np.zeros((8, 8))
    for epoch in range(4000):
        counts[np.arange(8), RandomSampler(8).order(epoch)] += 1

    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert 15 < chi_square < 95  # 49 degrees of freedom: both ends are beyond one in ten thousand


def test_draws_follow_their_weights():
    counts = Counter(WeightedRandomSampler([1, 0, 3], 40_000))

    assert set(counts) == {0, 2}
    assert 0.25 == pytest.approx(counts[0] / 40_000, abs=0.01)


def test_draws_without_replacement_come_once_and_prefer_the_heavy():
    firsts = Counter()
    for epoch in range(3000):
        drawn = list(WeightedRandomSampler([1, 0, 3], 2, replacement=False, epoch=epoch))
        assert [0, 2] == sorted(drawn)
        firsts[drawn[0]] += 1

    assert 0.75 == pytest.approx(firsts[2] / 3000, abs=0.03)


def test_a_batch_sampler_groups_any_iterable_of_indices():
    assert [[0, 1], [2, 3], [4]] == list(BatchSampler(SequentialSampler(5), 2))
    assert [[0, 1], [2, 3]] == list(BatchSampler(SequentialSampler(5), 2, drop_last=True))
    assert [[4, 2], [0]] == list(BatchSampler([4, 2, 0], batch_size=2))
    assert [[4, 2]] == list(BatchSampler([4, 2, 0], batch_size=2, drop_last=True))


@given(LENGTHS, st.integers(1, 20), st.integers(1, 5), SEEDS, st.booleans())
def test_a_bucket_sampler_gives_every_index_once_in_full_batches(lengths, batch_size, pool, seed, shuffle):
    buckets = SimilarLengthBatchSampler(lengths, batch_size, pool_batches=pool, seed=seed, shuffle=shuffle)

    batches = list(buckets)

    assert list(range(len(lengths))) == sorted(index for batch in batches for index in batch)
    assert sorted(
        [batch_size] * (len(lengths) // batch_size) + [len(lengths) % batch_size] * bool(len(lengths) % batch_size)
    ) == sorted(map(len, batches))
    assert len(buckets) == len(batches)


@given(LENGTHS, st.integers(1, 20), st.integers(1000, 5000), SEEDS)
def test_a_bucket_sampler_keeps_its_budget_of_elements(lengths, batch_size, budget, seed):
    buckets = SimilarLengthBatchSampler(lengths, batch_size, max_elements=budget, seed=seed)

    batches = list(buckets)

    assert list(range(len(lengths))) == sorted(index for batch in batches for index in batch)
    assert all(0 < len(batch) <= batch_size for batch in batches)
    assert all(len(batch) * max(lengths[index] for index in batch) <= budget for batch in batches)
    assert len(buckets) == len(batches)


def test_dropping_the_short_batch_hits_other_examples_each_epoch():
    buckets = SimilarLengthBatchSampler(range(10), 4, drop_last=True)
    left_out = set()
    for epoch in range(40):
        buckets.set_epoch(epoch)
        left_out |= set(range(10)) - {index for batch in buckets for index in batch}

    assert set(range(10)) == left_out
    assert [4, 4] == [len(batch) for batch in buckets]
    assert 2 == len(buckets)


def test_unshuffled_buckets_are_sorted_for_evaluation():
    assert [[1, 3], [4, 2], [0]] == list(SimilarLengthBatchSampler([5, 1, 4, 2, 3], 2, shuffle=False))


def test_buckets_waste_under_a_tenth_where_random_batches_waste_over_a_third():
    lengths = np.random.default_rng(5).integers(200, 901, size=13_100)

    random = padding_waste(BatchSampler(RandomSampler(len(lengths)), 32), lengths)
    similar = padding_waste(BatchSampler(PartialyRandomizedSimilarTimeLengthSampler(lengths, 32), 32), lengths)
    bucketed = padding_waste(SimilarLengthBatchSampler(lengths, 32), lengths)

    assert 0.38 == pytest.approx(random, abs=0.01)
    assert similar < 0.10
    assert bucketed < 0.01


def test_padding_waste_counts_the_elements_that_are_no_data():
    assert 0.25 == padding_waste([[0, 1]], [2, 4])
    assert 0.0 == padding_waste([[0], [1]], [2, 4])
    assert 0.0 == padding_waste([], [])


@given(LENGTHS, st.integers(1, 9), st.integers(1, 4), SEEDS, st.booleans())
def test_a_similar_length_sampler_is_a_permutation(lengths, batch_size, groups, seed, permutate):
    drawn = PartialyRandomizedSimilarTimeLengthSampler(lengths, batch_size, batch_size * groups, permutate, seed=seed)

    assert list(range(len(lengths))) == sorted(drawn)


def test_similar_lengths_stay_in_their_group():
    lengths = list(range(64))

    order = list(PartialyRandomizedSimilarTimeLengthSampler(lengths, 4, 8, permutate=False))

    assert [sorted(order[start : start + 8]) for start in range(0, 64, 8)] == [
        list(range(start, start + 8)) for start in range(0, 64, 8)
    ]
    assert order != lengths


@given(st.integers(0, 120), st.integers(1, 9), SEEDS, st.integers(0, 5), st.sampled_from(["drop", "pad", "partial"]))
def test_ranks_share_an_epoch_as_their_policy_says(size, world, seed, epoch, last):
    ranks = [DistributedSampler(size, world, rank, last=last, seed=seed, epoch=epoch) for rank in range(world)]

    shares = [list(rank) for rank in ranks]

    counts = Counter(index for share in shares for index in share)
    assert [len(share) for share in shares] == [len(rank) for rank in ranks]
    if last == "partial":
        assert counts == Counter(range(size))
    else:
        assert 1 == len({len(share) for share in shares})
        assert abs(sum(counts.values()) - size) < world
    if last == "pad":
        assert set(range(size)) == set(counts)
    if last == "drop":
        assert set(counts.values()) <= {1}


def test_ranks_deal_the_order_of_one_rank():
    whole = list(DistributedSampler(10, 1, 0, seed=4))

    assert whole == list(RandomSampler(10, seed=4))
    assert whole[1::3] == list(DistributedSampler(10, 3, 1, seed=4))
    assert [1, 4, 7] == list(DistributedSampler(10, 3, 1, shuffle=False))
    assert [1, 3, 0] == list(DistributedSampler(5, 2, 1, False, last="pad"))


def test_ranks_deal_the_batches_of_any_sampler():
    lengths = list(range(50))
    ranks = [DistributedSampler(SimilarLengthBatchSampler(lengths, 4, seed=2), 3, rank, epoch=1) for rank in range(3)]

    batches = [batch for rank in ranks for batch in rank]

    assert sorted(map(tuple, SimilarLengthBatchSampler(lengths, 4, seed=2, epoch=1))) == sorted(map(tuple, batches))
    assert [5, 4, 4] == [len(rank) for rank in ranks]


def test_a_description_names_what_the_order_depends_on_but_no_rank():
    descriptions = [DistributedSampler(9, 3, rank, seed=6).describe() for rank in range(3)]

    assert descriptions[0] == descriptions[1] == descriptions[2]
    assert {
        "sampler": "DistributedSampler",
        "num_trainers": 3,
        "last": "partial",
        "of": {"sampler": "RandomSampler", "seed": 6, "size": 9, "replacement": False, "num_samples": 9},
    } == descriptions[0]
    assert "RandomSampler(seed=6, size=9, replacement=False, num_samples=9, epoch=2)" == repr(
        RandomSampler(9, seed=6, epoch=2)
    )
    assert BatchSampler([1, 0], 2).describe() == BatchSampler(np.array([1, 0]), 2).describe()
    assert BatchSampler([1, 0], 2).describe() != BatchSampler([0, 1], 2).describe()
    assert {"sampler": "dict_keys", "size": 2} == BatchSampler({0: 0, 1: 1}.keys(), 2).describe()["of"]


def test_a_description_changes_with_the_lengths():
    assert SimilarLengthBatchSampler([1, 2], 2).describe() != SimilarLengthBatchSampler([2, 1], 2).describe()
    assert digest(np.array([1, 2], np.int16)) == digest(np.array([1, 2], np.int64))


def test_samplers_are_found_by_name():
    assert [[1, 3], [4, 2], [0]] == list(sampler("bucketed", [5, 1, 4, 2, 3], batch_size=2, shuffle=False))
    assert isinstance(sampler("random", 10, seed=3), RandomSampler)
    assert sorted(SAMPLERS) == list(SAMPLERS)


def test_an_unknown_name_lists_the_choices():
    words = (
        "a sampler's name should be one of batch, bucketed, distributed, random, sequential, similar_length, "
        r"subset_random, weighted, got 'bucketd'\. Did you mean 'bucketed'\?"
    )
    with pytest.raises(UnknownNameError, match=f"^{words}$"):
        sampler("bucketd")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(
            lambda: RandomSampler(5, seed=-1), "RandomSampler needs seed to be an int of at least 0, got -1", id="seed"
        ),
        pytest.param(
            lambda: RandomSampler(5, seed=1.5),
            "RandomSampler needs seed to be an int of at least 0, got 1.5",
            id="seed_type",
        ),
        pytest.param(
            lambda: RandomSampler(5).set_epoch(-2),
            "RandomSampler needs epoch to be an int of at least 0, got -2",
            id="epoch",
        ),
        pytest.param(
            lambda: SequentialSampler(-3),
            "SequentialSampler needs data_source (a dataset, or its length) to be an int of at least 0, got -3",
            id="size",
        ),
        pytest.param(
            lambda: RandomSampler(5, num_samples=6),
            "RandomSampler cannot draw num_samples=6 from 5 examples without replacement; "
            "pass replacement=True or a smaller number",
            id="too_many",
        ),
        pytest.param(
            lambda: SubsetRandomSampler([0, -1]),
            "SubsetRandomSampler needs a flat sequence of integers of at least 0, got dtype int64, shape (2,)",
            id="indices",
        ),
        pytest.param(
            lambda: WeightedRandomSampler([1, float("nan"), -1], 2),
            "WeightedRandomSampler needs a flat sequence of finite weights of at least 0, got shape (3,) "
            "with 2 values that are negative or not finite",
            id="weights",
        ),
        pytest.param(
            lambda: WeightedRandomSampler([1, 0], 2, replacement=False),
            "WeightedRandomSampler cannot draw num_samples=2 from 1 positive weights without replacement",
            id="positive_weights",
        ),
        pytest.param(
            lambda: WeightedRandomSampler([0.0], 1),
            "WeightedRandomSampler cannot draw num_samples=1 from 0 positive weights",
            id="no_weight",
        ),
        pytest.param(
            lambda: BatchSampler(iter([1]), 2),
            "BatchSampler needs a sampler: an iterable of indices with a length, "
            "that can be iterated again; got list_iterator",
            id="iterator",
        ),
        pytest.param(
            lambda: BatchSampler([1], 0),
            "BatchSampler needs batch_size to be an int of at least 1, got 0",
            id="batch_size",
        ),
        pytest.param(
            lambda: SimilarLengthBatchSampler([1.5], 2),
            "SimilarLengthBatchSampler needs lengths to be integers of at least 0, one per example; "
            "got dtype float64, shape (1,)",
            id="lengths",
        ),
        pytest.param(
            lambda: SimilarLengthBatchSampler([3, 9], 2, max_elements=8),
            "SimilarLengthBatchSampler cannot place example 1 of length 9 in a batch of max_elements=8; "
            "raise the limit or leave the example out",
            id="too_long",
        ),
        pytest.param(
            lambda: SimilarLengthBatchSampler([3], 2, drop_last=True, max_elements=8),
            "SimilarLengthBatchSampler cannot drop a last batch with max_elements: batches vary in size",
            id="drop_last",
        ),
        pytest.param(
            lambda: PartialyRandomizedSimilarTimeLengthSampler([1] * 9, 4, 6),
            "PartialyRandomizedSimilarTimeLengthSampler needs batch_group_size to be a multiple of batch_size=4, got 6",
            id="group",
        ),
        pytest.param(
            lambda: DistributedSampler(5, 2, 2),
            "DistributedSampler needs 0 <= rank < num_trainers=2, got rank=2",
            id="rank",
        ),
        pytest.param(
            lambda: DistributedSampler(5, 2, 0, last="keep"),
            "DistributedSampler needs last to be one of: partial, drop, pad; got 'keep'",
            id="last",
        ),
        pytest.param(
            lambda: DistributedSampler(RandomSampler(5), 2, 0, True),
            "DistributedSampler takes no shuffle with a sampler: the order is the sampler's",
            id="shuffle",
        ),
        pytest.param(
            lambda: iter(Sampler()), "Sampler should define __iter__, giving indices or lists of indices", id="iter"
        ),
        pytest.param(lambda: len(Sampler()), "Sampler should define __len__, how many items one epoch gives", id="len"),
        pytest.param(
            lambda: iter(IndexSampler()),
            "IndexSampler should define order(self, epoch), an array of indices",
            id="order",
        ),
    ],
)
def test_a_wrong_use_is_refused(build, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        build()
