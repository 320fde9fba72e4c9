"""Terms on every way into a cache: readers of graphs, tasks, caches made from caches, written examples, recipes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile
from typer.testing import CliRunner

import beam_pipes.graph.functions as tfrec
from beam_pipes import Cache, FeatureSpec, Loader, build, stage, tasks
from beam_pipes.cache.write_cache import write_cache
from beam_pipes.commands import app
from beam_pipes.errors import GraphError, SourceError, TaskError
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.messages import Example
from beam_pipes.graph import Pipeline, cache, types
from beam_pipes.loader import Mixture, pack
from beam_pipes.publication.terms import Terms
from beam_pipes.runners import LocalOptions, cache_tasks
from beam_pipes.sources import CachedRecords, JoinedSources, Memory
from beam_pipes.tasks.derived import TruncatedDatasetProvider
from beam_pipes.tasks.experimental import FewshotDataSource
from beam_pipes.tasks.sources.cached import BuiltCacheSource
from beam_pipes.tasks.sources.data_source import declared_as_one
from beam_pipes.transforms import fn

ONE = LocalOptions(workers=1)
CC0 = {"license": "CC0-1.0", "origin": "https://example.org/a?b=c", "collected": "2024-05", "terms": "Cite us"}
FEATURES = {"tokens": FeatureSpec("int32", shape=(None,), minimum=0)}


@stage
def tokens(line: str) -> dict[str, object]:
    return {"tokens": [len(word) for word in line.split()]}


@stage
def doubled(example: dict) -> Iterator[dict[str, object]]:
    yield {"tokens": example["tokens"]}
    yield {"tokens": example["tokens"]}


def where(path: Path | str, condition: str, split: str = "train") -> int:
    return len(Cache.open(path)[split].where(condition))


# Caches made from caches.


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two sources of 6 and 4 lines, and one of 3 that declares nothing."""
    parts = {
        "books": Memory([f"{'word ' * n}book" for n in range(6)], **CC0),
        "papers": Memory([f"paper {n}" for n in range(4)], license="mit"),
        "others": Memory(["x", "y", "z"]),
    }
    path = tmp_path_factory.mktemp("library") / "cache"
    build("library", JoinedSources(parts), [tokens], features=FEATURES, to=path, workers=1)
    return str(path)


def test_records_of_a_cache_keep_their_terms_in_a_cache_made_from_it(library: str, tmp_path: Path) -> None:
    also = Memory([{"tokens": np.int32([1])}], license="BSD-3-Clause")
    source = JoinedSources({"old": CachedRecords(library, "train"), "new": also})
    build("twice", source, [doubled], features=FEATURES, to=tmp_path / "twice", workers=1)
    again = CachedRecords(str(tmp_path / "twice"), "train")
    build("again", again, [doubled], features=FEATURES, to=tmp_path / "again", workers=1)

    for path, times in ((tmp_path / "twice", 2), (tmp_path / "again", 4)):
        split = Cache.open(path)["train"]
        found = [split.terms_of(row) for row in range(len(split))]
        expected = [(Terms(**CC0), 6), (Terms(license="MIT"), 4), (Terms(), 3), (Terms(license="BSD-3-Clause"), 1)]
        assert found == [terms for terms, count in expected for _ in range(count * times)]
        assert where(path, 'license in ("CC0-1.0", "MIT")') == 10 * times
        assert where(path, 'origin == "https://example.org/a?b=c" and collected >= "2024"') == 6 * times


def test_a_cache_without_terms_takes_those_given_and_one_with_them_keeps_its_own(library: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"license='MIT' is given .* declares its own terms, and each record keeps"):
        CachedRecords(library, "train", license="MIT")
    build("plain", Memory(["a", "b"]), [tokens], features=FEATURES, to=tmp_path / "plain", workers=1)
    source = CachedRecords(str(tmp_path / "plain"), "train", license="mit")
    build("noted", source, [doubled], features=FEATURES, to=tmp_path / "noted", workers=2)

    assert where(tmp_path / "noted", "license == 'MIT'") == 4


def test_mixtures_and_packed_rows_of_a_derived_cache_say_which_piece_is_whose(library: str, tmp_path: Path) -> None:
    build("d", CachedRecords(library, "train"), [doubled], features=FEATURES, to=tmp_path / "d", workers=1)
    split = Cache.open(tmp_path / "d")["train"]
    free, rest = split.where("license in ('CC0-1.0', 'MIT')"), split.where("license == ''")
    plan = pack(free, sequence_length={"tokens": 8})
    loader = Loader(Mixture([(plan, 3), (pack(rest, sequence_length={"tokens": 8}), 1)]), batch_size=2, epochs=None)

    for step in range(6):
        for row in loader.who(step):
            license = (free, rest)[row.source].terms_of(row.record).license
            assert license in (("CC0-1.0", "MIT"), ("",))[row.source]


