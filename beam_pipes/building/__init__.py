"""The offline half, on any runner: declaration → plan → shards → commit.

| word | meaning |
| --- | --- |
| declaration | what to build: a source, a pipeline, the features of its examples; plain data with checks |
| plan | the source shards of a declaration, their fingerprints, and the snapshot they make |
| shard job | one source shard, read, run through the pipeline and written |
| completion | the small record that says a source shard is done: fingerprint, files, account |
| commit | completions of all source shards → reconciled counts → manifest, published atomically |

A runner only decides where shard jobs run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_pipes.building.declaration import Declaration as Declaration
    from beam_pipes.building.declaration import RegroupedDeclaration as RegroupedDeclaration
    from beam_pipes.building.expectation import expect as expect
    from beam_pipes.building.references import load_declaration as load_declaration

# Loaded when they are first used: what only looks at a cache needs none of them.
_FILE_OF_NAME = {
    "Declaration": "declaration",
    "RegroupedDeclaration": "declaration",
    "expect": "expectation",
    "load_declaration": "references",
}

__all__ = ["Declaration", "RegroupedDeclaration", "expect", "load_declaration"]


def __getattr__(name: str) -> object:
    file = _FILE_OF_NAME.get(name)
    if file is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(f"{__name__}.{file}"), name)
