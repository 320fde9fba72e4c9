"""Tasks: a source, preprocessors, features, a postprocessor and metrics under one name; mixtures of tasks with rates.

Everything is loaded on first use: declaring imports no TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.tasks import derived as derived
    from beam_pipes.tasks import experimental as experimental
    from beam_pipes.tasks import preprocessors as preprocessors
    from beam_pipes.tasks import testing as testing
    from beam_pipes.tasks import vocabularies as vocabularies
    from beam_pipes.tasks.caches.offline import task_declaration_parts as task_declaration_parts
    from beam_pipes.tasks.loading.loading import get_loader as get_loader
    from beam_pipes.tasks.loading.loading import plan_loading as plan_loading
    from beam_pipes.tasks.loading.loading_plan import LoadingPlan as LoadingPlan
    from beam_pipes.tasks.providers.by_name import get_dataset as get_dataset
    from beam_pipes.tasks.providers.by_name import get_mixture_or_task as get_mixture_or_task
    from beam_pipes.tasks.providers.by_name import get_subtasks as get_subtasks
    from beam_pipes.tasks.providers.by_name import maybe_get_mixture_or_task as maybe_get_mixture_or_task
    from beam_pipes.tasks.providers.mixing import mixing_rate_num_characters as mixing_rate_num_characters
    from beam_pipes.tasks.providers.mixing import mixing_rate_num_examples as mixing_rate_num_examples
    from beam_pipes.tasks.providers.mixing import unimax_rates as unimax_rates
    from beam_pipes.tasks.providers.mixture import Mixture as Mixture
    from beam_pipes.tasks.providers.mixture import MixtureRegistry as MixtureRegistry
    from beam_pipes.tasks.providers.registry import DatasetProviderRegistry as DatasetProviderRegistry
    from beam_pipes.tasks.providers.registry import TaskRegistry as TaskRegistry
    from beam_pipes.tasks.providers.task import Task as Task
    from beam_pipes.tasks.sources.data_source import DataSource as DataSource
    from beam_pipes.tasks.sources.data_source import DataSourceInterface as DataSourceInterface
    from beam_pipes.tasks.sources.files import FileDataSource as FileDataSource
    from beam_pipes.tasks.sources.files import ProtoDataSource as ProtoDataSource
    from beam_pipes.tasks.sources.files import TextLineDataSource as TextLineDataSource
    from beam_pipes.tasks.sources.files import TFExampleDataSource as TFExampleDataSource
    from beam_pipes.tasks.sources.function_source import FunctionDataSource as FunctionDataSource
    from beam_pipes.tasks.sources.places import add_global_cache_dirs as add_global_cache_dirs
    from beam_pipes.tasks.sources.places import get_global_cache_dirs as get_global_cache_dirs
    from beam_pipes.tasks.sources.places import set_global_cache_dirs as set_global_cache_dirs
    from beam_pipes.tasks.sources.sidecars import write_seqio_sidecars as write_seqio_sidecars
    from beam_pipes.tasks.sources.tfds import TfdsDataSource as TfdsDataSource
    from beam_pipes.tasks.steps.dataset_map import map_over_dataset as map_over_dataset
    from beam_pipes.tasks.steps.features import ContinuousFeature as ContinuousFeature
    from beam_pipes.tasks.steps.features import DatasetProviderBase as DatasetProviderBase
    from beam_pipes.tasks.steps.features import Feature as Feature
    from beam_pipes.tasks.steps.features import PassThroughFeature as PassThroughFeature
    from beam_pipes.tasks.steps.features import ShardInfo as ShardInfo
    from beam_pipes.tasks.steps.features import SourceInfo as SourceInfo
    from beam_pipes.tasks.steps.signatures import python_map as python_map
    from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder as CacheDatasetPlaceholder
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

__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "": "derived experimental preprocessors testing vocabularies",
        "providers.by_name": "get_dataset get_mixture_or_task get_subtasks maybe_get_mixture_or_task",
        "caches.offline": "task_declaration_parts",
        "sources.places": "add_global_cache_dirs get_global_cache_dirs set_global_cache_dirs",
        "sources.sidecars": "write_seqio_sidecars",
        "loading.loading": "get_loader plan_loading",
        "loading.loading_plan": "LoadingPlan",
        "steps.dataset_map": "map_over_dataset",
        "providers.mixing": "mixing_rate_num_characters mixing_rate_num_examples unimax_rates",
        "providers.mixture": "Mixture MixtureRegistry",
        "steps.features": "ContinuousFeature DatasetProviderBase Feature PassThroughFeature ShardInfo SourceInfo",
        "steps.signatures": "python_map",
        "providers.registry": "DatasetProviderRegistry TaskRegistry",
        "sources.data_source": "DataSource DataSourceInterface",
        "sources.files": "FileDataSource ProtoDataSource TFExampleDataSource TextLineDataSource",
        "sources.function_source": "FunctionDataSource",
        "sources.tfds": "TfdsDataSource",
        "steps.step": "CacheDatasetPlaceholder",
        "providers.task": "Task",
        "vocabularies": (
            "BertWordPieceVocabulary ByteVocabulary FullCodepointVocabulary PartialCodepointVocabulary "
            "PassThroughVocabulary SentencePieceVocabulary TiktokenVocabulary TokenizersVocabulary "
            "UnigramVocabulary Vocabulary"
        ),
    },
)
__all__ = __dir__()
