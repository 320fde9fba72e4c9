"""Fake data and assertions for tests of tasks. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "DataInjector": "beam_pipes.tasks.testing",
    "FakeMixtureTest": "beam_pipes.tasks.testing",
    "FakeTaskTest": "beam_pipes.tasks.testing",
    "MixtureRegistry": "beam_pipes.tasks.registry",
    "MockVocabulary": "beam_pipes.tasks.testing",
    "TaskRegistry": "beam_pipes.tasks.registry",
    "assert_dataset": "beam_pipes.tasks.testing",
    "assert_datasets_eq": "beam_pipes.tasks.testing",
    "assert_datasets_neq": "beam_pipes.tasks.testing",
    "assert_dict_contains": "beam_pipes.tasks.testing",
    "assert_dict_values_equal": "beam_pipes.tasks.testing",
    "clear_mixtures": "beam_pipes.tasks.testing",
    "clear_tasks": "beam_pipes.tasks.testing",
    "create_default_dataset": "beam_pipes.tasks.testing",
    "create_prediction": "beam_pipes.tasks.testing",
    "dataset_as_text": "beam_pipes.tasks.testing",
    "encode_str": "beam_pipes.tasks.testing",
    "get_fake_dataset": "beam_pipes.tasks.testing",
    "random_token_preprocessor": "beam_pipes.tasks.testing",
    "split_tsv_preprocessor": "beam_pipes.tasks.testing",
    "test_postprocessing": "beam_pipes.tasks.testing",
    "test_preprocessing": "beam_pipes.tasks.testing",
    "test_preprocessing_single": "beam_pipes.tasks.testing",
    "test_task": "beam_pipes.tasks.testing",
    "test_text_preprocessor": "beam_pipes.tasks.testing",
    "test_token_preprocessor": "beam_pipes.tasks.testing",
    "token_preprocessor_no_sequence_length": "beam_pipes.tasks.testing",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
