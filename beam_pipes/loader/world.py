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
import sys
from typing import Literal

from beam_pipes.errors import LoaderError

TENSORFLOW = "TensorFlow's cluster"


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
class Share:
    """Slice `index` of the `count` slices of every global batch.

    chosen_by: the "options" of a loader, a "mesh" or a "sharding", so that the world is not asked; else the "world".
    world: the world it was taken from; None if it was chosen otherwise, or there was no world.
    """

    index: int
    count: int
    chosen_by: Literal["options", "mesh", "sharding", "world"] = "world"
    world: World | None = None

    @classmethod
    def of_options(cls, host_index: int | None, host_count: int | None) -> Share:
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
    def of_world(cls, world: World | None) -> Share:
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

    def now(self) -> Share:
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
        return Share.of_world(world)

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

    def is_same_slice(self, other: Share) -> bool:
        """Whether both are the same slice, whatever their origin."""
        return (self.index, self.count) == (other.index, other.count)

    def slice_of(self, rows: int) -> tuple[int, int]:
        """The rows of a global batch in this share: the first one, and the end."""
        return self.index * rows // self.count, (self.index + 1) * rows // self.count


def smallest_share(first: int, last: int, rows: int) -> Share:
    """The smallest of equal slices of `rows` rows with those from `first` up to `last`: 4, 8 of 16 → slice 1 of 4.

    Rows that are not such a slice, 4 to 10 of 16, are in a larger one; ultimately in that of all rows.
    """
    for count in range(rows // max(1, last - first), 1, -1):
        if rows % count:
            continue
        share = Share(index=first * count // rows, count=count, chosen_by="sharding")
        begin, end = share.slice_of(rows)
        if begin <= first and last <= end:
            return share
    return Share(index=0, count=1, chosen_by="sharding")


def _torch_world() -> World | None:
    distributed = sys.modules.get("torch.distributed")
    # A module that is still being imported by another thread has initialised nothing.
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
        return World(index=state.process_id, count=state.num_processes, framework="jax.distributed")
    bridge = sys.modules.get("jax._src.xla_bridge")
    jax = sys.modules.get("jax")
    if bridge is None or jax is None:
        return None
    if not hasattr(bridge, "backends_are_initialized") or not hasattr(jax, "process_count"):
        return None
    if not bridge.backends_are_initialized() or jax.process_count() == 1:
        return None
    return World(index=jax.process_index(), count=jax.process_count(), framework="JAX")


def _tensorflow_world() -> World | None:
    """From the server that `MultiWorkerMirroredStrategy` has started: the strategy in scope is another thread's."""
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
