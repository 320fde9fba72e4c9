"""Tracking: the list of what was done to a loader, as labels and as steps that can be done again.

The labels are strings that users compare: `tf.data.Dataset.map` for what TensorFlow does,
`midas.JaxDataLoader.shard` for what a loader class does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Transformation:
    """One step of a chain: its label, the call that made it, and the dataset it produced."""

    label: str
    method: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dataset: Any = None
    # False for sources and static constructors: they are no method of the dataset in front of them.
    replayable: bool = False

    def applied_to(self, dataset: Any) -> Transformation:
        """The same call on another dataset."""
        produced = getattr(dataset, self.method)(*self.args, **self.kwargs)
        return dataclasses.replace(self, dataset=produced)


def dataset_label(method: str) -> str:
    """`map` → `tf.data.Dataset.map`."""
    return f"tf.data.Dataset.{method}"


def loader_label(owner: str, method: str) -> str:
    """`JaxDataLoader`, `shard` → `midas.JaxDataLoader.shard`."""
    return f"midas.{owner}.{method}"
