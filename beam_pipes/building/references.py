"""How workers get a declaration: by its reference, `package.module:name`, or by value.

Most code travels as its name: a worker imports the module. That is impossible for anything that a program defines in
`__main__` (a script, a notebook, a prompt, `python -c`) or inside a function, and for modules that are not on the
import path. It is wrong for a module that builds while it is imported, which would build once more in every worker. All
these classes and functions are pickled by cloudpickle, together with what they refer to; no worker runs a script again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.machinery
import os
import pickle
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Protocol

from beam_pipes.analysis.analyzer import BoundResult
from beam_pipes.building.analysis.declared import bind_results, bound_results
from beam_pipes.building.declaration import Declaration
from beam_pipes.checks import nearest
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.identity.canonical import digest_of
from beam_pipes.identity.code_closure import is_plain, is_users
from beam_pipes.identity.fingerprint import canonical, set_values
from beam_pipes.identity.source_code import builders, import_user_module, user_code_failed


def load_declaration(reference: str, *, beam_steps: bool = False) -> Declaration:
    """Imports a declaration by its reference, such as `examples.python_source:declaration`.

    The name may also be a function without arguments that returns the declaration, or an object with a method
    `declaration()`. Raises `DeclarationError`, naming what was looked for and what is there, or where that code fails;
    unless `beam_steps` is set, also for a declaration with PTransforms, whose records have no place in the source.
    """
    module_name, colon, name = reference.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        of_file = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise DeclarationError(
            f"{reference!r} names a file, and a declaration is named by its module: {of_file}:{name or 'declaration'}, "
            "in the directory from which the module is imported."
        )
    if not colon or not module_name or not name:
        raise DeclarationError(
            f"a declaration is named 'package.module:name', got {reference!r}. "
            "Example: examples.python_source:declaration"
        )
    module = import_user_module(module_name, reference=reference)
    found = getattr(module, name, None)
    if found is None:
        known = [key for key, value in vars(module).items() if isinstance(value, Declaration)]
        hint = f"it holds the declarations {known}" if known else "it holds no declaration"
        near = nearest(name, vars(module))
        raise DeclarationError(f"{module_name!r} has no {name!r}: {hint}.{near}", reference=reference)
    try:
        declaration = declared_by(found, reference)
    except BeamPipesError:
        raise
    except Exception as error:
        raise user_code_failed(f"{reference!r} fails while it creates the declaration", error, reference) from error
    if not beam_steps:
        _ = declaration.graph
    return declaration


def declared_by(found: Any, reference: str) -> Declaration:
    """The declaration itself, or what the function or the method `declaration` returns."""
    if not isinstance(found, Declaration):
        if callable(getattr(found, "declaration", None)):
            found = found.declaration()
        elif callable(found):
            found = found()
    if isinstance(found, Declaration):
        return found
    raise DeclarationError(
        f"{reference!r} should be a Declaration, or a function that returns one, got {type(found).__name__}.",
        reference=reference,
    )


def reference_of(declaration: Declaration) -> str | None:
    """The reference under which a module that others can import holds this very object; None if there is none."""
    # Copies in one step, where a list of items may meet an import by another thread.
    for module_name, module in sys.modules.copy().items():
        for name, value in dict(getattr(module, "__dict__", {})).items():
            if value is declaration and can_be_imported(module_name):
                return f"{module_name}:{name}"
    return None


class DeclarationHandle:
    """A declaration on its way to workers: by reference where it has one, else by value (see `by_value`).

    The results of its analyzers travel with it, as places and digests, and are bound where it arrives. So does plain
    data of modules that a program has set (`helpers.LIMIT = 5`): workers import the modules again, and the fingerprint
    of the declaration holds the values of the program. `as_imported`: values computed at import may differ there.
    """

    def __init__(self, declaration: Declaration, reference: str | None = None, *, as_imported: bool = False) -> None:
        self.reference = reference if reference is not None else reference_of(declaration)
        self._declaration: Declaration | None = declaration
        self._results: Mapping[str, BoundResult] = {}
        self._value: bytes | None = None
        self._id = uuid.uuid4().hex
        self._set: Mapping[tuple[str, str], bytes] | None = {} if as_imported else None
        _set_here.add(self._id)

    @classmethod
    def of(cls, declaration: Declaration | str, *, beam_steps: bool = False) -> DeclarationHandle:
        """The handle of a declaration, or of the one that a reference names: see `load_declaration`."""
        if isinstance(declaration, str):
            return cls(load_declaration(declaration, beam_steps=beam_steps), declaration)
        return cls(declaration)

    def get(self) -> Declaration:
        """The declaration, imported or unpickled when it is first asked for."""
        if self._declaration is None:
            if self._value is not None:
                self._declaration = pickle.loads(self._value)
            else:
                assert self.reference is not None
                self._declaration = load_declaration(self.reference)
            _set(self._id, self._set or {})
            bind_results(self._declaration, self._results)
        return self._declaration

    def require_portable(self) -> None:
        """Raises `DeclarationError` if another process could not get the declaration."""
        if self.reference is not None or self._value is not None:
            return
        declaration = self.get()
        try:
            self._value = by_value(declaration)
        except BeamPipesError:
            raise
        except Exception as error:
            raise DeclarationError(
                f"declaration {declaration.name!r} cannot be sent to workers: {_culprit(declaration)}"
                f"{type(error).__name__}: {error}. Create what cannot be pickled inside the stage, when it is first "
                "needed; or give the declaration a name in a module (package.module:name), so that workers import it; "
                "or use workers=1."
            ) from error

    def __getstate__(self) -> dict[str, object]:
        self.require_portable()
        declaration = self._declaration
        if self._set is None:
            self._set = {} if declaration is None else _set_by_program(declaration)
        return {
            "reference": self.reference,
            "_id": self._id,
            "_set": self._set,
            "_declaration": None,
            "_value": self._value,
            "_results": self._results if declaration is None else bound_results(declaration),
        }


# These values go with every task. Larger ones are mostly tables that a module reads or computes; for those, a worker
# only checks that it has the same.
_MOST_SET_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class _Large:
    """Stands for a value that is too large to go with every task."""

    size: int
    digest: str


# Handles whose values this process has, because it made the handle or has set the values.
_set_here: set[str] = set()
_setting = threading.Lock()


def _set_by_program(declaration: Declaration) -> dict[tuple[str, str], bytes]:
    """(module, name) → pickled value, for what a program has set in modules that workers import.

    Raises `DeclarationError` for a replaced function that cannot be pickled.
    """
    stages = [*declaration.source.stages().values(), *(unit.stage for unit in declaration.graph.units)]
    try:
        values = set_values(stages)
    except DeclarationError:
        return {}  # planning reports it; a collection without a plan has no fingerprint to keep to
    found = {}
    for (module, name), value in values.items():
        if is_users(module) and can_be_imported(module):
            if is_plain(value):
                data = pickle.dumps(value, protocol=pickle.DEFAULT_PROTOCOL)
                if len(data) > _MOST_SET_BYTES:
                    data = pickle.dumps(_Large(len(data), digest_of(canonical(value))))
                found[module, name] = data
                continue
            try:
                found[module, name] = by_value(value)
            except Exception as error:
                raise DeclarationError(
                    f"{module}.{name} is not what the module defines: this program has put {value!r:.80} in its place, "
                    f"which cannot be sent to workers ({type(error).__name__}: {error}). Pass it to the stage as an "
                    "argument, or use workers=1."
                ) from error
    return found


def _set(handle: str, values: Mapping[tuple[str, str], bytes]) -> None:
    """Sets what a program has set, once per process: stages may have changed it since."""
    with _setting:
        if handle in _set_here:
            return
        _set_here.add(handle)
        for (module, name), data in values.items():
            value = pickle.loads(data)
            *outer, last = name.split(".")
            try:
                owner: Any = functools.reduce(getattr, outer, importlib.import_module(module))
                before = getattr(owner, last, None)
            except (ImportError, AttributeError):
                continue  # code that needs it will say so
            if isinstance(value, _Large):
                if digest_of(canonical(before)) != value.digest:
                    raise DeclarationError(
                        f"{module}.{name} is {value.size:,} bytes of data that the program which builds has set or "
                        "changed, and this worker process, which imports the module, has other data. Let the module "
                        "make the data when it is imported, pass it to the stage as an argument or a file "
                        "(beam_pipes.Asset), or use workers=1."
                    )
                continue
            if not isinstance(owner, (ModuleType, type)):
                if hasattr(owner, "__dict__"):
                    vars(owner)[last] = value  # works for a frozen dataclass too
                continue
            if type(before) is type(value) and repr(before) == repr(value):
                continue
            # In place, since other modules may hold the same dict or list.
            if isinstance(value, dict) and type(before) is dict:
                before.clear()
                before.update(value)
            elif isinstance(value, list) and type(before) is list:
                before[:] = value
            else:
                setattr(owner, last, value)


def _culprit(declaration: Declaration) -> str:
    """The stage, source or analyzer that cannot be pickled: `stage 'Flat': `."""
    parts: list[tuple[str, object]] = [(f"stage {unit.name!r}", unit.stage) for unit in declaration.graph.units]
    parts += [(f"the source {type(declaration.source).__name__}", declaration.source)]
    parts += [(f"analyzer {analyzer.name!r}", analyzer) for analyzer in declaration.analyzers]
    for part_name, part in parts:
        try:
            by_value(part)
        except Exception:
            return f"{part_name}: "
    return ""


def by_value(value: object) -> bytes:
    """`value`, pickled for a process that has the same import path but not this one's `__main__`.

    `pickle.loads` restores it. Raises what pickling raises.
    """
    import cloudpickle

    with registered_by_value(cloudpickle):
        return bytes(cloudpickle.dumps(value, protocol=pickle.DEFAULT_PROTOCOL))


def can_be_imported(name: str) -> bool:
    """Whether importing `name` in another process gives what this process has under that name, without side effects.

    False for `__main__` under any of its names, for modules that were not made or loaded through the import path, and
    for modules that build while they are imported.
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
    """Where an import would find the module now; `importlib.util.find_spec` says where it was found earlier."""
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


