"""Iterators: epochs and shards exact whatever the batch size, checkpoints, ragged outputs."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import pickle
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_outputs import numbered, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import beam_pipes.graph.functions as tfrec
from beam_pipes.errors import (
    GraphError,
    LoaderError,
    OperatorArgumentError,
    OperatorError,
    StateMismatchError,
    UnboundedLoaderError,
)
from beam_pipes.format.framing import RecordWriter
from beam_pipes.format.messages import Example
from beam_pipes.graph import GraphIterator, Pipeline, pipeline_def, types
from beam_pipes.on_device import JaxGraphIterator, TorchGraphIterator
from beam_pipes.transforms import fn


def reading(root: str, *, num_shards: int = 1, shard_id: int = 0, stick: bool = False, **options: Any) -> Pipeline:
    @pipeline_def(**{"batch_size": 4, "seed": 6, **options})
    def define() -> Any:
        data, labels = fn.readers.file(
            file_root=root,
            random_shuffle=True,
            num_shards=num_shards,
            shard_id=shard_id,
            stick_to_shard=stick,
        )
        return {"size": data.shape()[0], "label": labels[0], "draw": fn.random.uniform(range=(0.0, 1.0))}

    return define()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_shards=st.integers(1, 5),
    batch_size=st.integers(1, 7),
    last=st.sampled_from(["partial", "pad", "drop"]),
    stick=st.booleans(),
)
def test_shards_are_disjoint_and_epochs_are_whole(
    files_root: str, num_shards: int, batch_size: int, last: str, stick: bool
) -> None:
    iterators = [
        GraphIterator(
            reading(files_root, num_shards=num_shards, shard_id=index, stick=stick, batch_size=batch_size, last=last)
        )
        for index in range(num_shards)
    ]
    draws: list[Counter[float]] = []
    for _ in range(2):
        steps = set()
        seen: Counter[float] = Counter()
        for iterator in iterators:
            epoch = list(iterator)
            steps.add(len(epoch))
            for batch in epoch:
                valid = batch.get("valid", np.ones(len(batch["draw"]), bool))
                seen.update(batch["draw"][valid].tolist())
                assert last == "partial" or len(batch["draw"]) == batch_size
        assert steps == {len(iterators[0])}
        assert max(seen.values(), default=0) <= 1
        if last != "drop":
            assert seen.total() == 10
        else:
            assert seen.total() == 10 // num_shards // batch_size * batch_size * num_shards
        draws.append(seen)
    assert last == "drop" or draws[0] != draws[1]


def test_a_shard_that_sticks_has_the_same_records_in_every_epoch(files_root: str) -> None:
    def epochs(stick: bool) -> list[list[int]]:
        iterator = GraphIterator(reading(files_root, num_shards=3, shard_id=1, stick=stick))
        return [
            sorted(v for batch in iterator for v in (batch["size"] * 10 + batch["label"]).tolist()) for _ in range(4)
        ]

    assert len({tuple(epoch) for epoch in epochs(True)}) == 1
    assert len({tuple(epoch) for epoch in epochs(False)}) > 1


def test_threads_change_nothing(files_root: str) -> None:
    alone = GraphIterator(reading(files_root, prefetch_queue_depth=0))
    one = [plain(b) for _ in range(3) for b in alone]
    many = GraphIterator(reading(files_root, num_threads=4, prefetch_queue_depth=5))
    assert [plain(b) for _ in range(3) for b in many] == one
    pipe = reading(files_root, num_threads=3)
    assert [plain(pipe.run()) for _ in range(9)] == one


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    done=st.integers(0, 7),
    before=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    after=st.tuples(st.integers(1, 3), st.integers(1, 4)),
)
def test_a_run_continues_exactly_with_other_shards_and_batch_sizes(
    files_root: str, done: int, before: tuple[int, int], after: tuple[int, int]
) -> None:
    def shards(num_shards: int, batch_size: int) -> list[GraphIterator]:
        return [
            GraphIterator(reading(files_root, num_shards=num_shards, shard_id=i, batch_size=batch_size))
            for i in range(num_shards)
        ]

    def drawn(iterator: GraphIterator, steps: int | None) -> list[float]:
        return [v for batch in itertools.islice(iterator, steps) for v in batch["draw"].tolist()]

    first = shards(*before)
    done = min(done, len(first[0]))
    early = [v for iterator in first for v in drawn(iterator, done)]
    states = {iterator.state.to_json() for iterator in first}
    assert len(states) == 1

    later = shards(*after)
    for iterator in later:
        iterator.restore(states.copy().pop())
    rest = [v for iterator in later for v in drawn(iterator, None)]
    whole = [v for batch in GraphIterator(reading(files_root, batch_size=10)) for v in batch["draw"].tolist()]
    if done < len(first[0]):
        assert sorted(early + rest) == sorted(whole)
    else:  # the epoch was over: what came is the next one
        assert len(rest) == 10 and not set(rest) & set(whole)


def test_states_count_what_was_handed_out_and_resume_at_every_step(files_root: str) -> None:
    iterator = GraphIterator(reading(files_root, num_threads=2, prefetch_queue_depth=4, batch_size=3))
    everything, states = [], [iterator.state_dict()]
    for _ in range(2):
        for batch in iterator:
            everything.append(plain(batch))
            states.append(iterator.state_dict())
    for at, state in enumerate(states[:-1]):
        again = GraphIterator(reading(files_root, batch_size=3))
        again.load_state_dict(state)
        found = [plain(batch) for _ in range(2) for batch in again]
        assert found[: len(everything) - at] == everything[at : at + len(found)]


def test_a_pipeline_restored_after_the_last_batch_of_an_epoch_is_at_the_next_one(files_root: str) -> None:
    iterator = GraphIterator(reading(files_root, batch_size=4))
    states = [iterator.state_dict() for _ in iterator]
    again = GraphIterator(reading(files_root, batch_size=5))
    again.load_state_dict(states[-1])

    left = [[plain(batch) for batch in again] for _ in range(again.pipe.epoch, 3)]

    whole = GraphIterator(reading(files_root, batch_size=5))
    assert left == [[plain(batch) for batch in whole] for _ in range(3)][1:]


def test_of_two_loops_over_a_pipeline_the_newer_one_continues_and_the_older_one_says_so(files_root: str) -> None:
    whole = [plain(batch) for batch in GraphIterator(reading(files_root, batch_size=2))]
    iterator = GraphIterator(reading(files_root, num_threads=2, prefetch_queue_depth=4, batch_size=2))
    older = iter(iterator)
    seen = [plain(next(older))]
    newer = iter(iterator)
    seen.append(plain(next(newer)))

    with pytest.raises(LoaderError, match="was closed, or replaced by a newer one of the same loader"):
        next(older)
    with pytest.raises(LoaderError, match="an iterator belongs to its process and cannot be pickled or copied"):
        pickle.dumps(newer)

    assert seen + [plain(batch) for batch in newer] == whole


def test_threads_that_share_a_loop_get_each_batch_once(files_root: str) -> None:
    whole = [plain(batch) for batch in GraphIterator(reading(files_root, batch_size=1))]
    batches = iter(GraphIterator(reading(files_root, batch_size=1, num_threads=2)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        parts = [future.result() for future in [pool.submit(list, batches) for _ in range(4)]]

    assert sorted(str(plain(batch)) for part in parts for batch in part) == sorted(map(str, whole))


def test_a_state_of_another_seed_data_or_graph_is_refused(files_root: str, tmp_path: Any) -> None:
    state = reading(files_root).checkpoint(tmp_path / "state.json")
    assert (tmp_path / "state.json").read_text() == state and len(state) < 400
    with pytest.raises(StateMismatchError, match=r"seed: 6 → 7"):
        reading(files_root, seed=7).restore(state)

    (tmp_path / "other" / "cat").mkdir(parents=True)
    (tmp_path / "other" / "cat" / "0.jpg").write_bytes(b"x")
    with pytest.raises(StateMismatchError, match=r"num_records: 10 → 1"):
        reading(str(tmp_path / "other")).restore(state)

    @pipeline_def(batch_size=4, seed=6)
    def other() -> Any:
        return fn.readers.file(file_root=files_root, random_shuffle=True)

    with pytest.raises(StateMismatchError, match=r"source.graph: '[0-9a-f]{16}' → '[0-9a-f]{16}'"):
        other().restore(state)
    with pytest.raises(LoaderError, match="a loader state is one JSON object"):
        reading(files_root).restore("nonsense")


def written(root: Path, reader: str, first: int) -> Pipeline:
    """A reader of two records, whose sizes are the same for every `first`."""
    root.mkdir(exist_ok=True)
    if reader == "tfrecord":
        with RecordWriter(root / "a.tfrecord") as writer:
            for number in (first, first + 1):
                example = Example()
                example.features.feature["x"].int64_list.value.append(number)
                writer.write(example.SerializeToString())
    else:
        for number in (first, first + 1):
            path = root / f"{number - first}.npy"
            np.save(path, np.array([number]))
            os.utime(path, ns=(first, first))
    pipe = Pipeline(batch_size=1)
    with pipe:
        if reader == "tfrecord":
            features = {"x": tfrec.FixedLenFeature([], tfrec.int64)}
            pipe.set_outputs(fn.readers.tfrecord(path=str(root / "a.tfrecord"), features=features))
        elif reader == "numpy":
            pipe.set_outputs(fn.readers.numpy(file_root=str(root)))
        else:
            pipe.set_outputs(*fn.readers.file(files=[str(root / "0.npy"), str(root / "1.npy")]))
    return pipe


@pytest.mark.parametrize("reader", ["file", "numpy", "tfrecord"])
def test_a_state_is_refused_where_the_content_of_files_changed(reader: str, tmp_path: Path) -> None:
    pipe = written(tmp_path / "data", reader, 1)
    before = pipe.checkpoint()
    pipe.run()
    pipe.close()
    assert pipe.checkpoint() == before.replace('"position":0', '"position":1')
    written(tmp_path / "data", reader, 1).restore(before)

    with pytest.raises(StateMismatchError, match=r"source.readers.readers.*.files: '[0-9a-f]{16}' → '[0-9a-f]{16}'"):
        written(tmp_path / "data", reader, 5).restore(before)


def test_a_state_is_refused_where_the_labels_of_files_changed(files_root: str, tmp_path: Path) -> None:
    def define(label: int) -> Pipeline:
        (tmp_path / "list.txt").write_text(f"cat/0.jpg {label}\n")
        pipe = Pipeline(batch_size=1)
        with pipe:
            pipe.set_outputs(*fn.readers.file(file_root=files_root, file_list=str(tmp_path / "list.txt")))
        return pipe

    state = define(3).checkpoint()
    define(3).restore(state)
    with pytest.raises(StateMismatchError, match=r"source.readers.readers.file.files: "):
        define(4).restore(state)


def test_ragged_outputs_are_lists_padded_arrays_or_values(files_root: str) -> None:
    def define() -> Pipeline:
        pipe = Pipeline(batch_size=3)
        with pipe:
            data, labels = fn.readers.file(file_root=files_root)
            pipe.set_outputs(data, labels)
        return pipe

    names = ["data", "labels"]
    listed = next(iter(GraphIterator(define(), names)))
    assert [one.shape for one in listed["data"]] == [(4,), (8,), (12,)] and listed["labels"].shape == (3, 1)
    filled = next(iter(GraphIterator(define(), names, ragged="pad", pad_value=255)))
    assert filled["data"].shape == (3, 12) and filled["data"][0, 3:6].tolist() == [3, 255, 255]
    assert filled["data/lengths"].tolist() == [4, 8, 12]
    values = next(iter(GraphIterator(define(), names, ragged="values")))
    assert values["data"].shape == (24,) and values["data/lengths"].tolist() == [4, 8, 12]


def sequences(*lengths: int) -> Pipeline:
    """Two batches of int64 sequences of these lengths; the node's spec says their rank only."""

    def source(info: types.SampleInfo) -> Any:
        if info.idx_in_epoch >= len(lengths):
            raise StopIteration
        return np.arange(lengths[info.idx_in_epoch])

    pipe = Pipeline(batch_size=2)
    with pipe:
        x = fn.external_source(source, batch=False, dtype="int64", ndim=1)
        pipe.set_outputs({"x": x, "first": x[0], "size": x.shape(), "there": x.gpu()})
    return pipe


