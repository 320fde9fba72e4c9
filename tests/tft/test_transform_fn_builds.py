"""What tensorflow-transform learns in a build: the same values in training and at serving, and new shards alone."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tft_declarations
from built_files import built_files
from tft_declarations import RAW, preprocess, preprocess_in_phases

from beam_pipes import tasks
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import (
    AnalysisError,
    CacheNotFoundError,
    DeclarationError,
    MissingExtraError,
    SpecError,
    TaskError,
)
from beam_pipes.identity.canonical import Asset
from beam_pipes.on_device import DataLoader
from beam_pipes.runners import LocalOptions, build, cache_tasks
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.options import BeamOptions
from beam_pipes.tft import ApplyTransformFn, TransformFn, TransformFunction

ROOT = Path(__file__).parents[2]
REFERENCE = "tft_declarations:declared"
ONE = LocalOptions(workers=1)
REVIEWS_A_FILE = 100

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Rows]]:
    """Two files of reviews, each a source shard, as the input of the declarations."""
    directory = tmp_path_factory.mktemp("reviews")
    rows = []
    for seed, name in enumerate(("a", "b")):
        rows += tft_declarations.write_reviews(directory / f"{name}.jsonl", count=REVIEWS_A_FILE, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(tft_declarations.INPUT_VARIABLE, str(directory))
        yield directory, rows


@pytest.fixture(scope="module")
def built(reviews: tuple[Path, Rows], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built") / "cache"
    build(REFERENCE, directory, options=ONE)
    return directory


@pytest.fixture
def transform(built: Path) -> TransformFunction:
    return TransformFunction.of(Cache.open(built), "tft")


def exact(rows: Rows) -> list[dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """Rows in a form that is equal where all values are, bit for bit."""
    return [
        {
            name: (value.dtype.str, value.shape, value.tobytes())
            for name, each in row.items()
            for value in [np.array(each)]
        }
        for row in rows
    ]


def rows_of(batch: Mapping[str, Any]) -> Rows:
    """A batch of tensors, row by row."""
    import tensorflow as tf

    columns = {}
    for name, value in batch.items():
        if isinstance(value, tf.SparseTensor):
            value = tf.RaggedTensor.from_sparse(value)
        if isinstance(value, tf.RaggedTensor):
            columns[name] = np.split(value.flat_values.numpy(), value.row_splits.numpy()[1:-1])
        else:
            columns[name] = list(value.numpy())
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


SERVE = """
import json, sys
for name in ("apache_beam", "tensorflow_transform", "tfx_bsl", "pyarrow"):
    sys.modules[name] = None  # importing it raises
from beam_pipes.tft import TransformFunction
transform = TransformFunction(sys.argv[1])
reviews = json.load(sys.stdin)
rows = [transform.examples([review])[0] for review in reviews]
print(json.dumps([{name: [value.dtype.str, value.shape, value.tobytes().hex()] for name, value in row.items()}
                  for row in rows]))
