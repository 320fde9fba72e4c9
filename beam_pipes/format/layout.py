"""Where the features of a spec are in a record, and the facts about a committed shard.

A feature has one storage field, and one more if its shape is stored. If all records have the same layout, a
`FixedLayout` says at which bytes each feature is, so that reading needs no parser. `ShardEntry` is what the manifest
stores about a shard.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from beam_pipes.errors import SpecError
from beam_pipes.format import dtypes
from beam_pipes.format.framing import FRAME_BYTES, HEADER_BYTES
from beam_pipes.format.spec import SHAPE_SUFFIX, ExampleSpec, FeatureSpec

# raw: the bytes of a tensor in a bytes_list; floats: a float_list; text: one bytes or str value;
# shape: the raw int64 shape of another feature; ints: an int64_list; texts: several bytes or str values.
FieldKind = Literal["raw", "floats", "text", "shape", "ints", "texts"]

# A frame's header is 12 bytes, so a payload starts at 4 modulo 8; this puts a field's bytes at 0 modulo 8 in the file.
PAYLOAD_PHASE = 4
MAX_PAYLOAD_BYTES = (1 << 31) - 1  # what protocol buffers parse


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One entry of the map of features in a record.

    `name` is the entry's key, `feature` the feature it belongs to. `row_bytes` are the bytes of one element of the
    leading dimension (of all of them where the shape is known), `num_bytes` the bytes of all values, None if it
    varies. `direct` fields are one run of bytes in the record that needs no parsing.
    """

    name: str
    feature: str
    kind: FieldKind
    dtype: str
    row_bytes: int
    num_bytes: int | None
    alignment: int

    @property
    def direct(self) -> bool:
        return self.kind in ("raw", "floats", "text", "shape")


def _field(name: str, spec: FeatureSpec) -> Field:
    storage = spec.storage_dtype
    if spec.is_text:
        kind: FieldKind = "text" if spec.shape == () else "texts"
        return Field(name=name, feature=name, kind=kind, dtype=storage, row_bytes=1, num_bytes=None, alignment=1)
    if spec.encoding == "list" and storage == "int64":
        return Field(name=name, feature=name, kind="ints", dtype=storage, row_bytes=0, num_bytes=None, alignment=1)
    itemsize = dtypes.numpy_dtype(storage).itemsize
    known = [size for size in spec.shape[1:] if size is not None]
    row_bytes = itemsize if spec.has_shape_feature else itemsize * math.prod(known)
    num_bytes = None if None in spec.shape else itemsize * math.prod(size for size in spec.shape if size is not None)
    return Field(
        name=name,
        feature=name,
        kind="raw" if spec.encoding == "raw" else "floats",
        dtype=storage,
        row_bytes=row_bytes,
        num_bytes=num_bytes,
        alignment=itemsize if spec.shape == () else 8,
    )


def fields_of(spec: ExampleSpec) -> tuple[Field, ...]:
    """The storage fields of a spec in the order in which they are written: sorted by the UTF-8 bytes of their names."""
    made = [_field(name, feature) for name, feature in spec.items()]
    made += [
        Field(
            name=name + SHAPE_SUFFIX,
            feature=name,
            kind="shape",
            dtype="int64",
            row_bytes=8,
            num_bytes=8 * len(feature.shape),
            alignment=8,
        )
        for name, feature in spec.items()
        if feature.has_shape_feature
    ]
    return tuple(sorted(made, key=lambda field: field.name.encode()))


def has_length_column(field: Field, spec: ExampleSpec) -> bool:
    """Whether the index keeps the length of the field's feature: its leading dimension, or the bytes of a text."""
    return field.kind == "text" or (field.kind != "shape" and spec[field.feature].ragged)


def start_columns(fields: tuple[Field, ...]) -> tuple[str, ...]:
    """The fields whose bytes start elsewhere in each record: direct ones, from the first field of varying size on."""
    first = next((i for i, field in enumerate(fields) if field.num_bytes is None), len(fields))
    return tuple(field.name for field in fields[first:] if field.direct)


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

    def to_json(self) -> dict[str, object]:
        """A JSON object; `from_json` is the inverse."""
        return {
            "fields": {name: [offset, size] for name, (offset, size) in self.fields.items()},
            "header_bytes": HEADER_BYTES,
            "stride": self.stride,
        }

    @classmethod
    def from_json(cls, made: object) -> FixedLayout:
        """Raises `SpecError` if `made` is not what `to_json` returns."""
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


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# Usually all shards of a split have one layout: 10⁵ of them share one object, which is checked once.
_LAYOUTS: dict[str, FixedLayout] = {}
_MOST_LAYOUTS = 64


def _shared_layout(made: object) -> FixedLayout:
    """`FixedLayout.from_json`, cached by its text: `==` would take `True` and `1.0` for the `1` that was checked."""
    layout = _LAYOUTS.get(text := repr(made))
    if layout is None:
        layout = FixedLayout.from_json(made)
        if len(_LAYOUTS) >= _MOST_LAYOUTS:
            _LAYOUTS.clear()
        _LAYOUTS[text] = layout
    return layout


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """One shard file and its index. `crc32c` is of the whole file, `index_crc32c` of the index without its trailer.

    `lengths` maps each feature whose length varies to (sum, greatest) of its lengths: elements of the leading
    dimension, bytes of a text. `layout` is set if all records of the shard have the same layout.
    """

    file: str
    records: int
    bytes: int
    crc32c: int
    index_crc32c: int
    lengths: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    layout: FixedLayout | None = None

    def to_json(self) -> dict[str, object]:
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
    def from_json(cls, made: object) -> ShardEntry:
        """Raises `SpecError` if `made` is not what `to_json` returns."""
        known = cls.__dataclass_fields__
        if not isinstance(made, Mapping) or made.keys() != known.keys() or not isinstance(made["lengths"], Mapping):
            raise SpecError(f"expected a shard entry, an object of {', '.join(sorted(known))}, got {made!r}")
        for name in ("records", "bytes", "crc32c", "index_crc32c"):
            if not isinstance(made[name], int) or isinstance(made[name], bool) or made[name] < 0:
                raise SpecError(f"{name} of a shard entry should be an int >= 0, got {made[name]!r}")
        layout = None if made["layout"] is None else _shared_layout(made["layout"])
        lengths = {name: (int(total), int(most)) for name, (total, most) in made["lengths"].items()}
        return cls(**{**made, "layout": layout, "lengths": lengths})
