"""Files of `tf.train.Example` records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beam_pipes.tasks.in_tensorflow.concurrency import map_parallelism
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.sources.file_source import FileDataSource


class TFExampleDataSource(FileDataSource):
    """Records of `tf.train.Example`, parsed by a feature description. Needs TensorFlow.

    Args:
        split_to_filepattern: split → a path, a glob, or a list of them.
        feature_description: feature → `tf.io.FixedLenFeature`, `VarLenFeature`, `RaggedFeature` or another of `tf.io`.
        reader_cls: dataset of records, made of a file name; None is `tf.data.TFRecordDataset`.
    """

    def __init__(
        self,
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        feature_description: Mapping[str, Any],
        reader_cls: Callable[[Any], Any] | None = None,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        performs_internal_shuffling: bool = False,
    ) -> None:
        self._feature_description = dict(feature_description)
        self._reader_cls = reader_cls

        def read_examples(path: Any) -> Any:
            tf = tensorflow("reading tf.train.Example")
            records = (reader_cls or tf.data.TFRecordDataset)(path)

            def parse(record: Any) -> Any:
                return tf.io.parse_single_example(record, self._feature_description)

            return records.map(parse, num_parallel_calls=map_parallelism())

        super().__init__(
            read_examples,
            split_to_filepattern,
            num_input_examples,
            caching_permitted,
            file_shuffle_buffer_size,
            cycle_length,
            block_length,
            performs_internal_shuffling,
        )

    def fingerprint_config(self) -> dict[str, Any]:
        described = {name: repr(feature) for name, feature in self._feature_description.items()}
        return {"feature_description": described, "reader_cls": self._reader_cls}

    def __repr__(self) -> str:
        return (
            f"TFExampleDataSource(split_to_filepattern={self._split_to_filepattern}, "
            f"feature_description={self._feature_description})"
        )
