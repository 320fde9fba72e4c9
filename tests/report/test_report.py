"""`report.html` and comparisons, of real caches; the page is taken apart with a parser of HTML."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_declarations
import sample_media
import soundfile

from beam_pipes.building import Declaration
from beam_pipes.building.declaration_fingerprint import read_fingerprint
from beam_pipes.building.takedown import take_down
from beam_pipes.building.trace import explain_record
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.cache.write_cache import write_cache
from beam_pipes.commands.build import show_report
from beam_pipes.commands.caches import difference_lines
from beam_pipes.engine.account import Account, UnitAccount
from beam_pipes.engine.statistics import Counter, Histogram
from beam_pipes.report import diff_caches, report_html, write_report
from beam_pipes.report.balance import class_counts
from beam_pipes.report.distributions import (
    Drift,
    chi_squared_95,
    kolmogorov_smirnov,
    packing_waste,
    population_stability_index,
    record_lengths,
)
from beam_pipes.report.examples import dropped_examples, media_of
from beam_pipes.report.shown import bars_of, bars_of_values, shown_value
from beam_pipes.report.stage_graph import lay_out, stage_graph
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)> \" ' & \x1b[31m \u202e"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Elements of a page as (tag, attributes), and the text of each kind of element; complains of wrong nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.texts.append((self._open[-1], data.strip()))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Hostile(Pipeline):
    """Puts a hostile string wherever data can put one."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        if line.startswith("boom"):
            raise ValueError(line)
        if not line:
            return self.drop(HOSTILE)
        lengths = Histogram(HOSTILE, [0, 4, 16])
        lengths.increment(len(line))
        self._set_stats([lengths, Counter("n <b>", 1)])
        return [{"text": line}]


def built(declaration: Declaration, path: Path) -> Cache:
    build(declaration, path, options=LocalOptions(workers=1), accept_code_change=True)
    return Cache.open(path)


@pytest.fixture
def cache(text_input: Path, tmp_path: Path) -> Cache:
    (text_input / "boom.txt").write_text("a b c\nboom <i>now</i>\nd e\n")
    return built(sample_declarations.words_with_dead_letters(), tmp_path / "cache")


def test_the_page_is_well_formed_and_accessible_and_asks_for_nothing(cache: Cache) -> None:
    text = report_html(cache)
    page = Page(text)

    assert len(text.encode()) < 100_000
    assert page.of("html") == [{"lang": "en"}]
    assert len(page.of("h1")) == len(page.of("main")) == 1
    assert not page.of("script") and not page.of("link") and not page.of("img") and not page.of("iframe")
    # Nothing is loaded: references lead into the page, and a policy forbids the rest.
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in ("href", "src", "xlink:href", "marker-end", "aria-labelledby"):
            for reference in re.findall(r"#?[\w:./-]+", (attributes.get(name) or "").replace("url(", "")):
                assert reference.removeprefix("#") in ids
        assert not any(name.startswith("on") for name in attributes)
    assert "default-src 'none'" in (page.of("meta")[3]["content"] or "")
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert page.of("th") and all(attributes.get("scope") in ("row", "col") for attributes in page.of("th"))
    for svg in page.of("svg"):
        assert svg["role"] == "img"
        assert svg.get("aria-label") or svg.get("aria-labelledby")
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def contrast(first: str, second: str) -> float:
    def luminance(color: str) -> float:
        channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_colours_have_the_contrast_that_wcag_asks_for_in_light_and_dark(cache: Cache) -> None:
    schemes = re.findall(r":root \{ (--ink: #[^}]+)\}", report_html(cache))
    for scheme in schemes[:2]:
        colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for ink in ("ink", "soft", "accent", "bad"):
            assert contrast(colors[ink], colors["paper"]) >= 4.5, (ink, colors)
        for paper in ("panel", "split", "bad-fill"):
            assert contrast(colors["ink"], colors[paper]) >= 4.5, (paper, colors)
        assert contrast(colors["line"], colors["paper"]) >= 3


