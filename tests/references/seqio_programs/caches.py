"""Caches that programs build with `beam_utils` and `cache_tasks_main.run_pipeline`, read, and find."""

from __future__ import annotations

import importlib
import json
import os

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.testing.util import assert_that
from seqio_answers import raised

RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"  # others look for a server to download


def _beam_utils(seqio):
    return importlib.import_module(f"{seqio.__name__}.beam_utils")


def _add(seqio, root, name="task", preprocessors=None, features=None, rows=5):
    for split, count in (("train", rows), ("validation", 2)):
        for part in range(2):
            with open(f"{root}/{split}{part}.txt", "w") as file:
                file.write("".join(f"{split} {part} {number}\n" for number in range(count)))

    def both(dataset):
        return dataset.map(lambda line: {"inputs": line, "targets": tf.strings.upper(line)})

    return seqio.TaskRegistry.add(
        name,
        source=seqio.TextLineDataSource({split: f"{root}/{split}*.txt" for split in ("train", "validation")}),
        preprocessors=[both, *(preprocessors or [seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()])],
        output_features=features
        or {
            "inputs": seqio.Feature(seqio.ByteVocabulary(), add_eos=False),
            "targets": seqio.Feature(seqio.ByteVocabulary()),
        },
    )


def _collected(root, *transforms):
    """What a chain of transforms gives, through a file: a pipeline may run in another process."""
    path = f"{root}/collected"

    def keep(values):
        with open(path, "w") as file:
            json.dump(sorted(values, key=json.dumps), file)

    with beam.Pipeline(runner=RUNNER) as pipeline:
        values = pipeline
        for transform in transforms:
            values = values | transform
        assert_that(values, keep)
    with open(path) as file:
        return json.load(file)


def _plain(example):
    return {
        name: value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()
        for name, value in example.items()
    }


def _of_tensors(example):
    return _plain({name: value.numpy() if hasattr(value, "numpy") else value for name, value in example.items()})


def preprocessed_tasks(seqio, root):
    task = _add(seqio, root, rows=2)
    transform = _beam_utils(seqio).PreprocessTask(task, "train", preprocessors_seed=42, add_provenance=True)
    examples = _collected(root, transform, beam.Map(_of_tensors))
    return [[os.path.basename(name) for _, name in transform.shards], examples]


def records_and_json(seqio, root):
    utils = _beam_utils(seqio)
    weight = np.full(1, 0.5, np.float32)
    example = {"inputs": np.arange(5), "targets": np.arange(3), "text": np.array([b"hi"]), "weight": weight}
    with beam.Pipeline(runner=RUNNER) as pipeline:
        _ = pipeline | "a" >> beam.Create([example] * 3) | utils.WriteExampleTfRecord(f"{root}/out", num_shards=2)
        _ = pipeline | "b" >> beam.Create([{"b": 1, "a": [2]}]) | "one" >> utils.WriteJson(f"{root}/one.json")
        _ = pipeline | "c" >> beam.Create([{"b": 1, "a": 2}]) | "two" >> utils.WriteJson(f"{root}/two.json", False)
    names = sorted(name for name in os.listdir(root) if name.startswith("out"))
    records = [record for name in names for record in tf.data.TFRecordDataset(f"{root}/{name}")]
    features = tf.train.Example.FromString(records[0].numpy()).features.feature
    return [
        names,
        len(records),
        list(features["inputs"].int64_list.value),
        list(features["weight"].float_list.value),
        open(f"{root}/one.json").read(),
        open(f"{root}/two.json").read(),
    ]


def info_of_examples(seqio, root):
    example = {
        "targets": np.arange(3),
        "small": np.ones((1, 3), np.int32),
        "deep": np.ones((1, 2, 3), np.float32),
        "text": b"hi",
        "flag": np.array(True),
        "provenance/task": "t",
    }
    utils = _beam_utils(seqio)
    told = []
    for examples in ([example], []):
        for keep in (True, False):
            transform = utils.GetInfo(num_shards=3, exclude_provenance=keep)
            told.append(_collected(root, beam.Create(examples), transform))
    return told


def statistics_of_examples(seqio, root):
    words = seqio.test_utils.sentencepiece_vocab()
    features = {
        "inputs": seqio.Feature(words),
        "targets": seqio.Feature(words),
        "ids": seqio.Feature(seqio.PassThroughVocabulary(9)),
        "eos_of_own": seqio.Feature(seqio.PassThroughVocabulary(9, eos_id=5)),
        "grid": seqio.Feature(seqio.ByteVocabulary(), rank=2),
        "small": seqio.Feature(seqio.ByteVocabulary(), dtype=tf.uint8),
        "text": seqio.Feature(seqio.PassThroughVocabulary(1), dtype=tf.string, rank=0),
    }
    examples = [
        {
            "inputs": np.array([4, 5]),
            "targets": np.array([4, 5, 10, 1, 0, 0]),
            "ids": np.array([0, 1, 5], np.int32),
            "eos_of_own": np.array([0, 1, 5], np.int32),
            "grid": np.array([[1, 2], [0, 7]], np.int32),
            "small": np.array([3, 4], np.uint8),
            "text": "é!".encode(),
        },
        {"inputs": np.array([4]), "targets": np.array([5, 6, 7, 8, 9, 1]), "text": b"abc"},
    ]
    utils = _beam_utils(seqio)
    told = []
    for kwargs in ({}, {"enable_char_counts": True}, {"task_ids": {"a": 1, "b": 2}}):
        transform = utils.GetStats(features, **kwargs)
        told.append(_collected(root, beam.Create(examples), transform))
    transform = utils.GetStats(features)
    told.append(_collected(root, beam.Create([]), transform))
    return told


