"""DataLoader over the real tf.data: the reference's examples, inference, errors and counts."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np
import pytest
import tensorflow as tf
import torch

from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.on_device import DataLoader


def dummy_data_generator():
    for i in range(1000):
        yield {"x": i, "y": i * 3}


def tens():
    return ({"x": i} for i in range(10))


def xs(loader):
    return [element["x"].numpy().tolist() for element in loader]


def as_lists(dataset):
    return tf.nest.map_structure(lambda value: value.tolist(), list(dataset.as_numpy_iterator()))


def keep_even(element):
    return element["x"] % 2 == 0


def plus_one(element):
    return {"x": element["x"] + 1}


# The reference's examples


@pytest.fixture(scope="module")
def reference_chain():
    dl = DataLoader(dummy_data_generator)
    dl = dl.map(lambda x: {**x, "is_y_even": x["y"] % 2 == 0})
    dl = dl.cache()
    dl = dl.shuffle(1000)
    return dl.batch(10)


def test_the_first_example_runs_to_devices(reference_chain):
    import jax

    jdl = reference_chain.to_jax()
    jdl = jdl.shard()
    jdl = jdl.prefetch_to_devices()

    seen = []
    for data in jdl:
        seen.extend(data["x"].tolist())

    assert sorted(seen) == list(range(1000))
    assert seen != list(range(1000))
    assert set(data) == {"is_y_even", "x", "y"}
    assert isinstance(data["x"], jax.Array)
    assert (data["x"].dtype, data["y"].dtype, data["is_y_even"].dtype) == (np.int32, np.int32, np.bool_)
    assert data["y"].tolist() == [3 * x for x in data["x"].tolist()]
    assert data["is_y_even"].tolist() == [y % 2 == 0 for y in data["y"].tolist()]
    assert data["x"].sharding.is_equivalent_to(
        jax.sharding.NamedSharding(
            jax.make_mesh((len(jax.devices()),), ("batch",)), jax.sharding.PartitionSpec("batch")
        ),
        1,
    )


def test_counts_and_the_list_of_transformations_of_the_first_example(reference_chain):
    jdl = reference_chain.to_jax().shard().prefetch_to_devices()

    assert jdl.get_python_iterator_n_samples() == 1000
    assert jdl.get_n_samples() == 100
    assert jdl.get_transformation_list() == [
        "tf.data.Dataset.from_generator",
        "tf.data.Dataset.map",
        "tf.data.Dataset.cache",
        "tf.data.Dataset.shuffle",
        "tf.data.Dataset.batch",
        "midas.DataLoader.to_jax",
        "midas.JaxDataLoader.shard",
        "midas.JaxDataLoader.prefetch_to_devices",
    ]


def test_the_signature_of_fixed_samples():
    assert DataLoader(dummy_data_generator).output_signature == {
        "x": tf.TensorSpec(shape=(), dtype=tf.int32, name="x_input"),
        "y": tf.TensorSpec(shape=(), dtype=tf.int32, name="y_input"),
    }


def test_the_signature_of_samples_of_varying_length():
    draws = random.Random(1)

    def dummy_data_generator():
        for i in range(1000):
            yield {"x": [i for _ in range(draws.randint(1, 5))], "y": i * 3}

    dl = DataLoader(dummy_data_generator)

    assert dl.output_signature == {
        "x": tf.TensorSpec(shape=(None,), dtype=tf.int32, name="x_input"),
        "y": tf.TensorSpec(shape=(), dtype=tf.int32, name="y_input"),
    }
    elements = list(dl)
    assert [set(element["x"].numpy()) for element in elements] == [{i} for i in range(1000)]
    assert {len(element["x"]) for element in elements} == {1, 2, 3, 4, 5}


# Inference and feeding through tf.data


def test_a_rare_length_is_found_by_reading_every_sample():
    def samples():
        yield from ({"x": [1, 2]} for _ in range(20))
        yield {"x": [3]}

    with pytest.raises(SpecError, match=r"sample 20 does not fit key 'x': the shape is \(1,\), expected \(2,\)"):
        list(DataLoader(samples))
    assert DataLoader(samples, infer_k=-1).output_signature["x"].shape.as_list() == [None]
    assert len(list(DataLoader(samples, infer_k=-1))) == 21


def test_fewer_samples_than_infer_k_work():
    assert xs(DataLoader(lambda: iter([{"x": 5}]))) == [5]


@pytest.mark.parametrize("infer_k", [1, 3, -1])
def test_a_one_shot_iterator_gives_every_sample(infer_k):
    assert xs(DataLoader(iter([{"x": i} for i in range(8)]), infer_k=infer_k)) == list(range(8))


def test_a_one_shot_iterator_is_read_again_only_from_a_cache():
    loader = DataLoader(iter([{"x": i} for i in range(8)]))
    cached = DataLoader(iter([{"x": i} for i in range(8)])).cache()

    assert xs(loader) == list(range(8))
    with pytest.raises(LoaderError, match="one-shot iterator can be read only once"):
        list(loader)
    assert xs(cached) == xs(cached) == list(range(8))
    assert cached.get_n_samples() == 8


def test_counting_never_uses_up_a_one_shot_iterator():
    loader = DataLoader(iter([{"x": i} for i in range(8)])).batch(3)

    with pytest.raises(LoaderError, match="to count the elements would use up a one-shot iterator"):
        loader.get_n_samples()
    assert xs(loader) == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.parametrize("infer_k", [0, -2, 1.5, True])
def test_infer_k_is_checked(infer_k):
    with pytest.raises(LoaderError, match="infer_k should be an int of at least 1, or -1 for every sample"):
        DataLoader(tens, infer_k=infer_k)


def test_a_late_value_is_refused_and_never_wrapped():
    def samples():
        yield from ({"x": i} for i in range(50))
        yield {"x": 2**31}

    loader = DataLoader(samples)
    seen = []
    with pytest.raises(SpecError, match="sample 50 does not fit key 'x': 2147483648 does not fit int32"):
        for element in loader:
            seen.append(int(element["x"]))
    assert seen == list(range(50))
    assert DataLoader(samples, infer_k=-1).output_signature["x"].dtype == tf.int64
    assert xs(DataLoader(samples, infer_k=-1))[-1] == 2**31


@pytest.mark.parametrize("terminal", ["iterate", "numpy", "reduce", "count"])
def test_an_error_of_the_generator_reaches_the_consumer_as_it_is(terminal):
    class BrokenDiskError(Exception):
        pass

    def samples():
        yield from ({"x": i} for i in range(5))
        raise BrokenDiskError("sector 7")

    loader = DataLoader(samples).batch(2)
    consume = {
        "iterate": lambda: list(loader),
        "numpy": lambda: list(loader.as_numpy_iterator()),
        "reduce": lambda: loader.reduce(tf.constant(0), lambda total, batch: total + tf.reduce_sum(batch["x"])),
        "count": loader.get_n_samples,
    }

    with pytest.raises(BrokenDiskError, match="sector 7"):
        consume[terminal]()


def test_errors_of_tensorflow_stay_what_they_are():
    loader = DataLoader(tens).map(lambda e: {"x": tf.ensure_shape(tf.fill([e["x"]], 1), [3])})

    with pytest.raises(tf.errors.InvalidArgumentError):
        list(loader)


def test_nested_and_every_kind_of_values_come_through():
    def samples():
        for i in range(40):
            yield {
                "inner": {"list": [i] * (i % 3), "matrix": np.full((i % 2, i % 4), i, np.float32)},
                "text": ["é"] * (i % 2),
                "frames": np.full((i % 3, 2), i, np.int16),
                "flag": i % 2 == 0,
                "image": np.full((2, 2), i, np.uint8),
            }

    loader = DataLoader(samples, infer_k=12)

    assert loader.output_signature["inner"]["matrix"] == tf.TensorSpec((None, None), tf.float32, "inner/matrix_input")
    for element, sample in zip(loader.to_numpy(), samples(), strict=True):
        assert element["inner"]["list"].tolist() == sample["inner"]["list"]
        np.testing.assert_array_equal(element["inner"]["matrix"], sample["inner"]["matrix"], strict=True)
        assert [text.decode() for text in element["text"]] == sample["text"]
        np.testing.assert_array_equal(element["frames"], sample["frames"], strict=True)
        assert element["flag"] == sample["flag"]
        np.testing.assert_array_equal(element["image"], sample["image"], strict=True)


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0], [2, 0], [0, 5, 0, 0], [3, 1, 2]])
def test_empty_lists_are_samples_like_others(lengths):
    signature = {"x": tf.TensorSpec((None,), tf.int32)}

    loader = DataLoader(lambda: ({"x": [7] * length} for length in lengths), output_signature=signature)

    assert [len(element["x"]) for element in loader] == lengths


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(0,)] * 3, id="nothing but empty lists"),
        pytest.param([(2, 0)] * 3, id="no columns"),
        pytest.param([(0, 3), (0, 1), (2, 0), (1, 2)], id="empty matrices first"),
    ],
)
def test_samples_without_values_are_samples_like_others(shapes):
    """TensorFlow's `unbatch` ends the process on them."""
    loader = DataLoader(lambda: ({"x": np.zeros(shape, np.float32)} for shape in shapes), infer_k=-1)

    assert [element["x"].shape for element in loader.to_numpy()] == shapes
    assert [element["x"].shape for element in loader.to_numpy()] == shapes


