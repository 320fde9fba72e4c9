"""`GraphIterator`: the batches of a pipeline, epoch by epoch, prepared ahead of their use.

`DALIGenericIterator`: the same for several pipelines, in the form of DALI's iterators.
"""

from __future__ import annotations

import enum
import itertools
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice, instance, nearest
from beam_pipes.errors import GraphError, LoaderError, OperatorArgumentError, UnboundedLoaderError
from beam_pipes.extras import TfDataset, require
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_number
from beam_pipes.graph.experimental import DebugPipeline
from beam_pipes.graph.feeding import Cursor, Work
from beam_pipes.graph.host_run import HostRun, Tally
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, TensorList, no_samples
from beam_pipes.loader.prefetch import MadeAhead, SharedIterator
from beam_pipes.loader.state import LoaderState

#: A batch by the names of its outputs: arrays of NumPy or of the device's library, or a list of one for each sample.
Batch: TypeAlias = dict[str, Any]


class Ahead(Protocol):
    """Batches with what `Pipeline.book` counts of each, until it is closed."""

    def __iter__(self) -> Iterator[tuple[Work, tuple[Tally, Batch]]]: ...

    def close(self) -> None: ...


RAGGED = ("list", "pad", "values")

#: With `last="pad"`, the name under which a batch says which of its rows are records.
VALID = "valid"


class LastBatchPolicy(enum.Enum):
    """DALI's names for the end of an epoch; their values are those of a pipeline's `last`."""

    FILL = "pad"
    DROP = "drop"
    PARTIAL = "partial"


#: Options of DALI's iterators without effect here: readers know where an epoch ends, and batches their shapes.
WITHOUT_EFFECT = "auto_reset", "dynamic_shape", "last_batch_padded", "prepare_first_batch", "size"


def _policy(policy: LastBatchPolicy | None, fill_last_batch: bool | None) -> LastBatchPolicy | None:
    """The end of an epoch, which programs for older versions of DALI say by `fill_last_batch`."""
    if fill_last_batch is None:
        return policy
    return LastBatchPolicy.FILL if fill_last_batch else LastBatchPolicy.PARTIAL


