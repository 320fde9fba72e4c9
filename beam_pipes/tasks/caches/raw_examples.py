"""Raw examples as bytes: what a dead letter keeps of a record that was no line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.cache import messages
from beam_pipes.cache.exact import NotExactError, NotNumbersError, cast_exactly, natural_array

# The feature under which an example is kept that is a single value and no mapping.
_WHOLE = "value"


def raw_bytes(example: Any) -> bytes:
    """A line as it is; anything else as a `tf.train.Example` of lists of int64, float32 and bytes.

    Integers beyond int64, and floats that would become infinite, are kept as text: a stage that reads the dead letter
    again fails on it rather than taking another number.

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
    try:
        array = natural_array(value)
        if array.dtype.kind in "biu":
            feature.int64_list.value.extend(cast_exactly(array, np.dtype(np.int64)).reshape(-1).tolist())
            return
        if array.dtype.kind in "fV":
            values = cast_exactly(array, np.dtype(np.float32), rounds=True)
            feature.float_list.value.extend(values.reshape(-1).tolist())
            return
    except (NotExactError, NotNumbersError):
        array = np.array(value, object)
    for item in array.reshape(-1).tolist():
        fill_feature(feature, item if isinstance(item, (bytes, str)) else _text(item))


def _text(item: Any) -> str:
    try:
        return str(item)
    except ValueError:  # more digits than Python converts
        return hex(item)


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
