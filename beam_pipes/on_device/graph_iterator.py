"""Iterators of graphs over JAX and torch: the host part runs ahead, then the device part.

    works ──OrderedPrefetcher──► host part (threads) ──Stage──► device part ──► batches of arrays on the device

`JaxGraphIterator` gives JAX arrays, and its device operators are jitted; `TorchGraphIterator` gives torch tensors, and
its device operators run through the array API.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import torch

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.extras import require
from beam_pipes.graph.basic import ToHost
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.device_program import Backend, DeviceProgram
from beam_pipes.graph.feeding import Work
from beam_pipes.graph.iterator import DALIClassificationIterator, DALIGenericIterator, GraphIterator, Made
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.pipeline_def import pipeline_def
from beam_pipes.graph.tensors import TensorList, no_samples
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.on_device.conversions import Nested, narrowed, require_numeric
from beam_pipes.on_device.jax_loader import REMEDY
from beam_pipes.on_device.lambda_loader import Stage
from beam_pipes.on_device.torch_loader import to_tensor


class DeviceGraphIterator(GraphIterator, abc.ABC):
    """Batches of a pipeline on a device: the host part in threads, transfer and device part in one of their own."""

    def __init__(
        self,
        pipe: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str] | None = None,
        *,
        ragged: str = "list",
        pad_value: float = 0,
        device_buffer: int = 2,
        **of_dali: Any,
    ) -> None:
        super().__init__(pipe, output_map, ragged=ragged, pad_value=pad_value, **of_dali)
        if isinstance(device_buffer, bool) or not isinstance(device_buffer, int) or device_buffer < 1:
            raise OperatorArgumentError(f"device_buffer should be at least 1, got {device_buffer!r}.")
        self._device_buffer = device_buffer
        self.program = DeviceProgram(self.pipe.plan(), self.backend())
        self._kept = set(self.program.host_inputs)

    @abc.abstractmethod
    def backend(self) -> Backend:
        """The library of arrays."""

    @abc.abstractmethod
    def placed(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        """A NumPy array as the library's, on the device."""

    @abc.abstractmethod
    def fetched(self, array: Any) -> np.ndarray[Any, Any]:
        """An array of the library as NumPy's."""

    def _host_nodes(self) -> Sequence[Any]:
        return [node for node in self.pipe.host_nodes() if node.device != "gpu"]

    def host_part(self, work: Work) -> Made:
        pipe, plan = self.pipe, self.pipe.plan()
        run = pipe.host_run(work)
        for node in self._host_nodes():
            spent = [one for one in plan.spent_after.get(node, ()) if one not in self._kept]
            run.run(node, spent)
        return Made(work, run)

    def _made_ahead(self, works: Iterator[Work]) -> Any:
        options = self.pipe.options
        if self.pipe.feeding.is_pushed:
            return super()._made_ahead(works)
        in_order = any(node.operator.side_effects for node in self.pipe.host_nodes())
        host = OrderedPrefetcher(
            self.host_part,
            works,
            workers=1 if in_order else options.num_threads,
            depth=max(1, options.prefetch_queue_depth),
        )
        return Stage(lambda made: (made.work, (made.run.tally, self.batch_of(made))), host, self._device_buffer)

    def batch_of(self, made: Made) -> dict[str, Any]:
        on_device = self.program.run(made.run)
        batch: dict[str, Any] = {}
        for name, node in zip(self.names, self.pipe.plan().outputs, strict=True):
            if node.device == "gpu":
                batch.update(self._device_output(name, node, on_device[node], made))
            else:
                shaped = self.shaped(name, self.pipe.checked(made.run.output(node), node), node.spec)
                batch.update({key: self._all_placed(key, value) for key, value in shaped.items()})
        for key, value in self._valid(made.run).items():
            batch[key] = self.placed(key, value)
        return batch

    def _all_placed(self, key: str, value: Nested) -> Nested:
        return [self.placed(key, one) for one in value] if isinstance(value, list) else self.placed(key, value)

    def _device_output(self, name: str, node: DataNode, parts: list[tuple[Any, Any]], made: Made) -> dict[str, Any]:
        back = isinstance(node.source.operator, ToHost)
        if parts and len({(tuple(array.shape[1:]), str(array.dtype)) for _, array in parts}) == 1:
            whole = parts[0][1]
            if len(parts) > 1:
                xp = self.program.backend.xp
                order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
                whole = xp.concat([array for _, array in parts], axis=0)
                whole = xp.take(whole, self.program.backend.put(order, exact=False), axis=0)
            return self._whole_output(name, node, self.fetched(whole) if back else whole, back)
        samples: dict[int, Any] = {}
        for rows, array in parts:
            for at, row in enumerate(rows.tolist()):
                samples[row] = array[at]
        ordered = [samples[row] for row in made.run.rows_of(None).tolist()]
        if not ordered:
            none = self.shaped(name, no_samples(node.spec), node.spec)
            return none if back else {key: self._all_placed(key, value) for key, value in none.items()}
        if self._ragged != "list" or (back and ordered):
            columns = TensorList([np.asarray(self.fetched(one)) for one in ordered])
            shaped = self.shaped(name, columns, node.spec)
            return shaped if back else {key: self._all_placed(key, value) for key, value in shaped.items()}
        return {name: ordered}

    def _whole_output(self, name: str, node: DataNode, whole: Any, back: bool) -> dict[str, Any]:
        """An output whose samples share one shape in this batch, in the form that it has in every batch."""
        shapes = TensorList(np.zeros((1, *whole.shape[1:]), np.bool_))
        own = self.shaped(name, shapes, node.spec)
        if f"{name}/lengths" not in own:
            return {name: whole}
        lengths = np.repeat(own[f"{name}/lengths"], whole.shape[0], axis=0)
        if self._ragged == "values":
            whole = whole.reshape((-1, *whole.shape[2:]))
        return {name: whole, f"{name}/lengths": lengths if back else self.placed(f"{name}/lengths", lengths)}


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
        self.xp: Any = _Namespace()

    def put(self, array: npt.ArrayLike, *, exact: bool) -> jax.Array:
        """The array on the device; in 32-bit mode 64-bit values are narrowed; if `exact`, a change raises."""
        array = np.asarray(array)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        array = narrowed(array, dtype, "what goes to the device", REMEDY) if exact else array.astype(dtype)
        placed: jax.Array = jax.device_put(array, self.device)
        return placed

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`jax.jit`; products of float32 have the precision of float32, where GPUs would take 10 bits by default."""

        def precise(*arrays: jax.Array) -> Any:
            with jax.default_matmul_precision("highest"):
                return function(*arrays)

        return jax.jit(precise)

    def bucket(self, count: int) -> int:
        """The next power of two: a branch of 5 samples runs as 8, so that few sizes are compiled."""
        return 1 << max(count - 1, 0).bit_length()


class JaxGraphIterator(DeviceGraphIterator):
    """Batches of a pipeline as JAX arrays.

    `device_id` of the pipeline chooses the device, by default JAX's default device. While JAX runs with
    32-bit types, 64-bit outputs are narrowed where every value stays the same, else `ConversionError`.
    """

    def backend(self) -> JaxBackend:
        index = self.pipe.device_id
        self._backend = JaxBackend(None if index is None else jax.devices()[index])
        return self._backend

    def placed(self, name: str, array: npt.ArrayLike) -> jax.Array:
        array = require_numeric(array, name, "JAX")
        array = narrowed(array, jax.dtypes.canonicalize_dtype(array.dtype), name, REMEDY)
        placed: jax.Array = jax.device_put(array, self._backend.device)
        return placed

    def fetched(self, array: npt.ArrayLike) -> np.ndarray[Any, Any]:
        return np.asarray(array)


class TorchBackend:
    """Tensors on one device."""

    def __init__(self, device: torch.device) -> None:
        require("array_api_compat", purpose="running a graph's device operators with torch")
        import array_api_compat.torch

        self.device = device
        self.xp: Any = array_api_compat.torch

    def put(self, array: npt.ArrayLike, *, exact: bool) -> torch.Tensor:
        """The array on the device, its dtype unchanged; through pinned memory on CUDA."""
        tensor = to_tensor(np.ascontiguousarray(array), "what goes to the device")
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself: it runs eagerly, without gradients, and creates arrays on the device."""

        def run(*arrays: torch.Tensor) -> Any:
            with torch.no_grad(), self.device:
                return function(*arrays)

        return run

    def bucket(self, count: int) -> int:
        """As many as there are: nothing is compiled."""
        return count


