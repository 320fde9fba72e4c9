"""What all loaders of this room share: a list of their transformations, and conversion element by element.

    TrackedLoader ◄── DataLoader                       tf.data and caches
                  ◄── LambdaDataLoader                 one function of each element
                        ◄── ConvertedLoader            in three steps, which prefetching takes apart (ahead.py)
                              ◄── NumpyDataLoader, JaxDataLoader, TorchDataLoader

A chain is a list of `Transformation`s: labels for users to compare (`tf.data.Dataset.map` for a step of TensorFlow,
`midas.JaxDataLoader.shard` for one of a loader class), and steps that can be replayed.
"""

from __future__ import annotations

import copy
import dataclasses
import time
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.extras import TfDataset
from beam_pipes.loader.prefetch import END_SECS, SharedIterator
from beam_pipes.loader.state import StateDict
from beam_pipes.on_device.ahead import DeviceCopies, Mark, PlacedAhead, PlainCopies, PrefetchOptions, Stated
from beam_pipes.on_device.conversions import Element, Nested, checked_skip_keys, skipping, to_host, unskipped


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transformation:
    """One step of a chain: its label, the call that made it, and the dataset it produced."""

    label: str
    method: str = ""  # empty for sources and static constructors: they are not methods of the dataset before them
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    dataset: TfDataset = None  # None for a step outside tf.data

    def applied_to(self, dataset: TfDataset) -> Transformation:
        """The same call on another dataset."""
        produced = getattr(dataset, self.method)(*self.args, **self.kwargs)
        return dataclasses.replace(self, dataset=produced)


def dataset_label(method: str) -> str:
    """`map` → `tf.data.Dataset.map`."""
    return f"tf.data.Dataset.{method}"


def loader_label(owner: str, method: str) -> str:
    """`JaxDataLoader`, `shard` → `midas.JaxDataLoader.shard`."""
    return f"midas.{owner}.{method}"


L = TypeVar("L", bound="TrackedLoader")


class HasStates(Protocol):
    """An object that can be saved and restored."""

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None: ...


class NativeLoader(HasStates, Protocol):
    """A loader with a cursor and a state: `beam_pipes.Loader`, or one with the same interface."""

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> int: ...


class PassesOfCache(HasStates, Protocol):
    """Passes over a cache that was given by its path: every iteration is the next one."""

    def next_state(self) -> StateDict: ...

    def go_back(self, state_dict: Mapping[str, object]) -> None: ...


# torch's DataLoader has these, and accelerate's `skip_first_batches` and Trainer's resumption use them.
_OF_TORCH = ("batch_sampler", "collate_fn", "dataset", "sampler")


class TrackedLoader:
    """Base of `DataLoader` and of the loaders it converts to."""

    _history: tuple[Transformation, ...] = ()

    def get_transformation_list(self) -> list[str]:
        """`['tf.data.Dataset.from_generator', 'tf.data.Dataset.batch', 'midas.DataLoader.to_jax']`."""
        return [step.label for step in self._history]

    def get_python_iterator_n_samples(self) -> int:
        """The number of samples in the source, counted by a pass over it if unknown."""
        raise NotImplementedError

    def get_n_samples(self) -> int:
        """The number of elements in one iteration; a batch counts as one."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True  # like a Dataset: an empty or endless loader is a loader

    def __getitem__(self, index: object) -> NoReturn:
        raise LoaderError(
            f"{type(self).__name__} is read in order, by `for batch in loader`, and not by index: its elements are "
            "whole batches. Give it to the training in the place of torch's DataLoader, not inside one; for workers "
            "of torch's DataLoader write random_access(split) (beam_pipes.loader)."
        )

    def __copy__(self: L) -> L:
        return self._extended(self._history)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' → '.join(self.get_transformation_list()) or 'of a dataset'}>"

    def _extended(self: L, history: tuple[Transformation, ...], **changes: object) -> L:
        """A copy with a longer history and other attributes."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(changes)
        copy._history = history
        return copy


D = TypeVar("D", bound="LambdaDataLoader")
C = TypeVar("C", bound="ConvertedLoader")


