"""`Split.where`: records that meet a condition, as a split that loads, packs, mixes and resumes like any other."""

from __future__ import annotations

import itertools
import math
import operator
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes import Loader, build, stage
from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, FeatureSpec, write_cache
from beam_pipes.cache.split import Split
from beam_pipes.errors import (
    BeamPipesError,
    ExampleIndexError,
    LoaderError,
    SpecError,
    StateMismatchError,
    UnknownRecordError,
)
from beam_pipes.loader import BlockShuffle, Mixture, PackingPlan, pack
from beam_pipes.loader.from_state import loader_from_state
from beam_pipes.sources import TextLines

FEATURES = {
    "n": FeatureSpec("int64"),
    "score": FeatureSpec("float32"),
    "lang": FeatureSpec("str"),
    "raw": FeatureSpec("bytes"),
    "keep": FeatureSpec("bool"),
    "text/part": FeatureSpec("uint8"),
    "tokens": FeatureSpec("int32", shape=(None,)),
}
LANGS = ("en", "de", "français")


def example(n: int) -> dict[str, object]:
    return {
        "n": n,
        "score": n / 10,
        "lang": LANGS[n % 3],
        "raw": b"x" * (n % 4),
        "keep": n % 2 == 0,
        "text/part": n % 250,
        "tokens": list(range(n % 7)),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("filtered") / "cache"
    write_cache(made, {"train": (example(n) for n in range(300))}, features=FEATURES, num_shards=7)
    return made


@pytest.fixture(scope="module")
def split(path: Path) -> Split:
    return Cache.open(path)["train"]


def numbers(split: Split) -> list[int]:
    return [int(n) for n in split.gather(range(len(split)), features=["n"])["n"]]


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("score > 12.5", lambda e: np.float32(e["score"]) > 12.5),
        ("n == 7", lambda e: e["n"] == 7),
        ("n != 7 and n <= 9", lambda e: e["n"] != 7 and e["n"] <= 9),
        ("10 < n <= 13", lambda e: 10 < e["n"] <= 13),
        ("n > -1", lambda e: True),
        ("n < 0", lambda e: False),
        ("lang == 'en'", lambda e: e["lang"] == "en"),
        ("lang != 'français'", lambda e: e["lang"] != "français"),
        ("lang in ('en', \"de\")", lambda e: e["lang"] in ("en", "de")),
        ("n not in [1, 2, 3]", lambda e: e["n"] not in (1, 2, 3)),
        ("raw == 'xx'", lambda e: e["raw"] == b"xx"),
        ("raw == b'xxx' or raw == b''", lambda e: e["raw"] in (b"xxx", b"")),
        ("keep", lambda e: e["keep"]),
        ("not keep and n < 20", lambda e: not e["keep"] and e["n"] < 20),
        ("keep == True", lambda e: e["keep"]),
        ("`text/part` > 240", lambda e: e["text/part"] > 240),
        ("`text/part` < 300", lambda e: True),
        ("len(tokens) >= 5", lambda e: len(e["tokens"]) >= 5),
        ("len(lang) == 8", lambda e: e["lang"] == "français"),
        ("len(raw) > len(tokens)", lambda e: len(e["raw"]) > len(e["tokens"])),
        ("lang == '`text/part`'", lambda e: False),
        ("lang < 'en'", lambda e: e["lang"] < "en"),
        ("'de' <= lang != 'en'", lambda e: "de" <= e["lang"] != "en"),
        ("7 == n or lang in ()", lambda e: e["n"] == 7),
        ("  n == 3\n", lambda e: e["n"] == 3),
    ],
)
def test_conditions_choose_the_records_that_meet_them(split: Split, condition: str, meets: object) -> None:
    assert numbers(split.where(condition)) == [n for n in numbers(split) if meets(example(n))]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("n >", r"where\('n >'\): this is not a condition: invalid syntax\. A condition compares"),
        (
            "lang = 'a=b'",
            "the single = at character 6 does not compare, write ==\\. A condition",
        ),
        ("lang == 'en' AND n > 1", "this is not a condition: invalid syntax"),
        ("score < 1e400", "is more than a float holds"),
        ("m > 3", "there is no feature 'm'. There are: keep, lang, n, raw, score, text/part, tokens."),
        ("tokens > 3", r"the feature 'tokens' has the shape \(None,\), and a condition compares one value a record."),
        ("len(n) > 3", r"the feature 'n' is a scalar and has no len\(\). Compare the value itself."),
        ("lang > 3", "lang > 3: compares a text with a number."),
        ("n == '3'", "compares a text with a number."),
        ("lang == b'en'", "compares the feature 'lang', a str, with bytes."),
        ("n in (1, score)", "score: is a feature, but a list holds values."),
        ("n in score", "in asks whether a feature is one of a list of values, such as"),
        ("3 > 2", "compares no feature."),
        ("n", "n: is neither a comparison nor a feature of dtype bool."),
        ("n is 3", "compares by identity."),
        ("n + 1 > 3", r"n \+ 1: is not a feature, length, number or text. A condition compares scalar features"),
        ("__import__('os').system('false') == 0", "is not a feature, length, number or text."),
        ("n in (1, 2) < 3", "compares further after in"),
    ],
)
def test_what_is_not_a_condition_is_refused_in_words(split: Split, condition: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        split.where(condition)


_WHOLE = [0, 1, -1, 2**24 + 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
_FLOATS = [0.0, 0.5, -0.5, 1.0, 2.0**24, 2.0**53, -(2.0**53), 2.0**53 + 2, 2.0**63, -(2.0**63), 2.0**64, 1e300]
_OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Split, list[dict[str, Any]]]:
    signed = [n for n in _WHOLE if -(2**63) <= n < 2**63]
    unsigned = [n for n in _WHOLE if n >= 0]
    floats = [*_FLOATS, math.nan, math.inf, -math.inf]
    records: list[dict[str, Any]] = [
        {"i": i, "u": unsigned[number % len(unsigned)], "f": f, "g": np.float32(f if abs(f) < 1e30 else math.nan)}
        for number, (i, f) in enumerate(itertools.product(signed, floats))
    ]
    features = {"i": "int64", "u": "uint64", "f": "float64", "g": "float32"}
    cache = write_cache(
        tmp_path_factory.mktemp("numbers") / "cache",
        {"train": records},
        features={name: FeatureSpec(dtype) for name, dtype in features.items()},
    )
    return cache["train"], records


@pytest.mark.parametrize("written", sorted(_OPERATORS))
def test_numbers_compare_as_python_compares_them(of_numbers: tuple[Split, list[dict[str, Any]]], written: str) -> None:
    split, records = of_numbers
    compare = _OPERATORS[written]
    rows = [{name: int(each[name]) if name in "iu" else float(each[name]) for name in each} for each in records]  # type: ignore[arg-type]

    for name, value in itertools.chain(
        itertools.product(["i", "u"], [*_WHOLE, *_FLOATS, 2.5, 2**70]),
        itertools.product(["f", "g"], [*_WHOLE, 2**70 + 1, -(2**1100)]),
        itertools.product(["f"], _FLOATS),
    ):
        for condition, expected in (
            (f"{name} {written} {value!r}", [compare(row[name], value) for row in rows]),
            (f"{value!r} {written} {name}", [compare(value, row[name]) for row in rows]),
        ):
            chosen = split.where(condition)
            assert chosen.choice.rows.tolist() == [number for number, meets in enumerate(expected) if meets], condition
    for one, other in itertools.permutations(["i", "u", "f", "g"], 2):
        chosen = split.where(f"{one} {written} {other}")
        expected = [compare(row[one], row[other]) for row in rows]
        assert chosen.choice.rows.tolist() == [number for number, meets in enumerate(expected) if meets], (one, other)


def test_values_of_a_list_compare_as_python_compares_them(of_numbers: tuple[Split, list[dict[str, Any]]]) -> None:
    split, records = of_numbers
    wanted = [number for number, each in enumerate(records) if each["i"] in (2.0**53, 0.5, 2**63 - 1)]

    assert split.where("i in (9007199254740992.0, 0.5, 9223372036854775807)").choice.rows.tolist() == wanted


def test_the_length_of_a_text_is_its_characters(tmp_path: Path) -> None:
    texts = ["", "a", "äö", "日本", "👍🏽", "e\u0301", "naïve café"]
    cache = write_cache(tmp_path / "cache", {"train": [{"text": text, "raw": text.encode()} for text in texts]})

    for length in range(11):
        found = cache["train"].where(f"len(text) > {length}")
        assert [str(each["text"]) for each in found] == [text for text in texts if len(text) > length]
    assert [bytes(each["raw"]) for each in cache["train"].where("len(raw) == 4")] == ["äö".encode()]
    assert len(cache["train"].where("len(text) == len(raw)")) == 2


def test_a_condition_is_a_text(split: Split) -> None:
    with pytest.raises(SpecError, match="expected a condition such as .score > 0.8., got function"):
        split.where(lambda record: True)  # type: ignore[arg-type]


def test_a_filtered_split_reads_as_a_split(split: Split) -> None:
    chosen = split.where("lang == 'de' and keep")
    stored = numbers(split)
    wanted = [n for n in stored if n % 3 == 1 and n % 2 == 0]

    assert len(chosen) == len(wanted) and [record["n"] for record in chosen] == wanted
    assert chosen[-1]["n"] == wanted[-1] and chosen.gather([2, 0, 2], features=["n"])["n"].tolist() == [
        wanted[2],
        wanted[0],
        wanted[2],
    ]
    assert chosen.lengths("tokens").tolist() == [n % 7 for n in wanted]
    assert chosen.lengths("tokens", [1]).tolist() == [wanted[1] % 7]
    assert chosen.shard_sizes.sum() == len(wanted) and len(chosen.shard_sizes) == split.num_shards
    assert [chosen.place_of(i) for i in range(5)] == [split.place_of(stored.index(n)) for n in wanted[:5]]
    assert repr(chosen).startswith(f"<{len(wanted)} records of <Split 'train' of ")
    assert repr(chosen).endswith("where lang == 'de' and keep>")
    assert numbers(chosen.where("n > 100")) == [n for n in wanted if n > 100]
    assert numbers(pickle.loads(pickle.dumps(chosen))) == wanted
    assert pickle.loads(pickle.dumps(chosen)).manifest_id == chosen.manifest_id != split.manifest_id
    with pytest.raises(ExampleIndexError, match=f"there is no record {len(wanted)}"):
        chosen[len(wanted)]


@given(low=st.integers(-5, 305), high=st.integers(-5, 305), langs=st.sets(st.sampled_from(LANGS), min_size=1))
def test_conditions_agree_with_python(split: Split, low: int, high: int, langs: set[str]) -> None:
    condition = f"({low} <= n < {high}) or lang in {tuple(sorted(langs))!r} and not keep"
    wanted = [n for n in numbers(split) if low <= n < high or example(n)["lang"] in langs and not example(n)["keep"]]
    assert numbers(split.where(condition)) == wanted


@pytest.mark.parametrize("shuffle", [True, False, BlockShuffle(window=2)])
def test_a_loader_resumes_exactly_over_a_filtered_split(split: Split, shuffle: bool | BlockShuffle) -> None:
    chosen = split.where("score >= 5 and lang != 'en'")

    def loader(source: Split = chosen, host: int = 0, hosts: int = 1) -> Loader:
        return Loader(
            source, batch_size=8, seed=3, epochs=2, shuffle=shuffle, features=["n"], host_index=host, host_count=hosts
        )

    whole = [batch["n"].tolist() for batch in loader()]
    seen = sorted(n for batch in whole[: len(whole) // 2] for n in batch)
    assert set(seen) <= set(numbers(chosen)) and len(seen) == len(set(seen)) == len(chosen) // 8 * 8

    first = loader()
    running = iter(first)
    for _ in range(5):
        next(running)
    state = first.state
    again = loader(pickle.loads(pickle.dumps(chosen)))
    again.restore(state)
    assert [batch["n"].tolist() for batch in again] == whole[5:]

    halves = [loader(host=host, hosts=2) for host in range(2)]
    for half in halves:
        half.restore(state)
    pairs = zip(*halves, strict=True)
    assert [left["n"].tolist() + right["n"].tolist() for left, right in pairs] == whole[5:]

    for other in (split, split.where("score >= 5")):
        with pytest.raises(StateMismatchError, match="source.manifest"):
            loader(other).restore(state)


def test_a_state_names_no_condition(split: Split, path: Path) -> None:
    loader = Loader(split.where("keep"), batch_size=8)
    with pytest.raises(LoaderError, match=r"over a part of the split 'train'.*split\.where\(…\).*loader\.restore"):
        loader_from_state(loader.state, [path], batch_size=8)


def test_a_loader_over_nothing_is_refused(split: Split) -> None:
    with pytest.raises(LoaderError, match="there are no rows to read"):
        Loader(split.where("n > 1000"), batch_size=2)


def test_filtered_splits_are_packed_and_mixed(split: Split, tmp_path: Path) -> None:
    chosen, others = split.where("len(tokens) > 2 and keep"), split.where("not keep")
    plan = pack(chosen, sequence_length=16)
    plan.save(tmp_path / "plan")
    loaded = PackingPlan.load(tmp_path / "plan", chosen)
    tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in Loader(loaded, batch_size=1))
    assert tokens == int(chosen.lengths("tokens").sum())
    with pytest.raises(BeamPipesError, match="plan"):
        PackingPlan.load(tmp_path / "plan", others)

    mixture = Mixture([(chosen, 1), (others, 3)], exhausted="stop")
    mixed = [n for batch in Loader(mixture, batch_size=4, features=["n", "keep"]) for n in batch["n"].tolist()]
    assert {n for n in mixed if n % 2 == 0} <= set(numbers(chosen)) and sum(n % 2 for n in mixed) > len(mixed) / 2


@stage
def line(text: str) -> dict[str, object]:
    return {"n": int(text)}


def test_who_and_takedowns_know_the_records_behind(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(10, 90)))
    build("numbers", TextLines(tmp_path / "in.txt"), [line], to=tmp_path / "cache", workers=1)
    chosen = Cache.open(tmp_path / "cache")["train"].where("n >= 50")
    loader = Loader(chosen, batch_size=4, shuffle=False)
    rows = loader.who(2)
    assert [row.record_id for row in rows] == [f"in.txt@{3 * n}" for n in range(48, 52)]
    assert [place.step for place in loader.when_record(rows[0].record_id)] == [2]
    with pytest.raises(UnknownRecordError):
        chosen.find_rows("other.txt@0")
    assert chosen.find_rows("in.txt@0").tolist() == []

    before = chosen.manifest_id
    take_down(tmp_path / "cache", [f"in.txt@{3 * n}" for n in (5, 48)], reason="asked for")
    again = Cache.open(tmp_path / "cache")["train"].where("n >= 50")
    shown = numbers(again)
    assert again.manifest_id == before and len(shown) == 40
    assert again.removed_rows.tolist() == [8] and 58 not in shown and shown[8] >= 50
