"""The samples of a batch: `TensorList`, and `Outputs`, what `run` returns; and their dtypes, with DALI's names.

A tensor list is one array if all samples have one shape, else a list of arrays. The outputs of a run are tensor
lists, by position and by name.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.extras import absent_here
from beam_pipes.graph.spec import TensorSpec


class DALIDataType(enum.Enum):
    """The dtype of a sample's elements; `DALIDataType.FLOAT.dtype` is `np.dtype("float32")`."""

    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    FLOAT = "float32"
    FLOAT64 = "float64"
    BOOL = "bool"

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype."""
        return np.dtype(self.value)


def to_numpy_type(dtype: DALIDataType | npt.DTypeLike) -> np.dtype:
    """`FLOAT`, `np.float32`, `"float32"` → `np.dtype("float32")`; `OperatorArgumentError` for anything else."""
    if isinstance(dtype, DALIDataType):
        return dtype.dtype
    try:
        return np.dtype(dtype)
    except TypeError as error:
        raise OperatorArgumentError(
            f"expected a dtype such as types.FLOAT, np.float32 or 'float32', got {dtype!r}."
        ) from error


def to_dali_type(dtype: npt.DTypeLike) -> DALIDataType:
    """`np.float32` → `DALIDataType.FLOAT`."""
    return DALIDataType(np.dtype(dtype).name)


#: An array of the host.
Array = np.ndarray

#: An operand or an index of an array: a number, an array of its library, slices.
Operand = Any
#: The value of an operator's argument for a sample or a batch: a number, text, a tuple, an array, None.
Given = Any


class Value(Protocol):
    """An array of NumPy, JAX or torch, as used by operators that run on all three."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def dtype(self) -> Any: ...  # each library has its own

    @property
    def device(self) -> object: ...

    def __array__(self) -> Array: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, place: Operand, /) -> Value: ...

    def __neg__(self) -> Value: ...

    def __abs__(self) -> Value: ...

    def __invert__(self) -> Value: ...

    def __add__(self, other: Operand, /) -> Value: ...

    def __radd__(self, other: Operand, /) -> Value: ...

    def __sub__(self, other: Operand, /) -> Value: ...

    def __rsub__(self, other: Operand, /) -> Value: ...

    def __mul__(self, other: Operand, /) -> Value: ...

    def __rmul__(self, other: Operand, /) -> Value: ...

    def __truediv__(self, other: Operand, /) -> Value: ...

    def __rtruediv__(self, other: Operand, /) -> Value: ...

    def __pow__(self, other: Operand, /) -> Value: ...

    def __and__(self, other: Operand, /) -> Value: ...

    def __or__(self, other: Operand, /) -> Value: ...

    def __lt__(self, other: Operand, /) -> Value: ...

    def __le__(self, other: Operand, /) -> Value: ...

    def __gt__(self, other: Operand, /) -> Value: ...

    def __ge__(self, other: Operand, /) -> Value: ...

    def __eq__(self, other: object, /) -> Value: ...  # type: ignore[override]  # element by element

    def __ne__(self, other: object, /) -> Value: ...  # type: ignore[override]  # element by element


class Namespace(Protocol):
    """The functions of a library of arrays, by their names in the array API; and its dtypes, to pass to them."""

    @property
    def fft(self) -> Any: ...  # a submodule of functions

    def __getattr__(self, name: str, /) -> Callable[..., Value]: ...


#: The numbers of one sample for an argument that takes several: an array, or a tuple if it is static on a device.
Row: TypeAlias = Array | Sequence[float]


_EXECUTOR = "says how DALI's executor runs: what is an option of that name is taken, without effect"
_MEMORY = "DALI's memory: a batch here is NumPy's"

