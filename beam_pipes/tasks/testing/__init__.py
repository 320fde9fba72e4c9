"""For tests of tasks: fake data, a fake vocabulary, assertions over datasets, and a task run from end to end."""

from __future__ import annotations

from beam_pipes.extras import loaded_on_first_use

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "assertions": (
            "DataInjector assert_dataset assert_datasets_eq assert_datasets_neq assert_dict_contains "
            "assert_dict_values_equal create_prediction dataset_as_text encode_str test_postprocessing "
            "test_preprocessing test_preprocessing_single test_task"
        ),
        "fakes": (
            "FAKE_EXAMPLES FakeLazyTfds FakeMixtureTest FakeTaskTest FakeTfdsInfo MockVocabulary TEST_DATA_DIR "
            "bertwordpiece_vocab clear_mixtures clear_tasks create_default_dataset get_fake_dataset "
            "random_token_preprocessor sentencepiece_vocab split_tsv_preprocessor test_text_preprocessor "
            "test_token_preprocessor token_preprocessor_no_sequence_length"
        ),
    },
)
__all__ = __dir__()
