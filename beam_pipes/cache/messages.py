"""`Example` and `SequenceExample` without TensorFlow: messages with the wire form of `tf.train.*`.

They live in a descriptor pool of their own, under the package `beam_pipes`, so that they can be in one process with
TensorFlow's. They are made when the first of them is asked for: what describes messages takes as long to import as half
of NumPy, and a worker that writes records, or a loader that reads ours, needs none of it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

    class BytesList(Message):
        value: Any

    class FloatList(Message):
        value: Any

    class Int64List(Message):
        value: Any

    class Feature(Message):
        bytes_list: Any
        float_list: Any
        int64_list: Any

    class Features(Message):
        feature: Any

    class Example(Message):
        features: Any

    class FeatureList(Message):
        feature: Any

    class FeatureLists(Message):
        feature_list: Any

    class SequenceExample(Message):
        context: Any
        feature_lists: Any

else:
    _NAMES = (
        "BytesList",
        "FloatList",
        "Int64List",
        "Feature",
        "Features",
        "Example",
        "FeatureList",
        "FeatureLists",
        "SequenceExample",
    )
    _lock = threading.Lock()

    def __getattr__(name: str) -> Any:
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=None)
        with _lock:
            if name not in globals():
                from beam_pipes.cache.message_classes import message_classes

                globals().update(message_classes(_NAMES, __name__))
        return globals()[name]
