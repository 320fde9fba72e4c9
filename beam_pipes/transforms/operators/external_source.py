"""Python in graphs: `fn.external_source`, samples that are pulled or pushed, and `fn.python_function`."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_pipes.errors import GraphError
from beam_pipes.graph.operator import Constant, Node, Operator
from beam_pipes.graph.reader import BatchPlace, Fed, Stream
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.graph.types import BatchInfo, SampleInfo

CYCLES = ("no", "quiet", "raise")


T = TypeVar("T")


class ExternalSource(Fed):
    """Samples from Python code.

    `source` is one of

    - a callable: called for each batch, with nothing or the number of the batch in its epoch (`batch_info=True`: a
      `BatchInfo`); or, with `batch=False`, for each sample with its `SampleInfo`. It ends an epoch by raising
      `StopIteration`. A source that depends only on the info can be resumed anywhere;
    - an iterable or a generator function: of batches, or with `batch=False` of samples. It is iterated once per epoch;
      a generator lasts for one epoch, an object whose `__iter__` restarts and returns itself for all;
    - nothing: then batches are pushed, `pipe.feed_input(name, batch)`, and one is taken for each run. A loop over an
      iterator takes the waiting ones.

    A batch is an array with a leading axis, or a list of arrays; with `num_outputs`, a tuple of that many batches.

        external_source(lambda info: np.float32(info.idx_in_epoch), batch=False)  →  0.0, 1.0, 2.0, …
    """

    positional = ("source", "num_outputs")
    without_effect = (*Operator.without_effect, "blocking", "cuda_stream", "use_copy_kernel")
    source = Constant("any", default=None, doc="the source of the data; None if it is pushed")
    num_outputs = Constant(
        "int", default=None, doc="how many data nodes it gives, as a list; one node by default", least=1
    )
    cycle = Constant(
        "any",
        default=None,
        choices=(*CYCLES, True, False),
        doc="at the end of the data: 'raise' ends the epoch with StopIteration and begins again after it, 'quiet' "
        "begins again at once, 'no' needs a reset in between",
    )
    batch = Constant("bool", default=True, doc="whether `source` gives batches or samples")
    batch_info = Constant("bool", default=False, doc="whether a callable of batches gets a BatchInfo")
    repeat_last = Constant("bool", default=False, doc="whether a pushed batch is repeated if no other is waiting")
    parallel = Constant("bool", default=False, doc="accepted as DALI's: iterators make batches ahead in any case")
    no_copy = Constant("bool", default=False, doc="accepted as DALI's: what the source gives is copied in any case")
    prefetch_queue_depth = Constant("int", default=1, doc="accepted as DALI's: the pipeline's own decides")
    layout = Constant("strs", default=None, doc="names of the axes, such as 'HWC'; one, or one for each output")
    dtype = Constant("any", default=None, doc="the dtype of the samples, checked; one, or a list with one per output")
    ndim = Constant("ints", default=None, doc="the rank of the samples, checked; one, or one for each output")

    def check(self) -> None:
        from beam_pipes.graph.tensors import to_numpy_type

        if self.source is not None and not callable(self.source) and not hasattr(self.source, "__iter__"):
            raise self.argument_error(f"source should be a callable or an iterable, got {self.source!r:.60}.")
        dtypes = list(self.dtype) if isinstance(self.dtype, (list, tuple)) else [self.dtype]
        self._dtypes = self._spread("dtype", [None if one is None else to_numpy_type(one) for one in dtypes])
        self._ndims = self._spread("ndim", [None] if self.ndim is None else self.ndim.tolist())
        self._layouts = self._spread("layout", [""] if self.layout is None else self.layout)
        for index, (layout, ndim) in enumerate(zip(self._layouts, self._ndims, strict=True)):
            if layout and ndim is None:
                self._ndims[index] = len(layout)
            elif layout and len(layout) != ndim:
                raise self.argument_error(f"layout {layout!r} names {len(layout)} axes, and ndim is {ndim}.")

    def _spread(self, name: str, values: list[T]) -> list[T]:
        count = self.output_count()
        values = values * count if len(values) == 1 else values
        if len(values) != count:
            raise self.argument_error(
                f"{name} should be one value, or one for each of {count} outputs; got {len(values)}."
            )
        return values

    @property
    def _cycle(self) -> str:
        known = {None: "no", False: "no", True: "quiet"}
        return known[self.cycle] if self.cycle in (None, False, True) else str(self.cycle)

    def output_count(self) -> int:
        return 1 if self.num_outputs is None else int(self.num_outputs)

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        return [
            TensorSpec.of_rank(dtype, ndim, layout)
            for dtype, ndim, layout in zip(self._dtypes, self._ndims, self._layouts, strict=True)
        ]

    def result(self, nodes: Sequence[Node]) -> Node | list[Node]:
        return nodes[0] if self.num_outputs is None else list(nodes)

    def stream(self) -> Stream:
        if self.source is None:
            return PushedStream(self)
        return CalledStream(self) if _is_callback(self.source) else IteratedStream(self)

    def columns(self, given: Any) -> list[TensorList]:
        """The source's data for a batch as columns, checked."""
        count = self.output_count()
        parts = [given] if self.num_outputs is None else list(given)
        if len(parts) != count:
            raise GraphError(f"{self.name}: the source should give {count} outputs, got {len(parts)}.")
        for part in parts:
            if part is None or isinstance(part, (bool, int, float, np.generic)) or getattr(part, "ndim", 1) == 0:
                raise GraphError(
                    f"{self.name}: the source should give a batch, an array with a leading axis or a list of arrays, "
                    f"got {part!r:.40}. To end the epoch, raise StopIteration; to give samples, say batch=False."
                )
        columns = [part if isinstance(part, TensorList) else TensorList(_host(part)) for part in parts]
        for index, column in enumerate(columns):
            self._check_column(index, column)
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(str(len(column)) for column in columns)
            raise GraphError(f"{self.name}: all outputs of the source should have as many samples, got {sizes}.")
        return columns

    def _check_column(self, index: int, column: TensorList) -> None:
        if not len(column):
            return
        dtype, ndim = self._dtypes[index], self._ndims[index]
        which = f"output {index} of the source" if self.output_count() > 1 else "the source"
        if dtype is not None and column.dtype != dtype:
            raise GraphError(
                f"{self.name}: {which} should give {dtype}, got {column.dtype}. Convert it, or leave out dtype."
            )
        if ndim is not None and column[0].ndim != ndim:
            raise GraphError(f"{self.name}: {which} should give samples of rank {ndim}, got {column[0].ndim}.")


