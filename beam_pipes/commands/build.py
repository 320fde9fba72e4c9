"""`beam-pipes build` and `beam-pipes chaos`, and the reports that builds write.

`jobs`, `attach` and `cancel`: the jobs of detached builds.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.references import load_declaration
from beam_pipes.cache import Cache
from beam_pipes.commands import MODULES_HELP, TASKS_HELP
from beam_pipes.commands.options import Building, require_one_of, show_outcome, with_groups
from beam_pipes.engine.account import Account
from beam_pipes.errors import BeamPipesError, DeclarationError, visible, without_stop
from beam_pipes.runners.build import BuildResult, build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.runners.progress import KINDS, counted, progress_for
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import is_remote

if TYPE_CHECKING:
    from beam_pipes.report.language import Tokenizer
    from beam_pipes.runners.jobs import LaunchRecord
    from beam_pipes.tasks.caches.cache_tasks import TaskCache


@with_groups
def build_command(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="cache directory, or the parent directory of task caches")],
    building: Building,
    declaration: Annotated[str | None, typer.Argument(help="package.module:name of a Declaration")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--tasks", help=TASKS_HELP)] = None,
    excluded_tasks: Annotated[list[str] | None, typer.Option("--excluded-tasks", help="tasks to exclude")] = None,
    module_import: Annotated[list[str] | None, typer.Option("--module-import", help=MODULES_HELP)] = None,
    ignore_other_caches: Annotated[
        bool, typer.Option("--ignore-other-caches", help="also build tasks that are cached elsewhere")
    ] = False,
    base_seed: Annotated[int, typer.Option("--base-seed", help="seed for random draws before the cut")] = 0,
    seqio_files: Annotated[
        bool, typer.Option(help="write caches that SeqIO can read too; without it, smaller and faster to load")
    ] = True,
    min_shards: Annotated[
        int, typer.Option(help="minimum number of SeqIO files per split, of equal size; SeqIO's hosts share files")
    ] = 1,
    max_shards: Annotated[int | None, typer.Option(help="maximum number of SeqIO files per split [as built]")] = None,
    enable_char_counts: Annotated[
        bool, typer.Option("--enable-char-counts", help="decode examples to count characters when the text is not kept")
    ] = False,
) -> None:
    """Build a cache, or resume an interrupted build. Options after -- go to Beam.

    With --tasks: build the caches of all matching registered tasks.

    Example: beam-pipes build examples.python_source:declaration --to .demo/python_source

    Example: beam-pipes build --tasks 'wmt_.*' --module-import my.tasks --to caches
    """
    beam_args = context.obj or []
    options = building.options(beam_args)
    require_one_of(declaration, tasks or ())
    if declaration is not None:
        result = build_and_show(declaration, to, building=building, beam_args=beam_args)
        if result.left_out and not result.up_to_date:
            counts = [f"{count:,} {reason}" for reason, count in sorted(result.left_out.items())]
            _say(f"Files left out: {', '.join(counts)}.")
        return
    for option in [name for name in ("plan", "detach") if getattr(building, name)]:
        raise DeclarationError(f"--{option} applies to the build of one declaration, but tasks are named here.")
    from beam_pipes.tasks.caches.cache_tasks import cache_tasks

    reports = TaskReports(to, report=building.report)
    try:
        cache_tasks(
            tasks or (),
            to,
            excluded_tasks=excluded_tasks or (),
            modules_to_import=module_import or (),
            overwrite=building.overwrite,
            accept_code_change=building.accept_code_change,
            ignore_other_caches=ignore_other_caches,
            base_seed=base_seed,
            seqio_files=seqio_files,
            min_shards=min_shards,
            max_shards=max_shards,
            enable_char_counts=enable_char_counts,
            options=options,
            progress=functools.partial(progress_for, kind=building.progress),
            report=reports.show,
        )
    finally:
        reports.close()


def build_and_show(
    declaration: Declaration | str,
    to: str,
    *,
    building: Building,
    beam_args: Sequence[str],
    vocabulary: Callable[[], Tokenizer] | None = None,
    row_length: int | None = None,
) -> BuildResult:
    """Builds one declaration with the options `building`; prints the account and the cache's path.

    The report shows token ids as what `vocabulary` gives writes, and the waste in rows of `row_length` tokens.
    """
    options = building.options(beam_args)
    shown = progress_for(kind=building.progress)
    saved = None
    if building.plan is not None:
        from beam_pipes.building.plan import SavedPlan

        saved = SavedPlan.load(building.plan)
    result = build(
        declaration,
        to,
        options=options,
        progress=shown,
        accept_code_change=building.accept_code_change,
        overwrite=building.overwrite,
        saved_plan=saved,
        keep=building.keep,
    )
    if result.up_to_date and result.regrouped:
        _say(
            f"{result.path} is up to date (snapshot {result.snapshot}): all records were computed again "
            f"({result.secs:.1f} s) and are the same, so nothing was written."
        )
        return result
    if result.up_to_date:
        _say(f"{result.path} is up to date (snapshot {result.snapshot}): nothing to do.")
        return result
    if result.job is not None:
        _show_detached(result, result.job)
        return result
    if result.template is not None:
        assert not isinstance(options, LocalOptions)
        shards = counted(result.num_shards, "source shard")
        _say(f"The job of snapshot {result.snapshot}, of {shards}, is in {result.template}. Nothing was launched.")
        _say(f"Launch it, once:       {options.LAUNCH} {shlex.quote(result.template)}")
        return result
    account = result.account
    for row in () if result.analysis is None else result.analysis.rows:
        split = "" if row["split"] is None else f" of {row['split']}"
        _say(
            f"analyzer {row['name']}: {counted(row['values'], 'value')} of {counted(row['records'], 'record')}{split}, "
            f"{row['analysed_shards']} of {row['num_shards']} source shards analysed, {row['bytes']:,} bytes, "
            f"{row['secs']:.1f} s."
        )
    _show_account(account)
    rate = account.read / result.secs if result.secs else 0.0
    reused = f", {result.reused_shards} of them reused" if result.reused_shards else ""
    read, shard = ("element", "shard") if result.regrouped else ("record", "source shard")
    _say(
        f"{counted(account.read, read)} {'collected' if result.regrouped else 'read'}, {account.written:,} written, "
        f"{account.dropped:,} dropped, {counted(account.dead, 'dead letter')}; "
        f"{counted(result.num_shards, shard)}{reused}; {result.secs:.1f} s "
        f"({rate:,.0f} records/s)."
    )
    _show_splits(result.path, {} if isinstance(declaration, str) else _shares_of(declaration))
    _say(f"The cache is in {result.path} (snapshot {result.snapshot}).")
    if result.removed:
        _say(f"Old snapshots removed: {', '.join(result.removed)} (--keep {building.keep}).")
    for line in result.held:
        _say(f"Old {line}.")
    if wants_report(building.report, result.path):
        declared = load_declaration(declaration, beam_steps=True) if isinstance(declaration, str) else declaration
        known = declared if declared.beam_steps is None else None
        show_report(result.path, declaration=known, vocabulary=vocabulary, row_length=row_length)
    return result


def _say(line: str) -> None:
    """Prints a line without importing a console: an up-to-date build should answer at once."""
    print(visible(line), flush=True)


def _show_account(account: Account) -> None:
    from beam_pipes.commands.caches import account_table, console

    console.print(account_table(account))


def _shares_of(declaration: Declaration) -> dict[str, float]:
    """The shares by which the records are divided into splits, if they are."""
    from beam_pipes.typed import RandomPartition

    stages = [] if declaration.beam_steps is not None else [unit.stage for unit in declaration.graph.units]
    drawn = [each for each in stages if isinstance(each, RandomPartition)]
    shares = dict(zip(drawn[-1].partition_names, drawn[-1].partition_probabilities, strict=True)) if drawn else {}
    return shares if shares.keys() == {*declaration.splits} else {}


def _show_splits(path: str, shares: Mapping[str, float]) -> None:
    """The examples per split, if there are several: shares are drawn, so with few records a split may get none, or
    another part than its share; that is reported if it is off by a quarter.
    """
    from beam_pipes.cache import Cache

    sizes = {split: sum(entry.records) for split, entry in Cache.open(path).manifest.splits.items()}
    total = sum(sizes.values())
    if len(sizes) > 1 and total:
        listed = ", ".join(f"{split} {size:,} ({size / total:.1%})" for split, size in sizes.items())
        _say(f"Examples of each split: {listed}.")
        for split in [split for split, size in sizes.items() if not size]:
            _say(f"Warning: the split {split!r} is empty. Nothing that was read belongs to it: check its share or key.")
        for split, share in shares.items():
            size = sizes.get(split, 0)
            if size and abs(size - share * total) > share * total / 4:
                _say(
                    f"Warning: the split {split!r} has {size:,} of {total:,} examples ({size / total:.1%}), and its "
                    f"share is {share:.1%}. Shares are drawn by the content of records, or by their key, and are met "
                    "by many different ones only: give more, or draw with another seed (--seed)."
                )


def _show_detached(result: BuildResult, job: LaunchRecord) -> None:
    path = shlex.quote(result.path)
    again = shlex.join(["beam-pipes", *(word for word in sys.argv[1:] if word != "--detach")])
    _say(f"{job} builds snapshot {result.snapshot}, of {counted(result.num_shards, 'source shard')}, and publishes it.")
    _say(f"Is it alive?           beam-pipes jobs {path}")
    _say(f"Wait and finish:       beam-pipes attach {path}")
    _say(f"End it:                beam-pipes cancel {path}")
    _say(f"If it fails, go on:    {again}")


def jobs_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the jobs that build a cache on other runners, and whether each is still running.

    Example: beam-pipes jobs gs://bucket/caches/books
    """
    from beam_pipes.runners.jobs import read_jobs

    jobs = read_jobs(path)
    if as_json:
        print(strict_json([job.to_json() for job in jobs]))
        return
    for job in jobs:
        _say(str(job))
    if not jobs:
        _say(f"no job is on record in {path}: `beam-pipes status {path}` tells what is published.")


