"""The state of a `DataLoader`: where it stands, and what order that place belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from beam_pipes.errors import StateMismatchError

VERSION = 1


@dataclasses.dataclass
class Place:
    """`position` batches of `epoch` have been handed out."""

    epoch: int
    position: int


def dump_state(place: Place, order: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state as JSON values: `order` is what the sequence of batches depends on."""
    return {"version": VERSION, "epoch": place.epoch, "position": place.position, "order": dict(order)}


def load_state(state: Mapping[str, Any], order: Mapping[str, Any]) -> Place:
    """Returns the place in `state`, or raises `StateMismatchError` naming each difference from `order`."""
    missing = [key for key in ("version", "epoch", "position", "order") if key not in state]
    if missing:
        raise StateMismatchError(f"a DataLoader state needs {', '.join(missing)}; got {sorted(state)}")
    if state["version"] != VERSION:
        raise StateMismatchError(
            f"the state has version {state['version']!r}, this library reads version {VERSION}; start the epoch anew"
        )
    saved, ours = dict(_leaves(state["order"])), dict(_leaves(order))
    differences = [
        f"{name} was {saved.get(name)!r}, is {ours.get(name)!r}"
        for name in dict.fromkeys([*saved, *ours])
        if saved.get(name) != ours.get(name)
    ]
    if differences:
        raise StateMismatchError(
            f"the state belongs to another order of batches: {'; '.join(differences)}. Build the loader as it was, or "
            "start anew with set_epoch"
        )
    return Place(int(state["epoch"]), int(state["position"]))


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
