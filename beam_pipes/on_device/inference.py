"""Inference of the `output_signature` of a Python iterable from its first samples, and columns of that signature.

    {"x": [1, 2], "y": 3}, {"x": [4], "y": 5}
        → {'x': TensorSpec(shape=(None,), dtype=tf.int32, name='x_input'),
           'y': TensorSpec(shape=(), dtype=tf.int32, name='y_input')}

A dtype that changes is an error, a dimension that changes becomes `None`. Then a run of samples becomes one NumPy
column per key: what can be converted for a whole run at once (Python ints, floats, bools, text, equal arrays, flat
lists) is; anything else goes value by value, with the same result. Batching is where a Python generator loses or saves
its time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.errors import SpecError
from beam_pipes.extras import TfSpec, require
from beam_pipes.on_device.values import (
    STRING,
    UnfitValueError,
    Value,
    convert,
    dtype_name,
    exactly,
    is_float,
    is_integer,
    read_value,
)

if TYPE_CHECKING:
    import tensorflow as tf

Path = tuple[object, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSignature:
    """One tensor of a sample: where it is, its dtype (object: bytes) and its shape (`None`: varies).

    `declared` means that the user named the dtype; an inferred one is enforced more strictly.
    """

    path: Path
    dtype: np.dtype
    shape: tuple[int | None, ...]
    declared: bool = False

    @property
    def key(self) -> str:
        """`("a", "b")` → `a/b`."""
        return "/".join(str(part) for part in self.path)

    @property
    def layout(self) -> str:
        """How a run of samples is laid out: "stacked", "concatenated" (only the length varies) or "flat"."""
        if None not in self.shape:
            return "stacked"
        return "flat" if None in self.shape[1:] else "concatenated"

    def mismatch(self, shape: tuple[int, ...]) -> str | None:
        """Why an array of this shape does not fit the column; None if it does."""
        expected = self.shape
        if len(shape) == len(expected) and all(e in (None, n) for e, n in zip(expected, shape, strict=True)):
            return None
        return f"the shape is {shape}, expected {expected}"


@dataclasses.dataclass
class _Seen:
    """What the samples read so far reveal about one column."""

    dtype: np.dtype
    weak: str
    shape: tuple[int | None, ...]
    number: int

    def add(self, value: Value, key: str, number: int) -> None:
        dtype = value.inferred_dtype()
        if self.weak == "empty" and value.weak != "empty":
            self.dtype, self.weak, self.number = dtype, value.weak, number
        elif value.weak != "empty":
            self._add_dtype(value, dtype, key, number)
        if len(value.array.shape) != len(self.shape):
            raise SpecError(
                f"the rank of {key!r} changed: sample {number} has shape {value.array.shape}, sample {self.number} "
                f"had {self.shape}. Only the length of a dimension may vary; give every sample the same rank.",
                key=key,
                sample=number,
            )
        self.shape = tuple(a if a == b else None for a, b in zip(self.shape, value.array.shape, strict=True))

    def _add_dtype(self, value: Value, dtype: np.dtype, key: str, number: int) -> None:
        # Python's own numbers are weak: they take the dtype of the other samples.
        of_one_kind = (is_integer(self.dtype) and is_integer(dtype)) or (is_float(self.dtype) and is_float(dtype))
        if self.weak and value.weak and of_one_kind:
            self.dtype = np.promote_types(self.dtype, dtype)
            return
        if (self.weak or value.weak) and of_one_kind:
            self.dtype, self.weak = (dtype, "") if self.weak else (self.dtype, "")
            return
        if dtype == self.dtype:
            return
        raise SpecError(
            f"the dtype of the column {key!r} changed: sample {number} is {dtype_name(dtype)}, sample {self.number} "
            f"was {dtype_name(self.dtype)}. A column has one dtype: convert its values, such as by "
            f"df[{key!r}].astype(str) or float(value), or pass output_signature.",
            key=key,
            sample=number,
        )


def infer_columns(samples: Iterable[object]) -> tuple[ColumnSignature, ...]:
    """The columns of `samples` (all are read); raises `SpecError` with the sample's number and key."""
    seen: dict[Path, _Seen] = {}
    for number, sample in enumerate(samples):
        found = dict(flatten_sample(sample, number))
        if number and set(found) != set(seen):
            raise keys_error(number, expected=seen, found=found)
        for path, raw in found.items():
            key = "/".join(str(part) for part in path)
            try:
                value = read_value(raw)
                dtype = value.inferred_dtype()
            except UnfitValueError as error:
                raise SpecError(
                    f"sample {number} has no tensor for key {key!r}: {error}.", key=key, sample=number
                ) from error
            if path not in seen:
                seen[path] = _Seen(dtype, value.weak, value.array.shape, number)
            else:
                seen[path].add(value, key, number)
    if not seen:
        raise SpecError(
            "the iterable gave no sample to infer the output_signature from. Check that it yields, "
            "or pass output_signature for an iterable that may be empty."
        )
    return tuple(ColumnSignature(path=path, dtype=column.dtype, shape=column.shape) for path, column in seen.items())


