"""Declarations with one bug each, of every kind that `beam_pipes.testing` should find, and clean ones."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import io
import itertools
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources import Memory
from beam_pipes.typed import Counter, DAGPipeline, Histogram, Input, Output, Pipeline, Statistic

LINES = [f"{chr(97 + number % 26)} bee {number} dodo e{number % 3} fox" for number in range(24)]
WORDS = {"words": FeatureSpec("str")}


def of(stage: Any, *more: Any, features: Any = WORDS, **options: Any) -> Declaration:
    """The declaration of a stage over `LINES`, followed by further stages."""
    dag: dict[Any, Any] = {stage: Input(str)}
    last = stage
    for following in more:
        dag[following] = last
        last = following
    dag[Output("train")] = last
    source = Memory(LINES, records_per_shard=8, name="lines")
    return Declaration(name="planted", source=source, pipeline=DAGPipeline(dag), features=features, **options)


class ToWords(Pipeline):
    """A line as an example; the subclasses do it wrongly."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"words": self.words(line)}]

    def words(self, line: str) -> str:
        return line.upper()


class OnExamples(Pipeline):
    """An example as another one."""

    input_type = dict
    output_type = dict

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [example]


def clean() -> Declaration:
    return of(ToWords(), OnExamples())


class Clock(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {time.time_ns()}"


class Today(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {datetime.date.today()}"


class GlobalRandom(ToWords):
    def words(self, line: str) -> str:
        return random.choice(line.split()) + str(random.random())


class NumpyRandom(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {np.random.rand():.9f}"


class Identifier(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {uuid.uuid4()}"


class SystemBytes(ToWords):
    def words(self, line: str) -> str:
        return line + os.urandom(4).hex()


class ProcessId(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {os.getpid()}"


class SetOrder(ToWords):
    def words(self, line: str) -> str:
        return " ".join(set(line.split()))


class StringHash(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {hash(line) % 1000}"


class Thing:
    """Something that lies somewhere."""


THING = Thing()


class ObjectId(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {id(THING)}"


class Numbered(ToWords):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def words(self, line: str) -> str:
        self.number += 1
        return f"{self.number} {line}"


class Deduplicated(ToWords):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def transform(self, line: str) -> list[dict[str, Any]]:
        ending = line.split()[-2]
        if ending in self.seen:
            return self.drop("seen_before")
        self.seen.add(ending)
        return [{"words": line}]


_previous: list[str] = []


class LeakedThroughModule(ToWords):
    def words(self, line: str) -> str:
        before = _previous[-1] if _previous else ""
        _previous[:] = [line]
        return before + line


@functools.lru_cache(maxsize=1)
def _first_asked(_: int) -> list[int]:
    return [0]


class CachedAndChanged(ToWords):
    def words(self, line: str) -> str:
        counted = _first_asked(0)
        counted[0] += 1
        return f"{counted[0]} {line}"


class ReadsOn(ToWords):
    """Labels lines with those of a file that it opened once."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = io.StringIO("".join(f"label {number}\n" for number in range(10_000)))

    def words(self, line: str) -> str:
        return self.labels.readline().strip() + line


class Mutates(OnExamples):
    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        example["words"] += "!"
        return [example]


class MutatesInside(OnExamples):
    """Sorts, in place, an array that the example shares with another branch."""

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        example["codes"].sort()
        return [{"codes": example["codes"].copy()}]


class Codes(ToWords):
    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"codes": np.array([ord(letter) for letter in line], np.int32)}]


class OneBuffer(ToWords):
    """Fills the same array for every record, which the engine copies: no bug."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(4, np.int32)

    def transform(self, line: str) -> list[dict[str, Any]]:
        self.buffer[:] = [ord(letter) for letter in line[:4]]
        return [{"codes": self.buffer}]


@dataclasses.dataclass
class Line:
    """An object of a user's class, which the engine passes on as it is."""

    text: str


class OneObject(Pipeline):
    """Gives the same object, changed, for every record."""

    input_type = str
    output_type = Line

    def __init__(self) -> None:
        super().__init__()
        self.line = Line("")

    def transform(self, line: str) -> list[Line]:
        self.line.text = line.upper()
        return [self.line]


class OfLine(Pipeline):
    input_type = Line
    output_type = dict

    def transform(self, line: Line) -> list[dict[str, Any]]:
        return [{"words": line.text}]


class Lazy(ToWords):
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"codes": map(ord, line)}]


class Eager(OnExamples):
    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"words": " ".join(map(str, example["codes"]))}]


class Holder:
    """A value that cannot be pickled, even by name."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.read = lambda: line


class GivesLambda(ToWords):
    output_type = Holder

    def transform(self, line: str) -> list[Holder]:
        return [Holder(line)]


class Unpacks(Pipeline):
    input_type = Holder
    output_type = dict

    def transform(self, holder: Holder) -> list[dict[str, Any]]:
        return [{"words": holder.line}]


class BatchMean(ToWords):
    """Centres lengths, by the whole batch or by nothing."""

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"length": 0.0}]

    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        mean = sum(map(len, lines)) / len(lines)
        return [[{"length": len(line) - mean}] for line in lines]


class OtherInBatches(ToWords):
    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        return [[{"words": line.lower()}] for line in lines]


class CountsBatches(ToWords):
    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        self._set_stats([Counter("batches", 1)])
        return [self.transform(line) for line in lines]


class RoundsInBatches(ToWords):
    """The last digits of a sum depend on neighbouring records."""

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"total": float(len(line)) * 0.1}]

    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        shift = 1e6 * len(lines)
        return [[{"total": (shift + len(line) * 0.1) - shift}] for line in lines]


class LastValue(Statistic):
    """Keeps the last value, so the result depends on which shard is merged last."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__(name)
        self.value = value

    def _merge_from(self, other: LastValue) -> None:
        self.value = other.value

    def copy(self) -> LastValue:
        return LastValue(self.name, self.value)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.value}"


class CountsLast(ToWords):
    def transform(self, line: str) -> list[dict[str, Any]]:
        self._set_stats([LastValue("last", line)])
        return super().transform(line)


class TimesItself(ToWords):
    def transform(self, line: str) -> list[dict[str, Any]]:
        nanoseconds = Histogram("nanoseconds", [2**power for power in range(63)])
        nanoseconds.increment(time.time_ns())
        self._set_stats([nanoseconds, Counter("fraction", time.time_ns() % 1_000_003)])
        return super().transform(line)


class FromVariable(ToWords):
    def words(self, line: str) -> str:
        return line + os.environ.get("PLANTED_SUFFIX", "")


class FromDirectory(ToWords):
    def words(self, line: str) -> str:
        return f"{os.path.basename(os.getcwd())} {line}"


class FromRelativeFile(ToWords):
    def words(self, line: str) -> str:
        return line + Path("planted_suffix.txt").read_text(encoding="utf-8")


class LocalTime(ToWords):
    def words(self, line: str) -> str:
        return f"{line} {datetime.datetime.fromtimestamp(len(line) * 86_400)}"


class LocaleEncoding(ToWords):
    """Reads a UTF-8 file in the locale's encoding."""

    def words(self, line: str) -> str:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_text("é", encoding="utf-8")
            return line + Path(file.name).read_text()


SALT = os.urandom(4).hex()


class MadeUpAtImport(ToWords):
    def words(self, line: str) -> str:
        return line + SALT


class OrderedDict(ToWords):
    """Equal dicts whose keys are in the order of a set."""

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [dict.fromkeys(set(line.split()), 1)]


class JoinsKeys(OnExamples):
    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"words": " ".join(example)}]


