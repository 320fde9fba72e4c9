"""`beam-pipes images`, `audio` and `table`, as a user runs them."""

from __future__ import annotations

import io
import json
import re
import tarfile
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_tokens_command import beam_pipes, snapshot


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """A folder of images, one of sound with a manifest, and a table."""
    for number in range(12):
        folder = tmp_path / "pets" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 12, 3), number, np.uint8)).save(folder / f"{number}.png")
    (tmp_path / "talks").mkdir()
    rows = []
    for number in range(6):
        with wave.open(str(tmp_path / f"talks/{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
            sound.writeframes(np.zeros(4000, "<i2").tobytes())
        rows.append({"audio": f"{number}.wav", "text": f"to be {number}", "speaker": f"s{number % 3}"})
    (tmp_path / "talks/all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with tarfile.open(tmp_path / "pets-0.tar", "w") as archive:
        for file in sorted((tmp_path / "pets").rglob("*.png")):
            archive.add(file, str(file.relative_to(tmp_path / "pets")))
    with tarfile.open(tmp_path / "talks-0.tar", "w") as archive:
        for number in range(6):
            archive.add(tmp_path / f"talks/{number}.wav", f"{number}.wav")
            said = json.dumps(rows[number]).encode()
            info = tarfile.TarInfo(f"{number}.json")
            info.size = len(said)
            archive.addfile(info, io.BytesIO(said))
    lines = [f"{number / 2},{['bee', 'wasp'][number % 2]},u{number % 5}\n" for number in range(40)]
    (tmp_path / "insects.csv").write_text("length,species,user\n" + "".join(lines))
    return tmp_path


COMMANDS = {
    "images": ["images", "pets", "--resize", "8x6", "--fit", "pad", "--split", "train=0.5,eval=0.5"],
    "images_by": [
        "images",
        "pets",
        "--encode",
        "jpeg",
        "--split",
        "train=0.5,eval=0.5",
        "--by",
        "[0-9]+",
        "--name",
        "p",
    ],
    "audio": ["audio", "talks/all.jsonl", "--sample-rate", "16000", "--max-secs", "9", "--keep-field", "speaker"],
    "images_of_tars": ["images", "pets-0.tar", "--resize", "8", "--split", "train=0.5,eval=0.5"],
    "audio_of_tars": ["audio", "talks-0.tar", "--sample-rate", "8000", "--by", "json.speaker", "--split", "train=1"],
    "table": ["table", "insects.csv", "--label", "species", "--split", "train=0.5,eval=0.5", "--by", "user"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_its_module_give_one_snapshot_and_the_lines_load_it(corpora: Path, name: str) -> None:
    command = COMMANDS[name]
    (corpora / "printed.py").write_text(beam_pipes(corpora, *command, "--print-python").stdout)

    printed = beam_pipes(corpora, *command, "--to", "cache", "--workers", "2", "--no-report").stdout
    again = beam_pipes(corpora, "build", "printed:declaration", "--to", "cache", "--workers", "1").stdout

    assert f"is up to date (snapshot {snapshot(printed)})" in again
    names: dict[str, object] = {}
    exec(printed[printed.rindex("\n\n") :].replace("...", "break"), names)
    batch = names["batch"]
    assert isinstance(batch, dict)
    said = printed.splitlines()[-1].partition("# ")[2]
    assert set(batch) == set(re.findall(r"(?:^|, )([a-z_.]+)(?= |,|$)", said)) - {"longest"}


def test_what_the_commands_say_of_the_data(corpora: Path) -> None:
    for name in ("pets/cat/8.psd", "pets/dog/9.PSD", "pets/LICENSE", "talks/README.md", "talks/7.m4a", "talks/b.tsv"):
        (corpora / name).write_bytes(b"GIF89a")
    images = beam_pipes(corpora, *COMMANDS["images"], "--to", "i", "--workers", "1").stdout
    audio = beam_pipes(corpora, *COMMANDS["audio"], "--to", "a", "--workers", "1").stdout
    table = beam_pipes(corpora, *COMMANDS["table"], "--to", "t", "--workers", "1").stdout

    assert "classes: 0 cat, 1 dog\n" in images and re.search(r"^train: \d+ examples$", images, re.MULTILINE)
    assert "label: int64 " in beam_pipes(corpora, "inspect", "i", "-n", "1").stdout
    assert "files left out, by suffix: 1 without a suffix, 2 .psd\n" in images
    assert "train: 6 examples, 3.00 seconds\n" in audio
    advice = "(if .tsv has rows about the others, name it in place of the directory)"
    assert f"files left out, by suffix: 1 .m4a, 1 .md, 1 .tsv {advice}\n" in audio
    tars = beam_pipes(corpora, *COMMANDS["images_of_tars"], "--to", "it", "--workers", "1").stdout
    assert "classes: 0 cat, 1 dog\n" in tars
    assert "columns: length float32, species str, user str\n" in table and "classes: 0 bee, 1 wasp\n" in table


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["images", "pets", "--resize", "big", "--to", "c"],
            "--resize should be pixels, such as 224, or 224x320 (heig",
        ),
        (["images", "pets"], "name the directory of the cache: --to cache; or see the declaration: --print-python."),
        (["audio", "pets", "--to", "c"], "there are no sound files in 'pets'; known are .aif, .aifc, .aiff, .flac,"),
        (["table", "insects.csv", "--type", "length", "--to", "c"], "--type should be a column and its dtype, such as"),
        (["table", "insects.csv", "--split", "a:1", "--to", "c"], "--split should be names and shares, such as train="),
        (["audio", "talks/all.jsonl", "--runner", "ray", "--to", "c"], "--runner should be one of"),
    ],
)
def test_what_is_wrong_is_one_message(corpora: Path, command: list[str], message: str) -> None:
    done = beam_pipes(corpora, *command, check=False)

    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (corpora / "c").exists()
