"""Where recipes of media find their files: in a directory, or in tar archives in the layout of WebDataset.

    are_archives("pets", (".jpg",), "images")  →  False
    files_of("pets", (".jpg",), "images")      →  [cat/1.jpg, dog/2.jpg], ["**/*.jpg"], {".txt": 1}

    are_archives("pets.tar", (".jpg",), "images")     →  True
    first_sample("pets.tar", (".jpg",), "an image")   →  {"__key__": "cat/1", "jpg": b"…", "cls": b"0"}

    layout_of(["pets/train/cat", "pets/train/dog", "pets/val/cat"])  →  classes cat and dog in splits train and val

A recipe reads only names and the first sample to learn what to declare, and reports what it expected if it finds
nothing suitable. `images` and `audio` are such recipes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from beam_pipes.checks import nearest_path
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.recipes.row_files import refuse_caches
from beam_pipes.recipes.split_names import SPLITS, check_splits
from beam_pipes.sources.selection import FoundFile, Paths, select
from beam_pipes.sources.tar import KEY, Tar, has_field, is_archive, sample_file
from beam_pipes.storage.local import is_remote


class MediaFiles(NamedTuple):
    """The files of a directory that have known suffixes, the patterns that find them, suffix → number of other files,
    and the names of these.
    """

    files: list[FoundFile]
    patterns: list[str]
    others: Mapping[str, int]
    other_names: Sequence[str]


def files_of(root: str, suffixes: Sequence[str], what: str, *, option: str = "") -> MediaFiles:
    """The files of a directory, by suffix. Raises `DeclarationError` if none has one of these; `option` names one."""
    if not is_remote(root) and not os.path.isdir(root):
        found = "is a file" if os.path.exists(root) else "is a glob" if "*" in root else "does not exist"
        near = nearest_path(root) if found == "does not exist" else ""
        raise DeclarationError(
            f"{root!r} should be a directory of {what}, but {found}.{near} {_one(what)} Names of archives "
            "end in .tar, .tar.gz, .tar.bz2 or .tar.zst."
        )
    by_suffix: dict[str, list[FoundFile]] = {}
    found_files = select(root).find()
    others = Counter(found_files.left_out.values())
    other_names: list[str] = []
    for file in found_files:
        suffix = PurePosixPath(file.name).suffix
        if suffix.lower() in suffixes:
            by_suffix.setdefault(suffix, []).append(file)
        else:
            others[suffix.lower()] += 1
            other_names.append(file.name)
    if not by_suffix:
        refuse_caches(found_files)
        advice = (
            " Media inside of Parquet files are read by a declaration of your own: Parquet(…), and a stage that "
            "decodes them (docs/sources.md)."
            if ".parquet" in others
            else " Unpack archives of zip first: unzip FILE."
            if ".zip" in others
            else f" Name the directory of the {what} of the manifest: {option} DIRECTORY." * bool(option)
        )
        has = ", ".join(f"{count:,} {suffix or 'without a suffix'}" for suffix, count in others.most_common(5))
        raise DeclarationError(
            f"there are no {what} in {root!r}; known are {', '.join(suffixes)}. It has {has or 'no files'}.{advice}"
        )
    files = sorted((file for found in by_suffix.values() for file in found), key=lambda file: file.name)
    return MediaFiles(files, [f"**/*{suffix}" for suffix in sorted(by_suffix)], others, other_names)


def is_hidden(path: str) -> bool:
    """Whether a part of a path begins with a dot, as in `.ipynb_checkpoints/1.png`."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


class Layout(NamedTuple):
    """The layout of folders: the number of levels above the classes, the paths of splits, and the classes in order."""

    above: int
    splits: list[str]
    classes: list[str]


def folders_of(path: str) -> list[str]:
    """The folders of a path: `./pets/cat/1.png` → `["pets", "cat"]`."""
    return [part for part in path.split("/")[:-1] if part not in ("", ".")]


