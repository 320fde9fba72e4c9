"""What a split of a cache counts: examples, tokens, longest, characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_pipes.tasks.dtypes import DType

#: What tokenizers append to the name of a feature whose text they keep.
PRETOKENIZED = "_pretokenized"

#: The stage of a build that counts.
STAGE = "example"


def statistic_name(split: str, name: str) -> str:
    """What a stage calls a count of one split: `train/targets_tokens`."""
    return f"{split}/{name}"


def counted_statistics(statistics: Sequence[Mapping[str, Any]], split: str) -> dict[str, int]:
    """What the build of a task has counted for a split, from the statistics of its manifest; empty for other caches."""
    prefix = f"{STAGE}_{statistic_name(split, '')}"
    return {
        str(each["name"]).removeprefix(prefix): int(each["state"].get("count", each["state"].get("value", 0)))
        for each in statistics
        if str(each["name"]).startswith(prefix)
    }


def split_statistics(
    split: Any, token_features: Iterable[str] | None = None, *, statistics: Sequence[Mapping[str, Any]] = ()
) -> dict[str, int]:
    """Statistics of a split: those that the build of a task has counted, the others from the index. No record is read.

    `{"examples": 3, "targets_tokens": 18, "targets_max_tokens": 6, "targets_chars": 40}`. What a build has counted
    leaves EOS and padding out, and characters are code points; the index knows lengths alone, so there tokens are all
    entries, and characters the bytes of the text that was kept as `<feature>_pretokenized`.

    Args:
        split: a `beam_pipes.cache.Split` of examples.
        token_features: features whose entries are tokens; None for all integer features of rank 1 and varying length.
        statistics: those of the cache's manifest.
    """
    counted = counted_statistics(statistics, split.name)
    if counted and token_features is None:
        return {"examples": len(split), **counted}
    spec = split.spec
    if token_features is None:
        token_features = [
            name
            for name, feature in spec.items()
            if feature.shape == (None,) and not feature.is_text and DType(feature.dtype).is_integer
        ]
    stats = {"examples": len(split)}
    for name in token_features:
        lengths = split.lengths(name)
        stats[f"{name}_tokens"] = int(lengths.sum())
        stats[f"{name}_max_tokens"] = int(lengths.max()) if len(lengths) else 0
        text = name + PRETOKENIZED
        if text in spec and spec[text].is_text and spec[text].shape == ():
            stats[f"{name}_chars"] = int(split.lengths(text).sum())
    return stats
