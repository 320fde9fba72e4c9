"""Two readers before one cut: record i of one meets record i of the other, in the job as in the loader."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_outputs import batches

from beam_pipes.errors import GraphError, PlacementError
from beam_pipes.graph import GraphIterator, Pipeline, cache, pipeline_def
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.transforms import fn


@pytest.fixture
def masks_root(files_root: str, tmp_path: Path) -> str:
    """A mask for each file of `files_root`: one byte, 100 + its number."""
    root = tmp_path / "masks"
    for number, file in enumerate(sorted(Path(files_root).rglob("*.jpg"))):
        target = root / file.relative_to(files_root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes([100 + number]))
    return str(root)


def images_and_masks(
    files_root: str, masks_root: str, *, first: dict[str, Any], second: dict[str, Any], **options: Any
) -> Pipeline:
    @pipeline_def(batch_size=4, **options)
    def define() -> Any:
        files, labels = fn.readers.file(file_root=files_root, **first)
        masks, _ = fn.readers.file(file_root=masks_root, **second)
        pairs = cache(fn.cat(masks, files[1:4]))
        return {"pairs": pairs * fn.random.uniform(), "mask": masks, "label": labels}

    return define()


SHUFFLED = {"random_shuffle": True, "seed": 5}


@pytest.mark.parametrize(
    ("order", "runner"),
    [
        pytest.param({}, LocalOptions(workers=1), id="in order, local"),
        pytest.param(SHUFFLED, LocalOptions(workers=2), id="shuffled, two workers"),
        pytest.param(SHUFFLED, BeamOptions(), id="shuffled, Beam"),
    ],
)
def test_a_job_pairs_records_as_the_loader_does(
    files_root: str, masks_root: str, tmp_path: Path, order: dict[str, Any], runner: Any
) -> None:
    def pipe(**options: Any) -> Pipeline:
        return images_and_masks(files_root, masks_root, first=order, second=order, seed=2, **options)

    path = str(tmp_path / "cache")
    build(pipe().offline_declaration("pairs", target_shard_bytes=40), path, options=runner)

    expected = batches(pipe(), 6)
    assert batches(pipe(cache=path), 6) == expected
    assert {int(mask[0]) for batch in GraphIterator(pipe(cache=path)) for mask in batch["mask"]} == set(range(100, 110))


def test_what_is_read_beside_is_not_needed_once_it_is_cached(files_root: str, masks_root: str, tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    given = {"first": SHUFFLED, "second": SHUFFLED}
    expected = batches(images_and_masks(files_root, masks_root, **given), 3)
    build(
        images_and_masks(files_root, masks_root, **given).offline_declaration("pairs"),
        path,
        options=LocalOptions(workers=1),
    )

    shutil.rmtree(masks_root)

    assert batches(images_and_masks(files_root, masks_root, cache=path, **given), 3) == expected


def test_a_change_of_what_is_read_beside_is_built_again(files_root: str, masks_root: str, tmp_path: Path) -> None:
    def declaration() -> Any:
        return images_and_masks(files_root, masks_root, first={}, second={}).offline_declaration(
            "pairs", target_shard_bytes=40
        )

    path = str(tmp_path / "cache")
    first = build(declaration(), path, options=LocalOptions(workers=1))
    again = build(declaration(), path, options=LocalOptions(workers=1))
    (Path(masks_root) / "dog" / "4.jpg").write_bytes(b"z")
    changed = build(declaration(), path, options=LocalOptions(workers=1))

    assert first.num_shards > 1 and again.up_to_date
    assert not changed.up_to_date and changed.reused_shards == 0
    cached = images_and_masks(files_root, masks_root, first={}, second={}, cache=path)
    assert [int(mask[0]) for batch in GraphIterator(cached) for mask in batch["mask"]][-1] == ord("z")


def test_readers_in_different_orders_are_refused(files_root: str, masks_root: str) -> None:
    pipe = images_and_masks(files_root, masks_root, first=SHUFFLED, second={**SHUFFLED, "seed": 6})
    with pytest.raises(PlacementError) as caught:
        pipe.plan()
    message = str(caught.value)
    assert "readers.file (" in message and "readers.file_1 (" in message
    assert "both stand before the cut, and read in different orders (seed: 5 and 6): which of their records" in message
    assert "Give both the same, or put the cut on one side only." in message
    with pytest.raises(PlacementError, match="random_shuffle: False and True"):
        images_and_masks(files_root, masks_root, first={}, second=SHUFFLED).plan()


def test_readers_of_different_sizes_are_refused_before_the_job(
    files_root: str, masks_root: str, tmp_path: Path
) -> None:
    (Path(masks_root) / "dog" / "4.jpg").unlink()
    declaration = images_and_masks(files_root, masks_root, first={}, second={}).offline_declaration("pairs")
    with pytest.raises(
        GraphError, match="readers.file has 10 records and readers.file_1 9: before the cut record i of"
    ):
        build(declaration, str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"num_shards": 2, "shard_id": 1}),
        ({"num_shards": 2}, {}),
        ({"num_shards": 2}, {"num_shards": 2, "shard_id": 1}),
    ],
    ids=["the second is sharded", "the first is sharded", "two shards"],
)
def test_a_reader_of_another_shard_goes_round_by_itself(
    files_root: str, masks_root: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    pipe = Pipeline(batch_size=4, last="partial")
    with pipe:
        labels = fn.readers.file(file_root=files_root, **first)[1]
        masks, _ = fn.readers.file(file_root=masks_root, **second)
        pipe.set_outputs({"first": labels, "second": masks[0]})
    iterator = GraphIterator(pipe)
    seen = [int(one) - 100 for _ in range(2) for batch in iterator for one in batch["second"]]

    own = list(range(second.get("shard_id", 0), 10, second.get("num_shards", 1)))
    steps = 2 * (10 // first.get("num_shards", 1))
    assert seen == (own * 4)[:steps]


def test_a_cut_without_a_reader_is_refused() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        pipe.set_outputs(cache(fn.cat(np.zeros(2), np.ones(2))))
    with pytest.raises(PlacementError, match="should begin in a reader, whose records a job reads; found none before"):
        pipe.plan()


def test_a_bad_mask_is_a_dead_letter_of_its_pair(files_root: str, masks_root: str, tmp_path: Path) -> None:
    (Path(masks_root) / "cat" / "3.jpg").write_bytes(b"\1\2")

    def define(**options: Any) -> Pipeline:
        @pipeline_def(batch_size=4, on_error="dead_letter", **options)
        def graph() -> Any:
            files, labels = fn.readers.file(file_root=files_root)
            masks, _ = fn.readers.file(file_root=masks_root)
            return cache(fn.reshape(masks, shape=[1], name="one byte")), cache(labels)

        return graph()

    path = str(tmp_path / "cache")
    declaration = define().offline_declaration("pairs")
    result = build(declaration, path, options=LocalOptions(workers=1))

    account = result.account
    assert account.dead == 1
    cached = [one.tolist() for batch in GraphIterator(define(cache=path)) for one in batch["output_0"]]
    assert cached == [[100 + number] for number in range(10) if number != 3]
    value = declaration.source.parse(b"abc", file="dog/1.jpg", position=0)
    assert (value.value.content, value.number) == (b"abc", 6)


def test_a_cache_that_lacks_records_is_not_read_beside_another_reader(
    files_root: str, masks_root: str, tmp_path: Path
) -> None:
    def define(**options: Any) -> Pipeline:
        @pipeline_def(batch_size=4, on_error="dead_letter", **options)
        def graph() -> Any:
            masks, _ = fn.readers.file(file_root=masks_root)
            _, labels = fn.readers.file(file_root=files_root)
            return cache(fn.reshape(masks, shape=[1])), labels

        return graph()

    path = str(tmp_path / "cache")
    build(define().offline_declaration("masks"), path, options=LocalOptions(workers=1))
    assert batches(define(cache=path), 3) == batches(define(), 3)

    (Path(masks_root) / "cat" / "3.jpg").write_bytes(b"\1\2")
    build(define().offline_declaration("masks"), path, options=LocalOptions(workers=1))
    with pytest.raises(GraphError, match=r"the cache lacks 1 of 10 records, .* and readers.file_1 \(.* is read beside"):
        define(cache=path).run()
