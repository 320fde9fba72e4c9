"""`RandomPartition`: each input goes to one of several outputs, at random but always to the same one."""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.engine.graph import brief
from beam_pipes.engine.statistics import Counter, plain_number
from beam_pipes.errors import DeclarationError
from beam_pipes.typed.pipeline import Pipeline


class RandomPartition(Pipeline):
    """Sends each input to one of the named outputs with the given probabilities.

        RandomPartition(str, ['eval', 'train'], [0.1])       # the last takes the rest, as in the reference
        RandomPartition(str, ['train', 'eval', 'test'], [0.7, 0.2, 0.1])

    The choice is a function of (seed, record): it is the same on every runner and in every run, and records that are
    there stay where they are when data is added. `key` makes the choice depend on (seed, name, key) instead, so that
    what belongs together stays together: `key=lambda example: example['speaker']` never splits a speaker. Two
    partitions of one graph choose independently of each other, because they have different names.

    A record is known by where it comes from: by file and position in a build (`poems.txt@15`), by its number in
    `load_pipeline`, `run_pipeline_serial` and direct calls, which are given values without files. So these split the
    same values differently than a build does; with `key` all of them agree.

    Statistics: a counter for each output, `<name of the partition>_<output>_count`.

    Raises `DeclarationError` where names or probabilities do not fit together, or a key is no str, bytes or int.

    Source: Magenta, `RandomPartition`; there the draw was unseeded.
    """

    def __init__(
        self,
        type_: type,
        partition_names: Sequence[str],
        partition_probabilities: Sequence[float],
        *,
        seed: int = 0,
        key: Callable[[Any], str | bytes | int] | None = None,
        name: str = "RandomPartition",
    ) -> None:
        probabilities = list(partition_probabilities)
        names = list(partition_names)
        total = math.fsum(probabilities)
        if any(not 0 <= p <= 1 for p in probabilities):
            raise DeclarationError(
                f"{name}: probabilities lie between 0 and 1, got {probabilities}. Give each output its share.",
                stage=name,
            )
        if len(set(names)) != len(names) or not names:
            raise DeclarationError(
                f"{name}: partition names should be distinct and at least one, got {names}. Each names an output.",
                stage=name,
            )
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
        # Exact sums: adding up 0.7, 0.2 and 0.1 one by one would leave a gap below 1.
        self._bounds = [math.fsum(probabilities[: count + 1]) for count in range(len(names) - 1)]

    def transform(self, input_object: Any) -> dict[str, list[Any]]:
        key = self.record_key() if self.key is None else self._key_of(input_object)
        drawn = hashlib.blake2b(key, digest_size=8, salt=b"partition", key=str(self.seed).encode()).digest()
        fraction = (int.from_bytes(drawn, "big") >> 11) / 2**53  # below 1
        chosen = bisect.bisect_right(self._bounds, fraction)
        outputs: dict[str, list[Any]] = {name: [] for name in self.partition_names}
        name = self.partition_names[chosen]
        outputs[name].append(input_object)
        self._set_stats([Counter(f"{name}_count", 1)])
        return outputs

    def _key_of(self, input_object: Any) -> bytes:
        assert self.key is not None
        key = plain_number(self.key(input_object))
        if not isinstance(key, str | bytes | int):
            raise DeclarationError(
                f"{self.name}: key should give a str, bytes or an int, got {brief(key)}. Return what names the group.",
                stage=self.name,
            )
        text = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        return self.name.encode() + b"\0" + text
