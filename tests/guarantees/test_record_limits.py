"""Records that never return, take all memory or crash their process: quarantined, and nothing else is lost."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import limited_declarations
import pytest
from built_files import built_files

from beam_pipes.building.limits import Quarantined, quarantined_snapshot
from beam_pipes.building.workers.supervision import RecordClock, ShardJournal
from beam_pipes.cache import Cache
from beam_pipes.errors import (
    DeclarationError,
    RecordCrashError,
    RecordMemoryError,
    RecordQuarantinedError,
    RecordTimeoutError,
    StageError,
    WorkerDiedError,
)
from beam_pipes.runners import BeamOptions, LocalOptions, build

ONE = LocalOptions(workers=1)
LINES = 60

TIMEOUT = "transform had not returned after record_timeout_secs=0.5; its process was killed"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(limited_declarations.INPUT_VARIABLE, str(tmp_path / "input"))
    (tmp_path / "input").mkdir()
    return tmp_path / "input"


def write(directory: Path, words: Sequence[str]) -> None:
    """Two files, each a source shard of 60 lines; the given words at every seventh line."""
    for number in range(2):
        lines = [f"{'word' * 3} {100 * number + position}" for position in range(LINES)]
        for position, word in enumerate(words):
            if position % 2 == number:
                at = 3 + 7 * (position // 2)
                lines[at] = f"{word} {100 * number + at}"
        (directory / f"file-{number}.txt").write_text("\n".join(lines) + "\n")


def numbers(cache: Path) -> list[int]:
    return [int(example["number"]) for example in Cache.open(cache, verify=True)["train"]]


def test_whatever_a_record_does_it_alone_is_lost_and_everything_about_it_is_kept(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Loops that swallow exceptions, sleeps, regular expressions, C calls that hold the interpreter's lock."""
    write(directory, ["loop", "sleep", "regex", "c_call", "lock", "memory", "crash", "bad"])

    result = build("limited_declarations:limited", tmp_path / "cache", options=ONE)

    letters = {letter.record.decode().split()[0]: letter for letter in Cache.open(tmp_path / "cache").dead_letters()}
    assert result.account.dead == len(letters) == 8
    assert sorted([*numbers(tmp_path / "cache"), 3, 10, 17, 24, 103, 110, 117, 124]) == [*range(60), *range(100, 160)]
    for word in ("loop", "sleep", "regex", "c_call", "lock"):
        assert (letters[word].error_type, letters[word].message) == ("RecordTimeoutError", TIMEOUT)
    memory, crash, loop = letters["memory"], letters["crash"], letters["loop"]
    assert memory.message == "transform took more than record_memory_bytes=67108864; its process was killed"
    assert (memory.error_type, crash.error_type) == ("RecordMemoryError", "RecordCrashError")
    assert crash.message == "transform ended its process with SIGSEGV"
    assert (loop.record_id, loop.ordinal, loop.stage, loop.record) == ("file-0.txt@45", 3, "Number", b"loop 3")
    assert letters["bad"].error_type == "ValueError"
    statistics = {statistic.name: statistic for statistic in result.account.statistics()}
    assert statistics["Limited_Number_lines"].count == 2 * LINES - 8  # type: ignore[attr-defined]
    output = capfd.readouterr().err
    assert "stage 'Number': transform had not returned after record_timeout_secs=0.5" in output
    assert "in hang_in_a_loop" in output and "in hang_in_c" in output and "in hang_on_a_lock" in output
    where = [
        each["where"] for shard in Cache.open(tmp_path / "cache").build_info["shards"] for each in shard["quarantined"]
    ]
    assert sum("limited_declarations.py" in each for each in where) == 6  # a crash tells nothing


ENDS = {
    "exit": "transform ended its process with exit code 3",
    "c_exit": "transform ended its process with exit code 4",
    "killed": "transform ended its process with SIGKILL",
}


@pytest.mark.parametrize("workers", [1, 2])
def test_records_that_end_their_process_are_dead_letters_after_a_second_try(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], workers: int
) -> None:
    """`os._exit`, `exit` of the C library, and SIGKILL as the kernel sends it; and exceptions that cannot be told."""
    write(directory, [*ENDS, "sys_exit", "no_words"])

    result = build("limited_declarations:limited", tmp_path / "cache", options=LocalOptions(workers=workers))

    letters = {letter.record.decode().split()[0]: letter for letter in Cache.open(tmp_path / "cache").dead_letters()}
    assert result.account.dead == 5 and len(numbers(tmp_path / "cache")) == 2 * LINES - 5
    assert {word: letters[word].message for word in ENDS} == ENDS
    assert {letters[word].error_type for word in ENDS} == {"RecordCrashError"}
    assert (letters["sys_exit"].error_type, letters["sys_exit"].message) == ("SystemExit", "5")
    assert letters["no_words"].message == "(no text: NoWords.__str__ raised RuntimeError)"
    output = capfd.readouterr().err
    assert "a worker ended (exit code 3) at record 3. Another one tries again." in output
    assert "Traceback" not in output


