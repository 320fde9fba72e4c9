"""Commands about caches: their content (`stats`, `status`, `diff`, `report`), and whether it is intact (`verify`).

`gc`, `doctor`, `export` and `export-dali-index` look after them. Accounts and statistics as tables.
"""

from __future__ import annotations

import collections
import dataclasses
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from beam_pipes.building.leftovers import collect
from beam_pipes.building.progress import Status, read_status
from beam_pipes.building.reading import SOURCE
from beam_pipes.building.references import load_declaration
from beam_pipes.cache import Cache
from beam_pipes.cache.by_terms import TermsCount, count_by_terms
from beam_pipes.commands import TOKENS_HELP
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Statistic
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.export import FORMATS, export
from beam_pipes.lineage.reader import DeadLetter
from beam_pipes.runners.progress import counted
from beam_pipes.runners.progress_views import Terminal
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import directory_path

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
    by_terms = count_by_terms(cache) if cache.manifest.sources else []
    if as_json:
        sources = {"sources": [count.to_json() for count in by_terms]} if by_terms else {}
        console.print_json(strict_json({**account.to_json(), **sources}))
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
        console.print(f"split {name}: {counted(len(split), 'record')} in {counted(split.num_shards, 'shard')}")
        for feature, spec in split.spec.items():
            if spec.class_names:
                console.print(f"  classes of {feature}: {shown_classes(spec.class_names)}", markup=False)
    if by_terms:
        console.print(terms_table(by_terms))


def terms_table(counts: Sequence[TermsCount]) -> Table:
    """license | origin | collected | split | records | bytes | lengths of features, such as tokens."""
    table = Table("license", title_justify="left")
    table.add_column("origin", overflow="fold")
    for heading in ("collected", "split"):
        table.add_column(heading)
    for heading in ("records", "bytes", "lengths"):
        table.add_column(heading, justify="right")
    for count in counts:
        lengths = ", ".join(f"{name} {total:,}" for name, total in count.lengths.items())
        notes = [each or "–" for each in (count.terms.license, count.terms.origin, count.terms.collected)]
        table.add_row(*notes, count.split, f"{count.records:,}", f"{count.num_bytes:,}", lengths)
    return table


def shown_classes(names: Sequence[str]) -> str:
    """`0 bee, 1 wasp`, the first 20 of them."""
    more = f", … ({len(names):,} in all)" if len(names) > 20 else ""
    return ", ".join(f"{number} {name}" for number, name in enumerate(names[:20])) + more


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
        wrapping = Terminal(highlight=False, emoji=False, markup=False)  # redrawing needs the height of what was drawn
        with Live(status_view(status), console=wrapping, auto_refresh=False) as live:
            while status.builder is not None:
                time.sleep(every_secs)
                status = read_status(path)
                live.update(status_view(status), refresh=True)


def status_view(status: Status) -> RenderableType:
    """A status for a terminal: text, and for an unfinished build a progress bar and its stages."""
    parts: list[RenderableType] = [Text(str(status))]
    progress = status.progress
    if progress is not None:
        parts.append(Padding(ProgressBar(total=progress.shards, completed=progress.shards_done, width=40)))
        if progress.account.units:
            parts.append(account_table(progress.account))
    return Group(*parts)


# Without markup: user-defined names, reasons and messages may contain brackets.
console = Terminal(highlight=False, soft_wrap=True, emoji=False, markup=False)


def account_table(account: Account) -> Table:
    """stage | in | out | dropped by reason | dead."""
    table = Table("stage", title_justify="left")
    for heading in ("in", "kept", "out", "dead"):
        table.add_column(heading, justify="right")
    table.add_column("dropped, by reason")
    for name, unit in account.units.items():
        reasons = _reasons(unit.dropped)
        if unit.partly_dropped:
            parts = "left out" if name == SOURCE else "parts of kept ones"  # a source counts input that is not a record
            reasons += f"{'; ' if reasons else ''}{parts}: {_reasons(unit.partly_dropped)}"
        table.add_row(name, f"{unit.inputs:,}", f"{unit.kept:,}", f"{unit.outputs:,}", f"{unit.dead:,}", reasons)
    return table


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))


