"""The names of metrics in one place: values, bases of metric objects, metric functions as metrics."""

from __future__ import annotations

from beam_pipes.evaluation.metric import CollectingMetric as CollectingMetric
from beam_pipes.evaluation.metric import Metric as Metric
from beam_pipes.evaluation.metric import globally_sort_model_output as globally_sort_model_output
from beam_pipes.evaluation.metric import remove_padding_examples as remove_padding_examples
from beam_pipes.evaluation.metric_functions import LegacyMetric as LegacyMetric
from beam_pipes.evaluation.metric_functions import MetricFnCallable as MetricFnCallable
from beam_pipes.evaluation.metric_functions import PassthroughLegacyMetric as PassthroughLegacyMetric
from beam_pipes.evaluation.metric_values import Audio as Audio
from beam_pipes.evaluation.metric_values import Generic as Generic
from beam_pipes.evaluation.metric_values import Histogram as Histogram
from beam_pipes.evaluation.metric_values import Image as Image
from beam_pipes.evaluation.metric_values import MetricValue as MetricValue
from beam_pipes.evaluation.metric_values import Scalar as Scalar
from beam_pipes.evaluation.metric_values import Text as Text
from beam_pipes.evaluation.model_outputs import ModelOutputType as ModelOutputType
