"""Cutting datasets in parts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DatasetError
from beam_pipes.map_style import ChainDataset, random_split, split


@given(st.lists(st.integers()), st.data())
def test_chaining_a_split_gives_the_dataset_back(examples, data):
    size = data.draw(st.integers(0, len(examples)) | st.floats(0, 1))

    first, second = split(examples, size)

    assert examples == list(ChainDataset(first, second))
    assert len(first) == (size if isinstance(size, int) else round(size * len(examples)))


@given(st.integers(0, 60), st.integers(0, 2**63 - 1), st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
def test_a_random_split_is_a_partition_that_its_seed_repeats(total, seed, weights):
    fractions = [weight / sum(weights) for weight in weights]

    parts = random_split(range(total), fractions, seed=seed)

    assert list(range(total)) == sorted(n for part in parts for n in part)
    assert all(abs(len(part) - f * total) < 1 for part, f in zip(parts, fractions, strict=True))
    assert [list(p) for p in parts] == [list(p) for p in random_split(range(total), fractions, seed=seed)]


def test_another_seed_splits_otherwise():
    assert list(random_split(range(100), 50, seed=0)[0]) != list(random_split(range(100), 50, seed=1)[0])
    assert [50, 50] == [len(part) for part in random_split(range(100), 0.5)]
    assert [20, 80] == [len(part) for part in random_split(range(100), [20, 80])]


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        pytest.param(
            lambda: split("abc", 4), "split needs a count between 0 and 3, the dataset's length; got 4", id="count"
        ),
        pytest.param(
            lambda: split("abc", 1.5), "split needs a fraction between 0 and 1 or an int count, got 1.5", id="fraction"
        ),
        pytest.param(
            lambda: split("abc", True), "split needs a size that is a count or a fraction, got bool: True", id="bool"
        ),
        pytest.param(
            lambda: random_split("abc", [1, 1]),
            "random_split needs counts that sum to 3, the dataset's length; got [1, 1]: sum 2",
            id="counts",
        ),
        pytest.param(
            lambda: random_split("abc", [0.5, 0.4]),
            "random_split needs fractions that sum to 1, got [0.5, 0.4]: sum 0.9",
            id="sum",
        ),
        pytest.param(
            lambda: random_split("abc", [0.5, 1]),
            "random_split needs sizes that are all counts or all fractions, got [0.5, 1]",
            id="mix",
        ),
        pytest.param(
            lambda: random_split("abc", []), "random_split needs at least one size, got an empty sequence", id="none"
        ),
    ],
)
def test_a_wrong_size_is_refused(cut, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        cut()
