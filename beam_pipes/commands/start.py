"""The first minute: what `beam-pipes` without arguments finds where it stands, and `beam-pipes new`."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import typer

from beam_pipes.commands.caches import console
from beam_pipes.errors import BeamPipesError, DeclarationError, visible
from beam_pipes.publication.publish import published_id
from beam_pipes.recipes.images import IMAGE_SUFFIXES
from beam_pipes.recipes.media_files import is_hidden
from beam_pipes.recipes.row_files import FORMAT_OF_SUFFIX, sampled
from beam_pipes.sources.byte_stream import CODEC_OF_SUFFIX
from beam_pipes.sources.tables import opened_parquet
from beam_pipes.transforms.audio.sound_files import AUDIO_SUFFIXES

#: Files that are looked at, so that the answer comes at once in a home directory too.
FILES_LOOKED_AT = 20_000
#: Fields that hold texts and conversations, by the names that people give them.
TEXT_FIELDS = ("text", "content", "body")
CHAT_FIELDS = ("messages", "conversations", "conversation")


class Found(NamedTuple):
    """Something to work with, and the command to type."""

    what: str
    command: str


def show_what_is_here() -> None:
    """What the working directory holds, and which command fits it."""
    found = list(what_is_in(Path()))
    for what, command in found:
        # Not wrapped: a command is to be copied.
        console.print(f"{visible(what)}\n    {command}", markup=False, soft_wrap=True)
    if not found:
        console.print("Nothing to build a cache from is in this directory: no text, table, image or sound file.")
        console.print("A project that runs, to start from:\n    beam-pipes new my_job")
    console.print("All commands:\n    beam-pipes --help")


def what_is_in(directory: Path) -> Iterator[Found]:
    """The declarations, caches and data of a directory, each with the command that fits it."""
    for module, name in _declarations(directory):
        yield Found(f"declaration {name} in {module}.py", f"beam-pipes build {module}:{name} --to cache")
    files, caches = _files_and_caches(directory)
    for cache in caches:
        yield Found(f"cache {cache}", f"beam-pipes inspect {shlex.quote(cache)}")
    by_kind: dict[str, list[str]] = {}
    for file in files:
        if kind := _kind_of(file):
            by_kind.setdefault(kind, []).append(file)
    for kind, named in by_kind.items():
        recipe, options = _recipe(directory, kind, named, files)
        is_media = kind in ("images", "sound")
        data = os.path.commonpath([os.path.dirname(file) or "." for file in named]) or "." if is_media else _glob(named)
        example = named[0] if len(named) == 1 else f"{len(named):,} files, such as {named[0]}"
        command = ["beam-pipes", recipe, data, *options, "--to", "cache"]
        yield Found(f"{kind}: {example}", shlex.join(command))


def _files_and_caches(directory: Path) -> tuple[list[str], list[str]]:
    """Relative names of files that are neither hidden nor part of a cache, and of caches."""
    files: list[str] = []
    caches: list[str] = []
    for at, folders, names in os.walk(directory):
        here = os.path.relpath(at, directory)
        if published_id(at):
            caches.append(here)
            folders.clear()
            continue
        folders[:] = sorted(folder for folder in folders if not is_hidden(folder) and folder != "__pycache__")
        files += (os.path.normpath(os.path.join(here, name)) for name in sorted(names) if not is_hidden(name))
        if len(files) >= FILES_LOOKED_AT:
            break
    return files[:FILES_LOOKED_AT], caches


def _declarations(directory: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of what `declare` or `Declaration` made at the top of a file of this directory."""
    for file in islice(sorted(directory.glob("*.py")), 200):
        try:
            body = ast.parse(file.read_bytes()).body
        except (SyntaxError, ValueError):
            continue
        for node in body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if called in ("declare", "Declaration"):
                yield from ((file.stem, name.id) for name in node.targets if isinstance(name, ast.Name))


