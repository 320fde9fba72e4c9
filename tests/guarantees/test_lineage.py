"""Every source record is accounted for by name: from the cache alone, and by running it again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from origin_caches import build_origins, declaration_of, number_of

from beam_pipes.building import shard_output
from beam_pipes.building.trace import explain_record, trace_record
from beam_pipes.cache import Cache, ExampleCodec
from beam_pipes.engine.account import Account
from beam_pipes.errors import CacheNotFoundError, ReconciliationError, UnknownRecordError
from beam_pipes.lineage.lineage import WRITTEN, Fate, LineageWriter, decode_lineage
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.sources.record_batch import content_digest
from beam_pipes.typed import Counter, DAGPipeline, Input, Output, Pipeline

KINDS = ["text", "jsonl", "csv", "tfrecords", "parquet", "files", "memory"]

FATES = st.one_of(
    st.just(WRITTEN),
    st.builds(
        lambda drops: Fate(status="dropped", drops=tuple(drops)),
        st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from(["x", "ünd"])), min_size=1, max_size=3),
    ),
    st.builds(lambda error: Fate(status="dead", stage="S", error=error), st.text(max_size=5)),
)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cache(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return build_origins(tmp_path_factory.mktemp(kind), kind)


class TestEachSource:
    def test_rows_know_their_records_and_records_their_rows(self, cache: Cache) -> None:
        train = cache["train"]
        ids = train.record_ids(range(len(train)))

        assert len(set(ids)) < len(ids)  # some records gave two
        for row, record_id in enumerate(ids):
            report = explain_record(cache.path, record_id)
            found = {stored.row: train[stored.row]["number"] for stored in report.rows}
            assert (report.status, row in found) == ("written", True)
            assert set(found.values()) == {train[row]["number"]}
            assert len(found) == train[row]["number"] % 3

    def test_every_record_is_written_dropped_with_a_reason_or_dead(self, cache: Cache) -> None:
        reports = [
            explain_record(cache.path, shard.record_id(ordinal))
            for shard in cache.lineage
            for ordinal in range(len(shard))
        ]
        by_status: dict[str, list[Any]] = {}
        for report in reports:
            by_status.setdefault(report.status, []).append(report)

        account = Account.from_json(cache.manifest.accounting)
        counts = {status: len(found) for status, found in by_status.items()}
        assert counts == {"written": account.written, "dropped": account.dropped, "dead": account.dead}
        assert sum(counts.values()) == account.read == 40
        assert {report.fate.drops for report in by_status["dropped"]} == {(("Repeat", "third"),)}
        (dead,) = by_status["dead"]
        assert (dead.fate.stage, dead.fate.error) == ("Repeat", "ValueError")
        assert dead.dead_letter is not None
        assert dead.dead_letter.message == "number 13 is unlucky"
        assert json.dumps(dead.to_json())

    def test_a_trace_gives_the_bytes_that_the_build_wrote(self, cache: Cache, kind: str) -> None:
        declaration = declaration_of(kind, Path(cache.path).parent / "input")
        train = cache["train"]
        for row, record_id in list(enumerate(train.record_ids(range(len(train)))))[::9]:
            trace = trace_record(declaration, record_id, cache=cache.path)
            assert train.record_bytes(row) in trace.written["train"]
            assert number_of(trace.value) == train[row]["number"]


def test_a_trace_shows_each_stage_with_drops_statistics_and_failures(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("one two\n\nthree boom\n")

    @dataclasses.dataclass(frozen=True, eq=False)
    class Words(Pipeline):
        input_type = str
        output_type = str

        def transform(self, line: str) -> list[str]:
            self._set_stats([Counter("lines", 1)])
            return line.split() or self.drop("empty")

    @dataclasses.dataclass(frozen=True, eq=False)
    class Example(Pipeline):
        input_type = str
        output_type = dict

        def transform(self, word: str) -> list[dict[str, Any]]:
            if word == "boom":
                raise RuntimeError("no booms")
            return [{"word": word}] if len(word) == 3 else self.drop("long")

    words, example = Words(), Example()
    dag = DAGPipeline({words: Input(str), example: words, Output("train"): example}, "D")
    declaration = declaration_of("text", tmp_path / "other")
    declaration = dataclasses.replace(
        declaration, source=TextLines(str(tmp_path / "in")), pipeline=dag, features=None, on_error="fail"
    )

    both, empty, failed = (trace_record(declaration, f"a.txt@{position}") for position in (0, 8, 9))

    assert [stage.name for stage in both.stages] == ["Words", "Example", "write"]
    assert both.stages[0].outputs[None] == ("one", "two")
    assert [str(each) for each in both.stages[0].statistics] == ["D_Words_lines: 1"]
    assert both.stages[1].outputs[None] == ({"word": "one"}, {"word": "two"})
    assert both.failure is None
    assert empty.stages[0].drops == ("empty",)
    assert [stage.reached for stage in empty.stages] == [True, False, False]
    assert failed.stages[1].failure is not None
    assert (failed.failure.stage, failed.failure.message) == ("Example", "no booms")  # type: ignore[union-attr]
    assert "raise RuntimeError" in failed.failure.traceback  # type: ignore[union-attr]
    assert failed.stages[1].drops == ("long",)  # of the word before
    assert failed.written == {}


def test_a_record_that_cannot_be_parsed_is_traced_to_the_source(tmp_path: Path) -> None:
    declaration = declaration_of("jsonl", tmp_path / "in")
    (tmp_path / "in" / "a.jsonl").write_text('{"number": 1}\nno json\n')

    trace = trace_record(declaration, "a.jsonl@14")

    assert trace.failure is not None
    assert (trace.failure.stage, trace.raw) == ("source", b"no json")
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    report = explain_record(tmp_path / "cache", "a.jsonl@14")
    assert (report.status, report.fate.stage, report.fate.error) == ("dead", "source", "SourceError")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return build_origins(tmp_path_factory.mktemp("unknown"))


class TestUnknownIds:
    @pytest.mark.parametrize(
        ("record_id", "words"),
        [
            ("a.txt@1", "no record that starts at 1. Did you mean a.txt@0 or a.txt@2?"),
            ("aa.txt@0", "found 2 files. Did you mean a.txt@0"),
            ("zzz@0", r"no source record has the id 'zzz@0'; found 2 files\.$"),
            ("a.txt", "a source record is named 'file@position', such as 'books/emma.txt@1024', got 'a.txt'"),
            ("a.txt@-3", "is named 'file@position'"),
            ("a.txt@99999999999999999999999", "is named 'file@position'"),
        ],
    )
    def test_the_nearest_are_named(self, texts: Cache, record_id: str, words: str) -> None:
        with pytest.raises(UnknownRecordError, match=words):
            explain_record(texts.path, record_id)

    def test_by_a_trace_too(self, texts: Cache) -> None:
        declaration = declaration_of("text", Path(texts.path).parent / "input")
        with pytest.raises(UnknownRecordError, match="Did you mean a.txt@0 or a.txt@2"):
            trace_record(declaration, "a.txt@1")
        with pytest.raises(UnknownRecordError, match="the input has 2 files. Did you mean a.txt@0"):
            trace_record(declaration, "aa.txt@0")


def test_lineage_is_read_from_the_cache_alone(tmp_path: Path) -> None:
    cache = build_origins(tmp_path)
    shutil.rmtree(tmp_path / "input")

    assert explain_record(cache.path, "a.txt@2").status == "written"
    assert explain_record(cache.path, "a.txt@0").fate.drops == (("Repeat", "third"),)


def test_a_cache_without_lineage_says_so(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "cache_v1"
    with pytest.raises(CacheNotFoundError, match="expected the lineage of snapshot .* was built without. Rebuild"):
        explain_record(golden, "a.txt@0")


def test_counts_that_do_not_add_up_publish_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of a shard is checked when it is committed: a record that vanishes on the way stops the build."""
    keep = shard_output.ShardOutput.encode

    def loses_one(self: Any, batch: Any, sequence: int) -> Any:
        part = keep(self, batch, sequence)
        part.account.written -= 1
        return part

    monkeypatch.setattr(shard_output.ShardOutput, "encode", loses_one)

    with pytest.raises(
        ReconciliationError, match=r"source shard 0: \d+ records were read, but .* Nothing was published"
    ):
        build_origins(tmp_path)
    with pytest.raises(CacheNotFoundError):
        Cache.open(tmp_path / "cache")


