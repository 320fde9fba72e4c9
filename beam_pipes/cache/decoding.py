"""One feature of a parsed Example → its value.

Parsing the records that we wrote: known chunks in a known order, so that most of the work is comparing headers.

Anything else, such as the same Example written by TensorFlow, is left to the protocol buffer runtime, which takes three
times as long.

Records that are messages and no examples: `SequenceFeatures` and `MessageFeatures` say how features are read from them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from google.protobuf.message import DecodeError

from beam_pipes.cache import dtypes, messages
from beam_pipes.cache.encoding import Headers
from beam_pipes.cache.feature_values import check_range, exact_array, restored
from beam_pipes.cache.layout import Field, fields_of
from beam_pipes.cache.messages import varint
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.errors import CorruptRecordError, SpecError

Shape = tuple[int, ...]
Decoder = Callable[[Any, "Shape | None"], Any]  # (Feature message, stored shape) → value
BytesDecoder = Callable[[bytes, "Shape | None"], Any]  # (its bytes, stored shape) → value

_LISTS = {
    "raw": "bytes_list",
    "shape": "bytes_list",
    "text": "bytes_list",
    "texts": "bytes_list",
    "floats": "float_list",
}


def decoder_of(field: Field, spec: FeatureSpec) -> Decoder:
    """The function that turns the Feature message of a field into a value; it raises `SpecError`."""
    if field.kind == "text":
        return lambda message, _: text_value(field.name, spec, _single(field, message))
    if field.kind == "texts":
        return lambda message, _: _texts(field, spec, message)
    return _tensor_decoder(field, spec)


def text_value(name: str, spec: FeatureSpec, value: bytes) -> Any:
    """Stored bytes as the declared `bytes` or `str`."""
    if spec.dtype == dtypes.BYTES:
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SpecError(
            f"feature {name!r}: expected UTF-8, found {value[:40]!r}: {error}. Declare bytes to read it.",
            feature=name,
            expected="str",
            found=value,
        ) from error


def shape_of_count(name: str, spec: FeatureSpec, count: int, stored: Shape | None = None) -> Shape:
    """The shape of `count` elements: the stored one, or what the spec and the count tell."""
    if stored is not None:
        fits = len(stored) == len(spec.shape) and all(
            have >= 0 and want in (None, have) for want, have in zip(spec.shape, stored, strict=True)
        )
        if fits and math.prod(stored) == count:
            return stored
    elif spec.ragged:
        rest = tuple(size for size in spec.shape[1:] if size is not None)
        row = math.prod(rest)
        if count % row == 0:
            return (count // row, *rest)
    else:
        shape = tuple(size for size in spec.shape if size is not None)
        if math.prod(shape) == count:
            return shape
    raise SpecError(
        f"feature {name!r}: expected {spec.dtype} of shape {spec.shape}, found {count} elements"
        f"{'' if stored is None else f' and the shape {stored}'}. The record was written with a different spec.",
        feature=name,
        expected=spec.shape,
        found=count,
    )


def own_array(name: str, values: np.ndarray[Any, Any], spec: FeatureSpec, shape: Shape) -> Any:
    """Stored values as a writable array of the declared dtype; a NumPy scalar for shape ()."""
    made, declared = values.reshape(shape), spec.numpy_dtype
    made = made.astype(declared) if made.itemsize <= declared.itemsize else restored(name, spec, made)
    return made if spec.shape else made[()]


def bytes_decoder_of(field: Field, spec: FeatureSpec) -> BytesDecoder:
    """The function that turns the bytes of a direct field into a value; it raises `SpecError`."""
    if field.kind == "text":
        return lambda data, _: text_value(field.name, spec, data)
    if field.kind == "shape":
        spec = FeatureSpec("int64", shape=(len(spec.shape),))
    storage, declared = dtypes.numpy_dtype(field.dtype), spec.numpy_dtype
    itemsize = storage.itemsize
    plain = spec.shape == (None,) and field.dtype != dtypes.BOOL
    narrower = storage.itemsize > declared.itemsize

    def decode(data: bytes, stored: Shape | None) -> Any:
        if len(data) % itemsize:
            raise SpecError(
                f"feature {field.name!r}: expected raw {field.dtype} values of {itemsize} bytes each, found "
                f"{len(data)} bytes. The record was written with a different spec.",
                feature=field.name,
                expected=field.dtype,
                found=len(data),
            )
        values = _booleans(field.name, data) if field.dtype == dtypes.BOOL else np.frombuffer(data, storage)
        if plain:
            return restored(field.name, spec, values) if narrower else values.astype(declared)
        return own_array(field.name, values, spec, shape_of_count(field.name, spec, values.size, stored))

    return decode


def _tensor_decoder(field: Field, spec: FeatureSpec) -> Decoder:
    storage = dtypes.numpy_dtype(field.dtype)
    if field.kind in ("raw", "shape"):
        from_bytes = bytes_decoder_of(field, spec)
        return lambda message, stored: from_bytes(_single(field, message), stored)

    def decode(message: Any, stored: Shape | None) -> Any:
        values = _float_list(field, message) if field.kind == "floats" else np.array(_values(field, message), storage)
        if field.kind == "ints":
            values = exact_array(field.name, FeatureSpec(spec.dtype, shape=(None,)), values)
        return own_array(field.name, values, spec, shape_of_count(field.name, spec, values.size, stored))

    return decode


def _booleans(name: str, data: bytes) -> np.ndarray[Any, Any]:
    values = np.frombuffer(data, np.uint8)
    if values.size and values.max() > 1:
        raise SpecError(
            f"feature {name!r}: expected booleans (bytes 0 and 1), found {int(values.max())}. The record was written "
            "with a different spec.",
            feature=name,
            expected="bool",
            found=int(values.max()),
        )
    return values.view(np.bool_)


def _values(field: Field, message: Any) -> Any:
    """The repeated values of the list that a field expects."""
    expected = _LISTS.get(field.kind, "int64_list")
    found = message.WhichOneof("kind")
    if found not in (expected, None):
        hint = 'encoding="raw"' if found == "bytes_list" else 'encoding="list"'
        raise SpecError(
            f"feature {field.name!r}: expected a {expected} ({field.dtype}), found a {found}. Declare the feature as "
            "it was "
            f"written; numbers in a {found} have {hint}.",
            feature=field.name,
            expected=expected,
            found=found,
        )
    return getattr(message, expected).value


def _float_list(field: Field, message: Any) -> np.ndarray[Any, Any]:
    """The values as they lie in the message. Through Python floats, a signalling NaN would become a quiet one."""
    values = _values(field, message)
    packed: bytes = message.float_list.SerializeToString()
    header = b"\x0a" + varint(4 * len(values))
    if values and packed.startswith(header):
        return np.frombuffer(packed, "<f4", len(values), len(header))
    return np.array(values, "<f4")


def _single(field: Field, message: Any) -> bytes:
    values = _values(field, message)
    if len(values) != 1:
        raise SpecError(
            f"feature {field.name!r}: expected one value, found {len(values)}. Declare shape=(None,) for several.",
            feature=field.name,
            expected=1,
            found=len(values),
        )
    return bytes(values[0])


def _texts(field: Field, spec: FeatureSpec, message: Any) -> np.ndarray[Any, Any]:
    values = list(_values(field, message))
    shape_of_count(field.name, spec, len(values))
    made = np.empty(len(values), object)
    made[:] = [text_value(field.name, spec, value) for value in values]
    return made


_FILLER_TAG = 0x7A


class ChunkHeaders(dict[int, "bytes | None"]):
    """Bytes of a whole chunk → the header it must begin with; None if no payload gives a chunk of this size."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self._headers = Headers(field)

    def __missing__(self, chunk_bytes: int) -> bytes | None:
        if len(self) >= 1 << 16:
            self.clear()
        shortest = len(self._headers[0])
        found = None
        # Five nested lengths of at most five bytes each.
        for header_bytes in range(shortest, min(shortest + 25, chunk_bytes + 1)):
            header = self._headers[chunk_bytes - header_bytes]
            if len(header) == header_bytes:
                found = header
                break
        self[chunk_bytes] = found
        return found


