"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from beam_pipes.graph.data_node import DataNode

class Read:
    """The bytes of the files whose names are given as bytes: `io.file.read(names)` → uint8, (bytes,).

    `io.file.read(np.frombuffer(b"cat.jpg", np.uint8))` → the bytes of cat.jpg, for every sample

    Inputs: filepaths.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, filepaths: Any, **arguments: Any) -> DataNode: ...
