"""A sample of bounded size that depends on nothing but the records and a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.analyzers.sample_file import SampleOfShard, merge_samples, read_sample


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KeyedSample(Analyzer):
    """A uniform sample of the values (str or bytes): gives a list of them, in an order that is as random.

    Every value has a key, a digest of the seed, the record's id and its number within the record; the sample is the
    values with the smallest keys, as many as fit into `max_bytes`. So it is the same however the input is cut into
    shards and whoever reads it, and when files are added, what was not sampled before stays out.

    Args:
        max_bytes: bytes of all sampled values (of str, in UTF-8) and 64 for each of them. About as much is in memory
            while a source shard is read.
        seed: another seed gives another sample.
    """

    version = 2
    accepts = (str, bytes)

    max_bytes: int = 16 << 20
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes < 1:
            raise DeclarationError(f"analyzer {self.name!r}: max_bytes should be at least 1, got {self.max_bytes}.")

    def accumulator(self) -> Accumulator:
        return SampleOfShard(max_bytes=self.max_bytes, seed=self.seed)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        merge_samples(accumulators, target, max_bytes=self.max_bytes)

    def read(self, path: str) -> list[str | bytes]:
        return [row.value for row in read_sample(path)]
