"""`forgotten="mask"`: the batches of the run as it was, without the rows that are taken down, whatever is read."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import Cache, DataLoader, Loader, build, stage
from beam_pipes.building.care.takedown import take_down, undo_takedown
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Mixture, Windows, pack
from beam_pipes.loader.batches import Batch
from beam_pipes.sources import TextLines

SIZES = {"a": 23, "b": 14}


@stage
def example(line: str) -> dict[str, object]:
    number = int(line)
    return {"number": number, "text": line, "x": np.float32([number, 1]), "tokens": [number + 1] * (number % 4 + 1)}


def doubled(batch: Batch) -> Batch:
    return {"twice": batch["number"] * 2, "number": batch["number"], "text": batch["text"]}


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("caches")
    for name, size in SIZES.items():
        (directory / f"{name}.txt").write_text("".join(f"{number:03}\n" for number in range(size)))
        build(name, TextLines(directory / f"{name}.txt"), [example], to=directory / name, workers=1)
    return directory


def without_rows(batch: Batch, gone: np.ndarray, *, is_padded: bool) -> Batch:
    """As the words say it: nothing in those rows, and False in `valid`."""
    valid = batch["valid"] if is_padded else np.ones(len(gone), bool)
    made = {}
    for name, array in batch.items():
        empty = "" if array.dtype.kind == "O" else np.zeros((), array.dtype)
        made[name] = np.where(gone.reshape(-1, *[1] * (array.ndim - 1)), empty, array)
    return {**made, "valid": valid & ~gone}


def assert_equal(found: Batch, expected: Batch) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].tolist() == array.tolist(), name


@settings(max_examples=60, deadline=None)
@given(
    gone=st.sets(st.integers(0, 22), min_size=1, max_size=8),
    kind=st.sampled_from(["split", "where", "mixture", "windows"]),
    last=st.sampled_from(["drop", "pad", "partial"]),
    batch_size=st.integers(2, 7),
    host_count=st.integers(1, 2),
    seed=st.integers(0, 50),
    transforms=st.booleans(),
    workers=st.integers(0, 1),
    resumed_at=st.integers(0, 3),
)
def test_batches_are_those_of_the_run_without_the_rows(
    caches: Path,
    gone: set[int],
    kind: str,
    last: str,
    batch_size: int,
    host_count: int,
    seed: int,
    transforms: bool,
    workers: int,
    resumed_at: int,
) -> None:
    def loader(**options: object) -> Loader:
        a, b = (Cache.open(caches / name)["train"] for name in SIZES)
        source = {
            "split": lambda: a,
            "where": lambda: a.where("number >= 4"),
            "mixture": lambda: Mixture([(a, 0.6), (b, 0.4)], exhausted="drop"),
            "windows": lambda: Windows(a, offsets={"tokens": range(-1, 1)}),
        }[kind]()
        transform = doubled if transforms and kind != "windows" else None
        made: dict[str, object] = dict(batch_size=batch_size, seed=seed, last=last, workers=workers, epochs=2)
        if kind != "windows":
            made["pad_to"] = 4  # else a stand-in may be wider than what was there
        return Loader(source, transform=transform, host_index=0, host_count=host_count, **made, **options)  # type: ignore[arg-type]

    before = loader()
    originals = list(before)
    ids = [f"a.txt@{4 * number}" for number in sorted(gone)]
    report = take_down(str(caches / "a"), ids)
    try:
        masked = loader(forgotten="mask")
        found = list(masked)
        records = [
            {each.index for each in masked.who(step) if each.taken_down and each.host_index == 0}
            for step in range(len(found))
        ]
        state = loader()
        for _ in zip(range(resumed_at), state, strict=False):
            pass
        resumed = loader(forgotten="mask")
        resumed.load_state_dict(state.state_dict())
        rest = list(resumed)
    finally:
        undo_takedown(str(caches / "a"), report.number)

    assert len(found) == len(originals)
    for batch, original, rows in zip(found, originals, records, strict=True):
        hidden = np.isin(np.arange(len(next(iter(original.values())))), list(rows))
        assert_equal(batch, without_rows(original, hidden, is_padded=last == "pad"))
        if "number" in batch and kind != "mixture":
            assert not set(batch["number"][batch["valid"]].tolist()) & gone
    for batch, again in zip(rest, found[resumed_at:], strict=True):
        assert_equal(batch, again)


def test_replay_from_a_clean_checkpoint_is_the_run_that_never_saw_them(caches: Path) -> None:
    """A model of one layer, in float32: every bit of its weights."""

    def run(weights: np.ndarray, loader: Loader, steps: int) -> np.ndarray:
        for batch in itertools.islice(loader, steps):
            error = (batch["x"] @ weights - 1) * batch["valid"]
            weights = weights - np.float32(1e-4) * (batch["x"] * error[:, None]).sum(axis=0)
        return weights

    def loader() -> Loader:
        return Loader(f"{caches}/a/train", batch_size=4, seed=5, epochs=None, forgotten="mask")

    start, first = np.zeros(2, np.float32), loader()
    forgotten = next(
        number for number in range(23) if not any(number in first.batch_at(step)["number"] for step in range(3))
    )
    seen = run(start, first, 12)
    clean = loader()
    checkpoint = run(start, clean, 3), clean.state_dict()
    report = take_down(str(caches / "a"), [f"a.txt@{4 * forgotten}"])
    try:
        never = run(start, loader(), 12)
        replayed = loader()
        replayed.load_state_dict(checkpoint[1])
        assert run(checkpoint[0], replayed, 9).tobytes() == never.tobytes() != seen.tobytes()
    finally:
        undo_takedown(str(caches / "a"), report.number)


def test_frameworks_get_the_mask(caches: Path) -> None:
    report = take_down(str(caches / "a"), ["a.txt@0"])
    try:
        options = {"batch_size": 23, "shuffle": False, "forgotten": "mask"}
        [batch] = DataLoader.from_cache(f"{caches}/a/train", **options).dataset
        assert (batch["valid"].numpy().sum(), int(batch["number"][0]), batch["text"][0].numpy()) == (22, 0, b"")
        [batch] = DataLoader.from_cache(f"{caches}/a/train", features=["number"], **options).to_torch()
        assert batch["valid"].tolist() == [False] + [True] * 22
    finally:
        undo_takedown(str(caches / "a"), report.number)


def test_what_cannot_be_masked_is_refused(caches: Path) -> None:
    split = Cache.open(caches / "a")["train"]
    with pytest.raises(LoaderError, match="these are packed: a record that is taken down leaves its row"):
        Loader(pack(split, feature="tokens", sequence_length=8), batch_size=2, forgotten="mask")
    with pytest.raises(LoaderError, match="ragged='values' concatenates those of tokens, x. Omit ragged"):
        Loader(split, batch_size=2, forgotten="mask", ragged="values")
    with pytest.raises(LoaderError, match="forgotten should be one of stand_in, mask, got 'zero'"):
        Loader(split, batch_size=2, forgotten="zero")  # type: ignore[arg-type]
