"""`RandomPartition`: frequencies, stability, independence, and its errors."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes import Cache, Declaration, FeatureSpec, declare, stage
from beam_pipes import build as build_cache
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.runners.replay import replay_dead
from beam_pipes.sources import CSV, FileContent, Files, TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition, load_pipeline

THREE = ["train", "eval", "test"]
# 99.9 % quantiles of chi-square with 1 and 2 degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82}


class Words(Pipeline):
    """The words of a line."""

    input_type = str
    output_type = str

    def transform(self, input_object: str) -> list[str]:
        return input_object.split()


class Text(Pipeline):
    """A line as an example."""

    input_type = str
    output_type = dict

    def transform(self, input_object: str) -> list[Any]:
        return [{"text": input_object}]


def by_speaker(example: dict[str, Any]) -> str:
    return str(example["speaker"])


def sizes(partition: RandomPartition, count: int) -> dict[str, int]:
    return {name: len(values) for name, values in load_pipeline(partition, range(count)).items()}


@pytest.mark.parametrize("seed", [0, 1, -5])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("probabilities", [[0.7, 0.2, 0.1], [0.9, 0.1], [0.5, 0.25, 0.25]])
def test_outputs_are_as_frequent_as_asked(probabilities: list[float], keyed: bool, seed: int) -> None:
    names = THREE[: len(probabilities)]
    partition = RandomPartition(int, names, probabilities, seed=seed, key=str if keyed else None)

    found = sizes(partition, 5_000)

    expected = {name: 5_000 * p for name, p in zip(names, probabilities, strict=True)}
    chi_square = sum((found[name] - expected[name]) ** 2 / expected[name] for name in names)
    assert chi_square < CHI_SQUARE[len(names) - 1]


def test_every_output_is_counted() -> None:
    loaded = load_pipeline(RandomPartition(int, ["eval", "train"], [0.1], name="Split"), range(500))

    counters = {statistic.name: statistic.count for statistic in loaded.statistics}
    assert counters == {f"Split_{name}_count": len(values) for name, values in loaded.items()}
    assert sum(counters.values()) == 500


def test_builds_and_load_pipeline_split_alike(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(60)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")

    def split(partition: RandomPartition) -> tuple[set[str], set[str]]:
        text = Text()
        dag = DAGPipeline({text: Input(str), partition: text, Output(): partition}, "Split")
        declaration = Declaration(
            name="split",
            source=TextLines(str(tmp_path), pattern="*.txt"),
            pipeline=dag,
            features={"text": FeatureSpec("str")},
        )
        build(declaration, tmp_path / partition.name, options=LocalOptions(workers=1))
        built = {example["text"] for example in Cache.open(tmp_path / partition.name)["eval"]}
        return built, {example["text"] for example in load_pipeline(dag, lines)["eval"]}

    built, loaded = split(RandomPartition(dict, ["eval", "train"], [0.3], key=lambda e: e["text"], name="keyed"))
    assert built == loaded
    built, loaded = split(RandomPartition(dict, ["eval", "train"], [0.3], name="by_record"))
    assert built == loaded


def test_the_last_output_takes_the_rest() -> None:
    short = RandomPartition(int, ["eval", "train"], [0.1])
    assert short.partition_probabilities == [0.1, 0.9]
    assert load_pipeline(short, range(500)) == load_pipeline(
        RandomPartition(int, ["eval", "train"], [0.1, 0.9]), range(500)
    )


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12))
def test_any_shares_of_a_whole_are_accepted(weights: list[int]) -> None:
    probabilities = [weight / sum(weights) for weight in weights]
    names = [f"p{position}" for position in range(len(weights))]
    assert RandomPartition(int, names, probabilities).partition_probabilities == probabilities
    rest = RandomPartition(int, names, probabilities[:-1]).partition_probabilities
    assert math.isclose(sum(rest), 1)


def test_probability_zero_and_one_are_never_and_always() -> None:
    assert sizes(RandomPartition(int, THREE, [0, 1, 0]), 500) == {"train": 0, "eval": 500, "test": 0}
    assert sizes(RandomPartition(int, ["all"], [1.0]), 5) == {"all": 5}
    assert sizes(RandomPartition(int, ["all"], []), 5) == {"all": 5}


@pytest.mark.parametrize("options", [{}, {"seed": 3}, {"key": str}])
def test_records_stay_where_they_are_when_data_grows(options: dict[str, Any]) -> None:
    before = load_pipeline(RandomPartition(int, THREE, [0.7, 0.2, 0.1], **options), range(200))
    after = load_pipeline(RandomPartition(int, THREE, [0.7, 0.2, 0.1], **options), range(400))
    for name in THREE:
        assert after[name][: len(before[name])] == before[name]


def rows_by_split(path: Path, rows: list[str], **options: Any) -> dict[str, list[str]]:
    """Which rows of a CSV file are in which split of a cache."""
    (path / "rows.csv").write_text("\n".join(["row", *rows]) + "\n")
    built = build_cache(
        "rows",
        CSV(path / "rows.csv"),
        [stored],
        splits={"train": 0.8, "eval": 0.2},
        to=path / "cache",
        workers=1,
        **options,
    )
    return {split: [example["row"] for example in Cache.open(built.path)[split]] for split in ("train", "eval")}


def stored(row: dict[str, str]) -> dict[str, str]:
    return row


def test_a_row_keeps_its_split_when_rows_are_inserted_sorted_or_removed(tmp_path: Path) -> None:
    rows = [f"row {number}" for number in range(300)]
    before = rows_by_split(tmp_path, rows)
    assert 30 < len(before["eval"]) < 90

    for changed in (["new", *rows], rows[::-1], rows[50:]):
        after = rows_by_split(tmp_path, changed)
        for split in ("train", "eval"):
            assert set(after[split]) - {"new"} == set(before[split]) & set(changed)


def test_copies_of_a_row_are_in_one_split(tmp_path: Path) -> None:
    found = rows_by_split(tmp_path, [f"row {number % 50}" for number in range(200)])
    assert found["eval"] and not set(found["train"]) & set(found["eval"])


def test_a_whole_file_keeps_its_split_when_its_content_changes(tmp_path: Path) -> None:
    def found(content: str) -> set[str]:
        for number in range(60):
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / f"in/{number}.txt").write_text(f"{content} {number}")
        source = Files(tmp_path / "in")
        build_cache("files", source, [name_of], splits={"train": 0.7, "eval": 0.3}, to=tmp_path / "cache", workers=1)
        return {example["name"] for example in Cache.open(tmp_path / "cache")["eval"]}

    assert 5 < len(found("before")) < 35
    assert found("before") == found("after")


def name_of(file: FileContent) -> dict[str, str]:
    return {"name": file.path}


def test_everything_made_of_a_record_goes_to_one_output(tmp_path: Path) -> None:
    words, partition = Words(), RandomPartition(str, ["train", "eval"], [0.5])
    dag = DAGPipeline({words: Input(str), partition: words, Output(): partition})
    found = load_pipeline(dag, [f"{number}-a {number}-b" for number in range(100)])
    train, evaluation = ({word.partition("-")[0] for word in found[name]} for name in ("train", "eval"))
    assert train and evaluation and not train & evaluation


def test_more_for_one_output_takes_only_from_the_others() -> None:
    eval_before = set(load_pipeline(RandomPartition(int, ["eval", "train"], [0.1]), range(1_000))["eval"])
    eval_after = set(load_pipeline(RandomPartition(int, ["eval", "train"], [0.2]), range(1_000))["eval"])
    assert eval_before < eval_after


def test_a_replayed_record_goes_where_a_build_sends_it(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(80)))

    def declared(bad: str) -> Declaration:
        return declare(
            "lines",
            TextLines(tmp_path / "lines.txt"),
            [stage(as_text, bad=bad)],
            splits={"train": 0.5, "eval": 0.5},
            on_error="dead_letter",
            max_bad=None,
        )

    one = LocalOptions(workers=1)
    assert build(declared("3"), tmp_path / "cache", options=one).account.dead == 8
    assert replay_dead(declared("x"), tmp_path / "cache", accept_code_change=True, options=one).account.dead == 0
    build(declared("x"), tmp_path / "whole", options=one)
    for split in ("train", "eval"):
        replayed, whole = ([row["text"] for row in Cache.open(tmp_path / name)[split]] for name in ("cache", "whole"))
        assert replayed == whole


def as_text(line: str, *, bad: str) -> dict[str, str]:
    if line.endswith(bad):
        raise ValueError(line)
    return {"text": line}


def test_a_stage_that_a_direct_call_calls_goes_by_the_content() -> None:
    partition = RandomPartition(int, ["train", "eval"], [0.5, 0.5])
    for called in (partition, DAGPipeline({partition: Input(int), Output(): partition})):

        class Chosen(Pipeline):
            input_type, output_type, inner = int, str, called

            def transform(self, input_object: int) -> list[str]:
                return [name for name, values in self.inner.transform(input_object).items() if values]

        chosen = Chosen()
        assert len({chosen.transform(7)[0] for _ in range(20)}) == 1


def test_a_key_decides_wherever_the_record_stands() -> None:
    partition = RandomPartition(int, THREE, [0.7, 0.2, 0.1], key=str)
    forwards, backwards = (load_pipeline(partition, values) for values in (range(300), reversed(range(300))))
    assert {name: sorted(values) for name, values in backwards.items()} == forwards


def test_what_has_one_key_stays_together() -> None:
    examples = [{"speaker": number % 20, "take": number} for number in range(400)]
    loaded = load_pipeline(RandomPartition(dict, ["train", "eval"], [0.5, 0.5], key=by_speaker), examples)
    train, evaluation = ({example["speaker"] for example in loaded[name]} for name in ("train", "eval"))
    assert train and evaluation and not train & evaluation


@pytest.mark.parametrize("key", [None, str])
def test_seeds_and_names_choose_independently(key: Any) -> None:
    def chosen(**options: Any) -> set[int]:
        return set(load_pipeline(RandomPartition(int, ["a", "b"], [0.5], key=key, **options), range(2_000))["a"])

    base = chosen()
    assert chosen() == base
    for other in (chosen(seed=1), chosen(name="Other")):
        # Of 1,000 values in each half 500 are expected in both; 5 standard deviations are 112.
        assert abs(len(base & other) - 500) < 112


def test_a_second_partition_by_the_same_key_splits_again() -> None:
    first = RandomPartition(int, ["held_out", "train"], [0.2], key=str)
    second = RandomPartition(int, ["eval", "test"], [0.5], key=str, name="Second")
    dag = DAGPipeline(
        {first: Input(int), second: first["held_out"], Output(): {"eval": second["eval"], "test": second["test"]}}
    )
    loaded = load_pipeline(dag, range(2_000))
    assert min(len(loaded["eval"]), len(loaded["test"])) > 100


def test_bytes_and_numbers_are_keys_too() -> None:
    for key in (lambda value: bytes([value]), lambda value: value):
        assert sizes(RandomPartition(int, ["a", "b"], [0.5], key=key), 100)["a"] in range(30, 71)


def test_choices_are_frozen() -> None:
    # Written down: a record must stay in its split from version to version.
    by_record = load_pipeline(RandomPartition(int, THREE, [0.7, 0.2, 0.1]), range(30))
    by_key = load_pipeline(RandomPartition(int, THREE, [0.7, 0.2, 0.1], seed=7, key=lambda v: f"k{v}"), range(30))
    assert (by_record["eval"], by_record["test"]) == ([8, 11, 18], [17, 22, 24])
    assert (by_key["eval"], by_key["test"]) == ([2, 19, 22, 23, 26], [3, 16, 17, 28, 29])


def test_it_is_picklable() -> None:
    partition = RandomPartition(dict, ["a", "b"], [0.5], key=by_speaker)
    copy = pickle.loads(pickle.dumps(partition))
    assert copy.transform({"speaker": 4}) == partition.transform({"speaker": 4})


@pytest.mark.parametrize(
    ("names", "probabilities", "words"),
    [
        (["a", "b"], [1.5, -0.5], "probabilities lie between 0 and 1, got [1.5, -0.5]. Give each output its share."),
        (["a", "b"], [math.nan], "probabilities lie between 0 and 1, got [nan]. Give each output its share."),
        (
            ["a", "a"],
            [0.5],
            "partition names should be distinct and at least one, got ['a', 'a']. Each names an output.",
        ),
        ([], [], "partition names should be distinct and at least one, got []. Each names an output."),
        (
            ["a", "b"],
            [0.7, 0.2],
            "expected 2 probabilities that add up to 1, or 1 and the last output takes the rest; got [0.7, 0.2] "
            "(sum 0.9) for ['a', 'b'].",
        ),
        (
            ["a", "b", "c"],
            [0.7, 0.7],
            "expected 3 probabilities that add up to 1, or 2 and the last output takes the rest; got [0.7, 0.7] "
            "(sum 1.4) for ['a', 'b', 'c'].",
        ),
    ],
)
def test_shares_and_names_that_do_not_fit_are_refused(names: list[str], probabilities: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{re.escape('RandomPartition: ' + words)}$"):
        RandomPartition(int, names, probabilities)


def test_a_key_of_another_kind_is_refused() -> None:
    message = "RandomPartition: key should give a str, bytes or an int, got float: 1.5. Return what names the group."
    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        RandomPartition(int, ["a"], [1], key=lambda value: 1.5).transform(1)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("names", "shares"), [(["eval", "train"], 0.1), ("ab", [0.1])])
def test_names_and_probabilities_are_lists(names: Any, shares: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"expected a list of names and a list of probabilities, got .*Write \[0"
    ):
        RandomPartition(str, names, shares)
