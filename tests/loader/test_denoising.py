from __future__ import annotations

import pickle

import numpy as np
import pytest

from beam_pipes.errors import LoaderError
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.transforms.denoising import FillInTheMiddle, SpanCorruption, noise_masks, span_lengths

PRE, SUF, MID = 900_001, 900_002, 900_003
KEYS = np.arange(1, 2001, dtype=np.uint64)


def fim(**options):
    return FillInTheMiddle(prefix_id=PRE, suffix_id=SUF, middle_id=MID, **{"rate": 1.0, "eos_id": None, **options})


def by_id(batches, feature="tokens"):
    return {int(i): row.tolist() for batch in batches for i, row in zip(batch["id"], batch[feature], strict=True)}


def test_prefix_suffix_middle_is_the_order_of_the_paper():
    values = {"tokens": np.tile(np.arange(6, dtype=np.int32), len(KEYS)), "tokens/lengths": np.full(len(KEYS), 6)}

    psm = fim(spm_rate=0.0).of_rows(values, KEYS)
    spm = fim(spm_rate=1.0).of_rows(values, KEYS)

    assert (psm["tokens/lengths"] == 9).all() and (spm["tokens/lengths"] == 9).all()
    cuts = set()
    for one, other in zip(psm["tokens"].reshape(-1, 9), spm["tokens"].reshape(-1, 9), strict=True):
        suf, mid = one.tolist().index(SUF), one.tolist().index(MID)
        cuts.add((suf - 1, 6 - (mid - suf - 1)))
        suffix, middle = one[suf + 1 : mid].tolist(), one[mid + 1 :].tolist()
        assert one[0] == PRE and [*one[1:suf].tolist(), *middle, *suffix] == list(range(6))
        assert other.tolist() == [PRE, SUF, *suffix, MID, *one[1:suf].tolist(), *middle]
    assert cuts == {(first, last) for first in range(7) for last in range(first, 7)}


def test_both_rates_are_those_of_the_documents():
    values = {"tokens": np.tile(np.arange(40, dtype=np.int32), len(KEYS)), "tokens/lengths": np.full(len(KEYS), 40)}

    made = fim(rate=0.7, spm_rate=0.25).of_rows(values, KEYS)

    starts = np.cumsum(made["tokens/lengths"]) - made["tokens/lengths"]
    changed = made["tokens/lengths"] == 43
    spm = made["tokens"][starts[changed] + 1] == SUF
    assert 0.66 < changed.mean() < 0.74
    assert 0.2 < spm.mean() < 0.3  # a few of PSM have an empty prefix


def test_a_document_of_a_packed_row_keeps_its_place_and_its_eos():
    rows = np.array([[1, 2, 3, 4, 5, 6, 99, 0], [7, 8, 99, 11, 12, 13, 14, 15]], np.int32)
    segments = np.array([[1] * 7 + [0], [1] * 3 + [2] * 5], np.int32)

    made = fim(eos_id=99, middle_mask=True).of_rows({"tokens": rows, "segment_ids": segments}, KEYS[:2])

    assert made["segment_ids"] is segments
    assert sorted(made["tokens"][0].tolist()) == sorted([PRE, SUF, MID, 1, 2, 3, 99, 0])
    assert made["tokens"][0, 6:].tolist() == [99, 0]
    assert made["tokens"][1, :3].tolist() == [7, 8, 99]  # too short
    assert sorted(made["tokens"][1, 3:].tolist()) == sorted([PRE, SUF, MID, 11, 12])
    assert not made["tokens_middle"][segments == 0].any()
    assert made["tokens_middle"].dtype == bool


def test_without_the_id_that_ends_documents_it_is_1_or_asked_about():
    rows = {"tokens": np.array([[7, 8, 9, 10, 11, 1, 0], [7, 8, 9, 10, 11, 12, 1]], np.int32)}

    made = FillInTheMiddle(prefix_id=PRE, suffix_id=SUF, middle_id=MID, rate=1.0).of_rows(rows, KEYS[:2])

    assert (made["tokens"][0, 5:].tolist(), made["tokens"][1, 6]) == ([1, 0], 1)
    assert np.array_equal(made["tokens"], fim(eos_id=1).of_rows(rows, KEYS[:2])["tokens"])
    other = {"tokens": np.array([[7, 8, 9, 10, 1], [7, 8, 9, 10, 2]], np.int32)}
    with pytest.raises(LoaderError, match=r"expected 1, its default, found a .* ends in 2\. Name .* eos_id=…"):
        fim(eos_id="assumed").of_rows(other, KEYS[:2])
    assert fim(eos_id=1).of_rows(other, KEYS[:2])["tokens"][1, 4] != 2


