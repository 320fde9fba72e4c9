"""What a function given to `map` or `filter` computes, read from TensorFlow's trace of it.

An *expression* says how an output is computed: `("AddV2", attributes, (("input", ("x",)), ("Const", …)))`. Two equal
expressions compute the same value. Nested functions and control flow have no expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from beam_pipes.extras import TfSpec, TfTensor, require
from beam_pipes.on_device.conversions import Nested

if TYPE_CHECKING:
    import tensorflow as tf

Path = tuple[object, ...]
Expression = tuple[Any, ...]

# One result per element, rounded exactly: the same bits alone, in a vector or in a batch.
EXACT_OPS = frozenset(
    "Abs Add AddV2 Cast Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr Mul Neg NotEqual "
    "OnesLike RealDiv SelectV2 Sign Square Sub ZerosLike".split()
)
# The same for integers; for floats the vector units of a CPU may treat NaN or the last bit differently.
EXACT_INTEGER_OPS = frozenset(
    "BitwiseAnd BitwiseOr BitwiseXor FloorDiv FloorMod Invert LeftShift Maximum Minimum Mod RightShift".split()
)
# Elementwise, but a vectorised result may differ from a scalar one in the last bit.
ROUNDED_OPS = frozenset(
    "Ceil Cos Erf Exp Expm1 Floor Log Log1p Pow Relu Round Rsqrt Sigmoid Sin Softplus Sqrt Tan Tanh".split()
)
# Attributes that describe a trace and not what it computes.
_DESCRIPTIVE = frozenset(["_output_shapes", "_user_specified_name", "shape", "_class"])


class UnreadableFunctionError(Exception):
    """The function cannot be traced on these elements, or uses operations without an expression."""


class TracedFunction:
    """A trace of `function` on elements of `element_spec`; raises `UnreadableFunctionError`."""

    def __init__(self, function: Callable[..., object], element_spec: Nested) -> None:
        tf = require("tensorflow", purpose="DataLoader.explain")
        arguments = element_spec if isinstance(element_spec, tuple) else (element_spec,)
        inputs = list(_leaves(arguments))
        if not all(isinstance(spec, tf.TensorSpec) for _, spec in inputs):
            raise UnreadableFunctionError
        try:
            concrete = tf.function(function).get_concrete_function(*arguments)
        except Exception as error:  # the user's code, on elements it was not written for
            raise UnreadableFunctionError from error
        self.stateless = not any(_stateful(operation) for operation in concrete.graph.get_operations())
        # A captured tensor or variable follows the inputs; it has no path and no expression.
        self._inputs = {
            tensor.ref(): path if isinstance(element_spec, tuple) else path[1:]
            for tensor, (path, _) in zip(concrete.graph.inputs, inputs, strict=False)
        }
        self._specs = {path if isinstance(element_spec, tuple) else path[1:]: spec for path, spec in inputs}
        self.outputs: dict[Path, TfTensor] = dict(_leaves(concrete.structured_outputs))
        self._graph = concrete.graph  # the tensors do not keep it alive

    def passed_through(self, path: Path) -> bool:
        """Whether the output at `path` is the input at `path`, untouched."""
        tensor = self.outputs.get(path)
        return tensor is not None and self.expression(tensor) == ("input", path)

    def reads(self) -> set[Path]:
        """The inputs that the outputs depend on."""
        found: set[Path] = set()
        for tensor in self.outputs.values():
            found.update(_inputs_of(self.expression(tensor)))
        return found

    def ignores_varying(self) -> bool:
        """Whether the function ignores an input of varying shape, without which elements of any shape would batch."""
        return any(not spec.shape.is_fully_defined() for path, spec in self._specs.items() if path not in self.reads())

    def expressions(self) -> dict[Path, Expression]:
        """The expression of every output."""
        return {path: self.expression(tensor) for path, tensor in self.outputs.items()}

    def expression(self, tensor: tf.Tensor) -> Expression:
        """How a tensor of the trace is computed."""
        path = self._inputs.get(tensor.ref())
        if path is not None:
            return ("input", path)
        operation = tensor.op
        if operation.control_inputs or _calls_functions(operation) or operation.type == "Placeholder":
            raise UnreadableFunctionError
        if operation.type == "Identity":
            return self.expression(operation.inputs[0])
        attributes = tuple(
            sorted(
                (name, value.SerializeToString(deterministic=True))
                for name, value in operation.node_def.attr.items()
                if name not in _DESCRIPTIVE
            )
        )
        made_of = tuple(self.expression(made) for made in operation.inputs)
        return (operation.type, attributes, tensor.value_index, made_of)

    def elementwise(self) -> str | None:
        """How a batch of elements relates to them: "exact", "rounded" (last bits, casts may differ), or `None`."""
        grades = {self._grade(tensor) for tensor in self.outputs.values()}
        if None in grades or not self.stateless:
            return None
        return "rounded" if "rounded" in grades else "exact"

    def _grade(self, tensor: tf.Tensor) -> str | None:
        if not list(_inputs_of(self.expression(tensor))):
            return None  # a constant has no batch dimension
        return self._grade_of_inner(tensor)

    def _grade_of_inner(self, tensor: tf.Tensor) -> str | None:
        if tensor.ref() in self._inputs:
            return "exact"
        operation = tensor.op
        if operation.type == "Identity":
            return self._grade_of_inner(operation.inputs[0])
        if operation.type == "Const":
            return "exact" if tensor.shape.rank == 0 else None
        varying = [made for made in operation.inputs if list(_inputs_of(self.expression(made)))]
        shapes = {tuple(made.shape.as_list()) if made.shape.rank is not None else None for made in varying}
        # Two inputs of different shapes would broadcast otherwise once there is a batch dimension.
        if len(varying) > 1 and (len(shapes) > 1 or any(shape is None or None in shape for shape in shapes)):
            return None
        grades = {self._grade_of_inner(made) for made in operation.inputs}
        if None in grades:
            return None
        integers = all(made.dtype.is_integer for made in operation.inputs)
        if operation.type == "Cast" and _saturates(operation):
            return "rounded"
        if operation.type in EXACT_OPS or (operation.type in EXACT_INTEGER_OPS and integers):
            return "rounded" if "rounded" in grades else "exact"
        return "rounded" if operation.type in ROUNDED_OPS | EXACT_INTEGER_OPS else None


def _leaves(structure: object, path: Path = ()) -> Iterator[tuple[Path, TfSpec | TfTensor]]:
    """Leaves in the order in which TensorFlow flattens: dicts by sorted key."""
    if isinstance(structure, dict):
        for name in sorted(structure):
            yield from _leaves(structure[name], (*path, name))
    elif isinstance(structure, list | tuple):
        for index, item in enumerate(structure):
            yield from _leaves(item, (*path, index))
    else:
        yield path, structure


def _inputs_of(expression: Expression) -> Iterator[Path]:
    if expression[0] == "input":
        yield expression[1]
    else:
        for made_of in expression[3]:
            yield from _inputs_of(made_of)


def _saturates(operation: tf.Operation) -> bool:
    """Whether numbers beyond the range of a narrow integer become others alone (-1.0 → 255) than in a vector (→ 0)."""
    source, target = operation.inputs[0].dtype, operation.outputs[0].dtype
    return bool((source.is_floating or source.is_complex) and target.is_integer and target.size < 8)


def _stateful(operation: tf.Operation) -> bool:
    return operation.type != "Placeholder" and bool(operation.op_def.is_stateful)


def _calls_functions(operation: tf.Operation) -> bool:
    return any(value.HasField("func") or value.list.func for value in operation.node_def.attr.values())
