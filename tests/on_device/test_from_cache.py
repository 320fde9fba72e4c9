"""DataLoader.from_cache: the native loader's batches through tf.data and without it, exactly."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import itertools
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from shared_iterators import assert_each_comes_once_and_in_order

import beam_pipes.cache
from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    Split,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.errors import CacheNotFoundError, LoaderError, SpecError, StateMismatchError, TransformError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.world import HostSlice
from beam_pipes.on_device import DataLoader, JaxDataLoader, TorchDataLoader
from beam_pipes.on_device.from_cache import Passes
from beam_pipes.telemetry import Telemetry, diagnose_loader

FIXED = ExampleSpec(
    {"x": FeatureSpec("int32", shape=(4,)), "id": FeatureSpec("int64"), "half": FeatureSpec("bfloat16")}
)
TEXTS = ExampleSpec(
    {"tokens": FeatureSpec("int32", shape=(None,)), "text": FeatureSpec("str"), "id": FeatureSpec("int64")}
)


def write_cache(path: Path, examples, spec: ExampleSpec, *, splits=("train",)) -> Cache:
    directory = snapshot_directory(path, "0123456789abcdef")
    Path(directory).mkdir(parents=True)
    manifests = {}
    for split in splits:
        entries = []
        for number in range(2):
            with ShardWriter(directory, shard_file_name("c", split, number, 2), codec=ExampleCodec(spec)) as writer:
                for ordinal, example in enumerate(examples[number::2]):
                    writer.write(example, ordinal=ordinal)
                entries.append(writer.commit())
        manifests[split] = SplitManifest.from_entries(entries, spec=spec)
    publish(path, Manifest(name="c", snapshot="0123456789abcdef", splits=manifests))
    return Cache.open(path)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory) -> Split:
    half = FIXED["half"].numpy_dtype
    examples = [{"x": np.arange(4, dtype=np.int32) + i, "id": i, "half": half.type(i % 7)} for i in range(103)]
    return write_cache(tmp_path_factory.mktemp("fixed") / "c", examples, FIXED)["train"]


@pytest.fixture(scope="module")
def texts_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "c"
    examples = [{"tokens": np.arange(i % 5, dtype=np.int32), "text": f"né {i}", "id": i} for i in range(41)]
    write_cache(path, examples, TEXTS, splits=("train", "validation"))
    return path


@pytest.fixture(scope="module")
def texts(texts_path) -> Split:
    return Cache.open(texts_path)["train"]


def assert_same(found, expected) -> None:
    found, expected = list(found), list(expected)
    assert len(found) == len(expected)
    for element, batch in zip(found, expected, strict=True):
        assert element.keys() == batch.keys()
        for key, array in batch.items():
            value = np.asarray(element[key])
            if array.dtype == object:
                array = np.array([text.encode() if isinstance(text, str) else text for text in array], object)
            assert value.shape == array.shape
            assert value.tolist() == array.tolist()


OPTIONS = {
    "drop": {"batch_size": 8, "seed": 3},
    "pad": {"batch_size": 8, "seed": 3, "last": "pad", "epochs": 2},
    "partial": {"batch_size": 8, "seed": 4, "last": "partial", "epochs": 3},
    "hosts": {"batch_size": 9, "host_index": 1, "host_count": 2, "epochs": 2},
    "stored order": {"batch_size": 5, "shuffle": False},
    "one batch": {"batch_size": 103},
    "features": {"batch_size": 8, "features": ["id"]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tf_data_gives_the_native_loaders_batches(fixed, options):
    loader = DataLoader.from_cache(fixed, **options)
    native = Loader(fixed, **options)

    assert_same((tf.nest.map_structure(lambda t: t.numpy(), e) for e in loader), native)
    loader.set_epoch(0)
    assert_same(loader.as_numpy_iterator(), native)
    assert int(loader.cardinality()) == len(loader) == loader.get_n_samples() == len(native)
    assert loader.get_python_iterator_n_samples() == 103
    assert loader.get_transformation_list() == ["midas.DataLoader.from_cache"]


def test_full_batches_have_static_shapes_and_partial_ones_do_not(fixed, texts):
    def shapes(loader):
        return {key: spec.shape.as_list() for key, spec in loader.element_spec.items()}

    assert shapes(DataLoader.from_cache(fixed, batch_size=8)) == {"x": [8, 4], "id": [8], "half": [8]}
    assert shapes(DataLoader.from_cache(fixed, batch_size=8, last="partial"))["x"] == [None, 4]
    assert shapes(DataLoader.from_cache(texts, batch_size=8))["tokens"] == [8, None]
    assert DataLoader.from_cache(fixed, batch_size=8).element_spec["half"].dtype == tf.bfloat16


@pytest.mark.parametrize(
    "options",
    [{}, {"last": "pad"}, {"last": "partial"}, {"pad_to": 6}, {"ragged": "values", "last": "partial"}],
    ids=["drop", "pad", "partial", "pad_to", "values"],
)
def test_ragged_features_and_texts_come_through(texts, options):
    loader = DataLoader.from_cache(texts, batch_size=7, seed=1, **options)

    assert_same(loader.as_numpy_iterator(), Loader(texts, batch_size=7, seed=1, **options))
    loader.set_epoch(0)
    assert_same(loader.prefetch(1).to_numpy(), Loader(texts, batch_size=7, seed=1, **options))


def test_tf_data_transformations_follow(fixed):
    loader = DataLoader.from_cache(fixed, batch_size=8, seed=3).map(lambda b: {"id": b["id"] * 2}).take(2)

    expected = [{"id": b["id"] * 2} for b in Loader(fixed, batch_size=8, seed=3)][:2]
    assert_same(loader.to_numpy(), expected)
    loader.set_epoch(0)
    assert_same(loader.to_numpy(), expected)
    assert loader.get_transformation_list() == [
        "midas.DataLoader.from_cache",
        "tf.data.Dataset.map",
        "tf.data.Dataset.take",
    ]


@pytest.mark.parametrize("conversion", ["to_numpy", "to_torch", "to_jax"])
def test_conversions_read_the_native_loader(fixed, conversion):
    loader = getattr(DataLoader.from_cache(fixed, batch_size=8, seed=3, features=["x"]), conversion)()
    batches = list(Loader(fixed, batch_size=8, seed=3, features=["x"], epochs=2))

    assert_same(loader, batches[:12])
    assert_same(loader, batches[12:])
    assert loader.get_n_samples() == len(loader) == 12


def test_records_come_one_by_one_for_batching_by_tf_data(texts_path, texts):
    loader = DataLoader.from_cache(str(texts_path), "train", seed=5, epochs=2)

    records = list(loader.as_numpy_iterator())

    order = [int(i) for batch in Loader(texts, batch_size=41, seed=5, epochs=2) for i in batch["id"]]
    assert [int(record["id"]) for record in records] == order
    for record in records:
        stored = texts[next(i for i in range(41) if texts[i]["id"] == record["id"])]
        assert record["tokens"].tolist() == stored["tokens"].tolist()
        assert record["text"].decode() == stored["text"]
    assert loader.element_spec["tokens"] == tf.TensorSpec((None,), tf.int32)
    assert next(iter(loader.padded_batch(10)))["tokens"].shape[0] == 10
    assert loader.get_n_samples() == 82


def test_fixed_records_come_one_by_one_too(fixed):
    records = list(DataLoader.from_cache(fixed, shuffle=False).to_numpy())

    assert [record["x"].tolist() for record in records] == [fixed[i]["x"].tolist() for i in range(103)]


def test_an_endless_run_has_no_length(fixed):
    loader = DataLoader.from_cache(fixed, batch_size=50, epochs=None)
    native = Loader(fixed, batch_size=50, epochs=None)

    assert_same(loader.take(9).as_numpy_iterator(), [native.batch_at(step) for step in range(9)])
    assert int(loader.cardinality()) == tf.data.INFINITE_CARDINALITY
    with pytest.raises(TypeError):
        len(loader)


@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_a_loop_over_the_loader_gives_the_tensors_of_its_dataset(fixed, tmp_path, last):
    large = ExampleSpec({"big": FeatureSpec("float32", shape=(700,)), "flag": FeatureSpec("bool")})
    made = [{"big": np.full(700, i, np.float32), "flag": i % 2 == 0} for i in range(21)]
    for split in (fixed, write_cache(tmp_path / "large", made, large)["train"]):
        loader = DataLoader.from_cache(split, batch_size=8, seed=4, epochs=2, last=last)

        direct = list(loader)
        loader.set_epoch(0)
        through = list(loader.dataset)

        assert len(direct) == len(through) == len(loader)
        for one, other in zip(direct, through, strict=True):
            assert one.keys() == other.keys()
            for name in one:
                assert isinstance(one[name], tf.Tensor)
                assert one[name].dtype == other[name].dtype
                assert one[name].device == other[name].device
                assert np.array_equal(one[name].numpy(), other[name].numpy())


def test_texts_and_ragged_values_come_as_the_same_tensors_without_a_dataset(texts):
    loader = DataLoader.from_cache(texts, batch_size=6, ragged="values")

    direct = list(loader)
    loader.set_epoch(0)
    for one, other in zip(direct, loader.dataset, strict=True):
        assert {name: tensor.dtype for name, tensor in one.items()} == {n: t.dtype for n, t in other.items()}
        assert all(np.array_equal(one[name].numpy(), other[name].numpy()) for name in one)


def test_iterators_of_one_tf_dataset_do_not_disturb_each_other(fixed):
    dataset, other = (DataLoader.from_cache(fixed, batch_size=2, seed=9, epochs=3).dataset for _ in range(2))
    expected = [batch["id"].tolist() for batch in Loader(fixed, batch_size=2, seed=9, epochs=3)]

    pairs = tf.data.Dataset.zip((dataset, other.skip(70)))

    found = [(a["id"].numpy().tolist(), b["id"].numpy().tolist()) for a, b in pairs]
    assert found == list(zip(expected, expected[70:], strict=False))


def test_an_error_of_the_native_loader_reaches_the_consumer_of_tf_data(tmp_path):
    split = write_cache(tmp_path / "c", [{"tokens": np.arange(i), "text": "", "id": i} for i in range(40)], TEXTS)[
        "train"
    ]
    loader = DataLoader.from_cache(split, batch_size=4, shuffle=False, pad_to=30).map(lambda b: b["id"])

    seen = []
    with pytest.raises(SpecError, match="30"):
        for ids in loader:
            seen.append(ids.numpy().tolist())
    assert len(seen) == 4


def test_packing_plans_and_mixtures_are_sources(texts):
    plan = pack(texts, sequence_length=8)
    mixture = Mixture([(texts, 1), (texts, 2)], exhausted="stop")

    assert_same(DataLoader.from_cache(plan, batch_size=2).as_numpy_iterator(), Loader(plan, batch_size=2))
    assert_same(DataLoader.from_cache(mixture, batch_size=4).as_numpy_iterator(), Loader(mixture, batch_size=4))


def test_a_native_loader_continues_from_its_cursor(fixed):
    native = Loader(fixed, batch_size=8, seed=3)
    first = next(iter(native))

    assert_same(
        [first, *DataLoader.from_cache(native).take(99).as_numpy_iterator()], Loader(fixed, batch_size=8, seed=3)
    )


@pytest.mark.parametrize("width", [300, 300_000], ids=["in_groups", "step_by_step"])
def test_a_state_restored_into_a_native_loader_is_where_the_next_iteration_begins(tmp_path, width):
    row = ExampleSpec({"big": FeatureSpec("float32", shape=(width,)), "id": FeatureSpec("int64")})
    made = [{"big": np.full(width, i, np.float32), "id": i} for i in range(24)]
    split = write_cache(tmp_path / "cache", made, row)["train"]
    expected = [batch["id"].tolist() for batch in Loader(split, batch_size=2, seed=3, epochs=2)]
    native = Loader(split, batch_size=2, seed=3, epochs=2)
    states = []
    for _ in native:
        states.append(native.state_dict())
    native.reset()
    loader = DataLoader.from_cache(native)
    mapped = loader.map(lambda batch: {"id": batch["id"]}).prefetch(2)

    for done in (5, 0, 17):
        native.load_state_dict(states[done])
        left = expected[done + 1 :]
        assert [element["id"].tolist() for element in mapped.as_numpy_iterator()] == left
        assert (len(loader), loader.get_n_samples(), mapped.get_n_samples()) == (len(left),) * 3
    native.load_state_dict(states[-1])
    assert list(mapped.as_numpy_iterator()) == []
    assert (len(loader), loader.get_n_samples(), mapped.get_n_samples()) == (0, 0, 0)
    native.reset()
    assert [element["id"].tolist() for element in mapped.as_numpy_iterator()] == expected


def test_tf_data_continues_after_a_change_of_a_mixtures_rates(fixed):
    def changed():
        loader = Loader(Mixture([(fixed, 1), (fixed, 1)], exhausted="drop"), batch_size=8, epochs=2, seed=1)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        loader.set_rates([1, 0])
        return loader

    assert_same(DataLoader.from_cache(changed()).map(lambda batch: batch).as_numpy_iterator(), changed())


def test_a_state_inside_a_step_is_refused_when_the_iteration_begins(fixed):
    other = Loader(fixed, batch_size=4, seed=3)
    next(iter(other))
    native = Loader(fixed, batch_size=8, seed=3)
    mapped = DataLoader.from_cache(native).map(lambda batch: batch)
    native.load_state_dict(other.state_dict())

    with pytest.raises(LoaderError, match="tf.data reads whole steps, and this loader stands inside one"):
        next(iter(mapped))


# State through conversions and prefetching


@pytest.mark.parametrize("prefetch", [False, True], ids=["direct", "prefetched"])
@pytest.mark.parametrize("stop", [0, 1, 5, 11, 12])
def test_the_state_is_that_of_the_last_batch_handed_out(fixed, stop, prefetch):
    expected = [batch["id"].tolist() for batch in Loader(fixed, batch_size=8, seed=3)]
    torch_loader = DataLoader.from_cache(Loader(fixed, batch_size=8, seed=3)).to_torch(skip_keys=["half"])
    jax_loader = JaxDataLoader(Loader(fixed, batch_size=8, seed=3))
    if prefetch:
        torch_loader, jax_loader = torch_loader.prefetch_to_devices(3), jax_loader.prefetch_to_devices(3)

    seen = []
    iterator = iter(torch_loader)
    for _ in range(stop):
        seen.append(next(iterator)["id"].tolist())
    state = torch_loader.state_dict()
    iterator.close()
    after_leaving = torch_loader.state_dict()
    jax_loader.load_state_dict(state)
    rest = [batch["id"].tolist() for batch in jax_loader]

    assert state == after_leaving
    assert seen == expected[:stop]
    assert rest == expected[stop:]


def test_leaving_a_prefetched_loop_and_entering_it_again_loses_nothing(fixed):
    loader = TorchDataLoader(Loader(fixed, batch_size=8, seed=3)).prefetch_to_devices()
    seen = []
    for batch in loader:
        seen.append(batch["id"].tolist())
        if len(seen) == 4:
            break
    seen.extend(batch["id"].tolist() for batch in loader)

    assert seen == [batch["id"].tolist() for batch in Loader(fixed, batch_size=8, seed=3)]


def test_only_loaders_over_a_finite_cache_have_a_state(fixed):
    mapped = DataLoader.from_cache(fixed, batch_size=8).map(lambda batch: batch)
    with pytest.raises(LoaderError, match="only a loader over a finite cache has a state"):
        mapped.to_torch().state_dict()
    with pytest.raises(LoaderError, match="only a loader over a finite cache has a state"):
        DataLoader.from_cache(Mixture([(fixed, 1), (fixed, 1)]), batch_size=8, epochs=None).to_torch().state_dict()


@pytest.mark.parametrize("prefetches", [False, True])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("conversion", ["to_numpy", "to_torch", "to_jax"])
def test_a_conversion_continues_inside_its_pass_and_then_with_the_next(fixed, conversion, epochs, prefetches):
    def converted():
        loader = getattr(DataLoader.from_cache(fixed, batch_size=8, seed=3, epochs=epochs), conversion)()
        return loader.prefetch_to_devices() if prefetches and conversion != "to_numpy" else loader

    def ids(batches):
        return [np.asarray(batch["id"]).tolist() for batch in batches]

    every = converted()
    passes = [ids(every) for _ in range(4)]
    steps = len(passes[0])
    assert len({str(one) for one in passes}) == 4  # each has its own order

    loader = converted()
    states = [loader.state_dict()]
    for number in range(2):
        for step, batch in enumerate(loader):
            assert ids([batch]) == [passes[number][step]]
            states.append(loader.state_dict())
    for done, state in enumerate(states):
        number, step = divmod(done, steps)
        restored = converted()
        restored.load_state_dict(state)
        assert ids(restored) == passes[number][step:]
        assert ids(restored) == passes[number + 1]

    left = converted()
    assert ids(itertools.islice(left, 2)) == passes[0][:2]
    again = converted()
    again.load_state_dict(left.state_dict())
    assert ids(again) == passes[0][2:]
    assert ids(left) == passes[1]  # a loop that was left is over: the next one is the next pass


def test_of_two_threads_that_begin_one_continues_where_the_state_says(fixed):
    opened = functools.partial(Loader, fixed, batch_size=8, seed=3)
    passes = Passes(1, opened)
    left = passes.open()
    read = [batch["id"].tolist() for batch in itertools.islice(left, 2)]
    passes.load_state_dict(left.state_dict())

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        with passes._lock:
            begun = [threads.submit(passes.open) for _ in range(2)]
            time.sleep(0.2)  # both wait for the lock, with what they have read before it
        rest, following = sorted((one.result() for one in begun), key=lambda loader: loader.state_dict()["epoch"])

    every = [batch["id"].tolist() for batch in opened(epochs=2)]
    steps = len(every) // 2
    assert read + [batch["id"].tolist() for batch in rest] == every[:steps]
    assert [batch["id"].tolist() for batch in following] == every[steps:]


def test_a_state_of_other_data_is_refused_when_it_is_loaded(fixed, texts):
    state = DataLoader.from_cache(fixed, batch_size=8).to_torch().state_dict()
    with pytest.raises(StateMismatchError, match="another sequence of rows"):
        DataLoader.from_cache(texts, batch_size=2).to_torch().load_state_dict(state)


# Shapes that are known beforehand


@pytest.mark.parametrize(
    ("make", "known"),
    [
        pytest.param(lambda texts: texts, {"tokens": (2, None), "id": (2,), "text": (2,)}, id="split"),
        pytest.param(
            lambda texts: Mixture([(texts, 1), (texts, 1)], exhausted="drop"),
            {"tokens": (2, None), "id": (2,), "text": (2,)},
            id="mixture",
        ),
        pytest.param(
            lambda texts: pack(texts, sequence_length=40),
            {"tokens": (2, 40), "segment_ids": (2, 40), "positions": (2, 40)},
            id="packed",
        ),
    ],
)
@pytest.mark.parametrize("last", ["drop", "pad", "partial"])
def test_the_element_spec_is_that_of_every_batch(texts, make, known, last):
    expected = {name: shape if last != "partial" else (None, *shape[1:]) for name, shape in known.items()}
    if last == "pad":
        expected["valid"] = (2,)

    loader = DataLoader.from_cache(make(texts), batch_size=2, last=last).map(lambda batch: batch)

    assert {name: tuple(spec.shape) for name, spec in loader.element_spec.items()} == expected
    for batch in loader:
        assert all(spec.is_compatible_with(batch[name]) for name, spec in loader.element_spec.items())


def test_a_width_that_is_asked_for_is_in_the_element_spec(texts):
    mixture = Mixture([(texts, 1), (texts, 1)], exhausted="drop")

    loader = DataLoader.from_cache(mixture, batch_size=2, pad_to=40, features=["tokens"]).map(lambda batch: batch)

    assert tuple(loader.element_spec["tokens"].shape) == (2, 40)


# Iterating: threads, ends, failures, copies


class FailsOn:
    """A transform that fails on one row, whatever group it comes in."""

    def __init__(self, bad):
        self.bad = bad

    def __call__(self, batch):
        if (batch["id"] == self.bad).any():
            raise ValueError("no such colour")
        return {"id": batch["id"], "text": np.array([f"{i}".encode() for i in batch["id"].tolist()], object)}


FORMS = {
    "tensors": DataLoader.from_cache,
    "mapped": lambda loader: DataLoader.from_cache(loader).map(lambda batch: batch),
    "tensors_of_path": lambda loader: DataLoader.from_cache(
        **{"cache" if name == "source" else name: option for name, option in vars(loader._options).items()}
    ),
    "torch": lambda loader: TorchDataLoader(loader, skip_keys=["half", "text"]),
    "torch_prefetched": lambda loader: TorchDataLoader(loader, skip_keys=["half", "text"]).prefetch_to_devices(3),
    "jax": lambda loader: JaxDataLoader(loader, skip_keys=["half", "text"]),
    "jax_prefetched": lambda loader: JaxDataLoader(loader, skip_keys=["half", "text"]).prefetch_to_devices(3),
    "numpy": lambda loader: DataLoader.from_cache(loader).to_numpy(),
    "telemetry": Telemetry,
}
STATEFUL = ["torch", "torch_prefetched", "jax", "jax_prefetched", "numpy"]


def ids(elements, count=None):
    return [np.asarray(element["id"]).tolist() for element in itertools.islice(elements, count)]


@pytest.mark.parametrize("form", FORMS)
def test_threads_that_share_an_iterator_get_each_element_once(fixed, form):
    expected = ids(Loader(fixed, batch_size=2, seed=3))
    elements = iter(FORMS[form](Loader(fixed, batch_size=2, seed=3)))

    assert_each_comes_once_and_in_order(elements, expected, number_of=lambda batch: np.asarray(batch["id"]).tolist())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [4, 62, 101])
def test_what_is_in_front_of_a_failure_comes_before_it_whatever_is_read_at_once(fixed, form, bad):
    options = {"batch_size": 2, "shuffle": False, "last": "pad", "features": ["id"]}
    loader = FORMS[form](Loader(fixed, transform=FailsOn(bad), **options))
    seen = []
    record = bad // 2 if bad % 2 == 0 else 52 + bad // 2
    due = record // 2

    with pytest.raises(TransformError, match=f"This is record {record} of split 'train'") as caught:
        for element in loader:
            seen.append(np.asarray(element["id"]).tolist())

    assert seen == ids(Loader(fixed, **options))[:due]
    assert caught.value.position == 2 * due
    if form in STATEFUL:
        repaired = FORMS[form](Loader(fixed, **options))
        repaired.load_state_dict(loader.state_dict())
        assert ids(repaired) == ids(Loader(fixed, **options))[due:]


@pytest.mark.parametrize("form", [*STATEFUL, "mapped"])
def test_a_restored_end_is_an_end_and_what_is_left_of_another_batch_size_too(fixed, form):
    finished = Loader(fixed, batch_size=8, seed=3, last="partial")
    states = [finished.state_dict() for _ in finished]

    for state, batch_size, left in ((states[-1], 8, 0), (states[-2], 10, 0), (states[-2], 4, 1), (states[-3], 8, 1)):
        native = Loader(fixed, batch_size=batch_size, seed=3)
        loader = FORMS[form](native)
        native.load_state_dict(state)
        assert (len(ids(loader)), native.steps_left) == (left, left if form == "mapped" or not left else len(native))
        if not left:
            assert ids(loader) == []


@pytest.mark.parametrize("form", STATEFUL)
def test_leaving_a_loop_at_its_last_element_is_not_a_restored_end(fixed, form):
    loader = FORMS[form](Loader(fixed, batch_size=8, seed=3))
    whole = ids(loader)

    assert ids(loader, len(whole)) == whole  # left without having asked for more
    assert ids(loader) == whole


@pytest.mark.parametrize("form", STATEFUL)
def test_of_two_iterators_the_newer_one_continues_and_the_older_one_says_so(fixed, form):
    whole = ids(Loader(fixed, batch_size=8, seed=3))
    loader = FORMS[form](Loader(fixed, batch_size=8, seed=3))
    older = iter(loader)
    seen = ids(older, 3)
    newer = iter(loader)
    seen += ids(newer, 2)

    with pytest.raises(LoaderError, match="was closed, or replaced by a newer one of the same loader"):
        next(older)

    state = loader.state_dict()
    assert seen + ids(newer) == whole
    again = FORMS[form](Loader(fixed, batch_size=8, seed=3))
    again.load_state_dict(state)
    assert ids(again) == whole[5:]


@pytest.mark.parametrize("form", ["torch_prefetched", "jax_prefetched"])
def test_a_state_restored_in_the_middle_of_a_prefetched_loop_is_where_the_next_one_begins(fixed, form):
    loader = FORMS[form](Loader(fixed, batch_size=8, seed=3))
    whole, states = [], [loader.state_dict()]
    for element in loader:
        whole.append(np.asarray(element["id"]).tolist())
        states.append(loader.state_dict())

    for _ in loader:
        loader.load_state_dict(states[7])
        break

    assert ids(loader) == whole[7:]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize("form", ["tensors_of_path", *STATEFUL])
def test_copies_of_loaders_over_a_cache_continue_by_themselves(fixed, form, way):
    loader = FORMS[form](Loader(fixed, batch_size=8, seed=3))
    whole = ids(way(loader))
    elements = iter(loader)
    begun = ids(elements, 4)

    copied = way(loader)

    expected = {"tensors_of_path": ids(Loader(fixed, batch_size=8, seed=3, epochs=2))[len(whole) :]}.get(form, whole)
    assert ids(copied) == (whole[4:] if form in STATEFUL else expected)
    assert begun + ids(elements) == whole == ids(Loader(fixed, batch_size=8, seed=3))


def test_what_cannot_be_copied_says_what_can_be(fixed):
    mapped = DataLoader.from_cache(fixed, batch_size=8).map(lambda batch: batch)
    sharded = DataLoader.from_cache(fixed, batch_size=8).to_jax(skip_keys=["half"]).shard()

    for refused in (copy.deepcopy, pickle.dumps):
        with pytest.raises(LoaderError, match="a DataLoader over tf.data belongs to its process .* make it where it"):
            refused(mapped)
        with pytest.raises(LoaderError, match=r"a Telemetry, .* belongs to its process .* Send its loader, and wrap"):
            refused(Telemetry(Loader(fixed, batch_size=8)))
        for elements in (iter(mapped), iter(sharded), iter(Telemetry(Loader(fixed, batch_size=8)))):
            with pytest.raises(LoaderError, match="an iterator belongs to its process and cannot be pickled or copied"):
                refused(elements)
    with pytest.raises(
        LoaderError, match=r"with shard\(…\), which holds devices, .* Pickle it before \.shard, and call"
    ):
        pickle.dumps(sharded)
    assert ids(copy.deepcopy(sharded)) == ids(copy.copy(mapped)) == ids(sharded)


# Wrong use


def test_wrong_use_is_named(fixed, texts_path, texts):
    with pytest.raises(CacheNotFoundError, match="this is a cache with 'train', 'validation'. Write .*/train' or "):
        DataLoader.from_cache(texts_path, batch_size=2)
    with pytest.raises(LoaderError, match="split='train' chooses a split of a cache, and this is a Split"):
        DataLoader.from_cache(fixed, "train", batch_size=2)
    with pytest.raises(LoaderError, match="a native Loader has its own options; leave out batch_size, seed"):
        DataLoader.from_cache(Loader(fixed, batch_size=2), batch_size=2, seed=1)
    with pytest.raises(LoaderError, match="103 rows give no batch of 200"):
        DataLoader.from_cache(fixed, batch_size=200)
    with pytest.raises(LoaderError, match="103 rows give no batch of 200"):
        DataLoader.from_cache(fixed, batch_size=200, epochs=None)
    with pytest.raises(LoaderError, match="last, pad_to describe batches, and records are read one by one"):
        DataLoader.from_cache(texts, last="pad", pad_to=4)
    with pytest.raises(LoaderError, match="transform= makes batches of batches, .*: use .map, or batch_size"):
        DataLoader.from_cache(fixed, transform=lambda batch: {"y": batch["x"] * 2})
    with pytest.raises(LoaderError, match="only the records of a split can be read one by one; pass batch_size"):
        DataLoader.from_cache(Mixture([(fixed, 1)]))


def test_numpy_and_torch_users_of_a_cache_need_no_tensorflow(texts_path):
    program = f"""
