"""Tasks made of tasks: fully cached, few-shot, with sentinels, with other vocabularies and less data; helpers for
tests."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import beam_pipes.seqio as seqio
from beam_pipes.errors import TaskError

BYTES = seqio.ByteVocabulary(extra_ids=3)


@pytest.fixture(autouse=True)
def base_task() -> Iterator[None]:
    seqio.TaskRegistry.reset()
    seqio.MixtureRegistry.reset()
    seqio.TaskRegistry.add(
        "base",
        source(),
        preprocessors=[
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={"inputs": seqio.Feature(BYTES, add_eos=False), "targets": seqio.Feature(BYTES)},
        postprocess_fn=lambda output, **kwargs: ("postprocessed", output),
        metric_fns=[accuracy],
    )
    yield
    seqio.TaskRegistry.reset()
    seqio.MixtureRegistry.reset()


def source():
    def rows(split, shuffle_files, seed=None):
        count = {"train": 5, "validation": 3}[split]
        return tf.data.Dataset.from_tensor_slices(
            {
                "inputs": [f"{split} in {i}" for i in range(count)],
                "targets": [f"{split} out {i}" for i in range(count)],
            }
        )

    return seqio.FunctionDataSource(rows, ["train", "validation"], {"train": 5, "validation": 3})


def accuracy(targets, predictions):
    return {"accuracy": float(np.mean([t == p for t, p in zip(targets, predictions, strict=True)]))}


def test_a_fully_cached_task_has_its_lengths_in_its_name_and_all_steps_before_the_cut() -> None:
    task = seqio.experimental.add_fully_cached_task("base", {"inputs": 8, "targets": 6})

    assert task.name == "base_i8_t6"
    assert seqio.experimental.add_fully_cached_task("base", {"inputs": 8, "targets": 6}) is task
    (example,) = task.run_offline(iter([{"inputs": "abcdefghijk", "targets": "abcdefgh"}]), seed=0)
    assert (len(example["inputs"]), example["targets"].tolist()) == (8, [100, 101, 102, 103, 104, 1])
    with pytest.raises(TaskError, match="requires caching"):
        task.get_dataset({"inputs": 8, "targets": 6}, shuffle=False)
    with pytest.raises(TaskError, match=r"can only be loaded with `sequence_length=\{'inputs': 8, 'targets': 6\}` or"):
        task.preprocess_postcache(tf.data.Dataset.range(1), {"inputs": 7, "targets": 6})
    assert seqio.experimental.add_fully_cached_task("base", {"inputs": 9}, True).shuffle_buffer_size is None


def test_a_fully_cached_mixture_keeps_the_rates() -> None:
    seqio.TaskRegistry.add_provider("other", seqio.TaskRegistry.get("base").replace(name="other"))
    seqio.MixtureRegistry.add("mix", [("base", 1), ("other", 3)])

    mixture = seqio.experimental.add_fully_cached_mixture("mix", {"inputs": 8, "targets": 6})

    assert mixture.name == "mix_i8_t6"
    assert {t.name: mixture.get_rate(t) for t in mixture.tasks} == {"base_i8_t6": 1, "other_i8_t6": 3}


def test_few_shot_examples_come_with_exemplars() -> None:
    few_shot = seqio.experimental.FewshotDataSource(source(), num_shots=2)
    write = seqio.experimental.fewshot_preprocessor

    examples = list(few_shot.get_dataset("validation", shuffle=False).as_numpy_iterator())
    texts = list(
        write(
            few_shot.get_dataset("validation", shuffle=False),
            inputs_prefix="Q ",
            targets_prefix=" A ",
            example_separator=" | ",
            prompt="Answer:",
        ).as_numpy_iterator()
    )

    assert len(examples) == 3
    shots = examples[0]["train"]
    assert len(set(shots["inputs"].tolist())) == 2
    (one, two), (answer_one, answer_two) = shots["inputs"].tolist(), shots["targets"].tolist()
    assert texts[0]["inputs"] == (
        b"Answer: | Q " + one + b" A " + answer_one + b" | Q " + two + b" A " + answer_two + b" | Q validation in 0 A"
    )
    assert texts[0]["targets"] == b"validation out 0"


def test_few_shot_exemplars_may_be_fixed_or_none() -> None:
    fixed = seqio.experimental.FewshotDataSource(source(), num_shots=2, eval_on_fixed_exemplars=True)
    none = seqio.experimental.FewshotDataSource(source(), num_shots=0)
    wrong = seqio.experimental.FewshotDataSource(source(), num_shots=1, train_split="learn")

    shots = [e["train"]["inputs"].tolist() for e in fixed.get_dataset("validation", shuffle=False).as_numpy_iterator()]
    assert shots[0] == shots[1] == shots[2]
    assert [set(e) for e in none.get_dataset("validation").as_numpy_iterator()] == [{"eval"}] * 3
    with pytest.raises(TaskError, match="Train split 'learn' is not one of the original source splits"):
        wrong.get_dataset("validation")


def test_sentinels_end_inputs_and_begin_targets() -> None:
    task = seqio.experimental.add_task_with_sentinels("base", num_sentinels=2)

    (example, *_) = task.get_dataset({"inputs": 6, "targets": 6}, shuffle=False).as_numpy_iterator()

    assert task.name == "base_2_sentinel"
    # Inputs ask for no EOS, so nothing is kept where they are cut; targets keep the last two tokens.
    assert example["inputs"].tolist() == BYTES.encode("train ")
    assert example["targets"].tolist() == [261, 260, *BYTES.encode("t 0"), 1]
    assert task.postprocess_fn(" text ") == ("postprocessed", "text")


def test_a_task_or_mixture_with_a_new_vocabulary() -> None:
    seqio.MixtureRegistry.add("mix", [("base", 2)])
    vocabulary = seqio.PassThroughVocabulary(5)
    change = seqio.helpers.mixture_or_task_with_new_vocab

    task = change("base", "new", new_vocab=vocabulary, add_cache_placeholder=True)
    mixture = change("mix", "new_mix", new_vocab=vocabulary)

    assert task.output_features["targets"] == seqio.Feature(vocabulary)
    assert not task.output_features["inputs"].add_eos
    assert [inner.name for inner in mixture.tasks] == ["new_mix.base"]
    assert "new_mix.base" in seqio.TaskRegistry.names()
    with pytest.raises(TaskError, match="exactly one of `new_vocab` and `new_output_features` must be specified"):
        change("base", "x")
    with pytest.raises(TaskError, match=r"doesn't match original output_features: .*new: \['x'\]"):
        change("base", "x", new_output_features={"x": seqio.Feature(BYTES)})
    with pytest.raises(TaskError, match="incompatible with original output_features: .*dtype or rank of 'inputs'"):
        change("base", "x", new_output_features={**dict.fromkeys(("inputs", "targets"), seqio.Feature(BYTES, rank=2))})
    with pytest.raises(TaskError, match=r"doesn't match original output_features: .*missing: \['targets'\]"):
        change("base", "x", new_output_features={"inputs": seqio.Feature(BYTES)})


def test_a_task_or_mixture_with_less_data() -> None:
    seqio.MixtureRegistry.add("mix", [("base", 2)])
    truncate = seqio.helpers.mixture_or_task_with_truncated_data

    task = truncate("base", "short", split_sizes={"train": 2})
    mixture = truncate("mix", "short_mix", split_sizes={"train": 2})

    assert len(list(task.get_dataset(split="train"))) == 2
    assert len(list(task.get_dataset(split="validation"))) == 3
    assert (task.num_input_examples("train"), task.num_input_examples("validation")) == (2, 3)
    assert [inner.name for inner in mixture.tasks] == ["short_mix.base"]


def test_a_mixture_without_the_tasks_that_lack_a_split() -> None:
    lacking = seqio.FunctionDataSource(lambda split, shuffle_files: [], ["train"])
    seqio.TaskRegistry.add_provider("lacking", seqio.TaskRegistry.get("base").replace(name="lacking", source=lacking))
    seqio.MixtureRegistry.add("mix", [("base", 2), ("lacking", 1)])
    remove = seqio.helpers.mixture_with_missing_task_splits_removed

    assert [task.name for task in remove("mix", "validation", "less").tasks] == ["base"]
    with pytest.raises(TaskError, match="no task of mixture 'mix' has a 'dev' split"):
        remove("mix", "dev", "none")


def test_disabled_registries_refuse_in_a_process_of_their_own() -> None:
    code = """
