from __future__ import annotations

import itertools
import types

import pytest

from beam_pipes.loader import Loader


def ids(loader, count=None):
    return [batch["id"].tolist() for batch in itertools.islice(loader, count)]


@pytest.fixture
def loaders(row_split):
    """Two loaders of the same run, and what comes after its third step."""
    whole = ids(Loader(row_split, batch_size=16, epochs=2, seed=4))
    first, second = (Loader(row_split, batch_size=16, epochs=2, seed=4) for _ in range(2))
    ids(first, 3)
    return first, second, whole[3:]


def test_a_tensorflow_checkpoint_saves_and_restores_the_loader(tmp_path, loaders):
    import tensorflow as tf

    first, second, expected = loaders

    path = tf.train.Checkpoint(step=tf.Variable(3), loader=first.tf_checkpoint()).save(str(tmp_path / "checkpoint"))
    step = tf.Variable(0)
    status = tf.train.Checkpoint(step=step, loader=second.tf_checkpoint()).restore(path)

    status.assert_consumed()
    assert int(step) == 3
    assert ids(second) == expected


def test_grains_checkpoint_handler_saves_and_restores_the_loader(tmp_path, loaders):
    import grain.python as grain
    from etils import epath

    first, second, expected = loaders
    handler = grain.PyGrainCheckpointHandler()

    handler.save(epath.Path(tmp_path), args=types.SimpleNamespace(item=iter(first)))
    restored = handler.restore(epath.Path(tmp_path), args=types.SimpleNamespace(item=iter(second)))

    assert ids(restored) == expected


def test_a_torch_checkpoint_continues_under_grains_protocol(tmp_path, loaders):
    import torch

    first, second, expected = loaders

    torch.save({"loader": first.state_dict()}, tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt")["loader"])

    assert second.get_state() == first.get_state()
    assert ids(second) == expected
