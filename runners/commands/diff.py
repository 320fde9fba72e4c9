"""`beam-pipes diff`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.report import SnapshotDifference, diff_caches
from beam_pipes.runners.commands.tables import console


def diff_command(
    before: Annotated[str, typer.Argument(help="directory of a cache, or of one of its snapshots")],
    after: Annotated[str, typer.Argument(help="the same, of the later one")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with every quantity that was compared")] = False,
) -> None:
    """Show what differs between two snapshots: declaration, schema, splits, counts of stages, drift of the data.

    Drift is the population stability index (PSI) of histograms and the Kolmogorov-Smirnov distance (KS) of lengths and
    sampled values; what chance may explain is not shown.

    Example: beam-pipes diff .demo/monday .demo/tuesday
    """
    difference = diff_caches(before, after)
    if as_json:
        console.print_json(strict_json(difference.to_json()))
        return
    for line in difference_lines(difference):
        console.print(line, markup=False)


def difference_lines(difference: SnapshotDifference) -> Iterator[str]:
    """`train.tokens dtype: uint16 → uint32`, one line for each difference."""
    yield f"{difference.before} → {difference.after}" + (": the data are the same" if difference.same_data else "")
    for stage, lines in (difference.declaration or {}).items():
        for line in lines:
            yield f"declaration  {stage}: {line}"
    for kind in ("schema", "splits", "counts"):
        for change in getattr(difference, kind):
            before, after = ("–" if value is None else value for value in (change.before, change.after))
            yield f"{kind:<12} {change.where} {change.field}: {before} → {after}"
    for drift in difference.drifted:
        where = "" if drift.split is None else f"{drift.split}."
        medians = "" if drift.medians is None else f", median {drift.medians[0]:g} → {drift.medians[1]:g}"
        yield (
            f"drift        {where}{drift.name} {drift.quantity}: {drift.verdict}, {drift.measure} {drift.distance:.3f} "
            f"(chance: {drift.noise:.3f}){medians}"
        )
    if difference.drift and not difference.drifted:
        yield f"drift        none in {len(difference.drift)} quantities"
