"""`NearDuplicates`: shingles against sets, estimates against Jaccard, what is found against the curve and all pairs."""

from __future__ import annotations

import math
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from found_duplicates import found_duplicates, number, removed_by_kept, result_file
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.dedup import Duplicates, NearDuplicates, Shingles, compared_probability, found_probability
from beam_pipes.transforms.dedup.comparison import Clusters, Comparison, Signatures
from beam_pipes.transforms.dedup.likeness import (
    PIECE_BYTES,
    band_digests,
    estimated_jaccard,
    hash_family,
    least_agreeing,
    min_hash,
    shingle_hashes,
)
from beam_pipes.transforms.dedup.near import merge_near, signatures_of
from beam_pipes.transforms.dedup.row_file import RowFiles

TEXTS = st.text("ab é\n", max_size=12)
KINDS = st.builds(Shingles, st.sampled_from(["words", "characters"]), st.integers(1, 4))


def plain_shingles(text: str, shingles: Shingles) -> set[str]:
    """What the words say, spelled out."""
    normal = " ".join(text.split())
    units = normal.split(" ") if shingles.of == "words" else list(normal)
    joint = " " if shingles.of == "words" else ""
    count = max(1, len(units) - shingles.width + 1)
    return {joint.join(units[start : start + shingles.width]) for start in range(count)}


def hashes_of(texts: list[str], shingles: Shingles) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in texts]
    for owners, hashes in shingle_hashes(texts, shingles):
        for owner, value in zip(owners.tolist(), hashes.tolist(), strict=True):
            found[owner].add(value)
    return found


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6), KINDS)
def test_shingles_are_hashed_alike_exactly_where_they_are_equal(texts: list[str], shingles: Shingles) -> None:
    plain = [plain_shingles(text, shingles) for text in texts]
    hashed = hashes_of(texts, shingles)

    assert [len(each) for each in hashed] == [len(each) for each in plain]
    for one, hashed_one in zip(plain, hashed, strict=True):
        for other, hashed_other in zip(plain, hashed, strict=True):
            assert len(hashed_one & hashed_other) == len(one & other)


@pytest.mark.parametrize("shingles", [Shingles("words", 3), Shingles("characters", 4)])
def test_long_texts_are_hashed_in_pieces_and_lose_no_shingle(shingles: Shingles) -> None:
    rng = random.Random(1)
    long = " ".join("".join(rng.choices("abcdé", k=rng.randint(1, 12))) for _ in range(PIECE_BYTES // 3))
    giant_word = "x" * (3 * PIECE_BYTES)
    texts = ["to be or not to be", long, "to see", f"a {giant_word} b"]

    hashed = hashes_of(texts, shingles)

    assert len(long) > 2 * PIECE_BYTES
    assert [len(each) for each in hashed] == [len(plain_shingles(text, shingles)) for text in texts]
    # The same shingles as those of the halves, and those that lie across.
    words = long.split()
    middle = len(words) // 2
    halves = [" ".join(words[: middle + shingles.width]), " ".join(words[middle - shingles.width :])]
    assert hashed[1] == set.union(*hashes_of(halves, shingles))


def test_hashes_and_signatures_are_frozen() -> None:
    # Written down: accumulators are kept from build to build.
    [(owners, hashes)] = shingle_hashes(["to be or", "", "not"], Shingles("words", 2))
    assert (owners.tolist(), hashes.tolist()) == ([0, 0, 1, 2], [336023359, 3629760562, 0, 895611516])
    a, b = hash_family(2, 0)
    assert (a.tolist(), b.tolist()) == (
        [12791412020523756362, 16987815911642669941],
        [16414940915934091211, 10349192478317420981],
    )
    near = NearDuplicates("near", bands=2, rows=2, shingles=Shingles("words", 2))
    signatures = signatures_of(near, ["To be  or", "not"])
    assert signatures.tolist() == [
        [719886725, 1451256837, 2208113154, 1444256304],
        [282394107, 548530860, 475345648, 472740368],
    ]
    assert band_digests(signatures, bands=2, rows=2).tolist() == [
        [5053410746555526, 34620019258206025, 16587874993091312454],
        [16534727170227069025, 7373464453983840496, 15818306894082268545],
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**32 - 1)), min_size=1, max_size=40))
def test_a_signature_is_the_least_value_of_each_function(pairs: list[tuple[int, int]]) -> None:
    a, b = (column.tolist() for column in hash_family(5, 3))
    pairs.sort()
    owners, hashes = np.array([owner for owner, _ in pairs]), np.array([value for _, value in pairs], np.uint32)
    cut = len(pairs) // 2

    signatures = min_hash(4, [(owners[:cut], hashes[:cut]), (owners[cut:], hashes[cut:])], count=5, seed=3)

    for owner in {owner for owner, _ in pairs}:
        values = [value for each, value in pairs if each == owner]
        least = [min((x * value + y) % 2**64 >> 32 for value in values) for x, y in zip(a, b, strict=True)]
        assert signatures[owner].tolist() == least


