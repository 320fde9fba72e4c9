"""The code that a stage's code depends on: a walk over what functions and classes refer to.

Only a user's own code is walked: the same top-level package, and modules that are not installed. The standard library,
installed packages and the framework count by name. For a stage of the framework itself, only its own module is walked.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import linecache
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from beam_pipes.errors import DeclarationError
from beam_pipes.identity.canonical import Asset, Canonicalizer, K, function_behind, qualified_name
from beam_pipes.identity.normalized_code import CodeFacts, Node, Reference, code_facts, code_text, names_bound
from beam_pipes.identity.source_code import (
    assignments,
    class_node,
    function_node,
    functions_of,
    is_defined_plainly,
)

FRAMEWORK = frozenset({"beam_pipes"})
_MISSING = object()


class _Code(NamedTuple):
    """A function's code object, a class or the statements that make a constant: parsed once."""

    node: Node | None  # None where there is no source
    facts: CodeFacts
    text: str


@dataclass
class Entity:
    """One function or class on the walk. `key` names it in a fingerprint's parts, `stable` within the digest."""

    thing: types.FunctionType | type
    code: _Code
    key: str
    stable: str
    notes: dict[str, str] = field(default_factory=dict)  # what the names in the code refer to
    cells: dict[str, object] = field(default_factory=dict)  # closed-over values and defaults, canonical


