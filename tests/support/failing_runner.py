"""A Beam runner whose jobs end as `FAILED` without an exception, as those of a service may."""

from __future__ import annotations

from typing import Any

from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineState


class FailingRunner(FnApiRunner):  # type: ignore[misc]
    """Runs a job, and says that it failed."""

    def run_pipeline(self, pipeline: Any, options: Any) -> PipelineResult:
        super().run_pipeline(pipeline, options)
        return _Failed()


class _Failed(PipelineResult):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(PipelineState.FAILED)

    def wait_until_finish(self, duration: Any = None) -> str:
        return str(PipelineState.FAILED)
