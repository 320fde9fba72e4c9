"""DALI's `types`: names of dtypes, image types and interpolations, arguments of callables, and `types.Constant`."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.extras import names_of
from beam_pipes.format.exact import NotExactError, cast_exactly, natural_array
from beam_pipes.graph.basic import ConstantSample, constant_array
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.tensors import DALIDataType as DALIDataType
from beam_pipes.graph.tensors import absent_of
from beam_pipes.graph.tensors import to_dali_type as to_dali_type
from beam_pipes.graph.tensors import to_numpy_type as to_numpy_type
from beam_pipes.graph.trace import add


class DALIImageType(enum.Enum):
    """The colour space of a decoded image. `ANY_DATA` keeps that of the file."""

    RGB = "RGB"
    BGR = "BGR"
    GRAY = "GRAY"
    YCbCr = "YCbCr"
    ANY_DATA = "ANY_DATA"


class DALIInterpType(enum.Enum):
    """The interpolation between pixels."""

    INTERP_NN = "nearest"
    INTERP_LINEAR = "linear"
    INTERP_CUBIC = "cubic"
    INTERP_LANCZOS3 = "lanczos3"
    INTERP_TRIANGULAR = "triangular"
    INTERP_GAUSSIAN = "gaussian"


UINT8, UINT16, UINT32, UINT64 = DALIDataType.UINT8, DALIDataType.UINT16, DALIDataType.UINT32, DALIDataType.UINT64
INT8, INT16, INT32, INT64 = DALIDataType.INT8, DALIDataType.INT16, DALIDataType.INT32, DALIDataType.INT64
FLOAT16, FLOAT, FLOAT64, BOOL = DALIDataType.FLOAT16, DALIDataType.FLOAT, DALIDataType.FLOAT64, DALIDataType.BOOL
FLOAT32 = FLOAT
RGB, BGR, GRAY, YCbCr, ANY_DATA = DALIImageType
INTERP_NN, INTERP_LINEAR, INTERP_CUBIC, INTERP_LANCZOS3, INTERP_TRIANGULAR, INTERP_GAUSSIAN = DALIInterpType


#: Layouts of a sample, as `output_layout` takes them; DALI's names count the samples too.
NCHW, NHWC, NFCHW, NFHWC = "CHW", "HWC", "FCHW", "FHWC"

#: The `device_id` of a pipeline without a device, as DALI writes it.
CPU_ONLY_DEVICE_ID = -99999


@dataclasses.dataclass(frozen=True, slots=True)
class SampleInfo:
    """The argument of an `external_source` callable: the sample to return.

    `idx_in_epoch` counts samples of this shard's epoch, `idx_in_batch` those of the batch, `iteration` batches of the
    epoch; `epoch_idx` counts epochs. All from 0.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


@dataclasses.dataclass(frozen=True, slots=True)
class BatchInfo:
    """The argument of an `external_source` callable in batch mode: batches of the epoch, and epochs, from 0."""

    iteration: int
    epoch_idx: int


class ScalarConstant(DataNode):
    """A `Constant` of one number: `Constant(48).uint8()` is the number in that dtype."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Callable[[], DataNode]:
        if name not in {one.value for one in DALIDataType}:
            raise AttributeError(f"a constant has no attribute {name!r}.")
        return lambda: Constant(self.source.operator.constants["value"], dtype=name)


def Constant(  # noqa: N802 - DALI's name
    value: object,
    dtype: DALIDataType | npt.DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    layout: str = "",
    device: str = "cpu",
) -> DataNode:
    """A data node that has the same value for every sample: `Constant(3)` is int32, `Constant(np.eye(3))` float32.

    Without `dtype`, 64-bit arrays become 32-bit ones, as in DALI, except integers that would change.
    """
    target = None if dtype is None else to_numpy_type(dtype)
    try:
        array = natural_array(value) if target is not None else constant_array(value)
        if target is not None and array.dtype.kind in "biuf" and target.kind in "biuf":
            array = cast_exactly(array, target, rounds=True)
        elif target is not None:
            array = np.asarray(value, target)
    except NotExactError as error:
        raise OperatorArgumentError(
            f"a constant of {'one dtype' if target is None else target} does not hold {error}. Give a number that it "
            "holds, or another dtype."
        ) from None
    if shape is not None:
        array = np.reshape(array, shape) if array.size > 1 else np.broadcast_to(array, shape)
    node = add(ConstantSample, (), {"value": array, "layout": layout}).outputs[0]
    if not array.ndim:
        node.__class__ = ScalarConstant
    return node.gpu() if device == "gpu" else node


__getattr__ = names_of(__name__, absent_of("types"), "DALI")
