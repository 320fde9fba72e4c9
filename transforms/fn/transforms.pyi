"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Sequence
from typing import Any

from beam_pipes.graph.data_node import DataNode

def combine(
    *transforms: Any,
    reverse_order: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """The composition of several maps, in order: `transforms.combine(turn, move)`.

    Inputs: transforms ….
    Args:
        reverse_order: whether the last one comes first (a bool). Default: False.
    Places: cpu.
    """

def crop(
    transform: Any = None,
    *,
    reverse_order: bool = False,
    from_start: float | Sequence[float] | DataNode = 0.0,
    from_end: float | Sequence[float] | DataNode = 1.0,
    to_start: float | Sequence[float] | DataNode = 0.0,
    to_end: float | Sequence[float] | DataNode = 1.0,
    absolute: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """Maps one box to another: `transforms.crop(from_end=(2, 4))` → `[[0.5, 0, 0], [0, 0.25, 0]]`.

    Inputs: transform.
    Args:
        reverse_order: whether this map comes before that of the input (a bool). Default: False.
        from_start: where the box begins that is mapped (a number or a list of numbers, or a data node). Default: 0.0.
        from_end: where it ends (a number or a list of numbers, or a data node). Default: 1.0.
        to_start: where the box begins that it is mapped to (a number or a list of numbers, or a data node). Default:
            0.0.
        to_end: where it ends (a number or a list of numbers, or a data node). Default: 1.0.
        absolute: whether starts and ends change places where they are reversed (a bool). Default: False.
    Places: cpu.
    """

def rotation(
    transform: Any = None,
    *,
    angle: float | DataNode,
    reverse_order: bool = False,
    axis: float | Sequence[float] | DataNode | None = None,
    center: float | Sequence[float] | DataNode | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """Turns by `angle`, from the first axis to the second: `transforms.rotation(angle=90)` → `[[0, -1, 0], [1, 0, 0]]`.

    With `axis`, it is a rotation in three dimensions about this axis.

    Inputs: transform.
    Args:
        reverse_order: whether this map comes before that of the input (a bool). Default: False.
        angle: degrees (a number, or a data node).
        axis: three numbers, the direction that is turned about (a number or a list of numbers, or a data node).
            Default: None.
        center: the point that stays where it is; the origin by default (a number or a list of numbers, or a data node).
            Default: None.
    Places: cpu.
    """

def scale(
    transform: Any = None,
    *,
    scale: float | Sequence[float] | DataNode,
    reverse_order: bool = False,
    center: float | Sequence[float] | DataNode | None = None,
    ndim: int | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """Multiplies by `scale`: `transforms.scale(scale=(2, 3))` → `[[2, 0, 0], [0, 3, 0]]`.

    Inputs: transform.
    Args:
        reverse_order: whether this map comes before that of the input (a bool). Default: False.
        scale: a factor for each axis, or one with ndim (a number or a list of numbers, or a data node).
        center: the point that stays where it is; the origin by default (a number or a list of numbers, or a data node).
            Default: None.
        ndim: how many axes there are, where scale is one number (an int). Default: None.
    Places: cpu.
    """

def shear(
    transform: Any = None,
    *,
    reverse_order: bool = False,
    shear: float | Sequence[float] | DataNode | None = None,
    angles: float | Sequence[float] | DataNode | None = None,
    center: float | Sequence[float] | DataNode | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """Adds to each axis parts of the others: `transforms.shear(shear=(2, 1))` → `[[1, 2, 0], [1, 1, 0]]`.

    Two numbers are for two axes (xy, yx), six for three (xy, xz, yx, yz, zx, zy).

    Inputs: transform.
    Args:
        reverse_order: whether this map comes before that of the input (a bool). Default: False.
        shear: the parts (a number or a list of numbers, or a data node). Default: None.
        angles: the same as angles in degrees, whose tangents are the parts (a number or a list of numbers, or a data
            node). Default: None.
        center: the point that stays where it is; the origin by default (a number or a list of numbers, or a data node).
            Default: None.
    Places: cpu.
    """

def translation(
    transform: Any = None,
    *,
    offset: float | Sequence[float] | DataNode,
    reverse_order: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
) -> DataNode:
    """Adds `offset`: `transforms.translation(offset=(1, 2))` → `[[1, 0, 1], [0, 1, 2]]`.

    Inputs: transform.
    Args:
        reverse_order: whether this map comes before that of the input (a bool). Default: False.
        offset: what is added, a number an axis (a number or a list of numbers, or a data node).
    Places: cpu.
    """