class LambdaDataLoader(TrackedLoader):
    """Define `lambda_transformation` in a subclass, or pass a function of one element.

        class ToLists(LambdaDataLoader):
            def lambda_transformation(self, sample):
                return {key: value.numpy().tolist() for key, value in sample.items()}

        dl.to_lambdaDataLoader(ToLists)          # {'x': <tf.Tensor [1, 2]>} → {'x': [1, 2]}

    `dataloader` is a DataLoader, or any iterable of elements (a native loader of a cache, a list of dicts of arrays).

    A subclass written for MIDAS works unchanged: it defines `_transform(data)`, which receives an element without the
    values of `skip_keys`, and may pass `input_dataset`, `python_iterable`, `python_iterable_n_samples`, `transform_f`
    and `transformation_tracker` to this constructor. The source and its count come from `input_dataset`.
    """

    def __init__(
        self,
        dataloader: Iterable[object] | None = None,
        lambda_transformation: Callable[[Element], object] | None = None,
        *,
        skip_keys: str | Iterable[str] = (),
        input_dataset: Iterable[object] | None = None,
        python_iterable: object = None,
        transform_f: Callable[[Element], object] | None = None,
        python_iterable_n_samples: int | None = None,
        transformation_tracker: Sequence[str] = (),
    ) -> None:
        dataloader = input_dataset if dataloader is None else dataloader
        lambda_transformation = transform_f if lambda_transformation is None else lambda_transformation
        if lambda_transformation is not None:
            # An attribute of the instance takes precedence over the method of the class.
            self.__dict__["lambda_transformation"] = lambda_transformation
        elif not hasattr(self, "_transform") and (
            type(self).lambda_transformation is LambdaDataLoader.lambda_transformation
        ):
            raise LoaderError(
                f"{type(self).__name__} has no lambda_transformation: define the method in a subclass of "
                "LambdaDataLoader, or pass a function of one element."
            )
        if not isinstance(dataloader, Iterable):
            raise LoaderError(f"expected a DataLoader or an iterable of elements, got {type(dataloader).__name__}.")
        self._loader: Any = dataloader
        self._prefetch: PrefetchOptions | None = None
        self._history = dataloader._history if isinstance(dataloader, TrackedLoader) else ()
        self._history += tuple(Transformation(label=label) for label in transformation_tracker[len(self._history) :])
        self.skip_keys = checked_skip_keys(skip_keys, self._known_spec() if skip_keys else None)

    def lambda_transformation(self, sample: Element) -> object:
        """One element → what the loop gets."""
        raise NotImplementedError

    @property
    def input_dataset(self) -> Iterable[Element]:
        """The loader that is converted."""
        loader: Iterable[Element] = self._loader
        return loader

    def __iter__(self) -> Iterator[Element]:
        return SharedIterator(self._iterate())

    def __deepcopy__(self: D, memo: dict[int, object]) -> D:
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        # Its parts are shared: JAX devices, for example, exist once per process.
        copied.__setstate__({**self._own_state(), "_loader": copy.deepcopy(self._loader, memo)})
        return copied

    def __getstate__(self) -> dict[str, object]:
        return self._own_state()

    def _own_state(self) -> dict[str, object]:
        return dict(self.__dict__)

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)

    def _iterate(self) -> Generator[object, None, None]:
        for element in self._elements():
            yield self._converted(element)

    def _converted(self, element: Nested) -> Nested:
        if hasattr(self, "_transform"):
            return _beside_skipped(self._transform, element, self.skip_keys)
        return unskipped(self.lambda_transformation(skipping(element, self.skip_keys)))

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_TORCH:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: it is not torch's DataLoader, and batches and shuffles by "
                "itself. Who asks in order to skip batches, as accelerate's skip_first_batches and the Trainer of "
                "transformers do, need not: loader.load_state_dict(state) is there at once (Trainer: "
                "ignore_data_skip=True)."
            )
        if not name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}. tf.data transformations go before the conversion: "
                f"loader.{name}(…).to_…()"
            )
        raise AttributeError(name)

    def get_python_iterator_n_samples(self) -> int:
        """The same as for the converted loader."""
        if isinstance(self._loader, TrackedLoader):
            return self._loader.get_python_iterator_n_samples()
        return len(self._loader)

    def get_n_samples(self) -> int:
        """The same as for the converted loader."""
        if isinstance(self._loader, TrackedLoader):
            return self._loader.get_n_samples()
        return len(self._loader)

    def _known_spec(self) -> Nested:
        """The element spec of a tf.data chain; None for a cache, which would have to import TensorFlow."""
        over_tf = getattr(self._loader, "converts_tensors", False)
        return self._loader.element_spec if over_tf else None

    def _elements(self) -> Iterator[object]:
        return iter(self._loader)

    def _labelled(self: D, conversion: str) -> D:
        """This loader, made by a conversion method of DataLoader."""
        step = Transformation(label=loader_label("DataLoader", conversion))
        self._history = (*self._history, step)
        return self

    def _with(self: D, method: str, **changes: object) -> D:
        """A copy with other attributes, its history longer by a method of this class."""
        step = Transformation(label=loader_label(type(self).__name__, method))
        return self._extended((*self._history, step), **changes)


