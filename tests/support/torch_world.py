"""The batches that one process of a torch world gets from its loaders. For `tests/loader/test_worlds.py`; prints JSON.

python torch_world.py RANK COUNT PORT PORT PORT PORT ROWS DOCUMENTS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch.distributed as dist
from torch.utils import data
from world_processes import words_of

from beam_pipes.cache import Cache
from beam_pipes.loader import Loader, Mixture, pack, random_access
from beam_pipes.map_style import DataLoader as MapStyleLoader
from beam_pipes.map_style import DistributedSampler, RandomSampler, SimilarLengthBatchSampler
from beam_pipes.on_device import DataLoader, TorchDataLoader
from beam_pipes.tasks.loading.loading_plan import LoadingPlan, TaskRows

RANK, COUNT = int(sys.argv[1]), int(sys.argv[2])
PORTS = sys.argv[3:7]
ROWS = Cache.open(sys.argv[7])["train"]
DOCUMENTS = Cache.open(sys.argv[8])["train"]

FOUND: dict[str, Any] = {}


def rows(**options: Any) -> Loader:
    return Loader(ROWS, **{"batch_size": 8, "seed": 3, "features": ["x", "id"], **options})


def ids(loader: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


class Wrapped(data.IterableDataset):  # type: ignore[type-arg]
    """The usual way to wrap a loader in torch's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


def in_workers(make: Callable[[], Any], workers: int) -> list[list[int]]:
    fed = data.DataLoader(Wrapped(make), batch_size=None, num_workers=workers, multiprocessing_context="fork")
    return ids(fed)


class AsTheyAre:
    """Rows of a task as model batches without a change."""

    def convert_rows(self, batch: Any) -> Any:
        return batch


def planned(**options: Any) -> Loader:
    one = TaskRows(task="rows", rate=1.0, examples=len(ROWS), rows=len(ROWS), totals=None, open=lambda seed: ROWS)
    converter: Any = AsTheyAre()
    plan = LoadingPlan(name="rows", split="train", tasks=(one,), exhaustion="drop", converter=converter)
    return plan.loader(batch_size=8, seed=3, **options)


def join(port: str, rank: int, count: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=count)


made, begun, whole = rows(), iter(rows(batch_size=50, epochs=2)), rows(host_count=1)
mapped_before = MapStyleLoader(ROWS, batch_size=4)
FOUND["alone"] = [made.host_index, made.host_count, len(next(begun)["id"])]
join(PORTS[0], RANK, COUNT)

FOUND["batches"] = {
    "made before the world": ids(made),
    "native": ids(rows()),
    "native with workers": ids(rows(workers=2)),
    "torch": ids(TorchDataLoader(rows())),
    "prefetched": ids(TorchDataLoader(rows(workers=1)).prefetch_to_devices(device="cpu")),
    "from a cache": ids(DataLoader.from_cache(ROWS, batch_size=8, seed=3).to_torch()),
    "over a loader": ids(DataLoader.from_cache(rows()).to_torch()),
    "one by one": [batch["id"].tolist() for batch in (rows().batch_at(step) for step in range(12))],
    "stacked": rows().batches_at(0, 12)["id"].tolist(),
    "of a plan": ids(planned()),
}
FOUND["whole"] = {
    "before": ids(whole),
    "loader": ids(rows(host_count=1)),
    "cache": ids(DataLoader.from_cache(ROWS, batch_size=8, seed=3, host_count=1).to_torch()),
}
FOUND["partial"] = ids(rows(batch_size=40, last="partial"))
FOUND["packed"] = [
    batch["tokens"].tolist() for batch in Loader(pack(DOCUMENTS, sequence_length=64), batch_size=4, seed=1)
]
FOUND["mixture"] = ids(Loader(Mixture([(ROWS, 3), (ROWS, 1)], exhausted="drop"), batch_size=8, seed=1))
FOUND["begun before"] = words_of(lambda: list(begun))
FOUND["too small"] = words_of(lambda: rows(batch_size=1))

fed = TorchDataLoader(rows())
iterator = iter(fed)
FOUND["before the stop"] = [next(iterator)["id"].tolist() for _ in range(3)]
FOUND["state"] = fed.state_dict()
iterator.close()

source = random_access(ROWS, features=["id"])
sampler: Any = data.DistributedSampler(source, shuffle=False)  # type: ignore[arg-type,var-annotated]
FOUND["map style"] = {
    "torch's sampler": sum(ids(data.DataLoader(source, batch_size=5, sampler=sampler)), []),  # type: ignore[arg-type]
    "our sampler": sum(ids(MapStyleLoader(source, 5, sampler=DistributedSampler(source, shuffle=False))), []),
}
lengths = [1] * len(source)
buckets = SimilarLengthBatchSampler(lengths, 10, seed=1)
FOUND["map style"]["buckets"] = sum(
    ids(MapStyleLoader(source, batch_sampler=DistributedSampler(buckets, last="drop"))), []
)
FOUND["map style"]["everything"] = sum(
    ids(MapStyleLoader(source, 5, sampler=DistributedSampler(RandomSampler(len(source)), 1, 0))), []
)
FOUND["map style refused"] = {
    "plain": words_of(lambda: MapStyleLoader(source, batch_size=5)),
    "shuffled": words_of(lambda: MapStyleLoader(source, batch_size=5, shuffle=True)),
    "buckets": words_of(lambda: MapStyleLoader(source, batch_sampler=buckets)),
    "made before": words_of(lambda: iter(mapped_before)),
    "half": words_of(lambda: DistributedSampler(10, rank=0)),
}

FOUND["workers"] = words_of(lambda: in_workers(rows, 2))
FOUND["whole in workers"] = in_workers(lambda: rows(host_count=1, batch_size=50), 1)


class Steps(data.Dataset):  # type: ignore[type-arg]
    """Batches by their number, which torch's sampler divides among its workers."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, step: int) -> Any:
        return self.loader.batch_at(step)


by_number = data.DataLoader(Steps(rows()), batch_size=None, num_workers=2, multiprocessing_context="fork")
FOUND["batches"]["by number in workers"] = ids(by_number)
taken = rows()
FOUND["fork of a share"] = words_of(lambda: in_workers(lambda: taken, 1))

jax.distributed.initialize(f"127.0.0.1:{PORTS[3]}", COUNT, COUNT - 1 - RANK)
FOUND["two worlds"] = words_of(rows)
FOUND["given in two worlds"] = [batch[0] for batch in ids(rows(host_index=RANK, host_count=COUNT))]
jax.distributed.shutdown()

shared = rows()
FOUND["first half"] = [next(iter(shared))["id"].tolist()]
dist.destroy_process_group()
FOUND["after the world"] = ids(shared)
FOUND["after the world, anew"] = [rows().host_index, rows().host_count]
join(PORTS[1 + RANK], 0, 1)
FOUND["another world"] = words_of(lambda: list(shared))
dist.destroy_process_group()

print(json.dumps(FOUND), flush=True)
