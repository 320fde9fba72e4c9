"""`beam-pipes plan`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from beam_pipes.offline.completion import find_completion
from beam_pipes.offline.explanation import explain_plan
from beam_pipes.offline.plan import make_plan
from beam_pipes.offline.reference import load_declaration
from runners.commands.tables import console


def plan_command(
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    to: Annotated[str, typer.Option("--to", help="directory of the cache")],
    explain: Annotated[bool, typer.Option("--explain", help="say HIT or MISS, and why, per stage and shard")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check a declaration and print what a build would do; builds nothing.

    Example: beam-pipes plan examples.python_source:declaration --to .demo/python_source
    """
    plan = make_plan(load_declaration(declaration), to)
    done = sum(find_completion(plan.header, task) is not None for task in plan.tasks)
    explanation = explain_plan(plan) if explain else None
    if as_json:
        more = {} if explanation is None else {"explanation": explanation.to_json()}
        console.print_json(json.dumps({**plan.to_json(), "num_shards_done": done, **more}))
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


def _feature(fields: dict[str, object]) -> str:
    shape = fields.get("shape") or []
    assert isinstance(shape, list | tuple)
    return str(fields["dtype"]) + (f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]" if shape else "")
