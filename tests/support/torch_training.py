"""Some training steps on one process of a torch world. For `tests/loader/test_meshes.py`; prints JSON.

python torch_training.py RANK COUNT PORT ROWS FROM TO DIRECTORY

Trains a linear model with DistributedDataParallel, and another with FSDP2, from step FROM to step TO, beginning with
what the last process of rank 0 left in DIRECTORY: the models, and the states of their loaders.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # torch imports it on demand: here once for all ranks
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from beam_pipes.loader import Loader
from beam_pipes.on_device import TorchDataLoader

RANK, COUNT, PORT, ROWS = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
FIRST, LAST, DIRECTORY = int(sys.argv[5]), int(sys.argv[6]), Path(sys.argv[7])


def trained(kind: str, wrapped: Callable[[Any], Any], mesh: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model: Any = torch.nn.Linear(4, 3)
    batches = TorchDataLoader(Loader(ROWS, batch_size=12, epochs=None, seed=3, features=["x", "id"], mesh=mesh))
    if FIRST:
        model.load_state_dict(torch.load(DIRECTORY / f"{kind}.pt"))
        batches.load_state_dict(json.loads((DIRECTORY / f"{kind}.json").read_text()))
    model = wrapped(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    losses, ids = [], []
    for _, batch in zip(range(FIRST, LAST), batches, strict=False):
        loss = model(batch["x"].float() / 100).square().mean()
        optimizer.zero_grad()
        loss.backward()  # both kinds average the gradients of their equal parts
        optimizer.step()
        everywhere = loss.detach().clone()
        dist.all_reduce(everywhere)
        losses.append(float(everywhere) / COUNT)
        ids.append(batch["id"].tolist())
    state = getattr(model, "module", model).state_dict()
    whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()}
    if RANK == 0:
        torch.save(whole, DIRECTORY / f"{kind}.pt")
        (DIRECTORY / f"{kind}.json").write_text(json.dumps(batches.state_dict()))
    return {"losses": losses, "ids": ids}


dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=RANK, world_size=COUNT)
devices = init_device_mesh("cpu", (COUNT,), mesh_dim_names=("dp",))
found = {
    "DistributedDataParallel": trained("ddp", DistributedDataParallel, devices),
    "FSDP2": trained("fsdp", functools.partial(fully_shard, mesh=devices), devices),
}
print(json.dumps(found), flush=True)
dist.barrier()
dist.destroy_process_group()