class CodeClosure:
    """Collects functions, classes and everything they refer to; `finish` gives the parts of a fingerprint.

    A part is name → (name within the digest, value), the value a digest of code or a constant.
    """

    def __init__(self, on_asset: Callable[[Asset], object]) -> None:
        self._entities: dict[object, Entity] = {}
        self._constants: dict[tuple[str, str], tuple[str, str, object]] = {}
        self._waiting: list[Entity] = []
        self._taken: set[str] = set()
        self._home = ""
        #: Module and name (`Config.size` of a class) → value: plain data that code refers to and a program may set.
        self.values: dict[tuple[str, str], object] = {}
        self._values = Canonicalizer(
            on_function=self.add_function, on_class=self.add_class, on_asset=on_asset, label=label
        )
        self._strict_values = _OwnObjects(
            on_function=self.add_function, on_class=self.add_class, on_asset=on_asset, label=label
        )

    def canonical(self, value: object, path: str, *, home: str) -> object:
        """`canonical(value)`, also adding the code that it holds. `home`: module of the stage that it configures."""
        self._home = home
        return self._values.convert(value, path)

    def add_function(self, function: types.FunctionType, *, key: str | None = None) -> object:
        """Adds a function unless it is installed code; returns its form within a value."""
        function = inspect.unwrap(function)
        if key is None and not _is_own(_module_of(function), self._home):
            return {"$builtin": qualified_name(function)}
        # By identity: code objects of different modules are equal if they read the same.
        identity: object = id(function.__code__)
        if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
            identity = id(function)
        return {"$code": self._add(identity, function, lambda: _code_of_function(function), key).stable}

    def add_class(self, cls: type, *, key: str | None = None) -> None:
        """Adds a class unless it is installed code."""
        if key is not None or _is_own(_module_of(cls), self._home):
            self._add(cls, cls, lambda: _code_of_class(cls), key)

    def finish(self) -> dict[str, tuple[str, str]]:
        """Walks until nothing new is found."""
        while self._waiting:
            self._explore(self._waiting.pop(0))
        every = list(self._entities.values())
        self._forget_states(every)
        parts: dict[str, tuple[str, str]] = {}
        for entity in every:
            content = json.dumps([entity.code.text, sorted(entity.notes.items()), sorted(entity.cells.items())])
            parts[entity.key] = entity.stable, hashlib.sha256(content.encode()).hexdigest()[:32]
        for key, stable, value in self._constants.values():
            parts[key] = stable, show(value)
        return parts

    def _forget_states(self, every: list[Entity]) -> None:
        """The value of a name that the code itself assigns to, such as a model loaded on first use, or of a dict that
        it fills as it goes, depends on what ran before: the statement that makes it counts instead. The same holds for
        attributes of classes, whose statements count in any case."""
        changed = frozenset[str]().union(*(entity.code.facts.attributes for entity in every))
        for of, place in [*self._constants]:
            if "." in place and place.rpartition(".")[2] in changed:
                del self._constants[of, place]
                self.values.pop((of, place), None)
        for entity in every:
            module, facts = _module_of(entity.thing), entity.code.facts
            for name in [*facts.states, *(name for name in facts.filled if _begins_empty(module, name))]:
                if (module, name) in self._constants:
                    key, stable, _ = self._constants[module, name]
                    self._constants[module, name] = key, stable, _made_by(module, name)
                    for of, place in [*self.values]:
                        if of == module and place.partition(".")[0] == name:
                            del self.values[of, place]

    def _add(
        self, identity: object, thing: types.FunctionType | type, code: Callable[[], _Code], key: str | None
    ) -> Entity:
        if identity not in self._entities:
            stable = self._unique(f"code:{thing.__qualname__}")
            name = key or self._unique(f"code:{qualified_name(thing)}")
            entity = self._entities[identity] = Entity(thing, code(), name, key or stable)
            self._waiting.append(entity)
        return self._entities[identity]

    def _unique(self, name: str) -> str:
        count, unique = 1, name
        while unique in self._taken:
            count += 1
            unique = f"{name}#{count}"
        self._taken.add(unique)
        return unique

    def _explore(self, entity: Entity) -> None:
        thing = entity.thing
        module = _module_of(thing)
        self._home = module
        if isinstance(thing, type):
            env = {name: cell for f in functions_of(thing) for name, cell in _cells(f).items()}
            scope = getattr(sys.modules.get(module), "__dict__", {})
            for base in thing.__mro__[1:]:
                if in_scope(_module_of(base), module):
                    self.add_class(base)
            for name, value in set_attributes(thing, entity.code.node).items():
                where = module, f"{thing.__qualname__}.{name}"
                stable = self._unique(f"const:{where[1]}")
                self._constants[where] = f"const:{module}.{where[1]}", stable, self._values.convert(value, where[1])
                self.values[where] = value
        else:
            env, scope = _cells(thing), thing.__globals__
            for name, value in env.items():
                if value is not thing:
                    entity.cells[name] = self._value_or_name(value, f"{entity.key}, variable {name}")
            for name in ("__defaults__", "__kwdefaults__"):
                entity.cells[name] = self._value_or_name(getattr(thing, name), f"{entity.key}, {name}")
        for reference in entity.code.facts.references:
            self._follow(entity, reference, module, env, scope)

    def _value_or_name(self, value: object, path: str) -> object:
        try:
            return self._strict_values.convert(value, path)
        except DeclarationError:
            return {"$instance": label(type(value))}

    def _follow(
        self, entity: Entity, reference: Reference, referrer: str, env: dict[str, object], scope: dict[str, object]
    ) -> None:
        written = ".".join([*([reference.module] if reference.module else []), *reference.path])
        if reference.module is not None:
            module = _absolute(reference, referrer, scope)
            if not in_scope(module, referrer):  # even if it is loaded already: earlier imports must not matter
                entity.notes[written] = f"module {module}"
                return
            found = _imported(module, reference.path)
            names: tuple[str, ...] = reference.path
        else:
            written, names = reference.path[0], reference.path[1:]
            if written in env and not isinstance(entity.thing, type):
                return  # among the entity's cells already
            found = env.get(written, scope.get(written, _MISSING))
            if getattr(found, "__wrapped__", _MISSING) is vars(builtins).get(written):
                return  # a notebook has its own `open`, which does what Python's does
        constant = (referrer, f"{entity.stable}.{written}" if written in env else written)
        while isinstance(found, types.ModuleType):
            if not names or not in_scope(found.__name__, referrer):
                entity.notes[written] = f"module {found.__name__.rpartition('.')[2]}"
                if not in_scope(found.__name__, referrer):
                    entity.notes[written] = f"module {found.__name__}"
                return
            constant = (found.__name__, names[0])
            written = f"{written}.{names[0]}"
            found, names = getattr(found, names[0], _MISSING), names[1:]
        if found is _MISSING:
            return
        self._note(entity, written, found, constant)

    def _note(self, entity: Entity, written: str, found: object, constant: tuple[str, str]) -> None:
        if _is_replaced(*constant, found):
            self.values[constant] = found
        if (behind := function_behind(found)) is not None:
            found = behind
        if callable(found) and hasattr(found, "__wrapped__"):
            found = inspect.unwrap(found)
        if isinstance(found, (type, types.FunctionType)):
            if in_scope(_module_of(found), _module_of(entity.thing)):
                if isinstance(found, type):
                    self.add_class(found)
                else:
                    entity.notes[written] = str(self.add_function(found))
                    return
            entity.notes[written] = label(found)
        elif isinstance(found, types.BuiltinFunctionType):
            entity.notes[written] = qualified_name(found)
        else:
            entity.notes[written] = "constant"
            if constant not in self._constants:
                module, name = constant
                stable = self._unique(f"const:{name}")
                self._constants[constant] = f"const:{module}.{name}", stable, None  # ends recursion
                self._constants[constant] = f"const:{module}.{name}", stable, self._constant(found, constant)

    def _constant(self, value: object, constant: tuple[str, str]) -> object:
        module, name = constant
        home, self._home = self._home, module
        try:
            converted = self._strict_values.convert(value, f"{module}.{name}")
            if is_plain(value):
                self.values[constant] = value
            else:
                fields = _settings(value, name) or {}
                self.values.update({(module, field): each for field, each in fields.items()})
            return converted
        except DeclarationError:
            # A lock, a logger, a client: the statement that makes it counts.
            return [label(type(value)), _made_by(module, name)]
        finally:
            self._home = home


