"""The names people type, written out: adding or losing one is a decision."""

from __future__ import annotations

import importlib
import pkgutil
import types
from pathlib import Path

import pytest

import beam_pipes
import beam_pipes.building
import beam_pipes.identity.canonical
import beam_pipes.typed

TYPED = """
BadInputOrOutputException BadTopologyException Counter DAGPipeline DagInput DagOutput DuplicateNameException
FunctionStage Histogram Input InvalidDAGException InvalidDictionaryOutput InvalidStatisticsException
InvalidTransformOutputException
InvalidTypeSignatureException Key Maximum MelodyExtractor MergeStatisticsException MonophonicMelodyExtractor
NotConnectedException Output Pipeline PipelineKey Quantizer RandomPartition Service Statistic
TooManyCombinationsException TypeMismatchException UnequalZipException UnknownKeyException
count drop file_iterator load_once load_pipeline log_statistics_list make_sequence_example merge_statistics observe
run_pipeline_serial stage tf_record_iterator
"""
ROOT = """
Asset Cache DAGPipeline DataLoader Declaration FeatureSpec Input Loader Output Pipeline Service __version__ add_column
build count declare drop load_once observe stage with_columns write_cache
"""


def test_beam_pipes_typed_offers_exactly_these_names() -> None:
    offered = {
        name
        for name, value in vars(beam_pipes.typed).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert sorted(offered) == sorted(TYPED.split())


def test_beam_pipes_offers_exactly_these_names() -> None:
    assert sorted(dir(beam_pipes)) == sorted(beam_pipes.__all__) == sorted(ROOT.split())


def test_names_that_are_not_offered_are_answered_with_those_that_are() -> None:
    with pytest.raises(
        AttributeError, match="module 'beam_pipes' has no attribute 'Pipelin'; it offers __version__, A"
    ):
        beam_pipes.Pipelin  # noqa: B018
    assert beam_pipes.Pipeline is beam_pipes.typed.Pipeline


def test_what_the_pages_wrap_files_in_has_a_public_name() -> None:
    assert beam_pipes.Asset is beam_pipes.building.Asset is beam_pipes.identity.canonical.Asset
    pages = [page for page in (Path(__file__).parents[1] / "docs").rglob("*.md") if page.parent.name != "api"]
    assert not [page for page in pages if "identity.canonical import" in page.read_text(encoding="utf-8")]


PACKAGES = sorted(found.name for found in pkgutil.walk_packages(beam_pipes.__path__, "beam_pipes.") if found.ispkg)


@pytest.mark.parametrize("package", ["beam_pipes", *PACKAGES])
def test_every_name_that_a_package_offers_is_there(package: str) -> None:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("beam_pipes.building.care.takedown", "take_down"),
        ("beam_pipes.building.care.trace", "trace_record"),
        ("beam_pipes.recipes.texts", "open_tokenizer"),
    ],
)
def test_programs_find_names_at_earlier_places(module: str, name: str) -> None:
    assert callable(getattr(importlib.import_module(module), name))
