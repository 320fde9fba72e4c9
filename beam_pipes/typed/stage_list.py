"""A list of stages as a graph, as `declare` and `build` make it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from beam_pipes.engine.graph import Graph, Ref, Step, Unit, brief, describe, graph_of, is_beam_transform
from beam_pipes.engine.records import current_context
from beam_pipes.errors import DeclarationError, DuplicateNameException, TypeMismatchException
from beam_pipes.typed.annotated import Classes, describe_classes, single_class
from beam_pipes.typed.dag import DAGPipeline
from beam_pipes.typed.function_stage import FunctionStage, as_stage, is_example_by_fields
from beam_pipes.typed.pipeline import Pipeline, signature_of
from beam_pipes.typed.random_partition import RandomPartition

# The possible ends of a pipeline, as for `Declaration.kind`.
_STORED = (Mapping, bytes, Message)


StageFunction = Callable[..., object]


class _Flow(NamedTuple):
    """The output of the stages so far: where it is, its classes (None if undeclared), and which stage gives it."""

    ref: Ref
    classes: Classes | None
    giver: str


class BySource(Pipeline):
    """Sends each record to the split whose source it comes from; see `SplitSources`."""

    def __init__(self, type_: type, splits: Sequence[str]) -> None:
        super().__init__(input_type=type_, output_type=dict.fromkeys(splits, type_), name="BySource")
        self.splits = list(splits)

    def transform(self, input_object: object) -> dict[str, list[object]]:
        context = current_context()
        split = "" if context is None else context.record_id.partition("/")[0]
        if split not in self.splits:
            raise DeclarationError(
                f"{self.name}: expected a record of one of the sources {self.splits}, got one called "
                f"{None if context is None else context.record_id!r}. Run it in a build, on the source it is "
                "declared with.",
                stage=self.name,
            )
        outputs: dict[str, list[object]] = {name: [] for name in self.splits}
        outputs[split].append(input_object)
        return outputs


class StageList(DAGPipeline):
    """Stages in a row: each runs on the output of the previous one.

        StageList([strip, tokenize], takes=str).transform("  to be ")
            → {"train": [{"text": "to be"}]}

    Args:
        stages: functions, stages of functions and other pipelines, in order; or name → stage, which renames them.
            If a function has no annotation, the stage before or after it determines the type, and the last one is
            taken to give examples.
        takes: the class of the records; None takes them from a PTransform, whose output is what the first stage takes.
        by_source: the splits, if each has its own source.
        splits: name → share of the records, drawn as `RandomPartition` does; or a stage with one output for each split,
            such as `RandomPartition(..., key=...)`. None: one split, or the outputs of the last stage.
        split: the name of the only split.
        name: the declaration's name in messages.
        inner: a PTransform takes the output: any class will do, and it is not made an example.

    Raises `TypeMismatchException` if a stage does not take what the previous one gives, `DuplicateNameException` for
    two stages with one name, and `DeclarationError` for anything that is not a stage or is out of place.
    """

    def __init__(
        self,
        stages: object,
        *,
        takes: type | None,
        by_source: Sequence[str] = (),
        splits: object = None,
        split: str = "train",
        name: str = "stages",
        inner: bool = False,
    ) -> None:
        self._where = f"declaration {name!r}"
        self._inner = inner
        listed = self._stages_of(stages)
        giver = "the source" if takes is not None else "the PTransform"
        flow = _Flow(Ref("", None), (object if takes is None else takes,), giver)
        units: list[Unit] = []
        for position, each in enumerate(listed):
            following = listed[position + 1] if position + 1 < len(listed) else None
            ready = self._typed(each, flow, following)
            units.append(Unit(name=ready.name, stage=ready, inputs=flow.ref))
            ends = following is None and splits is None and not by_source and not inner
            flow = self._flow_behind(ready, is_last=ends)
        outputs, output_type = self._end(units, flow, splits, split, by_source)
        input_type = units[0].stage.input_type if takes is None else takes
        graph = Graph(name=name, input_type=input_type, units=tuple(units), outputs=outputs, output_type=output_type)
        self.graph = graph
        Pipeline.__init__(self, input_type, dict(output_type), name)

    # What is listed.

    def _stages_of(self, stages: object) -> list[Pipeline]:
        if isinstance(stages, Mapping):
            return self._distinct([self._renamed(self._stage_of(each), name) for name, each in stages.items()])
        if isinstance(stages, str | bytes) or not isinstance(stages, Sequence):
            if not (isinstance(stages, Pipeline) or callable(stages)):
                raise DeclarationError(
                    f"{self._where}: stages should be a list of functions and stages, or name → stage, got "
                    f"{brief(stages)}. Example: [tokenize], with @stage before def tokenize."
                )
            stages = [stages]
        return self._distinct([self._stage_of(each) for each in stages])

    def _stage_of(self, each: object) -> Pipeline:
        if isinstance(each, FunctionStage) or not isinstance(each, Pipeline):
            try:
                made = as_stage(each)
                made.require_options()
            except DeclarationError as error:
                raise DeclarationError(f"{self._where}: {error}") from error
            return made
        return each

    def _renamed(self, each: Pipeline, name: object) -> Pipeline:
        if not isinstance(name, str) or not name:
            raise DeclarationError(
                f"{self._where}: stages are named by text, got {name!r}. Write {{'tokenize': tokenize}}."
            )
        if each.name == name:
            return each
        if isinstance(each, FunctionStage):
            return each.changed(name=name)
        renamed = copy.copy(each)
        object.__setattr__(renamed, "name", name)
        return renamed

    def _distinct(self, listed: list[Pipeline]) -> list[Pipeline]:
        names = [each.name for each in listed]
        for position, name in enumerate(names):
            if name in names[:position]:
                advice = f"{{'{name}': …, '{name}_2': …}}"
                if isinstance(listed[position], FunctionStage):
                    advice = f"stage(…, name='{name}_2'), or {advice}"
                raise DuplicateNameException(
                    f"{self._where}: two stages are called {name!r}, and their names distinguish their counts. Write "
                    f"{advice}.",
                    stage=name,
                )
        return listed

    # Types.

    def _typed(self, each: Pipeline, flow: _Flow, following: Pipeline | None) -> Pipeline:
        """The stage with both types known, checked against what comes in."""
        if not isinstance(each, FunctionStage):
            takes = signature_of(each, "input_type")
            if isinstance(takes, Mapping):
                raise DeclarationError(
                    f"{self._where}: stage {each.name!r} takes several values by name, {describe(takes)}, and a list "
                    "gives one. Connect it in a DAGPipeline.",
                    stage=each.name,
                )
            self._check(each, (takes,), flow)
            return each
        taken, given = each.takes, each.gives.classes
        if taken is not None:
            self._check(each, taken, flow)
        input_type = single_class(taken if taken is not None else flow.classes)
        if following is not None:
            # An undeclared output must be what the next stage takes; the engine checks each value.
            behind = following.takes if isinstance(following, FunctionStage) else _only(following.input_type)
            output_type = single_class(given if given is not None else behind)
        elif given is None:
            output_type = object if self._inner else dict  # an undeclared end is expected to give examples
        elif is_example_by_fields(given) and not self._inner:
            return each.changed(types=(input_type, dict), gives_fields=True)
        else:
            output_type = single_class(given)
        if (input_type, output_type) == (taken and single_class(taken), given and single_class(given)):
            return each
        return each.changed(types=(input_type, output_type))

    def _check(self, each: Pipeline, taken: Classes, flow: _Flow) -> None:
        for cls in flow.classes or ():
            if cls is object and flow.giver != "the source":
                continue  # annotated as anything: left to its function
            if not issubclass(cls, taken):
                expected, found = describe_classes(taken), describe_classes(flow.classes)
                if expected == found:  # classes of the same name
                    expected, found = repr(taken), repr(flow.classes)
                raise TypeMismatchException(
                    f"{self._where}: stage {each.name!r} takes {expected}, but {flow.giver} gives {found}. Annotate "
                    "what it really takes, or put a stage between that converts.",
                    stage=each.name,
                    expected=taken,
                    found=flow.classes,
                )

    def _flow_behind(self, each: Pipeline, *, is_last: bool) -> _Flow:
        giver = f"stage {each.name!r}"
        if isinstance(each, FunctionStage):
            given = (dict,) if each.gives_fields else each.gives.classes
            if given is None and each.types is not None:
                given = (each.types[1],)
            return _Flow(Ref(each.name, None), given, giver)
        gives = signature_of(each, "output_type")
        if not isinstance(gives, Mapping):
            return _Flow(Ref(each.name, None), (gives,), giver)
        if len(gives) == 1:
            ((key, cls),) = gives.items()
            return _Flow(Ref(each.name, key), (cls,), giver)
        if not is_last:
            raise DeclarationError(
                f"{self._where}: {giver} has the outputs {', '.join(map(repr, gives))}, each a split, so nothing can "
                "come after it. Move it to the end of the list and leave splits out.",
                stage=each.name,
            )
        return _Flow(Ref(each.name, None), None, giver)

    # The end: splits.

    def _end(
        self, units: list[Unit], flow: _Flow, splits: object, split: str, by_source: Sequence[str]
    ) -> tuple[dict[str, Ref], dict[str, type]]:
        if self._inner:
            return {split: flow.ref}, {split: single_class(flow.classes)}
        last = units[-1].stage if units else None
        if splits is None and not by_source and last is not None and not isinstance(last, FunctionStage):
            graph = graph_of(last, default_output=split)
            outputs = {
                key: Ref(last.name, key if isinstance(last.output_type, Mapping) else None) for key in graph.outputs
            }
            return outputs, dict(graph.output_type)
        stored = self._stored(flow)
        if splits is None and not by_source:
            return {split: flow.ref}, {split: stored}
        partition = BySource(stored, by_source) if by_source else self._partition(splits, stored)
        if partition.name in (unit.name for unit in units):
            raise DuplicateNameException(
                f"{self._where}: a stage is called {partition.name!r}, as the one that makes the splits. Rename "
                "the stage.",
                stage=partition.name,
            )
        self._check(partition, (signature_of(partition, "input_type"),), _Flow(flow.ref, (stored,), flow.giver))  # type: ignore[arg-type]
        units.append(Unit(name=partition.name, stage=partition, inputs=flow.ref))
        gives = signature_of(partition, "output_type")
        assert isinstance(gives, Mapping)
        return {key: Ref(partition.name, key) for key in gives}, dict(gives)

    def _stored(self, flow: _Flow) -> type:
        """The class of what is stored; raises where a cache cannot hold it."""
        cls = single_class(flow.classes)
        if not issubclass(cls, _STORED):
            several = (
                " For several of them write Iterator[dict[str, object]] and yield." if issubclass(cls, list) else ""
            )
            raise DeclarationError(
                f"{self._where}: {flow.giver} gives {describe_classes(flow.classes)}, which a cache cannot hold. End "
                "in a function that returns an example: -> dict[str, object], a dataclass, a protocol buffer, or "
                f"bytes.{several}",
                stage=flow.ref.unit or None,
                found=flow.classes,
            )
        return cls

    def _partition(self, splits: Any, stored: type) -> Pipeline:
        if isinstance(splits, Pipeline):
            if not isinstance(splits.output_type, Mapping):
                raise DeclarationError(
                    f"{self._where}: splits should be name → share, or a stage with one output for each split; the "
                    f"output of {splits.name!r} is {describe(splits.output_type)}.",
                    stage=splits.name,
                )
            return splits
        is_shares = isinstance(splits, Mapping) and all(
            isinstance(share, int | float) and not isinstance(share, bool) for share in splits.values()
        )
        if not is_shares or not splits:
            raise DeclarationError(
                f"{self._where}: splits should be name → share of the records, such as "
                f'{{"train": 0.9, "eval": 0.1}}, got '
                f"{brief(splits)}. Sources of their own go into the place of the source: "
                '{"train": TextLines(…), "eval": TextLines(…)}.'
            )
        try:
            return RandomPartition(stored, list(splits), list(splits.values()))
        except DeclarationError as error:
            raise DeclarationError(f"{self._where}: splits: {error}") from error


def _only(signature: type | Mapping[str, type]) -> Classes | None:
    return None if isinstance(signature, Mapping) else (signature,)


def steps_of(stages: Sequence[Step], *, takes: type, name: str) -> tuple[Step, ...]:
    """PTransforms as they are, and the stages between two of them as one `StageList` each.

    [click, GroupByKey(), summarize, named] → (StageList([click]), GroupByKey(), StageList([summarize, named])). The
    first takes `takes`; `name` is the declaration's. Raises what `StageList` raises.
    """
    found: list[Step] = []
    groups = [(is_transform, list(group)) for is_transform, group in itertools.groupby(stages, is_beam_transform)]
    for position, (is_transform, group) in enumerate(groups):
        if is_transform:
            found += group
        else:
            ends = position + 1 == len(groups)
            found.append(StageList(group, takes=takes if position == 0 else None, name=name, inner=not ends))
    return tuple(found)
