"""`forgotten="mask"`: the batches of the run as it was, without the rows that are taken down, whatever is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import Cache, DataLoader, Loader, build, stage
from beam_pipes.building.takedown import take_down, undo_takedown
from beam_pipes.cache import Split
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Mixture, PackingPlan, Windows, pack
from beam_pipes.loader.batches import Batch
from beam_pipes.sources import TextLines

SIZES = {"a": 23, "b": 14}


@stage
def example(line: str) -> dict[str, object]:
    number = int(line)
    size = number % 4 + 1
    x = np.float32([number, 1])
    return {"number": number, "text": line, "x": x, "tokens": [number + 1] * size, "words": [line] * size}


def doubled(batch: Batch) -> Batch:
    return {"twice": batch["number"] * 2, "number": batch["number"], "text": batch["text"]}


def write(directory: Path, name: str, numbers: Iterable[int]) -> None:
    (directory / f"{name}.txt").write_text("".join(f"{number:03}\n" for number in numbers))
    build(name, TextLines(directory / f"{name}.txt"), [example], to=directory / name, workers=1)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("caches")
    for name, size in SIZES.items():
        write(directory, name, range(size))
    return directory


def without_rows(batch: Batch, gone: np.ndarray, *, is_padded: bool) -> Batch:
    """As the words say it: nothing in those rows, and False in `valid`."""
    valid = batch["valid"] if is_padded else np.ones(len(gone), bool)
    made = {}
    for name, array in batch.items():
        empty = "" if array.dtype.kind == "O" else np.zeros((), array.dtype)
        made[name] = np.where(gone.reshape(-1, *[1] * (array.ndim - 1)), empty, array)
    return {**made, "valid": valid & ~gone}


def columns_with(segment_ids: str) -> list[str]:
    """The columns of the same feature, segment ids last: `words_segment_ids` → words, words_positions, …"""
    prefix = segment_ids.removesuffix("segment_ids")
    return [prefix[:-1] or "tokens", f"{prefix}positions", segment_ids]


def assert_equal(found: Batch, expected: Batch) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].tolist() == array.tolist(), name


@settings(max_examples=60, deadline=None)
@given(
    gone=st.sets(st.integers(0, 22), min_size=1, max_size=8),
    kind=st.sampled_from(["split", "where", "mixture", "windows", "packed", "repacked", "aligned", "words", "bos"]),
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
            "packed": lambda: pack(a, feature="tokens", sequence_length=8),
            "repacked": lambda: pack(a, feature="tokens", sequence_length=8, reshuffle_each_iteration=True),
            "bos": lambda: pack(a, feature="tokens", sequence_length=3, bos_id=900),
            "words": lambda: pack(a, sequence_length={"words": 8, "tokens": 6}),
            "aligned": lambda: pack(a, feature="tokens", sequence_length=8, segment_multiple=4),
        }[kind]()
        transform = doubled if transforms and kind in ("split", "where", "mixture") else None
        made: dict[str, object] = dict(batch_size=batch_size, seed=seed, last=last, workers=workers, epochs=2)
        if kind in ("split", "where", "mixture"):
            made["pad_to"] = 4  # else a stand-in may be wider than what was there
        return Loader(source, transform=transform, host_index=0, host_count=host_count, **made, **options)  # type: ignore[arg-type]

    before = loader()
    originals = list(before)
    ids = [f"a.txt@{4 * number}" for number in sorted(gone)]
    report = take_down(str(caches / "a"), ids)
    try:
        masked = loader(forgotten="mask")
        found = list(masked)
        pieces = [
            [(each.index, each.segment, each.taken_down) for each in masked.who(step) if each.host_index == 0]
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
    for batch, original, here in zip(found, originals, pieces, strict=True):
        left = {index for index, segment, is_gone in here if segment is not None and not is_gone}
        rows = {index for index, _, is_gone in here if is_gone} - left
        hidden = np.isin(np.arange(len(next(iter(original.values())))), list(rows))
        for index, segment, is_gone in here:
            if is_gone and segment is not None:
                for name, column in original.items():
                    if name.endswith("segment_ids"):
                        place = column[index] == segment
                        for other in columns_with(name):
                            original[other][index][place] = "" if original[other].dtype == object else 0
        assert_equal(batch, without_rows(original, hidden, is_padded=last == "pad"))
        if "number" in batch and kind != "mixture":
            assert not set(batch["number"][batch["valid"]].tolist()) & gone
    for batch, again in zip(rest, found[resumed_at:], strict=True):
        assert_equal(batch, again)


class Tiny(torch.nn.Module):
    """An embedding and an attention that is masked by segments: the losses of tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        alike = (segments[:, :, None] == segments[:, None, :]) & (segments > 0)[:, None, :]
        scores = torch.where(alike, x @ x.transpose(1, 2), -torch.inf)
        x = x + torch.nan_to_num(torch.softmax(scores, dim=-1)) @ x
        return torch.nn.functional.cross_entropy(self.head(x).transpose(1, 2), tokens, reduction="none")


