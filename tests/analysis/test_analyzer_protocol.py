"""What analyzers, their results and declarations of them say of mistakes; what holds a result; own analyzers."""

from __future__ import annotations

import dataclasses
import functools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from analysis_declarations import SplitWords, ToText, _declared, lengths, means, ranks, words

from beam_pipes.analysis import Accumulator, Analyzer, BoundResult, Result
from beam_pipes.building import Declaration
from beam_pipes.building.analysis.declared import held_results
from beam_pipes.building.analysis.plan import fingerprint_analyzer
from beam_pipes.cache import Cache
from beam_pipes.errors import AnalysisError, DeclarationError, TypeMismatchException
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.sources import Memory, TextLines
from beam_pipes.transforms.analyzers import Count, LengthHistogram, Moments, Vocabulary
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

ONE = LocalOptions(workers=1)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Tree(Analyzer):
    """Writes a directory; `fails` says where."""

    input_type = str
    fails: str = ""

    def accumulator(self) -> Accumulator:
        return _Lines(self.fails)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        if self.fails == "merge":
            raise ValueError("no merging today")
        if self.fails == "nothing":
            return
        Path(target, "below").mkdir(parents=True)
        Path(target, "below", "all").write_text("".join(Path(path, "lines").read_text() for path in accumulators))
        Path(target, "count").write_text(str(len(accumulators)))

    def read(self, path: str) -> list[str]:
        return Path(path, "below", "all").read_text().splitlines()


class _Lines(Accumulator):
    def __init__(self, fails: str) -> None:
        self._fails = fails
        self._lines: list[str] = []

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
        if self._fails == "add":
            raise ZeroDivisionError("no adding today")
        self._lines += [f"{record_id} {value}" for value, record_id in zip(values, record_ids, strict=True)]

    def save(self, path: str) -> None:
        if self._fails == "save":
            raise KeyError("no saving today")
        Path(path).mkdir()
        Path(path, "lines").write_text("".join(f"{line}\n" for line in self._lines))


def _of_lines(*analyzers: Analyzer, **options: Any) -> Any:
    options = {"source": Memory(["to be", "", "or not to be"]), "pipeline": ToText(), "features": None, **options}
    return _declared(analyzers=analyzers, **options)


