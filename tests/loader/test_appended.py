"""A state goes on over a cache to which records were added: in the next epoch, or at once."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS
from reference_loader import epoch_rows

from beam_pipes import Loader
from beam_pipes.building.leftovers import collect
from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    Manifest,
    ShardWriter,
    Split,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.errors import CacheNotFoundError, LoaderError, StaleCacheError, StateMismatchError
from beam_pipes.loader import BlockShuffle, KeyedPermutation, LoaderState, Mixture, PackingPlan, TokenBatches, pack
from beam_pipes.loader.order import BlockOrder
from beam_pipes.loader.row_source import PaddedSplit

Shards = Sequence[Sequence[int]]
Policy = Literal["next_epoch", "now"]


def publish_shards(path: Path, shards: Shards, number: int) -> Split:
    """Snapshot number `number` of a cache: each record is a document of `id % 5` tokens."""
    snapshot = f"{number:016x}"
    directory = snapshot_directory(path, snapshot)
    Path(directory).mkdir(parents=True)
    entries = []
    for shard, ids in enumerate(shards):
        file = shard_file_name("demo", "train", shard, len(shards))
        with ShardWriter(directory, file, codec=ExampleCodec(DOCUMENTS)) as writer:
            for ordinal, record in enumerate(ids):
                writer.write({"id": record, "tokens": [record] * (record % 5)}, ordinal=ordinal)
            entries.append(writer.commit())
    train = SplitManifest.from_entries(entries, spec=DOCUMENTS, shard_count=len(shards))
    publish(path, Manifest(name="demo", snapshot=snapshot, splits={"train": train}))
    return Cache.open(path)["train"]


def ids_of(loader: Any, steps: int | None = None) -> list[int]:
    """The ids of the next `steps` batches, of all that are left with None."""
    found: list[int] = []
    for step, batch in enumerate(loader, 1):
        found += batch["id"].tolist()
        assert [row[0] if record % 5 else 0 for row, record in zip(batch["tokens"], batch["id"], strict=True)] == [
            record if record % 5 else 0 for record in batch["id"].tolist()
        ]
        if step == steps:
            break
    return found


def numbered(sizes: Sequence[int], first: int = 0) -> list[list[int]]:
    """Shards of so many records each, whose ids count up: `([2, 1], 5)` → `[[5, 6], [7]]`."""
    ids = iter(range(first, first + sum(sizes)))
    return [[next(ids) for _ in range(size)] for size in sizes]


def flat(shards: Shards) -> list[int]:
    return [record for shard in shards for record in shard]


# The definition, row by row.

Order = Callable[[Shards, int], list[int]]


def order_of(shuffle: Any, seed: int, stream: int = 0) -> Order:
    """The ids of the records of some shards in the order of an epoch."""

    def order(shards: Shards, epoch: int) -> list[int]:
        ids = flat(shards)
        if isinstance(shuffle, BlockShuffle):
            sizes = [len(shard) for shard in shards]
            blocks = BlockOrder(sizes, window=shuffle.window, seed=seed, epoch=epoch, stream=stream)
            return [ids[row] for row in blocks.records(np.arange(len(ids)))]
        if shuffle:
            permutation = KeyedPermutation(len(ids), seed=seed, epoch=epoch, stream=stream)
            return [ids[row] for row in permutation.records(np.arange(len(ids)))]
        return ids

    return order


def joined(before: list[int], added: list[int], position: int) -> list[int]:
    """An epoch in which records are added at a row: the other ones and these, at the rate of their numbers."""
    left = before[position:]
    if not left or not added:
        return [*before, *added]
    divisor = math.gcd(len(left), len(added))
    rates = [len(left) // divisor, len(added) // divisor]
    turns = epoch_rows([len(left), len(added)], rates, "drop", most=0)
    return before[:position] + [(left, added)[source][ordinal] for source, ordinal in turns]


def added_shards(before: Shards, after: Shards) -> list[list[int]]:
    """What is new in each shard of `after` that has something new."""
    known = set(flat(before))
    new = [[record for record in shard if record not in known] for shard in after]
    return [shard for shard in new if shard]


class Definition:
    """The epochs of a run over snapshots: `additions` are (epoch, position or None) of each change of snapshot."""

    def __init__(self, shuffle: Any, seed: int) -> None:
        self.shuffle, self.seed = shuffle, seed
        self.snapshots: list[Shards] = []
        self.additions: list[tuple[int, int | None]] = []

    def epoch(self, epoch: int, last: int | None = None) -> list[int]:
        number = len(self.additions) if last is None else last
        if number == 0 or epoch > self.additions[number - 1][0]:
            return order_of(self.shuffle, self.seed)(self.snapshots[number], epoch)
        before = self.epoch(epoch, number - 1)
        change, position = self.additions[number - 1]
        if epoch < change or position is None:
            return before
        new = added_shards(self.snapshots[number - 1], self.snapshots[number])
        return joined(before, order_of(self.shuffle, self.seed, number)(new, epoch), position)

    def add(self, shards: Shards, policy: Policy, epoch: int, position: int) -> None:
        self.snapshots.append(shards)
        if position:
            self.additions.append((epoch, position if policy == "now" else None))
        elif epoch:
            self.additions.append((epoch - 1, None))
        else:
            self.snapshots, self.additions = [shards], []


@st.composite
def histories(draw: st.DrawFn) -> list[Shards]:
    """A first snapshot, and one or two after it: whole shards come in anywhere, records behind those of a shard."""
    sizes = st.lists(st.integers(0, 9), min_size=1, max_size=5)
    found = [numbered(draw(sizes.filter(lambda drawn: sum(drawn) > 3)))]
    for _ in range(draw(st.integers(1, 2))):
        shards = [list(shard) for shard in found[-1]]
        first = 1 + max(flat(shards))
        for new in numbered(draw(sizes), first):
            shards.insert(draw(st.integers(0, len(shards))), new)
        if draw(st.booleans()):
            shards[-1] = [*shards[-1], max(flat(shards)) + 1]
        found.append(shards)
    return found


@settings(max_examples=60)
@given(
    histories(),
    st.sampled_from(["next_epoch", "now"]),
    st.sampled_from([True, False, BlockShuffle(window=2)]),
    st.integers(1, 4),
    st.integers(0, 12),
    st.sampled_from(["drop", "partial"]),
    st.integers(1, 2),
)
def test_a_run_over_growing_snapshots_is_its_definition(
    tmp_path_factory: pytest.TempPathFactory,
    snapshots: list[Shards],
    policy: Policy,
    shuffle: Any,
    batch_size: int,
    steps: int,
    last: Any,
    hosts: int,
) -> None:
    path = tmp_path_factory.mktemp("appended") / "cache"
    batch_size *= hosts
    definition = Definition(shuffle, seed=3)
    options = {"batch_size": batch_size, "seed": 3, "epochs": 4, "shuffle": shuffle, "last": last}
    state: str | None = None
    for number, shards in enumerate(snapshots):
        split = publish_shards(path, shards, number)
        if len(flat(shards)) < batch_size:
            return
        world = [
            Loader(split, **options, appended=policy, host_index=host, host_count=hosts)  # type: ignore[arg-type]
            for host in range(hosts)
        ]
        if state is not None:
            for loader in world:
                loader.set_state(state)
            definition.add(shards, policy, *world[0]._cursor)
        else:
            definition.snapshots.append(shards)
        epochs = [definition.epoch(epoch) for epoch in range(4)]
        if last == "drop":
            epochs = [epoch[: len(epoch) - len(epoch) % batch_size] for epoch in epochs]
        batches = [epoch[at : at + batch_size] for epoch in epochs for at in range(0, len(epoch), batch_size)]

        # Every step of the run, past and to come, and what the loader says of itself.
        assert len(world[0]) == len(batches)
        for step, expected in enumerate(batches):
            assert flat([loader.batch_at(step)["id"].tolist() for loader in world]) == expected
        done = world[0].step
        assert world[0].steps_left == len(batches) - done or (done == len(batches) and not world[0].steps_left)

        for loader in world:
            taken = ids_of(loader, steps) if steps and done < len(batches) else []
            host_rows = [
                batch[loader.host_index * len(batch) // hosts : (loader.host_index + 1) * len(batch) // hosts]
                for batch in batches[done : done + steps]
            ]
            assert taken == flat(host_rows)
        assert len({loader.state.to_json() for loader in world}) == 1
        state = world[0].state.to_json()
