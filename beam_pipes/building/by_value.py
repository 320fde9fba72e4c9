"""Code that other processes cannot import travels by value.

Most code travels as its name: a worker imports the module. That is impossible for what a program defines in `__main__`
(a script, a notebook, a prompt, `python -c`) or inside a function, and for modules that are not on the import path. It
is wrong for a module that builds while it is imported, which would build once more in every worker. The classes and
functions of all these are pickled together with what they refer to, by cloudpickle; no worker runs a script again.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from beam_pipes.identity.code_closure import is_users
from beam_pipes.identity.source_code import builders

# Which modules travel by value is a setting of the whole process.
_registering = threading.Lock()


def by_value(value: Any) -> bytes:
    """`value`, pickled for a process that has the same import path and knows nothing of this one's `__main__`.

    `pickle.loads` gives it back. Raises what pickling raises.
    """
    import cloudpickle

    with _registering, _registered(cloudpickle):
        return bytes(cloudpickle.dumps(value, protocol=pickle.DEFAULT_PROTOCOL))


def can_be_imported(name: str) -> bool:
    """Whether importing `name` in another process gives what this process has under that name, and does nothing else.

    False for `__main__` under any of its names, for modules that were made or loaded by other means than the import
    path, and for modules that build while they are imported.
    """
    module = sys.modules.get(name)
    if module is None or module is sys.modules.get("__main__") or name in builders:
        return False
    spec = _on_the_path(name)
    if spec is None:
        return False
    file = getattr(module, "__file__", None)
    return file is None or spec.origin is None or os.path.realpath(spec.origin) == os.path.realpath(file)


def _on_the_path(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where an import would find the module now; `importlib.util.find_spec` tells where it once was found."""
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    if parent and path is None:
        return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        with contextlib.suppress(ImportError, ValueError):
            if find is not None and (spec := find(name, path)) is not None:
                found: importlib.machinery.ModuleSpec = spec
                return found
    return None


@contextlib.contextmanager
def _registered(cloudpickle: Any) -> Iterator[None]:
    known = {"__main__", *cloudpickle.list_registry_pickle_by_value()}  # cloudpickle knows of `__main__` itself
    modules = [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and module.__name__ == name  # `__mp_main__` is another name of a program's `__main__`, but not in its children
        and name not in known
        and is_users(name)
        and not can_be_imported(name)
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
