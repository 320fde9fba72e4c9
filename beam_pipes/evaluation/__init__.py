"""Evaluation of models on tasks and mixtures: predict or score, decode, postprocess, compare, log.

Everything is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

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

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "": "loggers metrics",
        "eval_data": (
            "AllMetricsFuture EnumeratedExamples ModelFnCallable PredictFnCallable ScoreFnCallable get_valid_eval_tasks"
        ),
        "evaluator": "Evaluator evaluate_mixture",
        "loggers": "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder TensorBoardLogger",
        "model_outputs": "ModelOutputType merge_hosts",
    },
)
__all__ = __dir__()
