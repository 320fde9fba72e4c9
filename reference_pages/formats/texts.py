"""Texts, tokenizers and conversations: lines and files of text, the libraries of tokenizers, shapes of chat data."""

from __future__ import annotations

import base64
import bz2
import functools
import gzip
import io
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from beam_pipes.recipes import chat, text_of, tokens
from beam_pipes.sources import FileContent, TextLines
from beam_pipes.sources.byte_stream import CODEC_OF_SUFFIX
from beam_pipes.transforms.chat_templates import OTHER_SHAPES
from reference_pages.formats.rows import (
    BadRecord,
    Found,
    LeftOut,
    Outcome,
    Read,
    Reference,
    Refused,
    Row,
    library,
    of_recipe,
    of_source,
    only,
    several,
    stated,
    text,
)

read_lines = of_source(lambda path: TextLines(only(path)))


def read_file(directory: Path) -> Found:
    path = only(directory)
    return Found([text_of(FileContent(path.name, path.read_bytes()))])


def ids_of(name: str = "", of: str = "{}") -> Callable[[Path], Found]:
    """The ids of a text, by the tokenizer of this name in a directory."""

    def read(directory: Path) -> Found:
        (directory / "a.txt").write_text(TEXT)
        recipe = tokens(str(directory / "a.txt"), tokenizer=of.format(directory / name), eos=False)
        return Found([recipe.vocabulary.encode(TEXT)])

    return read


def conversations(directory: Path) -> Found:
    """Ids and weights of the conversations of a directory."""
    return of_recipe(lambda path: chat(str(path / "chat.jsonl"), tokenizer=str(path / "model")), "tokens",
                     "loss_weights")(directory)  # fmt: skip


# References.

LINES = Reference("`str.split` at LF and CRLF", lambda path: only(path).read_bytes().decode("utf-8-sig").replace(
    "\r\n", "\n").removesuffix("\n").split("\n"))  # fmt: skip


def _decompressed(directory: Path) -> list[str]:
    path = only(directory)
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".zst": library("zstandard").open}[path.suffix]
    with opened(path, "rb") as file:
        return [line.decode() for line in file.read().splitlines()]


def _compressed(suffix: str, content: bytes) -> bytes:
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": library("zstandard").compress}[suffix]
    return bytes(compress(content))


def compressed(suffix: str, *members: str) -> Callable[[Path], object]:
    """Writes lines, compressed as the suffix says, each of `members` by itself."""
    return lambda path: (path / f"a.txt{suffix}").write_bytes(
        b"".join(_compressed(suffix, member.encode()) for member in members)
    )


def _cut_short(directory: Path, suffix: str) -> None:
    (directory / f"a.txt{suffix}").write_bytes(_compressed(suffix, b"a\nb\n")[:-3])


# Tokenizers.

TEXT = "to be, or not to be: thé question <|endoftext|>"
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@functools.cache
def _trained() -> str:
    lib = library("tokenizers")
    made = lib.Tokenizer(lib.models.BPE())
    made.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = lib.pre_tokenizers.ByteLevel.alphabet()
    trainer = lib.trainers.BpeTrainer(
        vocab_size=300, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT, "user assistant system"] * 3, trainer)
    return str(made.to_str())


def tokenizer(directory: Path, *, dropout: float | None = None, padding: bool = False) -> None:
    made = library("tokenizers").Tokenizer.from_str(_trained())
    made.model.dropout = dropout
    if padding:
        made.enable_padding(length=64)
        made.enable_truncation(5)
    made.save(str(directory / "tokenizer.json"))


def _by_tokenizers(directory: Path) -> Sequence[object]:
    plain = library("tokenizers").Tokenizer.from_str(_trained())
    plain.encode_special_tokens = True
    return [plain.encode(TEXT, add_special_tokens=False).ids]


TOKENIZERS = Reference("tokenizers, `encode_special_tokens`", _by_tokenizers)


def pieces(directory: Path, name: str = "a.model") -> None:
    model = io.BytesIO()
    library("sentencepiece").SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT, "that is the question"] * 20), model_writer=model, vocab_size=40,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (directory / name).write_bytes(model.getvalue())


SENTENCEPIECE = Reference("sentencepiece", lambda path: [library("sentencepiece").SentencePieceProcessor(
    model_file=str(next(path.glob("*.[ms]*")))).encode(TEXT)])  # fmt: skip


