"""Fuzzing: the corpus and its mutations always, coverage-guided search for a bounded time.

`BEAM_PIPES_FUZZ_SECS=600 pytest tests/fuzz` searches longer. What it finds belongs into `corpus/<target>/`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
CORPUS = {name: sorted(path.read_bytes() for path in (HERE / "corpus" / name).iterdir()) for name in targets.TARGETS}

# One process each: importing under instrumentation takes longer than a thousand inputs.
GROUPS = {
    "of_the_cache": ["manifest", "cache", "index", "lineage", "takedown"],
    "of_records": ["framing", "codec", "gather", "dead_letters", "completion", "sidecars"],
    "of_loaders": ["loader_state", "packing_plan"],
    "of_input": ["text", "json_lines", "csv", "tfrecords", "compressed", "parquet"],
}
SEARCH_SECS = int(os.environ.get("BEAM_PIPES_FUZZ_SECS", "8"))
SEARCH_RUNS = int(os.environ.get("BEAM_PIPES_FUZZ_RUNS", "20000"))

# What parsers stumble over: lengths beyond any file, deep nesting, names that lead elsewhere, numbers that are none.
TOKENS = [
    b"\xff" * 8,
    (1 << 63).to_bytes(8, "little"),
    b"\x00" * 8,
    b"9" * 30,
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"[" * 2000,
    b'"../../x"',
    b"/etc/passwd",
    b"\xed\xa0\x80",
    b'{"":{}}',
    b"true",
]


def test_every_target_has_seeds_and_a_group() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(targets.TARGETS)
    assert {name for name, inputs in CORPUS.items() if inputs} == set(targets.TARGETS)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_nothing_in_the_corpus_raises_what_is_not_ours(name: str) -> None:
    for data in CORPUS[name]:
        targets.run(name, data)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_well_formed_inputs_are_accepted(name: str) -> None:
    """A target that turned its seeds away would find nothing."""
    targets.TARGETS[name](targets.seeds()[name][0])


@pytest.mark.parametrize("name", targets.TARGETS)
@given(data=st.data())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_mutations_of_the_corpus_raise_nothing_but_ours(name: str, data: st.DataObject) -> None:
    made = bytearray(data.draw(st.sampled_from(CORPUS[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(made)))
        end = min(len(made), at + data.draw(st.sampled_from([0, 0, 1, 2, 8, 40])))
        made[at:end] = data.draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=3)))
    targets.run(name, bytes(made))


@pytest.mark.parametrize("group", GROUPS)
def test_a_search_guided_by_coverage_finds_nothing(group: str, tmp_path: Path) -> None:
    """The first byte of an input chooses the target of the group."""
    names, corpus = GROUPS[group], tmp_path / "corpus"
    corpus.mkdir()
    for number, name in enumerate(names):
        for each, data in enumerate(CORPUS[name]):
            (corpus / f"{name}-{each}").write_bytes(bytes([number]) + data)
    command = [sys.executable, str(HERE / "run_target.py"), ",".join(names), str(corpus)]
    # The same inputs every time, as long as neither the target nor the corpus changes.
    repeatable = ["-seed=1", f"-runs={SEARCH_RUNS}"]
    limits = [
        *repeatable,
        f"-max_total_time={SEARCH_SECS}",
        "-max_len=8192",
        "-timeout=30",
        # The kernel hands the peak memory of this process, with all its frameworks, to the one that it starts, and
        # libFuzzer takes that for its own. run_target.py has a limit of its own.
        "-rss_limit_mb=0",
        f"-artifact_prefix={tmp_path}/",
    ]

    with tempfile.TemporaryDirectory(dir=targets.scratch()) as scratch:
        done = subprocess.run(
            [*command, *limits],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=250 + SEARCH_SECS,
            env={**os.environ, "BEAM_PIPES_FUZZ_SCRATCH": scratch, "PYTHONHASHSEED": "0"},
        )

    found = [path.read_bytes()[:300] for path in tmp_path.iterdir() if path.is_file()]
    assert (done.returncode, found) == (0, []), done.stderr[-5000:] + done.stdout[-2000:]
    assert "DONE" in done.stderr or "Done" in done.stderr
