"""Every public name of SeqIO, its arguments and members: present in `beam_pipes.seqio`, or in a table with a reason.

`seqio_names.json` is what `record_seqio_names.py` has found in SeqIO itself.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import beam_pipes.seqio
from beam_pipes.seqio import ABSENT as NAMES_ABSENT
from beam_pipes.tasks.vocabularies.bert_word_piece import ABSENT as MEMBERS_ABSENT

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "seqio_names.json").read_text())

# Name, wherever it stands, and members of a class → why it is not there.
ABSENT = {**NAMES_ABSENT, **{f"BertWordPieceVocabulary.{name}": why for name, why in MEMBERS_ABSENT.items()}}
# Name → its arguments where they are others than there, but for what is added at the end, or by keyword.
OTHER_ARGUMENTS = {
    "AllMetricsFuture": "a `concurrent.futures.Future`",
    "AllMetricsFuture.result": "a `concurrent.futures.Future`",
    "ModelFnCallable": "any callable",
    "PredictFnCallable": "any callable",
    "ScoreFnCallable": "any callable",
}


def modules() -> list[str]:
    return sorted(RECORDED)


def ours(module: str) -> Any:
    return importlib.import_module(f"beam_pipes.seqio.{module}".rstrip("."))


@pytest.mark.parametrize("module", modules())
def test_every_name_is_there_or_accounted_for(module: str) -> None:
    # The names of `typing` and modules of other libraries are imported from where they are.
    wanted = {
        name
        for name, found in RECORDED[module].items()
        if found["kind"] != "typing"
        and name not in ("dataset_utils", "seqio")
        and not (module.startswith("scripts.") and found["kind"] == "module")
    }
    missing = {name for name in wanted if not hasattr(ours(module), name)}

    assert missing == wanted & ABSENT.keys()


@pytest.mark.parametrize("module", modules())
def test_star_imports_give_what_modules_offer(module: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"from beam_pipes.seqio{'.' if module else ''}{module} import *", namespace)

    wanted = {name for name, found in RECORDED[module].items() if found["kind"] in ("class", "function", "alias")}
    if hasattr(ours(module), "HOMES"):
        assert wanted - ABSENT.keys() <= namespace.keys()


def callables() -> list[tuple[str, str]]:
    """Functions, classes and methods, each once: the module that has it, and its name."""
    found: dict[str, str] = {}
    for module, names in RECORDED.items():
        for name, one in names.items():
            if one["kind"] in ("function", "class") and name not in ABSENT:
                found.setdefault(name, module)
    return [(module, name) for name, module in found.items()]


@pytest.mark.parametrize(("module", "name"), callables())
def test_arguments_and_members_are_those_of_seqio(module: str, name: str) -> None:
    recorded = RECORDED[module][name]
    value = getattr(ours(module), name)

    if name not in OTHER_ARGUMENTS:
        assert_takes(value, recorded["arguments"], name)
    for member, arguments in recorded.get("members", {}).items():
        told = f"{name}.{member}"
        if told in ABSENT:
            assert not hasattr(value, member)
            continue
        assert hasattr(value, member) or member in getattr(value, "__dataclass_fields__", {}), told
        if arguments is not None and told not in OTHER_ARGUMENTS and not (isinstance(value, type(enum.Enum))):
            assert_takes(getattr(value, member), [a for a in arguments if a not in ("self", "cls")], told)


def assert_takes(function: Any, recorded: list[str] | None, name: str) -> None:
    """The arguments of there are taken here: by position in the same place, and by keyword."""
    if recorded is None or not callable(function):
        return
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    positional = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_position = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    by_position = True
    wanted = []
    for one in recorded:
        argument = one.partition("=")[0]
        if argument.startswith("*"):
            by_position = by_position and argument != "*" and not argument.startswith("*")
            continue
        wanted.append(argument)
        if argument in OTHER_NAMES.get(name, {}):
            argument = OTHER_NAMES[name][argument]
        assert argument in parameters or any_keyword, f"{name} takes no {argument!r}: {list(parameters)}"
        if by_position and not any_position:
            place = wanted.index(one.partition("=")[0])
            positional = [p for p in positional if p not in ("self", "cls")]
            if argument in wanted and "self" in wanted:
                place -= 1
            if argument not in ("self", "cls") and argument in positional:
                assert positional.index(argument) == place, f"{name}: {argument!r} is number {place} there"


# Name → argument there → argument here.
OTHER_NAMES: dict[str, dict[str, str]] = {
    "LegacyMetric": {"_metric_fn": "metric_fn", "_postprocess_fn": "postprocessor"},
    "TensorAndNumpyEncoder.default": {"obj": "o"},
    "random_token_preprocessor": {"ex": "example"},
    "test_text_preprocessor": {"dataset": "example"},
}


def test_tables_of_absences_hold_no_more_than_what_is_absent() -> None:
    names = {name for found in RECORDED.values() for name in found}
    members = {f"{n}.{m}" for found in RECORDED.values() for n, one in found.items() for m in one.get("members", {})}

    never = {"inspect_tasks_main", "registration_provenance_main", "tf", "np"}  # modules, which are not recorded
    assert set(ABSENT) <= names | members | never
    assert set(OTHER_ARGUMENTS) <= names | members


def test_the_version_is_that_of_the_names() -> None:
    assert beam_pipes.seqio.__version__ == beam_pipes.seqio.version.__version__ == "0.0.20"
