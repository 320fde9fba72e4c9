"""`docs/cli.md`: every command with its arguments, options and examples, from the application itself."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

import typer.main

from beam_pipes.commands import app

# What an option takes, in words.
KINDS = {str: "text", int: "integer", float: "number", Path: "path"}

HEAD = """# The command line

Look up every command, its arguments and its options here, or run `beam-pipes COMMAND --help`. Options after `--` are
passed to Beam. `python -m reference_pages` generates this page from the commands; do not edit it by hand.

Exit codes: 0 on success; 1 on an error or a failed check; 2 for unknown options; 130 after Ctrl-C; 143 after SIGTERM.

"""


def page() -> str:
    """The text of the page."""
    group: Any = typer.main.get_command(app)
    commands = dict(sorted(group.commands.items()))
    rows = [f"| [`{name}`](#{_anchor(name)}) | {_first_sentence(command)} |" for name, command in commands.items()]
    parts = ["\n".join(["| command | |", "| --- | --- |", *rows]), *(_section(*item) for item in commands.items())]
    return HEAD + "\n\n".join(parts) + "\n"


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(["beam-pipes", name, *(_usage(one) for one in arguments), *(_required(one) for one in options)])
    text, examples = _help(command)
    parts = [f"## `beam-pipes {name}`", text, f"`{usage.strip()}`"]
    rows = [f"| `{_name(one)}` | {_cell(one.help)} |" for one in arguments]
    rows += [f"| {_option(one)} | {_cell(one.help)}{_default(one)} |" for one in options if not one.hidden]
    if rows:
        parts.append("\n".join(["| | |", "| --- | --- |", *rows]))
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(part for part in parts if part)


def _help(command: Any) -> tuple[str, list[str]]:
    """The text of a command's docstring as paragraphs, and its examples."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", (command.help or "").strip())]
    examples = [part.removeprefix("Example: ") for part in paragraphs if part.startswith("Example: ")]
    return "\n\n".join(part for part in paragraphs if not part.startswith("Example: ")), examples


def _first_sentence(command: Any) -> str:
    text, _ = _help(command)
    return _cell(re.split(r"(?<=\.)\s", text, maxsplit=1)[0])


def _usage(argument: Any) -> str:
    name = _name(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _required(option: Any) -> str:
    return f"{max(option.opts, key=len)} {_name(option)}" if option.required else ""


def _name(parameter: Any) -> str:
    return str(parameter.name).upper()


def _option(option: Any) -> str:
    names = [*sorted(option.opts, key=len, reverse=True), *option.secondary_opts]
    shown = ", ".join(f"`{name}`" for name in names)
    if option.is_flag:
        return shown
    annotation = option.type_descriptor.annotation
    several = typing.get_origin(annotation) is list
    kind = KINDS[typing.get_args(annotation)[0] if several else annotation]
    return f"{shown} *{kind}*{', several times' if several else ''}"


def _default(option: Any) -> str:
    default = option.default
    if option.required:
        return "; required"
    if callable(default) or default is None or default in ((), [], False):
        return ""
    if default is True:
        return "; on"
    return f"; `{default}` if left out"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _anchor(name: str) -> str:
    return f"beam-pipes-{name}"
