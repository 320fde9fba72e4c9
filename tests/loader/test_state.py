from __future__ import annotations

import json

import pytest

from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader import LoaderState
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
    ],
)
def test_what_is_not_a_state_is_refused(text, words):
    with pytest.raises(LoaderError, match=words):
        LoaderState.from_json(text)
