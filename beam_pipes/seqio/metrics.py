"""Metrics and metric values. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "Audio": "beam_pipes.evaluation.metrics",
    "CollectingMetric": "beam_pipes.evaluation.metrics",
    "Generic": "beam_pipes.evaluation.metrics",
    "Histogram": "beam_pipes.evaluation.metrics",
    "Image": "beam_pipes.evaluation.metrics",
    "LegacyMetric": "beam_pipes.evaluation.metrics",
    "Metric": "beam_pipes.evaluation.metrics",
    "MetricFnCallable": "beam_pipes.evaluation.metrics",
    "MetricValue": "beam_pipes.evaluation.metrics",
    "ModelOutputType": "beam_pipes.evaluation.metrics",
    "PassthroughLegacyMetric": "beam_pipes.evaluation.metrics",
    "Scalar": "beam_pipes.evaluation.metrics",
    "Text": "beam_pipes.evaluation.metrics",
    "globally_sort_model_output": "beam_pipes.evaluation.metrics",
    "remove_padding_examples": "beam_pipes.evaluation.metrics",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
