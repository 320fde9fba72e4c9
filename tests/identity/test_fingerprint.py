"""What changes a fingerprint and what does not: a table of mutations of a small package, and of one stage's state."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import json
import linecache
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_pipes.errors import DeclarationError
from beam_pipes.format.messages import Example, SequenceExample
from beam_pipes.identity.fingerprint import Asset, Fingerprint, content_changes, explain, fingerprint
from beam_pipes.identity.normalized_code import bare, code_facts
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition

FILES = {
    "__init__.py": "",
    "helpers.py": '''
"""Helpers."""
import functools
import re
import numpy as np

LIMIT = 80
UNUSED = 1
NAMES = {"a": 1, "b": 2}
WORD = re.compile(r"[a-z]+")


def strip(text: str) -> str:
    """Takes blanks off."""
    out = text.strip()
    return out


def unrelated(x):
    return x + 1


def with_keyword(text, *, width=3):
    return text[:width]


@functools.lru_cache
def cached(text):
    total = 0
    for index, character in enumerate(text):
        if character in NAMES:
            total += index
    return total


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def sort(values):
    return np.sort(values)


class Base:
    factor = 2

    def scaled(self, n):
        return n * self.factor
''',
    "stages.py": '''
"""Stages."""
from dataclasses import dataclass

from pkg import helpers
from pkg.helpers import Base, strip


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokenize(Base):
    """Splits a line into words."""

    version = 1
    min_length: int = 1

    def transform(self, line: str) -> list[str]:
        # Only words.
        words = strip(line)[: helpers.LIMIT].split()
        kept = [word for word in words if len(word) >= self.min_length]
        helpers.even(len(kept))
        helpers.sort(kept)
        return self.finish(kept)

    def finish(self, words):
        short = helpers.with_keyword(words, width=5)
        try:
            return [helpers.cached(w) for w in short if helpers.WORD.match(w)]
        except ValueError as error:
            raise TypeError(str(error))
''',
}


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Fingerprint]]:
    """Writes the package with its text replaced, imports it afresh and fingerprints `Tokenize`."""
    path = list(sys.path)
    count = iter(range(1000))

    def load(*edits: tuple[str, str, str], name: str = "pkg", **config: Any) -> Fingerprint:
        root = tmp_path / f"copy{next(count)}"
        (root / name).mkdir(parents=True)
        for file, text in FILES.items():
            for edited, old, new in edits:
                if edited == file:
                    assert old in text
                    text = text.replace(old, new)
            (root / name / file).write_text(text.replace("pkg", name))
        for module in [m for m in sys.modules if m.split(".")[0] == name]:
            del sys.modules[module]
        sys.path[:] = [str(root), *path]
        importlib.invalidate_caches()
        return fingerprint(importlib.import_module(f"{name}.stages").Tokenize(**config))

    yield load
    sys.path[:] = path
    for module in [m for m in sys.modules if m.split(".")[0] in ("pkg", "other")]:
        del sys.modules[module]


COSMETIC = {
    "a comment": ("stages.py", "# Only words.", "# Words, and nothing else."),
    "a docstring": ("stages.py", '"""Splits a line into words."""', '"""Says it another way."""'),
    "a docstring that goes": ("helpers.py", '    """Takes blanks off."""\n', ""),
    "blank lines": ("stages.py", "    def finish", "\n\n\n    def finish"),
    "other line numbers": ("helpers.py", "import functools", "\n\n\n\nimport functools"),
    "layout of an expression": (
        "stages.py",
        "helpers.LIMIT].split()",
        "\n            helpers.LIMIT\n        ].split()",
    ),
    "quotes": ("helpers.py", 'r"[a-z]+"', "r'[a-z]+'"),
    "annotations": ("stages.py", "line: str) -> list[str]:", "line):"),
    "an annotation of a local variable": ("helpers.py", "total = 0", "total: int = 0"),
    "an unused constant": ("helpers.py", "UNUSED = 1", "UNUSED = 2"),
    "a function that is not called": ("helpers.py", "return x + 1", "return x + 2"),
    "a constant computed another way": ("helpers.py", "LIMIT = 80", "LIMIT = 40 * 2"),
    "a needless pass": ("helpers.py", "total = 0", "total = 0\n    pass"),
}

SEMANTIC = {
    "an operator": ("stages.py", ">=", ">", "Tokenize.code"),
    "a literal in a method": ("stages.py", "width=5", "width=6", "Tokenize.code"),
    "a default of a field": ("stages.py", "min_length: int = 1", "min_length: int = 2", "Tokenize.code"),
    "a called helper's body": ("helpers.py", "text.strip()", "text.lstrip()", "code:pkg.helpers.strip"),
    "a helper of a helper": ("helpers.py", "return False if n == 0", "return True if n == 0", "code:pkg.helpers.odd"),
    "a helper behind a cache": ("helpers.py", "total += index", "total -= index", "code:pkg.helpers.cached"),
    "a default argument": ("helpers.py", "width=3", "width=4", "code:pkg.helpers.with_keyword"),
    "a constant": ("helpers.py", "LIMIT = 80", "LIMIT = 81", "const:pkg.helpers.LIMIT"),
    "the order of a dict": ("helpers.py", '{"a": 1, "b": 2}', '{"b": 2, "a": 1}', "const:pkg.helpers.NAMES"),
    "a constant of a helper": ("helpers.py", '"b": 2', '"b": 3', "const:pkg.helpers.NAMES"),
    "a pattern": ("helpers.py", "[a-z]+", "[a-y]+", "const:pkg.helpers.WORD"),
    "a base class": ("helpers.py", "n * self.factor", "n + self.factor", "code:pkg.helpers.Base"),
    "an attribute of a base class": ("helpers.py", "factor = 2", "factor = 3", "code:pkg.helpers.Base"),
    "the version": ("stages.py", "version = 1", "version = 2", "Tokenize.version"),
    "which library is called": ("helpers.py", "import numpy as np", "import numpy.ma as np", "code:pkg.helpers.sort"),
    "a decorator": ("helpers.py", "@functools.lru_cache", "@functools.lru_cache(maxsize=1)", "code:pkg.helpers.cached"),
    "which helper is called": ("stages.py", "helpers.even", "helpers.odd", "Tokenize.code"),
    "the order of statements": (
        "stages.py",
        "        helpers.even(len(kept))\n        helpers.sort(kept)\n",
        "        helpers.sort(kept)\n        helpers.even(len(kept))\n",
        "Tokenize.code",
    ),
    "two variables swapped": (
        "helpers.py",
        "for index, character in",
        "for character, index in",
        "code:pkg.helpers.cached",
    ),
    "the caught exception": ("stages.py", "except ValueError", "except KeyError", "Tokenize.code"),
    "a local variable's name": ("helpers.py", "out", "result", "code:pkg.helpers.strip"),
    "a parameter's name": ("stages.py", "line", "text", "Tokenize.code"),
    "the type of a number": ("helpers.py", "LIMIT = 80", "LIMIT = 80.0", "const:pkg.helpers.LIMIT"),
}


@pytest.mark.parametrize("mutation", COSMETIC.values(), ids=COSMETIC.keys())
def test_a_cosmetic_change_keeps_the_fingerprint(load, mutation):
    before = load()

    after = load(mutation)

    assert after.digest == before.digest
    assert explain(before.parts, after.parts) == []


@pytest.mark.parametrize("mutation", SEMANTIC.values(), ids=SEMANTIC.keys())
def test_a_semantic_change_changes_the_part_it_belongs_to(load, mutation):
    file, old, new, part = mutation
    before = load()

    after = load((file, old, new))

    assert after.digest != before.digest
    assert any(line.startswith(f"{part}: ") for line in explain(before.parts, after.parts))


def test_all_cosmetic_changes_together_keep_the_fingerprint(load):
    # Those that do not edit the same words.
    clashing = {"layout of an expression", "a needless pass"}
    mutations = [each for name, each in COSMETIC.items() if name not in clashing]

    assert load(*mutations).digest == load().digest


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(line: Word) -> Word:\n    word = len(line)\n    return [LIMIT for LIMIT in word]", {"len"}),
        ("def f():\n    LIMIT = 1\n    def g():\n        global LIMIT\n        return LIMIT", {"LIMIT"}),
        ("def f():\n    nonlocal total\n    total += text.LIMIT", {"text.LIMIT"}),
        (
            "class C(Base):\n    size = LIMIT\n    def f(self, text=clean):\n        return size",
            {"Base", "LIMIT", "clean", "size"},
        ),
        (
            "@wrapped(by)\ndef f():\n    import text.words as words\n    return words.clean.it",
            {"wrapped", "by", "text.words:", "text.words:clean.it"},
        ),
        ("class C:\n    LIMIT = LIMIT", {"LIMIT"}),
        ("def f():\n    try:\n        pass\n    finally:\n        pass", set()),
    ],
)
def test_a_name_refers_to_what_it_means_where_it_stands(text, names):
    [node] = bare(ast.parse(text)).body
    found = {
        f"{each.module}:" * (each.module is not None) + ".".join(each.path) for each in code_facts(node).references
    }

    assert found == names


def test_configuration_is_explained_by_its_field(load):
    one, two = load(min_length=1), load(min_length=2)

    assert explain(one.parts, two.parts) == ["Tokenize.config.min_length: 1 → 2"]
    assert one.digest != two.digest


def test_moving_the_package_to_another_name_keeps_the_digest_and_explains_nothing(load):
    here, there = load(), load(name="other")

    assert here.digest == there.digest
    assert explain(here.parts, there.parts) == []


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from beam_pipes.identity.fingerprint import fingerprint
from pkg.stages import Tokenize
print(json.dumps([fingerprint(Tokenize(min_length=3)).digest, fingerprint({0, "b", "c"}.union).digest]))
"""


