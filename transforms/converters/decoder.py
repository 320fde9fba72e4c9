"""One converter for decoder-only models, whatever the task has: targets, inputs too, suffixes too.

No conversion: the task's features are the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.tasks.provider import DType
from beam_pipes.transforms.converters.feature_converter import FeatureConverter
from beam_pipes.transforms.converters.language_models import (
    LMFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
)
from beam_pipes.transforms.converters.validation import TOKENS, FeatureSpec


class DecoderFeatureConverter(FeatureConverter):
    """Chooses by the task's features (the keys of `task_feature_lengths`, or of the rows).

    "suffixes" → `PrefixSuffixLMFeatureConverter`, "inputs" → `PrefixLMFeatureConverter`, only "targets" →
    `LMFeatureConverter`. So a mixture can go from pre-training to fine-tuning without another converter.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {"targets": TOKENS}
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = PrefixLMFeatureConverter.MODEL_FEATURES
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = LMFeatureConverter.PACKING_FEATURE_DTYPES

    def __init__(
        self,
        loss_on_targets_only: bool = True,
        pack: bool = True,
        use_custom_packing_ops: bool = False,
        apply_length_check: bool = True,
        bos_id: int = 0,
        passthrough_features: Mapping[str, FeatureSpec] | None = None,
    ) -> None:
        common: dict[str, Any] = {
            "pack": pack,
            "use_custom_packing_ops": use_custom_packing_ops,
            "apply_length_check": apply_length_check,
            "bos_id": bos_id,
            "passthrough_features": passthrough_features,
        }
        self._lm = LMFeatureConverter(**common)
        self._prefix_lm = PrefixLMFeatureConverter(loss_on_targets_only, **common)
        self._prefix_suffix_lm = PrefixSuffixLMFeatureConverter(loss_on_targets_only, **common)
        super().__init__(**common)

    def converter_for(self, features: Collection[str]) -> FeatureConverter:
        """The converter that serves tasks with these features."""
        if "suffixes" in features:
            return self._prefix_suffix_lm
        return self._prefix_lm if "inputs" in features else self._lm

    def for_lengths(self, task_feature_lengths: Mapping[str, Any]) -> FeatureConverter:
        return self.converter_for(task_feature_lengths)

    def __call__(self, ds: Any, task_feature_lengths: Mapping[str, int]) -> Any:
        return self.converter_for(task_feature_lengths)(ds, task_feature_lengths)

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, int]
    ) -> Iterator[dict[str, np.ndarray]]:
        return self.converter_for(task_feature_lengths).convert_examples(examples, task_feature_lengths)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.converter_for({name.removesuffix("_ends") for name in rows}).convert_rows(rows)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> Mapping[str, int]:
        return self.converter_for(task_feature_lengths).get_model_feature_lengths(task_feature_lengths)

    def _convert_features(self, ds: Any, task_feature_lengths: Mapping[str, int]) -> Any:
        raise TaskError(
            "DecoderFeatureConverter converts nothing itself; call converter_for(task_feature_lengths) and "
            "override _convert_example in the class it returns"
        )


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
