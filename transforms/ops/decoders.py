"""`ops.decoders`: see `transforms.ops`."""

from __future__ import annotations

from transforms.operators.offered import classes

__getattr__, __dir__ = classes(__name__, "decoders")
