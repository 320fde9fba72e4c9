"""Takedowns mean contents: they are found again wherever they stand, and nothing is hidden or shown in silence."""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from origin_caches import declaration_of, source_of

from beam_pipes.building import Declaration
from beam_pipes.building.takedown import (
    AUDIT,
    mark_gone,
    resolve_takedowns,
    states_of_takedowns,
    take_down,
    undo_takedown,
)
from beam_pipes.building.trace import explain_record
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import CorruptTakedownError, TakenDownNotFoundError
from beam_pipes.lineage.takedown import FILE_NAME, Overlay, Takedown, read_overlay
from beam_pipes.loader import Loader
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.replay import replay_dead
from beam_pipes.sources import CSV, Memory, RepairedSource, TextLines
from beam_pipes.transforms.analyzers import Vocabulary
from beam_pipes.typed import Pipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "lineage_v1"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Keep(Pipeline):
    """A line as it is; "bad" fails, "drop" is dropped."""

    input_type = str
    output_type = dict
    version = 2

    def transform(self, line: str) -> list[dict[str, Any]]:
        if line.startswith("bad"):
            raise ValueError(line)
        return self.drop("asked for") if line == "drop" else [{"text": line}]


class People:
    """Files of lines, and the cache that is built of them again and again."""

    def __init__(self, root: Path) -> None:
        self.input = root / "input"
        self.input.mkdir(exist_ok=True)
        self.path = str(root / "cache")

    def write(self, **files: str) -> None:
        """`u="ann bob"` → a file `u.txt` of two lines; files that are not named stay."""
        for name, words in files.items():
            (self.input / f"{name}.txt").write_text("".join(f"{word}\n" for word in words.split()))

    def build(self, **options: Any) -> Any:
        declaration = Declaration(
            name="people",
            source=TextLines(str(self.input)),
            pipeline=Keep(),
            features={"text": FeatureSpec("str")},
            on_error="dead_letter",
            target_shard_bytes=24,
            **options,
        )
        return build(declaration, self.path, options=LocalOptions(workers=1), accept_code_change=True)

    @property
    def cache(self) -> Cache:
        return Cache.open(self.path)

    @property
    def read(self) -> set[str]:
        return {str(example["text"]) for example in self.cache["train"]}

    @property
    def hidden(self) -> list[str]:
        """The records that are hidden, by their ids."""
        return sorted(self.cache["train"].record_ids(self.cache["train"].removed_rows))


def lines_of(file: Path) -> list[str]:
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode().split()


def compress(file: Path) -> None:
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()


@pytest.fixture
def people(tmp_path: Path) -> People:
    made = People(tmp_path)
    made.write(u="ann bob cat dan eve", v="fay gil hal")
    made.build()
    return made