@pytest.mark.parametrize("ragged", ["pad", "values"])
@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator, TorchGraphIterator])
def test_the_form_of_an_output_is_that_of_the_graph_and_not_of_a_batch(iterator: Any, ragged: str) -> None:
    found = list(iterator(sequences(1, 3, 2, 2, 3, 3), ragged=ragged))

    wanted = {"x", "x/lengths", "there", "there/lengths", "first", "size"}
    assert [set(batch) for batch in found] == [wanted] * 3
    for batch, lengths in zip(found, [[1, 3], [2, 2], [3, 3]], strict=True):
        assert np.asarray(batch["x/lengths"]).tolist() == np.asarray(batch["there/lengths"]).tolist() == lengths
        values = np.concatenate([np.arange(length) for length in lengths])
        rows = [list(range(length)) + [0] * (max(lengths) - length) for length in lengths]
        expected = values.tolist() if ragged == "values" else rows
        assert np.asarray(batch["x"]).tolist() == np.asarray(batch["there"]).tolist() == expected


def refuse_dogs(data: Any, label: Any) -> Any:
    if label:
        raise ValueError("a dog")
    return data


@pytest.mark.parametrize(
    ("ragged", "shapes"),
    [("pad", {"x": (0, 0), "x/lengths": (0,), "y": (0, 1)}), ("values", {"x": (0,), "x/lengths": (0,), "y": (0, 1)})],
)
def test_a_batch_without_samples_has_the_same_form(ragged: str, shapes: dict[str, Any], files_root: str) -> None:
    pipe = Pipeline(batch_size=5, on_error="drop")
    with pipe:
        data, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs({"x": fn.python_function(data, labels, function=refuse_dogs), "y": labels})
    whole, empty = GraphIterator(pipe, ragged=ragged)

    assert whole.keys() == empty.keys() and {name: array.shape for name, array in empty.items()} == shapes


