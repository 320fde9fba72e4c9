"""Errors that are no `Exception` (SystemExit, KeyboardInterrupt, GeneratorExit), raised by a user's code.

Whoever let them through would end without a word: with `sys.exit(0)` even as if all had gone well.
"""

from __future__ import annotations

from beam_pipes.errors import BuildError
from beam_pipes.identity.user_module import where_raised


def exit_as_error(error: BaseException) -> BuildError:
    """A `BuildError` that says what was raised and where, to be raised instead."""
    return BuildError(
        f"expected the code that was called to return or to raise an Exception, but {where_raised(error)} raised "
        f"{type(error).__name__}({error}), which would have ended the process before it was done. Do not call sys.exit "
        "there: raise an Exception, such as ValueError, that says what is wrong."
    )
