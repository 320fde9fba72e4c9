"""Programs as users of MIDAS write them, and every name of MIDAS: present, different, or absent.

MIDAS runs with versions of JAX and TensorFlow that no longer install; what each program gives follows from its document
and its code, and stands in the last line of the program.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes import DataLoader, on_device
from beam_pipes.errors import LoaderError

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "migrate-from-midas.md"
PROGRAMS = sorted((HERE / "midas_programs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_a_user_gives_what_midas_gives(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    midas: Any = types.ModuleType("midas")
    midas.DataLoader = DataLoader
    monkeypatch.setitem(sys.modules, "midas", midas)
    monkeypatch.setitem(sys.modules, "midas.generic_dataloaders", on_device)
    text = program.read_text()
    names: dict[str, Any] = {"__name__": "__main__"}

    exec(compile(text, program.name, "exec"), names)

    assert names["answer"] == ast.literal_eval(text.rpartition("# gives ")[2].replace("\n#", ""))


def test_there_are_twenty_programs() -> None:
    assert len(PROGRAMS) >= 20


# Class → its public methods and arguments in MIDAS 0.1 (`midas/*.py` of its repository).
NAMES = {
    "DataLoader": [
        "python_iterable",
        "python_iterable_n_samples",
        "output_signature",
        "infer_k",
        "get_n_samples",
        "get_python_iterator_n_samples",
        "get_transformation_list",
        "to_jax",
        "to_numpy",
        "to_torch",
        "to_lambdaDataLoader",
    ],
    "LambdaDataLoader": [
        "input_dataset",
        "python_iterable",
        "skip_keys",
        "transform_f",
        "python_iterable_n_samples",
        "transformation_tracker",
    ],
    "JaxDataLoader": ["lambda_transformation", "prefetch_to_devices", "shard"],
    "TorchDataLoader": ["lambda_transformation"],
    "NumpyDataLoader": ["lambda_transformation"],
}


@pytest.mark.parametrize("owner", NAMES)
def test_every_name_of_midas_is_there_and_on_the_page(owner: str) -> None:
    ours = getattr(on_device, owner)
    here = {*dir(ours), *inspect.signature(ours.__init__).parameters}
    page = PAGE.read_text(encoding="utf-8")

    assert [name for name in NAMES[owner] if name not in here] == []
    assert [name for name in NAMES[owner] if f"`{owner}` " not in page or f"`{name}`" not in page] == []
    assert [name for name in on_device.ABSENT if hasattr(on_device, name) or f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([[1, 2]], "dict"),
        ({"a": 3}, "expected a dict of columns, arrays or lists of one length; got int for 'a'"),
        ({"a": [1, 2], "b": [1]}, r"expected columns of one length, got \{'a': 2, 'b': 1\}"),
        ({}, "at least one column, got none"),
    ],
)
def test_what_is_not_a_table_is_refused(table: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        DataLoader(table)


def test_an_array_without_a_name_is_refused() -> None:
    with pytest.raises(LoaderError, match=r"an array of shape \(3, 2\). Name it: DataLoader\(\{'x': array\}\)"):
        DataLoader(np.zeros((3, 2)))


def test_more_devices_than_there_are_and_what_is_not_a_function_are_refused() -> None:
    jdl = DataLoader([{"x": 1}, {"x": 2}]).batch(2).to_jax()

    with pytest.raises(LoaderError, match=r"shard\(4096\) needs between 1 and \d+ devices"):
        jdl.shard(4096)
    with pytest.raises(LoaderError, match="lambda_transformation expects a function of one element, got 3"):
        jdl.lambda_transformation(3)
