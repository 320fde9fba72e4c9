"""Commands about records: `trace`, `why` and `takedown` for single ones, and those for records that a build left out:

`dead` and `replay-dead` for dead letters, and `duplicates`.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, get_args

import typer
from rich.table import Table

from beam_pipes.building.references import load_declaration
from beam_pipes.building.takedown import (
    TakedownReport,
    learned_line,
    mark_gone,
    resolve_takedowns,
    states_of_takedowns,
    take_down,
    undo_takedown,
)
from beam_pipes.building.taken_down_records import SHOWN, TakedownState
from beam_pipes.building.trace import RecordReport, RecordTrace, StageTrace, explain_record, trace_record
from beam_pipes.cache import Cache
from beam_pipes.commands.caches import console, dead_letters_table, statistics_text
from beam_pipes.errors import DeclarationError
from beam_pipes.lineage.reader import DeadLetter
from beam_pipes.runners.progress import counted, progress_for
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import output_file
from beam_pipes.transforms.dedup import Duplicate, cache_duplicates
from beam_pipes.transforms.dedup.duplicates import Kind

_WIDTH = 120
_SHOWN = 5


def trace_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    cache: Annotated[
        str | None,
        typer.Option("--cache", help="the declaration's cache, for analyzer results and input digests"),
    ] = None,
) -> None:
    """Run one source record through a declaration; show each stage's input, output, drops, counts and errors.

    Example: beam-pipes trace abc.py@0 examples.python_source:declaration
    """
    print_trace(trace_record(load_declaration(declaration), record, cache=cache))


def print_trace(trace: RecordTrace) -> None:
    """Prints the trace as a table, and the traceback of a failure."""
    console.print(f"{trace.record_id}: {len(trace.raw):,} bytes: {short(trace.raw)}", markup=False)
    table = Table("stage", "in", "out", "dropped", "statistics", title_justify="left", show_lines=True)
    for stage in trace.stages:
        table.add_row(*_cells(stage))
    console.print(table)
    failure = trace.failure
    if failure is not None:
        console.print(f"failed in {failure.stage}: {failure.error_type}: {failure.message}", markup=False)
        console.print(failure.traceback, markup=False)
    for split, payloads in trace.written.items():
        console.print(f"{split}: {counted(len(payloads), 'record')}, {sum(map(len, payloads)):,} bytes", markup=False)


def short(value: object) -> str:
    """`repr` of a value, truncated if long."""
    text = repr(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _cells(stage: StageTrace) -> tuple[str, ...]:
    if not stage.reached:
        return stage.name, "nothing is left", "", "", ""
    outputs = f"{stage.failure.error_type}" if stage.failure is not None else _values(stage.outputs)
    return stage.name, _values(stage.inputs), outputs, ", ".join(stage.drops), statistics_text(stage.statistics)


def _values(columns: Mapping[str | None, Sequence[object]]) -> str:
    lines = []
    for name, values in columns.items():
        prefix = "" if name is None else f"{name}: "
        lines += [f"{prefix}{short(value)}" for value in values[:_SHOWN]]
        if len(values) > _SHOWN:
            lines.append(f"{prefix}… {len(values)} in all")
        elif not values:
            lines.append(f"{prefix}nothing")
    return "\n".join(lines)


def why_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    path: Annotated[str, typer.Argument(help="cache directory")],
    declaration: Annotated[
        str | None, typer.Argument(help="package.module:name of a Declaration to rerun the record through")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show whether a source record was written (and where), dropped (and why) or became a dead letter.

    Example: beam-pipes why abc.py@0 .demo/python_source
    """
    report = explain_record(path, record)
    if as_json:
        console.print_json(strict_json(report.to_json()))
        return
    for line in report_lines(report):
        console.print(line, markup=False)
    for each in _duplicates(path, report):
        console.print(f"  {each.reason} of {each.kept} (similarity {each.similarity:.2f})", markup=False)
    if declaration is not None:
        print_trace(trace_record(load_declaration(declaration), record, cache=path))


def _duplicates(path: str, report: RecordReport) -> list[Duplicate]:
    """The record that this one duplicates, if that is why it was dropped."""
    reasons = {reason.rpartition("/")[2] for _, reason in report.fate.drops}
    if not reasons & {f"{kind} duplicate" for kind in get_args(Kind)}:
        return []
    results = cache_duplicates(Cache.open(path)).values()
    return [found for each in results if each.reason in reasons and (found := each.find(report.record_id))]


