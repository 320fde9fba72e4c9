"""What every loader can say of itself: its samples, its length and what was done to it."""

from __future__ import annotations

from typing import Any, TypeVar

from beam_pipes.on_device.transformations import Transformation

L = TypeVar("L", bound="TrackedLoader")


class TrackedLoader:
    """Base of `DataLoader` and of the loaders it converts to."""

    _history: tuple[Transformation, ...] = ()

    def get_transformation_list(self) -> list[str]:
        """`['tf.data.Dataset.from_generator', 'tf.data.Dataset.batch', 'midas.DataLoader.to_jax']`."""
        return [step.label for step in self._history]

    def get_python_iterator_n_samples(self) -> int:
        """The number of samples of the source; where nobody knows it, by a pass over the source."""
        raise NotImplementedError

    def get_n_samples(self) -> int:
        """The number of elements of one iteration, batches counted as one."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True  # as a Dataset: an empty or endless loader is a loader

    def __copy__(self: L) -> L:
        return self._extended(self._history)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' → '.join(self.get_transformation_list()) or 'of a dataset'}>"

    def _extended(self: L, history: tuple[Transformation, ...], **changes: Any) -> L:
        """A copy with a longer history and other attributes."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(changes)
        copy._history = history
        return copy
