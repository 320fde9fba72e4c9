"""Source code without everything insignificant, so that its digest changes only if its meaning may change.

It drops comments, blank lines, layout, positions, docstrings and other bare constants, annotations, redundant `pass`
statements, and the names of local variables, which are numbered by first appearance. Parameters are renamed too,
except those that a visible call names as a keyword. The resulting text is the same on every Python version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Node = FunctionNode | ast.ClassDef | ast.stmt

_SKIPPED_FIELDS = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "simple"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
# Code that inspects its own variables by name keeps their names.
_INTROSPECTION = {"locals", "vars", "eval", "exec", "dir"}


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
    parameters: frozenset[str]
    keywords: frozenset[str]
    has_double_star: bool
    states: frozenset[str] = frozenset()  # names of its module that the code assigns to: `global model; model = …`
    filled: frozenset[str] = frozenset()  # names of its module whose containers it changes: `known[word] = …`
    attributes: frozenset[str] = frozenset()  # those it sets or changes, not `self.x = …`: `Tokenizer.calls += 1`


class NormalizedCode(NamedTuple):
    """`text` represents the meaning; `free_names` are the closed-over variables, in the order of first appearance."""

    text: str
    free_names: tuple[str, ...]


# Methods by which a dict, list, set, Counter or deque is filled and emptied.
_CHANGING = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "setdefault",
        "update",
    }
)


def code_facts(node: Node) -> CodeFacts:
    """References, parameters and keywords of a function, class or statement."""
    normalizer = _Normalizer(kept_parameters=None, free_names=())
    normalizer.emit(node)
    parameters: set[str] = set()
    keywords: set[str] = set()
    states: set[str] = set()
    changed: set[str] = set()
    attributes: set[str] = set()
    own: set[str] = set()
    double_star = False
    for each in ast.walk(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = each.args
            parameters.update(a.arg for a in [*arguments.args, *arguments.kwonlyargs])
            own.update(a.arg for a in [*arguments.posonlyargs, *filter(None, [arguments.vararg, arguments.kwarg])])
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            own.add(each.id)
        elif isinstance(each, (ast.Subscript, ast.Attribute)):
            inner = _container(each)
            if isinstance(inner, ast.Name):
                changed.add(inner.id)
            elif isinstance(inner, ast.Attribute):
                attributes.add(inner.attr)
            if isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load):
                if not (isinstance(each.value, ast.Name) and each.value.id == "self"):
                    attributes.add(each.attr)
        elif isinstance(each, ast.Global):
            states.update(each.names)
        elif isinstance(each, ast.keyword):
            if each.arg is None:
                double_star = True
            else:
                keywords.add(each.arg)
    references = tuple(normalizer.references)
    return CodeFacts(
        references,
        frozenset(parameters),
        frozenset(keywords),
        double_star,
        frozenset(states),
        frozenset(changed - own - parameters),
        frozenset(attributes),
    )


def _container(node: ast.Subscript | ast.Attribute) -> ast.expr | None:
    """What `known[word] = …`, `del known[word]` or `known.add` changes, of nested containers the outermost one."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr in _CHANGING else None
    inner: ast.expr = node
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    return None if isinstance(node.ctx, ast.Load) else inner


def normalize(node: Node, *, kept_parameters: frozenset[str] | None, free_names: Sequence[str] = ()) -> NormalizedCode:
    """The text of a function, class or statement. `kept_parameters` keep their names; None keeps all of them.

    `def f(items): return [i + 1 for i in items]` and `def f(xs): return [x + 1 for x in xs]` give the same text.
    """
    normalizer = _Normalizer(kept_parameters=kept_parameters, free_names=free_names)
    normalizer.emit(node)
    used = tuple(name for name in normalizer.free.numbers if name in normalizer.free.bound)
    return NormalizedCode("".join(normalizer.out), used)


class _Scope:
    """Names bound in one function, comprehension or class, and their replacements."""

    def __init__(self, kind: str, depth: int, bound: set[str], *, kept: frozenset[str] = frozenset()) -> None:
        self.kind = kind
        self.depth = depth
        self.bound = bound
        self.kept = kept
        self.keeps_all = False
        self.numbers: dict[str, str] = {}
        self.imports: dict[str, Reference] = {}

    def renamed(self, name: str) -> str:
        if self.kind == "class" or self.keeps_all or name in self.kept:
            return name
        return self.numbers.setdefault(name, f"%{self.depth}.{len(self.numbers)}")


