"""Pictures with rows about them: metadata of Hugging Face's imagefolder, tables of Kaggle, captions beside pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from beam_pipes import Cache
from beam_pipes.errors import DatasetError, DeclarationError, StageError, TaskError
from beam_pipes.recipes import images
from beam_pipes.recipes.written import Recipe
from beam_pipes.runners import build
from beam_pipes.transforms.by_key import SplitByField


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def pictures(*names: str) -> None:
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6, 3), number, np.uint8)).save(path)


def rows(name: str, some: Sequence[Mapping[str, Any]]) -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        if name.endswith(".jsonl"):
            file.writelines(json.dumps(row) + "\n" for row in some)
        else:
            writer = csv.DictWriter(file, list(some[0]))
            writer.writeheader()
            writer.writerows(some)


def built(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Split → path → what else is stored."""
    build(recipe.declaration(), "cache", overwrite=True)
    cache = Cache.open("cache")
    return {name: {each["path"]: dict(each) for each in cache[name]} for name in cache.splits}


def dropped() -> dict[str, int]:
    stages = Cache.open("cache").manifest.account["stages"]
    return dict(stages["image_example"].get("dropped", {}))


def test_an_imagefolder_has_its_columns_and_boxes() -> None:
    pictures("pets/0.png", "pets/1.png", "pets/more/2.png", "pets/3.png")
    boxes = [[[1, 2, 3, 4]], [], [[0, 0, 2, 2], [1, 1, 3, 3.5]]]
    names = ["0.png", "1.png", "more/2.png"]
    rows(
        "pets/metadata.jsonl",
        [
            {
                "file_name": name,
                "text": f"a {name}",
                "label": kind,
                "objects": {"bbox": some, "categories": [7] * len(some)},
            }
            for name, kind, some in zip(names, ["dog", "cat", "dog"], boxes, strict=True)
        ],
    )
    keep = {"text": "str", "objects.bbox": "float32[][4]", "objects.categories": "int64[]"}

    recipe = images("pets", resize=4, keep_fields=keep)
    found = built(recipe)["train"]

    assert dict(recipe.left_out) == {}
    assert {path: int(each["label"]) for path, each in found.items()} == {"0.png": 1, "1.png": 0, "more/2.png": 1}
    assert Cache.open("cache")["train"].spec["label"].class_names == ("cat", "dog")
    for name, some in zip(names, boxes, strict=True):
        assert found[name]["text"] == f"a {name}"
        assert found[name]["objects.bbox"].tolist() == some and found[name]["objects.bbox"].shape == (len(some), 4)
        assert found[name]["objects.categories"].tolist() == [7] * len(some)


def test_a_table_of_kaggle_names_pictures_without_their_suffix() -> None:
    pictures("eyes/train_images/0a.jpg", "eyes/train_images/1b.jpg", "eyes/test_images/2c.jpg")
    rows(
        "eyes/train.csv", [{"id_code": "0a", "diagnosis": 4, "age": 30.5}, {"id_code": "1b", "diagnosis": 0, "age": ""}]
    )
    with pytest.raises(
        DeclarationError, match=r"has no label: it has id_code, diagnosis, age, and .* Name the label's"
    ):
        images("eyes")

    found = built(images("eyes", label_field="diagnosis", keep_fields={"age": "float32"}))["train"]

    assert {path: int(each["label"]) for path, each in found.items()} == {
        "train_images/0a.jpg": 4,
        "train_images/1b.jpg": 0,
    }
    assert found["train_images/0a.jpg"]["age"] == 30.5 and np.isnan(found["train_images/1b.jpg"]["age"])


def test_folders_of_splits_have_rows_of_their_own() -> None:
    pictures(*(f"pets/{split}/{number}.png" for split in ("test", "train") for number in range(2)))
    for split in ("test", "train"):
        rows(f"pets/{split}/metadata.csv", [{"file_name": f"{at}.png", "text": f"{split} {at}"} for at in range(2)])

    found = built(images("pets", label=False, keep_fields=["text"]))

    assert {name: {path: each["text"] for path, each in some.items()} for name, some in found.items()} == {
        split: {f"{split}/{at}.png": f"{split} {at}" for at in range(2)} for split in ("test", "train")
    }
    with pytest.raises(
        DeclarationError, match="the folders test, train of 'pets' are the splits, but splits were given"
    ):
        images("pets", label=False, splits={"train": 0.5, "eval": 0.5})


def test_a_column_names_the_split() -> None:
    pictures("a/cat/0.png", "a/dog/1.png", "a/dog/2.png")
    table = [
        {"path": f"{kind}/{at}.png", "split": name}
        for at, kind, name in ((0, "cat", "train"), (1, "dog", "val"), (2, "dog", "train"))
    ]
    rows("about.csv", table)

    found = built(images("about.csv", image_root="a", keep_fields=["split"]))

    assert {name: sorted(some) for name, some in found.items()} == {
        "train": ["cat/0.png", "dog/2.png"],
        "val": ["dog/1.png"],
    }
    assert {path: (int(each["label"]), each["split"]) for path, each in found["train"].items()} == {
        "cat/0.png": (0, "train"),
        "dog/2.png": (1, "train"),
    }
    with pytest.raises(DeclarationError, match="the field 'split' of the rows names the splits, but splits were given"):
        images("about.csv", image_root="a", splits={"train": 0.5, "eval": 0.5})
    rows("about.csv", [{**table[0], "split": ""}, *table[1:]])
    with pytest.raises(DeclarationError, match="the row about 'cat/0.png' should name its split in 'split', found ''"):
        images("about.csv", image_root="a")


