"""References: `package.module:name`, how workers find a declaration. Nothing from `__main__` is ever pickled."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from typing import Any

from beam_pipes.analysis.result import BoundResult
from beam_pipes.building.analysis.declared_analyzers import bind_results, bound_results
from beam_pipes.building.declaration import Declaration
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.identity.user_module import import_user_module, user_code_failed


def load_declaration(reference: str) -> Declaration:
    """Imports a declaration by its reference, such as `examples.python_source:declaration`.

    The name may also be a function without arguments that returns the declaration, or an object with a method
    `declaration()`. Raises `DeclarationError`, naming what was looked for and what is there, or where that code fails.
    """
    module_name, colon, name = reference.partition(":")
    if not colon or not module_name or not name:
        raise DeclarationError(
            f"a declaration is named 'package.module:name', got {reference!r}. "
            "Example: examples.python_source:declaration"
        )
    module = import_user_module(module_name, reference=reference)
    found = getattr(module, name, None)
    if found is None:
        known = [key for key, value in vars(module).items() if isinstance(value, Declaration)]
        near = difflib.get_close_matches(name, vars(module), n=3)
        hint = f"it holds the declarations {known}" if known else "it holds no declaration"
        did_you_mean = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise DeclarationError(f"{module_name!r} has no {name!r}: {hint}{did_you_mean}", reference=reference)
    try:
        return as_declaration(found, reference=reference)
    except BeamPipesError:
        raise
    except Exception as error:
        raise user_code_failed(f"{reference!r} fails while it makes the declaration", error, reference) from error


def as_declaration(found: Any, *, reference: str) -> Declaration:
    """A declaration from what a reference leads to."""
    if isinstance(found, Declaration):
        return found
    made = (
        found.declaration() if callable(getattr(found, "declaration", None)) else found() if callable(found) else found
    )
    if not isinstance(made, Declaration):
        raise DeclarationError(
            f"{reference!r} should be a Declaration, or a function that returns one, got {type(made).__name__}.",
            reference=reference,
        )
    return made


def reference_of(declaration: Declaration) -> str | None:
    """The reference under which an imported module holds this very object, or None (as in a notebook)."""
    for module_name, module in list(sys.modules.items()):
        if module_name == "__main__" or module is None:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is declaration:
                return f"{module_name}:{name}"
    return None


class DeclarationHandle:
    """A declaration on its way to workers: by reference where it has one, else as the object itself.

    The object travels only where everything it consists of can be imported there; what lives in `__main__` cannot. The
    results of its analyzers travel with it, as places and digests, and are bound where it arrives.
    """

    def __init__(self, declaration: Declaration, reference: str | None = None) -> None:
        self.reference = reference if reference is not None else reference_of(declaration)
        self._declaration: Declaration | None = declaration
        self._results: Mapping[str, BoundResult] = {}

    def get(self) -> Declaration:
        """The declaration, imported when it is first asked for."""
        if self._declaration is None:
            assert self.reference is not None
            self._declaration = load_declaration(self.reference)
            bind_results(self._declaration, self._results)
        return self._declaration

    def require_portable(self) -> None:
        """Raises `DeclarationError` where another process could not get the declaration."""
        if self.reference is not None:
            return
        declaration = self.get()
        stages = [unit.stage for unit in declaration.graph.units]
        for part in (declaration.source, *stages, *declaration.analyzers):
            if type(part).__module__ == "__main__":
                raise DeclarationError(
                    f"declaration {declaration.name!r}: {type(part).__name__} lives in __main__, which workers cannot "
                    "import. Move the declaration into a module and build it as 'package.module:name', or use "
                    "workers=1.",
                    stage=type(part).__name__,
                )

    def __getstate__(self) -> dict[str, Any]:
        self.require_portable()
        declaration = self._declaration
        return {
            "reference": self.reference,
            "_declaration": None if self.reference else declaration,
            "_results": self._results if declaration is None else bound_results(declaration),
        }
