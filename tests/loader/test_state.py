from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import Cache, write_cache
from beam_pipes.errors import BeamPipesError, LoaderError, StateMismatchError
from beam_pipes.loader import Loader, LoaderState, Mixture
from beam_pipes.loader.state import Segment, check_same_sequence

STATE = LoaderState(
    source={"manifest": "a81f", "split": "train", "rows": 100},
    order_version=1,
    seed=7,
    shuffle="global",
    epoch=2,
    position=64,
)
MIXED = LoaderState(
    source={"num_sources": 2, "digest": "00ff", "rates": [7, 3], "exhausted": "repeat"},
    order_version=1,
    seed=7,
    shuffle="global",
    epoch=0,
    position=10,
    segment=Segment(start=4, counts=(3, 1), rates=(1, 1)),
)


@pytest.mark.parametrize("state", [STATE, MIXED], ids=["plain", "mixed"])
def test_a_state_survives_json(state):
    assert LoaderState.from_json(state.to_json()) == state
    assert LoaderState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_the_json_is_canonical():
    assert STATE.to_json() == (
        '{"epoch":2,"order_version":1,"position":64,"seed":7,"shuffle":"global",'
        '"source":{"manifest":"a81f","rows":100,"split":"train"},"version":1}'
    )


def test_another_position_of_the_same_sequence_is_accepted():
    check_same_sequence(STATE, LoaderState.from_dict({**STATE.to_dict(), "epoch": 0, "position": 0}))


def test_every_difference_is_listed_with_both_values():
    other = {
        **STATE.to_dict(),
        "seed": 8,
        "order_version": 2,
        "source": {**STATE.source, "manifest": "09bc", "plan": "d1"},
    }

    with pytest.raises(StateMismatchError) as caught:
        check_same_sequence(STATE, LoaderState.from_dict(other))

    assert caught.value.differences == (
        "order_version: 1 → 2",
        "seed: 7 → 8",
        "source.manifest: 'a81f' → '09bc'",
        "source.plan: 'absent' → 'd1'",
    )
    assert "this state belongs to another sequence of rows: order_version: 1 → 2; seed: 7 → 8" in str(caught.value)
    assert "or start a new run" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("no json", "one JSON object, got 'no json'", id="text"),
        pytest.param("[1]", "one JSON object, got list", id="list"),
        pytest.param('{"version": 9}', "states of version 1, got 9", id="version"),
        pytest.param('{"version": 1, "seed": 1}', r"misses the fields \['epoch', 'order_version'", id="missing"),
        pytest.param(json.dumps({**STATE.to_dict(), "hosts": 3}), r"has the unknown ones \['hosts'\]", id="unknown"),
        pytest.param(
            json.dumps({**STATE.to_dict(), "position": -1}),
            "position should be a non-negative integer, got -1",
            id="negative",
        ),
        pytest.param(
            json.dumps({**MIXED.to_dict(), "segment": {"start": 1}}), "malformed value: 'counts'", id="segment"
        ),
        pytest.param(
            json.dumps({**STATE.to_dict(), "position": 2**63}),
            "position should be at most 2305843009213693952, got 9223372036854775808",
            id="position",
        ),
        *(
            pytest.param(
                json.dumps({**MIXED.to_dict(), "segment": {**MIXED.to_dict()["segment"], **change}}), words, id=name
            )
            for name, change, words in [
                ("a negative rate", {"rates": [1, -1]}, "rates of the segment should be a non-negative integer"),
                ("no rate", {"rates": [0, 0]}, "rates of the segment should add up to 1 to 1048576, got 0"),
                ("a rate of 2^40", {"rates": [1, 2**40]}, "rates of the segment should add up to 1 to 1048576"),
                ("counts of 2^64", {"counts": [2**64, 2]}, "counts of the segment should be at most"),
                ("a fraction", {"counts": [2.5, 1]}, "counts of the segment should be a non-negative integer"),
                ("other counts", {"counts": [40, 40]}, "the sources gave 80 rows before the segment, which starts"),
                ("fewer counts", {"counts": [1, 1]}, "gave 2 rows before the segment, which starts at row 4"),
                ("one count", {"counts": [4]}, "should have a count, a rate and a stream for each source"),
                ("a stream twice", {"streams": [1, 1]}, "should have a count, a rate and a stream for each source"),
            ]
        ),
        *(
            pytest.param(json.dumps({**STATE.to_dict(), "appended": appended}), words, id=name)
            for name, appended, words in [
                ("a negative addition", [["a8", -1, 0, None]], "rows of an addition should be a non-negative integer"),
                ("a far addition", [["a8", 5, 0, 6]], "an addition in an epoch of 5 rows is at row 6"),
                ("additions in another order", [["a8", 5, 2, None], ["a9", 9, 1, None]], "in the order of the run"),
                ("an addition without a name", [[None, 5, 2, None]], r"appended should list \[manifest, rows, epoch"),
            ]
        ),
    ],
)
def test_what_is_not_a_state_is_refused(text, words):
    with pytest.raises(LoaderError, match=words):
        LoaderState.from_json(text)


