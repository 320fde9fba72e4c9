"""The library's preprocessors over columns of many examples: the same results as their other forms, for loaders.

A column form makes of each feature something that depends on this feature alone, and works without values too: then
it says how long the results are, which is what rows are planned by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from beam_pipes.tasks.feature_steps import append_eos_to_features
from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.token_column import TokenColumn

OutputFeatures = Mapping[str, Feature]
Columns = Mapping[str, TokenColumn]


def append_eos(columns: Columns, output_features: OutputFeatures) -> dict[str, TokenColumn]:
    return append_eos_after_trim(columns, output_features, None)


def append_eos_after_trim(
    columns: Columns, output_features: OutputFeatures, sequence_length: Mapping[str, Any] | None = None
) -> dict[str, TokenColumn]:
    return append_eos_to_features(
        columns,
        output_features,
        sequence_length,
        trim=lambda column, length: column.first(max(_of_first_axis(length) - 1, 0)),
        append=lambda name, column, eos: column.with_end(eos),
    )


def truncate_inputs_left(columns: Columns, sequence_length: Mapping[str, Any] | None = None) -> dict[str, TokenColumn]:
    length = (sequence_length or {}).get("inputs")
    if length is None or "inputs" not in columns:
        return dict(columns)
    return {**columns, "inputs": columns["inputs"].last(_of_first_axis(length))}


def trim_features(
    columns: Columns, sequence_length: Mapping[str, Any] | None, output_features: OutputFeatures
) -> dict[str, TokenColumn]:
    lengths = sequence_length or {}
    return {
        name: column
        if name not in output_features or lengths.get(name) is None
        else column.first(_of_first_axis(lengths[name]))
        for name, column in columns.items()
    }


def _of_first_axis(length: Any) -> int:
    return int(length[0] if isinstance(length, (list, tuple)) else length)


def with_column_form(form: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a preprocessor a form over columns that means the same."""

    def decorate(preprocessor: Callable[..., Any]) -> Callable[..., Any]:
        preprocessor.__dict__["column_form"] = form
        return preprocessor

    return decorate
