"""The names of SeqIO, module by module: `import beam_pipes.seqio as seqio`.

`NAMES` says, for each module of SeqIO, which names it has and which module of beam-pipes each of them comes from.
The modules are created from it, and a name is imported on first use:

    seqio.utils.trim_dataset             → beam_pipes.tasks.steps.sequences.trim_dataset
    from beam_pipes.seqio import metrics → a module with the names in the row "metrics" of the table
    seqio.Feature                        → as at the top of SeqIO: the names of the modules in `FLAT`
    from beam_pipes.seqio import *       → all of these, with the modules

`ALIASES` lists the names under which its modules import each other. `beam_utils` and `scripts` are separate files.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types

from beam_pipes.extras import absent_here, lacking

# Module of SeqIO → its docstring, and module under beam_pipes → the names it gives; `there=here` if they differ.
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
            "evaluation.metrics": "MetricFnCallable",
            "tasks.providers.mixture": "MixtureRate SampleFn SubtaskOrName",
            "tasks.sources.files": "DatasetReaderType DecodeFnType",
            "tasks.sources.function_source": "DatasetFnCallable",
            "tasks.providers.task": "SHUFFLE_BUFFER_SIZE",
            "transforms.converters": "FeatureConverter",
        },
    ),
    "dataset_providers_helpers": (
        "Tasks and mixtures by name.",
        {"tasks": "get_dataset get_mixture_or_task get_subtasks"},
    ),
    "evaluation": (
        "The evaluator.",
        {
            "evaluation": (
                "AllMetricsFuture Evaluator ModelFnCallable ModelOutputType PredictFnCallable ScoreFnCallable "
                "evaluate_mixture get_valid_eval_tasks"
            ),
            "evaluation.eval_data": (
                "AllMetricsType AllOutputAuxValuesType AllOutputScoresType AllOutputTokensType MetricsAndOutputsType "
                "ModelFnReturnType PredictFnReturnType ScoreFnReturnType TaskMetricsType"
            ),
            "evaluation.loggers": "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder TensorBoardLogger",
            "evaluation.task_metrics": "MetricManager",
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
            "transforms.converters.feature_converter": "GrainFeatureConverter",
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
                "JSONLogger Logger PyLoggingLogger TensorAndNumpyEncoder TensorBoardLogger TensorBoardLoggerV1 "
                "skip_none_value_dict_factory"
            ),
        },
    ),
    "metrics": (
        "Metrics and metric values.",
        {
            "evaluation.metrics": (
                "Audio CollectingMetric Generic Histogram Image LegacyMetric Metric MetricFnCallable MetricValue "
                "ModelOutputType PassthroughLegacyMetric Scalar Text globally_sort_model_output remove_padding_examples"
            ),
        },
    ),
    "preprocessors": (
        "Preprocessors.",
        {
            "tasks.preprocessors": (
                "OutputFeaturesType SequenceLengthType append_eos append_eos_after_trim append_eos_after_trim_impl "
                "apply_feature_converter preprocess_tensorflow_examples print_dataset rekey tokenize "
                "tokenize_and_append_eos tokenize_impl truncate_inputs_left"
            ),
        },
    ),
    "task_registry_provenance_tracking": (
        "Where tasks and mixtures are registered.",
        {
            "tasks.providers.registry": (
                "informative_upstream_callsites_from_frame maybe_record_provenance "
                "registration_provenance_tracking_is_on turn_on_tracking view_provenances"
            ),
        },
    ),
    "test_utils": (
        "Fake data and assertions for tests of tasks.",
        {
            "tasks": "MixtureRegistry TaskRegistry",
            "tasks.testing": (
                "DataInjector FakeLazyTfds FakeMixtureTest FakeTaskTest FakeTfdsInfo MockVocabulary TEST_DATA_DIR "
                "assert_dataset assert_datasets_eq assert_datasets_neq assert_dict_contains assert_dict_values_equal "
                "bertwordpiece_vocab clear_mixtures clear_tasks create_default_dataset create_prediction "
                "dataset_as_text encode_str get_fake_dataset random_token_preprocessor sentencepiece_vocab "
                "split_tsv_preprocessor test_postprocessing test_preprocessing test_preprocessing_single test_task "
                "test_text_preprocessor test_token_preprocessor token_preprocessor_no_sequence_length"
            ),
        },
    ),
    "utils": (
        "Remaining names.",
        {
            "tasks": (
                "Feature Vocabulary add_global_cache_dirs get_global_cache_dirs map_over_dataset "
                "mixing_rate_num_characters mixing_rate_num_examples set_global_cache_dirs unimax_rates"
            ),
            "tasks.sources.places": (
                "get_cached_info_path get_cached_stats_path get_cached_tfrecord_prefix get_task_dir_from_name"
            ),
            "tasks.steps.sequences": "trim_and_pad_dataset trim_dataset",
            "tasks.steps.dataset_map": (
                "NestedTFDict TFDict dict_to_tfexample stateless_shuffle tfexample_ragged_length_key "
                "tfexample_sparse_indices_key tfexample_to_dict"
            ),
            "tasks.vocabularies.files": "list_files",
            "tasks.steps.packing": "make_autoregressive_inputs packing_density trim_and_pack_dataset",
            "tasks.steps.seeds": "map_seed_manager set_preprocessor_seed",
            "tasks.steps.signatures": (
                "add_kwargs_to_transform flatten_dict fully_qualified_class_name function_name unflatten_dict"
            ),
            "tasks.sources.tfds": "LazyTfdsLoader TfdsSplit set_tfds_data_dir_override set_tfds_read_config_override",
        },
    ),
    "version": (
        "The version of SeqIO whose names these are, and whose caches are written.",
        {"tasks.sources.sidecars": "__version__=LAYOUT_VERSION"},
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
# Module → the names under which it imports other modules.
ALIASES: dict[str, dict[str, str]] = {
    "dataset_providers": {
        "metrics_lib": "metrics",
        "seqio_preprocessors": "preprocessors",
        "task_registry_provenance_tracking": "task_registry_provenance_tracking",
        "utils": "utils",
    },
    "evaluation": {
        "dataset_providers": "dataset_providers",
        "feature_converters": "feature_converters",
        "loggers_lib": "loggers",
        "metrics_lib": "metrics",
        "utils": "utils",
    },
    "experimental": {
        "dataset_providers": "dataset_providers",
        "seqio_preprocessors": "preprocessors",
        "utils": "utils",
    },
    "feature_converters": {"utils": "utils"},
    "helpers": {"dp": "dataset_providers", "vc": "vocabularies"},
    "loggers": {"metrics_lib": "metrics"},
    "metrics": {"utils": "utils"},
    "preprocessors": {"feature_converters": "feature_converters", "utils": "utils"},
    "test_utils": {
        name: name
        for name in ("dataset_providers", "evaluation", "feature_converters", "preprocessors", "utils", "vocabularies")
    },
}
_ARRAY_RECORD = (
    "caches are TFRecords, which `beam_pipes.loader.random_access` reads by index, as ArrayRecord is read; "
    "`beam-pipes export --format arrayrecord` writes such files"
)
_IMPORT = "a module's own imports are no names of it here: import `{}`"
#: Name, in whichever module → why it is not here, and what to use. Messages are made from it, and pages.
ABSENT: dict[str, str] = {
    "PyGloveTunableMixture": "rates are numbers or functions; a tuner sets them before the mixture is created",
    "WriteExampleArrayRecord": _ARRAY_RECORD,
    "WriteToArrayRecord": _ARRAY_RECORD,
    "inspect_tasks_main": "`beam-pipes inspect --task NAME --module-import MODULE`",
    "np": _IMPORT.format("numpy"),
    "registration_provenance_main": "`task_registry_provenance_tracking.view_provenances()`",
    "tf": _IMPORT.format("tensorflow"),
}
#: Modules that are separate files.
FILES = ("beam_utils", "scripts")
SUBMODULES = (*NAMES, *FILES)
#: Submodules whose names are also offered here.
FLAT = ("dataset_providers", "feature_converters", "loggers", "utils", "vocabularies")


class _ModuleOfNames(types.ModuleType):
    """A module that re-exports names of other modules.

    Attributes:
        HOMES: name → the module that it comes from, and its name there.
    """

    def __init__(self, name: str, story: str, names: dict[str, str]) -> None:
        super().__init__(name, story)
        # importlib.util.find_spec, which pkgutil and doctest call, rejects loaded modules without a spec.
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.__package__ = __name__
        self.HOMES: dict[str, tuple[str, str]] = {}
        for home, listed in names.items():
            for there, _, here in (entry.partition("=") for entry in listed.split()):
                self.HOMES[there] = (f"beam_pipes.{home}", here or there)
        self.MODULES = ALIASES.get(name.rpartition(".")[2], {})
        self.__all__ = sorted([*self.HOMES, *self.MODULES])

    def __getattr__(self, name: str) -> object:
        if name in self.HOMES:
            return _named(self.HOMES[name])
        if name in self.MODULES:
            return importlib.import_module(f"{__name__}.{self.MODULES[name]}")
        raise lacking(self.__name__, name, absent_here(name, ABSENT, "SeqIO"))

    def __dir__(self) -> list[str]:
        return self.__all__


def _named(home: tuple[str, str]) -> object:
    module, name = home
    return getattr(importlib.import_module(module), name)


_MODULES = {name: _ModuleOfNames(f"{__name__}.{name}", *content) for name, content in NAMES.items()}
# `import beam_pipes.seqio.utils` finds the module already loaded.
sys.modules.update({module.__name__: module for module in _MODULES.values()})
_FLAT_HOMES = {"Evaluator": ("beam_pipes.evaluation", "Evaluator")}
for _submodule in FLAT:
    _FLAT_HOMES.update(_MODULES[_submodule].HOMES)
_TOP_ALIASES = {"metrics_lib": "metrics", "seqio_preprocessors": "preprocessors"}

__all__ = sorted([*_FLAT_HOMES, *_MODULES])


def __getattr__(name: str) -> object:
    if name in _FLAT_HOMES:
        return _named(_FLAT_HOMES[name])
    if name == "__version__":
        return _MODULES["version"].__version__
    if name == "seqio":
        return sys.modules[__name__]
    if name in SUBMODULES or name in _TOP_ALIASES:
        return importlib.import_module(f"{__name__}.{_TOP_ALIASES.get(name, name)}")
    raise lacking(__name__, name, absent_here(name, ABSENT, "SeqIO"))


def __dir__() -> list[str]:
    return sorted({*__all__, *FILES, *_TOP_ALIASES, "__version__"})
