"""Numbers that come from arrays are numbers: NumPy's integers in every option and method give what Python's give.

They have a width, so that a sum with a seed or a size would overflow, and `json` does not know them.
"""

from __future__ import annotations

import numpy as np
import pytest

from beam_pipes import DataLoader
from beam_pipes.loader import BalancedShuffle, BlockShuffle, Loader, Mixture, RateSchedule, TokenBatches, pack

LOADERS = {
    "plain": lambda split, n: Loader(split, batch_size=n(8), seed=n(3), epochs=n(2), workers=n(1), prefetch=n(2)),
    "host": lambda split, n: Loader(split, batch_size=n(8), host_index=n(1), host_count=n(2)),
    "blocks": lambda split, n: Loader(split, batch_size=n(8), shuffle=BlockShuffle(window=n(2))),
    "balanced": lambda split, n: Loader(split, batch_size=n(8), shuffle=BalancedShuffle(rows=n(4))),
    "buckets": lambda split, n: Loader(
        split, batch_size=TokenBatches(max_tokens=n(64), boundaries=(n(8), n(32)), multiple_of=n(2)), last="partial"
    ),
    "packed": lambda split, n: Loader(
        pack(split, sequence_length=n(32), max_segments=n(3), segment_multiple=n(2), seed=n(1)),
        batch_size=n(4),
        cu_seqlens="padded",
    ),
    "mixture": lambda split, n: Loader(
        Mixture([(split, n(2)), (split, n(1))], max_epochs=[n(1), n(2)]), batch_size=n(8)
    ),
    "endless": lambda split, n: Loader(
        Mixture([(split, n(2)), (split, n(1))], schedule=RateSchedule([(n(2), (n(1), n(3)))])),
        batch_size=n(8),
        epochs=None,
    ),
}


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("kind", LOADERS)
def test_loaders_of_numpys_integers_are_those_of_pythons(document_split, kind, number):
    expected, found = LOADERS[kind](document_split, int), LOADERS[kind](document_split, number)

    for step in range(3):
        read = found.batch_at(number(step))
        assert {name: array.tolist() for name, array in read.items()} == {
            name: array.tolist() for name, array in expected.batch_at(step).items()
        }
    next(iter(expected))
    next(iter(found))
    assert found.get_state() == expected.get_state()
    assert found.describe() == expected.describe()
    assert repr(found.when(number(5), epoch=number(0))) == repr(expected.when(5))
    assert repr(found.place_at(number(0), number(7))) == repr(expected.place_at(0, 7))


@pytest.mark.parametrize("number", [np.int64, np.uint8])
def test_steps_and_epochs_are_numbers_too(row_split, number):
    loader = Loader(row_split, batch_size=8, epochs=2)

    assert loader.batches_at(number(9), number(4))["id"].tolist() == loader.batches_at(9, 4)["id"].tolist()
    assert loader.when(number(5), epoch=number(1)) == loader.when(5, epoch=1)
    passes = DataLoader.from_cache(row_split, batch_size=8)
    passes.set_epoch(number(2))
    assert passes.state_dict() == {"epoch": 2}


def test_a_state_whose_numbers_a_checkpoint_made_numpys_is_restored(row_split):
    loader = Loader(row_split, batch_size=8, seed=3)
    next(iter(loader))
    state = loader.state_dict()
    restored = Loader(row_split, batch_size=8, seed=3)

    restored.load_state_dict({**state, **{name: np.int64(state[name]) for name in ("seed", "epoch", "position")}})

    assert restored.get_state() == loader.get_state()


@pytest.mark.parametrize("boundaries", [np.array([8, 32]), [np.int64(8), 32], (8, 32)])
def test_boundaries_may_be_an_array(document_split, boundaries):
    loader = Loader(document_split, batch_size=TokenBatches(max_tokens=64, boundaries=boundaries), last="partial")

    assert loader.batch_at(0)["tokens"].shape[1] in (8, 32)
