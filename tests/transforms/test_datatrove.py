"""datatrove's filters and formatters as stages: their verdicts, our accounts, the same bytes on every runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from built_files import built_files
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4BadWordsFilter,
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LambdaFilter,
    RegexFilter,
    SamplerFilter,
)
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.formatters import PIIFormatter, SymbolLinesFormatter
from datatrove.pipeline.writers import JsonlWriter

from beam_pipes import Cache, FeatureSpec, declare, stage
from beam_pipes.errors import DeclarationError, StageError, TaskError
from beam_pipes.identity.fingerprint import explain, fingerprint
from beam_pipes.runners import BeamOptions, LocalOptions, build
from beam_pipes.sources import JSONLines, TextLines
from beam_pipes.transforms.datatrove import from_datatrove

SENTENCE = "The people of the town have to be quick and kind, that is the rule with us."
PAGES = [
    {"text": " ".join([f"{SENTENCE} Page {n} says so."] * 4), "url": f"https://a.org/{n}", "n": n} for n in range(60)
]
for number in range(0, 60, 5):
    PAGES[number]["text"] = f"Too short, page {number}."
for number in range(1, 60, 10):
    PAGES[number]["text"] += " # # # # # # # # # # # # # # # # #"
for number in range(2, 60, 10):
    PAGES[number]["text"] += f" Write to person{number}@example.net or to other@example.net."


class Short(BaseFilter):
    """A filter of a user's own, which takes batches and notes what it found."""

    def __init__(self, most: int = 200) -> None:
        super().__init__(batch_size=8)
        self.most = most

    def filter(self, doc: Document) -> bool:
        raise AssertionError("a filter of batches is called with batches")

    def filter_batch(self, batch: list[Document]) -> list[bool | tuple[bool, str]]:
        for document in batch:
            document.metadata["length"] = len(document.text)
        return [len(document.text) <= self.most for document in batch]


@stage
def stored(record: dict[str, Any]) -> dict[str, object]:
    return {"text": record["text"], "n": record["n"]}


@stage
def of_text(text: str) -> dict[str, object]:
    return {"text": text}


FEATURES = {"text": FeatureSpec("str"), "n": FeatureSpec("int32")}


def declaration() -> Any:
    stages = [from_datatrove(GopherQualityFilter()), from_datatrove(PIIFormatter()), stored]
    return declare("pages", JSONLines("pages"), stages, features=FEATURES, target_shard_bytes=2000)


def by_datatrove() -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What the library's own pipeline keeps, a document at a time, and how often it gave each reason."""
    quality = GopherQualityFilter()
    documents = [Document(page["text"], str(page["n"]), metadata={"n": page["n"]}) for page in PAGES]
    kept = [
        next(iter(PIIFormatter().run(iter([document])))) for document in quality.run(iter(documents))
    ]  # replacements in turns: those of each document begin anew
    reasons = {
        name.removeprefix("dropped_"): int(value.total)
        for name, value in quality.stats.stats.items()
        if name.startswith("dropped_")
    }
    return [{"text": document.text, "n": document.metadata["n"]} for document in kept], reasons


