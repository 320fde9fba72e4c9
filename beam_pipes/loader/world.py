"""The world of a process: how many processes train together, which one this is, and therefore which rows it reads.

A *world* is what an initialised framework in this process reports: `torch.distributed`, `jax.distributed`, or
TensorFlow as a worker of a cluster. A *share* is the slice of every global batch that a process reads: slice `index`
of `count`. All loaders use this module, so that no two processes of a world read the same rows unless the user says so.

Nothing is imported for this: a framework that is not loaded has not been initialised. Environment variables
(`WORLD_SIZE`, `SLURM_NTASKS`, `TF_CONFIG`) are not read: they also hold for the helper processes that a job starts,
and they state what a launcher intends, not what runs.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Collection, Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError

TENSORFLOW = "TensorFlow's cluster"
JAX, JAX_DISTRIBUTED = "JAX", "jax.distributed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """This process is number `index` of the `count` processes of `framework`."""

    index: int
    count: int
    framework: str

    @property
    def place(self) -> tuple[int, int]:
        """(index, count)."""
        return self.index, self.count

    @property
    def is_jax(self) -> bool:
        """Whether a sharding of JAX may still say which processes read the same rows."""
        return self.framework in (JAX, JAX_DISTRIBUTED)

    def __str__(self) -> str:
        return f"process {self.index} of the {self.count} of {self.framework}"


def known_world() -> World | None:
    """The world in which this process was initialised, or None. Does not start a JAX backend.

    Raises `LoaderError` if two frameworks were initialised and disagree.
    """
    found = [world for world in (_torch_world(), _jax_world(), _tensorflow_world()) if world is not None]
    several = [world for world in found if world.count > 1]
    if not several:
        return found[0] if found else None
    for world in several[1:]:
        if world.place != several[0].place:
            raise LoaderError(
                f"this is {several[0]}, and also {world}: it is unclear which of them share the rows. Pass "
                "host_index=… and host_count=…."
            )
    return several[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostSlice:
    """Slice `index` of the `count` slices of every global batch.

    chosen_by: the "options" of a loader, a "mesh" or a "sharding", so that the world is not asked; else the "world".
    world: the world it was taken from; None if it was chosen otherwise, or there was no world.
    slices: the parts of the batch in each slice, as devices in any order hold them: `((0, 2), (1, 3))`; empty if the
        slices are equal and one follows the other.
    """

    index: int
    count: int
    chosen_by: Literal["options", "mesh", "sharding", "world"] = "world"
    world: World | None = None
    slices: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of_parts(
        cls, mine: Collection[int], of_all: Iterable[Collection[int]], *, chosen_by: Literal["mesh", "sharding"]
    ) -> HostSlice:
        """The share of a process that holds the parts `mine` of a batch, where all processes hold `of_all`.

        Processes with the same parts have the same share. {0, 2} of {0, 2} and {1, 3} → slice 0 of 2.
        """
        slices = sorted({tuple(sorted(parts)) for parts in of_all})
        index = slices.index(tuple(sorted(mine)))
        in_order = [part for parts in slices for part in parts]
        even = len({len(parts) for parts in slices}) == 1 and in_order == list(range(len(in_order)))
        return cls(index=index, count=len(slices), chosen_by=chosen_by, slices=() if even else tuple(slices))

    @property
    def is_preliminary(self) -> bool:
        """Whether `JaxDataLoader.shard` may replace it before anything is read."""
        return self.world is not None and self.world.is_jax

    @functools.cached_property
    def parts(self) -> int:
        """The number of equal parts that a global batch has to divide into."""
        return 1 + max(max(parts) for parts in self.slices) if self.slices else self.count

    @classmethod
    def of_options(cls, host_index: int | None, host_count: int | None) -> HostSlice:
        """The share in the options of a loader, or else that of the world.

        Raises `LoaderError` if one of them is missing, or if TensorFlow may also divide the rows.
        """
        if host_count is not None and (host_index is not None or host_count == 1):
            return cls(index=int(host_index or 0), count=int(host_count), chosen_by="options")
        if host_count is not None:
            raise LoaderError(
                f"host_count={host_count} was given without host_index, which says whose slice of each global batch "
                f"this process reads. Pass host_index=…, 0 to {host_count - 1}, or leave both out: under "
                "torch.distributed and jax.distributed a loader takes them from there."
            )
        if host_index is not None:
            raise LoaderError(
                f"host_index={host_index} was given without host_count, the number of hosts. Pass host_count=…, or "
                "leave both out: under torch.distributed and jax.distributed a loader takes them from there."
            )
        return cls.of_world(known_world())

    @classmethod
    def of_world(cls, world: World | None) -> HostSlice:
        """The share of this process in a world; everything without a world."""
        if world is None:
            return cls(index=0, count=1)
        if world.framework == TENSORFLOW and world.count > 1:
            raise LoaderError(
                f"this is {world}, and who divides the rows decides what a loader has to give. Within "
                "strategy.distribute_datasets_from_function(lambda context: …) pass mesh=context; for "
                "strategy.experimental_distribute_dataset and Model.fit, which divide the elements themselves, pass "
                "host_count=1."
            )
        return cls(index=world.index, count=world.count, world=world)

    def now(self) -> HostSlice:
        """This share, or that of a world that was initialised after it was taken.

        Raises `LoaderError` in a different world than the one it was taken in.
        """
        if self.chosen_by != "world":
            return self
        world = known_world()
        if world is None or (self.world is not None and world.place == self.world.place):
            return self  # where the world has ended, its share stays
        if self.world is not None:
            raise LoaderError(
                f"this loader took its share as {self.world}, and this is {world} now. Create the loader again, and "
                "restore its state: load_state_dict(state) continues exactly, on any number of processes."
            )
        return HostSlice.of_world(world)

    def refuse_copies(self) -> None:
        """Raises `LoaderError` within a worker process of torch's DataLoader: each would give all of these batches.

        Explicit indices are accepted: the user may have divided the rows among the workers.
        """
        data = sys.modules.get("torch.utils.data")
        worker = None if data is None or not hasattr(data, "get_worker_info") else data.get_worker_info()
        if worker is None or self.chosen_by not in ("world", "mesh"):
            return
        raise LoaderError(
            f"this loader is read in worker process {worker.id} of {worker.num_workers} of torch's DataLoader, each of "
            "which would give the same batches. Iterate over the loader itself, with threads of its own: "
            "TorchDataLoader(Loader(…, workers=2)); or give torch's DataLoader random_access(split), whose examples "
            "its sampler deals out. host_count=1 gives every worker all batches."
        )

    def is_same_slice(self, other: HostSlice) -> bool:
        """Whether both are the same slice, whatever their origin."""
        return (self.index, self.count, self.slices) == (other.index, other.count, other.slices)

    def places_of(self, rows: int) -> npt.NDArray[np.int64]:
        """The rows of a global batch in this share, ascending."""
        if not self.slices:
            return np.arange(self.index * rows // self.count, (self.index + 1) * rows // self.count)
        mine = self.slices[self.index]
        return np.concatenate([np.arange(part * rows // self.parts, (part + 1) * rows // self.parts) for part in mine])

    def holder_of(self, place: int, rows: int) -> tuple[int, int]:
        """The slice that holds a row of a global batch, and its index there: the first of several that hold it."""
        part = ((place + 1) * self.parts - 1) // rows
        if not self.slices:
            return part, place - part * rows // self.parts
        for index, parts in enumerate(self.slices):
            if part in parts:
                share = dataclasses.replace(self, index=index)
                return index, int(np.searchsorted(share.places_of(rows), place))
        raise AssertionError(f"no process holds part {part}")  # a mesh has a device at every place

    def __str__(self) -> str:
        """`slice 1 of 4`, or `parts 0, 2 of 4`, for messages."""
        if not self.slices:
            return f"slice {self.index} of {self.count}"
        return f"parts {', '.join(map(str, self.slices[self.index]))} of {self.parts}"


EVERYTHING = HostSlice(index=0, count=1)


def ranges_in_words(rows: npt.NDArray[np.int64]) -> str:
    """Ascending numbers of rows, for messages: `4 to 7`; `0 to 1, 4 to 5`; `none`."""
    ranges = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return ", ".join(f"{each[0]} to {each[-1]}" for each in ranges if len(each)) or "none"


def _torch_world() -> World | None:
    distributed = sys.modules.get("torch.distributed")
    # A module that another thread is still importing has initialised nothing.
    if distributed is None or not hasattr(distributed, "is_initialized"):
        return None
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return World(index=distributed.get_rank(), count=distributed.get_world_size(), framework="torch.distributed")


def _jax_world() -> World | None:
    """From the state of `jax.distributed`: `jax.process_count()` would start a backend, with all its devices.

    If a backend has been started, it is queried: on TPUs it knows other processes without `jax.distributed`.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and state.client is not None:
        return World(index=state.process_id, count=state.num_processes, framework=JAX_DISTRIBUTED)
    bridge = sys.modules.get("jax._src.xla_bridge")
    jax = sys.modules.get("jax")
    if bridge is None or jax is None:
        return None
    if not hasattr(bridge, "backends_are_initialized") or not hasattr(jax, "process_count"):
        return None
    if not bridge.backends_are_initialized() or jax.process_count() == 1:
        return None
    return World(index=jax.process_index(), count=jax.process_count(), framework=JAX)


def _tensorflow_world() -> World | None:
    """From the server that `MultiWorkerMirroredStrategy` started: the strategy in scope belongs to another thread."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    server = getattr(context, "_collective_ops_server_def", None)
    if server is None:
        return None
    # Workers are counted chief first, as `tf.distribute.InputContext.input_pipeline_id` counts them.
    workers = [
        (job.name, task)
        for name in ("chief", "worker")
        for job in server.cluster.job
        if job.name == name
        for task in sorted(job.tasks)
    ]
    me = (server.job_name, server.task_index)
    if me not in workers:
        return None  # an evaluator, which reads alone
    return World(index=workers.index(me), count=len(workers), framework=TENSORFLOW)
