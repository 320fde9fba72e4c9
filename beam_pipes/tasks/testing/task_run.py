"""A task run from raw data to metrics, as a unit test does. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.in_python.examples import examples_from_dataset
from beam_pipes.tasks.in_tensorflow.runtime import tensorflow
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.testing.assertions import DataInjector

_SPLIT = "test"


def encode_str(task_name: str, s: str, output_feature_name: str = "targets") -> Sequence[int]:
    """Ids of a text under a task's vocabulary, with EOS where the feature asks for it."""
    feature = TaskRegistry.get(task_name).output_features[output_feature_name]
    ids = list(feature.vocabulary.encode(s))
    return [*ids, feature.vocabulary.eos_id] if feature.add_eos else ids


def create_prediction(task_name: str, s: str, output_feature_name: str = "targets") -> list[tuple[int, Sequence[int]]]:
    """What a model would return that predicts the text for the first example: `[(0, ids)]`."""
    return [(0, encode_str(task_name, s, output_feature_name))]


def _dataset(raw_data: Any) -> Any:
    tf = tensorflow("test_preprocessing")
    if isinstance(raw_data, Mapping):
        return tf.data.Dataset.from_tensors(dict(raw_data))
    return raw_data


def test_preprocessing(
    task_name: str,
    raw_data: Mapping[str, Any],
    seed: int | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> Iterator[Mapping[str, Any]]:
    """Raw examples → preprocessed ones. `raw_data` is one raw example, or `{split: dataset}` with one split.

    Raises:
        TaskError: there are several splits.
    """
    is_split = all(hasattr(value, "as_numpy_iterator") for value in raw_data.values()) and bool(raw_data)
    if is_split and len(raw_data) > 1:
        raise TaskError("test_preprocessing supports a single split in raw_data.")
    data = dict(raw_data) if is_split else {_SPLIT: _dataset(raw_data)}
    with DataInjector(task_name, data):
        dataset = TaskRegistry.get(task_name).get_dataset(
            sequence_length=sequence_length, split=next(iter(data)), shuffle=False, seed=seed
        )
        return iter(list(examples_from_dataset(dataset)))


def test_preprocessing_single(
    task_name: str,
    raw_data: Mapping[str, Any],
    seed: int | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> Mapping[str, Any]:
    """The first of `test_preprocessing`."""
    return next(test_preprocessing(task_name, raw_data, seed, sequence_length))


def test_postprocessing(
    task_name: str,
    raw_data: Mapping[str, Any],
    target_feature_name: str = "targets",
    predict_output: Sequence[str] | None = None,
    score_output: Sequence[float] | None = None,
    feature_encoder: Any = None,
    sequence_length: Mapping[str, int] | None = None,
) -> Mapping[str, Any]:
    """Metrics of a task for given model outputs: metric name → value.

    Args:
        task_name: the task.
        raw_data: as in `test_preprocessing`.
        target_feature_name: the feature that holds targets.
        predict_output: predicted text, an example.
        score_output: score, an example.
        feature_encoder: a feature converter that the examples must pass through; None for none.
        sequence_length: feature → length.
    """
    task = TaskRegistry.get(task_name)
    examples = list(test_preprocessing(task_name, raw_data, sequence_length=sequence_length))
    if feature_encoder is not None:
        _convert(task_name, raw_data, feature_encoder, sequence_length, examples)
    vocabulary = task.output_features[target_feature_name].vocabulary
    targets = [
        task.postprocess_fn(vocabulary.decode(example[target_feature_name]), example=example, is_target=True)
        if task.postprocessor
        else vocabulary.decode(example[target_feature_name])
        for example in examples
    ]
    results: dict[str, Any] = {}
    if predict_output is not None:
        predictions = [
            task.postprocess_fn(text, example=example, is_target=False) if task.postprocessor else text
            for text, example in zip(predict_output, examples, strict=True)
        ]
        for metric_fn in task.predict_metric_fns:
            results.update(metric_fn(targets, predictions))
    if score_output is not None:
        for metric_fn in task.score_metric_fns:
            results.update(metric_fn(targets, list(score_output)))
    return results


def _convert(
    task_name: str, raw_data: Mapping[str, Any], converter: Any, lengths: Any, examples: Sequence[Mapping[str, Any]]
) -> None:
    task = TaskRegistry.get(task_name)
    lengths = dict(lengths or {})
    for name in task.output_features:
        longest = max((len(example[name]) for example in examples if name in example), default=1)
        lengths.setdefault(name, max(longest, 1))
    is_split = all(hasattr(value, "as_numpy_iterator") for value in raw_data.values())
    data = dict(raw_data) if is_split else {_SPLIT: _dataset(raw_data)}
    with DataInjector(task_name, data):
        dataset = task.get_dataset(sequence_length=lengths, split=next(iter(data)), shuffle=False)
        list(examples_from_dataset(converter(dataset, lengths)))


def test_task(
    task_name: str,
    raw_data: Mapping[str, Any],
    output_feature_name: str = "targets",
    feature_encoder: Any = None,
    seed: int | None = None,
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Runs a task on one raw example with a model that predicts the target: the preprocessed example, and the
    metrics."""
    task = TaskRegistry.get(task_name)
    example = test_preprocessing_single(task_name, raw_data, seed)
    prediction = task.output_features[output_feature_name].vocabulary.decode(example[output_feature_name])
    metrics = test_postprocessing(
        task_name,
        raw_data,
        target_feature_name=output_feature_name,
        predict_output=[prediction],
        feature_encoder=feature_encoder,
    )
    return example, metrics


for _function in (test_preprocessing, test_preprocessing_single, test_postprocessing, test_task):
    _function.__dict__["__test__"] = False  # not for pytest to collect
