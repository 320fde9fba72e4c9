"""The error of ours in what a job server tells of a failed job: a text, in which a worker's traceback stands."""

from __future__ import annotations

import re

from beam_pipes import errors
from beam_pipes.errors import BeamPipesError

# The last line of a traceback, as Python writes it. Beam adds the PTransform to the message.
_RAISED = re.compile(r"^(?:[\w]+\.)*beam_pipes\.errors\.(?P<name>\w+): (?P<message>.*)$", re.MULTILINE)
_WHERE = re.compile(r"\s*\[while running '(?P<label>[^']*)'\]")
_END = re.compile(r"\n\s*\n|\nTraceback \(most recent call last\)|\n\s*\[while running|\nDuring handling|\nThe above")


def error_in_words(text: str) -> BeamPipesError | None:
    """The last error of ours that `text` tells of, with its class and its message; None where there is none.

        'bundle failed: Traceback …\\nbeam_pipes.errors.StageError: stage 'Split' failed … [while running 'Split']'
            → StageError("stage 'Split' failed …")

    Attributes (`error.stage`) do not travel in a text: they are None.
    """
    found: BeamPipesError | None = None
    for raised in _RAISED.finditer(text):
        kind = getattr(errors, raised["name"], None)
        if isinstance(kind, type) and issubclass(kind, BeamPipesError):
            rest = text[raised.start("message") :]
            end = _END.search(rest)
            message = _WHERE.sub("", rest if end is None else rest[: end.start()])
            found = kind(message.strip())
    return found
