"""Nothing that is read from a cache runs, leads out of it, asks for memory on its own word, or for the network."""

from __future__ import annotations

import ast
import json
import os
import re
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from origin_caches import build_origins

from beam_pipes.cache import Cache, Manifest, read_records
from beam_pipes.errors import BeamPipesError, CacheError, CorruptManifestError, CorruptRecordError, SourceError
from beam_pipes.format.framing import masked_crc32c
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TFRecords

ROOT = Path(__file__).parents[2]

# What runs code that it is given, or may.
RUNS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
CALLS = {"eval", "exec"}
# Where pickles are read, and why they are not somebody else's.
ALLOWED = {
    "beam_pipes/sources/helpers.py": "between a process and the helpers that it has started",
    "beam_pipes/errors.py": "asks whether a fact can be pickled, on its way to the process that reports it",
    "beam_pipes/building/references.py": "in a worker, the declaration that its own launcher has sent",
    "beam_pipes/building/checks.py": "asks whether a declaration can be pickled, and reads none",
    "beam_pipes/beam/lower.py": "elements between the workers of one job, which Beam's own coder pickles too",
    "beam_pipes/beam/write_to_cache.py": "a file without a name, open to this process alone",
    "beam_pipes/building/workers/supervision.py": "a file without a name, open to a worker and its parent alone",
    "beam_pipes/sources/tfds_in_place.py": "np.load, which refuses pickles, of an index that this library has made",
    "beam_pipes/building/workers/process.py": "a copy of an error of this process",
    "beam_pipes/typed/services.py": "an unpickler that finds values and the stage's own classes",
}
ROOMS = ("cache", "engine", "sources", "loader", "building", "beam", "typed")


def dangers(source: str) -> Iterator[str]:
    """What a module imports or calls that may run what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in RUNS_CODE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RUNS_CODE:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if isinstance(node.func, ast.Name) and name in CALLS:
                yield name
            if any(word.arg == "allow_pickle" and getattr(word.value, "value", True) for word in node.keywords):
                yield "allow_pickle"
            owner = getattr(getattr(node.func, "value", None), "id", "")
            if owner in ("np", "numpy") and name in ("load", "fromfile", "genfromtxt"):
                yield f"np.{name}"


def test_no_reader_of_a_cache_unpickles_or_evaluates() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sorted(set(dangers(path.read_text(encoding="utf-8"))))
        for room in (*ROOMS, "errors.py")
        for path in [ROOT / "beam_pipes" / room, *(ROOT / "beam_pipes" / room).rglob("*.py")]
        if path.suffix == ".py"
    }
    assert len(found) > 100
    assert {path: names for path, names in found.items() if names and path not in ALLOWED} == {}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle", "pickle"),
        ("from marshal import loads", "marshal"),
        ("eval('1')", "eval"),
        ("np.load(path)", "np.load"),
        ("load(path, allow_pickle=True)", "allow_pickle"),
    ],
)
def test_a_danger_would_be_seen(source: str, name: str) -> None:
    assert list(dangers(source)) == [name]


@pytest.mark.parametrize("file", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a\\b", "a\0b", "", ".."])
@pytest.mark.parametrize("field", ["assets", "dead_letters"])
def test_no_file_of_a_manifest_leads_out_of_its_snapshot(field: str, file: str) -> None:
    made = json.loads(Manifest(name="m", snapshot="0" * 16, splits={}).to_bytes())
    made[field] = [{"file": file, "bytes": 1, "crc32c": 2, "records": None}]

    with pytest.raises(CorruptManifestError, match=rf"{field}\[0\].file should be a relative path within the snapshot"):
        Manifest.from_bytes(json.dumps(made).encode())


@pytest.mark.parametrize(("field", "value"), [("name", "../m"), ("name", "a/b"), ("snapshot", "../../../../../x/")])
def test_no_name_of_a_manifest_leads_out_of_its_snapshot(field: str, value: str) -> None:
    made = json.loads(Manifest(name="m", snapshot="0" * 16, splits={}).to_bytes())
    with pytest.raises(CorruptManifestError, match=f"{field} should be"):
        Manifest.from_bytes(json.dumps({**made, field: value}).encode())
    with pytest.raises(CorruptManifestError, match="splits should be an object of names"):
        Manifest.from_bytes(json.dumps({**made, "splits": {"../up": {}}}).encode())


class TestLengthsThatNoFileHas:
    """A length of 2^63, with a checksum that fits, costs an error and no memory."""

    @pytest.fixture
    def framed(self, tmp_path: Path) -> Path:
        length = struct.pack("<Q", 1 << 63)
        path = tmp_path / "in" / "x.tfrecord"
        path.parent.mkdir()
        path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"x" * 100)
        return path

    def test_of_a_record_of_a_cache(self, framed: Path) -> None:
        message = "is cut short: expected 9223372036854775824 bytes, found 112"
        _costs_nothing(lambda: list(read_records(framed)), CorruptRecordError, message)

    def test_of_a_record_of_a_source(self, framed: Path) -> None:
        source = TFRecords(str(framed.parent))
        (shard,) = source.plan(target_shard_bytes=1 << 20).shards
        message = "has a record of 9223372036854775808 bytes at byte 0, expected at most"
        _costs_nothing(lambda: list(source.read(shard)), SourceError, message)

    def test_of_a_shard_and_its_records_in_a_manifest(self, tmp_path: Path) -> None:
        cache = build_origins(tmp_path)
        made = json.loads(cache.manifest.to_bytes())
        split = made["splits"]["train"]
        for field in ("records", "bytes"):
            split["shards"][field][0] = (1 << 61) - 1
            split[field] = sum(split["shards"][field])
        changed = Manifest.from_bytes(json.dumps(made).encode())

        def read() -> object:
            return Cache(cache.path, cache.directory, changed)["train"][0]

        _costs_nothing(read, BeamPipesError, "expected")


def _costs_nothing(read: Callable[[], object], error: type[Exception], message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message):
            read()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# Loaded by every Python process that finds it on its path, workers included.
WATCH = """
import os, sys

