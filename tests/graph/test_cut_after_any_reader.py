"""A cut after every reader: values, shapes, layouts, labels, names, epochs, shards and padding are those without it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_file_cases import write_files
from graph_outputs import batches
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_pipes.graph.functions as tfrec
from beam_pipes.errors import GraphError, SourceError
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.messages import Example
from beam_pipes.graph import Pipeline, cache, types
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.transforms import fn

ONE = LocalOptions(workers=1)
FEATURES = {"number": tfrec.FixedLenFeature([1], tfrec.int64, -1), "name": tfrec.FixedLenFeature([], tfrec.string, "")}

#: Name → the reader over the files below a root, with more outputs than by default where it has some.
READERS: Mapping[str, Callable[..., Any]] = {
    "file": lambda root, **order: fn.readers.file(file_root=f"{root}/classes", **order),
    "file of a list": lambda root, **order: fn.readers.file(file_list=f"{root}/classes.txt", **order),
    "file of paths": lambda root, **order: fn.readers.file(
        files=["walk/1.ppm", "run/0.ppm", "run/6.ppm"], file_root=f"{root}/streams", **order
    ),
    "numpy": lambda root, **order: fn.readers.numpy(file_root=f"{root}/tables", **order),
    "numpy of paths": lambda root, **order: fn.readers.numpy(files=[f"{root}/tables/{n}.npy" for n in (2, 0)], **order),
    "tfrecord": lambda root, **order: fn.readers.tfrecord(
        path=[f"{root}/{n}.tfrecord" for n in (0, 1)], features=FEATURES, **order
    ),
    "tfrecord in another order": lambda root, **order: fn.readers.tfrecord(
        path=[f"{root}/{n}.tfrecord" for n in (1, 0)], features=FEATURES, **order
    ),
    "webdataset": lambda root, **order: fn.readers.webdataset(
        paths=f"{root}/a.tar", ext=["jpg;png", "cls"], dtypes=[types.UINT8, types.INT8], **order
    ),
    "coco": lambda root, **order: fn.readers.coco(
        file_root=str(root), annotations_file=f"{root}/boxes.json", polygon_masks=True, image_ids=True, **order
    ),
    "coco with masks": lambda root, **order: fn.readers.coco(
        file_root=str(root), annotations_file=f"{root}/masks.json", pixelwise_masks=True, ltrb=True, **order
    ),
    "nemo_asr": lambda root, **order: fn.readers.nemo_asr(
        manifest_filepaths=f"{root}/speech.json", read_idxs=True, sample_rate=12000, **order
    ),
    "sequence": lambda root, **order: fn.readers.sequence(
        file_root=f"{root}/streams", sequence_length=2, step=1, **order
    ),
    "video": lambda root, **order: fn.readers.video(
        file_root=f"{root}/clips",
        sequence_length=6,
        pad_mode="edge",
        enable_frame_num="sequence",
        enable_timestamps=True,
        **order,
    ),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files for every reader."""
    made = tmp_path_factory.mktemp("readers")
    write_files(made)
    for place in ("classes/cat", "classes/dog", "tables"):
        (made / place).mkdir(parents=True)
    for number in range(5):
        (made / "classes" / ("cat" if number % 2 else "dog") / f"{number}.jpg").write_bytes(bytes(range(number + 1)))
        np.save(made / "tables" / f"{number}.npy", np.arange(2 * number, dtype=np.int16).reshape(2, number))
    (made / "classes.txt").write_text("classes/dog/4.jpg 9\nclasses/cat/1.jpg 2\nclasses/dog/0.jpg 9\n")
    for file in range(2):
        with RecordWriter(str(made / f"{file}.tfrecord")) as writer:
            for number in range(3 + file):
                example = Example()
                example.features.feature["number"].int64_list.value.append(10 * file + number)
                example.features.feature["name"].bytes_list.value.append(b"n" * number)
                writer.write(example.SerializeToString())
    return made


