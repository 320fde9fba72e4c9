"""`tokens`: texts or messages to token ids.

A recipe decides what you would otherwise look up: the source that reads these files, the vocabulary for a tokenizer,
the token that ends a text. `tokenize` and `text_of` are the stages of its modules, and `chat_tokens` for messages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from beam_pipes.checks import choice
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.column_types import types_of_partitions
from beam_pipes.recipes.options import DELIMITER_HELP, FIELDS_HELP, Option, fields_of
from beam_pipes.recipes.row_fields import check_fields, columns_of_fields
from beam_pipes.recipes.row_files import FORMATS as FORMATS
from beam_pipes.recipes.row_files import (
    RowFiles,
    assign_source,
    files_of,
    format_of,
    reading_of,
)
from beam_pipes.recipes.split_names import check_splits
from beam_pipes.recipes.tokenizer_names import open_tokenizer as open_tokenizer
from beam_pipes.recipes.tokenizer_names import vocabulary_of
from beam_pipes.recipes.written import Code, Common, CommonOptions, Module, Recipe, call
from beam_pipes.sources.byte_stream import text_of as text_of_bytes
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import Paths
from beam_pipes.tasks.vocabularies import Vocabulary
from beam_pipes.tasks.vocabularies.tokenizers import BACKENDS
from beam_pipes.transforms.chat import fields_asked_about
from beam_pipes.transforms.dedup import DropContaminated
from beam_pipes.transforms.kept_fields import field_of, kept_fields
from beam_pipes.typed import count, drop, stage

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Format → the field that is the text, and the one that holds messages, unless another one is named.
_FIELDS = {"csv": ("text", "messages"), "json": ("text", "messages"), "parquet": ("text", "messages")}
_FIELDS |= {"tar": ("txt", "json"), "tsv": ("text", "messages")}

#: How duplicates are found → the analyzer that finds them.
DEDUP = {"exact": "ExactDuplicates", "near": "NearDuplicates"}

#: A smaller corpus is cut into shards of 4 MiB, a second of work or less, instead of 32 MiB: 60 MB would be 3 such
#: shards, which leave a second core idle half of the time. Larger ones have enough shards, and would have many files.
SMALL_BYTES = 1 << 30
#: The feature of the ids, and that of the weights of the loss.
FEATURE, LOSS_WEIGHTS = "tokens", "loss_weights"


# The stages.


@stage
def text_of(record: object, *, field: str | None = None) -> str | None:
    """The text of a record: a line unchanged, the field of a row, the content of a file. None if it has no text.

    `text_of({"text": "to be", "n": 3}, field="text")` → `"to be"`. Raises `TaskError` if there is no such field, or it
    holds no text.
    """
    return _text(record, field) or None


@stage(batched=True, version=2)
def tokenize(
    records: list[object],
    *,
    vocabulary: Vocabulary,
    field: str | None = None,
    keep: Mapping[str, str] | None = None,
    sparse: bool = False,
    bos: bool = False,
    eos: bool = True,
    min_tokens: int | None = None,
    max_tokens: int | None = None,
) -> list[dict[str, object] | None]:
    """Records to examples with the ids of their texts: whole batches are passed to the vocabulary's library.

    With `ByteVocabulary()` and `field="text"`, `{"text": "to"}` → `{"tokens": array([119, 114, 1], int32)}`; 1 is EOS.

    Args:
        vocabulary: text to ids.
        field: which field of a row is the text; None if records are lines or files.
        keep: further fields to store, each with its dtype. "str" keeps text unchanged, stores a missing value as `""`,
            and everything else as JSON. Files have `path`.
        sparse: whether records may lack fields of `keep`, which are then missing values. By default they fail.
        bos, eos: add the vocabulary's id that begins or ends a text.
        min_tokens, max_tokens: bounds of the length, `bos` and `eos` included. Shorter or longer texts are dropped as
            `too_short` or `too_long`, records without text as `no_text`.

    Raises `TaskError` for a record without the field, or if that is not text.
    """
    texts = [_text(record, field) for record in records]
    lead = np.array([vocabulary.bos_id] if bos else [], np.int32)
    tail = np.array([vocabulary.eos_id] if eos else [], np.int32)
    examples: list[dict[str, object] | None] = []
    num_tokens = 0
    for record, text, ids in zip(records, texts, vocabulary.encode_arrays(texts), strict=True):
        length = len(ids) + len(lead) + len(tail)
        if not text:
            examples.append(drop("no_text"))
        elif min_tokens is not None and length < min_tokens:
            examples.append(drop("too_short"))
        elif max_tokens is not None and length > max_tokens:
            examples.append(drop("too_long"))
        else:
            row = np.concatenate([lead, ids, tail])
            examples.append({FEATURE: row, **kept_fields(record, keep, sparse=sparse)})
            num_tokens += length
    count("tokens", num_tokens)
    return examples


def _text(record: object, field: str | None) -> str:
    value: object
    if isinstance(record, FileContent):
        value = record.content
    elif field is None or not isinstance(record, Mapping):
        value = record
    else:
        value = field_of(record, field, what="its text", option="--text-field")
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            return text_of_bytes(value)
        except ValueError as error:
            where = "the file" if field is None else f"the field {field!r}"
            problem = str(error).removeprefix("expected ")
            raise TaskError(
                f"expected {where} to hold {problem}. Convert it, or drop such records (--on-error drop)."
            ) from None
    if not isinstance(value, str):
        where = "" if field is None else f"the field {field!r} "
        named = f"a key of it, such as {field}.text," if isinstance(value, Mapping) else "another field"
        raise TaskError(
            f"expected {where}to hold text (str), found {type(value).__name__}: {value!r:.40}. Name {named} as field=… "
            "(--text-field).",
            field=field,
        )
    return value


# The recipe.


def tokens(
    data: Annotated[Paths, Option("files, directories or globs of text, JSON Lines, Parquet, CSV or tar")],
    *,
    tokenizer: Annotated[
        str | os.PathLike[str],
        Option("tokenizer.json, SentencePiece .model or .spm, tiktoken:NAME, tiktoken:PATH, bytes"),
    ],
    format: Annotated[str | None, Option(f"data format: {', '.join(FORMATS)} [by suffix]")] = None,
    delimiter: Annotated[str | None, Option(DELIMITER_HELP)] = None,
    text_field: Annotated[
        str | None, Option("field that contains the text, or the messages [text or messages; of a tar txt or json]")
    ] = None,
    keep_fields: Annotated[
        Mapping[str, str] | Sequence[str], Option(FIELDS_HELP, name="--keep-field", read=fields_of, repeated=True)
    ] = (),
    eos: Annotated[bool, Option("append the end-of-text id")] = True,
    bos: Annotated[bool, Option("prepend the beginning-of-text id")] = False,
    eos_token: Annotated[str | None, Option("end-of-text token [from the tokenizer]")] = None,
    bos_token: Annotated[str | None, Option("beginning-of-text token [from the tokenizer]")] = None,
    min_tokens: Annotated[int | None, Option("drop texts with fewer tokens")] = None,
    max_tokens: Annotated[int | None, Option("drop texts with more tokens")] = None,
    dedup: Annotated[str | None, Option(f"keep only the first of duplicate texts: {', '.join(DEDUP)}")] = None,
    decontaminate: Annotated[
        Sequence[str], Option("drop texts that share words with this evaluation set (repeatable)", repeated=True)
    ] = (),
    decontaminate_fields: Annotated[
        Sequence[str],
        Option(
            "field of evaluation sets that holds texts [that of the data]", name="--decontaminate-field", repeated=True
        ),
    ] = (),
    decontaminate_words: Annotated[
        int, Option("words in a row that make an overlap, case and punctuation aside", least=1)
    ] = 13,
    backend: Annotated[str | None, Option(f"what encodes with a tokenizer.json: {', '.join(BACKENDS)} [auto]")] = None,
    parse_special: Annotated[
        bool | None,
        Option("take special tokens that are spelled in the data for tokens [in messages, not in texts]"),
    ] = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From texts to a cache of token ids: `{"text": "to be"}` in `web.jsonl` → `{"tokens": int32 (3,)}` in `train`.

        tokens("corpus/*.jsonl.zst", tokenizer="tokenizer.json", splits={"train": 0.99, "eval": 0.01}).declaration()

    Args:
        data: files, directories or globs, also on `gs://`. `.gz`, `.bz2` and `.zst` are decompressed while they are
            read.
        tokenizer: a `tokenizer.json` of `tokenizers`, or the directory that holds it; a SentencePiece `.model` or
            `.spm`; `tiktoken:NAME`, or a file of ranks, `tiktoken:PATH`; or `bytes`.
        format: a key of `FORMATS`. Default: by the suffixes of the files, see `FORMAT_OF_SUFFIX`.
        delimiter: between the fields of CSV, such as ";". Default: a comma.
        text_field: which field of rows is the text; `json.text` is the key `text` of the field `json`. Default: `text`;
            of a tar, whose members are fields by their extensions, `txt`.
        keep_fields: fields to store beside the tokens, as text; or field → dtype.
        eos, bos: whether ids that end and begin a text are added.
        eos_token, bos_token: these tokens of a `tokenizer.json` or a tiktoken encoding. Default: those
            in `tokenizer_config.json` beside the file, else the first of the well-known ones that it has.
        min_tokens, max_tokens: texts with fewer or more are dropped, and counted.
        dedup: "exact" or "near" drops all but the first of equal or similar texts.
        decontaminate, decontaminate_fields, decontaminate_words: files of evaluation sets; texts that share so many
            words in a row with one are dropped, and counted by set, see `DropContaminated`.
        backend: which library encodes with a `tokenizer.json`, see `TokenizersVocabulary`.
        parse_special: whether `<|endoftext|>` in a text of a `tokenizer.json` is that special token. None, the default:
            it is text, as it is with all other tokenizers.
        options: see `Common`. `by` is a field, which is also stored.

    A corpus of less than 1 GiB is cut into smaller shards, to keep all cores busy; once it grows beyond that, all of it
    is tokenized again.

    Raises `DeclarationError` if formats are mixed or unknown, the tokenizer is not one, or it has no such token.
    """
    files = files_of(data)
    kind = format_of(files, format)
    common = Common.of("tokens", options)
    wanted, named = {"eos": eos, "bos": bos}, {"eos": eos_token, "bos": bos_token}
    as_text = None if parse_special else True
    vocabulary = vocabulary_of(os.fspath(tokenizer), wanted, named, backend=backend, special_as_text=as_text)
    keep = kept(keep_fields, common.by)
    _check(keep, kind, dedup=dedup, min_tokens=min_tokens, max_tokens=max_tokens)
    field = (text_field or _FIELDS[kind][0]) if kind in _FIELDS else None
    module = Module()
    fields = [("text_field (--text-field)", field), *_stored(keep, common.by)]
    _assign_source_of_fields(module, common, files, kind, fields, delimiter)
    module.assign("vocabulary", vocabulary, "beam_pipes.tasks.vocabularies")
    module.use("beam_pipes.recipes", "tokenize")
    tokenizing = call(
        "stage",
        Code("tokenize"),
        vocabulary=Code("vocabulary"),
        field=field,
        keep=keep or None,
        sparse=_sparse(keep, kind),
        bos=bos or None,
        eos=None if eos else False,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
    )
    of = None if kind == "text" else call("stage", Code("text_of"), field=field)  # lines are compared unchanged
    eval_fields = decontaminate_fields or (() if field is None else (field,))
    sets = _evaluations(decontaminate, eval_fields, words=decontaminate_words, of=of)
    ids = call("FeatureSpec", "int32", shape=(None,), minimum=0, maximum=Code("vocabulary.vocab_size - 1"))
    _declare(module, files, common, tokenizing, {FEATURE: ids}, keep=keep, dedup=dedup, of=of, clean=sets)
    text = module.text("Texts to token ids, as `beam-pipes tokens` declares them.")
    return Recipe(text, left_out=module.left_out)


