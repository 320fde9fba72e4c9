"""Socket two: from samples, tf.data and caches to arrays of TensorFlow, JAX, torch and NumPy on their devices.

Importing this package imports none of them; each loader imports its own framework when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.on_device.data_loader import DataLoader as DataLoader
    from beam_pipes.on_device.graph_iterator import JaxGenericIterator as JaxGenericIterator
    from beam_pipes.on_device.graph_iterator import JaxGenericPeekableIterator as JaxGenericPeekableIterator
    from beam_pipes.on_device.graph_iterator import JaxGraphIterator as JaxGraphIterator
    from beam_pipes.on_device.graph_iterator import TorchClassificationIterator as TorchClassificationIterator
    from beam_pipes.on_device.graph_iterator import TorchGenericIterator as TorchGenericIterator
    from beam_pipes.on_device.graph_iterator import TorchGraphIterator as TorchGraphIterator
    from beam_pipes.on_device.graph_iterator import data_iterator as data_iterator
    from beam_pipes.on_device.graph_iterator import peekable_data_iterator as peekable_data_iterator
    from beam_pipes.on_device.jax_loader import JaxDataLoader as JaxDataLoader
    from beam_pipes.on_device.lambda_loader import LambdaDataLoader as LambdaDataLoader
    from beam_pipes.on_device.lambda_loader import NumpyDataLoader as NumpyDataLoader
    from beam_pipes.on_device.lambda_loader import PrefetchOptions as PrefetchOptions
    from beam_pipes.on_device.optimize import Suggestion as Suggestion
    from beam_pipes.on_device.python_source import DALIDataset as DALIDataset
    from beam_pipes.on_device.torch_loader import TorchDataLoader as TorchDataLoader

_FILE_OF_NAME = {
    "DALIDataset": "python_source",
    "DataLoader": "data_loader",
    "JaxDataLoader": "jax_loader",
    "JaxGenericIterator": "graph_iterator",
    "JaxGenericPeekableIterator": "graph_iterator",
    "JaxGraphIterator": "graph_iterator",
    "LambdaDataLoader": "lambda_loader",
    "NumpyDataLoader": "lambda_loader",
    "PrefetchOptions": "lambda_loader",
    "Suggestion": "optimize",
    "TorchDataLoader": "torch_loader",
    "TorchClassificationIterator": "graph_iterator",
    "TorchGenericIterator": "graph_iterator",
    "TorchGraphIterator": "graph_iterator",
    "data_iterator": "graph_iterator",
    "peekable_data_iterator": "graph_iterator",
}

# Imported only with its framework there: the name of the module to ask `extras` for.
_FRAMEWORK_OF_NAME = {
    "JaxDataLoader": "jax",
    "DALIDataset": "tensorflow",
    "JaxGenericIterator": "jax",
    "JaxGenericPeekableIterator": "jax",
    "JaxGraphIterator": "jax",
    "TorchDataLoader": "torch",
    "TorchClassificationIterator": "torch",
    "TorchGenericIterator": "torch",
    "TorchGraphIterator": "torch",
    "data_iterator": "jax",
    "peekable_data_iterator": "jax",
}

__all__ = list(_FILE_OF_NAME)


def __getattr__(name: str) -> object:
    file = _FILE_OF_NAME.get(name)
    if file is None:
        raise AttributeError(f"module 'beam_pipes.on_device' has no attribute {name!r}; it offers {', '.join(__all__)}")
    framework = _FRAMEWORK_OF_NAME.get(name)
    if framework is not None:
        from beam_pipes.extras import require

        require(framework, purpose=name)
    return getattr(importlib.import_module(f".{file}", "beam_pipes.on_device"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
