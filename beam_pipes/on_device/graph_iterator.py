"""What the iterators of graphs over JAX and torch share: the host part made ahead, then the device part."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.graph.basic.copy_to import ToHost
from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.device_program import Backend, DeviceProgram
from beam_pipes.graph.feeding import Work
from beam_pipes.graph.iterator import GraphIterator, Made
from beam_pipes.graph.pipeline import Pipeline
from beam_pipes.graph.tensor_list import TensorList, no_samples
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.on_device.prefetch import Stage


class DeviceGraphIterator(GraphIterator, abc.ABC):
    """Batches of a pipeline on a device: the host part in threads, transfer and device part in one of their own."""

    def __init__(
        self,
        pipe: Pipeline,
        output_map: Sequence[str] | None = None,
        *,
        ragged: str = "list",
        pad_value: Any = 0,
        device_buffer: int = 2,
    ) -> None:
        super().__init__(pipe, output_map, ragged=ragged, pad_value=pad_value)
        if isinstance(device_buffer, bool) or not isinstance(device_buffer, int) or device_buffer < 1:
            raise OperatorArgumentError(f"device_buffer should be at least 1, got {device_buffer!r}.")
        self._device_buffer = device_buffer
        self.program = DeviceProgram(pipe.plan(), self.backend())
        self._kept = set(self.program.host_inputs)

    @abc.abstractmethod
    def backend(self) -> Backend:
        """The library of arrays."""

    @abc.abstractmethod
    def placed(self, name: str, array: Any) -> Any:
        """A NumPy array as the library's, on the device."""

    @abc.abstractmethod
    def fetched(self, array: Any) -> Any:
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
        return _TwoStages(
            host, Stage(((made.work, (made.run.tally, self.batch_of(made))) for made in host), self._device_buffer)
        )

    def batch_of(self, made: Made) -> dict[str, Any]:
        on_device = self.program.run(made.run)
        batch: dict[str, Any] = {}
        for name, node in zip(self.names, self.pipe.plan().outputs, strict=True):
            if node.device == "gpu":
                batch.update(self._device_output(name, node, on_device[node], made))
            else:
                shaped = self.shaped(name, made.run.output(node), node.spec)
                batch.update({key: self._all_placed(key, value) for key, value in shaped.items()})
        for key, value in self._valid(made.run).items():
            batch[key] = self.placed(key, value)
        return batch

    def _all_placed(self, key: str, value: Any) -> Any:
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
        """An output whose samples are of one shape in this batch, in the form that it has in every batch."""
        shapes = TensorList(np.zeros((1, *whole.shape[1:]), np.bool_))
        own = self.shaped(name, shapes, node.spec)
        if f"{name}/lengths" not in own:
            return {name: whole}
        lengths = np.repeat(own[f"{name}/lengths"], whole.shape[0], axis=0)
        if self._ragged == "values":
            whole = whole.reshape((-1, *whole.shape[2:]))
        return {name: whole, f"{name}/lengths": lengths if back else self.placed(f"{name}/lengths", lengths)}


class _TwoStages:
    """The device stage over the host stage; closing it ends both."""

    def __init__(self, host: Any, device: Stage[Any]) -> None:
        self._host = host
        self._device = device

    def __iter__(self) -> Iterator[Any]:
        return self._device

    def close(self) -> None:
        """Ends the threads."""
        self._host.close()
        self._device.close()
