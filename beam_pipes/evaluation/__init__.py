"""Evaluation of models on tasks and mixtures: predict or score, decode, postprocess, compare, log.

Everything is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.evaluation import loggers as loggers
    from beam_pipes.evaluation import metrics as metrics
    from beam_pipes.evaluation.eval_data import AllMetricsFuture as AllMetricsFuture
    from beam_pipes.evaluation.eval_data import EnumeratedExamples as EnumeratedExamples
    from beam_pipes.evaluation.eval_data import ModelFnCallable as ModelFnCallable
    from beam_pipes.evaluation.eval_data import PredictFnCallable as PredictFnCallable
    from beam_pipes.evaluation.eval_data import ScoreFnCallable as ScoreFnCallable
    from beam_pipes.evaluation.eval_data import get_valid_eval_tasks as get_valid_eval_tasks
    from beam_pipes.evaluation.evaluator import Evaluator as Evaluator
    from beam_pipes.evaluation.evaluator import evaluate_mixture as evaluate_mixture
    from beam_pipes.evaluation.loggers import JSONLogger as JSONLogger
    from beam_pipes.evaluation.loggers import Logger as Logger
    from beam_pipes.evaluation.loggers import PyLoggingLogger as PyLoggingLogger
    from beam_pipes.evaluation.loggers import TensorAndNumpyEncoder as TensorAndNumpyEncoder
    from beam_pipes.evaluation.loggers import TensorBoardLogger as TensorBoardLogger
    from beam_pipes.evaluation.model_outputs import ModelOutputType as ModelOutputType
    from beam_pipes.evaluation.model_outputs import merge_hosts as merge_hosts

# Public name → the module under beam_pipes.evaluation that defines it ("" for modules themselves).
_MODULE_OF = {
    "AllMetricsFuture": "eval_data",
    "EnumeratedExamples": "eval_data",
    "Evaluator": "evaluator",
    "JSONLogger": "loggers",
    "Logger": "loggers",
    "ModelFnCallable": "eval_data",
    "ModelOutputType": "model_outputs",
    "PredictFnCallable": "eval_data",
    "PyLoggingLogger": "loggers",
    "ScoreFnCallable": "eval_data",
    "TensorAndNumpyEncoder": "loggers",
    "TensorBoardLogger": "loggers",
    "evaluate_mixture": "evaluator",
    "get_valid_eval_tasks": "eval_data",
    "loggers": "",
    "merge_hosts": "model_outputs",
    "metrics": "",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name] or name}")
    return getattr(module, name) if _MODULE_OF[name] else module


def __dir__() -> list[str]:
    return __all__
