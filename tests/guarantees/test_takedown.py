"""Takedowns: hidden from every reader at once, the order of everything else unchanged, kept by later builds."""

from __future__ import annotations

import dataclasses
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from origin_caches import build_origins, declaration_of

from beam_pipes.building.leftovers import remove_temporaries
from beam_pipes.building.takedown import (
    AUDIT,
    LOCK_NAME,
    resolve_takedowns,
    take_down,
    undo_takedown,
)
from beam_pipes.building.trace import explain_record
from beam_pipes.cache import Cache, FeatureSpec, LocalStorage
from beam_pipes.errors import (
    CacheNotFoundError,
    CorruptTakedownError,
    DeclarationError,
    RecordRemovedError,
    UnsupportedFormatError,
)
from beam_pipes.lineage.takedown import FILE_NAME, Overlay, Takedown, read_overlay, stand_in_key, stand_ins
from beam_pipes.loader import Loader, Mixture, open_remote, pack, random_access
from beam_pipes.on_device import segments_of
from beam_pipes.report import write_report
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.replay import replay_dead
from beam_pipes.storage import locks as kill_points
from beam_pipes.storage.checked_json import canonical_json
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import holder_of
from beam_pipes.typed import Pipeline

# Numbers 7 and 8 of a.txt, and all of b.txt (numbers 26 to 39); 3 is dropped anyway.
NAMED = ["a.txt@14", "a.txt@16", "a.txt@6", "b.txt"]
GONE = {7, 8, *range(26, 40)}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return build_origins(tmp_path)


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["number"]]


