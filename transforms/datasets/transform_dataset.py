"""A dataset seen through a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_pipes.errors import DatasetError
from transforms.datasets.base import Dataset, MapStyle, apply_to_example, check_dataset, fetch


class TransformDataset(Dataset):
    """Applies `transform` to an example each time it is asked for.

        TransformDataset([1, 2], lambda n: n * 10)[1] → 20

    An object that is not callable but has a method `forward` is applied by that. Wrap the dataset in `CacheDataset` to
    keep results. An exception in `transform` is raised as `ExampleError` with the index of its example and the
    original as its cause. For worker processes, `transform` has to be picklable.
    """

    def __init__(self, dataset: MapStyle, transform: Any) -> None:
        check_dataset(dataset, "TransformDataset")
        function = transform if callable(transform) else getattr(transform, "forward", None)
        if function is None:
            raise DatasetError(
                f"TransformDataset needs a callable transform, got {type(transform).__name__}; "
                "give its class a __call__ method"
            )
        self._dataset = dataset
        self._transform: Callable[[Any], Any] = function

    def __len__(self) -> int:
        return len(self._dataset)

    def get_example(self, index: int) -> Any:
        example = fetch(self._dataset, index, "TransformDataset")
        return apply_to_example(self._transform, example, index, "transform")
