"""`DropContaminated`: every planted overlap is found, nothing else is dropped, and the counts say which set it was."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import Asset, Cache, build, stage
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.sources import TextLines
from beam_pipes.transforms.dedup import DropContaminated, Overlap, letters_and_digits

WORDS = st.lists(st.sampled_from(["to", "be", "or", "not", "that", "is"]), min_size=1, max_size=40)


def written(directory: Path, name: str, texts: list[str]) -> Asset:
    (directory / name).write_text("".join(json.dumps({"q": text}) + "\n" for text in texts))
    return Asset(directory / name)


def shares_words(left: str, right: str, words: int, least: int) -> bool:
    """As slowly and plainly as it can be said."""
    long, short = left.split(), right.split()
    width = min(words, len(short))
    runs = {tuple(short[at : at + width]) for at in range(len(short) - width + 1)}
    return width >= least and any(tuple(long[at : at + width]) in runs for at in range(len(long) - width + 1))


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(WORDS, min_size=1, max_size=6), others=st.lists(WORDS, min_size=1, max_size=6))
def test_what_shares_words_is_found_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], others: list[list[str]]
) -> None:
    evaluations = [" ".join(text) for text in texts] + ["one text that is long enough"]
    asset = written(tmp_path_factory.mktemp("sets"), "a.jsonl", evaluations)
    clean = DropContaminated({"a": asset}, field="q", words=5, least_words=3)

    for other in map(" ".join, others):
        found = clean.overlap(other)
        assert (found is not None) == any(shares_words(other, each, 5, 3) for each in evaluations)
        if found is not None:
            assert f" {found.shared} " in f" {other} "


def test_planted_overlaps_are_all_found(tmp_path: Path) -> None:
    draw = random.Random(1)
    word = [f"w{number}" for number in range(5000)]
    questions = [" ".join(draw.choices(word, k=draw.randint(13, 60))) for _ in range(200)]
    clean = DropContaminated({"a": written(tmp_path, "a.jsonl", questions)}, field="q")
    for number, question in enumerate(questions):
        run = question.split()
        at = draw.randrange(len(run) - 12)
        planted = " ".join([*draw.choices(word, k=50), *run[at : at + 13], *draw.choices(word, k=50)])
        found = clean.overlap(planted.upper().replace(" ", ",  "))
        assert found is not None and found.evaluation == "a"
        assert (Path(found.record_id).name, found.shared) == (
            f"a.jsonl@{sum(len(json.dumps({'q': each})) + 1 for each in questions[:number])}",
            " ".join(run[at : at + 13]),
        )
        assert clean.overlap(" ".join([*run[at : at + 12], *draw.choices(word, k=50)])) is None


def test_a_build_counts_what_it_drops_by_set(tmp_path: Path) -> None:
    story = "it was the best of times it was the worst of times it was the age of wisdom"
    other = "four score and seven years ago our fathers brought forth upon this continent a new nation"
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(f"id,q\n1,{other}\n".encode()))
    pyarrow.parquet.write_table(pyarrow.table({"q": ["short", story]}), tmp_path / "a.parquet")
    (tmp_path / "in.txt").write_text(f"{story}\nIt was -- the best of times!\n{other.upper()}?\nto be\n")
    sets = {"a": Asset(tmp_path / "a.parquet"), "b": Asset(tmp_path / "b.csv.gz")}

    @stage
    def example(text: str) -> dict[str, object]:
        return {"text": text}

    stages = [DropContaminated(sets, field="q"), example]
    made = build("texts", TextLines(tmp_path / "in.txt"), stages, to=tmp_path / "cache", workers=2)

    assert [row["text"] for row in Cache.open(tmp_path / "cache")["train"]] == ["It was -- the best of times!", "to be"]
    assert made.account.units["DropContaminated"].dropped == {"overlaps a": 1, "overlaps b": 1}

    pyarrow.parquet.write_table(pyarrow.table({"q": ["short", "it was -- " + story[7:]]}), tmp_path / "a.parquet")
    again = build("texts", TextLines(tmp_path / "in.txt"), stages, to=tmp_path / "cache", workers=1)
    assert again.account.read == 4, "the content of a set is part of the fingerprint"


def test_a_text_per_line_and_a_normalizer_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("AAA BBB CCC\n")
    clean = DropContaminated({"a": Asset(tmp_path / "a.txt")}, words=3, normalize=str.lower)

    assert clean.overlap("x aaa bbb ccc") == Overlap("a", "a.txt@0", "aaa bbb ccc")
    assert clean.overlap("x aaa, bbb ccc") is None
    assert letters_and_digits(" Don't,\n he_said \u00e9 3.5 ") == "dont he_said \u00e9 35"


def test_options_and_sets_that_cannot_be(tmp_path: Path) -> None:
    rows = written(tmp_path, "a.jsonl", ["to be"])
    with pytest.raises(DeclarationError, match=r'evaluations should be name → Asset, such as \{"gsm8k": Asset'):
        DropContaminated({"a": "a.jsonl"})  # type: ignore[dict-item]
    with pytest.raises(DeclarationError, match=r"DropContaminated: words should be an integer of at least 1, got 0"):
        DropContaminated({"a": rows}, words=0)
    with pytest.raises(DeclarationError, match=r"say which field of .a. holds its texts, field= \(--decon.*\): q\."):
        DropContaminated({"a": rows}).overlap("x")
    with pytest.raises(DeclarationError, match=r"a row of 'a' has no field 'qq'; it has q\. Did you mean 'q'\?"):
        DropContaminated({"a": rows}, field="qq").overlap("x")
    with pytest.raises(DeclarationError, match=r"no text of 'a' \(.*\) has 8 words. Lower least_words \(--decon"):
        DropContaminated({"a": rows}, field="q").overlap("x")
    with pytest.raises(DeclarationError, match=r"of an unknown kind; known are \.csv, \.jsonl"):
        DropContaminated({"a": Asset(tmp_path / "a.xyz")}).overlap("x")
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(SourceError, match=r"DropContaminated: 'a': .*JSON"):
        DropContaminated({"a": Asset(tmp_path / "bad.jsonl")}, field="q").overlap("x")
