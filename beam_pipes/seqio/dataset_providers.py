"""Tasks, mixtures, sources and registries. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "CacheDatasetPlaceholder": "beam_pipes.tasks.cache_placeholder",
    "ContinuousFeature": "beam_pipes.tasks.features",
    "DataSource": "beam_pipes.tasks.sources.data_source",
    "DataSourceInterface": "beam_pipes.tasks.sources.data_source",
    "DatasetFnCallable": "beam_pipes.tasks.sources.function_source",
    "DatasetProviderBase": "beam_pipes.tasks.provider",
    "DatasetProviderRegistry": "beam_pipes.tasks.registry",
    "Feature": "beam_pipes.tasks.features",
    "FeatureConverter": "beam_pipes.transforms.converters",
    "FileDataSource": "beam_pipes.tasks.sources.file_source",
    "FunctionDataSource": "beam_pipes.tasks.sources.function_source",
    "Mixture": "beam_pipes.tasks.mixture",
    "MixtureRegistry": "beam_pipes.tasks.registry",
    "PassThroughFeature": "beam_pipes.tasks.features",
    "PassThroughVocabulary": "beam_pipes.tasks.vocabularies.pass_through",
    "ProtoDataSource": "beam_pipes.tasks.sources.proto_source",
    "SHUFFLE_BUFFER_SIZE": "beam_pipes.tasks.task",
    "ShardInfo": "beam_pipes.tasks.provider",
    "SourceInfo": "beam_pipes.tasks.provider",
    "TFExampleDataSource": "beam_pipes.tasks.sources.tf_example_source",
    "Task": "beam_pipes.tasks.task",
    "TaskRegistry": "beam_pipes.tasks.registry",
    "TextLineDataSource": "beam_pipes.tasks.sources.text_line_source",
    "TfdsDataSource": "beam_pipes.tasks.sources.tfds_source",
    "Vocabulary": "beam_pipes.tasks.vocabularies.vocabulary",
    "get_dataset": "beam_pipes.tasks.in_tensorflow.model_dataset",
    "get_mixture_or_task": "beam_pipes.tasks.lookup",
    "get_subtasks": "beam_pipes.tasks.lookup",
    "maybe_get_mixture_or_task": "beam_pipes.tasks.lookup",
    "python_map": "beam_pipes.tasks.python_step",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
