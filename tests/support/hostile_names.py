"""A declaration in which every name and message that data can choose contains terminal control sequences."""

from __future__ import annotations

import os

from beam_pipes import DAGPipeline, Declaration, FeatureSpec, Input, Output, Pipeline, count
from beam_pipes.sources import Memory

INPUT = Input(str)
#: Clears the screen, sets the title, goes up a line; and an escape of the upper control characters.
CODES = "\x1b[2J\x1b]0;title\x07\x1b[1A\x9b31m\r"


class Read(Pipeline):
    input_type = str
    output_type = dict

    def transform(self, line):
        count(f"seen {CODES}")
        if line.startswith("drop"):
            return self.drop(f"reason {CODES}")
        if line.startswith("fail"):
            raise ValueError(f"no such word: {line}")
        return [{"text": line.encode()}]


def declaration() -> Declaration:
    os.environ.setdefault("COLUMNS", "200")
    read = Read(name=f"stage {CODES}")
    return Declaration(
        name="hostile",
        source=Memory([f"{word} {CODES} {number}" for number in range(4) for word in ("keep", "drop", "fail")]),
        pipeline=DAGPipeline({read: INPUT, Output("train"): read}),
        features={"text": FeatureSpec("bytes")},
        on_error="dead_letter",
    )
