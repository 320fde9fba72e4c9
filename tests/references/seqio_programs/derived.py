"""Tasks and mixtures made of others: names, rates, features, the place of the cut, what is read."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from seqio_answers import raised


def _add(seqio, name, rows=4, splits=("train", "validation"), preprocessors=None, **kwargs):
    def dataset_fn(split, shuffle_files, seed=None):
        texts = [f"{name[:1]}{number}" for number in range(rows)]
        return tf.data.Dataset.from_tensor_slices({"inputs": texts, "targets": texts})

    steps = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    return seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            dataset_fn, splits=list(splits), num_input_examples=dict.fromkeys(splits, rows)
        ),
        preprocessors=steps if preprocessors is None else preprocessors,
        output_features={
            "inputs": seqio.Feature(seqio.ByteVocabulary(), add_eos=False),
            "targets": seqio.Feature(seqio.ByteVocabulary()),
        },
        **kwargs,
    )


def _nested(seqio):
    for name, rows in (("few", 10), ("many", 30), ("some", 20)):
        _add(seqio, name, rows)
    seqio.MixtureRegistry.add("inner", [("few", seqio.mixing_rate_num_examples), ("many", 2)])
    return seqio.MixtureRegistry.add("outer", [("inner", 3.0), ("some", seqio.mixing_rate_num_examples)])


def _kept(mixture):
    return {
        name: rate if isinstance(rate, (int, float)) else "function"
        for name, rate in mixture.rate_per_task_name.items()
    }


def _told(seqio, mixture):
    return {
        "entries": _kept(mixture),
        "tasks": [task.name for task in mixture.tasks],
        "rates": {task.name: round(mixture.get_rate(task), 9) for task in mixture.tasks},
        "total": round(mixture.total_rate, 9),
        "registered tasks": sorted(seqio.TaskRegistry.names()),
        "registered mixtures": sorted(seqio.MixtureRegistry.names()),
        "splits": sorted(mixture.splits),
    }


def nested_mixtures_themselves(seqio):
    return _told(seqio, _nested(seqio))


def nested_mixtures_with_another_vocabulary(seqio):
    _nested(seqio)
    new = seqio.helpers.mixture_or_task_with_new_vocab("outer", "new", new_vocab=seqio.ByteVocabulary(10))
    told = _told(seqio, new)
    inner = seqio.MixtureRegistry.get("new.inner")
    return [told, _told(seqio, inner)["rates"], new.output_features["targets"].vocabulary.vocab_size]


def nested_mixtures_that_are_truncated(seqio):
    _nested(seqio)
    new = seqio.helpers.mixture_or_task_with_truncated_data("outer", "cut", split_sizes={"train": 7})
    return [
        _told(seqio, new),
        [task.num_input_examples("train") for task in new.tasks],
        [task.num_input_examples("validation") for task in new.tasks],
        new.num_input_examples("train"),
    ]


def derived_mixtures_that_are_not_registered(seqio):
    _add(seqio, "few")
    _add(seqio, "many")
    seqio.MixtureRegistry.add("mix", [("few", 1), ("many", 3)])
    new = seqio.helpers.mixture_or_task_with_new_vocab(
        "mix", "new", new_vocab=seqio.ByteVocabulary(3), add_to_seqio_registry=False
    )
    return _told(seqio, new)


def mixtures_without_what_lacks_a_split(seqio):
    _add(seqio, "both")
    _add(seqio, "train_only", splits=("train",))
    _add(seqio, "other")
    seqio.MixtureRegistry.add("inner", [("both", 1), ("train_only", 3)])
    seqio.MixtureRegistry.add("trains", [("train_only", 1)])
    seqio.MixtureRegistry.add(
        "all", [("inner", 2.0), ("other", seqio.mixing_rate_num_examples), ("train_only", 5), ("trains", 1)]
    )
    new = seqio.helpers.mixture_with_missing_task_splits_removed("all", "validation", "valid")
    read = new.get_dataset(None, split="validation", shuffle=False, num_epochs=1)
    return [_told(seqio, new), len(list(read.as_numpy_iterator())) > 0]


def where_the_cut_is_put(seqio):
    def trims(dataset, sequence_length):
        return dataset

    def plain(dataset):
        return dataset

    tokenize, eos = seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim
    made = {}
    for name, steps in {
        "in the middle": [plain, tokenize, trims, eos],
        "at the end": [plain, tokenize, seqio.preprocessors.append_eos],
        "at the beginning": [trims, tokenize],
        "there already": [plain, seqio.CacheDatasetPlaceholder(), tokenize],
        "of eos after trim": [tokenize, eos],
        "of none": [],
    }.items():
        task = _add(seqio, name.replace(" ", "_"), preprocessors=steps)
        new = seqio.helpers.mixture_or_task_with_new_vocab(
            task, f"{task.name}_new", new_vocab=seqio.ByteVocabulary(1), add_cache_placeholder=True
        )
        made[name] = [
            place for place, step in enumerate(new.preprocessors) if isinstance(step, seqio.CacheDatasetPlaceholder)
        ]
        made[f"{name}, caching"] = new.supports_caching
    return made


def names_of_fully_cached(seqio):
    cut = [seqio.CacheDatasetPlaceholder(), seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    _add(seqio, "task", preprocessors=cut)
    _add(seqio, "other", preprocessors=cut)
    seqio.MixtureRegistry.add("mix", [("task", 2), ("other", 3)])
    add, mixed = seqio.experimental.add_fully_cached_task, seqio.experimental.add_fully_cached_mixture
    made = [
        add("task", {"inputs": 512, "targets": 114}).name,
        add("task", {"targets": 6}).name,
        add("task", {"targets": 4, "inputs": 3}).name,
        add("task", {"targets": 4, "targets_too": 3}).name,
        add("task", {"targets": 6}) is seqio.TaskRegistry.get("task_6"),
        add("task", {"targets": 9}, disallow_shuffling=True).shuffle_buffer_size,
    ]
    mixture = mixed("mix", {"inputs": 5, "targets": 7})
    task = seqio.TaskRegistry.get("task_6")
    return [made, mixture.name, _kept(mixture), sorted(seqio.MixtureRegistry.names()), task.requires_caching]


def fully_cached_steps(seqio):
    cut = [seqio.CacheDatasetPlaceholder(), seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim]
    _add(seqio, "task", preprocessors=cut)
    task = seqio.experimental.add_fully_cached_task("task", {"inputs": 2, "targets": 2})
    dataset = task.preprocess_precache(task.source.get_dataset("train", shuffle=False))
    return [example["targets"].tolist() for example in dataset.as_numpy_iterator()]


def mixtures_of_tasks_that_are_not_cached_yet(seqio):
    def by_cache(task):
        return float(task.get_cached_stats("train")["examples"])

    _add(seqio, "few", preprocessors=[seqio.CacheDatasetPlaceholder(required=True), seqio.preprocessors.tokenize])
    seqio.MixtureRegistry.add("mix", [("few", by_cache)])
    new = seqio.helpers.mixture_or_task_with_new_vocab("mix", "new", new_vocab=seqio.ByteVocabulary(4))
    cut = seqio.helpers.mixture_or_task_with_truncated_data("mix", "cut", split_sizes={"train": 2})
    cached = seqio.experimental.add_fully_cached_mixture("mix", {"inputs": 5, "targets": 7})
    without = seqio.helpers.mixture_with_missing_task_splits_removed("mix", "validation", "without")
    outer = seqio.MixtureRegistry.add("outer", [("mix", 2), ("few", 1)])
    return [mixture.name for mixture in (new, cut, cached, without, outer)]


def where_it_was_declared(seqio):
    info = seqio.SourceInfo("my/tasks.py", 17)
    task = _add(seqio, "few", source_info=info)
    mixture = seqio.MixtureRegistry.add("mix", [("few", 1)], source_info=info)
    new = seqio.helpers.mixture_or_task_with_new_vocab(task, "new", new_vocab=seqio.ByteVocabulary(4))
    new_mixture = seqio.helpers.mixture_or_task_with_new_vocab("mix", "new_mix", new_vocab=seqio.ByteVocabulary(4))
    return [dataclasses.asdict(one.source_info) for one in (task, mixture, new, new_mixture)] + [
        info.has_meaningful_info(),
        seqio.SourceInfo().has_meaningful_info(),
    ]


def what_a_derived_task_keeps(seqio):
    def exact(targets, predictions):
        return {"exact": 1.0}

    def upper(text, **kwargs):
        return text.upper()

    task = _add(seqio, "few", metric_fns=[exact], postprocess_fn=upper, shuffle_buffer_size=5)
    new = seqio.helpers.mixture_or_task_with_new_vocab(task, "new", new_vocab=seqio.ByteVocabulary(4))
    cut = seqio.helpers.mixture_or_task_with_truncated_data(task, "cut", split_sizes={"train": 2})
    replaced = task.replace(name="replaced", shuffle_buffer_size=7)
    return [
        [
            one.name,
            one.shuffle_buffer_size,
            [fn.__name__ for fn in one.metric_fns],
            one.postprocess_fn("a"),
            sorted(one.output_features),
            one.output_features["inputs"].add_eos,
            one.splits,
            len(list(one.get_dataset(None, split="train", shuffle=False))),
        ]
        for one in (task, new, cut, replaced)
    ]


def features_of_their_own(seqio):
    _add(seqio, "few")
    features = {
        "inputs": seqio.Feature(seqio.ByteVocabulary(7), add_eos=True),
        "targets": seqio.Feature(seqio.ByteVocabulary(8), add_eos=False, required=False),
    }
    new = seqio.helpers.mixture_or_task_with_new_vocab("few", "new", new_output_features=features)
    (first, *_) = new.get_dataset(None, split="train", shuffle=False).as_numpy_iterator()
    fewer = raised(
        seqio.helpers.mixture_or_task_with_new_vocab,
        "few",
        "fewer",
        new_output_features={"targets": features["targets"]},
        validate_features=False,
    )
    return [first["inputs"].tolist(), first["targets"].tolist(), "returns" in fewer]


def tasks_with_sentinels(seqio):
    extra = {
        "inputs": seqio.Feature(seqio.ByteVocabulary(extra_ids=3), add_eos=True),
        "targets": seqio.Feature(seqio.ByteVocabulary(extra_ids=3), add_eos=True),
    }
    tokenize, after_trim = seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim
    told = {}
    for name, steps in {
        "after_trim": [tokenize, after_trim],
        "no_eos": [tokenize],
        "squad_train": [tokenize, after_trim],
        "wmt_dev": [tokenize, after_trim],
        "a.b": [tokenize],
        "plain_test_v1": [tokenize, seqio.preprocessors.append_eos],
    }.items():

        def dataset_fn(split, shuffle_files, seed=None):
            return tf.data.Dataset.from_tensor_slices({"inputs": ["abcdef", ""], "targets": ["ghijkl", "m"]})

        seqio.TaskRegistry.add(
            name,
            source=seqio.FunctionDataSource(dataset_fn, splits=["train"]),
            preprocessors=steps,
            output_features=extra,
        )
        for count in (1, 2):
            before = set(seqio.TaskRegistry.names())
            seqio.experimental.add_task_with_sentinels(name, count)
            (new,) = set(seqio.TaskRegistry.names()) - before
            task = seqio.TaskRegistry.get(new)
            for lengths in (None, {"inputs": 5, "targets": 4}, {"inputs": 20, "targets": 20}):
                told[f"{new} {lengths}"] = [
                    [example["inputs"].tolist(), example["targets"].tolist()]
                    for example in task.get_dataset(lengths, split="train", shuffle=False).as_numpy_iterator()
                ]
            sentinels = task.output_features["targets"].vocabulary.decode([261, 260][:count])
            told[f"{new} postprocessed"] = [
                task.postprocess_fn(text) for text in (f"{sentinels} hi", "hi", f"hi {sentinels}")
            ]
    return told
