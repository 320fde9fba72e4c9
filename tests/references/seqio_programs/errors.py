"""Mistakes of users, and what they are told."""

from __future__ import annotations

import functools
import re

import numpy as np
import tensorflow as tf
from seqio_answers import raised


def _source(seqio, rows=3, splits=("train",), **kwargs):
    def dataset_fn(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices({"inputs": ["ab"] * rows, "targets": ["cd"] * rows})

    return seqio.FunctionDataSource(dataset_fn, splits=list(splits), **kwargs)


def _features(seqio, *names, **kwargs):
    return {name: seqio.Feature(seqio.ByteVocabulary(), **kwargs) for name in names or ("inputs", "targets")}


def _task(seqio, name="t", preprocessors=None, features=None, rows=3, register=True, **kwargs):
    task = seqio.Task(
        name,
        source=_source(seqio, rows=rows),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
        if preprocessors is None
        else preprocessors,
        output_features=features or _features(seqio),
        **kwargs,
    )
    if register:
        seqio.TaskRegistry.add_provider(name, task)
    return task


def names_of_tasks(seqio):
    return [raised(_task, seqio, name, register=False) for name in ("a b", "a/b", "a-b", "")]


def duplicate_registration(seqio):
    _task(seqio)
    return raised(_task, seqio)


def _without_modules(answer):
    answer["message"] = re.sub(r"<class '[a-z_.]*", "<class '", answer["message"])
    return answer


def registering_what_is_no_task(seqio):
    return [
        _without_modules(raised(seqio.TaskRegistry.add_provider, "x", object())),
        _without_modules(raised(seqio.MixtureRegistry.add_provider, "x", _task(seqio))),
    ]


def unknown_names(seqio):
    _task(seqio, "wmt_de")
    seqio.MixtureRegistry.add("mix", [("wmt_de", 1)])
    return [
        raised(seqio.TaskRegistry.get, "wmt_fr"),
        raised(seqio.MixtureRegistry.get, "wmt_fr"),
        raised(seqio.get_mixture_or_task, "wmt_fr"),
        raised(seqio.get_mixture_or_task, 7),
        raised(seqio.maybe_get_mixture_or_task, 7),
        raised(seqio.MixtureRegistry.add, "other", [("wmt_fr", 1)]),
    ]


def two_placeholders(seqio):
    cut = seqio.CacheDatasetPlaceholder()
    return raised(_task, seqio, preprocessors=[cut, seqio.preprocessors.tokenize, cut])


def caching_not_permitted(seqio):
    return raised(
        seqio.Task,
        "t",
        source=_source(seqio, caching_permitted=False),
        preprocessors=[seqio.CacheDatasetPlaceholder()],
        output_features=_features(seqio),
    )


def sequence_length_before_the_cut(seqio):
    def trim(dataset, sequence_length):
        return dataset

    def declared_and_used():
        task = _task(seqio, preprocessors=[trim, seqio.CacheDatasetPlaceholder()])
        return task.preprocessors

    return raised(declared_and_used)


def a_placeholder_is_called(seqio):
    return raised(seqio.CacheDatasetPlaceholder(), tf.data.Dataset.range(2))


def metric_functions_with_other_arguments(seqio):
    def metric(predictions, references):
        return {}

    return [
        raised(lambda: _task(seqio, metric_fns=[metric]).metric_fns),
        raised(seqio.metrics.LegacyMetric.empty, metric, None),
        raised(seqio.metrics.PassthroughLegacyMetric.from_metric_fn, metric),
    ]


def replace_with_an_unknown_key(seqio):
    return raised(_task(seqio).replace, sauce=None)["raises"]


def a_feature_is_missing(seqio):
    task = _task(seqio, features=_features(seqio, "inputs", "targets", "weights"))
    return raised(task.get_dataset, shuffle=False)


def a_feature_has_another_dtype_or_rank(seqio):
    return [
        raised(_task(seqio, "a", features=_features(seqio, dtype=tf.int64)).get_dataset, shuffle=False),
        raised(_task(seqio, "b", features=_features(seqio, rank=2)).get_dataset, shuffle=False),
        raised(_task(seqio, "c", preprocessors=[]).get_dataset, shuffle=False),
    ]


def caches_that_are_not_there(seqio):
    task = _task(seqio, preprocessors=[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(required=True)])
    return [
        raised(task.assert_cached),
        raised(task.get_dataset, use_cached=True),
        raised(task.get_cached_stats),
        raised(task.get_dataset, use_cached=False),
        task.cache_dir,
    ]


def shuffling_is_disallowed(seqio):
    return raised(_task(seqio, shuffle_buffer_size=None).get_dataset, shuffle=True)


def functions_with_other_arguments(seqio):
    return [
        raised(seqio.FunctionDataSource, lambda part: None, splits=["train"]),
        raised(seqio.FunctionDataSource, lambda split, shuffle_files, other: None, splits=["train"]),
    ]


def sharding_a_function(seqio):
    return raised(_source(seqio).get_dataset, "train", shard_info=seqio.ShardInfo(0, 2))


def files_that_are_not_there(seqio, root):
    source = seqio.TextLineDataSource({"train": f"{root}/none*.txt"})
    return raised(source.get_dataset, "train", shuffle=False)


def more_hosts_than_files(seqio, root):
    with open(f"{root}/one.txt", "w") as file:
        file.write("a\nb\n")
    source = seqio.TextLineDataSource({"train": f"{root}/one.txt"})
    return raised(source.get_dataset, "train", shuffle=False, shard_info=seqio.ShardInfo(0, 2))


def tfds_names(seqio):
    return [
        raised(seqio.TfdsDataSource, "mnist"),
        raised(seqio.utils.TfdsSplit, dataset="mnist", split="train"),
        raised(
            seqio.TfdsDataSource,
            "mnist:3.0.1",
            splits={"train": seqio.utils.TfdsSplit(dataset="mnist:3.0.1", split="train")},
        ),
        raised(
            seqio.TfdsDataSource(
                splits={"train": seqio.utils.TfdsSplit(dataset="mnist:3.0.1", split="train")}
            ).tfds_dataset.get_split_params,
            "test",
        ),
    ]


def mixtures_without_rates_or_tasks(seqio):
    _task(seqio)
    return [raised(seqio.Mixture, "m", ["t"]), raised(seqio.Mixture, "m", [])]


def mixtures_of_tasks_that_do_not_fit(seqio):
    _task(seqio, "a")
    _task(seqio, "b", features=_features(seqio, "inputs"))
    _task(seqio, "c", features=_features(seqio, dtype=tf.int64))
    return [
        raised(seqio.Mixture, "m", [("a", 1), ("b", 1)]),
        raised(lambda: seqio.Mixture("m", [("a", 1), ("c", 1)]).get_dataset(shuffle=False))["raises"],
        raised(lambda: seqio.Mixture("m", [("a", 1)]).get_dataset(split="dev", shuffle=False)),
    ]


def rates_of_mixtures_that_are_functions(seqio):
    _task(seqio)
    inner = seqio.Mixture("inner", [("t", 1)])
    outer = seqio.Mixture("outer", [(inner, lambda mixture: 2.0)])
    return [outer.total_rate, raised(lambda: outer.get_rate(seqio.TaskRegistry.get("t")))]


def a_converter_that_is_none(seqio):
    _task(seqio)
    return raised(seqio.get_dataset, "t", {"inputs": 3, "targets": 3}, feature_converter=len)


def lengths_of_converters(seqio):
    dataset = seqio.test_utils.create_default_dataset([{"inputs": [5, 6], "targets": [7]}])
    convert = seqio.EncDecFeatureConverter(pack=False)
    return [
        raised(convert, dataset, {"inputs": 3}),
        raised(convert, dataset, {"inputs": 3, "targets": 3, "more": 3}),
        raised(convert, dataset.map(lambda example: {"inputs": example["inputs"]}), {"inputs": 3, "targets": 3}),
        raised(
            convert,
            dataset.map(lambda example: {**example, "targets": tf.cast(example["targets"], tf.int64)}),
            {"inputs": 3, "targets": 3},
        ),
        raised(
            convert,
            dataset.map(lambda example: {**example, "targets": example["targets"][None]}),
            {"inputs": 3, "targets": 3},
        ),
        raised(lambda: list(convert(dataset, {"inputs": 1, "targets": 3})))["raises"],
    ]


def packing_pre_packed(seqio):
    return raised(seqio.PrePackedEncDecFeatureConverter, pack=True)


def packing_with_passthrough(seqio):
    spec = seqio.FeatureConverter.FeatureSpec(dtype=tf.int32, rank=0)
    return raised(seqio.EncDecFeatureConverter, pack=True, passthrough_features={"id": spec})


def converters_that_lack_methods(seqio):
    class Neither(seqio.FeatureConverter):
        TASK_FEATURES = MODEL_FEATURES = PACKING_FEATURE_DTYPES = {}

    class NoLengths(Neither):
        def _convert_features(self, ds, task_feature_lengths):
            return ds

    class NoPacking(NoLengths):
        PACKING_FEATURE_DTYPES = None

        def get_model_feature_lengths(self, task_feature_lengths):
            return task_feature_lengths

    class NoTask(NoPacking):
        TASK_FEATURES = None

    class NoModel(NoPacking):
        MODEL_FEATURES = None

    return [
        raised(Neither)["raises"],
        raised(NoLengths)["raises"],
        raised(NoPacking),
        raised(NoTask),
        raised(NoModel),
        raised(seqio.FeatureConverter)["raises"],
    ]


def abstract_classes(seqio):
    class Words(seqio.Vocabulary):
        pass

    class Source(seqio.DataSource):
        pass

    class Quiet(seqio.loggers.Logger):
        pass

    return [raised(Words)["raises"], raised(Source, splits=["train"])["raises"], raised(Quiet, "/tmp")["raises"]]


def derived_tasks(seqio):
    _task(seqio)
    change = functools.partial(seqio.helpers.mixture_or_task_with_new_vocab, "t", "new")
    byte = seqio.ByteVocabulary(5)
    return [
        raised(change),
        raised(change, new_vocab=byte, new_output_features={}),
        raised(change, new_output_features={"targets": seqio.Feature(byte)})["raises"],
        raised(change, new_output_features={**_features(seqio), "more": seqio.Feature(byte)})["raises"],
        raised(change, new_output_features=_features(seqio, rank=2))["raises"],
        raised(change, new_output_features=_features(seqio, dtype=tf.int64))["raises"],
        sorted(change(new_output_features=_features(seqio, required=False, add_eos=False)).output_features),
    ]


def fewshot_without_train_split(seqio):
    source = seqio.experimental.FewshotDataSource(_source(seqio, splits=("dev",)), num_shots=1)
    return raised(source.get_dataset, "dev")["raises"]


def fully_cached_with_other_lengths(seqio):
    _task(seqio, preprocessors=[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()])
    task = seqio.experimental.add_fully_cached_task("t", {"inputs": 5, "targets": 5})
    return raised(task.preprocessors[-1], tf.data.Dataset.range(1), {"inputs": 4, "targets": 5})


def evaluators(seqio, root):
    def exact(targets, predictions):
        return {"exact": 1.0}

    def trimmed(dataset, sequence_length):
        return dataset

    _task(seqio, metric_fns=[exact])
    _task(seqio, "trims", metric_fns=[exact], preprocessors=[seqio.preprocessors.tokenize, trimmed])
    converter = seqio.EncDecFeatureConverter(pack=False)
    return [
        raised(seqio.Evaluator, "t", seqio.EncDecFeatureConverter(pack=True), eval_split="train"),
        raised(seqio.Evaluator, "t", converter, eval_split="train", logger_cls=[seqio.PyLoggingLogger]),
        raised(seqio.Evaluator, "trims", converter, eval_split="train"),
        raised(seqio.Evaluator, "none", converter, eval_split="train"),
    ]


def examples_as_protos(seqio):
    example = tf.train.Example(
        features=tf.train.Features(
            feature={
                "a": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2])),
                seqio.tfexample_ragged_length_key("a", 1): tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[1, 1])
                ),
            }
        )
    )
    return [
        raised(seqio.utils.tfexample_to_dict, example),
        raised(seqio.utils.dict_to_tfexample, {"a": tf.constant([1 + 2j])}),
    ]


def packing_what_is_not_there(seqio):
    dataset = seqio.test_utils.create_default_dataset([{"inputs": [5, 6], "targets": [7]}])
    return [
        raised(seqio.trim_and_pack_dataset, dataset, {"more": 3}),
        raised(seqio.utils.make_autoregressive_inputs, tf.constant(["a"]))["raises"],
        raised(seqio.utils.make_autoregressive_inputs, tf.constant([1]), sequence_id=tf.constant([1.0])),
    ]


def rates_of_characters_without_a_cache(seqio):
    return raised(seqio.mixing_rate_num_characters, _task(seqio))


def metrics_without_methods(seqio):
    metric = seqio.metrics.Metric(model_output_type=seqio.metrics.ModelOutputType.SCORE)
    collecting = seqio.metrics.CollectingMetric(values={})
    return [
        raised(metric.compute),
        raised(metric.merge, metric),
        raised(seqio.metrics.Metric.from_model_output, [], np.zeros(0), {}),
        raised(collecting.actual_compute, [], {})["raises"],
    ]


def a_source_promises_no_features(seqio):
    return raised(lambda: _source(seqio).output_features)["raises"]
