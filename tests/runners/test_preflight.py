"""Thirty faults, each put into a declaration that is right: found, in words, before any input is opened."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from beam_pipes.building.checks import needed_modules
from beam_pipes.building.leftovers import build_lock
from beam_pipes.cache import FeatureSpec
from beam_pipes.commands.options import Running
from beam_pipes.errors import (
    BeamPipesError,
    CacheBusyError,
    CacheError,
    CacheWriteError,
    CodeChangedError,
    DeclarationError,
    InvalidDAGException,
    MissingExtraError,
    NotConnectedException,
    PipelineError,
    PlanError,
    SourceError,
    SpecError,
    TypeMismatchException,
    UnsupportedFormatError,
)
from beam_pipes.runners import BeamOptions, LocalOptions, build
from beam_pipes.runners.preflight import preflight
from beam_pipes.sources import Memory

RIGHT = """
import threading
from dataclasses import dataclass, field

from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.building import Declaration
from beam_pipes.sources import TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline


@dataclass(frozen=True, eq=False, kw_only=True)
class Split(Pipeline):
    input_type = str
    output_type = list
    version: int = 1
    stop_words: Asset = Asset("ROOT/stop_words.txt")

    def transform(self, line):
        with open(self.stop_words) as file:
            stop_words = set(file.read().split())
        return [[word for word in line.split() if word not in stop_words]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Pipeline):
    input_type = list
    output_type = dict

    def transform(self, words):
        return [{"words": len(words)}]


split, count = Split(), Count()
declaration = Declaration(
    name="words",
    source=TextLines("ROOT/input", pattern="*.txt"),
    pipeline=DAGPipeline({split: Input(str), count: split, Output("train"): count}),
    features={"words": FeatureSpec("int64")},
)
"""

_opened: list[str] = []
_watched: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str) and arguments[0].startswith(_watched[0]):
        _opened.append(arguments[0])


sys.addaudithook(_note)  # hooks stay for the life of a process: this one does nothing while nothing is watched


class Site:
    """A directory with input, an asset, and modules that hold declarations."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input = root / "input"
        self.input.mkdir()
        (self.input / "a.txt").write_text("to be or\nnot to be\n")
        (root / "stop_words.txt").write_text("or\n")
        self.to = str(root / "cache")
        self.modules = 0

    def module(self, old: str = "", new: str = "") -> str:
        """A declaration with one change; its reference."""
        assert RIGHT.count(old), old
        self.modules += 1
        name = f"preflight_{re.sub(r'[^a-z0-9]', '_', self.root.name.lower())}_{self.modules}"
        text = RIGHT.replace(old, new, 1) if old else RIGHT
        (self.root / f"{name}.py").write_text(text.replace("ROOT", str(self.root)))
        importlib.invalidate_caches()
        return f"{name}:declaration"


class Fault(NamedTuple):
    """Text of the declaration that is replaced; what is done to the site; the error, and its words."""

    error: type[BeamPipesError]
    words: str
    old: str = ""
    new: str = ""
    site: Callable[[Site], Any] = lambda site: None
    runner: tuple[str, ...] = ()


def _set_to(path: str) -> Callable[[Site], None]:
    def change(site: Site) -> None:
        site.to = path.replace("ROOT", str(site.root))

    return change


def _newer_format(site: Site) -> None:
    build(site.module(), site.to, options=LocalOptions(workers=1))
    manifest = Path(site.to) / "manifest.json"
    text = re.sub(r'"format_version": ?\d+', '"format_version": 99', manifest.read_text())
    manifest.unlink()
    manifest.write_text(text)


def _dangling_link(site: Site) -> None:
    (site.root / "words").mkdir()
    (site.root / "words" / "link").symlink_to("nowhere")


def _built(site: Site) -> None:
    build(site.module(), site.to, options=LocalOptions(workers=1))


DATAFLOW = ("dataflow", "--project=my-project", "--region=europe-west1", "--temp_location=gs://bucket/temp")

