"""Everything that has no other module here. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "Feature": "beam_pipes.tasks.provider",
    "LazyTfdsLoader": "beam_pipes.tasks.sources.tfds",
    "TfdsSplit": "beam_pipes.tasks.sources.tfds",
    "Vocabulary": "beam_pipes.tasks.vocabularies.vocabulary",
    "add_global_cache_dirs": "beam_pipes.tasks.caches.task_cache",
    "add_kwargs_to_transform": "beam_pipes.tasks.signatures",
    "dict_to_tfexample": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "flatten_dict": "beam_pipes.tasks.signatures",
    "fully_qualified_class_name": "beam_pipes.tasks.signatures",
    "function_name": "beam_pipes.tasks.signatures",
    "get_cached_info_path": "beam_pipes.tasks.caches.task_cache",
    "get_cached_stats_path": "beam_pipes.tasks.caches.task_cache",
    "get_cached_tfrecord_prefix": "beam_pipes.tasks.caches.task_cache",
    "get_global_cache_dirs": "beam_pipes.tasks.caches.task_cache",
    "get_task_dir_from_name": "beam_pipes.tasks.caches.task_cache",
    "list_files": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "make_autoregressive_inputs": "beam_pipes.tasks.in_tensorflow.packing",
    "map_over_dataset": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "map_seed_manager": "beam_pipes.tasks.seeds",
    "mixing_rate_num_characters": "beam_pipes.tasks.mixing",
    "mixing_rate_num_examples": "beam_pipes.tasks.mixing",
    "packing_density": "beam_pipes.tasks.in_tensorflow.packing",
    "set_global_cache_dirs": "beam_pipes.tasks.caches.task_cache",
    "set_preprocessor_seed": "beam_pipes.tasks.seeds",
    "set_tfds_data_dir_override": "beam_pipes.tasks.sources.tfds",
    "set_tfds_read_config_override": "beam_pipes.tasks.sources.tfds",
    "stateless_shuffle": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "tfexample_ragged_length_key": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "tfexample_sparse_indices_key": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "tfexample_to_dict": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "trim_and_pack_dataset": "beam_pipes.tasks.in_tensorflow.packing",
    "trim_and_pad_dataset": "beam_pipes.tasks.column_forms",
    "trim_dataset": "beam_pipes.tasks.column_forms",
    "unflatten_dict": "beam_pipes.tasks.signatures",
    "unimax_rates": "beam_pipes.tasks.mixing",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