def flatten_sample(sample: object, number: int, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """`{"a": {"b": 1}}` → `(("a", "b"), 1)`; anything but a dictionary raises `SpecError`."""
    if not isinstance(sample, Mapping):
        raise SpecError(
            f"sample {number} is a {type(sample).__name__}, expected a dict of name to value: {brief(sample)}. "
            'Yield dictionaries, for example {"x": value}.',
            sample=number,
        )
    if not sample:
        raise SpecError(f"sample {number} is an empty dict; it needs at least one key.", sample=number)
    if len(kinds := {type(key) for key in sample}) > 1 and not all(issubclass(kind, str) for kind in kinds):
        raise SpecError(
            f'sample {number} has keys of several types: {brief(list(sample))}. Use names, such as "x".', sample=number
        )
    for key, value in sample.items():
        if isinstance(value, Mapping):
            yield from flatten_sample(value, number, (*path, key))
        else:
            yield (*path, key), value


def keys_error(number: int, *, expected: Iterable[Path], found: Iterable[Path]) -> SpecError:
    """The error for a sample whose keys differ from those of earlier samples."""
    names = ["/".join(str(part) for part in path) for path in found]
    wanted = ["/".join(str(part) for part in path) for path in expected]
    return SpecError(
        f"sample {number} has keys {sorted(names)}, expected {sorted(wanted)}. Every sample needs the same keys.",
        sample=number,
        missing=sorted(set(wanted) - set(names)),
        unexpected=sorted(set(names) - set(wanted)),
    )


def nest(pairs: Iterable[tuple[Path, object]]) -> dict[object, object]:
    """`(("a", "b"), 1)` → `{"a": {"b": 1}}`."""
    nested: dict[object, Any] = {}
    for path, value in pairs:
        inner = nested
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return nested


def output_signature_of(columns: Iterable[ColumnSignature]) -> dict[object, object]:
    """The TensorSpecs of columns, named `<key>_input`."""
    tf = require("tensorflow", purpose="DataLoader.output_signature")
    return nest(
        (column.path, tf.TensorSpec(column.shape, tensor_dtype(column.dtype), name=f"{column.key}_input"))
        for column in columns
    )


def columns_of_signature(signature: object) -> tuple[ColumnSignature, ...] | None:
    """The columns of a declared signature; `None` when it holds more than TensorSpecs of known rank."""
    tf = require("tensorflow", purpose="DataLoader(output_signature=…)")
    if not isinstance(signature, Mapping) or not signature:
        raise SpecError(
            f"output_signature should be a dict of name to tf.TensorSpec, got {brief(signature)}. "
            'Write {"x": tf.TensorSpec((), tf.int32)}.'
        )
    flat: list[tuple[Path, TfSpec]] = list(flatten_sample(signature, 0))
    for path, spec in flat:
        if not isinstance(spec, tf.TypeSpec):
            raise SpecError(
                f"output_signature[{'/'.join(map(str, path))!r}] should be a tf.TensorSpec, got {brief(spec)}.",
                key="/".join(map(str, path)),
            )
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for _, spec in flat):
        return None
    return tuple(
        ColumnSignature(
            path=path,
            dtype=array_dtype(spec.dtype),
            shape=tuple(spec.shape.as_list()),
            declared=True,
        )
        for path, spec in flat
    )


def tensor_dtype(dtype: np.dtype) -> tf.DType:
    """The tf.DType of a NumPy dtype; object arrays hold bytes."""
    tf = require("tensorflow", purpose="DataLoader")
    if dtype == STRING:
        return tf.string
    try:
        return tf.as_dtype(dtype)
    except TypeError as error:
        raise SpecError(
            f"TensorFlow has no dtype for NumPy's {dtype.name}; convert it before it is yielded."
        ) from error


