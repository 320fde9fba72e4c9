"""JaxDataLoader: elements as JAX arrays, sharded over devices and prefetched to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from beam_pipes.errors import LoaderError
from beam_pipes.loader.prefetch import not_copied
from beam_pipes.on_device.conversions import Nested, map_leaves, narrowed, require_numeric, to_host, unsupported_dtype
from beam_pipes.on_device.global_rows import GlobalRows, fitting, global_rows, told
from beam_pipes.on_device.lambda_loader import ConvertedLoader, PrefetchOptions

REMEDY = "Enable jax_enable_x64, or cast the key before (.map with tf.cast), which chooses the loss."


class JaxDataLoader(ConvertedLoader):
    """Dicts of JAX arrays from a DataLoader or from any iterable of dicts of NumPy arrays.

    While JAX runs with 32-bit types, a 64-bit value becomes a 32-bit one if nothing is lost, and raises
    `ConversionError` otherwise. Without `shard` and `prefetch_to_devices`, arrays are on JAX's default device.
    """

    def __init__(self, dataloader: Iterable[Any], *, skip_keys: str | Iterable[str] = ()) -> None:
        super().__init__(dataloader, skip_keys=skip_keys)
        self._sharding: NamedSharding | None = None
        self._rows: GlobalRows | None = None  # None where one process has all devices

    def __getstate__(self) -> dict[str, Any]:
        if self._sharding is not None:
            raise not_copied(
                "a JaxDataLoader with shard(…), which holds devices,", "Pickle it before .shard, and call that there."
            )
        return super().__getstate__()

    def shard(self, devices: int | Sequence[jax.Device] | Mesh | NamedSharding | None = None) -> JaxDataLoader:
        """Splits every array along its first dimension over `devices`: one global array, a part on each.

        `devices`: how many (the first ones of JAX), a list, a Mesh (split over all its axes), a NamedSharding (used as
        it is, and for arrays of fewer axes without those that they lack), or all devices of JAX. The first dimension
        must divide, scalars are copied to each device.

        Over several processes a native loader (or `DataLoader.from_cache(…)` without tf.data) reads the rows of the
        global batch that the devices of this process need: `batch_size` is that of the global array. Ragged
        features are padded to the longest row of the global batch. Batches of anything else are taken as this process's
        own part: the global array has those of all processes, in the order of the mesh. Other dimensions than the first
        are handed over whole.

        Raises `LoaderError` if the loader's options (`host_index`, `host_count`) select other rows than the devices
        need, or if the processes would make arrays of different shapes.
        """
        sharding = _batch_sharding(devices)
        rows = global_rows(self._loader, sharding, self.skip_keys)
        functions = self._functions
        if functions and rows is None:  # what they made is not sharded yet
            functions = (*functions, functools.partial(map_leaves, functools.partial(_sharded, sharding)))
        return self._with("shard", _sharding=sharding, _rows=rows, _functions=functions)

    def source_elements(self) -> Iterable[Any]:
        return told(super().source_elements(), self._rows)

    def prefetch_to_devices(self, size: int = 2) -> JaxDataLoader:
        """Keeps `size` elements ready on the devices, and as many on the host; the threads end with the iteration."""
        options = PrefetchOptions(host_buffer=size, device_buffer=size)
        return self._with("prefetch_to_devices", _prefetch=options)

    def _host(self, sample: Nested) -> Nested:
        return sample if self._owns_arrays else to_host(sample)

    def _place(self, host: Nested) -> Nested:
        checked = map_leaves(_checked, host)
        if self._sharding is not None:
            return map_leaves(self._to_shards, checked)
        arrays: list[np.ndarray[Any, Any]] = []
        map_leaves(lambda array, _: arrays.append(array), checked)
        placed = iter(on_default_device(arrays))
        return map_leaves(lambda *_: next(placed), checked)

    def _arrived(self, element: Nested) -> None:
        jax.block_until_ready(element)  # type: ignore[no-untyped-call]

    def _placement(self) -> Callable[[Any], Any]:
        # These two settings are local to a thread: the placing thread takes over the consumer's.
        settings: Any = jax.config
        enable_x64, device = settings.jax_enable_x64, settings.jax_default_device

        def place(host: Nested) -> Nested:
            with jax.enable_x64(enable_x64), jax.default_device(device):
                return self._place(host)

        return place

    def _to_shards(self, array: np.ndarray[Any, Any], key: str) -> jax.Array:
        assert self._sharding is not None
        if self._rows is not None:
            return self._rows.array(self._sharding, array, key)
        return _sharded(self._sharding, array, key)


def _checked(value: object, key: str) -> np.ndarray[Any, Any]:
    """The array of a host value in a dtype that JAX has, or `ConversionError`."""
    array = require_numeric(value, key, "JAX")
    try:
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    except TypeError as error:
        raise unsupported_dtype(key, array.dtype, "JAX") from error
    return narrowed(array, dtype, key, REMEDY)


def on_default_device(arrays: Sequence[np.ndarray[Any, Any]]) -> Sequence[jax.Array]:
    """Turns host arrays that nothing else uses into JAX arrays, which never see later writes to the host memory.

    On a CPU a compiled program that returns its arguments takes 8 µs an array of 128 KiB, `jnp.asarray` 27 µs and
    `jax.device_put` 28 µs, nearly all of it Python. It is compiled for shapes that keep coming, and for few: elsewhere
    compiling would take longer than it saves.
    """
    settings: Any = jax.config
    device = settings.jax_default_device
    if (jax.default_backend() if device is None else getattr(device, "platform", device)) == "cpu" and not (
        settings.jax_disable_jit or settings.jax_debug_nans or settings.jax_debug_infs
    ):
        signature = tuple([(array.shape, array.dtype) for array in arrays])
        seen = _seen.get(signature, 0)
        if seen >= _STEADY:
            placed: Sequence[jax.Array] = _returned(arrays)
            return placed
        if seen or len(_seen) < _MOST_SHAPES:
            _seen[signature] = seen + 1
    return [jnp.asarray(array) for array in arrays]


_returned = jax.jit(lambda arrays: arrays)
# Shapes of elements → how often they have come: from `_STEADY` times on there is a program, for this many shapes.
_seen: dict[tuple[Any, ...], int] = {}
_STEADY, _MOST_SHAPES = 16, 32


def _sharded(sharding: NamedSharding, value: jax.typing.ArrayLike, key: str) -> jax.Array:
    placed: jax.Array = jax.device_put(value, fitting(sharding, np.shape(value), key))
    return placed


def _batch_sharding(devices: int | Sequence[jax.Device] | Mesh | NamedSharding | None) -> NamedSharding:
    if isinstance(devices, NamedSharding):
        return devices
    if isinstance(devices, int):
        if not 1 <= devices <= jax.device_count():
            raise LoaderError(
                f"shard({devices}) needs between 1 and {jax.device_count()} devices, which is what JAX has here. On a "
                f"CPU, XLA_FLAGS=--xla_force_host_platform_device_count={max(devices, 1)} makes as many."
            )
        devices = jax.devices()[:devices]
    if not isinstance(devices, Mesh):
        chosen = jax.devices() if devices is None else list(devices)
        if not chosen:
            raise LoaderError("shard needs at least one device, got none.")
        devices = Mesh(np.array(chosen), ("batch",))
    return NamedSharding(devices, _spec(devices.axis_names))


def _spec(*axes: str | tuple[str, ...] | None) -> PartitionSpec:
    spec: PartitionSpec = PartitionSpec(*axes)  # type: ignore[no-untyped-call]
    return spec