import sys
sys.modules["tensorflow"] = None  # importing it raises
sys.modules["jax"] = None
from beam_pipes import DataLoader
loader = DataLoader.from_cache({str(texts_path)!r}, "train", batch_size=4, features=["tokens", "id"])
assert len(list(loader.to_numpy())) == len(loader) == 10
assert sum(len(batch["id"]) for batch in loader.to_torch().prefetch_to_devices()) == 40
assert loader.get_n_samples() == 10
"""
    finished = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)

    assert finished.returncode == 0, finished.stderr


def test_a_slow_transformation_of_tf_data_is_named(fixed) -> None:
    def slowly(ids):
        time.sleep(0.05)
        return ids

    native = Loader(fixed, batch_size=4)
    loader = DataLoader.from_cache(native).map(lambda batch: {"id": tf.py_function(slowly, [batch["id"]], tf.int64)})
    found = diagnose_loader(loader, step_ms=1, batches=3)

    assert found.stage == "transform" and found.input_bound is True
    assert set(found.stage_ms) == {"storage read", "gather", "transform"} and native.step == 0


def test_tensors_are_counted_as_arrays_are(texts) -> None:
    expected = Telemetry(Loader(texts, batch_size=5, pad_to=4), tokens="tokens")
    watched = Telemetry(DataLoader.from_cache(texts, batch_size=5, pad_to=4), tokens="tokens")
    assert len(list(expected)) == len(list(watched)) == 8

    assert watched.totals().rows == 40 and watched.totals().tokens == expected.totals().tokens


def test_a_pipeline_of_tf_data_keeps_the_share_it_was_made_with(fixed):
    loader = Loader(fixed, batch_size=8)
    mapped = DataLoader.from_cache(loader).map(lambda batch: batch["id"])
    assert len(next(iter(mapped))) == 8

    loader.take_share(HostSlice(index=1, count=2))

    with pytest.raises(
        LoaderError,
        match=r"made of slice 0 of 1 of each global batch, and this process reads slice 1 of 2 now\. Create it again, "
        r"after init_process_group or jax.distributed.initialize\.",
    ):
        list(mapped)
    assert len(next(iter(DataLoader.from_cache(loader).map(lambda batch: batch["id"])))) == 4


@pytest.mark.parametrize("steps", [3, 40])  # before and after a program is compiled for the shape
def test_arrays_of_jax_keep_their_values_whatever_is_read_later(tmp_path, steps):
    import jax

    features = {"x": FeatureSpec("int32", shape=(512,))}
    rows = ({"x": np.full(512, i, np.int32)} for i in range(steps * 8))
    split = beam_pipes.cache.write_cache(tmp_path / "cache", {"train": rows}, features=features)["train"]
    placed = [batch["x"] for batch in JaxDataLoader(Loader(split, batch_size=8, shuffle=False))]
    for batch in Loader(split, batch_size=8, shuffle=False):  # memory that was given back is used again
        batch["x"][...] = -1

    for number, array in enumerate(placed):
        assert isinstance(array, jax.Array) and array.dtype == np.int32
        assert np.asarray(array)[:, 0].tolist() == list(range(8 * number, 8 * number + 8))


def test_a_tensor_of_torch_takes_the_batch_over_and_a_transforms_array_is_copied(tmp_path):
    split = beam_pipes.cache.write_cache(tmp_path / "cache", {"train": [{"x": np.arange(64)} for _ in range(8)]})[
        "train"
    ]
    constant = np.zeros((4, 3), np.int32)

    def with_constant(batch):
        return {**batch, "constant": constant[: len(batch["x"])]}

    plain = TorchDataLoader(Loader(split, batch_size=4))
    shared = TorchDataLoader(Loader(split, batch_size=4, transform=with_constant))

    for batch in plain:
        batch["x"] += 1  # its own, and writable
    for batch in shared:
        batch["constant"] += 1

    assert not constant.any()
    assert Loader(split, batch_size=4)._reader.gives_own_arrays
    assert not Loader(split, batch_size=4, transform=with_constant)._reader.gives_own_arrays