FAULTS = {
    # Types along every edge, and what leaves the graph.
    "source gives another type": Fault(
        TypeMismatchException,
        "the source Files gives FileContent, but .* takes str",
        "import TextLines",
        "import Files as TextLines",
    ),
    "edge between two stages": Fault(
        PipelineError, "'Count' takes bytes, but Split gives list", "input_type = list", "input_type = bytes"
    ),
    "key that a stage does not have": Fault(
        InvalidDAGException,
        "the output of 'Split' is list, which has no keys",
        "count: split,",
        'count: split["train"],',
    ),
    "stage that leads nowhere": Fault(
        NotConnectedException, "'Count' is used, but nothing feeds it", "count: split, ", ""
    ),
    "output that cannot be stored": Fault(
        BeamPipesError,
        "'train' is list, which cannot be stored",
        'count: split, Output("train"): count',
        'Output("train"): split',
    ),
    "name of a split": Fault(
        BeamPipesError,
        "the output 'a/b' names a split, which is used in file names",
        'Output("train")',
        'Output("a/b")',
    ),
    "features of no split": Fault(
        DeclarationError,
        r"features are declared for \['test'\], but the outputs that hold examples are \['train'\]",
        'features={"words": FeatureSpec("int64")}',
        'features={"test": {"words": FeatureSpec("int64")}}',
    ),
    "dtype that does not exist": Fault(
        SpecError, "expected a dtype, one of bool, .*got 'int63'", 'FeatureSpec("int64")', 'FeatureSpec("int63")'
    ),
    "unknown on_error": Fault(
        DeclarationError,
        "on_error should be one of fail, drop, dead_letter, got 'ignore'",
        'name="words",',
        'name="words", on_error="ignore",',
    ),
    # Assets and configuration.
    "asset that is missing": Fault(
        DeclarationError,
        "stage 'Split': asset '.*stop_words.txt' cannot be read: No such file",
        site=lambda site: (site.root / "stop_words.txt").unlink(),
    ),
    "asset with a dangling link": Fault(
        DeclarationError,
        "stage 'Split': asset '.*words' cannot be read: No such file",
        "ROOT/stop_words.txt",
        "ROOT/words",
        site=_dangling_link,
    ),
    "configuration that cannot be compared": Fault(
        DeclarationError,
        "stage 'Count': Count.lock is a _thread.lock, which has no canonical form",
        "    output_type = dict\n",
        "    output_type = dict\n    lock: object = field(default_factory=threading.Lock)\n",
    ),
    # Modules that stages need.
    "module of ours that is not installed": Fault(
        MissingExtraError,
        r"stage 'Count' imports webdataset\.nowhere when it runs \(preflight_.*:\d+\), which is not "
        r"installed: pip install 'beam-pipes\[formats\]'",
        '        return [{"words": len(words)}]',
        '        import webdataset.nowhere\n        return [{"words": len(words)}]',
    ),
    "module of a user's own that is not installed": Fault(
        DeclarationError,
        r"stage 'Count' imports a_library_of_yours when it runs \(preflight_.*\), which is not "
        "installed: install it here, and put it into what workers install",
        '        return [{"words": len(words)}]',
        '        return [{"words": helper(words)}]\n\n\ndef helper(words):\n    import a_library_of_yours\n',
    ),
    # Input.
    "input that is missing": Fault(
        SourceError, "input '.*nowhere' cannot be read: No such file", "ROOT/input", "ROOT/nowhere"
    ),
    "pattern that matches nothing": Fault(
        SourceError, r"no file matches: looked in .* for pattern '\*.json'", '"*.txt"', '"*.json"'
    ),
    "input without a byte": Fault(
        SourceError,
        "the input of 'words' is empty: 1 files match, and all have 0 bytes",
        site=lambda site: (site.input / "a.txt").write_text(""),
    ),
    "input inside of the cache": Fault(
        DeclarationError,
        "the input file 'a.txt' lies inside of the cache '.*input'. Keep input and cache apart",
        site=_set_to("ROOT/input"),
    ),
    "cache inside of the input": Fault(
        DeclarationError,
        "the cache '.*input/cache' lies inside of the input .*: the next build would read",
        '"*.txt"',
        '"**/*"',
        site=_set_to("ROOT/input/cache"),
    ),
    # The cache's directory.
    "cache below a file": Fault(
        CacheWriteError,
        "the cache '.*stop_words.txt/cache' cannot be written: a part of that path is a file",
        site=_set_to("ROOT/stop_words.txt/cache"),
    ),
    "cache where nothing can be written": Fault(
        CacheWriteError, "the cache '/proc/self/cache' cannot be written", site=_set_to("/proc/self/cache")
    ),
    "scheme that nobody serves": Fault(
        CacheError, "file systems, gs://, s3:// or az://, got the scheme 'ftp'", site=_set_to("ftp://host/cache")
    ),
    "cache of a newer format": Fault(UnsupportedFormatError, "expected format version 1, found 99", site=_newer_format),
    "code that changed under the same version": Fault(
        CodeChangedError,
        "the code changed since .* was built, and the version did not: stage 'Count'",
        "len(words)",
        "2 * len(words)",
        site=_built,
    ),
    # Runners and workers.
    "reference that leads nowhere": Fault(
        DeclarationError, "has no 'declaration': it holds the declarations", "declaration = Declar", "declared = Declar"
    ),
    "no such runner": Fault(DeclarationError, "--runner should be one of local", runner=("spark",)),
    "Dataflow without a project": Fault(
        DeclarationError, "dataflow: project, region, temp_location should be given", runner=("dataflow",)
    ),
    "Dataflow without what workers install": Fault(
        DeclarationError, "dataflow: workers get the declaration .* give one of them, got neither", runner=DATAFLOW
    ),
    "Dataflow to a local cache": Fault(
        DeclarationError,
        "dataflow: the cache is in '.*cache', which workers in the cloud cannot see",
        runner=(*DATAFLOW, "--sdk_container_image=image"),
    ),
    "limit that cannot be met": Fault(
        BeamPipesError,
        "record_timeout_secs should be a number of .*got -1",
        'name="words",',
        'name="words", record_timeout_secs=-1,',
    ),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    _watched.clear()
    _opened.clear()


def _options(runner: tuple[str, ...]) -> LocalOptions | BeamOptions:
    name, args = (runner[0], list(runner[1:])) if runner else ("local", [])
    return Running(runner=name).options(args)


def test_what_is_right_has_no_fault(site: Site) -> None:
    _watched.append(str(site.input) + os.sep)

    assert preflight(site.module(), site.to).name == "words"

    assert _opened == []
    assert sorted(path.name for path in site.root.iterdir() if path.suffix != ".py") == ["input", "stop_words.txt"]
    (site.input / "a.txt").read_text()
    assert _opened == [str(site.input / "a.txt")], "the watch would have seen it"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_before_any_input_is_opened(site: Site, name: str) -> None:
    fault = FAULTS[name]
    fault.site(site)
    reference = site.module(fault.old, fault.new)
    _watched.append(str(site.input / "a.txt"))

    with pytest.raises(fault.error, match=fault.words):
        preflight(reference, site.to, options=_options(fault.runner))

    assert _opened == []


def test_there_are_thirty_of_them() -> None:
    assert len(FAULTS) == 30


def test_another_build_in_the_directory_is_named(site: Site) -> None:
    with build_lock(site.to), pytest.raises(CacheBusyError, match=rf"another build is writing .*{os.getpid()}"):
        preflight(site.module(), site.to)


def test_several_faults_are_reported_at_once(site: Site) -> None:
    (site.root / "stop_words.txt").unlink()
    (site.input / "a.txt").write_text("")

    with pytest.raises(PlanError) as caught:
        preflight(site.module(), "ftp://host/cache")

    assert str(caught.value).startswith("3 faults, found before any input was read:\n  1. stage 'Split': asset ")
    assert [type(fault) for fault in caught.value.faults] == [DeclarationError, SourceError, CacheError]


def test_a_declaration_that_cannot_be_sent_to_workers(site: Site) -> None:
    module = importlib.import_module(site.module().partition(":")[0])

    class Local(module.Count):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def fingerprint_config(self) -> dict[str, Any]:
            return {}

    pipeline = module.DAGPipeline(
        {module.split: module.Input(str), (local := Local()): module.split, module.Output("train"): local}
    )
    unnamed = module.Declaration(
        name="words", source=module.declaration.source, pipeline=pipeline, features={"words": FeatureSpec("int64")}
    )

    with pytest.raises(DeclarationError, match="cannot be sent to workers: stage 'Local': .*lock.*or give"):
        preflight(unnamed, site.to, options=LocalOptions(workers=2))
    preflight(unnamed, site.to, options=LocalOptions(workers=1))


def test_a_job_graph_that_services_refuse(site: Site) -> None:
    module = importlib.import_module(site.module().partition(":")[0])
    values = module.Declaration(
        name="words",
        source=Memory([[os.urandom(4 << 20).hex()]]),
        pipeline=module.Count(),
        features={"words": FeatureSpec("int64")},
    )

    with pytest.raises(PlanError, match=r"the job graph has [\d,]+ bytes, and services take 10,485,760"):
        preflight(values, site.to, options=BeamOptions())
    preflight(site.module(), site.to, options=BeamOptions())


def test_imports_that_may_not_happen_are_not_asked_for(site: Site) -> None:
    body = """
        try:
            import a_fast_library
        except ImportError:
            pass
        if len(words) > 10**9:
            import a_large_library
        for word in words:
            import json
        return [{"words": len(words)}]"""
    module = importlib.import_module(site.module('\n        return [{"words": len(words)}]', body).partition(":")[0])

    assert list(needed_modules(module.count)) == ["json"]


def test_the_command_line_tells_faults_and_reads_nothing(site: Site) -> None:
    reference = site.module("ROOT/stop_words.txt", "ROOT/nowhere.txt")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site.root), *sys.path])}

    done = subprocess.run(
        [sys.executable, "-m", "beam_pipes", "plan", reference, "--to", site.to],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("beam-pipes: stage 'Split': asset ")
    assert done.stdout == ""
