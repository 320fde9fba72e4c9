"""A source of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_pipes.errors import SourceError
from beam_pipes.tasks.in_tensorflow.concurrency import is_frugal
from beam_pipes.tasks.in_tensorflow.file_patterns import list_files
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.signatures import function_name
from beam_pipes.tasks.sources.data_source import DataSource, too_few_files


class FileDataSource(DataSource):
    """Files by pattern, and a function that reads them. A shard is a file.

    Args:
        read_file_fn: takes a `tf.data.Dataset` of one file name, or the name as a tensor, and returns its examples as a
            dataset.
        split_to_filepattern: split → a path, a glob, or a list of them.
        num_input_examples: number of examples a split, where known.
        caching_permitted: a task over this source may be cached.
        file_shuffle_buffer_size: buffer that shuffles the files; None shuffles all of them, evenly.
        cycle_length: files read at a time.
        block_length: examples taken from a file before the next one has its turn.
        performs_internal_shuffling: `read_file_fn` shuffles by itself.
    """

    def __init__(
        self,
        read_file_fn: Callable[[Any], Any],
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        performs_internal_shuffling: bool = False,
    ) -> None:
        self._read_file_fn = read_file_fn
        self._split_to_filepattern = dict(split_to_filepattern)
        self._file_shuffle_buffer_size = file_shuffle_buffer_size
        self._cycle_length = cycle_length
        self._block_length = block_length
        super().__init__(self._split_to_filepattern, num_input_examples, caching_permitted, performs_internal_shuffling)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{type(self).__name__}({self._split_to_filepattern})"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(split_to_filepattern={self._split_to_filepattern}, "
            f"read_file_fn={function_name(self._read_file_fn)}, num_input_examples={self._num_input_examples}, "
            f"caching_permitted={self.caching_permitted})"
        )

    def get_dataset(  # type: ignore[override]
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        *,
        sequence_length: Mapping[str, Any] | None = None,
        use_cached: bool = False,
        num_epochs: int | None = 1,
    ) -> Any:
        """The examples of a split.

        Raises:
            SourceError: no file matches.
            TaskError: there are fewer files than shards.
        """
        tf = tensorflow(f"reading {type(self).__name__}")
        files = self._files(split)
        if shard_info is not None and len(files) < shard_info.num_shards:
            raise too_few_files(len(files), shard_info)
        if shard_info is not None:
            files = files[shard_info.index :: shard_info.num_shards]
        names = tf.data.Dataset.from_tensor_slices(files)
        if shuffle:
            names = names.shuffle(self._file_shuffle_buffer_size or len(files), seed=seed)
        if len(files) == 1:
            return names.flat_map(self._read_one)
        parallel = {} if is_frugal() else {"num_parallel_calls": tf.data.AUTOTUNE}
        return names.interleave(
            self._read_one,
            cycle_length=min(self._cycle_length, len(files)),
            block_length=self._block_length,
            deterministic=None if not parallel else (not shuffle or seed is not None),
            **parallel,
        )

    def _read_one(self, path: Any) -> Any:
        return self._read_file_fn(path)

    def _files(self, split: str) -> list[str]:
        self._check_split(split)
        pattern = self._split_to_filepattern[split]
        files = list_files(pattern)
        if not files:
            raise SourceError(
                f"No file is found for the file pattern: {pattern}. Check the path, or leave out the split '{split}'",
                pattern=pattern,
                split=split,
            )
        return files

    def list_shards(self, split: str) -> Sequence[str]:
        """The files of a split; raises `SourceError` where no file matches."""
        return self._files(split)

    def shard_dataset(self, split: str, shard: str) -> Any:
        self._shard_index(split, shard)
        tf = tensorflow(f"reading {type(self).__name__}")
        return tf.data.Dataset.from_tensors(shard).flat_map(self._read_one)
