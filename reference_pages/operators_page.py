"""`docs/operators.md`: the table of DALI's CPU operators beside ours, from the table of operators and DALI's own list.

`tests/references/dali_operators.json` holds the list: names and arguments, recorded by `tests/support/dali_cases.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    facts = recorded()
    operators = facts["operators"]
    here = {name: RENAMED.get(name, name) for name in operators if RENAMED.get(name, name) in OPERATORS}
    ours = len(here)
    functions = ", ".join(f"`{name[5:]}`" for name in OPERATORS if name.startswith("math."))
    lines = [
        f"DALI {facts['version']} has {len(operators)} operators on the CPU; {ours} of them are here. The functions of",
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
