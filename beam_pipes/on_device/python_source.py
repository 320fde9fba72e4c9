"""Feeds Python samples to tf.data in runs: one hand-over per run instead of one per sample.

`PythonSource` wraps the iterable: fresh passes over it, its count, and the error that it raised.
`tf.data.Dataset.from_generator` spends some 300 µs on every value. Here it receives runs of samples stacked in NumPy,
which TensorFlow takes apart again in C++.

`DALIDataset`: the batches of a graph of operators as a tf.data.Dataset.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from beam_pipes.errors import LoaderError, SpecError
from beam_pipes.extras import TfDataset, TfTensor, require, unbatched
from beam_pipes.format.spec import UNCHANGEABLE, owned
from beam_pipes.on_device.conversions import Nested
from beam_pipes.on_device.inference import (
    ColumnSignature,
    Path,
    array_dtype,
    build_column,
    flatten_sample,
    infer_columns,
    keys_error,
    nest,
    tensor_dtype,
)
from beam_pipes.on_device.values import STRING, UnfitValueError, check_numbers, convert, read_value

if TYPE_CHECKING:
    import tensorflow as tf

T = TypeVar("T")

#: What makes samples: a generator function or a class, or an iterable of dicts.
Samples: TypeAlias = Iterable[object] | Callable[[], Iterable[object]]

# A one-shot iterator that is inferred over all its samples is kept in memory up to this size, then in a temporary file.
SPOOL_BYTES = 64 * 2**20


def table_columns(table: Any) -> dict[str, Any] | None:
    """The columns of a data frame, a structured array or a dict; None for anything else. A bare array has no keys."""
    if isinstance(table, np.ndarray) and table.dtype.names:
        return {name: table[name] for name in table.dtype.names}
    if isinstance(table, np.ndarray):
        raise LoaderError(
            f"expected samples that are dicts, got an array of shape {table.shape}. "
            "Name it: DataLoader({'x': array})."
        )
    if isinstance(table, Mapping):
        columns = dict(table)
    elif hasattr(table, "columns") and hasattr(table, "to_numpy"):
        if len(names := [*map(str, table.columns)]) > len({*names}):
            raise LoaderError(f"expected different names of columns, got {names}. Rename them.")
        columns = {str(name): _of_series(str(name), table[name]) for name in table.columns}
    else:
        return None
    scalars = [name for name, column in columns.items() if not hasattr(column, "__len__") or isinstance(column, str)]
    if scalars or not columns:
        raise LoaderError(
            f"expected a dict of columns, arrays or lists of one length; got {type(columns[scalars[0]]).__name__} for "
            f"{scalars[0]!r}. One sample is a list of one dict: DataLoader([sample])."
            if scalars
            else "expected a table with at least one column, got none."
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise LoaderError(f"expected columns of one length, got {lengths}.")
    return {name: _array_of(name, column) for name, column in columns.items()}


def _of_series(name: str, column: Any) -> Any:
    """The values of a column of a data frame; NaN for what is missing among floats, and nowhere else."""
    kind, own = getattr(column.dtype, "kind", None), getattr(column.dtype, "numpy_dtype", None)
    missing = column.isna() if hasattr(column, "isna") else column.is_null()
    if missing.any() and kind != "f":
        raise LoaderError(
            f"the column {name!r} has no value in {int(missing.sum())} of {len(column)} rows, and a {column.dtype} "
            f"tensor cannot say so. Leave such rows out (dropna(subset=[{name!r}])), or fill them with a value that "
            "your model knows (fillna)."
        )
    if kind is not None and kind in "mM":
        raise LoaderError(
            f"the column {name!r} is {column.dtype}, which no tensor is. Convert it to a number first, such as "
            "seconds: astype('int64') // 10**9 of nanoseconds."
        )
    if kind is None or own is None or kind not in "biuf":
        return _as_python_floats(column.to_numpy())
    return _as_python_floats(
        column.to_numpy(dtype=own, na_value=math.nan) if kind == "f" else column.to_numpy(dtype=own)
    )


def _as_python_floats(values: np.ndarray) -> np.ndarray:
    """A data frame's float64, which nobody has chosen, as Python floats: float32.

    If whole numbers do not fit into float32 (ids or times beside gaps), or numbers exceed its range, all stay as they
    are.
    """
    if values.dtype != np.float64:
        return values
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    kept = (single != values) & ((values == np.floor(values)) | np.isinf(single))
    return values if (kept & ~np.isnan(values)).any() else single


def _array_of(name: str, column: Any) -> Any:
    """A column as an array; Python values follow the rules for samples, which round no integer."""
    if not isinstance(column, list | tuple) and getattr(column, "dtype", None) != np.dtype(object):
        return column
    values = list(column)
    if not values:
        return column
    (signature,) = infer_columns({name: value} for value in values)
    made = build_column(values, signature, 0)
    if made.extents is not None:
        raise LoaderError(
            f"the column {name!r} has values of several shapes, such as lists of different lengths. Give rows "
            "instead, which may: DataLoader([{…}, {…}]), of a data frame table.to_dict('records')."
        )
    return made.values


class PythonSource:
    """Passes over a generator function, a class, an iterable or a one-shot iterator.

    A one-shot iterator allows one pass: the samples read for inference come first, so none is lost, and a second pass
    is refused. The last error of a pass is kept in `error`, because TensorFlow forwards only its text.
    """

    def __init__(self, python_iterable: Samples, n_samples: int | None = None) -> None:
        self.error: BaseException | None = None
        self._open = _opener(python_iterable)
        self.one_shot = not isinstance(python_iterable, type) and isinstance(python_iterable, Iterator)
        self._head: list[object] = []
        self._spool: _Spool | None = None
        self._started = False
        self._lock = threading.Lock()
        if n_samples is None and not isinstance(python_iterable, type) and isinstance(python_iterable, Sized):
            n_samples = len(python_iterable)
        if n_samples is not None and (isinstance(n_samples, bool) or int(n_samples) != n_samples or n_samples < 0):
            raise LoaderError(f"python_iterable_n_samples should be an int of at least 0, got {n_samples!r}.")
        self.declared = None if n_samples is None else int(n_samples)
        self._counted: int | None = None

    @property
    def known_n_samples(self) -> int | None:
        """The number of samples if it was declared, or seen in a whole pass."""
        return self._counted if self.declared is None else self.declared

    def sampled(self, infer_k: int) -> Iterator[object]:
        """The first `infer_k` samples (all for -1), which the first pass gives again."""
        if not self.one_shot:
            samples = self._open()
            try:
                yield from samples if infer_k == -1 else itertools.islice(samples, infer_k)
            finally:
                _close(samples)
        elif infer_k == -1:
            self._spool = _Spool()
            for sample in self._open():
                self._spool.append(sample)
                yield sample
            self._counted = len(self._spool)
        else:
            for sample in itertools.islice(self._open(), infer_k):
                self._head.append(_held(sample))
                yield sample

    def __iter__(self) -> Iterator[object]:
        """One pass; a complete pass sets the count, and must have the declared number of samples."""
        samples = self._begin()
        number = 0
        try:
            for sample in samples:
                if number == self.declared:
                    raise LoaderError(
                        f"python_iterable_n_samples is {self.declared}, but the iterable gives more. "
                        "Correct the number, or leave it out."
                    )
                yield sample
                number += 1
        finally:
            _close(samples)
        if self.declared is not None and number != self.declared:
            raise LoaderError(
                f"python_iterable_n_samples is {self.declared}, but the iterable ended after {number}. "
                "Correct the number, or leave it out."
            )
        self._counted = number

    def recording(self, items: Iterator[T]) -> Iterator[T]:
        """`items`, made from a pass; an exception on the way is kept in `error`."""
        try:
            yield from items
        except Exception as error:
            self.error = error
            raise

    def count(self) -> int:
        """The number of samples, counted by a pass over the iterable if it is unknown."""
        if self.known_n_samples is None:
            self.refuse_consuming("count its samples")
            for _ in self:
                pass
        known = self.known_n_samples
        assert known is not None
        return known

    def refuse_consuming(self, purpose: str) -> None:
        """Raises if a pass only for information would use up a one-shot iterator."""
        if self.one_shot and self._spool is None and self._counted is None:
            raise LoaderError(
                f"to {purpose} would use up a one-shot iterator. Pass python_iterable_n_samples, "
                "or a generator function or list, which can be read again."
            )

    def _begin(self) -> Iterator[object]:
        if not self.one_shot:
            return self._open()
        if self._spool is not None:
            return iter(self._spool)
        with self._lock:
            if self._started:
                raise LoaderError(
                    "a one-shot iterator can be read only once, and it has been read before. Pass a generator "
                    "function or an iterable that can be read again, or put .cache() before what reads it again."
                )
            self._started = True
        head, self._head = self._head, []
        return itertools.chain(head, self._open())


def _opener(python_iterable: Samples) -> Callable[[], Iterator[object]]:
    if isinstance(python_iterable, Iterable) and not isinstance(python_iterable, type | str | bytes | dict):
        return lambda: iter(python_iterable)
    if callable(python_iterable):
        _check_parameters(python_iterable)
        return lambda: iter(_checked(python_iterable()))
    raise LoaderError(
        "python_iterable should be a generator function, a class or an iterable of dicts, got "
        f"{type(python_iterable).__name__}."
    )


def _check_parameters(make: Callable[..., object]) -> None:
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise LoaderError(
            f"python_iterable is called without arguments, but {getattr(make, '__name__', make)} needs some: {error}. "
            "Bind them with functools.partial, or pass what the call returns."
        ) from None
    except ValueError:
        pass  # a C function without a signature


def _checked(opened: object) -> Iterable[object]:
    if not isinstance(opened, Iterable) or isinstance(opened, str | bytes | dict):
        raise LoaderError(
            f"calling python_iterable gave a {type(opened).__name__}, expected something to iterate over. "
            "Use yield in the function, or return an iterable of dicts."
        )
    return opened


def _close(samples: Iterator[object]) -> None:
    close = getattr(samples, "close", None)
    if callable(close):
        close()


class _Spool:
    """Samples written once and read any number of times; beyond `SPOOL_BYTES` they are kept on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)
        self._lock = threading.Lock()
        self._end = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, sample: object) -> None:
        with self._lock:
            self._file.seek(self._end)
            pickle.dump(sample, self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._end = self._file.tell()
            self._length += 1

    def __iter__(self) -> Iterator[object]:
        position = 0
        while position < self._end:
            with self._lock:
                self._file.seek(position)
                sample = pickle.load(self._file)
                position = self._file.tell()
            yield sample


# Nested values, with lengths or shapes by key: what `from_generator` receives at once.
Run = tuple[dict[object, object], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunLimits:
    """How far a generator is read ahead: a run ends at the first of these.

    Runs start at one sample and double, so that `take(3)` reads about three. `seconds` avoids waiting for a slow
    generator: at 1 ms per sample a run has about 10, and the hand-over still costs only 4 % of the time.
    """

    samples: int = 1024
    bytes: int = 4 * 2**20
    seconds: float = 0.01

    def __post_init__(self) -> None:
        if self.samples < 1 or self.bytes < 1 or self.seconds <= 0:
            raise SpecError(f"RunLimits needs samples and bytes of at least 1 and seconds above 0, got {self}.")


def _held(sample: Any) -> object:
    """The sample as it is now: a generator may fill the same dict, list, array or tensor for the next one."""
    kind = type(sample)
    if kind is dict:  # the usual case: checks of abstract classes cost 0.3 µs for each value
        return {name: value if type(value) in UNCHANGEABLE else _held(value) for name, value in sample.items()}
    if kind is np.ndarray:
        return sample.copy(order="K")
    if kind is list or kind in UNCHANGEABLE:
        return owned(sample)
    if isinstance(sample, Mapping):
        return {name: _held(value) for name, value in sample.items()}
    if hasattr(sample, "clone") and hasattr(sample, "numpy"):  # a tensor of torch
        return sample.clone()
    return owned(sample)


def runs(samples: Iterable[object], columns: Sequence[ColumnSignature], limits: RunLimits) -> Iterator[Run]:
    """Runs of samples as columns; samples before a failing one are yielded before its error is raised."""
    stream = iter(samples)
    number, target = 0, 1
    failure: BaseException | None = None
    ended = False
    try:
        while not ended:
            run: list[object] = []
            deadline = time.perf_counter() + limits.seconds
            try:
                for sample in stream:
                    run.append(_held(sample))
                    if len(run) >= target or time.perf_counter() > deadline:
                        break
                else:
                    ended = True
            except Exception as error:
                failure, ended = error, True
            size = 0
            for structure in _structures(run, columns, number):
                size += sum(map(_size, _leaves(structure[0])))
                yield structure
            if failure is not None:
                raise failure
            number += len(run)
            if len(run) >= target and size:
                target = max(1, min(2 * target, limits.samples, limits.bytes * len(run) // size))
    finally:
        close = getattr(stream, "close", None)
        if callable(close):
            close()


def _structures(run: list[object], columns: Sequence[ColumnSignature], number: int) -> Iterator[Run]:
    """The run as one structure, or up to the first sample that fails."""
    if not run:
        return
    try:
        structure = _structure(run, columns, number)
    except SpecError as error:
        good = (error.sample or number) - number
        if good:
            yield from _structures(run[:good], columns, number)
        raise
    yield structure


def _structure(run: list[object], columns: Sequence[ColumnSignature], number: int) -> Run:
    built = []
    failure: SpecError | None = None
    for column, raw in zip(columns, _raw_columns(run, columns, number), strict=True):
        try:
            built.append((column.path, build_column(raw, column, number)))
        except SpecError as error:
            if failure is None or error.sample < failure.sample:
                failure = error
    if failure is not None:
        raise failure
    values = nest((path, column.values) for path, column in built)
    extents = {"/".join(map(str, path)): column.extents for path, column in built if column.extents is not None}
    return values, extents


def _raw_columns(run: list[object], columns: Sequence[ColumnSignature], number: int) -> list[list[object]]:
    count = len(columns)
    flat = [sample for sample in run if isinstance(sample, dict) and len(sample) == count]
    if len(flat) == len(run) and all(len(column.path) == 1 for column in columns):
        try:
            return [[sample[column.path[0]] for sample in flat] for column in columns]
        except KeyError:
            pass  # found and named below
    expected = [column.path for column in columns]
    wanted = set(expected)
    rows = []
    for offset, sample in enumerate(run):
        row = dict(flatten_sample(sample, number + offset))
        if row.keys() != wanted:
            raise keys_error(number + offset, expected=expected, found=row)
        rows.append(row)
    return [[row[path] for row in rows] for path in expected]


def _leaves(values: Mapping[object, object]) -> Iterator[np.ndarray]:
    for value in values.values():
        if isinstance(value, dict):
            yield from _leaves(value)
        elif isinstance(value, np.ndarray):
            yield value


def _size(array: np.ndarray) -> int:
    return sum(map(len, array.flat)) if array.dtype == STRING else array.nbytes


def batched_dataset(
    source: PythonSource, columns: Sequence[ColumnSignature], *, limits: RunLimits | None = None
) -> tuple[TfDataset, TfDataset | None]:
    """A tf.data.Dataset of the samples one by one, fed in runs; each iteration makes a new pass over `source`.

    The second dataset has the runs themselves, where all samples have one shape: `rebatch` makes batches of them
    without taking them apart. Elsewhere it is `None`.
    """
    tf = require("tensorflow", purpose="DataLoader")
    limits = limits or RunLimits()
    values = nest((column.path, _run_spec(column)) for column in columns)
    extents = {
        column.key: tf.TensorSpec((None,) if column.layout == "concatenated" else (None, len(column.shape)), tf.int64)
        for column in columns
        if column.layout != "stacked"
    }

    def feed() -> Iterator[object]:
        for run in source.recording(runs(source, columns, limits)):
            yield run if extents else run[0]

    dataset = tf.data.Dataset.from_generator(feed, output_signature=(values, extents) if extents else values)
    if not extents:
        return unbatched(dataset), dataset
    as_written = tf.autograph.experimental.do_not_convert  # nothing to convert, and it warns about what it cannot read
    return dataset.flat_map(as_written(lambda values, extents: taken_apart(values, extents, columns))), None


def _run_spec(column: ColumnSignature) -> tf.TensorSpec:
    tf = require("tensorflow", purpose="DataLoader")
    shapes = {"stacked": (None, *column.shape), "concatenated": column.shape, "flat": (None,)}
    return tf.TensorSpec(shapes[column.layout], tensor_dtype(column.dtype))


def taken_apart(values: Nested, extents: Mapping[str, TfTensor], columns: Sequence[ColumnSignature]) -> TfDataset:
    """A run as a dataset of its samples, without a function call per sample (25 µs each where it was measured)."""
    tf = require("tensorflow", purpose="DataLoader")
    parts = []
    for path, value in flatten_sample(values, 0):
        column = next(column for column in columns if column.path == path)
        if column.layout == "concatenated":
            parts.append((path, _pieces(value, extents[column.key], column.shape)))
        elif column.layout == "flat":
            parts.append((path, _shaped(value, extents[column.key], column.shape)))
        else:
            parts.append((path, tf.data.Dataset.from_tensor_slices(value)))
    return tf.data.Dataset.zip(nest(parts))


def _pieces(value: TfTensor, lengths: TfTensor, shape: tuple[int | None, ...]) -> TfDataset:
    """Concatenated values as a dataset of their pieces: a rebatching whose batch sizes are the lengths."""
    tf = require("tensorflow", purpose="DataLoader")
    spec = tf.TensorSpec(shape, value.dtype)
    rebatched = tf.raw_ops.RebatchDatasetV2(
        input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(value)),
        batch_sizes=lengths,
        drop_remainder=False,
        output_types=[spec.dtype],
        output_shapes=[spec.shape],
    )
    # It cycles through the lengths: with a zero among them it would give empty pieces at the end forever.
    return tf.data.experimental.from_variant(rebatched, spec).take(tf.size(lengths, tf.int64))


def _shaped(value: TfTensor, shapes: TfTensor, shape: tuple[int | None, ...]) -> TfDataset:
    """Flat values as a dataset of arrays of these shapes."""
    tf = require("tensorflow", purpose="DataLoader")
    flat = _pieces(value, tf.reduce_prod(shapes, axis=1), (None,))
    as_written = tf.autograph.experimental.do_not_convert
    pairs = tf.data.Dataset.zip((flat, tf.data.Dataset.from_tensor_slices(shapes)))
    return pairs.map(as_written(lambda array, own: tf.ensure_shape(tf.reshape(array, own), shape)))


def sample_dataset(source: PythonSource, signature: object) -> TfDataset:
    """Samples one by one, for signatures that columns cannot hold (ragged specs, tensors of unknown rank)."""
    tf = require("tensorflow", purpose="DataLoader")
    expected = dict(flatten_sample(signature, 0))

    def converted() -> Iterator[object]:
        for number, sample in enumerate(source):
            row = dict(flatten_sample(_held(sample), number))
            if row.keys() != expected.keys():
                raise keys_error(number, expected=expected, found=row)
            yield nest((path, _to_spec(row[path], spec, path, number)) for path, spec in expected.items())

    def _to_spec(value: object, spec: Nested, path: Path, number: int) -> Nested:
        try:
            if isinstance(spec, tf.TensorSpec):
                return convert(read_value(value), array_dtype(spec.dtype), declared=True)
            if isinstance(spec, tf.RaggedTensorSpec) and not isinstance(value, tf.RaggedTensor):
                check_numbers(value, array_dtype(spec.dtype))
                return tf.ragged.constant(value, dtype=spec.dtype, row_splits_dtype=spec.row_splits_dtype)
            return value
        except (UnfitValueError, TypeError, ValueError, OverflowError) as error:
            key = "/".join(map(str, path))
            raise SpecError(
                f"sample {number} does not fit key {key!r}: {error}. Change the value, or the output_signature.",
                key=key,
                sample=number,
            ) from error

    return tf.data.Dataset.from_generator(lambda: source.recording(converted()), output_signature=signature)
