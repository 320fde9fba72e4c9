"""Debug mode: data at once, arrays of any library, the same numbers as the compiled graph."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from graph_outputs import batches, numbered

from beam_pipes.errors import GraphError, OperatorError
from beam_pipes.graph import GraphIterator, experimental, pipeline_def, types
from beam_pipes.on_device import TorchGraphIterator
from beam_pipes.transforms import fn


def shared_graph(root: str) -> Any:
    draw = fn.random.uniform(range=(0.0, 1.0))  # before the reader: it waits for the records
    data, labels = fn.readers.file(file_root=root, random_shuffle=True)
    flip = fn.random.coin_flip(dtype=types.BOOL)
    if flip:
        out = fn.cast(data[:4] * 2, dtype=types.UINT8)
    else:
        out = data[:4]
    return {"out": out.gpu() + 1, "labels": labels, "draw": draw}


@pytest.mark.parametrize("last", ["partial", "pad", "drop"])
def test_the_numbers_are_those_of_the_compiled_graph(files_root: str, last: str) -> None:
    options = {"batch_size": 4, "seed": 7, "enable_conditionals": True, "last": last}
    compiled = pipeline_def(**options)(shared_graph)(files_root)
    debugged = experimental.pipeline_def(debug=True, **options)(shared_graph)(files_root)
    assert batches(debugged, 7) == batches(compiled, 7)
    assert debugged.state == compiled.state

    state = debugged.checkpoint()
    expected = batches(compiled, 2)
    assert batches(debugged, 2) == expected
    debugged.restore(state)
    assert batches(debugged, 2) == expected


def test_data_can_be_looked_at_while_the_graph_is_defined(files_root: str) -> None:
    seen = []

    @experimental.pipeline_def(batch_size=3, debug=True)
    def my_pipe() -> Any:
        data, _ = fn.readers.file(file_root=files_root)
        seen.append(np.array(data.get()[0]).tolist())
        first = data[0] + 1
        seen.append(first.get().as_array().tolist())
        return first

    pipe = my_pipe()
    pipe.build()
    assert pipe.run()[0].as_array().tolist() == [1, 1, 1]
    assert seen == [[0, 1, 2, 3], [1, 1, 1]]


def test_lists_of_arrays_are_batches_and_arrays_are_constants() -> None:
    import torch

    @experimental.pipeline_def(batch_size=4, debug=True)
    def my_pipe() -> Any:
        images = [np.full((2, index + 1), index) for index in range(4)]
        tensors = [torch.full((1, 2), float(index)) for index in range(4)]
        return fn.flip(images), fn.flip(tensors), fn.flip(np.array([[1, 2]]))

    images, tensors, constant = my_pipe().run()
    assert images.shape() == [(2, 1), (2, 2), (2, 3), (2, 4)]
    assert tensors.as_array().tolist() == [[[0, 0]], [[1, 1]], [[2, 2]], [[3, 3]]]
    assert constant.as_array().tolist() == [[[2, 1]]] * 4


def test_a_list_of_another_length_is_refused() -> None:
    @experimental.pipeline_def(batch_size=4, debug=True)
    def my_pipe() -> Any:
        return fn.flip([np.zeros((1, 1))] * 3)

    with pytest.raises(GraphError, match=r"a list of 3 arrays was given for a batch of 4 samples. \(test_debug_mode"):
        my_pipe().run()


def test_the_order_of_operators_may_not_change() -> None:
    turn = itertools.count()

    @experimental.pipeline_def(batch_size=2, debug=True)
    def my_pipe() -> Any:
        first = fn.random.coin_flip(name="a") if next(turn) < 2 else fn.random.coin_flip(name="b")
        return first

    pipe = my_pipe()
    pipe.run(), pipe.run()
    with pytest.raises(
        GraphError, match=r"same order for each batch: operator 0 was 'a', and is b \(test_debug_mode.py"
    ):
        pipe.run()


def test_epochs_end_and_errors_are_those_of_the_compiled_graph() -> None:
    @experimental.pipeline_def(batch_size=3, debug=True)
    def my_pipe() -> Any:
        x = fn.external_source(numbered(5), batch=False)
        return fn.python_function(x, function=lambda one: one // (one - 4) if one < 4 else 1 // 0)

    pipe = my_pipe()
    pipe.run()
    with pytest.raises(OperatorError, match="'python_function' failed on record 'external_source@4'"):
        pipe.run()

    @experimental.pipeline_def(batch_size=3, debug=True)
    def ends() -> Any:
        return fn.external_source(numbered(5), batch=False)

    ending = ends()
    assert [ending.run().batch_size for _ in range(2)] == [3, 2]
    with pytest.raises(StopIteration):
        ending.run()


@pytest.mark.parametrize("iterator", [GraphIterator, TorchGraphIterator])
def test_iterators_refuse_a_graph_that_is_made_again_for_each_batch(iterator: Any, files_root: str) -> None:
    @experimental.pipeline_def(batch_size=2, debug=True)
    def define() -> Any:
        return fn.readers.file(file_root=files_root)

    pipe = define()
    for _ in range(2):
        with pytest.raises(
            GraphError, match=r"in debug mode the function creates it again for each batch. Call pipe.run\(\)"
        ):
            iterator(pipe)
        pipe.run()


def test_sources_come_before_data_is_looked_at(files_root: str) -> None:
    @experimental.pipeline_def(batch_size=2, debug=True)
    def my_pipe() -> Any:
        fn.random.coin_flip().get()
        return fn.readers.file(file_root=files_root)

    with pytest.raises(GraphError, match="in debug mode sources come first"):
        my_pipe().run()


def test_nothing_is_known_before_the_first_run(files_root: str) -> None:
    pipe = experimental.pipeline_def(batch_size=2, debug=True)(shared_graph)(files_root)
    for ask in (lambda: pipe.state, pipe.explain, pipe.epoch_size):
        with pytest.raises(GraphError, match="in debug mode nothing is known of the graph before the first run"):
            ask()


def test_without_debug_it_is_the_plain_decorator(files_root: str) -> None:
    @experimental.pipeline_def(batch_size=2)
    def my_pipe() -> Any:
        return fn.readers.file(file_root=files_root)

    assert len(my_pipe().run()) == 2


def test_sources_are_not_fed_by_name_in_debug_mode() -> None:
    @experimental.pipeline_def(batch_size=2, debug=True)
    def fed() -> Any:
        return fn.external_source(name="images")

    with pytest.raises(GraphError, match="in debug mode sources are called: give external_source its source"):
        fed().run(images=np.zeros((2, 1)))
