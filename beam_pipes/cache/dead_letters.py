"""Dead letters: records that failed, kept with all that is needed to understand and replay them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.cache.codec import ExampleCodec
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec

DEAD_LETTER_SPEC = ExampleSpec(
    {
        "record": FeatureSpec("bytes"),
        "source": FeatureSpec("str"),
        "position": FeatureSpec("int64"),
        "ordinal": FeatureSpec("int64"),
        "stage": FeatureSpec("str"),
        "error_type": FeatureSpec("str"),
        "message": FeatureSpec("str"),
        "traceback": FeatureSpec("str"),
        "item": FeatureSpec("int64"),
    }
)
DEAD_LETTER_CODEC = ExampleCodec(DEAD_LETTER_SPEC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A record that failed.

    | field | meaning |
    | --- | --- |
    | record | its bytes as they are in the source |
    | source, position | the file, relative to the source's root, and where the record starts in it |
    | ordinal | its position in its source shard |
    | stage | the stage that failed; `source`: it could not be parsed; `write`: it could not be stored |
    | error_type, message | the exception |
    | traceback | the frames from the stage on, files without directories: the same on every machine |
    | item | which of the inputs failed that the record has in the stage: 0 unless a stage before gave several |
    """

    record: bytes
    source: str
    position: int
    ordinal: int
    stage: str
    error_type: str
    message: str
    traceback: str
    item: int = 0

    @property
    def record_id(self) -> str:
        """`books/emma.txt@1024`, as everywhere else."""
        return f"{self.source}@{self.position}"

    def to_example(self) -> dict[str, Any]:
        """The letter as the example it is stored as."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_example(cls, example: Mapping[str, Any]) -> DeadLetter:
        """The inverse of `to_example`."""
        numbers = {name: int(example[name]) for name in ("position", "ordinal", "item")}
        return cls(**{**{field.name: example[field.name] for field in dataclasses.fields(cls)}, **numbers})
