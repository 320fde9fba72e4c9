"""Memory of a worker while it writes a shard: bounded by bytes, whatever the size of a record."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from apache_beam import Row

from beam_pipes.beam import write_to_cache
from beam_pipes.beam.encode import Encoded
from beam_pipes.beam.lower import size_of
from benchmarks.campaigns.memory import limit_mib, peak_mib

# Runs the step that writes in a process of its own, with a sixteenth of its usual memory; prints by how much that grew.
_PROGRAM = """
import gc, sys, threading
from pathlib import Path
import numpy as np
from beam_pipes.beam import WriteToCache
from beam_pipes.beam import write_to_cache as steps
from beam_pipes.beam.encode import Encode
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.publication.terms import Terms

to, size, count, are_bad = sys.argv[1], *map(int, sys.argv[2:])
steps._SORTED_BYTES, steps._PART_BYTES = 8 << 20, 1 << 20
number = FeatureSpec("int64", maximum=-1 if are_bad else 1 << 40)
features = {"id": number, "x": FeatureSpec("uint8", shape=(None,))}
bad = {"on_error": "dead_letter", "max_bad": None, "allow_empty": True}
sink = WriteToCache(to, features=features, key="id", num_shards=1, **bad)
handle = DeclarationHandle(sink._declaration)
encode = Encode(handle, sink._key, 1)
encode.setup()

def records():
    for number in range(count):
        [(_, fields)] = encode.process({"id": number, "x": np.full(size, number % 251, np.uint8)})
        yield fields

adds = steps._AddDigests()
totals = adds.create_accumulator()
for fields in records():
    totals = adds.add_input(totals, (0, fields))
[planned] = steps._Plan(handle, to, 1, 1, Terms()).process(totals)

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

write = steps._WriteShard(handle)
write.setup()
gc.collect()
before, peak, ended = resident(), [0], threading.Event()

def watch():
    while not ended.wait(0.002):
        peak.append(resident())

thread = threading.Thread(target=watch)
thread.start()
list(write.process((0, records()), planned))
ended.set()
thread.join()
list(steps._Publish(None).process((None, [0]), planned))
opened = Cache.open(to)
assert opened.manifest.accounting["dead" if are_bad else "written"] == count
print((max(peak) - before) >> 20)
"""


@pytest.mark.parametrize(
    ("size", "count", "are_bad"),
    [
        pytest.param(1, 15_000, 0, id="bytes"),
        pytest.param(10_000, 5_000, 0, id="kilobytes"),
        pytest.param(4_000_000, 30, 0, id="megabytes"),
        pytest.param(4_000_000, 30, 1, id="dead letters of megabytes"),
        pytest.param(1_000_000, 50, 1, id="dead letters"),
    ],
)
def test_a_shard_is_written_in_bounded_memory(tmp_path: Path, size: int, count: int, are_bad: int) -> None:
    arguments = [sys.executable, "-c", _PROGRAM, tmp_path / "cache", size, count, are_bad]

    done = subprocess.run([str(each) for each in arguments], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 46, "MiB, where 8 are sorted in memory"


def test_batches_know_the_size_of_rows_and_of_what_they_hold() -> None:
    image = np.zeros(1_000_000, np.uint8)

    for element in (
        Row(image=image),
        {"image": image},
        [bytearray(image)],
        {bytes(image)},
        (Row(row=Row(image=image)),),
    ):
        assert size_of(element) >= 1_000_000


def test_large_records_that_are_sorted_through_files_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where keys are equal, so that contents decide, which stay in the files."""
    monkeypatch.setattr(write_to_cache, "_SORTED_BYTES", 300_000)
    draw = random.Random(0)
    records = [
        Encoded(bytes([draw.randrange(2)]), "train", payload, (number,), None)
        for number in range(60)
        for payload in [bytes([draw.randrange(2)]) * draw.choice([1, 70_000, 70_001]) + bytes([draw.randrange(3)])]
    ]

    found = list(write_to_cache._in_order(records))

    assert [record[:3] for record in found] == sorted(record[:3] for record in records)
    assert sorted(record.row[0] for record in found) == list(range(60))
    assert {record.row[0]: record.payload for record in found} == {record.row[0]: record.payload for record in records}


@pytest.mark.parametrize("path", ["grouped", "build"])
def test_a_record_costs_a_path_no_more_than_it_says(path: str, tmp_path: Path) -> None:
    """A small part of `python -m benchmarks.campaigns.memory`, which docs/scale.md reports."""
    assert peak_mib(path, 16_000_000, 8, directory=tmp_path) < limit_mib(16_000_000)
