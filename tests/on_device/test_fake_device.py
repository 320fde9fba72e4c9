"""What prefetching to a device promises, against a device that is slow and overwrites memory: no GPU is needed.

The device stands for the frameworks' own copies, through the same seam that they use (`DeviceCopies`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from waiting import eventually

from beam_pipes.loader import Loader
from beam_pipes.on_device import DataLoader, JaxDataLoader, TorchDataLoader, ahead
from beam_pipes.on_device.ahead import PlainCopies
from benchmarks import device as benchmark
from benchmarks.device_fake import POISON, FakeDevice
from benchmarks.load import write_cache

ROWS = 64


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """64 records of 16 numbers, each its own number in every place."""
    numbers = np.repeat(np.arange(ROWS, dtype=np.int32)[:, None], 16, axis=1)
    return write_cache(tmp_path_factory.mktemp("fake") / "cache", {"x": numbers})


LOADERS: dict[str, tuple[Any, Callable[[Any, FakeDevice], Any]]] = {
    "jax": (jnp.array, lambda source, fake: JaxDataLoader(source).prefetch_to_devices(2, copies=fake)),
    "torch": (torch.from_numpy, lambda source, fake: TorchDataLoader(source).prefetch_to_devices(2, copies=fake)),
    "tensorflow": (
        np.asarray,
        lambda source, fake: DataLoader.from_cache(source).prefetch_to_devices(2, copies=fake),
    ),
}
frameworks = pytest.mark.parametrize("framework", list(LOADERS))


def fed(framework: str, source: Any, **options: Any) -> tuple[FakeDevice, Any]:
    made, loader_over = LOADERS[framework]
    fake = FakeDevice(made, **options)
    return fake, loader_over(source, fake)


def batches(split: Any) -> Loader:
    return Loader(split, batch_size=4, seed=3)


@frameworks
@pytest.mark.parametrize("copy_secs", [0.0, 0.002])
def test_batches_arrive_whole_and_in_order_while_their_memory_is_overwritten(
    split: Any, framework: str, copy_secs: float
) -> None:
    fake, loader = fed(framework, batches(split), copy_secs=copy_secs)

    kept = list(loader)

    for batch, expected in zip(kept, batches(split), strict=True):
        np.testing.assert_array_equal(np.asarray(batch["x"]), expected["x"])
    assert fake.begun == fake.received_count == ROWS // 4


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_memory_that_is_overwritten_is_not_that_of_the_user(framework: str) -> None:
    own = [{"x": np.full((2, 3), number, np.int32)} for number in range(8)]
    _, loader = fed(framework, own)

    assert [int(batch["x"][0, 0]) for batch in loader] == list(range(8))
    assert [int(batch["x"][1, 2]) for batch in own] == list(range(8))


def test_tensorflow_copies_once_more_before_the_device_so_that_a_cached_dataset_stays_as_it_is() -> None:
    numbers = np.repeat(np.arange(12, dtype=np.int32)[:, None], 5, axis=1)
    cached = DataLoader.from_tensor_slices({"x": numbers}).batch(4).cache()
    prefetched = cached.prefetch_to_devices(2, copies=FakeDevice())

    for _ in range(3):
        assert [batch["x"].numpy().tolist() for batch in prefetched] == [part.tolist() for part in np.split(numbers, 3)]


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("is_quick", [True, False])
def test_it_is_no_further_ahead_than_asked_for(framework: str, is_quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "DIRECT_SECS", 60.0 if is_quick else -1.0)
    monkeypatch.setattr(ahead, "_PATIENCE_SECS", -1.0)
    read: list[int] = []

    def source() -> Iterator[dict[str, np.ndarray]]:
        for number in range(40):
            read.append(number)
            yield {"x": np.full(3, number, np.int32)}

    fake, loader = fed(framework, source())
    for number, _ in enumerate(loader):
        if not is_quick and number % 8 == 0:
            time.sleep(0.01)  # threads get as far as they may
        # Two wait on the device; threads hold two on the host, and one each.
        assert len(read) <= number + 1 + (2 if is_quick else 2 + 1 + 2 + 1)

    assert fake.most_under_way <= (2 + 1 if is_quick else 2 + 1 + 1)
    assert fake.begun_here == (40 if is_quick else 1)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_copies_overlap_with_the_work_of_the_consumer(split: Any, framework: str) -> None:
    count = ROWS // 4
    fake, loader = fed(framework, batches(split), copy_secs=0.01)
    for number, _ in enumerate(loader):
        # While the consumer works on this one, the copy of the next one is made; the first comes at once, alone.
        needed = min(number + 2, count) if number else 1
        eventually(lambda needed=needed: fake.made_count >= needed)

    assert fake.made_count == count


@frameworks
def test_a_copy_that_fails_is_raised_where_its_element_was_due(split: Any, framework: str) -> None:
    _, loader = fed(framework, batches(split), fails_at=5)
    seen = []

    with pytest.raises(Exception, match="the copy of element 5 failed"):
        for batch in loader:
            seen.append(int(batch["x"][0, 0]))

    assert len(seen) == 5


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("taken", [0, 1, 5, 16])
def test_states_count_what_was_received_and_not_what_was_copied(split: Any, framework: str, taken: int) -> None:
    loader = batches(split)
    _, converted = fed(framework, loader, copy_secs=0.001)
    iterator = iter(converted)
    seen = [int(batch["x"][0, 0]) for batch in itertools.islice(iterator, taken)]
    state = converted.state_dict()
    iterator.close()
    again = batches(split)
    again.load_state_dict(state)

    assert state["position"] in (4 * taken, 0) and loader.state_dict() == state
    expected = [int(batch["x"][0, 0]) for batch in batches(split)]
    assert seen + ([int(batch["x"][0, 0]) for batch in again] if taken < 16 else []) == expected


def test_quick_elements_are_made_by_the_consumer_slow_ones_by_threads_and_quick_ones_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, made_here = 150, list[bool]()

    def source() -> Iterator[dict[str, np.ndarray]]:
        for number in range(count):
            # Whatever the machine does meanwhile, those from 40 to 49 are slow, and all others quick.
            limit = -1.0 if 40 <= number < 50 else 60.0
            for name in ("DIRECT_SECS", "_PATIENCE_SECS"):
                monkeypatch.setattr(ahead, name, limit)
            yield {"x": np.full(3, number, np.int32)}

    class Copies(PlainCopies):
        def copy(self, host: Any, *, here: bool) -> Any:
            made_here.append(here)
            return super().copy(host, here=here)

    loader = TorchDataLoader(source()).prefetch_to_devices(2, copies=Copies(lambda host: host))

    assert [int(batch["x"][0]) for batch in loader] == list(range(count))
    assert made_here[:40] == [True] * 40
    assert not any(made_here[46:50])
    assert all(made_here[-5:])


def test_the_pattern_test_of_the_benchmark_sees_memory_that_is_overwritten_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hasty(FakeDevice):
        def _copied_leaf(self, leaf: Any, key: str) -> Any:
            if self.begun % 3 == 0:
                np.asarray(leaf).reshape(-1).view(np.uint8)[...] = POISON
            return super()._copied_leaf(leaf, key)

    arguments = ["--fake", "--frameworks", "torch", "--sizes", "--rows", "64", "--pattern-secs", "0.1"]
    right = benchmark.main(arguments)["torch"]["pattern"]
    monkeypatch.setattr(benchmark, "FakeDevice", Hasty)
    wrong = benchmark.main(arguments)["torch"]["pattern"]

    assert right["elements"] > 0 and right["wrong"] == 0
    assert wrong["wrong"] > 0


def test_the_benchmark_names_a_framework_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benchmark.FRAMEWORKS, "mxnet", benchmark.TorchDevice)

    found = benchmark.main(["--fake", "--frameworks", "mxnet", "--rows", "64", "--json", str(tmp_path / "found.json")])

    assert found["mxnet"] == {"missing": "mxnet is not installed"}
    assert "mxnet is not installed: not measured" in capsys.readouterr().out
