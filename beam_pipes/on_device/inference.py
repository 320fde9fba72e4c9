"""Inference of the `output_signature` of a Python iterable from its first samples.

    {"x": [1, 2], "y": 3}, {"x": [4], "y": 5}
        → {'x': TensorSpec(shape=(None,), dtype=tf.int32, name='x_input'),
           'y': TensorSpec(shape=(), dtype=tf.int32, name='y_input')}

A dtype that changes is an error, a dimension that changes becomes `None`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.extras import require
from beam_pipes.on_device.values import (
    STRING,
    UnfitValueError,
    Value,
    dtype_name,
    is_float,
    is_integer,
    read_value,
)

Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSignature:
    """One tensor of a sample: where it is, its dtype (object: bytes) and its shape (`None`: varies).

    `declared` says that the user named the dtype; an inferred one is held to more strictly.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    declared: bool = False

    @property
    def key(self) -> str:
        """`("a", "b")` → `a/b`."""
        return "/".join(str(part) for part in self.path)

    @property
    def layout(self) -> str:
        """How a run of samples is laid out: "stacked", "concatenated" (only the length varies) or "padded"."""
        if None not in self.shape:
            return "stacked"
        return "padded" if None in self.shape[1:] else "concatenated"

    def mismatch(self, shape: tuple[int, ...]) -> str | None:
        """Why an array of this shape is not of this column."""
        expected = self.shape
        if len(shape) == len(expected) and all(e in (None, n) for e, n in zip(expected, shape, strict=True)):
            return None
        return f"the shape is {shape}, expected {expected}"


@dataclasses.dataclass
class _Seen:
    """What the samples read so far say about one column."""

    dtype: np.dtype[Any]
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

    def _add_dtype(self, value: Value, dtype: np.dtype[Any], key: str, number: int) -> None:
        # Python's own numbers are weak: they take the dtype that the other samples have.
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
            f"the dtype of {key!r} changed: sample {number} is {dtype_name(dtype)}, sample {self.number} was "
            f"{dtype_name(self.dtype)}. Yield one type for a key, or pass output_signature.",
            key=key,
            sample=number,
        )


def infer_columns(samples: Iterable[Any]) -> tuple[ColumnSignature, ...]:
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


def flatten_sample(sample: Any, number: int, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """`{"a": {"b": 1}}` → `(("a", "b"), 1)`; a sample that is no dictionary raises `SpecError`."""
    if not isinstance(sample, Mapping):
        raise SpecError(
            f"sample {number} is a {type(sample).__name__}, expected a dict of name to value: {_shortened(sample)}. "
            'Yield dictionaries, for example {"x": value}.',
            sample=number,
        )
    if not sample:
        raise SpecError(f"sample {number} is an empty dict; it needs at least one key.", sample=number)
    for key, value in sample.items():
        if isinstance(value, Mapping):
            yield from flatten_sample(value, number, (*path, key))
        else:
            yield (*path, key), value


def keys_error(number: int, *, expected: Iterable[Path], found: Iterable[Path]) -> SpecError:
    """The error of a sample whose keys are not those of the samples before it."""
    names = ["/".join(str(part) for part in path) for path in found]
    wanted = ["/".join(str(part) for part in path) for path in expected]
    return SpecError(
        f"sample {number} has keys {sorted(names)}, expected {sorted(wanted)}. Every sample needs the same keys.",
        sample=number,
        missing=sorted(set(wanted) - set(names)),
        unexpected=sorted(set(names) - set(wanted)),
    )


def nest(pairs: Iterable[tuple[Path, Any]]) -> dict[Any, Any]:
    """`(("a", "b"), 1)` → `{"a": {"b": 1}}`."""
    nested: dict[Any, Any] = {}
    for path, value in pairs:
        inner = nested
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return nested


def output_signature_of(columns: Iterable[ColumnSignature]) -> dict[Any, Any]:
    """The TensorSpecs of columns, named `<key>_input`."""
    tf = require("tensorflow", purpose="DataLoader.output_signature")
    return nest(
        (column.path, tf.TensorSpec(column.shape, tensor_dtype(column.dtype), name=f"{column.key}_input"))
        for column in columns
    )


def columns_of_signature(signature: Any) -> tuple[ColumnSignature, ...] | None:
    """The columns of a declared signature; `None` when it holds more than TensorSpecs of known rank."""
    tf = require("tensorflow", purpose="DataLoader(output_signature=…)")
    if not isinstance(signature, Mapping) or not signature:
        raise SpecError(
            f"output_signature should be a dict of name to tf.TensorSpec, got {_shortened(signature)}. "
            'Write {"x": tf.TensorSpec((), tf.int32)}.'
        )
    flat = list(flatten_sample(signature, 0))
    for path, spec in flat:
        if not isinstance(spec, tf.TypeSpec):
            raise SpecError(
                f"output_signature[{'/'.join(map(str, path))!r}] should be a tf.TensorSpec, got {_shortened(spec)}.",
                key="/".join(map(str, path)),
            )
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for _, spec in flat):
        return None
    return tuple(
        ColumnSignature(
            path=path,
            dtype=STRING if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype),
            shape=tuple(spec.shape.as_list()),
            declared=True,
        )
        for path, spec in flat
    )


def tensor_dtype(dtype: np.dtype[Any]) -> Any:
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


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
