"""`docs/operators.md`: the table of DALI's CPU operators beside ours, from the table of operators and DALI's own list.

`tests/references/dali_operators.json` holds the list: names and arguments, recorded by `tests/support/dali_cases.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beam_pipes.graph.tensors import ABSENT as NAMES_ABSENT
from beam_pipes.transforms.operators import ABSENT, OPERATORS, operator_class

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/operators.md"
RECORDED = ROOT / "tests/references/dali_operators.json"
BEGIN, END = "<!-- DALI's operators -->\n", "<!-- end of DALI's operators -->"

#: Arguments that count the third axis of volumes.
VOLUMES = frozenset("crop_d crop_pos_z resize_z axis".split())

#: Operators that have another name here.
RENAMED = {"experimental.readers.video": "readers.video"}


def recorded() -> dict[str, Any]:
    """`version` of DALI, and `operators`: name → names of its arguments."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def missing_arguments(name: str, arguments: list[str]) -> list[str]:
    """The arguments that an operator of ours does not take."""
    taken = {*operator_class(name).arguments, *operator_class(name).without_effect}
    return [one for one in arguments if one not in taken]


def difference(name: str, arguments: list[str]) -> str:
    """What a row says of an operator: nothing, which arguments it lacks, or why it is absent."""
    name = RENAMED.get(name, name)
    if name not in OPERATORS:
        return f"absent: {ABSENT[name]}"
    lacks = missing_arguments(name, arguments)
    said = [f"without {', '.join(f'`{one}`' for one in lacks if one not in VOLUMES)}"] if set(lacks) - VOLUMES else []
    return "; ".join(said + (["no volumes"] if set(lacks) & VOLUMES else []))


def table() -> str:
    """DALI's operators, a row each."""
    told = recorded()
    operators = told["operators"]
    here = {name: RENAMED.get(name, name) for name in operators if RENAMED.get(name, name) in OPERATORS}
    ours = len(here)
    functions = ", ".join(f"`{name[5:]}`" for name in OPERATORS if name.startswith("math."))
    lines = [
        f"DALI {told['version']} has {len(operators)} operators on the CPU; {ours} of them are here. The functions of",
        f"`nvidia.dali.math` are `fn.math`: {functions}.",
        "",
        "| DALI | here | difference |",
        "| --- | --- | --- |",
        *(
            f"| `{name}` | {'`fn.' + here[name] + '`' if name in here else '–'} | {difference(name, arguments)} |"
            for name, arguments in operators.items()
        ),
    ]
    return "\n".join(lines)


def page() -> str:
    """docs/operators.md with the table of today between its marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}\n{END}{after}"


#: Pages that say in three lines what is absent.
SUMMARIES = ("beam_pipes/graph/README.md", "docs/migrate-from-dali.md")
_BEGIN, _END = "<!-- what is not here -->\n", "<!-- end of what is not here -->"


def _groups(table: dict[str, str]) -> str:
    """`a`, `b` (why); `c`, `d` and 7 more (why): names by the reason for their absence."""
    by_reason: dict[str, list[str]] = {}
    for name, why in table.items():
        by_reason.setdefault(why, []).append(name)
    shown = {why: names if len(names) < 6 else [names[0], names[1]] for why, names in by_reason.items()}
    rest = {why: f" and {len(by_reason[why]) - 2} more" if len(by_reason[why]) > 5 else "" for why in by_reason}
    return "; ".join(f"{', '.join(f'`{one}`' for one in names)}{rest[why]} ({why})" for why, names in shown.items())


def summary() -> str:
    """What DALI has and we do not, in three lines: operators, names, and kinds of data."""
    return "\n".join(
        [
            f"- **Operators that are not here**, and what to do instead: {_groups(ABSENT)}.",
            f"- **Names**: {_groups(NAMES_ABSENT)}.",
            "- **Volumes**, but for `flip(depthwise=)`: cut by `slice`. **Operators without a pipeline** "
            "(`experimental.dynamic`): debug mode. **Arguments** that single operators lack: [the table]({}).",
        ]
    )


def summaries() -> dict[str, str]:
    """The pages of `SUMMARIES` with the lines of today between their marks."""
    made = {}
    for name in SUMMARIES:
        before, _, rest = (ROOT / name).read_text(encoding="utf-8").partition(_BEGIN)
        _, _, after = rest.partition(_END)
        place = "operators.md" if name.startswith("docs/") else "../../docs/operators.md"
        made[name] = f"{before}{_BEGIN}{summary().format(place + '#dalis-operators')}\n{_END}{after}"
    return made
