"""What a stage draws depends on seed, place, record and epoch only."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from function_stages import Listed, Stage, run
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import graph_of
from beam_pipes.engine.records import Batch
from beam_pipes.typed import (
    DAGPipeline,
    Input,
    Output,
)
from beam_pipes.typed.pipeline import generator_of


class TestDraws:
    def draws(self, values: list[int], cuts: list[int], **options: Any) -> list[int]:
        stage = Stage(lambda stage, value: [int(stage.rng().integers(2**60))])
        runner = GraphRunner(graph_of(stage, default_output="o"), **options)
        drawn = []
        for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
            batch = Batch(Listed(values[start:end], first=start))
            runner.run(batch)
            drawn += [value for column in runner.outputs(batch)["o"] for value in column]
        return drawn

    @given(st.sets(st.integers(1, 11)))
    def test_the_same_record_draws_the_same_however_batches_are_cut(self, cuts: set[int]) -> None:
        values = list(range(12))
        assert self.draws(values, sorted(cuts)) == self.draws(values, [])

    def test_seed_epoch_and_place_change_every_draw(self) -> None:
        variants: list[dict[str, Any]] = [{}, {"seed": 1}, {"epoch": 1}, {"path": "Elsewhere"}]
        drawn = [value for options in variants for value in self.draws([1, 2, 3], [], **options)]
        assert len(set(drawn)) == 12

    def test_nested_stages_inherit_seed_and_epoch(self) -> None:
        def nested(**options: Any) -> Any:
            stage = Stage(lambda stage, value: [int(stage.rng().integers(2**60))])
            inner = DAGPipeline({stage: Input(int), Output("o"): stage}, "Inner")
            return run(DAGPipeline({inner: Input(int), Output("o"): inner["o"]}), [1], **options)[0]["o"][0][0]

        assert len({nested(), nested(seed=1), nested(epoch=1)}) == 3
        assert nested(seed=1) == nested(seed=1)


def test_generators_can_be_pickled_and_copied() -> None:
    """A stage may pass its generator to another process."""
    drawn = generator_of(b"k" * 16).random(4).tolist()
    generator = generator_of(b"k" * 16)

    for again in (pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator), generator):
        assert again.random(4).tolist() == drawn