def dead_letters_table(counts: Mapping[tuple[str, str], int], first: Mapping[tuple[str, str], DeadLetter]) -> Table:
    """stage | error | count | the first one; most frequent first."""
    table = Table("stage", "error", title_justify="left")
    table.add_column("dead letters", justify="right")
    table.add_column("the first one")
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        letter = first[kind]
        message = letter.message if len(letter.message) <= 80 else letter.message[:79] + "…"
        table.add_row(*kind, f"{count:,}", f"{letter.record_id}: {message}")
    return table


def statistics_text(statistics: Iterable[Statistic]) -> str:
    """Statistics as the reference prints them, one per line, sorted by name."""
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
    for stage, lines in (difference.declaration or {}).items():
        for line in lines:
            yield f"declaration  {stage}: {line}"


def sign_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    key: Annotated[str, typer.Option("--key", help="file with a private key: PEM, or as ssh-keygen writes it")],
    snapshot: Annotated[str | None, typer.Option("--snapshot", help="id of a snapshot [the published one]")] = None,
) -> None:
    """Check every byte of a snapshot and sign it, so that readers can insist on what was approved.

    Example: beam-pipes sign .demo/python_source --key release
    """
    from beam_pipes.cache.signature import sign

    console.print(f"{path}: signed by key {sign(path, key=key, snapshot=snapshot)[:16]}….", markup=False)


def verify_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    trusted: Annotated[
        list[str] | None,
        typer.Option("--trusted", "--signature", help="file of public keys, one of which has to have signed the cache"),
    ] = None,
) -> None:
    """Check every byte of a cache against its checksums; list all problems and exit with 1 if there are any.

    With --trusted, also against the digests that were signed: checksums find damage, and not forgery.

    Example: beam-pipes verify .demo/python_source

    Example: beam-pipes verify .demo/python_source --trusted release.pub
    """
    cache = Cache.open(path)
    report = cache.verify(trusted=trusted)
    for problem in report.problems:
        console.print(str(problem), markup=False)
    found = f"{len(report.problems)} problems" if report.problems else "no problem"
    if trusted and not report.problems:
        console.print("It is what a trusted key has signed.")
    of = f"{counted(report.records, 'record')} in {counted(report.shards, 'shard')}"
    console.print(f"{of}, {report.bytes:,} bytes read: {found}.")
    removed = {name: len(cache[name].removed_rows) for name in cache.splits}
    if any(removed.values()):
        rows = ", ".join(f"{name} {count:,}" for name, count in removed.items() if count)
        console.print(
            f"Taken down, and hidden by every reader of beam-pipes: {rows}. Their bytes are still in the shards, where "
            "any other reader of TFRecords sees them; a build without these records in its input removes them."
        )
    if report.problems:
        console.print(
            "To repair it, copy the damaged files again from where they are whole, or run the build with --overwrite, "
            "which rebuilds every shard: a build without it takes finished shards as they are.",
            markup=False,
        )
        raise typer.Exit(1)


