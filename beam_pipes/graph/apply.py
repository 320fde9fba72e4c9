"""Runs one operator over the samples of a batch on the host: the only place where operators' methods are called."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from beam_pipes.errors import GraphError, OperatorError, without_stop
from beam_pipes.graph.data_node import OperatorNode
from beam_pipes.graph.operator import Argument, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.tensors import Array, TensorList

# A thread is given at least this many samples: handing work over costs about 20 µs.
_LEAST_SAMPLES_PER_THREAD = 2


@dataclasses.dataclass
class Outcome:
    """The result of an operator: a column per output, over the samples that did not fail; and the failures."""

    columns: list[TensorList]
    failures: dict[int, Exception]


def apply(
    node: OperatorNode,
    samples: Samples,
    inputs: Sequence[TensorList],
    arguments: Mapping[str, TensorList],
    *,
    keep_failures: bool = False,
    pool: ThreadPoolExecutor | None = None,
    num_threads: int = 1,
) -> Outcome:
    """Runs the operator of `node` over `samples`.

    Raises `OperatorError`, naming operator, line and record, for the first sample that fails; with `keep_failures` they
    are returned instead, and omitted from the columns.
    """
    operator = node.operator
    values = {name: _argument_column(operator, name, column, node) for name, column in arguments.items()}
    try:
        if operator.run_batch is not None:
            return Outcome(_run_batch(node, samples, inputs, values), {})
        if operator.run_arrays is not None and _stacked(operator, inputs, values):
            return Outcome(_run_arrays(node, inputs, values), {})
    except GraphError:
        raise
    except Exception as error:
        if len(samples) == 1:
            if keep_failures:
                return Outcome(_empty(node), {0: error})
            raise failed(node, samples, 0, error) from error
        # One bad sample must not cost the others, and must be named: find it one by one.
        return _one_by_one(node, samples, inputs, arguments, keep_failures=keep_failures)
    return _run_each(node, samples, inputs, values, keep_failures, pool, num_threads)


def failed(node: OperatorNode, samples: Samples, index: int, error: BaseException) -> OperatorError:
    """The error that says which operator failed where, on what."""
    record = samples.record_id(index)
    return OperatorError(
        f"operator {node.name!r} failed on record {record!r} (sample {int(samples.rows[index])} of the batch, epoch "
        f"{samples.epoch}): {type(error).__name__}: {without_stop(error)}. It was called at {node.where}. Fix "
        "the record or the graph, or allow failures with on_error='drop' (counted) or on_error='dead_letter' (kept in "
        "pipe.dead_letters).",
        operator=node.name,
        record=record,
        source_info=record,
        sample=int(samples.rows[index]),
        where=node.where,
    )


def _argument_column(operator: Operator, name: str, column: TensorList, node: OperatorNode) -> TensorList:
    """The samples of an argument input, in the declared dtype and rank."""
    argument = operator.arguments[name]
    kind = argument.kind
    array = column.dense
    if array is not None:
        want = 1 + kind.rank
        if kind.rank and (array.ndim == 1 or kind.flat):
            array = array.reshape(len(array), -1)
        if not kind.rank and array.shape[1:] == (1,):  # such as the label of a file: one number, as DALI takes it
            array = array[:, 0]
        if array.ndim != want:
            raise _bad_argument(node, argument, f"samples of shape {array.shape[1:]}")
        return TensorList(_cast(array, node, argument))
    samples = [np.ravel(sample) if kind.flat else np.atleast_1d(sample) for sample in column]
    if kind.rank == 0 or any(sample.ndim != 1 for sample in samples):
        raise _bad_argument(node, argument, f"samples of shapes {sorted({s.shape for s in samples})[:3]}")
    return TensorList([_cast(sample, node, argument) for sample in samples])


def _cast(array: Array, node: OperatorNode, argument: Argument) -> Array:
    kind = argument.kind
    if array.dtype == kind.dtype:
        return array
    if array.dtype.kind not in "iufb":
        raise _bad_argument(node, argument, f"samples of dtype {array.dtype}")
    made = array.astype(kind.dtype)
    if kind.name in ("int", "ints") and array.dtype.kind == "f" and not np.array_equal(made, array):
        raise _bad_argument(node, argument, f"numbers with a fraction, such as {array[made != array].flat[0]}")
    return made


def _bad_argument(node: OperatorNode, argument: Argument, found: str) -> OperatorError:
    feed = node.argument_inputs[argument.name]
    return OperatorError(
        f"operator {node.name!r}: the argument {argument.name!r} should be {argument.kind.words} for each sample "
        f"({argument.kind.dtype}, rank {argument.kind.rank}), and {feed.name!r} gave {found}. It was called at "
        f"{node.where}.",
        operator=node.name,
        argument=argument.name,
        where=node.where,
    )


def _stacked(operator: Operator, inputs: Sequence[TensorList], values: Mapping[str, TensorList]) -> bool:
    """Whether `run_arrays` can be called directly: nothing is ragged, and no argument sets shapes per sample."""
    if any(operator.arguments[name].static for name in values):
        return False
    if operator.run is not None and operator.rounds_by_place:
        return False
    if operator.run is not None and not all(column.is_stacked for column in inputs):
        return False
    return all(column.dense is not None for column in (*inputs, *values.values()))


def host_draws(
    node: OperatorNode,
    samples: Samples,
    shapes: Sequence[tuple[int, ...]],
    arguments: Mapping[str, TensorList],
) -> dict[str, Array]:
    """What the host computes for an operator on a device: name → array (n, …); see `Operator`.

    `shapes` are those of one sample of each input. Raises `OperatorError` for the first sample that fails.
    """
    operator = node.operator
    values = {name: _argument_column(operator, name, column, node) for name, column in arguments.items()}

    def drawn(some: Samples, columns: Mapping[str, TensorList]) -> dict[str, Array]:
        arrays = {name: column.dense if column.dense is not None else list(column) for name, column in columns.items()}
        made: dict[str, Array] = operator.host_draws(some, shapes, **batched_arguments(operator, arrays, len(some)))
        return made

    try:
        return drawn(samples, values)
    except GraphError:
        raise
    except Exception as error:
        for index in range(len(samples)):
            one = np.array([index])
            try:
                drawn(samples.take(one), {name: column.take(one) for name, column in values.items()})
            except Exception as own:
                raise failed(node, samples, index, own) from own
        raise OperatorError(
            f"operator {node.name!r}: {type(error).__name__}: {without_stop(error)}. It was called at {node.where}.",
            operator=node.name,
            where=node.where,
        ) from error


def batched_arguments(operator: Operator, values: Mapping[str, object], size: int) -> dict[str, object]:
    """The keywords of `run_batch` and `run_arrays`: arrays (n,) or (n, k); a Python value if static."""
    keywords: dict[str, object] = {}
    for name, argument in operator.arguments.items():
        if argument.constant_only:
            continue
        if name in values:
            keywords[name] = values[name]
            continue
        constant = operator.constants[name]
        if constant is None:
            keywords[name] = None
        elif argument.static:
            keywords[name] = tuple(constant.tolist()) if isinstance(constant, np.ndarray) else constant
        else:
            array = np.asarray(constant, argument.kind.dtype)
            keywords[name] = np.broadcast_to(array, (size, *array.shape))
    return keywords


def _run_batch(
    node: OperatorNode, samples: Samples, inputs: Sequence[TensorList], values: Mapping[str, TensorList]
) -> list[TensorList]:
    operator = node.operator
    arrays = {name: column.dense if column.dense is not None else list(column) for name, column in values.items()}
    produced = operator.run_batch(samples, *inputs, **batched_arguments(operator, arrays, len(samples)))
    return _columns(node, produced, len(samples), "run_batch")


def _run_arrays(node: OperatorNode, inputs: Sequence[TensorList], values: Mapping[str, TensorList]) -> list[TensorList]:
    operator = node.operator
    arrays = [column.dense for column in inputs]
    size = len(inputs[0]) if inputs else 0
    keywords = batched_arguments(operator, {name: column.dense for name, column in values.items()}, size)
    return _columns(node, operator.run_arrays(np, *arrays, **keywords), size, "run_arrays")


def _columns(node: OperatorNode, produced: object, size: int, method: str) -> list[TensorList]:
    count = len(node.outputs)
    several = produced if count != 1 and isinstance(produced, (tuple, list)) else (produced,)
    if len(several) != count:
        raise GraphError(
            f"{node.operator.title()}.{method} should give {count} outputs, got {len(several)}.", operator=node.name
        )
    made = []
    for output, column in zip(node.outputs, several, strict=True):
        if not isinstance(column, TensorList):
            column = TensorList(column)
        if len(column) != size:
            raise GraphError(
                f"{node.operator.title()}.{method} should give one sample for each of the {size} it was given, got "
                f"{len(column)}.",
                operator=node.name,
            )
        made.append(column.with_layout(output.spec.layout))
    return made


def _empty(node: OperatorNode) -> list[TensorList]:
    return [TensorList([], layout=output.spec.layout) for output in node.outputs]


def _one_by_one(
    node: OperatorNode,
    samples: Samples,
    inputs: Sequence[TensorList],
    arguments: Mapping[str, TensorList],
    *,
    keep_failures: bool,
) -> Outcome:
    """Runs every sample as a separate batch; then those that did not fail together, if they depend on each other."""
    pieces: list[list[TensorList]] = []
    failures: dict[int, Exception] = {}
    for index in range(len(samples)):
        one = np.array([index])
        outcome = apply(
            node,
            samples.take(one),
            [column.take(one) for column in inputs],
            {name: column.take(one) for name, column in arguments.items()},
            keep_failures=keep_failures,
        )
        if outcome.failures:
            failures[index] = outcome.failures[0]
        else:
            pieces.append(outcome.columns)
    if node.operator.mixes_samples and pieces:
        kept = np.array([index for index in range(len(samples)) if index not in failures])
        return Outcome(_together(node, samples, inputs, arguments, kept), failures)
    return Outcome(_gathered(node, [tuple(column[0] for column in piece) for piece in pieces]), failures)


def _together(
    node: OperatorNode,
    samples: Samples,
    inputs: Sequence[TensorList],
    arguments: Mapping[str, TensorList],
    kept: Array,
) -> list[TensorList]:
    """The result of an operator for the samples at `kept` as one batch, each of which succeeded alone."""
    values = {
        name: _argument_column(node.operator, name, column.take(kept), node) for name, column in arguments.items()
    }
    try:
        return _run_batch(node, samples.take(kept), [column.take(kept) for column in inputs], values)
    except GraphError:
        raise
    except Exception as error:
        raise OperatorError(
            f"operator {node.name!r} failed on {len(kept)} samples of a batch of epoch {samples.epoch} together, and "
            f"on none of them alone: {type(error).__name__}: {without_stop(error)}. It was called at {node.where}. "
            "Make the samples alike before it.",
            operator=node.name,
            where=node.where,
        ) from error


def _run_each(
    node: OperatorNode,
    samples: Samples,
    inputs: Sequence[TensorList],
    values: Mapping[str, TensorList],
    keep_failures: bool,
    pool: ThreadPoolExecutor | None,
    num_threads: int,
) -> Outcome:
    """`run` for every sample, in threads where that helps."""
    operator = node.operator
    size = len(samples)
    function = operator.run if operator.run is not None else _single(operator)
    if function is None:
        raise GraphError(f"{operator.title()} has none of run, run_arrays, run_batch", operator=node.name)
    constants = {
        name: operator.constants[name]
        for name, argument in operator.arguments.items()
        if not argument.constant_only and name in operator.constants
    }
    scalars = {name: operator.arguments[name].kind.rank == 0 for name in values}
    results: list[Any] = [None] * size
    failures: dict[int, Exception] = {}
    batch = _batch_to_fill(node, size) if operator.fills_rows else None

    def run_range(start: int, stop: int) -> None:
        for index in range(start, stop):
            keywords = dict(constants)
            for name, column in values.items():
                keywords[name] = column[index].item() if scalars[name] else column[index]
            try:
                sample = Sample(samples, index, None if batch is None else batch[index])
                results[index] = function(sample, *[column[index] for column in inputs], **keywords)
            except GraphError:
                raise
            except Exception as error:
                if not keep_failures:
                    raise failed(node, samples, index, error) from error
                failures[index] = error

    threads = 1 if operator.holds_gil or pool is None else min(num_threads, size // _LEAST_SAMPLES_PER_THREAD)
    if threads > 1 and pool is not None:
        step = max(_LEAST_SAMPLES_PER_THREAD, math.ceil(size / (4 * threads)))
        futures = [pool.submit(run_range, start, min(size, start + step)) for start in range(0, size, step)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
    else:
        run_range(0, size)
    if batch is not None and not failures and all(one.base is batch for one in results):
        return Outcome([TensorList(batch, layout=node.outputs[0].spec.layout)], {})
    kept = [results[index] for index in range(size) if index not in failures]
    return Outcome(_gathered(node, kept), failures)


def _batch_to_fill(node: OperatorNode, size: int) -> Array | None:
    """Memory for the results of `run`, if its size is known in advance."""
    spec = node.outputs[0].spec
    known = spec.shape is not None and None not in spec.shape and spec.dtype is not None
    return np.empty((size, *spec.shape), spec.dtype) if known else None  # type: ignore[misc]


def _single(operator: Operator) -> Callable[..., object] | None:
    """`run_arrays` for one sample at a time."""
    run_arrays = operator.run_arrays
    if run_arrays is None:
        return None

    def run(sample: Sample, *arrays: Array, **keywords: object) -> object:
        wide: dict[str, object] = {}
        for name, value in keywords.items():
            argument = operator.arguments[name]
            if value is None:
                wide[name] = None
            elif argument.static:
                wide[name] = tuple(value.tolist()) if isinstance(value, np.ndarray) else value
            else:
                wide[name] = np.asarray(value, argument.kind.dtype)[None]
        produced = run_arrays(np, *[array[None] for array in arrays], **wide)
        if isinstance(produced, (tuple, list)):
            return tuple(one[0] for one in produced)
        return produced[0]

    return run


def _gathered(node: OperatorNode, results: Sequence[Any]) -> list[TensorList]:
    """One column per output, from the results of each sample."""
    count = len(node.outputs)
    columns = []
    for index, output in enumerate(node.outputs):
        if count == 1:
            samples = [one[0] if type(one) in (tuple, list) and len(one) == 1 else one for one in results]
        else:
            samples = []
            for one in results:
                if not isinstance(one, (tuple, list)) or len(one) != count:
                    found = len(one) if isinstance(one, (tuple, list)) else 1
                    raise GraphError(
                        f"{node.operator.title()}.run should give {count} outputs, got {found}. It was called at "
                        f"{node.where}.",
                        operator=node.name,
                    )
                samples.append(one[index])
        column = TensorList(samples, layout=output.spec.layout)
        if samples and column[0].ndim == 0:
            column.dense  # noqa: B018 - scalars are held as one array
        columns.append(column)
    return columns
