"""Telemetry of loaders: how long a training loop waits, how fast data arrives, and which stage is to blame."""

from __future__ import annotations

from beam_pipes.telemetry.diagnosis import LoaderDiagnosis as LoaderDiagnosis
from beam_pipes.telemetry.diagnosis import diagnose_loader as diagnose_loader
from beam_pipes.telemetry.losses import LossRecorder as LossRecorder
from beam_pipes.telemetry.losses import RecordedLosses as RecordedLosses
from beam_pipes.telemetry.sinks import PrometheusCollector as PrometheusCollector
from beam_pipes.telemetry.sinks import TensorBoardWriter as TensorBoardWriter
from beam_pipes.telemetry.telemetry import Telemetry as Telemetry
from beam_pipes.telemetry.telemetry import Totals as Totals
