"""JaxDataLoader: elements as JAX arrays, sharded over devices and prefetched to them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from beam_pipes.errors import LoaderError
from beam_pipes.loader.prefetch import not_copied
from beam_pipes.on_device.ahead import DeviceCopies, PrefetchOptions
from beam_pipes.on_device.conversions import (
    ALIGNMENT_BYTES,
    Nested,
    map_leaves,
    narrowed,
    require_numeric,
    to_host,
    unsupported_dtype,
)
from beam_pipes.on_device.global_rows import GlobalRows, fitting, global_rows, reading_rows
from beam_pipes.on_device.lambda_loader import ConvertedLoader

REMEDY = "Enable jax_enable_x64, or cast the key before (.map with tf.cast), which chooses the loss."


_settings: Any = jax.config  # JAX adds its settings as attributes, which have no types


class JaxDataLoader(ConvertedLoader):
    """Dicts of JAX arrays from a DataLoader or from any iterable of dicts of NumPy arrays.

    While JAX runs with 32-bit types, a 64-bit value becomes a 32-bit one if nothing is lost, and raises
    `ConversionError` otherwise. Without `shard` and `prefetch_to_devices`, arrays are on JAX's default device.
    """

    def __init__(self, dataloader: Iterable[object], *, skip_keys: str | Iterable[str] = ()) -> None:
        super().__init__(dataloader, skip_keys=skip_keys)
        self._sharding: NamedSharding | None = None
        self._rows: GlobalRows | None = None  # None if one process has all devices

    def __getstate__(self) -> dict[str, object]:
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
        if functions and rows is None:  # their results are not sharded yet
            functions = (*functions, functools.partial(map_leaves, functools.partial(_sharded, sharding)))
        return self._with("shard", _sharding=sharding, _rows=rows, _functions=functions)

    def source_elements(self) -> Iterable[object]:
        return reading_rows(super().source_elements(), self._rows)

    def prefetch_to_devices(self, size: int = 2, *, copies: DeviceCopies | None = None) -> JaxDataLoader:
        """Keeps `size` elements ready on the devices; where they take long, threads keep as many on the host too.

        `copies` takes the place of JAX's own copies, in a test without devices.
        """
        options = PrefetchOptions(host_buffer=size, device_buffer=size)
        return self._with("prefetch_to_devices", _prefetch=options, _copies=copies)

    def _host(self, sample: Nested) -> Nested:
        return sample if self._owns_arrays else to_host(sample)

    def _place(self, host: Nested) -> Nested:
        return map_leaves(_on_default_device if self._sharding is None else self._to_shards, host)

    def _arrived(self, element: Nested) -> None:
        jax.block_until_ready(element)  # type: ignore[no-untyped-call]

    def _device_copies(self) -> DeviceCopies:
        return self._copies or _JaxCopies(self._place, is_sharded=self._sharding is not None)

    def _to_shards(self, value: object, key: str) -> jax.Array:
        assert self._sharding is not None
        array = _checked(value, key)
        if self._rows is not None:
            return self._rows.array(self._sharding, array, key)
        return _sharded(self._sharding, array, key)


class _JaxCopies:
    """Copies by JAX under the settings of the iteration's start. Its arrays wait for themselves where they are used."""

    def __init__(self, place: Callable[[Nested], Nested], *, is_sharded: bool) -> None:
        self._place = place
        self._is_sharded = is_sharded
        self._enable_x64, self._default_device = _settings.jax_enable_x64, _settings.jax_default_device
        self._puts: dict[tuple[tuple[int, ...], np.dtype], Callable[[np.ndarray], jax.Array]] = {}

    def copy(self, host: Nested, *, here: bool) -> Nested:
        puts = self._puts
        if type(host) is dict and puts:  # in a loop of small steps every µs of Python before this call counts
            try:
                return {name: puts[array.shape, array.dtype](array) for name, array in host.items()}
            except (AttributeError, KeyError):
                pass
        # These two settings are local to a thread: another one takes the consumer's.
        with jax.enable_x64(self._enable_x64), jax.default_device(self._default_device):
            placed = self._place(host)
            if type(host) is dict and not self._is_sharded:
                for array in host.values():
                    put = _put_for(array)[0]
                    if put is not None and len(puts) < _MOST_PUTS:
                        puts[array.shape, array.dtype] = put
        return placed

    def received(self, copying: Nested) -> Nested:
        return copying


