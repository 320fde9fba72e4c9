"""`make_sequence_example`: inputs and labels of a sequence model as one proto."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from beam_pipes.cache.messages import SequenceExample


def make_sequence_example(inputs: Iterable[Sequence[float]], labels: Iterable[int]) -> SequenceExample:
    """A `SequenceExample` with the feature lists `inputs` (float, one vector a step) and `labels` (int64, one a step).

    The message is wire-compatible with `tf.train.SequenceExample` and needs no TensorFlow.

        make_sequence_example([[0.0, 1.0], [1.0, 0.0]], [1, 0])
          → feature_lists {inputs: [[0, 1], [1, 0]], labels: [[1], [0]]}

    Source: Magenta, `make_sequence_example`.
    """
    example = SequenceExample()
    lists = example.feature_lists.feature_list
    for vector in inputs:
        lists["inputs"].feature.add().float_list.value.extend(map(float, vector))
    for label in labels:
        lists["labels"].feature.add().int64_list.value.append(int(label))
    return example
