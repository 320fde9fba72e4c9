"""The batches that one worker of a TensorFlow cluster gets from its loaders. For `tests/loader/test_worlds.py`; prints
JSON.

python tensorflow_world.py RANK COUNT PORT PORT ROWS
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

RANK, COUNT = int(sys.argv[1]), int(sys.argv[2])
ADDRESSES = [f"127.0.0.1:{port}" for port in sys.argv[3 : 3 + COUNT]]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ADDRESSES}, "task": {"type": "worker", "index": RANK}})

import tensorflow as tf  # noqa: E402
from world_processes import words_of  # noqa: E402

from beam_pipes.cache import Cache  # noqa: E402
from beam_pipes.loader import Loader  # noqa: E402
from beam_pipes.map_style import DistributedSampler  # noqa: E402
from beam_pipes.on_device import DataLoader  # noqa: E402

ROWS = Cache.open(sys.argv[3 + COUNT])["train"]
OPTIONS: dict[str, Any] = {"batch_size": 8, "seed": 3, "features": ["x", "id"]}
FOUND: dict[str, Any] = {}


def own(dataset: Any) -> list[list[int]]:
    """The ids that this worker's replicas get, step by step."""
    steps = [strategy.experimental_local_results(batch["id"]) for batch in dataset]
    return [[int(index) for replica in step for index in replica.numpy()] for step in steps]


FOUND["of variables alone"] = [Loader(ROWS, **OPTIONS).host_index, Loader(ROWS, **OPTIONS).host_count]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
FOUND["refused"] = {
    "loader": words_of(lambda: Loader(ROWS, **OPTIONS)),
    "sampler": words_of(lambda: DistributedSampler(10)),
    "cache": words_of(lambda: DataLoader.from_cache(ROWS, **OPTIONS)),
}


def of_context(context: Any) -> Any:
    share = {"host_index": context.input_pipeline_id, "host_count": context.num_input_pipelines}
    return DataLoader.from_cache(ROWS, **OPTIONS, **share).dataset


def of_mesh(context: Any) -> Any:
    return DataLoader.from_cache(ROWS, **OPTIONS, mesh=context).dataset


FOUND["from a function"] = own(strategy.distribute_datasets_from_function(of_context))
FOUND["from a mesh"] = own(strategy.distribute_datasets_from_function(of_mesh))
FOUND["divided by the strategy"] = own(
    strategy.experimental_distribute_dataset(DataLoader.from_cache(ROWS, **OPTIONS, host_count=1).dataset)
)
print(json.dumps(FOUND), flush=True)