class TestEveryReader:
    """Each reader is open before the takedown, and holds to it afterwards."""

    def test_a_split(self, cache: Cache) -> None:
        train = cache["train"]
        before = [train[index]["number"] for index in range(len(train))]
        payloads = list(train)
        gathered = train.gather(range(len(train)))["number"].tolist()

        report = take_down(cache.path, NAMED, reason="asked for")

        removed = train.removed_rows.tolist()
        assert removed == [index for index, number in enumerate(before) if number in GONE]
        assert report.removed_rows == {cache.manifest.snapshot: {"train": len(removed)}}
        assert (len(train), before, gathered) == (len(payloads), gathered, before)
        after = [train[index]["number"] for index in range(len(train))]
        assert [train.gather([index])["number"][0] for index in range(len(train))] == after
        assert [example["number"] for example in train] == after
        assert not GONE & set(after)
        assert [number for index, number in enumerate(after) if index not in removed] == [
            number for number in before if number not in GONE
        ]
        values, lengths = train.gather_values("tokens", removed)
        assert not GONE & set(values.tolist())
        assert len(lengths) == len(removed)
        assert {train.record_bytes(index) for index in removed} <= {
            train.record_bytes(index) for index in range(len(train)) if index not in removed
        }

    def test_a_new_process_and_a_pickled_split(self, cache: Cache) -> None:
        packed = pickle.dumps(cache["train"])
        take_down(cache.path, NAMED)

        assert not GONE & {example["number"] for example in pickle.loads(packed)}
        code = f"from beam_pipes.cache import Cache; print(Cache.open({cache.path!r})['train'].removed_rows.tolist())"
        seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert json.loads(seen) == cache["train"].removed_rows.tolist()

    @pytest.mark.parametrize("last", ["drop", "pad", "partial"])
    def test_a_loader_that_is_running(self, cache: Cache, last: str) -> None:
        options: dict[str, Any] = {"batch_size": 4, "seed": 3, "last": last}
        undisturbed = list(Loader(cache["train"], **options))
        iterator = iter(Loader(cache["train"], **options))
        found = [next(iterator), next(iterator)]

        take_down(cache.path, NAMED)
        found += iterator

        assert len(found) == len(undisturbed)
        for step, (batch, expected) in enumerate(zip(found, undisturbed, strict=True)):
            assert batch["number"].shape == expected["number"].shape
            for now, then in zip(batch["number"].tolist(), expected["number"].tolist(), strict=True):
                assert now == then or (then in GONE and now not in GONE and step >= 2)

    def test_hosts_pad_to_the_longest_row_that_is_read(self, cache: Cache) -> None:
        train = cache["train"]
        options: dict[str, Any] = {"batch_size": 3, "shuffle": False, "last": "partial", "features": ["tokens"]}
        hosts = [Loader(train, host_index=host, host_count=3, **options) for host in range(3)]
        lengths = train.lengths("tokens")

        take_down(cache.path, NAMED)

        read = train.stand_ins(range(len(train)))
        assert read.tolist() != list(range(len(train)))
        assert train.lengths("tokens", range(len(train))).tolist() == lengths[read].tolist()
        assert train.shapes("tokens", range(len(train))).tolist() == lengths[read][:, None].tolist()
        for whole, *parts in zip(Loader(train, **options), *hosts, strict=True):
            assert np.array_equal(np.concatenate([part["tokens"] for part in parts]), whole["tokens"])

    def test_packed_rows_lose_the_record_and_keep_the_others(self, cache: Cache) -> None:
        plan = pack(cache["train"], sequence_length=20, feature="tokens")
        loader = Loader(plan, batch_size=2, seed=1, last="partial", cu_seqlens=True)
        before = list(loader)
        take_down(cache.path, NAMED)
        after = list(loader)
        lengths = Loader(plan, batch_size=2, seed=1, last="partial", segments="lengths")

        for now, short in zip(after, lengths, strict=True):
            ids, positions = segments_of(short["segment_lengths"], 20)
            assert np.array_equal(ids, now["segment_ids"]) and np.array_equal(positions, now["positions"])
        assert pack(cache["train"], sequence_length=20, feature="tokens").digest == plan.digest
        for was, now in zip(before, after, strict=True):
            assert was["tokens"].shape == now["tokens"].shape
            for row in range(len(was["tokens"])):
                segments = was["segment_ids"][row]
                kept = [
                    n for n in range(1, segments.max(initial=0) + 1) if was["tokens"][row][segments == n][0] not in GONE
                ]
                expected = np.concatenate([np.empty(0, int), *(was["tokens"][row][segments == n] for n in kept)])
                filled = now["segment_ids"][row] > 0
                assert now["tokens"][row][filled].tolist() == expected.tolist()
                assert not now["tokens"][row][~filled].any()
                assert set(now["segment_ids"][row][filled].tolist()) == set(kept)
                for n in kept:
                    place = now["segment_ids"][row] == n
                    assert now["positions"][row][place].tolist() == list(range(int(place.sum())))
        assert sum(int(np.isin(batch["tokens"], list(GONE)).sum()) for batch in before)

    def test_remote_splits_random_access_and_mixtures(self, cache: Cache, tmp_path: Path) -> None:
        class Far(LocalStorage):
            def local_path(self, path: str) -> str | None:
                return None

        take_down(cache.path, NAMED)
        local = cache["train"]
        remote = open_remote(cache.path, "train", local_directory=tmp_path / "near", max_bytes=1 << 20, storage=Far())
        indices = range(len(local))

        assert remote.removed_rows.tolist() == local.removed_rows.tolist()
        assert remote.gather(indices)["number"].tolist() == local.gather(indices)["number"].tolist()
        assert remote[int(local.removed_rows[0])]["number"] not in GONE
        assert remote.record_ids([3, 0]) == local.record_ids([3, 0])
        assert remote.find_rows("a.txt@4").tolist() == local.find_rows("a.txt@4").tolist()
        source = random_access(local)
        assert not GONE & {int(source[index]["number"]) for index in indices}
        assert not GONE & {int(each["number"]) for each in source.__getitems__(list(indices))}
        mixture = Loader(Mixture([(local, 2), (remote, 1)]), batch_size=6, epochs=None)
        assert not GONE & set(numbers([mixture.batch_at(step) for step in range(20)]))

    def test_views_and_dead_letters(self, tmp_path: Path) -> None:
        cache = build_origins(tmp_path)
        dead = [f"{letter.source}@{letter.position}" for letter in cache.dead_letters()]
        assert dead == ["a.txt@29"]
        take_down(cache.path, dead)

        assert list(cache.dead_letters()) == []
        report = explain_record(cache.path, dead[0])
        assert (report.status, report.dead_letter) == ("dead", None)

    def test_views_of_a_shard_with_a_removed_record_are_refused(self, tmp_path: Path) -> None:
        declaration = dataclasses.replace(
            declaration_of("text", tmp_path / "input"), features={"number": FeatureSpec("int64")}, pipeline=_Number()
        )
        build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
        train = Cache.open(tmp_path / "cache")["train"]
        assert train.views(0)["number"].tolist()[:3] == [0, 1, 2]
        take_down(tmp_path / "cache", ["a.txt@2"])

        with pytest.raises(RecordRemovedError, match="views show the file itself, and 1 records of shard 0 are taken"):
            train.views(0)
        assert len(train.views(train.num_shards - 1)["number"])

    def test_tasks_that_read_a_cache(self, cache: Cache) -> None:
        from beam_pipes.tasks.sources.cached import BuiltCacheSource

        source = BuiltCacheSource(cache.path, "train")
        shards = [
            int(each["number"]) for shard in source.list_shards("train") for each in source.read_shard("train", shard)
        ]
        assert set(shards) & GONE
        take_down(cache.path, NAMED)
        after = [
            int(each["number"]) for shard in source.list_shards("train") for each in source.read_shard("train", shard)
        ]

        assert len(after) == len(shards)
        assert not set(after) & GONE


