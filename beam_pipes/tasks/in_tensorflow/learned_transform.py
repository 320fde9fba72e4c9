"""The step that applies what was learned of a task's `preprocessing_fn` to its cached examples."""

from __future__ import annotations

from typing import Any

from beam_pipes.cache.reader import Cache
from beam_pipes.extras import require

# What the asset in the cache is called.
TRANSFORM_FN = "transform_fn"

# Examples that the function is given at once: a call costs a millisecond, an example in it microseconds.
_EXAMPLES_AT_ONCE = 256


def apply_learned(dataset: Any, *, task: str) -> Any:
    """Cached examples → what the transform function in the task's cache makes of them, in the same order.

    Raises `CacheNotFoundError` where the task is not cached: there is nothing that was learned.
    """
    from beam_pipes.tasks.caches.task_cache import require_cache_dir
    from beam_pipes.tft import TransformFunction

    tf = require("tensorflow", purpose="the preprocessing_fn of a task")
    transform = TransformFunction.of(Cache.open(require_cache_dir(task)), TRANSFORM_FN)
    taken = set(transform.raw_features.names)

    def transformed(batch: dict[str, Any]) -> dict[str, Any]:
        made = transform({name: value for name, value in batch.items() if name in taken})
        return {
            name: tf.RaggedTensor.from_sparse(value) if isinstance(value, tf.SparseTensor) else value
            for name, value in made.items()
        }

    return dataset.ragged_batch(_EXAMPLES_AT_ONCE).map(transformed).unbatch()
