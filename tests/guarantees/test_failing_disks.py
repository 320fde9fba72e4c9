"""Whatever call of a disk fails, in whatever job: there is an error, or what is there is right; nothing else."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from failing_disk import JOBS, run_all
from own_mounts import can_mount, run_with_small_disk

from beam_pipes.cache import FeatureSpec, LocalStorage, RecordWriter, write_cache
from beam_pipes.errors import OutputError
from beam_pipes.export import export
from beam_pipes.loader import open_remote
from beam_pipes.storage.protocol import write_all


class Far(LocalStorage):
    """Files that cannot be mapped from where they are."""

    def local_path(self, path: str) -> None:
        return None


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("far") / "cache"
    values = ({"x": np.full(999, number + 1, np.float32)} for number in range(20))
    write_cache(path, {"train": values}, features={"x": FeatureSpec("float32", shape=(999,))}, num_shards=3)
    return path


def test_a_call_that_fails_or_takes_half_leaves_an_error_or_the_right_bytes(tmp_path: Path) -> None:
    """Some of the calls; `python tests/support/failing_disk.py` tries all."""
    found = run_all(tmp_path, list(JOBS), tries=2)

    assert {each["job"]: each["wrong"] for each in found} == {job: [] for job in JOBS}
    assert all(each["tries"] == 6 and each["calls"] > 4 for each in found)


def test_a_copy_that_was_damaged_before_is_noticed_and_copied_again(
    far: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> list[list[float]]:
        split = open_remote(str(far), "train", local_directory=tmp_path, max_bytes=1 << 20, storage=Far())
        return split.gather(list(range(20)))["x"].tolist()

    expected = read()
    for copy in tmp_path.rglob("*-of-00003*"):
        with open(copy, "r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(bytes(50))

    assert read() == expected
    assert caplog.text.count("the local copy is damaged, and is copied again.") == 6
    caplog.clear()
    assert (read(), caplog.text) == (expected, "")


READ = """
import shutil
from beam_pipes.errors import BeamPipesError
from beam_pipes.loader import open_remote
from test_failing_disks import Far
def opened():
    return open_remote({far!r}, "train", local_directory={disk!r}, max_bytes=1 << 30, storage=Far())
try:
    opened()
except BeamPipesError as error:
    print(error)
more_room()
split = opened()
with open({disk!r} + "/other", "wb") as other:
    other.write(bytes(shutil.disk_usage({disk!r}).free - 90_000 if {real} else 0))
print(sorted(opened().gather(list(range(20)))["x"][:, 0].tolist()))
with open({disk!r} + "/other", "ab") as other:
    other.write(bytes(max(0, shutil.disk_usage({disk!r}).free - 4096)) if {real} else b"")
shutil.rmtree(next(each for each in __import__("pathlib").Path({disk!r}).iterdir() if each.is_dir()))
print(len(split.gather([3])["x"]))
"""


def test_copies_keep_within_the_room_of_their_disk(far: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    code = READ.format(far=str(far), disk=str(tmp_path / "disk"), real=can_mount())

    done = run_with_small_disk(tmp_path / "disk", code, kib=24)

    output, *found = done.stdout.splitlines()
    assert found == [str([float(number) for number in range(1, 21)]), "1"], done.stderr
    if can_mount():
        assert output.startswith(
            "the largest shard of split 'train' has 28224 bytes, and the local directory is bounded"
        )
        assert "to 24576; free space on its disk to hold two windows of shards" in output
    else:
        assert "File too large" in output


def test_a_full_disk_is_reported_with_what_helps(far: Path, tmp_path: Path) -> None:
    split = open_remote(str(far), "train", local_directory=tmp_path, max_bytes=1 << 20, storage=Far())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(
            OutputError, match=r"the local copy '.*-of-00003.*' cannot be written: File too lar"
        ) as caught:
            split.gather([0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert " MiB are free. Free space there, or lower max_bytes, which is 1048576; or give a directory on" in str(
        caught.value
    )
    assert len(split.gather(list(range(20)))["x"]) == 20


def test_a_full_disk_ends_an_export_by_a_library_of_c(far: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OutputError, match="'.*exported' cannot be written: .*Choose a writable place"):
            export(str(far), tmp_path / "exported", format="arrayrecord")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


class Half:
    """A raw file that takes half of what it is given."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        taken = -(-len(data) // 2)
        self.data += data[:taken]
        return taken

    def close(self) -> None: ...


def test_everything_is_written_or_it_is_an_error(tmp_path: Path) -> None:
    half, whole = Half(), tmp_path / "whole"
    with RecordWriter(half) as writer, RecordWriter(whole) as other:
        for payload in (b"abc", b"", b"d" * 1000):
            writer.write(payload)
            other.write(payload)
    assert half.data == whole.read_bytes()

    half.write = lambda data: 0  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the file system took none of 3 bytes"):
        write_all(half, b"abc")
