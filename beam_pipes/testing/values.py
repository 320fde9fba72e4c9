"""Values of any kind: digests that equal values share, independent copies, lazy parts, and short descriptions.

The results of trials: findings, and the verdict.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import pickle
import reprlib
from collections.abc import Iterator, Mapping

import numpy as np

from beam_pipes.format.spec import Record
from beam_pipes.identity.canonical import digest_of
from beam_pipes.identity.fingerprint import canonical

_DEPTH = 8

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 90
_short.maxlist = _short.maxtuple = _short.maxdict = 8


def value_digest(value: object) -> str:
    """A digest that is the same for equal values in every process; the order of dicts and sets does not matter."""
    try:
        return digest_of(canonical(value))
    except Exception:
        pass  # no canonical form: an image, a tensor, a stage's own class
    try:
        # Pickled twice: the copy no longer shares objects that the original shared by chance.
        data = pickle.dumps(pickle.loads(pickle.dumps(value)))
    except Exception:
        return f"a {type(value).__qualname__}"
    return hashlib.sha256(data).hexdigest()


class Frozen:
    """A value as it was when frozen; `thaw` gives an independent copy."""

    __slots__ = ("_data", "_value", "problem")

    def __init__(self, value: object) -> None:
        self._data: bytes | None = None
        self._value: object = None
        self.problem: str | None = None
        try:
            self._data = pickle.dumps(value)
            pickle.loads(self._data)
        except Exception as error:
            self._data, self.problem = None, f"{type(error).__name__}: {error}"
            try:
                self._value = copy.deepcopy(value)
            except Exception:
                self._value = value

    def thaw(self) -> Record:
        if self._data is not None:
            return pickle.loads(self._data)
        try:
            return copy.deepcopy(self._value)
        except Exception:
            return self._value

    def __getstate__(self) -> tuple[object, ...]:
        if self._data is None:
            raise TypeError(self.problem)
        return (self._data,)

    def __setstate__(self, state: tuple[bytes]) -> None:
        (self._data,), self._value, self.problem = state, None, None


def lazy_part(value: object, depth: int = _DEPTH) -> str | None:
    """The type of an iterator inside a value: `{"ids": map(int, …)}` → `map`; None if there is no iterator."""
    if isinstance(value, Iterator):
        return type(value).__name__
    if not depth:
        return None
    return next(filter(None, (lazy_part(part, depth - 1) for part in _parts(value))), None)


def nearly_equal(one: object, other: object, depth: int = _DEPTH) -> bool:
    """Whether two values differ at most in the last digits of floats."""
    if isinstance(one, (float, complex, np.ndarray, np.generic)) and type(one) is type(other):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype != second.dtype or first.shape != second.shape:
            return False
        if first.dtype.kind not in "fc":
            return bool(np.array_equal(first, second))
        return bool(np.allclose(first, second, rtol=1e-2, atol=1e-6, equal_nan=True))
    if depth and isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(nearly_equal(one[key], other[key], depth - 1) for key in one)
    if depth and isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(nearly_equal(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    return value_digest(one) == value_digest(other)


def brief_value(value: Record) -> str:
    """A value on one line."""
    if isinstance(value, np.ndarray):
        shown = np.array2string(value, threshold=8, edgeitems=4, max_line_width=10**6)
        return f"{value.dtype}{list(value.shape)} {shown}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {brief_value(item)}" for key, item in list(value.items())[:8]) + "}"
    if type(value) in (list, tuple):
        return "[" + ", ".join(brief_value(item) for item in value[:4]) + (", …]" if len(value) > 4 else "]")
    return _short.repr(value)


def _parts(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []


#: Every kind of finding, and what it means.
KINDS = {
    "aliasing": "what was given for one record changes when a later one is processed",
    "batch": "`transform_batch` and `transform` differ, or the cuts between batches show",
    "clock": "the time shows in what is given",
    "declaration": "the declaration is another one in another process",
    "entropy": "random bytes of the system show: `uuid`, `os.urandom`, an unseeded generator",
    "environment": "an environment variable shows",
    "fails": "the build would stop: a record fails, or cannot be stored",
    "hash_seed": "the order of a set, or `hash()` of a string, shows",
    "identity": "`id()` shows: the address of an object in memory",
    "key_order": "the order of a dict's keys, or of a set, goes from one stage to the next",
    "late": "a trial did not end in time",
    "lazy": "an iterator is given, which is worked out later and only once",
    "locale": "the locale shows",
    "mutation": "the input is changed",
    "not_importable": "another process cannot import what the declaration is made of",
    "not_picklable": "what the declaration is made of, or what a stage gives, cannot be pickled",
    "process": "which process it is shows",
    "random": "the state of a global random generator shows",
    "rebuild": "a build that was killed and run again, or retried, wrote other bytes",
    "rounding": "the last digits depend on the size of batches",
    "source": "the source gives other records when it is read again",
    "state": "records processed before show",
    "statistics": "statistics differ from run to run, or with the order in which they are merged",
    "time_zone": "the time zone shows",
    "unknown": "something shows that no trial could name",
    "working_directory": "the working directory shows",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong with one stage.

    Attributes:
        kind: one of `KINDS`.
        stage: the stage's name; "source", or the declaration's name where no single stage is at fault.
        message: what happens and what to do about it; the same in every run.
        record: the id of a record that shows it, or None if no record is needed.
        expected: the stage's first output, shortened.
        found: its output in the trial, shortened.
        place: the responsible line of user code, if known: `stages.py:31`.
    """

    kind: str
    stage: str
    message: str
    record: str | None = None
    expected: str | None = None
    found: str | None = None
    place: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.stage} [{self.kind}]: {self.message}"]
        if self.record is not None:
            lines.append(f"    record {self.record}")
        if self.place is not None:
            lines.append(f"    at {self.place}")
        if self.expected is not None:
            lines.append(f"    first: {self.expected}")
        if self.found is not None:
            lines.append(f"    then:  {self.found}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of `check_declaration`: what was tried, on how much, and what is wrong.

    `stages` and `findings` are in the order of the graph; `trials` are in words.
    """

    declaration: str
    records: int
    shards: int
    stages: tuple[str, ...]
    trials: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def robust(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def kinds(self, stage: str | None = None) -> set[str]:
        """The kinds of findings, for one stage or for all."""
        return {finding.kind for finding in self.findings if stage is None or finding.stage == stage}

    def to_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "robust": self.robust}

    def __str__(self) -> str:
        what = f"{self.records} records of {self.shards} source shards through {' → '.join(self.stages)}"
        if self.robust:
            return f"declaration {self.declaration!r} is robust: {what}. Tried: {'; '.join(self.trials)}."
        count = "1 finding" if len(self.findings) == 1 else f"{len(self.findings)} findings"
        return "\n".join(
            [f"declaration {self.declaration!r} is not robust, {count}: {what}.", *map(str, self.findings)]
        )
