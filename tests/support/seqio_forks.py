"""Runs programs side by side in SeqIO's environment, each as if alone, and prints the exit code of each.

python seqio_forks.py JSON, a list of [program, arguments, file for what it prints, file for what it says]

To import SeqIO takes 8 s of a core, so this process does it and forks for each program.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from pathlib import Path

gc.disable()
import apache_beam  # noqa: E402, F401
import seqio  # noqa: E402, F401
import tensorflow  # noqa: E402, F401

gc.freeze()  # otherwise garbage collection in each fork would write to, and so copy, all shared memory
gc.enable()


def begin(program: str, arguments: list[str], out: str, err: str) -> int:
    """The process that runs a program."""
    child = os.fork()
    if child:
        return child
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv[:], sys.path[0] = [program, *arguments], str(Path(program).parent)
    # SeqIO finds the place of a task's registration by module files, so this must have one too.
    sys.modules["seqio_forks"], sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    vars(sys.modules["__main__"])["__file__"] = program
    exec(compile(Path(program).read_text(encoding="utf-8"), program, "exec"), vars(sys.modules["__main__"]))
    sys.exit()


children = [begin(*each) for each in json.loads(sys.argv[1])]
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
