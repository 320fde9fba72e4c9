"""Every iteration over a cache is the next epoch, whoever iterates; and where it stands can be saved and restored."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import tensorflow as tf

from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.cache.write_cache import write_cache
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader
from beam_pipes.on_device import DataLoader


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("fixed") / "cache"
    features = {"x": FeatureSpec("int32", shape=(4,)), "id": FeatureSpec("int64")}
    write_cache(path, {"train": ({"x": np.full(4, i, np.int32), "id": i} for i in range(103))}, features=features)
    return Cache.open(path)["train"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "cache"
    features = {"tokens": FeatureSpec("int32", shape=(None,)), "text": FeatureSpec("str"), "id": FeatureSpec("int64")}
    examples = ({"tokens": np.arange(i % 5, dtype=np.int32), "text": f"text {i}", "id": i} for i in range(41))
    write_cache(path, {"train": examples}, features=features)
    return Cache.open(path)["train"]


def ids(elements, count=None):
    return [np.asarray(element["id"]).tolist() for element in itertools.islice(elements, count)]


def test_every_iteration_is_the_next_epoch_whoever_iterates(fixed):
    epochs = list(Loader(fixed, batch_size=8, seed=3, epochs=7))
    expected = [ids(epochs[12 * epoch : 12 * epoch + 12]) for epoch in range(7)]
    loader = DataLoader.from_cache(fixed, batch_size=8, seed=3)

    found = [ids(loader), ids(loader.dataset), ids(loader.to_numpy()), ids(loader.map(lambda b: b))]
    found.append(ids(loader.dataset.take(5)))
    repeated = ids(loader.dataset.repeat(2))

    assert found == [*expected[:4], expected[4][:5]]
    assert repeated == expected[5] + expected[6]
    assert loader.epoch == 7
    assert len({row for batch in repeated + ids(loader) for row in batch}) == 103  # which 7 rows are left out changes


def test_runs_of_several_epochs_follow_each_other(texts):
    loader = DataLoader.from_cache(texts, batch_size=7, last="pad", epochs=2)
    expected = ids(Loader(texts, batch_size=7, last="pad", epochs=4))

    assert ids(loader) + ids(loader.dataset) == expected
    loader.load_state_dict({"epoch": 2})
    assert loader.state_dict() == {"epoch": 2}
    assert ids(loader.dataset) == expected[12:]
    records = DataLoader.from_cache(texts, seed=5)
    rows = [int(row) for batch in Loader(texts, batch_size=41, seed=5, epochs=2) for row in batch["id"]]
    assert [int(record["id"]) for _ in range(2) for record in records] == rows


@pytest.mark.parametrize("batches", [0, 5, 12, 17])
@pytest.mark.parametrize("large", [False, True], ids=["by the group", "one by one"])
def test_a_checkpoint_of_an_iterator_continues_in_another_loader(fixed, tmp_path, batches, large):
    """As in another process: a loader that has begun no pass itself."""
    options = {"last": "partial"} if large else {}

    def made():
        loader = DataLoader.from_cache(fixed, batch_size=8, seed=3, **options)
        dataset = loader.dataset.map(lambda batch: {"id": batch["id"]}) if large else loader.dataset
        return loader, iter(dataset.repeat())

    loader, iterator = made()
    ids(iterator, batches)
    time.sleep(0.3)  # what reads ahead has read as far as it will
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "checkpoint"))
    state = loader.state_dict()
    expected = ids(iterator, 40)

    other, iterator = made()
    tf.train.Checkpoint(iterator=iterator).restore(saved)
    other.load_state_dict(state)

    assert ids(iterator, 40) == expected
    assert expected == ids(Loader(fixed, batch_size=8, seed=3, epochs=None, **options), batches + 40)[batches:]


def test_epochs_belong_to_one_finite_cache(fixed):
    for loader in (
        DataLoader([{"x": 1}]),
        DataLoader.from_cache(Loader(fixed, batch_size=8)),
        DataLoader.from_cache(fixed, batch_size=8, epochs=None),
    ):
        with pytest.raises(
            LoaderError, match=r"epoch belongs to a loader over one finite cache: DataLoader.from_cache"
        ):
            loader.epoch  # noqa: B018
    with pytest.raises(LoaderError, match="epoch should be at least 0, got -1"):
        DataLoader.from_cache(fixed, batch_size=8).set_epoch(-1)
