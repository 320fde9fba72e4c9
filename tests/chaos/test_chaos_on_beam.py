"""Chaos with Beam's retries, and on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from beam_pipes.building.references import DeclarationHandle, load_declaration
from beam_pipes.testing import assert_robust
from beam_pipes.testing.sample import (
    BuildOrder,
    SampledHandle,
    build_sample,
    build_sample_on_bundles,
    snapshot_difference,
    take_sample,
)


def order(name: str, to: Path) -> BuildOrder:
    declaration = load_declaration(f"planted_bugs:{name}")
    sample = take_sample(declaration, max_records=24)
    handle = SampledHandle(DeclarationHandle(declaration, f"planted_bugs:{name}"), sample)
    return BuildOrder(handle=handle, to=str(to))


def test_a_clean_declaration_passes_with_a_bundle_of_each_stage_retried() -> None:
    verdict = assert_robust("planted_bugs:clean", beam=True)

    assert verdict.trials[-1] == "built on BundleBasedDirectRunner, a bundle of each stage retried"


def test_a_stage_that_changes_its_input_writes_other_bytes_when_a_bundle_is_retried(tmp_path: Path) -> None:
    """What the finding warns of is so: each stage fails once on that runner, and `!` is added twice."""
    build_sample(order("mutates_", tmp_path / "once"))
    build_sample_on_bundles(order("mutates_", tmp_path / "retried"))

    what, how = snapshot_difference(tmp_path / "once", tmp_path / "retried") or ("", "")
    assert (what.split("/")[-1], how) != ("", "")
    assert how == "other bytes"


def test_builds_that_lack_a_file_or_are_of_other_declarations_differ(tmp_path: Path) -> None:
    build_sample(order("clean", tmp_path / "one"))
    build_sample(order("clean", tmp_path / "same"))
    build_sample(order("Vectorised_", tmp_path / "other"))

    assert snapshot_difference(tmp_path / "one", tmp_path / "same") is None
    what, how = snapshot_difference(tmp_path / "one", tmp_path / "other") or ("", "")
    assert (what, bool(how)) == ("fingerprint", True)
    next((tmp_path / "same" / "snapshots").rglob("*.index")).unlink()
    assert (snapshot_difference(tmp_path / "one", tmp_path / "same") or ("", ""))[1] == "missing"


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    command = [sys.executable, "-m", "beam_pipes", "chaos", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_the_command_prints_the_verdict_and_exits_with_one_where_something_is_found() -> None:
    clean = chaos("planted_bugs:clean")
    assert (clean.returncode, clean.stderr) == (0, ""), clean.stdout
    assert clean.stdout.startswith(
        "declaration 'planted' is robust: 24 records of 3 source shards through ToWords → OnE"
    )

    planted = chaos("planted_bugs:Numbered_", "--json")
    assert planted.returncode == 1, planted.stderr
    assert [finding["kind"] for finding in json.loads(planted.stdout)["findings"]] == ["state"]
