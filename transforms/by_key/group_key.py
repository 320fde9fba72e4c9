"""`GroupKey`: what names the group that a record belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from beam_pipes.analysis import Result
from beam_pipes.engine.record_context import current_context
from beam_pipes.engine.signature import brief
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.dedup.record_place import record_place


class SourceFile:
    """Stands for the file that a record was read from, as a key: the lines of a document stay together."""

    def __repr__(self) -> str:
        return "SOURCE_FILE"


SOURCE_FILE = SourceFile()


@dataclasses.dataclass(frozen=True)
class ClusterKey:
    """Gives the name of the cluster of duplicates that the current record belongs to, see `Duplicates.cluster_key`."""

    result: Result

    def __call__(self, record: Any) -> str:
        context = current_context()
        assert context is not None  # set by whoever calls `transform`, see `Pipeline`
        name: str = self.result.value().cluster_key(context.record_id)
        return name


KeyOf = str | SourceFile | Result | Callable[[Any], str | bytes | int]


@dataclasses.dataclass(frozen=True)
class GroupKey:
    """Gives the key of a record: `GroupKey("user", stage="SplitByKey")({"user": 7, "text": "to be"})` → `7`.

    `of` is the name of a field (of a mapping) or attribute (of a protocol buffer), `SOURCE_FILE`, the result of an
    analyzer that finds duplicates (then the key is the name of the cluster: the id of the member whose id has the
    smallest hash), or a function of the record. Keys are str, bytes or int; `7`, `"7"` and `b"7"` are the same key.

    Raises `DeclarationError` where a record does not have the field.
    """

    of: KeyOf
    stage: str

    def __post_init__(self) -> None:
        if not isinstance(self.of, (str, SourceFile, Result)) and not callable(self.of):
            raise DeclarationError(
                f"{self.stage}: key should be the name of a field, SOURCE_FILE, near.result or a function of the "
                f"record, got {brief(self.of)}. Example: key='user'.",
                stage=self.stage,
            )
        if isinstance(self.of, Result):
            object.__setattr__(self, "of", ClusterKey(self.of))

    def __call__(self, record: Any) -> Any:
        if isinstance(self.of, SourceFile):
            context = current_context()
            assert context is not None  # set by whoever calls `transform`, see `Pipeline`
            return record_place(context.record_id).file
        if callable(self.of):
            return self.of(record)
        assert isinstance(self.of, str)  # a result has become a ClusterKey
        if isinstance(record, Mapping):
            if self.of in record:
                return record[self.of]
            there = f"the fields {sorted(map(str, record))}"
        else:
            if hasattr(record, self.of):
                return getattr(record, self.of)
            there = brief(record)
        raise DeclarationError(
            f"{self.stage}: a record should have the field {self.of!r}, which is its key, got {there}. Drop such "
            "records before, or give a function: key=lambda record: ...",
            stage=self.stage,
            key=self.of,
        )