#: Names of DALI that we do not have → why, and what to use. Messages and the table of the migration are made from it.
ABSENT: dict[str, str] = {
    **{
        f"Pipeline.{name}": _EXECUTOR
        for name in (
            "concurrency cpu_queue_size default_cuda_stream_priority enable_api_check enable_memory_stats exec_async "
            "exec_dynamic exec_pipelined exec_separated external_source_shm_statistics gpu_queue_size input_feed_count "
            "max_streams output_stream py_num_workers py_start_method set_affinity start_py_workers stream_policy"
        ).split()
    },
    "Pipeline.empty": "a batch is made when it is asked for",
    **{
        f"TensorList.{name}": _MEMORY
        for name in (
            "as_reshaped_tensor broadcast copy_to_external data_ptr from_dlpack_list ndim reinterpret reset set_layout"
        ).split()
    },
    **{
        f"types.{name}": "no dtype of samples here"
        for name in "DATA_TYPE FEATURE IMAGE_TYPE INTERP_TYPE NO_TYPE PYTHON_OBJECT STRING TENSOR_LAYOUT".split()
    },
    "types.SAME": "layouts are strings",
    "types.PipelineAPIType": _EXECUTOR,
    "iterators.pytorch.DALIRaggedIterator": "`TorchGraphIterator(…, ragged='pad')` or `'values'`",
}


def absent_of(owner: str) -> dict[str, str]:
    """The part of the table of one owner: `types` → `SAME`, …"""
    return {name.rpartition(".")[2]: why for name, why in ABSENT.items() if name.rpartition(".")[0] == owner}


def lacks(owner: str, name: str) -> AttributeError:
    """The error of a name that `owner` (`Pipeline`, `TensorList`) lacks; for one of DALI's with the reason."""
    return AttributeError(f"{owner} has no attribute {name!r}.{absent_here(f'{owner}.{name}', ABSENT, 'DALI')}")


class TensorList:
    """A batch of samples; every sample is a NumPy array (0-d for a scalar).

        TensorList(np.zeros((8, 224, 224, 3)))                 dense: the leading dimension counts samples
        TensorList([np.zeros(3), np.zeros(5)], layout="")      ragged: one array per sample

    `dense` is the stacked array, or None. A list of samples with equal shapes is stacked only when `dense` or
    `as_array` needs it.
    """

    __slots__ = ("_array", "_layout", "_samples", "_sources")

    def __init__(
        self,
        data: Array | Sequence[npt.ArrayLike],
        *,
        layout: str = "",
        sources: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._array: Array | None = data if isinstance(data, np.ndarray) else None
        self._samples = None if isinstance(data, np.ndarray) else [np.asarray(sample) for sample in data]
        self._layout = layout
        self._sources: Callable[[], Sequence[str]] | None = sources

    def __getattr__(self, name: str) -> NoReturn:
        raise lacks("TensorList", name)

    def with_layout(self, layout: str) -> TensorList:
        """The same samples under another layout."""
        if layout == self._layout:
            return self
        made = copy.copy(self)
        made._layout = layout
        return made

    def with_sources(self, sources: Callable[[], Sequence[str]]) -> TensorList:
        """The same samples, with a function that names their records on request."""
        made = copy.copy(self)
        made._sources = sources
        return made

    @property
    def dense(self) -> Array | None:
        """(n, *shape) if all samples have one shape and dtype, else None. Stacks a list once."""
        if self._array is None and self._samples:
            first = self._samples[0]
            if all(one.shape == first.shape and one.dtype == first.dtype for one in self._samples):
                self._array = np.stack(self._samples)
        elif self._array is None:
            self._array = np.zeros((0,))
        return self._array

    @property
    def is_stacked(self) -> bool:
        """Whether the samples are currently held as one array."""
        return self._array is not None

    def __len__(self) -> int:
        return len(self._array) if self._array is not None else len(self._samples or ())

    def __getitem__(self, index: int) -> Array:
        """Sample `index`: a view if the batch is one array."""
        if self._samples is not None:
            return self._samples[index]
        assert self._array is not None
        return np.asarray(self._array[index])

    def __iter__(self) -> Iterator[Array]:
        return (self[index] for index in range(len(self)))

    at = __getitem__

    def take(self, indices: Array) -> TensorList:
        """The samples at `indices`, in that order."""
        if self._array is not None:
            return TensorList(self._array[indices], layout=self._layout)
        return TensorList([self[int(index)] for index in indices], layout=self._layout)

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype of the samples; None for an empty batch."""
        first = self._array if self._array is not None else self._samples[0] if self._samples else None
        return None if first is None else np.dtype(first.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all samples."""
        if self._array is not None:
            return self._array.nbytes
        return sum(sample.nbytes for sample in self._samples or ())

    def layout(self) -> str:
        """The names of the axes of a sample, such as `HWC`."""
        return self._layout

    def shape(self) -> list[tuple[int, ...]]:
        """The shape of every sample."""
        return [sample.shape for sample in self]

    def is_dense_tensor(self) -> bool:
        """Whether all samples have one shape."""
        return self.dense is not None

    def as_array(self) -> Array:
        """(n, *shape); raises `GraphError` if the samples differ in shape."""
        if (dense := self.dense) is None:
            shapes = sorted({sample.shape for sample in self})
            raise GraphError(
                f"the samples have {len(shapes)} different shapes ({', '.join(map(str, shapes[:3]))}"
                f"{', …' if len(shapes) > 3 else ''}), which make no single array. Resize, crop or pad them in the "
                "graph, or take them one by one: output[i]."
            )
        return dense

    def as_tensor(self) -> Tensor:
        """`as_array`, with the methods of DALI's tensors."""
        return Tensor(self.as_array(), self._layout and f"N{self._layout}")

    def as_cpu(self) -> TensorList:
        """Itself: results of `run` are on the host."""
        return self

    def source_info(self, index: int) -> str:
        """The record of sample `index`, such as `cats/1.jpg@0`; "" if it does not come from a reader."""
        return "" if self._sources is None else self._sources()[index]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.as_array(), dtype=dtype, copy=True if copy else None)

    def __repr__(self) -> str:
        what = "ragged" if self._array is None else "×".join(map(str, self._array.shape[1:])) or "scalar"
        layout = f", layout={self._layout!r}" if self._layout else ""
        return f"TensorList({len(self)} × {self.dtype} {what}{layout})"