def _beside_skipped(function: Callable[[Element], Element], element: Nested, skip_keys: Collection[str]) -> Nested:
    """Calls `function` on a dict without the skipped keys, and adds their values to what it returns."""
    if not skip_keys or not isinstance(element, dict):
        return function(element)
    skipped = {key: value for key, value in element.items() if key in skip_keys}
    return {**function({key: value for key, value in element.items() if key not in skipped}), **skipped}


class ConvertedLoader(LambdaDataLoader):
    """A LambdaDataLoader in the three steps that prefetching takes apart.

    `_host` (element → private NumPy memory) and the start of a copy (`DeviceCopies.copy`, by default `_place`) may run
    on threads, its end (`received`) runs in the consumer's. Over a native loader the state follows the last element
    handed out, however much was prefetched, so leaving a loop loses nothing.
    """

    def __init__(self, dataloader: Iterable[object], *, skip_keys: str | Iterable[str] = ()) -> None:
        super().__init__(dataloader, skip_keys=skip_keys)
        self._functions: tuple[Callable[[Element], object], ...] = ()
        self._owns_arrays = False  # whether nothing else uses the arrays of an element, so that they need no copy
        self._handed_out: Mark | None = None  # the state after the last element handed out
        self._copies: DeviceCopies | None = None  # in the place of the framework's own
        self._placed: weakref.ref[PlacedAhead] | None = None
        self._iteration: weakref.ref[SharedIterator[object]] | None = None

    def _own_state(self) -> dict[str, object]:
        handed_out = None if self._handed_out is None else self._handed_out()
        return {**super()._own_state(), "_placed": None, "_iteration": None, "_handed_out": handed_out}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        super().__setstate__({**state, "_handed_out": None})
        handed_out: Any = state.get("_handed_out")
        native = self._native()
        if handed_out is not None and native is not None:  # the native loader had read ahead of that
            _go_back(native, handed_out)

    @property
    def stateful_loader(self) -> NativeLoader | None:
        """The native loader whose cursor moves as this one is iterated, or None."""
        return self._native()

    @property
    def cursor(self) -> tuple[int, int] | None:
        """(epoch, position) of the native loader after the last element handed out; None without a native loader."""
        native = self._native()
        if native is None:
            return None
        if self._handed_out is not None:
            state = self._handed_out()
            return state["epoch"], state["position"]
        return native.epoch, native.position

    @property
    def ready_elements(self) -> int | None:
        """Elements ready on the device; None while nothing is prefetched."""
        placed = None if self._placed is None else self._placed()
        return None if placed is None or self._prefetch is None else min(placed.ready, self._prefetch.device_buffer)

    def lambda_transformation(self: C, transform_f: Callable[[Element], object]) -> C:
        """A loader that calls `transform_f` on each element, a dict of arrays that the function may change.

            jdl.lambda_transformation(lambda batch: {**batch, "norm": jnp.linalg.norm(batch["x"], axis=-1)})
            {'x': (8, 3)}  →  {'x': (8, 3), 'norm': (8,)}

        It runs in the iterating thread, on arrays that are already on their devices, without the values of `skip_keys`.
        Call it any number of times, before and after `shard` and `prefetch_to_devices`.
        """
        if not callable(transform_f):
            raise LoaderError(f"lambda_transformation expects a function of one element, got {transform_f!r}.")
        return self._with("lambda_transformation", _functions=(*self._functions, transform_f))

    def _converted(self, element: Nested) -> Nested:
        return self._finished(self._place(self._host(skipping(element, self.skip_keys))))

    def _finished(self, placed: Nested) -> Nested:
        element = unskipped(placed) if self.skip_keys else placed
        for function in self._functions:
            element = _beside_skipped(function, element, self.skip_keys)
        return element

    def state_dict(self) -> StateDict:
        """The native loader's state after the last element that was handed out."""
        return dict(self._stateful().state_dict() if self._handed_out is None else self._handed_out())

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """The next iteration continues from `state_dict`; one in progress ends."""
        self._end_iteration()
        self._handed_out = None
        self._stateful().load_state_dict(state_dict)

    def _host(self, sample: Nested) -> Nested:
        raise NotImplementedError

    def _place(self, host: Nested) -> Nested:
        return host

    def _arrived(self, element: Nested) -> None:
        """Waits until the arrays of an element have arrived."""

    def timed(self, elements: Iterable[object]) -> Iterator[tuple[float, float]]:
        """Seconds of conversion (to private host memory) and of transfer (until on the device), for each element."""
        self._find_owner()
        copies, clock = self._device_copies(), time.perf_counter
        for element in elements:
            began = clock()
            host = self._host(skipping(element, self.skip_keys))
            converted = clock()
            received = self._finished(copies.received(copies.copy(host, here=True)))
            self._arrived(received)
            yield converted - began, clock() - converted

    def _find_owner(self) -> None:
        converted = getattr(self._loader, "converted_loader", None)
        reader = getattr(self._loader if converted is None else converted(), "_reader", None)
        self._owns_arrays = bool(getattr(reader, "gives_own_arrays", False))

    def source_elements(self) -> Iterable[object]:
        """What is converted: a native loader, or another iterable."""
        own_elements = getattr(self._loader, "conversion_elements", None)
        elements: Iterable[object] = self._loader if own_elements is None else own_elements()
        return elements

    def _device_copies(self) -> DeviceCopies:
        """What copies the elements of one iteration; made in the consumer's thread, to bind what is local there."""
        return self._copies or PlainCopies(self._place)

    def _elements(self) -> Iterator[object]:
        return iter(self.source_elements())

    def _native(self) -> NativeLoader | None:
        """The native loader whose cursor moves with this iteration, if there is one."""
        if isinstance(self._loader, TrackedLoader):
            return getattr(self._loader, "native_loader", None)
        return self._loader if hasattr(self._loader, "load_state_dict") else None

    def _passes_within(self) -> PassesOfCache | None:
        """The passes over a cache, given by its path, that this iteration reads."""
        found: PassesOfCache | None = getattr(self._loader, "passes_within", None)
        return found

    def _stateful(self) -> HasStates:
        native = self._passes_within() or self._native()
        if native is None:
            raise LoaderError(
                "only a loader over a finite cache has a state: DataLoader.from_cache('cache/train'), or a "
                f"beam_pipes.Loader passed to it or to {type(self).__name__}, without tf.data transformations in "
                "between."
            )
        return native

    def __iter__(self) -> Iterator[Element]:
        if self._native() is not None:
            self._end_iteration()  # it has read ahead: this one begins with what it did not return
        self._find_owner()
        iteration = SharedIterator(self._iterate())
        self._iteration = weakref.ref(iteration)
        return iteration

    def _end_iteration(self) -> None:
        iteration = None if self._iteration is None else self._iteration()
        if iteration is not None and self._prefetch is not None:
            iteration.replace()

    def _iterate(self) -> Generator[object, None, None]:
        if self._prefetch is None:
            yield from super()._iterate()
            return
        native, passes = self._native(), self._passes_within()
        start = passes.next_state() if passes is not None else None if native is None else native.state_dict()
        ended = False
        copies = self._device_copies()
        placed = self._placed_ahead(copies, passes or native)
        try:
            self._handed_out, self._placed = None if start is None else lambda: start, weakref.ref(placed)
            for copying, self._handed_out in placed:
                yield self._finished(copies.received(copying))
            ended = True
        finally:
            placed.close(most_secs=END_SECS)
            # Others were read ahead: the next iteration continues after the last element handed out.
            if self._handed_out is not None and not ended:
                if passes is not None:
                    passes.go_back(self._handed_out())
                elif native is not None:
                    _go_back(native, self._handed_out())
            self._handed_out = self._placed = None

    def _placed_ahead(self, copies: DeviceCopies, native: HasStates | None) -> PlacedAhead:
        assert self._prefetch is not None
        skip_keys, host, mark = self.skip_keys, self._host, _marks_of(native)

        def hosted(element: Nested) -> Stated:
            return host(skipping(element, skip_keys)), mark()

        return PlacedAhead(self._elements(), hosted, copies, self._prefetch)


def _marks_of(native: HasStates | None) -> Callable[[], Mark | None]:
    """A function that remembers the state of a loader at the call, at little cost if the loader is ours."""
    if native is None:
        return lambda: None
    marks: Callable[[], Mark] | None = getattr(native, "_mark", None)

    def mark() -> Mark:
        state = native.state_dict()
        return lambda: state

    return marks or mark


def _go_back(native: NativeLoader, state: Mapping[str, object]) -> None:
    """Rewinds a loader to the last element handed out; ours do not count this as a restored state."""
    go_back = getattr(native, "_go_back", None)
    (native.load_state_dict if go_back is None else go_back)(state)


class NumpyDataLoader(ConvertedLoader):
    """`{'x': <tf.Tensor [1, 2]>}` → `{'x': array([1, 2], dtype=int32)}`, writable and the consumer's own.

    Scalars become NumPy scalars, strings `bytes`, ragged values an object array of rows.
    """

    def _host(self, sample: Nested) -> Nested:
        return to_host(sample)
