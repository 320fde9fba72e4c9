"""`beam-pipes dead`."""

from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
from collections.abc import Iterator
from typing import IO, Annotated, Any

import typer

from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.dead_letters import DeadLetter
from beam_pipes.cache.output_file import writing_to
from beam_pipes.runners.commands.tables import console, dead_letters_table

# Of a record and of a message, as much as this is shown.
SHOWN = 200


def dead_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    stage: Annotated[str | None, typer.Option(help="those of one stage only [all]")] = None,
    error: Annotated[str | None, typer.Option(help="those of one type of error only [all]")] = None,
    count: Annotated[int, typer.Option("-n", help="dead letters to show in full")] = 3,
    export: Annotated[
        str | None, typer.Option("--export", help="write them to a file, to be edited and replayed with --repairs")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the counts as JSON")] = False,
) -> None:
    """List dead letters: how many by stage and error, and the first few with record, place and traceback.

    Example: beam-pipes dead .demo/python_source --stage ParseModule -n 1
    """
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    first: dict[tuple[str, str], DeadLetter] = {}
    shown: list[DeadLetter] = []
    cache = Cache.open(path)
    with _export_file(export) as file:
        for letter in _chosen(cache, stage, error):
            kind = letter.stage, letter.error_type
            counts[kind] += 1
            first.setdefault(kind, letter)
            if len(shown) < count:
                shown.append(letter)
            if file is not None:
                file.write(strict_json(exported(letter), ensure_ascii=False) + "\n")
    if as_json:
        rows = [{"stage": stage, "error": error, "count": number} for (stage, error), number in counts.most_common()]
        console.print_json(strict_json({"dead_letters": counts.total(), "by_stage_and_error": rows}))
        return
    if not counts:
        console.print("no dead letters.")
        return
    console.print(dead_letters_table(counts, first))
    for letter in shown:
        for line in _lines(letter):
            console.print(line, markup=False)
    if counts.total() > len(shown):
        console.print(f"… {counts.total() - len(shown):,} more (-n).")
    if export is not None:
        console.print(
            f"{counts.total():,} dead letters are in {export}: edit the records there, then run beam-pipes replay-dead "
            f"{path} DECLARATION --repairs {export}",
            markup=False,
        )


@contextlib.contextmanager
def _export_file(path: str | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    with writing_to(path), open(path, "w", encoding="utf-8") as file:
        yield file


def exported(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as a line of an exported file: its record as `text` where it is UTF-8, else as `base64`."""
    try:
        record = {"text": letter.record.decode("utf-8")}
    except UnicodeDecodeError:
        record = {"base64": base64.b64encode(letter.record).decode()}
    return {
        "source": letter.source,
        "position": letter.position,
        "stage": letter.stage,
        "error": f"{letter.error_type}: {letter.message}",
        **record,
        "sha256": hashlib.sha256(letter.record).hexdigest(),
    }


def _chosen(cache: Cache, stage: str | None, error: str | None) -> Iterator[DeadLetter]:
    for letter in cache.dead_letters():
        if (stage is None or letter.stage == stage) and (error is None or letter.error_type == error):
            yield letter


def _lines(letter: DeadLetter) -> Iterator[str]:
    yield f"{letter.record_id} (record {letter.ordinal} of its source shard), stage {letter.stage}:"
    record = repr(letter.record[:SHOWN])
    yield f"    {record}{f'… ({len(letter.record):,} bytes)' if len(letter.record) > SHOWN else ''}"
    told = letter.traceback or f"{letter.error_type}: {letter.message}"
    for line in told.splitlines():
        yield f"    {line}"