def array_dtype(dtype: tf.DType) -> np.dtype:
    """The NumPy dtype of a tf.DType: the inverse of `tensor_dtype`."""
    # TensorFlow's dtype of strings is NumPy's `object` as well; `STRING` says what these objects are.
    return STRING if dtype.name == "string" else np.dtype(dtype.as_numpy_dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """The values of a run, by the layout of their signature.

    Stacked: `values` (n, *shape). Concatenated: `values` (sum of lengths, *shape[1:]) and `extents` (n,) int64, the
    lengths. Flat: `values` (sum of sizes,), one array after the other, and `extents` (n, rank) int64, the shapes.
    """

    values: np.ndarray
    extents: np.ndarray | None = None


#: The values of one key in a run of samples, as Python gave them.
RawValues: TypeAlias = Sequence[Any]


def build_column(raw: RawValues, signature: ColumnSignature, first_number: int) -> Column:
    """The column of `raw`; raises `SpecError` naming the sample (counted from `first_number`) and the key."""
    kinds = set(map(type, raw))
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if signature.shape == () and kind in (int, float, bool, str, bytes):
            return Column(_scalars(raw, kind, signature))
        if len(signature.shape) == 1 and kind is list:
            flat = _flat_lists(raw, signature)
            if flat is not None:
                return flat
        arrays: Sequence[np.ndarray] | None = None
        if kind is np.ndarray and all(item.dtype == signature.dtype for item in raw) and signature.dtype != STRING:
            arrays = raw
    except (UnfitValueError, OverflowError):
        arrays = None  # one of them does not fit: try one by one, to name it
    if arrays is None:
        arrays = [_convert_one(item, signature, first_number + index) for index, item in enumerate(raw)]
    for index, array in enumerate(arrays):
        reason = signature.mismatch(array.shape)
        if reason:
            raise _unfit(reason, signature, first_number + index)
    if signature.layout == "stacked":
        return Column(np.stack(arrays))
    if signature.layout == "concatenated":
        return Column(np.concatenate(arrays), np.fromiter(map(len, arrays), np.int64, len(arrays)))
    return Column(
        np.concatenate([array.reshape(-1) for array in arrays]), np.array([a.shape for a in arrays], np.int64)
    )


def _scalars(raw: RawValues, kind: type, signature: ColumnSignature) -> np.ndarray:
    if kind is int:
        if is_integer(signature.dtype):
            return exactly(raw, signature.dtype)
        return convert(Value(np.array(raw, np.int64), "int"), signature.dtype, declared=signature.declared)
    if kind is float:
        return convert(Value(np.array(raw, np.float64), "float"), signature.dtype, declared=signature.declared)
    if kind is bool:
        return convert(Value(np.array(raw, np.bool_)), signature.dtype, declared=signature.declared)
    array = np.empty(len(raw), STRING)
    array[:] = [item.encode() for item in raw] if kind is str else raw
    return convert(Value(array), signature.dtype, declared=signature.declared)


def _flat_lists(raw: RawValues, signature: ColumnSignature) -> Column | None:
    """Lists of one Python type at rank 1; `None` when they are anything else."""
    leaves = list(itertools.chain.from_iterable(raw))
    kinds = set(map(type, leaves))
    if len(kinds) != 1 or not kinds <= {int, float, bool, str, bytes}:
        return None
    lengths = np.fromiter(map(len, raw), np.int64, len(raw))
    expected = signature.shape[0]
    if expected is not None and (lengths != expected).any():
        return None
    flat = _scalars(leaves, kinds.pop(), signature)
    if expected is not None:
        return Column(flat.reshape(len(raw), expected))
    return Column(flat, lengths)


def _convert_one(raw: object, signature: ColumnSignature, number: int) -> np.ndarray:
    try:
        return convert(read_value(raw), signature.dtype, declared=signature.declared)
    except UnfitValueError as error:
        raise _unfit(str(error), signature, number) from error


def _unfit(reason: str, signature: ColumnSignature, number: int) -> SpecError:
    remedy = (
        "Change the value, or the output_signature."
        if signature.declared
        else "Yield one type and shape for a key, raise infer_k (-1 reads every sample), or pass output_signature."
    )
    return SpecError(
        f"sample {number} does not fit key {signature.key!r}: {reason}. {remedy}", key=signature.key, sample=number
    )
