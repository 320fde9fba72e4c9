"""Operators as functions, each called with data nodes within a graph: `fn.flip(images, horizontal=flip)`.

They are generated from the table in `beam_pipes.transforms.operators` on first use; `.pyi` files beside this one,
generated from the same table when the package is built, give editors and type checkers their signatures.
"""

from __future__ import annotations

from beam_pipes.transforms.operators import functions

__getattr__, __dir__ = functions(__name__)
