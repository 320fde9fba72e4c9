"""The graph while it is defined: the output of an operator (`DataNode`), and the call that creates it (`OperatorNode`).

    images = fn.decoders.image(jpegs)     an OperatorNode with one DataNode as its output
    images[:, ::2] / 255.0                two more: indexing and arithmetic are operators too
    if fn.random.coin_flip(): …           a `Scope`: operators in it run on only some samples of the batch

Nothing has run yet: a data node holds what is known about its samples (`spec`) and where they will be. Python's
operators on data nodes are NumPy's ufuncs, in the dtypes that DALI promotes to (see `expressions`). The module `trace`
checks calls and creates their nodes; it sets `DataNode.call_operator`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NoReturn

import numpy as np

from beam_pipes.errors import ConditionError, GraphError, InferenceError, OperatorArgumentError
from beam_pipes.graph.basic import ConstantSample, RecordName, ShapeOf, ToDevice, ToHost
from beam_pipes.graph.expressions import SYMBOLS, Arithmetic, Item, Subscript
from beam_pipes.graph.operator import Device, Operator
from beam_pipes.graph.spec import UNKNOWN, TensorSpec, UserFrame, here
from beam_pipes.graph.tensors import TensorList


class OperatorGraph:
    """The operators that were called in one pipeline, in order, each with a name of its own."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self.nodes: list[OperatorNode] = []
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}

    @property
    def seed(self) -> int:
        """The key of shuffling and draws."""
        return self._seed

    def name_for(self, operator: type[Operator], name: str | None) -> str:
        """The name of a new operator: the given one, or its kind and a number. Called at definition."""
        if name is None:
            title = operator.title()
            while name is None or name in self._names:
                count = self._counts[title] = self._counts.get(title, -1) + 1
                name = title if not count else f"{title}_{count}"
        elif name in self._names:
            raise OperatorArgumentError(
                f"two operators are called {name!r}, and names are what draws are keyed by. Choose another one."
            )
        self._names.add(name)
        return name

    def add(self, node: OperatorNode) -> None:
        """Adds an operator to the graph. Called at definition."""
        self.nodes.append(node)

    def value(self, node: DataNode) -> TensorList | None:
        """The data of a node: in debug mode, where operators run as they are called, else None."""
        return None

    def batch_of(self, samples: Sequence[object]) -> DataNode | None:
        """The user's arrays, one for each sample, as a node: in debug mode, else None."""
        return None


def _binary(ufunc: str) -> Callable[[DataNode, object], DataNode]:
    return lambda self, other: _arithmetic(ufunc, self, other)


def _reflected(ufunc: str) -> Callable[[DataNode, object], DataNode]:
    return lambda self, other: _arithmetic(ufunc, other, self)


def _unary(ufunc: str) -> Callable[[DataNode], DataNode]:
    return lambda self: _arithmetic(ufunc, self)


@dataclasses.dataclass(frozen=True)
class NewAxis:
    """`images[newaxis("F")]`: a new axis of one element; plain `newaxis` has no name in the layout."""

    name: str = ""

    def __call__(self, name: str | None = None) -> NewAxis:
        if name is not None and len(name) != 1:
            raise InferenceError(f"the name of an axis is one letter, got {name!r}.")
        return NewAxis(name or "")


#: `node[newaxis]` is `node[None]`.
newaxis = NewAxis()


