"""`beam-pipes plan`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from beam_pipes.building.completion import find_completions
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.explanation import explain_plan
from beam_pipes.building.forecast import forecast_build, require_room
from beam_pipes.building.plan import make_plan, plan_input
from beam_pipes.building.saved_plan import SavedPlan
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.plan_analysis import show_analysis
from beam_pipes.runners.commands.runner_options import (
    RUNNERS,
    EnvironmentConfig,
    EnvironmentType,
    FlinkJobServerJar,
    FlinkMaster,
    JobEndpoint,
    Parallelism,
    PrismLocation,
    SharedFiles,
    options_for,
)
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.commands.task_options import MODULES_HELP, TASKS_HELP, declarations_of, require_one_of
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.preflight import preflight


def plan_command(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="directory of the cache, or of the caches of tasks")],
    declaration: Annotated[str | None, typer.Argument(help="package.module:name of a Declaration")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="say HIT or MISS, and why, per stage and shard")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, one object for each task")] = False,
    runner: Annotated[str, typer.Option(help=f"who is to run it: {', '.join(RUNNERS)}")] = "local",
    workers: Annotated[int | None, typer.Option(help="worker processes of the local runner [all cores]")] = None,
    job_endpoint: JobEndpoint = None,
    environment_type: EnvironmentType = None,
    environment_config: EnvironmentConfig = None,
    parallelism: Parallelism = None,
    shared_files: SharedFiles = False,
    prism_location: PrismLocation = None,
    flink_master: FlinkMaster = None,
    flink_job_server_jar: FlinkJobServerJar = None,
    forecast: Annotated[
        bool, typer.Option(help="run a sample of the input through the stages: records, bytes, hours to expect")
    ] = True,
    accept_code_change: Annotated[
        bool, typer.Option("--accept-code-change", help="do not stop where a stage's code changed and its version not")
    ] = False,
    save: Annotated[str | None, typer.Option("--save", help="write the plan to this file, for build --plan")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--tasks", help=TASKS_HELP)] = None,
    excluded_tasks: Annotated[list[str] | None, typer.Option("--excluded-tasks", help="tasks to leave out")] = None,
    module_import: Annotated[list[str] | None, typer.Option("--module-import", help=MODULES_HELP)] = None,
    base_seed: Annotated[int, typer.Option("--base-seed", help="seed of what tasks draw before the cut")] = 0,
    seqio_files: Annotated[bool, typer.Option(help="caches of tasks that SeqIO reads too")] = True,
) -> None:
    """Check a declaration, or tasks, and print what a build would do and cost; builds nothing.

    What can be checked without input comes first, and all of its faults are told at once.

    Example: beam-pipes plan examples.python_source:declaration --to .demo/python_source
    """
    require_one_of(declaration, tasks or ())
    options = options_for(
        runner,
        workers=workers,
        beam_args=context.obj or [],
        job_endpoint=job_endpoint,
        environment_type=environment_type,
        environment_config=environment_config,
        parallelism=parallelism,
        shared_files=shared_files,
        prism_location=prism_location,
        flink_master=flink_master,
        flink_job_server_jar=flink_job_server_jar,
    )
    accepts = accept_code_change or explain  # an explanation says where a build would stop
    how = _How(explain=explain, as_json=as_json, forecast=forecast, save=save, options=options)
    if declaration is not None:
        _show(preflight(declaration, to, options=options, accept_code_change=accepts), to, how)
        return
    if save is not None:
        raise DeclarationError("--save belongs to the plan of one declaration, and tasks are named here.")
    encoding = "list" if seqio_files else "raw"
    named = (tasks or (), excluded_tasks or (), module_import or ())
    for found, path in declarations_of(*named, to, base_seed=base_seed, encoding=encoding):
        _show(preflight(found, path, options=options, accept_code_change=accepts), path, how)


class _How(NamedTuple):
    explain: bool
    as_json: bool
    forecast: bool
    save: str | None
    options: LocalOptions | BeamOptions


def _show(declaration: Declaration, to: str, how: _How) -> None:
    planned = plan_input(declaration, to)
    if declaration.analyzers:
        if not show_analysis(
            declaration, planned, explain=how.explain, as_json=how.as_json, save=how.save, forecast=how.forecast
        ):
            return
    plan = make_plan(declaration, to, planned_input=planned)
    done = len(find_completions(plan.header, plan.tasks))
    explanation = explain_plan(plan) if how.explain else None
    forecast = forecast_build(plan) if how.forecast and plan.tasks else None
    if forecast is not None:
        require_room(plan, forecast)
    if how.save is not None:
        SavedPlan.of(plan, forecast).save(how.save)
    if how.as_json:
        more = {} if explanation is None else {"explanation": explanation.to_json()}
        more |= {} if forecast is None else {"forecast": forecast.to_json()}
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
    for line in explanation.lines() if explanation is not None else ():
        console.print(line, markup=False)
    for line in forecast.lines() if forecast is not None else ():
        console.print(line, markup=False)


def _feature(fields: dict[str, object]) -> str:
    shape = fields.get("shape") or []
    assert isinstance(shape, list | tuple)
    return str(fields["dtype"]) + (f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]" if shape else "")