def test_a_worker_that_somebody_else_killed_costs_no_record(directory: Path, tmp_path: Path) -> None:
    """Its record is fine when it is tried again."""
    write(directory, [])
    marker = tmp_path / "killed"
    (directory / "file-0.txt").write_text(f"killed_once:{marker} 0\n" + (directory / "file-0.txt").read_text())

    result = build("limited_declarations:limited", tmp_path / "cache", options=ONE)

    assert marker.exists() and result.account.dead == 0


def test_the_bytes_do_not_depend_on_who_ran_it_and_on_what_was_known_before(directory: Path, tmp_path: Path) -> None:
    write(directory, ["sleep", "memory"])
    build("limited_declarations:limited", tmp_path / "one", options=ONE)
    expected = built_files(tmp_path / "one")

    build("limited_declarations:limited", tmp_path / "two", options=LocalOptions(workers=2))
    assert built_files(tmp_path / "two") == expected

    # Once known, a record is not tried again: neither for the same snapshot nor where everything else is built anew.
    assert build("limited_declarations:limited", tmp_path / "one", options=ONE).up_to_date
    (tmp_path / "one" / "manifest.json").unlink()
    (tmp_path / "one" / "snapshots").rename(tmp_path / "gone")
    again = build("limited_declarations:limited", tmp_path / "one", options=ONE)
    assert built_files(tmp_path / "one") == expected
    assert all(not shard["quarantined"] for shard in Cache.open(tmp_path / "one").build_info["shards"])
    assert again.reused_shards == 0


def test_on_beam_the_same_bytes_come_out(directory: Path, tmp_path: Path) -> None:
    write(directory, ["sleep", "memory"])
    build("limited_declarations:limited", tmp_path / "local", options=ONE)

    build("limited_declarations:limited", tmp_path / "beam", options=BeamOptions())

    assert built_files(tmp_path / "beam") == built_files(tmp_path / "local")


def test_limits_that_no_record_reaches_change_nothing(directory: Path, tmp_path: Path) -> None:
    write(directory, ["bad"])
    build("limited_declarations:limited", tmp_path / "limited", options=ONE)

    build("limited_declarations:unlimited", tmp_path / "unlimited", options=ONE)

    assert built_files(tmp_path / "limited") == built_files(tmp_path / "unlimited")


def test_under_another_limit_the_record_is_tried_again(directory: Path, tmp_path: Path) -> None:
    write(directory, ["sleep"])
    first = build("limited_declarations:limited", tmp_path / "cache", options=ONE)

    second = build("limited_declarations:more_time", tmp_path / "cache", options=ONE)

    assert first.snapshot != second.snapshot
    [letter] = Cache.open(tmp_path / "cache").dead_letters()
    assert "record_timeout_secs=0.6" in letter.message
    assert second.reused_shards == second.num_shards - 1


def test_a_hanging_batch_is_run_one_by_one_to_find_the_record(directory: Path, tmp_path: Path) -> None:
    write(directory, [])

    build("limited_declarations:batched", tmp_path / "cache", options=ONE)

    [letter] = Cache.open(tmp_path / "cache").dead_letters()
    assert (letter.stage, letter.record, letter.error_type) == ("Batched", b"wordwordword 13", "RecordTimeoutError")
    assert len(numbers(tmp_path / "cache")) == 2 * LINES - 1


def test_on_error_decides_what_becomes_of_the_record(directory: Path, tmp_path: Path) -> None:
    write(directory, ["sleep"])

    dropped = build("limited_declarations:dropping", tmp_path / "dropping", options=ONE)
    assert dropped.account.units["Number"].dropped == {"error/RecordTimeoutError": 1}
    assert list(Cache.open(tmp_path / "dropping").dead_letters()) == []

    with pytest.raises(
        StageError, match=f"stage 'Number' failed on record 'file-0.txt@45': RecordTimeoutError: {TIMEOUT}"
    ):
        build("limited_declarations:strict", tmp_path / "strict", options=ONE)


def test_without_limits_a_crash_ends_the_build(directory: Path, tmp_path: Path) -> None:
    write(directory, ["crash"])

    with pytest.raises(
        WorkerDiedError, match=r"a worker died \(SIGSEGV\) while it built source shard 0 \(file-0.txt\)"
    ):
        build("limited_declarations:unlimited", tmp_path / "cache", options=LocalOptions(workers=2))


