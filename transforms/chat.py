"""Chat data: messages to token ids, with a mask of what the assistant said.

    {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    ── template ──►  <|user|>2+2?<|end|><|assistant|>4<|end|>
    ── tokenizer ─►  tokens        [7, 21, 14, 21, 30, 9, 8, 23, 9]
                     loss_weights  [0,  0,  0,  0,  0, 0, 0,  1, 1]

Templates are those of Hugging Face: Jinja, in a sandbox, with `messages`, `tools`, special tokens, `raise_exception`
and `tojson`. What the assistant said is what the template writes within `{% generation %}` … `{% endgeneration %}`.
Where it has no such block, it is what each message of the assistant adds to the text before it; a template that writes
earlier turns otherwise once a later one follows is refused, because no mask would be right.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.typed import count, drop, stage

if TYPE_CHECKING:
    import jinja2
    import tokenizers

__all__ = ["ChatTemplate", "chat_tokens"]

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
# Around what a generation block writes; taken out again. Private use: no text of a message has them by chance.
_OPEN, _CLOSE = "\U000ffff0", "\U000ffff1"


class ChatTemplate:
    """A tokenizer and the template that writes messages for it.

    `ChatTemplate("model")` reads `model/tokenizer.json`, and the template and special tokens next to it.

    Args:
        tokenizer: a directory with `tokenizer.json`, or that file. `tokenizer_config.json` next to it names the special
            tokens that templates use (`{{ bos_token }}`).
        template: the text of a template. Default: `chat_template.jinja` next to the tokenizer, else `chat_template` in
            `tokenizer_config.json`; of several named ones, "default".
        date: what `strftime_now` gives in templates that ask for today's date, such as "26 Jul 2024". There is no
            default: a cache whose bytes depend on the day it was built could be neither resumed nor compared.

    Fingerprints cover the content of all files and the template, never paths. Raises `TaskError` if there is no
    tokenizer or template, `MissingExtraError` without `tokenizers` and `jinja2` (extras `text` and `cli`).
    """

    def __init__(
        self, tokenizer: str | os.PathLike[str], *, template: str | None = None, date: str | None = None
    ) -> None:
        path = Path(tokenizer)
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            self._json = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{str(file)!r} cannot be read as a tokenizer.json: {error}.") from error
        config = _config_beside(file)
        self._special = {name: text for name in _SPECIAL_TOKENS if (text := _token(config.get(name))) is not None}
        self.template = template if template is not None else _template_beside(file, config)
        self.date = date
        _ = self._library, self._compiled  # mistakes show now

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_library", "_compiled")}

    def fingerprint_config(self) -> Mapping[str, object]:
        """What tokens and masks depend on, as JSON."""
        tokenizer = hashlib.sha256(self._json.encode()).hexdigest()
        return {"tokenizer": tokenizer, "template": self.template, "special": self._special, "date": self.date}

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return int(self._library.get_vocab_size())

    @property
    def marks_generation(self) -> bool:
        """Whether the template says itself what the assistant generates."""
        return "endgeneration" in self.template

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[object] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text of a conversation, as `apply_chat_template(tokenize=False)` gives it."""
        return self._rendered(messages, tools, add_generation_prompt).replace(_OPEN, "").replace(_CLOSE, "")

    def spans(
        self, messages: Sequence[Mapping[str, object]], *, tools: Sequence[object] | None = None
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the ranges of characters that the assistant said: `("…4<|end|>", [(35, 43)])`.

        Raises `TaskError` if the template has no generation block and earlier turns change as later ones follow.
        """
        marked = self._rendered(messages, tools, False)
        if self.marks_generation:
            return _unmarked(marked)
        spans = []
        for at, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            before = self._rendered(messages[:at], tools, True)
            after = self._rendered(messages[: at + 1], tools, False)
            if not (marked.startswith(after) and after.startswith(before)):
                raise TaskError(
                    f"the template writes message {at} otherwise once others follow, so what the assistant said there "
                    "has no fixed place in the text. Put {% generation %} and {% endgeneration %} around it in the "
                    "template, and pass it as template=…"
                )
            spans.append((len(before), len(after)))
        return marked, spans

    def encode(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[object] | None = None,
        only_last: bool = False,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """(ids, mask): int32 and uint8 of equal length; 1 where the assistant said it, of its `only_last` turn."""
        text, spans = self.spans(messages, tools=tools)
        encoding = self._library.encode(text, add_special_tokens=False)
        ids = np.asarray(encoding.ids, np.int32)
        offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
        mask = np.zeros(len(ids), np.uint8)
        for start, end in spans[-1:] if only_last else spans:
            mask[(offsets[:, 0] < end) & (offsets[:, 1] > start)] = 1
        return ids, mask

    def _rendered(self, messages: Sequence[Mapping[str, object]], tools: Sequence[object] | None, prompt: bool) -> str:
        jinja = require("jinja2", purpose="chat templates")
        try:
            return str(
                self._compiled.render(
                    messages=messages, tools=tools, documents=None, add_generation_prompt=prompt, **self._special
                )
            )
        except jinja.exceptions.TemplateError as error:
            raise TaskError(f"the chat template cannot write these messages: {error}.") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise TaskError(
                f"the chat template cannot write these messages: {type(error).__name__}: {error}. Messages are dicts "
                "with 'role' and 'content'."
            ) from error

    @functools.cached_property
    def _library(self) -> tokenizers.Tokenizer:
        library = require("tokenizers", purpose="ChatTemplate")
        try:
            tokenizer = library.Tokenizer.from_str(self._json)
        except Exception as error:  # the library raises nothing more specific
            raise TaskError(f"the file cannot be read as a tokenizer.json: {error}.") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        loaded: tokenizers.Tokenizer = tokenizer
        return loaded

    @functools.cached_property
    def _compiled(self) -> jinja2.Template:
        jinja = require("jinja2", purpose="chat templates")
        try:
            return _environment(self._now).from_string(self.template)
        except jinja.exceptions.TemplateSyntaxError as error:
            raise TaskError(f"the chat template is not valid Jinja: {error} (line {error.lineno}).") from error

    def _now(self, format: str) -> str:
        if self.date is None:
            raise TaskError(
                "the chat template asks for today's date, and a cache should not depend on the day of its build. Pass "
                "ChatTemplate(…, date='26 Jul 2024')."
            )
        return self.date


def _environment(now: object) -> jinja2.Environment:
    """Jinja as `transformers` sets it up for chat templates, with `{% generation %}` blocks that leave marks."""
    from jinja2 import ext, nodes, parser
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(ext.Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: parser.Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

        def _marked(self, caller: Callable[[], str]) -> str:
            return f"{_OPEN}{caller()}{_CLOSE}"

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now
    return environment


def _unmarked(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and the ranges that they were around."""
    pieces, spans, length = [], [], 0
    for number, part in enumerate(marked.split(_OPEN)):
        inside, close, outside = part.partition(_CLOSE) if number else ("", "", part)
        if number and not close:
            raise TaskError("a {% generation %} block of the chat template is within another one. Close it first.")
        spans += [(length, length + len(inside))] if number else []
        pieces += [inside, outside]
        length += len(inside) + len(outside)
    return "".join(pieces), spans


def _config_beside(file: Path) -> Mapping[str, object]:
    try:
        config = json.loads(file.with_name("tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _token(value: object) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _template_beside(file: Path, config: Mapping[str, object]) -> str:
    beside = file.with_name("chat_template.jinja")
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {each.get("name"): each.get("template") for each in found}.get("default")
    if not isinstance(found, str):
        raise TaskError(
            f"there is no chat template next to {str(file)!r}: neither chat_template.jinja nor chat_template in "
            "tokenizer_config.json. Pass template=…"
        )
    return found


@stage(batched=True)
def chat_tokens(
    records: list[object],
    *,
    chat: ChatTemplate,
    field: str = "messages",
    tools_field: str | None = None,
    only_last: bool = False,
    max_tokens: int | None = None,
    keep: Mapping[str, str] | None = None,
) -> list[dict[str, object] | None]:
    """Records with messages to ids and weights of the loss.

    `{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}` →
    `{"tokens": int32 (9,), "loss_weights": uint8 (9,)}`: 1 where the assistant said it, 0 elsewhere.

    Args:
        chat: tokenizer and template.
        field: where the messages are: a list of dicts with `role` and `content`, or the same as JSON text.
        tools_field: where the descriptions of tools are, likewise.
        only_last: train on the last turn of the assistant only.
        max_tokens: longer conversations are dropped as `too_long`. Those in which the assistant says nothing are
            dropped as `no_answer`.
        keep: further fields to store, each with its dtype, see `kept_fields`.

    Raises `TaskError` for a record without the field, with other values in it, or that the template refuses.
    """
    examples: list[dict[str, object] | None] = []
    num_tokens = num_trained = 0
    for record in records:
        tools = None if tools_field is None else _listed(record, tools_field)
        ids, mask = chat.encode(_listed(record, field), tools=tools or None, only_last=only_last)
        if not mask.any():
            examples.append(drop("no_answer"))
        elif max_tokens is not None and len(ids) > max_tokens:
            examples.append(drop("too_long"))
        else:
            examples.append({"tokens": ids, "loss_weights": mask, **kept_fields(record, keep)})
            num_tokens += len(ids)
            num_trained += int(mask.sum())
    count("tokens", num_tokens)
    count("trained_tokens", num_trained)
    return examples


def field_of(record: object, field: str, *, what: str = "its messages", option: str | None = None) -> object:
    """The value of a field: `field_of({"json": {"text": "to be"}}, "json.text")` → `"to be"`.

    Raises `TaskError` if it is missing; the message says `what` the field is, and which `option` names another one.
    """
    if isinstance(record, Mapping):
        if field in record:
            return record[field]
        outer, dot, inner = field.partition(".")
        if dot and isinstance(record.get(outer), Mapping) and inner in record[outer]:
            return record[outer][inner]
    there = ", ".join(map(str, record)) if isinstance(record, Mapping) else type(record).__name__
    told = "" if option is None else f" ({option})"
    raise TaskError(
        f"a record should have the field {field!r}, which is {what}, and has {there}. Name a different one as "
        f"field=…{told}.",
        field=field,
    )


def kept_fields(record: object, keep: Mapping[str, str] | None) -> dict[str, Any]:
    """Fields of a record as stored, by their dtypes: `{"n": 7}` with `{"n": "int64", "url": "str"}` →
    `{"n": 7, "url": ""}`.

    "str" keeps text as it is, stores a missing value as `""`, and everything else as JSON. Files have `path`.
    """
    kept: dict[str, object] = {}
    for name, dtype in (keep or {}).items():
        try:
            value = field_of(record, name) if isinstance(record, Mapping) else getattr(record, name, None)
        except TaskError:
            value = None
        if dtype == "str" and not isinstance(value, str):
            value = "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        kept[name] = value
    return kept


def _listed(record: object, field: str) -> list[Mapping[str, object]]:
    """The list of dicts in a field; empty if it is null."""
    value = field_of(record, field)
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TaskError(f"the field {field!r} should hold a list of messages, or it as JSON: {error}.") from error
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, Mapping) for each in value):
        raise TaskError(f"the field {field!r} should hold a list of dicts, found {value!r:.80}.")
    return [dict(each) for each in value]
