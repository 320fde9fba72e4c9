"""For tests of tasks: fake data, a fake vocabulary, assertions over datasets, and a task run from end to end."""

from __future__ import annotations

import importlib
from typing import Any

# Public name → the module under beam_pipes.tasks.testing that defines it.
MODULE_OF = {
    "DataInjector": "data_injector",
    "FAKE_EXAMPLES": "fake_data",
    "FakeMixtureTest": "fake_tasks",
    "FakeTaskTest": "fake_tasks",
    "MockVocabulary": "mock_vocabulary",
    "assert_dataset": "assertions",
    "assert_datasets_eq": "assertions",
    "assert_datasets_neq": "assertions",
    "assert_dict_contains": "assertions",
    "assert_dict_values_equal": "assertions",
    "clear_mixtures": "fake_tasks",
    "clear_tasks": "fake_tasks",
    "create_default_dataset": "fake_data",
    "create_prediction": "task_run",
    "dataset_as_text": "assertions",
    "encode_str": "task_run",
    "get_fake_dataset": "fake_data",
    "random_token_preprocessor": "fake_preprocessors",
    "split_tsv_preprocessor": "fake_preprocessors",
    "test_postprocessing": "task_run",
    "test_preprocessing": "task_run",
    "test_preprocessing_single": "task_run",
    "test_task": "task_run",
    "test_text_preprocessor": "fake_preprocessors",
    "test_token_preprocessor": "fake_preprocessors",
    "token_preprocessor_no_sequence_length": "fake_preprocessors",
}

__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
