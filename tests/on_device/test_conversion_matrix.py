"""dtype × kind × framework: the right value or a ConversionError, and never a view of a cached dataset."""

from __future__ import annotations

import threading
import time

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

from beam_pipes.errors import ConversionError, LoaderError
from beam_pipes.on_device import DataLoader, JaxDataLoader, NumpyDataLoader, TorchDataLoader

NUMPY_DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
# TensorFlow itself raises for most uses of float8: it comes from native loaders, see below.
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
EXTENDED = ["bfloat16", *FLOAT8]
DTYPES = [*NUMPY_DTYPES, "bfloat16"]
KINDS = {"scalar": (), "vector": (3,), "matrix": (2, 3), "empty": (0,), "empty matrix": (0, 3)}


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype)) if dtype in EXTENDED else np.dtype(dtype)
    count = int(np.prod(shape))
    return (np.arange(count) + 1).reshape(shape).astype(numpy_dtype) if count else np.empty(shape, numpy_dtype)


def dataset_of(*elements):
    (element,) = elements
    return tf.data.Dataset.from_tensors({"x": element})


def only(loader):
    (element,) = list(loader)
    return element["x"]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (
        tensor.to(torch.float32).numpy() if tensor.dtype.itemsize < 4 and tensor.is_floating_point() else tensor.numpy()
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_kind_becomes_the_same_numpy_array(dtype, kind):
    expected = values_of(dtype, KINDS[kind])

    found = only(DataLoader(dataset_of(tf.constant(expected))).to_numpy())

    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_kind_becomes_the_same_torch_tensor(dtype, kind):
    expected = values_of(dtype, KINDS[kind])

    found = only(DataLoader(dataset_of(tf.constant(expected))).to_torch())

    assert found.dtype == getattr(torch, dtype)
    assert tuple(found.shape) == expected.shape
    assert as_numpy(found).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_kind_becomes_a_jax_array_of_the_same_values(dtype, kind):
    expected = values_of(dtype, KINDS[kind])
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}

    found = only(DataLoader(dataset_of(tf.constant(expected))).to_jax())

    assert isinstance(found, jax.Array)
    assert found.dtype.name == narrow.get(dtype, dtype)
    assert found.shape == expected.shape
    assert np.asarray(found).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_of_native_batches_is_kept(dtype, kind):
    expected = values_of(dtype, KINDS[kind])

    (in_numpy,), (in_torch,), (in_jax,) = (
        list(loader_class([{"x": expected}])) for loader_class in (NumpyDataLoader, TorchDataLoader, JaxDataLoader)
    )

    assert (in_numpy["x"].dtype, in_jax["x"].dtype) == (expected.dtype, expected.dtype)
    assert in_torch["x"].dtype == getattr(torch, dtype)
    assert as_numpy(in_torch["x"]).tolist() == np.asarray(in_jax["x"]).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_64_bit_values_stay_64_bit_where_jax_has_them(dtype):
    expected = values_of(dtype, (3,))
    loader = DataLoader(dataset_of(tf.constant(expected))).to_jax()

    with jax.enable_x64(True):
        direct, prefetched = only(loader), only(loader.prefetch_to_devices())

    assert direct.dtype == prefetched.dtype == expected.dtype


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(np.int64(2**31), "key 'x' holds 2147483648 as int64, which int32 does not hold", id="int64"),
        pytest.param(np.array([1, -(2**31) - 1]), "holds -2147483649 as int64, which int32", id="negative int64"),
        pytest.param(np.array([2**63], np.uint64), "holds 9223372036854775808 as uint64, which uint32", id="uint64"),
        pytest.param(np.array([0.5, 0.1]), "holds 0.1 as float64, which float32 does not hold", id="float64"),
        pytest.param(np.array([1e300]), r"holds 1e\+300 as float64, which float32 does not hold", id="huge float64"),
        pytest.param(np.array([0.1j]), "holds 0.1j as complex128, which complex64 does not hold", id="complex128"),
    ],
)
def test_jax_never_gets_a_narrowed_value(value, message):
    loader = DataLoader(dataset_of(tf.constant(value)))

    with pytest.raises(ConversionError, match=message + ".*jax_enable_x64.*tf.cast"):
        list(loader.to_jax())
    with pytest.raises(ConversionError, match=message):
        list(loader.to_jax().prefetch_to_devices())
    assert only(loader.to_numpy()).tolist() == only(loader.to_torch()).tolist() == value.tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_special_floats_survive_narrowing(value):
    found = np.asarray(only(DataLoader(dataset_of(tf.constant(value, tf.float64))).to_jax()))

    assert np.array(value, np.float32).tobytes() == found.tobytes()


STRINGS = {"scalar": b"ab", "vector": [b"ab", b"\xff\x00"], "empty": []}


