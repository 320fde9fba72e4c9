"""`Example` and `SequenceExample` without TensorFlow: messages with the wire form of `tf.train.*`.

They live in a separate descriptor pool, under the package `beam_pipes`, so that they can coexist with TensorFlow's in
one process. They are created on first use: importing protobuf's descriptors takes half as long as importing NumPy, and
a worker that writes records, or a loader that reads ours, needs none of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.internal.containers import (
        MessageMap,
        RepeatedCompositeFieldContainer,
        RepeatedScalarFieldContainer,
    )
    from google.protobuf.message import Message

    from beam_pipes.format.spec import Record

    class BytesList(Message):
        value: RepeatedScalarFieldContainer[bytes]

    class FloatList(Message):
        value: RepeatedScalarFieldContainer[float]

    class Int64List(Message):
        value: RepeatedScalarFieldContainer[int]

    class Feature(Message):
        bytes_list: BytesList
        float_list: FloatList
        int64_list: Int64List

    class Features(Message):
        feature: MessageMap[str, Feature]

    class Example(Message):
        features: Features

    class FeatureList(Message):
        feature: RepeatedCompositeFieldContainer[Feature]

    class FeatureLists(Message):
        feature_list: MessageMap[str, FeatureList]

    class SequenceExample(Message):
        context: Features
        feature_lists: FeatureLists

else:
    # Message → its fields, numbered from 1: name, type, and what it is. A map has names as keys.
    _MESSAGES = {
        "BytesList": [("value", "bytes", "repeated")],
        "FloatList": [("value", "float", "repeated")],
        "Int64List": [("value", "int64", "repeated")],
        "Feature": [
            ("bytes_list", "BytesList", "one of"),
            ("float_list", "FloatList", "one of"),
            ("int64_list", "Int64List", "one of"),
        ],
        "Features": [("feature", "Feature", "map")],
        "Example": [("features", "Features", "")],
        "FeatureList": [("feature", "Feature", "repeated")],
        "FeatureLists": [("feature_list", "FeatureList", "map")],
        "SequenceExample": [("context", "Features", ""), ("feature_lists", "FeatureLists", "")],
    }
    _lock = threading.Lock()

    def __getattr__(name: str) -> object:
        if name not in _MESSAGES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=None)
        with _lock:
            if name not in globals():
                globals().update(_classes(_MESSAGES, __name__))
        return globals()[name]


Messages = Mapping[str, Sequence[tuple[str, str, str]]]

_PACKAGE = "beam_pipes"
_TENSORFLOW = "tensorflow"


def as_message_of(value: Record, cls: type[Record]) -> Message | None:
    """One of our messages as TensorFlow's class of the same name, or the other way round; None for anything else.

        as_message_of(make_sequence_example(…), tf.train.SequenceExample)  →  a tf.train.SequenceExample

    The bytes are the same; neither library is imported for it.
    """
    have, want = (getattr(getattr(one, "DESCRIPTOR", None), "full_name", "") for one in (value, cls))
    if not isinstance(have, str) or not isinstance(want, str):
        return None
    (have_package, _, have_name), (want_package, _, want_name) = have.rpartition("."), want.rpartition(".")
    if have_name != want_name or {have_package, want_package} != {_PACKAGE, _TENSORFLOW}:
        return None
    made: Message = cls.FromString(value.SerializeToString(deterministic=True))
    return made


def _file(messages: Messages) -> FileDescriptorProto:
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    types = {"bytes": kinds.TYPE_BYTES, "float": kinds.TYPE_FLOAT, "int64": kinds.TYPE_INT64, "str": kinds.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="beam_pipes/example.proto", package=_PACKAGE, syntax="proto3")

    def add(owner: DescriptorProto, number: int, name: str, type_: str, what: str) -> None:
        if what == "map":
            entry_name = "".join(word.capitalize() for word in name.split("_")) + "Entry"
            entry = owner.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            add(entry, 1, "key", "str", "")
            add(entry, 2, "value", type_, "")
            type_ = f"{owner.name}.{entry_name}"
        label = kinds.LABEL_REPEATED if what in ("map", "repeated") else kinds.LABEL_OPTIONAL
        made = owner.field.add(name=name, number=number, type=types.get(type_, kinds.TYPE_MESSAGE), label=label)
        if type_ not in types:
            made.type_name = f".{_PACKAGE}.{type_}"
        if type_ in ("float", "int64"):
            made.options.packed = True
        if what == "one of":
            made.oneof_index = 0

    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for number, field in enumerate(fields, start=1):
            add(message, number, *field)
        if fields[0][2] == "one of":
            message.oneof_decl.add(name="kind")
    return file


def _classes(messages: Messages, module: str) -> dict[str, type[Message]]:
    """The classes of these messages, from a separate descriptor pool; `module` is where pickle finds them."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file(messages))
    classes = {}
    for name in messages:
        classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        classes[name].__module__ = module
        _compare_with_tensorflow(classes[name])
    return classes


def _compare_with_tensorflow(cls: type[Message]) -> None:
    """Makes `==` hold for a TensorFlow message of the same content, on either side: its `__eq__` defers to ours."""
    from google.protobuf.message import Message

    as_ours = cls.__eq__

    def equal(self: Message, other: object) -> bool:
        same = as_message_of(other, cls) if isinstance(other, Message) else None
        return as_ours(self, other if same is None else same)

    def unequal(self: Message, other: object) -> bool:
        same = equal(self, other)
        return same if same is NotImplemented else not same

    cls.__eq__, cls.__ne__ = equal, unequal  # type: ignore[method-assign]


def find_message_class(full_name: str) -> type[Message] | None:
    """The loaded message class of this full name, such as "beam_pipes.SequenceExample", or None."""
    package, _, name = full_name.rpartition(".")
    ours: type[Message] | None = (
        getattr(sys.modules[__name__], name, None) if package == _PACKAGE else None
    )  # classes are made when asked for
    if ours is not None:
        return ours
    from google.protobuf import descriptor_pool, message_factory

    try:
        return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))
    except KeyError:
        return None
