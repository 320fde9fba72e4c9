"""`external_source`: callables, iterables, pushed batches; the ends of epochs; resuming."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_outputs import numbered, plain

from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph import GraphIterator, Pipeline, types
from beam_pipes.on_device import TorchGraphIterator
from beam_pipes.transforms import fn


def define(source: Any, *, batch_size: int = 4, last: str = "partial", **options: Any) -> Pipeline:
    pipe = Pipeline(batch_size=batch_size, last=last)
    with pipe:
        pipe.set_outputs(fn.external_source(source, name="source", **options))
    return pipe


def values_until_the_end(pipe: Pipeline) -> list[list[Any]]:
    values = []
    while True:
        try:
            values.append(pipe.run()[0].as_array().tolist())
        except StopIteration:
            return values


def test_a_callable_of_samples_is_reported_where_each_stands() -> None:
    seen = []

    def source(info: types.SampleInfo) -> Any:
        if info.idx_in_epoch >= 6:
            raise StopIteration
        seen.append((info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx))
        return np.int32(info.idx_in_epoch + 100 * info.epoch_idx)

    pipe = define(source, batch=False)
    assert values_until_the_end(pipe) == [[0, 1, 2, 3], [4, 5]]
    assert seen[4:] == [(4, 0, 1, 0), (5, 1, 1, 0)]
    pipe.reset()
    assert values_until_the_end(pipe) == [[100, 101, 102, 103], [104, 105]]


@pytest.mark.parametrize(("last", "expected"), [("drop", [[0, 1, 2, 3]]), ("pad", [[0, 1, 2, 3], [4, 5, 5, 5]])])
def test_the_last_batch_is_dropped_or_padded(last: str, expected: Any) -> None:
    pipe = define(numbered(6), batch=False, last=last)
    assert values_until_the_end(pipe) == expected


def test_a_padded_batch_says_which_rows_are_valid() -> None:
    pipe = define(numbered(6), batch=False, last="pad")
    assert pipe.run().valid.tolist() == [True, True, True, True]
    assert pipe.run().valid.tolist() == [True, True, False, False]


def test_a_callable_of_batches_gets_their_number_or_a_batch_info() -> None:
    def by_number(iteration: int) -> Any:
        if iteration >= 2:
            raise StopIteration
        return np.full((3, 2), iteration)

    def by_info(info: types.BatchInfo) -> Any:
        if info.iteration >= 1:
            raise StopIteration
        return np.full(2, info.epoch_idx)

    assert values_until_the_end(define(by_number)) == [[[0, 0]] * 3, [[1, 1]] * 3]
    pipe = define(by_info, batch_info=True, cycle="raise")
    assert values_until_the_end(pipe) == [[0, 0]]
    assert values_until_the_end(pipe) == [[1, 1]]


def test_an_iterable_is_gone_through_once_an_epoch_and_cycle_says_what_comes_then() -> None:
    batches = [[np.array([1, 2]), np.array([3])], [np.array([4])]]
    pipe = define(batches)
    first, second = pipe.run()[0], pipe.run()[0]
    assert [one.tolist() for one in first] == [[1, 2], [3]] and [one.tolist() for one in second] == [[4]]
    for _ in range(2):
        with pytest.raises(StopIteration):
            pipe.run()
    pipe.reset()
    assert pipe.run().epoch == 1

    quiet = define(batches, cycle=True)
    assert [quiet.run().epoch for _ in range(5)] == [0, 0, 1, 1, 2]
    raising = define(batches, cycle="raise")
    raising.run(), raising.run()
    with pytest.raises(StopIteration):
        raising.run()
    assert raising.run().epoch == 1


def test_generators_and_samples_of_several_outputs() -> None:
    def generate() -> Any:
        for index in range(3):
            yield np.int16(index), np.zeros(index)

    pipe = Pipeline(batch_size=2)
    with pipe:
        number, zeros = fn.external_source(generate, num_outputs=2, batch=False, dtype=[types.INT16, types.FLOAT64])
        pipe.set_outputs(number + 1, zeros)
    number, zeros = pipe.run()
    assert number.as_array().tolist() == [1, 2] and zeros.shape() == [(0,), (1,)]


def test_batches_can_be_pushed_before_and_after_the_graph_is_built() -> None:
    pipe = define(None, dtype=types.FLOAT, ndim=1)
    pipe.feed_input("source", np.ones((2, 3), np.float32))
    assert pipe.run()[0].as_array().shape == (2, 3)
    pipe.feed_input("source", [np.zeros(1, np.float32), np.zeros(2, np.float32)])
    assert pipe.run()[0].shape() == [(1,), (2,)]
    with pytest.raises(
        GraphError, match=r"there is no batch to run on. Push one first: pipe.feed_input\('source', batch\)"
    ):
        pipe.run()
    with pytest.raises(GraphError, match="'sauce' cannot be fed"):
        pipe.feed_input("sauce", np.zeros(2))


@pytest.mark.parametrize("iterator", [GraphIterator, TorchGraphIterator])
def test_an_iterator_takes_the_batches_that_were_pushed(iterator: Any) -> None:
    pipe = define(None, dtype=types.INT64, ndim=0)
    batches = iterator(pipe, ["x"])
    with pytest.raises(GraphError, match="there is no batch to run on. Push one first"):
        next(iter(batches))

    for number in range(3):
        pipe.feed_input("source", np.array([number]))
    assert [batch["x"].tolist() for batch in batches] == [[0], [1], [2]]

    pipe.feed_input("source", np.array([3]))
    seen = []
    for batch in batches:
        seen += batch["x"].tolist()
        if len(seen) < 3:
            pipe.feed_input("source", np.array([seen[-1] + 1]))
    assert seen == [3, 4, 5]

    for number in (6, 7, 8):
        pipe.feed_input("source", np.array([number]))
    for batch in batches:
        assert batch["x"].tolist() == [6]
        break
    pipe.reset()
    assert [batch["x"].tolist() for batch in batches] == [[7], [8]]


def test_a_state_that_is_restored_waits_for_other_batches() -> None:
    pipe = define(None, dtype=types.INT64, ndim=0)
    pipe.feed_input("source", np.array([1]))
    pipe.run()
    pipe.feed_input("source", np.array([2]))
    pipe.restore(pipe.state)
    pipe.feed_input("source", np.array([3]))
    assert pipe.run()[0].as_array().tolist() == [3]


class Begins:
    """Three batches, anew for each epoch: the source of DALI's tutorial."""

    def __iter__(self) -> Begins:
        self.left = 3
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return np.full(4, self.left)