def attach_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    progress: Annotated[
        str | None, typer.Option(help=f"progress display: {', '.join(KINDS)} [stages on a terminal, log elsewhere]")
    ] = None,
    report: Annotated[bool | None, typer.Option(help="write report.html next to the manifest [for local caches]")] = (
        None
    ),
) -> None:
    """Wait for the jobs of a cache, with progress, and finish the build as the command that started it would.

    Ctrl-C leaves the jobs running.

    Example: beam-pipes attach gs://bucket/caches/books
    """
    from beam_pipes.runners.jobs import attach

    attached = attach(path, progress_of=functools.partial(progress_for, kind=progress))
    if attached.snapshot is None:
        _say(f"The analysis of {attached.path} has ended. Run the build again to continue from there.")
        return
    _show_account(Account.from_json(Cache.open(attached.path).manifest.accounting))
    _say(f"The cache is in {attached.path} (snapshot {attached.snapshot}).")
    if attached.removed:
        _say(f"Old snapshots removed: {', '.join(attached.removed)}.")
    if wants_report(report, attached.path):
        show_report(attached.path)


def cancel_command(path: Annotated[str, typer.Argument(help="cache directory")]) -> None:
    """Cancel the jobs of a cache that are still running; finished shards are kept.

    Example: beam-pipes cancel gs://bucket/caches/books
    """
    from beam_pipes.runners.jobs import cancel

    left = 0
    for each in cancel(path):
        if each.error is not None:
            left += 1
            _say(f"{each.record} could not be cancelled ({each.error}) and may still run. Cancel it where it runs.")
        elif each.state.name == "done":
            _say(f"{each.record} is done. `beam-pipes attach {path}` finishes its build.")
        else:
            _say(f"{each.record} has ended ({each.state.words}). Run the build again to continue.")
    if left:
        raise typer.Exit(1)


