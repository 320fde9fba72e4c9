"""TorchDataLoader: elements as torch tensors, on the host or prefetched to a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import torch

from beam_pipes.extras import warn_of_tensorflow_before_torch
from beam_pipes.on_device.ahead import DeviceCopies, PlainCopies, PrefetchOptions
from beam_pipes.on_device.conversions import Nested, map_leaves, require_numeric, to_host, unsupported_dtype
from beam_pipes.on_device.lambda_loader import ConvertedLoader

warn_of_tensorflow_before_torch()

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

    def prefetch_to_devices(
        self, size: int = 2, *, device: torch.device | str | None = None, copies: DeviceCopies | None = None
    ) -> TorchDataLoader:
        """Keeps `size` elements ready on `device`; where they take long, threads keep as many on the host too.

        On CUDA (the default if available) elements pass through pinned memory and are copied on a side stream, parallel
        to the computation. The consumer's stream waits for the copy; the consumer's thread does not. Elements of less
        than 512 KiB are copied on the consumer's own stream where it has time to do so: that takes less than handing
        them over. `copies` takes the place of torch's own copies, in a test without a GPU.
        """
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        options = PrefetchOptions(host_buffer=size, device_buffer=size)
        return self._with("prefetch_to_devices", _prefetch=options, _device=torch.device(device), _copies=copies)

    def _host(self, sample: Nested) -> Nested:
        return map_leaves(own_tensor, sample if self._owns_arrays else to_host(sample))

    def _place(self, host: Nested) -> Nested:
        return host if self._device is None else map_leaves(lambda tensor, _: tensor.to(self._device), host)

    def _arrived(self, element: Nested) -> None:
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _device_copies(self) -> DeviceCopies:
        if self._copies is not None or self._device is None or self._device.type != "cuda":
            return self._copies or PlainCopies(self._place)
        return _CudaCopies(self._device)


# A copy of as many bytes takes 10 µs at 50 GB/s, and 50 µs on an old bus. Another stream and its events cost a loop
# that starts kernels one by one 180 µs.
_OWN_STREAM_BYTES = 1 << 19


class _CudaCopies:
    """Copies from pinned memory, on a side stream if they are large or another thread starts them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, host: Nested, *, here: bool) -> _Copying:
        if here and type(host) is dict and all(type(tensor) is torch.Tensor for tensor in host.values()):
            if sum(tensor.nbytes for tensor in host.values()) < _OWN_STREAM_BYTES:
                copies = {name: self._copied(tensor, name) for name, tensor in host.items()}
                return _Copying(copies, torch.cuda.current_stream(self._device), None)
        with torch.cuda.stream(self._side):
            return _Copying(map_leaves(self._copied, host), self._side, self._side.record_event())

    def _copied(self, tensor: torch.Tensor, _: str) -> torch.Tensor:
        # The pinned block may be dropped at once: torch reuses it only after the stream is past the copy.
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def received(self, copying: Nested) -> Nested:
        assert isinstance(copying, _Copying)
        return copying.received(torch.cuda.current_stream(self._device))


@dataclasses.dataclass(frozen=True, eq=False)
class _Copying:
    """Tensors that a stream copies to the device, until `copied` if that is another stream than the consumer's."""

    element: Nested
    stream: torch.cuda.Stream
    copied: torch.cuda.Event | None

    def received(self, stream: torch.cuda.Stream) -> Nested:
        if stream == self.stream:  # what it does next comes behind the copy
            return self.element
        if self.copied is None:
            stream.wait_stream(self.stream)
        else:
            stream.wait_event(self.copied)

        def used_here(tensor: torch.Tensor, _: str) -> torch.Tensor:
            # Made on another stream: without this its memory could be reused while this stream still reads it.
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
