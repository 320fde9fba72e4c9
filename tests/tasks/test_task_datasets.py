"""Tasks over tf.data and in plain Python: the same examples, promises kept, shares that neither lose nor repeat."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import CacheNotFoundError, SourceError, TaskError, UnknownNameError
from beam_pipes.tasks import (
    ByteVocabulary,
    CacheDatasetPlaceholder,
    Feature,
    FunctionDataSource,
    MixtureRegistry,
    PassThroughVocabulary,
    ShardInfo,
    Task,
    TaskRegistry,
    TextLineDataSource,
    get_mixture_or_task,
    map_over_dataset,
    preprocessors,
    python_map,
)
from beam_pipes.tasks.steps.examples import examples_from_dataset
from beam_pipes.typed import Pipeline

BYTES = ByteVocabulary()
IDS = PassThroughVocabulary(100, eos_id=1)
FEATURES = {"inputs": Feature(BYTES, add_eos=False), "targets": Feature(BYTES)}
ID_FEATURES = {"inputs": Feature(IDS, add_eos=False), "targets": Feature(IDS)}
TARGETS = {"targets": Feature(IDS, add_eos=False)}


@pytest.fixture(autouse=True)
def empty_registries() -> Iterator[None]:
    TaskRegistry.reset()
    MixtureRegistry.reset()
    yield
    TaskRegistry.reset()
    MixtureRegistry.reset()


@pytest.fixture
def lines(tmp_path) -> TextLineDataSource:
    for index, content in enumerate(("one two\nthree\n", "four\r\nfive five", "six\n\nseven\n")):
        (tmp_path / f"part-{index}.txt").write_bytes(content.encode())
    return TextLineDataSource({"train": str(tmp_path / "part-*.txt")}, num_input_examples={"train": 7})


@python_map
def to_example(line):
    return {"inputs": line, "targets": line.upper()}


@map_over_dataset
def to_example_in_tensorflow(line):
    return {"inputs": line, "targets": tf.strings.upper(line)}


@python_map
def with_noise(example, rng):
    return {**example, "noise": np.int64(rng.integers(1 << 30))}


@map_over_dataset(num_seeds=1)
def with_tensorflow_noise(example, seed):
    return {**example, "noise": tf.random.stateless_uniform((), seed, 0, 1 << 30, tf.int64)}


@dataclasses.dataclass(frozen=True, eq=False)
class Words(Pipeline):
    input_type = bytes
    output_type = dict

    def transform(self, line):
        return [{"targets": list(word), "draw": int(self.rng().integers(1 << 30))} for word in line.split()]


def numbers(split, shuffle_files, seed=None):
    tokens = {"inputs": tf.constant([[5, 6, 7]]), "targets": tf.constant([[8, 9]]), "z": tf.constant([3])}
    return tf.data.Dataset.from_tensor_slices(tokens)


NUMBERS = FunctionDataSource(numbers, splits=["train", "test"], num_input_examples={"train": 1000})


def values(dataset) -> list[dict]:
    return [
        {name: value if isinstance(value, bytes) else np.asarray(value).tolist() for name, value in example.items()}
        for example in (examples_from_dataset(dataset) if hasattr(dataset, "element_spec") else dataset)
    ]


def test_the_examples_of_python_and_tensorflow_are_the_same(lines) -> None:
    steps = [
        to_example,
        preprocessors.tokenize,
        with_noise,
        CacheDatasetPlaceholder(),
        preprocessors.append_eos_after_trim,
    ]
    task = Task("t", lines, FEATURES, steps)
    arguments = {"sequence_length": {"inputs": 4, "targets": 4}, "seed": 3, "shuffle": False, "num_epochs": 2}

    in_python = values(task.examples(**arguments))
    in_tensorflow = values(task.get_dataset(**arguments))

    assert not task.needs_tensorflow
    assert sorted(map(repr, in_python)) == sorted(map(repr, in_tensorflow))
    assert len(in_python) == 14
    assert in_python[0] == {
        "inputs_pretokenized": b"one two",
        "inputs": [114, 113, 104, 35],
        "targets_pretokenized": b"ONE TWO",
        "targets": [82, 81, 72, 1],
        "noise": in_python[0]["noise"],
    }


def test_text_lines_are_read_alike_natively_and_through_tensorflow(lines) -> None:
    natively = [line for shard in lines.list_shards("train") for line in lines.read_shard("train", shard)]

    assert natively == [b"one two", b"three", b"four", b"five five", b"six", b"", b"seven"]
    assert sorted(natively) == sorted(lines.get_dataset("train", shuffle=False).as_numpy_iterator())


def test_header_lines_are_skipped_in_every_file(tmp_path) -> None:
    for index in range(2):
        (tmp_path / f"{index}.tsv").write_text(f"header\nline {index}\n")
    source = TextLineDataSource({"train": [str(tmp_path / "0.tsv"), str(tmp_path / "1.tsv")]}, skip_header_lines=1)

    natively = [line for shard in source.list_shards("train") for line in source.read_shard("train", shard)]
    assert natively == list(source.get_dataset("train", shuffle=False).as_numpy_iterator()) == [b"line 0", b"line 1"]


def test_draws_before_the_cut_are_the_same_however_the_source_is_read(lines) -> None:
    steps = [to_example_in_tensorflow, with_tensorflow_noise, with_noise, CacheDatasetPlaceholder()]
    task = Task("t", lines, {"inputs": Feature(BYTES, dtype="string", rank=0)}, steps)
    shards = lines.list_shards("train")

    offline = [e for shard in shards for e in values(task.run_offline(lines.read_shard("train", shard), seed=5))]
    whole = values(task.get_dataset(shuffle=False, seed=5))
    shares = [e for i in range(2) for e in values(task.get_dataset(shuffle=False, seed=5, shard_info=ShardInfo(i, 2)))]
    twice = values(task.get_dataset(shuffle=False, seed=5, num_epochs=2))

    assert sorted(map(repr, offline)) == sorted(map(repr, whole)) == sorted(map(repr, shares))
    assert len({e["noise"] for e in whole}) == len(whole) == 7
    assert len({e["noise"] for e in twice}) == 7


def test_draws_after_the_cut_are_new_in_every_epoch_and_on_every_host(lines) -> None:
    for step in (with_noise, with_tensorflow_noise):
        features = {"inputs": Feature(BYTES, dtype="string", rank=0)}
        task = Task("t", lines, features, [to_example_in_tensorflow, step])

        def noise(task=task, **arguments) -> list[int]:
            return [e["noise"] for e in values(task.get_dataset(shuffle=False, seed=5, **arguments))]

        assert len(set(noise(num_epochs=2))) == 14
        assert len({n for i in range(3) for n in noise(shard_info=ShardInfo(i, 3))}) == 7
        assert noise() == noise()


@settings(max_examples=6, deadline=None)
@given(files=st.lists(st.integers(0, 5), min_size=1, max_size=4), hosts=st.integers(1, 4), shuffle=st.booleans())
def test_every_example_goes_to_exactly_one_host(tmp_path_factory, files: list[int], hosts: int, shuffle: bool) -> None:
    directory = tmp_path_factory.mktemp("shares")
    for index, count in enumerate(files):
        (directory / f"{index}.txt").write_text("".join(f"{index}-{row}\n" for row in range(count)))
    source = TextLineDataSource({"train": str(directory / "*.txt")})
    task = Task("t", source, {"inputs": Feature(BYTES, dtype="string", rank=0)}, [to_example_in_tensorflow])
    shares = [ShardInfo(index, hosts) for index in range(hosts)]

    by_dataset = [values(task.get_dataset(shuffle=shuffle, seed=1, shard_info=share)) for share in shares]
    in_python = [values(task.examples(shuffle=shuffle, seed=1, shard_info=share)) for share in shares]

    everything = sorted(f"{index}-{row}".encode() for index, count in enumerate(files) for row in range(count))
    for shared in (by_dataset, in_python):
        assert sorted(e["inputs"] for share in shared for e in share) == everything
        if len(files) % hosts:
            assert max(map(len, shared)) - min(map(len, shared)) <= 1


@pytest.mark.parametrize("in_python", [True, False], ids=["natively", "through_tensorflow"])
def test_what_holds_no_example_ends_also_without_an_end_of_epochs(tmp_path, in_python: bool) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    empty, three = (
        Task(
            name,
            TextLineDataSource({"train": str(tmp_path / f"{name}.txt")}),
            FEATURES,
            [to_example, preprocessors.tokenize],
        )
        for name in ("empty", "three")
    )

    def read(task, **options):
        if in_python:
            return task.examples(num_epochs=None, **options)
        return iter(task.get_dataset(num_epochs=None, shuffle=False, **options))

    assert list(read(empty)) == []
    assert list(read(three, shard_info=ShardInfo(3, 4))) == []
    assert len(list(itertools.islice(read(three, shard_info=ShardInfo(2, 4)), 5))) == 5


def test_shuffling_is_a_function_of_the_seed(lines) -> None:
    task = Task("t", lines, {"inputs": Feature(BYTES, dtype="string", rank=0)}, [to_example])

    orders = [repr(values(task.get_dataset(seed=seed))) for seed in (1, 1, 2)]
    natively = [repr(values(task.examples(shuffle=True, seed=seed))) for seed in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]
    assert natively[0] == natively[1] != natively[2]
    assert sorted(map(repr, values(task.get_dataset(seed=1)))) == sorted(map(repr, values(task.examples())))


def test_typed_pipelines_are_steps(lines) -> None:
    task = Task("t", lines, {"targets": Feature(IDS, add_eos=False)}, [Words()])

    assert not task.needs_tensorflow
    in_python = values(task.examples(seed=1))
    assert in_python == values(task.get_dataset(seed=1, shuffle=False))
    assert in_python[0]["targets"] == [111, 110, 101]
    assert len(in_python) == 8
    assert len({e["draw"] for e in in_python}) == 6  # lines with words


def test_steps_get_features_lengths_and_bound_arguments(lines) -> None:
    seen = {}

    def probe(dataset, output_features, sequence_length, word):
        seen.update(features=output_features, lengths=sequence_length, word=word)
        return dataset

    features = {"inputs": Feature(BYTES, dtype="string", rank=0)}
    task = Task("t", lines, features, [to_example_in_tensorflow, functools.partial(probe, word="x")])
    task.get_dataset({"targets": 7}, shuffle=False)

    assert seen == {"features": features, "lengths": {"targets": 7}, "word": "x"}


def test_one_python_step_may_give_several_examples_or_none(lines) -> None:
    @python_map
    def words(line):
        return [{"targets": list(word)} for word in line.split()] or None

    task = Task("t", lines, {"targets": Feature(IDS, add_eos=False)}, [words])

    assert [bytes(e["targets"]) for e in values(task.examples())] == b"one two three four five five six seven".split()
    assert len(values(task.get_dataset(shuffle=False))) == 8


def test_a_python_source_needs_no_tensorflow_dataset() -> None:
    def rows(split, shuffle_files):
        return ({"targets": [number, number]} for number in range(3))

    source = FunctionDataSource(rows, splits=["train"])
    task = Task("t", source, ID_FEATURES | {"inputs": Feature(IDS, required=False)}, [preprocessors.append_eos])

    assert values(task.examples()) == values(task.get_dataset(shuffle=False))
    assert [e["targets"] for e in values(task.get_dataset(num_epochs=2, shuffle=False))] == [
        [n, n, 1] for n in (0, 1, 2)
    ] * 2


@pytest.mark.parametrize(
    ("features", "message"),
    [
        pytest.param({"q": Feature(IDS)}, "is missing expected output feature after preprocessing: q", id="missing"),
        pytest.param(
            {"inputs": Feature(IDS, rank=2)},
            "incorrect rank for feature 'inputs' after preprocessing: Got 1, expected 2",
            id="rank",
        ),
        pytest.param(
            {"inputs": Feature(IDS, dtype=tf.int64)},
            "incorrect type for feature 'inputs' after preprocessing: Got int32, expected int64",
            id="dtype",
        ),
    ],
)
def test_broken_promises_are_named(features, message: str) -> None:
    task = Task("t", NUMBERS, features)

    with pytest.raises(TaskError, match=message):
        task.get_dataset(shuffle=False)
    with pytest.raises(TaskError, match=message):
        list(task.examples())


def test_optional_features_may_be_missing() -> None:
    task = Task("t", NUMBERS, {"inputs": Feature(IDS), "extra": Feature(IDS, required=False)})

    assert values(task.get_dataset(shuffle=False)) == [{"inputs": [5, 6, 7], "targets": [8, 9], "z": 3}]


def test_sequences_are_trimmed_at_the_end_by_default() -> None:
    task = Task("t", NUMBERS, ID_FEATURES)
    lengths = {"inputs": 2, "targets": 1}

    assert values(task.get_dataset(lengths, shuffle=False)) == [{"inputs": [5, 6], "targets": [8], "z": 3}]
    whole = values(task.get_dataset(lengths, shuffle=False, trim_output_features=False))
    assert whole == values(task.examples(lengths, trim_output_features=False))
    assert whole[0]["inputs"] == [5, 6, 7]


def declared(**changes):
    return Task(**{"name": "t", "source": NUMBERS, "output_features": ID_FEATURES, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"name": "a b"}, r"Task name 'a b' contains invalid characters. Must match regex: ", id="name"),
        pytest.param(
            {"preprocessors": [CacheDatasetPlaceholder(), CacheDatasetPlaceholder()]},
            "can appear at most once in the preprocessing pipeline. Found multiple in 't'",
            id="two_cuts",
        ),
        pytest.param(
            {"preprocessors": [preprocessors.truncate_inputs_left, CacheDatasetPlaceholder()]},
            "'truncate_inputs_left' has a `sequence_length` argument but occurs before `CacheDatasetPlaceholder`",
            id="length_before_the_cut",
        ),
        pytest.param(
            {
                "source": FunctionDataSource(numbers, splits=["train"], caching_permitted=False),
                "preprocessors": [CacheDatasetPlaceholder()],
            },
            "Caching was requested for 't', but the underlying data source prohibits caching",
            id="caching_prohibited",
        ),
        pytest.param(
            {"preprocessors": [lambda dataset, word: dataset]},
            r"needs \['word'\], which the task does not give: bind them with functools.partial",
            id="unbound_argument",
        ),
        pytest.param(
            {"preprocessors": [CacheDatasetPlaceholder]},
            r"got the class CacheDatasetPlaceholder: write CacheDatasetPlaceholder\(\), with parentheses",
            id="class_of_the_cut",
        ),
        pytest.param(
            {"preprocessors": [Words]},
            r"got the class Words: write Words\(\), with parentheses",
            id="class_of_a_pipeline",
        ),
        pytest.param(
            {"preprocessors": to_example}, "preprocessors of task 't' should be a list, got", id="no_list_of_steps"
        ),
        pytest.param(
            {"metric_fns": len}, "metric_fns of task 't' should be a list, got .*: put it in brackets", id="no_list"
        ),
        pytest.param({"name": None}, "Task name should be a str, got None", id="no_name"),
        pytest.param({"source": None}, "the source of task 't' should be a DataSource, got None", id="no_source"),
        pytest.param(
            {"source": TextLineDataSource},
            "the source of task 't' should be a DataSource, got <class",
            id="source_class",
        ),
        pytest.param(
            {"output_features": [Feature(BYTES)]},
            "output_features of task 't' should map names to Feature objects, got",
            id="list_of_features",
        ),
        pytest.param({"preprocessors": [3]}, "a preprocessor is a function, a typed pipeline or", id="no_preprocessor"),
        pytest.param(
            {"metric_fns": [lambda labels: {}]},
            r"Metric functions must have positional arguments matching either .* Got: \('labels',\)",
            id="metric",
        ),
        pytest.param(
            {"output_features": {"inputs": BYTES}}, r"wrap the vocabulary: Feature\(vocabulary\)", id="bare_vocabulary"
        ),
    ],
)
def test_wrong_declarations_are_refused_at_once(changes, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        declared(**changes)


def test_features_check_dtype_and_rank() -> None:
    with pytest.raises(TaskError, match="the dtype of a feature should be one of bfloat16"):
        Feature(BYTES, dtype="int33")
    with pytest.raises(TaskError, match="rank is a number of dimensions, 0 or more, got -1"):
        Feature(BYTES, rank=-1)
    assert Feature(BYTES, dtype=tf.bfloat16).dtype == tf.bfloat16
    assert Feature(BYTES, dtype=np.float16).dtype.as_numpy_dtype == np.float16
    assert Feature(BYTES) == Feature(ByteVocabulary(), dtype=tf.int32)


def test_requests_that_a_task_does_not_allow_are_refused() -> None:
    cached = declared(preprocessors=[CacheDatasetPlaceholder(required=True)])

    with pytest.raises(TaskError, match="Task 't' requires caching, but was called with `use_cached=False`"):
        cached.get_dataset(shuffle=False)
    with pytest.raises(CacheNotFoundError, match="'t' does not exist in any of the task cache directories"):
        cached.get_dataset(use_cached=True)
    forbidden = declared(shuffle_buffer_size=None)
    for refused in (forbidden.get_dataset, lambda: forbidden.get_dataset(shuffle_buffer_size=100)):
        with pytest.raises(TaskError, match="Shuffling is disallowed for Task 't' since its `shuffle_buffer_size`"):
            refused()
    shuffles_itself = FunctionDataSource(numbers, splits=["train"])
    shuffles_itself._performs_internal_shuffling = True
    allowed = declared(shuffle_buffer_size=None, source=shuffles_itself)
    assert len(list(allowed.get_dataset(shuffle_buffer_size=9))) == len(list(allowed.examples(shuffle=True))) == 1
    with pytest.raises(KeyError, match="task 't': there is no split 'nosplit'. There are: train, test"):
        declared().get_dataset(split="nosplit")
    for ask in (declared().get_dataset, declared().examples):
        with pytest.raises(TaskError, match="'t': num_epochs should be a whole number, 0 or more, .* got -1"):
            ask(num_epochs=-1)
        with pytest.raises(TaskError, match="'t': seed should be a whole number or None, got 'a'"):
            ask(seed="a")
        for length in ("x", [2, -1]):
            with pytest.raises(TaskError, match="task 't': the sequence_length of feature 'inputs' should be a whole "):
                ask({"inputs": length, "of_a_step": "x"})
    with pytest.raises(TaskError, match="should never be called"):
        CacheDatasetPlaceholder()(None)


def test_without_a_cut_caching_falls_back_with_a_warning(caplog) -> None:
    assert len(values(declared().get_dataset(use_cached=True, shuffle=False))) == 1
    assert "Task 't' does not support caching. Switching to on-the-fly preprocessing." in caplog.text


def test_a_failing_python_step_says_which_and_on_what(lines) -> None:
    @python_map
    def broken(line):
        raise KeyError("x")

    task = Task("t", lines, FEATURES, [broken])

    with pytest.raises(
        TaskError, match="step 'broken' of task 't' failed on example 0: KeyError: 'x'. The example: b'one"
    ):
        list(task.examples())


def test_replace_changes_what_it_knows() -> None:
    task = declared(metric_fns=[lambda targets, predictions: {}])

    assert task.replace(name="u").name == "u"
    assert len(task.replace(name="u").predict_metric_fns) == 1
    with pytest.raises(
        TaskError, match=r"Expected keys of kwargs argument task.replace to be one of \['name', 'source'"
    ):
        task.replace(color=1)


def test_steps_and_metrics_are_lists_to_add_to() -> None:
    def one(targets, predictions):
        return {}

    task = declared(metric_fns=(one,), metric_objs=(int,), preprocessors=(str,))

    assert task.metric_fns + [one] == [one, one]
    assert task.metric_objs + [int] == [int, int]
    assert task.preprocessors + [str] == [str, str]
    task.metric_fns.clear()
    assert task.metric_fns == [one]


def test_metric_functions_are_sorted_by_what_they_take() -> None:
    def one(targets, predictions):
        return {}

    def two(targets, scores, scale=1):
        return {}

    def three(targets, predictions, aux_values):
        return {}

    task = declared(metric_fns=[one, two, three])

    assert (task.predict_metric_fns, task.score_metric_fns, task.predict_with_aux_metric_fns) == ([one], [two], [three])


def test_registries_refuse_duplicates_and_help_with_typos() -> None:
    TaskRegistry.add("wmt_de", NUMBERS, ID_FEATURES)

    with pytest.raises(TaskError, match=r"Attempting to register duplicate provider: wmt_de \(declared at .*py:\d+\)"):
        TaskRegistry.add("wmt_de", NUMBERS, ID_FEATURES)
    with pytest.raises(UnknownNameError, match="Provider name not registered: wmt_dee. Did you mean 'wmt_de'"):
        TaskRegistry.get("wmt_dee")
    with pytest.raises(ValueError, match="No Task or Mixture found with name 'wmtde'. Did you mean 'wmt_de'"):
        get_mixture_or_task("wmtde")
    with pytest.raises(TaskError, match="Attempting to register a class of an invalid type. Expecting instance of"):
        TaskRegistry.add_provider("x", 3)
    assert list(TaskRegistry.names()) == ["wmt_de"]
    TaskRegistry.remove("wmt_de")
    with pytest.raises(UnknownNameError, match="Nothing is registered: import the module that declares it"):
        TaskRegistry.get("wmt_de")


def test_sources_name_what_is_wrong(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    source = TextLineDataSource({"train": str(tmp_path / "*.txt")})

    with pytest.raises(TaskError, match="Dataset has too few files to shard. 1 files vs 3 shards requested."):
        source.get_dataset("train", shard_info=ShardInfo(0, 3))
    with pytest.raises(UnknownNameError, match=": there is no split 'test'. There are: train"):
        source.get_dataset("test")
    missing = TextLineDataSource({"train": str(tmp_path / "nope*")})
    message = r"No file is found for the file pattern: .*nope\*. Check the path, or leave out the split 'train'"
    with pytest.raises(SourceError, match=message):
        missing.get_dataset("train")
    with pytest.raises(SourceError, match=message):
        missing.list_shards("train")
    with pytest.raises(SourceError, match=message):
        list(Task("t", missing, FEATURES, [to_example]).examples())
    with pytest.raises(TaskError, match=r"must have initial args \('split', 'shuffle_files'\), got: \('a', 'b'\)"):
        FunctionDataSource(lambda a, b: None, splits=["train"])
    with pytest.raises(TaskError, match="may only have positional args"):
        FunctionDataSource(lambda split, shuffle_files, k: None, splits=["train"])
    with pytest.raises(TaskError, match="`FunctionDataSource` does not support low-level sharding"):
        NUMBERS.get_dataset("train", shard_info=ShardInfo(0, 2))
    with pytest.raises(TaskError, match=r"a shard index lies between 0 and num_shards - 1, got ShardInfo\(index=2"):
        ShardInfo(2, 2)


def test_a_split_without_python_examples_is_a_dataset_of_what_the_other_splits_hold() -> None:
    def rows(split, shuffle_files):
        return [{"targets": [1, 2]}] if split == "train" else []

    source = FunctionDataSource(rows, splits=["empty", "train"])

    dataset = source.get_dataset("empty", shuffle=False)
    assert list(dataset) == []
    assert dataset.element_spec == source.get_dataset("train", shuffle=False).element_spec
    task = Task("t", source, {"targets": Feature(PassThroughVocabulary(9))})
    assert not task.needs_tensorflow
    assert list(task.get_dataset(split="empty", shuffle=False)) == []
    assert list(task.examples(split="empty")) == []


def test_an_iterator_that_was_read_before_is_refused() -> None:
    examples = iter([{"targets": [1]}, {"targets": [2]}])
    task = Task("once", FunctionDataSource(lambda split, shuffle_files: examples, splits=["train"]), TARGETS)
    message = "gave the same iterator twice, which can be read only once. Make it a generator function, or return a new"

    with pytest.raises(TaskError, match=message):
        task.get_dataset(None, "train")
    assert [example["targets"].tolist() for example in task.examples()] == [[1], [2]]
    with pytest.raises(TaskError, match=message):
        list(task.examples())


@pytest.mark.parametrize("made", [None, {"targets": [1]}, "text"])
def test_a_source_function_gives_examples(made: object) -> None:
    task = Task("wrong", FunctionDataSource(lambda split, shuffle_files: made, splits=["train"]), FEATURES)

    with pytest.raises(TaskError, match="should return a tf.data.Dataset or an iterable of examples, got .* for split"):
        list(task.examples())


@pytest.mark.parametrize(
    "step", [preprocessors.tokenize, preprocessors.append_eos, preprocessors.append_eos_after_trim]
)
def test_examples_without_names_are_refused(step) -> None:
    rows = FunctionDataSource(lambda split, shuffle_files: ["a line"], splits=["train"])
    task = Task("unnamed", rows, {"targets": Feature(BYTES)}, [step])
    message = "takes examples that are dicts of features, got {}. Lines of text and single values need a step before it"

    with pytest.raises(TaskError, match=message.format("bytes")):
        list(task.examples())
    with pytest.raises(TaskError, match=message.format("TensorSpec")):
        task.get_dataset(None, "train")


def test_a_preprocessor_returns_a_dataset() -> None:
    task = Task("forgets", NUMBERS, FEATURES, [lambda dataset: None])

    with pytest.raises(TaskError, match="of task 'forgets' should return a tf.data.Dataset, got NoneType. Return the"):
        task.get_dataset(None, "train")


def test_an_unknown_argument_is_one_of_the_method(lines) -> None:
    with pytest.raises(TypeError, match=r"Task.get_dataset\(\) got an unexpected keyword argument 'shufle'"):
        Task("t", lines, TARGETS).get_dataset(shufle=True)