"""


def served(directory: Path, reviews: Rows) -> list[dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """Reviews one by one through a process that has neither Beam nor tensorflow-transform."""
    output = subprocess.run(
        [sys.executable, "-c", SERVE, str(directory)],
        input=json.dumps(reviews),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ).stdout
    return [
        {name: (dtype, tuple(shape), bytes.fromhex(data)) for name, (dtype, shape, data) in row.items()}
        for row in json.loads(output)
    ]


class TestTrainingAndServing:
    def test_values_are_equal_bit_for_bit_wherever_the_function_is_applied(
        self, built: Path, reviews: tuple[Path, Rows], transform: TransformFunction
    ) -> None:
        cache = Cache.open(built)
        in_the_build = [{name: row[name] for name in transform.outputs} for row in cache["train"]]

        loader = DataLoader.from_cache(
            cache, "raw", batch_size=32, ragged="values", shuffle=False, epochs=1, last="partial"
        )
        in_the_loader = [row for batch in loader.map(transform) for row in rows_of(batch)]
        keras_layer = cache.tf_transform_output("tft").transform_features_layer()
        by_keras = rows_of(keras_layer(transform.raw_features.tensors(transform.raw_features.columns(reviews[1]))))
        some = slice(REVIEWS_A_FILE - 20, REVIEWS_A_FILE + 20)
        at_serving = served(Path(cache.asset_path("tft")), reviews[1][some])

        assert len(in_the_build) == 2 * REVIEWS_A_FILE
        assert exact(in_the_loader) == exact(in_the_build)
        assert exact(by_keras) == exact(in_the_build)
        assert at_serving == exact(in_the_build[some])

    def test_values_are_what_the_analyzers_mean(self, built: Path, reviews: tuple[Path, Rows]) -> None:
        cache = Cache.open(built)
        stars = np.array([review["stars"] for review in reviews[1]])
        prices = np.array([review["price"] for review in reviews[1]])
        counts = collections.Counter(word for review in reviews[1] for word in review["words"])
        ids = {word: at for at, word in enumerate(sorted(counts, key=lambda word: (counts[word], word), reverse=True))}

        rows = list(cache["train"])

        np.testing.assert_allclose([row["stars_z"] for row in rows], (stars - stars.mean()) / stars.std(), rtol=1e-4)
        expected = (prices - prices.min(axis=0)) / (prices.max(axis=0) - prices.min(axis=0))
        np.testing.assert_allclose([row["price_01"] for row in rows], expected, atol=1e-6)
        assert [row["word_ids"].tolist() for row in rows] == [
            [ids[word] for word in review["words"]] for review in reviews[1]
        ]
        assert [row["useful"] for row in rows] == [review["useful"] for review in reviews[1]]
        assert sorted({int(row["stars_bucket"]) for row in rows}) == [0, 1, 2, 3]
        np.testing.assert_array_equal([row["price"] for row in rows], prices.astype(np.float32))

    def test_a_label_that_serving_lacks_costs_what_depends_on_it(self, transform: TransformFunction) -> None:
        request = {"stars": np.array([1.0, 2.0], np.float32)}

        assert sorted(transform(request)) == ["stars_bucket", "stars_z"]
        assert sorted(transform.outputs) == ["price_01", "stars_bucket", "stars_z", "useful", "word_ids"]

    def test_a_request_parsed_from_tf_examples_gives_the_same(
        self, transform: TransformFunction, reviews: tuple[Path, Rows]
    ) -> None:
        import tensorflow as tf

        def feature(values: Sequence[Any]) -> Any:
            if isinstance(values[0] if values else "", str):
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode() for value in values]))
            if isinstance(values[0], float):
                return tf.train.Feature(float_list=tf.train.FloatList(value=values))
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

        some = reviews[1][:9]
        requests = [
            tf.train.Example(
                features=tf.train.Features(
                    feature={
                        name: feature(value if isinstance(value, list) else [value]) for name, value in review.items()
                    }
                )
            ).SerializeToString()
            for review in some
        ]

        parsed = tf.io.parse_example(requests, transform.raw_features.feature_spec())

        assert exact(rows_of(transform(parsed))) == exact(transform.examples(some))

    def test_unknown_words_take_the_bucket_for_them(self, transform: TransformFunction) -> None:
        request = {"words": np.array([b"never seen"], object), "words/lengths": np.array([1])}

        assert transform(request)["word_ids"].values.numpy().tolist() == [len(tft_declarations.WORDS)]

    def test_features_to_keep_pass_through(self, built: Path) -> None:
        transform = TransformFunction.of(Cache.open(built), "tft", keep=("id",))

        made = transform({"useful": np.array([1]), "id": np.array([7])})

        assert {name: np.asarray(value).tolist() for name, value in made.items()} == {"useful": [1], "id": [7]}

    def test_vocabularies_and_schemas_are_there_as_tensorflow_transform_reads_them(self, built: Path) -> None:
        output = Cache.open(built).tf_transform_output("tft")

        assert output.vocabulary_size_by_name("words") == len(tft_declarations.WORDS)
        assert sorted(output.raw_feature_spec()) == sorted(RAW)
        assert sorted(output.transformed_feature_spec()) == [
            "price_01",
            "stars_bucket",
            "stars_z",
            "useful",
            "word_ids",
        ]


def accumulators(cache: Path) -> dict[str, tuple[int, int]]:
    """Each file of accumulators with what would change if it were written again."""
    return {
        str(path.relative_to(cache)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (cache / "analysis" / "accumulators").rglob("content")
    }


def test_only_new_source_shards_are_analysed_again_and_beam_makes_the_same_bytes(
    reviews: tuple[Path, Rows], built: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "grown"
    shutil.copytree(built, cache)
    before = accumulators(cache)
    new = reviews[0] / "c.jsonl"
    tft_declarations.write_reviews(new, count=REVIEWS_A_FILE, seed=3)
    try:
        grown = build(REFERENCE, cache, options=ONE)
        whole = build(REFERENCE, tmp_path / "whole", options=BeamOptions(runner=IN_PROCESS_RUNNER))
    finally:
        new.unlink()
    after = accumulators(cache)

    assert len(before) == 2
    assert len(after) == 3
    assert {path: after[path] for path in before} == before
    assert grown.snapshot == whole.snapshot != Cache.open(built).manifest.snapshot
    at = f"snapshots/{grown.snapshot}"
    assert built_files(cache / at) == built_files(tmp_path / "whole" / at)


# One source shard after the other, without a build around it.


def examples(count: int) -> Rows:
    rng = np.random.default_rng(5)
    return [
        {
            "stars": float(rng.integers(1, 40)) / 8,
            "words": [str(word) for word in rng.choice(tft_declarations.WORDS, rng.integers(5))],
            "price": rng.integers(0, 9, 2).astype(np.float32),
            "useful": int(rng.integers(2)),
        }
        for _ in range(count)
    ]


def analyse(learned: TransformFn, shards: Sequence[Rows], directory: Path) -> list[str]:
    """An accumulator of each shard."""
    paths = []
    for number, shard in enumerate(shards):
        accumulator = learned.accumulator()
        accumulator.add(shard, [f"file@{at}" for at in range(len(shard))])
        paths.append(str(directory / f"accumulator-{number}"))
        accumulator.save(paths[-1])
    return paths


def test_an_analyzer_of_what_another_one_scaled_sees_all_inputs_again(tmp_path: Path) -> None:
    learned = TransformFn("tft", preprocessing_fn=preprocess_in_phases, features=RAW)
    rows = examples(90)

    paths = analyse(learned, [rows[:40], [], rows[40:]], tmp_path)
    for name in ("once", "again"):
        learned.merge(paths, str(tmp_path / name))

    stars = np.array([row["stars"] for row in rows])
    scaled = ((stars - stars.min()) / (stars.max() - stars.min())) ** 2
    expected = (scaled - scaled.mean()) / scaled.std()
    found = learned.read(str(tmp_path / "once")).examples(rows)
    np.testing.assert_allclose([row["stars_zz"] for row in found], expected, rtol=1e-3, atol=1e-5)
    assert [row["steps"] for row in found] == [3 * row["useful"] for row in rows]
    # The same bytes, although TensorFlow counts on and takes other temporary files.
    assert Asset(tmp_path / "once").digest() == Asset(tmp_path / "again").digest()


def preprocess_with_a_ptransform(inputs: Mapping[str, Any]) -> dict[str, Any]:
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft

    class Largest(beam.PTransform):  # type: ignore[misc]
        def expand(self, pcoll: Any) -> Any:
            largest = pcoll | beam.Map(lambda arrays: arrays[0].max()) | beam.CombineGlobally(max).without_defaults()
            return largest | beam.Map(np.asarray)

    (largest,) = tft.experimental.ptransform_analyzer([inputs["stars"]], Largest(), [tf.float32], [[]])
    return {"of_largest": inputs["stars"] / largest}


def test_an_analyzer_whose_accumulators_cannot_be_kept_sees_all_inputs_again(tmp_path: Path) -> None:
    learned = TransformFn("tft", preprocessing_fn=preprocess_with_a_ptransform, features=RAW)
    rows = examples(30)

    learned.merge(analyse(learned, [rows[:20], [], rows[20:]], tmp_path), str(tmp_path / "result"))

    largest = max(row["stars"] for row in rows)
    found = learned.read(str(tmp_path / "result")).examples(rows)
    np.testing.assert_allclose(
        [row["of_largest"] for row in found], [row["stars"] / largest for row in rows], rtol=1e-6
    )


def preprocess_ragged(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"num_words": inputs["words"].row_lengths(), "words": inputs["words"]}


def test_varying_features_come_as_ragged_tensors_where_that_is_asked_for(tmp_path: Path) -> None:
    learned = TransformFn("tft", preprocessing_fn=preprocess_ragged, features=RAW, varying="ragged")
    rows = examples(5)

    learned.merge(analyse(learned, [rows], tmp_path), str(tmp_path / "result"))

    found = learned.read(str(tmp_path / "result")).examples(rows)
    assert [row["num_words"] for row in found] == [len(row["words"]) for row in rows]
    assert [row["words"].tolist() for row in found] == [[word.encode() for word in row["words"]] for row in rows]


# Errors.


def preprocess_misspelt(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"stars": inputs["strs"]}


def preprocess_failing_on_data(inputs: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf
    import tensorflow_transform as tft

    with tf.control_dependencies([tf.debugging.assert_less(inputs["stars"], 3.0, message="too many stars")]):
        return {"stars": tft.scale_to_z_score(tf.identity(inputs["stars"]))}


class TestErrors:
    def test_a_function_that_fails_is_named_with_its_inputs(self, tmp_path: Path) -> None:
        learned = TransformFn("tft", preprocessing_fn=preprocess_misspelt, features=RAW)

        with pytest.raises(
            AnalysisError,
            match=r"analyzer 'tft': the preprocessing_fn .*preprocess_misspelt failed while analysing a source shard: "
            r"KeyError: 'strs'\. "
            r"It was given price \(float32 of shape \(None, 2\)\), stars .*words \(sparse string\)\. "
            "Repair the function, or the features of the TransformFn",
        ):
            analyse(learned, [examples(3)], tmp_path)

    def test_a_function_that_fails_on_data_is_named_with_what_it_said(self, tmp_path: Path) -> None:
        learned = TransformFn("tft", preprocessing_fn=preprocess_failing_on_data, features=RAW)

        with pytest.raises(
            AnalysisError,
            match=r"preprocess_failing_on_data failed while analysing a source shard: \w+: .*too many stars",
        ):
            analyse(learned, [examples(20)], tmp_path)

    def test_a_library_that_is_missing_is_named_with_its_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learned = TransformFn("tft", preprocessing_fn=preprocess, features=RAW)
        monkeypatch.setitem(sys.modules, "tensorflow_transform", None)

        with pytest.raises(
            MissingExtraError,
            match=r"a TransformFn needs tensorflow_transform, which is not installed: "
            r"pip install 'beam-pipes\[tft\]'",
        ):
            analyse(learned, [examples(3)], tmp_path)

    def test_a_record_that_does_not_fit_is_named(self, tmp_path: Path) -> None:
        learned = TransformFn("tft", preprocessing_fn=preprocess, features=RAW)
        rows = examples(5)
        rows[3]["price"] = [1.0]

        with pytest.raises(
            AnalysisError, match=r"analyzer 'tft': record 'file@3' does not fit .*'price': expected shape"
        ):
            analyse(learned, [rows], tmp_path)

    def test_a_reference_that_leads_nowhere_is_named(self) -> None:
        learned = TransformFn("tft", preprocessing_fn="tft_declarations:nothing", features=RAW)

        with pytest.raises(DeclarationError, match="'tft_declarations:nothing' cannot be imported: .*nothing"):
            learned.fingerprint_config()

    def test_what_is_not_a_function_is_refused(self) -> None:
        with pytest.raises(DeclarationError, match="'tft': preprocessing_fn should be a function .*got 'preprocess'"):
            TransformFn("tft", preprocessing_fn="preprocess", features=RAW)

    def test_features_that_tensorflow_transform_cannot_take_are_refused(self) -> None:
        with pytest.raises(SpecError, match="analyzer 'tft': feature 'x': tensorflow-transform knows int64, float32"):
            TransformFn("tft", preprocessing_fn=preprocess, features={"x": FeatureSpec("float64")})

    def test_features_that_the_function_does_not_take_are_refused(self, transform: TransformFunction) -> None:
        with pytest.raises(SpecError, match=r"takes \['price', .*'words'\], and got \['color'\] besides.*keep="):
            transform({"stars": np.array([1.0], np.float32), "color": np.array([1])})

    def test_a_request_without_any_feature_is_refused(self, transform: TransformFunction) -> None:
        with pytest.raises(SpecError, match="takes .*and got none of them"):
            transform({})

    def test_padded_values_of_a_varying_feature_are_refused(self, transform: TransformFunction) -> None:
        padded = np.array([[b"good", b""], [b"bad", b"odd"]], object)

        with pytest.raises(
            SpecError, match="'words' varies by example: .*shape .*without lengths. Read the cache with"
        ):
            transform({"words": padded})

    def test_another_shape_is_refused(self, transform: TransformFunction) -> None:
        with pytest.raises(SpecError, match=r"'price': expected a batch of shape \(None, 2\), got \(2, 3\)"):
            transform({"price": np.zeros((2, 3), np.float32)})

    def test_another_dtype_is_refused(self, transform: TransformFunction) -> None:
        with pytest.raises(SpecError, match="'useful': expected int64, or what is exact in it, got float32"):
            transform({"useful": np.zeros(2, np.float32)})

    def test_what_is_transformed_cannot_be_kept_as_it_was(self, built: Path) -> None:
        learned = TransformFn("tft", preprocessing_fn=preprocess, features=RAW)
        learned.result.bind(Cache.open(built).asset_path("tft"))
        example = {**examples(1)[0], "id": 1}

        with pytest.raises(DeclarationError, match=r"\['useful'\] are transformed features, and to be kept"):
            ApplyTransformFn(result=learned.result, keep=("useful",)).transform(example)
        with pytest.raises(SpecError, match="expected the feature 'name', which is to be kept"):
            ApplyTransformFn(result=learned.result, keep=("name",)).transform(example)
        with pytest.raises(SpecError, match="'useful' is both a transformed feature and one to keep"):
            TransformFunction.of(Cache.open(built), "tft", keep=("useful",))({"useful": np.array([1])})


# Tasks.


@tasks.python_map
def parse_row(line: bytes) -> dict[str, Any]:
    stars, words = line.decode().split("\t")
    return {"stars": np.float32(stars), "words": np.array(words.split(), object)}


def preprocess_row(inputs: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow_transform as tft

    return {
        "stars": tft.scale_to_z_score(inputs["stars"]),
        "inputs": tft.compute_and_apply_vocabulary(inputs["words"], num_oov_buckets=1),
    }


def reviews_task(directory: Path, *, cut: bool = True) -> tasks.Task:
    (directory / "train.tsv").write_text("1\tgood good food\n3\tbad food\n")
    (directory / "validation.tsv").write_text("9\tnew food\n")
    tasks.TaskRegistry.remove("tft_reviews")
    return tasks.TaskRegistry.add(
        "tft_reviews",
        tasks.TextLineDataSource({split: str(directory / f"{split}.tsv") for split in ("train", "validation")}),
        output_features={"inputs": tasks.Feature(tasks.PassThroughVocabulary(10, eos_id=9), dtype=np.int64)},
        preprocessors=[parse_row, *([tasks.CacheDatasetPlaceholder()] if cut else []), tasks.preprocessors.append_eos],
        preprocessing_fn=preprocess_row,
    )


@pytest.fixture
def no_cache_dirs() -> Iterator[None]:
    before = tasks.get_global_cache_dirs()
    yield
    tasks.set_global_cache_dirs(before)
    tasks.TaskRegistry.remove("tft_reviews")


class TestTasks:
    def test_a_task_learns_from_its_training_split_and_applies_to_all(
        self, tmp_path: Path, no_cache_dirs: None
    ) -> None:
        task = reviews_task(tmp_path)
        with pytest.raises(CacheNotFoundError, match="tft_reviews"):
            task.get_dataset({"inputs": 9}, "train", use_cached=False)

        cache_tasks(["tft_reviews"], tmp_path / "caches", options=ONE)
        tasks.set_global_cache_dirs([str(tmp_path / "caches")])

        found = {
            split: [
                (float(example["stars"]), example["inputs"].tolist())
                for example in task.get_dataset(
                    {"inputs": 9}, split, use_cached=True, shuffle=False
                ).as_numpy_iterator()
            ]
            for split in ("train", "validation")
        }
        assert found == {"train": [(-1.0, [0, 0, 1, 9]), (1.0, [2, 1, 9])], "validation": [(7.0, [3, 1, 9])]}

    def test_a_task_without_a_cut_has_no_place_for_what_is_learned(self, tmp_path: Path, no_cache_dirs: None) -> None:
        with pytest.raises(TaskError, match="'tft_reviews' has a preprocessing_fn, .* add a CacheDatasetPlaceholder"):
            reviews_task(tmp_path, cut=False)