def test_a_declared_signature_is_kept_and_held_to():
    signature = {"x": tf.TensorSpec((None,), tf.int64, name="ids"), "y": tf.TensorSpec((), tf.bfloat16)}
    loader = DataLoader(lambda: iter([{"x": [1, 2], "y": 0.5}, {"x": [], "y": 1}]), output_signature=signature)

    assert loader.output_signature is signature
    assert [element["x"].numpy().tolist() for element in loader] == [[1, 2], []]
    assert [float(element["y"]) for element in loader] == [0.5, 1.0]
    with pytest.raises(SpecError, match="sample 0 does not fit key 'x': the dtype is float32, expected int64"):
        list(DataLoader(lambda: iter([{"x": [1.5], "y": 1}]), output_signature=signature))


@pytest.mark.parametrize(
    ("dtype", "fits", "refused", "words"),
    [
        ("float64", [2**53, 2**64, 0.1], 2**53 + 1, "9007199254740993 has no exact float64"),
        ("float32", [2**24, 2**100, 0.5], 2**24 + 1, "16777217 has no exact float32"),
        ("int64", [2**63 - 1, -(2**63)], 2**63, "9223372036854775808 does not fit int64"),
        ("uint64", [2**64 - 1, 2**63 + 1, 1], 2**64, "18446744073709551616 does not fit uint64"),
    ],
)
def test_a_signature_of_64_bits_keeps_every_number_or_names_the_sample(dtype, fits, refused, words):
    flat, nested = tf.TensorSpec((None,), dtype), tf.RaggedTensorSpec((None, None), dtype)

    def read(spec, values):
        return [element["x"] for element in DataLoader(lambda: ({"x": each} for each in values), None, {"x": spec})]

    assert [each.numpy().item() for each in read(tf.TensorSpec((), dtype), fits)] == fits
    assert [each.numpy().tolist() for each in read(flat, [fits, [], fits])] == [fits, [], fits]
    assert [each.to_list() for each in read(nested, [[fits, []]])] == [[fits, []]]
    for spec, bad in ((tf.TensorSpec((), dtype), refused), (flat, [1, refused]), (nested, [[1], [refused]])):
        with pytest.raises(SpecError, match=f"sample 0 does not fit key 'x': {words}"):
            read(spec, [bad])


