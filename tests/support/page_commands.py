"""Commands that pages show but tests do not run: checks that everything they name exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import typer.main
from pages import ROOT, Block

from beam_pipes.cli import split_beam_args
from beam_pipes.commands import app
from reference_pages.pythons import extras

# Other commands shown in pages, which need no check.
OTHERS = {
    "cat",
    "cd",
    "cmp",
    "docker",
    "echo",
    "exit",
    "git",
    "java",
    "kubectl",
    "mvn",
    "pipx",
    "python",
    "true",
    "uvx",
}


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each simple command of a shell block, without comments, variables in front and redirections."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word[0] in "|&;" or word == "2>":
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            elif word[0] not in "<>":
                words.append(word)


def complaint(words: list[str]) -> str | None:
    """The problem with a command; None if everything it names exists."""
    name, *arguments = words
    if name == "beam-pipes":
        return _our_command(arguments)
    if name == "make":
        return _targets([word for word in arguments if "=" not in word])
    if name == "pip":
        return _extras(" ".join(arguments))
    if name == "python" and arguments[:1] == ["-m"]:
        return _module(arguments[1], arguments[2:])
    return None if name in OTHERS else f"{name!r} is no command that is known here"


def _our_command(arguments: list[str]) -> str | None:
    ours, _ = split_beam_args(arguments)
    group = typer.main.get_command(app)
    if not ours or ours[0] not in group.commands:  # type: ignore[attr-defined]
        return f"beam-pipes has no command {ours[:1]}"
    command = group.commands[ours[0]]  # type: ignore[attr-defined]
    try:
        command.make_context(ours[0], ours[1:])
    except Exception as error:  # click's own, wherever typer bundles it
        return f"beam-pipes {' '.join(ours)}: {getattr(error, 'message', None) or error}"
    return None


def mention_complaint(mention: str) -> str | None:
    """The problem with a command mentioned in prose, where `…` marks omissions: checks its name and options."""
    ours, _ = split_beam_args(mention.split()[1:])
    group = typer.main.get_command(app)
    if not ours or ours[0] not in group.commands:  # type: ignore[attr-defined]
        return f"beam-pipes has no command {ours[:1]}"
    command = group.commands[ours[0]]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    missing = [word for word in ours if word.startswith("--") and word.partition("=")[0] not in known]
    return f"beam-pipes {ours[0]} has no option {missing}" if missing else None


def _targets(targets: list[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    missing = [target for target in targets if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)]
    return f"the Makefile has no target {missing}" if missing else None


def _extras(arguments: str) -> str | None:
    known = extras()
    named = [extra for found in re.findall(r"\[([\w,]+)\]", arguments) for extra in found.split(",")]
    missing = [extra for extra in named if extra not in known]
    return f"pyproject.toml has no extra {missing}" if missing else None


def _module(module: str, arguments: list[str]) -> str | None:
    file = ROOT / f"{module.replace('.', '/')}.py"
    if module.partition(".")[0] not in ("beam_pipes", "benchmarks", "examples"):
        return None
    if not file.exists():
        return f"there is no module {module}"
    known = file.read_text(encoding="utf-8") + (ROOT / "benchmarks" / "harness.py").read_text(encoding="utf-8")
    missing = [word for word in arguments if word.startswith("--") and f'"{word}"' not in known]
    return f"{module} has no option {missing}" if missing else None
