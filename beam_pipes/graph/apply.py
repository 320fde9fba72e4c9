"""Runs one operator over the samples of a batch on the host: the only place where operators' methods are called."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from beam_pipes.errors import GraphError, OperatorError, without_stop
from beam_pipes.graph.data_node import DataNode, OperatorNode
from beam_pipes.graph.operator import Argument, Operator
from beam_pipes.graph.samples import Sample, Samples
from beam_pipes.graph.tensors import Array, TensorList

Made = TypeVar("Made")

# Minimum number of samples per thread: handing work over costs about 20 µs.
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
    if operator.run_batch is None and not (operator.run_arrays is not None and _stacked(operator, inputs, values)):
        return _run_each(node, samples, inputs, values, keep_failures, pool, num_threads)

    def run(some: Array) -> list[TensorList]:
        columns = [column.take(some) for column in inputs]
        return _run_batch(node, samples.take(some), columns, _taken(values, some))

    try:
        return Outcome(_run_batch(node, samples, inputs, values), {})
    except GraphError:
        raise
    except Exception as error:
        pieces, failures = one_by_one(node, samples, run, error, keep_failures=keep_failures)
    if not operator.mixes_samples or not pieces:
        return Outcome(joined(node, pieces), failures)
    kept = np.array([index for index in range(len(samples)) if index not in failures])
    try:
        return Outcome(run(kept), failures)
    except GraphError:
        raise
    except Exception as error:
        raise _failed_together(node, samples.take(kept), error) from error


def one_by_one(
    node: OperatorNode,
    samples: Samples,
    run: Callable[[Array], Made],
    error: Exception,
    *,
    keep_failures: bool = False,
) -> tuple[list[Made], dict[int, Exception]]:
    """The results of `run([i])` for every sample, after the whole batch failed with `error`; and the failures.

    One bad sample must not cost the others, and must be named: raises `OperatorError` for the first one, unless
    failures are kept.
    """
    pieces: list[Made] = []
    failures: dict[int, Exception] = {}
    for index in range(len(samples)):
        try:
            if len(samples) == 1:
                raise error
            pieces.append(run(np.array([index])))
        except GraphError:
            raise
        except Exception as own:
            if not keep_failures:
                raise failed(node, samples, index, own) from own
            failures[index] = own
    return pieces, failures


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


def _failed_together(node: OperatorNode, samples: Samples, error: Exception) -> OperatorError:
    """The error for samples that fail as one batch although each succeeds alone."""
    return OperatorError(
        f"operator {node.name!r} failed on {len(samples)} samples of a batch of epoch {samples.epoch} together, and "
        f"on none of them alone: {type(error).__name__}: {without_stop(error)}. It was called at {node.where}. "
        "Make the samples alike before it.",
        operator=node.name,
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
        f"operator {node.name!r}: the argument {argument.name!r} should be {argument.words} for each sample "
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
        _check_limits(operator, columns)
        made: dict[str, Array] = operator.host_draws(some, shapes, **_batched(operator, columns, len(some)))
        return made

    try:
        return drawn(samples, values)
    except GraphError:
        raise
    except Exception as error:
        one_by_one(node, samples, lambda one: drawn(samples.take(one), _taken(values, one)), error)
        raise _failed_together(node, samples, error) from error


def _check_limits(operator: Operator, values: Mapping[str, TensorList]) -> None:
    """Raises `ValueError` if a value of an argument is outside the limits that the operator declares."""
    for name, column in values.items():
        argument = operator.arguments[name]
        if argument.is_limited:
            for one in column if column.dense is None else [column.dense]:
                argument.check_values(one)


def _taken(columns: Mapping[str, TensorList], indices: Array) -> dict[str, TensorList]:
    return {name: column.take(indices) for name, column in columns.items()}


def batched_arguments(operator: Operator, values: Mapping[str, object], size: int) -> dict[str, object]:
    """The keywords of `run_batch` and `run_arrays`: arrays (n,) or (n, k); a Python value if static."""
    keywords: dict[str, object] = {}
    for name, argument in operator.arguments.items():
        if argument.constant_only:
            continue
        if name in values:
            keywords[name] = values[name]
            continue
        array = _wide(argument, operator.constants[name])
        keywords[name] = np.broadcast_to(array, (size, *array.shape[1:])) if isinstance(array, np.ndarray) else array
    return keywords


def _wide(argument: Argument, value: object) -> object:
    """The argument of one sample as `run_arrays` takes it for a batch of one: (1,) or (1, k); unchanged if static."""
    if value is None:
        return None
    if argument.static:
        return tuple(value.tolist()) if isinstance(value, np.ndarray) else value
    return np.asarray(value, argument.kind.dtype)[None]


def _batched(operator: Operator, columns: Mapping[str, TensorList], size: int) -> dict[str, object]:
    """`batched_arguments` for columns: a list of arrays where samples differ in shape."""
    arrays = {name: column.dense if column.dense is not None else list(column) for name, column in columns.items()}
    return batched_arguments(operator, arrays, size)


def _run_batch(
    node: OperatorNode, samples: Samples, inputs: Sequence[TensorList], values: Mapping[str, TensorList]
) -> list[TensorList]:
    """`run_batch` over all samples; `run_arrays` if the operator has no `run_batch`."""
    operator, size = node.operator, len(samples)
    _check_limits(operator, values)
    keywords = _batched(operator, values, size)
    if operator.run_batch is not None:
        return _columns(node, operator.run_batch(samples, *inputs, **keywords), size, "run_batch")
    produced = operator.run_arrays(np, *[column.dense for column in inputs], **keywords)
    return _columns(node, produced, size, "run_arrays")


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
    limited: list[Argument] = []
    try:
        _check_limits(operator, values)
    except ValueError:
        limited = [operator.arguments[name] for name in values]
    results: list[Any] = [None] * size
    failures: dict[int, Exception] = {}
    batch = _batch_to_fill(node, size) if operator.fills_rows else None

    def run_range(start: int, stop: int) -> None:
        for index in range(start, stop):
            keywords = dict(constants)
            for name, column in values.items():
                keywords[name] = column[index].item() if scalars[name] else column[index]
            try:
                for argument in limited:
                    argument.check_values(keywords[argument.name])
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
        wide = {name: _wide(operator.arguments[name], value) for name, value in keywords.items()}
        produced = run_arrays(np, *[array[None] for array in arrays], **wide)
        if isinstance(produced, (tuple, list)):
            return tuple(one[0] for one in produced)
        return produced[0]

    return run


def _gathered(node: OperatorNode, results: Sequence[Any]) -> list[TensorList]:
    """One column per output, from the results of each sample."""
    count = len(node.outputs)
    if count == 1:
        results = [one if type(one) in (tuple, list) and len(one) == 1 else (one,) for one in results]
    for one in results:
        found = len(one) if isinstance(one, (tuple, list)) else 1
        if found != count:
            raise GraphError(
                f"{node.operator.title()}.run should give {count} outputs, got {found}. It was called at {node.where}.",
                operator=node.name,
            )
    return [_column([one[index] for one in results], output) for index, output in enumerate(node.outputs)]


def joined(node: OperatorNode, pieces: Sequence[Sequence[TensorList]]) -> list[TensorList]:
    """One column per output, from one-sample columns; an output that is not read has none."""
    return [
        _column([piece[index][0] for piece in pieces if len(piece[index])], output)
        for index, output in enumerate(node.outputs)
    ]


def _column(samples: Sequence[Array], output: DataNode) -> TensorList:
    column = TensorList(samples, layout=output.spec.layout)
    if samples and column[0].ndim == 0:
        column.dense  # noqa: B018 - scalars are held as one array
    return column
