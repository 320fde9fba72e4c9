"""`beam-pipes tokens`, `images`, `audio` and `table`: recipes from the command line, and their final summaries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from beam_pipes import recipes
from beam_pipes.analysis import Analyzer
from beam_pipes.building.declaration import Declaration
from beam_pipes.cache import Cache
from beam_pipes.commands.build import build_and_show
from beam_pipes.commands.caches import console, shown_classes
from beam_pipes.commands.options import Building, Declaring, Given, with_groups
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Counter
from beam_pipes.errors import BeamPipesError, DeclarationError, EmptySplitError
from beam_pipes.recipes.written import Recipe, spelled
from beam_pipes.runners.progress import counted
from beam_pipes.sources.file_source import FileSource
from beam_pipes.sources.selection import select
from beam_pipes.storage.local import directory_path

if TYPE_CHECKING:
    from beam_pipes.report.language import Tokenizer

_DROPPING = ("min_tokens", "max_tokens", "dedup", "decontaminate")


@with_groups
def tokens_command(
    context: typer.Context,
    given: Annotated[Given, "tokens"],
    is_chat: Annotated[
        bool, typer.Option("--chat", help="read messages and also store loss weights, 1 for what the assistant says")
    ] = False,
    *,
    of_chat: Annotated[Given, "chat"],
    pack_length: Annotated[int, typer.Option(min=1, help="row length in tokens for the packing forecast")] = 2048,
    declaring: Declaring,
    building: Building,
) -> None:
    """Build a cache of token ids from text or chat messages, ready for packing. Options after -- go to Beam.

    The suffix selects the format (.txt, .jsonl, .parquet, .csv, .tsv, .tar; optionally then .gz, .bz2 or .zst).

    Example: beam-pipes tokens corpus/*.jsonl.zst --tokenizer tokenizer.json --split train=0.99,eval=0.01 --to cache

    Example: beam-pipes tokens talks.jsonl --chat --tokenizer model --to cache

    Example: beam-pipes tokens notes.txt --tokenizer bytes --print-python > notes.py
    """
    about = field = None
    if is_chat := is_chat or "template" in of_chat:
        ends = {"--no-eos": not given.pop("eos") or None, "--eos-token": given.pop("eos_token", None)}
        ends |= {"--bos": given.pop("bos") or None, "--bos-token": given.pop("bos_token", None)}
        _refuse(ends, "the chat template decides which tokens begin and end a text")
        of_texts = {"--min-tokens": given.pop("min_tokens", None), "--backend": given.pop("backend", None)}
        _refuse(of_texts, "it is for texts, not messages")
        field = given.pop("text_field", None)
        recipe = recipes.chat(field=field, **given, **of_chat)
    else:
        options = {"--tools-field": of_chat.get("tools_field"), "--only-last": of_chat["only_last"] or None}
        _refuse({**options, "--date": of_chat.get("date")}, "it is for messages: add --chat")
        recipe = recipes.tokens(**given)

        def about() -> str:
            return _about(recipe, given["tokenizer"], parse_special=bool(given.get("parse_special")))

    try:
        _build(
            recipe,
            declaring,
            building,
            context.obj or [],
            about=about,
            vocabulary=lambda: recipes.open_tokenizer(given["tokenizer"]),
            row_length=pack_length,
            summary=lambda cache, declaration: [
                *_unwritten(cache),
                *forecast_of_packing(cache, declaration, pack_length),
            ],
        )
    except BeamPipesError as error:
        dropping = {f"--{name.replace('_', '-')}": given.get(name) for name in _DROPPING}
        if isinstance(error, EmptySplitError) and (
            of_these := [f"{option} {shown}" for option, value in dropping.items() if (shown := _shown(value))]
        ):
            error.add(f"Options that drop texts were given: {', '.join(of_these)}.")
        if is_chat and "jq -c" in str(error):
            _add_first_step(error, given, field)
        raise


@with_groups
def images_command(
    context: typer.Context,
    given: Annotated[Given, "images"],
    declaring: Declaring,
    building: Building,
) -> None:
    """Build a cache of images and labels from folders or tar archives. Options after -- go to Beam.

    --by is a regular expression: images in whose paths it finds the same stay in one split.

    Example: beam-pipes images pets --resize 224 --split train=0.9,eval=0.1 --to cache

    Example: beam-pipes images shards/*.tar --resize 224 --label-field json.species --to cache

    Example: beam-pipes images scans --resize 512 --fit pad --by 'patient[0-9]+' --split train=0.8,eval=0.2 --to cache
    """
    recipe = recipes.images(**given)

    def summary(cache: Cache, declaration: Declaration) -> list[str]:
        return [*_counts(cache, declaration), *_classes(recipe, cache)]

    is_manifest = any(map(os.path.isfile, given["data"]))
    _build(recipe, declaring, building, context.obj or [], is_manifest=is_manifest, summary=summary)


@with_groups
def audio_command(
    context: typer.Context,
    given: Annotated[Given, "audio"],
    declaring: Declaring,
    building: Building,
) -> None:
    """Build a cache of sound and transcripts from WAV, FLAC, OGG, MP3 or AIFF. Options after -- go to Beam.

    A manifest with offset and duration (in seconds) names pieces of files. A directory's transcripts are its
    *.trans.txt (LibriSpeech), metadata.csv or metadata.jsonl (LJSpeech, audiofolder), wav.scp and text (Kaldi), or .txt
    and .lab files beside the sound; those of a tar archive (WebDataset) are the .txt or .json beside each sound file.

    Example: beam-pipes audio manifest.jsonl --sample-rate 16000 --split train=0.95,eval=0.05 --by speaker --to cache

    Example: beam-pipes audio LibriSpeech/dev-clean --max-secs 20 --to cache

    Example: beam-pipes audio talks/*.tar --keep-field json.speaker --to cache
    """
    from beam_pipes.recipes.audio import DEFAULT_HZ

    recipe = recipes.audio(**given)

    def summary(cache: Cache, declaration: Declaration) -> list[str]:
        lines = _counts(cache, declaration, sample_rate=given.get("sample_rate", DEFAULT_HZ))
        if given["dtype"] == "int16" and (clipped := _clipped(cache)):
            lines.append(f"{counted(clipped, 'sample')} too loud for int16, clipped; --dtype float32 keeps them")
        return lines

    is_manifest = any(map(os.path.isfile, given["data"]))
    _build(recipe, declaring, building, context.obj or [], is_manifest=is_manifest, summary=summary)


@with_groups
def table_command(
    context: typer.Context,
    given: Annotated[Given, "table"],
    declaring: Declaring,
    building: Building,
) -> None:
    """Build a cache of typed columns from CSV, TSV, JSON Lines or Parquet. Options after -- go to Beam.

    Example: beam-pipes table insects.csv --label species --split train=0.9,eval=0.1 --to cache

    Example: beam-pipes table visits/*.parquet --type day=skip --by user --split train=0.9,eval=0.1 --to cache
    """
    recipe = recipes.table(**given)

    def summary(cache: Cache, declaration: Declaration) -> list[str]:
        types = recipe.names["types"] | dict.fromkeys(given.get("dates") or (), "float64")
        columns = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
        return [f"columns: {columns}", *_renamed(recipe), *_counts(cache, declaration), *_classes(recipe, cache)]

    _build(recipe, declaring, building, context.obj or [], summary=summary)


def _add_first_step(error: BeamPipesError, given: Given, field: str | None) -> None:
    """Adds what makes JSON Lines of other files, or parses messages that are text, to an error that advises `jq`."""
    from beam_pipes.recipes.row_files import format_of, sampled
    from beam_pipes.sources.tar import values_at

    kind = format_of(given["data"], given.get("format"))
    field = field or ("json" if kind == "tar" else "messages")
    parsed = f"(.{field} | strings) |= fromjson"
    if kind == "parquet":
        rows = "for part in parquet.ParquetFile(sys.argv[1]).iter_batches() for row in part.to_pylist()"
        rows = f"import json, sys; from pyarrow import parquet; [print(json.dumps(row, default=str)) {rows}]"
        parsed, command = f"del(.. | objects | .[] | nulls) | {parsed}", f'python -c "{rows}" NAME.{kind}'
    elif kind in ("csv", "tsv"):
        separator = given.get("delimiter") or ("," if kind == "csv" else r"\t")
        rows = f"csv.DictReader(open(sys.argv[1], encoding='utf-8-sig', newline=''), delimiter='{separator}')"
        rows = f"import csv, json, sys; csv.field_size_limit(1 << 30); [print(json.dumps(row)) for row in {rows}]"
        command = f'python -c "{rows}" NAME.{kind}'
    elif kind == "tar":
        member = field.partition(".")[0]
        is_named = re.search(rf"jq -c '[^']*\.{member}\b", str(error))
        parsed = f"{{{member}: .}}" if is_named else "."
        command = f"tar -xOf NAME.tar --wildcards '*.{member}'"
    else:
        row = next((row for sample in sampled(given["data"], kind) for row in sample.rows), {})
        if isinstance(next(iter(values_at(row, field)), None), str):
            error.add(f"Messages are text here. Make FILE of each first: jq -c '{parsed}' NAME > FILE")
        return
    error.add(
        f"jq reads JSON, and these files are {kind}. Make FILE of each first: {command} | jq -c '{parsed}' > FILE"
    )


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raises `DeclarationError` for options that cannot be combined with the others given."""
    for option, value in options.items():
        if value is not None:
            raise DeclarationError(f"{option} does not go here: {reason}. Leave {option} out.")


def _build(
    recipe: Recipe,
    declaring: Declaring,
    building: Building,
    beam_args: Sequence[str],
    *,
    about: Callable[[], str] | None = None,
    vocabulary: Callable[[], Tokenizer] | None = None,
    row_length: int | None = None,
    is_manifest: bool = False,
    summary: Callable[[Cache, Declaration], list[str]],
) -> None:
    """Prints the module of a recipe, or builds it; the lines of `summary` about the cache come last."""
    declaration = recipe.declaration()
    if declaring.print_python:
        typer.echo(recipe.python, nl=False)
        return
    if declaring.to is None:
        raise DeclarationError("name the directory of the cache: --to cache; or see the declaration: --print-python.")
    for source in declaration.source.parts():
        # Also where the recipe would not read the cache's files, as `images` would not: they lie among the classes.
        # A manifest names its files, and a cache may lie beside them.
        if is_manifest or not isinstance(source, FileSource):
            continue
        selection = select(source.selection().entries)
        if entry := selection.entry_that_finds(("manifest.json",), directory_path(declaring.to)):
            raise DeclarationError(
                f"the cache {str(declaring.to)!r} lies inside of the input {entry!r}. Build to a directory beside it."
            )
    if about is not None:
        console.print(about(), markup=False)
    result = build_and_show(
        declaration,
        declaring.to,
        building=building,
        beam_args=beam_args,
        vocabulary=vocabulary,
        row_length=row_length,
    )
    cache = Cache.open(result.path)
    split = declaration.splits[0]
    lines = [*_left_out(recipe), *summary(cache, declaration)]
    loading = recipe.loading(f"{cache.path}/{split}", num_records=len(cache[split]))
    for line in [*lines, *([""] if loading else []), *loading]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _counts(cache: Cache, declaration: Declaration, *, sample_rate: int | None = None) -> list[str]:
    """`train: 900 examples, 1.52 hours`."""
    lines = []
    for split in declaration.splits:
        secs = "" if sample_rate is None else f", {_duration(cache[split].lengths('audio').sum() / sample_rate)}"
        lines.append(f"{split}: {counted(len(cache[split]), 'example')}{secs}")
    return lines


def _clipped(cache: Cache) -> int:
    """The number of samples that `audio_example` clipped."""
    from beam_pipes.recipes.audio import CLIPPED

    statistics = Account.from_json(cache.manifest.accounting).statistics()
    return sum(each.count for each in statistics if isinstance(each, Counter) and each.name.endswith(CLIPPED))


def _unwritten(cache: Cache) -> list[str]:
    """`left out by the chat template: 12 reasoning, 1 messages of developer`."""
    from beam_pipes.transforms.chat import UNWRITTEN

    statistics = Account.from_json(cache.manifest.accounting).statistics()
    found = {each.name.partition(UNWRITTEN)[2]: each.count for each in statistics if isinstance(each, Counter)}
    lines = [f"{count:,} {what}" for what, count in sorted(found.items()) if what]
    return [f"{UNWRITTEN}{', '.join(lines)}"] if lines else []


def _duration(secs: float) -> str:
    """`5472.0` → `1.52 hours`, `90.0` → `1.50 minutes`, `3.5` → `3.50 seconds`."""
    size, unit = (3600, "hours") if secs >= 3600 else (60, "minutes") if secs >= 60 else (1, "seconds")
    return f"{secs / size:.2f} {unit}"


def _left_out(recipe: Recipe) -> list[str]:
    """`files left out, by suffix: 3 .gif, 1 without a suffix, 2 hidden`."""
    counts = [f"{count:,} {suffix or 'without a suffix'}" for suffix, count in sorted(recipe.left_out.items())]
    rows = [suffix for suffix in (".csv", ".tsv", ".jsonl", ".json") if suffix in recipe.left_out]
    advice = f" (if {' or '.join(rows)} has rows about the others, name it in place of the directory)" * bool(rows)
    return [f"files left out, by suffix: {', '.join(counts)}{advice}"] if counts else []


def _renamed(recipe: Recipe) -> list[str]:
    """`columns renamed: 3 'a' is 'a.1'`."""
    names = [f"{number} {name!r} is {own!r}" for number, (name, own) in recipe.renamed.items()]
    more = f", … ({len(names):,} in all)" if len(names) > 10 else ""
    return [f"columns renamed, as the header leaves names out or repeats them: {', '.join(names[:10])}{more}"][
        : len(names)
    ]


def _classes(recipe: Recipe, cache: Cache) -> list[str]:
    """`classes: 0 bee, 1 wasp`."""
    spec = cache[cache.splits[0]].spec
    names = next((names for feature in spec.values() if (names := feature.class_names)), None)
    learned = recipe.names.get("classes")
    if names is None and isinstance(learned, Analyzer):
        learned.result.bind(cache.asset_path("classes"))
        names = learned.result.class_names()
    return [f"classes: {shown_classes(names)}"] if names else []


def _about(recipe: Recipe, tokenizer: str, *, parse_special: bool) -> str:
    """`tokenizer.json: 32,000 ids, encoded by tiktoken.`"""
    vocabulary = recipe.vocabulary
    about = f"{tokenizer}: {vocabulary.vocab_size:,} ids"
    backend = getattr(vocabulary, "backend", None)
    if backend is None:
        return f"{about}."
    reason = getattr(vocabulary, "backend_reason", "")
    by = f"encoded by {backend}{f', because {reason}' if reason else ', with the ids of tokenizers'}"
    treatment = "these tokens" if parse_special else "text (--parse-special: tokens)"
    return f"{about}, {by}. Special tokens that are spelled in texts are {treatment}."


def forecast_of_packing(cache: Cache, declaration: Declaration, length: int) -> list[str]:
    """A packing forecast for rows of `length` tokens, split by split, and the Python that loads them."""
    from beam_pipes.loader.packing import PackingPlan, pack
    from beam_pipes.recipes.texts import FEATURE, LOSS_WEIGHTS

    packed: Callable[..., PackingPlan] = pack
    lines, keys, rows = list[str](), f"{FEATURE}, segment_ids, positions", dict[str, int]()
    options: dict[str, object] = {"sequence_length": length, "feature": FEATURE, "overlong": "split"}
    if LOSS_WEIGHTS in cache[declaration.splits[0]].spec:  # in shared rows; conversations are not split
        options = {"sequence_length": {FEATURE: length, LOSS_WEIGHTS: length}}
        keys = f"{FEATURE}, {LOSS_WEIGHTS}, {FEATURE}_segment_ids, {FEATURE}_positions"
    for split in declaration.splits:
        if not len(cache[split]):
            lines.append(f"{split}: no texts")
            continue
        plan = packed(cache[split], **options)
        rows[split] = len(plan)
        totals = plan.totals[FEATURE]
        cut = f", {_shortened(totals.truncated_tokens)} tokens cut off" if totals.truncated_tokens else ""
        cut += f" (--max-tokens {length} leaves such conversations out, and counts them)" if cut else ""
        lines.append(
            f"{split}: {_shortened(totals.tokens_in)} tokens, {len(plan):,} row{'s' * (len(plan) != 1)} of {length:,}, "
            f"{100 * plan.waste:.2f} % waste{cut}"
        )
    if not rows:
        return lines
    split = next(iter(rows))
    where = spelled(f"{cache.path}/{split}")
    return [
        *lines,
        "",
        "from beam_pipes.loader import Loader, pack",
        f"rows = pack({where}, {', '.join(f'{name}={spelled(value)}' for name, value in options.items())})",
        f"for batch in Loader(rows, batch_size={min(8, rows[split])}): ...  # {keys}",
    ]


def _shortened(number: int) -> str:
    """`2_812_345` → `2.81 M`; up to 9,999 as it is."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size and number >= 10_000:
            return f"{number / size:.3g} {unit}" if number < 999.5 * size else f"{number / size:.0f} {unit}"
    return f"{number:,}"