def at_depth(folders: list[str], class_folder: int, path: str) -> str:
    """The class of a path by the depth of its folder, from 1 at the top. Raises `TaskError` if there is none."""
    if len(folders) < class_folder:
        raise TaskError(
            f"{path!r} is in {len(folders)} folders, so there is none with the number {class_folder} that is the class "
            "(class_folder, --class-folder)."
        )
    return folders[class_folder - 1]


def layout_of(folders: Iterable[str], *, has_splits: bool = True) -> Layout:
    """The layout of folders that hold files; the same whether they are in a directory or in archives.

    Folders that contain all others are skipped. If the next ones have names of splits, they are splits, and the folders
    in them classes, of which there are none if they hold no folders; else they are classes themselves.
    Raises `DeclarationError` if that is ambiguous.
    """
    paths = sorted({tuple(folder.split("/")) for folder in folders})
    above = 0
    while len(tops := {path[above] for path in paths}) == 1 and all(len(path) > above + 1 for path in paths):
        if has_splits and {top.lower() for top in tops} <= SPLITS:
            break
        above += 1
    if has_splits and {top.lower() for top in tops} <= SPLITS and all(len(path) == above + 1 for path in paths):
        prefix = "".join(f"{part}/" for part in paths[0][:above])
        return Layout(0, [f"{prefix}{top}" for top in sorted(tops)], [])
    deeper: dict[str, set[str]] = {top: set() for top in tops}
    for path in paths:
        deeper[path[above]].add(path[above + 1] if len(path) > above + 1 else "")
    splits = sorted(top for top, inside in deeper.items() if top.lower() in SPLITS and "" not in inside)
    others = sorted({*tops} - {*splits})
    if splits and (others or not has_splits):
        beside = f" beside {', '.join(others[:5])}" if others else ""
        raise DeclarationError(
            f"the folders {', '.join(splits)} are called as splits are, and hold folders of their own{beside}"
            f"{'' if has_splits else ', and archives are not split by folders'}. Name a directory that holds splits "
            f"only, or only one of them. If they are classes: class_folder={above + 1} (--class-folder {above + 1})."
        )
    if splits:
        inner = layout_of({"/".join(path[above + 1 :]) for path in paths}, has_splits=False)
        prefix = "".join(f"{part}/" for part in paths[0][:above])
        return Layout(inner.above, [f"{prefix}{split}" for split in splits], inner.classes)
    repeated = [top for top in others if _repeats(deeper, top)]
    if len(others) > 1 and "" not in set().union(*deeper.values()) and repeated:
        inside = sorted(set().union(*deeper.values()))
        raise DeclarationError(
            f"there are two levels of folders, and the inner ones repeat: {', '.join(inside[:3])} in "
            f"{', '.join(others[:3])}. Say which level is the class, from 1 at the top: class_folder={above + 1} or "
            f"{above + 2} (--class-folder)."
        )
    return Layout(above, [], others)


def count_other_folders(
    left_out: dict[str, int], layout: Layout, inside: Iterable[Sequence[str]], other_names: Iterable[str]
) -> None:
    """Counts files in folders that lie beside classes and hold no image by the folder instead of by suffix.

    `inside` are the folders of each image, `left_out` what is counted so far: `{".jp2": 2}` becomes
    `{"in 'bird', a folder without images": 2}`.
    """
    depth = (layout.splits[0].count("/") + 1 if layout.splits else 0) + layout.above
    beside = {tuple(folders[:depth]) for folders in inside}
    for name in other_names:
        folders = folders_of(name)
        if tuple(folders[:depth]) in beside and folders[depth:] and folders[depth] not in layout.classes:
            suffix, what = PurePosixPath(name).suffix.lower(), f"in {folders[depth]!r}, a folder without images"
            left_out[suffix], left_out[what] = left_out[suffix] - 1, left_out.get(what, 0) + 1
            if not left_out[suffix]:
                del left_out[suffix]


def _repeats(deeper: Mapping[str, set[str]], top: str) -> bool:
    """Whether all folders in one folder also occur in others."""
    return deeper[top] <= set().union(*(inside for other, inside in deeper.items() if other != top))


