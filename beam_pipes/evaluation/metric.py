"""Metric objects: what an evaluator asks of them, and two bases to write them on.

The protocol is that of CLU: a metric is made from model outputs, two of them merge into one, and `compute` gives the
values. Any object with `model_output_type`, `from_model_output` and `compute` is a metric; these classes import neither
JAX nor CLU, and may be decorated with `flax.struct.dataclass` or `dataclasses.dataclass(frozen=True)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.model_outputs import ModelOutput, ModelOutputType
from beam_pipes.tasks.features import Feature

Example = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Metric:
    """Base of a metric that keeps what it needs and no more: sums, counts.

    ```
    @dataclasses.dataclass(frozen=True)
    class MeanLength(Metric):
        model_output_type: ModelOutputType = ModelOutputType.PREDICTION
        total: int = 0
        count: int = 0

        @classmethod
        def from_model_output(cls, inputs, model_output, features, target_field_name="targets", mask=None,
                              indices_2d=None):
            return cls(total=sum(len(tokens) for tokens in model_output), count=len(model_output))

        def compute(self):
            return {"mean_length": self.total / self.count}
    ```
    """

    model_output_type: ModelOutputType

    @classmethod
    def from_model_output(
        cls,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: Any = None,
        indices_2d: Any = None,
    ) -> Any:
        """A metric of these outputs.

        `inputs`: the examples. `model_output`: one output an example, in their order; an array where all have one
        shape, else a list; with auxiliary values a pair. `features`: of the task. `mask`: 1 for examples that
        count, 0 for padding. `indices_2d`: (host, example) of each, where several hosts contribute.
        """
        raise NotImplementedError("Must override from_model_output()")

    def merge(self, other: Any) -> Any:
        """A metric of what both have seen."""
        raise NotImplementedError("Must override merge()")

    def compute(self) -> Mapping[str, Any]:
        """Name → value."""
        raise NotImplementedError("Must override compute()")


@dataclasses.dataclass(frozen=True)
class CollectingMetric:
    """Base of a metric that keeps all outputs, and computes from the whole in `actual_compute`."""

    values: dict[str, Any]

    @classmethod
    def from_model_output(
        cls,
        inputs: Sequence[Example],
        model_output: ModelOutput,
        features: Mapping[str, Feature],
        target_field_name: str = "targets",
        mask: Any = None,
        indices_2d: Any = None,
    ) -> Any:
        count = len(model_output[0]) if isinstance(model_output, tuple) else len(model_output)
        if mask is None:
            mask = np.ones(count, np.int32)
        if indices_2d is None:
            indices_2d = np.stack([np.zeros(count, np.int32), np.arange(count, dtype=np.int32)], axis=1)
        return cls(values={"model_output": model_output, "indices_2d": indices_2d, "mask": mask})

    @classmethod
    def empty(cls) -> Any:
        """A metric that has seen nothing: what merging begins with."""
        return cls(values={})

    def merge(self, other: Any) -> Any:
        """The outputs of both, those of `self` first; `actual_compute` sorts them."""
        mine, others = self.values, other.values
        if not mine or not others:
            return self if mine else other
        return type(self)(
            values={
                "model_output": _concatenated(mine["model_output"], others["model_output"]),
                "indices_2d": np.concatenate([mine["indices_2d"], others["indices_2d"]]),
                "mask": np.concatenate([mine["mask"], others["mask"]]),
            }
        )

    def actual_compute(
        self,
        task_dataset_as_numpy: Sequence[Example],
        task_output_features: Mapping[str, Feature],
        target_field_name: str = "targets",
        cached_targets: list[Any] | None = None,
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Name → value, and what loggers write: `{"targets": …, "prediction": …}`, one entry an example.

        `cached_targets` are the postprocessed targets of an earlier evaluation.
        """
        raise NotImplementedError("Must override actual_compute()")

    def outputs_in_order(self) -> ModelOutput:
        """The collected outputs without padding, ordered by host, then example."""
        indices, output = remove_padding_examples(
            self.values["model_output"], self.values["indices_2d"], self.values["mask"]
        )
        return globally_sort_model_output(output, indices)


def remove_padding_examples(model_output: ModelOutput, indices_2d: Any, mask: Any) -> tuple[Any, ModelOutput]:
    """Drops the examples whose `mask` is 0 from the indices and the outputs: `[a, b, c]`, `[1, 0, 1]` → `[a, c]`."""
    kept = np.flatnonzero(np.asarray(mask) == 1)
    return np.asarray(indices_2d)[kept], _taken(model_output, kept)


def globally_sort_model_output(model_output: ModelOutput, indices_2d: Any) -> ModelOutput:
    """Sorts outputs by (host, example): `[c, a]` with `[[1, 0], [0, 0]]` → `[a, c]`."""
    indices = np.asarray(indices_2d)
    return _taken(model_output, np.lexsort((indices[:, 1], indices[:, 0])))


def _taken(output: Any, places: Any) -> Any:
    if isinstance(output, tuple):
        return tuple(_taken(part, places) for part in output)
    if isinstance(output, Mapping):
        return {name: _taken(value, places) for name, value in output.items()}
    if isinstance(output, list):
        return [output[place] for place in places]
    return np.asarray(output)[places]


def _concatenated(first: Any, second: Any) -> Any:
    if isinstance(first, tuple):
        return tuple(_concatenated(one, other) for one, other in zip(first, second, strict=True))
    if isinstance(first, Mapping):
        if first.keys() != second.keys():
            raise EvaluationError(
                f"metrics with different auxiliary values cannot be merged: {sorted(first)} and {sorted(second)}"
            )
        return {name: _concatenated(first[name], second[name]) for name in first}
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.shape[1:] == second.shape[1:]:
        return np.concatenate([first, second])
    return [*first, *second]
