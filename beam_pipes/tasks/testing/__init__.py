"""For tests of tasks: fake data, a fake vocabulary, assertions over datasets, and a task run from end to end."""

from __future__ import annotations

import importlib
from typing import Any

# Public name → the module under beam_pipes.tasks.testing that defines it.
MODULE_OF = {
    "DataInjector": "assertions",
    "FAKE_EXAMPLES": "fakes",
    "FakeLazyTfds": "fakes",
    "FakeMixtureTest": "fakes",
    "FakeTaskTest": "fakes",
    "FakeTfdsInfo": "fakes",
    "MockVocabulary": "fakes",
    "TEST_DATA_DIR": "fakes",
    "assert_dataset": "assertions",
    "assert_datasets_eq": "assertions",
    "assert_datasets_neq": "assertions",
    "assert_dict_contains": "assertions",
    "assert_dict_values_equal": "assertions",
    "bertwordpiece_vocab": "fakes",
    "clear_mixtures": "fakes",
    "clear_tasks": "fakes",
    "create_default_dataset": "fakes",
    "create_prediction": "assertions",
    "dataset_as_text": "assertions",
    "encode_str": "assertions",
    "get_fake_dataset": "fakes",
    "random_token_preprocessor": "fakes",
    "sentencepiece_vocab": "fakes",
    "split_tsv_preprocessor": "fakes",
    "test_postprocessing": "assertions",
    "test_preprocessing": "assertions",
    "test_preprocessing_single": "assertions",
    "test_task": "assertions",
    "test_text_preprocessor": "fakes",
    "test_token_preprocessor": "fakes",
    "token_preprocessor_no_sequence_length": "fakes",
}

__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
