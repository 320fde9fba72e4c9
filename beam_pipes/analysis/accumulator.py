"""`Accumulator`: what an analyzer knows of one source shard."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any


class Accumulator(abc.ABC):
    """Takes the values of one source shard, in order, and is saved once they are all there.

    One accumulator sees one source shard from its first record to its last, in one process; after a failure a new one
    begins anew, so nothing is ever added twice. What it holds in memory has to be bounded, whatever the shard's size.
    """

    @abc.abstractmethod
    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
        """Takes a batch of consecutive values.

        `values[i]` came from the record `record_ids[i]` (`file@position`); a record that gave three values is named
        three times, one that gave none is not there. Names are worked out when they are first asked for: an
        accumulator that does not look at them does not pay for them.
        """

    @abc.abstractmethod
    def save(self, path: str) -> None:
        """Writes a file, or a directory, at the local `path`, where there is nothing.

        The bytes depend on what was added and on nothing else: no times, no hash order, no random numbers.
        """
