"""Accounts and statistics as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from beam_pipes.cache.dead_letters import DeadLetter
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistic import Statistic
from beam_pipes.runners.terminal import Terminal

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