def watch(event, args):
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = args[1] if event in ("socket.connect", "socket.bind", "socket.sendto") else args[0]
        if isinstance(address, (str, bytes)) and event in ("socket.connect", "socket.bind", "socket.sendto"):
            return  # a local socket
        with open(os.environ["BEAM_PIPES_WATCHED"], "a") as file:
            file.write(f"{event} {address!r}\\n")
        raise PermissionError(f"the network was asked for: {event} {address!r}")

sys.addaudithook(watch)
"""

BUILD_AND_LOAD = """
import sample_declarations
from beam_pipes.cache import Cache
from beam_pipes.loader import Loader, pack
from beam_pipes.building.takedown import take_down
from beam_pipes.runners import LocalOptions, build

if __name__ == "__main__":
    result = build("sample_declarations:words_with_dead_letters", "cache", options=LocalOptions(workers=2))
    cache = Cache.open("cache", verify=True)
    batches = list(Loader(cache["words"], batch_size=8, workers=2))
    list(Loader(pack(cache["train"], sequence_length=64, feature="lengths"), batch_size=2))
    take_down("cache", cache["train"].record_ids([0]))
    print(result.account.read, len(batches))
"""


def test_building_and_loading_ask_for_no_network(text_input: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    (tmp_path / "job.py").write_text(BUILD_AND_LOAD)
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": path, "BEAM_PIPES_WATCHED": str(tmp_path / "watched")}

    done = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    connect = "import socket; socket.create_connection(('127.0.0.1', 9))"
    noticed = subprocess.run([sys.executable, "-c", connect], env=environment, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) == 496
    assert "the network was asked for" in noticed.stderr  # the watch works
    assert (tmp_path / "watched").read_text().count("\n") == 1


FILES = {
    "manifest": "manifest.json",
    "index": "snapshots/*/*.index",
    "shard": "snapshots/*/*.tfrecord-*[0-9]",
    "lineage": "snapshots/*/lineage/*",
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("kind", "words"), [("fifo", "found a FIFO"), ("device", "found a device"), ("loop", "links")])
def test_what_is_not_a_file_is_reported_at_once(
    tmp_path: Path, text_input: Path, file: str, kind: str, words: str
) -> None:
    """A FIFO would be waited for, and /dev/zero read until memory ends."""
    build("sample_declarations:words", tmp_path / "cache", options=LocalOptions(workers=1))
    found = sorted((tmp_path / "cache").glob(FILES[file]))[0]
    found.unlink()
    if kind == "fifo":
        os.mkfifo(found)
    else:
        found.symlink_to("/dev/zero" if kind == "device" else found)

    with pytest.raises(CacheError) as caught:
        report = Cache.open(tmp_path / "cache").verify()
        raise CacheError("; ".join(problem.message for problem in report.problems))
    assert words in str(caught.value)


def test_a_number_of_thousands_of_digits_is_a_damaged_manifest(tmp_path: Path, text_input: Path) -> None:
    build("sample_declarations:words", tmp_path / "cache", options=LocalOptions(workers=1))
    manifest = tmp_path / "cache" / "manifest.json"
    manifest.write_text(re.sub(r'("records":\[)\d+', r"\g<1>" + "9" * 5000, manifest.read_text(), count=1))

    with pytest.raises(CorruptManifestError, match="The manifest was changed or damaged"):
        Cache.open(tmp_path / "cache")
