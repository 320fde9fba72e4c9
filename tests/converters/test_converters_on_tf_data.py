"""Every converter inside tf.data: the same rows as its NumPy form, static shapes, and errors while iterating."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from beam_pipes.errors import TaskError
from beam_pipes.tasks import ByteVocabulary, Feature, FunctionDataSource, Task, get_dataset, python_map
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
    make_autoregressive_inputs,
)

PREFIX_LENGTHS = {"inputs": 9, "targets": 7}
SUFFIX_LENGTHS = {"inputs": 8, "targets": 8, "suffixes": 5}
SIDE = {"weights": FeatureSpec(tf.float32), "boxes": FeatureSpec(tf.int16, rank=2)}
PACKED_ROWS = [f"{name}{part}" for name in ("inputs", "targets") for part in ("", "_segment_ids", "_positions")]


def sequences(features, *, aligned=False, count=25):
    """Random examples with zeros inside, empty features and whole empty examples."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        size = int(rng.integers(0, 6))
        yield {
            name: rng.integers(0, 12, size if aligned else int(rng.integers(0, 6))).astype(np.int32)
            for name in features
        }


def with_side_features():
    for number, example in enumerate(sequences(("inputs", "targets"))):
        example["weights"] = np.arange(number % 4, dtype=np.float32) / 4
        example["boxes"] = np.full((number % 3, 2), number, np.int16)
        yield example


def as_dataset(examples):
    examples = list(examples)
    signature = {
        name: tf.TensorSpec([None] * np.ndim(value), np.asarray(value).dtype) for name, value in examples[0].items()
    }
    return tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=signature)


def assert_same_rows(expected, found):
    expected, found = list(expected), list(found)
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert sorted(one) == sorted(other)
        for name in one:
            assert np.asarray(one[name]).dtype == other[name].dtype, name
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize(
    ("converter", "examples", "lengths"),
    [
        (EncDecFeatureConverter(), sequences(("inputs", "targets")), PREFIX_LENGTHS),
        (EncDecFeatureConverter(pack=False, bos_id=3), sequences(("inputs", "targets")), PREFIX_LENGTHS),
        (
            EncDecFeatureConverter(apply_length_check=False),
            sequences(("inputs", "targets")),
            {"inputs": 3, "targets": 2},
        ),
        (
            EncDecFeatureConverter(passthrough_features=SIDE),
            with_side_features(),
            {**PREFIX_LENGTHS, "weights": 6, "boxes": 4},
        ),
        (
            EncDecFeatureConverter(pack=False, passthrough_features=SIDE),
            with_side_features(),
            {**PREFIX_LENGTHS, "weights": 6, "boxes": [4, 3]},
        ),
        (LMFeatureConverter(bos_id=3), sequences(("targets",)), {"targets": 10}),
        (PrefixLMFeatureConverter(bos_id=3), sequences(("inputs", "targets")), PREFIX_LENGTHS),
        (PrefixLMFeatureConverter(pack=False), sequences(("inputs", "targets")), PREFIX_LENGTHS),
        (
            PrefixLMFeatureConverter(False, apply_length_check=False),
            sequences(("inputs", "targets")),
            {"inputs": 2, "targets": 3},
        ),
        (
            PrefixSuffixLMFeatureConverter(),
            sequences(("inputs", "targets", "suffixes")),
            SUFFIX_LENGTHS,
        ),
        (
            DecoderFeatureConverter(pack=False),
            sequences(("inputs", "targets", "suffixes")),
            SUFFIX_LENGTHS,
        ),
        (
            EncoderFeatureConverter(mask_id=9),
            sequences(("inputs", "targets"), aligned=True),
            {"inputs": 8, "targets": 8},
        ),
        (
            PrePackedEncDecFeatureConverter(bos_id=3),
            sequences(PACKED_ROWS, aligned=True),
            PREFIX_LENGTHS,
        ),
        (PassThroughFeatureConverter(), sequences(("anything",)), {"anything": 1}),
    ],
    ids=lambda value: repr(value) if isinstance(value, FeatureConverter) else "",
)
def test_tf_data_and_numpy_give_the_same_rows(converter, examples, lengths):
    examples = list(examples)

    converted = converter(as_dataset(examples), lengths)

    assert_same_rows(converter.convert_examples(examples, lengths), converted.as_numpy_iterator())
    if not isinstance(converter, PassThroughFeatureConverter):
        shapes = {name: spec.shape.as_list()[:1] for name, spec in converted.element_spec.items()}
        expected = converter.get_model_feature_lengths(lengths)
        assert {name: shapes[name] for name in expected} == {
            name: [length[0] if isinstance(length, list) else length] for name, length in expected.items()
        }


