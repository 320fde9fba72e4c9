"""`beam-pipes duplicates`, and `why` for a duplicate, as a user runs them."""

from __future__ import annotations

import re
from pathlib import Path

import dedup_declarations
import pytest
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError, OutputError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.transforms.dedup import cache_duplicates


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    dedup_declarations.write_planted(tmp_path / "in", files=2)
    monkeypatch.setenv(dedup_declarations.INPUT_VARIABLE, str(tmp_path / "in"))
    build("dedup_declarations:unique", tmp_path / "cache", options=LocalOptions(workers=1))
    return Cache.open(tmp_path / "cache")


def shown(*arguments: str) -> str:
    """What a command prints; its errors are raised."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_duplicates_are_counted_shown_and_written_as_a_table(cache: Cache, tmp_path: Path) -> None:
    found = cache_duplicates(cache)
    near = list(found["near"])
    assert found["near"].num_kept == len({row.kept for row in near})
    assert found.keys() == {"exact", "near"} and len(near) > 20

    output = shown("duplicates", cache.path, "-n", "1")
    assert f"exact: {len(found['exact'])} exact duplicates of " in output
    assert f"near: {len(near)} near duplicates of {len({row.kept for row in near})} records" in output
    assert f"  {near[0].removed} of {near[0].kept} (similarity {near[0].similarity:.2f})" in output
    assert near[1].removed + " of" not in output

    shown("duplicates", cache.path, "--name", "near", "--tsv", str(tmp_path / "near.tsv"))
    lines = (tmp_path / "near.tsv").read_text().splitlines()
    assert lines[0] == "removed\tkept\tkind\tsimilarity"
    assert lines[1:] == [f"{row.removed}\t{row.kept}\tnear\t{row.similarity:.3f}" for row in near]


def test_why_says_what_a_dropped_record_is_a_duplicate_of(cache: Cache) -> None:
    found = cache_duplicates(cache)
    exact, stays = next(iter(found["exact"])), next(iter(found["exact"])).kept
    near = next(row for row in found["near"] if row.removed not in found["exact"])

    output = shown("why", exact.removed, cache.path)
    assert "dropped by DropDuplicates: exact duplicate\n" in output
    assert f"  exact duplicate of {exact.kept} (similarity 1.00)\n" in output and "near" not in output
    assert f"  near duplicate of {near.kept} (similarity {near.similarity:.2f})\n" in shown(
        "why", near.removed, cache.path
    )
    assert "duplicate" not in shown("why", stays, cache.path)


def test_a_table_that_cannot_be_written(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "none" / "near.tsv"

    with pytest.raises(
        OutputError, match=f"^'{path}' cannot be written: No such file or directory. Choose a writable place"
    ):
        shown("duplicates", cache.path, "--name", "near", "--tsv", str(path))


@pytest.mark.parametrize("options", [("--name", "other"), ("--tsv", "table.tsv")])
def test_an_analyzer_has_to_be_named_where_there_are_several(cache: Cache, options: tuple[str, ...]) -> None:
    name = options[1] if options[0] == "--name" else None
    message = f"--name should be one of ['exact', 'near'], analyzers of {cache.path!r}; got {name!r}."

    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        shown("duplicates", cache.path, *options)


def test_a_cache_whose_build_looked_for_none_says_so(text_input: Path, tmp_path: Path) -> None:
    build("sample_declarations:words", tmp_path / "words", options=LocalOptions(workers=1))

    assert shown("duplicates", str(tmp_path / "words")) == "no analyzer has looked for duplicates.\n"
    words = "no analyzer of '.*words' has looked for duplicates: leave --name and --tsv out."
    with pytest.raises(DeclarationError, match=words):
        shown("duplicates", str(tmp_path / "words"), "--tsv", "table.tsv")