def are_archives(data: Paths, suffixes: Sequence[str], what: str) -> bool:
    """Whether data are tar archives, by suffix; also for a directory with archives but none of these files.

    Raises `DeclarationError` for several paths that are not all archives.
    """
    paths = [os.fspath(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]
    if len(paths) > 1:
        if others := [file.name for file in select(data).find() if not is_archive(file.name)]:
            raise DeclarationError(
                f"several paths should all be tar archives, but {others[0]!r} is not one. {_one(what)}"
            )
        return True
    if is_archive(paths[0]):
        return True
    names = [file.name for file in select(paths[0]).find()] if os.path.isdir(paths[0]) or is_remote(paths[0]) else []
    found = {PurePosixPath(name).suffix.lower() for name in names}
    return any(map(is_archive, names)) and not found & {*suffixes}


def _one(what: str) -> str:
    return f"Name one directory of {what}, or only tar archives."


# One in this many samples must be of the recipe's kind: a folder may begin with other files.
_SAMPLES_TRIED = 1000


def first_sample(data: Paths, suffixes: Sequence[str], what: str) -> Mapping[str, object]:
    """The first sample of archives that has a file with one of these suffixes, and is not hidden.

    Raises `DeclarationError` if none of the first thousand has.
    """
    first: Mapping[str, object] | None = None
    for sample in itertools.islice(Tar(data).samples(), _SAMPLES_TRIED):
        first = first or sample
        with contextlib.suppress(TaskError):  # it has several files of this kind, and fails on reading
            if sample_file(sample, suffixes) is not None and not is_hidden(str(sample[KEY])):
                return sample
    has = "there are no samples" if first is None else f"the first sample has {', '.join(first)}"
    raise DeclarationError(
        f"samples of tar archives should have {what}, but {has}; known suffixes are {', '.join(suffixes)}. The "
        "files of a sample are neighbours in the archive and share their name up to its first dot."
    )


# Number of members whose names are read: for all of a large archive, this would take as long as a disk's seeks.
_MOST_MEMBERS = 20_000


def check_archives(data: Paths, splits: object) -> None:
    """Raises `DeclarationError` as `check_splits` does, or if members of a sample are apart in the first archive."""
    check_splits(data, splits)
    path = next(file.path for file in select(data).find() if PurePosixPath(file.name).suffix)
    if is_remote(path) or not path.endswith(".tar"):
        return
    ended: set[str] = set()
    before = ""
    with tarfile.open(path, "r:") as archive:
        for member in itertools.islice(archive, _MOST_MEMBERS):
            folder, _, file = member.name.rpartition("/")
            stem, _, extension = file.partition(".")
            sample = f"{folder}/{stem}"
            if not member.isfile() or not stem or not extension or sample == before:
                continue
            if sample in ended:
                raise DeclarationError(
                    f"the members of the sample {stem!r} are not side by side in {path!r}: {member.name!r} comes after "
                    "those of other samples. Pack the files in the order of their names: tar --sort=name -cf "
                    "sorted.tar -C DIRECTORY ."
                )
            ended.add(before := sample)


def names_in(sample: Mapping[str, object]) -> list[str]:
    """The fields of a sample, with the keys of its JSON: `["jpg", "json.species"]`."""
    keys = (
        (name, value if value and isinstance(value, Mapping) else [""]) for name, value in sample.items() if name != KEY
    )
    return [f"{name}.{key}" if key else name for name, inner in keys for key in inner]


def field_of_samples(sample: Mapping[str, object], given: str | None, known: Sequence[str], option: str) -> str | None:
    """The field that samples have: the given one, or the first known one; None if they have none of these."""
    if given is not None and not has_field(sample, given):
        raise DeclarationError(
            f"the first sample has no field {given!r}; it has {', '.join(names_in(sample))}. Name a different one as "
            f"{option}=… (--{option.removesuffix('s').replace('_', '-')}); a key of its .json is json.KEY."
        )
    return given or next((field for field in known if has_field(sample, field)), None)
