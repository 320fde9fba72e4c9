"""Caches as data sets of TFDS, opened by TFDS itself and compared value by value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.cache.write_cache import write_cache
from beam_pipes.errors import ExportError, SpecError
from beam_pipes.export import export
from beam_pipes.export.tfds import _is_stored_alike
from beam_pipes.format import dtypes
from beam_pipes.sources import tfds_splits

SHAPES: dict[str, list[tuple[int | None, ...]]] = {
    "raw": [(), (3,), (None,), (2, None), (None, None)],
    "list": [(), (None, 2)],
}


def kinds() -> Iterator[tuple[str, FeatureSpec]]:
    """A feature of every dtype, shape and encoding that there is."""
    layouts = [(encoding, shape) for encoding, shapes in SHAPES.items() for shape in shapes]
    for (encoding, shape), dtype in itertools.product(layouts, dtypes.NAMES):
        most = {"maximum": 5000} if (dtype, encoding) == ("uint64", "list") else {}
        try:
            spec = FeatureSpec(dtype, shape=shape, encoding=encoding, **most)  # type: ignore[arg-type]
        except SpecError:
            continue
        name = f"{dtype}_{encoding}_{'x'.join(str(size or 'n') for size in shape)}"
        if not (dtype == "uint32" and shape.count(None) > 1):
            yield name, spec


def value_of(spec: FeatureSpec, row: int) -> Any:
    shape = tuple(row if size is None else size for size in spec.shape)
    numbers = (np.arange(np.prod(shape, dtype=int)) + row).reshape(shape)
    if spec.is_text:
        texts = [f"é{each}\x00" for each in numbers.ravel().tolist()]
        values: list[Any] = texts if spec.dtype == "str" else [text.encode() + b"\xff" for text in texts]
        return values if shape else values[0]
    return numbers % 2 == 0 if spec.dtype == "bool" else numbers.astype(spec.numpy_dtype)


def as_tfds(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def rows_of(directory: Path, split: str) -> list[dict[str, Any]]:
    return list(tfds.builder_from_directory(directory).as_dataset(split=split).as_numpy_iterator())


def test_every_kind_of_feature_has_the_same_values(tmp_path: Path) -> None:
    by_form: dict[bool, dict[str, FeatureSpec]] = {True: {}, False: {}}
    for name, spec in kinds():
        by_form[_is_stored_alike(spec)][name] = spec
    assert min(map(len, by_form.values())) > 15
    for stored_alike, features in by_form.items():
        at = tmp_path / str(stored_alike)
        rows = [{name: value_of(spec, row) for name, spec in features.items()} for row in range(1, 4)]
        write_cache(at / "cache", {"train": rows}, features=features)

        export(at / "cache", at / "out", format="tfds")

        found = rows_of(at / "out", "train")
        assert len(found) == 3
        for theirs, ours in zip(found, Cache.open(at / "cache")["train"], strict=True):
            for name, spec in features.items():
                expected = (
                    np.asarray([as_tfds(each) for each in ours[name]], object)
                    if spec.is_text and spec.shape
                    else as_tfds(ours[name])
                )
                np.testing.assert_array_equal(
                    np.asarray(theirs[name], getattr(expected, "dtype", None)), expected, name
                )


def test_shards_are_copied_where_tfds_stores_the_same(tmp_path: Path) -> None:
    features = {
        "a/b": FeatureSpec("int32", shape=(None,), minimum=0, maximum=60_000),
        "a/c": FeatureSpec("str"),
        "d": FeatureSpec("bytes"),
    }
    rows = [{"a/b": range(n), "a/c": f"text {n}", "d": b"\x89PNG" * n} for n in range(30)]
    write_cache(tmp_path / "cache", {"train": rows, "eval": rows[:3]}, features=features)
    cache = Cache.open(tmp_path / "cache")

    export(cache, tmp_path / "out", format="tfds")

    shards = sorted(Path(cache.directory).glob("*.tfrecord-*[0-9]"))
    written = sorted((tmp_path / "out").glob("*.tfrecord-*"))
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in shards]
    assert rows_of(tmp_path / "out", "eval")[2]["a"]["b"].dtype == np.uint16  # the dtype on disk
    for split in ("train", "eval"):
        source = tfds_splits(tmp_path / "out")[split]
        batches = [batch for shard in source.plan(target_shard_bytes=1 << 20).shards for batch in source.read(shard)]
        back = [value for batch in batches for value in batch.values]
        assert [(row["a/b"].tolist(), row["a/c"], row["d"]) for row in back] == [
            (row["a/b"].tolist(), row["a/c"], row["d"]) for row in cache[split]
        ]


def test_episodes_are_those_of_rlds_and_labels_have_names(tmp_path: Path) -> None:
    features = {
        "steps/action": FeatureSpec("float32", shape=(None, 2)),
        "steps/observation/image": FeatureSpec("bytes", shape=(None,)),
        "steps/is_last": FeatureSpec("bool", shape=(None,)),
        "task": FeatureSpec("int64", classes=("lift", "push")),
    }
    rows = [
        {
            "steps/action": np.arange(2 * n, dtype=np.float32).reshape(n, 2),
            "steps/observation/image": [b"\xff\xd8%d" % step for step in range(n)],
            "steps/is_last": np.arange(n) == n - 1,
            "task": n % 2,
        }
        for n in range(4)
    ]
    write_cache(tmp_path / "cache", {"train": rows}, features=features)

    export(tmp_path / "cache", tmp_path / "out", format="tfds")

    builder = tfds.builder_from_directory(tmp_path / "out")
    assert builder.info.features["task"].names == ["lift", "push"]
    found = list(tfds.as_numpy(builder.as_dataset(split="train")))
    for n, episode in enumerate(found):
        steps = list(episode["steps"])
        assert (len(steps), episode["task"]) == (n, n % 2)
        for at, step in enumerate(steps):
            assert step["action"].tolist() == [2 * at, 2 * at + 1] and step["is_last"] == (at == n - 1)
            assert step["observation"]["image"] == b"\xff\xd8%d" % at
    back = tfds_splits(tmp_path / "out")["train"]
    assert back.message.spec["task"].classes == ("lift", "push")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"x": FeatureSpec("uint32", shape=(None, None))}, "feature 'x' is uint32 and has 2 dimensions that vary"),
        ({"a": FeatureSpec("int64"), "a/b": FeatureSpec("int64")}, "the features 'a' and 'a/b' cannot both be"),
        ({"x": FeatureSpec("int64", classes=("cat", "dog"))}, "TFDS cannot serialize record 0 of split 'train'.*2"),
    ],
    ids=["uint32", "names", "class"],
)
def test_errors_say_what_tfds_cannot_hold(tmp_path: Path, features: Any, message: str) -> None:
    rows = [{name: np.full([1] * len(spec.shape), 2) for name, spec in features.items()}]
    write_cache(tmp_path / "cache", {"train": rows}, features=features)
    with pytest.raises(ExportError, match=message):
        export(tmp_path / "cache", tmp_path / "out", format="tfds")
    assert not (tmp_path / "out").exists()
