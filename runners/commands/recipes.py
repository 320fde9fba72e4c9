"""`beam-pipes tokens`, `images`, `audio` and `table`: recipes from the command line, and what they say when done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from beam_pipes.building.declaration import Declaration
from beam_pipes.cache import Cache
from beam_pipes.errors import DeclarationError
from beam_pipes.recipes import DEDUP, FORMATS, Recipe, chat, tokens
from beam_pipes.recipes.texts import FEATURE, LOSS_WEIGHTS
from beam_pipes.recipes.written import spelled
from beam_pipes.runners.commands.build import build_and_show
from beam_pipes.runners.commands.caches import console
from beam_pipes.runners.commands.options import Building, Declaring, with_building


@with_building
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
        _refuse({"--min-tokens": min_tokens}, "it is for texts, not messages")
        recipe = chat(
            data,
            tokenizer=tokenizer,
            template=chat_template,
            date=date,
            format=data_format,
            field=text_field,
            tools_field=tools_field,
            only_last=only_last,
            keep_fields=keep,
            max_tokens=max_tokens,
            dedup=dedup,
            **common,
        )
    else:
        _refuse(of_chat, "it is for messages: add --chat")
        recipe = tokens(
            data,
            tokenizer=tokenizer,
            format=data_format,
            text_field=text_field,
            keep_fields=keep,
            eos=eos,
            bos=bos,
            eos_token=eos_token,
            bos_token=bos_token,
            min_tokens=min_tokens,
            max_tokens=max_tokens,
            dedup=dedup,
            **common,
        )
    is_texts = not (is_chat or chat_template is not None)
    _build(
        recipe,
        declaring,
        building,
        context.obj or [],
        about=(lambda: _about(recipe, tokenizer)) if is_texts else None,
        told=lambda cache, declaration: forecast_of_packing(cache, declaration, pack_length),
    )


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Raises `DeclarationError` for options that are given and do not go with the others."""
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
    """Prints the module of a recipe, or builds it; what `told` says of the cache comes last."""
    declaration = recipe.declaration()
    if declaring.print_python:
        typer.echo(recipe.python, nl=False)
        return
    if declaring.to is None:
        raise DeclarationError("name the directory of the cache: --to cache; or see the declaration: --print-python.")
    if about is not None:
        console.print(about(), markup=False)
    result = build_and_show(declaration, declaring.to, building=building, beam_args=beam_args)
    for line in told(Cache.open(result.path), declaration):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _field(told: str) -> tuple[str, str]:
    name, _, dtype = told.partition(":")
    return name, dtype or "str"


def _about(recipe: Recipe, tokenizer: str) -> str:
    """`tokenizer.json: 32,000 ids, encoded by tiktoken.`"""
    vocabulary = recipe.vocabulary
    about = f"{tokenizer}: {vocabulary.vocab_size:,} ids"
    backend = getattr(vocabulary, "backend", None)
    if backend is None:
        return f"{about}."
    reason = getattr(vocabulary, "backend_reason", "")
    return f"{about}, encoded by {backend}{f', because {reason}' if reason else ', with the ids of tokenizers'}."


def forecast_of_packing(cache: Cache, declaration: Declaration, length: int) -> list[str]:
    """What packing rows of `length` tokens would give, split by split, and the Python that loads them."""
    from beam_pipes.loader.packing import pack

    lines, keys = list[str](), [FEATURE]
    options: dict[str, Any] = {"sequence_length": length, "feature": FEATURE, "overlong": "split"}
    if LOSS_WEIGHTS in cache[declaration.splits[0]].spec:  # they share rows, and conversations are not split
        options, keys = {"sequence_length": {FEATURE: length, LOSS_WEIGHTS: length}}, [FEATURE, LOSS_WEIGHTS]
    for split in declaration.splits:
        if not len(cache[split]):
            lines.append(f"{split}: no texts")
            continue
        plan = pack(cache[split], **options)
        totals = plan.totals[FEATURE]
        cut = f", {_shortened(totals.truncated_tokens)} tokens cut off" if totals.truncated_tokens else ""
        lines.append(
            f"{split}: {_shortened(totals.tokens_in)} tokens, {len(plan):,} rows of {length:,}, "
            f"{100 * plan.waste:.2f} % waste{cut}"
        )
    where = spelled(f"{cache.path}/{declaration.splits[0]}")
    return [
        *lines,
        "",
        "from beam_pipes.loader import Loader, pack",
        f"rows = pack({where}, {', '.join(f'{name}={spelled(value)}' for name, value in options.items())})",
        f"for batch in Loader(rows, batch_size=8): ...  # {', '.join([*keys, 'segment_ids', 'positions'])}",
    ]


def _shortened(number: int) -> str:
    """`2_812_345` → `2.81 M`; up to 9,999 as it is."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size and number >= 10_000:
            return f"{number / size:.3g} {unit}" if number < 999.5 * size else f"{number / size:.0f} {unit}"
    return f"{number:,}"
