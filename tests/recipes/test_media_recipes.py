"""The recipes `images` and `audio`: what they declare, and what becomes of files."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from beam_pipes import Cache, Loader, build
from beam_pipes.errors import DatasetError, DeclarationError
from beam_pipes.recipes import Recipe, audio, audio_example, decode_images, image_example, images
from beam_pipes.recipes.images import decoded_image, encoded_image, fitted
from beam_pipes.sources import FileContent
from beam_pipes.transforms.audio import Transcripts

RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def picture(path: str, *, height: int = 20, width: int = 40, left: tuple[int, ...] = RED) -> None:
    """A picture whose left half is of one colour and whose right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2], pixels[:, width // 2 :] = left, BLUE
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def pets() -> None:
    for pet in ("cat", "dog"):
        for number in range(4):
            picture(f"pets/{pet}/{number}.{'PNG' if number % 2 else 'png'}")
    Path("pets/README.md").write_text("about")


def built(recipe: Recipe, to: str = "cache") -> Cache:
    build(recipe.declaration(), to=to, workers=1)
    return Cache.open(to)


def loaded(recipe: Recipe, cache: Cache) -> dict[str, Any]:
    """The first batch, by the lines that the recipe says load it."""
    names: dict[str, Any] = {}
    lines = recipe.loading(f"{cache.path}/train", num_records=len(cache["train"]))
    exec("\n".join(lines).replace("...", "break"), names)
    batch: dict[str, Any] = names["batch"]
    return batch


# Images.


def test_folders_are_classes_and_images_have_one_size() -> None:
    pets()
    recipe = images("pets", resize=10)

    cache = built(recipe)

    examples = {example["path"]: example for example in cache["train"]}
    assert {path: int(example["label"]) for path, example in examples.items()} == {
        f"{pet}/{number}.{'PNG' if number % 2 else 'png'}": label
        for label, pet in enumerate(("cat", "dog"))
        for number in range(4)
    }
    assert examples["cat/0.png"]["image"][:, [0, 9]].tolist() == [[list(RED), list(BLUE)]] * 10
    assert loaded(recipe, cache)["image"].shape == (8, 10, 10, 3)


@pytest.mark.parametrize(
    ("fit", "row"),
    [
        ("crop", [RED] * 5 + [BLUE] * 5),
        ("stretch", [RED] * 5 + [BLUE] * 5),
        ("pad", [RED] * 5 + [BLUE] * 5),
    ],
)
def test_an_image_fits_into_a_size(fit: str, row: list[Any]) -> None:
    picture("a.png", height=20, width=40)

    image = fitted(decoded_image(Path("a.png").read_bytes()), (10, 10), fit=fit)

    assert image.shape == (10, 10, 3)
    middle = image[5].tolist()
    assert middle[:4] + middle[6:] == [list(each) for each in row[:4] + row[6:]]
    assert (image[0].max() == 0) == (fit == "pad")


def test_odd_margins_and_odd_cuts_keep_the_size() -> None:
    for shape in ((7, 12), (12, 7), (1, 9), (5, 5)):
        for fit in ("crop", "pad", "stretch"):
            assert fitted(np.full((*shape, 3), 9, np.uint8), (5, 5), fit=fit).shape == (5, 5, 3)


@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_encoded_images_are_decoded_by_the_loader(encode: str) -> None:
    pets()
    recipe = images("pets", resize=(8, 16), encode=encode, quality=95)

    cache = built(recipe)
    batch = loaded(recipe, cache)

    first = next(iter(cache["train"]))["image"]
    assert Image.open(io.BytesIO(first)).size == (16, 8)
    assert batch["image"].shape == (8, 8, 16, 3) and batch["image"].dtype == np.uint8
    assert np.abs(batch["image"][:, 4, 2].astype(int) - RED).max() <= (0 if encode == "png" else 8)


def test_files_are_stored_as_they_are_unless_they_are_resized() -> None:
    pets()
    recipe = images("pets")

    cache = built(recipe)

    assert next(iter(cache["train"]))["image"] == Path("pets/cat/0.png").read_bytes()
    batch = loaded(recipe, cache)
    assert decode_images(batch, size=(5, 6))["image"].shape == (8, 5, 6, 3)
    assert Loader(cache["train"], batch_size=2).features == ("image", "label", "path")


def test_folders_called_as_splits_are_splits() -> None:
    for split in ("train", "val"):
        for pet in ("cat", "dog"):
            picture(f"pets/{split}/{pet}/{split}.png")
    recipe = images("pets", resize=4)

    cache = built(recipe)

    assert {split: [(each["path"], int(each["label"])) for each in cache[split]] for split in cache.splits} == {
        "train": [("cat/train.png", 0), ("dog/train.png", 1)],
        "val": [("cat/val.png", 0), ("dog/val.png", 1)],
    }
    with pytest.raises(DeclarationError, match="the folders train, val of 'pets' are already splits, but splits were"):
        images("pets", splits={"train": 1.0})
    assert images("pets/train", splits={"train": 0.5, "eval": 0.5}).declaration().splits == ("train", "eval")


def test_what_a_regular_expression_finds_in_paths_stays_together() -> None:
    for number in range(24):
        picture(f"scans/{'ill' if number % 3 else 'well'}/patient{number % 8:02}-{number}.png")
    picture("scans/ill/nobody.png")
    recipe = images("scans", by=r"(patient\d+)-", splits={"train": 0.5, "eval": 0.5})

    result = build(recipe.declaration(), to="cache", workers=1)

    cache = Cache.open("cache")
    groups = [{each["group"] for each in cache[split]} for split in cache.splits]
    assert groups[0] | groups[1] == {f"patient{number:02}" for number in range(8)}
    assert groups[0] and groups[1] and not groups[0] & groups[1]
    assert result.account.units["image_example"].dropped == {"no_group": 1}


@pytest.mark.parametrize("resize", [4, None])
def test_a_damaged_image_is_one_dead_letter(resize: int | None) -> None:
    pets()
    Path("pets/cat/9.png").write_bytes(Path("pets/cat/0.png").read_bytes()[:60])
    recipe = images("pets", resize=resize, on_error="dead_letter")

    account = build(recipe.declaration(), to="cache", workers=1).account

    assert (account.written, account.dead) == (8, 1)
    with pytest.raises(ValueError, match="the image file of 60 bytes is damaged"):
        image_example(FileContent("9.png", Path("pets/cat/9.png").read_bytes()), size=(4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encode": "pixels"},
            "pixels of images that differ in size do not fit into one array. Give them one with res",
        ),
        (
            {"resize": 9, "encode": "files"},
            "files that are stored as they are cannot be resized. Choose encode='jpeg',",
        ),
        ({"resize": 9, "encode": "gif"}, "encode should be one of pixels, jpeg, png, files, got 'gif'."),
        ({"resize": 9, "fit": "cut"}, "fit should be one of crop, pad, stretch, got 'cut'."),
        ({"resize": (0, 9)}, "resize should be a number of pixels, or height and width, got (0, 9)."),
        ({"resize": 9, "quality": 0}, "quality is that of JPEG, 1 to 100, got 0."),
        ({"by": "(", "splits": {"train": 1.0}}, "by='(' should be a regular expression: "),
        ({"by": "x"}, "by='x' says what stays in one split, but there are no splits."),
    ],
)
def test_options_of_images_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    pets()
    with pytest.raises(DeclarationError, match=re.escape(message)):
        images("pets", **options)


