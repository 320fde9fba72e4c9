"""Prepared TFDS and RLDS data sets loaded as they are: values are TFDS's, in every loader and after every resume."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
import torch

from beam_pipes import Cache, DataLoader, Loader, add_column, build
from beam_pipes.errors import CacheError, SourceError
from beam_pipes.loader import Windows
from beam_pipes.sources import TfdsFeatures, open_tfds, tfds_splits

EPISODES = 40


def is_array(robot: Path) -> bool:
    return any(robot.glob("*.array_record-*"))


def kept(episode: dict[str, Any]) -> dict[str, Any]:
    return episode


def steps_of(number: int) -> int:
    return 3 + number % 7


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def robot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 episodes in RLDS's form, as TFDS prepares them in either format."""
    kinds = tfds.features
    step = {
        "observation": {
            "image": kinds.Image(shape=(4, 6, 3), encoding_format="png"),
            "state": kinds.Tensor(shape=(7,), dtype=np.float32),
        },
        "action": kinds.Tensor(shape=(2,), dtype=np.float64),
        "is_last": np.bool_,
        "say": kinds.Text(),
    }
    features = kinds.FeaturesDict(
        {"id": np.int64, "task": kinds.ClassLabel(names=["lift", "push"]), "steps": kinds.Dataset(step)}
    )

    def episode(number: int) -> dict[str, Any]:
        draw = np.random.default_rng(number)
        steps = [
            {
                "observation": {
                    "image": draw.integers(0, 256, (4, 6, 3), np.uint8),
                    "state": draw.random(7, np.float32),
                },
                "action": np.array([number, at], np.float64),
                "is_last": at == steps_of(number) - 1,
                "say": f"é {at}",
            }
            for at in range(steps_of(number))
        ]
        return {"id": number, "task": number % 2, "steps": steps}

    top = tmp_path_factory.mktemp("tfds")
    splits = {"train": [(str(n), episode(n)) for n in range(EPISODES)], "test": [("x", episode(99))]}
    tfds.dataset_builders.store_as_tfds_dataset(
        name="robot", version="1.0.0", data_dir=top, features=features, split_datasets=splits, file_format=request.param
    )
    return top / "robot/1.0.0"


@pytest.fixture(scope="module")
def opened(robot: Path) -> Cache:
    return open_tfds(robot)


def of_tfds(robot: Path) -> dict[int, Mapping[str, Any]]:
    """What `as_dataset` gives, or `as_data_source` for ArrayRecord, by id; the steps stacked."""
    found: dict[int, Mapping[str, Any]] = {}
    builder = tfds.builder_from_directory(robot)
    rows = builder.as_data_source("train") if is_array(robot) else tfds.as_numpy(builder.as_dataset(split="train"))
    for each in rows:
        steps = list(each["steps"])
        found[int(each["id"])] = {
            "task": each["task"],
            "steps/action": np.stack([step["action"] for step in steps]),
            "steps/is_last": np.stack([step["is_last"] for step in steps]),
            "steps/observation/image": np.stack([step["observation"]["image"] for step in steps]),
            "steps/observation/state": np.stack([step["observation"]["state"] for step in steps]),
            "steps/say": [step["say"].decode() for step in steps],
        }
    return found


def test_values_are_those_of_tfds_and_nothing_is_copied(robot: Path, opened: Cache) -> None:
    expected = of_tfds(robot)
    train = opened["train"]
    assert len(train) == len(expected) == EPISODES and len(opened["test"]) == 1
    for row in train:
        theirs = expected[int(row["id"])]
        for name, value in theirs.items():
            np.testing.assert_array_equal(row[name], value, name)
    for name in os.listdir(opened.directory):
        path = Path(opened.directory, name)
        is_shard = ".tfrecord-" in name and not name.endswith(".index")
        assert path.is_symlink() == (is_shard and not is_array(robot))
        assert not is_shard or is_array(robot) == (
            path.stat().st_size == len(opened[name.split("-")[1].split(".")[0]]) * 36
        )
    assert opened.verify().ok
    stored = tfds.builder_from_directory(robot).info.features.deserialize_example_np(train.record_bytes(7))
    assert int(stored["id"]) == int(train[7]["id"])
    assert train.spec["task"].classes == ("lift", "push")


def test_loaders_of_every_kind_give_the_same_batches(opened: Cache) -> None:
    options: dict[str, Any] = {"batch_size": 8, "seed": 3, "shuffle": True}
    features = ["id", "steps/action", "steps/observation/image"]
    plain = [batch for batch in Loader(opened["train"], epochs=1, features=features, **options)]
    assert sorted(np.concatenate([batch["id"] for batch in plain]).tolist()) == list(range(EPISODES))
    assert [*plain[0]["id"]] != sorted(plain[0]["id"])

    def data() -> DataLoader:  # each pass over one is an epoch
        return DataLoader.from_cache(opened["train"], features=features, **options)

    for made in (data().to_jax(), data().to_torch(), data().dataset):
        for ours, theirs in zip(plain, made, strict=False):
            assert isinstance(theirs["id"], jax.Array | torch.Tensor | tf.Tensor)
            for name in features:
                np.testing.assert_array_equal(ours[name], np.asarray(theirs[name]))


