"""From an element of tf.data or of a native loader to NumPy memory that belongs to the consumer alone.

| value                             | NumPy            | JAX                    | torch                  |
| --------------------------------- | ---------------- | ---------------------- | ---------------------- |
| bool, 8 to 32 bit, float16        | the same         | the same               | the same               |
| int64, uint64, float64            | the same         | the same, see below    | the same               |
| bfloat16, float8                  | ml_dtypes' types | the same               | the same               |
| string                            | `bytes` objects  | error                  | error                  |
| ragged                            | rows, as objects | error                  | error                  |
| sparse, nested dataset, quantized | error            | error                  | error                  |

While JAX runs with 32-bit types, 64-bit values become 32-bit ones if that changes no value, else they are an error.
Every array is a copy, so changing a batch in place affects no cached dataset; it is aligned for TensorFlow, XLA and
BLAS kernels, so that they use it without another copy. An element is a tensor, or dicts, tuples and
lists of them (`map_leaves`). Errors (`ConversionError`) name the key.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from beam_pipes.checks import brief
from beam_pipes.errors import ConversionError, LoaderError
from beam_pipes.format.exact import NotExactError, cast_exactly

if TYPE_CHECKING:
    import tensorflow as tf

#: An array or a tensor (or the spec of one), or dicts, tuples and lists of them: what `tf.nest` calls a structure.
Nested: TypeAlias = object
#: The same for a loop or a user's function, which index into it.
Element: TypeAlias = Any

# Eigen's largest vector: TensorFlow and XLA keep foreign memory only at multiples of it, and NumPy aligns to 16 bytes.
ALIGNMENT_BYTES = 64


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A writable C-contiguous copy in native byte order; numbers begin at a multiple of `ALIGNMENT_BYTES`.

    A copy of 128 KiB takes 5 µs. What it saves: `tf.constant` takes 49 µs for them, a hand-over by DLPack 2 µs.
    """
    dtype = array.dtype.newbyteorder("=")
    if dtype.hasobject:
        return np.array(array, dtype=dtype, order="C")
    memory = np.empty(array.size * dtype.itemsize + ALIGNMENT_BYTES, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT_BYTES
    made: np.ndarray = np.ndarray(shape=array.shape, dtype=dtype, buffer=memory, offset=offset)
    made[...] = array
    return made


@dataclasses.dataclass(frozen=True, eq=False)
class Skipped:
    """A value under a key of `skip_keys`: every conversion leaves it unchanged."""

    value: object


def map_items(function: Callable[[object, Nested], Nested], element: Nested) -> Nested:
    """The same dict, tuple or list of `function(name or index, item)` for its items; None for anything else."""
    if isinstance(element, dict):
        return {name: function(name, item) for name, item in element.items()}
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        named: Callable[..., object] = type(element)
        return named(*map(function, element._fields, element))
    if isinstance(element, list | tuple):
        return type(element)(map(function, range(len(element)), element))
    return None


def map_leaves(function: Callable[[Element, str], object], element: Nested, key: str = "") -> Nested:
    """`function(leaf, key)` on every leaf; the key of `{"a": ({"b": leaf},)}` is `a/0/b`."""
    if isinstance(element, np.ndarray):
        return function(element, key)
    if isinstance(element, dict) and not key:
        if all(type(item) is np.ndarray for item in element.values()):  # as from a native loader
            return {name: function(item, str(name)) for name, item in element.items()}
    mapped = map_items(lambda name, item: map_leaves(function, item, f"{key}/{name}" if key else str(name)), element)
    if mapped is not None:
        return mapped
    return element if isinstance(element, Skipped) else function(element, key)


def skipping(element: Nested, skip_keys: Collection[str]) -> Nested:
    """The element with the values of `skip_keys` marked `Skipped`, in every dict it holds."""
    if not skip_keys:
        return element
    in_dict = isinstance(element, dict)
    marked = map_items(
        lambda name, item: Skipped(item) if in_dict and name in skip_keys else skipping(item, skip_keys), element
    )
    return element if marked is None else marked


def unskipped(element: Nested) -> Nested:
    """The element with the marked values back in their places."""
    plain = map_items(lambda _, item: unskipped(item), element)
    if plain is not None:
        return plain
    return element.value if isinstance(element, Skipped) else element


def checked_skip_keys(skip_keys: str | Iterable[str], element_spec: Nested) -> frozenset[str]:
    """The keys as a set; a key that no element has is an error if the element spec is known."""
    keys = frozenset([skip_keys] if isinstance(skip_keys, str) else skip_keys)
    if element_spec is not None and keys:
        known = set(_names(element_spec))
        if keys - known:
            raise LoaderError(
                f"skip_keys names {sorted(keys - known)}, but the elements have the keys {sorted(known)}.",
                keys=sorted(keys - known),
            )
    return keys


def _names(element: object) -> Iterable[str]:
    if isinstance(element, dict):
        for name, item in element.items():
            yield str(name)
            yield from _names(item)
    elif isinstance(element, list | tuple):
        for item in element:
            yield from _names(item)


def to_host(element: Nested) -> Nested:
    """Every leaf as a NumPy array or scalar with its own memory; strings as `bytes`; ragged rows as object arrays."""
    return map_leaves(host_value, element)


def host_value(value: object, key: str) -> object:
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


def _host_tensor(tensor: tf.Tensor, key: str) -> object:
    if tensor.dtype.is_quantized or tensor.dtype.name in ("variant", "resource"):
        raise _impossible(key, f"a tensor of {tensor.dtype.name}", "Convert it in a .map, or name its key in skip_keys")
    # .numpy() copies for every dtype; a NumPy scalar (or bytes) comes back for rank 0.
    return tensor.numpy()


def _ragged_rows(ragged: tf.RaggedTensor, key: str) -> np.ndarray:
    """Rows as an object array, always: RaggedTensor.numpy() gives a dense array when lengths happen to agree."""
    count = int(ragged.nrows())
    rows = np.empty(count, object)
    for index in range(count):
        rows[index] = host_value(ragged[index], key)
    return rows


def require_numeric(value: object, key: str, framework: str) -> np.ndarray:
    """The array of a host value, or `ConversionError` if `framework` has no equivalent."""
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return value
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


def narrowed(array: np.ndarray, dtype: np.dtype, key: str, remedy: str) -> np.ndarray:
    """The array in a narrower dtype if that changes no value, else `ConversionError`."""
    try:
        return cast_exactly(array, dtype)
    except NotExactError as error:
        raise ConversionError(
            f"key {key!r} holds {brief(error.found)} as {error.kind}, which {dtype.name} does not hold exactly. "
            f"{remedy}",
            key=key,
            dtype=error.kind,
        ) from None


def unsupported_dtype(key: str, dtype: np.dtype, framework: str) -> ConversionError:
    """The error for a dtype that `framework` lacks."""
    return _impossible(key, f"{dtype.name} values", "Cast them in a .map, or name the key in skip_keys", framework)


def _no_strings(key: str, framework: str) -> ConversionError:
    return _impossible(
        key, "strings", f"Encode them as numbers first, or keep them unchanged with skip_keys=[{key!r}]", framework
    )


def _impossible(key: str, found: str, remedy: str, framework: str = "NumPy") -> ConversionError:
    return ConversionError(f"key {key!r} holds {found}, which {framework} has no array for. {remedy}.", key=key)
