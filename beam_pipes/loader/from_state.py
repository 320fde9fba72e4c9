"""A loader made from a state: the sequence of the state, over the given caches.

The command line uses it to answer `who` and `when` for a run of which only the saved state remains.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import cast

import numpy as np

from beam_pipes.cache import Cache, Split, storage_for
from beam_pipes.errors import CacheNotFoundError, LoaderError, StateMismatchError
from beam_pipes.loader.epochs import Shuffle
from beam_pipes.loader.loader import Loader
from beam_pipes.loader.mixture import Mixture
from beam_pipes.loader.order import BalancedShuffle, BlockShuffle
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.rows import GatherOptions, columns_in_common
from beam_pipes.loader.state import LoaderState
from beam_pipes.loader.steps import Last
from beam_pipes.loader.stream import OpenSource, open_rows
from beam_pipes.loader.token_batches import TokenBatches
from beam_pipes.loader.windows import WindowRows, Windows
from beam_pipes.publication.publish import manifest_with_id


def loader_from_state(
    state: LoaderState,
    paths: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int | TokenBatches,
    host_count: int = 1,
    last: Last = "drop",
    plans: Sequence[str | os.PathLike[str]] = (),
    conditions: Sequence[str] = (),
    windows: Sequence[str] = (),
) -> Loader:
    """The loader of a state, at the state's position, over the caches at `paths`.

    `paths` are the directories of the caches, one for each source of a mixture, in its order; the snapshot that the
    state names is opened in each. `plans` are the files of packing plans, likewise, and `conditions` those of
    `split.where`, which a state does not hold: "" for a source without one. `windows` are the arguments of `Windows`,
    as Python has them: `["past=1, future=16, by='episode'"]`; "" likewise. `batch_size` and `last` are not
    part of a state, because they may change between saving and restoring: pass those of the run. The loader is that of
    host 0 of `host_count`; `who` and `when` cover all hosts.

    Raises `LoaderError` if paths or plans are missing, `CacheNotFoundError` if a snapshot is gone, and
    `StateMismatchError` if anything else differs from what the state was saved with.
    """
    source: Split | PackingPlan | Windows | Mixture
    named = dict(state.source)
    if "num_sources" not in named:
        if len(paths) != 1:
            raise LoaderError(f"this state is of one source: pass the directory of its cache, got {len(paths)} paths.")
        condition = conditions[0] if conditions else ""
        plan = plans[0] if plans else None
        window = windows[0] if windows else ""
        source = _source(paths[0], named.get("split"), named.get("manifest"), plan, named, condition, window)
    else:
        listed = named.get("sources")
        if not isinstance(listed, list) or not isinstance(named.get("rates"), list):
            raise LoaderError(
                f"this state is of a mixture of {named['num_sources']} sources, too many to be listed in it: make the "
                "loader as the run does, and restore the state into it."
            )
        if len(paths) != len(listed) or (plans and len(plans) != len(listed)):
            raise LoaderError(
                f"this state is of a mixture of {len(listed)} sources ({', '.join(map(str, listed))}): pass the "
                f"directory of each, in this order; got {len(paths)} paths and {len(plans)} plans."
            )
        if "schedule" in named:
            raise LoaderError(
                "this state is of a mixture whose rates follow a schedule, which a state only names. Make the loader "
                "as the run does, and restore the state into it: loader.restore(state)."
            )
        pairs = []
        for index, (path, text) in enumerate(zip(paths, listed, strict=True)):
            split, _, rest = str(text).partition("@")
            manifest, *more = rest.split("/")
            plan = plans[index] if plans and len(more) == 2 else None
            where = {"plan": more[1]} if len(more) == 2 else {}
            condition, window = conditions[index] if conditions else "", windows[index] if windows else ""
            pairs.append((_source(path, split, manifest, plan, where, condition, window), named["rates"][index]))
        source = Mixture(pairs, exhausted=str(named.get("exhausted")), max_epochs=named.get("max_epochs"))
    loader = Loader(
        source,
        batch_size=batch_size,
        seed=state.seed,
        epochs=1 if "max_epochs" in named and None not in named["max_epochs"] else None,
        shuffle=_shuffle(state.shuffle, batch_size),
        host_index=0,
        host_count=host_count,
        last=last,
        features=shared_features(source),
    )
    try:
        loader.restore(state)
    except StateMismatchError as error:
        if "num_sources" in named:
            error.add("Plans, conditions and windows of its sources are not in a state: pass all that the run used.")
        raise
    return loader


def shuffle_of_label(label: str) -> Shuffle:
    """The inverse of how a state names an order: "global", "stored", "blocks/8" or "balanced/64"."""
    return _shuffle(label, None)


def _shuffle(label: str, batch_size: int | TokenBatches | None) -> Shuffle:
    label, _, by_tokens = label.partition(", ")
    if by_tokens and not isinstance(batch_size, TokenBatches):
        raise LoaderError(
            f"this state is of batches by tokens ({by_tokens}), got batch_size={batch_size!r}. In "
            "Python, pass batch_size=TokenBatches(…) with these values to loader_from_state."
        )
    if label in ("global", "stored"):
        return label == "global"
    kind, _, number = label.partition("/")
    if kind in ("blocks", "balanced") and number.isdecimal() and len(number) < 10:
        return BlockShuffle(window=int(number)) if kind == "blocks" else BalancedShuffle(rows=int(number))
    raise LoaderError(f"a shuffle is named 'global', 'stored', 'blocks/<window>' or 'balanced/<rows>', got {label!r}")


def _source(
    path: str | os.PathLike[str],
    split: object,
    manifest: object,
    plan: str | os.PathLike[str] | None,
    named: Mapping[str, object],
    condition: str,
    window: str,
) -> Split | PackingPlan | Windows:
    whole, filtered, _ = str(manifest).partition("?")
    if filtered and not condition:
        raise LoaderError(
            f"this state was saved over a part of the split {str(split)!r}, and a state does not hold the condition: "
            "pass it (--where of commands, conditions=[…] in Python), or make the loader as the run does, from "
            "split.where(…), and restore the state into it: loader.restore(state)."
        )
    found = open_snapshot(path, whole)[str(split)]
    if condition:
        found = found.where(condition)
    if "windows" in named and not window:
        raise LoaderError(
            f"this state is of windows ({named['windows']}), which a state only names: pass the arguments of Windows "
            '(--windows "past=1, future=16" of commands, windows=[…] in Python), or make the loader as the run does, '
            "and restore the state into it: loader.restore(state)."
        )
    if window:
        return windows_of(found, window)
    if "plan" not in named:
        return found
    if plan is None:
        raise LoaderError("this state is of packed rows: pass the file of the packing plan that the run used.")
    return PackingPlan.load(plan, found)


def shared_features(source: Split | PackingPlan | Windows | Mixture) -> list[str] | None:
    """The features that all sources of a mixture give alike, where they differ in others; None for all of them.

    A run that mixes such sources passes `features=`, which is not part of its state.
    """
    if not isinstance(source, Mixture):
        return None
    sources = cast("list[OpenSource]", [each for each, _ in source.sources])
    all_names = [open_rows(each, GatherOptions()).features for each in sources]
    found = []
    for name in all_names[0]:
        with contextlib.suppress(LoaderError):
            columns_in_common([open_rows(each, GatherOptions(features=(name,))) for each in sources])
            found.append(name)
    return None if not found or all(len(names) == len(found) for names in all_names) else found


def windows_of(split: Split, arguments: str) -> Windows:
    """`windows_of(split, "past=1, future=16, by='episode'")` → `Windows(split, past=1, future=16, by="episode")`.

    Values are literals, `range(…)` and `Fraction(…)`; nothing is run. Raises `LoaderError` for anything else.
    """
    try:
        call = ast.parse(f"Windows({arguments})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError("only arguments by name are taken")
        given = {str(each.arg): _argument(each.value) for each in call.keywords}
        if "split" in given or len(given) < len(call.keywords):
            raise ValueError("split is given by the cache, and each other argument once")
        return Windows(split, **given)  # type: ignore[arg-type]
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, LoaderError):
            raise
        raise LoaderError(
            "windows are given by the arguments of Windows as Python has them, past=1, future=16, by='episode' or "
            f"offsets={{'image': range(-1, 1)}}, got {arguments!r:.200}: {error}"
        ) from error


def _argument(node: ast.expr) -> object:
    calls: dict[str, Callable[..., object]] = {"range": range, "Fraction": Fraction}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls and not node.keywords:
        return calls[node.func.id](*map(ast.literal_eval, node.args))
    if isinstance(node, ast.Dict):
        return {
            ast.literal_eval(key or node): _argument(value) for key, value in zip(node.keys, node.values, strict=True)
        }
    return ast.literal_eval(node)


def windows_of_loader(loader: Loader) -> list[str]:
    """What `loader_from_state` takes as `windows`; none if no source of the loader has windows."""
    texts = [
        _arguments_of(rows.windows) if isinstance(rows, WindowRows) else "" for rows in loader._reader.stream.sources
    ]
    return texts if any(texts) else []


def _arguments_of(windows: Windows) -> str:
    given = []
    for field in dataclasses.fields(windows):
        value = getattr(windows, field.name)
        if not field.init or field.name == "split" or value == field.default or value == {}:
            continue
        if field.name == "offsets":  # numbers may be NumPy's
            value = {name: each if each is None else [*map(int, each)] for name, each in value.items()}
        elif field.name == "rates":
            value = {
                name: Fraction(int(rate)) if isinstance(rate, np.integer) else rate for name, rate in value.items()
            }
        given.append(f"{field.name}={dict(value) if isinstance(value, Mapping) else value!r}")
    return ", ".join(given)


def open_snapshot(path: str | os.PathLike[str], manifest_id: str) -> Cache:
    """The snapshot with this manifest, the current one or an older one."""
    root = os.fspath(path)
    cache = Cache.open(root)
    if cache.manifest.id.startswith(manifest_id):
        return cache
    with contextlib.suppress(CacheNotFoundError):
        manifest = manifest_with_id(root, manifest_id, storage=storage_for(root))
        return Cache.open(root, snapshot=manifest.snapshot)  # missing if only the record of a removed snapshot exists
    raise CacheNotFoundError(
        f"{root}: expected the snapshot with manifest {manifest_id[:16]}…, which the state was saved with, and it is "
        f"not there; the published one is {cache.manifest.id[:16]}….",
        path=root,
        manifest=manifest_id,
    )
