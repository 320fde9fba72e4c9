"""The public face of tf.data.Dataset, read from TensorFlow itself: new methods of new versions chain too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from beam_pipes.extras import require


@functools.cache
def dataset_members() -> dict[str, str]:
    """Public names of tf.data.Dataset → "method", "static" or "property"."""
    tf = require("tensorflow", purpose="DataLoader")
    members = {}
    for name in dir(tf.data.Dataset):
        if not name.startswith("_"):
            found = inspect.getattr_static(tf.data.Dataset, name)
            if isinstance(found, staticmethod | classmethod):
                members[name] = "static"
            elif callable(found):
                members[name] = "method"
            else:
                members[name] = "property"
    return members


def unwrap(value: Any) -> Any:
    """Loaders inside arguments → their datasets: `[dl, {"a": dl}]` → `[dl.dataset, {"a": dl.dataset}]`."""
    from beam_pipes.on_device.data_loader import DataLoader

    if isinstance(value, DataLoader):
        return value.dataset
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(unwrap(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(unwrap(item) for item in value)
    if type(value) is dict:
        return {key: unwrap(item) for key, item in value.items()}
    return value


def loaders_in(value: Any) -> Iterator[Any]:
    """The loaders inside arguments, in order."""
    from beam_pipes.on_device.data_loader import DataLoader

    if isinstance(value, DataLoader):
        yield value
    elif isinstance(value, dict):
        yield from loaders_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from loaders_in(item)
