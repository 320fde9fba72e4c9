"""What loaders over a cache say where another library takes a loader or a dataset of its own."""

from __future__ import annotations

from pathlib import Path

import accelerate
import pytest
import tensorflow as tf
import torch

from beam_pipes.cache import Split, write_cache
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader
from beam_pipes.on_device import DataLoader, TorchDataLoader


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return write_cache(tmp_path / "cache", {"train": [{"x": 1}] * 8})["train"]


def test_a_loader_of_tensors_is_not_read_by_index(split: Split) -> None:
    for loader in (DataLoader.from_cache(split, batch_size=4), TorchDataLoader(Loader(split, batch_size=4))):
        words = rf"^{type(loader).__name__} is read in order, .* in the place of torch's DataLoader, not inside one; "
        with pytest.raises(LoaderError, match=words):
            next(iter(torch.utils.data.DataLoader(loader, batch_size=None)))
        with pytest.raises(LoaderError, match=r"write random_access\(split\)"):
            loader[0]


def test_skipping_batches_as_torch_does_is_answered_with_the_state(split: Split) -> None:
    loader = TorchDataLoader(Loader(split, batch_size=4))

    with pytest.raises(
        AttributeError, match=r"no 'dataset': it is not torch's DataLoader, .*load_state_dict\(state\) "
    ):
        accelerate.skip_first_batches(loader, 1)
    with pytest.raises(AttributeError, match=r"has no 'map'\. tf.data transformations go before the conversion"):
        loader.map(len)


def test_functions_of_tensorflow_that_take_a_dataset_are_given_its_name(split: Split) -> None:
    loader = DataLoader.from_cache(split, batch_size=4)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    with pytest.raises(AttributeError, match="takes a tf.data.Dataset: pass loader.dataset"):
        strategy.experimental_distribute_dataset(loader)
    assert len(list(strategy.experimental_distribute_dataset(loader.dataset))) == 2