class Goes(Begins):
    """Three batches, once."""

    left = 3

    def __iter__(self) -> Goes:
        return self


def test_an_object_that_begins_again_is_gone_through_in_every_epoch() -> None:
    quiet = define(Begins(), cycle="quiet")
    assert [quiet.run()[0].as_array()[0] for _ in range(7)] == [2, 1, 0, 2, 1, 0, 2]
    batches = GraphIterator(define(Begins()), ["x"])
    assert [[batch["x"][0] for batch in batches] for _ in range(3)] == [[2, 1, 0]] * 3


@pytest.mark.parametrize(
    "source", [lambda: Goes(), lambda: (np.full(4, n) for n in (2, 1, 0)), lambda: iter([np.zeros(4)] * 3)]
)
def test_what_is_good_for_one_epoch_says_so_in_the_second(source: Any) -> None:
    batches = GraphIterator(define(source()), ["x"])
    assert len(list(batches)) == 3
    with pytest.raises(
        GraphError, match="the source is an iterator, which can be gone through once, and epoch 1 begins"
    ):
        list(batches)


@pytest.mark.parametrize("iterator", [GraphIterator, TorchGraphIterator])
def test_a_state_after_the_last_batch_continues_with_the_next_epoch(iterator: Any) -> None:
    def make() -> Any:
        return iterator(define(numbered(8), batch=False), ["x"])

    batches = make()
    states = []
    for _ in batches:
        states.append(batches.state)
    again = make()
    again.restore(states[-1])
    assert [[len(batch["x"]) for batch in again] for _ in range(2)] == [[4, 4]] * 2
    assert again.pipe.epoch == 3


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: np.zeros(9), {}, "batch_size=4, got source: 9"),
        (lambda: np.zeros(2), {"dtype": types.FLOAT}, "the source should give float32, got float64"),
        (lambda: np.zeros((2, 3)), {"ndim": 2}, "samples of rank 2, got 1"),
        (lambda: [np.zeros(2)], {"num_outputs": 2}, "the source should give 2 outputs, got 1"),
        (lambda: (np.zeros(2), np.zeros(3)), {"num_outputs": 2}, "as many samples, got 2, 3"),
    ],
)
def test_errors_say_what_a_source_returned(source: Any, options: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        define(source, **options).run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": 3}, "source should be a callable or an iterable, got 3"),
        ({"source": [], "cycle": "often"}, "cycle should be one of no, quiet, raise, True, False"),
        ({"source": [], "num_outputs": 0}, "num_outputs should be an int of at least 1, got 0"),
        ({"source": [], "layout": "HWC", "ndim": 2}, "layout 'HWC' names 3 axes, and ndim is 2"),
        ({"source": [], "num_outputs": 2, "ndim": [1, 2, 3]}, "one for each of 2 outputs; got 3"),
    ],
)
def test_errors_say_what_is_declared_wrongly(options: Any, message: str) -> None:
    with pytest.raises(OperatorArgumentError, match=message):
        fn.external_source(**options)


