from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_caches import DOCUMENTS, documents, write_split

from beam_pipes.cache import ExampleSpec, FeatureSpec, write_cache
from beam_pipes.errors import CacheNotFoundError, CorruptIndexError, LoaderError, UnsupportedFormatError
from beam_pipes.loader import BalancedShuffle, Loader, Mixture, PackingPlan, pack
from beam_pipes.loader.order import BalancedOrder
from beam_pipes.loader.packing import ALGORITHMS
from beam_pipes.loader.row_source import PaddedSplit


def unpack(batch, prefix="", feature="tokens"):
    """The segments of all rows, as lists."""
    found = []
    for tokens, ids in zip(batch[feature], batch[f"{prefix}segment_ids"], strict=True):
        found += [tokens[ids == segment].tolist() for segment in range(1, int(ids.max(initial=0)) + 1)]
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_packed_then_unpacked_is_the_original(document_split, algorithm, shuffle):
    plan = pack(document_split, sequence_length=40, algorithm=algorithm)
    loader = Loader(plan, batch_size=3, last="partial", shuffle=shuffle)

    segments = [segment for batch in loader for segment in unpack(batch)]

    originals = [document_split[index]["tokens"].tolist() for index in range(len(document_split))]
    assert sorted(segments) == sorted(tokens for tokens in originals if tokens)
    assert plan.empty_records == sum(not tokens for tokens in originals)
    assert len(loader) == -(-len(plan) // 3)


@given(
    sequence_length=st.integers(1, 50),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    overlong=st.sampled_from(["truncate", "split", "drop"]),
    batch_size=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_tokens_in_are_tokens_out_plus_what_is_reported(
    document_split, sequence_length, algorithm, overlong, batch_size
):
    plan = pack(document_split, sequence_length=sequence_length, algorithm=algorithm, overlong=overlong)
    loader = Loader(plan, batch_size=batch_size, last="partial")

    tokens_out = padding = 0
    for batch in loader:
        filled = batch["segment_ids"] > 0
        tokens_out += int(filled.sum())
        padding += int((~filled).sum())
        assert np.array_equal(batch["tokens"] > 0, filled)
        assert not batch["positions"][~filled].any()

    tokens_in = int(document_split.lengths("tokens").sum())
    assert tokens_in == tokens_out + plan.truncated_tokens + plan.dropped_tokens
    assert plan.totals["tokens"].tokens_out == tokens_out
    assert plan.waste == pytest.approx(padding / max(1, padding + tokens_out))
    assert plan.lower_bound <= len(plan)
    if overlong == "split":
        assert plan.truncated_tokens == plan.dropped_tokens == 0


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_that_are_copied_from_files_are_those_made_of_values(document_split, algorithm, multiple):
    plan = pack(document_split, sequence_length=40, algorithm=algorithm, segment_multiple=multiple)
    loader = Loader(plan, batch_size=3, last="pad", cu_seqlens=True, pad_value=7)
    assert loader._reader.pends

    for step, copied in enumerate(loader):
        made = loader.batch_at(step)
        assert list(copied) == list(made)
        for name, array in made.items():
            assert copied[name].tolist() == array.tolist() and copied[name].dtype == array.dtype, name
            assert copied[name].flags.writeable


def test_split_documents_are_segments_that_continue_each_other(document_split):
    plan = pack(document_split, sequence_length=8, overlong="split")
    segments = [segment for batch in Loader(plan, batch_size=5, last="partial") for segment in unpack(batch)]

    rebuilt: dict[int, list[int]] = {}
    for segment in sorted(segments):
        rebuilt.setdefault(segment[0] // 1000, []).extend(segment)

    assert rebuilt == {
        index: tokens.tolist() for index in range(len(document_split)) if len(tokens := document_split[index]["tokens"])
    }


def test_positions_count_from_zero_in_every_segment_and_cu_seqlens_bound_them(document_split):
    batch = Loader(pack(document_split, sequence_length=64), batch_size=4, cu_seqlens=True).batch_at(0)

    bounds = batch["cu_seqlens"]

    assert bounds.dtype == np.int32 and bounds[0] == 0 and bounds[-1] == 4 * 64
    flat_ids, flat_positions = batch["segment_ids"].reshape(-1), batch["positions"].reshape(-1)
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        assert len(set(flat_ids[start:stop].tolist())) == 1
        expected = np.arange(stop - start) if flat_ids[start] else np.zeros(stop - start)
        assert np.array_equal(flat_positions[start:stop], expected)


def test_pairs_share_row_and_segment_also_where_one_side_is_empty(pair_split):
    plan = pack(pair_split, sequence_length={"inputs": 40, "targets": 24})
    seen = []
    for batch in Loader(plan, batch_size=3, last="partial"):
        for row in range(len(batch["inputs"])):
            last = max(batch["inputs_segment_ids"][row].max(), batch["targets_segment_ids"][row].max())
            for segment in range(1, last + 1):
                inputs = batch["inputs"][row][batch["inputs_segment_ids"][row] == segment]
                targets = batch["targets"][row][batch["targets_segment_ids"][row] == segment]
                seen.append((inputs.tolist(), targets.tolist()))

    originals = [(record["inputs"].tolist(), record["targets"].tolist()) for record in pair_split]
    assert sorted(seen) == sorted(pair for pair in originals if pair != ([], []))
    assert any(not inputs for inputs, _ in seen) and any(not targets for _, targets in seen)
    assert set(batch) == {
        f"{name}{what}" for name in ("inputs", "targets") for what in ("", "_segment_ids", "_positions")
    }


def test_one_feature_of_a_pair_can_be_read_alone(pair_split):
    plan = pack(pair_split, sequence_length={"inputs": 40, "targets": 24})

    batch = Loader(plan, batch_size=3, features=["targets"]).batch_at(0)

    assert set(batch) == {"targets", "targets_segment_ids", "targets_positions"}


def test_a_saved_plan_is_the_same_plan_and_several_share_a_cache(tmp_path, document_split):
    for sequence_length in (32, 64):
        plan = pack(document_split, sequence_length=sequence_length)
        plan.save(tmp_path / f"{sequence_length}.plan")

    loaded = PackingPlan.load(tmp_path / "64.plan", document_split)

    assert loaded.digest == plan.digest and len(loaded) == len(plan)
    assert repr(loaded) == repr(plan)
    assert loaded.totals == plan.totals and loaded.lower_bound == plan.lower_bound
    first, second = Loader(plan, batch_size=4), Loader(loaded, batch_size=4)
    for expected, found in zip(first, second, strict=True):
        assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["32.plan", "64.plan"]


def test_plans_are_deterministic_and_named_by_their_content(document_split):
    first, second = (pack(document_split, sequence_length=32) for _ in range(2))

    assert first.digest == second.digest
    assert first.digest != pack(document_split, sequence_length=33).digest
    assert first.digest != pack(document_split, sequence_length=32, overlong="split").digest


@pytest.mark.parametrize("where", [0, 6, 20, 300, -3])
def test_a_damaged_plan_is_refused(tmp_path, document_split, where):
    path = tmp_path / "rows.plan"
    pack(document_split, sequence_length=32).save(path)
    data = bytearray(path.read_bytes())
    data[where] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises((CorruptIndexError, UnsupportedFormatError), match="rows.plan"):
        PackingPlan.load(path)


def test_a_truncated_plan_is_refused_even_without_its_checksum(tmp_path, document_split):
    path = tmp_path / "rows.plan"
    pack(document_split, sequence_length=32).save(path)
    path.write_bytes(path.read_bytes()[:-200])

    with pytest.raises(CorruptIndexError, match="is damaged: an array ends at byte"):
        PackingPlan.load(path, verify=False)
    path.write_bytes(b"")
    with pytest.raises(CorruptIndexError, match="is not a packing plan"):
        PackingPlan.load(path)


def test_a_missing_plan_is_refused(tmp_path):
    with pytest.raises(CacheNotFoundError, match=r"expected a packing plan at .*no.plan, and there is none; write it"):
        PackingPlan.load(tmp_path / "no.plan")


def test_a_plan_of_another_split_or_of_none_is_refused(tmp_path, document_split, other_split):
    plan = pack(document_split, sequence_length=32)
    plan.save(tmp_path / "rows.plan")

    with pytest.raises(
        LoaderError, match="this packing plan was made for split 'train' of manifest .*Pack the split again"
    ):
        PackingPlan.load(tmp_path / "rows.plan", other_split)
    with pytest.raises(LoaderError, match=r"not bound to a split: pass one to PackingPlan.load\(path, split\)"):
        Loader(PackingPlan.load(tmp_path / "rows.plan"), batch_size=2)


def test_features_of_several_dimensions_and_narrow_storage_are_packed(tmp_path):
    spec = ExampleSpec({"frames": FeatureSpec("float32", shape=(None, 3))})
    frames = [np.full((length, 3), length, np.float32) for length in (1, 4, 2, 3)]
    split = write_split(tmp_path / "frames", [{"frames": value} for value in frames], spec, shards=2)

    batch = Loader(pack(split, sequence_length=5), batch_size=2, shuffle=False).batch_at(0)

    assert batch["frames"].shape == (2, 5, 3)
    assert sorted(batch["frames"][:, :, 0].reshape(-1).tolist()) == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]


def test_a_plan_of_nothing_has_no_rows(tmp_path):
    split = write_split(tmp_path / "empty", documents(0), DOCUMENTS, shards=1)
    plan = pack(split, sequence_length=8)
    plan.save(tmp_path / "empty.plan")

    assert len(PackingPlan.load(tmp_path / "empty.plan", split)) == 0
    assert plan.waste == 0
    with pytest.raises(LoaderError, match="there are no rows to read"):
        Loader(plan, batch_size=2, last="partial")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"sequence_length": 0}, "should be an integer of at least 1, got 0", id="zero"),
        pytest.param({"sequence_length": {}}, "names no feature", id="none"),
        pytest.param({"sequence_length": 8, "feature": "id"}, "feature 'id' cannot be packed", id="scalar"),
        pytest.param(
            {"sequence_length": 8, "algorithm": "worst_fit"},
            "algorithm should be one of best_fit, concat_then_split, first_fit, next_fit, got 'worst_fit'",
            id="algorithm",
        ),
        pytest.param({"sequence_length": 8, "max_segments": 0}, "max_segments should be at least 1, got 0", id="most"),
        pytest.param({"sequence_length": 8, "seed": -1}, "seed should be between 0 and", id="seed"),
        pytest.param(
            {"sequence_length": 8, "algorithm": "concat_then_split", "overlong": "drop"},
            "cuts records wherever a row ends, and takes no overlong='drop'. Leave it out, or pack whole records with "
            "one of: best_fit, first_fit, next_fit",
            id="concat-overlong",
        ),
        pytest.param(
            {"sequence_length": 8, "algorithm": "concat_then_split", "max_segments": 4},
            "cuts records wherever a row ends, and takes no max_segments=4",
            id="concat-segments",
        ),
        pytest.param(
            {"sequence_length": 8, "algorithm": "next_fit", "reshuffle_each_iteration": True},
            "does not depend on the order of the records: best_fit or concat_then_split, got 'next_fit'",
            id="reshuffle",
        ),
        pytest.param(
            {"sequence_length": 8, "overlong": "keep"},
            "overlong should be one of truncate, split, drop, error, got 'keep'",
            id="overlong",
        ),
        pytest.param(
            {"sequence_length": 8, "overlong": "error"},
            r"record \d+ has lengths \{'tokens': \d+\}, more than a row takes .*records are too long",
            id="error",
        ),
        pytest.param({"sequence_length": {"tokens": 8}, "feature": "tokens"}, "pass either feature=", id="both"),
    ],
)
def test_options_out_of_range_are_refused(document_split, options, words):
    with pytest.raises(LoaderError, match=words):
        pack(document_split, **options)


