"""Places: inference, what may feed what, the cut, and the drawing of it all."""

from __future__ import annotations

import inspect
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_outputs import batches

from beam_pipes.errors import CacheNotFoundError, GraphError, OperatorArgumentError, PlacementError, StaleCacheError
from beam_pipes.graph import Pipeline, cache, cond, pipeline_def
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.transforms import fn


def images() -> Any:
    return fn.external_source(lambda: np.arange(8.0).reshape(2, 2, 2), dtype="float64", ndim=2)


def test_the_device_is_that_of_the_inputs_unless_it_is_given() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        host = images()
        device = host.gpu()
        flipped = fn.flip(device, horizontal=fn.random.coin_flip())
        explicit = fn.flip(device, device="gpu")
        pipe.set_outputs(host * 2, flipped, explicit + 1, device.cpu(), host.cpu(), device.gpu())
    assert [node.device for node in pipe.plan().outputs] == ["cpu", "gpu", "gpu", "gpu", "cpu", "gpu"]
    assert pipe.run()[2].as_array().tolist() == [[[2, 1], [4, 3]], [[6, 5], [8, 7]]]


def test_a_later_place_never_feeds_an_earlier_one_and_both_lines_are_shown() -> None:
    with Pipeline(batch_size=2):
        here = inspect.currentframe().f_lineno  # type: ignore[union-attr]
        late = images().gpu()
        with pytest.raises(PlacementError) as caught:
            fn.flip(late, device="cpu")
    message = str(caught.value)
    assert f"test_places.py:{here + 1}" in message and f"test_places.py:{here + 3}" in message
    assert "late = images().gpu()" in message and 'fn.flip(late, device="cpu")' in message
    assert "The places follow each other: cpu, mixed, gpu" in message


def test_what_came_back_from_the_device_is_an_output_only() -> None:
    with Pipeline(batch_size=2), pytest.raises(PlacementError, match="comes from the device"):
        fn.flip(images().gpu().cpu(), device="cpu")


def test_operators_without_an_implementation_for_a_place_say_where_they_run() -> None:
    with Pipeline(batch_size=2):
        with pytest.raises(PlacementError, match="random.choice: it runs on cpu, and not on gpu"):
            fn.random.choice(4, device="gpu")
        with pytest.raises(
            PlacementError, match="it runs on cpu, and not on gpu. Its input 'to_device' lies on the device"
        ):
            fn.python_function(images().gpu(), function=len)


def graph_with(cut: str, root: str, **options: Any) -> Pipeline:
    """A graph with its cut at one of several places."""

    @pipeline_def(batch_size=4, seed=2, **options)
    def define() -> Any:
        data, labels = fn.readers.file(file_root=root, random_shuffle=True)
        if cut == "reader":
            data = cache(data)
        four = data[:4] * 3
        if cut == "four":
            four = cache(four)
        label = labels * np.int32(10) + four.shape()[0]
        if cut == "label":
            label = cache(label)
        if cut == "both":
            four, label = cache(four, label)
        flip = fn.random.coin_flip()
        return {"four": four, "flipped": four + flip, "label": label, "data": data}

    return define()


@pytest.mark.parametrize("cut", ["reader", "four", "label", "both"])
def test_moving_the_cut_changes_no_result(cut: str, files_root: str, tmp_path: Path) -> None:
    whole = graph_with("", files_root)
    with_cut = graph_with(cut, files_root)
    build(with_cut.offline_declaration("demo"), str(tmp_path / "cache"), options=LocalOptions(workers=1))
    cached = graph_with(cut, files_root, cache=str(tmp_path / "cache"))

    expected = batches(whole, 7)
    assert batches(with_cut, 7) == expected
    assert batches(cached, 7) == expected
    assert cached.run()[0].source_info(0) == whole.run()[0].source_info(0) != ""
    assert all(one.place != "offline" or not one.batches for one in cached.executor_statistics().values())


