"""Fixtures that several rooms share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import sample_declarations
from hypothesis import settings
from sample_lines import make_lines

# Every run tries the same examples, however long the machine takes over one. Others: `--hypothesis-profile=explore`.
settings.register_profile("tests", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("tests")

# Files of a minute to several, the longest first. A worker that begins one of them last keeps the others waiting.
_LONG = [
    "portable/test_builds_on_flink.py",
    "test_docs.py",
    "tasks/test_seqio_itself.py",
    "portable/test_builds_on_prism.py",
    "runners/test_dataflow_job.py",
    "portable/test_collections_on_flink.py",
    "on_device/test_keras.py",
    "tft/test_transform_fn_builds.py",
    "strangers/test_programs_pass_type_checkers.py",
    "strangers/test_wheel.py",
    "runners/test_images.py",
    "loader/test_worlds.py",
    "loader/test_meshes.py",
    "docs/test_site.py",
    "runners/test_cli.py",
]

# What colours the words of commands though no terminal reads them.
_COLOURS = ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS")


def pytest_configure() -> None:
    """Where the tests run in the background, they ignore SIGINT, and processes that they start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in _COLOURS:
        os.environ.pop(name, None)
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # as the command line has it
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="beam-pipes-tests-")  # what is kept for a user
    gc.disable()  # tests and their imports all stay: looking for garbage among them is a third of the collection


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first, and `--no-loadscope-reorder` lets them: xdist would begin with those of most tests."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONG)}
    assert all(path.is_file() for path in places), f"not all of these are files of tests: {_LONG}"
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """No full collection of garbage, 0.1 s to 0.5 s each, has to look at thousands of tests and modules again."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # not 700: what tests import in their turn, as TensorFlow, takes a fifth less
    gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.fixture
def text_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of text files, one large enough to be split, eight to be grouped; sample declarations read it."""
    directory = tmp_path / "input"
    (directory / "sub").mkdir(parents=True)
    (directory / "large.txt").write_text(make_lines(0, 400), encoding="utf-8")
    for index in range(8):
        (directory / "sub" / f"small-{index}.txt").write_text(make_lines(1 + index, 12), encoding="utf-8")
    monkeypatch.setenv(sample_declarations.INPUT_VARIABLE, str(directory))
    return directory