def test_pre_packed_model_features_get_static_shapes_and_are_checked():
    converter = PrePackedLMFeatureConverter()
    row = {name: np.array([1, 2, 3], np.int32) for name in (*converter.BATCH_FEATURES, "note")}

    converted = converter(as_dataset([row]), {"targets": 3})

    assert {name: spec.shape.as_list() for name, spec in converted.element_spec.items()} == dict.fromkeys(
        converter.BATCH_FEATURES, [3]
    )
    assert_same_rows([{name: row[name] for name in converter.BATCH_FEATURES}], converted.as_numpy_iterator())
    with pytest.raises(tf.errors.InvalidArgumentError, match="should_have_the_task_feature_length"):
        list(converter(as_dataset([row]), {"targets": 4}))


def test_an_example_that_is_too_long_fails_while_iterating():
    examples = [{"inputs": np.arange(5, dtype=np.int32), "targets": np.arange(2, dtype=np.int32)}]

    converted = EncDecFeatureConverter(pack=False)(as_dataset(examples), {"inputs": 4, "targets": 4})

    words = "Feature 'inputs' has length not less than or equal to the expected length of 4 during input_validation"
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(converted)
    assert words in str(caught.value).replace("\\'", "'")


def test_encoder_examples_that_are_not_aligned_fail_while_iterating():
    examples = [{"inputs": np.arange(3, dtype=np.int32), "targets": np.arange(2, dtype=np.int32)}]

    converted = EncoderFeatureConverter(mask_id=9)(as_dataset(examples), {"inputs": 4, "targets": 4})

    with pytest.raises(tf.errors.InvalidArgumentError, match="should be aligned, but have different lengths"):
        list(converted)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (tf.data.Dataset.from_tensors({"inputs": [1]}), "missing an expected feature .*: 'targets'. Received"),
        (
            tf.data.Dataset.from_tensors({"inputs": [1], "targets": tf.constant([1], tf.int64)}),
            "incorrect type for feature 'targets' during input_validation validation: Got int64, expected int32",
        ),
        (
            tf.data.Dataset.from_tensors({"inputs": [[1]], "targets": [1]}),
            "incorrect rank for feature 'inputs' during input_validation validation: Got 2, expected 1",
        ),
        (tf.data.Dataset.from_tensors([1]), "expected a dataset of dicts during input_validation validation"),
    ],
)
def test_what_the_graph_shows_is_checked_at_once(dataset, message):
    with pytest.raises(TaskError, match=message):
        EncDecFeatureConverter()(dataset, PREFIX_LENGTHS)


class TwoStackConverter(FeatureConverter):
    """A converter in the manner of the reference: it maps the dataset itself."""

    TASK_FEATURES = {
        "inputs": FeatureConverter.FeatureSpec(dtype=tf.int32),
        "targets": FeatureConverter.FeatureSpec(dtype=tf.int32),
    }
    MODEL_FEATURES = {"left": FeatureConverter.FeatureSpec(dtype=tf.int32), "right": FeatureSpec(dtype=tf.int32)}
    PACKING_FEATURE_DTYPES = {"left_ids": tf.int32}

    def _convert_features(self, ds, task_feature_lengths):
        def convert_example(features):
            converted = {"left": features["inputs"], "right": make_autoregressive_inputs(features["targets"])}
            if self.pack:
                converted["left_ids"] = features["inputs_segment_ids"]
            return converted

        ds = self._pack_or_pad(ds, task_feature_lengths)
        return ds.map(convert_example, num_parallel_calls=tf.data.AUTOTUNE)

    def get_model_feature_lengths(self, task_feature_lengths):
        left, right = task_feature_lengths["inputs"], task_feature_lengths["targets"]
        return {"left": left, "right": right, **({"left_ids": left} if self.pack else {})}


@pytest.mark.parametrize("pack", [True, False])
def test_a_custom_converter_in_the_manner_of_the_reference_works(pack):
    examples = [{"inputs": np.array([7, 8], np.int32), "targets": np.array([3], np.int32)}]

    (row,) = TwoStackConverter(pack=pack)(as_dataset(examples), {"inputs": 3, "targets": 2}).as_numpy_iterator()

    assert {name: value.tolist() for name, value in row.items()} == {
        "left": [7, 8, 0],
        "right": [0, 3],
        **({"left_ids": [1, 1, 0]} if pack else {}),
    }


