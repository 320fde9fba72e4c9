"""TorchDataLoader: elements as torch tensors, on the host or prefetched to a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import torch

from beam_pipes.on_device.conversions import Nested, map_leaves, require_numeric, to_host, unsupported_dtype
from beam_pipes.on_device.lambda_loader import ConvertedLoader, PrefetchOptions

# Types that NumPy lacks: the NumPy type that carries their bits, and the torch type to view them as.
_SEEN_AS: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e5m2": (np.uint8, torch.float8_e5m2),
    "float8_e5m2fnuz": (np.uint8, torch.float8_e5m2fnuz),
}


class TorchDataLoader(ConvertedLoader):
    """Dicts of torch tensors from a DataLoader or from any iterable of dicts of NumPy arrays.

    Tensors own their memory and keep their dtype (64 bit too).
    """

    def __init__(self, dataloader: Iterable[object], *, skip_keys: str | Iterable[str] = ()) -> None:
        super().__init__(dataloader, skip_keys=skip_keys)
        self._device: torch.device | None = None

    def prefetch_to_devices(self, size: int = 2, *, device: torch.device | str | None = None) -> TorchDataLoader:
        """Keeps `size` elements ready on `device`, and as many on the host; the threads end with the iteration.

        On CUDA (the default if available) elements pass through pinned memory and are copied on a side stream, parallel
        to the computation. The consumer's stream waits for the copy; the consumer's thread does not.
        """
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        options = PrefetchOptions(host_buffer=size, device_buffer=size)
        return self._with("prefetch_to_devices", _prefetch=options, _device=torch.device(device))

    def _host(self, sample: Nested) -> Nested:
        return map_leaves(own_tensor, sample if self._owns_arrays else to_host(sample))

    def _place(self, host: Nested) -> Nested:
        return host if self._device is None else map_leaves(lambda tensor, _: tensor.to(self._device), host)

    def _receive(self, placed: Nested) -> Nested:
        return placed.received() if isinstance(placed, _Copying) else placed

    def _arrived(self, element: Nested) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _placement(self) -> Callable[[Nested], Nested]:
        if self._device is None or self._device.type != "cuda":
            return self._place
        device, stream = self._device, torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

        def copy(tensor: torch.Tensor, _: str) -> torch.Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        def place(host: Nested) -> _Copying:
            with torch.cuda.stream(stream):
                # The pinned block may be dropped at once: torch reuses it only after the stream is past the copy.
                return _Copying(map_leaves(copy, host), stream.record_event(), device)

        return place


@dataclasses.dataclass(frozen=True, eq=False)
class _Copying:
    """Tensors that are being copied to the device until `copied`."""

    element: Nested
    copied: torch.cuda.Event
    device: torch.device

    def received(self) -> Nested:
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(self.copied)

        def used_here(tensor: torch.Tensor, _: str) -> torch.Tensor:
            # Made on the side stream: without this its memory could be reused while this stream still reads it.
            tensor.record_stream(stream)
            return tensor

        return map_leaves(used_here, self.element)


def to_tensor(value: object, key: str) -> torch.Tensor:
    """A tensor with the dtype and values of a host value, sharing its memory if the value owns it."""
    array = require_numeric(value, key, "torch")
    return own_tensor(array if array.flags.owndata else array.copy(), key)


def own_tensor(value: object, key: str) -> torch.Tensor:
    """`to_tensor` for a value whose memory nothing else uses: no copy, unless it is read-only."""
    array = require_numeric(value, key, "torch")
    if not array.flags.writeable:
        array = array.copy()
    # Looking up the name takes longer than making a tensor.
    carrier, dtype = (None, None) if array.dtype.isbuiltin == 1 else _SEEN_AS.get(array.dtype.name, (None, None))
    try:
        if carrier is not None and dtype is not None:
            return torch.from_numpy(array.view(carrier)).view(dtype)
        return torch.from_numpy(array)
    except TypeError as error:
        raise unsupported_dtype(key, array.dtype, "torch") from error
