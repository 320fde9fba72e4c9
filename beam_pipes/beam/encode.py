"""From an element of a collection to a record on its way to its shard: its key, its split, its bytes.

    {"user": "ann", "counts": [3, 5]}  →  shard 7, Encoded(key=b"ann", split="train", payload=…, row=(2,), failure=None)

An element that cannot be stored is a record too: it goes to the shard of its content, and becomes a dead letter or a
count there.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import apache_beam as beam
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint
from google.protobuf.message import Message

from beam_pipes.beam.letters import content_key, field_names, fields_of, raw_of, same_in_every_run
from beam_pipes.beam.lower import Element, FailedElement, TypeHint
from beam_pipes.building.declaration import KeyOf
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_output import WRITE
from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError, SourceError, SpecError, StageError, text_of
from beam_pipes.format.codec import ExampleCodec, IndexRow, codec_for
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.lineage.reader import DeadLetter
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.typed.pipeline import Pipeline
from beam_pipes.typed.random_partition import RandomPartition


@dataclasses.dataclass(frozen=True)
class Collection(Source):
    """The source of a declaration whose records come from a collection: nothing is planned or read."""

    type_: type

    @property
    def output_type(self) -> type:
        return self.type_

    def plan(self, **_: object) -> SourcePlan:
        raise _gone()

    def read(self, shard: SourceShard, **_: object) -> Iterator[RecordBatch]:
        raise _gone()

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        raise _gone()

    def fingerprint_config(self) -> Mapping[str, object]:
        return {}


def features_of_schema(element_type: TypeHint) -> ExampleSpec | None:
    """The features of rows with a schema, by the types of its fields; None for elements without one.

        beam.Row(user=str, clicks=Sequence[int])  →  {"user": str, "clicks": int64 of shape (None,)}

    Raises `DeclarationError`, naming the field, for a type that no feature holds.
    """
    if isinstance(element_type, RowTypeConstraint):
        fields = dict(element_type._fields)
    elif isinstance(element_type, type) and (names := field_names(element_type)) is not None:
        hints = get_type_hints(element_type)
        fields = {name: hints.get(name, Any) for name in names}
    else:
        return None
    return ExampleSpec({name: _feature_of(name, type_) for name, type_ in fields.items()})


def _feature_of(name: str, type_: TypeHint) -> FeatureSpec:
    shape: tuple[None, ...] = ()
    found = convert_to_beam_type(type_)
    while True:
        members = [each for each in getattr(found, "union_types", ()) if each is not type(None)]
        inner = members[0] if len(members) == 1 else getattr(found, "inner_type", None)
        if inner is None:
            break
        shape, found = shape if members else (*shape, None), inner
    dtype = _DTYPES.get(found, found)
    try:
        return FeatureSpec(dtype, shape=shape)
    except (SpecError, TypeError) as error:
        raise DeclarationError(
            f"WriteToCache: the field {name!r} of the rows is {type_}, which has no feature type. Give features=… for "
            "all of them, or convert it: to text, a number, bytes, or a sequence of numbers."
        ) from error


_DTYPES = {int: "int64", float: "float64", bool: "bool", str: "str", bytes: "bytes"}


class Key:
    """The key of an element as bytes; None if its content is its key."""

    def __init__(self, key: KeyOf | None) -> None:
        self._key = key

    def __call__(self, element: Element) -> bytes | None:
        if self._key is None:
            return None
        found = element[self._key] if isinstance(self._key, str) else self._key(element)
        if hasattr(found, "item"):
            found = found.item()
        if isinstance(found, bool) or not isinstance(found, (str, bytes, int)):
            raise DeclarationError(
                f"WriteToCache: a key should be a str, bytes or an int, got {brief(found)} for {brief(element)}."
            )
        return found if isinstance(found, bytes) else str(found).encode("utf-8", "surrogatepass")


def _gone() -> SourceError:
    return SourceError("the records of this cache came from a PCollection: run the Beam pipeline again.")


_Keyed = tuple[Element, bytes]


class _SplitBy(Pipeline):
    """Sends an element with its key to the split that a user function names."""

    def __init__(self, type_: type, splits: Sequence[str], split_by: Callable[[Element], str]) -> None:
        super().__init__(input_type=type_, output_type=dict.fromkeys(splits, type_), name="SplitBy")
        self.splits = list(splits)
        self.split_by = split_by

    def transform(self, input_object: _Keyed) -> dict[str, list[_Keyed]]:
        split = self.split_by(input_object[0])
        outputs: dict[str, list[_Keyed]] = {name: [] for name in self.splits}
        if split not in outputs:
            raise DeclarationError(f"WriteToCache: split_by gave {split!r}; the splits are {', '.join(outputs)}.")
        outputs[split].append(input_object)
        return outputs


def _key_of_pair(pair: _Keyed) -> bytes:
    return pair[1]


def splitter(
    type_: type,
    splits: Mapping[str, float] | Sequence[str],
    split_by: Callable[[Element], str] | None,
    seed: int,
) -> Pipeline:
    """The DoFn that divides pairs of (element, key) among the splits: by the user's function, else drawn by the key."""
    names = list(splits)
    if split_by is not None:
        return _SplitBy(type_, names, split_by)
    if not isinstance(splits, Mapping):
        if len(names) != 1:
            shares = ", ".join(f"{name!r}: {1 / max(1, len(names)):.2g}" for name in names)
            raise DeclarationError(
                f"WriteToCache: expected one split, or how records are divided among several, got splits={names}. Give "
                f"shares, splits={{{shares}}}, or split_by=function."
            )
        splits = {names[0]: 1.0}
    return RandomPartition(type_, names, list(splits.values()), seed=seed, key=_key_of_pair, name="SplitByKey")


