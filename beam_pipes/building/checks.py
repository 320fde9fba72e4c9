"""Which modules a stage imports when it runs, read from its code, so that a missing one shows before a job starts.

What can be checked before a build reads any input: faults that would otherwise end it later.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType

from beam_pipes.building.analysis.declared import assumed_results
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import fingerprint_declaration, read_fingerprint, require_new_versions
from beam_pipes.building.leftovers import lock_holder, writing
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import (
    BeamPipesError,
    CacheBusyError,
    CacheNotFoundError,
    CorruptManifestError,
    DeclarationError,
    MissingExtraError,
    PlanError,
    SourceError,
)
from beam_pipes.extras import EXTRA_OF_MODULE, require
from beam_pipes.identity.canonical import canonical_text, function_behind
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.identity.source_code import function_node
from beam_pipes.sources.byte_stream import codec_of
from beam_pipes.sources.file_source import FileSource
from beam_pipes.sources.source import Source
from beam_pipes.storage.local import directory_path, is_remote, storage_for

# Methods that are called on a stage, a source and an analyzer.
_CALLED = ("__post_init__", "setup", "transform", "transform_batch", "read", "accumulator", "merge")

# Libraries are not followed: they import what they need when they are themselves imported.
_FOLLOWED = ("beam_pipes",)


def needed_modules(stage: object) -> dict[str, str]:
    """What `transform` of a stage (or `read` of a source) imports on every call: module → where (`module:line`).

    Functions of the same package and methods of the stage are followed. Imports below an `if` or a `try` may not be
    needed, and are left out: `import` and `require("module", ...)` in the straight line of the code are found.
    """
    found: dict[str, str] = {}
    seen: set[int] = set()
    package = stage.__module__.partition(".")[0]  # a decorated function's own
    waiting = [getattr(type(stage), name, None) for name in _CALLED]
    if (decorated := function_behind(stage)) is not None:
        waiting = [decorated.func if isinstance(decorated, functools.partial) else decorated]
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


def missing_modules(stage: object, name: str) -> Iterator[MissingExtraError | DeclarationError]:
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
    except (ImportError, ValueError):  # a parent that is missing, or is not a package
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


def _callee(called: ast.expr, function: FunctionType, cls: type) -> object:
    """What `name(...)` or `self.name(...)` calls, if that can be determined."""
    if isinstance(called, ast.Name):
        return function.__globals__.get(called.id)
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
        return inspect.getattr_static(cls, called.attr, None)
    return None


def find_faults(
    declaration: Declaration, to: str | os.PathLike[str], *, elsewhere: bool = True, accept_code_change: bool = False
) -> list[BeamPipesError]:
    """Everything wrong with building `declaration` in the directory `to` that shows without reading input.

    It looks at the names and sizes of input files, assets, configurations, the modules that stages import when they
    run, the directory (whether it is writable, whether a build runs there, what is published), and, with `elsewhere`,
    whether other processes can get the declaration. No input file is opened. Types along the edges of the graph are not
    checked here: a declaration checks them when it is made.

        find_faults(declaration, "cache")  →  [DeclarationError("asset 'vocab.model' cannot be read: No such file …")]
    """
    with assumed_results(declaration):
        found = list(_of_stages(declaration))
        for each in declaration.source.parts():
            found += _of_one_source(each, declaration, directory_path(to))
        found += _of_directory(directory_path(to))
        if not found and not accept_code_change:
            found += _of_changed_code(declaration, directory_path(to))
    if elsewhere:
        try:
            DeclarationHandle(declaration).require_portable()
        except BeamPipesError as error:
            found.append(error)
    return found


def raise_faults(found: Sequence[BeamPipesError]) -> None:
    """Raises a single fault as it is, and several as one `PlanError` that lists them all."""
    if len(found) == 1:
        raise found[0]
    if found:
        listed = "\n".join(f"  {number}. {fault}" for number, fault in enumerate(found, start=1))
        raise PlanError(f"{len(found)} faults, found before any input was read:\n{listed}", faults=tuple(found))


def _of_stages(declaration: Declaration) -> Iterator[BeamPipesError]:
    units: list[tuple[str, object]] = [(unit.name, unit.stage) for unit in declaration.graph.units]
    units += [(f"source.{name}", stage) for name, stage in declaration.source.stages().items()]
    for analyzer in declaration.analyzers:
        of = () if analyzer.analysed_graph is None else analyzer.analysed_graph.units
        units += [(analyzer.name, analyzer), *((f"{analyzer.name}, of {unit.name}", unit.stage) for unit in of)]
    for name, stage in units:
        try:
            fingerprint(stage)
        except BeamPipesError as error:
            yield DeclarationError(f"stage {name!r}: {error}", stage=name)
        yield from missing_modules(stage, f"stage {name!r}")


def _of_one_source(source: Source, declaration: Declaration, to: str) -> Iterator[BeamPipesError]:
    name = type(source).__name__
    yield from missing_modules(source, f"the source {name}")
    try:
        canonical_text(source.fingerprint_config())
    except BeamPipesError as error:
        yield error
    if not isinstance(source, FileSource):
        return
    try:
        selection = source.selection()
        files = selection.find()
    except BeamPipesError as error:
        yield error
        return
    if not source.keeps_empty_files and not any(file.size for file in files):
        yield SourceError(
            f"the input of {declaration.name!r} is empty: {len(files)} files match, and all have 0 bytes."
        )
    if any(codec_of(file.name) == "zstd" for file in files):
        try:
            require("zstandard", purpose=f"the source {name}, for .zst files")
        except MissingExtraError as error:
            yield error
    inside = next(
        (file for file in files if not is_remote(to) and file.path.startswith(os.path.abspath(to) + os.sep)), None
    )
    if inside is not None:
        yield DeclarationError(
            f"the input file {inside.name!r} lies inside of the cache {to!r}. Keep input and cache apart: collecting "
            "garbage removes what the cache does not know."
        )
    yield from _of_nesting(source, declaration, to)


def require_place(declaration: Declaration, to: str, *, overwrite: bool) -> None:
    """Raises `DeclarationError` if the directory `to` holds a cache of another name, which only `overwrite` replaces,
    or lies inside of the input: its files would be read as input.
    """
    if not overwrite:
        _require_same_name(declaration.name, to, can_overwrite=declaration.beam_steps is None)
    for one in declaration.source.parts():
        for error in _of_nesting(one, declaration, to) if isinstance(one, FileSource) else ():
            raise error


def _require_same_name(name: str, to: str, *, can_overwrite: bool) -> None:
    try:
        published = Cache.open(to).manifest.name
    except (CacheNotFoundError, CorruptManifestError):
        return
    if published != name:
        advice = " Pass overwrite=True (--overwrite) to do so." if can_overwrite else ""
        raise DeclarationError(
            f"{to!r} holds the cache {published!r}, and the declaration is called {name!r}: the build would replace "
            "what others read there. Build to another directory, or call the declaration what the cache is "
            f"called.{advice}",
            path=to,
        )


def _of_nesting(source: FileSource, declaration: Declaration, to: str) -> Iterator[DeclarationError]:
    names = ("manifest.json", f"snapshots/0/{declaration.name}-train.tfrecord-00000-of-00001")
    if (entry := source.selection().entry_that_finds(names, to)) is not None:
        yield DeclarationError(
            f"the cache {to!r} lies inside of the input {entry!r}: the next build would read the files of this one. "
            "Build to a directory beside it."
        )


def _of_directory(to: str) -> Iterator[BeamPipesError]:
    try:
        storage_for(to)
        with writing(to):
            _prove_writable(to)
        holder = lock_holder(to)
        if holder is not None:
            yield CacheBusyError(
                f"another build is writing to {to!r} ({holder}). Wait for it, stop it, or build to another directory.",
                path=to,
            )
        Cache.open(to)
    except (CacheNotFoundError, CorruptManifestError):
        return  # nothing is published yet, or it is damaged and will be published again
    except BeamPipesError as error:
        yield error


def _prove_writable(to: str) -> None:
    """Writes a file in the directory, or its nearest existing parent, and removes it again."""
    probe = f".tmp-probe-{uuid.uuid4().hex}"
    if is_remote(to):
        path = f"{to}/{probe}"
        storage_for(to).write_new(path, b"")
        storage_for(to).delete(path)
        return
    above = Path(os.path.abspath(to))
    while not os.path.lexists(above) and above.parent != above:
        above = above.parent
    descriptor = os.open(above / probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(descriptor)
    (above / probe).unlink()


def _of_changed_code(declaration: Declaration, to: str) -> Iterator[BeamPipesError]:
    """Code that changed under the same version; known without input where all features are declared."""
    declared = declaration.declared_specs
    if any(kind == "example" and split not in declared for split, kind in declaration.kinds.items()):
        return
    try:
        before = read_fingerprint(Cache.open(to).directory)
        if before is not None:
            require_new_versions(before, fingerprint_declaration(declaration, declared), path=to)
    except (CacheNotFoundError, CorruptManifestError):
        return
    except BeamPipesError as error:
        yield error
