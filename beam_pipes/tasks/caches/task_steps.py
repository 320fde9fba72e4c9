"""`TaskSteps`: the Python steps of a task as the graph of a build."""

from __future__ import annotations

import functools
from typing import Any

from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.tasks.caches.cached_example import CachedExample
from beam_pipes.tasks.caches.fingerprints import part_name
from beam_pipes.tasks.caches.step_unit import step_unit
from beam_pipes.tasks.caches.task_reference import TaskReference
from beam_pipes.tasks.steps import num_streamed_steps


class TaskSteps:
    """`step 2: tokenize → step 3: append_eos → example`, the steps behind the last function of a dataset.

    Every split is an output; a shard of the source has files for its own split alone.
    """

    def __init__(self, reference: TaskReference, *, seed: int = 0, count_chars: bool = False) -> None:
        self._reference = reference
        self._seed = seed
        self._count_chars = count_chars

    @property
    def name(self) -> str:
        return self._reference.name

    @property
    def input_type(self) -> type:
        return object

    @property
    def output_type(self) -> dict[str, type]:
        return dict.fromkeys(self._reference.get().splits, dict)

    def transform(self, example: Any) -> Any:
        """One raw example → split → what each split would hold of it, as every graph has it; builds use the stages."""
        from beam_pipes.engine.batch import Batch, OneRecord
        from beam_pipes.engine.execute import GraphRunner

        batch = Batch(OneRecord(example, lambda: f"{next(iter(self.graph.outputs))}@0"))
        runner = GraphRunner(self.graph)
        runner.run(batch)
        return {split: list(column[0]) for split, column in runner.outputs(batch).items()}

    @functools.cached_property
    def graph(self) -> Graph:
        task = self._reference.get()
        steps = task.offline_steps()
        units: list[Unit] = []
        last = Ref("", None)
        for number in range(num_streamed_steps(steps), len(steps)):
            stage = step_unit(self._reference, number, seed=self._seed)
            units.append(Unit(name=part_name(number, steps[number]), stage=stage, inputs=last))
            last = Ref(units[-1].name, None)
        example = CachedExample(self._reference, count_chars=self._count_chars)
        units.append(Unit(name=example.name, stage=example, inputs=last))
        return Graph(
            name=self.name,
            input_type=object,
            units=tuple(units),
            outputs=dict.fromkeys(task.splits, Ref(example.name, None)),
            output_type=self.output_type,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "graph"}
