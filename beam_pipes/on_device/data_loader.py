"""DataLoader: Python samples, a tf.data.Dataset or a cache with all methods of tf.data.Dataset.

    dl = DataLoader(generator_function).map(f).cache().shuffle(1000).batch(10)
    for batch in dl.to_jax().shard().prefetch_to_devices(): ...

The methods of `tf.data.Dataset` are looked up in TensorFlow itself, so new versions' methods chain too; each gives a
loader with a longer list of transformations, which `explain` and `optimize` read. Samples come from a `PythonSource`
or a `CacheSource`; conversions hand the elements on to the chapters of JAX, torch and NumPy.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeGuard, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.extras import TfDataset, require
from beam_pipes.loader import Loader
from beam_pipes.loader.order import check_integer
from beam_pipes.loader.prefetch import SharedIterator, not_copied
from beam_pipes.on_device.ahead import DeviceCopies, copied, pinned
from beam_pipes.on_device.conversions import Element, Nested
from beam_pipes.on_device.from_cache import CacheSource, Passes, cache_source
from beam_pipes.on_device.inference import columns_of_signature, infer_columns, output_signature_of
from beam_pipes.on_device.keras_data import KerasData, keras_class
from beam_pipes.on_device.lambda_loader import TrackedLoader, Transformation, dataset_label, loader_label
from beam_pipes.on_device.optimize import Suggestion, optimized, suggestions
from beam_pipes.on_device.python_source import PythonSource, Samples, batched_dataset, sample_dataset, table_columns

if TYPE_CHECKING:
    from beam_pipes.cache import Cache
    from beam_pipes.loader.mixture import Mixture, RowSource
    from beam_pipes.on_device.jax_loader import JaxDataLoader
    from beam_pipes.on_device.lambda_loader import LambdaDataLoader, NumpyDataLoader
    from beam_pipes.on_device.torch_loader import TorchDataLoader


T = TypeVar("T")


@functools.cache
def dataset_members() -> dict[str, str]:
    """Public names of tf.data.Dataset → "method", "static" or "property"."""
    tf = require("tensorflow", purpose="DataLoader")
    members = {}
    for name in dir(tf.data.Dataset):
        if not name.startswith("_"):
            found = inspect.getattr_static(tf.data.Dataset, name)
            if isinstance(found, staticmethod | classmethod):
                members[name] = "static"
            elif callable(found):
                members[name] = "method"
            else:
                members[name] = "property"
    return members


def unwrap(value: object) -> object:
    """Loaders inside arguments → their datasets: `[dl, {"a": dl}]` → `[dl.dataset, {"a": dl.dataset}]`."""
    if isinstance(value, DataLoader):
        return value.dataset
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        named: Callable[..., object] = type(value)
        return named(*(unwrap(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(unwrap(item) for item in value)
    if type(value) is dict:
        return {key: unwrap(item) for key, item in value.items()}
    return value


def loaders_in(value: object) -> Iterator[DataLoader]:
    """The loaders inside arguments, in order."""
    if isinstance(value, DataLoader):
        yield value
    elif isinstance(value, dict):
        yield from loaders_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from loaders_in(item)


SkipKeys = str | Iterable[str]


class Source(Protocol):
    """What feeds the first transformation: Python samples or a cache."""

    error: BaseException | None

    @property
    def known_n_samples(self) -> int | None: ...

    def count(self) -> int: ...

    def refuse_consuming(self, purpose: str) -> None: ...


class _DatasetConstructors(type):
    """`DataLoader.range(5)`, `DataLoader.zip(a, b)`: Dataset's static constructors, giving loaders."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        kind = dataset_members().get(name)
        if kind is None:
            raise AttributeError(f"DataLoader has no {name!r}, and neither has tf.data.Dataset")
        if kind == "property":
            raise AttributeError(f"{name!r} belongs to a loader, not to the class DataLoader")
        if kind == "method":
            return lambda loader, *args, **kwargs: getattr(loader, name)(*args, **kwargs)
        return functools.partial(_call_static, name)

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *dataset_members()})