class TorchGraphIterator(DeviceGraphIterator):
    """Batches of a pipeline as torch tensors, with their dtypes (64 bit too).

    `device_id` of the pipeline names the CUDA device; without it CUDA's current device where there is one, else the
    host.
    """

    def backend(self) -> TorchBackend:
        index = self.pipe.device_id
        if index is not None:
            device = torch.device("cuda", index)
        else:
            device = (
                torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
            )
        self._backend = TorchBackend(device)
        return self._backend

    def placed(self, name: str, array: npt.ArrayLike) -> torch.Tensor:
        return to_tensor(np.asarray(array), name).to(self._backend.device)

    def fetched(self, array: torch.Tensor) -> np.ndarray[Any, Any]:
        return array.cpu().numpy()


class TorchGenericIterator(DALIGenericIterator):
    """`DALIGenericIterator` of `nvidia.dali.plugin.pytorch`: a list of dicts of tensors, one for each pipeline."""

    over_one = TorchGraphIterator


class TorchClassificationIterator(DALIClassificationIterator):
    """`TorchGenericIterator` with the outputs "data" and "label"."""

    over_one = TorchGraphIterator


class JaxGenericIterator(DALIGenericIterator):
    """`DALIGenericIterator` of `nvidia.dali.plugin.jax`: a dict of JAX arrays, of one pipeline."""

    over_one = JaxGraphIterator

    def shaped(self, batches: list[dict[str, Any]]) -> dict[str, Any]:
        if len(batches) > 1:
            raise OperatorArgumentError(
                f"with JAX an iterator takes one pipeline, got {len(batches)}. For arrays over several devices build a "
                "cache and load it with DataLoader.from_cache(…).to_jax().shard(…)."
            )
        return batches[0]


def data_iterator(
    pipeline_fn: Callable[..., Any] | None = None, /, *, output_map: Sequence[str], **options: Any
) -> Callable[..., Any]:
    """Makes a function that defines a graph into a factory of `JaxGenericIterator`s; `options` are those of iterators.

    @data_iterator(output_map=["images", "labels"], reader_name="R")
    def training(root): ...

    for batch in training("photos", batch_size=32): ...
    """
    if pipeline_fn is None:
        return functools.partial(data_iterator, output_map=output_map, **options)
    define = pipeline_def(pipeline_fn)

    @functools.wraps(pipeline_fn)
    def make(*given: object, checkpoints: Sequence[str] | None = None, **keywords: Any) -> JaxGenericIterator:
        pipe = define(*given, checkpoint=checkpoints[0] if checkpoints else None, **keywords)
        return JaxGenericIterator(pipe, output_map, **options)

    return make
