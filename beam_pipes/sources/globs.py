"""Globs over relative names with `/` between their parts."""

from __future__ import annotations

import re
from functools import lru_cache

WILDCARD = re.compile(r"[*?\[]")


@lru_cache(maxsize=256)
def matcher(patterns: tuple[str, ...]) -> Matcher:
    """Whether a relative name matches one of the globs; with no globs, no name does."""
    return Matcher(patterns)


class Matcher:
    """Globs over relative names: `*` and `?` stay within one part, `**` crosses parts, `[…]` is a character class."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._regex = re.compile("|".join(map(_regex_of, patterns))) if patterns else None

    def __call__(self, name: str) -> bool:
        return self._regex is not None and self._regex.fullmatch(name) is not None


def _regex_of(pattern: str) -> str:
    out = ""
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out, at = out + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            body = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, at = out + "[" + ("^" + body[1:] if body[0] == "!" else body) + "]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return f"(?:{out})"
