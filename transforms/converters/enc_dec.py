"""The encoder-decoder architecture of the original Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.in_tensorflow.autoregressive import make_autoregressive_inputs
from beam_pipes.transforms.converters.feature_converter import Array, FeatureConverter, Features
from beam_pipes.transforms.converters.feature_spec import TOKENS, FeatureSpec
from beam_pipes.transforms.converters.loss_weights import data_positions


def encoder_decoder_features(rows: Features, *, pack: bool = True, bos_id: int = 0) -> dict[str, Array]:
    """Model features of rows of "inputs" and "targets".

    Before: inputs `[7, 8, 5, 1 | 8, 4, 1 | 0]`, targets `[3, 9, 1 | 4, 1 | 0]`. After:

        encoder_input_tokens  [7, 8, 5, 1, 8, 4, 1, 0]   decoder_target_tokens [3, 9, 1, 4, 1, 0]
        encoder_segment_ids   [1, 1, 1, 1, 2, 2, 2, 0]   decoder_input_tokens  [0, 3, 9, 0, 4, 0]
        encoder_positions     [0, 1, 2, 3, 0, 1, 2, 0]   decoder_loss_weights  [1, 1, 1, 1, 1, 0]

    and `decoder_segment_ids`, `decoder_positions`. With `pack=False` ids and positions are left out, and the decoder
    input of padding goes on where the target ended.
    """
    segment_ids = rows["targets_segment_ids"] if pack else None
    features = {
        "encoder_input_tokens": rows["inputs"],
        "decoder_target_tokens": rows["targets"],
        "decoder_input_tokens": make_autoregressive_inputs(
            rows["targets"], sequence_id=segment_ids, bos_id=bos_id, axis=-1
        ),
        "decoder_loss_weights": data_positions(rows, "targets"),
    }
    if pack:
        features["encoder_segment_ids"] = rows["inputs_segment_ids"]
        features["decoder_segment_ids"] = rows["targets_segment_ids"]
        features["encoder_positions"] = rows["inputs_positions"]
        features["decoder_positions"] = rows["targets_positions"]
    return features


class EncDecFeatureConverter(FeatureConverter):
    """`FeatureConverter` for an encoder-decoder: see `encoder_decoder_features` for what goes in and comes out."""

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {"inputs": TOKENS, "targets": TOKENS}
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {
        "encoder_input_tokens": TOKENS,
        "decoder_target_tokens": TOKENS,
        "decoder_input_tokens": TOKENS,
        "decoder_loss_weights": TOKENS,
    }
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = {
        "encoder_segment_ids": TOKENS.dtype,
        "decoder_segment_ids": TOKENS.dtype,
        "encoder_positions": TOKENS.dtype,
        "decoder_positions": TOKENS.dtype,
    }

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return encoder_decoder_features(features, pack=self.pack, bos_id=self.bos_id)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
        """Encoder features are as long as "inputs", decoder features as long as "targets"."""
        names = [*self.MODEL_FEATURES, *((self.PACKING_FEATURE_DTYPES or {}) if self.pack else {})]
        lengths = {name: task_feature_lengths["inputs" if name.startswith("encoder_") else "targets"] for name in names}
        return {**lengths, **self._passthrough_lengths(task_feature_lengths)}