def test_what_ends_a_row_without_segment_ids_is_not_a_part_of_it():
    made = fim().of_rows({"tokens": np.array([[1, 2, 3, 4, 5, 0, 0]], np.int32)}, KEYS[:1])

    assert made["tokens"][0, 5:].tolist() == [0, 0]
    assert sorted(made["tokens"][0, :5].tolist()) == sorted([PRE, SUF, MID, 1, 2])


# T5's random_spans_helper for (inputs_length, noise_density, mean_noise_span_length).
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((512, 0.15, 3.0), (568, 114)), ((1024, 0.15, 3.0), (1137, 229)), ((512, 0.5, 3.0), (766, 512))],
)
def test_span_lengths_are_those_of_t5(arguments, expected):
    length, density, mean = arguments

    assert span_lengths(length, noise_density=density, mean_noise_span_length=mean) == expected


@pytest.mark.parametrize(
    ("length", "density", "mean", "noise", "spans"),
    [
        (32, 0.25, 2.0, 8, 4),
        (568, 0.15, 3.0, 85, 28),
        (10, 0.15, 3.0, 2, 1),
        (30, 0.15, 3.0, 4, 1),
        (2, 0.15, 3.0, 1, 1),
    ],
)
def test_noise_masks_have_the_tokens_and_spans_of_t5(length, density, mean, noise, spans):
    masks = noise_masks(length, KEYS, noise_density=density, mean_noise_span_length=mean)

    assert masks.shape == (len(KEYS), length)
    assert not masks[:, 0].any()
    assert set(masks.sum(axis=1).tolist()) == {noise}
    assert set((masks[:, 1:] & ~masks[:, :-1]).sum(axis=1).tolist()) == {spans}


def test_every_segmentation_is_as_likely_as_any_other():
    keys = np.arange(60_000, dtype=np.uint64)

    masks = noise_masks(9, keys, noise_density=0.5, mean_noise_span_length=2.0)

    # 4 of 9 tokens are noise, in 2 spans: 4 ways to cut 5 tokens to keep in two, times 3 ways to cut the noise.
    _, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(counts) == 12
    assert abs(counts / 5000 - 1).max() < 0.06


def test_inputs_and_targets_together_are_the_tokens():
    tokens, _ = span_lengths(128)
    rows = np.arange(20 * tokens, dtype=np.int32).reshape(20, tokens)

    made = SpanCorruption(vocabulary_size=100_000).of_rows({"tokens": rows, "id": KEYS[:20]}, KEYS[:20])

    assert made.keys() == {"inputs", "targets", "id"}
    assert made["inputs"].shape == (20, 128) and made["targets"].shape == (20, span_lengths(128)[1])
    assert made["inputs"].dtype == np.int32
    for row, inputs, targets in zip(rows, made["inputs"], made["targets"], strict=True):
        assert inputs[-1] == targets[-1] == 1
        pieces, sentinel = {}, None
        for token in targets[:-1].tolist():
            if token >= 90_000:
                sentinel = token
                pieces[sentinel] = []
            else:
                pieces[sentinel].append(token)
        assert list(pieces) == list(range(99_999, 99_999 - len(pieces), -1))
        whole = [token for one in inputs[:-1].tolist() for token in pieces.get(one, [one])]
        assert whole == row.tolist()


def test_documents_of_any_length_are_corrupted_beside_each_other():
    lengths = np.array([0, 1, 2, 40, 7])
    values = np.arange(lengths.sum(), dtype=np.int32)

    made = SpanCorruption(vocabulary_size=1000, eos_id=None).of_rows(
        {"tokens": values, "tokens/lengths": lengths}, KEYS[:5]
    )

    assert made["inputs/lengths"].tolist() == [0, 1, 2, 36, 7]
    assert made["targets/lengths"].tolist() == [0, 1, 2, 8, 2]
    assert made["targets"][[0, 1]].tolist() == [999, 999]


