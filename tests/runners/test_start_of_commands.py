"""What a command imports before it works, and that typer's own coercion, which is slow to import, is not missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from beam_pipes.commands import _UNSURE, SUMMARIES, _plainly, app

PROGRAM = """
import gc, sys
from beam_pipes.cli import main

sys.argv = ["beam-pipes", "table", "a.csv", "--to", "c", "--no-report", "--workers", "1"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
unwanted = ["pydantic", "pyarrow", "importlib.metadata", "beam_pipes.recipes.images", "beam_pipes.recipes.audio",
            "beam_pipes.recipes.texts"]
print([name for name in unwanted if name in sys.modules], gc.isenabled())
"""

VALUES = [
    *(None, "", "a", "1", " 1", "01", "-1", "0", "1_0", "1.5", "9" * 20, "true", 5, 0, -1, True, False, 1.5),
    *((), [], ("a", "b"), ["x"], ("a", 1), (1,)),
]


def test_a_table_of_numbers_needs_no_other_recipe_and_no_pydantic(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2.5\n3,4.5\n")

    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert found.splitlines()[-1] == "[] True"


def test_functions_of_recipes_are_not_hidden_by_their_modules() -> None:
    program = (
        "from beam_pipes.recipes.images import MAX_PIXELS\n"
        "import beam_pipes.recipes.audio\n"
        "from beam_pipes.recipes import audio, images\n"
        "from beam_pipes import recipes\n"
        "print(callable(audio), callable(images), callable(recipes.table), 'tokens' in dir(recipes))"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert found == "True True True True\n"


@pytest.mark.parametrize("name", ["build", "images", "plan", "table", "tokens", "view"])
def test_values_of_options_are_those_of_typer(name: str) -> None:
    assert name in SUMMARIES
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    compared = 0
    for parameter in command.params:
        for value in VALUES:
            made = _plainly(parameter, value)
            if made is not _UNSURE:
                own = type(parameter).process_value(parameter, None, value)
                assert (made, type(made)) == (own, type(own)), (parameter.name, value)
                compared += 1
    assert compared > 40
