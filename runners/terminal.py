"""A console whose reader may go away, as `head` does."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """Raises `BrokenPipeError` where nobody reads any more; rich's own exits, as a user's code must not."""

    def on_broken_pipe(self) -> None:
        raise  # the error that is being handled
