"""Loggers of evaluation results. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "JSONLogger": "beam_pipes.evaluation.loggers",
    "Logger": "beam_pipes.evaluation.loggers",
    "PyLoggingLogger": "beam_pipes.evaluation.loggers",
    "TensorAndNumpyEncoder": "beam_pipes.evaluation.loggers",
    "TensorBoardLogger": "beam_pipes.evaluation.loggers",
    "TensorBoardLoggerV1": "beam_pipes.evaluation.loggers",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