class Fails(ToWords):
    def words(self, line: str) -> str:
        if " 17 " in line:
            raise ValueError("seventeen")
        return line


class NotStored(ToWords):
    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"words": len(line)}]


@dataclasses.dataclass(frozen=True, eq=False)
class Calls(ToWords):
    function: Any = None

    def words(self, line: str) -> str:
        return str(self.function(line))


_NUMBERS = itertools.count()


class TakesNumbers(ToWords):
    def words(self, line: str) -> str:
        return f"{next(_NUMBERS)} {line}"


class KnowsOfTheRun(ToWords):
    """Says how the build that wrote it was to end, which no trial of a stage can see."""

    def words(self, line: str) -> str:
        return line + os.environ.get("BEAM_PIPES_KILL_AT", "")


# Read when this module is imported, as a setting of the whole program would be.
DIRECTORY = os.environ.get("PLANTED_DIRECTORY", ".")


class Logs(ToWords):
    """Leaves a file behind, and returns its previous content."""

    def words(self, line: str) -> str:
        log = Path(DIRECTORY, "planted.log")
        if os.environ.get("BEAM_PIPES_KILL_AT"):
            log.write_text("killed")
        return line + (log.read_text() if log.exists() else "")


class Never(ToWords):
    def words(self, line: str) -> str:
        if " 5 " in line:
            time.sleep(600)
        return line


