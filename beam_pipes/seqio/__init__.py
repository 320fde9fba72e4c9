"""The names of SeqIO, module by module: `import beam_pipes.seqio as seqio`.

`NAMES` says, for each module of SeqIO, which names it offers and which chapter of beam-pipes each of them comes from.
The modules are made from it, and a name is imported when it is first used:

    seqio.utils.trim_dataset             → beam_pipes.tasks.column_forms.trim_dataset
    from beam_pipes.seqio import metrics → a module that offers the row "metrics" of the table
    seqio.Feature                        → as at the top of SeqIO: the names of the modules in `FLAT`
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import Any

# Module of SeqIO → its story, and module under beam_pipes → the names that it gives.
NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "dataset_providers": (
        "Tasks, mixtures, sources and registries.",
        {
            "tasks": (
                "CacheDatasetPlaceholder ContinuousFeature DataSource DataSourceInterface DatasetProviderBase "
                "DatasetProviderRegistry Feature FileDataSource FunctionDataSource Mixture MixtureRegistry "
                "PassThroughFeature PassThroughVocabulary ProtoDataSource ShardInfo SourceInfo TFExampleDataSource "
                "Task TaskRegistry TextLineDataSource TfdsDataSource Vocabulary get_dataset get_mixture_or_task "
                "get_subtasks maybe_get_mixture_or_task python_map"
            ),
            "tasks.sources.function_source": "DatasetFnCallable",
            "tasks.task": "SHUFFLE_BUFFER_SIZE",
            "transforms.converters": "FeatureConverter",
        },
    ),
    "evaluation": (
        "The evaluator.",
        {
            "evaluation": (
                "AllMetricsFuture Evaluator ModelFnCallable ModelOutputType PredictFnCallable ScoreFnCallable "
                "evaluate_mixture get_valid_eval_tasks"
            ),
            "evaluation.loggers": "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder TensorBoardLogger",
            "tasks": "Task",
            "transforms.converters": "EncDecFeatureConverter FeatureConverter",
        },
    ),
    "experimental": (
        "Fully cached tasks, few-shot tasks, tasks with sentinels.",
        {
            "tasks": "CacheDatasetPlaceholder Mixture MixtureRegistry ShardInfo Task TaskRegistry",
            "tasks.experimental": (
                "FewshotDataSource add_fully_cached_mixture add_fully_cached_task add_task_with_sentinels "
                "disable_registry fewshot_preprocessor"
            ),
        },
    ),
    "feature_converters": (
        "Feature converters.",
        {
            "transforms.converters": (
                "DecoderFeatureConverter EncDecFeatureConverter EncoderFeatureConverter FeatureConverter "
                "LMFeatureConverter PassThroughFeatureConverter PrePackedEncDecFeatureConverter "
                "PrePackedLMFeatureConverter PrePackedPrefixLMFeatureConverter PrefixLMFeatureConverter "
                "PrefixSuffixLMFeatureConverter autoregressive_inputs non_padding_position"
            ),
        },
    ),
    "helpers": (
        "Tasks and mixtures made of others.",
        {
            "tasks.derived": (
                "TruncatedDatasetProvider mixture_or_task_with_new_vocab mixture_or_task_with_truncated_data "
                "mixture_with_missing_task_splits_removed"
            ),
        },
    ),
    "loggers": (
        "Loggers of evaluation results.",
        {
            "evaluation.loggers": (
                "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder TensorBoardLogger TensorBoardLoggerV1"
            ),
        },
    ),
    "metrics": (
        "Metrics and metric values.",
        {
            "evaluation.metrics": (
                "Audio CollectingMetric Generic Histogram Image LegacyMetric Metric MetricFnCallable MetricValue "
                "ModelOutputType PassthroughLegacyMetric Scalar Text globally_sort_model_output "
                "remove_padding_examples"
            ),
        },
    ),
    "preprocessors": (
        "Preprocessors.",
        {
            "tasks.preprocessors": (
                "append_eos append_eos_after_trim append_eos_after_trim_impl apply_feature_converter "
                "preprocess_tensorflow_examples print_dataset rekey tokenize tokenize_and_append_eos tokenize_impl "
                "truncate_inputs_left"
            ),
        },
    ),
    "test_utils": (
        "Fake data and assertions for tests of tasks.",
        {
            "tasks": "MixtureRegistry TaskRegistry",
            "tasks.testing": (
                "DataInjector FakeMixtureTest FakeTaskTest MockVocabulary assert_dataset assert_datasets_eq "
                "assert_datasets_neq assert_dict_contains assert_dict_values_equal clear_mixtures clear_tasks "
                "create_default_dataset create_prediction dataset_as_text encode_str get_fake_dataset "
                "random_token_preprocessor split_tsv_preprocessor test_postprocessing test_preprocessing "
                "test_preprocessing_single test_task test_text_preprocessor test_token_preprocessor "
                "token_preprocessor_no_sequence_length"
            ),
        },
    ),
    "utils": (
        "Everything that has no other module here.",
        {
            "tasks": (
                "Feature Vocabulary add_global_cache_dirs get_global_cache_dirs map_over_dataset "
                "mixing_rate_num_characters mixing_rate_num_examples set_global_cache_dirs unimax_rates"
            ),
            "tasks.caches.places": (
                "get_cached_info_path get_cached_stats_path get_cached_tfrecord_prefix get_task_dir_from_name"
            ),
            "tasks.column_forms": "trim_and_pad_dataset trim_dataset",
            "tasks.in_tensorflow.dataset_map": (
                "dict_to_tfexample stateless_shuffle tfexample_ragged_length_key tfexample_sparse_indices_key "
                "tfexample_to_dict"
            ),
            "tasks.in_tensorflow.runtime": "list_files",
            "tasks.in_tensorflow.packing": "make_autoregressive_inputs packing_density trim_and_pack_dataset",
            "tasks.seeds": "map_seed_manager set_preprocessor_seed",
            "tasks.signatures": (
                "add_kwargs_to_transform flatten_dict fully_qualified_class_name function_name unflatten_dict"
            ),
            "tasks.sources.tfds": "LazyTfdsLoader TfdsSplit set_tfds_data_dir_override set_tfds_read_config_override",
        },
    ),
    "vocabularies": (
        "Vocabularies.",
        {
            "tasks": (
                "BertWordPieceVocabulary ByteVocabulary FullCodepointVocabulary PartialCodepointVocabulary "
                "PassThroughVocabulary SentencePieceVocabulary TokenizersVocabulary UnigramVocabulary Vocabulary"
            ),
            "tasks.vocabularies": "PAD_ID",
        },
    ),
}
SUBMODULES = tuple(NAMES)
#: Submodules whose names are also offered here.
FLAT = ("dataset_providers", "feature_converters", "loggers", "utils", "vocabularies")


class _ModuleOfNames(types.ModuleType):
    """A module that offers names of others.

    Attributes:
        HOMES: name → the module that it comes from.
    """

    def __init__(self, name: str, story: str, names: dict[str, str]) -> None:
        super().__init__(name, story)
        # importlib.util.find_spec, which pkgutil and doctest ask, refuses a loaded module that has no spec.
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.__package__ = __name__
        self.HOMES = {name: f"beam_pipes.{home}" for home, listed in names.items() for name in listed.split()}
        self.__all__ = sorted(self.HOMES)

    def __getattr__(self, name: str) -> Any:
        if name not in self.HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(self.HOMES[name]), name)

    def __dir__(self) -> list[str]:
        return self.__all__


_MODULES = {name: _ModuleOfNames(f"{__name__}.{name}", *content) for name, content in NAMES.items()}
# `import beam_pipes.seqio.utils` finds a module that is known already.
sys.modules.update({module.__name__: module for module in _MODULES.values()})
_FLAT_HOMES = {"Evaluator": "beam_pipes.evaluation"}
for _submodule in FLAT:
    _FLAT_HOMES.update(_MODULES[_submodule].HOMES)

__all__ = ["Evaluator", *SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _MODULES[name]
    if name in _FLAT_HOMES:
        return getattr(importlib.import_module(_FLAT_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_FLAT_HOMES})
