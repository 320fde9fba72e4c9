"""The arrays printed in the reference of the SeqIO surface, letter for letter, from the NumPy form of each converter.

The reference prints task features without EOS ([7, 8, 5]) and model features with it ([7, 8, 5, 1]); its text says that
a task's preprocessors append EOS, and converters never do. So the examples here end in EOS (1) as they come in.
"""

from __future__ import annotations

import numpy as np
import pytest

from beam_pipes.transforms.converters import (
    DecoderFeatureConverter,
    EncDecFeatureConverter,
    EncoderFeatureConverter,
    FeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PassThroughFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
    PrePackedEncDecFeatureConverter,
    PrePackedLMFeatureConverter,
    PrePackedPrefixLMFeatureConverter,
)

TRANSLATION = [
    {"inputs": [7, 8, 5, 1], "targets": [3, 9, 1]},
    {"inputs": [8, 4, 9, 3, 1], "targets": [4, 1]},
]
# "That is good <EOS>" and "Das ist gut <EOS>", one word an id.
PREFIX = [{"inputs": [11, 12, 13, 1], "targets": [21, 22, 23, 1]}]


def tokens(examples):
    return [{name: np.array(value, np.int32) for name, value in example.items()} for example in examples]


def convert(converter, examples, lengths):
    return [
        {name: value.tolist() for name, value in row.items()}
        for row in converter.convert_examples(tokens(examples), lengths)
    ]


def test_encoder_decoder_packs_the_translation_example_as_printed():
    rows = convert(EncDecFeatureConverter(pack=True), TRANSLATION, {"inputs": 10, "targets": 7})

    assert rows == [
        {
            "encoder_input_tokens": [7, 8, 5, 1, 8, 4, 9, 3, 1, 0],
            "encoder_segment_ids": [1, 1, 1, 1, 2, 2, 2, 2, 2, 0],
            "encoder_positions": [0, 1, 2, 3, 0, 1, 2, 3, 4, 0],
            "decoder_target_tokens": [3, 9, 1, 4, 1, 0, 0],
            "decoder_input_tokens": [0, 3, 9, 0, 4, 0, 0],
            "decoder_loss_weights": [1, 1, 1, 1, 1, 0, 0],
            "decoder_positions": [0, 1, 2, 0, 1, 0, 0],
            "decoder_segment_ids": [1, 1, 1, 2, 2, 0, 0],
        }
    ]


def test_encoder_only_packs_the_masked_example_as_printed():
    masked = [
        {"inputs": [8, 9, 9, 3, 4, 1], "targets": [8, 7, 4, 3, 4, 1]},
        {"inputs": [8, 3, 9, 1], "targets": [8, 3, 6, 1]},
    ]

    rows = convert(EncoderFeatureConverter(mask_id=9), masked, {"inputs": 11, "targets": 11})

    assert rows == [
        {
            "encoder_input_tokens": [8, 9, 9, 3, 4, 1, 8, 3, 9, 1, 0],
            "encoder_target_tokens": [8, 7, 4, 3, 4, 1, 8, 3, 6, 1, 0],
            "encoder_segment_ids": [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0],
            "encoder_positions": [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0],
            "encoder_loss_weights": [0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0],
        }
    ]


def test_prefix_lm_attends_to_the_inputs_and_one_position_more_as_printed():
    (row,) = convert(PrefixLMFeatureConverter(pack=False), PREFIX, {"inputs": 4, "targets": 4})

    assert row["decoder_causal_attention"] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert row["decoder_loss_weights"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert row["decoder_target_tokens"] == [11, 12, 13, 1, 21, 22, 23, 1]
    assert row["decoder_input_tokens"] == [0, 11, 12, 13, 1, 21, 22, 23]


def test_prefix_lm_rows_are_as_long_as_inputs_and_targets_together():
    lengths = {"inputs": 32, "targets": 32}
    converter = PrefixLMFeatureConverter(pack=True, loss_on_targets_only=True)

    (row,) = convert(converter, PREFIX, lengths)

    assert {name: len(value) for name, value in row.items()} == dict.fromkeys(row, 64)
    assert converter.get_model_feature_lengths(lengths) == dict.fromkeys(row, 64)


def test_prefix_lm_takes_the_loss_on_inputs_too_when_asked():
    converter = PrefixLMFeatureConverter(pack=False, loss_on_targets_only=False)

    (row,) = convert(converter, PREFIX, {"inputs": 5, "targets": 5})

    assert row["decoder_loss_weights"] == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]


