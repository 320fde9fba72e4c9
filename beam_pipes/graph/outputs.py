"""What `run` returns: a batch of every output, by position and by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import GraphError
from beam_pipes.graph.tensor_list import TensorList


class Outputs(tuple[TensorList, ...]):
    """A batch: `images, labels = pipe.run()`, `pipe.run()[0]`, `pipe.run()["images"]`.

    `names` are those that the graph's function returned in a dict. `valid` is a boolean array (n,) where the last batch
    of an epoch was padded or could be (`last="pad"`), else None; `epoch` counts from 0.
    """

    names: tuple[str, ...]
    epoch: int
    valid: npt.NDArray[np.bool_] | None

    def __new__(
        cls,
        columns: Iterable[TensorList],
        names: Sequence[str] = (),
        *,
        epoch: int = 0,
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> Outputs:
        made = super().__new__(cls, columns)
        made.names = tuple(names)
        made.epoch = epoch
        made.valid = valid
        return made

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise GraphError(
                    f"there is no output {key!r}; the outputs are {', '.join(self.names) or f'0 to {len(self) - 1}'}."
                )
            return super().__getitem__(self.names.index(key))
        return super().__getitem__(key)

    @property
    def batch_size(self) -> int:
        """Samples of the batch."""
        return len(self[0]) if self else 0

    def as_dict(self) -> dict[str, TensorList]:
        """Name → batch; positions as strings where outputs have no names."""
        return dict(zip(self.names or map(str, range(len(self))), self, strict=True))
