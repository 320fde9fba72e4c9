"""Chat data: messages to token ids, with a mask of what the assistant said.

    {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    ── template ──►  <|user|>2+2?<|end|><|assistant|>4<|end|>
    ── tokenizer ─►  tokens        [7, 21, 14, 21, 30, 9, 8, 23, 9]
                     loss_weights  [0,  0,  0,  0,  0, 0, 0,  1, 1]

Templates are those of Hugging Face: Jinja, in a sandbox, with `messages`, `tools`, special tokens, `raise_exception`
and `tojson`. The assistant's words are those that the template writes within `{% generation %}` …
`{% endgeneration %}`. Without such blocks, they are the text that each assistant message adds; a template that rewrites
earlier turns when later ones follow is refused, unless their places are certain.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.sources.tar import values_at
from beam_pipes.tasks.vocabularies.pretrained import (
    chat_templates,
    num_ids,
    open_json,
    panics_as_errors,
    read_pretrained,
    tell_dropout,
    tokenizer_file,
)
from beam_pipes.tasks.vocabularies.vocabulary import as_text
from beam_pipes.transforms.chat_templates import (
    BESIDE,
    REASONING,
    CompiledTemplate,
    Message,
    completed,
    is_null_answer,
    listed,
    refuse_beside,
    refuse_other_shapes,
    require_assistant,
    require_roles,
    require_written,
    strings_in,
    texts_in,
    trained_spans,
    unwritten,
)
from beam_pipes.transforms.kept_fields import field_of, kept_fields
from beam_pipes.typed import count, drop, stage

if TYPE_CHECKING:
    import tokenizers

__all__ = ["ChatTemplate", "chat_tokens", "conversation_text", "fields_asked_about", "spoken_text"]

#: The counters of what a template does not write begin like this, after the name of the stage.
UNWRITTEN = "left out by the chat template: "
# An answer that occurs in no template or conversation.
_PROBE = "\ue0f0\ue0f1\ue0f2"
# The variables that each template is given.
_GIVEN = ("messages", "tools", "add_generation_prompt")


def fields_asked_about(tokenizer: str | os.PathLike[str], template: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """Fields beside the messages that `chat_tokens` refuses to leave out: a source has to read these too.

    `template` is the file of one, instead of those beside the tokenizer.
    """
    texts = chat_templates(tokenizer_file(tokenizer)) if template is None else {"": Path(template).read_text("utf-8")}
    read = (CompiledTemplate(text, now=str).variables for text in texts.values())
    return (*BESIDE, *sorted(frozenset().union(*read) - {*BESIDE, *_GIVEN}))


def _probe_for(answer: Message) -> Message:
    """Another answer in the place of one, without a thought."""
    return {key: value for key, value in answer.items() if key not in REASONING} | {"content": _PROBE}


class ChatTemplate:
    """A tokenizer and the template that writes messages for it, read as `transformers` reads them.

    `ChatTemplate("model")` reads `model/tokenizer.json`, and the templates and tokens of the files next to it. Of
    several named templates, "tool_use" writes conversations with tools, and "default" the others.

    Args:
        tokenizer: a directory with `tokenizer.json`, or that file.
        template: the text of a template, or the name of one of the tokenizer's, for all conversations.
        date: the result of `strftime_now` in templates that write today's date, such as "26 Jul 2024". There is no
            default: a cache whose bytes depend on the day it was built could be neither resumed nor compared.
        special_as_text: whether special tokens spelled in messages or tools are text. `apply_chat_template` treats them
            as tokens, so that a user who writes `<|im_end|>` ends the turn. The template's own are always tokens.

    Fingerprints cover the content of all files and the template, never paths. Raises `TaskError` if there is no
    tokenizer or template, `MissingExtraError` without `tokenizers` and `jinja2` (extras `text` and `cli`).
    """

    def __init__(
        self,
        tokenizer: str | os.PathLike[str],
        *,
        template: str | None = None,
        date: str | None = None,
        special_as_text: bool = False,
    ) -> None:
        found = read_pretrained(tokenizer)
        self._json, self._special, self._splits_special = found.tokenizer_json, found.special, found.special_as_text
        if template is not None:
            self._templates = {"default": found.templates.get(template, template)}
        else:
            self._templates = {
                name: found.templates[name] for name in ("default", "tool_use") if name in found.templates
            }
        if "default" not in self._templates:
            there = f", only {', '.join(map(repr, found.templates))}" if found.templates else ""
            raise TaskError(
                f"there is no chat template next to {tokenizer_file(tokenizer)!r}{there}: neither chat_template.jinja "
                "nor chat_template in tokenizer_config.json. Pass template=… (--chat-template)."
            )
        self.date, self.special_as_text = date, special_as_text
        if special_as_text and '"first"' in json.dumps(json.loads(self._json).get("pre_tokenizer")):
            raise TaskError(
                "special_as_text=True (--no-parse-special) needs a tokenizer that encodes each part of a text alike, "
                "and this one puts a space before the first alone (Metaspace, prepend_scheme first). Leave it out."
            )
        _ = self._library, [self._compiled(name) for name in self._templates]  # raises errors now
        tell_dropout(self._dropout)

    def __getstate__(self) -> dict[str, object]:
        return {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("_library", "_plain", "_by_name", "variables")
        }

    def fingerprint_config(self) -> Mapping[str, object]:
        """Everything that tokens and masks depend on, as JSON."""
        return {
            "version": 2,  # 1 wrote null as None, and knew one template and one file of special tokens
            "tokenizer": hashlib.sha256(self._json.encode()).hexdigest(),
            "templates": self._templates,
            "special": {**self._special},
            "special_as_text": [self.special_as_text, self._splits_special],
            "date": self.date,
        }

    @property
    def template(self) -> str:
        """The template of conversations without tools."""
        return self._templates["default"]

    @property
    def vocab_size(self) -> int:
        """The number of ids, including unused ones."""
        return num_ids(self._library)

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        """The variables that the templates read and nobody gives them, such as `enable_thinking`."""
        names = frozenset[str]().union(*(self._compiled(name).variables for name in self._templates))
        return names - {*_GIVEN, *self._special}

    @property
    def marks_generation(self) -> bool:
        """Whether the template itself marks what the assistant generates."""
        return self._compiled("default").marks_generation

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[object] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text of a conversation, as `apply_chat_template(tokenize=False)` gives it."""
        return self._template_for(tools).text(self._variables(messages, tools, add_generation_prompt))

    def spans(
        self, messages: Sequence[Message], *, tools: Sequence[object] | None = None
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text, and the assistant's ranges of characters: `("…4<|end|>", [(35, 43)])`.

        Raises `TaskError` if the template has no generation block and earlier turns change as later ones follow.
        """
        if self._template_for(tools).marks_generation:
            return self._template_for(tools).spans(self._variables(messages, tools, False))
        text, spans = self.render(messages, tools=tools), list[tuple[int, int]]()
        for at, message in enumerate(messages):
            if message.get("role") == "assistant":
                after = self._tried(messages[: at + 1], tools)
                start = None if after is None else self._start(messages, at, tools, after)
                if after is None or start is None or not text.startswith(after):
                    found = self._rewritten(messages, at, tools, text)
                    if found is not None and found[0] >= max((stop for _, stop in spans), default=0):
                        spans.append(found)
                        continue
                    raise TaskError(
                        f"the template writes message {at} otherwise once others follow, so what the assistant said "
                        "there has no fixed place in the text. Put {% generation %} and {% endgeneration %} around it "
                        "in the template, and pass it as template=… (--chat-template)."
                    )
                spans.append((start, len(after)))
        return text, spans

    def _start(self, messages: Sequence[Message], at: int, tools: Sequence[object] | None, after: str) -> int | None:
        """The start of an answer in the text `after` it; None if there is no such place."""
        before = self._tried(messages[:at], tools, prompt=True)
        if before is not None and after.startswith(before):
            return len(before)
        # The prompt for an answer may differ from the text before this one: it may be missing before the first message,
        # empty answers may lack a line of it, or it may begin a thought. So the text before another answer is compared
        # instead.
        probed = self._tried([*messages[:at], {"role": "assistant", "content": _PROBE}], tools)
        earlier = self._tried(messages[:at], tools) if at else ""
        if probed is None or _PROBE not in probed or earlier is None or not after.startswith(earlier):
            return None
        start = len(os.path.commonprefix([probed.partition(_PROBE)[0], after]))
        return start if start >= len(earlier) else None

    def _rewritten(
        self, messages: Sequence[Message], at: int, tools: Sequence[object] | None, text: str
    ) -> tuple[int, int] | None:
        """The range of an answer that the template writes otherwise once others follow; None if it is not certain.

        Another answer in its place, without a thought, shows the text around it. The range begins behind the last
        generation prompt there, and ends with what ends a turn if nothing follows.
        """
        probe = _probe_for(messages[at])
        around = self._tried([*messages[:at], probe, *messages[at + 1 :]], tools)
        last, before = self._tried([*messages[:at], probe], tools), self._tried(messages[:at], tools) if at else ""
        prompted = self._tried(messages[:at], tools, prompt=True)
        if around is None or last is None or before is None or prompted is None or not prompted.startswith(before):
            return None
        head, _, rest = around.partition(_PROBE)
        prompt, end = prompted[len(before) :], last.partition(_PROBE)[2]
        start, stop = head.rfind(prompt) + len(prompt), len(text) - len(rest)
        is_certain = (
            _PROBE in last
            and prompt in head
            and head[:start] == text[:start]
            and start <= stop
            and text.endswith(rest)
            and rest.startswith(end)
        )
        return (start, stop + len(end)) if is_certain and around.count(_PROBE) == 1 else None

    def _tried(
        self, messages: Sequence[Message], tools: Sequence[object] | None, *, prompt: bool = False
    ) -> str | None:
        """The text; None if the template refuses such messages, for example none at all."""
        try:
            return self.render(messages, tools=tools, add_generation_prompt=prompt)
        except TaskError:
            return None

    def encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[object] | None = None,
        only_last: bool = False,
        field: str = "messages",
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """(ids, mask): int32 and uint8 of equal length; 1 on the assistant's words, or only those of its last turn.

        Answers whose `weight` is 0, or whose `train` or `loss` is false, have 0. `field`: where records hold the
        messages, for errors that say how to convert them. In a stage, what the template leaves out is counted.
        """
        mark = ""
        if self.special_as_text:
            messages, tools, mark = self._broken(messages, tools)
        try:
            text, spans = self.spans(messages, tools=tools)
        except TaskError as error:
            if type(error.__cause__).__name__ != "TemplateError":  # which the template itself raises
                require_written(messages, self._template_for(tools).source, None, field)
            raise
        require_written(messages, self._template_for(tools).source, text, field)
        self._count_unwritten(messages, tools, text)
        if not self._writes_answers:
            self._require_answers(messages, tools, text, field)
        with panics_as_errors():
            encoding = self._library.encode(as_text(text), add_special_tokens=False)
        ids = np.asarray(encoding.ids, np.int32)
        offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
        if mark:
            ids, offsets = self._mended(text, ids, offsets, mark)
        mask = np.zeros(len(ids), np.uint8)
        spans = trained_spans(messages, text, spans, field)
        for start, end in self._of_last(messages, tools, text, spans) if only_last else spans:
            mask[(offsets[:, 0] < end) & (offsets[:, 1] > start)] = 1
        return ids, mask

    def _of_last(
        self, messages: Sequence[Message], tools: Sequence[object] | None, text: str, spans: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """The ranges of the last answer: a template may write a thought or the end of a turn in a block of its own."""
        answers = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
        if not answers or len(spans) <= len(answers):
            return spans[-1:]
        at = answers[-1]
        probe = _probe_for(messages[at])
        other = self._tried([*messages[:at], probe, *messages[at + 1 :]], tools)
        start = len(os.path.commonprefix([text, other or text]))
        return [span for span in spans if span[1] > start] or spans[-1:]

    def _count_unwritten(self, messages: Sequence[Message], tools: Sequence[object] | None, text: str) -> None:
        def writes(at: int) -> bool:
            tried = self._tried([*messages[:at], {**messages[at], "content": _PROBE}, *messages[at + 1 :]], tools)
            return tried is None or _PROBE in tried

        for what in unwritten(messages, text, writes):
            count(f"{UNWRITTEN}{what}")
        if tools and "tools" not in self._template_for(tools).source:
            count(f"{UNWRITTEN}tools", len(tools))

    @functools.cached_property
    def _writes_answers(self) -> bool:
        text = self._tried([{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}], None)
        return text is not None and _PROBE in text

    def _require_answers(
        self, messages: Sequence[Message], tools: Sequence[object] | None, text: str, field: str
    ) -> None:
        """Raises `TaskError` if the template writes nothing of what the assistant says, but perhaps its end of turn."""
        said = {at: message.get("content") for at, message in enumerate(messages) if message.get("role") == "assistant"}
        answers = {at: content for at, content in said.items() if isinstance(content, str) and content.strip()}
        # A template may change an answer (escape it, take a thought out), but then writes something of any.
        probed = [{**message, "content": _PROBE} if at in answers else message for at, message in enumerate(messages)]
        if answers and (tried := self._tried(probed, tools)) is not None and _PROBE not in tried:
            at, answer = next(iter(answers.items()))
            parts = [{**message, "content": [{"type": "text", "text": _PROBE}]} for message in messages]
            advice = "Give the template of this chat model (--chat-template)."
            if (tried := self._tried(parts, tools)) is not None and _PROBE in tried:
                program = f'.{field} |= map((.content | strings) |= [{{type: "text", text: .}}])'
                advice = f"It writes lists of parts. Convert the file first: jq -c '{program}' FILE > chat.jsonl"
            raise TaskError(
                f"expected the chat template to write the assistant's words, such as {answer!r:.60} of message {at} of "
                f"the field {field!r}, found {text!r:.80}. {advice}",
                field=field,
            )

    def _broken(
        self, messages: Sequence[Message], tools: Sequence[object] | None
    ) -> tuple[Sequence[Message], Sequence[object] | None, str]:
        """Messages and tools with a mark inside each special token spelled in them, and the mark, or ""."""
        pattern = self._spelling
        given = "".join((*self._templates.values(), *strings_in([messages, tools])))
        if not self._spelled or pattern.search(given) is None:
            return messages, tools, ""
        mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in given)

        def broken(value: Any) -> Any:
            if isinstance(value, str):
                return pattern.sub(mark, value)
            if isinstance(value, Mapping):
                return {key: broken(item) for key, item in value.items()}
            return [*map(broken, value)] if isinstance(value, list | tuple) else value

        return broken(messages), broken(tools), mark

    def _mended(
        self, text: str, ids: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], mark: str
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Ids and offsets without marks, of the special tokens found and of the texts between them."""
        found, places, start = list[int](), list[tuple[int, int]](), 0
        is_special = np.isin(ids, [*self._spelled.values()])
        for number, (begin, end) in [
            *zip(ids[is_special], offsets[is_special].tolist(), strict=True),
            (-1, (len(text),) * 2),
        ]:
            kept = [at for at in range(start, begin) if text[at] != mark]
            with panics_as_errors():
                piece = self._plain.encode("".join(text[at] for at in kept), add_special_tokens=False)
            found += piece.ids
            places += [(kept[a], kept[b - 1] + 1) if b > a else (start, start) for a, b in piece.offsets]
            if number >= 0:
                found.append(int(number))
                places.append((begin, end))
            start = end
        return np.array(found, np.int32), np.array(places, np.int64).reshape(-1, 2)

    @functools.cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The tokenizer that treats special tokens as text."""
        tokenizer, _ = open_json(self._json)
        tokenizer.encode_special_tokens = True
        return tokenizer

    @functools.cached_property
    def _spelling(self) -> re.Pattern[str]:
        """Finds the position after the first character of each special token."""
        return re.compile("|".join(f"(?<={re.escape(each[0])})(?={re.escape(each[1:])})" for each in self._spelled))

    @functools.cached_property
    def _spelled(self) -> dict[str, int]:
        """Spelling → id of the special tokens; single characters cannot be broken up."""
        tokens = self._library.get_added_tokens_decoder().items()
        return {token.content: number for number, token in tokens if token.special and len(token.content) > 1}

    def _variables(
        self, messages: Sequence[Message], tools: Sequence[object] | None, prompt: bool
    ) -> dict[str, object]:
        given = {"messages": [*map(completed, messages)], "tools": tools, "add_generation_prompt": prompt}
        return {**self._special, "documents": None, **given}

    def _template_for(self, tools: Sequence[object] | None) -> CompiledTemplate:
        return self._compiled("tool_use" if tools is not None and "tool_use" in self._templates else "default")

    def _compiled(self, name: str) -> CompiledTemplate:
        by_name: dict[str, CompiledTemplate] = self.__dict__.setdefault("_by_name", {})
        if name not in by_name:
            by_name[name] = CompiledTemplate(self._templates[name], now=self._now)
        return by_name[name]

    @functools.cached_property
    def _library(self) -> tokenizers.Tokenizer:
        tokenizer, self._dropout = open_json(self._json)
        tokenizer.encode_special_tokens = self._splits_special
        return tokenizer

    def _now(self, format: str) -> str:
        if self.date is None:
            raise TaskError(
                "the chat template asks for today's date, and a cache should not depend on the day of its build. Pass "
                "ChatTemplate(…, date='26 Jul 2024') (--date '26 Jul 2024')."
            )
        return self.date


@stage(batched=True)
def chat_tokens(
    records: list[object],
    *,
    chat: ChatTemplate,
    field: str = "messages",
    tools_field: str | None = None,
    only_last: bool = False,
    max_tokens: int | None = None,
    drop_nulls: bool = False,
    keep: Mapping[str, str] | None = None,
    sparse: bool = False,
) -> list[dict[str, object] | None]:
    """Records with messages to ids and weights of the loss.

    `{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}` →
    `{"tokens": int32 (9,), "loss_weights": uint8 (9,)}`: 1 on the assistant's words, 0 elsewhere.

    Args:
        chat: tokenizer and template.
        field: where the messages are: a list of dicts with `role` and `content`, or the same as JSON text.
        tools_field: where the descriptions of tools are, likewise; a record without it has no tools.
        only_last: train on the last turn of the assistant only.
        max_tokens: longer conversations are dropped as `too_long`. Those in which the assistant says nothing, or one
            of whose answers is null without a tool call, are dropped as `no_answer`.
        drop_nulls: whether dict keys with null values are left out of tools and arguments, except in JSON text. Parquet
            gives every dict the keys of all.
        keep, sparse: further fields to store, each with its dtype, see `kept_fields`.

    Raises `TaskError` for a record without the field, with other values in it, or that the template refuses; and for
    one with tools, a `system` prompt or a variable of the template beside its messages, unless it is kept.
    """
    examples: list[dict[str, object] | None] = []
    num_tokens = num_trained = 0
    for record in records:
        messages, tools = _conversation(record, field, tools_field, drop_nulls=drop_nulls)
        refuse_beside(record, field, messages, read=chat.variables, used={*(keep or ()), tools_field or ""})
        if not messages or any(map(is_null_answer, messages)):
            examples.append(drop("no_answer"))
            continue
        ids, mask = chat.encode(messages, tools=tools or None, only_last=only_last, field=field)
        require_assistant(messages, field)
        if not mask.any():
            examples.append(drop("no_answer"))
        elif max_tokens is not None and len(ids) > max_tokens:
            examples.append(drop("too_long"))
        else:
            examples.append({"tokens": ids, "loss_weights": mask, **kept_fields(record, keep, sparse=sparse)})
            num_tokens += len(ids)
            num_trained += int(mask.sum())
    count("tokens", num_tokens)
    count("trained_tokens", num_trained)
    return examples


@stage
def conversation_text(
    record: object, *, field: str = "messages", tools_field: str | None = None, drop_nulls: bool = False
) -> str | None:
    """Messages and tools as JSON with sorted keys, by which conversations are compared; None if there are none.

    Options are those of `chat_tokens`, which reports errors of a record.
    """
    try:
        messages, tools = _conversation(record, field, tools_field, drop_nulls=drop_nulls)
    except TaskError:
        return None
    if not messages:
        return None
    compared = [[*map(completed, messages)], *([tools] if tools else [])]
    return json.dumps(compared, ensure_ascii=False, sort_keys=True, default=str)


@stage
def spoken_text(
    record: object, *, field: str = "messages", tools_field: str | None = None, drop_nulls: bool = False
) -> str | None:
    """All texts of the messages and tools, one to a line, in which evaluation sets are looked for; None without any."""
    try:
        found = _conversation(record, field, tools_field, drop_nulls=drop_nulls)
    except TaskError:
        return None
    return "\n".join(texts_in(found)) or None


def _conversation(
    record: object, field: str, tools_field: str | None, *, drop_nulls: bool
) -> tuple[list[Message], list[Message]]:
    """The messages and the tools of a record. Raises `TaskError` for anything else, with the name of that format."""
    refuse_other_shapes(record, field)
    value = field_of(record, field, what="a list of messages", option="--text-field")
    if isinstance(value, Mapping):  # the `json` of a tar
        refuse_other_shapes(value, "messages", inside=f"{field}.")
    messages = listed(value, field, what="messages", drop_nulls=drop_nulls)
    require_roles(messages, field, record)
    if tools_field is None or not isinstance(record, Mapping):
        return messages, []
    there = [record[tools_field]] if tools_field in record else values_at(record, tools_field)
    return messages, listed(there[0] if there else None, tools_field, what="tools", drop_nulls=drop_nulls)
