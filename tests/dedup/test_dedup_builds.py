"""Builds that leave out duplicates: counts, the same bytes everywhere, what is added and what is built again."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import dedup_declarations
import pytest
from built_files import built_files

from beam_pipes.building.trace import explain_record
from beam_pipes.cache import Cache
from beam_pipes.errors import AnalysisError, DeclarationError
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.options import BeamOptions
from beam_pipes.transforms.dedup import DropDuplicates, Duplicates, ExactDuplicates, NearDuplicates, plain_text
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

ONE = LocalOptions(workers=1)
UNIQUE = "dedup_declarations:unique"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of texts of which every ten are four new ones, three equal to others and three nearly so."""
    directory = tmp_path / "in"
    dedup_declarations.write_planted(directory)
    monkeypatch.setenv(dedup_declarations.INPUT_VARIABLE, str(directory))
    return directory


def records(directory: Path) -> dict[str, str]:
    """Record id → text, in the order of the source."""
    found = {}
    for path in sorted(directory.iterdir()):
        position = 0
        for line in path.read_text().splitlines():
            found[f"{path.name}@{position}"] = line
            position += len(line.encode()) + 1
    return found


def texts(cache: Path) -> list[str]:
    return [str(example["text"]) for example in Cache.open(cache)["train"]]


def duplicates(cache: Path, name: str) -> Duplicates:
    return Duplicates(str(Cache.open(cache).asset_path(name)))


def test_of_planted_duplicates_the_first_stays_and_counts_add_up(planted: Path, tmp_path: Path) -> None:
    account = build(UNIQUE, tmp_path / "cache", options=ONE).account

    # A text is known by its first words, of which at most one is another.
    seen: list[set[str]] = []
    stays = []
    for text in filter(None, records(planted).values()):
        words = set(plain_text(text).split())
        if not any(len(words & other) > 100 for other in seen):
            stays.append(text)
        seen.append(words)
    assert texts(tmp_path / "cache") == stays
    assert (account.read, account.written, account.dropped, account.dead) == (240, len(stays), 240 - len(stays), 0)
    dropped = account.units["DropDuplicates"].dropped
    assert dropped.keys() == {"exact duplicate", "near duplicate"}
    assert sum(dropped.values()) == 240 - len(stays) - 6
    assert dropped["exact duplicate"] == len(duplicates(tmp_path / "cache", "exact"))
    near = {row.removed for row in duplicates(tmp_path / "cache", "near")}
    exact = {row.removed for row in duplicates(tmp_path / "cache", "exact")}
    assert dropped["near duplicate"] == len(near - exact)


def test_what_is_removed_is_reported_record_by_record(planted: Path, tmp_path: Path) -> None:
    build(UNIQUE, tmp_path / "cache", options=ONE)
    found = records(planted)

    exact = duplicates(tmp_path / "cache", "exact")

    order = {record_id: number for number, record_id in enumerate(found)}
    assert len(exact) > 50
    for row in exact:
        assert plain_text(found[row.removed]) == plain_text(found[row.kept])
        assert order[row.kept] < order[row.removed] and row.kept not in exact
    for row in duplicates(tmp_path / "cache", "near"):
        assert 0.6 < row.similarity <= 1 and order[row.kept] < order[row.removed]
    removed = next(iter(exact)).removed
    report = explain_record(tmp_path / "cache", removed)
    assert (report.status, report.fate.drops) == ("dropped", (("DropDuplicates", "exact duplicate"),))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(LocalOptions(workers=2), id="two_workers"),
        pytest.param(BeamOptions(runner=IN_PROCESS_RUNNER), id="beam"),
    ],
)
def test_every_runner_writes_the_same_bytes(planted: Path, tmp_path: Path, options: LocalOptions | BeamOptions) -> None:
    build(UNIQUE, tmp_path / "one", options=ONE)

    build(UNIQUE, tmp_path / "other", options=options)

    expected = built_files(tmp_path / "one")
    assert any(name.endswith("assets/near") for name in expected)
    assert built_files(tmp_path / "other") == expected


def test_what_stays_does_not_depend_on_how_the_input_is_cut(planted: Path, tmp_path: Path) -> None:
    results = []
    for target in (10_000, 10_000_000):
        cache = tmp_path / str(target)
        result = build(dedup_declarations.unique(target_shard_bytes=target), cache, options=ONE)
        assets = [Path(str(Cache.open(cache).asset_path(name))).read_bytes() for name in ("exact", "near")]
        results.append((texts(cache), assets))
        assert (result.num_shards > 10) is (target == 10_000)

    assert results[0] == results[1]


def test_a_file_without_duplicates_is_analysed_and_built_alone(planted: Path, tmp_path: Path) -> None:
    first = build(UNIQUE, tmp_path / "cache", options=ONE)
    fresh = [" ".join(f"fresh{line}x{word}" for word in range(80)) for line in range(40)]
    (planted / "part-1b.txt").write_text("\n".join(fresh) + "\n")

    second = build(UNIQUE, tmp_path / "cache", options=ONE)

    new_shards = second.num_shards - first.num_shards
    assert new_shards >= 1
    assert second.reused_shards == first.num_shards
    assert second.analysis is not None and second.analysis.num_tasks == 2 * new_shards
    assert set(fresh) <= set(texts(tmp_path / "cache"))