def test_prefix_lm_packs_several_examples_with_their_own_prefixes():
    examples = [{"inputs": [9, 4, 6, 1], "targets": [3, 9, 1]}, {"inputs": [8, 4], "targets": [4, 1]}]

    (row,) = convert(PrefixLMFeatureConverter(bos_id=2), examples, {"inputs": 8, "targets": 6})

    assert row == {
        "decoder_target_tokens": [9, 4, 6, 1, 3, 9, 1, 8, 4, 4, 1, 0, 0, 0],
        "decoder_input_tokens": [2, 9, 4, 6, 1, 3, 9, 2, 8, 4, 4, 2, 0, 0],
        "decoder_loss_weights": [0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0],
        "decoder_causal_attention": [1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0],
        "decoder_segment_ids": [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0],
        "decoder_positions": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 0, 0, 0],
    }


def test_language_model_packs_and_pads():
    targets = [{"targets": [3, 9, 1]}, {"targets": [4, 1]}]

    packed = convert(LMFeatureConverter(pack=True), targets, {"targets": 7})
    padded = convert(LMFeatureConverter(pack=False), targets, {"targets": 4})

    assert packed == [
        {
            "decoder_target_tokens": [3, 9, 1, 4, 1, 0, 0],
            "decoder_input_tokens": [0, 3, 9, 0, 4, 0, 0],
            "decoder_loss_weights": [1, 1, 1, 1, 1, 0, 0],
            "decoder_segment_ids": [1, 1, 1, 2, 2, 0, 0],
            "decoder_positions": [0, 1, 2, 0, 1, 0, 0],
        }
    ]
    assert padded == [
        {
            "decoder_target_tokens": [3, 9, 1, 0],
            "decoder_input_tokens": [0, 3, 9, 1],
            "decoder_loss_weights": [1, 1, 1, 0],
        },
        {
            "decoder_target_tokens": [4, 1, 0, 0],
            "decoder_input_tokens": [0, 4, 1, 0],
            "decoder_loss_weights": [1, 1, 0, 0],
        },
    ]


def test_padding_an_encoder_decoder_example_gives_four_fields_and_the_bos_id():
    rows = convert(EncDecFeatureConverter(pack=False, bos_id=5), TRANSLATION[:1], {"inputs": 6, "targets": 5})

    assert rows == [
        {
            "encoder_input_tokens": [7, 8, 5, 1, 0, 0],
            "decoder_target_tokens": [3, 9, 1, 0, 0],
            "decoder_input_tokens": [5, 3, 9, 1, 0],
            "decoder_loss_weights": [1, 1, 1, 0, 0],
        }
    ]


def test_suffixes_follow_the_targets_and_have_weights_of_their_own():
    examples = [
        {"inputs": [9, 4, 6], "targets": [3, 9, 1], "suffixes": [2, 2]},
        {"inputs": [8], "targets": [4, 1], "suffixes": [7]},
    ]

    (row,) = convert(PrefixSuffixLMFeatureConverter(), examples, {"inputs": 5, "targets": 5, "suffixes": 5})

    assert row["decoder_target_tokens"] == [9, 4, 6, 3, 9, 1, 2, 2, 8, 4, 1, 7, 0, 0, 0]
    assert row["decoder_causal_attention"] == [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert row["decoder_loss_weights"] == [0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0]
    assert row["target_suffix_weights"] == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0]


def test_targets_stand_in_for_an_empty_suffix():
    # The example in the docstring of the reference's converter, but for one bit: its text, and its behaviour, attend to
    # one position behind the inputs of the second example too.
    examples = [
        {"inputs": [9, 4, 6], "targets": [3, 9], "suffixes": [2, 1]},
        {"inputs": [3, 2], "targets": [4], "suffixes": []},
    ]

    (row,) = convert(PrefixSuffixLMFeatureConverter(), examples, {"inputs": 8, "targets": 4, "suffixes": 3})

    assert row == {
        "decoder_target_tokens": [9, 4, 6, 3, 9, 2, 1, 3, 2, 4, 0, 0, 0, 0, 0],
        "decoder_input_tokens": [0, 9, 4, 6, 3, 9, 2, 0, 3, 2, 0, 0, 0, 0, 0],
        "decoder_loss_weights": [0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0],
        "target_suffix_weights": [0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0],
        "decoder_positions": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 0, 0, 0, 0, 0],
        "decoder_segment_ids": [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0],
        "decoder_causal_attention": [1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0],
    }


