"""Calls to services: at a rate, again where they failed for a while, and kept, so that no finished one is repeated.

    records ── kept answers? ──┬── yes ────────────────────────────────────────┐
                               └── no ── calls, several at once ── kept ───────┴── results, in the order of the records

The answer for each record is a file in the cache's directory, under the fingerprint of the stage and the digest of the
record: `.answers/<stage>/<record>`. It holds what the function returned, and what the call has counted, so that a build
that was killed has the same account as one that was not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from beam_pipes.checks import brief, integer, number
from beam_pipes.engine.execute import ENDINGS
from beam_pipes.engine.records import RecordContext, current_context, set_context
from beam_pipes.engine.resources import wait_for_turn
from beam_pipes.engine.statistics import Counter, Statistic, from_json, to_json
from beam_pipes.errors import CacheNotFoundError, DeclarationError, ServiceError, SourceError, without_stop
from beam_pipes.sources.record_batch import value_bytes
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import in_parallel
from beam_pipes.storage.requests import Kind, kind_of, retry_after_secs

# A build that has hardly begun may have this many retries, whatever their share.
_FREE_RETRIES = 10
_LONGEST_PAUSE_SECS = 60.0
_LONGEST_RETRY_AFTER_SECS = 600.0
_DIGEST_BYTES = 16

_KNOWN = {
    *(("numpy", name) for name in ("dtype", "ndarray")),
    *((f"numpy.{core}.multiarray", name) for core in ("_core", "core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("_core", "core")),
    *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex")),
    ("beam_pipes.typed.while_running", "Drop"),
}


class _Answer(NamedTuple):
    """What the function returned for one record; the statistics of a call are with the first of its records."""

    produced: object
    counted: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Service:
    """How a stage calls a service: `@stage(service=Service(calls_per_sec=10))`. See `stage`.

    Args:
        calls_per_sec: at most, of all processes on one machine; None: no limit. A cluster has it once a machine.
        at_once: calls of one worker process that wait for an answer at the same time.
        retries: how often a call is repeated that failed for a reason that may pass: no connection, no answer in time,
            HTTP 408, 425, 429, 500, 502, 503, 504 and 529. It waits a random time of up to half a second, then of up to
            twice as long each time, to a minute; and at least as long as `Retry-After` says, to 10 minutes.
        retry_share: how many retries there may be for each call, in one worker process, besides the first ten. A
            service that fails more often ends the build.
        retry_on: further exceptions that may pass.
        name: stages with the same name share `calls_per_sec` and the retries; None: the name of the stage.

    Raises `DeclarationError` for a number out of bounds.
    """

    calls_per_sec: float | None = None
    at_once: int = 8
    retries: int = 5
    retry_share: float = 0.2
    retry_on: tuple[type[Exception], ...] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        integer(self.at_once, least=1, what="Service: at_once")
        integer(self.retries, least=0, what="Service: retries")
        number(self.retry_share, least=0, what="Service: retry_share")
        if self.calls_per_sec is not None:
            number(self.calls_per_sec, above=0, what="Service: calls_per_sec")


class Caller:
    """The calls of one stage: `call` takes the records of one call, `batches` divides records into such."""

    def __init__(
        self,
        stage: str,
        service: Service,
        *,
        classes: Iterable[type],
        batches: Callable[[Sequence[object]], Iterator[Sequence[object]]],
        call: Callable[[Sequence[object]], list[object]],
    ) -> None:
        self._stage = stage
        self._service = service
        self._allowed = {(cls.__module__, cls.__qualname__) for cls in classes} | _KNOWN
        self._batches = batches
        self._call = call

    def results(self, records: list[object]) -> list[object]:
        """What the function returns for each record, by a call or as it is kept.

        Raises what a call raised, after the others have ended and are kept.
        """
        context = current_context()
        left: dict[str, Any] = {} if context is None else context.left
        keys = [self._key(record) for record in records]
        distinct = dict(zip(keys, records, strict=True))
        # The engine runs a batch in which a record failed one by one: what it has called is not called again.
        failed = left.get("_answers", {}) if len(records) == 1 else {}
        found: dict[str, _Answer | Exception] = {key: failed[key] for key in distinct if key in failed}
        directory = None if context is None else context.answers
        if directory is not None:
            unknown = [key for key in distinct if key not in found]
            read = in_parallel(storage_for(directory), lambda key: self._read(f"{directory}/{_place(key)}"), unknown)
            found.update((key, answer) for key, answer in zip(unknown, read, strict=True) if answer is not None)
        shared = self._called(distinct, directory, found)
        error = next((found[key] for key in distinct if isinstance(found[key], Exception)), None)
        if error is not None:
            if len(records) > 1:  # which record of a call of several is at fault will be seen
                left["_answers"] = {key: one for key, one in found.items() if key not in shared}
            raise error  # type: ignore[misc]
        answers = [answer for answer in found.values() if isinstance(answer, _Answer)]
        if context is not None:
            for answer in answers:
                _count(context, map(from_json, answer.counted))
        produced = {key: answer.produced for key, answer in found.items() if isinstance(answer, _Answer)}
        return [produced[key] for key in keys]

    def _called(
        self, records: dict[str, object], directory: str | None, found: dict[str, _Answer | Exception]
    ) -> set[str]:
        """Makes the calls of which an answer is not in `found`, and adds what comes of them: answers and exceptions.

        Returns the records that failed together with others.
        """
        # Divided as if there were no answers yet: a build that was killed makes the same calls as one that was not.
        keys, calls = iter(records), []
        for call in self._batches(list(records.values())):
            own = [*itertools.islice(keys, len(call))]
            if any(key not in found for key in own):
                calls.append((own, call))
        shared: set[str] = set()
        if not calls:
            return shared
        with ThreadPoolExecutor(min(self._service.at_once, len(calls)), "beam_pipes-service") as pool:
            futures = [(own, pool.submit(self._answered, own, call, directory)) for own, call in calls]
            for own, future in futures:
                try:
                    found.update(future.result())
                except ENDINGS:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                except Exception as error:
                    found.update(dict.fromkeys(own, error))
                    shared.update(own if len(own) > 1 else ())
        return shared

    def _answered(self, keys: list[str], records: Sequence[object], directory: str | None) -> dict[str, _Answer]:
        """The answers of one call, kept as soon as they are there."""
        answers = dict(zip(keys, self._answers(records), strict=True))
        if directory is not None:
            self._keep(answers, directory)
        return answers

    def _answers(self, records: Sequence[object]) -> list[_Answer]:
        """One call, repeated where it failed for a reason that may pass."""
        service, retries = self._service, 0
        budget = _budget(service.name or self._stage)
        budget.count_call()
        while True:
            if service.calls_per_sec is not None:
                wait_for_turn(service.name or self._stage, per_sec=service.calls_per_sec)
            context = RecordContext(seed=0, unit=self._stage)
            before = set_context(context)
            try:
                produced = self._call(records)
                break
            except Exception as error:
                temporary = isinstance(error, service.retry_on) or kind_of(error) is Kind.AGAIN
                if not temporary or isinstance(error, DeclarationError) or retries == service.retries:
                    raise
                if not budget.spend(service.retry_share):
                    raise ServiceError(
                        f"its service fails too often: {budget.retries} retries for {budget.calls} calls of this "
                        f"process, more than retry_share={service.retry_share:g} allows; the last one with "
                        f"{type(error).__name__}: {without_stop(error)}. The answers so far are kept: build again when "
                        "the service is well, or give Service(calls_per_sec=…) fewer calls."
                    ).about("stage", self._stage) from error
                pause = random.uniform(0, min(0.5 * 2**retries, _LONGEST_PAUSE_SECS))
                retries += 1
                asked = min(retry_after_secs(error), _LONGEST_RETRY_AFTER_SECS)
            finally:
                set_context(before)
            time.sleep(max(pause, asked))
        _count(context, [Counter("calls", 1), Counter("retries", retries)])
        counted = [to_json(statistic) for statistic in (context.counted or {}).values()]
        return [_Answer(one, [] if position else counted) for position, one in enumerate(produced)]

    def _key(self, record: object) -> str:
        try:
            return hashlib.blake2b(value_bytes(record), digest_size=20).hexdigest()
        except SourceError:
            raise DeclarationError(
                "answers of a service are kept by the content of records, which are numbers, text, bytes, arrays, and "
                f"lists, dicts and dataclasses of them; got {brief(record)}. Put a stage before it that gives what the "
                "call needs."
            ).about("stage", self._stage) from None

    def _keep(self, answers: dict[str, _Answer], directory: str) -> None:
        storage = storage_for(directory)

        def write(key: str) -> None:
            try:
                data = pickle.dumps(tuple(answers[key]), protocol=4)
                self._loaded(data)
            except Exception:
                raise DeclarationError(
                    "the answers of a service are kept, so its function returns numbers, text, bytes, arrays, and "
                    f"lists and dicts of them; got {brief(answers[key].produced)}."
                ).about("stage", self._stage) from None
            path = f"{directory}/{_place(key)}"
            storage.makedirs(path.rpartition("/")[0])
            storage.replace(path, hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() + data)

        first, *others = answers
        in_parallel(storage, write, others)
        write(first)  # which has the counts of the call: never without the other answers

    def _read(self, path: str) -> _Answer | None:
        try:
            content = storage_for(path).read_bytes(path)
        except CacheNotFoundError:
            return None
        data = content[_DIGEST_BYTES:]
        if hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() != content[:_DIGEST_BYTES]:
            return None  # damaged: called again
        try:
            return self._loaded(data)
        except Exception:
            return None  # of another version of NumPy or of a class

    def _loaded(self, data: bytes) -> _Answer:
        return _Answer(*_Plain(data, self._allowed).load())


class _Plain(pickle.Unpickler):
    """Values and nothing that could run: whoever can write into the directory cannot make a worker do anything."""

    def __init__(self, data: bytes, allowed: set[tuple[str, str]]) -> None:
        super().__init__(io.BytesIO(data))
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is no value")
        return super().find_class(module, name)


def _place(key: str) -> str:
    return f"{key[:2]}/{key[2:]}"


def _count(context: RecordContext, statistics: Iterable[Statistic]) -> None:
    counted = {} if context.counted is None else context.counted
    for statistic in statistics:
        known = counted.setdefault(statistic.name, statistic)
        if known is not statistic:
            known.merge_from(statistic)
    context.counted = counted


class _Budget:
    """Calls and retries of this process to one service."""

    def __init__(self) -> None:
        self.calls = self.retries = 0
        self._lock = threading.Lock()

    def count_call(self) -> None:
        with self._lock:
            self.calls += 1

    def spend(self, share: float) -> bool:
        """One retry more, if there is one left."""
        with self._lock:
            if self.retries >= _FREE_RETRIES + share * self.calls:
                return False
            self.retries += 1
            return True


_budgets: dict[str, _Budget] = {}


def _budget(name: str) -> _Budget:
    return _budgets.setdefault(name, _Budget())