def test_the_digest_is_the_same_in_other_processes_places_and_with_other_hash_seeds(load, tmp_path):
    expected = load(min_length=3).digest
    load()
    copies = sorted(tmp_path.glob("copy*"))
    os.utime(copies[1] / "pkg" / "helpers.py", (1, 1))

    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(copy)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            check=True,
        )
        for copy, seed in zip(copies, ("1", "2"), strict=True)
    ]
    results = [json.loads(run.stdout) for run in runs]

    assert results[0] == results[1]
    assert results[0][0] == expected


def test_code_that_was_read_once_is_not_parsed_again(load):
    load()
    stages = [sys.modules["pkg.stages"].Tokenize(min_length=n) for n in range(10)]
    fingerprint(stages[0])
    parsed = []

    def profile(frame, event, argument):
        if event == "call" and frame.f_code is ast.parse.__code__:
            parsed.append(frame)

    sys.setprofile(profile)
    try:
        for stage in stages:
            fingerprint(stage)
    finally:
        sys.setprofile(None)

    assert parsed == []


# Stages defined here: closures, lambdas, partials, assets, nested objects, graphs.


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Length(Pipeline):
    input_type = str
    output_type = int
    offset: int = 0

    def transform(self, line):
        return [len(line) + self.offset]


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclasses.dataclass(frozen=True)
class Holder:
    value: Any


