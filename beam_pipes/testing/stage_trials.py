"""The trials of one unit within a process, and their findings."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence

from beam_pipes.engine.account import UnitAccount
from beam_pipes.engine.statistics import Statistic, from_json, to_json
from beam_pipes.testing.causes import Cause, State, cause_of
from beam_pipes.testing.one_unit import OneUnit, Outcome, Run, differing
from beam_pipes.testing.values import Finding, Frozen, brief_value, lazy_part, nearly_equal

KEYED = "Draw from self.rng(), which is keyed by record and stage"

_WORDS = {
    "random": ("gives something else for the same input: it draws from the global generator of {what}. " + KEYED + "."),
    "entropy": (
        "gives something else for the same input: it asks the system for random bytes (`{what}`). " + KEYED + ", or "
        "make ids of self.record_key()."
    ),
    "clock": (
        "gives something else for the same input: it reads the clock (`{what}`). Take times from the record, or leave "
        "them out."
    ),
    "identity": (
        "gives something else for the same input: it uses `{what}`, the address of an object in memory. Use a key that "
        "follows from the value."
    ),
    "process": "gives something else in another process: it asks for `{what}`. Leave out what belongs to one run.",
    "state": (
        "gives something else for a record, depending on the records before it: {what}. Which records come before is "
        "decided by shards, workers and retries. Compute each output from its input alone."
    ),
    "unknown": (
        "gives something else for the same input, and no trial says why. Compute each output from its input alone."
    ),
}


def finding_of(name: str, cause: Cause, one: OneUnit, at: int, expected: object, found: object) -> Finding:
    """The finding for a cause, with a record that shows it."""
    what = cause.what if cause.what is not None else "something that it keeps changes from record to record"
    return Finding(
        kind=cause.kind,
        stage=name,
        message=_WORDS[cause.kind].format(what=what),
        record=one.ids[at],
        expected=str(expected),
        found=str(found),
        place=cause.place,
    )


@dataclasses.dataclass
class Tried:
    """The results of a unit's trials: `reference` are the outcomes that every other run is compared with."""

    reference: dict[int, Outcome]
    frozen: dict[int, dict[str | None, Frozen]]
    findings: list[Finding]


def try_stage(one: OneUnit, *, batch_sizes: Sequence[int], tell: Callable[[str], None]) -> Tried:
    """Runs all trials that need only one process.

    The reference is one pass in order, record by record, each outcome digested at once.
    """
    name, used = one.unit.name, one.used()
    findings: list[Finding] = []
    before = State.of(one.unit.stage)
    tell("in order")
    reference = one.run(used, check=True)
    outcomes = reference.outcomes
    # Frozen after the whole pass, from the current outcomes: aliasing shows as a difference from the earlier digests.
    frozen = {at: {key: Frozen(list(values)) for key, values in each.values.items()} for at, each in outcomes.items()}
    findings += _failing(one, outcomes)
    findings += _lazy(one, outcomes) or _not_picklable(one, frozen)
    findings += _mutation(one, reference)
    aliased = _aliasing(one, outcomes)
    findings += aliased
    tell("once more, and in reverse")
    passes = [one.run(order) for order in (used, used[::-1])]
    for again in passes:
        at = next(differing(outcomes, again.outcomes), None)
        if at is not None and not aliased:
            expected = outcomes[at].failure or _shown(frozen[at])
            findings.append(finding_of(name, cause_of(one, at, before), one, at, expected, again.outcomes[at]))
            break
    else:
        if not aliased:
            findings += _batches(one, reference, frozen, batch_sizes, tell)
            findings += _statistics(one, reference, passes[0])
    return Tried(outcomes, frozen, findings)


def _failing(one: OneUnit, outcomes: dict[int, Outcome]) -> Iterator[Finding]:
    at = next((at for at, outcome in outcomes.items() if outcome.failure is not None), None)
    if at is not None and one.policy == "fail":
        yield Finding(
            kind="fails",
            stage=one.unit.name,
            message="fails on a record, and on_error='fail' would stop the build. Repair the stage or the record, or "
            "allow failures with on_error='dead_letter' or 'drop'.",
            record=one.ids[at],
            found=outcomes[at].failure,
        )


def _lazy(one: OneUnit, outcomes: dict[int, Outcome]) -> list[Finding]:
    for at, outcome in outcomes.items():
        kind = lazy_part(list(outcome.values.values()))
        if kind is not None:
            return [
                Finding(
                    kind="lazy",
                    stage=one.unit.name,
                    message=f"gives an iterator (`{kind}`), which is worked out later, once, and by whoever comes "
                    "first. Make a list or an array of it.",
                    record=one.ids[at],
                    found=str(outcome),
                )
            ]
    return []


