"""Defining a graph: calls of operators become nodes of the current pipeline."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_pipes.checks import choice
from beam_pipes.errors import GraphError, OperatorArgumentError, PlacementError
from beam_pipes.graph.basic import ConstantSample, constant_array
from beam_pipes.graph.data_node import DataNode, OperatorGraph, OperatorNode, Scope
from beam_pipes.graph.operator import DEVICES, Device, Operator
from beam_pipes.graph.samples import text_key
from beam_pipes.graph.spec import TensorSpec, UserFrame, located, user_frame

R = TypeVar("R")


class _Current(threading.local):
    def __init__(self) -> None:
        self.pipelines: list[OperatorGraph | None] = []
        self.scope: Scope | None = None


_current = _Current()


def current_pipeline() -> OperatorGraph | None:
    """The pipeline being defined in this thread."""
    return _current.pipelines[-1] if _current.pipelines else None


def push_pipeline(pipeline: OperatorGraph | None) -> None:
    """Makes `pipeline` the current one of this thread, until `pop_pipeline`."""
    _current.pipelines.append(pipeline)


def pop_pipeline() -> None:
    """Ends what `push_pipeline` began."""
    _current.pipelines.pop()


@contextlib.contextmanager
def in_scope(scope: Scope | None) -> Iterator[None]:
    """Makes `scope` the branch being defined in this thread, within `with`."""
    before, _current.scope = _current.scope, scope
    try:
        yield
    finally:
        _current.scope = before


def in_branch(predicate: DataNode, branch: bool, function: Callable[[], R]) -> R:
    """The result of a function that calls operators for the samples for which `predicate` is `branch`."""
    with in_scope(Scope(_current.scope, predicate, branch)):
        return function()


def add(
    operator_class: type[Operator],
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    *,
    where: UserFrame | None = None,
) -> OperatorNode:
    """Adds an operator to the current pipeline, called on the user's line `where`.

    `inputs` are data nodes, or NumPy arrays and numbers that become constants. `keywords` are its arguments, and those
    that all operators take. Errors name that line.
    """
    where = where or user_frame()
    try:
        return _added(operator_class, inputs, keywords, where)
    except GraphError as error:
        raise located(error, where) from error.__cause__


def call(operator_class: type[Operator], inputs: Sequence[object], keywords: Mapping[str, object]) -> object:
    """`add`, returning what the user gets: a node, or several; a list of that for lists of data nodes, one for each set
    of inputs.

        images, masks = fn.random_resized_crop([images, masks], size=224)    # the same windows of both
    """
    is_set = [isinstance(one, (list, tuple)) and any(isinstance(node, DataNode) for node in one) for one in inputs]
    if not any(is_set):
        node = add(operator_class, inputs, keywords)
        return node.operator.result(node.outputs)
    where = user_frame()
    sets = [one for one, is_one in zip(inputs, is_set, strict=True) if is_one]
    counts = sorted({len(one) for one in sets})  # type: ignore[arg-type]
    if len(counts) > 1:
        raise OperatorArgumentError(
            f"{operator_class.title()}: inputs that are lists make sets, and should be equally long, got lists of "
            f"{' and '.join(map(str, counts))}. ({where})",
            operator=operator_class.title(),
        )
    results: list[object] = []
    for index in range(counts[0]):
        own = [one[index] if is_one else one for one, is_one in zip(inputs, is_set, strict=True)]  # type: ignore[index]
        name = keywords.get("name")
        named = {"name": f"{name}_{index}"} if index and isinstance(name, str) else {}
        node = add(operator_class, own, {**keywords, **named}, where=where)
        if operator_class.random and node.seed is None:  # one key for all sets: they draw the same
            node.seed = text_key(f"{0 if node.pipeline is None else node.pipeline.seed}\0{node.name}") >> 1
            keywords = {**keywords, "seed": node.seed}
        results.append(node.operator.result(node.outputs))
    return results


def constant(value: object) -> DataNode:
    """The node of an array or a number, the same for every sample."""
    return add(ConstantSample, (), {"value": constant_array(value)}).outputs[0]


DataNode.call_operator = staticmethod(add)


def _added(
    operator_class: type[Operator],
    inputs: Sequence[object],
    keywords: Mapping[str, object],
    where: UserFrame,
) -> OperatorNode:
    own, common = _split_keywords(operator_class, keywords)
    pipeline = current_pipeline()
    nodes = tuple(_as_node(value, operator_class, position) for position, value in enumerate(inputs))
    argument_inputs = {name: value for name, value in own.items() if isinstance(value, DataNode)}
    constants = {name: value for name, value in own.items() if name not in argument_inputs}
    name = common.get("name")
    if pipeline is not None:
        name = pipeline.name_for(operator_class, name)
    operator = operator_class(constants, name=name or "", nodes=tuple(argument_inputs))
    node = OperatorNode(
        operator=operator,
        inputs=nodes,
        argument_inputs=argument_inputs,
        device=_place(operator, nodes, argument_inputs, common.get("device"), where),
        where=where,
        scope=_current.scope,
        name=name or "",
        seed=common.get("seed"),
        preserve=bool(common.get("preserve", False)),
        on_error=common.get("on_error"),
        pipeline=pipeline,
        without_effect=tuple(name for name in operator_class.without_effect if name in keywords),
    )
    _check_call(node)
    count = operator.output_count()
    specs = _infer(node, count)
    node.outputs = tuple(DataNode(node, index, node.output_device, specs[index]) for index in range(count))
    if pipeline is not None:
        pipeline.add(node)
    return node


def _split_keywords(
    operator_class: type[Operator], keywords: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, Any]]:
    """The operator's own arguments, and those that every operator takes."""
    general = operator_class.common_arguments()
    left_out = {*general, *operator_class.without_effect}
    own = {name: value for name, value in keywords.items() if name not in left_out}
    common = {name: value for name, value in keywords.items() if name in general and value is not None}
    for name, choices in (("device", DEVICES), ("on_error", POLICIES)):
        if name in common:
            what = f"{operator_class.title()}: {name}"
            choice(common[name], of=choices, what=what, error=OperatorArgumentError)
    return own, common


