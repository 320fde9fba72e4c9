"""The prefix language model over examples that hold model features already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from beam_pipes.transforms.converters.pre_packed_lm import PrePackedLMFeatureConverter


class PrePackedPrefixLMFeatureConverter(PrePackedLMFeatureConverter):
    """`PrePackedLMFeatureConverter` with `decoder_causal_attention`; rows are as long as inputs plus targets."""

    BATCH_FEATURES: ClassVar[Sequence[str]] = (
        *PrePackedLMFeatureConverter.BATCH_FEATURES,
        "decoder_causal_attention",
    )

    def _row_length(self, task_feature_lengths: Mapping[str, int]) -> int:
        return self._sum_of_lengths(task_feature_lengths, ("inputs", "targets"))