import beam_pipes.seqio as seqio
seqio.experimental.disable_registry()
seqio.MixtureRegistry.add_provider("m", None)
seqio.TaskRegistry.add("a", None, {})
try:
    seqio.TaskRegistry.get("a")
except ValueError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "Disabled TaskRegistry.get call: a"
    with pytest.raises(TaskError, match=r"The TaskRegistry is non-empty. Please invoke `disable_registry\(\)`"):
        seqio.experimental.disable_registry()


def test_a_task_is_run_from_raw_data_to_metrics() -> None:
    raw = {"inputs": "question", "targets": "yes"}
    converter = seqio.EncDecFeatureConverter(pack=False)

    example, metrics = seqio.test_utils.test_task("base", raw, feature_encoder=converter)
    wrong = seqio.test_utils.test_postprocessing("base", raw, predict_output=["no"])

    assert example["targets"].tolist() == seqio.test_utils.encode_str("base", "yes")
    assert seqio.test_utils.create_prediction("base", "yes") == [(0, [*BYTES.encode("yes"), 1])]
    assert metrics == {"accuracy": 1.0}
    assert wrong == {"accuracy": 0.0}
    with pytest.raises(TaskError, match="test_preprocessing supports a single split in raw_data"):
        seqio.test_utils.test_preprocessing("base", dict.fromkeys(("a", "b"), tf.data.Dataset.range(1)))


