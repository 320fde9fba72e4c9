"""The commands, one a file."""

from __future__ import annotations

import typer

from runners.commands.build import build_command
from runners.commands.gc import gc_command
from runners.commands.inspect import inspect_command
from runners.commands.plan import plan_command
from runners.commands.stats import stats_command
from runners.commands.status import status_command
from runners.commands.verify import verify_command

app = typer.Typer(
    name="beam-pipes",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Declare once, cache with Apache Beam, train from ordinary TFRecords.\n\n"
    "Example: beam-pipes build examples.python_source:declaration --to .demo/python_source",
)
app.command("build")(build_command)
app.command("plan")(plan_command)
app.command("inspect")(inspect_command)
app.command("stats")(stats_command)
app.command("verify")(verify_command)
app.command("status")(status_command)
app.command("gc")(gc_command)
