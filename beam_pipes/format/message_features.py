"""Reads records that are messages, but not examples of ours, as examples.

    decoder = message_decoder({"inputs": FeatureSpec("float32", shape=(None, 38))})
    decoder = decoder.of_records("proto", "tensorflow.SequenceExample", where="split 'train'")
    decoder.decode(payload, SequenceExample.FromString)  →  {"inputs": array of shape (steps, 38)}

`SequenceFeatures` and `MessageFeatures` say how features are read from a message; a mapping of names to specs means
features of an Example, or the feature lists of a SequenceExample. The writer of such a message may have stored numbers
in a list or as the bytes of a tensor: both are read, and checked as stored values are.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.format import dtypes, messages
from beam_pipes.format.decoding import Decoder, Shape, content_of, decoder_of, parsed, shape_of_count
from beam_pipes.format.feature_values import check_range, exact_array
from beam_pipes.format.layout import Field, fields_of
from beam_pipes.format.spec import DecodedExample, Example, ExampleSpec, FeatureSpec, FeatureValue, Record


class MessageDecoder(Protocol):
    """Makes an example from a record of another kind: from a message, or from bytes."""

    @property
    def spec(self) -> ExampleSpec:
        """The features of the examples it makes."""
        ...

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        """The decoder for records of this kind (and message class); raises `SpecError` if it does not read them."""
        ...

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
        """The example of one record; `message_of` parses its payload."""
        ...


def message_decoder(decode: MessageDecoder | Mapping[str, FeatureSpec]) -> MessageDecoder:
    """`decode` itself; features alone are read from Examples, or as the lists of SequenceExamples."""
    return _NamedFeatures(ExampleSpec(decode)) if isinstance(decode, Mapping) else decode


@dataclasses.dataclass(frozen=True, init=False)
class SequenceFeatures:
    """How a `SequenceExample` is read: its feature lists, one entry per step, and its context.

        SequenceFeatures(
            {"inputs": FeatureSpec("float32", shape=(None, 38)), "labels": FeatureSpec("int64", shape=(None,))},
            context={"piece": FeatureSpec("str")},
        )

    The first dimension of a feature list counts its steps: `(None, 38)` has 38 values in each, `(None,)` one, and
    `(None, None)` as many in each step of a record, which may be another number in the next record. A feature of the
    context is read like one of an `Example`: where its first dimension varies it may be missing, and is empty then. A
    missing feature list is an error. Lists and context features without a spec are ignored.

    Raises `SpecError` for a name in both, and for shapes that such a message does not determine.
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
                "expected it in the feature lists or in the context, got it in both, but a batch has one column for "
                "each name. Omit one of them."
            ).about("feature", both[0])
        for name, spec in self.feature_lists.items():
            if not spec.shape or (spec.ragged and None in spec.shape[2:]):
                raise SpecError(
                    "expected a shape whose first dimension counts the steps, such as (None,) or (None, 38), got "
                    f"{spec.shape}. A SequenceExample does not record sizes beyond the second dimension."
                ).about("feature", name, found=spec.shape)
        _check_flat(self.context)

    @functools.cached_property
    def spec(self) -> ExampleSpec:
        return ExampleSpec({**self.feature_lists, **self.context})

    @functools.cached_property
    def _readers(self) -> dict[str, _FeatureReader]:
        return {name: _FeatureReader(name, spec) for name, spec in self.spec.items()}

    def __getstate__(self) -> dict[str, object]:
        return {"feature_lists": self.feature_lists, "context": self.context}

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        _check_message("SequenceExample", kind, proto, where=where)
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
        message = parsed(messages.SequenceExample, payload)
        lists, context = message.feature_lists.feature_list, message.context.feature
        made = {}
        for name in self.feature_lists:
            if name not in lists:
                raise SpecError(
                    f"expected a feature list of this name, found {sorted(lists)} (and in the context "
                    f"{sorted(context)}). Declare what the record has."
                ).about("feature", name, found=sorted(lists))
            made[name] = self._readers[name].of_steps(lists[name].feature)
        for name in self.context:
            made[name] = self._readers[name].of_map(context)
        return made


@dataclasses.dataclass(frozen=True)
class _NamedFeatures:
    """Features by name, before the kind of message is known."""

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

    def __getstate__(self) -> dict[str, object]:
        return {"spec": self.spec}

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
        found = parsed(messages.Example, payload).features.feature
        return {name: self._readers[name].of_map(found) for name in self.spec}


