r"""A `tokenizer.json` and the files beside it, read as `transformers` reads them.

    model/tokenizer.json              the tokenizer
    model/tokenizer_config.json       special tokens by name, more tokens, one chat template or several by name
    model/special_tokens_map.json     special tokens by name \  read only if the configuration
    model/added_tokens.json           more tokens            /  has no `added_tokens_decoder`
    model/chat_template.jinja         the chat template; with it, and with additional_chat_templates/*.jinja, those of
                                      the configuration do not count

Tokens from the other files become part of the tokenizer's JSON, whose readers then need no other file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_pipes.errors import TaskError, logger
from beam_pipes.extras import require
from beam_pipes.tasks.vocabularies.files import read_bytes

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

_log = logger(__name__)

#: Special tokens that every tokenizer may have, by the names that files and chat templates use.
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

_Object = Mapping[str, Any]


class Pretrained(NamedTuple):
    """A tokenizer and the files beside it.

    Attributes:
        tokenizer_json: the content of `tokenizer.json`, with the tokens that other files add.
        special: name → spelling of special tokens: `{"eos_token": "</s>", "image_token": "<image>"}`.
        unknown: spellings of special tokens that no file gives an id. They have the next ids.
        templates: name → chat template. "default" is used, or "tool_use" if there are tools.
        special_as_text: whether a special token that is spelled in a text is ordinary text.
    """

    tokenizer_json: str
    special: Mapping[str, str] = {}
    unknown: frozenset[str] = frozenset()
    templates: Mapping[str, str] = {}
    special_as_text: bool = False


# What to do about a file that is no tokenizer.json.
_SAVED = "Name one that save_pretrained of transformers, or save of tokenizers, has written, or download it again."


def open_json(tokenizer_json: str, *, where: str = "the text") -> tuple[Tokenizer, float | None]:
    """A tokenizer without settings that make ids depend on chance or on other texts, and its original dropout.

    Raises `TaskError` for anything but a `tokenizer.json`, and where its library draws between added tokens.
    """
    library = require("tokenizers", purpose="a tokenizer.json")
    try:
        tokenizer: Tokenizer = library.Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the library raises nothing more specific
        raise TaskError(f"{where} cannot be read as a tokenizer.json: {str(error).rstrip('.')}. {_SAVED}") from error
    _refuse_equal_tokens(tokenizer, where)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    dropout: float | None = getattr(tokenizer.model, "dropout", None) or None
    if dropout is not None:
        tokenizer.model.dropout = None
    return tokenizer, dropout


def _refuse_equal_tokens(tokenizer: Tokenizer, where: str) -> None:
    """Raises `TaskError` if normalization makes two added tokens equal, or one empty: the library then takes either of
    the two, by chance, or breaks.
    """
    spelled: dict[str, str] = {}
    for _, token in sorted(tokenizer.get_added_tokens_decoder().items()) if tokenizer.normalizer is not None else ():
        if token.normalized:
            text = tokenizer.normalizer.normalize_str(token.content)
            if token.content and not text:
                raise TaskError(
                    f"{where} has the added token {token.content!r}, of which its normalizer leaves nothing, and the "
                    'tokenizers library breaks on texts. Remove it, or set its "normalized": false.'
                )
            if (other := spelled.setdefault(text, token.content)) != token.content:
                raise TaskError(
                    f"{where} has the added tokens {other!r} and {token.content!r}, which its normalizer makes equal "
                    f"({text!r}): the tokenizers library takes either, by chance, so ids would differ between two "
                    'builds. Remove one, or set "normalized": false for one.'
                )


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises `TaskError` where Rust panics: no `Exception`, it would end the process instead of failing a record."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # which cannot be imported
            raise
        raise TaskError(
            f"the tokenizers library itself breaks on this text: {error}. Drop such records (--on-error drop), or "
            "remove the added token at which it breaks from the tokenizer."
        ) from None


def tell_dropout(dropout: float | None) -> None:
    """Warns that a tokenizer's dropout is off."""
    if dropout is not None:
        _log.warning("the dropout of the tokenizer, %.3g, is off: ids do not depend on chance.", dropout)


