"""The first half of a shard job: source shard → batches, and the units to run over them."""

from __future__ import annotations

from collections.abc import Iterator

from beam_pipes.building.declaration import Declaration
from beam_pipes.engine.batch import Batch
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.errors import SourceError, StageError
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import SourceShard

# The name under which records that could not be parsed are booked.
SOURCE = "source"


class SourceBatch(Batch):
    """A batch whose records come from a source, so that each knows where it was and what its bytes are."""

    __slots__ = ()

    records: RecordBatch


def graph_runner(declaration: Declaration) -> GraphRunner:
    """The units of a declaration, ready to run: statistics prefixed and randomness keyed as in every other run."""
    graph = declaration.graph
    return GraphRunner(
        graph, prefix=graph.prefix, path=graph.prefix, seed=declaration.seed, on_error=declaration.on_error
    )


def read_batches(declaration: Declaration, shard: SourceShard) -> Iterator[SourceBatch]:
    """The batches of a source shard, in order, their bad rows booked.

    Raises `StageError` for a bad row where the declaration's `on_error` is "fail", `SourceError` for input that is
    gone, damaged, or not what was planned.
    """
    for records in shard_records(declaration, shard):
        yield source_batch(declaration, records)


def source_batch(declaration: Declaration, records: RecordBatch) -> SourceBatch:
    """Records as a batch that units can run over, its bad rows booked; raises what `read_batches` does for those."""
    batch = SourceBatch(records)
    batch.account.read = len(records.values) + len(records.bad)
    account = batch.account.unit(SOURCE)
    account.inputs = batch.account.read
    account.kept = account.outputs = len(records.values)
    for row in records.bad:
        if declaration.on_error == "fail":
            raise StageError(
                f"the source cannot parse record {row.record_id!r}: {row.error} Repair the input, or allow bad "
                "records with on_error='dead_letter' (kept for a replay) or on_error='drop'.",
                stage=SOURCE,
                record=row.record_id,
            ) from row.error
        if declaration.on_error == "drop":
            reason = f"error/{type(row.error).__name__}"
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
            batch.account.dropped += 1
        else:
            account.dead += 1
    return batch


def shard_records(declaration: Declaration, shard: SourceShard) -> Iterator[RecordBatch]:
    """The records of a source shard; raises `SourceError`, naming the shard, where they cannot be read."""
    try:
        yield from declaration.source.read(shard)
    except SourceError as error:
        raise SourceError(
            f"source shard {shard.index} cannot be read: {error}. Repair or remove the input and run the build again: "
            "shards that are finished are kept, and what was published before is untouched.",
            **{**error.attributes, "shard": shard.index},
        ) from error
