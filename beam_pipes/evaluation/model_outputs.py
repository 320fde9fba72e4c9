"""Model outputs in the order of the examples.

From token ids to the values that metrics compare: decoding with the vocabulary, then the task's postprocessor.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.errors import EvaluationError
from beam_pipes.format.spec import owned
from beam_pipes.tasks.steps.examples import Example
from beam_pipes.tasks.steps.features import Feature
from beam_pipes.tasks.steps.signatures import Postprocessor


class ModelOutputType(enum.IntEnum):
    """The kinds of output a metric may ask for."""

    PREDICTION = 1
    SCORE = 2
    PREDICTION_WITH_AUX = 3
    SCORE_WITH_INTERMEDIATES = 4

    @classmethod
    def to_str(cls, enm: int) -> str:
        """`ModelOutputType.SCORE` → `"score"`."""
        return cls(enm).name.lower()


ModelOutput = Any  # a list in the order of the examples, or (list, {name: list}) with auxiliary values
#: Auxiliary values by name: one for each example, or a nested mapping.
AuxValues: TypeAlias = Mapping[str, Any]
#: The inferences for loggers: "output", "prediction" and "score" with one entry for each example, "aux_value" with
#: `AuxValues`.
Inferences: TypeAlias = Mapping[str, Any]


def ordered_outputs(returned: ModelOutput, num_examples: int, where: str) -> ModelOutput:
    """Sorts `[(index, output), …]` by index, and auxiliary values with it.

    `[(1, [5]), (0, [7, 8])]` → `[[7, 8], [5]]`; `([(1, [5]), (0, [7, 8])], {"scores": [0.5, 0.7]})` →
    `([[7, 8], [5]], {"scores": [0.7, 0.5]})`. Entries with a negative index are padding and are dropped. An example
    predicted by several hosts counts once if they agree.

    Raises `EvaluationError`, beginning with `where`, when entries are not pairs, an index is missing, unknown or
    answered twice in different ways, or there is not one auxiliary value per example.
    """
    auxiliary: AuxValues | Sequence[object] | None = None
    pairs = returned
    if isinstance(returned, tuple):
        if len(returned) != 2:
            raise EvaluationError(
                f"{where}: expected [(index, output), …] or a pair of that and auxiliary values, got a tuple of "
                f"{len(returned)}",
                where=where,
            )
        pairs, auxiliary = returned
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes | Mapping):
        raise EvaluationError(
            f"{where}: expected [(index, output), …], got {brief(pairs)}. Return one pair for each example",
            where=where,
        )
    pairs = [owned(pair) for pair in pairs]  # one by one: a generator may reuse one array
    places = _places(pairs, num_examples, where)
    outputs = [pairs[place][1] for place in places]
    if auxiliary is None:
        return outputs
    return outputs, _reordered(auxiliary, places, len(pairs), where, "auxiliary values")


def merge_hosts(returned: Sequence[ModelOutput]) -> ModelOutput:
    """Joins the outputs of several hosts for their shares of one dataset into the output of a single host.

    `[[(0, [5])], [(1, [7])]]` → `[(0, [5]), (1, [7])]`; auxiliary values are joined name by name. Call it after the
    hosts' outputs were gathered, and return the result from the model function on every host.
    """
    if not any(isinstance(part, tuple) for part in returned):
        return [pair for part in returned for pair in part]
    pairs = [pair for part, _ in returned for pair in part]
    return pairs, _joined([auxiliary for _, auxiliary in returned])


def as_array(outputs: ModelOutput) -> ModelOutput:
    """One array if all outputs have one shape; otherwise (ragged) the list unchanged. Mappings entry by entry."""

    def array(values: ModelOutput) -> ModelOutput:
        try:
            return np.array(values)
        except ValueError:
            return values

    return mapped(array, outputs)


def mapped(function: Callable[..., ModelOutput], *outputs: ModelOutput) -> Any:
    """`function` of the arrays and lists in a model output, or in several of one structure.

    `mapped(len, ([a, b], {"scores": [c]}))` → `(2, {"scores": 1})`. Tuples and mappings are the structure.
    """
    first = outputs[0]
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(*outputs, strict=True))
    if not isinstance(first, Mapping):
        return function(*outputs)
    for other in outputs:
        if other.keys() != first.keys():
            raise EvaluationError(
                f"metrics with different auxiliary values cannot be merged: {sorted(first)} and {sorted(other)}"
            )
    return {name: mapped(function, *(output[name] for output in outputs)) for name in first}


def _places(pairs: list[tuple[int, object]], num_examples: int, where: str) -> list[int]:
    first: dict[int, int] = {}
    for place, pair in enumerate(pairs):
        try:
            index, output = pair
            index = int(index)
        except (TypeError, ValueError):
            raise EvaluationError(
                f"{where}: Expected a sequence of length-2 tuples with (index, score) format or (index, tokens); "
                f"entry {place} is {brief(pair)}",
                where=where,
            ) from None
        if index < 0:
            continue
        if index >= num_examples:
            raise EvaluationError(
                f"{where}: got an output for example {index}, but there are {num_examples}; return the indices that "
                "the dataset was enumerated with",
                where=where,
                index=index,
            )
        if index in first and repr(_plain(pairs[first[index]][1])) != repr(_plain(output)):
            raise EvaluationError(
                f"{where}: example {index} was answered twice, with {brief(pairs[first[index]][1])} and "
                f"{brief(output)}; hosts that share an example should agree, or mark one answer with index -1",
                where=where,
                index=index,
            )
        first.setdefault(index, place)
    missing = [index for index in range(num_examples) if index not in first]
    if missing:
        raise EvaluationError(
            f"{where}: outputs are missing for {len(missing)} of {num_examples} examples, first example {missing[0]}. "
            "Does the model function drop the last partial batch?",
            where=where,
            missing=missing,
        )
    return [first[index] for index in range(num_examples)]


def _reordered(values: AuxValues | Sequence[object], places: list[int], count: int, where: str, name: str) -> object:
    if isinstance(values, Mapping):
        return {key: _reordered(value, places, count, where, f"{name}[{key!r}]") for key, value in values.items()}
    try:
        found = len(values)
    except TypeError:
        raise EvaluationError(
            f"{where}: {name} should hold one value for each of the {count} outputs, got {brief(values)}", where=where
        ) from None
    if found != count:
        raise EvaluationError(
            f"{where}: {name} should hold one value for each of the {count} outputs, got {found}", where=where
        )
    return [values[place] for place in places]


def _joined(auxiliary: list[ModelOutput]) -> object:
    if isinstance(auxiliary[0], Mapping):
        return {name: _joined([part[name] for part in auxiliary]) for name in auxiliary[0]}
    return [value for part in auxiliary for value in part]


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def decode_output(output: ModelOutput, feature: Feature) -> object:
    """Decodes one model output: ids → text, several sequences of ids (top-k) → a list of texts.

    `[72, 105, 1]` → `"Hi"`, `[[72, 105], [72, 111]]` → `["Hi", "Ho"]` with a byte vocabulary. Sequences may differ in
    length. Text is assumed to be decoded already.
    """
    if isinstance(output, str | bytes):
        return output
    if depth_of(output) > max(feature.rank, 1):
        return [decode_output(sequence, feature) for sequence in output]
    ids = output.tolist() if hasattr(output, "tolist") else list(output)
    return feature.vocabulary.decode(ids)


def decode_outputs(outputs: Iterable[object], feature: Feature, where: str) -> list[object]:
    """`decode_output` of each; raises `EvaluationError` naming the example whose output cannot be decoded."""
    decoded = []
    for index, output in enumerate(outputs):
        try:
            decoded.append(decode_output(output, feature))
        except Exception as error:
            raise EvaluationError(
                f"{where}: the output for example {index} cannot be decoded by {feature.vocabulary!r}: "
                f"{type(error).__name__}: {error}",
                index=index,
            ) from error
    return decoded


def decoded_targets(
    examples: Iterable[Example], features: Mapping[str, Feature], target_field_name: str, where: str
) -> list[object]:
    """The target of every example as text: `{name}_pretokenized` if the task kept it, else the decoded ids."""
    pretokenized = f"{target_field_name}_pretokenized"
    targets = []
    for index, example in enumerate(examples):
        if pretokenized in example:
            target = _scalar(example[pretokenized])
        elif target_field_name not in features or target_field_name not in example:
            raise EvaluationError(
                f"{where}: the targets are expected in {target_field_name!r}, but example {index} has "
                f"{sorted(example)} and the task's features are {sorted(features)}. Pass target_field_name.",
                target_field_name=target_field_name,
            )
        else:
            target = decode_output(example[target_field_name], features[target_field_name])
        targets.append(target.decode("utf-8") if isinstance(target, bytes) else target)
    return targets


def postprocess_all(
    decoded: Iterable[object],
    examples: Iterable[Example],
    postprocessor: Postprocessor | None,
    *,
    is_target: bool,
    where: str,
) -> list[object]:
    """Calls `postprocessor(decoded, example=example, is_target=is_target)` on each; without one, nothing changes.

    A postprocessor that does not take `example` or `is_target` is called without. Raises `EvaluationError` naming the
    example on which it failed.
    """
    if postprocessor is None:
        return list(decoded)
    accepted = _accepted_keywords(postprocessor)
    processed = []
    for index, (value, example) in enumerate(zip(decoded, examples, strict=True)):
        keywords = {"example": example, "is_target": is_target}
        try:
            processed.append(postprocessor(value, **{name: keywords[name] for name in accepted}))
        except Exception as error:
            raise EvaluationError(
                f"{where}: the postprocessor failed on the {'target' if is_target else 'prediction'} of example "
                f"{index}: {type(error).__name__}: {error}",
                index=index,
            ) from error
    return processed


def depth_of(output: object) -> int:
    """How deeply a model output is nested: ids 1, several sequences of ids 2; the first non-empty entry decides."""
    if isinstance(output, np.ndarray) and output.dtype != object:
        return output.ndim
    if hasattr(output, "shape"):
        return len(output.shape)
    if isinstance(output, list | tuple | np.ndarray):
        return 1 + max((depth_of(item) for item in output), default=0)
    return 0


def _accepted_keywords(postprocessor: Postprocessor) -> list[str]:
    try:
        parameters = inspect.signature(postprocessor).parameters
    except ValueError:  # a builtin such as str.strip
        return []
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ["example", "is_target"]
    return [name for name in ("example", "is_target") if name in parameters]


def _scalar(value: object) -> object:
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