@dataclasses.dataclass(frozen=True, eq=False)
class ReadsAsset(ToWords):
    suffix: Asset = Asset("planted_suffix.txt")

    def words(self, line: str) -> str:
        return line + Path(self.suffix).read_text(encoding="utf-8")


class Keyed(ToWords):
    """Draws correctly, and keeps state that does not affect the output."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, int] = {}

    def transform(self, line: str) -> list[dict[str, Any]]:
        words = [self.known.setdefault(word, len(word)) for word in sorted(set(line.split()))]
        if self.rng().random() < 0.2:
            return self.drop("unlucky")
        started = time.monotonic()
        self._set_stats([Counter("words", len(words)), Histogram("lengths", [0, 2, 4])])
        assert time.monotonic() >= started
        return [{"words": f"{self.rng().integers(1000)} {words}"}]


class Vectorised(ToWords):
    def transform(self, line: str) -> list[dict[str, Any]]:
        if not line.startswith(("a", "b", "c")):
            return self.drop("other")
        return [{"words": line.upper()}]

    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        return [self.transform(line) for line in lines]


class DeadLetters(ToWords):
    def words(self, line: str) -> str:
        if line.startswith("c"):
            raise ValueError(f"cannot take {line!r}")
        return line


@dataclasses.dataclass(frozen=True, eq=False)
class Shuffled(Memory):
    """A source that gives its values in another order every time."""

    def read(self, shard: Any, *, batch_records: int = 256, batch_bytes: int = 1 << 20) -> Iterator[Any]:
        order = collections.deque(self.values)
        order.rotate(random.randrange(1, len(order)))
        again = dataclasses.replace(self, values=list(order))
        yield from Memory.read(again, shard, batch_records=batch_records, batch_bytes=batch_bytes)


@dataclasses.dataclass(frozen=True, eq=False)
class Stamped(ToWords):
    """Its configuration contains the time of import, which does not affect the output."""

    imported_at: int = time.time_ns()


def shuffled() -> Declaration:
    return dataclasses.replace(clean(), source=Shuffled(LINES, records_per_shard=8, name="lines"))


def declared(name: str) -> Declaration:
    return {
        "mutates": lambda: of(ToWords(), Mutates()),
        "mutates_inside": lambda: of(Codes(), MutatesInside(), features={"codes": FeatureSpec("int32", shape=(None,))}),
        "one_buffer": lambda: of(OneBuffer(), features={"codes": FeatureSpec("int32", shape=(4,))}),
        "one_object": lambda: of(OneObject(), OfLine()),
        "lazy": lambda: of(Lazy(), Eager()),
        "gives_lambda": lambda: of(GivesLambda(), Unpacks()),
        "batch_mean": lambda: of(BatchMean(), features={"length": FeatureSpec("float64")}),
        "rounds": lambda: of(RoundsInBatches(), features={"total": FeatureSpec("float64")}),
        "ordered_dict": lambda: of(OrderedDict(), JoinsKeys()),
    }[name]()


def __getattr__(name: str) -> Any:
    """`planted_bugs:Clock_` is the declaration of `Clock`; `planted_bugs:lazy_` the one that `declared` makes."""
    if not name.endswith("_") or name.startswith("_"):
        raise AttributeError(name)
    stage = globals().get(name[:-1])
    if stage is DeadLetters:
        return lambda: of(stage(), on_error="dead_letter", max_bad=5)
    return (lambda: of(stage())) if isinstance(stage, type) else (lambda: declared(name[:-1]))
