"""Self-contained pages, without scripts, network or other files: about a snapshot, about a loader, and an overview.

The overview is about a directory of caches: one line per cache, with a link to the page of each.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import read_fingerprint
from beam_pipes.cache.by_terms import count_by_terms
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Counter, Histogram
from beam_pipes.errors import BeamPipesError, CacheNotFoundError
from beam_pipes.loader import Loader
from beam_pipes.publication.manifest import FILE_NAME
from beam_pipes.publication.publish import REPORT as REPORT
from beam_pipes.report.balance import class_counts, noticed
from beam_pipes.report.difference import difference_to_previous
from beam_pipes.report.distributions import (
    SAMPLED_RECORDS,
    Waste,
    features_with_lengths,
    packing_waste,
    record_lengths,
    sampled_numbers,
)
from beam_pipes.report.examples import MAX_MEDIA, Medium, decoded_examples, dropped_examples, media_of
from beam_pipes.report.language import Language, Tokenizer, language_of, shown_row, token_features
from beam_pipes.report.shown import Bar, bars_of, bars_of_values, render, shown_value
from beam_pipes.report.stage_graph import lay_out, stage_graph
from beam_pipes.storage.local import directory_path, is_remote, storage_for, writing_to

TEMPLATE = "report.html.j2"

# Limits that keep the page below 2 MB for any declaration; the page states what is left out.
MAX_BYTES = 2_000_000
_MAX_DRAWN_NODES = 120
_MAX_STATISTICS = 150
_MAX_ROWS = 200
_MAX_DEAD_LETTERS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ValuesShown:
    split: str
    feature: str
    count: int
    records: int
    quantiles: tuple[str, ...]
    mean: str
    zeros: float
    bars: list[Bar]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LengthsShown:
    split: str
    feature: str
    what: str
    records: int
    of: int
    total: int
    quantiles: tuple[int, ...]
    bars: list[Bar]
    waste: list[Waste]
    is_split: bool


def write_report(
    path: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | None = None,
    against: str | None = None,
    declaration: Declaration | None = None,
    run_stages: bool = True,
    vocabulary: Tokenizer | None = None,
    row_length: int | None = None,
) -> str:
    """Writes the page about the published snapshot of the cache at `path`; returns its path.

        write_report("demo")  →  "demo/snapshots/2f6c0e8a9b1d3c57/report.html"

    It is written beside the snapshot's manifest, which does not cover it: no reader depends on it. Arguments and
    errors as `report_html`; `to` is another file to write. Raises `OutputError` if it cannot be written.
    """
    cache = Cache.open(path)
    target = os.path.join(cache.directory, REPORT) if to is None else os.fspath(to)
    html = report_html(
        cache,
        against=against,
        declaration=declaration,
        run_stages=run_stages,
        vocabulary=vocabulary,
        row_length=row_length,
    )
    with writing_to(target):
        storage_for(target).replace(target, html.encode("utf-8", errors="backslashreplace"))
    return target


def loader_html(
    loader: Loader, *, step: int = 0, num_rows: int = 3, vocabulary: Tokenizer | None = None, tokens: Sequence[str] = ()
) -> str:
    """A page about a loader: the output of `loader.describe()`, the columns of the batch of a step, and its first rows.

        Path("loader.html").write_text(loader_html(loader, vocabulary=vocabulary, tokens=["tokens"]), encoding="utf-8")

    The cursor does not move. With a `vocabulary`, the ids of the features `tokens` are also shown as tokens. Everything
    that comes from data is escaped. Raises `MissingExtraError` without jinja2 (extra `cli`), and errors of reading the
    batch.
    """
    batch = loader.batch_at(step)
    # Concatenated values do not belong to single rows, but their lengths do.
    by_row = [name for name in batch if f"{name}/lengths" not in batch and name != "cu_seqlens"]
    count = min(num_rows, *(len(batch[name]) for name in by_row)) if by_row else 0
    rows = [
        [
            (
                name,
                shown_value(batch[name][row]),
                shown_row(vocabulary, batch, name, row) if vocabulary is not None and name in tokens else [],
            )
            for name in by_row
        ]
        for row in range(count)
    ]
    facts = {"loader": loader, "tree": loader.description, "batch": batch, "step": step, "rows": rows}
    return render("loader.html.j2", {**facts, "shown": shown_value})


def report_html(
    cache: Cache | str | os.PathLike[str],
    *,
    against: str | None = None,
    declaration: Declaration | None = None,
    run_stages: bool = True,
    num_examples: int = 3,
    vocabulary: Tokenizer | None = None,
    row_length: int | None = None,
) -> str:
    """The page: graph with counts, statistics, lengths and packing, examples, timing, reuse, what changed. Below 2 MB.

    Args:
        cache: an open cache, or its directory.
        against: the id of the snapshot to compare with. Left out, the previously published one, if it still exists.
        declaration: what the cache was built from. With it, examples show their source records, which are reread.
        run_stages: run what `declaration` declares over these records, and show the output of each stage.
        num_examples: how many examples of each split.
        vocabulary: the tokenizer that made the ids of the cache. With it, the page shows them as language: frequent
            tokens, tokens per byte, unknown ones, duplicates, samples with the boundaries of tokens.
        row_length: a number of tokens whose rows the packing table has too.

    Everything that comes from data is escaped. Raises `MissingExtraError` without jinja2 (extra `cli`), and what
    `Cache.open` raises.
    """
    opened = cache if isinstance(cache, Cache) else Cache.open(cache)
    examples = {
        split: decoded_examples(opened, split, count=num_examples, declaration=declaration, run_stages=run_stages)
        for split in opened.splits
    }
    languages = []
    if vocabulary is not None:
        ids = [(split, feature) for split in opened.splits for feature in token_features(opened, split)]
        languages = [language_of(opened, split, feature, vocabulary) for split, feature in ids]
    dropped = dropped_examples(opened, declaration=declaration)
    facts = {
        **_facts(opened, languages, against=against, row_length=row_length),
        "examples": examples,
        "languages": languages,
        "dropped": dropped,
    }
    html = render(TEMPLATE, facts)
    if facts["media"] and len(html.encode("utf-8", errors="backslashreplace")) > MAX_BYTES:
        html = render(TEMPLATE, {**facts, "media": {}})
    if len(html.encode("utf-8", errors="backslashreplace")) > MAX_BYTES:
        empty: dict[str, object] = {
            "examples": {},
            "dropped": [],
            "statistics": [],
            "values": [],
            "languages": [],
            "media": {},
            "noticed": [],
        }
        html = render(TEMPLATE, {**facts, **empty, "cut": True})
    return html


def _facts(
    cache: Cache, languages: Sequence[Language], *, against: str | None, row_length: int | None
) -> Mapping[str, object]:
    account = Account.from_json(cache.manifest.accounting) if cache.manifest.accounting else Account()
    graph = stage_graph(account, read_fingerprint(cache.directory))
    statistics = account.statistics()
    balance = [] if is_remote(cache.path) else class_counts(cache)
    return {
        "cut": False,
        "cache": cache,
        "manifest": cache.manifest,
        "account": account,
        "graph": graph,
        "drawing": lay_out(graph) if 0 < len(graph.nodes) <= _MAX_DRAWN_NODES else None,
        "statistics": [
            (
                statistic,
                bars_of(statistic) if isinstance(statistic, Histogram) else None,
                f"{statistic.count:,}" if isinstance(statistic, Counter) else str(statistic),
            )
            for statistic in statistics[:_MAX_STATISTICS]
        ],
        "num_statistics": len(statistics),
        # From an object store, whole shards would be fetched for a few records each.
        "values": None if is_remote(cache.path) else _values(cache, languages),
        "balance": balance,
        "noticed": [] if is_remote(cache.path) else list(noticed(cache, balance)),
        "by_terms": count_by_terms(cache) if cache.manifest.sources else [],
        "lengths": _lengths(cache, languages, row_length),
        "media": {} if is_remote(cache.path) else _media(cache),
        "dead_letters": _dead_letters(cache),
        "timing": _timing(cache.build_info),
        "build": {**cache.build_info, "options": cache.build_info.get("options", {})},
        "difference": difference_to_previous(cache, against=against),
        "max_rows": _MAX_ROWS,
        "shown": shown_value,
    }


def _media(cache: Cache) -> dict[str, list[Medium]]:
    """Split → pictures and sound of some of its records; for each split an equal part of what a page may have."""
    rate = sample_rate_of(cache)
    most = MAX_MEDIA // (len(cache.splits) or 1)
    return {split: media_of(cache, split, sample_rate=rate, most=most) for split in cache.splits}


def sample_rate_of(cache: Cache) -> int | None:
    """The only sample rate in Hz that the stages of a cache name."""
    made = read_fingerprint(cache.directory)
    parts = [] if made is None else [item for stage in made.stages.values() for item in stage.parts.items()]
    rates = {value for name, value in parts if name.endswith(".config.sample_rate") and value.isdigit()}
    return int(rates.pop()) if len(rates) == 1 else None


def _values(cache: Cache, languages: Sequence[Language]) -> list[_ValuesShown]:
    """Numbers of every numeric feature, from a sample: no stage needs to count them. Ids that are shown as tokens have
    no mean.
    """
    shown = []
    ids = {(one.split, one.feature) for one in languages}
    for split in cache.splits:
        records = min(SAMPLED_RECORDS, cache.manifest.splits[split].num_records)
        for name, numbers in sampled_numbers(cache, split).items():
            if not len(numbers) or (split, name) in ids:
                continue
            quantiles = np.quantile(numbers, [0, 0.05, 0.5, 0.95, 1], method="nearest")
            shown.append(
                _ValuesShown(
                    split=split,
                    feature=name,
                    count=len(numbers),
                    records=records,
                    quantiles=tuple(f"{value:.6g}" for value in quantiles),
                    mean=f"{numbers.mean():.6g}",
                    zeros=float((numbers == 0).mean()),
                    bars=bars_of_values(numbers),
                )
            )
    return shown[:_MAX_STATISTICS]


def _lengths(cache: Cache, languages: Sequence[Language], row_length: int | None) -> list[_LengthsShown]:
    """Lengths of features, without those of texts whose values are shown; packed as the forecast of `tokens` has it."""
    shown = []
    for split in cache.splits:
        spec = cache.manifest.splits[split].spec
        counted = {name for one in languages if one.split == split for name in one.categories}
        names = [name for name in features_with_lengths(cache, split) if name not in counted][:_MAX_ROWS]
        ids = token_features(cache, split)
        numbers = [name for name in names if spec is None or not spec[name].is_text]
        splits = len(ids) == 1 and numbers == ids  # beside weights of the loss, longer conversations are cut
        for name, lengths in record_lengths(cache, split, names).items():
            if not len(lengths.values):
                continue
            is_text = spec is not None and name in spec and spec[name].is_text and not spec[name].shape
            of = "text" if is_text and spec is not None and spec[name].dtype == "str" else "value"
            quantiles = np.quantile(lengths.values, [0, 0.05, 0.5, 0.95, 1], method="nearest")
            shown.append(
                _LengthsShown(
                    split=split,
                    feature=name,
                    what=f"Bytes of the {of}" if is_text else "Leading dimension",
                    records=len(lengths.values),
                    of=lengths.of,
                    total=cache.manifest.splits[split].lengths[name][0],
                    quantiles=tuple(int(value) for value in quantiles),
                    bars=bars_of_values(lengths.values),
                    waste=[] if is_text else packing_waste(lengths.values, also=row_length, split_longer=splits),
                    is_split=splits,
                )
            )
    return shown[:_MAX_ROWS]


def _dead_letters(cache: Cache) -> list[dict[str, str]]:
    shown: list[dict[str, str]] = []
    for letter in cache.dead_letters():
        if len(shown) == _MAX_DEAD_LETTERS:
            break
        shown.append(
            {
                "id": letter.record_id,
                "stage": letter.stage,
                "anchor": f"dead-letter-{len(shown) + 1}",
                "error": f"{letter.error_type}: {letter.message}"[:300],
                "record": shown_value(letter.record, max_characters=200),
            }
        )
    return shown


def _timing(build: Mapping[str, object]) -> list[tuple[str, float, float]]:
    """(stage, seconds over all shards, share of the whole) of a build whose shards reported their times."""
    secs: dict[str, float] = {}
    shards = build.get("shards")
    for shard in shards if isinstance(shards, list) else []:
        for stage, spent in (shard.get("stage_secs") or {}).items():
            secs[stage] = secs.get(stage, 0.0) + float(spent)
    whole = sum(secs.values()) or 1.0
    return [(stage, spent, spent / whole) for stage, spent in sorted(secs.items(), key=lambda item: -item[1])]


# A task's name may have several parts, each a directory.
MAX_DEPTH = 6
_MAX_CACHES = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheLine:
    """The overview's line for one cache: `name` is its directory, `page` the link to its report, if there is one.

    `changes` lists the differences from the previous snapshot, None if there is none; `unreadable` says why nothing is
    known.
    """

    name: str
    snapshot: str = ""
    page: str | None = None
    splits: tuple[tuple[str, int], ...] = ()
    num_bytes: int = 0
    account: Account | None = None
    changes: tuple[str, ...] | None = None
    unreadable: str | None = None


def cache_directories(path: str | os.PathLike[str], *, max_depth: int = MAX_DEPTH) -> list[str]:
    """The directories below `path` in which a cache is published, sorted; `path` itself where it is one.

    `["caches/wmt", "caches/glue/cola"]` for `caches`. Caches are not searched for inside a cache.
    """
    return sorted(_found(directory_path(path), max_depth))


def _found(path: str, depth: int) -> Iterator[str]:
    storage = storage_for(path)
    if storage.exists(f"{path}/{FILE_NAME}"):
        yield path
    elif depth:
        for name in storage.list(path):
            if not name.startswith(".") and storage.is_directory(f"{path}/{name}"):
                yield from _found(f"{path}/{name}", depth - 1)


def write_overview(path: str | os.PathLike[str], *, to: str | os.PathLike[str] | None = None) -> str:
    """Writes the page about all caches below the directory `path`; returns its path.

        write_overview("caches")  →  "caches/report.html"

    It links to the report of each cache that has one (`write_report` writes them). `to` is another file to write.
    Raises `CacheNotFoundError` if there is no cache.
    """
    root = directory_path(path)
    target = f"{root}/{REPORT}" if to is None else os.fspath(to)
    html = overview_html(root, beside=target)
    with writing_to(target):
        storage_for(target).replace(target, html.encode("utf-8", errors="backslashreplace"))
    return target


def overview_html(path: str | os.PathLike[str], *, beside: str | os.PathLike[str] | None = None) -> str:
    """The page; links to other pages are relative to the file `beside`, by default `report.html` in `path`."""
    root = directory_path(path)
    directories = cache_directories(root)
    if not directories:
        raise CacheNotFoundError(
            f"no cache is published in {os.fspath(path)!r}, nor in a directory below it. Build one with "
            "`beam-pipes build DECLARATION --to DIR`, or with --tasks.",
            path=os.fspath(path),
        )
    base = os.path.dirname(f"{root}/{REPORT}" if beside is None else os.fspath(beside)) or "."
    lines = [_line(root, directory, base) for directory in directories[:_MAX_CACHES]]
    accounts = [line.account for line in lines if line.account is not None]
    totals = {name: sum(getattr(one, name) for one in accounts) for name in ("read", "written", "dropped", "dead")}
    return render(
        "overview.html.j2",
        {
            "name": os.path.basename(root) or root,
            "lines": lines,
            "left_out": len(directories) - len(lines),
            "totals": totals,
            "shown": shown_value,
        },
    )


def _line(root: str, directory: str, base: str) -> CacheLine:
    name = os.path.relpath(directory, root)
    name = os.path.basename(directory) if name == "." else name
    try:
        cache = Cache.open(directory)
        manifest = cache.manifest
        difference = difference_to_previous(cache)
        page = f"{cache.directory}/{REPORT}"
        return CacheLine(
            name=name,
            snapshot=manifest.snapshot,
            page=os.path.relpath(page, base) if storage_for(page).exists(page) else None,
            splits=tuple((split, each.num_records) for split, each in manifest.splits.items()),
            num_bytes=sum(each.num_bytes for each in manifest.splits.values()),
            account=Account.from_json(manifest.accounting) if manifest.accounting else None,
            changes=None if difference is None else tuple(difference.in_brief()),
        )
    except BeamPipesError as error:  # a damaged cache does not hide others
        return CacheLine(name=name, unreadable=str(error))