def test_a_run_continues_on_other_hosts_and_says_what_it_read(robot: Path, opened: Cache) -> None:
    split = pickle.loads(pickle.dumps(opened["train"]))
    whole = Loader(split, batch_size=6, seed=5, epochs=3, features=["id"])
    batches = [batch["id"].tolist() for batch in whole]
    loader = Loader(split, batch_size=6, seed=5, epochs=3, features=["id"])
    iterator = iter(loader)
    for _ in range(7):
        next(iterator)
    hosts = [
        Loader(split, batch_size=6, seed=5, epochs=3, features=["id"], host_index=n, host_count=3) for n in range(3)
    ]
    for host in hosts:
        host.load_state_dict(loader.state_dict())
    parts = [sum((batch["id"].tolist() for batch in step), []) for step in zip(*hosts, strict=True)]
    assert parts == batches[7:]

    told = whole.who(9)
    assert [split[each.record]["id"] for each in told] == batches[9]
    kind = "array_record" if is_array(robot) else "tfrecord"
    assert all(each.record_id.startswith(f"robot-train.{kind}-00000-of-00001@") for each in told)
    assert not is_array(robot) or [each.record_id.split("@")[1] for each in told] == [str(each.record) for each in told]
    assert 9 in [each.step for each in whole.when_record(told[2].record_id, epochs=3)]


def test_windows_need_no_pass_over_the_pictures(robot: Path, opened: Cache) -> None:
    offsets = {"steps/observation/image": range(-1, 1), "steps/action": range(4)}
    windows = Windows(opened["train"], offsets=offsets)
    assert len(windows) == sum(map(steps_of, range(EPISODES)))
    expected = of_tfds(robot)
    seen = set()
    for batch in Loader(windows, batch_size=16, seed=1, shuffle=True, epochs=1, last="partial"):
        for action, inside, pictures in zip(
            batch["steps/action"], batch["steps/action_valid"], batch["steps/observation/image"], strict=True
        ):
            number, at = map(int, action[0])
            seen.add((number, at))
            assert inside.sum() == min(4, steps_of(number) - at)
            np.testing.assert_array_equal(action[inside], expected[number]["steps/action"][at : at + 4])
            images = expected[number]["steps/observation/image"]
            np.testing.assert_array_equal(pictures, images[[max(0, at - 1), at]])
    assert len(seen) == len(windows)


def test_columns_are_for_a_cache_of_examples(opened: Cache) -> None:
    with pytest.raises(SourceError, match=r"holds bytes records, expected examples\. Build a cache .*tfds_splits\("):
        add_column("score", opened.path, [])


def test_the_index_lies_where_one_says_and_follows_the_files(robot: Path, tmp_path: Path) -> None:
    copy = tmp_path / "robot"
    shutil.copytree(robot, copy, ignore=shutil.ignore_patterns("beam_pipes_index"))
    first = open_tfds(copy, index=tmp_path / "index", encoded=["steps/observation/image"])
    assert not (copy / "beam_pipes_index").exists()
    assert first["train"][0]["steps/observation/image"][0].startswith(b"\x89PNG")
    [file] = copy.glob("robot-train.*")
    os.utime(file, (1, 1))
    again = open_tfds(copy, index=tmp_path / "index")
    assert again["train"].manifest_id == first["train"].manifest_id  # the same content
    whole = file.read_bytes()
    damaged = [(whole[:-1], r"truncated|cut|incomplete|ends"), (whole[:40] + b"x" + whole[41:], "checksum")]
    if is_array(robot):
        file.write_bytes(whole[:-1])
        with pytest.raises(CacheError, match=r"had \d+ when it was indexed.*Call open_tfds again"):
            again["train"][3]
        damaged = [(whole[:-1], "its footer is damaged or missing"), (b"x" * len(whole), "footer")]
    for rest, message in damaged:
        file.write_bytes(rest)
        with pytest.raises(SourceError, match=rf"{message}.*again"):
            open_tfds(copy, index=tmp_path / "index")


def test_builds_have_the_same_values(robot: Path, tmp_path: Path) -> None:
    splits = tfds_splits(robot)
    build("robot", splits, [kept], features=TfdsFeatures(str(robot)).spec, to=tmp_path / "cache", workers=1)
    built = Cache.open(tmp_path / "cache")
    expected = of_tfds(robot)
    for row in built["train"]:
        np.testing.assert_array_equal(row["steps/action"], expected[int(row["id"])]["steps/action"])
        assert row["steps/say"].tolist() == expected[int(row["id"])]["steps/say"]
    assert len(built["train"]) == EPISODES
