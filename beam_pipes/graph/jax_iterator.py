"""`JaxGraphIterator`: batches of a graph as JAX arrays, its device operators jitted; and DALI's iterators for JAX."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from beam_pipes.checks import exclusive
from beam_pipes.errors import GraphError, OperatorArgumentError
from beam_pipes.graph.device_program import DeviceGraphIterator, R
from beam_pipes.graph.iterator import Batch, DALIGenericIterator
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.pipeline_def import pipeline_def
from beam_pipes.on_device.conversions import Element, narrowed, require_numeric
from beam_pipes.on_device.jax_loader import REMEDY


class _Namespace:
    """`jax.numpy`, whose 64-bit dtypes are 32-bit ones unless JAX has 64-bit types enabled."""

    def __getattr__(self, name: str) -> Any:
        if name in ("float64", "int64", "uint64"):
            return jax.dtypes.canonicalize_dtype(np.dtype(name))
        return getattr(jnp, name)


class JaxBackend:
    """JAX arrays on one device."""

    def __init__(self, device: jax.Device | None = None) -> None:
        self.device = device
        self.xp = _Namespace()

    def put(self, array: npt.ArrayLike, *, exact: bool) -> jax.Array:
        """The array on the device; in 32-bit mode 64-bit values are narrowed; if `exact`, changes raise."""
        array = np.asarray(array)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        array = narrowed(array, dtype, "what goes to the device", REMEDY) if exact else array.astype(dtype)
        placed: jax.Array = jax.device_put(array, self.device)
        return placed

    def compile(self, function: Callable[..., R]) -> Callable[..., R]:
        """`jax.jit`; products of float32 have the precision of float32, where GPUs would take 10 bits by default."""

        def precise(*arrays: jax.Array) -> R:
            with jax.default_matmul_precision("highest"):
                return function(*arrays)

        return jax.jit(precise)

    def bucket(self, count: int) -> int:
        """The next power of two: a branch of 5 samples runs as 8, so that few sizes are compiled."""
        return 1 << max(count - 1, 0).bit_length()


class JaxGraphIterator(DeviceGraphIterator[jax.Array]):
    """Batches of a pipeline as JAX arrays.

    `device_id` of the pipeline chooses the device, by default JAX's default device. While JAX runs with
    32-bit types, 64-bit outputs are narrowed where every value stays the same, else `ConversionError`.
    """

    def backend(self) -> JaxBackend:
        index = self.pipe.device_id
        if index is not None and index >= len(jax.devices()):
            raise OperatorArgumentError(
                f"device_id={index} is not one of the {len(jax.devices())} devices that JAX has here, counted from 0. "
                "Leave device_id out for its default device."
            )
        self._backend = JaxBackend(None if index is None else jax.devices()[index])
        return self._backend

    def placed(self, name: str, array: npt.ArrayLike) -> jax.Array:
        array = require_numeric(array, name, "JAX")
        array = narrowed(array, jax.dtypes.canonicalize_dtype(array.dtype), name, REMEDY)
        placed: jax.Array = jax.device_put(array, self._backend.device)
        return placed

    def fetched(self, array: npt.ArrayLike) -> np.ndarray:
        return np.asarray(array)


class JaxGenericIterator(DALIGenericIterator):
    """`DALIGenericIterator` of `nvidia.dali.plugin.jax`: a dict of JAX arrays, of one pipeline or of several.

        JaxGenericIterator([pipe], ["images"])                      →  {"images": (32, 224, 224, 3)}
        JaxGenericIterator([first, second], ["images"])             →  {"images": (2, 32, 224, 224, 3)}, as for `pmap`
        JaxGenericIterator([first, second], …, sharding=sharding)   →  {"images": (64, 224, 224, 3)}, on both devices

    Args:
        pipelines, output_map, options: those of `DALIGenericIterator`.
        sharding: how the rows of all pipelines, one after the other, lie on devices: one pipeline for each device of
            this process, in the order of their rows.
        pmap_compatible: without `sharding`, whether a first axis counts the pipelines; by default only for several.

    Raises `GraphError` for outputs that are not of one shape in all pipelines.
    """

    over_one = JaxGraphIterator

    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str],
        *args: object,
        sharding: jax.sharding.Sharding | None = None,
        pmap_compatible: bool | None = None,
        **options: object,
    ) -> None:
        start: Callable[..., None] = super().__init__
        start(pipelines, output_map, *args, **options)
        count = len(self.iterators)
        if sharding is not None and len(sharding.addressable_devices) != count:
            raise OperatorArgumentError(
                f"sharding takes one pipeline for each of its {len(sharding.addressable_devices)} devices in this "
                f"process, got {count}."
            )
        self._sharding = sharding
        self._stacks = sharding is None and (count > 1 if pmap_compatible is None else pmap_compatible)
        if count > 1 and sharding is None and not self._stacks:
            raise OperatorArgumentError(f"{count} pipelines need sharding=…, or pmap_compatible=True.")

    def shaped(self, batches: list[Batch]) -> object:
        if self._sharding is None and not self._stacks:
            return batches[0]
        return {name: self._joined(name, [batch[name] for batch in batches]) for name in batches[0]}

    def _joined(self, name: str, parts: Sequence[jax.Array]) -> jax.Array:
        shapes = {getattr(one, "shape", None) for one in parts}
        if len(shapes) > 1 or None in shapes:
            found = ", ".join("a list" if one is None else str(one) for one in shapes)
            raise GraphError(
                f"output {name!r} should be an array of one shape in all pipelines, got {found}. Give samples one "
                "shape in the graph, and end epochs by LastBatchPolicy.FILL or DROP."
            )
        first, *rest = parts[0].shape
        if self._sharding is None:
            devices = [next(iter(one.devices())) for one in parts]
            if len(set(devices)) < len(devices):
                return jnp.stack([jax.device_put(one, devices[0]) for one in parts])
            mesh = jax.sharding.Mesh(np.array(devices), ("pipelines",))
            spec: jax.sharding.PartitionSpec = jax.sharding.PartitionSpec("pipelines")  # type: ignore[no-untyped-call]
            sharding: jax.sharding.Sharding = jax.sharding.NamedSharding(mesh, spec)
            shape, parts = (len(parts), first, *rest), [one[None] for one in parts]
        else:
            sharding, shape = self._sharding, (len(self._sharding.device_set) * first, *rest)
        rows = sharding.addressable_devices_indices_map(shape)
        devices = sorted(rows, key=lambda device: (rows[device] or (slice(0),))[0].start or 0)
        placed = [jax.device_put(one, device) for one, device in zip(parts, devices, strict=True)]
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)


class JaxGenericPeekableIterator(JaxGenericIterator):
    """A `JaxGenericIterator` that can show the next batch without consuming it, like CLU's `PeekableIterator`.

    Shapes and dtypes are those of the first batch (`element_spec`): `GraphError` if a batch has others. `peek`,
    `peek_async` and `next` may be called by several threads.
    """

    def __init__(
        self, pipelines: Pipeline | Sequence[Pipeline], output_map: Sequence[str], *args: object, **of: object
    ):
        start: Callable[..., None] = super().__init__
        start(pipelines, output_map, *args, **of)
        self._mutex = threading.RLock()
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None
        self._peeked: dict[str, jax.Array] | None = None
        self._spec: dict[str, jax.ShapeDtypeStruct] | None = None

    def __iter__(self) -> JaxGenericPeekableIterator:
        if self._peeked is None:
            self.reset()
        return self

    def __next__(self) -> Element:
        with self._mutex:
            made, self._peeked = self.peek(), None
            return made

    next = __next__

    def peek(self) -> Element:
        """The batch that `next` gives next; raises `StopIteration` if it would."""
        with self._mutex:
            if self._peeked is None:
                made = super().__next__()
                spec = {name: _spec_of(one) for name, one in made.items()}
                self._spec = self._spec or spec
                if spec != self._spec:
                    raise GraphError(
                        f"every batch should be as the first one, {self._spec}, got {spec}. Give samples one shape in "
                        "the graph, and end epochs by LastBatchPolicy.FILL or DROP."
                    )
                self._peeked = made
            return self._peeked

    def peek_async(self) -> concurrent.futures.Future[Element]:
        """`peek` in a thread: a future of the batch. Wait for it before `next`, which may otherwise run first."""
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="beam_pipes-peek")
        return self._thread.submit(self.peek)

    def reset(self) -> None:
        super().reset()
        self._peeked = None if self._ended else self._peeked

    def checkpoints(self) -> list[str]:
        if self._peeked is not None:
            raise GraphError("a batch was peeked at and not taken: take it by next() before checkpoints().")
        return super().checkpoints()

    @property
    def element_spec(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of each output; peeks at the next batch if no batch has been seen."""
        if self._spec is None:
            self.peek()
        assert self._spec is not None
        return self._spec

    @property
    def is_nonpadding(self) -> np.ndarray | jax.Array:
        """Which rows of the newest batch are records rather than repetitions of the last one: bool, (rows,)."""
        made = np.concatenate([np.asarray(one) for one in self.valid])
        sharding = self._sharding
        return made if sharding is None else jax.make_array_from_process_local_data(sharding, made)  # type: ignore[no-untyped-call]


