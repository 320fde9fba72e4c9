"""Global arrays of several processes: which rows of a global batch this process holds, and which its devices need.

A sharding says which rows each device needs. Our loaders then read the smallest slice of every global batch that holds
the rows of this process: the same slice on processes that a mesh replicates the batch over, every row if the mesh
orders them differently from the processes. Other axes are held whole: a sequence that is split over
devices is cut here, in one process or over several. A loader with its own mesh may have cut it already, and
reordered its places; then the parts that it holds are those that the devices need.
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
from beam_pipes.loader.mesh import SequenceShare
from beam_pipes.loader.world import Share, smallest_share

T = TypeVar("T")


@runtime_checkable
class OverCaches(Protocol):
    """The part of a `DataLoader` that names the native loaders that it reads."""

    def _converted_loader(self) -> Loader | None: ...

    def _loaders_behind(self) -> Sequence[Loader]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalRows:
    """The rows that this process holds of every global batch: part `share.index` of `share.count`.

    batch_size: rows of a global batch where a loader of ours gives whole ones; None if others make the batches, and
        every process holds as many rows.
    read: the share for the loader to read; None if its user chose one.
    sequence: the parts of each row that the loader hands out; None for whole rows.
    """

    share: Share
    batch_size: int | None = None
    read: Share | None = None
    sequence: SequenceShare | None = None

    def array(self, sharding: NamedSharding, local: np.ndarray, key: str) -> jax.Array:
        """The global array whose rows of this process are `local`."""
        if not local.ndim:
            return jax.make_array_from_callback((), of_rank(sharding, 0), lambda _: local)
        first, rows = self._bounds(local, key)
        shape = (rows, *local.shape[1:])
        before = 0  # places of a row before ours
        if self.sequence is not None and local.ndim > 1:
            places = local.shape[1] // (self.sequence.last - self.sequence.first)
            before = self.sequence.first * places
            shape = (rows, self.sequence.count * places, *local.shape[2:])
        sharding = fitting(sharding, shape, key)

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            start, stop, _ = index[0].indices(rows)
            self._check(first, first + len(local), start, stop, rows)
            inner = index[1:]
            if before:
                begin, end, _ = inner[0].indices(shape[1])
                inner = (slice(begin - before, end - before), *inner[1:])
            own: tuple[slice, ...] = (slice(start - first, stop - first), *inner)
            return local[own]

        return jax.make_array_from_callback(shape, sharding, part)

    def check(self, sharding: NamedSharding) -> None:
        """Raises `LoaderError` unless this process holds the rows that its devices need."""
        rows = self.batch_size or math.lcm(self.share.count, _num_slices(sharding))
        first, last = self.share.slice_of(rows)
        self._check(first, last, *_needed(sharding, rows), rows)

    def _bounds(self, local: np.ndarray, key: str) -> tuple[int, int]:
        """The index of our first row in the global batch, and the number of rows of that batch."""
        if self.batch_size is None:
            return self.share.index * len(local), self.share.count * len(local)
        first, last = self.share.slice_of(self.batch_size)
        if len(local) != last - first:
            raise ConversionError(
                f"key {key!r} has shape {local.shape}, and should have the {last - first} rows that this process reads "
                f"of a global batch of {self.batch_size}, since it is split by rows over processes. Name it in "
                f"skip_keys=[{key!r}] to keep it on the host.",
                key=key,
                shape=local.shape,
            )
        return first, self.batch_size

    def _check(self, first: int, last: int, start: int, stop: int, rows: int) -> None:
        if first <= start and stop <= last:
            return
        needed = smallest_share(start, stop, rows)
        options = f"host_index={needed.index}, host_count={needed.count}"
        remedy = (
            f"Leave both out, and shard chooses them; or pass {options}."
            if self.batch_size is not None
            else f"Pass {options} to the loader of the cache, whose batches were transformed since."
        )
        raise LoaderError(
            f"the devices of this process need rows {start} to {stop - 1} of every {rows} rows of a global batch, and "
            f"its loader reads rows {first} to {last - 1} (host_index={self.share.index}, "
            f"host_count={self.share.count}). {remedy}"
        )


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
    shares = {(loader.share.index, loader.share.count): loader.share for loader in _behind(elements)}
    if len(shares) > 1:
        raise LoaderError(
            f"the loaders behind these batches read different shares of them, {sorted(shares)} as (host_index, "
            "host_count). Pass the same ones to all."
        )
    found = GlobalRows(share=next(iter(shares.values()), None) or _even_share(sharding))
    found.check(sharding)
    return found


def told(elements: Iterable[T], rows: GlobalRows | None) -> Iterable[T]:
    """The elements, after telling a loader of ours which rows to read."""
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
    share = smallest_share(*_needed(sharding, rows), rows)
    return GlobalRows(share=share, batch_size=batch_size, read=share)


def _native(elements: object) -> Loader | None:
    """The loader whose batches are converted unchanged."""
    if isinstance(elements, Loader):
        return elements
    return elements._converted_loader() if isinstance(elements, OverCaches) else None


def _behind(elements: object) -> Iterator[Loader]:
    """The loaders of caches under transformations."""
    if isinstance(elements, Loader):
        yield elements
    elif isinstance(elements, OverCaches):
        yield from elements._loaders_behind()
    elif type(elements).__module__.startswith("beam_pipes."):
        # A LambdaDataLoader, a loader's iterator, telemetry: what hands out the batches of one loader.
        inner = [vars(elements)[name] for name in ("loader", "_loader") if name in getattr(elements, "__dict__", {})]
        for one in inner:
            yield from _behind(one)


def _check_sequence(held: SequenceShare, sharding: NamedSharding) -> None:
    """Raises `LoaderError` unless the parts of each row that a loader hands out are those that our devices need."""
    count = _num_slices(sharding, axis=1)
    bounds = [
        index[1].indices(count)
        for index in sharding.addressable_devices_indices_map((_num_slices(sharding), count)).values()
        if index and count > 1
    ]
    first, last = (min(each[0] for each in bounds), max(each[1] for each in bounds)) if bounds else (0, 1)
    if (held.first, held.last, held.count) != (first, last, count):
        raise LoaderError(
            f"the loader hands out parts {held.first} to {held.last - 1} of {held.count} of each row, as its mesh "
            f"says, and the devices of this process need parts {first} to {last - 1} of {count} by {sharding.spec} "
            f"over {dict(sharding.mesh.shape)}. Pass the same sharding to both: Loader(…, mesh=sharding) and "
            ".shard(sharding)."
        )


def _num_slices(sharding: NamedSharding, axis: int = 0) -> int:
    """How many slices an axis (rows, by default) has over all devices."""
    axes = sharding.spec[axis] if len(sharding.spec) > axis else None
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(sharding.mesh.shape[name] for name in names)


def _needed(sharding: NamedSharding, rows: int) -> tuple[int, int]:
    """The rows of a global batch that the devices of this process need, as (start, stop)."""
    bounds = [
        index[0].indices(rows)
        for index in of_rank(sharding, 1).addressable_devices_indices_map((rows,)).values()
        if index
    ]
    return min(start for start, _, _ in bounds), max(stop for _, stop, _ in bounds)


def _even_share(sharding: NamedSharding) -> Share:
    """This process's part if every process contributes its own batches, all with the same number of rows."""
    slices = _num_slices(sharding)
    needed: dict[int, set[int]] = {}
    places: dict[jax.Device, tuple[slice, ...]] = dict(of_rank(sharding, 1).devices_indices_map((slices,)))
    for device, index in places.items():
        needed.setdefault(device.process_index, set()).update(range(slices)[index[0]])
    mine = needed[jax.process_index()]
    size = len(mine)
    even = all(len(one) == size and one == set(range(min(one), min(one) + size)) for one in needed.values())
    if not even or any(min(one) % size for one in needed.values()):
        parts = {process: sorted(one) for process, one in sorted(needed.items())}
        raise LoaderError(
            f"the processes need parts {parts} of {slices} of every global batch, which are not equal consecutive "
            "slices, and these batches come from an iterable that cannot choose its rows. Pass a Loader "
            "of a cache, or order the devices of the mesh by process (jax.make_mesh)."
        )
    return Share(index=min(mine) // size, count=slices // size, chosen_by="sharding")
