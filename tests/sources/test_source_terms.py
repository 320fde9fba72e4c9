"""Licenses and origins: declared by sources, checked with SPDX, kept in the manifest, found for every record."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from typer.testing import CliRunner

from beam_pipes import Cache, Declaration, FeatureSpec, Loader, build, declare, stage
from beam_pipes.building.trace import explain_record
from beam_pipes.cache.by_terms import count_by_terms
from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError, CorruptManifestError, DeclarationError, SourceError, SpecError
from beam_pipes.loader import Mixture, pack
from beam_pipes.publication.manifest import Manifest
from beam_pipes.publication.terms import SourceTerms, Terms, terms_by_range
from beam_pipes.recipes import tokens
from beam_pipes.sources import JoinedSources, Memory, RepairedSource, SplitSources, TextLines
from beam_pipes.storage.checked_json import canonical_json

FEATURES = {"tokens": FeatureSpec("int32", shape=(None,))}


@stage
def lengths(line: str) -> dict[str, object]:
    return {"tokens": [len(word) for word in line.split()]}


def declared(folder: Path, *, license: str = "CC0-1.0", num_parts: int = 3) -> Declaration:
    """`books` of one license in three shards, and `web` of which nothing is known in one."""
    folder.mkdir(exist_ok=True)
    for part in range(num_parts):
        (folder / f"{part}.txt").write_text("".join(f"a{part} line of {n} words\n" for n in range(5 + part)))
    (folder / "web.text").write_text("".join(f"from the web {n}\n" for n in range(20)))
    books = TextLines(folder, pattern="*.txt", license=license, origin="https://example.org/books", collected="2024-05")
    source = JoinedSources({"books": books, "web": TextLines(folder, pattern="*.text")})
    splits = {"train": 0.7, "eval": 0.3}
    return declare("notes", source, [lengths], features=FEATURES, splits=splits, target_shard_bytes=64)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    folder = tmp_path_factory.mktemp("terms")
    build(declared(folder / "in"), to=folder / "cache", workers=1)
    return Cache.open(folder / "cache")


def command(*arguments: str) -> str:
    """What a command of `beam-pipes` prints."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def of_books(cache: Cache, split: str) -> list[bool]:
    """Which rows come from the books, by their ids."""
    return [each.startswith("books/") for each in cache[split].record_ids(range(len(cache[split])))]


# What is declared.


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("cc-by-4.0", "CC-BY-4.0"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("LicenseRef-our-contract", "LicenseRef-our-contract"),
        ("CC0-1.0 and LicenseRef-x.1", "CC0-1.0 AND LicenseRef-x.1"),
        ("GPL-2.0-only with Classpath-exception-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("", ""),
    ],
)
def test_licenses_are_kept_in_their_usual_spelling(given: str, kept: str) -> None:
    assert Terms(license=given).checked().license == kept


