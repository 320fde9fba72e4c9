"""Suggestions from the list of transformations, and rewrites that keep the elements bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from beam_pipes import write_cache
from beam_pipes.on_device import DataLoader

SOURCE = "tf.data.Dataset.from_generator"


def samples():
    draws = np.random.default_rng(0)
    for i in range(57):
        yield {"x": i, "y": i * 3, "f": float(draws.normal()), "v": draws.normal(size=3).astype(np.float32)}


def add_column(e):
    return {**e, "z": tf.cast(e["x"], tf.float32) * 2.5 + e["f"]}


def even_y(e):
    return e["y"] % 2 == 0


def doubled(e):
    return {key: value * 2 for key, value in e.items()}


def labels(loader):
    return [label.rpartition(".")[2] for label in loader.get_transformation_list()]


def assert_same_elements(loader, other):
    assert loader.element_spec == other.element_spec
    ours, theirs = list(loader.as_numpy_iterator()), list(other.as_numpy_iterator())
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert list(a) == list(b)
        for key in a:
            assert a[key].tobytes() == b[key].tobytes()


REWRITTEN = {
    "a filter that reads what the map passes on": (
        lambda d: d.map(add_column).filter(even_y),
        ["from_generator", "filter", "map"],
    ),
    "a filter through two maps, and a batch": (
        lambda d: d.map(add_column).map(add_column).filter(even_y).map(doubled).batch(8, drop_remainder=True),
        ["from_generator", "filter", "map", "map", "map", "batch"],
    ),
    "a filter on a column that the map renames": (
        lambda d: d.map(lambda e: {"new": e["y"], "x": e["x"] + 1}).filter(lambda e: e["new"] % 2 == 0),
        ["from_generator", "filter", "map"],
    ),
    "a predicate that looks at the form of the element": (
        lambda d: d.map(add_column).filter(lambda e: e["y"] % len(e) == 0),
        ["from_generator", "filter", "map"],
    ),
    "a parallel map in order": (
        lambda d: d.map(add_column, num_parallel_calls=2).filter(even_y),
        ["from_generator", "filter", "map"],
    ),
    "what follows is kept": (
        lambda d: d.map(add_column).filter(even_y).shuffle(9, seed=4).batch(3),
        ["from_generator", "filter", "map", "shuffle", "batch"],
    ),
}


@pytest.mark.parametrize(("chain", "order"), REWRITTEN.values(), ids=REWRITTEN)
def test_provable_rewrites_are_done_and_keep_the_elements(chain, order):
    loader = chain(DataLoader(samples))

    optimized = loader.optimize()

    assert labels(optimized) == order
    assert_same_elements(optimized, loader)
    assert any(suggestion.optimized for suggestion in loader.explain())
    assert not any(suggestion.optimized for suggestion in optimized.explain())


def stateful_map(e):
    return {**e, "r": tf.random.uniform(())}


def python_map(e):
    return {**e, "p": tf.py_function(lambda x: x, [e["x"]], tf.int32)}


TWO = tf.Variable(2)


def times_two(e):
    return {"x": e["x"] * TWO, "y": e["y"]}


KEPT = {
    "a filter on a column that the map changes": lambda d: d.map(doubled).filter(even_y),
    "a filter on a column that the map makes": lambda d: d.map(add_column).filter(lambda e: e["z"] > 0),
    "a random map": lambda d: d.map(stateful_map).filter(even_y),
    "a random filter": lambda d: d.map(add_column).filter(lambda e: tf.random.uniform(()) > 2.0 or e["y"] > 0),
    "a Python map": lambda d: d.map(python_map).filter(even_y),
    "a map before a batch": lambda d: d.map(doubled).batch(8),
    "a filter on a constant of the map": lambda d: d.map(lambda e: {**e, "one": 1}).filter(lambda e: e["one"] > 0),
    "a map that may run out of order": lambda d: d.map(add_column, num_parallel_calls=2, deterministic=False).filter(
        even_y
    ),
    "a captured variable": lambda d: d.map(times_two).filter(even_y),
    "a shuffle before a cache": lambda d: d.shuffle(5, seed=1).cache(),
}


@pytest.mark.parametrize("chain", KEPT.values(), ids=KEPT)
def test_what_is_not_provable_is_left_alone(chain):
    loader = chain(DataLoader(samples))

    assert loader.optimize() is loader
    assert not any(suggestion.optimized for suggestion in loader.explain())


def test_options_that_allow_disorder_stop_all_rewrites():
    options = tf.data.Options()
    options.deterministic = False
    loader = DataLoader(samples).map(add_column).filter(even_y).with_options(options)

    assert loader.optimize() is loader


def test_nothing_moves_across_a_zip():
    zipped = DataLoader(samples).map(add_column).zip(DataLoader.range(57)).map(lambda a, b: {"y": a["y"], "b": b})
    loader = zipped.filter(even_y)

    assert labels(loader.optimize()) == ["from_generator", "map", "zip", "filter", "map"]


def test_an_earlier_filter_does_not_compute_what_it_does_not_read():
    loader = DataLoader.range(9).map(lambda x: {"x": x, "fails": x // (x - x)}).filter(lambda e: e["x"] < 0)

    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        list(loader)
    assert list(loader.optimize()) == []


def test_a_cache_is_read_from_the_same_source(tmp_path):
    write_cache(tmp_path, {"train": [{"x": i, "y": i} for i in range(8)]})
    loader = DataLoader.from_cache(tmp_path / "train").map(lambda e: {**e, "z": e["x"] + 1}).filter(even_y)

    assert [suggestion.positions for suggestion in loader.explain()] == [(1, 2)]
    assert sorted(int(element["z"]) for element in loader.optimize().to_numpy()) == [1, 3, 5, 7]


def test_tuples_are_understood():
    loader = DataLoader.range(30).enumerate().map(lambda i, x: (i, x * 2)).filter(lambda i, x: i % 3 == 0)

    optimized = loader.optimize()

    assert labels(optimized) == ["range", "enumerate", "filter", "map"]
    assert list(optimized.as_numpy_iterator()) == list(loader.as_numpy_iterator())


def test_an_optimized_cache_is_filled_again_and_counts_are_taken_again():
    loader = DataLoader(samples).map(add_column).filter(even_y).cache()

    optimized = loader.optimize()

    assert labels(optimized) == ["from_generator", "filter", "map", "cache"]
    assert optimized.get_n_samples() == loader.get_n_samples() == 29


SUGGESTIONS = {
    "map before filter": (
        lambda d: d.map(add_column).filter(even_y),
        "1, 2: map runs on elements that filter drops: the predicate reads only y, which the map passes through. "
        "Put .filter before .map. optimize() does it.",
    ),
    "random map before filter": (
        lambda d: d.map(stateful_map).filter(even_y),
        "1, 2: map runs on elements that filter drops: the predicate reads only y, which the map passes through. "
        "Put .filter before .map.",
    ),
    "cache after shuffle": (
        lambda d: d.shuffle(10).cache(),
        "1, 2: cache keeps the order of the first shuffle, every epoch repeats it. Put .cache before .shuffle.",
    ),
    "shuffle after batch": (
        lambda d: d.batch(4).shuffle(10),
        "1, 2: shuffle moves whole batches, their members stay together. Put .shuffle before the batching.",
    ),
    "cache after repeat": (
        lambda d: d.repeat().cache(),
        "1, 2: cache holds every repetition, and an endless one until memory ends. Put .cache before .repeat.",
    ),
    "shuffle after repeat": (
        lambda d: d.repeat(2).shuffle(10),
        "1, 2: shuffle mixes elements of different epochs. Put .shuffle before .repeat.",
    ),
    "cache after a random map": (
        lambda d: d.map(stateful_map).cache(),
        "1, 2: cache keeps what a stateful map (random numbers, Python code) gave the first time. Put .cache before "
        "that .map.",
    ),
}


@pytest.mark.parametrize(("chain", "text"), SUGGESTIONS.values(), ids=SUGGESTIONS)
def test_a_wasteful_order_gets_a_suggestion(chain, text):
    assert [str(suggestion) for suggestion in chain(DataLoader(samples)).explain()] == [text]


def test_a_good_order_gets_none():
    loader = DataLoader(samples).filter(even_y).cache().shuffle(10).repeat(2).batch(4).map(doubled).prefetch(1)

    assert loader.explain() == []
    assert loader.optimize() is loader
