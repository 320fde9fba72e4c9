"""Tokenizers drawn at random, feature by feature, and random texts: ids are those of the library that owns the format.

A `tokenizer.json` is drawn from models (BPE of bytes and of characters, WordPiece, Unigram, WordLevel), normalizers,
pre-tokenizers, post-processors, added tokens with each flag, merges in both spellings, holes in the ids, dropout,
truncation and padding, and, for `transformers`, the files beside it. SentencePiece models are trained with drawn
options, each at the path of the last one. Files of tiktoken have ranks that are drawn. `Outcome.what` is "equal",
"refused" (by both), "on purpose" (by us alone, with the reason) or "wrong".
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.tasks.vocabularies import SentencePieceVocabulary, TiktokenVocabulary, TokenizersVocabulary
from beam_pipes.tasks.vocabularies.byte_pairs import PATTERNS, byte_letters
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary

#: Words of a refusal → why we refuse what the library encodes.
ON_PURPOSE = {
    "other ids when it is read again": "added tokens that the library itself does not read back",
    "of which its normalizer leaves nothing": "an added token that is empty once it is normalized",
    "which its normalizer makes equal": "added tokens between which the library draws",
}

_PIECES = (
    "the fog comes on little cat feet", " ", "  ", "\n", "\r\n\t", "café", "cafe\u0301", "Å \u212b",
    "ﬁ", "1234567", "١٢٣", "It'S we'LL", "日本語", "한국어", "\u1100\u1161", "हिन्दी", "👍🏽", "\u200b",
    "\u00a0", "\u3000", "\ufeff", "\x00", "\x7f", "\ufffd", "\U00016d63", "ſ", "<tool>", "<|end|>",
    "word", "sword", "words", "Ġthe", "▁the", "##ing", "singing", "<0x41>", "aaaaaaaab", "İSTANBUL",
    "ǅ", "<tool", "x", "\u0344", "e\u0323\u0307", "...", "--", "$%&", "_a_", "\u2028", "\x85", "ß",
    "ς", "\U0001d7d8",
)  # fmt: skip
_ADDED = (
    "<tool>", "<|end|>", "word", "cafe\u0301", "café", "fog", " the", "Å", "▁the", "Ġthe",
    "<tool>x", "a", "FOG", "1", "\n", "<0x41>", "日本",
)  # fmt: skip
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class Outcome(NamedTuple):
    """What came of a tokenizer, and what is wrong or refused."""

    what: str
    words: str = ""


def texts(draw: random.Random, number: int) -> list[str]:
    """Texts of one to twelve pieces, and the empty one."""
    return ["", *("".join(draw.choices(_PIECES, k=draw.randint(1, 12))) for _ in range(number - 1))]


# A tokenizer.json.


def described(draw: random.Random) -> dict[str, Any]:
    """A `tokenizer.json` with a model that is trained on drawn texts."""
    kind = draw.choice(
        ("bytes", "bytes", "bytes", "bytes", "characters", "suffix", "WordPiece", "Unigram", "WordLevel")
    )
    made = Tokenizer(_MODELS[kind]())
    made.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if kind == "bytes" else pre_tokenizers.Whitespace()
    )
    if kind == "characters":
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    options: dict[str, Any] = {
        "vocab_size": draw.choice((300, 400, 500)),
        "show_progress": False,
        "special_tokens": ["<unk>"],
    }
    if kind == "bytes":
        options |= {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "special_tokens": ["<|end|>"]}
    if kind == "suffix":
        options["end_of_word_suffix"] = "</w>"
    if kind == "Unigram":
        options["unk_token"] = "<unk>"
    made.train_from_iterator(texts(draw, 60), _TRAINERS[kind](**options))
    json_: dict[str, Any] = json.loads(made.to_str())
    for change in _CHANGES:
        change(draw, json_, kind)
    return json_


_MODELS: dict[str, Callable[[], models.Model]] = {
    "bytes": models.BPE,
    "characters": lambda: models.BPE(unk_token="<unk>", byte_fallback=True),
    "suffix": lambda: models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
    "WordPiece": lambda: models.WordPiece(unk_token="<unk>"),
    "Unigram": models.Unigram,
    "WordLevel": lambda: models.WordLevel(unk_token="<unk>"),
}
_TRAINERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("bytes", "characters", "suffix"), trainers.BpeTrainer),
    "WordPiece": trainers.WordPieceTrainer,
    "Unigram": trainers.UnigramTrainer,
    "WordLevel": trainers.WordLevelTrainer,
}
_NORMALIZERS: tuple[dict[str, Any], ...] = (
    *({"type": each} for each in ("NFC", "NFC", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")),
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"Regex": "o+"}, "content": "0"},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
)
_PLAIN = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_SPLITS = (
    *PATTERNS.values(),
    *PATTERNS.values(),
    r"\w+|[^\w\s]+|\s+",
    PATTERNS["cl100k"].replace("{1,3}", "{1,2}"),
)
_SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}


def _normalizer(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    if draw.random() < 0.4:
        json_["normalizer"] = draw.choice(_NORMALIZERS)
        if draw.random() < 0.2:
            json_["normalizer"] = {"type": "Sequence", "normalizers": draw.choices(_NORMALIZERS, k=2)}


def _pre_tokenizer(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    if kind != "bytes" or draw.random() < 0.3:
        return
    split = {"type": "Split", "pattern": {"Regex": draw.choice(_SPLITS)}, "behavior": "Isolated", "invert": False}
    if draw.random() < 0.1:
        split |= draw.choice(({"behavior": "Removed"}, {"behavior": "MergedWithNext"}, {"invert": True}))
    last = {**_PLAIN, "add_prefix_space": draw.random() < 0.1, "use_regex": draw.random() < 0.1}
    parts = [split, last]
    if draw.random() < 0.1:
        parts.insert(0, {"type": "Digits", "individual_digits": True})
    json_["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}


def _post_processor(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    token = json_["added_tokens"][0]["content"]
    special = {token: {"id": token, "ids": [json_["added_tokens"][0]["id"]], "tokens": [token]}}
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    single = draw.choice(([first, _SEQUENCE], [_SEQUENCE, first], [_SEQUENCE, _SEQUENCE], [_SEQUENCE]))
    pair = [_SEQUENCE, {"Sequence": {"id": "B", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
    chosen = draw.choice(
        (
            None,
            None,
            template,
            {**_PLAIN, "trim_offsets": False},
            {"type": "Sequence", "processors": [_PLAIN, template]},
        )
    )
    json_["post_processor"] = chosen


def _added_tokens(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    vocab = json_["model"]["vocab"]
    known = {token for token, *_ in vocab} if isinstance(vocab, list) else {*vocab}
    size = max([len(known), *(token["id"] + 1 for token in json_["added_tokens"])])
    for content in draw.sample(_ADDED, draw.choice((0, 0, 1, 2, 3, 4))):
        if any(token["content"] == content for token in json_["added_tokens"]):
            continue
        token_id = size
        if isinstance(vocab, dict) and content in known:
            token_id = vocab[content]
        elif isinstance(vocab, dict) and draw.random() < 0.3:
            vocab[content] = size
        size += token_id == size
        flags = {flag: draw.random() < 0.35 for flag in _FLAGS}
        json_["added_tokens"].append({"id": token_id, "content": content, **flags})


def _options(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    model = json_["model"]
    if "merges" in model:
        model["dropout"] = draw.choice((None, None, None, 0.0, 0.3))
        if kind == "bytes" and draw.random() < 0.3:
            model["ignore_merges"] = True
        if draw.random() < 0.3:
            model["merges"] = [" ".join(merge) for merge in model["merges"]]
        if draw.random() < 0.1:
            draw.shuffle(model["merges"])
    if draw.random() < 0.2:
        json_["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    if draw.random() < 0.2:
        json_["padding"] = {"strategy": {"Fixed": 32}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                            "pad_type_id": 0, "pad_token": json_["added_tokens"][0]["content"]}  # fmt: skip


def _holes(draw: random.Random, json_: dict[str, Any], kind: str) -> None:
    vocab = json_["model"]["vocab"]
    if isinstance(vocab, list) or draw.random() > 0.25:
        return
    moved = {token: token_id + 100 * (token_id >= 290) for token, token_id in vocab.items()}
    for token in json_["added_tokens"]:
        token["id"] = moved.get(token["content"], token["id"] + 100 * (token["id"] >= 290))
    json_["model"]["vocab"] = moved
    for each in ((json_.get("post_processor") or {}).get("special_tokens") or {}).values():
        each["ids"] = [json_["added_tokens"][0]["id"]]


_CHANGES = (_normalizer, _pre_tokenizer, _added_tokens, _options, _holes, _post_processor)


def tokenizer_json(seed: int, directory: Path) -> Outcome:
    """One `tokenizer.json`, as an object of the library."""
    draw = random.Random(seed)
    text = json.dumps(described(draw), ensure_ascii=False)
    asked = texts(draw, 40)
    as_text = draw.choice((None, None, True))

    def theirs() -> list[list[int]]:
        library = Tokenizer.from_str(text)
        library.no_padding()
        library.no_truncation()
        library.encode_special_tokens = bool(as_text)
        if hasattr(library.model, "dropout"):
            library.model.dropout = None
        return [library.encode(each, add_special_tokens=False).ids for each in asked]

    return compared(lambda: TokenizersVocabulary(Tokenizer.from_str(text), special_as_text=as_text), theirs, asked)


def folder(seed: int, directory: Path) -> Outcome:
    """A `tokenizer.json` with files beside it, as `transformers` reads them."""
    draw = random.Random(seed)
    json_ = described(draw)
    json_["model"].pop("dropout", None)
    json_["truncation"] = json_["padding"] = None
    if json_["model"]["type"] == "BPE":
        json_["model"]["dropout"] = None
    (directory / "tokenizer.json").write_text(json.dumps(json_, ensure_ascii=False))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    named = draw.sample(("<s>", "</s>", "<tool>", "<image>", "fog", "<|end|>"), 3)
    if draw.random() < 0.5:
        config |= {"eos_token": named[0], "bos_token": {"content": named[1], "__type": "AddedToken", "lstrip": True}}
    if draw.random() < 0.3:
        config["extra_special_tokens"] = draw.choice(({"image_token": named[2]}, [named[2]]))
    for name in ("special_tokens_map.json", "added_tokens.json"):
        (directory / name).unlink(missing_ok=True)
    if draw.random() < 0.3:
        (directory / "special_tokens_map.json").write_text(
            json.dumps({"pad_token": named[2], "additional_special_tokens": named[:1]})
        )
    if draw.random() < 0.2:
        size = max(token["id"] for token in json_["added_tokens"]) + 1
        (directory / "added_tokens.json").write_text(json.dumps({"<new>": max(size, len(json_["model"]["vocab"]))}))
    if draw.random() < 0.2:
        config["split_special_tokens"] = True
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    asked = [each + draw.choice(("", "<s>a", " <image> ", "<new>")) for each in texts(draw, 30)]

    def theirs() -> list[list[int]]:
        library = AutoTokenizer.from_pretrained(directory)
        return [library.encode(each, add_special_tokens=False) for each in asked]

    return compared(lambda: TokenizersVocabulary(directory), theirs, asked)


# SentencePiece and tiktoken.


def sentencepiece_model(seed: int, directory: Path) -> Outcome:
    """A model that is trained where the last one was."""
    draw = random.Random(seed)
    kind = draw.choice(("unigram", "bpe", "char", "word"))
    corpus = [text for text in texts(draw, 120) if "\x00" not in text]
    options: dict[str, Any] = {
        "byte_fallback": draw.random() < 0.4,
        "normalization_rule_name": draw.choice(("nmt_nfkc", "identity", "nfkc", "nmt_nfkc_cf")),
        "add_dummy_prefix": draw.random() < 0.6,
        "remove_extra_whitespaces": draw.random() < 0.5,
        "user_defined_symbols": draw.sample(("<tool>", "fog", "日本"), draw.randint(0, 2)),
        "split_digits": draw.random() < 0.5,
        "allow_whitespace_only_pieces": draw.random() < 0.3,
        "treat_whitespace_as_suffix": draw.random() < 0.2,
    }
    path = directory / "m.model"
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=file, model_type=kind, vocab_size=400, hard_vocab_limit=False,
            minloglevel=9, num_threads=1, **options,
        )  # fmt: skip
    asked = texts(draw, 40)
    library = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    return compared(lambda: SentencePieceVocabulary(str(path)), lambda: library.encode(asked), asked)


def tiktoken_file(seed: int, directory: Path) -> Outcome:
    """A file of ranks, and the pattern of an encoding."""
    draw = random.Random(seed)
    letters = byte_letters()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(texts(draw, 60), trainer)
    ranks = {bytes(map(letters.__getitem__, token)): token_id for token, token_id in made.get_vocab().items()}
    hole = draw.choice((0, 0, 50))
    ranks = {token: rank + hole * (rank >= 300) for token, rank in ranks.items()}
    path = directory / "ranks.tiktoken"
    path.write_bytes(
        b"".join(
            base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(ranks.items(), key=lambda each: each[1])
        )
    )
    pattern = draw.choice([*PATTERNS])
    asked = texts(draw, 40)
    library = tiktoken.Encoding(
        "drawn", pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={"<|end|>": 1000}
    )
    return compared(
        lambda: TiktokenVocabulary(path, pattern=pattern, special_tokens={"<|end|>": 1000}, eos_token="<|end|>"),
        lambda: [library.encode_ordinary(each) for each in asked],
        asked,
    )


#: Kind → what draws a tokenizer of it and compares the ids.
KINDS: dict[str, Callable[[int, Path], Outcome]] = {
    "tokenizer.json": tokenizer_json,
    "tokenizer.json with files beside it": folder,
    "SentencePiece": sentencepiece_model,
    "file of tiktoken": tiktoken_file,
}


def compared(ours: Callable[[], Vocabulary], theirs: Callable[[], list[list[int]]], asked: Sequence[str]) -> Outcome:
    """The outcome for texts, encoded one by one and together."""
    try:
        expected, refusal = theirs(), ""
    except BaseException as error:  # of Rust, whose panics are no exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        expected, refusal = [], f"{type(error).__name__}: {error}"
    try:
        vocabulary = ours()
        together = vocabulary.encode_batch(asked)
        arrays = [ids.tolist() for ids in vocabulary.encode_arrays(asked)]
        single = [[*vocabulary.encode(each)] for each in asked]
    except (DeclarationError, TaskError) as error:
        if refusal:
            return Outcome("refused", refusal)
        reason = next((reason for part, reason in ON_PURPOSE.items() if part in str(error)), None)
        return Outcome("on purpose", reason) if reason else Outcome("wrong", f"refused by us alone: {error}")
    if refusal:
        return Outcome("wrong", f"refused by the library alone: {refusal}")
    for text, right, *found in zip(asked, expected, together, arrays, single, strict=True):
        if any(ids != right for ids in found):
            return Outcome("wrong", f"{text!r} gives {found[0]}, {found[1]} and {found[2]}, and {right}")
    highest = max((max(ids) for ids in expected if ids), default=0)
    if vocabulary.vocab_size <= highest:
        return Outcome("wrong", f"{vocabulary.vocab_size} ids, and {highest} is one")
    return Outcome("equal", getattr(vocabulary, "backend", ""))


def outcomes(directory: Path, *, number: int, seed: int = 0) -> Iterator[tuple[str, int, Outcome]]:
    """Kind, seed and outcome, of `number` tokenizers of each kind."""
    for kind, draws in KINDS.items():
        for each in range(seed, seed + number):
            yield kind, each, draws(each, directory)
