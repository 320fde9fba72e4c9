"""`schema.pbtxt`: the features as a TensorFlow Metadata schema, for TensorFlow Transform and its relatives."""

from __future__ import annotations

from beam_pipes.cache import dtypes
from beam_pipes.cache.fields import Field, fields_of
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec

_TYPES = {"raw": "BYTES", "shape": "BYTES", "text": "BYTES", "texts": "BYTES", "floats": "FLOAT", "ints": "INT"}


def schema_text(spec: ExampleSpec) -> str:
    """The schema in text format. What a raw feature holds is told in its annotation, as the schema cannot say it."""
    return "".join(_feature(field, spec[field.feature]) for field in fields_of(spec))


def _feature(field: Field, spec: FeatureSpec) -> str:
    lines = ["feature {", f"  name: {_quoted(field.name)}", f"  type: {_TYPES[field.kind]}"]
    lines.append("  presence { min_fraction: 1.0 min_count: 1 }")
    shape = () if field.kind in ("raw", "shape", "text") else spec.shape
    if None not in shape:
        lines.append("  shape {" + "".join(f" dim {{ size: {size} }}" for size in shape) + " }")
    else:
        lines.append("  value_count { min: 0 }")
    if field.kind == "ints":
        low, high = (0, 1) if spec.dtype == "bool" else spec.value_range
        lines.append(f"  int_domain {{ min: {low} max: {high} }}")
    lines.append(f"  annotation {{ comment: {_quoted(_comment(field, spec))} }}")
    return "\n".join([*lines, "}"]) + "\n"


def _comment(field: Field, spec: FeatureSpec) -> str:
    shape = "[" + ", ".join("?" if size is None else str(size) for size in spec.shape) + "]"
    if field.kind == "shape":
        return f"raw little-endian int64: the shape of {field.feature}"
    if field.kind == "raw":
        return f"raw little-endian {field.dtype} of shape {shape}, read as {spec.dtype}"
    if spec.dtype == dtypes.STR:
        return f"UTF-8, shape {shape}"
    return f"{spec.dtype} of shape {shape}"


def _quoted(text: str) -> str:
    """A string literal of the text format."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:03o}" for b in text.encode()) + '"'