def test_states_of_before_are_accepted_with_a_note(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 9, "epochs": 2}
    expected = numbers(Loader(cache["train"], **options))
    loader = Loader(cache["train"], **options)
    iterator = iter(loader)
    next(iterator)
    state = loader.get_state()
    assert b"takedown" not in state

    take_down(cache.path, NAMED)
    resumed = Loader(cache["train"], **options)
    with caplog.at_level(logging.WARNING, "beam_pipes.loader"):
        resumed.set_state(state)
    found = numbers(resumed)

    assert "this state was saved at takedown revision 0, and now it is 1: rows come in the same order" in caplog.text
    assert len(found) == len(expected[4:])
    assert all(now == then or then in GONE for now, then in zip(found, expected[4:], strict=True))
    assert json.loads(resumed.get_state())["takedown"] == 1
    caplog.clear()
    Loader(cache["train"], **options).set_state(resumed.get_state())
    assert caplog.text == ""


class TestTheOverlay:
    def test_audit_records_say_what_when_by_whom_why_and_how_many(self, cache: Cache) -> None:
        first = take_down(cache.path, [*NAMED, "gone.txt@7"], reason="request 4711", by="ada")
        second = take_down(cache.path, ["a.txt@2"], by="bob")
        undone = undo_takedown(cache.path, 1, by="eve")

        assert (first.matched_records, first.unmatched) == (17, ("gone.txt@7",))
        lines = [json.loads(line) for line in Path(cache.path, AUDIT).read_text().splitlines()]
        assert [(line["action"], line["number"], line["revision"], line["by"]) for line in lines] == [
            ("takedown", 1, 1, "ada"),
            ("takedown", 2, 2, "bob"),
            ("undo", 1, 3, "eve"),
        ]
        assert (lines[0]["reason"], lines[0]["matched_records"]) == ("request 4711", 17)
        assert lines[0]["ids"] == [*NAMED, "gone.txt@7"]
        assert lines == [json.loads(json.dumps(each.to_json())) for each in (first, second, undone)]
        assert [(each.number, each.undone is None) for each in cache.takedowns.takedowns] == [(1, False), (2, True)]
        assert cache["train"].find_rows("a.txt@2").tolist() == cache["train"].removed_rows.tolist()

    def test_an_undone_takedown_leaves_what_others_name(self, cache: Cache) -> None:
        take_down(cache.path, ["a.txt@14", "a.txt@16"])
        take_down(cache.path, ["a.txt@14"])
        undo_takedown(cache.path, 1)

        assert cache["train"].removed_rows.tolist() == cache["train"].find_rows("a.txt@14").tolist()
        with pytest.raises(DeclarationError, match=r"number of a takedown in force, one of \[2\], got 1"):
            undo_takedown(cache.path, 1)

    def test_a_rebuild_keeps_honouring_it(self, cache: Cache, tmp_path: Path) -> None:
        take_down(cache.path, [*NAMED, "c.txt@0"])
        (tmp_path / "input" / "c.txt").write_text("50\n52\n")
        declaration = declaration_of("text", tmp_path / "input")
        (tmp_path / "input" / "c.txt").write_text("50\n52\n")
        build(declaration, cache.path, options=LocalOptions(workers=1))
        rebuilt = Cache.open(cache.path)

        assert rebuilt.manifest.snapshot != cache.manifest.snapshot
        found = {int(example["number"]) for example in rebuilt["train"]}
        assert not (GONE | {50}) & found
        assert 52 in found
        assert not GONE & {int(example["number"]) for example in cache["train"]}  # the old snapshot too

    def test_a_snapshot_that_it_does_not_know_is_not_read(self, cache: Cache, tmp_path: Path) -> None:
        take_down(cache.path, ["a.txt@14"])
        overlay = read_overlay(cache.path)
        (Path(cache.path) / FILE_NAME).write_bytes(dataclasses.replace(overlay, rows={}).to_bytes())

        with pytest.raises(RecordRemovedError, match="1 takedowns are in force, and which rows .* --resolve"):
            cache["train"][0]
        resolve_takedowns(cache.path)
        assert cache["train"].removed_rows.tolist() == cache["train"].find_rows("a.txt@14").tolist()

    def test_a_cache_without_lineage_cannot_be_read_any_more(self, tmp_path: Path) -> None:
        golden = Path(__file__).parents[1] / "golden" / "cache_v1"
        shutil.copytree(golden, tmp_path / "cache")
        report = take_down(tmp_path / "cache", ["a.txt"])

        cache = Cache.open(tmp_path / "cache")
        assert report.unresolved == (cache.manifest.snapshot,)
        with pytest.raises(RecordRemovedError, match="is unknown, so the cache is not read"):
            next(iter(cache[cache.splits[0]]))
        undo_takedown(tmp_path / "cache", 1)
        assert len(list(cache[cache.splits[0]]))

    def test_all_records_taken_down(self, cache: Cache) -> None:
        take_down(cache.path, ["a.txt", "b.txt"])
        with pytest.raises(RecordRemovedError, match=r"all \d+ records are taken down, so none can be read"):
            cache["train"][0]
        plan = pack(cache["train"], sequence_length=16, feature="tokens")
        assert not any(batch["tokens"].any() for batch in Loader(plan, batch_size=2))

    @pytest.mark.parametrize("at", range(0, 400, 13))
    def test_a_damaged_file_stops_reading(self, cache: Cache, at: int) -> None:
        take_down(cache.path, NAMED)
        path = Path(cache.path) / FILE_NAME
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 1
        path.write_bytes(data)

        with pytest.raises((CorruptTakedownError, UnsupportedFormatError), match="takedown"):
            cache["train"][0]

    def test_a_newer_version_is_refused(self) -> None:
        content = {"format_version": 3, "revision": 1, "rows": {}, "takedowns": []}
        data = canonical_json({**content, "crc32c": google_crc32c.value(canonical_json(content))})
        with pytest.raises(UnsupportedFormatError, match="expected takedowns of version 1 or 2, found version 3"):
            Overlay.from_bytes(data, path="takedown.json")

    def test_nothing_to_take_down_and_nowhere(self, cache: Cache, tmp_path: Path) -> None:
        with pytest.raises(DeclarationError, match="should name at least one record"):
            take_down(cache.path, [""])
        with pytest.raises(CacheNotFoundError, match="'.*' does not exist: nothing was built there"):
            take_down(tmp_path / "nowhere", ["a@0"])
        with pytest.raises(CacheNotFoundError, match="expected the directory of a cache, and '.*a.txt' is a file."):
            take_down(next(tmp_path.rglob("a.txt")), ["a@0"])
        assert not (Path(cache.path) / FILE_NAME).exists()

    def test_the_directory_may_be_named_from_home(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(Path(cache.path).parent))
        short = f"~/{Path(cache.path).name}"
        take_down(short, ["a.txt@0"])
        assert [each.ids for each in read_overlay(cache.path).in_force] == [("a.txt@0",)]
        undo_takedown(short, 1)
        assert not read_overlay(cache.path).in_force

    def test_two_at_once_are_both_kept(self, cache: Cache) -> None:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.starmap(take_down, [(cache.path, [f"a.txt@{2 * n}"]) for n in range(6)])

        overlay = read_overlay(cache.path)
        assert (overlay.revision, len(overlay.takedowns)) == (6, 6)
        assert overlay.ids == {f"a.txt@{2 * n}" for n in range(6)}
        assert not (Path(cache.path) / LOCK_NAME).exists()

    def test_a_build_that_begins_and_sweeps_does_not_stop_it(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace, swept = os.replace, []

        def sweep_and_replace(source: Any, target: Any) -> None:
            if os.path.basename(target) == FILE_NAME and not swept:
                swept.append(source)
                remove_temporaries(storage_for(cache.path), cache.path)
            replace(source, target)

        monkeypatch.setattr(os, "replace", sweep_and_replace)
        take_down(cache.path, ["a.txt@14"])

        assert len(swept) == 1
        assert [each.ids for each in read_overlay(cache.path).in_force] == [("a.txt@14",)]

    def test_not_even_the_first_one_comes_into_the_middle_of_a_publication(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace, holders = os.replace, []

        def look_and_replace(source: Any, target: Any) -> None:
            if str(target) == str(tmp_path / "cache" / "manifest.json"):
                holders.append(holder_of(str(tmp_path / "cache" / LOCK_NAME)))
            replace(source, target)

        monkeypatch.setattr(os, "replace", look_and_replace)
        build_origins(tmp_path)

        assert len(holders) == 1
        assert f"process {os.getpid()}" in str(holders[0])

    @pytest.mark.parametrize("again", ["build", "replay_dead"])
    def test_building_again_looks_up_what_a_takedown_did_not_know(self, tmp_path: Path, again: str) -> None:
        cache = build_origins(tmp_path)
        declaration = declaration_of("text", tmp_path / "input")
        take_down(cache.path, ["a.txt@14"])
        overlay = read_overlay(cache.path)
        (Path(cache.path) / FILE_NAME).write_bytes(dataclasses.replace(overlay, rows={}).to_bytes())

        run = build if again == "build" else replay_dead
        assert run(declaration, cache.path, options=LocalOptions(workers=1)).up_to_date  # type: ignore[operator]

        assert cache["train"].removed_rows.tolist() == cache["train"].find_rows("a.txt@14").tolist()

    @pytest.mark.parametrize("label", ["storage/staged", "storage/renamed"])
    def test_what_is_in_force_is_in_the_audit_record_whenever_it_is_killed(self, cache: Cache, label: str) -> None:
        code = f"from beam_pipes.building.takedown import take_down; take_down({cache.path!r}, ['a.txt@14'])"
        killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, kill_points.VARIABLE: label})

        assert killed.returncode == -signal.SIGKILL
        assert self.audited(cache) == [(1, 1)]
        assert len(read_overlay(cache.path).in_force) == (label == "storage/renamed")
        take_down(cache.path, ["a.txt@16"])
        assert self.audited(cache) == ([(1, 1), (2, 2)] if label == "storage/renamed" else [(1, 1), (1, 1)])

    def test_without_room_for_the_audit_record_nothing_is_taken_down_and_no_line_is_torn(self, cache: Cache) -> None:
        take_down(cache.path, ["a.txt@14"], reason="r" * 5000)
        size = (Path(cache.path) / AUDIT).stat().st_size
        code = (
            "import resource; from beam_pipes.building.takedown import take_down; "
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 10}, {size + 10})); "
            f"take_down({cache.path!r}, ['a.txt@16'])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

        assert "a file may not become larger" in done.stderr
        assert [each.number for each in read_overlay(cache.path).in_force] == [1]
        take_down(cache.path, ["a.txt@18"])
        assert self.audited(cache) == [(1, 1), (2, 2)]

    def test_pages_that_show_examples_are_removed(self, cache: Cache) -> None:
        page = Path(write_report(cache.path))
        assert page.exists()
        take_down(cache.path, ["a.txt@14"])

        assert not page.exists()

    def audited(self, cache: Cache) -> list[tuple[int, int]]:
        """The number and the revision of each line of the audit record."""
        lines = map(json.loads, (Path(cache.path) / AUDIT).read_text().splitlines())
        return [(line["number"], line["revision"]) for line in lines]


