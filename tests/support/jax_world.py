"""The batches that one process of a JAX world gets from its loaders. For `tests/loader/test_worlds.py`; prints JSON.

python jax_world.py RANK COUNT PORT ROWS DOCUMENTS
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
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.on_device import DataLoader, JaxDataLoader, LambdaDataLoader
from beam_pipes.telemetry import Telemetry

RANK, COUNT, PORT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ROWS = Cache.open(sys.argv[4])["train"]
DOCUMENTS = Cache.open(sys.argv[5])["train"]

FOUND: dict[str, Any] = {}


def truth(array: jax.Array) -> Any:
    """The whole of a global array, as this process sees it once every device has all of it."""
    mesh = array.sharding.mesh  # type: ignore[attr-defined]
    return np.asarray(_replicate(mesh)(array).addressable_data(0)).tolist()


@functools.cache
def _replicate(mesh: Mesh) -> Any:
    return jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))


def batches(loader: Any) -> list[dict[str, Any]]:
    return [{name: truth(array) for name, array in batch.items()} for batch in loader]


def of_own(loader: Any) -> list[Any]:
    """The ids of batches that are this process's alone."""
    return [np.asarray(batch["id"]).tolist() for batch in loader]


def rows(**options: Any) -> Loader:
    return Loader(ROWS, **{"batch_size": 8, "seed": 3, "features": ["x", "id"], **options})


def before_the_world() -> tuple[Loader, Any, Loader]:
    made, under_way = rows(), iter(rows(batch_size=50, epochs=2))
    FOUND["alone"] = [made.host_index, made.host_count, len(next(under_way)["id"])]
    return made, under_way, rows()


def without_a_backend() -> None:
    """Loaders determine their rank before JAX has initialised devices, which would be too early for most programs."""
    loader = rows()
    from jax._src import xla_bridge

    FOUND["share"] = [loader.host_index, loader.host_count, loader.host_batch_size]
    FOUND["backend_was_started"] = xla_bridge.backends_are_initialized()


