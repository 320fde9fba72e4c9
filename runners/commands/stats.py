"""Commands that show what was built: `stats`, `status` and `diff`; accounts and statistics as tables."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from beam_pipes.building.progress import Status, read_status
from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.lineage_reader import DeadLetter
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Statistic
from beam_pipes.runners.progress_views import Terminal

if TYPE_CHECKING:
    from beam_pipes.report import SnapshotDifference


def stats_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show how many records each stage read, wrote and dropped, and the statistics of all stages.

    Example: beam-pipes stats .demo/python_source
    """
    cache = Cache.open(path)
    account = Account.from_json(cache.manifest.accounting)
    if as_json:
        console.print_json(strict_json(account.to_json()))
        return
    console.print(account_table(account))
    if account.dead:
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        first: dict[tuple[str, str], DeadLetter] = {}
        for letter in cache.dead_letters():
            counts[letter.stage, letter.error_type] += 1
            first.setdefault((letter.stage, letter.error_type), letter)
        console.print(dead_letters_table(counts, first))
    console.print(statistics_text(account.statistics()))
    for name in cache.splits:
        split = cache[name]
        console.print(f"split {name}: {len(split):,} records in {split.num_shards} shards")


def status_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    watch: Annotated[bool, typer.Option("--watch", help="refresh until no build is running")] = False,
    every_secs: Annotated[
        float, typer.Option("--every-secs", min=0.1, help="with --watch: seconds between refreshes")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show, from the files alone, what is published and the progress of running or unfinished builds.

    Example: beam-pipes status .demo/python_source
    """
    status = read_status(path)
    if as_json:
        console.print_json(strict_json(status.to_json()))
    elif not watch:
        console.print(status_view(status))
    else:
        wrapping = Terminal(highlight=False, emoji=False, markup=False)  # what is drawn anew has to know its own height
        with Live(status_view(status), console=wrapping, auto_refresh=False) as live:
            while status.builder is not None:
                time.sleep(every_secs)
                status = read_status(path)
                live.update(status_view(status), refresh=True)


def status_view(status: Status) -> RenderableType:
    """A status as a terminal shows it: in words, and for an unfinished build a bar and its stages."""
    parts: list[RenderableType] = [Text(str(status))]
    progress = status.progress
    if progress is not None:
        parts.append(Padding(ProgressBar(total=progress.shards, completed=progress.shards_done, width=40)))
        if progress.account.units:
            parts.append(account_table(progress.account))
    return Group(*parts)


# Without markup: names, reasons and messages of users may have brackets in them.
console = Terminal(highlight=False, soft_wrap=True, emoji=False, markup=False)


def account_table(account: Account) -> Table:
    """stage | in | out | dropped by reason | dead."""
    table = Table("stage", title_justify="left")
    for heading in ("in", "kept", "out", "dead"):
        table.add_column(heading, justify="right")
    table.add_column("dropped, by reason")
    for name, unit in account.units.items():
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(unit.dropped.items()))
        table.add_row(name, f"{unit.inputs:,}", f"{unit.kept:,}", f"{unit.outputs:,}", f"{unit.dead:,}", reasons)
    return table


def dead_letters_table(counts: Mapping[tuple[str, str], int], first: Mapping[tuple[str, str], DeadLetter]) -> Table:
    """stage | error | count | the first one, the most frequent on top."""
    table = Table("stage", "error", title_justify="left")
    table.add_column("dead letters", justify="right")
    table.add_column("the first one")
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        letter = first[kind]
        message = letter.message if len(letter.message) <= 80 else letter.message[:79] + "…"
        table.add_row(*kind, f"{count:,}", f"{letter.record_id}: {message}")
    return table


def statistics_text(statistics: Iterable[Statistic]) -> str:
    """Statistics as the reference prints them, one below the other, sorted by name."""
    return "\n".join(str(statistic) for statistic in sorted(statistics, key=lambda statistic: statistic.name))


def diff_command(
    before: Annotated[str, typer.Argument(help="directory of a cache or of one of its snapshots")],
    after: Annotated[str, typer.Argument(help="the later cache or snapshot to compare with it")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON with every compared quantity")] = False,
) -> None:
    """Compare two snapshots: declaration, schema, splits, stage counts and data drift.

    Drift is the population stability index (PSI) of histograms and the Kolmogorov-Smirnov distance (KS) of lengths and
    sampled values; differences that chance may explain are not shown.

    Example: beam-pipes diff .demo/monday .demo/tuesday
    """
    from beam_pipes.report import diff_caches

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
