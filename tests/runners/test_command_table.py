"""The list of commands is shown without importing any, and says what they say of themselves."""

from __future__ import annotations

import subprocess
import sys

import typer.main

from beam_pipes.commands import SUMMARIES, app


def test_the_table_says_what_the_commands_say() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    said = {name: " ".join(command.help.partition("\n\n")[0].split()) for name, command in commands.items()}

    assert said == SUMMARIES


def test_looking_at_a_list_of_commands_or_a_cache_imports_nothing_that_builds() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from beam_pipes.commands import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "assert 'numpy' not in sys.modules; "
        "[CliRunner().invoke(app, [name, 'absent']) for name in ('status', 'inspect', 'stats', 'dead')]; "
        "heavy = ('beam_pipes.runners.build', 'beam_pipes.tasks', 'beam_pipes.loader'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "[]\n", done.stderr


def test_functions_are_not_hidden_by_files_of_their_names() -> None:
    code = (
        "import beam_pipes.runners.build, beam_pipes.tasks.caches.cache_tasks; from beam_pipes.runners import build, "
        "cache_tasks; print(callable(build), callable(cache_tasks))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "True True\n", done.stderr
