"""Classes of images are names: found alike in directories and archives, kept in the cache, and not numbered anew."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media_files import archive, built, picture
from typer.testing import CliRunner

from beam_pipes import Cache, build
from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError, DeclarationError, StageError
from beam_pipes.recipes import images
from beam_pipes.recipes.image_pixels import encoded_image
from beam_pipes.recipes.media_files import Layout, layout_of
from beam_pipes.report.page import report_html

pytestmark = pytest.mark.usefixtures("here")

PNG = encoded_image(np.zeros((4, 4, 3), np.uint8), "png")


def pets(*names: str, root: str = "pets") -> None:
    for name in names:
        picture(f"{root}/{name}")


def labels(cache: Cache, split: str = "train") -> dict[str, str]:
    """File → the name of its class."""
    names = cache[split].spec["label"].class_names
    assert names is not None
    return {each["path"].rpartition("/")[2]: names[int(each["label"])] for each in cache[split]}


@pytest.mark.parametrize(
    ("folders", "layout"),
    [
        pytest.param(["cat", "dog"], Layout(0, [], ["cat", "dog"]), id="classes"),
        pytest.param(["cat"], Layout(0, [], ["cat"]), id="one_class"),
        pytest.param(["cat", "cat/young", "dog"], Layout(0, [], ["cat", "dog"]), id="deeper"),
        pytest.param(["cat/2020", "cat/2021", "dog/2022"], Layout(0, [], ["cat", "dog"]), id="deeper_that_differ"),
        pytest.param(["pets/cat", "pets/dog"], Layout(1, [], ["cat", "dog"]), id="around"),
        pytest.param(["a/b/cat", "a/b/dog"], Layout(2, [], ["cat", "dog"]), id="twice_around"),
        pytest.param(["cat/cat", "cat/dog"], Layout(1, [], ["cat", "dog"]), id="around_as_a_class"),
        pytest.param(["train/cat", "val/dog"], Layout(0, ["train", "val"], ["cat", "dog"]), id="splits"),
        pytest.param(["Train/cat", "Test/cat"], Layout(0, ["Test", "Train"], ["cat"]), id="splits_in_capitals"),
        pytest.param(["train/cat"], Layout(0, ["train"], ["cat"]), id="one_split"),
        pytest.param(["in/train/cat", "in/val/cat"], Layout(0, ["in/train", "in/val"], ["cat"]), id="splits_inside"),
        pytest.param(
            ["train/in/cat", "val/in/dog"], Layout(1, ["train", "val"], ["cat", "dog"]), id="around_in_splits"
        ),
        pytest.param(["train", "car"], Layout(0, [], ["car", "train"]), id="a_class_called_train"),
    ],
)
def test_layouts_of_folders(folders: list[str], layout: Layout) -> None:
    assert layout_of(folders) == layout


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (
            ["train/cat", "val/cat", "extra"],
            "the folders train, val are called as splits are, and hold folders of their",
        ),
        (
            ["siteA/cat", "siteA/dog", "siteB/cat"],
            "the inner ones repeat: cat, dog in siteA, siteB. Say which level is",
        ),
    ],
)
def test_layouts_that_are_not_clear_are_refused(folders: list[str], words: str) -> None:
    pets(*(f"{folder}/1.png" for folder in folders))

    with pytest.raises(DeclarationError, match=re.escape(words)):
        images("pets", resize=4)

    cache = built(images("pets", resize=4, class_folder=1))
    assert cache["train"].spec["label"].class_names == tuple(sorted({each.split("/")[0] for each in folders}))
    assert "class_folder=1" in images("pets", resize=4, class_folder=1).python


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize(
    "words", [["pets"], ["-C", "pets", "."], ["-C", "pets", "cat", "dog"], ["./pets/cat", "./pets/dog"]], ids=str
)
def test_an_archive_of_a_folder_has_the_classes_of_the_folder(words: list[str], suffix: str) -> None:
    pets("cat/1.png", "cat/a.b.png", "dog/2.PNG", "dog/young/3.png", "cat/.ipynb_checkpoints/x.png")
    flags = "-czf" if suffix == ".tar.gz" else "-cf"
    subprocess.run(["tar", *([flags, f"pets{suffix}", *words])], check=True)
    result = build(images("pets", resize=4).declaration(), to="folder", workers=1)
    folder = Cache.open(result.path)

    result = build(images(f"pets{suffix}", resize=4).declaration(), to="archive", workers=1)

    whole = Cache.open(result.path)
    assert labels(whole) == labels(folder) == {"1.png": "cat", "a.b.png": "cat", "2.PNG": "dog", "3.png": "dog"}
    assert whole["train"].spec["label"].class_names == ("cat", "dog") == folder["train"].spec["label"].class_names
    assert result.account.units["image_example"].dropped == {"hidden": 1}
    assert images("pets", resize=4).left_out == {"hidden": 1}
    for cache in (whole, folder):
        assert '"cat"' in Path(cache.path, "manifest.json").read_text()


def test_archives_with_splits_inside_are_refused_and_one_split_is_passed_by() -> None:
    archive("one.tar", {"train/cat/1.png": PNG, "train/dog/2.png": PNG})
    archive("two.tar", {"train/cat/1.png": PNG, "val/cat/2.png": PNG})

    assert labels(built(images("one.tar", resize=4))) == {"1.png": "cat", "2.png": "dog"}
    with pytest.raises(
        DeclarationError, match="train, val are called .* of their own, and archives are not split by f"
    ):
        build(images("two.tar", resize=4).declaration(), to="two", workers=1)


def test_members_that_share_a_name_up_to_a_dot_are_not_taken_for_one_image() -> None:
    archive("pets.tar", {"cat/0.png": PNG, "cat/img.1.png": PNG, "cat/img.2.png": PNG})

    with pytest.raises(
        StageError, match="the sample 'cat/img' has 1.png, 2.png, because members that share their name"
    ):
        build(images("pets.tar", resize=4, label=False).declaration(), to="cache", workers=1)


@pytest.mark.parametrize("kind", ["folder", "archive", "field"])
def test_a_class_that_comes_later_does_not_number_the_others_again(kind: str) -> None:
    def data(*names: str) -> Any:
        if kind == "folder":
            shutil.rmtree("pets", ignore_errors=True)
            pets(*(f"{name}/{name}.png" for name in names))
            return "pets"
        if kind == "archive":
            archive("pets.tar", {f"in/{name}/{name}.png": PNG for name in names})
        else:
            members = {f"{name}.png": PNG for name in names} | {f"{name}.txt": name.encode() for name in names}
            archive("pets.tar", dict(sorted(members.items())))
        return "pets.tar"

    def make(*names: str, **options: Any) -> Cache:
        field = {"label_field": "txt"} if kind == "field" else {}
        overwrite = options.pop("overwrite", False)
        recipe = images(data(*names), resize=4, **field, **options)
        return Cache.open(build(recipe.declaration(), to="cache", workers=1, overwrite=overwrite).path)

    make("cat", "dog")
    words = (
        "classes of 'label' would be renumbered: cat 0 → 1, dog 1 → 2. Whoever has trained on them would read "
        "other labels. Keep the numbers: --classes cat,dog,bird (classes=[…] in Python). Or renumber them: --overwr"
    )
    with pytest.raises(DeclarationError, match=re.escape(words)):
        make("cat", "dog", "bird")
    with pytest.raises(DeclarationError, match=re.escape("cat 0 → none, dog 1 → 0. ")):
        make("dog")
    assert labels(Cache.open("cache")) == {"cat.png": "cat", "dog.png": "dog"}

    kept = make("cat", "dog", "bird", classes=["cat", "dog", "bird"])
    assert kept["train"].spec["label"].class_names == ("cat", "dog", "bird")
    assert labels(kept) == {"cat.png": "cat", "dog.png": "dog", "bird.png": "bird"}
    with pytest.raises(BeamPipesError, match="cow"):  # not among them
        make("cat", "dog", "cow", classes=["cat", "dog", "bird"])
    assert make("cat", "dog", "bird", overwrite=True)["train"].spec["label"].class_names == ("bird", "cat", "dog")


def test_more_classes_at_the_end_and_the_same_again_are_no_change() -> None:
    pets("cat/1.png", "dog/2.png")
    build(images("pets", resize=4).declaration(), to="cache", workers=1)
    assert build(images("pets", resize=4, classes=["cat", "dog"]).declaration(), to="cache", workers=1).up_to_date

    pets("emu/3.png")
    cache = Cache.open(build(images("pets", resize=4).declaration(), to="cache", workers=1).path)

    assert cache["train"].spec["label"].class_names == ("cat", "dog", "emu")


def test_labels_that_are_numbers_may_have_names() -> None:
    archive("pets.tar", {"1.png": PNG, "1.cls": b"1", "2.png": PNG, "2.cls": b"0"})

    assert labels(built(images("pets.tar", resize=4, classes=["cat", "dog"]))) == {"1.png": "dog", "2.png": "cat"}
    with pytest.raises(BeamPipesError, match="label"):
        build(images("pets.tar", resize=4, classes=["cat"]).declaration(), to="other", workers=1)


@pytest.mark.parametrize("options", [{"class_folder": 0}, {"class_folder": 1, "label": False}])
def test_a_folder_that_cannot_be_the_class_is_refused(options: dict[str, Any]) -> None:
    pets("cat/1.png")
    with pytest.raises(DeclarationError, match="class_folder counts folders from 1 at the top, and is for labels that"):
        images("pets", **options)


def test_commands_and_reports_show_the_names_of_classes() -> None:
    pets("cat/1.png", "dog/2.png")
    runner = CliRunner()
    printed = runner.invoke(app, ["images", "pets", "--resize", "4", "--to", "cache", "--workers", "1", "--no-report"])
    assert "classes: 0 cat, 1 dog" in printed.output

    assert "classes of label: 0 cat, 1 dog" in runner.invoke(app, ["stats", "cache"]).output
    assert re.search(r"label: int64 1\s+dog", runner.invoke(app, ["inspect", "cache", "-n", "2"]).output)
    assert "(0 cat, 1 dog)" in report_html("cache")

    pets("bird/3.png")
    printed = runner.invoke(app, ["images", "pets", "--resize", "4", "--to", "cache", "--no-report"])
    assert printed.exit_code != 0
    Path("names").write_text("cat\ndog\nbird\n")
    options = [
        "images",
        "pets",
        "--resize",
        "4",
        "--to",
        "cache",
        "--workers",
        "1",
        "--no-report",
        "--classes",
        "names",
    ]
    assert "classes: 0 cat, 1 dog, 2 bird" in runner.invoke(app, options).output
    printed = runner.invoke(app, ["images", "pets", "--to", "other", "--classes", "cat,,dog"])
    assert "--classes should be different names, such as cat,dog, or a file of them; got 'cat,,dog'." in str(
        printed.exception
    )


@pytest.mark.parametrize("root", ["pets", "in/pets", "train"])
def test_folders_without_images_are_counted_by_their_names(root: str) -> None:
    pets("cat/1.png", "dog/1.png", root=root)
    for name in ("bird/1.psd", "bird/old/2.psd", "cat/1.txt", "LICENSE.txt"):
        (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(root) / name).write_bytes(b"-")

    recipe = images(root.split("/")[0] if root != "train" else ".")

    assert recipe.left_out == {".txt": 2, "in 'bird', a folder without images": 2}


def test_labels_that_are_one_number_in_two_spellings_are_refused(tmp_path: Path) -> None:
    pets("1.png", "2.png")
    Path("pets/metadata.csv").write_text("file_name,label\n1.png,007\n2.png,7\n")

    with pytest.raises(
        DeclarationError, match=r"the labels '007' and '7' \(of '2.png'\) are one number. If they are one"
    ):
        images("pets")
    Path("pets/metadata.csv").write_text("file_name,label\n1.png,01\n2.png,00\n")
    assert [int(each["label"]) for each in built(images("pets"))["train"]] == [1, 0]


def test_what_pillow_reads_has_its_class() -> None:
    pets("cat/1.jpg", "dog/2.gif", "fox/3.jfif", "hen/4.PPM", "owl/5.jp2")
    cache = built(images("pets", resize=4))
    assert labels(cache) == {"1.jpg": "cat", "2.gif": "dog", "3.jfif": "fox", "4.PPM": "hen", "5.jp2": "owl"}
