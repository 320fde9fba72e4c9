"""What a loader reads, as text: the tree from the run down to the snapshots, with sizes, rates and fingerprints.

For a mixture of two plans on the first of two hosts:

    Loader: batches of 32 rows, 1,250 steps in an epoch, 2 epochs, last='drop'
    ├─ order: global, seed 7
    ├─ this process: rows 0 to 15 of each batch (host 0 of 2)
    └─ mixture, exhausted='stop'
       ├─ 0.75 of the rows: 30,000 rows of 2,048 tokens, packed by best_fit
       │  ├─ 61,436,012 tokens, 0.007 % padding, plan 6f1d0c…
       │  └─ split 'train' of 'books'
       │     └─ 48,112 records in 16 shards, manifest 9c4e…
       └─ 0.25 of the rows: …

The features that are read come above the sources. It contains everything a state depends on, except the cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from beam_pipes.cache.split import Split
from beam_pipes.loader.columns import stored_split
from beam_pipes.loader.epochs import shuffle_label
from beam_pipes.loader.mixture import Mixture
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.row_source import PaddedSplit
from beam_pipes.loader.windows import Windows
from beam_pipes.loader.world import ranges_in_words

if TYPE_CHECKING:
    from beam_pipes.loader.options import LoaderOptions
    from beam_pipes.loader.steps import Run


class Description(NamedTuple):
    """A fact and its parts; as text, the tree above."""

    title: str
    parts: list[Description]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def described(run: Run, options: LoaderOptions, features: Sequence[str], epoch: int) -> Description:
    """A title, facts about the run, and the tree of what is read."""
    stream, steps = run.stream, run.steps
    segment = stream.segment(epoch)
    epochs = "epochs without end" if steps.epochs is None else f"{steps.epochs} epoch{'s' if steps.epochs > 1 else ''}"
    length = "no end of an epoch" if run.steps_per_epoch is None else f"{run.steps_per_epoch:,} steps in an epoch"
    of_rows = f"{steps.batch_size:,}" if steps.even else f"{steps.smallest_batch:,} to {steps.batch_size:,}"
    which = "each batch" if steps.even else "a batch of so many rows"
    rows = ranges_in_words(steps.host_places(steps.batch_size, steps.batch_size))
    facts = [
        f"order: {shuffle_label(options.shuffle)}, seed {options.seed}",
        *stream.lines(),
        f"this process: rows {rows} of {which} (host {steps.share.index} of {steps.share.count})",
        *([] if options.mesh_share is None else [options.mesh_share.line]),
        f"features: {', '.join(features)}",
    ]
    title = f"Loader: batches of {of_rows} rows, {length}, {epochs}, last={steps.last!r}"
    return Description(
        title,
        [
            *(Description(fact, []) for fact in facts),
            _source(options.source, None if segment is None else segment.rates),
        ],
    )


def _lines(node: Description) -> list[str]:
    lines = [node.title]
    for part in node.parts:
        last = part is node.parts[-1]
        first, *others = _lines(part)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in others]
    return lines


def _source(source: object, rates: Sequence[int] | None = None) -> Description:
    if isinstance(source, Mixture):
        return _mixture(source, rates or source.integer_rates)
    if isinstance(source, PackingPlan):
        return _plan(source)
    if isinstance(source, PaddedSplit):
        lengths = ", ".join(
            f"{name} to {length}" if length else f"{name} as stored" for name, length in source.sequence_lengths.items()
        )
        return Description(
            f"{len(source):,} rows, padded: {lengths}; overlong={source.overlong!r}", [_source(source.split)]
        )
    if isinstance(source, Windows):
        stepped = [f"{each.name} {_offsets(each.offsets.tolist())}, ends={each.ends!r}" for each in source.features]
        return Description(
            f"{len(source):,} windows of {len(source.index.lengths):,} sequences, {source.label}: {'; '.join(stepped)}",
            [_source(source.source)],
        )
    if isinstance(source, Split):
        if source.choice is None:
            return _split(source)
        return Description(f"{len(source):,} records {source.choice.in_words}", [_split(source.whole)])
    stored = stored_split(source)  # inside the steps of a task, several splits side by side, or another wrapper
    return Description(repr(source), [] if stored is source else [_source(stored)])


def _offsets(offsets: Sequence[int]) -> str:
    consecutive = list(offsets) == list(range(offsets[0], offsets[0] + len(offsets)))
    return f"{offsets[0]} to {offsets[-1]}" if consecutive else str(list(offsets))


def _mixture(mixture: Mixture, rates: Sequence[int]) -> Description:
    parts = []
    for (source, _), rate in zip(mixture.sources, rates, strict=True):
        node = _source(source)
        parts.append(Description(f"{rate / sum(rates):.4g} of the rows: {node.title}", node.parts))
    return Description(f"mixture, exhausted={mixture.exhausted!r}", parts)


def _plan(plan: PackingPlan) -> Description:
    sizes = " and ".join(f"{length:,} {name}" for name, length in plan.sequence_lengths.items())
    how = [f"packed by {plan.algorithm}"]
    if plan.seed is not None:
        how.append(f"seed {plan.seed}" + (", drawn again in each epoch" if plan.reshuffle_each_iteration else ""))
    if plan.max_segments is not None:
        how.append(f"at most {plan.max_segments} segments")
    if plan.bos_ids is not None:
        ids = ", ".join(str(value) for value in plan.bos_ids.values() if value or len(plan.bos_ids) == 1)
        how.append(f"each segment begins with BOS ({ids})")
    if plan.segment_multiple != 1:
        how.append(f"segments of multiples of {plan.segment_multiple} places")
    tokens = sum(totals.tokens_out for totals in plan.distinct_totals)
    facts = [f"{tokens:,} tokens", f"{plan.waste:.3%} padding"]
    if cut := sum(totals.truncated_tokens for totals in plan.distinct_totals):
        facts.append(f"{cut:,} tokens cut off")
    if left_out := sum(totals.dropped_tokens for totals in plan.distinct_totals):
        facts.append(f"{left_out:,} tokens of {plan.dropped_records:,} records left out")
    facts.append(f"plan {plan.digest}")
    parts = [Description(", ".join(facts), [])]
    if plan.split is not None:
        parts.append(_source(plan.split))
    return Description(f"{len(plan):,} rows of {sizes}, {', '.join(how)}", parts)


def _split(split: Split) -> Description:
    removed = len(split.removed_rows)
    facts = [
        f"{len(split):,} records in {split.num_shards:,} {'shard' if split.num_shards == 1 else 'shards'}",
        *([f"{removed:,} taken down"] if removed else []),
        f"manifest {split.manifest_id}",
    ]
    return Description(f"split {split.name!r} of {split.path!r}", [Description(", ".join(facts), [])])
