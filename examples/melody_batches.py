"""What the build of `examples.melodies` counted, and padded batches of the melodies that it wrote.

python -m examples.melody_batches .demo/melodies
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.cache import Cache
from beam_pipes.engine.account import Account
from beam_pipes.format.messages import SequenceExample
from beam_pipes.map_style import DataLoader, TransformDataset, batch_text_id
from transforms.melody import NUM_CLASSES

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def as_arrays(example: SequenceExample) -> Arrays:
    """`inputs` (T, NUM_CLASSES) float32 and `labels` (T,) int64 of one melody."""
    lists = example.feature_lists.feature_list
    inputs = np.array([step.float_list.value for step in lists["inputs"].feature], np.float32)
    return inputs, np.array([step.int64_list.value[0] for step in lists["labels"].feature])


def padded(melodies: Sequence[Arrays]) -> Arrays:
    """`inputs` (B, T, NUM_CLASSES) and `labels` (B, T) of the longest melody's T; labels of padding are -1."""
    labels = batch_text_id([labels for _, labels in melodies], pad_id=-1)
    inputs = np.zeros((*labels.shape, NUM_CLASSES), np.float32)
    for row, (steps, _) in zip(inputs, melodies, strict=True):
        row[: len(steps)] = steps
    return inputs, labels


def create_dataloader(cache: str, split: str = "training_melodies", *, batch_size: int = 8) -> DataLoader:
    """Shuffled batches of padded melodies."""
    melodies = TransformDataset(Cache.open(cache, proto=SequenceExample)[split], as_arrays)
    return DataLoader(melodies, batch_size=batch_size, shuffle=True, collate_fn=padded)


def main(path: str) -> None:
    """Shows the statistics of the build, the files that it could not read, and the shape of a batch."""
    cache = Cache.open(path)
    for statistic in Account.from_json(cache.manifest.accounting).statistics():
        print(statistic)
    for letter in cache.dead_letters():
        print(f"{letter.source}: {letter.stage} failed with {letter.error_type}")
    inputs, labels = next(iter(create_dataloader(path)))
    print(f"inputs {inputs.shape} {inputs.dtype}, labels {labels.shape} {labels.dtype}")


if __name__ == "__main__":
    main(sys.argv[1])
