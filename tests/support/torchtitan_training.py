"""torchtitan's trainer over caches, on the CPU, in as many processes as it has ranks.

    python -m tests.support.torchtitan_training '[{"ranks": 4, "folder": "a", "shares": {"b/train": 1}, "steps": 9}]'

writes the losses that each rank logs to `a/losses.0`, …; with `"continues": "b"` it begins with the first checkpoint of
another one. `tests/examples/test_torchtitan.py` starts it, in the environment with torchtitan.

torchtitan asks torch for the accelerator, and takes CUDA where there is none. Here it is told "cpu", for which torch
has no statistics of memory and no numbers of devices: these are given. Everything else is torchtitan's own.
"""

# ruff: noqa: E402 (torch is prepared before torchtitan is imported)

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(USE_TF="0", OMP_NUM_THREADS="1")
sys.modules["tensorflow"] = None  # its LLVM and Triton's abort a process that has both

import torch
import torch._utils
import torch.distributed
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.__dict__.update(
    get_device_name=lambda device=None: "CPU",
    get_device_properties=lambda device=None: SimpleNamespace(total_memory=1 << 30),
    reset_peak_memory_stats=lambda: None,
    empty_cache=lambda: None,
    memory_stats=lambda device=None: {},
)

from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import TrainingConfig
from torchtitan.config.configs import CommConfig, DebugConfig
from torchtitan.distributed import utils as distributed
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.tools.logging import init_logger
from torchtitan.trainer import Trainer

from examples.torchtitan_loader import CacheDataLoader

distributed.set_pg_timeouts = lambda **_: None  # its barrier numbers the devices
set_factor = FSDPModule.set_gradient_divide_factor


def set_factor_for_gloo(module: Any, factor: float) -> None:
    """Gloo adds gradients, and does not multiply them while it does."""
    set_factor(module, factor)
    module.set_force_sum_reduction_for_comms(True)


FSDPModule.set_gradient_divide_factor = set_factor_for_gloo

GLOBAL_ROWS = 12
INTERVAL = 3  # steps between checkpoints


class NoTokenizer(BaseTokenizer):
    """The cache holds token ids."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **_: object) -> None:
        super().__init__()

    def encode(self, *args: object, **kwargs: object) -> list[int]:
        raise NotImplementedError

    def decode(self, *args: object, **kwargs: object) -> str:
        raise NotImplementedError

    def get_vocab_size(self) -> int:
        return 2048


def config_of(shares: dict[str, float], *, ranks: int, folder: str, steps: int) -> Any:
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:1]
    # Those that look at the boundaries of documents have no backward pass on a CPU.
    spec.model.layers[0].attention.inner_attention = ScaledDotProductAttention.Config()
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size),
        model_spec=spec,
        dump_folder=folder,
        tokenizer=NoTokenizer.Config(),
        optimizer=default_adamw(lr=1e-3),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1, min_lr_factor=1.0),  # whatever the number of steps
        training=TrainingConfig(
            local_batch_size=GLOBAL_ROWS // ranks,
            seq_len=64,
            steps=steps,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        dataloader=CacheDataLoader.Config(shares=shares, epochs=1),
        metrics=MetricsProcessor.Config(log_freq=1),
        checkpoint=CheckpointManager.Config(enable=True, interval=INTERVAL, last_save_model_only=False),
        comm=CommConfig(trace_buf_size=0),
        debug=DebugConfig(seed=1),
    )


def train(rank: int, asked: dict[str, Any], port: int) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": asked["ranks"], "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in place.items()}})
    init_logger()
    trainer = config_of(**asked).build()
    losses: dict[int, float] = {}
    log = trainer.metrics_processor.log

    def recorded(step: int, loss: float, *args: Any, **kwargs: Any) -> None:
        losses[step] = loss
        log(step, loss, *args, **kwargs)

    trainer.metrics_processor.log = recorded
    trainer.train()
    trainer.close()
    Path(asked["folder"], f"losses.{rank}").write_text(json.dumps(losses))
    torch.distributed.destroy_process_group()


def main() -> None:
    """Runs one training after the other; its ranks are forked, as importing torchtitan takes most of the time."""
    for asked in json.loads(sys.argv[1]):
        if other := asked.pop("continues", None):
            first = f"checkpoint/step-{INTERVAL}"
            shutil.copytree(f"{other}/{first}", f"{asked['folder']}/{first}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(asked["ranks"]):
            child = os.fork()
            if not child:
                train(rank, asked, port)
                sys.stdout.flush()
                os._exit(0)
            children.append(child)
        failed = [os.waitpid(child, 0)[1] for child in children]
        if any(failed):
            sys.exit(f"ranks of {asked} ended with {failed}")


if __name__ == "__main__":
    main()
