"""What converters refuse, and the words they use; users match on the first sentence of several."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from beam_pipes.errors import IncompleteConverterError, TaskError, UnknownNameError
from beam_pipes.transforms import converters
from beam_pipes.transforms.converters import (
    CONVERTERS,
    DecoderFeatureConverter,
    EncDecFeatureConverter,
    EncoderFeatureConverter,
    FeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PrefixLMFeatureConverter,
    PrePackedEncDecFeatureConverter,
    PrePackedLMFeatureConverter,
    PrePackedPrefixLMFeatureConverter,
    converter_named,
)

LENGTHS = {"inputs": 4, "targets": 4}


def first_row(converter, lengths=LENGTHS, **features):
    return next(iter(converter.convert_examples([features], lengths)))


def int32(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (
            {"inputs": 4},
            r"The task_feature_lengths is missing features specified in the TASK_FEATURES: \{'targets'\}\. "
            r"EncDecFeatureConverter needs a length for each of \{'inputs', 'targets'\}",
        ),
        (
            {**LENGTHS, "other": 2},
            r"The task_feature_lengths contains extra features not specified in the TASK_FEATURES: \{'other'\}",
        ),
        ({**LENGTHS, "inputs": -1}, "task_feature_lengths of 'inputs' should be an integer ≥ 0.*got -1"),
        ({**LENGTHS, "inputs": 2.5}, "task_feature_lengths of 'inputs' should be an integer ≥ 0.*got 2.5"),
        ({**LENGTHS, "inputs": [2, 3]}, "Packing fills one axis: .*'inputs' should be an integer, got \\[2, 3\\]"),
    ],
)
def test_lengths_are_checked_before_any_example_is_read(lengths, message):
    with pytest.raises(TaskError, match=message):
        EncDecFeatureConverter().convert_examples(iter([]), lengths)


def test_features_that_are_joined_have_one_length_each():
    message = r"joined along one axis: the length of 'inputs' should be an integer, got \[2, None\]"

    with pytest.raises(TaskError, match=message):
        PrefixLMFeatureConverter(pack=False).planned_lengths({"inputs": [2, None], "targets": 4})


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            {"inputs": int32(1)},
            r"Dataset is missing an expected feature during input_validation validation: 'targets'\. "
            r"Received \{'inputs'\}",
        ),
        (
            {"inputs": int32(1), "targets": np.array([1])},
            "Dataset has incorrect type for feature 'targets' during input_validation validation: "
            "Got int64, expected int32",
        ),
        (
            {"inputs": int32([1]), "targets": int32(1)},
            "Dataset has incorrect rank for feature 'inputs' during input_validation validation: Got 2, expected 1",
        ),
        (
            {"inputs": int32(1, 2, 3, 4, 5), "targets": int32(1)},
            "Feature 'inputs' has length not less than or equal to the expected length of 4 during "
            "input_validation validation: it has 5",
        ),
    ],
)
def test_examples_are_checked_in_the_words_of_the_reference(example, message):
    with pytest.raises(TaskError, match=message):
        first_row(EncDecFeatureConverter(), **example)


@pytest.mark.parametrize("missing", ["TASK_FEATURES", "MODEL_FEATURES", "PACKING_FEATURE_DTYPES"])
def test_a_subclass_without_its_tables_is_refused_when_it_is_made(missing):
    tables = {
        "TASK_FEATURES": {"targets": FeatureSpec("int32")},
        "MODEL_FEATURES": {"tokens": FeatureSpec("int32")},
        "PACKING_FEATURE_DTYPES": {"segments": "int32"},
    }
    del tables[missing]
    methods = {"_convert_example": lambda self, row: row, "get_model_feature_lengths": lambda self, lengths: lengths}
    incomplete = type("Incomplete", (FeatureConverter,), {**tables, **methods})

    with pytest.raises(TaskError, match=f"{missing} must be defined in the subclass"):
        incomplete()


def test_a_subclass_without_a_conversion_is_refused_when_it_is_made():
    class Nothing(FeatureConverter):
        TASK_FEATURES = {}
        MODEL_FEATURES = {}

        def get_model_feature_lengths(self, task_feature_lengths):
            return task_feature_lengths

    with pytest.raises(IncompleteConverterError, match=r"Nothing must override _convert_example \(or _convert_feat"):
        Nothing(pack=False)
    assert issubclass(IncompleteConverterError, TypeError)


def test_the_abstract_class_is_made_where_its_abstract_methods_are_patched_away():
    """As tests of SeqIO and of its users do, to try what the base class checks."""
    tables = {"TASK_FEATURES": {}, "MODEL_FEATURES": {}, "PACKING_FEATURE_DTYPES": {}, "__abstractmethods__": set()}
    with mock.patch.multiple(FeatureConverter, create=True, **tables):
        assert FeatureConverter().pack
    with pytest.raises(TypeError, match="abstract"):
        FeatureConverter()


def test_a_subclass_for_datasets_only_says_so_when_asked_for_rows():
    class DatasetOnly(LMFeatureConverter):
        def _convert_features(self, ds, task_feature_lengths):
            return ds

    with pytest.raises(TaskError, match="DatasetOnly overrides _convert_features, which works on tf.data only"):
        DatasetOnly().convert_rows({})


def test_methods_to_override_say_so():
    class Half(FeatureConverter):
        TASK_FEATURES = {}
        MODEL_FEATURES = {}

        def _convert_example(self, features):
            return super()._convert_example(features)

    class Whole(Half):
        def get_model_feature_lengths(self, task_feature_lengths):
            return task_feature_lengths

    with pytest.raises(TypeError, match="abstract class Half .*get_model_feature_lengths"):
        Half(pack=False)
    with pytest.raises(NotImplementedError, match="Whole should override _convert_example"):
        Whole(pack=False).convert_rows({})


def test_packing_refuses_a_side_feature_without_a_sequence_axis():
    scalar = {"id": FeatureSpec(np.int64, rank=0)}

    with pytest.raises(TaskError, match="Packing is incompatible with pass-through features.*'id' is FeatureSpec"):
        LMFeatureConverter(pack=True, passthrough_features=scalar)


def test_a_missing_side_feature_is_named():
    converter = LMFeatureConverter(pack=False, passthrough_features={"w": FeatureSpec(np.float32)})

    with pytest.raises(TaskError, match="missing an expected feature during input_validation validation: 'w'"):
        first_row(converter, {"targets": 3, "w": 3}, targets=int32(1))
    with pytest.raises(TaskError, match="passthrough feature 'w' is missing; found"):
        converter.convert_rows({key: int32(1) for key in ("targets", "targets_segment_ids", "targets_positions")})


def test_encoder_inputs_and_targets_have_to_be_aligned():
    converter = EncoderFeatureConverter(mask_id=9)

    with pytest.raises(TaskError, match="should be aligned, but have different lengths: 3 and 2"):
        first_row(converter, inputs=int32(8, 9, 9), targets=int32(8, 7))
    with pytest.raises(TaskError, match="needs equal task_feature_lengths .* got 4 and 5"):
        converter.convert_examples([], {"inputs": 4, "targets": 5})


def test_the_decoder_converter_does_not_convert_by_itself():
    with pytest.raises(TaskError, match="call converter_for"):
        DecoderFeatureConverter()._convert_features(None, {})


def test_pre_packed_examples_may_not_be_packed_again():
    with pytest.raises(TaskError, match="'pack=True' is not allowed in PrePackedEncDecFeatureConverter"):
        PrePackedEncDecFeatureConverter(pack=True)


def test_pre_packed_rows_that_lack_features_are_refused():
    with pytest.raises(TaskError, match="lack the model features .*'decoder_positions'.*converted and packed before"):
        PrePackedLMFeatureConverter().convert_rows({"decoder_input_tokens": int32(1)})


def test_pre_packed_rows_of_another_length_are_refused():
    converter = PrePackedLMFeatureConverter()
    stored = {name: int32(1, 2) for name in converter.BATCH_FEATURES}

    with pytest.raises(TaskError, match=r"'decoder_input_tokens' should have the shape \(3,\).*got \(2,\)"):
        first_row(converter, {"targets": 3}, **stored)


def test_pre_packed_prefix_rows_need_both_lengths():
    with pytest.raises(TaskError, match=r"needs a task_feature_lengths entry for each of \['inputs', 'targets'\]"):
        PrePackedPrefixLMFeatureConverter().get_model_feature_lengths({"targets": 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int33"}, "the dtype of a feature should be one of .*, got 'int33'"),
        ({"dtype": "int32", "rank": -1}, r"FeatureSpec.rank should be an integer of at least 0, got -1"),
        ({"dtype": "int32", "rank": 2, "sequence_dim": 2}, r"sequence_dim should be in 0\.\.1 for rank 2, got 2"),
    ],
)
def test_a_feature_spec_is_checked_when_it_is_made(arguments, message):
    with pytest.raises(TaskError, match=message):
        FeatureSpec(**arguments)


def test_the_table_of_converters_names_them_and_suggests():
    assert converter_named("enc_dec") is EncDecFeatureConverter
    with pytest.raises(
        UnknownNameError, match="a converter's name should be one of .*, got 'prefx_lm'. Did you mean 'prefix_lm'"
    ):
        converter_named("prefx_lm")
    assert set(CONVERTERS) == {name for name in CONVERTERS if converter_named(name)}
    assert len(CONVERTERS) == 10


def test_an_unknown_name_of_the_room_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match="module 'beam_pipes.transforms.converters' has no attribute 'SpanConverter'"
    ):
        converters.SpanConverter  # noqa: B018