class DataNode:
    """One output of one operator.

        images[:, ::2] / 255.0      indexing and arithmetic are per sample
        images.gpu()                the same data on the device
        images.shape()              int64, one value for each dimension

    `spec` is what is known about it: dtype, shape, layout.
    """

    __slots__ = ("device", "index", "source", "spec")

    #: Calls an operator, with inputs and keywords: set by `trace`.
    call_operator: ClassVar[Callable[[type[Operator], Sequence[object], Mapping[str, object]], OperatorNode]]

    # NumPy leaves `array + node` to the node.
    __array_ufunc__ = None

    def __init__(self, source: OperatorNode, index: int, device: str, spec: TensorSpec = UNKNOWN) -> None:
        self.source = source
        self.index = index
        self.device = device
        self.spec = spec

    @property
    def name(self) -> str:
        """The operator's name; with the number of the output if there are several: `readers.file[1]`."""
        name = self.source.name or self.source.operator.title()
        return name if len(self.source.outputs) < 2 else f"{name}[{self.index}]"

    @property
    def dtype(self) -> np.dtype | None:
        """The NumPy dtype, or None if unknown."""
        return self.spec.dtype

    @property
    def layout(self) -> str:
        """The names of the axes; "" if they have none."""
        return self.spec.layout

    def ndim(self) -> int | None:
        """The rank, or None if unknown."""
        return self.spec.ndim

    def _call(self, operator_class: type[Operator], **keywords: object) -> DataNode:
        return DataNode.call_operator(operator_class, (self,), keywords).outputs[0]

    def gpu(self) -> DataNode:
        """This node on the device."""
        return self if self.device == "gpu" else self._call(ToDevice, device="mixed")

    def cpu(self) -> DataNode:
        """This node on the host. A device node may only be an output of the graph: the host runs first."""
        return self if self.device == "cpu" else self._call(ToHost, device="gpu")

    def shape(self, *, dtype: object = None, device: Device | None = None) -> DataNode:
        """The shape of every sample: (rank,), int64 or `dtype`, on the node's device or on `device`."""
        made = self._call(ShapeOf) if dtype is None else self._call(ShapeOf, dtype=dtype)
        return made.gpu() if device == "gpu" else made

    def property(self, key: str, *, device: Device | None = None) -> DataNode:
        """`"source_info"`, where each sample was read, or `"layout"`, the names of its axes; both are uint8 bytes.

        Records are named as in messages: `cat/3.jpg@0`. Raises `GraphError` for another key.
        """
        if key not in ("source_info", "layout"):
            raise here(GraphError(f"key should be 'source_info' or 'layout', got {key!r}."))
        if key == "source_info":
            made = self._call(RecordName)
        else:
            layout = np.frombuffer(self.layout.encode(), np.uint8)
            made = DataNode.call_operator(ConstantSample, (), {"value": layout}).outputs[0]
        return made.gpu() if device == "gpu" else made

    def source_info(self, *, device: Device | None = None) -> DataNode:
        """`property("source_info")`."""
        return self.property("source_info", device=device)

    def get(self) -> TensorList:
        """The data, in debug mode (`pipeline_def(debug=True)`); otherwise there is none yet."""
        data = None if self.source.pipeline is None else self.source.pipeline.value(self)
        if data is None:
            raise GraphError(
                f"the data node {self.name!r} has no data: operators run when the graph does. To look at data while it "
                "is defined, use @experimental.pipeline_def(debug=True).",
                node=self.name,
            )
        return data

    def __getitem__(self, key: object) -> DataNode:
        return _subscript(self, key)

    def __bool__(self) -> bool:
        raise here(
            ConditionError(
                f"the truth of the data node {self.name!r} is not known while the graph is defined. For `if`, `and`, "
                "`or` and `not` over samples, define the graph with @pipeline_def(enable_conditionals=True), or use "
                "cond(predicate, then, orelse); combine booleans with & | ^ (a & b). `assert` and `in` take no data "
                "nodes.",
                node=self.name,
            )
        )

    def __iter__(self) -> NoReturn:
        raise GraphError(
            f"the data node {self.name!r} cannot be iterated or unpacked: {self.source.operator.title()} gives "
            f"{len(self.source.outputs)} output{'s' if len(self.source.outputs) > 1 else ''}, and this is one of them.",
            node=self.name,
        )

    def __len__(self) -> int:
        raise GraphError(f"the data node {self.name!r} has no length: a sample's is node.shape()[0].", node=self.name)

    def __repr__(self) -> str:
        return f"DataNode({self.name!r}, device={self.device!r}, {self.spec})"

    # Comparison creates nodes, so nodes are hashed by identity.
    __hash__ = object.__hash__

    # Python's operators are NumPy's ufuncs, in the dtypes that DALI promotes to: see `expressions`.
    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("true_divide"), _reflected("true_divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _reflected("remainder")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift"), _reflected("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift"), _reflected("right_shift")
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __neg__ = _unary("negative")
    __pos__ = lambda self: self  # noqa: E731
    __abs__ = _unary("absolute")
    __invert__ = _unary("invert")


