"""What a piece of code says, as a text to digest, and what it refers to.

The text leaves out comments, blank lines, layout, positions, docstrings and other bare constants, annotations and
redundant `pass` statements; everything else counts, names of local variables too. It is the same on every Python
version. Python's own `symtable` says what a name in the code means.
"""

from __future__ import annotations

import ast
import symtable
import textwrap
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Node = FunctionNode | ast.ClassDef | ast.stmt
Tree = TypeVar("Tree", bound=ast.AST)

_SKIPPED_FIELDS = {"annotation", "type_comment", "ctx", "kind", "simple"}


class Reference(NamedTuple):
    """What code refers to outside of itself: a global `path` such as `("text", "clean")`, or, where `module` is not
    None, the same within a module that the code imports where it runs (`level` dots before its name).
    """

    path: tuple[str, ...]
    module: str | None = None
    level: int = 0


class CodeFacts(NamedTuple):
    """What an analysis of a piece of code finds."""

    references: tuple[Reference, ...]
    states: frozenset[str] = frozenset()  # names of its module that the code assigns to: `global model; model = …`
    filled: frozenset[str] = frozenset()  # names of its module whose containers it changes: `known[word] = …`
    attributes: frozenset[str] = frozenset()  # those it sets or changes, not `self.x = …`: `Tokenizer.calls += 1`


# Methods by which a dict, list, set, Counter or deque is filled and emptied.
_CHANGING = frozenset("add append appendleft clear discard extend insert pop popitem remove setdefault update".split())


def code_facts(node: Node) -> CodeFacts:
    """What a function, class or statement refers to, and what it changes outside of itself."""
    names = _global_names(node)
    states: set[str] = set()
    filled: set[str] = set()
    attributes: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, (ast.Subscript, ast.Attribute)):
            inner = _container(each)
            if isinstance(inner, ast.Name):
                filled.add(inner.id)
            elif isinstance(inner, ast.Attribute):
                attributes.add(inner.attr)
            if isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load):
                if not (isinstance(each.value, ast.Name) and each.value.id == "self"):
                    attributes.add(each.attr)
        elif isinstance(each, ast.Global):
            states.update(each.names)
    return CodeFacts(
        tuple(dict.fromkeys(_references(node, names))),
        frozenset(states),
        frozenset(filled & names),
        frozenset(attributes),
    )


def _global_names(node: Node) -> set[str]:
    """The names that code takes from outside of itself: those of its module, of Python, of an enclosing function."""
    enclosing = [name for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names]
    text = ast.unparse(node)
    if enclosing:  # what is bound in a function around this one
        text = f"def _({', '.join(dict.fromkeys(enclosing))}):\n{textwrap.indent(text, ' ')}"
    top = symtable.symtable(text, "<code>", "exec")
    found: set[str] = set()
    waiting = [top]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        for symbol in table.get_symbols():
            # The body of a class may read an outer name and then bind the same name in the class: `LIMIT = LIMIT`.
            if symbol.is_global() or symbol.is_referenced() and (table is top or table.get_type() == "class"):
                found.add(symbol.get_name())
    return found


def names_bound(statement: ast.stmt) -> list[str]:
    """The names that a statement makes where it stands: by assigning, importing or defining."""
    symbols = symtable.symtable(ast.unparse(statement), "<code>", "exec").get_symbols()
    return [symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()]


def _references(node: Node, names: set[str]) -> Iterator[Reference]:
    """The dotted names whose first part is in `names` or imported by the code itself, and its imports."""
    imports: dict[str, Reference] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            for alias in each.names:
                bound = alias.asname or alias.name.partition(".")[0]
                imports[bound] = Reference((), alias.name if alias.asname else bound)
        elif isinstance(each, ast.ImportFrom):
            for alias in each.names:
                imports[alias.asname or alias.name] = Reference((alias.name,), each.module or "", each.level)
    yield from imports.values()
    waiting: deque[ast.AST] = deque([node])
    while waiting:
        each = waiting.popleft()
        path: list[str] = []
        base: ast.AST = each
        while isinstance(base, ast.Attribute):
            path.insert(0, base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            waiting += ast.iter_child_nodes(each)
            continue
        if base.id in imports:
            yield imports[base.id]._replace(path=(*imports[base.id].path, *path))
        if base.id in names:
            yield Reference((base.id, *path))


def _container(node: ast.Subscript | ast.Attribute) -> ast.expr | None:
    """The container that `known[word] = …`, `del known[word]` or `known.add` changes; of nested ones, the outermost."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr in _CHANGING else None
    inner: ast.expr = node
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    return None if isinstance(node.ctx, ast.Load) else inner


def code_text(node: ast.AST) -> str:
    """The text of a function, class or statement of a `bare` tree."""
    return "".join(_written(node))


def _written(value: object) -> Iterator[str]:
    if isinstance(value, ast.AST):
        kind = "Assign" if isinstance(value, ast.AnnAssign) else type(value).__name__
        yield f"({kind}"
        for field in value._fields:
            each = getattr(value, field, None)
            if field in _SKIPPED_FIELDS or each is None and field != "value" or each == []:
                continue
            yield f" {'targets' if field == 'target' and kind == 'Assign' else field}="
            # A statement has one target with an annotation, and a list of them without.
            yield from _written([each] if field == "target" and kind == "Assign" else each)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for each in value:
            yield from _written(each)
            yield ","
        yield "]"
    else:
        yield f"{type(value).__name__}:{value!r}"


def bare(tree: Tree) -> Tree:
    """The same tree, changed in place: without docstrings and other statements without effect, and without types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if hasattr(node, "type_params"):
            node.type_params = []
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements:
                setattr(node, field, [each for each in statements if not _is_idle(each)] or [ast.Pass()])
    return tree


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement does nothing: `pass`, a docstring, `...`."""
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
