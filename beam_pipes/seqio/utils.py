"""Everything that has no other module here. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "Feature": "beam_pipes.tasks.features",
    "LazyTfdsLoader": "beam_pipes.tasks.sources.lazy_tfds_loader",
    "TfdsSplit": "beam_pipes.tasks.sources.lazy_tfds_loader",
    "Vocabulary": "beam_pipes.tasks.vocabularies.vocabulary",
    "add_global_cache_dirs": "beam_pipes.tasks.caches.cache_dirs",
    "add_kwargs_to_transform": "beam_pipes.tasks.signatures",
    "dict_to_tfexample": "beam_pipes.tasks.in_tensorflow.tfexample",
    "flatten_dict": "beam_pipes.tasks.nested_dict",
    "fully_qualified_class_name": "beam_pipes.tasks.signatures",
    "function_name": "beam_pipes.tasks.signatures",
    "get_cached_info_path": "beam_pipes.tasks.caches.cache_dirs",
    "get_cached_stats_path": "beam_pipes.tasks.caches.cache_dirs",
    "get_cached_tfrecord_prefix": "beam_pipes.tasks.caches.cache_dirs",
    "get_global_cache_dirs": "beam_pipes.tasks.caches.cache_dirs",
    "get_task_dir_from_name": "beam_pipes.tasks.caches.cache_dirs",
    "list_files": "beam_pipes.tasks.in_tensorflow.file_patterns",
    "make_autoregressive_inputs": "beam_pipes.tasks.in_tensorflow.autoregressive",
    "map_over_dataset": "beam_pipes.tasks.in_tensorflow.dataset_map",
    "map_seed_manager": "beam_pipes.tasks.seeds",
    "mixing_rate_num_characters": "beam_pipes.tasks.mixing_rates",
    "mixing_rate_num_examples": "beam_pipes.tasks.mixing_rates",
    "packing_density": "beam_pipes.tasks.in_tensorflow.online_packing",
    "set_global_cache_dirs": "beam_pipes.tasks.caches.cache_dirs",
    "set_preprocessor_seed": "beam_pipes.tasks.seeds",
    "set_tfds_data_dir_override": "beam_pipes.tasks.sources.lazy_tfds_loader",
    "set_tfds_read_config_override": "beam_pipes.tasks.sources.lazy_tfds_loader",
    "stateless_shuffle": "beam_pipes.tasks.in_tensorflow.shuffling",
    "tfexample_ragged_length_key": "beam_pipes.tasks.in_tensorflow.tfexample",
    "tfexample_sparse_indices_key": "beam_pipes.tasks.in_tensorflow.tfexample",
    "tfexample_to_dict": "beam_pipes.tasks.in_tensorflow.tfexample",
    "trim_and_pack_dataset": "beam_pipes.tasks.in_tensorflow.online_packing",
    "trim_and_pad_dataset": "beam_pipes.tasks.trimming",
    "trim_dataset": "beam_pipes.tasks.trimming",
    "unflatten_dict": "beam_pipes.tasks.nested_dict",
    "unimax_rates": "beam_pipes.tasks.mixing_rates",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
