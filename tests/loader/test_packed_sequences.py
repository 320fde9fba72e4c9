"""Packed rows over sequences that are not a split: the rows of a loader, with labels and weights for each token."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec, Split
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, PackedSequences, pack

CHAT = ExampleSpec({"tokens": FeatureSpec("int32", shape=(None,)), "loss_weights": FeatureSpec("uint8", shape=(None,))})


def sequences_of(split: Split, feature: str = "tokens") -> list[np.ndarray]:
    return [split[number][feature] for number in range(len(split))]


def test_a_row_as_documented(tmp_path: Path) -> None:
    split = write_split(tmp_path / "cache", [{"tokens": [5, 6, 7], "id": 0}, {"tokens": [8, 9], "id": 1}], DOCUMENTS)
    pack(split, sequence_length=8).save(tmp_path / "rows-8.plan")

    rows = PackedSequences(sequences_of(split), tmp_path / "rows-8.plan")

    found = {name: (column.tolist(), column.dtype.name) for name, column in rows[0].items()}
    assert found == {
        "tokens": ([5, 6, 7, 8, 9, 0, 0, 0], "int64"),
        "labels": ([6, 7, 0, 9, 0, 0, 0, 0], "int64"),
        "loss_mask": ([1, 1, 0, 1, 0, 0, 0, 0], "float32"),
        "position_ids": ([0, 1, 2, 0, 1, 0, 0, 0], "int64"),
        "cu_seqlens": ([0, 3, 5, 8], "int32"),
        "max_seqlen": (3, "int32"),
    }
    assert len(rows) == 1 and rows[-1]["tokens"].tolist() == rows[0]["tokens"].tolist()
    with pytest.raises(IndexError):
        rows[1]


@settings(max_examples=12, deadline=None)
@given(sequence_length=st.integers(8, 40), has_bos=st.booleans(), is_repacked=st.booleans(), epoch=st.integers(0, 2))
def test_rows_are_those_of_a_loader_and_each_token_is_a_label_once(
    document_split: Split, sequence_length: int, has_bos: bool, is_repacked: bool, epoch: int
) -> None:
    bos_id = 10**6 if has_bos else None
    plan = pack(
        document_split,
        sequence_length=sequence_length,
        overlong="split",
        bos_id=bos_id,
        reshuffle_each_iteration=is_repacked,
    )
    rows = pickle.loads(pickle.dumps(PackedSequences(sequences_of(document_split), plan, pad_id=3)))
    rows.epoch = epoch
    batch = Loader(plan, batch_size=len(plan), shuffle=False, epochs=3, pad_value=3).batch_at(epoch)

    labels = list[int]()
    for number in range(len(plan)):
        row = rows[number]
        assert row["tokens"].tolist() == batch["tokens"][number].tolist()
        assert row["position_ids"].tolist() == batch["positions"][number].tolist()
        assert row["cu_seqlens"].shape == (plan.most_segments + 2,) and row["cu_seqlens"][-1] == sequence_length
        labels += row["labels"][row["loss_mask"] > 0].tolist()
        assert (row["labels"][row["loss_mask"] == 0] == 3).all()
    if has_bos:
        assert sorted(labels) == sorted(np.concatenate(sequences_of(document_split)).tolist())


def test_weights_of_the_loss_are_those_of_the_token_that_is_predicted(tmp_path: Path) -> None:
    talk = {"tokens": [5, 6, 7, 8, 9], "loss_weights": [0, 0, 1, 1, 0]}
    split = write_split(tmp_path / "cache", [talk], CHAT, shards=1)
    plan = pack(split, sequence_length={"tokens": 6, "loss_weights": 6}, bos_id={"tokens": 1})

    (row,) = PackedSequences(sequences_of(split), plan, loss_weights=sequences_of(split, "loss_weights"))

    assert row["tokens"].tolist() == [1, 5, 6, 7, 8, 9]
    assert row["labels"].tolist() == [5, 6, 7, 8, 9, 0]
    assert row["loss_mask"].tolist() == [0, 0, 1, 1, 0, 0]
    with pytest.raises(LoaderError, match=r"of tokens, loss_weights: .* and 1 of them is given\. Pass loss_weights=…"):
        PackedSequences(sequences_of(split), plan)


def test_other_sequences_than_those_that_were_packed_are_refused(document_split: Split) -> None:
    plan, sequences = pack(document_split, sequence_length=8), sequences_of(document_split)
    for wrong in (sequences[1:], [*sequences[:-1], np.arange(99, dtype=np.int32)]):
        words = (
            rf"made for 103 records with [\d,]+ values of 'tokens', and there are {len(wrong)} sequences with .*build"
        )
        with pytest.raises(LoaderError, match=words):
            PackedSequences(wrong, plan)
