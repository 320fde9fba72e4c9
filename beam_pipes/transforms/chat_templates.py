"""Chat templates, and the messages passed to them.

A template is Jinja as `transformers` sets it up. A `{% generation %}` block leaves a pair of marks around what it
writes. They are characters of a private use area that do not occur in the messages, tools or template, so that no text
can pass for the assistant's words; the marks are removed afterwards.

Messages arrive in the shapes found in data, with the nulls that Parquet adds; other shapes are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.sources.tar import values_at

if TYPE_CHECKING:
    import jinja2

#: The name under which a template receives the marks of this rendering.
_MARKS = "beam_pipes_marks"
_NO_MARKS = ("", "")
# The supplementary private use area A.
_PRIVATE = range(0xF0000, 0xFFFFD, 2)


class CompiledTemplate:
    """A compiled template that renders messages.

    Args:
        source: the text of the template.
        now: the implementation of `strftime_now`.

    Raises `TaskError` if the text is not valid Jinja.
    """

    def __init__(self, source: str, *, now: Callable[[str], str]) -> None:
        jinja = require("jinja2", purpose="chat templates")
        environment = _environment(now)
        try:
            parsed = environment.parse(source)
            self._compiled: jinja2.Template = environment.from_string(parsed)
        except jinja.exceptions.TemplateSyntaxError as error:
            raise TaskError(f"the chat template is not valid Jinja: {error} (line {error.lineno}).") from error
        self.source = source
        read = require("jinja2.meta", purpose="chat templates").find_undeclared_variables(parsed)
        #: The variables that it reads from its caller; `namespace` and the like are Jinja's, not fields of records.
        self.variables = frozenset(read - environment.globals.keys())
        #: Whether the template itself marks what the assistant generates.
        self.marks_generation = _has_block(parsed)
        # Places where the template can see and change a block's output.
        around = (jinja.nodes.Macro, jinja.nodes.AssignBlock, jinja.nodes.FilterBlock, jinja.nodes.CallBlock)
        self._sees_blocks = any(_has_block(node) for node in parsed.find_all(around) if not _is_block(node))

    def text(self, variables: Mapping[str, object]) -> str:
        """The rendered text. Raises `TaskError` if rendering fails."""
        return self._rendered(variables, _NO_MARKS)

    def spans(self, variables: Mapping[str, object]) -> tuple[str, list[tuple[int, int]]]:
        """The rendered text, and the ranges of characters written by its generation blocks."""
        given = "".join((self.source, *strings_in(variables)))
        marks = next(((chr(c), chr(c + 1)) for c in _PRIVATE if chr(c) not in given and chr(c + 1) not in given), None)
        if marks is None:
            raise TaskError("the messages have all characters of a private use area of Unicode. Drop the record.")
        text, spans = _unmarked(self._rendered(variables, marks), marks)
        if self._sees_blocks and text != self.text(variables):
            raise TaskError(
                "the chat template changes what a {% generation %} block has written, by a filter or a test, so what "
                "the assistant said has no place in the text. Put the block where the text is written."
            )
        return text, spans

    def _rendered(self, variables: Mapping[str, object], marks: tuple[str, str]) -> str:
        jinja = require("jinja2", purpose="chat templates")
        try:
            return self._compiled.render({**variables, _MARKS: marks})
        except jinja.exceptions.TemplateError as error:
            raise TaskError(f"the chat template cannot write these messages: {error}.") from error
        except (TypeError, KeyError, AttributeError, ValueError, IndexError) as error:
            raise TaskError(
                f"the chat template cannot write these messages: {type(error).__name__}: {error}. Messages are dicts "
                "with 'role' and 'content'."
            ) from error


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
            marking = self.call_method("_marked", [nodes.Name(_MARKS, "load")])
            return nodes.CallBlock(marking, [], [], body).set_lineno(line)

        def _marked(self, marks: tuple[str, str], caller: Callable[[], str]) -> str:
            return f"{marks[0]}{caller()}{marks[1]}"

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


def _is_block(node: jinja2.nodes.Node) -> bool:
    """Whether a node is a `{% generation %}` block: the only extension that calls a method of its own."""
    from jinja2 import nodes

    return isinstance(node, nodes.CallBlock) and isinstance(node.call.node, nodes.ExtensionAttribute)


def _has_block(node: jinja2.nodes.Node) -> bool:
    from jinja2 import nodes

    return any(map(_is_block, node.find_all(nodes.CallBlock)))


def strings_in(value: object) -> Iterator[str]:
    """All texts within a value, including keys of dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from strings_in(item)