class TestTheInputChanges:
    """Of u.txt, cat is taken down (`u.txt@8`); then the input changes, and is built again."""

    @pytest.fixture(autouse=True)
    def taken_down(self, people: People) -> None:
        report = take_down(people.path, ["u.txt@8"], reason="request 1", by="ada")
        assert (report.matched_records, report.equal_records) == (1, 0)
        assert people.read == {"ann", "bob", "dan", "eve", "fay", "gil", "hal"}

    @pytest.mark.parametrize(
        ("change", "now"),
        [
            pytest.param(lambda people: people.write(u="bob cat dan eve"), "u.txt@4", id="a line before is removed"),
            pytest.param(lambda people: people.write(u="new ann bob cat dan eve"), "u.txt@12", id="a line is inserted"),
            pytest.param(lambda people: people.write(u="cat eve ann dan bob"), "u.txt@0", id="lines change places"),
            pytest.param(
                lambda people: (people.input / "u.txt").rename(people.input / "w.txt"), "w.txt@8", id="a new name"
            ),
            pytest.param(lambda people: compress(people.input / "u.txt"), "u.txt.gz@8", id="it is compressed"),
            pytest.param(
                lambda people: people.write(u="ann bob dan eve", v="fay gil hal cat"), "v.txt@12", id="another file"
            ),
        ],
    )
    def test_it_is_hidden_where_it_stands_now_and_no_other_is(
        self, people: People, change: Callable[[People], Any], now: str
    ) -> None:
        change(people)
        people.build()
        everything = {line for file in people.input.iterdir() for line in lines_of(file)}

        assert people.hidden == [now]
        assert people.read == everything - {"cat"}
        [state] = states_of_takedowns(people.path)
        assert (state.records, state.followed, state.missing, state.pending) == (1, {"u.txt@8": (now,)}, {}, ())

    def test_twice_the_same_content_is_hidden_twice(self, people: People) -> None:
        people.write(v="fay cat gil cat hal")
        people.build()

        assert people.hidden == ["u.txt@8", "v.txt@12", "v.txt@4"]
        assert "cat" not in people.read
        [state] = states_of_takedowns(people.path)
        assert (state.records, state.followed) == (3, {"u.txt@8": ("v.txt@4", "v.txt@12")})

    @pytest.mark.parametrize("words", ["ann bob dan eve", "ann bob Cat dan eve", "ann"])
    def test_one_that_is_nowhere_stops_the_publication_until_somebody_says_that_it_is_gone(
        self, people: People, words: str
    ) -> None:
        before = people.cache.manifest.id
        people.write(u=words)

        with pytest.raises(TakenDownNotFoundError) as raised:
            people.build()
        assert (
            "records that were taken down are nowhere in the input any more: takedown 1, u.txt@8. They were removed, "
            "or edited, and what was edited would be read again. Nothing was published; readers keep the previous "
            f"snapshot. If they were removed on purpose, say so (`beam-pipes takedown {people.path} --gone 1`) and "
            "build again. If they were edited, first name them as they are in the input now (`beam-pipes takedown"
        ) in str(raised.value)
        assert people.cache.manifest.id == before
        assert "cat" not in people.read

        gone = mark_gone(people.path, 1, by="ada")
        people.build()
        assert (gone.action, gone.number) == ("gone", 1)
        assert people.hidden == []
        assert people.read == set(words.split()) | {"fay", "gil", "hal"}
        [state] = states_of_takedowns(people.path)
        assert (state.records, state.missing) == (0, {"u.txt@8": 1})
        lines = [json.loads(line) for line in Path(people.path, AUDIT).read_text().splitlines()]
        assert [(line["action"], line["number"], line["by"]) for line in lines] == [
            ("takedown", 1, "ada"),
            ("gone", 1, "ada"),
        ]

        people.write(v="fay cat")  # what is noted as gone is hidden all the same where it comes back
        people.build()
        assert people.hidden == ["v.txt@4"]

    def test_one_that_was_edited_is_named_for_the_next_build_and_never_read(self, people: People) -> None:
        people.write(u="ann bob Cat dan eve")
        report = take_down(people.path, ["u.txt@8"], reason="as it is now", next_build=True)
        mark_gone(people.path, 1)
        assert (report.matched_records, report.unmatched) == (0, ("u.txt@8",))
        people.build()

        assert people.hidden == ["u.txt@8"]
        assert "Cat" not in people.read
        assert [state.records for state in states_of_takedowns(people.path)] == [0, 1]

    def test_two_takedowns_and_one_that_is_undone(self, people: People) -> None:
        take_down(people.path, ["v.txt@0"])
        people.write(u="bob cat dan eve", v="gil fay hal")
        people.build()
        assert people.hidden == ["u.txt@4", "v.txt@4"]

        undo_takedown(people.path, 1)
        assert people.hidden == ["v.txt@4"]
        people.write(u="bob dan")  # nobody asks for what is undone
        people.build()
        assert people.read == {"bob", "dan", "gil", "hal"}

    def test_the_older_snapshot_hides_it_where_it_stood(self, people: People) -> None:
        older = people.cache
        people.write(u="bob cat dan eve")
        people.build()
        take_down(people.path, ["u.txt@8"])  # dan, as the input is now; cat in the older snapshot

        assert people.read == {"bob", "eve", "fay", "gil", "hal"}
        assert {str(example["text"]) for example in older["train"]} == {"ann", "bob", "eve", "fay", "gil", "hal"}

    def test_one_of_an_older_snapshot_alone_stops_nothing(self, people: People) -> None:
        older = people.cache
        mark_gone(people.path, 1)
        people.write(u="cat")
        people.build()
        take_down(people.path, ["u.txt@12"])  # dan, who is in the older snapshot alone

        assert "dan" not in {str(example["text"]) for example in older["train"]}
        people.write(v="fay gil")
        people.build()
        assert people.read == {"fay", "gil"}

    def test_loaders_over_the_new_snapshot_never_give_it(self, people: People) -> None:
        people.write(u="bob cat dan eve")
        people.build()

        found = [
            str(text) for batch in Loader(people.cache["train"], batch_size=3, epochs=20) for text in batch["text"]
        ]
        assert set(found) == {"bob", "dan", "eve", "fay", "gil", "hal"}


