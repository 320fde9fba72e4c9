"""`Example` and `SequenceExample` without TensorFlow: messages with the wire form of `tf.train.*`.

They live in a separate descriptor pool, under the package `beam_pipes`, so that they can coexist with TensorFlow's in
one process. They are created on first use: importing protobuf's descriptors takes half as long as importing NumPy, and
a worker that writes records, or a loader that reads ours, needs none of it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
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

    def __getattr__(name: str) -> object:
        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=None)
        with _lock:
            if name not in globals():
                globals().update(_classes(_NAMES, __name__))
        return globals()[name]


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


def _file() -> FileDescriptorProto:
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="beam_pipes/example.proto", package=_PACKAGE, syntax="proto3")

    def message(name: str) -> DescriptorProto:
        return file.message_type.add(name=name)

    def field(
        owner: DescriptorProto,
        name: str,
        number: int,
        type_: FieldDescriptorProto.Type.ValueType,
        *,
        label: FieldDescriptorProto.Label.ValueType = kinds.LABEL_OPTIONAL,
        of: str = "",
    ) -> FieldDescriptorProto:
        made = owner.field.add(name=name, number=number, type=type_, label=label)
        if of:
            made.type_name = f".{_PACKAGE}.{of}"
        return made

    def map_field(owner: DescriptorProto, name: str, entry: str, value: str) -> None:
        nested = owner.nested_type.add(name=entry)
        nested.options.map_entry = True
        field(nested, "key", 1, kinds.TYPE_STRING)
        field(nested, "value", 2, kinds.TYPE_MESSAGE, of=value)
        field(owner, name, 1, kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, of=f"{owner.name}.{entry}")

    field(message("BytesList"), "value", 1, kinds.TYPE_BYTES, label=kinds.LABEL_REPEATED)
    for name, type_ in (("FloatList", kinds.TYPE_FLOAT), ("Int64List", kinds.TYPE_INT64)):
        field(message(name), "value", 1, type_, label=kinds.LABEL_REPEATED).options.packed = True
    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        of = "".join(word.capitalize() for word in name.split("_"))
        field(feature, name, number, kinds.TYPE_MESSAGE, of=of).oneof_index = 0
    map_field(message("Features"), "feature", "FeatureEntry", "Feature")
    field(message("Example"), "features", 1, kinds.TYPE_MESSAGE, of="Features")
    field(message("FeatureList"), "feature", 1, kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED, of="Feature")
    map_field(message("FeatureLists"), "feature_list", "FeatureListEntry", "FeatureList")
    sequence = message("SequenceExample")
    field(sequence, "context", 1, kinds.TYPE_MESSAGE, of="Features")
    field(sequence, "feature_lists", 2, kinds.TYPE_MESSAGE, of="FeatureLists")
    return file


def _classes(names: tuple[str, ...], module: str) -> dict[str, type[Message]]:
    """The classes of these names, from a separate descriptor pool; `module` is where pickle finds them."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    classes = {}
    for name in names:
        classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        classes[name].__module__ = module
    return classes


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
