"""Data sets that TensorFlow Datasets has prepared, RLDS episodes among them: splits as sources, with TFDS's values.

    mnist/3.0.1/dataset_info.json, features.json, mnist-train.tfrecord-00000-of-00001
                              │
                              ▼
    {"image": array (28, 28, 1) of uint8, "label": 4}

TFRecord and ArrayRecord files are read as all others are, planned, checked and resumed; TFDS says what is in a record,
and decodes it. On an object store, TFDS gets the small files that describe the data set, and opens none itself.
"""

from __future__ import annotations

import array
import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from beam_pipes.checks import known
from beam_pipes.errors import CacheNotFoundError, CorruptRecordError, SourceError
from beam_pipes.extras import require
from beam_pipes.format.feature_values import nested
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.sources.byte_stream import open_input, read_error
from beam_pipes.sources.file_source import Range
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.tfrecords import TFRecords, frame_offsets, ranges_of_frames
from beam_pipes.sources.training_formats import ArrayRecordFile, ArrayRecords
from beam_pipes.storage.local import directory_path, is_remote, storage_for

_Tfds = Any  # a builder or feature of TFDS, which has no annotations


@dataclass(frozen=True)
class TfdsFeatures:
    """What a record of a prepared data set is: `TfdsFeatures("mnist/3.0.1")`. Needs the extra `tfds`.

    `decode` gives a dict of what `tfds.data_source` gives, with texts as `str`, groups joined by slashes
    (`observation/image`), and the steps of an RLDS episode stacked: `steps/action` of shape (steps, 7).

    Args:
        directory: of the version; it holds `dataset_info.json` and `features.json`.
        encoded: names of pictures that remain the bytes of a JPEG or PNG file.

    Raises:
        SourceError: the directory has no such description, or `encoded` names no feature.
    """

    directory: str
    encoded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known(*self.encoded, among=self.spec, what="feature", where=f"TFDS in {self.directory!r}", error=SourceError)

    @functools.cached_property
    def builder(self) -> _Tfds:
        """TFDS' own reader of the directory."""
        tfds = require("tensorflow_datasets", purpose="reading a TFDS directory")
        try:
            with _description(self.directory) as described:
                return tfds.builder_from_directory(described)
        except (OSError, ValueError, CacheNotFoundError) as error:
            raise SourceError(
                f"expected a data set that TFDS has prepared, with its dataset_info.json and features.json, in "
                f"{self.directory!r}: {error} Name the directory of a version, such as mnist/3.0.1.",
                file=self.directory,
            ) from error

    @functools.cached_property
    def spec(self) -> ExampleSpec:
        """The features of a record, for a declaration: a `ClassLabel` is an int64 with `classes`."""
        return ExampleSpec({name: self._spec(name, feature, info) for name, feature, info in self._leaves()})

    @property
    def pictures(self) -> tuple[str, ...]:
        """The names that `encoded` may have."""
        kinds = require("tensorflow_datasets", purpose="reading a TFDS directory").features
        return tuple(name for name, feature, _ in self._leaves() if isinstance(feature, kinds.Image))

    def _leaves(self) -> Iterator[tuple[str, _Tfds, _Tfds]]:
        """Name, feature and tensor of everything that is no group; of a sequence, the feature of its elements."""
        kinds = require("tensorflow_datasets", purpose="reading a TFDS directory").features

        def within(feature: _Tfds, info: _Tfds, name: str) -> Iterator[tuple[str, _Tfds, _Tfds]]:
            if isinstance(info, Mapping):
                group = feature.feature if hasattr(feature, "feature") else feature
                for key in info:
                    yield from within(group[key], info[key], f"{name}/{key}" if name else key)
                return
            while isinstance(feature, kinds.Sequence):
                feature = feature.feature
            yield name, feature, info

        features = self.builder.info.features
        return within(features, features.get_tensor_info(), "")

    def _spec(self, name: str, feature: _Tfds, info: _Tfds) -> FeatureSpec:
        kinds = require("tensorflow_datasets", purpose="reading a TFDS directory").features
        shape = (None,) * info.dataset_lvl + tuple(info.shape)
        if isinstance(feature, kinds.Image) and name in self.encoded:
            return FeatureSpec("bytes", shape=shape[: len(shape) - len(feature.shape)])
        if isinstance(feature, kinds.ClassLabel):
            return FeatureSpec("int64", shape=shape, classes=feature.names)
        if info.np_dtype == np.object_:
            return FeatureSpec("str" if isinstance(feature, kinds.Text) else "bytes", shape=shape)
        return FeatureSpec(info.np_dtype, shape=shape)

    @functools.cached_property
    def _decoders(self) -> dict[str, Any]:
        skip = require("tensorflow_datasets", purpose="reading a TFDS directory").decode.SkipDecoding
        return nested({name: skip() for name in self.encoded})

    def decode(self, raw: bytes) -> dict[str, object]:
        """The values of one record. Raises `CorruptRecordError` if TFDS does not read it."""
        try:
            found = self.builder.info.features.deserialize_example_np(raw, decoders=self._decoders or None)
            values = dict(_flat(found, ""))
            return {name: _value(_of(values, name), feature) for name, feature in self.spec.items()}
        except Exception as error:  # whatever codecs of pictures and TFDS raise
            raise CorruptRecordError(f"TFDS reads it as {type(error).__name__}: {error}") from error

    def config(self) -> object:
        return {"encoded": list(self.encoded), "features": self.builder.info.features.to_json()}

    def __getstate__(self) -> dict[str, object]:
        return {"directory": self.directory, "encoded": self.encoded}


