"""Batches of a graph as a tf.data.Dataset, under the name that DALI's plugin for TensorFlow has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from beam_pipes.errors import LoaderError
from beam_pipes.extras import TfDataset, require
from beam_pipes.graph.iterator import GraphIterator
from beam_pipes.graph.pipeline import Pipeline


def DALIDataset(  # noqa: N802 - DALI's name
    pipeline: Pipeline, output_dtypes: Any = None, output_shapes: Any = None, **without_effect: object
) -> TfDataset:
    """The batches of a pipeline as a tf.data.Dataset, as with `nvidia.dali.plugin.tf.DALIDataset`.

        DALIDataset(pipe, output_dtypes=(tf.uint8, tf.int32), output_shapes=((32, 224, 224, 3), (32, 1)))

    Tuples of outputs, or a single one if `output_dtypes` is one dtype; without it, dtypes are those of the
    graph. Epochs repeat endlessly if a reader defines an epoch. Batch sizes are the pipeline's.

    Raises `LoaderError` if a dtype is known neither from the graph nor from `output_dtypes`.
    """
    tf = require("tensorflow", purpose="DALIDataset")
    dtypes = output_dtypes or tuple(node.dtype for node in pipeline.plan().outputs)
    if isinstance(dtypes, tuple) and None in dtypes:
        raise LoaderError(f"dtypes are not known before there is data, of the outputs {dtypes}: give output_dtypes.")
    is_one = not isinstance(dtypes, tuple)
    shapes = output_shapes if is_one or output_shapes else (None,) * len(dtypes)
    spec = tf.TensorSpec(shapes, dtypes) if is_one else tuple(map(tf.TensorSpec, shapes, dtypes))
    iterator = GraphIterator(pipeline)

    def batches() -> Iterator[object]:
        for _ in itertools.repeat(None) if pipeline.steps_per_epoch else range(1):
            for batch in iterator:
                columns = tuple(batch[name] for name in iterator.names)
                yield columns[0] if is_one else columns

    return tf.data.Dataset.from_generator(batches, output_signature=spec)
