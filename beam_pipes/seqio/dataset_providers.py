"""Tasks, mixtures, sources and registries. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "CacheDatasetPlaceholder": "beam_pipes.tasks.steps",
    "ContinuousFeature": "beam_pipes.tasks.provider",
    "DataSource": "beam_pipes.tasks.sources.data_source",
    "DataSourceInterface": "beam_pipes.tasks.sources.data_source",
    "DatasetFnCallable": "beam_pipes.tasks.sources.function_source",
    "DatasetProviderBase": "beam_pipes.tasks.provider",
    "DatasetProviderRegistry": "beam_pipes.tasks.registry",
    "Feature": "beam_pipes.tasks.provider",
    "FeatureConverter": "beam_pipes.transforms.converters",
    "FileDataSource": "beam_pipes.tasks.sources.files",
    "FunctionDataSource": "beam_pipes.tasks.sources.function_source",
    "Mixture": "beam_pipes.tasks.mixture",
    "MixtureRegistry": "beam_pipes.tasks.registry",
    "PassThroughFeature": "beam_pipes.tasks.provider",
    "PassThroughVocabulary": "beam_pipes.tasks.vocabularies.vocabulary",
    "ProtoDataSource": "beam_pipes.tasks.sources.files",
    "SHUFFLE_BUFFER_SIZE": "beam_pipes.tasks.task",
    "ShardInfo": "beam_pipes.tasks.provider",
    "SourceInfo": "beam_pipes.tasks.provider",
    "TFExampleDataSource": "beam_pipes.tasks.sources.files",
    "Task": "beam_pipes.tasks.task",
    "TaskRegistry": "beam_pipes.tasks.registry",
    "TextLineDataSource": "beam_pipes.tasks.sources.files",
    "TfdsDataSource": "beam_pipes.tasks.sources.tfds",
    "Vocabulary": "beam_pipes.tasks.vocabularies.vocabulary",
    "get_dataset": "beam_pipes.tasks.in_tensorflow.mixture_dataset",
    "get_mixture_or_task": "beam_pipes.tasks.registry",
    "get_subtasks": "beam_pipes.tasks.registry",
    "maybe_get_mixture_or_task": "beam_pipes.tasks.registry",
    "python_map": "beam_pipes.tasks.python_forms",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
