"""Chat templates, and the messages passed to them.

A template is Jinja as `transformers` sets it up. A `{% generation %}` block leaves a pair of marks around what it
writes. They are characters of a private use area that do not occur in the messages, tools or template, so that no text
can pass for the assistant's words; the marks are removed afterwards.

Messages arrive in the shapes found in data, with the nulls that Parquet adds; other shapes are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import require

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
_REASONING = ("reasoning_content", "thinking", "reasoning")

#: Keys of a record of another shape → its name, and the `jq` program that converts it to messages.
OTHER_SHAPES: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset({"instruction", "output"}): (
        "instructions (Alpaca)",
        '{messages: [{role: "user", content: ([.instruction, .input // ""] | map(select(. != "")) | join("\\n\\n"))}, '
        '{role: "assistant", content: .output}]}',
    ),
    frozenset({"prompt", "completion"}): (
        "prompts and completions",
        '{messages: [{role: "user", content: .prompt}, {role: "assistant", content: .completion}]}',
    ),
    frozenset({"prompt", "chosen", "rejected"}): (
        "preferences",
        '{messages: [{role: "user", content: .prompt}, {role: "assistant", content: .chosen}]}',
    ),
    frozenset({"question", "answer"}): (
        "questions and answers",
        '{messages: [{role: "user", content: .question}, {role: "assistant", content: .answer}]}',
    ),
}


def refuse_other_shapes(record: object, field: str) -> None:
    """Raises `TaskError` for a record that lacks the field but has the keys of another kind of training data."""
    if not isinstance(record, Mapping) or field in record or "." in field:
        return
    for name, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping) and value[0].keys() & {"role", "from"}:
            raise TaskError(
                f"a record should have the field {field!r}, which is a list of messages, and has {name!r}, which is "
                f"one. Name it: --text-field {name}",
                field=field,
            )
    for keys, (name, program) in OTHER_SHAPES.items():
        if keys <= record.keys():
            raise TaskError(
                f"a record should have the field {field!r} with messages, and is one of {name}: it has "
                f"{', '.join(map(str, record))}. Convert the file first: jq -c '{program}' FILE > chat.jsonl",
                field=field,
            )


# What others call the one who answers, in data for templates that know it as `assistant`.
_ANSWERING = {"ai", "bot", "chatbot", "gpt", "model", "Assistant", "ASSISTANT"}


def require_assistant(messages: Sequence[Message], field: str) -> None:
    """Raises `TaskError` if the one who answers has another name than `assistant`: all answers would be left out."""
    roles = list(dict.fromkeys(str(message["role"]) for message in messages))
    if "assistant" not in roles and (others := [role for role in roles if role in _ANSWERING]):
        program = f'.{field} |= map(if .role == "{others[0]}" then .role = "assistant" else . end)'
        raise TaskError(
            f"expected the role 'assistant' in the field {field!r}, found {', '.join(map(repr, roles))}. Rename it "
            f"first: jq -c '{program}' FILE > chat.jsonl",
            field=field,
        )


def require_roles(messages: Sequence[Message], field: str) -> None:
    """Raises `TaskError` for a message without a role."""
    for at, message in enumerate(messages):
        if isinstance(message.get("role"), str):
            continue
        found = f"message {at} of the field {field!r} should have a 'role', and has {', '.join(map(str, message))}."
        if {"from", "value"} <= message.keys():
            roles = '({human: "user", gpt: "assistant"}[.from] // .from)'
            program = f".{field} |= map({{role: {roles}, content: .value}})"
            raise TaskError(
                f"{found} This is the shape of ShareGPT. Convert the file first: jq -c '{program}' FILE > chat.jsonl",
                field=field,
            )
        raise TaskError(f"{found} Messages are dicts with 'role' and 'content'. Rename their keys.", field=field)


def require_written(messages: Sequence[Message], template: str, text: str) -> None:
    """Raises `TaskError` for contents allowed by OpenAI that a template omits or writes as a Python repr."""
    for at, message in enumerate(messages):
        content = message.get("content")
        if message.get("function_call") is not None and "function_call" not in template:
            what = "a 'function_call' (OpenAI's, before tools), which the template does not write"
            program = (
                "if .function_call then .tool_calls = [{function: .function_call}] | del(.function_call) else . end"
            )
        elif isinstance(content, list) and content and str(content) in text:
            what = "a list of parts as its content (OpenAI's), which the template writes as Python does"
            program = 'if .content | type == "array" then .content |= (map(.text) | join("")) else . end'
        else:
            continue
        raise TaskError(
            f"message {at} has {what}. Use another template, or convert the file first: "
            f"jq -c '.messages |= map({program})' FILE > chat.jsonl"
        )


def completed(message: Message) -> dict[str, object]:
    """A message for templates: without keys with null values, and with its reasoning under the usual name."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def is_null_answer(message: Message) -> bool:
    """Whether a message is an empty one of the assistant."""
    return message["role"] == "assistant" and not {k for k, v in message.items() if v is not None} - {"role", "name"}


def listed(value: Any, field: str, *, what: str, drop_nulls: bool) -> list[Message]:
    """A list of dicts, or its JSON; empty if it is null. `drop_nulls`: drop keys with null values, except in JSON."""
    if isinstance(value, str | bytes):
        drop_nulls = False  # nulls in JSON are intentional
        try:
            value = json.loads(value)
        except ValueError as error:
            raise TaskError(
                f"the field {field!r} should hold a list of {what}, or it as JSON, found {value!r:.60}: {error}."
            ) from error
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise TaskError(f"the field {field!r} should hold a list of dicts, found {value!r:.80}.")
    return [_without_nulls(each) if drop_nulls else dict(each) for each in value]


def _without_nulls(value: Any) -> Any:
    """A value without dict keys whose values are null."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | np.ndarray):
        return [*map(_without_nulls, value)]
    return value
