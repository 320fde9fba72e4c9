"""Packing with `bos_id`: every row and every piece begins with BOS, and every token of every document is in one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec, Split
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, Mixture, PackingPlan, pack
from beam_pipes.loader.batches import Batch

BOS = 1 << 20
CHAT = ExampleSpec({"tokens": FeatureSpec("int32", shape=(None,)), "loss_weights": FeatureSpec("uint8", shape=(None,))})


@pytest.fixture(scope="module")
def stored_split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Documents of 0, or 2 to 31 tokens that begin with BOS in the cache; token t of document i is 1000 i + t + 1."""
    lengths = np.random.default_rng(3).integers(0, 31, 90)
    lengths += lengths > 0
    documents = [
        {"tokens": np.where(np.arange(n) > 0, np.arange(n) + 1000 * i + 1, BOS), "id": i} for i, n in enumerate(lengths)
    ]
    return write_split(tmp_path_factory.mktemp("stored") / "cache", documents, DOCUMENTS)


def segments_of(batch: Batch) -> list[list[int]]:
    """The tokens of each segment; rows and segments begin with BOS, positions count from 0, and padding is empty."""
    found = []
    for tokens, ids, positions in zip(batch["tokens"], batch["segment_ids"], batch["positions"], strict=True):
        if not ids.any():
            continue
        assert tokens[0] == BOS and ids[0] == 1
        assert not tokens[ids == 0].any() and not positions[ids == 0].any()
        for segment in range(1, int(ids.max()) + 1):
            inside = np.flatnonzero(ids == segment)
            assert (np.diff(inside) == 1).all() and positions[inside].tolist() == [*range(len(inside))]
            found.append(tokens[inside].tolist())
    assert all(segment[0] == BOS and BOS not in segment[1:] and len(segment) > 1 for segment in found)
    return found


def documents_of(split: Split) -> list[list[int]]:
    return sorted(tokens for i in range(len(split)) if (tokens := [t for t in split[i]["tokens"].tolist() if t != BOS]))


def rebuilt(segments: list[list[int]]) -> list[list[int]]:
    """The documents from their pieces, each token once, without BOS."""
    by_document: dict[int, list[int]] = {}
    for piece in sorted(segment[1:] for segment in segments):
        by_document.setdefault(piece[0] // 1000, []).extend(piece)
    return sorted(by_document.values())


@settings(max_examples=40, deadline=None)
@given(
    is_stored=st.booleans(),
    sequence_length=st.integers(2, 40),
    algorithm=st.sampled_from(["best_fit", "first_fit", "next_fit"]),
    max_segments=st.none() | st.integers(1, 3),
    multiple=st.sampled_from([1, 1, 4]),
    seed=st.none() | st.integers(0, 3),
    is_repacked=st.booleans(),
    batch_size=st.integers(8, 64),
)
def test_every_token_is_in_one_row_of_each_epoch_behind_a_bos(
    document_split: Split,
    stored_split: Split,
    is_stored: bool,
    sequence_length: int,
    algorithm: str,
    max_segments: int | None,
    multiple: int,
    seed: int | None,
    is_repacked: bool,
    batch_size: int,
) -> None:
    split = stored_split if is_stored else document_split
    plan = pack(
        split,
        sequence_length=sequence_length * multiple,
        algorithm=algorithm,
        max_segments=max_segments,
        segment_multiple=multiple,
        bos_id=BOS,
        bos_stored=is_stored,
        seed=seed,
        reshuffle_each_iteration=is_repacked and algorithm == "best_fit",
    )
    loader = Loader(plan, batch_size=batch_size, epochs=2, last="partial")

    steps = -(-len(plan) // batch_size)
    for epoch in range(2):
        batches = [loader.batch_at(epoch * steps + step) for step in range(steps)]
        segments = [segment for batch in batches for segment in segments_of(batch)]
        assert rebuilt(segments) == documents_of(split)

    totals = plan.totals["tokens"]
    assert totals.tokens_in == totals.tokens_out and plan.truncated_tokens == plan.dropped_tokens == 0
    assert totals.added_tokens == len(segments) - (len(documents_of(split)) if is_stored else 0)
    assert plan.waste == pytest.approx(
        1 - (totals.tokens_out + totals.added_tokens) / sum(batch["tokens"].size for batch in batches)
    )
    assert plan.lower_bound <= len(plan)
    for step, copied in enumerate(Loader(plan, batch_size=batch_size, last="partial")):
        for name, column in loader.batch_at(step).items():
            assert np.array_equal(copied[name], column), name


def test_a_row_as_documented(tmp_path: Path) -> None:
    split = write_split(tmp_path / "cache", [{"tokens": [5, 6, 7], "id": 0}, {"tokens": [8, 9], "id": 1}], DOCUMENTS)
    plan = pack(split, sequence_length=8, bos_id=1)

    batch = Loader(plan, batch_size=1, cu_seqlens=True).batch_at(0)

    assert batch["tokens"].tolist() == [[1, 5, 6, 7, 1, 8, 9, 0]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 1, 2, 2, 2, 0]]
    assert batch["positions"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 0]]
    assert batch["cu_seqlens"].tolist() == [0, 4, 7, 8]
    assert "each segment begins with BOS (1)" in str(Loader(plan, batch_size=1).describe())


