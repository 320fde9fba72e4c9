"""The analyzers one by one: exact against NumPy and `Counter`, the same however values come in batches and shards."""

from __future__ import annotations

import collections
import contextlib
import gc
import math
import random
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.analysis import Analyzer
from beam_pipes.errors import DeclarationError, SpecError
from beam_pipes.transforms.analyzers import (
    Bounds,
    Count,
    KeyedSample,
    LengthHistogram,
    MinMax,
    Moments,
    MomentSums,
    Quantiles,
    QuantileSketch,
    SentencePieceModel,
    TokenizersModel,
    TopK,
    Vocabulary,
)
from beam_pipes.transforms.analyzers import counts as value_counts_module
from beam_pipes.transforms.analyzers import vocabulary as vocabulary_module
from beam_pipes.transforms.analyzers.counts import FAN_IN, merged_files, read_run, write_run

MANY = settings(max_examples=60, deadline=None)


def saved(analyzer: Analyzer, path: Path, values: Sequence[Any], *, first: int = 0, cuts: Sequence[int] = ()) -> str:
    """The accumulator of one source shard, whose values come in batches that end at `cuts`."""
    accumulator = analyzer.accumulator()
    ids = [f"input.txt@{first + index}" for index in range(len(values))]
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        if stop > start:
            accumulator.add(values[start:stop], ids[start:stop])
    accumulator.save(str(path))
    return str(path)


def merged(analyzer: Analyzer, directory: Path, shards: Sequence[Sequence[Any]], name: str = "result") -> Path:
    """The result over source shards of these values."""
    paths, first = [], 0
    for number, values in enumerate(shards):
        paths.append(saved(analyzer, directory / f"{name}-{number}", values, first=first))
        first += len(values)
    analyzer.merge(paths, str(directory / name))
    return directory / name


def in_shards(values: Sequence[Any], cuts: Sequence[int]) -> list[Sequence[Any]]:
    ends = sorted({min(cut, len(values)) for cut in cuts})
    return [values[start:stop] for start, stop in zip([0, *ends], [*ends, len(values)], strict=True)]


words = st.lists(st.text(alphabet="abcé\n\t\"'\ud800", max_size=3), max_size=40)
numbers = st.lists(st.floats(-1e6, 1e6, allow_nan=False, width=64), max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=5)

EVERY = [
    pytest.param(Count("c"), words, id="count"),
    pytest.param(Vocabulary("v", min_count=2, reserved=("<pad>", "ab")), words, id="vocabulary"),
    pytest.param(Vocabulary("v", size=4), st.lists(st.integers(-3, 3), max_size=40), id="vocabulary_of_int"),
    pytest.param(TopK("t", k=3), st.lists(st.binary(max_size=2), max_size=40), id="top_k"),
    pytest.param(LengthHistogram("l"), words, id="lengths"),
    pytest.param(MinMax("m"), numbers, id="min_max"),
    pytest.param(KeyedSample("s", max_bytes=3 * 64 + 12), words, id="sample"),
]


