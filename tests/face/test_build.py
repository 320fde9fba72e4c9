"""`build` and `Loader` as a stranger uses them: a directory elsewhere, a module of one's own, several processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beam_pipes import Cache, DataLoader, Declaration, Loader, build, declare, stage, write_cache
from beam_pipes.building.checks import find_faults
from beam_pipes.building.plan import SavedPlan, make_plan
from beam_pipes.cache import open_split
from beam_pipes.engine.graph import Signature
from beam_pipes.errors import CacheNotFoundError, DeclarationError, LoaderError
from beam_pipes.export import export
from beam_pipes.loader import Mixture, PackingPlan, pack
from beam_pipes.runners import LocalOptions
from beam_pipes.sources import SplitSources, TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition

ROOT = Path(__file__).parents[2]
STANZA = "the fog comes {0}\non little cat feet {0}\n\nit sits looking {0}\nover harbor and city {0}\n"
POEM = "".join(STANZA.format(number) for number in range(50))

MODULE = """
from collections.abc import Iterator

import numpy as np

from beam_pipes import count, declare, drop, observe, stage
from beam_pipes.sources import TextLines


@stage
def words(line: str, *, stop: str = "the") -> Iterator[str]:
    if not line:
        yield drop("empty")
    for word in line.split():
        yield drop("stopped") if word == stop else word


@stage(batched=True)
def upper(some: list[str]) -> list[str]:
    count("words", len(some))
    return [word.upper() for word in some]


def example(word: str, rng: np.random.Generator, record_id: str) -> dict[str, object]:
    observe("length", len(word))
    tokens = np.array([ord(letter) for letter in word], np.int32)
    return {"text": word, "from": record_id, "tokens": tokens, "noise": int(rng.integers(0, 1000))}


declaration = declare("poem", TextLines("poem.txt"), [words, upper, example], target_shard_bytes=500)
"""

SCRIPT = """
import json, sys
import poem
from beam_pipes import Loader, build, stage
from beam_pipes.sources import TextLines

told = []
for workers in (1, 2):
    result = build("poem", TextLines("poem.txt"), [stage(poem.words, stop="cat"), poem.upper, poem.example],
                   splits={"train": 0.8, "eval": 0.2}, to=f"cache-{workers}", workers=workers, target_shard_bytes=500)
    rows = [text for batch in Loader(f"cache-{workers}/train", batch_size=7, last="partial") for text in batch["text"]]
    told.append([result.manifest_id, result.num_shards, str(result.account), sorted(map(str, rows))])
import beam_pipes.runners.build, beam_pipes.face
from beam_pipes import build as again
print(json.dumps([told, again is build]))
"""


BY_VALUE = """
import sys
import cloudpickle
import poem
from beam_pipes import stage

@stage
def shout(line: str, *, mark: str = "!") -> str:
    return line.upper() + mark