#: What happens to a sample on which an operator fails.
POLICIES = ("fail", "drop", "dead_letter")


def _as_node(value: object, operator_class: type[Operator], position: int) -> DataNode:
    if isinstance(value, DataNode):
        return value
    pipeline = current_pipeline()
    if isinstance(value, (list, tuple)) and pipeline is not None and (batch := pipeline.batch_of(value)) is not None:
        return batch
    numbers = (bool, int, float, np.ndarray, np.generic)
    is_list = isinstance(value, (list, tuple)) and all(isinstance(one, numbers[:3]) for one in value)
    if is_list or isinstance(value, numbers) or hasattr(value, "__dlpack__"):
        return constant(value)
    names = operator_class.inputs
    name = names[min(position, len(names) - 1)] if names else str(position)
    raise OperatorArgumentError(
        f"{operator_class.title()}: the input {name!r} should be a data node, an array or a number, got "
        f"{type(value).__name__}: {value!r:.60}.",
        operator=operator_class.title(),
    )


def _place(
    operator: Operator,
    inputs: Sequence[DataNode],
    argument_inputs: Mapping[str, DataNode],
    device: Device | None,
    where: UserFrame,
) -> Device:
    """Where an operator runs: as it says, else on the device if one of its inputs is there."""
    on_device = [node for node in inputs if node.device == "gpu"]
    chosen: Device = device or ("gpu" if on_device else "cpu")
    if chosen not in operator.devices:
        offered = " or ".join(operator.devices)
        hint = ""
        if device is None:
            hint = (
                f" Its input {on_device[0].name!r} lies on the device ({on_device[0].source.where}): call "
                f"{operator.title()} before, where the data is still on the host."
            )
        raise PlacementError(
            f"{operator.name}: it runs on {offered}, and not on {chosen}.{hint}", operator=operator.name
        )
    if chosen in ("cpu", "mixed") and on_device:
        raise PlacementError(
            f"{operator.name} stands on {chosen!r} at {where}, but its input {on_device[0].name!r} comes from the "
            f"device at {on_device[0].source.where}. The places follow each other: cpu, mixed, gpu. Move "
            f"{operator.name} after the transfer (device='gpu'), or the transfer after it.",
            operator=operator.name,
            where=where,
            before=on_device[0].source.where,
        )
    for name, node in argument_inputs.items():
        if node.device == "gpu":
            raise PlacementError(
                f"{operator.name}: the argument {name!r} at {where} should come from the host, but {node.name!r} lies "
                f"on the device since {node.source.where}. Compute arguments with device='cpu'.",
                operator=operator.name,
                argument=name,
                where=where,
                before=node.source.where,
            )
    return chosen


