"""Windows over sequences: every window once, with the values of a plain oracle, on any hosts, resumed and inverted."""

from __future__ import annotations

import dataclasses
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import write_split
from origin_caches import build_origins

from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, ExampleSpec, FeatureSpec, Split
from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader import BlockShuffle, Loader, Mixture, PackingPlan, Windows, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.loader.rows import GatherOptions
from beam_pipes.loader.windows import WindowRows

LENGTHS = [5, 0, 1, 12, 3, 0, 7, 2, 30, 1]


def sequences(lengths: list[int]) -> list[dict[str, Any]]:
    """Episodes of these lengths: states, actions, two joint samples and 5/3 sound samples per step, and a text."""
    made = []
    for number, length in enumerate(lengths):
        samples = -(-length * 5 // 3)
        made.append(
            {
                "state": np.arange(length * 2, dtype=np.float32).reshape(length, 2) + 1000 * number,
                "action": np.arange(length) + 100 * number,
                "joint": np.arange(2 * length, dtype=np.int32) + 1000 * number + 1,
                "sound": np.arange(samples, dtype=np.int64) + 1000 * number + 1,
                "text": f"do {number}",
                "note": np.arange(number % 4, dtype=np.int32) + 1,
            }
        )
    return made


EPISODES = ExampleSpec(
    {
        "state": FeatureSpec("float32", shape=(None, 2)),
        "action": FeatureSpec("int32", shape=(None,), minimum=0, maximum=2000),  # stored as uint16
        "joint": FeatureSpec("int32", shape=(None,)),
        "sound": FeatureSpec("int64", shape=(None,), encoding="list"),  # has to be parsed
        "text": FeatureSpec("str"),
        "note": FeatureSpec("int32", shape=(None,)),
    }
)
STEPS = ExampleSpec(
    {
        "state": FeatureSpec("float32", shape=(2,)),
        "action": FeatureSpec("int32"),
        "frame": FeatureSpec("int64"),
        "image": FeatureSpec("bytes"),
        "note": FeatureSpec("int32", shape=(None,)),
        "episode": FeatureSpec("str"),
    }
)


def steps(lengths: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "state": episode["state"][step],
            "action": episode["action"][step],
            "frame": step,
            "image": b"%d/%d" % (number, step),
            "note": np.arange(step % 3, dtype=np.int32) + 1,
            "episode": f"e{number}",
        }
        for number, episode in enumerate(sequences(lengths))
        for step in range(len(episode["action"]))
    ]


@pytest.fixture(scope="module")
def episodes(tmp_path_factory) -> Split:
    return write_split(tmp_path_factory.mktemp("episodes") / "cache", sequences(LENGTHS), EPISODES)


@pytest.fixture(scope="module")
def alike(tmp_path_factory) -> Split:
    """Episodes of one length, and so of one layout."""
    spec = ExampleSpec({name: EPISODES[name] for name in ("state", "action", "joint")})
    made = [{name: episode[name] for name in spec} for episode in sequences([6] * 5)]
    split = write_split(tmp_path_factory.mktemp("alike") / "cache", made, spec, shards=2)
    assert split.fixed
    return split


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Split:
    """The steps of the episodes; episodes go on in the next shard."""
    return write_split(tmp_path_factory.mktemp("frames") / "cache", steps(LENGTHS), STEPS, shards=4)


