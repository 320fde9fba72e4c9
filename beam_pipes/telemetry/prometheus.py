"""Totals of a loader as Prometheus metrics: counters, from which Prometheus makes rates over any window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beam_pipes.extras import require
from beam_pipes.telemetry.telemetry import Telemetry

_PREFIX = "beam_pipes_data"


class PrometheusCollector:
    """A collector of prometheus_client: `prometheus_client.REGISTRY.register(PrometheusCollector(telemetry))`.

    `beam_pipes_data_wait_seconds_total`, `…_busy_seconds_total`, `…_batches_total`, `…_rows_total`, `…_tokens_total`,
    `…_queued_batches_total` and, by `source`, `…_source_rows_total`, each with the label `loader`. They are read when
    somebody scrapes; a training loop pays nothing for it.

        rate(beam_pipes_data_wait_seconds_total[1m])   →  the part of the time that is waited
        rate(beam_pipes_data_tokens_total[1m])         →  tokens a second

    `loader` tells several loaders of one process apart. Raises `MissingExtraError` without prometheus_client.
    """

    def __init__(self, telemetry: Telemetry, *, loader: str = "train") -> None:
        self._core = require("prometheus_client.core", purpose="PrometheusCollector")
        self._telemetry = telemetry
        self._loader = loader

    def collect(self) -> Iterator[Any]:
        """The metrics of this moment, as prometheus_client asks for them."""
        totals = self._telemetry.totals()
        numbers = {
            "wait_seconds": ("Seconds that the training loop waited for batches", totals.wait_secs),
            "busy_seconds": ("Seconds that the training loop spent between batches", totals.busy_secs),
            "batches": ("Batches handed out", totals.batches),
            "rows": ("Rows handed out on this host", totals.rows),
            "tokens": ("Tokens handed out on this host, without padding", totals.tokens),
            "queued_batches": (
                "Batches that were ready, summed over the moments when one was asked for",
                totals.queued,
            ),
        }
        for name, (words, number) in numbers.items():
            if number is not None:
                counter = self._core.CounterMetricFamily(f"{_PREFIX}_{name}", words, labels=["loader"])
                counter.add_metric([self._loader], number)
                yield counter
        if totals.rows_by_source is not None:
            by_source = self._core.CounterMetricFamily(
                f"{_PREFIX}_source_rows",
                "Rows of each source of a mixture, over all hosts",
                labels=["loader", "source"],
            )
            for source, rows in totals.rows_by_source.items():
                by_source.add_metric([self._loader, source], rows)
            yield by_source
