"""Sources: data sets of TFDS that are prepared when they are first read, few-shot examples, files, their shares."""

from __future__ import annotations

import functools

import tensorflow as tf
import tensorflow_datasets as tfds
from seqio_answers import raised


class RefLetters(tfds.core.GeneratorBasedBuilder):
    """Sentences of a data set that no test has prepared."""

    VERSION = tfds.core.Version("1.0.0")
    url_infos = {}  # looking for a file of checksums takes a package that not every environment has

    def _info(self):
        features = tfds.features.FeaturesDict({"number": tf.int64, "text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(6), "test": self._generate_examples(2)}

    def _generate_examples(self, count):
        for number in range(count):
            yield number, {"number": number, "text": f"text {number}"}


class RefTranslate(tfds.core.GeneratorBasedBuilder):
    """Pairs of sentences, in a configuration."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="de-en"), tfds.core.BuilderConfig(name="fr-en")]
    url_infos = {}

    def _info(self):
        features = tfds.features.FeaturesDict({"de": tfds.features.Text(), "en": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(), "validation": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"de": "das ist ein test", "en": "this is a test"}


def _numbers(dataset):
    return sorted(int(example["number"]) for example in dataset)


def _rekeyed(seqio, source, name="letters"):
    @seqio.map_over_dataset
    def rekey(example):
        return {"inputs": example["text"], "targets": tf.strings.as_string(example["number"])}

    return seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[rekey, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
        output_features=dict.fromkeys(("inputs", "targets"), seqio.Feature(seqio.ByteVocabulary())),
    )


def a_data_set_is_prepared_when_it_is_read(seqio, root):
    source = seqio.TfdsDataSource("ref_letters:1.0.0", tfds_data_dir=root, splits=["train", "test"])
    task = _rekeyed(seqio, source)
    examples = task.get_dataset({"inputs": 9, "targets": 3}, split="test", shuffle=False).as_numpy_iterator()
    texts = sorted(bytes(example["inputs_pretokenized"]).decode() for example in examples)
    loader = source.tfds_dataset
    return [
        texts,
        sorted(source.splits),
        source.num_input_examples("train"),
        source.num_input_examples("test"),
        len(source.list_shards("train")),
        loader.name,
        loader.is_memoized(),
        loader.resolved_tfds_name(),
        loader.builder_cls().__name__,
        sorted(loader.info.splits),
        [type(one).__name__ for one in loader.files("test")],
    ]


def the_first_example_of_the_document(seqio, root):
    def translate(dataset, source_language, target_language):
        def one(example):
            prefix = f"translate {source_language} to {target_language}: "
            return {
                "inputs": tf.strings.join([prefix, example[source_language]]),
                "targets": example[target_language],
            }

        return dataset.map(one, num_parallel_calls=tf.data.experimental.AUTOTUNE)

    words = seqio.test_utils.sentencepiece_vocab()
    seqio.TaskRegistry.add(
        "ref_ende",
        seqio.TfdsDataSource(tfds_name="ref_translate/de-en:1.0.0", tfds_data_dir=root),
        preprocessors=[
            functools.partial(translate, source_language="de", target_language="en"),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos,
        ],
        output_features={
            "inputs": seqio.Feature(words, add_eos=False, dtype=tf.int32),
            "targets": seqio.Feature(words, add_eos=True, dtype=tf.int32),
        },
        metric_fns=[],
    )
    dataset = seqio.get_mixture_or_task("ref_ende").get_dataset(
        sequence_length={"inputs": 32, "targets": 32}, split="train", shuffle=False, try_in_mem_cache=False
    )
    (example,) = dataset.as_numpy_iterator()
    return {
        name: value.decode() if isinstance(value, bytes) else value.tolist() for name, value in sorted(example.items())
    }


def parts_of_splits(seqio, root):
    RefLetters(data_dir=root).download_and_prepare()
    splits = {"train": "train[:50%]", "validation": "train[50%:]"}
    source = seqio.TfdsDataSource("ref_letters:1.0.0", tfds_data_dir=root, splits=splits)
    own = seqio.TfdsDataSource(
        splits={"dev": seqio.utils.TfdsSplit(dataset="ref_letters:1.0.0", split="test", data_dir=root)}
    )
    from_directory = seqio.TfdsDataSource(tfds_data_dir=f"{root}/ref_letters/1.0.0", splits=["train"], read_only=True)
    return [
        source.num_input_examples("train"),
        sorted(_numbers(source.get_dataset("train")) + _numbers(source.get_dataset("validation"))),
        _numbers(own.get_dataset("dev")),
        own.tfds_dataset.data_dir,
        list(own.tfds_dataset.tfds_splits),
        _numbers(from_directory.get_dataset("train")),
    ]


def the_directory_is_overridden(seqio, root):
    RefLetters(data_dir=f"{root}/a").download_and_prepare()
    seqio.utils.set_tfds_data_dir_override(f"{root}/a")
    try:
        loader = seqio.utils.LazyTfdsLoader("ref_letters:1.0.0", data_dir=f"{root}/b")
        own = seqio.utils.LazyTfdsLoader(
            split_map={"dev": seqio.utils.TfdsSplit("ref_letters:1.0.0", "test", f"{root}/a")}
        )
        told = [loader.data_dir, _numbers(loader.load("test", shuffle_files=False)), own.get_split_params("dev")[1]]
        other = seqio.utils.LazyTfdsLoader("ref_letters:1.0.0", data_dir=f"{root}/b")
        other.override_data_dir(f"{root}/c")
        return [*told, other.data_dir]
    finally:
        seqio.utils.set_tfds_data_dir_override(None)


def read_configs(seqio, root):
    loader = seqio.utils.LazyTfdsLoader("ref_letters:1.0.0", data_dir=root)
    first = type(loader.read_config).__name__
    config = tfds.ReadConfig(interleave_cycle_length=3)
    seqio.utils.set_tfds_read_config_override(config)
    try:
        return [first, loader.read_config.interleave_cycle_length]
    finally:
        seqio.utils.set_tfds_read_config_override(None)


def _function(seqio, batched=False, num=6):
    def dataset_fn(split, shuffle_files, seed=None):
        texts = [f"{split} {number}" for number in range(num if split == "train" else 4)]
        dataset = tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": [text.upper() for text in texts]})
        return dataset.batch(2) if batched else dataset

    return seqio.FunctionDataSource(dataset_fn, splits=["train", "validation"])


def _shots(source, split, **kwargs):
    told = []
    for example in source.get_dataset(split, shuffle=False, **kwargs).as_numpy_iterator():
        train = example.get("train")
        told.append(
            [
                None if train is None else [list(train["inputs"].shape), sorted(train)],
                text.decode() if isinstance(text := example["eval"]["inputs"], bytes) else len(text),
            ]
        )
    return told


def few_shots_of_functions(seqio):
    Few = seqio.experimental.FewshotDataSource
    source = _function(seqio)
    told = [_shots(Few(source, num_shots=shots), "validation") for shots in (0, 1, 3)]
    hosts = [_shots(Few(source, num_shots=1), "validation", shard_info=seqio.ShardInfo(i, 2)) for i in range(2)]
    return [told, hosts, Few(source, num_shots=1).list_shards("validation"), list(Few(source, num_shots=1).splits)]


def few_shots_of_batches(seqio):
    Few = seqio.experimental.FewshotDataSource
    unbatched = Few(
        _function(seqio),
        num_shots=2,
        eval_preprocessors=[lambda dataset: dataset.batch(2)],
    )
    dataset = seqio.experimental.fewshot_preprocessor(
        Few(_function(seqio), num_shots=0, eval_preprocessors=[lambda dataset: dataset.batch(2)]).get_dataset(
            "validation", shuffle=False
        ),
        inputs_prefix="Q ",
        targets_prefix=" A ",
    )
    texts = [[example["inputs"].decode(), example["targets"].decode()] for example in dataset.as_numpy_iterator()]
    return [_shots(unbatched, "validation"), texts]


def few_shot_texts(seqio):
    def example(number):
        return {"inputs": f"in{number}", "targets": f"out{number}", "more": number}

    def dataset(shots):
        one = {"eval": {name: tf.constant(value) for name, value in example(9).items()}}
        if shots:
            train = [example(number) for number in range(shots)]
            one["train"] = {name: tf.constant([each[name] for each in train]) for name in ("inputs", "targets")}
        return tf.data.Dataset.from_tensors(one)

    told = {}
    for kwargs in (
        {},
        {"inputs_prefix": "0 ", "targets_prefix": " X 1 ", "example_separator": " X "},
        {"prompt": "Answer this:", "inputs_prefix": " in ", "targets_prefix": " out "},
        {"prompt": "P", "reverse": True, "example_separator": "\n"},
        {"prompt": " P ", "inputs_prefix": "  ", "targets_prefix": "  "},
    ):
        for shots in (0, 1, 2):
            made = seqio.experimental.fewshot_preprocessor(dataset(shots), **kwargs)
            (text,) = made.as_numpy_iterator()
            told[f"{shots} {sorted(kwargs.items())}"] = [
                text["inputs"].decode(),
                text["targets"].decode(),
                int(text["more"]),
            ]
    return told


def what_sources_say_of_themselves(seqio, root):
    with open(f"{root}/a.txt", "w") as file:
        file.write("x\ty\n1\t2\n")
    source = seqio.TextLineDataSource({"train": f"{root}/a.txt"}, skip_header_lines=1, num_input_examples={"train": 1})
    function = _function(seqio)
    return [
        [line.decode() for line in source.get_dataset("train", shuffle=False).as_numpy_iterator()],
        list(source.splits),
        source.num_input_examples("train"),
        source.caching_permitted,
        source.supports_arbitrary_sharding,
        source.performs_internal_shuffling,
        [path.rpartition("/")[2] for path in source.list_shards("train")],
        function.num_input_examples("train"),
        function.list_shards("train"),
        function.supports_arbitrary_sharding,
        str(seqio.ShardInfo(1, 3)),
    ]


def records_of_protos(seqio, root):
    with tf.io.TFRecordWriter(f"{root}/a.tfrecord") as writer:
        for number in range(3):
            feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    description = {"n": tf.io.FixedLenFeature([], tf.int64)}
    examples = seqio.TFExampleDataSource({"train": f"{root}/a.tfrecord"}, feature_description=description)
    protos = seqio.ProtoDataSource(
        {"train": f"{root}/a.tfrecord"},
        decode_proto_fn=lambda record: tf.io.parse_single_example(record, description),
    )
    return [
        [int(example["n"]) for example in source.get_dataset("train", shuffle=False)] for source in (examples, protos)
    ]


def where_tasks_are_registered(seqio):
    tracking = seqio.task_registry_provenance_tracking
    told = [tracking.registration_provenance_tracking_is_on(), tracking.view_provenances()]
    tracking.turn_on_tracking()
    _rekeyed(seqio, _function(seqio), "tracked")
    seqio.MixtureRegistry.add("mix", [("tracked", 1)])
    seen = tracking.view_provenances()
    kinds = {name: kind for name, (kind, _) in seen.items()}
    here = {name: calls[0].rpartition("/")[2].split(":")[0] for name, (_, calls) in seen.items()}
    return [*told, tracking.registration_provenance_tracking_is_on(), kinds, here, raised(len, seen)]