def test_the_graph_shows_the_counts_of_the_account(cache: Cache) -> None:
    account = Account.from_json(cache.manifest.accounting)
    graph = stage_graph(account, read_fingerprint(cache.directory))
    names = [node.name for node in graph.nodes]
    edges = {(names[edge.start], names[edge.end]): (edge.key, edge.count) for edge in graph.edges}

    split, partition = account.units["SplitWords"], account.units["RandomPartition"]
    assert edges == {
        ("source", "SplitWords"): (None, account.read),
        ("SplitWords", "CountLetters"): (None, split.outputs),
        ("SplitWords", "Initials"): (None, split.outputs),
        ("CountLetters", "RandomPartition"): (None, partition.inputs),
        ("RandomPartition", "train"): ("train", account.outputs["train"]),
        ("RandomPartition", "eval"): ("eval", account.outputs["eval"]),
        ("Initials", "words"): (None, account.outputs["words"]),
    }
    texts = Page(report_html(cache)).text_of("text")
    assert {
        "SplitWords",
        "dead 1",
        f"dropped {split.dropped['empty']} empty",
        f"in {split.inputs} · out {split.outputs}",
    } <= set(texts)
    assert {f"train: {account.outputs['train']}", f"eval: {account.outputs['eval']}"} <= set(texts)


def test_the_page_shows_lengths_packing_examples_dead_letters_and_times(cache: Cache) -> None:
    page = Page(report_html(cache))
    lengths = cache["train"].lengths("lengths")
    text = " ".join(text for _, text in page.texts)

    assert f"Leading dimension, {int(lengths.sum()):,} in all." in text
    assert f"greatest {lengths.max()}" in text
    (waste,) = packing_waste(lengths, sequence_lengths=[16])
    assert f"{waste.packed * 100:.2f} %" in text
    first = cache["train"][0]
    assert first["text"] in page.text_of("td")
    assert "ValueError: cannot split 'boom <i>now</i>'" in page.text_of("td")
    assert {"read", "SplitWords", "write"} <= set(page.text_of("th"))
    assert "Words_SplitWords_words" in page.text_of("h3")
    assert "There is no previous snapshot to compare with." in text


def test_each_reason_leads_to_records_that_were_dropped_for_it(text_input: Path, tmp_path: Path) -> None:
    (text_input / "empty.txt").write_text("\n<b>one</b>\n\n\n\n")
    declaration = sample_declarations.words()
    cache = built(declaration, tmp_path / "cache")
    units = Account.from_json(cache.manifest.accounting).units
    [(stage, reason, dropped)] = [(name, *each) for name, unit in units.items() for each in unit.dropped.items()]

    page = Page(report_html(cache))
    [link] = [each["href"] for each in page.of("a") if (each["href"] or "").startswith("#dropped")]
    rows = [each["id"] for each in page.of("tr") if each.get("id")]
    assert link == "#dropped-1" and rows == [f"dropped-{number}" for number in (1, 2, 3)]
    assert f"{reason} {dropped:,}" in page.text_of("a") and stage in page.text_of("td")
    found = dropped_examples(cache, declaration=declaration)
    assert [each.before for each in found] == ["", "", ""]
    for each in found:
        assert explain_record(cache.path, each.record_id).fate.drops == ((stage, reason),)
    assert take_down(cache.path, ids=[found[0].record_id], reason="asked").number
    assert [each.before for each in dropped_examples(cache, declaration=declaration)] == [None] * 3


def test_hostile_strings_stay_text(text_input: Path, tmp_path: Path) -> None:
    (text_input / "hostile.txt").write_text(f"{HOSTILE}\n\nboom {HOSTILE}\n".replace("\x1b", ""))
    source = TextLines(text_input, pattern="hostile.txt")
    declaration = Declaration(
        name="hostile", source=source, pipeline=Hostile(), features={"text": FeatureSpec("str")}, on_error="dead_letter"
    )
    cache = built(declaration, tmp_path / "cache")

    page = Page(report_html(cache, declaration=declaration))

    assert not page.of("script") and not page.of("img")
    assert len(page.of("b")) == 4  # those of the template
    shown = [text for _, text in page.texts if "<script>alert(1)</script>" in text]
    assert len(shown) >= 5  # statistic, reason (box and table), dead letter, example before and after
    assert not any("\x1b" in text or "\u202e" in text for _, text in page.texts)


def test_with_the_declaration_examples_show_where_they_come_from(cache: Cache) -> None:
    page = Page(report_html(cache, declaration=sample_declarations.words_with_dead_letters()))

    (record_id,) = cache["train"].record_ids([0])
    assert record_id in page.text_of("code")
    assert page.text_of("td").count(cache["train"][0]["text"]) >= 2  # the source record and the feature
    assert page.text_of("caption").count("Before") == page.text_of("caption").count("After") == 9

    for file in Path(os.environ[sample_declarations.INPUT_VARIABLE]).rglob("*.txt"):
        file.write_text("gone\n")
    gone = report_html(cache, declaration=sample_declarations.words_with_dead_letters())
    assert "(not at hand: no source record has the id" in gone