def _flat(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Groups by joined names; the steps of an episode as lists."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}/{key}" if name else key)
    elif hasattr(value, "__getitem__") and not isinstance(value, (np.ndarray, np.generic, list, bytes, str)):
        steps = [dict(_flat(step, name)) for step in value]  # type: ignore[attr-defined]
        if not steps:
            yield name, []
        for key in steps[0] if steps else ():
            yield key, [step[key] for step in steps]
    else:
        yield name, value


def _of(values: Mapping[str, object], name: str) -> object:
    """The value of a feature; that of a step in an episode without steps is empty."""
    group = name.partition("/")[0]
    value = values[name] if name in values or values.get(group) != [] else []
    if value is None:  # TFDS gives it for a feature that the record lacks
        raise ValueError(f"there is no feature {name!r} in it")
    return value


def _value(value: Any, feature: FeatureSpec) -> object:
    if not feature.is_text:
        array = np.asarray(value, feature.numpy_dtype)
        if not array.size and feature.shape[:1] == (None,):
            return array.reshape(0, *(size or 0 for size in feature.shape[1:]))
        return array if feature.shape else array[()]
    if feature.shape:
        return [_value(each, FeatureSpec(feature.dtype)) for each in value]
    raw = bytes(value)
    return raw.decode("utf-8") if feature.dtype == "str" else raw


@contextlib.contextmanager
def _description(directory: str) -> Iterator[str]:
    """A local directory with the files that describe a data set: itself, or copies of those on an object store."""
    if not is_remote(directory):
        yield directory
        return
    storage = storage_for(directory)
    with tempfile.TemporaryDirectory(prefix="beam-pipes-tfds-") as made:
        for name in storage.list(directory):
            if name.endswith((".json", ".txt")):
                with open(os.path.join(made, name), "wb") as copy:
                    copy.write(storage.read_bytes(f"{directory}/{name}"))
        yield made


@dataclass(frozen=True)
class TfdsRecords(TFRecords):
    """The examples of one split of a prepared data set; `tfds_splits` makes them. Record ids are `name@byte`.

    `message` is what a record is. `record_counts`: (name, records) of each file, as `dataset_info.json` has them; a
    file that holds more or fewer is an error.
    """

    _: KW_ONLY
    record_counts: tuple[tuple[str, int], ...] = ()

    keeps_empty_files: ClassVar[bool] = True  # they have no records, which has to be what is expected of them

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        try:
            with open_input(file.path) as handle:
                offsets = array.array("Q", frame_offsets(handle, file.size))
        except OSError as error:
            raise read_error(file.name, error, offset=0) from error
        check_count(file.name, len(offsets), self.record_counts)
        if file.size <= target_shard_bytes:
            return [Range(0, file.size, file.size)]
        return ranges_of_frames(file, target_shard_bytes, offsets)

    def fingerprint_config(self) -> Mapping[str, object]:
        config = dict(super().fingerprint_config())
        del config["record_counts"]  # of each file; what is in a file is known by its digest
        return config