def test_a_custom_converter_with_outputs_of_another_length_fails():
    class Wrong(TwoStackConverter):
        def get_model_feature_lengths(self, task_feature_lengths):
            return {"left": 5, "right": 2, "left_ids": 3}

    examples = [{"inputs": np.array([7], np.int32), "targets": np.array([3], np.int32)}]

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(Wrong()(as_dataset(examples), {"inputs": 3, "targets": 2}))
    words = "Feature 'left' has length not equal to the expected length of 5 during output_validation"
    assert words in str(caught.value).replace("\\'", "'")


def test_an_overridden_convert_example_may_call_its_parent_and_branch_on_tensors():
    class WithWeights(EncDecFeatureConverter):
        MODEL_FEATURES = {**EncDecFeatureConverter.MODEL_FEATURES, "has_targets": FeatureSpec(tf.int32)}

        def _convert_example(self, features):
            converted = super()._convert_example(features)
            if tf.reduce_sum(converted["decoder_loss_weights"]) > 0:
                converted["has_targets"] = tf.ones_like(features["targets"])
            else:
                converted["has_targets"] = tf.zeros_like(features["targets"])
            return converted

    examples = [
        {"inputs": np.array([7], np.int32), "targets": np.array([3], np.int32)},
        {"inputs": np.array([7], np.int32), "targets": np.array([], np.int32)},
    ]

    rows = list(WithWeights(pack=False)(as_dataset(examples), {"inputs": 2, "targets": 2}).as_numpy_iterator())

    assert [row["has_targets"].tolist() for row in rows] == [[1, 1], [0, 0]]
    assert rows[0]["decoder_target_tokens"].tolist() == [3, 0]


def test_ragged_side_features_are_padded():
    ragged = tf.data.Dataset.from_tensors(
        {
            "targets": tf.constant([5, 1]),
            "spans": tf.ragged.constant([[1], [2, 3]], dtype=tf.int32),
        }
    )
    converter = LMFeatureConverter(pack=False, passthrough_features={"spans": FeatureSpec(tf.int32, rank=2)})

    (row,) = converter(ragged, {"targets": 3, "spans": [3, 2]}).as_numpy_iterator()

    assert row["spans"].tolist() == [[1, 0], [2, 3], [0, 0]]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.float32, tf.bfloat16])
def test_autoregressive_inputs_of_tensors_keep_dtype_and_static_shape(dtype):
    targets, ids = tf.constant([3, 9, 4, 1, 0], dtype), tf.constant([1, 1, 2, 2, 0])

    inputs = make_autoregressive_inputs(targets, ids, bos_id=2)

    assert inputs.dtype == dtype
    assert tf.cast(inputs, tf.int32).numpy().tolist() == [2, 3, 2, 4, 2]

    traced = tf.function(lambda values: make_autoregressive_inputs(values, bos_id=2)).get_concrete_function(
        tf.TensorSpec([5], dtype)
    )
    assert traced.structured_outputs.shape.as_list() == [5]


@pytest.mark.parametrize(
    ("converter", "lengths", "num_fields"),
    [
        (EncDecFeatureConverter(pack=True), {"inputs": 32, "targets": 32}, 8),
        (LMFeatureConverter(pack=True), {"targets": 32}, 5),
        (PrefixLMFeatureConverter(pack=True, loss_on_targets_only=True), {"inputs": 32, "targets": 32}, 6),
    ],
)
def test_get_dataset_gives_the_fields_of_the_architecture(converter, lengths, num_fields):
    examples = [
        {"inputs": np.array([7, 8, 5, 1], np.int32), "targets": np.array([3, 9, 1], np.int32)},
        {"inputs": np.array([8, 4, 9, 3, 1], np.int32), "targets": np.array([4, 1], np.int32)},
    ]
    task = Task(
        "translation",
        FunctionDataSource(lambda split, shuffle_files: examples, splits=["train"]),
        output_features={name: Feature(ByteVocabulary()) for name in lengths},
        preprocessors=[python_map(lambda example: example)],
    )

    dataset = get_dataset(
        mixture_or_task_name=task,
        task_feature_lengths=lengths,
        dataset_split="train",
        shuffle=True,
        seed=0,
        feature_converter=converter,
    )

    (row,) = dataset.as_numpy_iterator()
    assert len(row) == num_fields
    assert row["decoder_loss_weights"].sum() == 5
    assert sorted(set(row["decoder_segment_ids"].tolist())) == [0, 1, 2]
    assert {len(value) for value in row.values()} == {64 if num_fields == 6 else 32}


def test_feature_specs_equal_whatever_spells_the_dtype():
    assert FeatureSpec(tf.int32) == FeatureSpec(np.int32) == FeatureSpec("int32")
    assert FeatureSpec(tf.string).dtype == tf.string
    assert FeatureSpec(tf.bfloat16).dtype == "bfloat16"
