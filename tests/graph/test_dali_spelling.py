"""What scripts of DALI's users spell, beside what is compared with DALI itself in `tests/references/test_dali.py`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes.errors import GraphError, InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import (
    DALIClassificationIterator,
    DALIGenericIterator,
    GraphIterator,
    LastBatchPolicy,
    Pipeline,
    newaxis,
    pipeline_def,
    types,
)
from beam_pipes.on_device import (
    DALIDataset,
    JaxGenericIterator,
    JaxGenericPeekableIterator,
    JaxGraphIterator,
    TorchClassificationIterator,
    TorchGenericIterator,
    TorchGraphIterator,
    data_iterator,
    peekable_data_iterator,
)
from beam_pipes.transforms import fn

NAMES = ["data", "label"]


@pipeline_def(batch_size=4)
def reading(root: str, shard_id: int = 0, num_shards: int = 1) -> Any:
    files, labels = fn.readers.file(file_root=root, name="R", shard_id=shard_id, num_shards=num_shards)
    return files[:2], labels


def test_arguments_that_decide_nothing_are_listed(files_root: str) -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        files, _ = fn.readers.file(file_root=files_root, initial_fill=10, read_ahead=True)
        pipe.set_outputs(files)

    assert "[without effect: initial_fill, read_ahead]" in pipe.explain()
    with Pipeline(batch_size=2) as fed:
        fed.set_outputs(fn.external_source(source=[np.zeros((2, 1))], use_copy_kernel=True, cuda_stream=None))
    assert "[without effect: cuda_stream, use_copy_kernel]" in fed.explain()
    with pytest.raises(OperatorArgumentError, match=r"has no argument 'initial_full'"):
        fn.readers.file(file_root=files_root, initial_full=10)


def test_a_padded_reader_fills_its_last_batch(files_root: str) -> None:
    @pipeline_def(batch_size=4)
    def padded(**options: Any) -> Any:
        return fn.readers.file(file_root=files_root, pad_last_batch=True, name="R", **options)[1]

    pipe = padded()
    (*_, last), (first,) = [pipe.run() for _ in range(3)], pipe.run()
    assert last.valid.tolist() == [True, True, False, False] and last[0].as_array().ravel().tolist() == [1] * 4
    assert first.as_array().ravel().tolist() == [0] * 4 and pipe.reader_meta("R")["pad_last_batch"]
    (*_, partial) = GraphIterator(padded(), ["label"], last_batch_policy=LastBatchPolicy.PARTIAL)
    assert partial["label"].shape == (2, 1) and "valid" not in partial
    counts = [len(list(GraphIterator(padded(num_shards=3, shard_id=shard), ["label"]))) for shard in range(3)]
    assert counts == [1, 1, 1]


def test_shuffle_after_epoch_shuffles(files_root: str) -> None:
    orders = []
    options: list[dict[str, Any]] = [{}, {"shuffle_after_epoch": True}, {"random_shuffle": True}]
    for option in options:
        pipe = Pipeline(batch_size=10)
        with pipe:
            pipe.set_outputs(fn.readers.file(file_root=files_root, **option)[0].shape()[0])
        orders.append(pipe.run()[0].as_array().tolist())

    assert orders[0] != orders[1] == orders[2]


@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator, TorchGraphIterator])
def test_iterators_take_the_options_of_dali(iterator: Any, files_root: str) -> None:
    made = iterator(
        [reading(files_root)],
        ["data", "label"],
        reader_name="R",
        last_batch_policy=LastBatchPolicy.DROP,
        auto_reset=True,
        dynamic_shape=True,
        prepare_first_batch=False,
    )
    for _ in range(2):
        assert np.asarray(next(made)["label"]).tolist() == [[0]] * 4
        assert np.asarray(made.next()["label"]).tolist() == [[0], [1], [1], [1]]
        with pytest.raises(StopIteration):
            next(made)
    assert len(made) == 2
    with pytest.raises(GraphError, match=r"there is no reader 'r'. There are: R."):
        iterator(reading(files_root), reader_name="r")
    with pytest.raises(OperatorArgumentError, match="an iterator has no option 'dynamic_shapes'. Did you mean 'dynam"):
        iterator(reading(files_root), dynamic_shapes=True)
    with pytest.raises(OperatorArgumentError, match="it takes one pipeline, got 2. Use DALIGenericIterator for"):
        iterator([reading(files_root)] * 2)


def test_the_iterators_of_plugins_give_their_arrays(files_root: str) -> None:
    import jax
    import torch

    ((host,), *_) = DALIClassificationIterator(reading(files_root), reader_name="R")
    ((tensors,), *_) = TorchClassificationIterator(reading(files_root), reader_name="R")
    arrays, *_ = JaxGenericIterator(reading(files_root), ["data", "label"], reader_name="R")

    @data_iterator(output_map=["data", "label"], reader_name="R")
    def training(root: str) -> Any:
        files, labels = fn.readers.file(file_root=root, name="R")
        return files[:2], labels

    decorated, *_ = training(files_root, batch_size=4)
    assert isinstance(host["data"], np.ndarray) and isinstance(tensors["data"], torch.Tensor)
    assert isinstance(arrays["data"], jax.Array) and isinstance(decorated["data"], jax.Array)
    assert tensors["label"].squeeze(-1).long().tolist() == [0, 0, 0, 0]
    for one in (tensors, arrays, decorated):
        assert list(one) == ["data", "label"] and np.asarray(one["data"]).tolist() == host["data"].tolist()


def test_a_reader_that_does_not_say_what_an_epoch_is_is_refused_by_name(files_root: str) -> None:
    @pipeline_def(batch_size=4)
    def graph() -> Any:
        _, labels = fn.readers.file(file_root=files_root, name="all")
        _, others = fn.readers.file(file_root=files_root, dir_filters="cat", name="cats")
        _, same = fn.readers.file(file_root=files_root, name="same", random_shuffle=True)
        return labels, others, same

    assert len(GraphIterator(graph(), reader_name="same")) == 3
    with pytest.raises(GraphError, match="reader_name='cats' has 5 records, and an epoch 10: .* Call 'cats' first"):
        DALIGenericIterator(graph(), ["a", "b", "c"], reader_name="cats")


def test_what_dali_shaped_iterators_refuse(files_root: str) -> None:
    for options, words in (
        ({"auto_reset": "maybe"}, "auto_reset should be one of False, None, no, True, yes, got 'maybe'"),
        ({"last_batch_policy": "drop"}, "last_batch_policy should be a LastBatchPolicy, got str 'drop'"),
        ({"prefetch": 2}, "an iterator has no option 'prefetch'"),
    ):
        with pytest.raises(OperatorArgumentError, match=words):
            DALIGenericIterator(reading(files_root), ["data", "label"], **options)
    with pytest.raises(OperatorArgumentError, match="takes pipelines of one batch size, got 4, 5"):
        DALIGenericIterator([reading(files_root), reading(files_root, batch_size=5)], ["data", "label"])


def halves(root: str, **options: Any) -> list[Pipeline]:
    return [reading(root, shard_id=shard, num_shards=2, **options) for shard in range(2)]


def test_pipelines_become_one_array_of_jax(files_root: str) -> None:
    import jax

    device = jax.devices()[0]
    expected = [np.stack([one["label"] for one in step]) for step in DALIGenericIterator(halves(files_root), NAMES)]
    stacked = [batch["label"] for batch in JaxGenericIterator(halves(files_root), NAMES)]
    alone = jax.sharding.SingleDeviceSharding(device)
    whole = next(JaxGenericIterator(reading(files_root), NAMES, sharding=alone))["label"]
    mapped = next(JaxGenericIterator(reading(files_root), NAMES, pmap_compatible=True))["label"]

    assert [one.shape for one in stacked] == [(2, 4, 1)] * 2
    assert [np.asarray(one).tolist() for one in stacked] == [one.tolist() for one in expected]
    assert whole.shape == (4, 1) and whole.sharding == alone and mapped.shape == (1, 4, 1)
    with pytest.raises(OperatorArgumentError, match="sharding takes one pipeline for each of its 1 devices in this"):
        JaxGenericIterator(halves(files_root), NAMES, sharding=alone)
    with pytest.raises(OperatorArgumentError, match="2 pipelines need sharding=…, or pmap_compatible=True"):
        JaxGenericIterator(halves(files_root), NAMES, pmap_compatible=False)
    uneven = [reading(files_root, shard_id=shard, num_shards=3, batch_size=4) for shard in range(2)]
    with pytest.raises(GraphError, match=r"output 'data' should be an array of one shape in all pipelines, got \("):
        next(JaxGenericIterator(uneven, NAMES, last_batch_policy=LastBatchPolicy.PARTIAL))


def test_a_decorated_function_makes_a_pipeline_a_device(files_root: str) -> None:
    import jax

    def define(root: str, shard_id: int, num_shards: int) -> Any:
        files, labels = fn.readers.file(file_root=root, name="R", shard_id=shard_id, num_shards=num_shards)
        return files[:2], labels

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for options, shape in (({"sharding": sharding}, (4, 2)), ({"devices": jax.devices()[:1]}, (1, 4, 2))):
        assert next(data_iterator(output_map=NAMES, **options)(define)(files_root, batch_size=4))["data"].shape == shape
    with pytest.raises(OperatorArgumentError, match="give one of sharding and devices"):
        data_iterator(define, output_map=NAMES, sharding=sharding, devices=jax.devices())
    with pytest.raises(OperatorArgumentError, match="batch_size should be a multiple of 2 devices, got 5"):
        data_iterator(define, output_map=NAMES, devices=jax.devices()[:1] * 2)(files_root, batch_size=5)
    with pytest.raises(OperatorArgumentError, match="checkpoints should be one for each of 1 pipelines, got 2"):
        data_iterator(define, output_map=NAMES, sharding=sharding)(files_root, batch_size=4, checkpoints=["", ""])


def test_a_peekable_iterator_shows_what_comes_next(files_root: str) -> None:
    import jax

    @peekable_data_iterator(output_map=NAMES, reader_name="R", auto_reset=True)
    def training(root: str) -> Any:
        files, labels = fn.readers.file(file_root=root, name="R")
        return files[:2], labels

    plain = [np.asarray(one["data"]).tolist() for one in JaxGenericIterator(reading(files_root), NAMES)]
    iterator = training(files_root, batch_size=4)
    assert iterator.element_spec["data"] == jax.ShapeDtypeStruct((4, 2), np.uint8)
    with pytest.raises(GraphError, match=r"peeked at and not taken: take it by next\(\) before checkpoints"):
        iterator.checkpoints()
    assert np.asarray(iterator.peek_async().result()["data"]).tolist() == plain[0]
    assert iterator.peek() is iterator.peek() is next(iterator)
    assert len(iterator.checkpoints()) == 1 and iterator.is_nonpadding.all()
    assert [np.asarray(one["data"]).tolist() for one in iterator] == plain[1:]
    assert iterator.is_nonpadding.tolist() == [True, True, False, False]
    assert [np.asarray(one["data"]).tolist() for one in iterator] == plain
    partial = JaxGenericPeekableIterator(reading(files_root), NAMES, last_batch_policy=LastBatchPolicy.PARTIAL)
    with pytest.raises(GraphError, match="every batch should be as the first one"):
        list(partial)


def test_an_iterator_continues_at_a_checkpoint(files_root: str) -> None:
    iterator = DALIGenericIterator(reading(files_root), ["data", "label"])
    next(iterator)
    (text,) = iterator.checkpoints()
    expected = next(iterator)[0]["data"].tolist()
    again = DALIGenericIterator(reading(files_root, checkpoint=text), ["data", "label"])

    assert next(again)[0]["data"].tolist() == expected


def test_a_pipeline_is_a_dataset_of_tensorflow(files_root: str) -> None:
    import tensorflow as tf

    one = DALIDataset(reading(files_root), output_dtypes=(tf.uint8, tf.int32), output_shapes=((None, 2), (None, 1)))
    assert [spec.shape.as_list() for spec in one.element_spec] == [[None, 2], [None, 1]]
    sizes = [len(labels) for _, labels in one.take(6)]
    assert sizes == [4, 4, 2, 4, 4, 2]

    @pipeline_def(batch_size=2)
    def numbers() -> Any:
        return fn.external_source(source=[np.array([1, 2], np.float32)])

    assert [batch.numpy().tolist() for batch in DALIDataset(numbers(), output_dtypes=tf.float32)] == [[1, 2]]
    from beam_pipes.errors import LoaderError

    with pytest.raises(LoaderError, match="dtypes are not known before there is data"):
        DALIDataset(numbers())


def test_declared_outputs_are_refused_at_definition_or_in_the_batch() -> None:
    @pipeline_def(batch_size=2)
    def known() -> Any:
        return types.Constant(np.zeros((2, 3, 1), np.uint8), layout="HWC")

    @pipeline_def(batch_size=2)
    def unknown() -> Any:
        return fn.external_source(source=[[np.array([1], np.uint8), np.array([2], np.uint8)]])

    options: Any
    for options, words in (
        ({"output_dtype": types.FLOAT}, r"output_dtype says 'float32' for output 0, and 'constant' gives uint8"),
        ({"output_ndim": 1}, "output_ndim says 1 for output 0"),
        ({"output_layout": ["CHW"]}, "output_layout says 'CHW' for output 0"),
    ):
        with pytest.raises(OperatorError, match=words):
            known(**options).build()
    pipe = unknown(output_dtype=types.INT32)
    pipe.build()
    with pytest.raises(
        OperatorError, match="output_dtype says 'int32' for output 0, and 'external_source' gives uint8"
    ):
        pipe.run()
    with pytest.raises(OperatorError, match="output_dtype says 'int32'"):
        list(GraphIterator(unknown(output_dtype=types.INT32)))
    with pytest.raises(GraphError, match="output_ndim should be one value for each of the 1 outputs, got 2"):
        known(output_ndim=[3, 3]).build()
    for options, words in (
        ({"output_ndim": -1}, "output_ndim should be a rank from 0 on, None, or a list of these, got -1"),
        ({"output_layout": 3}, "output_layout should be the names of axes, such as 'HWC', None, or a list"),
        ({"output_dtype": "floaty"}, "expected a dtype such as types.FLOAT"),
    ):
        with pytest.raises(OperatorArgumentError, match=words):
            known(**options)


def test_properties_name_records_and_axes(files_root: str) -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        files, _ = fn.readers.file(file_root=files_root)
        pipe.set_outputs(files.source_info(), (files[:2] + 1).property("source_info"), files[newaxis("X")][:, :2])
        with pytest.raises(GraphError, match="key should be 'source_info' or 'layout', got 'name'"):
            files.property("name")
        with pytest.raises(InferenceError, match="the name of an axis is one letter, got 'XY'"):
            newaxis("XY")
    read, made, wide = pipe.run()

    assert [bytes(one) for one in read] == [b"cat/0.jpg@0", b"cat/1.jpg@0"] == [bytes(one) for one in made]
    assert wide.shape() == [(1, 2)] * 2


def test_functions_of_math_are_the_same_on_devices() -> None:
    math = fn.math

    @pipeline_def(batch_size=2)
    def graph() -> Any:
        x = types.Constant(np.array([0.25, 0.5, 0.75], np.float32)).gpu()
        whole = types.Constant(np.array([1, 8, 27], np.int32)).gpu()
        one = {name: getattr(math, name)(x) for name in ("sqrt", "rsqrt", "exp", "fabs", "asin", "floor", "tanh")}
        two = {
            "cbrt": math.cbrt(whole),
            "fpow": math.fpow(x, 2),
            "atan2": math.atan2(x, whole),
            "min": math.min(x, 0.5),
        }
        return {**one, **two, "clamp": math.clamp(whole, 2, 9)}

    host, *others = (
        next(iter(iterator(graph()))) for iterator in (GraphIterator, JaxGraphIterator, TorchGraphIterator)
    )
    for other in others:
        for name, value in host.items():
            assert np.allclose(np.asarray(other[name]), value, rtol=1e-5) and str(value.dtype) in str(other[name].dtype)
    with pytest.raises(AttributeError):
        fn.math.root  # noqa: B018


def test_the_first_example_gives_float32_everywhere(files_root: str) -> None:
    @pipeline_def(batch_size=4, seed=7)
    def my_pipeline() -> Any:
        files, labels = fn.readers.file(file_root=files_root)
        mirrored = fn.flip(fn.reshape(files[:4], shape=(2, 2)).gpu(), horizontal=fn.random.coin_flip())
        return {"pixels": mirrored / 255.0, "label": labels.gpu()}

    for iterator in (GraphIterator, JaxGraphIterator, TorchGraphIterator):
        batch = next(iter(iterator(my_pipeline())))
        assert str(batch["pixels"].dtype).endswith("float32") and tuple(batch["label"].shape) == (4, 1)


def test_a_subclass_feeds_an_iterator_before_each_batch() -> None:
    class Fed(Pipeline):
        left = 3

        def define_graph(self) -> Any:
            self.images = fn.external_source(name="images")
            return self.images * 2

        def iter_setup(self) -> None:
            if not self.left:
                raise StopIteration
            self.left -= 1
            self.feed_input(self.images, [np.float32(self.left)] * 2)

    assert [batch["output_0"].tolist() for batch in GraphIterator(Fed(batch_size=2))] == [[4, 4], [2, 2], [0, 0]]


def test_a_list_that_goes_round_ends_no_epoch_of_a_reader(files_root: str) -> None:
    @pipeline_def(batch_size=2)
    def graph() -> Any:
        _, labels = fn.readers.file(file_root=files_root)
        return labels[0], fn.external_source(
            source=[np.array([7, 7], np.int32), np.array([8, 8], np.int32)], cycle=True
        )

    pipe = graph()
    seen = [pipe.run()[1].as_array()[0] for _ in range(3)]
    state = pipe.state
    rest = [pipe.run()[1].as_array()[0] for _ in range(2)]
    again = graph()
    again.restore(state)

    assert seen + rest == [7, 8, 7, 8, 7] and [again.run()[1].as_array()[0] for _ in range(2)] == rest


def test_a_graph_of_text_keeps_the_options_of_who_reads_it(files_root: str, tmp_path: Path) -> None:
    text = reading(files_root, seed=3, num_threads=2).serialize()
    pipe = Pipeline(batch_size=5)
    pipe.deserialize_and_build(text)

    assert (pipe.batch_size, pipe.seed, pipe.num_threads) == (5, 3, 2) and len(pipe.run()[0]) == 5


@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator, TorchGraphIterator])
def test_sequences_are_normalized_in_any_order_of_axes(iterator: Any) -> None:
    frames = (np.arange(2 * 4 * 5 * 3) * 7 % 256).astype(np.uint8).reshape(2, 4, 5, 3)

    @pipeline_def(batch_size=2)
    def graph() -> Any:
        sequence = types.Constant(frames, layout="FHWC").gpu()
        options: Any = {"crop": (2, 3), "mean": [1.0, 2.0, 3.0], "std": 2.0, "mirror": True, "pad_output": True}
        return fn.crop_mirror_normalize(sequence, output_layout=types.NFCHW, **options)

    expected = (frames[:, 1:3, 1:4][:, :, ::-1] - np.float32([1, 2, 3])) / 2
    batch = np.asarray(next(iterator(graph()))["output_0"])
    assert batch.shape == (2, 2, 4, 2, 3) and not batch[:, :, 3].any()
    assert np.allclose(batch[1, :, :3], expected.transpose(0, 3, 1, 2))
    with pytest.raises(
        InferenceError, match="their axes in any order as output_layout, such as 'FCHW' for FHWC, got u"
    ):
        fn.crop_mirror_normalize(types.Constant(frames, layout="FHWC"), output_layout="CHW")


def test_numbers_have_methods_of_dtypes() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        shift = types.Constant(48)
        pipe.set_outputs(types.Constant(np.uint8([50])) - shift.uint8(), shift.float32() / 2)
    made, half = pipe.run()

    assert made.dtype == np.uint8 and made.as_array().tolist() == [[2]]
    assert half.dtype == np.float32 and half.as_array().tolist() == [24.0]
    with pytest.raises(AttributeError, match="a constant has no attribute 'uint9'"):
        shift.uint9()


def test_the_resampled_wave_of_a_decoder_is_that_of_audio_resample() -> None:
    import io

    import soundfile

    wave = np.sin(np.arange(900) ** 1.2 / 9).astype(np.float32)
    file = io.BytesIO()
    soundfile.write(file, wave, 8000, "FLOAT", format="WAV")
    pipe = Pipeline(batch_size=1)
    with pipe:
        encoded = types.Constant(np.frombuffer(file.getvalue(), np.uint8))
        decoded, rate = fn.decoders.audio(encoded, sample_rate=6000, downmix=True, quality=80)
        again = fn.audio_resample(types.Constant(wave), in_rate=8000, out_rate=6000, quality=80)
        pipe.set_outputs(decoded, again, rate, fn.decoders.audio(encoded, sample_rate=6000)[0])
    decoded, again, rate, mono = pipe.run()

    assert np.array_equal(decoded[0], again[0]) and rate[0] == 6000 and mono[0].shape == (675, 1)


def test_a_script_changes_one_word_of_its_imports() -> None:
    import beam_pipes.dali.fn.readers
    import beam_pipes.dali.plugin.jax.clu
    from beam_pipes.dali.pipeline.experimental import pipeline_def as with_debug_mode

    import beam_pipes.dali as dali
    from beam_pipes import graph
    from beam_pipes.dali import tfrecord
    from beam_pipes.transforms import ops

    plugin: Any = dali.plugin
    assert (dali.fn, dali.ops, dali.types, dali.math) == (fn, ops, types, fn.math)
    assert dali.Pipeline is Pipeline and dali.pipeline_def is pipeline_def and dali.newaxis is newaxis
    assert (
        beam_pipes.dali.fn.readers is fn.readers and tfrecord.FixedLenFeature.__module__ == "beam_pipes.graph.functions"
    )
    assert with_debug_mode is graph.experimental.pipeline_def and dali.pipeline.do_not_convert is graph.do_not_convert
    assert plugin.pytorch.DALIGenericIterator is TorchGenericIterator and plugin.tf.DALIDataset is DALIDataset
    assert plugin.jax.DALIGenericIterator is plugin.jax.iterator.DALIGenericIterator is JaxGenericIterator
    assert plugin.jax.clu.DALIGenericPeekableIterator is JaxGenericPeekableIterator
    assert plugin.base_iterator.LastBatchPolicy is plugin.pytorch.LastBatchPolicy is LastBatchPolicy
    with pytest.raises(AttributeError, match=r"has no attribute 'paddle'\. DALI's is absent here: .*paddle\.to_tensor"):
        plugin.paddle  # noqa: B018
    absent: Any = importlib.import_module("beam_pipes.dali.plugin.paddle")  # so that what is used of it says more
    with pytest.raises(AttributeError, match="DALIGenericIterator.*paddle"):
        absent.DALIGenericIterator  # noqa: B018


def test_a_wrapper_for_lightning_goes_through_the_names_of_outputs(files_root: str) -> None:
    class LightningWrapper(TorchClassificationIterator):
        def __next__(self) -> Any:
            (out,) = super().__next__()
            return [out[name].squeeze(-1) if name == "label" else out[name] for name in self.output_map]

    data, label = next(iter(LightningWrapper(reading(files_root), reader_name="R")))
    assert tuple(data.shape) == (4, 2) and label.tolist() == [0, 0, 0, 0]
    assert DALIGenericIterator(reading(files_root), ("a", "b")).output_map == ["a", "b"]


def test_a_device_that_is_not_there_is_named(files_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax
    import torch

    for count, words in ((0, "torch sees none here. .* for tensors on the host"), (1, "sees 1 here. .* current GPU")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(OperatorArgumentError, match=f"device_id={count} asks for a GPU, and .*{words}"):
            TorchGraphIterator(reading(files_root, device_id=count))
    count = len(jax.devices())
    with pytest.raises(
        OperatorArgumentError, match=f"device_id={count} is not one of the {count} devices that JAX has"
    ):
        JaxGraphIterator(reading(files_root, device_id=count))
