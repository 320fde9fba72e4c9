"""`model.fit(DataLoader.from_cache(…))`, under each backend of Keras; a backend is chosen once for a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_pipes import FeatureSpec, write_cache

PROGRAM = """
import sys
import numpy as np
import keras
from beam_pipes import DataLoader
from beam_pipes.errors import LoaderError

loader = DataLoader.from_cache(sys.argv[1], batch_size=8, seed=1)
pairs = loader.map(lambda batch: (batch["x"], batch["y"]))
seen = []

class Seen(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        loader.set_epoch(epoch)  # Keras has looked at a batch before, with some backends

    def on_epoch_end(self, epoch, logs):
        seen.append((epoch, loader.epoch, logs["loss"], logs["val_loss"]))

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.3), "mse")
validation = DataLoader.from_cache(sys.argv[1], batch_size=8, last="partial")
validation = validation.map(lambda batch: (batch["x"], batch["y"]))
history = model.fit(pairs, epochs=12, validation_data=validation, callbacks=[Seen()], verbose=0)
assert isinstance(loader, DataLoader) and type(loader) is DataLoader
print(keras.backend.backend(), history.params["steps"], [epoch for _, epoch, _, _ in seen])
print(seen[-1][2] < 0.05 * seen[0][2], seen[-1][3] < 0.05 * seen[0][3], model.evaluate(pairs, verbose=0) < seen[0][2])

class OfDicts(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, batch):
        return self.dense(batch["x"])

print(OfDicts().predict(loader, verbose=0).shape)
try:
    model.fit(pairs, class_weight={0: 1.0, 1: 2.0}, verbose=0)
except LoaderError as error:
    print(error)
print(model.fit(pairs.repeat(), steps_per_epoch=3, verbose=0).params["steps"])
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_fits_evaluates_and_predicts(backend: str, tmp_path: Path) -> None:
    examples = ({"x": np.array([i, i + 1, 1, 0], np.float32) / 100, "y": np.float32(i / 50)} for i in range(100))
    features = {"x": FeatureSpec("float32", shape=(4,)), "y": FeatureSpec("float32")}
    write_cache(tmp_path / "cache", {"train": examples}, features=features)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "cache" / "train")],
        env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[:3] == [f"{backend} 12 {[*range(1, 13)]}", "True True True", "(96, 1)"]
    assert told[3].startswith(
        "class_weight= cannot be given beside a DataLoader, whose batches are (inputs, targets) or"
    )
    assert told[4] == "3"