def texts_of_similarity(shared: int, own: int, rng: random.Random) -> tuple[str, str]:
    """Two texts of single-word shingles: s = shared / (shared + 2 · own)."""
    words = [f"{rng.getrandbits(48):x}" for _ in range(shared + 2 * own)]
    return " ".join(words[: shared + own]), " ".join(words[:shared] + words[shared + own :])


@pytest.mark.parametrize(("shared", "own"), [(10, 45), (50, 25), (80, 10), (95, 2)])
def test_estimates_have_the_stated_error_and_no_bias(shared: int, own: int) -> None:
    rng = random.Random(shared)
    count, pairs = 128, 400
    near = NearDuplicates("near", shingles=Shingles("words", 1))
    left, right = zip(*(texts_of_similarity(shared, own, rng) for _ in range(pairs)), strict=True)

    estimates = estimated_jaccard(signatures_of(near, left), signatures_of(near, right)).astype(float)

    similarity = shared / (shared + 2 * own)
    error = math.sqrt(similarity * (1 - similarity) / count)
    # 4 standard deviations of the mean, and of the standard deviation, over 400 pairs.
    assert abs(estimates.mean() - similarity) < 4 * error / math.sqrt(pairs)
    assert abs(estimates.std() - error) < 4 * error / math.sqrt(2 * pairs)


@pytest.mark.parametrize(("shared", "own"), [(60, 20), (70, 15), (80, 10), (84, 8), (90, 5)])
def test_planted_near_duplicates_are_found_with_the_probability_of_the_curve(shared: int, own: int) -> None:
    rng = random.Random(own)
    near = NearDuplicates("near", shingles=Shingles("words", 1), bands=8, rows=5, threshold=0.7)
    pairs = 600
    texts = [text for _ in range(pairs) for text in texts_of_similarity(shared, own, rng)]

    found = removed_by_kept(near, [texts])

    assert all(removed == kept + 1 and kept % 2 == 0 for removed, kept in found.items())
    expected = found_probability(shared / (shared + 2 * own), threshold=0.7, bands=8, rows=5)
    assert abs(len(found) - pairs * expected) < 4 * math.sqrt(pairs * expected * (1 - expected)) + 1


def test_the_curves_are_those_of_simulated_agreement() -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    for similarity in (0.6, 0.75, 0.9):
        agree = rng.random((20_000, 6, 4)) < similarity
        compared = agree.all(axis=2).any(axis=1)
        found = compared & (agree.sum(axis=(1, 2)) >= least_agreeing(0.75, 24))
        assert abs(compared.mean() - compared_probability(similarity, bands=6, rows=4)) < 0.015
        assert abs(found.mean() - found_probability(similarity, threshold=0.75, bands=6, rows=4)) < 0.015


@pytest.mark.parametrize("document", [NearDuplicates, found_probability, compared_probability])
def test_the_curves_in_the_documentation_are_right(document: Any) -> None:
    rows = [line.split("|")[1:-1] for line in document.__doc__.splitlines() if line.strip().startswith("|")]
    similarities, printed = [float(cell) for cell in rows[0][1:]], [float(cell) for cell in rows[2][1:]]
    for similarity, value in zip(similarities, printed, strict=True):
        computed = (
            compared_probability(similarity, bands=16, rows=8)
            if document is compared_probability
            else found_probability(similarity, threshold=0.8, bands=16, rows=8)
        )
        assert round(computed, 3) == value