@pytest.mark.parametrize("transform", [fim(rate=0.6), SpanCorruption(vocabulary_size=10**6)], ids=["fim", "spans"])
def test_draws_are_those_of_the_row_however_it_is_read(document_split, transform):
    plan = pack(document_split, sequence_length=16, algorithm="concat_then_split")
    name = "tokens" if isinstance(transform, FillInTheMiddle) else "inputs"

    def loader(**options):
        return Loader(plan, **{"batch_size": 8, "seed": 3, "epochs": 2, "transform": transform, **options})

    expected = np.concatenate([batch[name] for batch in loader()])
    hosts = [loader(host_index=host, host_count=2) for host in range(2)]
    parts = [np.concatenate([left[name], right[name]]) for left, right in zip(*hosts, strict=True)]
    resumed = loader()
    iterator = iter(resumed)
    before = [next(iterator)[name] for _ in range(3)]
    continued = pickle.loads(pickle.dumps(resumed))

    assert np.array_equal(np.concatenate(parts), expected)
    assert np.array_equal(np.concatenate([batch[name] for batch in loader(workers=2)]), expected)
    assert np.array_equal(np.concatenate([loader().batch_at(step)[name] for step in range(len(loader()))]), expected)
    assert np.array_equal(np.concatenate(before + [batch[name] for batch in continued]), expected)
    halves = np.concatenate([batch[name] for batch in loader(batch_size=4)])
    assert np.array_equal(halves[: len(expected) // 2], expected[: len(expected) // 2])


def test_a_row_that_ends_in_padding_gives_padded_inputs_and_targets():
    rows = np.array([[*range(1, 21)], [*range(1, 11), *[0] * 10]], np.int32)
    segments = (rows > 0).astype(np.int32)

    made = SpanCorruption(vocabulary_size=1000).of_rows(
        {"tokens": rows, "segment_ids": segments, "positions": rows}, KEYS[:2]
    )

    assert made.keys() == {"inputs", "targets"}
    assert made["inputs"].shape == (2, 19) and made["targets"].shape == (2, 5)
    assert made["inputs"][1].tolist() == [*range(1, 9), 999, 1, *[0] * 9]
    assert made["targets"][1].tolist() == [999, 9, 10, 1, 0]


def test_records_of_any_length_are_transformed_in_a_loader(document_split):
    loader = Loader(document_split, batch_size=8, ragged="values", transform=fim(middle_mask=True))

    batch = loader.batch_at(0)

    assert batch["tokens"].shape == batch["tokens_middle"].shape == (batch["tokens/lengths"].sum(),)
    assert np.array_equal(batch["tokens_middle/lengths"], batch["tokens/lengths"])


def test_another_epoch_and_another_seed_draw_again_for_the_same_row(document_split):
    def rows(epoch, seed):
        loader = Loader(document_split, batch_size=1, epochs=2, pad_to=40, shuffle=False, transform=fim(seed=seed))
        return by_id([loader.batch_at(epoch * len(document_split) + longest)])

    longest = int(document_split.lengths("tokens").argmax())

    assert rows(0, 0) == rows(0, 0)
    assert len({str(rows(epoch, seed)) for epoch in (0, 1) for seed in (0, 1)}) == 4


def test_a_row_that_a_mixture_repeats_is_drawn_again(document_split, other_split):
    mixture = Mixture([(document_split, 30), (other_split, 1)])
    loader = Loader(mixture, batch_size=8, epochs=None, pad_to=64, seed=1, transform=fim())

    seen: dict[int, set[str]] = {}
    for step in range(60):
        for number, row in by_id([loader.batch_at(step)]).items():
            seen.setdefault(number, set()).add(str(row))

    assert max(map(len, seen.values())) > 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fim(rate=2), "rate should be a number from 0 to 1, got 2"),
        (lambda: FillInTheMiddle(prefix_id=1, suffix_id=1, middle_id=2), "three sentinels that differ, got 1, 1 and 2"),
        (lambda: SpanCorruption(vocabulary_size=9, noise_density=-1), "noise_density should be a number from 0 to"),
        (
            lambda: SpanCorruption(vocabulary_size=9, mean_noise_span_length=0),
            "span_length should be a number of at least 1, got 0",
        ),
        (lambda: fim()({"tokens": np.zeros((2, 3), int)}), "which only a loader knows"),
        (lambda: fim(feature="x")({"y": np.zeros(0)}), "reads the feature 'x', and the rows have: y"),
        (lambda: fim()({"tokens": np.zeros((0, 3))}), "is float64 of shape"),
        (lambda: fim()({"tokens": np.zeros((0, 3), np.int8)}), "does not hold"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, message):
    with pytest.raises(LoaderError, match=message):
        make()
