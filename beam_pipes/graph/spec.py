"""What is known about a data node before anything runs: the form of its samples, and the user's line that created it.

`TensorSpec` holds dtype, shape and layout, as far as known; operators infer the specs of their outputs from
those of their inputs. `UserFrame` is a line of the user's code: `user_frame()` finds it on the stack while the graph is
defined; messages about the graph end with it.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import GraphError

_HERE = os.path.dirname(os.path.abspath(__file__))
# The folders of these packages; looked up, since an editable install maps one of them elsewhere.
_LIBRARY = os.path.dirname(_HERE)
_TRANSFORMS = tuple(getattr(find_spec("beam_pipes.transforms"), "submodule_search_locations", None) or ())
# Frames between the user and the graph: this room, what is generated from the table of operators, and the library
# that rewrites conditionals.
_OURS = (
    _HERE + os.sep,
    os.path.join(_LIBRARY, "on_device") + os.sep,
    *(os.path.join(path, room) + os.sep for path in _TRANSFORMS for room in ("fn", "ops", "operators")),
)
#: The folders of `beam_pipes` and of its transforms: code that is not the user's.
OWN_FOLDERS = (_LIBRARY, *_TRANSFORMS)
#: Files of rewritten functions → for each line, the user's line that it came from.
GENERATED: dict[str, Callable[[int], UserFrame]] = {}

_LIBRARIES = (f"{os.sep}malt{os.sep}",)


@dataclasses.dataclass(frozen=True, slots=True)
class UserFrame:
    """A line of the user's code; `str` gives `train.py:12 in my_pipeline: images = fn.decoders.image(jpegs)`."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself; "" if the source is not available."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        text = self.text
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}" + (f": {text}" if text else "")


def user_frame() -> UserFrame:
    """The innermost line on the stack that belongs to the user."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        original = GENERATED.get(code.co_filename)
        if original is not None:
            return original(frame.f_lineno)
        if not code.co_filename.startswith(_OURS) and not any(part in code.co_filename for part in _LIBRARIES):
            return UserFrame(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return UserFrame("?", 0, "?")


def located(error: GraphError, where: UserFrame) -> GraphError:
    """The same error, its message ending in the user's line."""
    if error.where is not None:
        return error
    return type(error)(f"{error.message} ({where})", **{**error.attributes, "where": where})


def here(error: GraphError) -> GraphError:
    """The same error, with the user's current line added to its message."""
    return located(error, user_frame())


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """dtype, shape and layout of every sample of a node; None if unknown.

    `shape` has None for a dimension that varies by sample, and is None if even the rank is unknown.
    `layout` names the axes ("HWC", "CHW", "FHWC"), and so tells the rank too; "" if they have no names.
    """

    dtype: np.dtype | None = None
    shape: tuple[int | None, ...] | None = None
    layout: str = ""

    def __post_init__(self) -> None:
        if self.shape is None and self.layout:
            object.__setattr__(self, "shape", (None,) * len(self.layout))

    @classmethod
    def of(
        cls, dtype: npt.DTypeLike | None, shape: tuple[int | None, ...] | None = None, layout: str = ""
    ) -> TensorSpec:
        """`TensorSpec.of("float32", (None, None, 3), "HWC")`."""
        return cls(None if dtype is None else np.dtype(dtype), shape, layout)

    @classmethod
    def of_rank(cls, dtype: npt.DTypeLike | None, ndim: int | None, layout: str = "") -> TensorSpec:
        """A spec with a known rank and unknown dimensions."""
        return cls.of(dtype, None if ndim is None else (None,) * ndim, layout)

    @property
    def ndim(self) -> int | None:
        """The rank; None if unknown."""
        return None if self.shape is None else len(self.shape)

    def replace(self, **changes: Any) -> TensorSpec:
        """The same with other fields: `spec.replace(dtype=np.dtype("uint8"))`."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        dtype = "?" if self.dtype is None else self.dtype.name
        shape = "?" if self.shape is None else "×".join("·" if size is None else str(size) for size in self.shape)
        return f"{dtype}[{shape}]" + (f" {self.layout}" if self.layout else "")


UNKNOWN = TensorSpec()
