"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from typing import Any

from beam_pipes.graph.data_node import DataNode

def gaussian(
    data: Any,
    *,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Adds normal noise: `noise.gaussian(images, stddev=10)`.

    Inputs: data.
    Args:
        mean: the mean of the noise (a number, or a data node). Default: 0.0.
        stddev: its standard deviation (a number, or a data node). Default: 1.0.
    Places: cpu. Draws random numbers.
    """

def salt_and_pepper(
    data: Any,
    *,
    prob: float | DataNode = 0.05,
    salt_vs_pepper: float | DataNode = 0.5,
    per_channel: bool = False,
    salt_val: float | DataNode | None = None,
    pepper_val: float | DataNode | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Replaces a part of the pixels by the highest or lowest value: `noise.salt_and_pepper(images, prob=0.1)`.

    Inputs: data.
    Args:
        prob: which part of the pixels is replaced (a number, or a data node). Default: 0.05.
        salt_vs_pepper: which part of these becomes salt (a number, or a data node). Default: 0.5.
        per_channel: whether it is drawn for each channel, not for each pixel (a bool). Default: False.
        salt_val: what salt is: the highest value of the dtype, 1 for floats (a number, or a data node). Default: None.
        pepper_val: what pepper is: the lowest value of the dtype, -1 for floats (a number, or a data node). Default:
            None.
    Places: cpu. Draws random numbers.
    """

def shot(
    data: Any,
    *,
    factor: float | DataNode = 20.0,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Draws each element from a Poisson distribution about it, in multiples of `factor`: `noise.shot(images)`.

    Inputs: data.
    Args:
        factor: by how much an event adds; 0 changes nothing (a number, or a data node). Default: 20.0.
    Places: cpu. Draws random numbers.
    """