def _kind_of(file: str) -> str | None:
    """`"images"`, `"sound"`, or the format of a file of rows: `corpus/a.jsonl.zst` → `"json"`."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(file).suffixes]
    if suffixes and suffixes[-1] in CODEC_OF_SUFFIX:
        suffixes.pop()
    if not suffixes:
        return None
    if suffixes[-1] in IMAGE_SUFFIXES:
        return "images"
    if suffixes[-1] in AUDIO_SUFFIXES:
        return "sound"
    return FORMAT_OF_SUFFIX.get(suffixes[-1]) if not _is_tokenizer(file) else None


def _is_tokenizer(file: str) -> bool:
    name = PurePosixPath(file).name
    return name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json") or name.endswith(".model")


def _recipe(directory: Path, kind: str, named: list[str], files: Iterable[str]) -> tuple[str, list[str]]:
    """The recipe for files of one kind, and its options."""
    if kind in ("images", "sound"):
        return ("images" if kind == "images" else "audio"), []
    tokenizer = next((file for file in files if PurePosixPath(file).name == "tokenizer.json"), "bytes")
    if kind == "text":
        return "tokens", ["--tokenizer", tokenizer]
    fields = [] if kind == "tar" else _fields(directory / named[0], kind)
    if field := next((name for name in CHAT_FIELDS if name in fields), None):
        return "tokens", ["--chat", *_named(field, "messages"), "--tokenizer", tokenizer]
    if field := next((name for name in TEXT_FIELDS if name in fields), None):
        return "tokens", [*_named(field, "text"), "--tokenizer", tokenizer]
    if kind == "tar":
        return "images", []
    label = next((name for name in ("label", "class", "target") if name in fields), None)
    return "table", ["--label", label] if label else []


def _named(field: str, default: str) -> list[str]:
    return [] if field == default else ["--text-field", field]


def _fields(file: Path, kind: str) -> list[str]:
    """The fields of the first row; none where the file cannot be read: its recipe says why."""
    try:
        if kind == "parquet":
            with opened_parquet(str(file), str(file)) as parquet:
                return list(parquet.schema_arrow.names)
        rows = next(sampled(file, kind)).rows
        return list(rows[0]) if rows else []
    except (BeamPipesError, OSError):
        return []


def _glob(named: list[str]) -> str:
    """One file by its name; more by the folder that they share: `corpus/**/*.jsonl`."""
    if len(named) == 1:
        return named[0]
    suffixes = {"".join(PurePosixPath(file).suffixes[-2:]) for file in named}
    ending = suffixes.pop() if len(suffixes) == 1 else "".join(PurePosixPath(named[0]).suffixes[-1:])
    folders = {os.path.dirname(file) for file in named}
    shared = os.path.commonpath([folder or "." for folder in folders]) if all(folders) else ""
    return os.path.join(shared, "" if len(folders) == 1 else "**", f"*{ending}")


# `beam-pipes new`.

_JOB = '''"""Build: beam-pipes build job:declaration --to cache"""

import numpy as np

from beam_pipes import FeatureSpec, declare, drop, stage
from beam_pipes.sources import TextLines


@stage
def tokenize(line: str, *, min_length: int = 3) -> dict[str, object]:
    """A line as the code points of its letters."""
    if len(line) < min_length:
        return drop("too_short")
    return {"text": line, "tokens": np.array([ord(letter) for letter in line], np.int32)}


declaration = declare(
    "@name@",
    TextLines("data", pattern="*.txt"),
    [tokenize],
    splits={"train": 0.9, "eval": 0.1},
    features={"text": FeatureSpec("str"), "tokens": FeatureSpec("int32", shape=(None,))},
)
'''
_TEST = '''"""Test: python -m pytest"""

from job import declaration, tokenize

from beam_pipes import Cache, Loader, build


def test_tokenize():
    assert tokenize("fog")["tokens"].tolist() == [102, 111, 103]


def test_all_lines_arrive(tmp_path):
    build(declaration, to=tmp_path / "cache")

    cache = Cache.open(tmp_path / "cache")
    assert sum(len(cache[split]) for split in cache.splits) == 400
    batch = next(iter(Loader(tmp_path / "cache" / "train", batch_size=8, seed=1)))
    assert batch["tokens"].shape[0] == 8
'''
_TRAIN = '''"""Train: python train.py"""

import numpy as np

from beam_pipes import Loader

letters = np.zeros(128)
for batch in Loader("cache/train", batch_size=32, seed=1, epochs=3):
    # Your step stands here. For torch, JAX and TensorFlow: DataLoader.from_cache("cache/train", batch_size=32).
    letters += np.bincount(batch["tokens"].ravel(), minlength=128)
print("most frequent:", " ".join(map(chr, np.argsort(-letters[33:])[:5] + 33)))
'''
_README = """# @name@

```sh
beam-pipes plan job:declaration --to cache     # what it would do
beam-pipes build job:declaration --to cache    # again: "up to date"
beam-pipes inspect cache
python train.py
python -m pytest
```

`job.py` declares the cache, `train.py` reads it. Put your own files into `data/` and change the stage.
"""
_POEM = "".join(f"the fog comes on night {night}\non {night} little cat feet\n\n" for night in range(100, 300))


def new_command(
    directory: Annotated[Path, typer.Argument(help="directory to make; its name is the name of the declaration")],
) -> None:
    """Write a project that runs: a declaration, its test, a training loop and a little text.

    Example: beam-pipes new my_job
    """
    name = directory.resolve().name
    if not name.isidentifier():
        raise DeclarationError(
            f"a project's name should be letters, digits and underscores, got {name!r}: it names the declaration."
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise DeclarationError(f"{str(directory)!r} exists and is not an empty directory. Choose another name.")
    texts = {"job.py": _JOB, "test_job.py": _TEST, "train.py": _TRAIN, "README.md": _README, "data/poem.txt": _POEM}
    for file, text in texts.items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text.replace("@name@", name), encoding="utf-8")
        console.print(f"wrote {directory / file}", markup=False)
    console.print(
        f"Next: cd {shlex.quote(str(directory))} && beam-pipes build job:declaration --to cache && python train.py",
        markup=False,
    )
