"""Fingerprints of stages: unchanged, in every process and place, until something that affects results changes.

A fingerprint consists of named *parts*: the stage's class, version and configuration, its code and all the code it
refers to (see `code_closure` for how far, and `normalized_code` for what does not count), the constants that code
reads, and the content of assets. It does not depend on paths, times, line numbers, hash seeds or module names.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from beam_pipes.engine.graph import Graph
from beam_pipes.errors import DeclarationError
from beam_pipes.identity.canonical import Asset as Asset
from beam_pipes.identity.canonical import Canonicalizer, config_of, function_behind, qualified_name
from beam_pipes.identity.code_closure import CodeClosure, label, show


@dataclass(frozen=True)
class Fingerprint:
    """`digest` (sha256, hex) is equal iff nothing relevant changed; `parts` lists its components by name."""

    digest: str
    parts: Mapping[str, str]


def fingerprint(stage: object) -> Fingerprint:
    """The fingerprint of a stage: an object, a class, a function, a `functools.partial`, or a whole DAG of stages.

        fingerprint(Tokenize(min_length=2)).parts  →
            {"Tokenize.class": "Tokenize", "Tokenize.version": "1", "Tokenize.config.min_length": "2",
             "Tokenize.code": "9f86d0…", "code:examples.text.clean": "2c2624…", "const:examples.text.LIMIT": "80"}

    Raises `DeclarationError`, naming the field, for configuration that has no canonical form (see `canonical`).
    """
    collector = _Collector()
    collector.add(stage, _name_of(stage))
    return collector.result()


def set_values(stages: Iterable[object]) -> dict[tuple[str, str], object]:
    """(module, name) → value: the plain data that the code of stages refers to, as a program has set it.

        helpers.LIMIT = 5; set_values([tokenize])  →  {("helpers", "LIMIT"): 5, ("helpers", "Config.size"): 2}

    Constants of modules, attributes of classes that differ from the class's body, and whatever has replaced a module's
    function or class, which need not be plain data. A process that imports `helpers`
    itself has the values that the module was written with. Raises `DeclarationError` as `fingerprint` does.
    """
    collector = _ValuesCollector()
    for stage in stages:
        collector.add(stage, _name_of(stage))
    return collector.values()


def canonical(value: object, *, path: str = "value") -> object:
    """`value` as lists, strings, numbers, booleans and None, the same in every process and for equal values.

        canonical({"b": (1, 2), "a": {3, 1}})  →  {"$dict": [["a", {"$set": [1, 3]}], ["b", {"$tuple": [1, 2]}]]}

    Known are None, numbers, str, bytes, lists, tuples, mappings, sets, ranges, slices, NumPy arrays, scalars, dtypes
    and generators, enums, patterns, dates, UUIDs, proto messages, classes and modules (by name), functions, lambdas,
    partials and methods (by their code and what it refers to), `Asset` (by content), and any object by its class and
    its fields: those of a dataclass, or `vars(value)`. An object can decide itself, by a method
    `fingerprint_config()`, which returns what identifies it, `fingerprint()`, which returns a digest, or by an
    attribute `fingerprint_asset`, the `Asset` whose content represents it.

    Raises `DeclarationError`, naming the path within `value`, for anything else, for paths that are not wrapped as
    `Asset`, and for values that contain themselves.
    """
    return Canonicalizer(
        on_function=lambda function: {"$code": fingerprint(function).digest},
        on_class=lambda cls: None,
        on_asset=lambda asset: {"$asset": asset.digest()},
        label=qualified_name,
    ).convert(value, path)


def explain(old_parts: Mapping[str, str], new_parts: Mapping[str, str]) -> list[str]:
    """What changed between two fingerprints, a line for each part: `Tokenize.config.min_length: 1 → 2`.

    Code that only moved to another module is left out. Empty if nothing changed.
    """
    removed = [key for key in old_parts if key not in new_parts]
    lines = []
    for key, new in new_parts.items():
        if key not in old_parts:
            moved = next((old for old in removed if _is_same(old, old_parts[old], key, new)), None)
            if moved is not None:
                removed.remove(moved)
            else:
                lines.append(f"{key}: added ({_short(new)})")
        elif old_parts[key] != new:
            lines.append(f"{key}: {_short(old_parts[key])} → {_short(new)}")
    lines += [f"{key}: removed (was {_short(old_parts[key])})" for key in removed]
    return sorted(lines)


def content_changes(old_parts: Mapping[str, str], new_parts: Mapping[str, str]) -> list[str]:
    """The lines of `explain` about content that a fingerprint knows only by digest, so that it cannot be judged.

    That is the content of assets (files, results of analyzers), of vocabularies and of long configuration values:

        content_changes({"asset:words": "3f9a…", "Ids.code": "106b…"}, {"asset:words": "81c2…", "Ids.code": "77aa…"})
            → ["asset:words: 3f9a… → 81c2…"]

    Content that only moved to another name or field has not changed.
    """
    lines = explain(old_parts, new_parts)
    if _contents(old_parts) == _contents(new_parts):
        return []
    return [line for line in lines if _CONTENT.search(line)]


# How content appears in a line of `explain`. Long constants of a module are part of its code, long options are not.
_CONTENT = re.compile(r'^asset:|\{"\$(?:asset|fingerprint)":|^[^:]*\.config\b.*\bsha256:')


def _contents(parts: Mapping[str, str]) -> list[str]:
    """The digests of all content in the parts, sorted."""
    found = [value for key, value in parts.items() if key.startswith("asset:")]
    for key, value in parts.items():
        found += re.findall(r'\{"\$(?:asset|fingerprint)":[^}]*\}', value)
        if ".config" in key and value.startswith("sha256:"):
            found.append(value)
    return sorted(found)


def _is_same(old_key: str, old: str, new_key: str, new: str) -> bool:
    kind, _, name = old_key.rpartition(":")
    new_kind, _, new_name = new_key.rpartition(":")
    return bool(kind) and kind == new_kind and old == new and name.split(".")[-1] == new_name.split(".")[-1]


def _short(value: str) -> str:
    return re.sub(r"\b[0-9a-f]{32,64}\b", lambda found: found[0][:8], value)


class _Collector:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, str]] = {}  # key → (name within the digest, value)
        self._assets: dict[str, str] = {}
        self._closure = CodeClosure(self._on_asset)

    def add(self, stage: object, name: str) -> None:
        if isinstance(graph := getattr(stage, "graph", None), Graph):
            self._add_graph(graph, name)
        elif isinstance(stage, types.FunctionType):
            self._closure.add_function(stage, key=f"{name}.code")
        elif isinstance(stage, type):
            self._closure.add_class(stage, key=f"{name}.code")
        elif isinstance(stage, (functools.partial, types.MethodType, types.BuiltinFunctionType)):
            self._put(f"{name}.config", self._closure.canonical(stage, name, home=_module_of(stage)))
        elif (function := function_behind(stage)) is not None:
            self._add_decorated(stage, function, name)
        else:
            self._add_object(stage, name)

    def values(self) -> dict[tuple[str, str], object]:
        self._closure.finish()
        return self._closure.values

    def result(self) -> Fingerprint:
        parts = self._parts
        # The code last: values of constants may bring in further code and assets.
        code = self._closure.finish()
        for asset, digest in self._assets.items():
            parts[f"asset:{asset}"] = f"asset:{asset}", digest
        parts = {**parts, **dict(sorted(code.items()))}
        rows = sorted(parts.values())
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        return Fingerprint(digest, {key: value for key, (_, value) in parts.items()})

    def _add_object(self, stage: object, name: str) -> None:
        cls = type(stage)
        config = config_of(stage)
        if config is None:
            raise DeclarationError(
                f"{name} should be a stage (an object with fields, a class or a function), got {stage!r:.80} of type "
                f"{cls.__qualname__}",
                stage=name,
            )
        self._parts[f"{name}.class"] = f"{name}.class", label(cls)
        if (version := config.pop("version", getattr(stage, "version", None))) is not None:
            self._put(f"{name}.version", self._closure.canonical(version, f"{name}.version", home=cls.__module__))
        for field, value in config.items():
            path = f"{name}.{field}"
            self._put(f"{name}.config.{field}", self._closure.canonical(value, path, home=cls.__module__))
        self._closure.add_class(cls, key=f"{name}.code")

    def _add_decorated(self, stage: Any, function: object, name: str) -> None:
        """A function that was made a stage: its code, its options and the way it is called count."""
        config = stage.fingerprint_config()
        if (version := config.pop("version", None)) is not None:
            self._put(f"{name}.version", self._closure.canonical(version, f"{name}.version", home=stage.__module__))
        self._parts[f"{name}.form"] = f"{name}.form", config.pop("form")
        for option, value in config.items():
            path = f"{name}.{option}"
            self._put(f"{name}.config.{option}", self._closure.canonical(value, path, home=stage.__module__))
        while isinstance(function, functools.partial):
            function = function.func
        if isinstance(function, types.FunctionType):
            self._closure.add_function(function, key=f"{name}.code")
        else:
            self._put(f"{name}.function", self._closure.canonical(function, name, home=stage.__module__))

    def _add_graph(self, graph: Graph, name: str) -> None:
        edges = [
            [
                unit.name,
                str(unit.inputs) if not isinstance(unit.inputs, Mapping) else _sorted_refs(unit.inputs),
                unit.join,
            ]
            for unit in graph.units
        ]
        self._put(f"{name}.edges", sorted(edges, key=repr))
        self._put(f"{name}.outputs", _sorted_refs(graph.outputs))
        for unit in graph.units:
            self.add(unit.stage, f"{name}.{unit.name}")

    def _put(self, key: str, value: object) -> None:
        """Fields of objects and items of dicts become separate parts, so that a difference says which one changed."""
        if isinstance(value, dict) and len(value) == 1:
            if "$object" in value:
                name, fields = value["$object"]
                if isinstance(fields, list):
                    self._parts[f"{key}.class"] = f"{key}.class", name
                    for field, item in fields:
                        self._put(f"{key}.{field}", item)
                    return
            pairs = value.get("$dict")
            if pairs and all(isinstance(each, str) and each for each, _ in pairs):
                self._parts[key] = key, "dict"
                for each, item in pairs:
                    self._put(f"{key}.{each}", item)
                return
        self._parts[key] = key, show(value)

    def _on_asset(self, asset: Asset) -> object:
        digest = asset.digest()
        name, count = asset.name, 1
        while self._assets.setdefault(name, digest) != digest:
            count += 1
            name = f"{asset.name}#{count}"
        return {"$asset": digest[:32]}


class _ValuesCollector(_Collector):
    """Reads no assets: before its analysis, the result of an analyzer has no content."""

    def _on_asset(self, asset: Asset) -> object:
        return {"$asset": asset.name}


def _sorted_refs(refs: Mapping[str, object]) -> list[list[str]]:
    return sorted([name, str(ref)] for name, ref in refs.items())


def _name_of(stage: object) -> str:
    name = getattr(stage, "name", None)
    if isinstance(name, str) and name and not isinstance(stage, type):
        return name
    if isinstance(stage, functools.partial):
        return _name_of(stage.func)
    return str(getattr(stage, "__qualname__", None) or type(stage).__qualname__)


def _module_of(stage: object) -> str:
    while isinstance(stage, functools.partial):
        stage = stage.func
    return str(getattr(stage, "__module__", None) or "builtins")
