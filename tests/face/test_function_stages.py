"""A function as a stage: what it is called with, what its result means, and what it tells while it runs."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from beam_pipes import count, drop, observe, stage
from beam_pipes.engine.account import Account, UnitAccount
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import graph_of
from beam_pipes.engine.records import Batch
from beam_pipes.errors import (
    DeclarationError,
    InvalidStatisticsException,
    InvalidTransformOutputException,
    InvalidTypeSignatureException,
)
from beam_pipes.identity.canonical import Asset
from beam_pipes.identity.fingerprint import explain, fingerprint
from beam_pipes.testing.one_unit import Records
from beam_pipes.typed import Counter, DAGPipeline, FunctionStage, Input, Output, Pipeline, load_pipeline


@stage
def tokenize(line: str, *, min_length: int = 3) -> dict[str, Any]:
    """The letters of a line."""
    if len(line) < min_length:
        return drop("too_short")
    count("letters", len(line))
    observe("length", len(line))
    return {"text": line, "length": len(line)}


@stage
def words(line: str) -> Iterator[str]:
    if not line:
        return drop("empty")
    for word in line.split():
        yield drop("article") if word == "the" else word


@stage(batched=True)
def upper(lines: list[str]) -> list[str | None]:
    count("lines", len(lines))
    if "boom" in lines:
        raise ValueError("boom")
    return [None if line == "none" else drop("of") if line == "of" else line.upper() for line in lines]


@stage
def noisy(line: str, rng: np.random.Generator, record_id: str) -> tuple[int, str]:
    return int(rng.integers(0, 1 << 30)), record_id


def shouted(line: str, *, times: int) -> str:
    return line + "!" * times


short = stage(tokenize, min_length=2)


def ran(each: Any, lines: list[str], *, size: int) -> tuple[list[list[Any]], UnitAccount]:
    """The outputs of a stage for each line, `size` of them at once, and what it told, as in a build."""
    runner = GraphRunner(graph_of(each), on_error="dead_letter")
    account = Account()
    outputs: list[list[Any]] = []
    for start in range(0, len(lines), size):
        some = lines[start : start + size]
        records = Records([str(start + at) for at in range(len(some))])
        records.values = list(some)
        batch = Batch(records, account)
        runner.run(batch)
        outputs += [list(values) for values in runner.outputs(batch)["train"]]
    return outputs, account.unit(each.name)


def test_a_stage_is_called_as_the_function_that_it_was() -> None:
    assert tokenize("to be") == {"text": "to be", "length": 5}
    assert tokenize("a", min_length=1) == {"text": "a", "length": 1}
    assert tokenize("a") == drop("too_short") != drop("too_long")
    assert list(words("the fog")) == [drop("article"), "fog"]
    assert upper(["a", "none"]) == ["A", None]
    assert (tokenize.__name__, tokenize.__doc__) == ("tokenize", "The letters of a line.")


def test_transform_returns_outputs_and_get_stats_the_statistics() -> None:
    assert tokenize.transform("to be") == [{"text": "to be", "length": 5}]
    assert [str(each) for each in tokenize.get_stats()] == ["tokenize_letters: 5", "tokenize_length:\n  [4,8): 1"]

    assert tokenize.transform("a") == []
    assert tokenize.get_stats() == []


def test_outputs_drops_and_counts_of_a_run() -> None:
    loaded = load_pipeline(words, ["the fog comes", "", "the"])

    assert loaded == ["fog", "comes"]
    output = load_pipeline(tokenize, ["to be", "a", "or not"])
    assert [each["text"] for each in output] == ["to be", "or not"]
    assert [str(each) for each in output.statistics] == [
        "tokenize_letters: 11",
        "tokenize_length:\n  [4,8): 2",
    ]


def test_statistics_of_a_failed_record_do_not_count() -> None:
    @stage
    def picky(line: str) -> str:
        count("seen")
        if line == "bad":
            raise ValueError(line)
        return line

    _, output = ran(picky, ["a", "bad", "c"], size=3)

    assert (output.inputs, output.kept, output.dead) == (3, 2, 1)
    assert [str(each) for each in output.statistics.values()] == ["picky_seen: 2"]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_batched_stage_gives_the_same_whatever_comes_together(size: int) -> None:
    outputs, output = ran(upper, ["a", "none", "boom", "of", "b"], size=size)

    assert outputs == [["A"], [], [], [], ["B"]]
    assert (output.inputs, output.kept, output.dead) == (5, 2, 1)
    assert output.dropped == {"no_output": 1, "of": 1}
    assert [str(each) for each in output.statistics.values()] == ["upper_lines: 4"]


def test_each_record_of_a_batch_has_its_own_reason() -> None:
    records = Records(["0", "1", "2"])
    records.values = ["none", "of", "a"]
    batch = Batch(records)

    GraphRunner(graph_of(upper)).run(batch)

    assert batch.drops == {0: [("upper", "no_output")], 1: [("upper", "of")]}


def test_what_a_batched_stage_gives_is_spelled_for_messages_alone() -> None:
    spelled = []

    class Spelled(list[int]):
        """To spell arrays takes longer than to make them."""

        def __repr__(self) -> str:
            spelled.append(self)
            return "[…]"

    @stage(batched=True)
    def lengths(lines: list[str]) -> list[dict[str, object]]:
        return [{"lengths": Spelled([len(line)])} for line in lines]

    assert ran(lengths, ["a", "the fog"], size=2)[0][1][0]["lengths"] == [7]
    assert not spelled


def test_a_batched_stage_that_loses_records_is_stopped() -> None:
    @stage(batched=True)
    def filtered(lines: list[str]) -> list[str]:
        return [line for line in lines if line]

    with pytest.raises(DeclarationError) as caught:
        ran(filtered, ["a", "", "b"], size=3)

    assert str(caught.value) == (
        "stage 'filtered': a batched stage returns a list with one result for each record, expected 3, got 2. "
        'Return None or drop("reason") in place of a record without output.'
    )


def test_rng_and_record_id_are_given_by_name_and_keyed_by_the_record() -> None:
    class Noisy(Pipeline):
        input_type, output_type, name = str, tuple, "noisy"

        def transform(self, line: str) -> list[Any]:
            return [(int(self.rng().integers(0, 1 << 30)), "")]

    first, again = load_pipeline(noisy, ["a", "b"]), load_pipeline(noisy, ["a", "b"])

    assert first == again
    assert [record_id for _, record_id in first] == ["0", "1"]
    assert [draw for draw, _ in first] == [draw for draw, _ in load_pipeline(Noisy(), ["a", "b"])]


def test_count_and_observe_are_heard_in_class_stages_too() -> None:
    class Lines(Pipeline):
        input_type = output_type = str

        def transform(self, line: str) -> list[str]:
            count("letters", len(line))
            self._set_stats([Counter("lines", 1)])
            return [line]

    lines = Lines()
    lines.transform("abc")

    assert [str(each) for each in lines.get_stats()] == ["Lines_lines: 1", "Lines_letters: 3"]
    output = load_pipeline(lines, ["abc", "de"]).statistics
    assert sorted(str(each) for each in output) == ["Lines_letters: 5", "Lines_lines: 2"]


def test_outside_of_a_stage_nothing_is_reported() -> None:
    count("words", 3)
    observe("length", 2.5)


def test_malformed_statistics_are_refused() -> None:
    def both(line: str) -> str:
        count("x")
        observe("x", 1)
        return line

    with pytest.raises(InvalidStatisticsException, match="'x' is both counted and observed. Give the counter and the"):
        load_pipeline(stage(both), ["a"])
    with pytest.raises(InvalidStatisticsException, match=r"count\('words', …\): expected an int, got str: '3'"):
        count("words", "3")  # type: ignore[arg-type]
    with pytest.raises(InvalidStatisticsException, match=r"observe\('length', …\): expected a number, got NoneType"):
        observe("length", None)  # type: ignore[arg-type]
    with pytest.raises(InvalidStatisticsException, match=r'got int: 3. Example: return drop\("too_short"\)'):
        drop(3)  # type: ignore[arg-type]


# Options.


def test_options_are_bound_in_four_ways_to_the_same_effect() -> None:
    stages = [
        stage(tokenize, min_length=7),
        tokenize.bind(min_length=7),
        stage(functools.partial(tokenize, min_length=7)),
        stage(functools.partial(tokenize.function, min_length=7)),
    ]

    for each in stages:
        assert load_pipeline(each, ["to be", "or not to"]) == [{"text": "or not to", "length": 9}]
        assert fingerprint(each).digest == fingerprint(stages[0]).digest
    assert tokenize.options == {}


def test_an_unknown_option_is_refused_with_what_to_write() -> None:
    with pytest.raises(DeclarationError) as caught:
        stage(tokenize, min_lenght=3)

    assert str(caught.value) == (
        "stage 'tokenize' has no option 'min_lenght': its options are min_length. Did you mean 'min_length'? Write "
        "stage(tokenize, min_length=…), or give the function a parameter 'min_lenght'."
    )
    with pytest.raises(DeclarationError, match="stage 'words' has no option 'n': it has none"):
        words.bind(n=1)
    with pytest.raises(DeclarationError, match="'rng' is given by the engine, for each record; it cannot be bound"):
        stage(noisy, rng=1)


def test_stage_takes_a_name_a_version_and_limits_of_its_own() -> None:
    made = stage(shouted, times=2, name="shout", version=3, on_error="drop", record_timeout_secs=1.5)

    assert (made.name, made.on_error, made.record_timeout_secs) == ("shout", "drop", 1.5)
    assert fingerprint(made).parts["shout.version"] == "3"
    assert stage(shouted, name="plain").missing_options() == ["times"]

    def named(line: str, *, version: int = 1) -> str:
        return line

    with pytest.raises(DeclarationError, match=r"the function has a parameter of this name.*\.bind\(version=…\)"):
        stage(named, version=2)
    assert stage(named).bind(version=2).options == {"version": 2}


@pytest.mark.parametrize(
    ("made_of", "words_of_error"),
    [
        (DAGPipeline, r"got the class DAGPipeline. Write DAGPipeline\(\), with its options"),
        (dict, "got the class dict. Write def tokenize"),
        ("tokenize", "a stage is a function, got str: 'tokenize'"),
        (functools.partial(shouted, "a"), r"binds \('a',\) by position, where the record goes"),
    ],
    ids=["class_of_stages", "class", "text", "partial_by_position"],
)
def test_what_is_not_a_function_is_refused(made_of: Any, words_of_error: str) -> None:
    with pytest.raises(DeclarationError, match=words_of_error):
        stage(made_of)


def test_functions_that_cannot_be_stages_are_refused() -> None:
    async def later(line: str) -> str:
        return line

    with pytest.raises(InvalidTypeSignatureException, match="stage later: expected a function, got an async function"):
        stage(later)  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeSignatureException, match="takes the record as its first parameter, got"):
        stage(lambda *, n: n)
    with pytest.raises(InvalidTypeSignatureException, match="a batched stage cannot have 'rng', 'record_id', which"):
        stage(noisy.function, batched=True)
    with pytest.raises(DeclarationError, match="'upper' is declared with batched=True, got batched=False"):
        stage(upper, batched=False)


# Fingerprints and pickles.


def test_options_and_code_are_in_the_fingerprint_by_name(tmp_path: Any) -> None:
    (tmp_path / "words.txt").write_text("fog")

    def ids(line: str, vocabulary: Asset, *, limit: int = 10) -> dict[str, Any]:
        return {"line": line[:limit]}

    one = fingerprint(stage(ids, vocabulary=Asset(tmp_path / "words.txt")))
    other = fingerprint(stage(ids, vocabulary=Asset(tmp_path / "words.txt"), limit=5))
    (tmp_path / "words.txt").write_text("harbor")
    changed = fingerprint(stage(ids, vocabulary=Asset(tmp_path / "words.txt"), limit=5))

    assert explain(one.parts, other.parts) == ["ids.config.limit: 10 → 5"]
    assert [line.split(":")[0] for line in explain(other.parts, changed.parts)] == ["asset", "ids.config.vocabulary"]
    assert set(one.parts) == {"ids.code", "ids.config.limit", "ids.config.vocabulary", "ids.form", "asset:words.txt"}


def test_a_stage_that_code_refers_to_counts_with_its_options() -> None:
    def using(minimum: int) -> FunctionStage[..., Any]:
        helper = stage(tokenize, min_length=minimum)

        def outer(line: str) -> Any:
            return helper(line)

        return stage(outer)

    def of_module(line: str) -> Any:
        return short(line)

    assert fingerprint(using(1)).digest == fingerprint(using(1)).digest != fingerprint(using(2)).digest
    parts = fingerprint(stage(of_module)).parts
    assert any(key.endswith("tokenize") and key.startswith("code:") for key in parts)
    assert '["min_length",2]' in "".join(parts.values())


def test_pickles_go_by_the_name_in_the_module() -> None:
    assert pickle.loads(pickle.dumps(tokenize)) is tokenize

    bound = pickle.loads(pickle.dumps(stage(tokenize, min_length=7, name="long")))
    assert (bound.function, bound.options, bound.name) == (tokenize.function, {"min_length": 7}, "long")
    plain = pickle.loads(pickle.dumps(stage(shouted, times=2)))
    assert (plain.function, plain.transform("a")) == (shouted, ["a!!"])


# Output that is not what was annotated; the DAG.


def test_outputs_of_another_type_are_named_by_function() -> None:
    @stage
    def wrong(line: str) -> dict[str, Any]:
        return [line]  # type: ignore[return-value]

    @stage
    def one(line: str) -> Iterator[str]:
        return line  # type: ignore[return-value]

    with pytest.raises(InvalidTransformOutputException) as caught:
        load_pipeline(wrong, ["a"])
    assert str(caught.value) == (
        "stage 'wrong': output 0 should be dict, got list: ['a']. Return dict from wrong(), or change its annotation."
    )
    with pytest.raises(
        InvalidTransformOutputException, match="several outputs are annotated.*got str: 'a'. Yield them"
    ):
        load_pipeline(one, ["a"])


def test_functions_stand_in_dags_beside_classes() -> None:
    class Reverse(Pipeline):
        input_type = output_type = str

        def transform(self, line: str) -> list[str]:
            return [line[::-1]]

    reverse = Reverse()
    dag = DAGPipeline({words: Input(str), reverse: words, Output("o"): reverse})

    assert dag.transform("the fog") == {"o": ["gof"]}
