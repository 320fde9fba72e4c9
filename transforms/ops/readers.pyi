"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""

from collections import abc
from typing import Any

from numpy.typing import DTypeLike

from beam_pipes.graph.data_node import DataNode
from beam_pipes.graph.types import DALIDataType, DALIImageType

class COCO:
    """Reads images and their COCO annotations: bytes, boxes (n, 4) float32, and labels (n,) int32.

    With `polygon_masks` come polygons, (m, 3) int32 of a box's number and the vertices where it begins and ends, and
    vertices (k, 2) float32; with `pixelwise_masks` the label of every pixel, (height, width, 1) int32, 0 outside of all
    objects and the highest where several overlap; with `image_ids` the id, (1,) int32.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        file_root: the directory that holds the images (a str).
        annotations_file: the JSON file of annotations (a str).
        images: names of the images that are read, in order; all, by id, by default (a str or a list of str). Default:
            None.
        ltrb: whether boxes are two corners, or left, top, width, height (a bool). Default: False.
        ratio: whether coordinates are parts of the image, not pixels (a bool). Default: False.
        size_threshold: boxes of a smaller width or height are left out (a number). Default: 0.1.
        skip_empty: whether images without boxes are left out (a bool). Default: False.
        include_iscrowd: whether boxes of crowds are read (a bool). Default: True.
        avoid_class_remapping: whether labels are ids of categories, not 1, 2, 3 … (a bool). Default: False.
        image_ids: whether ids of images are an output (a bool). Default: False.
        polygon_masks: whether polygons and vertices are outputs (a bool). Default: False.
        pixelwise_masks: whether labels of pixels are an output (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        file_root: str = ...,
        annotations_file: str = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        images: str | abc.Sequence[str] | None = None,
        ltrb: bool = False,
        ratio: bool = False,
        size_threshold: float = 0.1,
        skip_empty: bool = False,
        include_iscrowd: bool = True,
        avoid_class_remapping: bool = False,
        image_ids: bool = False,
        polygon_masks: bool = False,
        pixelwise_masks: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...

class File:
    """Reads whole files: their bytes (uint8, 1-D), and a label (int32 of shape (1,)).

    With `file_root`, every directory in it is a class: classes and files are in the order of their
    names.

        root/cat/1.jpg, root/cat/2.jpg, root/dog/1.jpg  →  labels 0, 0, 1

    With `file_list`, a text file, each line is a name and a label, and names are relative to `file_root`, or to the
    directory of the list. With `files`, the label of a file is its position in the list, unless `labels` is given.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
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
        pad_last_batch: bool = False,
        seed: int | None = None,
        file_root: str | None = None,
        file_list: str | None = None,
        files: str | abc.Sequence[str] | None = None,
        labels: int | abc.Sequence[int] | None = None,
        file_filters: str | abc.Sequence[str] = ...,
        dir_filters: str | abc.Sequence[str] | None = None,
        case_sensitive_filter: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> list[DataNode]: ...

class NemoAsr:
    """Reads speech that manifests list, a line of JSON each with audio_filepath, duration, text and offset (seconds).

    It gives the wave, and on request the sample rate (float32), the bytes of the text, and the number
    of the line, (1,) int64.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        manifest_filepaths: the manifests (a str or a list of str).
        sample_rate: resample to this many Hz; 0 or less keeps those of the file (a number). Default: -1.0.
        downmix: whether channels are averaged to one, without an axis (a bool). Default: True.
        dtype: the dtype of the waves: float32, int16 or int32 (a dtype such as types.FLOAT). Default: 'float32'.
        min_duration: shorter ones are left out, in seconds (a number). Default: 0.0.
        max_duration: longer ones are left out, in seconds; 0 keeps all (a number). Default: 0.0.
        read_sample_rate: whether sample rates are an output (a bool). Default: True.
        read_text: whether texts are an output (a bool). Default: True.
        read_idxs: whether numbers of lines are an output (a bool). Default: False.
        quality: 0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64 (a number). Default: 50.0.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        manifest_filepaths: str | abc.Sequence[str] = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        sample_rate: float = -1.0,
        downmix: bool = True,
        dtype: DALIDataType | DTypeLike = "float32",
        min_duration: float = 0.0,
        max_duration: float = 0.0,
        read_sample_rate: bool = True,
        read_text: bool = True,
        read_idxs: bool = False,
        quality: float = 50.0,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...

class Numpy:
    """Reads arrays, one `.npy` file per sample: `a/0.npy, a/1.npy` → two samples.

    With `file_root`, files are those below it in the order of their relative names; with `file_list`, a text file with
    one name per line, relative to `file_root` or to the directory of the list. Arrays of Python objects are refused.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
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
        pad_last_batch: bool = False,
        seed: int | None = None,
        file_root: str | None = None,
        file_list: str | None = None,
        files: str | abc.Sequence[str] | None = None,
        file_filter: str = "*.npy",
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> DataNode: ...