def test_injected_data_goes_away_again() -> None:
    task = seqio.TaskRegistry.get("base")
    own = task.source

    with seqio.test_utils.DataInjector("base", {"test": [{"inputs": "a", "targets": "b"}]}):
        assert len(list(task.get_dataset(split="test"))) == 1
    assert task.source is own
    with pytest.raises(TaskError, match="source was changed and not restored within the DataInjector scope"):
        with seqio.test_utils.DataInjector("base", {"test": []}):
            task._source = None


def test_assertions_over_datasets_say_what_differs() -> None:
    dataset = tf.data.Dataset.from_tensors({"a": [1, 2], "s": "x"})
    utils = seqio.test_utils

    utils.assert_dataset(dataset, {"a": [1, 2], "s": "x"}, expected_dtypes={"a": tf.int32})
    utils.assert_datasets_eq(dataset, dataset)
    utils.assert_datasets_neq(dataset, dataset.repeat(2))
    utils.assert_dict_contains({"a": 1}, {"a": 1, "b": 2})
    with pytest.raises(AssertionError, match="expected 2 examples, the dataset has 1"):
        utils.assert_dataset(dataset, [{}, {}])
    with pytest.raises(AssertionError, match="example 0, feature 's': expected b'y', found b'x'"):
        utils.assert_dataset(dataset, {"a": [1, 2], "s": "y"})
    with pytest.raises(AssertionError, match="example 0, feature 'a'"):
        utils.assert_dataset(dataset, {"a": [1, 3], "s": "x"})
    with pytest.raises(AssertionError, match="expected two datasets that differ"):
        utils.assert_datasets_neq(dataset, dataset)
    (text,) = utils.dataset_as_text(dataset)
    assert (text["a"].tolist(), text["s"]) == ([1, 2], "x")


def test_expected_texts_broadcast_as_expected_numbers_do() -> None:
    dataset = tf.data.Dataset.from_tensors({"a": [1], "s": ["x"], "t": [["x", "x"]]})

    seqio.test_utils.assert_dataset(dataset, {"a": 1, "s": "x", "t": "x"})
    with pytest.raises(AssertionError, match=r"feature 's': expected b'y', found \[b'x'\]"):
        seqio.test_utils.assert_dataset(dataset, {"a": 1, "s": "y", "t": "x"})
    with pytest.raises(AssertionError, match="feature 't': expected"):
        seqio.test_utils.assert_dataset(dataset, {"a": 1, "s": "x", "t": ["x", "x", "x"]})


