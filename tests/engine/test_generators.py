"""Functions that yield values which nobody can change are run by a shorter way; both ways give the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import graph_of
from beam_pipes.engine.records import Batch, OneRecord
from beam_pipes.typed import DAGPipeline, Input, Output, count, drop, stage
from beam_pipes.typed.annotated import only_yields

DEEDS = ["to", "be", "none", "drop", "count", "numpy", "wrong", "fail", "return", "last"]


def told(deeds: list) -> Iterator[str]:
    for deed in deeds:
        if deed == "none":
            yield None  # type: ignore[misc]  # left out
        elif deed == "drop":
            yield drop("told to")
        elif deed == "count":
            count("counted")
        elif deed == "numpy":
            yield np.str_(deed)
        elif deed == "wrong":
            yield 7  # type: ignore[misc]  # not what is declared
        elif deed == "fail":
            raise ValueError(deed)
        elif deed == "return":
            return
        else:
            yield deed


def also_told(deeds: list) -> Iterator[str]:
    """Yields the same; is no generator function itself."""
    return told(deeds)


also_told.__name__ = told.__name__  # which messages hold


def told_and_returned(deeds: list) -> Iterator[str]:
    yield from told(deeds)
    if "last" in deeds:
        return drop("last")  # type: ignore[return-value]


@stage
def parts(record: list) -> Iterator[list]:
    yield from record


def run(function: Any, records: list[list[list[str]]]) -> Any:
    """For each record: its outputs, drops and failure; and what was booked."""
    told_stage = stage(function).changed(name="told")
    graph = graph_of(
        DAGPipeline({parts: Input(list), told_stage: parts, Output("to"): told_stage}), default_output="to"
    )
    runner = GraphRunner(graph, on_error="dead_letter")
    found, account = [], None
    for record in records:
        batch = Batch(OneRecord(record, lambda: "record"), account)
        runner.run(batch)
        account = batch.account
        failures = {index: (one.stage, one.error_type, one.message, one.item) for index, one in batch.failures.items()}
        outputs = [list(values) for values in batch.column(graph.outputs["to"])]
        found.append((outputs, [list(map(type, values)) for values in outputs], batch.drops, failures))
    return found, None if account is None else account.unit("told").to_json()


RECORDS = st.lists(st.lists(st.lists(st.sampled_from(DEEDS), max_size=3), max_size=3), max_size=4)


@hypothesis.given(RECORDS)
@hypothesis.example([[["to", "be"]], [[]], [["to"], [], ["to", "drop"], ["drop"]]])
def test_the_shorter_way_gives_the_same_outputs_drops_failures_and_counts(records: list[list[list[str]]]) -> None:
    assert only_yields(told) and not only_yields(also_told)

    assert run(told, records) == run(also_told, records)


@hypothesis.given(RECORDS)
def test_what_a_generator_returns_is_an_output_too(records: list[list[list[str]]]) -> None:
    assert not only_yields(told_and_returned)
    with_drop = [[[*deeds, "drop"] if "last" in deeds else deeds for deeds in record] for record in records]

    found, _ = run(
        told_and_returned, [[[d for d in ds if d not in ("fail", "wrong", "return")] for ds in r] for r in records]
    )
    wanted, _ = run(told, [[[d for d in ds if d not in ("fail", "wrong", "return")] for ds in r] for r in with_drop])

    assert [outputs for outputs, *_ in found] == [outputs for outputs, *_ in wanted]


def conditional(value: str) -> Iterator[str]:
    yield value
    return drop("x") if value else None  # type: ignore[return-value]


def bare(value: str) -> Iterator[str]:
    if not value:
        return
    yield value


@pytest.mark.parametrize(
    ("function", "expected"), [(bare, True), (conditional, False), (str.split, False), (len, False)]
)
def test_what_surely_returns_nothing(function: Any, expected: bool) -> None:
    assert only_yields(function) is expected
