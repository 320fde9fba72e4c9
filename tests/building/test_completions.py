"""Completions: what is damaged counts as not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from built_files import built_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipes.building.completion import Completion, read_completion
from beam_pipes.runners import LocalOptions, build
from beam_pipes.storage.local import storage_for

ONE = LocalOptions(workers=1)


@pytest.fixture
def completion(text_input: Path, tmp_path: Path) -> Path:
    result = build("sample_declarations:words", tmp_path / "cache", options=ONE)
    return tmp_path / "cache" / "snapshots" / result.snapshot / "completions" / f"00000-of-{result.num_shards:05d}.json"


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_to_a_completion_means_that_its_shard_is_not_done(
    completion: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = completion.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                whole[:position],
                whole[:position] + bytes([whole[position] ^ 1 << data.draw(st.integers(0, 7))]) + whole[position + 1 :],
                whole[:position] + b" " + whole[position:],
                whole + b"\n",
            ]
        )
    )
    file = tmp_path / "damaged.json"
    file.write_bytes(damaged)

    assert read_completion(storage_for(file), str(file)) is None


def test_a_completion_is_read_as_it_was_written(completion: Path) -> None:
    data = completion.read_bytes()

    assert Completion.from_bytes(data).to_bytes() == data
    assert read_completion(storage_for(completion), str(completion)) == Completion.from_bytes(data)


def test_a_build_repairs_a_damaged_completion(completion: Path, tmp_path: Path) -> None:
    expected = built_files(tmp_path / "cache")
    completion.write_bytes(completion.read_bytes().replace(b'"read":', b'"reAd":'))

    result = build("sample_declarations:words", tmp_path / "cache", options=ONE)

    assert result.reused_shards == result.num_shards - 1
    assert built_files(tmp_path / "cache") == expected
