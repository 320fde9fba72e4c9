"""The batches that one process of a torch mesh gets from its loaders. For `tests/loader/test_meshes.py`; prints JSON.

python torch_mesh.py RANK 4 PORT DOCUMENTS ROWS
"""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

import torch._dynamo  # noqa: F401  # what torch imports when it needs it: once for all ranks
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from world_processes import words_of

from beam_pipes.cache import Cache
from beam_pipes.loader import Loader, TokenBatches, pack
from beam_pipes.on_device import DataLoader, TorchDataLoader

RANK, COUNT, PORT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
DOCUMENTS = Cache.open(sys.argv[4])["train"]
ROWS = Cache.open(sys.argv[5])["train"]
PLAN = pack(DOCUMENTS, sequence_length=64, segment_multiple=4)
FOUND: dict[str, Any] = {}


def batches(loader: Any) -> list[dict[str, Any]]:
    return [{name: array.tolist() for name, array in batch.items()} for batch in loader]


def packed(mesh: Any, spec: Any = None, **options: Any) -> Loader:
    return Loader(PLAN, batch_size=4, seed=1, mesh=mesh, spec=spec, **options)


dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=RANK, world_size=COUNT)
dp_cp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
dp_tp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
hsdp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
# Here too: groups connect while all ranks wait for each other, and none is late or gone.
unnamed, line = init_device_mesh("cpu", (2, 2)), init_device_mesh("cpu", (4,))

FOUND["orders"] = {
    order: batches(packed(dp_cp, ("dp", "cp"), sequence_order=order, cu_seqlens=order == "segments"))
    for order in ("contiguous", "zigzag", "segments")
}
FOUND["tensor parallel"] = batches(packed(dp_tp, "dp"))
FOUND["pipeline parallel"] = batches(packed(dp_tp["dp"]))
FOUND["replicate and shard"] = batches(packed(hsdp, (("replicate", "shard"),)))
FOUND["shard and replicate"] = batches(packed(hsdp, (("shard", "replicate"),)))
FOUND["only the sequence"] = batches(packed(dp_cp, (None, "cp")))
FOUND["as tensors"] = batches(TorchDataLoader(packed(dp_cp, ("dp", "cp"))))
FOUND["from a cache"] = batches(
    DataLoader.from_cache(PLAN, batch_size=4, seed=1, mesh=dp_cp, spec=("dp", "cp")).to_torch()
)
pickled = packed(dp_cp, ("dp", "cp"), sequence_order="zigzag")
next(iter(pickled))
FOUND["pickled"] = batches(pickle.loads(pickle.dumps(pickled)))
FOUND["described"] = packed(dp_cp, ("dp", "cp"), sequence_order="zigzag").describe().splitlines()[2:4]
share = packed(dp_cp, ("dp", "cp"), sequence_order="zigzag").sequence_share
FOUND["places"] = None if share is None else share.places(8).tolist()

FOUND["refused"] = {
    "host options": words_of(lambda: packed(dp_cp, ("dp", "cp"), host_index=0, host_count=2)),
    "no spec": words_of(lambda: packed(dp_cp)),
    "unknown axis": words_of(lambda: packed(dp_cp, ("dp", "ep"))),
    "axis twice": words_of(lambda: packed(dp_cp, ("dp", "dp"))),
    "three": words_of(lambda: packed(dp_cp, ("dp", None, "cp"))),
    "order alone": words_of(lambda: packed(dp_cp, ("dp",), sequence_order="zigzag")),
    "unknown order": words_of(lambda: packed(dp_cp, ("dp", "cp"), sequence_order="striped")),
    "odd batch": words_of(lambda: Loader(PLAN, batch_size=5, mesh=dp_cp, spec=("dp", "cp"))),
    "token batches": words_of(
        lambda: Loader(DOCUMENTS, batch_size=TokenBatches(max_tokens=90), mesh=dp_cp, spec=("dp",))
    ),
    "ragged": words_of(lambda: Loader(DOCUMENTS, batch_size=4, mesh=dp_cp, spec=("dp", "cp"))),
    "values": words_of(lambda: Loader(DOCUMENTS, batch_size=4, ragged="values", mesh=dp_cp, spec=("dp", "cp"))),
    "length": words_of(lambda: Loader(DOCUMENTS, batch_size=4, pad_to=63, mesh=dp_cp, spec=("dp", "cp"))),
    "segments": words_of(
        lambda: Loader(
            pack(DOCUMENTS, sequence_length=64),
            batch_size=4,
            mesh=dp_cp,
            spec=("dp", "cp"),
            sequence_order="segments",
        )
    ),
    "transformed": words_of(
        lambda: packed(dp_cp, ("dp", "cp"), transform=lambda batch: {"three": batch["tokens"][:, :3]})
    ),
    "unnamed": words_of(lambda: packed(unnamed, ("dp",))),
    "a number": words_of(lambda: packed(dp_cp, 5)),
    "numbers": words_of(lambda: packed(dp_cp, (0, 1))),
}
one_dimension = packed(line, None)
FOUND["one dimension"] = [one_dimension.host_index, one_dimension.host_count]
print(json.dumps(FOUND), flush=True)
dist.destroy_process_group()
