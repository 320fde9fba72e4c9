"""Python steps of a task as stages of a build.

`CachedExample`: the last stage of a task's build, which checks and counts what is cached.

`TaskSteps`: the Python steps of a task as the graph of a build.

`SplitSteps`: the cached examples of one split of a task, as the input of an analysis.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

import numpy as np

from beam_pipes.engine.execute import OnError
from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.engine.records import current_context
from beam_pipes.engine.statistics import Counter, Maximum, Statistic
from beam_pipes.errors import TaskError
from beam_pipes.tasks.caches.offline import TaskReference
from beam_pipes.tasks.providers.task_cache import part_name, plain_preprocessor
from beam_pipes.tasks.providers.task_examples import as_mapping
from beam_pipes.tasks.sources.sidecars import PRETOKENIZED, STAGE, statistic_name
from beam_pipes.tasks.steps.examples import ExampleValue
from beam_pipes.tasks.steps.features import Feature
from beam_pipes.tasks.steps.ragged import Ragged, num_ragged, stored
from beam_pipes.tasks.steps.seeds import map_seed_manager
from beam_pipes.tasks.steps.step import BoundStep, Step, num_streamed_steps
from beam_pipes.typed import Pipeline


class StepUnit:
    """The offline step of a given number, in its Python form: one example → a list of examples.

    Draws are keyed by the build's seed, the number of the step and the content of the example, as they are when the
    task is read uncached.
    """

    input_type = object
    output_type = object

    def __init__(self, reference: TaskReference, number: int, *, seed: int) -> None:
        self._reference = reference
        self._number = number
        self._seed = seed
        self.name = self.step.name

    @property
    def step(self) -> Step:
        return self._reference.get().offline_steps()[self._number]

    @property
    def version(self) -> object:
        return getattr(self.step.preprocessor, "version", None)

    def fingerprint_config(self) -> dict[str, object]:
        return {"preprocessor": plain_preprocessor(self.step.preprocessor)}

    @functools.cached_property
    def _apply(self) -> BoundStep:
        with map_seed_manager(self._seed, keyed_by="content", steps_begun=self._number):
            return self.step.bind(self._reference.get().step_context())

    def transform(self, example: object) -> list[object]:
        try:
            return list(self._apply(example, 0))
        except TaskError as error:
            # The engine adds step and record to errors; it should get the step's own exception.
            raise (error.__cause__ if error.step == self.name and error.__cause__ is not None else error) from None

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_apply"}


class FunctionUnit(StepUnit):
    """A step that is a function."""

    def transform_batch(self, examples: list[object]) -> list[list[object]]:
        apply = self._apply
        return [list(apply(example, 0)) for example in examples]


class PipelineUnit(StepUnit):
    """A step that is a typed pipeline; its counts and drop reasons are passed on."""

    @property
    def on_error(self) -> OnError | None:
        return getattr(self.step.preprocessor, "on_error", None)

    @property
    def stands_for(self) -> object:
        """The pipeline, shared by the tasks of a registry: threads take turns."""
        return self.step.preprocessor

    def transform(self, example: object) -> list[object]:
        made = super().transform(example)
        pipeline, context = self.step.preprocessor, current_context()
        if context is not None and isinstance(pipeline, Pipeline):
            left = pipeline.left_directly()
            context.left.update({what: left[what] for what in ("_stats", "_drops") if what in left})
        return made


def step_unit(reference: TaskReference, number: int, *, seed: int) -> StepUnit:
    """The offline step of a given number as a stage."""
    is_pipeline = reference.get().offline_steps()[number].is_pipeline
    return (PipelineUnit if is_pipeline else FunctionUnit)(reference, number, seed=seed)


class CachedExample:
    """Checks that an example is a dict of features, and counts for each output feature

    - `<feature>_tokens`: entries that are neither EOS nor padding, of features of integers,
    - `<feature>_max_tokens`: their maximum in one example,
    - `<feature>_chars`: code points of the text in `<feature>_pretokenized`, or in the feature itself if it is text;
      with `count_chars` and neither of these, of the decoded ids.

    Counting works on batches and takes about a microsecond per example.
    """

    name = STAGE
    input_type = object
    output_type = dict

    def __init__(self, reference: TaskReference, *, count_chars: bool = False) -> None:
        self._reference = reference
        self._count_chars = count_chars

    def fingerprint_config(self) -> dict[str, object]:
        return {"count_chars": self._count_chars}

    def transform(self, example: object) -> list[dict[str, ExampleValue]]:
        return self.transform_batch([example])[0]

    def transform_batch(self, examples: list[object]) -> list[list[dict[str, ExampleValue]]]:
        task = self._reference.get()
        cached = [as_mapping(task, example) for example in examples]
        if Ragged in map(type, cached[0].values()):  # in all of them: their types are those of tensors
            cached = list(map(stored, cached))
        context = current_context()
        if context is not None:
            split = context.record_id_of(0).partition("/")[0]  # a source shard belongs to one split
            context.left["_stats"] = self._statistics(task.output_features, cached, split)
        return [[example] for example in cached]

    def _statistics(
        self, features: Mapping[str, Feature], examples: Sequence[Mapping[str, ExampleValue]], split: str
    ) -> list[Statistic]:
        counted: list[Statistic] = []
        for name, feature in features.items():
            values = [example[name] for example in examples if name in example]
            if values and num_ragged(name, examples[0]):  # not counted, as in SeqIO
                continue
            arrays: Sequence[np.ndarray] = values if is_integers(values) else _as_int64(values)
            if arrays:
                tokens = count_tokens(arrays, _special_ids(feature))
                counted.append(Counter(statistic_name(split, f"{name}_tokens"), int(tokens.sum())))
                counted.append(Maximum(statistic_name(split, f"{name}_max_tokens"), int(tokens.max())))
            found = (example.get(name + PRETOKENIZED, example.get(name)) for example in examples)
            texts = [text for text in found if isinstance(text, bytes)]
            if texts:
                counted.append(Counter(statistic_name(split, f"{name}_chars"), count_chars(texts)))
            elif self._count_chars and arrays and feature.rank == 1:
                decoded = sum(len(str(feature.vocabulary.decode(array.tolist()))) for array in arrays)
                counted.append(Counter(statistic_name(split, f"{name}_chars"), decoded))
        return counted


def is_integers(values: Sequence[object]) -> TypeGuard[Sequence[np.ndarray]]:
    """Whether all values are arrays of integers of one dtype."""
    if set(map(type, values)) != {np.ndarray}:
        return False
    dtypes = {value.dtype for value in values if isinstance(value, np.ndarray)}
    return len(dtypes) == 1 and dtypes.pop().kind in "iu"


def _as_int64(values: Sequence[object]) -> list[np.ndarray]:
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind in "iu"]
    return [array.astype(np.int64) for array in arrays]


def count_tokens(arrays: Sequence[np.ndarray], special_ids: Iterable[int]) -> np.ndarray:
    """For each array the number of entries that are not in `special_ids`: `[[5, 1], [0, 7, 8]]`, `{0, 1}` → `[1, 2]`.

    All arrays are integers of one dtype.
    """
    sizes = np.fromiter((array.size for array in arrays), np.int64, len(arrays))
    try:
        flat = np.frombuffer(b"".join(arrays), arrays[0].dtype)  # type: ignore[arg-type]  # six times as fast as below
    except (BufferError, ValueError):  # not contiguous
        flat = np.concatenate([array.reshape(-1) for array in arrays])
    special = sorted(set(special_ids))
    if special == list(range(len(special))):  # padding 0 and EOS 1, mostly: one comparison
        kept = flat.view(f"u{flat.itemsize}") >= len(special)
    else:
        kept = np.isin(flat, special, invert=True)
    if kept.all():
        return sizes
    totals = np.concatenate([[0], np.cumsum(kept)])
    ends = np.cumsum(sizes)
    counts: np.ndarray = totals[ends] - totals[ends - sizes]
    return counts


def count_chars(texts: Iterable[bytes]) -> int:
    """Code points of texts in UTF-8: all bytes but continuations."""
    data = np.frombuffer(b"".join(texts), np.int8)
    return int(np.count_nonzero(data >= -64))


def _special_ids(feature: Feature) -> list[int]:
    vocabulary = feature.vocabulary
    return [int(i) for i in (vocabulary.eos_id, vocabulary.pad_id) if isinstance(i, (int, np.integer))]


class TaskSteps:
    """`step 2: tokenize → step 3: append_eos → example`, the steps after the last function of a dataset.

    Every split is an output; a source shard has files only for its own split.
    """

    def __init__(self, reference: TaskReference, *, seed: int = 0, count_chars: bool = False) -> None:
        self._reference = reference
        self._seed = seed
        self._count_chars = count_chars

    @property
    def name(self) -> str:
        return self._reference.name

    @property
    def input_type(self) -> type:
        return object

    @property
    def output_type(self) -> dict[str, type]:
        return dict.fromkeys(self._reference.get().splits, dict)

    def transform(self, example: object) -> dict[str, list[object]]:
        """One raw example → split → the split's examples of it, as in every graph; builds use the stages."""
        from beam_pipes.engine.execute import GraphRunner
        from beam_pipes.engine.records import Batch, OneRecord

        batch = Batch(OneRecord(example, lambda: f"{next(iter(self.graph.outputs))}@0"))
        runner = GraphRunner(self.graph)
        runner.run(batch)
        return {split: list(column[0]) for split, column in runner.outputs(batch).items()}

    @functools.cached_property
    def graph(self) -> Graph:
        task = self._reference.get()
        steps = task.offline_steps()
        units: list[Unit] = []
        last = Ref("", None)
        for number in range(num_streamed_steps(steps), len(steps)):
            stage = step_unit(self._reference, number, seed=self._seed)
            units.append(Unit(name=part_name(number, steps[number]), stage=stage, inputs=last))
            last = Ref(units[-1].name, None)
        example = CachedExample(self._reference, count_chars=self._count_chars)
        units.append(Unit(name=example.name, stage=example, inputs=last))
        return Graph(
            name=self.name,
            input_type=object,
            units=tuple(units),
            outputs=dict.fromkeys(task.splits, Ref(example.name, None)),
            output_type=self.output_type,
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "graph"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSplit(Pipeline):
    """Records of one split, and nothing for others: their ids begin with it, `train/part-1.txt@17`."""

    input_type = output_type = object

    split: str

    def transform(self, example: object) -> list[object]:
        context = current_context()
        assert context is not None
        return [example] if context.record_id.startswith(f"{self.split}/") else self.drop("of another split")


class SplitSteps(TaskSteps):
    """`of split → step 2: tokenize → example`: `TaskSteps` for the records of one split."""

    def __init__(self, reference: TaskReference, *, split: str, seed: int = 0) -> None:
        super().__init__(reference, seed=seed)
        self._split = split

    @property
    def output_type(self) -> dict[str, type]:
        return {self._split: dict}

    @functools.cached_property
    def graph(self) -> Graph:
        whole, first = super().graph, OfSplit(split=self._split)
        start, all_records = Ref(first.name, None), Ref("", None)
        units = [
            dataclasses.replace(unit, inputs=start) if unit.inputs == all_records else unit for unit in whole.units
        ]
        return dataclasses.replace(
            whole,
            units=(Unit(name=first.name, stage=first, inputs=all_records), *units),
            outputs={self._split: whole.outputs[self._split]},
            output_type=self.output_type,
        )
