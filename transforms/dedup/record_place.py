"""Where a record stands in the input: its file, and its position in it."""

from __future__ import annotations

from typing import NamedTuple

from beam_pipes.errors import DeclarationError


class RecordPlace(NamedTuple):
    """`books/emma.txt@1024` as its parts."""

    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file}@{self.position}"


def record_place(record_id: str) -> RecordPlace:
    """The place in a record's id: `"a@b.txt@1024"` → `("a@b.txt", 1024)`.

    Inside of nested DAGs an id goes on (`a.txt@1024/0`): it is still the same record.

    Raises `DeclarationError` for ids that name no place, such as those of values that no source has read.
    """
    file, at, position = record_id.rpartition("@")
    try:
        if not at:
            raise ValueError("no position")
        return RecordPlace(file, int(position.partition("/")[0]))
    except ValueError:
        raise DeclarationError(
            f"expected the id of a source record, file@position, got {record_id!r}. Records have ids in a build; to "
            "try a stage out, build a declaration over Memory([...]).",
            record=record_id,
        ) from None
