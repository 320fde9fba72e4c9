"""`beam-pipes tokens`: recipes from the command line, and what is said when they are done."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from beam_pipes.building.declaration import Declaration
from beam_pipes.cache import Cache
from beam_pipes.engine.execute import BUILD_POLICIES
from beam_pipes.errors import DeclarationError
from beam_pipes.loader.packing import pack
from beam_pipes.recipes import DEDUP, FEATURE, FORMATS, Recipe, tokens
from beam_pipes.runners.commands.build import build_and_show
from beam_pipes.runners.commands.options import Building, with_building
from beam_pipes.runners.commands.stats import console


@with_building
def tokens_command(
    context: typer.Context,
    data: Annotated[list[str], typer.Argument(help="files, directories or globs of text, JSON Lines, Parquet or CSV")],
    tokenizer: Annotated[
        str, typer.Option(help="tokenizer.json, SentencePiece .model or .spm, tiktoken:NAME, tiktoken:PATH, bytes")
    ],
    building: Building,
    to: Annotated[str | None, typer.Option("--to", help="cache directory")] = None,
    name: Annotated[str, typer.Option(help="name of the declaration and of the cache's files")] = "tokens",
    data_format: Annotated[
        str | None, typer.Option("--format", help=f"data format: {', '.join(FORMATS)} [by suffix]")
    ] = None,
    text_field: Annotated[str, typer.Option(help="field that contains the text")] = "text",
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
    split: Annotated[
        str | None, typer.Option(help="split fractions, such as train=0.99,eval=0.01 [all in train]")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="keep texts with equal values of this field in one split; also store it")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed for assigning splits")] = 0,
    on_error: Annotated[
        str, typer.Option(help=f"how to handle a failing record: {', '.join(BUILD_POLICIES)}")
    ] = "fail",
    pack_length: Annotated[int, typer.Option(min=1, help="row length in tokens for the packing forecast")] = 2048,
    print_python: Annotated[
        bool, typer.Option("--print-python", help="print the equivalent Python module without building")
    ] = False,
) -> None:
    """Build a cache of token ids from text, ready for packing. Options after -- go to Beam.

    The suffix selects the format (.txt, .jsonl, .parquet, .csv, .tsv; optionally then .gz, .bz2 or .zst).

    Example: beam-pipes tokens corpus/*.jsonl.zst --tokenizer tokenizer.json --split train=0.99,eval=0.01 --to cache

    Example: beam-pipes tokens notes.txt --tokenizer bytes --print-python > notes.py
    """
    recipe = tokens(
        data,
        tokenizer=tokenizer,
        name=name,
        format=data_format,
        text_field=text_field,
        keep_fields=dict(_field(each) for each in keep_field or ()),
        eos=eos,
        bos=bos,
        eos_token=eos_token,
        bos_token=bos_token,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        dedup=dedup,
        splits=None if split is None else _shares(split),
        by=by,
        seed=seed,
        on_error=on_error,
    )
    declaration = recipe.declaration()
    if print_python:
        typer.echo(recipe.python, nl=False)
        return
    if to is None:
        raise DeclarationError("name the directory of the cache: --to cache; or see the declaration: --print-python.")
    console.print(_about(recipe, tokenizer), markup=False)
    result = build_and_show(declaration, to, building=building, beam_args=context.obj or [])
    for line in forecast_of_packing(Cache.open(result.path), declaration, pack_length):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _field(told: str) -> tuple[str, str]:
    name, _, dtype = told.partition(":")
    return name, dtype or "str"


def _shares(told: str) -> dict[str, float]:
    """`train=0.99,eval=0.01` → `{"train": 0.99, "eval": 0.01}`."""
    shares: dict[str, float] = {}
    for each in told.split(","):
        name, _, share = each.partition("=")
        try:
            if name.strip() in shares:
                raise ValueError
            shares[name.strip()] = float(share)
        except ValueError:
            raise DeclarationError(
                f"--split should be names and shares, such as train=0.99,eval=0.01; got {told!r}."
            ) from None
    return shares


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
    lines = []
    for split in declaration.splits:
        if not len(cache[split]):
            lines.append(f"{split}: no texts")
            continue
        plan = pack(cache[split], sequence_length=length, feature=FEATURE, overlong="split")
        total = plan.totals[FEATURE].tokens_in
        lines.append(
            f"{split}: {_shortened(total)} tokens, {len(plan):,} rows of {length:,}, {100 * plan.waste:.2f} % waste"
        )
    where = json.dumps(f"{cache.path}/{declaration.splits[0]}", ensure_ascii=False)
    return [
        *lines,
        "",
        "from beam_pipes.loader import Loader, pack",
        f'rows = pack({where}, sequence_length={length}, feature="{FEATURE}", overlong="split")',
        "for batch in Loader(rows, batch_size=8): ...  # tokens, segment_ids, positions",
    ]


def _shortened(number: int) -> str:
    """`2_812_345` → `2.81 M`; up to 9,999 as it is."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size and number >= 10_000:
            return f"{number / size:.3g} {unit}" if number < 999.5 * size else f"{number / size:.0f} {unit}"
    return f"{number:,}"
