"""Runs where Magenta 2.1.4 itself is installed: its pipelines' names, and what the programs of users give with it.

    pip install --no-deps magenta==2.1.4 && pip install six note-seq tensorflow
    python tests/references/magenta_reference.py names   > tests/references/magenta_names.json
    python tests/references/magenta_reference.py answers > tests/references/magenta_answers.json

A program is a function of `magenta_programs/programs.py`; it takes `magenta`, the library, and maybe `root`, an empty
directory, and returns JSON. Names are those of the modules that the document "Data processing in Magenta" describes;
those of the document that Magenta 2 has renamed are recorded under their names in the document.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODULES = ("pipeline", "dag_pipeline", "statistics", "pipelines_common", "note_sequence_pipelines", "melody_pipelines")
# Name in Magenta 2 → name in the document.
IN_DOCUMENT = {"DagInput": "Input", "DagOutput": "Output", "PipelineKey": "Key"}
# Names of the document that Magenta 2 has as another class.
EXTRACTOR = "MonophonicMelodyExtractor"


def document_name(name: str) -> str:
    if name == "InvalidDictionaryOutputError":
        return "InvalidDictionaryOutput"
    return IN_DOCUMENT.get(name, name.removesuffix("Error") + "Exception" if name.endswith("Error") else name)


@functools.cache
def reference() -> types.SimpleNamespace:
    """All public classes and functions of the modules, under their names in the document."""
    # Of the package itself only the path: importing it brings all models.
    package = types.ModuleType("magenta")
    package.__path__ = importlib.util.find_spec("magenta").submodule_search_locations  # type: ignore[union-attr, assignment]
    sys.modules["magenta"] = package
    found: dict[str, Any] = {}
    for name in MODULES:
        module = importlib.import_module(f"magenta.pipelines.{name}")
        for one, value in vars(module).items():
            if not one.startswith("_") and getattr(value, "__module__", None) == module.__name__:
                found[document_name(one)] = value
    found[EXTRACTOR] = type(EXTRACTOR, (found["MelodyExtractor"],), {})
    return types.SimpleNamespace(**found)


def names() -> dict[str, Any]:
    """Name → its module, kind, arguments, and for a class its public members with theirs."""
    told: dict[str, Any] = {}
    for name, value in sorted(vars(reference()).items()):
        if name == EXTRACTOR:
            continue
        one = {"of": value.__module__.rpartition(".")[2], "kind": "class" if inspect.isclass(value) else "function"}
        if not (inspect.isclass(value) and issubclass(value, Exception)):
            one["arguments"] = list(inspect.signature(value).parameters)
        if inspect.isclass(value) and not issubclass(value, Exception):
            members = (*vars(value), *(m for base in value.__mro__[1:-1] for m in vars(base)))
            one["members"] = sorted({member for member in members if not member.startswith("_")})
        told[name] = one
    return told


def programs() -> dict[str, Callable[..., Any]]:
    """Name → the program."""
    sys.path.insert(0, str(HERE))
    module = importlib.import_module("magenta_programs.programs")
    sys.path.remove(str(HERE))
    return {
        name: function
        for name, function in vars(module).items()
        if not name.startswith("_")
        and inspect.isfunction(function)
        and next(iter(inspect.signature(function).parameters), "") == "magenta"
    }


def answer(program: Callable[..., Any], magenta: Any) -> Any:
    """What the program gives, as JSON has it, or the exception by the name of its class in the document."""
    with tempfile.TemporaryDirectory() as root:
        arguments = [root] if "root" in inspect.signature(program).parameters else []
        return json.loads(json.dumps(program(magenta, *arguments)))


def main() -> None:
    magenta = reference()
    if sys.argv[1] == "names":
        told = names()
    else:
        told = {name: answer(program, magenta) for name, program in programs().items()}
    json.dump(told, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
