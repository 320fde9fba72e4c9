"""`PipelineOptions`: how a pipeline is run, checked.

`GraphDefinition`: the operators of a graph and its outputs; a pipeline before it runs.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_pipes.checks import choice, integer, nearest
from beam_pipes.errors import GraphError, OperatorArgumentError, OperatorError
from beam_pipes.graph.conditions import check_covered
from beam_pipes.graph.cut import Plan, ancestors, make_plan
from beam_pipes.graph.data_node import DataNode, OperatorGraph, OperatorNode
from beam_pipes.graph.feeding import LAST
from beam_pipes.graph.spec import TensorSpec, here, located
from beam_pipes.graph.tensors import DALIDataType, Given, TensorList, to_dali_type, to_numpy_type
from beam_pipes.graph.trace import POLICIES, constant, in_scope, pop_pipeline, push_pipeline
from beam_pipes.graph.types import CPU_ONLY_DEVICE_ID

#: DALI options for its executor's threads, streams and memory. They are accepted, so that graphs can be ported
#: unchanged, but have no effect here.
WITHOUT_EFFECT = (
    *("bytes_per_sample", "set_affinity", "max_streams", "default_cuda_stream_priority", "enable_memory_stats"),
    *("enable_checkpointing", "exec_async", "exec_pipelined", "exec_dynamic", "experimental_exec_dynamic"),
    *("py_num_workers", "py_start_method", "py_callback_pickler", "stream_policy", "concurrency"),
)
_OF_OUTPUTS = ("output_dtype", "output_ndim", "output_layout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """How a pipeline runs.

    Args:
        batch_size: samples of a batch; `max_batch_size` is the same.
        num_threads: threads for operators that release the interpreter lock, and for batches prepared ahead.
        device_id: which accelerator the device iterators use; None leaves it to them.
        seed: the key of shuffling and draws; -1 takes one from the system, which is then in the checkpoint.
        prefetch_queue_depth: batches that iterators prepare ahead; 0 makes each on request.
        last: the end of an epoch that does not fill a batch: "partial" gives a smaller batch, "pad" repeats the last
            record and marks it (`outputs.valid`), "drop" leaves it out. With the first two an epoch is exactly the set
            of records, whatever the batch size.
        on_error: what happens to a sample on which an operator fails: "fail", "drop" (counted), "dead_letter" (kept in
            `pipe.dead_letters`). The batch gets smaller accordingly.
        cache: the directory of a cache that replaces everything before the cut; None runs that part as well.
        output_dtype, output_ndim, output_layout: the expected outputs: one value for all, or one for each output, with
            None for any. Others are refused, at definition if they are known, else in the batch.

    Raises `OperatorArgumentError` for an option that is unknown (naming the nearest) or out of range.
    """

    batch_size: int | None = None
    num_threads: int = 1
    device_id: int | None = None
    seed: int = 0
    prefetch_queue_depth: int = 2
    last: str = "partial"
    on_error: str = "fail"
    cache: str | None = None
    output_dtype: object = None
    output_ndim: object = None
    output_layout: object = None

    def __post_init__(self) -> None:
        if self.seed == -1:
            object.__setattr__(self, "seed", secrets.randbits(63))
        least = {"batch_size": 1, "num_threads": 1, "device_id": 0, "seed": 0, "prefetch_queue_depth": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is None and name in ("batch_size", "device_id"):
                continue
            checked = integer(value, least=bound, what=name, error=OperatorArgumentError)
            object.__setattr__(self, name, checked)
        for name in _OF_OUTPUTS:
            object.__setattr__(self, name, _of_outputs(name, getattr(self, name)))
        for name, choices in (("last", LAST), ("on_error", POLICIES)):
            choice(getattr(self, name), of=choices, what=name, error=OperatorArgumentError)

    @classmethod
    def of(cls, given: Mapping[str, Given]) -> PipelineOptions:
        """Options by their names, including DALI's."""
        given = dict(given)
        if "max_batch_size" in given:
            given.setdefault("batch_size", given.pop("max_batch_size"))
        for name in ("batch_size", "num_threads", "device_id"):
            if given.get(name) in (-1, CPU_ONLY_DEVICE_ID):  # DALI's values for "not given"
                del given[name]
        depth = given.get("prefetch_queue_depth")
        if isinstance(depth, Mapping):  # DALI's separate queues
            given["prefetch_queue_depth"] = max(depth.values(), default=0)
        check_options(given)
        own = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in own and value is not None})


