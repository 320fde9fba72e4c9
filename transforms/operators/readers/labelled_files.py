"""Which files a reader of files reads, and their labels."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

#: The names of files that `readers.file` takes by default, as in DALI.
MEDIA_FILTERS: Final = tuple(
    f"*.{ending}"
    for ending in (
        *("jpg", "jpeg", "png", "bmp", "tif", "tiff", "pnm", "ppm", "pgm", "pbm", "jp2", "webp", "flac", "ogg", "wav"),
    )
)


def fits(name: str, globs: Sequence[str], *, case_sensitive: bool) -> bool:
    """Whether a name fits one of the globs."""
    if case_sensitive:
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs)
    return any(fnmatch.fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def in_any_case(glob: str) -> str:
    """A glob that takes both cases of every letter: `*.jpg` → `*.[jJ][pP][gG]`."""
    made, inside = "", False
    for letter in glob:
        both = letter.lower() + letter.upper()
        if inside or letter in "[*?" or len(both) != 2 or both[0] == both[1]:
            made += both if inside and len(both) == 2 and both[0] != both[1] else letter
            inside = letter == "[" or (inside and letter != "]")
        else:
            made += f"[{both}]"
    return made


def escaped(name: str) -> str:
    """A glob that takes this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classes:
    """The directories in `root` whose names fit `globs` (None: all), numbered in the order of their names.

    They are looked at when that is needed, once.
    """

    root: str
    globs: Sequence[str] | None
    case_sensitive: bool

    @functools.cached_property
    def labels(self) -> Mapping[str, int]:
        """Directory → label."""
        found = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        fitting = [
            name for name in found if self.globs is None or fits(name, self.globs, case_sensitive=self.case_sensitive)
        ]
        return {name: label for label, name in enumerate(fitting)}

    def label_of(self, path: str) -> int:
        """`"dog/1.jpg"` → the label of `dog`."""
        return self.labels[path.partition("/")[0]]


def read_file_list(path: str) -> tuple[list[str], list[int]]:
    """Names and labels of a list, a line `name label` each; the name may hold spaces. Raises `ValueError`."""
    names, labels = [], []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            name, _, label = line.rstrip("\n").rpartition(" ")
            try:
                labels.append(int(label))
            except ValueError:
                raise ValueError(f"{path}, line {number}: expected 'name label', got {line.strip()!r:.80}") from None
            if not name.strip():
                raise ValueError(f"{path}, line {number}: expected 'name label', got {line.strip()!r:.80}")
            names.append(name.strip())
    return names, labels


def digest_of_files(names: Sequence[str], paths: Sequence[str], labels: bytes = b"") -> str:
    """What files are, without reading them: names, sizes, when they were written; and their labels."""
    digest = hashlib.sha256(labels)
    for name, path in zip(names, paths, strict=True):
        status = os.stat(path)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
