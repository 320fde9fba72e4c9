"""Whether other processes can have a declaration: importable by name, or picklable where it has no name."""

from __future__ import annotations

import os
import pickle
import types
from collections.abc import Iterator
from typing import Any

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.testing.verdict import Finding

_ADVICE = "Define it at the top of a module, and give the declaration a name there: 'package.module:name'."


def portability(declaration: Declaration, handle: DeclarationHandle) -> Iterator[Finding]:
    """What keeps a declaration in this process. One that has a reference is imported elsewhere, by its name."""
    if handle.reference is not None:
        return
    named = [(unit.name, unit.stage) for unit in declaration.graph.units]
    for name, part in [("source", declaration.source), *named]:
        finding = _of_part(name, part)
        if finding is not None:
            yield finding


def _of_part(name: str, part: Any) -> Finding | None:
    cls = type(part)
    if cls.__module__ == "__main__":
        return Finding(
            kind="not_importable",
            stage=name,
            message=f"its class {cls.__qualname__} lives in __main__, which no other process can import. {_ADVICE}",
        )
    if "<locals>" in cls.__qualname__:
        where = cls.__qualname__.partition(".<locals>")[0]
        return Finding(
            kind="not_importable",
            stage=name,
            message=f"its class {cls.__name__} is defined inside of the function {where}, where no other process can "
            f"import it. {_ADVICE}",
        )
    try:
        pickle.loads(pickle.dumps(part))
        return None
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
    for field, value in getattr(part, "__dict__", {}).items():
        try:
            pickle.loads(pickle.dumps(value))
        except Exception as error:
            return _of_field(name, field, value, f"{type(error).__name__}: {error}")
    return Finding(
        kind="not_picklable",
        stage=name,
        message=f"it cannot be pickled, so it cannot travel to another worker. {_ADVICE}",
        found=words,
    )


def _of_field(name: str, field: str, value: Any, words: str) -> Finding:
    if isinstance(value, types.FunctionType):
        what = "a lambda" if value.__name__ == "<lambda>" else f"the local function {value.__name__}"
        code = value.__code__
        return Finding(
            kind="not_importable",
            stage=name,
            message=f"its field {field!r} is {what}, which no other process can import. {_ADVICE}",
            place=f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}",
        )
    return Finding(
        kind="not_picklable",
        stage=name,
        message=f"its field {field!r} is a {type(value).__name__}, which cannot be pickled. Make it when it is first "
        "needed, and leave it out of __getstate__; or give the declaration a name in a module.",
        found=words,
    )
