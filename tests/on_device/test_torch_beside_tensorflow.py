"""TensorFlow feeds the loader and torch trains, in one process."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

TRAINING = """
import numpy as np
from beam_pipes import DataLoader

batches = list(DataLoader(lambda: ({"x": np.ones(3, np.float32)} for _ in range(4))).batch(2).to_torch())
import torch

weight = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.5)
for batch in batches:
    optimizer.zero_grad()
    (batch["x"] @ weight - 1).square().mean().backward()
    optimizer.step()
print(weight.tolist())
"""


def test_an_optimizer_can_be_made_after_tensorflow_was_loaded() -> None:
    ran = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, timeout=300)

    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split() == ["[-1.0,", "-1.0,", "-1.0]"]  # 0 → 1 → -1


def test_the_other_order_is_told_before_it_aborts_where_there_is_a_triton() -> None:
    program = "import tensorflow\nimport torch\nfrom beam_pipes.on_device import TorchDataLoader"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)

    assert ran.returncode == 0, ran.stderr[-2000:]
    found = find_spec("triton") is not None
    assert ("torch's first optimizer will abort this process" in ran.stderr) is found
    assert ("Put `import torch._dynamo` before the first import of tensorflow" in ran.stderr) is found
