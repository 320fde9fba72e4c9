from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loader_caches
import numpy as np
import prometheus_client.parser
import pytest

from beam_pipes.errors import LoaderError
from beam_pipes.format.framing import read_records
from beam_pipes.loader import Loader, Mixture, pack
from beam_pipes.map_style import DataLoader as MapStyleLoader
from beam_pipes.on_device import JaxDataLoader, TorchDataLoader
from beam_pipes.telemetry import PrometheusCollector, Telemetry, TensorBoardWriter


class Clock:
    """A clock that goes on by a second whenever it is read, and by what is asked for in between."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("caches") / "books"
    return loader_caches.write_split(directory, loader_caches.documents(103), loader_caches.DOCUMENTS)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("caches") / "web"
    return loader_caches.write_split(directory, loader_caches.documents(58, seed=1), loader_caches.DOCUMENTS)


def tokens_in(batches: list[Any]) -> int:
    """Tokens of documents are above 0, padding is 0."""
    return sum(int(np.count_nonzero(np.asarray(batch["tokens"]))) for batch in batches)


def test_waits_and_steps_are_distinguished() -> None:
    clock = Clock()

    def slow() -> Iterator[dict[str, Any]]:
        for _ in range(4):
            clock.now += 7
            yield {"x": np.zeros((5, 2))}

    telemetry = Telemetry(slow(), clock=clock)
    for _ in telemetry:
        clock.now += 11
    totals = telemetry.totals()
    # Four waits of 7 seconds and the last, for the end; four steps of 11. Each reading of the clock takes one.
    assert (totals.batches, totals.rows) == (4, 20)
    assert (totals.wait_secs, totals.busy_secs) == (4 * 8 + 1, 4 * 12)
    metrics = totals.metrics()
    assert metrics["data/wait_ms"] == pytest.approx(33_000 / 4) and metrics["data/wait_frac"] == pytest.approx(33 / 81)
    assert metrics["data/batches_per_s"] == pytest.approx(4 / 81)
    assert metrics["data/rows_per_s"] == pytest.approx(20 / 81)
    assert "data/tokens_per_s" not in metrics and "data/queue_depth" not in metrics


def test_before_the_first_batch_there_is_nothing_to_say(books: Any) -> None:
    assert Telemetry(Loader(books, batch_size=4)).metrics() == {}


@pytest.mark.parametrize("kind", ["values", "packed", "padded", "valid"])
def test_real_tokens_and_rows_are_counted(books: Any, kind: str) -> None:
    everything = tokens_in(list(Loader(books, batch_size=1, pad_to=30)))
    if kind == "values":
        telemetry = Telemetry(Loader(books, batch_size=10, last="partial", ragged="values"))
    elif kind == "packed":
        telemetry = Telemetry(Loader(pack(books, sequence_length=64), batch_size=3, last="partial"))
    else:
        last = "pad" if kind == "valid" else "partial"
        telemetry = Telemetry(Loader(books, batch_size=10, last=last, pad_to=30), tokens="tokens")
    batches = list(telemetry)
    totals = telemetry.totals()
    assert totals.batches == len(batches) and totals.tokens == everything
    if kind != "packed":
        assert totals.rows == 103


def test_a_feature_that_is_not_there_is_named(books: Any) -> None:
    with pytest.raises(LoaderError, match="count the tokens of 'words', and batches have: id, tokens"):
        list(Telemetry(Loader(books, batch_size=4), tokens="words"))


@pytest.mark.parametrize("make", [JaxDataLoader, TorchDataLoader])
@pytest.mark.parametrize("prefetch", [False, True])
def test_conversions_are_counted_as_what_they_convert(books: Any, web: Any, make: Any, prefetch: bool) -> None:
    def loader() -> Loader:
        return Loader(Mixture([(books, 3), (web, 1)]), batch_size=8, epochs=None, pad_to=30, seed=2)

    plain, converted = Telemetry(loader(), tokens="tokens"), make(loader(), skip_keys="id")
    if prefetch:
        converted = converted.prefetch_to_devices(2)
    watched = Telemetry(converted, tokens="tokens")
    for telemetry in (plain, watched):
        for _ in itertools.islice(telemetry, 9):
            pass
    one, other = plain.totals(), watched.totals()
    assert (one.batches, one.rows, one.tokens, one.rows_by_source) == (
        other.batches,
        other.rows,
        other.tokens,
        other.rows_by_source,
    )
    assert one.rows_by_source == {"books": 54, "web": 18}
    assert (other.queued is not None) == prefetch


@pytest.mark.parametrize("exhausted", ["repeat", "stop", "drop"])
@pytest.mark.parametrize("last", ["drop", "partial"])
def test_a_mixture_is_counted_as_it_came(books: Any, web: Any, exhausted: str, last: str) -> None:
    """Rows say by themselves where they are from: the 58 of `web` have other tokens, and the two caches other sizes."""
    epochs = None if exhausted == "repeat" else 3
    mixture = Mixture([(books, 0.7), (web, 0.3)], exhausted=exhausted)
    loader = Loader(mixture, batch_size=7, epochs=epochs, last=last, seed=1, features=["id"])
    telemetry, locate = Telemetry(loader), loader._reader.stream.locate
    expected, changed = np.zeros(2, int), exhausted == "repeat"
    cursor, now = (0, 0), iter(telemetry)
    for step in range(60):
        if changed and step == 20:
            loader.set_rates([1, 1])
            locate = loader._reader.stream.locate
        cursor = (loader.epoch, loader.position)
        batch = next(now, None)
        if batch is None:
            break
        rows = len(batch["id"])
        places = locate(cursor[0], cursor[1] + np.arange(rows))
        expected += np.bincount(places[:, 0], minlength=2)
    assert telemetry.totals().rows_by_source == dict(zip(["books", "web"], expected.tolist(), strict=True))
    shares = [telemetry.metrics()[f"data/mix/{name}"] for name in ("books", "web")]
    assert shares == pytest.approx((expected / expected.sum()).tolist())
    now.close()  # type: ignore[attr-defined]


def test_a_restored_mixture_counts_only_what_it_hands_out(books: Any, web: Any) -> None:
    loader = Loader(Mixture([(books, 1), (web, 1)]), batch_size=10, epochs=None)
    telemetry = Telemetry(loader, source_names=["a", "b"])
    state = telemetry.state_dict()
    for _ in range(2):
        for _ in itertools.islice(telemetry, 4):
            pass
        telemetry.load_state_dict(state)
    assert telemetry.totals().rows_by_source == {"a": 40, "b": 40}
    with pytest.raises(LoaderError, match=r"source_names should be 2 different names, one a source, got \['a'\]"):
        Telemetry(loader, source_names=["a"])


def test_a_prefetching_loader_tells_how_many_batches_were_ready(books: Any) -> None:
    telemetry = Telemetry(Loader(books, batch_size=4, epochs=2, workers=1, prefetch=3))
    assert len(list(telemetry)) == len(telemetry) == 50
    assert telemetry.totals().queued is not None and "data/queue_depth" in telemetry.metrics()


def test_a_map_style_loader_and_its_state_go_through() -> None:
    loader = MapStyleLoader([np.full(3, n) for n in range(10)], batch_size=4)
    telemetry = Telemetry(loader)
    batches = list(telemetry)
    assert len(batches) == len(telemetry) == 3 and telemetry.totals().rows == 10
    assert telemetry.state_dict() == loader.state_dict()


def test_leaving_the_loop_closes_the_loader_and_the_next_continues(books: Any) -> None:
    loader = Loader(books, batch_size=4, seed=3, workers=1)
    telemetry = Telemetry(loader)
    seen = [batch["id"].tolist() for batch in itertools.islice(telemetry, 5)]
    seen += [batch["id"].tolist() for batch in telemetry]
    assert seen == [batch["id"].tolist() for batch in Loader(books, batch_size=4, seed=3)]
    assert telemetry.totals().batches == 25


def test_tensorboard_reads_what_was_written(books: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    telemetry = Telemetry(Loader(books, batch_size=4, ragged="values"))
    written = {}
    with TensorBoardWriter(telemetry, tmp_path / "run") as writer:
        assert writer.write(0) == {}
        for step, _ in enumerate(telemetry, start=1):
            if step % 10 == 0:
                written[step] = writer.write(step)
    accumulator = EventAccumulator(str(tmp_path / "run"))
    accumulator.Reload()
    assert accumulator.file_version == 2.0
    assert set(accumulator.Tags()["scalars"]) == set(written[10]) >= {"data/wait_ms", "data/tokens_per_s"}
    for name in written[10]:
        found = {event.step: event.value for event in accumulator.Scalars(name)}
        assert found == pytest.approx({step: metrics[name] for step, metrics in written.items()}, rel=1e-6)
    assert len(list(read_records(writer.path))) == 3


def test_event_files_are_refused_where_files_do_not_grow(books: Any) -> None:
    with pytest.raises(LoaderError, match="files at 'gs://bucket/runs' do not. Write to a local directory"):
        TensorBoardWriter(Telemetry(Loader(books, batch_size=4)), "gs://bucket/runs")


def test_prometheus_scrapes_the_totals(books: Any, web: Any) -> None:
    loader = Loader(Mixture([(books, 3), (web, 1)]), batch_size=8, epochs=None, pad_to=30, workers=1)
    telemetry = Telemetry(loader, tokens="tokens")
    registry = prometheus_client.CollectorRegistry()
    registry.register(PrometheusCollector(telemetry, loader='odd "name"'))
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        for _ in itertools.islice(telemetry, 5):
            pass
        text = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10).read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    families = {family.name: family for family in prometheus_client.parser.text_string_to_metric_families(text)}
    assert {family.type for name, family in families.items() if name.startswith("beam_pipes_data_")} == {"counter"}
    by_source = families["beam_pipes_data_source_rows"].samples
    assert {sample.labels["source"]: sample.value for sample in by_source} == {"books": 30.0, "web": 10.0}
    assert all(sample.labels["loader"] == 'odd "name"' for sample in by_source)
    label = r'loader="odd \"name\""'
    totals = telemetry.totals()
    assert f"beam_pipes_data_batches_total{{{label}}} 5.0" in text
    assert f"beam_pipes_data_rows_total{{{label}}} 40.0" in text
    assert f"beam_pipes_data_tokens_total{{{label}}} {float(totals.tokens or 0)}" in text
    assert f'beam_pipes_data_source_rows_total{{{label},source="books"}} 30.0' in text
    assert f"beam_pipes_data_wait_seconds_total{{{label}}} {totals.wait_secs}" in text
