"""Messages as data has them: of which shapes they are, with which nulls, and how templates see them.

{"role": "assistant", "content": None, "thinking": "hm"} ──completed──► {"role": …, "reasoning_content": "hm", …}
{"from": "gpt", "value": "4"}                            ──require_roles──► TaskError: the shape of ShareGPT
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from beam_pipes.errors import TaskError

Message: TypeAlias = Mapping[str, object]

#: The fields that hold what an assistant thought, by age of the name; templates read the first.
_REASONING = ("reasoning_content", "thinking", "reasoning")

#: Keys of a record of another shape → its name, and the program of `jq` that makes messages of it.
_OTHER_SHAPES: Mapping[frozenset[str], tuple[str, str]] = {
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
    """Raises `TaskError` for a record without the field whose keys are those of another kind of training data."""
    if not isinstance(record, Mapping) or field in record or "." in field:
        return
    for keys, (name, program) in _OTHER_SHAPES.items():
        if keys <= record.keys():
            raise TaskError(
                f"a record should have the field {field!r} with messages, and is one of {name}: it has "
                f"{', '.join(map(str, record))}. Convert the file first: jq -c '{program}' FILE > chat.jsonl",
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
    """Raises `TaskError` for what OpenAI's messages may hold, and a template leaves out or writes as Python has it."""
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
    """A message as templates see it: without keys whose value is null, and with its reasoning under the usual name."""
    kept = {key: value for key, value in message.items() if value is not None}
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    return kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning}


def is_null_answer(message: Message) -> bool:
    """Whether a message is one of the assistant with nothing in it."""
    return message["role"] == "assistant" and not {k for k, v in message.items() if v is not None} - {"role", "name"}


def listed(value: Any, field: str, *, what: str, drop_nulls: bool) -> list[Message]:
    """A list of dicts, or its JSON; empty if it is null. `drop_nulls`: keys whose value is null, but not of JSON."""
    if isinstance(value, str | bytes):
        drop_nulls = False  # whoever wrote JSON meant what it says
        try:
            value = json.loads(value)
        except ValueError as error:
            raise TaskError(f"the field {field!r} should hold a list of {what}, or it as JSON: {error}.") from error
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise TaskError(f"the field {field!r} should hold a list of dicts, found {value!r:.80}.")
    return [_without_nulls(each) if drop_nulls else dict(each) for each in value]


def _without_nulls(value: Any) -> Any:
    """A value without the keys of dicts whose value is null."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple | np.ndarray):
        return [*map(_without_nulls, value)]
    return value
