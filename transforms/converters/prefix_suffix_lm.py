"""The prefix language model with "suffixes" behind the targets, for training to fill in the middle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from beam_pipes.tasks.in_python.array_ops import ops_of
from beam_pipes.transforms.converters.feature_converter import Array, Features
from beam_pipes.transforms.converters.feature_spec import TOKENS, FeatureSpec
from beam_pipes.transforms.converters.loss_weights import data_positions
from beam_pipes.transforms.converters.prefix_lm import PrefixLMFeatureConverter, prefix_language_model_features


def prefix_suffix_language_model_features(
    rows: Features, *, pack: bool = True, bos_id: int = 0, loss_on_targets_only: bool = True
) -> dict[str, Array]:
    """Model features of joined rows of inputs, targets and suffixes; "inputs_ends" and its like say where each ends.

    Before: inputs `[9, 4]`, targets `[3, 1]`, suffixes `[2]`, joined `[9, 4, 3, 1, 2]`. After, beside what a prefix
    language model gets (suffixes count as targets for the loss): `target_suffix_weights` `[0, 0, 0, 0, 1]`. An example
    without a suffix is one of a prefix language model, and its targets have these weights: `[0, 0, 1, 1]`.
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
    TASK_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = dict.fromkeys(("inputs", "targets", "suffixes"), TOKENS)
    MODEL_FEATURES: ClassVar[Mapping[str, FeatureSpec]] = {
        **PrefixLMFeatureConverter.MODEL_FEATURES,
        "target_suffix_weights": TOKENS,
    }

    def _convert_example(self, features: Features) -> dict[str, Array]:
        return prefix_suffix_language_model_features(
            features, pack=self.pack, bos_id=self.bos_id, loss_on_targets_only=self.loss_on_targets_only
        )
