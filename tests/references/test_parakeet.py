"""Programs as users of Parakeet write them, and every name of its data room: present, different, or absent.

Parakeet needs a Paddle that no longer installs; what each program gives follows from its code (`parakeet.data` of 2021,
`paddle.io` 2.1, read in their repositories) and stands in the last line of the
program; none was recorded by running it.
"""

from __future__ import annotations

import ast
import inspect
import logging
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes.errors import DatasetError, ExampleError
from beam_pipes.map_style import (
    BatchSampler,
    BucketSampler,
    DataLoader,
    Dataset,
    DistributedBatchSampler,
    SequentialSampler,
)
from beam_pipes.map_style import loader as loading
from beam_pipes.transforms import audio, parakeet
from beam_pipes.transforms.audio import Chinese, Vocab
from beam_pipes.transforms.parakeet import ABSENT

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "migrate-from-parakeet.md").read_text(encoding="utf-8")
PROGRAMS = sorted((HERE / "parakeet_programs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_a_user_gives_what_parakeet_gives(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("parakeet.data", "paddle.io"):
        monkeypatch.setitem(sys.modules, name, parakeet)
    for name in ("parakeet", "paddle"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "parakeet.frontend", audio)
    text = program.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}

    exec(compile(text, program.name, "exec"), names)

    assert names["answer"] == ast.literal_eval(text.rpartition("# gives ")[2].replace("\n#", ""))


def test_there_are_twenty_programs() -> None:
    assert len(PROGRAMS) >= 20


# Name → its arguments there.
NAMES: dict[str, list[str]] = {
    "BatchSampler": ["sampler", "batch_size", "drop_last", "dataset", "shuffle"],
    "BucketSampler": ["lengths", "batch_size", "batch_group_size", "permutate", "num_trainers", "rank"],
    "CacheDataset": ["dataset"],
    "ChainDataset": [],
    "Chinese": [],
    "DataLoader": [
        *("dataset", "feed_list", "places", "return_list", "batch_sampler", "batch_size", "shuffle", "drop_last"),
        *(
            "collate_fn",
            "num_workers",
            "use_buffer_reader",
            "use_shared_memory",
            "timeout",
            "persistent_workers",
            "worker_init_fn",
        ),
    ],
    "Dataset": [],
    "DictDataset": [],
    "DistributedBatchSampler": ["dataset", "batch_size", "num_replicas", "rank", "shuffle", "drop_last"],
    "DistributedSampler": ["dataset_size", "num_trainers", "rank", "shuffle"],
    "English": [],
    "EnglishCharacter": [],
    "FilterDataset": ["dataset", "filter_fn"],
    "LogMagnitude": ["min"],
    "PartialyRandomizedSimilarTimeLengthSampler": ["lengths", "batch_size", "batch_group_size", "permutate"],
    "RandomSampler": ["data_source", "replacement", "num_samples"],
    "Sampler": [],
    "SequentialSampler": ["data_source"],
    "SliceDataset": ["dataset", "start", "finish", "order"],
    "SpecBatcher": [],
    "SubsetDataset": ["dataset", "indices"],
    "SubsetRandomSampler": ["indices"],
    "TextIDBatcher": [],
    "TransformDataset": ["dataset", "transform"],
    "TupleDataset": [],
    "UnitMagnitude": ["min"],
    "Vocab": ["symbols", "padding_symbol", "unk_symbol", "start_symbol", "end_symbol"],
    "WavBatcher": [],
    "WeightedRandomSampler": ["weights", "num_samples", "replacement"],
    "batch_spec": ["minibatch", "pad_value"],
    "batch_text_id": ["minibatch", "pad_id"],
    "batch_wav": ["minibatch", "pad_value"],
    "split": ["dataset", "first_size"],
}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_with_its_arguments_and_on_the_page(name: str) -> None:
    ours = inspect.signature(getattr(parakeet, name)).parameters

    assert [argument for argument in NAMES[name] if argument not in ours] == []
    assert f"`{name}`" in PAGE


def test_what_is_absent_is_on_the_page() -> None:
    assert [name for name in ABSENT if hasattr(parakeet, name) or f"`{name}`" not in PAGE] == []


def test_arguments_of_paddle_are_noted_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_noted", [])
    with caplog.at_level(logging.WARNING, logger="beam_pipes"):
        for _ in range(2):
            DataLoader(range(3), places="cpu", use_shared_memory=False)

    assert [record.getMessage() for record in caplog.records] == [
        "DataLoader takes places, use_shared_memory for scripts written for Paddle, without effect: batches are NumPy "
        "arrays on the host, and workers are kept between epochs."
    ]


class Marked(Dataset):
    """Its examples are what `mark` has written into the process."""

    number = -1

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return Marked.number


def mark(number: int) -> None:
    Marked.number = number + 10


def fail(number: int) -> None:
    raise ValueError(f"no device {number}")


def test_a_worker_is_set_up_by_its_function() -> None:
    with DataLoader(Marked(), num_workers=2, worker_type="process", collate_fn=list, worker_init_fn=mark) as loader:
        assert list(loader) == [[10], [11]]
    with (
        DataLoader(Marked(), num_workers=1, worker_type="process", worker_init_fn=fail) as loader,
        pytest.raises(ExampleError, match=r"worker_init_fn\(0\) failed: ValueError: no device 0"),
    ):
        next(iter(loader))


def test_distributed_batches_of_a_single_process_are_all() -> None:
    assert list(DistributedBatchSampler(range(3), 2)) == [[0, 1], [2]]


def test_ranks_of_buckets_have_equal_numbers_and_all_examples() -> None:
    lengths = np.random.default_rng(0).integers(1, 90, 103)
    ranks = [BucketSampler(lengths, 4, num_trainers=3, rank=rank, seed=5, epoch=2) for rank in range(3)]
    given = [list(rank) for rank in ranks]

    assert {len(one) for one in given} == {35} == {len(rank) for rank in ranks}
    assert sorted({index for one in given for index in one}) == list(range(103))
    assert ranks[0].describe() == ranks[2].describe()


def test_distributed_batches_are_shuffled_alike_on_all_ranks_each_epoch() -> None:
    def epoch(number: int) -> list[int]:
        ranks = [DistributedBatchSampler(range(12), 2, 3, rank, shuffle=True) for rank in range(3)]
        for one in ranks:
            one.set_epoch(number)
        return [index for one in ranks for batch in one for index in batch]

    assert sorted(epoch(0)) == sorted(epoch(1)) == list(range(12))
    assert epoch(0) != epoch(1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: BatchSampler(SequentialSampler(3), shuffle=True),
            "BatchSampler needs either a sampler, .* or a dataset",
        ),
        (lambda: BucketSampler([1, 2], num_trainers=2, rank=2), "needs 0 <= rank < num_trainers=2, got rank=2"),
        (lambda: Vocab("ab").lookup("c"), "'c' is not one of the 6 symbols of the vocabulary"),
        (lambda: Vocab("ab").reverse(6), "6 is not an id; they run from 0 to 5"),
        (lambda: Chinese().numericalize(["xyz9"]), "'xyz9' is not one of the"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        make()
