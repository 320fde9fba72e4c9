"""Pages of the documentation, run as a reader would: files are written, Python and shell blocks executed, in order."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beam_pipes import cli
from beam_pipes.commands import app

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^\s`]*)(?P<info>[^\n`]*)$")
TITLE = re.compile(r'title="(?P<file>[^"]+)"')
OUR_COMMAND = re.compile(r"beam-pipes [^|&;<>$`\\#]*(#.*)?$")
CONTINUES = re.compile(r"^The code continues [^.\[]*\[[^\]]*\]\((?P<page>[^)#]+)\)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: the number of its first line of text, its language, the rest of the fence line, its text."""

    line: int
    language: str
    info: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that a reader writes it to: `title="poem.py"`."""
        title = TITLE.search(self.info)
        return None if title is None else title["file"]

    @property
    def runs(self) -> bool:
        """Whether it is executed: Python that is neither a file nor quoted, and shell that says `run`."""
        words = self.info.split()
        python = self.language == "python" and self.file is None and "quoted" not in words
        return python or (self.language == "sh" and "run" in words)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, without the indent of lists."""
    opened: re.Match[str] | None = None
    first, lines = 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None:
            opened = FENCE.match(line)
            first, lines = number + 1, []
        elif line.strip().startswith(opened["fence"]) and not line.strip().strip(opened["fence"][0]):
            yield Block(first, opened["language"], opened["info"].strip(), "\n".join(lines) + "\n")
            opened = None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"a fenced block is not closed, line {first - 1}"


def without_blocks(text: str) -> Iterator[str]:
    """The lines of a page outside code."""
    inside = {
        number
        for block in blocks(text)
        for number in range(block.line - 1, block.line + len(block.text.splitlines()) + 1)
    }
    return (line for number, line in enumerate(text.splitlines(), start=1) if number not in inside)


def anchors(text: str) -> set[str]:
    """The valid `#fragment`s of a page: its headings as named by repository viewers."""
    headings = [match[1] for line in without_blocks(text) if (match := re.match(r"#{1,6} +(.*?) *#*$", line))]
    slugs = [re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings]
    return {slug if not slugs[:at].count(slug) else f"{slug}-{slugs[:at].count(slug)}" for at, slug in enumerate(slugs)}


def page_before(page: Path) -> Path | None:
    """The page that this one continues, whose files must exist."""
    found = CONTINUES.search(page.read_text(encoding="utf-8"))
    return None if found is None else (page.parent / found["page"]).resolve()


def run_page(page: Path, module_name: str, *, before: Callable[[Path], Path]) -> None:
    """Runs all blocks of a page in the working directory; `before` gives the directory that a page left behind."""
    first = page_before(page)
    if first is not None:
        shutil.copytree(before(first), Path.cwd(), dirs_exist_ok=True)
    run_blocks(page.read_text(encoding="utf-8"), str(page), module_name)


def run_blocks(text: str, name: str, module_name: str) -> int:
    """Writes files, executes Python in one namespace and shell; line numbers in tracebacks are those of the page."""
    # Its own module, registered: dataclasses and pickle look their classes up there.
    module = types.ModuleType(module_name)
    sys.modules[module_name] = module
    known, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, os.getcwd())
    count = 0
    try:
        for block in blocks(text):
            if block.file is not None:
                Path(block.file).write_text(block.text, encoding="utf-8")
                importlib.invalidate_caches()
            elif block.runs and block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), module.__dict__)
            elif block.runs and all(map(OUR_COMMAND.match, block.text.splitlines())):
                for line in block.text.splitlines():
                    run_command(line, where=f"{name}:{block.line}")
            elif block.runs:
                run_shell(block.text, where=f"{name}:{block.line}")
            count += block.file is not None or block.runs
    finally:
        sys.path[:] = path
        del sys.modules[module_name]
        _forget_modules_of(os.getcwd(), known)
    return count


def run_shell(text: str, *, where: str) -> str:
    """Runs a block in bash with the commands of this environment; a command that fails is an error that shows why."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, env=environment, timeout=120
    )
    assert finished.returncode == 0, f"{where}: exit code {finished.returncode}\n{finished.stdout}{finished.stderr}"
    return finished.stdout


def run_command(line: str, *, where: str) -> None:
    """Runs one of our commands in this process, which saves starting Python."""
    with pytest.raises(SystemExit) as ended:
        cli.run(app, *cli.split_beam_args(shlex.split(line, comments=True)[1:]))
    assert ended.value.code == 0, f"{where}: exit code {ended.value.code}: {line}"


def _forget_modules_of(directory: str, known: set[str]) -> None:
    """Pages write different modules of the same name."""
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(directory):
            del sys.modules[name]
