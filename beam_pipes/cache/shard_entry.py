"""`ShardEntry`: what a committed shard says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.cache.layout import FixedLayout
from beam_pipes.errors import SpecError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One shard file and its index. `crc32c` and `index_crc32c` are of the whole files.

    `lengths` maps each feature whose length varies to (sum, greatest) of its lengths: elements of the leading
    dimension, bytes of a text. `layout` is there where all records of the shard are laid out alike.
    """

    file: str
    records: int
    bytes: int
    crc32c: int
    index_crc32c: int
    lengths: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    layout: FixedLayout | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` is the inverse."""
        return {
            "bytes": self.bytes,
            "crc32c": self.crc32c,
            "file": self.file,
            "index_crc32c": self.index_crc32c,
            "layout": None if self.layout is None else self.layout.to_json(),
            "lengths": {name: list(pair) for name, pair in self.lengths.items()},
            "records": self.records,
        }

    @classmethod
    def from_json(cls, made: Any) -> ShardEntry:
        """Raises `SpecError` where `made` is not what `to_json` returns."""
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(made, Mapping) or made.keys() != known or not isinstance(made["lengths"], Mapping):
            raise SpecError(f"expected a shard entry, an object of {', '.join(sorted(known))}, got {made!r}")
        for name in ("records", "bytes", "crc32c", "index_crc32c"):
            if not isinstance(made[name], int) or isinstance(made[name], bool) or made[name] < 0:
                raise SpecError(f"{name} of a shard entry should be an int >= 0, got {made[name]!r}")
        layout = None if made["layout"] is None else FixedLayout.from_json(made["layout"])
        lengths = {name: (int(total), int(most)) for name, (total, most) in made["lengths"].items()}
        return cls(**{**made, "layout": layout, "lengths": lengths})
