"""From a function or class to its syntax tree, by the file and line it was defined at.

`import_user_module`: a module of the user, with an error that says where it fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import sys
import traceback
import types
from collections import defaultdict
from types import CodeType, FunctionType

from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.identity.normalized_code import FunctionNode


class SourceFile:
    """The functions, classes, lambdas and top-level assignments of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: dict[tuple[int, str], FunctionNode] = {}
        self.classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.lambdas: dict[int, list[ast.Lambda]] = defaultdict(list)
        self.assignments: dict[str, list[ast.stmt]] = defaultdict(list)
        self._index(tree, "")
        for statement in tree.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                for target in targets:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name):
                            self.assignments[node.id].append(statement)

    def _index(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self.classes[prefix + child.name].append(child)
                self._index(child, f"{prefix}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[_first_line(child), child.name] = child
                self._index(child, f"{prefix}{child.name}.<locals>.")
            elif isinstance(child, ast.Lambda):
                self.lambdas[child.lineno].append(child)
                self._index(child, f"{prefix}<lambda>.<locals>.")
            else:
                self._index(child, prefix)


_files: dict[str, tuple[list[str], SourceFile | None]] = {}


def source_file(path: str, module_globals: dict[str, object] | None = None) -> SourceFile | None:
    """The parsed file, or None where there is no source (a prompt, a frozen module) or it does not parse."""
    lines = linecache.getlines(path, module_globals)
    known = _files.get(path)
    if known is not None and known[0] is lines:
        return known[1]
    parsed = None
    if lines:
        try:
            parsed = SourceFile(ast.parse("".join(lines)))
        except (SyntaxError, ValueError):
            parsed = None
    _files[path] = (lines, parsed)
    return parsed


def function_node(function: FunctionType) -> FunctionNode | None:
    """The definition of a function or lambda; None where its source is not available or does not fit."""
    code = function.__code__
    file = source_file(code.co_filename, function.__globals__)
    if file is None:
        return None
    if code.co_name == "<lambda>":
        return _lambda_node(code, file.lambdas.get(code.co_firstlineno, []))
    return file.functions.get((code.co_firstlineno, code.co_name))


def class_node(cls: type) -> ast.ClassDef | None:
    """The definition of a class; None where its source is not available."""
    module = sys.modules.get(cls.__module__)
    codes = [function.__code__ for function in functions_of(cls)]
    # At a prompt or in a notebook the module has no file, but methods know theirs; those that a dataclass made do not.
    written = [code.co_filename for code in codes if code.co_filename != "<string>"]
    path = getattr(module, "__file__", None) or (written[0] if written else None)
    if path is None:
        return None
    file = source_file(path, getattr(module, "__dict__", None))
    candidates = file.classes.get(cls.__qualname__, []) if file is not None else []
    lines = {code.co_firstlineno for code in codes if code.co_filename == path}
    if len(candidates) == 1:  # also where decorators have put functions of other places in
        return candidates[0]
    for node in reversed(candidates):
        defined = {_first_line(n) for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        if defined & lines or not defined:
            return node
    return None


def functions_of(cls: type) -> list[FunctionType]:
    """The functions that a class's own members are made of, without their decorators: of methods, properties, class and
    static methods, each once."""
    found = []
    for member in vars(cls).values():
        parts = [getattr(member, name, None) for name in ("fget", "fset", "fdel", "__func__", "func")]
        found += [inspect.unwrap(part) for part in (member, *parts) if callable(part)]
    return list(dict.fromkeys(function for function in found if isinstance(function, FunctionType)))


def assignments(module_globals: dict[str, object], name: str) -> list[ast.stmt]:
    """The top-level statements of a module that assign to `name`."""
    path = module_globals.get("__file__")
    file = source_file(path, module_globals) if isinstance(path, str) else None
    return file.assignments.get(name, []) if file is not None else []


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def _lambda_node(code: CodeType, candidates: list[ast.Lambda]) -> ast.Lambda | None:
    if len(candidates) <= 1 or sys.version_info < (3, 11):
        return candidates[0] if len(candidates) == 1 else None
    # Several on one line: the one whose body holds the columns that the instructions came from.
    spans = [span for span in code.co_positions() if None not in span and span[3] != 0]
    starts = {(span[0], span[2]) for span in spans}
    fitting = [
        node
        for node in candidates
        if starts
        and (node.body.lineno, node.body.col_offset) <= min(starts)
        and max(starts) < (node.body.end_lineno, node.body.end_col_offset)
    ]
    # Of nested ones the innermost, which starts last.
    return max(fitting, key=lambda node: (node.body.lineno, node.body.col_offset), default=None)


def import_user_module(name: str, *, reference: str | None = None) -> types.ModuleType:
    """Imports a module by its absolute name. `reference`: what named it, for messages.

    Raises `DeclarationError` where there is no such module, or where it fails while it is imported; errors of ours,
    which a declaration raises when it is made, pass.
    """
    told = repr(name) if reference is None else f"{name!r} of {reference!r}"
    if not name or name.startswith("."):
        raise DeclarationError(
            f"expected the absolute name of a module, such as package.module, got {told}.", reference=reference
        )
    try:
        return importlib.import_module(name)
    except BeamPipesError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise user_code_failed(f"{told} fails while it is imported", error, reference) from error
        raise DeclarationError(
            f"cannot import {told}: there is no module {error.name!r} on the path "
            f"{[path or '.' for path in sys.path[:4]]}…. Run from the directory that holds it, or install it.",
            reference=reference,
        ) from error
    except SystemExit as error:
        raise DeclarationError(
            f"cannot import {told}: expected a module that declares, {where_raised(error)} "
            f"called sys.exit({error}) instead. Put what runs behind `if __name__ == '__main__':`.",
            reference=reference,
        ) from error
    except Exception as error:
        raise user_code_failed(f"{told} fails while it is imported", error, reference) from error


def user_code_failed(told: str, error: Exception, reference: str | None) -> DeclarationError:
    """The error that says where a user's code has failed; `told` is what was done with it."""
    where, message = where_raised(error), str(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        where, message = f"{error.filename}:{error.lineno}", error.msg
    return DeclarationError(
        f"{told}: {where}: {type(error).__name__}: {message}. Mend it there, or install what it needs.",
        reference=reference,
    )


def where_raised(error: BaseException) -> str:
    """The file and the line of the innermost call: `/home/ada/m.py:3`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "somebody"
