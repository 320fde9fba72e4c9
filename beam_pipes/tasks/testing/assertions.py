"""Assertions over datasets, and a task run from raw data to metrics, as a unit test does.

Replaces the data of a registered task during a test. Running a task needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.tasks.providers.registry import TaskRegistry
from beam_pipes.tasks.sources.function_source import FunctionDataSource
from beam_pipes.tasks.steps.examples import Example, OwnExample, examples_from_dataset
from beam_pipes.tasks.steps.features import DatasetConverter, SequenceLength
from beam_pipes.tasks.steps.signatures import MetricValues


def assert_dataset(
    dataset: TfDataset,
    expected: Mapping[str, object] | Sequence[Mapping[str, object]],
    expected_dtypes: Mapping[str, object] | None = None,
    rtol: float = 1e-7,
    atol: float = 0,
) -> None:
    """Raises `AssertionError` unless a `tf.data.Dataset` holds exactly these examples, in this order.

    Args:
        dataset: the dataset.
        expected: an example, or a list of them; strings may be text or bytes.
        expected_dtypes: feature → dtype, for the features to check.
        rtol, atol: tolerances of floats.
    """
    examples = [expected] if isinstance(expected, Mapping) else list(expected)
    actual = list(examples_from_dataset(dataset))
    if len(actual) != len(examples):
        raise AssertionError(f"expected {len(examples)} examples, the dataset has {len(actual)}: {actual[:5]}")
    for number, (found, wanted) in enumerate(zip(actual, examples, strict=True)):
        _assert_example(found, wanted, f"example {number}", rtol, atol)
    for name, dtype in (expected_dtypes or {}).items():
        found_dtype = dataset.element_spec[name].dtype
        if found_dtype != dtype:
            raise AssertionError(f"feature {name!r}: expected dtype {dtype}, found {found_dtype}")


def _assert_example(found: object, wanted: object, where: str, rtol: float, atol: float) -> None:
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or found.keys() != wanted.keys():
            names = sorted(found) if isinstance(found, Mapping) else type(found).__name__
            raise AssertionError(f"{where}: expected the features {sorted(wanted)}, found {names}")
        for name in wanted:
            _assert_example(found[name], wanted[name], f"{where}, feature {name!r}", rtol, atol)
        return
    actual, expected = _plain(found), _plain(wanted)
    if np.asarray(actual, object).dtype == object and not _is_numeric(actual):
        if actual != expected and not _same_broadcast(actual, expected):
            raise AssertionError(f"{where}: expected {expected!r}, found {actual!r}")
        return
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=atol, err_msg=where
    )


def _is_numeric(value: object) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufc"
    except ValueError:  # ragged
        return False


def _same_broadcast(actual: object, expected: object) -> bool:
    """Strings of two shapes, as NumPy compares numbers of two: `["a"]` is what `"a"` expects. As in SeqIO."""
    try:
        return bool(np.all(np.equal(np.asarray(actual, object), np.asarray(expected, object))))
    except ValueError:  # shapes that do not broadcast, or rows of several lengths
        return False


def _plain(value: object) -> object:
    """Nested lists of numbers and bytes."""
    if hasattr(value, "to_list"):
        value = value.to_list()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.encode() if isinstance(value, str) else value


def dataset_as_text(ds: TfDataset) -> list[OwnExample]:
    """The examples of a dataset with their strings as `str`; numbers stay arrays."""
    return [
        {name: value if _is_numbers(value) else _as_text(_plain(value)) for name, value in example.items()}
        for example in examples_from_dataset(ds)
    ]


def as_lists(ds: TfDataset) -> list[OwnExample]:
    """The examples of a dataset as plain values: lists of numbers and of `str`."""
    return [{name: _as_text(_plain(value)) for name, value in example.items()} for example in examples_from_dataset(ds)]


def _is_numbers(value: object) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc"


def _as_text(value: object) -> object:
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def assert_datasets_eq(dataset1: object, dataset2: object) -> None:
    """Raises `AssertionError` unless two datasets hold the same examples in the same order."""
    assert_dataset(dataset1, list(examples_from_dataset(dataset2)))


def assert_datasets_neq(dataset1: object, dataset2: object) -> None:
    """Raises `AssertionError` if two datasets hold the same examples in the same order."""
    try:
        assert_datasets_eq(dataset1, dataset2)
    except AssertionError:
        return
    raise AssertionError("expected two datasets that differ, found the same examples in both")


def assert_dict_values_equal(a: Mapping[str, object], b: Mapping[str, object]) -> None:
    """Raises `AssertionError` unless two mappings of arrays are the same."""
    _assert_example(a, b, "mapping", 0, 0)


def assert_dict_contains(expected: Mapping[str, object], actual: Mapping[str, object]) -> None:
    """Raises `AssertionError` unless every entry of the first mapping is in the second."""
    missing = sorted(expected.keys() - actual.keys())
    if missing:
        raise AssertionError(f"expected {missing}, found {sorted(actual)}")
    _assert_example({name: actual[name] for name in expected}, expected, "mapping", 0, 0)


class DataInjector:
    """`with DataInjector("my_task", {"test": dataset}): ...` — the task reads these datasets, or lists of
    examples, inside.

    Raises:
        TaskError: at the end, if the source has been changed in between.
    """

    def __init__(self, task_name: str, per_split_data: Mapping[str, object]) -> None:
        self._task = TaskRegistry.get(task_name)
        self._data = dict(per_split_data)

    def __enter__(self) -> DataInjector:
        def inject(split: str, shuffle_files: bool = False, seed: int | None = None) -> object:
            return self._data[split]

        self._saved = self._task._source
        self._injected = FunctionDataSource(inject, splits=list(self._data))
        self._task._source = self._injected
        return self

    def __exit__(self, *error: object) -> None:
        if self._task._source is not self._injected:
            raise TaskError("The task source was changed and not restored within the DataInjector scope.")
        self._task._source = self._saved


_SPLIT = "test"


def encode_str(task_name: str, s: str, output_feature_name: str = "targets") -> Sequence[int]:
    """Ids of a text under a task's vocabulary, with EOS if the feature has `add_eos`."""
    feature = TaskRegistry.get(task_name).output_features[output_feature_name]
    ids = list(feature.vocabulary.encode(s))
    return [*ids, feature.vocabulary.eos_id] if feature.add_eos else ids