def test_ids_from_before_any_build_get_their_content_with_the_first_build_that_has_them(tmp_path: Path) -> None:
    people = People(tmp_path)
    people.write(u="ann bob")
    people.build()
    report = take_down(people.path, ["w.txt@4", "u.txt@0"])
    assert (report.matched_records, report.unmatched) == (1, ("w.txt@4",))
    assert [state.pending for state in states_of_takedowns(people.path)] == [("w.txt@4",)]

    people.write(w="gil hal ida")
    people.build()
    assert people.hidden == ["u.txt@0", "w.txt@4"]
    people.write(w="hal ida gil")
    people.build()
    assert people.hidden == ["u.txt@0", "w.txt@0"]
    assert [state.pending for state in states_of_takedowns(people.path)] == [()]


class TestWholeFiles:
    def test_a_renamed_file_is_followed_and_the_other_one_of_its_name_is_read(self, people: People) -> None:
        assert take_down(people.path, ["u.txt"]).matched_records == 5
        (people.input / "u.txt").rename(people.input / "w.txt")
        people.write(u="ida jon")
        people.build()

        assert people.read == {"fay", "gil", "hal", "ida", "jon"}
        assert people.hidden == ["w.txt@0", "w.txt@12", "w.txt@16", "w.txt@4", "w.txt@8"]

    def test_new_records_of_the_file_are_hidden_too_and_reported(
        self, people: People, caplog: pytest.LogCaptureFixture
    ) -> None:
        take_down(people.path, ["u.txt"])
        people.write(u="ann bob new cat dan eve last")
        with caplog.at_level(logging.WARNING, "beam_pipes.building.takedown"):
            people.build()

        assert people.read == {"fay", "gil", "hal"}
        assert "the file u.txt is taken down as a whole and has 2 new records: they are hidden too." in caplog.text

    def test_a_part_that_is_nowhere_is_counted(self, people: People) -> None:
        take_down(people.path, ["u.txt"])
        people.write(u="ann bob cat")

        with pytest.raises(TakenDownNotFoundError, match=r"takedown 1, u\.txt \(2 of 5 records\)\. They were removed"):
            people.build()

    def test_equal_records_of_other_files_are_counted(self, tmp_path: Path) -> None:
        people = People(tmp_path)
        people.write(u="ann bob", v="bob cat bob")
        people.build()
        report = take_down(people.path, ["u.txt"])

        assert (report.matched_records, report.equal_records) == (2, 2)
        assert people.read == {"cat"}


def test_dead_letters_and_dropped_records_are_followed(tmp_path: Path) -> None:
    people = People(tmp_path)
    people.write(u="ann bad1 drop bad2")
    people.build()
    report = take_down(people.path, ["u.txt@4", "u.txt@9"])
    assert report.matched_records == 2
    assert report.removed_rows == {people.cache.manifest.snapshot: {"dead_letters": 1}}
    assert [letter.record for letter in people.cache.dead_letters()] == [b"bad2"]

    people.write(u="bad2 drop bad1 ann")  # bad1 has gone from byte 4 to 10, and drop stands at 5
    people.build()
    assert [letter.record for letter in people.cache.dead_letters()] == [b"bad2"]
    assert explain_record(people.path, "u.txt@10").dead_letter is None
    assert explain_record(people.path, "u.txt@0").dead_letter is not None


def test_a_replay_keeps_what_is_hidden(people: People) -> None:
    people.write(u="ann bad bob")
    people.build()
    take_down(people.path, ["u.txt@8"])
    declaration = Declaration(
        name="people",
        source=TextLines(str(people.input)),
        pipeline=Keep(),
        features={"text": FeatureSpec("str")},
        on_error="dead_letter",
        target_shard_bytes=24,
    )
    replayed = replay_dead(declaration, people.path, repairs={"u.txt@4": b"good"}, options=LocalOptions(workers=1))
    manifest = people.cache.manifest.id

    assert replayed.rebuilt_shards == 0
    assert people.read == {"ann", "good", "fay", "gil", "hal"}
    repaired = dataclasses.replace(declaration, source=RepairedSource(declaration.source, {"u.txt@4": b"good"}))
    elsewhere = build(repaired, f"{people.path}-anew", options=LocalOptions(workers=1))
    assert elsewhere.manifest_id == manifest  # the lineage of a replay is that of a build, digests and all


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv", "tfrecords", "parquet", "files", "memory"])
def test_records_of_every_source_have_contents_that_do_not_depend_on_where_they_stand(
    tmp_path: Path, kind: str
) -> None:
    """The same numbers in another order and other files: the takedown hides the same numbers."""
    declaration = declaration_of(kind, tmp_path / "input")
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    train = Cache.open(tmp_path / "cache")["train"]
    rows = [row for row in range(len(train)) if train[row]["number"] in (7, 8, 35)]
    take_down(tmp_path / "cache", sorted(set(train.record_ids(rows))))

    shutil.rmtree(tmp_path / "input")
    moved = dataclasses.replace(declaration, source=source_of(kind, tmp_path / "input", [35, 100, *range(39, -1, -1)]))
    build(moved, tmp_path / "cache", options=LocalOptions(workers=1))
    now = Cache.open(tmp_path / "cache")["train"]
    numbers = {int(example["number"]) for example in now}

    assert not {7, 8, 35} & numbers
    assert numbers == {n for n in [100, *range(40)] if n % 3 and n != 13} - {7, 8, 35}


