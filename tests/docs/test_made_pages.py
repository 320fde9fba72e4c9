"""Pages that are made from the code are what the code makes: commands, errors, the API, the notebook."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

import beam_pipes
from beam_pipes import errors
from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError
from beam_pipes.transforms.operators import ABSENT, OPERATORS
from reference_pages import api_pages, error_page, operators_page
from reference_pages.notebook import notebook
from reference_pages.pages import ROOT, made_pages, write_pages

MADE = made_pages()


@pytest.mark.parametrize("name", MADE)
def test_the_page_is_what_the_code_makes(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == MADE[name], "run `python -m reference_pages`"


def test_no_page_is_left_of_a_package_that_is_gone() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "api").iterdir()} <= MADE.keys()


def test_writing_again_writes_nothing(tmp_path: Path) -> None:
    assert {path.relative_to(tmp_path).as_posix() for path in write_pages(MADE, tmp_path)} == MADE.keys()
    assert write_pages(MADE, tmp_path) == []


class TestTheCommandPage:
    def test_every_command_has_a_section_and_every_option_a_line(self) -> None:
        page = MADE["docs/cli.md"]
        for command in app.registered_commands:
            assert f"\n## `beam-pipes {command.name}`\n" in page
        assert "| `--report`, `--no-report` | write report.html" in page
        assert "beam-pipes build [DECLARATION] --to TO" in page
        assert "| `--tasks` *text*, several times |" in page


class TestTheOperatorsPage:
    def test_every_operator_of_dali_has_a_row_that_says_what_differs(self) -> None:
        operators = operators_page.recorded()["operators"]
        assert set(ABSENT) == set(operators) - set(OPERATORS) - set(operators_page.RENAMED), (
            "say why an operator is absent"
        )
        rows = [line for line in MADE["docs/operators.md"].splitlines() if " | `fn." in line or " | – | " in line]
        assert [row.split("`")[1] for row in rows] == list(operators)
        assert (
            "| `readers.caffe` | – | absent: the format of a discontinued framework: convert it to TFRecords |" in rows
        )
        assert "| `crop` | `fn.crop` | no volumes |" in rows
        assert any(
            row.startswith("| `experimental.readers.video` | `fn.readers.video` | without `file_list`,") for row in rows
        )

    def test_arguments_that_an_operator_lacks_are_named(self) -> None:
        assert operators_page.difference("crop", ["crop_h", "twist", "crop_d"]) == "without `twist`; no volumes"


class TestTheErrorPage:
    def test_every_class_has_a_section_with_its_builtin(self) -> None:
        page = MADE["docs/errors.md"]
        for cls in error_page.error_classes():
            assert f"\n## {cls.__name__}\n" in page
        assert "There is no published snapshot, no such split or no such feature. Also a `FileNotFoundError`." in page

    def test_the_tree_hangs_each_class_from_its_base(self) -> None:
        drawn = list(error_page.tree(errors.CacheError))
        assert drawn[:5] == [
            "CacheError (RuntimeError)",
            "├── CacheNotFoundError (FileNotFoundError)",
            "│   ├── SplitNotFoundError (KeyError)",
            "│   └── TaskNotCachedError (AssertionError)",
            "├── CacheReadError (OSError)",
        ]
        assert drawn[-2:] == ["    ├── CorruptTakedownError", "    └── CorruptRecordError"]

    def test_the_tree_holds_every_class_once(self) -> None:
        names = [line.lstrip("│├└─ ").partition(" ")[0] for line in error_page.tree(errors.BeamPipesError)]
        assert sorted(names) == sorted(cls.__name__ for cls in error_page.error_classes())

    def test_messages_are_found_however_they_are_spelled(self) -> None:
        source = """
raise TaskError("no rate for the task" + f" {name!r}; " "give one", task=name)
raise errors.LoaderError(f"batch_size {size} is too small")
raise errors.LoaderError("its shape varies").about("feature", name, found=shape)
raise TaskError(message)
raise TaskError("short")
raise ValueError("of no class of ours, however long")
raise self.refuse(f"expected spectrograms, got {spec}")
choice(policy, of=POLICIES, what=f"{where}: on_error", error=TaskError)
checks.integer(self.shard, what="shard", least=0, error=self.refuse)
known(name, among=other)
"""
        found = list(error_page.messages_in(source, "a.py", {"TaskError", "LoaderError", "InferenceError"}))
        assert [(message.error, message.text) for message in found] == [
            ("TaskError", "no rate for the task …; give one"),
            ("LoaderError", "batch_size … is too small"),
            ("InferenceError", "…: expected spectrograms, got …"),
            ("TaskError", "…: on_error should be one of …, got …."),
            ("InferenceError", "…: shard should be an integer…, got …."),
            ("LoaderError", "feature …: its shape varies"),
        ]

    @pytest.mark.parametrize(
        "error",
        [
            errors.CacheNotFoundError("x: expected a cache, a directory with manifest.json, and there is none."),
            errors.UnboundedLoaderError("a mixture with exhausted='repeat' never ends, got epochs=3: pass epochs=None"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_words_of_a_message_are_found_on_the_page(self, error: BeamPipesError) -> None:
        words = str(error).replace("x: ", "…: ").split(": ", 1)[-1].split("epochs=")[0].strip(" .")
        assert words in MADE["docs/errors.md"]


class TestTheApiPages:
    def test_names_are_those_that_packages_offer(self) -> None:
        names = api_pages.public_names("beam_pipes.loader")
        assert names["Loader"] == "beam_pipes.loader.loader.Loader"
        assert not any(
            path.startswith("beam_pipes.errors") for path in api_pages.public_names("beam_pipes.typed").values()
        )
        assert api_pages.public_names("beam_pipes").keys() == {*beam_pipes.__all__} - {"__version__"}


class TestTheNotebook:
    def test_blocks_become_cells(self) -> None:
        page = '# A\n\n```python\nx = 1\n```\n\nsee [b](b.md)\n\n```python title="m.py"\ny\n```\n```sh run\nls\n```\n'
        cells = json.loads(notebook(page))["cells"]
        assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
            ("markdown", "# A"),
            ("code", "x = 1"),
            ("markdown", "see b"),
            ("code", "%%writefile m.py\ny"),
            ("code", "%%bash\nls"),
        ]

    @pytest.mark.parametrize("name", [name for name in MADE if name.startswith("docs/tutorials/")])
    def test_tutorials_are_notebooks_that_end_with_a_look(self, name: str) -> None:
        read = nbformat.reads(MADE[name], as_version=4)
        nbformat.validate(read)
        words = "\n".join(cell.source for cell in read.cells if cell.cell_type == "markdown")
        assert "as a notebook" not in words and "](" not in words.replace("](http", "")
        assert [cell.source for cell in read.cells if "beam-pipes report" in cell.source][-1].startswith("%%bash\n")
        assert "You get" in words or "could not be done there" in words

    def test_it_runs_in_a_kernel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
        read = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
        nbformat.validate(read)

        work = tmp_path / "work"
        work.mkdir()
        nbclient.NotebookClient(read, timeout=120, resources={"metadata": {"path": str(work)}}).execute()

        assert (work / "cache" / "manifest.json").exists()
        printed = [output.get("text", "") for cell in read.cells for output in cell.get("outputs", [])]
        assert any("600" in text for text in printed)
