"""A dataset seen through a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, apply_to_example, check_dataset, fetch
from beam_pipes.map_style.datasets.epoch import current_epoch


class TransformDataset(Dataset):
    """Applies `transform` to an example each time it is asked for.

        TransformDataset([1, 2], lambda n: n * 10)[1] → 20

    Args:
      dataset: where examples come from.
      transform: a function of one example, or an object with a method `forward`. For worker processes it has to be
        picklable.
      seed: for a transform that draws, which is then called with `(example, generator)`: a `numpy.random.Generator`
        keyed by (seed, epoch, index). So an example is augmented otherwise in each epoch, and alike whatever the
        workers, ranks and restarts. The epoch is the `DataLoader`'s (`reading_epoch` sets it elsewhere); a
        `CacheDataset` above keeps the first draw.

    An exception in `transform` is raised as `ExampleError` with the index of its example and the original as its cause.
    """

    def __init__(self, dataset: MapStyle, transform: Any, *, seed: int | None = None) -> None:
        check_dataset(dataset, "TransformDataset")
        function = transform if callable(transform) else getattr(transform, "forward", None)
        if function is None:
            raise DatasetError(
                f"TransformDataset needs a callable transform, got {type(transform).__name__}; "
                "give its class a __call__ method"
            )
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
            raise DatasetError(f"TransformDataset needs seed to be an int of at least 0, got {seed!r}")
        self._dataset = dataset
        self._transform: Callable[..., Any] = function
        self._seed = seed

    @property
    def dataset(self) -> MapStyle:
        """The dataset that is seen through the function."""
        return self._dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def get_example(self, index: int) -> Any:
        example = fetch(self._dataset, index, "TransformDataset")
        if self._seed is None:
            return apply_to_example(self._transform, example, index, "transform")
        bits = np.random.PCG64(np.random.SeedSequence([self._seed, current_epoch(), index]))
        drawing = functools.partial(_draw, self._transform, np.random.Generator(bits))
        return apply_to_example(drawing, example, index, "transform", name=self._transform)


def _draw(transform: Callable[..., Any], generator: np.random.Generator, example: Any) -> Any:
    return transform(example, generator)
