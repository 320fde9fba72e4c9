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


# Losses of rows, recorded while Keras trains, with another batch size in validation and fewer rows at an epoch's end.
LOSSES = """
import sys, os
import keras
import numpy as np
from beam_pipes import DataLoader, Loader
from beam_pipes.errors import LoaderError
from beam_pipes.telemetry import RecordedLosses
from beam_pipes.telemetry.keras_losses import KerasLossRecorder

path, directory = sys.argv[1:3]
options = {"batch_size": 8, "seed": 1, "last": "partial"}

def pairs(**changed):
    return DataLoader.from_cache(path, **{**options, **changed})

def as_pairs(loader):
    return loader.map(lambda batch: (batch["x"], batch["y"]))

class Weights(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.before = []
    def on_train_batch_begin(self, batch, logs=None):
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.before.append([np.array(each) for each in self.model.get_weights()])

def fitted(recorder=None, callbacks=(), loader=None, steps=1, jit="auto", loss="mse", epochs=2, **fitting):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
    metrics = [] if recorder is None else [recorder.metric]
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics, steps_per_execution=steps, jit_compile=jit)
    validation = as_pairs(pairs(batch_size=5))
    model.fit(as_pairs(loader or pairs()), epochs=epochs, validation_data=validation, verbose=0,
              callbacks=[*callbacks, *([] if recorder is None else [recorder])], **fitting)
    return model

plain = fitted()
loader, weights = pairs(), Weights()
recorder = KerasLossRecorder(f"{directory}/two", loader, "mse")
recorded = fitted(recorder, [weights], loader)
print(all((a == b).all() for a, b in zip(plain.get_weights(), recorded.get_weights())))
losses, native = RecordedLosses(f"{directory}/two"), Loader(path, epochs=None, **options)
print(losses.steps == list(range(14)), [len(losses.at(step)) for step in (0, 6, 13)])
worst = 0
for step in losses.steps:
    first, first_bias, second, second_bias = weights.before[step]
    batch = native.batch_at(step)
    found = np.maximum(batch["x"] @ first + first_bias, 0) @ second + second_bias
    by_hand = (found[:, 0] - batch["y"]) ** 2
    stored = np.array([losses.at(step)[place, 0] for place in range(len(by_hand))])
    worst = max(worst, np.abs(stored - by_hand).max() / (1e-6 + by_hand.max()))
print(worst < 1e-4)

# Goes on in the third epoch, by steps; then over a native loader that stands at step 3.
loader = pairs()
loader.set_epoch(2)
recorder = KerasLossRecorder(f"{directory}/on", loader, keras.losses.MeanAbsoluteError(reduction="sum"))
fitted(recorder, loader=loader, epochs=1, jit=False)
print(RecordedLosses(f"{directory}/on").steps)
native = Loader(path, epochs=None, **options)
for _ in zip(range(3), native):
    pass
loader = DataLoader.from_cache(native)
fitted(KerasLossRecorder(f"{directory}/native", loader, "mse"), loader=loader, epochs=2, steps_per_epoch=2)
print(RecordedLosses(f"{directory}/native").steps)

for program in (
    lambda: fitted(KerasLossRecorder(f"{directory}/no", pairs(), "mse"), steps=2),
    lambda: fitted(None, [KerasLossRecorder(f"{directory}/no", pairs(), "mse")]),
    lambda: KerasLossRecorder(f"{directory}/no", [1, 2], "mse"),
):
    try:
        program()
    except (LoaderError, ValueError) as error:  # Keras itself refuses more steps with torch
        print(error)
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
        programs += [["losses", LOSSES, str(root / "ids" / "train"), str(root / f"losses-{backend}")]]
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


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_losses_of_rows_are_those_computed_by_hand_and_change_no_weight(
    backend: str, told_by: Callable[[str], dict[str, tuple[str, str]]]
) -> None:
    printed, failed = told_by(backend)["losses"]

    assert not failed, failed
    told = printed.splitlines()
    assert told[:3] == ["True", "True [8, 2, 2]", "True"]
    assert told[3:5] == [str([*range(14, 21)]), str([*range(3, 7)])]
    refused = "`steps_per_execution` must be 1" if backend == "torch" else "expected steps_per_execution=1, got 2:"
    assert told[5].startswith(refused)
    assert told[6].startswith("KerasLossRecorder reads the losses of rows from its metric, and the model was compiled")
    assert told[7].startswith("losses are recorded by row, and only a Loader, or what reads from one, knows")
