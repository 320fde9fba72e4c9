"""Telemetry of loaders: what a training loop waits for, how fast data comes, and which stage is to blame."""

from __future__ import annotations

from beam_pipes.telemetry.diagnosis import LoaderDiagnosis as LoaderDiagnosis
from beam_pipes.telemetry.diagnosis import diagnose_loader as diagnose_loader
from beam_pipes.telemetry.sinks import PrometheusCollector as PrometheusCollector
from beam_pipes.telemetry.sinks import TensorBoardWriter as TensorBoardWriter
from beam_pipes.telemetry.telemetry import Telemetry as Telemetry
from beam_pipes.telemetry.telemetry import Totals as Totals