def test_every_operator_before_the_cut_is_a_unit_of_the_job(files_root: str) -> None:
    declaration = graph_with("four", files_root).offline_declaration("demo", target_shard_bytes=50)
    names = [unit.name for unit in declaration.graph.units]
    assert names == ["readers.file", "subscript", "arithmetic", "cache", "Cached example"]
    assert declaration.target_shard_bytes == 50


def test_conditions_before_the_cut_run_in_the_job(files_root: str, tmp_path: Path) -> None:
    def define(**options: Any) -> Pipeline:
        @pipeline_def(batch_size=5, enable_conditionals=True, **options)
        def graph() -> Any:
            data, labels = fn.readers.file(file_root=files_root)
            size = data.shape()[0]
            if size > 20:
                out = data[:2] + np.uint8(100)
            elif labels[0] == 1:
                out = data[1:3]
            else:
                out = data[:2]
            return cache(out), labels

        return graph(**options)

    build(define().offline_declaration("demo"), str(tmp_path / "cache"), options=LocalOptions(workers=1))
    assert batches(define(cache=str(tmp_path / "cache")), 3) == batches(define(), 3)


def test_an_operator_that_draws_may_not_stand_before_the_cut(files_root: str) -> None:
    with Pipeline(batch_size=2):
        data, _ = fn.readers.file(file_root=files_root)
        shifted = data + fn.random.coin_flip()
        with pytest.raises(PlacementError) as caught:
            cache(shifted)
        message = str(caught.value)
        assert "random.coin_flip (" in message and "it draws random numbers for each epoch" in message
        assert "shifted = data + fn.random.coin_flip()" in message and "cache(shifted)" in message


def test_a_pure_function_before_the_cut_is_computed_once_and_its_code_counts(files_root: str, tmp_path: Path) -> None:
    def define(added: int, **options: Any) -> Pipeline:
        def moved(data: Any) -> Any:
            return data[:2].astype(np.int32) + added

        with Pipeline(batch_size=4, **options) as pipe:
            data, labels = fn.readers.file(file_root=files_root)
            pipe.set_outputs(cache(fn.python_function(data, function=moved, pure=True)), labels)
        return pipe

    build(define(1).offline_declaration("moved"), str(tmp_path / "cache"), options=LocalOptions(workers=1))

    assert batches(define(1, cache=str(tmp_path / "cache")), 3) == batches(define(1), 3)
    with pytest.raises(StaleCacheError, match="python_function"):
        define(2, cache=str(tmp_path / "cache")).run()


def test_a_pure_function_that_nobody_needs_is_not_called(files_root: str) -> None:
    called: list[int] = []
    with Pipeline(batch_size=2) as pipe:
        data, labels = fn.readers.file(file_root=files_root)
        fn.python_function(data, function=lambda one: called.append(len(one)), pure=True)
        pipe.set_outputs(labels)
    pipe.run()

    assert called == []
    with pytest.raises(OperatorArgumentError, match="a pure function gives something: num_outputs should be at least"):
        fn.python_function(labels, function=len, pure=True, num_outputs=0)


