"""Vocabularies of the `tokenizers` library."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.tasks.in_tensorflow.runtime import read_bytes
from beam_pipes.tasks.vocabularies.vocabulary import PAD_ID, Vocabulary, as_text


class TokenizersVocabulary(Vocabulary):
    """Any tokenizer of the `tokenizers` library: a `tokenizer.json` file, or a `tokenizers.Tokenizer`.

    Args:
        tokenizer: path of the JSON file, or the object.
        eos_token: text of the token that ends a sequence (`"</s>"`, `"<|endoftext|>"`); None for none.
        pad_token: text of the padding token; None for id 0.
        unk_token: text of the unknown token; None for the model's own, where it has one.
        bos_token: text of the token that begins a sequence; None for none.
        extra_ids: number of ids to reserve after the tokenizer's.
        add_special_tokens: let the tokenizer's own template add its tokens. Off: EOS is a preprocessor's work.

    Raises:
        TaskError: a named token is not in the tokenizer.
        MissingExtraError: `tokenizers` is not installed.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        eos_token: str | None = None,
        pad_token: str | None = None,
        unk_token: str | None = None,
        bos_token: str | None = None,
        extra_ids: int = 0,
        add_special_tokens: bool = False,
    ) -> None:
        super().__init__(extra_ids=extra_ids)
        if isinstance(tokenizer, (str, os.PathLike)):
            self._json = read_bytes(tokenizer).decode("utf-8")
        else:
            self._json = tokenizer.to_str()
        self._add_special_tokens = add_special_tokens
        self._tokens = {"eos": eos_token, "pad": pad_token, "unk": unk_token, "bos": bos_token}
        self._load()

    def _load(self) -> None:
        library = require("tokenizers", purpose="TokenizersVocabulary")
        self._tokenizer = library.Tokenizer.from_str(self._json)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._ids: dict[str, int | None] = {}
        for role, token in self._tokens.items():
            token_id = None if token is None else self._tokenizer.token_to_id(token)
            if token is not None and token_id is None:
                raise TaskError(f"the tokenizer has no token {token!r}, given as {role}_token", token=token, role=role)
            self._ids[role] = token_id
        if self._ids["unk"] is None:
            own = getattr(self._tokenizer.model, "unk_token", None)
            self._ids["unk"] = None if own is None else self._tokenizer.token_to_id(own)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_tokenizer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._load()

    @property
    def tokenizer(self) -> Any:
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

    @property
    def _base_vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def _encode(self, s: Any) -> list[int]:
        return self._tokenizer.encode(as_text(s), add_special_tokens=self._add_special_tokens).ids  # type: ignore[no-any-return]

    def encode_batch(self, texts: Sequence[Any], *, threads: int = 1) -> list[list[int]]:
        """Many texts in one call into the library; it chooses its own threads."""
        encodings = self._tokenizer.encode_batch(
            [as_text(text) for text in texts], add_special_tokens=self._add_special_tokens
        )
        return [encoding.ids for encoding in encodings]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)  # type: ignore[no-any-return]

    def config(self) -> dict[str, Any]:
        return {
            "tokenizer_sha256": hashlib.sha256(self._json.encode()).hexdigest(),
            "tokens": self._tokens,
            "extra_ids": self.extra_ids,
            "add_special_tokens": self._add_special_tokens,
        }
