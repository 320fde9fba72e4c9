"""`RawFeatures`: the inputs of a preprocessing_fn, from examples, a loader's batches, or a request.

| FeatureSpec | in tensorflow-transform | `inputs[name]` in the preprocessing_fn, B examples at once |
| --- | --- | --- |
| integers up to int64, bool | int64 | |
| float16, bfloat16, float32 | float32 | |
| bytes, str | string (UTF-8) | |
| shape `()` or `(2, 3)` | FixedLenFeature | Tensor of shape (B,) or (B, 2, 3) |
| shape `(None,)`, `varying="sparse"` | VarLenFeature | SparseTensor of shape (B, longest) |
| shape `(None,)`, `varying="ragged"` | RaggedFeature | RaggedTensor of shape (B, None) |
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice
from beam_pipes.errors import SpecError
from beam_pipes.extras import TfTensor, require
from beam_pipes.format.dtypes import BOOL, INTEGERS
from beam_pipes.format.feature_values import exact_array
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.storage.checked_json import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa
    import tensorflow as tf

Varying = Literal["sparse", "ragged"]

# In a loader's batch with ragged="values": the number of values of a feature in each row.
LENGTHS = "/lengths"

_FLOATS = ("float16", "bfloat16", "float32")


@dataclasses.dataclass(frozen=True)
class RawFeature:
    """One feature as tensorflow-transform knows it: `dtype` "int64", "float32" or "string"; `shape` None if it
    varies by example."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None

    @property
    def spec(self) -> FeatureSpec:
        """The same as a feature of examples."""
        dtype = "bytes" if self.dtype == "string" else self.dtype
        return FeatureSpec(dtype, shape=(None,) if self.shape is None else self.shape)


