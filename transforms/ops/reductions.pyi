"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType

class Max:
    """The greatest value: `reductions.max([[3, 1], [2, 5]], axes=1)` → `[3, 5]`.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Mean:
    """The mean: `reductions.mean([[3, 1], [2, 5]], axes=1)` → `[2, 3.5]`, float32.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        dtype: the dtype of the result; float32 by default, float64 for float64 (a dtype such as types.FLOAT). Default:
            None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class MeanSquare:
    """The mean of the squares: `reductions.mean_square([3, 1])` → `5`, float32.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        dtype: the dtype of the result; float32 by default, float64 for float64 (a dtype such as types.FLOAT). Default:
            None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Min:
    """The least value: `reductions.min([[3, 1], [2, 5]], axes=1)` → `[1, 2]`.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class RMS:
    """The square root of the mean of the squares: `reductions.rms([3, 1])` → `2.236`, float32.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        dtype: the dtype of the result; float32 by default, float64 for float64 (a dtype such as types.FLOAT). Default:
            None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class StdDev:
    """The root mean square difference from `mean`: `reductions.std_dev([3, 1], 2)` → `1`, float32.

    Inputs: data, mean.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        ddof: sums are divided by the number of elements less this (an int). Default: 0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        ddof: int = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, mean: Any, **arguments: Any) -> DataNode: ...

class Sum:
    """The sum: `reductions.sum([[3, 1], [2, 5]], axes=1)` → `[4, 7]`; of integers 64 bits wide, of floats float32.

    Inputs: data.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        dtype: the dtype of the result: int64, uint64 or float32 by default (a dtype such as types.FLOAT). Default:
            None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: DALIDataType | DTypeLike | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, **arguments: Any) -> DataNode: ...

class Variance:
    """The mean square difference from `mean`: `reductions.variance([3, 1], reductions.mean([3, 1]))` → `1`, float32.

    `mean` is one number, or the result of `reductions.mean` over the same axes.

    Inputs: data, mean.
    Args:
        axes: the axes that are summed up; all by default (an int or a list of ints). Default: None.
        axis_names: the same by name (a str). Default: None.
        keep_dims: whether these axes stay, with an extent of 1 (a bool). Default: False.
        ddof: sums are divided by the number of elements less this (an int). Default: 0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        axes: int | Sequence[int] | None = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        ddof: int = 0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, data: Any, mean: Any, **arguments: Any) -> DataNode: ...
