"""Metric loggers; `LOGGERS` is the table of them by name, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.evaluation.loggers.logger import JSONLogger as JSONLogger
    from beam_pipes.evaluation.loggers.logger import Logger as Logger
    from beam_pipes.evaluation.loggers.logger import PyLoggingLogger as PyLoggingLogger
    from beam_pipes.evaluation.loggers.logger import TensorAndNumpyEncoder as TensorAndNumpyEncoder
    from beam_pipes.evaluation.loggers.logger import skip_none_value_dict_factory as skip_none_value_dict_factory
    from beam_pipes.evaluation.loggers.tensor_board import TensorBoardLogger as TensorBoardLogger
    from beam_pipes.evaluation.loggers.tensor_board import TensorBoardLoggerV1 as TensorBoardLoggerV1

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "logger": "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder skip_none_value_dict_factory",
        "tensor_board": "TensorBoardLogger TensorBoardLoggerV1",
    },
)
LOGGERS = {"json": "JSONLogger", "logging": "PyLoggingLogger", "tensorboard": "TensorBoardLogger"}

__all__ = ["LOGGERS", *__dir__()]
