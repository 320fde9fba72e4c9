"""`beam-pipes` without arguments, and `beam-pipes new`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from beam_pipes import write_cache
from beam_pipes.commands.start import what_is_in

LINE = json.dumps({"text": "fog"}) + "\n"
CHAT = json.dumps({"conversations": [{"from": "human", "value": "fog?"}]}) + "\n"


def run(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=120)


def beam_pipes(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "beam_pipes", *arguments, at=at)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (["poem.txt"], "tokens poem.txt --tokenizer bytes"),
        (["poem.txt", "model/tokenizer.json"], "tokens poem.txt --tokenizer model/tokenizer.json"),
        (["a/1.txt.gz", "a/2.txt.gz"], "tokens 'a/*.txt.gz' --tokenizer bytes"),
        (["a/1.txt", "b/2.txt"], "tokens '**/*.txt' --tokenizer bytes"),
        (["pets/cat/1.png", "pets/dog/2.JPG"], "images pets"),
        (["1.png"], "images ."),
        (["speech/a/1.flac", "speech/b/2.wav"], "audio speech"),
        (["pets.tar"], "images pets.tar"),
    ],
)
def test_the_command_for_files_of_a_kind(files: Sequence[str], command: str, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"fog\n")

    assert [found.command for found in what_is_in(tmp_path)] == [f"beam-pipes {command} --to cache"]


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("a.jsonl", LINE, "tokens a.jsonl --tokenizer bytes"),
        ("a.jsonl", LINE.replace("text", "content"), "tokens a.jsonl --text-field content --tokenizer bytes"),
        ("a.jsonl", CHAT, "tokens a.jsonl --chat --text-field conversations --tokenizer bytes"),
        ("a.jsonl", '{"price": 3}\n', "table a.jsonl"),
        ("a.jsonl", "not JSON\n", "table a.jsonl"),
        ("a.csv", "price,label\n3,yes\n", "table a.csv --label label"),
        ("a.tsv", "text\tn\nfog\t3\n", "tokens a.tsv --tokenizer bytes"),
    ],
)
def test_fields_decide_what_rows_are_for(name: str, content: str, command: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)

    assert [found.command for found in what_is_in(tmp_path)] == [f"beam-pipes {command} --to cache"]


def test_parquet_caches_and_declarations_are_found(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["fog"], "n": [1]}), tmp_path / "a.parquet")
    write_cache(tmp_path / "made" / "points", {"train": [{"x": 1}]})
    (tmp_path / "job.py").write_text("import beam_pipes as bp\n\nmine = bp.declare('a', None, [])\nother = 3\n")
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.txt").write_text("fog\n")

    assert list(what_is_in(tmp_path)) == [
        ("declaration mine in job.py", "beam-pipes build job:mine --to cache"),
        ("cache made/points", "beam-pipes inspect made/points"),
        ("parquet: a.parquet", "beam-pipes tokens a.parquet --tokenizer bytes --to cache"),
    ]


def test_no_arguments_show_commands_that_work(tmp_path: Path) -> None:
    (tmp_path / "poem with spaces.txt").write_text("the fog comes\non little cat feet\n" * 30)

    shown = beam_pipes(at=tmp_path).stdout

    assert shown.splitlines() == [
        "text: poem with spaces.txt",
        "    beam-pipes tokens 'poem with spaces.txt' --tokenizer bytes --to cache",
        "All commands:",
        "    beam-pipes --help",
    ]
    done = subprocess.run(
        shown.splitlines()[1].replace("beam-pipes", f"{sys.executable} -m beam_pipes"),
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "beam-pipes inspect cache" in beam_pipes(at=tmp_path).stdout


def test_an_empty_directory_gets_a_project_that_runs(tmp_path: Path) -> None:
    shown = beam_pipes(at=tmp_path).stdout
    assert "Nothing to build a cache from is in this directory" in shown
    assert "\n    beam-pipes new my_job\n" in shown

    made = beam_pipes("new", "my_job", at=tmp_path)
    assert "Next: cd my_job && beam-pipes build job:declaration --to cache && python train.py" in made.stdout
    project = tmp_path / "my_job"
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", ".", at=project)
    assert tested.returncode == 0, tested.stdout
    assert beam_pipes("build", "job:declaration", "--to", "cache", at=project).returncode == 0
    assert run("train.py", at=project).stdout == "most frequent: t e o n g\n"


def test_a_project_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "mine.py").write_text("")

    assert (
        "'job' exists and is not an empty directory. Choose another name."
        in beam_pipes("new", "job", at=tmp_path).stderr
    )
    refused = beam_pipes("new", "my-job", at=tmp_path)
    assert "a project's name should be letters, digits and underscores, got 'my-job'" in refused.stderr
    assert refused.returncode == 1
    assert not (tmp_path / "my-job").exists()
