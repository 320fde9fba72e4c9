"""Packed rows that give the lengths of their segments say the same as those that give ids and positions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.errors import ConversionError, LoaderError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.on_device import DataLoader, segments_of

WIDTH = 24


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    draw = np.random.default_rng(4)
    lengths = draw.integers(0, 20, 150)
    records = [
        {"tokens": draw.integers(1, 99, n, np.int32), "weights": draw.random(n, np.float32)} for n in lengths.tolist()
    ]
    features = {
        name: FeatureSpec(dtype, shape=(None,)) for name, dtype in (("tokens", "int32"), ("weights", "float32"))
    }
    path = tmp_path_factory.mktemp("documents") / "c"
    write_cache(path, {"train": records}, features=features)
    return Cache.open(path)["train"]


PLANS = {
    "best_fit": {},
    "concat": {"algorithm": "concat_then_split"},
    "multiple": {"segment_multiple": 4},
    "bos": {"bos_id": 7},
    "few": {"max_segments": 2},
}


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("cu_seqlens", [True, "padded"])
def test_lengths_give_the_ids_positions_and_boundaries_of_the_other_form(documents, kind, cu_seqlens):
    plan = pack(documents, sequence_length={"tokens": WIDTH}, **PLANS[kind])
    options = {"batch_size": 5, "seed": 2, "cu_seqlens": cu_seqlens, "last": "pad"}
    pairs = zip(Loader(plan, **options), Loader(plan, segments="lengths", **options), strict=True)

    for ids, lengths in pairs:
        found = segments_of(lengths["segment_lengths"], WIDTH, multiple=plan.segment_multiple)
        assert lengths.keys() == {"tokens", "segment_lengths", "cu_seqlens", "valid"}
        assert lengths["segment_lengths"].shape == (5, plan.most_segments)
        np.testing.assert_array_equal(found, (ids["segment_ids"], ids["positions"]))
        for name in ("tokens", "cu_seqlens", "valid"):
            np.testing.assert_array_equal(lengths[name], ids[name], err_msg=name)


def test_each_feature_of_a_plan_has_its_lengths(documents):
    plan = pack(documents, sequence_length={"tokens": WIDTH, "weights": WIDTH + 4})
    both = [Loader(plan, batch_size=9, segments=segments).batch_at(0) for segments in ("ids", "lengths")]

    for name, width in plan.sequence_lengths.items():
        ids, positions = segments_of(both[1][f"{name}_segment_lengths"], width)
        np.testing.assert_array_equal(ids, both[0][f"{name}_segment_ids"])
        np.testing.assert_array_equal(positions, both[0][f"{name}_positions"])


def test_sources_of_a_mixture_have_columns_of_one_width(documents):
    plans = [pack(documents, sequence_length={"tokens": WIDTH}, max_segments=most) for most in (1, 4)]
    mixture = Mixture([(plan, 1) for plan in plans], exhausted="stop")
    both = [Loader(mixture, batch_size=16, segments=segments).batch_at(0) for segments in ("ids", "lengths")]

    assert both[1]["segment_lengths"].shape == (16, 4)
    ids, positions = segments_of(both[1]["segment_lengths"], WIDTH)
    np.testing.assert_array_equal((ids, positions), (both[0]["segment_ids"], both[0]["positions"]))


LENGTHS = st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=5)


def by_hand(rows, width, multiple):
    ids, positions = np.zeros((2, len(rows), width), np.int32)
    for number, row in enumerate(rows):
        place = 0
        for segment, length in enumerate(row, 1):
            ids[number, place : place + length] = segment
            positions[number, place : place + length] = np.arange(length)
            place += -(-length // multiple) * multiple
    return ids, positions


@given(LENGTHS, st.sampled_from([1, 4]), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_segments_are_those_laid_down_one_by_one(rows, multiple, left):
    width = 1 + left + max(sum(-(-length // multiple) * multiple for length in row) for row in rows)

    found = segments_of(np.array(rows, np.int32), width, multiple=multiple)

    np.testing.assert_array_equal(found, by_hand(rows, width, multiple))
    assert {array.dtype for array in found} == {np.dtype(np.int32)}


def _jax(rows):
    return jax.jit(lambda lengths: segments_of(lengths, 8))(rows)


def _torch(rows):
    return segments_of(torch.from_numpy(rows), 8)


def _tensorflow(rows):
    traced = tf.function(lambda lengths: segments_of(lengths, 8))
    return traced.get_concrete_function(tf.TensorSpec((None, 3), tf.int32))(tf.constant(rows))


@pytest.mark.parametrize("made", [_jax, _torch, _tensorflow], ids=["jax.jit", "torch", "tf.function"])
@pytest.mark.parametrize("rows", [[[3, 2, 0], [0, 8, 0], [0, 0, 0], [1, 0, 7]], np.empty((0, 3))], ids=["rows", "none"])
def test_every_framework_gives_the_same_int32(made, rows):
    rows = np.array(rows, np.int32)

    found = made(rows)

    for one, expected in zip(found, by_hand(rows.tolist(), 8, 1), strict=True):
        assert np.asarray(one).dtype == np.int32
        np.testing.assert_array_equal(np.asarray(one), expected)


def test_what_has_no_lengths_is_refused(documents, tmp_path):
    plan = pack(documents, sequence_length={"tokens": WIDTH})
    anew = pack(
        documents, sequence_length={"tokens": WIDTH}, algorithm="concat_then_split", reshuffle_each_iteration=True
    )
    for source, options, words in (
        (documents, {}, "is for packed rows, and not all of these are"),
        (anew, {}, "needs a maximum number of segments per row"),
        (plan, {"forgotten": "mask"}, "says nothing of places, and forgotten='mask' leaves gaps"),
        (plan, {"segments": "length"}, "'lengths'"),
    ):
        with pytest.raises(LoaderError, match=words):
            Loader(source, batch_size=2, **{"segments": "lengths", **options})
    with pytest.raises(ConversionError, match=r"should be a \(rows, segments\) array"):
        segments_of([[1, 2]], 4)


def test_loaders_of_frameworks_give_them_too(documents):
    plan = pack(documents, sequence_length={"tokens": WIDTH})
    (batch, *_) = DataLoader.from_cache(plan, batch_size=4, segments="lengths").to_numpy()

    assert batch["segment_lengths"].shape == (4, plan.most_segments)