def test_each_token_is_predicted_once_and_no_bos_is(document_split: Split) -> None:
    plan = pack(document_split, sequence_length=12, bos_id=BOS)
    targets = list[int]()
    for batch in Loader(plan, batch_size=4, last="partial"):
        tokens, ids = batch["tokens"], batch["segment_ids"]
        is_target = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] > 0)
        targets += tokens[:, 1:][is_target].tolist()

    assert sorted(targets) == sorted(sum(documents_of(document_split), []))


def test_saved_plans_states_and_hosts_give_the_same_rows(tmp_path: Path, document_split: Split) -> None:
    plan = pack(document_split, sequence_length=10, bos_id=BOS)
    plan.save(tmp_path / "rows.plan")
    loaded = PackingPlan.load(tmp_path / "rows.plan", document_split)
    assert loaded.digest == plan.digest != pack(document_split, sequence_length=10, overlong="split").digest
    assert (loaded.bos_ids, loaded.bos_stored, loaded.totals) == ({"tokens": BOS}, False, plan.totals)
    whole = [batch["tokens"].tolist() for batch in Loader(plan, batch_size=6, seed=2)]

    first = [Loader(loaded, batch_size=6, seed=2, host_index=host, host_count=2) for host in range(2)]
    reading = [iter(loader) for loader in first]
    begun = [[next(batches)["tokens"].tolist() for batches in reading] for _ in range(3)]
    state = reading[0].state
    for batches in reading:
        batches.close()
    rest = [Loader(loaded, batch_size=6, seed=2, host_index=host, host_count=3) for host in range(3)]
    for loader in rest:
        loader.restore(state)

    found = [sum(parts, []) for parts in begun]
    found += [sum((part["tokens"].tolist() for part in parts), []) for parts in zip(*rest, strict=True)]
    assert found == whole


def test_rows_of_a_mixture_begin_with_bos(document_split: Split, stored_split: Split) -> None:
    plans = [
        pack(document_split, sequence_length=10, bos_id=BOS),
        pack(stored_split, sequence_length=10, bos_id=BOS, bos_stored=True),
    ]
    loader = Loader(Mixture([(plan, 0.5) for plan in plans]), batch_size=5, epochs=None)
    for step in range(0, 200, 9):  # passes over both sources meet
        assert segments_of(loader.batch_at(step))


def test_weights_of_the_loss_are_cut_with_their_tokens_and_are_0_at_bos(tmp_path: Path) -> None:
    lengths = [25, 3, 9, 1, 14]
    talks = [{"tokens": np.arange(n) + 1000 * i + 10, "loss_weights": np.arange(n) % 2} for i, n in enumerate(lengths)]
    split = write_split(tmp_path / "cache", talks, CHAT)
    both = {"tokens": 10, "loss_weights": 10}
    for bos_id in (None, {"tokens": BOS}):
        plan = pack(split, sequence_length=both, overlong="split", bos_id=bos_id)

        pairs, firsts = list[tuple[int, int]](), list[tuple[int, int]]()
        for batch in Loader(plan, batch_size=2, last="partial"):
            assert np.array_equal(batch["tokens_segment_ids"], batch["loss_weights_segment_ids"])
            inside, is_first = batch["tokens_segment_ids"] > 0, batch["tokens_positions"] == 0
            there = np.stack([batch["tokens"], batch["loss_weights"]], axis=-1)
            firsts += map(tuple, there[inside & is_first].tolist())
            pairs += map(tuple, there[inside & ~(is_first & (bos_id is not None))].tolist())
            assert not batch["loss_weights"][~inside].any()

        assert sorted(pairs) == sorted(
            pair for talk in talks for pair in zip(talk["tokens"].tolist(), talk["loss_weights"].tolist(), strict=True)
        )
        assert bos_id is None or set(firsts) == {(BOS, 0)}
        assert plan.truncated_tokens == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bos_id": 2**31}, r"bos_id of 'tokens' .*2147483647, got 2147483648"),
        ({"bos_id": 1, "sequence_length": 1}, "bos_id needs rows of 2 positions or more, got 1"),
        ({"bos_id": {"text": 1}}, "'text'.*tokens"),
        (
            {"bos_stored": True},
            r"bos_stored=True says that records begin with bos_id, and there is none\. Pass bos_id=…",
        ),
        ({"bos_id": 1, "algorithm": "concat_then_split"}, "cuts records wherever a row ends, and takes no bos_id=1"),
    ],
)
def test_what_bos_cannot_be_is_refused(document_split: Split, options: dict[str, object], words: str) -> None:
    with pytest.raises(LoaderError, match=words):
        pack(document_split, **{"sequence_length": 8, **options})  # type: ignore[arg-type]