def report_lines(report: RecordReport) -> list[str]:
    """The report in words."""
    where = f"record {report.ordinal} of source shard {report.source_shard}, snapshot {report.snapshot}"
    lines = [f"{report.record_id}: {report.status} ({where})"]
    if declared := [f"{name} {value}" for name, value in report.terms.to_json().items() if value]:
        lines.append(f"  its source declares: {', '.join(declared)}")
    for stage, reason in report.fate.drops:
        lines.append(f"  dropped by {stage}: {reason}")
    if report.status == "dead":
        letter = report.dead_letter
        lines.append(f"  failed in {report.fate.stage}: {report.fate.error}{f': {letter.message}' if letter else ''}")
        lines += [f"    {line}" for line in letter.traceback.splitlines()] if letter else []
    for row in report.rows:
        taken_down = " (taken down)" if row.taken_down else ""
        lines.append(f"  {row.split}[{row.row}]: {row.shard}, record {row.position}{taken_down}")
    return lines


_BY_POSITION = (
    "built by a version that kept no digests of records, so ids are looked up where they stood. Build again to follow "
    "records by their content."
)


def takedown_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    ids: Annotated[
        Path | None, typer.Argument(help="file with one id per line: file@position, or a file name for all its records")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="reason to store in the audit record")] = "",
    by: Annotated[str | None, typer.Option("--by", help="name to store in the audit record [the user's name]")] = None,
    next_build: Annotated[
        bool, typer.Option("--next", help="ids refer to the current input; apply them in the next build")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="list takedowns and what each hides now, without changes")
    ] = False,
    undo: Annotated[int | None, typer.Option("--undo", help="number of the takedown to undo")] = None,
    gone: Annotated[
        int | None, typer.Option("--gone", help="number of the takedown whose records may be missing from the input")
    ] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="recompute the hidden rows of all snapshots")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Hide source records from every reader at once, without a build. Their bytes stay on disk: see docs/takedown.md.

    Example: beam-pipes takedown .demo/python_source ids.txt --reason "request 4711"
    """
    if sum([ids is not None, listing, undo is not None, gone is not None, resolve]) != 1:
        raise DeclarationError("give a file of ids, or one of --list, --undo NUMBER, --gone NUMBER, --resolve.")
    if next_build and ids is None:
        raise DeclarationError("--next says what the ids in a file refer to: give the file too.")
    if listing:
        _print_list(path, as_json=as_json)
        return
    if undo is not None:
        report = undo_takedown(path, undo, by=by)
    elif gone is not None:
        report = mark_gone(path, gone, by=by)
    elif resolve:
        report = resolve_takedowns(path)
    else:
        assert ids is not None
        report = take_down(path, read_ids(ids), reason=reason, by=by, next_build=next_build)
    if as_json:
        console.print_json(strict_json(report.to_json()))
        return
    for line in _lines(report):
        console.print(line, markup=False)


def read_ids(file: Path) -> list[str]:
    """The ids in a file, one per line, without empty lines and lines that begin with `#`."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(
            f"expected a text file with one record id per line, but {file} is not one: {error}"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _lines(report: TakedownReport) -> list[str]:
    lines = [f"{report.action} {report.number or ''}".strip() + f" (revision {report.revision}):"]
    if report.ids:
        lines[0] += f" {len(report.ids):,} ids, {report.matched_records:,} source records matched."
    if report.equal_records:
        lines.append(f"{report.equal_records:,} other source records have the same content and are hidden too.")
    for snapshot, splits in report.removed_rows.items():
        rows = ", ".join(f"{split} {count:,}" for split, count in splits.items()) or "none"
        lines.append(f"snapshot {snapshot}: rows removed now: {rows}")
    lines += [f"matches nothing yet: {each}" for each in report.unmatched]
    lines += [f"snapshot {each} was built without lineage and can no longer be read" for each in report.unresolved]
    lines += [f"snapshot {each}: {_BY_POSITION}" for each in report.by_position]
    lines += [learned_line(snapshot, assets) for snapshot, assets in report.learned.items()]
    return lines


