"""Operators as classes, made with constants and then called with data nodes: `ops.Flip(vertical=1)(images)`."""

from __future__ import annotations

from beam_pipes.transforms.operators import classes

__getattr__, __dir__ = classes(__name__)
