"""Dead letters run again: the result is, byte for byte, a build of the repaired declaration or input."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import replay_declarations
from built_files import built_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipes.building import Declaration
from beam_pipes.building.plan import make_plan
from beam_pipes.cache import Cache
from beam_pipes.errors import CodeChangedError, ReplayError, SourceError
from beam_pipes.runners import LocalOptions, build, replay_dead
from beam_pipes.sources import RepairedSource

ONE = LocalOptions(workers=1)

WORDS = ["a", "be", "cat", "door", "elephants", "poison", "wrong"]
KINDS = ["good", "good", "good", "empty", "no_text", "no_json", "too_large", "latin"]


def line_of(identity: int, kind: str, words: list[str]) -> bytes:
    if kind == "no_json":
        return b'{"id": %d, "text": "broken' % identity
    if kind == "latin":
        return b'{"id": %d, "text": "caf\xe9"}' % identity
    if kind == "no_text":
        return json.dumps({"id": identity}).encode()
    number = identity + (1 << 31 if kind == "too_large" else 0)
    return json.dumps({"id": number, "text": "" if kind == "empty" else " ".join(words)}).encode()


@pytest.fixture
def write_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bytes]], Path]:
    directory = tmp_path / "input"
    monkeypatch.setenv(replay_declarations.INPUT_VARIABLE, str(directory))

    def write(lines: list[bytes]) -> Path:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for number in range(0, len(lines), 40):
            (directory / f"part-{number:04d}.jsonl").write_bytes(b"\n".join(lines[number : number + 40]) + b"\n")
        return directory

    return write


def published(cache: Path) -> dict[str, bytes]:
    """The published snapshot, without what belongs to one run."""
    snapshot = Cache.open(cache, verify=True).manifest.snapshot
    files = built_files(cache)
    return {name: data for name, data in files.items() if name == "manifest.json" or f"/{snapshot}/" in name}


LINES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4)), min_size=1, max_size=90
)


@given(lines=LINES, mended=st.sets(st.sampled_from(["Clean", "Measure", "Summary"]), min_size=1))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replaying_under_repaired_stages_gives_what_a_build_gives(
    tmp_path: Path, write_input: Callable[[list[bytes]], Path], lines: list[tuple[str, list[str]]], mended: set[str]
) -> None:
    for cache in ("replayed", "cold"):
        shutil.rmtree(tmp_path / cache, ignore_errors=True)
    write_input([line_of(number, kind, words) for number, (kind, words) in enumerate(lines)])
    build(replay_declarations.rows(), tmp_path / "replayed", options=ONE)
    dead = len(list(Cache.open(tmp_path / "replayed").dead_letters()))
    repaired = replay_declarations.rows(mended=tuple(sorted(mended)))

    result = replay_dead(repaired, tmp_path / "replayed", accept_code_change=True, options=ONE)
    build(repaired, tmp_path / "cold", options=ONE)

    assert published(tmp_path / "replayed") == published(tmp_path / "cold")
    assert result.replayed <= dead
    assert result.dead == len(list(Cache.open(tmp_path / "cold").dead_letters()))
    assert build(repaired, tmp_path / "replayed", options=ONE).up_to_date


@given(lines=LINES, chosen=st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replaying_repaired_records_gives_what_a_build_of_the_repaired_source_gives(
    tmp_path: Path, write_input: Callable[[list[bytes]], Path], lines: list[tuple[str, list[str]]], chosen: object
) -> None:
    for cache in ("replayed", "cold"):
        shutil.rmtree(tmp_path / cache, ignore_errors=True)
    write_input([line_of(number, kind, words) for number, (kind, words) in enumerate(lines)])
    declaration = replay_declarations.rows()
    build(declaration, tmp_path / "replayed", options=ONE)
    letters = list(Cache.open(tmp_path / "replayed").dead_letters())
    repairs = {
        letter.record_id: line_of(9, chosen.choice(KINDS), ["repaired", chosen.choice(WORDS)])  # type: ignore[attr-defined]
        for letter in letters
        if chosen.random() < 0.7  # type: ignore[attr-defined]
    }
    source = RepairedSource(declaration.source, repairs)

    result = replay_dead(declaration, tmp_path / "replayed", repairs=repairs, options=ONE)
    build(dataclasses.replace(declaration, source=source), tmp_path / "cold", options=ONE)

    assert published(tmp_path / "replayed") == published(tmp_path / "cold")
    assert result.up_to_date == (not repairs)


@pytest.fixture
def one_bad_word(write_input: Callable[[list[bytes]], Path]) -> Path:
    """60 rows in two source shards, of which row 7 fails in Measure at its second word, and row 50 cannot be parsed."""
    lines = [line_of(number, "good", ["door", "cat"]) for number in range(60)]
    lines[7] = line_of(7, "good", ["door", "poison", "a"])
    lines[50] = line_of(50, "no_json", [])
    return write_input(lines)


def test_nothing_but_the_dead_letters_is_run_and_all_else_is_kept(one_bad_word: Path, tmp_path: Path) -> None:
    build(replay_declarations.rows(target_shard_bytes=1_000), tmp_path / "cache", options=ONE)
    mended = replay_declarations.rows(target_shard_bytes=1_000, mended=("Measure",))
    shards = make_plan(mended, tmp_path / "cache").header.num_shards

    result = replay_dead(mended, tmp_path / "cache", accept_code_change=True, options=ONE)

    assert (result.replayed, result.replayed_shards, result.rebuilt_shards, result.dead) == (1, 1, 0, 1)
    assert result.kept_shards == shards - 1 > 0
    assert [letter.stage for letter in Cache.open(tmp_path / "cache").dead_letters()] == ["source"]


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": 1}])
def test_replays_run_on_workers_and_under_limits_too(
    one_bad_word: Path, tmp_path: Path, options: dict[str, int]
) -> None:
    limits = {"record_timeout_secs": 60.0, "record_memory_bytes": 1 << 30, "target_shard_bytes": 1_000}
    build("limited_rows:broken", tmp_path / "cache", options=LocalOptions(**options))
    expected = build(replay_declarations.rows(mended=("Measure",), **limits), tmp_path / "cold", options=ONE)

    result = replay_dead(
        "limited_rows:mended", tmp_path / "cache", accept_code_change=True, options=LocalOptions(**options)
    )

    assert (result.replayed, result.rebuilt_shards) == (1, 0)
    assert result.snapshot == expected.snapshot
    assert published(tmp_path / "cache") == published(tmp_path / "cold")


def test_another_directory_gets_the_result_and_the_first_one_stays(one_bad_word: Path, tmp_path: Path) -> None:
    before = build(replay_declarations.rows(), tmp_path / "cache", options=ONE)
    mended = replay_declarations.rows(mended=("Measure",))

    result = replay_dead(mended, tmp_path / "cache", to=tmp_path / "other", accept_code_change=True, options=ONE)
    build(mended, tmp_path / "cold", options=ONE)

    assert Cache.open(tmp_path / "cache", verify=True).manifest.snapshot == before.snapshot != result.snapshot
    assert published(tmp_path / "other") == published(tmp_path / "cold")


def test_a_change_in_front_of_the_failing_stage_builds_the_shards_of_such_letters_again(
    one_bad_word: Path, tmp_path: Path
) -> None:
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)
    mended = replay_declarations.rows(mended=("Clean", "Measure"))

    result = replay_dead(mended, tmp_path / "cache", accept_code_change=True, options=ONE)

    assert (result.rebuilt_shards, result.replayed_shards) == (1, 0)
    build(mended, tmp_path / "cold", options=ONE)
    assert published(tmp_path / "cache") == published(tmp_path / "cold")


def test_changed_stages_have_to_be_accepted(one_bad_word: Path, tmp_path: Path) -> None:
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)

    with pytest.raises(
        CodeChangedError,
        match=r"stages have changed .*stage 'Measure' \(Measure.config.mended: false → true\). A replay keeps the "
        r"results of all records that are not dead letters. .*--accept-code-change",
    ):
        replay_dead(replay_declarations.rows(mended=("Measure",)), tmp_path / "cache", options=ONE)


def test_a_change_that_concerns_all_records_is_refused(one_bad_word: Path, tmp_path: Path) -> None:
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)

    with pytest.raises(ReplayError, match=r"more than stages has changed .* declaration \(seed: 0 → 1\).*build again"):
        replay_dead(replay_declarations.rows(seed=1), tmp_path / "cache", accept_code_change=True, options=ONE)

    (tmp_path / "cache" / "snapshots" / Cache.open(tmp_path / "cache").manifest.snapshot / "fingerprint.json").unlink()
    with pytest.raises(ReplayError, match="does not record what it was built with .*Build it again"):
        replay_dead(replay_declarations.rows(seed=1), tmp_path / "cache", options=ONE)


@pytest.fixture
def looked_up(write_input: Callable[[list[bytes]], Path], tmp_path: Path) -> Path:
    """A cache of 60 rows as ids of a learned vocabulary, with row 7 as a dead letter."""
    lines = [line_of(number, "good", ["Door", WORDS[number % 5]]) for number in range(60)]
    lines[7] = line_of(7, "good", ["Door", "poison"])
    write_input(lines)
    (tmp_path / "offset.txt").write_text("0")
    build(replay_declarations.looked_up(tmp_path / "offset.txt"), tmp_path / "cache", options=ONE)
    return tmp_path / "cache"


def assert_refused_and_as_it_was(cache: Path, mended: Declaration, message: str, **options: Any) -> None:
    before = published(cache)

    with pytest.raises(ReplayError, match=message):
        replay_dead(mended, cache, accept_code_change=True, options=ONE, **options)

    assert published(cache) == before


def test_a_result_of_an_analyzer_that_changed_is_never_accepted(looked_up: Path, tmp_path: Path) -> None:
    mended = replay_declarations.looked_up(tmp_path / "offset.txt", lower=True, mended=True)

    assert_refused_and_as_it_was(
        looked_up,
        mended,
        r"files or results of analyzers that stages read have changed since it was built: stage 'WordIds' "
        r"\(.*asset:words: [0-9a-f]{8} → [0-9a-f]{8}\). Kept records would still reflect the old content, even "
        "with --accept-code-change: build again",
    )

    assert not build(mended, looked_up, options=ONE).up_to_date
    cold = build(mended, tmp_path / "cold", options=ONE)
    assert published(looked_up) == published(tmp_path / "cold")
    assert cold.account.dead == 0


def test_another_option_of_an_analyzer_is_another_vocabulary(looked_up: Path, tmp_path: Path) -> None:
    stricter = replay_declarations.looked_up(tmp_path / "offset.txt", min_count=5)

    assert_refused_and_as_it_was(looked_up, stricter, "have changed since it was built: .*asset:words")

    assert not build(stricter, looked_up, options=ONE).up_to_date
    build(stricter, tmp_path / "cold", options=ONE)
    assert published(looked_up) == published(tmp_path / "cold")


def test_repairs_that_change_what_an_analyzer_finds_are_refused(looked_up: Path, tmp_path: Path) -> None:
    [letter] = Cache.open(looked_up).dead_letters()
    repairs = {letter.record_id: line_of(7, "good", ["a", "new", "word"])}

    same = replay_declarations.looked_up(tmp_path / "offset.txt")

    assert_refused_and_as_it_was(looked_up, same, "have changed since it was built: .*asset:words", repairs=repairs)


def test_a_file_that_changed_is_never_accepted(looked_up: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("1000")
    mended = replay_declarations.looked_up(tmp_path / "other.txt", mended=True)

    assert_refused_and_as_it_was(looked_up, mended, r"stage 'WordIds' \(.*WordIds.config.offset.*build again")


def test_a_repaired_stage_replays_where_what_it_reads_is_what_it_was(looked_up: Path, tmp_path: Path) -> None:
    (tmp_path / "renamed.txt").write_text("0")
    mended = replay_declarations.looked_up(tmp_path / "renamed.txt", mended=True)

    result = replay_dead(mended, looked_up, accept_code_change=True, options=ONE)

    assert (result.replayed, result.rebuilt_shards, result.dead) == (1, 0, 0)
    build(mended, tmp_path / "cold", options=ONE)
    assert published(looked_up) == published(tmp_path / "cold")


def test_a_repaired_file_is_what_a_build_is_for(one_bad_word: Path, tmp_path: Path) -> None:
    """An input file that was mended itself has its shard built anew; a replay does the same."""
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)
    part = one_bad_word / "part-0040.jsonl"
    part.write_bytes(part.read_bytes().replace(line_of(50, "no_json", []), line_of(50, "good", ["mended"])))

    result = replay_dead(replay_declarations.rows(), tmp_path / "cache", options=ONE)

    assert result.dead == 1
    build(replay_declarations.rows(), tmp_path / "cold", options=ONE)
    assert published(tmp_path / "cache") == published(tmp_path / "cold")


def test_a_repair_of_a_good_record_builds_its_shard_again(one_bad_word: Path, tmp_path: Path) -> None:
    declaration = replay_declarations.rows()
    build(declaration, tmp_path / "cache", options=ONE)
    repairs = {"part-0000.jsonl@0": line_of(0, "good", ["other"])}

    result = replay_dead(declaration, tmp_path / "cache", repairs=repairs, options=ONE)

    repaired = dataclasses.replace(declaration, source=RepairedSource(declaration.source, repairs))
    build(repaired, tmp_path / "cold", options=ONE)
    assert result.rebuilt_shards == 1
    assert published(tmp_path / "cache") == published(tmp_path / "cold")


@pytest.mark.parametrize(
    ("repairs", "message"),
    [
        pytest.param({"nowhere.jsonl@3": b"{}"}, "the input has no file 'nowhere.jsonl'", id="no_such_file"),
        pytest.param(
            {"part-0000.jsonl@3": b"{}"},
            r"repairs are given for \['part-0000.jsonl@3'\], but no record",
            id="no_such_record",
        ),
        pytest.param({"part": b"{}"}, "keyed by record ids such as 'a.txt@10', got 'part'", id="no_id"),
        pytest.param({"part@0": "{}"}, "the repair of part@0 should be bytes, got '{}'", id="no_bytes"),
    ],
)
def test_repairs_that_repair_nothing_are_errors(
    one_bad_word: Path, tmp_path: Path, repairs: dict[str, bytes], message: str
) -> None:
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)

    with pytest.raises(SourceError, match=message):
        replay_dead(replay_declarations.rows(), tmp_path / "cache", repairs=repairs, options=ONE)
