"""A build that fails, or leaves nothing, never replaces a good cache: it says why, and what was there stays."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_pipes import Loader, build, declare, drop, stage
from beam_pipes.building import plan
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.progress import every
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import DeclarationError, EmptySplitError, LoaderError, SpecError, TooManyDeadLettersError
from beam_pipes.sources import JSONLines, TextLines

LINES = 200


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {number}\n" for number in range(LINES)))
    return path


@stage
def good(line: str) -> dict[str, object]:
    return {"text": line}


@stage
def failing(line: str) -> dict[str, object]:
    number = int(line.split()[1])
    if number < 30:
        raise ValueError(f"no {number}")
    return {"text": line}


@stage
def refusing(line: str) -> dict[str, object]:
    return drop("too short")


@stage
def broken(line: str) -> dict[str, object]:
    raise KeyError(line)


@stage
def nameless(line: str) -> dict[str, object]:
    return {"name": None if line == "line 7" else line}


@stage
def same(record: dict) -> dict:  # type: ignore[type-arg]
    return record


def made_by(function: object, text: Path, **options: object) -> Declaration:
    return declare("job", TextLines(text), [function], **{"on_error": "dead_letter", **options})  # type: ignore[list-item,arg-type]


@pytest.fixture
def cache(text: Path, tmp_path: Path) -> Path:
    build(made_by(good, text), to=tmp_path / "cache", workers=1)
    return tmp_path / "cache"


def published(cache: Path) -> tuple[str, int]:
    opened = Cache.open(cache)
    return opened.manifest.id, len(opened["train"])


@pytest.mark.parametrize("on_error", ["dead_letter", "drop"])
def test_more_than_a_tenth_of_failures_leaves_the_old_snapshot(cache: Path, text: Path, on_error: str) -> None:
    before = published(cache)

    with pytest.raises(TooManyDeadLettersError) as caught:
        build(made_by(failing, text, on_error=on_error), to=cache, workers=1)

    output = str(caught.value)
    assert "30 records failed, and max_bad allows a tenth (of 200 read); by stage: failing 30." in output
    assert "The first: failing, text.txt@0: ValueError: no 0; failing, text.txt@7: ValueError: no 1; " in output
    assert "Nothing was published; the published snapshot stays." in output
    assert "raise max_bad (--max-bad; None, or all, allows any number)" in output
    assert published(cache) == before


def test_a_count_that_is_passed_stops_the_shard_and_tells_what_was_dropped(cache: Path, text: Path) -> None:
    with pytest.raises(TooManyDeadLettersError) as caught:
        build(made_by(failing, text, on_error="drop", max_bad=3), to=cache, workers=1)

    assert "The first: failing, text.txt@0: ValueError: no 0; failing, text.txt@7: ValueError: no 1; " in str(
        caught.value
    )


@pytest.mark.parametrize("on_error", ["dead_letter", "drop"])
def test_features_that_cannot_be_inferred_name_the_stage_that_failed(text: Path, tmp_path: Path, on_error: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        build(made_by(broken, text, on_error=on_error), to=tmp_path / "new", workers=1)

    assert (
        "the features of 'train' are not declared, and none of the first 200 records gives an example to infer them "
        "from. The first: broken, text.txt@0: KeyError: 'line 0'; broken, text.txt@7: KeyError: 'line 1'; broken, "
        "text.txt@14: KeyError: 'line 2'. Repair the input or the stage, or declare features=..."
    ) in str(caught.value)


def test_a_missing_value_names_the_record_that_lacks_it(text: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        build(made_by(nameless, text), to=tmp_path / "new", workers=1)

    assert str(caught.value).endswith(
        "feature 'name': expected a value, got None, but a cache has no missing values. Store one that stands "
        "for it, such as float('nan') or '', or drop the record: return drop(\"no value\"). It is in example 7. It "
        "comes from record 'text.txt@49'."
    )
    assert caught.value.record == "text.txt@49"


def test_records_that_cannot_be_parsed_are_reported_where_they_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("".join(f'{{"n": {n}}}\n' if n > 20 else "{\n" for n in range(40)))
    declaration = declare(
        "job", JSONLines(tmp_path / "data.jsonl"), {"same": same}, on_error="drop", features={"n": FeatureSpec("int64")}
    )

    with pytest.raises(TooManyDeadLettersError, match=r"21 records failed.* The first: source, data.jsonl@0: .*: "):
        build(declaration, to=tmp_path / "cache", workers=1)


@pytest.mark.parametrize("max_bad", [None, 30, 0.15])
def test_more_are_published_where_that_is_declared(cache: Path, text: Path, max_bad: float | None) -> None:
    build(made_by(failing, text, max_bad=max_bad), to=cache, workers=1)
    assert published(cache)[1] == LINES - 30


def test_a_few_records_may_lose_up_to_ten(text: Path, tmp_path: Path) -> None:
    text.write_text("".join(f"line {number}\n" for number in range(20, 60)))
    build(made_by(failing, text), to=tmp_path / "few", workers=1)
    assert published(tmp_path / "few")[1] == 30


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (
            refusing,
            {},
            "none of the 200 records that were read is left. By stage, refusing: too short 200.",
        ),
        (
            broken,
            {"max_bad": None},
            "By stage, broken: failed 200. The first: broken, text.txt@0: KeyError: 'line 0'",
        ),
    ],
)
def test_nothing_left_is_refused(
    cache: Path, text: Path, function: object, options: dict[str, object], words: str
) -> None:
    before = published(cache)

    with pytest.raises(EmptySplitError) as caught:
        build(made_by(function, text, features={"text": FeatureSpec("str")}, **options), to=cache, workers=1)

    assert words in str(caught.value)
    assert (
        "if this is what you want, allow it: --allow-empty of the command, such as table, or allow_empty=True of a"
        in str(caught.value)
    )
    assert published(cache) == before


def test_an_input_without_records_is_refused(cache: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    before = published(cache)
    declaration = declare("job", TextLines(empty), [good], features={"text": FeatureSpec("str")})

    with pytest.raises(EmptySplitError, match="no record was found in its input. Nothing was published.*--allow-empty"):
        build(declaration, to=cache, workers=1, overwrite=True)
    with pytest.raises(EmptySplitError, match="no record was found in its input"):
        build(declaration, to=tmp_path / "new", workers=1)
    assert published(cache) == before

    build(dataclasses.replace(declaration, allow_empty=True), to=tmp_path / "new", workers=1)
    assert len(Cache.open(tmp_path / "new")["train"]) == 0


def test_a_split_that_had_records_is_not_emptied(text: Path, tmp_path: Path) -> None:
    def splits(**shares: float) -> Declaration:
        return declare("job", TextLines(text), [good], splits=shares)

    build(splits(train=0.5, eval=0.5), to=tmp_path / "cache", workers=1)
    before = published(tmp_path / "cache")
    with pytest.raises(EmptySplitError, match=r"the split 'eval' would have no records, and has \d+ now\. Nothing was"):
        build(splits(train=1.0, eval=0.0), to=tmp_path / "cache", workers=1)
    assert published(tmp_path / "cache") == before

    allowed = dataclasses.replace(splits(train=1.0, eval=0.0), allow_empty=True)
    build(allowed, to=tmp_path / "cache", workers=1)
    with pytest.raises(LoaderError, match="'eval' of .*: there are no rows to read: the split is empty"):
        Loader(tmp_path / "cache" / "eval", batch_size=4)


def test_a_split_that_never_had_records_may_be_empty(text: Path, tmp_path: Path) -> None:
    """A share of few records may be none."""
    declaration = declare("job", TextLines(text), [good], splits={"train": 1.0, "eval": 0.0})
    build(declaration, to=tmp_path / "cache", workers=1)
    assert len(Cache.open(tmp_path / "cache")["eval"]) == 0


def test_a_share_in_words_is_a_tenth(text: Path) -> None:
    with pytest.raises(DeclarationError, match=r"'tenth' or None, got 'half'"):
        made_by(good, text, max_bad="half")


def test_inferring_features_says_where_it_is_when_it_takes_long(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def asleep(line: str) -> dict[str, object]:
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        return {"text": line}

    def noting(secs: float, look: Callable[[], None], *, name: str) -> contextlib.AbstractContextManager[None]:
        return every(secs, lambda: said.append(look()), name=name)

    said: list[None] = []
    monkeypatch.setattr(plan, "SLOW_SECS", 0.05)
    monkeypatch.setattr(plan, "every", noting)

    build(made_by(asleep, text), to=tmp_path / "cache", workers=1)

    output = capfd.readouterr().err
    assert re.search(
        r"beam-pipes: inferring features from the first records of declaration 'job' has taken \d+ s, and is at "
        r"test_what_is_refused\.py, line \d+\. Limits of records do not apply to it: declare features=\.\.\. to build ",
        output,
    )