class OwnRecords:
    """Decodes payloads of one spec, as `ExampleCodec.encode` made them."""

    def __init__(self, spec: ExampleSpec, fields: tuple[Field, ...]) -> None:
        self._fields = [
            (
                field,
                ChunkHeaders(field),
                bytes_decoder_of(field, spec[field.feature]) if field.direct else None,
                None if field.direct else decoder_of(field, spec[field.feature]),
            )
            for field in fields
        ]
        self._shaped = {field.feature for field in fields if field.kind == "shape"}
        self._order = tuple(spec)

    def decode(self, payload: bytes) -> dict[str, Any] | None:
        """The example, or None if the payload is not laid out as ours are.

        Raises `SpecError` if it is, and a value is none of its spec.
        """
        try:
            places = self._places(payload)
        except IndexError:  # shorter than its lengths say
            return None
        if places is None:
            return None
        shapes: dict[str, Any] = {}
        if self._shaped:
            for (field, _, direct, _), (_, start, end) in zip(self._fields, places, strict=True):
                if field.kind == "shape" and direct is not None:
                    shapes[field.feature] = tuple(direct(payload[start:end], None).tolist())
        found: dict[str, Any] = {}
        for (field, _, direct, parsed), (chunk, start, end) in zip(self._fields, places, strict=True):
            if field.kind == "shape":
                continue
            if direct is not None:
                found[field.feature] = direct(payload[start:end], shapes.get(field.feature))
            elif parsed is not None:
                try:
                    message = messages.Example.FromString(payload[chunk:end]).features.feature[field.name]
                except DecodeError:
                    return None  # numbers that do not parse: the general way says so
                found[field.feature] = parsed(message, shapes.get(field.feature))
        return found

    def _places(self, payload: bytes) -> list[tuple[int, int, int]] | None:
        """(start of the chunk, start of its payload, end) of each field."""
        places: list[tuple[int, int, int]] = []
        position = 0
        for _, headers, _, _ in self._fields:
            if payload[position] == _FILLER_TAG:
                position += 2 + payload[position + 1]
            at = position + 1
            length = payload[at]
            shift = 7
            if length >= 0x80:
                length &= 0x7F
                while True:
                    at += 1
                    byte = payload[at]
                    length |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
            end = at + 1 + length
            header = headers[end - position] if end <= len(payload) else None
            if header is None:
                return None
            start = position + len(header)
            if payload[position:start] != header:
                return None
            places.append((position, start, end))
            position = end
        if position != len(payload) and payload[position] == _FILLER_TAG:
            position += 2 + payload[position + 1]
        return places if position == len(payload) else None


