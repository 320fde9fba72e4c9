"""The encoder-decoder architecture over examples that were packed before they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from beam_pipes.errors import TaskError
from beam_pipes.transforms.converters.enc_dec import EncDecFeatureConverter, encoder_decoder_features
from beam_pipes.transforms.converters.feature_converter import Array, Features
from beam_pipes.transforms.converters.feature_spec import TOKENS, FeatureSpec

_LAYOUT = ("inputs_positions", "inputs_segment_ids", "targets_positions", "targets_segment_ids")


class PrePackedEncDecFeatureConverter(EncDecFeatureConverter):
    """`EncDecFeatureConverter` for a task whose examples are packed rows already.

    The task has "inputs" and "targets", each with `_segment_ids` and `_positions`; rows are padded to the lengths,
    not packed again (`pack` is False and may not be True). Lengths of the ids and positions may be left out of
    `task_feature_lengths`; they are those of the tokens.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = dict.fromkeys(("inputs", "targets", *_LAYOUT), TOKENS)
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {
        **EncDecFeatureConverter.MODEL_FEATURES,
        **dict.fromkeys(EncDecFeatureConverter.PACKING_FEATURE_DTYPES or (), TOKENS),
    }

    _ROWS_ARE_PACKED: ClassVar[bool] = True

    def __init__(self, pack: bool = False, **kwargs: Any) -> None:
        if pack:
            raise TaskError(
                "'pack=True' is not allowed in PrePackedEncDecFeatureConverter. "
                "Its examples are packed already; use EncDecFeatureConverter to pack."
            )
        super().__init__(pack=False, **kwargs)

    def convert_rows(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        return EncDecFeatureConverter(bos_id=self.bos_id).convert_rows(
            {name: value for name, value in rows.items() if name in self.TASK_FEATURES}
        ) | {name: rows[name] for name in self.passthrough_features}

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return encoder_decoder_features(features, pack=True, bos_id=self.bos_id)

    def _checked_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
        lengths = dict(task_feature_lengths)
        for name in _LAYOUT:
            tokens = name.partition("_")[0]
            if tokens in lengths:
                lengths.setdefault(name, lengths[tokens])
        return super()._checked_lengths(lengths)
