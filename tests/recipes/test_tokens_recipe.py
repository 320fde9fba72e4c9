"""The recipe `tokens`: what it declares, from which files, with which tokenizers."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from typer.testing import CliRunner

from beam_pipes import Cache, build
from beam_pipes.commands import app
from beam_pipes.errors import BeamPipesError, DeclarationError, SourceError, TaskError
from beam_pipes.recipes import Recipe, chat, text_of, tokenize, tokens
from beam_pipes.sources import FileContent
from beam_pipes.tasks import ByteVocabulary, TokenizersVocabulary

ROWS = [{"text": f"line {n % 40} says {'to be ' * (n % 7)}", "user": f"u{n % 9}", "n": n} for n in range(120)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def byte_pairs(path: str, *, special: tuple[str, ...] = ("<|endoftext|>",)) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([row["text"] for row in ROWS], trainer)
    tokenizer.save(path)
    return tokenizer


def json_lines(rows: list[dict[str, Any]] = ROWS) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def built(recipe: Recipe, to: str = "cache") -> Cache:
    build(recipe.declaration(), to=to, workers=1)
    return Cache.open(to)


def ids(text: str) -> list[int]:
    return [*ByteVocabulary().encode(text), 1]


def parquet(path: str) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path)


WRITERS: dict[str, Callable[[str], object]] = {
    "data.jsonl": lambda path: Path(path).write_bytes(json_lines()),
    "data.json.gz": lambda path: Path(path).write_bytes(gzip.compress(json_lines())),
    "data.jsonl.zst": lambda path: Path(path).write_bytes(zstandard.compress(json_lines())),
    "data.parquet": parquet,
    "data.csv": lambda path: Path(path).write_text(
        "n,text,user\n" + "".join(f"{row['n']},{row['text']},{row['user']}\n" for row in ROWS)
    ),
    "data.txt": lambda path: Path(path).write_text("".join(f"{row['text']}\n" for row in ROWS)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_read_by_their_suffix(name: str) -> None:
    WRITERS[name](name)

    cache = built(tokens(name, tokenizer="bytes"))

    examples = list(cache["train"])
    assert [example["tokens"].tolist() for example in examples] == [ids(row["text"]) for row in ROWS]
    assert examples[0]["tokens"].dtype == np.int32
    assert cache["train"].spec["tokens"].maximum == 258


def test_a_directory_of_files_is_a_corpus_of_documents() -> None:
    Path("notes").mkdir()
    Path("notes/a.md").write_text("to be\nor not\n")
    Path("notes/b.md").write_text("hé")

    cache = built(tokens("notes", tokenizer="bytes", format="files", keep_fields=["path"]))

    assert [(example["path"], example["tokens"].tolist()) for example in cache["train"]] == [
        ("a.md", ids("to be\nor not\n")),
        ("b.md", ids("hé")),
    ]


def test_mixed_and_unknown_formats_are_refused_with_what_was_found() -> None:
    Path("in").mkdir()
    Path("in/a.jsonl").write_bytes(json_lines())
    Path("in/b.txt.gz").write_bytes(gzip.compress(b"to be\n"))
    with pytest.raises(DeclarationError, match=r"one format, found json \('a.jsonl'\), text \('b.txt.gz'\). Choose "):
        tokens("in", tokenizer="bytes")
    Path("in/README.md").write_text("read me")
    with pytest.raises(DeclarationError, match=r"'README.md' has an unknown suffix; known are .csv, .json,"):
        tokens("in", tokenizer="bytes")
    with pytest.raises(DeclarationError, match="format should be one of csv, files, json, parquet, tar, "):
        tokens("in", tokenizer="bytes", format="xml")
    with pytest.raises(SourceError, match="absent.jsonl' cannot be read: No such file or directory"):
        tokens("absent.jsonl", tokenizer="bytes")
    assert len(built(tokens("in/*.jsonl", tokenizer="bytes"))["train"]) == 120


def test_fields_are_kept_as_text_or_with_their_dtype() -> None:
    rows = [
        {"body": "to be", "n": 7, "meta": {"b": [1, 2], "a": None}, "url": "x"},
        {"body": "or", "n": 8, "meta": None, "url": None},
    ]
    Path("a.jsonl").write_bytes(json_lines(rows))
    keep = {"n": "int64", "meta": "str", "url": "str"}

    cache = built(tokens("a.jsonl", tokenizer="bytes", text_field="body", keep_fields=keep, eos=False))

    first, second = cache["train"]
    assert first["tokens"].tolist() == ByteVocabulary().encode("to be")
    assert (first["n"], first["meta"], first["url"]) == (7, '{"a": null, "b": [1, 2]}', "x")
    assert (second["n"], second["meta"], second["url"]) == (8, "", "")


def test_texts_are_dropped_with_a_reason() -> None:
    rows = [{"text": text} for text in ("", None, "a", "four", "much longer than that")]
    Path("a.jsonl").write_bytes(json_lines([*rows]))

    recipe = tokens("a.jsonl", tokenizer="bytes", min_tokens=3, max_tokens=9)
    account = build(recipe.declaration(), to="cache", workers=1).account

    assert account.units["tokenize"].dropped == {"no_text": 2, "too_short": 1, "too_long": 1}
    assert account.outputs == {"train": 1}
    assert str(account.units["tokenize"].statistics["tokenize_tokens"]) == "tokenize_tokens: 5"


@pytest.mark.parametrize(("dedup", "left"), [("exact", 3), ("near", 2)])
@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_duplicates_are_left_out(dedup: str, left: int, suffix: str) -> None:
    long = "it was the best of times it was the worst of times it was the age of wisdom " * 3
    texts = [long, "to be or not to be that is the question", long, f"{long}indeed"]
    data = json_lines([{"text": text} for text in texts]) if suffix == ".jsonl" else "\n".join(texts).encode()
    Path(f"a{suffix}").write_bytes(data)

    recipe = tokens(f"a{suffix}", tokenizer="bytes", dedup=dedup)
    result = build(recipe.declaration(), to="cache", workers=1)

    assert result.account.outputs == {"train": left}
    assert result.account.units["DropDuplicates"].dropped == {f"{dedup} duplicate": 4 - left}


@pytest.mark.usefixtures("here")
def test_near_duplicates_of_conversations_share_spoken_words(model: str) -> None:
    """In JSON, line breaks would join words, and short keys would be most of them."""
    said = [f"w{number}" for number in range(60)]
    answers = ["\n".join(said), " ".join(said), "\t".join(reversed(said)), "4"]
    talks = [[{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": each}] for each in answers]
    Path("a.jsonl").write_bytes(json_lines([{"messages": talk} for talk in talks]))

    result = build(chat("a.jsonl", tokenizer=model, dedup="near").declaration(), to="cache", workers=1)

    assert result.account.units["DropDuplicates"].dropped == {"near duplicate": 1}


def test_every_text_with_words_of_an_evaluation_set_is_dropped(here: Path) -> None:
    draw = random.Random(3)
    word = [f"w{number}" for number in range(3000)]
    questions = [" ".join(draw.choices(word, k=20)) for _ in range(30)]
    Path("quiz.jsonl").write_text("".join(json.dumps({"q": each}) + "\n" for each in questions))
    Path("lines.txt").write_text(" ".join(word[:13]))
    clean = [" ".join(draw.choices(word, k=40)) for _ in range(30)]
    # Other case and punctuation, and over the lines of a text.
    shouted = [question.upper().replace(" ", ",\n", 7) for question in questions]
    planted = [f"{text}\n{each} {text}" for text, each in zip(clean, shouted, strict=True)]
    texts = [*clean, *planted, "so it begins: " + " - ".join(word[:13])]
    Path("web.jsonl").write_bytes(json_lines([{"text": text} for text in texts]))
    talk = [{"role": "user", "content": planted[0]}, {"role": "assistant", "content": "so"}]
    first, rest = questions[1].split(" ", 8)[:8], questions[1].split(" ", 8)[8]
    halves = [{"role": "user", "content": " ".join(first)}, {"role": "assistant", "content": rest}]
    other = [{"role": "user", "content": "to be"}, {"role": "assistant", "content": "or not"}]
    Path("talks.jsonl").write_bytes(json_lines([{"messages": each} for each in (talk, other, halves)]))
    sets: dict[str, Any] = {"decontaminate": ["quiz.jsonl", "lines.txt"], "decontaminate_fields": ["q"]}

    result = build(tokens("web.jsonl", tokenizer="bytes", **sets).declaration(), to="cache", workers=1)

    assert result.account.units["DropContaminated"].dropped == {"overlaps quiz": 30, "overlaps lines": 1}
    assert [row["tokens"].tolist() for row in Cache.open("cache")["train"]] == list(map(ids, clean))
    byte_pairs("tokenizer.json")
    Path("plain.jinja").write_text("{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}")
    recipe = chat("talks.jsonl", tokenizer="tokenizer.json", template="plain.jinja", **sets)
    assert build(recipe.declaration(), to="chat", workers=1).account.units["DropContaminated"].dropped == {
        "overlaps quiz": 2
    }

    for options, message in [
        (
            {"decontaminate": ["quiz.jsonl"]},
            r"a row of 'quiz' has no field 'text'; it has q\. Name it: field= \(--decont",
        ),
        ({**sets, "decontaminate": ["none.jsonl"]}, r"none\.jsonl' cannot be read: No such file"),
        ({**sets, "decontaminate": ["a.xyz"]}, r"'a' is .*a\.xyz', of an unknown kind; known are \.csv"),
    ]:
        with pytest.raises((DeclarationError, SourceError), match=message):
            tokens("web.jsonl", tokenizer="bytes", **options)


def test_splits_by_a_field_keep_together_what_is_the_same_in_it() -> None:
    Path("a.jsonl").write_bytes(json_lines())
    recipe = tokens("a.jsonl", tokenizer="bytes", splits={"train": 0.6, "eval": 0.4}, by="user", seed=3)

    cache = built(recipe)

    users = [{example["user"] for example in cache[split]} for split in ("train", "eval")]
    assert users[0] and users[1] and not users[0] & users[1]
    assert recipe.declaration().seed == 3
    assert len(cache["train"]) + len(cache["eval"]) == len(ROWS)


# Tokenizers.


def test_a_tokenizer_json_ends_texts_with_what_its_configuration_says() -> None:
    Path("a.jsonl").write_bytes(json_lines())
    Path("model").mkdir()
    tokenizer = byte_pairs("model/tokenizer.json", special=("<|endoftext|>", "<end>", "<begin>"))
    by_itself = tokens("a.jsonl", tokenizer="model/tokenizer.json")
    config = {"eos_token": {"content": "<end>"}, "bos_token": "<begin>"}
    Path("model/tokenizer_config.json").write_text(json.dumps(config))
    configured = tokens("a.jsonl", tokenizer="model", bos=True)
    named = tokens("a.jsonl", tokenizer="model", eos_token="<begin>")

    assert (by_itself.vocabulary.eos_id, configured.vocabulary.eos_id, named.vocabulary.eos_id) == (0, 1, 2)
    example = next(iter(built(configured)["train"]))
    assert example["tokens"].tolist() == [2, *tokenizer.encode(ROWS[0]["text"]).ids, 1]
    assert isinstance(configured.vocabulary, TokenizersVocabulary) and configured.vocabulary.backend == "tiktoken"


def test_a_tokenizer_that_does_not_say_what_ends_a_text_is_refused() -> None:
    Path("a.jsonl").write_bytes(json_lines())
    byte_pairs("tokenizer.json", special=("<pad>",))
    with pytest.raises(
        DeclarationError, match=r"'tokenizer.json' does not define which token ends a text. Name it as eos_"
    ):
        tokens("a.jsonl", tokenizer="tokenizer.json")
    with pytest.raises(
        DeclarationError, match=r"'bytes' does not define which token begins a text. Name it as bos_token="
    ):
        tokens("a.jsonl", tokenizer="bytes", bos=True)
    with pytest.raises(TaskError, match="the tokenizer has no token '<eos>', given as eos_token"):
        tokens("a.jsonl", tokenizer="tokenizer.json", eos_token="<eos>").declaration()
    assert tokens("a.jsonl", tokenizer="tokenizer.json", eos=False).vocabulary.eos_id is None


@pytest.fixture
def sentencepiece_model(here: Path) -> str:
    import sentencepiece

    texts = iter(["this is a test", "the cat is here", "that is the thing"] * 20)
    with open("pieces.spm", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts, model_writer=model, vocab_size=32, hard_vocab_limit=False, minloglevel=2
        )
    return "pieces.spm"


def test_a_sentencepiece_model_and_ranks_of_tiktoken_are_tokenizers(sentencepiece_model: str) -> None:
    import base64

    Path("a.txt").write_text("this is a test\nthe cat\n")
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    Path("bytes.tiktoken").write_bytes(ranks)

    pieces = tokens("a.txt", tokenizer=sentencepiece_model)
    Path("r50k_base.tiktoken").write_bytes(ranks)
    ranked = tokens("a.txt", tokenizer="tiktoken:r50k_base.tiktoken")

    first = next(iter(built(pieces, "pieces")["train"]))["tokens"].tolist()
    assert first == [*pieces.vocabulary.encode("this is a test"), pieces.vocabulary.eos_id]
    assert next(iter(built(ranked, "ranks")["train"]))["tokens"].tolist() == [*b"this is a test", 50256]
    with pytest.raises(DeclarationError, match=r"which token ends a text. A file of ranks cannot: .*\(--no-eos\)"):
        tokens("a.txt", tokenizer="tiktoken:bytes.tiktoken")
    alone = tokens("a.txt", tokenizer="tiktoken:bytes.tiktoken", eos=False)
    assert next(iter(built(alone, "alone")["train"]))["tokens"].tolist() == [*b"this is a test"]


def test_files_that_a_vocabulary_of_others_needs_make_a_tokenizer_as_the_error_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("a.txt").write_text("to be\n")
    tokenizer = byte_pairs("bpe.json")
    Path("bpe").mkdir()
    tokenizer.model.save("bpe")
    with pytest.raises(DeclarationError) as caught:
        tokens("a.txt", tokenizer="bpe", eos=False)

    command = str(caught.value).partition("Make one in this directory: ")[2].removesuffix(".")
    with monkeypatch.context() as there:
        there.chdir("bpe")
        exec(command)

    (row,) = built(tokens("a.txt", tokenizer="bpe", eos=False))["train"]
    assert row["tokens"].tolist() == tokenizer.encode("to be").ids


def test_what_is_not_a_tokenizer_is_reported() -> None:
    Path("a.txt").write_text("to be\n")
    Path("broken.json").write_text("{")
    Path("empty.json").write_text("{}")
    Path("broken.model").write_bytes(b"no model")
    Path("nothing").mkdir()
    Path("pieces").mkdir()
    Path("pieces/tokenizer.model").write_bytes(b"")
    for file in (
        "wordpiece/vocab.txt",
        "bpe/vocab.json",
        "bpe/merges.txt",
        "mistral/tekken.json",
        "llama/tokenizer.model",
    ):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text('{"model": 7}' if file.endswith(".json") else "IQ== 0\nIg== 1\n")
    for tokenizer, message in [
        (
            "gpt9",
            "'gpt9' is not a known tokenizer. Give a tokenizer.json or its folder, SentencePiece's .model or .spm, ",
        ),
        (
            "meta-llama/Llama-3-8B",
            "A model of the Hugging Face Hub is downloaded first: hf download meta-llama/Llama-3-8B --include '*.json' "
            "'*.jinja' '*.model' --local-dir Llama-3-8B; then give Llama-3-8B.",
        ),
        ("absent.json", "there is no 'absent.json'. Correct the path, or give the directory that holds it."),
        ("broken.json", "'broken.json' cannot be read as a tokenizer.json: Expecting property name"),
        ("empty.json", "'empty.json' cannot be read as a tokenizer.json: Model missing"),
        (
            "nothing",
            "there is no 'nothing/tokenizer.json'. The directory holds nothing. Name the one with the tokenizer's",
        ),
        ("pieces", "there is no 'pieces/tokenizer.json'. Give its SentencePiece model, pieces/tokenizer.model, to"),
        (
            "wordpiece",
            "Make one in this directory: from tokenizers import BertWordPieceTokenizer; BertWordPieceTokenizer('",
        ),
        (
            "wordpiece/vocab.txt",
            "'wordpiece/vocab.txt' is not a known tokenizer. It is a vocabulary of WordPiece. Make",
        ),
        (
            "bpe",
            "import ByteLevelBPETokenizer; ByteLevelBPETokenizer('vocab.json', 'merges.txt').save('tokenizer.json').",
        ),
        (
            "bpe/vocab.json",
            "'bpe/vocab.json' is not a tokenizer.json. It is a vocabulary of byte-level BPE. Make one in",
        ),
        (
            "bpe/merges.txt",
            "'bpe/merges.txt' is not a known tokenizer. It is merges of byte-level BPE. Make one in this",
        ),
        ("mistral", "Save one with transformers: AutoTokenizer.from_pretrained('mistral').save_pretrained('mistral')."),
        (
            "mistral/tekken.json",
            "is not a tokenizer.json. It is a tokenizer of Mistral's. Save one with transformers: Au",
        ),
        (
            "llama",
            "llama/tokenizer.model holds ranks of tiktoken without their special tokens, as Llama 3's does. Save",
        ),
        ("llama/tokenizer.model", "(Llama 3's .model holds ranks of tiktoken)"),
        ("broken.model", "broken.model cannot be read as a SentencePiece model: expected a model of SentencePiece in"),
        ("absent.model", "absent.model cannot be read as a SentencePiece model: [Errno 2] No such file"),
    ]:
        with pytest.raises(DeclarationError, match=re.escape(message)):
            tokens("a.txt", tokenizer=tokenizer)
    with pytest.raises(DeclarationError, match=r"backend=… \(--backend\) is for a tokenizer.json, and 'bytes' is none"):
        tokens("a.txt", tokenizer="bytes", backend="tokenizers")


def test_special_tokens_that_are_spelled_in_a_text_are_text_unless_they_are_parsed() -> None:
    tokenizer = byte_pairs("tokenizer.json")
    text = "the token <|endoftext|> ends a text"
    Path("a.jsonl").write_bytes(json_lines([{"text": text}]))

    as_text = built(tokens("a.jsonl", tokenizer="tokenizer.json"), "text")["train"][0]["tokens"].tolist()
    parsed = built(tokens("a.jsonl", tokenizer="tokenizer.json", parse_special=True), "parsed")["train"][0]["tokens"]

    assert parsed.tolist() == [*tokenizer.encode(text).ids, 0] and parsed.tolist().count(0) == 2
    tokenizer.encode_special_tokens = True
    assert as_text == [*tokenizer.encode(text).ids, 0] and as_text.count(0) == 1


def test_the_end_of_a_text_is_the_one_that_transformers_finds() -> None:
    byte_pairs("tokenizer.json", special=("<|stop|>", "</s>"))
    Path("tokenizer_config.json").write_text("{}")
    Path("special_tokens_map.json").write_text(json.dumps({"eos_token": "<|stop|>"}))
    Path("a.jsonl").write_bytes(json_lines([{"text": "to"}]))

    assert built(tokens("a.jsonl", tokenizer="tokenizer.json"))["train"][0]["tokens"].tolist()[-1] == 0


# Options that contradict, records that do not fit.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"keep_fields": ["tokens"]},
            "the field 'tokens' cannot be kept: the ids use that name. Rename it in the data.",
        ),
        ({"dedup": "fuzzy"}, "dedup should be one of exact, near, got 'fuzzy'."),
        (
            {"by": "user"},
            "by='user' says what stays in one split, but there are no splits. Give splits, or omit by (--split",
        ),
        ({"min_tokens": 0}, "min_tokens is a number of tokens, 1 or more, got 0."),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens=9 is more than max_tokens=8: nothing would be left."),
        ({"format": "text", "keep_fields": ["n"]}, "the field 'n' cannot be kept: a line of text has no fields."),
        ({"format": "files", "keep_fields": ["n"]}, "the field 'n' cannot be kept: a file has only the field 'path'."),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    Path("a.jsonl").write_bytes(json_lines())
    with pytest.raises(DeclarationError, match=re.escape(message)):
        tokens("a.jsonl", tokenizer="bytes", **options)


def test_shares_that_do_not_add_up_are_refused_where_it_is_declared() -> None:
    Path("a.jsonl").write_bytes(json_lines())
    with pytest.raises(DeclarationError, match="splits: .*probabilities that add up to 1"):
        tokens("a.jsonl", tokenizer="bytes", splits={"train": 0.5, "eval": 0.1}).declaration()


def test_records_without_text_fail_one_by_one() -> None:
    rows = [{"text": "to be"}, {"body": "or"}, {"text": 7}, {"text": "not"}]
    Path("a.jsonl").write_bytes(json_lines(rows))
    recipe = tokens("a.jsonl", tokenizer="bytes", on_error="dead_letter")

    account = build(recipe.declaration(), to="cache", workers=1).account

    assert (account.written, account.dead) == (2, 2)
    with pytest.raises(
        TaskError, match="should have the field 'text', which is its text, and has body, n. Name a different"
    ):
        text_of({"body": "or", "n": 1}, field="text")
    with pytest.raises(TaskError, match="expected the field 'text' to hold text .str., found int: 7. Name another"):
        tokenize([{"text": 7}], vocabulary=ByteVocabulary(), field="text")
    assert text_of(FileContent("a", "hé".encode())) == "hé"
    assert text_of({"text": None}, field="text") is None


# Fields.


def texts_of(cache: Cache) -> list[str]:
    return [ByteVocabulary().decode(row["tokens"][:-1].tolist()) for row in cache["train"]]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "tar"])
@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"text_field": "body"}, "text_field (--text-field)"),
        ({"keep_fields": ["body"]}, "keep_fields (--keep-field)"),
        ({"by": "body", "splits": {"train": 1.0}}, "by (--by)"),
    ],
)
def test_a_field_that_no_record_has_is_refused_with_those_there_are(
    suffix: str, options: dict[str, Any], option: str
) -> None:
    if suffix == "jsonl":
        Path("a.jsonl").write_text('{"text": "a"}\n{"text": "b", "meta": {"lang": "en"}}\n')
    elif suffix == "csv":
        Path("a.csv").write_text("text,meta\na,en\n")
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pa.table({"text": ["a"], "meta": [{"lang": "en"}]}), "a.parquet")
    else:
        with tarfile.open("a.tar", "w") as tar:
            for name, content in {"1.txt": b"a", "1.meta": b"en"}.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    with pytest.raises(DeclarationError) as caught:
        tokens(f"a.{suffix}", tokenizer="bytes", **options)

    there = {
        "jsonl": "text, meta, meta.lang",
        "csv": "text, meta",
        "parquet": "text, meta, meta.lang",
        "tar": "txt, meta",
    }
    output = str(caught.value)
    assert output.startswith(f"{option}: no") and f"the field 'body'; there are {there[suffix]}. Name one of" in output


def test_a_field_that_few_records_have_is_kept() -> None:
    Path("a.jsonl").write_text('{"text": "a"}\n' * 999 + '{"text": "b", "rare": "x"}\n')

    assert built(tokens("a.jsonl", tokenizer="bytes", keep_fields=["rare"]))["train"][999]["rare"] == "x"


def test_keys_of_fields_and_bytes_of_parquet_are_texts() -> None:
    columns = {
        "meta": [{"text": "hé", "n": 1, "of": {"it": "deep"}}],
        "a.b": ["dotted"],
        "raw": [b"\xef\xbb\xbfb\xc3\xa9"],
        "x": [None],
    }
    pyarrow.parquet.write_table(pa.table(columns), "a.parquet")

    for field, text in {"meta.text": "hé", "meta.of.it": "deep", "a.b": "dotted", "raw": "bé"}.items():
        cache = built(tokens("a.parquet", tokenizer="bytes", text_field=field, keep_fields=["meta.n"]), to=field)
        assert (texts_of(cache), cache["train"][0]["meta.n"]) == ([text], "1")


def test_keys_of_keys_are_texts_and_fields_to_keep() -> None:
    row = {"data": {"doc": {"text": "a", "url": "u"}}}
    Path("a.jsonl").write_text(json.dumps(row) + "\n")

    cache = built(tokens("a.jsonl", tokenizer="bytes", text_field="data.doc.text", keep_fields=["data.doc.url"]))

    assert (texts_of(cache), cache["train"][0]["data.doc.url"]) == (["a"], "u")
    with pytest.raises(DeclarationError, match=r"there are data, data\.doc, data\.doc\.text, data\.doc\.url\."):
        tokens("a.jsonl", tokenizer="bytes", text_field="data.text")


def test_directories_of_hive_are_fields_of_texts() -> None:
    for year in (2023, 2024):
        Path(f"in/year={year}").mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"text": [f"of {year}"]}), f"in/year={year}/a.parquet")

    cache = built(tokens("in", tokenizer="bytes", keep_fields={"year": "int64"}))

    assert sorted(zip(texts_of(cache), (row["year"] for row in cache["train"]), strict=True)) == [
        ("of 2023", 2023),
        ("of 2024", 2024),
    ]


def test_fields_of_csv_are_kept_by_their_types() -> None:
    Path("a.csv").write_text(',text,n,score,good\n0,"one\ntwo",7,,True\n')
    keep = {"n": "int64", "score": "float32", "good": "bool", "Unnamed: 0": "str"}

    (row,) = built(tokens("a.csv", tokenizer="bytes", keep_fields=keep))["train"]

    assert (row["n"], row["good"], row["Unnamed: 0"]) == (7, True, "0") and np.isnan(row["score"])
    Path("a.csv").write_text("text,n\nto be,1_000\n")
    with pytest.raises(BeamPipesError, match="the field 'n' should be int64, found the text '1_000'"):
        built(tokens("a.csv", tokenizer="bytes", keep_fields={"n": "int64"}))


def test_a_gap_in_a_kept_field_is_nan_or_refused_with_what_to_do() -> None:
    row = {"text": "a", "n": None}
    kept = tokenize([row], vocabulary=ByteVocabulary(), field="text", keep={"n": "float64"})[0]
    assert kept is not None and np.isnan(kept["n"])  # type: ignore[call-overload]
    with pytest.raises(TaskError, match="'n' is int64 and has no value in this record.*--keep-field n:float64"):
        tokenize([row], vocabulary=ByteVocabulary(), field="text", keep={"n": "int64"})


def test_a_kept_field_that_a_record_does_not_have_is_asked_for() -> None:
    row = {"text": "a", "url": None}
    (kept,) = tokenize([row], vocabulary=ByteVocabulary(), field="text", keep={"url": "str"})
    assert kept is not None and kept["url"] == ""
    for record, field in ((row, "text"), (FileContent("a.txt", b"a"), None)):
        with pytest.raises(
            TaskError, match="the field 'URL' is to be kept, and a record does not have it.*sparse=True"
        ):
            tokenize([record], vocabulary=ByteVocabulary(), field=field, keep={"URL": "str"})
    (sparse,) = tokenize([row], vocabulary=ByteVocabulary(), field="text", keep={"URL": "str"}, sparse=True)
    assert sparse is not None and sparse["URL"] == ""


def test_files_that_are_no_text_say_what_they_are() -> None:
    files = [FileContent("a.txt.gz", gzip.compress(b"a")), FileContent("b.txt", "a".encode("utf-16"))]
    for file, words in zip(files, ["begins as gzip data do", "begins as UTF-16 does"], strict=True):
        with pytest.raises(TaskError, match=f"expected the file to hold text in UTF-8, found byte.*{words}"):
            text_of(file)
    assert text_of(FileContent("c.txt", b"\xef\xbb\xbfa")) == "a"


def test_the_delimiter_of_csv_is_asked_for() -> None:
    Path("a.csv").write_text("text;n\nhello;1\n")
    with pytest.raises(DeclarationError, match="has no comma, but 1 times ';'"):
        tokens("a.csv", tokenizer="bytes")
    assert texts_of(built(tokens("a.csv", tokenizer="bytes", delimiter=";"))) == ["hello"]


@pytest.mark.usefixtures("here")
def test_the_page_of_a_build_shows_tokens_without_being_asked(model: str) -> None:
    Path("a.jsonl").write_bytes(json_lines([{"text": "to be or not"}] * 1200))
    printed = CliRunner().invoke(
        app, ["tokens", "a.jsonl", "--tokenizer", model, "--no-eos", "--to", "cache", "--workers", "1", "--report"]
    )
    assert printed.exit_code == 0, printed.output
    (page,) = Path("cache").rglob("report.html")
    shown = page.read_text()
    tokens_in_all = sum(len(row["tokens"]) for row in Cache.open("cache")["train"])
    assert 'id="language"' in shown and "to be or not" in shown
    assert f'<p class="value">{tokens_in_all:,}</p>' in shown and "tokenize_tokens:" not in shown


# The module.


def test_the_module_spells_any_name_and_no_line_of_it_is_long() -> None:
    Path('it\'s "my" corpus').mkdir()
    keep = {f"a_field_with_a_long_name_{n}": "str" for n in range(9)}
    Path('it\'s "my" corpus/a.jsonl').write_bytes(json_lines([{**row, **keep} for row in ROWS]))
    recipe = tokens('it\'s "my" corpus', tokenizer="bytes", keep_fields=keep, splits={"it.is": 0.5, "not": 0.5})

    assert len(built(recipe)["it.is"]) + len(Cache.open("cache")["not"]) == len(ROWS)
    assert max(map(len, recipe.python.splitlines())) <= 120
    assert recipe.python.startswith(
        '"""Texts to token ids, as `beam-pipes tokens` declares them."""\n\nfrom beam_pipes'
    )


# Messages.

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}:"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|im_end|>{% endif %}{% endfor %}"
)


def talks() -> list[dict[str, Any]]:
    return [
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}], "user": n % 3}
        for n in (1, 2, 1)
    ]


@pytest.fixture
def model(here: Path) -> str:
    Path("model").mkdir()
    byte_pairs("model/tokenizer.json", special=("<|im_start|>", "<|im_end|>"))
    Path("model/tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return "model"


def said(example: Any, model: str) -> str:
    ids = example["tokens"][example["loss_weights"] == 1].tolist()
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.decoder = decoders.ByteLevel()
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text


def test_messages_become_tokens_with_weights_for_what_the_assistant_says(model: str) -> None:
    Path("a.jsonl").write_bytes(json_lines(talks()))

    recipe = chat("a.jsonl", tokenizer=model, keep_fields={"user": "int64"}, dedup="exact")
    cache = built(recipe)

    assert [(said(example, model), example["user"]) for example in cache["train"]] == [
        ("1!<|im_end|>", 1),
        ("2!<|im_end|>", 2),
    ]
    assert cache["train"].spec["tokens"].maximum == Tokenizer.from_file("model/tokenizer.json").get_vocab_size() - 1
    assert "stage(chat_tokens, chat=chat, keep=" in recipe.python


def test_what_a_template_leaves_out_is_told(model: str) -> None:
    talk: list[dict[str, Any]] = talks()[0]["messages"]
    said = [{"role": "developer", "content": "Be brief."}, talk[0], {**talk[1], "reasoning_content": "hm"}]
    rows = [{"messages": said, "tools": [{"name": "add"}]}, {"messages": talk}, {"messages": talk, "tools": None}]
    Path("a.jsonl").write_bytes(json_lines(rows))
    Path("deaf.jinja").write_text(TEMPLATE.replace("{% else %}", "{% elif message.role == 'user' %}"))

    command = (
        f"tokens a.jsonl --chat-template deaf.jinja --tools-field tools --tokenizer {model} --to cache --workers 1"
    )
    printed = CliRunner().invoke(app, [*command.split(), "--no-report"])

    assert printed.exit_code == 0, printed.output
    told = "left out by the chat template: 1 messages of developer, 1 reasoning, 1 tools\n"
    assert told in printed.output and len(Cache.open("cache")["train"]) == 3
    with pytest.raises(
        DeclarationError, match="tools_field .--tools-field.: none of the first 3 records has the field 't'"
    ):
        chat("a.jsonl", tokenizer=model, tools_field="t")


def test_a_chat_template_comes_from_a_file_if_one_is_named(model: str) -> None:
    Path("a.jsonl").write_bytes(json_lines([{"turns": talks()[0]["messages"]}]))
    Path("loud.jinja").write_text(TEMPLATE.replace("message.content", "message.content ~ '?'"))

    loud = built(chat("a.jsonl", tokenizer=model, template="loud.jinja", field="turns"))

    assert said(next(iter(loud["train"])), model) == "1!?<|im_end|>"
    with pytest.raises(
        DeclarationError, match="the chat template 'quiet.jinja' is not a file. Name a file with a Jinja template."
    ):
        chat("a.jsonl", tokenizer=model, template="quiet.jinja")


def test_messages_need_rows_and_their_names_are_not_taken(model: str) -> None:
    Path("a.txt").write_text("to be\n")
    Path("a.jsonl").write_bytes(json_lines(talks()))
    with pytest.raises(DeclarationError, match="messages are a field of rows, and 'text' has none. Give JSON Lines,"):
        chat("a.txt", tokenizer=model)
    with pytest.raises(DeclarationError, match="'loss_weights' cannot be kept: the weights of the loss use that name."):
        chat("a.jsonl", tokenizer=model, keep_fields=["loss_weights"])


# Archives.


def archive(path: str) -> None:
    with tarfile.open(path, "w") as tar:
        for n, talk in enumerate(talks()):
            members = {"txt": f"text {n}", "json": json.dumps({"text": f"json {n}", **talk})}
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{n:03}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))


@pytest.mark.parametrize(("field", "text"), [(None, "text"), ("txt", "text"), ("json.text", "json")])
def test_a_tar_is_read_by_the_extensions_of_its_members(field: str | None, text: str) -> None:
    archive("a.tar")

    cache = built(tokens("a.tar", tokenizer="bytes", text_field=field, keep_fields=["__key__", "json.user"]))

    examples = list(cache["train"])
    assert [example["tokens"].tolist() for example in examples] == [ids(f"{text} {n}") for n in range(3)]
    assert [(example["__key__"], example["json.user"]) for example in examples] == [
        ("000", "1"),
        ("001", "2"),
        ("002", "1"),
    ]


def test_messages_of_a_tar_are_a_key_of_a_member(model: str) -> None:
    archive("a.tar")
    cache = built(chat("a.tar", tokenizer=model, field="json.messages"))
    assert [said(example, model) for example in cache["train"]] == [f"{n}!<|im_end|>" for n in (1, 2, 1)]
    with pytest.raises(TaskError, match=r"found dict: .* Name a key of it, such as json.text, as field=… \(--text-fie"):
        text_of({"json": {"text": "to be"}}, field="json")
