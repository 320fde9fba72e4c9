"""`Failure`: a record that failed in a stage that allows it, in words that travel and that are the same everywhere."""

from __future__ import annotations

import dataclasses
import traceback


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a record, where.

    Words, not the exception: many exceptions cannot be pickled, and none keeps its traceback when it is. `dropped`
    is `on_error="drop"`: counted with a reason, not kept as a dead letter. `item` says which of the inputs failed that
    the record has in this stage, from 0.
    """

    stage: str
    error_type: str
    message: str
    traceback: str
    dropped: bool
    item: int = 0

    @classmethod
    def of(cls, error: BaseException, *, stage: str, dropped: bool, item: int = 0) -> Failure:
        """The failure that `error` is."""
        return cls(
            stage=stage,
            error_type=type(error).__name__,
            message=str(error),
            traceback=portable_traceback(error),
            dropped=dropped,
            item=item,
        )

    @property
    def reason(self) -> str:
        """Under what it is counted where it is dropped: `error/ValueError`."""
        return f"error/{self.error_type}"


def portable_traceback(error: BaseException) -> str:
    """The traceback from the last frame of this package on, files named without their directories.

    `File "stages.py", line 12, in transform` …: the same on every machine and runner.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [i for i, frame in enumerate(frames) if "/beam_pipes/" in frame.filename.replace("\\", "/")]
    lines = []
    for frame in frames[ours[-1] + 1 if ours else 0 :]:
        file = frame.filename.replace("\\", "/").rpartition("/")[2]
        lines.append(f'  File "{file}", line {frame.lineno}, in {frame.name}\n    {frame.line}')
    return "\n".join([*lines, f"{type(error).__name__}: {error}"])
