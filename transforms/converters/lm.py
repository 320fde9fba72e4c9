"""The standard language model: a decoder alone, trained on "targets"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.in_tensorflow.autoregressive import make_autoregressive_inputs
from beam_pipes.transforms.converters.feature_converter import Array, FeatureConverter, Features
from beam_pipes.transforms.converters.feature_spec import TOKENS, FeatureSpec
from beam_pipes.transforms.converters.loss_weights import data_positions


def language_model_features(rows: Features, *, pack: bool = True, bos_id: int = 0) -> dict[str, Array]:
    """Model features of rows of "targets".

    Before: targets `[3, 9, 1 | 4, 1 | 0, 0]`. After:

        decoder_target_tokens [3, 9, 1, 4, 1, 0, 0]   decoder_segment_ids [1, 1, 1, 2, 2, 0, 0]
        decoder_input_tokens  [0, 3, 9, 0, 4, 0, 0]   decoder_positions   [0, 1, 2, 0, 1, 0, 0]
        decoder_loss_weights  [1, 1, 1, 1, 1, 0, 0]
    """
    segment_ids = rows["targets_segment_ids"] if pack else None
    features = {
        "decoder_target_tokens": rows["targets"],
        "decoder_input_tokens": make_autoregressive_inputs(
            rows["targets"], sequence_id=segment_ids, bos_id=bos_id, axis=-1
        ),
        "decoder_loss_weights": data_positions(rows, "targets"),
    }
    if pack:
        features["decoder_segment_ids"] = rows["targets_segment_ids"]
        features["decoder_positions"] = rows["targets_positions"]
    return features


class LMFeatureConverter(FeatureConverter):
    """`FeatureConverter` for a language model: see `language_model_features` for what goes in and comes out."""

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {"targets": TOKENS}
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {
        "decoder_target_tokens": TOKENS,
        "decoder_input_tokens": TOKENS,
        "decoder_loss_weights": TOKENS,
    }
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = {
        "decoder_segment_ids": TOKENS.dtype,
        "decoder_positions": TOKENS.dtype,
    }

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return language_model_features(features, pack=self.pack, bos_id=self.bos_id)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
        """Every model feature is as long as the joined task features: "targets" alone here."""
        length = self._concat_task_feature_lengths(task_feature_lengths)["targets"]
        names = [*self.MODEL_FEATURES, *((self.PACKING_FEATURE_DTYPES or {}) if self.pack else {})]
        return {**dict.fromkeys(names, length), **self._passthrough_lengths(task_feature_lengths)}
