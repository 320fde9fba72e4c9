"""Runs one operator within a pipeline, on samples that a test gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beam_pipes.graph import Pipeline
from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator
from beam_pipes.transforms import fn

ITERATORS = {"jax": JaxGraphIterator, "torch": TorchGraphIterator}


def given(samples: Any, *, layout: str = "") -> Any:
    """A data node of these samples, a list of arrays or one array with a leading axis."""
    arrays = [np.asarray(sample) for sample in samples]
    same = {(array.dtype, array.ndim) for array in arrays}
    (dtype, ndim) = next(iter(same))
    return fn.external_source(lambda iteration: samples, dtype=dtype, ndim=ndim, layout=layout or None)


def run(call: Callable[..., Any], *columns: Any, layout: str = "", **options: Any) -> Any:
    """What an operator gives for samples: a list of arrays for each output; the list itself where there is one."""
    size = len(columns[0]) if columns else options.pop("batch_size", 1)
    pipe = Pipeline(**{"batch_size": size, "seed": 7, **options})
    with pipe:
        nodes = [given(column, layout=layout if not index else "") for index, column in enumerate(columns)]
        outputs = call(*nodes)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        pipe.set_outputs(*outputs)
    made = [list(column) for column in pipe.run()]
    for column, node in zip(made, outputs, strict=True):
        for sample in column:
            check_spec(node, sample)
    return made[0] if len(made) == 1 else made


def check_spec(node: Any, sample: Any) -> None:
    """What was inferred at definition is what comes out."""
    spec = node.spec
    assert spec.dtype is None or sample.dtype == spec.dtype, (spec, sample.dtype)
    if spec.shape is not None:
        assert sample.ndim == len(spec.shape), (spec, sample.shape)
        assert all(want in (None, have) for want, have in zip(spec.shape, sample.shape, strict=True)), (
            spec,
            sample.shape,
        )
    assert not spec.layout or len(spec.layout) == sample.ndim


def on_device(library: str, call: Callable[..., Any], *columns: Any, layout: str = "") -> Any:
    """The same on a device of `library`: the batch of the first output as a NumPy array."""
    pipe = Pipeline(batch_size=len(columns[0]), seed=7)
    with pipe:
        nodes = [given(column, layout=layout if not index else "") for index, column in enumerate(columns)]
        pipe.set_outputs({"x": call(*[node.gpu() for node in nodes])})
    batch = next(iter(ITERATORS[library](pipe)))
    return np.asarray(batch["x"])
