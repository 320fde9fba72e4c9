"""Assertions over datasets: what they hold, as values.

Other data for a registered task, for the time of a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.tasks.in_python.examples import examples_from_dataset
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.sources.function_source import FunctionDataSource


def assert_dataset(
    dataset: Any,
    expected: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    expected_dtypes: Mapping[str, Any] | None = None,
    rtol: float = 1e-7,
    atol: float = 0,
) -> None:
    """Raises `AssertionError` unless a `tf.data.Dataset` holds exactly these examples, in this order.

    Args:
        dataset: the dataset.
        expected: an example, or a list of them; strings may be text or bytes.
        expected_dtypes: feature → dtype, of those that matter.
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


def _assert_example(found: Any, wanted: Any, where: str, rtol: float, atol: float) -> None:
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or found.keys() != wanted.keys():
            names = sorted(found) if isinstance(found, Mapping) else type(found).__name__
            raise AssertionError(f"{where}: expected the features {sorted(wanted)}, found {names}")
        for name in wanted:
            _assert_example(found[name], wanted[name], f"{where}, feature {name!r}", rtol, atol)
        return
    actual, expected = _plain(found), _plain(wanted)
    if np.asarray(actual, object).dtype == object and not _is_numeric(actual):
        if actual != expected:
            raise AssertionError(f"{where}: expected {expected!r}, found {actual!r}")
        return
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=atol, err_msg=where
    )


def _is_numeric(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufc"
    except ValueError:  # ragged
        return False


def _plain(value: Any) -> Any:
    """Nested lists of numbers and bytes."""
    if hasattr(value, "to_list"):
        value = value.to_list()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.encode() if isinstance(value, str) else value


def dataset_as_text(ds: Any) -> list[dict[str, Any]]:
    """The examples of a dataset with their strings as `str`."""
    return [{name: _as_text(_plain(value)) for name, value in example.items()} for example in examples_from_dataset(ds)]


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def assert_datasets_eq(dataset1: Any, dataset2: Any) -> None:
    """Raises `AssertionError` unless two datasets hold the same examples in the same order."""
    assert_dataset(dataset1, list(examples_from_dataset(dataset2)))


def assert_datasets_neq(dataset1: Any, dataset2: Any) -> None:
    """Raises `AssertionError` if two datasets hold the same examples in the same order."""
    try:
        assert_datasets_eq(dataset1, dataset2)
    except AssertionError:
        return
    raise AssertionError("expected two datasets that differ, found the same examples in both")


def assert_dict_values_equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Raises `AssertionError` unless two mappings of arrays are the same."""
    _assert_example(a, b, "mapping", 0, 0)


def assert_dict_contains(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
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

    def __init__(self, task_name: str, per_split_data: Mapping[str, Any]) -> None:
        self._task = TaskRegistry.get(task_name)
        self._data = dict(per_split_data)

    def __enter__(self) -> DataInjector:
        def inject(split: str, shuffle_files: bool = False, seed: int | None = None) -> Any:
            return self._data[split]

        self._saved = self._task._source
        self._injected = FunctionDataSource(inject, splits=list(self._data))
        self._task._source = self._injected
        return self

    def __exit__(self, *error: object) -> None:
        if self._task._source is not self._injected:
            raise TaskError("The task source was changed and not restored within the DataInjector scope.")
        self._task._source = self._saved
