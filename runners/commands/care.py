"""Commands that look after caches: `verify`, `gc`, `doctor`, `export`, `export-dali-index` and `report`."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from beam_pipes.building.declaration import load_declaration
from beam_pipes.building.leftovers import collect
from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.storage import directory_path
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.export import FORMATS, export
from beam_pipes.runners.commands import TOKENS_HELP
from beam_pipes.runners.commands.stats import console


def verify_command(path: Annotated[str, typer.Argument(help="cache directory")]) -> None:
    """Check every byte of a cache against its checksums; list all problems and exit with 1 if there are any.

    Example: beam-pipes verify .demo/python_source
    """
    cache = Cache.open(path)
    report = cache.verify()
    for problem in report.problems:
        console.print(str(problem), markup=False)
    found = f"{len(report.problems)} problems" if report.problems else "no problem"
    console.print(f"{report.records:,} records in {report.shards} shards, {report.bytes:,} bytes read: {found}.")
    removed = {name: len(cache[name].removed_rows) for name in cache.splits}
    if any(removed.values()):
        rows = ", ".join(f"{name} {count:,}" for name, count in removed.items() if count)
        console.print(
            f"Taken down, and hidden by every reader of beam-pipes: {rows}. Their bytes are still in the shards, where "
            "any other reader of TFRecords sees them; a build without these records in its input removes them."
        )
    if report.problems:
        raise typer.Exit(1)


def gc_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    keep: Annotated[
        int, typer.Option("--keep", help="number of recent snapshots to keep besides the published one")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be removed without removing it")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Remove old and unfinished snapshots and leftovers of dead builds; never while a build is writing.

    Example: beam-pipes gc .demo/python_source --keep 0
    """
    collected = collect(path, keep=keep, dry_run=dry_run)
    if as_json:
        console.print_json(strict_json(dataclasses.asdict(collected)))
        return
    for snapshot in collected.removed:
        console.print(f"snapshot {snapshot}: {'would be removed' if dry_run else 'removed'}.", markup=False)
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
    load_declaration(declaration)  # what cannot be imported here is said at once
    with tempfile.TemporaryDirectory(prefix="beam-pipes-doctor-") as directory:
        console.print("Installing what a worker would have…")
        from beam_pipes.runners.worker_environment import make_worker_environment

        environment = make_worker_environment(
            Path(directory), setup_file=setup_file, extra_packages=tuple(extra_package or ())
        )
        files = environment.load(declaration)
        for module, file in files.items():
            console.print(f"  {module}: {Path(file).relative_to(directory)}", markup=False, soft_wrap=True)
    console.print(f"Workers can import {declaration} and everything that it consists of.", markup=False)


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