def _is_callback(source: object) -> bool:
    return callable(source) and not inspect.isgeneratorfunction(source) and not inspect.isclass(source)


def _host(value: Any) -> Any:
    """The data of a source as independent NumPy arrays, because a source may reuse one buffer."""
    if isinstance(value, (list, tuple)):
        return [_host(one) for one in value]
    if isinstance(value, (bool, int, float, np.generic)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return np.frombuffer(bytes(value), np.uint8)
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.array(value)


def _takes_an_argument(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) and p.default is p.empty
        for p in parameters
    )


class _SourceStream(Stream):
    def __init__(self, operator: ExternalSource) -> None:
        self.operator = operator

    @property
    def ends_quietly(self) -> bool:
        return self.operator._cycle == "quiet"

    @property
    def needs_reset(self) -> bool:
        """Whether the source stays exhausted until the pipeline is reset."""
        return self.operator._cycle == "no"

    def _of_samples(self, samples: Sequence[Any]) -> list[TensorList] | None:
        """Samples as columns."""
        if not samples:
            return None
        operator = self.operator
        if operator.num_outputs is None:
            return operator.columns([_host(one) for one in samples])
        return operator.columns(
            tuple([_host(one[index]) for one in samples] for index in range(operator.output_count()))
        )


class CalledStream(_SourceStream):
    """A callable, asked for every batch or sample."""

    def __init__(self, operator: ExternalSource) -> None:
        super().__init__(operator)
        self._takes_info = _takes_an_argument(operator.source)

    def next(self, place: BatchPlace) -> list[TensorList] | None:
        operator = self.operator
        if operator.batch:
            argument: object = BatchInfo(place.iteration, place.epoch) if operator.batch_info else place.iteration
            try:
                return operator.columns(operator.source(argument) if self._takes_info else operator.source())
            except StopIteration:
                return None
        samples = []
        try:
            for index in range(place.size):
                info = SampleInfo(place.first + index, index, place.iteration, place.epoch)
                samples.append(operator.source(info) if self._takes_info else operator.source())
        except StopIteration:
            pass
        return self._of_samples(samples)

    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        if not self._takes_info and iteration:
            raise GraphError(
                f"{self.operator.name}: a source without arguments cannot continue in the middle of an epoch. Let "
                "it take the number of the batch, a BatchInfo or a SampleInfo."
            )