def test_several_features_need_equal_lengths_and_the_name_of_the_tokens(pair_split: Split) -> None:
    both = {"inputs": 8, "targets": 8}
    with pytest.raises(LoaderError, match=r"bos_id=1 is for one feature.* inputs, targets\. .* bos_id=\{'inputs': 1\}"):
        pack(pair_split, sequence_length=both, bos_id=1)
    with pytest.raises(
        LoaderError, match=r"at the same places, so 'inputs' and 'targets' .* and record \d+ has \d+ and"
    ):
        pack(pair_split, sequence_length=both, bos_id={"inputs": 1})
    with pytest.raises(LoaderError, match=r"^overlong='split' cuts several features at the same places"):
        pack(pair_split, sequence_length=both, overlong="split")


def test_records_that_begin_otherwise_than_stated_are_named(document_split: Split, stored_split: Split) -> None:
    for split, is_stored, words in [
        (
            stored_split,
            False,
            r"stored without bos_id=1048576 .* 'tokens' of record \d+ begins with 1048576\. .*bos_stored=True",
        ),
        (
            document_split,
            True,
            r"stored with bos_id=1048576 .* 'tokens' of record \d+ begins with \d+\. .*bos_stored=False",
        ),
    ]:
        plan = pack(split, sequence_length=8, bos_id=BOS, bos_stored=is_stored)
        with pytest.raises(LoaderError, match=words):
            list(Loader(plan, batch_size=4))
        with pytest.raises(LoaderError, match=words):
            Loader(plan, batch_size=len(plan)).batch_at(0)


@pytest.mark.parametrize("seed", [0, 3])
def test_talks_one_after_the_other_keep_the_weight_of_each_token(tmp_path: Path, seed: int) -> None:
    """And what is cut off of two features of one length is told once."""
    lengths = [25, 3, 0, 9, 1, 14]
    talks = [{"tokens": np.arange(n) + 1000 * i + 10, "loss_weights": np.arange(n) % 2} for i, n in enumerate(lengths)]
    pairs = [
        pair for talk in talks for pair in zip(talk["tokens"].tolist(), talk["loss_weights"].tolist(), strict=True)
    ]
    split = write_split(tmp_path / "cache", talks, CHAT)
    for width in (1, 2, 7, 10, 60):
        both = {"tokens": width, "loss_weights": width}
        plan = pack(
            split, sequence_length=both, algorithm="concat_then_split", seed=seed, reshuffle_each_iteration=True
        )

        seen = list[tuple[int, int]]()
        for batch in Loader(plan, batch_size=3, last="partial"):
            inside = batch["tokens_segment_ids"] > 0
            assert np.array_equal(batch["tokens_segment_ids"], batch["loss_weights_segment_ids"])
            seen += zip(batch["tokens"][inside].tolist(), batch["loss_weights"][inside].tolist(), strict=True)

        assert sorted(seen) == sorted(pairs)
        assert len(plan) == -(-len(pairs) // width) and plan.truncated_tokens == 0
        for overlong in ("truncate", "drop"):
            cut = pack(split, sequence_length=both, overlong=overlong)
            lost = len(pairs) - cut.totals["tokens"].tokens_out
            assert cut.truncated_tokens + cut.dropped_tokens == 2 * lost
            assert f"{lost} tokens " in Loader(cut, batch_size=1).describe() or not lost
