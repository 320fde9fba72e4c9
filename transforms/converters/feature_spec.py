"""What a converter expects of one feature: its dtype, its rank, and which axis is the sequence."""

from __future__ import annotations

import dataclasses

from beam_pipes.errors import TaskError
from beam_pipes.tasks.dtypes import DType


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """Describes one task or model feature.

    `FeatureSpec(dtype=np.float32, rank=2)` describes `[[0.5, 0.1], [0.2, 0.9]]`: two steps of two numbers.

    Attributes:
        dtype: a NumPy or TensorFlow dtype or a name; kept as a `DType`, which equals all of them.
        rank: number of axes of one example's value, 1 for a row of tokens.
        sequence_dim: the axis whose size `task_feature_lengths` limits; None (always for rank 0) if there is none.

    Raises:
        TaskError: the dtype is unknown, or rank and sequence_dim do not fit together.
    """

    dtype: DType
    rank: int = 1
    sequence_dim: int | None = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype))
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 0:
            raise TaskError(f"FeatureSpec.rank should be an integer ≥ 0, got {self.rank!r}", rank=self.rank)
        if self.rank == 0:
            object.__setattr__(self, "sequence_dim", None)
        elif self.sequence_dim is not None and not 0 <= self.sequence_dim < self.rank:
            raise TaskError(
                f"FeatureSpec.sequence_dim should lie in 0..{self.rank - 1} for rank {self.rank}, "
                f"got {self.sequence_dim!r}",
                sequence_dim=self.sequence_dim,
            )


TOKENS = FeatureSpec(dtype=DType("int32"))
