"""`model.fit(loader)`: a DataLoader as Keras takes data, under each of its backends.

Keras takes objects of its own classes, by `isinstance`, and nothing that only iterates: a generator has no length and
one epoch, a `PyDataset` is read by index. Objects of its class `DataAdapter` it uses directly. So `keras_class`, a
DataLoader and a `DataAdapter` in one, is the class that a DataLoader reports as its own (`__class__`) once Keras is
imported, and `KerasData` answers what Keras then asks:

    fit, TensorFlow   get_tf_dataset        → loader.dataset: every iteration is the next epoch of the cache
    fit, JAX          get_jax_iterator      → NumPy batches, of the native loader where no tf.data stands between
    fit, torch        get_torch_dataloader  → the same, as tensors
    steps_per_epoch   num_batches           → len(loader)

With JAX and torch, Keras builds a model from a batch that it reads before the first epoch. That iteration does not
count: the first epoch of a fit is `loader.epoch`, whether the model was built earlier or not.

Given an adapter, Keras ignores `y`, `sample_weight` and `class_weight`. Here they raise an error instead: Keras'
`EpochIterator`, which holds them, is what asks for the number of batches.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from beam_pipes.errors import LoaderError, UnboundedLoaderError
from beam_pipes.extras import TfDataset

_ADAPTER_MODULE = "keras.src.trainers.data_adapters.data_adapter"
# The method of Keras' trainers that reads one batch, then starts over.
_LOOKS = "_symbolic_build"
_NOT_TAKEN = ("y", "sample_weight", "class_weight")


def keras_class(cls: type) -> type:
    """`cls`, and Keras' adapter class too where Keras is imported."""
    module = sys.modules.get(_ADAPTER_MODULE)
    adapter = getattr(module, "DataAdapter", None)
    return cls if adapter is None else _both(cls, adapter)


@functools.cache
def _both(cls: type, adapter: type) -> type:
    # Only for isinstance; its objects are of `cls`.
    return type(cls)(cls.__name__, (cls, adapter), {"__module__": cls.__module__})


class KerasData:
    """What Keras expects of its data; a base of DataLoader."""

    batch_size = None
    has_partial_batch = None
    partial_batch_size = None

    if TYPE_CHECKING:

        @property
        def dataset(self) -> TfDataset: ...
        def to_numpy(self) -> Iterable[object]: ...
        def __len__(self) -> int: ...
        def _uncounted(self, batches: Iterator[object]) -> Iterator[object]: ...

    @property
    def num_batches(self) -> int | None:
        """Steps per epoch; None for an endless loader, which needs `steps_per_epoch`."""
        _refuse_what_keras_drops(sys._getframe(1))
        try:
            return len(self)
        except (TypeError, UnboundedLoaderError):
            return None

    def get_tf_dataset(self) -> TfDataset:
        """For TensorFlow."""
        return self.dataset

    def get_numpy_iterator(self) -> Iterator[object]:
        """NumPy batches of the next pass. Only at the first batch does it know the caller."""
        batches = iter(self.to_numpy())
        yield from self._uncounted(batches) if _keras_only_looks() else batches

    get_jax_iterator = get_numpy_iterator

    def get_torch_dataloader(self) -> Iterable[object]:
        """For torch: the same as tensors."""
        utils = importlib.import_module("keras.src.trainers.data_adapters.data_adapter_utils")
        loader: Iterable[object] = utils.get_torch_dataloader(_Passes(self))
        return loader

    def on_epoch_begin(self) -> None:
        """Does nothing: an iteration knows its epoch."""

    on_epoch_end = on_epoch_begin


class _Passes:
    """Iterates over the NumPy batches of each next pass."""

    def __init__(self, data: KerasData) -> None:
        self._data = data

    def __iter__(self) -> Iterator[object]:
        return self._data.get_numpy_iterator()


def _keras_only_looks() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _LOOKS and frame.f_globals.get("__name__", "").startswith("keras."):
            return True
        frame = frame.f_back
    return False


def _refuse_what_keras_drops(caller: FrameType) -> None:
    given = [name for name in _NOT_TAKEN if caller.f_locals.get(name) is not None]
    if given and caller.f_globals.get("__name__", "").startswith("keras."):
        raise LoaderError(
            f"{', '.join(f'{name}=' for name in given)} cannot be combined with a DataLoader, whose batches "
            "are (inputs, targets) or (inputs, targets, sample_weights): loader.map(lambda batch: …). Keras "
            "makes weights of class_weight= itself for loader.dataset."
        )