def test_the_mock_vocabulary_knows_its_texts() -> None:
    vocabulary = seqio.test_utils.MockVocabulary({"hi": [5, 6]}, vocab_size=10)

    assert vocabulary.encode("hi") == [5, 6]
    assert vocabulary.decode([5, 6, 1]) == "hi"
    assert vocabulary.encode_tf(tf.constant("hi")).numpy().tolist() == [5, 6]
    assert vocabulary.vocab_size == 10


class TestFakeTasks(seqio.test_utils.FakeMixtureTest):
    """The shipped test case, used as its users do."""

    def test_every_kind_of_source_gives_the_fake_examples(self) -> None:
        for name in ("function_task", "text_line_task", "tf_example_task", "uncached_task"):
            self.verify_task_matches_fake_datasets(name, sequence_length={"inputs": 13, "targets": 5})
            self.verify_task_matches_fake_datasets(name, num_shards=2)

    def test_tokens_may_be_changed_and_features_of_more_axes_added(self) -> None:
        utils = seqio.test_utils
        steps = (
            *self.DEFAULT_PREPROCESSORS[:2],
            utils.token_preprocessor_no_sequence_length,
            seqio.preprocessors.append_eos,
        )
        self.add_task("changed", self.function_source, steps)
        self.verify_task_matches_fake_datasets("changed", token_preprocessed=True, sequence_length=None)
        with pytest.raises(AssertionError):
            self.verify_task_matches_fake_datasets("changed", sequence_length=None)
        ids = seqio.PassThroughVocabulary(10)
        for option, ranks in (
            ("ndfeatures", {"2d_feature": 2, "3d_feature": 3}),
            ("ragged_features", {"ragged_feature": 3}),
        ):
            source = seqio.FunctionDataSource(
                functools.partial(utils.get_fake_dataset, **{option: True}), splits=["train", "validation"]
            )
            more = {name: seqio.Feature(ids, add_eos=False, rank=rank) for name, rank in ranks.items()}
            steps = (*self.DEFAULT_PREPROCESSORS, utils.test_token_preprocessor)
            self.add_task(option, source, steps, {**self.DEFAULT_OUTPUT_FEATURES, **more})
            self.verify_task_matches_fake_datasets(option, False, True, **{option: True})
            with pytest.raises(AssertionError):
                self.verify_task_matches_fake_datasets("function_task", **{option: True})
        with pytest.raises(TaskError, match="At most one of ndfeatures and ragged_features can be True at once"):
            self.verify_task_matches_fake_datasets("changed", ndfeatures=True, ragged_features=True)

    def test_random_tokens_are_those_of_the_example_rolled(self) -> None:
        steps = (*self.DEFAULT_PREPROCESSORS, seqio.test_utils.random_token_preprocessor)
        task = self.add_task("rolled", self.function_source, steps)
        lengths = {"inputs": 30, "targets": 30}

        rolled = list(task.get_dataset(lengths, shuffle=False, seed=1).as_numpy_iterator())
        plain = list(seqio.TaskRegistry.get("function_task").get_dataset(lengths, shuffle=False).as_numpy_iterator())

        assert [sorted(example["inputs"]) for example in rolled] == [sorted(example["inputs"]) for example in plain]
        assert any(a["inputs"].tolist() != b["inputs"].tolist() for a, b in zip(rolled, plain, strict=True))

    def test_mixtures_are_there(self) -> None:
        assert len(list(seqio.get_mixture_or_task("cached_mixture").get_dataset(num_epochs=1))) == 6