_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def is_plain(value: object, *, depth: int = 8) -> bool:
    """Whether a value is data without an identity: numbers, text, and lists, tuples, sets and dicts of these."""
    if type(value) in _PLAIN:
        return True
    if depth and type(value) in (list, tuple, set, frozenset):
        return all(is_plain(each, depth=depth - 1) for each in cast("Iterable[object]", value))
    if depth and type(value) is dict:
        return all(is_plain(each, depth=depth - 1) for pair in value.items() for each in pair)
    return False


# Installed classes whose objects hold nothing but what a program has put there.
_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace")


def _settings(value: object, name: str, *, depth: int = 4) -> dict[str, object] | None:
    """The fields of an object that holds plain data only, and objects like it: `{"options.inner.size": 2}`.

    None for any other object: one that holds more may hold things that belong together, such as a flag and a model.
    """
    cls = type(value)
    fields = getattr(value, "__dict__", None)
    if not isinstance(fields, dict) or not (is_users(cls.__module__) or qualified_name(cls) in _NAMESPACES):
        return None
    found: dict[str, object] = {}
    for key, each in fields.items():
        if is_plain(each):
            found[f"{name}.{key}"] = each
        elif (inner := _settings(each, f"{name}.{key}", depth=depth - 1) if depth else None) is not None:
            found |= inner
        else:
            return None
    return found


def _is_replaced(module: str, name: str, found: object) -> bool:
    """Whether a program has replaced a module's function or class: `helpers.clean = mine`."""
    own = (getattr(found, "__module__", None), getattr(found, "__qualname__", None)) == (module, name)
    scope = getattr(sys.modules.get(module), "__dict__", {})
    return not own and is_users(module) and scope.get(name) is found and is_defined_plainly(scope, name)


def set_attributes(cls: type, node: Node | None) -> dict[str, object]:
    """Plain attributes of a user's class that differ from its body, because a program has set them since.

    `class Config: size = 1`, then `Config.size = 2` → `{"size": 2}`; empty for a class whose source is not known.
    """
    if not isinstance(node, ast.ClassDef) or not is_users(_module_of(cls)):
        return {}
    made: dict[str, list[object]] = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and statement.value is None:
            continue  # `size: int` sets nothing
        for name in names_bound(statement):
            made.setdefault(name, []).append(_literal(statement, name))
    found = {}
    for name, value in sorted(vars(cls).items()):
        written = made.get(name, ())
        is_other = len(written) == 1 and written[0] is not _MISSING and repr(value) != repr(written[0])
        if is_plain(value) and (is_other if written else not name.startswith("_")):
            found[name] = value
    return found


