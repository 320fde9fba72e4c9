"""Mutations of a declaration's module: what may change records rebuilds shards, what cannot rebuilds none.

Each case is a text replaced in the module of a job that was built before.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built_files import built_files

from beam_pipes.building import Declaration
from beam_pipes.building.explanation import explain_plan
from beam_pipes.building.plan import make_plan
from beam_pipes.errors import CodeChangedError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions

JOB = '''
import dataclasses
import os

from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.building import Declaration
from beam_pipes.sources import TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

# How many words of a line are kept.
LIMIT = 5


def clean(word):
    lowered = word.lower()
    return lowered.strip(".")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Words(Pipeline):
    """A line as words."""

    input_type = str
    output_type = list
    version = "1"
    min_length: int = 1

    def transform(self, line):
        if line == "bad":
            raise ValueError(line)
        kept = [clean(word) for word in line.split() if len(word) >= self.min_length]
        return [kept[:LIMIT]]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Encode(Pipeline):
    input_type = list
    output_type = dict
    vocabulary: Asset

    def transform(self, words):
        with open(self.vocabulary.path) as file:
            known = file.read().split()
        codes = [known.index(word) if word in known else -1 for word in words]
        return [{"codes": codes, "draw": int(self.rng().integers(100))}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Initials(Pipeline):
    input_type = list
    output_type = dict

    def transform(self, words):
        return [{"initial": word[:1]} for word in words]


def declaration():
    words, initials = Words(), Initials()
    encode = Encode(vocabulary=Asset(os.environ["JOB_ASSET"]))
    return Declaration(
        name="job",
        source=TextLines(os.environ["JOB_INPUT"], pattern="*.txt"),
        pipeline=DAGPipeline(
            {words: Input(str), encode: words, initials: words, Output("train"): encode, Output("initials"): initials},
            "Job",
        ),
        features={
            "train": {
                "codes": FeatureSpec("int32", shape=(None,)),
                "draw": FeatureSpec("int64"),
            },
            "initials": {"initial": FeatureSpec("str")},
        },
        seed=0,
        on_error="dead_letter",
        max_bad=None,
        allow_empty=True,
        target_shard_bytes=100,
    )
'''


class Jobs:
    """Variants of the job, each a module of the same name in a directory of its own, and the cache of the first."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        self.input = directory / "input"
        self.asset = directory / "vocabulary.txt"
        self._monkeypatch = monkeypatch
        self._count = 0
        monkeypatch.setenv("JOB_INPUT", str(self.input))
        monkeypatch.setenv("JOB_ASSET", str(self.asset))

    def write_input(self) -> None:
        self.input.mkdir()
        for number in range(3):
            lines = [f"Some words. of line {number}-{line} in a file" for line in range(4)] + ["bad"] * (number == 1)
            (self.input / f"{number}.txt").write_text("\n".join(lines) + "\n")
        self.asset.write_text("some words of a file\n")

    def declaration(self, text: str = JOB, *, module: str = "job") -> Declaration:
        """The declaration of a variant of the module."""
        self._count += 1
        place = self.directory / f"variant-{self._count}"
        place.mkdir()
        (place / f"{module}.py").write_text(text)
        self._monkeypatch.syspath_prepend(str(place))
        sys.modules.pop(module, None)
        importlib.invalidate_caches()
        loaded: types.ModuleType = importlib.import_module(module)
        made: Declaration = loaded.declaration()
        return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as monkeypatch:
        jobs = Jobs(directory, monkeypatch)
        jobs.write_input()
        result = build(jobs.declaration(), jobs.cache, options=LocalOptions(workers=1))
        assert result.num_shards == 3 and result.account.dead == 1
        sys.modules.pop("job", None)
    yield directory


