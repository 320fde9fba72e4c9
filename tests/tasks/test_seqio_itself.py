"""SeqIO itself, in an environment of its own, reads our caches; we read those that it builds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import beam_pipes.seqio as seqio
from beam_pipes.runners import LocalOptions, cache_tasks
from beam_pipes.tasks import MixtureRegistry, TaskRegistry, get_global_cache_dirs, set_global_cache_dirs
from beam_pipes.tasks.steps.examples import dtype_name
from tests.support import seqio_face

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(600)  # the first test waits for all of SeqIO's programs
NAMES = ["plain:pairs", "plain:with_eos", "plain:ragged", "plain:everything"]
RECORDS = [("record_seqio_names.py", "seqio_names.json"), ("seqio_answers.py", "seqio_answers.json")]


def seqio_python() -> Path:
    """The interpreter of the environment; made where it is missing, as `make test` does beforehand."""
    if not (ROOT / ".venv-seqio/.installed").exists():
        subprocess.run(["make", ".venv-seqio/.installed"], cwd=ROOT, check=True)
    return ROOT / ".venv-seqio/bin/python"


def run_programs(directory: Path, *commands: tuple[Path, list[str]]) -> list[tuple[int, str, str]]:
    """What became of each program in SeqIO's environment: its exit code, what it printed, and what it said."""
    files = [(directory / f"{number}.out", directory / f"{number}.err") for number in range(len(commands))]
    runs = [
        (str(program), arguments, str(out), str(err))
        for (program, arguments), (out, err) in zip(commands, files, strict=True)
    ]
    ran = subprocess.run(
        [seqio_python(), ROOT / "tests/support/seqio_forks.py", json.dumps(runs)],
        # Not what this process has set since: tensorflow_transform asks for a Keras that SeqIO's environment lacks.
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    codes = json.loads(ran.stdout.splitlines()[-1])
    return [(code, out.read_text(), err.read_text()) for code, (out, err) in zip(codes, files, strict=True)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Iterator[tuple[Path, list[tuple[int, str, str]]]]:
    """Caches of ours, and what became of `seqio_side.py`, which reads them and writes others, and of `RECORDS`."""
    root = tmp_path_factory.mktemp("both")
    for number in range(3):
        lines = "".join(f"to be {i} or é\tnicht {'x' * i}\n" for i in range(number, number + 5))
        (root / f"train{number}.tsv").write_text(lines, encoding="utf-8")
    (root / "valid.tsv").write_text("a\tb\n")
    (root / "vocab.txt").write_text("\n".join("[PAD] [UNK] un ##aff ##able the dog [CLS] [SEP]".split()) + "\n")
    before = os.environ.get("TASKS_DATA"), get_global_cache_dirs()
    os.environ["TASKS_DATA"] = str(root)
    set_global_cache_dirs([])
    import importlib

    from tests.support import build_tasks

    importlib.reload(build_tasks)
    cache_tasks(
        "plain:.*", root / "ours", modules_to_import=["tests.support.build_tasks"], options=LocalOptions(workers=1)
    )
    request = {
        "tasks": NAMES,
        "data": str(root),
        "read": str(root / "ours"),
        "write": str(root / "theirs"),
        "answer": str(root / "answer.json"),
        "word_pieces": str(root / "vocab.txt"),
    }
    (root / "request.json").write_text(json.dumps(request))
    recording = [(ROOT / "tests/references" / script, []) for script, _ in RECORDS]
    yield root, run_programs(root, (ROOT / "tests/support/seqio_side.py", [str(root / "request.json")]), *recording)
    set_global_cache_dirs(before[1])
    os.environ["TASKS_DATA"] = before[0] or ""


@pytest.fixture(scope="module")
def both(programs) -> tuple[Path, dict]:
    """Caches of ours and of SeqIO, and what SeqIO has read from ours."""
    root, [(code, _, said), *_] = programs
    assert code == 0, said[-4000:]
    return root, json.loads((root / "answer.json").read_text())


def comparable(example) -> dict:
    """As `seqio_side` tells examples."""
    told = {}
    for name, value in example.items():
        if isinstance(value, bytes):
            told[name] = value.decode("latin-1")
        elif np.ndim(value) >= 2:
            lists = value.tolist() if isinstance(value, np.ndarray) else value
            rows = [[item.decode() if isinstance(item, bytes) else item for item in row] for row in lists]
            told[name] = {"ragged": rows, "dtype": dtype_name(value)}
        else:
            told[name] = {"values": np.asarray(value).tolist(), "dtype": np.asarray(value).dtype.name}
    return told


@pytest.mark.parametrize("name", NAMES)
def test_seqio_reads_what_we_have_cached(both, name: str) -> None:
    _, read = both
    for split, count in (("train", 15), ("validation", 1)):
        expected = [comparable(example) for example in TaskRegistry.get(name).examples(split=split)]
        found = read[name][split]["examples"]
        assert len(found) == count
        assert sorted(map(repr, map(sorted_items, found))) == sorted(map(repr, map(sorted_items, expected)))


def sorted_items(example: dict) -> list:
    return sorted(example.items())


@pytest.mark.parametrize("name", NAMES[:3])
def test_we_read_what_seqio_has_cached(both, name: str) -> None:
    root, _ = both
    task = TaskRegistry.get(name)
    set_global_cache_dirs([str(root / "theirs")])
    try:
        for split, count in (("train", 15), ("validation", 1)):
            cached = [comparable(example) for example in task.examples(split=split, use_cached=True)]
            expected = [comparable(example) for example in task.examples(split=split)]
            assert len(cached) == count
            assert sorted(map(repr, map(sorted_items, cached))) == sorted(map(repr, map(sorted_items, expected)))
    finally:
        set_global_cache_dirs([])


@pytest.mark.parametrize("name", NAMES[:3])
def test_we_count_what_seqio_counts(both, name: str) -> None:
    root, read = both
    for split in ("train", "validation"):
        theirs = json.loads((root / "theirs" / name.replace(":", "/") / f"stats.{split}.json").read_text())
        ours = read[name][split]["stats"]
        assert {key: ours[key] for key in theirs} == theirs
        assert ours.keys() - theirs.keys() == {"inputs_chars", "targets_chars"}
    texts = [example["targets_pretokenized"] for example in TaskRegistry.get(name).examples(split="train")]
    assert read[name]["train"]["stats"]["targets_chars"] == sum(len(text.decode()) for text in texts)


def test_declarations_mean_here_what_they_mean_there(both) -> None:
    root, answers = both
    TaskRegistry.reset()
    MixtureRegistry.reset()

    ours = {**seqio_face.told(seqio), **seqio_face.word_pieces(seqio, str(root / "vocab.txt"))}

    assert ours == answers["face"]
    assert ours["rates of by_size, truncated"] == 0.5
    assert ours["injected into a dataclass"] == "{'targets': 7} ['targets'] own"


@pytest.mark.parametrize(("script", "recorded"), RECORDS)
def test_what_is_recorded_is_what_seqio_says(programs, script: str, recorded: str) -> None:
    code, printed, said = programs[1][1 + RECORDS.index((script, recorded))]
    assert code == 0, said[-4000:]

    assert json.loads(printed) == json.loads((ROOT / "tests/references" / recorded).read_text())
