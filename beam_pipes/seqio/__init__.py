"""The SeqIO surface, flat: `import beam_pipes.seqio as seqio`.

Every name is loaded when it is first used. Submodules: `seqio.preprocessors`, `seqio.metrics`, `seqio.utils`, ...
"""

from __future__ import annotations

import importlib
from typing import Any

SUBMODULES = (
    "dataset_providers",
    "evaluation",
    "experimental",
    "feature_converters",
    "helpers",
    "loggers",
    "metrics",
    "preprocessors",
    "test_utils",
    "utils",
    "vocabularies",
)
#: Submodules whose names are also offered here.
FLAT = ("dataset_providers", "feature_converters", "loggers", "utils", "vocabularies")

__all__ = ["Evaluator", *SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Evaluator":
        return importlib.import_module("beam_pipes.evaluation").Evaluator
    if not name.startswith("__"):
        for submodule in FLAT:
            module = importlib.import_module(f"{__name__}.{submodule}")
            if name in module.HOMES:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    names = set(__all__)
    for submodule in FLAT:
        names.update(importlib.import_module(f"{__name__}.{submodule}").HOMES)
    return sorted(names)