def _literal(statement: ast.stmt, name: str) -> object:
    """The plain value that a statement gives to a name; `_MISSING` if it is computed."""
    value = _value_of(statement, name)
    try:
        return _MISSING if value is None else ast.literal_eval(value)
    except (ValueError, TypeError):
        return _MISSING


def _begins_empty(module: str, name: str) -> bool:
    """Whether a module makes a name once, as an empty container: `known = {}`, `seen = set()`, `counts = Counter()`."""
    made = assignments(getattr(sys.modules.get(module), "__dict__", {}), name)
    value = _value_of(made[0], name) if len(made) == 1 else None
    if isinstance(value, ast.Call):
        kind = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return kind == "defaultdict" or (kind in _CONTAINERS and not value.args and not value.keywords)
    return isinstance(value, ast.Dict) and not value.keys or isinstance(value, ast.List) and not value.elts


def _value_of(statement: ast.stmt, name: str) -> ast.expr | None:
    """What a statement assigns to one of its names: `known, seen = {}, set()` gives `seen` the expression `set()`."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return None
    value = statement.value
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            named = [one.id if isinstance(one, ast.Name) else "" for one in target.elts]
            return value.elts[named.index(name)] if name in named else value
    return value


_CONTAINERS = ("Counter", "OrderedDict", "deque", "dict", "list", "set")


def _made_by(module: str, name: str) -> list[str]:
    """The statements of a module that make a name."""
    return [code_text(node) for node in assignments(getattr(sys.modules.get(module), "__dict__", {}), name)]


class _OwnObjects(Canonicalizer):
    """Values that code refers to, including the order of a dict. Refuses objects of installed classes, whose fields may
    be anything: locks, caches, connections."""

    def _items(self, mapping: Mapping[K, object], path: str) -> list[list[object]]:
        return self._in_order(mapping, path)

    def _object(self, value: object, path: str) -> object:
        if _is_installed(type(value).__module__) and qualified_name(type(value)) not in _NAMESPACES:
            raise DeclarationError(f"{path} is a {qualified_name(type(value))}", path=path)
        return super()._object(value, path)


def label(thing: object) -> str:
    """The name of a class or function in a digest: without its module if that belongs to the user or to the framework,
    so that code may be moved."""
    module = _module_of(thing)
    if _is_installed(module) and module.partition(".")[0] not in FRAMEWORK:
        return qualified_name(thing)
    return str(getattr(thing, "__qualname__", repr(thing)))


def _module_of(thing: object) -> str:
    return str(getattr(thing, "__module__", None) or "builtins")


def in_scope(module: str, referrer: str) -> bool:
    """Whether code in `referrer` that refers to code in `module` depends on its text, not only on its name."""
    top, home = module.partition(".")[0], referrer.partition(".")[0]
    if home == "beam_pipes":
        return module == referrer
    if top == home:
        return True
    return top not in FRAMEWORK and not _is_installed(module)


def _is_own(module: str, home: str) -> bool:
    top = module.partition(".")[0]
    return top == home.partition(".")[0] or top in FRAMEWORK or not _is_installed(module)


def is_users(module: str) -> bool:
    """Whether a module is a user's own, and not Python's, the framework's or an installed distribution's."""
    return module.partition(".")[0] not in FRAMEWORK and not _is_installed(module)


_installed: dict[str, bool] = {}


def _is_installed(module: str) -> bool:
    """Whether a module, imported or not, belongs to Python or to an installed distribution."""
    if module not in _installed:
        top = module.partition(".")[0]
        places = _places(module) or _places(top)
        _installed[module] = top != "__main__" and (
            top in sys.stdlib_module_names
            or any({"site-packages", "dist-packages"}.intersection(place.split("/")) for place in places)
        )
    return _installed[module]


def _places(module: str) -> list[str]:
    """The path of an imported module, or of a top-level one that can be imported; empty if unknown."""
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if found is None and "." not in module:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(module)
            file = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
    return [file.replace("\\", "/")] if file else []


def show(value: object) -> str:
    """A canonical value as one line; a digest where that would be long."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= 120:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _absolute(reference: Reference, referrer: str, scope: dict[str, object]) -> str:
    """The module named by an import inside a function."""
    module = reference.module or ""
    if reference.level:
        package = str(scope.get("__package__") or referrer.rpartition(".")[0])
        base = package.rsplit(".", reference.level - 1)[0] if reference.level > 1 else package
        module = f"{base}.{module}" if module else base
    return module


