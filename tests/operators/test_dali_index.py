"""A cache's index as DALI's text: lines that lead to the records, without those that were taken down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import beam_pipes.graph.functions as tfrec
from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)
from beam_pipes.commands import app
from beam_pipes.export.export import dali_index_text, export_dali_index
from beam_pipes.format.framing import check_frame
from beam_pipes.graph import Pipeline
from beam_pipes.transforms import fn


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    spec = ExampleSpec({"tokens": FeatureSpec("uint16", shape=(None,))})
    path, snapshot, entries = tmp_path / "cache", "0" * 16, []
    directory = snapshot_directory(path, snapshot)
    Path(directory).mkdir(parents=True)
    for shard, sizes in enumerate(([3, 1, 2], [5], [])):
        with ShardWriter(directory, shard_file_name("c", "train", shard, 3), codec=ExampleCodec(spec)) as writer:
            for ordinal, size in enumerate(sizes):
                writer.write({"tokens": np.arange(size, dtype=np.uint16) + 10 * shard}, ordinal=ordinal)
            entries.append(writer.commit())
    train = SplitManifest.from_entries(entries, spec=spec)
    publish(path, Manifest(name="c", snapshot=snapshot, splits={"train": train}))
    return Cache.open(path)


def test_the_text_of_an_index() -> None:
    assert dali_index_text(np.array([0, 76]), np.array([60, 84])) == "0 76\n76 100\n"


def test_lines_lead_to_the_frames_of_records(cache: Cache, tmp_path: Path) -> None:
    made = export_dali_index(cache, tmp_path / "dali")

    assert [Path(index).name for _, index in made] == [Path(shard).name + ".idx" for shard, _ in made]
    payloads = []
    for shard, index in made:
        data = Path(shard).read_bytes()
        for line in Path(index).read_text().splitlines():
            offset, size = map(int, line.split())
            payloads.append(check_frame(shard, offset, data[offset : offset + size]))
    assert payloads == [cache["train"].record_bytes(i) for i in range(4)]


def test_the_command_writes_what_a_reader_takes(cache: Cache, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export-dali-index", str(tmp_path / "cache"), "--to", str(tmp_path / "dali")])
    assert done.exit_code == 0 and "2 index files" in done.output
    shards = [shard for shard, _ in export_dali_index(cache, tmp_path / "again")]
    pipe = Pipeline(batch_size=4)
    with pipe:
        found = fn.readers.tfrecord(
            path=shards,
            index_path=[str(tmp_path / "dali" / f"{Path(shard).name}.idx") for shard in shards],
            features={"tokens": tfrec.FixedLenFeature([], tfrec.string, "")},
        )
        pipe.set_outputs(fn.reinterpret(found["tokens"], dtype="uint16"))
    (tokens,) = pipe.run()
    assert [one.tolist() for one in tokens] == [[0, 1, 2], [0], [0, 1], [10, 11, 12, 13, 14]]
