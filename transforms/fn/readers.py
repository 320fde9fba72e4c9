"""`fn.readers`: see `transforms.fn`."""

from __future__ import annotations

from transforms.operators.offered import functions

__getattr__, __dir__ = functions(__name__, "readers")
