"""How often a run has read each record: computed from the order, and the same as asking for every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from beam_pipes import Cache, FeatureSpec, Loader, build, stage
from beam_pipes.cache.split import Split
from beam_pipes.errors import LoaderError
from beam_pipes.loader import BlockShuffle, LoaderState, Mixture, PackingPlan, pack
from beam_pipes.sources import Memory

Make = Callable[[Split, Split], Loader]


FEATURES = {"tokens": FeatureSpec("int32", shape=(None,))}


@stage
def tokens_of(number: int) -> dict[str, object]:
    return {"tokens": [0] * (1 + number % 7)}


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Split, Split]:
    path = tmp_path_factory.mktemp("reads") / "cache"
    sources = {name: Memory(list(range(size)), records_per_shard=16) for name, size in {"many": 37, "few": 9}.items()}
    build("reads", sources, [tokens_of], features=FEATURES, to=path, workers=1)
    cache = Cache.open(path)
    return cache["many"], cache["few"]


def packed(split: Split) -> PackingPlan:
    return pack(split, sequence_length={"tokens": 8})


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        pytest.param(lambda many, few: Loader(many, batch_size=4, seed=1, epochs=None), 23, id="drop"),
        pytest.param(lambda many, few: Loader(many, batch_size=4, epochs=None, last="partial"), 23, id="partial"),
        pytest.param(lambda many, few: Loader(many, batch_size=4, epochs=2), 18, id="to the end"),
        pytest.param(lambda many, few: Loader(many, batch_size=4, epochs=None), 0, id="nothing yet"),
        pytest.param(
            lambda many, few: Loader(many, batch_size=4, epochs=None, shuffle=BlockShuffle(window=2)), 11, id="blocks"
        ),
        pytest.param(
            lambda many, few: Loader(many.where("len(tokens) > 3"), batch_size=3, epochs=None), 17, id="filtered"
        ),
        pytest.param(
            lambda many, few: Loader(Mixture([(many, 0.7), (few, 0.3)]), batch_size=4, epochs=None), 41, id="mixture"
        ),
        pytest.param(
            lambda many, few: Loader(Mixture([(many, 1), (few, 1)], exhausted="stop"), batch_size=4, epochs=None),
            13,
            id="mixture in epochs",
        ),
        pytest.param(lambda many, few: Loader(packed(many), batch_size=2, epochs=None), 29, id="packed"),
        pytest.param(
            lambda many, few: Loader(Mixture([(packed(many), 2), (packed(few), 1)]), batch_size=2, epochs=None),
            31,
            id="packed mixture",
        ),
    ],
)
def test_times_are_those_of_all_steps(splits: tuple[Split, Split], make: Make, steps: int) -> None:
    loader = make(*splits)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)

    read = loader.times_read()

    found = Counter({(number, at): int(n) for number, each in enumerate(read) for at, n in enumerate(each.times) if n})
    asked = make(*splits)
    assert found == Counter((each.source, each.record) for step in range(steps) for each in asked.who(step))
    rows = [{(each.step, each.row, each.position) for each in asked.who(step)} for step in range(steps)]
    assert sum(each.rows for each in read) == sum(map(len, rows))


def test_rates_that_change_during_a_run_are_counted(splits: tuple[Split, Split]) -> None:
    loader = Loader(Mixture([(splits[0], 1), (splits[1], 1)]), batch_size=4, epochs=None)
    seen: Counter[int] = Counter()
    batches = iter(loader)
    for step in range(20):
        if step == 9:
            loader.set_rates([3, 1])
            batches = iter(loader)
        seen.update(each.source for each in loader.who(loader.step))
        next(batches)

    restored = Loader(Mixture([(splits[0], 1), (splits[1], 1)]), batch_size=4, epochs=None)
    restored.restore(LoaderState.from_json(loader.state.to_json()))

    assert [each.rows for each in restored.times_read()] == [seen[0], seen[1]]
    assert [int(each.times.sum()) for each in restored.times_read()] == [seen[0], seen[1]]


def test_a_source_that_has_left_is_asked_about(splits: tuple[Split, Split]) -> None:
    before = Mixture([(splits[0], 1), (splits[1], 1)])
    loader = Loader(before, batch_size=4, epochs=None)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state
    alone = Loader(Mixture([(splits[0], 1)]), batch_size=4, epochs=None)
    alone.restore(state, previous=before)

    with pytest.raises(LoaderError, match="its sources gave 10 of them: others have left the mixture since"):
        alone.times_read()