class IteratedStream(_SourceStream):
    """An iterable, iterated once per epoch."""

    def __init__(self, operator: ExternalSource) -> None:
        super().__init__(operator)
        self._iterator: Iterator[object] | None = None
        self._epoch = 0
        source = operator.source
        # An object whose `__iter__` returns itself may restart there, as in DALI's tutorial.
        self._is_once = isinstance(source, Iterator) and not inspect.isfunction(type(source).__iter__)
        self._was_asked = False

    def next(self, place: BatchPlace) -> list[TensorList] | None:
        iterator = self._iterator if place.epoch == self._epoch else None
        begins = iterator is None
        if iterator is None:
            iterator = self._begin(place.epoch)
            self._iterator, self._epoch = iterator, place.epoch
        given: list[object] = []
        # Not by `for` or `islice`: they call `__iter__`, where a source may restart.
        while len(given) < (1 if self.operator.batch else place.size):
            one = next(iterator, _END)
            if one is _END:
                break
            given.append(one)
        if not given and begins and self._was_asked and iterator is self.operator.source:
            raise self._gone_through(place.epoch)
        self._was_asked = True
        if self.operator.batch:
            return self.operator.columns(given[0]) if given else None
        return self._of_samples(given)

    def _begin(self, epoch: int) -> Iterator[object]:
        if self._is_once and self._was_asked:
            raise self._gone_through(epoch)
        source = self.operator.source
        found: Iterator[object] = iter(source() if callable(source) else source)
        return found

    def _gone_through(self, epoch: int) -> GraphError:
        return GraphError(
            f"{self.operator.name}: the source is an iterator, which can be gone through once, and epoch {epoch} "
            "begins. Pass what makes it: a generator function, or an iterable such as a list."
        )

    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        if iteration and isinstance(self.operator.source, Iterator):
            raise GraphError(
                f"{self.operator.name}: the source is an iterator, which cannot go back. Pass a callable, a generator "
                "function or a list."
            )
        self._iterator, self._epoch = None, epoch
        if iteration:
            self._iterator = self._begin(epoch)
            for _ in range(iteration * (1 if self.operator.batch else batch_size)):
                if next(self._iterator, _END) is _END and self.ends_quietly:
                    self._iterator = self._begin(epoch)
                    next(self._iterator, None)


class PushedStream(_SourceStream):
    """Batches that the user pushes."""

    def __init__(self, operator: ExternalSource) -> None:
        super().__init__(operator)
        self.waiting: collections.deque[list[TensorList]] = collections.deque()
        self._last: list[TensorList] | None = None

    def feed(self, batch: object) -> None:
        """Adds a batch to the waiting ones."""
        self.waiting.append(self.operator.columns(batch))

    def next(self, place: BatchPlace) -> list[TensorList]:
        if not self.waiting and self._last is not None and self.operator.repeat_last:
            return self._last
        if not self.waiting:
            raise GraphError(
                f"{self.operator.name}: there is no batch to run on. Push one first: "
                f"pipe.feed_input({self.operator.name!r}, batch)."
            )
        self._last = self.waiting.popleft()
        return self._last

    @property
    def num_waiting(self) -> int | None:
        if not self.waiting and self._last is not None and self.operator.repeat_last:
            return None
        return len(self.waiting)

    def move(self, epoch: int, iteration: int, *, batch_size: int) -> None:
        """Keeps pushed batches: they come next, whatever the position of the run."""

    def forget(self) -> None:
        self.waiting.clear()


_END = object()


class PythonFunction(Operator):
    """Calls a Python function for every sample, or once for the batch (`batch_processing=True`: with lists of samples).

    The graph assumes side effects: it runs even if its output is unused, in the order of the batches. It returns one
    array for each output; a tuple if there are several.

        python_function(image, function=lambda image: image[::-1])

    With `pure=True` it has none: it may be before a cut, where the function's code and the outside values that it uses
    are part of the cache's fingerprint, so that changing them rebuilds what depends on it.
    """

    inputs = ("input",)
    variadic = True
    optional_inputs = 1
    side_effects = True
    holds_gil = True
    positional = ("function",)
    function = Constant("callable", doc="the function, called with one NumPy array for each input")
    num_outputs = Constant("int", default=1, doc="number of arrays that it returns")
    batch_processing = Constant("bool", default=False, doc="whether it takes and gives lists of all samples of a batch")
    pure = Constant("bool", default=False, doc="whether its result depends only on its inputs, without side effects")

    def check(self) -> None:
        self.side_effects = not self.pure
        if self.pure and self.num_outputs < 1:
            raise self.argument_error(
                "a pure function gives something: num_outputs should be at least 1 with pure=True."
            )

    def output_count(self) -> int:
        return int(self.num_outputs)

    def result(self, nodes: Sequence[Node]) -> object:
        return None if not nodes else super().result(nodes)

    @property
    def mixes_samples(self) -> bool:
        return bool(self.batch_processing)

    def run(self, sample: Sample, *inputs: Array) -> object:
        made = self.function(*inputs)
        if self.num_outputs == 0:
            return ()
        return made

    @property
    def run_batch(self) -> object:
        return self._run_batch if self.batch_processing else None

    def _run_batch(self, samples: Samples, *columns: TensorList) -> TensorList | tuple[TensorList, ...]:
        made = self.function(*[list(column) for column in columns])
        if self.num_outputs == 1:
            return TensorList(list(made))
        return tuple(TensorList(list(one)) for one in made) if self.num_outputs else ()
