"""`TorchGraphIterator`: batches of a graph as torch tensors; its device operators run through the array API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from beam_pipes.extras import require
from beam_pipes.on_device.graph_iterator import DeviceGraphIterator
from beam_pipes.on_device.torch_loader import to_tensor


class TorchBackend:
    """Tensors on one device."""

    def __init__(self, device: torch.device) -> None:
        require("array_api_compat", purpose="running a graph's device operators with torch")
        import array_api_compat.torch

        self.device = device
        self.xp: Any = array_api_compat.torch

    def put(self, array: Any, *, exact: bool) -> Any:
        """The array on the device, its dtype unchanged; through pinned memory on CUDA."""
        tensor = to_tensor(np.ascontiguousarray(array), "what goes to the device")
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as it is: it runs eagerly, without gradients; arrays that it makes lie on the device."""

        def run(*arrays: Any) -> Any:
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

    def placed(self, name: str, array: Any) -> Any:
        return to_tensor(np.asarray(array), name).to(self._backend.device)

    def fetched(self, array: Any) -> Any:
        return array.cpu().numpy()
