"""`JaxGraphIterator`: batches of a graph as JAX arrays; its device operators are jitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from beam_pipes.on_device.conversions import narrowed, require_numeric
from beam_pipes.on_device.graph_iterator import DeviceGraphIterator
from beam_pipes.on_device.jax_loader import REMEDY


class _Namespace:
    """`jax.numpy`, where the 64-bit dtypes are those that JAX has: 32-bit ones unless it is told otherwise."""

    def __getattr__(self, name: str) -> Any:
        if name in ("float64", "int64", "uint64"):
            return jax.dtypes.canonicalize_dtype(np.dtype(name))
        return getattr(jnp, name)


class JaxBackend:
    """JAX arrays on one device."""

    def __init__(self, device: Any = None) -> None:
        self.device = device
        self.xp: Any = _Namespace()

    def put(self, array: Any, *, exact: bool) -> Any:
        """The array on the device; in 32-bit mode 64-bit values are narrowed, if `exact` only where none changes."""
        array = np.asarray(array)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        array = narrowed(array, dtype, "what goes to the device", REMEDY) if exact else array.astype(dtype)
        return jax.device_put(array, self.device)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`jax.jit`; products of float32 have the precision of float32, where GPUs would take 10 bits by default."""

        def precise(*arrays: Any) -> Any:
            with jax.default_matmul_precision("highest"):
                return function(*arrays)

        return jax.jit(precise)

    def bucket(self, count: int) -> int:
        """The next power of two: a branch of 5 samples runs as 8, so that few sizes are compiled."""
        return 1 << max(count - 1, 0).bit_length()


class JaxGraphIterator(DeviceGraphIterator):
    """Batches of a pipeline as JAX arrays.

    `device_id` of the pipeline chooses the device; arrays lie on JAX's default device without it. While JAX runs with
    32-bit types, 64-bit outputs are narrowed where every value stays the same, else `ConversionError`.
    """

    def backend(self) -> JaxBackend:
        index = self.pipe.device_id
        self._backend = JaxBackend(None if index is None else jax.devices()[index])
        return self._backend

    def placed(self, name: str, array: Any) -> Any:
        array = require_numeric(array, name, "JAX")
        array = narrowed(array, jax.dtypes.canonicalize_dtype(array.dtype), name, REMEDY)
        return jax.device_put(array, self._backend.device)

    def fetched(self, array: Any) -> Any:
        return np.asarray(array)
