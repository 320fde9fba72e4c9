"""What people type wrong in their first week: each command says what was expected, found, where, and what to type."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import soundfile
from PIL import Image
from pyarrow import parquet
from tokenizers import Tokenizer, models
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
)


def lines(name: str, *records: object) -> None:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))


def talk(**roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in roles.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("first_week")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for name in ("flat", "pets/cat", "videos/a", "phone/a", "empty", "tok", "no_template", "au"):
            Path(name).mkdir(parents=True)
        file = io.BytesIO()
        Image.new("RGB", (9, 9)).save(file, "JPEG")
        for name in ("flat/0.jpg", "pets/cat/0.jpg", "seg/images/a.jpg", "seg/images/b.jpg", "seg/masks/a_mask.jpg"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(file.getvalue())
        Path("videos/a/a.mp4").write_bytes(b"x")
        Path("phone/a/a.jxl").write_bytes(b"x")
        with tarfile.open("pets.tar", "w") as archive:
            for name, content in {"0.jpg": file.getvalue(), "0.json": b'{"species": "cat"}'}.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        soundfile.write("au/0.wav", np.zeros(99), 8000)
        lines("au/m.jsonl", {"audio_filepath": "0.wav", "text": "to be"})
        lines("au/other.jsonl", {"audio_filepath": "0.wav", "words": "to be"})
        lines("au/lost.jsonl", {"audio_filepath": "lost.wav", "text": "to be"})
        lines("a.jsonl", {"content": "to be"})
        lines("packed.jsonl.xz", {"text": "to be"})
        Path("packed.jsonl.gz").write_bytes(b"")
        lines("talks.jsonl", {"messages": talk(user="q", assistant="a")})
        lines("shared.jsonl", {"conversations": talk(user="q", assistant="a")})
        lines("bots.jsonl", {"messages": talk(human="q", bot="a")})
        lines("asked.jsonl", {"messages": talk(user="q", assistant="a"), "tools": [{"name": "add"}]})
        parquet.write_table(
            pa.table({"messages": [talk(user="q", assistant="a")], "system": ["Be brief."]}), "asked.parquet"
        )
        Path("parts").mkdir()
        for name, beside in {"0": {}, "1": {"tools": ['[{"name": "add"}]']}, "2": {}}.items():
            parquet.write_table(
                pa.table({"messages": [talk(user="q", assistant="a")], **beside}), f"parts/{name}.parquet"
            )
        parquet.write_table(
            pa.table({"messages": [talk(user="q", assistant="a")], "persona": ["pirate"]}), "persona.parquet"
        )
        Path("persona.jinja").write_text("{{ persona }}" + TEMPLATE)
        with open("asked.csv", "w", newline="") as file:
            rows = csv.DictWriter(file, ["messages", "system", "n"])
            rows.writeheader()
            rows.writerow({"messages": json.dumps(talk(user="q", assistant="a")), "system": "Be brief.", "n": 1})
        lines("said.jsonl", {"messages": "User: q"})
        lines("parts.jsonl", {"talk": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]})
        Path("silent.jinja").write_text(TEMPLATE.replace("m.content", "m.text"))
        Path("wrapped.json").write_text('{"rows": [{"text": "to be"}]}')
        Path("array.json").write_text('[{"text": "to be"}]')
        Path("damaged.parquet").write_bytes(b"PAR1 and no more")
        parquet.write_table(pa.table({"conversations": [talk(user="q", assistant="a")]}), "shared.parquet")
        parquet.write_table(pa.table({"instruction": ["q"], "input": [None], "output": ["a"]}), "alpaca.parquet")
        tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "[UNK]": 1}, unk_token="[UNK]"))
        tokenizer.add_special_tokens(["</s>"])
        for name in ("tok", "no_template"):
            tokenizer.save(f"{name}/tokenizer.json")
        Path("tok/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))
    return base


MISTAKES = [
    (
        "tokens packed.jsonl.gz --format files --tokenizer tok",
        "whole files .--format files. are read as they are, and 'packed.jsonl.gz' is compressed. Unpack such files",
    ),
    (
        "tokens wrapped.json --tokenizer tok",
        "there are rows. .* If 'rows' are the records, write one on each line first: jq -c '.rows\\[\\]' FILE > NEW.",
    ),
    (
        "tokens array.json --tokenizer tok",
        r"found '\[\{\"text\": \"to be\"\}\]'. The file is a JSON array, .* jq -c '\.\[\]' FILE > NEW\.",
    ),
    (
        "tokens a.jsonl --text-field content --tokenizer tok --eos-token <eos>",
        "no token '<eos>', given as eos_token; its special tokens are </s>. Name one that it has: .* .--eos-token.",
    ),
    (
        "tokens a.jsonl --text-field content --tokenizer array.json",
        "cannot be read as a tokenizer.json: .* Name one that save_pretrained of transformers, or save",
    ),
    (
        "tokens damaged.parquet --tokenizer tok",
        "cannot be read as Parquet: .* Write or copy it again, or name the format that it has .--format",
    ),
    (
        "tokens talks.jsonl --chat --tokenizer tok --chat-template silent.jinja",
        "expected the chat template to write the assistant's words, such as 'a' of message 1 of the field 'messages', "
        "found 'user: assistant: </s>'. Give the template of this chat model .--chat-template.",
    ),
    (
        "tokens shared.parquet --chat --tokenizer tok",
        "and has 'conversations', which is one. Name it: --text-field conversations",
    ),
    (
        "tokens alpaca.parquet --chat --tokenizer tok",
        "one of instructions .Alpaca.: .* FILE > chat.jsonl.* jq reads JSON, and these files are parquet. Make FILE",
    ),
    (
        "tokens parts.jsonl --chat --text-field talk --tokenizer tok",
        "message 0 has a list of parts as its content .* jq -c '.talk .= map",
    ),
    (
        "tokens a.jsonl --tokenizer tok",
        "has the field 'text'; there are content. Name one of these, such as --text-field content.",
    ),
    (
        "tokens a.json --tokenizer tok",
        "input '.*a.json' cannot be read: No such file or directory. In '.*' there is: a.jsonl",
    ),
    (
        "tokens a.jsonl --tokenizer tokk",
        "'tokk' is not a known tokenizer. .* or bytes. Did you mean 'tok'?",
    ),
    (
        "tokens a.jsonl --tokenizer empty --text-field content",
        "there is no 'empty/tokenizer.json'. The directory holds nothing. Name the one",
    ),
    (
        "tokens a.jsonl --tokenizer au --text-field content",
        "The directory holds 0.wav, lost.jsonl, m.jsonl, other.jsonl. Name the one",
    ),
    (
        "tokens packed.jsonl.xz --tokenizer tok",
        "'packed.jsonl.xz' is compressed in a way that is not read; .* Unpack it first, beside the others: unxz FILE",
    ),
    (
        "tokens talks.jsonl --tokenizer tok",
        "there are messages. .* If 'messages' are conversations: --chat --text-field messages.",
    ),
    (
        "tokens a.jsonl --tokenizer tok --split train=0.9,eval=0.2",
        "the shares of --split should add up to 1, as in .* are 1.1. Name a split for the rest",
    ),
    (
        "tokens empty --tokenizer tok",
        "no file matches: looked in '.*empty'",
    ),
    (
        "tokens talks.jsonl --chat --tokenizer bytes",
        "conversations .--chat. need a tokenizer.json with a chat template beside it, and 'bytes'",
    ),
    (
        "tokens talks.jsonl --chat --tokenizer no_template",
        "there is no chat template next to 'no_template/tokenizer.json'",
    ),
    (
        "tokens shared.jsonl --chat --tokenizer tok",
        "and has 'conversations', which is one. Name it: --text-field conversations",
    ),
    (
        "tokens bots.jsonl --chat --tokenizer tok",
        "expected the role 'assistant' in the field 'messages', found 'human', 'bot'. Rename it first: jq",
    ),
    (
        "tokens asked.jsonl --chat --tokenizer tok",
        "the record has 'tools' beside its messages, .* Describe the tools to the template: --tools-field tools",
    ),
    (
        "tokens asked.parquet --chat --tokenizer tok",
        "the record has 'system' beside its messages, .* Make it the first message: jq",
    ),
    (
        "tokens parts --chat --tokenizer tok",
        "1.parquet@0.* has 'tools' beside its messages, .* --tools-field tools",
    ),
    (
        "tokens persona.parquet --chat --tokenizer tok --chat-template persona.jinja",
        "the record has 'persona' beside its messages, .*: 'pirate'. Write it into the messages",
    ),
    (
        "tokens asked.csv --chat --tokenizer tok --keep-field n:int64",
        "the record has 'system' beside its messages, .* Make it the first message: jq",
    ),
    (
        "tokens said.jsonl --chat --tokenizer tok",
        "should hold a list of messages, or it as JSON, found 'User: q': ",
    ),
    (
        "images flat",
        "the image '0.jpg' is not in a folder, so it has no class. .*--no-label",
    ),
    (
        "images pet",
        "'pet' should be a directory of images, but does not exist. Did you mean 'pets'?",
    ),
    (
        "images videos",
        "there are no images in 'videos'; .* It has 1 .mp4.",
    ),
    (
        "images phone",
        "there are no images in 'phone'; .* It has 1 .jxl.",
    ),
    (
        "images pets.tar",
        "has no label: it has jpg, json.species, and is not in a folder. Name the label's field as .*--label-fiel",
    ),
    (
        "images pets.tar --label-field json.kind",
        "the first sample has no field 'json.kind'; it has jpg, json.species. Name a different one",
    ),
    (
        "images pets --resize 224,224",
        "--resize should be pixels, such as 224, or 224x320 .height first.; got '224,224'",
    ),
    (
        "images pets --classes dog",
        "there are images of cat, which is not among the classes",
    ),
    (
        "images pets --split train=0.9",
        "the shares of --split should add up to 1, as in train=0.9,eval=0.1; 'train=0.9' are 0.9. Name a split for",
    ),
    (
        "images pets --resize 224 --encode jpeg --quality 0.9",
        "'--quality': .*integer.*; got '0.9'.",
    ),
    (
        "images pets --resize 224 --quality 80",
        "quality .--quality 80. is that of images stored as JPEG: .*--encode jpeg., or omit it.",
    ),
    (
        "images pets --encode files --fit pad",
        "fit .--fit pad. is how images get their size. Give one: .*--resize 224., or omit it.",
    ),
    (
        "images pets/cat/0.jpg",
        "'pets/cat/0.jpg' should be a directory of images, but is a file. Name one directory of images",
    ),
    (
        "images pets --label-field species",
        "is about rows, .* and 'pets' holds images alone. Put a metadata.csv beside them, with their names as file_n",
    ),
    (
        "images pets --class-folder 3",
        "'cat/0.jpg' is in 1 folders, so there is none with the number 3 that is the class .class_folder, --class",
    ),
    (
        "images seg",
        "the images in folders 'masks' are called as those in 'images', so they are masks, and no class. .*--masks",
    ),
    (
        "audio au/lost.jsonl",
        "lost.jsonl:1: a transcript is about the file 'lost.wav', and there is none. Name the directory .*--audio-root",
    ),
    (
        "audio sounds",
        "'sounds' should be a directory of sound files, but does not exist. Name one directory of sound files",
    ),
    (
        "audio au/m.jsonl --max-secs short",
        "'--max-secs': .*number.*; got 'short'.",
    ),
    (
        "audio au/m.jsonl --by speaker --split a=0.5,b=0.5",
        "m.jsonl:1: the transcript of '0.wav' has no field 'speaker'; it has audio_filepath, text",
    ),
    (
        "audio au/m.jsonl --dtype int8",
        "dtype should be one of float32, int16, got 'int8'. Did you mean 'int16'?",
    ),
    (
        "audio au/0.wav",
        "'au/0.wav' is one sound file. Name its directory, au, or a manifest",
    ),
    (
        "audio au/m.jsonl --sample-rate 16k",
        "--sample-rate should be a whole number of Hz, such as 16000; got '16k'",
    ),
    (
        "audio au/other.jsonl",
        "has no field such as text, transcript, .* that is the transcript; it has audio_filepath, words. Name .*-",
    ),
    (
        "audio au/m.jsonl --keep-field speaker",
        "m.jsonl:1: the transcript of '0.wav' has no field 'speaker'; it has audio_filepath, text",
    ),
    (
        "audio pets",
        "there are no sound files in 'pets'; .* It has 1 .jpg.",
    ),
]


@pytest.mark.parametrize(("command", "words"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_is_answered_with_what_to_type(
    folder: Path, command: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    arguments = [*command.split(), "--to", str(tmp_path / "cache"), "--workers", "1", "--no-report"]
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, BeamPipesError):
        printed = str(result.exception)
    else:  # an option that typer reads, in a box on a terminal
        printed = " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())
    assert result.exit_code and re.search(words, printed), printed


SHAREGPT = [{"from": "human", "value": 'q, "q"'}, {"from": "gpt", "value": "a"}]
ANSWERED = [{"role": "user", "content": 'q, "q"'}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("name", "talks"),
    [
        pytest.param("a.parquet", [[{**each, "weight": None} for each in SHAREGPT]], id="parquet"),
        pytest.param("a.parquet", [json.dumps(SHAREGPT)], id="parquet, JSON text"),
        pytest.param("a.csv", [json.dumps(SHAREGPT)], id="csv"),
        pytest.param("a.tsv", [json.dumps(SHAREGPT)], id="tsv"),
        pytest.param("a.jsonl", [json.dumps(SHAREGPT)], id="JSON text"),
    ],
)
def test_what_is_advised_for_files_that_jq_does_not_read_converts_them(
    folder: Path, name: str, talks: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name.endswith(".jsonl"):
        Path(name).write_text(json.dumps({"talks": talks[0]}))
    elif name.endswith(".parquet"):
        parquet.write_table(pa.table({"talks": talks}), name)
    else:
        with open(name, "w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file, "excel-tab" if name.endswith(".tsv") else "excel").writerows([["talks"], talks])
    command = f"tokens {name} --chat --text-field talks --tokenizer {folder / 'tok'} --to cache --workers 1 --no-report"
    said = str(CliRunner().invoke(app, command.split()).exception)
    converting = re.search(r"Convert the file first: (jq -c '[^']+' FILE > chat\.jsonl)", said)
    reading = re.search(r"Make FILE of each first: ((?:python -c .* \| )?jq -c '[^']+'.* > FILE)$", said)
    assert converting and reading, said

    for step in (re.sub(r"NAME(\.\w+)?", name, reading[1]), converting[1]):
        subprocess.run(step.replace("python", sys.executable, 1), shell=True, check=True, timeout=60)

    assert [json.loads(line) for line in Path("chat.jsonl").read_text().splitlines()] == [{"talks": ANSWERED}]