def texts_in(value: object) -> Iterator[str]:
    """The texts of messages and tools, without roles, types and keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in ("role", "type"):
                yield from texts_in(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from texts_in(each)


def _unmarked(marked: str, marks: tuple[str, str]) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and the ranges that they enclosed."""
    pieces, spans, length = [], [], 0
    for number, part in enumerate(marked.split(marks[0])):
        inside, close, outside = part.partition(marks[1]) if number else ("", "", part)
        if number and not close:
            raise TaskError("a {% generation %} block of the chat template is within another one. Close it first.")
        spans += [(length, length + len(inside))] if number else []
        pieces += [inside, outside]
        length += len(inside) + len(outside)
    return "".join(pieces), spans


# Messages.

Message: TypeAlias = Mapping[str, object]

#: The fields that hold an assistant's reasoning, oldest name first; templates read the first.
REASONING = ("reasoning_content", "thinking", "reasoning")


class Shape(NamedTuple):
    """Records that hold a question and its answer in fields of their own; `context` is optional, and joined to the
    question."""

    question: str
    answer: str
    context: str | None = None
    also: str | None = None

    @property
    def keys(self) -> set[str]:
        """The fields that every such record has."""
        return {self.question, self.answer} | ({self.also} if self.also else set())

    def program(self, record: Mapping[str, object]) -> str | None:
        """The `jq` program that converts such records, and leaves their other fields; None if the answer is a whole
        conversation.
        """
        question, answer = f".{self.question}", f".{self.answer}"
        if _are_messages(record[self.answer]):
            if not _are_messages(record[self.question]) and record[self.answer][0].get("role") != "assistant":  # type: ignore[index]
                return None
        else:
            answer = f'[{{role: "assistant", content: {answer}}}]'
        if not _are_messages(record[self.question]):
            if self.context is not None:
                question = f'([{question}, .{self.context} // ""] | map(select(. != "")) | join("\\n\\n"))'
            question = f'[{{role: "user", content: {question}}}]'
        before, also = "", ", ".join(f".{name}" for name in (self.question, self.context, self.answer) if name)
        if self.context == "input":  # Alpaca's rows may have a system prompt and earlier turns, as pairs
            before, also = f"{_system_first()} + {_HISTORY} + ", f"{also}, .system, .history"
        # Of ratings (KTO), what was rated bad is not to be imitated.
        chosen = "select(.label) | " if isinstance(record.get("label"), bool) else ""
        return f"{chosen}.messages = ({before}{question} + {answer}) | del({also})"


_HISTORY = '((.history // []) | map([{role: "user", content: .[0]}, {role: "assistant", content: .[1]}]) | add // [])'


def _system_first(field: str = "system") -> str:
    """`jq` for the system prompt in a field as a list of messages, empty where a record has none."""
    return f'(if (.{field} // "") != "" then [{{role: "system", content: .{field}}}] else [] end)'


#: Name → records of another shape than messages.
OTHER_SHAPES: Mapping[str, Shape] = {
    "instructions (Alpaca)": Shape("instruction", "output", context="input"),
    "instructions (Dolly)": Shape("instruction", "response", context="context"),
    "prompts and completions": Shape("prompt", "completion"),
    "prompts and responses": Shape("prompt", "response"),
    "queries and responses": Shape("query", "response"),
    "preferences": Shape("prompt", "chosen", also="rejected"),
    "questions and answers": Shape("question", "answer"),
    "problems and solutions": Shape("problem", "solution"),
    "inputs and outputs": Shape("input", "output"),
}


def _are_messages(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and isinstance(value[0], Mapping)
        and bool(value[0].keys() & {"role", "from"})
    )


# Messages that answer others in another field, or are not to be imitated.
_NOT_ALONE = ("rejected", "rejected_messages", "preferred_output", "non_preferred_output")


