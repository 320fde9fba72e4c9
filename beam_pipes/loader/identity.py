"""What a loader reads, by name: enough to refuse a state or a plan that belongs to other data."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_pipes.errors import LoaderError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """A split of one snapshot: the id of its manifest, its name, its number of records."""

    manifest: str
    split: str
    rows: int

    @classmethod
    def of_split(cls, split: Any) -> Identity:
        try:
            return cls(manifest=str(split.manifest_id), split=str(split.name), rows=len(split))
        except (AttributeError, TypeError) as error:
            raise LoaderError(
                f"expected a split of a cache (Cache.open(path)['train']), got {type(split).__name__}"
            ) from error

    def __str__(self) -> str:
        return f"split {self.split!r} of manifest {self.manifest} ({self.rows} records)"
