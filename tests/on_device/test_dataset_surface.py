"""DataLoader's public surface is tf.data.Dataset's: chaining, tracking, terminal methods, LambdaDataLoader."""

from __future__ import annotations

import pytest
import tensorflow as tf

from beam_pipes.errors import LoaderError
from beam_pipes.on_device import DataLoader, LambdaDataLoader
from beam_pipes.on_device.data_loader import dataset_members


def tens():
    return ({"x": i} for i in range(10))


def xs(loader):
    return [element["x"].numpy().tolist() for element in loader]


def keep_even(element):
    return element["x"] % 2 == 0


def plus_one(element):
    return {"x": element["x"] + 1}


# The surface of Dataset

TRANSFORMATIONS = {
    "apply": lambda d: d.apply(lambda inner: inner.take(2)),
    "batch": lambda d: d.batch(3),
    "bucket_by_sequence_length": lambda d: d.bucket_by_sequence_length(lambda e: 1, [5], [2, 2]),
    "cache": lambda d: d.cache(),
    "concatenate": lambda d: d.concatenate(d),
    "enumerate": lambda d: d.enumerate(),
    "filter": lambda d: d.filter(keep_even),
    "flat_map": lambda d: d.flat_map(lambda e: tf.data.Dataset.from_tensors(e).repeat(2)),
    "group_by_window": lambda d: d.group_by_window(lambda e: 0, lambda key, window: window.batch(2), 2),
    "ignore_errors": lambda d: d.ignore_errors(),
    "interleave": lambda d: d.interleave(lambda e: tf.data.Dataset.from_tensors(e), cycle_length=2),
    "map": lambda d: d.map(plus_one),
    "padded_batch": lambda d: d.padded_batch(4),
    "prefetch": lambda d: d.prefetch(2),
    "ragged_batch": lambda d: d.ragged_batch(4),
    "rebatch": lambda d: d.batch(4).rebatch(3),
    "rejection_resample": lambda d: d.rejection_resample(lambda e: e["x"] % 2, [0.5, 0.5], [0.5, 0.5], seed=1),
    "repeat": lambda d: d.repeat(2),
    "scan": lambda d: d.scan(tf.constant(0, tf.int32), lambda state, e: (state + e["x"], {"x": state})),
    "shard": lambda d: d.shard(2, 1),
    "shuffle": lambda d: d.shuffle(5, seed=3),
    "skip": lambda d: d.skip(2),
    "snapshot": lambda d, path: d.snapshot(path),
    "sparse_batch": lambda d: d.map(lambda e: tf.expand_dims(e["x"], 0)).sparse_batch(2, [1]).map(tf.sparse.to_dense),
    "take": lambda d: d.take(4),
    "take_while": lambda d: d.take_while(lambda e: e["x"] < 4),
    "unbatch": lambda d: d.batch(3).unbatch(),
    "unique": lambda d: d.map(lambda e: e["x"] // 2).unique(),
    "window": lambda d: d.window(2).flat_map(lambda w: w["x"].batch(2)),
    "with_options": lambda d: d.with_options(tf.data.Options()),
}
TERMINAL = {
    "as_numpy_iterator": lambda d: list(d.as_numpy_iterator()),
    "cardinality": lambda d: int(d.cardinality()),
    "fingerprint": lambda d: d.fingerprint().dtype,
    "get_single_element": lambda d: d.take(1).get_single_element(),
    "options": lambda d: d.options(),
    "reduce": lambda d: int(d.reduce(tf.constant(0, tf.int32), lambda total, e: total + e["x"])),
}


def as_lists(dataset):
    return tf.nest.map_structure(lambda value: value.tolist(), list(dataset.as_numpy_iterator()))


def test_every_public_method_of_dataset_is_tried_here():
    methods = {name for name, kind in dataset_members().items() if kind == "method"}

    assert methods == {*TRANSFORMATIONS, *TERMINAL, "save"}


@pytest.mark.parametrize("name", sorted(TRANSFORMATIONS))
def test_a_transformation_chains_is_tracked_and_does_what_dataset_does(name, tmp_path):
    # Function objects are shared, so that both sides trace the same code.
    paths = ([str(tmp_path / "ours")], [str(tmp_path / "theirs")]) if name == "snapshot" else ([], [])
    loader = DataLoader([{"x": i} for i in range(10)])

    transformed = TRANSFORMATIONS[name](loader, *paths[0])
    expected = TRANSFORMATIONS[name](loader.dataset, *paths[1])

    assert isinstance(transformed, DataLoader)
    assert transformed.element_spec == expected.element_spec
    assert as_lists(transformed) == as_lists(expected)
    if name not in ("sparse_batch", "window", "unique"):
        assert transformed.get_transformation_list()[-1] == f"tf.data.Dataset.{name}"
    assert loader.get_transformation_list() == ["tf.data.Dataset.from_generator"]


@pytest.mark.parametrize("name", sorted(TERMINAL))
def test_a_terminal_method_behaves_as_on_dataset(name):
    loader = DataLoader([{"x": i} for i in range(10)])

    assert TERMINAL[name](loader) == TERMINAL[name](loader.dataset)


def test_a_saved_loader_is_loaded_as_a_loader(tmp_path):
    DataLoader(tens).save(str(tmp_path / "saved"))

    loaded = DataLoader.load(str(tmp_path / "saved"))

    assert xs(loaded) == list(range(10))
    assert loaded.get_transformation_list() == ["tf.data.Dataset.load"]


def test_static_constructors_give_loaders():
    assert [int(e) for e in DataLoader.range(3)] == [0, 1, 2]
    assert [int(e) for e in DataLoader.from_tensor_slices([4, 5]).map(lambda e: e + 1)] == [5, 6]
    assert DataLoader.range(3).get_transformation_list() == ["tf.data.Dataset.range"]
    assert DataLoader.range(3).get_python_iterator_n_samples() == 3
    chosen = DataLoader.choose_from_datasets([DataLoader.range(2), DataLoader.range(7, 9)], DataLoader.range(2))
    assert [int(e) for e in chosen] == [0, 7]
    assert isinstance(DataLoader.sample_from_datasets([DataLoader.range(2)], seed=1), DataLoader)


def test_methods_are_there_on_the_class_and_in_dir():
    assert xs(DataLoader.take(DataLoader(tens), 2)) == [0, 1]
    assert {"map", "range", "to_jax"} <= set(dir(DataLoader)) & set(dir(DataLoader(tens)))
    assert DataLoader(tens).map.__doc__ == tf.data.Dataset.map.__doc__


@pytest.mark.parametrize(
    "zipped",
    [
        pytest.param(lambda a, b: a.zip(b), id="a.zip(b)"),
        pytest.param(lambda a, b: a.zip((a, b)), id="a.zip((a, b))"),
        pytest.param(lambda a, b: DataLoader.zip(a, b), id="DataLoader.zip(a, b)"),
        pytest.param(lambda a, b: DataLoader.zip((a, b.dataset)), id="a loader and a dataset"),
    ],
)
def test_loaders_zip(zipped):
    a, b = DataLoader(tens), DataLoader(tens).map(plus_one)

    pairs = zipped(a, b)

    assert [(int(x["x"]), int(y["x"])) for x, y in pairs] == [(i, i + 1) for i in range(10)]
    assert pairs.get_transformation_list() == ["tf.data.Dataset.from_generator", "tf.data.Dataset.zip"]


def test_loaders_zip_by_name():
    both = DataLoader.zip({"a": DataLoader(tens), "b": DataLoader.range(10)})

    assert both.element_spec["a"]["x"].dtype == tf.int32
    assert int(list(both)[3]["b"]) == 3


def test_loaders_concatenate_with_loaders_and_datasets():
    a = DataLoader(tens).take(2)

    assert xs(a.concatenate(DataLoader(tens).skip(8))) == [0, 1, 8, 9]
    assert xs(a.concatenate(DataLoader(tens).skip(8).dataset)) == [0, 1, 8, 9]


def test_an_error_of_a_second_source_reaches_the_consumer_too():
    def broken():
        yield {"x": 1}
        raise ZeroDivisionError("second source")

    with pytest.raises(ZeroDivisionError, match="second source"):
        list(DataLoader(tens).concatenate(DataLoader(broken)))


def test_apply_may_return_a_loader():
    assert xs(DataLoader(tens).apply(lambda dataset: DataLoader(dataset).take(1))) == [0]


def test_a_dataset_is_a_source():
    loader = DataLoader(tf.data.Dataset.from_tensor_slices({"x": [1, 2, 3]})).map(plus_one)

    assert xs(loader) == [2, 3, 4]
    assert loader.get_transformation_list() == ["tf.data.Dataset.map"]
    assert loader.output_signature == {"x": tf.TensorSpec((), tf.int32)}
    assert loader.get_python_iterator_n_samples() == loader.get_n_samples() == 3


def test_a_loader_is_a_source():
    loader = DataLoader(DataLoader(tens).batch(5))

    assert loader.get_transformation_list() == ["tf.data.Dataset.from_generator", "tf.data.Dataset.batch"]
    assert len(xs(loader)) == 2


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="DataLoader has no 'mapp', and neither has tf.data.Dataset"):
        DataLoader(tens).mapp  # noqa: B018
    with pytest.raises(AttributeError, match="'element_spec' belongs to a loader, not to the class"):
        DataLoader.element_spec  # noqa: B018
    with pytest.raises(AttributeError, match="JaxDataLoader has no 'batch'. tf.data transformations go before"):
        DataLoader(tens).to_jax().batch(2)


