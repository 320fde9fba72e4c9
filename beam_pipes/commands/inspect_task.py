"""`inspect_task`: a task's examples after every step (`trace_task`), after the feature converter, and decoded."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.checks import known
from beam_pipes.errors import BeamPipesError, UnknownNameError
from beam_pipes.extras import require
from beam_pipes.tasks import Task
from beam_pipes.tasks.providers.task_cache import part_name
from beam_pipes.tasks.steps.examples import Example, RawExample, normalised
from beam_pipes.tasks.steps.features import SequenceLength
from beam_pipes.tasks.steps.seeds import fold, map_seed_manager
from beam_pipes.tasks.steps.sequences import trim_features
from beam_pipes.tasks.steps.step import Step, run_over_examples
from beam_pipes.tasks.vocabularies.vocabulary import TextLike
from beam_pipes.transforms.converters import FeatureConverter, converter_named
from beam_pipes.transforms.converters.validation import Length

RAW, CUT, TRIMMED = "raw", "cached", "trimmed"
DECODED = "decoded"

# Longer arrays are shown by their first elements.
_ELEMENTS_SHOWN = 24
_CHARS_SHOWN = 400


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The stages of a task in order, the last one decoded."""

    task: str
    split: str
    stages: Sequence[TracedStage]

    def to_html(self) -> str:
        """One self-contained page, without scripts or network. Needs jinja2 (extra `cli`)."""
        jinja2 = require("jinja2", purpose="inspection as HTML")
        template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)
        stages = [
            {
                "title": stage.title,
                "error": stage.error,
                "examples": [list(feature_lines(example)) for example in stage.examples],
            }
            for stage in self.stages
        ]
        page: str = template.render(task=self.task, split=self.split, stages=stages)
        return page


def inspect_task(
    task: Task,
    split: str = "train",
    *,
    num_examples: int = 3,
    sequence_length: Mapping[str, Length] | None = None,
    converter: str | FeatureConverter | None = "auto",
    seed: int = 0,
) -> Inspection:
    """Follows the first raw examples of a split through the task, a feature converter and back to text.

    Args:
        task: the task.
        split: name of the split.
        num_examples: how many raw examples to follow.
        sequence_length: feature → longest length; None takes the longest of these examples.
        converter: a converter or its name; "auto" takes `enc_dec` for inputs and targets, `lm` for targets alone, and
            none for other features; None for none. Rows are not packed.
        seed: seed of random steps.

    Raises:
        UnknownNameError: there is no such split, or no such converter.
    """
    stages = trace_task(task, split, num_examples=num_examples, sequence_length=sequence_length, seed=seed)
    last = stages[-1]
    if last.error is not None:
        return Inspection(task.name, split, stages)
    if converter == "auto":
        names = set(task.output_features)
        converter = "enc_dec" if names == {"inputs", "targets"} else "lm" if names == {"targets"} else None
    made = converter_named(converter)(pack=False) if isinstance(converter, str) else converter
    if made is not None and last.examples:
        title = f"converter: {type(made).__name__}"
        try:
            examples: list[Example] = [normalised(example, task.output_features) for example in last.examples]
            lengths = dict(sequence_length or _longest(examples, made.TASK_FEATURES))
            stages.append(TracedStage(title, list(made.convert_examples(examples, lengths))))
        except BeamPipesError as error:
            stages.append(TracedStage(title, [], str(error)))
            return Inspection(task.name, split, stages)
    stages.append(TracedStage(DECODED, [_decoded(task, example) for example in stages[-1].examples]))
    return Inspection(task.name, split, stages)


def _longest(examples: Sequence[Example], features: Iterable[str]) -> dict[str, Length]:
    return {name: max(1, *(len(example.get(name, ())) for example in examples)) for name in features}


def _decoded(task: Task, example: RawExample) -> RawExample:
    """The features with a vocabulary, as text; model features use the vocabulary of `inputs` or `targets`."""
    if not isinstance(example, Mapping):
        return example
    texts: dict[str, TextLike] = {}
    for name, value in example.items():
        feature = task.output_features.get(name)
        if feature is None and name.endswith("_tokens"):
            feature = task.output_features.get("inputs" if name.startswith("encoder") else "targets")
        is_ids = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"
        if feature is not None and is_ids:
            texts[name] = feature.vocabulary.decode(value.tolist())
    return texts


def feature_lines(example: RawExample) -> Iterator[tuple[str, str, str]]:
    """(feature, type, value) of each feature, shortened: `("targets", "int32[5]", "3 9 4 8 1")`."""
    if not isinstance(example, Mapping):
        example = {"": example}
    for name, value in example.items():
        yield str(name), *_described(value)


