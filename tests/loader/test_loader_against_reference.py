"""The loader against a plain model of it: random caches, mixtures, options and hosts, batch by batch."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from loader_caches import write_split
from reference_loader import Batch, Run, Source, Transform

from beam_pipes.cache import ExampleSpec, FeatureSpec
from beam_pipes.errors import LoaderError
from beam_pipes.loader import BlockShuffle, Loader, Mixture, pack
from beam_pipes.loader.row_source import PaddedSplit

# `--hypothesis-profile=explore` tries others, and many more of them.
EXAMPLES = 3000 if settings.get_current_profile_name() == "explore" else 60
NUMBERS = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]
SHAPES = [(), (3,), (2, 2), (None,), (None, 2), (None, None), (2, None), (None, 0)]


@st.composite
def specs(draw: st.DrawFn) -> dict[str, FeatureSpec]:
    found = {}
    for name in "abc"[: draw(st.integers(1, 3))]:
        dtype = draw(st.sampled_from([*NUMBERS, "str", "bytes"]))
        shapes = [shape for shape in SHAPES if dtype in NUMBERS or len(shape) < 2]
        found[name] = FeatureSpec(dtype, shape=draw(st.sampled_from(shapes)))
    return found


def same_values_stored_otherwise(draw: st.DrawFn, spec: FeatureSpec) -> FeatureSpec:
    """Another range or encoding: read, the feature is the same."""
    options: dict[str, Any] = {"shape": spec.shape}
    if spec.dtype.startswith(("int", "uint")) and draw(st.booleans()):
        options |= {"minimum": 0, "maximum": 100}
    if spec.dtype in ("int32", "int64", "float32", "bool", "bfloat16") and draw(st.booleans()):
        options["encoding"] = "list"
    return FeatureSpec(spec.dtype, **options)


def another(draw: st.DrawFn, spec: dict[str, FeatureSpec]) -> dict[str, FeatureSpec]:
    """The features with one that has another dtype or shape, or is missing."""
    name = draw(st.sampled_from(sorted(spec)))
    feature, left = spec[name], {key: one for key, one in spec.items() if key != name}
    changes = ["dtype", "rank", "missing"] + ["size", "size"] * bool(feature.shape)
    change = draw(st.sampled_from(changes))
    if change == "missing" and left:
        return left
    if change == "dtype":
        return {
            **left,
            name: FeatureSpec(
                "str" if feature.dtype == "bytes" else "bytes" if feature.is_text else "uint32", shape=feature.shape
            ),
        }
    if change == "size":
        axis = draw(st.integers(0, len(feature.shape) - 1))
        shape = list(feature.shape)
        shape[axis] = draw(st.sampled_from([None, 2, 3]))
        return {**left, name: FeatureSpec(feature.dtype, shape=tuple(shape))}
    return {**left, name: FeatureSpec(feature.dtype, shape=() if feature.shape else (2,))}


def value(rng: np.random.Generator, spec: FeatureSpec, longest: int, inner: int | None) -> Any:
    shape = tuple(int(rng.integers(0, longest + 1)) if size is None else size for size in spec.shape)
    if inner is not None and spec.shape[1:] == (None,):
        shape = (shape[0], inner)
    numbers = rng.integers(0, 2 if spec.dtype == "bool" else 100, shape)
    if not spec.is_text:
        return numbers.astype(spec.numpy_dtype)
    texts = np.empty(shape, object)
    texts[...] = np.vectorize(lambda n: f"t{n}" if spec.dtype == "str" else b"b%d" % n, otypes=[object])(numbers)
    return texts[()] if not shape else texts


@st.composite
def sources(
    draw: st.DrawFn, directory: Path, spec: dict[str, FeatureSpec], kind: str, least: int, length: int | None
) -> Source:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    stored = {name: same_values_stored_otherwise(draw, feature) for name, feature in spec.items()}
    count, uniform = draw(st.sampled_from([7, 12, 5, 9, 1, least])), draw(st.integers(0, 3)) == 0
    longest = draw(st.sampled_from([5, 3, 4, 0]))
    records = [
        {name: value(rng, feature, longest, None if kind == "plain" else 2) for name, feature in stored.items()}
        for _ in range(count)
    ]
    if uniform and records:
        records = [records[0]] * count
    path = Path(tempfile.mkdtemp(dir=directory)) / "cache"
    split = write_split(path, records, ExampleSpec(stored), shards=draw(st.integers(1, 3)))
    given: Any = split
    if kind == "packed":
        row = draw(st.sampled_from([4, 4, 4, 4, 5]))
        given = pack(split, sequence_length=row, feature="a", overlong=draw(st.sampled_from(["truncate", "split"])))
    elif kind == "padded":
        given = PaddedSplit(split=split, sequence_lengths={**dict.fromkeys(spec), "a": length}, overlong="truncate")
    return Source(spec, records, split, given)


@st.composite
def runs(draw: st.DrawFn, directory: Path) -> tuple[Run, str]:
    kind = draw(st.sampled_from(["plain", "plain", "plain", "packed", "padded"]))
    if kind == "plain":
        spec = draw(specs())
    else:  # these lay values out in rows, so that inner dimensions are alike
        spec = {
            "a": FeatureSpec(
                draw(st.sampled_from(NUMBERS)), shape=draw(st.sampled_from([(None,), (None, 2), (None, None)]))
            )
        }
        if kind == "padded":
            spec |= {"b": FeatureSpec(draw(st.sampled_from([*NUMBERS, "str"])), shape=())}
    mixes = draw(st.booleans())
    number = draw(st.integers(1, 3)) if mixes else 1
    differs = kind == "plain" and draw(st.integers(0, 3)) == 0
    length = draw(st.sampled_from([None, 3]))
    given = [
        draw(sources(directory, another(draw, spec) if differs and index else spec, kind, 1 if mixes else 0, length))
        for index in range(number)
    ]
    if mixes and not all(len(source.given) for source in given):
        mixes, given = False, given[:1]  # a plan without rows
    exhausted = draw(st.sampled_from(["repeat", "stop", "drop"]))
    rates = [draw(st.integers(1, 5)) for _ in given] if mixes else None
    batch_size, epochs = draw(st.sampled_from([4, 3, 7, 5, 1, 9])), draw(st.integers(1, 2))
    endless = mixes and exhausted == "repeat"
    options = {
        "batch_size": batch_size,
        "epochs": None if endless else epochs,
        "seed": draw(st.integers(0, 2**64 - 1)),
        "shuffle": draw(st.sampled_from([True, False] if kind == "packed" else [True, False, BlockShuffle(window=2)])),
        "last": draw(st.sampled_from(["pad", "partial", "drop"])),
        "ragged": draw(st.sampled_from(["pad", "pad", "values"])) if kind == "plain" else "pad",
        "pad_to": None,
        "features": draw(st.sampled_from([None, None, ["a"], [*spec][::-1]])) if kind == "plain" else None,
        "pad_value": draw(st.integers(0, 1)),
    }
    ragged = [name for name, feature in spec.items() if feature.shape[:1] == (None,)]
    if kind == "plain" and options["ragged"] == "pad":
        by_name = {name: 6 for name in ragged if draw(st.booleans())}
        options["pad_to"] = draw(st.sampled_from([None, 5, by_name]))
    return (
        Run(
            sources=given,
            rates=rates,
            exhausted=exhausted,
            options=options,
            epochs=1 if endless else epochs,
            most=4 * batch_size,
        ),
        kind,
    )


def row_by_row(batch: Batch) -> Batch:
    """A transform whose results for no rows have another dtype than those for some."""
    names = sorted(name for name in batch if "/" not in name)
    made = {f"{name}2": batch[name] for name in names}
    made["widths"] = np.array(
        [[np.shape(batch[name][row]) != () for name in names] for row in range(len(batch[names[0]]))]
    )
    return made


def assert_same(found: Batch, expected: Batch, where: Any) -> None:
    assert found.keys() == expected.keys(), where
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), (where, name)
        equal = found[name].tolist() == array.tolist()
        assert equal, (where, name, found[name], array)
        if array.dtype == object:
            assert [type(one) for one in found[name].flat] == [type(one) for one in array.flat], (where, name)


@pytest.fixture(scope="module")
def directory() -> Any:
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


@given(st.data())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_batch_of_every_host_is_that_of_the_model(directory: Path, data: st.DataObject) -> None:
    check_run(directory, data)


def check_run(directory: Path, data: st.DataObject) -> None:
    run, kind = data.draw(runs(directory))
    transform = data.draw(st.sampled_from([None, row_by_row])) if run.options["ragged"] == "pad" else None
    hosts = min(data.draw(st.sampled_from([3, 4, 2, 1])), run.options["batch_size"])
    source = run.sources[0].given
    if run.rates is not None:
        pairs = [(one.given, rate) for one, rate in zip(run.sources, run.rates, strict=True)]
        source = Mixture(pairs, exhausted=run.exhausted)

    def loader(host: int, of: int, workers: int = 0, **others: Any) -> Loader:
        options = {**run.options, "transform": transform, "host_index": host, "host_count": of, "workers": workers}
        return Loader(source, **{**options, **others})

    event(kind)
    if run.is_refused():
        event("refused")
        for host in range(hosts):
            with pytest.raises(LoaderError, match="sources of a mixture|cannot be padded to|has no feature"):
                loader(host, hosts)
        return
    steps = run.steps()
    if not steps:
        event("no steps")
        with pytest.raises(LoaderError, match="there are no rows to read|give no batch of"):
            loader(0, hosts)
        return
    event("steps")

    for of in {1, hosts}:
        for host in range(of):
            expected = [run.batch(rows, host, of, transform) for rows in steps]
            whole = loader(host, of)
            if run.options["epochs"] is not None:
                assert len(whole) == len(expected)
            for number, (found, wanted) in enumerate(
                zip(itertools.islice(whole, len(expected)), expected, strict=True)
            ):
                assert_same(found, wanted, ("iterated", number, host, of))
            for number in reversed(range(len(expected))):
                assert_same(whole.batch_at(number), expected[number], ("batch_at", number, host, of))
            count = min(3, len(expected))
            if count:
                if all(len({batch[name].shape for batch in expected[:count]}) == 1 for name in expected[0]):
                    stacked = {name: np.stack([batch[name] for batch in expected[:count]]) for name in expected[0]}
                    assert_same(whole.batches_at(0, count), stacked, ("stacked", host, of))
                else:
                    with pytest.raises(LoaderError, match="batches that are stacked need the same shapes"):
                        whole.batches_at(0, count)
            stop = data.draw(st.integers(0, len(expected)))
            first, second = loader(host, of), loader(host, of, workers=1)
            for _ in itertools.islice(first, stop):
                pass
            second.set_state(first.get_state())
            rest = expected[stop:]  # a restored end is an end; an endless run has been read as far as `expected` goes
            if rest or run.options["epochs"] is not None:
                found_rest = itertools.islice(second, len(rest) or None)
                for number, (found, wanted) in enumerate(zip(found_rest, rest, strict=True)):
                    assert_same(found, wanted, ("resumed", stop, number, host, of))
    resume_with_another_batch_size(run, loader, hosts, transform, data)


def resume_with_another_batch_size(
    run: Run, loader: Callable[..., Loader], hosts: int, transform: Transform | None, data: st.DataObject
) -> None:
    """Steps then begin anywhere in an epoch."""
    first, size = loader(0, 1), data.draw(st.integers(hosts, 9))
    for _ in itertools.islice(first, data.draw(st.integers(0, 3))):
        pass
    if not run.steps(0, 0, size):
        with pytest.raises(LoaderError, match="give no batch of"):
            loader(0, hosts, batch_size=size)
        return
    steps = run.steps(first.epoch, first.position, size)
    for host in range(hosts):
        second = loader(host, hosts, batch_size=size)
        second.set_state(first.get_state())
        if run.options["epochs"] is None:
            steps = steps[: (run.most - first.position) // size]
        for number, (rows, found) in enumerate(zip(steps, second, strict=False)):
            expected = run.batch(rows, host, hosts, transform, size)
            assert_same(found, expected, ("another batch size", number, host, hosts))
