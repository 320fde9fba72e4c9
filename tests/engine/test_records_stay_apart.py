"""Buffers and dicts that are filled again, and records that are changed in place, never reach another record."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from beam_pipes import Loader, build, stage, tasks
from beam_pipes.cache import Cache
from beam_pipes.format import messages
from beam_pipes.format.spec import owned
from beam_pipes.runners import LocalOptions, cache_tasks
from beam_pipes.sources import Memory, TextLines
from beam_pipes.tasks.caches.offline import example_of
from beam_pipes.typed import Pipeline

BUFFER = np.zeros(2, np.int64)
EXAMPLE: dict[str, object] = {}
MESSAGE = messages.Example()


class FilledAgain(Pipeline):
    input_type, output_type = str, np.ndarray

    def transform(self, line: str) -> list[np.ndarray]:
        BUFFER[:] = int(line)
        return [BUFFER]


class FilledAgainByName(Pipeline):
    input_type, output_type = str, {"train": dict}

    def transform(self, line: str) -> dict[str, list[dict[str, object]]]:
        EXAMPLE["x"] = int(line)
        return {"train": [EXAMPLE]}


class OneMessage(Pipeline):
    input_type, output_type = str, messages.Example

    def transform(self, line: str) -> list[messages.Example]:
        MESSAGE.features.feature["x"].int64_list.value[:] = [int(line)]
        return [MESSAGE]


@stage
def first_of(array: np.ndarray) -> dict[str, object]:
    return {"x": int(array[0])}


@stage
def buffer_in_a_dict(line: str) -> dict[str, object]:
    BUFFER[:] = int(line)
    return {"x": BUFFER}


@stage
def one_dict(line: str) -> dict[str, object]:
    EXAMPLE["x"] = int(line)
    return EXAMPLE


@stage
def yielded_again(line: str) -> Iterator[dict[str, object]]:
    example: dict[str, object] = {}
    for copy in range(2):
        example["x"] = 10 * int(line) + copy
        yield example


@dataclasses.dataclass
class Row:
    x: np.ndarray


@stage
def fields_again(line: str) -> Iterator[Row]:
    for copy in range(2):
        BUFFER[:] = 10 * int(line) + copy
        yield Row(BUFFER)


@stage
def mapped_again(line: str) -> Iterator[dict[str, object]]:
    return map(lambda copy: EXAMPLE.update(x=10 * int(line) + copy) or EXAMPLE, range(2))


def xs(cache: Path) -> list[object]:
    return [x for batch in Loader(cache, batch_size=1, shuffle=False) for x in batch["x"].tolist()]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        pytest.param([FilledAgain(), first_of], [0, 1, 2, 3], id="an_array_between_stages"),
        pytest.param([FilledAgainByName()], [0, 1, 2, 3], id="a_named_output"),
        pytest.param([buffer_in_a_dict], [[0, 0], [1, 1], [2, 2], [3, 3]], id="an_array_in_an_example"),
        pytest.param([one_dict], [0, 1, 2, 3], id="one_dict_for_all_records"),
        pytest.param([yielded_again], [0, 1, 10, 11, 20, 21, 30, 31], id="one_dict_for_all_outputs"),
        pytest.param([fields_again], [[x, x] for x in (0, 1, 10, 11, 20, 21, 30, 31)], id="fields_of_a_dataclass"),
        pytest.param([mapped_again], [0, 1, 10, 11, 20, 21, 30, 31], id="one_dict_from_an_iterator"),
    ],
)
def test_a_stage_may_fill_its_buffer_again(tmp_path: Path, stages: list[object], expected: list[object]) -> None:
    (tmp_path / "in.txt").write_text("0\n1\n2\n3\n")

    build("again", TextLines(tmp_path / "in.txt"), stages, splits={"train": 1.0}, to=tmp_path / "cache")

    assert xs(tmp_path / "cache/train") == expected


def test_a_stage_may_fill_its_message_again(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("0\n1\n2\n3\n")

    build("again", TextLines(tmp_path / "in.txt"), [OneMessage()], splits={"train": 1.0}, to=tmp_path / "cache")

    split = Cache.open(tmp_path / "cache")["train"]
    records = [messages.Example.FromString(split.record_bytes(index)) for index in range(len(split))]
    assert [record.features.feature["x"].int64_list.value[0] for record in records] == [0, 1, 2, 3]


@stage(batched=True)
def doubled(examples: list[dict[str, object]]) -> list[dict[str, object]]:
    for example in examples:
        example["x"] *= 2
        if example["x"] == 4:
            raise ValueError("two")
    return examples


def test_a_batched_stage_that_fails_changes_its_records_once(tmp_path: Path) -> None:
    values = [{"x": x} for x in range(5)]

    build("doubled", Memory(values), [doubled], splits={"train": 1.0}, to=tmp_path / "cache", on_error="drop")

    assert xs(tmp_path / "cache/train") == [0, 2, 6, 8]


@stage
def raised(example: dict[str, object]) -> dict[str, object]:
    example["x"] += 1
    return example


def test_a_build_does_not_change_values_in_memory(tmp_path: Path) -> None:
    values = [{"x": x} for x in range(3)]

    build("raised", Memory(values), [raised], splits={"train": 1.0}, to=tmp_path / "cache")

    assert values == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert xs(tmp_path / "cache/train") == [1, 2, 3]


def filled_again(split: str, shuffle_files: bool) -> Iterator[dict[str, np.ndarray]]:
    buffer = np.zeros(1, np.int32)
    for x in range(5):
        buffer[:] = x
        yield {"x": buffer}


STEP_BUFFER = np.zeros(1, np.int32)


@tasks.python_map
def tenfold(example: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    STEP_BUFFER[:] = 10 * example["x"]
    return {"x": STEP_BUFFER}


@tasks.python_map
def doubled_in_place(example: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    example["x"] *= 2
    if example["x"][0] == 4:
        raise ValueError("two")
    return example


def task_of(name: str, *steps: object) -> tasks.Task:
    return tasks.Task(
        name,
        tasks.FunctionDataSource(filled_again, splits=["train"]),
        preprocessors=[*steps, tasks.CacheDatasetPlaceholder()],
        output_features={"x": tasks.Feature(tasks.PassThroughVocabulary(100), add_eos=False)},
    )


def test_examples_of_a_task_stay_apart() -> None:
    task = task_of("apart", tenfold)

    assert [example["x"].tolist() for example in list(task.examples())] == [[0], [10], [20], [30], [40]]
    dataset = task.get_dataset(None, "train", shuffle=False)
    assert [example["x"].tolist() for example in dataset.as_numpy_iterator()] == [[0], [10], [20], [30], [40]]


def test_cached_examples_of_a_task_stay_apart(tmp_path: Path) -> None:
    tasks.TaskRegistry.add_provider("apart_cached", task_of("apart_cached"))

    cache_tasks("apart_cached", tmp_path, options=LocalOptions(workers=1))

    assert xs(tmp_path / "apart_cached/train") == [[0], [1], [2], [3], [4]]


def test_a_step_that_fails_changes_its_examples_once(tmp_path: Path) -> None:
    tasks.TaskRegistry.add_provider("apart_failing", task_of("apart_failing", doubled_in_place))

    cache_tasks("apart_failing", tmp_path, options=LocalOptions(workers=1), on_error="dead_letter", max_bad=1)

    assert xs(tmp_path / "apart_failing/train") == [[0], [2], [6], [8]]
    [letter] = Cache.open(tmp_path / "apart_failing").dead_letters()
    assert example_of(letter.record)["x"].tolist() == [2]


def test_owned_copies_what_can_change() -> None:
    array, text, counted = np.arange(3), "text", collections.Counter(a=1)
    lists, buffer = [[1], [2]], bytearray(b"a")
    value = {"array": array, "text": text, "lists": lists, "pair": (array, 1), "counted": counted, "buffer": buffer}

    kept = owned(value)
    array[:] = 9
    lists[0].append(9)
    counted["a"] = buffer[0] = 9

    assert kept["array"].tolist() == kept["pair"][0].tolist() == [0, 1, 2]
    assert kept["lists"] == [[1], [2]] and kept["counted"] == collections.Counter(a=1)
    assert kept["buffer"] == b"a"
    assert kept["text"] is text and type(kept["counted"]) is collections.Counter
