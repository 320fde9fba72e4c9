"""Feature converters of decoder-only language models.

`lm` trains on "targets" alone; `prefix_lm` joins "inputs" and "targets" for a decoder that sees all inputs at once;
`prefix_suffix_lm` appends "suffixes" to the targets, for filling in the middle. The loss is taken on data, never on
padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from beam_pipes.loader.row_source import MeasuredSplit
from beam_pipes.tasks.steps.array_ops import ops_of
from beam_pipes.tasks.steps.packing import make_autoregressive_inputs, non_padding_position
from beam_pipes.tasks.vocabularies.vocabulary import DType
from beam_pipes.transforms.converters.feature_converter import Array, ConverterOptions, FeatureConverter, Features
from beam_pipes.transforms.converters.rows import check_rows, join_segments, parts_with_ends
from beam_pipes.transforms.converters.validation import TOKENS, FeatureSpec, Length, one_length, tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    """`FeatureConverter` for a language model: see `language_model_features` for its input and output."""

    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("targets")
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        "decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights"
    )
    PACKING_FEATURE_DTYPES: ClassVar[Mapping[str, DType] | None] = dict.fromkeys(
        ("decoder_segment_ids", "decoder_positions"), TOKENS.dtype
    )

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return language_model_features(features, pack=self.pack, bos_id=self.bos_id)

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        """Every model feature is as long as the joined task features: "targets" alone here."""
        length = self._concat_task_feature_lengths(task_feature_lengths)["targets"]
        return self._model_lengths(task_feature_lengths, lambda name: length)


def join_example(example: Features, parts: Sequence[str]) -> dict[str, Array]:
    """Concatenates the `parts` of one example, and says at every step where they end (see `parts_with_ends`).

    `{"inputs": [7, 8], "targets": [9]}` → `{"targets": [7, 8, 9], "inputs_ends": [2, 2, 2]}`.
    """
    ops = ops_of(*(example[name] for name in parts))
    joined = {"targets": ops.concat([example[name] for name in parts])}
    end: Array = 0
    for name in parts_with_ends(parts):
        end = end + ops.size(example[name])
        joined[f"{name}_ends"] = ops.cast(ops.fill_like(joined["targets"], end), "int32")
    return joined


def prefix_language_model_features(
    rows: Features, *, pack: bool = True, bos_id: int = 0, loss_on_targets_only: bool = True
) -> dict[str, Array]:
    """Model features of joined rows: "targets" hold inputs and targets, "inputs_ends" where the inputs end.

    Before: inputs `[9, 4 | 8]`, targets `[3, 1 | 6]`, joined `[9, 4, 3, 1 | 8, 6 | 0]`. After, in addition to the
    features of a language model:

        decoder_causal_attention [1, 1, 1, 0, 1, 1, 0]   the inputs and one position more: the step that reads the
                                                         last input may be seen by all of them
        decoder_loss_weights     [0, 0, 1, 1, 0, 1, 0]   with loss_on_targets_only=False [1, 1, 1, 1, 1, 1, 0]
    """
    features = language_model_features(rows, pack=pack, bos_id=bos_id)
    ops = ops_of(rows["targets"])
    if "inputs_ends" not in rows:  # rows made by code for SeqIO
        rows = {**rows, "inputs_ends": rows["inputs_width"]}
    if pack:
        positions, ends = rows["targets_positions"], rows["inputs_ends"]
        visible = data_positions(rows, "targets")
    else:
        # Without targets, the additional position may be the first of the padding.
        positions, ends = ops.indices_like(rows["targets"]), ops.max_along_sequence(rows["inputs_ends"])
        visible = 1
    features["decoder_causal_attention"] = ops.cast(positions <= ends, "int32") * visible
    if loss_on_targets_only:
        on_targets = ops.cast(positions >= ends, "int32")
        features["decoder_loss_weights"] = features["decoder_loss_weights"] * on_targets
    return features


class PrefixLMFeatureConverter(LMFeatureConverter):
    """`FeatureConverter` for a prefix language model: see `prefix_language_model_features`.

    `loss_on_targets_only=False` takes the loss on the inputs too. The other arguments are those of `FeatureConverter`.
    """

    PARTS: ClassVar[Sequence[str]] = ("inputs", "targets")
    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("inputs", "targets")
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        *LMFeatureConverter.MODEL_FEATURES, "decoder_causal_attention"
    )

    def __init__(
        self, loss_on_targets_only: bool = True, pack: bool = True, **kwargs: Unpack[ConverterOptions]
    ) -> None:
        self._loss_on_targets_only = loss_on_targets_only
        super().__init__(pack=pack, **kwargs)

    @property
    def loss_on_targets_only(self) -> bool:
        return self._loss_on_targets_only

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return prefix_language_model_features(
            features, pack=self.pack, bos_id=self.bos_id, loss_on_targets_only=self.loss_on_targets_only
        )

    def _with_seqio_keys(self, features: Features) -> Features:
        """`inputs_width`: how many steps of the example are inputs; `inputs_width_add_pos`: one more. 0 on padding."""
        if type(self)._convert_example.__module__.startswith("beam_pipes.") or "inputs_width" in features:
            return features
        width = features["inputs_ends"]
        return {
            **features,
            "inputs_width": width,
            "inputs_width_add_pos": width + data_positions(features, "targets"),
        }

    def _concat_and_add_masks(self, features: Features) -> Features:
        passed_on = {name: value for name, value in features.items() if name not in self.PARTS}
        return {**passed_on, **join_example(features, self.PARTS)}

    def _concat_task_feature_lengths(self, task_feature_lengths: Mapping[str, Length]) -> dict[str, Length]:
        length = sum(one_length(name, task_feature_lengths[name]) for name in self.PARTS)
        joined = ["targets", *(f"{name}_ends" for name in parts_with_ends(self.PARTS))]
        return {**dict.fromkeys(joined, length), **self._passthrough_lengths(task_feature_lengths)}

    def planned_split(self, split: MeasuredSplit) -> MeasuredSplit:
        from beam_pipes.transforms.converters.joined_split import JoinedSplit

        return JoinedSplit(split, self.PARTS, passthrough=tuple(self.passthrough_features))

    def _join_rows(self, rows: Features) -> Features:
        ends = [f"{name}_ends" for name in parts_with_ends(self.PARTS)]
        if all(name in rows for name in ends):  # rows of a JoinedSplit
            check_rows(rows, ["targets"], type(self).__name__)
            return rows
        check_rows(rows, self.TASK_FEATURES, type(self).__name__)
        return join_segments(rows, self.PARTS)


def prefix_suffix_language_model_features(
    rows: Features, *, pack: bool = True, bos_id: int = 0, loss_on_targets_only: bool = True
) -> dict[str, Array]:
    """Model features of joined rows of inputs, targets and suffixes; "inputs_ends" and its like say where each ends.

    Before: inputs `[9, 4]`, targets `[3, 1]`, suffixes `[2]`, joined `[9, 4, 3, 1, 2]`. After, in addition to the
    features of a prefix language model (suffixes count as targets for the loss): `target_suffix_weights`
    `[0, 0, 0, 0, 1]`. An example without a suffix is treated as one of a prefix language model, and its targets have
    these weights: `[0, 0, 1, 1]`.
    """
    features = prefix_language_model_features(rows, pack=pack, bos_id=bos_id, loss_on_targets_only=loss_on_targets_only)
    ops = ops_of(rows["targets"])
    prefix, target_length = rows["inputs_ends"], rows["targets_ends"] - rows["inputs_ends"]
    has_suffix = ops.cast(rows["suffixes_ends"] > rows["targets_ends"], "int32")
    on_suffix = rows["targets_positions"] >= prefix + target_length * has_suffix
    features["target_suffix_weights"] = ops.cast(on_suffix, "int32") * data_positions(rows, "targets")
    return features


class PrefixSuffixLMFeatureConverter(PrefixLMFeatureConverter):
    """`FeatureConverter` for inputs, targets and suffixes: see `prefix_suffix_language_model_features`."""

    PARTS: ClassVar[Sequence[str]] = ("inputs", "targets", "suffixes")
    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens("inputs", "targets", "suffixes")
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = tokens(
        *PrefixLMFeatureConverter.MODEL_FEATURES, "target_suffix_weights"
    )

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return prefix_suffix_language_model_features(
            features, pack=self.pack, bos_id=self.bos_id, loss_on_targets_only=self.loss_on_targets_only
        )


def data_positions(rows: Features, name: str) -> Array:
    """1 on the steps of feature `name` that hold data, 0 on padding, int32: ids `[1, 1, 2, 0]` → `[1, 1, 1, 0]`.

    The segment ids decide, so that a token 0 inside a sequence counts. Only rows made elsewhere without segment ids
    fall back to `token != 0`.
    """
    segment_ids = rows.get(f"{name}_segment_ids")
    if segment_ids is None:
        return non_padding_position(rows[name])
    return ops_of(segment_ids).cast(segment_ids > 0, "int32")