def test_directories_without_classes_or_images_are_refused() -> None:
    picture("mixed/cat/1.png")
    picture("mixed/2.png")
    Path("none").mkdir()
    Path("none/a.txt").write_text("a")
    with pytest.raises(
        DeclarationError, match="the image '2.png' is not in a folder, so it has no class. Move it into"
    ):
        images("mixed")
    assert "label" not in images("mixed", label=False).declaration().features
    with pytest.raises(DeclarationError, match="there are no images in 'none'; known are .bmp, .jpeg, .jpg, .png,"):
        images("none")
    with pytest.raises(
        DeclarationError, match="'absent' should be a directory of images, but is not a directory. Name o"
    ):
        images("absent")


def test_pixels_survive_png() -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    assert decoded_image(encoded_image(pixels, "png")).tolist() == pixels.tolist()


# Sound.

RATE = 8000


def tone(path: str, *, secs: float = 0.5, rate: int = RATE) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * 200 * np.arange(round(secs * rate)) / rate), rate)


def clips(lines: list[dict[str, Any]] | None = None) -> None:
    """Three clips of half a second, one second and one and a half, and a manifest."""
    for number in range(3):
        tone(f"talks/clips/{number}.wav", secs=(number + 1) / 2)
    rows = [{"audio_filepath": f"clips/{n}.wav", "text": f"to be {n}", "speaker": n % 2} for n in range(3)]
    Path("talks/manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines or rows))


def test_a_manifest_names_files_and_what_is_said_in_them() -> None:
    clips()
    recipe = audio("talks/manifest.jsonl", sample_rate=16_000, keep_fields={"speaker": "int64"})

    cache = built(recipe)

    assert [(each["path"], each["text"], each["speaker"], each["num_samples"]) for each in cache["train"]] == [
        ("clips/0.wav", "to be 0", 0, 8000),
        ("clips/1.wav", "to be 1", 1, 16000),
        ("clips/2.wav", "to be 2", 0, 24000),
    ]
    wave = next(iter(cache["train"]))["audio"]
    expected = 0.5 * np.sin(2 * np.pi * 200 * np.arange(8000) / 16_000)
    assert wave.dtype == np.float32 and np.abs(wave - expected)[500:-500].max() < 1e-3
    assert loaded(recipe, cache)["audio"].shape == (3, 24000)


@pytest.mark.parametrize("name", ["manifest.csv", "manifest.tsv", "metadata.csv"])
def test_manifests_are_csv_tsv_or_as_in_ljspeech(name: str) -> None:
    for clip in ("a", "b"):
        tone(f"talks/wavs/{clip}.flac")
    separator = {"manifest.csv": ",", "manifest.tsv": "\t", "metadata.csv": "|"}[name]
    rows = [["file", "said", "sentence"], ["a.flac", "x", "to be"], ["wavs/b.flac", "y", "or, not"]]
    if name == "metadata.csv":
        rows = [["a", "1", "to be"], ["b", "2", "or, not"]]
    quoted = [[f'"{field}"' if separator == "," else field for field in row] for row in rows]
    Path(f"talks/{name}").write_text("".join(separator.join(row) + "\n" for row in quoted))

    cache = built(audio("talks" if name == "metadata.csv" else f"talks/{name}", sample_rate=RATE))

    assert [each["text"] for each in cache["train"]] == ["to be", "or, not"]


def librispeech() -> None:
    for speaker, chapter in ((84, 121), (97, 5), (99, 1), (100, 2)):
        folder = f"libri/{speaker}/{chapter}"
        for number in range(3):
            tone(f"{folder}/{speaker}-{chapter}-{number:04}.flac", rate=16_000)
        lines = [f"{speaker}-{chapter}-{number:04} GO {number}\n" for number in range(3)]
        Path(f"{folder}/{speaker}-{chapter}.trans.txt").write_text("".join(lines))


def test_side_files_of_librispeech_have_text_and_speakers() -> None:
    librispeech()
    recipe = audio("libri", by="speaker", keep_fields=["chapter"], splits={"train": 0.5, "eval": 0.5}, seed=1)

    cache = built(recipe)

    examples = [example for split in cache.splits for example in cache[split]]
    assert {(each["path"], each["text"], each["chapter"]) for each in examples} >= {
        ("84/121/84-121-0000.flac", "GO 0", "121"),
        ("100/2/100-2-0002.flac", "GO 2", "2"),
    }
    speakers = [{each["speaker"] for each in cache[split]} for split in cache.splits]
    assert speakers[0] | speakers[1] == {"84", "97", "99", "100"} and not speakers[0] & speakers[1]


def test_a_changed_transcript_is_another_declaration() -> None:
    librispeech()
    recipe = audio("libri")
    before = built(recipe).manifest.snapshot
    side = Path("libri/84/121/84-121.trans.txt")
    side.write_text(side.read_text().replace("GO 0", "STAY"))

    after = built(audio("libri"))

    assert after.manifest.snapshot != before
    assert next(each["text"] for each in after["train"] if each["path"].startswith("84/")) == "STAY"


def test_sound_is_dropped_with_a_reason_and_stored_as_integers() -> None:
    clips()
    tone("talks/clips/9.wav")
    recipe = audio("talks/manifest.jsonl", sample_rate=RATE, dtype="int16", min_secs=0.6, max_secs=1.2)

    result = build(recipe.declaration(), to="cache", workers=1)

    unit = result.account.units["audio_example"]
    assert unit.dropped == {"too_short": 1, "too_long": 1, "no_transcript": 1}
    (example,) = Cache.open("cache")["train"]
    assert example["audio"].dtype == np.int16 and 16_000 < example["audio"].max() < 16_400
    assert str(unit.statistics["audio_example_milliseconds"]) == "audio_example_milliseconds: 1000"


def test_sound_without_transcripts_has_no_text() -> None:
    tone("sounds/a/1.ogg", rate=16_000)

    (example,) = built(audio("sounds"))["train"]

    assert sorted(example) == ["audio", "num_samples", "path"]
    with pytest.raises(
        DeclarationError, match="the field 'speaker' belongs to transcripts, but there are none in 'sou"
    ):
        audio("sounds", by="speaker", splits={"train": 1.0})
    with pytest.raises(DatasetError, match=r"cannot decode sound from 3 bytes: Format not recognised\.$"):
        audio_example(FileContent("a.wav", b"RIF"), sample_rate=RATE)


@pytest.mark.parametrize(
    ("named", "path", "is_same"),
    [
        ("/data/clips/1.wav", "clips/1.wav", True),
        ("1.wav", "clips/1.wav", True),
        ("1", "clips/1.wav", True),
        ("./clips/1", "clips/1.wav", True),
        ("clips/1.flac", "clips/1.wav", False),
        ("other/1.wav", "clips/1.wav", False),
        ("11.wav", "clips/1.wav", False),
        ("84-1.a", "84-1.a.wav", True),
    ],
)
def test_a_row_names_a_file_by_the_end_of_its_path(named: str, path: str, is_same: bool) -> None:
    Path("m.jsonl").write_text(json.dumps({"audio": named, "text": "x"}) + "\n")
    from beam_pipes.identity.canonical import Asset

    row = Transcripts(files=[Asset("m.jsonl")]).row(path)

    assert (row is not None) == is_same


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"audio": "0.wav"}], {}, "manifest.jsonl has no field 'text or transcript or transcription or sentence or "),
        (
            [{"a": "0.wav", "text": ""}],
            {},
            "that names the sound file; it has a, text. Name a different one as audio_field=",
        ),
        (
            [{"audio": "0.wav", "t": ""}],
            {"text_field": "x"},
            "has no field 'x' that is the transcript; it has audio, t.",
        ),
        (
            [{"audio": "7.wav", "text": ""}],
            {},
            "a transcript is about the file '7.wav', and there is none. Name the dir",
        ),
        (
            [{"audio": n, "text": ""} for n in ("0.wav", "clips/0.wav")],
            {},
            "two transcripts are about the file 'clips/0",
        ),
        (
            [{"audio": "0.wav", "text": ""}],
            {"keep_fields": ["age"]},
            "the transcript of '0.wav' has no field 'age'; it has audio, text.",
        ),
        (None, {"dtype": "int8"}, "dtype should be one of float32, int16, got 'int8'."),
        (None, {"sample_rate": 0}, "sample_rate is a number of Hz, such as 16000, got 0."),
    ],
)
def test_manifests_that_do_not_fit_are_refused(
    rows: list[dict[str, Any]] | None, options: dict[str, Any], message: str
) -> None:
    clips(rows)
    with pytest.raises((DeclarationError, DatasetError), match=re.escape(message)):
        audio("talks/manifest.jsonl", **options)