@pytest.fixture
def jobs(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    shutil.copytree(built, tmp_path / "job", symlinks=True, ignore=shutil.ignore_patterns("variant-*"))
    yield Jobs(tmp_path / "job", monkeypatch)
    sys.modules.pop("job", None)


def replaced(*pairs: tuple[str, str]) -> str:
    text = JOB
    for old, new in pairs:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return text


SEMANTIC = [
    pytest.param([("word.lower()", "word.upper()")], "code:job.clean", id="code_that_a_stage_calls"),
    pytest.param([("kept[:LIMIT]", "kept[1:LIMIT]")], "Words.code", id="code_of_a_stage"),
    pytest.param([("LIMIT = 5", "LIMIT = 2")], "const:job.LIMIT", id="constant"),
    pytest.param([('version = "1"', 'version = "2"')], "Words.version: ", id="version"),
    pytest.param([("Words(), Init", "Words(min_length=3), Init")], "Words.config.min_length: 1 → 3", id="config"),
    pytest.param([("min_length: int = 1", "min_length: int = 2")], "Words.config.min_length: 1 → 2", id="default"),
    pytest.param([("seed=0", "seed=1")], "seed: 0 → 1", id="seed"),
    pytest.param([('on_error="dead_letter"', 'on_error="drop"')], "on_error: dead_letter → drop", id="on_error"),
    pytest.param(
        [('FeatureSpec("int32", shape', 'FeatureSpec("int64", shape')],
        'split train.features.codes.dtype: "int32" → "int64"',
        id="feature_dtype",
    ),
    pytest.param(
        [("shape=(None,)", 'shape=(None,), encoding="list"')],
        'split train.features.codes.encoding: "raw" → "list"',
        id="encoding",
    ),
    pytest.param(
        [('FeatureSpec("int64")', 'FeatureSpec("int64", minimum=0)')],
        "split train.features.draw.minimum: added (0)",
        id="feature_range",
    ),
    pytest.param([('pattern="*.txt"', 'pattern="*.txt", strip_newline=False')], "source.strip_newline", id="source"),
    pytest.param([('Output("initials")', 'Output("first")'), ('"initials": {', '"first": {')], "first", id="output"),
    pytest.param([('"Job"', '"Work"')], "prefix: Job → Work", id="name_of_the_dag_which_prefixes_statistics"),
]


@pytest.mark.parametrize(("pairs", "field"), SEMANTIC)
def test_a_change_that_may_change_records_rebuilds_every_shard_and_says_what_changed(
    pairs: list[tuple[str, str]], field: str, jobs: Jobs
) -> None:
    declaration = jobs.declaration(replaced(*pairs))

    explained = explain_plan(make_plan(declaration, jobs.cache))
    result = build(declaration, jobs.cache, options=LocalOptions(workers=1), accept_code_change=True)

    assert field in "\n".join(explained.lines())
    assert [shard.hit for shard in explained.shards] == [False] * 3
    assert (result.up_to_date, result.reused_shards) == (False, 0)


def test_a_changed_asset_rebuilds_every_shard(jobs: Jobs) -> None:
    declaration = jobs.declaration()
    jobs.asset.write_text("other words\n")

    explained = explain_plan(make_plan(declaration, jobs.cache))

    assert explained.stages is not None
    assert [name for name, changed in explained.stages.items() if changed] == ["Encode"]
    assert explained.stages["Encode"][0].startswith("Encode.config.vocabulary: ")
    assert build(declaration, jobs.cache, options=LocalOptions(workers=1)).reused_shards == 0


def test_a_changed_join_rebuilds_every_shard(jobs: Jobs) -> None:
    fan_in = (
        (
            "input_type = list\n    output_type = dict\n\n",
            "input_type = {'a': list, 'b': list}\n    output_type = dict\n\n",
        ),
        ("for word in words]", "for word in words['a'] + words['b']]"),
        ("initials: words,", "initials: {'a': words, 'b': words},"),
    )
    product = replaced(*fan_in)
    build(jobs.declaration(product), jobs.cache, options=LocalOptions(workers=1), accept_code_change=True)
    declaration = jobs.declaration(
        product.replace('            "Job",\n', '            "Job",\n            join="zip",\n')
    )

    explained = explain_plan(make_plan(declaration, jobs.cache))
    result = build(declaration, jobs.cache, options=LocalOptions(workers=1))

    assert "Initials.inputs: " in "\n".join(explained.lines())
    assert (result.up_to_date, result.reused_shards) == (False, 0)


COSMETIC = [
    pytest.param([("# How many", "\n\n# As many as")], id="comment"),
    pytest.param([('"""A line as words."""', '"""Words\n\n    of a line."""')], id="docstring"),
    pytest.param([("import dataclasses\n", "import dataclasses\n" + "\n" * 50)], id="line_numbers"),
    pytest.param([("[kept[:LIMIT]]", "[ kept[ : LIMIT ] ]")], id="formatting"),
    pytest.param([("LIMIT = 5\n", "LIMIT = 5\nUNRELATED = 3\n")], id="unrelated_code"),
    pytest.param([("max_bad=None", "max_bad=3")], id="max_bad"),
]


@pytest.mark.parametrize("pairs", COSMETIC)
def test_a_change_that_cannot_change_records_rebuilds_nothing(pairs: list[tuple[str, str]], jobs: Jobs) -> None:
    assert build(jobs.declaration(replaced(*pairs)), jobs.cache).up_to_date


def _touch(jobs: Jobs) -> None:
    for path in jobs.input.iterdir():
        os.utime(path, (1, 1))


def _move_input(jobs: Jobs) -> None:
    shutil.move(jobs.input, jobs.directory / "elsewhere")
    os.environ["JOB_INPUT"] = str(jobs.directory / "elsewhere")


def _move_asset(jobs: Jobs) -> None:
    (jobs.directory / "assets").mkdir()
    shutil.move(jobs.asset, jobs.directory / "assets" / jobs.asset.name)
    os.environ["JOB_ASSET"] = str(jobs.directory / "assets" / jobs.asset.name)


def _move_cache(jobs: Jobs) -> None:
    shutil.move(jobs.cache, jobs.directory / "other-cache")
    jobs.cache = jobs.directory / "other-cache"


@pytest.mark.parametrize("move", [_touch, _move_input, _move_asset, _move_cache], ids=lambda move: move.__name__)
def test_times_and_places_rebuild_nothing(move: Callable[[Jobs], None], jobs: Jobs) -> None:
    move(jobs)

    assert build(jobs.declaration(), jobs.cache).up_to_date


def test_a_moved_module_rebuilds_nothing(jobs: Jobs) -> None:
    declaration = jobs.declaration(module="job_of_another_name")

    assert explain_plan(make_plan(declaration, jobs.cache)).stops == {}
    assert build(declaration, jobs.cache).up_to_date


@pytest.mark.parametrize("runner", ["two_workers", "beam"])
def test_another_runner_rebuilds_nothing(runner: str, jobs: Jobs) -> None:
    options = LocalOptions(workers=2) if runner == "two_workers" else BeamOptions()

    assert build(jobs.declaration(), jobs.cache, options=options).up_to_date


def test_another_process_and_hash_seed_rebuild_nothing(jobs: Jobs) -> None:
    jobs.declaration()
    code = (
        "import job; from beam_pipes.runners.build import build; "
        f"print(build(job.declaration(), {str(jobs.cache)!r}).up_to_date)"
    )
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("change", ["added", "changed", "removed"])
def test_a_change_of_one_input_file_rebuilds_its_shard_only(change: str, jobs: Jobs) -> None:
    if change == "added":
        (jobs.input / "3.txt").write_text("an entirely new line of the input, " * 3)
    elif change == "changed":
        (jobs.input / "0.txt").write_text((jobs.input / "0.txt").read_text().replace("Some", "More"))
    else:
        (jobs.input / "2.txt").unlink()

    explained = explain_plan(make_plan(jobs.declaration(), jobs.cache))
    result = build(jobs.declaration(), jobs.cache, options=LocalOptions(workers=1))

    assert result.num_shards - result.reused_shards == (0 if change == "removed" else 1)
    missed = [shard for shard in explained.shards if not shard.hit]
    assert len(missed) == result.num_shards - result.reused_shards
    if change == "added":
        assert missed[0].reasons == ("3.txt: added",)
    if change == "changed":
        assert missed[0].reasons[0].startswith("0.txt bytes 0-")
        assert "digest" in missed[0].reasons[0]
    build(jobs.declaration(), jobs.directory / "cold", options=LocalOptions(workers=1))
    warm, cold = built_files(jobs.cache), built_files(jobs.directory / "cold")
    assert {name: warm[name] for name in cold} == cold


CODE = ("word.lower()", "word.upper()")


def test_code_that_changed_under_the_same_version_stops_the_build(jobs: Jobs) -> None:
    declaration = jobs.declaration(replaced(CODE))

    with pytest.raises(CodeChangedError) as caught:
        build(declaration, jobs.cache)

    message = str(caught.value)
    assert "the version did not: stage 'Words' (code:job.clean: " in message
    assert "raise the `version` of these stages" in message
    assert "--accept-code-change (accept_code_change=True)" in message
    assert caught.value.stages == ["Words"]
    stops = explain_plan(make_plan(declaration, jobs.cache))
    assert "STOP Words: its code changed and its version did not" in "\n".join(stops.lines())
    assert build(jobs.declaration(), jobs.cache).up_to_date  # what was published is untouched


def test_code_that_changed_together_with_its_version_is_built(jobs: Jobs) -> None:
    declaration = jobs.declaration(replaced(CODE, ('version = "1"', 'version = "2"')))

    assert not build(declaration, jobs.cache, options=LocalOptions(workers=1)).up_to_date


def test_a_change_of_configuration_alone_does_not_stop_a_build(jobs: Jobs) -> None:
    declaration = jobs.declaration(replaced(("Words(), Init", "Words(min_length=3), Init")))

    assert not build(declaration, jobs.cache, options=LocalOptions(workers=1)).up_to_date


def test_the_command_line_accepts_a_code_change_and_explains(jobs: Jobs) -> None:
    jobs.declaration(replaced(CODE))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}

    def beam_pipes(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "beam_pipes", *arguments, "job:declaration", "--to", str(jobs.cache)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    explained = beam_pipes("plan", "--explain")
    assert "MISS Words: code:job.clean: " in explained.stdout
    assert "HIT  Initials" in explained.stdout
    assert "MISS shards 0-2: the declaration changed (Words)" in explained.stdout
    assert "0 of 3 source shards: HIT, 3: MISS." in explained.stdout
    stopped = beam_pipes("build", "--workers", "1")
    assert stopped.returncode == 1 and "--accept-code-change" in stopped.stderr
    accepted = beam_pipes("build", "--workers", "1", "--accept-code-change")
    assert accepted.returncode == 0, accepted.stderr
    assert "HIT  Words" in beam_pipes("plan", "--explain").stdout