def test_a_program_that_writes_examples_declares_terms(tmp_path: Path) -> None:
    rows = {"train": [{"n": n} for n in range(5)], "eval": [{"n": 9}]}
    plain = write_cache(tmp_path / "cache", rows, num_shards=2).manifest
    noted = write_cache(tmp_path / "cache", rows, num_shards=2, terms=Terms(license="mit")).manifest

    assert plain.snapshot != noted.snapshot and plain.splits == noted.splits
    assert [where(tmp_path / "cache", "license == 'MIT'", split) for split in rows] == [5, 1]


# Readers of graphs.


def graph_of(reader: Any, *beside: Any) -> Pipeline:
    pipe = Pipeline(batch_size=2)
    with pipe:
        nodes = [node()[0] if isinstance(node(), list) else node() for node in (reader, *beside)]
        stored = fn.cat(*nodes) if beside else fn.cast(nodes[0], dtype=types.UINT8)
        pipe.set_outputs(cache(stored))
    return pipe


def built(pipe: Pipeline, to: Path) -> str:
    build(pipe.offline_declaration("graph"), to=to, workers=1)
    return str(to)


def test_every_kind_of_reader_declares_terms(tmp_path: Path) -> None:
    """Those with a source of their own (files, arrays, TFRecords) and those that are read by number (lists)."""
    (tmp_path / "a").mkdir()
    for number in range(3):
        np.save(tmp_path / "a" / f"{number}.npy", np.uint8([number]))
    shard = tmp_path / "examples.tfrecord"
    with RecordWriter(str(shard)) as writer:
        for number in range(3):
            example = Example()
            example.features.feature["n"].int64_list.value.append(number)
            writer.write(example.SerializeToString())
    paths = [str(tmp_path / "a" / f"{number}.npy") for number in range(3)]
    features = {"n": tfrec.FixedLenFeature([1], tfrec.int64, -1)}
    readers = {
        "file": lambda **terms: fn.readers.file(file_root=str(tmp_path), file_filters="*.npy", **terms)[0],
        "paths": lambda **terms: fn.readers.file(files=paths, **terms)[0],
        "numpy": lambda **terms: fn.readers.numpy(file_root=str(tmp_path / "a"), **terms),
        "tfrecord": lambda **terms: fn.readers.tfrecord(path=[str(shard)], features=features, **terms)["n"],
    }
    for name, reader in readers.items():
        plain = graph_of(lambda reader=reader: reader())
        noted = graph_of(lambda reader=reader: reader(**CC0))
        path = built(plain, tmp_path / f"cache-{name}")
        assert Cache.open(path).manifest.sources == (), name
        again = build(noted.offline_declaration("graph"), to=path, workers=1)
        assert again.reused_shards == again.num_shards, "terms change no shard"
        assert where(path, "license == 'CC0-1.0' and collected == '2024-05' and terms == 'Cite us'") == 3, name


def test_readers_whose_records_are_stored_together_have_to_agree(tmp_path: Path) -> None:
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.uint8([number]))

    def reader(**terms: str) -> Any:
        return lambda: fn.readers.numpy(file_root=str(tmp_path), **terms)

    both = graph_of(reader(license="MIT"), reader(license="MIT"))
    assert where(built(both, tmp_path / "cache"), "license == 'MIT'") == 2
    with pytest.raises(GraphError, match="has license='MIT' and .* license='', and before .*'CC0-1.0 AND MIT'"):
        graph_of(reader(license="MIT"), reader()).offline_declaration("graph")


# Tasks.

TARGETS = {"targets": tasks.Feature(tasks.ByteVocabulary())}


@tasks.python_map
def to_targets(line: bytes) -> dict[str, bytes]:
    return {"targets": line}


@tasks.python_map
def to_ids(example: dict[str, Any]) -> dict[str, Any]:
    return {"targets": example["targets"]}


@pytest.fixture
def registry() -> Any:
    before = dict(tasks.TaskRegistry._REGISTRY)
    tasks.TaskRegistry.reset()
    yield tasks.TaskRegistry
    tasks.TaskRegistry.reset()
    tasks.TaskRegistry._REGISTRY.update(before)


def examples(split: str, shuffle_files: bool) -> list[dict[str, Any]]:
    return [{"targets": [1, 2]}, {"targets": [3]}]


def test_every_source_of_tasks_takes_terms() -> None:
    files = {"train": "nowhere/*"}
    sources = [
        tasks.TextLineDataSource(files, **CC0),
        tasks.TFExampleDataSource(files, {}, **CC0),
        tasks.ProtoDataSource(files, lambda record: record, **CC0),
        tasks.FileDataSource(lambda file: file, files, **CC0),
        tasks.FunctionDataSource(examples, ["train"], **CC0),
        tasks.TfdsDataSource("mnist:3.0.1", splits=["train"], **CC0),
    ]
    for source in sources:
        assert source.terms_of("train", "one") == Terms(**CC0)
        assert not any("CC0" in str(value) for value in source.fingerprint_config().values())
    with pytest.raises(TypeError, match=r"TextLineDataSource\(\) got an unexpected keyword argument 'licence'"):
        tasks.TextLineDataSource(files, licence="MIT")