def chat(
    data: Paths,
    *,
    tokenizer: str | os.PathLike[str],
    template: Annotated[
        str | os.PathLike[str] | None,
        Option("file with a Jinja chat template [the tokenizer's]; implies --chat", name="--chat-template"),
    ] = None,
    date: Annotated[str | None, Option("today's date in chat templates that write one")] = None,
    format: str | None = None,
    delimiter: str | None = None,
    field: str | None = None,
    tools_field: Annotated[str | None, Option("field that describes tools, for --chat")] = None,
    only_last: Annotated[
        bool, Option("train on the assistant's last turn only, for --chat", name="--only-last")
    ] = False,
    keep_fields: Mapping[str, str] | Sequence[str] = (),
    max_tokens: int | None = None,
    dedup: str | None = None,
    decontaminate: Sequence[str] = (),
    decontaminate_fields: Sequence[str] = (),
    decontaminate_words: int = 13,
    parse_special: bool | None = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From messages to a cache of token ids, with weights of the loss that are 1 where the assistant speaks.

        chat("talks.jsonl", tokenizer="model").declaration()

        {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
        → {"tokens": int32 (9,), "loss_weights": uint8 (9,)}

    Args:
        tokenizer: a directory with `tokenizer.json`, or that file.
        template: a file with a Jinja template. Default: the tokenizer's.
        date: for templates that write today's date, see `ChatTemplate`.
        field: which field holds the messages. Default: `messages`; of a tar the member `json`.
        tools_field, only_last, max_tokens: see `chat_tokens`.
        parse_special: whether special tokens that messages spell are these tokens, as `apply_chat_template` has it;
            None, the default, is yes.

    All other arguments are those of `tokens`; conversations are equal if the JSON of their messages and
    tools is, and similar if the words of both are.

    Raises `DeclarationError` if records have no fields, and `TaskError` if there is no tokenizer or template.
    """
    files = files_of(data)
    kind = format_of(files, format)
    if kind not in _FIELDS:
        raise DeclarationError(
            f"messages are a field of rows, and {kind!r} has none. Give JSON Lines, Parquet, CSV or tar (--format "
            f"{', '.join(_FIELDS)})."
        )
    given = os.fspath(tokenizer)
    if given == "bytes" or given.startswith("tiktoken:") or given.endswith((".model", ".spm")):
        raise DeclarationError(
            f"conversations (--chat) need a tokenizer.json with a chat template beside it, and {given!r} has none. "
            "Name the directory of a chat model's tokenizer."
        )
    common = Common.of("tokens", options)
    keep = kept(keep_fields, common.by)
    _check(keep, kind, dedup=dedup, min_tokens=None, max_tokens=max_tokens)
    field = field or _FIELDS[kind][1]
    text = None
    module = Module()
    if template is not None:
        if not os.path.isfile(template):
            raise DeclarationError(
                f"the chat template {os.fspath(template)!r} is not a file. Name a file with a Jinja template."
            )
        module.use("pathlib", "Path")
        text = Code(f'{call("Path", os.fspath(template)).text}.read_text(encoding="utf-8")')
    # A missing field of messages is left to the stage, which recognizes other shapes of conversations by name.
    stored, also = [("tools_field (--tools-field)", tools_field), *_stored(keep, common.by)], [field]
    asked = fields_asked_about(tokenizer, template)
    _assign_source_of_fields(module, common, files, kind, stored, delimiter, also=also, beside=asked)
    nulls = True if kind == "parquet" else None
    as_text = True if parse_special is False else None
    made = call("ChatTemplate", os.fspath(tokenizer), template=text, date=date, special_as_text=as_text)
    module.assign("chat", made, "beam_pipes.transforms.chat")
    module.use("beam_pipes.transforms.chat", "chat_tokens")
    tokenizing = call(
        "stage",
        Code("chat_tokens"),
        chat=Code("chat"),
        field=None if field == "messages" else field,
        tools_field=tools_field,
        only_last=only_last or None,
        max_tokens=max_tokens,
        drop_nulls=nulls,
        keep=keep or None,
        sparse=_sparse(keep, kind),
    )
    features = {
        FEATURE: call("FeatureSpec", "int32", shape=(None,), minimum=0, maximum=Code("chat.vocab_size - 1")),
        LOSS_WEIGHTS: call("FeatureSpec", "uint8", shape=(None,), maximum=1),
    }
    # Near duplicates, and overlaps with evaluation sets, share words, which escapes of JSON would join to others.
    named = {"field": None if field == "messages" else field, "tools_field": tools_field, "drop_nulls": nulls}
    whole, spoken = (call("stage", Code(function), **named) for function in ("conversation_text", "spoken_text"))
    of = spoken if dedup == "near" else whole
    sets = _evaluations(decontaminate, decontaminate_fields, words=decontaminate_words, of=spoken)
    for used, name in ((dedup and of, of.text), (sets, spoken.text)):
        if used is not None:
            module.use("beam_pipes.transforms.chat", "spoken_text" if "spoken_text" in name else "conversation_text")
    _declare(module, files, common, tokenizing, features, keep=keep, dedup=dedup, of=of, clean=sets)
    text_of_module = module.text("Messages to token ids, as `beam-pipes tokens --chat` declares them.")
    return Recipe(text_of_module, left_out=module.left_out)


def _declare(
    module: Module,
    files: RowFiles,
    common: Common,
    tokenizing: Code,
    features: Mapping[str, Code],
    *,
    keep: Mapping[str, str],
    dedup: str | None,
    of: Code | None,
    clean: Code | None,
) -> None:
    stages = [tokenizing]
    for used in (clean, of if dedup is not None else None):
        if used is not None and "text_of" in used.text:
            module.use("beam_pipes.recipes", "text_of")
    if clean is not None:
        module.use("beam_pipes", "Asset")
        module.assign("clean", clean, "beam_pipes.transforms.dedup")
        stages.insert(0, Code("clean"))
    if dedup is not None:
        module.use("beam_pipes.transforms.dedup", "DropDuplicates")
        module.assign("duplicates", call(DEDUP[dedup], dedup, of=of), "beam_pipes.transforms.dedup")
        stages.insert(0, call("DropDuplicates", Code("source.output_type"), Code("duplicates.result")))
    module.declare(
        common,
        stages,
        features={**features, **{name: call("FeatureSpec", dtype) for name, dtype in keep.items()}},
        analyzers=None if dedup is None else [Code("duplicates")],
        target_shard_bytes=Code("4 << 20") if sum(file.size for file in files.files) < SMALL_BYTES else None,
    )


def _check(
    keep: Mapping[str, str],
    kind: str,
    *,
    dedup: str | None,
    min_tokens: int | None,
    max_tokens: int | None,
) -> None:
    for feature, what in ((FEATURE, "the ids"), (LOSS_WEIGHTS, "the weights of the loss")):
        if feature in keep:
            raise DeclarationError(
                f"the field {feature!r} cannot be kept: {what} use that name. Rename it in the data."
            )
    there = () if kind == "text" else ("path",) if kind == "files" else None
    if there is not None and (absent := [name for name in keep if name not in there]):
        has = "a line of text has no fields" if kind == "text" else "a file has only the field 'path'"
        raise DeclarationError(f"the field {absent[0]!r} cannot be kept: {has}. Leave it out, or give rows.")
    if dedup is not None:
        choice(dedup, of=DEDUP, what="dedup")
    for option, value in (("min_tokens", min_tokens), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise DeclarationError(f"{option} is a number of tokens, 1 or more, got {value}.")
    if min_tokens is not None and max_tokens is not None and min_tokens > max_tokens:
        raise DeclarationError(
            f"min_tokens={min_tokens} is more than max_tokens={max_tokens}: nothing would be left. Swap them "
            "(--min-tokens, --max-tokens)."
        )


def _evaluations(files: Sequence[str], fields: Sequence[str], *, words: int, of: Code | None) -> Code | None:
    """The stage that drops what overlaps with these evaluation sets, named by their files; None without any.

    Raises `DeclarationError` or `SourceError` for a file that cannot be read as one.
    """
    if not files:
        return None
    sets: dict[str, str] = {}
    for file in files:
        name = os.path.basename(file).partition(".")[0]
        sets[name if name not in sets else file] = file
    field = fields[0] if len(fields) == 1 else tuple(fields) or None
    DropContaminated({name: Asset(file) for name, file in sets.items()}, field=field, words=words).overlap("")
    assets = {name: call("Asset", file) for name, file in sets.items()}
    type_ = None if of is None else Code("source.output_type")
    return call("DropContaminated", assets, field=field, words=None if words == 13 else words, of=of, type_=type_)


# Files of rows.


def _stored(keep: Mapping[str, str], by: str | None) -> list[tuple[str, str | None]]:
    """Option and field, for the stored fields."""
    return [("by (--by)" if name == by else "keep_fields (--keep-field)", name) for name in keep]


def _sparse(keep: Mapping[str, str], kind: str) -> bool | None:
    """Whether records may lack fields that others have, as in JSON and in structs of Parquet; None for no."""
    return True if keep and kind in ("json", "parquet", "tar") else None


def _assign_source_of_fields(
    module: Module,
    common: Common,
    files: RowFiles,
    kind: str,
    named: Sequence[tuple[str, str | None]],
    delimiter: str | None,
    *,
    also: Sequence[str | None] = (),
    beside: Sequence[str] = (),
) -> None:
    """Assigns the source of rows with these fields and those `beside` them that there are; for Parquet, only these.

    Raises `DeclarationError` if no row has one that is `named` by an option.
    """
    options = reading_of(files, kind, delimiter=delimiter)
    fields = [name for name in [*also, *(name for _, name in named)] if name is not None]
    if kind in _FIELDS:
        check_fields(files, kind, named, **options)
    if kind == "parquet":
        partitions = {n: "str" if dtype == "str" else "int64" for n, dtype in types_of_partitions(files).items()}
        columns = columns_of_fields(files, fields, optional=beside)
        options["columns"] = columns and [name for name in columns if name not in partitions]
        options["partitions"] = {n: dtype for n, dtype in partitions.items() if columns is None or n in columns} or None
    if kind != "files":  # each is a document, whatever its name
        check_splits(files, common.splits)
    assign_source(module, common, files, kind, **options)


def kept(fields: Mapping[str, str] | Sequence[str], by: str | None) -> dict[str, str]:
    """Field → dtype of the other stored fields, including the one that determines splits."""
    keep = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields, "str")
    return keep if by is None else {**keep, by: keep.get(by, "str")}