@pytest.mark.parametrize("kind", STRINGS)
def test_strings_become_bytes_in_numpy(kind):
    found = only(DataLoader(dataset_of(tf.constant(STRINGS[kind], tf.string))).to_numpy())

    assert (found if isinstance(found, bytes) else found.tolist()) == STRINGS[kind]


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_strings_are_an_error_elsewhere_and_can_be_skipped(framework, kind):
    dataset = tf.data.Dataset.from_tensors({"x": tf.constant(STRINGS[kind], tf.string), "y": 1})
    loader = DataLoader(dataset)

    with pytest.raises(ConversionError, match=r"key 'x' holds strings.*skip_keys=\['x'\]"):
        list(getattr(loader, framework)())
    (element,) = getattr(loader, framework)(skip_keys=["x"])
    assert isinstance(element["x"], tf.Tensor)
    assert int(element["y"]) == 1
    assert list(getattr(loader, framework)(skip_keys="x").prefetch_to_devices())[0]["x"].dtype == tf.string


def test_skip_keys_must_exist_and_work_in_nested_elements():
    nested = DataLoader(tf.data.Dataset.from_tensors(({"a": {"x": "s", "y": 1}}, {"x": 2})))

    (first, second) = next(iter(nested.to_torch(skip_keys=["x"])))
    assert isinstance(first["a"]["x"], tf.Tensor) and isinstance(second["x"], tf.Tensor)
    assert isinstance(first["a"]["y"], torch.Tensor)
    with pytest.raises(LoaderError, match=r"skip_keys names \['z'\], but the elements have the keys \['a', 'x', 'y'\]"):
        nested.to_numpy(skip_keys=["z"])


@pytest.mark.parametrize("rows", [[[1, 2], [3]], [[1, 2], [3, 4]], [[], []]], ids=["ragged", "even", "empty"])
def test_ragged_rows_are_always_rows(rows):
    loader = DataLoader(tf.data.Dataset.from_tensors({"x": tf.ragged.constant(rows, tf.int32)}))

    found = only(loader.to_numpy())
    assert found.dtype == object
    assert [row.tolist() for row in found] == rows
    for framework in (loader.to_jax, loader.to_torch):
        with pytest.raises(ConversionError, match="key 'x' holds ragged rows.*to_tensor"):
            list(framework())


@pytest.mark.parametrize(
    ("element", "message"),
    [
        pytest.param(lambda: tf.sparse.from_dense([[1, 0]]), "a SparseTensor.*tf.sparse.to_dense", id="sparse"),
        pytest.param(lambda: tf.data.Dataset.range(2), "a nested dataset.*flat_map", id="dataset"),
        pytest.param(
            lambda: tf.quantization.quantize([1.0], 0.0, 2.0, tf.qint8)[0], "a tensor of qint8", id="quantized"
        ),
    ],
)
@pytest.mark.parametrize("framework", ["to_numpy", "to_jax", "to_torch"])
def test_what_has_no_array_is_an_error(framework, element, message):
    loader = DataLoader(tf.data.Dataset.from_tensors({"x": element()}))

    with pytest.raises(ConversionError, match="key 'x' holds " + message) as raised:
        list(getattr(loader, framework)())
    assert raised.value.key == "x"


def test_a_dtype_that_torch_lacks_is_an_error():
    with pytest.raises(ConversionError, match="key 'x' holds int4 values, which torch has no array for"):
        list(TorchDataLoader([{"x": np.zeros(2, ml_dtypes.int4)}]))


def test_dates_have_no_jax_or_torch_array():
    element = {"x": np.array(["2020-01-01"], "datetime64[D]")}

    assert next(iter(NumpyDataLoader([element])))["x"].dtype == element["x"].dtype
    for loader in (JaxDataLoader([element]), TorchDataLoader([element])):
        with pytest.raises(ConversionError, match=r"key 'x' holds datetime64\[D\] values"):
            list(loader)


# A batch changed in place


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("framework", ["to_numpy", "to_torch"])
def test_changing_a_batch_in_place_never_reaches_a_cached_dataset(framework, dtype):
    expected = values_of(dtype, (16, 4))
    cached = DataLoader(tf.data.Dataset.from_tensor_slices({"x": tf.constant(expected)}).batch(16)).cache()
    loader = getattr(cached, framework)()
    list(loader)

    for batch in loader:
        batch["x"][:] = batch["x"][0, 0]

    assert only(cached.to_numpy()).tobytes() == expected.tobytes()


def test_donating_a_jax_batch_never_reaches_a_cached_dataset():
    expected = np.arange(4096, dtype=np.float32)
    cached = DataLoader(tf.data.Dataset.from_tensors({"x": expected})).cache()
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    list(cached)

    for batch in cached.to_jax():
        double(batch["x"]).block_until_ready()

    assert only(cached.to_numpy()).tobytes() == expected.tobytes()


@pytest.mark.parametrize("loader_class", [NumpyDataLoader, TorchDataLoader])
def test_changing_a_batch_in_place_never_reaches_the_arrays_it_came_from(loader_class):
    source = [{"x": np.arange(6).reshape(2, 3)[:, ::-1]}]

    for batch in loader_class(source):
        batch["x"][:] = -1

    assert source[0]["x"].tolist() == [[2, 1, 0], [5, 4, 3]]


# Structures and prefetching