def test_errors_say_what_a_format_cannot_hold() -> None:
    def define(shapes: Any, dtype: str | None = None) -> Pipeline:
        pipe = Pipeline(batch_size=2)
        with pipe:
            pipe.set_outputs(fn.external_source([[np.zeros(one, np.uint8) for one in shapes]], dtype=dtype, ndim=2))
        return pipe

    with pytest.raises(
        GraphError, match=r"'output_0' holds samples of shapes \(2, 1\), \(2, 2\): ragged='values' puts"
    ):
        next(iter(GraphIterator(define([(2, 1), (2, 2)]), ragged="values")))
    with pytest.raises(OperatorArgumentError, match="pad_value=-1 is not uint8, the dtype of the output 'x'"):
        GraphIterator(define([(2, 1), (2, 2)], "uint8"), ["x"], ragged="pad", pad_value=-1)
    with pytest.raises(OperatorArgumentError, match="pad_value=16777217 is not float32"):
        GraphIterator(define([(2, 1), (2, 2)], "float32"), ["x"], ragged="pad", pad_value=2**24 + 1)
    with pytest.raises(OperatorArgumentError, match="pad_value=0.5 is not uint8"):
        next(iter(GraphIterator(define([(2, 1), (2, 2)]), ragged="pad", pad_value=0.5)))