def test_a_registry_of_another_kind_makes_what_it_holds() -> None:
    class SourceRegistry(seqio.DatasetProviderRegistry):
        _REGISTRY = {}
        _PROVIDER_TYPE = seqio.DataSource

    arguments = {"dataset_fn": lambda split, shuffle_files: [], "splits": ["train"]}

    source = SourceRegistry.add("numbers", seqio.FunctionDataSource, arguments)

    assert SourceRegistry.get("numbers") is source
    with pytest.raises(TaskError, match="Attempting to register a class of an invalid type. Expecting instance of"):
        SourceRegistry.add("a_task", seqio.Task, {})


def test_a_legacy_metric_postprocesses_by_the_name_that_subclasses_use() -> None:
    class Shortened(seqio.metrics.LegacyMetric):
        def postprocess_fn(self, targets_or_predictions, **kwargs):
            return super().postprocess_fn(targets_or_predictions, **kwargs)[:2]

    def joined(targets, predictions):
        return {"joined": [*targets, *predictions]}

    features = {"targets": seqio.Feature(BYTES)}
    examples, outputs = [{"targets": BYTES.encode("abc")}], [BYTES.encode("xyz")]

    metric = Shortened.empty(joined, lambda text, **kwargs: text.upper())

    assert (metric._metric_fn, metric._postprocess_fn("a")) == (joined, "A")
    assert metric.from_model_output(examples, outputs, features).compute() == {"joined": ["AB", "XY"]}
    plain = Shortened.empty(joined, None).from_model_output(examples, outputs, features)
    assert plain.compute() == {"joined": ["ab", "xy"]}


def test_the_facade_offers_everything_and_loads_little() -> None:
    code = """
import sys
import beam_pipes.seqio as seqio
names = [(module, name) for module in seqio.NAMES for name in getattr(seqio, module).HOMES]
for module, name in names:
    getattr(getattr(seqio, module), name)
assert not {"tensorflow", "apache_beam", "jax", "torch"} & sys.modules.keys()
assert set(dir(seqio)) >= {"Task", "Feature", "Evaluator", "EncDecFeatureConverter", "trim_dataset", "metrics"}
print(len(names))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert int(printed) > 120
    with pytest.raises(AttributeError, match="module 'beam_pipes.seqio' has no attribute 'Tusk'"):
        print(seqio.Tusk)


def test_modules_of_the_facade_are_imported_in_every_way() -> None:
    code = """
import importlib, importlib.util, pickle
import beam_pipes.seqio.utils
import beam_pipes.seqio.metrics as metrics
from beam_pipes.seqio import utils
from beam_pipes.seqio.loggers import *
import beam_pipes.seqio as seqio

assert seqio.utils is utils is beam_pipes.seqio.utils and seqio.metrics is metrics
assert importlib.import_module("beam_pipes.seqio.helpers") is seqio.helpers
assert importlib.util.find_spec("beam_pipes.seqio.helpers").name == "beam_pipes.seqio.helpers"
assert JSONLogger is seqio.JSONLogger
assert pickle.loads(pickle.dumps(utils.trim_dataset)) is seqio.trim_dataset
try:
    utils.trim_datasets
except AttributeError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "module 'beam_pipes.seqio.utils' has no attribute 'trim_datasets'"


def test_without_tensorflow_a_python_task_runs_and_a_dataset_names_the_extra(tmp_path) -> None:
    (tmp_path / "lines.txt").write_text("ab\n")
    code = f"""
import sys
sys.modules["tensorflow"] = None
import beam_pipes.seqio as seqio
from beam_pipes.errors import MissingExtraError

@seqio.python_map
def to_example(line):
    return {{"targets": line}}

task = seqio.TaskRegistry.add(
    "t",
    seqio.TextLineDataSource({{"train": {str(tmp_path / "lines.txt")!r}}}),
    preprocessors=[to_example, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={{"targets": seqio.Feature(seqio.ByteVocabulary())}},
)
print([e["targets"].tolist() for e in task.examples()])
try:
    task.get_dataset()
except MissingExtraError as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines() == [
        "[[100, 101, 1]]",
        "Task.get_dataset needs tensorflow, which is not installed: pip install 'beam-pipes[tf]'",
    ]