def test_numbers_of_numpy_in_a_segment_are_numbers():
    numpy = {name: np.array(each) for name, each in MIXED.to_dict()["segment"].items() if name != "start"}
    made = LoaderState.from_dict({**MIXED.to_dict(), "segment": {**numpy, "start": np.int64(4)}})

    assert made == MIXED and json.loads(made.to_json()) == MIXED.to_dict()


def _mutated(draw, value):
    """A JSON value with one leaf in the place of another."""
    leaves = [0, 1, -1, 3, 2**31, 2**62, 2**64, 10**30, 1.5, True, None, "", "a" * 70, [], {}, [[]], [1, 2, 3]]
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _mutated(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], _mutated(draw, value[index]), *value[index + 1 :]]
    return draw(st.sampled_from(leaves))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    made = tmp_path_factory.mktemp("states")
    return [write_cache(made / name, {"train": [{"id": n} for n in range(20)]})["train"] for name in "ab"]


@given(data=st.data(), how=st.sampled_from(["repeat", "stop", "drop", "limited", "split"]))
@settings(max_examples=150, deadline=None)
def test_damaged_states_are_refused_in_words_or_read(sources, data, how):
    def made():
        mixing = {"max_epochs": [2, None]} if how == "limited" else {"exhausted": how}
        source = sources[0] if how == "split" else Mixture(list(zip(sources, (3, 1), strict=True)), **mixing)
        return Loader(source, batch_size=4, epochs=None, seed=1)

    saved = made()
    next(iter(saved))
    if how != "split":
        saved.set_rates([1, 2])
        next(iter(saved))
    state = saved.state_dict()
    for _ in range(data.draw(st.integers(1, 2))):
        state = _mutated(data.draw, state)

    loader = made()
    try:
        loader.load_state_dict(state)
        for batch in itertools.islice(loader, 2):
            assert set(batch["id"].tolist()) <= set(range(20))
    except BeamPipesError:
        pass


def test_counts_that_a_mixture_does_not_have_are_refused(sources):
    rates = list(zip(sources, (3, 1), strict=True))
    whole = Loader(Mixture(rates, exhausted="drop"), batch_size=4, epochs=None)
    whole.set_rates([1, 1])
    state = whole.state_dict()

    with pytest.raises(StateMismatchError, match="source 0 of the mixture, which gives 20 rows in an epoch, is"):
        segment = {**state["segment"], "counts": [25, 0], "start": 25}
        whole.load_state_dict({**state, "position": 30, "segment": segment})


def test_a_state_of_a_place_that_was_sought_is_a_state(sources):
    """Trainers set the epoch of whatever they loop over, a mixture without end included."""
    loader, again = (Loader(Mixture([(each, 1) for each in sources]), batch_size=4, epochs=None) for _ in range(2))
    loader.seek_epoch(3)
    again.load_state_dict(loader.state_dict())

    assert next(iter(again))["id"].tolist() == next(iter(loader))["id"].tolist()


def test_a_refused_state_names_its_snapshot_while_that_is_there(tmp_path: Path) -> None:
    path, rows = tmp_path / "c", [{"n": n} for n in range(10)]
    older = Loader(write_cache(path, {"train": rows})["train"], batch_size=2)
    state = older.state
    write_cache(path, {"train": [{"n": -n} for n in range(10)]})

    with pytest.raises(StateMismatchError, match="Its snapshot is still there") as refused:
        Loader(Cache.open(path)["train"], batch_size=2).restore(state)

    found = Loader(Cache.open(path, snapshot=str(refused.value.attributes["snapshot"]))["train"], batch_size=2)
    found.restore(state)
    expected = [b["n"].tolist() for b in older]
    assert [b["n"].tolist() for b in found] == expected

    by_path = Loader(f"{path}/train", batch_size=2)  # nobody chose a snapshot: it moves to that of the state
    by_path.restore(state)
    assert [b["n"].tolist() for b in by_path] == expected
    with pytest.raises(StateMismatchError, match="seed: 0 → 1"):
        Loader(f"{path}/train", batch_size=2, seed=1).restore(state)

    shutil.rmtree(path / "snapshots" / str(refused.value.attributes["snapshot"]))
    with pytest.raises(StateMismatchError) as refused:
        Loader(f"{path}/train", batch_size=2).restore(state)
    assert "still there" not in str(refused.value)
