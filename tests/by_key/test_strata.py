"""`Strata` and `--stratify`: the shares of each class, and what moves when records are added."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import AnalysisError, DeclarationError, TaskError
from beam_pipes.recipes import audio, images, table
from beam_pipes.runners import build
from beam_pipes.transforms.audio import write_wav
from beam_pipes.transforms.strata import SplitByStratum, Strata

SHARES = st.sampled_from(
    [{"train": 0.9, "eval": 0.1}, {"train": 0.7, "eval": 0.2, "test": 0.1}, {"train": 0.5, "eval": 0.05, "test": 0.45}]
)


def learned(strata: Strata, records: list[dict[str, object]], path: Path, *, num_shards: int = 1) -> SplitByStratum:
    """The split that an analysis of these records gives, cut into source shards."""
    assert strata.of is not None
    parts = []
    for number in range(num_shards):
        accumulator = strata.accumulator()
        for record in records[number::num_shards]:
            accumulator.add(strata.of.transform(record)["values"], [""])
        accumulator.save(str(path / f"{number}"))
        parts.append(str(path / f"{number}"))
    strata.merge(parts, str(path / "result"))
    strata.result.bind(str(path / "result"))
    return SplitByStratum(strata.result)


def splits(split: SplitByStratum, records: Iterable[dict[str, object]]) -> dict[object, str]:
    """Record's number → its split."""
    found = {record["n"]: split.transform(record) for record in records}
    return {n: name for n, outputs in found.items() for name, given in outputs.items() if given}


@settings(max_examples=25)
@given(SHARES, st.dictionaries(st.text(max_size=3), st.integers(3, 60), min_size=1, max_size=8), st.integers(1, 3))
def test_each_class_and_the_whole_have_their_shares(
    tmp_path_factory: pytest.TempPathFactory, shares: dict[str, float], sizes: dict[str, int], num_shards: int
) -> None:
    records: list[dict[str, object]] = [
        {"label": label, "n": f"{label}{n}"} for label, size in sizes.items() for n in range(size)
    ]
    records = [{**record, "n": number} for number, record in enumerate(records)]
    path = tmp_path_factory.mktemp("strata")

    found = splits(
        learned(Strata("strata", shares=shares, field="label"), records, path, num_shards=num_shards), records
    )

    totals = collections.Counter(found.values())
    counts = collections.Counter((records[n]["label"], split) for n, split in found.items())  # type: ignore[call-overload]
    ends = np.cumsum([*shares.values()])[:-1]
    assert np.abs(np.cumsum([totals[split] for split in shares])[:-1] - len(records) * ends).max() <= len(ends)
    for label, size in sizes.items():
        before = np.cumsum([counts[label, split] for split in shares])[:-1]
        assert np.abs(before - size * ends).max() < 1 + 1e-6
    if len(shares) == 2:
        assert totals["train"] == round(len(records) * shares["train"])


@settings(max_examples=25)
@given(st.lists(st.sampled_from("abc"), min_size=3, max_size=60), st.sampled_from("abc"), st.integers(0, 30))
def test_a_record_that_is_added_moves_few_others(
    tmp_path_factory: pytest.TempPathFactory, labels: list[str], added: str, seed: int
) -> None:
    labels = [*"aabbcc", *labels]
    records: list[dict[str, object]] = [{"label": label, "n": n + 1000 * seed} for n, label in enumerate(labels)]
    strata = Strata("strata", shares={"train": 0.7, "eval": 0.3}, field="label")
    path = tmp_path_factory.mktemp("strata")
    before = splits(learned(strata, records, path), records)

    more = [{"label": added, "n": -1}, *reversed(records)]
    after = splits(learned(strata, more, path, num_shards=2), more)

    moved = [record["label"] for record in records if before[record["n"]] != after[record["n"]]]
    assert moved.count(added) <= 2 and all(moved.count(other) <= 1 for other in {*"abc"} - {added}), moved


def test_records_of_one_content_stay_together(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"label": n < 30, "n": n // 3} for n in range(60)]
    split = learned(Strata("strata", shares={"train": 0.5, "eval": 0.5}, field="label"), records, tmp_path)
    outputs = [json.dumps(split.transform(record)) for record in records]
    assert outputs[::3] == outputs[1::3] == outputs[2::3]


def test_a_class_that_no_split_can_share_is_named(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"label": label, "n": n} for n, label in enumerate("aaab")]
    with pytest.raises(
        AnalysisError, match="the class 'b' of the field 'label' has 1 record, and 2 splits .* omit --stratify"
    ):
        learned(Strata("strata", shares={"train": 0.5, "eval": 0.5}, field="label"), records, tmp_path)


