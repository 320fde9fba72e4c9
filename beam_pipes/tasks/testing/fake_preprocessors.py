"""Preprocessors for the fake data. Need TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.tasks.dataset_map import map_over_dataset
from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.tensorflow_import import tensorflow


@map_over_dataset
def test_text_preprocessor(example: Mapping[str, Any]) -> dict[str, Any]:
    """`prefix` and `suffix` → `inputs`, `"complete: " + prefix`, and `targets`, the suffix."""
    tf = tensorflow("test_text_preprocessor")
    return {"inputs": tf.strings.join(["complete: ", example["prefix"]]), "targets": example["suffix"]}


def split_tsv_preprocessor(dataset: Any, field_names: Sequence[str] = ("prefix", "suffix")) -> Any:
    """Lines with tabs → a feature a field."""
    tf = tensorflow("split_tsv_preprocessor")

    def parse(line: Any) -> dict[str, Any]:
        fields = tf.io.decode_csv(line, [""] * len(field_names), field_delim="\t", use_quote_delim=False)
        return dict(zip(field_names, fields, strict=True))

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def test_token_preprocessor(
    dataset: Any, output_features: Mapping[str, Feature], sequence_length: Mapping[str, int] | None
) -> Any:
    """Doubles every token of the output features."""
    return token_preprocessor_no_sequence_length(dataset, output_features)


def token_preprocessor_no_sequence_length(dataset: Any, output_features: Mapping[str, Feature]) -> Any:
    """Doubles every token of the output features, without asking for the sequence length."""

    @map_over_dataset
    def double(example: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value * 2 if name in output_features else value for name, value in example.items()}

    return double(dataset)


@map_over_dataset(num_seeds=1)  # type: ignore[untyped-decorator]
def random_token_preprocessor(example: Mapping[str, Any], seed: Any, sequence_length: Any) -> dict[str, Any]:
    """Adds `random`, a number below 1,000, and leaves the rest."""
    tf = tensorflow("random_token_preprocessor")
    return {**example, "random": tf.random.stateless_uniform((), seed, 0, 1000, tf.int32)}


for _function in (test_text_preprocessor, test_token_preprocessor):
    _function.__dict__["__test__"] = False  # not for pytest to collect
