"""`Scope`: the branch of a condition, in which operators run on some samples of the batch only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.graph.data_node import DataNode


@dataclasses.dataclass(frozen=True, eq=False)
class Scope:
    """Those samples of `parent` (None: all of the batch) for which `predicate` is `branch`."""

    parent: Scope | None
    predicate: DataNode
    branch: bool

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def is_within(self, other: Scope | None) -> bool:
        """Whether every sample of this scope is one of `other`."""
        return other is None or any(scope is other for scope in self.chain())


def is_within(inner: Scope | None, outer: Scope | None) -> bool:
    """Whether every sample of `inner` is one of `outer`; None is the whole batch."""
    return outer is None or (inner is not None and inner.is_within(outer))


def describe(scope: Scope | None) -> str:
    """`if predicate (then)`, from the outside in; "" for the whole batch."""
    if scope is None:
        return ""
    parts = [f"{one.predicate.name} is {'true' if one.branch else 'false'}" for one in scope.chain()]
    return " and ".join(reversed(parts))