def test_a_new_report_shows_the_source_records_of_the_one_that_it_replaces(cache: Cache) -> None:
    write_report(cache.path, declaration=sample_declarations.words_with_dead_letters(), run_stages=False)
    before = Page(Path(cache.directory, "report.html").read_text()).text_of("td")

    again = Page(Path(write_report(cache.path)).read_text())

    assert again.text_of("caption").count("Before") == 9 and again.text_of("td") == before


def test_a_large_declaration_stays_below_two_megabytes(cache: Cache) -> None:
    account = Account(read=1, written=1)
    for number in range(3_000):
        unit = account.units[f"Stage{number}"] = UnitAccount(inputs=1, kept=1, outputs=1)
        unit.dropped = {f"reason {number} {each} {'x' * 200}": 0 for each in range(5)}
        histogram = Histogram(f"histogram {number}", range(1_000))
        histogram.counters = dict(zip(histogram.buckets, range(1_001), strict=True))
        unit.statistics = {histogram.name: histogram}
    large = dataclasses.replace(cache.manifest, accounting=account.to_json())
    opened = Cache(cache.path, cache.directory, large)

    text = report_html(opened)

    assert len(text.encode()) < 2_000_000
    page = Page(text)
    notes = " ".join(page.text_of("p"))
    assert "3000 stages and splits are too many to be drawn" in notes
    assert "more stages are left out" in notes


def test_what_is_written_is_not_a_part_of_the_snapshot(cache: Cache) -> None:
    before = cache.manifest.id
    path = write_report(cache.path)

    assert path == os.path.join(cache.directory, "report.html")
    assert Cache.open(cache.path, verify=True).manifest.id == before
    assert Path(path).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_snapshot_is_compared_with_the_one_before(cache: Cache, text_input: Path) -> None:
    declaration = dataclasses.replace(
        sample_declarations.words_with_dead_letters(),
        features={
            "train": {
                "text": FeatureSpec("str"),
                "lengths": FeatureSpec("int64", shape=(None,)),
                "noise": FeatureSpec("int64"),
            },
            "eval": {
                "text": FeatureSpec("str"),
                "lengths": FeatureSpec("int32", shape=(None,)),
                "noise": FeatureSpec("int64", minimum=0, maximum=99),
            },
            "words": {"initial": FeatureSpec("str"), "length": FeatureSpec("int32")},
        },
    )
    (text_input / "large.txt").write_text("one two\n" * 600)
    after = built(declaration, Path(cache.path))

    difference = diff_caches(cache, after)

    assert not difference.same_data
    assert ("train.lengths", "dtype", "int32", "int64") in difference.schema
    assert not [change for change in difference.schema if change.where.startswith(("eval", "words"))]
    assert {change.where for change in difference.splits} == {"train", "eval", "words"}
    assert ("source", "inputs", 499, 699) in difference.counts
    assert difference.declaration is not None and list(difference.declaration) == ["declaration"]
    kinds = [line.split()[0] for line in difference_lines(difference)][1:]  # what a reader asks for first stands first
    assert kinds == sorted(kinds, key=["schema", "splits", "counts", "drift", "declaration"].index)
    assert kinds[-1] == "declaration"
    drifted = {(drift.split, drift.name, drift.quantity): drift for drift in difference.drifted}
    assert drifted["train", "lengths", "length"].measure == "KS"
    assert drifted["train", "lengths", "length"].medians == (float(np.median(cache["train"].lengths("lengths"))), 2.0)
    assert drifted[None, "Words_SplitWords_words", "histogram"].measure == "PSI"
    assert ("train", "noise", "value") not in drifted  # keyed noise: the same distribution
    page = Page(report_html(after))
    assert cache.manifest.snapshot in page.text_of("code")
    assert {"train.lengths", "dtype", "PSI", "KS", "large"} <= set(page.text_of("td") + page.text_of("th"))


