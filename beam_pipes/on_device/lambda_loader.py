"""LambdaDataLoader: a loader whose elements go through one function; the base of all conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.on_device.prefetch import PrefetchOptions, Stage
from beam_pipes.on_device.structure import checked_skip_keys, skipping, unskipped
from beam_pipes.on_device.tracked_loader import TrackedLoader
from beam_pipes.on_device.transformations import Transformation, loader_label

L = TypeVar("L", bound="LambdaDataLoader")


class LambdaDataLoader(TrackedLoader):
    """Extend it with `lambda_transformation`, or give it a function of one element.

        class ToLists(LambdaDataLoader):
            def lambda_transformation(self, sample):
                return {key: value.numpy().tolist() for key, value in sample.items()}

        dl.to_lambdaDataLoader(ToLists)          # {'x': <tf.Tensor [1, 2]>} → {'x': [1, 2]}

    `dataloader` is a DataLoader, or any iterable of elements (a native loader of a cache, a list of dicts of arrays).
    """

    def __init__(
        self,
        dataloader: Any,
        lambda_transformation: Callable[[Any], Any] | None = None,
        *,
        skip_keys: str | Iterable[str] = (),
    ) -> None:
        if lambda_transformation is not None:
            # An attribute of the instance stands in front of the method of the class.
            self.__dict__["lambda_transformation"] = lambda_transformation
        elif type(self).lambda_transformation is LambdaDataLoader.lambda_transformation:
            raise LoaderError(
                f"{type(self).__name__} has no lambda_transformation: define the method in a subclass of "
                "LambdaDataLoader, or pass a function of one element."
            )
        if not isinstance(dataloader, Iterable):
            raise LoaderError(f"expected a DataLoader or an iterable of elements, got {type(dataloader).__name__}.")
        self._loader = dataloader
        self._prefetch: PrefetchOptions | None = None
        tracked = isinstance(dataloader, TrackedLoader)
        self._history = dataloader._history if tracked else ()
        known_spec = getattr(dataloader, "element_spec", None) if tracked and skip_keys else None
        self.skip_keys = checked_skip_keys(skip_keys, known_spec)

    def lambda_transformation(self, sample: Any) -> Any:
        """One element → what the loop gets."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for element in self._elements():
            yield unskipped(self.lambda_transformation(skipping(element, self.skip_keys)))

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}. tf.data transformations go before the conversion: "
                f"loader.{name}(…).to_…()"
            )
        raise AttributeError(name)

    def get_python_iterator_n_samples(self) -> int:
        """As of the loader that was converted."""
        if isinstance(self._loader, TrackedLoader):
            return self._loader.get_python_iterator_n_samples()
        return len(self._loader)

    def get_n_samples(self) -> int:
        """As of the loader that was converted."""
        if isinstance(self._loader, TrackedLoader):
            return self._loader.get_n_samples()
        return len(self._loader)

    def _elements(self) -> Iterator[Any]:
        return iter(self._loader)

    def _labelled(self: L, conversion: str) -> L:
        """This loader, made by a conversion method of DataLoader."""
        step = Transformation(label=loader_label("DataLoader", conversion))
        self._history = (*self._history, step)
        return self

    def _with(self: L, method: str, **changes: Any) -> L:
        """A copy with other attributes, its history longer by a method of this class."""
        step = Transformation(label=loader_label(type(self).__name__, method))
        return self._extended((*self._history, step), **changes)


class ConvertedLoader(LambdaDataLoader):
    """A LambdaDataLoader in the three steps that prefetching takes apart.

    `_host` (element → private NumPy memory) and `_place` (→ the framework's arrays) may run on threads; `_receive`
    runs in the consumer's.
    """

    def __init__(self, dataloader: Any, *, skip_keys: str | Iterable[str] = ()) -> None:
        super().__init__(dataloader, skip_keys=skip_keys)

    def lambda_transformation(self, sample: Any) -> Any:
        return self._receive(self._place(self._host(sample)))

    def _host(self, sample: Any) -> Any:
        raise NotImplementedError

    def _place(self, host: Any) -> Any:
        return host

    def _receive(self, placed: Any) -> Any:
        return placed

    def _placement(self) -> Callable[[Any], Any]:
        """`_place` for another thread: what is local to the consumer's thread is bound here."""
        return self._place

    def __iter__(self) -> Iterator[Any]:
        if self._prefetch is None:
            yield from super().__iter__()
            return
        skip_keys, host = self.skip_keys, self._host
        hosted = Stage(
            (host(skipping(element, skip_keys)) for element in self._elements()),
            self._prefetch.host_buffer,
            name="host",
        )
        with hosted.map(self._placement(), self._prefetch.device_buffer, name="device") as placed:
            for element in placed:
                yield unskipped(self._receive(element))