@given(
    removed=st.sets(st.integers(0, 29)),
    more=st.sets(st.integers(0, 29)),
    rows=st.lists(st.integers(0, 29), max_size=40),
    key=st.integers(0, (1 << 64) - 1),
)
@settings(max_examples=300, deadline=None)
def test_a_stand_in_is_left_is_that_of_the_row_alone_and_stays_while_it_is_left(
    removed: set[int], more: set[int], rows: list[int], key: int
) -> None:
    kept = set(range(30)) - removed
    ascending = np.array(sorted(removed), np.int64)
    if not kept:
        if set(rows) & removed:
            with pytest.raises(RecordRemovedError):
                stand_ins(rows, ascending, 30, key=key, where="here")
        return
    found = stand_ins(rows, ascending, 30, key=key, where="here").tolist()

    assert set(found) <= kept
    assert all(now == row for now, row in zip(found, rows, strict=True) if row in kept)
    assert found == [int(stand_ins([row], ascending, 30, key=key, where="here")[0]) for row in rows]
    if len(removed | more) <= 3:  # a tenth of the rows: the chance of 16 draws in vain is 10^-16
        later = np.array(sorted(removed | more), np.int64)
        then = stand_ins(rows, later, 30, key=key, where="here").tolist()
        assert all(new == old for new, old in zip(then, found, strict=True) if old not in removed | more)


