"""`ops.decoders`: see `beam_pipes.transforms.ops`."""

from __future__ import annotations

from beam_pipes.transforms.operators.offered import classes

__getattr__, __dir__ = classes(__name__, "decoders")
