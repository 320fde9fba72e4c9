"""`TorchGraphIterator`: batches of a graph as torch tensors; its device operators run through the array API."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from beam_pipes.errors import OperatorArgumentError
from beam_pipes.extras import require
from beam_pipes.graph.device_program import DeviceGraphIterator, R
from beam_pipes.graph.iterator import DALIClassificationIterator, DALIGenericIterator
from beam_pipes.on_device.torch_loader import to_tensor


class TorchBackend:
    """Tensors on one device."""

    def __init__(self, device: torch.device) -> None:
        require("array_api_compat", purpose="running a graph's device operators with torch")
        import array_api_compat.torch

        self.device = device
        self.xp = array_api_compat.torch

    def put(self, array: npt.ArrayLike, *, exact: bool) -> torch.Tensor:
        """The array on the device, its dtype unchanged; through pinned memory on CUDA."""
        tensor = to_tensor(np.ascontiguousarray(array), "what goes to the device")
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def compile(self, function: Callable[..., R]) -> Callable[..., R]:
        """The function itself: it runs eagerly, without gradients, and creates arrays on the device."""

        def run(*arrays: torch.Tensor) -> R:
            with torch.no_grad(), self.device:
                return function(*arrays)

        return run

    def bucket(self, count: int) -> int:
        """The same number: nothing is compiled."""
        return count


class TorchGraphIterator(DeviceGraphIterator[torch.Tensor]):
    """Batches of a pipeline as torch tensors, with their dtypes (64 bit too).

    `device_id` of the pipeline names the CUDA device; without it CUDA's current device if there is one, else the host.
    """

    def backend(self) -> TorchBackend:
        index = self.pipe.device_id
        if index is not None:
            if index >= (count := torch.cuda.device_count()):
                raise OperatorArgumentError(
                    f"device_id={index} asks for a GPU, and torch sees {count or 'none'} here. Leave device_id out for "
                    f"tensors on {'the current GPU' if count else 'the host'}."
                )
            device = torch.device("cuda", index)
        else:
            device = (
                torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
            )
        self._backend = TorchBackend(device)
        return self._backend

    def placed(self, name: str, array: npt.ArrayLike) -> torch.Tensor:
        return to_tensor(np.asarray(array), name).to(self._backend.device)

    def fetched(self, array: torch.Tensor) -> np.ndarray:
        return array.cpu().numpy()


class TorchGenericIterator(DALIGenericIterator):
    """`DALIGenericIterator` of `nvidia.dali.plugin.pytorch`: a list of dicts of tensors, one for each pipeline."""

    over_one = TorchGraphIterator


class TorchClassificationIterator(DALIClassificationIterator):
    """`TorchGenericIterator` with the outputs "data" and "label"."""

    over_one = TorchGraphIterator
