"""The options of a loader: checked on their own and against the source, and converted for each part below.

    Loader(source, batch_size=32, …) ──► LoaderOptions ──gather──► GatherOptions   how rows become arrays
                                                       ──steps───► StepOptions     how rows become global batches
                                                       ──reader──► BatchReader     what makes the batches of this host

`LoaderOptions` is the only place where an option is declared: `Loader.__init__` takes its parameters. The docstring of
`Loader` says what each means. A loader is pickled with its options.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, cast, get_args

import numpy as np

from beam_pipes.cache.columns import PadTo
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.checks import choice
from beam_pipes.errors import BeamPipesError, CacheNotFoundError, LoaderError, StateMismatchError
from beam_pipes.format.message_features import MessageDecoder
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.loader.batches import Batch, PadValue, fills_of_result
from beam_pipes.loader.epochs import Shuffle, shuffle_label
from beam_pipes.loader.mesh import AnyMesh, MeshShare, SequenceOrder, SequenceShare, Spec, mesh_share
from beam_pipes.loader.mixture import Mixture, RowSource
from beam_pipes.loader.mixture_stream import MixtureStream, rates_label
from beam_pipes.loader.order import BalancedShuffle, BlockShuffle, check_integer
from beam_pipes.loader.packed_rows import cu_seqlens_of
from beam_pipes.loader.reader import VALID, BatchReader, checked_result, failed_transform
from beam_pipes.loader.row_source import opened
from beam_pipes.loader.rows import GatherOptions, checked_features, checked_name
from beam_pipes.loader.state import LoaderState, check_same_sequence
from beam_pipes.loader.steps import Last, StepOptions
from beam_pipes.loader.stream import Appended, OpenSource, RowStream, Stream, check_appendable, over_newer
from beam_pipes.loader.token_batches import BucketStream, TokenBatches
from beam_pipes.loader.world import EVERYTHING, HostSlice
from beam_pipes.publication.manifest import FILE_NAME
from beam_pipes.publication.publish import manifest_with_id, removal_of, snapshot_directory
from beam_pipes.storage.local import storage_for

Forgotten = Literal["stand_in", "mask"]
Segments = Literal["ids", "lengths"]


@dataclasses.dataclass(frozen=True, eq=False)
class LoaderOptions:
    """The arguments of `Loader`, which says what each means, with their defaults.

    Raises `LoaderError` for values out of range. `source` is opened, and `mesh` is what this process reads under it.
    """

    source: RowSource | Mixture
    _: dataclasses.KW_ONLY
    batch_size: int | TokenBatches
    decode: MessageDecoder | Mapping[str, FeatureSpec] | None = None
    seed: int = 0
    epochs: int | None = 1
    shuffle: Shuffle = True
    host_index: int | None = None
    host_count: int | None = None
    mesh: AnyMesh | MeshShare | None = None
    spec: Spec | None = None
    sequence_order: SequenceOrder = "contiguous"
    last: Last = "drop"
    features: Sequence[str] | None = None
    ragged: str = "pad"
    pad_to: PadTo = None
    pad_value: PadValue = 0
    transform: Callable[[Batch], Batch] | None = None
    cu_seqlens: bool | Literal["padded"] = False
    segments: Segments = "ids"
    appended: Appended | None = None
    forgotten: Forgotten = "stand_in"
    workers: int = 0
    prefetch: int = 2

    def __post_init__(self) -> None:
        # A copy of the loader reads the same snapshot; the mesh stays in this process.
        mesh = mesh_share(self.mesh, spec=self.spec, sequence_order=self.sequence_order)
        if mesh is not None and (self.host_index is not None or self.host_count is not None):
            raise LoaderError(
                f"mesh says which rows this process reads ({mesh.mesh}), and host_index={self.host_index}, "
                f"host_count={self.host_count} were given too. Omit them, or omit mesh."
            )
        vars(self).update(
            source=opened(self.source, self.decode), decode=None, mesh=mesh, spec=None, sequence_order="contiguous"
        )
        whole = functools.partial(object.__setattr__, self)
        if self.host_count is not None:
            whole("host_count", check_integer("host_count", self.host_count, 1))
        if self.host_index is not None:
            most = None if self.host_count is None else self.host_count - 1
            whole("host_index", check_integer("host_index", self.host_index, 0, most))
        whole("seed", check_integer("seed", self.seed, 0, 2**64 - 1))
        whole("workers", check_integer("workers", self.workers, 0))
        whole("prefetch", check_integer("prefetch", self.prefetch, 1))
        if self.epochs is not None:
            whole("epochs", check_integer("epochs", self.epochs, 1))
        if self.transform is not None and not callable(self.transform):
            raise LoaderError(f"transform should be a function of a batch, got {self.transform!r}")
        if self.cu_seqlens not in (True, False, "padded"):
            raise LoaderError(f"cu_seqlens should be True, False or 'padded', got {self.cu_seqlens!r}")
        choice(self.segments, of=get_args(Segments), what="segments", error=LoaderError)
        choice(self.appended, of=(*get_args(Appended), None), what="appended", error=LoaderError)
        choice(self.forgotten, of=get_args(Forgotten), what="forgotten", error=LoaderError)
        if not isinstance(self.shuffle, (bool, BlockShuffle, BalancedShuffle)):
            raise LoaderError(
                "shuffle should be True, False, BlockShuffle(window=…) or BalancedShuffle(rows=…), "
                f"got {self.shuffle!r}"
            )

    @property
    def open_source(self) -> OpenSource | Mixture:
        return cast("OpenSource | Mixture", self.source)

    @property
    def mesh_share(self) -> MeshShare | None:
        return cast("MeshShare | None", self.mesh)

    def stream(self, source: OpenSource | Mixture | None = None) -> Stream:
        """The stream of the source, or of another one; raises `LoaderError` if the options do not suit it."""
        source = self.open_source if source is None else source
        if self.appended is not None:
            check_appendable(source)
        if isinstance(self.batch_size, TokenBatches):
            return BucketStream(
                source, self.gather(), seed=int(self.seed), shuffle=self.shuffle, token_batches=self.batch_size
            )
        batch_size = int(self.batch_size) if isinstance(self.batch_size, (int, np.integer)) else None
        if isinstance(source, Mixture):
            return MixtureStream(source, self.gather(), seed=self.seed, shuffle=self.shuffle, batch_size=batch_size)
        return RowStream(source, self.gather(), seed=self.seed, shuffle=self.shuffle)

    def steps(self, stream: Stream) -> StepOptions:
        """How rows become global batches, with the current share of this process."""
        share = (
            HostSlice.of_options(self.host_index, self.host_count) if self.mesh_share is None else self.mesh_share.share
        )
        if isinstance(stream, BucketStream):
            steps: StepOptions = stream.steps(epochs=self.epochs, last=self.last, share=share)
            check_batch_size(steps.smallest_batch, EVERYTHING if share.is_preliminary else share)
        else:
            check_batch_size(self.batch_size, EVERYTHING if share.is_preliminary else share)
            assert not isinstance(self.batch_size, TokenBatches)
            steps = StepOptions(batch_size=int(self.batch_size), epochs=self.epochs, last=self.last, share=share)
        if self.mesh_share is not None:
            self.mesh_share.check_batch_size(steps.rows_multiple)
        return steps

    def stream_of_state(self, stream: Stream, state: LoaderState, now: LoaderState) -> Stream:
        """The stream as a state continues it; raises `StateMismatchError` if `now` belongs to another sequence."""
        if self.appended is not None and state.source.get("manifest") != now.source["manifest"]:
            assert isinstance(stream, RowStream)  # `stream` has checked its source
            state = over_newer(stream, state, now, self.appended)
        declared = state.source.get("rates") == now.source.get("rates")
        if state.segment is not None and not declared:
            # Declared at the rates in force when it was saved, which serve as well as the first ones.
            if now.source.get("rates") == rates_label(state.segment.rates):
                now = dataclasses.replace(now, source={**now.source, "rates": state.source.get("rates")})
        try:
            check_same_sequence(state, now)
        except StateMismatchError as error:
            if isinstance(stream, RowStream):
                _name_older_snapshot(error, stream.sources[0].split, state)
            raise
        return stream.restored(state, declared=declared)

    def over_snapshot_of(self, state: LoaderState) -> LoaderOptions | None:
        """These options over the snapshot that a state names, where `source` was a path; None if they do not move."""
        split = self.source
        if not isinstance(split, Split) or not split.follows_states or self.appended is not None:
            return None
        if state.source.get("split") != split.name or "?" in str(state.source.get("manifest")):
            return None
        older = _older_snapshot(split, state)
        if older is None or not older[2]:
            return None
        return dataclasses.replace(self, source=split.in_snapshot(*older[:2]))

    @property
    def sequence(self) -> SequenceShare | None:
        """This process's part of each row, if a mesh divides sequences."""
        return None if self.mesh_share is None else self.mesh_share.sequence

    @property
    def order_label(self) -> str:
        """How a state names the order: `shuffle`, and batches by tokens, which also affect it."""
        label = shuffle_label(self.shuffle)
        return f"{label}, {self.batch_size.label}" if isinstance(self.batch_size, TokenBatches) else label

    def gather(self) -> GatherOptions:
        """How rows become arrays."""
        return GatherOptions(
            features=None if self.features is None else checked_features(self.features),
            ragged=self.ragged,
            pad_to=self.pad_to,
            pad_value=self.pad_value,
            keeps_places=self.forgotten == "mask",
            segments=self.segments,
        )

    def _transformed(self, stream: Stream, no_rows: Batch) -> Batch:
        """The transform's result for no rows, or for the first row: `np.stack` fails on the images of no rows."""
        assert self.transform is not None
        try:
            return checked_result(self.transform(no_rows), 0)
        except (BeamPipesError, MemoryError):
            raise
        except Exception as error:
            if stream.size == 0:
                raise failed_transform(self.transform, error) from error
        try:
            return checked_result(self.transform(stream.gather(stream.locate(0, np.zeros(1, np.int64)))), 1)
        except (BeamPipesError, MemoryError):
            raise
        except Exception as error:
            raise failed_transform(self.transform, error) from error

    def features_of(self, stream: Stream) -> tuple[str, ...]:
        """The features that are returned from a stream; raises `LoaderError` for options that do not suit it."""
        features = stream.features
        if self.transform is not None or self.cu_seqlens:
            no_rows = stream.gather(stream.no_places)
            if self.transform is not None:
                no_rows = self._transformed(stream, no_rows)
                features = tuple(no_rows)
            if self.cu_seqlens:
                # Refuses rows that have none, and plans of different multiples.
                cu_seqlens_of(no_rows, multiple=stream.segment_multiple, width=stream.lengths_width)
            if self.cu_seqlens == "padded" and stream.most_segments is None:
                raise LoaderError(
                    "cu_seqlens='padded' needs a maximum number of segments per row, but rows of concat_then_split "
                    "with reshuffle_each_iteration=True have a different one in each epoch. Pass cu_seqlens=True, or a "
                    "plan that is the same in each epoch."
                )
        if self.segments == "lengths" and (self.forgotten == "mask" or self.sequence is not None):
            what = "forgotten='mask' leaves gaps" if self.forgotten == "mask" else "a mesh that divides rows cuts them"
            raise LoaderError(f"segments='lengths' says nothing of places, and {what}. Pass segments='ids'.")
        if self.forgotten == "mask":
            _check_masks(stream)
        if self.last == "pad" or self.forgotten == "mask":
            checked_name(VALID, features)
            if self.transform is not None:
                fills_of_result(no_rows, stream.fills, self.pad_value)  # refuses now what is no column of the result
        if self.sequence is not None:
            self._check_sequence(self.sequence, stream, None if self.transform is None else no_rows)
        _check_names("pad_to", self.pad_to, stream.all_features)
        _check_names("pad_value", self.pad_value, {*stream.all_features, *features})
        if stream.is_limited and stream.size is not None and self.epochs != 1:
            raise LoaderError(
                f"max_epochs of a mixture limits its sources over the whole run, which is one epoch, got "
                f"epochs={self.epochs}. Omit epochs, and raise max_epochs for a longer run."
            )
        if stream.size is None and self.epochs is not None:
            raise LoaderError(
                f"a mixture with exhausted='repeat' never ends, got epochs={self.epochs}: pass epochs=None and count "
                "steps, or Mixture(…, exhausted='stop' or 'drop')"
            )
        return features

    def _check_sequence(self, sequence: SequenceShare, stream: Stream, transformed: Batch | None) -> None:
        """Raises `LoaderError` if the batches cannot be divided into the parts of a sequence."""
        concatenated = [name for name, column in stream.columns.items() if column.concatenated]
        if concatenated:
            raise LoaderError(
                f"{', '.join(concatenated)}: ragged='values' concatenates rows of all lengths, which the mesh cannot "
                "cut into equal parts. Omit ragged and pass pad_to, or pack the rows."
            )
        if transformed is None:
            sequence.check({name: column.shape for name, column in stream.columns.items()})
        else:
            sequence.check({name: array.shape[1:] for name, array in transformed.items()})
        if sequence.order == "segments" and stream.segment_multiple % sequence.multiple:
            raise LoaderError(
                f"sequence_order='segments' cuts each document into {sequence.multiple} equal parts, but the segments "
                f"of these rows are multiples of {stream.segment_multiple} positions. Pass pack(…, "
                f"segment_multiple={sequence.multiple})."
            )

    def reader(self, stream: Stream, steps: StepOptions) -> BatchReader:
        """What reads the batches of a stream; steps change with the share of this process."""
        return BatchReader(
            stream,
            steps,
            fills=stream.fills,
            pad_value=self.pad_value,
            transform=self.transform,
            cu_seqlens=self.cu_seqlens,
            sequence=self.sequence,
            masks=self.forgotten == "mask",
        )


