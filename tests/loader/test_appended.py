"""A state goes on over a cache to which records were added: in the next epoch, or at once."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS
from reference_loader import epoch_rows
from waiting import eventually

from beam_pipes import Loader, build, stage
from beam_pipes.building.leftovers import collect
from beam_pipes.building.takedown import take_down
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
from beam_pipes.errors import BeamPipesError, CacheNotFoundError, StaleCacheError, StateMismatchError
from beam_pipes.loader import BlockShuffle, KeyedPermutation, LoaderState, Mixture, PackingPlan, TokenBatches, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.loader.order import BlockOrder
from beam_pipes.loader.row_source import PaddedSplit
from beam_pipes.sources import TextLines

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


# Real builds, other processes.


@stage
def line(text: str) -> dict[str, object]:
    return {"id": int(text), "tokens": [int(text)] * (int(text) % 5)}


def add_file(folder: Path, name: str, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{number}\n" for number in range(first, first + count)))


_TRAIN = """
import json, os, signal, sys
from beam_pipes import Loader

path, options, state, steps = json.loads(sys.argv[1])
loader = Loader(path, seed=3, epochs=3, **options)
if state is not None:
    loader.load_state_dict(state)
for step, batch in enumerate(loader, 1):
    print(json.dumps([batch["id"].tolist(), loader.state_dict()]), flush=True)
    if step == steps:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def train(path: Path, state: Any = None, steps: int | None = None, **options: Any) -> tuple[list[int], Any]:
    """Trains in a process of its own, which is killed after so many steps: the ids that it read, its last state."""
    arguments = json.dumps([str(path), options, state, steps])
    ended = subprocess.run([sys.executable, "-c", _TRAIN, arguments], capture_output=True, text=True)
    assert ended.returncode == (0 if steps is None else -9), ended.stderr
    output = [json.loads(each) for each in ended.stdout.splitlines()]
    return flat([ids for ids, _ in output]), output[-1][1]