class _Normalizer:
    def __init__(self, *, kept_parameters: frozenset[str] | None, free_names: Sequence[str]) -> None:
        self.out: list[str] = []
        self.references: dict[Reference, None] = {}
        self.free = _Scope("function", 0, set(free_names))
        self._kept_parameters = kept_parameters
        self._scopes = [self.free]

    def emit(self, node: ast.AST) -> None:
        special = getattr(self, f"_emit_{type(node).__name__}", None)
        if special is not None:
            special(node)
        elif isinstance(node, _COMPREHENSIONS):
            self._emit_comprehension(node)
        else:
            self._emit_fields(node)

    def _emit_fields(self, node: ast.AST) -> None:
        self.out.append(f"({type(node).__name__}")
        for field in node._fields:
            if field not in _SKIPPED_FIELDS:
                self._emit_field(field, getattr(node, field, None))
        self.out.append(")")

    def _emit_field(self, field: str, value: object) -> None:
        if value is None or value == []:
            return
        self.out.append(f" {field}=")
        if isinstance(value, ast.AST):
            self.emit(value)
        elif not isinstance(value, list):
            self.out.append(repr(value))
        elif field in ("body", "orelse", "finalbody") and isinstance(value[0], ast.stmt):
            self._emit_body(value)
        else:
            self._emit_list(value)

    def _emit_list(self, values: Iterable[object]) -> None:
        self.out.append("[")
        for value in values:
            if isinstance(value, ast.AST):
                self.emit(value)
            else:
                self.out.append(repr(value))
            self.out.append(",")
        self.out.append("]")

    def _emit_body(self, body: list[ast.stmt]) -> None:
        # Statements without effect: docstrings, `...`, `pass`, declarations of a local variable's type.
        kept = [
            statement
            for statement in body
            if not (
                isinstance(statement, ast.Pass)
                or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
                or (
                    isinstance(statement, ast.AnnAssign)
                    and statement.value is None
                    and self._scopes[-1].kind != "class"
                )
            )
        ]
        self._emit_list(kept)

    # Names.

    def _resolve(self, name: str) -> tuple[str, _Scope | None]:
        for scope in reversed(self._scopes):
            if scope.kind == "class" and scope is not self._scopes[-1]:
                continue
            if name in scope.bound:
                return scope.renamed(name), scope
        return name, None

    def _refer(self, path: tuple[str, ...]) -> str:
        """Notes what a dotted name refers to and returns how its first part is written."""
        written, scope = self._resolve(path[0])
        if scope is None:
            self.references.setdefault(Reference(path))
        elif path[0] in scope.imports:
            base = scope.imports[path[0]]
            self.references.setdefault(base._replace(path=base.path + path[1:]))
        return written

    def _emit_Name(self, node: ast.Name) -> None:
        self.out.append(f"<{self._refer((node.id,))}>")

    def _emit_Attribute(self, node: ast.Attribute) -> None:
        path: list[str] = []
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            path.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            self._emit_fields(node)
            return
        path.reverse()
        self.out.append(f"<{self._refer((base.id, *path))}>" + "".join(f".{attribute}" for attribute in path))

    def _emit_Constant(self, node: ast.Constant) -> None:
        self.out.append(f"{type(node.value).__name__}:{node.value!r}")

    def _emit_keyword(self, node: ast.keyword) -> None:
        self.out.append(f"({node.arg or '**'}=")
        self.emit(node.value)
        self.out.append(")")

    def _emit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._emit_named(node, "name")

    def _emit_MatchAs(self, node: ast.MatchAs) -> None:
        self._emit_named(node, "name")

    def _emit_MatchStar(self, node: ast.MatchStar) -> None:
        self._emit_named(node, "name")

    def _emit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._emit_named(node, "rest")

    def _emit_named(self, node: ast.AST, name_field: str) -> None:
        self.out.append(f"({type(node).__name__}")
        for field in node._fields:
            value = getattr(node, field, None)
            if field == name_field and isinstance(value, str):
                self.out.append(f" <{self._resolve(value)[0]}>")
            else:
                self._emit_field(field, value)
        self.out.append(")")

    def _emit_Global(self, node: ast.Global) -> None:
        self.out.append(f"(Global {sorted(node.names)})")

    def _emit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.out.append(f"(Nonlocal {sorted(self._resolve(name)[0] for name in node.names)})")

    def _emit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # In a class body the target alone declares a field; its annotation does not count.
        self.out.append("(Assign")
        self._emit_field("targets", [node.target])
        self._emit_field("value", node.value)
        self.out.append(")")

    def _emit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            module = alias.name if alias.asname else bound
            self._emit_import(bound, Reference((), module), f"(import {alias.name} as ")

    def _emit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            reference = Reference((alias.name,), module, node.level)
            written = f"(from {'.' * node.level}{module} import {alias.name} as "
            self._emit_import(alias.asname or alias.name, reference, written)

    def _emit_import(self, bound: str, reference: Reference, written: str) -> None:
        name, scope = self._resolve(bound)
        if scope is not None:
            scope.imports[bound] = reference
        self.references.setdefault(reference)
        self.out.append(f"{written}<{name}>)")

    # Scopes.

    def _emit_comprehension(self, node: ast.AST) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        self.out.append(f"({type(node).__name__} in ")
        self.emit(generators[0].iter)  # runs outside of the comprehension's own scope
        bound = {name for each in generators for name in _stored(each.target)}
        self._scopes.append(_Scope("function", len(self._scopes), bound))
        for index, each in enumerate(generators):
            self.out.append(" async for " if each.is_async else " for ")
            self.emit(each.target)
            if index:
                self.out.append(" in ")
                self.emit(each.iter)
            self._emit_list(each.ifs)
        for field in ("key", "elt", "value"):
            if hasattr(node, field):
                self._emit_field(field, getattr(node, field))
        self._scopes.pop()
        self.out.append(")")

    def _emit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.out.append(f"({type(node).__name__} <{self._resolve(node.name)[0]}>")
        self._emit_field("decorators", node.decorator_list)
        self._emit_function(node.args, node.body, node)

    _emit_AsyncFunctionDef = _emit_FunctionDef

    def _emit_Lambda(self, node: ast.Lambda) -> None:
        self.out.append("(Lambda")
        self._emit_function(node.args, [node.body], node)

    def _emit_function(self, arguments: ast.arguments, body: Sequence[ast.AST], node: ast.AST) -> None:
        self._emit_field("defaults", arguments.defaults)
        for default in arguments.kw_defaults:
            self._emit_field("kw", default)
        callable_by_keyword = {a.arg for a in [*arguments.args, *arguments.kwonlyargs]}
        if not isinstance(node, ast.Lambda) and arguments.args and self._scopes[-1].kind == "class":
            callable_by_keyword.discard(arguments.args[0].arg)  # self
        positional = [*arguments.posonlyargs, *arguments.args]
        every = [*positional, *arguments.kwonlyargs]
        every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        names = {a.arg for a in every}
        declared = _declared_elsewhere(body)
        bound = names | (set(_bound(body)) - declared)
        kept = self._kept_parameters
        scope = _Scope(
            "function",
            len(self._scopes),
            bound,
            kept=frozenset(callable_by_keyword if kept is None else callable_by_keyword & kept),
        )
        scope.keeps_all = any(isinstance(n, ast.Name) and n.id in _INTROSPECTION for n in ast.walk(node))
        self._scopes.append(scope)
        shape = (len(arguments.posonlyargs), len(arguments.args), len(arguments.kwonlyargs))
        self.out.append(f" {shape}{arguments.vararg is not None:d}{arguments.kwarg is not None:d} args=")
        self.out.append(",".join(scope.renamed(a.arg) for a in every))
        if isinstance(node, ast.Lambda):
            self.emit(body[0])
        else:
            self.out.append(" body=")
            self._emit_body([statement for statement in body if isinstance(statement, ast.stmt)])
        self._scopes.pop()
        self.out.append(")")

    def _emit_ClassDef(self, node: ast.ClassDef) -> None:
        self.out.append(f"(ClassDef <{self._resolve(node.name)[0]}>")
        self._emit_field("decorators", node.decorator_list)
        self._emit_field("bases", node.bases)
        self._emit_field("keywords", node.keywords)
        self._scopes.append(_Scope("class", len(self._scopes), set(_bound(node.body))))
        self.out.append(" body=")
        self._emit_body(node.body)
        self._scopes.pop()
        self.out.append(")")


def _stored(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _declared_elsewhere(body: Iterable[ast.AST]) -> set[str]:
    return {name for node in _own_nodes(body) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    """Names that the statements of one scope bind."""
    for node in _own_nodes(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a scope: not the bodies of functions and classes in it, of comprehensions only what `:=` binds."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting.extend(node.decorator_list)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, _COMPREHENSIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    waiting.append(inner.target)
            continue
        waiting.extend(ast.iter_child_nodes(node))
