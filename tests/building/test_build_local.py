"""Building with the local runner: what is written, reused, refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import sample_declarations
from built_files import built_files

from beam_pipes import count, declare, drop
from beam_pipes.building import Declaration
from beam_pipes.building.explanation import explain_plan
from beam_pipes.building.leftovers import build_lock
from beam_pipes.building.plan import make_plan
from beam_pipes.building.reading import graph_runner, read_batches
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.errors import (
    BeamPipesError,
    CacheBusyError,
    DeclarationError,
    SourceError,
    StageError,
    TooManyDeadLettersError,
    WorkerDiedError,
)
from beam_pipes.loader import Loader
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.sources import Memory
from beam_pipes.typed import Maximum, Pipeline

ONE = LocalOptions(workers=1)


def test_a_cache_holds_what_the_pipeline_gives_in_memory(text_input: Path, tmp_path: Path) -> None:
    declaration = sample_declarations.words()
    expected: dict[str, list[dict]] = {split: [] for split in declaration.splits}
    runner: GraphRunner = graph_runner(declaration, None)
    for shard in declaration.source.plan(target_shard_bytes=10**9).shards:
        for batch in read_batches(declaration, shard):
            runner.run(batch)
            for split, column in runner.outputs(batch).items():
                expected[split] += [value for values in column for value in values]

    build(declaration, tmp_path / "cache", options=ONE)

    cache = Cache.open(tmp_path / "cache")
    assert set(cache.splits) == {"train", "eval", "words"}
    for split, examples in expected.items():
        assert len(cache[split]) == len(examples) > 10
        for found, example in zip(cache[split], examples, strict=True):
            assert found.keys() == example.keys()
            for name in example:
                np.testing.assert_array_equal(found[name], example[name])


def with_other_digests(kept: bytes) -> bytes:
    """A file of digests in which all are zeros; `beam_pipes.sources.digests` tells its format."""
    count = int.from_bytes(kept[16:24], "little")
    rows = [kept[at : at + 16] + bytes(32) for at in range(24, 24 + 48 * count, 48)]
    changed = b"".join([kept[:24], *rows, re.sub(rb"[0-9a-f]{64}", b"0" * 64, kept[24 + 48 * count : -4])])
    return changed + google_crc32c.value(changed).to_bytes(4, "little")


def test_overwriting_reads_input_whose_times_say_that_it_is_what_it_was(text_input: Path, tmp_path: Path) -> None:
    declaration = sample_declarations.words()
    time.sleep(0.06)  # so that digests are remembered
    first = build(declaration, tmp_path / "cache", options=ONE)
    remembered = tmp_path / "cache" / ".digests"
    remembered.write_bytes(with_other_digests(remembered.read_bytes()))

    with pytest.raises(
        SourceError, match="changed after it was planned"
    ):  # what a file whose times did not move would look like
        build(declaration, tmp_path / "cache", options=ONE)
    again = build(declaration, tmp_path / "cache", options=ONE, overwrite=True)

    assert again.account == first.account


def test_no_file_of_a_cache_names_a_directory_of_the_machine(text_input: Path, tmp_path: Path) -> None:
    time.sleep(0.06)  # so that digests are remembered
    build(sample_declarations.words(), tmp_path / "cache", options=ONE)

    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert any(path.name == ".digests" and path.stat().st_size > 500 for path in files)
    assert [path.name for path in files if os.fsencode(tmp_path) in path.read_bytes()] == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stage_that_changes_the_working_directory_changes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "input").mkdir(parents=True)
    elsewhere.mkdir()
    for number in range(6):
        (home / "input" / f"{number}.txt").write_text(f"line {number}\n" * 20)
    (home / "suffix.txt").write_text("!")
    monkeypatch.setenv(sample_declarations.ELSEWHERE_VARIABLE, str(elsewhere))
    monkeypatch.chdir(home)

    result = build("sample_declarations:wandering", "cache", options=LocalOptions(workers=workers))

    monkeypatch.chdir(home)
    assert result.num_shards > 1 and result.account.written == 120
    assert list(elsewhere.iterdir()) == []
    cache = Cache.open("cache")
    loader = Loader(cache["train"], batch_size=120)
    os.chdir(elsewhere)
    texts = {text for batch in loader for text in batch["text"]}
    assert texts == {f"line {number}!" for number in range(6)}
    assert not cache.verify().problems
    os.chdir(home)
    assert build("sample_declarations:wandering", "cache", options=ONE).up_to_date


def test_bytes_do_not_depend_on_workers_hash_seed_or_place(text_input: Path, tmp_path: Path) -> None:
    build("sample_declarations:words", tmp_path / "one", options=ONE)
    build("sample_declarations:words", tmp_path / "two", options=LocalOptions(workers=2))
    code = (
        "from beam_pipes.runners.build import build; from beam_pipes.runners.options import LocalOptions; import sys; "
        "build('sample_declarations:words', sys.argv[1], options=LocalOptions(workers=1))"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / f"seed{seed}")], check=True, env=environment)

    expected = built_files(tmp_path / "one")
    assert len(expected) > 20
    assert built_files(tmp_path / "two") == expected
    assert built_files(tmp_path / "seed1") == expected
    assert built_files(tmp_path / "seed2") == expected


def test_accounts_add_up_and_statistics_are_merged(text_input: Path, tmp_path: Path) -> None:
    result = build(sample_declarations.words(), tmp_path / "cache", options=ONE)

    lines = [line for path in text_input.rglob("*.txt") for line in path.read_text().splitlines()]
    empty = sum(not line.split() for line in lines)
    account = result.account
    assert (account.read, account.written, account.dropped, account.dead) == (
        len(lines),
        len(lines) - empty,
        empty,
        0,
    )
    assert account.units["SplitWords"].dropped == {"empty": empty}
    statistics = {statistic.name: str(statistic) for statistic in account.statistics()}
    assert statistics["Words_SplitWords_lines"] == f"Words_SplitWords_lines: {len(lines) - empty}"
    assert account.units["Initials"].outputs == sum(len(line.split()) for line in lines)


def test_a_second_build_is_up_to_date_and_writes_nothing(text_input: Path, tmp_path: Path) -> None:
    first = build("sample_declarations:words", tmp_path / "cache", options=ONE)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.tfrecord-*")}

    second = build("sample_declarations:words", tmp_path / "cache", options=ONE)

    assert (first.up_to_date, second.up_to_date) == (False, True)
    assert second.manifest_id == first.manifest_id
    assert second.account.to_json() == first.account.to_json()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.tfrecord-*")} == before


def test_overwriting_builds_every_shard_again_and_the_next_build_finds_it_up_to_date(
    text_input: Path, tmp_path: Path
) -> None:
    declaration = sample_declarations.words()
    first = build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    before = Cache.open(tmp_path / "cache")

    again = build(declaration, tmp_path / "cache", options=LocalOptions(workers=1), overwrite=True)

    assert not again.up_to_date and again.reused_shards == 0 and again.snapshot != first.snapshot
    after = Cache.open(tmp_path / "cache")
    assert {name: split.crc32c for name, split in after.manifest.splits.items()} == {
        name: split.crc32c for name, split in before.manifest.splits.items()
    }
    assert len(before[before.splits[0]]) == len(after[after.splits[0]])  # the old snapshot can still be read
    assert build(declaration, tmp_path / "cache").up_to_date
    explained = explain_plan(make_plan(declaration, tmp_path / "cache", overwrite=True)).lines()
    assert explained[-1].startswith("0 of ") and any("everything is to be rebuilt" in line for line in explained)


def test_a_changed_file_rebuilds_its_shards_only_and_equals_a_cold_build(text_input: Path, tmp_path: Path) -> None:
    first = build("sample_declarations:words", tmp_path / "cache", options=ONE)
    (text_input / "sub" / "small-3.txt").write_text("entirely new\nlines here\n")
    (text_input / "sub" / "another.txt").write_text("one more file\n")

    second = build("sample_declarations:words", tmp_path / "cache", options=ONE)
    cold = build("sample_declarations:words", tmp_path / "cold", options=ONE)

    assert not second.up_to_date
    assert first.num_shards - 3 <= second.reused_shards < second.num_shards
    assert cold.reused_shards == 0
    warm_files, cold_files = built_files(tmp_path / "cache"), built_files(tmp_path / "cold")
    assert {name: warm_files[name] for name in cold_files} == cold_files


def test_a_reader_keeps_its_snapshot_while_another_is_published(text_input: Path, tmp_path: Path) -> None:
    build("sample_declarations:words", tmp_path / "cache", options=ONE)
    before = Cache.open(tmp_path / "cache")
    count = len(before["train"])
    (text_input / "more.txt").write_text("some more words\n" * 500)

    build("sample_declarations:words", tmp_path / "cache", options=ONE)

    assert len(list(before["train"])) == count
    assert len(Cache.open(tmp_path / "cache")["train"]) > count


def test_an_interrupted_build_continues_from_the_finished_shards(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom here\n")
    with pytest.raises(StageError):
        build("sample_declarations:words", tmp_path / "cache", options=ONE)
    assert not (tmp_path / "cache" / "manifest.json").exists()
    (text_input / "zzz.txt").write_text("fine\nnow\n")

    result = build("sample_declarations:words", tmp_path / "cache", options=ONE)

    assert result.num_shards - 3 <= result.reused_shards < result.num_shards
    build("sample_declarations:words", tmp_path / "cold", options=ONE)
    warm_files, cold_files = built_files(tmp_path / "cache"), built_files(tmp_path / "cold")
    assert {name: warm_files[name] for name in cold_files} == cold_files


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_record_stops_the_build_and_is_named(text_input: Path, tmp_path: Path, workers: int) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom here\n")

    with pytest.raises(StageError) as caught:
        build("sample_declarations:words", tmp_path / "cache", options=LocalOptions(workers=workers))

    message = str(caught.value)
    assert "stage 'SplitWords' failed on record 'zzz.txt@5': ValueError: cannot split 'boom here'" in message
    assert message.endswith("To see what each stage makes of it: beam-pipes trace zzz.txt@5 sample_declarations:words")
    assert "on_error='dead_letter'" in message
    assert not list((tmp_path / "cache").rglob(".tmp-*"))


def test_dead_letters_keep_the_record_its_place_and_its_error(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom here\nalso fine\n")

    result = build("sample_declarations:words_with_dead_letters", tmp_path / "cache", options=ONE)

    assert result.account.dead == 1
    assert result.account.units["SplitWords"].dead == 1
    [letter] = Cache.open(tmp_path / "cache").dead_letters()
    assert letter.record == b"boom here"
    assert (letter.source, letter.position, letter.stage) == ("zzz.txt", 5, "SplitWords")
    assert letter.error_type == "ValueError"
    assert letter.message == "cannot split 'boom here'"
    assert "raise ValueError" in letter.traceback


def test_rows_that_do_not_parse_become_dead_letters(text_input: Path, tmp_path: Path) -> None:
    (text_input / "rows.jsonl").write_text('{"id": 1}\n{"id": \n{"id": 3}\n')

    result = build("sample_declarations:rows", tmp_path / "cache", options=ONE)

    cache = Cache.open(tmp_path / "cache")
    assert [int(example["id"]) for example in cache["train"]] == [1, 3]
    assert (result.account.read, result.account.written, result.account.dead) == (3, 2, 1)
    [letter] = cache.dead_letters()
    assert letter.record.strip() == b'{"id":'
    assert letter.stage == "source"


def test_max_bad_stops_a_build(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom 1\nboom 2\nboom 3\n")
    declaration = sample_declarations.words(on_error="dead_letter", max_bad=2)

    with pytest.raises(TooManyDeadLettersError, match="3 records failed, and max_bad allows 2"):
        build(declaration, tmp_path / "cache", options=ONE)


def test_max_bad_may_be_a_fraction(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom 1\nboom 2\nboom 3\n")

    with pytest.raises(TooManyDeadLettersError, match="max_bad allows a fraction of 0.001"):
        build(sample_declarations.words(on_error="drop", max_bad=0.001), tmp_path / "a", options=ONE)
    result = build(sample_declarations.words(on_error="drop", max_bad=0.5), tmp_path / "b", options=ONE)

    assert result.account.units["SplitWords"].dropped["error/ValueError"] == 3


def test_an_example_that_does_not_fit_its_features_is_named(text_input: Path, tmp_path: Path) -> None:
    declaration = sample_declarations.words()
    wrong = dict(declaration.features or {})
    wrong["words"] = {**wrong["words"], "length": dataclasses.replace(wrong["words"]["length"], maximum=5)}

    with pytest.raises(StageError, match=r"record 'large.txt@\d+' cannot be stored: .*'length'.*") as caught:
        build(dataclasses.replace(declaration, features=wrong), tmp_path / "cache", options=ONE)

    assert caught.value.stage == "write"


def test_features_are_inferred_where_they_are_not_declared(text_input: Path, tmp_path: Path) -> None:
    build("sample_declarations:inferred", tmp_path / "cache", options=ONE)

    split = Cache.open(tmp_path / "cache")["train"]
    assert {name: (spec.dtype, spec.shape) for name, spec in split.spec.items()} == {
        "codes": ("int32", (None,)),
        "text": ("str", ()),
    }
    assert split[0]["text"] == "".join(map(chr, split[0]["codes"]))


def test_two_builders_of_one_directory_are_distinguished(text_input: Path, tmp_path: Path) -> None:
    with build_lock(tmp_path / "cache"):
        with pytest.raises(CacheBusyError, match=rf"another build is writing to .*process {os.getpid()} on "):
            build("sample_declarations:words", tmp_path / "cache", options=ONE)

    build("sample_declarations:words", tmp_path / "cache", options=ONE)
    assert not (tmp_path / "cache" / ".build.lock").exists()


def test_a_worker_that_is_killed_is_reported_with_its_shard(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError, match=r"a worker died \(SIGKILL.*source shard \d+ \(") as caught:
        build("sample_declarations:kills_itself", tmp_path / "cache", options=LocalOptions(workers=2))

    assert "Finished shards are kept" in str(caught.value)


def test_the_record_of_a_run_lies_beside_the_snapshot_and_not_in_it(text_input: Path, tmp_path: Path) -> None:
    result = build("sample_declarations:words", tmp_path / "cache", options=ONE)

    record = json.loads((tmp_path / "cache" / "snapshots" / result.snapshot / "build.json").read_text())
    assert record["options"] == {"runner": "local", "workers": 1}
    assert len(record["shards"]) == result.num_shards
    assert record["shards"][0]["stage_secs"].keys() >= {"read", "SplitWords", "write"}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GreatestNumber(Pipeline):
    """A line as a number, and the greatest of them as a statistic."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict]:
        self._set_stats([Maximum("greatest", float(line))])
        return [{"number": float(line)}]