def test_the_verdicts_are_datatroves_and_every_runner_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pages").mkdir()
    Path("pages/pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in PAGES))
    expected, reasons = by_datatrove()
    assert reasons == {"gopher_short_doc": 12, "gopher_too_many_hashes": 6}

    local = build(declaration(), "local", options=LocalOptions(workers=2))

    split = Cache.open(local.path)["train"]
    assert [{"text": split[row]["text"], "n": int(split[row]["n"])} for row in range(len(split))] == expected
    assert any("email@example.com or to firstname.lastname@example.org" in example["text"] for example in expected)
    assert local.account.units["GopherQualityFilter"].dropped == reasons
    build(declaration(), "alone", options=LocalOptions(workers=1))
    build(declaration(), "beam", options=BeamOptions())
    assert built_files(Path("alone")) == built_files(Path("beam")) == built_files(Path("local"))
    assert build(declaration(), "local", options=LocalOptions(workers=2)).up_to_date


def test_what_a_step_counts_changes_and_notes_comes_out() -> None:
    quality = from_datatrove(C4QualityFilter(min_num_sentences=1), field="body")
    page = {
        "id": "x1",
        "body": "Turn on JavaScript to see this page.\nThis is a full sentence.\nno end",
        "url": "a.org",
    }

    assert quality.transform(page) == [{"id": "x1", "body": "This is a full sentence.", "url": "a.org"}]
    statistics = [str(each) for each in quality.get_stats()]
    assert "C4QualityFilter_line-total: 3" in statistics
    assert "C4QualityFilter_line-filter-javascript: 1" in statistics

    short = from_datatrove(Short())
    assert short.transform({"text": "abc"}) == [{"text": "abc", "length": 3}]
    assert short.transform({"text": "a" * 201}) == [] and short._drops == ["filtered"]


def test_records_may_be_texts() -> None:
    symbols = from_datatrove(SymbolLinesFormatter(), field=None)
    assert symbols.transform("a\n---\nb") == ["a\nb"]
    long = from_datatrove(LambdaFilter(lambda document: len(document.text) > 3), field=None)
    assert (long.transform("abc"), long.transform("abcd")) == ([], ["abcd"])

    assert declare("texts", TextLines("x"), [symbols, long, of_text]).name == "texts"


def test_the_users_own_step_is_left_as_it_is() -> None:
    step = PIIFormatter()
    formatter = from_datatrove(step)

    once = [formatter.transform({"text": "a@b.com"}) for _ in range(2)]

    assert once == [[{"text": "email@example.com"}]] * 2
    assert step.format("a@b.com") == "email@example.com" and step.format("a@b.com") != "email@example.com"
    assert fingerprint(from_datatrove(step)).digest == fingerprint(formatter).digest  # where it stands does not count


class TestFingerprints:
    def test_options_and_code_count_and_parts_name_them(self) -> None:
        one, other = (fingerprint(from_datatrove(GopherQualityFilter(min_doc_words=words))) for words in (50, 40))
        lines = explain(one.parts, other.parts)
        assert lines == ["GopherQualityFilter.config.step.options.min_doc_words: 50 → 40"]
        versions = [key for key in one.parts if ".versions." in key]
        assert versions == [f"GopherQualityFilter.config.step.versions.{each}" for each in ("datatrove", "spacy")]

        own = fingerprint(from_datatrove(Short())).parts
        assert any(key.endswith(".Short") and key.startswith("code:") for key in own)
        lambdas = [LambdaFilter(lambda d: len(d.text) > 3), LambdaFilter(lambda d: len(d.text) > 4)]
        assert len({fingerprint(from_datatrove(each)).digest for each in lambdas}) == 2

    def test_they_are_the_same_in_every_process(self) -> None:
        program = (
            "import datatrove.pipeline.filters as f, datatrove.pipeline.formatters as m\n"
            "from beam_pipes.identity.fingerprint import fingerprint\n"
            "from beam_pipes.transforms.datatrove import from_datatrove\n"
            "steps = [f.GopherQualityFilter(), f.GopherRepetitionFilter(), f.C4QualityFilter(), f.C4BadWordsFilter(),\n"
            "         f.FineWebQualityFilter(), f.RegexFilter('a'), m.PIIFormatter(), m.SymbolLinesFormatter()]\n"
            "print([fingerprint(from_datatrove(step)).digest for step in steps])"
        )
        found = {
            subprocess.run(
                [sys.executable, "-c", program],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
            for seed in ("1", "2")
        }
        steps = [
            GopherQualityFilter(),
            GopherRepetitionFilter(),
            C4QualityFilter(),
            C4BadWordsFilter(),
            FineWebQualityFilter(),
            RegexFilter("a"),
            PIIFormatter(),
            SymbolLinesFormatter(),
        ]
        assert found == {f"{[fingerprint(from_datatrove(step)).digest for step in steps]}\n"}


def test_nothing_is_asked_of_a_network() -> None:
    program = (
        "import socket\n"
        "def refuse(*args): raise OSError('a connection was opened')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
        "from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter\n"
        "from beam_pipes.transforms.datatrove import from_datatrove\n"
        "quality = GopherQualityFilter(min_doc_words=1, min_stop_words=0)\n"
        "for step in (quality, GopherRepetitionFilter(top_n_grams=())):\n"
        "    print(from_datatrove(step).transform({'text': 'on little cat feet the fog comes silently'}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "[{'text': 'on little cat feet the fog comes silently'}]\n" * 2


class TestWhatIsRefused:
    def test_what_is_not_a_filter(self) -> None:
        with pytest.raises(
            DeclarationError, match=r"takes a filter or a formatter of datatrove's, got JsonlWriter. Rea"
        ):
            from_datatrove(JsonlWriter("out"))
        with pytest.raises(DeclarationError, match=r"got GopherQualityFilter. Write GopherQualityFilter\(\), with its"):
            from_datatrove(GopherQualityFilter)
        with pytest.raises(
            DeclarationError, match=r"field should be the name of the text in a record, or None, got ''"
        ):
            from_datatrove(PIIFormatter(), field="")

    def test_what_would_depend_on_the_order_or_write_beside_the_build(self) -> None:
        with pytest.raises(
            DeclarationError, match=r"SamplerFilter draws random numbers in the order of documents \(uni"
        ):
            from_datatrove(SamplerFilter(0.5))
        with pytest.raises(DeclarationError, match=r"C4BadWordsFilter draws random numbers"):
            from_datatrove(C4BadWordsFilter(keep_fraction=0.1))
        with pytest.raises(
            DeclarationError, match=r"GopherQualityFilter has an exclusion_writer, and tasks of a build"
        ):
            from_datatrove(GopherQualityFilter(exclusion_writer=JsonlWriter("out")))

    def test_a_record_without_the_text(self, tmp_path: Path) -> None:
        words = r"a record should have a text in 'text', found NoneType among body, url. Name the field: from_datatrove"
        with pytest.raises(TaskError, match=words):
            from_datatrove(PIIFormatter()).transform({"body": "a", "url": "b"})
        (tmp_path / "pages.jsonl").write_text('{"text": 3, "n": 1}\n')
        source = JSONLines(tmp_path / "pages.jsonl")
        declared = declare("pages", source, [from_datatrove(PIIFormatter()), stored], features=FEATURES)
        with pytest.raises(StageError, match=r"stage 'PIIFormatter' failed on record 'pages.jsonl@0'.*found int among"):
            build(declared, tmp_path / "cache", options=LocalOptions(workers=1))
