"""Decoding and postprocessing of targets and predictions."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.model_outputs import decode_output, decode_outputs, decoded_targets, postprocess_all
from beam_pipes.tasks import ByteVocabulary, Feature, PassThroughVocabulary

FEATURE = Feature(ByteVocabulary())
HI, HO = FEATURE.vocabulary.encode("Hi"), FEATURE.vocabulary.encode("Ho!")


class Tokens:
    """What a device array looks like: a shape and `tolist`."""

    def __init__(self, ids):
        self.ids, self.shape = ids, (len(ids),)

    def tolist(self):
        return self.ids


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (HI, "Hi"),
        (np.array(HI), "Hi"),
        ([*HI, 1, 77], "Hi"),
        ([], ""),
        ([HI, HO], ["Hi", "Ho!"]),
        (np.array([HI, HI]), ["Hi", "Hi"]),
        ([np.array(HI), []], ["Hi", ""]),
        ([[], HO], ["", "Ho!"]),
        ("text", "text"),
        (Tokens(HI), "Hi"),
    ],
)
def test_ids_are_decoded_and_several_sequences_each(output, expected):
    assert decode_output(output, FEATURE) == expected


def test_a_feature_of_rank_two_is_decoded_as_a_whole():
    frames = Feature(PassThroughVocabulary(size=0), dtype="float32", rank=2)

    assert decode_output(np.array([[0.5, 1.0]]), frames) == [[0.5, 1.0]]


def test_outputs_that_cannot_be_decoded_name_their_example():
    with pytest.raises(EvaluationError, match="task 'a': the output for example 1 cannot be decoded by ByteVocabulary"):
        decode_outputs([HI, ["x"]], FEATURE, "task 'a'")


def test_targets_are_the_pretokenized_text_or_decoded_ids():
    features = {"targets": FEATURE}
    examples = [
        {"targets": np.array(HI), "targets_pretokenized": b"Hi there"},
        {"targets": np.array(HI), "targets_pretokenized": np.array(b"Hi you", object)},
        {"targets": np.array(HI)},
    ]

    assert decoded_targets(examples, features, "targets", "x") == ["Hi there", "Hi you", "Hi"]


def test_a_missing_target_field_is_named():
    with pytest.raises(
        EvaluationError, match="targets are expected in 'labels', but example 0 has .*target_field_name"
    ):
        decoded_targets([{"targets": np.array(HI)}], {"targets": FEATURE}, "labels", "x")


def answers(output_or_target, example=None, is_target=False):
    """The postprocessor of the TriviaQA example in the reference."""
    if is_target:
        return [answer.decode("utf-8") for answer in example["answers"]]
    return output_or_target


def test_targets_can_be_taken_from_the_example():
    examples = [{"answers": [b"Mary-Kate and Ashley", b"Ashley and Mary-Kate"]}]

    targets = postprocess_all(["Mary-Kate and Ashley"], examples, answers, is_target=True, where="x")
    predictions = postprocess_all(["Ashley and Mary-Kate"], examples, answers, is_target=False, where="x")

    assert targets == [["Mary-Kate and Ashley", "Ashley and Mary-Kate"]]
    assert predictions == ["Ashley and Mary-Kate"]


@pytest.mark.parametrize(
    "postprocessor",
    [
        str.upper,
        operator.methodcaller("upper"),
        lambda text: text.upper(),
        lambda text, **others: text.upper(),
        lambda text, is_target: text.upper(),
    ],
)
def test_postprocessors_get_the_keywords_they_take(postprocessor):
    assert postprocess_all(["hi"], [{}], postprocessor, is_target=True, where="x") == ["HI"]


def test_without_a_postprocessor_nothing_changes():
    assert postprocess_all(["hi"], [{}], None, is_target=False, where="x") == ["hi"]


@pytest.mark.parametrize(("is_target", "word"), [(True, "target"), (False, "prediction")])
def test_a_failing_postprocessor_names_the_example(is_target, word):
    def choke(text, example, is_target):
        return example["missing"]

    with pytest.raises(
        EvaluationError, match=f"task 'a': the postprocessor failed on the {word} of example 0: KeyError"
    ):
        postprocess_all(["hi"], [{}], choke, is_target=is_target, where="task 'a'")
