"""From an element of a collection to a record on its way to its shard: its key, its split, its bytes.

    {"user": "ann", "counts": [3, 5]}  →  shard 7, Encoded(key=b"ann", split="train", payload=…, row=(2,), failure=None)

What cannot be stored is a record too: it goes to the shard of its content, and becomes a dead letter or a count there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from google.protobuf.message import Message

from beam_pipes.building.declaration import Declaration, DeclarationHandle
from beam_pipes.building.shard_output import WRITE
from beam_pipes.cache.codec import IndexRow, RecordCodec, codec_for
from beam_pipes.cache.lineage_reader import DeadLetter
from beam_pipes.cache.spec import ExampleSpec
from beam_pipes.engine.graph import brief
from beam_pipes.errors import DeclarationError, SourceError, StageError
from beam_pipes.identity.fingerprint import canonical
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.typed.pipeline import Pipeline
from beam_pipes.typed.random_partition import RandomPartition

#: What tells a record apart: a feature's name, or a function of the element.
KeyOf = str | Callable[[Any], str | bytes | int]


@dataclasses.dataclass(frozen=True)
class Collection(Source):
    """The source of a declaration whose records come from a collection: there is nothing to plan or to read."""

    type_: type

    @property
    def output_type(self) -> type:
        return self.type_

    def plan(self, **_: Any) -> SourcePlan:
        raise SourceError("the records of this cache came from a PCollection: run the Beam pipeline again.")

    def read(self, shard: SourceShard, **_: Any) -> Iterator[Any]:
        raise SourceError("the records of this cache came from a PCollection: run the Beam pipeline again.")

    def parse(self, raw: bytes, *, file: str, position: int) -> Any:
        raise SourceError("the records of this cache came from a PCollection: run the Beam pipeline again.")

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {}


class Key:
    """The key of an element as bytes; None where its content is its key."""

    def __init__(self, key: KeyOf | None) -> None:
        self._key = key

    def __call__(self, element: Any) -> bytes | None:
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


class _ContentKey:
    """The key by which splits are drawn: that of the record, else its content."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def __call__(self, element: Any) -> bytes:
        found = self._key(element)
        return _raw_of(element) if found is None else found


class _SplitBy(Pipeline):
    """Sends an element to the split that a function of the user names."""

    def __init__(self, type_: type, splits: Sequence[str], split_by: Callable[[Any], str]) -> None:
        super().__init__(input_type=type_, output_type=dict.fromkeys(splits, type_), name="SplitBy")
        self.splits = list(splits)
        self.split_by = split_by

    def transform(self, input_object: Any) -> dict[str, list[Any]]:
        split = self.split_by(input_object)
        outputs: dict[str, list[Any]] = {name: [] for name in self.splits}
        if split not in outputs:
            raise DeclarationError(f"WriteToCache: split_by gave {split!r}; the splits are {', '.join(outputs)}.")
        outputs[split].append(input_object)
        return outputs


def splitter(
    type_: type,
    splits: Mapping[str, float] | Sequence[str],
    split_by: Callable[[Any], str] | None,
    key: Key,
    seed: int,
) -> Pipeline:
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
    return RandomPartition(type_, names, list(splits.values()), seed=seed, key=_ContentKey(key), name="SplitByKey")


class Encoded(NamedTuple):
    """A record on its way to its shard. `failure` is (type, message) of what could not be stored; then `payload` is a
    canonical text of the element."""

    key: bytes
    split: str
    payload: bytes
    row: IndexRow
    failure: tuple[str, str] | None

    def digest(self) -> int:
        """256 bits of all that is written of the record."""
        parts = (self.key, self.split.encode(), self.payload, repr((self.row, self.failure)).encode())
        found = hashlib.sha256()
        for part in parts:
            found.update(len(part).to_bytes(8, "little") + part)
        return int.from_bytes(found.digest(), "little")