def test_a_loader_is_true_and_introduces_itself():
    loader = DataLoader([{"x": 1}]).skip(1)

    assert loader
    assert repr(loader) == "<DataLoader tf.data.Dataset.from_generator → tf.data.Dataset.skip>"


def test_prefetching_by_tensorflow_itself():
    loader = DataLoader(tens).batch(5).prefetch_to_devices(3)

    assert xs(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert loader.get_transformation_list()[-1] == "midas.DataLoader.prefetch_to_devices"
    with pytest.raises(LoaderError, match="size of at least 1, got 0"):
        DataLoader(tens).prefetch_to_devices(0)


# LambdaDataLoader


class ToLists(LambdaDataLoader):
    def lambda_transformation(self, sample):
        return {key: value.numpy().tolist() for key, value in sample.items()}


def test_a_subclass_of_lambda_data_loader_converts():
    loader = DataLoader(tens).batch(5).to_lambdaDataLoader(ToLists)

    assert list(loader) == [{"x": [0, 1, 2, 3, 4]}, {"x": [5, 6, 7, 8, 9]}]
    assert loader.get_transformation_list()[-1] == "ToLists"
    assert loader.get_n_samples() == 2
    assert loader.get_python_iterator_n_samples() == 10


def test_a_plain_function_converts():
    assert list(DataLoader(tens).take(2).to_lambdaDataLoader(lambda sample: int(sample["x"]) * 10)) == [0, 10]


def test_a_lambda_data_loader_stands_alone():
    assert list(LambdaDataLoader([1, 2], lambda_transformation=str)) == ["1", "2"]
    assert len(LambdaDataLoader([1, 2], str)) == 2


def test_what_has_no_lambda_transformation_is_refused():
    class Nothing(LambdaDataLoader):
        pass

    with pytest.raises(LoaderError, match="Nothing has no lambda_transformation"):
        DataLoader(tens).to_lambdaDataLoader(Nothing)
    with pytest.raises(LoaderError, match="expects a subclass of LambdaDataLoader or a function"):
        DataLoader(tens).to_lambdaDataLoader(dict)
    with pytest.raises(LoaderError, match="expected a DataLoader or an iterable of elements, got int"):
        LambdaDataLoader(5, str)
