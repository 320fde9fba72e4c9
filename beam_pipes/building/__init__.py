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

from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.building.declaration import Declaration as Declaration
    from beam_pipes.building.expectation import expect as expect
    from beam_pipes.building.references import load_declaration as load_declaration
    from beam_pipes.building.takedown import take_down as take_down
    from beam_pipes.building.takedown import undo_takedown as undo_takedown
    from beam_pipes.building.trace import explain_record as explain_record
    from beam_pipes.building.trace import trace_record as trace_record
    from beam_pipes.identity.canonical import Asset as Asset

# Programs that only look at a cache need none of them.
__getattr__, __dir__ = loaded_on_first_use(
    __name__,
    {
        "beam_pipes.identity.canonical": "Asset",
        "declaration": "Declaration",
        "expectation": "expect",
        "references": "load_declaration",
        "takedown": "take_down undo_takedown",
        "trace": "explain_record trace_record",
    },
)
__all__ = __dir__()
