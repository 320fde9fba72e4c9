"""Caches built on s3:// and az://, from inputs there: the bytes of local ones, read back by a loader."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from urllib.parse import unquote

import numpy as np
import pytest
from fault_proxy import FaultProxy, at_random
from object_stores import check_names, check_signatures, check_workers_share
from service_declarations import INPUT_VARIABLE, URL_VARIABLE, asked_service
from waiting import eventually

from beam_pipes import FeatureSpec, Loader, add_column, declare, stage, with_columns, write_cache
from beam_pipes.building.declaration_fingerprint import ANSWERS
from beam_pipes.building.leftovers import collect
from beam_pipes.cache import Cache, storage_for
from beam_pipes.errors import CacheNotFoundError, SourceError
from beam_pipes.export import export
from beam_pipes.runners import BeamOptions, LocalOptions, build
from beam_pipes.sources import MegatronTokens, Parquet, TextLines

WORDS = "sample_declarations:words"
INLINE = LocalOptions(workers=1)


def files_of(snapshot):
    storage = storage_for(snapshot)
    return {name: storage.read_bytes(f"{snapshot}/{name}") for name in storage.tree(snapshot) if name != "build.json"}


@pytest.mark.parametrize("options", [INLINE, LocalOptions(workers=2), BeamOptions()], ids=["inline", "two", "direct"])
def test_every_runner_writes_the_bytes_of_a_local_cache(text_input, tmp_path, bucket, options):
    local = build(WORDS, tmp_path / "cache", options=INLINE)
    far = build(WORDS, f"{bucket}/caches/words", options=options)

    assert (far.manifest_id, far.snapshot) == (local.manifest_id, local.snapshot)
    cache = Cache.open(f"{bucket}/caches/words")
    assert files_of(cache.directory) == files_of(Cache.open(tmp_path / "cache").directory)
    assert cache.verify().problems == ()
    assert build(WORDS, f"{bucket}/caches/words", options=options).up_to_date
    if options is INLINE:
        check_signatures(f"{bucket}/caches/words", tmp_path)


def test_answers_of_services_are_kept_on_the_store_until_their_stage_is_gone(tmp_path, bucket, monkeypatch):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.txt").write_text("to be or\nnot\nto be or not\n")
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    to = f"{bucket}/judged"
    with asked_service() as service:
        monkeypatch.setenv(URL_VARIABLE, service.url)
        first = build("service_declarations:judged", to, options=INLINE)
        asked = len(service.requests)
        again = build("service_declarations:judged", to, options=INLINE, overwrite=True)

    assert asked == len(service.requests) == 4 and str(first.account) == str(again.account)
    assert len([name for name in storage_for(to).tree(f"{to}/{ANSWERS}")]) == 6
    judged_alone = declare("judged", TextLines(tmp_path / "input"), [_text], features={"text": FeatureSpec("str")})
    build(judged_alone, to, options=INLINE)
    collect(to, keep=0)
    assert not storage_for(to).tree(f"{to}/{ANSWERS}")


@stage
def _text(line: str) -> dict[str, object]:
    return {"text": line}


def test_shards_are_reused_and_a_build_under_faults_ends_in_the_same_bytes(
    text_input, tmp_path, bucket, store, monkeypatch
):
    to = f"{bucket}/words"
    build(WORDS, to, options=INLINE)
    (text_input / "sub" / "small-3.txt").write_text("another text\n")
    with FaultProxy(store.url, at_random(0.1, seed=1)) as proxy:
        store.go_to(proxy.url, monkeypatch)
        second = build(WORDS, to, options=INLINE)
        assert sum(proxy.done.values()) > 3
    store.go_to(store.url, monkeypatch)
    fresh = build(WORDS, tmp_path / "fresh", options=INLINE)

    assert 0 < second.reused_shards < second.num_shards and second.manifest_id == fresh.manifest_id
    assert files_of(Cache.open(to).directory) == files_of(Cache.open(tmp_path / "fresh").directory)


def test_a_reused_shard_costs_five_requests_before_the_job_and_one_after_it(text_input, bucket, store, monkeypatch):
    to = f"{bucket}/words"
    build(WORDS, to, options=INLINE)
    splits = len(Cache.open(to).splits)  # before the proxy, which nothing finds afterwards
    (text_input / "zzz.txt").write_text("one more text\n")
    with FaultProxy(store.url, lambda number, method, path: None) as proxy:
        store.go_to(proxy.url, monkeypatch)
        built = build(WORDS, to, options=INLINE)
    asked = [(method, unquote(path).rpartition("/snapshots/")[2].partition("?")[0]) for method, path in proxy.requests]
    copied = Counter(method for method, name in asked if ".tfrecord-" in name or "/lineage/" in name)

    assert built.reused_shards == built.num_shards - 1 > 1
    assert copied == {"PUT": built.num_shards * (2 * splits + 1)}  # nobody asks how large they are
    completions = Counter(method for method, name in asked if "/completions/" in name)
    # Found, and read by the commit; the new one is looked for by its worker.
    assert completions["PUT"] == built.num_shards and completions["GET"] <= 2 * built.num_shards + 2


def test_a_loader_reads_a_cache_through_a_bounded_directory(text_input, tmp_path, bucket):
    build(WORDS, tmp_path / "cache", options=INLINE)
    build(WORDS, f"{bucket}/words", options=INLINE)
    split = next(iter(Cache.open(tmp_path / "cache").splits))

    near = list(Loader(tmp_path / "cache" / split, batch_size=8, seed=1))
    copies = Cache.open(f"{bucket}/words", local_directory=tmp_path / "copies", max_local_bytes=1 << 30)
    far = list(Loader(copies[split], batch_size=8, seed=1))
    direct = list(Loader(f"{bucket}/words/{split}", batch_size=8, seed=1))

    for name in near[0]:
        for one, two, three in zip(near, far, direct, strict=True):
            assert np.array_equal(one[name], two[name]) and np.array_equal(one[name], three[name])


def test_inputs_give_the_records_of_local_files(tmp_path, bucket, store, monkeypatch):
    import pyarrow
    import pyarrow.parquet

    documents = [{"tokens": np.arange(200, dtype=np.int32)} for _ in range(300)]
    write_cache(tmp_path / "tokens", {"train": documents}, features={"tokens": FeatureSpec("int32", shape=(None,))})
    export(tmp_path / "tokens", tmp_path / "megatron", format="megatron")
    for path in (tmp_path / "megatron").iterdir():
        storage_for(bucket).replace(f"{bucket}/megatron/{path.name}", path.read_bytes())
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"line {number} {each}\n" for each in range(400)))
    pyarrow.parquet.write_table(pyarrow.table({"i": list(range(600))}), tmp_path / "t.parquet", row_group_size=100)
    for path in (path for path in tmp_path.iterdir() if path.is_file()):
        storage_for(bucket).replace(f"{bucket}/in/{path.name}", path.read_bytes())

    def records(source):
        batches = [batch for shard in source.plan(target_shard_bytes=4_000).shards for batch in source.read(shard)]
        return [(batch.record_id(i), str(value)) for batch in batches for i, value in enumerate(batch.values)]

    assert records(TextLines(f"{bucket}/in/*.txt")) == records(TextLines(f"{tmp_path}/*.txt"))
    assert len(records(TextLines(f"{bucket}/in", pattern="*.txt"))) == 1200
    assert records(Parquet(f"{bucket}/in/t.parquet")) == records(Parquet(f"{tmp_path}/t.parquet"))
    assert records(MegatronTokens(f"{bucket}/megatron")) == records(MegatronTokens(tmp_path / "megatron"))
    with FaultProxy(store.url, lambda number, method, path: None) as proxy:
        store.go_to(proxy.url, monkeypatch)
        assert len(MegatronTokens(f"{bucket}/megatron").plan(target_shard_bytes=20_000).shards) > 10
        assert not [path for method, path in proxy.requests if method == "GET" and path.endswith(".bin")]
    with pytest.raises(
        SourceError, match=r"should all be on one service \(gs://, s3:// or az://\), or all on this machine"
    ):
        TextLines([f"{bucket}/in", str(tmp_path)]).plan(target_shard_bytes=4_000)


def test_names_of_objects_are_names_before_they_are_globs(bucket):
    check_names(bucket)


def test_a_reader_has_a_lease_which_costs_one_request_and_none_for_a_batch(tmp_path, bucket, store, monkeypatch):
    to = f"{bucket}/c"
    older = write_cache(to, {"train": [{"n": n} for n in range(40)]}).manifest.snapshot
    newer = write_cache(to, {"train": [{"n": -n} for n in range(40)]}).manifest.snapshot
    storage = storage_for(to)

    def asked() -> list[tuple[str, bool]]:
        # Of this cache: the leases of readers in earlier tests end at any time, and are given back through this proxy.
        name = bucket.rpartition("/")[2]
        return [(method, "/leases/" in unquote(path)) for method, path in proxy.requests if name in path]

    with FaultProxy(store.url, lambda number, method, path: None) as proxy:
        store.go_to(proxy.url, monkeypatch)
        split = Cache.open(to, snapshot=older)["train"]
        batches = iter(Loader(split, batch_size=2, seed=1, epochs=None))
        for _ in range(20):  # an epoch, which reads everything
            next(batches)
        eventually(lambda: any(is_lease for _, is_lease in asked()))
        before = asked()
        for _ in range(200):
            next(batches)
        assert [method for method, is_lease in before if is_lease] == ["PUT"] and asked() == before
        store.go_to(store.url, monkeypatch)
        eventually(lambda: storage.list(f"{to}/leases"))  # the request above has been answered
    newest = write_cache(to, {"train": [{"n": n * n} for n in range(40)]}).manifest.snapshot
    silent = {"pid": 1, "host": "elsewhere", "since": "now", "lease_secs": 0.001}
    storage.replace(f"{to}/leases/{newer}-0123.json", json.dumps(silent).encode())
    time.sleep(1.1)  # services say when an object was written in whole seconds

    assert collect(to, keep=0, dry_run=True).held.keys() == {older}
    collected = collect(to, keep=0)

    assert (collected.published, collected.kept, collected.removed) == (newest, (older,), (newer,))
    assert collected.held[older][0].startswith(f"process {os.getpid()} on ")
    assert [name.partition("-")[0] for name in storage.list(f"{to}/leases")] == [older]
    assert len(next(batches)["n"]) == 2
    del batches, split
    gc.collect()
    eventually(lambda: not storage.list(f"{to}/leases"))
    assert collect(to, keep=0).removed == (older,)
    with pytest.raises(CacheNotFoundError, match=f"expected the snapshot '{older}'"):
        Cache.open(to, snapshot=older)


def test_a_column_lies_beside_the_shards(bucket):
    write_cache(f"{bucket}/c", {"train": [{"n": n} for n in range(40)]}, num_shards=2)

    add_column("double", f"{bucket}/c", doubled, workers=1)

    split = with_columns(f"{bucket}/c/train", "double")
    assert [record["double"] for record in split] == [2 * record["n"] for record in split]
    assert len(split.where("double > 20")) == 29


@stage
def doubled(record: dict) -> dict:
    return {"double": record["n"] * 2}


def test_workers_without_a_server_share_a_build(text_input, tmp_path, bucket):
    """Claims are conditional requests; one of the workers publishes."""
    build(WORDS, tmp_path / "local", options=INLINE)
    check_workers_share(WORDS, f"{bucket}/words")
    assert files_of(Cache.open(f"{bucket}/words").directory) == files_of(Cache.open(tmp_path / "local").directory)