def _check_masks(stream: Stream) -> None:
    """Raises `LoaderError` if rows that are taken down cannot be masked."""
    if concatenated := [name for name, column in stream.columns.items() if column.concatenated]:
        raise LoaderError(
            f"forgotten='mask' masks rows, and ragged='values' concatenates those of {', '.join(concatenated)}. Omit "
            "ragged, and pass pad_to for one shape."
        )


def _older_snapshot(split: object, state: LoaderState) -> tuple[str, str, bool] | None:
    """The snapshot that a state names, if it is another one of the same cache than that of a split.

    (its id, the id of its manifest, whether it is still there); None if nothing is known of it.
    """
    manifest_id = str(state.source.get("manifest")).partition("?")[0]
    if not isinstance(split, Split) or split.manifest_id.startswith(manifest_id):
        return None
    with contextlib.suppress(BeamPipesError, OSError):
        snapshot = manifest_with_id(split.path, manifest_id, storage=storage_for(split.path)).snapshot
        with contextlib.suppress(CacheNotFoundError):
            is_same = Cache.open(split.path, snapshot=snapshot).manifest.id == manifest_id
            return (snapshot, manifest_id, True) if is_same else None
        return snapshot, manifest_id, False
    return None


def _name_older_snapshot(error: StateMismatchError, split: object, state: LoaderState) -> None:
    """Adds to a state's error how to continue over its own snapshot, or who removed that."""
    older = _older_snapshot(split, state)
    if older is None or not isinstance(split, Split):
        return
    snapshot, _, is_there = older
    if is_there:
        error.add(
            f"Its snapshot is still there, and Loader(Cache.open({split.path!r}, snapshot={snapshot!r})"
            f"[{split.name!r}], …) goes on over it, as does a loader of the path {f'{split.path}/{split.name}'!r}.",
            snapshot=snapshot,
        )
    else:
        removed = removal_of(os.path.join(snapshot_directory(split.path, snapshot), FILE_NAME))
        error.add(f"Its {removed}. Builds keep a snapshot for an hour after a run that has saved a state was alive.")


def check_batch_size(batch_size: object, share: HostSlice) -> None:
    """Raises `LoaderError` if a global batch has fewer rows than there are slices."""
    world = share.world
    if world is None:
        check_integer("batch_size (the global one, over all hosts)", batch_size, share.count)
        return
    rows = check_integer("batch_size (the global one, over all hosts)", batch_size, 1)
    if rows < share.count:
        whose = "mesh=sharding, or .shard(sharding) of a JaxDataLoader" if world.is_jax else "mesh=… with spec=…"
        raise LoaderError(
            f"batch_size (the global one, over all hosts, the {share.count} processes of {world.framework}) should be "
            f"at least {share.count}, got {rows}. Where processes read the same rows, as those of tensor parallelism "
            f"do, say which: {whose}; host_count=1 gives all rows to all."
        )


def _check_names(option: str, value: object, known: Collection[str]) -> None:
    unknown = sorted(set(value) - set(known)) if isinstance(value, Mapping) else []
    if unknown:
        raise LoaderError(
            f"{option} names {unknown[0]!r}, which is not a feature; the features are: {', '.join(sorted(known))}",
            feature=unknown[0],
        )