def expected(
    episode: dict[str, Any], options: dict[str, Any], ends: dict[str, str], rates: dict[str, Any]
) -> list[dict[str, Any]]:
    """The windows of one episode, one loop after the other."""
    length, made = len(episode["action"]), []

    def samples(name: str, anchor: int) -> list[int]:
        return [anchor * Fraction(rates.get(name, 1)) // 1 + offset for offset in options["offsets"][name]]

    def inside(name: str, anchor: int) -> bool:
        return all(0 <= sample < len(episode[name]) for sample in samples(name, anchor))

    dropping = [name for name in options["offsets"] if ends[name] == "drop"]
    # The first anchor has room before it; how much room is behind it differs.
    first = 0
    while any(sample < 0 for name in dropping for sample in samples(name, first)):
        first += 1
    for anchor in range(first, length, options["stride"]):
        if not all(inside(name, anchor) for name in dropping):
            continue
        row = {}
        for name in options["offsets"]:
            values, last = [], len(episode[name]) - 1
            for sample in samples(name, anchor):
                if 0 <= sample <= last:
                    values.append(episode[name][sample])
                else:
                    values.append(
                        0 * episode[name][0] - 7 if ends[name] == "fill" else episode[name][min(max(sample, 0), last)]
                    )
            row[name] = np.array(values)
            if ends[name] != "drop":
                row[f"{name}_valid"] = np.array([0 <= sample <= last for sample in samples(name, anchor)])
        made.append(row)
    return made


offsets = st.one_of(
    st.tuples(st.integers(-6, 4), st.integers(1, 8)).map(lambda pair: list(range(pair[0], sum(pair)))),
    st.lists(st.integers(-9, 9), min_size=1, max_size=4),
)
all_ends = st.sampled_from(["repeat", "fill", "drop"])


@given(
    kind=st.sampled_from(["episodes", "alike", "frames"]),
    given_offsets=st.fixed_dictionaries({"state": offsets, "action": offsets, "joint": offsets, "sound": offsets}),
    ends=st.fixed_dictionaries({"state": all_ends, "action": all_ends, "joint": all_ends, "sound": all_ends}),
    stride=st.integers(1, 5),
    chosen=st.booleans(),
    shuffle=st.sampled_from([True, False, BlockShuffle(window=2)]),
    batch_size=st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_every_window_comes_once_with_the_values_of_the_oracle(
    episodes, alike, frames, kind, given_offsets, ends, stride, chosen, shuffle, batch_size
):
    split = {"episodes": episodes, "alike": alike, "frames": frames}[kind]
    names = {"episodes": ["state", "action", "joint", "sound"], "alike": ["state", "action", "joint"]}.get(
        kind, ["state", "action"]
    )
    rates = {name: rate for name, rate in {"joint": 2, "sound": Fraction(5, 3)}.items() if name in names}
    options = {"offsets": {name: given_offsets[name] for name in names}, "stride": stride}
    kept = sequences([6] * 5 if kind == "alike" else LENGTHS)
    if chosen and kind != "alike":
        whole = split.where("text != 'do 3'" if kind == "episodes" else "episode != 'e3'")
        split, kept = whole, [episode for episode in kept if episode["text"] != "do 3"]
    rows = [row for episode in kept for row in expected(episode, options, ends, rates)]

    more = {"by": "episode", "step": "frame"} if kind == "frames" else {"rates": rates}
    windows = Windows(split, **options, **more, ends={name: ends[name] for name in names})
    assert len(windows) == len(rows)
    if not rows:
        return
    features = [*names, *(["episode"] if kind == "frames" else [])]
    loader = Loader(
        windows, batch_size=batch_size, seed=3, last="partial", shuffle=shuffle, features=features, pad_value=-7
    )

    seen = set()
    for number, row in enumerate(rows):
        place = loader.when(number)
        batch = loader.batch_at(place.step)
        seen.add((place.step, place.index))
        for name, values in row.items():
            found = batch[name][place.index]
            assert found.tolist() == values.tolist(), name
            assert name.endswith("_valid") or found.dtype == split.spec[name].numpy_dtype
        if kind == "frames":
            anchor = windows.place_of(number)
            assert batch["episode"][place.index] == split[anchor.record]["episode"]
    assert len(seen) == len(rows) == sum(len(batch["action"]) for batch in loader)


@given(
    kind=st.sampled_from(["episodes", "frames"]),
    given_offsets=st.fixed_dictionaries({"state": offsets, "action": offsets}),
    ends=st.fixed_dictionaries({"state": all_ends, "action": all_ends}),
    stride=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_rows_and_records_are_inverse_and_blocks_are_shards(episodes, frames, kind, given_offsets, ends, stride):
    split = episodes if kind == "episodes" else frames
    windows = Windows(
        split, offsets=given_offsets, ends=ends, stride=stride, by=None if kind == "episodes" else "episode"
    )
    rows = WindowRows(windows, GatherOptions())

    records_of = [rows.records_of(row).tolist() for row in range(len(windows))]
    for record in range(len(split)):
        expected_rows = [row for row, records in enumerate(records_of) if record in records]
        assert rows.rows_with(np.array([record])).tolist() == expected_rows
    anchors = np.array([windows.place_of(row).record for row in range(len(windows))], np.int64)
    bounds = [0, *np.cumsum(split.shard_sizes).tolist()]
    assert rows.block_sizes.tolist() == np.histogram(anchors, bounds)[0].tolist()
    if kind == "frames":
        for row, records in enumerate(records_of):
            sequence, step, anchor = windows.place_of(row)
            length = [each for each in LENGTHS if each][sequence]
            inside = {anchor}
            for name, around in given_offsets.items():
                for wanted in (step + offset for offset in around):
                    if 0 <= wanted < length or ends[name] == "repeat":
                        inside.add(anchor - step + min(max(wanted, 0), length - 1))
            assert records == sorted(inside)


def test_sequences_go_on_from_one_read_to_the_next(frames, monkeypatch):
    whole = Windows(frames, past=1, by=["episode"], step="frame").index
    monkeypatch.setattr("beam_pipes.loader.first_steps._AT_ONCE", 3)

    in_parts = Windows(frames, past=1, by=["episode"], step="frame").index

    assert whole.lengths.tolist() == in_parts.lengths.tolist() == [length for length in LENGTHS if length]
    assert whole.firsts.tolist() == in_parts.firsts.tolist()


def test_first_steps_of_a_large_snapshot_are_kept_beside_its_shards(tmp_path, monkeypatch):
    split = write_split(tmp_path / "cache", steps(LENGTHS), STEPS, shards=4)
    monkeypatch.setattr("beam_pipes.loader.first_steps._AT_ONCE", 16)

    def found(of: Split = split, **options: Any) -> list[int]:
        options = {"by": "episode", "step": "frame", **options}
        return Windows(of, past=1, **options).index.firsts.tolist()

    def kept() -> list[Path]:
        return sorted((tmp_path / "cache").glob("snapshots/*/first-steps-*"))

    expected_firsts = found()
    assert expected_firsts == np.cumsum([0, *[length for length in LENGTHS if length][:-1]]).tolist()
    [file] = kept()
    whole = file.read_bytes()
    with monkeypatch.context() as without_records:
        without_records.setattr("beam_pipes.loader.first_steps._read", None)
        assert found() == found(Cache.open(tmp_path / "cache")["train"]) == expected_firsts
    assert found(step=None) == found(by=["episode"], step=None) == expected_firsts and len(kept()) == 2
    assert found(by=["episode", "frame"], step=None) == list(range(len(split))) and len(kept()) == 3  # other features
    assert found(split.where("episode != 'e0'")) == [first - 5 for first in expected_firsts[1:]] and len(kept()) == 3
    for damaged in (b"", whole[:-1], whole[4:], whole[:8] + b"x" + whole[9:], kept()[1].read_bytes()):
        if damaged != whole:
            file.write_bytes(damaged)
            assert found() == expected_firsts and file.read_bytes() == whole
    file.write_bytes(whole[:-1])
    signature = file.with_name("signature.json")
    signature.touch()
    assert found() == expected_firsts and file.read_bytes() == whole[:-1]  # not covered, so not used
    signature.unlink()
    file.unlink()
    file.mkdir()  # nothing can be read or written there
    (file / "other").touch()
    assert found() == expected_firsts
    assert not [*(tmp_path / "cache").glob("snapshots/*/.*")] and len(kept()) == 3
    assert Cache.open(tmp_path / "cache").verify().ok


def test_whole_features_and_those_of_bytes(episodes, frames):
    windows = Windows(episodes, offsets={"action": range(2), "note": None})
    batch = next(iter(Loader(windows, batch_size=61, shuffle=False)))

    assert set(batch) == {"action", "action_valid", "note", "text"}  # not joint, which would be a whole episode
    assert batch["text"].tolist() == [f"do {n}" for n, length in enumerate(LENGTHS) for _ in range(length)]
    assert batch["note"].tolist() == [
        [*range(1, n % 4 + 1), *[0] * (3 - n % 4)] for n, length in enumerate(LENGTHS) for _ in range(length)
    ]

    windows = Windows(frames, past=1, future=1, by="episode")
    batch = next(iter(Loader(windows, batch_size=60, shuffle=False, last="partial")))
    assert batch["image"][:3].tolist() == [[b"0/0", b"0/0"], [b"0/0", b"0/1"], [b"0/1", b"0/2"]]
    assert batch["note"].shape == (60, 2, 2)
    assert batch["note"][3].tolist() == [[1, 2], [0, 0]]


runs = st.tuples(st.integers(-6, 4), st.integers(1, 8)).map(lambda pair: range(pair[0], sum(pair)))


@given(
    given_offsets=st.fixed_dictionaries({"action": runs}, optional={"joint": runs, "sound": runs}),
    ends=all_ends,
    stride=st.integers(1, 5),
    room=st.integers(0, 12),
    bos=st.sampled_from([None, 3000, "stored"]),
    others=st.fixed_dictionaries(
        {},
        optional={
            "algorithm": st.sampled_from(["first_fit", "next_fit"]),
            "max_segments": st.integers(1, 3),
            "seed": st.just(5),
        },
    ),
)
@settings(max_examples=60, deadline=None)
def test_packed_windows_are_the_segments_of_the_oracle(episodes, given_offsets, ends, stride, room, bos, others):
    if len(given_offsets) > 1:
        bos, others = None, {**others, "algorithm": "best_fit"}
    rates = {name: {"joint": 2, "sound": Fraction(5, 3)}[name] for name in given_offsets if name != "action"}
    windows = Windows(episodes, offsets=given_offsets, rates=rates, ends=ends, stride=stride)
    limits = {name: len(each) + (bos is not None) + room for name, each in given_offsets.items()}
    plan = pack(windows, sequence_length=limits, bos_id=None if bos is None else 3000, **others)
    if not len(plan):
        assert not any(any(piece.values()) for piece in pieces(windows, None))
        return
    batch = Loader(plan, batch_size=len(plan), shuffle=False, pad_value=-7).batch_at(0)

    found = []
    for row in range(len(plan)):
        begins = dict.fromkeys(given_offsets, 0)
        for segment in range(1, plan.most_segments + 1):
            values = {}
            for name in given_offsets:
                prefix = f"{name}_" if len(given_offsets) > 1 else ""
                at = np.flatnonzero(batch[f"{prefix}segment_ids"][row] == segment)
                assert at.tolist() == list(range(begins[name], begins[name] + len(at)))
                assert batch[f"{prefix}positions"][row][at].tolist() == list(range(len(at)))
                values[name], begins[name] = batch[name][row][at].tolist(), begins[name] + len(at)
            found.append(values)
        assert all((batch[name][row, begin:] == -7).all() for name, begin in begins.items())
    expected_pieces = pieces(windows, bos)

    def some(all_pieces: list[dict[str, list[int]]]) -> list[list[list[int]]]:
        return sorted([*piece.values()] for piece in all_pieces if any(piece.values()))

    assert some(found) == some(expected_pieces)
    assert plan.empty_records == sum(not any(piece.values()) for piece in expected_pieces)
    for name, totals in plan.totals.items():
        assert totals.tokens_in == totals.tokens_out == sum(len(piece[name]) for piece in pieces(windows, None))


def pieces(windows: Windows, bos: int | str | None) -> list[dict[str, list[int]]]:
    """What each window has of its sequence, one loop after the other; with BOS in front, unless it counts as stored."""
    made = []
    for episode in sequences(LENGTHS):
        anchors = [
            {
                name: [anchor * Fraction(windows.rates.get(name, 1)) // 1 + offset for offset in offsets]
                for name, offsets in windows.offsets.items()
            }
            for anchor in range(len(episode["action"]))
        ]
        if windows.ends == "drop":
            while anchors and any(sample < 0 for samples in anchors[0].values() for sample in samples):
                del anchors[0]
        for needed in anchors[:: windows.stride]:
            there = {name: [s for s in needed[name] if 0 <= s < len(episode[name])] for name in needed}
            if windows.ends == "drop" and there != needed:
                continue
            piece = {name: [episode[name][sample].item() for sample in there[name]] for name in there}
            if bos is not None and piece["action"]:
                piece["action"] = [3000, *piece["action"]]
            made.append(piece)
    return made


def test_packed_windows_are_kept_in_a_file_and_named_in_states(episodes, tmp_path):
    plan = pack(Windows(episodes, offsets={"action": range(4)}), sequence_length=8, feature="action")
    plan.save(tmp_path / "windows.plan")
    again = PackingPlan.load(tmp_path / "windows.plan", episodes)
    one, other = (Loader(each, batch_size=4, seed=3) for each in (plan, again))

    for found, same in zip(one, other, strict=True):
        assert all(np.array_equal(found[name], same[name]) for name in found)
    assert one.state == other.state
    strided = pack(Windows(episodes, offsets={"action": range(4)}, stride=2), sequence_length=8, feature="action")
    with pytest.raises(StateMismatchError, match=r"source\.plan"):
        Loader(strided, batch_size=4, seed=3).restore(one.state)


def test_who_and_when_name_the_records_of_packed_windows_and_takedowns_remove_them(origins):
    def read(split: Split) -> tuple[Loader, list[dict[str, Any]]]:
        plan = pack(Windows(split, offsets={"tokens": range(-1, 3)}, stride=2), sequence_length=10)
        loader = Loader(plan, batch_size=3, seed=2, epochs=2, last="pad", pad_value=-1)
        return loader, list(loader)

    loader, before = read(origins)
    places: dict[str, set[tuple[int, ...]]] = {}
    for step, batch in enumerate(before):
        named = loader.who(step)
        for each in named:
            values = batch["tokens"][each.index][batch["segment_ids"][each.index] == each.segment]
            assert len(values) and (values == origins[each.record]["number"]).all()
            places.setdefault(each.record_id, set()).add((each.step, each.index, each.segment))
        assert len(named) == sum(np.unique(row[row > 0]).size for row in batch["segment_ids"])
    for record_id, expected_places in places.items():
        found = loader.when_record(record_id, epochs=2)
        assert {(each.step, each.index) for each in found} == {(step, index) for step, index, _ in expected_places}

    hidden = max(places, key=lambda record_id: len(places[record_id]))
    gone = int(origins[int(origins.find_rows(hidden)[0])]["number"])
    take_down(origins.path, [hidden], reason="asked")
    _, after = read(Cache.open(origins.path)["train"])
    for one, other in zip(before, after, strict=True):
        for was, now in zip(one["tokens"].tolist(), other["tokens"].tolist(), strict=True):
            assert [value for value in now if value != -1] == [value for value in was if value not in (-1, gone)]


@pytest.mark.parametrize("kind", ["episodes", "frames", "packed"])
def test_a_state_of_four_hosts_continues_on_two_and_three(episodes, frames, kind):
    def windows() -> Windows | PackingPlan:
        if kind == "packed":
            return pack(Windows(episodes, offsets={"action": range(-1, 3)}), sequence_length=5, feature="action")
        return (
            Windows(episodes, offsets={"action": range(-1, 3), "note": None})
            if kind == "episodes"
            else Windows(frames, offsets={"action": range(-1, 3), "note": range(2)}, by="episode")
        )

    def loaders(hosts: int) -> list[Loader]:
        return [
            Loader(windows(), batch_size=12, seed=5, epochs=2, host_index=host, host_count=hosts)
            for host in range(hosts)
        ]

    def together(batches: list[dict[str, Any]]) -> dict[str, list[Any]]:
        return {name: np.concatenate([batch[name] for batch in batches]).tolist() for name in batches[0]}

    whole = [together([batch]) for batch in loaders(1)[0]]
    before = loaders(4)
    runs = list(map(iter, before))
    read = [together([next(run) for run in runs]) for _ in range(4)]
    state = before[2].state
    assert [loader.state for loader in before] == [state] * 4

    for hosts in (2, 3):
        after = loaders(hosts)
        for loader in after:
            loader.restore(state)
        rest = [together(list(batches)) for batches in zip(*after, strict=True)]
        assert read + rest == whole
    copy = pickle.loads(pickle.dumps(after[0]))
    copy.restore(state)
    assert copy.epoch == 4 // (len(whole) // 2) and next(iter(copy))["action"].tolist() == whole[4]["action"][:4]


def test_a_state_names_what_the_rows_depend_on(episodes):
    windows = Windows(episodes, offsets={"action": range(2)})
    loader = Loader(windows, batch_size=3, seed=5)
    next(iter(loader))

    Loader(Windows(episodes, offsets={"state": [0]}), batch_size=4, seed=5).restore(loader.state)  # the same rows
    with pytest.raises(StateMismatchError, match=r"source\.windows: 'stride 1' → 'stride 2'"):
        Loader(Windows(episodes, offsets={"action": range(2)}, stride=2), batch_size=3, seed=5).restore(loader.state)
    with pytest.raises(StateMismatchError, match="0 to 1 at rate 1 inside"):
        Loader(Windows(episodes, offsets={"action": range(2)}, ends="drop"), batch_size=3, seed=5).restore(loader.state)
    with pytest.raises(
        LoaderError, match=r"this state is of windows \(stride 1\).*: pass the arguments of Windows \(--windows"
    ):
        loader_from_state(loader.state, [episodes.path], batch_size=3)
    assert "61 windows of 10 sequences, stride 1: action 0 to 1, ends='repeat'" in loader.describe()


def test_mixtures_of_windows(episodes, alike):
    features = ["state", "action"]
    loader = Loader(
        Mixture([(Windows(each, offsets={"state": [0], "action": range(3)}), 1) for each in (episodes, alike)]),
        batch_size=10, epochs=None, seed=2, features=features,
    )  # fmt: skip
    batch = loader.batch_at(7)

    assert batch["action"].shape == (10, 3) and batch["action_valid"].dtype == bool
    assert (batch["action"][:, 0] % 100 * 2 == batch["state"][:, 0, 0] % 1000).all()
    with pytest.raises(LoaderError, match="differ in feature 'action'"):
        other = Windows(alike, offsets={"state": [0], "action": range(4)})
        Loader(Mixture([(Windows(episodes, offsets={"state": [0], "action": range(3)}), 1), (other, 1)]),
               batch_size=10, epochs=None, features=features)  # fmt: skip


def test_only_the_bytes_of_a_window_are_read(tmp_path: Path):
    spec = ExampleSpec({"state": FeatureSpec("float32", shape=(None, 64))})
    made = [{"state": np.full((length, 64), length, np.float32)} for length in (20_000, 20_001)]
    write_split(tmp_path / "cache", made, spec)
    split = Cache.open(tmp_path / "cache", mmap=False)["train"]
    loader = Loader(Windows(split, future=4, past=2), batch_size=8, seed=1, last="pad")
    loader.batch_at(0)

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = read_bytes()
    batch = loader.batch_at(3)

    assert batch["state"].shape == (8, 6, 64) and set(batch["state"].reshape(-1).tolist()) <= {20_000.0, 20_001.0}
    assert batch["state"].nbytes <= read_bytes() - before < 2 * batch["state"].nbytes


@pytest.fixture
def origins(tmp_path):
    return build_origins(tmp_path, "text", 40)["train"]


def _windows_of(split: Split, kind: str) -> Windows:
    if kind == "records":
        return Windows(split, offsets={"tokens": range(-1, 3)}, stride=2)
    return Windows(split, offsets={"tokens": [0], "number": range(-1, 2)}, by="number", ends="fill")


@pytest.mark.parametrize("kind", ["records", "steps"])
def test_who_and_when_are_inverse_and_takedowns_replace_whole_windows(origins, tmp_path, kind):
    def read(split: Split) -> tuple[Loader, list[dict[str, Any]]]:
        loader = Loader(_windows_of(split, kind), batch_size=4, seed=2, epochs=2, last="pad", pad_value=-1)
        return loader, list(loader)

    def named(loader: Loader) -> dict[str, set[tuple[int, ...]]]:
        found: dict[str, set[tuple[int, ...]]] = {}
        for each in (each for step in range(len(loader)) for each in loader.who(step)):
            found.setdefault(each.record_id, set()).add((each.step, each.index, each.taken_down))
        return found

    loader, before = read(origins)
    places = named(loader)
    for record_id, output in places.items():
        found = loader.when_record(record_id, epochs=2)
        assert {(each.step, each.index, each.taken_down) for each in found} == output
    # Every number in a batch is that of a record which is named.
    for step, batch in enumerate(before):
        numbers = {origins[each.record]["number"] for each in loader.who(step)}
        assert set(batch["number" if kind == "steps" else "tokens"].reshape(-1).tolist()) - {-1, 0} <= numbers

    hidden = max(places, key=lambda record_id: len(places[record_id]))
    gone = int(origins[int(origins.find_rows(hidden)[0])]["number"])
    take_down(origins.path, [hidden], reason="asked")
    loader, after = read(Cache.open(origins.path)["train"])
    output = named(loader)

    assert {(step, index) for step, index, down in output[hidden] if down} == {(s, i) for s, i, _ in places[hidden]}
    assert all(gone not in batch["tokens"] for batch in after)
    changed = {
        (step, index)
        for step, (one, other) in enumerate(zip(before, after, strict=True))
        for index in range(len(one["tokens"]))
        if one["number"][index].tolist() != other["number"][index].tolist()
    }
    assert changed <= {(step, index) for step, index, _ in places[hidden]}
    stand_ins = [each for step in range(len(loader)) for each in loader.who(step) if each.taken_down]
    assert stand_ins and all(each.stands_in not in (None, hidden) for each in stand_ins)
    replaced = next(each for each in stand_ins if each.record_id == hidden)
    instead = loader.when_record(replaced.stands_in, epochs=2)
    assert (replaced.step, replaced.index) in {(each.step, each.index) for each in instead if each.stands_in_for}


def test_steps_that_are_missing_or_in_two_pieces_are_refused(tmp_path, frames):
    with pytest.raises(
        LoaderError,
        match=r"steps are missing in the sequence episode='e0': between record 2 and record 3, .*leaves out steps",
    ):
        Windows(frames.where("frame != 3"), past=1, by="episode")

    made = steps([2, 3])
    gap = write_split(tmp_path / "gap", [*made[:3], *made[4:]], STEPS, shards=1)
    with pytest.raises(LoaderError, match=r"episode='e1': between record 2 and record 3, 'frame' does not rise by one"):
        Windows(gap, past=1, by="episode", step="frame")
    again = write_split(tmp_path / "again", [*made, *steps([2])], STEPS, shards=2)
    with pytest.raises(
        LoaderError,
        match=r"the sequence episode='e0' begins at record 0 of split 'train' and again at record 5: .*by=\[\"file\"",
    ):
        Windows(again, past=1, by="episode")
    assert len(Windows(gap, past=1, by=["episode", "image"]).index.lengths) == 4  # together they name each step


STATE, JOINT = {"state": [0]}, {"joint": [0]}
NO_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({}, r"needs the steps of a window: past=… and future=…, or offsets=.*There are: .*state"),
    (
        {"offsets": {"stat": [0]}},
        r"offsets of Windows, split 'train': there is no feature 'stat'\. Did you mean 'state'",
    ),
    ({"offsets": {"text": [0]}}, r"'text' of shape \(\) has no axis of steps"),
    ({"offsets": {"state": []}}, r"offsets of 'state' should be steps around the anchor, .*got \[\]"),
    ({"offsets": {"state": [0.5]}}, "an offset of 'state' should be an integer, got 0.5"),
    ({"offsets": STATE | JOINT}, r"record 0 of split 'train' has 5 steps of 'state' and 10 of 'joint', expected 1 per"),
    ({"offsets": STATE | JOINT, "rates": {"joint": 3}}, r"10 of 'joint', expected 3 per step\. Pass rates="),
    ({"offsets": JOINT, "rates": {"joint": 2}}, "nothing says how many steps a sequence has"),
    ({"offsets": STATE, "rates": {"state": 0}}, "rate of 'state' should be its samples per step, .*got 0"),
    (
        {"offsets": STATE, "rates": {"state": Fraction(1, 1 << 20)}},
        "integer or Fraction of numbers below 2.20, got Fraction",
    ),
    ({"offsets": STATE, "stride": 0}, "stride should be at least 1, got 0"),
    ({"offsets": STATE, "ends": "wrap"}, "ends of Windows should be one of repeat, fill, drop, got 'wrap'"),
    ({"offsets": STATE, "step": "action"}, "step='action' counts records of a sequence, which by=… names"),
    ({"offsets": STATE, "by": "text", "rates": {"state": 2}}, "with by=… a record is one step"),
    ({"offsets": STATE, "by": "action"}, r"'action' should name the sequence or count the step .* int32 \(None,\)"),
    ({"offsets": STATE, "by": "text", "step": "text"}, r"'text' should name .*an integer for steps; it is str \(\)"),
]


@pytest.mark.parametrize(("options", "words"), NO_WINDOWS)
def test_of_what_is_not_a_window(episodes, options, words):
    with pytest.raises(LoaderError, match=words):
        Windows(episodes, **options)


def test_of_sources_and_options_that_windows_do_not_take(episodes, frames):
    windows = Windows(episodes, offsets={"action": [0]})
    for options, words in [
        ({"ragged": "values"}, "windows have the lengths of their offsets"),
        ({"features": ["joint"]}, "windows of split 'train': there is no feature 'joint'"),
        ({"appended": "now"}, r"appended=… is for a loader of one split, .*got Windows"),
    ]:
        with pytest.raises(LoaderError, match=words):
            Loader(windows, batch_size=2, **options)
    some = Windows(episodes, offsets={"action": range(4), "joint": range(8)}, rates={"joint": 2})
    both = {"sequence_length": {"action": 9, "joint": 9}, "feature": None, "bos_id": {"action": 1}}
    not_packed: list[tuple[dict[str, Any], str]] = [
        ({"overlong": "split"}, r"windows are packed whole, .*take no overlong='split'\. Leave it out"),
        ({"algorithm": "concat_then_split"}, "take no algorithm='concat_then_split'"),
        ({"reshuffle_each_iteration": True}, r"take no reshuffle_each_iteration=True\. .*give seed="),
        ({"bos_id": 1}, r"windows of 4 steps of 'action' take up to 5 positions, and a row has 4\. Give longer rows"),
        ({"feature": "note"}, r"'note' has no windows of consecutive steps in <61 windows .* Store each sequence as"),
        (both, r"bos_id cuts action, joint at the same places: give them the same offsets"),
    ]
    for options, words in not_packed:
        with pytest.raises(LoaderError, match=words):
            pack(some, **{"sequence_length": 4, "feature": "action", **options})
    with pytest.raises(LoaderError, match="cuts each window out of one record, and 'note' has no windows"):
        pack(Windows(frames, past=1, by="episode"), sequence_length=4, feature="note")
    with pytest.raises(LoaderError, match="Windows takes one split of a cache"):
        Windows(pack(episodes, sequence_length=40, feature="note"), future=3)  # type: ignore[arg-type]
    with pytest.raises(LoaderError, match="no sequence is long enough for a window inside of it"):
        Loader(Windows(frames, future=99, by="episode", ends="drop"), batch_size=1)
    assert dataclasses.is_dataclass(windows) and "61 windows of 10 sequences" in repr(windows)