def _checked(value: object, key: str) -> np.ndarray:
    """The array of a host value in a dtype that JAX has, or `ConversionError`."""
    array = require_numeric(value, key, "JAX")
    try:
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    except TypeError as error:
        raise unsupported_dtype(key, array.dtype, "JAX") from error
    return narrowed(array, dtype, key, REMEDY)


def _on_default_device(value: object, key: str) -> jax.Array:
    """A host value that nothing else holds as an array of JAX.

    On a CPU, memory at a multiple of `ALIGNMENT_BYTES` is taken over and other memory is copied, by the call inside
    of `jax.device_put`: 3 and 6 µs for 128 KiB. `jax.device_put` itself takes 28 µs and `jnp.asarray` 24 µs, nearly all
    of it Python; a compiled program that returns its argument 8 to 23 µs. On a GPU (H200, slower cores) the same call
    starts the copy of 128 KiB in 21 µs, `jax.device_put` in 85 µs and `jnp.asarray` in 165 µs.
    """
    put, device = _put_for(value)
    if put is not None:
        made: jax.Array = put(value)  # type: ignore[arg-type]  # an array: others have no such function
        return made
    array = _checked(value, key)
    if not isinstance(device, jax.Device):  # a platform by its name
        return jnp.asarray(array)
    put = _put_of(device, array.shape, array.dtype)
    if array is value:
        if len(_puts) >= _MOST_PUTS:
            _puts.clear()
        _puts[device, _settings.jax_enable_x64, array.shape, array.dtype] = put
    return put(array)


def _put_for(value: object) -> tuple[Callable[[np.ndarray], jax.Array] | None, object]:
    """What puts an array of this shape and dtype on the default device, if one has been put there, and that device."""
    device = _settings.jax_default_device or _first_device(jax.default_backend())
    if type(value) is not np.ndarray:
        return None, device
    return _puts.get((device, _settings.jax_enable_x64, value.shape, value.dtype)), device


# (device, 64-bit types, shape, dtype) → a function that makes a JAX array of such an array without further checks.
_puts: dict[tuple[object, ...], Callable[[np.ndarray], jax.Array]] = {}
_MOST_PUTS = 1024


@functools.cache
def _first_device(platform: str) -> jax.Device:
    return jax.local_devices(backend=platform)[0]


def _put_of(device: jax.Device, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[np.ndarray], jax.Array]:
    """The call inside of `jax.device_put`, tried first; `jnp.asarray`, which copies, if this JAX has another one."""
    try:
        client = importlib.import_module("jax._src.lib").xla_client
        semantics, call = client.HostBufferSemantics, client.batched_device_put
        # Memory that is copied anyway is copied within the call: for larger arrays XLA would start a thread otherwise.
        zero_copy, during_call = semantics.ZERO_COPY, semantics.IMMUTABLE_ONLY_DURING_CALL
        on_cpu = device.platform == "cpu"  # another device copies always, and XLA holds the array until then
        kind, sharding, devices = (
            jax.core.ShapedArray(shape, dtype),
            jax.sharding.SingleDeviceSharding(device),
            [device],
        )

        def put(array: np.ndarray) -> jax.Array:
            aligned = not on_cpu or array.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0
            how = zero_copy if aligned else during_call
            made: jax.Array = call(kind, sharding, [array], devices, False, False, how)
            return made

        made, same = put(np.full(shape, 1, dtype)), jnp.asarray(np.full(shape, 1, dtype))
        if (made.aval, made.sharding, made.committed) == (same.aval, sharding, False) and bool((made == same).all()):
            return put
    except (AttributeError, ImportError, TypeError, ValueError, RuntimeError):
        pass
    return jnp.asarray


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
