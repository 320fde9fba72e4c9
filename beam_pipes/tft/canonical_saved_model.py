"""A SavedModel in canonical form: the same function and the same constants give the same bytes.

TensorFlow numbers the functions that it traces by a counter of the process, names lookup tables by the temporary paths
of their vocabularies, and writes a random id next to the model. None of it matters to a program that loads the model.
"""

from __future__ import annotations

import graphlib
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.extras import require

if TYPE_CHECKING:
    import tensorflow as tf
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message
    from tensorflow.core.framework.function_pb2 import FunctionDef, FunctionDefLibrary

_PURPOSE = "writing a transform function"
_NUMBERED = re.compile(r"(.*)_([0-9]+)")
_UNIQUE_PATH = re.compile(r"[0-9a-f]{32}")
_DIGITS = re.compile(r"[0-9]+")
_USER_NAME = "_user_specified_name"
_CANONICAL_ID = "0"

Rewrite = Callable[[str], str]


def make_canonical(directory: str, *, scratch: str) -> None:
    """Rewrites the SavedModel in `directory`, which was made with temporary files under `scratch`."""
    saved_model_pb2 = require("tensorflow.core.protobuf.saved_model_pb2", purpose=_PURPOSE)
    path = os.path.join(directory, "saved_model.pb")
    model = saved_model_pb2.SavedModel()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    for meta_graph in model.meta_graphs:
        library = meta_graph.graph_def.library
        numbers = _numbers(library)
        for function in library.function:
            _name_captured(function, meta_graph.object_graph_def.concrete_functions)
            _renumber(function, numbers)
            _order(function)
        _rewrite(meta_graph, _renaming(library, numbers, scratch))
        functions = sorted(library.function, key=lambda function: str(function.signature.name))
        del library.function[:]
        library.function.extend(functions)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))
    _write_fingerprint(directory)


def _numbers(library: FunctionDefLibrary) -> dict[str, str]:
    """The numbers of functions → their ranks; functions are numbered in the order of tracing."""
    found = {match[2] for function in library.function if (match := _NUMBERED.fullmatch(function.signature.name))}
    return {number: str(rank) for rank, number in enumerate(sorted(found, key=int))}


def _renaming(library: FunctionDefLibrary, numbers: Mapping[str, str], scratch: str) -> Rewrite:
    """Replaces function numbers by ranks, and removes temporary directories from paths."""
    names = {}
    for function in library.function:
        if match := _NUMBERED.fullmatch(function.signature.name):
            names[function.signature.name] = f"{match[1]}_{numbers[match[2]]}"

    def rewrite(text: str) -> str:
        if text in names:
            return names[text]
        return _UNIQUE_PATH.sub("", text.replace(scratch, "")) if scratch in text else text

    return rewrite


def _name_captured(function: FunctionDef, concrete: Mapping[str, tf.types.experimental.ConcreteFunction]) -> None:
    """Names the captured inputs of a function by position: TensorFlow's names contain numbers of the process.

    Callers pass these by position; only the names of a function's own arguments matter.
    """
    arguments = function.signature.input_arg
    name = function.signature.name
    first = len(arguments) - len(concrete[name].bound_inputs) if name in concrete else 0
    renamed = {}
    for at in range(first, len(arguments)):
        renamed[arguments[at].name] = arguments[at].name = f"captured_{at}"
        if at in function.arg_attr and _USER_NAME in function.arg_attr[at].attr:
            function.arg_attr[at].attr[_USER_NAME].s = f"captured_{at}".encode()
    _rename_within(function, lambda each: renamed.get(each, each))


def _renumber(function: FunctionDef, numbers: Mapping[str, str]) -> None:
    """Renames operations and arguments that are named after a function by that function's rank."""

    def renumbered(text: str) -> str:
        return _DIGITS.sub(lambda digits: numbers.get(digits[0], digits[0]), text)

    for node in function.node_def:
        node.name = renumbered(node.name)
    _rename_within(function, renumbered)


def _order(function: FunctionDef) -> None:
    """Sorts operations topologically, then by name: pruning leaves them in no fixed order."""
    operations = {node.name: node for node in function.node_def}
    sorter = graphlib.TopologicalSorter[str]()
    for name in sorted(operations):
        sources = {each.lstrip("^").partition(":")[0] for each in operations[name].input}
        sorter.add(name, *sorted(sources & operations.keys()))
    sorter.prepare()
    ordered: list[Message] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += [operations[name] for name in ready]
        sorter.done(*ready)
    copies = [type(node)() for node in ordered]
    for copy, node in zip(copies, ordered, strict=True):
        copy.CopyFrom(node)
    del function.node_def[:]
    function.node_def.extend(copies)


def _rename_within(function: FunctionDef, rename: Rewrite) -> None:
    """Renames the references in a function's operations and results."""

    def reference(text: str) -> str:
        control = text[:1] == "^"
        name, colon, rest = text[control:].partition(":")
        return "^" * control + rename(name) + colon + rest

    for node in function.node_def:
        node.input[:] = [reference(each) for each in node.input]
    for returned in (function.ret, function.control_ret):
        for key in list(returned):
            returned[key] = reference(returned[key])


def _rewrite(message: Message, rewrite: Rewrite) -> None:
    """Rewrites all strings of a proto except constants, which are data."""
    if message.DESCRIPTOR.name == "TensorProto":
        return
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in sorted(value):
                _rewrite_entry(value, key, field.message_type.fields_by_name["value"], rewrite)
        elif field.type == field.TYPE_MESSAGE:
            for each in value if _is_repeated(value) else [value]:
                _rewrite(each, rewrite)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            if _is_repeated(value):
                value[:] = [_rewritten(each, rewrite) for each in value]
            else:
                setattr(message, field.name, _rewritten(value, rewrite))


def _rewrite_entry(entries: Any, key: str | int, value_field: FieldDescriptor, rewrite: Rewrite) -> None:
    new = rewrite(key) if isinstance(key, str) else key
    if value_field.type == value_field.TYPE_MESSAGE:
        _rewrite(entries[key], rewrite)
        if new != key:
            entries[new].CopyFrom(entries.pop(key))
    else:
        value = entries.pop(key)
        entries[new] = _rewritten(value, rewrite) if isinstance(value, str | bytes) else value


def _is_repeated(value: object) -> bool:
    return not hasattr(value, "DESCRIPTOR") and not isinstance(value, str | bytes)


def _rewritten(value: str | bytes, rewrite: Rewrite) -> str | bytes:
    if isinstance(value, str):
        return rewrite(value)
    try:
        return rewrite(value.decode()).encode()
    except UnicodeDecodeError:
        return value


def _write_fingerprint(directory: str) -> None:
    """TensorFlow's own fingerprint of the model as it now is, with an id that is not random."""
    fingerprint_pb2 = require("tensorflow.core.protobuf.fingerprint_pb2", purpose=_PURPOSE)
    fingerprinting = require("tensorflow.python.saved_model.pywrap_saved_model.fingerprinting", purpose=_PURPOSE)
    path = os.path.join(directory, "fingerprint.pb")
    made = fingerprint_pb2.FingerprintDef()
    made.ParseFromString(fingerprinting.CreateFingerprintDef(directory))
    made.uuid = _CANONICAL_ID
    with open(path, "wb") as file:
        file.write(made.SerializeToString(deterministic=True))
