"""A loader made from a state: the sequence of the state, over the given caches.

The command line uses it to answer `who` and `when` for a run of which only the saved state remains.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from beam_pipes.cache import Cache, Split, storage_for
from beam_pipes.errors import CacheNotFoundError, LoaderError
from beam_pipes.loader.epochs import Shuffle
from beam_pipes.loader.loader import Loader
from beam_pipes.loader.mixture import Mixture
from beam_pipes.loader.order import BalancedShuffle, BlockShuffle
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.state import LoaderState
from beam_pipes.loader.steps import Last
from beam_pipes.loader.token_batches import TokenBatches
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
) -> Loader:
    """The loader of a state, at the state's position, over the caches at `paths`.

    `paths` are the directories of the caches, one for each source of a mixture, in its order; the snapshot that the
    state names is opened in each. `plans` are the files of packing plans, likewise, and `conditions` those of
    `split.where`, which a state does not hold: "" for a source without one. `batch_size` and `last` are not
    part of a state, because they may change between saving and restoring: pass those of the run. The loader is that of
    host 0 of `host_count`; `who` and `when` cover all hosts.

    Raises `LoaderError` if paths or plans are missing, `CacheNotFoundError` if a snapshot is gone, and
    `StateMismatchError` if anything else differs from what the state was saved with.
    """
    source: Split | PackingPlan | Mixture
    named = dict(state.source)
    if "windows" in named:
        raise LoaderError(
            f"this state is of windows ({named['windows']}), which a state only names. Make the loader as the run "
            "does, from Windows(…), and restore the state into it: loader.restore(state)."
        )
    if "num_sources" not in named:
        if len(paths) != 1:
            raise LoaderError(f"this state is of one source: pass the directory of its cache, got {len(paths)} paths.")
        condition = conditions[0] if conditions else ""
        plan = plans[0] if plans else None
        source = _source(paths[0], named.get("split"), named.get("manifest"), plan, named, condition)
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
            condition = conditions[index] if conditions else ""
            pairs.append((_source(path, split, manifest, plan, where, condition), named["rates"][index]))
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
    )
    loader.restore(state)
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
) -> Split | PackingPlan:
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
    if "plan" not in named:
        return found
    if plan is None:
        raise LoaderError("this state is of packed rows: pass the file of the packing plan that the run used.")
    return PackingPlan.load(plan, found)


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