def test_rows_of_csv_with_line_ends_within(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\nann\n"bob\nthe builder"\ncat\n')

    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Row(Pipeline):
        input_type = dict
        output_type = dict

        def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"text": row["text"]}]

    declaration = Declaration(
        name="rows", source=CSV(str(tmp_path / "a.csv")), pipeline=Row(), features={"text": FeatureSpec("str")}
    )
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))
    take_down(tmp_path / "cache", ["a.csv@9"])
    (tmp_path / "a.csv").write_text('text\n"bob\nthe builder"\ndan\nann\ncat\n')
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))

    assert {str(example["text"]) for example in Cache.open(tmp_path / "cache")["train"]} == {"ann", "cat", "dan"}


def test_contents_are_those_of_the_source_whatever_stages_do_to_values(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Emptied(Pipeline):
        input_type = dict
        output_type = dict

        def transform(self, value: dict[str, Any]) -> list[dict[str, Any]]:
            return [{"number": value.pop("number")}]

    def made(numbers: list[int]) -> Declaration:
        source = Memory([{"number": number} for number in numbers])
        return Declaration(name="e", source=source, pipeline=Emptied(), features={"number": FeatureSpec("int64")})

    build(made([1, 2, 3]), tmp_path / "cache", options=LocalOptions(workers=1))
    report = take_down(tmp_path / "cache", ["memory@1"])
    build(made([2, 3, 4]), tmp_path / "cache", options=LocalOptions(workers=1))

    assert report.equal_records == 0
    assert {int(each["number"]) for each in Cache.open(tmp_path / "cache")["train"]} == {3, 4}


class Opaque:
    """A value that has no bytes."""


def test_values_without_bytes_are_known_by_their_places(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Nothing(Pipeline):
        input_type = Opaque
        output_type = dict

        def transform(self, value: Opaque) -> list[dict[str, Any]]:
            return [{"number": 1}]

    def made() -> Declaration:
        source = Memory([Opaque() for _ in range(3)], digest="three")
        return Declaration(name="o", source=source, pipeline=Nothing(), features={"number": FeatureSpec("int64")})

    declarations = [made(), made()]  # both alive: at the same address two objects would look the same
    first, second = (
        build(each, tmp_path / name, options=LocalOptions(workers=1))
        for each, name in zip(declarations, "ab", strict=True)
    )
    assert first.manifest_id == second.manifest_id
    take_down(tmp_path / "a", ["memory@1"])
    assert Cache.open(tmp_path / "a")["train"].removed_rows.tolist() == [1]


def test_assets_that_were_learned_over_removed_records_are_named(
    people: People, caplog: pytest.LogCaptureFixture
) -> None:
    analyzers = (Vocabulary("words"),)
    people.build(analyzers=analyzers)
    snapshot = people.cache.manifest.snapshot
    report = take_down(people.path, ["u.txt@8"])
    assert report.learned == {snapshot: ("assets/words",)}
    assert json.loads(Path(people.path, AUDIT).read_text())["learned"] == {snapshot: ["assets/words"]}

    people.write(v="fay gil")
    with caplog.at_level(logging.WARNING, "beam_pipes.building.takedown"):
        people.build(analyzers=analyzers)
    assert (
        f"snapshot {people.cache.manifest.snapshot}: assets/words was learned from data that include removed records. "
        "Remove the records from the input and build again to learn without them."
    ) in caplog.text
    assert b"cat" in Path(people.cache.asset_path("words")).read_bytes()

    caplog.clear()
    mark_gone(people.path, 1)
    people.write(u="ann bob dan eve")
    people.build(analyzers=analyzers)
    assert caplog.text == ""
    assert b"cat" not in Path(people.cache.asset_path("words")).read_bytes()


class TestOlderVersions:
    """`tests/golden/lineage_v1`: a cache and a takedown.json of the version that knew ids alone. bob and bad are
    taken down."""

    @pytest.fixture
    def older(self, tmp_path: Path) -> People:
        shutil.copytree(GOLDEN / "cache", tmp_path / "cache")
        shutil.copytree(GOLDEN / "input", tmp_path / "input")
        return People(tmp_path)

    def test_it_is_still_read(self, older: People) -> None:
        assert older.read == {"ann", "cat", "dan"}
        assert list(older.cache.dead_letters()) == []
        assert older.cache.verify().ok
        [state] = states_of_takedowns(older.path)
        assert (state.records, state.by_position, state.pending) == (2, True, ())

    def test_a_takedown_there_says_that_it_goes_by_position(self, older: People) -> None:
        report = take_down(older.path, ["u.txt@12"])
        assert report.by_position == (older.cache.manifest.snapshot,)
        assert older.read == {"ann", "dan"}
        assert json.loads(Path(older.path, FILE_NAME).read_bytes())["format_version"] == 2

    def test_a_build_of_the_same_input_gives_ids_their_contents(self, older: People) -> None:
        older.build()
        assert older.read == {"ann", "cat", "dan"}
        assert list(older.cache.dead_letters()) == []
        older.write(u="dan bad cat bob ann")
        older.build()

        assert older.read == {"ann", "cat", "dan"}
        [state] = states_of_takedowns(older.path)
        assert (state.records, state.by_position) == (2, False)
        assert resolve_takedowns(older.path).by_position == (
            "0ca770dcd2e9f48e",
        )  # the old snapshot, which is still there

    def test_a_build_of_another_input_cannot_know_who_is_meant(self, older: People) -> None:
        older.write(u="bob bad cat dan")

        with pytest.raises(TakenDownNotFoundError) as raised:
            older.build()
        assert (
            "takedown 1 means u.txt@4 as it was in snapshot 0ca770dcd2e9f48e, which was built by a version of "
            "beam-pipes that kept no digests of records, and u.txt has changed since: which record is meant now "
            "cannot be known. Nothing was published."
        ) in str(raised.value)

        take_down(older.path, ["u.txt@0", "u.txt@4"], next_build=True)
        mark_gone(older.path, 1)
        older.build()
        assert older.read == {"cat", "dan"}


@given(
    contents=st.dictionaries(
        st.sampled_from(["a@1", "a@2", "b"]), st.sets(st.integers(0, (1 << 64) - 1), min_size=1, max_size=5)
    ),
    gone=st.one_of(st.none(), st.just("2026-01-01")),
    next_build=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_contents_survive_their_bytes(contents: dict[str, set[int]], gone: str | None, next_build: bool) -> None:
    made = Takedown(
        number=1, at="now", by="me", reason="", ids=("a@1", "a@2", "b"), gone=gone, next_build=next_build
    ).with_contents({each: np.array(sorted(found), np.uint64) for each, found in contents.items()})
    again = Overlay.from_bytes(Overlay(revision=1, takedowns=(made,)).to_bytes(), path="takedown.json")

    assert again.takedowns == (made,)
    assert set(again.digests.tolist()) == {digest for found in contents.values() for digest in found}
    assert set(again.takedowns[0].pending) == {"a@1", "a@2", "b"} - contents.keys()


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("contents", {"u.txt@8": "00"}, "expected digests of 16 hexadecimal digits each"),
        ("contents", {"u.txt@8": "02" * 8 + "01" * 8}, "expected ascending digests"),
        ("contents", {"other@1": "00" * 8}, "expected contents of the ids of the takedown"),
        ("gone", 1, "a takedown should hold texts"),
        ("next_build", 1, "next_build should be true or false"),
    ],
)
def test_a_takedown_that_is_none_is_refused(people: People, field: str, value: Any, found: str) -> None:
    take_down(people.path, ["u.txt@8"])
    overlay = read_overlay(people.path)
    made = {**overlay.takedowns[0].to_json(), field: value}

    class Other(Takedown):
        def to_json(self) -> dict[str, Any]:
            return made

    other = Other(number=1, at="", by="", reason="", ids=())
    data = dataclasses.replace(overlay, takedowns=(other,)).to_bytes()

    with pytest.raises(CorruptTakedownError, match=found):
        Overlay.from_bytes(data, path="takedown.json")
