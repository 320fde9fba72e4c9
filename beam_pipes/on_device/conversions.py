"""From an element of tf.data or of a native loader to NumPy memory that belongs to the consumer alone.

| value                             | NumPy            | JAX                    | torch                  |
| --------------------------------- | ---------------- | ---------------------- | ---------------------- |
| bool, 8 to 32 bit, float16        | the same         | the same               | the same               |
| int64, uint64, float64            | the same         | the same, see below    | the same               |
| bfloat16, float8                  | ml_dtypes' types | the same               | the same               |
| string                            | `bytes` objects  | error                  | error                  |
| ragged                            | rows, as objects | error                  | error                  |
| sparse, nested dataset, quantized | error            | error                  | error                  |

While JAX runs with 32-bit types, 64-bit values become 32-bit ones where every value stays the same, else an error.
Every array is a copy: changing a batch in place reaches no cached dataset. Errors (`ConversionError`) name the key.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from beam_pipes.errors import ConversionError
from beam_pipes.on_device.aligned import aligned_copy
from beam_pipes.on_device.structure import map_leaves


def to_host(element: Any) -> Any:
    """Every leaf as a NumPy array or scalar of its own memory; strings as `bytes`; ragged rows as object arrays."""
    return map_leaves(host_value, element)


def host_value(value: Any, key: str) -> Any:
    """One leaf, see `to_host`."""
    if isinstance(value, np.ndarray):
        return aligned_copy(value)
    if value is None or isinstance(value, np.generic | bytes | str | bool | int | float | complex):
        return value
    tf = sys.modules.get("tensorflow")
    if tf is not None:
        if isinstance(value, tf.Tensor):
            return _host_tensor(value, key)
        if isinstance(value, tf.RaggedTensor):
            return _ragged_rows(value, key)
        if isinstance(value, tf.sparse.SparseTensor):
            raise _impossible(key, "a SparseTensor", "Make it dense with .map(tf.sparse.to_dense)")
        if isinstance(value, tf.data.Dataset):
            raise _impossible(key, "a nested dataset", "Flatten it with .flat_map, or batch inside each window")
    if hasattr(value, "__array__"):
        return np.array(value)
    raise _impossible(key, f"a {type(value).__name__}", "Convert it in a .map, or name its key in skip_keys")


def _host_tensor(tensor: Any, key: str) -> Any:
    if tensor.dtype.is_quantized or tensor.dtype.name in ("variant", "resource"):
        raise _impossible(key, f"a tensor of {tensor.dtype.name}", "Convert it in a .map, or name its key in skip_keys")
    # .numpy() copies for every dtype; a NumPy scalar (or bytes) comes back for rank 0.
    return tensor.numpy()


def _ragged_rows(ragged: Any, key: str) -> Any:
    """Rows as an object array, always: RaggedTensor.numpy() gives a dense array when lengths happen to agree."""
    count = int(ragged.nrows())
    rows = np.empty(count, object)
    for index in range(count):
        rows[index] = host_value(ragged[index], key)
    return rows


def require_numeric(value: Any, key: str, framework: str) -> np.ndarray[Any, Any]:
    """The array of a host value, or `ConversionError` where `framework` has nothing like it."""
    if value is None:
        raise _impossible(key, "None", "Give it a value, or name its key in skip_keys", framework)
    if isinstance(value, str | bytes):
        raise _no_strings(key, framework)
    array = np.asarray(value)
    if array.dtype.kind == "O":
        if any(isinstance(item, np.ndarray) for item in array.flat):
            raise _impossible(
                key, "ragged rows", "Pad them with .padded_batch or .map(lambda b: b.to_tensor())", framework
            )
        raise _no_strings(key, framework)
    if array.dtype.kind in "US":
        raise _no_strings(key, framework)
    if array.dtype.kind in "mM":
        raise _impossible(key, f"{array.dtype} values", "Give them as int64", framework)
    return array


def narrowed(array: np.ndarray[Any, Any], dtype: np.dtype[Any], key: str, remedy: str) -> np.ndarray[Any, Any]:
    """The array in a narrower dtype where every value stays the same, else `ConversionError`."""
    if array.dtype == dtype:
        return array
    if array.size == 0:
        return array.astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wrong = (array < info.min) | (array > info.max)
        converted = array
    else:
        with np.errstate(over="ignore"):
            converted = array.astype(dtype)
        wrong = ~((converted == array) | (np.isnan(converted) & np.isnan(array)))
    if wrong.any():
        raise ConversionError(
            f"key {key!r} holds {array[wrong].flat[0]} as {array.dtype.name}, which {dtype.name} does not hold "
            f"exactly. {remedy}",
            key=key,
            dtype=array.dtype.name,
        )
    return converted.astype(dtype, copy=False)


def unsupported_dtype(key: str, dtype: np.dtype[Any], framework: str) -> ConversionError:
    """The error of a dtype that `framework` does not have."""
    return _impossible(key, f"{dtype.name} values", "Cast them in a .map, or name the key in skip_keys", framework)


def _no_strings(key: str, framework: str) -> ConversionError:
    return _impossible(
        key, "strings", f"Encode them as numbers before, or keep them as they are with skip_keys=[{key!r}]", framework
    )


def _impossible(key: str, found: str, remedy: str, framework: str = "NumPy") -> ConversionError:
    return ConversionError(f"key {key!r} holds {found}, which {framework} has no array for. {remedy}.", key=key)