def shards_that_are_not_there(seqio, root):
    class Empty(seqio.TextLineDataSource):
        def list_shards(self, split):
            return []

    task = _add(seqio, root).replace(source=Empty({"train": f"{root}/none"}))
    return raised(_beam_utils(seqio).PreprocessTask, task, "train")


def caches_by_pipelines(seqio, root):
    main = importlib.import_module(f"{seqio.__name__}.scripts.cache_tasks_main")
    task = _add(seqio, root)
    _add(seqio, root, "other", preprocessors=[seqio.preprocessors.tokenize])
    _add(seqio, root, "left_out")
    main.FLAGS(["cache_tasks_main", "--min_shards=3", "--nooverwrite", "--max_shards=0"])
    os.makedirs(f"{root}/caches")
    told = []
    seqio.set_global_cache_dirs([f"{root}/caches"])
    for names, excluded in ((["task", "oth.*"], None), ([".*"], ["left.*"])):
        with beam.Pipeline(runner=RUNNER) as pipeline:
            told.append(main.run_pipeline(pipeline, names, f"{root}/caches", excluded_tasks=excluded))
    files = sorted(
        os.path.relpath(f"{at}/{name}", root) for at, _, names in os.walk(f"{root}/caches") for name in names
    )
    info = json.load(open(f"{root}/caches/task/info.train.json"))
    examples = task.get_dataset(None, split="train", use_cached=True, shuffle=False).as_numpy_iterator()
    return [
        told,
        files,
        info,
        task.get_cached_stats("train"),
        task.get_cached_stats("validation"),
        sorted(map(json.dumps, map(_plain, examples))),
        task.cache_dir,
    ]


def _legacy(seqio, root, info, features, splits=("train",)):
    task = _add(seqio, root, preprocessors=[seqio.CacheDatasetPlaceholder()], features=features)
    at = f"{root}/caches/task"
    os.makedirs(at)
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "targets": tf.train.Feature(int64_list=tf.train.Int64List(value=[5, 6, 1])),
                "inputs": tf.train.Feature(int64_list=tf.train.Int64List(value=[7])),
                "inputs_plaintext": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])),
                "targets_plaintext": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"b"])),
            }
        )
    )
    with tf.io.TFRecordWriter(f"{at}/train.tfrecord-00000-of-00001") as writer:
        writer.write(example.SerializeToString())
    json.dump(info, open(f"{at}/info.train.json", "w"))
    json.dump({"examples": 1, "targets_tokens": 2}, open(f"{at}/stats.train.json", "w"))
    open(f"{at}/COMPLETED", "w").close()
    seqio.set_global_cache_dirs([f"{root}/caches"])
    return task


def _legacy_info(dtype, **more):
    vector, text = {"shape": [None], "dtype": dtype}, {"shape": [], "dtype": "string"}
    features = {"inputs": vector, "targets": vector, "inputs_plaintext": text, "targets_plaintext": text}
    return {"num_shards": 1, "features": features, **more}


def legacy_caches(seqio, root):
    task = _legacy(seqio, root, _legacy_info("int64"), None)
    (example,) = task.get_dataset(None, split="train", use_cached=True, shuffle=False)
    told = {name: value.dtype.name for name, value in sorted(example.items())}
    (example,) = task.get_dataset(None, split="train", use_cached=True, shuffle=False).as_numpy_iterator()
    return [told, _plain(example), task.get_cached_stats("train"), raised(task.get_cached_stats, "dev")]


def caches_with_true_dtypes(seqio, root):
    features = dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary(), dtype=tf.int64))
    task = _legacy(seqio, root, _legacy_info("int64", seqio_version="0.0.20"), features)
    (example,) = task.get_dataset(None, split="train", use_cached=True, shuffle=False)
    return {name: value.dtype.name for name, value in sorted(example.items())}


def where_caches_are_looked_for(seqio, root):
    seqio.set_global_cache_dirs(["a", "b"])
    seqio.add_global_cache_dirs(["b", "c"])
    return [
        list(seqio.get_global_cache_dirs()),
        seqio.get_task_dir_from_name("wmt:de:en"),
        seqio.get_cached_info_path("d", "train"),
        seqio.get_cached_stats_path("d", "train"),
        seqio.get_cached_tfrecord_prefix("d", "train"),
    ]


def rates_of_cached_tasks(seqio, root):
    task = _legacy(seqio, root, _legacy_info("int64"), None)
    with open(f"{root}/caches/task/stats.train.json", "w") as file:
        json.dump({"examples": 100, "targets_tokens": 2, "targets_chars": 50, "text_chars": 20}, file)
    rate, chars = seqio.mixing_rate_num_examples, seqio.mixing_rate_num_characters
    return [
        rate(task),
        rate(task, maximum=30),
        rate(task, temperature=2.0),
        rate(task, scale=0.5, maximum=30, temperature=2.0),
        chars(task),
        chars(task, temperature=2.0),
    ]
