"""Where the records of a source come from, and under what terms: `Terms`, as a source declares them and a manifest has
them.

A shard comes from exactly one source shard, and a source shard from exactly one source. So a manifest names the terms
of a source once, with the range of source shards that it gave (`SourceTerms`), and the terms of a record are those of
its shard: no record and no index grows by them.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypedDict

from beam_pipes.errors import SourceError
from beam_pipes.extras import require
from beam_pipes.storage.checked_json import Checked

#: The names of what a source declares: options of sources, columns of conditions, fields of the manifest.
FIELDS = ("license", "origin", "collected", "terms")

_OWN_LICENSE = re.compile(r"(DocumentRef-[A-Za-z0-9.-]+:)?LicenseRef-[A-Za-z0-9.-]+")
_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")


class TermsOptions(TypedDict, total=False):
    """The options of whatever declares terms: the arguments of `Terms`."""

    license: str
    origin: str
    collected: str
    terms: str


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Terms:
    """What a source declares about its records; "" for what it does not declare.

    Args:
        license: an SPDX license expression: `CC-BY-4.0`, `MIT OR Apache-2.0`, or `LicenseRef-…` for your own.
        origin: where the data come from: a URL, or a name.
        collected: when they were collected: a year, month or day (`2024`, `2024-05`, `2024-05-31`), or two of these
            with "/" between them.
        terms: what else the licensor requires: a URL, or a sentence.
    """

    license: str = ""
    origin: str = ""
    collected: str = ""
    terms: str = ""

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return any(self.to_json().values())

    def to_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)

    def checked(self) -> Terms:
        """The same with the license in its usual spelling: `mit or apache-2.0` → `MIT OR Apache-2.0`.

        Raises `SourceError` for a license that SPDX does not know and for a malformed date, `MissingExtraError` for a
        license without the extra `terms`.
        """
        for field, value in self.to_json().items():
            if not isinstance(value, str) or value != value.strip() or "\n" in value:
                raise SourceError(
                    f"{field} of a source should be one line of text without spaces around it, got {value!r}."
                )
        if self.collected:
            _check_period(self.collected)
        return dataclasses.replace(self, license=_spdx(self.license)) if self.license else self


def _spdx(license: str) -> str:
    """An SPDX license expression in its usual spelling."""
    library = require("license_expression", purpose=f"license={license!r} of a source")
    spdx = _licensing(library.get_spdx_licensing)
    advice = (
        "Take an identifier of https://spdx.org/licenses/, such as CC-BY-4.0, or name your own: LicenseRef-our-contract"
    )
    try:
        parsed = spdx.parse(license)
        unknown = [str(key) for key in spdx.unknown_license_keys(parsed) if not _OWN_LICENSE.fullmatch(str(key))]
    except library.ExpressionError as error:
        words = str(error).splitlines()[0]
        raise SourceError(
            f"license={license!r} of a source is not an SPDX license expression: {words}. {advice}."
        ) from None
    if unknown:
        names = {name.lower(): name for name in spdx.known_symbols if not name.startswith("LicenseRef-")}
        near = [names[name] for name in difflib.get_close_matches(unknown[0].lower(), names, n=3, cutoff=0.6)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise SourceError(f"license={license!r} of a source: SPDX has no license {unknown[0]!r}.{hint} {advice}.")
    return str(parsed.render("{symbol.key}"))


class _Licensing(Protocol):
    """The part of `license_expression.Licensing` that is used here."""

    known_symbols: Mapping[str, object]

    def parse(self, expression: str) -> _Expression: ...

    def unknown_license_keys(self, expression: _Expression) -> Sequence[str]: ...


class _Expression(Protocol):
    def render(self, template: str) -> str: ...


@functools.lru_cache(maxsize=1)
def _licensing(make: Callable[[], _Licensing]) -> _Licensing:
    return make()  # 12 ms


def _check_period(collected: str) -> None:
    try:
        parts = collected.split("/")
        if len(parts) > 2 or not all(map(_DATE.fullmatch, parts)):
            raise ValueError
        days = [datetime.date.fromisoformat(part + "-01" * (2 - part.count("-"))) for part in parts]
        if days != sorted(days):
            raise ValueError
    except ValueError:
        raise SourceError(
            f"collected={collected!r} of a source should be a year, month or day, or two of these from the earlier to "
            "the later, such as 2024-05 or 2023-11/2024-05."
        ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceTerms:
    """A manifest's entry for one source: its terms, and its source shards, `first_shard` to `end_shard - 1`."""

    terms: Terms
    first_shard: int
    end_shard: int

    def to_json(self) -> dict[str, object]:
        return {**self.terms.to_json(), "shards": [self.first_shard, self.end_shard]}

    @classmethod
    def from_json(cls, made: object, *, path: str = "manifest", where: str = "source") -> SourceTerms:
        """Raises `CorruptManifestError` if `made` is not what `to_json` returns."""
        checked = Checked(path, where, made, (*FIELDS, "shards"))
        shards = checked.counts("shards")
        if len(shards) != 2 or shards[0] >= shards[1]:
            raise checked.fail("shards", "the first source shard, and the one after the last")
        terms = Terms(**{field: checked.text(field) for field in FIELDS})
        return cls(terms=terms, first_shard=shards[0], end_shard=shards[1])


def noted(parts: Sequence[object], sources: Sequence[SourceTerms]) -> list[object]:
    """What names a snapshot, with the terms of its sources.

    They change no shard, but stand in the manifest: with another license the same files are another snapshot.
    """
    return [*parts, [source.to_json() for source in sources]] if sources else [*parts]


def terms_by_range(terms: Iterable[Terms]) -> tuple[SourceTerms, ...]:
    """The terms of source shards 0, 1, …, as ranges; none at all if no source declares any.

    `[MIT, MIT, CC0]` → `MIT: 0 … 1, CC0: 2`
    """
    found: list[SourceTerms] = []
    for shard, each in enumerate(terms):
        if found and found[-1].terms == each:
            found[-1] = dataclasses.replace(found[-1], end_shard=shard + 1)
        else:
            found.append(SourceTerms(terms=each, first_shard=shard, end_shard=shard + 1))
    return tuple(found) if any(each.terms for each in found) else ()