def define(
    root: Path, reader: str, *, batch_size: int = 3, order: Mapping[str, Any] | None = None, **options: Any
) -> Pipeline:
    """All that a reader gives, some of it through an operator before the cut, and a draw and a name after it."""
    pipe = Pipeline(batch_size=batch_size, seed=11, **options)
    with pipe:
        made = READERS[reader](root, **(order or {}))
        nodes = list(made.values()) if isinstance(made, dict) else list(made) if isinstance(made, list) else [made]
        first = cache(fn.cast(nodes[0], dtype=types.FLOAT))
        outputs = {f"output {at}": node for at, node in enumerate(nodes)}
        pipe.set_outputs(
            {
                **outputs,
                "drawn": first.shape() + fn.random.uniform(range=(0.0, 1.0)),
                "layout": fn.get_property(first, key="layout"),
                "name": fn.get_property(first, key="source_info"),
            }
        )
    return pipe


@dataclasses.dataclass
class Caches:
    """Caches of the graphs, built when they are first asked for."""

    root: Path
    to: Path

    def of(self, reader: str) -> str:
        path = self.to / reader.replace(" ", "-")
        if not path.exists():
            declaration = define(self.root, reader).offline_declaration("cut", target_shard_bytes=40)
            result = build(declaration, str(path), options=ONE)
            assert result.account.dead == 0
        return str(path)


