"""Preprocessors for the fake data. Need TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.in_tensorflow.dataset_map import map_over_dataset
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow


@map_over_dataset
def test_text_preprocessor(example: Mapping[str, Any]) -> dict[str, Any]:
    """`prefix` and `suffix` → `inputs`, `"complete: " + prefix`, and `targets`, the suffix; the rest stays."""
    tf = tensorflow("test_text_preprocessor")
    rest = {name: value for name, value in example.items() if name not in ("prefix", "suffix")}
    return {**rest, "inputs": tf.strings.join(["complete: ", example["prefix"]]), "targets": example["suffix"]}


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
    """Changes every token of `inputs` above 15 to 50."""
    return token_preprocessor_no_sequence_length(dataset, output_features)


def token_preprocessor_no_sequence_length(dataset: Any, output_features: Mapping[str, Feature]) -> Any:
    """Changes every token of `inputs` above 15 to 50, without asking for the sequence length."""
    tf = tensorflow("token_preprocessor_no_sequence_length")

    @map_over_dataset
    def change(example: Mapping[str, Any]) -> dict[str, Any]:
        inputs = example["inputs"]
        return {**example, "inputs": tf.where(inputs > 15, tf.constant(50, inputs.dtype), inputs)}

    return change(dataset)


@map_over_dataset(num_seeds=1)  # type: ignore[untyped-decorator]
def random_token_preprocessor(example: Mapping[str, Any], seed: Any, sequence_length: Any) -> dict[str, Any]:
    """Rolls the tokens of each feature of `sequence_length` by a number drawn for the example."""
    tf = tensorflow("random_token_preprocessor")

    def rolled(tokens: Any) -> Any:
        shift = tf.random.stateless_uniform((), seed, 0, tf.maximum(tf.size(tokens), 1), tf.int32)
        return tf.roll(tokens, shift, axis=0)

    return {name: rolled(value) if name in sequence_length else value for name, value in example.items()}


for _function in (test_text_preprocessor, test_token_preprocessor):
    _function.__dict__["__test__"] = False  # not for pytest to collect