# The fields of an `Encoded`, as it crosses a shuffle.
EncodedFields = tuple[Any, ...]


class Encoded(NamedTuple):
    """A record on its way to its shard. `failure` is the (type, message) of a failure to store it; then `payload` is
    the bytes that a dead letter keeps of the element."""

    key: bytes
    split: str
    payload: bytes
    row: IndexRow
    failure: tuple[str, str] | None
    # The step before `WriteToCache` where it failed, else `WriteToCache`.
    stage: str = WRITE

    def digest(self) -> int:
        """256 bits over everything that is written about the record."""
        origin = (self.row, self.failure) if self.stage == WRITE else (self.row, self.failure, self.stage)
        split, end = self.split.encode(), repr(origin).encode()
        lengths = [len(part).to_bytes(8, "little") for part in (self.key, split, self.payload, end)]
        digest = hashlib.sha256(b"".join((lengths[0], self.key, lengths[1], split, lengths[2])))
        digest.update(self.payload)  # it may be large, and is not copied
        digest.update(lengths[3] + end)
        return int.from_bytes(digest.digest(), "little")


class Encode(beam.DoFn):  # type: ignore[misc]
    """Element → (shard, encoded record); an element that cannot be stored continues as a failure, or ends the job.

    A `FailedElement`, the dead letter of an earlier step, is such a failure.
    """

    def __init__(self, handle: DeclarationHandle, key: Key, num_shards: int) -> None:
        self._handle = handle
        self._key = key
        self._num_shards = num_shards

    def setup(self) -> None:
        self._declaration = declaration = self._handle.get()
        [unit] = declaration.graph.units
        self._split = unit.stage.transform
        # A split that gets everything needs no draw, a tenth of the time of a small record.
        is_drawn = isinstance(unit.stage, RandomPartition)
        self._only_split = declaration.splits[0] if is_drawn and len(declaration.splits) == 1 else None
        first = declaration.splits[0]  # all have the same features
        spec, proto = declaration.declared_specs.get(first), declaration.graph.output_type[first]
        self._codec = codec_for(declaration.kinds[first], spec=spec, proto=proto)
        self._lists = None if spec is None else ExampleCodec(ExampleSpec({name: _as_list(spec[name]) for name in spec}))

    def process(self, element: Element) -> Iterator[tuple[int, EncodedFields]]:
        try:
            if isinstance(element, FailedElement):  # the dead letter of an earlier step
                record = _dead(element.element, element.error_type, element.message, element.stage)
            else:
                record = self._encoded(element)
        except Exception as error:
            if self._declaration.on_error == "fail":
                if isinstance(error, DeclarationError):  # which itself says what to correct
                    raise
                raise StageError(
                    f"the element {brief(element)} cannot be stored: {text_of(error).rstrip('.')}. Correct the step "
                    "before WriteToCache or the features, or allow failures with on_error='dead_letter' (kept) or "
                    "on_error='drop' (counted).",
                    stage=WRITE,
                ) from error
            record = _dead(element, type(error).__name__, text_of(error), WRITE)
        shard = int.from_bytes(hashlib.blake2b(record.key, digest_size=8).digest(), "big") % self._num_shards
        yield shard, tuple(record)  # Beam has a coder for plain tuples, several times faster than pickling

    def _encoded(self, element: Element) -> Encoded:
        value = self._value(element)
        payload, row = self._codec.encode_indexed(value)
        key = self._key(value)
        if key is None:
            key = content_key(payload)
        split = self._only_split
        if split is None:
            outputs = self._split((value, key))
            [split] = [name for name, values in outputs.items() if values]
        return Encoded(key, split, payload, tuple(row), None)

    def _value(self, element: Element) -> Element:
        if self._lists is None or type(element) is dict:
            return element
        if (fields := fields_of(element)) is not None:
            return fields
        if isinstance(element, Message | bytes):  # bytes: an example as `WriteToTFRecord` is given it
            payload = element if isinstance(element, bytes) else element.SerializeToString()
            try:
                return self._lists.decode(payload)
            except SpecError:
                return self._codec.decode(payload)  # written by a cache: numbers as bytes
        return element


def _as_list(feature: FeatureSpec) -> FeatureSpec:
    """The feature as other programs write it into an Example: numbers in lists, if a list holds them exactly."""
    try:
        return dataclasses.replace(feature, encoding="list")
    except SpecError:
        return feature


def _dead(element: Element, error_type: str, message: str, stage: str) -> Encoded:
    raw = raw_of(element)
    return Encoded(content_key(raw), "", raw, (), (error_type, same_in_every_run(message)), stage)


def letter(record: Encoded, file: str, position: int, ordinal: int) -> DeadLetter:
    """The dead letter of a record that could not be stored, at its place."""
    assert record.failure is not None
    error_type, message = record.failure
    return DeadLetter(
        record=record.payload,
        source=file,
        position=position,
        ordinal=ordinal,
        stage=record.stage,
        error_type=error_type,
        message=message,
        traceback="",
    )


def letter_of(keyed: tuple[int, EncodedFields]) -> Iterator[DeadLetter]:
    """The dead letter of a failed record, before it has its place."""
    record = Encoded(*keyed[1])
    if record.failure is not None:
        yield letter(record, record.key.decode("utf-8", "backslashreplace"), 0, 0)
