"""Disclosures: their numbers against the manifests, their formats against the libraries of their owners."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from pathlib import Path

import mlcroissant
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from typer.testing import CliRunner

from beam_pipes import Cache, FeatureSpec, Loader, build, stage
from beam_pipes.building.takedown import take_down
from beam_pipes.commands import app
from beam_pipes.disclosure import FORMATS, Facts, disclose, facts_of, facts_of_run
from beam_pipes.errors import ExportError, LoaderError
from beam_pipes.loader import Mixture, pack
from beam_pipes.sources import JoinedSources, Memory

FEATURES = {"tokens": FeatureSpec("int32", shape=(None,), minimum=0)}


@stage
def tokens(line: str) -> dict[str, object] | None:
    return {"tokens": [len(word) for word in line.split()]} if line else None


def lines(what: str, number: int) -> list[str]:
    return [f"{what} {'word ' * (n % 5)}{n}" for n in range(number)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two caches: `library`, from two sources and without a line, and `web`, from one that declares nothing."""
    folder = tmp_path_factory.mktemp("disclosure")
    books = Memory(
        ["", *lines("book", 20)], license="cc0-1.0", origin="https://example.org/books", collected="2019/2023"
    )
    papers = Memory(
        lines("a | paper", 10),
        license="LicenseRef-ours AND MIT",
        origin="The archive",
        collected="2024-05",
        terms="Cite us",
    )
    sources = JoinedSources({"books": books, "papers": papers})
    splits = {"train": 0.9, "eval": 0.1}
    build("library", sources, [tokens], features=FEATURES, splits=splits, to=folder / "library", workers=1)
    build("web", Memory(lines("site", 15)), [tokens], features=FEATURES, to=folder / "web", workers=1)
    return folder


@pytest.fixture(scope="module")
def caches(folder: Path) -> list[Cache]:
    return [Cache.open(folder / "library"), Cache.open(folder / "web")]


def run_of(caches: list[Cache], *, steps: int = 23) -> Loader:
    loader = Loader(Mixture([(caches[0]["train"], 3), (caches[1]["train"], 1)]), batch_size=4, seed=5, epochs=None)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    return loader


def documents(facts: Facts, out: Path) -> dict[str, str]:
    """Format → the text of its file; of Croissant, the first."""
    disclose(facts, out)
    files = {
        "california": "california-*",
        "card": "data-card.md",
        "eu": "eu-*",
        "ml-bom": "ml-bom*",
        "croissant": "croi*",
    }
    return {format: sorted(out.glob(pattern))[0].read_text() for format, pattern in files.items()}


def rows_of(text: str, first_heading: str, last_heading: str) -> list[dict[str, str]]:
    """The table with these headings at its ends."""
    found = text.splitlines()
    start = next(n for n, line in enumerate(found) if re.fullmatch(rf"\| {first_heading} .* {last_heading} \|", line))
    headings = found[start].strip("| ").split(" | ")
    rows = []
    for line in found[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(headings, re.split(r"(?<!\\) \| ", line[2:-2]), strict=True)))
    return rows


def number(text: str) -> int:
    return int(text.replace(",", ""))


# Numbers.


@pytest.mark.parametrize("format", ["card", "eu", "california"])
def test_sizes_add_up_to_the_manifests(caches: list[Cache], tmp_path: Path, format: str) -> None:
    rows = rows_of(documents(facts_of(caches), tmp_path)[format], "cache", "share of records")

    for cache in caches:
        for name, split in cache.manifest.splits.items():
            mine = [row for row in rows if row["cache"].startswith(f"{cache.manifest.name}-") and row["split"] == name]
            assert sum(number(row["records"]) for row in mine) == split.num_records
            assert sum(number(row["bytes"]) for row in mine) == split.num_bytes
            assert sum(number(row["lengths"].split()[1]) for row in mine) == split.lengths["tokens"][0]
    total = sum(split.num_records for cache in caches for split in cache.manifest.splits.values())
    assert [row["share of records"] for row in rows] == [f"{number(row['records']) / total:.4%}" for row in rows]
    assert {row["license"] for row in rows} == {"CC0-1.0", "LicenseRef-ours AND MIT", "–"}


def test_sizes_of_the_bill_and_of_croissant_add_up_to_the_manifests(caches: list[Cache], tmp_path: Path) -> None:
    disclose(facts_of(caches), tmp_path, formats=["ml-bom", "croissant"])
    components = json.loads((tmp_path / "ml-bom.cdx.json").read_text())["components"]
    described = "".join(path.read_text() for path in tmp_path.glob("croissant-*.json"))

    for cache in caches:
        for name, split in cache.manifest.splits.items():
            mine = [
                {each["name"]: each["value"] for each in component["data"][0]["contents"]["properties"]}
                for component in components
                if component.get("description", "").startswith(f"Records in the split {name} of {cache.manifest.name}-")
            ]
            for title, total in (
                ("records", split.num_records),
                ("bytes", split.num_bytes),
                ("lengths of tokens", split.lengths["tokens"][0]),
            ):
                assert sum(int(each[f"beam-pipes:{title}"]) for each in mine) == total
            assert f"{len(split.numbers)} files, {split.num_records} records, {split.num_bytes} bytes." in described


