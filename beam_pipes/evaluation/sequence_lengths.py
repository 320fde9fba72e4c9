"""The lengths an evaluation converts its examples to: those asked for, or the longest that occur."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import EvaluationError
from beam_pipes.tasks.signatures import function_name, parameters
from beam_pipes.tasks.task import Task

_log = logging.getLogger(__name__)

Lengths = dict[str, Any]  # feature → int, or a list of one int or None an axis


def check_detectable(tasks: Sequence[Task], sequence_length: Mapping[str, Any] | None) -> bool:
    """Whether a preprocessor cannot work without lengths; raises `EvaluationError` if so and none are given."""
    for task in tasks:
        for preprocessor in task.preprocessors:
            wanted = parameters(preprocessor).get("sequence_length") if callable(preprocessor) else None
            if wanted is None or wanted.default is not wanted.empty:
                continue
            if sequence_length is None:
                raise EvaluationError(
                    f"Preprocessor '{function_name(preprocessor)}' in task '{task.name}' has a `sequence_length` "
                    "argument, making it incompatible with automatic sequence length detection. Pass a valid "
                    "`sequence_length` to `Evaluator` and try again.",
                    task=task.name,
                )
            return True
    return False


def converter_of(feature_converter: Any, names: Iterable[str]) -> Any:
    """The converter that serves tasks with these features, where one chooses among several."""
    return (
        feature_converter.converter_for(set(names))
        if hasattr(feature_converter, "converter_for")
        else feature_converter
    )


def converted_features(feature_converter: Any, task: Task) -> list[str]:
    """The features of a task that the converter wants lengths for; all of them if it names none."""
    converter = converter_of(feature_converter, task.output_features)
    passed = getattr(converter, "passthrough_features", None) or {}
    wanted = {**(getattr(converter, "TASK_FEATURES", None) or {}), **passed}
    names = [*task.output_features, *(name for name in passed if name not in task.output_features)]
    return [name for name in names if not wanted or name in wanted]


def longest(examples: Iterable[Mapping[str, Any]], names: Sequence[str], feature_converter: Any) -> tuple[Lengths, int]:
    """The longest sequence of each feature, and the number of examples. Features without a sequence are left out."""
    specs = getattr(converter_of(feature_converter, names), "TASK_FEATURES", None) or {}
    lengths: Lengths = {}
    count = 0
    for example in examples:
        count += 1
        for name in names:
            if name not in example:
                continue
            value = example[name]
            axis = getattr(specs.get(name), "sequence_dim", 0)
            if axis is None or np.ndim(value) == 0:
                continue
            size = len(value) if isinstance(value, list) else np.shape(value)[axis]
            lengths[name] = max(lengths.get(name, 0), size)
    return lengths, count


def settle(
    sequence_length: Mapping[str, Any] | None, longest_found: Lengths, *, preprocessors_need_it: bool
) -> Lengths:
    """The lengths to convert to: those given, and the longest found for the rest. Says when they waste or cut."""
    if sequence_length is None:
        _log.info("Setting sequence lengths to %s", longest_found)
        return dict(longest_found)
    settled = {name: sequence_length.get(name, found) for name, found in longest_found.items()}
    settled = {name: longest_found[name] if length is None else length for name, length in settled.items()}
    numbers = {name: length for name, length in settled.items() if not isinstance(length, list | tuple)}
    if any(length > longest_found[name] for name, length in numbers.items()):
        _log.warning(
            "Given sequence lengths are longer than necessary for some evaluation inputs or targets, resulting in "
            "wasted computation. Consider passing `None` for `sequence_length` to have them be automatically "
            "computed.\n Got: %s,\n Max Lengths: %s",
            settled,
            longest_found,
        )
    elif not preprocessors_need_it and any(length == longest_found[name] for name, length in numbers.items()):
        _log.warning(
            "Given sequence lengths *may be* insufficient for some evaluation inputs or targets. Such sequences will "
            "be truncated to fit, likely leading to sub-optimal results. Consider passing `None` for "
            "`sequence_length` to have them be automatically computed.\n Got: %s,\n Max Lengths: %s",
            settled,
            longest_found,
        )
    return settled