@pytest.mark.parametrize(
    ("license", "words"),
    [
        ("CC-BY-4", "SPDX has no license 'CC-BY-4'. Did you mean CC-BY-4.0"),
        ("our own", "SPDX has no license 'our own'. Take an identifier of https://spdx.org/licenses/"),
        ("MIT AND", "is not an SPDX license expression: AND requires two or more licenses"),
        ("LicenseRef-a b", "SPDX has no license"),
        (" MIT", "license of a source should be one line of text without spaces around it, got ' MIT'"),
    ],
)
def test_a_license_that_spdx_does_not_know_is_refused(tmp_path: Path, license: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        build(declared(tmp_path / "in", license=license), to=tmp_path / "cache", workers=1)

    assert words in str(caught.value)
    assert not (tmp_path / "cache" / "manifest.json").exists()


@pytest.mark.parametrize("collected", ["2024", "2024-05", "2024-05-31", "2023-11/2024-05", "2024/2024"])
def test_when_data_were_collected_is_a_day_or_a_period(collected: str) -> None:
    assert Terms(collected=collected).checked().collected == collected


@pytest.mark.parametrize(
    "collected", ["May 2024", "2024-13", "2024-05/2023-11", "2024-5", "2023/2024/2025", "2024-02-30"]
)
def test_another_text_is_no_period(collected: str) -> None:
    with pytest.raises(SourceError, match="should be a year, month or day, or two of these from the earlier to"):
        Terms(collected=collected).checked()


def test_notes_about_several_sources_together_are_refused() -> None:
    with pytest.raises(SourceError, match="license='MIT' is given for several sources together. Give it to each of"):
        JoinedSources({"a": Memory(["x"]), "b": Memory(["y"])}, license="MIT")
    with pytest.raises(SourceError, match="sources that are read together should give values of one type"):
        JoinedSources({"a": Memory(["x"]), "b": Memory([1])})


def test_sources_in_sources_keep_their_terms() -> None:
    inner = JoinedSources({"a": Memory(["x"], license="MIT"), "b": Memory(["y"])})
    source = RepairedSource(
        SplitSources({"train": inner, "eval": Memory(["z"], origin="us")}), {"train/a/memory@0": b""}
    )

    shards = source.plan(target_shard_bytes=1 << 20).shards
    found = [source.terms_of(shard.slices[0].file) for shard in shards]

    assert found == [Terms(license="MIT"), Terms(), Terms(origin="us")]
    assert [source.splits_of(shard) for shard in shards] == [["train"], ["train"], ["eval"]]
    values = [value for shard in shards[1:] for batch in source.read(shard) for value in batch.values]
    assert values == ["y", "z"]


def test_terms_are_no_part_of_what_a_source_is() -> None:
    plain, noted = TextLines("."), TextLines(".", license="MIT", origin="here", collected="2024", terms="ask us")

    assert plain.fingerprint_config() == noted.fingerprint_config()
    assert plain != noted


# What is kept.


def test_every_record_has_the_terms_of_its_source(cache: Cache) -> None:
    books = Terms(license="CC0-1.0", origin="https://example.org/books", collected="2024-05")
    for name in cache.splits:
        split, is_book = cache[name], of_books(cache, name)

        assert [split.terms_of(row) for row in range(len(split))] == [books if each else Terms() for each in is_book]
        conditions: dict[str, ArrayLike] = {
            "license == 'CC0-1.0'": is_book,
            "license != 'CC0-1.0'": np.logical_not(is_book),
            "license in ('MIT', '')": np.logical_not(is_book),
            "collected >= '2024' and origin == 'https://example.org/books'": is_book,
            "terms == 'none'": np.zeros(len(split), bool),
        }
        for condition, expected in conditions.items():
            assert split.where(condition).choice.rows.tolist() == np.flatnonzero(expected).tolist()  # type: ignore[union-attr]
    assert explain_record(cache.path, "books/0.txt@0").terms == books


def test_another_license_is_another_snapshot_of_the_same_shards(tmp_path: Path) -> None:
    plain = dataclasses.replace(declared(tmp_path / "in"), source=TextLines(tmp_path / "in"))
    noted = dataclasses.replace(plain, source=TextLines(tmp_path / "in", license="MIT"))
    again = dataclasses.replace(plain, source=TextLines(tmp_path / "in", license="Apache-2.0"))

    results = [build(each, to=tmp_path / "cache", workers=1) for each in (plain, noted, again, again, plain)]

    manifests = [Cache.open(tmp_path / "cache", snapshot=result.snapshot).manifest for result in results]
    assert [result.reused_shards == result.num_shards for result in results] == [False, True, True, True, True]
    assert [result.up_to_date for result in results] == [False, False, False, True, False]
    assert len({manifest.id for manifest in manifests}) == 3
    assert [[each.terms.license for each in manifest.sources] for manifest in manifests[:3]] == [
        [],
        ["MIT"],
        ["Apache-2.0"],
    ]
    assert all(manifest.splits == manifests[0].splits for manifest in manifests)
    assert b'"sources"' not in manifests[0].to_bytes()
    shown = command("diff", *(f"{tmp_path}/cache/snapshots/{results[number].snapshot}" for number in (0, 1)))
    assert "splits       sources license: – → MIT" in shown


texts = st.sampled_from(["", "a", "b"])
some_terms = st.lists(st.builds(Terms, license=texts, origin=texts), max_size=20)


@given(some_terms)
@settings(max_examples=200, deadline=None)
def test_a_manifest_gives_each_shard_the_terms_it_was_written_with(terms: list[Terms]) -> None:
    manifest = Manifest(name="m", snapshot="0" * 16, splits={}, sources=terms_by_range(terms))

    read = Manifest.from_bytes(manifest.to_bytes())

    assert (read.sources, read.id) == (manifest.sources, manifest.id)
    assert [read.terms_of(shard) for shard in range(len(terms))] == terms
    assert len(read.sources) == (1 + sum(a != b for a, b in itertools.pairwise(terms)) if any(terms) else 0)


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], "sources should be sources of one or more source shards each, which follow each other from shard 0"),
        ([(1, 2)], "follow each other from shard 0"),
        ([(0, 2), (3, 4)], "follow each other from shard 0"),
        ([(0, 0)], r"sources\[0\].shards should be the first source shard, and the one after the last"),
    ],
)
def test_a_damaged_list_of_sources_is_refused(sources: list[tuple[int, int]], words: str) -> None:
    made = json.loads(Manifest(name="m", snapshot="0" * 16, splits={}).to_bytes())
    made["sources"] = [
        SourceTerms(terms=Terms(license="MIT"), first_shard=first, end_shard=end).to_json() for first, end in sources
    ]

    with pytest.raises(CorruptManifestError, match=words):
        Manifest.from_bytes(canonical_json(made))


