"""The encoder-only architecture, trained to restore masked tokens.

The encoder-decoder architecture of the original Transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.loader.row_source import MeasuredSplit
from beam_pipes.tasks.steps.array_ops import ops_of
from beam_pipes.tasks.steps.packing import make_autoregressive_inputs
from beam_pipes.tasks.vocabularies.vocabulary import DType
from beam_pipes.transforms.converters.feature_converter import Array, ConverterOptions, FeatureConverter, Features
from beam_pipes.transforms.converters.language_models import data_positions
from beam_pipes.transforms.converters.validation import TOKENS, FeatureSpec, Length, tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack


def encoder_features(rows: Features, *, mask_id: int, pack: bool = True) -> dict[str, Array]:
    """Model features of rows of aligned "inputs" (masked text) and "targets" (the text).

    Before, with mask_id 9: inputs `[8, 9, 3, 1 | 8, 9, 1]`, targets `[8, 7, 3, 1 | 8, 6, 1]`. After:

        encoder_input_tokens  [8, 9, 3, 1, 8, 9, 1]   encoder_segment_ids [1, 1, 1, 1, 2, 2, 2]
        encoder_target_tokens [8, 7, 3, 1, 8, 6, 1]   encoder_positions   [0, 1, 2, 3, 0, 1, 2]
        encoder_loss_weights  [0, 1, 0, 0, 0, 1, 0]   the loss is taken where the input is masked
    """
    ops = ops_of(rows["inputs"])
    masked = ops.cast(ops.equal(rows["inputs"], ops.fill_like(rows["inputs"], mask_id)), "int32")
    features = {
        "encoder_input_tokens": rows["inputs"],
        "encoder_target_tokens": rows["targets"],
        "encoder_loss_weights": masked * data_positions(rows, "inputs"),
    }
    if pack:
        features["encoder_segment_ids"] = rows["inputs_segment_ids"]
        features["encoder_positions"] = rows["inputs_positions"]
    return features


class EncoderFeatureConverter(FeatureConverter):
    """`FeatureConverter` for an encoder: see `encoder_features`.

    `mask_id` is the id of the mask token. With `apply_length_check`, an example whose inputs and targets differ in
    length is an error: their steps correspond one to one.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("inputs", "targets")
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        "encoder_input_tokens", "encoder_target_tokens", "encoder_loss_weights"
    )
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = dict.fromkeys(
        ("encoder_segment_ids", "encoder_positions"), TOKENS.dtype
    )

    def __init__(self, mask_id: int, pack: bool = True, **kwargs: Unpack[ConverterOptions]) -> None:
        self._mask_id = mask_id
        super().__init__(pack=pack, **kwargs)

    @property
    def mask_id(self) -> int:
        return self._mask_id

    def planned_split(self, split: MeasuredSplit) -> MeasuredSplit:
        if self._apply_length_check and not getattr(split, "draws_anew", False):
            inputs, targets = split.lengths("inputs"), split.lengths("targets")
            apart = np.flatnonzero(inputs != targets)
            if len(apart):
                record = int(apart[0])
                raise TaskError(
                    f"inputs and targets of an encoder-only example should be aligned, but {len(apart)} of "
                    f"{len(split)} records have different lengths, record {record} of split {split.name!r} first: "
                    f"{inputs[record]} and {targets[record]}",
                    converter=type(self).__name__,
                    record=record,
                )
        return split

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs_ids, targets_ids = rows.get("inputs_segment_ids"), rows.get("targets_segment_ids")
        if inputs_ids is None or targets_ids is None:
            return super().convert_rows(rows)  # which reports what is missing
        if self._apply_length_check and not np.array_equal(inputs_ids, targets_ids):
            raise TaskError(
                "inputs and targets of an encoder-only example should be aligned, but rows have other segment ids for "
                "inputs than for targets",
                converter=type(self).__name__,
            )
        return super().convert_rows(rows)

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return encoder_features(features, mask_id=self.mask_id, pack=self.pack)

    def _concat_and_add_masks(self, features: Features) -> Features:
        if not self._apply_length_check:
            return features
        inputs, targets = features["inputs"], features["targets"]
        message = "inputs and targets of an encoder-only example should be aligned, but have different lengths"
        if isinstance(inputs, np.ndarray):
            if inputs.shape != targets.shape:
                raise TaskError(f"{message}: {len(inputs)} and {len(targets)}", converter=type(self).__name__)
            return features
        tf = require("tensorflow", purpose="converting a tf.data.Dataset")
        aligned = tf.debugging.assert_equal(tf.shape(inputs), tf.shape(targets), message=message)
        with tf.control_dependencies([] if aligned is None else [aligned]):
            return {**features, "inputs": tf.identity(inputs)}

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """Every model feature is as long as "inputs"; "targets" are aligned with them."""
        return self._model_lengths(task_feature_lengths, lambda name: task_feature_lengths["inputs"])

    def _checked_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        lengths = super()._checked_lengths(task_feature_lengths)
        if lengths["inputs"] != lengths["targets"]:
            raise TaskError(
                "EncoderFeatureConverter needs equal task_feature_lengths for the aligned 'inputs' and 'targets', got "
                f"{lengths['inputs']} and {lengths['targets']}",
                converter=type(self).__name__,
            )
        return lengths


def encoder_decoder_features(rows: Features, *, pack: bool = True, bos_id: int = 0) -> dict[str, Array]:
    """Model features of rows of "inputs" and "targets".

    Before: inputs `[7, 8, 5, 1 | 8, 4, 1 | 0]`, targets `[3, 9, 1 | 4, 1 | 0]`. After:

        encoder_input_tokens  [7, 8, 5, 1, 8, 4, 1, 0]   decoder_target_tokens [3, 9, 1, 4, 1, 0]
        encoder_segment_ids   [1, 1, 1, 1, 2, 2, 2, 0]   decoder_input_tokens  [0, 3, 9, 0, 4, 0]
        encoder_positions     [0, 1, 2, 3, 0, 1, 2, 0]   decoder_loss_weights  [1, 1, 1, 1, 1, 0]

    and `decoder_segment_ids`, `decoder_positions`. With `pack=False` ids and positions are left out, and the decoder
    input of padding continues where the target ended.
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
    """`FeatureConverter` for an encoder-decoder: see `encoder_decoder_features` for its input and output."""

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("inputs", "targets")
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        "encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights"
    )
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = dict.fromkeys(
        ("encoder_segment_ids", "decoder_segment_ids", "encoder_positions", "decoder_positions"), TOKENS.dtype
    )

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return encoder_decoder_features(features, pack=self.pack, bos_id=self.bos_id)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """Encoder features are as long as "inputs", decoder features as long as "targets"."""
        return self._model_lengths(
            task_feature_lengths,
            lambda name: task_feature_lengths["inputs" if name.startswith("encoder_") else "targets"],
        )