class Encode(beam.DoFn):  # type: ignore[misc]
    """Element → (shard, encoded record); an element that cannot be stored goes on as a failure, or ends the job."""

    def __init__(self, handle: DeclarationHandle, key: Key, num_shards: int) -> None:
        self._handle = handle
        self._key = key
        self._num_shards = num_shards

    def setup(self) -> None:
        self._declaration = declaration = self._handle.get()
        self._codecs = _codecs(declaration)
        self._failed = beam.metrics.Metrics.counter(declaration.name, f"{WRITE}/dead")

    def process(self, element: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
        try:
            record = self._encoded(element)
        except DeclarationError:
            raise
        except Exception as error:
            if self._declaration.on_error == "fail":
                raise StageError(
                    f"the element {brief(element)} cannot be stored: {error} Correct the step before WriteToCache or "
                    "the features, or allow failures with on_error='dead_letter' (kept) or on_error='drop' (counted).",
                    stage=WRITE,
                ) from error
            self._failed.inc()
            raw = _raw_of(element)
            record = Encoded(_content_key(raw), "", raw, (), (type(error).__name__, str(error)))
        shard = int.from_bytes(hashlib.blake2b(record.key, digest_size=8).digest(), "big") % self._num_shards
        yield shard, tuple(record)  # a plain tuple has a coder of Beam's, several times faster than pickling

    def _encoded(self, element: Any) -> Encoded:
        value = self._value(element)
        ((split, _),) = [
            (name, values) for name, values in self._declaration.pipeline.transform(value).items() if values
        ]
        payload, row = self._codecs[split].encode_indexed(value)
        return Encoded(self._key(value) or _content_key(payload), split, payload, tuple(row), None)

    def _value(self, element: Any) -> Any:
        if self._declaration.source.output_type is not dict:
            return element
        if isinstance(element, beam.Row):
            return element.as_dict()
        if isinstance(element, tuple) and hasattr(element, "_asdict"):  # what a row is behind a shuffle
            return element._asdict()
        if isinstance(element, Message):
            return _from_example(element, self._declaration.declared_spec(self._declaration.splits[0]))
        return element


def _from_example(message: Any, spec: ExampleSpec | None) -> dict[str, Any]:
    """A `tf.train.Example` as values of the declared shapes, whether its numbers are lists or little-endian bytes."""
    values: dict[str, Any] = {}
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        held = [] if kind is None else getattr(feature, kind).value
        declared = None if spec is None else spec.get(name)
        if declared is None:
            values[name] = list(held)  # named by the codec, which does not know it
            continue
        if declared.is_text:
            made = np.array([each.decode() if declared.dtype == "str" else each for each in held], object)
        elif kind == "bytes_list":
            made = np.frombuffer(b"".join(held), np.dtype(declared.dtype).newbyteorder("<"))
        else:
            made = np.array(held, np.float32 if kind == "float_list" else np.int64)
        sizes = [-1 if size is None else size for size in declared.shape]
        shaped = made.reshape(sizes) if sizes.count(-1) < 2 else made
        values[name] = shaped[()] if not sizes else shaped
    return values


def _codecs(declaration: Declaration) -> dict[str, RecordCodec]:
    return {
        split: codec_for(declaration.kind(split), spec=declaration.declared_spec(split), proto=type_)
        for split, type_ in declaration.graph.output_type.items()
    }


def _content_key(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:16].encode()


def _raw_of(element: Any) -> bytes:
    """The element as bytes that depend on its values alone, where it has a canonical form."""
    if isinstance(element, bytes):
        return element
    if isinstance(element, Message):
        return element.SerializeToString(deterministic=True)
    try:
        return repr(canonical(element)).encode("utf-8", "surrogatepass")
    except Exception:
        return pickle.dumps(element)


def letter(record: Encoded, file: str, position: int, ordinal: int) -> DeadLetter:
    assert record.failure is not None
    error_type, message = record.failure
    return DeadLetter(
        record=record.payload,
        source=file,
        position=position,
        ordinal=ordinal,
        stage=WRITE,
        error_type=error_type,
        message=message,
        traceback="",
    )


def letter_of(keyed: tuple[int, tuple[Any, ...]]) -> Iterator[DeadLetter]:
    """The dead letter of a record that failed, before it has its place."""
    record = Encoded(*keyed[1])
    if record.failure is not None:
        yield letter(record, record.key.decode("utf-8", "backslashreplace"), 0, 0)
