"""`model.fit(DataLoader.from_cache(…))`, under each backend of Keras; a backend is chosen once for a process.

To import Keras takes 7 s of a core and more with TensorFlow or torch, so one process runs all programs of a backend.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable

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


# Keras builds a model from a batch that it looks at, with JAX and torch: that must not cost an epoch.
RESUMED = """
import sys
import keras
import numpy as np
from beam_pipes import DataLoader

if "one batch ahead" in sys.argv:  # as on a GPU
    import jax
    jax.default_backend = lambda: "gpu"
options = {"batch_size": 8, "seed": 1}
flat = [int(i) for batch in DataLoader.from_cache(sys.argv[1], epochs=9, **options).to_numpy() for i in batch["id"]]
epoch_of = {tuple(flat[48 * epoch : 48 * epoch + 48]): epoch for epoch in range(9)}
assert len(epoch_of) == 9

class Recorder(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.rows = []
    def call(self, batch):
        return self.dense(batch["x"])
    def train_step(self, *args):  # the data is the last argument, whatever the backend
        self.rows.extend(int(i) for i in keras.ops.convert_to_numpy(args[-1][0]["id"]))
        return super().train_step(*args)

def pairs():
    return DataLoader.from_cache(sys.argv[1], **options).map(lambda batch: (batch, batch["y"]))

def fit(data, built=False, **kwargs):
    model = Recorder()
    if built:
        model(next(iter(DataLoader.from_cache(sys.argv[1], **options).to_numpy())))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(data, verbose=0, **kwargs)
    return [epoch_of[tuple(model.rows[start : start + 48])] for start in range(0, len(model.rows), 48)]

cut = pairs()
print(fit(pairs(), epochs=5), fit(cut, epochs=2), cut.state_dict())
for built in (False, True):
    restored, told = pairs(), pairs()
    restored.load_state_dict(cut.state_dict())
    told.set_epoch(2)
    print(fit(restored, built, epochs=5, initial_epoch=2), fit(told, built, epochs=5, initial_epoch=2))
"""


# Runs programs, each as if it were alone: prints what each has printed, and its traceback if it failed.
EACH = """
import contextlib, io, json, sys, traceback

answers = {}
for name, program, *arguments in json.loads(sys.argv[1]):
    printed, failed = io.StringIO(), ""
    sys.argv[1:] = arguments
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(program, name, "exec"), {"__name__": "__main__"})
        except BaseException:
            failed = traceback.format_exc()
    answers[name] = [printed.getvalue(), failed]
print(json.dumps(answers))
"""

AHEAD = "one batch ahead"  # changes jax, so it is the last


@pytest.fixture(scope="module")
def told_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, tuple[str, str]]]:
    """Backend → name of a program → what it printed, and its traceback if it failed."""
    root = tmp_path_factory.mktemp("keras")
    examples = ({"x": np.array([i, i + 1, 1, 0], np.float32) / 100, "y": np.float32(i / 50)} for i in range(100))
    features = {"x": FeatureSpec("float32", shape=(4,)), "y": FeatureSpec("float32")}
    write_cache(root / "pairs", {"train": examples}, features=features)
    # 50 examples in batches of 8: an epoch of 48 rows leaves out 2, so that each tells which epoch it is.
    examples = ({"x": np.full(2, i / 50, np.float32), "id": i, "y": np.float32(i / 50)} for i in range(50))
    features = {"x": FeatureSpec("float32", shape=(2,)), "id": FeatureSpec("int64"), "y": FeatureSpec("float32")}
    write_cache(root / "ids", {"train": examples}, features=features)

    @functools.cache
    def told(backend: str) -> dict[str, tuple[str, str]]:
        programs = [["fit", PROGRAM, str(root / "pairs" / "train")]]
        programs += [[mode, RESUMED, str(root / "ids" / "train"), mode] for mode in ("", AHEAD)]
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                EACH,
                json.dumps([each for each in programs if each[0] != AHEAD or backend == "jax"]),
            ],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        answers: dict[str, tuple[str, str]] = json.loads(done.stdout.splitlines()[-1])
        return answers

    return told


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_fits_evaluates_and_predicts(backend: str, told_by: Callable[[str], dict[str, tuple[str, str]]]) -> None:
    printed, failed = told_by(backend)["fit"]

    assert not failed, failed
    told = printed.splitlines()
    assert told[:3] == [f"{backend} 12 {[*range(1, 13)]}", "True True True", "(96, 1)"]
    assert told[3].startswith(
        "class_weight= cannot be combined with a DataLoader, whose batches are (inputs, targets) or"
    )
    assert told[4] == "3"


@pytest.mark.parametrize(("backend", "mode"), [("tensorflow", ""), ("jax", ""), ("jax", AHEAD), ("torch", "")])
def test_a_fit_that_continues_reads_the_epochs_that_the_uninterrupted_one_reads(
    backend: str, mode: str, told_by: Callable[[str], dict[str, tuple[str, str]]]
) -> None:
    printed, failed = told_by(backend)[mode]

    assert not failed, failed
    assert printed.splitlines() == [
        "[0, 1, 2, 3, 4] [0, 1] {'epoch': 2}",
        "[2, 3, 4] [2, 3, 4]",
        "[2, 3, 4] [2, 3, 4]",
    ]
