"""The classes of `messages.py`, made from a descriptor that is written down here."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "beam_pipes"
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="beam_pipes/example.proto", package=_PACKAGE, syntax="proto3")

    def message(name: str) -> Any:
        return file.message_type.add(name=name)

    def field(
        owner: Any, name: str, number: int, type_: int, *, label: int = _Field.LABEL_OPTIONAL, of: str = ""
    ) -> Any:
        made = owner.field.add(name=name, number=number, type=type_, label=label)
        if of:
            made.type_name = f".{_PACKAGE}.{of}"
        return made

    def map_field(owner: Any, name: str, entry: str, value: str) -> None:
        nested = owner.nested_type.add(name=entry)
        nested.options.map_entry = True
        field(nested, "key", 1, _Field.TYPE_STRING)
        field(nested, "value", 2, _Field.TYPE_MESSAGE, of=value)
        field(owner, name, 1, _Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED, of=f"{owner.name}.{entry}")

    field(message("BytesList"), "value", 1, _Field.TYPE_BYTES, label=_Field.LABEL_REPEATED)
    for name, type_ in (("FloatList", _Field.TYPE_FLOAT), ("Int64List", _Field.TYPE_INT64)):
        field(message(name), "value", 1, type_, label=_Field.LABEL_REPEATED).options.packed = True
    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        of = "".join(word.capitalize() for word in name.split("_"))
        field(feature, name, number, _Field.TYPE_MESSAGE, of=of).oneof_index = 0
    map_field(message("Features"), "feature", "FeatureEntry", "Feature")
    field(message("Example"), "features", 1, _Field.TYPE_MESSAGE, of="Features")
    field(message("FeatureList"), "feature", 1, _Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED, of="Feature")
    map_field(message("FeatureLists"), "feature_list", "FeatureListEntry", "FeatureList")
    sequence = message("SequenceExample")
    field(sequence, "context", 1, _Field.TYPE_MESSAGE, of="Features")
    field(sequence, "feature_lists", 2, _Field.TYPE_MESSAGE, of="FeatureLists")
    return file


def message_classes(names: tuple[str, ...], module: str) -> dict[str, Any]:
    """The classes of these names, from a descriptor pool of their own; `module` is where pickle finds them."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    classes = {}
    for name in names:
        classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        classes[name].__module__ = module
    return classes
