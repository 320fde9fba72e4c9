"""Arguments that are data nodes: their dtypes, places and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from beam_pipes.errors import OperatorArgumentError, OperatorError, PlacementError
from beam_pipes.graph import Pipeline
from beam_pipes.transforms import fn


def images(count: int = 3) -> Any:
    return fn.external_source(lambda: np.arange(4 * count).reshape(count, 2, 2), dtype="int64", ndim=2)


def test_an_argument_may_differ_by_sample() -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        which = fn.external_source(lambda: np.array([0, 1, 1], np.uint8), dtype="uint8", ndim=0)
        pipe.set_outputs(fn.flip(images(), horizontal=which), fn.flip(images(), horizontal=which % 2, vertical=1))
    flipped, both = pipe.run()

    assert flipped.as_array().tolist() == [[[0, 1], [2, 3]], [[5, 4], [7, 6]], [[9, 8], [11, 10]]]
    assert both[1].tolist() == [[7, 6], [5, 4]]


def test_arguments_are_converted_to_their_declared_dtype() -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        whole = fn.external_source(lambda: np.array([1.0, 0.0, 1.0]), ndim=0)
        pipe.set_outputs(fn.flip(images(), horizontal=whole))
    assert pipe.run()[0][1].tolist() == [[4, 5], [6, 7]]


def test_arguments_of_the_wrong_kind_name_operator_and_argument() -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        with pytest.raises(
            OperatorArgumentError, match="flip: the argument 'horizontal' should be an int for each sample"
        ):
            fn.flip(images(), horizontal=fn.random.uniform(range=(0.0, 1.0)))
        with pytest.raises(OperatorArgumentError, match=r"int64, rank 0\), and the data node gives int64\[·×·\]"):
            fn.flip(images(), horizontal=images())
        with pytest.raises(OperatorArgumentError, match="cast_1: dtype has to be known when the graph is defined"):
            fn.cast(fn.cast(images(), dtype="int8"), dtype=fn.random.coin_flip())


def test_errors_that_only_a_run_shows_are_raised_then() -> None:
    pipe = Pipeline(batch_size=3)
    with pipe:
        halves = fn.external_source(lambda: np.array([0.5, 0.5, 1.5]))
        pipe.set_outputs(fn.flip(images(), horizontal=halves))
    with pytest.raises(
        OperatorError,
        match="'horizontal' should be an int .* 'external_source' gave numbers with a fraction, such as 0.5",
    ):
        pipe.run()


def test_arguments_come_from_the_host() -> None:
    with Pipeline(batch_size=3), pytest.raises(PlacementError) as caught:
        flip = fn.random.coin_flip().gpu()
        fn.flip(images().gpu(), horizontal=flip)
    message = str(caught.value)
    assert "the argument 'horizontal'" in message and "lies on the device since" in message
    assert "flip = fn.random.coin_flip().gpu()" in message and "fn.flip(images().gpu(), horizontal=flip)" in message
