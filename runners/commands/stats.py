"""`beam-pipes stats`."""

from __future__ import annotations

import collections
from typing import Annotated

import typer

from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.dead_letters import DeadLetter
from beam_pipes.engine.account import Account
from beam_pipes.runners.commands.tables import account_table, console, dead_letters_table, statistics_text


def stats_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show what happened to every record, and the statistics of all stages.

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
