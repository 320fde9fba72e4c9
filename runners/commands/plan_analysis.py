"""What `beam-pipes plan` says of the analyzers of a declaration."""

from __future__ import annotations

from typing import Any

from beam_pipes.building.analysis.analysis_plan import plan_analysis
from beam_pipes.building.analysis_explanation import explain_analysis, to_json
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import fingerprint_declaration
from beam_pipes.building.forecast import forecast_build, require_room
from beam_pipes.building.plan import PlannedInput, make_plan
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.publish import snapshot_directory
from beam_pipes.errors import AnalysisError, DeclarationError
from beam_pipes.runners.commands.tables import console


def show_analysis(
    declaration: Declaration, planned: PlannedInput, *, explain: bool, as_json: bool, save: str | None, forecast: bool
) -> bool:
    """Prints what an analysis would do; whether it has run, so that the rest of the build can be planned.

    Where it has not run and no stage holds a result that is missing, the pipeline is tried and forecast all the same.
    In JSON only where it has not run: the plan of the rest has it otherwise.
    """
    plan = plan_analysis(declaration, planned.root, planned.source, generation=planned.generation)
    manifest = planned.manifest
    previous = None if manifest is None else snapshot_directory(planned.root, manifest.snapshot)
    verdicts = explain_analysis(plan, previous)
    if not plan.done and save is not None:
        raise DeclarationError(
            f"the plan of {declaration.name!r} cannot be saved: its snapshot depends on the results of "
            f"{', '.join(verdict.name for verdict in verdicts if not verdict.hit)}, which are not there yet. Build it; "
            "a plan can be saved once the analysis has run over its input."
        )
    pipeline = None
    if not plan.done and _is_independent(declaration):
        pipeline = make_plan(declaration, planned.root, planned_input=planned, require_results=False)
    expected = None if pipeline is None or not forecast else forecast_build(pipeline)
    if pipeline is not None and expected is not None:
        require_room(pipeline, expected)
    if as_json:
        if not plan.done:
            told: dict[str, Any] = {"name": declaration.name, "path": planned.root, "analysis": to_json(verdicts)}
            told |= {} if expected is None else {"forecast": expected.to_json()}
            console.print_json(strict_json({**told, "num_files": plan.source.num_files, "snapshot": None}))
        return plan.done
    if explain or not plan.done:
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
    for line in expected.lines() if expected is not None else ():
        console.print(line, markup=False)
    return plan.done


def _is_independent(declaration: Declaration) -> bool:
    """Whether no stage holds a result that is missing."""
    try:
        fingerprint_declaration(declaration, {})
    except AnalysisError:
        return False
    return True
