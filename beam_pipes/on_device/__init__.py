"""Socket two: from samples, tf.data and caches to arrays of TensorFlow, JAX, torch and NumPy on their devices.

Importing this package imports none of them; each loader imports its own framework when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use, require

if TYPE_CHECKING:
    from beam_pipes.graph.iterator import DALIDataset as DALIDataset
    from beam_pipes.graph.jax_iterator import JaxGenericIterator as JaxGenericIterator
    from beam_pipes.graph.jax_iterator import JaxGenericPeekableIterator as JaxGenericPeekableIterator
    from beam_pipes.graph.jax_iterator import JaxGraphIterator as JaxGraphIterator
    from beam_pipes.graph.jax_iterator import data_iterator as data_iterator
    from beam_pipes.graph.jax_iterator import peekable_data_iterator as peekable_data_iterator
    from beam_pipes.graph.torch_iterator import TorchClassificationIterator as TorchClassificationIterator
    from beam_pipes.graph.torch_iterator import TorchGenericIterator as TorchGenericIterator
    from beam_pipes.graph.torch_iterator import TorchGraphIterator as TorchGraphIterator
    from beam_pipes.on_device.ahead import PrefetchOptions as PrefetchOptions
    from beam_pipes.on_device.data_loader import DataLoader as DataLoader
    from beam_pipes.on_device.jax_loader import JaxDataLoader as JaxDataLoader
    from beam_pipes.on_device.lambda_loader import LambdaDataLoader as LambdaDataLoader
    from beam_pipes.on_device.lambda_loader import NumpyDataLoader as NumpyDataLoader
    from beam_pipes.on_device.optimize import Suggestion as Suggestion
    from beam_pipes.on_device.segments import segments_of as segments_of
    from beam_pipes.on_device.torch_loader import TorchDataLoader as TorchDataLoader

_METHODS = "a class behind methods: start with `DataLoader`, and call `{}`"
_INFERRED = "`DataLoader(iterable).output_signature` is what it finds"
#: MIDAS's names that are not here → what to use. Messages are made from it, and pages.
ABSENT: dict[str, str] = {
    "GenericDataLoader": "the base of `DataLoader` and `LambdaDataLoader`: subclass the latter",
    "JaxPrefetchToDevicesDataLoader": _METHODS.format(".to_jax().prefetch_to_devices()"),
    "JaxShardDataLoaders": _METHODS.format(".to_jax().shard()"),
    "TransformationTracker": "`get_transformation_list()` gives what it keeps",
    "convert_in_Tensor_spec": _INFERRED,
    "find_dtype_and_shapes": _INFERRED,
    "from_tf_to_jax": "`DataLoader(…).to_jax()`",
    "from_tf_to_torch": "`DataLoader(…).to_torch()`",
}
_loaded, __dir__ = loaded_on_first_use(
    __name__,
    {
        "ahead": "PrefetchOptions",
        "data_loader": "DataLoader",
        "beam_pipes.graph.iterator": "DALIDataset",
        "beam_pipes.graph.jax_iterator": (
            "JaxGenericIterator JaxGenericPeekableIterator JaxGraphIterator data_iterator peekable_data_iterator"
        ),
        "beam_pipes.graph.torch_iterator": "TorchClassificationIterator TorchGenericIterator TorchGraphIterator",
        "jax_loader": "JaxDataLoader",
        "lambda_loader": "LambdaDataLoader NumpyDataLoader",
        "optimize": "Suggestion",
        "segments": "segments_of",
        "torch_loader": "TorchDataLoader",
    },
    absent=ABSENT,
    system="MIDAS",
)
__all__ = __dir__()

# Framework → the names that are imported only if it is installed.
_NAMES_OF_FRAMEWORK = {
    "jax": (
        "JaxDataLoader JaxGenericIterator JaxGenericPeekableIterator JaxGraphIterator data_iterator "
        "peekable_data_iterator"
    ),
    "tensorflow": "DALIDataset",
    "torch": "TorchClassificationIterator TorchDataLoader TorchGenericIterator TorchGraphIterator",
}


def __getattr__(name: str) -> object:
    for framework, names in _NAMES_OF_FRAMEWORK.items():
        if name in names.split():
            require(framework, purpose=name)
    return _loaded(name)
