"""Generated graphs give the same in memory, in debug mode, behind a cut, on JAX and torch, and when read back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from graph_outputs import batches, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipes.graph import GraphIterator, Pipeline, cache, experimental, pipeline_def, types
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.transforms import fn

Step = tuple[str, int]

# What a step does to the node that it is given; random steps are those of the second table.
PLAIN: dict[str, Callable[[Any, int], Any]] = {
    "add": lambda node, k: node + k,
    "scale": lambda node, k: node * np.int32(k + 1),
    "divide": lambda node, k: fn.cast(node, dtype=types.INT32) // (k + 1),
    "reverse": lambda node, k: node[::-1],
    "trim": lambda node, k: node[: 4 - k % 3],
    "flip": lambda node, k: fn.flip(node[None], vertical=k % 2)[0],
    "float": lambda node, k: fn.cast(node, dtype=types.FLOAT),
    "at least": lambda node, k: fn.math.max(node, 40 * k),
    "turn": lambda node, k: fn.squeeze(fn.transpose(fn.expand_dims(node, axes=[0])), axes=[1]),
    "whole": lambda node, k: fn.cast(node, dtype=types.INT32),
}
DRAWING: dict[str, Callable[[Any, int], Any]] = {
    "noise": lambda node, k: node + fn.random.coin_flip(),
    "maybe flip": lambda node, k: fn.flip(node[None], horizontal=fn.random.coin_flip(probability=0.5))[0],
    "branch": lambda node, k: _branch(node, k),
}


def _branch(node: Any, k: int) -> Any:
    if fn.random.coin_flip(dtype=types.BOOL):
        result = node * 2
    else:
        result = node
    return result


plain_steps = st.lists(st.tuples(st.sampled_from(sorted(PLAIN)), st.integers(0, 5)), max_size=3)
all_steps = st.lists(st.tuples(st.sampled_from(sorted(PLAIN | DRAWING)), st.integers(0, 5)), max_size=4)


def definition(before: list[Step], after: list[Step], *, cut: bool, device: bool = False) -> Callable[..., Any]:
    """A graph: a reader, plain steps, perhaps the cut, perhaps the transfer, then steps that may draw."""

    def define(root: str) -> Any:
        data, labels = fn.readers.file(file_root=root, random_shuffle=True)
        node = fn.cast(data[:4], dtype=types.INT32)
        for name, k in before:
            node = PLAIN[name](node, k)
        if cut:
            node = cache(node)
        if device:
            node = node.gpu()
        for name, k in after:
            node = (PLAIN | DRAWING)[name](node, k)
        return {"node": node, "labels": labels}

    return define


def options(batch_size: int, last: str, **more: Any) -> dict[str, Any]:
    return {"batch_size": batch_size, "last": last, "seed": 11, "enable_conditionals": True, **more}


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=plain_steps, after=all_steps, batch_size=st.integers(1, 12), last=st.sampled_from(["partial", "pad"]))
def test_all_ways_of_running_a_graph_give_the_same(
    files_root: str, before: list[Step], after: list[Step], batch_size: int, last: str
) -> None:
    given_options = options(batch_size, last)
    steps = -(-10 // batch_size) + 1
    whole = pipeline_def(**given_options)(definition(before, after, cut=False))(files_root)
    expected = batches(whole, steps)

    with_cut = pipeline_def(**given_options)(definition(before, after, cut=True))
    assert batches(with_cut(files_root), steps) == expected
    with tempfile.TemporaryDirectory() as directory:
        build(
            with_cut(files_root).offline_declaration("generated", target_shard_bytes=60),
            directory,
            options=LocalOptions(workers=1),
        )
        cached = with_cut(files_root, cache=directory)
        assert batches(cached, steps) == expected
        cached.close()
    debugged = experimental.pipeline_def(debug=True, **given_options)(definition(before, after, cut=False))
    assert batches(debugged(files_root), steps) == expected
    placed = pipeline_def(**given_options)(definition(before, after, cut=False, device=True))
    assert batches(placed(files_root), steps) == expected
    serialized = Pipeline.deserialize(whole.serialize(), num_threads=2)
    assert batches(serialized, steps) == expected


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=plain_steps, after=all_steps)
def test_devices_give_what_the_host_gives(files_root: str, before: list[Step], after: list[Step]) -> None:
    from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator

    make = pipeline_def(**options(5, "partial"))(definition(before, after, cut=False, device=True))
    expected = [plain(batch) for batch in GraphIterator(make(files_root))]
    for iterator in (JaxGraphIterator, TorchGraphIterator):
        found = [plain(batch) for batch in iterator(make(files_root))]
        assert [_rounded(batch) for batch in found] == [_rounded(batch) for batch in expected]


def _rounded(batch: dict[str, list[tuple[str, Any]]]) -> Any:
    # JAX in its 32-bit mode has no float64 and int64.
    return {
        name: [(dtype.replace("64", "32"), np.round(value, 3).tolist()) for dtype, value in column]
        for name, column in batch.items()
    }


def test_a_job_on_beam_writes_the_same_cache(files_root: str, tmp_path: Any) -> None:
    make = pipeline_def(**options(4, "partial"))(definition([("scale", 2), ("trim", 1)], [("noise", 0)], cut=True))
    declaration = make(files_root).offline_declaration("job", target_shard_bytes=60)
    ways = {"beam": BeamOptions(), "inline": LocalOptions(workers=1)}
    for name, how in ways.items():
        build(declaration, str(tmp_path / name), options=how)

    expected = batches(make(files_root), 4)
    for name in ways:
        assert batches(make(files_root, cache=str(tmp_path / name)), 4) == expected
    manifests = {(tmp_path / name / "manifest.json").read_bytes() for name in ways}
    assert len(manifests) == 1