def num_ids(tokenizer: Tokenizer) -> int:
    """The highest id plus 1: GPT-4's ids have gaps, so the number of tokens is smaller."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def tokenizer_file(tokenizer: str | os.PathLike[str]) -> str:
    """The `tokenizer.json` of a directory, or the file itself."""
    path = os.fspath(tokenizer)
    return os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path


def read_pretrained(tokenizer: str | os.PathLike[str]) -> Pretrained:
    """Reads a `tokenizer.json`, or a directory with one, and the files beside it; for a URL, only that file.

    Raises `TaskError` for files that cannot be read or understood.
    """
    file = tokenizer_file(tokenizer)
    if "://" not in file and not os.path.exists(file):
        raise TaskError(f"there is no {file!r}. {_remedy(os.fspath(tokenizer))}")
    try:
        content = read_bytes(file).decode("utf-8")
        described = json.loads(content)
        own = {token["content"]: token for token in described.get("added_tokens") or ()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise TaskError(f"{file!r} cannot be read as a tokenizer.json: {error}. {_SAVED}") from error
    if not isinstance(described.get("model"), dict) and "://" not in file and (what := other_tokenizer(file)):
        raise TaskError(f"{file!r} is not a tokenizer.json. {what}")
    if "://" in file:
        return Pretrained(content)
    config = _beside(file, "tokenizer_config.json")
    _refuse_conflicts(file, config, described)
    others = [name for name in config.get("fast_tokenizer_files") or () if name != "tokenizer.json"]
    if others:
        raise TaskError(
            f"the tokenizer_config.json beside {file!r} names {others[0]!r} too. Give the file that is meant."
        )
    is_old = "added_tokens_decoder" not in config
    in_map = _beside(file, "special_tokens_map.json") if is_old else {}
    named, more = _named_tokens(config, in_map)
    special = {name: _spelling(value) for name, value in named.items()}
    tokens = _listed_tokens(file, config, own, {*special.values(), *map(_spelling, more)})
    known = {*own, *(token.content for token in tokens)}
    unlisted = {_spelling(value): value for value in (*named.values(), *more) if _spelling(value) not in known}
    tokens += map(_added, unlisted.values())
    for token in tokens:
        token.special = token.special or token.content in special.values()
    unknown = frozenset[str]()
    # Named tokens are special, whatever the tokenizer's own list says of them.
    named_own = [own[spelling] for spelling in map(_spelling, (*named.values(), *more)) if spelling in own]
    marked = [_added({**token, "special": True}) for token in named_own if not token.get("special")]
    if marked or any(_flags(token) != {**own.get(token.content, {}), "id": None} for token in tokens):
        opened, _ = open_json(content, where=repr(file))
        unknown = frozenset(spelling for spelling in unlisted if opened.token_to_id(spelling) is None)
        content = _with_tokens(opened, tokens, marked, described, file)
    as_text = bool(config.get("split_special_tokens"))
    return Pretrained(content, special, unknown, chat_templates(file, config), as_text)


# Files of tokenizers in other formats → what they are, and the Python that makes a tokenizer.json of them.
_OTHERS = {
    "vocab.txt": ("a vocabulary of WordPiece", "BertWordPieceTokenizer('vocab.txt', lowercase=True)"),
    "merges.txt": ("merges of byte-level BPE", "ByteLevelBPETokenizer('vocab.json', 'merges.txt')"),
    "vocab.json": ("a vocabulary of byte-level BPE", "ByteLevelBPETokenizer('vocab.json', 'merges.txt')"),
    "tekken.json": ("a tokenizer of Mistral's", ""),
}


def other_tokenizer(file: str) -> str:
    """What a file of a tokenizer in another format is, and what to do with it; empty if it is not known."""
    directory, name = os.path.split(file)
    if name in _OTHERS:
        beside = "Give the tokenizer.json beside it." if os.path.isfile(tokenizer_file(directory or ".")) else ""
        return f"It is {_OTHERS[name][0]}. {beside or _remedy(directory or '.')}"
    return f"It holds ranks of tiktoken: give tiktoken:{file}." if _holds_ranks(file) else ""


def _holds_ranks(file: str) -> bool:
    """Whether a file begins as tiktoken's do, with bytes in base64 and a rank: `IQ== 0`."""
    with open(file, "rb") as opened:
        return re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", opened.read(256)) is not None


