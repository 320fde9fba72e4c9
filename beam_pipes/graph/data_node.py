"""Where in the user's code something was said: what messages about graphs point at.

`TensorSpec`: what is known of a data node's samples before anything runs.

`DataNode`: what an operator gives, before there is any data. Expressions over data nodes make further ones.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.errors import ConditionError, GraphError

if TYPE_CHECKING:
    from beam_pipes.graph.reader import OperatorNode
    from beam_pipes.graph.types import TensorList


_HERE = os.path.dirname(os.path.abspath(__file__))
# The folders of these packages: found, since an editable install maps one of them to another place.
_LIBRARY = os.path.dirname(_HERE)
_TRANSFORMS = tuple(getattr(find_spec("beam_pipes.transforms"), "submodule_search_locations", None) or ())
# Frames between the user and the graph: this room, what is generated from the table of operators, and the library
# that rewrites conditionals.
_OURS = (
    _HERE + os.sep,
    os.path.join(_LIBRARY, "on_device") + os.sep,
    *(os.path.join(path, room) + os.sep for path in _TRANSFORMS for room in ("fn", "ops", "operators")),
)
# Files of rewritten functions → what a line of them was before.
#: The folders of `beam_pipes` and of its transforms: code that is no user's.
OWN_FOLDERS = (_LIBRARY, *_TRANSFORMS)
GENERATED: dict[str, Callable[[int], UserFrame]] = {}

_LIBRARIES = (f"{os.sep}malt{os.sep}",)


@dataclasses.dataclass(frozen=True, slots=True)
class UserFrame:
    """A line of the user's code; `str` gives `train.py:12 in my_pipeline: images = fn.decoders.image(jpegs)`."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself; "" where the source is not at hand."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        text = self.text
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}" + (f": {text}" if text else "")


def user_frame() -> UserFrame:
    """The innermost line on the stack that belongs to the user."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        original = GENERATED.get(code.co_filename)
        if original is not None:
            return original(frame.f_lineno)
        if not code.co_filename.startswith(_OURS) and not any(part in code.co_filename for part in _LIBRARIES):
            return UserFrame(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return UserFrame("?", 0, "?")


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """dtype, shape and layout of every sample of a node; None where it is not known.

    `shape` has None for a dimension that varies by sample, and is None itself where not even the rank is known.
    `layout` names the axes ("HWC", "CHW", "FHWC"); "" where they have no names.
    """

    dtype: np.dtype[Any] | None = None
    shape: tuple[int | None, ...] | None = None
    layout: str = ""

    @classmethod
    def of(cls, dtype: Any, shape: tuple[int | None, ...] | None = None, layout: str = "") -> TensorSpec:
        """`TensorSpec.of("float32", (None, None, 3), "HWC")`."""
        return cls(None if dtype is None else np.dtype(dtype), shape, layout)

    @classmethod
    def of_rank(cls, dtype: Any, ndim: int | None, layout: str = "") -> TensorSpec:
        """A spec of which the rank is known, and no dimension."""
        return cls.of(dtype, None if ndim is None else (None,) * ndim, layout)

    @property
    def ndim(self) -> int | None:
        """The rank; None where it is not known."""
        return None if self.shape is None else len(self.shape)

    def replace(self, **changes: Any) -> TensorSpec:
        """The same with other fields: `spec.replace(dtype=np.dtype("uint8"))`."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        dtype = "?" if self.dtype is None else self.dtype.name
        shape = "?" if self.shape is None else "×".join("·" if size is None else str(size) for size in self.shape)
        return f"{dtype}[{shape}]" + (f" {self.layout}" if self.layout else "")


UNKNOWN = TensorSpec()


def axis_of(layout: str, name: str) -> int | None:
    """The axis that is called `name`: `axis_of("HWC", "C")` → 2; None where the layout has none."""
    at = layout.find(name)
    return None if at < 0 else at


def _binary(ufunc: str) -> Callable[[DataNode, Any], DataNode]:
    def forward(self: DataNode, other: Any) -> DataNode:
        from beam_pipes.graph.expressions import arithmetic

        return arithmetic(ufunc, self, other)

    return forward


def _reflected(ufunc: str) -> Callable[[DataNode, Any], DataNode]:
    def backward(self: DataNode, other: Any) -> DataNode:
        from beam_pipes.graph.expressions import arithmetic

        return arithmetic(ufunc, other, self)

    return backward


def _unary(ufunc: str) -> Callable[[DataNode], DataNode]:
    def forward(self: DataNode) -> DataNode:
        from beam_pipes.graph.expressions import arithmetic

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
        from beam_pipes.graph.basic import ToDevice
        from beam_pipes.graph.trace import call

        made: DataNode = self if self.device == "gpu" else call(ToDevice, (self,), {}, device="mixed")
        return made

    def cpu(self) -> DataNode:
        """This node on the host. What comes from a device can only be an output of the graph: the host goes before."""
        from beam_pipes.graph.basic import ToHost
        from beam_pipes.graph.trace import call

        made: DataNode = self if self.device == "cpu" else call(ToHost, (self,), {}, device="gpu")
        return made

    def shape(self) -> DataNode:
        """The shape of every sample: int64, (rank,)."""
        from beam_pipes.graph.basic import ShapeOf
        from beam_pipes.graph.trace import call

        made: DataNode = call(ShapeOf, (self,), {})
        return made

    def get(self) -> TensorList:
        """The data, in debug mode: `pipeline_def(debug=True)`; elsewhere there is none yet."""
        from beam_pipes.graph.trace import debug_value

        return debug_value(self)

    def __getitem__(self, key: Any) -> DataNode:
        from beam_pipes.graph.expressions import subscript

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
