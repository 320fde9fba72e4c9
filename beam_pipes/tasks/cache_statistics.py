"""What a split of a cache counts: examples, tokens, longest, characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from beam_pipes.tasks.dtypes import DType

_PRETOKENIZED = "_pretokenized"


def split_statistics(split: Any, token_features: Iterable[str] | None = None) -> dict[str, int]:
    """Statistics of a split, read from its index: no record is read.

    `{"examples": 3, "targets_tokens": 18, "targets_max_tokens": 6, "targets_chars": 40}`. Characters are counted
    in bytes of the
    text that was kept as `<feature>_pretokenized`.

    Args:
        split: a `beam_pipes.cache.Split` of examples.
        token_features: features whose entries are tokens; None for all integer features of rank 1 and varying length.
    """
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
        text = name + _PRETOKENIZED
        if text in spec and spec[text].is_text and spec[text].shape == ():
            stats[f"{name}_chars"] = int(split.lengths(text).sum())
    return stats
