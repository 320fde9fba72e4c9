"""What `beam-pipes plan` says of the analyzers of a declaration."""

from __future__ import annotations

import json

from beam_pipes.cache.publish import snapshot_directory
from beam_pipes.errors import DeclarationError
from beam_pipes.offline.analysis.analysis_explanation import explain_analysis, to_json
from beam_pipes.offline.analysis.analysis_plan import plan_analysis
from beam_pipes.offline.declaration import Declaration
from beam_pipes.offline.plan import PlannedInput
from runners.commands.tables import console


def show_analysis(
    declaration: Declaration, planned: PlannedInput, *, explain: bool, as_json: bool, save: str | None
) -> bool:
    """Prints what an analysis would do; whether it has run, so that the rest of the build can be planned.

    In JSON only where it has not run: the plan of the rest has it otherwise.
    """
    plan = plan_analysis(declaration, planned.root, planned.source, generation=planned.generation)
    manifest = planned.manifest
    previous = None if manifest is None else snapshot_directory(planned.root, manifest.snapshot)
    verdicts = explain_analysis(plan, previous)
    if not plan.done and save is not None:
        raise DeclarationError(
            f"the plan of {declaration.name!r} cannot be saved: what its pipeline makes depends on the results of "
            f"{', '.join(verdict.name for verdict in verdicts if not verdict.hit)}, which are not there yet. Build it; "
            "a plan can be saved once the analysis has run over its input."
        )
    if as_json:
        if not plan.done:
            told = {"name": declaration.name, "path": planned.root, "analysis": to_json(verdicts)}
            console.print_json(json.dumps({**told, "num_files": plan.source.num_files, "snapshot": None}))
        return plan.done
    if explain or not plan.done:
        for verdict in verdicts:
            console.print(str(verdict), markup=False)
    if not plan.done:
        console.print(
            f"{declaration.name}: {plan.source.num_files:,} files, {plan.source.num_bytes:,} bytes → "
            f"{len(plan.source.shards)} source shards, {len(plan.tasks())} of them to be analysed first. Which of them "
            "the pipeline has to build is known once that has run."
        )
    return plan.done
