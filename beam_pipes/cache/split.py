"""`Split`: random access to the records of one split of a cache, or to chosen ones of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from google.protobuf.message import Message

from beam_pipes.cache.columns import ColumnReader, DecodedColumns, PadTo, padded_shape
from beam_pipes.cache.conditions import Condition
from beam_pipes.cache.filtered import (
    Choice,
    FindRows,
    checked_indices,
    narrowed,
    positions_of,
    rows_of_older,
    rows_since,
    rows_where,
)
from beam_pipes.cache.local_copies import LocalCopies, ShardStore, reopened_snapshot, store_for
from beam_pipes.cache.regions import ArenaValues
from beam_pipes.cache.shard_files import RecordAddresses, ShardFiles
from beam_pipes.errors import CacheError, RecordRemovedError, SpecError
from beam_pipes.format.codec import ExampleCodec, RecordCodec, codec_of_records
from beam_pipes.format.dtypes import Array
from beam_pipes.format.index import ORDINAL
from beam_pipes.format.message_features import MessageDecoder, message_decoder
from beam_pipes.format.spec import ExampleSpec, FeatureSpec, Record
from beam_pipes.lineage.reader import Lineage
from beam_pipes.lineage.takedown import RemovedRows, is_removed, stand_in_key, stand_ins
from beam_pipes.publication.manifest import Manifest
from beam_pipes.publication.publish import OlderShards, manifest_with_id, shards_of_older, snapshot_directory
from beam_pipes.publication.terms import Terms
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage


class Split:
    """The records of a split as a sequence: by index, in batches, or in stored order.

        split = Cache.open("demo")["train"]
        split[7]                    →  {"tokens": array([...], dtype=int32), ...}
        split.gather([7, 2, 7])     →  {"tokens": array of shape (3, longest), ...}

    Files are memory-mapped when they are first needed. Everything returned is a copy, except by `views`. Thread-safe;
    safe to fork; a pickled split re-opens the same snapshot, or raises `StaleCacheError` if it has changed.

    Single records (`[]`, `record_bytes`, iteration) are checked against their checksums as they are read. `gather` is
    not, for speed: `Cache.open(path, verify=True)` or `Cache.verify()` checks everything once.

    The shards of a cache on an object store are copied to a bounded local directory when they are first needed, their
    checksums checked on the way; see `Cache.open`.

    `where`, `as_of` and `since` give a split of chosen records over the same files, numbered from 0 on, in stored
    order. A stand-in for one of them that is taken down is chosen, too.
    """

    #: Which records of the files these are; None for all of them.
    choice: Choice | None = None

    #: Whether a loader follows a state to the older snapshot it names: only if it was given a path, not a snapshot.
    follows_states = False

    def __init__(
        self,
        root: str,
        directory: str,
        manifest: Manifest,
        name: str,
        proto: type[Message] | None = None,
        takedowns: RemovedRows | None = None,
        *,
        storage: Storage | None = None,
        store: ShardStore | None = None,
        decode: MessageDecoder | None = None,
        mmap: bool = True,
    ) -> None:
        self._root = root
        self._mmap = mmap
        self._directory = directory
        self._manifest = manifest
        self.snapshot = manifest.snapshot  # its id
        self._proto = proto
        self.name = name
        self._shards = manifest.splits[name]
        self._codec: RecordCodec = codec_of_records(
            self._shards.kind,
            spec=self._shards.spec,
            full_name=self._shards.proto,
            proto=proto,
            where=f"{root}, split {name!r}",
        )
        self._storage = storage_for(root) if storage is None else storage
        self._store = store_for(directory, storage=self._storage) if store is None else store
        self._copies: LocalCopies | None = None
        if self._store is not None:
            self._copies = LocalCopies(self._store, directory, manifest.id[:16], manifest.name, name, self._shards)
        self._files = ShardFiles(
            directory, manifest.name, name, self._shards, self._codec, self._copies, mmap=mmap, storage=self._storage
        )
        self._takedowns = takedowns
        self._decode = decode

    def __len__(self) -> int:
        return self._files.num_records if self.choice is None else len(self.choice.rows)

    def __getitem__(self, index: int | slice) -> Record:
        """One record, decoded: an example as a dict of arrays, NumPy scalars, bytes and str; a message; or bytes.

        A slice gives a list of them. Raises `ExampleIndexError` for an index outside the split, `CorruptRecordError` if
        the record's bytes have changed.
        """
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return self._decoded_record(self._payload(index))

    def __iter__(self) -> Iterator[Record]:
        """All records, decoded, in stored order; read as a stream."""
        if self.choice is not None or len(self.removed_rows):
            return (self[index] for index in range(len(self)))
        return map(self._decoded_record, self._files.payloads())

    def __repr__(self) -> str:
        if self.choice is not None:
            return f"<{len(self)} records of {self.whole!r} {self.choice.in_words}>"
        shards = "shard" if self.num_shards == 1 else "shards"
        return f"<Split {self.name!r} of {self._root!r}: {len(self)} records in {self.num_shards} {shards}>"

    def __reduce__(self) -> tuple[object, ...]:
        return reopen_split, (self._manifest.snapshot, self._manifest.id, *self._how_opened, self.choice)

    @property
    def _how_opened(self) -> tuple[str, str, type[Message] | None, tuple[str, int] | None, MessageDecoder | None, bool]:
        place = None if self._store is None else self._store.place
        return self._root, self.name, self._proto, place, self._decode, self._mmap

    def in_snapshot(self, snapshot: str, manifest_id: str) -> Split:
        """All records of this split in another snapshot, opened in the same way."""
        return reopen_split(snapshot, manifest_id, *self._how_opened)

    def _decoded_record(self, payload: bytes) -> Record:
        return self._codec.decode(payload) if self._decode is None else self._decode.decode(payload, self._codec.decode)

    def decoded(self, decode: MessageDecoder | Mapping[str, FeatureSpec]) -> Split:
        """This split with its messages read as examples: what `Loader(…, decode=…)` loads, for `pack` and `Mixture`.

            melodies = Cache.open("melodies")["training_melodies"]  # SequenceExamples
            split = melodies.decoded({"inputs": FeatureSpec("float32", shape=(None, 38)), …})
            split[0]  →  {"inputs": array of shape (steps, 38), …}

        `decode`: feature name → `FeatureSpec` for Examples, and for the feature lists of SequenceExamples;
        `SequenceFeatures` where there is a context too; `MessageFeatures` for anything else. Example and
        SequenceExample are parsed without TensorFlow, whichever library's class was written. Records are parsed when
        they are read; nothing is stored.

        Raises `SpecError` if the records are examples already, or other messages than `decode` reads.
        """
        where = f"split {self.name!r} of {self._root!r}"
        if self.kind == "example" or self._decode is not None:
            raise SpecError(f"{where} holds examples, which need no decode. Leave it out; features=[…] chooses some.")
        decoder = message_decoder(decode).of_records(self.kind, self._shards.proto, where=where)
        return self._copy(_decode=decoder)

    def _copy(self, **changes: object) -> Split:
        """The same split with other attributes."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        for computed in ("_columns", "_names", "_stand_in_key"):
            made.__dict__.pop(computed, None)
        made.__dict__.update(changes)
        return made

    @property
    def whole(self) -> Split:
        """The split with all records of its files."""
        return self if self.choice is None else self._copy(choice=None)

    def where(self, condition: str) -> Split:
        """The records that meet a condition on their features, as a split of its own; nothing is copied.

            split.where("score > 0.8 and lang in ('en', 'de') and len(tokens) >= 16")
            split.where("`text/lang` == 'en' and not duplicate")    # a name that is not Python's; a feature of bool

        A condition compares scalar features, and `len(…)` of others, with numbers and texts: `==`, `!=`, `<`, `<=`,
        `>`, `>=`, `in`, `not in`, chained as in Python, joined by `and`, `or`, `not`. It is parsed and checked here
        and never run as Python. Only the columns that it names are read, once. Numbers compare as in Python, but a
        float beside float32 or float16 is rounded to that first; `len` of a str counts characters. `license`, `origin`,
        `collected` and `terms` are what sources declare ("" for none), unless a feature has the name.

        The result can be used wherever a split can: `Loader`, `pack`, `Mixture`. A state that was saved over it is
        refused over other records. Records that are taken down are judged by their stored values.

        Raises `SpecError` for anything other than such a condition, and for features that the split does not have.
        """
        by_shard, chosen = self._manifest.declared_by_shard(self.name), self.choice
        has_features = self.kind == "example" or self._decode is not None or not by_shard
        parsed = Condition(condition, ExampleSpec(self.spec if has_features else {}), by_shard)
        records = len(self) if chosen is None else chosen.rows
        rows = rows_where(parsed, lambda: self._columns, records, self._files.place)
        made = self._copy(choice=narrowed(chosen, rows, self._files.num_records, condition))
        return made if chosen is None or chosen.older is None else made._as_of(chosen.older)

    def terms_of(self, index: int) -> Terms:
        """The license and origin that the source of a record declares."""
        return self._manifest.terms_of(self._shards.numbers[self._place_one(index)[0]])

    def as_of(self, older: Split | str) -> Split:
        """The records that this split had in an older snapshot, to which files were added since; read from this one.

            split.as_of(state.source["manifest"])    # or a split of the older snapshot

        They have the same numbers, order and identity as there: states and packing plans of the older snapshot fit,
        even if it was removed (`build --keep`). Takes 4 bytes per record.

        Raises `StaleCacheError`, naming the shard, if a shard of the older snapshot has changed or is gone, and
        `CacheNotFoundError` if no snapshot of this cache has or had such a manifest.
        """
        return self._as_of(self._shards_of(older))

    def since(self, older: Split | str) -> Split:
        """The records that were added since an older snapshot, as a split of its own: what `as_of` leaves.

            Mixture([(split.as_of(older), 3), (split.since(older), 1)])

        Raises what `as_of` raises.
        """
        shards = self._shards_of(older)
        return self._part(f"added since manifest {shards.manifest_id[:16]}", rows_since, shards)

    def _as_of(self, shards: OlderShards) -> Split:
        return self._part(f"as of manifest {shards.manifest_id[:16]}", rows_of_older, shards)

    def _part(self, part: str, find: FindRows, shards: OlderShards) -> Split:
        chosen, condition = (None, "") if self.choice is None else (self.choice.rows, self.choice.condition)
        rows, stored = find(chosen, self._bounds, shards)
        total = self._files.num_records
        return self._copy(choice=Choice(rows=rows, total=total, condition=condition, part=part, stored=stored))

    def _shards_of(self, older: Split | str) -> OlderShards:
        if isinstance(older, str):
            manifest = manifest_with_id(self._root, older.partition("?")[0], storage=self._storage)
        else:
            manifest = older._manifest
        return shards_of_older(manifest, self._manifest, self.name, path=self._root, storage=self._storage)

    @property
    def _bounds(self) -> Array:
        """(num_shards + 1,) int64: the first record of each shard, then the number of all records."""
        return np.append(self._files.begins, self._files.num_records)

    def stay_for_states(self) -> None:
        """Keeps the lease on this snapshot for its time if this process ends: a state names the snapshot."""
        if (lease := self._files.lease()) is not None:
            lease.stay()

    @property
    def path(self) -> str:
        """The directory of the cache."""
        return str(self._root)

    @property
    def manifest_id(self) -> str:
        """The id of the manifest, with a digest of chosen records: names the data exactly."""
        return self._manifest.id if self.choice is None else self.choice.manifest_id(self._manifest.id)

    @property
    def kind(self) -> str:
        """ "example", "proto" or "bytes"."""
        return self._shards.kind

    @property
    def spec(self) -> ExampleSpec:
        """The features. Raises `CacheError` if records are not examples, nor `decoded` to be."""
        return self._examples().spec if self._decode is None else self._decode.spec

    @property
    def proto(self) -> type[Message] | None:
        """The message class of the records, or None if they are no protos."""
        return getattr(self._codec, "proto", None)

    @property
    def fixed(self) -> bool:
        """Whether all records are laid out alike, so that reading is arithmetic."""
        return self._files.layout is not None

    @property
    def num_bytes(self) -> int:
        """The size of all shards; for chosen records, their share of it by number."""
        return self._shards.num_bytes * len(self) // max(1, self._files.num_records)

    @property
    def num_shards(self) -> int:
        return self._files.num_shards

    @property
    def shard_sizes(self) -> Array:
        """(num_shards,) int64: records of each shard."""
        return self._files.shard_sizes.copy() if self.choice is None else self.choice.shard_sizes(self._bounds)

    @property
    def source_ordinals(self) -> Array:
        """(n,) uint64: the position of each record in its source shard."""
        ordinals: Array = self._files.whole_column(ORDINAL)
        return ordinals if self.choice is None else ordinals[self.choice.rows]

    def shard_of(self, index: int) -> int:
        """The shard, counted from 0, that holds a record."""
        return self._place_one(index)[0]

    def place_of(self, index: int) -> tuple[str, int]:
        """The file name of the shard that holds a record, and the record's number in it."""
        shard, position = self._place_one(index)
        return self._shards.file_name(self._manifest.name, self.name, shard), position

    def offset_of(self, index: int) -> int:
        """The byte of its shard's file at which a record begins."""
        return self._files.offset(*self._place_one(index))

    def _checked(self, indices: Sequence[int] | Array) -> Array:
        return checked_indices(indices, len(self), split=self.name, where=self)

    def _place_one(self, index: int) -> tuple[int, int]:
        if self.choice is not None:
            index = int(self.choice.rows[self._checked([index])[0]])
        return self._files.place_one(index)

    def record_bytes(self, index: int) -> bytes:
        """The payload of one record, as it is stored; its checksums are checked."""
        return bytes(getattr(self._decode, "resolve", bytes)(self._payload(index)))

    def _payload(self, index: int) -> bytes:
        if self.choice is not None:
            return self._files.payload(int(self.choice.rows[self.stand_ins([index])[0]]))
        if self._takedowns is not None and self._takedowns.overlay().takedowns and len(self.removed_rows):
            index = int(self.stand_ins([index])[0])
        return self._files.payload(index)

    def stream(self, first: int, last: int) -> Iterator[Record] | None:
        """The records `first` to `last`, removed ones too, in order, without copies: see `ShardFiles.stream`."""
        rows = range(first, last) if self.choice is None else self.choice.rows[first:last]
        payloads = self._files.stream(rows)
        return None if payloads is None else map(self._decoded_record, payloads)

    @property
    def removed_rows(self) -> Array:
        """(k,) int64, ascending: the records that are taken down now. Each is read as another, drawn for it."""
        if self._takedowns is None:
            return np.empty(0, np.int64)
        removed = self._takedowns.of_split(self.name, self._files.num_records)
        return removed if self.choice is None else positions_of(self.choice.rows, removed)

    @property
    def takedown_revision(self) -> int:
        """How often the takedowns of the cache have changed; 0 if there never were any."""
        return 0 if self._takedowns is None else self._takedowns.overlay().revision

    def stand_ins(self, indices: Sequence[int] | Array) -> Array:
        """(n,) int64: the records that are read for these indices, see `removed_rows`; negative ones resolved."""
        wanted = self._files.place(indices).indices if self.choice is None else self._checked(indices)
        return self._stand_ins(wanted, removed) if len(removed := self.removed_rows) else wanted

    def record_ids(self, indices: Sequence[int] | Array) -> list[str]:
        """The source record from which each of these records was made, `file@position`; also of those taken down.

        Raises `CacheNotFoundError` if the cache was built without lineage.
        """
        places = self._files.place(indices if self.choice is None else self.choice.rows[self._checked(indices)])
        ordinals = self._files.column(ORDINAL, places).tolist() if len(places) else []
        numbers = np.asarray(self._shards.numbers, np.int64)[places.shards].tolist()
        lineage = self._lineage
        return [lineage.shard(number).record_id(ordinal) for number, ordinal in zip(numbers, ordinals, strict=True)]

    def find_rows(self, record_id: str) -> Array:
        """(k,) int64, ascending: the records made from a source record, `file@position`, also those taken down.

        Raises `UnknownRecordError`, naming the nearest ones, if no such record was read.
        """
        origin = self._lineage.find(record_id)
        return self.rows_of(origin.source_shard, np.array([origin.ordinal]))

    def rows_of(self, source_shard: int, ordinals: Sequence[int] | Array) -> Array:
        """(k,) int64, ascending: the records made from the given records of a source shard (ordinals, ascending)."""
        if source_shard not in self._shard_of_number:
            return np.empty(0, np.int64)
        shard = self._shard_of_number[source_shard]
        if not self._files.shard_sizes[shard] or not len(ordinals):
            return np.empty(0, np.int64)
        found = self._files.ordinals_of_shard(shard).astype(np.int64)
        hits = np.flatnonzero(is_removed(found, np.asarray(ordinals, np.int64)))
        rows: Array = hits + self._files.begins[shard]
        return rows if self.choice is None else positions_of(self.choice.rows, rows)

    @functools.cached_property
    def _shard_of_number(self) -> dict[int, int]:
        return {number: shard for shard, number in enumerate(self._shards.numbers)}

    @functools.cached_property
    def _lineage(self) -> Lineage:
        return Lineage(self._root, self._directory, self._manifest, storage=self._storage)

    def _place(self, indices: Sequence[int] | Array) -> RecordAddresses:
        """The records to be read for these indices."""
        if self.choice is not None:
            return self._files.place(self.choice.rows[self.stand_ins(indices)])
        places = self._files.place(indices)
        if len(removed := self.removed_rows):
            return self._files.place(self._stand_ins(places.indices, removed))
        return places

    def _stand_ins(self, rows: Sequence[int] | Array, removed: Array) -> Array:
        # An older snapshot keeps the stand-ins that were drawn for it, so that a run over it continues unchanged.
        return stand_ins(rows, removed, len(self), key=self._stand_in_key, where=repr(self))

    @functools.cached_property
    def _stand_in_key(self) -> int:
        older = None if self.choice is None else self.choice.older
        return stand_in_key(self._manifest.snapshot if older is None else older.snapshot, self.name)

    def lengths(self, feature: str, indices: Sequence[int] | Array | None = None) -> Array:
        """(n,) int64: the leading dimension of a feature in every record, from the index alone; for a text, its bytes.

        With `indices`, those of the records that reading these returns.
        """
        if indices is None:
            lengths: Array = self._columns.all_lengths(feature)
            return lengths if self.choice is None else lengths[self.choice.rows]
        return self._columns.lengths(feature, self._place(indices))

    def shapes(self, feature: str, indices: Sequence[int] | Array) -> Array:
        """(n, rank) int64: the shapes of a feature in the given records, without their values.

        Read from the index alone where only the leading dimension varies.
        """
        places = self._place(indices)
        spec = self._columns.spec(feature)
        if spec.has_shape_feature:
            return self._columns.shapes(feature, places)
        made = np.empty((len(places), len(spec.shape)), np.int64)
        if spec.shape:
            made[:, 0] = self._columns.lengths(feature, places)
            made[:, 1:] = [size or 0 for size in spec.shape[1:]]
        return made

    def gather_values(self, feature: str, indices: Sequence[int] | Array) -> tuple[Array, Array]:
        """The values of a ragged feature for the given records, one after the other, and the length of each.

            gather_values("tokens", [1, 0])  →  (array([7, 8, 9, 5, 6]), array([3, 2]))

        Values are (sum of lengths, *rest). A text gives its bytes as uint8.
        """
        return self._columns.runs(feature, self._place(indices))

    def gather_entries(self, feature: str, indices: Sequence[int] | Array, starts: Array, *, count: int = 1) -> Array:
        """(n, k, count, *rest): of record i, `count` entries of a feature from each of `starts[i]` on, and no others.

            gather_entries("tokens", [1], np.array([[0, 2]]), count=3)  →  array([[[5, 6, 7], [7, 8, 9]]])

        Raises `SpecError` for entries outside of a record.
        """
        return self._columns.entries(feature, self._place(indices), np.asarray(starts, np.int64), count)

    def stored(self, feature: str, first: int, last: int) -> Array:
        """A scalar feature of records `first` to `last` - 1 as it is stored, also of those that are taken down."""
        return self._columns.run(feature, first, last, None if self.choice is None else self.choice.rows)

    def gather(
        self,
        indices: Sequence[int] | Array,
        *,
        features: Sequence[str] | None = None,
        ragged: Literal["pad", "values"] = "pad",
        pad_to: PadTo = None,
        pad_value: float | np.generic | Mapping[str, float | np.generic] = 0,
    ) -> dict[str, Array]:
        """The given records as a batch, in the given order; an index may come twice.

        Fixed features are stacked to (n, *shape), scalar texts to (n,) objects. Ragged features are

        - `ragged="pad"`: padded at the end with `pad_value` (a number, or feature → number; texts with nothing) to the
          longest of the batch or to `pad_to`: an int, the leading dimension of those whose leading dimension varies; or
          by name an int, or the whole shape where more dimensions vary;
        - `ragged="values"`: `name` holds the values one after the other, `name/lengths` the leading dimensions, and
          where more dimensions vary the values are one-dimensional and `name/shape` holds the shapes, (n, rank).

        Raises `ExampleIndexError` for an index outside the split, and `SpecError` if a record is longer than `pad_to`,
        a dimension that `pad_to` names does not vary and has another size, or the dtype does not hold the pad value
        (floats round it).
        """
        if ragged not in ("pad", "values"):
            raise SpecError(f'ragged should be "pad" or "values", got {ragged!r}')
        columns, places = self._columns, self._place(indices)
        batch: dict[str, Array] = {}
        for name in self._names if features is None else features:
            spec = columns.spec(name)
            shape = spec.shape if pad_to is None else padded_shape(name, spec, pad_to)
            if not spec.ragged:
                stacked = columns.stacked(name, places)
                batch[name] = columns.texts(name, places) if stacked is None else stacked
            elif ragged == "values":
                batch[name], batch[f"{name}/lengths"] = columns.runs(name, places)
                if spec.has_shape_feature:
                    batch[f"{name}/shape"] = columns.shapes(name, places)
            else:
                value = pad_value.get(name, 0) if isinstance(pad_value, Mapping) else pad_value
                batch[name] = columns.padded(name, places, box=shape, value=value)
        return batch

    def located(self, indices: Sequence[int] | Array, features: Sequence[str]) -> dict[str, ArenaValues] | None:
        """Where `gather` copies these features from; None if one of them must be made or read first."""
        places, found = self._place(indices), {}
        for name in features:
            located = self._columns.located(name, places)
            if located is None:
                return None
            found[name] = located
        return found

    def will_need(self, blocks: Array) -> None:
        """Announces the next shards: those of a cache on an object store are fetched in the background meanwhile."""
        if self._copies is not None:
            self._copies.will_need(blocks if self.choice is None else self.choice.shards_of(blocks))

    def check_room(self, windows: Sequence[Array]) -> None:
        """Announces which windows of shards follow each other.

        Raises `LoaderError` if a window and the next one do not fit into the local directory together.
        """
        if self._copies is not None:
            if self.choice is not None:
                windows = [self.choice.shards_of(blocks) for blocks in windows]
            self._copies.check_room(windows, self._files.index_bytes)

    def close(self) -> None:
        """Unmaps the files once no view uses them. The split stays usable: the next read maps them again."""
        self._files.close()

    def views(self, shard: int) -> dict[str, Array]:
        """The features of one shard as read-only arrays over the file itself: nothing is parsed or copied.

        Each is (records of the shard, *shape), strided, in the *stored* dtype. Only where the split is `fixed`; raises
        `CacheError` elsewhere.
        """
        if self.choice is not None:
            raise CacheError(f"{self!r}: views show whole shards, with the records that are left out. Use gather.")
        if self._files.layout is None:
            raise CacheError(f"split {self.name!r}: views need records of one layout, but these differ. Use gather.")
        if not 0 <= shard < self.num_shards:
            raise CacheError(f"split {self.name!r} has {self.num_shards} shards, and there is no shard {shard}")
        first = int(self._files.begins[shard])
        removed = np.searchsorted(self.removed_rows, [first, first + int(self._files.shard_sizes[shard])])
        if removed[0] != removed[1]:
            raise RecordRemovedError(
                f"split {self.name!r}: views show the file itself, and {removed[1] - removed[0]} records of shard "
                f"{shard} are taken down. Use gather."
            )
        return {name: self._columns.view(name, shard) for name in self.spec}

    def _examples(self) -> ExampleCodec:
        if not isinstance(self._codec, ExampleCodec):
            raise CacheError(
                f"split {self.name!r} of {self._root!r} holds records of kind {self.kind!r}, which have no features. "
                "Say how to read some: Loader(…, decode=…) or split.decoded(…); or use split[i], iteration or "
                "record_bytes."
            )
        return self._codec

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.spec)

    @functools.cached_property
    def _columns(self) -> ColumnReader:
        if self._decode is not None:
            return DecodedColumns(self._files, self._decode, self._codec.decode)
        return ColumnReader(self._files, self._examples())


def reopen_split(
    snapshot: str,
    manifest_id: str,
    path: str,
    split: str,
    proto: type[Message] | None,
    place: tuple[str, int] | None = None,
    decode: MessageDecoder | None = None,
    mmap: bool = True,
    choice: Choice | None = None,
) -> Split:
    """Called when a `Split` is unpickled; `place` is the directory of its copies and its bound, if it has one.

    Raises `StaleCacheError` if the snapshot holds other data by now.
    """
    manifest, store = reopened_snapshot(path, snapshot, manifest_id, place)
    directory, takedowns = snapshot_directory(path, snapshot), RemovedRows(path, snapshot)
    made = Split(path, directory, manifest, split, proto, takedowns, store=store, decode=decode, mmap=mmap)
    return made if choice is None else made._copy(choice=choice)