def test_sizes_are_those_of_the_records_of_each_source(caches: list[Cache]) -> None:
    for source in facts_of(caches).sources:
        cache = caches[0] if source.cache.startswith("library") else caches[1]
        split = cache[source.split]
        mine = [row for row in range(len(split)) if split.terms_of(row) == source.terms]
        assert (source.records, source.num_bytes) == (len(mine), sum(16 + len(split.record_bytes(row)) for row in mine))
        assert source.lengths == {"tokens": sum(len(split[row]["tokens"]) for row in mine)}


@pytest.mark.parametrize("packs", [False, True], ids=["records", "packed"])
def test_what_a_run_has_read_is_what_its_steps_delivered(caches: list[Cache], tmp_path: Path, packs: bool) -> None:
    trains = [cache["train"] for cache in caches]
    of_run = [pack(train, sequence_length={"tokens": 16}) for train in trains] if packs else trains
    loader = Loader(Mixture(list(zip(of_run, (3, 1), strict=True))), batch_size=4, seed=5, epochs=None)
    batches = iter(loader)
    for _ in range(23):
        next(batches)

    facts = facts_of_run(loader)

    reads: Counter[tuple[str, str]] = Counter()
    tokens_read: Counter[tuple[str, str]] = Counter()
    for step in range(23):
        for each in loader.who(step):
            key = (caches[each.source].manifest.name, trains[each.source].terms_of(each.record).license)
            reads[key] += 1
            tokens_read[key] += len(trains[each.source][each.record]["tokens"])
    found = {(source.cache.partition("-")[0], source.terms.license): source for source in facts.sources}
    assert {key: source.reads for key, source in found.items()} == reads
    assert {key: source.read_lengths["tokens"] for key, source in found.items()} == tokens_read
    assert sum(map(facts.share, facts.sources)) == pytest.approx(1)
    assert facts.run is not None and (facts.run.steps, facts.run.rows) == (23, 92)
    assert facts.run.reads == reads.total()
    rows = rows_of(documents(facts, tmp_path)["card"], "cache", "share of reads")
    assert {row["share of reads"] for row in rows} == {f"{count / reads.total():.4%}" for count in reads.values()}
    assert {row["split"] for row in rows} == {"train"}


def test_what_stages_dropped_and_what_is_taken_down_is_counted(folder: Path, tmp_path: Path) -> None:
    build("gone", Memory(lines("page", 6)), [tokens], to=tmp_path / "gone", features=FEATURES, workers=1)
    take_down(tmp_path / "gone", ["memory@2"], reason="asked", by="us")
    made = documents(facts_of([Cache.open(folder / "library"), Cache.open(tmp_path / "gone")]), tmp_path / "out")

    dropped = rows_of(made["card"], "cache", "reason \\| records")
    removed = rows_of(made["card"], "cache", "records")

    assert [(row["stage"], number(row["records"])) for row in dropped] == [("tokens", 1)]
    assert [number(row["records"]) for row in removed if len(row) == 2] == [0, 1]
    assert (
        "Records that are taken down now: 1." in made["eu"]
        and "Records that are taken down now: 1." in made["california"]
    )


# Formats.


