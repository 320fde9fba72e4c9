"""Pages about many caches, what builds write, and the source records beside examples."""

from __future__ import annotations

import dataclasses
import gc
import gzip
import html.parser
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beam_pipes.building import Declaration
from beam_pipes.building.leftovers import collect
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.commands import app
from beam_pipes.errors import CacheNotFoundError, DeclarationError
from beam_pipes.report import cache_directories, diff_caches, overview_html, report_html, write_overview, write_report
from beam_pipes.report.examples import source_records
from beam_pipes.report.shown import shown_bytes
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline

ONE = LocalOptions(workers=1)


class Cells(html.parser.HTMLParser):
    """`rows`: the texts of the cells of each row of all tables; `links`: where links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str | None] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data.strip()


def beam_pipes(*arguments: str) -> str:
    """What a command prints; what it raises is raised."""
    return CliRunner().invoke(app, arguments, catch_exceptions=False).output


@pytest.fixture
def caches(text_input: Path, tmp_path: Path) -> Path:
    """`words` (two snapshots, dead letters) and `part/inferred` below one directory, with what is no cache."""
    (text_input / "boom.txt").write_text("a b c\nboom\n")
    root = tmp_path / "all of <them>"
    build("sample_declarations:words_with_dead_letters", root / "words", options=ONE)
    (text_input / "more.txt").write_text("one two\n" * 400)
    build("sample_declarations:words_with_dead_letters", root / "words", options=ONE)
    build("sample_declarations:inferred", root / "part/inferred", options=ONE)
    (root / "empty").mkdir()
    (root / "notes.txt").write_text("no cache")
    return root


def test_caches_are_found_at_any_depth_and_not_inside_of_each_other(caches: Path) -> None:
    names = [os.path.relpath(path, caches) for path in cache_directories(caches)]

    assert names == ["part/inferred", "words"]
    assert cache_directories(caches / "words") == [str(caches / "words")]
    assert cache_directories(caches, max_depth=1) == [str(caches / "words")]


def test_the_overview_has_a_line_for_each_cache_and_leads_to_its_page(caches: Path) -> None:
    page = write_report(caches / "words")
    before = Cells(overview_html(caches))
    assert before.links == [os.path.relpath(page, caches)]

    written = write_overview(caches)

    assert written == str(caches / "report.html")
    text = Path(written).read_text()
    head, inferred, words = Cells(text).rows
    account = build("sample_declarations:words_with_dead_letters", caches / "words", options=ONE).account
    assert head[:3] == ["cache", "records of each split", "bytes"]
    assert inferred[0] == "part/inferred" and inferred[-1] == "–"
    assert words[0] == "words" and words[3:6] == [f"{account.read:,}", str(account.dropped), "1"]
    assert f"train {account.outputs['train']:,}" in words[1]
    assert "large drift: " in words[-1] and "train.lengths" in words[-1] and "records" in words[-1]
    assert "<them>" not in text and "all of &lt;them&gt;" in text
    elsewhere = write_overview(caches, to=caches.parent / "page.html")
    assert Cells(Path(elsewhere).read_text()).links == ["all%20of%20%3Cthem%3E/" + os.path.relpath(page, caches)]


def test_a_damaged_cache_hides_no_other(caches: Path) -> None:
    (caches / "words/manifest.json").write_text("{")

    _, inferred, words = Cells(overview_html(caches)).rows

    assert inferred[0] == "part/inferred"
    assert words[0] == "words" and "manifest" in words[1]
    output = beam_pipes("report", str(caches))
    assert f"No report was written for {caches / 'words'}: " in output
    assert output.strip().endswith(str(caches / "report.html"))


def test_a_directory_without_a_cache_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CacheNotFoundError, match=r"no cache is published in '.*', nor in a directory below it. Build"):
        overview_html(tmp_path)
    with pytest.raises(CacheNotFoundError, match="expected a cache, a directory with manifest.json, and there is none"):
        beam_pipes("report", str(tmp_path))


def test_the_command_writes_the_page_of_each_and_the_one_about_all(caches: Path) -> None:
    output = beam_pipes("report", str(caches))

    assert output.strip() == str(caches / "report.html")
    links = Cells((caches / "report.html").read_text()).links
    assert len(links) == 2 and all((caches / str(link)).is_file() for link in links)
    with pytest.raises(
        DeclarationError, match="--against, --declaration and --tokens belong to the report of one cache, and"
    ):
        beam_pipes("report", str(caches), "--declaration", "sample_declarations:words")


def test_building_tasks_writes_their_reports_and_the_one_about_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"train{number}.tsv").write_text("to be\tnicht\n" * 4)
    (tmp_path / "valid.tsv").write_text("a\tb\n")
    monkeypatch.setenv("TASKS_DATA", str(tmp_path))
    monkeypatch.delitem(sys.modules, "tests.support.build_tasks", raising=False)  # it registers tasks, and reads that
    to = tmp_path / "caches"
    arguments = ["build", "--tasks", "plain:pairs", "--tasks", "plain:with_eos", "--to", str(to), "--workers", "1"]
    arguments += ["--module-import", "tests.support.build_tasks"]

    output = beam_pipes(*arguments)

    assert output.count("What is in it: ") == 2
    assert f"All of them: {to / 'report.html'}" in output
    links = Cells((to / "report.html").read_text()).links
    assert len(links) == 2 and all((to / str(link)).is_file() for link in links)
    again = beam_pipes(*arguments)
    assert "up to date" in again and "What is in it" not in again and "All of them" not in again
    (to / "report.html").unlink()
    quiet = beam_pipes(*arguments, "--overwrite", "--no-report")
    assert "What is in it" not in quiet and not (to / "report.html").exists()


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RunsOnce(Pipeline):
    """Refuses to run where the file `stop` lies beside its input."""

    input_type = str
    output_type = dict
    stop: str

    def transform(self, line: str) -> list[dict[str, str]]:
        if os.path.exists(self.stop):
            raise AssertionError("ran again")
        return [{"text": line.upper()}]


def test_after_a_build_examples_show_their_source_and_no_stage_runs_again(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/plain.txt").write_text("".join(f"line {number}\n" for number in range(300)))
    with gzip.open(tmp_path / "in/zipped.txt.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"zipped é {number}\n" for number in range(300)))
    declaration = Declaration(
        name="once",
        source=TextLines(tmp_path / "in", pattern="*"),
        pipeline=RunsOnce(stop=str(tmp_path / "stop")),
        features={"text": FeatureSpec("str")},
        target_shard_bytes=500,
    )
    build(declaration, tmp_path / "cache", options=ONE)
    (tmp_path / "stop").touch()

    rows = Cells(report_html(tmp_path / "cache", declaration=declaration, run_stages=False)).rows

    assert rows.count(["source", "line 0"]) == 1 and rows.count(["text", "LINE 0"]) == 1
    assert ["source", "zipped é 299"] in rows and ["text", "ZIPPED É 299"] in rows
    cache = Cache.open(tmp_path / "cache")
    ids = cache["train"].record_ids(range(len(cache["train"])))
    found = source_records(declaration, ids, cache=cache.path)
    assert [found[record_id].decode().upper() for record_id in ids] == [example["text"] for example in cache["train"]]
    assert source_records(declaration, ["plain.txt@3", "gone.txt@0"]) == {}

    (tmp_path / "in/plain.txt").write_text("another\n")
    rows = Cells(report_html(cache, declaration=declaration, run_stages=False)).rows
    assert ["source", "(not at hand: it is not in the input now)"] in rows
    (tmp_path / "in/zipped.txt.gz").unlink()
    (tmp_path / "in/plain.txt").unlink()
    rows = Cells(report_html(cache, declaration=declaration, run_stages=False)).rows
    assert any(row[0] == "source" and row[1].startswith("(not at hand: ") for row in rows)


def test_the_page_of_a_build_says_what_was_reused_and_shows_sources(text_input: Path, tmp_path: Path) -> None:
    to = tmp_path / "cache"
    beam_pipes("build", "sample_declarations:words", "--to", str(to), "--workers", "1")
    (text_input / "zz.txt").write_text("one\n" * 3)
    output = beam_pipes("build", "sample_declarations:words", "--to", str(to), "--workers", "1")

    (page,) = [Path(line.removeprefix("What is in it: ")) for line in output.splitlines() if "What is in it" in line]
    text = page.read_text()
    shards = Cache.open(to).manifest.splits["train"].numbers
    reused = Cache.open(to).build_info["reused_shards"]
    assert 0 < reused < len(shards)
    assert f"{reused} source shards were reused from earlier builds." in text
    rows = Cells(text).rows
    example = Cache.open(to)["train"][0]["text"]
    assert ["source", example] in rows and ["text", example] in rows
    assert ["SplitWords", "inputs", "496", "499"] in rows


def test_where_the_previous_snapshot_was_collected_the_page_does_without(caches: Path) -> None:
    assert "Compared with" in report_html(caches / "words")

    gc.collect()  # the snapshots that the report has read
    assert len(collect(caches / "words", keep=0).removed) == 1

    assert "There is no previous snapshot to compare with." in report_html(caches / "words")
    assert Cells(overview_html(caches)).rows[2][-1] == "–"


def test_what_differs_in_brief(caches: Path) -> None:
    words = Cache.open(caches / "words")
    before = Cache.open(caches / "words", snapshot=str(words.build_info["previous"]))

    brief = diff_caches(before, words).in_brief()

    assert diff_caches(words, words).in_brief() == []
    assert any(line.startswith("large drift: ") and "train.lengths" in line for line in brief)
    counts = [before.manifest.splits["words"].num_records, words.manifest.splits["words"].num_records]
    assert f"words: {counts[0]:,} → {counts[1]:,} records" in brief


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("café".encode(), "café"),
        (b"\xff", "b'\\xff'"),
        (b"a\0b", "b'a\\x00b'"),
        (b"\x1b[31m", "\\x1b[31m"),
        ("é".encode()[:1], "b'\\xc3'"),
        (("é" * 50).encode(), "é" * 9 + "…"),
    ],
)
def test_bytes_as_people_read_them(data: bytes, shown: str) -> None:
    assert shown_bytes(data, max_characters=10) == shown