def _not_picklable(one: OneUnit, frozen: dict[int, dict[str | None, Frozen]]) -> list[Finding]:
    for at, each in frozen.items():
        problem = next((value.problem for value in each.values() if value.problem is not None), None)
        if problem is not None:
            return [
                Finding(
                    kind="not_picklable",
                    stage=one.unit.name,
                    message="gives a value that cannot be pickled, so it cannot travel to another worker. Give data: "
                    "numbers, strings, bytes, arrays, and what consists of them.",
                    record=one.ids[at],
                    found=problem,
                )
            ]
    return []


def _mutation(one: OneUnit, run: Run) -> Iterator[Finding]:
    for at, left in itertools.islice(run.changed.items(), 1):
        before = [value for frozen in one.inputs[at].values() for value in frozen.thaw()]
        if lazy_part(before) is not None:
            continue  # its first reader exhausts an iterator: the stage that returned it is at fault
        yield Finding(
            kind="mutation",
            stage=one.unit.name,
            message="changes its input, which a retry and other branches of the graph are given too. Copy what is to "
            "be changed.",
            record=one.ids[at],
            expected=brief_value(before[0] if len(before) == 1 else before),
            found=brief_value(left[0] if len(left) == 1 else left),
        )


def _aliasing(one: OneUnit, outcomes: dict[int, Outcome]) -> list[Finding]:
    at = next((at for at, outcome in outcomes.items() if outcome.digest_now() != outcome.digest), None)
    if at is None:
        return []
    later = str(outcomes[at])
    alone = str(one.run([at]).outcomes[at])
    return [
        Finding(
            kind="aliasing",
            stage=one.unit.name,
            message="gives an object for one record and changes it while it processes a later one. Give a new object "
            "for every record.",
            record=one.ids[at],
            expected=alone,
            found=later,
        )
    ]


def _batches(
    one: OneUnit,
    reference: Run,
    frozen: dict[int, dict[str | None, Frozen]],
    sizes: Sequence[int],
    tell: Callable[[str], None],
) -> Iterator[Finding]:
    """Compares the batch method, in batches of several sizes, with the element method."""
    if not one.in_batches:
        return
    used = one.used()
    different: dict[int, int] = {}
    shown: dict[int, Outcome] = {}
    only_digits = True
    for size in dict.fromkeys([*sizes, max(1, len(used))]):
        tell(f"in batches of {size}")
        try:
            run = one.run(used, batch_size=size, batched=True)
        except Exception as error:
            yield Finding(
                kind="fails",
                stage=one.unit.name,
                message="its transform_batch does not return one list for each input.",
                found=f"{type(error).__name__}: {error}",
            )
            return
        for at in differing(reference.outcomes, run.outcomes):
            different.setdefault(size, at)
            shown.setdefault(at, run.outcomes[at])
            only_digits &= nearly_equal(_thawed(frozen[at]), list(run.outcomes[at].values.values()))
        if size not in different and _counts(_merged(run.accounts)) != _counts(_merged(reference.accounts)):
            yield Finding(
                kind="batch",
                stage=one.unit.name,
                message="transform_batch counts something else than transform: inputs, drops or statistics differ.",
                expected=json.dumps(_counts(_merged(reference.accounts)))[:200],
                found=json.dumps(_counts(_merged(run.accounts)))[:200],
            )
            return
    if not different:
        return
    size, at = next(iter(different.items()))
    if only_digits:
        kind = "rounding"
        message = (
            f"transform_batch gives other last digits in batches of {size}. The size of batches is not part of the "
            "declaration: round what is given, or compute each row by itself."
        )
    elif 1 in different:
        kind, message = (
            "batch",
            (
                "transform_batch gives something else than transform. Both have to give the same, because a batch in "
                "which one record fails is done again by transform."
            ),
        )
    else:
        kind, message = (
            "batch",
            (
                f"transform_batch lets the cuts between batches show: in batches of {size} it gives something else "
                "than record by record. Runners cut where they like: compute each output from its input alone."
            ),
        )
    yield Finding(
        kind=kind,
        stage=one.unit.name,
        message=message,
        record=one.ids[at],
        expected=_shown(frozen[at]),
        found=str(shown[at]),
    )


