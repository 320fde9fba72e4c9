"""Files and folders that are called as splits are: `train-clean-100/`, `test-00000-of-00001.parquet`.

    split_of("dev-clean")                                          →  "dev"
    split_folders(["train/1.flac", "test/2.flac"], "talks", None)  →  ["test", "train"]
    check_splits("data", None)                                     →  DeclarationError: … would go into one

Folders of images and sound become splits. Of other data each split is a build of its own, or `--split` draws them anew:
without it, what is meant for evaluation would be trained on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from beam_pipes.errors import DeclarationError
from beam_pipes.recipes.row_files import RowFiles, files_of
from beam_pipes.recipes.written import Code, call
from beam_pipes.sources.selection import Paths

#: Names of splits.
SPLITS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "test"})


def split_of(name: str) -> str:
    """The split that a file or folder is called after: `"test-00000-of-00001.parquet"` → `"test"`, else nothing."""
    word = re.split("[-_. 0-9]", name.lower())[0]
    return word if word in SPLITS else ""


def check_splits(data: Paths | RowFiles, splits: object) -> None:
    """Raises `DeclarationError` for a directory of files or folders that are called as splits are, without `splits`."""
    found = files_of(data)
    roots = [found.paths] if isinstance(found.paths, str | os.PathLike) else [*found.paths]
    if splits or len(roots) > 1 or not os.path.isdir(roots[0]):
        return
    paths = [file.name.split("/") for file in found.files]
    above = len(os.path.commonprefix([path[:-1] for path in paths]))
    names = {split: path[above] for path in reversed(paths) if (split := split_of(path[above]))}
    if len(names) > 1:
        some, one = " and ".join(sorted(map(repr, names.values()))), os.path.join(roots[0], min(names.values()))
        raise DeclarationError(
            f"{some} in {os.fspath(roots[0])!r} are called as splits are, and all would go into one. Name the files of "
            f"one, such as {one!r}, or a glob. To join them nevertheless, say how to split them: splits=… (--split "
            "train=1)."
        )


def split_folders(names: Iterable[str], root: str, splits: object) -> list[str]:
    """The paths of folders that are splits: `["train-clean-100/1.flac", "dev-clean/2.flac"]` → both, by name.

    They begin with two or more names of `SPLITS`, and hold all files, if need be below folders that hold all.
    Raises `DeclarationError` if there are others beside them, unless there are `splits`.
    """
    paths = [[part for part in name.split("/")[:-1] if part not in ("", ".")] for name in names]
    above = len(os.path.commonprefix(paths))
    tops = sorted({path[above] if len(path) > above else "" for path in paths})
    found = [top for top in tops if split_of(top)]
    if len({*map(split_of, found)}) < 2 or (splits and found != tops):
        return []
    if found != tops:
        other = ", ".join(top or "files in none" for top in tops if top not in found)
        raise DeclarationError(
            f"the folders {', '.join(found)} in {root!r} are called as splits are, but there are others beside them: "
            f"{other}. Name a directory that holds splits only, or one of them; or say how to split all of them: "
            "splits=… (--split train=1)."
        )
    return ["/".join([*paths[0][:above], split]) for split in found]


def readers_of(
    folders: Sequence[str],
    root: str,
    splits: object,
    *,
    patterns: Sequence[str],
    notes: Mapping[str, str],
    relative_to: str | None = None,
) -> dict[str, Code]:
    """Split → the source of its folder. Raises `DeclarationError` if there are `splits` too, but for no folders."""
    if folders and splits:
        raise DeclarationError(
            f"the folders {', '.join(folders)} of {root!r} are already splits, but splits were given too. Omit them, "
            "or name one of the folders as the data."
        )
    return {
        folder.rpartition("/")[2]: call(
            "Files", f"{root.rstrip('/')}/{folder}", pattern=patterns, relative_to=relative_to, **notes
        )
        for folder in folders
    }