# Records that are messages, read as examples


class MessageDecoder(Protocol):
    """Makes an example of a record that is none: of a message, or of bytes."""

    @property
    def spec(self) -> ExampleSpec:
        """The features of what it makes."""
        ...

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        """The decoder of records of this kind (and message class); raises `SpecError` if it is not for them."""
        ...

    def decode(self, payload: bytes, message_of: Callable[[bytes], Any]) -> dict[str, Any]:
        """The example of one record; `message_of` parses its payload."""
        ...


def message_decoder(decode: MessageDecoder | Mapping[str, FeatureSpec]) -> MessageDecoder:
    """`decode`, or where it names features only, what reads them from Examples, or as the lists of SequenceExamples."""
    return _NamedFeatures(ExampleSpec(decode)) if isinstance(decode, Mapping) else decode


@dataclasses.dataclass(frozen=True, init=False)
class SequenceFeatures:
    """How a `SequenceExample` is read: its feature lists, one entry a step, and its context.

        SequenceFeatures(
            {"inputs": FeatureSpec("float32", shape=(None, 38)), "labels": FeatureSpec("int64", shape=(None,))},
            context={"piece": FeatureSpec("str")},
        )

    The first dimension of a feature list counts its steps: `(None, 38)` has 38 values in each, `(None,)` one, and
    `(None, None)` as many in each step of a record, which may be another number in the next record. A feature of the
    context is read like that of an `Example`: where its first dimension varies it may be missing, and is empty then. A
    feature list that is missing is an error. Lists and context without a spec are passed over.

    Raises `SpecError` for a name in both, and for shapes that such a message does not tell.
    """

    feature_lists: ExampleSpec
    context: ExampleSpec

    def __init__(
        self, feature_lists: Mapping[str, FeatureSpec], *, context: Mapping[str, FeatureSpec] | None = None
    ) -> None:
        object.__setattr__(self, "feature_lists", ExampleSpec(feature_lists))
        object.__setattr__(self, "context", ExampleSpec(context or {}))
        both = sorted(self.feature_lists.keys() & self.context.keys())
        if both:
            raise SpecError(
                f"feature {both[0]!r}: expected it in the feature lists or in the context, got it in both, but a batch "
                "has one column for each name. Omit one of them.",
                feature=both[0],
            )
        for name, spec in self.feature_lists.items():
            if not spec.shape or (spec.ragged and None in spec.shape[2:]):
                raise SpecError(
                    f"feature {name!r}: expected a shape whose first dimension counts the steps, such as (None,) or "
                    f"(None, 38), got {spec.shape}. A SequenceExample does not record sizes beyond the second "
                    "dimension.",
                    feature=name,
                    found=spec.shape,
                )
        _check_flat(self.context)

    @functools.cached_property
    def spec(self) -> ExampleSpec:
        return ExampleSpec({**self.feature_lists, **self.context})

    @functools.cached_property
    def _readers(self) -> dict[str, _FeatureReader]:
        return {name: _FeatureReader(name, spec) for name, spec in self.spec.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"feature_lists": self.feature_lists, "context": self.context}

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        _check_message("SequenceExample", kind, proto, where=where)
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Any]) -> dict[str, Any]:
        message = parsed(messages.SequenceExample, payload)
        lists, context = message.feature_lists.feature_list, message.context.feature
        made = {}
        for name in self.feature_lists:
            if name not in lists:
                raise SpecError(
                    f"feature {name!r}: expected a feature list of this name, found {sorted(lists)} (and in the "
                    f"context {sorted(context)}). Declare what the record has.",
                    feature=name,
                    found=sorted(lists),
                )
            made[name] = self._readers[name].of_steps(lists[name].feature)
        for name in self.context:
            made[name] = self._readers[name].of_map(context)
        return made


