"""From a name to model features, in one call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from beam_pipes.tasks.converter_interface import check_converter
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.lookup import maybe_get_mixture_or_task
from beam_pipes.tasks.provider import ShardInfo

_log = logging.getLogger(__name__)


def get_dataset(
    mixture_or_task_name: Any,
    task_feature_lengths: Mapping[str, Any],
    feature_converter: Any,
    dataset_split: str = "train",
    use_cached: bool = False,
    shuffle: bool = False,
    num_epochs: int | None = 1,
    shard_info: ShardInfo | None = None,
    verbose: bool = True,
    seed: int | None = None,
    batch_size: int | None = None,
    trim_output_features: bool = True,
) -> Any:
    """The model features of a task or mixture, as a `tf.data.Dataset`.

    Args:
        mixture_or_task_name: a name, a `Task` or a `Mixture`.
        task_feature_lengths: task feature → longest length.
        feature_converter: makes model features of task features.
        dataset_split: name of the split.
        use_cached: read the cache.
        shuffle: shuffle files and examples.
        num_epochs: passes over the data; None for no end.
        shard_info: this host's share.
        verbose: log an overview.
        seed: same seed, same order and same draws.
        batch_size: examples a batch; None for no batches. A last batch that is not full is left out.
        trim_output_features: cut task features to their lengths before conversion.

    Raises:
        WrongConverterError: the converter is something else.
    """
    check_converter(feature_converter)
    tf = tensorflow("get_dataset")
    provider = maybe_get_mixture_or_task(mixture_or_task_name)
    dataset = provider.get_dataset(
        sequence_length=task_feature_lengths,
        split=dataset_split,
        use_cached=use_cached,
        shuffle=shuffle,
        seed=seed,
        shard_info=shard_info,
        num_epochs=num_epochs,
        trim_output_features=trim_output_features,
    )
    dataset = feature_converter(dataset, task_feature_lengths=task_feature_lengths)
    if batch_size is not None:
        dataset = dataset.batch(batch_size, drop_remainder=True)
    if verbose:
        _log.info(
            "%s, split %s, cached %s, lengths %s: %s",
            provider.name,
            dataset_split,
            use_cached,
            dict(task_feature_lengths),
            {name: spec.shape for name, spec in dataset.element_spec.items()},
        )
    return dataset.prefetch(tf.data.AUTOTUNE)