def test_a_record_of_another_split_is_refused() -> None:
    stage = SplitByField(["train"], field="split")
    assert stage.transform({"a": 1, "split": "train"}) == {"train": [{"a": 1}]}
    with pytest.raises(TaskError, match="the field 'split' should be one of the splits train, found 'dev'"):
        stage.transform({"a": 1, "split": "dev"})


def test_texts_beside_pictures_are_captions() -> None:
    pictures("art/0.png", "art/1.png", "art/2.jpg")
    for name in ("0", "2", "readme"):
        Path(f"art/{name}.txt").write_text(f"about {name}\n")

    recipe = images("art", label=False, keep_fields=["txt"])
    found = built(recipe)["train"]

    assert {path: each["txt"] for path, each in found.items()} == {"0.png": "about 0", "2.jpg": "about 2"}
    assert dict(recipe.left_out) == {".txt": 1}
    Path("art/0.txt").write_text("changed")
    assert built(images("art", label=False, keep_fields=["txt"]))["train"]["0.png"]["txt"] == "changed"


def test_flat_folders_of_splits_are_no_classes() -> None:
    pictures("flat/train/0.png", "flat/val/1.png")
    with pytest.raises(
        DeclarationError, match="the folders train, val are called as splits are, and hold images .*no-label"
    ):
        images("flat")
    assert {name: [*some] for name, some in built(images("flat", label=False)).items()} == {
        "train": ["0.png"],
        "val": ["1.png"],
    }
    assert images("flat", class_folder=1).declaration()


def test_a_folder_of_masks_is_no_class() -> None:
    pictures("seg/images/0.jpg", "seg/images/1.jpg", "seg/masks/0.png", "seg/masks/1.png")
    with pytest.raises(DeclarationError, match="in folders 'masks' are called as those in 'images', so they are masks"):
        images("seg")
    assert images("seg", class_folder=1).declaration() and images("seg", label=False).declaration()
    pictures("worn/face/0.jpg", "worn/mask/1.png")
    assert images("worn").declaration()


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            [{"file_name": "9.png"}],
            {},
            r"metadata.csv:2: a row is about the file '9.png', and there is none. .*image-root",
        ),
        ([{"file_name": "0.png"}, {"file_name": "0.png"}], {}, "two rows are about the file '0.png'.* into one row"),
        ([{"who": "0.png"}], {}, r"has no field such as file_name, .* names the image; it has who. .*--image-field"),
        (
            [{"file_name": "0.png", "a": 1}],
            {"label_field": "b"},
            r"label_field \(--label-field\): there is no field 'b'. There are: file_name, a",
        ),
        (
            [{"file_name": "0.png", "label": ""}],
            {},
            "the row about '0.png' has no value in 'label', which is the label",
        ),
        ([{"file_name": "0.png", "label": -1}], {}, r"label of '0.png' should .* or its number from 0 on, .* has '-1'"),
        ([{"file_name": "0.png", "label": "2.0"}], {}, r"has '2.0'\. .*--classes .*--no-label\), .* NAME:float32"),
        ([{"file_name": "0.png"}], {"keep_fields": {"file_name": "float3"}, "label": False}, "'float3' is no dtype"),
    ],
)
def test_rows_that_do_not_fit_are_refused(table: Any, options: Any, message: str) -> None:
    pictures("pets/0.png")
    rows("pets/metadata.csv", table)
    with pytest.raises((DeclarationError, DatasetError), match=message):
        images("pets", **options)


def test_options_of_rows_need_rows() -> None:
    pictures("pets/cat/0.png")
    with pytest.raises(DeclarationError, match=r"label_field \(--label-field\) is about rows, .* Put a metadata.csv"):
        images("pets", label_field="kind")


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ("[1, 2]", "float32[][4]", "'boxes' should be a list of lists of 4 numbers"),
        ([1.5], "int64[]", "'boxes' should be a list of numbers .int64., found"),
        ([300], "uint8[]", "'boxes' should be a list of numbers .uint8., found"),
        ("x", "int64", "'boxes' should be int64, found the text 'x'"),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, dtype: str, message: str) -> None:
    pictures("pets/0.png")
    rows("pets/metadata.jsonl", [{"file_name": "0.png", "boxes": value}])
    with pytest.raises(StageError, match=message):
        built(images("pets", label=False, keep_fields={"boxes": dtype}))


def test_lists_are_no_classes_and_numbers_are_with_their_names() -> None:
    pictures("pets/0.png", "pets/1.png")
    rows("pets/metadata.jsonl", [{"file_name": "0.png", "label": [1, 0]}, {"file_name": "1.png", "label": [0, 1]}])
    with pytest.raises(DeclarationError, match=r"'label' has \[1, 0\]\. .* NAME:int64\[\] for lists"):
        images("pets", classes=["[1, 0]", "[0, 1]"])

    rows("pets/metadata.jsonl", [{"file_name": "0.png", "label": -1}, {"file_name": "1.png", "label": 1}])
    found = built(images("pets", classes=["1", "-1"]))["train"]
    assert {path: int(each["label"]) for path, each in found.items()} == {"0.png": 1, "1.png": 0}
