"""`SplitByKey` and `SampleByKey`: proportions, stability, known values, and errors."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import DeclarationError
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import JSONLines, TextLines
from beam_pipes.transforms.by_key import SOURCE_FILE, SampleByKey, SplitByKey
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition, load_pipeline

THREE = {"train": 0.7, "valid": 0.2, "test": 0.1}
# 99.9 % quantiles of chi-square with 1 and 2 degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82}

USERS = st.text("abcdé0 ", min_size=1, max_size=4)


def of_users(users: Any) -> list[dict[str, Any]]:
    return [{"user": user, "number": number} for number, user in enumerate(users)]


def numbers(examples: list[dict[str, Any]]) -> list[int]:
    return [example["number"] for example in examples]


def splits_of(users: Any, **options: Any) -> dict[str, str]:
    """User → the split of its records, checked to be one."""
    loaded = load_pipeline(SplitByKey(options.pop("fractions", THREE), key="user", **options), of_users(users))
    found: dict[str, str] = {}
    for split, examples in loaded.items():
        for example in examples:
            assert found.setdefault(example["user"], split) == split
    return found


@pytest.mark.parametrize("seed", [0, 1, -5])
@pytest.mark.parametrize("fractions", [THREE, {"train": 0.98, "valid": 0.02}, {"a": 0.5, "b": 0.25, "c": 0.25}])
def test_splits_get_their_fractions_of_keys(fractions: dict[str, float], seed: int) -> None:
    found = list(splits_of(map(str, range(5_000)), fractions=fractions, seed=seed).values())

    chi_square = sum((found.count(name) - 5_000 * p) ** 2 / (5_000 * p) for name, p in fractions.items())
    assert chi_square < CHI_SQUARE[len(fractions) - 1]


@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5])
def test_a_sample_has_its_fraction_of_keys_and_all_of_their_records(fraction: float) -> None:
    examples = of_users(number % 4_000 for number in range(8_000))

    sampled = load_pipeline(SampleByKey(fraction, key="user"), examples)

    users = {example["user"] for example in sampled}
    assert sampled == [example for example in examples if example["user"] in users]
    expected = 4_000 * fraction
    assert (len(users) - expected) ** 2 / expected / (1 - fraction) < CHI_SQUARE[1]


@settings(deadline=None)
@given(st.lists(USERS, max_size=30), st.lists(USERS, max_size=30), st.integers(0, 3))
def test_keys_stay_where_they_are_when_data_is_added_anywhere(before: list[str], more: list[str], seed: int) -> None:
    small, large = splits_of(before, seed=seed), splits_of([*more, *before, *more], seed=seed)

    assert {user: large[user] for user in small} == small


@settings(deadline=None)
@given(st.lists(USERS, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fraction_keeps_the_sample_and_adds_to_it(users: list[str], one: float, other: float) -> None:
    small, large = (
        {example["user"] for example in load_pipeline(SampleByKey(fraction, key="user"), of_users(users))}
        for fraction in sorted((one, other))
    )

    assert small <= large


@settings(deadline=None)
@given(st.lists(USERS, max_size=30), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_growing_split_takes_keys_from_the_others_and_loses_none(users: list[str], valid: float, more: float) -> None:
    before = splits_of(users, fractions={"valid": valid, "train": 1 - valid})
    after = splits_of(users, fractions={"valid": valid + more, "train": max(0.0, 1 - valid - more)})

    assert {user for user in before if before[user] == "valid"} <= {user for user in after if after[user] == "valid"}


def test_choices_are_frozen() -> None:
    # Written down: a user must stay in its split from version to version.
    users = [f"user{number}" for number in range(20)]
    by_split = load_pipeline(SplitByKey(THREE, key="user"), of_users(users))
    by_other = load_pipeline(SplitByKey(THREE, key="user", seed=7, name="Other"), of_users(users))
    sampled = load_pipeline(SampleByKey(0.3, key="user"), of_users(users))
    assert numbers(by_split["valid"]) == [13, 14, 15] and numbers(by_split["test"]) == [3, 6, 7, 16, 19]
    assert numbers(by_other["valid"]) == [19] and numbers(by_other["test"]) == [0, 9, 10, 12]
    assert numbers(sampled) == [4, 6, 9, 11, 12, 18]


def test_it_chooses_as_a_random_partition_of_the_same_name_does() -> None:
    users = [str(number) for number in range(200)]
    partition = RandomPartition(dict, list(THREE), list(THREE.values()), key=lambda e: e["user"], name="SplitByKey")

    assert load_pipeline(SplitByKey(THREE, key="user"), of_users(users)) == load_pipeline(partition, of_users(users))


def test_a_sample_and_a_split_by_the_same_key_choose_independently() -> None:
    sample, split = SampleByKey(0.5, key="user"), SplitByKey({"a": 0.5, "b": 0.5}, key="user")
    dag = DAGPipeline({sample: Input(dict), split: sample, Output(): split})

    loaded = load_pipeline(dag, of_users(range(4_000)))

    # 1,000 are expected in each; 5 standard deviations are 137.
    assert abs(len(loaded["a"]) - 1_000) < 137 and abs(len(loaded["b"]) - 1_000) < 137


def test_numbers_text_bytes_and_arrays_of_one_name_are_one_key() -> None:
    for number in range(30):
        kinds = [number, str(number), str(number).encode(), np.int32(number), np.array(number), np.str_(number)]
        loaded = load_pipeline(SplitByKey(THREE, key="user"), of_users(kinds))
        assert sorted(map(len, loaded.values())) == [0, 0, len(kinds)]


def test_attributes_and_functions_give_keys_too() -> None:
    class Message:
        def __init__(self, user: int) -> None:
            self.user = user

    by_field = splits_of(range(50))
    by_attribute = load_pipeline(SplitByKey(THREE, key="user", type_=Message), [Message(n) for n in range(50)])
    by_function = load_pipeline(SplitByKey(THREE, key=lambda number: number, type_=int), range(50))

    for name in THREE:
        expected = [user for user, split in by_field.items() if split == name]
        assert [message.user for message in by_attribute[name]] == by_function[name] == expected


class _Line(Pipeline):
    input_type, output_type = str, dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"document": int(line)}]


def test_by_source_file_documents_stay_whole_however_the_input_is_cut(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}\n" * 50)
    found = []
    for target in (100, 100_000):
        line, split = _Line(), SplitByKey({"train": 0.5, "valid": 0.5}, key=SOURCE_FILE)
        declaration = Declaration(
            name="documents",
            source=TextLines(str(tmp_path / "in")),
            pipeline=DAGPipeline({line: Input(str), split: line, Output(): split}),
            features={"document": FeatureSpec("int64")},
            target_shard_bytes=target,
        )
        build(declaration, tmp_path / f"cache{target}", options=LocalOptions(workers=1))
        cache = Cache.open(tmp_path / f"cache{target}")
        found.append({split: sorted(int(e["document"]) for e in cache[split]) for split in cache.splits})

    assert found[0] == found[1]
    train, valid = set(found[0]["train"]), set(found[0]["valid"])
    assert not train & valid and train | valid == set(range(40)) and min(len(train), len(valid)) > 5
    assert len(found[0]["train"]) == 50 * len(train)


def test_a_build_books_what_is_not_sampled(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = "".join(f'{{"user": {number % 100}, "number": {number}}}\n' for number in range(1_000))
    (tmp_path / "in" / "rows.jsonl").write_text(rows)
    sample = SampleByKey(0.25, key="user")
    declaration = Declaration(
        name="rows",
        source=JSONLines(str(tmp_path / "in")),
        pipeline=sample,
        features={"user": FeatureSpec("int64"), "number": FeatureSpec("int64")},
    )

    account = build(declaration, tmp_path / "cache", options=LocalOptions(workers=1)).account

    assert account.written % 10 == 0 and 100 < account.written < 400
    assert account.units["SampleByKey"].dropped == {"not sampled": 1_000 - account.written}


def test_they_are_picklable_and_their_fingerprints_follow_their_options() -> None:
    split, sample = SplitByKey(THREE, key="user"), SampleByKey(0.1, key=SOURCE_FILE)

    for stage in (split, sample):
        assert fingerprint(pickle.loads(pickle.dumps(stage))).digest == fingerprint(stage).digest
    assert pickle.loads(pickle.dumps(split)).transform({"user": 3}) == split.transform({"user": 3})
    others: list[Callable[[], Pipeline]] = [
        lambda: SplitByKey(THREE, key="speaker"),
        lambda: SplitByKey(THREE, key="user", seed=1),
        lambda: SplitByKey({**THREE, "train": 0.6, "valid": 0.3}, key="user"),
        lambda: SplitByKey(THREE, key=SOURCE_FILE),
    ]
    assert len({fingerprint(each()).digest for each in others} | {fingerprint(split).digest}) == 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(
            lambda: SplitByKey({"a": 0.5, "b": 0.6}, key="user"),
            "SplitByKey: expected 2 probabilities that add up to 1, or 1 and the last output takes the rest; got "
            "[0.5, 0.6] (sum 1.1) for ['a', 'b'].",
            id="fractions_above_1",
        ),
        pytest.param(
            lambda: SplitByKey([0.5, 0.5], key="user"),  # type: ignore[arg-type]
            "SplitByKey: fractions are output → fraction, got list: [0.5, 0.5]. Example: "
            "{'train': 0.98, 'valid': 0.02}.",
            id="no_mapping",
        ),
        pytest.param(
            lambda: SplitByKey({"a": 1.0}, key=3),  # type: ignore[arg-type]
            "SplitByKey: key should be the name of a field, SOURCE_FILE, near.result or a function of the record, got "
            "int: 3. Example: key='user'.",
            id="no_key",
        ),
        pytest.param(
            lambda: SampleByKey(1.5, key="user"),
            "SampleByKey: a fraction of keys lies between 0 and 1, got 1.5. Example: 0.1 for a tenth.",
            id="no_fraction",
        ),
        pytest.param(
            lambda: SplitByKey({"a": 1.0}, key="user").transform({"text": "to be", "id": 3}),
            "SplitByKey: a record should have the field 'user', which is its key, got the fields ['id', 'text']. Drop "
            "such records before, or give a function: key=lambda record: ...",
            id="no_field",
        ),
        pytest.param(
            lambda: SampleByKey(0.5, key="user", type_=str).transform("to be"),
            "SampleByKey: a record should have the field 'user', which is its key, got str: 'to be'. Drop such records "
            "before, or give a function: key=lambda record: ...",
            id="no_attribute",
        ),
        pytest.param(
            lambda: SplitByKey({"a": 1.0}, key="user").transform({"user": None}),
            "SplitByKey: key should give a str, bytes or an int, got NoneType: None. Return what names the group.",
            id="none",
        ),
    ],
)
def test_errors_say_what_is_wrong(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{re.escape(words)}$"):
        make()
