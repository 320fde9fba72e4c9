"""What programs of users give: in SeqIO's own environment this records it, in ours the tests compare.

    .venv-seqio/bin/python tests/references/seqio_answers.py > tests/references/seqio_answers.json

A program is a function of a file in `seqio_programs/`; it takes `seqio`, the library, and maybe `root`, an empty
directory, and returns JSON. `raised` tells what an exception is: its builtin classes, and its words.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import inspect
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def programs() -> dict[str, Callable[..., Any]]:
    """`file.function` → the program, in the order of the files."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    found = {}
    for path in sorted((HERE / "seqio_programs").glob("*.py")):
        if path.stem == "__init__":
            continue
        module = importlib.import_module(f"seqio_programs.{path.stem}")
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__
            if own and not name.startswith("_") and next(iter(inspect.signature(function).parameters), "") == "seqio":
                found[f"{path.stem}.{name}"] = function
    return found


def answer(program: Callable[..., Any], seqio: Any) -> Any:
    """The program's answer, in registries of its own and an empty directory."""
    seqio.TaskRegistry.reset()
    seqio.MixtureRegistry.reset()
    seqio.set_global_cache_dirs([])
    with tempfile.TemporaryDirectory() as root:
        arguments = [root] if "root" in inspect.signature(program).parameters else []
        return json.loads(json.dumps(program(seqio, *arguments)).replace(root, "ROOT"))


def raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`{"raises": ["ValueError"], "message": …}`, or what the function returns."""
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        classes = [cls.__name__ for cls in type(error).__mro__ if vars(builtins).get(cls.__name__) is cls]
        return {
            "raises": [n for n in classes if n not in ("Exception", "BaseException", "object")],
            "message": str(error),
        }
    return {"returns": repr(value)}


def main() -> None:
    import seqio

    sys.modules.setdefault("seqio_answers", sys.modules["__main__"])
    told = {}
    for name, program in programs().items():
        if len(sys.argv) > 1 and not any(chosen in name for chosen in sys.argv[1:]):
            continue
        started = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            told[name] = answer(program, seqio)
        print(f"{time.monotonic() - started:.1f} s: {name}", file=sys.stderr)
    json.dump(told, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