def test_a_file_with_duplicates_before_all_others_takes_their_place(planted: Path, tmp_path: Path) -> None:
    first = build(UNIQUE, tmp_path / "cache", options=ONE)
    repeated = [text.upper() for text in list(records(planted).values())[:3]]
    (planted / "a-first.txt").write_text("\n".join(repeated) + "\n")

    second = build(UNIQUE, tmp_path / "cache", options=ONE)

    assert texts(tmp_path / "cache")[:3] == repeated
    assert second.account.written == first.account.written
    assert second.analysis is not None and second.analysis.num_tasks < 2 * second.num_shards
    build(UNIQUE, tmp_path / "cold", options=ONE)
    warm, cold = built_files(tmp_path / "cache"), built_files(tmp_path / "cold")
    assert {name: warm[name] for name in cold} == cold


def test_looking_for_near_duplicates_among_what_exact_ones_leave(planted: Path, tmp_path: Path) -> None:
    build(UNIQUE, tmp_path / "both", options=ONE)

    build("dedup_declarations:unique_in_turn", tmp_path / "in_turn", options=ONE)

    assert texts(tmp_path / "in_turn") == texts(tmp_path / "both")
    exact = {row.removed for row in duplicates(tmp_path / "both", "exact")}
    near = {row.removed for row in duplicates(tmp_path / "both", "near")}
    assert {row.removed for row in duplicates(tmp_path / "in_turn", "near")} == near - exact


def test_what_is_alike_can_stay_and_is_never_in_two_splits(planted: Path, tmp_path: Path) -> None:
    account = build("dedup_declarations:split_by_cluster", tmp_path / "cache", options=ONE).account

    assert account.written == 234
    cache = Cache.open(tmp_path / "cache")
    sides = {
        record_id: split for split in cache.splits for record_id in cache[split].record_ids(range(len(cache[split])))
    }
    near = duplicates(tmp_path / "cache", "near")
    assert len(near) > 100 and all(sides[row.removed] == sides[row.kept] for row in near)
    clusters = {side: {row.kept for row in near if sides[row.kept] == side} for side in ("train", "valid")}
    assert min(map(len, clusters.values())) > 10


def test_a_record_that_fails_is_not_compared_and_stays_a_dead_letter(planted: Path, tmp_path: Path) -> None:
    (planted / "part-9.txt").write_text("broken\nbroken\n")

    account = build(UNIQUE, tmp_path / "cache", options=ONE).account

    assert account.dead == 2
    assert "part-9.txt@7" not in duplicates(tmp_path / "cache", "exact")


class _Parts(Pipeline):
    input_type = output_type = str

    def transform(self, line: str) -> list[str]:
        return line.split()


def test_several_contents_of_a_record_are_refused_with_the_place(planted: Path, tmp_path: Path) -> None:
    exact = ExactDuplicates("exact", of=_Parts())
    drop, example = DropDuplicates(str, exact.result), dedup_declarations.ToExample()
    declaration = dataclasses.replace(
        dedup_declarations.unique(),
        analyzers=(exact,),
        pipeline=DAGPipeline({drop: Input(str), example: drop, Output("train"): example}),
    )

    words = (
        r"the analyzer 'exact' \(ExactDuplicates\) failed on source shard 0 \(part-0.txt\), records .*: "
        r"DeclarationError: analyzer 'exact': the record 'part-0.txt@0' gives several values to compare"
    )
    with pytest.raises(AnalysisError, match=words):
        build(declaration, tmp_path / "cache", options=ONE)


def test_a_stage_is_tried_out_on_a_result_that_is_there(planted: Path, tmp_path: Path) -> None:
    build(UNIQUE, tmp_path / "cache", options=ONE)
    exact, near = ExactDuplicates("exact"), NearDuplicates("near")
    drop = DropDuplicates(str, exact.result, near.result)
    with pytest.raises(AnalysisError, match="the result of the analyzer 'exact' .* the analysis has not run"):
        drop.transform("to be")

    for analyzer in (exact, near):
        analyzer.result.bind(Cache.open(tmp_path / "cache").asset_path(analyzer.name))

    with pytest.raises(DeclarationError, match="expected the id of a source record, file@position, got '1'"):
        drop.transform("to be")
    digest = fingerprint(drop).digest
    exact.result.bind(near.result.bound)
    assert fingerprint(drop).digest != digest


@pytest.mark.parametrize(
    ("results", "words"),
    [
        pytest.param(
            (),
            "DropDuplicates: there is no result that says what to drop. Example: DropDuplicates(str, exact.result).",
            id="none",
        ),
        pytest.param(
            ("exact",),
            "DropDuplicates: results are analyzer.result, got str: 'exact'. Example: DropDuplicates(str, "
            "exact.result).",
            id="name",
        ),
    ],
)
def test_what_is_not_a_result_is_refused(results: tuple[object, ...], words: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{re.escape(words)}$"):
        DropDuplicates(str, *results)  # type: ignore[arg-type]


def test_near_duplicates_compare_text_only() -> None:
    class Numbers(Pipeline):
        input_type, output_type = str, int

        def transform(self, line: str) -> list[int]:
            return [len(line)]

    message = (
        "analyzer 'near': NearDuplicates analyses str, but 'Numbers' gives int. Give of=..., a pipeline that ends in "
        "str."
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
        NearDuplicates("near", of=Numbers())
