"""`beam-pipes plan`.

What `beam-pipes plan` prints about the analyzers of a declaration.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from beam_pipes.building.analysis.plan import plan_analysis
from beam_pipes.building.completion import find_completions
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import fingerprint_declaration
from beam_pipes.building.explanation import explain_analysis, explain_plan
from beam_pipes.building.forecast import DEFAULT_SAMPLE_SECS, Forecast, forecast_build, require_room
from beam_pipes.building.plan import BuildPlan, PlannedInput, SavedPlan, make_plan, plan_input
from beam_pipes.building.references import load_declaration
from beam_pipes.commands import MODULES_HELP, TASKS_HELP
from beam_pipes.commands.caches import console
from beam_pipes.commands.options import (
    RUNNERS,
    Running,
    declarations_of,
    require_one_of,
    with_groups,
)
from beam_pipes.errors import AnalysisError, DeclarationError
from beam_pipes.publication.publish import published_id, snapshot_directory
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.preflight import preflight
from beam_pipes.sources.digests import DigestCache
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import directory_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning(Running):
    """The options that choose the runner of a later build."""

    runner: Annotated[str, typer.Option(help=f"runner to plan for: {', '.join(RUNNERS)}")] = "local"


@with_groups
def plan_command(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="cache directory, or the parent directory of task caches")],
    declaration: Annotated[str | None, typer.Argument(help="package.module:name of a Declaration")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="show HIT or MISS, and the reason, per stage and shard")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, one object per task")] = False,
    *,
    planning: Planning,
    forecast: Annotated[
        bool, typer.Option(help="run a sample of the input to forecast records, bytes and time")
    ] = True,
    sample_secs: Annotated[
        float,
        typer.Option("--sample-secs", help="approximate duration of the sample run; longer gives narrower intervals"),
    ] = DEFAULT_SAMPLE_SECS,
    accept_code_change: Annotated[
        bool, typer.Option("--accept-code-change", help="plan even if a stage's code changed but its version did not")
    ] = False,
    save: Annotated[str | None, typer.Option("--save", help="write the plan to this file for build --plan")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--tasks", help=TASKS_HELP)] = None,
    excluded_tasks: Annotated[list[str] | None, typer.Option("--excluded-tasks", help="tasks to exclude")] = None,
    module_import: Annotated[list[str] | None, typer.Option("--module-import", help=MODULES_HELP)] = None,
    base_seed: Annotated[int, typer.Option("--base-seed", help="seed for random draws before the cut")] = 0,
    seqio_files: Annotated[bool, typer.Option(help="write task caches that SeqIO can read too")] = True,
) -> None:
    """Check a declaration or tasks and print what a build would do and cost, without building.

    Checks that need no input run first, and report all of their errors together.

    Example: beam-pipes plan examples.python_source:declaration --to .demo/python_source
    """
    require_one_of(declaration, tasks or ())
    options = planning.options(context.obj or [])
    accepts = accept_code_change or explain  # an explanation says where a build would stop
    how = _How(explain, as_json, sample_secs if forecast else None, save, options)
    if declaration is not None:
        found = load_declaration(declaration, beam_steps=True)
        if found.beam_steps is not None:
            _show_regrouped(found, found.beam_steps.num_shards, to, how)
            return
        _show(preflight(declaration, to, options=options, accept_code_change=accepts), to, how)
        return
    if save is not None:
        raise DeclarationError("--save applies to the plan of one declaration, but tasks are named here.")
    encoding = "list" if seqio_files else "raw"
    named = (tasks or (), excluded_tasks or (), module_import or ())
    for task, path in declarations_of(*named, to, base_seed=base_seed, encoding=encoding):
        _show(preflight(task, path, options=options, accept_code_change=accepts), path, how)


def _show_regrouped(declaration: Declaration, num_shards: int, to: str, how: _How) -> None:
    """The work of a single Beam pipeline; nothing more is known before it has run."""
    from beam_pipes.runners.regrouped import check_regrouped

    for option, is_given in (("--save", how.save is not None), ("--explain", how.explain)):
        if is_given:
            raise DeclarationError(
                f"declaration {declaration.name!r} has PTransforms among its stages: every build computes all records, "
                f"and which shards change is known when its job has run. Leave {option} out."
            )
    root = directory_path(to)
    check_regrouped(declaration, root, options=how.options)
    source = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=DigestCache())
    published = published_id(root)
    fields = {
        "name": declaration.name,
        "path": root,
        "num_files": source.num_files,
        "num_bytes": source.num_bytes,
        "num_source_shards": len(source.shards),
        "steps": list(declaration.words),
        "splits": list(declaration.splits),
        "num_shards": num_shards,
        "published_manifest_id": published,
    }
    if how.as_json:
        console.print_json(strict_json(fields))
        return
    lines = (
        f"{declaration.name}: {source.num_files:,} files, {source.num_bytes:,} bytes → {len(source.shards)} source "
        f"shards → {num_shards} shards for each split: {', '.join(declaration.splits)}.",
        f"steps: {' → '.join(['source', *declaration.words, 'write'])}",
        "One Beam pipeline computes all records, whatever is there already; "
        + ("a new snapshot is published." if published is None else "a new snapshot is published if they differ."),
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


class _How(NamedTuple):
    explain: bool
    as_json: bool
    sample_secs: float | None
    save: str | None
    options: LocalOptions | BeamOptions


def _show(declaration: Declaration, to: str, how: _How) -> None:
    planned = plan_input(declaration, to)
    if declaration.analyzers:
        if not _show_analysis(declaration, planned, how):
            return
    plan = make_plan(declaration, to, planned_input=planned)
    done = len(find_completions(plan.header, plan.tasks))
    explanation = explain_plan(plan) if how.explain else None
    forecast = _forecast(plan, how)
    if forecast is not None:
        require_room(plan, forecast)
    if how.save is not None:
        SavedPlan.of(plan, None if forecast is None else forecast.to_json()).save(how.save)
    if how.as_json:
        more = {} if explanation is None else {"explanation": explanation.to_json()}
        more |= {} if forecast is None else {"forecast": _priced(forecast, how.options)}
        console.print_json(strict_json({**plan.to_json(), "num_shards_done": done, **more}))
        return
    fields = plan.to_json()
    console.print(
        f"{fields['name']}: {plan.source.num_files:,} files, {plan.source.num_bytes:,} bytes → "
        f"{plan.header.num_shards} source shards, {done} of them done; snapshot {plan.snapshot}"
        + (" is published: up to date." if fields["published"] else ".")
    )
    console.print(f"stages: {' → '.join(['source', *fields['stages'], 'write'])}")
    for split, spec in fields["splits"].items():
        described = spec if isinstance(spec, str) else ", ".join(f"{name} {_feature(f)}" for name, f in spec.items())
        console.print(f"split {split}: {described}")
    for file, num_bytes in list(fields["streams"].items())[:_MOST_STREAMS]:
        console.print(
            f"{file}: one worker has to read all of its {num_bytes:,} bytes, which will take longest. Compress it with "
            "bgzip, or as several zstd frames, and it is split.",
            markup=False,
        )
    for line in explanation.lines() if explanation is not None else ():
        console.print(line, markup=False)
    for line in _forecast_lines(forecast, how.options):
        console.print(line, markup=False)


# Maximum number of unsplittable files that are named.
_MOST_STREAMS = 3


def _forecast_lines(forecast: Forecast | None, options: LocalOptions | BeamOptions) -> list[str]:
    """The forecast as text; for runners that bill vCPU hours, these too and their basis."""
    if forecast is None:
        return []
    lines = forecast.lines()
    if isinstance(options, BeamOptions) and options.BILLS is not None:
        hours = forecast.cpu_hours
        share = f" ± {hours.error / hours.value:.0%}" if hours.value else ""
        lines.append(f"  on {options.NAME}: {hours.value:.3g} vCPU hours{share}, {options.BILLS}")
    return lines


def _priced(forecast: Forecast, options: LocalOptions | BeamOptions) -> dict[str, object]:
    found = forecast.to_json()
    if isinstance(options, BeamOptions) and options.BILLS is not None:
        found["vcpu_hours"] = {**forecast.cpu_hours.to_json(), "assumption": options.BILLS}
    return found


def _feature(fields: dict[str, object]) -> str:
    shape = fields.get("shape") or []
    assert isinstance(shape, list | tuple)
    return str(fields["dtype"]) + (f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]" if shape else "")


def _forecast(plan: BuildPlan, how: _How) -> Forecast | None:
    """Shows the progress of the sample on a terminal."""
    if how.sample_secs is None or not plan.tasks:
        return None
    if how.sample_secs <= 0:
        raise DeclarationError(
            f"--sample-secs should be more than 0, got {how.sample_secs:g}; --no-forecast takes none."
        )
    with Console(stderr=True).status("trying a sample of the input") as status:

        def report(shards: int, of: int, records: int) -> None:
            status.update(f"trying a sample of the input: {shards} of {of} shards, {records:,} records")

        return forecast_build(plan, sample_secs=how.sample_secs, report=report)


def _show_analysis(declaration: Declaration, planned: PlannedInput, how: _How) -> bool:
    """Prints what an analysis would do; returns whether it has run, so that the rest of the build can be planned.

    If it has not run but no stage holds a missing result, the pipeline is still sampled and forecast. In JSON only if
    it has not run: otherwise the plan of the rest contains it.
    """
    plan = plan_analysis(declaration, planned.root, planned.source, generation=planned.generation)
    manifest = planned.manifest
    previous = None if manifest is None else snapshot_directory(planned.root, manifest.snapshot)
    verdicts = explain_analysis(plan, previous)
    if not plan.done and how.save is not None:
        raise DeclarationError(
            f"the plan of {declaration.name!r} cannot be saved: its snapshot depends on the results of "
            f"{', '.join(verdict.name for verdict in verdicts if not verdict.hit)}, which are not there yet. Build it; "
            "a plan can be saved once the analysis has run over its input."
        )
    pipeline = None
    if not plan.done and _is_independent(declaration):
        pipeline = make_plan(declaration, planned.root, planned_input=planned, require_results=False)
    expected = None if pipeline is None else _forecast(pipeline, how)
    if pipeline is not None and expected is not None:
        require_room(pipeline, expected)
    if how.as_json:
        if not plan.done:
            fields: dict[str, object] = {
                "name": declaration.name,
                "path": planned.root,
                "analysis": [dataclasses.asdict(each) for each in verdicts],
            }
            fields |= {} if expected is None else {"forecast": _priced(expected, how.options)}
            console.print_json(strict_json({**fields, "num_files": plan.source.num_files, "snapshot": None}))
        return plan.done
    if how.explain or not plan.done:
        for verdict in verdicts:
            console.print(str(verdict), markup=False)
    if not plan.done:
        console.print(
            f"{declaration.name}: {plan.source.num_files:,} files, {plan.source.num_bytes:,} bytes → "
            f"{len(plan.source.shards)} source shards, {len(plan.tasks())} of them to be analysed first. "
            + (
                "Which of them the pipeline has to build is known once that has run."
                if pipeline is None
                else f"No stage holds a missing result: the pipeline has {len(pipeline.tasks_left())} of them to build."
            )
        )
    for line in _forecast_lines(expected, how.options):
        console.print(line, markup=False)
    return plan.done


def _is_independent(declaration: Declaration) -> bool:
    """Whether no stage holds a result that is missing."""
    try:
        fingerprint_declaration(declaration, {})
    except AnalysisError:
        return False
    return True