def test_a_stage_may_have_limits_of_its_own(directory: Path) -> None:
    write(directory, [])
    patient = limited_declarations.limited(stage=limited_declarations.Patient())

    assert patient.record_limits["Patient"].timeout_secs is None
    assert patient.record_limits["Patient"].memory_bytes == 64 << 20
    assert limited_declarations.unlimited().record_limits == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"record_timeout_secs": 0},
            r"stage 'Number': record_timeout_secs should be a number of at least 0.02",
        ),
        ({"record_timeout_secs": math.nan}, "a number of at least 0.02, got nan"),
        ({"record_memory_bytes": 0}, "record_memory_bytes should be an integer of at least 1, got 0"),
        ({"record_memory_bytes": 1.5}, "record_memory_bytes should be an integer of at least 1, got 1.5"),
    ],
)
def test_a_limit_that_is_none_is_refused(directory: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        limited_declarations.limited(**options)


@pytest.mark.parametrize(
    ("cause", "limit", "kind"),
    [("timeout", 2.0, RecordTimeoutError), ("memory", 5, RecordMemoryError), ("crash", "SIGBUS", RecordCrashError)],
)
def test_a_record_in_quarantine_survives_being_stored(
    cause: str, limit: float, kind: type[RecordQuarantinedError]
) -> None:
    record = Quarantined(ordinal=3, unit="Number", cause=cause, limit=limit)  # type: ignore[arg-type]

    assert Quarantined.from_json(record.to_json()) == record
    assert isinstance(record.error(), kind)
    assert quarantined_snapshot("plain", {0: [], 1: []}) == "plain" != quarantined_snapshot("plain", {0: [record]})
    for broken in ([3, "Number", "boredom", 1], [3, "Number", cause], [3, "Number", cause, None]):
        with pytest.raises((ValueError, TypeError)):
            Quarantined.from_json(broken)


@pytest.mark.parametrize(
    ("looks", "spent"),
    [
        pytest.param([(0.02, 0.0), (0.04, 0.0), (0.06, 0.0)], 0.06, id="never_waits"),
        pytest.param([(0.02, 0.01), (0.04, 0.02)], 0.02, id="waits_half_the_time"),
        pytest.param([(0.02, 0.0), (0.04, 0.0), (0.06, 0.0), (0.08, 0.07)], 0.01, id="a_wait_is_told_when_it_is_over"),
        pytest.param([(0.5, 0.0), (0.52, 0.0)], 0.06, id="the_supervisor_was_late_and_does_not_know_why"),
        pytest.param([(0.2, 0.0), (0.4, 0.35)], 0.04, id="both_waited_and_nothing_is_taken_off_twice"),
        pytest.param([(0.2, 0.0), (0.4, 0.35), (0.42, 0.35), (0.44, 0.38)], 0.05, id="and_it_goes_on"),
    ],
)
def test_the_time_of_a_record_is_without_that_in_which_its_worker_waited_for_a_core(
    looks: list[tuple[float, float]], spent: float
) -> None:
    """(what time it is, how long the worker has waited so far) at each look; at most 0.04 s count at once."""
    clock = RecordClock(most_secs=0.04, now=0.0, waited=0.0)

    for now, waited in looks:
        clock.look(now=now, waited=waited)

    assert clock.spent_secs == pytest.approx(spent)
    clock.restart()
    assert clock.spent_secs == 0.0


def test_a_journal_that_was_cut_off_holds_what_was_written_in_full(tmp_path: Path) -> None:
    from beam_pipes.building.reading import EncodedRun
    from beam_pipes.engine.account import Account
    from beam_pipes.lineage.lineage import LineageWriter

    parts = [
        EncodedRun(
            first_sequence=number,
            next_sequence=number + 1,
            records={"train": [(b"x" * number, number, ())]},
            dead_letters=[],
            account=Account(read=1, written=1),
            lineage=LineageWriter(),
        )
        for number in range(3)
    ]
    path = tmp_path / "journal"
    journal = ShardJournal(os.open(path, os.O_RDWR | os.O_CREAT))
    for number, part in enumerate(parts):
        journal.add(part, first_ordinal=10 * number, num_records=10, secs=1.0)
    journal.add(parts[0], first_ordinal=30, num_records=10, secs=0.0)  # not worth it
    journal.close()

    os.truncate(path, path.stat().st_size - 1)

    cut = ShardJournal(os.open(path, os.O_RDWR))
    assert {first: count for first, (count, _) in cut.parts.items()} == {0: 10, 10: 10}
    assert cut.parts[10][1].records == parts[1].records
    cut.add(parts[2], first_ordinal=20, num_records=10, secs=1.0)
    cut.close()
    whole = ShardJournal(os.open(path, os.O_RDWR))
    assert list(whole.parts) == [0, 10, 20]
    whole.close()
