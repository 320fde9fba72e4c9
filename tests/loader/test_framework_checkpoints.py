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


def test_a_checkpoint_of_a_finished_run_leaves_nothing_in_any_framework(tmp_path, row_split):
    import grain.python as grain
    import tensorflow as tf
    import torch
    from etils import epath

    def loader(**options):
        return Loader(row_split, **{"batch_size": 16, "epochs": 2, "seed": 4, **options})

    finished = loader()
    whole = ids(finished)
    path = tf.train.Checkpoint(loader=finished.tf_checkpoint()).save(str(tmp_path / "tf" / "checkpoint"))
    torch.save(finished.state_dict(), tmp_path / "state.pt")
    handler = grain.PyGrainCheckpointHandler()
    (tmp_path / "grain").mkdir()
    handler.save(epath.Path(tmp_path / "grain"), args=types.SimpleNamespace(item=_at_the_end(loader())))

    restored = [loader(), loader(), loader()]
    tf.train.Checkpoint(loader=restored[0].tf_checkpoint()).restore(path)
    restored[1].load_state_dict(torch.load(tmp_path / "state.pt"))
    handler.restore(epath.Path(tmp_path / "grain"), args=types.SimpleNamespace(item=iter(restored[2])))

    for each in restored:
        assert (ids(each), ids(each), each.step, each.steps_left) == ([], [], len(whole), 0)
    longer = loader(epochs=3)
    longer.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert ids(longer) == ids(loader(epochs=3))[len(whole) :]


def _at_the_end(loader):
    iterator = iter(loader)
    assert len(list(iterator)) == len(loader)
    return iterator