def ranks(directory: Path) -> None:
    lines = [base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)]
    (directory / "a.tiktoken").write_bytes(b"".join(lines))


# Conversations.

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|im_end|>{% endif %}{% endfor %}"
)
TALK = [{"role": "user", "content": "to be?"}, {"role": "assistant", "content": "or not"}]


def talks(*records: Mapping[str, object]) -> Callable[[Path], object]:
    """Writes records, and a model with a chat template."""

    def model(directory: Path) -> None:
        (directory / "model").mkdir()
        tokenizer(directory / "model")
        config = {"chat_template": _TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
        (directory / "model" / "tokenizer_config.json").write_text(json.dumps(config))

    return several(model, text("chat.jsonl", "".join(json.dumps(record) + "\n" for record in records)))


def _by_transformers(directory: Path) -> Sequence[object]:
    theirs = library("transformers").AutoTokenizer.from_pretrained(directory / "model")
    found = theirs.apply_chat_template(TALK, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return [(found["input_ids"], found["assistant_masks"])]


TRANSFORMERS = Reference("transformers, `apply_chat_template`", _by_transformers)


def said(*messages: Mapping[str, object]) -> Callable[[Path], object]:
    return talks({"messages": [*TALK[:1], *messages]})


def refused(what: str, record: Mapping[str, object], words: str) -> Row:
    return Row("chat", what, talks(record), conversations, Refused(words))


def _line(what: str, content: str | bytes, outcome: Outcome) -> Row:
    return Row("lines", what, text("a.txt", content), read_lines, outcome)


ROWS = [
    _line("LF, CRLF, empty lines, no newline at the end", "a\r\n\n\nb\nc", Read(LINES)),
    _line("CR alone, U+2028, vertical tabs, form feeds, U+0085", "a\rb\u2028c\x0bd\x0ce\x85f\n", Read(LINES, "text")),
    _line("NUL", "a\0b\n", Read(LINES, "text")),
    _line("a byte order mark at the beginning", "\ufeffa\nb\n", Read(LINES, "ignored")),
    _line("a line that is not UTF-8", b"a\n\xff\nb\n", BadRecord(
        "expected UTF-8, found byte 0xff at byte 0 of the record", stated("–", "a", "b"))),
    _line("UTF-16 with a byte order mark", "a\nb\n".encode("utf-16"), Refused(
        "It begins as UTF-16 does: convert it to UTF-8")),
    *(Row("lines", f"`{suffix}`", compressed(suffix, "a\nb\n"), read_lines, Read(
          Reference("zstandard" if codec == "zstd" else f"`{codec.replace('zip2', 'z2')}`", _decompressed)))
      for suffix, codec in CODEC_OF_SUFFIX.items()),
    *(Row("lines", f"`{suffix}` of several members", compressed(suffix, "a\nb", "c\n"), read_lines, Read(
          stated("–", "a", "bc")))
      for suffix in CODEC_OF_SUFFIX),
    *(Row("lines", f"`{suffix}`, cut short",
          functools.partial(_cut_short, suffix=suffix), read_lines,
          Refused(f"is damaged: {codec} data breaks off or is invalid"))
      for suffix, codec in CODEC_OF_SUFFIX.items()),
    _line("UTF-16 without one", "a\nb\nc\n".encode("utf-16-le"), Refused("iconv -f UTF-16LE -t UTF-8")),
    _line("compressed, and the name does not say so", gzip.compress(b"a"), Refused(
        "It begins as gzip data do: give the file a name that ends in .gz")),
    _line("xz, whatever the name", lzma.compress(b"a"), Refused(
        "It begins as xz data do: no source decompresses it: do so first")),
    Row("lines", "`.xz`, `.zip` and others", text("a.txt.xz", lzma.compress(b"a")),
        of_recipe(lambda path: tokens(str(path), tokenizer="bytes")),
        Refused("'a.txt.xz' is compressed in a way that is not read")),
    Row("files", "a file is a text, with all its newlines", text("a.md", "a\r\n\nb\n"), read_file,
        Read(Reference("`bytes.decode`", lambda path: [only(path).read_bytes().decode()]))),
    Row("files", "a byte order mark", text("a.md", "\ufeffa"), read_file, Read(stated("–", "a"), "ignored")),
    Row("files", "text that is not UTF-8", text("a.md", b"caf\xe9"), read_file,
        Refused("expected the file to hold text in UTF-8, found byte 0xe9 at byte 3")),
    Row("files", "UTF-16 without a byte order mark", text("a.md", "caf\xe9\n".encode("utf-16-be")), read_file,
        Refused("It begins as UTF-16BE does, without a byte order mark: convert it to UTF-8")),
    Row("`tokenizer.json`", "BPE; special tokens that a text spells are text", tokenizer,
        ids_of("tokenizer.json"), Read(TOKENIZERS)),
    Row("`tokenizer.json`", "its directory", tokenizer, ids_of(), Read(TOKENIZERS)),
    Row("`tokenizer.json`", "padding and truncation", lambda path: tokenizer(path, padding=True),
        ids_of("tokenizer.json"), Read(TOKENIZERS, "off")),
    Row("`tokenizer.json`", "dropout", lambda path: tokenizer(path, dropout=0.9), ids_of("tokenizer.json"),
        Read(TOKENIZERS, "off, with a warning")),
    Row("`tokenizer.json`", "no tokenizer in it", text("tokenizer.json", "{}"), ids_of("tokenizer.json"),
        Refused("cannot be read as a tokenizer.json")),
    *(Row("SentencePiece", f"`{suffix}`", functools.partial(pieces, name=f"a{suffix}"), ids_of(f"a{suffix}"),
          Read(SENTENCEPIECE)) for suffix in (".model", ".spm")),
    Row("SentencePiece", "a directory with `tokenizer.model` alone", lambda path: pieces(path, "tokenizer.model"),
        ids_of(), Refused("Give its SentencePiece model")),
    Row("tiktoken", "a file of ranks, `tiktoken:PATH`", ranks, ids_of("a.tiktoken", "tiktoken:{}"),
        Read(stated("tiktoken: here a rank is a byte", [*TEXT.encode()]))),
    Row("WordPiece", "`vocab.txt`", text("vocab.txt", "[UNK]\n"), ids_of("vocab.txt"),
        Refused("is not a known tokenizer. It is a vocabulary of WordPiece. Make one in this directory")),
    Row("byte-level BPE", "`vocab.json`", text("vocab.json", "{}"), ids_of("vocab.json"),
        Refused("is not a tokenizer.json. It is a vocabulary of byte-level BPE. Make one in this directory")),
    Row("Mistral", "`tekken.json`", text("tekken.json", "{}"), ids_of("tekken.json"),
        Refused("is not a tokenizer.json. It is a tokenizer of Mistral's. Save one with transformers")),
    Row("chat", "`messages` with `role` and `content`", talks({"messages": TALK}), conversations, Read(TRANSFORMERS)),
    Row("chat", "the same as text with their JSON", talks({"messages": json.dumps(TALK)}), conversations,
        Read(TRANSFORMERS)),
    Row("chat", "keys whose value is null", talks({"messages": [{**each, "tool_calls": None} for each in TALK]}),
        conversations, Read(TRANSFORMERS, "as if they were not there")),
    *(refused(name, dict.fromkeys(sorted(shape.keys), "x"), f"and is one of {name}")
      for name, shape in OTHER_SHAPES.items()),
    refused("ShareGPT: `from` and `value`", {"messages": [{"from": "human", "value": "to be?"}]},
            "This is the shape of ShareGPT. Convert the file first: jq"),
    refused("another field", {"conversations": TALK}, "should have the field 'messages', which is a list of messages"),
    Row("chat", "OpenAI: parts as `content`, if the template does not write them",
        said({"role": "assistant", "content": [{"type": "text", "text": "or not"}]}), conversations,
        Refused("a list of parts as its content (OpenAI's), which the template does not write as text")),
    Row("chat", "OpenAI: `function_call`, if the template does not write it",
        said({"role": "assistant", "content": "x", "function_call": {"name": "f", "arguments": "{}"}}), conversations,
        Refused("a 'function_call' (OpenAI's, before tools), which the template does not write")),
    Row("chat", "nobody answers", talks({"messages": TALK}, {"messages": TALK[:1]}), conversations,
        LeftOut("no_answer", TRANSFORMERS)),
    Row("chat", "an answer that is null", talks({"messages": TALK}, {"messages": [
        TALK[0], {"role": "assistant", "content": None}]}), conversations, LeftOut("no_answer", TRANSFORMERS)),
]  # fmt: skip