def _of_outputs(name: str, value: Any) -> object:
    """The declared properties of the outputs, checked: dtypes by name."""
    if isinstance(value, (list, tuple)):
        return [_of_outputs(name, one) for one in value]
    if value is None or name == "output_dtype":
        return None if value is None else str(to_numpy_type(value))
    is_rank = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not (is_rank if name == "output_ndim" else isinstance(value, str)):
        words = "a rank from 0 on" if name == "output_ndim" else "the names of axes, such as 'HWC'"
        raise OperatorArgumentError(f"{name} should be {words}, None, or a list of these, got {value!r:.40}.")
    return value


def option_names() -> tuple[str, ...]:
    """All names that `PipelineOptions.of` takes."""
    own = (field.name for field in dataclasses.fields(PipelineOptions))
    return (*own, "max_batch_size", "checkpoint", *WITHOUT_EFFECT)


def check_options(given: Iterable[str], *, of_function: Sequence[str] = ()) -> None:
    """Raises `OperatorArgumentError` for a name that neither a pipeline nor its function takes, naming the nearest."""
    known = (*of_function, *option_names())
    for name in given:
        if name not in known:
            takes = f" The function takes {', '.join(of_function)}." if of_function else ""
            own = ", ".join(field.name for field in dataclasses.fields(PipelineOptions))
            raise OperatorArgumentError(
                f"there is no argument {name!r}.{nearest(name, known)}{takes} A pipeline takes {own}.", argument=name
            )


Defined = TypeVar("Defined", bound="GraphDefinition")


