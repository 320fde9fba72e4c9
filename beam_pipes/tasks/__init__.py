"""Tasks: a source, preprocessors, features, a postprocessor and metrics under one name; mixtures of tasks with rates.

Everything is loaded on first use: declaring imports no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_pipes.tasks.by_name import get_dataset as get_dataset
    from beam_pipes.tasks.by_name import get_mixture_or_task as get_mixture_or_task
    from beam_pipes.tasks.by_name import get_subtasks as get_subtasks
    from beam_pipes.tasks.by_name import maybe_get_mixture_or_task as maybe_get_mixture_or_task
    from beam_pipes.tasks.caches.offline import task_declaration_parts as task_declaration_parts
    from beam_pipes.tasks.caches.places import add_global_cache_dirs as add_global_cache_dirs
    from beam_pipes.tasks.caches.places import get_global_cache_dirs as get_global_cache_dirs
    from beam_pipes.tasks.caches.places import set_global_cache_dirs as set_global_cache_dirs
    from beam_pipes.tasks.caches.sidecars import write_seqio_sidecars as write_seqio_sidecars
    from beam_pipes.tasks.in_python.loading import get_loader as get_loader
    from beam_pipes.tasks.in_python.loading import plan_loading as plan_loading
    from beam_pipes.tasks.in_python.loading_plan import LoadingPlan as LoadingPlan
    from beam_pipes.tasks.in_tensorflow.dataset_map import map_over_dataset as map_over_dataset
    from beam_pipes.tasks.mixing import mixing_rate_num_characters as mixing_rate_num_characters
    from beam_pipes.tasks.mixing import mixing_rate_num_examples as mixing_rate_num_examples
    from beam_pipes.tasks.mixing import unimax_rates as unimax_rates
    from beam_pipes.tasks.mixture import Mixture as Mixture
    from beam_pipes.tasks.mixture import MixtureRegistry as MixtureRegistry
    from beam_pipes.tasks.provider import ContinuousFeature as ContinuousFeature
    from beam_pipes.tasks.provider import DatasetProviderBase as DatasetProviderBase
    from beam_pipes.tasks.provider import Feature as Feature
    from beam_pipes.tasks.provider import PassThroughFeature as PassThroughFeature
    from beam_pipes.tasks.provider import ShardInfo as ShardInfo
    from beam_pipes.tasks.provider import SourceInfo as SourceInfo
    from beam_pipes.tasks.python_forms import python_map as python_map
    from beam_pipes.tasks.registry import DatasetProviderRegistry as DatasetProviderRegistry
    from beam_pipes.tasks.registry import TaskRegistry as TaskRegistry
    from beam_pipes.tasks.sources.data_source import DataSource as DataSource
    from beam_pipes.tasks.sources.data_source import DataSourceInterface as DataSourceInterface
    from beam_pipes.tasks.sources.files import FileDataSource as FileDataSource
    from beam_pipes.tasks.sources.files import ProtoDataSource as ProtoDataSource
    from beam_pipes.tasks.sources.files import TextLineDataSource as TextLineDataSource
    from beam_pipes.tasks.sources.files import TFExampleDataSource as TFExampleDataSource
    from beam_pipes.tasks.sources.function_source import FunctionDataSource as FunctionDataSource
    from beam_pipes.tasks.sources.tfds import TfdsDataSource as TfdsDataSource
    from beam_pipes.tasks.steps import CacheDatasetPlaceholder as CacheDatasetPlaceholder
    from beam_pipes.tasks.task import Task as Task
    from beam_pipes.tasks.vocabularies import BertWordPieceVocabulary as BertWordPieceVocabulary
    from beam_pipes.tasks.vocabularies import ByteVocabulary as ByteVocabulary
    from beam_pipes.tasks.vocabularies import FullCodepointVocabulary as FullCodepointVocabulary
    from beam_pipes.tasks.vocabularies import PartialCodepointVocabulary as PartialCodepointVocabulary
    from beam_pipes.tasks.vocabularies import PassThroughVocabulary as PassThroughVocabulary
    from beam_pipes.tasks.vocabularies import SentencePieceVocabulary as SentencePieceVocabulary
    from beam_pipes.tasks.vocabularies import TiktokenVocabulary as TiktokenVocabulary
    from beam_pipes.tasks.vocabularies import TokenizersVocabulary as TokenizersVocabulary
    from beam_pipes.tasks.vocabularies import UnigramVocabulary as UnigramVocabulary
    from beam_pipes.tasks.vocabularies import Vocabulary as Vocabulary

# Public name → the module under beam_pipes.tasks that defines it.
_MODULE_OF = {
    "BertWordPieceVocabulary": "vocabularies",
    "ByteVocabulary": "vocabularies",
    "CacheDatasetPlaceholder": "steps",
    "ContinuousFeature": "provider",
    "DataSource": "sources.data_source",
    "DataSourceInterface": "sources.data_source",
    "DatasetProviderBase": "provider",
    "DatasetProviderRegistry": "registry",
    "Feature": "provider",
    "FileDataSource": "sources.files",
    "FullCodepointVocabulary": "vocabularies",
    "FunctionDataSource": "sources.function_source",
    "LoadingPlan": "in_python.loading_plan",
    "Mixture": "mixture",
    "MixtureRegistry": "mixture",
    "PartialCodepointVocabulary": "vocabularies",
    "PassThroughFeature": "provider",
    "PassThroughVocabulary": "vocabularies",
    "ProtoDataSource": "sources.files",
    "SentencePieceVocabulary": "vocabularies",
    "ShardInfo": "provider",
    "SourceInfo": "provider",
    "TFExampleDataSource": "sources.files",
    "Task": "task",
    "TaskRegistry": "registry",
    "TextLineDataSource": "sources.files",
    "TfdsDataSource": "sources.tfds",
    "TiktokenVocabulary": "vocabularies",
    "TokenizersVocabulary": "vocabularies",
    "UnigramVocabulary": "vocabularies",
    "Vocabulary": "vocabularies",
    "add_global_cache_dirs": "caches.places",
    "get_dataset": "by_name",
    "get_global_cache_dirs": "caches.places",
    "get_loader": "in_python.loading",
    "get_mixture_or_task": "by_name",
    "get_subtasks": "by_name",
    "map_over_dataset": "in_tensorflow.dataset_map",
    "maybe_get_mixture_or_task": "by_name",
    "mixing_rate_num_characters": "mixing",
    "mixing_rate_num_examples": "mixing",
    "plan_loading": "in_python.loading",
    "python_map": "python_forms",
    "set_global_cache_dirs": "caches.places",
    "task_declaration_parts": "caches.offline",
    "unimax_rates": "mixing",
    "write_seqio_sidecars": "caches.sidecars",
}
_SUBMODULES = ("derived", "experimental", "preprocessors", "testing", "vocabularies")

__all__ = sorted([*_MODULE_OF, *_SUBMODULES])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
