"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from beam_pipes.graph.data_node import DataNode

def read(
    filepaths: Any,
    *,
    dont_use_mmap: bool = False,
    use_o_direct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """The bytes of the files whose names are given as bytes: `io.file.read(names)` → uint8, (bytes,).

    `io.file.read(np.frombuffer(b"cat.jpg", np.uint8))` → the bytes of cat.jpg, for every sample

    Inputs: filepaths.
    Args:
        dont_use_mmap: taken so that graphs move over; it changes nothing here (a bool). Default: False.
        use_o_direct: taken so that graphs move over; it changes nothing here (a bool). Default: False.
    Places: cpu.
    """
