"""`Pipeline`: a graph of operators, run batch by batch."""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

from beam_pipes.checks import known
from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph.apply import Outcome
from beam_pipes.graph.cut import Plan, place_of
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.definition import GraphDefinition, PipelineOptions
from beam_pipes.graph.explain import explain, graph_digest
from beam_pipes.graph.feeding import Cursor, Feeding, OpenReader, Work
from beam_pipes.graph.host_run import FailedSample, Feed, HostRun, OperatorStatistics, Tally
from beam_pipes.graph.reader import Fed, Reader
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.serialized import deserialize, serialize
from beam_pipes.graph.tensors import Outputs, lacks
from beam_pipes.graph.trace import current_pipeline, pop_pipeline, push_pipeline
from beam_pipes.loader.order import ORDER_VERSION
from beam_pipes.loader.state import LoaderState, check_same_sequence
from beam_pipes.storage.local import output_file

if TYPE_CHECKING:
    from beam_pipes.building.declaration import Declaration
    from beam_pipes.graph.offline import CachedStore


class Pipeline(GraphDefinition):
    """A graph of operators, run batch by batch.

        pipe = Pipeline(batch_size=32, num_threads=2)
        with pipe:
            files, labels = fn.readers.file(file_root=root)
            pipe.set_outputs(fn.decoders.image(files), labels)
        images, labels = pipe.run()

    A function with `@pipeline_def`, or a subclass that overrides `define_graph`, is equivalent. Options are those of
    `PipelineOptions`; the first four may be positional. It continues from a `checkpoint`, if one is given.

    `run` continues from epoch to epoch; a batch never holds samples of two. When a Python source (`external_source`) is
    exhausted, `run` raises `StopIteration`, unless it has `cycle="quiet"`.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        num_threads: int | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        *,
        checkpoint: str | None = None,
        **options: Any,
    ) -> None:
        self._checkpoint = checkpoint
        given = {"batch_size": batch_size, "num_threads": num_threads, "device_id": device_id, "seed": seed}
        super().__init__(PipelineOptions.of({**options, **{k: v for k, v in given.items() if v is not None}}))
        self.dead_letters: list[FailedSample] = []
        self.num_dropped = 0
        self.statistics: dict[str, OperatorStatistics] = {}
        self._feeding: Feeding | None = None
        self._cached: CachedStore | None = None
        self._pool: ThreadPoolExecutor | None = None
        #: The position of the run.
        self.cursor = Cursor()
        self._ended = self._is_restored = False
        self._pushed: dict[str, list[object]] = {}
        self._digest: str | None = None
        self._booking = threading.Lock()
        self._scheduled: collections.deque[Outputs] = collections.deque()

    # Options

    @property
    def batch_size(self) -> int:
        """Samples of a full batch."""
        size = self.options.batch_size
        if size is None:
            raise OperatorArgumentError(
                "batch_size is missing: Pipeline(batch_size=32), or my_pipeline(batch_size=32)."
            )
        return size

    max_batch_size = batch_size

    @property
    def num_threads(self) -> int:
        """Threads for operators that release the interpreter lock."""
        return self.options.num_threads

    @property
    def device_id(self) -> int | None:
        """Which accelerator the device iterators use; None leaves it to them."""
        return self.options.device_id

    # The current pipeline

    @staticmethod
    def current() -> Pipeline | None:
        """The pipeline that is being defined in this thread, or None."""
        found = current_pipeline()
        return found if isinstance(found, Pipeline) else None

    @staticmethod
    def push_current(pipeline: Pipeline) -> None:
        """Makes `pipeline` the current one of this thread, until `pop_current`."""
        push_pipeline(pipeline)

    @staticmethod
    def pop_current() -> None:
        """Ends what `push_current` began."""
        pop_pipeline()

    # Sources

    def build(self) -> None:
        """Prepares the pipeline: opens readers and prunes. `run` does it if needed."""
        if self._feeding is not None:
            return
        plan = self.plan()
        self.statistics = {node.name: OperatorStatistics(place=place_of(plan, node)) for node in plan.nodes}
        self._feeding = self._make_feeding(plan)
        for name, batches in self._pushed.items():
            for batch in batches:
                self.feed_input(name, batch)
        self._pushed = {}
        checkpoint, self._checkpoint = self._checkpoint, None
        self._is_restored = checkpoint is not None
        if checkpoint is not None:
            self.restore(checkpoint)

    def __getattr__(self, name: str) -> NoReturn:
        raise lacks("Pipeline", name)

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether it continues from the `checkpoint` that it was made with; known once it is built."""
        return self._is_restored

    def _make_feeding(self, plan: Plan) -> Feeding:
        first = self.first_source()
        part = plan.offline if self.options.cache is not None else None
        if self.options.cache is not None and plan.offline is None:
            raise GraphError(
                f"the pipeline has cache={self.options.cache!r}, and its graph has no cut: mark one with "
                "graph.cache(node)."
            )
        sources = (*([] if first is None else [first]), *(node for node in plan.nodes if node.operator.is_source))
        wanted = list(dict.fromkeys(sources))
        if part is not None:
            from beam_pipes.graph.offline import CachedStore

            assert self.options.cache is not None
            self._cached = CachedStore(self.options.cache, part, self.offline_declaration())
            self._cached.check_alone([other for other in wanted if other not in part.readers])
            wanted = [node for node in wanted if node not in part.readers[1:]]  # the cache holds what is used of them
        readers = [
            OpenReader.of(node, self.seed, self._cached if part is not None and node is part.reader else None)
            for node in wanted
            if isinstance(node.operator, Reader)
        ]
        streams = {node: node.operator.stream() for node in wanted if isinstance(node.operator, Fed)}
        return Feeding(readers, streams, first=first, batch_size=self.batch_size, last=self.options.last)

    def offline_declaration(self, name: str = "graph", **options: Any) -> Declaration:
        """The part before the cut as a `Declaration`: build it with any runner, then pass its directory as `cache=`.

        `options` are those of `Declaration`: `target_shard_bytes`, `max_bad`, … `on_error` is the pipeline's. Raises
        `GraphError` without a cut.
        """
        from beam_pipes.graph.offline import make_declaration

        part = self.plan().offline
        if part is None:
            raise GraphError("the graph has no cut: mark what to store with graph.cache(node).")
        return make_declaration(part, name=name, **{"on_error": self.options.on_error, **options})

    # Facts

    @property
    def feeding(self) -> Feeding:
        """The sources, opened."""
        self.build()
        assert self._feeding is not None
        return self._feeding

    @overload
    def epoch_size(self, name: None = None) -> dict[str, int]: ...
    @overload
    def epoch_size(self, name: str) -> int: ...

    def epoch_size(self, name: str | None = None) -> dict[str, int] | int:
        """Records of an epoch over all shards: of one reader, or of all of them as a dict by name."""
        sizes = {node.name: reader.order.size for node, reader in self.feeding.readers.items()}
        return sizes if name is None else sizes[self._known_reader(name)]

    @overload
    def reader_meta(self, name: None = None) -> dict[str, dict[str, int]]: ...
    @overload
    def reader_meta(self, name: str) -> dict[str, int]: ...

    def reader_meta(self, name: str | None = None) -> dict[str, dict[str, int]] | dict[str, int]:
        """The size and sharding of a reader: `epoch_size`, `epoch_size_padded`, `number_of_shards`, `shard_id`,
        `pad_last_batch`, `stick_to_shard`; of all readers as a dict by name."""
        metas = {}
        for node, reader in self.feeding.readers.items():
            order = reader.order
            metas[node.name] = {
                "epoch_size": order.size,
                "epoch_size_padded": order.size_of(0) * order.num_shards,
                "number_of_shards": order.num_shards,
                "shard_id": order.shard_id,
                "shard_size": order.shard_size,
                "pad_last_batch": self.options.last == "pad",
                "stick_to_shard": order.sticky,
            }
        return metas if name is None else metas[self._known_reader(name)]

    def _known_reader(self, name: str) -> str:
        names = [node.name for node in self.feeding.readers]
        known(name, among=names, what="reader", error=GraphError)
        return name

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of an epoch; None if a Python source decides."""
        return self.feeding.steps_per_epoch

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self.cursor.epoch

    def executor_statistics(self) -> dict[str, OperatorStatistics]:
        """The work of every operator for the batches returned so far: records, bytes, time."""
        return dict(self.statistics)

    # Running

    def iter_setup(self) -> None:
        """For subclasses to override, to feed sources before each batch: `self.feed_input(self.images, batch)`."""

    def run(self, cuda_stream: object = None, /, **fed: object) -> Outputs:
        """The next batch: outputs by position and by name.

        `pipe.run(images=batch)` feeds the `external_source` of that name first. `cuda_stream` has no effect.

        Raises `StopIteration` when a Python source is exhausted, `OperatorError` for a sample that fails.
        """
        if self._ended:
            raise StopIteration
        self.feed_batch(**fed)
        made = self.next_batch()
        if made is None:
            self.end_epoch()
            if self._ended or not self.feeding.ends_quietly:
                raise StopIteration
            made = self.next_batch()
        if made is None:
            size = self.feeding.epoch_size
            raise GraphError(
                f"an epoch has no batch: {size if size is not None else 'no'} samples do not fill one of "
                f"{self.batch_size} with last={self.options.last!r}."
            )
        return made

    def next_batch(self) -> Outputs | None:
        """The batch at the run's position, which then advances; None at the end of the epoch."""
        work = self.feeding.take(self.cursor)
        if work is None:
            return None
        made = self.execute(work)
        self.cursor = work.after
        return made

    def feed_batch(self, **fed: object) -> None:
        """What precedes a batch: `iter_setup`, and batches passed by name."""
        self.plan()
        self.iter_setup()
        for name, batch in fed.items():
            self.feed_input(name, batch)

    def schedule_run(self) -> None:
        """Computes a batch that `outputs` returns later."""
        self._scheduled.append(self.run())

    def outputs(self) -> Outputs:
        """The oldest scheduled batch that was not yet returned."""
        if not self._scheduled:
            raise GraphError("there is no batch to return: call schedule_run() first, or run().")
        return self._scheduled.popleft()

    share_outputs = outputs

    def release_outputs(self) -> None:
        """Does nothing: a batch belongs to its receiver."""

    def end_epoch(self, *, goes_on: bool = False) -> None:
        """Moves to the beginning of the next epoch, at the end of this one.

        A Python source may stay exhausted until `reset` is called; with `goes_on`, as in iterators, it does not.
        """
        self.cursor = Cursor(self.cursor.epoch + 1, 0)
        self._ended = not goes_on and any(stream.needs_reset for stream in self.feeding.streams.values())

    def draw_key(self, node: OperatorNode) -> str:
        """The key of an operator's draws besides record and epoch: the seeds and its name."""
        return f"{self.seed}\0{node.name}" if node.seed is None else f"seed {node.seed}"

    def feed_of(self, work: Work) -> Feed:
        """The function that supplies the samples of sources for one batch."""
        feeding, plan = self.feeding, self._plan

        def feed(node: OperatorNode, samples: Samples) -> Outcome:
            if node in feeding.streams:
                columns = [
                    (column if len(samples) == len(column) else column.take(samples.rows)).with_layout(output.layout)
                    for column, output in zip(work.fed[node], node.outputs, strict=True)
                ]
                return Outcome(columns, {})
            used = frozenset(range(len(node.outputs))) if plan is None else plan.used[node]
            keep = (node.on_error or self.options.on_error) != "fail"
            return feeding.read(node, work.place, samples, used, keep_failures=keep)

        return feed

    def host_run(self, work: Work, *, pool: ThreadPoolExecutor | None = None) -> HostRun:
        """A batch before any operator has run, with the values from a cache."""
        feeding, plan = self.feeding, self._plan
        run = HostRun(
            records=feeding.records(work.place),
            feed=self.feed_of(work),
            draw_key=self.draw_key,
            on_error=self.options.on_error,
            pool=pool,
            num_threads=self.num_threads,
        )
        if self._cached is not None and plan is not None and plan.offline is not None:
            indices = feeding.indices(feeding.readers[plan.offline.reader], work.place)
            for node, column in self._cached.columns(indices).items():
                run.hold(node, column)
        return run

    def host_nodes(self) -> tuple[OperatorNode, ...]:
        """The operators that this process runs, in order: those after the cut if there is a cache, else all."""
        plan = self.plan()
        return plan.nodes if self._cached is None else plan.behind_the_cut()

    def host_part(
        self, work: Work, *, for_device: Container[DataNode] | None = None, pool: ThreadPoolExecutor | None = None
    ) -> HostRun:
        """Runs the operators over a batch, those on the device with NumPy.

        With `for_device` those are left out, and the result holds the data nodes that they need.
        """
        plan = self.plan()
        run = self.host_run(work, pool=pool)
        for node in self.host_nodes():
            spent = plan.spent_after.get(node, ())
            if for_device is None:
                run.run(node, spent)
            elif node.device != "gpu":
                run.run(node, [one for one in spent if one not in for_device])
        return run

    def execute(self, work: Work) -> Outputs:
        """Runs all operators over a batch; those on the device with NumPy."""
        run = self.host_part(work, pool=self.thread_pool())
        self.book(run.tally)
        return self.outputs_of(run)

    def outputs_of(self, run: HostRun) -> Outputs:
        """The outputs of a batch, with the names of its records."""
        records, rows = run.records, run.rows_of(None)
        columns = [
            self.checked(run.output(node), node).with_sources(lambda: [records.ids[int(row)] for row in rows])
            for node in self._outputs or ()
        ]
        valid = None if records.valid is None else records.valid[rows]
        return Outputs(columns, self._output_names, epoch=records.epoch, valid=valid)

    def book(self, tally: Tally) -> None:
        """Adds the work of operators for a returned batch, and its failed samples."""
        for name, done in tally.done:
            if name in self.statistics:
                self.statistics[name].add(done)
        if tally.failed:
            with self._booking:
                self.dead_letters += [failure for failure in tally.failed if not failure.dropped]
                self.num_dropped += sum(failure.dropped for failure in tally.failed)

    def thread_pool(self) -> ThreadPoolExecutor | None:
        """Threads for operators that work sample by sample; None with one thread."""
        if self._pool is None and self.num_threads > 1:
            self._pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="beam_pipes-graph")
        return self._pool

    def feed_input(self, name: str | DataNode, data: object) -> None:
        """Pushes a batch, an array or a list of arrays, to an `external_source` without a source."""
        name = name.source.name if isinstance(name, DataNode) else name
        self.plan()
        if self._feeding is None and any(node.name == name for node in self.nodes):
            self._pushed.setdefault(name, []).append(data)
            return
        fed = {node.name: stream.feed for node, stream in self.feeding.streams.items() if hasattr(stream, "feed")}
        if name not in fed:
            raise GraphError(
                f"{name!r} cannot be fed: an external_source without a source can, and there "
                f"{'are ' + ', '.join(fed) if fed else 'is none'}."
            )
        fed[name](data)

    def reset(self, epoch: int | None = None) -> None:
        """Begins the next epoch (or `epoch`) with the next batch, from any position.

        An epoch that has not started is not skipped.
        """
        if epoch is None:
            epoch = self.cursor.epoch + (self.cursor.position > 0)
        self._ended = False
        self.cursor = Cursor(epoch, 0)
        self.feeding.move(self.cursor)

    def end_epochs(self, last: str) -> None:
        """Sets how epochs end from now on: `last` of the options."""
        self.plan()
        self.options = dataclasses.replace(self.options, last=last)
        if self._feeding is not None:
            self._feeding.last = last

    # State

    @property
    def state(self) -> LoaderState:
        """The position of the run, and everything that determines what comes next: graph, data, seeds. Less than a
        kilobyte.

        Batch size, threads and the number of shards may change between saving and restoring.
        """
        if self._digest is None or self._plan is None:
            self._digest = graph_digest(self.plan())
        return LoaderState(
            source={"graph": self._digest, "readers": dict(self.feeding.identity())},
            order_version=ORDER_VERSION,
            seed=self.seed,
            shuffle="graph",
            epoch=self.cursor.epoch,
            position=self.cursor.position,
        )

    def restore(self, state: LoaderState | str | bytes) -> None:
        """Continues from a saved state. Pushed batches that were not taken are dropped: push the following ones.

        Raises `StateMismatchError`, listing the differences, if seed, data or graph changed; `GraphError` for a
        Python source that cannot be resumed.
        """
        if not isinstance(state, LoaderState):
            state = LoaderState.from_json(state)
        check_same_sequence(state, self.state)
        cursor = Cursor(state.epoch, state.position)
        if not self.feeding.streams and cursor.position and self.feeding.take(cursor) is None:
            cursor = Cursor(state.epoch + 1, 0)  # that epoch is complete: `epoch` is that of the next sample
        self.feeding.move(cursor)
        self.feeding.forget()
        self.cursor, self._ended = cursor, False

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> str:
        """The state as JSON, also written to a file if one is named; `restore` reads it."""
        text = self.state.to_json()
        if filename is not None:
            with output_file(filename) as file:
                file.write(text)
        return text

    # Other forms

    def serialize(self, filename: str | os.PathLike[str] | None = None) -> str:
        """The graph as JSON, with callables by name; `Pipeline.deserialize` reads it. Nothing is pickled.

        Raises `GraphError` for objects without a name: lambdas, local functions, open files.
        """
        text = serialize(self)
        if filename is not None:
            with output_file(filename) as file:
                file.write(text)
        return text

    @classmethod
    def deserialize(
        cls, text: str | bytes | None = None, *, filename: str | os.PathLike[str] | None = None, **options: Any
    ) -> Pipeline:
        """The serialized pipeline; `options` replace its own."""
        if (text is None) == (filename is None):
            raise OperatorArgumentError("deserialize takes the text, or filename=…: one of them.")
        if filename is not None:
            text = Path(filename).read_text(encoding="utf-8")
        assert text is not None
        return deserialize(text, cls, options)

    def deserialize_and_build(self, serialized_pipeline: str | bytes) -> None:
        """Turns this pipeline into the serialized one; its own options take precedence."""
        given = {name: value for name, value in vars(self.options).items() if value != getattr(PipelineOptions, name)}
        vars(self).update(vars(deserialize(serialized_pipeline, Pipeline, given)))
        for node in self.nodes:
            node.pipeline = self
        self.build()

    def save_graph_to_dot_file(self, filename: str | os.PathLike[str]) -> None:
        """Writes `explain("dot")` to a file."""
        with output_file(filename) as file:
            file.write(self.explain("dot"))

    def explain(self, form: str = "text") -> str:
        """The graph with its places, bytes over each edge (once something has run) and pruned operators.

        `form` is "text", "dot" (Graphviz) or "svg".
        """
        return explain(self.plan(), self.statistics, self.output_names, form)

    def close(self) -> None:
        """Ends threads and closes readers; the pipeline can be run again."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._feeding is not None:
            self._feeding.close()

    def __repr__(self) -> str:
        size = self.options.batch_size
        return f"<{type(self).__name__}: {len(self.nodes)} operators, batch_size={size}, seed={self.seed}>"
