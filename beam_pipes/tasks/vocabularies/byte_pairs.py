r"""Byte-pair merges by tiktoken: `TiktokenVocabulary`, and the fast path for an equivalent `tokenizer.json`.

    tokenizer.json ──byte_pairs──▶ ranks, pattern ──QuickEncoder──▶ ids, or None: ask `tokenizers`

tiktoken knows one kind of tokenizer: a regular expression divides the text, and in each piece the two neighbours whose
merge has the lowest rank are merged until none is left; a token's rank is its id. It is several times faster than
`tokenizers`. A `tokenizer.json` gives the same ids if

- it divides text by one of the `PATTERNS`, which both libraries interpret identically for every code point;
- its merges are in the order of the ids that they give;
- every token, encoded by its merges alone, gives itself. Then two neighbours whose bytes make a token are always the
  two in the list of merges: no merge crosses a boundary between two remaining pieces, so text between two such
  boundaries is merged independently.

All of this is checked in the file, part by part. Files with unknown parts or options, from later releases of
`tokenizers`, are left to `tokenizers`, as are texts with added tokens or with code points that normalization may
change.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.tasks.vocabularies.files import read_bytes
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text

if TYPE_CHECKING:
    import tiktoken

_Ids = TypeVar("_Ids")

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_WORD_O200K = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

#: Patterns that divide text before bytes are merged, named after well-known users. The two engines (Oniguruma,
#: fancy-regex) may interpret other expressions differently, so these are left to `tokenizers`.
PATTERNS: Mapping[str, str] = {
    "gpt2": rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
    # GPT-4, Llama 3
    "cl100k": rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    # GPT-4o
    "o200k": rf"{_WORD_O200K}{_UPPER}*{_LOWER}+(?i:{_CONTRACTIONS})?|{_WORD_O200K}{_UPPER}+{_LOWER}*"
    rf"(?i:{_CONTRACTIONS})?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}

# Files of ranks that OpenAI publishes: name → pattern, id of `<|endoftext|>`.
_KNOWN_FILES = {
    "r50k_base": ("gpt2", 50256),
    "p50k_base": ("gpt2", 50256),
    "cl100k_base": ("cl100k", 100257),
    "o200k_base": ("o200k", 199999),
}

# `\s+(?!\S)` backtracks over runs of white space, and fancy-regex gives up after a million steps.
_MOST_WHITESPACE = 500_000
# Scripts beyond the BMP, where new Unicode versions keep adding composing characters; emoji come after them.
_SUPPLEMENTARY_SCRIPTS = re.compile("[\U00010000-\U0001efff]")


# Parts of a tokenizer.json and options of its model that are checked below or do not affect ids.
_PARTS = frozenset(
    "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model".split()
)
_OPTIONS = frozenset("type vocab merges unk_token fuse_unk ignore_merges".split())
# Post-processors that add nothing but the tokens of `add_special_tokens=True`. A template may also repeat the text.
_POST_PROCESSORS = ("ByteLevel", "BertProcessing", "RobertaProcessing", "TemplateProcessing")


class UnlikeTiktoken(Exception):
    """Why tiktoken cannot replace a `tokenizer.json`."""


class BytePairs(NamedTuple):
    """The parameters of tiktoken. `added` are tokens found verbatim in the text; `nfc`: text is composed first."""

    ranks: Mapping[bytes, int]
    pattern: str
    added: tuple[str, ...]
    nfc: bool


def byte_pairs(tokenizer_json: str, *, proved: bool = False) -> BytePairs:
    """The byte pairs of a `tokenizer.json` for which tiktoken gives the same ids. Raises `UnlikeTiktoken` otherwise.

    `proved`: another process has already checked that every token encodes to itself, which is most of the work; the
    check is not repeated.
    """
    described = json.loads(tokenizer_json)
    model = described["model"]
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise UnlikeTiktoken(f"its model is {model.get('type', 'unknown')}, not BPE")
    for option, value in model.items():
        if value and option not in _OPTIONS:
            raise UnlikeTiktoken(f"its model has {option}={value!r}")
    for part in described:
        if part not in _PARTS:
            raise UnlikeTiktoken(f"it has {part!r}, which is not known here")
    normalizer = described.get("normalizer")
    if normalizer is not None and normalizer.get("type") != "NFC":
        raise UnlikeTiktoken(f"its normalizer is {normalizer.get('type')}, not NFC or none")
    _require_plain(described.get("post_processor"))
    tokens = list(described.get("added_tokens") or ())
    for token in tokens:
        # `tokenizers` searches the normalized text for the normalized spelling of such a token.
        if normalizer is not None and token.get("normalized") and not _is_composed(token["content"]):
            raise UnlikeTiktoken(f"its normalizer changes its added token {token['content']!r}")
    added = tuple(token["content"] for token in tokens)
    return BytePairs(
        ranks=_ranks(model, set(added), proved=proved),
        pattern=_pattern(described.get("pre_tokenizer")),
        added=added,
        nfc=normalizer is not None,
    )


def _require_plain(post_processor: JsonObject | None) -> None:
    processors = [] if post_processor is None else post_processor.get("processors") or [post_processor]
    for processor in processors:
        sequences = [piece for piece in processor.get("single") or () if "Sequence" in piece]
        kind = processor.get("type")
        if kind not in _POST_PROCESSORS or (kind == "TemplateProcessing" and len(sequences) != 1):
            raise UnlikeTiktoken(f"its post-processor, {kind}, may change more than which special tokens are added")


def _is_composed(text: str) -> bool:
    """Whether NFC leaves a text unchanged in every version of Unicode."""
    return text.isascii() or (not may_compose_anew(text) and unicodedata.is_normalized("NFC", text))


def _pattern(pre_tokenizer: JsonObject | None) -> str:
    parts = [pre_tokenizer or {}]
    if parts[0].get("type") == "Sequence":
        parts = list(parts[0]["pretokenizers"])
    kinds = " and ".join(str(part.get("type", "none")) for part in parts)
    if not parts or parts[-1].get("type") != "ByteLevel" or parts[-1].get("add_prefix_space"):
        raise UnlikeTiktoken(f"its pre-tokenizer is {kinds}, not ByteLevel without a space in front")
    divides = parts[-1].get("use_regex", True)
    if len(parts) == 1 and divides:
        return PATTERNS["gpt2"]
    if len(parts) == 2 and not divides and parts[0].get("type") == "Split":
        split = parts[0]
        pattern = split["pattern"].get("Regex")
        plain = split.get("behavior") == "Isolated" and not split.get("invert")
        if plain and pattern in PATTERNS.values():
            return str(pattern)
        raise UnlikeTiktoken("it splits text by an expression that may differ in tiktoken")
    raise UnlikeTiktoken(f"its pre-tokenizer is {kinds}, which is more than one expression")


def _ranks(model: JsonObject, added: set[str], *, proved: bool) -> dict[bytes, int]:
    vocab: Mapping[str, int] = model["vocab"]
    merges: Sequence[str | Sequence[str]] = model["merges"]
    made: dict[str, int] = {}
    last = -1
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        rank = vocab[left + right]
        if rank < last:
            raise UnlikeTiktoken("its merges are not in the order of the ids that they give")
        made[left + right] = last = rank
    letters = byte_letters()
    missing = [letter for letter in letters if letter not in vocab]
    if missing:
        raise UnlikeTiktoken(f"it lacks {len(missing)} of the 256 bytes")
    for token in vocab:
        if token in made or token in letters:
            continue
        if token not in added:
            raise UnlikeTiktoken(f"no merge gives its token {token!r}")
        # A word whose byte-level spelling equals the token would match it, although the text does not contain it.
        if model.get("ignore_merges") and not token.isascii() and all(map(letters.__contains__, token)):
            raise UnlikeTiktoken(f"no merge gives its token {token!r}, which it finds in words all the same")
    made.update({letter: vocab[letter] for letter in letters})
    if len({*made.values()}) < len(made):
        raise UnlikeTiktoken("two of its tokens have the same id")
    if not all(letter in letters for token in made for letter in token):
        raise UnlikeTiktoken("it has tokens that are not spelled in the letters of bytes")
    if not proved:
        _require_own_ids(made, merges)
    return {bytes(map(letters.__getitem__, token)): rank for token, rank in made.items()}


def _require_own_ids(made: Mapping[str, int], merges: Sequence[str | Sequence[str]]) -> None:
    """Every token must result from merging its own bytes with `tokenizers`."""
    library = require("tokenizers", purpose="TokenizersVocabulary")
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]
    plain = library.Tokenizer(library.models.BPE(vocab=dict(made), merges=pairs))
    for token, rank in made.items():
        if plain.encode(token, add_special_tokens=False).ids != [rank]:
            raise UnlikeTiktoken(f"its token {token!r} is not what its own bytes are merged to")


@functools.lru_cache(maxsize=1)
def byte_letters() -> Mapping[str, int]:
    """How byte-level tokenizers spell bytes: the printable ones of Latin-1 as they are, the others from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + n): byte for n, byte in enumerate(others)}}


