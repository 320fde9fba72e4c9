"""From token ids to what metrics compare: decode with the vocabulary, then the task's postprocessor."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from beam_pipes.errors import EvaluationError
from beam_pipes.tasks.features import Feature

Example = Mapping[str, Any]
Postprocessor = Callable[..., Any]


def decode_output(output: Any, feature: Feature) -> Any:
    """Decodes one model output: ids → text, several sequences of ids (top-k) → a list of texts.

    `[72, 105, 1]` → `"Hi"`, `[[72, 105], [72, 111]]` → `["Hi", "Ho"]` with a byte vocabulary. Sequences may differ in
    length. Text is taken to be decoded already.
    """
    if isinstance(output, str | bytes):
        return output
    if depth_of(output) > max(feature.rank, 1):
        return [decode_output(sequence, feature) for sequence in output]
    ids = output.tolist() if hasattr(output, "tolist") else list(output)
    return feature.vocabulary.decode(ids)


def decode_outputs(outputs: Iterable[Any], feature: Feature, where: str) -> list[Any]:
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
) -> list[Any]:
    """The target of every example as text: `{name}_pretokenized` where the task kept it, else the decoded ids."""
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
    decoded: Iterable[Any],
    examples: Iterable[Example],
    postprocessor: Postprocessor | None,
    *,
    is_target: bool,
    where: str,
) -> list[Any]:
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


def depth_of(output: Any) -> int:
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


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