@pytest.mark.parametrize(("analyzer", "values"), EVERY)
def test_results_do_not_depend_on_shards(
    analyzer: Analyzer, values: st.SearchStrategy[list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    @MANY
    @given(values, cuts)
    def check(found: list[Any], at: list[int]) -> None:
        directory = tmp_path_factory.mktemp("shards")
        whole = merged(analyzer, directory, [found], "whole").read_bytes()
        assert merged(analyzer, directory, in_shards(found, at), "cut").read_bytes() == whole

    check()


@pytest.mark.parametrize(
    ("analyzer", "values"),
    [
        *EVERY,
        pytest.param(Moments("m"), numbers, id="moments"),
        pytest.param(Quantiles("q", k=8), numbers, id="quantiles"),
    ],
)
def test_accumulators_do_not_depend_on_batches(
    analyzer: Analyzer, values: st.SearchStrategy[list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    @MANY
    @given(values, cuts)
    def check(found: list[Any], at: list[int]) -> None:
        directory = tmp_path_factory.mktemp("batches")
        ends = sorted({min(cut, len(found)) for cut in at})
        whole = Path(saved(analyzer, directory / "whole", found)).read_bytes()
        assert Path(saved(analyzer, directory / "cut", found, cuts=ends)).read_bytes() == whole

    check()


@MANY
@given(words, cuts)
def test_a_vocabulary_is_a_counter_in_order(found: list[str], at: list[int]) -> None:
    with _directory() as directory:
        table = Vocabulary("v").read(str(merged(Vocabulary("v"), directory, in_shards(found, at))))
    counts = collections.Counter(found)

    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode("utf-8", "surrogatepass")))
    assert list(zip(table.tokens, table.counts.tolist(), strict=True)) == expected
    assert (table.total, table.distinct) == (len(found), len(counts))
    assert [table[token] for token in table.tokens] == list(range(len(table)))


@pytest.mark.parametrize("size", [None, 3_000], ids=["all", "cut"])
def test_a_vocabulary_that_does_not_fit_into_memory_is_the_same(
    size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    shards = [[f"w{int(rng.paretovariate(0.5)) % 9999}" for _ in range(4_000)] for _ in range(3)]
    analyzer = Vocabulary("v", size=size, reserved=("<unk>",))
    expected = merged(analyzer, tmp_path, shards, "in_memory").read_bytes()

    monkeypatch.setattr(vocabulary_module, "MOST_SORTED", 100)
    small = [value_counts_module.ValueCounts(most_distinct=100) for _ in shards]
    paths = []
    for number, (accumulator, values) in enumerate(zip(small, shards, strict=True)):
        for start in range(0, len(values), 256):
            accumulator.add(values[start : start + 256], [""] * 256)
        accumulator.save(str(tmp_path / f"small-{number}"))
        paths.append(str(tmp_path / f"small-{number}"))
    analyzer.merge(paths, str(tmp_path / "small"))

    assert (tmp_path / "small").read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []


def test_more_runs_than_may_be_open_are_merged_in_passes(tmp_path: Path) -> None:
    paths = []
    for number in range(FAN_IN * 2 + 3):
        paths.append(str(tmp_path / f"run-{number}"))
        with open(paths[-1], "wb") as file:
            write_run(file, [[(b"%05d" % number, number), (b"all", 1)]])

    rows = [row for block in merged_files(paths, str(tmp_path), read=read_run) for row in block]

    count = len(paths)
    assert rows == [*((b"%05d" % number, number) for number in range(count)), (b"all", count)]


@pytest.mark.parametrize("size", [4, -2])
def test_a_run_that_is_cut_off_is_named(size: int, tmp_path: Path) -> None:
    with open(tmp_path / "run", "wb") as file:
        write_run(file, [[(b"key", 3)]])
    data = (tmp_path / "run").read_bytes()
    (tmp_path / "run").write_bytes(data[:size])

    with pytest.raises(SpecError, match="run: expected whole blocks of counts, found the beginning of one more"):
        list(read_run(str(tmp_path / "run")))


def test_tokens_in_lists_and_arrays_count_as_well(tmp_path: Path) -> None:
    lists = merged(Vocabulary("v"), tmp_path, [[["a", "b"], ["a"]]], "lists")
    arrays = merged(Vocabulary("v"), tmp_path, [[np.array([[5, 7], [5, 5]])], [np.array([7], np.uint8)]], "arrays")

    assert Vocabulary("v").read(str(lists)).tokens == ["a", "b"]
    table = Vocabulary("v").read(str(arrays))
    assert (table.tokens, table.counts.tolist()) == ([5, 7], [3, 2])
    assert table.ids([7, 5]).tolist() == [1, 0]


def test_unknown_tokens_have_a_stand_in_or_an_error(tmp_path: Path) -> None:
    analyzer = Vocabulary("v", reserved=("<unk>",))
    table = analyzer.read(str(merged(analyzer, tmp_path, [["a"]])))

    assert table.ids(["a", "zz"], unknown="<unk>").tolist() == [1, 0]
    assert ("zz" in table, table.get("zz", -1)) == (False, -1)
    with pytest.raises(SpecError, match="the token 'zz' is not among the 2 of the vocabulary. Raise its size"):
        table.ids(["zz"])


@MANY
@given(st.lists(st.integers(0, 9), min_size=1, max_size=50), st.floats(0, 1))
def test_length_histograms_are_exact(found: list[int], fraction: float) -> None:
    with _directory() as directory:
        path = merged(LengthHistogram("l"), directory, [[["x"] * length for length in found]])
        lengths = LengthHistogram("l").read(str(path))

    assert lengths.counts == dict(sorted(collections.Counter(found).items()))
    assert (lengths.count, lengths.total) == (len(found), sum(found))
    assert lengths.mean == pytest.approx(np.mean(found))
    assert lengths.quantile(fraction) == sorted(found)[max(math.ceil(fraction * len(found)), 1) - 1]
    edges = np.array([-1, 3, 7, 99])
    assert lengths.buckets([3, 7]) == np.histogram(found, edges)[0].tolist()[:2] + [sum(n >= 7 for n in found)]


@MANY
@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 2), min_size=1, max_size=60), cuts)
def test_moments_and_bounds_are_those_of_numpy(rows: list[tuple[float, float]], at: list[int]) -> None:
    values = [np.array(row) for row in rows]
    with _directory() as directory:
        sums = Moments("m").read(str(merged(Moments("m"), directory, in_shards(values, at), "sums")))
        bounds = MinMax("m").read(str(merged(MinMax("m"), directory, in_shards(values, at), "bounds")))

    table = np.array(rows)
    np.testing.assert_allclose(sums.mean, table.mean(axis=0), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(sums.variance, table.var(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal([bounds.low, bounds.high], [table.min(axis=0), table.max(axis=0)])
    assert sums.count == bounds.count == len(rows)


@MANY
@given(*[st.lists(st.floats(-1e3, 1e3), max_size=9).map(np.array)] * 3)
def test_moments_merge_in_any_order(a: Any, b: Any, c: Any) -> None:
    x, y, z = (
        MomentSums.of(each) if len(each) else MomentSums(0, np.array(np.nan), np.array(0.0)) for each in (a, b, c)
    )
    left, right = x.merged(y).merged(z), z.merged(y.merged(x))

    assert left.count == right.count
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(left.m2, right.m2, rtol=1e-9, atol=1e-6)
    assert MomentSums.from_bytes(left.to_bytes()).to_bytes() == left.to_bytes()


def test_moments_do_not_cancel_far_from_zero(tmp_path: Path) -> None:
    values = (1e9 + np.random.default_rng(0).normal(size=20_000)).tolist()

    sums = Moments("m").read(str(merged(Moments("m"), tmp_path, in_shards(values, [3_000, 11_000]))))

    assert float(sums.variance) == pytest.approx(np.var(np.array(values) - 1e9), rel=1e-6)


def test_nothing_at_all_has_moments_and_bounds_that_say_so(tmp_path: Path) -> None:
    sums = Moments("m").read(str(merged(Moments("m"), tmp_path, [[], []], "sums")))
    bounds = MinMax("m").read(str(merged(MinMax("m"), tmp_path, [[]], "bounds")))

    assert (sums.count, bounds.count) == (0, 0)
    assert all(np.isnan(each) for each in (sums.mean, sums.std, bounds.low, bounds.high))
    assert Count("c").read(str(merged(Count("c"), tmp_path, [[]], "count"))) == 0
    assert len(Vocabulary("v").read(str(merged(Vocabulary("v"), tmp_path, [[], []], "words")))) == 0
    with pytest.raises(SpecError, match="a quantile needs a fraction between 0 and 1 and at least one length"):
        LengthHistogram("l").read(str(merged(LengthHistogram("l"), tmp_path, [[]], "lengths"))).quantile(0.5)


def test_nan_bounds_nothing(tmp_path: Path) -> None:
    bounds = MinMax("m").read(str(merged(MinMax("m"), tmp_path, [[1.0, math.nan], [math.nan], [3.0]])))

    assert (float(bounds.low), float(bounds.high), bounds.count) == (1.0, 3.0, 4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=400), cuts, st.floats(0, 1))
def test_a_quantile_is_within_the_error_that_the_sketch_states(
    found: list[float], at: list[int], fraction: float
) -> None:
    with _directory() as directory:
        sketch = Quantiles("q", k=8).read(str(merged(Quantiles("q", k=8), directory, in_shards(found, at))))

    got, ordered = sketch.quantile(fraction), np.sort(found)
    low, high = np.searchsorted(ordered, got, "left"), np.searchsorted(ordered, got, "right")
    wanted = fraction * len(found)
    assert low - sketch.rank_error - 1 <= wanted <= high + sketch.rank_error + 1
    assert sketch.count == len(found)
    assert (sketch.quantile(0), sketch.quantile(1)) == (ordered[0], ordered[-1])
    assert abs(sketch.rank(got) * len(found) - high) <= sketch.rank_error + 1


@pytest.mark.parametrize("order", ["sorted", "reversed", "random", "zigzag"])
def test_quantiles_of_many_numbers_are_close_in_every_order(order: str) -> None:
    count = 400_000
    numbers = np.arange(count, dtype=np.float64)
    arranged = {
        "sorted": numbers,
        "reversed": numbers[::-1],
        "random": np.random.default_rng(1).permutation(numbers),
        "zigzag": np.stack([numbers[: count // 2], numbers[: count // 2 - 1 : -1]], 1).ravel(),
    }[order]
    whole, parts = QuantileSketch(k=1024), [QuantileSketch(k=1024) for _ in range(7)]
    whole.add(arranged)
    total = QuantileSketch(k=1024)
    for part, piece in zip(parts, np.array_split(arranged, 7), strict=True):
        part.add(piece)
        total.merge_from(part)

    for sketch in (whole, total):
        assert sketch.rank_error <= count * math.log2(count / 1024) / 1024
        for fraction in (0.01, 0.25, 0.5, 0.9, 0.999):
            assert abs(sketch.quantile(fraction) - fraction * count) <= 0.004 * count
        assert len(sketch.to_bytes()) < 8 * 1024 * 12 + 1_000
        assert QuantileSketch.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


def test_a_sample_is_uniform_bounded_and_keeps_out_what_was_out(tmp_path: Path) -> None:
    analyzer = KeyedSample("s", max_bytes=500 * (4 + 64))
    values = [f"{number:04d}" for number in range(4_000)]

    before = analyzer.read(str(merged(analyzer, tmp_path, in_shards(values[:2_000], [700]), "before")))
    after = analyzer.read(str(merged(analyzer, tmp_path, in_shards(values, [700, 2_000]), "after")))
    other = KeyedSample("s", max_bytes=500 * (4 + 64), seed=1)
    drawn = other.read(str(merged(other, tmp_path, [values], "other")))

    assert len(before) == len(after) == len(drawn) == 500
    assert {value for value in after if value < "2000"} <= set(before)
    assert 150 < sum(value < "2000" for value in after) < 350
    assert len(set(after) & set(drawn)) < 130


def test_a_sample_of_many_shards_is_merged_in_passes(tmp_path: Path) -> None:
    analyzer = KeyedSample("s", max_bytes=15 * (4 + 64))
    values = [f"{number:04d}" for number in range(3 * FAN_IN)]

    one = merged(analyzer, tmp_path, [values], "one").read_bytes()
    many = merged(analyzer, tmp_path, [[value] for value in values], "many").read_bytes()

    assert many == one


@pytest.mark.parametrize("value", ["", "w", "word " * 50], ids=["empty", "short", "long"])
def test_a_sample_takes_about_the_memory_that_it_may(value: str, tmp_path: Path) -> None:
    analyzer = KeyedSample("s", max_bytes=1 << 18)
    ids = [f"a@{number}" for number in range(20_000)]
    gc.collect()
    tracemalloc.start()

    accumulator = analyzer.accumulator()
    for start in range(0, len(ids), 100):
        accumulator.add([f"{value}{number % 10}" for number in range(100)], ids[start : start + 100])
    kept, _ = tracemalloc.get_traced_memory()
    accumulator.save(str(tmp_path / "one"))
    _, while_saved = tracemalloc.get_traced_memory()
    del accumulator
    tracemalloc.reset_peak()
    analyzer.merge([str(tmp_path / "one")] * 2, str(tmp_path / "merged"))
    _, while_merged = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0.6 * analyzer.max_bytes < kept < 1.2 * analyzer.max_bytes
    assert while_saved < kept + 100_000 and while_merged < 200_000


TEXT = [
    f"{a} {b} in the {c} of {a}{b}" for a in "to fro so".split() for b in "be see".split() for c in "day night".split()
]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sentence_piece_models_are_the_same_however_the_text_is_cut(model_type: str, tmp_path: Path) -> None:
    analyzer = SentencePieceModel("p", vocab_size=26, model_type=model_type)

    whole = merged(analyzer, tmp_path, [TEXT * 8], "whole")
    cut = merged(analyzer, tmp_path, in_shards(TEXT * 8, [5, 33]), "cut")

    assert cut.read_bytes() == whole.read_bytes()
    processor = analyzer.read(str(whole))
    assert processor.get_piece_size() == 26
    assert processor.decode(processor.encode(TEXT[0])) == TEXT[0]


@pytest.mark.parametrize(("kind", "special"), [("byte_bpe", ()), ("byte_bpe", ("[PAD]",)), ("bpe", ("[UNK]", "[PAD]"))])
def test_tokenizers_are_the_same_however_the_text_is_cut(kind: str, special: tuple[str, ...], tmp_path: Path) -> None:
    analyzer = TokenizersModel("p", vocab_size=300, kind=kind, special_tokens=special)

    whole = merged(analyzer, tmp_path, [TEXT * 8], "whole")
    cut = merged(analyzer, tmp_path, in_shards(TEXT * 8, [5, 33]), "cut")

    assert cut.read_bytes() == whole.read_bytes()
    tokenizer = analyzer.read(str(whole))
    assert [tokenizer.token_to_id(token) for token in special] == list(range(len(special)))
    if kind == "byte_bpe":
        assert tokenizer.decode(tokenizer.encode(TEXT[0]).ids) == TEXT[0]


@pytest.mark.parametrize("analyzer", [Vocabulary("v"), LengthHistogram("l")], ids=["vocabulary", "lengths"])
def test_values_of_another_kind_are_refused_in_a_later_batch_too(analyzer: Analyzer) -> None:
    accumulator = analyzer.accumulator()
    accumulator.add([3, 4], ["f@0", "f@1"])

    with pytest.raises(SpecError, match="got both"):
        accumulator.add([["to", "be"]], ["f@2"])


@pytest.mark.parametrize(
    ("make", "found", "words"),
    [
        (
            Vocabulary,
            float,
            r"Vocabulary analyses str or bytes or int or .*, but the source gives float\. Give of=",
        ),
        (TopK, dict, "TopK analyses str or bytes or int or .*, but the source gives dict"),
        (Moments, str, "Moments analyses int or float or .*, but the source gives str"),
        (MinMax, bytes, "MinMax analyses int or float or .*, but the source gives bytes"),
        (Quantiles, str, "Quantiles analyses int or float or .*, but the source gives str"),
        (LengthHistogram, float, "LengthHistogram analyses int or .*Sized, but the source gives float"),
        (KeyedSample, list, "KeyedSample analyses str or bytes, but the source gives list"),
    ],
)
def test_classes_that_cannot_be_analysed_are_refused_where_they_are_declared(
    make: Any, found: type, words: str
) -> None:
    make("a").check_type(object, "the source gives")  # what they are shows later

    with pytest.raises(DeclarationError, match=words):
        make("a").check_type(found, "the source gives")


@pytest.mark.parametrize(
    ("analyzer", "values", "words"),
    [
        (Vocabulary("v"), [1.5], "expected values to count .str, bytes or int, or lists of them., got float 1.5"),
        (Vocabulary("v"), ["a", b"a"], "expected values of one kind, got bytes and str"),
        (Vocabulary("v"), [1 << 64], "expected integers of 64 bits, got 18446744073709551616"),
        (Moments("m"), ["a"], "expected numbers, or arrays of numbers of one shape, got str 'a'"),
        (Moments("m"), [[1], [1, 2]], r"got the shapes \[\(1,\), \(2,\)\]"),
        (Quantiles("q"), [math.nan], "expected numbers that can be ordered, got NaN"),
        (LengthHistogram("l"), ["a", 1.5], "expected values with a length, or lengths .int., got float 1.5"),
        (KeyedSample("s"), [1], "expected values to sample of the type str or bytes, got int 1"),
        (
            Vocabulary("v"),
            [["to", "be"], "or not"],
            "all lists .or tuples, arrays., or all str, .*got both",
        ),
        (TopK("t"), ["or not", ("to", "be")], "all lists .or tuples, arrays., or all str, .*got both"),
        (Vocabulary("v"), [["a"], {"b": 7}], "got both"),
        (Vocabulary("v"), [{"b": 7}], "expected values to count .str, bytes or int, or lists of them., got dict"),
        (Vocabulary("v"), [["a", ["b"]]], "expected values to count .str, bytes or int, or lists of them., got list"),
        (Vocabulary("v"), [True], "expected values to count .str, bytes or int, or lists of them., got bool True"),
        (
            LengthHistogram("l"),
            [3, "12"],
            "a length, or that are all lengths .int., got both: int 3, str '12'",
        ),
        (LengthHistogram("l"), [3, 2.9], "got both: int 3, float 2.9"),
        (LengthHistogram("l"), [np.array(3)], "expected values with a length, or lengths .int., got ndarray"),
    ],
)
def test_values_that_cannot_be_analysed_are_named(
    analyzer: Analyzer, values: list[Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=words):
        saved(analyzer, tmp_path / "accumulator", values)


def test_values_of_another_shape_are_named(tmp_path: Path) -> None:
    accumulator = Moments("m").accumulator()
    accumulator.add([[1.0, 2.0]], ["a@0"])
    with pytest.raises(SpecError, match=r"expected values of the shape \[2\], as the first one has, got \[\]"):
        accumulator.add([1.0], ["a@1"])
    for analyzer in (Moments("m"), MinMax("m")):
        with pytest.raises(SpecError, match=r"of the shape \[2\], got \[\]: source shards have values of other shapes"):
            merged(analyzer, tmp_path, [[[1.0, 2.0]], [1.0]], analyzer.name)


def test_kinds_that_differ_between_shards_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="expected values of one kind, and source shards have int and str"):
        merged(Vocabulary("v"), tmp_path, [["a"], [1]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Vocabulary("v", min_count=0), "min_count should be an integer of at least 1, got 0"),
        (
            lambda: Vocabulary("v", size=1, reserved=("a",)),
            "size should exceed the 1 reserved tokens, got 1",
        ),
        (lambda: Vocabulary("v", reserved=("a", "a")), "reserved tokens are named twice"),
        (lambda: TopK("t", k=0), "k should be an integer of at least 1, got 0"),
        (lambda: KeyedSample("s", max_bytes=0), "max_bytes should be an integer of at least 1, got 0"),
        (
            lambda: TokenizersModel("p", vocab_size=9, kind="sp"),
            "kind should be one of byte_bpe, bpe",
        ),
        (lambda: TokenizersModel("p", vocab_size=9, kind="bpe"), "needs a token for what is unknown, the first of"),
        (
            lambda: SentencePieceModel("p", vocab_size=9, options={"num_threads": 4}),
            r"the options \['num_threads'\] are not the trainer's to take",
        ),
    ],
)
def test_options_are_checked_where_they_are_declared(make: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        make()


@pytest.mark.parametrize("k", [7, 6, 9])
def test_sketches_have_a_size_that_works(k: int) -> None:
    with pytest.raises(SpecError, match=f"should be even and at least 8, got {k}"):
        Quantiles("q", k=k)
    with pytest.raises(SpecError, match="expected a sketch with k=8, got one with k=16"):
        QuantileSketch(k=8).merge_from(QuantileSketch(k=16))
    with pytest.raises(SpecError, match="a quantile's fraction should be a number from 0 to 1, got 1.5"):
        QuantileSketch(k=8).quantile(1.5)


def test_bounds_survive_their_bytes() -> None:
    bounds = Bounds.of(np.array([[1.5, math.inf], [0.1, -math.inf]]))

    assert Bounds.from_bytes(bounds.to_bytes()).to_bytes() == bounds.to_bytes()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)