class QuickEncoder:
    """Encodes texts that tiktoken encodes like `tokenizers`; the ids of other texts are None."""

    def __init__(self, pairs: BytePairs) -> None:
        # A special token that is never allowed: without any, `encode_to_numpy` searches for them at every character.
        special = {(pairs.added or ("<|none|>",))[0]: max(pairs.ranks.values()) + 1}
        self._encoding = make_encoding("tokenizer.json", pairs.pattern, pairs.ranks, special)
        self._added = re.compile("|".join(map(re.escape, pairs.added))) if pairs.added else None
        self._nfc = pairs.nfc

    def encode(self, text: str) -> list[int] | None:
        """The ids of a text; None if it contains something that must be left to `tokenizers`."""
        return _encoded(self._encoding.encode_ordinary, text) if self._takes(text) else None

    def encode_array(self, text: str) -> np.ndarray | None:
        """`encode` as an array, (length,) int32, without a Python number for each id."""
        ids = _encoded(self._to_numpy, text) if self._takes(text) else None
        return None if ids is None else ids.astype(np.int32)

    def _to_numpy(self, text: str) -> np.ndarray:
        return self._encoding.encode_to_numpy(text, disallowed_special=())

    def _takes(self, text: str) -> bool:
        if self._added is not None and self._added.search(text) is not None:
            return False
        return not self._nfc or _is_composed(text)


