"""The losses of rows in `model.fit` of Keras, which reduces losses to one number before any callback sees them.

    losses = KerasLossRecorder("run/losses", loader, "mse")
    model.compile("adam", "mse", metrics=[losses.metric])      in each step: rows' losses → a variable of the metric
    model.fit(loader.map(…), callbacks=[losses])               after it: the variable → LossRecorder, by step and row

A metric is what Keras gives targets and predictions in every step, within the program that it compiles, under each of
its backends; nothing of the model, its loss or its gradients is touched.
"""

from __future__ import annotations

import os
from typing import Any

from beam_pipes.errors import LoaderError
from beam_pipes.extras import require
from beam_pipes.telemetry.losses import LossRecorder, loader_of_rows, places_of

keras: Any = require("keras", purpose="KerasLossRecorder")


class _RowLosses(keras.metrics.Metric):  # type: ignore[misc]
    """The unreduced losses of the last batch, in a variable; in logs, the highest of them."""

    def __init__(self, loss: Any, rows: int) -> None:
        super().__init__(name="highest_row_loss", dtype="float32")
        self._loss = loss
        self.rows = self.add_variable((rows,), initializer="zeros", name="losses_of_rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        ops = keras.ops
        y_true, y_pred = (keras.tree.map_structure(ops.convert_to_tensor, each) for each in (y_true, y_pred))
        losses = self._loss.call(y_true, y_pred) if hasattr(self._loss, "call") else self._loss(y_true, y_pred)
        losses = ops.cast(losses, "float32")
        losses = ops.mean(losses, axis=tuple(range(1, len(losses.shape)))) if len(losses.shape) > 1 else losses
        # Validation and the end of an epoch may have other numbers of rows than the variable.
        padded = ops.concatenate([losses, ops.zeros(self.rows.shape)])
        self.rows.assign(ops.reshape(padded[: self.rows.shape[0]], self.rows.shape))

    def result(self) -> Any:
        return keras.ops.max(self.rows)


class KerasLossRecorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Records the losses of rows while `model.fit` trains; `beam-pipes blame` reads them.

        loader = DataLoader.from_cache("cache/train", batch_size=32, seed=1)
        losses = KerasLossRecorder("run/losses", loader, keras.losses.MeanSquaredError())
        model.compile("adam", keras.losses.MeanSquaredError(), metrics=[losses.metric])
        model.fit(loader.map(lambda batch: (batch["x"], batch["y"])), epochs=3, callbacks=[losses])

    Args:
      directory: as for `LossRecorder`: local, a file for each process.
      loader: the `DataLoader` over a cache that the fit reads, itself or through a `map` of it.
      loss: what the model is compiled with: a name, a `keras.losses.Loss`, or a function (targets, predictions) → a
        loss for each row. Losses are recorded before sample weights and the model's regularization; of losses with
        more dimensions (tokens of a row), the mean over them.

    For models with one output; of several, give `metrics={"name": [losses.metric]}` the one that counts. `jit_compile`
    may be on or off. `steps_per_execution` has to be 1: Keras runs more steps in one program, and calls back after
    the last of them. The loop waits for the end of each step; with JAX, the model's state is synchronized then.

    Raises `LoaderError` for other values of `steps_per_execution`, for a model that is compiled without the metric, for
    batches that are cut by tokens, and what `LossRecorder` raises.
    """

    def __init__(self, directory: str | os.PathLike[str], loader: object, loss: Any) -> None:
        super().__init__()
        self._directory, self._loader, self._native = directory, loader, loader_of_rows(loader)
        if not self._native.is_even:
            raise LoaderError(
                "batches that are cut by tokens have different numbers of rows, and a program that Keras compiles has "
                "one. Use batches of rows, or write the training loop, with LossRecorder."
            )
        #: For `model.compile(metrics=[…])`.
        self.metric = _RowLosses(keras.losses.get(loss), len(places_of(self._native, 0)))
        self._recorder: LossRecorder | None = None
        self._step = 0

    def on_train_begin(self, logs: object = None) -> None:
        steps = self.model.steps_per_execution
        if steps != 1:
            raise LoaderError(
                f"expected steps_per_execution=1, got {steps}: Keras calls back after the last of {steps} steps, when "
                "the losses of the others are gone. Compile the model with steps_per_execution=1."
            )
        self.on_train_end()  # of a fit that failed
        self._recorder = LossRecorder(self._directory, self._loader)
        try:
            passes = int(self._loader.epoch)  # type: ignore[attr-defined]
        except LoaderError:  # over a native loader, which has its own cursor
            self._step = self._native.step
        else:
            self._step = passes * (self._native.steps_per_epoch or 0)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if not any(variable is self.metric.rows for variable in self.model.metrics_variables):
            raise LoaderError(
                "KerasLossRecorder reads the losses of rows from its metric, and the model was compiled without it: "
                "model.compile(…, metrics=[losses.metric])."
            )
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        losses = keras.ops.convert_to_numpy(self.metric.rows)
        assert self._recorder is not None
        self._recorder.record(losses[: len(places_of(self._native, self._step))], step=self._step)
        self._step += 1

    def on_train_end(self, logs: object = None) -> None:
        if self._recorder is not None:
            self._recorder.close()
