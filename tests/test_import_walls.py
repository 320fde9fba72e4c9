"""Who may import whom, read from the source; and what importing a room loads, seen in a fresh process."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reference_pages.rooms import ROOMS

ROOT = Path(__file__).parents[1]

# Room → the rooms it may import.
ALLOWED = {name: room.may_import for name, room in ROOMS.items()}

ON_DEVICE = ("beam_pipes/on_device", "beam_pipes/graph/jax_iterator.py", "beam_pipes/graph/torch_iterator.py")

# Module → where it may be imported at the top of a file, and where inside of functions ("" is anywhere).
HEAVY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # tensorflow-transform learns by pipelines of its own, and SeqIO has transforms: each in one file that is imported
    # when it is asked for.
    "apache_beam": (
        ("beam_pipes/beam", "beam_pipes/tft/beam_passes.py", "beam_pipes/seqio/beam_utils.py"),
        (
            "beam_pipes/beam",
            "beam_pipes/tft/beam_passes.py",
            "beam_pipes/seqio",
            "beam_pipes/testing",
            "beam_pipes/runners",
            "beam_pipes/commands",
        ),
    ),
    "jax": (ON_DEVICE, ON_DEVICE),
    "torch": (ON_DEVICE, ON_DEVICE),
    "typer": (("beam_pipes/commands",), ("beam_pipes/commands", "beam_pipes/cli.py")),
    "rich": (
        ("beam_pipes/commands", "beam_pipes/runners"),
        ("beam_pipes/commands", "beam_pipes/runners", "beam_pipes/cli.py"),
    ),
    **dict.fromkeys(
        [
            "PIL",
            "array_record",
            "av",
            "cv2",
            "google.cloud",
            "grain",
            "ml_dtypes",
            "pyarrow",
            "pycocotools",
            "sentencepiece",
            "simplejpeg",
            "soundfile",
            "tensorflow",
            "tensorflow_datasets",
            "tensorflow_transform",
            "tiktoken",
            "tokenizers",
            "zstandard",
        ],
        ((), ("",)),
    ),
}

# What importing a room's package may load of these.
WATCHED = ["apache_beam", "jax", "tensorflow", "torch", "tensorflow_transform", "pyarrow", "grain"]
LOADS = {"beam": {"apache_beam", "pyarrow"}}


class Import(NamedTuple):
    path: str
    line: int
    module: str
    top_level: bool
    type_checking: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


class Finder(ast.NodeVisitor):
    """Collects the imports of one file, `require("module", ...)` and `import_module("module")` among them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: list[Import] = []
        self._functions = 0
        self._type_checking = 0

    def _add(self, node: ast.AST, module: str) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Import(self.path, line, module, self._functions == 0, self._type_checking > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            package = list(Path(self.path).with_suffix("").parts)[: -node.level]
            module = ".".join([*package, *filter(None, [module])])
        for alias in node.names:
            # `from beam_pipes import typed` names a room, `from beam_pipes.typed import Input` does not.
            self._add(node, f"{module}.{alias.name}" if module in ("beam_pipes", "google") else module)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("require", "import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            self._add(node, str(node.args[0].value))
        self.generic_visit(node)

    def _visit_function(self, node: ast.AST) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def visit_If(self, node: ast.If) -> None:
        guarded = "TYPE_CHECKING" in ast.unparse(node.test)
        self._type_checking += guarded
        for statement in node.body:
            self.visit(statement)
        self._type_checking -= guarded
        for statement in node.orelse:
            self.visit(statement)


def imports_of(path: str, source: str) -> list[Import]:
    finder = Finder(path)
    finder.visit(ast.parse(source))
    return finder.found


def all_imports() -> list[Import]:
    files = sorted((ROOT / "beam_pipes").rglob("*.py"))
    return [
        found
        for path in files
        for found in imports_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


def room_of(module: str) -> str | None:
    """`beam_pipes.typed.dag` → `typed`; None for what is not ours."""
    top, _, rest = module.partition(".")
    return None if top != "beam_pipes" else rest.partition(".")[0] or "beam_pipes"


def room_of_file(path: str) -> str:
    """`beam_pipes/typed/dag.py` → `typed`, `beam_pipes/__init__.py` → `beam_pipes`."""
    room = room_of(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert room is not None
    return room


def breaches(imports: list[Import]) -> Iterator[str]:
    """The imports that go through a wall."""
    for one in imports:
        here, there = room_of_file(one.path), room_of(one.module)
        if there is not None and there != here and there not in ALLOWED.get(here, set()):
            # A name of the package itself, such as `beam_pipes.__version__`.
            if there in ("beam_pipes", "__version__"):
                continue
            # For type checkers: the name is loaded when somebody uses it.
            if one.type_checking and one.path.endswith("__init__.py") and there in ROOMS[here].offers:
                continue
            yield f"{one}: {here} may import {', '.join(sorted(ALLOWED.get(here, set())))}"
        for heavy, (at_top, in_functions) in HEAVY.items():
            if one.module != heavy and not one.module.startswith(f"{heavy}."):
                continue
            allowed = at_top if one.top_level else in_functions
            if not one.type_checking and not any(one.path.startswith(place) for place in allowed):
                yield f"{one} {'at module level' if one.top_level else 'in a function'}: allowed in {allowed}"


def test_no_import_goes_through_a_wall() -> None:
    imports = all_imports()
    assert len(imports) > 200
    assert list(breaches(imports)) == []


# Folder of a room → those of its folders that it may import; files beside the folders may import all of them.
FLOORS = {"tasks": ["vocabularies", "steps", "sources", "providers", "caches", "loading", "testing"]}


@pytest.mark.parametrize("room", FLOORS)
def test_folders_of_a_room_import_only_those_below(room: str) -> None:
    floors = FLOORS[room]
    climbing = []
    for one in all_imports():
        match = re.match(rf"beam_pipes/{room}/(\w+)/", one.path)
        below = floors[: floors.index(match[1]) + 1] if match else floors
        there = one.module.split(".")[2:3] if one.module.startswith(f"beam_pipes.{room}.") else []
        if match and there and there[0] not in below and match[1] != "testing":
            climbing.append(str(one))
    assert climbing == []


def test_every_room_has_a_place_in_the_table() -> None:
    modules = [path for path in (ROOT / "beam_pipes").iterdir() if (path / "__init__.py").exists()]
    files = [path for path in (ROOT / "beam_pipes").glob("*.py") if path.stem != "__init__"]
    assert {path.stem for path in modules + files} <= ALLOWED.keys()


def test_the_table_has_no_cycle() -> None:
    def reaches(start: str, goal: str, seen: frozenset[str] = frozenset()) -> bool:
        following = ALLOWED.get(start, set()) - {start} - seen
        return goal in following or any(reaches(room, goal, seen | following) for room in following)

    assert [room for room in ALLOWED if reaches(room, room)] == []


@pytest.mark.parametrize(
    ("path", "source", "is_breach"),
    [
        ("beam_pipes/typed/x.py", "from beam_pipes.transforms.text import split", True),
        ("beam_pipes/typed/x.py", "def f():\n  import beam_pipes.beam.lower", True),
        ("beam_pipes/typed/x.py", "from beam_pipes import on_device", True),
        ("beam_pipes/typed/x.py", "from ..beam import lower", True),
        ("beam_pipes/typed/x.py", "from beam_pipes.engine.graph import Graph", False),
        ("beam_pipes/typed/x.py", "from .key import Key", False),
        ("beam_pipes/beam/x.py", "import beam_pipes.on_device", True),
        ("beam_pipes/on_device/x.py", "from beam_pipes.beam import lower", True),
        ("beam_pipes/cache/x.py", "from beam_pipes.cli import main", True),
        ("beam_pipes/cache/x.py", "import tensorflow as tf", True),
        ("beam_pipes/cache/x.py", "try:\n  import tensorflow.io\nexcept ImportError: pass", True),
        ("beam_pipes/cache/x.py", "def f():\n  import tensorflow as tf", False),
        ("beam_pipes/cache/x.py", "if TYPE_CHECKING:\n  import tensorflow as tf", False),
        ("beam_pipes/cache/x.py", "if TYPE_CHECKING:\n  pass\nelse:\n  import tensorflow", True),
        ("beam_pipes/cache/x.py", "def f():\n  return require('jax.numpy', purpose='x')", True),
        ("beam_pipes/cache/x.py", "import torchvision_like", False),
        ("beam_pipes/transforms/x.py", "def f():\n  import torch", True),
        ("beam_pipes/transforms/x.py", "from google.cloud import storage", True),
        ("beam_pipes/transforms/x.py", "from google.protobuf import message", False),
        ("beam_pipes/runners/x.py", "import apache_beam", True),
        ("beam_pipes/runners/x.py", "def f():\n  import apache_beam", False),
        ("beam_pipes/beam/x.py", "import apache_beam as beam", False),
        ("beam_pipes/on_device/x.py", "import jax", False),
    ],
)
def test_a_breach_would_be_seen(path: str, source: str, is_breach: bool) -> None:
    assert bool(list(breaches(imports_of(path, source)))) is is_breach


def packages() -> list[str]:
    rooms = sorted(path.parent.name for path in (ROOT / "beam_pipes").glob("*/__init__.py"))
    return ["beam_pipes", *(f"beam_pipes.{room}" for room in rooms)]


PROBE = """
import json, sys, time
start = time.perf_counter()
import {package}
print(json.dumps([time.perf_counter() - start, [name for name in {watched} if name in sys.modules]]))
"""


@pytest.mark.parametrize("package", packages())
def test_importing_a_package_loads_nothing_heavy(package: str, record_property: Callable[[str, object], None]) -> None:
    probe = PROBE.format(package=package, watched=WATCHED)
    output = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    seconds, loaded = json.loads(output.splitlines()[-1])

    print(f"import {package}: {seconds:.3f} s")
    record_property("import_seconds", seconds)
    assert set(loaded) <= LOADS.get(package.removeprefix("beam_pipes."), set())


@pytest.mark.parametrize(("name", "other"), [("JaxGraphIterator", "torch"), ("TorchGraphIterator", "jax")])
def test_iterators_of_one_framework_do_not_need_the_other(name: str, other: str) -> None:
    program = f"import sys; sys.modules[{other!r}] = None; from beam_pipes.on_device import {name}"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
