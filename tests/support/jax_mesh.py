"""The batches that one process of a JAX mesh gets from its loaders. For `tests/loader/test_meshes.py`; prints JSON.

python jax_mesh.py RANK 4 PORT DOCUMENTS, with two devices in each process
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from world_processes import words_of

from beam_pipes.cache import Cache
from beam_pipes.loader import Loader, SequenceShare, pack
from beam_pipes.on_device import JaxDataLoader

RANK, COUNT, PORT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
DOCUMENTS = Cache.open(sys.argv[4])["train"]
FOUND: dict[str, Any] = {}

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK)
PLAN = pack(DOCUMENTS, sequence_length=64, segment_multiple=16)
DEVICES = np.array(jax.devices())


def truth(array: jax.Array) -> Any:
    """The whole of a global array, as this process sees it once every device has all of it."""
    mesh = array.sharding.mesh  # type: ignore[attr-defined]
    return np.asarray(_replicate(mesh)(array).addressable_data(0)).tolist()


@functools.cache
def _replicate(mesh: Mesh) -> Any:
    """One function for all batches, compiled once for each shape."""
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))


def loader(sharding: NamedSharding | Mesh, **options: Any) -> Loader:
    return Loader(PLAN, batch_size=8, seed=1, mesh=sharding, **options)


MESHES = {
    "data": NamedSharding(Mesh(DEVICES, ("data",)), P("data")),
    "context within a process": NamedSharding(Mesh(DEVICES.reshape(4, 2), ("data", "context")), P("data", "context")),
    "context over processes": NamedSharding(Mesh(DEVICES.reshape(2, 4), ("data", "context")), P("data", "context")),
    "context and tensor": NamedSharding(
        Mesh(DEVICES.reshape(2, 2, 2), ("data", "context", "tensor")), P("data", "context")
    ),
    "tensor": NamedSharding(Mesh(DEVICES.reshape(2, 4), ("data", "tensor")), P("data")),
}
for name, sharding in MESHES.items():
    cut = len(sharding.spec) > 1
    for order in ("contiguous", "zigzag", "segments") if cut else ("contiguous",):
        own = loader(sharding, sequence_order=order)
        part = own.sequence_share
        FOUND[f"{name}, {order}"] = {
            "share": [own.host_index, own.host_count],
            "parts": None if part is None else [part.first, part.last, part.count],
            "local": next(iter(loader(sharding, sequence_order=order)))["tokens"].tolist(),
            "global": [truth(batch["tokens"]) for batch in JaxDataLoader(own).shard(sharding)],
        }
by_mesh = loader(MESHES["context and tensor"].mesh, spec=("data", "context"))
FOUND["mesh and spec"] = [
    by_mesh.host_index,
    by_mesh.host_count,
    by_mesh.sequence_share == loader(MESHES["context and tensor"]).sequence_share,
]


def in_any_order(number: int) -> str:
    """The problems with batches under a mesh of devices in random order, over one to three axes."""
    draw = np.random.default_rng(number)
    shape = [(8,), (2, 4), (4, 2), (2, 2, 2)][number % 4]
    axes = draw.permutation(["a", "b", "c"][: len(shape)]).tolist()
    divided = int(draw.integers(0, len(axes) + 1))
    rows, places = axes[:divided], axes[divided : int(draw.integers(divided, len(axes) + 1))]
    order = ["contiguous", "zigzag"][int(draw.integers(2))] if places else "contiguous"
    # The local parts of a process that JAX expects are in the order of the global array.
    mesh = Mesh(draw.permutation(DEVICES).reshape(shape), tuple("abc"[: len(shape)]))
    sharding = NamedSharding(mesh, P(tuple(rows) or None, tuple(places) or None))
    made = loader(sharding, sequence_order=order)
    parts = 1 if made.sequence_share is None else made.sequence_share.count
    whole = SequenceShare(first=0, last=parts, count=parts, order=order)  # type: ignore[arg-type]
    expected = Loader(PLAN, batch_size=8, seed=1, host_count=1).batch_at(2)["tokens"][:, whole.places(64)]
    local = made.batch_at(2)["tokens"]
    of_device = sharding.shard_shape((8, 64))[0]
    held = {index[0].indices(8)[0] for index in sharding.addressable_devices_indices_map((8, 64)).values()}
    if len(local) != of_device * len(held) or len(local) != made.host_batch_size:
        return f"{number}: {len(local)} rows of {len(held)} parts"
    steps = iter(JaxDataLoader(loader(sharding, sequence_order=order)).shard(sharding))
    by_shard = [next(steps) for _ in range(3)][-1]["tokens"]
    alone = iter(JaxDataLoader(Loader(PLAN, batch_size=8, seed=1)).shard(sharding))
    arrays = {
        "as local data": jax.make_array_from_process_local_data(sharding, local, expected.shape),
        "sharded": by_shard,
        **({"sharded alone": [next(alone) for _ in range(3)][-1]["tokens"]} if order == "contiguous" else {}),
    }
    for name, array in arrays.items():
        if any(part.data.tolist() != expected[part.index].tolist() for part in array.addressable_shards):
            return f"{number}: {name}, {sharding}"
    return ""


FOUND["in any order"] = [wrong for number in range(32) if (wrong := in_any_order(number))]
alternating = loader(Mesh(DEVICES.reshape(2, 4).T.reshape(-1), ("data",)))
FOUND["alternating"] = [
    str(alternating.share),
    [line for line in alternating.describe().splitlines() if "rocess:" in line or "mesh:" in line],
]
FOUND["refused"] = {
    "two specs": words_of(lambda: loader(MESHES["data"], spec=("data",))),
    "another sharding": words_of(lambda: JaxDataLoader(loader(MESHES["context over processes"])).shard(MESHES["data"])),
    "elsewhere": words_of(lambda: loader(Mesh(DEVICES[2 * ((RANK + 1) % COUNT) :][:2], ("data",)))),
}
print(json.dumps(FOUND), flush=True)
jax.distributed.shutdown()