def _spec_of(array: jax.Array) -> jax.ShapeDtypeStruct:
    made: jax.ShapeDtypeStruct = jax.ShapeDtypeStruct(array.shape, array.dtype)  # type: ignore[no-untyped-call]
    return made


def data_iterator(
    pipeline_fn: Callable[..., object] | None = None,
    /,
    *,
    output_map: Sequence[str],
    sharding: jax.sharding.Sharding | None = None,
    devices: Sequence[jax.Device] | None = None,
    **options: object,
) -> Callable[..., Any]:
    """Makes a function that defines a graph into a factory of `JaxGenericIterator`s; `options` are those of iterators.

    @data_iterator(output_map=["images", "labels"], reader_name="R")
    def training(root): ...

    for batch in training("photos", batch_size=32): ...

    With `sharding`, or `devices` for `pmap`, it makes a pipeline for each device, and calls the function with
    `shard_id` and `num_shards` too; `batch_size` is that of all devices together.
    """
    return _factory(JaxGenericIterator, pipeline_fn, output_map, sharding, devices, options)


def peekable_data_iterator(
    pipeline_fn: Callable[..., object] | None = None,
    /,
    *,
    output_map: Sequence[str],
    sharding: jax.sharding.Sharding | None = None,
    devices: Sequence[jax.Device] | None = None,
    **options: object,
) -> Callable[..., Any]:
    """`data_iterator` of `JaxGenericPeekableIterator`s."""
    return _factory(JaxGenericPeekableIterator, pipeline_fn, output_map, sharding, devices, options)


