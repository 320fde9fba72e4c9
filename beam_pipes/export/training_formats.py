"""Exports in the formats that other training stacks read: Megatron's, ArrayRecord, WebDataset, MDS.

| format | files of a split | a record is |
| --- | --- | --- |
| `megatron` | `SPLIT_FEATURE_document.bin` and `.idx` for each feature of token ids | one sequence, and one document |
| `arrayrecord` | `SPLIT-00000-of-00002.array_record` | the stored bytes, in most cases an `Example` |
| `webdataset` | `SPLIT-000000.tar` | a sample: a member for each feature, of the extension that decoders know |
| `mds` | `SPLIT/shard.00000.mds`, and `SPLIT/index.json` | a sample: a column for each feature |

ArrayRecord and WebDataset are written by their own libraries. No library writes Megatron's two files without CUDA; they
follow the layout of `megatron.core.datasets.indexed_dataset`, whose reader opens them in a test. MDS follows the layout
of MosaicML Streaming 0.13.0, which requires a NumPy version that ours excludes; for the same samples its writer gives
the same bytes. Records that are taken down are left out, and the order is kept.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.joined import JoinedSplit
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.errors import ExportError
from beam_pipes.export.tables import RECORD, kept_rows, rows_of_files
from beam_pipes.extras import require
from beam_pipes.format import dtypes
from beam_pipes.format.spec import FeatureSpec

# Records per ArrayRecord file or archive, the units that readers spread over hosts and workers.
_RECORDS_OF_A_FILE = 10_000
_GROUP = 1024

# From `megatron.core.datasets.indexed_dataset`.
_MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
_MEGATRON_VERSION = 1
_MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_megatron(cache: Cache, directory: str) -> None:
    """Writes `SPLIT_FEATURE_document.bin` and `.idx` for each feature of whole numbers of shape [None].

    Megatron's `--data-path` takes the path without its suffix. Documents [5, 6, 7] and [8, 9] of int32 → a `.bin` of
    20 bytes, and an `.idx` with the lengths [3, 2], the byte offsets [0, 12] and the documents [0, 1, 2].

    Other features (text, masks of floats) are left out. Raises `ExportError` for splits without such a feature, and
    for uint32 and uint64, which the format does not have.
    """
    for name in cache.splits:
        split = cache[name]
        for feature in _token_features(split):
            prefix = os.path.join(directory, f"{name}_{feature}_document")
            dtype = split.spec[feature].numpy_dtype
            rows, lengths = kept_rows(split), [np.empty(0, np.int64)]
            with open(f"{prefix}.bin", "wb") as data:
                while group := list(itertools.islice(rows, _GROUP)):
                    values, lengths_of_group = split.gather_values(feature, group)
                    data.write(np.ascontiguousarray(values, dtype).tobytes())
                    lengths.append(lengths_of_group)
            with open(f"{prefix}.idx", "wb") as index:
                _write_megatron_index(index, np.concatenate(lengths), dtype)


def _write_megatron_index(index: BinaryIO, lengths: npt.NDArray[np.int64], dtype: np.dtype[np.generic]) -> None:
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    index.write(_MEGATRON_MAGIC)
    index.write(np.array([_MEGATRON_VERSION], "<u8").tobytes())
    index.write(np.array([_MEGATRON_CODES[dtype.name]], "<u1").tobytes())
    index.write(np.array([len(lengths), len(lengths) + 1], "<u8").tobytes())
    index.write(lengths.astype("<i4").tobytes())
    index.write(pointers.astype("<i8").tobytes())
    index.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())


def _token_features(split: Split) -> list[str]:
    spec = split.spec if split.kind == "example" else {}
    found = [name for name, feature in spec.items() if feature.shape == (None,) and feature.dtype in dtypes.INTEGERS]
    for name in found:
        if spec[name].dtype not in _MEGATRON_CODES:
            raise ExportError(
                f"feature {name!r} of split {split.name!r} is {spec[name].dtype}, and Megatron's files hold "
                f"{', '.join(_MEGATRON_CODES)}. Declare it as int32, or int64 for ids from 2**31 on."
            )
    if not found:
        found_instead = ", ".join(f"{name} ({feature.dtype})" for name, feature in spec.items())
        raise ExportError(
            f"split {split.name!r} has no token ids to export: expected a feature of whole numbers of shape [None], "
            f"found {found_instead or f'{split.kind} records'}. Export it as parquet or webdataset."
        )
    return found


class _ArrayRecordWriter(Protocol):
    def write(self, record: bytes) -> object: ...
    def close(self) -> None: ...


def write_arrayrecord(cache: Cache, directory: str) -> None:
    """Writes `SPLIT-00000-of-00002.array_record`, of 10,000 records each, as the cache stores them.

    One record to a chunk (`group_size:1`), so that reading one at random decompresses no other.
    """
    module = require("array_record.python.array_record_module", purpose="export to ArrayRecord")
    for name in cache.splits:
        split = cache[name]
        if isinstance(split, JoinedSplit):
            raise ExportError(
                f"arrayrecord holds the stored records, without the columns {', '.join(split.beside)} of split "
                f"{name!r}. Export as parquet or webdataset, or without columns."
            )
        for number, num_files, rows in rows_of_files(split, _RECORDS_OF_A_FILE):
            path = os.path.join(directory, f"{name}-{number:05d}-of-{num_files:05d}.array_record")
            try:
                writer: _ArrayRecordWriter = module.ArrayRecordWriter(path, "group_size:1")
                with contextlib.closing(writer):
                    for row in rows:
                        writer.write(split.record_bytes(row))
            except (RuntimeError, ValueError) as error:  # what a status of its C++ becomes
                raise OSError(str(error).partition(";")[0]) from error


def write_webdataset(cache: Cache, directory: str) -> None:
    """Writes `SPLIT-000000.tar`, … of 10,000 samples each; a sample's key is the number of its record.

    | feature | member | decoded by `WebDataset(…).decode()` to |
    | --- | --- | --- |
    | text | `KEY.NAME.txt` | str |
    | bytes | `KEY.NAME` | bytes; an image by `.decode("rgb8")`, if the feature is called `jpg` or `png` |
    | whole number or bool | `KEY.NAME.cls` | int |
    | list of texts | `KEY.NAME.json` | list |
    | any other | `KEY.NAME.npy` | array; bfloat16 as float32, which holds it exactly |

    Records that are not examples have one member, `KEY.record`. Raises `ExportError` for lists of bytes.
    """
    tar_writer = require("webdataset", purpose="export to WebDataset").TarWriter
    for name in cache.splits:
        split = cache[name]
        for number, _, rows in rows_of_files(split, _RECORDS_OF_A_FILE):
            with (
                open(os.path.join(directory, f"{name}-{number:06d}.tar"), "wb") as file,
                # Owner and time are left out of the archive: the same cache gives the same bytes.
                tar_writer(file, encoder=False, mtime=0, user="", group="") as archive,
            ):
                for row in rows:
                    archive.write({"__key__": f"{row:012d}", **dict(_members(split, row))})


def _members(split: Split, row: int) -> Iterator[tuple[str, bytes]]:
    if split.kind != "example":
        yield RECORD, split.record_bytes(row)
        return
    example = split[row]
    for name, feature in split.spec.items():
        yield _member(split, name, feature, example[name])


def _member(split: Split, name: str, feature: FeatureSpec, value: object) -> tuple[str, bytes]:
    if isinstance(value, bytes):
        return name, value
    if isinstance(value, str):
        return f"{name}.txt", value.encode()
    if feature.dtype == dtypes.BYTES:
        raise ExportError(
            f"feature {name!r} of split {split.name!r} is a list of bytes, and a member of an archive is one value. "
            "Export it as parquet."
        )
    array = np.asarray(value)
    if feature.dtype == dtypes.STR:
        return f"{name}.json", json.dumps(array.tolist(), ensure_ascii=False).encode()
    if not feature.shape and array.dtype.kind in "iub":
        return f"{name}.cls", str(int(array)).encode()
    if feature.dtype == dtypes.BFLOAT16:
        array = array.astype(np.float32)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return f"{name}.npy", buffer.getvalue()


# Bytes per shard, the default of Streaming's writer. Offsets have 32 bits.
_MDS_SHARD_BYTES = 1 << 26
# Column → its encoding, its size if that is fixed, and the function from a value to bytes.
_MDSColumn = tuple[str, "int | None", Callable[[object], bytes]]


def write_mds(cache: Cache, directory: str) -> None:
    """Writes `SPLIT/shard.00000.mds`, … of at most 64 MiB each, and `SPLIT/index.json`.

    | feature | encoding | read by `StreamingDataset` as |
    | --- | --- | --- |
    | text, bytes | `str`, `bytes` | str, bytes |
    | number, bool | `int32` and so on, `uint8` for a bool | a NumPy scalar |
    | array of numbers | `ndarray:int32:2,3`, or `ndarray:int32` where its shape varies | array |
    | list of texts | `json` | list |

    bfloat16 becomes float32, which holds it exactly. Records that are not examples have one column, `record`. Raises
    `ExportError` for lists of bytes, and for an array without elements, which Streaming's writer refuses too.
    """
    for name in cache.splits:
        split = cache[name]
        columns = _mds_columns(split)
        config = {
            "column_encodings": [column[0] for column in columns.values()],
            "column_names": list(columns),
            "column_sizes": [column[1] for column in columns.values()],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": _MDS_SHARD_BYTES,
            "version": 2,
        }
        header = json.dumps(config, sort_keys=True).encode()
        target = os.path.join(directory, name)
        os.makedirs(target)
        shards = []
        for number, samples in enumerate(_mds_shards(split, columns, 8 + len(header))):
            basename = f"shard.{number:05d}.mds"
            offsets = np.cumsum([4 * (len(samples) + 2) + len(header), *map(len, samples)]).astype("<u4")
            with open(os.path.join(target, basename), "wb") as file:
                file.write(np.array([len(samples)], "<u4").tobytes() + offsets.tobytes() + header)
                file.writelines(samples)
            raw = {"basename": basename, "bytes": int(offsets[-1]), "hashes": {}}
            shards.append({**config, "raw_data": raw, "samples": len(samples), "zip_data": None})
        with open(os.path.join(target, "index.json"), "w", encoding="utf-8") as index:
            json.dump({"shards": shards, "version": 2}, index, sort_keys=True)


def _mds_shards(split: Split, columns: dict[str, _MDSColumn], extra_bytes: int) -> Iterator[list[bytes]]:
    """The samples of each shard."""
    samples: list[bytes] = []
    num_bytes = extra_bytes
    for row in kept_rows(split):
        example = split[row] if split.kind == "example" else {RECORD: split.record_bytes(row)}
        sample = _mds_sample(columns, example, f"record {row} of split {split.name!r}")
        if num_bytes + len(sample) + 4 > _MDS_SHARD_BYTES and samples:
            yield samples
            samples, num_bytes = [], extra_bytes
        samples.append(sample)
        num_bytes += len(sample) + 4
    if samples:
        yield samples


def _mds_sample(columns: dict[str, _MDSColumn], example: Mapping[str, object], where: str) -> bytes:
    sizes, values = [], []
    for name, (encoding, size, encode) in columns.items():
        if encoding.startswith("ndarray") and np.size(np.asarray(example[name])) == 0:
            raise ExportError(
                f"feature {name!r} of {where} has no elements, and MDS holds no empty arrays. Drop such records in a "
                "stage, or export as parquet."
            )
        value = encode(example[name])
        values.append(value)
        if size is None:
            sizes.append(len(value))
    return np.array(sizes, "<u4").tobytes() + b"".join(values)


def _mds_columns(split: Split) -> dict[str, _MDSColumn]:
    """The columns of a split, in the order of their names."""
    if split.kind != "example":
        return {RECORD: ("bytes", None, _as_bytes)}
    return {name: _mds_column(split, name, feature) for name, feature in sorted(split.spec.items())}


def _mds_column(split: Split, name: str, feature: FeatureSpec) -> _MDSColumn:
    if feature.dtype == dtypes.STR:
        return ("json", None, _as_json) if feature.shape else ("str", None, lambda value: str(value).encode())
    if feature.dtype == dtypes.BYTES:
        if feature.shape:
            raise ExportError(
                f"feature {name!r} of split {split.name!r} is a list of bytes, and a column of MDS is one value. "
                "Export it as parquet."
            )
        return "bytes", None, _as_bytes
    dtype = {dtypes.BFLOAT16: "float32", dtypes.BOOL: "uint8"}.get(feature.dtype, feature.dtype)
    stored = np.dtype(dtype).newbyteorder("<")
    if not feature.shape:
        return dtype, stored.itemsize, lambda value: np.asarray(value).astype(stored).tobytes()
    if all(feature.shape):
        fixed = ",".join(map(str, feature.shape))
        size = stored.itemsize * int(np.prod([length or 0 for length in feature.shape]))
        return f"ndarray:{dtype}:{fixed}", size, lambda value: np.asarray(value).astype(stored).tobytes()
    return f"ndarray:{dtype}", None, functools.partial(_shaped, stored=stored)


def _shaped(value: object, stored: np.dtype[np.generic]) -> bytes:
    """An array preceded by its shape: a byte 4 · dimensions + code, then the sizes, each of 1 << code bytes."""
    array = np.asarray(value).astype(stored)
    code = next(code for code in range(4) if max(array.shape) < 1 << (8 << code))
    return bytes([4 * array.ndim + code]) + np.array(array.shape, f"<u{1 << code}").tobytes() + array.tobytes()


def _as_bytes(value: object) -> bytes:
    assert isinstance(value, bytes | memoryview)
    return bytes(value)


def _as_json(value: object) -> bytes:
    return json.dumps(np.asarray(value).tolist()).encode()