def work_command(
    order: Annotated[str, typer.Argument(help="the order of a job, as its launcher or its script prints it")],
    processes: Annotated[int | None, typer.Option(min=1, help="worker processes [all cores]")] = None,
    worker: Annotated[str | None, typer.Option(help="name of this worker [host and process]")] = None,
) -> None:
    """Take source shards of a job until none is left; what the workers of Slurm and Kubernetes jobs run.

    Any number of them may run on any machines that see the cache's directory; one of them publishes.

    Example: beam-pipes work /shared/books/snapshots/3f9a5b21c04d77e6/tasks/9d1c/order-…
    """
    from beam_pipes.runners.claims import main

    name = worker if worker is not None else f"{os.uname().nodename}-{os.getpid()}"
    raise typer.Exit(main(order, worker=name, processes=processes or len(os.sched_getaffinity(0))))


def chaos_command(
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    max_records: Annotated[int, typer.Option(help="approximate number of records to sample")] = 256,
    beam: Annotated[bool, typer.Option("--beam", help="also retry bundles on Beam's BundleBasedDirectRunner")] = False,
    timeout_secs: Annotated[float, typer.Option(help="time limit of each process")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check that shards, retries and workers do not change a declaration's output; exit with 1 if they do.

    Example: beam-pipes chaos examples.python_source:declaration
    """
    from beam_pipes.commands.caches import console
    from beam_pipes.testing import check_declaration

    verdict = check_declaration(declaration, max_records=max_records, beam=beam, timeout_secs=timeout_secs)
    if as_json:
        console.print_json(strict_json(verdict.to_json()))
    else:
        console.print(str(verdict), markup=False)
    if not verdict.robust:
        raise typer.Exit(1)


def show_report(
    path: str,
    *,
    declaration: Declaration | None = None,
    vocabulary: Callable[[], Tokenizer] | None = None,
    row_length: int | None = None,
) -> None:
    """Writes the report and prints its path; the cache is already published, so a failure is only reported.

    With the declaration, examples show their source records, and with the vocabulary their tokens; no stage runs again.
    """
    try:
        from beam_pipes.report import write_report

        opened = None if vocabulary is None else vocabulary()
        written = write_report(
            path, declaration=declaration, run_stages=False, vocabulary=opened, row_length=row_length
        )
        _say(f"What is in it: {written}")
    except (BeamPipesError, OSError) as error:
        reason = without_stop(error)
        _say(f"No report was written: {reason}. The cache is published; `beam-pipes report {path}` tries again.")


class TaskReports:
    """Shows the outcome for tasks, and writes a report for each that was built; `close` writes the overview."""

    def __init__(self, path: str, *, report: bool | None) -> None:
        self._path = path
        self._report = report
        self._written = 0

    def show(self, cached: TaskCache) -> None:
        """One line for one task, followed by the path of its report if a new snapshot was published."""
        show_outcome(cached)
        if cached.result is not None and not cached.result.up_to_date and wants_report(self._report, cached.path):
            show_report(cached.path)
            self._written += 1

    def close(self) -> None:
        """Writes the page about all caches in the directory, if anything was built."""
        if self._written:
            try:
                from beam_pipes.report import write_overview

                _say(f"All of them: {write_overview(self._path)}")
            except (BeamPipesError, OSError) as error:
                _say(f"No overview was written: {error}.")


def wants_report(report: bool | None, path: str) -> bool:
    """Whether a build writes its report: as requested, by default if the cache is local.

    On an object store it would fetch whole shards for a few examples.
    """
    return not is_remote(path) if report is None else report
