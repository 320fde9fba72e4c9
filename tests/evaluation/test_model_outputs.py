"""Outputs of model functions put into the order of the examples, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import EvaluationError
from beam_pipes.evaluation.model_outputs import ModelOutputType, as_array, merge_hosts, ordered_outputs


@given(st.permutations(range(6)), st.integers(1, 4))
def test_any_order_from_any_number_of_hosts_gives_the_order_of_the_examples(order, num_hosts):
    pairs = [(index, [index] * index) for index in order]
    auxiliary = {"scores": [index / 2 for index in order], "nested": {"lengths": list(order)}}
    per_host = [
        (
            pairs[host::num_hosts],
            {
                "scores": auxiliary["scores"][host::num_hosts],
                "nested": {"lengths": auxiliary["nested"]["lengths"][host::num_hosts]},
            },
        )
        for host in range(num_hosts)
    ]

    outputs, aux = ordered_outputs(merge_hosts(per_host), 6, "task 'a'")

    assert outputs == [[index] * index for index in range(6)]
    assert aux == {"scores": [index / 2 for index in range(6)], "nested": {"lengths": list(range(6))}}


def test_hosts_without_auxiliary_values_are_joined():
    assert merge_hosts([[(0, 0.5)], [(2, 0.25), (1, 1.0)]]) == [(0, 0.5), (2, 0.25), (1, 1.0)]


def test_padding_is_dropped_and_equal_answers_count_once():
    returned = [(1, np.array([5])), (0, np.array([7, 8])), (-1, np.array([0])), (1, np.array([5]))]

    first, second = ordered_outputs(returned, 2, "task 'a'")

    assert (first.tolist(), second.tolist()) == ([7, 8], [5])


def test_equal_answers_may_be_nan():
    (score,) = ordered_outputs([(0, float("nan")), (0, float("nan"))], 1, "task 'a'")

    assert np.isnan(score)


def test_auxiliary_arrays_follow_their_outputs():
    returned = ([(1, [5]), (0, [7])], {"logits": np.array([[0.1, 0.2], [0.3, 0.4]])})

    _, aux = ordered_outputs(returned, 2, "task 'a'")

    assert np.array(aux["logits"]).tolist() == [[0.3, 0.4], [0.1, 0.2]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([(0, [5])], "task 'a': outputs are missing for 1 of 2 examples, first example 1. .*last partial batch"),
        ([(0, [5]), (2, [6])], "got an output for example 2, but there are 2"),
        ([(0, [5]), (1, [6]), (1, [7])], r"example 1 was answered twice, with \[6\] and \[7\]"),
        ([0.5, 0.25], r"Expected a sequence of length-2 tuples with \(index, score\) format.*entry 0 is 0.5"),
        ([(0, 1, 2)], "entry 0 is \\(0, 1, 2\\)"),
        (([], {}, []), "expected .* a pair of that and auxiliary values, got a tuple of 3"),
        (([(0, [5]), (1, [6])], {"x": [1]}), r"auxiliary values\['x'\] should hold one value .* 2 outputs, got 1"),
        (([(0, [5]), (1, [6])], {"x": 3}), r"auxiliary values\['x'\] should hold one value .* got 3"),
    ],
)
def test_what_does_not_answer_every_example_is_refused(returned, message):
    with pytest.raises(EvaluationError, match=message):
        ordered_outputs(returned, 2, "task 'a'")


def test_outputs_of_one_shape_become_an_array_and_ragged_ones_stay():
    ragged = [[1, 2], [3]]

    assert as_array([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert as_array(ragged) is ragged
    outputs, aux = as_array(([0.5], {"x": [1]}))
    assert (outputs.tolist(), aux["x"].tolist()) == ([0.5], [1])


def test_output_types_have_the_numbers_and_names_of_the_reference():
    assert {output_type.value: ModelOutputType.to_str(output_type) for output_type in ModelOutputType} == {
        1: "prediction",
        2: "score",
        3: "prediction_with_aux",
        4: "score_with_intermediates",
    }


def test_a_model_function_may_yield_its_answers():
    def answers():
        tokens = np.zeros(1, np.int32)
        for index in (2, 0, 1):
            tokens[:] = 10 * index
            yield index, tokens

    assert [tokens.tolist() for tokens in ordered_outputs(answers(), 3, "here")] == [[0], [10], [20]]


@pytest.mark.parametrize("returned", [None, 3, {0: [1]}, (None, {"scores": [1]})])
def test_what_holds_no_pairs_is_refused(returned):
    with pytest.raises(
        EvaluationError, match=r"here: expected \[\(index, output\), …\], got .* Return one pair for each"
    ):
        ordered_outputs(returned, 1, "here")