def _remedy(tokenizer: str) -> str:
    """Advice if there is no tokenizer."""
    if tokenizer.endswith(".json"):
        return "Correct the path, or give the directory that holds it."
    if not os.path.isdir(tokenizer):
        return hub_remedy(tokenizer)
    there = sorted(os.listdir(tokenizer))
    if not any("tok" in name or "tek" in name or "vocab" in name or name.endswith(".model") for name in there):
        shown = ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
        return f"The directory holds {shown or 'nothing'}. Name the one with the tokenizer's files."
    save = f"Save one with transformers: AutoTokenizer.from_pretrained({tokenizer!r}).save_pretrained({tokenizer!r})."
    made = next((python for name, (_, python) in _OTHERS.items() if name in there and python), "")
    if made and not {"config.json", "tokenizer_config.json"} & {*there}:
        of = made.partition("(")[0]
        return f"Make one in this directory: from tokenizers import {of}; {made}.save('tokenizer.json')."
    models = sorted(map(str, Path(tokenizer).glob("*.model")))
    if models and _holds_ranks(models[0]):
        return f"{models[0]} holds ranks of tiktoken without their special tokens, as Llama 3's does. {save}"
    return f"Give its SentencePiece model, {models[0]}, to encode texts. {save}" if models else save


def hub_remedy(name: str) -> str:
    """Advice for a tokenizer given by its name on the Hugging Face Hub."""
    folder = os.path.basename(name)
    return (
        f"A model of the Hugging Face Hub is downloaded first: hf download {name} --include '*.json' '*.jinja' "
        f"'*.model' --local-dir {folder}; then give {folder}."
    )


def _named_tokens(config: _Object, in_map: _Object) -> tuple[dict[str, Any], list[Any]]:
    """Special tokens by name, and those without a name."""
    more = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    merged = {**config, **in_map}
    named = {name: merged[name] for name in NAMED if merged.get(name) is not None}
    for name, value in merged.items():
        is_token = isinstance(value, str) or (isinstance(value, dict) and ("__type" in value or name in in_map))
        if name.endswith("_token") and is_token:
            named[name] = value
    has_list = more and not isinstance(more, Mapping)
    of_map = in_map.get("extra_special_tokens") or ([] if has_list else in_map.get("additional_special_tokens")) or []
    unnamed = list[Any]()
    for tokens in (more, of_map):
        if isinstance(tokens, Mapping):
            named.update(tokens)
        else:
            unnamed += [token for token in tokens if token not in unnamed]
    return named, unnamed


# Type of a part of a tokenizer → its settings that the configuration may hold too, by the names there.
_SETTINGS = {
    "BertNormalizer": {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    },
    "ByteLevel": {"add_prefix_space": "add_prefix_space"},
}


def _refuse_conflicts(file: str, config: _Object, described: _Object) -> None:
    """Raises `TaskError` if the configuration and the tokenizer disagree: classes and versions of `transformers` differ
    in which of them they follow.
    """
    for section in ("normalizer", "pre_tokenizer"):
        whole = described.get(section) or {}
        for part in (*(whole.get("normalizers") or whole.get("pretokenizers") or ()), whole):
            for name, own in _SETTINGS.get(part.get("type"), {}).items():
                if isinstance(config.get(name), bool) and config[name] != part.get(own):
                    raise TaskError(
                        f"{file!r} has {own} {json.dumps(part.get(own))}, and the tokenizer_config.json beside it "
                        f"{name} {json.dumps(config[name])}. Make them equal: which of them counts depends on the "
                        "class and the version of transformers."
                    )


def _listed_tokens(file: str, config: _Object, own: _Object, special: set[str]) -> list[AddedToken]:
    """The tokens that files list with their ids, in the order of the ids."""
    by_id: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in config:
        by_id = {int(token_id): _added(token) for token_id, token in config["added_tokens_decoder"].items()}
    elif added := _beside(file, "added_tokens.json"):
        for spelling, token_id in added.items():
            is_special = spelling in special
            by_id[token_id] = _added({"content": spelling, "normalized": not is_special, "special": is_special})
        by_id.update({token["id"]: _added(token) for token in own.values()})
    return [by_id[token_id] for token_id in sorted(by_id)]