def test_the_feature_must_be_named_where_there_are_several(pair_split, row_split):
    with pytest.raises(
        LoaderError,
        match=r"^there is nothing to pack in split 'train': .*, and it has flag bool \(\), id int64 \(\), x int32",
    ):
        pack(row_split, sequence_length=8)
    with pytest.raises(LoaderError, match="which feature should be packed.*one of: inputs, targets"):
        pack(pair_split, sequence_length=8)
    with pytest.raises(LoaderError, match="rows of several features .* with algorithm='best_fit', got 'first_fit'"):
        pack(pair_split, sequence_length={"inputs": 8, "targets": 8}, algorithm="first_fit")


@given(sequence_length=st.integers(1, 50), seed=st.none() | st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_documents_one_after_the_other_fill_every_row_but_the_last(document_split, sequence_length, seed):
    plan = pack(document_split, sequence_length=sequence_length, algorithm="concat_then_split", seed=seed)

    batch = Loader(plan, batch_size=len(plan), shuffle=False).batch_at(0)

    filled = batch["segment_ids"] > 0
    lengths = document_split.lengths("tokens")
    assert int(filled.sum()) == int(lengths.sum()) == plan.totals["tokens"].tokens_out
    assert len(plan) == plan.lower_bound == -(-int(lengths.sum()) // sequence_length)
    assert filled[:-1].all()
    documents_in_order = [document_split[index]["tokens"].tolist() for index in range(len(document_split))]
    if seed is None:
        assert batch["tokens"][filled].tolist() == sum(documents_in_order, [])
    pieces = unpack(batch)
    assert sorted(sum(pieces, [])) == sorted(sum(documents_in_order, []))
    starts = np.concatenate([plan.starts[:, 0].astype(int), [0]])
    ends = starts[:-1] + plan.lengths[:, 0]
    goes_on = ends < lengths[plan.records]
    assert np.array_equal(starts[1:][goes_on], ends[goes_on])  # what a row cuts off is what the next one begins with


@given(
    sequence_length=st.integers(5, 50),
    max_segments=st.integers(1, 4),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    seed=st.none() | st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_no_row_has_more_segments_than_asked_for(document_split, sequence_length, max_segments, algorithm, seed):
    options = {"sequence_length": sequence_length, "algorithm": algorithm, "overlong": "split", "seed": seed}
    plan = pack(document_split, **options, max_segments=max_segments)

    counts = np.diff(plan.bin_offsets.astype(int))
    filled = np.add.reduceat(plan.lengths[:, 0].astype(int), plan.bin_offsets[:-1].astype(int))
    assert counts.min() >= 1 and counts.max() <= max_segments == plan.most_segments
    assert filled.max() <= sequence_length
    assert plan.totals["tokens"].tokens_out == int(document_split.lengths("tokens").sum())
    assert len(plan) >= len(pack(document_split, **options))


def test_padded_cu_seqlens_have_one_shape_and_bound_the_same_segments(document_split):
    plan = pack(document_split, sequence_length=64, max_segments=5)

    bounds = list(Loader(plan, batch_size=4, cu_seqlens=True, last="partial"))
    padded = list(Loader(plan, batch_size=4, cu_seqlens="padded", last="partial"))

    for exact, fixed in zip(bounds, padded, strict=True):
        rows = len(exact["tokens"])
        assert fixed["cu_seqlens"].shape == (rows * 6 + 1,)
        assert fixed["cu_seqlens"][: len(exact["cu_seqlens"])].tolist() == exact["cu_seqlens"].tolist()
        assert set(fixed["cu_seqlens"][len(exact["cu_seqlens"]) :].tolist()) <= {rows * 64}
    with pytest.raises(LoaderError, match="cu_seqlens should be True, False or 'padded', got 'fixed'"):
        Loader(plan, batch_size=4, cu_seqlens="fixed")


def test_padded_cu_seqlens_hold_in_every_epoch_or_are_refused(document_split):
    options = {"sequence_length": 64, "reshuffle_each_iteration": True}
    loader = Loader(pack(document_split, **options), batch_size=4, cu_seqlens="padded", epochs=9)
    assert len({batch["cu_seqlens"].shape for batch in loader}) == 1

    changing = pack(document_split, **options, algorithm="concat_then_split")
    for source in (changing, Mixture([(pack(document_split, sequence_length=64), 1), (changing, 1)])):
        with pytest.raises(
            LoaderError, match="a different one in each epoch. Pass cu_seqlens=True, or a plan that is the same"
        ):
            Loader(source, batch_size=4, cu_seqlens="padded", epochs=None)


@pytest.mark.parametrize("options", [{"algorithm": "concat_then_split"}, {}, {"max_segments": 3}])
def test_a_plan_that_is_reshuffled_packs_each_epoch_again_and_resumes_in_it(tmp_path, document_split, options):
    plan = pack(document_split, sequence_length=40, overlong=None, seed=7, reshuffle_each_iteration=True, **options)
    plan.save(tmp_path / "anew.plan")
    again = PackingPlan.load(tmp_path / "anew.plan", document_split)
    assert again.digest == plan.digest

    whole = list(Loader(plan, batch_size=3, seed=1, epochs=3, last="partial"))
    steps = len(whole) // 3
    epochs = [whole[start : start + steps] for start in range(0, len(whole), steps)]
    tokens = [np.concatenate([batch["tokens"][batch["segment_ids"] > 0] for batch in epoch]) for epoch in epochs]
    rows = [{tuple(row) for batch in epoch for row in batch["tokens"].tolist()} for epoch in epochs]
    assert all(sorted(each.tolist()) == sorted(tokens[0].tolist()) for each in tokens)
    assert not rows[0] <= rows[1] and not rows[1] <= rows[2]
    other = pack(document_split, sequence_length=40, seed=8, reshuffle_each_iteration=True, **options)
    assert other.digest != plan.digest and len(other) == len(plan)

    interrupted = Loader(plan, batch_size=3, seed=1, epochs=3, last="partial")
    first = list(itertools.islice(interrupted, steps + 2))
    resumed = Loader(again, batch_size=3, seed=1, epochs=3, last="partial", workers=1)
    resumed.restore(interrupted.state)
    for expected, found in zip(whole, [*first, *resumed], strict=True):
        assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert np.array_equal(resumed.batch_at(2 * steps)["tokens"], epochs[2][0]["tokens"])


@pytest.mark.parametrize(
    ("algorithm", "rows"),
    [
        ("concat_then_split", [[4, 9, 11, 0], [0, 6], [6, 10, 8], [8, 7], [7, 2, 3], [3, 1], [1, 5]]),
        ("best_fit", [[7], [3], [10, 5], [6], [8, 2], [4, 0, 1], [9, 11]]),
    ],
)
def test_a_golden_packing_of_the_second_epoch(tmp_path, algorithm, rows):
    split = write_split(tmp_path / "cache", documents(12, seed=1), DOCUMENTS)
    plan = pack(split, sequence_length=30, algorithm=algorithm, seed=7, reshuffle_each_iteration=True)

    batch = Loader(plan, batch_size=len(plan), shuffle=False, epochs=2).batch_at(1)

    found = [[segment[0] // 1000 for segment in unpack({name: each[row : row + 1] for name, each in batch.items()})]
             for row in range(len(plan))]  # fmt: skip
    assert found == rows


def test_balanced_batches_have_nearly_one_cost_and_are_the_same_rows(tmp_path):
    lengths = np.clip(np.random.default_rng(0).lognormal(2, 1, 300), 1, 40).astype(int)
    plan = pack(
        write_split(
            tmp_path / "c", [{"tokens": np.arange(n, dtype=np.int32) + 1, "id": n} for n in lengths], DOCUMENTS
        ),
        sequence_length=40,
    )

    def costs(**options):
        batches = list(Loader(plan, batch_size=4, seed=3, **options))
        return batches, [sum(len(segment) ** 2 for segment in unpack(batch)) for batch in batches]

    global_batches, shuffled = costs(shuffle=True, last="partial")
    batches, balanced = costs(shuffle=BalancedShuffle(rows=4), last="partial")
    assert sorted(tuple(row) for batch in batches for row in batch["tokens"].tolist()) == sorted(
        tuple(row) for batch in global_batches for row in batch["tokens"].tolist()
    )
    assert np.std(balanced[:-1]) < np.std(shuffled[:-1]) / 3

    loader = Loader(plan, batch_size=4, seed=3, shuffle=BalancedShuffle(rows=4))
    next(iter(loader))
    state = loader.state
    wide = Loader(plan, batch_size=2, seed=3, shuffle=BalancedShuffle(rows=4))
    wide.restore(state)
    pairs = list(wide)
    assert np.array_equal(np.concatenate([pairs[0]["tokens"], pairs[1]["tokens"]]), batches[1]["tokens"])


def test_rows_without_costs_cannot_be_balanced(document_split):
    with pytest.raises(LoaderError, match="no feature that is read varies in length: id. Pass shuffle=True"):
        Loader(document_split, batch_size=2, features=["id"], shuffle=BalancedShuffle(rows=2))
    with pytest.raises(LoaderError, match="rows of a PaddedSplit all have the same lengths. Pass shuffle=True"):
        Loader(
            PaddedSplit(split=document_split, sequence_lengths={"tokens": 80}, overlong="truncate"),
            batch_size=2,
            shuffle=BalancedShuffle(rows=2),
        )
    with pytest.raises(LoaderError, match="rows of a PaddedSplit all have the same lengths"):  # of a mixture too
        padded = PaddedSplit(split=document_split, sequence_lengths={"tokens": 80}, overlong="truncate")
        Loader(Mixture([(padded, 1)]), batch_size=2, epochs=None, shuffle=BalancedShuffle(rows=2))
    with pytest.raises(LoaderError, match="rows should be at least 1, got 0"):
        BalancedShuffle(rows=0)


@given(costs=st.lists(st.integers(0, 1000), max_size=60), rows=st.integers(1, 9), seed=st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_a_balanced_order_is_a_permutation_with_one_row_of_each_class_in_a_step(costs, rows, seed):
    order = BalancedOrder(costs, rows=rows, seed=seed)

    records = order.records(np.arange(len(costs)))

    assert sorted(records.tolist()) == list(range(len(costs)))
    assert np.array_equal(order.positions(records), np.arange(len(costs)))
    steps = len(costs) // rows
    if steps:
        by_step = np.sort(np.array(costs)[records[: steps * rows]].reshape(steps, rows), axis=1)
        assert (by_step.max(axis=0)[:-1] <= by_step.min(axis=0)[1:]).all()  # classes do not overlap


def test_a_plan_without_rows_says_that_its_policy_left_all_records_out(tmp_path):
    split = write_cache(tmp_path / "long", {"train": ({"tokens": [1] * (9 + n)} for n in range(3))})["train"]
    words = (
        r"all 3 records with tokens are longer than a row, and overlong='drop' leaves them out\. Pack into longer rows"
    )

    with pytest.raises(LoaderError, match=words):
        Loader(pack(split, sequence_length=4, overlong="drop"), batch_size=1)
