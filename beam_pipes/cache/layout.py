"""`FixedLayout`: where each feature lies when all records are laid out alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.cache.framing import FRAME_BYTES, HEADER_BYTES
from beam_pipes.errors import SpecError


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedLayout:
    """Record `i` of a shard starts at byte `i * stride`; its payload 12 bytes later.

    `fields` maps each storage field to (offset from the start of the payload, bytes).
    """

    stride: int
    fields: Mapping[str, tuple[int, int]]

    def __post_init__(self) -> None:
        if self.stride < FRAME_BYTES:
            raise SpecError(f"a stride is at least {FRAME_BYTES} bytes (an empty record), got {self.stride}")
        for name, (offset, size) in self.fields.items():
            if offset < 0 or size < 0 or offset + size > self.payload_bytes:
                raise SpecError(
                    f"field {name!r} should lie in the {self.payload_bytes} bytes of the payload, got bytes {offset} "
                    "to "
                    f"{offset + size}",
                    feature=name,
                )

    @property
    def payload_bytes(self) -> int:
        return self.stride - FRAME_BYTES

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` is the inverse."""
        return {
            "fields": {name: [offset, size] for name, (offset, size) in self.fields.items()},
            "header_bytes": HEADER_BYTES,
            "stride": self.stride,
        }

    @classmethod
    def from_json(cls, made: Any) -> FixedLayout:
        """Raises `SpecError` where `made` is not what `to_json` returns."""
        if (
            not isinstance(made, Mapping)
            or made.keys() != {"fields", "header_bytes", "stride"}
            or made["header_bytes"] != HEADER_BYTES
            or not _is_int(made["stride"])
            or not isinstance(made["fields"], Mapping)
            or not all(
                isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_int, pair))
                for pair in made["fields"].values()
            )
        ):
            raise SpecError(
                f"expected a layout, an object of stride, header_bytes={HEADER_BYTES} and fields (name → [offset, "
                "bytes]), "
                f"got {made!r}"
            )
        fields = {name: (pair[0], pair[1]) for name, pair in made["fields"].items()}
        return cls(stride=made["stride"], fields=fields)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
