"""Files of any protocol buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from beam_pipes.tasks.in_tensorflow.concurrency import map_parallelism
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.sources.file_source import FileDataSource


class ProtoDataSource(FileDataSource):
    """Records decoded by a function: serialized bytes (a string tensor) → an example of tensors. Needs TensorFlow.

    Args:
        split_to_filepattern: split → a path, a glob, or a list of them.
        decode_proto_fn: the function, of TensorFlow operations (`tf.io.decode_proto`, `tf.numpy_function`, ...).
        reader_cls: dataset of records, made of a file name; None is `tf.data.TFRecordDataset`.
    """

    def __init__(
        self,
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        decode_proto_fn: Callable[[Any], Any],
        reader_cls: Callable[[Any], Any] | None = None,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
    ) -> None:
        self._decode_proto_fn = decode_proto_fn
        self._reader_cls = reader_cls

        def read_protos(path: Any) -> Any:
            tf = tensorflow("reading protocol buffers")
            records = (reader_cls or tf.data.TFRecordDataset)(path)
            return records.map(decode_proto_fn, num_parallel_calls=map_parallelism())

        super().__init__(
            read_protos,
            split_to_filepattern,
            num_input_examples,
            caching_permitted,
            file_shuffle_buffer_size,
            cycle_length,
            block_length,
        )

    def fingerprint_config(self) -> dict[str, Any]:
        return {"decode_proto_fn": self._decode_proto_fn, "reader_cls": self._reader_cls}
