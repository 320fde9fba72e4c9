"""Converters whose examples need little or no conversion, all for decoder-style reading.

| converter | reads |
| --- | --- |
| `DecoderFeatureConverter` | any task of a decoder-only model: targets, with inputs and suffixes if present |
| `PassThroughFeatureConverter` | the task's features, unchanged |
| `PrePacked…FeatureConverter` | model features packed when written; one class per architecture |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor, require
from beam_pipes.tasks.vocabularies.vocabulary import DType
from beam_pipes.transforms.converters.encoders import EncDecFeatureConverter, encoder_decoder_features
from beam_pipes.transforms.converters.feature_converter import Array, ConverterOptions, FeatureConverter, Features
from beam_pipes.transforms.converters.language_models import (
    LMFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
)
from beam_pipes.transforms.converters.validation import FeatureSpec, Length, one_length, tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DecoderFeatureConverter(FeatureConverter):
    """Chooses by the task's features (the keys of `task_feature_lengths`, or of the rows).

    "suffixes" → `PrefixSuffixLMFeatureConverter`, "inputs" → `PrefixLMFeatureConverter`, only "targets" →
    `LMFeatureConverter`. So a mixture can go from pre-training to fine-tuning without another converter.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("targets")
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
        common: ConverterOptions = {
            "use_custom_packing_ops": use_custom_packing_ops,
            "apply_length_check": apply_length_check,
            "bos_id": bos_id,
            "passthrough_features": passthrough_features,
        }
        self._lm = LMFeatureConverter(pack, **common)
        self._prefix_lm = PrefixLMFeatureConverter(loss_on_targets_only, pack, **common)
        self._prefix_suffix_lm = PrefixSuffixLMFeatureConverter(loss_on_targets_only, pack, **common)
        super().__init__(pack=pack, **common)

    def converter_for(self, features: Collection[str]) -> FeatureConverter:
        """The converter for tasks with these features."""
        if "suffixes" in features:
            return self._prefix_suffix_lm
        return self._prefix_lm if "inputs" in features else self._lm

    def for_lengths(self, task_feature_lengths: Mapping[str, object]) -> FeatureConverter:
        return self.converter_for(task_feature_lengths)

    def __call__(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        return self.converter_for(task_feature_lengths)(ds, task_feature_lengths)

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, Length]
    ) -> Iterator[dict[str, np.ndarray]]:
        return self.converter_for(task_feature_lengths).convert_examples(examples, task_feature_lengths)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.converter_for({name.removesuffix("_ends") for name in rows}).convert_rows(rows)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> Mapping[str, Length]:
        return self.converter_for(task_feature_lengths).get_model_feature_lengths(task_feature_lengths)

    def _convert_features(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        raise TaskError(
            "DecoderFeatureConverter converts nothing itself; call converter_for(task_feature_lengths) and "
            "override _convert_example in the class it returns"
        )


class PassThroughFeatureConverter(FeatureConverter):
    """Passes every example on unchanged: `{"x": [1, 2]}` → `{"x": [1, 2]}`. Nothing is checked, packed or padded.

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

    def __call__(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        return ds

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, Length]
    ) -> Iterator[dict[str, np.ndarray]]:
        return (dict(example) for example in examples)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(rows)

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]:
        """All of the task."""
        return list(output_features)

    def planned_lengths(self, task_feature_lengths: Mapping[str, Any]) -> dict[str, int | None]:
        """The given lengths; features without one are taken unchanged."""
        return dict(task_feature_lengths)

    @property
    def adds_segments(self) -> bool:
        return False

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """The lengths that were given."""
        return dict(task_feature_lengths)

    def _convert_features(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        return ds


class PrePackedLMFeatureConverter(PassThroughFeatureConverter):
    """Keeps `BATCH_FEATURES` of each example, drops the rest, and fixes their length.

    The length is that of "targets" in `task_feature_lengths`; an example of another length is an error.
    """

    BATCH_FEATURES: ClassVar[Sequence[str]] = (
        "decoder_input_tokens",
        "decoder_loss_weights",
        "decoder_positions",
        "decoder_segment_ids",
        "decoder_target_tokens",
    )

    def __call__(self, ds: TfDataset, task_feature_lengths: Mapping[str, Length]) -> TfDataset:
        tf = require("tensorflow", purpose=type(self).__name__)
        length = self._row_length(task_feature_lengths)
        self._check_present(ds.element_spec)

        def keep(example: dict[str, TfTensor]) -> dict[str, TfTensor]:
            return {
                name: tf.ensure_shape(example[name], [length], name=f"{name}_should_have_the_task_feature_length")
                for name in self.BATCH_FEATURES
            }

        return ds.map(tf.autograph.experimental.do_not_convert(keep), num_parallel_calls=tf.data.AUTOTUNE)

    def convert_examples(
        self, examples: Iterable[Mapping[str, np.ndarray]], task_feature_lengths: Mapping[str, Length]
    ) -> Iterator[dict[str, np.ndarray]]:
        length = self._row_length(task_feature_lengths)
        for example in examples:
            row = self.convert_rows(example)
            for name, value in row.items():
                if value.shape != (length,):
                    raise TaskError(
                        f"{type(self).__name__}: {name!r} should have the shape ({length},) that task_feature_lengths "
                        f"gives, got {value.shape}",
                        feature=name,
                    )
            yield row

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._check_present(rows)
        return {name: np.asarray(rows[name]) for name in self.BATCH_FEATURES}

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]:
        return self.BATCH_FEATURES

    def planned_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, int | None]:
        """Every kept feature has the length of the row."""
        lengths = self.get_model_feature_lengths(task_feature_lengths)
        return {name: one_length(name, length) for name, length in lengths.items()}

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """Every kept feature has the length of the row."""
        return dict.fromkeys(self.BATCH_FEATURES, self._row_length(task_feature_lengths))

    def _row_length(self, task_feature_lengths: Mapping[str, Length]) -> int:
        return self._sum_of_lengths(task_feature_lengths, ("targets",))

    def _sum_of_lengths(self, task_feature_lengths: Mapping[str, Length], names: Sequence[str]) -> int:
        missing = [name for name in names if name not in task_feature_lengths]
        if missing:
            raise TaskError(
                f"{type(self).__name__} needs a task_feature_lengths entry for each of {list(names)}, "
                f"got {dict(task_feature_lengths)}",
                features=missing,
            )
        return sum(one_length(name, task_feature_lengths[name]) for name in names)

    def _check_present(self, found: Iterable[str]) -> None:
        missing = sorted(set(self.BATCH_FEATURES) - set(found))
        if missing:
            raise TaskError(
                f"{type(self).__name__}: the examples lack the model features {missing}; found {sorted(found)}. "
                "They should be converted and packed before they are stored.",
                features=missing,
            )


class PrePackedPrefixLMFeatureConverter(PrePackedLMFeatureConverter):
    """`PrePackedLMFeatureConverter` with `decoder_causal_attention`; rows are as long as inputs plus targets."""

    BATCH_FEATURES: ClassVar[Sequence[str]] = (
        *PrePackedLMFeatureConverter.BATCH_FEATURES,
        "decoder_causal_attention",
    )

    def _row_length(self, task_feature_lengths: Mapping[str, Length]) -> int:
        return self._sum_of_lengths(task_feature_lengths, ("inputs", "targets"))


_LAYOUT = ("inputs_positions", "inputs_segment_ids", "targets_positions", "targets_segment_ids")


class PrePackedEncDecFeatureConverter(EncDecFeatureConverter):
    """`EncDecFeatureConverter` for a task whose examples are packed rows already.

    The task has "inputs" and "targets", each with `_segment_ids` and `_positions`; rows are padded to the lengths,
    not packed again (`pack` is False and may not be True). Lengths of the ids and positions may be left out of
    `task_feature_lengths`; they are those of the tokens.
    """

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("inputs", "targets", *_LAYOUT)
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        *EncDecFeatureConverter.MODEL_FEATURES, *(EncDecFeatureConverter.PACKING_FEATURE_DTYPES or ())
    )

    _ROWS_ARE_PACKED: ClassVar[bool] = True

    def __init__(self, pack: bool = False, **kwargs: Unpack[ConverterOptions]) -> None:
        if pack:
            raise TaskError(
                "'pack=True' is not allowed in PrePackedEncDecFeatureConverter. "
                "Its examples are packed already; use EncDecFeatureConverter to pack."
            )
        super().__init__(pack=False, **kwargs)

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return EncDecFeatureConverter(bos_id=self.bos_id).convert_rows(
            {name: value for name, value in rows.items() if name in self.TASK_FEATURES}
        ) | {name: rows[name] for name in self.passthrough_features}

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return encoder_decoder_features(features, pack=True, bos_id=self.bos_id)

    def _checked_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        lengths = dict(task_feature_lengths)
        for name in _LAYOUT:
            tokens = name.partition("_")[0]
            if tokens in lengths:
                lengths.setdefault(name, lengths[tokens])
        return super()._checked_lengths(lengths)
