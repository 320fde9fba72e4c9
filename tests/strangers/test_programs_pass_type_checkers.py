"""Programs as the documentation has them, before pyright and mypy: words about mistakes, and none about the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYRIGHT = Path(sys.executable).with_name("basedpyright")

PROGRAM = """
import dataclasses
from collections.abc import Iterator

from beam_pipes import (
    Cache,
    DataLoader,
    Declaration,
    FeatureSpec,
    Loader,
    Pipeline,
    build,
    count,
    drop,
    stage,
    write_cache,
)
from beam_pipes.loader import Mixture, pack, random_access
from beam_pipes.map_style import batch_text_id
from beam_pipes.sources import CSV, Tar, TextLines


@stage
def tokenize(line: str) -> dict[str, object]:
    count("words", len(line.split()))
    if not line:
        return drop("empty")
    return {"text": line}


@stage(batched=True)
def upper(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]


def words(line: str) -> Iterator[dict[str, object]]:
    for word in line.split():
        yield {"word": word}


def label(sample: dict[str, object]) -> dict[str, object]:
    return {"key": sample["__key__"]}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Split(Pipeline):
    input_type = str
    output_type = dict
    min_words: int = 1

    def transform(self, line: str) -> list[dict[str, object]]:
        return [{"words": line.split()}] if len(line.split()) >= self.min_words else []


build("poem", TextLines("poem.txt"), [upper, tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")
build("words", TextLines("poem.txt"), [words], splits={"train": 1.0}, to="words", max_bad=0.01)
build("tars", Tar("tars"), [label], splits={"train": 1.0}, to="tars")
features = {"words": FeatureSpec("str", shape=(None,))}
declaration = Declaration(name="x", source=TextLines("poem.txt"), pipeline=Split(min_words=2), features=features)
write_cache("by_hand", {"train": [{"x": 1}]}, features={"x": FeatureSpec("int64")})

for batch in Loader("cache/train", batch_size=32, last="pad"):
    print(batch["text"].shape)
cache = Cache.open("cache")
mixed = Loader(Mixture([(cache["train"], 1), (cache["eval"], 2)]), batch_size=4)
mixed.load_state_dict(mixed.state_dict())
packed = Loader(pack(cache["train"], sequence_length=64), batch_size=4, epochs=None)
print(packed.batch_at(3)["text"].dtype)
loader = DataLoader.from_cache("cache/train", batch_size=2)
loader.set_epoch(loader.epoch + 1)
for tensors in loader.to_torch():
    print(tensors)
print(batch_text_id([[5, 6], [7]]).shape)
ids, lengths = batch_text_id([[5, 6], [7]], return_lengths=True)
print(ids[:, 0] + 1, lengths.max())


def first(example: dict[str, object]) -> object:
    return example["text"]


print(random_access(cache["train"], transform=first)[0])
for example in cache["train"]:
    print(example["text"].upper())
rows = cache["train"].gather([2, 0], pad_to={"words": 8}, pad_value={"words": -1})
print(rows["words"].astype("float32").mean(axis=0))
build("table", CSV("t.csv", schema={"n": int, "x": float | None, "y": "uint8"}), [label], to="table")
"""
MISTAKES = [
    'Loader("cache/train", batch_size=32, last="padd")',
    'Loader("cache/train", batch_size="32")',
    'Loader("cache/train")',
    'build("poem", TextLines("poem.txt"), [tokenize], splitz={"train": 1.0}, to="cache")',
    'FeatureSpec("int64", shapes=(None,))',
    "Loader(3, batch_size=32)",
    "Mixture([(cache, 1)])",
    "pack(7, sequence_length=64)",
    'Cache.open("cache", proto="tensorflow.Example")',
    "batch_text_id([[5]]).append(1)",
    "batch_text_id([[5]], padd_id=1)",
    'write_cache("by_hand", {"train": [7]})',
    "from beam_pipes import Mixtures",
]


def complaints(program: str, directory: Path, setting: str) -> list[tuple[int, str]]:
    """(line, words) of what pyright says in the setting "basic" or "strict", or mypy with --strict."""
    (directory / "program.py").write_text(program)
    if setting == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--follow-imports=silent"]
        command += ["--cache-dir", os.devnull, "program.py"]  # what nobody would read again
        env = {**os.environ, "MYPYPATH": str(ROOT)}
        done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)
        found = re.findall(r"^program\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
        return [(int(line), words) for line, words in found]
    (directory / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": setting, "extraPaths": [str(ROOT)]}))
    command = [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    output = json.loads(done.stdout)["generalDiagnostics"]
    return [(one["range"]["start"]["line"] + 1, one["message"]) for one in output]


def test_what_is_right_passes_the_strict_setting_without_a_word(tmp_path: Path) -> None:
    assert complaints(PROGRAM, tmp_path, "strict") == []


@pytest.mark.parametrize("setting", ["basic", "mypy"])
def test_what_is_wrong_is_seen_and_nothing_else(setting: str, tmp_path: Path) -> None:
    found = complaints(PROGRAM + "\n".join(MISTAKES), tmp_path, setting)

    first = PROGRAM.count("\n") + 1
    assert {line for line, _ in found} == set(range(first, first + len(MISTAKES))), found
    assert any("padd" in words and "pad" in words.replace("padd", "") for _, words in found)
