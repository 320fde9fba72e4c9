"""Tokenizers by name, as Python that makes the vocabulary.

    vocabulary_of("tok/tokenizer.json", …)  →  TokenizersVocabulary("tok/tokenizer.json", eos_token="</s>")
    vocabulary_of("tiktoken:cl100k_base", …) → TiktokenVocabulary("cl100k_base")

Which token ends a text is decided here once, and written into the module of a recipe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from beam_pipes.checks import nearest_path
from beam_pipes.errors import DeclarationError, TaskError, logger, without_stop
from beam_pipes.recipes.written import Code, Module, Recipe, call
from beam_pipes.tasks.vocabularies import SentencePieceVocabulary, Vocabulary
from beam_pipes.tasks.vocabularies.byte_pairs import says_its_end
from beam_pipes.tasks.vocabularies.pretrained import (
    hub_remedy,
    open_json,
    other_tokenizer,
    read_pretrained,
    tokenizer_file,
)

_log = logger(__name__)

# Tokens that end and begin a text in tokenizers that do not define them.
_WELL_KNOWN = {
    "eos": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"),
    "bos": ("<|begin_of_text|>", "<s>", "<bos>", "[BOS]"),
}


def vocabulary_of(
    tokenizer: str, wanted: Mapping[str, bool], given: Mapping[str, str | None], **options: object
) -> Code:
    """The vocabulary of a tokenizer, as Python; for "eos" and "bos", whether they are wanted and by what name.

    `options` are those specific to a `tokenizer.json`.
    """
    kind, _, rest = tokenizer.partition(":")
    path = tokenizer_file(tokenizer)
    if kind == "tiktoken" and rest:
        there = {"eos": says_its_end(rest), "bos": given["bos"] is not None}
        named = {f"{role}_token": token for role, token in given.items() if token is not None and wanted[role]}
        made = call("TiktokenVocabulary", rest, **named if wanted["eos"] else {**named, "eos_token": Code("None")})
    elif tokenizer == "bytes":
        there = {"eos": True, "bos": False}
        made = call("ByteVocabulary")
    elif path.endswith(".json"):
        tokens = _tokens_of(tokenizer, given)
        there = {role: token is not None for role, token in tokens.items()}
        roles = {f"{role}_token": token for role, token in tokens.items() if wanted[role]}
        made = call("TokenizersVocabulary", path, **roles, **options)
    elif path.endswith((".model", ".spm")):
        there = _pieces_of(path)
        made = call("SentencePieceVocabulary", path)
    else:
        known = "Give a tokenizer.json or its folder, SentencePiece's .model or .spm, tiktoken:NAME or PATH, or bytes."
        remedy = f"{known}{nearest_path(tokenizer)} {hub_remedy(tokenizer)}"
        if os.path.isfile(tokenizer):
            remedy = other_tokenizer(tokenizer) or known
        raise DeclarationError(f"{tokenizer!r} is not a known tokenizer. {remedy}")
    if not path.endswith(".json") and options.get("backend") is not None:
        raise DeclarationError(
            f"backend=… (--backend) is for a tokenizer.json, and {tokenizer!r} is none. Leave it out."
        )
    for role, is_wanted in wanted.items():
        if is_wanted and not there[role]:
            remedy = f"Name it as {role}_token=… (--{role}-token), or leave"
            if kind == "tiktoken":
                remedy = "A file of ranks cannot: give the tokenizer.json that belongs to it, or leave"
            raise DeclarationError(
                f"the tokenizer {tokenizer!r} does not define which token {'ends' if role == 'eos' else 'begins'} a "
                f"text. {remedy} it out with {role}=False (--no-{role})."
            )
    return made


def open_tokenizer(tokenizer: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary named as for `tokens`: `open_tokenizer("tokenizer.json")`. Raises `DeclarationError`."""
    vocabulary = vocabulary_of(os.fspath(tokenizer), {"eos": False, "bos": False}, {"eos": None, "bos": None})
    module = Module()
    module.assign("vocabulary", vocabulary, "beam_pipes.tasks.vocabularies")
    return Recipe(module.text("A tokenizer.")).vocabulary


def _pieces_of(path: str) -> dict[str, bool]:
    """The begin and end tokens that a SentencePiece model has."""
    try:
        pieces = SentencePieceVocabulary(path)
        ids = {"eos": pieces.eos_id, "bos": pieces.bos_id}
    except (OSError, TaskError) as error:
        raise DeclarationError(f"{path} cannot be read as a SentencePiece model: {without_stop(error)}.") from error
    if (added := Path(path).with_name("added_tokens.json")).is_file():
        _log.warning(
            "%s beside the model is not read: tokens in it are ordinary text. A tokenizer.json has them.", added
        )
    return {role: piece is not None and piece >= 0 for role, piece in ids.items()}


def _tokens_of(tokenizer: str, given: Mapping[str, str | None]) -> dict[str, str | None]:
    """The tokens of a `tokenizer.json` that end and begin a text; None if nothing defines it."""
    try:
        found = read_pretrained(tokenizer)
        known = {token["content"] for token in json.loads(found.tokenizer_json).get("added_tokens") or ()}
        tokens = {
            role: token
            or found.special.get(f"{role}_token")
            or next((token for token in _WELL_KNOWN[role] if token in known), None)
            for role, token in given.items()
        }
        if not all(tokens.values()):
            open_json(found.tokenizer_json, where=repr(tokenizer))
    except TaskError as error:
        raise DeclarationError(str(error)) from error
    return tokens