def test_a_name_that_two_files_have_is_refused() -> None:
    clips([{"audio": "0.wav", "text": ""}])
    tone("talks/more/0.wav")
    with pytest.raises(
        DatasetError, match="and there are 2, such as 'clips/0.wav' and 'more/0.wav'. Name the directory"
    ):
        audio("talks/manifest.jsonl")
    Path("talks/manifest.jsonl").write_text("{\n")
    with pytest.raises(DatasetError, match="talks/manifest.jsonl:1: expected a JSON object: "):
        audio("talks/manifest.jsonl")


# Tar archives.


def archive(path: str, members: dict[str, bytes]) -> None:
    """A tar archive of these files, in this order."""
    with tarfile.open(path, "w:gz" if path.endswith(".gz") else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def png(brightness: int) -> bytes:
    return encoded_image(np.full((9, 12, 3), brightness, np.uint8), "png")


def wav(secs: float) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(round(secs * RATE)), RATE, format="WAV")
    return file.getvalue()


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


def test_a_sample_whose_label_is_no_number_is_one_dead_letter() -> None:
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


def test_samples_without_sound_or_transcript_are_dropped_with_a_reason() -> None:
    archive("talks.tar", {"a.wav": wav(0.5), "a.txt": b"to be", "b.wav": wav(0.5), "c.txt": b"or not"})

    account = build(audio("talks.tar", sample_rate=RATE).declaration(), to="cache", workers=1).account

    assert account.units["audio_example"].dropped == {"no_transcript": 1, "no_audio": 1}


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
            "the first sample, '1', has no label: it has __key__, png, json, and is not in a folder.",
        ),
        (
            images,
            "pets.tar",
            {"label_field": "json.x"},
            "the first sample has no field 'json.x'; it has __key__, png, j",
        ),
        (
            images,
            "pets",
            {"label_field": "cls"},
            "label_field (--label-field) is for samples of tar archives; in a dir",
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
            "the first sample has no field 'txt'; it has __key__, wav. Name a ",
        ),
        (
            audio,
            "talks.tar",
            {"keep_fields": ["json.a"]},
            "the first sample has no field 'json.a'; it has __key__, wav",
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


def test_wave_files_that_were_cut_short_are_refused_and_those_without_a_length_read() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.full((1600, 2), 0.25), 16000, format="WAV", subtype="PCM_16")
    content = file.getvalue()

    message = "the sound should have 6,400 bytes of samples, as its header says, but the file ends after 1,200. Copy it"
    with pytest.raises(DatasetError, match=message):
        audio_example(FileContent("a.wav", content[: 44 + 1200]), sample_rate=16_000)
    for unknown in (0xFFFFFFFF, 0x7FFFFFFF - 36):
        length = unknown.to_bytes(4, "little")
        piped = audio_example(
            FileContent("a.wav", content[:4] + length + content[8:40] + length + content[44:]), sample_rate=16_000
        )
        assert piped["num_samples"] == 1600
