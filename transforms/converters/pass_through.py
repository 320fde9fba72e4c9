"""No conversion: the task's features are the model's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.transforms.converters.feature_converter import FeatureConverter
from beam_pipes.transforms.converters.feature_spec import FeatureSpec


class PassThroughFeatureConverter(FeatureConverter):
    """Hands every example on as it is: `{"x": [1, 2]}` → `{"x": [1, 2]}`. Nothing is checked, packed or padded.

    Takes the arguments of `FeatureConverter`, so that converters can be exchanged in a configuration; none has an
    effect, and `pack` is False.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {}
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {}

    def __init__(
        self,
        pack: bool = False,
        use_custom_packing_ops: bool = False,
        apply_length_check: bool = True,
        bos_id: int = 0,
        passthrough_features: Mapping[str, FeatureSpec] | None = None,
    ) -> None:
        super().__init__(pack=False, apply_length_check=apply_length_check, bos_id=bos_id)

    def __call__(self, ds: Any, task_feature_lengths: Mapping[str, int]) -> Any:
        return ds

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, int]
    ) -> Iterator[dict[str, np.ndarray]]:
        return (dict(example) for example in examples)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(rows)

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]:
        """All of the task."""
        return list(output_features)

    def planned_lengths(self, task_feature_lengths: Mapping[str, Any]) -> dict[str, int | None]:
        """The lengths that were given; features without one are taken as they are."""
        return dict(task_feature_lengths)

    @property
    def adds_segments(self) -> bool:
        return False

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
        """The lengths that were given."""
        return dict(task_feature_lengths)

    def _convert_features(self, ds: Any, task_feature_lengths: Mapping[str, int]) -> Any:
        return ds