def all_pairs(near: NearDuplicates, texts: list[str]) -> dict[int, int]:
    """What is to be found, by comparing every text with every other."""
    signatures = signatures_of(near, texts)
    parts = signatures.reshape(len(texts), near.bands, near.rows)
    clusters = Clusters(len(texts))
    for one in range(len(texts)):
        for other in range(one + 1, len(texts)):
            share = (parts[one] == parts[other]).all(axis=1).any()
            if share and (signatures[one] == signatures[other]).sum() >= least_agreeing(
                near.threshold, near.bands * near.rows
            ):
                clusters.union(one, other)
    removed, kept = clusters.members()
    return dict(zip(removed.tolist(), kept.tolist(), strict=True))


def drifting_texts(seed: int, count: int) -> list[str]:
    """Texts of few words, many of which are others with a word or two changed: chains, clusters, shared bands."""
    rng = random.Random(seed)
    texts: list[list[str]] = []
    for _ in range(count):
        if texts and rng.random() < 0.7:
            words = list(rng.choice(texts))
            for _ in range(rng.randint(0, 3)):
                words[rng.randrange(len(words))] = f"w{rng.randrange(500)}"
        else:
            words = [f"w{rng.randrange(500)}" for _ in range(rng.randint(5, 30))]
        texts.append(words)
    return [" ".join(words) for words in texts]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.4, 0.7, 0.9]), st.sampled_from([(4, 2), (8, 1), (3, 5)]))
def test_clusters_are_those_of_comparing_all_pairs(seed: int, threshold: float, bands: tuple[int, int]) -> None:
    texts = drifting_texts(seed, 70)
    near = NearDuplicates("near", threshold=threshold, bands=bands[0], rows=bands[1], shingles=Shingles("words", 1))

    assert removed_by_kept(near, [texts]) == all_pairs(near, texts)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(0, 50), max_size=4), st.sampled_from([3, 7, 1000]))
def test_in_groups_of_any_size_all_pairs_are_compared(seed: int, cuts: list[int], rows_at_once: int) -> None:
    texts = drifting_texts(seed, 50)
    near = NearDuplicates("near", bands=8, rows=4, shingles=Shingles("words", 1))
    starts = np.unique([0, *cuts, 50])
    found, expected = Clusters(50), Clusters(50)
    with tempfile.TemporaryDirectory() as directory:
        result_file(near, [texts[:20], texts[20:]], Path(directory))
        places = RowFiles([f"{directory}/accumulator-0", f"{directory}/accumulator-1"])
        with Signatures(places, count=32) as signatures:
            comparison = Comparison(signatures, found, least=16, rows_at_once=rows_at_once)
            assert comparison.groups(np.arange(50), starts, max_compared=1000) == 0

    numbers = signatures_of(near, texts)
    group = np.searchsorted(starts, np.arange(50), side="right")
    for one in range(50):
        for other in range(one):
            if group[one] == group[other] and (numbers[one] == numbers[other]).sum() >= 16:
                expected.union(one, other)
    assert found.roots(np.arange(50)).tolist() == expected.roots(np.arange(50)).tolist()


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXTS, max_size=30), st.lists(st.integers(0, 30), max_size=4), st.integers(1, 7))
def test_results_do_not_depend_on_shards_and_batches(texts: list[str], cuts: list[int], batch: int) -> None:
    near = NearDuplicates("near", shingles=Shingles("words", 2), threshold=0.5, bands=8, rows=2)
    bounds = [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    shards = [texts[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]

    assert found_duplicates(near, [texts]) == found_duplicates(near, shards, batch=batch)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=30), KINDS)
def test_equal_texts_are_always_found(texts: list[str], shingles: Shingles) -> None:
    found = removed_by_kept(NearDuplicates("near", shingles=shingles, threshold=1.0), [texts])

    first: dict[str, int] = {}
    for position, text in enumerate(texts):
        stays = first.setdefault(" ".join(text.split()), position)
        if stays != position:
            assert found[position] <= stays


def test_more_is_removed_where_more_is_like_it_and_similarities_are_reported(tmp_path: Path) -> None:
    rng = random.Random(5)
    words = [f"{rng.getrandbits(32):x}" for _ in range(200)]
    changed = [*words[:50], "other", *words[51:]]
    again = [*changed[:150], "another", *changed[151:]]
    texts = [" ".join(each) for each in (words, ["unlike"] * 9, changed, words, again)]

    rows = found_duplicates(NearDuplicates("near"), [texts])

    assert [(number(row.removed), number(row.kept), row.kind) for row in rows] == [
        (2, 0, "near"),
        (3, 0, "near"),
        (4, 0, "near"),
    ]
    similarities = [row.similarity for row in rows]
    # Five of 196 shingles are others on each side for every changed word.
    assert similarities[1] == 1.0
    assert abs(similarities[0] - 191 / 201) < 0.08 and abs(similarities[2] - 186 / 206) < 0.1