@dataclasses.dataclass(frozen=True)
class _NamedFeatures:
    """Features by name, before it is known of which message."""

    spec: ExampleSpec

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        if proto is not None and proto.rpartition(".")[2] == "SequenceExample":
            return SequenceFeatures(self.spec)
        _check_message("Example", kind, proto, where=where)
        _check_flat(self.spec)
        return self

    @functools.cached_property
    def _readers(self) -> dict[str, _FeatureReader]:
        return {name: _FeatureReader(name, spec) for name, spec in self.spec.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec}

    def decode(self, payload: bytes, message_of: Callable[[bytes], Any]) -> dict[str, Any]:
        found = parsed(messages.Example, payload).features.feature
        return {name: self._readers[name].of_map(found) for name in self.spec}


@dataclasses.dataclass(frozen=True, init=False)
class MessageFeatures:
    """How any record is read: `function` makes an example of the message, or of the bytes, of one record.

        MessageFeatures(lambda note: {"pitch": note.pitch}, {"pitch": FeatureSpec("uint8")})

    Values are checked against `features` as those of a stored example are, and must be exact in their dtypes.
    """

    function: Callable[[Any], Mapping[str, Any]]
    spec: ExampleSpec

    def __init__(self, function: Callable[[Any], Mapping[str, Any]], features: Mapping[str, FeatureSpec]) -> None:
        if not callable(function):
            raise SpecError(
                f"expected a function of a message that gives an example, got {type(function).__name__}. Pass "
                "MessageFeatures(function, {name: FeatureSpec(…)})."
            )
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "spec", ExampleSpec(features))

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Any]) -> dict[str, Any]:
        example = self.function(message_of(payload))
        if not isinstance(example, Mapping) or example.keys() != self.spec.keys():
            found = sorted(map(str, example)) if isinstance(example, Mapping) else type(example).__name__
            raise SpecError(
                f"expected the features {list(self.spec)} of the function of MessageFeatures, got {found}. Return a "
                "dict of all of them.",
                expected=list(self.spec),
                found=found,
            )
        return {name: _declared_value(name, spec, example[name]) for name, spec in self.spec.items()}


def parsed(cls: Any, payload: bytes) -> Any:
    """A message; raises `CorruptRecordError` if the payload is none of its class."""
    try:
        return cls.FromString(payload)
    except DecodeError as error:
        raise CorruptRecordError(
            f"expected a serialized {cls.__name__}, got {len(payload)} bytes that do not parse: {error}",
            problem="payload",
        ) from error


def _check_message(name: str, kind: str, proto: str | None, *, where: str) -> None:
    if kind == "bytes" or (proto is not None and proto.rpartition(".")[2] == name):
        return
    raise SpecError(
        f"{where}: the features are those of {name} messages, and the records are {proto or kind}. Pass "
        "SequenceFeatures(…) for SequenceExamples, {name: FeatureSpec(…)} for Examples, and "
        "MessageFeatures(function, features) for any other message.",
        expected=name,
        found=proto or kind,
    )


