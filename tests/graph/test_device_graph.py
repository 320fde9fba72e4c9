"""Graphs on JAX and torch: places, ragged samples, conditions, what comes back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
from graph_outputs import numbered, plain

from beam_pipes.errors import ConversionError, InferenceError, OperatorError
from beam_pipes.graph import GraphIterator, Pipeline, cond, pipeline_def, types
from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator
from beam_pipes.transforms import fn

ITERATORS = [JaxGraphIterator, TorchGraphIterator]


def image(info: Any, *, ragged: bool) -> Any:
    if info.idx_in_epoch >= 8:
        raise StopIteration
    whole = np.arange(12, dtype=np.float32).reshape(2, 3, 2) + info.idx_in_epoch
    return whole[:, : 2 + info.idx_in_epoch % 2] if ragged else whole


def graph_of(ragged: bool, **options: Any) -> Pipeline:
    @pipeline_def(**{"batch_size": 4, "seed": 1, "enable_conditionals": True, **options})
    def define() -> Any:
        x = fn.external_source(
            lambda info: image(info, ragged=ragged), batch=False, dtype=types.FLOAT, ndim=3, layout="HWC"
        )
        flip = fn.random.coin_flip()
        do = fn.random.coin_flip(dtype=types.BOOL)
        device = x.gpu()
        flipped = fn.flip(device, horizontal=flip)
        if do:
            result = flipped * 2.0
        else:
            result = flipped
        return {
            "x": x,
            "flipped": flipped,
            "result": result,
            "host": (result + 1).cpu(),
            "corner": result[0, 0, 0],
            "shape": result.shape(),
            "whole": fn.cast(result, dtype="int32") // 3,
            "transferred": device,
        }

    return define()


@pytest.mark.parametrize("iterator", ITERATORS)
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
def test_the_device_gives_what_the_host_gives(iterator: Any, ragged: bool) -> None:
    expected = [plain(batch) for batch in GraphIterator(graph_of(ragged))]
    pipe = graph_of(ragged, num_threads=2)
    found = [{k: v for k, v in plain(batch).items()} for batch in iterator(pipe)]
    for batch, reference in zip(found, expected, strict=True):
        assert {k: [value for _, value in v] for k, v in batch.items()} == {
            k: [value for _, value in v] for k, v in reference.items()
        }
    assert pipe.epoch == 1


def test_outputs_are_arrays_of_the_library_and_those_that_came_back_numpys() -> None:
    batch = next(iter(JaxGraphIterator(graph_of(False, last="pad"))))
    kinds = {name: isinstance(value, jax.Array) for name, value in batch.items()}
    assert kinds.pop("host") is False and all(kinds.values()) and batch["valid"].dtype == bool
    batch = next(iter(TorchGraphIterator(graph_of(False))))
    kinds = {name: isinstance(value, torch.Tensor) for name, value in batch.items()}
    assert kinds.pop("host") is False and all(kinds.values())
    assert batch["shape"].dtype == torch.int64


def test_ragged_outputs_can_be_padded_on_the_way_out() -> None:
    batch = next(iter(JaxGraphIterator(graph_of(True), ragged="pad", pad_value=-1)))
    assert batch["result"].shape == (4, 2, 3, 2) and float(batch["result"][0, 0, 2, 0]) == -1
    assert batch["result/lengths"].tolist() == [[2, 2, 2], [2, 3, 2], [2, 2, 2], [2, 3, 2]]


@pytest.mark.parametrize("iterator", ITERATORS)
def test_checkpoints_are_those_of_the_host(iterator: Any) -> None:
    one = iterator(graph_of(False))
    loop = iter(one)
    next(loop)
    state = one.state
    expected = plain(next(loop))
    again = iterator(graph_of(False))
    again.restore(state)
    assert plain(next(iter(again))) == expected
    one.close(), again.close()


def test_branches_that_differ_in_shape_are_refused_on_a_device() -> None:
    @pipeline_def(batch_size=4, enable_conditionals=True, seed=1)
    def define() -> Any:
        x = fn.external_source(lambda info: image(info, ragged=False), batch=False, dtype=types.FLOAT, ndim=3)
        do = fn.random.coin_flip(dtype=types.BOOL)
        device = x.gpu()
        if do:
            result = device[:1]
        else:
            result = device
        return result

    with pytest.raises(OperatorError, match="give samples of shapes .* on the device, where one array holds both"):
        for _ in JaxGraphIterator(define()):
            pass


def test_values_that_jax_would_change_are_refused() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.external_source(lambda: np.array([2**40 + 1])).gpu())
    with pytest.raises(ConversionError, match="holds 1099511627777 as int64, which int32 does not hold exactly"):
        next(iter(JaxGraphIterator(pipe)))


def test_operators_that_fail_on_the_device_are_named() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        at = fn.external_source(lambda: np.array([0, 1]), dtype="int64", ndim=0)
        pipe.set_outputs(fn.external_source(lambda: np.zeros((2, 3, 3))).gpu()[:at])
    with pytest.raises(
        OperatorError, match=r"operator 'subscript' failed on the device \(.*slices whose bounds are data"
    ):
        next(iter(JaxGraphIterator(pipe)))


@pytest.mark.parametrize("iterator", ITERATORS)
@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (lambda x, i: x[i : i + 1], "slices whose bounds are data nodes differ in size.*Index before .gpu"),
        (lambda x, i: x[0, i], "an index that is a data node stands first or after `:`. Index before .gpu"),
    ],
    ids=["slice", "place"],
)
def test_what_a_device_cannot_index_says_what_to_do(iterator: Any, pick: Any, words: str) -> None:
    @pipeline_def(batch_size=4, seed=1)
    def define() -> Any:
        x = fn.external_source(lambda info: image(info, ragged=False), batch=False, dtype=types.FLOAT, ndim=3)
        index = fn.random.coin_flip()
        return pick(x.gpu(), index)

    with pytest.raises((InferenceError, OperatorError), match=words):
        next(iter(iterator(define())))


@pytest.mark.parametrize("iterator", ITERATORS)
def test_draws_on_a_device_are_those_of_the_host(iterator: Any) -> None:
    def define(batch_size: int) -> Pipeline:
        pipe = Pipeline(batch_size=batch_size, seed=5)
        with pipe:
            index = fn.external_source(numbered(10), batch=False, dtype=types.INT64, ndim=0)
            chance = fn.cast(index, dtype=types.FLOAT) / np.float32(10)
            image = fn.stack(index, index, index).gpu()
            pipe.set_outputs(
                {
                    "coin": fn.random.coin_flip(probability=chance, device="gpu"),
                    "noise": image * 0 + fn.random.normal(image, mean=3.0),
                    "uniform": fn.random.uniform(shape=[2], device="gpu") + np.float32(1),
                }
            )
        return pipe

    def whole(loop: Any) -> dict[str, Any]:
        found = list(loop)
        return {name: np.concatenate([np.asarray(batch[name]) for batch in found]) for name in found[0]}

    expected, found = whole(GraphIterator(define(10))), whole(iterator(define(4)))

    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    assert expected["coin"].tolist() != [0] * 10 and len(set(expected["uniform"].ravel().tolist())) == 20


@pytest.mark.parametrize("iterator", ITERATORS)
def test_random_windows_of_ragged_images_in_a_branch_are_those_of_the_host(iterator: Any) -> None:
    @pipeline_def(batch_size=5, seed=2, enable_conditionals=True)
    def define() -> Any:
        x = fn.external_source(
            lambda info: image(info, ragged=True), batch=False, dtype=types.FLOAT, ndim=3, layout="HWC"
        )
        device = x.gpu()
        if fn.random.coin_flip(dtype=types.BOOL):
            result = fn.random_resized_crop(device * 2.0, size=[3, 3])
        else:
            result = fn.resize(device, size=[3, 3])
        return {"result": result}

    expected, found = list(GraphIterator(define())), list(iterator(define()))

    for batch, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(batch["result"]), reference["result"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("iterator", ITERATORS)
def test_a_draw_that_fails_for_a_device_names_its_record(iterator: Any) -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        index = fn.external_source(numbered(8), batch=False, dtype=types.INT64, ndim=0)
        pipe.set_outputs(fn.random.coin_flip(probability=index - 1, device="gpu"))
    with pytest.raises(
        OperatorError,
        match=r"'random.coin_flip' failed on record 'external_source@0'.*probability should be a number from 0 to 1",
    ):
        next(iter(iterator(pipe)))


@pytest.mark.parametrize("iterator", [JaxGraphIterator, TorchGraphIterator])
@pytest.mark.parametrize("call", [lambda x: fn.pad(x), lambda x: fn.normalize(x, batch=True)], ids=["pad", "normalize"])
def test_a_batch_that_falls_into_parts_is_refused_by_what_works_on_all_of_it(iterator: Any, call: Any) -> None:
    def define(shapes: list[int]) -> Pipeline:
        pipe = Pipeline(batch_size=len(shapes))
        with pipe:
            samples = fn.external_source(lambda: [np.arange(n, dtype=np.float32) for n in shapes], ndim=1)
            pipe.set_outputs({"x": call(samples.gpu())})
        return pipe

    alike = next(iter(iterator(define([3, 3]))))["x"]
    np.testing.assert_allclose(np.asarray(alike), define([3, 3]).run()[0].as_array(), rtol=1e-6)
    with pytest.raises(OperatorError, match="works on a batch as a whole, and on the device this batch of 3 samples"):
        next(iter(iterator(define([3, 2, 3]))))


@pytest.mark.parametrize("iterator", [JaxGraphIterator, TorchGraphIterator])
def test_what_fills_up_a_branch_does_not_count_for_the_whole_of_it(iterator: Any) -> None:
    @pipeline_def(batch_size=5)
    def graph() -> Any:
        number = fn.external_source(lambda: np.arange(5.0, dtype=np.float32) ** 2, dtype="float32", ndim=0)
        there = number.gpu()
        return {"x": cond(number > 1.0, lambda: fn.normalize(there, batch=True), lambda: there)}

    expected = graph().run()[0].as_array()
    np.testing.assert_allclose(np.asarray(next(iter(iterator(graph())))["x"]), expected, rtol=1e-5)


def test_shapes_that_differ_cannot_be_drawn_on_a_device() -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        index = fn.external_source(numbered(8), batch=False, dtype=types.INT64, ndim=0)
        pipe.set_outputs(fn.random.uniform(shape=fn.stack(index + 1), device="gpu"))
    with pytest.raises(OperatorError, match="on a device all samples have one shape. Give shape a constant, or draw"):
        next(iter(JaxGraphIterator(pipe)))
