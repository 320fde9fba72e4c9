"""The recipes `images` and `audio` over samples of tar archives."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from media_files import RATE, archive, built, loaded, picture, wav

from beam_pipes import Cache, build
from beam_pipes.errors import DeclarationError, StageError
from beam_pipes.recipes import audio, images
from beam_pipes.recipes.image_pixels import encoded_image

pytestmark = pytest.mark.usefixtures("here")


def png(brightness: int) -> bytes:
    return encoded_image(np.full((9, 12, 3), brightness, np.uint8), "png")


LAYOUTS: dict[str, Any] = {
    "a_class_number": (lambda n: {f"{n}.png": png(n), f"{n}.cls": b"%d" % (n % 2)}, {}, [0, 1, 0, 1]),
    "a_number_in_json": (lambda n: {f"{n}.json": b'{"label": %d}' % (7 * n), f"{n}.png": png(n)}, {}, [0, 7, 14, 21]),
    "a_name_in_json": (
        lambda n: {f"{n}.PNG": png(n), f"{n}.json": json.dumps({"species": "wasp" if n else "bee"}).encode()},
        {"label_field": "json.species"},
        [0, 1, 1, 1],
    ),
    "folders": (lambda n: {f"{'cow' if n else 'rat'}/{n}.png": png(n)}, {}, [1, 0, 0, 0]),
    "a_number_wins_over_folders": (lambda n: {f"a/{n}.png": png(n), f"a/{n}.cls": b"3"}, {}, [3, 3, 3, 3]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_of_archives_are_images_with_labels(layout: str) -> None:
    members, options, labels = LAYOUTS[layout]
    archive("one.tar", {**members(0), **members(1), "readme.txt": b"no image"})
    archive("two.tar.gz", {**members(2), **members(3)})
    recipe = images(["one.tar", "two.tar.gz"], resize=6, **options)

    result = build(recipe.declaration(), to="cache", workers=1)

    examples = list(Cache.open("cache")["train"])
    assert [each["label"] for each in examples] == labels
    assert [each["image"].max() for each in examples] == [0, 1, 2, 3]
    assert [PurePosixPath(each["path"]).stem for each in examples] == ["0", "1", "2", "3"]
    assert result.account.units["image_example"].dropped == {"no_image": 1}
    assert loaded(recipe, Cache.open("cache"))["image"].shape == (4, 6, 6, 3)


def test_captions_boxes_and_masks_of_samples_are_kept() -> None:
    """With a sample that lacks them all."""
    about = json.dumps({"boxes": [[1, 2, 3, 4]]}).encode()
    archive("a.tar", {"0.png": png(0), "0.txt": b"a bee", "0.json": about, "0.mask.png": png(9), "1.png": png(1)})
    keep = {"txt": "str", "json.boxes": "str", "mask.png": "bytes"}

    first, second = built(images("a.tar", label=False, keep_fields=keep))["train"]

    assert [first[name] for name in keep] == ["a bee", "[[1, 2, 3, 4]]", png(9)]
    assert second["txt"] == second["json.boxes"] == "" and second["mask.png"] == b""
    assert first["image"] == png(0)


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        ("a.tar", "txt", "the first sample has no field 'txt'; it has png"),
        ("a.tar", "path", "the field 'path' cannot be kept: images have one of that name"),
        ("pets", "txt", "keep_fields .--keep-field. is about rows, or samples of tar archives, and"),
    ],
)
def test_fields_of_images_that_cannot_be_kept_are_refused(data: str, field: str, words: str) -> None:
    archive("a.tar", {"0.png": png(0)})
    picture("pets/cat/0.png")

    with pytest.raises(DeclarationError, match=words):
        images(data, label=data == "pets", keep_fields=[field])


def test_a_directory_of_archives_and_a_pattern_are_archives_and_directories_stay_directories() -> None:
    Path("shards").mkdir()
    archive("shards/a.tar", {"cat/1.png": png(1)})
    assert (
        images("shards", resize=4).declaration().fingerprints
        == images("shards/*.tar", resize=4).declaration().fingerprints
    )
    assert "Tar(" in images("shards").python and "Tar(" in images("shards/*.tar").python
    picture("shards/dog/1.png")
    assert "Files(" in images("shards").python


def test_images_of_archives_stay_together_by_their_names_and_need_no_labels() -> None:
    archive("scans.tar", {f"patient{n % 6}-{n}.png": png(n) for n in range(24)})
    recipe = images("scans.tar", label=False, by=r"(patient\d+)-", splits={"train": 0.5, "eval": 0.5})

    cache = built(recipe)

    groups = [{each["group"] for each in cache[split]} for split in cache.splits]
    assert groups[0] | groups[1] == {f"patient{n}" for n in range(6)} and not groups[0] & groups[1]
    assert "label" not in cache["train"].spec


def test_a_sample_whose_label_is_not_a_number_is_one_dead_letter() -> None:
    archive("a.tar", {"1.png": png(1), "1.json": b'{"label": 3}', "2.png": png(2), "2.json": b'{"label": "bee"}'})

    build(images("a.tar", on_error="dead_letter").declaration(), to="cache", workers=1)

    (letter,) = Cache.open("cache").dead_letters()
    assert "expected the field 'json.label' to hold a number, as in the first sample, found 'bee' in '2.png'" in (
        letter.message
    )


@pytest.mark.parametrize(
    ("layout", "texts"),
    [
        ({"a.flac": "sound", "a.txt": b"to be\n", "b.wav": "sound", "b.txt": b"or not"}, ["to be", "or not"]),
        ({"a.wav": "sound", "a.json": b'{"transcript": "to be", "speaker": 3}'}, ["to be"]),
        ({"a.wav": "sound"}, None),
    ],
)
def test_samples_of_archives_are_sound_with_transcripts(layout: dict[str, Any], texts: list[str] | None) -> None:
    archive("talks.tar", {name: wav(0.5) if content == "sound" else content for name, content in layout.items()})
    keep = {"json.speaker": "int64"} if "a.json" in layout else {}
    recipe = audio("talks.tar", sample_rate=RATE, keep_fields=keep)

    cache = built(recipe)

    examples = list(cache["train"])
    assert [each.get("text") for each in examples] == (texts or [None])
    assert all(each["num_samples"] == RATE / 2 == len(each["audio"]) for each in examples)
    assert [each["json.speaker"] for each in examples if keep] == ([3] if keep else [])
    assert loaded(recipe, cache)["audio"].shape == (len(examples), RATE // 2)


def test_extensions_of_samples_may_be_in_capitals() -> None:
    archive("talks.tar", {"1.WAV": wav(0.5), "1.TXT": b"to be", "2.WAV": wav(0.5), "2.JSON": b'{"text": "x"}'})
    archive("pets.tar", {"1.PNG": png(1), "1.CLS": b"3"})

    assert [each["text"] for each in built(audio("talks.tar", sample_rate=RATE))["train"]] == ["to be"]
    assert [each["label"] for each in built(images("pets.tar"), to="pets")["train"]] == [3]


def test_archives_whose_samples_are_torn_apart_are_refused() -> None:
    archive("talks.tar", {"d/a.wav": wav(0.5), "d/b.wav": wav(0.5), "d/a.txt": b"to be", "d/b.txt": b"or not"})
    message = (
        "the members of the sample 'a' are not side by side in .*talks.tar': 'd/a.txt' comes after those of other "
        "samples. Pack the files in the order of their names: tar --sort=name -cf sorted.tar -C DIRECTORY ."
    )
    with pytest.raises(DeclarationError, match=message):
        audio("talks.tar")
    archive("pets.tar", {"d/a.png": png(1), "d/b.png": png(2), "d/a.txt": b"to be", "d/b.txt": b"or not"})
    with pytest.raises(DeclarationError, match=message.replace("talks", "pets")):
        images("pets.tar")


def test_samples_whose_text_is_null_or_blank_have_no_transcript() -> None:
    texts = {"a": "to be", "b": None, "c": "", "d": " \n"}
    members = {f"{name}.{end}": end for name in texts for end in ("wav", "json")}
    archive(
        "talks.tar",
        {
            name: wav(0.1) if end == "wav" else json.dumps({"text": texts[name[0]]}).encode()
            for name, end in members.items()
        },
    )

    account = build(audio("talks.tar", sample_rate=RATE).declaration(), to="cache", workers=1).account

    assert account.units["audio_example"].dropped == {"no_transcript": 3}
    assert [each["text"] for each in Cache.open("cache")["train"]] == ["to be"]


def test_samples_without_sound_or_transcript_are_dropped_with_a_reason() -> None:
    archive(
        "talks.tar",
        {"a.wav": wav(0.5), "a.txt": b"to be", "b.wav": wav(0.5), "c.txt": b"or not", ".trash/d.wav": wav(0.5)},
    )

    account = build(audio("talks.tar", sample_rate=RATE).declaration(), to="cache", workers=1).account

    assert account.units["audio_example"].dropped == {"no_transcript": 1, "no_audio": 1, "hidden": 1}


@pytest.mark.parametrize(
    ("recipe", "data", "options", "message"),
    [
        (
            images,
            ["pets.tar", "notes.txt"],
            {},
            "several paths should all be tar archives, but 'notes.txt' is not one.",
        ),
        (
            images,
            "talks.tar",
            {},
            "samples of tar archives should have an image, but the first sample has __key__, wav",
        ),
        (
            images,
            "empty.tar",
            {},
            "samples of tar archives should have an image, but there are no samples; known suffixes a",
        ),
        (
            images,
            "pets.tar",
            {},
            "the first sample, '1', has no label: it has png, json, and is not in a folder.",
        ),
        (
            images,
            "pets.tar",
            {"label_field": "json.x"},
            "the first sample has no field 'json.x'; it has png, j",
        ),
        (
            images,
            "pets",
            {"label_field": "cls"},
            "label_field (--label-field) is about rows, or samples of tar archives, and",
        ),
        (
            audio,
            "pets.tar",
            {},
            "samples of tar archives should have sound, but the first sample has __key__, png, json",
        ),
        (audio, "talks.tar", {"audio_root": "."}, "audio_root is for manifests, but the data are tar archives. Omit "),
        (
            audio,
            "talks.tar",
            {"text_field": "txt"},
            "the first sample has no field 'txt'; it has wav. Name a ",
        ),
        (
            audio,
            "talks.tar",
            {"keep_fields": ["json.a"]},
            "the first sample has no field 'json.a'; it has wav",
        ),
    ],
)
def test_archives_that_do_not_fit_are_refused(recipe: Any, data: Any, options: dict[str, Any], message: str) -> None:
    archive("pets.tar", {"1.png": png(1), "1.json": b"{}"})
    archive("talks.tar", {"1.wav": wav(0.5)})
    archive("empty.tar", {})
    Path("notes.txt").write_text("a")
    picture("pets/cat/1.png")

    with pytest.raises(DeclarationError, match=re.escape(message)):
        recipe(data, **options)


def test_a_sample_without_its_label_says_what_to_do_at_the_command_line() -> None:
    archive("a.tar", {"1.png": png(1), "1.json": b'{"label": 3}', "2.png": png(2), "2.json": b'{"x": 1}'})

    words = "which is its label, and has __key__, png, json. Name a different one (--label-field), add it, or leave out"
    with pytest.raises(StageError, match=re.escape(words)):
        build(images("a.tar", resize=4).declaration(), to="cache", workers=1)


def test_files_beside_archives_are_counted() -> None:
    Path("in").mkdir()
    archive("in/a.tar", {"cat/1.png": png(1)})
    for name in ("README.md", "sizes.json", ".b.tar", "c.tar", "d.tgz"):
        Path("in", name).write_text("")

    left_out = images("in", resize=4).left_out

    assert left_out == {".json": 1, ".md": 1, ".tgz": 1, "hidden": 1, "empty": 1}


def test_an_index_beside_an_archive_is_no_archive() -> None:
    Path("shards").mkdir()
    archive("shards/a.tar", {"cat/1.png": png(1), "dog/2.png": png(2)})
    Path("shards/a.tar.idx").write_text("v1.2 2")
    recipe = images("shards", resize=4)
    assert [each["path"] for each in built(recipe)["train"]] == ["cat/1.png", "dog/2.png"]
    assert recipe.left_out == {".idx": 1}


def test_archives_may_begin_with_samples_of_other_kinds() -> None:
    archive(
        "pets.tar",
        {
            "pets/notes.txt": b"about",
            "a.1.png": png(1),
            "a.2.png": png(1),
            ".hidden/1.png": png(1),
            "pets/cat/1.png": png(1),
        },
    )

    cache = built(images("pets.tar", resize=4, on_error="drop"))

    assert cache["train"].spec["label"].class_names == ("cat",)
    assert [each["path"] for each in cache["train"]] == ["pets/cat/1.png"]
