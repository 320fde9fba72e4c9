"""`RandomPartition`: each input goes to one of several outputs, at random but always to the same one."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.engine.record_context import RecordContext
from beam_pipes.errors import DeclarationError
from beam_pipes.typed.pipeline import Pipeline


class RandomPartition(Pipeline):
    """Sends each input to one of the named outputs with the given probabilities.

        RandomPartition(str, ['eval', 'train'], [0.1])       # the last takes the rest, as in the reference
        RandomPartition(str, ['train', 'eval', 'test'], [0.7, 0.2, 0.1])

    The choice is a function of (seed, record): it is the same on every runner and in every run, and records that are
    there stay where they are when data is added. `key` makes the choice depend on something else than the record,
    so that what belongs together stays together: `key=lambda example: example['speaker']` never splits a speaker.

    Source: Magenta, `RandomPartition`; there the draw was unseeded.
    """

    def __init__(
        self,
        type_: type,
        partition_names: Sequence[str],
        partition_probabilities: Sequence[float],
        *,
        seed: int = 0,
        key: Callable[[Any], str | bytes] | None = None,
        name: str = "RandomPartition",
    ) -> None:
        probabilities = list(partition_probabilities)
        names = list(partition_names)
        total = math.fsum(probabilities)
        if any(not 0 <= p <= 1 for p in probabilities):
            raise DeclarationError(f"{name}: probabilities lie between 0 and 1, got {probabilities}.", stage=name)
        if len(set(names)) != len(names) or not names:
            raise DeclarationError(f"{name}: partition names should be distinct, got {names}.", stage=name)
        if len(probabilities) == len(names) - 1 and total <= 1 + 1e-9:
            probabilities.append(max(0.0, 1 - total))
        elif len(probabilities) != len(names) or abs(total - 1) > 1e-9:
            raise DeclarationError(
                f"{name}: expected {len(names)} probabilities that add up to 1, or {len(names) - 1} and the last "
                f"output takes the rest; got {list(partition_probabilities)} (sum {total:g}) for {names}.",
                stage=name,
            )
        super().__init__(input_type=type_, output_type=dict.fromkeys(names, type_), name=name)
        self.partition_names = names
        self.partition_probabilities = probabilities
        self.seed = seed
        self.key = key
        self._bounds = list(itertools.accumulate(probabilities))[:-1]

    def transform(self, input_object: Any) -> dict[str, list[Any]]:
        if self.key is None:
            drawn = self.record_key(size=8) if self.seed == 0 else _mix(self.seed, self.record_key().hex())
        else:
            key = self.key(input_object)
            drawn = _mix(self.seed, key.hex() if isinstance(key, bytes) else key)
        fraction = int.from_bytes(drawn, "big") / 2**64
        chosen = bisect.bisect_right(self._bounds, fraction)
        outputs: dict[str, list[Any]] = {name: [] for name in self.partition_names}
        outputs[self.partition_names[chosen]].append(input_object)
        return outputs


def _mix(seed: int, text: str) -> bytes:
    context = RecordContext(seed=seed, unit="RandomPartition")
    context.record_id_of = lambda _: text
    return context.key(size=8)
