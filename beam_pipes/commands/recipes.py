"""`beam-pipes tokens`, `images`, `audio` and `table`: recipes from the command line, and their final summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from beam_pipes.analysis import Analyzer
from beam_pipes.building.declaration import Declaration
from beam_pipes.cache import Cache
from beam_pipes.commands.build import build_and_show
from beam_pipes.commands.caches import console, shown_classes
from beam_pipes.commands.options import Building, Declaring, with_groups
from beam_pipes.engine.account import Account
from beam_pipes.engine.statistics import Counter
from beam_pipes.errors import DeclarationError, EmptySplitError
from beam_pipes.recipes import DEDUP, FORMATS, Recipe, audio, chat, images, table, tokens
from beam_pipes.recipes.audio import CLIPPED, SOUND_DTYPES
from beam_pipes.recipes.images import ENCODINGS, FITS
from beam_pipes.recipes.texts import FEATURE, LOSS_WEIGHTS
from beam_pipes.recipes.written import spelled
from beam_pipes.runners.progress import counted
from beam_pipes.tasks.vocabularies.tokenizers import BACKENDS
from beam_pipes.transforms.image_files import MAX_PIXELS

CLASSES_HELP = "names of the classes in the order of their labels: NAME,NAME or a file of lines [sorted]"


@with_groups
def tokens_command(
    context: typer.Context,
    data: Annotated[
        list[str], typer.Argument(help="files, directories or globs of text, JSON Lines, Parquet, CSV or tar")
    ],
    tokenizer: Annotated[
        str, typer.Option(help="tokenizer.json, SentencePiece .model or .spm, tiktoken:NAME, tiktoken:PATH, bytes")
    ],
    declaring: Declaring,
    building: Building,
    data_format: Annotated[
        str | None, typer.Option("--format", help=f"data format: {', '.join(FORMATS)} [by suffix]")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="character between the fields of CSV [,]")] = None,
    text_field: Annotated[
        str | None,
        typer.Option(help="field that contains the text, or the messages [text or messages; of a tar txt or json]"),
    ] = None,
    keep_field: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:DTYPE: also store this field [as text] (repeatable)")
    ] = None,
    eos: Annotated[bool, typer.Option(help="append the end-of-text id")] = True,
    bos: Annotated[bool, typer.Option(help="prepend the beginning-of-text id")] = False,
    eos_token: Annotated[str | None, typer.Option(help="end-of-text token [from the tokenizer]")] = None,
    bos_token: Annotated[str | None, typer.Option(help="beginning-of-text token [from the tokenizer]")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="drop texts with fewer tokens")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="drop texts with more tokens")] = None,
    dedup: Annotated[
        str | None, typer.Option(help=f"keep only the first of duplicate texts: {', '.join(DEDUP)}")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help=f"what encodes with a tokenizer.json: {', '.join(BACKENDS)} [auto]")
    ] = None,
    parse_special: Annotated[
        bool | None,
        typer.Option(help="take special tokens that are spelled in the data for tokens [in messages, not in texts]"),
    ] = None,
    is_chat: Annotated[
        bool, typer.Option("--chat", help="read messages and also store loss weights, 1 for what the assistant says")
    ] = False,
    chat_template: Annotated[
        str | None, typer.Option(help="file with a Jinja chat template [the tokenizer's]; implies --chat")
    ] = None,
    tools_field: Annotated[str | None, typer.Option(help="field that describes tools, for --chat")] = None,
    only_last: Annotated[
        bool, typer.Option("--only-last", help="train on the assistant's last turn only, for --chat")
    ] = False,
    date: Annotated[str | None, typer.Option(help="today's date in chat templates that write one")] = None,
    pack_length: Annotated[int, typer.Option(min=1, help="row length in tokens for the packing forecast")] = 2048,
) -> None:
    """Build a cache of token ids from text or chat messages, ready for packing. Options after -- go to Beam.

    The suffix selects the format (.txt, .jsonl, .parquet, .csv, .tsv, .tar; optionally then .gz, .bz2 or .zst).

    Example: beam-pipes tokens corpus/*.jsonl.zst --tokenizer tokenizer.json --split train=0.99,eval=0.01 --to cache

    Example: beam-pipes tokens talks.jsonl --chat --tokenizer model --to cache

    Example: beam-pipes tokens notes.txt --tokenizer bytes --print-python > notes.py
    """
    keep = dict(_field(each) for each in keep_field or ())
    common = declaring.of_recipe("tokens")
    of_chat = {"--tools-field": tools_field, "--only-last": only_last or None, "--date": date}
    if is_chat or chat_template is not None:
        ends = {"--no-eos": not eos or None, "--eos-token": eos_token, "--bos": bos or None, "--bos-token": bos_token}
        _refuse(ends, "the chat template decides which tokens begin and end a text")
        _refuse({"--min-tokens": min_tokens, "--backend": backend}, "it is for texts, not messages")
        recipe = chat(
            data,
            tokenizer=tokenizer,
            template=chat_template,
            date=date,
            format=data_format,
            delimiter=delimiter,
            field=text_field,
            tools_field=tools_field,
            only_last=only_last,
            keep_fields=keep,
            max_tokens=max_tokens,
            dedup=dedup,
            parse_special=parse_special is not False,
            **common,
        )
    else:
        _refuse(of_chat, "it is for messages: add --chat")
        recipe = tokens(
            data,
            tokenizer=tokenizer,
            format=data_format,
            delimiter=delimiter,
            text_field=text_field,
            keep_fields=keep,
            eos=eos,
            bos=bos,
            eos_token=eos_token,
            bos_token=bos_token,
            min_tokens=min_tokens,
            max_tokens=max_tokens,
            dedup=dedup,
            backend=backend,
            parse_special=bool(parse_special),
            **common,
        )
    is_texts = not (is_chat or chat_template is not None)
    try:
        _build(
            recipe,
            declaring,
            building,
            context.obj or [],
            about=(lambda: _about(recipe, tokenizer, parse_special=bool(parse_special))) if is_texts else None,
            told=lambda cache, declaration: forecast_of_packing(cache, declaration, pack_length),
        )
    except EmptySplitError as error:
        dropping = {"--min-tokens": min_tokens, "--max-tokens": max_tokens, "--dedup": dedup}
        if given := [f"{option} {value}" for option, value in dropping.items() if value is not None]:
            error.add(f"Options that drop texts were given: {', '.join(given)}.")
        raise


@with_groups
def images_command(
    context: typer.Context,
    data: Annotated[
        list[str],
        typer.Argument(help="directory of images (folders are classes, or train, val and test), or tar archives"),
    ],
    declaring: Declaring,
    building: Building,
    resize: Annotated[
        str | None, typer.Option(help="SIZE of a square, or HEIGHTxWIDTH, in pixels [as they are]")
    ] = None,
    fit: Annotated[str, typer.Option(help=f"how images fit into that size: {', '.join(FITS)}")] = "crop",
    encode: Annotated[
        str | None,
        typer.Option(help=f"how images are stored: {', '.join(ENCODINGS)} [pixels with --resize, files without]"),
    ] = None,
    quality: Annotated[int, typer.Option(help="JPEG quality, 1 to 100")] = 90,
    background: Annotated[
        str, typer.Option(help="colour seen through transparent pixels; none takes the colours that they hide")
    ] = "white",
    max_pixels: Annotated[int, typer.Option(min=1, help="larger images fail, before they are decoded")] = MAX_PIXELS,
    label: Annotated[bool, typer.Option(help="store the number of an image's class as label")] = True,
    label_field: Annotated[
        str | None,
        typer.Option(help="tar member or json.KEY that is the label or class [cls, json.label, …, else the folder]"),
    ] = None,
    class_folder: Annotated[
        int | None, typer.Option(min=1, help="which folder of a path is the class, from 1 at the top [by the layout]")
    ] = None,
    classes: Annotated[str | None, typer.Option(help=CLASSES_HELP)] = None,
) -> None:
    """Build a cache of images and labels from folders or tar archives. Options after -- go to Beam.

    --by is a regular expression: images in whose paths it finds the same stay in one split.

    Example: beam-pipes images pets --resize 224 --split train=0.9,eval=0.1 --to cache

    Example: beam-pipes images shards/*.tar --resize 224 --label-field json.species --to cache

    Example: beam-pipes images scans --resize 512 --fit pad --by 'patient[0-9]+' --split train=0.8,eval=0.2 --to cache
    """
    recipe = images(
        data,
        resize=None if resize is None else _size(resize),
        fit=fit,
        encode=encode,
        quality=quality,
        background=background,
        max_pixels=max_pixels,
        label=label,
        label_field=label_field,
        class_folder=class_folder,
        classes=None if classes is None else _class_names(classes),
        **declaring.of_recipe("images"),
    )

    def told(cache: Cache, declaration: Declaration) -> list[str]:
        return [*_counts(cache, declaration), *_classes(recipe, cache)]

    _build(recipe, declaring, building, context.obj or [], told=told)


@with_groups
def audio_command(
    context: typer.Context,
    data: Annotated[
        list[str],
        typer.Argument(
            help="manifest (.jsonl, .csv, .tsv), directory of sound files with transcripts beside them, or tar archives"
        ),
    ],
    declaring: Declaring,
    building: Building,
    sample_rate: Annotated[int, typer.Option(help="sample rate in Hz; others are resampled")] = 16_000,
    audio_root: Annotated[str | None, typer.Option(help="directory of the sound files [that of the manifest]")] = None,
    audio_field: Annotated[str | None, typer.Option(help="manifest field that names the sound file [by name]")] = None,
    text_field: Annotated[
        str | None, typer.Option(help="manifest field, tar member or json.KEY that is the transcript [by name]")
    ] = None,
    keep_field: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:DTYPE: also store this field [as text] (repeatable)")
    ] = None,
    dtype: Annotated[str, typer.Option(help=f"dtype of samples: {', '.join(SOUND_DTYPES)}")] = "float32",
    min_secs: Annotated[float | None, typer.Option(help="drop shorter files")] = None,
    max_secs: Annotated[float | None, typer.Option(help="drop longer files")] = None,
) -> None:
    """Build a cache of sound and transcripts from WAV, FLAC, OGG, MP3 or AIFF. Options after -- go to Beam.

    A manifest with offset and duration (in seconds) names pieces of files. A directory's transcripts are its
    *.trans.txt (LibriSpeech), metadata.csv or metadata.jsonl (LJSpeech, audiofolder), wav.scp and text (Kaldi), or .txt
    and .lab files beside the sound; those of a tar archive (WebDataset) are the .txt or .json beside each sound file.

    Example: beam-pipes audio manifest.jsonl --sample-rate 16000 --split train=0.95,eval=0.05 --by speaker --to cache

    Example: beam-pipes audio LibriSpeech/dev-clean --max-secs 20 --to cache

    Example: beam-pipes audio talks/*.tar --keep-field json.speaker --to cache
    """
    recipe = audio(
        data,
        sample_rate=sample_rate,
        audio_root=audio_root,
        audio_field=audio_field,
        text_field=text_field,
        keep_fields=dict(_field(each) for each in keep_field or ()),
        dtype=dtype,
        min_secs=min_secs,
        max_secs=max_secs,
        **declaring.of_recipe("audio"),
    )

    def told(cache: Cache, declaration: Declaration) -> list[str]:
        lines = _counts(cache, declaration, sample_rate=sample_rate)
        if dtype == "int16" and (clipped := _clipped(cache)):
            lines.append(f"{counted(clipped, 'sample')} too loud for int16, clipped; --dtype float32 keeps them")
        return lines

    _build(recipe, declaring, building, context.obj or [], told=told)


@with_groups
def table_command(
    context: typer.Context,
    data: Annotated[list[str], typer.Argument(help="files, directories or globs of CSV, TSV, JSON Lines or Parquet")],
    declaring: Declaring,
    building: Building,
    label: Annotated[str | None, typer.Option(help="column to store as label; text becomes numbers")] = None,
    classes: Annotated[str | None, typer.Option(help=CLASSES_HELP)] = None,
    column_type: Annotated[
        list[str] | None,
        typer.Option("--type", help="COLUMN=DTYPE, or COLUMN=skip to leave it out [inferred] (repeatable)"),
    ] = None,
    data_format: Annotated[
        str | None, typer.Option("--format", help="data format: csv, json, parquet, tsv [by suffix]")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="character between the fields of CSV [,]")] = None,
    null: Annotated[
        list[str] | None,
        typer.Option(help="text that stands for a missing value in CSV and TSV, such as NA (repeatable)"),
    ] = None,
) -> None:
    """Build a cache of typed columns from CSV, TSV, JSON Lines or Parquet. Options after -- go to Beam.

    Example: beam-pipes table insects.csv --label species --split train=0.9,eval=0.1 --to cache

    Example: beam-pipes table visits/*.parquet --type day=skip --by user --split train=0.9,eval=0.1 --to cache
    """
    types = dict(_type(each) for each in column_type or ())
    recipe = table(
        data,
        label=label,
        classes=None if classes is None else _class_names(classes),
        types=types,
        format=data_format,
        delimiter=delimiter,
        null=null or (),
        **declaring.of_recipe("table"),
    )

    def told(cache: Cache, declaration: Declaration) -> list[str]:
        columns = ", ".join(f"{name} {dtype}" for name, dtype in recipe.names["types"].items())
        return [f"columns: {columns}", *_counts(cache, declaration), *_classes(recipe, cache)]

    _build(recipe, declaring, building, context.obj or [], told=told)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raises `DeclarationError` for given options that do not combine with the others."""
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
    told: Callable[[Cache, Declaration], list[str]],
) -> None:
    """Prints the module of a recipe, or builds it; the lines of `told` about the cache come last."""
    declaration = recipe.declaration()
    if declaring.print_python:
        typer.echo(recipe.python, nl=False)
        return
    if declaring.to is None:
        raise DeclarationError("name the directory of the cache: --to cache; or see the declaration: --print-python.")
    if about is not None:
        console.print(about(), markup=False)
    result = build_and_show(declaration, declaring.to, building=building, beam_args=beam_args)
    cache = Cache.open(result.path)
    split = declaration.splits[0]
    lines = [*_left_out(recipe), *told(cache, declaration)]
    loading = recipe.loading(f"{cache.path}/{split}", num_records=len(cache[split]))
    for line in [*lines, *([""] if loading else []), *loading]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _field(told: str) -> tuple[str, str]:
    name, _, dtype = told.partition(":")
    return name, dtype or "str"


def _type(told: str) -> tuple[str, str]:
    column, equals, dtype = told.rpartition("=")
    if not equals:
        raise DeclarationError(f"--type should be a column and its dtype, such as price=float32; got {told!r}.")
    return column, dtype


def _class_names(told: str) -> list[str]:
    """`cat,dog` → `["cat", "dog"]`; of a file its lines."""
    path = Path(told)
    names = path.read_text(encoding="utf-8").splitlines() if path.is_file() else told.split(",")
    if "" in names or len({*names}) < len(names):
        raise DeclarationError(
            f"--classes should be different names, such as cat,dog, or a file of them; got {told!r}."
        )
    return names


def _size(told: str) -> tuple[int, int]:
    """`224` → `(224, 224)`, `224x320` → `(224, 320)`."""
    height, _, width = told.lower().partition("x")
    try:
        return int(height), int(width or height)
    except ValueError:
        raise DeclarationError(
            f"--resize should be pixels, such as 224, or 224x320 (height first); got {told!r}."
        ) from None


def _counts(cache: Cache, declaration: Declaration, *, sample_rate: int | None = None) -> list[str]:
    """`train: 900 examples, 1.52 hours`."""
    lines = []
    for split in declaration.splits:
        line = f"{split}: {counted(len(cache[split]), 'example')}"
        if sample_rate is not None:
            line += f", {_duration(cache[split].lengths('audio').sum() / sample_rate)}"
        lines.append(line)
    return lines


def _clipped(cache: Cache) -> int:
    """How many samples `audio_example` has clipped."""
    statistics = Account.from_json(cache.manifest.accounting).statistics()
    return sum(each.count for each in statistics if isinstance(each, Counter) and each.name.endswith(CLIPPED))


def _duration(secs: float) -> str:
    """`5472.0` → `1.52 hours`, `90.0` → `1.50 minutes`, `3.5` → `3.50 seconds`."""
    size, unit = (3600, "hours") if secs >= 3600 else (60, "minutes") if secs >= 60 else (1, "seconds")
    return f"{secs / size:.2f} {unit}"


def _left_out(recipe: Recipe) -> list[str]:
    """`files left out, by suffix: 3 .gif, 1 without a suffix`."""
    counts = [f"{count:,} {suffix or 'without a suffix'}" for suffix, count in sorted(recipe.left_out.items())]
    return [f"files left out, by suffix: {', '.join(counts)}"] if counts else []


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
    told = "these tokens" if parse_special else "text (--parse-special: tokens)"
    return f"{about}, {by}. Special tokens that are spelled in texts are {told}."


def forecast_of_packing(cache: Cache, declaration: Declaration, length: int) -> list[str]:
    """A packing forecast for rows of `length` tokens, split by split, and the Python that loads them."""
    from beam_pipes.loader.packing import PackingPlan, pack

    packed: Callable[..., PackingPlan] = pack
    lines, keys, rows = list[str](), f"{FEATURE}, segment_ids, positions", dict[str, int]()
    options: dict[str, object] = {"sequence_length": length, "feature": FEATURE, "overlong": "split"}
    if LOSS_WEIGHTS in cache[declaration.splits[0]].spec:  # they share rows, and conversations are not split
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