def _print_list(path: str, *, as_json: bool) -> None:
    states = states_of_takedowns(path)
    if as_json:
        console.print_json(strict_json([state.to_json() for state in states]))
        return
    for state in states:
        for line in _lines_of_state(state):
            console.print(line, markup=False)
    in_force = [state for state in states if state.takedown.undone is None]
    failing = sum(bool(state.pending or state.missing) and state.takedown.gone is None for state in in_force)
    incomplete = f"; {failing} of them did not find all of their records" if failing else ""
    console.print(f"{len(in_force)} of {len(states)} takedowns are in force{incomplete}.")


def _lines_of_state(state: TakedownState) -> list[str]:
    takedown = state.takedown
    reason = f", {takedown.reason}" if takedown.reason else ""
    head = f"{takedown.number}: {takedown.at}, by {takedown.by}: {len(takedown.ids):,} ids{reason}"
    if takedown.undone is not None:
        return [f"{head}; undone {takedown.undone}"]
    lines = [f"{head}; hides {state.records:,} source records of the published snapshot"]
    if state.by_position:
        lines.append(f"  {_BY_POSITION}")
    lines += [f"  the content of {each} is at {', '.join(at)}" for each, at in list(state.followed.items())[:SHOWN]]
    if len(state.followed) > SHOWN:
        lines.append(f"  and of {len(state.followed) - SHOWN:,} more ids elsewhere")
    noted = f", noted as gone {takedown.gone}" if takedown.gone is not None else ""
    for each, count in list(state.missing.items())[:SHOWN]:
        lines.append(f"  not found: {each} ({counted(count, 'record')}{noted})")
    if len(state.missing) > SHOWN:
        lines.append(f"  not found: {len(state.missing) - SHOWN:,} more ids")
    waits = "matches nothing yet" if takedown.gone is None else f"never matched anything{noted}"
    lines += [f"  {waits}: {each}" for each in state.pending[:SHOWN]]
    if len(state.pending) > SHOWN:
        lines.append(f"  {waits}: {len(state.pending) - SHOWN:,} more ids")
    return lines


# Maximum number of characters shown of a record or message.
_CHARS_SHOWN = 200


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
                # Escapes for names that are not Unicode, so that JSON can hold them.
                is_unicode = letter.source.encode("utf-8", "replace").decode() == letter.source
                file.write(strict_json(exported(letter), ensure_ascii=not is_unicode) + "\n")
    if as_json:
        rows = [{"stage": stage, "error": error, "count": number} for (stage, error), number in counts.most_common()]
        console.print_json(strict_json({"dead_letters": counts.total(), "by_stage_and_error": rows}))
        return
    if not counts:
        console.print("no dead letters." if stage is None and error is None else _none_chosen(cache))
        return
    console.print(dead_letters_table(counts, first))
    for letter in shown:
        for line in _lines_of_letter(letter):
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
    with output_file(path) as file:
        yield file


def exported(letter: DeadLetter) -> dict[str, object]:
    """A dead letter as a line of an exported file: its record as `text` if it is UTF-8, else as `base64`."""
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


def _none_chosen(cache: Cache) -> str:
    """The message if no dead letter has the requested stage and error."""
    there = sorted({(letter.stage, letter.error_type) for letter in cache.dead_letters()})
    found = "; ".join(f"--stage {stage} --error {error}" for stage, error in there)
    return f"no dead letters of this stage and error; there are: {found}." if there else "no dead letters."


def _lines_of_letter(letter: DeadLetter) -> Iterator[str]:
    yield f"{letter.record_id} (record {letter.ordinal} of its source shard), stage {letter.stage}:"
    record = repr(letter.record[:_CHARS_SHOWN])
    yield f"    {record}{f'… ({len(letter.record):,} bytes)' if len(letter.record) > _CHARS_SHOWN else ''}"
    text = letter.traceback or f"{letter.error_type}: {letter.message}"
    for line in text.splitlines():
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
    dead = counted(result.dead, "dead letter")
    if result.up_to_date:
        console.print(f"{result.path} is up to date (snapshot {result.snapshot}), with {dead}.")
        return
    console.print(
        f"{counted(result.replayed, 'dead letter')} rerun in {counted(result.replayed_shards, 'source shard')}, "
        f"{result.rebuilt_shards} rebuilt, {result.kept_shards} kept; {dead} left; "
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
    if not found and (name is not None or tsv is not None):
        raise DeclarationError(f"no analyzer of {path!r} has looked for duplicates: leave --name and --tsv out.")
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
