"""`fn.readers`: see `beam_pipes.transforms.fn`."""

from __future__ import annotations

from beam_pipes.transforms.operators.offered import functions

__getattr__, __dir__ = functions(__name__, "readers")
