"""A slow stage is planted in each place, far slower than all others; the diagnosis has to name it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import loader_caches
import numpy as np
import pytest
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import LoaderError
from beam_pipes.loader import BlockShuffle, Loader, open_remote
from beam_pipes.map_style import DataLoader as MapStyleLoader
from beam_pipes.map_style import TransformDataset
from beam_pipes.on_device import JaxDataLoader, NumpyDataLoader, TorchDataLoader
from beam_pipes.storage.local import LocalStorage
from beam_pipes.telemetry import LoaderDiagnosis, diagnose_loader

DELAY_SECS = 0.05


def slowly(batch: Any) -> Any:
    time.sleep(DELAY_SECS)
    return batch


class SlowStorage(LocalStorage):
    def local_path(self, path: str) -> str | None:
        return None  # nothing is read in place

    def open_read(self, path: str) -> Any:
        time.sleep(DELAY_SECS)
        return super().open_read(path)

    def read_bytes(self, path: str) -> bytes:
        time.sleep(DELAY_SECS)
        return super().read_bytes(path)


class SlowSplit:
    """A split whose every gathering is slow, also of what was just gathered."""

    def __init__(self, split: Any) -> None:
        self._split = split

    def __len__(self) -> int:
        return len(self._split)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._split, name)

    def gather(self, *arguments: Any, **options: Any) -> Any:
        return slowly(self._split.gather(*arguments, **options))


class SlowConversion(NumpyDataLoader):
    def _host(self, sample: Any) -> Any:
        return super()._host(slowly(sample))


class SlowTransfer(TorchDataLoader):
    def _place(self, host: Any) -> Any:
        return super()._place(slowly(host))


class SlowExamples:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return slowly(np.full(3, index))


def slow_storage(split: Any, directory: Path) -> Any:
    far = open_remote(
        split.path, "train", local_directory=directory / "copies", max_bytes=1 << 20, storage=SlowStorage()
    )
    return Loader(far, batch_size=1, shuffle=False)


PLANTED: dict[str, tuple[str, Any]] = {
    "storage": ("storage read", slow_storage),
    "gather": ("gather", lambda split, _: Loader(SlowSplit(split), batch_size=4)),
    "transform": ("transform", lambda split, _: Loader(split, batch_size=4, transform=slowly)),
    "transform under a thread": (
        "transform",
        lambda split, _: Loader(split, batch_size=4, transform=slowly, workers=1),
    ),
    "transform under jax": ("transform", lambda split, _: JaxDataLoader(Loader(split, batch_size=4, transform=slowly))),
    "conversion": ("conversion", lambda split, _: SlowConversion(Loader(split, batch_size=4))),
    "transfer": ("transfer", lambda split, _: SlowTransfer(Loader(split, batch_size=4))),
    "prefetched transfer": (
        "transfer",
        lambda split, _: SlowTransfer(Loader(split, batch_size=4)).prefetch_to_devices(2, device="cpu"),
    ),
    "dataset": ("storage read", lambda *_: MapStyleLoader(SlowExamples(), batch_size=4)),
    "dataset transform": (
        "transform",
        lambda *_: MapStyleLoader(TransformDataset([np.zeros(3)] * 40, slowly), batch_size=4),
    ),
    "collate": (
        "conversion",
        lambda *_: MapStyleLoader([np.zeros(3)] * 40, batch_size=4, collate_fn=lambda rows: slowly(np.stack(rows))),
    ),
    "iterable": ("iteration", lambda *_: [slowly({"x": np.zeros(3)})] and map(slowly, [np.zeros(3)] * 40)),
}


@pytest.fixture(scope="module")
def wide_split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """40 records of 1.2 MB in as many shards: a batch is a group of its own, and meets new shards."""
    spec = loader_caches.ExampleSpec(
        {"x": loader_caches.FeatureSpec("int32", shape=(1 << 18,)), "flag": loader_caches.FeatureSpec("bool")}
    )
    examples = [{"x": np.full(1 << 18, index, np.int32), "flag": True} for index in range(40)]
    directory = tmp_path_factory.mktemp("wide") / "cache"
    return loader_caches.write_split(directory, examples, spec, shards=40)


@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_slow_stage_is_named(wide_split: Any, tmp_path: Path, place: str) -> None:
    expected, make = PLANTED[place]
    split = wide_split
    batches = 3
    if place == "storage":  # small shards: only the way to them is long
        split = loader_caches.write_split(tmp_path / "cache", loader_caches.rows(40), loader_caches.ROWS, shards=40)
        batches = 5  # the first group of copies has four
    found = diagnose_loader(make(split, tmp_path), step_ms=0.01, batches=batches)
    assert found.stage == expected, found.stage_ms
    assert found.input_bound is True
    assert str(found).startswith("Input-bound: a step of ") and f"{expected} is the slowest" in str(found)
    assert "\n" not in str(found)


def test_a_loader_that_keeps_up_is_not_input_bound_and_stays_where_it_was(row_split: Any) -> None:
    loader = Loader(row_split, batch_size=4, workers=1, epochs=2)
    next(iter(loader))
    state = loader.state_dict()
    found = diagnose_loader(loader, step_ms=100, batches=4)
    assert found.input_bound is False and found.batches == 4
    assert str(found).startswith("Not input-bound: a step of 100 ms waits ")
    assert set(found.stage_ms) == {"storage read", "gather", "transform"}
    assert loader.state_dict() == state


def test_without_a_step_it_says_what_the_loader_gives(row_split: Any) -> None:
    found = diagnose_loader(Loader(row_split, batch_size=4, transform=slowly))
    assert found.input_bound is None and found.step_ms is None
    assert str(found).startswith("A batch comes every ") and "input-bound where a step takes less" in str(found)


def test_one_batch_is_enough(row_split: Any) -> None:
    assert diagnose_loader(Loader(row_split, batch_size=100)).batches == 1


@pytest.mark.parametrize(("batch_size", "times"), [(4, 1), (20, 2)], ids=["many batches", "few batches"])
def test_the_loader_itself_reads_other_rows_than_its_stages_if_it_has_them(
    row_split: Any, batch_size: int, times: int
) -> None:
    seen: list[int] = []

    def note(batch: Any) -> Any:
        seen.extend(batch["id"].tolist())
        return batch

    loader = Loader(row_split, batch_size=batch_size, transform=note, epochs=1)
    diagnose_loader(JaxDataLoader(loader), batches=3)
    assert set(Counter(seen).values()) == {times} and loader.position == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batches": 0}, "batches should be an integer of at least 1, got 0"),
        ({"step_ms": -1}, "step_ms should be a number of at least 0 and below inf, got -1"),
        ({"max_secs": 0}, "max_secs should be a number above 0, got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(row_split: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(LoaderError, match=words):
        diagnose_loader(Loader(row_split, batch_size=4), **options)


def test_a_loader_without_batches_is_refused() -> None:
    with pytest.raises(LoaderError, match="the loader gives no batch"):
        diagnose_loader([])


def test_blocks_are_fetched_ahead_while_measuring(row_split: Any, tmp_path: Path) -> None:
    far = open_remote(row_split.path, "train", local_directory=tmp_path / "copies", max_bytes=1 << 20)
    found = diagnose_loader(Loader(far, batch_size=4, shuffle=BlockShuffle(window=1)))
    assert isinstance(found, LoaderDiagnosis) and found.stage_ms["storage read"] >= 0


def test_the_command_says_it_in_one_line(row_split: Any) -> None:
    path, run = row_split.path, CliRunner().invoke
    slow = run(
        app, ["doctor-loader", path, "--batch-size", "4", "--step-ms", "2", "--transform", "test_diagnosis:slowly"]
    )
    assert slow.exit_code == 0, slow.output
    assert slow.output.startswith("Input-bound: ") and "transform is the slowest stage" in slow.output
    assert slow.output.count("\n") == 1
    converted = run(app, ["doctor-loader", path, "--to", "torch", "--prefetch", "2", "--batch-size", "4", "--json"])
    assert '"transfer"' in converted.output and '"step_ms": null' in converted.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "mxnet"], "--to should be one of jax, torch, numpy, got 'mxnet'"),
        (["--prefetch", "2"], "--prefetch keeps batches ready on a device"),
        (["--to", "numpy", "--prefetch", "2"], "--prefetch needs --to jax or torch"),
        (["--transform", "nowhere"], "expected --transform to name a function as package.module:function"),
        (["--transform", "test_diagnosis:DELAY_SECS"], "got 'test_diagnosis:DELAY_SECS'"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(row_split: Any, options: list[str], words: str) -> None:
    outcome = CliRunner().invoke(app, ["doctor-loader", row_split.path, "--batch-size", "4", *options])
    assert isinstance(outcome.exception, LoaderError) and words in str(outcome.exception)
