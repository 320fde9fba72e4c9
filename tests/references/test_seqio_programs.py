"""Programs of users give here what they give with SeqIO: its answers are recorded in `seqio_answers.json`.

Where an answer is an exception, ours is of the same builtin classes, and its message begins with SeqIO's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import beam_pipes.seqio as seqio

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import seqio_answers  # noqa: E402  # as the programs import it, in either environment

RECORDED: dict[str, Any] = json.loads((HERE / "seqio_answers.json").read_text())
PROGRAMS = seqio_answers.programs()

# Place in an answer → how far the message there is ours too, and why not further.
WORDS = {
    "errors.unknown_names[4]": ("User passed in a task that was not a string, Task, or Mixture.", "a blank"),
    "errors.lengths_of_converters[2]": (
        "Dataset is missing an expected feature during input_validation validation: 'targets'. Received {'inputs'",
        "the names are listed, not their specs",
    ),
}
# Place in an answer → what ours is instead, and why.
DIFFERENT: dict[str, tuple[Any, str]] = {
    "converters.what_convert_example_finds.lm, pack=False": (["targets"], "what no task feature names is left out"),
}


@pytest.fixture(autouse=True)
def registries():
    dirs = seqio.get_global_cache_dirs()
    tasks, mixtures = dict(seqio.TaskRegistry._REGISTRY), dict(seqio.MixtureRegistry._REGISTRY)
    yield
    seqio.set_global_cache_dirs(dirs)
    for registry, before in ((seqio.TaskRegistry, tasks), (seqio.MixtureRegistry, mixtures)):
        registry.reset()
        registry._REGISTRY.update(before)


def test_every_program_has_a_recorded_answer() -> None:
    assert sorted(PROGRAMS) == sorted(RECORDED)
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_give_what_they_give_with_seqio(name: str) -> None:
    assert list(differences(RECORDED[name], seqio_answers.answer(PROGRAMS[name], seqio), name)) == []


def differences(recorded: Any, ours: Any, place: str):
    if place in DIFFERENT:
        if ours != DIFFERENT[place][0]:
            yield place, DIFFERENT[place], ours
    elif isinstance(recorded, dict) and recorded.keys() == {"raises", "message"}:
        words = WORDS[place][0] if place in WORDS else recorded["message"]
        same = isinstance(ours, dict) and ours.keys() == recorded.keys()
        if not (same and set(recorded["raises"]) <= set(ours["raises"]) and ours["message"].startswith(words)):
            yield place, recorded, ours
    elif isinstance(recorded, list) and isinstance(ours, list) and is_classes(recorded) and is_classes(ours):
        if not set(recorded) <= set(ours):
            yield place, recorded, ours
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif isinstance(recorded, dict) and isinstance(ours, dict) and recorded.keys() == ours.keys():
        for key in recorded:
            yield from differences(recorded[key], ours[key], f"{place}.{key}")
    elif recorded != ours:
        yield place, recorded, ours


def is_classes(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(one, str) and one.endswith("Error") for one in value)


def test_a_difference_would_be_seen() -> None:
    error = {"raises": ["ValueError"], "message": "need a rate"}

    assert list(differences(error, {"raises": ["ValueError", "KeyError"], "message": "need a rate: of 't'"}, "x")) == []
    assert list(differences(error, {"raises": ["KeyError"], "message": "need a rate"}, "x"))
    assert list(differences(error, {"raises": ["ValueError"], "message": "a rate"}, "x"))
    assert list(differences({"a": [1, 2]}, {"a": [1, 3]}, "x")) == [("x.a[1]", 2, 3)]
    assert list(differences([["TypeError"]], [["TypeError", "ValueError"]], "x")) == []