def refuse_other_shapes(record: object, field: str, *, inside: str = "") -> None:
    """Raises `TaskError` for a record that lacks the field but has the keys of another kind of training data.

    `inside`: what precedes the names of its fields, as in `json.messages` of a tar.
    """
    if not isinstance(record, Mapping) or field in record or "." in field:
        return
    for name, shape in OTHER_SHAPES.items():
        if shape.keys <= record.keys() and (program := shape.program(record)) is not None:
            rated = " (what is rated false is left out)" if program.startswith("select") else ""
            raise TaskError(
                f"a record should have the field {field!r} with messages, and is one of {name}: it has "
                f"{', '.join(map(str, record))}. Convert the file first{rated}: jq -c '{program}' FILE > chat.jsonl",
                field=field,
            )
    for name, value in record.items():
        if _are_messages(value) and name not in _NOT_ALONE:
            raise TaskError(
                f"a record should have the field {field!r}, which is a list of messages, and has {name!r}, which is "
                f"one. Name it: --text-field {inside}{name}",
                field=field,
            )
    if isinstance(record.get("text"), str):
        raise TaskError(
            f"a record should have the field {field!r}, which is a list of messages, and has "
            f"{', '.join(map(str, record))}. If 'text' is to be encoded as it is, leave out --chat; if another field "
            "holds messages, name it (--text-field).",
            field=field,
        )


#: Fields whose values text cannot hold.
MEDIA = ("audio", "audios", "image", "images", "video", "videos")
#: Fields that belong to a conversation and stand beside its messages, whichever template writes it.
BESIDE = ("chat_template_kwargs", "documents", "functions", "system", "tools", *MEDIA)


def refuse_beside(
    record: object, field: str, messages: Sequence[Message], *, read: frozenset[str], used: Collection[str]
) -> None:
    """Raises `TaskError` for a field beside the messages that would be left out of the text, unless it is `used`.

    `read`: the variables of the template, which may be such fields too.
    """
    path = ""
    if isinstance(record, Mapping) and field not in record and "." in field:
        path = field.rpartition(".")[0]
        record = next(iter(values_at(record, path)), None)
    if not isinstance(record, Mapping):
        return
    for name in (*BESIDE, *sorted(read & record.keys() - {*BESIDE})):
        value, full = record.get(name), f"{path}.{name}" if path else name
        is_empty = isinstance(value, Sequence | Mapping | np.ndarray) and len(value) == 0
        if full == field or full in used or value is None or is_empty:
            continue
        if isinstance(value, str) and value.strip() in ("", "[]", "{}", "null"):
            continue
        if name == "system" and any(message.get("content") == value for message in messages):
            continue
        advice = "Write it into the messages, or set it in a template (--chat-template)"
        if name == "tools":
            advice = f"Describe the tools to the template: --tools-field {full}"
        elif name == "functions":
            program = '.tools = (.functions | map({type: "function", function: .})) | del(.functions)'
            advice = f"Convert the file first: jq -c '{program}' FILE > chat.jsonl; then --tools-field tools"
        elif name == "system":
            program = f".{field} = {_system_first(full)} + .{field} | del(.{full})"
            advice = f"Make it the first message: jq -c '{program}' FILE > chat.jsonl"
        elif name in MEDIA:
            program = f"select((.{full} // []) | length == 0)"
            advice = f"Token ids hold text alone. Leave such records out: jq -c '{program}' FILE > chat.jsonl"
        raise TaskError(
            f"the record has {full!r} beside its messages, which would be left out: {value!r:.60}. {advice}. If it is "
            f"not to be trained on: jq -c 'del(.{full})' FILE > chat.jsonl, or store it beside the tokens "
            f"(--keep-field {full}).",
            field=full,
        )


#: What others call the participants → what templates call them.
_ROLES = {
    "human": "user",
    "User": "user",
    "USER": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "Assistant": "assistant",
    "ASSISTANT": "assistant",
    "System": "system",
    "observation": "tool",
    "tool_response": "tool",
}


def require_assistant(messages: Sequence[Message], field: str) -> None:
    """Raises `TaskError` if the one who answers has another name than `assistant`: such answers would be left out."""
    roles = list(dict.fromkeys([str(message["role"]) for message in messages]))
    if not _ROLES.keys().isdisjoint(roles) and any(_ROLES.get(role) == "assistant" for role in roles):
        names = json.dumps({role: _ROLES[role] for role in roles if role in _ROLES})
        raise TaskError(
            f"expected the role 'assistant' in the field {field!r}, found {', '.join(map(repr, roles))}. Rename it "
            f"first: jq -c '.{field} |= map(.role |= ({names}[.] // .))' FILE > chat.jsonl",
            field=field,
        )


