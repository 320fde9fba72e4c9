"""A stage whose draws are visible only when it runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_pipes.typed.pipeline import Pipeline


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Drawing(Pipeline):
    """Puts five random inputs into an example."""

    input_type = dict
    output_type = dict

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**example, "inputs": self.rng().integers(2, 50_000, size=5).tolist()}]
