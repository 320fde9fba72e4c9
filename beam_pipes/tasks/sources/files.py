"""Sources of files: text lines, `tf.train.Example` records, other protocol buffers, or any format with a reader.

    split → pattern → files (the shards) → examples, several files interleaved

Lines of text are read without TensorFlow as well; records are parsed by TensorFlow operations.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_pipes.errors import SourceError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.tasks.sources.data_source import LibrarySource, too_few_files
from beam_pipes.tasks.steps.dataset_map import is_frugal, map_parallelism
from beam_pipes.tasks.steps.features import ShardInfo
from beam_pipes.tasks.steps.signatures import function_name
from beam_pipes.tasks.vocabularies.files import is_remote, list_files, read_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipes.publication.terms import TermsOptions

#: File names → their records; a serialized record → its features. For annotations.
DatasetReaderType = Callable[[str | Iterable[str]], TfDataset]
DecodeFnType = Callable[..., Mapping[str, object]]


class FileDataSource(LibrarySource):
    """Files by pattern, and a function that reads them. A shard is a file.

    Args:
        read_file_fn: takes a `tf.data.Dataset` of one file name, or the name as a tensor, and returns its examples as a
            dataset.
        split_to_filepattern: split → a path, a glob, or a list of them.
        num_input_examples: number of examples in each split, where known.
        caching_permitted: a task over this source may be cached.
        file_shuffle_buffer_size: buffer that shuffles the files; None shuffles all of them, evenly.
        cycle_length: files read at a time.
        block_length: examples taken from a file before switching to the next one.
        performs_internal_shuffling: `read_file_fn` shuffles itself.
    """

    def __init__(
        self,
        read_file_fn: Callable[[TfTensor], object],
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        performs_internal_shuffling: bool = False,
        **declared: Unpack[TermsOptions],
    ) -> None:
        self._read_file_fn = read_file_fn
        self._split_to_filepattern = dict(split_to_filepattern)
        self._file_shuffle_buffer_size = file_shuffle_buffer_size
        self._cycle_length = cycle_length
        self._block_length = block_length
        super().__init__(
            self._split_to_filepattern, num_input_examples, caching_permitted, performs_internal_shuffling, **declared
        )

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

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
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

    def _read_one(self, path: object) -> object:
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
        """The files of a split; raises `SourceError` if no file matches."""
        return self._files(split)

    def shard_dataset(self, split: str, shard: str) -> TfDataset:
        self._shard_index(split, shard)
        tf = tensorflow(f"reading {type(self).__name__}")
        return tf.data.Dataset.from_tensors(shard).flat_map(self._read_one)


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
        decode_proto_fn: Callable[[TfTensor], object],
        reader_cls: Callable[[TfTensor], TfDataset] | None = None,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        **declared: Unpack[TermsOptions],
    ) -> None:
        self._decode_proto_fn = decode_proto_fn
        self._reader_cls = reader_cls

        def read_protos(path: object) -> TfDataset:
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
            **declared,
        )

    def fingerprint_config(self) -> dict[str, object]:
        return {"decode_proto_fn": self._decode_proto_fn, "reader_cls": self._reader_cls}


class TextLineDataSource(FileDataSource):
    """One example per line: a string, without its line end. Read natively, so no TensorFlow is needed offline.

    Args:
        split_to_filepattern: split → a path, a glob, or a list of them.
        skip_header_lines: lines to leave out at the beginning of each file.
    """

    reads_without_tensorflow = True

    def __init__(
        self,
        split_to_filepattern: Mapping[str, str | Iterable[str]],
        skip_header_lines: int = 0,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        **declared: Unpack[TermsOptions],
    ) -> None:
        self._skip_header_lines = skip_header_lines

        def read_lines(path: object) -> object:
            lines = tensorflow("reading text lines").data.TextLineDataset(path)
            return lines.skip(skip_header_lines) if skip_header_lines else lines

        super().__init__(
            read_lines,
            split_to_filepattern,
            num_input_examples,
            caching_permitted,
            file_shuffle_buffer_size,
            cycle_length,
            block_length,
            **declared,
        )

    @property
    def skip_header_lines(self) -> int:
        return self._skip_header_lines

    def fingerprint_config(self) -> dict[str, object]:
        return {"skip_header_lines": self._skip_header_lines}

    def read_shard(self, split: str, shard: str) -> Iterator[bytes]:
        self._shard_index(split, shard)
        return read_lines(shard, skip=self._skip_header_lines)


def read_lines(path: str, start: int = 0, end: int | None = None, *, skip: int = 0) -> Iterator[bytes]:
    """Lines as tf.data gives them: split at \\n, without any \\r.

    Args:
        path: a file.
        start: the first byte of a line.
        end: where to stop, the first byte of another line; None for the end of the file.
        skip: lines to leave out at the beginning.
    """
    lines: Iterable[bytes]
    if is_remote(path):
        lines = io.BytesIO(read_bytes(path)[start:end])
    else:
        lines = _local_lines(path, start, end)
    for line in itertools.islice(lines, skip, None):
        yield (line[:-1] if line.endswith(b"\n") else line).replace(b"\r", b"")


def _local_lines(path: str, start: int, end: int | None) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        if end is None:
            yield from file
            return
        left = end - start
        for line in file:
            if left <= 0:
                return
            left -= len(line)
            yield line


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
        feature_description: Mapping[str, object],
        reader_cls: Callable[[TfTensor], TfDataset] | None = None,
        num_input_examples: Mapping[str, int] | None = None,
        caching_permitted: bool = True,
        file_shuffle_buffer_size: int | None = None,
        cycle_length: int = 16,
        block_length: int = 16,
        performs_internal_shuffling: bool = False,
        **declared: Unpack[TermsOptions],
    ) -> None:
        self._feature_description = dict(feature_description)
        self._reader_cls = reader_cls

        def read_examples(path: object) -> TfDataset:
            tf = tensorflow("reading tf.train.Example")
            records = (reader_cls or tf.data.TFRecordDataset)(path)

            def parse(record: object) -> object:
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
            **declared,
        )

    def fingerprint_config(self) -> dict[str, object]:
        described = {name: repr(feature) for name, feature in self._feature_description.items()}
        return {"feature_description": described, "reader_cls": self._reader_cls}

    def __repr__(self) -> str:
        return (
            f"TFExampleDataSource(split_to_filepattern={self._split_to_filepattern}, "
            f"feature_description={self._feature_description})"
        )
