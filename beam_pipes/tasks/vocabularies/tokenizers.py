"""Vocabularies of the `tokenizers` library, encoded by the fastest backend that gives the same ids.

A backend is another library that is tried first. Texts that it would encode differently are left to `tokenizers`;
equality for the rest is proved from the file (see `byte_pairs`), and on `proof_texts` before the first text is encoded.
The proof takes 0.4 s for 32,000 tokens and happens before a vocabulary is pickled; a process that unpickles it trusts
the proof if it has the same libraries. As a safeguard against a wrong proof, one in `CHECKED_EVERY` texts is encoded by
both, and a difference ends the build.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from beam_pipes.checks import choice
from beam_pipes.errors import DeclarationError, MissingExtraError, TaskError
from beam_pipes.tasks.vocabularies.byte_pairs import QuickEncoder, UnlikeTiktoken, byte_letters, byte_pairs
from beam_pipes.tasks.vocabularies.pretrained import (
    is_read_again,
    num_ids,
    open_json,
    panics_as_errors,
    read_pretrained,
    tell_dropout,
)
from beam_pipes.tasks.vocabularies.vocabulary import PAD_ID, Vocabulary, as_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_Ids = TypeVar("_Ids", list[int], np.ndarray)

BACKENDS = ("auto", "tokenizers", "tiktoken")

#: One in this many texts is also encoded by `tokenizers` and compared: 2 % of the time if the backend is five times as
#: fast. Texts are selected by content, so that a resumed build finds the same difference.
CHECKED_EVERY = 256

# Distinctions of expressions and normalizers: case, contractions, digits of scripts, marks, white space, emoji.
_PROOF = (
    "It's 1,234.5 km; we'LL see: I'm, you've... THEY'D\tgo!\r\n\r\n  def f(x):\n        return x**2  # ok   \n\n\n",
    "Größe Ünïcödé Ελλάδα Привет мир, שלום עולם مرحبا ١٢٣ नमस्ते १२ ไทย 日本語テキスト。漢字 한국어 Ⅷ ½ ²",
    "e\u0301 a\u030a\u0323 \u1e9b\u0323 ﬁ \u00a0\u2003\u3000x\u200b \u2028\x85 👍🏽👩\u200d👩\u200d👧 🇩🇪",
    "\U0001d7d8𐐷 \x00\x7f\ufffd",
    " a  b   c    d\t\te \n f\n\ng \r h\v\f i/j\\\\k --- === ### ___ <b>&amp;</b> http://x.y/z?q=1&r=2#s",
)
_PROOF_TOKENS_A_TEXT = 512


def _array(ids: list[int]) -> np.ndarray:
    return np.array(ids, np.int32)


def _versions() -> dict[str, str]:
    """The installed libraries that encode."""
    found = {}
    for name in ("tokenizers", "tiktoken"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def proof_texts(tokens: Sequence[str]) -> Iterator[str]:
    """Texts on which a backend must give equal ids: hard ones, and the tokens themselves, in byte-level spelling."""
    yield from _PROOF
    letters = byte_letters()
    # Sorted by spelling: the vocabulary's own order differs between processes.
    tokens = sorted(tokens)
    for start in range(0, len(tokens), _PROOF_TOKENS_A_TEXT):
        some = [token for token in tokens[start : start + _PROOF_TOKENS_A_TEXT] if all(map(letters.get, token))]
        yield b"".join(bytes(map(letters.__getitem__, token)) for token in some).decode("utf-8", "replace")


def _is_compared(text: str) -> bool:
    return zlib.crc32(text.encode()) % CHECKED_EVERY == 0


class TokenizersVocabulary(Vocabulary):
    """Any tokenizer of the `tokenizers` library: a `tokenizer.json` file, or a `tokenizers.Tokenizer`.

    Args:
        tokenizer: path of the JSON file or of its directory, or the object. Tokens from files beside it, such as
            `tokenizer_config.json`, are added as in `transformers`.
        eos_token: text of the token that ends a sequence (`"</s>"`, `"<|endoftext|>"`); None for none.
        pad_token: text of the padding token; None for id 0.
        unk_token: text of the unknown token; None for the model's own, if it has one.
        bos_token: text of the token that begins a sequence; None for none.
        extra_ids: number of ids to reserve after the tokenizer's.
        add_special_tokens: let the tokenizer's own template add its tokens. Off: EOS is a preprocessor's work.
        backend: which library encodes. "auto" uses tiktoken if it is installed and gives the tokenizer's ids, about
            five times as fast: byte-level BPE, as in GPT-2, GPT-4, Llama 3 or Qwen. "tiktoken" requires it,
            "tokenizers" does not use it. The ids are the same; "tokenizers" has a different fingerprint, so that
            nothing encoded by tiktoken is reused.
        special_as_text: whether a special token that is spelled in a text is ordinary text. Default: the tokenizer's
            setting (`encode_special_tokens`, or `split_special_tokens` in its configuration), else False.

    Padding, truncation and dropout of the file are switched off; `dropout` holds its value. If a text gives different
    ids while encoding, earlier results may be wrong too: a `DeclarationError` ends the build.

    Raises:
        TaskError: a named token is not in the tokenizer, `backend="tiktoken"` cannot replace it, or an object's added
            tokens have other ids than those read from its own JSON.
        MissingExtraError: `tokenizers` is not installed.
    """

    def __init__(
        self,
        tokenizer: str | os.PathLike[str] | Tokenizer,
        *,
        eos_token: str | None = None,
        pad_token: str | None = None,
        unk_token: str | None = None,
        bos_token: str | None = None,
        extra_ids: int = 0,
        add_special_tokens: bool = False,
        backend: str = "auto",
        special_as_text: bool | None = None,
    ) -> None:
        super().__init__(extra_ids=extra_ids)
        choice(backend, of=BACKENDS, what="backend", error=TaskError, backend=backend)
        self._wanted = backend
        unknown = frozenset[str]()
        if isinstance(tokenizer, str | os.PathLike):
            found = read_pretrained(tokenizer)
            self._json, unknown, as_text = found.tokenizer_json, found.unknown, found.special_as_text
        else:
            self._json, as_text = tokenizer.to_str(), tokenizer.encode_special_tokens
            if not is_read_again(tokenizer, self._json):
                raise TaskError(
                    "the tokenizer's JSON gives its added tokens other ids when it is read again, as by other "
                    "processes: one of them is there twice, or there is a hole before it. Give the path of the file."
                )
        self._special_as_text = as_text if special_as_text is None else special_as_text
        self._add_special_tokens = add_special_tokens
        self._tokens = {"eos": eos_token, "pad": pad_token, "unk": unk_token, "bos": bos_token}
        # The libraries with which another process searched for a backend, and why it found none.
        self._found: tuple[dict[str, str], str] = {}, ""
        for role, token in self._tokens.items():
            if token in unknown:
                raise TaskError(
                    f"the tokenizer has no token {token!r}, given as {role}_token: a file beside it names that, and "
                    "none gives it an id. Name one that it has.",
                    token=token,
                    role=role,
                )
        self._load(repr(os.fspath(tokenizer)) if isinstance(tokenizer, str | os.PathLike) else "the text")
        tell_dropout(self.dropout)
        if backend == "tiktoken" and self.backend != backend:
            raise TaskError(
                f"tiktoken cannot replace this tokenizer: {self.backend_reason}. Omit backend to encode with "
                "tokenizers.",
                backend=backend,
            )

    def _load(self, where: str = "the text") -> None:
        self._tokenizer, self.dropout = open_json(self._json, where=where)
        self._tokenizer.encode_special_tokens = self._special_as_text
        self._ids: dict[str, int | None] = {}
        for role, token in self._tokens.items():
            token_id = None if token is None else self._tokenizer.token_to_id(token)
            if token is not None and token_id is None:
                special = [each.content for each in self._tokenizer.get_added_tokens_decoder().values() if each.special]
                there = f"; its special tokens are {', '.join(special[:12])}{', …' * (len(special) > 12)}"
                raise TaskError(
                    f"the tokenizer has no token {token!r}, given as {role}_token{there if special else ''}. Name one "
                    f"that it has: {role}_token=… (--{role}-token).",
                    token=token,
                    role=role,
                )
            self._ids[role] = token_id
        if self._ids["unk"] is None:
            own = getattr(self._tokenizer.model, "unk_token", None)
            self._ids["unk"] = None if own is None else self._tokenizer.token_to_id(own)
        self._quick: QuickEncoder | str | None = None

    def __getstate__(self) -> dict[str, object]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("_tokenizer", "_quick")}
        return {**state, "_found": (_versions(), self.backend_reason)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._load()

    @property
    def tokenizer(self) -> Tokenizer:
        """The `tokenizers.Tokenizer`."""
        return self._tokenizer

    @property
    def bos_id(self) -> int | None:
        return self._ids["bos"]

    @property
    def eos_id(self) -> int | None:
        return self._ids["eos"]

    @property
    def pad_id(self) -> int:
        pad = self._ids["pad"]
        return PAD_ID if pad is None else pad

    @property
    def unk_id(self) -> int | None:
        return self._ids["unk"]

    @functools.cached_property
    def _base_vocab_size(self) -> int:
        return num_ids(self._tokenizer)

    @property
    def backend(self) -> str:
        """Which library encodes: "tiktoken" or "tokenizers"."""
        return "tiktoken" if isinstance(self._quick_encoder(), QuickEncoder) else "tokenizers"

    @property
    def backend_reason(self) -> str:
        """Why tiktoken does not encode; empty if it does."""
        quick = self._quick_encoder()
        return quick if isinstance(quick, str) else ""

    def _quick_encoder(self) -> QuickEncoder | str:
        """The encoder of the backend, created and proved on first use, or the reason for its absence."""
        if self._quick is None:
            try:
                self._quick = self._proved()
            except (UnlikeTiktoken, MissingExtraError) as why:
                self._quick = str(why)
        return self._quick

    def _proved(self) -> QuickEncoder:
        if self._wanted == "tokenizers":
            raise UnlikeTiktoken('backend="tokenizers" is asked for')
        if self._add_special_tokens:
            raise UnlikeTiktoken("its own template adds tokens (add_special_tokens=True)")
        versions, reason = self._found
        if versions == _versions():
            if reason:
                raise UnlikeTiktoken(reason)
            return QuickEncoder(byte_pairs(self._json, proved=True))
        quick = QuickEncoder(byte_pairs(self._json))
        texts = list(proof_texts(list(self._tokenizer.get_vocab(with_added_tokens=False))))
        for text in texts:
            ids = quick.encode(text)
            if ids is not None and ids != self._by_library(text):
                raise UnlikeTiktoken(
                    f"tiktoken {importlib.metadata.version('tiktoken')} gives other ids for {text[:40]!r}"
                )
        return quick

    def _by_library(self, text: str) -> list[int]:
        with panics_as_errors():
            return self._tokenizer.encode(text, add_special_tokens=self._add_special_tokens).ids

    def _batch_by_library(self, texts: list[str]) -> list[list[int]]:
        if len(texts) < 2:  # no threads for a single text, such as a compared one
            return [self._by_library(text) for text in texts]
        # Without offsets, which are not needed: a fifth faster.
        with panics_as_errors():
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def _encode(self, s: object) -> list[int]:
        # Not `encode_batch`, which calls this method in subclasses that override either.
        encoded: list[list[int]] = self._encoded([as_text(s)], QuickEncoder.encode, list)
        return encoded[0]

    def encode_batch(self, texts: Sequence[str | bytes], *, threads: int = 1) -> list[list[int]]:
        """Many texts in one call: the same ids, less time per text. `tokenizers` chooses its own threads."""
        return self._encoded(texts, QuickEncoder.encode, list)

    def encode_arrays(self, texts: Sequence[str | bytes], *, threads: int = 1) -> list[np.ndarray]:
        """`encode_batch` as arrays, (length,) int32 each; by tiktoken without a Python number for each id."""
        return self._encoded(texts, QuickEncoder.encode_array, _array)

    def _encoded(
        self,
        texts: Sequence[str | bytes],
        quickly: Callable[[QuickEncoder, str], _Ids | None],
        made: Callable[[list[int]], _Ids],
    ) -> list[_Ids]:
        """Ids by the backend; texts that it cannot encode go to `tokenizers`, and compared texts to both."""
        decoded = [as_text(text) for text in texts]
        quick = self._quick_encoder()
        if isinstance(quick, str):
            return [made(ids) for ids in self._batch_by_library(decoded)]
        encoded = [quickly(quick, text) for text in decoded]
        asked = [at for at, text in enumerate(decoded) if encoded[at] is None or _is_compared(text)]
        for at, right in zip(asked, self._batch_by_library([decoded[at] for at in asked]), strict=True):
            ids = encoded[at]
            if ids is not None and list(ids) != right:
                raise DeclarationError(
                    f"tiktoken {importlib.metadata.version('tiktoken')} gives other ids than tokenizers for the text "
                    f"{decoded[at][:40]!r}, so others that it has encoded may be wrong. Nothing is published. Encode "
                    "all of them with tokenizers: backend='tokenizers' (--backend tokenizers).",
                    text=decoded[at],
                )
            encoded[at] = made(right)
        return [ids for ids in encoded if ids is not None]

    def name_of(self, token_id: int) -> str | None:
        added = self._tokenizer.get_added_tokens_decoder().get(token_id)
        return added.content if added is not None and added.special else None

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def config(self) -> dict[str, object]:
        identity: dict[str, object] = {
            "tokenizer_sha256": hashlib.sha256(self._json.encode()).hexdigest(),
            "tokens": self._tokens,
            "extra_ids": self.extra_ids,
            "add_special_tokens": self._add_special_tokens,
        }
        if self._wanted == "tokenizers":
            identity["backend"] = self._wanted
        if self._special_as_text:
            identity["special_as_text"] = True
        if self._had_other_ids:
            identity["version"] = 2
        return identity

    @functools.cached_property
    def _had_other_ids(self) -> bool:
        """Whether earlier ids may have been different: random, or without a normalized added token."""
        described = json.loads(self._json)
        tokens = described.get("added_tokens") or () if described.get("normalizer") else ()
        return self.dropout is not None or any(token.get("normalized") for token in tokens)