def two_processes() -> None:
    made, under_way, sharded_later = before_the_world()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK)
    without_a_backend()
    FOUND["made_before"] = of_own(made)
    FOUND["begun_before"] = words_of(lambda: list(under_way))

    devices = np.array(jax.devices()).reshape(2, 2)  # a row for each process
    inside, across = Mesh(devices, ("data", "other")), Mesh(devices.T, ("data", "other"))
    interleaved = Mesh(devices.T.reshape(-1), ("data",))

    def sharded(mesh: Mesh, *spec: Any, **options: Any) -> JaxDataLoader:
        return JaxDataLoader(rows(**options)).shard(NamedSharding(mesh, P(*spec)))

    FOUND["batches"] = {
        "all devices": batches(JaxDataLoader(rows()).shard()),
        "mesh": batches(JaxDataLoader(rows()).shard(inside)),
        "made before the world": batches(JaxDataLoader(sharded_later).shard()),
        "prefetched": batches(JaxDataLoader(rows(workers=1)).shard().prefetch_to_devices()),
        "from a cache": batches(
            DataLoader.from_cache(ROWS, batch_size=8, seed=3, features=["x", "id"]).to_jax().shard()
        ),
        "data by process": batches(sharded(inside, "data")),
        "data within a process": batches(sharded(across, "data")),
        "interleaved": batches(sharded(interleaved, "data")),
        "replicated": batches(sharded(inside)),
        "sequence within a process": batches(sharded(inside, "data", "other")),
        "sequence over processes": batches(sharded(across, "data", "other")),
        "only the sequence": batches(sharded(across, None, "other")),
        "whole batches on each host": batches(sharded(inside, "data", host_count=1)),
        "the share that is needed": batches(sharded(inside, "data", host_index=RANK, host_count=2)),
    }
    FOUND["shares"] = {
        name: [loader.host_index, loader.host_count]
        for name, mesh, spec in [
            ("data by process", inside, ["data"]),
            ("data within a process", across, ["data"]),
            ("interleaved", interleaved, ["data"]),
            ("replicated", inside, []),
        ]
        for loader in [rows()]
        for fed in [JaxDataLoader(loader).shard(NamedSharding(mesh, P(*spec)))]
        if next(iter(fed))
    }
    again = rows()
    for mesh in (inside, across, inside):
        ids = batches(JaxDataLoader(again).shard(NamedSharding(mesh, P("data"))))
        FOUND.setdefault("one loader, other shardings", []).append([batch["id"] for batch in ids])
    padded = rows(batch_size=40, last="pad")
    FOUND["padded"] = [
        {"id": truth(batch["id"]), "valid": truth(batch["valid"])} for batch in JaxDataLoader(padded).shard()
    ]
    FOUND["own batches"] = of_own(JaxDataLoader(rows()))
    FOUND["packed"] = batches(JaxDataLoader(Loader(pack(DOCUMENTS, sequence_length=64), batch_size=4, seed=1)).shard())
    mixture = Mixture([(ROWS, 3), (ROWS, 1)], exhausted="drop")
    FOUND["mixture"] = batches(JaxDataLoader(Loader(mixture, batch_size=8, seed=1)).shard())

    stopped = JaxDataLoader(rows()).shard().prefetch_to_devices()
    iterator = iter(stopped)
    FOUND["before the stop"] = [truth(next(iterator)["id"]) for _ in range(3)]
    FOUND["state"] = stopped.state_dict()
    iterator.close()
    alone = rows(host_count=1)
    next(iter(alone))
    continued = JaxDataLoader(rows(batch_size=4)).shard()
    continued.load_state_dict(alone.state_dict())
    FOUND["continued"] = [batch["id"] for batch in batches(continued)]

    from_cache = functools.partial(DataLoader.from_cache, ROWS, batch_size=8, seed=3, features=["x", "id"])
    mapped = from_cache().map(lambda batch: batch)
    FOUND["batches"]["transformed by tf.data"] = batches(mapped.to_jax().shard())
    pairs = DataLoader.zip((mapped, from_cache(host_count=1)))

    def own(**options: Any) -> Any:
        return [{"x": np.full((2, 4), RANK, np.int32), "n": np.int32(5), **options}]

    for name, mesh, spec in [
        ("by process", inside, ["data", "other"]),
        ("within a process", across, ["data", "other"]),
    ]:
        (batch,) = JaxDataLoader(own()).shard(NamedSharding(mesh, P(*spec)))
        FOUND[f"own parts {name}"] = [list(batch["x"].shape), np.asarray(batch["x"].addressable_data(0)).tolist()]

    tensor = NamedSharding(Mesh(devices.reshape(-1), ("tensor",)), P())
    FOUND["one row for all"] = [
        [batch["id"] for batch in batches(JaxDataLoader(rows(batch_size=1, epochs=1)).shard(tensor))][:3],
        rows(batch_size=1, mesh=tensor).batch_at(1)["id"].tolist(),
    ]

    elsewhere = Mesh(devices[1 - RANK], ("data",))
    ragged = Loader(DOCUMENTS, batch_size=8, seed=2)
    FOUND["ragged"] = batches(JaxDataLoader(ragged).shard())
    values = Loader(DOCUMENTS, batch_size=8, ragged="values")
    told = rows(host_index=1 - RANK, host_count=2)
    FOUND["refused"] = {
        "one row": words_of(lambda: next(iter(rows(batch_size=1)))),
        "one row by its number": words_of(lambda: rows(batch_size=1).batch_at(0)),
        "another share": words_of(lambda: JaxDataLoader(told).shard()),
        "values": words_of(lambda: JaxDataLoader(values).shard()),
        "partial": words_of(lambda: JaxDataLoader(rows(last="partial")).shard()),
        "odd batch": words_of(lambda: JaxDataLoader(rows(batch_size=6)).shard()),
        "no device": words_of(lambda: JaxDataLoader(rows()).shard(elsewhere)),
        "interleaved own": words_of(lambda: JaxDataLoader(own()).shard(interleaved)),
        "two shares": words_of(lambda: pairs.to_jax().shard()),
        "boundaries": words_of(
            lambda: list(
                JaxDataLoader(Loader(pack(DOCUMENTS, sequence_length=64), batch_size=4, cu_seqlens=True)).shard()
            )
        ),
    }
    FOUND["skipped"] = len(next(iter(JaxDataLoader(ragged, skip_keys=["tokens"]).shard()))["tokens"])


def four_processes() -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, RANK)
    mesh = NamedSharding(Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model")), P("data"))
    loader = rows()
    FOUND["batches"] = {"a batch for two processes": batches(JaxDataLoader(loader).shard(mesh))}
    FOUND["share"] = [loader.host_index, loader.host_count]
    part = [{"id": np.arange(2, dtype=np.int32) + 10 * (RANK // 2)}]
    FOUND["own parts"] = batches(JaxDataLoader(part).shard(mesh))
    FOUND["transformed"] = [
        words_of(lambda elements=elements: JaxDataLoader(elements).shard(mesh))
        for elements in (LambdaDataLoader(rows(), lambda batch: batch), Telemetry(rows()), iter(rows()))
    ]
    share = {"host_index": RANK // 2, "host_count": 2}
    FOUND["batches"]["transformed"] = batches(
        JaxDataLoader(LambdaDataLoader(rows(**share), lambda batch: batch)).shard(mesh)
    )


if COUNT == 2:
    two_processes()
else:
    four_processes()
print(json.dumps(FOUND), flush=True)
jax.distributed.shutdown()