def adder(amount):
    def add(n):
        return n + amount

    return add


def test_a_closure_counts_its_cell_values():
    assert fingerprint(adder(1)).digest == fingerprint(adder(1)).digest
    assert fingerprint(adder(1)).digest != fingerprint(adder(2)).digest


def test_lambdas_on_one_line_are_distinguished():
    one, two, three = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 1)

    assert fingerprint(one).digest != fingerprint(two).digest
    assert fingerprint(one).digest == fingerprint(three).digest


def test_two_functions_in_a_configuration_are_distinguished_when_swapped():
    one, two = adder(1), adder(2)

    assert fingerprint(Holder([one, two])).digest != fingerprint(Holder([two, one])).digest


def test_a_default_taken_from_a_loop_counts():
    functions = [lambda x, n=n: x + n for n in range(2)]

    assert fingerprint(functions[0]).digest != fingerprint(functions[1]).digest


def test_a_partial_counts_its_arguments():
    assert fingerprint(functools.partial(adder, 1)).digest == fingerprint(functools.partial(adder, 1)).digest
    assert fingerprint(functools.partial(adder, 1)).digest != fingerprint(functools.partial(adder, 2)).digest


def test_fields_of_nested_objects_are_parts():
    old, new = fingerprint(Holder({"a": Inner(1)})), fingerprint(Holder({"a": Inner(2)}))

    assert explain(old.parts, new.parts) == ["Holder.config.value.a.size: 1 → 2"]


