"""Finds the syntax tree of a function or class by the file and line of its definition.

`import_user_module`: a module of the user, with an error that says where it fails. A module that builds while it is
imported (a script without a guard) is imported up to its first build: a command or a worker needs its declarations,
and must not run the program again. `python_path`: what a worker needs to import what this process can.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import linecache
import os
import re
import stat
import sys
import threading
import traceback
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType

from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.identity.normalized_code import FunctionNode, bare


class SourceFile:
    """The functions, classes, lambdas and top-level assignments of one file; `bare` when they are asked for."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: dict[tuple[int, str], FunctionNode] = {}
        self.classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
        self.assignments: dict[str, list[ast.stmt]] = defaultdict(list)
        self._tree = tree
        self._index(tree, "")
        for statement in tree.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                for target in targets:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name):
                            self.assignments[node.id].append(statement)

    def _index(self, node: ast.AST, prefix: str) -> None:
        """Only statements, and what holds some, have functions and classes in them."""
        for field in _HOLDING:
            for child in getattr(node, field, ()):
                if isinstance(child, ast.ClassDef):
                    self.classes[prefix + child.name].append(child)
                    self._index(child, f"{prefix}{child.name}.")
                elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions[_first_line(child), child.name] = child
                    self._index(child, f"{prefix}{child.name}.<locals>.")
                else:
                    self._index(child, prefix)

    @functools.cached_property
    def lambdas(self) -> Mapping[int, list[ast.Lambda]]:
        """Line → the lambdas that begin on it."""
        found: dict[int, list[ast.Lambda]] = defaultdict(list)
        for node in _in_order(bare(self._tree)):
            if isinstance(node, ast.Lambda):
                found[node.lineno].append(node)
        return found


# Fields of nodes that hold statements, or nodes that hold some: handlers of errors, cases of `match`.
_HOLDING = ("body", "handlers", "orelse", "finalbody", "cases")


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _in_order(child)


_files: dict[str, tuple[list[str], SourceFile | None]] = {}


def source_file(path: str, module_globals: dict[str, object] | None = None) -> SourceFile | None:
    """The parsed file, or None without source (a prompt, a frozen module) or if it does not parse."""
    lines = linecache.getlines(path, module_globals)
    if not lines and path == _typed_program()[0] and _is_main(module_globals):
        lines = _typed_program()[1]
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


def _is_main(module_globals: dict[str, object] | None) -> bool:
    return module_globals is not None and module_globals is getattr(sys.modules.get("__main__"), "__dict__", None)


@functools.cache
def _typed_program() -> tuple[str, list[str]]:
    """The file name that Python gives to a program without a file, and its lines.

    That is the program of `python -c`, or of standard input if that is a file. A program from a pipe cannot be read
    again, and what is typed at a prompt is known from Python 3.13 on.
    """
    if sys.argv[:1] == ["-c"]:
        return "<string>", _command_of(sys.orig_argv[1:]).splitlines(keepends=True)
    if sys.argv[:1] in (["-"], [""]):
        try:
            if stat.S_ISREG(os.fstat(0).st_mode):
                return "<stdin>", os.pread(0, os.fstat(0).st_size, 0).decode().splitlines(keepends=True)
        except (OSError, UnicodeDecodeError):
            pass
    return "", []


def _command_of(arguments: list[str]) -> str:
    """The program among Python's own arguments: `["-W", "error", "-Bc", "x = 1"]` → `"x = 1"`."""
    left = iter(arguments)
    for argument in left:
        if argument in ("-W", "-X", "--check-hash-based-pycs"):
            next(left, "")
        elif found := re.fullmatch("-[A-VY-Za-bd-z]*c(.*)", argument, re.DOTALL):
            return found[1] or next(left, "")
    return ""


def _pieces(module_globals: dict[str, object]) -> Iterator[SourceFile]:
    """The sources of a program without a file: the cells of a notebook, the last one first, or what was typed."""
    if not _is_main(module_globals):
        return
    name = _typed_program()[0]
    # Lines that belong to no file are kept without a time.
    paths = [path for path, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]
    for path in [*reversed(paths), *([name] if name else [])]:
        file = source_file(path, module_globals)
        if file is not None:
            yield file


