"""One chat template: Jinja as `transformers` sets it up, and where its `{% generation %}` blocks write.

A block leaves a pair of marks around what it writes. They are characters of a private use area that the messages, the
tools and the template do not have, so that no text can pass for what the assistant said; the marks are taken out again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from beam_pipes.errors import TaskError
from beam_pipes.extras import require

if TYPE_CHECKING:
    import jinja2

#: What a template is given under a name of its own: the marks of this rendering.
_MARKS = "beam_pipes_marks"
_NO_MARKS = ("", "")
# The supplementary private use area A.
_PRIVATE = range(0xF0000, 0xFFFFD, 2)


class CompiledTemplate:
    """A template that is ready to write messages.

    Args:
        source: the text of the template.
        now: what `strftime_now` is.

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
        #: Whether the template says itself what the assistant generates.
        self.marks_generation = _has_block(parsed)
        # Where the template can see, and change, what a block has written.
        around = (jinja.nodes.Macro, jinja.nodes.AssignBlock, jinja.nodes.FilterBlock, jinja.nodes.CallBlock)
        self._sees_blocks = any(_has_block(node) for node in parsed.find_all(around) if not _is_block(node))

    def text(self, variables: Mapping[str, object]) -> str:
        """What the template writes. Raises `TaskError` if it cannot."""
        return self._rendered(variables, _NO_MARKS)

    def spans(self, variables: Mapping[str, object]) -> tuple[str, list[tuple[int, int]]]:
        """What it writes, and the ranges of characters that its generation blocks write."""
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
    """All texts within a value, the keys of dicts included."""
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
    """The text without marks, and the ranges that they were around."""
    pieces, spans, length = [], [], 0
    for number, part in enumerate(marked.split(marks[0])):
        inside, close, outside = part.partition(marks[1]) if number else ("", "", part)
        if number and not close:
            raise TaskError("a {% generation %} block of the chat template is within another one. Close it first.")
        spans += [(length, length + len(inside))] if number else []
        pieces += [inside, outside]
        length += len(inside) + len(outside)
    return "".join(pieces), spans
