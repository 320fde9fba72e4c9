"""One named output of a pipeline whose output is a dict."""

from __future__ import annotations

from collections.abc import Mapping

from beam_pipes.engine.signature import describe
from beam_pipes.errors import InvalidDAGException, UnknownKeyException
from beam_pipes.typed.pipeline import Pipeline, signature_of


class Key:
    """`Key(partition, 'train')`, usually written `partition['train']`: a dependency on a single output."""

    def __init__(self, unit: Pipeline, key: str) -> None:
        if not isinstance(unit, Pipeline):
            raise InvalidDAGException(f"Key expects a Pipeline, got {type(unit).__name__}: {unit!r}.")
        output_type = signature_of(unit, "output_type")
        if not isinstance(output_type, Mapping):
            raise UnknownKeyException(
                f"{unit.name!r}[{key!r}]: the output of {unit.name!r} is {describe(output_type)}, which has no keys. "
                "Use the pipeline itself as the dependency.",
                stage=unit.name,
            )
        if key not in output_type:
            raise UnknownKeyException(
                f"{unit.name!r}[{key!r}]: no such output; choose one of {sorted(output_type)}.", stage=unit.name
            )
        self.unit = unit
        self.key = key
        self.output_type: type = output_type[key]

    def __repr__(self) -> str:
        return f"{self.unit.name}[{self.key!r}]"