@pytest.mark.parametrize(("records", "gone"), [(4000, range(1000, 2000)), (400, range(1, 400)), (5000, range(0, 4990))])
def test_stand_ins_are_drawn_alike_from_all_rows_that_are_left(records: int, gone: range) -> None:
    removed = np.array(gone, np.int64)
    kept = np.setdiff1d(np.arange(records), removed)
    found = np.concatenate([stand_ins(removed, removed, records, key=key, where="here") for key in range(20)])
    counts = np.bincount(found, minlength=records)[kept]

    assert counts.sum() == len(found)
    expected = len(found) / len(kept)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - (len(kept) - 1)) < 5 * np.sqrt(2 * max(1, len(kept) - 1))
    assert counts.max() < expected + 6 * np.sqrt(expected)


def test_stand_ins_are_frozen() -> None:
    """Golden vectors: a training run that is resumed later, on any machine, sees the same records."""
    assert stand_in_key("0123456789abcdef", "train") == 3035953147130867753
    few = np.array([2, 3, 5, 7], np.int64)
    assert stand_ins(range(10), few, 10, key=0, where="here").tolist() == [0, 1, 9, 9, 4, 6, 6, 6, 8, 9]
    assert stand_ins(range(10), few, 10, key=3035953147130867753, where="here").tolist() == [
        0,
        1,
        8,
        1,
        4,
        4,
        6,
        8,
        8,
        9,
    ]
    most = np.arange(1, 100_000)  # draws in vain end at one of the two rows that are left
    assert stand_ins([1, 99_999], most, 100_001, key=7, where="here").tolist() == [100000, 0]
    wide = np.array([0, 1 << 39], np.int64)
    assert stand_ins(wide, wide, 1 << 40, key=1, where="here").tolist() == [554063790000, 437632970511]