def _with_tokens(
    tokenizer: Tokenizer, tokens: list[AddedToken], marked: list[AddedToken], described: dict[str, Any], file: str
) -> str:
    """The JSON of a tokenizer with more tokens, whose ids are those that the library gives; `marked` become special."""
    found = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    is_whole = found.issuperset(token["content"] for token in described.get("added_tokens") or ())
    tokenizer.add_tokens(tokens)
    tokenizer.add_special_tokens([token for token in (*tokens, *marked) if token.special])
    by_id = tokenizer.get_added_tokens_decoder()
    described["added_tokens"] = [{**_flags(by_id[token_id]), "id": token_id} for token_id in sorted(by_id)]
    content = json.dumps(described, ensure_ascii=False)
    if not is_whole or not is_read_again(tokenizer, content):  # the library drops tokens whose ids clash
        listed = ", ".join(repr(token.content) for token in [*tokens, *marked][:5])
        raise TaskError(
            f"the files beside {file!r} add {listed} to its tokens, with other ids when it is read again. Save it "
            f"with transformers: AutoTokenizer.from_pretrained({os.path.dirname(file)!r}).save_pretrained(…)."
        )
    return content


def is_read_again(tokenizer: Tokenizer, content: str) -> bool:
    """Whether JSON of a tokenizer gives its added tokens the ids that they have in the object."""
    found = (each.get_added_tokens_decoder() for each in (tokenizer, open_json(content)[0]))
    before, after = ({token_id: _flags(token) for token_id, token in tokens.items()} for tokens in found)
    return before == after


def _flags(token: AddedToken) -> dict[str, object]:
    return {"content": token.content, "id": None, **{flag: getattr(token, flag) for flag in _FLAGS}}


def _spelling(value: object) -> str:
    """The text of a token, which files write as text or as an object. Raises `TaskError` for anything else."""
    text = value.get("content") if isinstance(value, Mapping) else value
    if not isinstance(text, str):
        raise TaskError(
            f"expected a special token as text, or as an object with 'content', found {value!r:.60}. Correct the "
            "tokenizer_config.json or special_tokens_map.json beside the tokenizer."
        )
    return text


def _added(value: object) -> AddedToken:
    """A token as its file writes it; one that is only a text is special."""
    flags = dict(value) if isinstance(value, Mapping) else {"special": True}
    library = require("tokenizers", purpose="a tokenizer.json")
    made: AddedToken = library.AddedToken(_spelling(value), **{flag: flags[flag] for flag in _FLAGS if flag in flags})
    return made


def chat_templates(file: str, config: _Object | None = None) -> dict[str, str]:
    """The chat templates beside a `tokenizer.json`, by their names; `config` is the content of its configuration."""
    config = _beside(file, "tokenizer_config.json") if config is None else config
    found = {"default": Path(file).with_name("chat_template.jinja")}
    found |= {
        path.name.removesuffix(".jinja"): path for path in Path(file).parent.glob("additional_chat_templates/*.jinja")
    }
    if texts := {name: _text(path) for name, path in sorted(found.items()) if path.is_file()}:
        return texts
    declared = config.get("chat_template")
    if isinstance(declared, list):
        declared = {each.get("name"): each.get("template") for each in declared}
    return declared if isinstance(declared, dict) else {} if declared is None else {"default": declared}


def _beside(file: str, name: str) -> dict[str, Any]:
    """The object in a JSON file beside another one; empty if there is none."""
    path = Path(file).with_name(name)
    try:
        value = json.loads(_text(path)) if path.is_file() else {}
    except ValueError as error:
        raise TaskError(f"{str(path)!r} is not valid JSON: {error}. Repair it, or take it away.") from error
    if not isinstance(value, dict):
        raise TaskError(f"{str(path)!r} should hold a JSON object, found {value!r:.40}. Repair it, or take it away.")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{str(path)!r} cannot be read: {error}. Repair it, or take it away.") from error