def _check_call(node: OperatorNode) -> None:
    """Checks the number of inputs, their places, and the requirements of side effects."""
    operator = node.operator
    least, most = len(operator.inputs) - operator.optional_inputs, len(operator.inputs)
    count = len(node.inputs)
    if count < least or (count > most and not operator.variadic):
        expected = f"{least}" if least == most else f"{least} to {most}"
        if operator.variadic:
            expected = f"at least {least}"
        named = f" ({', '.join(operator.inputs)})" if operator.inputs else ""
        raise OperatorArgumentError(
            f"{operator.name}: it takes {expected} input{'' if expected == '1' else 's'}{named}, got {count}.",
            operator=operator.name,
        )
    if operator.side_effects and node.pipeline is None:
        raise GraphError(
            f"{operator.name} has side effects, and there is no current pipeline that would run it. Call it within "
            "`with pipe:`, a function with @pipeline_def, or define_graph.",
            operator=operator.name,
        )
    for feed in (*node.inputs, *node.argument_inputs.values()):
        if feed.source.pipeline is not None and node.pipeline is not None and feed.source.pipeline is not node.pipeline:
            raise GraphError(
                f"{operator.name} takes {feed.name!r} of another pipeline ({feed.source.where}). Data nodes belong to "
                "the pipeline in which they were made.",
                operator=operator.name,
            )
        if not operator.reads_branches and feed.source.scope not in (None, *node.branches):
            raise GraphError(
                f"{operator.name} takes {feed.name!r}, which was made in one branch of a condition "
                f"({feed.source.where}) and is used outside of it. Give the variable a value in both branches.",
                operator=operator.name,
            )


def _infer(node: OperatorNode, count: int) -> tuple[TensorSpec, ...]:
    operator = node.operator
    for name, feed in node.argument_inputs.items():
        _check_argument_spec(operator, name, feed.spec)
    inferred = operator.infer(*(feed.spec for feed in node.inputs))
    specs = (inferred,) if isinstance(inferred, TensorSpec) else tuple(inferred)
    if len(specs) != count:
        raise GraphError(
            f"{operator.title()}.infer gave {len(specs)} specs for {count} outputs", operator=operator.name
        )
    return specs


def _check_argument_spec(operator: Operator, name: str, spec: TensorSpec) -> None:
    argument = operator.arguments[name]
    rank, dtype = argument.kind.rank, spec.dtype
    bad_dtype = dtype is not None and (
        dtype.kind not in "iufb" or (argument.kind.name in ("int", "ints") and dtype.kind == "f")
    )
    bad_rank = spec.ndim is not None and spec.ndim > rank and spec.shape not in ((1,), (None,))
    bad_rank = bad_rank and not argument.kind.flat
    if bad_dtype or bad_rank:
        raise OperatorArgumentError(
            f"{operator.name}: the argument {name!r} should be {argument.words} for each sample "
            f"({argument.kind.dtype}, rank {rank}), and the data node gives {spec}.",
            operator=operator.name,
            argument=name,
        )
