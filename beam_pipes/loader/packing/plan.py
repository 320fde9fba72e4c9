"""The packing plan: which pieces of which records make up each row. A small file beside the cache, or anywhere.

File format, all little-endian:

    8 bytes   magic, "BPPACK" and two digits of format version ("01")
    8 bytes   header length H, uint64
    H bytes   header, UTF-8 JSON: what was packed and how, its totals, digest; dtype, shape, offset of each array
    ...       arrays, each at an offset (counted from the end of the header) that is a multiple of 64
    4 bytes   CRC-32 (zlib) of everything before it
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import CacheNotFoundError, CorruptIndexError, LoaderError, UnsupportedFormatError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.row_source import Identity, MeasuredSplit
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import LocalStagedFile, writing_to

MAGIC = b"BPPACK01"
_ALIGNMENT = 64
_ARRAYS = ("bin_offsets", "records", "starts", "lengths")
# Options with their default values: plans that do not use them leave them out, and so keep the digest that they had.
_LATER: dict[str, Any] = {
    "max_segments": None,
    "segment_multiple": 1,
    "seed": None,
    "reshuffle_each_iteration": False,
    "bos_ids": None,
    "bos_stored": False,
}
_DTYPES = ("|u1", "<u2", "<u4", "<u8")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PackOptions:
    """How records are packed, as `pack` describes it; the same for all epochs of a plan that is repacked."""

    algorithm: str
    overlong: str
    max_segments: int | None = None
    segment_multiple: int = 1
    seed: int | None = None
    reshuffle_each_iteration: bool = False
    bos_ids: Mapping[str, int] | None = None
    bos_stored: bool = False

    def added(self, starts: Array) -> npt.NDArray[np.int64]:
        """How many values precede each piece in its row that its record does not have there, (pieces, 1): 1 for BOS."""
        if self.bos_ids is None:
            return np.zeros((len(starts), 1), np.int64)
        return ((starts[:, :1] > 0) | (not self.bos_stored)).astype(np.int64)

    def taken(self, starts: Array, lengths: Array) -> npt.NDArray[np.int64]:
        """The positions that pieces take in their rows, (pieces, features): with BOS, up to the next multiple."""
        return rounded_up(lengths + self.added(starts), self.segment_multiple)

    @property
    def options(self) -> dict[str, Any]:
        """These options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(PackOptions)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTotals:
    """Tokens of one feature: `tokens_in == tokens_out + truncated_tokens + dropped_tokens`; `added_tokens` are BOS that
    rows have in addition.
    """

    sequence_length: int
    tokens_in: int
    tokens_out: int
    truncated_tokens: int
    dropped_tokens: int
    added_tokens: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PackingPlan(PackOptions):
    """Rows of one split, as arrays: entry e of row r, for e in [bin_offsets[r], bin_offsets[r + 1]), is tokens
    [starts[e, f], starts[e, f] + lengths[e, f]) of feature f of record `records[e]`.

    `source` is the identity of the split that was packed. `len(plan)` is the number of rows, exactly.
    """

    source: Identity
    totals: Mapping[str, FeatureTotals]
    empty_records: int
    dropped_records: int
    lower_bound: int
    bin_offsets: Array
    records: Array
    starts: Array
    lengths: Array
    split: MeasuredSplit | None = None

    def __len__(self) -> int:
        return len(self.bin_offsets) - 1

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={totals.sequence_length}" for name, totals in self.totals.items())
        return (
            f"PackingPlan({sizes}, algorithm={self.algorithm!r}, rows={len(self)}, waste={self.waste:.4%}, "
            f"truncated_tokens={self.truncated_tokens})"
        )

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self.totals)

    @property
    def sequence_lengths(self) -> dict[str, int]:
        return {name: totals.sequence_length for name, totals in self.totals.items()}

    @property
    def most_segments(self) -> int | None:
        """The largest number of segments in any row of any epoch: `max_segments`, or the maximum over the rows.

        None if it differs by epoch, as with concatenated documents in another order.
        """
        if self.max_segments is not None:
            return self.max_segments
        if self.reshuffle_each_iteration and self.algorithm != "best_fit":
            return None
        return int(np.diff(self.bin_offsets.astype(np.int64)).max(initial=0))

    @property
    def waste(self) -> float:
        """The share of padding among all positions of all rows and features."""
        places = sum(totals.sequence_length for totals in self.totals.values()) * len(self)
        tokens = sum(totals.tokens_out + totals.added_tokens for totals in self.totals.values())
        return 1.0 - tokens / places if places else 0.0

    @functools.cached_property
    def distinct_totals(self) -> tuple[FeatureTotals, ...]:
        """The totals, once for features of one length in every record, such as tokens and weights of their loss."""
        totals = tuple(self.totals.values())
        is_one = (self.lengths == self.lengths[:, :1]).all() and len({each.tokens_in for each in totals}) == 1
        return totals[:1] if is_one else totals

    @property
    def truncated_tokens(self) -> int:
        """Tokens that are in the split and in no row, cut off at the end of over-long records; of all features."""
        return sum(totals.truncated_tokens for totals in self.totals.values())

    @property
    def dropped_tokens(self) -> int:
        """Tokens of records left out whole (`overlong="drop"`); of all features."""
        return sum(totals.dropped_tokens for totals in self.totals.values())

    @property
    def digest(self) -> str:
        """32 hexadecimal digits over everything the rows depend on; part of the state of a loader."""
        cached = self.__dict__.get("_digest")
        if cached is None:
            hasher = hashlib.sha256(_dump(self._description()))
            for name in _ARRAYS:
                hasher.update(np.ascontiguousarray(getattr(self, name)).data)
            cached = hasher.hexdigest()[:32]
            object.__setattr__(self, "_digest", cached)
        return str(cached)

    def bind(self, split: MeasuredSplit) -> PackingPlan:
        """The same plan over an open split; raises `LoaderError` if it was made for another one."""
        identity = Identity.of_split(split)
        if identity != self.source:
            raise LoaderError(
                f"this packing plan was made for {self.source}, but the split is {identity}. "
                "Pack the split again, or open the snapshot that was packed.",
                expected=self.source,
                found=identity,
            )
        return dataclasses.replace(self, split=split)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to one file, atomically (a temporary file, flushed to disk, then renamed).

        Raises `OutputError` if it cannot be written.
        """
        target = Path(path).expanduser()
        placed: dict[str, object] = {}
        header = self._description() | {"digest": self.digest, "arrays": placed}
        offset = 0
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}
        for name, array in arrays.items():
            placed[name] = {
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "offset": offset,
            }
            offset += _aligned(array.nbytes)
        head = _dump(header)
        head += b" " * (_aligned(len(head) + 16) - len(head) - 16)
        with writing_to(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(LocalStagedFile(os.fspath(target))) as file:
                crc = 0
                for chunk in (MAGIC, len(head).to_bytes(8, "little"), head, *map(_padded, arrays.values())):
                    file.write(chunk)
                    crc = zlib.crc32(chunk, crc)
                file.write(crc.to_bytes(4, "little"))
                file.commit()

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], split: MeasuredSplit | None = None, *, verify: bool = True
    ) -> PackingPlan:
        """Opens a saved plan, memory-mapped, over `split` if one is given.

        `verify=False` skips the checksum (one pass over the file, about 1 GB/s); the header is checked always.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise CacheNotFoundError(
                f"expected a packing plan at {path}, and there is none; write it with pack(split, …).save(path)",
                path=str(path),
            )
        data = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
        if bytes(data[:6]) != MAGIC[:6]:
            raise CorruptIndexError(
                f"{path} is not a packing plan: it starts with {bytes(data[:8])!r}, not {MAGIC!r}", path=str(path)
            )
        if bytes(data[:8]) != MAGIC:
            raise UnsupportedFormatError(
                f"{path} has packing plan format {bytes(data[6:8])!r}; this library reads {MAGIC[6:]!r}",
                path=str(path),
            )
        try:
            if verify and zlib.crc32(data[:-4].data) != int.from_bytes(data[-4:].tobytes(), "little"):
                raise ValueError("the checksum does not match")
            begin = 16 + int.from_bytes(data[8:16].tobytes(), "little")
            header = json.loads(data[16:begin].tobytes())
            arrays = {name: _view(data, begin, header["arrays"][name]) for name in _ARRAYS}
            plan = cls(
                source=Identity(**header["source"]),
                totals={name: FeatureTotals(**header["totals"][name]) for name in header["features"]},
                empty_records=header["empty_records"],
                dropped_records=header["dropped_records"],
                lower_bound=header["lower_bound"],
                algorithm=header["algorithm"],
                overlong=header["overlong"],
                **{name: header.get(name, unused) for name, unused in _LATER.items()} | arrays,
            )
            if type(plan.reshuffle_each_iteration) is not bool:
                raise ValueError(f"reshuffle_each_iteration is {plan.reshuffle_each_iteration!r:.40}")
            object.__setattr__(plan, "_digest", header["digest"])
            if verify:
                _check_entries(plan)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise CorruptIndexError(
                f"packing plan {path} is damaged: {error}. Delete it and pack the split again.", path=str(path)
            ) from error
        return plan if split is None else plan.bind(split)

    def _description(self) -> dict[str, object]:
        return {
            "source": dataclasses.asdict(self.source),
            "features": list(self.totals),
            "totals": {
                name: {
                    key: value for key, value in dataclasses.asdict(totals).items() if key != "added_tokens" or value
                }
                for name, totals in self.totals.items()
            },
            "empty_records": self.empty_records,
            "dropped_records": self.dropped_records,
            "lower_bound": self.lower_bound,
            **{name: value for name, value in self.options.items() if name not in _LATER or value != _LATER[name]},
        }