@pytest.mark.parametrize("policy", ["next_epoch", "now"])
@pytest.mark.parametrize("target_shard_bytes", [100, 1 << 20], ids=["a shard a file", "one shard, which grows"])
def test_a_killed_run_continues_after_files_were_added_and_built(
    tmp_path: Path, policy: Policy, target_shard_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEAM_PIPES_READER_LEASE_SECS", "0")

    def built() -> Path:
        result = build(
            "numbers", TextLines(tmp_path / "in"), [line], to=tmp_path / "cache", workers=1, keep=0,
            target_shard_bytes=target_shard_bytes,
        )  # fmt: skip
        assert len(list((tmp_path / "cache" / "snapshots").iterdir())) == 1  # the older one is swept
        assert result.snapshot
        return tmp_path / "cache" / "train"

    def stored() -> list[int]:
        return [int(record["id"]) for record in Cache.open(tmp_path / "cache")["train"]]

    for number, name in enumerate(["a", "b", "c"]):
        add_file(tmp_path / "in", f"{name}.txt", 100 * number, 40)
    definition = Definition(True, seed=3)
    read, state = train(built(), steps=7, batch_size=10)
    definition.snapshots.append([stored()])

    for number, name in enumerate(["d", "e"], 3):
        add_file(tmp_path / "in", f"{name}.txt", 100 * number, 25)
    built()
    definition.add([stored()], policy, 0, 70)
    # Killed once more on the way; then two hosts read to the end of the run.
    more, state = train(tmp_path / "cache" / "train", state, steps=6, batch_size=10, appended=policy)
    hosts = [
        train(tmp_path / "cache" / "train", state, batch_size=10, host_index=host, host_count=2)[0] for host in (0, 1)
    ]

    both = [np.array(ids).reshape(-1, 5) for ids in hosts]
    rest = np.concatenate(both, axis=1).reshape(-1).tolist()
    epochs = [definition.epoch(epoch) for epoch in range(3)]
    assert read + more + rest == flat([epoch[: len(epoch) // 10 * 10] for epoch in epochs])
    assert len(epochs[0]) == {"next_epoch": 120, "now": 170}[policy] and len(epochs[1]) == len(epochs[2]) == 170
    assert sorted(epochs[0]) == sorted(definition.snapshots[0 if policy == "next_epoch" else 1][0])
    assert len(json.dumps(state)) < 330


def test_who_and_when_name_the_same_source_records_as_before(tmp_path: Path) -> None:
    for number, name in enumerate(["a", "c"]):
        add_file(tmp_path / "in", f"{name}.txt", 100 * number, 20)
    target: dict[str, Any] = {"to": tmp_path / "cache", "workers": 1, "target_shard_bytes": 40}
    build("numbers", TextLines(tmp_path / "in"), [line], **target)
    before = Loader(tmp_path / "cache" / "train", batch_size=8, seed=3, epochs=2)
    ids_of(before, 2)
    output = [before.who(step) for step in range(5)]

    add_file(tmp_path / "in", "b.txt", 200, 12)  # sorts between them: the rows of the last file have other numbers
    build("numbers", TextLines(tmp_path / "in"), [line], **target)
    loader = Loader(tmp_path / "cache" / "train", batch_size=8, seed=3, epochs=2, appended="next_epoch")
    loader.restore(before.state)

    for step, earlier in enumerate(output):
        now = loader.who(step)
        assert [each.record_id for each in now] == [each.record_id for each in earlier]
        assert step == 0 or [each.record for each in now] != [each.record for each in earlier]
        for each in now:
            assert step in {place.step for place in loader.when_record(each.record_id, epochs=2)}
    places = loader.when_record("b.txt@0", epochs=2)
    assert [place.epoch for place in places] == [1] and places[0].step >= 5


# One cache in memory of the test, and what else goes on over it.


class Drawn:
    """A transform whose result for a row depends on the key that the loader draws by."""

    def __call__(self, batch: Any) -> Any:
        return self.of_rows(batch, np.zeros(len(batch["id"]), np.uint64))

    def of_rows(self, batch: Any, keys: Any) -> Any:
        return {"id": batch["id"], "drawn": np.asarray(keys, np.uint64)}


def in_full(batch: Any) -> list[tuple[int, int]]:
    return list(zip(batch["id"].tolist(), batch["drawn"].tolist(), strict=True))


@pytest.mark.parametrize("condition", ["", "id != 3"], ids=["all", "filtered"])
@pytest.mark.parametrize("policy", ["next_epoch", "now"])
def test_stand_ins_are_those_of_the_snapshot_that_an_epoch_reads(
    tmp_path: Path, policy: Policy, condition: str
) -> None:
    """The steps before an addition, and the older records after it, do not change with what was added later."""
    target: dict[str, Any] = {"to": tmp_path / "cache", "workers": 1, "target_shard_bytes": 40}

    def opened(**options: Any) -> Loader:
        split = Cache.open(tmp_path / "cache")["train"]
        split = split.where(condition) if condition else split
        return Loader(split, batch_size=5, seed=3, epochs=3, transform=Drawn(), **options)

    for number, name in enumerate(["a", "c"]):
        add_file(tmp_path / "in", f"{name}.txt", 100 * number, 20)
    build("numbers", TextLines(tmp_path / "in"), [line], **target)
    of_a = Cache.open(tmp_path / "cache")["train"]
    take_down(tmp_path / "cache", of_a.record_ids(range(2, 40, 5)), reason="asked for")
    run = opened()
    next(iter(run))
    read, output = [in_full(run.batch_at(step)) for step in range(7)], [run.who(step) for step in range(7)]
    state = run.get_state()
    hidden = {each.record_id for delivered in output for each in delivered if each.taken_down}
    assert len(hidden) >= 6

    for name, first in (("b", 200), ("d", 300)):  # b sorts between: the rows of c have other numbers than before
        add_file(tmp_path / "in", f"{name}.txt", first, 30)
        build("numbers", TextLines(tmp_path / "in"), [line], **target)
        ids = Cache.open(tmp_path / "cache")["train"].find_rows(f"{name}.txt@0")
        taken = Cache.open(tmp_path / "cache")["train"].record_ids(ids)
        take_down(tmp_path / "cache", taken, reason="asked for too")
        later = opened(appended=policy)
        later.set_state(state)
        exact = len(read) if policy == "next_epoch" else later.step
        assert [in_full(later.batch_at(step)) for step in range(exact)] == read[:exact]
        assert [[dataclasses.replace(each, row=0, record=0) for each in later.who(step)] for step in range(exact)] == [
            [dataclasses.replace(each, row=0, record=0) for each in delivered] for delivered in output[:exact]
        ]
        assert_inverse(later, range(len(later)))
        next(iter(later))
        # What this run reads to the end of the epoch is what the next one over more records has to give for it.
        until = next(step for step in range(len(later)) if later.who(step)[0].epoch == 1)
        read = [in_full(later.batch_at(step)) for step in range(until)]
        output = [later.who(step) for step in range(until)]
        state = later.get_state()


def assert_inverse(loader: Loader, steps: Sequence[int]) -> None:
    """`who` and `when_record` say the same of these steps."""
    named: dict[str, list[tuple[int, int, int, bool, str | None]]] = {}
    for step in steps:
        for each in loader.who(step):
            key = (step, each.host_index, each.index)
            named.setdefault(each.record_id, []).append((*key, each.taken_down, None))
            if each.stands_in is not None:
                named.setdefault(each.stands_in, []).append((*key, False, each.record_id))
    for record_id, places in named.items():
        found = [
            (each.step, each.host_index, each.index, each.taken_down, each.stands_in_for)
            for each in loader.when_record(record_id, epochs=loader.epochs or 1)
            if each.step in steps
        ]
        assert sorted(found, key=str) == sorted(places, key=str), record_id


@pytest.fixture
def grown(tmp_path: Path) -> tuple[Split, Split]:
    """A snapshot of 30 records in three shards; and one with a shard of 4 in the middle, and two behind."""
    shards = numbered([10, 10, 10])
    old = publish_shards(tmp_path / "cache", shards, 1)
    return old, publish_shards(tmp_path / "cache", [shards[0], list(range(50, 54)), *shards[1:], [60, 61], [62]], 2)


@pytest.fixture(params=["next_epoch", "now"])
def resumed(request: pytest.FixtureRequest, grown: tuple[Split, Split]) -> tuple[Loader, LoaderState, list[int]]:
    """A loader over the newer snapshot that goes on from step 3 of the older one; that state; the ids of its run."""
    old, new = grown
    loader = Loader(old, batch_size=6, epochs=2, seed=3)
    read = ids_of(loader, 3)
    again = Loader(new, batch_size=6, epochs=2, seed=3, appended=request.param)
    again.restore(loader.state)
    return again, loader.state, read


def test_a_state_of_every_later_step_continues_without_the_option(grown: Any, resumed: Any) -> None:
    loader, _, _ = resumed
    states = [loader.state_dict()] + [loader.state_dict() for _ in loader]
    whole = ids_of(loader_at(grown[1], states[0]))

    for step, state in enumerate(states):
        assert ids_of(loader_at(grown[1], json.loads(json.dumps(state)))) == whole[6 * step :]
        assert len(json.dumps(state, separators=(",", ":"))) < 300


def loader_at(split: Any, state: Any, **options: Any) -> Loader:
    loader = Loader(split, batch_size=6, epochs=2, seed=3, **options)
    loader.load_state_dict(state)
    return loader


def test_a_loader_answers_for_the_whole_run(resumed: Any) -> None:
    """Step numbers, lengths, who and when count what was read of the older snapshot too."""
    loader, _, read = resumed
    is_now = loader.state.appended[0].position is not None
    steps = (37 // 6 if is_now else 5) + 37 // 6

    assert (loader.step, len(loader), loader.steps_left) == (3, steps, steps - 3)
    assert flat([loader.batch_at(step)["id"].tolist() for step in range(3)]) == read
    for step in range(steps):
        ids = loader.batch_at(step)["id"].tolist()
        for position, row in enumerate(ids):
            record = [int(each["id"]) for each in loader._options.source].index(row)
            epoch = int(step >= (6 if is_now else 5))
            place = loader.when(record, epoch=epoch)
            assert place is not None and (place.step, place.index) == (step, position)
    new_in_first_epoch = [loader.when(record, epoch=0) for record in range(10, 14)]
    assert any(new_in_first_epoch) if is_now else new_in_first_epoch == [None] * 4
    rest = ids_of(loader)
    assert len(rest) == 6 * (steps - 3) and loader.step == steps
    words = "30 rows of manifest " + loader.state.appended[0].manifest
    assert f"appended: in epoch 0 {words}" in loader.describe()
    loader.reset()
    assert loader.state.appended == () and len(loader) == 12


def test_a_copy_and_a_pickle_continue(resumed: Any) -> None:
    loader, _, _ = resumed
    ids_of(loader, 1)
    copy = pickle.loads(pickle.dumps(loader))

    assert copy.state == loader.state
    assert ids_of(copy) == ids_of(loader)


def test_checkpoints_of_frameworks_continue(tmp_path: Path, grown: Any, resumed: Any) -> None:
    import tensorflow as tf
    import torch

    loader, _, _ = resumed
    policy = loader._options.appended
    before = Loader(grown[0], batch_size=6, epochs=2, seed=3)
    ids_of(before, 3)
    saved = tf.train.Checkpoint(loader=before.tf_checkpoint()).save(str(tmp_path / "checkpoint"))
    torch.save({"loader": before.state_dict()}, tmp_path / "state.pt")

    of_tensorflow, of_torch = (Loader(grown[1], batch_size=6, epochs=2, seed=3, appended=policy) for _ in range(2))
    tf.train.Checkpoint(loader=of_tensorflow.tf_checkpoint()).restore(saved).assert_consumed()
    of_torch.load_state_dict(torch.load(tmp_path / "state.pt")["loader"])

    assert of_tensorflow.state == of_torch.state == loader.state
    assert ids_of(of_tensorflow) == ids_of(of_torch) == ids_of(loader)


def test_the_command_line_makes_the_loader_of_such_a_state(tmp_path: Path, resumed: Any) -> None:
    loader, _, _ = resumed

    again = loader_from_state(loader.state, [tmp_path / "cache"], batch_size=6)

    assert ids_of(again, 4) == ids_of(loader, 4)


@pytest.mark.parametrize("kind", ["filtered", "padded", "padded and filtered"])
def test_filtered_and_padded_records_continue(grown: Any, resumed: Any, kind: str) -> None:
    loader, _, _ = resumed
    policy = loader._options.appended

    def source(split: Any) -> Any:
        if "filtered" in kind:
            split = split.where("id != 3 and id != 51 and id != 60")
        return PaddedSplit(split=split, sequence_lengths={"tokens": 5, "id": None}) if "padded" in kind else split

    before = Loader(source(grown[0]), batch_size=6, epochs=2, seed=3)
    read = ids_of(before, 2)
    after = Loader(source(grown[1]), batch_size=6, epochs=2, seed=3, appended=policy, last="partial")
    after.restore(before.state)

    removed = {3, 51, 60} if "filtered" in kind else set()
    definition = Definition(True, seed=3)
    definition.snapshots.append([[each for each in range(30) if each not in removed]])
    stored = [int(each["id"]) for each in grown[1]]
    definition.add([[each for each in stored if each not in removed]], policy, 0, 12)
    assert read + ids_of(after) == definition.epoch(0) + definition.epoch(1)
    again = Loader(source(grown[1]), batch_size=6, epochs=2, seed=3, last="partial")
    ids_of(after, 0)
    again.restore(LoaderState.from_json(after.state.to_json()))
    if "filtered" in kind:
        other = Loader(grown[1].where("id != 4"), batch_size=6, epochs=2, seed=3, appended=policy)
        with pytest.raises(StateMismatchError, match=r"source\.manifest: '[0-9a-f]{64}\?[0-9a-f]{12}' → "):
            other.restore(before.state)


def test_packed_rows_and_mixtures_take_the_added_records_as_a_source(tmp_path: Path, grown: Any) -> None:
    """The older records keep their plan and go on where they are; the others have a plan of their own."""
    old, new = grown
    pack(old, sequence_length=8).save(tmp_path / "plan.npz")
    run = Loader(PackingPlan.load(tmp_path / "plan.npz", old), batch_size=2, seed=3, epochs=None)
    read = [batch["tokens"].tolist() for _, batch in zip(range(3), run, strict=False)]
    rest = [run.batch_at(step)["tokens"].tolist() for step in range(3, 7)]
    manifest = run.state.source["manifest"]

    before = PackingPlan.load(tmp_path / "plan.npz", new.as_of(manifest))
    added = pack(new.since(manifest), sequence_length=8)
    mixed = Loader(Mixture([(before, 1), (added, 1)]), batch_size=4, seed=3, epochs=None)
    mixed.restore(run.state, previous=before)

    rows = flat([batch["tokens"].tolist() for _, batch in zip(range(4), mixed, strict=False)])
    assert len(read) == 3 and len(rows) == 16
    assert [row for row in rows if max(row) < 50] == flat(rest)


# Parts of a split.


def test_parts_of_a_split_are_what_they_say(grown: Any) -> None:
    old, new = grown
    before, since = new.as_of(old), new.since(old.manifest_id[:16])

    assert [int(each["id"]) for each in before] == list(range(30)) and before.manifest_id == old.manifest_id
    assert [int(each["id"]) for each in since] == [50, 51, 52, 53, 60, 61, 62]
    assert before.shard_sizes.tolist() == [10, 10, 10] and since.shard_sizes.tolist() == [4, 2, 1]
    assert repr(since) == f"<7 records of {new!r} added since manifest {old.manifest_id[:16]}>"
    chosen = before.where("id > 5").where("id < 9")
    assert [int(each["id"]) for each in chosen] == [6, 7, 8] and repr(chosen).endswith("where (id > 5) and (id < 9)>")
    assert chosen.manifest_id == old.where("id > 5").where("id < 9").manifest_id
    assert new.where("id > 5").as_of(old).manifest_id == old.where("id > 5").manifest_id
    for part in (before, since, chosen):
        copy = pickle.loads(pickle.dumps(part))
        assert (copy.manifest_id, copy.shard_sizes.tolist()) == (part.manifest_id, part.shard_sizes.tolist())
        assert repr(copy) == repr(part) and copy.gather([0, -1])["id"].tolist() == part.gather([0, -1])["id"].tolist()
    assert Loader(since, batch_size=7, shuffle=BlockShuffle(window=1)).batch_at(0)["id"].shape == (7,)


def test_a_removed_snapshot_is_known_by_its_shards(tmp_path: Path, grown: Any, resumed: Any) -> None:
    loader, state, _ = resumed
    whole = ids_of(loader_at(grown[1], loader.state_dict()))
    ids_of(loader, 5)
    later = loader.state_dict()
    # The thread that writes leases knows of the state, perhaps not of the end of the reader below.
    eventually(
        lambda: any(b'"stays": true' in each.read_bytes() for each in (tmp_path / "cache").glob("leases/*.json"))
    )
    collect(tmp_path / "cache", keep=0)
    assert not (tmp_path / "cache" / "removed").exists()  # somebody reads it
    grown[0].close()
    assert collect(tmp_path / "cache", keep=0).removed == ()  # a state of it was taken, within the time of a lease
    collect(tmp_path / "cache", keep=0, ignore_leases=True)
    new = Cache.open(tmp_path / "cache")["train"]
    removed = [each.name for each in (tmp_path / "cache" / "removed").iterdir() if each.suffix == ".json"]
    assert removed == [f"{grown[0].manifest_id}.json"]

    again = Loader(new, batch_size=6, epochs=2, seed=3, appended=loader._options.appended)
    again.restore(state)
    assert ids_of(again) == whole

    # Without that file too, in an epoch that needs nothing of the older snapshot.
    shutil.rmtree(tmp_path / "cache" / "removed")
    first_state = {**later, "epoch": 0, "position": 18}
    assert ids_of(loader_at(new, {**later, "epoch": 1, "position": 0})) == whole[-36:]
    with pytest.raises(
        CacheNotFoundError, match=r"this cache has none, nor a record of one that was removed \(in remo"
    ):
        loader_at(new, first_state)
    with pytest.raises(CacheNotFoundError, match="expected a snapshot with manifest ''"):
        new.since("")


# What is refused.


def changed(shards: list[list[int]]) -> Iterator[tuple[list[list[int]], str, str]]:
    yield [shards[0], shards[2], [90]], "00001-of-00003", "demo-train.tfrecord-00001-of-00003 (10 records"
    yield [shards[0], [*shards[1][:-1], 99], shards[2]], "00001-of-00003", "demo-train.tfrecord-00001-of-00003 (10 rec"
    yield [shards[0], [99, *shards[1]], shards[2]], "00001-of-00003", "demo-train.tfrecord-00001-of-00003 (11 records"
    yield shards[:2], "00002-of-00003", "nothing"


@pytest.mark.parametrize("number", range(4), ids=["gone", "changed", "added in front", "gone at the end"])
def test_older_records_that_are_not_there_any_more_are_named(tmp_path: Path, number: int) -> None:
    shards = numbered([10, 10, 10])
    state = Loader(publish_shards(tmp_path / "cache", shards, 1), batch_size=6, seed=3).state
    after, expected, found = list(changed(shards))[number]
    loader = Loader(publish_shards(tmp_path / "cache", after, 2), batch_size=6, seed=3, appended="now")

    with pytest.raises(StaleCacheError) as raised:
        loader.restore(state)

    words = str(raised.value)
    assert f"has changed or is gone: expected demo-train.tfrecord-{expected} (10 records, 7" in words
    assert f", found {found}" in words and "crc32c 0x" in words
    assert "name new files so that they sort after the older ones, and build again; or finish the run over" in words
    assert f"snapshot={1:016x}" in words.replace("'", "")


def test_what_cannot_continue_is_refused_in_words(tmp_path: Path, grown: Any) -> None:
    old, new = grown
    state = Loader(old, batch_size=6, seed=3).state
    later = Loader(old, batch_size=6, seed=3)
    ids_of(later, 1)

    def refused(words: str, make: Callable[[], Any]) -> None:
        with pytest.raises(BeamPipesError, match=words):
            make()

    refused("appended should be one of next_epoch, now, None, got 'soon'",
            lambda: Loader(new, batch_size=6, appended="soon"))  # type: ignore[arg-type]  # fmt: skip
    for source in (Mixture([(new, 1)]), pack(new, sequence_length=8)):
        refused(r"appended=… is for a loader of one split, .* split\.since\(manifest\), beside split\.as_of\(man",
                lambda source=source: Loader(source, batch_size=2, epochs=None, appended="now"))  # fmt: skip
    refused("if files were added to it since, pass Loader\\(…, appended='next_epoch'\\) or 'now'; or start a new run",
            lambda: Loader(new, batch_size=6, seed=3).restore(state))  # fmt: skip
    with pytest.raises(StateMismatchError) as other_seed:
        Loader(new, batch_size=6, seed=4).restore(state)
    assert "files were added" not in str(other_seed.value)
    refused("seed: 3 → 4", lambda: Loader(new, batch_size=6, seed=4, appended="now").restore(state))
    refused("this cache has none, nor a record", lambda: Loader(new, batch_size=6, seed=3, appended="now").restore(
        LoaderState.from_dict({**state.to_dict(), "source": {**state.source, "manifest": "ab" * 32}})))  # fmt: skip
    by_tokens = {"batch_size": TokenBatches(max_tokens=16), "seed": 3}
    of_tokens = Loader(old, **by_tokens)  # type: ignore[arg-type]
    ids_of(of_tokens, 1)
    refused("TokenBatches cannot go on over a split to which records were added: their buckets are those of one",
            lambda: Loader(new, **by_tokens, appended="now").restore(of_tokens.state))  # type: ignore[arg-type]  # fmt: skip

    again = Loader(new, batch_size=6, seed=3, epochs=3, appended="now")
    again.restore(later.state)
    mixture = Loader(Mixture([(new, 1)]), batch_size=6, seed=3, epochs=None)
    for appended, words in [
        ([["ab", 1, 0, -1]], "position of an addition should be a non-negative"),
        ([[1]], "malformed value"),
    ]:
        refused(words, lambda appended=appended: LoaderState.from_dict({**state.to_dict(), "appended": appended}))
    wrong = {**again.state_dict(), "appended": [[old.manifest_id[:16], 29, 0, None]]}
    refused("this state is of a run that had 29 rows where there are 30 now", lambda: loader_at(new, wrong))
    refused("belongs to another sequence", lambda: mixture.restore(again.state))
