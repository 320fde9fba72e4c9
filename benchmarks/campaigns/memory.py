"""Memory of every way that records go offline, for records of 1 byte to 64 MB.

    python -m benchmarks.campaigns.memory --json memory.json        1 GiB of each size of record
    python -m benchmarks.campaigns.memory --total-mib 192 --paths write lower

Each path handles records of one size in a process of its own, with at most `--total-mib` of them in all (small ones:
half a million). The figure is the peak of all its processes together, in MiB, Python and Beam included. It must stay
below `LIMIT_MIB` and `LIMIT_RECORDS` times a record, however many records there are.

Paths of Beam are its steps, fed one element at a time as a runner feeds them: what a runner itself keeps of a
collection (the in-process one keeps all of it) is not ours to bound.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes import declare, stage
from beam_pipes.building.declaration import Declaration
from beam_pipes.cache import Cache, FeatureSpec, RecordWriter
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.sources import TFRecords
from beam_pipes.transforms.analyzers import Vocabulary
from beam_pipes.typed import Pipeline
from benchmarks import harness

SIZES = (1, 1_000, 1_000_000, 64_000_000)
LIMIT_MIB, LIMIT_RECORDS = 640, 10
_MOST_RECORDS = 500_000


def record(number: int, size: int) -> bytes:
    """Bytes that differ between records, where there is room for it."""
    return (number.to_bytes(8, "little") * (size // 8 + 1))[:size]


def records(size: int, count: int) -> Iterator[bytes]:
    return (record(number, size) for number in range(count))


@stage
def stored(payload: bytes) -> dict[str, object]:
    return {"x": payload}


@stage
def refused(payload: bytes) -> dict[str, object]:
    raise ValueError("not this one")


class Head(Pipeline):
    """The first byte of a record, as a word."""

    input_type, output_type = bytes, list

    def transform(self, payload: bytes) -> list[list[str]]:
        return [[payload[:1].hex()]]


def _declared(place: Path, size: int, count: int, *, is_bad: bool = False, analysed: bool = False) -> Declaration:
    with RecordWriter(place / "input.tfrecord") as writer:
        for payload in records(size, count):
            writer.write(payload)
    return declare(
        "memory",
        TFRecords(str(place / "input.tfrecord")),
        [refused if is_bad else stored],
        features={"x": FeatureSpec("bytes")},
        analyzers=(Vocabulary("heads", of=Head()),) if analysed else (),
        target_shard_bytes=256 << 20,
        on_error="dead_letter" if is_bad else "fail",
        max_bad=None,
        allow_empty=is_bad,
    )


def local_build(place: Path, size: int, count: int) -> None:
    """A build by the local runner."""
    built = build(_declared(place, size, count), place / "cache", options=LocalOptions(workers=1))
    assert built.account.written == count


def dead_letters(place: Path, size: int, count: int) -> None:
    """A build whose records all fail."""
    built = build(_declared(place, size, count, is_bad=True), place / "cache", options=LocalOptions(workers=1))
    assert built.account.dead == count


def analysis(place: Path, size: int, count: int) -> None:
    """A build with an analyzer over all records."""
    built = build(_declared(place, size, count, analysed=True), place / "cache", options=LocalOptions(workers=1))
    assert built.account.written == count


def write(place: Path, size: int, count: int, *, is_bad: bool = False) -> None:
    """The steps of `WriteToCache`, all records in one shard."""
    from beam_pipes.beam import WriteToCache
    from beam_pipes.beam import write_to_cache as steps
    from beam_pipes.beam.encode import Encode
    from beam_pipes.building.references import DeclarationHandle
    from beam_pipes.publication.terms import Terms

    number = FeatureSpec("int64", maximum=-1 if is_bad else None)
    features = {"x": FeatureSpec("uint8", shape=(None,)), "n": number}
    sink = WriteToCache(
        str(place / "cache"),
        features=features,
        key="n",
        num_shards=1,
        on_error="dead_letter",
        max_bad=None,
        allow_empty=True,
    )
    handle = DeclarationHandle(sink._declaration)
    encode = Encode(handle, sink._key, 1)
    encode.setup()

    def encoded() -> Iterator[object]:
        for index in range(count):
            value = {"n": (index * 7919) % count, "x": np.frombuffer(record(index, size), np.uint8)}
            [(_, fields)] = encode.process(value)
            yield fields

    adds = steps._AddDigests()
    totals = adds.create_accumulator()
    for fields in encoded():
        totals = adds.add_input(totals, (0, fields))  # type: ignore[arg-type]
    [planned] = steps._Plan(handle, str(place / "cache"), 1, 1, Terms()).process(totals)
    step = steps._WriteShard(handle)
    step.setup()
    assert list(step.process((0, encoded()), planned)) == [0]  # type: ignore[arg-type]
    list(steps._Publish(None).process((None, [0]), planned))
    assert Cache.open(place / "cache").manifest.accounting["dead" if is_bad else "written"] == count


def letters(place: Path, size: int, count: int) -> None:
    """The same, of elements that cannot be stored."""
    write(place, size, count, is_bad=True)


class Values:
    """The values of a key as a runner gives them: read again for each iteration, and never all there."""

    def __init__(self, size: int, count: int) -> None:
        self._size, self._count = size, count

    def __iter__(self) -> Iterator[bytes]:
        return records(self._size, self._count)


@stage
def total(group: tuple[int, Iterable[bytes]]) -> int:
    return sum(len(value) for value in group[1])


@stage
def length(payload: bytes) -> int:
    return len(payload)


def grouped(place: Path, size: int, count: int) -> None:
    """A stage behind `GroupByKey`, all values under one key: what `lower` and lists with PTransforms run."""
    assert list(_lowered(total, [(0, Values(size, count))])) == [size * count]


def lowered(place: Path, size: int, count: int) -> None:
    """The batches of `lower`."""
    assert sum(_lowered(length, records(size, count))) == size * count


def _lowered(of: Pipeline, elements: Iterable[object]) -> Iterator[int]:
    from apache_beam.transforms.window import GlobalWindows

    from beam_pipes.beam import lower

    transform = lower(of)
    step = transform._step(range(1)).fn
    step.setup()
    step.start_bundle()
    for element in elements:
        given = step.process(element, GlobalWindows.windowed_value(element))
        yield from map(_plain, given)
    yield from map(_plain, step.finish_bundle())


def _plain(given: Any) -> int:
    return int(getattr(given, "value", given))


PATHS: dict[str, Callable[[Path, int, int], None]] = {
    "build": local_build,
    "dead": dead_letters,
    "analysis": analysis,
    "write": write,
    "letters": letters,
    "grouped": grouped,
    "lower": lowered,
}


def limit_mib(size: int) -> float:
    """What a worker may take in all, for records of a size."""
    return LIMIT_MIB + LIMIT_RECORDS * size / 2**20


def peak_mib(path: str, size: int, count: int, *, directory: Path | None = None) -> float:
    """The peak of a path in a process of its own."""
    place = tempfile.mkdtemp(prefix="memory-", dir=directory)
    try:
        arguments = ["-m", "benchmarks.campaigns.memory", "one", path, str(size), str(count), place]
        measured = harness.run_measured(arguments, env={"PYTHONPATH": ":".join(sys.path)})
        assert json.loads(measured.output) == "done"
        return measured.peak_rss_bytes / 2**20
    finally:
        shutil.rmtree(place)


def main() -> None:
    arguments = harness.parser(__doc__)
    arguments.add_argument("--paths", nargs="+", default=list(PATHS), choices=list(PATHS))
    arguments.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="bytes of a record")
    arguments.add_argument("--total-mib", type=int, default=1024, help="of all records of a size [1024]")
    options = arguments.parse_args()
    results: dict[str, float] = {}
    for path in options.paths:
        for size in options.sizes:
            count = min(_MOST_RECORDS, max(2, (options.total_mib << 20) // size))
            peak = peak_mib(path, size, count)
            results[f"{path}_{size}_bytes_peak_mib"] = round(peak)
            print(f"{path}: {count:,} records of {size:,} bytes: {peak:.0f} MiB", file=sys.stderr)
    harness.report(results, options.json)
    over = [name for name, peak in results.items() if peak > limit_mib(int(name.split("_")[1]))]
    if over:
        sys.exit(f"above the limit: {', '.join(over)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        PATHS[sys.argv[2]](Path(sys.argv[5]), int(sys.argv[3]), int(sys.argv[4]))
        print(json.dumps("done"))
    else:
        main()
