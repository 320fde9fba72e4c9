"""The names of DALI, module by module: a script moves over by one word of its imports.

    from beam_pipes.dali import fn, pipeline_def, types   # from nvidia.dali import fn, pipeline_def, types
    import beam_pipes.dali.fn as fn                       # import nvidia.dali.fn as fn
    from beam_pipes.dali.plugin.pytorch import DALIGenericIterator

Nothing is implemented here: operators come from `beam_pipes.transforms`, the rest from `beam_pipes.graph`. `NAMES`
lists what further modules have: iterators of a plugin are imported on first use, and with them its framework.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from beam_pipes.extras import absent_here, lacking, loaded_on_first_use, names_of
from beam_pipes.graph import Pipeline, newaxis, pipeline_def, types
from beam_pipes.graph import experimental as pipelines
from beam_pipes.graph import functions as tfrecord
from beam_pipes.graph.tensors import absent_of
from beam_pipes.transforms import fn, ops
from beam_pipes.transforms.fn import math
from beam_pipes.transforms.operators import families

__all__ = [
    "Pipeline",
    "auto_aug",
    "data_node",
    "fn",
    "math",
    "newaxis",
    "ops",
    "pipeline",
    "pipeline_def",
    "plugin",
    "tfrecord",
    "types",
]

_DEBUG = "operators run without a pipeline in debug mode, `pipeline.experimental.pipeline_def(debug=True)`"
#: Module of DALI → module under beam_pipes → the names that it gives; `there=here` where they differ.
NAMES: dict[str, dict[str, str]] = {
    "auto_aug": {"": "auto_augment rand_augment trivial_augment"},
    "auto_aug.auto_augment": {"beam_pipes.transforms.fn": "auto_augment auto_augment_image_net"},
    "auto_aug.rand_augment": {"beam_pipes.transforms.fn": "rand_augment"},
    "auto_aug.trivial_augment": {"beam_pipes.transforms.fn": "trivial_augment_wide"},
    "experimental": {},
    "data_node": {"beam_pipes.graph": "DataNode newaxis"},
    "pipeline": {"beam_pipes.graph": "DataNode Pipeline do_not_convert experimental pipeline_def"},
    "plugin": {"": "base_iterator jax pytorch tf"},
    "plugin.base_iterator": {"beam_pipes.graph": "LastBatchPolicy"},
    "plugin.jax": {
        "": "clu iterator",
        "beam_pipes.on_device": "DALIGenericIterator=JaxGenericIterator data_iterator",
    },
    "plugin.jax.clu": {
        "beam_pipes.on_device": ("DALIGenericPeekableIterator=JaxGenericPeekableIterator peekable_data_iterator"),
    },
    "plugin.jax.iterator": {
        "beam_pipes.graph": "LastBatchPolicy",
        "beam_pipes.on_device": "DALIGenericIterator=JaxGenericIterator data_iterator",
    },
    "plugin.pytorch": {
        "beam_pipes.graph": "LastBatchPolicy",
        "beam_pipes.on_device": (
            "DALIClassificationIterator=TorchClassificationIterator DALIGenericIterator=TorchGenericIterator"
        ),
    },
    "plugin.tf": {"beam_pipes.on_device": "DALIDataset"},
}

_NUMPY = "batches are NumPy's arrays, of `GraphIterator`"
_FUNCTIONS = "`fn.python_function` with a function that"
#: Modules of DALI ("": itself) → what they lack, and what to use. Messages are made from it, and the page of the
#: migration.
ABSENT: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(("backend", "tensors"), "DALI's memory: a batch here is NumPy's"),
        **dict.fromkeys(("pickling", "reducers"), "nothing is pickled: functions go by their names"),
        **dict.fromkeys(("plugin_manager", "sysconfig"), "operators of your own are classes of Python, `Operator`"),
        "external_source": "`fn.external_source`",
    },
    "auto_aug": dict.fromkeys(("augmentations", "core"), "policies of your own are conditions over `random.uniform`"),
    "experimental": {"dynamic": _DEBUG, "eager": _DEBUG},
    "plugin": {
        "mxnet": f"a discontinued framework: {_NUMPY}",
        "numba": f"{_FUNCTIONS} Numba has compiled",
        "paddle": f"{_NUMPY}, which `paddle.to_tensor` takes",
        "triton": "there is no server of models: `pipe.serialize()`",
    },
    "plugin.jax": {"fn": "`jax.jit` of a function over the batches of an iterator"},
    "plugin.numba.fn.experimental": {"numba_function": f"{_FUNCTIONS} Numba has compiled"},
    "plugin.pytorch": {
        **absent_of("iterators.pytorch"),
        "experimental": "`TorchGenericIterator` in the process that trains",
        "feed_ndarray": "`torch.from_numpy(numpy.array(tensor))`",
        "fn": f"{_FUNCTIONS} calls `torch.from_numpy`",
        "loader_evaluator": "`beam_pipes.telemetry` measures loaders",
        "TorchPythonFunction": f"{_FUNCTIONS} calls `torch.from_numpy`",
    },
    "plugin.tf": {
        **dict.fromkeys(("DALIIterator", "DALIIteratorWrapper"), "`DALIDataset`"),
        "experimental": "data that TensorFlow has made comes by `fn.external_source`, as an iterable of arrays",
    },
}


def _absent(name: str, why: str) -> ModuleType:
    """A module that is not here, which says so to whoever imports from it."""
    module = ModuleType(f"{__name__}.{name}", f"`nvidia.dali.{name}` is absent here: {why}.")
    module.__spec__ = ModuleSpec(module.__name__, None)

    def __getattr__(asked: str) -> object:
        raise lacking(module.__name__, asked, absent_here("", {"": why}, "DALI"))

    module.__dict__["__getattr__"] = __getattr__
    return module


def _module(name: str, names: dict[str, str]) -> ModuleType:
    module = ModuleType(f"{__name__}.{name}", f"The names of `nvidia.dali.{name}`.")
    # importlib.util.find_spec, which pkgutil and doctest ask, refuses a loaded module that has no spec.
    module.__spec__ = ModuleSpec(module.__name__, None)
    module.__dict__["__getattr__"], module.__dict__["__dir__"] = loaded_on_first_use(
        module.__name__, names, absent=ABSENT.get(name), system="DALI"
    )
    return module


_modules = {name: _module(name, names) for name, names in NAMES.items()}
auto_aug, data_node, experimental = (_modules[name] for name in ("auto_aug", "data_node", "experimental"))
pipeline, plugin = _modules["pipeline"], _modules["plugin"]
_modules |= {"math": math, "pipeline.experimental": pipelines, "tfrecord": tfrecord, "types": types}
for _room in (fn, ops):
    for _family in ("", *(f".{one}" for one in families())):
        _own = f"{_room.__name__}{_family}"
        _modules[_own.removeprefix("beam_pipes.transforms.")] = sys.modules[_own]
for _owner, _names in ABSENT.items():
    _full = {f"{_owner}.{one}" if _owner else one: why for one, why in _names.items() if one.islower()}
    _modules |= {one: _absent(one, why) for one, why in _full.items()}
    if _owner and _owner not in _modules:
        _modules[_owner] = _absent(_owner, next(iter(_names.values())))
#: The version of DALI whose names are here.
__version__ = "2.4.0"
__getattr__ = names_of(__name__, ABSENT[""], "DALI")
# `import beam_pipes.dali.fn.readers` finds a module that is known already.
sys.modules.update({f"{__name__}.{name}": module for name, module in _modules.items()})