def trained(weights: dict[str, torch.Tensor] | None, loaders: Sequence[Loader], steps: int) -> dict[str, torch.Tensor]:
    """Steps over the global batches of the loaders of all hosts, from some weights on."""
    model = Tiny()
    if weights is not None:
        model.load_state_dict(weights)
    for parts in itertools.islice(zip(*loaders, strict=True), steps):
        batch = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        segments = batch.get("segment_ids", (batch["tokens"] > 0).int())
        weight = (segments > 0) & batch.get("valid", torch.ones(len(segments), dtype=torch.bool))[:, None]
        model.zero_grad()
        (model(batch["tokens"], segments) * weight).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad  # type: ignore[operator]
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(value.numpy().tobytes() == other[name].numpy().tobytes() for name, value in one.items())


@pytest.mark.parametrize("kind", ["plain", "packed", "repacked", "mixed", "mixed_packed", "filtered", "elastic"])
def test_replay_from_a_clean_checkpoint_is_the_run_that_never_saw_them(tmp_path: Path, kind: str) -> None:
    """Weights, bit for bit, of a replay, and of a run over a cache in which the record was another one."""
    packs = "packed" in kind

    def packed(split: Split) -> Split | PackingPlan:
        anew = kind == "repacked"
        return pack(split, feature="tokens", sequence_length=8, reshuffle_each_iteration=anew) if packs else split

    def loaders(cache: str, hosts: int = 1, **options: object) -> list[Loader]:
        a = Cache.open(tmp_path / cache)["train"]
        source: object = packed(a.where("number >= 4") if kind == "filtered" else a)
        if "mixed" in kind:
            b = packed(Cache.open(tmp_path / "b")["train"])
            source = Mixture([(source, 0.6), (b, 0.4)], exhausted="repeat")  # type: ignore[list-item]
        shape: dict[str, object] = {} if packs else {"pad_to": 4, "features": ["tokens"]}
        return [
            Loader(
                source,  # type: ignore[arg-type]
                batch_size=2 if packs else 4,
                seed=5,
                epochs=None,
                host_index=host,
                host_count=hosts,
                **shape,
                **options,
            )
            for host in range(hosts)
        ]

    write(tmp_path, "b", range(60, 74))
    write(tmp_path, "saw", range(23))
    [first] = loaders("saw")
    read = [[each.record for each in first.who(step) if each.record_id.startswith("saw")] for step in range(12)]
    number = next(each for each in sorted({*read[2], *read[3]}) if each >= 4 and each not in read[0] + read[1])
    other = [each + 40 if each == number else each for each in range(23)]  # as many tokens, so the same plan
    write(tmp_path, "never", other)

    seen = trained(None, loaders("saw"), 12)
    clean = loaders("saw")
    checkpoint, state = trained(None, clean, 2), clean[0].state_dict()
    for cache in ("saw", "never"):
        take_down(str(tmp_path / cache), [f"{cache}.txt@{4 * number}"])
    never = trained(None, loaders("never", forgotten="mask"), 12)
    replays = loaders("saw", 2 if kind == "elastic" else 1, forgotten="mask")
    for replay in replays:
        replay.load_state_dict(state)
    replayed = trained(checkpoint, replays, 10)

    assert same_bits(replayed, never)
    assert not same_bits(replayed, seen)


def test_replay_of_a_run_that_went_on_over_added_records(tmp_path: Path) -> None:
    def loader(cache: str, **options: object) -> Loader:
        options = {"batch_size": 4, "seed": 5, "epochs": None, "pad_to": 4, "features": ["tokens"], **options}
        return Loader(f"{tmp_path}/{cache}/train", **options)  # type: ignore[arg-type]

    write(tmp_path, "saw", range(23))
    late = {each.record for each in loader("saw").who(4)}
    number = min(late - {each.record for step in range(3) for each in loader("saw").who(step)})
    write(tmp_path, "never", [each + 40 if each == number else each for each in range(23)])
    clean = loader("saw")
    checkpoint, state = trained(None, [clean], 3), clean.state_dict()
    masked = loader("never", forgotten="mask")
    take_down(f"{tmp_path}/never", [f"never.txt@{4 * number}"])
    never, of_never = trained(None, [masked], 3), masked.state_dict()

    for cache, lines in (("saw", range(31)), ("never", [each + 40 if each == number else each for each in range(31)])):
        write(tmp_path, cache, lines)

    def continued(
        cache: str, weights: dict[str, torch.Tensor], state: object, **options: object
    ) -> dict[str, torch.Tensor]:
        on = loader(cache, appended="next_epoch", **options)
        on.load_state_dict(state)  # type: ignore[arg-type]
        return trained(weights, [on], 12)

    seen = continued("saw", checkpoint, state)
    take_down(f"{tmp_path}/saw", [f"saw.txt@{4 * number}"])
    replayed = continued("saw", checkpoint, state, forgotten="mask")
    assert same_bits(replayed, continued("never", never, of_never, forgotten="mask"))
    assert not same_bits(replayed, seen)


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
    with pytest.raises(LoaderError, match="ragged='values' concatenates those of tokens, words, x. Omit"):
        Loader(split, batch_size=2, forgotten="mask", ragged="values")
    with pytest.raises(LoaderError, match="forgotten should be one of stand_in, mask, got 'zero'"):
        Loader(split, batch_size=2, forgotten="zero")  # type: ignore[arg-type]
