"""Who reads what under a mesh: which rows of each global batch, and which positions of each row.

A *mesh* arranges the devices of all processes along named axes. A *spec* says, as in JAX, over which of them a batch is
divided: its first entry divides the rows, its second one the positions of each row (context parallelism). Over all
other axes, such as those of tensor and pipeline parallelism, the batch is replicated.

    mesh (dp=2, cp=2, tp=2), spec ("dp", "cp"), global batches of 4 rows of 8 places

              cp 0              cp 1
    dp 0   rows 0-1, 0-3     rows 0-1, 4-7      each read by both processes of tp
    dp 1   rows 2-3, 0-3     rows 2-3, 4-7

`mesh_share` derives this from a mesh of torch, JAX or TensorFlow without importing any of them; the result is plain
data, which is pickled with a loader. `SequenceShare` computes the positions, in three orders:

    places 0-7, cp=2         cp 0            cp 1
    "contiguous"             0 1 2 3         4 5 6 7
    "zigzag"                 0 1 6 7         2 3 4 5      as much causal attention for each (Megatron, Llama 3)
    "segments" of 4          0 3 4 7         1 2 5 6      a zigzag in each packed document (Transformer Engine's THD)
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.batches import Batch, ranges
from beam_pipes.loader.order import Indices
from beam_pipes.loader.world import HostSlice

SequenceOrder = Literal["contiguous", "zigzag", "segments"]
ORDERS: tuple[SequenceOrder, ...] = get_args(SequenceOrder)
#: Axes of a mesh for the rows, and for the places of a row: `("dp", "cp")`, `(("replicate", "shard"), None)`.
Spec: TypeAlias = "Sequence[str | Sequence[str] | None]"


@runtime_checkable
class TorchMesh(Protocol):
    """A `torch.distributed.device_mesh.DeviceMesh`."""

    mesh_dim_names: tuple[str, ...] | None

    @property
    def ndim(self) -> int: ...
    def get_coordinate(self) -> Sequence[int] | None: ...
    def size(self, mesh_dim: int | None = None) -> int: ...


@runtime_checkable
class JaxMesh(Protocol):
    """A `jax.sharding.Mesh`."""

    axis_names: tuple[str, ...]

    @property
    def devices(self) -> Array: ...


@runtime_checkable
class JaxSharding(Protocol):
    """A `jax.sharding.NamedSharding`: a mesh with a spec."""

    @property
    def mesh(self) -> object: ...
    @property
    def spec(self) -> Any: ...


@runtime_checkable
class InputContext(Protocol):
    """A `tf.distribute.InputContext`, what `distribute_datasets_from_function` passes to the function."""

    @property
    def input_pipeline_id(self) -> int: ...
    @property
    def num_input_pipelines(self) -> int: ...


AnyMesh: TypeAlias = TorchMesh | JaxMesh | JaxSharding | InputContext


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceShare:
    """Parts `first` to `last - 1` of the `count` parts of each row, in one of the orders above.

    `only` are those of them that are held, ascending, if these leave gaps; empty for all of them.
    """

    first: int
    last: int
    count: int
    order: SequenceOrder = "contiguous"
    only: tuple[int, ...] = ()

    @property
    def held(self) -> Sequence[int]:
        """The parts that this process holds, ascending."""
        return self.only or range(self.first, self.last)

    @property
    def multiple(self) -> int:
        """The length of a row (of each segment, for "segments") must be a multiple of this."""
        return self.count if self.order == "contiguous" else 2 * self.count

    def places(self, length: int) -> Indices:
        """The positions that this process holds of a row with `length` positions, in its order.

        Part 0 of 2, "zigzag": `places(8)` → [0, 1, 6, 7]. Raises `LoaderError` for a length that does not divide, and
        for the order "segments", in which rows differ.
        """
        if length % self.multiple:
            raise LoaderError(f"a row of {length} places does not divide into {self.multiple} equal parts")
        if self.order == "segments":
            raise LoaderError("the places of sequence_order='segments' depend on the documents of each row")
        return self._chunks(np.zeros(1, np.int64), np.array([length], np.int64))

    def cut(self, batch: Batch, bounds: npt.NDArray[np.int32] | None) -> Batch:
        """The batch with this process's positions of each array of rows: {'tokens': (4, 8), 'id': (4,)} → {'tokens':
        (4, 4), …}.

        `bounds` are the segment bounds in the flattened batch, which only the order "segments" needs.
        """
        cut = {name: array for name, array in batch.items() if array.ndim > 1}
        found = dict(batch)
        for name, array in cut.items():
            rows, length = array.shape[:2]
            if self.order == "segments":
                assert bounds is not None
                starts = bounds[:-1].astype(np.int64)
                places = self._chunks(starts, np.diff(bounds).astype(np.int64))
                places = places[np.argsort(places // max(1, length), kind="stable")]  # row by row
                inner = array.shape[2:]
                mine = length // self.count * len(self.held)
                found[name] = array.reshape(rows * length, *inner)[places].reshape(rows, mine, *inner)
            elif self.order == "contiguous" and not self.only:
                part = length // self.count
                found[name] = np.ascontiguousarray(array[:, self.first * part : self.last * part])
            else:
                found[name] = np.take(array, self.places(length), axis=1)
        return found

    def check(self, columns: Mapping[str, Sequence[int | None]]) -> None:
        """Raises `LoaderError` for columns, given the shapes of their rows, that do not divide into these parts."""
        for name, shape in columns.items():
            if not shape:
                continue
            if shape[0] is None:
                raise LoaderError(
                    f"feature {name!r} is as long as the longest row of each batch, which may not be divisible by the "
                    f"{self.multiple} parts that the mesh cuts a sequence into. Pass pad_to={{{name!r}: …}}, or pack "
                    "the rows.",
                    feature=name,
                )
            if shape[0] % self.multiple:
                raise LoaderError(
                    f"feature {name!r} has rows of {shape[0]} places, which do not divide into the {self.multiple} "
                    f"parts that the mesh cuts a sequence into (sequence_order={self.order!r} over {self.count} "
                    f"processes or devices). Use a length that is a multiple of {self.multiple}; a feature that is no "
                    "sequence is left out by features=[…], or made flat by transform=….",
                    feature=name,
                )

    def _chunks(self, starts: Indices, lengths: Indices) -> Indices:
        """This process's positions of stretches, part by part and, within a part, stretch by stretch."""
        found = []
        for part in self.held:
            numbers = [part] if self.order == "contiguous" else [part, self.multiple - 1 - part]
            chunks = lengths // self.multiple
            begins = starts[:, None] + chunks[:, None] * np.array(numbers)
            found.append(ranges(begins.reshape(-1), np.repeat(chunks, len(numbers))))
        return np.concatenate(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshShare:
    """What this process reads under a mesh: its slice of the rows, and its part of each row (None: all of it).

    `mesh` names the mesh and the place in it, for messages: "dp=1 of 2, cp=0 of 2 of torch's DeviceMesh".
    """

    share: HostSlice
    sequence: SequenceShare | None
    mesh: str

    @property
    def line(self) -> str:
        """The line that `Loader.describe` prints."""
        part = self.sequence
        whole = "whole rows" if part is None else f"{part_words(part)} of each row"
        order = "" if part is None or part.order == "contiguous" else f", order {part.order}"
        return f"mesh: {self.mesh}; {whole}{order}"

    def check_batch_size(self, multiple: int) -> None:
        """Raises `LoaderError` if batches, whose rows are a multiple of `rows`, do not divide over the mesh."""
        if multiple % self.share.parts:
            raise LoaderError(
                f"global batches have {multiple} rows, which do not divide into the {self.share.parts} parts of the "
                f"mesh ({self.mesh}). Pass a batch_size, of all processes together, that is a multiple of "
                f"{self.share.parts}; for TokenBatches, multiple_of={self.share.parts}."
            )


class _Axes(NamedTuple):
    """The axes of a mesh with their sizes, and the coordinates of the devices of this process and of each process."""

    sizes: dict[str, int]
    held: Sequence[tuple[int, ...]]
    of_all: Sequence[Sequence[tuple[int, ...]]]
    kind: str

    def parts(self, names: Sequence[str], held: Iterable[tuple[int, ...]] | None = None) -> list[int]:
        """The parts of a dimension over these axes that devices hold (by default this process's), ascending.

        Parts are counted as JAX does, the last axis fastest.
        """
        order = list(self.sizes)
        numbers = set()
        for place in self.held if held is None else held:
            number = 0
            for name in names:
                number = number * self.sizes[name] + place[order.index(name)]
            numbers.add(number)
        return sorted(numbers)

    def count(self, names: Sequence[str]) -> int:
        """The number of parts of a dimension over these axes."""
        return math.prod(self.sizes[name] for name in names)

    def share(self, names: Sequence[str], chosen_by: Literal["mesh", "sharding"]) -> HostSlice:
        """This process's share of batches whose rows are divided over these axes."""
        of_all = [self.parts(names, each) for each in self.of_all]
        return HostSlice.of_parts(self.parts(names), of_all, chosen_by=chosen_by)

    def sequence(self, names: Sequence[str], order: SequenceOrder) -> SequenceShare:
        """This process's parts of rows that are divided over these axes."""
        held = self.parts(names)
        whole = held == list(range(held[0], held[-1] + 1))
        return SequenceShare(
            first=held[0],
            last=held[-1] + 1,
            count=self.count(names),
            order=order,
            only=() if whole else tuple(held),
        )


def mesh_share(
    mesh: AnyMesh | MeshShare | None,
    *,
    spec: Spec | None = None,
    sequence_order: SequenceOrder = "contiguous",
) -> MeshShare | None:
    """What this process reads of batches divided over a mesh by `spec`; None without a mesh.

    A `NamedSharding` has its own spec. A mesh with one axis divides the rows over it.

    Raises `LoaderError` if the mesh lacks an axis, no device of it is in this process, and where mesh, spec and
    order contradict each other.
    """
    choice(sequence_order, of=ORDERS, what="sequence_order", error=LoaderError)
    if mesh is None or isinstance(mesh, MeshShare):
        if mesh is None and spec is not None:
            raise LoaderError(f"spec={_written(spec)} names axes of a mesh, and there is none: pass mesh=… too")
        if mesh is None and sequence_order != "contiguous":
            raise LoaderError(f"sequence_order={sequence_order!r} arranges what a mesh divides: pass mesh=… too")
        return mesh
    if isinstance(mesh, JaxSharding):
        if spec is not None:
            raise LoaderError(
                f"mesh is a NamedSharding, which has the spec {mesh.spec}, and spec={_written(spec)} was given too. "
                "Leave spec out, or pass the mesh alone: mesh=sharding.mesh."
            )
        axes, spec = _axes(mesh.mesh), tuple(mesh.spec)
    else:
        axes = _axes(mesh)
    rows, sequence = _checked(spec, axes)
    share = axes.share(rows, "mesh")
    part = None
    if sequence and axes.count(sequence) > 1:
        part = axes.sequence(sequence, sequence_order)
    elif sequence_order != "contiguous" and not sequence:
        raise LoaderError(
            f"sequence_order={sequence_order!r} arranges the places of a row over an axis of the mesh, and "
            f"spec={_written(spec)} names none for them. Name it second: spec=('data', 'context')."
        )
    return MeshShare(share=share, sequence=part, mesh=_named(axes, [*rows, *sequence]))


def share_of_sharding(sharding: JaxSharding) -> HostSlice:
    """This process's share of the rows of arrays with this sharding."""
    return _axes(sharding.mesh).share(_names((*sharding.spec, None)[0]), "sharding")


def sequence_of_sharding(sharding: JaxSharding) -> SequenceShare:
    """This process's parts of the second axis of arrays with this sharding."""
    return _axes(sharding.mesh).sequence(_names((*sharding.spec, None, None)[1]), "contiguous")


def part_words(part: SequenceShare) -> str:
    """`parts 0 to 1 of 4`, or `parts 0, 2 of 4`, for messages."""
    parts = ", ".join(map(str, part.only)) if part.only else f"{part.first} to {part.last - 1}"
    return f"parts {parts} of {part.count}"


def _axes(mesh: object) -> _Axes:
    if isinstance(mesh, InputContext):
        count = int(mesh.num_input_pipelines)
        one_each = [[(place,)] for place in range(count)]
        mine = one_each[int(mesh.input_pipeline_id)]
        return _Axes({"input_pipeline": count}, mine, one_each, "TensorFlow's InputContext")
    if isinstance(mesh, JaxMesh):
        process = sys.modules["jax"].process_index()
        devices = np.asarray(mesh.devices)
        by_process: dict[int, list[tuple[int, ...]]] = {process: []}
        for place in np.ndindex(devices.shape):
            by_process.setdefault(devices[place].process_index, []).append(place)
        held = by_process[process]
        axes = _Axes(
            dict(zip(mesh.axis_names, devices.shape, strict=True)), held, list(by_process.values()), "JAX's Mesh"
        )
    elif isinstance(mesh, TorchMesh):
        names, found = mesh.mesh_dim_names, mesh.get_coordinate()
        if names is None and mesh.ndim == 1:
            names = ("dp",)
        if names is None:
            raise LoaderError(
                "this DeviceMesh has no names for its dimensions, so a spec cannot say which of them divide a batch. "
                "Pass mesh_dim_names=('dp', 'cp', …) to init_device_mesh."
            )
        sizes = {name: mesh.size(index) for index, name in enumerate(names)}
        one_each = [[place] for place in np.ndindex(*sizes.values())]
        axes = _Axes(sizes, [] if found is None else [tuple(found)], one_each, "torch's DeviceMesh")
    else:
        raise LoaderError(
            "mesh should be a DeviceMesh of torch, a Mesh or NamedSharding of JAX, or the InputContext of a "
            f"tf.distribute strategy, got {type(mesh).__name__}"
        )
    if not axes.held:
        raise LoaderError(
            f"no device of this process is in {axes.kind} {axes.sizes}, so there is nothing for it to read. "
            "Make the mesh of all processes, or create the loader only in those that are in it."
        )
    return axes


def _checked(spec: Spec | None, axes: _Axes) -> tuple[list[str], list[str]]:
    """The axes for the rows and those for the sequence."""
    if spec is None:
        if len(axes.sizes) == 1:
            return list(axes.sizes), []
        raise LoaderError(
            f"which axes of the mesh {axes.sizes} divide the batch? Name those of the rows in spec=('dp',), and a "
            "second one for the places of a row: spec=('dp', 'cp'). Processes along all other axes read the same."
        )
    try:
        entries = [_names(entry) for entry in ([spec] if isinstance(spec, str) else spec)]
    except TypeError as error:
        raise LoaderError(
            f"spec should name axes of the mesh ({', '.join(axes.sizes)}), such as spec={(next(iter(axes.sizes)),)}, "
            f"got {spec!r}"
        ) from error
    while entries and not entries[-1]:
        entries.pop()
    if len(entries) > 2:
        raise LoaderError(
            f"spec={_written(spec)} divides {len(entries)} dimensions, and a loader divides the rows and the places of "
            "a row. Name at most two, and divide the others on the devices."
        )
    used = list(itertools.chain(*entries))
    for name in used:
        if name not in axes.sizes:
            raise LoaderError(
                f"spec={_written(spec)} names the axis {name!r}, which the mesh does not have; it has: "
                f"{', '.join(axes.sizes)}"
            )
        if used.count(name) > 1:
            raise LoaderError(f"spec={_written(spec)} names the axis {name!r} twice; each divides one dimension")
    rows, sequence = (*entries, [], [])[:2]
    return list(rows), list(sequence)


def _names(entry: str | Iterable[str] | None) -> list[str]:
    return [] if entry is None else [entry] if isinstance(entry, str) else list(entry)


def _written(spec: Spec | None) -> str:
    return repr(tuple(spec) if isinstance(spec, list) else spec)


def _named(axes: _Axes, names: Sequence[str]) -> str:
    places = []
    for name in names:
        held, size = axes.parts([name]), axes.sizes[name]
        consecutive = len(held) > 1 and held[-1] - held[0] == len(held) - 1
        found = f"{held[0]} to {held[-1]}" if consecutive else ", ".join(map(str, held))
        places.append(f"{name}={found} of {size}")
    return f"{', '.join(places) or 'replicated'} of {axes.kind}"