def test_what_else_cannot_stand_before_the_cut(files_root: str) -> None:
    with Pipeline(batch_size=2):
        data, labels = fn.readers.file(file_root=files_root)
        with pytest.raises(PlacementError, match="it has side effects in every epoch"):
            cache(fn.python_function(data, function=len))
        with pytest.raises(PlacementError, match="depends on its inputs alone may stand there, with pure=True"):
            cache(fn.python_function(data, function=len))
        with pytest.raises(PlacementError, match="it is fed from this process"):
            cache(images())
        with pytest.raises(PlacementError, match="cache takes 'to_device', which lies on the device since"):
            cache(data.gpu())
        with pytest.raises(PlacementError, match="cache stands in a branch of a condition"):
            cond(labels[0] == 1, lambda: cache(data * 2), lambda: data)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        pytest.param(lambda x: fn.normalize(x, batch=True), "normalize", id="normalized_over_the_batch"),
        pytest.param(lambda x: fn.pad(x), "pad", id="padded_to_the_largest"),
        pytest.param(lambda x: fn.pad(x, shape=[-1], align=4), "pad", id="padded_to_the_largest_by_shape"),
        pytest.param(lambda x: fn.pad_batch(x)[0], "pad_batch", id="padded_to_the_longest"),
        pytest.param(lambda x: fn.pack(x, length=90)[0], "pack", id="packed"),
    ],
)
def test_what_works_on_a_batch_as_a_whole_may_not_stand_before_the_cut(call: Any, name: str, files_root: str) -> None:
    with Pipeline(batch_size=2):
        data, _ = fn.readers.file(file_root=files_root)
        made = call(data)
        with pytest.raises(
            PlacementError, match=f"{name} .* depends on the rest of its batch, and a job runs it on one"
        ):
            cache(made)


def test_what_works_on_each_sample_alone_may_stand_before_the_cut(files_root: str, tmp_path: Path) -> None:
    def define(**options: Any) -> Pipeline:
        pipe = Pipeline(batch_size=4, **options)
        with pipe:
            data, labels = fn.readers.file(file_root=files_root)
            normal = fn.normalize(data, batch=True, mean=[2.0], stddev=[3.0])
            wide = fn.pad(fn.reshape(fn.pad(data, shape=[50])[:4], shape=[2, 2]), align=4)
            pipe.set_outputs(cache(normal), cache(wide), cache(fn.pad_batch(data, length=40)[0]), labels)
        return pipe

    build(define().offline_declaration("demo"), str(tmp_path / "cache"), options=LocalOptions(workers=1))
    assert batches(define(cache=str(tmp_path / "cache")), 3) == batches(define(), 3)


def test_caches_of_other_graphs_are_refused(files_root: str, tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    with pytest.raises(CacheNotFoundError):
        graph_with("four", files_root, cache=path).run()
    build(graph_with("four", files_root).offline_declaration("demo"), path, options=LocalOptions(workers=1))
    with pytest.raises(StaleCacheError, match="was made from another graph: .*arithmetic.inputs: removed"):
        graph_with("reader", files_root, cache=path).run()
    with pytest.raises(GraphError, match="its graph has no cut"):
        graph_with("", files_root, cache=path).run()
    with pytest.raises(GraphError, match="the graph has no cut: mark what to store"):
        graph_with("", files_root).offline_declaration()

    @pipeline_def(batch_size=2, cache=path)
    def other() -> Any:
        data, _ = fn.readers.file(file_root=files_root)
        return cache(data[:4] * 4)

    with pytest.raises(StaleCacheError, match="was made from another graph"):
        other().run()


def test_the_drawing_shows_places_bytes_and_what_was_pruned(files_root: str) -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        data, labels = fn.readers.file(file_root=files_root)
        four = cache(data[:4])
        fn.flip(four[None], name="unused")
        pipe.set_outputs({"four": four.gpu() * 2, "label": labels})
    assert "label = readers.file[1] (int32[1])" in pipe.explain()
    pipe.run()
    text = pipe.explain()

    for heading in ("offline (before the cut)", "host", "device", "pruned", "outputs"):
        assert heading in text.splitlines()
    assert "subscript    ← readers.file[0] → uint8[·] 8 B" in text
    assert "label = readers.file[1] (int32[1], 8 B)" in text
    dot = pipe.explain("dot")
    assert 'subgraph "cluster_device"' in dot and '"readers.file" -> "subscript" [label="uint8[·], 12 B"]' in dot
    svg = ET.fromstring(pipe.explain("svg"))
    shown = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"offline", "host", "device", "pruned", "unused", "arithmetic"} <= set(shown)
    with pytest.raises(GraphError, match="form should be one of text, dot, svg, got 'sgv'. Did you mean 'svg'"):
        pipe.explain("sgv")