class Sequence:
    """Reads frames that lie as image files in a directory for each stream: (frames, height, width, channels) uint8.

        root/a/0.png … root/a/3.png, root/b/0.png  →  readers.sequence(file_root="root", sequence_length=2, step=2)
        →  frames 0 and 1 of a, frames 2 and 3 of a

    Directories, and the files in them, are in the order of their names. Sequences are whole, and of one stream.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        file_root: the directory that holds a directory for each stream (a str).
        sequence_length: frames of a sequence (an int).
        step: frames from the beginning of a sequence to that of the next one (an int). Default: 1.
        stride: frames from one frame of a sequence to the next one (an int). Default: 1.
        image_type: the colour space of the output (one of types.RGB, types.BGR, types.GRAY, types.YCbCr,
            types.ANY_DATA). Default: <DALIImageType.RGB: 'RGB'>.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        file_root: str = ...,
        sequence_length: int = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        step: int = 1,
        stride: int = 1,
        image_type: DALIImageType | str = ...,
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
    read. Unused features are not parsed. `index_path`, DALI's index files, is optional: it saves searching for the
    records once when files are opened.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        path: the TFRecord files, in order (a str or a list of str).
        features: name → tfrec.FixedLenFeature or tfrec.VarLenFeature (any value).
        index_path: the index of each file, as DALI's tfrecord2idx makes it (a str or a list of str). Default: None.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        path: str | abc.Sequence[str] = ...,
        features: Any = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        index_path: str | abc.Sequence[str] | None = None,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...

class Video:
    """Reads sequences of frames of video files: (frames, height, width, 3) uint8, RGB.

        a.mp4 of 20 frames  →  readers.video(filenames="a.mp4", sequence_length=6)  →  frames 0-5, 6-11 and 12-17

    Then, as far as they are asked for, the label of the file, (1,) int32; the numbers of frames, int32; and when they
    are shown, float64 seconds, both (frames,). All that FFmpeg decodes is read, by PyAV (`pip install
    'beam-pipes[video]'`). Headers of all frames are read once when files are opened. Files where two frames have the
    same time, and AVI, are decoded from their beginning for every sequence.

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        filenames: the files (a str or a list of str). Default: None.
        file_root: a directory of directories, numbered by name, that hold files (a str). Default: None.
        labels: a label for each of `filenames`, which is an output then (an int or a list of ints). Default: None.
        sequence_length: frames of a sequence (an int).
        step: frames from one sequence to the next; -1: as many as it spans (an int). Default: -1.
        stride: frames from one frame of a sequence to the next one (an int). Default: 1.
        pad_mode: what completes the last sequence: none, constant, edge, repeat, reflect_1001, symmetric, reflect_101,
            reflect (a str). Default: 'none'.
        fill_value: what 'constant' fills in: one value, or one a channel (an int or a list of ints). Default: 0.
        enable_frame_num: 'scalar': the first number is an output; 'sequence': all (any value). Default: 'none'.
        enable_timestamps: whether times of frames are an output (a bool). Default: False.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        sequence_length: int = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        filenames: str | abc.Sequence[str] | None = None,
        file_root: str | None = None,
        labels: int | abc.Sequence[int] | None = None,
        step: int = -1,
        stride: int = 1,
        pad_mode: str = "none",
        fill_value: int | abc.Sequence[int] = 0,
        enable_frame_num: Any = "none",
        enable_timestamps: bool = False,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...

class Webdataset:
    """Reads tar archives in which the files of a sample are adjacent and share a name: the bytes of each of `ext`.

    0.jpg, 0.cls, 1.jpg, 1.cls  →  readers.webdataset(paths="a.tar", ext=["jpg", "cls"])  →  two samples

    Args:
        shard_id: which of `num_shards` parts of every epoch is read here (an int). Default: 0.
        num_shards: into how many disjoint parts an epoch is divided (an int). Default: 1.
        random_shuffle: another order each epoch, over all records of the data set (a bool). Default: False.
        stick_to_shard: this shard has the same records in every epoch; by default a shuffled epoch is dealt out as a
            whole (a bool). Default: False.
        shuffle_after_epoch: as random_shuffle (a bool). Default: False.
        pad_last_batch: fills the last batch of an epoch with its last record, as last='pad' of a pipeline (a bool).
            Default: False.
        seed: what the order is keyed by; the pipeline's seed by default (an int). Default: None.
        paths: the archives (a str or a list of str).
        ext: for each output what follows the first dot of names; alternatives as 'jpg;png' (a str or a list of str).
        dtypes: the dtype of each output, of which files hold the bytes; uint8 (any value). Default: None.
        missing_component_behavior: what lacks a file: 'empty', 'skip' or 'error' (a str). Default: 'empty'.
        case_sensitive_extensions: whether cases are told apart (a bool). Default: True.
    Places: cpu.
    """

    def __init__(
        self,
        *,
        paths: str | abc.Sequence[str] = ...,
        ext: str | abc.Sequence[str] = ...,
        shard_id: int = 0,
        num_shards: int = 1,
        random_shuffle: bool = False,
        stick_to_shard: bool = False,
        shuffle_after_epoch: bool = False,
        pad_last_batch: bool = False,
        seed: int | None = None,
        dtypes: Any = None,
        missing_component_behavior: str = "empty",
        case_sensitive_extensions: bool = True,
        device: str | None = None,
        name: str | None = None,
        preserve: bool = False,
        on_error: str | None = None,
    ) -> None: ...
    def __call__(self, **arguments: Any) -> Any: ...
