"""What cannot be loaded as model batches is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cached_tasks import FEATURES, build_caches, fresh_registries, pair_task, pairs, some_lengths
from loading_tasks import LENGTHS, cached_tasks_to_load, global_rows

from beam_pipes import tasks
from beam_pipes.errors import LoaderError, StateMismatchError, TaskError, WrongConverterError
from beam_pipes.transforms.converters import (
    EncDecFeatureConverter,
    EncoderFeatureConverter,
    FeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
)


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with cached_tasks_to_load(tmp_path_factory.mktemp("caches")) as directory:
        yield directory


class TensorflowOnly(FeatureConverter):
    TASK_FEATURES = {"targets": FeatureSpec(np.int32)}
    MODEL_FEATURES = {"targets": FeatureSpec(np.int32)}
    PACKING_FEATURE_DTYPES = {}

    def _convert_features(self, ds, task_feature_lengths):
        return ds

    def get_model_feature_lengths(self, task_feature_lengths):
        return task_feature_lengths


@pytest.mark.parametrize(
    ("name", "converter", "error", "words"),
    [
        (
            "in_tensorflow",
            EncDecFeatureConverter(),
            TaskError,
            "step 'filtered' of task 'in_tensorflow' stands after the CacheDatasetPlaceholder and is a function of a "
            "tf.data.Dataset.*Move it before the cut and build again, write it as a python_map",
        ),
        ("noisy", EncDecFeatureConverter(), TaskError, "step 'noisy' of task 'noisy' draws random numbers after the"),
        (
            "empty",
            EncDecFeatureConverter(),
            TaskError,
            "the caches of 'empty' have no examples with tokens in split 'tr",
        ),
        ("a", TensorflowOnly(), TaskError, "TensorflowOnly overrides _convert_features, which works on tf.data only"),
        ("a", "lm", WrongConverterError, "feature_converter should be an instance of FeatureConverter. Got 'lm'"),
        ("a", LMFeatureConverter, WrongConverterError, "LMFeatureConverter'>: write LMFeatureConverter()"),
        (
            "a",
            EncoderFeatureConverter(9),
            TaskError,
            "should be aligned, but .* records have different lengths, record",
        ),
        ("a", PrefixSuffixLMFeatureConverter(), TaskError, "missing expected output feature after preprocessing: suff"),
    ],
)
def test_what_cannot_be_loaded_is_refused(caches, name, converter, error, words: str) -> None:
    lengths = {"targets": 32} if isinstance(converter, TensorflowOnly) else {"inputs": 32, "targets": 32}
    if isinstance(converter, PrefixSuffixLMFeatureConverter):
        lengths |= {"suffixes": 4}

    with pytest.raises(error, match=words):
        tasks.plan_loading(name, lengths, converter)


class OnDatasets:
    """A converter that knows tf.data alone."""

    def __call__(self, dataset, task_feature_lengths):
        return dataset

    def get_model_feature_lengths(self, task_feature_lengths):
        return task_feature_lengths


def test_a_converter_of_datasets_alone_is_reported_where_it_belongs(caches) -> None:
    with pytest.raises(WrongConverterError, match="a loader needs a feature converter that converts rows"):
        tasks.plan_loading("a", LENGTHS, OnDatasets())


def test_rows_of_an_encoder_have_to_be_aligned() -> None:
    rows = {f"{name}{part}": np.ones((1, 2), np.int32) for name in ("inputs", "targets") for part in ("", "_positions")}
    ids = {"inputs_segment_ids": np.array([[1, 0]]), "targets_segment_ids": np.array([[1, 1]])}

    with pytest.raises(TaskError, match="but rows have other segment ids for inputs than for targets"):
        EncoderFeatureConverter(9).convert_rows({**rows, **ids})


def test_steps_that_make_other_numbers_of_examples_cannot_be_padded_one_by_one(caches) -> None:
    loader = tasks.get_loader("divided", LENGTHS, EncDecFeatureConverter(pack=False), batch_size=5, shuffle=False)

    with pytest.raises(
        TaskError, match=r"'in_two_or_none' of task 'divided'.* made 2 examples of record \d+\. Rows that"
    ):
        list(loader)


def test_pipelines_that_draw_are_found_when_rows_are_planned(tmp_path: Path) -> None:
    from stages_that_draw import Drawing

    with fresh_registries(tmp_path):
        pair_task("drawing", pairs(1, some_lengths(1, 5)), [Drawing()])
        build_caches(tmp_path)

        with pytest.raises(
            TaskError, match="random numbers cannot be drawn after the CacheDatasetPlaceholder where rows"
        ):
            tasks.plan_loading("drawing", LENGTHS, EncDecFeatureConverter())
        rows = global_rows(
            [tasks.get_loader("drawing", LENGTHS, EncDecFeatureConverter(pack=False), batch_size=5, num_epochs=2)]
        )
        assert len({row for batch in rows for row in batch}) == 10


def test_steps_that_change_their_mind_are_found(tmp_path: Path) -> None:
    calls: list[int] = []

    @tasks.python_map
    def moody(example):
        calls.append(1)
        return {**example, "targets": [7] * (3 if len(calls) <= 5 else 4)}

    with fresh_registries(tmp_path):
        pair_task("moody", pairs(1, some_lengths(1, 4)), [moody])
        build_caches(tmp_path)
        with pytest.raises(
            TaskError, match="gave 4 entries of 'targets' of record . now, and something else when rows"
        ):
            list(tasks.get_loader("moody", LENGTHS, EncDecFeatureConverter(), batch_size=1))


def test_tasks_without_a_cut_or_with_a_sample_function_are_refused(caches) -> None:
    uncut = tasks.Task("uncut", tasks.TaskRegistry.get("a").source, FEATURES, [])
    sampled = tasks.Mixture("sampled", [("a", 1)], sample_fn=lambda datasets, rates, seed: datasets[0])

    with pytest.raises(TaskError, match="task 'uncut' has no CacheDatasetPlaceholder, so it has no cache to load"):
        tasks.plan_loading(uncut, LENGTHS, EncDecFeatureConverter())
    with pytest.raises(TaskError, match="mixture 'sampled' has a sample_fn, which mixes tf.data.Datasets"):
        tasks.plan_loading(sampled, LENGTHS, EncDecFeatureConverter())


def test_empty_tasks_are_left_out_or_refused(caches) -> None:
    mixture = tasks.Mixture("with_empty", [("a", 1), ("empty", 1)])

    plan = tasks.plan_loading(mixture, LENGTHS, EncDecFeatureConverter())

    assert [rows.task for rows in plan.tasks] == ["a"]
    with pytest.raises(
        TaskError, match="have no examples with tokens in split 'train', so they cannot keep their rates"
    ):
        tasks.plan_loading(mixture, LENGTHS, EncDecFeatureConverter(), exhaustion="stop")


def test_a_rate_too_small_beside_the_others_names_its_task(caches) -> None:
    mixture = tasks.Mixture("uneven", [("a", 1.0000001), ("b", 1e-9)])

    with pytest.raises(LoaderError, match=r"mixture 'uneven' \(source 1 is task 'b'\).*Cap the rates of large tasks"):
        tasks.get_loader(mixture, LENGTHS, EncDecFeatureConverter(), batch_size=1)


def test_a_state_of_other_lengths_is_refused(caches) -> None:
    state = tasks.get_loader("a", LENGTHS, EncDecFeatureConverter(pack=False), batch_size=2).get_state()

    with pytest.raises(StateMismatchError, match="manifest"):
        other = {"inputs": 40, "targets": 16}
        tasks.get_loader("a", other, EncDecFeatureConverter(pack=False), batch_size=2).set_state(state)


def test_an_example_that_is_too_long_is_an_error_or_cut_by_the_converter(caches) -> None:
    lengths = {"inputs": 10, "targets": 10}
    with pytest.raises(LoaderError, match="more than a row takes"):
        tasks.plan_loading("long", lengths, EncDecFeatureConverter(), trim_output_features=False)

    plan = tasks.plan_loading(
        "long", lengths, EncDecFeatureConverter(apply_length_check=False), trim_output_features=False
    )

    assert plan.truncated_tokens