def test_what_is_no_class_is_refused(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"label": label, "n": n} for n, label in enumerate("aabb")]
    strata = Strata("strata", shares={"train": 0.5, "eval": 0.5}, field="label")
    split = learned(strata, records, tmp_path)
    with pytest.raises(TaskError, match=r"'label' should be a class: text, an integer or a bool; found float: 0.5"):
        split.transform({"label": 0.5})
    with pytest.raises(TaskError, match="found the fields n, m"):
        split.transform({"n": 1, "m": 2})
    with pytest.raises(TaskError, match="the class 'c' of the field 'label' was not there when classes were counted"):
        split.transform({"label": "c"})
    with pytest.raises(DeclarationError, match="expected the result of Strata"):
        SplitByStratum("strata")  # type: ignore[arg-type]
    for shares in ({"train": 1.0}, {"train": 0.9, "eval": 0.2}, {"train": 1.0, "eval": 0.0}, 0.9):
        with pytest.raises(DeclarationError, match="shares should be two splits or more, with shares above 0"):
            Strata("strata", shares=shares, field="label")  # type: ignore[arg-type]


def rows_of(cache: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    opened = Cache.open(cache)
    for split in opened.splits:
        for record in opened[split]:
            yield split, record


def test_a_table_has_exact_shares_of_each_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `train_test_split(stratify=y)` of scikit-learn counts, and few rows move when one is put at the top."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},{'rare' if n % 20 == 0 else 'often'}" for n in range(400)]
    found = []
    for added in ([], ["1000,rare"]):
        Path("a.csv").write_text("\n".join(["n,kind", *added, *rows, "x,often"]) + "\n")
        recipe = table(
            "a.csv",
            label="kind",
            types={"n": "int64"},
            splits={"train": 0.8, "eval": 0.2},
            stratify="kind",
            on_error="drop",
        )
        build(recipe.declaration(), to="cache")
        found.append({str(row["n"]): (split, int(str(row["label"]))) for split, row in rows_of("cache")})
    assert collections.Counter(found[0].values()) == {
        ("train", 0): 304, ("eval", 0): 76, ("train", 1): 16, ("eval", 1): 4
    }  # fmt: skip
    assert len(found[1]) == 401 and sum(found[1][n] != where for n, where in found[0].items()) <= 4


def test_images_and_sound_are_stratified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in range(30):
        file = Path("pets", "cat" if n < 20 else "dog", f"{n}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (n, 0, 0)).save(file)
        Path("talks").mkdir(exist_ok=True)
        write_wav(f"talks/{n}.wav", np.full(160, n / 100), 16000)
    manifest = [{"audio": f"{n}.wav", "text": "to be", "speaker": "ann" if n < 20 else "bob"} for n in range(30)]
    Path("talks/all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in manifest))
    shares = {"train": 0.5, "eval": 0.5}

    build(images("pets", splits=shares, stratify="label", resize=4).declaration(), to="of-pets")
    build(audio("talks/all.jsonl", splits=shares, stratify="speaker").declaration(), to="of-talks")

    pets = collections.Counter((split, int(str(row["label"]))) for split, row in rows_of("of-pets"))
    assert pets == {("train", 0): 10, ("eval", 0): 10, ("train", 1): 5, ("eval", 1): 5}
    talks = collections.Counter((split, str(row["speaker"])) for split, row in rows_of("of-talks"))
    assert talks == {("train", "ann"): 10, ("eval", "ann"): 10, ("train", "bob"): 5, ("eval", "bob"): 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--stratify kid --split a=0.5,b=0.5", "there is no column 'kid'. Did you mean 'kind'?"),
        ("--stratify kind", "gives each class its shares of splits: give shares .--split train=0.9,eval=0.1."),
        ("--stratify kind --split a=0.5,b=0.5 --by n", "and omit by .--by. and split_by_time"),
        ("--stratify x --split a=0.5,b=0.5", "the column 'x' is float32, and classes are text, integers or bools."),
        ("--stratify kind --split a=0.5,b=0.5", "the class 'c' of the field 'kind' has 1 record, and 2 splits"),
        ("--stratify kind --split a=0.5,b=0.5 --type kind=skip", "stratify: the column 'kind' is skipped by its type"),
    ],
)
def test_mistakes_at_the_command_line(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("kind,n,x\na,1,0.5\na,2,0.5\nc,3,0.5\n")

    result = CliRunner().invoke(app, f"table a.csv --to cache {options}".split())

    words = " ".join(str(result.exception if result.exception is not None else result.output).split())
    assert result.exit_code and re.search(message, words), words
