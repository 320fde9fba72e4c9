"""Mixtures: rates, exact proportions, exhaustion, many tasks."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from beam_pipes.errors import TaskError, UnknownNameError, WrongConverterError
from beam_pipes.tasks import (
    Feature,
    FunctionDataSource,
    Mixture,
    MixtureRegistry,
    PassThroughVocabulary,
    ShardInfo,
    Task,
    TaskRegistry,
    get_dataset,
    get_loader,
    get_mixture_or_task,
    get_subtasks,
    maybe_get_mixture_or_task,
    mixing_rate_num_characters,
    mixing_rate_num_examples,
    preprocessors,
    unimax_rates,
)
from beam_pipes.transforms.converters import LMFeatureConverter

IDS = PassThroughVocabulary(1000, eos_id=1)


@pytest.fixture(autouse=True)
def empty_registries() -> Iterator[None]:
    TaskRegistry.reset()
    MixtureRegistry.reset()
    yield
    TaskRegistry.reset()
    MixtureRegistry.reset()


def add_task(
    name: str, count: int, *, splits=("train",), in_python: bool = False, feature: Feature | None = None
) -> Task:
    """A task of `count` examples whose targets are [identity of the task, number]."""
    identity = len(list(TaskRegistry.names())) + 10

    def rows(split, shuffle_files=False, seed=None):
        made = [[identity, number] for number in range(count)]
        if in_python:
            return [{"targets": np.array(row, np.int32), "x": np.int32(0)} for row in made]
        return tf.data.Dataset.from_tensor_slices({"targets": tf.constant(made, tf.int32), "x": tf.zeros(count)})

    return TaskRegistry.add(
        name,
        FunctionDataSource(rows, splits, num_input_examples=dict.fromkeys(splits, count)),
        {"targets": feature or Feature(IDS)},
        [preprocessors.append_eos],
    )


def targets(dataset, count: int | None = None) -> list[tuple[int, int]]:
    taken = itertools.islice(dataset if hasattr(dataset, "__next__") else iter(dataset), count)
    return [tuple(np.asarray(example["targets"])[:2].tolist()) for example in taken]


def test_rates_of_nested_mixtures_are_divided_by_their_own_proportions() -> None:
    for name in ("task1", "task2", "task3"):
        add_task(name, 10)
    MixtureRegistry.add("mix1", [("task1", 1), ("task2", 7)])
    mixture = MixtureRegistry.add("mix3", ["mix1", "task1", "task3"], default_rate=1)

    shares = {task.name: mixture.get_rate(task) / mixture.total_rate for task in mixture.tasks}

    assert shares == pytest.approx({"task1": 1 / 24 + 1 / 3, "task2": 7 / 24, "task3": 1 / 3})
    assert mixture.num_input_examples("train") == 30
    assert [task.name for task in get_subtasks(mixture)] == ["task1", "task2", "task3"]


def test_a_task_named_twice_adds_its_rates() -> None:
    add_task("a", 10)
    add_task("b", 10)
    mixture = Mixture("m", [("a", 1), ("b", 1), ("a", 2)])

    assert mixture.get_rate(TaskRegistry.get("a")) == 3
    assert mixture.rate_per_task_name == {"a": 3, "b": 1}


def test_rates_may_be_functions_and_defaults() -> None:
    add_task("a", 100)
    add_task("b", 300)
    capped = functools.partial(mixing_rate_num_examples, maximum=400, scale=2.0, temperature=2.0)
    halved = functools.partial(mixing_rate_num_examples, maximum=100, scale=0.5)

    assert Mixture("m", ["a", "b"], default_rate=mixing_rate_num_examples).total_rate == 400
    assert Mixture("m", [("a", 0.5), "b"], default_rate=3.5).total_rate == 4
    assert Mixture("m", ["b"], default_rate=capped).total_rate == 20
    assert Mixture("m", ["a", "b"], default_rate=halved).total_rate == 50 + 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Mixture("m", ["a"]), "need a rate for each task: 'a' of mixture 'm'", id="rate"),
        pytest.param(lambda: Mixture("m", []), "Mixture, m, does not contain any Tasks.", id="empty"),
        pytest.param(
            lambda: Mixture("m", [("aa", 1)]), "Provider name not registered: aa .*Did you mean 'a'", id="unknown"
        ),
        pytest.param(lambda: Mixture("m!", [("a", 1)]), "Mixture name 'm!' contains invalid characters", id="name"),
        pytest.param(
            lambda: Mixture("m", [("a", 1)], exhaustion="wait"),
            "exhaustion should be one of drop, stop, repeat, got 'wait'",
            id="exhaustion",
        ),
        pytest.param(
            lambda: Mixture("m", [("a", -1)]), "'a' in mixture 'm' should be a number, 0 or more, got -1", id="negative"
        ),
        pytest.param(lambda: Mixture("m", [("a", "two")]), "should be a number, 0 or more, got 'two'", id="no_number"),
        pytest.param(
            lambda: Mixture("m", [("a", lambda task: None)]).total_rate,
            "rate of 'a' in mixture 'm' should be a number, 0 or more, got None",
            id="function_without_a_rate",
        ),
        pytest.param(
            lambda: Mixture("m", [("a", 1, 2)]),
            r"an entry of mixture 'm' is a task or a pair of a task and its rate, got \('a', 1, 2\)",
            id="triple",
        ),
        pytest.param(
            lambda: Mixture("m", "a", default_rate=1), "tasks of mixture 'm' should be a list, got 'a'", id="no_list"
        ),
        pytest.param(
            lambda: Mixture("m", [(["a"], 1)]),
            r"a task of mixture 'm' is a name, a Task or a Mixture, got \['a'\]",
            id="no_task",
        ),
        pytest.param(lambda: Mixture(None, [("a", 1)]), "Mixture name should be a str, got None", id="no_name"),
        pytest.param(
            lambda: Mixture("m", [("a", 1)]).get_dataset(exhaustion="wait"),
            "exhaustion should be one of drop, stop, repeat, got 'wait'",
            id="exhaustion_of_a_dataset",
        ),
        pytest.param(
            lambda: Mixture("m", [("a", 1)]).examples(num_epochs=-1),
            "'m': num_epochs should be a whole number, 0 or more, or None for no end, got -1",
            id="epochs",
        ),
        pytest.param(
            lambda: Mixture("m", [(Mixture("n", [("a", 1)]), lambda task: 1)]).rates(),
            "'rate' for sub-mixture 'n' must be a number.",
            id="callable_rate_of_a_mixture",
        ),
    ],
)
def test_wrong_mixtures_are_refused(make, message: str) -> None:
    add_task("a", 1)

    with pytest.raises(TaskError, match=message):
        make()


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        pytest.param(
            Feature(PassThroughVocabulary(7)), "must use the same vocabulary.  Got PassThrough", id="vocabulary"
        ),
        pytest.param(Feature(IDS, dtype="int64"), "must use the same dtype.  Got int64", id="dtype"),
        pytest.param(Feature(IDS, rank=2), "must use the same rank.  Got 2", id="rank"),
    ],
)
def test_tasks_of_a_mixture_share_their_features(feature: Feature, message: str) -> None:
    add_task("a", 1)
    add_task("b", 1, feature=feature)

    with pytest.raises(TaskError, match=message):
        Mixture("m", [("a", 1), ("b", 1)])


def test_tasks_of_a_mixture_have_the_same_names_of_features() -> None:
    add_task("a", 1)
    TaskRegistry.add("b", TaskRegistry.get("a").source, {"inputs": Feature(IDS, required=False)})

    with pytest.raises(TaskError, match="contains Tasks with different output features:\n a: "):
        Mixture("m", [("a", 1), ("b", 1)])


@pytest.mark.parametrize("in_python", [False, True], ids=["in_tensorflow", "in_python"])
def test_four_hundred_and_twenty_examples_are_all_delivered(in_python: bool) -> None:
    add_task("large", 400, in_python=in_python)
    add_task("small", 20, in_python=in_python)
    mixture = Mixture("m", [("large", 1), ("small", 1)])

    delivered = targets(mixture.get_dataset(num_epochs=1, shuffle=False))

    assert sorted(delivered) == [(10, i) for i in range(400)] + [(11, i) for i in range(20)]
    assert delivered == targets(mixture.examples(num_epochs=1))
    assert len(targets(mixture.get_dataset(num_epochs=1, exhaustion="stop"))) == 41
    assert len(targets(mixture.get_dataset(num_epochs=1, exhaustion="repeat"), 900)) == 900


def test_a_mixture_holds_output_features_and_what_is_asked_for() -> None:
    add_task("a", 3)
    add_task("b", 3)
    mixture = Mixture("m", [("a", 1), ("b", 1)])

    assert set(mixture.get_dataset().element_spec) == {"targets"}
    assert set(mixture.get_dataset(passthrough_features=["x"]).element_spec) == {"targets", "x"}


def test_a_missing_split_is_an_error_unless_it_may_be_skipped() -> None:
    add_task("a", 3, splits=("train", "test"))
    add_task("b", 3)
    mixture = Mixture("m", [("a", 1), ("b", 1)])

    with pytest.raises(UnknownNameError, match="tasks of mixture 'm' have no 'test' split: b"):
        mixture.get_dataset(split="test")
    with pytest.raises(ValueError, match="No datasets have a 'dev' split"):
        mixture.get_dataset(split="dev")
    assert len(targets(mixture.get_dataset(split="test", num_epochs=1, skip_missing_splits=True))) == 3


@pytest.mark.parametrize("count", [3, 20], ids=["inside_tensorflow", "in_turns"])
def test_hosts_share_a_mixture_without_loss(count: int) -> None:
    for index in range(count):
        add_task(f"t{index}", 7)
    mixture = Mixture("m", [(f"t{index}", 1 + index % 3) for index in range(count)])

    shares = [targets(mixture.get_dataset(num_epochs=1, seed=1, shard_info=ShardInfo(index, 3))) for index in range(3)]

    assert sorted(itertools.chain(*shares)) == sorted((10 + t, i) for t in range(count) for i in range(7))


def test_an_own_sample_function_mixes_instead() -> None:
    add_task("a", 30)
    add_task("b", 30)
    sample = functools.partial(tf.data.Dataset.sample_from_datasets, stop_on_empty_dataset=True)

    mixed = targets(Mixture("m", [("a", 1), ("b", 1)], sample_fn=sample).get_dataset(num_epochs=1, seed=1))

    assert 30 <= len(mixed) < 60


@pytest.mark.parametrize("count", [3, 20], ids=["inside_tensorflow", "in_turns"])
def test_a_mixture_continues_without_empty_tasks_and_is_empty_of_empty_tasks(count: int) -> None:
    for index in range(count):
        add_task(f"empty{index}", 0, in_python=True)
    add_task("one", 1, in_python=True)
    empty = [(f"empty{index}", 1) for index in range(count)]
    mixture, empty_mixture = Mixture("m", [*empty, ("one", 1)]), Mixture("n", empty)

    for policy in ("drop", "repeat"):
        options = {"num_epochs": None, "shuffle": False, "exhaustion": policy}
        assert len(targets(mixture.get_dataset(**options), 3)) == 3
        assert len(targets(mixture.examples(**options), 3)) == 3
        assert targets(empty_mixture.examples(**options)) == targets(empty_mixture.get_dataset(**options)) == []


class Marked(Mixture):
    """Reads its tasks in a way of its own: the first example of each, marked."""

    def get_task_dataset(self, task, output_feature_keys, *args, **kwargs):
        dataset = super().get_task_dataset(task, output_feature_keys, *args, **kwargs)
        return dataset.take(1).map(lambda example: {**example, "targets": example["targets"] + 500})


@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_subclass_may_read_its_tasks_in_another_way(count: int) -> None:
    for index in range(count):
        add_task(f"t{index:02}", 3)
    mixture = Marked("m", [(f"t{index:02}", 1) for index in range(count)])
    wanted = [(510 + index, 500) for index in range(count)]

    assert sorted(targets(mixture.get_dataset(num_epochs=1, shuffle=False))) == wanted
    assert sorted(targets(mixture.examples(num_epochs=1))) == wanted
    with pytest.raises(TaskError, match="mixture 'm' overrides get_task_dataset, which makes tf.data.Datasets: a load"):
        get_loader(mixture, {"targets": 4}, feature_converter=LMFeatureConverter(pack=True), batch_size=1)


def test_three_hundred_tasks_begin_with_few_threads() -> None:
    for index in range(300):
        add_task(f"t{index}", 20, in_python=True)
    mixture = Mixture("m", [(f"t{index}", 1 + index % 7) for index in range(300)])
    before, before_in_python = len(os.listdir("/proc/self/task")), threading.active_count()

    iterator = iter(mixture.get_dataset(seed=0))
    first = next(iterator)
    after_first = len(os.listdir("/proc/self/task")) - before
    counts = Counter(int(example["targets"][0]) for example in itertools.islice(iterator, 1199))
    counts[int(first["targets"][0])] += 1

    assert after_first < 64
    assert len(os.listdir("/proc/self/task")) - before < 64
    assert threading.active_count() - before_in_python < 64
    total = sum(1 + index % 7 for index in range(300))
    assert all(abs(counts[10 + i] - 1200 * (1 + i % 7) / total) < 1 for i in range(300))


def test_unimax_gives_equal_shares_as_far_as_epochs_allow() -> None:
    assert unimax_rates({"a": 10, "b": 100, "c": 1000}, budget=300, max_epochs=2) == {"a": 20, "b": 140, "c": 140}
    with pytest.raises(TaskError, match="UniMax needs positive sizes, budget and epochs"):
        unimax_rates({"a": 0}, budget=1)


def test_rates_by_size_say_when_the_size_is_not_known() -> None:
    source = FunctionDataSource(lambda split, shuffle_files: [], ["train"])
    task = TaskRegistry.add("unknown", source, {"targets": Feature(IDS)})

    with pytest.raises(TaskError, match="the number of examples of task 'unknown' in split 'train' is not known"):
        mixing_rate_num_examples(task)
    with pytest.raises(TaskError, match="`mixing_rate_num_characters` requires that each task has is cached"):
        mixing_rate_num_characters(task)


def test_get_dataset_goes_from_a_name_to_model_features() -> None:
    add_task("a", 5)
    MixtureRegistry.add("m", [("a", 1)])

    batches = list(get_dataset("m", {"targets": 6}, LMFeatureConverter(pack=True), batch_size=2).as_numpy_iterator())

    assert [batch["decoder_target_tokens"].tolist() for batch in batches] == [
        [[10, 0, 1, 10, 1, 1], [10, 2, 1, 10, 3, 1]]
    ]
    with pytest.raises(WrongConverterError, match="feature_converter should be an instance of FeatureConverter"):
        get_dataset("m", {"targets": 4}, feature_converter=None)
    with pytest.raises(TypeError):
        get_dataset("m", {"targets": 4}, feature_converter=None)


def test_names_and_objects_are_both_accepted() -> None:
    task = add_task("a", 1)
    mixture = MixtureRegistry.add("a_mixture", [("a", 1)])

    assert maybe_get_mixture_or_task("a") is maybe_get_mixture_or_task(task) is task
    assert get_mixture_or_task("a_mixture") is mixture
    with pytest.raises(
        TaskError, match="User passed in a task that was not a string, Task, or Mixture. Got type: <class"
    ):
        maybe_get_mixture_or_task(3)