def _arithmetic(ufunc: str, *operands: object) -> DataNode:
    """The data node of an expression."""
    keywords: dict[str, object] = {"ufunc": ufunc}
    nodes = []
    for side, value in zip(("left", "right"), operands, strict=False):
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            keywords[side] = value
        else:
            nodes.append(value)
    for value in nodes:
        if not isinstance(value, (DataNode, np.ndarray, np.generic)) and not hasattr(value, "__dlpack__"):
            found = f"{type(value).__name__}: {value!r:.60}"
            raise here(InferenceError(f"`{SYMBOLS[ufunc]}` combines data nodes, arrays and numbers, got {found}."))
    return DataNode.call_operator(Arithmetic, nodes, keywords).outputs[0]


def _subscript(node: DataNode, key: object) -> DataNode:
    """The data node of `node[key]`."""
    bounds: list[DataNode] = []

    def number(value: object) -> object:
        if isinstance(value, DataNode):
            bounds.append(value)
            return ("node", len(bounds) - 1)
        if value is None or (isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))):
            return None if value is None else int(value)
        takes = "integers, slices, `...`, None and data nodes of integers"
        raise here(InferenceError(f"a data node is indexed by {takes}, got {value!r:.60}."))

    items: list[Item] = []
    for one in key if isinstance(key, tuple) else (key,):
        if one is None or isinstance(one, NewAxis):
            items.append(("newaxis", one.name) if one is not None and one.name else ("newaxis",))
        elif one is Ellipsis:
            items.append(("ellipsis",))
        elif isinstance(one, slice):
            items.append(("slice", number(one.start), number(one.stop), number(one.step)))
        else:
            found = number(one)
            items.append(found if isinstance(found, tuple) else ("int", found))
    if sum(item[0] == "ellipsis" for item in items) > 1:
        raise here(InferenceError("an index holds `...` once at most."))
    return DataNode.call_operator(Subscript, (node, *bounds), {"items": items}).outputs[0]


_ORDER = itertools.count()


@dataclasses.dataclass(eq=False, kw_only=True)
class OperatorNode:
    """An operator with its inputs. Nodes are in the order of their creation (`order`), which is topological.

    `name` is unique within a pipeline and part of the key of draws. `device` is where the operator runs, `scope`
    the branch in which it was called.
    """

    operator: Operator
    inputs: tuple[DataNode, ...]
    argument_inputs: Mapping[str, DataNode]
    device: Device
    where: UserFrame
    scope: Scope | None
    name: str = ""
    seed: int | None = None
    preserve: bool = False
    on_error: str | None = None
    outputs: tuple[DataNode, ...] = ()
    pipeline: OperatorGraph | None = None
    without_effect: tuple[str, ...] = ()
    order: int = dataclasses.field(default_factory=lambda: next(_ORDER))

    @property
    def branches(self) -> tuple[Scope, ...]:
        """The branch in which it was called and those around it, from the inside out."""
        return () if self.scope is None else self.scope.chain()

    def feeds(self) -> tuple[DataNode, ...]:
        """All data nodes that are read: inputs, argument inputs, and the conditions of its branch."""
        return (*self.inputs, *self.argument_inputs.values(), *(branch.predicate for branch in self.branches))

    @property
    def output_device(self) -> str:
        """Where its output is: "cpu" or "gpu"."""
        return "cpu" if self.device == "cpu" else "gpu"

    def __str__(self) -> str:
        return f"{self.name or self.operator.title()} ({self.where})"


@dataclasses.dataclass(frozen=True, eq=False)
class Scope:
    """The samples of `parent` (None: the whole batch) for which `predicate` is `branch`."""

    parent: Scope | None
    predicate: DataNode
    branch: bool

    def chain(self) -> tuple[Scope, ...]:
        """This scope and those around it, from the inside out."""
        return (self, *(() if self.parent is None else self.parent.chain()))

    def __str__(self) -> str:
        parts = [f"{one.predicate.name} is {'true' if one.branch else 'false'}" for one in self.chain()]
        return " and ".join(reversed(parts))
