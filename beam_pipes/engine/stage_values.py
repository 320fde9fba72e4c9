"""The values between stages: what goes into one, joined from several outputs, and what comes out of it, checked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_pipes.engine.graph import Signature, Unit, brief, describe
from beam_pipes.errors import InvalidTransformOutputException, TooManyCombinationsException, UnequalZipException
from beam_pipes.format.messages import as_message_of
from beam_pipes.format.spec import Record

# One input that makes more combinations than this is a mistake in the graph, not data.
MAX_COMBINATIONS = 100_000

NOTHING: Sequence[object] = ()


class Direct(NamedTuple):
    """How the engine calls a stage: `transform` itself, or a function whose results `outputs_of` makes lists of.

    A result of the class `whole` is the one output of the call. If `yields` is a class, each result is an iterable, and
    if all of it is of this class, whose values nobody can change, it is the outputs; else `outputs_of` takes the list.
    """

    call: Callable[[Record], object]
    outputs_of: Callable[[object], list[object]] | None = None
    whole: type | None = None
    yields: type | None = None


def combined(names: tuple[str, ...], lists: tuple[Sequence[object], ...], unit: Unit) -> Sequence[object]:
    """The inputs of a unit that takes a dict, for one record: name → value, from the list of each name.

    Raises `UnequalZipException` or `TooManyCombinationsException` for lists that cannot be joined.
    """
    lengths = [len(values) for values in lists]
    # With either kind of join, a branch without values leaves nothing to combine.
    if not all(lengths):
        return NOTHING
    if unit.join == "zip":
        if len(set(lengths)) > 1:
            found = ", ".join(f"{name!r}: {length}" for name, length in zip(names, lengths, strict=True))
            raise UnequalZipException(
                f"join='zip' needs lists of the same length, got {found}. Make the upstream stages give as many "
                "values, or use join='product'."
            ).about("stage", unit.name)
        return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
    if (count := math.prod(lengths)) > MAX_COMBINATIONS:
        found = " × ".join(f"{length} {name}" for name, length in zip(names, lengths, strict=True))
        raise TooManyCombinationsException(
            f"one input makes {count:,} combinations ({found}), more than the {MAX_COMBINATIONS:,} allowed. Use "
            "DAGPipeline(..., join='zip') to pair values by position."
        ).about("stage", unit.name, count=count)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*lists)]


class Outputs:
    """Checks what `transform` of one stage has returned, if it is not obviously right to the engine.

    Each method raises `InvalidTransformOutputException`, naming what was expected and what was returned.
    """

    def __init__(self, name: str, stage: Any) -> None:
        self._name = name
        self._stage = stage
        self._output_type: Signature = stage.output_type

    def by_name(self, produced: object) -> Mapping[str, list[object]]:
        """A dict with a list for each output."""
        output_type = self._output_type
        assert isinstance(output_type, Mapping)
        if not isinstance(produced, Mapping) or produced.keys() != output_type.keys():
            found = f"the keys {sorted(map(str, produced))}" if isinstance(produced, Mapping) else brief(produced)
            raise InvalidTransformOutputException(
                f"transform should return a dict with the keys {sorted(output_type)}, each a list, got {found}. Return "
                "exactly the keys of output_type; a list may be empty."
            ).about("stage", self._name, expected=describe(output_type))
        for key, values in produced.items():
            if type(values) is not list:
                self.check_list(values, key)
            for one in values:
                if not isinstance(one, output_type[key]):
                    produced = {**produced, key: self.declared(values, output_type[key], key)}
                    break
        return produced

    def check_list(self, produced: object, key: str | None) -> None:
        if not isinstance(produced, list):
            what = "transform" if key is None else f"transform's output {key!r}"
            raise InvalidTransformOutputException(
                f"{what} should be a list, got {brief(produced)}. Return [value] for one output and [] for none."
            ).about("stage", self._name, expected=describe(self._output_type))

    def declared(self, values: list[object], expected: Any, key: str | None) -> list[object]:
        """`values` with our messages converted to TensorFlow's and vice versa, where the declared type requires it."""
        # Both libraries have classes for the same messages, and a stage that parses with TensorFlow returns those.
        made = [one if isinstance(one, expected) else as_message_of(one, expected) for one in values]
        position = next((at for at, one in enumerate(made) if not isinstance(one, expected)), None)
        if position is None:
            return made
        what = f"output {position}" if key is None else f"output {key!r}[{position}]"
        advice = getattr(self._stage, "advice_on_output", None) or (
            f"Return a list of {expected.__name__} from {type(self._stage).__name__}.transform, "
            "or change its output_type."
        )
        raise InvalidTransformOutputException(
            f"{what} should be {expected.__name__}, got {brief(values[position])}. {advice}"
        ).about("stage", self._name, expected=expected, found=type(values[position]))
