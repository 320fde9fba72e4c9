"""A value as a short text, for people."""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_CHARACTERS = 600


def shown_value(value: Any, *, max_characters: int = MAX_CHARACTERS) -> str:
    """`np.array([1, 2], np.int32)` → `int32[2] [1 2]`; texts as they are, bytes as a literal; cut off where long.

    Control characters become escapes, so that no terminal or page takes them for more than text.
    """
    if isinstance(value, np.ndarray) and value.ndim:
        text = np.array2string(value, threshold=24, edgeitems=12, max_line_width=10**6)
        text = f"{value.dtype}{list(value.shape)} " + " ".join(text.split())
    elif isinstance(value, str):
        text = value[: max_characters + 1]
    elif isinstance(value, (bytes, bytearray)):
        text = repr(bytes(value[: max_characters + 1]))
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key}: {shown_value(each, max_characters=120)}" for key, each in value.items())
    else:
        text = repr(value) if not isinstance(value, np.generic) else f"{value.item()!r}"
    cut = text if len(text) <= max_characters else text[: max_characters - 1] + "…"
    return "".join(_visible(character) for character in cut)


def shown_bytes(data: bytes, *, max_characters: int = MAX_CHARACTERS) -> str:
    """Bytes as the UTF-8 text that they are, else as a literal: `b"caf\\xc3\\xa9"` → `café`, `b"\\xff"` → `b'\\xff'`.

    What holds a NUL counts as no text.
    """
    head = data[: 4 * max_characters + 4]
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(head, final=len(head) == len(data))
    except UnicodeDecodeError:
        text = "\0"
    return shown_value(data if "\0" in text else text, max_characters=max_characters)


def _visible(character: str) -> str:
    if character == "\n" or unicodedata.category(character)[0] != "C":
        return character
    return character.encode("unicode_escape").decode("ascii")