@pytest.mark.parametrize(("lines", "greatest"), [(["1", "inf"], "inf"), (["nan", "1", "2"], 2.0), (["nan"], "nan")])
def test_statistics_that_are_not_finite_are_published(lines: list[str], greatest: object, tmp_path: Path) -> None:
    source = Memory(lines, records_per_shard=2)
    features = {"number": FeatureSpec("float64")}
    declaration = Declaration(name="numbers", source=source, pipeline=GreatestNumber(), features=features)

    build(declaration, tmp_path / "cache", options=ONE)

    (statistic,) = Cache.open(tmp_path / "cache").manifest.statistics
    assert statistic["state"] == {"value": greatest}
    for path in (tmp_path / "cache").rglob("*.json"):
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


SET_BY_A_PROGRAM = """
import dataclasses
import types

FACTOR, NAMES, SAME = 1, {}, []
KEPT = SAME

class Settings:
    shift = 0

@dataclasses.dataclass(frozen=True)
class Options:
    power: int = 1
    unit: str = "m"

OPTIONS = Options()
ARGUMENTS = types.SimpleNamespace(prefix="-", of_model=types.SimpleNamespace(depth=1))

def rounded(number):
    return number

def scale(number: int) -> dict[str, object]:
    return {"number": FACTOR * number + Settings.shift, "name": NAMES.get(number, "none"), "same": len(KEPT),
            "set": f"{ARGUMENTS.prefix}{OPTIONS.power}{OPTIONS.unit}{ARGUMENTS.of_model.depth}{rounded(1)}"}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_have_what_a_program_has_set_in_a_module(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They import the module again, and the fingerprint of the cache is that of the program's values."""
    (tmp_path / "made_scaling.py").write_text(SET_BY_A_PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("made_scaling")
    try:
        made.FACTOR, made.Settings.shift, made.NAMES[1] = 100, 5, "one"
        made.SAME.append(made.FACTOR)
        made.OPTIONS, made.ARGUMENTS.prefix = made.Options(power=2), "+"
        made.ARGUMENTS.of_model.depth = 3
        made.rounded = lambda number: number + 7
        declaration = declare("scaled", Memory(list(range(8)), records_per_shard=2), [made.scale])

        build(declaration, tmp_path / "cache", options=LocalOptions(workers=workers))
    finally:
        del sys.modules["made_scaling"]

    examples = list(Cache.open(tmp_path / "cache")["train"])
    assert [int(each["number"]) for each in examples] == [100 * number + 5 for number in range(8)]
    assert [each["name"] for each in examples] == ["none", "one", *["none"] * 6]
    assert {int(each["same"]) for each in examples} == {1}
    assert {each["set"] for each in examples} == {"+2m38"}


LARGE = """
TABLE = {}

def known(number: int) -> dict[str, object]:
    return {"is_known": number in TABLE}

def table():
    return dict.fromkeys(range(300_000))
"""


def test_workers_refuse_other_data_than_the_program_has_where_it_is_too_large_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_large.py").write_text(LARGE)
    (tmp_path / "made_same.py").write_text(LARGE + "\nTABLE = table()\n")
    large, same = importlib.import_module("made_large"), importlib.import_module("made_same")
    source = Memory(list(range(8)), records_per_shard=2)
    try:
        large.TABLE = large.table()
        with pytest.raises(
            BeamPipesError, match=r"made_large\.TABLE is [\d,]+ bytes of data that the program .* or changed"
        ):
            build(declare("large", source, [large.known]), tmp_path / "large", options=LocalOptions(workers=2))
        build(declare("large", source, [large.known]), tmp_path / "large", options=ONE)
        build(declare("same", source, [same.known]), tmp_path / "same", options=LocalOptions(workers=2))
    finally:
        del sys.modules["made_large"], sys.modules["made_same"]

    for name in ("large", "same"):
        assert all(each["is_known"] for each in Cache.open(tmp_path / name)["train"])


def test_what_replaces_a_function_and_cannot_be_sent_to_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_replaced.py").write_text("def ask(x):\n    return x\n\ndef stage(x):\n    return {'x': ask(x)}\n")
    made = importlib.import_module("made_replaced")
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x + 1

    made.ask = locked
    try:
        declaration = declare("replaced", Memory([1, 2], records_per_shard=1), [made.stage])
        with pytest.raises(
            DeclarationError, match=r"made_replaced\.ask is not what the module defines.*cannot be sent to workers"
        ):
            build(declaration, tmp_path / "cache", options=LocalOptions(workers=2))
        build(declaration, tmp_path / "cache", options=ONE)
    finally:
        del sys.modules["made_replaced"]

    assert [int(each["x"]) for each in Cache.open(tmp_path / "cache")["train"]] == [2, 3]


def test_a_constant_with_half_a_surrogate_pair_is_not_an_obstacle(tmp_path: Path) -> None:
    half = "\ud800"
    declaration = declare("halves", Memory(["a", half]), [lambda text: {"is_half": text == half}])

    build(declaration, tmp_path / "cache", options=ONE)

    assert [bool(each["is_half"]) for each in Cache.open(tmp_path / "cache")["train"]] == [False, True]
    assert build(declaration, tmp_path / "cache", options=ONE).up_to_date
    assert explain_plan(make_plan(declaration, tmp_path / "cache")).lines()[0] == "HIT  declaration"


def test_reasons_and_counters_that_come_from_data_are_stored(tmp_path: Path) -> None:
    def sorted_out(text: str) -> dict[str, str]:
        count(f"seen {text}")
        return {"text": text} if text.isascii() else drop(f"not this: {text}")

    result = build(declare("halves", Memory(["a", "\ud800"]), [sorted_out]), tmp_path / "cache", options=ONE)

    assert result.account.units["sorted_out"].dropped == {"not this: \\ud800": 1}
    assert {str(each) for each in result.account.statistics()} >= {"sorted_out_seen a: 1", "sorted_out_seen \\ud800: 1"}