def no_samples(spec: TensorSpec) -> TensorList:
    """A batch without samples, as declared by the graph: float32 of shape (3, 8, 8) → (0, 3, 8, 8), float32.

    A dimension that varies by sample is 0; if even the rank is unknown, the array is (0,).
    """
    shape = (0,) if spec.shape is None else (0, *[size or 0 for size in spec.shape])
    return TensorList(np.zeros(shape, spec.dtype), layout=spec.layout)


class Tensor:
    """A whole batch as DALI's `TensorCPU`: `np.array(tensor)`, and its properties."""

    def __init__(self, array: Array, layout: str) -> None:
        self._array, self._layout, self.dtype = array, layout, array.dtype

    def shape(self) -> list[int]:
        """Samples, and the shape of each."""
        return list(self._array.shape)

    def layout(self) -> str:
        """The names of the axes, such as `NHWC`."""
        return self._layout

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=True if copy else None)


class Outputs(tuple[TensorList, ...]):
    """A batch: `images, labels = pipe.run()`, `pipe.run()[0]`, `pipe.run()["images"]`.

    `names` are those that the graph's function returned in a dict. `valid` is a boolean array (n,) if the last batch
    of an epoch may be padded (`last="pad"`), else None; `epoch` counts from 0.
    """

    names: tuple[str, ...]
    epoch: int
    valid: npt.NDArray[np.bool_] | None

    def __new__(
        cls,
        columns: Iterable[TensorList],
        names: Sequence[str] = (),
        *,
        epoch: int = 0,
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> Outputs:
        made = super().__new__(cls, columns)
        made.names = tuple(names)
        made.epoch = epoch
        made.valid = valid
        return made

    def __getitem__(self, key: Operand) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise GraphError(
                    f"there is no output {key!r}; the outputs are {', '.join(self.names) or f'0 to {len(self) - 1}'}."
                )
            return super().__getitem__(self.names.index(key))
        return super().__getitem__(key)

    @property
    def batch_size(self) -> int:
        """Samples of the batch."""
        return len(self[0]) if self else 0

    def as_dict(self) -> dict[str, TensorList]:
        """Name → batch; positions as strings if outputs have no names."""
        return dict(zip(self.names or map(str, range(len(self))), self, strict=True))
