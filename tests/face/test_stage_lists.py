"""Stages in a list: their types at construction, their names, their splits, and classes among them."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NewType, TypedDict

import numpy as np
import numpy.typing as npt
import pytest

from beam_pipes import Declaration, build, declare, drop, stage
from beam_pipes.errors import (
    BeamPipesError,
    DeclarationError,
    DuplicateNameException,
    InvalidTypeSignatureException,
    SourceError,
    StageError,
    TypeMismatchException,
)
from beam_pipes.sources import JSONLines, Memory, TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition
from beam_pipes.typed.annotated import Given, given_classes, taken_classes

if typing.TYPE_CHECKING:
    from nowhere import Missing

Lines = TextLines("poem.txt")
UserId = NewType("UserId", int)


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Record:
    text: str
    length: int


class Example(TypedDict):
    text: str


class Upper(Pipeline):
    input_type = output_type = str

    def transform(self, line: str) -> list[str]:
        return [line.upper()]


def example(line: str) -> dict[str, Any]:
    return {"text": line}


def strip(line: str) -> str:
    return line.strip()


def gives(declaration: Declaration, value: Any) -> Any:
    return declaration.pipeline.transform(value)


# Annotations.


@pytest.mark.parametrize(
    ("annotation", "classes", "several"),
    [
        (str, (str,), False),
        (dict[str, int], (dict,), False),
        (typing.Optional[dict[str, int]], (dict,), False),  # noqa: UP045
        (dict[str, int] | None, (dict,), False),
        (str | bytes, (str, bytes), False),
        (list[str], (list,), False),
        (Iterator[dict[str, int]], (dict,), True),
        (Iterable[str | bytes] | None, (str, bytes), True),
        (Generator[str, None, None], (str,), True),
        (Iterator, (object,), True),
        (npt.NDArray[np.int32], (np.ndarray,), False),
        (np.ndarray, (np.ndarray,), False),
        (Example, (dict,), False),
        (Point, (Point,), False),
        (UserId, (int,), False),
        (Annotated[str, "letters"], (str,), False),
        (typing.Literal["a", "b"], (str,), False),
        (Any, (object,), False),
        ("dict[str, int]", (dict,), False),
        ("Iterator[Point]", (Point,), True),
    ],
    ids=str,
)
def test_what_annotations_say(annotation: Any, classes: tuple[type, ...], several: bool) -> None:
    def function(record):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__ = {"record": annotation, "return": annotation}

    assert given_classes(function, "f", batched=False) == Given(classes, several)
    if not several:
        assert taken_classes(function, "f", batched=False) == classes

        function.__annotations__ = {"record": list[annotation], "return": list[annotation]}
        assert given_classes(function, "f", batched=True) == Given(classes, False)
        assert taken_classes(function, "f", batched=True) == classes


def missing(line: Missing) -> str:
    return ""


def nothing(line: str) -> None:
    return None


def yields(line: str) -> str:  # type: ignore[misc]
    yield line


@pytest.mark.parametrize(
    ("function", "batched", "words"),
    [
        pytest.param(
            missing,
            False,
            r"stage missing, parameter 'line': the annotation 'Missing' cannot be read: NameError.*outside of "
            r"`if TYPE_CHECKING:`",
            id="unknown_name",
        ),
        pytest.param(nothing, False, "the annotation says None, so that no record would come out", id="none"),
        pytest.param(
            yields,
            False,
            r"a function that yields gives several outputs.*is str. Write -> Iterator\[str\]",
            id="yields",
        ),
        pytest.param(
            strip,
            True,
            r"a batched stage takes a list of records.*the annotation is str. Write list\[str\]",
            id="batch",
        ),
    ],
)
def test_annotations_that_say_nothing_usable_are_refused(function: Any, batched: bool, words: str) -> None:
    with pytest.raises(InvalidTypeSignatureException, match=words):
        declare("poem", Lines, [stage(function, batched=batched)])


# From types to a pipeline.


def test_types_are_checked_when_it_is_declared() -> None:
    def count_words(words: list[str]) -> dict[str, int]:
        return {"words": len(words)}

    with pytest.raises(TypeMismatchException) as caught:
        declare("poem", Lines, [strip, count_words])

    assert str(caught.value) == (
        "declaration 'poem': stage 'count_words' takes list, but stage 'strip' gives str. Annotate what it "
        "really takes, "
        "or put a stage between that converts."
    )
    assert (caught.value.expected, caught.value.found) == ((list,), (str,))
    with pytest.raises(TypeMismatchException, match="stage 'count_words' takes list, but the source gives str"):
        declare("poem", Lines, [count_words])
    with pytest.raises(TypeMismatchException, match="stage 'Upper' takes str, but the source gives dict"):
        declare("poem", JSONLines("a.jsonl"), [Upper(), example])


def test_what_is_not_annotated_is_what_stands_beside_it() -> None:
    def first(line):  # type: ignore[no-untyped-def]
        return line + "!"

    def letters(line):  # type: ignore[no-untyped-def]
        yield from line

    declaration = declare("poem", Lines, [first, letters, str.upper, example])

    assert gives(declaration, "ab") == {"train": [{"text": "A"}, {"text": "B"}, {"text": "!"}]}
    assert [unit.stage.output_type for unit in declaration.graph.units] == [object, object, str, dict]


def test_the_last_stage_gives_examples_unless_it_says_something_else(tmp_path: Path) -> None:
    def words(line):  # type: ignore[no-untyped-def]
        yield from ({"text": word} for word in line.split())

    assert gives(declare("poem", Lines, [lambda line: {"text": line}]), "a b") == {"train": [{"text": "a b"}]}
    declaration = declare("poem", Lines, [words], splits={"train": 1.0})
    assert gives(declaration, "a b") == {"train": [{"text": "a"}, {"text": "b"}]}
    assert declaration.graph.output_type == {"train": dict}
    with pytest.raises(
        StageError, match=r"should be dict, got str: 'a b'\. Return dict from <lambda>\(\), or annotate"
    ):
        build("poem", Memory(["a b"]), [lambda line: line], to=tmp_path / "cache", workers=1)
    with pytest.raises(DeclarationError, match=r"stage 'split' gives list, which a cache cannot hold.*Iterator\[dict"):
        declare("poem", Lines, {"split": str_split})


def test_a_stage_by_itself_has_to_say_what_it_gives() -> None:
    def last(line: str):  # type: ignore[no-untyped-def]
        return {"text": line}

    with pytest.raises(InvalidTypeSignatureException) as caught:
        _ = stage(last).output_type
    assert str(caught.value) == (
        "stage 'last' does not say what it returns, and no neighbouring stage in the pipeline does. Write "
        "`def last(line: str) -> dict[str, object]:`, with the types of its record and of its result."
    )
    with pytest.raises(InvalidTypeSignatureException, match=r"Write `def tokenize\(line: str\) -> dict"):
        _ = stage(lambda line: line).output_type


def str_split(line: str) -> list[str]:
    return line.split()


def test_records_with_fields_are_stored_as_examples() -> None:
    def record(line: str) -> Record | None:
        return Record(line, len(line)) if line else drop("empty")

    def points(line: str) -> Iterator[Point]:
        yield Point(len(line), 0)
        yield Point(0, len(line))

    def typed(line: str) -> Example:
        return {"text": line}

    assert gives(declare("poem", Lines, [record]), "ab") == {"train": [{"text": "ab", "length": 2}]}
    assert gives(declare("poem", Lines, [record]), "") == {"train": []}
    assert gives(declare("poem", Lines, [points]), "ab") == {"train": [{"x": 2, "y": 0}, {"x": 0, "y": 2}]}
    assert gives(declare("poem", Lines, [typed]), "ab") == {"train": [{"text": "ab"}]}


def test_protocol_buffers_and_bytes_are_stored_as_they_are() -> None:
    from google.protobuf.struct_pb2 import Struct

    def message(line: str) -> Struct:
        return Struct()

    def raw(line: str) -> bytes:
        return line.encode()

    assert declare("poem", Lines, [message]).kinds["train"] == "proto"
    assert declare("poem", Lines, raw, split="all").kinds["all"] == "bytes"


def test_names_come_from_functions_or_from_a_dict() -> None:
    with pytest.raises(DuplicateNameException) as caught:
        declare("poem", Lines, [strip, strip, example])

    assert str(caught.value) == (
        "declaration 'poem': two stages are called 'strip', and their names distinguish their counts. Write "
        "stage(…, name='strip_2'), or {'strip': …, 'strip_2': …}."
    )
    named = declare("poem", Lines, {"first": strip, "second": strip, "loud": Upper(), "last": example})
    listed = declare("poem", Lines, [strip, stage(strip, name="strip_2"), Upper(), example])
    assert [unit.name for unit in named.graph.units] == ["first", "second", "loud", "last"]
    assert [unit.name for unit in listed.graph.units] == ["strip", "strip_2", "Upper", "example"]
    assert gives(named, " a ") == gives(listed, " a ") == {"train": [{"text": "A"}]}


def test_classes_and_dags_stand_among_functions() -> None:
    upper = Upper()
    dag = DAGPipeline({upper: Input(str), Output("words"): upper}, "Loud")
    declaration = declare("poem", Lines, [strip, dag, example])
    partition = RandomPartition(dict, ["train", "eval"], [0.5])

    assert gives(declaration, " a ") == {"train": [{"text": "A"}]}
    assert declare("poem", Lines, [example, partition]).splits == ("train", "eval")
    with pytest.raises(DeclarationError, match="stage 'RandomPartition' has the outputs 'train', 'eval', each a split"):
        declare("poem", Lines, [RandomPartition(str, ["train", "eval"], [0.5]), example])
    with pytest.raises(DeclarationError, match=r"got the class Upper. Write Upper\(\), with its options"):
        declare("poem", Lines, [Upper, example])


def test_required_options_are_asked_for() -> None:
    def cut(line: str, *, limit: int, mark: str) -> str:
        return line[:limit] + mark

    with pytest.raises(DeclarationError) as caught:
        declare("poem", Lines, [cut, example])

    assert str(caught.value) == (
        "declaration 'poem': stage 'cut' needs 'limit', 'mark': write stage(cut, limit=…, mark=…), or give them "
        "a default."
    )
    declaration = declare("poem", Lines, [functools.partial(cut, limit=1, mark="…"), example])
    assert gives(declaration, "abc") == {"train": [{"text": "a…"}]}


@pytest.mark.parametrize("stages", ["tokenize", 7, None], ids=repr)
def test_what_is_not_a_list_of_stages_is_refused(stages: Any) -> None:
    with pytest.raises(DeclarationError, match="stages should be a list of functions and stages, or name → stage, got"):
        declare("poem", Lines, stages)


# Splits.


def test_splits_by_share_are_those_of_random_partition() -> None:
    by_share = declare("poem", Lines, [example], splits={"train": 0.9, "eval": 0.1})
    by_hand = declare("poem", Lines, [example], splits=RandomPartition(dict, ["train", "eval"], [0.9, 0.1]))
    rest = declare("poem", Lines, [example, RandomPartition(dict, ["train", "eval"], [0.9])])

    assert by_share.splits == by_hand.splits == rest.splits == ("train", "eval")
    lines = [f"line {number}" for number in range(50)]
    assert [gives(by_share, line) for line in lines] == [gives(by_hand, line) for line in lines]


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({"train": 0.9, "eval": 0.2}, r"splits: RandomPartition: expected 2 probabilities that add up to 1"),
        ({}, r"splits should be name → share of the records, such as \{\"train\": 0.9, \"eval\": 0.1\}, got dict"),
        (["train", "eval"], r"splits should be name → share of the records"),
        ({"train": Lines}, r"Sources of their own go into the place of the source"),
        (Upper(), r"a stage with one output for each split; the output of 'Upper' is str"),
        (
            RandomPartition(str, ["train", "eval"], [0.5]),
            "stage 'RandomPartition' takes str, but stage 'example' gives",
        ),
    ],
    ids=["too_much", "empty", "list", "sources", "one_output", "of_other_type"],
)
def test_splits_that_are_none_are_refused(splits: Any, words: str) -> None:
    with pytest.raises(BeamPipesError, match=words):
        declare("poem", Lines, [example], splits=splits)


def test_sources_of_splits_have_to_agree() -> None:
    both: Mapping[str, Any] = {"train": TextLines("a.txt"), "eval": TextLines("b.txt")}

    assert declare("poem", both, [example]).splits == ("train", "eval")
    with pytest.raises(
        DeclarationError, match="there is a source for each of 'train', 'eval', so splits are given twi"
    ):
        declare("poem", both, [example], splits={"train": 1.0})
    with pytest.raises(SourceError, match="values of one type, for the same stages; 'a' gives str, 'b' gives dict"):
        declare("poem", {"a": Lines, "b": JSONLines("b.jsonl")}, [example])
    with pytest.raises(SourceError, match=r"the split 'a' should have a source, such as TextLines\('a.txt'\), got str"):
        declare("poem", {"a": "a.txt"}, [example])  # type: ignore[dict-item]
    with pytest.raises(SourceError, match="expected split → source, such as"):
        declare("poem", {}, [example])
    with pytest.raises(SourceError, match="splits are named by text without '/', got 'a/b'"):
        declare("poem", {"a/b": Lines}, [example])
    with pytest.raises(
        DeclarationError, match=r"expected a source, or split → source, got str: 'poem.txt'. Example: T"
    ):
        declare("poem", "poem.txt", [example])  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"a declaration starts with its name, got TextLines"):
        declare(Lines, Lines, [example])  # type: ignore[arg-type]


def test_no_stages_store_the_records_of_the_source() -> None:
    declaration = declare("poem", Memory([{"a": 1}]), [])

    assert declaration.graph.units == ()
    assert declaration.splits == ("train",)