def _statistics(one: OneUnit, reference: Run, again: Run) -> Iterator[Finding]:
    """Statistics of equal passes must be equal, in any order of merging, and survive serialization."""
    name = one.unit.name
    try:
        forwards = _merged(reference.accounts).statistics
    except Exception as error:
        yield Finding(
            kind="statistics",
            stage=name,
            message="its statistics cannot be merged over records.",
            found=f"{type(error).__name__}: {error}",
        )
        return
    try:
        stored = {key: json.loads(json.dumps(to_json(each))) for key, each in forwards.items()}
        restored = {key: to_json(from_json(each)) for key, each in stored.items()}
    except Exception as error:
        yield Finding(
            kind="statistics",
            stage=name,
            message="its statistics cannot be stored as JSON. Keep numbers, strings, lists and dicts in them.",
            found=f"{type(error).__name__}: {error}",
        )
        return
    repeated = _merged(again.accounts).statistics
    backwards = _merged(reference.accounts[::-1]).statistics
    half = len(reference.accounts) // 2
    halves = _merged([_merged(reference.accounts[half:]), _merged(reference.accounts[:half])]).statistics
    order = "depends on the order in which it is merged. Shards finish in any order: _merge_from has to be associative "
    order += "and commutative."
    again_words = "differs between two runs over the same records. Count what follows from the input alone."
    for key, statistic in forwards.items():
        expected = to_json(statistic)
        for other, words in ((repeated, again_words), (backwards, order), (halves, order)):
            message = f"the statistic {key!r} {words}"
            found = _json_of(other.get(key))
            rounded = other is not repeated and found is not None and nearly_equal(found["state"], expected["state"])
            if found != expected and not rounded:
                yield Finding(
                    kind="statistics", stage=name, message=message, expected=str(statistic), found=str(other.get(key))
                )
                break
        else:
            if restored[key] != stored[key]:
                yield Finding(
                    kind="statistics",
                    stage=name,
                    message=f"the statistic {key!r} is another one after it was stored: from_state(state()) has to "
                    "give it back.",
                    expected=json.dumps(stored[key]["state"])[:200],
                    found=json.dumps(restored[key]["state"])[:200],
                )


def _json_of(statistic: Statistic | None) -> dict[str, object] | None:
    return None if statistic is None else to_json(statistic)


def _merged(accounts: Sequence[UnitAccount]) -> UnitAccount:
    total = UnitAccount()
    for account in accounts:
        total.merge_from(account)
    return total


def _counts(account: UnitAccount) -> dict[str, object]:
    try:
        counts = account.to_json()
        json.dumps(counts)
    except TypeError:  # includes InvalidStatisticsException
        counts = dataclasses.replace(account, statistics={}).to_json()
    return {name: value for name, value in counts.items() if name != "partly_dropped"}


def _thawed(values: dict[str | None, Frozen]) -> list[object]:
    return [value.thaw() for value in values.values()]


def _shown(values: dict[str | None, Frozen]) -> str:
    thawed = {key: value.thaw() for key, value in values.items()}
    return brief_value(next(iter(thawed.values())) if len(thawed) == 1 else thawed)


_ELSEWHERE = {
    "process": "gives something else in another process{how}. Compute each output from its input alone.",
    "hash_seed": (
        "gives something else with another hash seed (PYTHONHASHSEED): {how}. Every process has another one: sort "
        "what comes out of a set, and hash with hashlib."
    ),
    "working_directory": (
        "gives something else in another working directory{how}. Wrap files as Asset(path), which travels with the "
        "declaration and counts in its fingerprint."
    ),
    "environment": (
        "gives something else where environment variables are not set{how}. Make it a field of the stage, which "
        "counts in its fingerprint."
    ),
    "time_zone": (
        "gives something else in another time zone{how}. Name the zone (datetime.timezone.utc, for one), and take the "
        "date from the record."
    ),
    "locale": "gives something else in another locale{how}. Name the encoding of files, and format without the locale.",
    "unknown": "gives something else in other surroundings, and no trial alone says which.",
}


def finding_words(factor: str, calls: dict[str, Cause]) -> tuple[str, str, Cause | None]:
    """Kind, message and cause of a difference with one factor; `calls` are the stage's calls by kind."""
    if factor in ("process", "hash_seed"):
        for kind in ("entropy", "process", "identity", "clock", "random"):
            if kind in calls:
                return kind, _WORDS[kind].format(what=calls[kind].what), calls[kind]
    if factor == "process":
        how = ": what it finds outside of its input is not the same there, made up at import or left by another run"
        return factor, _ELSEWHERE[factor].format(how=how), None
    cause = calls.get("clock" if factor == "time_zone" else factor)
    if factor == "hash_seed":
        how = "it uses `hash`" if cause is not None else "it takes the elements of a set as they come"
        return factor, _ELSEWHERE[factor].format(how=how), cause
    what = "" if cause is None else f": it reads `{cause.what}`"
    return factor, _ELSEWHERE[factor].format(how=what), cause