def test_a_snapshot_does_not_differ_from_itself(cache: Cache) -> None:
    difference = diff_caches(cache.path, cache.directory)

    assert difference.same_data
    assert (difference.schema, difference.splits, difference.counts, difference.drifted) == ((), (), (), ())
    assert difference.declaration == {}
    assert difference.drift and all(drift.distance == 0 for drift in difference.drift)


def test_report_and_diff_on_the_command_line(cache: Cache, tmp_path: Path) -> None:
    def beam_pipes(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "beam_pipes", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    target, other = tmp_path / "page.html", str(tmp_path / "other")
    assert beam_pipes("report", cache.path, "--to", str(target)).strip() == str(target)
    assert Page(target.read_text(encoding="utf-8")).text_of("h1") == ["words"]
    assert "report.html" in beam_pipes("build", "sample_declarations:words_with_dead_letters", "--to", other)
    assert len(list(Path(other).glob("snapshots/*/report.html"))) == 1
    output = beam_pipes("diff", cache.path, other)
    assert output.splitlines()[0].endswith(": the data are the same")
    assert "drift        none in " in output
    assert json.loads(beam_pipes("diff", cache.path, other, "--json"))["same_data"] is True


def test_a_report_that_cannot_be_written_is_an_error(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(cache.directory) / "report.html").mkdir()

    show_report(cache.path)

    output = capsys.readouterr().out
    assert output.startswith("No report was written: ")
    assert f"The cache is published; `beam-pipes report {cache.path}` tries again." in output.replace("\n", " ")


def test_population_stability_index() -> None:
    assert population_stability_index([50, 50], [50, 50]) == (0.0, pytest.approx(0.075, abs=0.01))
    # Worked by hand, with half a count in each range: p = (90.5, 10.5) / 101, q = (50.5, 50.5) / 101.
    p, q = np.array([90.5, 10.5]) / 101, np.array([50.5, 50.5]) / 101
    assert population_stability_index([90, 10], [50, 50])[0] == pytest.approx(float(((p - q) * np.log(p / q)).sum()))
    assert [chi_squared_95(degrees) for degrees in (1, 10, 100)] == pytest.approx([3.841, 18.307, 124.342], rel=0.03)
    with pytest.raises(ValueError, match="two non-empty histograms"):
        population_stability_index([1], [0])


def test_kolmogorov_smirnov() -> None:
    distance, noise = kolmogorov_smirnov(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]))
    assert (distance, noise) == (0.5, pytest.approx(0.96, abs=0.01))
    rng = np.random.default_rng(0)
    for first, second in [(rng.integers(0, 5, 50), rng.integers(1, 6, 70)), (rng.normal(size=30), rng.normal(size=9))]:
        grid = np.concatenate([first, second])
        expected = max(abs((first <= x).mean() - (second <= x).mean()) for x in grid)
        assert kolmogorov_smirnov(first, second)[0] == pytest.approx(expected)
    with pytest.raises(ValueError, match="two non-empty samples, got 0 and 1 values"):
        kolmogorov_smirnov(np.array([]), np.array([1]))


def test_what_chance_may_explain_is_no_drift() -> None:
    def verdict(distance: float, noise: float) -> str:
        drift = Drift(
            split=None, name="n", quantity="histogram", measure="PSI", distance=distance, noise=noise, counts=(1, 1)
        )
        return drift.verdict

    assert [verdict(0.09, 0), verdict(0.2, 0), verdict(0.2, 0.21), verdict(0.3, 0.21)] == [
        "none",
        "some",
        "none",
        "large",
    ]


def test_packing_waste() -> None:
    (ten,) = packing_waste(np.array([6, 4, 3, 3, 2, 2, 0]), sequence_lengths=[10])
    assert (ten.packed_rows, ten.packed, ten.cut) == (2, 0.0, 0.0)
    assert ten.padded == pytest.approx(1 - 20 / 60)
    (four,) = packing_waste(np.array([6, 4, 3, 3, 2, 2]), sequence_lengths=[4])
    assert four.cut == pytest.approx(2 / 20)
    assert packing_waste(np.zeros(3, np.int64)) == []
    assert [waste.sequence_length for waste in packing_waste(np.array([100, 100, 900]))] == [128, 256, 512, 1024]


def test_lengths_of_many_shards_are_read_from_some_of_them(cache: Cache) -> None:
    whole = record_lengths(cache, "train", ["lengths"])["lengths"]
    assert whole.values.tolist() == cache["train"].lengths("lengths").tolist()
    some = record_lengths(cache, "train", ["lengths"], max_shards=2)["lengths"]
    assert 0 < len(some.values) < some.of == len(cache["train"])


