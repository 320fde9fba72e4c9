"""`beam-pipes inspect`: examples of a cache, the first batch of a loader, or a task's examples after each step.

beam-pipes inspect cache -n 1                               → a record, decoded
beam-pipes inspect cache --tokens tokenizer.json            → with ids as tokens: The| dog| is
beam-pipes inspect cache --split train --loader             → what a loader reads, and its first batch
beam-pipes inspect cache --loader --html loader.html        → the same as a page
beam-pipes inspect --task wmt --module-import my.tasks      → raw, after each step, converted
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
import typer
from rich.table import Table

from beam_pipes.cache import Cache
from beam_pipes.commands import MODULES_HELP, TOKENS_HELP
from beam_pipes.commands.caches import console
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.progress import counted
from beam_pipes.storage.local import output_file

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from beam_pipes.commands.inspect_task import Inspection
    from beam_pipes.format.spec import FeatureSpec
    from beam_pipes.tasks.vocabularies import Vocabulary


def inspect_command(
    path: Annotated[str | None, typer.Argument(help="cache directory")] = None,
    split: Annotated[str | None, typer.Option(help="split to show [all; for a task, the first]")] = None,
    count: Annotated[int, typer.Option("-n", "--num-examples", min=0, help="number of examples per split")] = 3,
    start: Annotated[int, typer.Option(min=0, help="index of the first example")] = 0,
    where: Annotated[
        str | None, typer.Option("--where", help='show only examples that meet this condition, such as "score > 0.8"')
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="show a registered task instead of a cache")] = None,
    module_import: Annotated[list[str] | None, typer.Option("--module-import", help=MODULES_HELP)] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help=TOKENS_HELP)] = None,
    loader: Annotated[bool, typer.Option("--loader", help="show what a loader reads, and its first batch")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="with --loader: rows of a batch")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="with --loader: seed of the order")] = 0,
    sequence_length: Annotated[
        str | None,
        typer.Option(
            help="maximum lengths, such as inputs=512,targets=128; with --loader, pack rows of them [the longest shown]"
        ),
    ] = None,
    converter: Annotated[
        str, typer.Option(help="name of a feature converter, or none [chosen from the task's features]")
    ] = "auto",
    html: Annotated[str | None, typer.Option(help="write a self-contained HTML page to this file")] = None,
) -> None:
    """Show a cache's decoded examples, a loader's first batch, or a task's examples after each step.

    Example: beam-pipes inspect .demo/python_source --split eval -n 1

    Example: beam-pipes inspect .demo/python_source --where "len(tokens) > 200"

    Example: beam-pipes inspect .demo/python_source --split train --loader --sequence-length tokens=2048 --tokens bytes

    Example: beam-pipes inspect .demo/python_source --split train --loader --html loader.html

    Example: beam-pipes inspect --task wmt_de_en --module-import my.tasks --html wmt.html
    """
    if (path is None) == (task is None):
        raise DeclarationError("name what to inspect: either the directory of a cache, or --task NAME.")
    if path is None:
        assert task is not None
        if where is not None:
            raise DeclarationError("--where chooses examples of a cache: name its directory instead of --task NAME.")
        if loader or tokens is not None:
            raise DeclarationError(
                "--loader and --tokens show a cache: name its directory instead of --task NAME. A task knows its "
                "vocabularies, and shows texts without them."
            )
        show_task(
            task,
            modules=module_import or (),
            split=split,
            num_examples=count,
            sequence_length=sequence_length,
            converter=converter,
            html=html,
        )
        return
    of_tasks: dict[str, str | None] = {"--sequence-length": sequence_length, "--html": html, "--converter": converter}
    if loader:
        del of_tasks["--sequence-length"], of_tasks["--html"]
    if given := [name for name, value in of_tasks.items() if value not in (None, "auto")]:
        raise DeclarationError(
            f"{', '.join(given)} belong to --task NAME, and {path!r} is a cache, whose examples are shown as they are. "
            f"`beam-pipes report {path}` writes a page about it."
        )
    cache = Cache.open(path)
    vocabulary = None
    if tokens is not None:
        from beam_pipes.recipes import open_tokenizer

        vocabulary = open_tokenizer(tokens)
    if loader:
        show_loader(
            cache,
            split,
            where=where,
            lengths=parse_lengths(sequence_length),
            batch_size=batch_size,
            seed=seed,
            num_rows=count,
            vocabulary=vocabulary,
            html=html,
        )
        return
    if split is None:
        for entry in cache.manifest.assets:
            console.print(f"{entry.file}: {entry.bytes:,} bytes", markup=False)
    for name in cache.splits if split is None else [split]:
        examples = cache[name] if where is None else cache[name].where(where)
        console.print(f"{name}: {counted(len(examples), 'record')}{'' if where is None else f' where {where}'}")
        for index in itertools.islice(range(start, len(examples)), count):
            console.print(f"  [{index}]", markup=False)
            for line in _lines(examples[index], _read_by(vocabulary, cache, name)):
                console.print(f"    {line}", markup=False)


Readers: TypeAlias = "Mapping[str, Callable[[npt.NDArray[np.int64]], str]]"


def _read_by(vocabulary: Vocabulary | None, cache: Cache, split: str) -> Readers:
    """Feature → the function that shows its ids as tokens, or its number as the name of a class."""
    spec: Mapping[str, FeatureSpec] = cache.manifest.splits[split].spec or {}
    readers: dict[str, Callable[[npt.NDArray[np.int64]], str]] = {
        name: functools.partial(_class_name, names)
        for name, feature in spec.items()
        if (names := feature.class_names) and not feature.shape
    }
    if vocabulary is None:
        return readers
    from beam_pipes.report.language import shown_tokens, token_features

    return readers | dict.fromkeys(token_features(cache, split), functools.partial(shown_tokens, vocabulary))


def _class_name(names: Sequence[str], number: npt.NDArray[np.int64]) -> str:
    return names[int(number)] if 0 <= int(number) < len(names) else "(of no known class)"


def _lines(value: object, readers: Readers) -> list[str]:
    if not isinstance(value, dict):
        return str(value).splitlines() if not isinstance(value, bytes) else [repr(value[:200])]
    lines = []
    for name, feature in value.items():
        lines.append(f"{name}: {_short(feature)}")
        if name in readers:
            lines.append(f"  {readers[name](feature)}")
    return lines


def show_loader(
    cache: Cache,
    split: str | None,
    *,
    where: str | None,
    lengths: dict[str, int] | None,
    batch_size: int,
    seed: int,
    num_rows: int,
    vocabulary: Vocabulary | None,
    html: str | None,
) -> None:
    """Prints what a loader over a split reads, and the first rows of its first batch, or writes a page about it."""
    from beam_pipes.commands.loading import split_of
    from beam_pipes.loader import Loader, pack
    from beam_pipes.report import loader_html
    from beam_pipes.report.language import shown_row, token_features

    chosen = split_of(cache, split)
    rows = chosen if where is None else chosen.where(where)
    source = rows if lengths is None else pack(rows, sequence_length=lengths, overlong="split")
    loader = Loader(source, batch_size=min(batch_size, max(1, len(source))), seed=seed)
    ids = [] if vocabulary is None else token_features(cache, chosen.name)
    if html is not None:
        page = loader_html(loader, num_rows=num_rows, vocabulary=vocabulary, tokens=ids)
        with output_file(html, errors="backslashreplace") as file:
            file.write(page)
        console.print(f"{html}: {loader.description.title}", markup=False)
        return
    console.print(loader.describe(), markup=False)
    batch = loader.batch_at(0)
    console.print("first batch: " + ", ".join(f"{name} {each.dtype}{list(each.shape)}" for name, each in batch.items()))
    for row in range(min(num_rows, loader.batch_size)):
        console.print(f"  [{row}]", markup=False)
        for name, array in batch.items():
            console.print(f"    {name}: {_short(array[row])}", markup=False)
            if vocabulary is not None and name in ids:
                for line in shown_row(vocabulary, batch, name, row):
                    console.print(f"      {line}", markup=False)


def _short(feature: object) -> str:
    if isinstance(feature, np.ndarray):
        text = np.array2string(feature, threshold=12, edgeitems=6, max_line_width=10**6)
        return f"{feature.dtype}{list(feature.shape)} {text}"
    if isinstance(feature, np.generic) and not isinstance(feature, np.str_ | np.bytes_):
        return f"{feature.dtype} {feature.item()!r}"
    text = repr(feature)
    return text if len(text) <= 200 else text[:199] + "…"


def show_task(
    name: str,
    *,
    modules: Sequence[str],
    split: str | None,
    num_examples: int,
    sequence_length: str | None,
    converter: str,
    html: str | None,
) -> None:
    """Prints a task's examples after each step, or writes them to an HTML file."""
    from beam_pipes.commands.inspect_task import inspect_task
    from beam_pipes.tasks import TaskRegistry
    from beam_pipes.tasks.caches.offline import import_modules

    import_modules(modules)
    task = TaskRegistry.get(name)
    inspection = inspect_task(
        task,
        split if split is not None else task.splits[0],
        num_examples=num_examples,
        sequence_length=parse_lengths(sequence_length),
        converter=None if converter == "none" else converter,
    )
    if html is not None:
        with output_file(html) as file:
            file.write(inspection.to_html())
        console.print(f"{html}: {name}, {len(inspection.stages)} stages.", markup=False)
    else:
        _print(inspection)


def parse_lengths(text: str | None) -> dict[str, int] | None:
    """`inputs=512,targets=128` → `{"inputs": 512, "targets": 128}`."""
    if text is None:
        return None
    lengths = {}
    for part in text.split(","):
        feature, equals, length = part.partition("=")
        if not equals or not length.strip().isdecimal():
            raise DeclarationError(f"--sequence-length should be like inputs=512,targets=128, got {text!r}.")
        lengths[feature.strip()] = int(length)
    return lengths


def _print(inspection: Inspection) -> None:
    from beam_pipes.commands.inspect_task import feature_lines

    console.print(f"{inspection.task}, split {inspection.split}", markup=False)
    for stage in inspection.stages:
        console.rule(f"{stage.title}: {len(stage.examples)} examples", align="left")
        if stage.error is not None:
            console.print(stage.error, markup=False, style="red")
        for number, example in enumerate(stage.examples):
            table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
            for column in ("number", "feature", "type"):
                table.add_column(column, no_wrap=True)
            table.add_column("value", overflow="fold")
            for line, (feature, kind, value) in enumerate(feature_lines(example)):
                table.add_row(f"[{number}]" if not line else "", feature, kind, value)
            console.print(table)
