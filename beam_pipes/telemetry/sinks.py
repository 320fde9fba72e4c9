"""Sends the totals of a loader to Prometheus as counters, and to TensorBoard as scalars.

Prometheus computes rates of counters over any window. TensorBoard files need neither TensorFlow nor TensorBoard: an
event file is a TFRecord file of `Event` protos; a scalar needs six of their fields, shown like those of `tf.summary`.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType

from beam_pipes.errors import LoaderError
from beam_pipes.extras import require
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.wire import delimited, varint
from beam_pipes.storage.local import is_remote
from beam_pipes.telemetry.telemetry import Telemetry

_PREFIX = "beam_pipes_data"


class PrometheusCollector:
    """A collector of prometheus_client: `prometheus_client.REGISTRY.register(PrometheusCollector(telemetry))`.

    `beam_pipes_data_wait_seconds_total`, `…_busy_seconds_total`, `…_batches_total`, `…_rows_total`, `…_tokens_total`,
    `…_queued_batches_total` and, by `source`, `…_source_rows_total`, each with the label `loader`. They are read on
    each scrape, at no cost to the training loop.

        rate(beam_pipes_data_wait_seconds_total[1m])   →  the fraction of time spent waiting
        rate(beam_pipes_data_tokens_total[1m])         →  tokens per second

    `loader` distinguishes several loaders of one process. Raises `MissingExtraError` without prometheus_client.
    """

    def __init__(self, telemetry: Telemetry, *, loader: str = "train") -> None:
        self._core = require("prometheus_client.core", purpose="PrometheusCollector")
        self._telemetry = telemetry
        self._loader = loader

    def collect(self) -> Iterator[object]:
        """The current metrics, as prometheus_client expects them."""
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


# Field numbers and types of tensorflow.Event, Summary and Summary.Value, as bytes of the wire form.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 0x09, 0x10, 0x1A, 0x2A
_VALUE = 0x0A
_TAG, _SIMPLE_VALUE = 0x0A, 0x15


class TensorBoardWriter:
    """Writes a loader's telemetry to an event file in `directory`; each `write` covers the window since the last one.

        with TensorBoardWriter(telemetry, "runs/first") as writer:
            for step, batch in enumerate(telemetry):
                train(batch)
                if step % 100 == 0:
                    writer.write(step)

    The scalars are named as in `Telemetry.metrics`. Every `write` reaches the file. `directory` is created if needed;
    it may hold other event files, whose names differ. Raises `LoaderError` for one on an object store, where files
    cannot grow.

    If you already have a `SummaryWriter`, use it: `writer.add_scalar(name, value, step)` for each of
    `telemetry.metrics()`.
    """

    def __init__(self, telemetry: Telemetry, directory: str | os.PathLike[str]) -> None:
        path = os.path.expanduser(os.fspath(directory))
        if is_remote(path):
            raise LoaderError(
                f"an event file grows while it is written, and files at {path!r} do not. Write to a local directory, "
                "and copy it when the run ends.",
                path=path,
            )
        os.makedirs(path, exist_ok=True)
        self._telemetry = telemetry
        self._since = telemetry.totals()
        now = time.time()
        self.path = os.path.join(path, f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}.data")
        self._records = RecordWriter(self.path)
        self._records.write(_wall_time(now) + delimited(_FILE_VERSION, b"brain.Event:2"))
        self._records.flush()

    def write(self, step: int) -> dict[str, float]:
        """Writes and returns the metrics since the last `write`; an empty dict if there was no batch since."""
        now = self._telemetry.totals()
        metrics = now.since(self._since).metrics()
        if metrics:
            self._since = now
            values = b"".join(delimited(_VALUE, _scalar(tag, number)) for tag, number in metrics.items())
            stamp = _wall_time(time.time()) + bytes([_STEP]) + varint(step)
            self._records.write(stamp + delimited(_SUMMARY, values))
            self._records.flush()
        return metrics

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        self._records.close()

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wall_time(secs: float) -> bytes:
    return bytes([_WALL_TIME]) + struct.pack("<d", secs)


def _scalar(tag: str, number: float) -> bytes:
    return delimited(_TAG, tag.encode()) + bytes([_SIMPLE_VALUE]) + struct.pack("<f", number)