# ShareGPT's roles; a `function_call` is a message of its own, whose value is JSON. Other keys, such as `weight`, stay.
_LOWER = json.dumps({name: role for name, role in _ROLES.items() if name.islower()})
_SHAREGPT = (
    'map((if .from == "function_call" or .from == "tool_call" then {role: "assistant", tool_calls: [{type: "function", '
    f"function: (.value | fromjson)}}]}} else {{role: ({_LOWER}[.from] // .from), content: .value}} end) "
    "+ del(.from, .value))"
)


def require_roles(messages: Sequence[Message], field: str, record: object) -> None:
    """Raises `TaskError` for a message without a role."""
    for at, message in enumerate(messages):
        if isinstance(message.get("role"), str):
            continue
        found = f"message {at} of the field {field!r} should have a 'role', and has {', '.join(map(str, message))}."
        if {"from", "value"} <= message.keys():
            program = f".{field} |= {_SHAREGPT}"
            if isinstance(record, Mapping) and isinstance(record.get("system"), str):
                program = f".{field} = {_system_first()} + (.{field} | {_SHAREGPT})"
            raise TaskError(
                f"{found} This is the shape of ShareGPT. Convert the file first: jq -c '{program}' FILE > chat.jsonl",
                field=field,
            )
        raise TaskError(f"{found} Messages are dicts with 'role' and 'content'. Rename their keys.", field=field)


def _refuse_parts(messages: Sequence[Message], field: str, text: str | None) -> None:
    """Raises `TaskError` for a list of parts as the content of a message, or only for one that `text` has as Python."""
    for at, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, list) or not content or (text is not None and str(content) not in text):
            continue
        program = (
            'if .content | type == "array" then .content |= (map(if type == "string" then . else .text // '
            'error("this part is no text: \\(.)") end) | join("")) else . end'
        )
        what, chosen = "a list of parts as its content (OpenAI's), which the template does not write as text", ""
        others = [part.get("type") for part in content if isinstance(part, Mapping) and part.get("text") is None]
        if others:
            what += f". Some are no text ({', '.join(map(str, dict.fromkeys(others)))}): this leaves such records out"
            chosen = f'select(all(.{field}[].content | arrays[]; type == "string" or .text != null)) | '
        raise TaskError(
            f"message {at} has {what}. Use another template, or convert the file first: "
            f"jq -c '{chosen}.{field} |= map({program})' FILE > chat.jsonl",
            field=field,
        )


def require_written(messages: Sequence[Message], template: str, text: str | None, field: str) -> None:
    """Raises `TaskError` for contents allowed by OpenAI that a template omits or writes as a Python repr.

    `text`: what it writes, or None if it fails.
    """
    _refuse_parts(messages, field, text)
    for at, message in enumerate(messages):
        content = message.get("content")
        has_other = content is not None or message.get("tool_calls") or message.get("function_call")
        said = {} if has_other else {key: [*texts_in(value)] for key, value in message.items() if key != "role"}
        lost = next((k for k, texts in said.items() if "".join(texts).strip() and k not in ("name", "id")), None)
        if lost is not None and not any(each in (text or "") for texts in said.values() for each in texts):
            raise TaskError(
                f"message {at} should have a 'content', and has {', '.join(map(str, message))}: the template does not "
                f"write its {lost!r}. Rename the key first: jq -c '.{field} |= map(.content //= .{lost})' FILE > "
                "chat.jsonl"
            )
        if message.get("function_call") is not None and "function_call" not in template:
            what = "a 'function_call' (OpenAI's, before tools), which the template does not write"
            program = (
                'if .function_call then .tool_calls = [{type: "function", function: .function_call}] | '
                "del(.function_call) else . end"
            )
        elif isinstance(content, Mapping) and (text is None or str(content) in text):
            what = "an object as its content, which the template writes as Python does"
            program = 'if .content | type == "object" then .content |= (.text // tojson) else . end'
        else:
            continue
        raise TaskError(
            f"message {at} has {what}. Use another template, or convert the file first: "
            f"jq -c '.{field} |= map({program})' FILE > chat.jsonl"
        )


# What several formats call the choice whether an answer is trained on: OpenAI's, axolotl's, that of ms-swift.
_TRAINED = ("weight", "train", "loss")


