"""The table of operators, and what is made from it: functions, classes and their stubs."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from beam_pipes.errors import GraphError
from beam_pipes.graph.operator import Operator
from beam_pipes.transforms import fn, operators, ops
from beam_pipes.transforms.operators import ALIASES, OPERATORS, class_name, families, operator_class
from beam_pipes.transforms.operators.stubs import stubs


def test_the_table_is_sorted_and_every_class_is_there() -> None:
    assert list(OPERATORS) == sorted(OPERATORS)
    for name in OPERATORS:
        cls = operator_class(name)
        assert issubclass(cls, Operator) and cls.op_name == name and inspect.getdoc(cls)


def test_the_stubs_are_those_of_the_table() -> None:
    root = Path(operators.__file__).parents[1]
    for path, text in stubs().items():
        assert (root / path).read_text(encoding="utf-8") == text, (
            f"{path}: run python -m beam_pipes.transforms.operators.stubs"
        )


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_is_a_function_and_a_class_with_signature_and_documentation(name: str) -> None:
    family, _, last = name.rpartition(".")
    module, classes = (attrgetter(family)(fn), attrgetter(family)(ops)) if family else (fn, ops)
    cls = operator_class(name)
    function, made = getattr(module, last), getattr(classes, cls.__name__)

    assert function.__name__ == last and last in dir(module) and cls.__name__ in dir(classes)
    assert set(cls.arguments) <= set(inspect.signature(function).parameters)
    for text in (function.__doc__, made.__doc__):
        assert all(f"{argument}: " in text for argument in cls.arguments) and "Places:" in text
    assert all(argument.doc for argument in cls.arguments.values()), "every argument says what it does"


def test_older_names_of_classes_are_the_same_classes() -> None:
    assert ops.FileReader is ops.readers.File and ops.CoinFlip is ops.random.CoinFlip
    for alias, name in ALIASES.items():
        assert attrgetter(alias)(fn) is attrgetter(name)(fn)
        own = class_name(alias)
        older = attrgetter(alias.rpartition(".")[0])(ops) if "." in alias else ops
        assert getattr(older, own).operator is operator_class(name)


def test_names_that_are_not_there_are_answered_with_the_nearest() -> None:
    with pytest.raises(
        AttributeError, match="module 'beam_pipes.transforms.fn' has no attribute 'flp'. Did you mean 'flip'"
    ):
        fn.flp  # noqa: B018
    with pytest.raises(
        AttributeError, match="module 'beam_pipes.transforms.ops.readers' has no attribute 'Fille'. Did you mean 'File'"
    ):
        ops.readers.Fille  # noqa: B018
    with pytest.raises(GraphError, match="there is no operator 'readers.fil'. Did you mean 'readers.file'"):
        operator_class("readers.fil")


@pytest.mark.parametrize("room", ["fn", "ops"])
def test_each_family_is_a_module_that_every_form_of_import_finds(room: str) -> None:
    program = f"""
import importlib, importlib.util, operator, pickle, types
import beam_pipes.transforms.{room}.readers
from beam_pipes.transforms.{room} import random
from beam_pipes.transforms import {room}

assert {room}.readers is beam_pipes.transforms.{room}.readers
for family in {families()}:
    module = importlib.import_module(f"beam_pipes.transforms.{room}.{{family}}")
    assert isinstance(module, types.ModuleType) and module is operator.attrgetter(family)({room})
    assert importlib.util.find_spec(module.__name__).name == module.__name__
    for name in dir(module):
        offered = getattr(module, name)
        if isinstance(offered, types.ModuleType):
            continue  # a family within a family
        assert offered.__module__ == module.__name__ and pickle.loads(pickle.dumps(offered)) is offered
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("room", ["fn", "ops"])
def test_a_pickled_operator_is_loaded_by_a_process_that_imported_nothing(room: str) -> None:
    readers = importlib.import_module(f"beam_pipes.transforms.{room}.readers")
    pickled = pickle.dumps(readers.file if room == "fn" else readers.File)
    program = f"import pickle; print(pickle.loads({pickled!r}).__module__)"
    answered = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answered.stdout.strip() == f"beam_pipes.transforms.{room}.readers"


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (
            fn,
            "bbox_rotate",
            "one of DALI's operators that are absent here: boxes as NumPy arrays, in `python_function`",
        ),
        (ops, "BBoxRotate", "absent here: boxes as NumPy arrays"),
        (fn, "segmentation", "segmentation.random_mask_pixel, .* are absent here: masks as NumPy arrays"),
        (fn.readers, "mxnet", "the format of a discontinued framework: convert it to TFRecords"),
        (ops.readers, "MXNet", "the format of a discontinued framework: convert it to TFRecords"),
        (fn.experimental, "laplacian", "OpenCV has it: `python_function`"),
        (fn, "resizee", "Did you mean 'resize'"),
    ],
)
def test_a_missing_operator_is_answered_from_the_table(module: Any, name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words) as caught:
        getattr(module, name)
    assert "Did you mean" in words or "Did you mean" not in str(caught.value)