# What is done with it.


def test_loaders_mixtures_and_packed_rows_choose_by_license(cache: Cache) -> None:
    free = cache["train"].where("license in ('CC0-1.0', 'CC-BY-4.0')")
    others = cache["train"].where("license == ''")
    plan = pack(free, sequence_length={"tokens": 16})
    mixture = Mixture([(free, 1), (others, 1)])

    loader = Loader(plan, batch_size=1, seed=1)
    packed = [row.record_id for step in range(len(plan)) for row in loader.who(step)]
    mixed = Loader(mixture, batch_size=4, seed=3, epochs=None).who(5)

    assert sorted(packed) == sorted(free.record_ids(range(len(free))))
    assert {row.record_id.startswith("books/") for row in mixed if row.source == 0} == {True}
    assert {row.record_id.startswith("books/") for row in mixed if row.source == 1} == {False}


def test_a_feature_of_the_name_comes_first_and_a_cache_without_terms_says_so(tmp_path: Path) -> None:
    @stage
    def noted(text: str) -> dict[str, object]:
        return {"license": text}

    build("own", Memory(["MIT", "BSD"], license="CC0-1.0"), [noted], to=tmp_path / "own", workers=1)
    build("none", Memory(["MIT", "BSD"]), [lengths], features=FEATURES, to=tmp_path / "none", workers=1)

    own = Cache.open(tmp_path / "own")["train"]
    assert len(own.where("license == 'MIT'")) == 1 and own.terms_of(0).license == "CC0-1.0"
    with pytest.raises(SpecError, match="no source of this cache declares its license, and there is no"):
        Cache.open(tmp_path / "none")["train"].where("license == 'MIT'")
    with pytest.raises(SpecError, match="there is no feature 'licence'. Did you mean 'license'"):
        own.where("licence == 'MIT'")
    with pytest.raises(SpecError, match="compares a text with a number"):
        own.where("origin > 3")


def test_records_that_are_no_examples_have_terms_too(tmp_path: Path) -> None:
    @stage
    def raw(text: str) -> bytes:
        return text.encode()

    source = JoinedSources({"a": Memory(["x"], license="MIT"), "b": Memory(["y", "z"])})
    build("raw", source, [raw], to=tmp_path / "cache", workers=1)

    assert list(Cache.open(tmp_path / "cache")["train"].where("license == ''")) == [b"y", b"z"]


def test_records_bytes_and_tokens_add_up_by_terms(cache: Cache) -> None:
    counts = count_by_terms(cache)

    for name in cache.splits:
        split, is_book = cache[name], np.array(of_books(cache, name))
        tokens = np.array([len(example["tokens"]) for example in split])
        found = {count.terms.license: count for count in counts if count.split == name}
        assert (found["CC0-1.0"].records, found[""].records) == (is_book.sum(), (~is_book).sum())
        assert found["CC0-1.0"].lengths == {"tokens": tokens[is_book].sum()}
        assert found[""].lengths == {"tokens": tokens[~is_book].sum()}
        assert sum(count.num_bytes for count in found.values()) == cache.manifest.splits[name].num_bytes


