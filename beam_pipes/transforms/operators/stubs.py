"""Writes the `.pyi` files of `beam_pipes.transforms.fn` and `beam_pipes.transforms.ops` from the table of operators.

`python -m beam_pipes.transforms.operators.stubs` writes them. They are not committed: wheels and editable installations
create them at build time (`setup.py`), a checkout when operators have changed (`make lint`). A test compares them with
the generated text.
"""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from beam_pipes.graph.functions import documentation
from beam_pipes.graph.operator import Argument, Operator
from beam_pipes.transforms.operators import (
    ALIASES,
    class_name,
    families,
    families_of,
    last_of,
    names_in,
    operator_class,
)

_HEADER = (
    '"""Made by `python -m beam_pipes.transforms.operators.stubs` from the table of operators; not to be edited."""\n\n'
)

# Name used in annotations → its origin, in the order of imports.
_IMPORTS = (
    ("from collections import", ("abc",)),
    ("from collections.abc import", ("Callable", "Sequence")),
    ("from typing import", ("Any",)),
    ("from numpy.typing import", ("DTypeLike",)),
    ("from beam_pipes.graph.data_node import", ("DataNode",)),
    ("from beam_pipes.graph.types import", ("DALIDataType", "DALIImageType", "DALIInterpType")),
)
_GROUPS = ((0, 1, 2), (3,), (4, 5))

_COMMON = {
    "device": "device: str | None = None",
    "name": "name: str | None = None",
    "preserve": "preserve: bool = False",
    "on_error": "on_error: str | None = None",
    "seed": "seed: int | None = None",
}


def stubs() -> dict[str, str]:
    """Path below `transforms/` → text."""
    made = {}
    for family in ["", *families()]:
        operators = [operator_class(name) for name in names_in(family)]
        aliases = names_in(family, ALIASES)
        below = families_of(family)
        path = family.split(".") if family else []
        file = "/".join([*path, "__init__"] if below else path) + ".pyi"
        for room, named, body in (
            ("fn", last_of, "\n".join(map(_function, operators))),
            ("ops", class_name, "\n".join(map(_class, sorted(operators, key=lambda one: one.__name__)))),
        ):
            modules = [
                f"from {'.'.join(['beam_pipes.transforms', room, *path])} import {one} as {one}\n" for one in below
            ]
            older = [_alias(room, named, alias) for alias in aliases]
            assigned = "".join(line for line in older if " = " in line)
            body += f"\n{assigned}" if assigned else ""
            modules = sorted([*modules, *(line for line in older if " = " not in line)])
            if re.search(r"^class Sequence:", body, re.MULTILINE):  # an operator has that name
                body = body.replace("Sequence[", "abc.Sequence[")
            made[f"{room}/{file}"] = (_HEADER + _imports(body, modules) + body).rstrip("\n") + "\n"
    return made


def _imports(body: str, modules: list[str]) -> str:
    code = re.sub(r'""".*?"""', "", body, flags=re.DOTALL)
    groups = []
    for group in _GROUPS:
        lines = []
        for position in group:
            prefix, names = _IMPORTS[position]
            used = [name for name in names if re.search(rf"(?<!abc\.)(?<!class )\b{name}\b", code)]
            if used:
                lines.append(f"{prefix} {', '.join(used)}\n")
        if group == _GROUPS[-1]:
            lines += modules
        if lines:
            groups.append("".join(lines))
    return "\n".join(groups) + "\n"


def _alias(room: str, named: Callable[[str], str], alias: str) -> str:
    family, own, other = ALIASES[alias].rpartition(".")[0], named(ALIASES[alias]), named(alias)
    if own == other:
        where = ".".join(filter(None, ["beam_pipes.transforms", room, family]))
        return f"from {where} import {own} as {own}\n"
    return f"{other} = {'.'.join(filter(None, [family, own]))}\n"


def _listed(opening: str, parameters: list[str], closing: str, indent: str = "") -> str:
    """A signature on one line, or with one line per parameter."""
    line = f"{indent}{opening}({', '.join(parameters)}){closing}"
    if len(line) <= 120:
        return f"{line}\n"
    inside = "".join(f"{indent}    {one},\n" for one in parameters)
    return f"{indent}{opening}(\n{inside}{indent}){closing}\n"


def _function(operator: type[Operator]) -> str:
    parameters = [*_inputs(operator), *_keywords(operator)]
    name = operator.op_name.rpartition(".")[2]
    return _listed(f"def {name}", parameters, f" -> {_result(operator)}:") + _docstring(operator, 1)


def _class(operator: type[Operator]) -> str:
    call = _listed(
        "def __call__", ["self", *_inputs(operator), "**arguments: Any"], f" -> {_result(operator)}: ...", "    "
    )
    made = _listed("def __init__", ["self", *_keywords(operator, of_class=True)], " -> None: ...", "    ")
    return f"class {operator.__name__}:\n{_docstring(operator, 1)}\n{made}{call}"


def _docstring(operator: type[Operator], depth: int) -> str:
    indent = "    " * depth
    text = documentation(operator).replace("\\", "\\\\").replace('"""', "'''")
    lines = []
    for line in text.splitlines():
        hanging = " " * (len(line) - len(line.lstrip())) + ("    " if re.match(r"    \w+: ", line) else "")
        lines += textwrap.wrap(line, 120 - len(indent), subsequent_indent=hanging, break_long_words=False) or [""]
    return f'{indent}"""' + "\n".join(f"{indent}{line}".rstrip() for line in lines).lstrip() + f'\n{indent}"""\n'


def _result(operator: type[Operator]) -> str:
    if operator.result is not Operator.result or operator.output_count is not Operator.output_count:
        return "Any"
    return "DataNode" if operator.num_outputs == 1 else "list[DataNode]"


def _inputs(operator: type[Operator]) -> list[str]:
    made = []
    required = len(operator.inputs) - operator.optional_inputs
    for position, name in enumerate(operator.inputs):
        last = position == len(operator.inputs) - 1
        if operator.variadic and last:
            made.append(f"*{name}: Any")
        else:
            made.append(f"{name}: Any" + ("" if position < required else " = None"))
    return made


def _keywords(operator: type[Operator], *, of_class: bool = False) -> list[str]:
    own = sorted(operator.arguments.values(), key=lambda argument: not argument.is_required)
    first = [argument for argument in own if argument.name in operator.positional and (of_class or not operator.inputs)]
    made = [_keyword(argument, of_class) for argument in first]
    made += [] if operator.variadic and not of_class else ["*"]
    made += [_keyword(argument, of_class) for argument in own if argument not in first]
    return made + [_COMMON[name] for name in operator.common_arguments()]


def _keyword(argument: Argument, optional: bool) -> str:
    annotation = argument.kind.annotation
    if not argument.constant_only:
        annotation += " | DataNode"
    if argument.default is None and annotation != "Any":
        annotation += " | None"
    if argument.is_required:
        return f"{argument.name}: {annotation}" + (" = ..." if optional else "")
    default = argument.default
    quoted = f'"{default}"' if isinstance(default, str) else repr(default)
    shown = quoted if default is None or isinstance(default, (bool, int, float, str)) else "..."
    return f"{argument.name}: {annotation} = {'...' if isinstance(default, enum.Enum) else shown}"


def write(root: Path) -> None:
    """Writes all files."""
    for path, text in stubs().items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    directory = Path(inspect.getfile(operator_class)).parents[1]
    write(directory)
