"""Defining graphs: the decorator, `with pipe:`, `define_graph`; outputs; options; what is wrong with them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from graph_outputs import numbered, plain

from beam_pipes import graph
from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph import Pipeline, pipeline_def, types
from beam_pipes.graph import functions as tfrec
from beam_pipes.transforms import fn, ops


def two_sources(_: Any = None) -> tuple[Any, Any]:
    return np.arange(8).reshape(2, 4), np.ones(2, np.float32)


def test_the_three_ways_of_defining_a_graph_give_the_same(files_root: str) -> None:
    @pipeline_def(batch_size=4, seed=3)
    def decorated() -> Any:
        data, labels = fn.readers.file(file_root=files_root, random_shuffle=True)
        return data, labels + fn.random.coin_flip()

    direct = Pipeline(batch_size=4, seed=3)
    with direct:
        reader = ops.readers.File(file_root=files_root, random_shuffle=True)
        data, labels = reader()
        direct.set_outputs(data, labels + ops.random.CoinFlip()())

    class Derived(Pipeline):
        def define_graph(self) -> Any:
            data, labels = fn.readers.file(file_root=files_root, random_shuffle=True)
            return data, labels + fn.random.coin_flip()

    pipes = [decorated(), direct, Derived(batch_size=4, seed=3)]
    pipes[0].build()
    for _ in range(4):
        first, second, third = (plain(pipe.run()) for pipe in pipes)
        assert first == second == third


def test_the_example_of_a_source_in_the_reference_works_both_ways() -> None:
    pipe = Pipeline(batch_size=2, num_threads=3, device_id=0)
    with pipe:
        src = ops.ExternalSource(two_sources, num_outputs=2)
        a, b = src()
        pipe.set_outputs(a, b)

    @pipeline_def(batch_size=2, num_threads=3, device_id=0)
    def my_pipe(my_source: Any) -> Any:
        return fn.external_source(my_source, num_outputs=2)

    listed = my_pipe(two_sources)
    assert plain(listed.run()) == plain(pipe.run())
    assert len(listed.run()) == 2 and listed.device_id == 0


def test_a_bare_decorator_takes_its_options_from_the_call(files_root: str) -> None:
    @pipeline_def
    def my_pipeline() -> Any:
        """Reads files."""
        img_files, labels = fn.readers.file(file_root=files_root, seed=1)
        mask_files, _ = fn.readers.file(file_root=files_root, seed=1)
        return img_files, mask_files, labels

    pipe = my_pipeline(batch_size=4, num_threads=2, device_id=0)
    pipe.build()
    images, masks, labels = pipe.run()

    assert (pipe.batch_size, pipe.num_threads) == (4, 2)
    assert [one.tolist() for one in images] == [one.tolist() for one in masks]
    assert labels.as_array().tolist() == [[0]] * 4
    assert my_pipeline.__doc__ == "Reads files."


def test_two_shuffled_readers_with_one_seed_stay_together(files_root: str) -> None:
    @pipeline_def(batch_size=4, seed=9)
    def my_pipeline() -> Any:
        first, _ = fn.readers.file(file_root=files_root, seed=1, random_shuffle=True)
        second, _ = fn.readers.file(file_root=files_root, seed=1, random_shuffle=True)
        return first, second

    pipe = my_pipeline()
    for _ in range(5):
        first, second = pipe.run()
        assert [one.tolist() for one in first] == [one.tolist() for one in second]


def test_options_of_the_call_go_before_those_of_the_decorator() -> None:
    @pipeline_def(batch_size=2, seed=1)
    def my_pipe() -> Any:
        return fn.random.uniform(range=(0.0, 1.0))

    assert my_pipe(batch_size=5).run().batch_size == 5
    assert plain(my_pipe(seed=1).run()) == plain(my_pipe().run())
    assert plain(my_pipe(seed=2).run()) != plain(my_pipe().run())


def test_outputs_are_reached_by_position_and_by_name() -> None:
    @pipeline_def(batch_size=2)
    def my_pipe() -> Any:
        number = fn.external_source(numbered(4), batch=False)
        return {"number": number, "double": number * 2, "seven": 7}

    pipe = my_pipe()
    out = pipe.run()

    assert out["double"].as_array().tolist() == out[1].as_array().tolist() == [0, 2]
    assert out["seven"].as_array().tolist() == [7, 7]
    assert pipe.output_names == ("number", "double", "seven")
    with pytest.raises(GraphError, match="there is no output 'doubel'; the outputs are number, double, seven"):
        out["doubel"]


def test_the_current_pipeline_is_known_while_it_is_defined() -> None:
    seen = []

    @pipeline_def(batch_size=1)
    def my_pipe() -> Any:
        seen.append(Pipeline.current())
        return fn.random.coin_flip()

    pipe = my_pipe()
    assert seen == [pipe] and Pipeline.current() is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pipeline(batch_sise=3), r"there is no argument 'batch_sise'. Did you mean 'batch_size'\?"),
        (lambda: Pipeline(batch_size=0), "batch_size should be an integer of at least 1, got 0"),
        (lambda: Pipeline(last="keep"), "last should be one of drop, pad, partial, got 'keep'"),
        (lambda: Pipeline(on_error="ignore"), "on_error should be one of fail, drop, dead_letter, got 'ignore'"),
        (
            lambda: fn.flip(np.zeros((2, 2)), horizontl=1),
            r"flip has no argument 'horizontl'. Did you mean 'horizontal'\?",
        ),
        (lambda: fn.flip(), r"flip: it takes 1 input \(images\), got 0"),
        (lambda: fn.flip("x"), "flip: the input 'images' should be a data node, an array or a number, got str: 'x'"),
        (lambda: fn.cast(np.zeros(2)), r"cast: dtype is missing \(a dtype such as types.FLOAT"),
        (lambda: fn.cast(np.zeros(2), dtype="float31"), "cast: dtype: expected a dtype such as types.FLOAT"),
        (lambda: fn.flip(np.zeros((2, 2)), horizontal="yes"), "flip: horizontal should be an int, got 'yes'"),
        (lambda: fn.flip(np.zeros((2, 2)), device="tpu"), "flip: device should be one of cpu, mixed, gpu, got 'tpu'"),
        (lambda: ops.Flip(horizntal=1), "flip has no argument 'horizntal'. Did you mean 'horizontal'"),
        (lambda: ops.Flip(1), "flip got 1 values by position and takes none"),
    ],
)
def test_what_is_unknown_or_wrong_is_a_type_error_that_says_so(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_keywords_that_neither_function_nor_pipeline_has_name_the_nearest() -> None:
    @pipeline_def(batch_size=2)
    def my_pipe(root: str) -> Any:
        return fn.random.coin_flip()

    with pytest.raises(OperatorArgumentError, match="there is no argument 'rot'. Did you mean 'root'"):
        my_pipe(rot="x")
    with pytest.raises(OperatorArgumentError, match="my_pipe: missing a required argument: 'root'"):
        my_pipe()
    with pytest.raises(OperatorArgumentError, match="there is no argument 'num_thread'. Did you mean 'num_threads'"):
        pipeline_def(num_thread=2)


def test_messages_end_in_the_line_of_the_user() -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(OperatorArgumentError) as caught:
        fn.flip(np.zeros((2, 2)), vertcal=1)

    assert f"test_graph_definition.py:{line} in test_messages_end" in str(caught.value)
    assert "fn.flip(np.zeros((2, 2)), vertcal=1)" in str(caught.value)
    assert caught.value.where.line == line


def test_a_pipeline_without_outputs_or_batch_size_says_so() -> None:
    with pytest.raises(GraphError, match=r"the pipeline has no outputs: call pipe.set_outputs"):
        Pipeline(batch_size=2).run()

    @pipeline_def
    def my_pipe() -> Any:
        return fn.random.coin_flip()

    with pytest.raises(OperatorArgumentError, match=r"batch_size is missing: Pipeline\(batch_size=32\)"):
        my_pipe().run()


def test_a_pipeline_that_is_built_takes_no_more_operators() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.random.coin_flip())
    pipe.build()
    with pytest.raises(GraphError, match="this pipeline is built already"), pipe:
        pass


def test_operators_can_be_called_outside_of_a_pipeline_unless_they_have_side_effects() -> None:
    flip = fn.random.coin_flip(seed=4)
    pipe = Pipeline(batch_size=8)
    pipe.set_outputs(flip)
    assert pipe.run()[0].as_array().shape == (8,)

    with pytest.raises(GraphError, match="python_function has side effects, and there is no current pipeline"):
        fn.python_function(flip, function=print)


def test_nodes_of_another_pipeline_are_refused() -> None:
    one, other = Pipeline(batch_size=1), Pipeline(batch_size=1)
    with one:
        node = fn.random.coin_flip()
    with other, pytest.raises(GraphError, match="takes 'random.coin_flip' of another pipeline"):
        fn.cast(node, dtype=types.FLOAT)
    with pytest.raises(GraphError, match="random.coin_flip belongs to another pipeline"):
        other.set_outputs(node)


def test_outputs_of_another_kind_are_refused() -> None:
    pipe = Pipeline(batch_size=1)
    with pytest.raises(
        GraphError, match="output 1 should be a data node, a list of them, an array or a number, got str"
    ):
        pipe.set_outputs(fn.random.coin_flip(), "label")


def test_two_operators_of_one_name_are_refused() -> None:
    with Pipeline(batch_size=1):
        fn.random.coin_flip(name="flip")
        with pytest.raises(OperatorArgumentError, match="two operators are called 'flip'"):
            fn.random.coin_flip(name="flip")


def test_what_a_reader_reads_is_reported(files_root: str) -> None:
    pipe = Pipeline(batch_size=3, last="pad")
    with pipe:
        data, _ = fn.readers.file(file_root=files_root, num_shards=3, shard_id=1, name="Reader")
        pipe.set_outputs(data)

    assert pipe.epoch_size() == {"Reader": 10} and pipe.epoch_size("Reader") == 10
    assert pipe.reader_meta("Reader") == {
        "epoch_size": 10,
        "epoch_size_padded": 12,
        "number_of_shards": 3,
        "shard_id": 1,
        "shard_size": 3,
        "pad_last_batch": True,
        "stick_to_shard": False,
    }
    with pytest.raises(GraphError, match="there is no reader 'reader'. Did you mean 'Reader'"):
        pipe.epoch_size("reader")


def test_reset_begins_the_next_epoch_also_in_the_middle_of_one(files_root: str) -> None:
    def define() -> Pipeline:
        pipe = Pipeline(batch_size=3, seed=1)
        with pipe:
            _, labels = fn.readers.file(file_root=files_root, random_shuffle=True)
            pipe.set_outputs(labels, fn.random.uniform(range=(0.0, 1.0)))
        return pipe

    whole, cut_short = define(), define()
    epochs = [[plain(whole.run()) for _ in range(4)] for _ in range(2)]
    cut_short.run()
    cut_short.reset()

    assert [plain(cut_short.run()) for _ in range(4)] == epochs[1]
    cut_short.reset(0)
    assert [plain(cut_short.run()) for _ in range(4)] == epochs[0]
    cut_short.reset(1)
    cut_short.reset()
    assert cut_short.epoch == 1


def test_statistics_count_records_bytes_and_time(files_root: str) -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        data, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs(fn.cast(labels, dtype=types.INT64))
    pipe.run()
    found = pipe.executor_statistics()

    assert found["cast"].records == 4 and found["cast"].bytes == 32 and found["cast"].secs > 0
    assert found["readers.file"].output_bytes == [0, 16]


def test_what_nobody_uses_is_pruned_and_still_checked(files_root: str) -> None:
    called = []
    pipe = Pipeline(batch_size=2)
    with pipe:
        data, labels = fn.readers.file(file_root=files_root)
        unused = fn.cast(data, dtype=types.FLOAT, name="unused")
        fn.cast(labels, dtype=types.FLOAT, name="kept", preserve=True)
        fn.python_function(labels, function=lambda one: called.append(int(one[0])), num_outputs=0)
        pipe.set_outputs(labels)
        with pytest.raises(TypeError):
            fn.cast(unused, dtpe=types.FLOAT)
    pipe.run()

    assert [node.name for node in pipe.plan().pruned] == ["unused"]
    assert pipe.executor_statistics()["kept"].records == 2
    assert "pruned\n  unused ← readers.file[0] → float32[·]" in pipe.explain()
    assert called == [0, 0]


def test_the_outputs_that_are_chosen_change_no_draw(files_root: str) -> None:
    def define(which: list[int]) -> Pipeline:
        pipe = Pipeline(batch_size=4, seed=2)
        with pipe:
            data, labels = fn.readers.file(file_root=files_root, random_shuffle=True)
            nodes = [data, fn.random.uniform(range=(0.0, 1.0)), labels, fn.random.uniform(range=(0.0, 1.0))]
            pipe.set_outputs(*(nodes[index] for index in which))
        return pipe

    every = list(plain(define([0, 1, 2, 3]).run()).values())
    assert list(plain(define([3]).run()).values()) == every[3:]
    assert list(plain(define([3, 1]).run()).values()) == [every[3], every[1]]


def test_draws_do_not_depend_on_the_batch_size(files_root: str) -> None:
    def drawn(batch_size: int) -> list[Any]:
        pipe = Pipeline(batch_size=batch_size, seed=5)
        with pipe:
            _, labels = fn.readers.file(file_root=files_root, random_shuffle=True)
            pipe.set_outputs(fn.random.uniform(range=(0.0, 1.0)))
        batches_of_two_epochs = 2 * -(-10 // batch_size)
        return [one for _ in range(batches_of_two_epochs) for one in pipe.run()[0].as_array().tolist()]

    assert drawn(1) == drawn(3) == drawn(10) == drawn(64)
    assert len(set(drawn(3))) == 20


def test_options_may_be_left_open_as_dali_does() -> None:
    pipe = Pipeline(-1, -1, types.CPU_ONLY_DEVICE_ID, prefetch_queue_depth={"cpu_size": 3, "gpu_size": 1})
    assert (pipe.options.batch_size, pipe.num_threads, pipe.device_id) == (None, 1, None)
    assert pipe.options.prefetch_queue_depth == 3
    assert Pipeline(max_batch_size=8, exec_async=False).batch_size == 8


def test_a_function_over_what_has_no_canonical_form_is_known_by_its_name(tmp_path: Any) -> None:
    with open(tmp_path / "log", "w") as log:
        pipe = Pipeline(batch_size=2)
        with pipe:
            pipe.set_outputs(fn.python_function(fn.random.coin_flip(), function=lambda one: (log.write("x"), one)[1]))
        state = pipe.state
        pipe.restore(state)
        pipe.run()
    assert (tmp_path / "log").read_text() == "xx"


def test_a_seed_of_minus_one_is_taken_from_the_system() -> None:
    assert Pipeline(seed=-1).seed != Pipeline(seed=-1).seed


def test_a_failed_sample_names_operator_line_and_record_and_can_be_allowed(files_root: str) -> None:
    def refuse(data: Any) -> Any:
        if len(data) == 12:
            raise ValueError("twelve is not allowed")
        return data

    def define(on_error: str) -> Pipeline:
        pipe = Pipeline(batch_size=10, on_error=on_error)
        with pipe:
            data, labels = fn.readers.file(file_root=files_root)
            pipe.set_outputs(fn.python_function(data, function=refuse), labels)
        return pipe

    with pytest.raises(graph_error(), match="twelve is not allowed") as caught:
        define("fail").run()
    assert caught.value.operator == "python_function" and caught.value.record == "cat/2.jpg@0"
    assert "'python_function' failed on record 'cat/2.jpg@0' (sample 2 of the batch, epoch 0)" in str(caught.value)
    assert "pipe.set_outputs(fn.python_function(data, function=refuse), labels)" in str(caught.value)

    kept = define("dead_letter")
    data, labels = kept.run()
    assert len(data) == len(labels) == 9
    assert [(one.record, one.error_type, one.message) for one in kept.dead_letters] == [
        ("cat/2.jpg@0", "ValueError", "twelve is not allowed")
    ]
    dropping = define("drop")
    assert dropping.run().batch_size == 9 and dropping.num_dropped == 1 and not dropping.dead_letters


def graph_error() -> type[Exception]:
    from beam_pipes.errors import OperatorError

    return OperatorError


def test_the_names_of_the_room_are_these() -> None:
    offered = {name for name in vars(graph) if not name.startswith("_")}
    wanted = {"pipeline_def", "Pipeline", "DataNode", "do_not_convert", "experimental", "types", "cond", "cache"}
    assert wanted | {"GraphIterator", "Outputs", "TensorList"} <= offered


def test_batches_can_be_scheduled_and_asked_for_later(files_root: str) -> None:
    pipe = Pipeline(batch_size=5)
    with pipe:
        _, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs(labels)
    pipe.schedule_run()
    pipe.schedule_run()
    assert [pipe.outputs()[0].as_array().tolist(), pipe.share_outputs()[0].as_array().tolist()] == [
        [[0]] * 5,
        [[1]] * 5,
    ]
    pipe.release_outputs()
    with pytest.raises(GraphError, match=r"there is no batch to return: call schedule_run\(\) first"):
        pipe.outputs()


def test_a_constant_keeps_its_number_or_is_refused() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(
            types.Constant([2**63 + 1, 1]), types.Constant([0.1], types.FLOAT), types.Constant([3.0], types.INT16)
        )
    hashes, floats, ints = (one.as_array()[0] for one in pipe.run())

    assert hashes.dtype == np.uint64 and hashes.tolist() == [2**63 + 1, 1]
    assert floats.tolist() == [np.float32(0.1)] and ints.tolist() == [3]
    for value, dtype, words in (
        ([2**53 + 1, 0.5], None, r"a constant of one dtype does not hold 9007199254740993 \(int64\) at \[0\]. Give"),
        ([-1, 2**63], None, r"does not hold 9223372036854775808 \(uint64\) at \[1\]"),
        (3.7, types.INT32, r"a constant of int32 does not hold 3.7 \(float64\). Give a number that it holds"),
        (300, types.UINT8, r"a constant of uint8 does not hold 300 \(int64\)"),
        (2**24 + 1, types.FLOAT, r"a constant of float32 does not hold 16777217"),
    ):
        with pytest.raises(OperatorArgumentError, match=words):
            types.Constant(value, dtype)


@pytest.mark.parametrize(("dtype", "default"), [("int64", 0.5), ("int64", 2**63), ("float32", 2**24 + 1)])
def test_a_default_of_another_number_is_refused_where_the_feature_is_declared(dtype: Any, default: Any) -> None:
    with pytest.raises(
        OperatorArgumentError, match=f"default_value={default!r} is not {dtype}, the dtype of the feature"
    ):
        tfrec.FixedLenFeature([], dtype, default)


def test_sinks_are_not_pruned_and_the_current_pipeline_can_be_pushed(tmp_path: Any) -> None:
    pipe = Pipeline(batch_size=2)
    Pipeline.push_current(pipe)
    try:
        sink = fn.random.coin_flip(name="sink")
        pipe.set_outputs(
            types.Constant(3, types.INT16), types.Constant(np.eye(2), layout="HW"), types.Constant(1, shape=(2,))
        )
    finally:
        Pipeline.pop_current()
    pipe.add_sink(sink)
    first, second, third = pipe.run()

    assert "sink" in pipe.executor_statistics()
    assert first.dtype == np.int16 and second.layout() == "HW" and third.as_array().tolist() == [[1, 1], [1, 1]]
    pipe.save_graph_to_dot_file(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text() == pipe.explain("dot")


def test_lists_of_inputs_are_sets_with_the_same_draws(files_root: str) -> None:
    pipe = Pipeline(batch_size=4, seed=3)
    with pipe:
        files, labels = fn.readers.file(file_root=files_root)
        images = fn.reshape(files[:4], shape=(2, 2, 1), layout="HWC")
        cut = fn.random_resized_crop([images, images + np.uint8(1)], size=8, name="cut")
        flipped = ops.Flip()([images, cut[0]], horizontal=fn.random.coin_flip())
        pairs = fn.cat([images, cut[1][:2, :2]], cut[0][:2, :2], axis=2)
        pipe.set_outputs(*cut, *flipped, *pairs, fn.random_resized_crop(images, size=8))
    a, b, flat, _, pair, _, alone = (np.asarray(one.as_array(), np.int64) for one in pipe.run())

    assert np.array_equal(a + 1, b) and not np.array_equal(a, alone)
    assert flat.shape == (4, 2, 2, 1) and pair.shape == (4, 2, 2, 2)
    assert [node.name for node in pipe.nodes if "crop" in node.name or "cut" in node.name][:2] == ["cut", "cut_1"]


def test_sets_of_different_lengths_are_refused() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        one = fn.external_source(numbered(1), batch=False, dtype=types.INT64, ndim=0)
        with pytest.raises(OperatorArgumentError, match="cat: inputs that are lists make sets, .* lists of 1 and 2"):
            fn.cat([one, one], [one])


def test_a_list_among_the_outputs_is_flattened_and_a_list_in_it_refused() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        one = fn.external_source(numbered(1), batch=False, dtype=types.INT64, ndim=0)
        pipe.set_outputs(one, [one, one])
        with pytest.raises(TypeError, match="output 0 is a list of lists, .* put a \\* before the inner list"):
            pipe.set_outputs([one, [one]])
    assert pipe.num_outputs == 3 and pipe.output_dtype() == [None] * 3


def test_properties_of_a_pipeline_are_those_of_dali(files_root: str) -> None:
    def define(**options: Any) -> Pipeline:
        pipe = Pipeline(
            batch_size=2, prefetch_queue_depth=3, output_dtype=[types.UINT8, None], output_ndim=1, **options
        )
        with pipe:
            pipe.set_outputs(*fn.readers.file(file_root=files_root))
        return pipe

    pipe = define()
    assert (pipe.num_outputs, pipe.prefetch_queue_depth) == (2, 3)
    assert pipe.output_dtype() == [types.UINT8, None] and pipe.output_ndim() == [1, 1]
    pipe.run()
    resumed = define(checkpoint=pipe.checkpoint())
    assert not pipe.is_restored_from_checkpoint and not resumed.is_restored_from_checkpoint
    resumed.build()
    assert resumed.is_restored_from_checkpoint
