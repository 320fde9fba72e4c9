"""The library's preprocessors over Python examples: the same results as their tf.data forms, without TensorFlow.

Preprocessors in plain Python, one example at a time.

What the library's preprocessors do feature by feature, whatever holds the values: tensors, arrays or columns.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.tasks.steps.examples import Example, RawExample
from beam_pipes.tasks.steps.features import Feature, Length, SequenceLength, axis_lengths
from beam_pipes.tasks.steps.signatures import function_name, parameters

OutputFeatures = Mapping[str, Feature]
F = TypeVar("F", bound=Callable[..., object])
Value = TypeVar("Value")


def rekey(x: Example, key_map: Mapping[str, str] | None = None) -> Example:
    if not key_map:
        return x
    return {new: x[old] if old else b"" for new, old in key_map.items()}


def tokenize(
    example: Example, output_features: OutputFeatures, copy_pretokenized: bool = True, with_eos: bool = False
) -> dict[str, object]:
    def encode(name: str, feature: Feature, value: object) -> object:
        return _encode(name, feature, value, eos_of(name, feature) if with_eos and feature.add_eos else None)

    return tokenize_features(example, output_features, copy_pretokenized, encode)


def _encode(name: str, feature: Feature, value: object, eos: int | None) -> object:
    """The ids of a text or of a vector of texts; of several, the last one ends in `eos`."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        rows = [np.asarray(feature.vocabulary.encode(text), np.int32) for text in value]
        if rows and eos is not None:
            rows[-1] = _with_eos(name, rows[-1], eos)
        if len({len(row) for row in rows}) > 1:
            raise TaskError(
                f"feature '{name}' is a vector of texts of different lengths, which is ragged: tokenize it in a "
                "dataset preprocessor, or one text an example",
                feature=name,
            )
        return np.stack(rows) if rows else np.zeros((0, 0), np.int32)
    ids = feature.vocabulary.encode(value)
    encoded = np.asarray(ids, np.int32) if isinstance(ids, list) else ids
    if eos is None:
        return encoded
    if np.ndim(encoded) > 1:
        raise TaskError(
            f"feature '{name}' holds {len(encoded)} sequences, of which the last one ends in EOS, so that they are "
            "ragged: tokenize it in a dataset preprocessor, or append EOS to each with append_eos",
            feature=name,
        )
    return _with_eos(name, encoded, eos)


def tokenize_and_append_eos(
    example: Example, output_features: OutputFeatures, copy_pretokenized: bool = True
) -> dict[str, object]:
    return tokenize(example, output_features, copy_pretokenized, with_eos=True)


def print_dataset(features: Example, summarize: int = 3) -> Example:
    with np.printoptions(edgeitems=summarize, threshold=2 * summarize):
        print(dict(features))
    return features


def append_eos(example: Example, output_features: OutputFeatures) -> dict[str, object]:
    return append_eos_after_trim(example, output_features, None)


def append_eos_after_trim(
    example: Example, output_features: OutputFeatures, sequence_length: SequenceLength | None = None
) -> dict[str, object]:
    return append_eos_to_features(
        example,
        output_features,
        sequence_length,
        trim=lambda value, length: trim_array(value, length_before_eos(length, np.ndim(value))),
        append=_with_eos,
    )


def _with_eos(name: str, value: npt.ArrayLike, eos: int) -> np.ndarray:
    array = np.asarray(value)
    check_is_sequence(name, array.ndim)
    return np.concatenate([array, np.full((*array.shape[:-1], 1), eos, array.dtype)], axis=-1)


def trim_array(value: Any, length: Length) -> Any:
    """The first `length` entries of the first axis, or of each axis for a list of lengths; scalars stay."""
    if length is None or isinstance(value, bytes) or np.ndim(value) == 0:
        return value
    return value[tuple(slice(None, axis_length) for axis_length in axis_lengths(length))]


def trim_features(
    example: Example, sequence_length: SequenceLength | None, output_features: OutputFeatures
) -> dict[str, object]:
    lengths = sequence_length or {}
    return {
        name: trim_array(value, lengths.get(name)) if name in output_features else value
        for name, value in example.items()
    }


def truncate_inputs_left(example: Example, sequence_length: SequenceLength | None = None) -> dict[str, object]:
    length = axis_lengths((sequence_length or {}).get("inputs"))[0]
    if length is None:
        return dict(example)
    return {**example, "inputs": example["inputs"][-length:] if length else example["inputs"][:0]}


