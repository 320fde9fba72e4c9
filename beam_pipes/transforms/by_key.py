"""Sampling and splitting by key: records that belong together, such as those of a user, stay together.

| word | meaning |
| --- | --- |
| key | the name of a record's group: a field, its file, its cluster of duplicates, or the result of a function |
| draw | a number from 0 to 1 that depends only on (seed, stage's name, key) |

`SampleByKey` keeps a sample of keys, with all the records of each; `SplitByKey` sends all records of a key to the same
split. `SplitByTime` splits before and after a time, `SplitByField` as a field says.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipes.analysis import Result
from beam_pipes.engine.graph import brief
from beam_pipes.engine.records import current_context
from beam_pipes.engine.statistics import plain_number
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.transforms.dedup.row_file import record_place
from beam_pipes.typed import Pipeline, RandomPartition

__all__ = ["SOURCE_FILE", "GroupKey", "SampleByKey", "SplitByField", "SplitByKey", "SplitByTime"]


class SourceFile:
    """Stands for the file that a record was read from, as a key: the lines of a document stay together."""

    def __repr__(self) -> str:
        return "SOURCE_FILE"


SOURCE_FILE = SourceFile()


@dataclasses.dataclass(frozen=True)
class ClusterKey:
    """Gives the name of the cluster of duplicates that the current record belongs to, see `Duplicates.cluster_key`."""

    result: Result

    def __call__(self, record: object) -> str:
        context = current_context()
        assert context is not None  # set by whoever calls `transform`, see `Pipeline`
        name: str = self.result.value().cluster_key(context.record_id)
        return name


KeyOf = str | SourceFile | Result | Callable[[Any], str | bytes | int]


@dataclasses.dataclass(frozen=True)
class GroupKey:
    """Gives the key of a record: `GroupKey("user", stage="SplitByKey")({"user": 7, "text": "to be"})` → `7`.

    `of` is the name of a field (of a mapping) or attribute (of a protocol buffer), `SOURCE_FILE`, the result of an
    analyzer that finds duplicates (then the key is the name of the cluster: the id of the member whose id has the
    smallest hash), or a function of the record. Keys are str, bytes or int; `7`, `"7"` and `b"7"` are the same key.

    Raises `DeclarationError` if a record does not have the field.
    """

    of: KeyOf
    stage: str

    def __post_init__(self) -> None:
        if not isinstance(self.of, (str, SourceFile, Result)) and not callable(self.of):
            raise DeclarationError(
                f"{self.stage}: key should be the name of a field, SOURCE_FILE, near.result or a function of the "
                f"record, got {brief(self.of)}. Example: key='user'.",
                stage=self.stage,
            )
        if isinstance(self.of, Result):
            object.__setattr__(self, "of", ClusterKey(self.of))

    def __call__(self, record: object) -> Any:
        if isinstance(self.of, SourceFile):
            context = current_context()
            assert context is not None  # set by whoever calls `transform`, see `Pipeline`
            return record_place(context.record_id).file
        if callable(self.of):
            return self.of(record)
        assert isinstance(self.of, str)  # a result has become a ClusterKey
        if isinstance(record, Mapping):
            if self.of in record:
                return record[self.of]
            there = f"the fields {sorted(map(str, record))}"
        else:
            if hasattr(record, self.of):
                return getattr(record, self.of)
            there = brief(record)
        raise DeclarationError(
            f"{self.stage}: a record should have the field {self.of!r}, which is its key, got {there}. Drop such "
            "records before, or give a function: key=lambda record: ...",
            stage=self.stage,
            key=self.of,
        )


class SampleByKey(Pipeline):
    """Lets through the records of a fraction of all keys, and drops the others as `not sampled`.

        SampleByKey(0.1, key="user")     a tenth of the users, with all their records

    The choice is a function of (seed, name, key), as in `SplitByKey`, but independent of it. A larger fraction or more
    data keeps the sample and adds to it.

    Args:
        fraction: of keys, from 0 to 1.
        key: the name of a field; `SOURCE_FILE`; the result of an analyzer of `beam_pipes.transforms.dedup`, whose
            clusters then stay together; or a function of the record that gives a str, bytes or an int.
        type_: the class of records. Default: dict, an example.
        seed: another seed, another sample.
        name: the stage's name.

    Raises `DeclarationError` if the fraction is not from 0 to 1, or a record has no key.
    """

    def __init__(
        self, fraction: float, *, key: KeyOf, type_: type = dict, seed: int = 0, name: str = "SampleByKey"
    ) -> None:
        if not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise DeclarationError(
                f"{name}: a fraction of keys lies between 0 and 1, got {fraction!r}. Example: 0.1 for a tenth.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=type_, name=name)
        self.fraction = fraction
        self.partition = RandomPartition(
            type_, ["sampled", "rest"], [fraction], seed=seed, key=GroupKey(key, stage=name), name=name
        )

    def transform(self, input_object: object) -> list[object]:
        sampled: list[object] = self.partition.transform(input_object)["sampled"]
        return sampled or self.drop("not sampled")


class SplitByKey(RandomPartition):
    """Sends each record to one of the named outputs, by its key: no user is in two splits.

        split = SplitByKey({"train": 0.98, "valid": 0.02}, key="user")
        DAGPipeline({split: Input(dict), Output(): split})

        {"user": "ann", "text": "to be"}   → train
        {"user": "bob", "text": "or not"}  → valid
        {"user": "ann", "text": "to see"}  → train

    The choice is a function of (seed, name, key). It is the same on every runner, and keys keep their split when data
    is added. A record keeps its key, unless the key is the result of an analyzer of duplicates and its cluster gets or
    loses members: if n members get m more, the cluster is renamed and drawn again as a whole with a probability of m /
    (n + m). Unchanged clusters keep their split.

    If fractions change, only keys that no longer fit move: the outputs divide the interval from 0 to 1 in their order,
    and each key has a fixed number in it. Datasets that are split with the same name, seed and fractions agree on every
    key.

    Fractions are of keys, not of records: if a few users have most of the records, splits may be far from the
    fractions.

    Args:
        fractions: output → fraction; they add up to 1.
        key: the name of a field; `SOURCE_FILE`; the result of an analyzer of `beam_pipes.transforms.dedup`, whose
            clusters then stay together; or a function of the record that gives a str, bytes or an int.
        type_: the class of records. Default: dict, an example.
        seed: another seed, another choice.
        name: the stage's name; two splits of one graph choose independently because they have different names.

    Raises `DeclarationError` if fractions do not add up, or a record has no key.
    """

    def __init__(
        self,
        fractions: Mapping[str, float],
        *,
        key: KeyOf,
        type_: type = dict,
        seed: int = 0,
        name: str = "SplitByKey",
    ) -> None:
        if not isinstance(fractions, Mapping):
            raise DeclarationError(
                f"{name}: fractions are output → fraction, got {brief(fractions)}. Example: "
                "{'train': 0.98, 'valid': 0.02}.",
                stage=name,
            )
        names, parts = list(fractions), list(fractions.values())
        super().__init__(type_, names, parts, seed=seed, key=GroupKey(key, stage=name), name=name)


class SplitByField(Pipeline):
    """Sends each record to the output that one of its fields names, which is not stored.

        SplitByField(["train", "test"], field="split")

        {"text": "to be", "split": "train"}  → train: {"text": "to be"}

    Raises `TaskError` for a record that names another one.
    """

    def __init__(self, splits: Sequence[str], *, field: str, type_: type = dict, name: str = "SplitByField") -> None:
        super().__init__(input_type=type_, output_type=dict.fromkeys(splits, type_), name=name)
        self.splits = list(splits)
        self.field = field

    def transform(self, input_object: Mapping[str, object]) -> dict[str, list[object]]:
        split = input_object.get(self.field)
        if split not in self.splits:
            raise TaskError(
                f"the field {self.field!r} should be one of the splits {', '.join(self.splits)}, found "
                f"{split!r}. Repair the record, or drop such records (--on-error drop).",
                field=self.field,
            )
        rest = {name: value for name, value in input_object.items() if name != self.field}
        return {name: [rest] if name == split else [] for name in self.splits}


# A date, and maybe a time of day and a zone. What is beyond a microsecond is cut off.
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))? ?(?:(Z)|([+-]\d\d):?(\d\d)?)?)?", re.ASCII
)

Time = str | float


class SplitByTime(Pipeline):
    """Sends each record to the output in whose time its own lies: what is learned from is older than what is tested.

        SplitByTime({"train": "2024-06-01", "eval": None}, field="when")

        {"when": "2024-05-31 23:59"} → train
        {"when": "2024-06-01"}       → eval

    The choice depends on the record's time and the ends alone, so records keep their output when others are added.

    Args:
        ends: output → the time at which it ends, which belongs to the next one; from the earliest to the last, whose
            end is None. A time is text in ISO 8601, such as 2024-06-01 or 2024-06-01T12:00Z, or a number, such as a
            year or seconds since 1970: as the field has them.
        field: the field of the time.
        type_: the class of records. Default: dict, an example.
        name: the stage's name.

    Raises `DeclarationError` if the ends are not in order, `TaskError` for a record without a time, or with one that
    cannot be compared with them: a number instead of a date, or a time with a zone where the ends have none.
    """

    def __init__(
        self, ends: Mapping[str, Time | None], *, field: str, type_: type = dict, name: str = "SplitByTime"
    ) -> None:
        *times, last = [*ends.values()] or [""]
        found = [_moment(time, like=times[0]) for time in times]
        moments: list[Any] = [moment for moment in found if moment is not None]
        if last is not None or not moments or len(moments) < len(times) or moments != sorted({*moments}):
            raise DeclarationError(
                f"{name}: the outputs should end at times of one kind, from the earliest to None, got {dict(ends)!r}. "
                "Example: {'train': '2024-06-01', 'eval': None}.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=dict.fromkeys(ends, type_), name=name)
        self.ends = dict(ends)
        self.field = field
        self._moments = moments
        self._like = times[0]

    def transform(self, input_object: Mapping[str, object]) -> dict[str, list[object]]:
        moment = _moment(found := input_object.get(self.field), like=self._like)
        if moment is None:
            raise TaskError(
                f"the field {self.field!r} should be a time that can be compared with {self._like!r}, "
                f"found {brief(found)}. Give the ends as the field has its times, or drop such records "
                "(--on-error drop).",
                field=self.field,
            )
        number = bisect.bisect_right(self._moments, moment)
        return {name: [input_object] if at == number else [] for at, name in enumerate(self.ends)}


def time_of(text: object) -> datetime.datetime | None:
    """A time in ISO 8601, to a microsecond; None for anything else."""
    match = _ISO.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    date, minutes, seconds, fraction, utc, hours, rest = match.groups()
    zone = "+00:00" if utc else f"{hours}:{rest or '00'}" if hours else ""
    text = f"{date}T{minutes or '00:00'}{seconds or ':00'}.{(fraction or '')[:6].ljust(6, '0')}{zone}"
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:  # 2024-02-30
        return None


def _moment(time: object, *, like: object) -> float | datetime.datetime | None:
    """A time to be compared with others; None for one that is missing, or not of the kind of `like`."""
    if isinstance(like, str):
        moment, of_like = time_of(time), time_of(like)
        return moment if moment and of_like and (moment.tzinfo is None) == (of_like.tzinfo is None) else None
    number: Any = plain_number(time)
    return number if type(number) in (int, float) and not math.isnan(number) else None