def create_prediction(task_name: str, s: str, output_feature_name: str = "targets") -> list[tuple[int, Sequence[int]]]:
    """The output of a model that predicts the text for the first example: `[(0, ids)]`."""
    return [(0, encode_str(task_name, s, output_feature_name))]


def _dataset(raw_data: object) -> TfDataset:
    tf = tensorflow("test_preprocessing")
    if isinstance(raw_data, Mapping):
        return tf.data.Dataset.from_tensors(dict(raw_data))
    return raw_data


def test_preprocessing(
    task_name: str,
    raw_data: Mapping[str, object],
    seed: int | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> Iterator[Example]:
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
    raw_data: Mapping[str, object],
    seed: int | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> Example:
    """The first of `test_preprocessing`."""
    return next(test_preprocessing(task_name, raw_data, seed, sequence_length))


def test_postprocessing(
    task_name: str,
    raw_data: Mapping[str, object],
    target_feature_name: str = "targets",
    predict_output: Sequence[str] | None = None,
    score_output: Sequence[float] | None = None,
    feature_encoder: DatasetConverter | None = None,
    sequence_length: Mapping[str, int] | None = None,
) -> MetricValues:
    """Metrics of a task for given model outputs: metric name → value.

    Args:
        task_name: the task.
        raw_data: as in `test_preprocessing`.
        target_feature_name: the feature that holds targets.
        predict_output: predicted text for each example.
        score_output: score for each example.
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
    results: MetricValues = {}
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
    task_name: str,
    raw_data: Mapping[str, object],
    converter: DatasetConverter,
    lengths: SequenceLength | None,
    examples: Sequence[Example],
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
    raw_data: Mapping[str, object],
    output_feature_name: str = "targets",
    feature_encoder: DatasetConverter | None = None,
    seed: int | None = None,
) -> tuple[Example, MetricValues]:
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