class GraphIterator:
    """Batches of a pipeline as dicts of NumPy arrays.

        for epoch in range(3):
            for batch in GraphIterator(pipe, ["images", "labels"]):
                batch["images"]     →  uint8 (32, 224, 224, 3)

    One loop is one epoch, from the pipeline's position; the next loop is the next epoch. Up to `prefetch_queue_depth`
    batches are prepared ahead by `num_threads` threads of the pipeline; by one thread, in order, if an operator has
    side effects or is fed from Python. Batches that take less than half a millisecond are made on request, because
    passing them between threads would cost more. `state` counts returned batches, not those prepared ahead. If batches
    are pushed (`feed_input`), none is prepared ahead, and a loop ends when no batch is waiting.

    Args:
        pipe: the pipeline, or a list with only it; its `last` decides how an epoch ends.
        output_map: names for the outputs, if the graph did not name them.
        ragged: how to return an output whose samples may differ in shape: "list" gives a list of arrays, or one array
            for a batch in which they do not; "pad" gives one array, padded with `pad_value` at the ends, and
            `name/lengths` (n,) or (n, rank); "values" gives the samples concatenated along their first axis, and
            `name/lengths`. With "pad" and "values" the graph decides which outputs these are, whatever a batch holds:
            all but scalars and those whose whole shape is known at definition (`node.spec`).
        pad_value: the padding of "pad".
        reader_name: a reader of the pipeline with as many records as the first source, which defines an epoch.
        last_batch_policy: a `LastBatchPolicy`, in place of the pipeline's `last`.
        fill_last_batch: the same as older programs say it: True for `FILL`, False for `PARTIAL`.
        without_effect: further options of DALI's iterators, those in `WITHOUT_EFFECT`.

    `next(iterator)` gives the next batch of the epoch, and `StopIteration` at its end.
    """

    def __init__(
        self,
        pipe: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str] | None = None,
        *,
        ragged: str = "list",
        pad_value: object = 0,
        reader_name: str | None = None,
        last_batch_policy: LastBatchPolicy | None = None,
        fill_last_batch: bool | None = None,
        **without_effect: object,
    ) -> None:
        last_batch_policy = _policy(last_batch_policy, fill_last_batch)
        for name in without_effect:
            if name not in WITHOUT_EFFECT:
                raise OperatorArgumentError(f"an iterator has no option {name!r}.{nearest(name, WITHOUT_EFFECT)}")
        if not isinstance(pipe, Pipeline):
            if len(pipe) != 1:
                raise OperatorArgumentError(
                    f"it takes one pipeline, got {len(pipe)}. Use DALIGenericIterator for them."
                )
            pipe = pipe[0]
        choice(ragged, of=RAGGED, what="ragged", error=OperatorArgumentError)
        if isinstance(pipe, DebugPipeline):
            raise GraphError(
                "iterators run a graph that is fixed, and in debug mode the function creates it again for each batch. "
                "Call pipe.run() in a loop, until StopIteration; or leave out debug=True."
            )
        if last_batch_policy is not None:
            pipe.end_epochs(last_batch_policy.value)
        size = None if reader_name is None else pipe.epoch_size(reader_name)
        if size is not None and size != (epoch := pipe.feeding.epoch_size):
            raise GraphError(
                f"reader_name={reader_name!r} has {size} records, and an epoch {epoch}: the first source of the "
                f"graph says what it is. Call {reader_name!r} first."
            )
        self.pipe = pipe
        self._loop: Iterator[Batch] | None = None
        self._ragged = ragged
        self._pad_value = pad_value
        plan = pipe.plan()
        names = tuple(output_map) if output_map is not None else pipe.output_names
        names = names or tuple(f"output_{index}" for index in range(len(plan.outputs)))
        if len(names) != len(plan.outputs) or len(set(names)) != len(names):
            raise OperatorArgumentError(
                f"output_map should give one name for each of the {len(plan.outputs)} outputs, got {list(names)}."
            )
        if VALID in names and pipe.options.last == "pad":
            raise OperatorArgumentError(f"with last='pad' the name {VALID!r} is taken: rename that output.")
        if ragged == "pad":
            for name, node in zip(names, plan.outputs, strict=True):
                if node.dtype is not None and not _is_dense(node.spec, node.spec.ndim):
                    _fill(name, pad_value, node.dtype)
        self.names = names
        self._ahead: Ahead | None = None
        self._newest: weakref.ref[SharedIterator[Batch]] | None = None
        self._is_quick = False

    def __len__(self) -> int:
        """Batches of an epoch; `UnboundedLoaderError` if a Python source decides."""
        steps = self.pipe.steps_per_epoch
        if steps is None:
            raise UnboundedLoaderError("a source in Python says when an epoch ends: its length is unknown until then.")
        return steps

    def __iter__(self) -> Iterator[Batch]:
        older = None if self._newest is None else self._newest()
        if older is not None:
            older.replace()  # continuing with it is an error, not a shorter epoch
        self.close()
        self._loop = None
        ahead = self._ahead = self._made_ahead(self._works())
        newest = SharedIterator(self._deliver(ahead))
        self._newest = weakref.ref(newest)
        return newest

    def __next__(self) -> Batch:
        if self._loop is None:
            self._loop = iter(self)
        try:
            return next(self._loop)
        except StopIteration:
            self._loop = None
            raise

    next = __next__

    def _deliver(self, ahead: Ahead) -> Generator[Batch, None, None]:
        try:
            for work, (tally, batch) in ahead:
                self.pipe.cursor = work.after
                self.pipe.book(tally)
                yield batch
            if ahead is self._ahead:
                self.pipe.end_epoch(goes_on=True)
        finally:
            self._is_quick = getattr(ahead, "is_quick", False)
            ahead.close()

    def _works(self) -> Iterator[Work]:
        """The rest of the current epoch; the next epoch if nothing is left."""
        pipe = self.pipe
        feeding = pipe.feeding
        feeding.move(pipe.cursor)
        if feeding.streams and not pipe.cursor.position:
            return self._works_from(pipe.cursor)
        first = self._take(pipe.cursor)
        if first is None:
            pipe.end_epoch(goes_on=True)
            feeding.move(pipe.cursor)
        return self._works_from(pipe.cursor, first)

    def _works_from(self, cursor: Cursor, first: Work | None = None) -> Iterator[Work]:
        work = self._take(cursor) if first is None else first
        while work is not None:
            yield work
            work = self._take(work.after, goes_on=True)

    def _take(self, cursor: Cursor, *, goes_on: bool = False) -> Work | None:
        feeding = self.pipe.feeding
        try:
            self.pipe.feed_batch()
        except StopIteration:  # of `iter_setup`
            return None
        return None if goes_on and feeding.is_dry else feeding.take(cursor)

    def _made_ahead(self, works: Iterator[Work]) -> Ahead:
        """An iterator over (work, (tally, batch)) with `close`."""
        options = self.pipe.options
        if not options.prefetch_queue_depth or self.pipe.feeding.is_pushed:
            return ((work, self._finished(work)) for work in works)
        return MadeAhead(
            self._finished,
            works,
            workers=self._workers,
            depth=options.prefetch_queue_depth,
            is_quick=self._is_quick,
        )

    @property
    def _workers(self) -> int:
        """Threads that run whole batches; only one if side effects must happen in order."""
        in_order = any(node.operator.side_effects for node in self.pipe.host_nodes())
        return 1 if in_order else self.pipe.num_threads

    def _finished(self, work: Work) -> tuple[Tally, Batch]:
        run = self._host_part(work)
        return run.tally, self.batch_of(run)

    def _host_part(self, work: Work) -> HostRun:
        return self.pipe.host_part(work)

    def batch_of(self, run: HostRun) -> Batch:
        """The outputs of a batch by name."""
        batch: Batch = {}
        for name, node in zip(self.names, self.pipe.plan().outputs, strict=True):
            batch.update(self.shaped(name, self.pipe.checked(run.output(node), node), node.spec))
        batch.update(self._valid(run))
        return batch

    def _valid(self, run: HostRun) -> Mapping[str, Array]:
        valid = run.records.valid
        return {} if valid is None else {VALID: valid[run.rows_of(None)]}

    def shaped(self, name: str, column: TensorList, spec: TensorSpec) -> Mapping[str, Array | list[Array]]:
        """One output in the form that the batch returns; `spec` is the graph's."""
        if self._ragged == "list":
            return {name: list(column) if column.dense is None else column.as_array()}
        if not len(column):
            return self._of_no_samples(name, spec)
        if _is_dense(spec, column[0].ndim):
            return {name: column.as_array()}
        if self._ragged == "values":
            return concatenated(name, column)
        return padded(name, column, self._pad_value)

    def _of_no_samples(self, name: str, spec: TensorSpec) -> dict[str, Array]:
        """The same for a batch whose samples were all dropped."""
        array = no_samples(spec if spec.shape is not None else TensorSpec(spec.dtype, (None,))).as_array()
        if _is_dense(spec, spec.ndim):
            return {name: array}
        if self._ragged == "values":
            return {name: array.reshape(0, *array.shape[2:]), f"{name}/lengths": np.zeros(0, np.int64)}
        return {name: array, f"{name}/lengths": np.zeros((0, array.ndim - 1) if array.ndim > 2 else 0, np.int64)}

    # State

    @property
    def state(self) -> LoaderState:
        """The iterator's position, after the last returned batch; see `Pipeline.state`."""
        return self.pipe.state

    def restore(self, state: LoaderState | str | bytes) -> None:
        """Continues from a saved state, with the next loop."""
        self.close()
        self.pipe.restore(state)

    def state_dict(self) -> dict[str, object]:
        """The state as torch's checkpoints take it."""
        return self.state.to_dict()

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """`restore` of what `state_dict` gave."""
        self.restore(LoaderState.from_dict(state_dict))

    def reset(self) -> None:
        """Begins the next epoch with the next loop, from any position."""
        self.close()
        self._loop = None
        self.pipe.reset()

    def close(self) -> None:
        """Ends the threads that prepare batches ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()


class DALIGenericIterator:
    """Batches of one or several pipelines: for each step a list of dicts, one for each pipeline, as in DALI.

        for data in DALIGenericIterator([pipe], ["images", "labels"], reader_name="R"):
            data[0]["images"]

    At the end of an epoch, which is that of the first pipeline without a batch, `next` raises `StopIteration`.

    Args:
        size: the maximum number of samples per epoch, over all pipelines; -1 for all. With `PARTIAL` the last batches
            end there.
        reader_name: a reader of each pipeline with as many records as the first source, which defines an epoch.
        auto_reset: whether the next epoch begins automatically (True, "yes"), or by `reset()` and another loop.
        last_batch_policy: the end of an epoch. `FILL` repeats the last record and never takes one from the next epoch.
        fill_last_batch: the same as older programs say it: True for `FILL`, False for `PARTIAL`.
        without_effect: `dynamic_shape`, `last_batch_padded`, `prepare_first_batch`.
    """

    #: What iterates over one pipeline.
    over_one: ClassVar[type[GraphIterator]] = GraphIterator

    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: bool | str | None = False,
        *,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        fill_last_batch: bool | None = None,
        **without_effect: object,
    ) -> None:
        choice(auto_reset, of=(False, None, "no", True, "yes"), what="auto_reset", error=OperatorArgumentError)
        instance(last_batch_policy, LastBatchPolicy, what="last_batch_policy", error=OperatorArgumentError)
        policy = _policy(last_batch_policy, fill_last_batch)
        pipes = [pipelines] if isinstance(pipelines, Pipeline) else list(pipelines)
        if len({pipe.batch_size for pipe in pipes}) != 1:
            sizes = ", ".join(str(pipe.batch_size) for pipe in pipes) or "none"
            raise OperatorArgumentError(f"an iterator takes pipelines of one batch size, got {sizes}.")
        self.batch_size = pipes[0].batch_size
        #: The names of the outputs, in their order: subclasses that give tuples, as for Lightning, go through them.
        self.output_map = list(output_map)
        options: dict[str, Any] = {"reader_name": reader_name, "last_batch_policy": policy, **without_effect}
        self.iterators = [self.over_one(pipe, output_map, **options) for pipe in pipes]
        whole = size if policy is LastBatchPolicy.DROP else size + self.batch_size * len(pipes) - 1
        self._steps = None if size < 0 else whole // (self.batch_size * len(pipes))
        self._most = size if size >= 0 and policy is LastBatchPolicy.PARTIAL else None
        self._auto_reset = auto_reset in (True, "yes")
        self._count, self._ended = 0, False
        #: For each pipeline, which rows of the newest batch are records.
        self.valid: list[Array] = []

    def __iter__(self) -> DALIGenericIterator:
        self.reset()
        return self

    def __next__(self) -> Any:
        try:
            if self._ended or self._count == self._steps:
                raise StopIteration
            batches = [next(one) for one in self.iterators]
        except StopIteration:
            self._ended = True
            if self._auto_reset:
                self.reset()
            raise
        if self._most is not None:  # as there, pipelines without a sample are left out
            left = self._most - self._count * self.batch_size * len(batches)
            sizes = [left - at * self.batch_size for at in range(len(batches))]
            kept = [(batch, size) for batch, size in zip(batches, sizes, strict=True) if size > 0]
            batches = [{name: column[:size] for name, column in batch.items()} for batch, size in kept]
        self._count += 1
        self.valid = [batch.get(VALID, np.ones(self.batch_size, np.bool_)) for batch in batches]
        return self.shaped([{name: batch[name] for name in self.iterators[0].names} for batch in batches])

    next = __next__

    def shaped(self, batches: list[Batch]) -> object:
        """The result of a step."""
        return batches

    def reset(self) -> None:
        """Begins the next epoch at the end of this one; does nothing before that."""
        for one in self.iterators if self._ended else ():
            one.reset()
        self._count, self._ended = 0 if self._ended else self._count, False

    def checkpoints(self) -> list[str]:
        """The state of each pipeline, from `Pipeline.checkpoint`."""
        return [one.pipe.checkpoint() for one in self.iterators]

    @property
    def size(self) -> int:
        """Samples of an epoch of one pipeline, with a complete last batch."""
        return len(self) * self.batch_size

    _size = size  # loops in DALI's examples read it

    def __len__(self) -> int:
        return self._steps if self._steps is not None else len(self.iterators[0])


class DALIClassificationIterator(DALIGenericIterator):
    """`DALIGenericIterator` with the outputs "data" and "label"."""

    def __init__(self, pipelines: Pipeline | Sequence[Pipeline], *args: Any, **options: Any) -> None:
        super().__init__(pipelines, ["data", "label"], *args, **options)


def _is_dense(spec: TensorSpec, ndim: int | None) -> bool:
    """Whether an output is one array in every batch, judged before any batch."""
    return ndim == 0 or (spec.shape is not None and None not in spec.shape)


def concatenated(name: str, column: TensorList) -> dict[str, Array]:
    """Samples one after the other, and their first dimensions: `[[1, 2], [3]]` → `[1, 2, 3]`, `[2, 1]`."""
    shapes = {sample.shape for sample in column}
    if len({shape[1:] for shape in shapes}) > 1:
        found = ", ".join(map(str, sorted(shapes)[:3]))
        raise GraphError(
            f"output {name!r} holds samples of shapes {found}: ragged='values' puts them one after the other along "
            "their first axis, and they should be alike in the others. Use ragged='pad' or 'list'."
        )
    samples = [np.atleast_1d(sample) for sample in column]
    return {name: np.concatenate(samples), f"{name}/lengths": np.array([len(one) for one in samples], np.int64)}


def _fill(name: str, pad_value: object, dtype: npt.DTypeLike | None) -> object:
    """The padding value of an output; raises `OperatorArgumentError` if the output's dtype cannot hold it."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "biuf":
        return pad_value
    try:
        given = exact_number(pad_value, dtype)
    except (NotExactError, NotNumbersError):
        given = None
    if given is None or np.ndim(given):
        raise OperatorArgumentError(
            f"pad_value={pad_value!r:.40} is not {dtype}, the dtype of the output {name!r}. Choose a number that is, "
            "or cast the output in the graph."
        )
    return given


