"""Whole files: `readers.file`, with a label from a list or the number of the directory, and `readers.numpy`."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import hashlib
import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import numpy as np

from beam_pipes.graph.operator import Constant
from beam_pipes.graph.reader import Indices, MadeFrom, Reader, RecordStore
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.sources.file_source import FileContent, Files
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.transforms.operators.slicing import BOUNDS, POLICIES, Slice

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache

T = TypeVar("T")

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
    """A glob that matches both cases of every letter: `*.jpg` → `*.[jJ][pP][gG]`."""
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
    """A glob that matches only this name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classes:
    """The directories in `root` whose names fit `globs` (None: all), numbered in the order of their names.

    They are listed once, when needed.
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
    """Names and labels of a list, with lines `name label`; the name may contain spaces. Raises `ValueError`."""
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


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as lines:
        return [line.strip() for line in lines if line.strip()]


def digest_of_files(names: Sequence[str], paths: Sequence[str], labels: bytes = b"") -> str:
    """A digest of files without reading them: names, sizes, modification times; and their labels."""
    digest = hashlib.sha256(labels)
    for name, path in zip(names, paths, strict=True):
        status = os.stat(path)
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


# Separates the digest of a file from its label.
_LABEL = "#"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassedFiles(Files):
    """`Files` in numbered directories.

    The label of a file counts in its digest: a new directory shifts the labels of those after it, and a build redoes
    their files.
    """

    classes: Classes

    def fingerprint_config(self) -> Mapping[str, object]:
        # Labels count in digests of files.
        return {name: value for name, value in super().fingerprint_config().items() if name != "classes"}

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        plan = super().plan(target_shard_bytes=target_shard_bytes, digests=digests)
        shards = [
            dataclasses.replace(
                shard,
                slices=tuple(
                    dataclasses.replace(piece, digest=f"{piece.digest}{_LABEL}{self.classes.label_of(piece.file)}")
                    for piece in shard.slices
                ),
            )
            for shard in plan.shards
        ]
        return dataclasses.replace(plan, shards=tuple(shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        slices = (dataclasses.replace(piece, digest=piece.digest.partition(_LABEL)[0]) for piece in shard.slices)
        plain = dataclasses.replace(shard, slices=tuple(slices))
        return super().read(plain, batch_records=batch_records, batch_bytes=batch_bytes)


class FileReader(Reader):
    """A reader of files below `file_root`, of those that `file_list` names, or of `files`."""

    file_root = Constant("str", default=None, doc="the directory that holds files")
    file_list = Constant("str", default=None, doc="a text file with one name per line")
    files = Constant("strs", default=None, doc="paths of files, in the order in which they are numbered")
    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = (("files", "file_list"),)

    def check(self) -> None:
        super().check()
        if self.files is None and self.file_list is None and self.file_root is None:
            raise self.argument_error("give file_root, file_list or files.")

    def _listed(self, read: Callable[[str], T]) -> T:
        """The result of `read` for the list."""
        try:
            return read(self.file_list)
        except (OSError, ValueError) as error:
            raise self.argument_error(f"file_list: {error}.") from error

    def _root(self) -> str | None:
        """The directory to which names are relative."""
        if self.file_root is not None and not os.path.isdir(self.file_root):
            raise self.argument_error(f"file_root should be a directory, got {self.file_root!r}.")
        is_of_list = self.files is None and self.file_list is not None and self.file_root is None
        root: str | None = os.path.dirname(self.file_list) if is_of_list else self.file_root
        return root

    @property
    def _reads_directory(self) -> bool:
        """Whether the files are those below `file_root`: a job then reads them as `Files`."""
        return self.file_root is not None and self.files is None and self.file_list is None


class File(FileReader):
    """Reads whole files: their bytes (uint8, 1-D), and a label (int32 of shape (1,)).

    With `file_root`, every directory in it is a class: classes and files are in the order of their
    names.

        root/cat/1.jpg, root/cat/2.jpg, root/dog/1.jpg  →  labels 0, 0, 1

    With `file_list`, a text file, each line is a name and a label, and names are relative to `file_root`, or to the
    directory of the list. With `files`, the label of a file is its position in the list, unless `labels` is given.
    """

    num_outputs = 2
    version = "2"
    file_root = Constant("str", default=None, doc="the directory that holds a directory for each class")
    file_list = Constant("str", default=None, doc="a text file of lines 'name label'")
    labels = Constant("ints", default=None, doc="the label of each of `files`; by default their number")
    file_filters = Constant(
        "strs", default=MEDIA_FILTERS, doc="globs over names of files below file_root; images and sound by default"
    )
    dir_filters = Constant("strs", default=None, doc="globs over names of directories; all by default")
    case_sensitive_filter = Constant("bool", default=False, doc="whether the globs are case-sensitive")

    def check(self) -> None:
        super().check()
        if self.labels is not None and (self.files is None or len(self.labels) != len(self.files)):
            raise self.argument_error(f"labels needs files, and as many of them: {len(self.labels)} labels were given.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        return [TensorSpec.of("uint8", (None,)), TensorSpec.of("int32", (1,))]

    def open(self) -> FileStore:
        names, paths, labels = self._found()
        if not names:
            raise self.argument_error(f"no file fits {list(self.file_filters)} in {self.file_root!r}.")
        return FileStore(names, paths, labels)

    def _found(self) -> tuple[list[str], list[str], list[int]]:
        """Names, paths and labels of all files."""
        root = self._root() or ""
        if self.files is not None:
            labels = range(len(self.files)) if self.labels is None else self.labels.tolist()
            return list(self.files), [os.path.join(root, name) for name in self.files], list(labels)
        if self.file_list is not None:
            names, listed = self._listed(read_file_list)
            return names, [os.path.join(root, name) for name in names], listed
        names, found = [], []
        for name, label in self._classes.labels.items():
            for file in sorted(os.listdir(os.path.join(self.file_root, name))):
                if fits(file, self.file_filters, case_sensitive=self.case_sensitive_filter):
                    names.append(f"{name}/{file}")
                    found.append(label)
        order = sorted(range(len(names)), key=names.__getitem__)
        names, found = [names[index] for index in order], [found[index] for index in order]
        return names, [os.path.join(self.file_root, *name.split("/")) for name in names], found

    @functools.cached_property
    def _classes(self) -> Classes:
        return Classes(root=self.file_root, globs=self.dir_filters, case_sensitive=self.case_sensitive_filter)

    def source(self) -> Source:
        if not self._reads_directory:
            return super().source()
        vars(self).pop("_classes", None)  # a declaration covers the directories that exist when it is created
        globs = [one if self.case_sensitive_filter else in_any_case(one) for one in self.file_filters]
        classes = ["*"] if self.dir_filters is None else [escaped(one) for one in self._classes.labels]
        pattern = [f"{name}/{glob}" for name in classes for glob in globs]
        return ClassedFiles(root=self.file_root, pattern=pattern, classes=self._classes)

    def from_source(self, value: FileContent | int) -> Sequence[Array]:
        if isinstance(value, int):
            return super().from_source(value)
        return [np.frombuffer(value.content, np.uint8), np.array([self._classes.label_of(value.path)], np.int32)]


class FileStore(RecordStore):
    """Files by number."""

    def __init__(self, names: Sequence[str], paths: Sequence[str], labels: Sequence[int]) -> None:
        self._names = names
        self._paths = paths
        self._labels = np.array(labels, np.int32)

    def __len__(self) -> int:
        return len(self._names)

    def record_ids(self, indices: Indices) -> list[str]:
        return [f"{self._names[index]}@0" for index in indices]

    def read(self, indices: Indices, outputs: Collection[int]) -> list[TensorList | None]:
        contents = None
        if 0 in outputs:
            contents = TensorList([np.fromfile(self._paths[index], np.uint8) for index in indices])
        return [contents, TensorList(self._labels[indices, None])]

    def made_from(self, index: int) -> MadeFrom:
        return MadeFrom([self._paths[index]], int(self._labels[index]), is_whole_file=True)

    def identity(self) -> Mapping[str, object]:
        return self._identity

    @functools.cached_property
    def _identity(self) -> Mapping[str, object]:
        return {"files": digest_of_files(self._names, self._paths, self._labels.tobytes())}


class Numpy(FileReader):
    """Reads arrays, one `.npy` file per sample: `a/0.npy, a/1.npy` → two samples.

    With `file_root`, files are those below it in the order of their relative names; with `file_list`, a text file with
    one name per line, relative to `file_root` or to the directory of the list. Arrays of Python objects are refused.

    With `roi_start`, `roi_end`, `roi_shape`, or those in parts of the extent, only a region is read: the window that
    `slice` cuts.
    """

    version = "2"
    file_root = Constant("str", default=None, doc="the directory that contains the files")
    file_filter = Constant("str", default="*.npy", doc="a glob over names of files below file_root")
    roi_start = Constant("ints", default=None, doc="start of the region, in elements; 0 by default")
    rel_roi_start = Constant("floats", default=None, doc="the same in parts of the extent")
    roi_end = Constant("ints", default=None, doc="end of the region; that of the array by default")
    rel_roi_end = Constant("floats", default=None, doc="the same in parts of the extent")
    roi_shape = Constant("ints", default=None, doc="number of elements of the region")
    rel_roi_shape = Constant("floats", default=None, doc="the same in parts of the extent")
    roi_axes = Constant("ints", default=None, doc="the axes that the numbers are for; all, in order, by default")
    out_of_bounds_policy = Constant(
        "str", default="error", doc="the policy for regions beyond the array", choices=POLICIES
    )
    fill_value = Constant("float", default=0.0, doc="the padding")

    exclusive = (
        *FileReader.exclusive,
        ("roi_start", "rel_roi_start"),
        ("roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape"),
    )

    def check(self) -> None:
        super().check()
        given = {one: getattr(self, one.replace("rel_", "rel_roi_") if "_" in one else f"roi_{one}") for one in BOUNDS}
        lengths = {len(one) for one in [*given.values(), self.roi_axes] if one is not None}
        if len(lengths) > 1:
            raise self.argument_error("roi_axes, start and end or shape of a region should be equally many numbers.")
        self._region: Slice | None = None
        if any(one is not None for one in given.values()):
            axes = range(lengths.pop()) if self.roi_axes is None else self.roi_axes
            others = {"out_of_bounds_policy": self.out_of_bounds_policy, "fill_values": self.fill_value}
            self._region = Slice({**given, **others, "axes": list(axes)}, name=self.name)
            self._region.infer(TensorSpec())

    def _read(self, file: str | io.BytesIO) -> Array:
        if self._region is None:
            return np.asarray(np.load(file, allow_pickle=False))
        array = np.load(file, mmap_mode="r" if isinstance(file, str) else None, allow_pickle=False)
        if self.roi_axes is None and array.ndim != len(self._region.axes):
            raise ValueError(
                f"the array has {array.ndim} axes, and the region is given for {len(self._region.axes)}: name them in "
                "roi_axes"
            )
        return np.array(self._region.run(None, array, **{name: self._region.constants[name] for name in BOUNDS}))

    def open(self) -> RecordStore:
        names, paths = self._found()
        if not names:
            raise self.argument_error(f"no file fits {self.file_filter!r} in {self.file_root!r}.")
        files = dict(zip(names, paths, strict=True))
        return Described(
            [f"{name}@0" for name in names],
            files,
            lambda at: [self._read(paths[at])],
            lambda at: MadeFrom([paths[at]], is_whole_file=True),
        )

    def _found(self) -> tuple[list[str], list[str]]:
        root = self._root() or ""
        if self.files is not None:
            names = list(self.files)
        elif self.file_list is not None:
            names = self._listed(_lines)
        else:
            names = []
            for directory, _, found in os.walk(root):
                within = os.path.relpath(directory, root)
                for name in found:
                    if fits(name, [self.file_filter], case_sensitive=True):
                        names.append(name if within == "." else f"{within.replace(os.sep, '/')}/{name}")
            names.sort()
        return names, [os.path.join(root, *name.split("/")) if root else name for name in names]

    def source(self) -> Source:
        return Files(self.file_root, pattern=f"**/{self.file_filter}") if self._reads_directory else super().source()

    def from_source(self, value: FileContent | int) -> Sequence[Array]:
        if isinstance(value, int):
            return super().from_source(value)
        return [self._read(io.BytesIO(value.content))]


class Described(RecordStore):
    """Records by number with unique names; `load` returns the samples of one, `made_from` what they depend on.

    `files`: name → path.
    """

    def __init__(
        self,
        names: Sequence[str],
        files: Mapping[str, str],
        load: Callable[[int], Sequence[Array]],
        made_from: Callable[[int], MadeFrom],
    ) -> None:
        self._names, self._files, self._load, self._made_from = names, files, load, made_from

    def __len__(self) -> int:
        return len(self._names)

    def record_ids(self, indices: Indices) -> list[str]:
        return [self._names[index] for index in indices]

    def read(self, indices: Indices, outputs: Collection[int]) -> list[TensorList | None]:
        return [TensorList(list(column)) for column in zip(*map(self._load, indices.tolist()), strict=True)]

    def made_from(self, index: int) -> MadeFrom:
        return self._made_from(index)

    def identity(self) -> Mapping[str, object]:
        return self._identity

    @functools.cached_property
    def _identity(self) -> Mapping[str, object]:
        return {"files": digest_of_files(list(self._files), list(self._files.values()))}
