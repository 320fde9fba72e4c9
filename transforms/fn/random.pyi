"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType

def choice(
    a: Any,
    shape_like: Any = None,
    *,
    shape: int | Sequence[int] | DataNode | None = None,
    p: float | Sequence[float] | DataNode | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Elements of an array, or numbers below an integer: `choice(4)` → `2`, `choice([3, 4, 5], shape=[2])` → `[5, 3]`.

    From an array of higher rank, elements along its first axis are chosen.

    Inputs: a, shape_like.
    Args:
        shape: the shape of each sample; a scalar by default (an int or a list of ints, or a data node). Default: None.
        p: how likely each element is; all alike by default. Their sum is 1 (a number or a list of numbers, or a data
            node). Default: None.
    Places: cpu. Draws random numbers.
    """

def coin_flip(
    shape_like: Any = None,
    *,
    shape: int | Sequence[int] | DataNode | None = None,
    probability: float | DataNode = 0.5,
    dtype: DALIDataType | DTypeLike = "int32",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """1 with the given probability, else 0: a scalar for each sample, or an array of `shape`.

    `coin_flip(probability=0.25, dtype=types.BOOL)` → `True, False, False, False, …`

    Inputs: shape_like.
    Args:
        shape: the shape of each sample; a scalar by default (an int or a list of ints, or a data node). Default: None.
        probability: how likely one is, 0 to 1 (a number, or a data node). Default: 0.5.
        dtype: the dtype of what is given (a dtype such as types.FLOAT). Default: 'int32'.
    Places: cpu, gpu. Draws random numbers.
    """

def normal(
    shape_like: Any = None,
    *,
    shape: int | Sequence[int] | DataNode | None = None,
    mean: float | DataNode = 0.0,
    stddev: float | DataNode = 1.0,
    dtype: DALIDataType | DTypeLike = "float32",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Normally distributed numbers.

    `normal(mean=100, stddev=15)` → `98.1, 121.7, 86.0, …`

    Inputs: shape_like.
    Args:
        shape: the shape of each sample; a scalar by default (an int or a list of ints, or a data node). Default: None.
        mean: the mean (a number, or a data node). Default: 0.0.
        stddev: the standard deviation (a number, or a data node). Default: 1.0.
        dtype: the dtype of what is given; integers are rounded (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu, gpu. Draws random numbers.
    """

def uniform(
    shape_like: Any = None,
    *,
    shape: int | Sequence[int] | DataNode | None = None,
    range: float | Sequence[float] | DataNode = ...,
    values: float | Sequence[float] | DataNode | None = None,
    dtype: DALIDataType | DTypeLike = "float32",
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    on_error: str | None = None,
    seed: int | None = None,
) -> DataNode:
    """Uniformly distributed numbers: from the range [low, high), or one of `values`.

    `uniform(range=(10, 30))` → `17.03, 28.4, 11.9, …`

    With a dtype of integers the numbers are rounded, so that both ends of the range occur.

    Inputs: shape_like.
    Args:
        shape: the shape of each sample; a scalar by default (an int or a list of ints, or a data node). Default: None.
        range: lowest number, and the one that all are below (a number or a list of numbers, or a data node). Default:
            (-1.0, 1.0).
        values: the numbers to choose from, instead of a range (a number or a list of numbers, or a data node). Default:
            None.
        dtype: the dtype of what is given (a dtype such as types.FLOAT). Default: 'float32'.
    Places: cpu, gpu. Draws random numbers.
    """
