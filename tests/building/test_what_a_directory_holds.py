"""A build replaces no other cache, and keeps its input and its cache apart."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from beam_pipes import Cache, build, write_cache
from beam_pipes.cache import FeatureSpec
from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError
from beam_pipes.report.distributions import drifts, sampled_numbers
from beam_pipes.sources import FileContent, Files, TextLines


def text(line: str) -> dict[str, str]:
    return {"text": line}


def size(file: FileContent) -> dict[str, int]:
    return {"size": len(file.content)}


@pytest.fixture
def lines(tmp_path: Path) -> TextLines:
    (tmp_path / "lines.txt").write_text("a\nb\n")
    return TextLines(tmp_path / "lines.txt")


def test_a_declaration_of_another_name_needs_overwrite(lines: TextLines, tmp_path: Path) -> None:
    build("first", lines, [text], to=tmp_path / "cache")

    with pytest.raises(
        DeclarationError, match="holds the cache 'first', and the declaration is called 'second'"
    ) as caught:
        build("second", lines, [text], to=tmp_path / "cache")

    assert "Pass overwrite=True (--overwrite) to do so." in str(caught.value)
    assert Cache.open(tmp_path / "cache").manifest.name == "first"
    build("second", lines, [text], to=tmp_path / "cache", overwrite=True)
    assert Cache.open(tmp_path / "cache").manifest.name == "second"


@pytest.mark.parametrize(
    ("source", "to", "words"),
    [
        pytest.param("in", "in", "the cache '.*in' lies inside of the input '.*in'", id="same"),
        pytest.param("in", "in/cache", "the cache '.*cache' lies inside of the input", id="cache_in_input"),
        pytest.param("in/**", "in/cache", "lies inside of the input '.*in/\\*\\*'", id="cache_in_glob"),
        pytest.param("link/*/**", "in/deep/a/cache", "lies inside of the input '.*link/", id="cache_in_glob_by_link"),
    ],
)
def test_input_and_cache_are_kept_apart(tmp_path: Path, source: str, to: str, words: str) -> None:
    (tmp_path / "in/deep").mkdir(parents=True)
    for name in ("in/a.bin", "in/deep/b.bin"):
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "link").symlink_to("in")

    with pytest.raises(DeclarationError, match=words):
        build("files", Files(tmp_path / source), [size], to=tmp_path / to)

    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a.bin", "deep"]


@pytest.mark.parametrize("to", ["pics", "pics/a/cache", "link/cache"])
def test_a_recipe_builds_to_no_directory_among_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    (tmp_path / "pics/a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "pics/a/1.png")
    (tmp_path / "link").symlink_to("pics")
    monkeypatch.chdir(tmp_path)

    found = CliRunner().invoke(app, ["images", "pics", "--to", to, "--no-report"])

    assert re.search(
        f"the cache '{to}' lies inside of the input '.*pics'. Build to a directory beside it", str(found.exception)
    )
    assert [path.name for path in (tmp_path / "pics").iterdir()] == ["a"]


def test_the_command_says_how_large_the_splits_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("x\n" + "1\n" * 50)
    command = ["table", "rows.csv", "--split", "train=0.8,eval=0.2", "--to", "cache", "--no-report"]
    monkeypatch.chdir(tmp_path)

    shown = CliRunner().invoke(app, command).output

    # Fifty copies of one row are all in one split.
    assert "Examples of each split: eval 0 (0.0%), train 50 (100.0%).\n" in shown
    assert "Warning: the split 'eval' is empty. Nothing that was read belongs to it: check its share or key." in shown


@pytest.mark.parametrize(("copies", "is_told"), [(45, True), (0, False)])
def test_a_split_far_from_its_share_is_reported(
    copies: int, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a record are in one split, whatever its share."""
    rows = ["1"] * copies + [f"{number}" for number in range(2, 2000 if copies == 0 else 60)]
    (tmp_path / "rows.csv").write_text("x\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)

    shown = (
        CliRunner()
        .invoke(app, ["table", "rows.csv", "--split", "train=0.8,eval=0.2", "--to", "cache", "--no-report"])
        .output
    )

    words = " ".join(shown.split())
    assert ("examples (" in words and "and its share is 20.0%. Shares are drawn by the content of" in words) == is_told
    assert "Examples of each split: eval" in words


def test_numbers_of_a_record_are_sampled_all_over_it(tmp_path: Path) -> None:
    """The last of 100 rows differs from the others: it has its share in what is looked at."""
    pixels = np.zeros((100, 64), np.uint8)
    pixels[99] = 200
    write_cache(
        tmp_path / "cache", {"train": [{"x": pixels}] * 50}, features={"x": FeatureSpec("uint8", shape=(100, 64))}
    )

    (found,) = sampled_numbers(Cache.open(tmp_path / "cache"), "train").values()

    assert len(found) == 50 * 64 and 0.002 < (found == 200).mean() < 0.025


@pytest.mark.parametrize(
    ("before", "after", "drifted"),
    [
        pytest.param(
            lambda at: np.arange(21.0), lambda at: np.arange(21.0) + 99 * (np.arange(21) == 5), "x[..., 5]", id="column"
        ),
        pytest.param(lambda at: np.ones(100), lambda at: np.where(np.arange(100) < 50, 1, np.nan), "x", id="nan"),
        pytest.param(lambda at: "cat" if at % 2 else "act", lambda at: "cat", "x", id="class"),
        pytest.param(lambda at: bytes(90), lambda at: bytes(60) + b"z" * 30, "x", id="bytes"),
        pytest.param(lambda at: f"text {at}", lambda at: f"text {at + 500}", None, id="none"),
        pytest.param(
            lambda at: np.random.default_rng(at).random(64),
            lambda at: np.random.default_rng(at + 500).random(64),
            None,
            id="chance",
        ),
    ],
)
def test_drift_is_looked_for_in_every_kind_of_feature(
    tmp_path: Path, before: Any, after: Any, drifted: str | None
) -> None:
    for name, value in (("before", before), ("after", after)):
        write_cache(tmp_path / name, {"train": [{"x": value(at)} for at in range(100)]})

    found = [
        each
        for each in drifts(Cache.open(tmp_path / "before"), Cache.open(tmp_path / "after"))
        if each.quantity != "length" and each.verdict != "none"
    ]

    assert {each.name for each in found} == ({drifted} if drifted else set())


def test_a_default_timeout_of_sockets_does_not_end_workers(lines: TextLines, tmp_path: Path) -> None:
    """Beam's sign-in to Google sets one for the whole process."""
    socket.setdefaulttimeout(60)
    try:
        assert build("lines", lines, [text], to=tmp_path / "cache", workers=2, target_shard_bytes=2).num_shards == 2
    finally:
        socket.setdefaulttimeout(None)
