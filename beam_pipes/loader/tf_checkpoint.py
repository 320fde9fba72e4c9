"""The state of a loader inside `tf.train.Checkpoint`. Imports TensorFlow when called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_pipes.extras import require

if TYPE_CHECKING:
    from beam_pipes.loader.loader import Loader


def trackable_state(loader: Loader) -> Any:
    """A trackable whose saved value is the loader's state as JSON; restoring the checkpoint restores the loader."""
    tf = require("tensorflow", purpose="Loader.tf_checkpoint")

    class LoaderCheckpoint(tf.train.experimental.PythonState):  # type: ignore[misc, name-defined]
        def serialize(self) -> str:
            return loader.get_state().decode()

        def deserialize(self, string_value: str | bytes) -> None:
            loader.set_state(string_value)

    return LoaderCheckpoint()