def test_epochs_of_sources_in_python_end_by_themselves() -> None:
    pipe = Pipeline(batch_size=4)
    with pipe:
        pipe.set_outputs({"x": fn.external_source(numbered(6), batch=False)})
    iterator = GraphIterator(pipe)
    assert [[b["x"].tolist() for b in iterator] for _ in range(2)] == [[[0, 1, 2, 3], [4, 5]]] * 2
    with pytest.raises(UnboundedLoaderError, match="a source in Python says when an epoch ends"):
        len(iterator)


def test_leaving_a_loop_and_entering_again_continues(files_root: str) -> None:
    expected = [plain(b) for b in GraphIterator(reading(files_root))]
    iterator = GraphIterator(reading(files_root, prefetch_queue_depth=3))
    found = []
    for batch in iterator:
        found.append(plain(batch))
        break
    assert found + [plain(b) for b in iterator] == expected
    next(iter(iterator))
    iterator.reset()
    assert iterator.pipe.epoch == 2


@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator])
def test_what_was_made_ahead_and_never_given_is_not_counted(iterator: Any, files_root: str) -> None:
    is_ahead = threading.Event()

    def refuse_eight(label: Any, data: Any) -> Any:
        if len(data) == 8:
            raise ValueError("eight bytes")
        if len(data) == 12:
            is_ahead.set()
        return label

    pipe = Pipeline(batch_size=1, on_error="dead_letter", prefetch_queue_depth=4)
    with pipe:
        data, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs({"label": fn.python_function(labels, data, function=refuse_eight, name="refuse")})
    batches = iterator(pipe)
    for _ in batches:
        assert is_ahead.wait(60)
        break
    counted = pipe.executor_statistics()["refuse"]
    assert (counted.batches, counted.failed, len(pipe.dead_letters)) == (1, 0, 0)

    assert len(list(batches)) == 9
    assert Counter(letter.record for letter in pipe.dead_letters) == {"cat/1.jpg@0": 1, "dog/0.jpg@0": 1}
    assert (counted.batches, counted.failed) == (10, 2)