def test_keys_sorted_on_disk_give_the_same_bytes(tmp_path: Path) -> None:
    texts = drifting_texts(1, 600)
    near = NearDuplicates("near", threshold=0.6, shingles=Shingles("words", 1))
    expected = result_file(near, [texts[:100], texts[100:350], [], texts[350:]], tmp_path).read_bytes()

    merge_near(
        [str(tmp_path / f"accumulator-{index}") for index in range(4)],
        str(tmp_path / "spilled"),
        threshold=0.6,
        bands=16,
        rows=8,
        max_compared=1000,
        rows_in_memory=40,
    )

    assert len(Duplicates(str(tmp_path / "spilled"))) > 50
    assert (tmp_path / "spilled").read_bytes() == expected


@pytest.mark.parametrize("rows_in_memory", [10, 1000])
def test_a_group_that_is_too_large_is_cut_and_counted(tmp_path: Path, rows_in_memory: int) -> None:
    # One shingle of two is shared by all: every band of one row groups about half of them.
    texts = [f"shared own{number}" for number in range(60)]
    near = NearDuplicates(
        "near", shingles=Shingles("words", 1), bands=4, rows=1, threshold=0.99, max_compared=5, normalize=None
    )

    result_file(near, [texts], tmp_path)
    merge_near(
        [str(tmp_path / "accumulator-0")],
        str(tmp_path / "cut"),
        threshold=0.99,
        bands=4,
        rows=1,
        max_compared=5,
        rows_in_memory=rows_in_memory,
    )

    cut = Duplicates(str(tmp_path / "cut"))
    assert cut.facts == {"cut_groups": 4}
    assert {number(row.removed): number(row.kept) for row in cut}.items() <= all_pairs(near, texts).items()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=30))
def test_clusters_are_named_by_their_least_number(unions: list[tuple[int, int]]) -> None:
    clusters = Clusters(16)
    plain = {value: {value} for value in range(16)}
    for one, other in unions:
        clusters.union(one, other)
        joined = plain[one] | plain[other]
        plain.update(dict.fromkeys(joined, joined))

    assert clusters.roots(np.arange(16)).tolist() == [min(plain[value]) for value in range(16)]
    members, roots = clusters.members()
    assert dict(zip(members.tolist(), roots.tolist(), strict=True)) == {
        value: min(plain[value]) for value in range(16) if min(plain[value]) != value
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(
            lambda: NearDuplicates("near", threshold=0.0),
            "analyzer 'near': threshold should be a number above 0 and of at most 1, got 0.0.",
            id="threshold",
        ),
        pytest.param(
            lambda: NearDuplicates("near", bands=0),
            "analyzer 'near': bands should be an integer of at least 1, got 0.",
            id="bands",
        ),
        pytest.param(
            lambda: NearDuplicates("near", max_compared=2.5),  # type: ignore[arg-type]
            "analyzer 'near': max_compared should be an integer of at least 1, got 2.5.",
            id="max_compared",
        ),
        pytest.param(
            lambda: NearDuplicates("near", shingles=5),  # type: ignore[arg-type]
            "analyzer 'near': shingles should be Shingles, such as Shingles('words', 5), got int 5.",
            id="shingles",
        ),
        pytest.param(
            lambda: Shingles("letters", 3),  # type: ignore[arg-type]
            "the unit of shingles should be one of words, characters, got 'letters'.",
            id="unit",
        ),
        pytest.param(
            lambda: Shingles("words", 0), "the width of shingles should be an integer of at least 1, got 0.", id="width"
        ),
        pytest.param(
            lambda: NearDuplicates("near", normalize=len).accumulator().add(["to be"], ["a.txt@0"]),
            "analyzer 'near' compares text (str), got int: 5. Let `of` and `normalize` give a str.",
            id="no_text",
        ),
    ],
)
def test_errors_say_what_is_wrong(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{re.escape(words)}$"):
        make()
