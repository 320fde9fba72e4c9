"""`make_sequence_example`: inputs and labels of a sequence model as one proto."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Number
from typing import Any

from beam_pipes.cache import messages


def make_sequence_example(
    inputs: Iterable[Sequence[float]], labels: Iterable[int | Sequence[int]]
) -> messages.SequenceExample:
    """A `SequenceExample` with the feature lists `inputs` (float, one vector a step) and `labels` (int64, one a step,
    or several).

    The message is wire-compatible with `tf.train.SequenceExample` and needs no TensorFlow.

        make_sequence_example([[0.0, 1.0], [1.0, 0.0]], [1, 0])
          → feature_lists {inputs: [[0, 1], [1, 0]], labels: [[1], [0]]}

    Source: Magenta, `make_sequence_example`.
    """
    example = messages.SequenceExample()
    lists = example.feature_lists.feature_list
    features = lists["inputs"].feature  # naming a list creates it: an empty one is there too
    for vector in inputs:
        features.add().float_list.value.extend(map(float, vector))
    features = lists["labels"].feature
    for label in labels:
        steps: Any = [label] if isinstance(label, Number) else label
        features.add().int64_list.value.extend(map(int, steps))
    return example