class RawFeatures:
    """The features that a preprocessing_fn takes, in the order of their names.

        RawFeatures.of({"age": FeatureSpec("int32"), "words": FeatureSpec("str", shape=(None,))})

    Raises `SpecError`, naming the feature, for types that tensorflow-transform lacks.
    """

    def __init__(self, features: Sequence[RawFeature], *, varying: Varying = "sparse") -> None:
        choice(varying, of=get_args(Varying), what="varying", error=SpecError)
        self.features = tuple(sorted(features, key=lambda feature: feature.name))
        self.varying: Varying = varying

    @classmethod
    def of(cls, features: Mapping[str, FeatureSpec], *, varying: Varying = "sparse") -> RawFeatures:
        """From the features of examples."""
        spec = features if isinstance(features, ExampleSpec) else ExampleSpec(features)
        if not spec:
            raise SpecError("expected at least one feature, got none: a preprocessing_fn needs something to transform")
        return cls([_raw_feature(name, feature) for name, feature in spec.items()], varying=varying)

    @staticmethod
    def can_hold(feature: FeatureSpec) -> bool:
        """Whether tensorflow-transform has a type for a feature."""
        try:
            _raw_feature("feature", feature)
        except SpecError:
            return False
        return True

    def to_json(self) -> dict[str, object]:
        """A JSON object; `from_json` is the inverse."""
        return {
            "varying": self.varying,
            "features": {
                feature.name: {"dtype": feature.dtype, "shape": None if feature.shape is None else list(feature.shape)}
                for feature in self.features
            },
        }

    @classmethod
    def from_json(cls, made: JsonObject) -> RawFeatures:
        """The inverse of `to_json`."""
        return cls(
            [
                RawFeature(name, entry["dtype"], None if entry["shape"] is None else tuple(entry["shape"]))
                for name, entry in made["features"].items()
            ],
            varying=made["varying"],
        )

    def __iter__(self) -> Iterator[RawFeature]:
        return iter(self.features)

    @property
    def names(self) -> list[str]:
        """The names, sorted."""
        return [feature.name for feature in self.features]

    # Examples → columns

    def columns(self, examples: Sequence[Mapping[str, object]]) -> dict[str, np.ndarray]:
        """Examples as a batch: name → array (B, *shape); for a varying feature all values, and `name/lengths` (B,).

            columns([{"age": 3, "words": ["to", "be"]}, {"age": 5, "words": []}])  →
                {"age": array([3, 5]), "words": array([b"to", b"be"]), "words/lengths": array([2, 0])}

        Other entries of the examples are left out. Raises `SpecError`, naming feature and example, for values that are
        missing or do not fit.
        """
        made: dict[str, np.ndarray] = {}
        for feature in self.features:
            convert = _text_values if feature.dtype == "string" else _numbers
            values = []
            for position, example in enumerate(examples):
                if feature.name not in example:
                    raise SpecError(
                        f"example {position}: expected the feature {feature.name!r}, which the preprocessing_fn takes, "
                        f"got {sorted(example)}. Give every example all of {self.names}.",
                        feature=feature.name,
                    )
                values.append(convert(feature, example[feature.name]))
            if feature.shape is None:
                made[feature.name] = np.concatenate([_empty(feature), *values])
                made[feature.name + LENGTHS] = np.array([len(value) for value in values], np.int64)
            else:
                made[feature.name] = np.stack(values) if values else np.empty((0, *feature.shape), _numpy(feature))
        return made

    # Columns → Arrow

    def record_batch(self, examples: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
        """Examples as a `pyarrow.RecordBatch` of lists, the form in which tensorflow-transform analyses them."""
        pa = require("pyarrow", purpose="the analysis of a preprocessing_fn")
        columns, arrays = self.columns(examples), []
        for feature in self.features:
            values = columns[feature.name]
            lengths = columns.get(feature.name + LENGTHS)
            if lengths is None:
                lengths = np.full(len(examples), math.prod(feature.shape or ()), np.int64)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            flat = pa.array(values.reshape(-1), self._arrow_type(feature))
            arrays.append(pa.LargeListArray.from_arrays(offsets, flat))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of `record_batch`."""
        pa = require("pyarrow", purpose="the analysis of a preprocessing_fn")
        return pa.schema([(feature.name, pa.large_list(self._arrow_type(feature))) for feature in self.features])

    @staticmethod
    def _arrow_type(feature: RawFeature) -> object:
        pa = require("pyarrow", purpose="the analysis of a preprocessing_fn")
        return {"string": pa.large_binary(), "int64": pa.int64(), "float32": pa.float32()}[feature.dtype]

    # Columns → tensors

    def feature_spec(self) -> dict[str, tf.io.FixedLenFeature | tf.io.VarLenFeature | tf.io.RaggedFeature]:
        """Name → `tf.io.FixedLenFeature`, `VarLenFeature` or `RaggedFeature`: how `tf.io.parse_example` reads them."""
        tf = require("tensorflow", purpose="a preprocessing_fn")
        made = {}
        for feature in self.features:
            dtype = tf.dtypes.as_dtype(feature.dtype)
            if feature.shape is not None:
                made[feature.name] = tf.io.FixedLenFeature(list(feature.shape), dtype)
            elif self.varying == "sparse":
                made[feature.name] = tf.io.VarLenFeature(dtype)
            else:
                made[feature.name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
        return made

    def tensors(self, batch: Mapping[str, object]) -> dict[str, TfTensor]:
        """The features that `batch` has, as the preprocessing_fn takes them.

        `batch` is what a loader gives with `ragged="values"`, what `columns` gives, or what `tf.io.parse_example`
        gives for `feature_spec()`: NumPy arrays or tensors; a varying feature also as a SparseTensor or RaggedTensor.
        Integers become int64, floats float32; inexact conversions raise.
        """
        return {
            feature.name: self._tensor(feature, batch[feature.name], batch.get(feature.name + LENGTHS))
            for feature in self.features
            if feature.name in batch
        }

    def _tensor(self, feature: RawFeature, value: npt.ArrayLike | tf.Tensor, lengths: object) -> tf.Tensor:
        tf = require("tensorflow", purpose="a preprocessing_fn")
        if feature.shape is not None:
            value = _cast(tf, feature, tf.convert_to_tensor(value))
            rank = len(feature.shape) + 1
            expected = tf.TensorShape([None, *feature.shape])
            if not value.shape.is_compatible_with(expected):
                raise SpecError(
                    f"expected a batch of shape {tuple(expected)}, got {tuple(value.shape)}. Give an array of rank "
                    f"{rank}, one row for each example."
                ).about("feature", feature.name, expected=tuple(expected), found=tuple(value.shape))
            return value
        if isinstance(value, tf.SparseTensor):
            value = _with_values(tf, feature, value)
            return value if self.varying == "sparse" else tf.RaggedTensor.from_sparse(value)
        if not isinstance(value, tf.RaggedTensor):
            value = tf.convert_to_tensor(value)
            if lengths is None or value.shape.rank not in (None, 1):
                raise SpecError(
                    f"feature {feature.name!r} varies by example: expected all its values in one array with "
                    f"'{feature.name}{LENGTHS}', a RaggedTensor or a SparseTensor, got an array of shape "
                    f"{tuple(value.shape)}{' without lengths' if lengths is None else ''}. Read the cache with "
                    "ragged='values'.",
                    feature=feature.name,
                )
            value = tf.RaggedTensor.from_row_lengths(value, tf.cast(lengths, tf.int64))
        value = value.with_row_splits_dtype(tf.int64).with_flat_values(_cast(tf, feature, value.flat_values))
        return value if self.varying == "ragged" else value.to_sparse()

    def absent(self, feature: RawFeature, num_rows: tf.Tensor | None) -> tf.Tensor:
        """A placeholder for a missing feature, if no requested output depends on it."""
        tf = require("tensorflow", purpose="a preprocessing_fn")
        dtype = tf.dtypes.as_dtype(feature.dtype)
        if feature.shape is not None:
            return tf.zeros([num_rows, *feature.shape], dtype)
        empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], dtype), tf.zeros([num_rows], tf.int64))
        return empty if self.varying == "ragged" else empty.to_sparse()


def _raw_feature(name: str, feature: FeatureSpec) -> RawFeature:
    if feature.shape != (None,) and None in feature.shape:
        raise SpecError(
            f"expected a fixed shape, or (None,) for any number of values, got {feature.shape}, for which "
            "tensorflow-transform has no type. Flatten the values, and give the shape in a separate feature."
        ).about("feature", name, expected=(None,), found=feature.shape)
    if feature.is_text:
        dtype = "string"
    elif feature.dtype in _FLOATS:
        dtype = "float32"
    elif feature.dtype == BOOL or (feature.dtype in INTEGERS and feature.value_range[1] < 1 << 63):
        dtype = "int64"
    else:
        remedy = "a maximum below 2**63" if feature.dtype in INTEGERS else "float32"
        raise SpecError(
            f"tensorflow-transform knows int64, float32 and string, and {feature.dtype} fits none of them exactly. "
            f"Declare {remedy}, and convert the values on purpose."
        ).about("feature", name, found=feature.dtype)
    return RawFeature(name, dtype, None if None in feature.shape else tuple(d for d in feature.shape if d is not None))


def _numpy(feature: RawFeature) -> np.dtype:
    return np.dtype(object if feature.dtype == "string" else feature.dtype)


def _empty(feature: RawFeature) -> np.ndarray:
    return np.empty(0, _numpy(feature))


def _numbers(feature: RawFeature, value: object) -> np.ndarray:
    return exact_array(feature.name, feature.spec, value)


def _text_values(feature: RawFeature, value: object) -> np.ndarray:
    """bytes, str, or lists and arrays of them, as an array of bytes objects."""
    array = np.array(value, object)
    shape = feature.shape
    if array.ndim != (1 if shape is None else len(shape)) or (shape is not None and array.shape != shape):
        raise SpecError(
            f"expected text of shape {(None,) if shape is None else shape}, got an array of shape {array.shape}. "
            "Reshape the values, or change the features of the TransformFn."
        ).about("feature", feature.name, expected=shape, found=array.shape)
    made = np.empty(array.shape, object)
    for position in np.ndindex(array.shape):
        item = array[position]
        if not isinstance(item, str | bytes):
            raise SpecError(
                f"expected bytes or str, got {type(item).__name__} {repr(item)[:60]}. Convert it, or change the "
                "features of the TransformFn."
            ).about("feature", feature.name, found=item)
        made[position] = item.encode() if isinstance(item, str) else item
    return made


def _with_values(tf: ModuleType, feature: RawFeature, sparse: tf.SparseTensor) -> tf.SparseTensor:
    return tf.SparseTensor(sparse.indices, _cast(tf, feature, sparse.values), sparse.dense_shape)


def _cast(tf: ModuleType, feature: RawFeature, value: tf.Tensor) -> tf.Tensor:
    """Casts to the feature's dtype if it holds every value of the tensor's dtype exactly."""
    wanted = tf.dtypes.as_dtype(feature.dtype)
    if value.dtype == wanted:
        return value
    exact = {
        "int64": value.dtype.is_bool or (value.dtype.is_integer and value.dtype != tf.uint64),
        "float32": value.dtype in (tf.float16, tf.bfloat16),
        "string": False,
    }[feature.dtype]
    if not exact:
        raise SpecError(
            f"expected {feature.dtype}, or what is exact in it, got {value.dtype.name}. Convert the values explicitly, "
            "or declare the feature with the dtype it has."
        ).about("feature", feature.name, expected=feature.dtype, found=value.dtype.name)
    return tf.cast(value, wanted)