def test_an_asset_counts_by_content_and_not_by_place(tmp_path):
    (tmp_path / "vocab.model").write_bytes(b"one")
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "vocab.model").write_bytes(b"one")
    before = fingerprint(Holder(Asset(tmp_path / "vocab.model")))
    moved = fingerprint(Holder(Asset(tmp_path / "moved" / "vocab.model")))
    os.utime(tmp_path / "vocab.model", (1, 1))
    touched = fingerprint(Holder(Asset(tmp_path / "vocab.model")))
    (tmp_path / "vocab.model").write_bytes(b"two")
    changed = fingerprint(Holder(Asset(tmp_path / "vocab.model")))

    assert before.digest == moved.digest == touched.digest
    assert changed.digest != before.digest
    assert any(line.startswith("asset:vocab.model: ") for line in explain(before.parts, changed.parts))


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param({"asset:a": "1f"}, {"asset:a": "2e"}, ["asset:a: 1f → 2e"], id="a_file"),
        pytest.param({"asset:a": "1f"}, {"asset:b": "1f"}, [], id="the_same_file_under_another_name"),
        pytest.param({"S.code": "1f", "asset:a": "1f"}, {"S.code": "2e", "asset:a": "1f"}, [], id="code"),
        pytest.param({"S.config.n": "1"}, {"S.config.n": "2"}, [], id="an_option"),
        pytest.param(
            {"S.config.v": '{"$fingerprint":["V","1f"]}', "S.config.n": "1"},
            {"S.config.v": '{"$fingerprint":["V","2e"]}', "S.config.n": "2"},
            ['S.config.v: {"$fingerprint":["V","1f"]} → {"$fingerprint":["V","2e"]}'],
            id="a_vocabulary",
        ),
        pytest.param(
            {"S.config.list": "sha256:1f", "const:m.LIST": "sha256:1f"},
            {"S.config.list": "sha256:2e", "const:m.LIST": "sha256:2e"},
            ["S.config.list: sha256:1f → sha256:2e"],
            id="a_long_option_and_a_long_constant",
        ),
        pytest.param({}, {"asset:a": "1f"}, ["asset:a: added (1f)"], id="a_file_that_was_not_read"),
    ],
)
def test_content_that_only_its_digest_tells_of_is_reported_from_code_and_options(old, new, changed):
    assert content_changes(old, new) == changed


def test_an_asset_that_is_overwritten_with_its_old_times_is_read_again(tmp_path):
    model = tmp_path / "vocab.model"
    model.write_bytes(b"one")
    time.sleep(0.06)  # so that its digest is remembered
    status = model.stat()
    before = fingerprint(Holder(Asset(model))).digest
    model.write_bytes(b"two")
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert fingerprint(Holder(Asset(model))).digest != before