def padded(name: str, column: TensorList, pad_value: object) -> dict[str, Array]:
    """Samples of different shapes as one array, and their sizes: `[[1, 2], [3]]` → `[[1, 2], [3, 0]]`, `[2, 1]`."""
    ranks = {sample.ndim for sample in column}
    if len(ranks) > 1:
        raise GraphError(f"output {name!r} holds samples of ranks {sorted(ranks)}: they cannot be padded to one shape.")
    shapes = np.array([sample.shape for sample in column], np.int64)
    made = np.full((len(column), *shapes.max(axis=0)), _fill(name, pad_value, column.dtype), column.dtype)
    for index, sample in enumerate(column):
        place = tuple(slice(size) for size in sample.shape)
        made[index][place] = sample
    return {name: made, f"{name}/lengths": shapes[:, 0] if shapes.shape[1] == 1 else shapes}


def DALIDataset(  # noqa: N802 - DALI's name
    pipeline: Pipeline, output_dtypes: Any = None, output_shapes: Any = None, **without_effect: object
) -> TfDataset:
    """The batches of a pipeline as a tf.data.Dataset, as with `nvidia.dali.plugin.tf.DALIDataset`.

        DALIDataset(pipe, output_dtypes=(tf.uint8, tf.int32), output_shapes=((32, 224, 224, 3), (32, 1)))

    Tuples of outputs, or a single one if `output_dtypes` is one dtype; without it, dtypes are those of the
    graph. Epochs repeat endlessly if a reader defines an epoch. Batch sizes are the pipeline's.

    Raises `LoaderError` if a dtype is known neither from the graph nor from `output_dtypes`.
    """
    tf = require("tensorflow", purpose="DALIDataset")
    dtypes = output_dtypes or tuple(node.dtype for node in pipeline.plan().outputs)
    if isinstance(dtypes, tuple) and None in dtypes:
        raise LoaderError(f"dtypes are not known before there is data, of the outputs {dtypes}: give output_dtypes.")
    is_one = not isinstance(dtypes, tuple)
    shapes = output_shapes if is_one or output_shapes else (None,) * len(dtypes)
    spec = tf.TensorSpec(shapes, dtypes) if is_one else tuple(map(tf.TensorSpec, shapes, dtypes))
    iterator = GraphIterator(pipeline)

    def batches() -> Iterator[object]:
        for _ in itertools.repeat(None) if pipeline.steps_per_epoch else range(1):
            for batch in iterator:
                columns = tuple(batch[name] for name in iterator.names)
                yield columns[0] if is_one else columns

    return tf.data.Dataset.from_generator(batches, output_signature=spec)
