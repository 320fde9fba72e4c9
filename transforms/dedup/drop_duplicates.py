"""`DropDuplicates`: the stage that leaves out what an analysis has found to be there already."""

from __future__ import annotations

from typing import Any

from beam_pipes.analysis import Result
from beam_pipes.engine.record_context import current_context
from beam_pipes.engine.signature import brief
from beam_pipes.errors import DeclarationError
from beam_pipes.typed import Pipeline


class DropDuplicates(Pipeline):
    """Drops the records that are in a result of `ExactDuplicates` or `NearDuplicates`, and lets all others through.

        exact = ExactDuplicates("exact")
        unique = DropDuplicates(str, exact.result)
        Declaration(..., analyzers=(exact,), pipeline=DAGPipeline({unique: Input(str), ...}))

    What is dropped is counted as `exact duplicate` or `near duplicate`, so that a build's counts add up: every record
    is written, dropped with a reason, or a dead letter. With several results the first that knows a record says why.

    It looks at which record it is, not at what is in it, so it may stand anywhere in a DAG: in front saves most work.
    A record that stays and fails later is a dead letter, and its duplicates are gone all the same.

    Args:
        type_: the class of the values that pass through.
        results: `analyzer.result` of one or more analyzers that the declaration lists in `analyzers`.
        name: the stage's name.

    Raises `DeclarationError` where there is no result, or something else in its place.
    """

    def __init__(self, type_: type, *results: Result, name: str = "DropDuplicates") -> None:
        for result in results:
            if not isinstance(result, Result):
                raise DeclarationError(
                    f"{name}: results are analyzer.result, got {brief(result)}. Example: DropDuplicates(str, "
                    "exact.result).",
                    stage=name,
                )
        if not results:
            raise DeclarationError(
                f"{name}: there is no result that says what to drop. Example: DropDuplicates(str, exact.result).",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=type_, name=name)
        self.results = results

    def transform(self, input_object: Any) -> list[Any]:
        context = current_context()
        assert context is not None  # set by whoever calls `transform`, see `Pipeline`
        for result in self.results:
            duplicates = result.value()
            if context.record_id in duplicates:
                dropped: list[Any] = self.drop(duplicates.reason)
                return dropped
        return [input_object]