def test_an_asset_directory_counts_names_and_contents(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    before = fingerprint(Holder(Asset(tmp_path))).digest
    (tmp_path / "a").rename(tmp_path / "b")

    assert fingerprint(Holder(Asset(tmp_path))).digest != before


def test_a_missing_asset_is_named(tmp_path):
    with pytest.raises(DeclarationError, match="asset '.*gone.model' cannot be read: No such file"):
        fingerprint(Holder(Asset(tmp_path / "gone.model")))


def test_a_path_that_is_not_an_asset_is_refused_by_the_name_of_its_field():
    with pytest.raises(DeclarationError, match=r"Holder\.value\[1\] is a path, 'x/y'.*wrap it as Asset\('x/y'\)"):
        fingerprint(Holder([1, Path("x/y")]))


def test_an_object_without_fields_is_refused_by_the_name_of_its_field():
    with pytest.raises(DeclarationError, match=r"Holder\.value\.lock is a _thread\.lock, which has no canonical form"):
        import threading

        fingerprint(Holder(Holder2(threading.Lock())))


@dataclasses.dataclass
class Holder2:
    lock: Any


def test_something_that_is_not_a_stage_is_refused():
    with pytest.raises(DeclarationError, match="int should be a stage .* got 3 of type int"):
        fingerprint(3)


def test_what_a_pipeline_did_before_does_not_count():
    stage = RandomPartition(str, ["train", "eval"], [0.5])
    before = fingerprint(stage).digest
    stage.transform("x")

    assert fingerprint(stage).digest == before


def test_the_framework_counts_by_name_for_a_users_stage():
    parts = fingerprint(Length()).parts

    assert [key for key in parts if "beam_pipes" in key] == []


def test_a_dag_has_the_parts_of_its_units_and_its_edges():
    def dag(offset: int, output: str = "n") -> DAGPipeline:
        length = Length(offset=offset)
        return DAGPipeline({length: Input(str), Output(output): length})

    base = fingerprint(dag(1))

    assert explain(base.parts, fingerprint(dag(2)).parts) == ["DAGPipeline.Length.config.offset: 1 → 2"]
    assert [line.split(":")[0] for line in explain(base.parts, fingerprint(dag(1, "m")).parts)] == [
        "DAGPipeline.outputs"
    ]


def test_code_without_source_is_fingerprinted_by_its_instructions():
    def made(text: str) -> str:
        namespace: dict[str, Any] = {"__name__": "prompt", "LIMIT": 3}
        exec(compile(text, "<nowhere>", "exec"), namespace)
        return fingerprint(namespace["f"]).digest

    base = made("def f(x):\n    y = x + 1\n    return y")

    assert made("\n\n# comment\ndef f(x):\n    'doc'\n    z = x + 1\n    return z") == base
    assert made("def f(x):\n    y = x + 2\n    return y") != base


def test_a_class_without_source_is_fingerprinted_by_its_methods():
    def made(text: str) -> str:
        namespace: dict[str, Any] = {"__name__": "prompt"}
        exec(compile(text, "<nowhere>", "exec"), namespace)
        return fingerprint(namespace["C"]()).digest

    base = made("class C:\n    k = 1\n    def f(self):\n        return 1")

    assert made("\nclass C:\n    k = 1\n    def f(self):\n        # c\n        return 1") == base
    assert made("class C:\n    k = 2\n    def f(self):\n        return 1") != base
    assert made("class C:\n    k = 1\n    def f(self):\n        return 2") != base


def test_a_proto_message_counts_by_its_descriptor():
    parts = fingerprint(Holder(Example)).parts

    assert fingerprint(Holder(Example)).digest != fingerprint(Holder(SequenceExample)).digest
    assert "code:beam_pipes.format.messages.Example" in parts


def test_a_notebook_cell_is_fingerprinted_by_its_source():
    def made(text: str) -> str:
        linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
        namespace: dict[str, Any] = {"__name__": "notebook"}
        exec(compile(text, "<cell>", "exec", dont_inherit=True), namespace)
        return fingerprint(namespace["C"](1)).digest

    cell = (
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class C:\n"
        "    x: int\n"
        "    def f(self, {0}):\n"
        "        return {0} + {1}\n"
    )

    assert made(cell.format("a", 1)) == made(f"# {cell}".replace("# ", "# a comment\n", 1).format("a", 1))
    assert made(cell.format("a", 1)) != made(cell.format("a", 2))


def test_a_function_of_no_module_has_a_fingerprint():
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x", namespace)
    namespace["f"].__module__ = None

    assert len(fingerprint(namespace["f"]).digest) == 64


def test_explain_tells_of_parts_that_came_and_went():
    old = {"S.config.a": "1", "code:m.f": "0" * 32}
    new = {"S.config.b": "2", "code:n.f": "0" * 32}

    assert explain(old, new) == ["S.config.a: removed (was 1)", "S.config.b: added (2)"]