def _is_trained(message: Message, field: str) -> bool:
    """Whether an answer is to be trained on: not if its `weight` (OpenAI) is 0, or `train` or `loss` is false.

    Raises `TaskError` for any other number.
    """
    if len(message) == 2:  # role and content
        return True
    given = {key: message[key] for key in _TRAINED if message.get(key) is not None}
    for key, value in given.items():
        if not isinstance(value, int | float) or value not in (0, 1):
            raise TaskError(
                f"expected the {key!r} of an answer in the field {field!r} to be 0 or 1, found {value!r:.40}. Tokens "
                f"are trained on or not: round it first, jq -c '.{field} |= map(if .{key} then .{key} |= round else . "
                "end)' FILE > chat.jsonl",
                field=field,
            )
    return all(given.values())


def trained_spans(
    messages: Sequence[Message], text: str, spans: list[tuple[int, int]], field: str
) -> list[tuple[int, int]]:
    """The ranges of answers, empty for those that are not to be trained on."""
    answers = [(at, message) for at, message in enumerate(messages) if message.get("role") == "assistant"]
    wanted = [_is_trained(message, field) for _, message in answers]
    if all(wanted):
        return spans
    if not any(wanted):
        return [(0, 0)] * len(spans)
    said = [message.get("content") for _, message in answers]
    is_found = len(spans) == len(answers) and all(
        not isinstance(words, str) or words.strip() in text[start:end]
        for words, (start, end) in zip(said, spans, strict=True)
    )
    if not is_found:
        at = answers[wanted.index(False)][0]
        raise TaskError(
            f"message {at} of the field {field!r} is not to be trained on (its weight is 0), and the chat template "
            "does not write each answer in a range of its own. Give a template with one {% generation %} block for "
            "each answer (--chat-template).",
            field=field,
        )
    return [span if is_wanted else (0, 0) for span, is_wanted in zip(spans, wanted, strict=True)]


def unwritten(messages: Sequence[Message], text: str, writes: Callable[[int], bool]) -> Iterator[str]:
    """What the template leaves out of a text, as it may: "reasoning" for each thought, or the role of a message.

    `writes`: whether it writes some content for that message, which it may change.
    """
    for at, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str) and (words := content.strip()) and words not in text and not writes(at):
            yield f"messages of {message['role']}"
        if len(message) == 2 and "content" in message:  # nearly all
            continue
        thought = next((message[name] for name in REASONING if message.get(name) is not None), None)
        if isinstance(thought, str) and thought.strip() and thought.strip() not in text:
            yield "reasoning"
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list | tuple) else ():
            name = (call.get("function") or call).get("name") if isinstance(call, Mapping) else None
            if isinstance(name, str) and name not in text:
                yield "tool calls"


def completed(message: Message) -> dict[str, object]:
    """A message for templates: without keys with null values, and with its reasoning under the usual name."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in REASONING if name in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def is_null_answer(message: Message) -> bool:
    """Whether a message is an empty one of the assistant."""
    return message["role"] == "assistant" and not {k for k, v in message.items() if v is not None} - {
        "role",
        "name",
        *_TRAINED,
    }


def listed(value: Any, field: str, *, what: str, drop_nulls: bool) -> list[Message]:
    """A list of dicts, or its JSON; empty if it is null. `drop_nulls`: drop keys with null values, except in JSON."""
    if isinstance(value, str | bytes):
        if not value.strip():
            return []
        drop_nulls = False  # nulls in JSON are intentional
        try:
            value = json.loads(value)
        except ValueError as error:
            text = value if isinstance(value, str) else value.decode("utf-8", "replace")
            is_repr = text.startswith(("[{'", "[array(", "array("))
            advice = f" Python wrote it, as pandas does: write JSON, df[{field!r}].map(json.dumps)." if is_repr else ""
            raise TaskError(
                f"the field {field!r} should hold a list of {what}, or it as JSON, found {value!r:.60}: {error}."
                f"{advice}"
            ) from error
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        inside = [key for key, each in value.items() if _are_messages(each)] if isinstance(value, Mapping) else []
        advice = f" Name the list in it: --text-field {field}.{inside[0]}" if inside and what == "messages" else ""
        raise TaskError(f"the field {field!r} should hold a list of dicts, found {value!r:.80}.{advice}")
    return [_without_nulls(each) if drop_nulls else dict(each) for each in value]


def _without_nulls(value: Any) -> Any:
    """A value without dict keys whose values are null."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | np.ndarray):
        return [*map(_without_nulls, value)]
    return value
