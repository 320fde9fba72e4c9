"""Raw examples as bytes: what a dead letter keeps of a record that was no line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.cache import messages

# The feature under which an example is kept that is a single value and no mapping.
_WHOLE = "value"


def raw_bytes(example: Any) -> bytes:
    """A line as it is; anything else as a `tf.train.Example` of lists of int64, float32 and bytes.

    `b"a line"` → `b"a line"`; `{"id": 3, "text": b"a"}` → `id: int64_list [3], text: bytes_list ["a"]`.
    """
    if isinstance(example, bytes):
        return example
    message = messages.Example()
    for name, value in (example if isinstance(example, Mapping) else {_WHOLE: example}).items():
        fill_feature(message.features.feature[str(name)], value)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def fill_feature(feature: Any, value: Any) -> None:
    """Fills a `tf.train.Feature` with the elements of a value, in row order."""
    if isinstance(value, (bytes, str)):
        feature.bytes_list.value.append(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
        return
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        for item in array.reshape(-1):
            text = item if isinstance(item, (bytes, str)) else str(item)
            fill_feature(feature, text)
    elif array.dtype.kind in "biu":
        feature.int64_list.value.extend(array.astype(np.int64).reshape(-1).tolist())
    else:
        feature.float_list.value.extend(array.astype(np.float32).reshape(-1).tolist())


def example_of(raw: bytes) -> Any:
    """The example of `raw_bytes`, its numbers as int64 and float32."""
    features = messages.Example.FromString(raw).features.feature
    values = {name: _value(feature) for name, feature in features.items()}
    return values[_WHOLE] if values.keys() == {_WHOLE} else values


def _value(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        texts = list(feature.bytes_list.value)
        return texts[0] if len(texts) == 1 else texts
    if kind == "float_list":
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)