def function_node(function: FunctionType) -> FunctionNode | None:
    """The definition of a function or lambda; None if its source is not available or does not match."""
    code = function.__code__
    file = source_file(code.co_filename, function.__globals__)
    if file is None:
        return None
    if code.co_name == "<lambda>":
        return _lambda_node(code, file.lambdas.get(code.co_firstlineno, []))
    node = file.functions.get((code.co_firstlineno, code.co_name))
    return None if node is None else bare(node)


def is_defined_plainly(module_globals: dict[str, object], name: str) -> bool:
    """Whether a module's file makes a name by a single undecorated, top-level `def` or `class`, and nothing else."""
    file = source_file(str(module_globals.get("__file__")), module_globals)
    if file is None or name in file.assignments:
        return False
    found = [
        node
        for node in [*file.functions.values(), *file.classes.get(name, [])]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name
    ]
    at_top = [node for node in found if not node.col_offset]
    return len(at_top) == 1 and not at_top[0].decorator_list


def class_node(cls: type) -> ast.ClassDef | None:
    """The definition of a class; None if its source is not available."""
    module = sys.modules.get(cls.__module__)
    codes = [function.__code__ for function in functions_of(cls)]
    # At a prompt or in a notebook the module has no file, but methods know theirs; those that a dataclass made do not.
    written = [code.co_filename for code in codes if code.co_filename != "<string>"]
    path = getattr(module, "__file__", None) or (written[0] if written else None)
    scope = getattr(module, "__dict__", {})
    file = source_file(path, scope) if path is not None else None
    if file is None or cls.__qualname__ not in file.classes:
        file = next((piece for piece in _pieces(scope) if cls.__qualname__ in piece.classes), file)
        if path is None:
            path = _typed_program()[0]
    candidates = file.classes.get(cls.__qualname__, []) if file is not None else []
    lines = {code.co_firstlineno for code in codes if code.co_filename == path}
    if len(candidates) == 1:  # even if decorators have added functions from elsewhere
        return bare(candidates[0])
    for node in reversed(candidates):
        defined = {_first_line(n) for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        if defined & lines or not defined:
            return bare(node)
    return None


def functions_of(cls: type) -> list[FunctionType]:
    """The functions of a class's own members, without their decorators: of methods, properties, class and
    static methods, each once."""
    found = []
    for member in vars(cls).values():
        parts = [getattr(member, name, None) for name in ("fget", "fset", "fdel", "__func__", "func")]
        found += [inspect.unwrap(part) for part in (member, *parts) if callable(part)]
    return list(dict.fromkeys(function for function in found if isinstance(function, FunctionType)))


def assignments(module_globals: dict[str, object], name: str) -> list[ast.stmt]:
    """The top-level statements of a module that assign to `name`."""
    path = module_globals.get("__file__")
    if isinstance(path, str):
        file = source_file(path, module_globals)
        pieces = [] if file is None else [file]
    else:
        pieces = list(_pieces(module_globals))
    return [*map(bare, next((piece.assignments[name] for piece in pieces if name in piece.assignments), []))]


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def _lambda_node(code: CodeType, candidates: list[ast.Lambda]) -> ast.Lambda | None:
    if len(candidates) <= 1 or sys.version_info < (3, 11):
        return candidates[0] if len(candidates) == 1 else None
    # Several on one line: the one whose body contains the columns of the instructions.
    spans = [span for span in code.co_positions() if None not in span and span[3] != 0]
    starts = {(span[0], span[2]) for span in spans}
    fitting = [
        node
        for node in candidates
        if starts
        and (node.body.lineno, node.body.col_offset) <= min(starts)
        and max(starts) < (node.body.end_lineno, node.body.end_col_offset)
    ]
    # If lambdas are nested, the innermost one, which starts last.
    return max(fitting, key=lambda node: (node.body.lineno, node.body.col_offset), default=None)


# Modules that have built something while they were imported.
builders: set[str] = set()

_current = threading.local()  # `names`: the modules that are being imported for their declarations
_is_worker = False


class _StoppedAtBuildError(BaseException):
    """Ends an import where the module begins to build; no handler of errors in that module should see it."""

    def __init__(self, modules: list[types.ModuleType]) -> None:
        super().__init__()
        self.modules = modules


def python_path() -> str:
    """This process's import path, for the environment of workers, so that they find what is found here."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def now_a_worker() -> None:
    """From now on this process builds only on request."""
    global _is_worker
    _is_worker = True


def about_to_build() -> None:
    """Called at the beginning of every build. Notes the modules that are being imported at that time.

    While `import_user_module` imports one, the import ends here. Raises `DeclarationError` in a worker.
    """
    modules = _being_imported()
    builders.update(module.__name__ for module in modules)
    if getattr(_current, "names", None):
        raise _StoppedAtBuildError(modules)
    if _is_worker:
        name = modules[-1].__name__ if modules else "a stage"
        raise DeclarationError(
            f"{name} builds a cache while a worker process imports or runs it, but workers must not start builds. "
            "Put what runs under `if __name__ == '__main__':`."
        )


def _being_imported() -> list[types.ModuleType]:
    """The modules whose top level is running, innermost first, without a program's `__main__`."""
    found = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            name = frame.f_globals.get("__name__")
            module = sys.modules.get(name) if isinstance(name, str) else None
            imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
            if module is not None and imported and vars(module) is frame.f_globals:
                found.append(module)
        frame = frame.f_back  # type: ignore[assignment]
    return found


def import_user_module(name: str, *, reference: str | None = None) -> types.ModuleType:
    """Imports a module by its absolute name. `reference`: what named it, for messages.

    Raises `DeclarationError` if there is no such module, or if its import fails; errors of ours,
    which a declaration raises when it is made, pass.
    """
    subject = repr(name) if reference is None else f"{name!r} of {reference!r}"
    if not name or name.startswith("."):
        raise DeclarationError(
            f"expected the absolute name of a module, such as package.module, got {subject}.", reference=reference
        )
    names = _current.__dict__.setdefault("names", [])
    names.append(name)
    try:
        return importlib.import_module(name)
    except _StoppedAtBuildError as stopped:
        return _as_far_as_its_build(name, subject, stopped.modules, reference)
    except BeamPipesError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise user_code_failed(f"{subject} fails on import", error, reference) from error
        raise DeclarationError(
            f"cannot import {subject}: there is no module {error.name!r} on the path "
            f"{[path or '.' for path in sys.path[:4]]}…. Run from the directory that holds it, or install it.",
            reference=reference,
        ) from error
    except SystemExit as error:
        raise DeclarationError(
            f"cannot import {subject}: expected a module that declares, {where_raised(error)} "
            f"called sys.exit({error}) instead. Put what runs under `if __name__ == '__main__':`.",
            reference=reference,
        ) from error
    except Exception as error:
        raise user_code_failed(f"{subject} fails on import", error, reference) from error
    finally:
        names.pop()


def _as_far_as_its_build(
    name: str, subject: str, modules: list[types.ModuleType], reference: str | None
) -> types.ModuleType:
    """The module as it is before its first build, with its declarations."""
    if not modules or modules[0].__name__ != name:
        inner = modules[0].__name__ if modules else "what it calls"
        raise DeclarationError(
            f"cannot import {subject}: {inner} builds a cache when it is imported. Put what runs there under "
            "`if __name__ == '__main__':`.",
            reference=reference,
        )
    sys.modules[name] = modules[0]  # the import removed it, and its classes must be found under its name
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, modules[0])
    return modules[0]


def user_code_failed(subject: str, error: Exception, reference: str | None) -> DeclarationError:
    """The error that says where a user's code failed; `subject` is what was being done with it."""
    where, message = where_raised(error), str(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        where, message = f"{error.filename}:{error.lineno}", error.msg
    return DeclarationError(
        f"{subject}: {where}: {type(error).__name__}: {message}. Fix it there, or install what it needs.",
        reference=reference,
    )


def where_raised(error: BaseException) -> str:
    """The file and the line of the innermost call: `/home/ada/m.py:3`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "somebody"