def test_sources_that_know_where_they_stand_can_be_resumed() -> None:
    pipe = define(numbered(11), batch=False)
    pipe.run()
    state = pipe.checkpoint()
    expected = [plain(pipe.run()), plain(pipe.run())]

    again = define(numbered(11), batch=False)
    again.restore(state)
    assert [plain(again.run()), plain(again.run())] == expected

    listed = define([np.int64(index) for index in range(11)], batch=False)
    listed.restore(state.replace(pipe.state.source["graph"], listed.state.source["graph"]))
    assert plain(listed.run()) == expected[0]


def test_sources_that_do_not_are_refused() -> None:
    counter = iter(range(100))
    blind = define(lambda: np.full(4, next(counter)))
    blind.run()
    with pytest.raises(GraphError, match="a source without arguments cannot continue in the middle of an epoch"):
        blind.restore(blind.state)
    once = define(iter([np.zeros(4)] * 3))
    once.run()
    with pytest.raises(GraphError, match="the source is an iterator, which cannot go back"):
        once.restore(once.state)


def test_a_source_may_fill_one_buffer_again_and_again() -> None:
    buffer = np.zeros((2, 3))

    def source(iteration: int) -> Any:
        if iteration >= 4:
            raise StopIteration
        buffer[:] = iteration
        return buffer

    seen = list(GraphIterator(define(source), ["x"]))
    assert [batch["x"].max() for batch in seen] == [0, 1, 2, 3]


def test_arrays_of_other_libraries_and_bytes_are_taken() -> None:
    import torch

    assert define(lambda: torch.ones(2, 2)).run()[0].as_array().tolist() == [[1, 1], [1, 1]]
    assert [one.tolist() for one in define(lambda: [b"ab", b"c"]).run()[0]] == [[97, 98], [99]]


def test_a_pushed_batch_may_be_given_again() -> None:
    pipe = define(None, repeat_last=True, no_copy=True, bytes_per_sample_hint=100)
    pipe.feed_input("source", np.array([1, 2]))
    assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[1, 2], [1, 2]]
    pipe.feed_input("source", np.array([3]))
    assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[3], [3]]


@pytest.mark.parametrize("given", [None, 3, np.array(2.5)], ids=["none", "number", "scalar"])
def test_what_is_not_a_batch_says_what_is_expected(given: Any) -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        pipe.set_outputs(fn.external_source(lambda: given))
    with pytest.raises(
        GraphError, match=r"should give a batch, an array with a leading axis .* got .*raise StopIteration; to give"
    ):
        pipe.run()
