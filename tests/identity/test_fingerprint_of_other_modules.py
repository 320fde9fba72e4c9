"""Fingerprints of stages whose code lies elsewhere: in decorators, and in modules that a stage imports when it runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from beam_pipes.identity.fingerprint import Fingerprint, fingerprint, set_values

DECORATORS = """
import functools

def wrapped(by):
    def decorate(function):
        @functools.wraps(function)
        def inner(self, line):
            return [by * value for value in function(self, line)]
        return inner
    return decorate

def bare(by):
    def decorate(function):
        def inner(self, line):
            return [by * value for value in function(self, line)]
        return inner
    return decorate
"""

STAGE = """
import dataclasses
from made_decorators import bare, wrapped

@dataclasses.dataclass(frozen=True)
class Stage:
    input_type = str
    output_type = int

    {decorator}
    def transform(self, line):
        {statement}
        return [helper.FACTOR]
"""

Load = Callable[..., Fingerprint]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Writes the modules and imports them afresh; fingerprints the stage."""
    names = ("made_stage", "made_decorators", "made_helper")
    runs = iter(range(100))

    def load(
        *,
        decorator: str = "",
        statement: str = "import made_helper as helper",
        decorators: str = DECORATORS,
        helper: str = "FACTOR = 1",
        loaded: tuple[str, ...] = (),
    ) -> Fingerprint:
        directory = tmp_path / str(next(runs))
        directory.mkdir()
        texts = (STAGE.format(decorator=decorator, statement=statement), decorators, helper)
        for name, text in zip(names, texts, strict=True):
            (directory / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        monkeypatch.syspath_prepend(directory)
        for name in loaded:
            importlib.import_module(name)
        return fingerprint(importlib.import_module("made_stage").Stage())

    yield load
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("decorator", ["wrapped", "bare"])
def test_the_arguments_and_the_body_of_a_decorator_count_though_it_is_on_every_method(
    load: Load, decorator: str
) -> None:
    one = load(decorator=f"@{decorator}(1)")
    other_argument = load(decorator=f"@{decorator}(2)")
    other_body = load(decorator=f"@{decorator}(1)", decorators=DECORATORS.replace("by * value", "by + value"))

    assert len({one.digest, other_argument.digest, other_body.digest}) == 3
    assert load(decorator=f"@{decorator}(1)").digest == one.digest


@pytest.mark.parametrize("statement", ["import made_helper as helper", "from made_helper import FACTOR; helper = None"])
def test_a_module_that_is_imported_within_a_method_counts_whether_it_is_loaded_or_not(
    load: Load, statement: str
) -> None:
    first = load(statement=statement)
    loaded = load(statement=statement, loaded=("made_helper",))
    changed = load(statement=statement, helper="FACTOR = 2")

    assert loaded.digest == first.digest
    assert loaded.parts == first.parts
    assert changed.digest != first.digest


@pytest.mark.parametrize("module", ["plistlib", "wsgiref", "pip"])
def test_an_installed_module_counts_by_its_name_and_is_not_imported_for_it(load: Load, module: str) -> None:
    statement = f"import made_helper as helper, {module}; {module}.anything"
    kept = {name: found for name, found in sys.modules.items() if name.partition(".")[0] == module}
    for name in kept:
        del sys.modules[name]
    try:
        absent = load(statement=statement)
        assert module not in sys.modules
        present = load(statement=statement, loaded=(module,))
    finally:
        sys.modules.update(kept)

    assert absent.digest == present.digest
    assert absent.digest != load().digest


def test_a_module_that_cannot_be_found_is_left_out(load: Load) -> None:
    assert load(statement="import made_helper as helper, made_nowhere").digest


SETTINGS = """
class Settings:
    size: int = 1
    rate: float
    made = len("two")
    sides = left, right = 3, 4
    names = ["a"]

    def area(self):
        width = self.size
        return width * width

class Larger(Settings):
    pass

def stage(number):
    return number * Larger.size
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "made_settings.py").write_text(SETTINGS)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("made_settings")
    del sys.modules["made_settings"]


@pytest.mark.parametrize(
    ("name", "value"), [("size", 2), ("size", 1.0), ("rate", 0.5), ("names", ["a", "b"]), ("added", None), ("width", 5)]
)
def test_what_a_program_sets_on_a_class_counts(settings: ModuleType, name: str, value: object) -> None:
    before = fingerprint(settings.stage)
    setattr(settings.Settings, name, value)
    after = fingerprint(settings.stage)

    assert not any(key.startswith("const:") for key in before.parts)
    assert {key for key in after.parts if key.startswith("const:")} == {f"const:made_settings.Settings.{name}"}
    assert after.digest != before.digest


def test_values_that_a_program_has_set_are_named_by_their_places(settings: ModuleType) -> None:
    settings.Larger.size = 7  # type: ignore[attr-defined]

    assert set_values([settings.stage]) == {("made_settings", "Larger.size"): 7}


@pytest.mark.parametrize("make", ["types.SimpleNamespace(size=1)", "argparse.Namespace(size=1)"])
def test_what_a_program_puts_into_a_namespace_counts(
    make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"import argparse, types\noptions = {make}\n\ndef stage(number):\n    return number * options.size\n"
    (tmp_path / "made_options.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("made_options")
    try:
        before = fingerprint(made.stage)
        made.options.size = 2
        after = fingerprint(made.stage)
        output = set_values([made.stage])
    finally:
        del sys.modules["made_options"]

    assert before.digest != after.digest
    assert output == {("made_options", "options.size"): 2}


STATE = """
model, calls, limit = None, 0, 5
loaded = {"made": None}

def configure(number):
    global limit
    limit = number

def load():
    global model
    if model is None:
        model = [3]
    return model

def stage(number):
    global calls
    calls += 1
    return number * load()[0] + limit
"""


def test_what_the_code_itself_assigns_is_state_and_not_a_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that the first record loads, or a counter of records, is no other code when the next build begins."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "made_state.py"

    def load(text: str) -> ModuleType:
        path.write_text(text)
        sys.modules.pop("made_state", None)
        importlib.invalidate_caches()
        return importlib.import_module("made_state")

    try:
        made = load(STATE)
        before = fingerprint(made.stage)
        made.stage(1)
        after = fingerprint(made.stage)
        output = set_values([made.stage])
        made.configure(6)
        configured = fingerprint(made.stage)
        started = fingerprint(load(STATE.replace("None, 0, 5", "None, 10, 5")).stage)
    finally:
        sys.modules.pop("made_state", None)

    assert after.parts == before.parts
    assert output == {("made_state", "limit"): 5}
    assert before.digest not in (configured.digest, started.digest)


FILLED = """
import collections
from collections import Counter

lengths, initials = {}, list()
words: set[str] = set()
occurrences = Counter()
nested = collections.defaultdict(dict)
options = {"size": 1}
given = {}

class Lengths:
    known = {}
    calls = 0
    latest = ""
    factor = 1
    size = 1

    def __init__(self):
        self.size = 1
        self.known["a"] = 1
        type(self).latest = "a"
        Lengths.calls += 1

def stage(line):
    local = {}
    Lengths().known.setdefault(line, Lengths.factor)
    local[line] = options.setdefault("factor", 1)
    for word in line.split():
        if word not in lengths:
            lengths[word] = len(word)
        words.add(word)
        initials.append(word[0])
        occurrences.update([word])
        nested[word]["length"] = len(word)
    return [lengths[word] * options["size"] + given.get(word, 0) for word in line.split()]
"""


def test_what_the_code_itself_fills_is_state_and_not_a_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dict of what was computed before, as notebooks have it. One that does not begin empty may hold settings."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_filled.py").write_text(FILLED)
    made = importlib.import_module("made_filled")
    try:
        made.options["factor"] = 1
        before = fingerprint(made.stage)
        made.stage("a bb ccc")
        after, output = fingerprint(made.stage), set_values([made.stage])
        made.given["a"] = 1
        filled_by_program = fingerprint(made.stage)
        made.options["size"] = 2
        set_by_program = fingerprint(made.stage)
        made.Lengths.factor = 2
        of_class = fingerprint(made.stage)
        made.Lengths.size = 2
        of_class_beside_its_objects = fingerprint(made.stage)
    finally:
        sys.modules.pop("made_filled", None)

    assert after.parts == before.parts
    assert {name for _, name in output} == {"options", "given"}
    all_of_them = before, filled_by_program, set_by_program, of_class, of_class_beside_its_objects
    assert len({each.digest for each in all_of_them}) == 5