def test_ragged_signatures_go_sample_by_sample():
    signature = {"x": tf.RaggedTensorSpec((None, None), tf.int32), "y": tf.TensorSpec(None, tf.int32)}
    samples = [{"x": [[1], [2, 3]], "y": 1}, {"x": [[]], "y": [[2]]}]

    loader = DataLoader(lambda: iter(samples), output_signature=signature)

    assert [element["x"].to_list() for element in loader] == [[[1], [2, 3]], [[]]]
    assert [element["y"].numpy().tolist() for element in loader] == [1, [[2]]]
    with pytest.raises(SpecError, match="sample 0 does not fit key 'y'"):
        list(DataLoader(lambda: iter([{"x": [[1]], "y": 1.5}]), output_signature=signature))


@pytest.mark.parametrize("signature", [tf.TensorSpec((), tf.int32), {}, {"x": tf.int32}])
def test_a_signature_is_a_dict_of_tensor_specs(signature):
    with pytest.raises(SpecError, match="output_signature"):
        DataLoader(tens, output_signature=signature)


def test_samples_that_are_no_dicts_raise_with_a_signature_too():
    with pytest.raises(SpecError, match="sample 1 is a int, expected a dict of name to value: 5"):
        list(DataLoader(lambda: iter([{"x": 1}, 5]), output_signature={"x": tf.TensorSpec((), tf.int32)}))


def test_take_reads_a_generator_hardly_further():
    read = []

    def samples():
        for i in range(10**6):
            read.append(i)
            yield {"x": i}

    loader = DataLoader(samples)
    read.clear()

    assert xs(loader.take(3)) == [0, 1, 2]
    assert len(read) <= 8


