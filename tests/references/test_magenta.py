"""Magenta's names and programs: what is there, what is different, what is absent, and what programs of users give.

`magenta_names.json` and `magenta_answers.json` are what `magenta_reference.py` has found in Magenta 2.1.4 itself, under
the names of its document.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import beam_pipes.typed as typed
from beam_pipes.typed.random_partition import ABSENT

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import magenta_reference  # noqa: E402  # as it stands where Magenta is

NAMES: dict[str, dict[str, Any]] = json.loads((HERE / "magenta_names.json").read_text())
ANSWERS: dict[str, Any] = json.loads((HERE / "magenta_answers.json").read_text())
PROGRAMS = magenta_reference.programs()
PAGE = HERE.parent.parent / "docs" / "migrate-from-magenta.md"

# Name → how it is different, and why.
DIFFERENT = {
    "DAGPipeline": "`get_stats` gives statistics merged by name; independent pipelines run in the order of the dict; "
    "`join='zip'` too",
    "Histogram": "NaN is counted apart; copies are deep; an empty one prints no line end. `buckets` and `counters` are "
    "Magenta's: lower bounds, -inf first",
    "Input": "`DagInput` in Magenta 2, which is a name here too",
    "Key": "`PipelineKey` in Magenta 2, which is a name here too; a wrong key is an `UnknownKeyException` that "
    "lists the keys",
    "MelodyExtractor": "instruments in the order of their numbers, not of a set; `MonophonicMelodyExtractor` in the "
    "document",
    "Output": "`DagOutput` in Magenta 2, which is a name here too",
    "Pipeline": "`output_type_as_dict` of a single type names that type; there it is `list`, which is why "
    "`run_pipeline_serial` and `load_pipeline` fail on it",
    "RandomPartition": "draws by seed and content of the record, `key=`; all probabilities may be given",
    "file_iterator": "files in the order of their names",
    "load_pipeline": "a single output type gives a list; the statistics come along",
    "make_sequence_example": "a message of the same bytes that needs no TensorFlow; it passes where "
    "`tf.train.SequenceExample` is declared, and equals one of the same content",
    "merge_statistics": "its arguments stay as they are",
    "run_pipeline_serial": "a single output type is a file of the pipeline's name; files appear when all is written; "
    "the statistics are returned",
}
# Program, and place in its answer → what ours is instead.
OTHER_ANSWERS: dict[tuple[str, int], Any] = {
    ("split_words", 3): True,  # the type itself, not `list`
    ("merged", 0): ["a: 5", "b: 2", "h:"],  # no line end behind an empty histogram
}


def table() -> list[str]:
    """The table that the page of the migration ends with."""
    same = [f"`{name}`" for name in sorted(NAMES) if name not in DIFFERENT and name not in ABSENT]
    return [
        "| name | here | how, and why |",
        "| --- | --- | --- |",
        f"| {', '.join(same)} | present | the same arguments and members |",
        *(f"| `{name}` | different | {DIFFERENT[name]} |" for name in sorted(DIFFERENT)),
        *(f"| `{name}` | absent | {ABSENT[name]} |" for name in sorted(ABSENT)),
    ]


def test_the_page_ends_with_the_table_of_every_name() -> None:
    assert PAGE.read_text().rstrip().splitlines()[-len(table()) :] == table()


def test_the_table_names_nothing_else() -> None:
    assert not (DIFFERENT.keys() | ABSENT.keys()) - NAMES.keys() and not DIFFERENT.keys() & ABSENT.keys()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_names_arguments_and_members_are_those_of_magenta(name: str) -> None:
    recorded = NAMES[name]
    if name in ABSENT:
        assert not hasattr(typed, name)
        return
    value = getattr(typed, name)

    assert inspect.isclass(value) == (recorded["kind"] == "class")
    wanted = recorded.get("arguments", [])
    parameters = inspect.signature(value).parameters if wanted else {}
    assert list(parameters)[: len(wanted)] == wanted
    assert all(
        one.kind is one.KEYWORD_ONLY or one.default is not one.empty for one in list(parameters.values())[len(wanted) :]
    )
    declared = {member for cls in getattr(value, "__mro__", ()) for member in vars(cls).get("__annotations__", ())}
    assert set(recorded.get("members", [])) <= set(dir(value)) | declared


def test_every_program_has_a_recorded_answer() -> None:
    assert sorted(PROGRAMS) == sorted(ANSWERS) and len(PROGRAMS) >= 18


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_give_what_they_give_with_magenta(name: str) -> None:
    expected = ANSWERS[name]
    for (program, place), ours in OTHER_ANSWERS.items():
        if program == name:
            assert expected[place] != ours
            expected = [*expected[:place], ours, *expected[place + 1 :]]

    assert magenta_reference.answer(PROGRAMS[name], typed) == expected
