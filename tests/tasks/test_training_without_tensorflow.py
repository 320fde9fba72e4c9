"""JAX and torch train from cached tasks in processes where TensorFlow cannot be imported."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cached_tasks import build_caches, fresh_registries, pair_task, pairs, some_lengths

HERE = Path(__file__).parents[1]

PREPARE = """
import sys


class NoTensorflow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text", "seqio", "apache_beam"):
            raise ImportError(f"{name} is not installed here")


sys.meta_path.insert(0, NoTensorflow())

import numpy as np
from cached_tasks import pair_task, pairs, some_lengths

from beam_pipes import tasks
from beam_pipes.transforms.converters import LMFeatureConverter

tasks.set_global_cache_dirs([sys.argv[1]])
for identity, name in enumerate(["a", "b"]):
    pair_task(name, pairs(identity, some_lengths(identity, 60)))
mixture = tasks.MixtureRegistry.add("ab", [("a", 1), ("b", 2)])
loader = tasks.get_loader("ab", {"targets": 32}, LMFeatureConverter(), batch_size=8, seed=1, num_epochs=None)
"""

JAX = """
import jax
import jax.numpy as jnp

table = jnp.zeros((64, 64))


def loss_of(table, batch):
    inputs, targets = batch["decoder_input_tokens"] % 64, batch["decoder_target_tokens"] % 64
    losses = jax.nn.logsumexp(table[inputs], axis=-1) - table[inputs, targets]
    weights = batch["decoder_loss_weights"]
    return jnp.sum(losses * weights) / jnp.sum(weights)


step = jax.jit(jax.value_and_grad(loss_of))
losses = []
for _, batch in zip(range(30), loader):
    loss, gradient = step(table, batch)
    table -= 20.0 * gradient
    losses.append(float(loss))
"""

TORCH = """
import torch

table = torch.zeros((64, 64), requires_grad=True)
losses = []
for _, batch in zip(range(30), loader):
    batch = {name: torch.from_numpy(array).long() for name, array in batch.items()}
    logits = table[batch["decoder_input_tokens"] % 64]
    each = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), (batch["decoder_target_tokens"] % 64).flatten(), reduction="none"
    )
    weights = batch["decoder_loss_weights"].flatten()
    loss = (each * weights).sum() / weights.sum()
    (gradient,) = torch.autograd.grad(loss, table)
    with torch.no_grad():
        table -= 20.0 * gradient
    losses.append(float(loss.detach()))
"""

CHECK = """
assert losses[0] > 4.1 and losses[-1] < 0.8 * losses[0], losses
assert len(loader.get_state()) < 1000
assert not any(name.partition(".")[0] == "tensorflow" for name in sys.modules)
print("trained")
"""


@pytest.mark.parametrize("framework", [JAX, TORCH], ids=["jax", "torch"])
def test_a_language_model_trains_from_cached_tasks(tmp_path: Path, framework: str) -> None:
    with fresh_registries(tmp_path):
        for identity, name in enumerate(["a", "b"]):
            pair_task(name, pairs(identity, some_lengths(identity, 60)))
        build_caches(tmp_path)

    script = "\n".join(map(textwrap.dedent, (PREPARE, framework, CHECK)))
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=HERE.parent,
        env={"PYTHONPATH": f"{HERE.parent}:{HERE / 'support'}", "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("trained")
