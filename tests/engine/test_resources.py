"""Resources of stages: calls that wait for each other on one machine, models that threads share, batches that fit."""

from __future__ import annotations

import pickle
import re
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from built_files import built_files
from hypothesis import given, settings
from hypothesis import strategies as st
from model_declarations import INPUT_VARIABLE, MARKS_VARIABLE, model, scored_with_limits, write_lines

from beam_pipes import Service, load_once, stage
from beam_pipes.engine.resources import Resources, available, largest
from beam_pipes.errors import DeclarationError
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.runners import LocalOptions, build
from beam_pipes.typed.models import Batching, is_out_of_memory


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its resources are not those that other tests wait for."""
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "machine"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "machine"))


def test_calls_of_several_processes_wait_for_the_only_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "input")
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    build("model_declarations:scored", tmp_path / "alone", options=LocalOptions(workers=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv(MARKS_VARIABLE, str(tmp_path / "marks"))

    result = build("model_declarations:scored", tmp_path / "cache", options=LocalOptions(workers=3))

    assert result.account.written == 48 and not result.account.dead
    assert built_files(tmp_path / "cache") == built_files(tmp_path / "alone")
    loads, calls = ((tmp_path / "marks" / name).read_text().split() for name in ("loads", "calls"))
    assert len(loads) == len(set(loads)) == len(set(calls))


@pytest.mark.parametrize(("gpus", "asked", "at_once"), [("0,1", 1, 2), ("0", 0.5, 2), ("0,1", 2, 1), ("", 1, 1)])
def test_as_many_calls_run_as_the_machine_has_room_for(
    gpus: str, asked: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    resources = Resources.of({"gpu": asked}, stage="embed")
    together, one_more, seen = threading.Barrier(at_once), threading.Lock(), [0, 0]

    def call() -> None:
        with resources.held():
            with one_more:
                seen[0] += 1
                seen[1] = max(seen)
            together.wait(60)  # so many do run at once
            with one_more:
                seen[0] -= 1

    threads = [threading.Thread(target=call) for _ in range(4 * at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert seen == [0, at_once]


def test_a_model_is_loaded_once_whichever_thread_asks_first() -> None:
    loads, answers = [], []
    begun, go_on = threading.Event(), threading.Event()

    @load_once
    def slow_model(name: str) -> object:
        """Takes its time."""
        loads.append(name)
        begun.set()
        assert go_on.wait(60)
        return object()

    threads = [threading.Thread(target=lambda: answers.append(slow_model("small"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join(60)

    assert loads == ["small"] and len(set(map(id, answers))) == 1
    assert slow_model("large") is not answers[0]


def test_copies_of_a_loader_that_travels_by_value_share_what_it_loads() -> None:
    @load_once
    def weights(name: str) -> object:
        return object()

    copies = [cloudpickle.loads(cloudpickle.dumps(weights)) for _ in range(2)]

    assert copies[0]("small") is copies[1]("small") is weights("small")
    assert pickle.loads(pickle.dumps(model)) is model


def test_the_code_of_a_loader_counts_and_resources_do_not() -> None:
    @load_once
    def one() -> int:
        return 1

    @load_once
    def two() -> int:
        return 2

    def with_one(line: str) -> dict[str, object]:
        return {"number": one()}

    def with_two(line: str) -> dict[str, object]:
        return {"number": two()}

    assert fingerprint(stage(with_one, resources={"gpu": 1})).digest == fingerprint(stage(with_one)).digest
    assert fingerprint(stage(with_one)).parts != {
        name.replace("two", "one"): part for name, part in fingerprint(stage(with_two)).parts.items()
    }


def test_the_first_call_of_a_process_has_no_limit_for_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "input", files=2, lines=3)
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    assert scored_with_limits().record_limits

    result = build("model_declarations:scored_with_limits", tmp_path / "cache", options=LocalOptions(workers=1))

    assert (result.account.written, result.account.dead, result.account.dropped) == (6, 0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=12)), st.integers(1, 30), st.integers(1, 60))
def test_batches_hold_all_records_in_order_and_keep_both_limits(texts: list[str], tokens: int, size: int) -> None:
    batching: Batching[str] = Batching("embed", tokens=tokens, tokens_of=len, bytes_=size)

    batches = list(batching.batches(texts))

    assert [text for batch in batches for text in batch] == texts
    for batch in batches:
        padded, total = len(batch) * max(map(len, batch)), sum(batching._size(text) for text in batch)
        assert len(batch) == 1 or (padded <= tokens and total <= size)
    for batch, after in zip(batches, batches[1:], strict=False):  # and none is smaller than it has to be
        more = [*batch, after[0]]
        padded, total = len(more) * max(map(len, more)), sum(batching._size(text) for text in more)
        assert padded > tokens or total > size


def test_a_batch_for_which_memory_runs_out_is_halved_and_the_next_ones_begin_there() -> None:
    sizes: list[int] = []

    @stage(batched=True)
    def embed(texts: list[str]) -> list[dict[str, object]]:
        sizes.append(len(texts))
        if len(texts) > 3 or "huge" in texts and len(texts) > 1:
            raise MemoryError
        return [{"text": text} for text in texts]

    texts = [str(number) for number in range(12)]

    assert embed.transform_batch(texts) == [[{"text": text}] for text in texts]
    assert embed.transform_batch(["a", "huge", "b"]) == [[{"text": text}] for text in ("a", "huge", "b")]
    assert sizes == [12, 6, 3, 3, 3, 3, 3, 1, 1, 1]


def test_libraries_that_run_out_of_memory_are_recognised_by_what_they_raise() -> None:
    import jax
    import tensorflow as tf
    import torch

    raised: list[BaseException] = []
    for allocate in (
        lambda: bytearray(1 << 62),
        lambda: torch.empty(1 << 60, dtype=torch.uint8),
        lambda: jax.numpy.zeros((1 << 50,), dtype="uint8").block_until_ready(),
    ):
        with pytest.raises(Exception) as caught:
            allocate()
        raised.append(caught.value)
    raised += [torch.OutOfMemoryError("CUDA out of memory."), torch.cuda.OutOfMemoryError("CUDA out of memory.")]
    raised.append(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"))
    raised.append(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."))

    assert [is_out_of_memory(error) for error in raised] == [True] * len(raised), raised
    for other in (RuntimeError("shapes differ"), ValueError(), jax.errors.JaxRuntimeError("INTERNAL: no")):
        assert not is_out_of_memory(other)


def test_a_class_has_resources_too_and_a_process_needs_the_most_of_each() -> None:
    asked = [
        Resources.of({"gpu": 1, "gpu_type": "nvidia-l4", "ram_gb": 4}, stage="a"),
        Resources.of({"cpu": 1.5}, stage="b"),
    ]

    assert largest([*asked, Resources.of({"ram_gb": 16}, stage="c")]).hints() == {
        "accelerator": "type:nvidia-l4;count:1;install-nvidia-driver",
        "min_ram": "16GB",
        "cpu_count": 2,
    }
    assert available("ram_gb") > 0.5 and available("cpu") >= 1


def _texts(texts: list[str]) -> list[dict[str, object]]:
    return [{"text": text} for text in texts]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resources": {}}, "stage '_texts': resources should name what one call needs, such as {\"gpu\": 1"),
        ({"resources": {"gpus": 1}}, "stage '_texts': resources: there is no resource 'gpus'. Did you mean 'gpu'?"),
        ({"resources": {"ram_gb": 0}}, "stage '_texts': resources['ram_gb'] should be a number above 0, got 0."),
        ({"resources": {"gpu_type": "nvidia-l4"}}, "gpu_type is the name of an accelerator and goes with gpu"),
        ({"batch_tokens": 100}, "batch_tokens goes with tokens_of, a function that says how many tokens a record has"),
        ({"batch_bytes": 0}, "stage '_texts': batch_bytes should be an integer of at least 1, got 0."),
    ],
)
def test_options_are_checked_where_they_are_given(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(words)):
        stage(_texts, batched=True, **options)


def test_limits_of_batches_belong_to_batched_stages_of_records_with_a_size() -> None:
    with pytest.raises(DeclarationError, match="batch_bytes limits the batches of a batched stage, and this one takes"):
        stage(lambda text: {"text": text}, batch_bytes=100)
    with pytest.raises(DeclarationError, match="batch_tokens limits the batches of a batched stage, and this one take"):
        stage(lambda text: {"text": text}, service=Service(), batch_tokens=9, tokens_of=len)
    smaller = stage(stage(_texts, batched=True, batch_tokens=9, tokens_of=len), batch_tokens=4)
    assert list(smaller._batching.batches(["ab", "cd", "ef"])) == [["ab", "cd"], ["ef"]]  # type: ignore[attr-defined]
    with pytest.raises(DeclarationError, match="batch_bytes needs records of known size: .*; got <object object"):
        stage(_texts, batched=True, batch_bytes=100).transform_batch([object()])
