"""Columns of many records: one feature of a batch as arrays, without going through examples.

`DecodedColumns` does the same for records that are messages, which must be parsed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from beam_pipes.cache.regions import ArenaValues, MappedRegion
from beam_pipes.cache.shard_files import RecordAddresses, ShardFiles
from beam_pipes.checks import brief
from beam_pipes.errors import CacheNotFoundError, CorruptRecordError, SpecError
from beam_pipes.format import dtypes
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.decoding import text_value
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_number
from beam_pipes.format.feature_values import restored
from beam_pipes.format.framing import HEADER_BYTES
from beam_pipes.format.layout import MAX_PAYLOAD_BYTES, Field
from beam_pipes.format.message_features import MessageDecoder
from beam_pipes.format.spec import SHAPE_SUFFIX, FeatureSpec, FeatureValue

# From this many bytes per row, copying row by row into the padded batch beats a mask over all of it.
_LONG_ROW_BYTES = 512

_Plan = tuple["int | None", "int | None", "np.dtype", "tuple[int, ...]", "np.dtype"]


PadTo = int | Mapping[str, int | Sequence[int]] | None


def padded_shape(feature: str, spec: FeatureSpec, pad_to: PadTo) -> tuple[int | None, ...]:
    """The shape of every row of a feature; None if the longest row of the batch decides.

        padded_shape("tokens", FeatureSpec("int32", shape=(None,)), 5)                      →  (5,)
        padded_shape("image", FeatureSpec("uint8", shape=(None, None)), None)               →  (None, None)
        padded_shape("image", FeatureSpec("uint8", shape=(None, None)), {"image": (9, 9)})  →  (9, 9)

    A single number is the leading dimension of every feature whose leading dimension varies. Raises `SpecError` if a
    size given by name contradicts a fixed dimension, and for a shape of another rank.
    """
    shape, size = spec.shape, pad_to.get(feature) if isinstance(pad_to, Mapping) else pad_to
    if size is None or (size is pad_to and shape[:1] != (None,)):
        return shape
    wanted = (int(size), *shape[1:]) if isinstance(size, (int, np.integer)) else tuple(map(int, size))
    differs = [known is not None and known != one for known, one in zip(shape, wanted, strict=False)]
    if len(wanted) != len(shape) or any(differs):
        raise SpecError(
            f"feature {feature!r} has the shape {shape} and cannot be padded to {size!r}: only dimensions that vary "
            f"(None) can be, and a tuple has a size for each dimension. Leave {feature!r} out of pad_to.",
            feature=feature,
            expected=shape,
            found=size,
        )
    return wanted


class ColumnReader:
    """Reads features of given records. Everything returned is a copy, except by `view`."""

    def __init__(self, files: ShardFiles, codec: ExampleCodec) -> None:
        self._files = files
        self._codec = codec
        self._fields = {field.name: field for field in codec.fields}
        self._specs = dict(codec.spec)
        self._plans: dict[str, _Plan | None] = {}

    def spec(self, feature: str) -> FeatureSpec:
        """Raises `CacheNotFoundError` if the split has no such feature."""
        found = self._specs.get(feature)
        if found is None:
            raise CacheNotFoundError(
                f"expected one of the features {list(self._codec.spec)}, got {feature!r}", feature=feature
            )
        return found

    def stacked(self, feature: str, places: RecordAddresses) -> Array | None:
        """(n, *shape) if all records have the same shape; None if the shape varies, and for scalar texts."""
        plan = self._plan(feature)
        if plan is None:
            return None
        start, row_bytes, storage, shape, declared = plan
        if row_bytes is None:
            return self.runs(feature, places)[0].reshape(len(places), *shape)
        if row_bytes == 0 or not len(places):
            return np.empty((len(places), *shape), declared)
        addresses = self._stacked_addresses(feature, places, start, row_bytes)
        made = self._files.data.rows(addresses, row_bytes).view(storage).reshape(len(places), *shape)
        return made if storage is declared else restored(feature, self._specs[feature], made)

    def located(self, feature: str, places: RecordAddresses) -> ArenaValues | None:
        """Where the values that `stacked` or `runs` copies are; None if they are returned in another form."""
        region = self._files.data
        if not isinstance(region, MappedRegion):
            return None
        if self.spec(feature).ragged:
            return self._located_runs(feature, places, region)
        plan = self._plan(feature)
        if plan is None:
            return None
        start, row_bytes, storage, shape, declared = plan
        if not row_bytes or storage is not declared:
            return None
        addresses = self._stacked_addresses(feature, places, start, row_bytes)
        return ArenaValues(addresses, row_bytes, storage, shape, (region,))

    def _located_runs(self, feature: str, places: RecordAddresses, region: MappedRegion) -> ArenaValues | None:
        spec, field = self.spec(feature), self._fields[feature]
        if spec.is_text or spec.has_shape_feature or not field.direct:
            return None
        storage = dtypes.numpy_dtype(field.dtype)
        if storage != spec.numpy_dtype:
            return None
        shape = self._known(spec)[1:]
        row_bytes = storage.itemsize * math.prod(shape)
        lengths, addresses = self.lengths(feature, places), self._addresses(field, places)
        self._files.check_inside(places, addresses, lengths * row_bytes, alignment=storage.itemsize)
        return ArenaValues(addresses, row_bytes, storage, shape, (region,), lengths)

    def _stacked_addresses(self, feature: str, places: RecordAddresses, start: int | None, row_bytes: int) -> Array:
        addresses: Array = places.payloads + (
            start if start is not None else self._files.column(f"start/{feature}", places)
        )
        self._files.check_inside(places, addresses, row_bytes)
        return addresses

    def _plan(self, feature: str) -> _Plan | None:
        try:
            return self._plans[feature]
        except KeyError:
            return self._plans.setdefault(feature, self._new_plan(feature))

    def _new_plan(self, feature: str) -> _Plan | None:
        """Constant start in the payload, bytes, stored dtype, shape and declared dtype of a feature that stacks."""
        spec, field, layout = self.spec(feature), self._fields[feature], self._files.layout
        declared = spec.numpy_dtype
        if (spec.is_text and not spec.shape) or (spec.ragged and layout is None):
            return None
        if not field.direct:
            return None, None, declared, self._known(spec), declared
        storage = dtypes.numpy_dtype(field.dtype)
        if layout is None:
            return self._codec.constant_starts.get(feature), field.num_bytes, storage, self._known(spec), declared
        start, num_bytes = layout.fields[feature]
        shape = self._known(spec)
        if spec.ragged:
            shape = (num_bytes // field.row_bytes, *shape[1:])
        return start, num_bytes, storage, shape, declared

    def _addresses(self, field: Field, places: RecordAddresses) -> Array:
        """Where the bytes of a direct field start, for each record."""
        layout = self._files.layout
        if layout is not None:
            return places.payloads + layout.fields[field.name][0]
        start = self._codec.constant_starts.get(field.name)
        return places.payloads + (self._files.column(f"start/{field.name}", places) if start is None else start)

    def lengths(self, feature: str, places: RecordAddresses) -> Array:
        """(n,) int64: the leading dimension of each record; for a text, its bytes."""
        spec, field = self.spec(feature), self._fields[feature]
        if not spec.ragged and not field.kind == "text":
            if not spec.shape:
                raise SpecError("expected a feature with a leading dimension, got a scalar").about("feature", feature)
            return np.full(len(places), spec.shape[0], np.int64)
        if self._files.layout is not None:
            return np.full(len(places), self._files.layout.fields[feature][1] // field.row_bytes, np.int64)
        return self._files.column(f"length/{feature}", places)

    def all_lengths(self, feature: str) -> Array:
        """`lengths` of every record of the split."""
        spec = self.spec(feature)
        if self._files.layout is None and (spec.ragged or spec.is_text and not spec.shape):
            return self._files.whole_column(f"length/{feature}").astype(np.int64)
        one = self.lengths(feature, self._files.place([0] if self._files.num_records else []))
        return np.repeat(one, self._files.num_records) if len(one) else one

    def shapes(self, feature: str, places: RecordAddresses) -> Array:
        """(n, rank) int64: the shapes of a feature that varies in more than its leading dimension."""
        field = self._fields[feature + SHAPE_SUFFIX]
        rank = len(self.spec(feature).shape)
        addresses = self._addresses(field, places)
        self._files.check_inside(places, addresses, 8 * rank)
        made = self._files.data.rows(addresses, 8 * rank).view("<i8").reshape(len(places), rank)
        wrong = (made < 0).any(axis=1) | (made.astype(np.float64).prod(axis=1) > MAX_PAYLOAD_BYTES)
        wrong |= (made > MAX_PAYLOAD_BYTES).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            path = self._files.path(int(places.shards[row]))
            raise CorruptRecordError(
                f"{path}: feature {feature!r} of record {int(places.indices[row])} has the shape {made[row].tolist()}, "
                "which no record can have. Its bytes have changed; rebuild or copy the cache again.",
                path=path,
                feature=feature,
            )
        return made

    def runs(self, feature: str, places: RecordAddresses) -> tuple[Array, Array]:
        """The values of all records one after the other, and the leading dimension of each.

        Values are (sum of lengths, *rest); one-dimensional where the rest varies too; the bytes (uint8) of a text.
        """
        spec, field = self.spec(feature), self._fields[feature]
        if not field.direct:
            return self._parsed_runs(feature, places)
        even = self.stacked(feature, places) if spec.ragged else None
        if even is not None:
            return even.reshape(-1, *even.shape[2:]), np.full(len(even), even.shape[1], np.int64)
        rest: tuple[int, ...] = ()
        if spec.has_shape_feature:
            shapes = self.shapes(feature, places)
            lengths, counts = shapes[:, 0], shapes.prod(axis=1)
        else:
            lengths = self.lengths(feature, places)
            rest = () if field.kind == "text" else self._known(spec)[1:]
            counts = lengths * math.prod(rest)
        storage = np.dtype(np.uint8) if field.kind == "text" else dtypes.numpy_dtype(field.dtype)
        addresses = self._addresses(field, places)
        self._files.check_inside(places, addresses, counts * storage.itemsize, alignment=storage.itemsize)
        values = self._files.data.runs(addresses, counts, storage)
        if rest:
            values = values.reshape(-1, *rest)
        return values if field.kind == "text" else restored(feature, spec, values, copy=False), lengths

    def entries(self, feature: str, places: RecordAddresses, starts: Array, count: int) -> Array:
        """(n, k, count, *rest): of record i, `count` entries of the leading dimension from each of `starts[i]` on.

        `starts` is (n, k). Only these bytes are read, unless the feature has to be parsed. Raises `SpecError` for
        entries outside of a record.
        """
        spec, field = self.spec(feature), self._fields[feature]
        if not field.direct:
            return self._parsed_entries(feature, places, starts, count)
        lengths, rest, storage = self.lengths(feature, places), self._known(spec)[1:], dtypes.numpy_dtype(field.dtype)
        self._check_entries(feature, places, lengths, starts, count)
        entry_bytes = storage.itemsize * math.prod(rest)
        shape = (*starts.shape, count, *rest)
        if not math.prod(shape):
            return np.empty(shape, spec.numpy_dtype)
        addresses = self._addresses(field, places)
        self._files.check_inside(places, addresses, lengths * entry_bytes)
        wanted = (addresses[:, None] + starts * entry_bytes).reshape(-1)
        made = self._files.data.rows(wanted, count * entry_bytes).view(storage).reshape(shape)
        return made if storage == spec.numpy_dtype else restored(feature, spec, made)

    def _parsed_entries(self, feature: str, places: RecordAddresses, starts: Array, count: int) -> Array:
        values, lengths = self.runs(feature, places)
        self._check_entries(feature, places, lengths, starts, count)
        first = (np.cumsum(lengths) - lengths)[:, None] + starts
        made: Array = values[first[..., None] + np.arange(count)]
        return made

    def _check_entries(self, feature: str, places: RecordAddresses, lengths: Array, starts: Array, count: int) -> None:
        outside = (starts < 0) | (starts + count > lengths[:, None])
        if outside.any():
            row, column = np.argwhere(outside)[0].tolist()
            raise SpecError(
                f"feature {feature!r} of record {int(places.indices[row])} has {int(lengths[row])} entries; expected "
                f"entries inside of it, got {count} from entry {int(starts[row, column])} on",
                feature=feature,
            )

    def texts(self, feature: str, places: RecordAddresses) -> Array:
        """(n,) objects: the bytes or str of a scalar text feature."""
        spec = self.spec(feature)
        values, lengths = self.runs(feature, places)
        data = values.tobytes()
        made = np.empty(len(lengths), object)
        end = 0
        for row, length in enumerate(lengths.tolist()):
            start, end = end, end + length
            made[row] = text_value(feature, spec, data[start:end])
        return made

    def padded(self, feature: str, places: RecordAddresses, *, box: Sequence[int | None], value: object) -> Array:
        """(n, *box), where None means the longest; short records are filled up with `value`."""
        spec = self.spec(feature)
        if spec.has_shape_feature:
            return self._padded_boxes(feature, places, box=box, value=value)
        even = self.stacked(feature, places)
        if even is not None and box[0] in (None, even.shape[1]):
            return even
        values, lengths = self.runs(feature, places)
        longest = int(lengths.max(initial=0))
        width = longest if box[0] is None else box[0]
        if longest > width:
            raise self._too_long(feature, width, longest)
        made = np.full((len(lengths), width, *values.shape[1:]), self._fill(feature, value), values.dtype)
        if values.nbytes >= _LONG_ROW_BYTES * len(lengths) and values.dtype != object:
            end = 0
            for row, length in enumerate(lengths.tolist()):
                start, end = end, end + length
                made[row, :length] = values[start:end]
        else:
            made[np.arange(width) < lengths[:, None]] = values
        return made

    def _too_long(self, feature: str, width: int, longest: int, axis: int = 0) -> SpecError:
        where = f" along dimension {axis}" if axis else ""
        return SpecError(
            f"feature {feature!r}: expected at most pad_to={width} elements{where}, got a record with {longest}. Trim "
            "it first, or raise pad_to.",
            feature=feature,
            expected=width,
            found=longest,
        )

    def view(self, feature: str, shard: int) -> Array:
        """(records of the shard, *shape) over the file itself, in the stored dtype; needs a layout."""
        spec, field, layout = self.spec(feature), self._fields[feature], self._files.layout
        assert layout is not None
        offset, num_bytes = layout.fields[feature]
        storage = np.dtype(np.uint8) if field.kind == "text" else dtypes.numpy_dtype(field.dtype)
        shape = (num_bytes // field.row_bytes, *self._known(spec)[1:]) if field.num_bytes is None else self._known(spec)
        strides = tuple(storage.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        records = int(self._files.shard_sizes[shard])
        if records == 0:
            return np.empty((0, *shape), storage)
        made: Array = np.ndarray(
            shape=(records, *shape),
            dtype=storage,
            buffer=self._files.data.file(shard),
            offset=HEADER_BYTES + offset,
            strides=(layout.stride, *strides),
        )
        return made

    def run(self, feature: str, first: int, last: int, rows: Array | None) -> Array:
        """A scalar feature of records `first` to `last` - 1, or of `rows[first:last]`, as it is stored.

        Numbers in mapped files of one layout need no lookup of each record: 15 ns instead of 65.
        """
        files = self._files
        if rows is not None or files.layout is None or not files.is_mapped or self._fields[feature].kind == "text":
            places = files.place(np.arange(first, last) if rows is None else rows[first:last])
            stacked = self.stacked(feature, places)
            return self.texts(feature, places) if stacked is None else stacked
        bounds = np.append(files.begins, files.num_records)
        shards = np.flatnonzero((bounds[:-1] < last) & (bounds[1:] > first))
        files.data.prepare(shards)
        parts = [
            self.view(feature, shard)[max(0, first - begin) : last - begin]
            for shard, begin in zip(shards.tolist(), bounds[shards].tolist(), strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty(0, self.spec(feature).numpy_dtype)

    def _padded_boxes(
        self, feature: str, places: RecordAddresses, *, box: Sequence[int | None], value: object
    ) -> Array:
        values, _ = self.runs(feature, places)
        shapes = self.shapes(feature, places)
        longest = shapes.max(axis=0, initial=0).tolist()
        for axis, (found, wanted) in enumerate(zip(longest, box, strict=True)):
            if wanted is not None and found > wanted:
                raise self._too_long(feature, wanted, found, axis)
        sizes: list[int] = [found if wanted is None else wanted for found, wanted in zip(longest, box, strict=True)]
        fill = self._fill(feature, value)
        try:
            made = np.full((len(shapes), *sizes), fill, values.dtype)
        except (MemoryError, ValueError) as error:
            raise SpecError(
                f"{len(shapes)} records padded to a common shape of {sizes} do not fit into memory. Take fewer at a "
                "time, or ragged='values'."
            ).about("feature", feature) from error
        end = 0
        for row, shape in enumerate(shapes.tolist()):
            start, end = end, end + math.prod(shape)
            box_of_row: tuple[int | slice, ...] = tuple([row, *(slice(extent) for extent in shape)])
            made[box_of_row] = values[start:end].reshape(shape)
        return made

    def _fill(self, feature: str, value: object) -> object:
        """The padding value in the feature's dtype: a float is rounded to one, all else exact (−1 in uint8 is 255)."""
        spec = self.spec(feature)
        if spec.is_text:
            empty: bytes | str = b"" if spec.dtype == dtypes.BYTES else ""
            return value if isinstance(value, type(empty)) else empty
        try:
            return exact_number(value, spec.numpy_dtype)
        except (NotExactError, NotNumbersError):
            raise SpecError(
                f"expected a pad_value that is exact in {spec.dtype}, got {brief(value)}. Choose a number that it "
                "holds."
            ).about("feature", feature, expected=spec.dtype, found=value) from None

    def _known(self, spec: FeatureSpec) -> tuple[int, ...]:
        """The shape, with 0 for each dimension that varies."""
        return tuple(size or 0 for size in spec.shape)

    def _parsed_runs(self, feature: str, places: RecordAddresses) -> tuple[Array, Array]:
        parsed = [np.asarray(self._codec.decode(payload)[feature]) for payload in self._files.chosen_payloads(places)]
        spec = self.spec(feature)
        lengths = np.array([len(value) if spec.shape else 1 for value in parsed], np.int64)
        if not parsed:
            rest = () if spec.has_shape_feature else self._known(spec)[1:]
            return np.empty((0, *rest), spec.numpy_dtype), lengths
        if spec.has_shape_feature:
            return np.concatenate([value.reshape(-1) for value in parsed]), lengths
        return np.concatenate([value if spec.shape else value[None] for value in parsed]), lengths