def test_leaving_an_iteration_closes_the_generator():
    closed = threading.Event()

    def samples():
        try:
            yield from ({"x": i} for i in range(10**6))
        finally:
            closed.set()

    loader = DataLoader(samples)
    closed.clear()
    for _ in loader:
        break
    gc.collect()

    assert closed.wait(60)


@pytest.mark.parametrize("n_samples", [None, 57])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(((10,), {}), id="batch(10)"),
        pytest.param(((10,), {"drop_remainder": True}), id="drop_remainder"),
        pytest.param(((10, True), {}), id="by position"),
        pytest.param(((), {"batch_size": 100}), id="one batch"),
        pytest.param(((tf.constant(10, tf.int64),), {}), id="a tensor"),
        pytest.param(((10,), {"num_parallel_calls": 2}), id="in parallel"),
    ],
)
def test_batches_from_runs_are_those_of_single_samples(arguments, n_samples):
    positional, named = arguments
    loader = DataLoader(lambda: ({"x": i, "v": [i, i + 1]} for i in range(57)), n_samples)

    batched = loader.batch(*positional, **named)

    expected = loader.dataset.batch(*positional, **named)
    assert batched.element_spec == expected.element_spec
    assert as_lists(batched) == as_lists(expected)
    assert int(batched.cardinality()) == int(expected.cardinality())
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(loader.batch(0))


# Counts


def test_counts_known_without_a_pass():
    passes = []

    def samples():
        passes.append(1)
        yield from ({"x": i} for i in range(10))

    loader = DataLoader(samples, python_iterable_n_samples=10).map(plus_one).batch(4)
    passes.clear()

    assert (len(loader), loader.get_n_samples(), loader.get_python_iterator_n_samples()) == (3, 3, 10)
    assert int(loader.cardinality()) == 3
    assert passes == []


def test_unknown_counts_are_found_by_one_pass_and_kept():
    passes = []

    def samples():
        passes.append(1)
        yield from ({"x": i} for i in range(10))

    loader = DataLoader(samples).filter(keep_even)
    passes.clear()

    with pytest.raises(TypeError):
        len(loader)
    assert loader.get_n_samples() == loader.get_n_samples() == 5
    assert loader.get_python_iterator_n_samples() == 10
    assert len(passes) == 1


def test_a_list_has_its_length():
    assert len(DataLoader([{"x": 1}, {"x": 2}])) == 2


def test_an_endless_loader_has_no_count():
    with pytest.raises(LoaderError, match="this loader never ends: it repeats for ever"):
        DataLoader([{"x": 1}]).repeat().get_n_samples()


def test_a_wrong_declared_count_raises_at_the_end():
    with pytest.raises(LoaderError, match="python_iterable_n_samples is 11, but the iterable ended after 10"):
        list(DataLoader(tens, python_iterable_n_samples=11))


def one_array():
    buffer = np.zeros(2, np.int32)
    for i in range(20):
        buffer[:] = i
        yield {"x": buffer}


def one_dict():
    sample = {"x": [0, 0], "inner": {}}
    for i in range(20):
        sample["x"][:] = [i, i]
        sample["inner"]["y"] = i
        yield sample


def one_tensor():
    buffer = torch.zeros(2)
    for i in range(20):
        buffer[:] = i
        yield {"x": buffer}


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(None, id="in_runs"),
        pytest.param({"x": tf.TensorSpec(None, tf.int32)}, id="one_by_one"),
    ],
)
def test_a_generator_may_fill_its_array_again(signature):
    loader = DataLoader(one_array, output_signature=signature).prefetch(20).batch(20)

    assert [element["x"][:, 1].tolist() for element in loader.to_numpy()] == [list(range(20))]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(one_dict, id="one_dict"),
        pytest.param(one_dict(), id="one_dict_of_an_iterator"),
        pytest.param(one_tensor, id="one_tensor"),
    ],
)
def test_a_generator_may_fill_its_sample_again(samples):
    loader = DataLoader(samples).batch(20).to_numpy()

    assert [element["x"][:, 1].tolist() for element in loader] == [list(range(20))]


def test_a_generator_function_that_needs_arguments_is_refused():
    def samples(count):
        yield {"x": count}

    with pytest.raises(LoaderError, match="samples needs some: missing a required argument: 'count'. Bind them with"):
        DataLoader(samples)
    assert xs(DataLoader(lambda: samples(3))) == [3]


def test_keys_of_several_types_are_refused():
    with pytest.raises(SpecError, match=r"sample 0 has keys of several types: \[1, 'a'\]. Use names, such as \"x\""):
        DataLoader([{1: 2, "a": 3}])