def test_suffixes_obey_loss_on_targets_only_false():
    example = [{"inputs": [9, 4], "targets": [3], "suffixes": [2]}]
    converter = PrefixSuffixLMFeatureConverter(loss_on_targets_only=False, pack=False)

    (row,) = convert(converter, example, {"inputs": 2, "targets": 2, "suffixes": 1})

    assert row["decoder_loss_weights"] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("features", "chosen"),
    [
        (("targets",), LMFeatureConverter),
        (("inputs", "targets"), PrefixLMFeatureConverter),
        (("inputs", "targets", "suffixes"), PrefixSuffixLMFeatureConverter),
    ],
)
def test_the_decoder_converter_chooses_by_the_features_of_the_task(features, chosen):
    example = [{name: [5, 1] for name in features}]
    lengths = dict.fromkeys(features, 3)

    converter = DecoderFeatureConverter()

    assert type(converter.converter_for(lengths)) is chosen
    assert convert(converter, example, lengths) == convert(chosen(), example, lengths)
    assert converter.get_model_feature_lengths(lengths) == chosen().get_model_feature_lengths(lengths)


def test_id_zero_inside_a_sequence_is_data():
    examples = [{"inputs": [7, 0, 5], "targets": [3, 0, 9]}, {"inputs": [4], "targets": [0]}]

    (packed,) = convert(EncDecFeatureConverter(), examples, {"inputs": 5, "targets": 5})
    padded, _ = convert(EncDecFeatureConverter(pack=False), examples, {"inputs": 5, "targets": 5})

    assert packed["encoder_segment_ids"] == [1, 1, 1, 2, 0]
    assert packed["decoder_target_tokens"] == [3, 0, 9, 0, 0]
    assert packed["decoder_loss_weights"] == [1, 1, 1, 1, 0]
    assert padded["decoder_loss_weights"] == [1, 1, 1, 0, 0]


def test_segment_ids_stay_the_same_in_all_features_when_one_is_empty():
    examples = [{"inputs": [7, 5], "targets": []}, {"inputs": [4], "targets": [5]}]

    (row,) = convert(EncDecFeatureConverter(), examples, {"inputs": 4, "targets": 4})

    assert row["encoder_segment_ids"] == [1, 1, 2, 0]
    assert row["decoder_segment_ids"] == [2, 0, 0, 0]


@pytest.mark.parametrize("loss_on_targets_only", [True, False])
def test_prefix_lm_with_empty_targets_puts_no_weight_on_padding(loss_on_targets_only):
    converter = PrefixLMFeatureConverter(loss_on_targets_only, pack=False)

    (row,) = convert(converter, [{"inputs": [9, 4], "targets": []}], {"inputs": 3, "targets": 2})

    on_inputs = [0, 0] if loss_on_targets_only else [1, 1]
    assert row["decoder_loss_weights"] == [*on_inputs, 0, 0, 0]
    # The step that reads the last input lies behind it, so it may be the first of the padding.
    assert row["decoder_causal_attention"] == [1, 1, 1, 0, 0]


def test_float_and_rank_two_side_features_survive_packing():
    converter = EncDecFeatureConverter(
        passthrough_features={"weights": FeatureSpec(np.float32), "boxes": FeatureSpec(np.int16, rank=2)}
    )
    examples = [
        {
            "inputs": np.array([5], np.int32),
            "targets": np.array([6], np.int32),
            "weights": np.array([0.5, 0.25], np.float32),
            "boxes": np.array([[step, 2, 3]], np.int16),
        }
        for step in (1, 9)
    ]

    (row,) = converter.convert_examples(examples, {"inputs": 3, "targets": 3, "weights": 5, "boxes": 3})

    assert row["weights"].dtype == np.float32
    assert row["weights"].tolist() == [0.5, 0.25, 0.5, 0.25, 0.0]
    assert row["weights_segment_ids"].tolist() == [1, 1, 2, 2, 0]
    assert row["boxes"].dtype == np.int16
    assert row["boxes"].tolist() == [[1, 2, 3], [9, 2, 3], [0, 0, 0]]