@dataclass(frozen=True)
class TfdsArrayRecords(ArrayRecords):
    """`TfdsRecords` of a data set that is stored as ArrayRecord; record ids are `name@record`."""

    _: KW_ONLY
    message: TfdsFeatures
    record_counts: tuple[tuple[str, int], ...] = ()

    @property
    def output_type(self) -> type:
        return dict

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        with self._open(file.path, file.name) as opened:
            check_count(file.name, opened.num_records, self.record_counts)
        return super()._ranges(file, target_shard_bytes)

    def _add(
        self, batcher: Batcher, piece: StoredPiece, raws: Sequence[bytes], opened: ArrayRecordFile
    ) -> Iterator[RecordBatch]:
        def parse(k: int) -> dict[str, object]:
            return self._decoded(raws[k], file=piece.file, position=piece.position(k))

        return batcher.add_parsed(piece, len(raws), parse, num_bytes=sum(map(len, raws)))

    def _decoded(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        try:
            return self.message.decode(raw)
        except CorruptRecordError as error:
            raise SourceError(f"expected an example of the data set: {error}", file=file, offset=position) from error

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        return self._decoded(raw, file=file, position=position)

    def fingerprint_config(self) -> Mapping[str, object]:
        config = dict(super().fingerprint_config())
        config.pop("record_counts", None)
        return {**config, "message": self.message.config()}


def check_count(name: str, found: int, record_counts: Sequence[tuple[str, int]]) -> None:
    """Raises `SourceError` if a file holds more or fewer records than the description says."""
    expected = dict(record_counts)[name]
    if found != expected:
        raise SourceError(
            f"input {name} holds {found} records, and dataset_info.json says {expected}. Copy the data set again.",
            file=name,
        )


#: The source of each format of files in which TFDS stores data sets.
_SOURCES: Mapping[str, type[TfdsRecords] | type[TfdsArrayRecords]] = {
    "tfrecord": TfdsRecords,
    "array_record": TfdsArrayRecords,
}


def tfds_splits(
    directory: str | os.PathLike[str], *, encoded: Sequence[str] = ()
) -> dict[str, TfdsRecords | TfdsArrayRecords]:
    """The splits of a data set that TFDS has prepared, each with its source: `build(name, tfds_splits("mnist/3.0.1"))`.

    Values are those of `tfds.data_source`, with the names of `TfdsFeatures`, whose `spec` declares them; `encoded`
    names pictures that are not decoded. Needs the extra `tfds`, for ArrayRecord `formats` too, and the data on a file
    system or, as TFRecord, on an object store.

    Raises `SourceError` if TFDS does not open the directory, and for other formats than TFRecord and ArrayRecord.
    """
    top = directory_path(directory)
    features = TfdsFeatures(top, tuple(encoded))
    info = features.builder.info
    source = _SOURCES.get(info.file_format.value)
    if source is None:
        raise SourceError(
            f"the data set in {top!r} is stored as {info.file_format.value}; {' and '.join(_SOURCES)} are read. "
            "Prepare it as one of these: builder.download_and_prepare(file_format='array_record').",
            file=top,
        )
    made: dict[str, TfdsRecords | TfdsArrayRecords] = {}
    for name, split in sorted(info.splits.items()):
        template = split.filename_template
        names = [
            template.sharded_filepath(shard_index=at, num_shards=split.num_shards).name
            for at in range(split.num_shards)
        ]
        made[name] = source(
            [f"{top}/{each}" for each in names],
            message=features,
            relative_to=top,
            record_counts=tuple(zip(names, split.shard_lengths, strict=True)),
        )
    return made
