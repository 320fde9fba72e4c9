"""`GraphIterator`: the batches of a pipeline, epoch by epoch, made ahead of their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import GraphError, OperatorArgumentError, UnboundedLoaderError
from beam_pipes.graph.argument import nearest
from beam_pipes.graph.feeding import Cursor, Work
from beam_pipes.graph.host_run import HostRun
from beam_pipes.graph.made_ahead import MadeAhead
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.tensor_list import TensorList, values_and_lengths
from beam_pipes.loader.state import LoaderState

RAGGED = ("list", "pad", "values")

#: Under this name a batch holds which of its rows are records, where `last="pad"`.
VALID = "valid"


@dataclasses.dataclass
class Made:
    """A batch as it comes from the host: what was computed, and where it stands."""

    work: Work
    run: HostRun


class GraphIterator:
    """Batches of a pipeline as dicts of NumPy arrays.

        for epoch in range(3):
            for batch in GraphIterator(pipe, ["images", "labels"]):
                batch["images"]     →  uint8 (32, 224, 224, 3)

    One loop is one epoch, from where the pipeline stands; the next loop is the next epoch. Batches are made ahead by
    `num_threads` threads of the pipeline, `prefetch_queue_depth` of them at most; where an operator has side effects or
    is fed from Python, by one thread, in order. Batches that take less than half a millisecond are made when they are
    asked for: handing them over would cost more. What was handed out is what `state` counts, whatever was made ahead.

    Args:
        pipe: the pipeline; its `last` says how an epoch ends.
        output_map: names for the outputs, where the graph did not name them.
        ragged: what becomes of an output whose samples differ in shape: "list" gives a list of arrays; "pad" one array,
            filled up with `pad_value` at the ends, and `name/lengths` (n,) or (n, rank); "values" gives the samples one
            after the other along their first axis, and `name/lengths`.
        pad_value: what "pad" fills with.
    """

    def __init__(
        self,
        pipe: Pipeline,
        output_map: Sequence[str] | None = None,
        *,
        ragged: str = "list",
        pad_value: Any = 0,
    ) -> None:
        if ragged not in RAGGED:
            raise OperatorArgumentError(
                f"ragged should be one of {', '.join(RAGGED)}, got {ragged!r}.{nearest(ragged, RAGGED)}"
            )
        self.pipe = pipe
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
        self.names = names
        self._ahead: Any = None
        self._is_quick = False

    def __len__(self) -> int:
        """Batches of an epoch; `UnboundedLoaderError` where a source in Python decides."""
        steps = self.pipe.steps_per_epoch
        if steps is None:
            raise UnboundedLoaderError("a source in Python says when an epoch ends: it has no length before.")
        return steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        pipe = self.pipe
        self.close()
        feeding = pipe.feeding
        if feeding.streams:
            feeding.move(pipe.cursor)
        elif feeding.take(pipe.cursor) is None:
            pipe.end_epoch()
        ahead = self._ahead = self._made_ahead(pipe.cursor)
        return self._deliver(ahead)

    def _deliver(self, ahead: Any) -> Iterator[dict[str, Any]]:
        try:
            for work, batch in ahead:
                self.pipe.move(work.after)
                yield batch
            if ahead is self._ahead:
                self.pipe.end_epoch()
                self.pipe.go_on()
        finally:
            self._is_quick = getattr(ahead, "is_quick", False)
            ahead.close()

    def _works(self, cursor: Cursor) -> Iterator[Work]:
        feeding = self.pipe.feeding
        while (work := feeding.take(cursor)) is not None:
            yield work
            cursor = work.after

    def _made_ahead(self, cursor: Cursor) -> Any:
        """An iterator over (work, batch) with `close`."""
        options = self.pipe.options
        in_order = any(node.operator.side_effects for node in self.pipe.host_nodes())
        workers = 1 if in_order else options.num_threads
        if not options.prefetch_queue_depth:
            return _Direct(self._works(cursor), self._finished)
        return MadeAhead(
            lambda work: self._finished(work)[1],
            self._works(cursor),
            workers=workers,
            depth=options.prefetch_queue_depth,
            is_quick=self._is_quick,
        )

    def _finished(self, work: Work) -> tuple[Work, dict[str, Any]]:
        return work, self.batch_of(self.host_part(work))

    def host_part(self, work: Work) -> Made:
        """Runs the operators that are not on the device. Batches run side by side, so operators need no threads."""
        pipe, plan = self.pipe, self.pipe.plan()
        run = pipe.host_run(work)
        for node in self._host_nodes():
            run.run(node, plan.spent_after.get(node, ()))
        pipe.book(run)
        return Made(work, run)

    def _host_nodes(self) -> Sequence[Any]:
        return self.pipe.host_nodes()

    def batch_of(self, made: Made) -> dict[str, Any]:
        """The outputs of a batch by name."""
        batch: dict[str, Any] = {}
        for name, node in zip(self.names, self.pipe.plan().outputs, strict=True):
            batch.update(self.shaped(name, made.run.output(node)))
        batch.update(self._valid(made.run))
        return batch

    def _valid(self, run: HostRun) -> Mapping[str, Any]:
        valid = run.records.valid
        return {} if valid is None else {VALID: valid[run.rows_of(None)]}

    def shaped(self, name: str, column: TensorList) -> dict[str, Any]:
        """One output as what the batch holds of it."""
        if column.dense is not None:
            return {name: column.as_array()}
        if self._ragged == "list":
            return {name: list(column)}
        if self._ragged == "values":
            values, lengths = values_and_lengths(column)
            return {name: values, f"{name}/lengths": lengths}
        return padded(name, column, self._pad_value)

    # State

    @property
    def state(self) -> LoaderState:
        """Where the iterator stands, after the last batch that it gave; see `Pipeline.state`."""
        return self.pipe.state

    def restore(self, state: LoaderState | str | bytes) -> None:
        """Goes on where a state was saved, with the next loop."""
        self.close()
        self.pipe.restore(state)

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's checkpoints take it."""
        return self.state.to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """`restore` of what `state_dict` gave."""
        self.restore(LoaderState.from_dict(state_dict))

    def reset(self) -> None:
        """Begins the next epoch with the next loop, wherever this one stands."""
        self.close()
        self.pipe.reset()

    def close(self) -> None:
        """Ends the threads that make batches ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()


class _Direct:
    """Batches made when they are asked for."""

    def __init__(self, works: Iterator[Work], function: Any) -> None:
        self._works = works
        self._function = function

    def __iter__(self) -> _Direct:
        return self

    def __next__(self) -> Any:
        return self._function(next(self._works))

    def close(self) -> None:
        """Nothing is open."""
        self._works = iter(())


def padded(name: str, column: TensorList, pad_value: Any) -> dict[str, Any]:
    """Samples of different shapes as one array, and their sizes: `[[1, 2], [3]]` → `[[1, 2], [3, 0]]`, `[2, 1]`."""
    ranks = {sample.ndim for sample in column}
    if len(ranks) > 1:
        raise GraphError(f"output {name!r} holds samples of ranks {sorted(ranks)}: they cannot be padded to one shape.")
    shapes = np.array([sample.shape for sample in column], np.int64)
    made = np.full((len(column), *shapes.max(axis=0)), pad_value, column.dtype)
    for index, sample in enumerate(column):
        place = tuple(slice(size) for size in sample.shape)
        made[index][place] = sample
    return {name: made, f"{name}/lengths": shapes[:, 0] if shapes.shape[1] == 1 else shapes}
