"""What commands say of a user's mistakes: one message, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError, CacheReadError, OutputError
from beam_pipes.runners import LocalOptions, build


def refused(*arguments: str | Path, error: type[BeamPipesError] = BeamPipesError) -> str:
    """What a command says where it refuses; every other error is raised."""
    with pytest.raises(error) as caught:
        CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    return str(caught.value)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mistakes")
    (directory / "in").mkdir()
    (directory / "in" / "a.txt").write_text("to be\nor not to be\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEAM_PIPES_TEST_INPUT", str(directory / "in"))
        build("sample_declarations:words", directory / "cache", options=LocalOptions(workers=1))
    return directory / "cache"


READING = [
    ("inspect",),
    ("stats",),
    ("verify",),
    ("status",),
    ("report",),
    ("duplicates",),
    ("gc",),
    ("why", "a.txt@0"),
    ("export", "--format", "parquet", "--to", "out"),
    ("export-dali-index", "--to", "out"),
]


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_manifest_that_cannot_be_read(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cache", "manifest.json").mkdir(parents=True)
    path = ["a.txt@0", "cache"] if command[0] == "why" else ["cache"]

    output = refused(command[0], *path, *command[1 + (command[0] == "why") :], error=CacheReadError)

    expected = "cache/manifest.json' cannot be read: Is a directory. Give the user that runs this permission to read it"
    assert output.removeprefix("'").removeprefix(f"{tmp_path}/").startswith(expected)


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        pytest.param(
            "os.path:join",
            "--transform os.path:join fails on a batch of 0 rows: TypeError: expected str, bytes or "
            "os.PathLike object, not dict. It should take a dict of arrays, also one without rows, and return one.",
            id="raises",
        ),
        pytest.param(
            "builtins:len", "--transform builtins:len should return a dict of arrays, got int: 3.", id="gives"
        ),
        pytest.param(
            "os.path:joined",
            "expected --transform to name a function as package.module:function, got 'os.path:joined'.",
            id="is_not_there",
        ),
        pytest.param("no_such:x", "cannot import 'no_such' of 'no_such:x': there is no module 'no_such'", id="module"),
        pytest.param("..:x", "expected the absolute name of a module, such as package.module, got '..' of", id="dots"),
    ],
)
def test_a_transform_of_batches_that_does_not_do(transform: str, words: str, cache: Path) -> None:
    assert refused(
        "doctor-loader", cache, "--split", "train", "--transform", transform, "--batch-size", "1"
    ).startswith(words)


@pytest.mark.parametrize(
    ("arguments", "path", "reason"),
    [
        pytest.param(("report", "--to", "none/page.html"), "none/page.html", "No such file or directory", id="report"),
        pytest.param(("report", "--to", "taken"), "taken", "Is a directory", id="report_at_a_directory"),
        pytest.param(("report", "--to", "file/page.html"), "file/page.html", "Not a directory", id="below_a_file"),
        pytest.param(("export", "--format", "parquet", "--to", "file/out"), "file/out", "Not a directory", id="export"),
        pytest.param(("export-dali-index", "--to", "file"), "file", "File exists", id="dali_directory"),
        pytest.param(
            ("export-dali-index", "--to", "taken"),
            "taken/words-words.tfrecord-00000-of-00001.idx",
            "Is a directory",
            id="dali_file",
        ),
    ],
)
def test_a_place_that_cannot_be_written(
    arguments: tuple[str, ...], path: str, reason: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("taken", "words-words.tfrecord-00000-of-00001.idx").mkdir(parents=True)

    output = refused(arguments[0], cache, *arguments[1:], error=OutputError)

    assert output == f"'{path}' cannot be written: {reason}. Choose a writable place in an existing directory."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


@pytest.mark.parametrize("command", ["build", "plan"])
def test_a_directory_without_a_name(
    command: str, text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    output = refused(command, "sample_declarations:words", "--to", "")

    assert output == "expected a directory, got ''. The current directory is '.'."
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "given"),
    [
        pytest.param(("--html", "page.html"), "--html", id="html"),
        pytest.param(("--converter", "lm", "--sequence-length", "x=1"), "--sequence-length, --converter", id="both"),
    ],
)
def test_options_of_tasks_are_not_ignored_for_a_cache(options: tuple[str, ...], given: str, cache: Path) -> None:
    output = refused("inspect", cache, *options)

    assert output.startswith(
        f"{given} belong to --task NAME, and '{cache}' is a cache, whose examples are shown as they"
    )


@pytest.mark.parametrize(
    "arguments", [("inspect", "-n", "-1"), ("inspect", "--start", "-1"), ("duplicates", "-n", "-1")], ids=" ".join
)
def test_numbers_of_examples_are_not_negative(
    arguments: tuple[str, ...], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, [arguments[0], str(cache), *arguments[1:]], catch_exceptions=False)

    assert result.exit_code == 2
    assert "greater than or equal to 0" in result.output


def test_a_batch_that_is_larger_than_an_epoch_has_no_steps(cache: Path) -> None:
    output = refused("who", cache, "--split", "words", "--step", "3", "--batch-size", "99999")

    assert "6 rows give no batch of 99999. Use a smaller batch_size" in output


def test_a_terminal_that_has_not_every_character_ends_no_command(cache: Path, text_input: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        sys.executable,
        "-m",
        "beam_pipes",
        "plan",
        "sample_declarations:words",
        "--to",
        str(cache.parent / "new"),
    ]

    done = subprocess.run(command, env=environment, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"bytes \u2192 " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("no_such_job:d",), "cannot import 'no_such_job' of 'no_such_job:d': there is no", id="module"),
        pytest.param(
            ("sample_declarations:words", "--setup-file", "none.py"),
            "setup_file: expected a file at 'none.py', but there is none.",
            id="setup_file",
        ),
        pytest.param(
            ("sample_declarations:words", "--extra-package", "none.tar.gz"),
            "an extra package: expected a file at 'none.tar.gz', but there is none.",
            id="extra_package",
        ),
    ],
)
def test_the_doctor_sees_what_is_missing_here_first(
    arguments: tuple[str, ...], words: str, text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)

    assert refused("doctor", *arguments).startswith(words)
    assert list((tmp_path / "tmp").iterdir()) == []
