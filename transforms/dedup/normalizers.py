"""Normalizers: what two texts may differ in and still count as the same content."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

Normalizer = Callable[[Any], Any]


def lower(text: str) -> str:
    """Folds case, as Unicode does for comparison without case: `"Straße TO"` → `"strasse to"`."""
    return text.casefold()


def squeeze_whitespace(text: str) -> str:
    """Turns every run of whitespace into one space and strips both ends: `" to \\n be"` → `"to be"`."""
    return " ".join(text.split())


def compose(text: str) -> str:
    """Composes letters and their marks (Unicode NFC): `"e"` and an acute accent → `"é"`."""
    return unicodedata.normalize("NFC", text)


def plain_text(text: str) -> str:
    """All three: `"  TO\\tbe "` → `"to be"`. Composed last, because folding case may decompose."""
    return compose(squeeze_whitespace(lower(text)))


def normalized(value: Any, normalizers: Normalizer | Sequence[Normalizer] | None) -> Any:
    """`value` after one normalizer, or several, the first one first; None leaves it as it is."""
    if normalizers is None:
        return value
    if callable(normalizers):
        return normalizers(value)
    for each in normalizers:
        value = each(value)
    return value