def gc_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    keep: Annotated[
        int, typer.Option("--keep", help="number of recent snapshots to keep besides the published one")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be removed without removing it")] = False,
    ignore_leases: Annotated[
        bool, typer.Option("--ignore-leases", help="also remove snapshots that are being read: their readers will fail")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Remove old and unfinished snapshots and leftovers of dead builds; never while a build is writing.

    Example: beam-pipes gc .demo/python_source --keep 0
    """
    collected = collect(path, keep=keep, dry_run=dry_run, ignore_leases=ignore_leases)
    if as_json:
        console.print_json(strict_json(dataclasses.asdict(collected)))
        return
    for snapshot in collected.removed:
        console.print(f"snapshot {snapshot}: {'would be removed' if dry_run else 'removed'}.", markup=False)
    for line in collected.held_in_words():
        console.print(f"{line}.", markup=False, soft_wrap=True)
    if collected.unused:
        removed = "would be removed" if dry_run else "removed"
        console.print(f"{collected.unused} results and accumulators of analyzers: {removed}.")
    kept = ", ".join(filter(None, [collected.published and f"{collected.published} (published)", *collected.kept]))
    console.print(f"{collected.bytes:,} bytes {'to be ' if dry_run else ''}freed; kept: {kept or 'nothing'}.")


def doctor_command(
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    setup_file: Annotated[str | None, typer.Option(help="setup.py of the package that workers install")] = None,
    extra_package: Annotated[
        list[str] | None, typer.Option(help="additional sdist or wheel that workers install")
    ] = None,
) -> None:
    """Check, in a fresh virtual environment, that workers can import everything a declaration needs.

    Example: beam-pipes doctor my_package.job:declaration --setup-file setup.py --extra-package beam_pipes.tar.gz
    """
    load_declaration(declaration)  # import errors on this machine surface immediately
    with tempfile.TemporaryDirectory(prefix="beam-pipes-doctor-") as directory:
        console.print("Installing what a worker would have…")
        from beam_pipes.runners.preflight import make_worker_environment

        environment = make_worker_environment(
            Path(directory), setup_file=setup_file, extra_packages=tuple(extra_package or ())
        )
        files = environment.load(declaration)
        for module, file in files.items():
            console.print(f"  {module}: {Path(file).relative_to(directory)}", markup=False, soft_wrap=True)
    console.print(f"Workers can import {declaration} and everything it needs.", markup=False)


def export_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    to: Annotated[str, typer.Option("--to", help="output directory; must not exist yet")],
    format: Annotated[str, typer.Option("--format", help=f"one of: {', '.join(sorted(FORMATS))}")],
) -> None:
    """Export a cache to another system's format.

    Example: beam-pipes export .demo/python_source --format parquet --to python_source-parquet
    """
    console.print(export(path, to, format=format), markup=False)


def export_dali_index_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    to: Annotated[str, typer.Option("--to", help="directory to write the index files to")],
) -> None:
    """Write a DALI index for every shard, so that DALI's reader can open the cache.

    Example: beam-pipes export-dali-index .demo/python_source --to .demo/dali
    """
    from beam_pipes.export.export import export_dali_index

    made = export_dali_index(Cache.open(path), to)
    console.print(f"{len(made)} index files in {to}, for fn.readers.tfrecord(path=…, index_path=…) of DALI.")


def report_command(
    path: Annotated[str, typer.Argument(help="cache directory, or a directory of caches")],
    to: Annotated[str | None, typer.Option("--to", help="output file [report.html next to the snapshot]")] = None,
    against: Annotated[str | None, typer.Option(help="snapshot to compare with [the previous one]")] = None,
    declaration: Annotated[
        str | None,
        typer.Option(help="package.module:name; show source records next to examples (reads the input, runs stages)"),
    ] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help=TOKENS_HELP)] = None,
) -> None:
    """Write a self-contained HTML report: graph, counts, statistics, lengths, examples, timing, changes.

    For a directory of caches: write a page for each, and an index page that links to them.

    Example: beam-pipes report .demo/python_source --to report.html
    """
    from beam_pipes.recipes import open_tokenizer
    from beam_pipes.report import cache_directories, write_overview, write_report

    directories = cache_directories(path)
    if not directories or directories == [directory_path(path)]:
        resolved = None if declaration is None else load_declaration(declaration)
        vocabulary = None if tokens is None else open_tokenizer(tokens)
        written = write_report(path, to=to, against=against, declaration=resolved, vocabulary=vocabulary)
        console.print(written, markup=False)
        return
    if against is not None or declaration is not None or tokens is not None:
        raise DeclarationError(
            f"--against, --declaration and --tokens belong to the report of one cache, and {path} holds "
            f"{len(directories)}: {', '.join(directories[:3])}{'…' if len(directories) > 3 else ''}. Name one of them."
        )
    for directory in directories:
        try:
            write_report(directory)
        except (BeamPipesError, OSError) as error:  # the overview names what cannot be read
            console.print(f"No report was written for {directory}: {error}", markup=False)
    console.print(write_overview(path, to=to), markup=False)