@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b/ü"]), st.integers(0, 1 << 62), FATES), max_size=6), max_size=3
    ),
    cuts=st.lists(st.integers(0, 18), max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_lineage_survives_its_bytes_and_does_not_depend_on_batches(
    batches: list[list[tuple[str, int, Fate]]], cuts: list[int]
) -> None:
    records = [record for batch in batches for record in batch]
    digests = b"".join(content_digest(f"{n}".encode()) for n in range(len(records)))

    def written(bounds: list[int]) -> bytes:
        whole = LineageWriter()
        for start, end in zip([0, *bounds], [*bounds, len(records)], strict=True):
            part = LineageWriter()
            chosen = records[start:end]
            fates = {n: fate for n, (_, _, fate) in enumerate(chosen) if fate != WRITTEN}
            part.add([(file, [position]) for file, position, _ in chosen], fates, digests[8 * start : 8 * end])
            whole.merge_from(part)
        return whole.to_bytes()

    data = written([])
    lineage = decode_lineage(data, path="lineage")

    assert [lineage.record_id(n) for n in range(len(lineage))] == [f"{file}@{at}" for file, at, _ in records]
    assert [lineage.fate(n) for n in range(len(lineage))] == [fate for _, _, fate in records]
    assert lineage.digests is not None and lineage.digests.tobytes() == digests
    assert written(sorted(min(cut, len(records)) for cut in cuts)) == data
    for file, at, _ in records:
        found = lineage.ordinals_at(file, np.array([at], np.uint64))
        expected = {n for n, (name, position, _) in enumerate(records) if (name, position) == (file, at)}
        assert set(found.tolist()) <= expected and len(found)


def test_traced_examples_decode_to_what_is_in_the_cache(tmp_path: Path) -> None:
    cache = build_origins(tmp_path)
    trace = trace_record(declaration_of("text", tmp_path / "input"), "a.txt@4")

    decoded = [ExampleCodec(cache["train"].spec).decode(payload) for payload in trace.written["train"]]
    stored = [cache["train"][row] for row in cache["train"].find_rows("a.txt@4")]

    assert [example["number"] for example in decoded] == [example["number"] for example in stored] == [2, 2]


def test_lineage_of_another_build_is_noticed(tmp_path: Path) -> None:
    """Each file is whole and bears its own checksum; only the manifest can tell that it is not its own."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    cache, other = build_origins(tmp_path / "one"), build_origins(tmp_path / "two", count=43)
    files = sorted(Path(cache.directory, "lineage").iterdir())
    others = sorted(Path(other.directory, "lineage").iterdir())
    assert cache.verify().ok
    assert cache.manifest.fingerprints["lineage"] != other.manifest.fingerprints["lineage"]

    files[-1].write_bytes(others[-1].read_bytes())

    [problem] = cache.verify().problems
    assert "expected the lineage that the manifest names, found that of other files" in problem.message
