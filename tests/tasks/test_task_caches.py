"""Caches of tasks: the same examples cached and uncached, both layouts, sidecars, staleness."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    Manifest,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.errors import CacheNotFoundError, SourceError, StaleCacheError, TaskError
from beam_pipes.tasks import (
    ByteVocabulary,
    CacheDatasetPlaceholder,
    Feature,
    FunctionDataSource,
    PassThroughVocabulary,
    ShardInfo,
    Task,
    TextLineDataSource,
    add_global_cache_dirs,
    get_global_cache_dirs,
    get_loader,
    map_over_dataset,
    mixing_rate_num_characters,
    mixing_rate_num_examples,
    preprocessors,
    python_map,
    set_global_cache_dirs,
)
from beam_pipes.tasks.caches.offline import task_declaration_parts
from beam_pipes.tasks.providers.task_cache import fingerprint_digests
from beam_pipes.tasks.sources.sidecars import write_seqio_sidecars
from beam_pipes.tasks.steps.dataset_map import dict_to_tfexample, tfexample_to_dict
from beam_pipes.tasks.steps.examples import examples_from_dataset
from beam_pipes.transforms.converters import PassThroughFeatureConverter

BYTES = ByteVocabulary()
FEATURES = {"targets": Feature(BYTES)}
ANYTHING = {"targets": Feature(PassThroughVocabulary(9), required=False, add_eos=False)}


@pytest.fixture(autouse=True)
def cache_dir(tmp_path) -> Iterator[Path]:
    before = get_global_cache_dirs()
    set_global_cache_dirs([str(tmp_path / "elsewhere")])
    add_global_cache_dirs([str(tmp_path / "caches")])
    yield tmp_path / "caches"
    set_global_cache_dirs(before)


def build(task: Task, root: Path, *, seed: int = 0, encoding="raw", splits=None) -> Path:
    """Writes a cache as a build does: one shard a source shard, then the manifest."""
    directory = root / task.name
    snapshot = "0123456789abcdef"
    parts = task_declaration_parts(task, splits)
    manifests = {}
    for split, shards in parts.shards.items():
        spec = parts.spec(split, seed=seed, encoding=encoding)
        entries = []
        for number, shard in enumerate(shards):
            place = snapshot_directory(directory, snapshot)
            Path(place).mkdir(parents=True, exist_ok=True)
            file = shard_file_name("task", split, number, len(shards))
            with ShardWriter(place, file, codec=ExampleCodec(spec)) as writer:
                for ordinal, example in enumerate(parts.stream(split, shard, seed=seed)):
                    writer.write(example, ordinal=ordinal)
                entries.append(writer.commit())
        manifests[split] = SplitManifest.from_entries(entries, spec=spec, shard_count=len(shards))
    publish(
        directory, Manifest(name="task", snapshot=snapshot, splits=manifests, fingerprints=fingerprint_digests(task))
    )
    return directory


def rows(examples) -> list[str]:
    """Examples as comparable text, dtypes included, sorted."""
    examples = examples_from_dataset(examples) if hasattr(examples, "element_spec") else examples
    return sorted(
        repr(
            {
                k: v if isinstance(v, bytes) else (np.asarray(v).dtype.name, np.asarray(v).tolist())
                for k, v in sorted(e.items())
            }
        )
        for e in examples
    )


@python_map
def to_targets(line):
    return {"targets": line}


@map_over_dataset
def to_targets_in_tensorflow(line):
    return {"targets": line}


@python_map
def words(example):
    return [{"targets": word} for word in example["targets"].split()]


@map_over_dataset(num_seeds=1)
def noisy(example, seed):
    return {**example, "noise": tf.random.stateless_uniform([2], seed, 0, 1000, tf.int64)}


@python_map
def noisy_in_python(example, rng):
    return {**example, "python_noise": rng.integers(1000, size=3).astype(np.uint16)}


STEPS = {
    "words": words,
    "noisy": noisy,
    "noisy_in_python": noisy_in_python,
    "tokenize": preprocessors.tokenize,
    "last": lambda dataset: dataset.filter(lambda example: tf.size(example["targets"]) != 3),
}


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_cached_and_uncached_tasks_give_the_same_examples(tmp_path_factory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("generated")
    files = data.draw(st.lists(st.lists(st.text("ab é", max_size=6), max_size=4), min_size=1, max_size=3))
    for index, lines in enumerate(files):
        (root / f"{index}.txt").write_text("".join(f"x{line}\n" for line in lines), encoding="utf-8")
    first = data.draw(st.sampled_from([to_targets, to_targets_in_tensorflow]))
    chosen = data.draw(st.permutations(["words", "noisy", "noisy_in_python"]))[: data.draw(st.integers(0, 3))]
    steps = [first, *(STEPS[name] for name in chosen), STEPS["tokenize"], STEPS["last"], CacheDatasetPlaceholder()]
    source = TextLineDataSource({"train": str(root / "*.txt")})
    task = Task("generated", source, FEATURES, [*steps, preprocessors.append_eos_after_trim])
    set_global_cache_dirs([str(root / "caches")])
    build(task, root / "caches", seed=3)
    arguments = {"sequence_length": {"targets": 4}, "seed": 3, "shuffle": False}

    cached = rows(task.get_dataset(**arguments, use_cached=True))

    assert cached == rows(task.get_dataset(**arguments))
    assert cached == rows(task.examples(**arguments))
    assert cached == rows(task.examples(**arguments, use_cached=True))


def anything(split, shuffle_files, seed=None):
    """Every dtype, scalars, matrices whose inner dimension varies, texts."""
    made = []
    for i in range({"train": 7, "empty": 0}[split]):
        example = {
            dtype: tf.constant(np.arange(i % 3 + 1), getattr(tf, dtype))
            for dtype in ("uint8", "int8", "int16", "int64", "uint32", "float16", "bfloat16", "float32", "float64")
        }
        example["flags"] = tf.constant([True, False][: i % 3])
        example["matrix"] = tf.reshape(tf.range(2 * (i % 4)), (2, i % 4))
        example["text"] = tf.constant(f"text {i}")
        example["number"] = tf.constant(i)
        made.append(example)
    spec = {
        n: tf.TensorSpec([None] * v.shape.rank, v.dtype)
        for n, v in (made[0] if made else {"number": tf.constant(0)}).items()
    }
    return tf.data.Dataset.from_generator(lambda: iter(made), output_signature=spec)


def anything_task(splits=("train",)) -> Task:
    source = FunctionDataSource(anything, splits)
    return Task("anything", source, ANYTHING, [lambda dataset: dataset, CacheDatasetPlaceholder()])


@pytest.mark.parametrize("encoding", ["raw", "list"])
def test_all_dtypes_and_varying_inner_dimensions_round_trip(cache_dir: Path, encoding: str) -> None:
    task = anything_task()
    build(task, cache_dir, encoding=encoding)

    uncached = rows(task.get_dataset(shuffle=False))

    assert len(uncached) == 7
    assert rows(task.get_dataset(shuffle=False, use_cached=True)) == uncached
    assert rows(task.examples(use_cached=True)) == uncached


def test_shares_of_a_cache_are_equal_for_any_number_of_hosts(cache_dir: Path) -> None:
    task = anything_task()
    build(task, cache_dir)

    for shuffle, hosts in itertools.product((False, True), (2, 5)):
        shares = [
            rows(task.get_dataset(use_cached=True, shuffle=shuffle, seed=1, shard_info=ShardInfo(index, hosts)))
            for index in range(hosts)
        ]
        assert sorted(itertools.chain(*shares)) == rows(task.get_dataset(shuffle=False))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_an_empty_split_is_a_split(cache_dir: Path) -> None:
    task = anything_task(("train", "empty"))
    build(task, cache_dir)

    assert rows(task.get_dataset(split="empty", use_cached=True, shuffle=False)) == []
    assert task.get_cached_stats("empty")["examples"] == 0


def tokens_task(tmp_path: Path, name: str = "tokens", vocabulary=BYTES) -> Task:
    (tmp_path / "lines.txt").write_text("one\nfour five\nsix\n")
    source = TextLineDataSource({"train": str(tmp_path / "lines.txt")})
    steps = [to_targets, preprocessors.tokenize, CacheDatasetPlaceholder(), preprocessors.append_eos]
    return Task(name, source, {"targets": Feature(vocabulary)}, steps)


def test_statistics_come_from_the_index(cache_dir: Path, tmp_path: Path) -> None:
    task = tokens_task(tmp_path)
    build(task, cache_dir)

    assert task.get_cached_stats() == {
        "examples": 3,
        "targets_tokens": 15,
        "targets_max_tokens": 9,
        "targets_chars": 15,
    }
    assert mixing_rate_num_examples(task) == 3
    assert mixing_rate_num_characters(task, char_count_name="targets_chars") == 15
    with pytest.raises(TaskError, match="Stats do not exist for 'tokens' split: test"):
        task.get_cached_stats("test")


def test_a_cache_of_another_version_of_the_task_is_refused_with_the_reason(cache_dir: Path, tmp_path: Path) -> None:
    build(tokens_task(tmp_path), cache_dir)
    changed = tokens_task(tmp_path, vocabulary=ByteVocabulary(extra_ids=1))

    with pytest.raises(
        StaleCacheError, match="built for another version of task 'tokens'; what changed: features. Build"
    ):
        changed.get_dataset(use_cached=True)
    assert fingerprint_digests(tokens_task(tmp_path)) == fingerprint_digests(tokens_task(tmp_path))
    assert list(fingerprint_digests(changed)) == ["task/features", "task/step 0: to_targets", "task/step 1: tokenize"]


def test_a_task_without_a_cut_is_not_a_unit_of_a_build(tmp_path: Path) -> None:
    task = Task("t", TextLineDataSource({"train": "x"}), FEATURES, [to_targets])

    with pytest.raises(TaskError, match="task 't' cannot be cached: add a CacheDatasetPlaceholder"):
        task_declaration_parts(task)


def test_what_is_cached_must_be_a_dict(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    task = Task("t", TextLineDataSource({"train": str(tmp_path / "a.txt")}), FEATURES, [CacheDatasetPlaceholder()])

    with pytest.raises(TaskError, match="task 't': what is cached should be a dict of features, got bytes"):
        list(task.run_offline(iter([b"a"]), seed=0))


@pytest.mark.parametrize("encoding", ["raw", "list"])
def test_sidecars_make_a_cache_readable_in_the_other_layout(cache_dir: Path, encoding: str) -> None:
    task = anything_task()
    directory = build(task, cache_dir, encoding=encoding)
    expected = rows({**e, "float64": np.asarray(e["float64"], np.float32).astype(np.float64)} for e in task.examples())

    written = write_seqio_sidecars(str(directory))
    (directory / "manifest.json").unlink()

    assert sorted(Path(path).name for path in written) == [
        "COMPLETED",
        "info.train.json",
        "stats.train.json",
        "train.tfrecord-00000-of-00001",
    ]
    assert Path(written[-1]).read_text() == "tfrecord"
    assert rows(task.examples(use_cached=True)) == expected
    ragged = [
        {**e, "matrix": np.asarray(e["matrix"], np.int32).reshape(2, -1)}
        for e in examples_from_dataset(task.get_dataset(use_cached=True, shuffle=False))
    ]
    assert rows(ragged) == expected


def test_shards_that_need_no_change_are_linked(cache_dir: Path, tmp_path: Path) -> None:
    task = tokens_task(tmp_path)
    directory = build(task, cache_dir, encoding="list")
    cache = Cache.open(directory)

    write_seqio_sidecars(str(directory))

    shard = Path(cache.directory) / shard_file_name("task", "train", 0, 1)
    assert shard.samefile(directory / "train.tfrecord-00000-of-00001")
    info = json.loads((directory / "info.train.json").read_text())
    assert info["features"] == {
        "targets": {"dtype": "int32", "shape": [None]},
        "targets_pretokenized": {"dtype": "string", "shape": []},
    }
    assert json.loads((directory / "stats.train.json").read_text())["targets_max_tokens"] == 9


def write_other_layout(directory: Path, examples: list[dict], features: dict, *, store_shapes: bool = False) -> None:
    directory.mkdir(parents=True)
    for number in range(2):
        with tf.io.TFRecordWriter(str(directory / f"train.tfrecord-{number:05d}-of-00002")) as writer:
            for example in examples[number::2]:
                writer.write(dict_to_tfexample(example, store_shapes).SerializeToString())
    info = {"num_shards": 2, "features": features, "seqio_version": "0.0.0"}
    (directory / "info.train.json").write_text(json.dumps(info))
    (directory / "stats.train.json").write_text(json.dumps({"examples": len(examples)}))
    (directory / "COMPLETED").write_text("tfrecord")


def test_caches_of_the_other_layout_are_opened(cache_dir: Path, tmp_path: Path) -> None:
    examples = [
        {
            "targets": tf.range(i),
            "u8": tf.constant([i], tf.uint8),
            "f16": tf.constant([i / 2], tf.float16),
            "flag": tf.constant([True]),
            "pixels": tf.reshape(tf.range(3 * i), (i, 3)),
            "text": tf.constant(f"t{i}"),
        }
        for i in range(5)
    ]
    features = {
        "targets": {"dtype": "int32", "shape": [None]},
        "u8": {"dtype": "uint8", "shape": [None]},
        "f16": {"dtype": "float16", "shape": [None]},
        "flag": {"dtype": "bool", "shape": [None]},
        "pixels": {"dtype": "int32", "shape": [None, 3]},
        "text": {"dtype": "string", "shape": []},
    }
    write_other_layout(cache_dir / "wmt" / "de", examples, features)
    source = TextLineDataSource({"train": str(tmp_path / "nothing")})
    task = Task("wmt:de", source, ANYTHING, [CacheDatasetPlaceholder()])

    expected = rows({name: value.numpy() for name, value in example.items()} for example in examples)
    assert rows(task.get_dataset(use_cached=True, shuffle=False)) == expected
    assert rows(task.examples(use_cached=True)) == expected
    shares = [rows(task.get_dataset(use_cached=True, seed=1, shard_info=ShardInfo(i, 3))) for i in range(3)]
    assert sorted(itertools.chain(*shares)) == expected
    assert task.get_cached_stats() == {"examples": 5}
    with pytest.raises(CacheNotFoundError, match="has no split 'test'"):
        task.get_dataset(split="test", use_cached=True)
    (cache_dir / "wmt" / "de" / "train.tfrecord-00001-of-00002").unlink()
    with pytest.raises(SourceError, match="1 of the 2 files of the cache are missing"):
        task.get_dataset(use_cached=True)


def test_ragged_features_of_the_other_layout_stay_ragged(cache_dir: Path, tmp_path: Path) -> None:
    ragged = tf.ragged.constant([[[1, 2]], [], [[3, 4], [5, 6]]], inner_shape=(2,), ragged_rank=1, dtype=tf.int32)
    features = {"ragged": {"dtype": "int32", "shape": [None, None, 2]}, "targets": {"dtype": "int32", "shape": [None]}}
    write_other_layout(cache_dir / "t", [{"ragged": ragged, "targets": tf.constant([1])}], features)
    task = Task("t", TextLineDataSource({"train": str(tmp_path / "x")}), ANYTHING, [CacheDatasetPlaceholder()])

    (example,) = task.get_dataset(use_cached=True, shuffle=False)

    assert example["ragged"].to_list() == ragged.to_list()
    (native,) = task.examples(use_cached=True)
    assert native["ragged"] == ragged.to_list() and native["ragged"].shape == (3, None, 2)
    cut = native["ragged"][:2, :1]
    assert cut == [[[1, 2]], []] and cut.dtype == np.int32 and cut.tensor().to_list() == cut


def test_a_ragged_output_feature_is_cached_and_has_no_loader(cache_dir: Path) -> None:
    rows_of = tf.ragged.constant([[[5], [6, 7]], [[8, 9, 10]]], dtype=tf.int32)
    source = FunctionDataSource(
        lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices({"w": rows_of}), ["train"]
    )
    features = {"w": Feature(PassThroughVocabulary(20), rank=2, add_eos=False)}
    task = Task("ragged", source, features, [CacheDatasetPlaceholder()])
    build(task, cache_dir)

    cached = list(task.get_dataset({"w": 1}, use_cached=True, shuffle=False))
    assert [each["w"].to_list() for each in cached] == [[[5]], [[8, 9, 10]]]
    assert [each["w"] for each in task.examples({"w": 1}, use_cached=True)] == [[[5]], [[8, 9, 10]]]
    assert task.get_cached_stats() == {"examples": 2}  # SeqIO counts no tokens of them
    with pytest.raises(TaskError, match="'ragged': the rows of w have different lengths within an example, of"):
        get_loader(task, {"w": 2}, PassThroughFeatureConverter(), batch_size=1)


def test_tensors_survive_as_tf_train_example() -> None:
    made = {
        "a": tf.constant([1, 2], tf.int64),
        "matrix": tf.constant([[1.5, 2], [3, 4]]),
        "ragged": tf.ragged.constant([[1, 2], [3]], dtype=tf.int64),
        "sparse": tf.sparse.from_dense(tf.constant([[0, 1], [2, 0]], tf.int64)),
    }

    read = tfexample_to_dict(dict_to_tfexample(made, store_shapes=True))

    assert sorted(dict_to_tfexample(made).features.feature) == [
        "_rl:0:ragged",
        "_sp:0:sparse",
        "_sp:1:sparse",
        "a",
        "matrix",
        "ragged",
        "sparse",
    ]
    assert read["matrix"].numpy().tolist() == [[1.5, 2], [3, 4]]
    assert read["ragged"].to_list() == [[1, 2], [3]]
    assert tf.sparse.to_dense(read["sparse"]).numpy().tolist() == [[0, 1], [2, 0]]
    with pytest.raises(TaskError, match="Couldn't find dense shape for sparse tensor sparse"):
        tfexample_to_dict(dict_to_tfexample({"sparse": made["sparse"]}))
    with pytest.raises(TaskError, match="Unsupported type <dtype: 'complex64'>"):
        dict_to_tfexample({"a": tf.constant([1j], tf.complex64)})
    broken = dict_to_tfexample({"ragged": tf.ragged.constant([[[1]], [[2]]])})
    del broken.features.feature["_rl:0:ragged"]
    with pytest.raises(TaskError, match="Couldn't find 0-th ragged length for ragged"):
        tfexample_to_dict(broken)
