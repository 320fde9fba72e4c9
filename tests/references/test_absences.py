"""Every name that a face's table says is absent: whoever asks for it, or imports it, reads what to do instead."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest
from beam_pipes.seqio.test_utils import bertwordpiece_vocab

from beam_pipes.graph import Pipeline, TensorList
from reference_pages.absences import BEGIN, END, FACES, ROOT

#: The owner of a name in a table → the module that answers for it.
MODULES = {
    "Magenta": "beam_pipes.typed",
    "MIDAS": "beam_pipes.on_device",
    "Parakeet": "beam_pipes.transforms.parakeet",
    "SeqIO": "beam_pipes.seqio",
}
#: Owners that are objects.
OBJECTS: dict[str, Any] = {
    "Pipeline": Pipeline(batch_size=1),
    "TensorList": TensorList(np.zeros(2)),
    "BertWordPieceVocabulary": bertwordpiece_vocab(),
}
NAMES = [(system, name) for system, face in FACES.items() for name in face.names]


def module_of(system: str, owner: str) -> Any:
    if system != "DALI":
        return importlib.import_module(MODULES[system])
    return importlib.import_module(f"beam_pipes.dali.{owner.replace('iterators.', 'plugin.')}".rstrip("."))


@pytest.mark.parametrize(("system", "name"), NAMES)
def test_whoever_asks_for_an_absent_name_reads_what_to_do(system: str, name: str) -> None:
    why = FACES[system].names[name]
    owner, _, own = name.rpartition(".")
    if owner in OBJECTS:
        with pytest.raises(AttributeError) as caught:
            getattr(OBJECTS[owner], own)
        assert str(caught.value).endswith(f"{system}'s is absent here: {why}.")
        return
    if owner in ("fn.experimental.inputs", "fn.segmentation"):  # families of which nothing is here
        owner, _, own = owner.rpartition(".")
    module = module_of(system, owner)
    with pytest.raises(AttributeError) as caught:
        getattr(module, own)
    with pytest.raises(ImportError) as imported:
        exec(f"from {module.__name__} import {own}", {"__name__": "a_program"})

    assert not hasattr(module, own)
    for told in (str(caught.value), str(imported.value)):
        assert f"absent here: {why}." in told and told.endswith(".") and "Did you mean" not in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from beam_pipes.dali.auto_aug.core import augmentation", "policies of your own are conditions"),
        ("from beam_pipes.dali.plugin.numba.fn.experimental import numba_function", "Numba has compiled"),
        ("import beam_pipes.dali.plugin.paddle as paddle", "NumPy's arrays, of `GraphIterator`, which `paddle.to_te"),
        ("from beam_pipes.dali.backend import TensorListCPU", "a batch here is NumPy's"),
        ("import beam_pipes.dali.experimental.eager as eager", "in debug mode"),
    ],
)
def test_whoever_imports_from_an_absent_module_reads_what_to_do(line: str, words: str) -> None:
    with pytest.raises(ImportError, match=f"DALI's is absent here: .*{words}"):
        exec(line, {"__name__": "a_program"})


def test_only_what_is_imported_is_an_import_error_and_other_names_are_pythons() -> None:
    with pytest.raises(ImportError, match=r"cannot import name 'Spliter' from 'beam_pipes.typed' \("):
        exec("from beam_pipes.typed import Spliter", {"__name__": "a_program"})
    assert getattr(importlib.import_module("beam_pipes.typed"), "Splitter", None) is None


@pytest.mark.parametrize("system", FACES)
def test_pages_say_it_in_three_lines(system: str) -> None:
    face = FACES[system]
    for name in (f"docs/migrate-from-{face.page}.md", f"beam_pipes/{face.room}/README.md"):
        told = (ROOT / name).read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
        assert len(told) == 3 and all(f"({why})" in told[0] for why in face.names.values())
        assert int(re.findall(r"(\d+) rows", told[2])[0]) > 9
