"""Global arrays of several processes: which rows of a global batch this process holds, and which its devices need.

A sharding says which rows each device needs. Our loaders then read the rows of every global batch that the devices of
this process need, in any order of the devices: the same rows on processes that a mesh replicates the batch over. Other
axes are held whole: a sequence that is split over devices is cut here, in one process or over several. A loader with
its own mesh may have cut it already, and reordered its places; then the parts that it holds are those that the devices
need.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from beam_pipes.errors import ConversionError, LoaderError
from beam_pipes.loader import Loader
from beam_pipes.loader.mesh import SequenceShare, part_words, sequence_of_sharding, share_of_sharding
from beam_pipes.loader.world import HostSlice, ranges_in_words

T = TypeVar("T")


@runtime_checkable
class OverCaches(Protocol):
    """The part of a `DataLoader` that names the native loaders it reads."""

    def converted_loader(self) -> Loader | None: ...

    def _loaders_behind(self) -> Sequence[Loader]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalRows:
    """The rows that this process holds of every global batch: those of `share`.

    batch_size: rows of a global batch if one of our loaders gives whole ones; None if others make the batches, and
        every process holds the same number of rows.
    read: the share for the loader to read; None if its user chose one.
    sequence: the parts of each row that the loader hands out; None for whole rows.
    """

    share: HostSlice
    batch_size: int | None = None
    read: HostSlice | None = None
    sequence: SequenceShare | None = None

    def array(self, sharding: NamedSharding, local: np.ndarray, key: str) -> jax.Array:
        """The global array whose rows of this process are `local`."""
        if not local.ndim:
            return jax.make_array_from_callback((), of_rank(sharding, 0), lambda _: local)
        held, rows = self._held(local, key)
        shape = (rows, *local.shape[1:])
        parts: Sequence[int] = ()
        if self.sequence is not None and local.ndim > 1:
            parts = self.sequence.held
            width = local.shape[1] // len(parts)
            shape = (rows, self.sequence.count * width, *local.shape[2:])
        sharding = fitting(sharding, shape, key)

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            start, stop, _ = index[0].indices(rows)
            first = int(np.searchsorted(held, start))  # a device's rows are consecutive, as `check` has made sure
            inner = index[1:]
            if parts and width:
                begin, end, _ = inner[0].indices(shape[1])
                shift = (begin // width - parts.index(begin // width)) * width
                inner = (slice(begin - shift, end - shift), *inner[1:])
            own: tuple[slice, ...] = (slice(first, first + stop - start), *inner)
            return local[own]

        return jax.make_array_from_callback(shape, sharding, part)

    def check(self, sharding: NamedSharding) -> None:
        """Raises `LoaderError` unless this process holds the rows that its devices need."""
        needed = share_of_sharding(sharding)
        rows = self.batch_size or math.lcm(self.share.parts, needed.parts)
        held, wanted = self.share.places_of(rows), needed.places_of(rows)
        if np.isin(wanted, held).all():
            return
        options = f"host_index={needed.index}, host_count={needed.count}"
        if self.share.chosen_by == "mesh":
            remedy = "Pass the same sharding to both: Loader(…, mesh=sharding) and .shard(sharding)."
        elif needed.slices:
            remedy = "Pass the loader itself to shard, without host_index and host_count."
        elif self.batch_size is not None:
            remedy = f"Leave both out, and shard chooses them; or pass {options}."
        else:
            remedy = f"Pass {options} to the loader of the cache, whose batches were transformed since."
        raise LoaderError(
            f"the devices of this process need rows {ranges_in_words(wanted)} of every {rows} rows of a global batch, "
            f"and its loader reads rows {ranges_in_words(held)} (host_index={self.share.index}, "
            f"host_count={self.share.count}). {remedy}"
        )

    def _held(self, local: np.ndarray, key: str) -> tuple[np.ndarray, int]:
        """The places of our rows in the global batch, and the number of rows of that batch."""
        rows = self.batch_size
        if rows is None:  # shares of such batches are equal parts
            rows = len(local) * self.share.parts // max(1, len(self.share.places_of(self.share.parts)))
        held = self.share.places_of(rows)
        if len(local) != len(held):
            raise ConversionError(
                f"key {key!r} has shape {local.shape}, and should have the {len(held)} rows that this process reads "
                f"of a global batch of {self.batch_size}, since it is split by rows over processes. Name it in "
                f"skip_keys=[{key!r}] to keep it on the host.",
                key=key,
                shape=local.shape,
            )
        return held, rows


def global_rows(elements: Iterable[object], sharding: NamedSharding, skip_keys: Collection[str]) -> GlobalRows | None:
    """What this process holds of `elements` for a sharding over several processes; None if it is over one.

    Raises `LoaderError` if the processes would make arrays of different shapes, or of other rows than are needed.
    """
    native = _native(elements)
    if native is not None and native.sequence_share is not None:
        _check_sequence(native.sequence_share, sharding)
    if sharding.is_fully_addressable:
        return None
    if not sharding.addressable_devices:
        raise LoaderError(
            f"no device of process {jax.process_index()} is in the mesh {dict(sharding.mesh.shape)}, so there is "
            "nothing for it to hand over. Make the mesh of devices of all processes (jax.make_mesh), or shard only "
            "where jax.process_index() is among those of mesh.devices."
        )
    if native is not None:
        return _of_loader(native, sharding, skip_keys)
    behind = [loader.share for loader in _behind(elements)]
    shares = {(share.index, share.count, share.slices): share for share in behind}
    if len(shares) > 1:
        raise LoaderError(
            f"the loaders behind these batches read different shares of them, {sorted(key[:2] for key in shares)} as "
            "(host_index, host_count). Pass the same ones to all."
        )
    found = GlobalRows(share=next(iter(shares.values()), None) or _even_share(sharding))
    found.check(sharding)
    return found


def reading_rows(elements: Iterable[T], rows: GlobalRows | None) -> Iterable[T]:
    """The elements, after one of our loaders was set to read the right rows."""
    if rows is not None and rows.read is not None and isinstance(elements, Loader):
        elements.take_share(rows.read)
    return elements


def of_rank(sharding: NamedSharding, rank: int) -> NamedSharding:
    """The sharding for arrays of `rank` axes: P('data', 'seq') is P('data') for one, and P() for scalars."""
    spec = sharding.spec
    if len(spec) <= rank:
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec(*spec[:rank]))  # type: ignore[no-untyped-call]


def fitting(sharding: NamedSharding, shape: tuple[int, ...], key: str) -> NamedSharding:
    """The sharding for an array of this shape, all processes together; `ConversionError` if it does not divide."""
    sharding = of_rank(sharding, len(shape))
    try:
        sharding.shard_shape(shape)
    except ValueError as error:
        raise ConversionError(
            f"key {key!r} has shape {shape}, which does not divide over {sharding.mesh.size} devices as "
            f"{sharding.spec}. Batch to a multiple of the number of devices, with drop_remainder=True.",
            key=key,
            shape=shape,
        ) from error
    return sharding


def _of_loader(loader: Loader, sharding: NamedSharding, skip_keys: Collection[str]) -> GlobalRows:
    varying = [name for name in loader.varying_features if name not in skip_keys]
    if varying:
        raise LoaderError(
            f"{', '.join(varying)}: with ragged='values' each process has as many values as its own rows hold, so that "
            "the processes would make arrays of different shapes. Leave ragged out, which pads rows to the longest of "
            "the global batch, or pack the rows; or name them in skip_keys."
        )
    if loader.last == "partial":
        raise LoaderError(
            "last='partial' ends an epoch with a batch of another size, whose rows need not divide over the "
            "processes. Pass last='pad', which marks the rows that it adds in the column valid, or last='drop'."
        )
    slices = _num_slices(sharding)
    rows = loader.batch_size if loader.is_even else loader.rows_multiple
    if rows % slices and not loader.is_even:
        raise LoaderError(
            f"batches of TokenBatches have multiples of {rows} rows, which do not divide into the {slices} parts of "
            f"{sharding.spec} over the mesh {dict(sharding.mesh.shape)}. Pass TokenBatches(…, multiple_of={slices})."
        )
    if rows % slices:
        raise LoaderError(
            f"a global batch of {loader.batch_size} rows does not divide into the {slices} parts of {sharding.spec} "
            f"over the mesh {dict(sharding.mesh.shape)}. Pass a batch_size (of all processes together) that is a "
            f"multiple of {slices}."
        )
    share = loader.share.now()
    batch_size = rows if loader.is_even else None
    if share.chosen_by in ("options", "mesh"):
        found = GlobalRows(share=share, batch_size=batch_size, sequence=loader.sequence_share)
        found.check(sharding)
        return found
    share = share_of_sharding(sharding)
    return GlobalRows(share=share, batch_size=batch_size, read=share)


def _native(elements: object) -> Loader | None:
    """The loader whose batches are converted unchanged."""
    if isinstance(elements, Loader):
        return elements
    return elements.converted_loader() if isinstance(elements, OverCaches) else None


def _behind(elements: object) -> Iterator[Loader]:
    """The loaders of caches under transformations."""
    if isinstance(elements, Loader):
        yield elements
    elif isinstance(elements, OverCaches):
        yield from elements._loaders_behind()
    elif type(elements).__module__.startswith("beam_pipes."):
        # A LambdaDataLoader, a loader's iterator, telemetry: objects that return the batches of one loader.
        inner = [vars(elements)[name] for name in ("loader", "_loader") if name in getattr(elements, "__dict__", {})]
        for one in inner:
            yield from _behind(one)


def _check_sequence(held: SequenceShare, sharding: NamedSharding) -> None:
    """Raises `LoaderError` unless a loader returns exactly those parts of each row that our devices need."""
    needed = sequence_of_sharding(sharding)
    if (list(held.held), held.count) != (list(needed.held), needed.count):
        raise LoaderError(
            f"the loader hands out {part_words(held)} of each row, as its mesh says, and the devices of this process "
            f"need {part_words(needed)} by {sharding.spec} over {dict(sharding.mesh.shape)}. Pass the same sharding to "
            "both: Loader(…, mesh=sharding) and .shard(sharding)."
        )


def _num_slices(sharding: NamedSharding) -> int:
    """How many slices the rows have over all devices."""
    axes = sharding.spec[0] if len(sharding.spec) else None
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(sharding.mesh.shape[name] for name in names)


def _even_share(sharding: NamedSharding) -> HostSlice:
    """This process's part if every process contributes its own batches, all with the same number of rows."""
    share = share_of_sharding(sharding)
    if share.slices:
        raise LoaderError(
            f"the processes need parts {' and '.join(map(str, map(list, share.slices)))} of {share.parts} of every "
            "global batch, which are not equal consecutive slices, and these batches come from an iterable that cannot "
            "choose its rows. Pass a Loader of a cache, or order the devices of the mesh by process (jax.make_mesh)."
        )
    return share
