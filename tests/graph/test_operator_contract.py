"""What the base class asks of operators, and what it says where one does not keep to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import beam_pipes.graph.functions as tfrec
from beam_pipes.errors import GraphError, InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import GraphIterator, Pipeline, TensorList
from beam_pipes.graph.functions import class_of, function_of
from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms import fn


class Scale(Operator):
    """Multiplies by a number, in one of three ways."""

    inputs = ("data",)
    by = Argument("float", default=2.0, doc="what it is multiplied by")
    offsets = Argument("floats", default=None, doc="what is added to each element")
    interp = Constant(DALIInterpType, default=DALIInterpType.INTERP_LINEAR, doc="an enum")


class OneByOne(Scale):
    """`run`."""

    def run(self, sample: Any, data: Any, *, by: float, offsets: Any) -> Any:
        assert isinstance(by, float)
        return data * by + (0 if offsets is None else offsets)


class Stacked(Scale):
    """`run_arrays`."""

    def run_arrays(self, xp: Any, data: Any, *, by: Any, offsets: Any) -> Any:
        return data * by[:, None] + (0 if offsets is None else offsets)


class Whole(Scale):
    """`run_batch`."""

    def run_batch(self, samples: Any, data: TensorList, *, by: Any, offsets: Any) -> Any:
        extra = [0] * len(data) if offsets is None else offsets
        return [one * b + o for one, b, o in zip(data, by, extra, strict=True)]


@pytest.mark.parametrize("operator", [OneByOne, Stacked, Whole])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "ragged"])
def test_the_three_ways_of_implementing_give_the_same(operator: type[Operator], dense: bool) -> None:
    pipe = Pipeline(batch_size=3, num_threads=2)
    with pipe:
        data = fn.external_source(lambda: np.ones((3, 2)) if dense else [np.ones(2), np.ones(2), np.ones(2)])
        ragged = fn.external_source(lambda: [np.ones(1), np.ones(3), np.ones(2)])
        by = fn.external_source(lambda: np.array([1, 2, 3]))
        offsets = fn.external_source(lambda: np.array([[0, 0], [1, 1], [2, 3]]))
        call = function_of(operator)
        pipe.set_outputs(
            call(data), call(data, by=by), call(data, offsets=offsets), call(ragged, by=by), call(data, offsets=1)
        )
    plain, by_sample, with_offsets, of_ragged, constant = pipe.run()

    assert plain.as_array().tolist() == [[2, 2]] * 3
    assert by_sample.as_array().tolist() == [[1, 1], [2, 2], [3, 3]]
    assert with_offsets.as_array().tolist() == [[2, 2], [3, 3], [4, 5]]
    assert [one.tolist() for one in of_ragged] == [[1], [2, 2, 2], [3, 3]]
    assert constant.as_array().tolist() == [[3, 3]] * 3


def test_enums_are_given_as_members_or_by_name() -> None:
    made = class_of(OneByOne)
    assert OneByOne({"interp": "INTERP_CUBIC"}).interp is DALIInterpType.INTERP_CUBIC
    with pytest.raises(OperatorArgumentError, match="interp should be one of types.INTERP_NN, .* got 'cubical'"):
        made(interp="cubical")(np.ones(2))
    assert repr(made(by=3)) == "OneByOne(by=3)"


class Limited(Operator):
    """Declares what its arguments may be."""

    inputs = ("data",)
    by = Argument("float", default=-1.0, least=0, most=2)
    ends = Argument("floats", default=None, above=0, sizes=(2,), ascending=True)
    mode = Constant("str", default="fast", choices=("fast", "exact"))
    letter = Constant("letter", default=None)
    exclusive = (("ends", "letter"),)

    def run(self, sample: Any, data: Any, *, by: float, ends: Any) -> Any:
        return data * by if ends is None else data * ends[0] + ends[1]


class LimitedBatch(Limited):
    """The same for a batch."""

    run: Any = None

    def run_batch(self, samples: Any, data: TensorList, *, by: Any, ends: Any) -> Any:
        if ends is None:
            return [one * b for one, b in zip(data, by, strict=True)]
        return [one * e[0] + e[1] for one, e in zip(data, ends, strict=True)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"by": 3}, r"by should be a number from 0 to 2, got 3\."),
        ({"by": float("nan")}, r"by should be a number from 0 to 2, got nan\."),
        ({"ends": [1]}, r"ends should be 2 numbers, each above 0, the lower one first, got \[1\]\."),
        ({"ends": [2, 1]}, r"the lower one first, got \[2, 1\]\."),
        ({"ends": [0, 1]}, r"each above 0, the lower one first, got \[0, 1\]\."),
        ({"mode": "exat"}, r"mode should be one of fast, exact, got 'exat'\. Did you mean 'exact'\?"),
        ({"letter": "HW"}, r"letter should be one letter, got 'HW'\."),
        ({"letter": "H", "ends": [1, 2]}, r"give one of ends and letter, got ends and letter\."),
    ],
)
def test_constants_are_held_to_what_is_declared(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OperatorArgumentError, match=words):
        function_of(Limited)(np.ones(2, np.float32), **given)


@pytest.mark.parametrize("operator", [Limited, LimitedBatch])
@pytest.mark.parametrize("name", ["by", "ends"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "ragged"])
def test_values_of_a_node_beyond_the_limits_cost_their_sample(operator: type[Operator], name: str, dense: bool) -> None:
    values = [2.0, 5.0, -1.0] if name == "by" else [[1, 2], [3, 2], [1, 1]] if dense else [[1, 2], [3], [1, 1]]

    def run(on_error: str) -> list[Any]:
        pipe = Pipeline(batch_size=3)
        with pipe:
            data = fn.external_source(lambda: [np.ones(1), np.ones(2), np.ones(3)])
            fed = fn.external_source(lambda: [np.array(one, np.float64) for one in values])
            pipe.set_outputs(function_of(operator)(data, on_error=on_error, **{name: fed}))
        return [one.tolist() for one in pipe.run()[0]]

    assert run("drop") == ([[2.0], [-1.0, -1.0, -1.0]] if name == "by" else [[3.0], [2.0, 2.0, 2.0]])
    with pytest.raises(OperatorError, match=rf"on record 'external_source@1' .*ValueError: {name} should be "):
        run("fail")


def test_an_argument_that_cannot_be_data_has_to_be_declared_constant() -> None:
    with pytest.raises(ValueError, match="an argument of kind 'str' cannot be a data node: declare it as Constant"):
        Argument("str")


class Wrong(Operator):
    """Gives less than it says."""

    inputs = ("data",)
    num_outputs = 2
    way = Constant("str", default="run", doc="where it is wrong")

    def infer(self, *inputs: TensorSpec) -> Any:
        return [TensorSpec()] * (1 if self.way == "infer" else 2)

    @property
    def run_batch(self) -> Any:
        return (lambda samples, data: (data, data.take(np.arange(1)))) if self.way == "batch" else None

    @property
    def run_arrays(self) -> Any:
        return (lambda xp, data: (data,)) if self.way == "arrays" else None

    @property
    def run(self) -> Any:
        return (lambda sample, data: data) if self.way == "run" else None


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("infer", "Wrong.infer gave 1 specs for 2 outputs"),
        ("run", "Wrong.run should give 2 outputs, got 1"),
        ("arrays", "Wrong.run_arrays should give 2 outputs, got 1"),
        ("batch", "Wrong.run_batch should give one sample for each of the 2 it was given, got 1"),
        ("nothing", "Wrong has none of run, run_arrays, run_batch"),
    ],
)
def test_an_operator_that_breaks_its_word_is_named(way: str, message: str) -> None:
    pipe = Pipeline(batch_size=2)
    with pytest.raises(GraphError, match=message), pipe:
        pipe.set_outputs(function_of(Wrong)(np.ones(3), way=way))
        pipe.run()


def test_a_bad_sample_in_a_batch_is_found_and_named() -> None:
    class Fussy(Operator):
        """Refuses sevens, a batch at a time."""

        inputs = ("data",)

        def run_arrays(self, xp: Any, data: Any) -> Any:
            if (data == 7).any():
                raise ValueError("seven")
            return data

    def define(on_error: str) -> Pipeline:
        pipe = Pipeline(batch_size=3)
        with pipe:
            data = fn.external_source(lambda: np.array([6, 7, 8]))
            pipe.set_outputs(function_of(Fussy)(data, on_error=on_error), data)
        return pipe

    with pytest.raises(OperatorError, match=r"'Fussy' failed on record 'external_source@1' \(sample 1 of the batch"):
        define("fail").run()
    first, second = define("drop").run()
    assert first.as_array().tolist() == second.as_array().tolist() == [6, 8]


@pytest.mark.parametrize("on_error", ["drop", "dead_letter"])
def test_samples_beside_a_bad_one_are_still_one_batch(on_error: str) -> None:
    sequences = [np.arange(3, dtype=np.int32), np.arange(9, dtype=np.int32), np.arange(1, dtype=np.int32)]
    pipe = Pipeline(batch_size=3, on_error=on_error)
    with pipe:
        tokens, segments, _ = fn.pack(fn.external_source(lambda: sequences, dtype="int32", ndim=1), length=4)
        pipe.set_outputs(tokens, segments)

    tokens, segments = pipe.run()

    assert tokens.as_array().tolist() == [[0, 1, 2, 0], [0, 0, 0, 0]]
    assert segments.as_array().tolist() == [[1, 1, 1, 2], [0, 0, 0, 0]]


@pytest.mark.parametrize("on_error", ["fail", "drop"])
def test_samples_that_fail_only_together_are_reported(on_error: str) -> None:
    pipe = Pipeline(batch_size=2, on_error=on_error)
    with pipe:
        pipe.set_outputs(fn.pad(fn.external_source(lambda: [np.zeros(2), np.zeros((2, 2))])))
    with pytest.raises(
        OperatorError, match="'pad' failed on 2 samples of a batch of epoch 0 together, and on none of them"
    ):
        pipe.run()


def test_batches_of_sources_that_differ_in_size_are_refused(files_root: str) -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        _, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs(labels, fn.external_source(lambda: np.zeros(2)))
    with pytest.raises(GraphError, match="got external_source: 2, and readers.file gives 3"):
        pipe.run()


def test_sources_in_python_continue_between_batches_only() -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        pipe.set_outputs(fn.external_source([np.zeros(3)] * 4))
    pipe.run()
    state = pipe.checkpoint().replace('"position":3', '"position":4')
    with pytest.raises(GraphError, match="position 4 lies within a batch of 3: sources in Python go on"):
        pipe.restore(state)


def test_an_iterator_cannot_begin_again() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(iter([np.zeros(1)]), cycle=True))
    pipe.run()
    with pytest.raises(GraphError, match="the source is an iterator, which can be gone through once, and epoch 1"):
        pipe.run()


def test_samples_of_different_ranks_cannot_be_padded() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        pipe.set_outputs(fn.external_source([[np.zeros(2), np.zeros((2, 2))]]))
    with pytest.raises(GraphError, match=r"output 'output_0' holds samples of ranks \[1, 2\]: they cannot be padded"):
        next(iter(GraphIterator(pipe, ragged="pad")))


def test_the_device_buffer_holds_at_least_one_batch() -> None:
    from beam_pipes.on_device import JaxGraphIterator

    pipe = Pipeline(batch_size=2)
    with pipe:
        pipe.set_outputs(fn.random.coin_flip())
    with pytest.raises(OperatorArgumentError, match="device_buffer should be an integer of at least 1, got 0"):
        JaxGraphIterator(pipe, device_buffer=0)


@pytest.mark.parametrize(
    ("called", "words"),
    [
        (lambda scalar, row: row[..., ...], r"^an index holds `\.\.\.` once at most\. \(test_operator_contract\.py:"),
        (
            lambda scalar, row: fn.reinterpret(scalar, dtype=np.uint8),
            "^reinterpret: a scalar has no extent that could change with the dtype",
        ),
        (
            lambda scalar, row: fn.bb_flip(fn.reshape(row, shape=[2, 3]), horizontal=1),
            r"^bb_flip: expected boxes of four numbers, \(n, 4\), got float32\[2×3\]",
        ),
        (lambda scalar, row: fn.pad_batch(scalar), r"^pad_batch: expected sequences, got float32\[\]"),
        (lambda scalar, row: fn.mel_filter_bank(scalar), r"^mel_filter_bank: expected spectrograms, got float32\[\]"),
        (
            lambda scalar, row: fn.resize(fn.reshape(row, shape=[2, 3, 1], layout="HWC"), size=2, roi_start=[0, 0]),
            "^resize: roi_start and roi_end go together",
        ),
        (
            lambda scalar, row: tfrec.VarLenFeature(1, 2, 3, 4),
            r"^VarLenFeature takes \(dtype, default_value\) or \(partial_shape, dtype, default_value\)",
        ),
        (
            lambda scalar, row: tfrec.FixedLenFeature([2], tfrec.int64, [1, 2, 3]),
            r"^default_value=\[1, 2, 3\] has shape \[3\], and the feature has \[2\]\. Give one number, or an array of",
        ),
    ],
)
def test_operators_say_what_they_were_given(called: Any, words: str) -> None:
    with Pipeline(batch_size=1):
        scalar = fn.external_source(lambda: [1.0], dtype=np.float32, ndim=0)
        row = fn.external_source(lambda: [np.ones(6)], dtype=np.float32, ndim=1)
        with pytest.raises((InferenceError, OperatorArgumentError), match=words):
            called(scalar, row)