def _imported(module: str, path: tuple[str, ...]) -> object:
    """A module in scope, imported if necessary: earlier imports must not matter."""
    try:
        found = sys.modules.get(module) or importlib.import_module(module)
        if path and not hasattr(found, path[0]):
            importlib.import_module(f"{module}.{path[0]}")
    except ImportError:
        return _MISSING
    return found


# Code.

# By the identity of a code object or class, and only while it lives: code objects compare by value.
_codes: dict[int, tuple[weakref.ref[object], _Code]] = {}


def _once(thing: object, parse: Callable[[], _Code]) -> _Code:
    known = _codes.get(id(thing))
    if known is not None and known[0]() is thing:
        return known[1]
    key, code = id(thing), parse()

    def forget(_: weakref.ref[object]) -> None:
        _codes.pop(key, None)

    _codes[key] = weakref.ref(thing, forget), code
    return code


def _code_of_function(function: types.FunctionType) -> _Code:
    def parse() -> _Code:
        code = function.__code__
        linecache.checkcache(code.co_filename)
        node = function_node(function)
        if node is not None:
            return _Code(node, code_facts(node), code_text(node))
        return _from_bytecode([code], json.dumps(_bytecode(code, function.__doc__)))

    return _once(function.__code__, parse)


def _code_of_class(cls: type) -> _Code:
    def parse() -> _Code:
        if hasattr(cls, "DESCRIPTOR") and hasattr(cls, "SerializeToString"):
            from google.protobuf import descriptor_pb2

            # A proto message is identified by its descriptor; the class differs between versions of the runtime.
            descriptor = descriptor_pb2.DescriptorProto()
            cls.DESCRIPTOR.CopyToProto(descriptor)
            return _from_bytecode([], descriptor.SerializeToString(deterministic=True).hex())
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file:
            linecache.checkcache(file)
        node = class_node(cls)
        if node is not None:
            return _Code(node, code_facts(node), code_text(node))
        methods = sorted(functions_of(cls), key=lambda f: f.__qualname__)
        values = [
            [name, repr(value)]
            for name, value in sorted(vars(cls).items())
            if isinstance(value, (int, float, str, bytes, tuple, frozenset, type(None)))
            and name not in ("__module__", "__doc__", "__qualname__", "__firstlineno__", "__orig_bases__")
        ]
        text = json.dumps([[f.__qualname__, _bytecode(f.__code__, f.__doc__)] for f in methods] + values)
        return _from_bytecode([f.__code__ for f in methods], text)

    return _once(cls, parse)


def _from_bytecode(codes: list[types.CodeType], text: str) -> _Code:
    names = dict.fromkeys(name for code in codes for each in _nested(code) for name in each.co_names)
    return _Code(None, CodeFacts(tuple(Reference((name,)) for name in names)), text)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _bytecode(code: types.CodeType, doc: str | None) -> list[object]:
    """Instructions, constants and names, without positions, file names and the names of local variables."""
    constants = [
        _bytecode(constant, None) if isinstance(constant, types.CodeType) else repr(constant)
        for constant in [None if doc is not None and each == doc else each for each in code.co_consts]
    ]
    shape = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x2FF]
    return [shape, code.co_code.hex(), constants, list(code.co_names), len(code.co_freevars)]


def _cells(function: types.FunctionType) -> dict[str, object]:
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            if name != "__class__":
                cells[name] = cell.cell_contents
        except ValueError:
            continue  # not yet assigned: the function was fingerprinted while its enclosing one runs
    return cells
