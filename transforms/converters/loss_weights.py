"""Where the loss is taken: on data, never on padding."""

from __future__ import annotations

from beam_pipes.tasks.in_python.array_ops import ops_of
from beam_pipes.tasks.in_tensorflow.autoregressive import non_padding_position
from beam_pipes.transforms.converters.feature_converter import Array, Features


def data_positions(rows: Features, name: str) -> Array:
    """1 on the steps of feature `name` that hold data, 0 on padding, int32: ids `[1, 1, 2, 0]` → `[1, 1, 1, 0]`.

    The segment ids decide, so that a token 0 inside a sequence counts. Only rows made elsewhere without segment ids
    fall back to `token != 0`.
    """
    segment_ids = rows.get(f"{name}_segment_ids")
    if segment_ids is None:
        return non_padding_position(rows[name])
    return ops_of(segment_ids).cast(segment_ids > 0, "int32")