class _Pickler(Protocol):
    """`cloudpickle`, or the copy of it that Beam holds."""

    __name__: str

    def list_registry_pickle_by_value(self) -> set[str]: ...
    def register_pickle_by_value(self, module: ModuleType) -> None: ...
    def unregister_pickle_by_value(self, module: ModuleType) -> None: ...


# Which modules travel by value is a setting of the whole process, and several threads may build at once: a module stays
# registered with a pickler until the last of them has left.
_registering = threading.Lock()
_registered: Counter[tuple[str, str]] = Counter()


@contextlib.contextmanager
def registered_by_value(pickler: _Pickler) -> Iterator[None]:
    """Makes a pickler (a module such as `cloudpickle`) pickle by value the code that other processes cannot import."""
    with _registering:
        ours = {name for (of, name), count in _registered.items() if of == pickler.__name__ and count}
        # The pickler handles `__main__` itself, and the user may have registered others.
        known = {"__main__", *pickler.list_registry_pickle_by_value()} - ours
        modules = [
            module
            for name, module in sys.modules.copy().items()
            if isinstance(module, ModuleType)
            and module.__name__ == name  # `__mp_main__` is another name of `__main__`, but not in its children
            and name not in known
            and is_users(name)
            and not can_be_imported(name)
        ]
        for module in modules:
            if not _registered[pickler.__name__, module.__name__]:
                pickler.register_pickle_by_value(module)
            _registered[pickler.__name__, module.__name__] += 1
    try:
        yield
    finally:
        with _registering:
            for module in modules:
                _registered[pickler.__name__, module.__name__] -= 1
                if not _registered[pickler.__name__, module.__name__]:
                    pickler.unregister_pickle_by_value(module)