def test_terms_of_a_task_are_in_its_cache_and_in_a_task_over_that_cache(registry: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("to be\nor not\n")
    source = tasks.TextLineDataSource({"train": str(tmp_path / "in.txt")}, **CC0)
    registry.add("lines", source, TARGETS, [to_targets, tasks.preprocessors.tokenize, tasks.CacheDatasetPlaceholder()])
    [first] = cache_tasks("lines", tmp_path / "caches", options=ONE)
    assert where(tmp_path / "caches" / "lines", "license == 'CC0-1.0'") == 2

    over = BuiltCacheSource(str(tmp_path / "caches" / "lines"), "train")
    registry.add("over", over, TARGETS, [to_ids, tasks.CacheDatasetPlaceholder()])
    registry.add(
        "function", tasks.FunctionDataSource(examples, ["train"]), TARGETS, [to_ids, tasks.CacheDatasetPlaceholder()]
    )
    cache_tasks("over|function", tmp_path / "caches", options=ONE)
    assert where(tmp_path / "caches" / "over", "license in ('CC0-1.0', 'MIT') and terms == 'Cite us'") == 2
    assert Cache.open(tmp_path / "caches" / "function").manifest.sources == ()


def test_a_task_over_a_cache_of_several_licenses_keeps_each(library: str, registry: Any, tmp_path: Path) -> None:
    source = BuiltCacheSource(library, "train")

    @tasks.python_map
    def renamed(example: dict[str, Any]) -> dict[str, Any]:
        return {"targets": example["tokens"]}

    registry.add("mixed", source, TARGETS, [renamed, tasks.CacheDatasetPlaceholder()])
    cache_tasks("mixed", tmp_path, options=ONE)

    found = {license: where(tmp_path / "mixed", f"license == '{license}'") for license in ("CC0-1.0", "MIT", "")}
    assert found == {"CC0-1.0": 6, "MIT": 4, "": 3}
    for mixing in (TruncatedDatasetProvider(source, {"train": 2}), FewshotDataSource(source, 1)):
        with pytest.raises(TaskError, match=r"under different terms \('', 'CC0-1.0', 'MIT'\), and they are read here"):
            mixing.terms_of("train", "train")


def test_sources_made_of_one_source_have_its_terms() -> None:
    source = tasks.FunctionDataSource(examples, ["train", "eval"], license="MIT")
    for made in (TruncatedDatasetProvider(source, {"train": 1}), FewshotDataSource(source, 1)):
        assert made.terms_of("eval", "eval") == Terms(license="MIT")
    assert declared_as_one(source, []) == Terms()


# Recipes.


def inputs(folder: Path) -> dict[str, list[str]]:
    """Recipe → the arguments that read two inputs of it."""
    for name in ("one", "two"):
        (folder / name / "cat").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / name / "cat" / "0.png")
        (folder / f"{name}.csv").write_text("a,b\n1,x\n2,y\n")
        (folder / f"{name}.txt").write_text("to be\n")
        (folder / f"{name}-sound").mkdir()
        wavfile.write(folder / f"{name}-sound" / "0.wav", 8000, np.zeros(800, np.int16))
    return {
        "tokens": ["one.txt", "two.txt", "--tokenizer", "bytes"],
        "images": ["one", "two"],
        "audio": ["one-sound", "two-sound"],
        "table": ["one.csv", "two.csv"],
    }


@pytest.mark.parametrize("recipe", ["tokens", "images", "audio", "table"])
def test_every_recipe_takes_terms_for_each_input(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = inputs(tmp_path)[recipe]
    several = recipe in ("tokens", "table")
    notes = ["--license", f"{arguments[0]}=CC0-1.0", "--license", f"{arguments[1]}=MIT", "--collected", "2024"]
    notes = notes if several else ["--license", "CC0-1.0", "--origin", "https://x.org", "--collected", "2024"]
    line = [recipe, *(arguments if several else arguments[:1]), *notes, "--to", "cache", "--workers", "1"]

    result = CliRunner().invoke(app, [*line, "--no-report"], catch_exceptions=False)

    assert result.exit_code == 0, result.output
    counts = json.loads(CliRunner().invoke(app, ["stats", "cache", "--json"], catch_exceptions=False).output)["sources"]
    assert {count["license"] for count in counts} == ({"CC0-1.0", "MIT"} if several else {"CC0-1.0"})
    assert {count["collected"] for count in counts} == {"2024"}
    assert where("cache", "license in ('CC0-1.0', 'MIT')") == len(Cache.open("cache")["train"]) > 0