@dataclasses.dataclass(frozen=True, init=False)
class MessageFeatures:
    """How any record is read: `function` makes an example from the message, or from the bytes, of one record.

        MessageFeatures(lambda note: {"pitch": note.pitch}, {"pitch": FeatureSpec("uint8")})

    Values are checked against `features` like those of a stored example, and must be exact in their dtypes.
    """

    function: Callable[[Record], Example]
    spec: ExampleSpec

    def __init__(self, function: Callable[[Record], Example], features: Mapping[str, FeatureSpec]) -> None:
        if not callable(function):
            raise SpecError(
                f"expected a function of a message that gives an example, got {type(function).__name__}. Pass "
                "MessageFeatures(function, {name: FeatureSpec(…)})."
            )
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "spec", ExampleSpec(features))

    def of_records(self, kind: str, proto: str | None, *, where: str) -> MessageDecoder:
        return self

    def decode(self, payload: bytes, message_of: Callable[[bytes], Record]) -> DecodedExample:
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
    """Raises `SpecError` if the number of values does not determine the shape."""
    for name, spec in specs.items():
        if spec.has_shape_feature:
            raise SpecError(
                f"expected a shape where at most the first dimension varies, got {spec.shape}: a message holds values "
                "in a row. Use MessageFeatures(function, features), which may reshape them."
            ).about("feature", name, found=spec.shape)


def _declared_value(name: str, spec: FeatureSpec, value: FeatureValue) -> FeatureValue:
    """A value that a function returned, read like a stored one."""
    if not spec.is_text:
        made = exact_array(name, spec, value)
        return made if spec.shape else made[()]
    wanted = str if spec.dtype == dtypes.STR else bytes
    values = list(value) if spec.shape and not isinstance(value, (str, bytes)) else [value]
    if (not spec.shape) != isinstance(value, (str, bytes)) or not all(isinstance(one, wanted) for one in values):
        raise SpecError(f"expected {spec.dtype} of shape {spec.shape}, got {type(value).__name__}. Convert it.").about(
            "feature", name, expected=spec, found=type(value)
        )
    if not spec.shape:
        return value
    shape_of_count(name, spec, len(values))
    made = np.empty(len(values), object)
    made[:] = values
    return made


class _FeatureReader:
    """Reads one feature from messages of any writer: numbers in a list, or as the bytes of a tensor."""

    def __init__(self, name: str, spec: FeatureSpec) -> None:
        self._name, self._spec = name, spec
        self._of_lists = self._of_bytes = None
        if spec.is_text or not (spec.dtype == "float64" or spec.dtype == "uint64"):
            self._of_lists = self._decoder(dataclasses.replace(spec, encoding="list"))
        if not spec.is_text:
            self._of_bytes = self._decoder(dataclasses.replace(spec, encoding="raw", minimum=None, maximum=None))

    def _decoder(self, spec: FeatureSpec) -> tuple[Field, Decoder]:
        field = next(field for field in fields_of(ExampleSpec({self._name: spec})) if field.name == self._name)
        return field, decoder_of(field, spec)

    def of_map(self, features: Mapping[str, messages.Feature]) -> FeatureValue:
        """The value of an `Example`, or of a context; empty if there is none and the spec allows it."""
        if self._name in features:
            return self._value(features[self._name], None)
        if self._spec.shape[:1] == (None,):
            return self._value(messages.Feature(), None)
        raise SpecError(
            f"expected {self._spec.dtype} of shape {self._spec.shape}, found no such feature among {sorted(features)}. "
            "Only one whose first dimension varies may be missing."
        ).about("feature", self._name, found=sorted(features))

    def of_steps(self, steps: Sequence[messages.Feature]) -> FeatureValue:
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
                        f"expected one kind of list in all steps, found a {kind} and then, at step {position}, a "
                        f"{found}. Read it with MessageFeatures(function, features)."
                    ).about("feature", name)
                kind = found
                values = getattr(step, kind)
                count = len(values.value)
                getattr(whole, kind).MergeFrom(values)
            size = count if size is None else size
            if count != size:
                raise SpecError(
                    f"expected {size} values at each step (shape {spec.shape}), found {count} at step {position}. "
                    "Declare (None, None) where only records differ; where steps do, pad them with "
                    "MessageFeatures(function, features)."
                ).about("feature", name, expected=size, found=count)
        shape = (len(steps), *((size or 0) if one is None else one for one in inner))
        return self._value(whole, shape)

    def _value(self, message: messages.Feature, shape: Shape | None) -> FeatureValue:
        as_bytes = self._of_bytes is not None and message.WhichOneof("kind") == "bytes_list"
        chosen = self._of_bytes if as_bytes or self._of_lists is None else self._of_lists
        assert chosen is not None
        field, decode = chosen
        content = content_of(field, message)
        value = decode(content, 0, len(content), shape)
        if not self._spec.is_text:
            check_range(self._name, self._spec, np.asarray(value))
        return value