def preprocess_tensorflow_examples(example: Example, inputs_format: str, targets_format: str) -> dict[str, object]:
    def fill(template: str) -> bytes:
        pieces = [
            _as_bytes(example[piece[1:-1]]) if re.fullmatch(r"{\w+}", piece) else piece.encode()
            for piece in re.split(r"({\w+})", template)
        ]
        return b"".join(pieces)

    return {"inputs": fill(inputs_format), "targets": fill(targets_format)}


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class PythonMap:
    """A Python function of one example as a preprocessor. Made by `python_map`."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn
        self.takes_generator = "rng" in parameters(fn)
        functools.update_wrapper(self, fn)

    def __call__(self, example: object, *args: object, **kwargs: object) -> RawExample:
        """The function itself, on one example."""
        return self.fn(example, *args, **kwargs)

    def __repr__(self) -> str:
        return f"python_map({function_name(self.fn)})"


def python_map(fn: Callable[..., object]) -> PythonMap:
    """Makes a Python function of one example a preprocessor: no TensorFlow, any library, native speed offline.

    ```
    @python_map
    def split_sentences(example):
        return [{"targets": sentence} for sentence in example["text"].split(". ")]
    ```

    The function takes an example (NumPy arrays, `bytes` for strings, numbers) and returns an example, a list of
    examples, or None to drop it. It may have the arguments `output_features` and `sequence_length`, which are injected,
    and `rng`, a NumPy generator keyed by seed and example. Lists and Python numbers take the dtype of the output
    feature of their name.
    """
    return PythonMap(fn)


def with_python_form(form: Callable[..., object]) -> Callable[[F], F]:
    """Gives a tf.data preprocessor a second form, a Python function of one example that means the same."""

    def decorate(preprocessor: F) -> F:
        preprocessor.__dict__["python_form"] = form
        return preprocessor

    return decorate


def tokenize_features(
    example: Mapping[str, Value],
    output_features: OutputFeatures,
    copy_pretokenized: bool,
    encode: Callable[[str, Feature, Value], object],
) -> dict[str, object]:
    """Output features encoded by `encode(name, feature, value)`, others unchanged; the text as `_pretokenized`."""
    result: dict[str, object] = {}
    for name, value in features_of(example, "tokenize").items():
        feature = output_features.get(name)
        if feature is None:
            result.setdefault(name, value)
            continue
        if copy_pretokenized:
            result[f"{name}_pretokenized"] = value
        result[name] = encode(name, feature, value)
    return result


def features_of(example: Mapping[str, Value], step: str) -> Mapping[str, Value]:
    """The example, or the spec of a dataset's examples, if it is a dict of features."""
    if isinstance(example, Mapping):
        return example
    raise TaskError(
        f"{step} takes examples that are dicts of features, got {type(example).__name__}. Lines of text and single "
        'values need a step before it that names them: a python_map which returns {"targets": line}',
        step=step,
    )


def append_eos_to_features(
    example: Mapping[str, Value],
    output_features: OutputFeatures,
    sequence_length: SequenceLength | None,
    *,
    trim: Callable[[Value, Length], Value],
    append: Callable[[str, Value, int], Value],
) -> dict[str, Value]:
    """Appends EOS to every output feature with `add_eos`: `append(name, value, eos)`.

    A feature with a length is cut before, by `trim(value, length)`, so that EOS fits.
    """
    result = dict(features_of(example, "append_eos"))
    for name, value in example.items():
        feature = output_features.get(name)
        if feature is None or not feature.add_eos:
            continue
        length = (sequence_length or {}).get(name)
        if length is not None:
            value = trim(value, length)
        result[name] = append(name, value, eos_of(name, feature))
    return result


def length_before_eos(length: Length, rank: int) -> list[int | None]:
    """The lengths of the axes that leave room for one EOS on the last: `2` → `[1]`, `2` at rank 2 → `[None, 1]`."""
    lengths = axis_lengths(length) if isinstance(length, Sequence) else [*[None] * (rank - 1), length]
    last = lengths[-1]
    return [*lengths[:-1], None if last is None else max(last - 1, 0)]


def eos_of(name: str, feature: Feature) -> int:
    """EOS id of a feature.

    Raises:
        TaskError: its vocabulary has none.
    """
    eos = feature.vocabulary.eos_id
    if eos is None:
        raise TaskError(
            f"feature '{name}' has add_eos=True, but its vocabulary has no EOS: {feature.vocabulary!r}. Give it one, "
            "or declare the feature with add_eos=False",
            feature=name,
        )
    return int(eos)


def check_is_sequence(name: str, rank: int | None) -> None:
    """Raises `TaskError` for a scalar, to which EOS cannot be appended."""
    if rank == 0:
        raise TaskError(
            f"EOS is appended to a sequence, but feature '{name}' is a scalar; declare it with add_eos=False",
            feature=name,
        )
