"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections.abc import Sequence
from typing import Any

from beam_pipes.graph.data_node import DataNode

class File:
    """Reads whole files: their bytes (uint8, 1-D), and a label (int32 of shape (1,)).

    With `file_root`, every directory in it is a class: classes are numbered in the order of their names, and files are
    read in the order of theirs.

        root/cat/1.jpg, root/cat/2.jpg, root/dog/1.jpg  →  labels 0, 0, 1

    With `file_list`, a text file, each line is a name and a label, and names are relative to `file_root`, or to the
    directory of the list. With `files`, the label of a file is its place in the list, unless `labels` says otherwise.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        file_root: the directory that holds a directory for each class (a str). Default: None.
        file_list: a text file of lines 'name label' (a str). Default: None.
        files: paths of files, in the order in which they are numbered (a str or a list of str). Default: None.
        labels: the label of each of `files`; by default their number (an int or a list of ints). Default: None.
        file_filters: globs over names of files below file_root; images and sound by default (a str or a list of str).
            Default: ('*.jpg', '*.jpeg', '*.png', '*.bmp', '*.tif', '*.tiff', '*.pnm', '*.ppm', '*.pgm', '*.pbm',
            '*.jp2', '*.webp', '*.flac', '*.ogg', '*.wav').
        dir_filters: globs over names of directories; all by default (a str or a list of str). Default: None.
        case_sensitive_filter: whether the globs tell cases apart (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        seed: int | None = None,
        file_root: str | None = None,
        file_list: str | None = None,
        files: str | Sequence[str] | None = None,
        labels: int | Sequence[int] | None = None,
        file_filters: str | Sequence[str] = ...,
        dir_filters: str | Sequence[str] | None = None,
        case_sensitive_filter: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> list[DataNode]: ...

class Numpy:
    """Reads arrays, one `.npy` file a sample: `a/0.npy, a/1.npy` → two samples.

    With `file_root`, files are those below it in the order of their relative names; with `file_list`, a text file of a
    name a line, relative to `file_root` or to the directory of the list. Arrays of Python objects are refused.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        file_root: the directory below which files are (a str). Default: None.
        file_list: a text file with a name a line (a str). Default: None.
        files: paths of files (a str or a list of str). Default: None.
        file_filter: a glob over names of files below file_root (a str). Default: '*.npy'.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        seed: int | None = None,
        file_root: str | None = None,
        file_list: str | None = None,
        files: str | Sequence[str] | None = None,
        file_filter: str = "*.npy",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> DataNode: ...

class TFRecord:
    """Reads declared features of `tf.train.Example` records; returns a dict of data nodes, by feature.

        features = {"image": tfrec.FixedLenFeature([], tfrec.string, "")}
        inputs = fn.readers.tfrecord(path="train.tfrecord", features=features)
        images = fn.decoders.image(inputs["image"])

    A record that lacks a feature gives its declared default. Checksums of all records are checked when they are first
    read. Features that nobody uses are not parsed. `index_path`, DALI's index files, saves looking for the records once
    when files are opened, and is not needed.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        path: the TFRecord files, in order (a str or a list of str).
        features: name → tfrec.FixedLenFeature or tfrec.VarLenFeature (any value).
        index_path: the index of each file, as DALI's tfrecord2idx makes it (a str or a list of str). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        path: str | Sequence[str] = ...,
        features: Any = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        seed: int | None = None,
        index_path: str | Sequence[str] | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...
