"""Commands about dead letters and duplicates: `dead`, `replay-dead` and `duplicates`."""

from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
import itertools
from collections.abc import Iterator
from typing import IO, Annotated, Any

import typer

from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.lineage_reader import DeadLetter
from beam_pipes.cache.storage import writing_to
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.stats import console, dead_letters_table
from beam_pipes.runners.progress import progress_for

# Of a record and of a message, as much as this is shown.
SHOWN = 200


def dead_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    stage: Annotated[str | None, typer.Option(help="only dead letters of this stage [all]")] = None,
    error: Annotated[str | None, typer.Option(help="only dead letters with this error type [all]")] = None,
    count: Annotated[int, typer.Option("-n", help="number of dead letters to show in full")] = 3,
    export: Annotated[
        str | None, typer.Option("--export", help="write dead letters to a file to edit and replay with --repairs")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the counts as JSON")] = False,
) -> None:
    """Count dead letters by stage and error, and show the first few with record, location and traceback.

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


def replay_dead_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    declaration: Annotated[str, typer.Argument(help="package.module:name of its current Declaration")],
    to: Annotated[str | None, typer.Option("--to", help="directory to write the result to [the same cache]")] = None,
    repairs: Annotated[
        str | None,
        typer.Option("--repairs", help="file of repaired records, first exported with beam-pipes dead --export"),
    ] = None,
    accept_code_change: Annotated[
        bool,
        typer.Option(
            "--accept-code-change", help="confirm that changed stages give unchanged output for all other records"
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(help="number of worker processes [all cores]")] = None,
) -> None:
    """Rerun a cache's dead letters and publish the result that a build of the repaired declaration would give.

    Example: beam-pipes replay-dead .demo/python_source examples.python_source:declaration --accept-code-change
    """
    from beam_pipes.runners.options import LocalOptions
    from beam_pipes.runners.replay import replay_dead
    from beam_pipes.sources.repaired import read_repairs

    result = replay_dead(
        declaration,
        path,
        to=to,
        repairs=None if repairs is None else read_repairs(repairs),
        accept_code_change=accept_code_change,
        options=LocalOptions(workers=workers),
        progress=progress_for(),
    )
    if result.up_to_date:
        console.print(f"{result.path} is up to date (snapshot {result.snapshot}), with {result.dead:,} dead letters.")
        return
    console.print(
        f"{result.replayed:,} dead letters run again in {result.replayed_shards} source shards, "
        f"{result.rebuilt_shards} built anew, {result.kept_shards} kept; {result.dead:,} dead letters are left; "
        f"{result.secs:.1f} s."
    )
    console.print(f"The cache is in {result.path} (snapshot {result.snapshot}).")


def duplicates_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    name: Annotated[str | None, typer.Option(help="one analyzer [all]")] = None,
    count: Annotated[
        int, typer.Option("-n", "--num-records", min=0, help="number of removed records to show for each analyzer")
    ] = 3,
    tsv: Annotated[str | None, typer.Option(help="write all removed records to this TSV file; needs --name")] = None,
) -> None:
    """Show which records were removed as duplicates, and which record each one duplicates.

    Example: beam-pipes duplicates caches/books --name near --tsv near.tsv
    """
    from beam_pipes.transforms.dedup import cache_duplicates

    found = cache_duplicates(Cache.open(path))
    if name is not None and name not in found or tsv is not None and name is None and len(found) != 1:
        raise DeclarationError(f"--name should be one of {sorted(found)}, analyzers of {path!r}; got {name!r}.")
    if not found:
        console.print("no analyzer has looked for duplicates.")
    for each, duplicates in found.items() if name is None else [(name, found[name])]:
        counts = f"{len(duplicates):,} {duplicates.kind} duplicates of {duplicates.num_kept:,} records"
        console.print(f"{each}: {counts}", markup=False)
        if cut := duplicates.facts.get("cut_groups"):
            console.print(f"  {cut:,} groups were larger than max_compared: more may be alike", markup=False)
        for row in itertools.islice(duplicates, count):
            console.print(f"  {row.removed} of {row.kept} (similarity {row.similarity:.2f})", markup=False)
        if tsv is not None:
            duplicates.write_tsv(tsv)