# Number of records decoded at once to find the lengths of all.
_DECODED_AT_ONCE = 1024


class DecodedColumns(ColumnReader):
    """Features of records from which a `MessageDecoder` makes examples; the latest ones are kept, per thread.

    A batch asks for its lengths and for each of its features, but its records are parsed only once.
    """

    def __init__(self, files: ShardFiles, decoder: MessageDecoder, message_of: Callable[[bytes], object]) -> None:
        self._files = files
        self._decoder = decoder
        self._message_of = message_of
        self._specs = dict(decoder.spec)
        self._latest = threading.local()
        self._lengths: dict[str, Array] = {}

    def spec(self, feature: str) -> FeatureSpec:
        found = self._specs.get(feature)
        if found is None:
            raise CacheNotFoundError(
                f"expected one of the features {list(self._specs)}, got {feature!r}", feature=feature
            )
        return found

    def _values(self, feature: str, places: RecordAddresses) -> list[FeatureValue]:
        self.spec(feature)
        known: dict[int, dict[str, object]] = getattr(self._latest, "examples", {})
        indices = places.indices.tolist()
        missing = [index for index in dict.fromkeys(indices) if index not in known]
        if missing:
            payloads = self._files.chosen_payloads(self._files.place(np.asarray(missing, np.int64)))
            made = {
                index: self._decoder.decode(payload, self._message_of)
                for index, payload in zip(missing, payloads, strict=True)
            }
            known = {index: made[index] if index in made else known[index] for index in indices}
            self._latest.examples = known
        return [known[index][feature] for index in indices]

    def located(self, feature: str, places: RecordAddresses) -> None:
        return None

    def stacked(self, feature: str, places: RecordAddresses) -> Array | None:
        spec = self.spec(feature)
        if spec.ragged or (spec.is_text and not spec.shape):
            return None
        values = self._values(feature, places)
        made = np.empty((len(places), *self._known(spec)), spec.numpy_dtype)
        for row, value in enumerate(values):
            made[row] = value
        return made

    def lengths(self, feature: str, places: RecordAddresses) -> Array:
        spec = self.spec(feature)
        if not spec.shape and not spec.is_text:
            raise SpecError("expected a feature with a leading dimension, got a scalar").about("feature", feature)
        if (known := self._known_lengths(feature)) is not None:
            found: Array = known[places.indices]
            return found
        values = self._values(feature, places)
        if spec.dtype == dtypes.STR and not spec.shape:
            values = [value.encode() for value in values]
        return np.fromiter(map(len, values), np.int64, len(values))

    def _known_lengths(self, feature: str) -> Array | None:
        known: Callable[[str], Array | None] | None = getattr(self._decoder, "known_lengths", None)
        return None if known is None else known(feature)

    def all_lengths(self, feature: str) -> Array:
        """`lengths` of every record of the split: all of them are parsed, once, unless the decoder knows them."""
        if feature not in self._lengths and (known := self._known_lengths(feature)) is not None:
            self._lengths[feature] = known
        if feature not in self._lengths:
            total = self._files.num_records
            parts = [
                self.lengths(feature, self._files.place(np.arange(begin, min(begin + _DECODED_AT_ONCE, total))))
                for begin in range(0, total, _DECODED_AT_ONCE)
            ]
            self._lengths[feature] = np.concatenate([np.empty(0, np.int64), *parts])
        lengths: Array = self._lengths[feature].copy()
        return lengths

    def shapes(self, feature: str, places: RecordAddresses) -> Array:
        values = self._values(feature, places)
        rank = len(self.spec(feature).shape)
        return np.array([np.shape(value) for value in values], np.int64).reshape(len(values), rank)

    def runs(self, feature: str, places: RecordAddresses) -> tuple[Array, Array]:
        spec = self.spec(feature)
        values = self._values(feature, places)
        if spec.is_text and not spec.shape:
            data = [value.encode() if spec.dtype == dtypes.STR else value for value in values]
            return np.frombuffer(b"".join(data), np.uint8), np.fromiter(map(len, data), np.int64, len(data))
        lengths = np.fromiter((len(value) if spec.shape else 1 for value in values), np.int64, len(values))
        rest = () if spec.has_shape_feature else self._known(spec)[1:]
        flat = [np.asarray(value, spec.numpy_dtype).reshape(-1, *rest) for value in values]
        return np.concatenate([np.empty((0, *rest), spec.numpy_dtype), *flat]), lengths

    def texts(self, feature: str, places: RecordAddresses) -> Array:
        made = np.empty(len(places), object)
        made[:] = self._values(feature, places)
        return made

    def entries(self, feature: str, places: RecordAddresses, starts: Array, count: int) -> Array:
        return self._parsed_entries(feature, places, starts, count)
