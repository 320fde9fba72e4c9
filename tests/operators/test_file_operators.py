"""`fn.readers.file` and `fn.readers.numpy`: which files, in which order, with which labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes import graph
from beam_pipes.errors import OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline
from beam_pipes.runners import LocalOptions, build
from beam_pipes.transforms import fn
from beam_pipes.transforms.operators.readers.files import in_any_case


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("dog/b.jpg", "dog/a.PNG", "cat/1.jpg", "cat/2.jpg", "cat/notes.txt", "empty/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def read(node: Any, *, batch_size: int) -> list[tuple[str, int]]:
    """(content, label) of the first files."""
    pipe = Pipeline(batch_size=batch_size)
    with pipe:
        pipe.set_outputs(*node())
    data, labels = pipe.run()
    return [(bytes(one).decode(), int(label[0])) for one, label in zip(data, labels, strict=True)]


def test_directories_are_classes_and_files_of_media_are_read(root: Path) -> None:
    found = read(lambda: fn.readers.file(file_root=str(root)), batch_size=4)
    assert found == [("cat/1.jpg", 0), ("cat/2.jpg", 0), ("dog/a.PNG", 1), ("dog/b.jpg", 1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"file_filters": ["*.txt"]}, [("cat/notes.txt", 0)]),
        ({"file_filters": "*.png", "case_sensitive_filter": False}, [("dog/a.PNG", 1)]),
        ({"dir_filters": "d*"}, [("dog/a.PNG", 0), ("dog/b.jpg", 0)]),
        ({"file_filters": ["*.jpg", "*.png"], "case_sensitive_filter": True, "dir_filters": "dog"}, [("dog/b.jpg", 0)]),
    ],
)
def test_filters(root: Path, options: dict[str, Any], expected: Any) -> None:
    assert read(lambda: fn.readers.file(file_root=str(root), **options), batch_size=len(expected)) == expected


def test_lists_of_files(root: Path) -> None:
    (root / "list.txt").write_text("dog/b.jpg 7\n\ncat/1.jpg 3\n")
    by_list = [("dog/b.jpg", 7), ("cat/1.jpg", 3)]
    assert read(lambda: fn.readers.file(file_list=str(root / "list.txt")), batch_size=2) == by_list
    files = [str(root / "dog/b.jpg"), str(root / "cat/1.jpg")]
    assert read(lambda: fn.readers.file(files=files), batch_size=2) == [("dog/b.jpg", 0), ("cat/1.jpg", 1)]
    assert read(lambda: fn.readers.file(files=files, labels=[7, 3]), batch_size=2) == by_list
    relative = ["dog/b.jpg", "cat/1.jpg"]
    assert read(lambda: fn.readers.file(file_root=str(root), files=relative, labels=[7, 3]), batch_size=2) == by_list


def test_errors_say_what_is_wrong_with_lists(root: Path) -> None:
    (root / "list.txt").write_text("dog/b.jpg 7\ncat/1.jpg\n")
    with pytest.raises(OperatorArgumentError, match=r"line 2: expected 'name label', got 'cat/1.jpg'"):
        read(lambda: fn.readers.file(file_list=str(root / "list.txt")), batch_size=1)
    with pytest.raises(OperatorArgumentError, match=r"labels needs files, and as many of them"):
        fn.readers.file(files=["a", "b"], labels=[1])
    with pytest.raises(OperatorArgumentError, match=r"give file_root, file_list or files"):
        fn.readers.file()
    with pytest.raises(OperatorArgumentError, match=r"give one of files and file_list"):
        fn.readers.file(files=["a"], file_list="b")
    with pytest.raises(OperatorArgumentError, match=r"no file fits \['\*.gif'\]"):
        read(lambda: fn.readers.file(file_root=str(root), file_filters="*.gif"), batch_size=1)
    with pytest.raises(OperatorError, match=r"on record 'gone.jpg@0'.*FileNotFoundError"):
        read(lambda: fn.readers.file(file_root=str(root), files=["gone.jpg"]), batch_size=1)


@pytest.mark.parametrize(
    "options", [{}, {"dir_filters": "d*"}, {"file_filters": ["*.txt", "*.jpg"], "case_sensitive_filter": True}]
)
def test_the_source_for_caching_gives_the_same_files(root: Path, options: dict[str, Any]) -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        reader = fn.readers.file(file_root=str(root), **options)[0].source.operator
    store, source = reader.open(), reader.source()
    batches = [b for shard in source.plan(target_shard_bytes=1 << 20).shards for b in source.read(shard)]
    values = [reader.from_source(value) for batch in batches for value in batch.values]

    data, labels = store.read(np.arange(len(store)), (0, 1))
    assert [bytes(one[0]) for one in values] == [bytes(one) for one in data]
    assert [int(one[1][0]) for one in values] == [int(one[0]) for one in labels]


def test_globs_of_any_case() -> None:
    assert in_any_case("img_[a-c]?.Jpg") == "[iI][mM][gG]_[aA-cC]?.[jJ][pP][gG]"


def test_arrays_of_npy_files(tmp_path: Path) -> None:
    arrays = {"b/0.npy": np.arange(3), "a.npy": np.ones((2, 2), np.float32), "b/1.npy": np.array(7)}
    for name, array in arrays.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, array)
    np.save(tmp_path / "objects.np", np.array([{}]))
    pipe = Pipeline(batch_size=3)
    with pipe:
        pipe.set_outputs(fn.readers.numpy(file_root=str(tmp_path)))
    (found,) = pipe.run()
    assert [found.source_info(i) for i in range(3)] == ["a.npy@0", "b/0.npy@0", "b/1.npy@0"]
    for index, name in enumerate(["a.npy", "b/0.npy", "b/1.npy"]):
        assert np.array_equal(found[index], arrays[name]) and found[index].dtype == arrays[name].dtype

    (tmp_path / "list.txt").write_text("b/1.npy\n")
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.readers.numpy(file_list=str(tmp_path / "list.txt")))
    assert int(pipe.run()[0][0]) == 7

    (tmp_path / "bad.npy").write_bytes(b"not an array")
    pipe = Pipeline(batch_size=1)
    with pipe:
        pipe.set_outputs(fn.readers.numpy(file_root=str(tmp_path), file_filter="bad.npy"))
    with pytest.raises(OperatorError, match=r"on record 'bad.npy@0'"):
        pipe.run()
    with pytest.raises(OperatorArgumentError, match=r"give file_root, file_list or files"):
        fn.readers.numpy()


def test_another_directory_in_front_relabels_the_cached_files(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def labels(cache: str | None) -> Pipeline:
        pipe = Pipeline(batch_size=4, cache=cache)
        with pipe:
            pipe.set_outputs(graph.cache(fn.readers.file(file_root=str(root))[1]))
        return pipe

    cache, one_process, pipe = str(tmp_path_factory.mktemp("cache")), LocalOptions(workers=1), labels(None)
    build(pipe.offline_declaration(), cache, options=one_process)
    assert [int(one[0]) for one in labels(cache).run()[0]] == [0, 0, 1, 1]

    (root / "bee").mkdir()
    (root / "bee" / "notes.txt").write_bytes(b"no file that fits: the input is the same, and labels move")
    build(pipe.offline_declaration(), cache, options=one_process)

    assert [int(one[0]) for one in labels(None).run()[0]] == [1, 1, 2, 2]
    root.rename(root.parent / "elsewhere")
    assert [int(one[0]) for one in labels(cache).run()[0]] == [1, 1, 2, 2]