def test_croissant_is_valid_and_has_provenance(
    caches: list[Cache], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disclose(facts_of(caches), tmp_path, formats=["croissant"])
    [path] = tmp_path.glob("croissant-library-*.json")

    with caplog.at_level(logging.WARNING):
        metadata = mlcroissant.Dataset(str(path)).metadata

    assert metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    assert not metadata.ctx.issues.errors
    warned = set(re.findall(r'Property "[^"]*/(\w+)" is recommended', str(metadata.ctx.issues.report())))
    assert warned == {"citeAs", "datePublished"}
    made, manifest = json.loads(path.read_text()), caches[0].manifest
    assert made["license"] == ["https://spdx.org/licenses/CC0-1.0.html", "LicenseRef-ours AND MIT"]
    assert [each.get("@id") for each in made["prov:wasDerivedFrom"]] == ["https://example.org/books", None]
    assert made["prov:wasDerivedFrom"][1]["prov:label"] == "The archive"
    assert [each["@type"] for each in made["prov:wasGeneratedBy"]["prov:used"]] == ["prov:Entity"] * len(
        manifest.fingerprints
    )
    assert made["distribution"][0]["sha256"] == manifest.id
    assert {record_set["name"]: len(record_set["prov:wasDerivedFrom"]) for record_set in made["recordSet"]}[
        "train"
    ] == 2


def test_the_bill_of_materials_is_valid_cyclonedx(caches: list[Cache], tmp_path: Path) -> None:
    facts = facts_of_run(run_of(caches))

    text = documents(facts, tmp_path)["ml-bom"]

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    made = json.loads(text)
    components = {each["bom-ref"]: each for each in made["components"]}
    assert {each["ref"] for each in made["dependencies"]} == {*components, "model"}
    of_model = made["metadata"]["component"]["modelCard"]["modelParameters"]["datasets"]
    assert [components[each["ref"]]["hashes"][0]["content"] for each in of_model] == [
        cache.manifest.id for cache in caches
    ]
    licenses = [each["licenses"][0]["expression"] for each in made["components"] if "licenses" in each]
    assert licenses == ["CC0-1.0", "LicenseRef-ours AND MIT"]
    properties = {each["name"]: each["value"] for each in components["source-0"]["data"][0]["contents"]["properties"]}
    assert properties["beam-pipes:records"] == str(facts.sources[0].records)
    assert properties["beam-pipes:share of reads"] == f"{facts.share(facts.sources[0]):.6f}"


def test_the_summary_has_the_sections_of_the_template(caches: list[Cache], tmp_path: Path) -> None:
    text = documents(facts_of(caches), tmp_path)["eu"]

    headings = re.findall(r"^##+ (\d\..*)$", text, re.MULTILINE)
    assert headings == [
        "1. General information",
        "1.1. Provider identification",
        "1.2. Model identification",
        "1.3. Modalities, overall training data size and other characteristics",
        "2. List of data sources",
        "2.1. Publicly available datasets",
        "2.2. Private non-publicly available datasets obtained from third parties",
        "2.2.1. Datasets commercially licensed by rightsholders or their representatives",
        "2.2.2. Private datasets obtained from other third parties",
        "2.3. Data crawled and scraped from online sources",
        "2.4. User data",
        "2.5. Synthetic data",
        "2.6. Other sources of data",
        "3. Data processing aspects",
        "3.1. Respect of reservation of rights from text and data mining exception or limitation",
        "3.2. Removal of illegal content",
        "3.3. Other information (optional)",
    ]
    tokens_stored = sum(split.lengths["tokens"][0] for cache in caches for split in cache.manifest.splits.values())
    assert f"- tokens: {tokens_stored:,} (less than 1 billion tokens)" in text
    assert "2024-05 (the latest that a source declares)" in text
    number_of_sources = len(facts_of(caches).sources)
    assert f"1 of {number_of_sources} sources do not say when they were collected." in text


@pytest.mark.parametrize("format", ["card", "eu", "california"])
def test_what_only_people_know_is_left_blank_and_listed(caches: list[Cache], tmp_path: Path, format: str) -> None:
    text = documents(facts_of(caches), tmp_path)[format]

    form, _, listed = text.partition("## Left to be completed: ")
    blanks = re.findall(r"^- .*?: (.*)$", listed, re.MULTILINE)
    assert len(blanks) == int(listed.splitlines()[0]) == form.count("_To be completed._") > 0
    assert all(f"**{question}**\n\n_To be completed._" in form for question in blanks)


def test_ab_2013_has_its_twelve_points(caches: list[Cache], tmp_path: Path) -> None:
    text = documents(facts_of(caches), tmp_path)["california"]

    assert re.findall(r"^## \(a\)\((\d+)\)$", text, re.MULTILINE) == [str(number) for number in range(1, 13)]


# The same bytes.


def test_two_runs_give_the_same_bytes_and_completed_files_are_kept(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        disclose(facts_of_run(run_of([Cache.open(folder / "library"), Cache.open(folder / "web")])), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == len(FORMATS) + 1
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)
    assert str(tmp_path) not in "".join((tmp_path / "a" / file).read_text() for file in files)

    web = Cache.open(folder / "web")
    facts = facts_of([web, web])
    assert len(facts.caches) == 1
    (tmp_path / "a" / "data-card.md").write_text("completed by hand")
    with pytest.raises(ExportError, match="is there with another content, and whoever completed it would lose that"):
        disclose(facts, tmp_path / "a", formats=["card"])
    with pytest.raises(ExportError, match="format should be one of california, card, croissant, eu, ml-bom"):
        disclose(facts, tmp_path / "a", formats=["cart"])


def test_the_command_discloses_caches_and_runs(folder: Path, caches: list[Cache], tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(run_of(caches).state.to_json())
    paths = [str(folder / "library"), str(folder / "web")]
    options = ["--run", str(state), "--batch-size", "4", "--format", "card", "--out", str(tmp_path / "run")]

    alone = CliRunner().invoke(app, ["disclose", *paths, "--out", str(tmp_path / "out")], catch_exceptions=False)
    of_run = CliRunner().invoke(app, ["disclose", *paths, *options], catch_exceptions=False)
    no_size = CliRunner().invoke(app, ["disclose", *paths, "--run", str(state), "--out", str(tmp_path / "none")])

    assert len(alone.output.split()) == len(FORMATS) + 1
    assert of_run.output.split() == [str(tmp_path / "run" / "data-card.md")]
    assert "23 steps, 92 rows, 92 reads of records, seed 5." in (tmp_path / "run" / "data-card.md").read_text()
    assert isinstance(no_size.exception, LoaderError) and "--run needs the --batch-size" in str(no_size.exception)
