"""Caches built on gs://: the bytes of local ones, whatever happens on the way."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from builds_in_processes import BUSY, start_build
from fault_proxy import FaultProxy, at_random
from object_stores import check_signatures, check_workers_share

from beam_pipes.building.commit import commit
from beam_pipes.building.leftovers import collect
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.progress import read_status
from beam_pipes.building.references import load_declaration
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.building.takedown import states_of_takedowns, take_down
from beam_pipes.cache import Cache, storage_for
from beam_pipes.cli import run
from beam_pipes.commands import app
from beam_pipes.errors import (
    BucketNotFoundError,
    CacheNotFoundError,
    ChangedMeanwhileError,
    StorageForbiddenError,
    StorageUnavailableError,
)
from beam_pipes.report import report_html
from beam_pipes.runners import BeamOptions, LocalOptions, build
from beam_pipes.storage import locks as kill_points

pytestmark = pytest.mark.gcs

WORDS = "sample_declarations:words"
INLINE = LocalOptions(workers=1)
KILLED_AT = [
    *(label for label in kill_points.LABELS if not label.startswith(("lock/", "storage/", "digests/"))),
    *(label for label in kill_points.OBJECT_STORE_LABELS if label != "object/uploaded"),
    *(f"object/put#{visit}" for visit in (7, 14)),
]


def files_of(snapshot: str) -> dict[str, bytes]:
    """Name → bytes of all files of a snapshot, wherever it lies, but the record of the run."""
    storage = storage_for(snapshot)
    return {name: storage.read_bytes(f"{snapshot}/{name}") for name in storage.tree(snapshot) if name != "build.json"}


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        run(app, list(arguments), [])
    return int(ended.value.code or 0), " ".join(capsys.readouterr().out.split())


@pytest.fixture
def bad_lines(text_input: Path) -> Path:
    (text_input / "bad.txt").write_text("boom 1\nfine\nboom 2\n")
    return text_input


@pytest.mark.parametrize("options", [INLINE, LocalOptions(workers=2), BeamOptions()], ids=["inline", "two", "direct"])
def test_every_runner_writes_the_bytes_of_a_local_cache(bad_lines, tmp_path, bucket, options):
    declaration = "sample_declarations:words_with_dead_letters"
    local = build(declaration, tmp_path / "cache", options=INLINE)
    far = build(declaration, f"{bucket}/caches/words", options=options)

    assert (far.manifest_id, far.snapshot) == (local.manifest_id, local.snapshot)
    assert far.account.to_json() == local.account.to_json() and far.account.dead == 2
    cache, copy = Cache.open(f"{bucket}/caches/words"), Cache.open(tmp_path / "cache")
    assert files_of(cache.directory) == files_of(copy.directory)
    assert list(cache.dead_letters()) == list(copy.dead_letters()) and len(list(cache.dead_letters())) == 2
    assert cache.verify().problems == () and cache.verify().bytes == copy.verify().bytes
    assert cache.build_info["options"] == options.to_json()
    assert build(declaration, f"{bucket}/caches/words", options=options).up_to_date
    if options is INLINE:
        check_signatures(f"{bucket}/caches/words", tmp_path)


def test_workers_without_a_server_share_a_build(text_input: Path, tmp_path: Path, bucket: str) -> None:
    """Claims are conditional requests; one of the workers publishes."""
    build(WORDS, tmp_path / "local", options=INLINE)
    check_workers_share(WORDS, f"{bucket}/words")
    assert files_of(Cache.open(f"{bucket}/words").directory) == files_of(Cache.open(tmp_path / "local").directory)


def test_shards_of_other_snapshots_are_copied_and_old_snapshots_collected(text_input, tmp_path, bucket, capsys):
    to = f"{bucket}/words"
    first = build(WORDS, to, options=INLINE)
    (text_input / "sub" / "small-3.txt").write_text("another text\n")
    second = build(WORDS, to, options=INLINE)
    fresh = build(WORDS, tmp_path / "fresh", options=INLINE)

    assert 0 < second.reused_shards < second.num_shards and second.manifest_id == fresh.manifest_id
    assert files_of(Cache.open(to).directory) == files_of(Cache.open(tmp_path / "fresh").directory)
    assert Cache.open(to, snapshot=first.snapshot).verify().ok
    would = collect(to, keep=0, dry_run=True)
    assert would.removed == (first.snapshot,) and would.bytes > 1000
    assert collect(to, keep=0) == would and storage_for(to).list(f"{to}/snapshots") == [second.snapshot]
    assert Cache.open(to, verify=True).manifest.id == fresh.manifest_id

    assert command(capsys, "status", to)[1].startswith(f"{to}: snapshot {second.snapshot} is published")
    assert command(capsys, "verify", to)[1].endswith("no problem.")
    assert "Words_SplitWords_lines" in command(capsys, "stats", to)[1]
    assert "lengths: int32" in command(capsys, "inspect", to, "-n", "1")[1]
    assert command(capsys, "gc", to)[1].endswith(f"kept: {second.snapshot} (published).")
    code, output = command(capsys, "plan", WORDS, "--to", to, "--explain")
    assert code == 0 and "is published: up to date." in output and "0: MISS." in output
    with pytest.raises(CacheNotFoundError, match="'gs://.*/nothing' does not exist: nothing was built there"):
        read_status(f"{bucket}/nothing")


def test_a_kill_at_any_step_loses_nothing_and_the_next_build_finishes_it(text_input, tmp_path, bucket):
    (text_input / "large.txt").unlink()
    reference = {False: build(WORDS, tmp_path / "old", options=INLINE).manifest_id}
    changed, before = text_input / "sub" / "small-2.txt", (text_input / "sub" / "small-2.txt").read_text()
    changed.write_text("other words\n")
    reference[True] = build(WORDS, tmp_path / "new", options=INLINE).manifest_id
    survived = []
    for at in KILLED_AT:
        to = f"{bucket}/{at.replace('/', '-').replace('#', '-')}"
        changed.write_text(before)
        assert build(WORDS, to, options=INLINE).manifest_id == reference[False]
        changed.write_text("other words\n")
        builder = start_build(WORDS, to, killed_at=at)
        builder.join()

        assert builder.exitcode == -signal.SIGKILL, at
        seen = Cache.open(to)
        assert seen.manifest.id in reference.values() and seen.verify().problems == (), at
        assert read_status(to).builder is None, at
        result = build(WORDS, to, options=INLINE)
        assert result.manifest_id == reference[True] and Cache.open(to).verify().ok, at
        survived.append(at)
    assert survived == KILLED_AT


@pytest.mark.parametrize("workers", [1, 2])
def test_a_build_through_a_network_that_breaks_has_the_same_bytes(
    text_input, tmp_path, bucket, emulator, monkeypatch, workers
):
    local = build(WORDS, tmp_path / "cache", options=INLINE)
    with FaultProxy(emulator, at_random(0.08, seed=workers)) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        result = build(WORDS, f"{bucket}/words", options=LocalOptions(workers=workers))
        assert sum(proxy.done.values()) > 5
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    cache = Cache.open(f"{bucket}/words", verify=True)
    assert result.manifest_id == local.manifest_id == cache.manifest.id
    assert files_of(cache.directory) == files_of(Cache.open(tmp_path / "cache").directory)


def test_a_network_that_goes_away_ends_the_build_in_time_and_publishes_nothing(
    text_input, bucket, emulator, monkeypatch
):
    monkeypatch.setenv("BEAM_PIPES_GCS_DEADLINE_SECS", "1")
    to = f"{bucket}/words"
    with FaultProxy(emulator, lambda number, method, path: "503" if number > 60 else None) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        with pytest.raises(StorageUnavailableError, match="failed, the last with: .*503"):
            build(WORDS, to, options=INLINE)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    with pytest.raises(CacheNotFoundError, match="nothing is published yet"):
        Cache.open(to)
    [(done, shards)] = read_status(to).unfinished.values()
    assert 0 < done < shards
    assert build(WORDS, to, options=INLINE).reused_shards == done


def test_of_two_builders_one_wins(text_input, bucket):
    to = f"{bucket}/words"

    builders = [start_build(WORDS, to) for _ in range(2)]
    for builder in builders:
        builder.join()

    # The second may have come when the first had finished.
    assert sorted(builder.exitcode for builder in builders) in ([0, BUSY], [0, 0])
    assert Cache.open(to, verify=True).splits == ("eval", "train", "words")


def test_a_builder_that_lost_its_lock_does_not_replace_what_others_have_published(text_input, bucket):
    to, declaration = f"{bucket}/words", load_declaration(WORDS)
    stalled = make_plan(declaration, to)
    job = ShardJob(declaration, stalled.header)
    for task in prepare(stalled):
        job.run(task)
    (text_input / "sub" / "small-1.txt").write_text("newer\n")
    newer = build(WORDS, to, options=INLINE)

    with pytest.raises(ChangedMeanwhileError, match="another process has replaced it. What it published stays"):
        commit(stalled.header)

    assert Cache.open(to).manifest.id == newer.manifest_id


def test_damage_is_found_and_repaired(text_input, bucket):
    to = f"{bucket}/words"
    first = build(WORDS, to, options=INLINE)
    storage, directory = storage_for(to), Cache.open(to).directory
    name = next(name for name in storage.tree(directory) if "train.tfrecord-00002" in name and "index" not in name)
    data = bytearray(storage.read_bytes(f"{directory}/{name}"))
    data[20] ^= 1
    storage.replace(f"{directory}/{name}", bytes(data))

    [problem] = Cache.open(to).verify().problems
    assert problem.file == name and "checksum" in problem.message
    storage.delete(f"{directory}/{name}")
    assert "cannot be opened: No such file" in Cache.open(to).verify().problems[0].message
    assert build(WORDS, to, options=INLINE).manifest_id == first.manifest_id
    assert Cache.open(to).verify().ok


def test_what_cannot_be_written_is_reported_in_words(text_input, bucket, emulator, monkeypatch):
    with pytest.raises(BucketNotFoundError, match="gs://no-such-bucket/.*there is no bucket 'no-such-bucket'"):
        build(WORDS, "gs://no-such-bucket/words", options=INLINE)
    with FaultProxy(emulator, lambda number, method, path: "403" if method == "POST" else None) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        with pytest.raises(StorageForbiddenError, match="may not write there .* roles/storage.objectUser"):
            build(WORDS, f"{bucket}/words", options=INLINE)


def test_records_are_taken_down_on_gs_too(text_input, bucket):
    to = f"{bucket}/words"
    build(WORDS, to, options=INLINE)
    train = Cache.open(to)["train"]
    [name] = train.record_ids([3])
    hidden = train[3]["text"]

    report = take_down(to, [name], reason="asked for", by="tests")

    assert report.matched_records == 1
    seen = Cache.open(to)["train"]
    assert list(seen.removed_rows) == [3]
    assert hidden not in [example["text"] for example in seen]
    assert not storage_for(to).exists(f"{to}/.takedown.lock")

    file, _, position = name.rpartition("@")
    changed = next(text_input.rglob(file))
    changed.write_bytes(b"a line in front of all others\n" + changed.read_bytes())
    build(WORDS, to, options=INLINE)
    now = Cache.open(to)["train"]
    assert [state.followed for state in states_of_takedowns(to)] == [{name: (f"{file}@{int(position) + 30}",)}]
    assert hidden not in [example["text"] for example in now]
    with pytest.raises(CacheNotFoundError, match="'gs://.*/nothing' does not exist: nothing was built there"):
        take_down(f"{bucket}/nothing", [name], reason="asked for", by="tests")


def test_the_report_fetches_no_shards_to_sample_values(text_input: Path, bucket: str) -> None:
    to = f"{bucket}/reported"
    build("sample_declarations:words", to, options=LocalOptions(workers=1))

    page = report_html(to)

    assert "Not sampled: the shards lie on an object store." in page
    assert "No feature holds numbers" not in page and '<h2 id="lengths">' in page
