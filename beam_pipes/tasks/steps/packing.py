"""Packing on the fly: several short examples per row, distinguished by segment ids. Needs TensorFlow.

A *row* is one fixed-length array per feature. The packer fills one row at a time, in stream order, and starts another
when the next example does not fit (next fit). It looks at *windows* of as many examples as the largest feature is long,
and the last row of a window is not carried over to the next. Offline planning over the whole split packs rows more
tightly.

Decoder inputs from decoder targets: shifted right by one, starting again at every packed sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow, unbatched
from beam_pipes.tasks.steps.array_ops import ops_of
from beam_pipes.tasks.vocabularies.vocabulary import DType


def trim_and_pack_dataset(
    dataset: TfDataset, feature_lengths: Mapping[str, int], use_custom_ops: bool = False
) -> TfDataset:
    """Packs examples into rows of `feature_lengths`, and records for each position which example it belongs to.

    ```
    {"inputs": [7, 8], "targets": [3, 9]}, {"inputs": [4], "targets": []}     with {"inputs": 4, "targets": 3}
        → {"inputs":  [7, 8, 4, 0], "inputs_segment_ids":  [1, 1, 2, 0], "inputs_positions":  [0, 1, 0, 0],
           "targets": [3, 9, 0],    "targets_segment_ids": [1, 1, 0],    "targets_positions": [0, 1, 0]}
    ```

    Lengths decide what is data, not values: id 0 inside a sequence is kept. An example has the same segment id in every
    feature, also when one of them is empty. Features may be of any type and rank (further axes are kept); those without
    a length are left out. One window of examples is held in memory.

    Args:
        dataset: examples; features are sequences along their first axis.
        feature_lengths: length of a row for each feature.
        use_custom_ops: accepted for compatibility; the standard operations do the same.

    Raises:
        TaskError: a feature is not in the dataset, or is a scalar.
    """
    tf = tensorflow("trim_and_pack_dataset")
    spec = dataset.element_spec
    for name in feature_lengths:
        if name not in spec:
            raise TaskError(f"Feature '{name}' not found in dataset. Available keys are {list(spec)}", feature=name)
        if spec[name].shape.rank == 0:
            raise TaskError(
                f"Features to be packed must be one-dimensional or more. '{name}' is a scalar; leave it out of the "
                f"lengths, or give it an axis",
                feature=name,
            )
    names = list(feature_lengths)
    window = max(int(length) for length in feature_lengths.values())

    def trim(example: Mapping[str, TfTensor]) -> tuple[dict[str, TfTensor], dict[str, TfTensor]]:
        trimmed = {name: _dense(tf, example[name])[: feature_lengths[name]] for name in names}
        return trimmed, {name: tf.shape(trimmed[name], out_type=tf.int64)[0] for name in names}

    def pack(padded: Mapping[str, TfTensor], lengths: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
        counts = tf.stack([lengths[name] for name in names])
        row_starts = _next_fit(tf, counts, tf.constant([feature_lengths[name] for name in names], tf.int64))
        packed = {}
        for name in names:
            packed.update(_rows(tf, name, padded[name], lengths[name], row_starts, feature_lengths[name]))
        return packed

    trimmed = dataset.map(trim, num_parallel_calls=tf.data.AUTOTUNE)
    return unbatched(trimmed.padded_batch(window).map(pack, num_parallel_calls=tf.data.AUTOTUNE))


def packing_density(rows: Iterable[Mapping[str, object]]) -> dict[str, float]:
    """Share of positions that hold data, for each packed feature: `{"inputs": 0.83, "targets": 0.71}`.

    Reads `*_segment_ids` of packed rows (of `trim_and_pack_dataset` or a feature converter), batched or not.
    """
    used: dict[str, int] = {}
    total: dict[str, int] = {}
    for row in rows:
        for key, ids in row.items():
            if key.endswith("_segment_ids"):
                name = key[: -len("_segment_ids")]
                ids = np.asarray(ids)
                used[name] = used.get(name, 0) + int(np.count_nonzero(ids))
                total[name] = total.get(name, 0) + ids.size
    return {name: used[name] / total[name] for name in used if total[name]}


def _dense(tf: ModuleType, value: TfTensor) -> TfTensor:
    return value.to_tensor() if isinstance(value, tf.RaggedTensor) else value


def _next_fit(tf: ModuleType, counts: TfTensor, limits: TfTensor) -> TfTensor:
    """Index of the first example of each row, then the number of examples. `counts` is [features, examples]."""
    ends = tf.concat([tf.zeros_like(counts[:, :1]), tf.cumsum(counts, axis=1)], axis=1)
    num_examples = tf.shape(counts)[1]

    def next_row(start: TfTensor, starts: TfTensor, row: TfTensor) -> tuple[TfTensor, TfTensor, TfTensor]:
        # One step per row: in each feature, the last example whose end still fits after the row's start.
        fits = tf.searchsorted(ends, (ends[:, start] + limits)[:, None], side="right")
        end = tf.reduce_min(fits) - 1
        return end, starts.write(row, end), row + 1

    starts = tf.TensorArray(tf.int32, size=1, dynamic_size=True, element_shape=[]).write(0, 0)
    _, starts, _ = tf.while_loop(
        lambda start, starts, row: start < num_examples, next_row, (0, starts, 1), parallel_iterations=1
    )
    return starts.stack()


def _rows(
    tf: ModuleType, name: str, padded: TfTensor, lengths: TfTensor, row_starts: TfTensor, limit: int
) -> dict[str, TfTensor]:
    values = tf.boolean_mask(padded, tf.sequence_mask(lengths, tf.shape(padded)[1]))
    ends = tf.concat([[0], tf.cumsum(lengths)], axis=0)
    tokens_before = tf.gather(ends, row_starts)
    splits = tf.cast(tokens_before, tf.int64)
    example = tf.range(tf.size(lengths))
    row = tf.searchsorted(row_starts, example, side="right") - 1
    segment = example - tf.gather(row_starts, row) + 1
    position = tf.range(tf.size(values) if values.shape.rank == 1 else tf.shape(values)[0])
    first = tf.repeat(tf.cast(ends[:-1], tf.int32), lengths)

    def to_rows(flat: TfTensor) -> TfTensor:
        rows = tf.RaggedTensor.from_row_splits(flat, splits, validate=False).to_tensor(
            shape=[None, limit, *[None] * (flat.shape.rank - 1)]
        )
        return tf.ensure_shape(rows, [None, limit, *flat.shape[1:]])

    return {
        name: to_rows(values),
        f"{name}_segment_ids": to_rows(tf.repeat(segment, lengths)),
        f"{name}_positions": to_rows(position - first),
    }


def shift_right_by_one(tensor: object, bos_id: int = 0, *, axis: int = 0) -> TfTensor:
    """Moves every value one step along `axis`; `bos_id` enters, the last value leaves.

    `[3, 9, 1]` → `[0, 3, 9]`. Takes NumPy arrays, lists and TensorFlow tensors of any numeric dtype, and returns
    the same kind. `axis=-1` shifts each row of a batch.
    """
    ops = ops_of(tensor)
    tensor = ops.asarray(tensor)
    _check_numeric(ops.dtype_of(tensor))
    return ops.shift_right(tensor, bos_id, axis=axis)


def make_autoregressive_inputs(
    targets: object,
    sequence_id: object = None,
    output_dtype: object = None,
    bos_id: int = 0,
    *,
    axis: int = 0,
) -> TfTensor:
    """The tokens a decoder reads while it is trained to produce `targets`.

    One sequence: `[3, 9, 1, 0]` → `[bos, 3, 9, 1]`. Packed, with `sequence_id` `[1, 1, 2, 2, 0]`:
    `[3, 1, 4, 1, 0]` → `[bos, 3, bos, 4, bos]`: each sequence, and the padding after the last, starts with
    `bos_id` and never sees its neighbour.

    `sequence_id`: integers, one per step along `axis`; targets may have a higher rank (`(steps, features)`).
    `output_dtype`: the dtype of the result, by default that of `targets`.

    Raises `TaskError` (a `ValueError`) for a `sequence_id` of another dtype, or of several axes without `axis`, and for
    targets that are not numbers.
    """
    ops = ops_of(targets, sequence_id)
    targets = ops.asarray(targets)
    inputs = shift_right_by_one(targets, bos_id, axis=axis)
    if sequence_id is not None:
        sequence_id = ops.asarray(sequence_id)
        found = ops.dtype_of(sequence_id)
        if not found.startswith(("int", "uint")):
            raise TaskError(
                "The sequence_id should be integer-valued tensors for a packed dataset. "
                f"Got: {found}; cast it to int32.",
                dtype=found,
            )
        rank = sequence_id.shape.rank if hasattr(sequence_id.shape, "rank") else len(sequence_id.shape)
        if axis == 0 and rank not in (None, 1):  # rows of a batch would be taken for steps
            raise TaskError(
                f"Only 1-D sequences are supported with packing. Got a packed {rank}-D sequence; for a batch of rows, "
                "say which axis counts their steps: axis=1."
            )
        begins = ops.not_equal(sequence_id, ops.shift_right(sequence_id, 0, axis=axis))
        inputs = ops.fill_where(inputs, ops.expand_to_rank_of(begins, inputs), bos_id)
    return inputs if output_dtype is None else ops.cast(inputs, DType(output_dtype))


autoregressive_inputs = make_autoregressive_inputs


def non_padding_position(tensor: object, dtype: object = "int32", pad_id: int = 0) -> TfTensor:
    """1 where `tensor` differs from `pad_id`, 0 elsewhere: `[3, 9, 0]` → `[1, 1, 0]`.

    For custom converters whose ids exclude `pad_id`. The converters here do not use it: an id 0 inside a sequence
    is data, so they use the lengths.
    """
    ops = ops_of(tensor)
    tensor = ops.asarray(tensor)
    return 1 - ops.cast(ops.equal(tensor, ops.fill_like(tensor, pad_id)), DType(dtype))


def _check_numeric(dtype: str) -> None:
    if not dtype.startswith(("int", "uint", "float", "bfloat", "double", "half")):
        raise TaskError(f"Only numeric types are supported. Got: {dtype}", dtype=dtype)
