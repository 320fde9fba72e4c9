"""The commands, one a file."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from beam_pipes.building.workers.process import exit_as_error
from beam_pipes.runners.commands.build import build_command, chaos_command
from beam_pipes.runners.commands.care import (
    doctor_command,
    export_command,
    export_dali_index_command,
    gc_command,
    report_command,
    verify_command,
)
from beam_pipes.runners.commands.dead import dead_command, duplicates_command, replay_dead_command
from beam_pipes.runners.commands.inspect import inspect_command
from beam_pipes.runners.commands.loading import doctor_loader_command, when_command, who_command
from beam_pipes.runners.commands.plan import plan_command
from beam_pipes.runners.commands.records import takedown_command, trace_command, why_command
from beam_pipes.runners.commands.stats import diff_command, stats_command, status_command


class _Commands(TyperGroup):
    """No command ends with another's exit code: what calls `sys.exit` in a command is the user's code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SystemExit as error:
            raise exit_as_error(error) from error


app = typer.Typer(
    name="beam-pipes",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Declare once, cache with Apache Beam, train from ordinary TFRecords.\n\n"
    "Example: beam-pipes build examples.python_source:declaration --to .demo/python_source",
)
app.command("build")(build_command)
app.command("plan")(plan_command)
app.command("chaos")(chaos_command)
app.command("doctor")(doctor_command)
app.command("doctor-loader")(doctor_loader_command)
app.command("inspect")(inspect_command)
app.command("stats")(stats_command)
app.command("verify")(verify_command)
app.command("report")(report_command)
app.command("diff")(diff_command)
app.command("export")(export_command)
app.command("status")(status_command)
app.command("gc")(gc_command)
app.command("dead")(dead_command)
app.command("replay-dead")(replay_dead_command)
app.command("why")(why_command)
app.command("duplicates")(duplicates_command)
app.command("trace")(trace_command)
app.command("who")(who_command)
app.command("when")(when_command)
app.command("takedown")(takedown_command)
app.command("export-dali-index")(export_dali_index_command)