def test_an_accumulator_and_a_result_may_be_directories(tmp_path: Path) -> None:
    tree = Tree("tree", of=DAGPipeline({(split := _Words()): Input(str), Output("words"): split}))

    build(_of_lines(tree), tmp_path / "cache", options=ONE)

    cache = Cache.open(tmp_path / "cache")
    assert [entry.file for entry in cache.manifest.assets] == ["assets/tree/below/all", "assets/tree/count"]
    assert cache.asset_path("tree") == str(tmp_path / "cache" / "snapshots" / cache.manifest.snapshot / "assets/tree")
    assert Path(cache.asset_path("tree/count")).read_text() == "1"
    # A record that gives several values is named for each of them, one that gives none is not.
    ids = [line.split()[0].rpartition("@")[2] for line in tree.read(cache.asset_path("tree"))]
    assert ids == ["0", "0", "2", "2", "2", "2"]
    assert cache.verify().ok


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Words(Pipeline):
    """Each word as a value."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        return line.split()


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (
            "add",
            r"failed on source shard 0 \(.*\), records '.*@0' to '.*@2': ZeroDivisionError: no adding today\. Corr",
        ),
        ("save", r"failed while it saved its accumulator of source shard 0 \(.*\): KeyError: 'no saving today'\. Corr"),
        ("merge", r"failed while it merged its 1 accumulators: ValueError: no merging today\. Correct the analyzer"),
        ("nothing", r"merge\(accumulators, target\) should write a file or a directory at `target`, but wrote none"),
    ],
)
def test_an_analyzer_that_fails_is_named_with_the_place(fails: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=f"the analyzer 'tree' .Tree.(:)? {words}"):
        build(_of_lines(Tree("tree", fails=fails)), tmp_path / "cache", options=ONE)

    assert not (tmp_path / "cache" / "manifest.json").exists()
    assert not list((tmp_path / "cache").glob("**/.tmp-*"))


def test_a_result_that_is_not_there_says_what_to_do() -> None:
    result = Vocabulary("tokens").result

    for ask in (result.value, result.digest, lambda: result.path, lambda: fingerprint(_Holder(result=result))):
        with pytest.raises(
            AnalysisError,
            match=r"the result of the analyzer 'tokens' \(Vocabulary\) was requested, but the analysis has not run. "
            r"Build a declaration that lists it in analyzers=\(...\), or bind an existing result: "
            r"result.bind\(cache.asset_path\('tokens'\)\).",
        ):
            ask()
    assert repr(result) == "<Result of 'tokens': not bound>"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Holder(Pipeline):
    input_type = str
    output_type = dict
    result: Any = None

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"count": self.result.value()}]


def test_a_result_can_be_bound_by_hand_and_counts_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("3\n")
    (tmp_path / "two").write_text("3\n")
    (tmp_path / "three").write_text("4\n")
    lines = Count("lines")
    digests = []
    for name in ("one", "two", "three"):
        lines.result.bind(tmp_path / name)
        digests.append(fingerprint(_Holder(result=lines.result)).digest)

    assert digests[0] == digests[1] != digests[2]
    assert _Holder(result=lines.result).transform("x") == [{"count": 4}]
    assert lines.result.value() is lines.result.value()
    again = pickle.loads(pickle.dumps(lines.result))
    assert (again.value(), again.digest(), again.name) == (4, lines.result.digest(), "lines")
    lines.result.bind(None)
    with pytest.raises(AnalysisError):
        lines.result.value()


counted = Count("counted")


def with_count(line: str) -> str:
    """A function whose code refers to an analyzer by its name in the module."""
    return f"{line} {counted.result.value()}"


def test_code_that_refers_to_an_analyzer_is_fingerprinted_by_its_result() -> None:
    with pytest.raises(AnalysisError, match="the analyzer 'counted'"):
        fingerprint(with_count)
    digests = []
    for digest in ("a", "b", "a"):
        counted.result.bind(BoundResult("/nowhere", digest * 64))
        digests.append(fingerprint(with_count).digest)
    counted.result.bind(None)

    assert digests[0] == digests[2] != digests[1]


def test_handles_are_found_wherever_a_stage_may_hold_them() -> None:
    one, two, three, four = (Count(f"c{number}") for number in range(4))

    def closure(line: str) -> Any:
        return two.result.value()

    holder = _Holder(result={"a": [one.result], "b": functools.partial(closure), "c": (three, "x" * 100)})
    dag = DAGPipeline({holder: Input(str), Output("out"): holder})

    assert set(held_results(dag)) == {one.result, two.result, three.result}
    assert held_results(_Holder(result=four.result)) == [four.result]
    assert held_results(ToText()) == []


def test_a_declaration_runs_every_analyzer_whose_result_is_held() -> None:
    with pytest.raises(
        DeclarationError,
        match=r"declaration 'analysed': stage 'Ids' holds the result of the analyzer 'words', which the declaration "
        r"does not run. List that very object in analyzers=\(...\); there are: 'lengths'.",
    ):
        _declared(analyzers=(lengths,))
    with pytest.raises(DeclarationError, match="the analyzer 'means' holds the result of the analyzer 'words', which"):
        _of_lines(means)
    with pytest.raises(DeclarationError, match="stage 'Ids' holds the result of the analyzer 'words'.*there are: none"):
        _declared(analyzers=())


def test_a_result_that_is_bound_by_hand_needs_no_analyzer(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("7\n")
    count = Count("count")
    count.result.bind(tmp_path / "count")

    build(_of_lines(pipeline=_Holder(result=count.result)), tmp_path / "cache", options=ONE)

    assert [int(example["count"]) for example in Cache.open(tmp_path / "cache")["train"]] == [7, 7, 7]


def test_analyzers_that_wait_for_each_other_are_an_error() -> None:
    one, two = Count("one", of=_Holder()), Count("two", of=_Holder())
    assert one.of is not None and two.of is not None
    object.__setattr__(one.of, "result", two.result)
    object.__setattr__(two.of, "result", one.result)

    with pytest.raises(
        DeclarationError,
        match="the analyzers wait for each other's results: 'one' needs 'two', 'two' needs 'one'. An analyzer may hold",
    ):
        _of_lines(one, two)
    own = Count("own", of=_Holder())
    assert own.of is not None
    object.__setattr__(own.of, "result", own.result)
    with pytest.raises(DeclarationError, match="the analyzers wait for each other's results: 'own' needs 'own'"):
        _of_lines(own)


def test_names_are_those_of_files_and_taken_once() -> None:
    with pytest.raises(DeclarationError, match="the name of an analyzer is a file's in the cache: letters.*got 'a/b'"):
        Count("a/b")
    with pytest.raises(DeclarationError, match="two analyzers are called 'c'. Each name is a file name in the cache"):
        _of_lines(Count("c"), Moments("c", of=_length))
    with pytest.raises(DeclarationError, match="analyzers should be objects of classes derived from Analyzer, got 'w'"):
        _of_lines("w")  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Length(Pipeline):
    input_type = str
    output_type = int

    def transform(self, line: str) -> list[int]:
        return [len(line)]


_length = _Length()


def test_types_fit_along_the_way() -> None:
    with pytest.raises(
        DeclarationError,
        match=r"analyzer 't': Tree analyses str, but '_Length' gives int. Give of=..., a pipeline that ends in str.",
    ):
        Tree("t", of=_Length())
    with pytest.raises(DeclarationError, match="analyzer 't': Tree analyses str, but the source Memory gives int"):
        _of_lines(Tree("t"), source=Memory([1, 2]), pipeline=_Numbers())
    with pytest.raises(
        TypeMismatchException,
        match="the source Memory gives int, but the analyzer 'l' is of 'SplitWords', which takes str. Put a pipeline",
    ):
        _of_lines(LengthHistogram("l", of=SplitWords()), source=Memory([1, 2]), pipeline=_Numbers())


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Numbers(Pipeline):
    input_type = int
    output_type = dict

    def transform(self, number: int) -> list[dict[str, Any]]:
        return [{"number": number}]


def _two_outputs() -> DAGPipeline:
    split, length = _Words(), _Length()
    return DAGPipeline({split: Input(str), length: split, Output("words"): split, Output("lengths"): length})


def test_an_output_is_named_where_there_are_several() -> None:
    for output in (None, "letters"):
        with pytest.raises(
            DeclarationError,
            match=rf"analyzer 'c': expected output=..., one of \['lengths', 'words'\] that '.*' has, got {output!r}",
        ):
            Count("c", of=_two_outputs(), output=output)
    with pytest.raises(DeclarationError, match="output='words' names an output of `of`, but `of` is not given"):
        Count("c", output="words")


def test_outputs_of_one_pipeline_are_analysed_together(tmp_path: Path) -> None:
    tokens = Vocabulary("tokens", of=_two_outputs(), output="words")
    sums = Moments("sums", of=_two_outputs(), output="lengths")

    result = build(_of_lines(tokens, sums), tmp_path / "cache", options=ONE)

    cache = Cache.open(tmp_path / "cache")
    assert tokens.read(cache.asset_path("tokens")).tokens == ["be", "to", "not", "or"]
    assert float(sums.read(cache.asset_path("sums")).mean) == pytest.approx(13 / 6)
    assert result.analysis is not None and [row["values"] for row in result.analysis.rows] == [6, 6]


def test_only_what_holds_a_result_depends_on_it(text_input: Path, tmp_path: Path) -> None:
    build(_of_lines(words, lengths), tmp_path / "cache", options=ONE)
    shards = {path.name: path.stat().st_ino for path in (tmp_path / "cache").glob("snapshots/*/*.tfrecord-*")}

    after = build(_of_lines(words, lengths, Count("count")), tmp_path / "cache", options=ONE)

    assert not after.up_to_date and after.reused_shards == after.num_shards
    assert {p.name: p.stat().st_ino for p in (tmp_path / "cache").glob("snapshots/*/*.tfrecord-*")} == shards
    assert len(Cache.open(tmp_path / "cache").manifest.assets) == 3


def test_every_result_has_a_handle_that_is_its_analyzer_s() -> None:
    assert all(isinstance(each.result, Result) and each.result.analyzer is each for each in (words, lengths, ranks))
    assert words.result is words.result


class _OtherVocabulary(Vocabulary):
    """Another class with the fields of `Vocabulary`."""


@pytest.mark.parametrize("of", [None, SplitWords()], ids=["records", "of_a_pipeline"])
def test_class_and_options_of_an_analyzer_are_in_its_fingerprint(of: Any) -> None:
    declaration = Declaration(name="n", source=TextLines("."), pipeline=ToText())

    found = {
        fingerprint_analyzer(declaration, made).digest
        for made in (
            Vocabulary("words", of=of),
            Vocabulary("words", of=of, min_count=3),
            Vocabulary("words", of=of, reserved=("<unk>",)),
            _OtherVocabulary("words", of=of),
        )
    }

    assert len(found) == 4
    again = fingerprint_analyzer(declaration, Vocabulary("words", of=of)).digest
    assert again in found
