"""Examples in plain Python: their values, and conversion to tf.data and back.

An *example* is a mapping of names to NumPy arrays, NumPy scalars and `bytes`, or a single such value (a line of text),
as `Dataset.as_numpy_iterator` gives them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import brief
from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfSpec, TfTensor, tensorflow
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_numbers, natural_array
from beam_pipes.tasks.steps.features import Feature
from beam_pipes.tasks.steps.ragged import Ragged, assembled, stored
from beam_pipes.tasks.vocabularies.vocabulary import DType

#: An example to index into: its values are arrays, NumPy scalars and `bytes`, and `Ragged`, which are nested lists.
Example: TypeAlias = Mapping[str, Any]
#: The same for its owner, who may change it.
OwnExample: TypeAlias = dict[str, Any]
#: The elements passed between sources and steps: an example, or a single value (a line of text).
RawExample: TypeAlias = Any
#: The dtype and the rank of a tensor: `("int32", 1)`.
TensorForm: TypeAlias = tuple[str, int]
#: A value of a normalised example.
ExampleValue: TypeAlias = bytes | np.ndarray | np.generic | Ragged

_NUMBERS = "biufcV"
_CHUNK = 256  # examples in one hand-off to tf.data: 34,000 examples/s against 2,500 one by one


class NoExamples(TaskError):
    """A dataset cannot be made without Python examples: the types of its tensors would be unknown."""


@overload
def normalised(
    example: Mapping[str, object], features: Mapping[str, Feature] | None = None
) -> dict[str, ExampleValue]: ...
@overload
def normalised(
    example: object, features: Mapping[str, Feature] | None = None
) -> dict[str, ExampleValue] | ExampleValue: ...


def normalised(
    example: object, features: Mapping[str, Feature] | None = None
) -> dict[str, ExampleValue] | ExampleValue:
    """The example with every value as an array or `bytes`; lists and Python numbers take the dtype of their feature,
    or without one int32 or float32.

    `{"targets": [1, 2], "text": "é"}` → `{"targets": array([1, 2], int32), "text": b"\\xc3\\xa9"}`.
    """
    if type(example) is dict:  # the common case, 20,000 times a second: nothing to change
        for value in example.values():
            if not (type(value) is bytes or (type(value) is np.ndarray and value.dtype.kind in _NUMBERS)):
                break
        else:
            return example
    if isinstance(example, Mapping):
        features = features or {}
        return {name: _value(value, features.get(name), name) for name, value in example.items()}
    return example if type(example) is bytes else _value(example, None, "")


def _value(value: object, feature: Feature | None, name: str) -> ExampleValue:
    if isinstance(value, (bytes, Ragged)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (np.ndarray, np.generic)):
        return value if value.dtype.kind in _NUMBERS else _strings(np.asarray(value))
    declared = feature if feature is not None and not feature.dtype.is_string else None
    try:
        array = natural_array(value)
    except NotExactError as error:
        if declared is not None:
            return _exactly(value, declared, name)
        raise _unfit(name, "numbers that one dtype holds", error) from None
    except ValueError as error:
        raise TaskError(
            f"feature {name!r} should be an array, a number or text, got {type(value).__name__}: {brief(value)} "
            f"({error})",
            feature=name,
        ) from None
    if array.dtype.kind == "O" and declared is not None:
        return _exactly(value, declared, name)
    if array.dtype.kind == "O" and not all(isinstance(item, (str, bytes)) for item in array.reshape(-1)):
        raise TaskError(
            f"feature {name!r} should be an array, a number or text, got {type(value).__name__}: {brief(value)}",
            feature=name,
        )
    if array.dtype.kind in "OSU":
        return _strings(array)
    if declared is None:
        return _without_width(value, array, name)
    if not (declared.dtype.is_integer or declared.dtype.is_floating or declared.dtype.is_bool):
        return array.astype(declared.dtype.as_numpy_dtype)  # complex
    return _exactly(value, declared, name)


def _exactly(value: object, feature: Feature, name: str) -> np.ndarray:
    try:
        return exact_numbers(value, feature.dtype.as_numpy_dtype)
    except NotExactError as error:
        raise TaskError(
            f"feature {name!r} is declared {feature.dtype.name}, which does not hold {error}", feature=name
        ) from None
    except NotNumbersError:
        raise TaskError(
            f"feature {name!r} should be an array, a number or text, got {type(value).__name__}: {brief(value)}",
            feature=name,
        ) from None


def _without_width(value: object, array: np.ndarray, name: str) -> np.ndarray:
    """Python numbers as TensorFlow takes them: int32 where they fit, else int64; float32."""
    if array.dtype.kind == "f":
        try:
            return exact_numbers(value, np.dtype(np.float32))
        except (NotExactError, NotNumbersError) as error:
            raise _unfit(name, "numbers that float32 holds", error) from None
    if array.dtype.kind in "iu" and (not array.size or -(1 << 31) <= array.min() <= array.max() < 1 << 31):
        return array.astype(np.int32)
    return array


def _unfit(name: str, expected: str, error: Exception) -> TaskError:
    return TaskError(
        f"feature {name!r}: expected {expected}, got {error}. Give an array of the intended dtype, or declare the "
        "feature.",
        feature=name,
    )


def _strings(array: np.ndarray) -> bytes | np.ndarray:
    flat = [item.encode("utf-8", "surrogatepass") if isinstance(item, str) else bytes(item) for item in array.flat]
    if array.ndim == 0:
        return flat[0]
    encoded = np.empty(len(flat), object)
    encoded[:] = flat
    return encoded.reshape(array.shape)


def dtype_name(value: ExampleValue) -> str:
    """`int32`, `string`, ... of a normalised value."""
    return "string" if isinstance(value, bytes) else DType(value.dtype).name


def rank_of(value: npt.ArrayLike) -> int:
    return 0 if isinstance(value, bytes) else int(np.ndim(value))


def dataset_from_examples(
    make_examples: Callable[[], Iterable[object]],
    *,
    features: Mapping[str, Feature],
    name: str = "a Python step",
) -> TfDataset:
    """A `tf.data.Dataset` of the examples of an iterable.

    Types and ranks are those of the first example (read when the dataset is created), so every example must have the
    same names, dtypes and ranks. Without any example they cannot be inferred: `NoExamples` is raised.
    """
    first = next(iter(make_examples()), None)
    if first is None:
        raise NoExamples(f"{name} gave no example to infer the types of tensors from", step=name)
    first = normalised(first, features)
    spec: TensorForm | Mapping[str, TensorForm]
    if isinstance(first, Mapping):
        kept = stored(first)
        spec = {key: _form(value) for key, value in kept.items()}
        if kept.keys() != first.keys():
            all_kept = lambda: (stored(normalised(one, features)) for one in make_examples())  # noqa: E731
            return with_ragged(dataset_of(all_kept, spec, name=name))
    else:
        spec = _form(first)
    return dataset_of(lambda: (normalised(example, features) for example in make_examples()), spec, name=name)


def with_ragged(dataset: TfDataset) -> TfDataset:
    """A dataset of stored examples with ragged tensors for values and lengths of rows."""
    make = tensorflow("ragged tensors").RaggedTensor.from_nested_row_lengths
    return dataset.map(functools.partial(assembled, make=make))


def _form(value: ExampleValue) -> TensorForm:
    return dtype_name(value), rank_of(value)


def dataset_of(
    make_examples: Callable[[], Iterable[object]], spec: TensorForm | Mapping[str, TensorForm], *, name: str
) -> TfDataset:
    """A `tf.data.Dataset` of normalised examples; `spec` is (dtype, rank), or feature → (dtype, rank)."""
    tf = tensorflow(name)
    if isinstance(spec, Mapping):
        signature: TfSpec | dict[str, TfSpec] = {
            n: tf.TensorSpec([None] * rank, dtype) for n, (dtype, rank) in spec.items()
        }
    else:
        signature = tf.TensorSpec([None] * spec[1], spec[0])

    def conforming() -> Iterator[object]:
        for example in make_examples():
            yield _conform(example, signature, name)

    if _chunkable(signature):
        return _from_chunks(tf, conforming, signature)
    return tf.data.Dataset.from_generator(conforming, output_signature=signature)


def _conform(example: RawExample, spec: object, name: str) -> object:
    if not isinstance(spec, Mapping):
        return _conform_value(example, spec, name, "")
    if not isinstance(example, Mapping) or example.keys() != spec.keys():
        found = sorted(example) if isinstance(example, Mapping) else type(example).__name__
        raise TaskError(
            f"{name}: every example should have the features of the first one, {sorted(spec)}, got {found}",
            expected=sorted(spec),
            found=found,
        )
    return {key: _conform_value(example[key], spec[key], name, key) for key in spec}


def _conform_value(value: ExampleValue, spec: TfSpec, name: str, feature: str) -> object:
    if rank_of(value) == spec.shape.rank:
        if dtype_name(value) == spec.dtype.name:
            return value
        if np.size(value) == 0 and not isinstance(value, bytes):
            return np.zeros(np.shape(value), spec.dtype.as_numpy_dtype)
    raise TaskError(
        f"{name}: feature {feature!r} is {spec.dtype.name} of rank {spec.shape.rank} in the first example, and "
        f"{dtype_name(value)} of rank {rank_of(value)} in a later one",
        feature=feature,
    )


def _chunkable(spec: object) -> bool:
    return isinstance(spec, dict) and bool(spec) and all(s.shape.rank <= 1 for s in spec.values())


def _from_chunks(tf: ModuleType, examples: Callable[[], Iterator[RawExample]], spec: Mapping[str, TfSpec]) -> TfDataset:
    """Passes many examples at a time, scalars stacked and vectors as values and lengths. The first chunks are small."""

    def chunks() -> Iterator[object]:
        iterator, size = examples(), 1
        while chunk := list(itertools.islice(iterator, size)):
            yield {name: _column(tf, s, [example[name] for example in chunk]) for name, s in spec.items()}
            size = min(2 * size, _CHUNK)

    signature = {
        name: tf.TensorSpec([None], s.dtype) if s.shape.rank == 0 else tf.RaggedTensorSpec([None, None], s.dtype, 1)
        for name, s in spec.items()
    }

    def plain(example: dict[str, TfTensor]) -> dict[str, TfTensor]:
        return {name: tf.ensure_shape(value, spec[name].shape) for name, value in example.items()}

    return tf.data.Dataset.from_generator(chunks, output_signature=signature).unbatch().map(plain)


def _column(tf: ModuleType, spec: TfSpec, values: list[Array]) -> object:
    dtype = object if spec.dtype == tf.string else spec.dtype.as_numpy_dtype
    if spec.shape.rank == 0:
        return np.array(values, dtype)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return tf.RaggedTensor.from_row_lengths(np.concatenate(values).astype(dtype, copy=False), lengths, validate=False)


def examples_from_dataset(dataset: TfDataset) -> Iterator[RawExample]:
    """The elements of a `tf.data.Dataset` as NumPy values; ragged tensors as `Ragged`, nested lists."""
    tf = tensorflow("reading a dataset")
    for element in dataset:
        yield tf.nest.map_structure(_to_numpy, element)


def _to_numpy(value: TfTensor) -> object:
    if hasattr(value, "nested_row_lengths"):
        return Ragged(value.flat_values.numpy(), [lengths.numpy() for lengths in value.nested_row_lengths()])
    return value.numpy()
