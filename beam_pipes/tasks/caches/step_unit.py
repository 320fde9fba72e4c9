"""Python steps of a task as stages of a build."""

from __future__ import annotations

import functools
from typing import Any

from beam_pipes.engine.execute import OnError
from beam_pipes.errors import TaskError
from beam_pipes.tasks.caches.fingerprints import plain_preprocessor
from beam_pipes.tasks.caches.task_reference import TaskReference
from beam_pipes.tasks.seeds import map_seed_manager
from beam_pipes.tasks.steps import BoundStep, Step


class StepUnit:
    """The offline step of a given number, which has a Python form: one example → a list of examples.

    Draws are keyed by the build's seed, the number of the step and the content of the example, as they are when the
    task is read uncached.
    """

    input_type = object
    output_type = object

    def __init__(self, reference: TaskReference, number: int, *, seed: int) -> None:
        self._reference = reference
        self._number = number
        self._seed = seed
        self.name = self.step.name

    @property
    def step(self) -> Step:
        return self._reference.get().offline_steps()[self._number]

    @property
    def version(self) -> Any:
        return getattr(self.step.preprocessor, "version", None)

    def fingerprint_config(self) -> dict[str, Any]:
        return {"preprocessor": plain_preprocessor(self.step.preprocessor)}

    @functools.cached_property
    def _apply(self) -> BoundStep:
        with map_seed_manager(self._seed, keyed_by="content", steps_begun=self._number):
            return self.step.bind(self._reference.get().step_context())

    def transform(self, example: Any) -> list[Any]:
        try:
            return list(self._apply(example, 0))
        except TaskError as error:
            # The engine says which step and which record; what it should tell of is the step's own exception.
            raise (error.__cause__ if error.step == self.name and error.__cause__ is not None else error) from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_apply"}


class FunctionUnit(StepUnit):
    """A step that is a function."""

    def transform_batch(self, examples: list[Any]) -> list[list[Any]]:
        apply = self._apply
        return [list(apply(example, 0)) for example in examples]


class PipelineUnit(StepUnit):
    """A step that is a typed pipeline; what it counts, and why it drops, is passed on."""

    @property
    def on_error(self) -> OnError | None:
        return getattr(self.step.preprocessor, "on_error", None)

    def transform(self, example: Any) -> list[Any]:
        made = super().transform(example)
        left = vars(self.step.preprocessor)
        self.__dict__.update({what: left[what] for what in ("_stats", "_drops") if what in left})
        return made

    def _set_stats(self) -> None:
        """Marks a stage that leaves `_stats` and `_drops` behind after each call."""


def step_unit(reference: TaskReference, number: int, *, seed: int) -> StepUnit:
    """The offline step of a given number as a stage."""
    is_pipeline = reference.get().offline_steps()[number].is_pipeline
    return (PipelineUnit if is_pipeline else FunctionUnit)(reference, number, seed=seed)