def test_errors_reach_the_loop(files_root: str) -> None:
    pipe = Pipeline(batch_size=2, num_threads=2)
    with pipe:
        _, labels = fn.readers.file(file_root=files_root)
        pipe.set_outputs(fn.python_function(labels, function=lambda one: 1 // (1 - int(one[0]))))
    with pytest.raises(OperatorError, match="'python_function' failed on record 'dog/0.jpg@0'"):
        list(GraphIterator(pipe))


def test_errors_say_what_was_requested_wrongly(files_root: str) -> None:
    with pytest.raises(OperatorArgumentError, match="output_map should give one name for each of the 3 outputs"):
        GraphIterator(reading(files_root), ["a"])
    with pytest.raises(
        OperatorArgumentError, match="ragged should be one of list, pad, values, got 'lists'. Did you mean"
    ):
        GraphIterator(reading(files_root), ragged="lists")
    with pytest.raises(OperatorArgumentError, match="with last='pad' the name 'valid' is taken"):
        GraphIterator(reading(files_root, last="pad"), ["valid", "a", "b"])
    with pytest.raises(GraphError, match="10 records cannot be divided into 11 shards"):
        len(GraphIterator(reading(files_root, num_shards=11)))
    with pytest.raises(GraphError, match="an epoch has no batch: 10 samples do not fill one of 11 with last='drop'"):
        reading(files_root, batch_size=11, last="drop").run()


def of_five_images(root: Path, *, damaged: bool = False) -> Pipeline:
    """Batches of two of every second of five images: the second shard is short of one, so its last batch is empty."""
    (root / "a").mkdir()
    for number in range(5):
        image = root / "a" / f"{number}.png"
        Image.new("RGB", (6, number + 5)).save(image)
        if damaged:
            image.write_bytes(b"x")

    @pipeline_def(batch_size=2, on_error="drop")
    def graph() -> Any:
        data, label = fn.readers.file(file_root=str(root), shard_id=1, num_shards=2)
        image = fn.decoders.image(data)
        small = fn.resize(image, size=(4, 4))
        normal = fn.crop_mirror_normalize(small, dtype=types.FLOAT, output_layout="CHW")
        unknown = fn.cast(fn.python_function(image, function=np.copy), dtype=types.INT16)
        return {
            "normal": normal,
            "label": label,
            "part": image[:, :1] / 255.0,
            "sent": normal.gpu() * 2,
            "image": image,
            "unknown": unknown,
        }

    return graph()


@pytest.mark.parametrize("iterator", [GraphIterator, JaxGraphIterator, TorchGraphIterator])
@pytest.mark.parametrize("ragged", ["list", "pad", "values"])
@pytest.mark.parametrize("dropped", [False, True], ids=["no samples", "all dropped"])
def test_a_batch_of_no_samples_has_the_declared_dtypes_and_shapes(
    tmp_path: Path, iterator: Any, ragged: str, dropped: bool
) -> None:
    batches = list(iterator(of_five_images(tmp_path, damaged=dropped), ragged=ragged))
    empty = batches[-1]

    expected = {"normal": ("float32", (0, 3, 4, 4)), "sent": ("float32", (0, 3, 4, 4)), "label": ("int32", (0, 1))}
    expected["image"] = ("uint8", (0, 0, 3) if ragged == "values" else (0, 0, 0, 3))
    found = {name: (str(empty[name].dtype).removeprefix("torch."), tuple(empty[name].shape)) for name in expected}
    assert found == expected
    assert [str(empty[name].dtype).removeprefix("torch.") for name in ("part", "unknown")] == ["float32", "int16"]
    if not dropped:
        whole = batches[0]
        assert len(batches) == 2 and len(whole["label"]) == 2
        assert {name: type(empty[name]) for name in ("normal", "sent")} == {
            n: type(whole[n]) for n in ("normal", "sent")
        }


def test_run_gives_the_declared_dtypes_and_shapes_of_no_samples(tmp_path: Path) -> None:
    pipe = of_five_images(tmp_path)
    pipe.run()
    normal, label, part, sent, image, _ = (one.as_array() for one in pipe.run())

    assert (normal.shape, normal.dtype, label.shape, label.dtype) == ((0, 3, 4, 4), np.float32, (0, 1), np.int32)
    assert (sent.shape, sent.dtype, image.dtype, part.dtype) == ((0, 3, 4, 4), np.float32, np.uint8, np.float32)