def test_the_command_line_shows_them(cache: Cache, tmp_path: Path) -> None:
    shown = command("stats", cache.path)
    listed = json.loads(command("stats", cache.path, "--json"))["sources"]
    why = command("why", "books/0.txt@0", cache.path)
    command("report", cache.path, "--to", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()

    assert "CC0-1.0" in shown and "https://example" in shown
    assert listed == [count.to_json() for count in count_by_terms(cache)]
    assert "its source declares: license CC0-1.0, origin https://example.org/books, collected 2024-05" in why
    assert "Licenses and origins" in page and "not declared" in page


# Recipes.


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("books", "web-1", "web-2"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "to be"}\n')
    return tmp_path


def test_a_recipe_makes_a_source_of_inputs_with_the_same_terms(inputs: Path) -> None:
    files = ["books.jsonl", "web-1.jsonl", "web-2.jsonl"]
    said = ["--license", "books.jsonl=cc0-1.0", "--license", "web-*=CC-BY-4.0", "--origin", "web-*=https://x.org/?a=b"]
    arguments = ["tokens", *files, "--tokenizer", "bytes", *said, "--collected", "2024-05", "--to", "cache"]

    module = command(*arguments, "--print-python")
    command(*arguments, "--workers", "1", "--no-report")

    assert 'JSONLines("books.jsonl", license="cc0-1.0", collected="2024-05")' in module
    assert '["web-1.jsonl", "web-2.jsonl"]' in module
    assert [each.terms for each in Cache.open("cache").manifest.sources] == [
        Terms(license="CC0-1.0", collected="2024-05"),
        Terms(license="CC-BY-4.0", origin="https://x.org/?a=b", collected="2024-05"),
    ]


def test_one_note_for_all_inputs_leaves_one_source(inputs: Path) -> None:
    recipe = tokens(["books.jsonl", "web-1.jsonl"], tokenizer="bytes", license="MIT", origin="https://x.org/?a=b")

    assert 'JSONLines(["books.jsonl", "web-1.jsonl"], license="MIT", origin="https://x.org/?a=b")' in recipe.python


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            ["--license", "bookz.jsonl=MIT"],
            "license (bookz.jsonl=…): there is no input 'bookz.jsonl'. Did you mean 'books.jsonl'",
        ),
        (["--license", "MIT", "--license", "BSD-3-Clause"], "given twice for the same input: 'MIT', 'BSD-3-Clause'"),
        (["--license", "MITT"], "SPDX has no license 'MITT'. Did you mean MIT"),
    ],
)
def test_mistakes_of_notes_are_named(inputs: Path, said: list[str], words: str) -> None:
    arguments = ["tokens", "books.jsonl", "--tokenizer", "bytes", *said, "--to", "cache"]

    error = CliRunner().invoke(app, arguments).exception

    assert isinstance(error, BeamPipesError) and words in str(error)


# Beam.


@beam.typehints.with_output_types(str)
class Sorted(beam.PTransform):  # type: ignore[misc]
    def expand(self, lines: beam.PCollection) -> beam.PCollection:
        return lines | beam.combiners.ToList() | beam.FlatMap(sorted)


def test_after_a_ptransform_there_is_one_license_or_none(tmp_path: Path) -> None:
    sources = JoinedSources({"a": Memory(["x"], license="MIT"), "b": Memory(["y"])})
    with pytest.raises(
        DeclarationError, match=r"its sources have different terms \('', 'MIT'\), and after a PTransform"
    ):
        declare("sorted", sources, [Sorted(), lengths], key=None, features=FEATURES)

    source = Memory(["x y", "z"], license="mit")
    declaration = declare("sorted", source, [Sorted(), lengths], key=None, features=FEATURES, num_shards=2)
    build(declaration, to=tmp_path / "cache", workers=1)

    train = Cache.open(tmp_path / "cache")["train"]
    assert len(train.where("license == 'MIT'")) == len(train) == 2
