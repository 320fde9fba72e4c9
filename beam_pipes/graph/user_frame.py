"""Where in the user's code something was said: what messages about graphs point at."""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__))
# The folders of these packages: found, since an editable install maps one of them to another place.
_LIBRARY = os.path.dirname(_HERE)
_TRANSFORMS = tuple(getattr(find_spec("beam_pipes.transforms"), "submodule_search_locations", None) or ())
# Frames between the user and the graph: this room, what is generated from the table of operators, and the library
# that rewrites conditionals.
_OURS = (
    _HERE + os.sep,
    os.path.join(_LIBRARY, "on_device") + os.sep,
    *(os.path.join(path, room) + os.sep for path in _TRANSFORMS for room in ("fn", "ops", "operators")),
)
# Files of rewritten functions → what a line of them was before.
#: The folders of `beam_pipes` and of its transforms: code that is no user's.
OWN_FOLDERS = (_LIBRARY, *_TRANSFORMS)
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
        """The line itself; "" where the source is not at hand."""
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