def _factory(
    kind: type[JaxGenericIterator],
    pipeline_fn: Callable[..., object] | None,
    output_map: Sequence[str],
    sharding: jax.sharding.Sharding | None,
    devices: Sequence[jax.Device] | None,
    options: Mapping[str, object],
) -> Callable[..., Any]:
    exclusive({"sharding": sharding, "devices": devices}, error=OperatorArgumentError)
    if pipeline_fn is None:
        return lambda function: _factory(kind, function, output_map, sharding, devices, options)
    define = pipeline_def(pipeline_fn)
    made_of: Callable[..., JaxGenericIterator] = kind

    @functools.wraps(pipeline_fn)
    def make(*given: object, checkpoints: Sequence[str] | None = None, **keywords: Any) -> JaxGenericIterator:
        own: list[dict[str, object]] = [{}]
        pmap = options.get("pmap_compatible", devices is not None or None)
        if sharding is not None or devices is not None:
            chosen = list(devices or jax.local_devices())
            count = len(devices) if devices is not None else jax.device_count()
            size, rest = divmod(keywords.pop("batch_size"), count)
            if rest:
                raise OperatorArgumentError(
                    f"batch_size should be a multiple of {count} devices, got {size * count + rest}."
                )
            ids = [device.id for device in chosen] if devices is None else range(count)
            own = [{"batch_size": size, "shard_id": shard, "num_shards": count} for shard in ids]
            every = jax.devices()
            own = [{**one, "device_id": every.index(device)} for one, device in zip(own, chosen, strict=True)]
        texts: Sequence[str | None] = checkpoints or [None] * len(own)
        if len(texts) != len(own):
            raise OperatorArgumentError(
                f"checkpoints should be one for each of {len(own)} pipelines, got {len(texts)}."
            )
        pipes = [define(*given, checkpoint=text, **{**keywords, **one}) for text, one in zip(texts, own, strict=True)]
        return made_of(pipes, output_map, **{**options, "sharding": sharding, "pmap_compatible": pmap})

    return make
