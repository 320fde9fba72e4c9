"""The evaluator. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "AllMetricsFuture": "beam_pipes.evaluation",
    "EncDecFeatureConverter": "beam_pipes.transforms.converters",
    "Evaluator": "beam_pipes.evaluation",
    "FeatureConverter": "beam_pipes.transforms.converters",
    "JSONLogger": "beam_pipes.evaluation.loggers",
    "Logger": "beam_pipes.evaluation.loggers",
    "ModelFnCallable": "beam_pipes.evaluation",
    "ModelOutputType": "beam_pipes.evaluation",
    "PredictFnCallable": "beam_pipes.evaluation",
    "PyLoggingLogger": "beam_pipes.evaluation.loggers",
    "ScoreFnCallable": "beam_pipes.evaluation",
    "Task": "beam_pipes.tasks.task",
    "TensorAndNumpyEncoder": "beam_pipes.evaluation.loggers",
    "TensorBoardLogger": "beam_pipes.evaluation.loggers",
    "evaluate_mixture": "beam_pipes.evaluation",
    "get_valid_eval_tasks": "beam_pipes.evaluation",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
