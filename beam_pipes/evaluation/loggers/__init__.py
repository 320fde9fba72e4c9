"""Metric loggers; `LOGGERS` is the table of them by name, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.evaluation.loggers.logger import JSONLogger as JSONLogger
    from beam_pipes.evaluation.loggers.logger import Logger as Logger
    from beam_pipes.evaluation.loggers.logger import PyLoggingLogger as PyLoggingLogger
    from beam_pipes.evaluation.loggers.logger import TensorAndNumpyEncoder as TensorAndNumpyEncoder
    from beam_pipes.evaluation.loggers.logger import skip_none_value_dict_factory as skip_none_value_dict_factory
    from beam_pipes.evaluation.loggers.tensor_board import TensorBoardLogger as TensorBoardLogger
    from beam_pipes.evaluation.loggers.tensor_board import TensorBoardLoggerV1 as TensorBoardLoggerV1

_MODULE_OF = {
    "JSONLogger": "logger",
    "Logger": "logger",
    "PyLoggingLogger": "logger",
    "TensorAndNumpyEncoder": "logger",
    "TensorBoardLogger": "tensor_board",
    "TensorBoardLoggerV1": "tensor_board",
    "skip_none_value_dict_factory": "logger",
}

LOGGERS = {"json": "JSONLogger", "logging": "PyLoggingLogger", "tensorboard": "TensorBoardLogger"}

__all__ = ["LOGGERS", *_MODULE_OF]


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