def may_compose_anew(text: str) -> bool:
    """Whether a text has characters that a Unicode version newer than Python's may compose or order differently."""
    return _SUPPLEMENTARY_SCRIPTS.search(text) is not None or _unassigned().search(text) is not None


@functools.lru_cache(maxsize=1)
def _unassigned() -> re.Pattern[str]:
    unassigned = [chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) == "Cn"]
    return re.compile(f"[{''.join(unassigned)}]")


def make_encoding(name: str, pattern: str, ranks: Mapping[bytes, int], special: Mapping[str, int]) -> tiktoken.Encoding:
    """A `tiktoken.Encoding`."""
    library = require("tiktoken", purpose="encoding by tiktoken")
    made: tiktoken.Encoding = library.Encoding(
        name, pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens=dict(special)
    )
    return made


def _encoded(encode: Callable[[str], _Ids], text: str) -> _Ids | None:
    """The result of `encode`; None for a text on which the regular expressions fail."""
    if len(text) > _MOST_WHITESPACE and len(text) - sum(map(len, text.split())) > _MOST_WHITESPACE:
        return None
    try:
        return encode(text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's, which cannot be imported
            raise
        return None


def says_its_end(encoding: str) -> bool:
    """Whether an encoding of tiktoken, by name or path, says which id ends a text: files of unknown names do not."""
    return not os.path.isfile(encoding) or os.path.basename(encoding).partition(".")[0] in _KNOWN_FILES


class TiktokenVocabulary(Vocabulary):
    """An encoding of tiktoken, by name or from a file of ranks: `encode("to be") == [998, 387]` with "cl100k_base".

    Text that spells a special token (`<|endoftext|>`) is ordinary text.

    Args:
        encoding: name of an encoding, which tiktoken downloads once ("cl100k_base"); path of a `.tiktoken` file, which
            has one token per line, its bytes in base64 and its rank; or a `tiktoken.Encoding`.
        pattern: for a file: the regular expression that divides text, or a key of `PATTERNS`. Default: that of the
            encoding in the file's name, "cl100k" for other files.
        special_tokens: for a file: text → id. Default: `<|endoftext|>` of the encoding in the file's name; none for
            other files, which do not say what they are.
        eos_token: the special token that ends a sequence; None for none.
        bos_token: the special token that begins one; None for none.
        extra_ids: number of ids to reserve after the encoding's.

    Raises:
        TaskError: the encoding cannot be loaded, or a named token is not in it.
        MissingExtraError: `tiktoken` is not installed.
    """

    def __init__(
        self,
        encoding: str | os.PathLike[str] | tiktoken.Encoding,
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | None = None,
        eos_token: str | None = "<|endoftext|>",
        bos_token: str | None = None,
        extra_ids: int = 0,
    ) -> None:
        super().__init__(extra_ids=extra_ids)
        if isinstance(encoding, str | os.PathLike):
            is_file = os.path.sep in os.fspath(encoding) or os.path.isfile(encoding)
            self._encoding = _from_file(encoding, pattern, special_tokens) if is_file else _by_name(encoding)
        else:
            self._encoding = encoding
        self._ids = {"eos": self._special("eos", eos_token), "bos": self._special("bos", bos_token)}

    def _special(self, role: str, token: str | None) -> int | None:
        if token is None:
            return None
        known = self._encoding._special_tokens
        if token not in known:
            there = ", ".join(map(repr, sorted(known)))
            remedy = f"it has {there}. Name one of these, or None"
            if not there:  # the first id that is free may be any of them: 128000 of Llama 3 begins a text
                remedy = f"a file of ranks has none. Say its id, special_tokens={{{token!r}: …}}, or {role}_token=None"
            raise TaskError(
                f"the encoding {self._encoding.name!r} has no special token {token!r}, the {role}_token; {remedy}.",
                token=token,
                role=role,
            )
        return int(known[token])

    @property
    def tokenizer(self) -> tiktoken.Encoding:
        """The `tiktoken.Encoding`."""
        return self._encoding

    @property
    def bos_id(self) -> int | None:
        return self._ids["bos"]

    @property
    def eos_id(self) -> int | None:
        return self._ids["eos"]

    unk_id = None

    @property
    def _base_vocab_size(self) -> int:
        return int(self._encoding.n_vocab)

    def _encode(self, s: object) -> list[int]:
        text = as_text(s)
        ids = _encoded(self._encoding.encode_ordinary, text)
        if ids is None:
            raise TaskError(
                f"tiktoken fails on a text of {len(text):,} characters: its regular expressions backtrack over long "
                "runs of white space. Split the text, or collapse its white space, before encoding it.",
                length=len(text),
            )
        return ids

    def _decode(self, ids: Sequence[int]) -> str:
        return self._encoding.decode([i for i in ids if i < self._encoding.n_vocab])

    def config(self) -> dict[str, object]:
        return {
            "encoding_sha256": _content(self._encoding),
            "tokens": self._ids,
            "extra_ids": self.extra_ids,
        }


@functools.lru_cache(maxsize=16)
def _content(encoding: tiktoken.Encoding) -> str:
    """Sha256 of the encoding's content, without its name."""
    digest = hashlib.sha256(encoding._pat_str.encode())
    for token, rank in sorted(encoding._mergeable_ranks.items(), key=lambda item: item[1]):
        digest.update(b"%d:%d:%s" % (rank, len(token), token))
    digest.update(json.dumps(sorted(encoding._special_tokens.items())).encode())
    return digest.hexdigest()


def _by_name(name: str | os.PathLike[str]) -> tiktoken.Encoding:
    library = require("tiktoken", purpose="TiktokenVocabulary")
    name = os.fspath(name)
    known = library.list_encoding_names()
    if name not in known:
        raise TaskError(
            f"tiktoken has no encoding {name!r}, and no such file exists; its encodings are {', '.join(known)}. Give "
            "one of these, or the path of a .tiktoken file.",
            encoding=name,
        )
    try:
        found: tiktoken.Encoding = library.get_encoding(name)
    except Exception as error:  # whatever its downloads raise
        raise TaskError(
            f"tiktoken cannot load the encoding {name!r}, which it downloads on first use: {error}. Give the "
            f"path of a file {name}.tiktoken, or set TIKTOKEN_CACHE_DIR to where it was downloaded before.",
            encoding=name,
        ) from error
    return found


def _from_file(
    path: str | os.PathLike[str], pattern: str | None, special_tokens: Mapping[str, int] | None
) -> tiktoken.Encoding:
    path = os.fspath(path)
    stem = os.path.basename(path).partition(".")[0]
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise TaskError(
                f"{path}, line {number}: expected the bytes of a token in base64 and its rank, found {line[:40]!r}. "
                "Give a .tiktoken file.",
                path=path,
            ) from error
    missing = sum(bytes([byte]) not in ranks for byte in range(256))
    if missing:
        raise TaskError(
            f"{path} should have a token for each of the 256 bytes, and {missing} have none. Give a .tiktoken file.",
            path=path,
        )
    of_name, end = _KNOWN_FILES.get(stem, ("cl100k", None))
    pattern = PATTERNS.get(pattern or of_name, pattern or of_name)
    special = special_tokens if special_tokens is not None else {} if end is None else {"<|endoftext|>": end}
    return make_encoding(sys.intern(stem), pattern, ranks, special)
