"""Files that nobody here wrote: what the recipes read of them is what the reference reader of their kind reads.

Sixty of them here, drawn by a fixed seed, and all by `python -m benchmarks.foreign_files`. One command of each kind is
run as a whole.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from beam_pipes import Cache
from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError
from beam_pipes.sources.byte_stream import LATIN_1
from beam_pipes.tasks.vocabularies import ByteVocabulary
from benchmarks.campaigns import foreign_readers, foreign_writers
from benchmarks.campaigns.foreign_corpora import CORPORA, ON_PURPOSE, ForeignFile, chosen, files_of
from benchmarks.campaigns.foreign_readers import READERS, Bad, compared, difference_of
from benchmarks.campaigns.foreign_writers import WRITERS, Writer

NUMBER = 60


@pytest.fixture(scope="module")
def files() -> list[ForeignFile]:
    return files_of(CORPORA)


def test_packages_bring_as_many_files_as_are_counted_on() -> None:
    fewer = [(each, len(each.paths())) for each in CORPORA if each.is_there and len(each.paths()) < each.least]
    assert fewer == []


def test_files_of_all_kinds_are_read_as_their_reference_reads_them(files: list[ForeignFile]) -> None:
    on_purpose = [file for file in files if any(each.matches(file.name) for each in ON_PURPOSE)]
    others = [file for file in files if file not in on_purpose]
    tried = [*on_purpose, *chosen(others, number=NUMBER - len(on_purpose), seed=7)]

    outcomes = [compared(file) for file in tried]

    assert [f"{each.file.name}: {each.words}" for each in outcomes if each.what == "wrong"] == []
    assert len(outcomes) == NUMBER and {file.kind for file in tried} == READERS.keys()
    assert {each.file for each in outcomes if each.what == "on purpose"} == {*on_purpose}
    assert sum(each.what == "equal" for each in outcomes) > NUMBER / 2


# The campaign would notice.


@pytest.fixture
def text(tmp_path: Path) -> ForeignFile:
    path = tmp_path / "a.txt"
    path.write_bytes(b"to be\nor \xff\n")
    return ForeignFile("x/a.txt", "text", path)


def test_a_bad_record_that_both_refuse_is_counted_as_refused(text: ForeignFile) -> None:
    assert compared(text)[1:] == (
        "refused",
        "a.txt@6: expected UTF-8, found byte 0xff at byte 3 of the record: invalid start byte" + LATIN_1,
    )


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (lambda path: ["to be"], ": 1 and 2"),
        (lambda path: ["to be", "or"], "[1]: 'or' and Bad(words='')"),
        (lambda path: ["to  be", Bad("a.txt@6: no")], "[0]: 'to  be' and 'to be': a.txt@6: no"),
        (lambda path: {}["a"], "foreign error: KeyError: 'a'"),
        (lambda path: int("a.txt"), "foreign error, or without the file: ValueError: invalid literal for int() "),
    ],
)
def test_what_is_wrong_is_noticed(text: ForeignFile, ours: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "text", (ours, READERS["text"][1]))
    outcome = compared(text)
    assert outcome.what == "wrong" and outcome.words.startswith(words)


def test_a_difference_on_purpose_that_is_none_any_more_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.xz.txt").write_bytes(b"to be\n")
    monkeypatch.setattr(foreign_readers, "ON_PURPOSE", [each._replace(names="x/*") for each in ON_PURPOSE[:1]])
    outcome = compared(ForeignFile("x/a.txt", "text", tmp_path / "a.xz.txt"))
    assert outcome[1:] == ("wrong", "it does not differ any more: take it out of ON_PURPOSE")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (1, 1.0),
        (True, 1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros(2, np.uint8), np.zeros(2, np.float32)),
        (np.zeros((2, 1)), np.zeros(2)),
        ([float("nan")], [0.0]),
        ("", None),
    ],
)
def test_values_that_differ_are_distinguished(ours: object, theirs: object) -> None:
    assert difference_of(ours, ours) == ""
    assert difference_of(ours, theirs) and difference_of(theirs, ours)


# Whole commands.


def read(command: str, data: str | Path, *options: str) -> list[dict[str, Any]]:
    """The examples of the cache that a command builds."""
    arguments = [command, str(data), *options, "--to", "cache", "--workers", "1", "--no-report"]
    printed = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    return list(Cache.open("cache")["train"])


def one(files: list[ForeignFile], name: str) -> Path:
    (path,) = [file.path for file in files if file.name == name]
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
def test_images(files: list[ForeignFile]) -> None:
    there = {}
    for file in files:
        package = file.name.partition("/")[0]
        if package in ("sklearn", "sympy", "werkzeug") and file.kind == "image":
            there[f"{package}/{file.path.name}"] = file.path
            Path("pictures", package).mkdir(parents=True, exist_ok=True)
            shutil.copy(file.path, Path("pictures", package))
    drawing = next(file.path for file in files if file.path.suffix == ".svg")
    shutil.copy(drawing, "pictures/sympy/drawing.png")
    with pytest.raises(BeamPipesError, match=r"sympy/drawing\.png.* SVG"):
        read("images", "pictures", "--encode", "png")

    found = read("images", "pictures", "--encode", "png", "--on-error", "drop", "--max-bad", "all")

    assert {each["path"]: int(each["label"]) for each in found} == {
        path: sorted(("sklearn", "sympy", "werkzeug")).index(path.partition("/")[0]) for path in there
    }
    for each in found:
        pixels = np.asarray(Image.open(io.BytesIO(each["image"])))
        assert difference_of(pixels, READERS["image"][1](there[each["path"]])["white"], each["path"]) == ""


@pytest.mark.usefixtures("here")
def test_sound(files: list[ForeignFile]) -> None:
    sounds = {file.path.name: file for file in files if file.name.startswith("scipy/") and file.kind == "sound"}
    directory = next(iter(sounds.values())).path.parent
    with pytest.raises(BeamPipesError, match=r"test-.*\.wav"):
        read("audio", directory, "--sample-rate", "8000")

    found = {
        each["path"]: each["audio"]
        for each in read("audio", directory, "--sample-rate", "8000", "--on-error", "drop", "--max-bad", "all")
    }

    assert found.keys() == {name for name, file in sounds.items() if compared(file).what == "equal"}
    expected = {name: READERS["sound"][1](sounds[name].path) for name in found}
    same_rate = [name for name in found if expected[name]["rate"] == 8000]
    assert len(same_rate) > 5
    assert [difference_of(found[name], expected[name]["audio"], name) for name in same_rate] == [""] * len(same_rate)


@pytest.mark.usefixtures("here")
def test_a_table(files: list[ForeignFile]) -> None:
    path = one(files, "datatrove/assets/tokenizer_assignment.csv")

    found = read("table", path)

    types = {name: spec.dtype for name, spec in Cache.open("cache")["train"].spec.items()}
    expected = READERS["csv"][1](path)["columns"]
    assert types.keys() == expected.keys() and {*types.values()} >= {"str", "bool"}
    for name, dtype in types.items():
        values = [each[name] for each in found]
        ours = values if dtype == "str" else np.array(values, dtype)
        assert difference_of(ours, expected[name], name) == ""


@pytest.mark.usefixtures("here")
def test_tokens(files: list[ForeignFile]) -> None:
    path = one(files, "tensorflow_datasets/video/ucf101_labels.txt")

    found = read("tokens", path, "--tokenizer", "bytes", "--no-eos")

    lines = READERS["text"][1](path)
    assert len(lines) > 50
    assert [each["tokens"].tolist() for each in found] == [ByteVocabulary().encode(line) for line in lines]


# Programs that write files.


def test_programs_that_are_not_there_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    files, outcomes = foreign_writers.written(tmp_path / "made")

    assert files == [] and len(outcomes) == len(WRITERS)
    assert outcomes["vips (image)"] == "not installed: apt-get install libvips-tools"
    assert outcomes["sox (sound)"] == "not installed: apt-get install sox libsox-fmt-all"


def test_every_choice_of_a_command_is_run_and_its_file_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that is on every machine."""
    copying = Writer("cp", "coreutils", "image", ("-[p|-wrong] {[rgb8|grey16].png} {out.png}",))
    monkeypatch.setattr(foreign_writers, "WRITERS", (copying,))

    files, outcomes = foreign_writers.written(tmp_path)

    assert [file.name for file in files] == ["cp/-p rgb8.png 000.png", "cp/-p grey16.png 001.png"]
    assert outcomes == {"cp (image)": "2 files, 2 commands refused"}
    assert [compared(file).what for file in files] == ["equal", "equal"]
