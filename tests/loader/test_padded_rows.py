"""Rows of one record each, and batches that are made into something else on their way out."""

from __future__ import annotations

import numpy as np
import pytest
from loader_caches import DOCUMENTS, documents, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec
from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.loader.row_source import PaddedSplit

TENSORS = ExampleSpec({"x": FeatureSpec("float32", shape=(None, None)), "label": FeatureSpec("bytes")})


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return write_split(tmp_path_factory.mktemp("padded") / "cache", documents(40), DOCUMENTS)


def test_a_padded_row_is_a_packed_row_of_one_record(split):
    padded = PaddedSplit(split=split, sequence_lengths={"tokens": 30, "id": None})

    for batch in Loader(padded, batch_size=8, seed=3, last="partial"):
        for row, record in enumerate(batch["id"].tolist()):
            tokens = split[record]["tokens"]
            assert batch["tokens"][row].tolist() == [*tokens.tolist(), *[0] * (30 - len(tokens))]
            assert batch["tokens_segment_ids"][row].tolist() == [1] * len(tokens) + [0] * (30 - len(tokens))
            assert batch["tokens_positions"][row].tolist() == [*range(len(tokens)), *[0] * (30 - len(tokens))]
    assert len(padded) == len(split) == 40


def test_what_is_too_long_is_refused_or_cut(split):
    longest = int(np.argmax(split.lengths("tokens")))
    short = {"tokens": int(split.lengths("tokens").max()) - 1}

    with pytest.raises(
        LoaderError, match=rf"record {longest} has \d+ entries of feature 'tokens', more than a row takes"
    ):
        list(Loader(PaddedSplit(split=split, sequence_lengths=short), batch_size=40, shuffle=False))
    cut = PaddedSplit(split=split, sequence_lengths=short, overlong="truncate", segments=False)
    batch = Loader(cut, batch_size=40, shuffle=False).batch_at(0)
    assert list(batch) == ["tokens"]
    assert batch["tokens"][longest].tolist() == split[longest]["tokens"][:-1].tolist()


def test_tensors_of_alike_inner_dimensions_are_laid_out(tmp_path):
    alike = [{"x": np.full((n, 3), n, np.float32), "label": b"ab"[:n]} for n in (1, 2)]
    good = write_split(tmp_path / "good", alike, TENSORS, shards=1)
    other = [*alike, {"x": np.zeros((2, 4), np.float32), "label": b""}]
    bad = write_split(tmp_path / "bad", other, TENSORS, shards=1)
    lengths = {"x": 2, "label": None}

    batch = Loader(PaddedSplit(split=good, sequence_lengths=lengths), batch_size=2, shuffle=False).batch_at(0)
    assert batch["x"].tolist() == [[[1.0] * 3, [0.0] * 3], [[2.0] * 3, [2.0] * 3]]
    assert batch["label"].tolist() == [b"a", b"ab"]
    with pytest.raises(
        LoaderError, match=r"feature 'x' has the inner dimensions \[3\] and \[4\] in records of one batch"
    ):
        Loader(PaddedSplit(split=bad, sequence_lengths=lengths), batch_size=3, shuffle=False).batch_at(0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sequence_lengths": {}}, r"sequence_lengths=\{\} names no feature"),
        ({"sequence_lengths": {"words": 3}}, "there is no feature 'words'. There are: id, tokens"),
        (
            {"sequence_lengths": {"tokens": 3}, "overlong": "drop"},
            "overlong should be one of error, truncate, got 'drop'",
        ),
        (
            {"sequence_lengths": {"id": 3}},
            r"feature 'id' is fixed by its shape \(\) and cannot be padded to 3",
        ),
    ],
)
def test_wrong_rows_are_refused(split, options, words):
    with pytest.raises(LoaderError, match=words):
        PaddedSplit(split=split, **options)


def test_a_fixed_leading_dimension_is_not_padded_beside_one_that_varies(tmp_path):
    spec = ExampleSpec({"x": FeatureSpec("int32", shape=(2, None))})
    pairs = write_split(tmp_path / "cache", [{"x": np.ones((2, 3), np.int32)}], spec, shards=1)

    assert Loader(PaddedSplit(split=pairs, sequence_lengths={"x": 2}), batch_size=1).batch_at(0)["x"].shape == (1, 2, 3)
    with pytest.raises(LoaderError, match=r"feature 'x' is fixed by its shape \(2, None\) and cannot be padded to 5"):
        PaddedSplit(split=pairs, sequence_lengths={"x": 5})


def test_rows_have_their_lengths_already(split):
    padded = PaddedSplit(split=split, sequence_lengths={"tokens": 30})

    with pytest.raises(LoaderError, match="rows of a PaddedSplit have its sequence lengths; leave out ragged="):
        Loader(padded, batch_size=2, pad_to=20)
    with pytest.raises(LoaderError, match="these rows have no feature 'id'; they have: tokens"):
        Loader(padded, batch_size=2, features=["id"])


def test_batches_are_transformed_row_by_row_wherever_they_are_read(split):
    def doubled(batch):
        return {"twice": batch["tokens"] * 2, "segment_ids": batch["segment_ids"]}

    plan = pack(split, sequence_length=40, feature="tokens")
    for source in (plan, Mixture([(plan, 1)], exhausted="stop")):
        plain = list(Loader(source, batch_size=3, seed=2, last="pad", cu_seqlens=True))
        loader = Loader(source, batch_size=3, seed=2, last="pad", cu_seqlens=True, transform=doubled, workers=1)

        assert loader.features == ("twice", "segment_ids")
        for before, after in zip(plain, loader, strict=True):
            assert sorted(after) == ["cu_seqlens", "segment_ids", "twice", "valid"]
            assert np.array_equal(after["twice"], before["tokens"] * 2)
            assert np.array_equal(after["cu_seqlens"], before["cu_seqlens"])
        assert np.array_equal(loader.batch_at(1)["twice"], plain[1]["tokens"] * 2)
