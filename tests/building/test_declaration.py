"""Declarations: what is checked before anything is read, and the words of each message."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import types
from typing import Any

import cloudpickle
import pytest

from beam_pipes.building import Declaration, load_declaration
from beam_pipes.building.references import DeclarationHandle, reference_of, registered_by_value
from beam_pipes.cache import FeatureSpec
from beam_pipes.errors import BeamPipesError, DeclarationError, SpecError, TypeMismatchException
from beam_pipes.sources import Memory
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline


class Upper(Pipeline):
    def __init__(self) -> None:
        super().__init__(str, str, "Upper")

    def transform(self, text: str) -> list[str]:
        return [text.upper()]


class ToExample(Pipeline):
    def __init__(self, input_type: type = str) -> None:
        super().__init__(input_type, dict, "ToExample")

    def transform(self, text: str) -> list[dict[str, Any]]:
        return [{"text": text}]


TEXT = {"text": FeatureSpec("str")}


def declare(**options: Any) -> Declaration:
    defaults = {"name": "texts", "source": Memory(["a", "b"]), "pipeline": ToExample(), "features": TEXT}
    return Declaration(**{**defaults, **options})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        pytest.param(
            {"name": "a/b"},
            DeclarationError,
            "name is used in file names: only letters, digits, .*; got 'a/b'",
            id="name",
        ),
        pytest.param({"split": ""}, DeclarationError, "split is used in file names: .*; got ''", id="split"),
        pytest.param(
            {"on_error": "ignore"},
            DeclarationError,
            "on_error should be one of fail, drop, dead_letter, got 'ignore'",
            id="on_error",
        ),
        pytest.param(
            {"max_bad": 1.5},
            DeclarationError,
            r"max_bad should be a count \(int\), a fraction .*, 'tenth' or None, got 1.5",
            id="max_bad",
        ),
        pytest.param({"max_bad": -1}, DeclarationError, "max_bad should be .*got -1", id="negative_max_bad"),
        pytest.param(
            {"target_shard_bytes": 0},
            DeclarationError,
            "target_shard_bytes should be an integer of at least 1, got 0",
            id="target_shard_bytes",
        ),
        pytest.param(
            {"pipeline": ToExample(bytes)},
            TypeMismatchException,
            "the source Memory gives str, but 'ToExample' takes bytes. Use a source that gives it",
            id="input_type",
        ),
        pytest.param(
            {"pipeline": Upper(), "features": None},
            DeclarationError,
            "the output 'train' is str, which cannot be stored. End the pipeline in examples",
            id="output_type",
        ),
        pytest.param(
            {"features": {"test": TEXT}},
            DeclarationError,
            r"features are declared for \['test'\], but the outputs that hold examples are \['train'\]",
            id="features_by_split",
        ),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], error: type[BeamPipesError], words: str) -> None:
    with pytest.raises(error, match=words):
        declare(**options)


def test_features_without_examples_are_refused() -> None:
    class ToBytes(Pipeline):
        def __init__(self) -> None:
            super().__init__(str, bytes, "ToBytes")

        def transform(self, text: str) -> list[bytes]:
            return [text.encode()]

    assert declare(pipeline=ToBytes(), features=None).kinds["train"] == "bytes"
    with pytest.raises(DeclarationError, match="features are declared, but no output of the pipeline yields examples"):
        declare(pipeline=ToBytes())


def test_outputs_name_splits() -> None:
    stage = ToExample()
    declaration = declare(pipeline=DAGPipeline({stage: Input(str), Output("a"): stage, Output("b"): stage}))

    assert declaration.splits == ("a", "b")
    assert declaration.declared_specs["b"] == declaration.declared_specs["a"]
    assert declare(split="dev").splits == ("dev",)


def test_an_output_that_is_not_a_file_name_is_refused() -> None:
    stage = ToExample()
    with pytest.raises(DeclarationError, match="the output 'a b' names a split, which is used in file names"):
        declare(pipeline=DAGPipeline({stage: Input(str), Output("a b"): stage}))


class TestReferences:
    @pytest.fixture
    def module(self, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
        module = types.ModuleType("some_declarations")
        module.ready = declare()  # type: ignore[attr-defined]
        module.made = lambda: module.ready  # type: ignore[attr-defined]
        module.wrong = 7  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "some_declarations", module)
        return module

    def test_a_declaration_is_found_by_name_or_made_by_a_function(self, module: types.ModuleType) -> None:
        assert load_declaration("some_declarations:ready") is module.ready
        assert load_declaration("some_declarations:made") is module.ready
        assert reference_of(module.ready) is None  # that module is on no path: others could not import it
        assert reference_of(declare()) is None

    @pytest.mark.parametrize(
        ("reference", "words"),
        [
            ("some_declarations", "a declaration is named 'package.module:name', got 'some_declarations'"),
            ("some_declarations:redy", r"has no 'redy': it holds the declarations \['ready'\]. Did you mean 'ready'"),
            ("some_declarations:wrong", "should be a Declaration, or a function that returns one, got int"),
            ("..:x", "expected the absolute name of a module, such as package.module, got '..' of '..:x'"),
            (
                "jobs/poem.py:texts",
                "names a file, and a declaration is named by its module: jobs.poem:texts, in the dir",
            ),
            ("./poem.py", "'./poem.py' names a file, and a declaration is named by its module: poem:declaration"),
            ("not_a_module_at_all:x", "there is no module 'not_a_module_at_all' on the path"),
        ],
    )
    def test_a_wrong_reference_is_explained(self, module: types.ModuleType, reference: str, words: str) -> None:
        with pytest.raises(DeclarationError, match=words):
            load_declaration(reference)

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            pytest.param(
                "import no_such_dependency", "1: ModuleNotFoundError: No module named 'no_su", id="dependency"
            ),
            pytest.param("from no_such_dependency.x import y", "1: ModuleNotFoundError: No module named", id="package"),
            pytest.param("def f(:", "1: SyntaxError: invalid syntax. Fix it there", id="syntax"),
            pytest.param("\nint('x')", "2: ValueError: invalid literal for int", id="value"),
        ],
    )
    def test_a_module_that_fails_says_where(
        self, code: str, words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "fails_while_imported.py"
        path.write_text(f"{code}\n")
        monkeypatch.syspath_prepend(tmp_path)
        message = f"'fails_while_imported' of 'fails_while_imported:x' fails on import: {path}:{words}"

        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}") as caught:
            load_declaration("fails_while_imported:x")

        assert caught.value.__cause__ is not None

    def test_a_function_that_fails_says_where(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "makes_nothing.py"
        path.write_text("import os\n\ndef made():\n    return {}['no such key']\n")
        monkeypatch.syspath_prepend(tmp_path)
        message = f"'makes_nothing:made' fails while it creates the declaration: {path}:4: KeyError: 'no such key'. Fix"

        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}"):
            load_declaration("makes_nothing:made")

    def test_an_error_of_ours_inside_the_module_passes(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "declares_wrongly.py").write_text(
            "from beam_pipes.cache import FeatureSpec\nFeatureSpec('nothing')\n"
        )
        monkeypatch.syspath_prepend(tmp_path)

        with pytest.raises(SpecError):
            load_declaration("declares_wrongly:x")

    def test_what_cannot_be_pickled_is_named_with_its_stage(self) -> None:
        class Locked(ToExample):
            def __init__(self) -> None:
                super().__init__()
                self.lock = threading.Lock()

        message = (
            "declaration 'texts' cannot be sent to workers: stage 'ToExample': TypeError: cannot pickle '_thread.lock'"
        )
        with pytest.raises(DeclarationError, match=f"^{message}.* Create what cannot be pickled inside the stage"):
            DeclarationHandle(declare(pipeline=Locked())).require_portable()

    def test_builds_that_overlap_leave_each_others_modules_and_the_users_registered(self) -> None:
        def registered() -> set[str]:
            return {made.__name__, mine.__name__} & set(cloudpickle.list_registry_pickle_by_value())

        made, mine = types.ModuleType("made_in_a_notebook"), types.ModuleType("registered_by_the_user")
        sys.modules.update({made.__name__: made, mine.__name__: mine})
        try:
            cloudpickle.register_pickle_by_value(mine)
            with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
                first.enter_context(registered_by_value(cloudpickle))
                second.enter_context(registered_by_value(cloudpickle))
                first.close()
                assert registered() == {made.__name__, mine.__name__}
            assert registered() == {mine.__name__}
        finally:
            del sys.modules[made.__name__], sys.modules[mine.__name__]
            cloudpickle.unregister_pickle_by_value(mine)