class DataLoader(TrackedLoader, KerasData, metaclass=_DatasetConstructors):
    """Samples of a Python iterable as a tf.data.Dataset, with every Dataset method, and on to other frameworks.

    `python_iterable`: a generator function, a class or an iterable of dicts; a one-shot iterator (no sample is lost,
    one pass is possible); a table (a data frame of pandas, a structured array, a dict of arrays or lists of one
    length), whose samples are its rows; or a tf.data.Dataset. Samples may be nested dicts of Python numbers, text,
    lists, arrays.
    `python_iterable_n_samples`: the number of samples where it is known: a pass with another number is an error.
    `output_signature`: a dict of tf.TensorSpec, inferred by default from the first `infer_k` samples (-1: all). An int
    is tf.int32, or tf.int64 if a sampled one needs it; a later value that does not fit raises, none is wrapped.

    Errors that the iterable raises reach the consumer unchanged. Samples are read ahead of their use by up to 10 ms,
    1024 samples or 4 MiB. Not thread-safe; iterators of one loader are independent.
    """

    def __init__(
        self,
        python_iterable: Samples,
        python_iterable_n_samples: int | None = None,
        output_signature: Nested = None,
        infer_k: int = 3,
    ) -> None:
        if isinstance(python_iterable, DataLoader):
            self.__dict__.update(python_iterable.__dict__)
            return
        if _is_dataset(python_iterable):
            self._start(None, None, python_iterable, output_signature, python_iterable_n_samples)
            return
        columns = table_columns(python_iterable)
        if columns is not None:
            dataset = require("tensorflow", purpose="DataLoader").data.Dataset.from_tensor_slices(columns)
            step = Transformation(label=dataset_label("from_tensor_slices"), dataset=dataset)
            self._start(None, step, dataset, output_signature, len(next(iter(columns.values()))))
            return
        if isinstance(infer_k, bool) or not isinstance(infer_k, int) or (infer_k < 1 and infer_k != -1):
            raise LoaderError(f"infer_k should be an int of at least 1, or -1 for every sample, got {infer_k!r}.")
        require("tensorflow", purpose="DataLoader")
        source = PythonSource(python_iterable, python_iterable_n_samples)
        signature = output_signature
        if output_signature is None:
            inferred = infer_columns(source.sampled(infer_k))
            signature = output_signature_of(inferred)
            dataset, runs = batched_dataset(source, inferred)
        else:
            declared = columns_of_signature(output_signature)
            if declared is None:
                dataset, runs = sample_dataset(source, output_signature), None
            else:
                dataset, runs = batched_dataset(source, declared)
        if source.known_n_samples is not None:
            tf = require("tensorflow", purpose="DataLoader")
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(source.known_n_samples))
        step = Transformation(label=dataset_label("from_generator"), dataset=dataset)
        self._start(source, step, dataset, signature, runs=runs)

    def _start(
        self,
        source: Source | None,
        step: Transformation | None,
        dataset: TfDataset | None = None,
        signature: Nested = None,
        n_source_samples: int | None = None,
        *,
        runs: TfDataset | None = None,
    ) -> None:
        """The state of a loader without transformations; a cache's dataset is made when it is first needed."""
        self._sources: tuple[Source, ...] = () if source is None else (source,)
        self._history = () if step is None else (step,)
        self._dataset = self._given_root = dataset
        self._signature = signature
        self._n_source_samples = n_source_samples
        self._n_samples: int | None = None
        self._runs = runs

    @classmethod
    def from_cache(
        cls,
        cache: RowSource | Mixture | Cache | Loader,
        split: str | None = None,
        *,
        batch_size: int | None = None,
        **options: object,
    ) -> DataLoader:
        """A DataLoader over `cache`: a path (`"cache/train"`), a Cache, a Split, a packing plan, a Mixture or a Loader.

        With `batch_size` elements are the native loader's batches, as `options` (`seed`, `epochs`, `shuffle`, `last`,
        `host_index`, `pad_to`, …, see `beam_pipes.loader.Loader`) say. Without it they are single records, in the same
        order, for batching by tf.data. Both are this process's share: under `torch.distributed` and `jax.distributed`,
        or by `host_index` and `host_count`; of single records one process may have one more than another.

        Every iteration is the next pass, with its own order: `epochs` epochs (one by default), which follow those of
        the previous iteration of any loader or dataset made from this one. `epoch`, `set_epoch` and `state_dict` say
        and set where the next one begins; with `epochs=None` an iteration never ends, and each begins
        with epoch 0. Over a native Loader an iteration begins at the loader's current cursor and covers the rest of
        the run, so its length is not known in advance.
        """
        source = cache_source(cache, split, batch_size, options)
        loader = DataLoader.__new__(DataLoader)
        loader._start(source, Transformation(label=loader_label("DataLoader", "from_cache")))
        return loader

    @property
    def dataset(self) -> TfDataset:
        """The tf.data.Dataset of this loader, for APIs that need one."""
        if self._dataset is None:
            self._dataset = self._root
        return self._dataset

    @property
    def _root(self) -> TfDataset:
        """The dataset before all transformations."""
        source = self._native_source(transformed=True)
        return self._given_root if source is None else source.dataset

    def _native_source(self, *, transformed: bool = False) -> CacheSource | None:
        """The cache that this loader reads, where no tf.data transformation stands between (or `transformed`)."""
        source = self._sources[0] if self._sources and self._given_root is None else None
        is_native = isinstance(source, CacheSource) and (transformed or len(self._history) == 1)
        return source if is_native and isinstance(source, CacheSource) else None

    @property
    def output_signature(self) -> Element:
        """The signature of the Python samples (`name='<key>_input'`), or the element spec of a given dataset."""
        return self._root.element_spec if self._signature is None else self._signature

    # Epochs of a cache

    @property
    def epoch(self) -> int:
        """The epoch of the cache that the next iteration begins with."""
        return self._passes("epoch").epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins with `epoch`, as after a restart."""
        check_integer("epoch", epoch, 0)
        self._passes("set_epoch").epoch = int(epoch)

    def state_dict(self) -> dict[str, int]:
        """`{"epoch": 3}`: where the next iteration begins.

        The place within an epoch is in `tf.train.Checkpoint(iterator=iter(loader.dataset))`; save both, and restore
        both. A native Loader under a conversion (`from_cache(loader).to_jax()`) has its own state.
        """
        return {"epoch": self.epoch}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Goes on from what `state_dict` gave."""
        self.set_epoch(state_dict["epoch"])

    def _uncounted(self, batches: Iterator[object]) -> Iterator[object]:
        """`batches` of an iteration that does not count: the next iteration begins where this one began."""
        passes = [source.passes for source in self._sources if isinstance(source, CacheSource) and source.passes]
        epochs = [each.epoch for each in passes]
        for index, batch in enumerate(batches):
            if index == 0:
                for each, epoch in zip(passes, epochs, strict=True):
                    each.epoch = epoch
            yield batch

    def _passes(self, name: str) -> Passes:
        found = [source.passes for source in self._sources if isinstance(source, CacheSource)]
        if len(found) != 1 or found[0] is None:
            raise LoaderError(
                f"{name} belongs to a loader over one finite cache: DataLoader.from_cache('cache/train'). A "
                "native Loader has its own state, and other sources have no epochs."
            )
        return found[0]

    # Tracked transformations

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return keras_class(type(self))

    def __getattr__(self, name: str) -> Any:
        if name == "_variant_tensor":  # every function of TensorFlow asks a Dataset for it
            raise AttributeError("this function of TensorFlow takes a tf.data.Dataset: pass loader.dataset.")
        if name.startswith("_"):
            raise AttributeError(name)
        kind = dataset_members().get(name)
        if kind is None:
            raise AttributeError(f"DataLoader has no {name!r}, and neither has tf.data.Dataset")
        member = getattr(self.dataset, name)
        if kind == "property":
            return member
        if kind == "static":
            return functools.wraps(member)(functools.partial(_call_static, name))
        return functools.wraps(member)(functools.partial(self._call, name))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dataset_members()})

    def zip(self, *datasets: Nested, **options: object) -> DataLoader:
        """`a.zip(b)` pairs the elements of `a` and `b`; `a.zip((a, b))` is Dataset.zip, which names all it pairs."""
        if self not in list(loaders_in([*datasets, *options.values()])):
            datasets = (self, *datasets)
        zipped = _call_static("zip", *datasets, **options)
        assert isinstance(zipped, DataLoader)
        return zipped

    def apply(self, transformation_func: Callable[[TfDataset], object]) -> DataLoader:
        """Dataset.apply; the function gets a tf.data.Dataset and may return a Dataset or a DataLoader."""
        applied = self._call("apply", lambda dataset: unwrap(transformation_func(dataset)))
        assert isinstance(applied, DataLoader)
        return applied

    def as_numpy_iterator(self) -> Iterator[Element]:
        """Elements as NumPy arrays, as Dataset gives them: read-only views."""
        return SharedIterator(self._surfacing(self.dataset.as_numpy_iterator()))

    def _call(self, name: str, *args: object, **kwargs: object) -> object:
        """Calls a Dataset method: a returned Dataset becomes a loader, anything else is returned as it is."""
        others = [loader for loader in loaders_in([args, kwargs]) if loader is not self]
        args = tuple(unwrap(value) for value in args)
        kwargs = {key: unwrap(value) for key, value in kwargs.items()}
        result = self._batched_runs(*args, **kwargs) if name == "batch" and len(self._history) == 1 else None
        if result is None:
            with self._raising_source_errors():
                result = getattr(self.dataset, name)(*args, **kwargs)
        if not _is_dataset(result):
            return result
        step = Transformation(label=dataset_label(name), method=name, args=args, kwargs=kwargs, dataset=result)
        return self._transformed(result, step, others)

    def _transformed(self, dataset: TfDataset, step: Transformation, others: Iterable[DataLoader] = ()) -> DataLoader:
        sources = dict.fromkeys(self._sources + tuple(source for loader in others for source in loader._sources))
        return self._extended((*self._history, step), _dataset=dataset, _sources=tuple(sources), _n_samples=None)

    def _batched_runs(
        self, batch_size: object = None, drop_remainder: object = False, *args: object, **kwargs: object
    ) -> TfDataset | None:
        """`batch` directly on Python samples of one shape, made from their runs: two to four times as fast."""
        if self._runs is None or args or kwargs or not isinstance(drop_remainder, bool):
            return None
        if not isinstance(batch_size, int) or batch_size < 1:
            return None
        batches = self._runs.rebatch(batch_size, drop_remainder=drop_remainder)
        samples = self._sources[0].known_n_samples
        if samples is None:
            return batches
        tf = require("tensorflow", purpose="DataLoader.batch")
        count = samples // batch_size if drop_remainder else -(-samples // batch_size)
        return batches.apply(tf.data.experimental.assert_cardinality(count))

    # Iteration

    def __iter__(self) -> Iterator[Element]:
        source = self._native_source()
        if source is not None and source.gives_tensors:
            return SharedIterator(source.tensors())
        return SharedIterator(self._surfacing(iter(self.dataset)))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        source = self._native_source()
        if source is None or source.made_of is None:
            raise not_copied(
                "a DataLoader over tf.data",
                "Its graph cannot be sent: make it where it is used. DataLoader.from_cache(…) without tf.data "
                "transformations can be pickled, and so can what it converts to (to_torch, to_numpy).",
            )
        return _from_cache_again, (*source.made_of, 0 if source.passes is None else source.passes.epoch)

    def __len__(self) -> int:
        """As for a Dataset, TypeError if the length is unknown or infinite."""
        source = self._native_source()
        return len(self.dataset) if source is None or source.by_record else source.num_batches()

    def conversion_elements(self) -> Iterable[object]:
        """What a conversion reads: a cache's own batches if nothing is in between, else TensorFlow's tensors."""
        source = self._native_source()
        return self if source is None or source.by_record else source.open_pass()

    @property
    def converts_tensors(self) -> bool:
        """Whether a conversion reads TensorFlow's tensors, and not a cache's own batches."""
        source = self._native_source()
        return source is None or source.by_record

    @property
    def native_loader(self) -> Loader | None:
        """The native Loader given to `from_cache`, whose cursor conversions move; None after transformations."""
        source = self._native_source()
        return None if source is None else source.given

    @property
    def passes_within(self) -> Passes | None:
        """The passes that conversions read, with their states; None for a native Loader and after transformations."""
        source = self._native_source()
        return None if source is None or source.by_record else source.passes

    def converted_loader(self) -> Loader | None:
        """The native loader whose batches a conversion of this loader reads unchanged."""
        source = self._native_source()
        return None if source is None or source.by_record else source.loader

    def _loaders_behind(self) -> list[Loader]:
        """The native loaders of caches, even after transformations."""
        return [source.loader for source in self._sources if isinstance(source, CacheSource)]

    def _surfacing(self, elements: Iterator[T]) -> Generator[T, None, None]:
        while True:
            with self._raising_source_errors():
                try:
                    element = next(elements)
                except StopIteration:
                    return
            yield element

    @contextlib.contextmanager
    def _raising_source_errors(self) -> Iterator[None]:
        """Raises the error of a Python source, instead of TensorFlow's error that holds only its text."""
        try:
            yield
        except Exception as error:
            tf = sys.modules.get("tensorflow")
            if tf is not None and isinstance(error, tf.errors.OpError):
                for source in self._sources:
                    raised, source.error = source.error, None
                    if raised is not None and f"{type(raised).__name__}: " in str(error.message):
                        raise raised from error
            raise

    # Counts

    def get_python_iterator_n_samples(self) -> int:
        """The number of samples of the Python iterable (of the dataset or cache it was made from).

        Known from `python_iterable_n_samples`, `len()` or an earlier whole pass; otherwise counted by a pass, which
        never ends on an endless iterable.
        """
        if self._sources:
            return self._sources[0].count()
        if self._n_source_samples is None:
            self._n_source_samples = _count(self._root, self)
        return self._n_source_samples

    def get_n_samples(self) -> int:
        """The number of elements: from tf.data if it knows it, else counted by a pass and remembered."""
        # The rest of a native loader's run depends on its cursor.
        moves = any(getattr(source, "given", None) is not None for source in self._sources)
        if self._n_samples is None or moves:
            known = None
            native = self._native_source()
            if native is not None and not native.by_record:
                known = len(self)
            elif len(self._history) == 1 and self._sources and isinstance(self._sources[0], PythonSource):
                known = self._sources[0].known_n_samples
            self._n_samples = _count(self.dataset, self) if known is None else known
        return self._n_samples

    # Conversions

    def to_jax(self, *, skip_keys: SkipKeys = ()) -> JaxDataLoader:
        """Elements as JAX arrays; keys in `skip_keys` are left unchanged (JAX has no arrays of text, for example)."""
        from beam_pipes.on_device.jax_loader import JaxDataLoader

        return JaxDataLoader(self, skip_keys=skip_keys)._labelled("to_jax")

    def to_torch(self, *, skip_keys: SkipKeys = ()) -> TorchDataLoader:
        """Elements as torch tensors on the CPU; `prefetch_to_devices` brings them to the GPU."""
        from beam_pipes.on_device.torch_loader import TorchDataLoader

        return TorchDataLoader(self, skip_keys=skip_keys)._labelled("to_torch")

    def to_numpy(self, *, skip_keys: SkipKeys = ()) -> NumpyDataLoader:
        """Elements as NumPy arrays that the consumer may change."""
        from beam_pipes.on_device.lambda_loader import NumpyDataLoader

        return NumpyDataLoader(self, skip_keys=skip_keys)._labelled("to_numpy")

    def to_lambdaDataLoader(
        self, lambda_class: type[LambdaDataLoader] | Callable[..., object], *args: object, **kwargs: object
    ) -> LambdaDataLoader:
        """Elements through a subclass of `LambdaDataLoader`, or through a plain function of one element."""
        from beam_pipes.on_device.lambda_loader import LambdaDataLoader

        if isinstance(lambda_class, type) and issubclass(lambda_class, LambdaDataLoader):
            return self._through(lambda_class, args, kwargs)
        if isinstance(lambda_class, type) or not callable(lambda_class):
            raise LoaderError(
                "to_lambdaDataLoader expects a subclass of LambdaDataLoader or a function of one element, got "
                f"{lambda_class!r}."
            )
        make: Callable[..., LambdaDataLoader] = LambdaDataLoader
        return make(self, lambda_class, *args, **kwargs)._labelled("to_lambdaDataLoader")

    def _through(
        self, lambda_class: type[LambdaDataLoader], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> LambdaDataLoader:
        """An instance of `lambda_class`; by the keywords of MIDAS where its constructor names them."""
        make: Callable[..., LambdaDataLoader] = lambda_class
        label = lambda_class.__name__
        if "__init__" in vars(lambda_class) and "input_dataset" in inspect.signature(lambda_class).parameters:
            tracker = [*self.get_transformation_list(), label]
            source = self._sources[0] if self._sources else None
            kwargs = {"python_iterable": source, "python_iterable_n_samples": None, **kwargs}
            return make(*args, input_dataset=self, transformation_tracker=tracker, **kwargs)
        converted = make(self, *args, **kwargs)
        converted._history = (*converted._history, Transformation(label=label))
        return converted

    def prefetch_to_devices(
        self, size: int = 2, *, device: str | None = None, copies: DeviceCopies | None = None
    ) -> DataLoader:
        """`size` elements ahead on `device`: the first GPU; the host without one. The last step of a chain.

        For a GPU every element passes through pinned memory, without which the copy does not overlap with the GPU's
        work (tensorflow#43905); those with text or ragged values do not. `copies` takes the place of TensorFlow's
        own, in a test without a GPU.
        """
        tf = require("tensorflow", purpose="DataLoader.prefetch_to_devices")
        if size < 1:
            raise LoaderError(f"prefetch_to_devices needs a size of at least 1, got {size}.")
        if device is None:
            gpus = tf.config.list_logical_devices("GPU")
            device = gpus[0].name if gpus else "/cpu:0"
        dataset = pinned(self.dataset) if copies is not None or "gpu" in device.lower() else self.dataset
        if copies is None:
            dataset = dataset.apply(tf.data.experimental.prefetch_to_device(device, buffer_size=size))
        else:
            dataset = copied(dataset, copies).prefetch(size)
        step = Transformation(label=loader_label("DataLoader", "prefetch_to_devices"), dataset=dataset)
        return self._transformed(dataset, step)

    # Use of the list of transformations

    def explain(self) -> list[Suggestion]:
        """What wastes work or surprises in the order of the transformations, and what to do about it."""
        return suggestions(self)

    def optimize(self) -> DataLoader:
        """The same elements in the same order, with filters before maps whose results they do not read."""
        return optimized(self)


def _from_cache_again(
    cache: RowSource | Mixture | Cache | Loader, batch_size: int | None, options: dict[str, object], epoch: int
) -> DataLoader:
    """A DataLoader that was pickled or copied."""
    make: Callable[..., DataLoader] = DataLoader.from_cache
    loader = make(cache, batch_size=batch_size, **options)
    if epoch:
        loader.set_epoch(epoch)
    return loader


def _call_static(name: str, *args: object, **kwargs: object) -> object:
    """A static method of Dataset on loaders: history and count continue from the first loader in the arguments."""
    tf = require("tensorflow", purpose=f"DataLoader.{name}")
    loaders = list(loaders_in([args, kwargs]))
    method: Callable[..., object] = getattr(tf.data.Dataset, name)
    result = method(*map(unwrap, args), **{key: unwrap(value) for key, value in kwargs.items()})
    if not _is_dataset(result):
        return result
    step = Transformation(label=dataset_label(name), dataset=result)
    if loaders:
        return loaders[0]._transformed(result, step, loaders[1:])
    loader = DataLoader(result)
    loader._history = (step,)
    return loader


def _is_dataset(value: object) -> TypeGuard[TfDataset]:
    tf = sys.modules.get("tensorflow")  # a Dataset cannot exist before TensorFlow is imported
    return tf is not None and isinstance(value, tf.data.Dataset)


def _count(dataset: TfDataset, loader: DataLoader) -> int:
    tf = require("tensorflow", purpose="DataLoader.get_n_samples")
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise LoaderError("this loader never ends: it repeats for ever. Count before .repeat(), or take(n) after it.")
    if cardinality != tf.data.UNKNOWN_CARDINALITY:
        return cardinality
    for source in loader._sources:
        source.refuse_consuming("count the elements")
    one = tf.constant(1, tf.int64)
    with loader._raising_source_errors():
        return int(dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + one))