def test_scalars_and_several_padded_axes_pass_through_unpacked():
    converter = LMFeatureConverter(
        pack=False,
        passthrough_features={"id": FeatureSpec(np.int64, rank=0), "image": FeatureSpec(np.uint8, rank=2)},
    )
    example = {
        "targets": np.array([5, 1], np.int32),
        "id": np.int64(42),
        "image": np.array([[1, 2], [3, 4]], np.uint8),
    }

    (row,) = converter.convert_examples([example], {"targets": 3, "image": [2, 3]})

    assert row["id"] == 42
    assert row["image"].tolist() == [[1, 2, 0], [3, 4, 0]]


def test_apply_length_check_false_cuts_long_examples():
    converter = EncDecFeatureConverter(apply_length_check=False)

    rows = convert(converter, TRANSLATION, {"inputs": 4, "targets": 2})

    assert [row["encoder_input_tokens"] for row in rows] == [[7, 8, 5, 1], [8, 4, 9, 3]]
    assert [row["decoder_target_tokens"] for row in rows] == [[3, 9], [4, 1]]


def test_encoder_examples_that_are_not_aligned_pass_without_the_check():
    converter = EncoderFeatureConverter(mask_id=9, pack=False, apply_length_check=False)

    (row,) = convert(converter, [{"inputs": [8, 9], "targets": [8, 7, 3]}], {"inputs": 3, "targets": 3})

    assert row["encoder_loss_weights"] == [0, 1, 0]


def test_pass_through_changes_nothing():
    rows = convert(PassThroughFeatureConverter(pack=True, bos_id=3), TRANSLATION, {"inputs": 1})

    assert rows == TRANSLATION
    assert PassThroughFeatureConverter().convert_rows({"x": 1}) == {"x": 1}
    assert PassThroughFeatureConverter().get_model_feature_lengths({"x": 1}) == {"x": 1}
    assert PassThroughFeatureConverter(pack=True).pack is False


def test_pre_packed_examples_are_converted_without_packing_them_again():
    example = {
        "inputs": [1, 2, 3],
        "inputs_segment_ids": [1, 1, 2],
        "inputs_positions": [0, 1, 0],
        "targets": [5, 6, 7],
        "targets_segment_ids": [1, 2, 2],
        "targets_positions": [0, 0, 1],
    }

    (row,) = convert(PrePackedEncDecFeatureConverter(), [example], {"inputs": 4, "targets": 4})

    assert row == {
        "encoder_input_tokens": [1, 2, 3, 0],
        "encoder_segment_ids": [1, 1, 2, 0],
        "encoder_positions": [0, 1, 0, 0],
        "decoder_target_tokens": [5, 6, 7, 0],
        "decoder_input_tokens": [0, 0, 6, 0],
        "decoder_loss_weights": [1, 1, 1, 0],
        "decoder_segment_ids": [1, 2, 2, 0],
        "decoder_positions": [0, 0, 1, 0],
    }


@pytest.mark.parametrize(
    ("converter", "lengths"),
    [
        (PrePackedLMFeatureConverter(), {"targets": 3}),
        (PrePackedPrefixLMFeatureConverter(), {"inputs": 1, "targets": 2}),
    ],
)
def test_pre_packed_model_features_are_kept_and_others_dropped(converter, lengths):
    stored = {name: [1, 2, 3] for name in (*converter.BATCH_FEATURES, "note")}

    rows = convert(converter, [stored], lengths)

    assert rows == [{name: [1, 2, 3] for name in converter.BATCH_FEATURES}]
    assert converter.get_model_feature_lengths(lengths) == dict.fromkeys(converter.BATCH_FEATURES, 3)


def test_a_subclass_written_once_serves_numpy_rows():
    class SpanConverter(FeatureConverter):
        TASK_FEATURES = {"targets": FeatureSpec("int32")}
        MODEL_FEATURES = {"tokens": FeatureSpec("int32"), "doubled": FeatureSpec("int32")}
        PACKING_FEATURE_DTYPES = {"segments": "int32"}

        def _convert_example(self, features):
            return {
                "tokens": features["targets"],
                "doubled": features["targets"] * 2,
                "segments": features["targets_segment_ids"],
            }

        def get_model_feature_lengths(self, task_feature_lengths):
            return dict.fromkeys(("tokens", "doubled", "segments"), task_feature_lengths["targets"])

    rows = convert(SpanConverter(), [{"targets": [3, 1]}, {"targets": [4]}], {"targets": 4})

    assert rows == [{"tokens": [3, 1, 4, 0], "doubled": [6, 2, 8, 0], "segments": [1, 1, 2, 0]}]