def _described(value: object) -> tuple[str, str]:
    if isinstance(value, (bytes, str)):
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        kind = "bytes" if isinstance(value, bytes) else "text"
        return f"{kind}[{len(value)}]", text if len(text) <= _CHARS_SHOWN else text[: _CHARS_SHOWN - 1] + "…"
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        shape = f"[{', '.join(map(str, array.shape))}]" if array.ndim else ""
        flat = array.reshape(-1)
        shown = " ".join(map(str, flat[:_ELEMENTS_SHOWN].tolist()))
        return f"{array.dtype}{shape}", shown + (" …" if flat.size > _ELEMENTS_SHOWN else "")
    text = repr(value)
    return type(value).__name__, text if len(text) <= _CHARS_SHOWN else text[: _CHARS_SHOWN - 1] + "…"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{ task }}, {{ split }}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #1d2330; }
h2 { font-size: 1.05em; margin: 1.6em 0 .4em; border-bottom: 1px solid #c9cfdb; }
h2 small { color: #687287; font-weight: normal; }
h2.cached { color: #0b6b57; }
table { border-collapse: collapse; margin: .3em 0 .8em; width: 100%; }
td { border: 1px solid #dfe3ea; padding: .15em .5em; vertical-align: top; }
td.name { width: 14em; } td.type { width: 9em; color: #687287; }
td.value { font-family: ui-monospace, monospace; white-space: pre-wrap; word-break: break-word; }
p.error { color: #a11228; font-family: ui-monospace, monospace; white-space: pre-wrap; }
</style>
</head>
<body>
<h1>{{ task }} <small>{{ split }}</small></h1>
{% for stage in stages %}
<h2 class="{{ stage.title }}">{{ stage.title }} <small>{{ stage.examples | length }} examples</small></h2>
{% if stage.error %}
<p class="error">{{ stage.error }}</p>
{% endif %}
{% for example in stage.examples %}
<table>
{% for name, type, value in example %}
<tr><td class="name">{{ name }}</td><td class="type">{{ type }}</td><td class="value">{{ value }}</td></tr>
{% endfor %}
</table>
{% endfor %}
{% endfor %}
</body>
</html>
"""


@dataclasses.dataclass(frozen=True)
class TracedStage:
    """The examples after one step. If there are none, `error` says why, and later steps are not run."""

    title: str
    examples: Sequence[RawExample]
    error: str | None = None


def trace_task(
    task: Task,
    split: str = "train",
    *,
    num_examples: int = 3,
    sequence_length: SequenceLength | None = None,
    seed: int = 0,
) -> list[TracedStage]:
    """Runs the first raw examples of a split through each step of a task, one step after the other.

    `[raw: 3 examples, step 0: split_sentences: 7, step 1: tokenize: 7, cached: 7, step 0: append_eos: 7]`. A step sees
    only these examples, so one that joins or packs examples gives fewer than it would for a whole split. Draws before
    the cut are those of a build with the same seed.

    Args:
        task: the task.
        split: name of the split.
        num_examples: how many raw examples to follow.
        sequence_length: feature → longest length, injected into the steps after the cut; features are cut to it.
        seed: seed of random steps.

    Raises:
        UnknownNameError: the task has no such split.
    """
    known(split, among=task.splits, what="split", where=f"task {task.name!r}", error=UnknownNameError)
    shards = (example for shard in task.source.list_shards(split) for example in task.source.read_shard(split, shard))
    examples: list[RawExample] = list(itertools.islice(shards, num_examples))
    stages = [TracedStage(RAW, list(examples))]

    def follow(title: str, step: Callable[[], Iterable[RawExample]]) -> bool:
        try:
            examples[:] = list(step())
        except Exception as error:
            stages.append(TracedStage(title, [], f"{type(error).__name__}: {error}"))
            return False
        stages.append(TracedStage(title, list(examples)))
        return True

    def one(step: Step, length: SequenceLength | None) -> Callable[[], Iterable[RawExample]]:
        return lambda: run_over_examples([step], list(examples), task.step_context(length))

    for number, step in enumerate(task.offline_steps()):
        with map_seed_manager(seed, keyed_by="content", steps_begun=number):
            if not follow(part_name(number, step), one(step, None)):
                return stages
    if task.supports_caching:
        stages.append(TracedStage(CUT, list(examples)))
    first = len(task.offline_steps())
    for number, step in enumerate(task.online_steps()):
        with map_seed_manager(fold(seed, task.name), steps_begun=number):
            if not follow(part_name(first + number, step), one(step, sequence_length)):
                return stages
    if sequence_length:
        features = task.output_features
        follow(TRIMMED, lambda: [trim_features(normalised(e, features), sequence_length, features) for e in examples])
    return stages
