"""`import_user_module`: a module of the user, with an error that says where it fails."""

from __future__ import annotations

import importlib
import sys
import traceback
import types

from beam_pipes.errors import BeamPipesError, DeclarationError


def import_user_module(name: str, *, reference: str | None = None) -> types.ModuleType:
    """Imports a module by its absolute name. `reference`: what named it, for messages.

    Raises `DeclarationError` where there is no such module, or where it fails while it is imported; errors of ours,
    which a declaration raises when it is made, pass.
    """
    told = repr(name) if reference is None else f"{name!r} of {reference!r}"
    if not name or name.startswith("."):
        raise DeclarationError(
            f"expected the absolute name of a module, such as package.module, got {told}.", reference=reference
        )
    try:
        return importlib.import_module(name)
    except BeamPipesError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise user_code_failed(f"{told} fails while it is imported", error, reference) from error
        raise DeclarationError(
            f"cannot import {told}: there is no module {error.name!r} on the path "
            f"{[path or '.' for path in sys.path[:4]]}…. Run from the directory that holds it, or install it.",
            reference=reference,
        ) from error
    except SystemExit as error:
        raise DeclarationError(
            f"cannot import {told}: expected a module that declares, {where_raised(error)} "
            f"called sys.exit({error}) instead. Put what runs behind `if __name__ == '__main__':`.",
            reference=reference,
        ) from error
    except Exception as error:
        raise user_code_failed(f"{told} fails while it is imported", error, reference) from error


def user_code_failed(told: str, error: Exception, reference: str | None) -> DeclarationError:
    """The error that says where a user's code has failed; `told` is what was done with it."""
    where, message = where_raised(error), str(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        where, message = f"{error.filename}:{error.lineno}", error.msg
    return DeclarationError(
        f"{told}: {where}: {type(error).__name__}: {message}. Mend it there, or install what it needs.",
        reference=reference,
    )


def where_raised(error: BaseException) -> str:
    """The file and the line of the innermost call: `/home/ada/m.py:3`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "somebody"
