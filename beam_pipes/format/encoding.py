"""One value → the payload bytes of its storage field, and the length the index keeps."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.format import dtypes
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import Numbers
from beam_pipes.format.feature_values import array_converter, exact_array, float_list_of
from beam_pipes.format.layout import PAYLOAD_PHASE, Field
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.format.wire import (
    BYTES_LIST,
    FILLER,
    FLOAT_LIST,
    INT64_LIST,
    Computed,
    chunk_header,
    delimited,
    packed_varints,
)

Converter = Callable[[object], tuple[bytes, int]]

_INTEGER_TYPES = frozenset({int, *(np.dtype(name).type for name in dtypes.INTEGERS)})


# Kept between the shards of a build: computing a prefix takes 8 µs, and a shard of 4 MiB needs several hundred.
@functools.lru_cache(maxsize=256)
def prefixes(field: Field) -> Computed[int, bytes]:
    """What stands before a payload: filler for the gap, so that its bytes are aligned, and the chunk header.

    Keyed by `payload bytes << 3 | position & 7`, where `position` is the end of the field before.

    Values are aligned so that readers can map a file and view them in place. Filler is a field that no reader of
    Examples knows, so all of them skip it; it takes at least two bytes.
    """
    of_size = headers(field)

    def prefix(key: int) -> bytes:
        header = of_size[key >> 3]
        return FILLER[gap_before(key + len(header), field.alignment)] + header

    return Computed(prefix)


def gap_before(start: int, alignment: int) -> int:
    """Bytes of filler that move a value at `start` to its phase: none, or at least two."""
    gap = (PAYLOAD_PHASE - start) & (alignment - 1)
    return gap + alignment if gap == 1 else gap


def headers(field: Field) -> Computed[int, bytes]:
    """Payload bytes → the chunk header in front of them."""
    name, kind = field.name.encode(), {"floats": FLOAT_LIST, "ints": INT64_LIST}.get(field.kind, BYTES_LIST)
    return Computed(lambda size: chunk_header(name, kind, size, single=field.kind != "texts"))


def converter_of(field: Field, spec: FeatureSpec) -> Converter:
    """The function that turns values of the feature into payloads; it raises `SpecError` for a value that does not
    match.
    """
    name = field.feature
    if field.kind == "shape":
        return lambda value: (np.asarray(_shape_of(name, spec, value), "<i8").tobytes(), 0)
    if field.kind == "text":
        return _text_converter(name, spec)
    if field.kind == "texts":
        return lambda value: _texts(name, spec, value)
    if field.kind == "ints":
        return _ints_converter(name, spec)
    if spec.shape == () and field.dtype in dtypes.STRUCT_CODES:
        return _scalar_converter(name, spec, field.dtype)
    return _tensor_converter(name, spec, field.dtype)


def _tensor_converter(name: str, spec: FeatureSpec, storage_name: str) -> Converter:
    to_array, storage, rank = array_converter(name, spec), dtypes.numpy_dtype(storage_name), len(spec.shape)
    same, floats = spec.numpy_dtype == storage, spec.dtype in dtypes.FLOATS
    if same and spec.shape == (None,) and spec.minimum is None and spec.maximum is None:
        declared, vectors = spec.numpy_dtype, np.ndarray

        def convert_vector(value: object) -> tuple[bytes, int]:
            # The most common feature and value; `to_array` would give the same.
            array = value if type(value) is vectors and value.dtype is declared and value.ndim == 1 else to_array(value)
            return array.tobytes(), len(array)

        return convert_vector

    def convert(value: object) -> tuple[bytes, int]:
        array = to_array(value)
        if not same:
            array = float_list_of(array) if floats else array.astype(storage)
        return array.tobytes(), len(array) if rank else 1

    return convert


def _scalar_converter(name: str, spec: FeatureSpec, storage_name: str) -> Converter:
    pack = struct.Struct("<" + dtypes.STRUCT_CODES[storage_name]).pack
    storage = dtypes.numpy_dtype(storage_name)
    if spec.dtype in dtypes.INTEGERS:
        low, high = spec.value_range

        def convert(value: Numbers) -> tuple[bytes, int]:
            if type(value) in _INTEGER_TYPES and low <= value <= high:
                return pack(value), 1
            return exact_array(name, spec, value).astype(storage).tobytes(), 1

        return convert

    # Rounded to the declared width, not to that of the float_list it is stored in.
    accepted = bool if spec.dtype == dtypes.BOOL else float if spec.dtype == storage_name else None
    floats = spec.encoding == "list" and spec.dtype in dtypes.FLOATS

    def convert_other(value: object) -> tuple[bytes, int]:
        if type(value) is accepted:
            try:
                return pack(value), 1
            except OverflowError:
                pass  # too large for the declared width: exact_array says so
        array = exact_array(name, spec, value)
        return (float_list_of(array) if floats else array.astype(storage)).tobytes(), 1

    return convert_other


def scalars_of(field: Field, spec: FeatureSpec, column: object) -> Array | None:
    """A column of scalars as they are stored, for those that `converter_of` would convert to the same; else None."""
    if not isinstance(column, np.ndarray) or spec.shape or spec.encoding != "raw":
        return None
    storage = _little_endian(field.dtype)
    if spec.dtype in dtypes.INTEGERS and column.dtype.kind in "iu":
        low, high = spec.value_range
        is_held = not column.size or (low <= int(column.min()) and int(column.max()) <= high)
        return column.astype(storage) if is_held else None
    if spec.dtype == dtypes.BOOL and column.dtype == np.bool_:
        return column.astype(storage)
    is_float = spec.dtype in ("float32", "float64") and column.dtype in (np.float32, np.float64)
    if not is_float or spec.minimum is not None or spec.maximum is not None:
        return None
    with np.errstate(over="ignore"):
        stored: Array = column.astype(storage)
    is_infinite = np.isinf(stored)
    return None if is_infinite.any() and not np.isinf(column[is_infinite]).all() else stored


@functools.cache
def _little_endian(name: str) -> np.dtype[np.generic]:
    made: np.dtype[np.generic] = dtypes.numpy_dtype(name).newbyteorder("<")
    return made


def _ints_converter(name: str, spec: FeatureSpec) -> Converter:
    to_array, rank = array_converter(name, spec), len(spec.shape)

    def convert(value: object) -> tuple[bytes, int]:
        array = to_array(value)
        return packed_varints(array.reshape(-1)), len(array) if rank else 1

    return convert


def _shape_of(name: str, spec: FeatureSpec, value: object) -> tuple[int, ...]:
    shape: tuple[int, ...] = exact_array(name, spec, value).shape
    return shape


def _text_converter(name: str, spec: FeatureSpec) -> Converter:
    is_bytes = spec.dtype == dtypes.BYTES

    def convert(value: object) -> tuple[bytes, int]:
        payload = value if is_bytes and type(value) is bytes else _text(name, spec, value)
        return payload, len(payload)

    return convert


def _text(name: str, spec: FeatureSpec, value: object) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if spec.dtype == dtypes.STR and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SpecError(
                f"expected valid Unicode, got {value[:40]!r}: {error}. Declare bytes to keep such data."
            ).about("feature", name, expected="str", found=value) from error
    if spec.dtype == dtypes.BYTES and isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    advice = "Convert it"
    if value is None:
        advice = "It has no value: fill it in, or drop the record"
    elif isinstance(value, (str, bytes)):
        advice = "Encode it" if isinstance(value, str) else "Decode it"
    raise SpecError(
        f"expected {spec.dtype}, got {type(value).__name__} {repr(value)[:60]}. {advice}, or change the spec."
    ).about("feature", name, expected=spec.dtype, found=value)


def texts_of(spec: FeatureSpec, column: list[object]) -> list[bytes] | None:
    """A column of text as it is stored, at a fifth of the time of `converter_of`; None unless that is sure."""
    try:
        return [*map(str.encode, column)] if spec.dtype == dtypes.STR else None  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):
        return None


def _texts(name: str, spec: FeatureSpec, value: object) -> tuple[bytes, int]:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            f"expected a list of {spec.dtype} (shape {spec.shape}), got {type(value).__name__} {repr(value)[:60]}. "
            "Give a list, or declare shape=()."
        ).about("feature", name, expected=spec, found=value)
    if spec.shape[0] is not None and spec.shape[0] != len(value):
        raise SpecError(
            f"expected {spec.shape[0]} values of {spec.dtype}, got {len(value)}. Give as many, or declare "
            "shape=(None,)."
        ).about("feature", name, expected=spec.shape, found=(len(value),))
    return b"".join(delimited(0x0A, _text(name, spec, item)) for item in value), len(value)
