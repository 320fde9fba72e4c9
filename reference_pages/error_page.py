"""`docs/errors.md`: every exception class, and every message that is raised with it, from the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from beam_pipes import errors
from beam_pipes.errors import BeamPipesError

ROOT = Path(__file__).parents[1]
ROOMS = ("beam_pipes",)

HEAD = """# Index of errors

Made by `python -m reference_pages` from the code; not to be edited. Look for words of a message with your browser's
search: a `…` stands for a name or a value of yours. Messages say what was expected, what was found, where, and what to
do; the same facts are attributes of the exception (`error.stage`, `error.expected`), None where they are not known.

All of them are `BeamPipesError`s, and each is also the builtin that a caller would expect to catch.

```python
from beam_pipes.errors import BeamPipesError, CacheNotFoundError

try:
    from beam_pipes import Cache

    Cache.open("nowhere")
except FileNotFoundError as error:
    assert isinstance(error, CacheNotFoundError) and isinstance(error, BeamPipesError)
    assert str(error) == "nowhere: expected a cache, a directory with manifest.json, and there is none. Build it first."
    assert error.path == "nowhere"
```

"""

# Shorter texts say nothing that could be looked for.
LEAST_LETTERS = 12


@dataclasses.dataclass(frozen=True, order=True)
class Message:
    """A message of an exception class as the code spells it, with `…` for what is filled in, and the file it is in."""

    error: str
    text: str
    file: str


# Methods that make an exception, with the operator's name in front of the message.
MAKING = {"refuse": "InferenceError", "argument_error": "OperatorArgumentError"}

# What the functions of `beam_pipes/checks.py` say, around the text that they are given as `what`.
CHECKS = {
    "choice": "{} should be one of …, got ….",
    "integer": "{} should be an integer…, got ….",
    "number": "{} should be a number…, got ….",
    "known": "there is no {} …. There are: ….",
    "instance": "{} should be …, got ….",
}


def messages() -> list[Message]:
    """All messages of our exceptions, sorted."""
    classes = {cls.__name__ for cls in error_classes()}
    found = {
        message
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.py"))
        for message in messages_in(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix(), classes)
    }
    return sorted(found)


def messages_in(source: str, file: str, classes: set[str]) -> Iterator[Message]:
    """The messages of one file: the first argument of each call of one of the classes, or of what makes one; and what
    checks say.

    `Refusal(Class, text)` makes one later, with what stands in the braces of its text. `Class(text).about("feature",
    name)` puts `feature …: ` in front.
    """
    subjects: dict[ast.expr, str] = {}  # the walk comes from a call of `about` to that of the class
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = _last_name(node.func)
        if called == "about" and isinstance(node.func, ast.Attribute):
            subjects[node.func.value] = f"{_spelled(node.args[0])} …: "
        if called == "Refusal" and isinstance(node.args[0], ast.Name):
            yield Message(node.args[0].id, re.sub(r"\{\w+(!r)?\}", "…", _spelled(node.args[1])), file)
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if called in CHECKS and "what" in given:
            error = _last_name(given["error"]) if "error" in given else "DeclarationError"
            text = ("…: " if error in MAKING else "") + CHECKS[called].format(_spelled(given["what"]))
            if (error := MAKING.get(error, error)) in classes:
                yield Message(error, text, file)
        made = MAKING.get(called) if isinstance(node.func, ast.Attribute) else None
        if made is None and called not in classes:
            continue
        text = ("…: " if made else subjects.get(node, "")) + " ".join(_spelled(node.args[0]).split())
        if sum(letter.isalpha() for letter in text) >= LEAST_LETTERS:
            yield Message(made or called, text, file)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _spelled(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_spelled(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _spelled(node.left) + _spelled(node.right)
    return "…"


def error_classes() -> list[type[BeamPipesError]]:
    """All exception classes, in the order of the file."""
    return [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, BeamPipesError)]


def tree(root: type[BeamPipesError]) -> Iterator[str]:
    """A class and those derived from it, drawn: each with the builtins that it is too."""
    builtins = [base.__name__ for base in root.__bases__ if base.__module__ == "builtins" and base is not Exception]
    yield root.__name__ + (f" ({', '.join(builtins)})" if builtins else "")
    below = [cls for cls in error_classes() if root in cls.__bases__]
    for cls in below:
        first, *others = tree(cls)
        is_last = cls is below[-1]
        yield f"{'└' if is_last else '├'}── {first}"
        yield from (f"{' ' if is_last else '│'}   {line}" for line in others)


def page() -> str:
    """The text of the page."""
    by_class: dict[str, list[Message]] = {}
    for message in messages():
        by_class.setdefault(message.error, []).append(message)
    parts = ["\n".join(["```text", *tree(BeamPipesError), "```"])]
    for cls in error_classes():
        parts.append(_section(cls, by_class.get(cls.__name__, [])))
    return HEAD + "\n\n".join(parts) + "\n"


def _section(cls: type[BeamPipesError], found: list[Message]) -> str:
    builtins = [base.__name__ for base in (*cls.__bases__, *cls.__mro__) if base.__module__ == "builtins"]
    kind = next((name for name in builtins if name not in ("Exception", "BaseException", "object")), None)
    text = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    lines = [f"## {cls.__name__}", "", text + (f" Also a `{kind}`." if kind else "")]
    if found:
        lines.append("")
    for place, message in enumerate(found):
        if place and found[place - 1].text == message.text:
            continue
        lines.append(f"- {_code(message.text)}")
    return "\n".join(lines)


def _code(text: str) -> str:
    """A text as inline code, with as many backticks around it as it needs."""
    fence = "``" if "`" in text else "`"
    space = " " if fence == "``" else ""
    return f"{fence}{space}{text}{space}{fence}"
