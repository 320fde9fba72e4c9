"""`DataNode`: what an operator gives, before there is any data. Expressions over data nodes make further ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import ConditionError, GraphError
from beam_pipes.graph.tensor_spec import UNKNOWN, TensorSpec
from beam_pipes.graph.user_frame import user_frame

if TYPE_CHECKING:
    from beam_pipes.graph.operator_node import OperatorNode
    from beam_pipes.graph.tensor_list import TensorList


def _binary(ufunc: str) -> Callable[[DataNode, Any], DataNode]:
    def forward(self: DataNode, other: Any) -> DataNode:
        from beam_pipes.graph.basic.arithmetic import arithmetic

        return arithmetic(ufunc, self, other)

    return forward


def _reflected(ufunc: str) -> Callable[[DataNode, Any], DataNode]:
    def backward(self: DataNode, other: Any) -> DataNode:
        from beam_pipes.graph.basic.arithmetic import arithmetic

        return arithmetic(ufunc, other, self)

    return backward


def _unary(ufunc: str) -> Callable[[DataNode], DataNode]:
    def forward(self: DataNode) -> DataNode:
        from beam_pipes.graph.basic.arithmetic import arithmetic

        return arithmetic(ufunc, self)

    return forward


class DataNode:
    """One output of one operator.

        images[:, ::2] / 255.0      indexing and arithmetic are per sample
        images.gpu()                the same data on the device
        images.shape()              int64, one value for each dimension

    `spec` is what is known of it: dtype, shape, layout.
    """

    __slots__ = ("device", "index", "source", "spec")

    # NumPy leaves `array + node` to the node.
    __array_ufunc__ = None

    def __init__(self, source: OperatorNode, index: int, device: str, spec: TensorSpec = UNKNOWN) -> None:
        self.source = source
        self.index = index
        self.device = device
        self.spec = spec

    @property
    def name(self) -> str:
        """The operator's name; with the number of the output where it has several: `readers.file[1]`."""
        name = self.source.name or self.source.operator.title()
        return name if len(self.source.outputs) < 2 else f"{name}[{self.index}]"

    @property
    def dtype(self) -> Any:
        """The NumPy dtype, or None where it is not known."""
        return self.spec.dtype

    @property
    def layout(self) -> str:
        """The names of the axes; "" where they have none."""
        return self.spec.layout

    def ndim(self) -> int | None:
        """The rank, or None where it is not known."""
        return self.spec.ndim

    def gpu(self) -> DataNode:
        """This node on the device."""
        from beam_pipes.graph.basic.copy_to import ToDevice
        from beam_pipes.graph.trace import call

        made: DataNode = self if self.device == "gpu" else call(ToDevice, (self,), {}, device="mixed")
        return made

    def cpu(self) -> DataNode:
        """This node on the host. What comes from a device can only be an output of the graph: the host goes before."""
        from beam_pipes.graph.basic.copy_to import ToHost
        from beam_pipes.graph.trace import call

        made: DataNode = self if self.device == "cpu" else call(ToHost, (self,), {}, device="gpu")
        return made

    def shape(self) -> DataNode:
        """The shape of every sample: int64, (rank,)."""
        from beam_pipes.graph.basic.shape_of import ShapeOf
        from beam_pipes.graph.trace import call

        made: DataNode = call(ShapeOf, (self,), {})
        return made

    def get(self) -> TensorList:
        """The data, in debug mode: `pipeline_def(debug=True)`; elsewhere there is none yet."""
        from beam_pipes.graph.trace import debug_value

        return debug_value(self)

    def __getitem__(self, key: Any) -> DataNode:
        from beam_pipes.graph.basic.subscript import subscript

        return subscript(self, key)

    def __bool__(self) -> bool:
        raise ConditionError(
            f"the truth of the data node {self.name!r} is not known while the graph is defined. For `if`, `and`, `or` "
            "and `not` over samples, define the graph with @pipeline_def(enable_conditionals=True), or use "
            "cond(predicate, then, orelse); combine booleans with & | ^ (a & b). `assert` and `in` take no data nodes. "
            f"({user_frame()})",
            node=self.name,
            where=user_frame(),
        )

    def __iter__(self) -> Any:
        raise GraphError(
            f"the data node {self.name!r} cannot be iterated or unpacked: {self.source.operator.title()} gives "
            f"{len(self.source.outputs)} output{'s' if len(self.source.outputs) > 1 else ''}, and this is one of them.",
            node=self.name,
        )

    def __len__(self) -> int:
        raise GraphError(f"the data node {self.name!r} has no length: a sample's is node.shape()[0].", node=self.name)

    def __repr__(self) -> str:
        return f"DataNode({self.name!r}, device={self.device!r}, {self.spec})"

    # Comparison makes nodes, so identity is what a node is hashed by.
    __hash__ = object.__hash__

    # Python's operators are NumPy's ufuncs, in the dtypes that DALI promotes to: see `basic.arithmetic`.
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
    __pos__ = _unary("positive")
    __abs__ = _unary("absolute")
    __invert__ = _unary("invert")