class GraphDefinition(OperatorGraph):
    """A graph being defined: inside `with`, called operators become part of it."""

    def __init__(self, options: PipelineOptions) -> None:
        super().__init__(seed=options.seed)
        self.options = options
        self._outputs: tuple[DataNode, ...] | None = None
        self._output_names: tuple[str, ...] = ()
        self._plan: Plan | None = None

    def __enter__(self: Defined) -> Defined:
        if self._plan is not None:
            raise GraphError("this pipeline is built already, and its graph is fixed. Make another one.")
        push_pipeline(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        pop_pipeline()

    def add_sink(self, edge: DataNode) -> None:
        """Keeps the operators of the data node `edge` from being pruned, although it is not an output."""
        self._adopt([edge])
        edge.source.preserve = True

    def set_outputs(self, *outputs: object) -> None:
        """Sets the outputs of `run`: data nodes by position, or one dict of them by name.

        A list among them (of an operator with several outputs) is flattened, a list in a list is refused; arrays and
        numbers become constants.
        """
        names: tuple[str, ...] = ()
        if len(outputs) == 1 and isinstance(outputs[0], Mapping):
            names = tuple(map(str, outputs[0]))
            outputs = tuple(outputs[0].values())
        flat: list[DataNode] = []
        for position, output in enumerate(outputs):
            flat += self._as_outputs(output, names[position] if names else str(position))
        if names and len(flat) != len(names):
            raise here(GraphError(f"a named output should be one data node, and one of these is a list: {names}."))
        self._output_names = names
        self._outputs = tuple(flat)
        self._adopt(flat)
        check_covered(ancestors(node.source for node in flat), flat)

    def _as_outputs(self, output: object, name: str) -> list[DataNode]:
        if isinstance(output, DataNode):
            return [output]
        if isinstance(output, (list, tuple)):
            if any(isinstance(part, (list, tuple)) for part in output):
                raise here(
                    OperatorArgumentError(
                        f"output {name} is a list of lists, and outputs are data nodes side by side. Write them out, "
                        "or put a * before the inner list."
                    )
                )
            return [one for part in output for one in self._as_outputs(part, name)]
        if isinstance(output, (bool, int, float, np.ndarray, np.generic)):
            with self:
                return [constant(output)]
        found = f"{type(output).__name__}: {output!r:.60}"
        raise here(
            GraphError(f"output {name} should be a data node, a list of them, an array or a number, got {found}.")
        )

    def _adopt(self, outputs: Sequence[DataNode]) -> None:
        """Adds to the graph operators that were called outside any pipeline."""
        for node in ancestors(output.source for output in outputs):
            if node.pipeline is None:
                node.pipeline = self
                try:
                    node.name = self.name_for(type(node.operator), node.name or None)
                except OperatorArgumentError as error:
                    raise located(error, node.where) from None
                node.operator.name = node.name
                self.add(node)
            elif node.pipeline is not self:
                raise here(GraphError(f"{node.name} belongs to another pipeline ({node.where})."))
        self.nodes.sort(key=lambda node: node.order)

    def define_graph(self) -> object:
        """For subclasses to override: calls operators and returns the outputs, as for `set_outputs`."""
        raise GraphError(
            "the pipeline has no outputs: call pipe.set_outputs(…), or override define_graph and return them."
        )

    def _define(self) -> None:
        """Calls `define_graph` with this as the current pipeline."""
        with in_scope(None), self:
            outputs = self.define_graph()
            self.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))

    def plan(self) -> Plan:
        """Which operators run and which are pruned; fixes the graph."""
        if self._plan is None:
            if self._outputs is None:
                self._define()
            assert self._outputs is not None
            for position, node in enumerate(self._outputs):
                self._check_declared(position, node, node.spec)
            self._plan = make_plan(self.nodes, self._outputs)
            first = self.first_source()
            if self.options.last == "partial" and getattr(first and first.operator, "pad_last_batch", False):
                self.options = dataclasses.replace(self.options, last="pad")
        return self._plan

    @property
    def prefetch_queue_depth(self) -> int:
        """How many batches iterators prepare in advance."""
        return self.options.prefetch_queue_depth

    @property
    def num_outputs(self) -> int:
        """The number of outputs of `run`."""
        return len(self.plan().outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The declared dtype of each output; None where none was declared."""
        return [None if one is None else to_dali_type(one) for one in self._declared("output_dtype")]

    def output_ndim(self) -> list[int | None]:
        """The declared rank of each output; None where none was declared."""
        return self._declared("output_ndim")

    def _declared(self, option: str) -> list[Any]:
        wanted = getattr(self.options, option)
        return wanted if isinstance(wanted, list) else [wanted] * self.num_outputs

    def first_source(self) -> OperatorNode | None:
        """The source that defines an epoch."""
        return next((node for node in self.nodes if node.operator.is_source), None)

    def _check_declared(self, position: int, node: DataNode, spec: TensorSpec) -> None:
        """Raises `OperatorError` for an output that contradicts `output_dtype` and similar options."""
        count = len(self._outputs or ())
        for option, value in zip(_OF_OUTPUTS, (spec.dtype, spec.ndim, spec.layout), strict=True):
            wanted = getattr(self.options, option)
            if isinstance(wanted, list) and len(wanted) != count:
                raise GraphError(f"{option} should be one value for each of the {count} outputs, got {len(wanted)}.")
            wanted = wanted[position] if isinstance(wanted, list) else wanted
            if wanted is not None and value not in (None, "") and wanted != value:
                raise OperatorError(
                    f"{option} says {wanted!r} for output {position}, and {node.name!r} gives {spec} "
                    f"({node.source.where}). Change the graph, or what is declared.",
                    operator=node.source.name,
                    where=node.source.where,
                )

    def checked(self, column: TensorList, node: DataNode) -> TensorList:
        """A column of an output, checked against its declaration."""
        if len(column) and any(getattr(self.options, name) is not None for name in _OF_OUTPUTS):
            spec = TensorSpec.of(column[0].dtype, column[0].shape, column.layout())
            for position in (place for place, one in enumerate(self._outputs or ()) if one is node):
                self._check_declared(position, node, spec)
        return column

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, if they have names."""
        self.plan()
        return self._output_names
