"""How the features of a spec lie in a record: one storage field a feature, and one more where its shape is kept."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from beam_pipes.cache import dtypes
from beam_pipes.cache.spec import SHAPE_SUFFIX, ExampleSpec, FeatureSpec

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
    leading dimension (of all of them where the shape is known), `num_bytes` the bytes of all values, None where it
    varies. `direct` fields lie in the record as one run of bytes that needs no parsing.
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
