"""`fn.readers.numpy`: arrays of `.npy` files."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.graph.operator import Constant
from beam_pipes.graph.reader import Indices, Reader, RecordStore
from beam_pipes.graph.tensors import TensorList
from beam_pipes.sources.file_source import FileContent, Files
from beam_pipes.sources.source import Source
from beam_pipes.transforms.operators.readers.files import digest_of_files, fits


class Numpy(Reader):
    """Reads arrays, one `.npy` file a sample: `a/0.npy, a/1.npy` → two samples.

    With `file_root`, files are those below it in the order of their relative names; with `file_list`, a text file of a
    name a line, relative to `file_root` or to the directory of the list. Arrays of Python objects are refused.
    """

    file_root = Constant("str", default=None, doc="the directory below which files are")
    file_list = Constant("str", default=None, doc="a text file with a name a line")
    files = Constant("strs", default=None, doc="paths of files")
    file_filter = Constant("str", default="*.npy", doc="a glob over names of files below file_root")

    def check(self) -> None:
        super().check()
        if self.files is None and self.file_list is None and self.file_root is None:
            raise self.argument_error("give file_root, file_list or files.")
        if self.files is not None and self.file_list is not None:
            raise self.argument_error("give one of files and file_list.")

    def open(self) -> NumpyStore:
        names, paths = self._found()
        if not names:
            raise self.argument_error(f"no file fits {self.file_filter!r} in {self.file_root!r}.")
        return NumpyStore(names, paths)

    def _found(self) -> tuple[list[str], list[str]]:
        root = self.file_root
        if root is not None and not os.path.isdir(root):
            raise self.argument_error(f"file_root should be a directory, got {root!r}.")
        if self.files is not None:
            names = list(self.files)
            root = root or ""
        elif self.file_list is not None:
            try:
                with open(self.file_list, encoding="utf-8") as lines:
                    names = [line.strip() for line in lines if line.strip()]
            except OSError as error:
                raise self.argument_error(f"file_list: {error}.") from error
            root = root if root is not None else os.path.dirname(self.file_list)
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
        if self.file_root is None or self.files is not None or self.file_list is not None:
            raise self.argument_error("before a cut it reads a directory: give file_root instead of a list of files.")
        return Files(self.file_root, pattern=f"**/{self.file_filter}")

    def from_source(self, value: FileContent) -> Sequence[Any]:
        return [np.load(io.BytesIO(value.content), allow_pickle=False)]


class NumpyStore(RecordStore):
    """`.npy` files by number."""

    def __init__(self, names: Sequence[str], paths: Sequence[str]) -> None:
        self._names = names
        self._paths = paths

    def __len__(self) -> int:
        return len(self._names)

    def record_ids(self, indices: Indices) -> list[str]:
        return [f"{self._names[index]}@0" for index in indices]

    def read(self, indices: Indices, outputs: Collection[int]) -> list[TensorList | None]:
        return [TensorList([np.load(self._paths[index], allow_pickle=False) for index in indices])]

    def identity(self) -> Mapping[str, Any]:
        return self._identity

    @functools.cached_property
    def _identity(self) -> Mapping[str, Any]:
        return {"files": digest_of_files(self._names, self._paths)}