@given(
    rows=st.dictionaries(st.sampled_from(["train", "eval"]), st.sets(st.integers(0, 1 << 40), max_size=20)),
    ids=st.lists(st.text(max_size=10), max_size=5),
    undone=st.one_of(st.none(), st.text(max_size=5)),
)
@settings(max_examples=200, deadline=None)
def test_the_overlay_survives_its_bytes(rows: dict[str, set[int]], ids: list[str], undone: str | None) -> None:
    ids = [each.encode("utf-8", "replace").decode() for each in ids]
    undone = undone and undone.encode("utf-8", "replace").decode()
    made = Overlay(
        revision=3,
        takedowns=(Takedown(number=1, at="now", by="me", reason="ü", ids=tuple(ids), undone=undone),),
        rows={"0" * 16: {split: np.array(sorted(found), np.int64) for split, found in rows.items()}},
    )
    again = Overlay.from_bytes(made.to_bytes(), path="takedown.json")

    assert (again.revision, again.takedowns) == (made.revision, made.takedowns)
    assert {split: found.tolist() for split, found in again.rows["0" * 16].items()} == {
        split: sorted(found) for split, found in rows.items()
    }
    assert again.to_bytes() == made.to_bytes()


@dataclasses.dataclass(frozen=True, eq=False)
class _Number(Pipeline):
    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"number": int(line)}]