def test_bars() -> None:
    histogram = Histogram("h", [0, 1, 2, 3])
    for value in (0.5, 1, 1.5, float("nan")):
        histogram.increment(value)
    assert [(bar.label, bar.count, bar.share) for bar in bars_of(histogram)] == [
        ("[0,1)", 1, 0.5),
        ("[1,2)", 2, 1.0),
        ("nan", 1, 0.5),
    ]
    wide = Histogram("w", range(1000))
    wide.counters = dict.fromkeys(wide.buckets, 1)
    near = Histogram("near", [0.1234567, 0.1234568, 0.5])
    near.increment(0.12345675)
    near.increment(0.3)
    assert [bar.label for bar in bars_of(near)] == ["[0.1234567,0.1234568)", "[0.1234568,0.5)"]
    assert len(bars_of(wide)) <= 40 and sum(bar.count for bar in bars_of(wide)) == 1001
    assert [(bar.label, bar.count) for bar in bars_of_values(np.array([1, 1, 2]))] == [("[1,2)", 2), ("[2,3)", 1)]


def test_no_two_boxes_of_a_drawing_overlap(cache: Cache) -> None:
    drawing = lay_out(stage_graph(Account.from_json(cache.manifest.accounting), read_fingerprint(cache.directory)))

    for number, one in enumerate(drawing.boxes):
        assert one.x >= 0 and one.x + one.width <= drawing.width and one.y + one.height <= drawing.height
        for other in drawing.boxes[number + 1 :]:
            apart_x = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart_x or one.y + one.height <= other.y or other.y + other.height <= one.y


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1, 2], np.int32), "int32[2] [1 2]"),
        (np.int64(3), "3"),
        ("a\x1b[0m\n\u202eb", "a\\x1b[0m\n\\u202eb"),
        (b"\x00a", "b'\\x00a'"),
        ({"a": 1}, "a: 1"),
        ("x" * 700, "x" * 599 + "…"),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert shown_value(value) == text


def test_bars_of_skewed_values_are_wider_and_wider() -> None:
    rng = np.random.default_rng(0)
    skewed = np.minimum(rng.lognormal(3, 2, 5000).astype(np.int64), 10**6)
    bars = bars_of_values(skewed)

    bounds = [int(bar.start) for bar in bars] + [int(bars[-1].end)]
    widths = np.diff(bounds)
    assert sum(bar.count for bar in bars) == 5000
    assert bounds == sorted(set(bounds)) and bounds[0] == skewed.min() and bounds[-1] > skewed.max()
    assert widths[-1] > 100 * widths[0]
    assert sum(bar.count > 0 for bar in bars) > 10  # of equal width there would be one tall bar and nothing to see
    even = bars_of_values(rng.integers(0, 1000, 5000))
    assert len({int(bar.end) - int(bar.start) for bar in even}) == 1


@pytest.mark.parametrize(
    "values",
    [[0.5], [2.5, 2.5], [-1.0, 1e30], [0.0, 1e-12, 5.0, 1e9], [1e-7] * 50 + [3.25], [-3, -3, 8], [np.inf, 1.0], [0]],
)
def test_bars_of_any_numbers_count_each_finite_one_once(values: list[float]) -> None:
    bars = bars_of_values(np.array(values))

    assert sum(bar.count for bar in bars) == np.isfinite(values).sum()
    assert all(bar.label == f"[{bar.start},{bar.end})" for bar in bars)


def test_the_page_shows_values_of_numbers_that_no_stage_counts(tmp_path: Path) -> None:
    examples = [{"age": number % 40, "price": 1.5 * number, "name": "x"} for number in range(200)]
    features = {"age": FeatureSpec("int64"), "price": FeatureSpec("float32"), "name": FeatureSpec("str")}
    write_cache(tmp_path / "cache", {"train": examples}, features=features)

    page = report_html(tmp_path / "cache")

    (values,) = re.findall(r'<section aria-labelledby="values">(.*?)</section>', page, re.DOTALL)
    assert re.findall("<h3>(.*?)</h3>", values) == ["train: age", "train: price"]
    assert "Smallest 0, p5 2, median 20, mean 19.5, p95 37, greatest 39; 2.50 % are 0." in values
    assert "From 200 values of 200 records that are spread over the split" in values
    assert values.count("<svg") == 2 and re.search(r'text-anchor="middle">\d+</text>', values)


