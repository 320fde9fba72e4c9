"""Which modules a stage imports when it runs: read from its code, so that a missing one is known before a job is."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from beam_pipes.errors import DeclarationError, MissingExtraError
from beam_pipes.extras import EXTRA_OF_MODULE
from beam_pipes.identity.source_code import function_node

# What is called of a stage, of a source, and of an analyzer.
_CALLED = ("__post_init__", "setup", "transform", "transform_batch", "read", "accumulator", "merge")

# Libraries are not followed: they import what they need when they are imported themselves.
_FOLLOWED = ("beam_pipes",)


def needed_modules(stage: Any) -> dict[str, str]:
    """What `transform` of a stage (or `read` of a source) imports on every call: module → where (`module:line`).

    Functions of the same package and methods of the stage are followed. What stands below an `if` or a `try` may not
    be needed, and is left out: `import` and `require("module", ...)` in the straight line of the code are found.
    """
    found: dict[str, str] = {}
    seen: set[int] = set()
    package = type(stage).__module__.partition(".")[0]
    waiting = [getattr(type(stage), name, None) for name in _CALLED]
    while waiting:
        called = waiting.pop()
        function = inspect.unwrap(called) if callable(called) else None
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        if function.__module__.partition(".")[0] not in (package, *_FOLLOWED):
            continue
        node = function_node(function)
        if node is None or isinstance(node, ast.Lambda):
            continue
        for each in _straight(node.body):
            for module in _imported(each):
                found.setdefault(module, f"{function.__module__}:{getattr(each, 'lineno', 0)}")
            if isinstance(each, ast.Call):
                waiting.append(_callee(each.func, function, type(stage)))
    return found


def missing_modules(stage: Any, name: str) -> Iterator[MissingExtraError | DeclarationError]:
    """An error for each module that `stage` needs and this Python does not have."""
    for module, place in needed_modules(stage).items():
        if _is_there(module):
            continue
        extra = EXTRA_OF_MODULE.get(module) or EXTRA_OF_MODULE.get(module.partition(".")[0])
        where = f"{name} imports {module} when it runs ({place}), which is not installed"
        if extra is not None:
            yield MissingExtraError(f"{where}: pip install 'beam-pipes[{extra}]'", module=module, extra=extra)
        else:
            yield DeclarationError(
                f"{where}: install it here, and put it into what workers install.", stage=name, module=module
            )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent that is missing, or is no package
        return False


def _straight(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes that run whenever the body runs."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, ast.Try | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            waiting.append(node.test)
        elif isinstance(node, ast.BoolOp):
            waiting.append(node.values[0])
        elif isinstance(node, ast.Match):
            waiting.append(node.subject)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("require", "import_module") and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def _callee(called: ast.expr, function: FunctionType, cls: type) -> Any:
    """What `name(...)` or `self.name(...)` calls, where that can be told."""
    if isinstance(called, ast.Name):
        return function.__globals__.get(called.id)
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
        return inspect.getattr_static(cls, called.attr, None)
    return None