def test_tuples_lists_and_nested_dicts_keep_their_structure():
    dataset = tf.data.Dataset.from_tensors(({"a": {"b": 1}}, (2, 3)))

    ((first, second),) = list(DataLoader(dataset).to_torch())

    assert first["a"]["b"].item() == 1
    assert [value.item() for value in second] == [2, 3]


@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_prefetching_gives_the_same_elements_in_the_same_order(framework):
    converted = getattr(DataLoader([{"x": i} for i in range(37)]).batch(4), framework)()

    prefetched = converted.prefetch_to_devices(size=3)

    assert [e["x"].tolist() for e in prefetched] == [e["x"].tolist() for e in converted]
    assert len(prefetched) == 10


@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_prefetching_an_empty_dataset_ends_at_once(framework):
    empty = DataLoader([{"x": 1}]).skip(1)

    assert list(getattr(empty, framework)().prefetch_to_devices()) == []


@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_errors_reach_the_consumer_of_a_prefetching_loader(framework):
    def samples():
        yield from ({"x": i} for i in range(5))
        raise ZeroDivisionError("in user code")

    seen = []
    with pytest.raises(ZeroDivisionError, match="in user code"):
        for element in getattr(DataLoader(samples), framework)().prefetch_to_devices():
            seen.append(int(element["x"]))
    assert seen == list(range(5))


@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_leaving_a_prefetching_loop_leaves_no_thread(framework):
    before = set(threading.enumerate())

    def left():
        return [t.name for t in set(threading.enumerate()) - before if t.name.startswith("beam-pipes-")]

    for _ in getattr(DataLoader.range(10**9), framework)().prefetch_to_devices():
        break
    deadline = time.monotonic() + 60
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)

    assert left() == []


@pytest.mark.parametrize("framework", ["to_jax", "to_torch"])
def test_a_prefetch_size_is_at_least_one(framework):
    with pytest.raises(LoaderError, match="at least 1 element, got 0"):
        getattr(DataLoader.range(3), framework)().prefetch_to_devices(0)


def test_torch_conversions_are_tracked():
    loader = DataLoader([{"x": 1}]).to_torch().prefetch_to_devices()

    assert loader.get_transformation_list()[1:] == [
        "midas.DataLoader.to_torch",
        "midas.TorchDataLoader.prefetch_to_devices",
    ]
    assert DataLoader([{"x": 1}]).to_numpy().get_transformation_list()[-1] == "midas.DataLoader.to_numpy"


def test_prefetched_torch_tensors_are_on_the_asked_device():
    (element,) = DataLoader([{"x": 1}]).to_torch().prefetch_to_devices(device="cpu")

    assert element["x"].device.type == "cpu"


def test_jax_arrays_go_to_the_consumers_default_device():
    device = jax.devices()[0]

    with jax.default_device(device):
        (element,) = DataLoader([{"x": 1}]).to_jax().prefetch_to_devices()

    assert element["x"].devices() == {device}
    assert jnp.add(element["x"], 1).item() == 2


def test_jax_on_a_cpu_takes_aligned_memory_over_and_copies_other():
    memory = np.zeros(4096 + 128, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    aligned = np.ndarray((32, 32), np.int32, memory, start)
    beside = np.ndarray((32, 32), np.int32, memory, start + 16)
    loader = JaxDataLoader([])
    aligned[...], expected = np.arange(1024).reshape(32, 32), np.arange(1024).reshape(32, 32).tolist()

    taken = loader._place({"x": aligned})["x"]
    assert taken.tolist() == expected
    assert taken.unsafe_buffer_pointer() == memory.__array_interface__["data"][0] + start
    copied = loader._place({"x": beside})["x"]
    assert copied.unsafe_buffer_pointer() != memory.__array_interface__["data"][0] + start + 16
    was = copied.tolist()
    beside[...] = -1

    assert copied.tolist() == was and not taken.committed and taken.sharding == jnp.zeros(1).sharding


def test_batches_of_an_iterable_never_change_below_jax():
    batch = {"x": np.zeros((16, 64), np.int32)}

    (found,) = JaxDataLoader([batch])
    batch["x"][...] = 1

    assert not found["x"].any()


def test_arrays_are_copied_where_jax_has_another_call_inside_of_device_put(monkeypatch):
    from jax._src.lib import xla_client

    from beam_pipes.on_device import jax_loader

    monkeypatch.setattr(jax_loader, "_puts", {})
    monkeypatch.delattr(xla_client, "HostBufferSemantics")

    found = JaxDataLoader([])._place({"x": np.arange(12, dtype=np.float32).reshape(3, 4)})

    assert found["x"].tolist() == np.arange(12, dtype=np.float32).reshape(3, 4).tolist()
    assert set(jax_loader._puts.values()) == {jnp.asarray}


def test_64_bit_values_are_checked_again_when_jax_takes_them_no_more():
    loader = JaxDataLoader([])
    with jax.enable_x64(True):
        assert loader._place({"x": np.array([1 << 40])})["x"].dtype == np.int64

    with pytest.raises(ConversionError, match="1099511627776"):
        loader._place({"x": np.array([1 << 40])})
