"""What projects like T5, FLAN and T5X do with the library: declare, mix, train, evaluate, log."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from seqio_answers import raised

try:
    import flax

    record = flax.struct.dataclass
except ImportError:
    record = dataclasses.dataclass(frozen=True)


def _source(seqio, rows, splits=("train", "validation")):
    def dataset_fn(split, shuffle_files, seed=None):
        return tf.data.Dataset.from_tensor_slices(rows)

    return seqio.FunctionDataSource(dataset_fn, splits=list(splits), num_input_examples=dict.fromkeys(splits, 3))


def translation_as_in_t5(seqio):
    vocabulary = seqio.SentencePieceVocabulary(
        os.path.join(seqio.test_utils.TEST_DATA_DIR, "sentencepiece", "sentencepiece.model"), extra_ids=4
    )
    features = {
        "inputs": seqio.Feature(vocabulary=vocabulary, add_eos=True, required=False),
        "targets": seqio.Feature(vocabulary=vocabulary, add_eos=True),
    }

    @seqio.map_over_dataset
    def translate(example):
        prefix = tf.strings.join(["test: ", example["de"]])
        return {"inputs": prefix, "targets": example["en"]}

    seqio.TaskRegistry.add(
        "wmt_de_en",
        source=_source(seqio, {"de": ["ist dies ein test", "was"], "en": ["is this a test", "was"]}),
        preprocessors=[
            translate,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        postprocess_fn=None,
        metric_fns=[],
        output_features=features,
    )
    dataset = seqio.get_mixture_or_task("wmt_de_en").get_dataset({"inputs": 12, "targets": 7}, shuffle=False)
    told = [
        {name: value.decode() if isinstance(value, bytes) else value.tolist() for name, value in sorted(each.items())}
        for each in dataset.as_numpy_iterator()
    ]
    return [told, vocabulary.vocab_size, vocabulary.decode([28, 27, 26, 25]), vocabulary.encode("<extra_id_0> test")]


def spans_with_partials(seqio):
    def take(dataset, sequence_length, output_features, key="targets", count=2):
        limit = (sequence_length or {}).get(key, 99)
        ids = output_features[key].vocabulary.unk_id
        return dataset.map(lambda example: {**example, key: tf.concat([example[key][:count], [ids, limit]], 0)})

    seqio.TaskRegistry.add(
        "spans",
        source=_source(seqio, {"text": ["abcdef", "gh"]}),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"inputs": None, "targets": "text"}),
            seqio.preprocessors.tokenize,
            functools.partial(take, count=3),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"targets": seqio.Feature(seqio.ByteVocabulary())},
    )
    return [
        [
            each["targets"].tolist()
            for each in seqio.TaskRegistry.get_dataset("spans", lengths, "train", shuffle=False).as_numpy_iterator()
        ]
        for lengths in ({"targets": 5}, {"targets": 20})
    ]


def mixtures_as_in_flan(seqio):
    for number in range(3):
        seqio.TaskRegistry.add(
            f"flan_{number}",
            source=_source(seqio, {"inputs": ["a"] * (number + 1), "targets": ["b"] * (number + 1)}),
            preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
            output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary())),
        )
    rate = functools.partial(seqio.mixing_rate_num_examples, maximum=2, scale=2.0)
    seqio.MixtureRegistry.add("plain", ["flan_0", ("flan_1", 2)], default_rate=1)
    seqio.MixtureRegistry.add("by_size", ["flan_0", "flan_1", "flan_2"], default_rate=rate)
    seqio.MixtureRegistry.add("nested", [("plain", 3), ("by_size", 1), ("flan_2", 0.5)])
    told = {}
    for name in seqio.MixtureRegistry.names():
        mixture = seqio.get_mixture_or_task(name)
        told[name] = [
            [task.name for task in seqio.get_subtasks(mixture)],
            {task.name: round(mixture.get_rate(task), 9) for task in mixture.tasks},
            mixture.total_rate,
            sorted(mixture.output_features),
            mixture.num_input_examples("train"),
            sorted(mixture.splits),
        ]
    return told


def training_as_in_t5x(seqio):
    seqio.TaskRegistry.add(
        "train",
        source=_source(seqio, {"inputs": ["abc", "de", "f"], "targets": ["gh", "i", "jkl"]}),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary())),
    )
    told = {}
    for pack in (True, False):
        dataset = seqio.get_dataset(
            "train",
            {"inputs": 9, "targets": 8},
            dataset_split="train",
            shuffle=False,
            num_epochs=1,
            feature_converter=seqio.EncDecFeatureConverter(pack=pack),
            shard_info=seqio.ShardInfo(index=0, num_shards=1),
            use_cached=False,
            seed=0,
            batch_size=1,
        )
        told[f"pack={pack}"] = [
            {name: value.tolist() for name, value in sorted(batch.items())} for batch in dataset.as_numpy_iterator()
        ]
        told[f"shapes {pack}"] = {name: spec.shape.as_list() for name, spec in sorted(dataset.element_spec.items())}
    return told


def vocabularies_of_their_own(seqio):
    class Letters(seqio.Vocabulary):
        def __init__(self, extra_ids=0):
            super().__init__(extra_ids=extra_ids)

        @property
        def bos_id(self) -> int | None:
            return None

        @property
        def eos_id(self) -> int | None:
            return 1

        @property
        def unk_id(self) -> int | None:
            return 2

        @property
        def _base_vocab_size(self):
            return 29

        def _encode(self, s):
            return [ord(letter) - 94 for letter in s]

        def _decode(self, ids):
            return "".join(chr(i + 94) for i in ids if i > 2)

        def _encode_tf(self, s):
            return tf.cast(tf.io.decode_raw(s, tf.uint8), tf.int32) - 94

        def _decode_tf(self, ids):
            return tf.strings.reduce_join(tf.strings.unicode_encode(ids[..., tf.newaxis] + 94, "UTF-8"), axis=-1)

        def __eq__(self, other):
            return type(other) is type(self)

    letters = Letters(extra_ids=2)
    return [
        letters.vocab_size,
        letters.encode("abc"),
        letters.decode([3, 4, 1, 5]),
        letters.decode([3, 99]),
        letters.encode_tf(tf.constant("abc")).numpy().tolist(),
        letters.pad_id,
        letters.extra_ids,
        letters == Letters(),
    ]


def vocabularies_there_are(seqio):
    told = {}
    partial = seqio.PartialCodepointVocabulary([97, 98, 99], extra_ids=2)
    full = seqio.FullCodepointVocabulary()
    words = seqio.test_utils.sentencepiece_vocab(extra_ids=2)
    for name, vocabulary in {"partial": partial, "full": full, "words": words, "bytes": seqio.ByteVocabulary()}.items():
        ids = vocabulary.encode("abcz a")
        told[name] = [
            [int(i) for i in ids],
            vocabulary.decode(ids),
            vocabulary.vocab_size,
            vocabulary.encode_tf(tf.constant("abcz a")).numpy().tolist(),
            vocabulary.decode_tf(tf.constant(ids)).numpy().decode(),
            [vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id],
        ]
    told["decode_tf of partial"] = [
        partial.decode_tf(tf.constant(ids)).numpy().decode("utf-8", "replace")
        for ids in ([3, 4], [3, 4, 5], [3, 2, 4], [3, 77, 4])
    ]
    told["table"] = partial.convert_dict_to_tf({1: 5, 2: 6}, default_value=9)[tf.constant([2, 3])].numpy().tolist()
    tokenizer = words.tf_tokenizer
    told["tf_tokenizer"] = [
        tokenizer.tokenize("this is a test").numpy().tolist(),
        tokenizer.tokenize(["this", "is"]).to_list(),
        tokenizer.detokenize(tf.constant([11, 8, 6], tf.int32)).numpy().decode(),
        int(tokenizer.vocab_size()),
        tokenizer.id_to_string(tf.constant(4)).numpy().decode(),
        int(tokenizer.string_to_id(tf.constant("a"))),
    ]
    return told


def _evaluated(seqio, name="eval", **kwargs):
    return seqio.TaskRegistry.add(
        name,
        source=_source(seqio, {"inputs": ["a", "b", "c"], "targets": ["x", "y", "z"]}),
        preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary())),
        **kwargs,
    )


def an_evaluation(seqio, root):
    seen = {}

    def exact(targets, predictions):
        hits = [target == prediction for target, prediction in zip(targets, predictions, strict=True)]
        return {"exact": np.float32(np.mean(hits)), "count": len(hits), "text": seqio.metrics.Text("fine")}

    def likelihood(targets, scores):
        return {"likelihood": seqio.metrics.Scalar(np.mean(scores))}

    class Kept(seqio.loggers.Logger):
        def __call__(self, task_name, step, metrics, dataset, inferences, targets):
            seen.update(
                task=task_name,
                step=step,
                metrics={name: type(value).__name__ for name, value in sorted(metrics.items())},
                values={n: type(v.value).__name__ for n, v in sorted(metrics.items()) if hasattr(v, "value")},
                inferences=sorted(inferences),
                targets=list(targets),
            )

    _evaluated(seqio, metric_fns=[exact, likelihood], postprocess_fn=lambda text, **kwargs: text.upper())
    evaluator = seqio.Evaluator(
        "eval",
        feature_converter=seqio.EncDecFeatureConverter(pack=False),
        eval_split="validation",
        logger_cls=[Kept, seqio.JSONLogger],
        log_dir=root,
    )
    byte = seqio.ByteVocabulary()

    def predict(dataset):
        rows = [(int(index), [*byte.encode("xyq"[int(index)]), 1]) for index, _ in dataset.as_numpy_iterator()]
        return rows[::-1]

    def score(dataset):
        return [(int(index), -float(index)) for index, _ in dataset.as_numpy_iterator()]

    future, outputs = evaluator.evaluate(compute_metrics=True, step=7, predict_fn=predict, score_fn=score)
    values = {
        name: value.textdata if hasattr(value, "textdata") else round(float(getattr(value, "value", value)), 6)
        for name, value in sorted(future.result()["eval"].items())
    }
    return [
        values,
        seen,
        sorted(os.listdir(root)),
        json.loads(open(f"{root}/eval-metrics.jsonl").read()),
        {name: [list(value), None][0] for name, value in evaluator.model_feature_shapes.items()},
        [task.name for task in evaluator.eval_tasks],
    ]


def metrics_that_are_objects(seqio):
    metrics = seqio.metrics

    @record
    class Average(metrics.Metric):
        model_output_type: Any = metrics.ModelOutputType.SCORE
        total: Any = 0.0
        count: Any = 0

        @classmethod
        def from_model_output(cls, values, mask=None, **_):
            values = np.asarray(values)
            mask = np.ones(len(values)) if mask is None else np.asarray(mask)
            return cls(total=(values * mask).sum(), count=mask.sum())

        def merge(self, other):
            return self.replace(total=self.total + other.total, count=self.count + other.count)

        def compute(self):
            return self.total / self.count

    one, two = Average.from_model_output(np.array([1.0, 2.0])), Average.from_model_output(np.array([6.0]))
    from_output = Average.from_output("loss")
    from_fun = Average.from_fun(lambda loss, **_: loss * 2)
    renamed = Average.from_fun(lambda loss, weights, **_: {"values": loss, "mask": weights})
    loss, weights = np.array([1.0, 3.0]), np.array([1.0, 0.0])
    collecting = metrics.CollectingMetric.from_outputs(["labels", "logits"])
    parts = [collecting.from_model_output(labels=np.array([i]), logits=np.array([[i, i]])) for i in range(2)]
    together = collecting.empty().merge(parts[0]).merge(parts[1]).compute()
    return [
        float(one.merge(two).compute()),
        float(one.compute_value().value),
        float(from_output.from_model_output(loss=loss).compute()),
        float(from_output.from_model_output(loss=loss, mask=weights).compute()),
        float(from_output.from_model_output(loss=loss, mask=np.ones(3)).compute()),
        float(from_fun.from_model_output(loss=loss).compute()),
        float(renamed.from_model_output(loss=loss, weights=weights).compute()),
        {name: np.asarray(value).tolist() for name, value in sorted(together.items())},
    ]


def metrics_of_functions(seqio):
    metrics = seqio.metrics

    def exact(targets, predictions):
        return {"exact": float(np.mean([t == p for t, p in zip(targets, predictions, strict=True)]))}

    features = dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary()))
    byte = seqio.ByteVocabulary()
    inputs = [{"targets": np.array([*byte.encode(text), 1])} for text in "xyz"]
    outputs = np.array([[*byte.encode(text), 1] for text in "xyq"])
    legacy = metrics.LegacyMetric.empty(exact, None).from_model_output(inputs, outputs, features)
    made = metrics.PassthroughLegacyMetric.from_metric_fn(exact, lambda text, **kwargs: text + "!")
    two = made.from_model_output(inputs, outputs, features)
    values, recorded = two.actual_compute(inputs, features)
    return [
        {name: round(value, 6) for name, value in legacy.compute().items()},
        legacy.targets_and_inferences["prediction"],
        {name: round(value, 6) for name, value in values.items()},
        recorded["prediction"],
        recorded["targets"],
        int(made.model_output_type),
        metrics.ModelOutputType.to_str(metrics.ModelOutputType.SCORE),
    ]


def logged_values(seqio):
    @dataclasses.dataclass
    class Answer:
        text: str
        score: float | None = None

    encoder = seqio.loggers.TensorAndNumpyEncoder
    return [
        json.loads(json.dumps({"a": np.arange(3), "b": np.float32(0.5), "c": b"hi", "d": Answer("x")}, cls=encoder)),
        json.loads(json.dumps({"a": tf.constant([1, 2])}, cls=encoder)),
        seqio.skip_none_value_dict_factory([("a", 1), ("b", None)]),
        raised(json.dumps, {"a": object()}, cls=encoder)["raises"],
    ]


def annotations(seqio):
    """Names that modules of projects use where they are imported."""

    def metric(fn: seqio.dataset_providers.MetricFnCallable, rate: seqio.MixtureRate | None = None) -> None:
        """A function of a project."""

    types = [
        seqio.preprocessors.OutputFeaturesType,
        seqio.preprocessors.SequenceLengthType,
        seqio.utils.NestedTFDict,
        seqio.utils.TFDict,
        seqio.evaluation.PredictFnReturnType,
        seqio.evaluation.AllMetricsType,
        seqio.metrics.MetricFnCallable,
        seqio.SampleFn,
        seqio.DecodeFnType,
    ]
    optional = [Optional[one] for one in types]  # noqa: UP045
    return [len(types), len(optional), sorted(metric.__annotations__)]