cloudpickle.register_pickle_by_value(poem)
stages = [shout, stage(shout, mark="?"), stage(poem.words, stop="fog", name="kept"), poem.upper]
sys.stdout.buffer.write(cloudpickle.dumps(stages))
"""

UNPICKLE = """
import pickle, sys
shout, asked, kept, upper = pickle.load(sys.stdin.buffer)
print(shout("a"), asked("a"), asked.name, list(kept("the fog")), kept.name, upper.transform("a"), "poem" in sys.modules)
"""


class Upper(Pipeline):
    input_type: Signature = str
    output_type: Signature = str

    def transform(self, line: str) -> list[str]:
        return [line.upper()]


@stage
def lengths(line: str, *, minimum: int = 1) -> dict[str, object]:
    return {"text": line, "length": len(line), "minimum": minimum}


@pytest.fixture
def poem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with `poem.txt` and `poem.py`, to be in."""
    (tmp_path / "poem.txt").write_text(POEM)
    (tmp_path / "poem.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cache(poem: Path) -> Path:
    build("poem", TextLines("poem.txt"), [lengths], splits={"train": 0.8, "eval": 0.2}, to="cache", workers=1)
    return poem / "cache"


def test_a_script_with_a_module_builds_the_same_with_any_number_of_workers(poem: Path) -> None:
    (poem / "run.py").write_text(SCRIPT)

    done = subprocess.run(
        [sys.executable, "run.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (one, two), is_same = json.loads(done.stdout.splitlines()[-1])
    assert is_same
    assert one == two
    assert one[1] > 4
    assert "CAT" not in one[3] and one[3].count("FOG") > 25
    assert "'empty': 50" in one[2] and "'stopped': 50" in one[2]


def test_code_that_cloudpickle_sends_by_value_arrives_without_its_module(poem: Path, tmp_path_factory: Any) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    (poem / "send.py").write_text(BY_VALUE)
    sent = subprocess.run([sys.executable, "send.py"], env=environment, capture_output=True, check=True).stdout

    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLE], input=sent, env=environment, cwd=elsewhere, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "A! A? shout ['the', Drop(reason='stopped')] kept ['A'] False\n"


def test_the_example_of_the_readme_is_the_one_that_mypy_checks() -> None:
    block = re.search(r"```python run\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)

    assert block is not None
    assert (ROOT / "examples" / "poem.py").read_text(encoding="utf-8").endswith('"""\n\n' + block[1])
    assert '"examples"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # among what mypy checks strictly
    assert len([line for line in block[1].splitlines() if line]) <= 15


def test_the_command_line_builds_what_declare_has_made(poem: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{poem}"}
    command = [
        sys.executable,
        "-m",
        "beam_pipes",
        "build",
        "poem:declaration",
        "--to",
        "cache",
        "--workers",
        "2",
    ]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    account = Cache.open("cache").statistics
    assert {each["name"] for each in account} == {"upper_words", "example_length"}
    assert len(Loader("cache", batch_size=4).features) == 4


def test_build_takes_what_has_been_declared(poem: Path) -> None:
    declaration = declare("poem", TextLines("poem.txt"), [lengths])

    first = build(declaration, to=poem / "one", options=LocalOptions(workers=1))
    again = build(declaration, to="one", workers=1)
    whole = build("poem", TextLines("poem.txt"), [lengths], to="two", workers=1)

    assert (first.up_to_date, again.up_to_date) == (False, True)
    assert whole.manifest_id == first.manifest_id


def test_a_list_of_classes_gives_the_records_that_their_dag_gives(poem: Path) -> None:
    upper, partition = Upper(), RandomPartition(dict, ["train", "eval"], [0.8, 0.2])
    dag = DAGPipeline({upper: Input(str), lengths: upper, partition: lengths, Output(): partition}, "")
    declared = Declaration(name="poem", source=TextLines("poem.txt"), pipeline=dag)

    by_dag = build(declared, to="dag", workers=1)
    shares = {"train": 0.8, "eval": 0.2}
    listed = build("poem", TextLines("poem.txt"), [Upper(), lengths], splits=shares, to="list", workers=1)

    assert listed.manifest_id == by_dag.manifest_id


def test_each_split_may_have_a_source_of_its_own(poem: Path) -> None:
    (poem / "eval.txt").write_text("two roads\n" * 30)
    sources = {"train": TextLines("poem.txt"), "eval": TextLines("eval.txt")}

    result = build("poem", sources, [lengths], to="cache", workers=1, target_shard_bytes=500)
    again = build("poem", sources, [lengths], to="cache", workers=1, target_shard_bytes=500)

    assert again.up_to_date
    assert result.account.read == 280
    assert {str(text) for text in next(iter(Loader("cache/eval", batch_size=30)))["text"]} == {"two roads"}
    assert len(open_split("cache/train")) == 250


def test_records_of_splits_are_parsed_and_checked_by_their_sources(poem: Path) -> None:
    (poem / "eval.txt").write_bytes(b"two\n\xff\nroads\n")
    sources = {"train": TextLines("poem.txt"), "eval": TextLines("eval.txt")}

    build("poem", sources, [lengths], to="cache", workers=1, on_error="dead_letter")
    (letter,) = Cache.open("cache").dead_letters()
    source = SplitSources(sources)

    assert letter.record_id == "eval/eval.txt@4"
    assert source.parse(b"two", file="eval/eval.txt", position=0) == "two"
    gone = declare("poem", {**sources, "test": TextLines("nowhere.txt")}, [lengths])
    assert any("nowhere.txt" in str(fault) for fault in find_faults(gone, "cache"))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (["poem"], {"to": "cache"}, r"build\('poem', …\): expected a source and stages after the name"),
        (["poem", TextLines("poem.txt"), [lengths]], {}, r"expected the directory of the cache as to=…"),
        ([7], {"to": "cache"}, "expected a name with a source and stages, a Declaration, or 'module:name', got int: 7"),
        (["poem:declaration"], {"to": "c", "seed": 1}, "a declaration says itself what is built, got seed beside it"),
        (["poem:x", TextLines("a")], {"to": "cache"}, "expected a source and stages after the name"),
        (
            ["poem", TextLines("poem.txt"), [lengths]],
            {"to": "cache", "workers": 2, "options": LocalOptions()},
            r"workers=2 is short for options=LocalOptions\(workers=2\), and options are given too",
        ),
    ],
    ids=["no_source", "no_directory", "number", "declared_twice", "no_stages", "workers_twice"],
)
def test_what_cannot_be_built_says_what_to_write(arguments: list[Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        build(*arguments, **options)


def test_a_declaration_of_a_list_points_to_declare() -> None:
    with pytest.raises(DeclarationError, match=r"pipeline should be one pipeline.*beam_pipes.declare\('poem', source"):
        Declaration(name="poem", source=TextLines("poem.txt"), pipeline=[lengths])  # type: ignore[arg-type]


# Paths of splits.


def test_loaders_take_the_path_of_a_split(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [batch["text"].tolist() for batch in Loader(Cache.open("cache")["train"], batch_size=8)]
    snapshot = Cache.open("cache").directory

    for path in ("cache/train", "./cache/train/", cache / "train", f"{snapshot}/train"):
        assert [batch["text"].tolist() for batch in Loader(path, batch_size=8)] == expected
    given = DataLoader.from_cache("cache/train", batch_size=8).to_numpy()
    assert [batch["text"].tolist() for batch in given] == expected
    assert len(Loader(Mixture([("cache/train", 1), ("cache/eval", 1)], exhausted="stop"), batch_size=8)) > 0
    monkeypatch.chdir(cache)
    assert open_split("train").manifest_id == Cache.open(".").manifest.id


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "cache/test",
            "cache/test: the cache 'cache' has no split 'test'. Choose one of: 'cache/eval', 'cache/train'.",
        ),
        (
            "cache",
            "cache: expected one split, but this is a cache with 'eval', 'train'. Write 'cache/eval' or 'cache/train'.",
        ),
        (
            "nowhere/train",
            "nowhere/train: expected a split of a cache, or a cache. nowhere: expected a cache, a directory with "
            "manifest.json, and there is none. Build it first.",
        ),
        ("none", "none: expected a cache, a directory with manifest.json, and there is none. Build it first."),
    ],
    ids=["no_split", "cache", "no_cache", "no_directory"],
)
def test_paths_of_no_split_say_which_there_are(cache: Path, path: str, message: str) -> None:
    for load in (Loader, DataLoader.from_cache):
        with pytest.raises(CacheNotFoundError) as caught:
            load(path, batch_size=8)  # type: ignore[operator]

        assert str(caught.value) == message
        assert isinstance(caught.value, KeyError) == ("has no split" in message)


def test_a_split_instead_of_a_cache_is_named_in_the_error(cache: Path) -> None:
    with pytest.raises(CacheNotFoundError) as caught:
        Cache.open("cache/train/")
    assert str(caught.value) == (
        "cache/train/: expected a cache, and this is a split of the cache 'cache'. Give the cache."
    )
    with pytest.raises(CacheNotFoundError, match="cache/test: expected a cache, a directory with manifest"):
        Cache.open("cache/test")


def test_a_cache_in_the_place_of_a_split_is_refused_by_name(cache: Path) -> None:
    with pytest.raises(
        LoaderError, match=r"a loader reads one split, got the cache '.*cache'. Choose one: cache\['eval"
    ):
        Loader(Cache.open("cache"), batch_size=8)  # type: ignore[arg-type]


def test_packing_takes_a_path(poem: Path) -> None:
    def tokens(line: str) -> dict[str, list[int]]:
        return {"tokens": [ord(letter) for letter in line]}

    build("poem", TextLines("poem.txt"), [tokens], to="cache", workers=1)

    assert len(pack("cache/train", sequence_length=64)) == len(pack(open_split("cache/train"), sequence_length=64))


def test_paths_begin_at_home_as_in_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    (home / "poem.txt").write_text("to be\n")

    result = build("poem", TextLines("~/poem.txt"), [lambda line: {"text": line}], to="~/cache", workers=1)

    assert result.path == str(home / "cache") and [*elsewhere.iterdir()] == []
    assert [row["text"] for row in Cache.open("~/cache")["train"]] == ["to be"]
    assert [batch["text"].tolist() for batch in Loader("~/cache/train", batch_size=1)] == [["to be"]]
    pack(write_cache("~/ids", {"train": [{"ids": [1, 2]}]})["train"], sequence_length=4).save("~/plans/plan")
    assert len(PackingPlan.load("~/plans/plan", Cache.open("~/ids")["train"])) == 1
    export("~/cache", "~/exported", format="webdataset")
    declaration = declare("poem", TextLines("~/poem.txt"), [lambda line: {"text": line}])
    SavedPlan.of(make_plan(declaration, "~/c")).save("~/p")
    assert SavedPlan.load("~/p").name == "poem"
    assert [*elsewhere.iterdir()] == [] and {"ids", "plans", "exported", "p"} <= {path.name for path in home.iterdir()}
