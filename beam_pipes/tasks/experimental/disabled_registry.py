"""Registries that refuse to be used, for programs that must not depend on them."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import TaskError, UnknownNameError
from beam_pipes.tasks.registry import MixtureRegistry, TaskRegistry


def disable_registry() -> None:
    """From now on `add` of both registries registers nothing, and `get` raises. There is no way back in this process.

    Raises:
        TaskError: something is registered already.
    """
    filled = [registry.__name__ for registry in (TaskRegistry, MixtureRegistry) if list(registry.names())]
    if filled:
        raise TaskError(
            f"The {filled} is non-empty. Please invoke `disable_registry()` before any Task/Mixtures are registered."
        )

    def ignore(cls: type, *args: Any, **kwargs: Any) -> None:
        return None

    def refuse(cls: type, name: str) -> Any:
        raise UnknownNameError(f"Disabled {cls.__name__}.get call: {name}", name=name)

    for registry in (TaskRegistry, MixtureRegistry):
        registry.add = classmethod(ignore)  # type: ignore[assignment, method-assign]
        registry.get = classmethod(refuse)  # type: ignore[assignment, method-assign]