def test_pictures_and_sound_are_on_the_page_with_class_and_text(tmp_path: Path) -> None:
    page = report_html(sample_media.cache(tmp_path / "c"))

    assert page.count('<img src="data:image/jpeg;base64,') == page.count('<img src="data:image/png;base64,') == 2
    assert page.count('<audio controls preload="none" src="data:audio/wav;base64,') == 2
    assert "<b>cat, &lt;b&gt;to be&lt;/b&gt;</b>" in page and "row 1, 400 × 200" in page and "row 0, 0.50 s" in page
    assert "a picture, " in page and "a sound, 8,044 bytes" in page and "\\xff" not in page
    assert "train: photo</h3>\n<p>Bytes of the value" in page and "train: text</h3>\n<p>Bytes of the text" in page


def test_a_picture_that_cannot_be_shown_says_why(tmp_path: Path) -> None:
    page = report_html(sample_media.cache(tmp_path / "c", picture=sample_media.jpeg(400, 200)[:300]))

    assert '<img src="data:image/jpeg' not in page
    assert "not shown: the JPEG file of 300 bytes is damaged" in page


def test_pictures_and_sound_have_a_part_of_a_page(tmp_path: Path) -> None:
    cache = sample_media.cache(tmp_path / "c")

    assert [each.kind for each in media_of(cache, "train", sample_rate=None)] == ["picture", "picture", "sound"] * 2
    assert [each.row for each in media_of(cache, "train", sample_rate=None, most=15_000)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("dtype", "rate"), [("float32", 44_100), ("int16", 8_000)])
def test_waves_play_if_a_stage_has_a_sample_rate(tmp_path: Path, dtype: str, rate: int) -> None:
    """A preview has 4 s at 16 kHz, and int16 the rate that it has."""
    wave = (np.sin(np.arange(10 * rate) * 0.1) * (0.5 if dtype == "float32" else 9000)).astype(dtype)
    write_cache(tmp_path / "c", {"train": [{"audio": wave}]}, features={"audio": FeatureSpec(dtype, shape=(None,))})

    (sound,) = media_of(Cache.open(tmp_path / "c"), "train", sample_rate=rate)

    played, found = soundfile.read(io.BytesIO(base64.b64decode(sound.url.partition(",")[2])), dtype="int16")
    assert found == min(rate, 16_000) and len(played) == pytest.approx(64_000, abs=2)
    assert sound.about == f"10.00 s, the first {len(played) / found:.2f}"
    if dtype == "int16":
        np.testing.assert_array_equal(played, wave[:64_000])
    assert media_of(Cache.open(tmp_path / "c"), "train", sample_rate=None) == []


def test_the_page_has_classes_and_points_out_what_is_empty_or_always_the_same(tmp_path: Path) -> None:
    features = {
        "label": FeatureSpec("int64", classes=("cat", "dog", "emu")),
        "text": FeatureSpec("str"),
        "lang": FeatureSpec("str"),
        "gap": FeatureSpec("float32"),
        "tokens": FeatureSpec("int32", shape=(None,)),
    }
    rows = [
        {"label": int(n % 20 == 0), "text": "" if n < 6 else f"t{n}", "lang": "en", "gap": np.nan, "tokens": []}
        for n in range(60)
    ]
    eval_rows = [{**row, "label": n % 3, "lang": f"l{n}", "tokens": [n], "gap": n} for n, row in enumerate(rows[6:])]
    cache = write_cache(tmp_path / "cache", {"train": rows, "eval": eval_rows}, features=features, num_shards=2)

    page = Page(report_html(cache))

    assert {text for text in page.text_of("li") if text.startswith(("train:", "eval:"))} == {
        "train: no record has the label 'emu'.",
        "train: label 'cat' has 57 records, 'dog' has 3.",
        "train: text is empty in 6 of 60 records.",
        "train: tokens is empty in every record.",
        "train: lang is en in all of 60 records that are spread over the split.",
        "train: gap is nan in all of 60 records that are spread over the split.",
    }
    (counts,) = class_counts(cache)
    assert (counts.splits, counts.rows) == (("eval", "train"), [("cat", (18, 57)), ("dog", (18, 3)), ("emu", (18, 0))])
    assert "Records by label" in page.text_of("caption") and "95.00 %" in page.text_of("td")
