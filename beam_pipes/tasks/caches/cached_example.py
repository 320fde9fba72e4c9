"""`CachedExample`: the last stage of a task's build, which checks and counts what is cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.engine.counter import Counter
from beam_pipes.engine.maximum import Maximum
from beam_pipes.engine.record_context import current_context
from beam_pipes.engine.statistic import Statistic
from beam_pipes.tasks.caches.cache_statistics import PRETOKENIZED, STAGE, statistic_name
from beam_pipes.tasks.caches.offline import as_mapping
from beam_pipes.tasks.caches.task_reference import TaskReference
from beam_pipes.tasks.features import Feature


class CachedExample:
    """Checks that an example is a dict of features, and counts for each output feature

    - `<feature>_tokens`: entries that are neither EOS nor padding, of features of integers,
    - `<feature>_max_tokens`: the most of them in one example,
    - `<feature>_chars`: code points of the text in `<feature>_pretokenized`, or in the feature itself where it is
      text; with `count_chars`, where neither is there, of what the vocabulary decodes.

    Counting is done for a batch of examples at a time, about a microsecond for each.
    """

    name = STAGE
    input_type = object
    output_type = dict

    def __init__(self, reference: TaskReference, *, count_chars: bool = False) -> None:
        self._reference = reference
        self._count_chars = count_chars

    def fingerprint_config(self) -> dict[str, Any]:
        return {"count_chars": self._count_chars}

    def transform(self, example: Any) -> list[dict[str, Any]]:
        return self.transform_batch([example])[0]

    def transform_batch(self, examples: list[Any]) -> list[list[dict[str, Any]]]:
        task = self._reference.get()
        cached = [as_mapping(task, example) for example in examples]
        context = current_context()
        if context is not None:
            split = context.record_id_of(0).partition("/")[0]  # a source shard belongs to one split
            self.__dict__["_stats"] = self._statistics(task.output_features, cached, split)
        return [[example] for example in cached]

    def _set_stats(self) -> None:
        """Marks a stage that leaves `_stats` behind after each call."""

    def _statistics(
        self, features: Mapping[str, Feature], examples: Sequence[Mapping[str, Any]], split: str
    ) -> list[Statistic]:
        counted: list[Statistic] = []
        for name, feature in features.items():
            values = [example[name] for example in examples if name in example]
            arrays = values if is_integers(values) else _as_int64(values)
            if arrays:
                tokens = count_tokens(arrays, _special_ids(feature))
                counted.append(Counter(statistic_name(split, f"{name}_tokens"), int(tokens.sum())))
                counted.append(Maximum(statistic_name(split, f"{name}_max_tokens"), int(tokens.max())))
            texts = [example.get(name + PRETOKENIZED, example.get(name)) for example in examples]
            texts = [text for text in texts if isinstance(text, bytes)]
            if texts:
                counted.append(Counter(statistic_name(split, f"{name}_chars"), count_chars(texts)))
            elif self._count_chars and arrays and feature.rank == 1:
                decoded = sum(len(str(feature.vocabulary.decode(array.tolist()))) for array in arrays)
                counted.append(Counter(statistic_name(split, f"{name}_chars"), decoded))
        return counted


def is_integers(values: Sequence[Any]) -> bool:
    """Whether all values are arrays of integers of one dtype."""
    if set(map(type, values)) != {np.ndarray}:
        return False
    dtypes = {value.dtype for value in values}
    return len(dtypes) == 1 and dtypes.pop().kind in "iu"


def _as_int64(values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.dtype.kind in "iu"]
    return [array.astype(np.int64) for array in arrays]


def count_tokens(arrays: Sequence[np.ndarray[Any, Any]], special_ids: Iterable[int]) -> np.ndarray[Any, Any]:
    """For each array how many of its entries are none of `special_ids`: `[[5, 1], [0, 7, 8]]`, `{0, 1}` → `[1, 2]`.

    All arrays are integers of one dtype.
    """
    sizes = np.fromiter((array.size for array in arrays), np.int64, len(arrays))
    try:
        flat = np.frombuffer(b"".join(arrays), arrays[0].dtype)  # type: ignore[arg-type]  # six times as fast as below
    except (BufferError, ValueError):  # not contiguous
        flat = np.concatenate([array.reshape(-1) for array in arrays])
    special = sorted(set(special_ids))
    if special == list(range(len(special))):  # padding 0 and EOS 1, mostly: one comparison
        kept = flat.view(f"u{flat.itemsize}") >= len(special)
    else:
        kept = np.isin(flat, special, invert=True)
    if kept.all():
        return sizes
    totals = np.concatenate([[0], np.cumsum(kept)])
    ends = np.cumsum(sizes)
    counts: np.ndarray[Any, Any] = totals[ends] - totals[ends - sizes]
    return counts


def count_chars(texts: Iterable[bytes]) -> int:
    """Code points of texts in UTF-8: all bytes but continuations."""
    data = np.frombuffer(b"".join(texts), np.int8)
    return int(np.count_nonzero(data >= -64))


def _special_ids(feature: Feature) -> list[int]:
    vocabulary = feature.vocabulary
    return [int(i) for i in (vocabulary.eos_id, vocabulary.pad_id) if isinstance(i, (int, np.integer))]
