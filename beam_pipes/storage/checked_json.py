"""JSON objects read with checks: every problem is a `CorruptManifestError` that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from beam_pipes.errors import CorruptManifestError

# What a JSON parser returns. Only the reader knows which fields an object has and what they hold: it checks what comes
# from outside, and indexes what this library wrote itself.
JsonValue = Any  # None, bool, int, float, str, or a list or dict of these
JsonObject = Mapping[str, JsonValue]

# Python's names for the numbers that JSON does not have → how they are written.
_WORDS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}

MAX_CRC = (1 << 32) - 1


def canonical_json(value: object) -> bytes:
    """One byte string for equal values: sorted keys, no spaces, UTF-8; floats in their shortest exact form.

    Raises `ValueError` for NaN and infinities, which JSON does not have.
    """
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    )


def strict_json(
    value: object,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = True,
    cls: type[json.JSONEncoder] | None = None,
) -> str:
    """JSON that every parser reads: numbers that JSON lacks become the texts "nan", "inf" and "-inf".

        strict_json({"loss": math.nan, "step": 3})  →  '{"loss": "nan", "step": 3}'

    `float()` and NumPy read the texts back. The options are those of `json.dumps`, which writes NaN and Infinity; that
    is not JSON, and most parsers besides Python's refuse it.
    """

    def dumps(value: object, *, allow_nan: bool, cls: type[json.JSONEncoder] | None) -> str:
        return json.dumps(
            value,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
            ensure_ascii=ensure_ascii,
            cls=cls,
            allow_nan=allow_nan,
        )

    try:
        return dumps(value, allow_nan=False, cls=cls)
    except ValueError:  # also for a value that contains itself: raised again here
        words = json.loads(dumps(value, allow_nan=True, cls=cls), parse_constant=_WORDS.__getitem__)
        return dumps(words, allow_nan=False, cls=None)


def corrupt(path: str, field: str, expected: str, found: object) -> CorruptManifestError:
    text = repr(found)
    return CorruptManifestError(
        f"{path}: {field} should be {expected}, got {text if len(text) <= 120 else text[:117] + '...'}. The manifest "
        "was "
        "changed or damaged; rebuild or copy the cache again.",
        path=path,
        field=field,
        expected=expected,
        found=found,
    )


def parse_object(data: bytes, *, path: str) -> dict[str, object]:
    """A JSON object from bytes; duplicate keys and constants such as NaN are refused."""

    def no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise corrupt(path, twice, "there once", "two fields of this name")
        return made

    def no_constants(name: str) -> NoReturn:
        raise corrupt(path, "a number", "finite", name)

    try:
        made = json.loads(data.decode(), object_pairs_hook=no_duplicates, parse_constant=no_constants)
    except CorruptManifestError:
        raise
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits too
        raise CorruptManifestError(
            f"{path}: expected JSON, found {len(data)} bytes that do not parse: {error}. The manifest was changed or "
            "damaged; rebuild or copy the cache again.",
            path=path,
            field="",
        ) from error
    if not isinstance(made, dict):
        raise corrupt(path, "the manifest", "a JSON object", made)
    return made


class Checked:
    """A JSON object that is being checked; `where` is the path of fields that leads to it."""

    def __init__(self, path: str, where: str, value: object, fields: Sequence[str]) -> None:
        self._path = path
        self._where = where
        if not isinstance(value, Mapping):
            raise corrupt(path, where or "the manifest", "an object", value)
        self._value = value
        for name in fields:
            if name not in value:
                raise corrupt(path, self._name(name), "present", "nothing")
        for name in value:
            if name not in fields:
                raise corrupt(path, self._name(name), f"one of the known fields {sorted(fields)}", value[name])

    def _name(self, field: str) -> str:
        return f"{self._where}.{field}" if self._where else field

    def fail(self, field: str, expected: str) -> CorruptManifestError:
        return corrupt(self._path, self._name(field), expected, self._value.get(field))

    def text(self, field: str) -> str:
        value = self._value[field]
        if not isinstance(value, str):
            raise self.fail(field, "a string")
        return value

    def count(self, field: str, *, most: int = (1 << 63) - 1) -> int:
        value = self._value[field]
        if not _is_count(value, most):
            raise self.fail(field, f"an int from 0 to {most}")
        return int(value)

    def counts(self, field: str, *, most: int = (1 << 63) - 1) -> list[int]:
        value = self._value[field]
        # `set(map(type, …))` and min/max run in C: 10^5 shards have 5 x 10^5 numbers.
        if (
            not isinstance(value, list)
            or set(map(type, value)) - {int}
            or (value and (min(value) < 0 or max(value) > most))
        ):
            raise self.fail(field, f"a list of ints from 0 to {most}")
        return value

    def object(self, field: str) -> JsonObject:
        value = self._value[field]
        if not isinstance(value, Mapping):
            raise self.fail(field, "an object")
        return value

    def list(self, field: str) -> list[JsonValue]:
        value = self._value[field]
        if not isinstance(value, list):
            raise self.fail(field, "a list")
        return value

    def any(self, field: str) -> JsonValue:
        return self._value[field]


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most