def _check_flat(specs: ExampleSpec) -> None:
    """Raises `SpecError` if the number of values does not tell the shape."""
    for name, spec in specs.items():
        if spec.has_shape_feature:
            raise SpecError(
                f"feature {name!r}: expected a shape where at most the first dimension varies, got {spec.shape}: a "
                "message holds values in a row. Use MessageFeatures(function, features), which may reshape them.",
                feature=name,
                found=spec.shape,
            )


def _declared_value(name: str, spec: FeatureSpec, value: Any) -> Any:
    """A value that a function gave, as a stored one is read."""
    if not spec.is_text:
        made = exact_array(name, spec, value)
        return made if spec.shape else made[()]
    wanted = str if spec.dtype == dtypes.STR else bytes
    values = list(value) if spec.shape and not isinstance(value, (str, bytes)) else [value]
    if (not spec.shape) != isinstance(value, (str, bytes)) or not all(isinstance(one, wanted) for one in values):
        raise SpecError(
            f"feature {name!r}: expected {spec.dtype} of shape {spec.shape}, got {type(value).__name__}. Convert it.",
            feature=name,
            expected=spec,
            found=type(value),
        )
    if not spec.shape:
        return value
    shape_of_count(name, spec, len(values))
    made = np.empty(len(values), object)
    made[:] = values
    return made


class _FeatureReader:
    """Reads one feature from messages that anybody has written: numbers in a list, or as the bytes of a tensor."""

    def __init__(self, name: str, spec: FeatureSpec) -> None:
        self._name, self._spec = name, spec
        self._of_lists = self._of_bytes = None
        if spec.is_text or not (spec.dtype == "float64" or spec.dtype == "uint64"):
            self._of_lists = self._decoder(dataclasses.replace(spec, encoding="list"))
        if not spec.is_text:
            self._of_bytes = self._decoder(dataclasses.replace(spec, encoding="raw", minimum=None, maximum=None))

    def _decoder(self, spec: FeatureSpec) -> Decoder:
        fields = fields_of(ExampleSpec({self._name: spec}))
        return decoder_of(next(field for field in fields if field.name == self._name), spec)

    def of_map(self, features: Any) -> Any:
        """The value of an `Example`, or of a context; empty if there is none and the spec allows it."""
        if self._name in features:
            return self._value(features[self._name], None)
        if self._spec.shape[:1] == (None,):
            return self._value(messages.Feature(), None)
        raise SpecError(
            f"feature {self._name!r}: expected {self._spec.dtype} of shape {self._spec.shape}, found no such feature "
            f"among {sorted(features)}. Only one whose first dimension varies may be missing.",
            feature=self._name,
            found=sorted(features),
        )

    def of_steps(self, steps: Any) -> Any:
        """The value of a feature list."""
        name, spec = self._name, self._spec
        whole = messages.Feature()
        inner = spec.shape[1:]
        size = None if None in inner else math.prod(one or 0 for one in inner)
        kind = None
        for position, step in enumerate(steps):
            found = step.WhichOneof("kind") or kind
            if found is None:
                count = 0
            else:
                if kind not in (None, found):
                    raise SpecError(
                        f"feature {name!r}: expected one kind of list in all steps, found a {kind} and then, at step "
                        f"{position}, a {found}. Read it with MessageFeatures(function, features).",
                        feature=name,
                    )
                kind = found
                values = getattr(step, kind)
                count = len(values.value)
                getattr(whole, kind).MergeFrom(values)
            size = count if size is None else size
            if count != size:
                raise SpecError(
                    f"feature {name!r}: expected {size} values at each step (shape {spec.shape}), found {count} at "
                    f"step {position}. Declare (None, None) where only records differ; where steps do, pad them with "
                    "MessageFeatures(function, features).",
                    feature=name,
                    expected=size,
                    found=count,
                )
        shape = (len(steps), *((size or 0) if one is None else one for one in inner))
        return self._value(whole, shape)

    def _value(self, message: Any, shape: Shape | None) -> Any:
        as_bytes = self._of_bytes is not None and message.WhichOneof("kind") == "bytes_list"
        decode = self._of_bytes if as_bytes or self._of_lists is None else self._of_lists
        assert decode is not None
        value = decode(message, shape)
        if not self._spec.is_text:
            check_range(self._name, self._spec, np.asarray(value))
        return value
