"""The commands, one a file."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from beam_pipes.building.workers.user_exit import exit_as_error
from beam_pipes.runners.commands.build import build_command
from beam_pipes.runners.commands.chaos import chaos_command
from beam_pipes.runners.commands.dead import dead_command
from beam_pipes.runners.commands.diff import diff_command
from beam_pipes.runners.commands.doctor import doctor_command
from beam_pipes.runners.commands.doctor_loader import doctor_loader_command
from beam_pipes.runners.commands.duplicates import duplicates_command
from beam_pipes.runners.commands.export import export_command
from beam_pipes.runners.commands.export_dali_index import export_dali_index_command
from beam_pipes.runners.commands.gc import gc_command
from beam_pipes.runners.commands.inspect import inspect_command
from beam_pipes.runners.commands.plan import plan_command
from beam_pipes.runners.commands.replay_dead import replay_dead_command
from beam_pipes.runners.commands.report import report_command
from beam_pipes.runners.commands.stats import stats_command
from beam_pipes.runners.commands.status import status_command
from beam_pipes.runners.commands.takedown import takedown_command
from beam_pipes.runners.commands.trace import trace_command
from beam_pipes.runners.commands.verify import verify_command
from beam_pipes.runners.commands.when import when_command
from beam_pipes.runners.commands.who import who_command
from beam_pipes.runners.commands.why import why_command


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