def rounded_up(lengths: Array, multiple: int) -> Array:
    """Lengths up to the next multiple: [3, 4, 0] by 4 → [4, 4, 0]."""
    return lengths if multiple == 1 else -(-lengths // multiple) * multiple


def _dump(value: dict[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padded(array: Array) -> bytes:
    raw = array.tobytes()
    return raw + bytes(_aligned(len(raw)) - len(raw))


def _check_entries(plan: PackingPlan) -> None:
    """Raises `ValueError` unless the arrays describe rows of records of the source, within their lengths."""
    features, entries = len(plan.totals), len(plan.records)
    offsets = plan.bin_offsets
    shapes = (offsets.ndim, plan.records.ndim, plan.starts.shape, plan.lengths.shape)
    if shapes != (1, 1, (entries, features), (entries, features)) or not len(offsets) or not features:
        raise ValueError(f"the arrays of {features} features and {entries} entries have other shapes: {shapes}")
    if int(offsets[0]) != 0 or int(offsets[-1]) != entries or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("the rows do not follow each other")
    if not isinstance(plan.source.rows, int) or (entries and int(plan.records.max()) >= plan.source.rows):
        raise ValueError(f"there are entries of records beyond the {plan.source.rows!r:.40} of the split")
    bos = plan.bos_ids
    if bos is not None and ([*bos] != [*plan.totals] or any(type(value) is not int for value in bos.values())):
        raise ValueError(f"bos_ids is {bos!r:.80}")
    for column, (name, totals) in enumerate(plan.totals.items()):
        limit = totals.sequence_length
        if type(limit) is not int or not 0 < limit < 1 << 31:
            raise ValueError(f"sequence_length of {name!r:.80} is {limit!r:.40}")
        if type(plan.segment_multiple) is not int or not 0 < plan.segment_multiple <= limit:
            raise ValueError(f"segment_multiple is {plan.segment_multiple!r:.40}")
        lengths = plan.taken(plan.starts, plan.lengths[:, column : column + 1].astype(np.int64))
        placed = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        taken = placed[offsets[1:].astype(np.int64)] - placed[offsets[:-1].astype(np.int64)]
        if (taken > limit).any() or (taken < 0).any():
            raise ValueError(f"row {int(np.argmax(taken))} holds more than {limit} values of {name!r:.80}")
    most = plan.max_segments
    if most is not None and (type(most) is not int or int(np.diff(offsets.astype(np.int64)).max(initial=0)) > most):
        raise ValueError(f"a row has more segments than max_segments={most!r:.40}")


def _view(data: npt.NDArray[np.uint8], begin: int, where: JsonObject) -> Array:
    if where["dtype"] not in _DTYPES:
        raise ValueError(f"an array should be of one of {', '.join(_DTYPES)}, found {where['dtype']!r:.40}")
    dtype = np.dtype(where["dtype"])
    shape = tuple(where["shape"])
    if any(type(size) is not int or not 0 <= size <= len(data) for size in (*shape, where["offset"])) or len(shape) > 2:
        raise ValueError(f"an array of shape {shape!r:.80} does not fit into {len(data)} bytes")
    first = begin + int(where["offset"])
    last = first + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if last > len(data) - 4:
        raise ValueError(f"an array ends at byte {last}, the file at byte {len(data)}")
    array: Array = data[first:last].view(dtype).reshape(shape)
    return array