@pytest.fixture(scope="module")
def caches(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Caches:
    return Caches(root, tmp_path_factory.mktemp("caches"))


def shown(pipe: Pipeline, count: int) -> list[object]:
    """The next batches: values and dtypes, layouts, names of records, and which samples are records."""
    made: list[object] = []
    for _ in range(count):
        outputs = pipe.run()
        columns = outputs.as_dict()
        about = {
            name: (column.layout(), [column.source_info(at) for at in range(len(column))], column.shape())
            for name, column in columns.items()
        }
        values = {
            name: [(np.asarray(one).dtype, np.asarray(one).tolist()) for one in column]
            for name, column in columns.items()
        }
        made += [about, values, None if outputs.valid is None else outputs.valid.tolist()]
    return made


@pytest.mark.parametrize("reader", list(READERS))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_graph_gives_the_same_with_a_cut_and_a_cache(reader: str, root: Path, caches: Caches, data: Any) -> None:
    shards = data.draw(st.integers(1, 2), "num_shards")
    order = {
        "num_shards": shards,
        "shard_id": data.draw(st.integers(0, shards - 1), "shard_id"),
        "random_shuffle": data.draw(st.booleans(), "random_shuffle"),
        "stick_to_shard": data.draw(st.booleans(), "stick_to_shard"),
        "pad_last_batch": data.draw(st.booleans(), "pad_last_batch"),
    }
    options = {
        "order": order,
        "batch_size": data.draw(st.integers(1, 4), "batch_size"),
        "last": data.draw(st.sampled_from(["partial", "pad"]), "last"),
    }

    without = define(root, reader, **options)
    cached = define(root, reader, cache=caches.of(reader), **options)

    assert shown(cached, 7) == shown(without, 7)
    assert cached.epoch_size() == without.epoch_size()
    assert cached.reader_meta() == without.reader_meta()


@pytest.mark.parametrize("runner", [LocalOptions(workers=2), BeamOptions()], ids=["two workers", "Beam"])
def test_every_runner_reads_records_by_number(root: Path, caches: Caches, tmp_path: Path, runner: Any) -> None:
    path = str(tmp_path / "cache")
    result = build(define(root, "coco").offline_declaration("cut", target_shard_bytes=1), path, options=runner)

    assert result.num_shards == 3
    assert shown(define(root, "coco", cache=path), 3) == shown(define(root, "coco"), 3)


def coco(root: Path, annotations: Path, masks: Path | None = None, **options: Any) -> Pipeline:
    pipe = Pipeline(batch_size=3, seed=11, **options)
    with pipe:
        images, boxes, labels = fn.readers.coco(file_root=str(root), annotations_file=str(annotations))
        if masks is not None:
            images = fn.cat(images, fn.readers.numpy(files=[str(masks / f"{name}.npy") for name in "bac"]))
        pipe.set_outputs(cache(fn.reshape(images, shape=[-1], name="flat")), boxes, labels)
    return pipe


def test_a_changed_annotation_redoes_the_records_of_its_image(root: Path, tmp_path: Path) -> None:
    annotations, path = tmp_path / "boxes.json", str(tmp_path / "cache")
    output = json.loads((root / "boxes.json").read_text())

    def built() -> Any:
        annotations.write_text(json.dumps(output))
        return build(coco(root, annotations).offline_declaration("cut", target_shard_bytes=1), path, options=ONE)

    first, again = built(), built()
    output["annotations"][0]["bbox"][0] += 1  # of the image 5, b.jpg
    changed = built()

    assert first.num_shards == 3 and again.up_to_date
    assert not changed.up_to_date and changed.reused_shards == 2
    assert batches(coco(root, annotations, cache=path), 1) == batches(coco(root, annotations), 1)


def test_readers_of_any_kind_stand_side_by_side_before_a_cut(root: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    for number, name in enumerate("bac"):
        np.save(tmp_path / f"{name}.npy", np.array([number], np.uint8))

    build(coco(root, root / "boxes.json", tmp_path).offline_declaration("cut"), path, options=ONE)

    expected = batches(coco(root, root / "boxes.json", tmp_path), 1)
    assert batches(coco(root, root / "boxes.json", tmp_path, cache=path), 1) == expected


def files(paths: list[str], **options: Any) -> Pipeline:
    pipe = Pipeline(batch_size=2, on_error="dead_letter", **options)
    with pipe:
        pipe.set_outputs(cache(fn.decoders.numpy(fn.readers.file(files=paths)[0])))
    return pipe


def test_a_record_that_fails_is_a_dead_letter_with_the_bytes_of_its_file(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.npy") for name in "ba"]
    np.save(paths[0], np.arange(3))
    Path(paths[1]).write_bytes(b"no array")
    declaration = files(paths).offline_declaration("cut")

    result = build(declaration, str(tmp_path / "cache"), options=ONE)

    assert result.account.dead == 1
    (shard,) = declaration.source.plan(target_shard_bytes=1 << 20).shards
    (batch,) = declaration.source.read(shard)
    assert batch.record_ids() == [f"{path}@0" for path in paths] and batch.raw(1) == b"no array"
    assert declaration.source.parse(b"no array", file=paths[1], position=0) == 1
    with pytest.raises(SourceError, match="read from its files, not from bytes: repair the files, and build again"):
        declaration.source.parse(b"repaired", file=paths[1], position=0)


def test_what_changes_or_vanishes_after_the_plan_is_reported(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.npy") for name in "ab"]
    for path in paths:
        np.save(path, np.arange(3))
    source = files(paths).offline_declaration("cut").source
    (shard,) = source.plan(target_shard_bytes=1 << 20).shards

    np.save(paths[1], np.arange(4))
    with pytest.raises(SourceError, match=r"b.npy changed after it was planned: records 0 to 1 should have sha256"):
        list(source.read(shard))
    os.unlink(paths[1])
    with pytest.raises(SourceError, match=r"b.npy vanished"):
        source.plan(target_shard_bytes=1 << 20)


def test_two_records_of_one_name_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    source = files([str(tmp_path / "a.npy")] * 2).offline_declaration("cut").source
    with pytest.raises(GraphError, match=r"readers.file: two records are called '.*a.npy@0', .* List each file once"):
        source.plan(target_shard_bytes=1 << 20)


def test_videos_of_one_name_in_two_folders_are_two_records(root: Path) -> None:
    pipe = Pipeline(batch_size=6)
    with pipe:
        clips = [f"{root}/clips/clip.webm", f"{root}/clips/b/again.webm"]
        pipe.set_outputs(fn.readers.video(filenames=clips, sequence_length=6))
    (found,) = pipe.run()
    names = [found.source_info(at) for at in range(6)]
    assert names == [f"{name}@{start}" for name in ("clip.webm", "b/again.webm") for start in (0, 6, 12)]
