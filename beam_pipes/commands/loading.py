"""Commands about loading: `who`, `when`, `forget`, `blame`, `disclose` and `doctor-loader`.

They query a loader made from a saved state, or from equivalent options:

beam-pipes who cache --state state.json          → the loader that wrote the state
beam-pipes who cache --batch-size 32 --seed 7    → a loader with these options
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from beam_pipes.cache import Cache, Split
from beam_pipes.checks import choice
from beam_pipes.commands.caches import console
from beam_pipes.commands.options import with_groups
from beam_pipes.disclosure import FORMATS, disclose, facts_of, facts_of_run
from beam_pipes.engine.graph import brief
from beam_pipes.errors import BeamPipesError, CacheNotFoundError, LoaderError
from beam_pipes.identity.source_code import import_user_module
from beam_pipes.loader import Loader, LoaderState, Mixture, PackingPlan, RowPlace
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.from_state import loader_from_state, shared_features, shuffle_of_label, windows_of
from beam_pipes.loader.mixture import RowSource
from beam_pipes.loader.steps import Last
from beam_pipes.runners.progress import counted
from beam_pipes.storage.checked_json import strict_json
from beam_pipes.storage.local import output_file
from beam_pipes.telemetry import diagnose_loader

if TYPE_CHECKING:
    from beam_pipes.on_device.lambda_loader import ConvertedLoader

Paths = Annotated[list[str], typer.Argument(help="cache directory; for a mixture, several in the mixture's order")]
BatchSize = Annotated[int, typer.Option("--batch-size", help="number of rows in a global batch")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The options that say which run a loader belongs to."""

    state: Annotated[Path | None, typer.Option("--state", help="JSON file with the loader's state")] = None
    host_count: Annotated[int, typer.Option("--host-count", help="number of hosts that share a global batch")] = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """The options that say what a loader reads of its caches, and in which order."""

    last: Annotated[
        str, typer.Option("--last", help="how to handle the last, incomplete batch: drop, pad, partial")
    ] = "drop"
    plan: Annotated[list[Path] | None, typer.Option("--plan", help="packing plan file; one per source")] = None
    split: Annotated[
        str | None, typer.Option("--split", help="split of each cache [the only one] (without --state)")
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="seed of the order (without --state)")] = 0
    shuffle: Annotated[str, typer.Option("--shuffle", help="global, stored or blocks/<window> (without --state)")] = (
        "global"
    )
    rate: Annotated[
        list[float] | None, typer.Option("--rate", help="rate of each source of a mixture (without --state)")
    ] = None
    exhausted: Annotated[
        str,
        typer.Option(
            "--exhausted", help="when a source of a mixture is exhausted: repeat, stop or drop (without --state)"
        ),
    ] = "repeat"
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", help="condition that the loader's records meet; for a mixture, one per cache, or empty"
        ),
    ] = None
    windows: Annotated[
        list[str] | None,
        typer.Option(
            "--windows",
            help='arguments of Windows, such as "past=1, future=16"; for a mixture, one per cache, or empty',
        ),
    ] = None


def make_loader(
    paths: list[str],
    reading: Reading,
    run: Run,
    *,
    batch_size: int,
    workers: int = 0,
    transform: Callable[[Batch], Batch] | None = None,
) -> Loader:
    """A loader over the caches; reads no records."""
    last_rows = cast("Last", reading.last)  # the loader checks it
    state, rate, plans, conditions = run.state, reading.rate, reading.plan or [], reading.where or []
    windows = reading.windows or []
    for option, each in (("--where", conditions), ("--windows", windows)):
        if each and len(each) != len(paths):
            raise LoaderError(f"pass one {option} for each of the {len(paths)} caches, got {len(each)}.")
    if windows and plans:
        raise LoaderError("--plan packs records and --windows cuts them: pass the one that the run used.")
    if state is not None:
        if not state.is_file():
            raise LoaderError(f"expected the state of a loader at {str(state)!r}, but there is no such file.")
        saved = LoaderState.from_json(state.read_bytes())
        return loader_from_state(
            saved,
            paths,
            batch_size=batch_size,
            host_count=run.host_count,
            last=last_rows,
            plans=plans,
            conditions=conditions,
            windows=windows,
        )
    if plans and len(plans) != len(paths):
        raise LoaderError(f"pass one --plan for each of the {len(paths)} caches, got {len(plans)}.")
    sources: list[RowSource] = []
    for index, path in enumerate(paths):
        found = split_of(Cache.open(path), reading.split)
        if conditions and conditions[index]:
            found = found.where(conditions[index])
        if windows and windows[index]:
            sources.append(windows_of(found, windows[index]))
        else:
            sources.append(PackingPlan.load(plans[index], found) if plans else found)
    source: RowSource | Mixture
    if len(sources) == 1 and not rate:
        source = sources[0]
    else:
        if len(rate or ()) != len(sources):
            raise LoaderError(f"a mixture of {len(sources)} caches needs one --rate for each, got {len(rate or ())}.")
        source = Mixture(list(zip(sources, rate or (), strict=True)), exhausted=reading.exhausted)
    return Loader(
        source,
        batch_size=batch_size,
        seed=reading.seed,
        epochs=None,
        shuffle=shuffle_of_label(reading.shuffle),
        host_index=0,
        host_count=run.host_count,
        last=last_rows,
        features=shared_features(source),  # type: ignore[arg-type]
        workers=workers,
        transform=transform,
    )


def split_of(cache: Cache, split: str | None) -> Split:
    """The split of that name, or the only one if none is named. Raises `CacheNotFoundError` with the choices."""
    if split is not None:
        return cache[split]
    if len(cache.splits) != 1:
        raise CacheNotFoundError(f"{cache.path} has the splits {', '.join(cache.splits)}: choose one with --split.")
    return cache[cache.splits[0]]


@with_groups
def who_command(
    paths: Paths,
    step: Annotated[int, typer.Option("--step", help="training step, from 0")],
    batch_size: BatchSize,
    run: Run,
    reading: Reading,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the source records of a training step, using only the cache's index and the loader's state.

    Example: beam-pipes who .demo/python_source --split train --step 100 --batch-size 32 --seed 1

    Example: beam-pipes who .demo/python_source --split train --where "len(tokens) > 200" --step 10 --batch-size 32
    """
    loader = make_loader(paths, reading, run, batch_size=batch_size)
    found = loader.who(step)
    if as_json:
        console.print_json(strict_json([dataclasses.asdict(each) for each in found]))
        return
    table = Table("host", "row", "segment", "source record", title_justify="left")
    if len(paths) > 1:
        table.add_column("source")
    for heading in ("split", "record", "note"):
        table.add_column(heading)
    for each in found:
        note = ""
        if each.taken_down:
            note = f"taken down; in its place: {each.stands_in}" if each.stands_in else "taken down; left out"
        segment = "" if each.segment is None else str(each.segment)
        source = [str(each.source)] if len(paths) > 1 else []
        place = [str(each.host_index), str(each.index), segment, each.record_id, *source, each.split, str(each.record)]
        table.add_row(*place, note)
    console.print(table)
    for number, path in enumerate(paths if len(paths) > 1 else []):
        console.print(f"source {number}: {path}", markup=False)
    rows = len({each.position for each in found})
    epoch = f"epoch {found[0].epoch}" if found else "no epoch"
    gone = sum(each.taken_down for each in found)
    taken_down = f", {gone} of them taken down" if gone else ""
    console.print(f"step {step} ({epoch}): {counted(len(found), 'record')} in {counted(rows, 'row')}{taken_down}.")


@with_groups
def when_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    paths: Paths,
    batch_size: BatchSize,
    epochs: Annotated[
        int,
        typer.Option("--epochs", min=1, help="number of epochs to search, from the first; not for an endless mixture"),
    ] = 1,
    last_step: Annotated[
        int | None, typer.Option("--last-step", min=0, help="last step to search; required for an endless mixture")
    ] = None,
    *,
    run: Run,
    reading: Reading,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the training steps that deliver a source record: the inverse of `who`.

    Example: beam-pipes when abc.py@0 .demo/python_source --split train --batch-size 32 --seed 1 --epochs 3
    """
    loader = make_loader(paths, reading, run, batch_size=batch_size)
    found = loader.when_record(record, epochs=epochs, last_step=last_step)
    if as_json:
        console.print_json(strict_json([dataclasses.asdict(each) for each in found]))
        return
    for each in found:
        place = f"epoch {each.epoch}, step {each.step}: host {each.host_index}, row {each.index} of its batch"
        source = f", source {each.source} ({paths[each.source]})" if len(paths) > 1 else ""
        note = f"; in the place of {each.stands_in_for}, which is taken down" if each.stands_in_for else ""
        note = "; not any more: taken down" if each.taken_down else note
        console.print(f"{place}{source}{note}", markup=False)
    console.print(_in_words(record, found, loader, epochs, last_step), markup=False)


def _in_words(record: str, found: list[RowPlace], loader: Loader, epochs: int, last_step: int | None) -> str:
    """A sentence with the count: `a.txt@0: delivered 3 times in epochs 0 to 2.`"""
    delivered = sum(not each.taken_down for each in found)
    if loader.steps_per_epoch is None:
        where = f"in steps {loader.first_known_step} to {last_step}"
    else:
        where = "in epoch 0" if epochs == 1 else f"in epochs 0 to {epochs - 1}"
        where += "" if last_step is None else f" up to step {last_step}"
        where += f" from step {loader.first_known_step} on" if loader.first_known_step else ""
    text = f"{record}: delivered {delivered} time{'' if delivered == 1 else 's'} {where}"
    if loader.first_known_step:
        text += "; earlier steps cannot be computed, because the rates of the mixture changed there"
    if len(found) > delivered:
        text += f"; {len(found) - delivered} more before it was taken down"
    return text + "."


@with_groups
def forget_command(
    paths: Paths,
    ids: Annotated[Path, typer.Option("--ids", help="file with one id per line: file@position, or a whole file")],
    batch_size: BatchSize,
    last_step: Annotated[
        int | None, typer.Option("--last-step", min=0, help="last step that was trained [the one before --state]")
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints", help="steps of checkpoints, such as 1000,2000, or a directory with states of loaders"
        ),
    ] = None,
    statement: Annotated[Path | None, typer.Option("--statement", help="file for the report as Markdown")] = None,
    search: Annotated[
        list[Path] | None,
        typer.Option("--search", help="directory with exports or copies, to be searched for the records (repeatable)"),
    ] = None,
    *,
    run: Run,
    reading: Reading,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Report what a run has read of some records, which checkpoint is clean, and what holds traces of them.

    Nothing is changed: beam-pipes takedown hides the records. A checkpoint after 1000 steps has read steps 0 to 999.

    Example: beam-pipes forget cache --ids ids.txt --state state.json --batch-size 32 --checkpoints 1000,2000
    """
    from beam_pipes.commands.records import read_ids
    from beam_pipes.report import forgetting

    loader = make_loader(paths, reading, run, batch_size=batch_size)
    if last_step is None:
        if run.state is None:
            raise LoaderError("say up to which step the run was trained: --last-step, or its last state (--state).")
        if loader.step == 0:
            raise LoaderError(f"{str(run.state)!r} is the state of a run that has not read a step.")
        last_step = loader.step - 1
    made = forgetting(
        loader,
        paths,
        read_ids(ids),
        last_step=last_step,
        checkpoints=_checkpoints(checkpoints, loader),
        search=[*map(str, search or ())],
    )
    if statement is not None:
        with output_file(statement) as file:
            file.write(made.statement())
    if as_json:
        console.print_json(strict_json(made.to_json()))
        return
    for line in made.lines():
        console.print(line, markup=False)


@with_groups
def disclose_command(
    paths: Paths,
    out: Annotated[Path, typer.Option("--out", help="directory to write the documents to")],
    formats: Annotated[
        list[str] | None, typer.Option("--format", help=f"one of: {', '.join(sorted(FORMATS))} (repeatable) [all]")
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="last state of a run over these caches: also say what it has read")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="with --run: number of rows in a global batch")
    ] = None,
    last: Annotated[str, typer.Option("--last", help="with --run: drop, pad or partial last batches")] = "drop",
    plan: Annotated[list[Path] | None, typer.Option("--plan", help="with --run: packing plan, one per source")] = None,
    where: Annotated[list[str] | None, typer.Option("--where", help="with --run: condition, one per cache")] = None,
    windows: Annotated[
        list[str] | None, typer.Option("--windows", help="with --run: arguments of Windows, one per cache")
    ] = None,
) -> None:
    """Write what caches hold, where it came from and what a run has read, for regulators and catalogues.

    What only people know is left to be completed, and listed. The same caches give the same files.

    Example: beam-pipes disclose .demo/python_source --out disclosure

    Example: beam-pipes disclose books web --run state.json --batch-size 256 --format eu --out disclosure
    """
    if run is None:
        facts = facts_of([Cache.open(path) for path in paths])
    elif batch_size is None:
        raise LoaderError("--run needs the --batch-size of the run: a state does not hold it.")
    else:
        reading = Reading(last=last, plan=plan, where=where, windows=windows)
        facts = facts_of_run(make_loader(paths, reading, Run(state=run), batch_size=batch_size))
    for path in disclose(facts, out, formats=formats or list(FORMATS)):
        console.print(path, markup=False)


def _checkpoints(given: str | None, loader: Loader) -> dict[int, str]:
    """Steps done → name: from numbers, or from the states in a directory."""
    if given is None:
        return {}
    steps = given.split(",")
    if all(step.strip().isdecimal() for step in steps):
        return {int(step): f"that of step {int(step):,}" for step in steps}
    if not Path(given).is_dir():
        raise LoaderError(
            "--checkpoints should be steps, such as 1000,2000, or a directory with states of loaders (JSON), "
            f"got {given!r}."
        )
    found: dict[int, str] = {}
    for file in sorted(Path(given).rglob("*.json")):
        try:
            state = LoaderState.from_json(file.read_bytes())
        except BeamPipesError:
            continue  # other JSON of a checkpoint
        other = copy.copy(loader)
        other.restore(state)
        found[other.step] = str(file.relative_to(given))
    if not found:
        raise LoaderError(
            f"there is no state of a loader in {given!r}: JSON as json.dumps(loader.state_dict()) has it."
        )
    return found


def blame_command(
    run: Annotated[str, typer.Argument(help="directory of a LossRecorder")],
    step: Annotated[int | None, typer.Option("--step", min=0, help="training step, from 0")] = None,
    never_falls: Annotated[
        bool, typer.Option("--never-falls", help="records read 3 times or more whose loss never fell by a tenth")
    ] = False,
    count: Annotated[int, typer.Option("-n", "--num-rows", min=1, help="number of rows to show")] = 5,
    caches: Annotated[
        list[str] | None, typer.Option("--cache", help="where a cache of the run is now; one per source [as recorded]")
    ] = None,
    plan: Annotated[list[Path] | None, typer.Option("--plan", help="packing plan file; one per source")] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="condition that the loader's records meet; one per source")
    ] = None,
    windows: Annotated[
        list[str] | None, typer.Option("--windows", help="arguments of Windows; one per source [as recorded]")
    ] = None,
    tokens: Annotated[str | None, typer.Option(help="tokenizer of the cache, to show ids as tokens")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="file: write a page that also has the pictures and sound of the rows")
    ] = None,
) -> None:
    """Rank the rows of a training step by recorded losses, with what they hold and where else they are.

    The rows of a step whose losses were not recorded are shown without.

    Example: beam-pipes blame run/losses --step 1234

    Example: beam-pipes blame run/losses --step 1234 --html spike.html

    Example: beam-pipes blame run/losses --never-falls --tokens tokenizer.json
    """
    from beam_pipes.recipes import open_tokenizer
    from beam_pipes.report.blame import Blame, BlamedRow, blame, blame_html, never_falling, never_falling_lines
    from beam_pipes.telemetry import RecordedLosses

    if (step is None) != never_falls:
        raise LoaderError("say either which step to explain, --step 1234, or --never-falls.")
    losses = RecordedLosses(run)
    recorded = losses.run
    if recorded.batch_size is None:
        raise LoaderError(
            f"the run in {run!r} cuts batches by tokens, which is not among the options of commands. In Python: "
            "blame(loader, step, losses=RecordedLosses(directory))."
        )
    loader = loader_from_state(
        LoaderState.from_dict(recorded.state),
        caches or recorded.caches,
        batch_size=recorded.batch_size,
        host_count=recorded.host_count,
        last=cast("Last", recorded.last),
        plans=plan or [],
        conditions=where or [],
        windows=windows or recorded.windows,
    )
    vocabulary = None if tokens is None else open_tokenizer(tokens)
    if step is None:
        found: Blame | tuple[BlamedRow, ...] = never_falling(loader, losses, count=count, vocabulary=vocabulary)
    else:
        found = blame(loader, step, losses=losses, count=count, vocabulary=vocabulary)
    shown = found.to_json() if isinstance(found, Blame) else [each.to_json() for each in found]
    lines = found.lines() if isinstance(found, Blame) else never_falling_lines(found)
    if html is not None:
        with output_file(html, errors="backslashreplace") as file:
            file.write(blame_html(loader, found))
    if as_json:
        console.print_json(strict_json(shown))
        return
    for line in lines:
        console.print(line, markup=False)
    if html is not None:
        console.print(f"With pictures and sound: {html}", markup=False, soft_wrap=True)


FRAMEWORKS = {"jax": "JaxDataLoader", "torch": "TorchDataLoader", "numpy": "NumpyDataLoader"}


@with_groups
def doctor_loader_command(
    paths: Paths,
    batch_size: BatchSize = 32,
    step_ms: Annotated[
        float | None, typer.Option("--step-ms", help="duration of a training step without input, in milliseconds")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help=f"convert batches: {', '.join(FRAMEWORKS)}")] = None,
    prefetch: Annotated[
        int, typer.Option("--prefetch", help="with --to: number of batches to prefetch to the device")
    ] = 0,
    workers: Annotated[int, typer.Option("--workers", help="number of threads that prepare batches ahead")] = 0,
    transform: Annotated[
        str | None, typer.Option("--transform", help="package.module:function applied to each batch")
    ] = None,
    batches: Annotated[int, typer.Option("--batches", help="number of batches to measure")] = 20,
    *,
    reading: Reading,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Report whether training from a cache would be input-bound, and which loading stage costs most.

    Example: beam-pipes doctor-loader .demo/python_source --split train --batch-size 32 --step-ms 20
    """
    loader = make_loader(
        paths,
        reading,
        Run(),
        batch_size=batch_size,
        workers=workers,
        transform=None if transform is None else _function(transform),
    )
    if to is None and prefetch:
        raise LoaderError("--prefetch keeps batches ready on a device: choose one with --to, or use --workers.")
    read = loader if to is None else _converted(loader, to, prefetch)
    found = diagnose_loader(read, step_ms=step_ms, batches=batches)
    if as_json:
        console.print_json(strict_json(found.to_json()))
    else:
        console.print(str(found), markup=False)


def _converted(loader: Loader, to: str, prefetch: int) -> Iterable[object]:
    choice(to, of=FRAMEWORKS, what="--to", error=LoaderError)
    made: ConvertedLoader = getattr(importlib.import_module("beam_pipes.on_device"), FRAMEWORKS[to])(loader)
    if not prefetch:
        return made
    if to == "numpy":
        raise LoaderError("--prefetch needs --to jax or torch; use --workers to prepare NumPy batches ahead.")
    prefetched: Iterable[object] = made.prefetch_to_devices(prefetch)
    return prefetched


def _function(reference: str) -> Callable[[Batch], Batch]:
    name, colon, attribute = reference.partition(":")
    function = getattr(import_user_module(name, reference=reference), attribute, None) if colon and name else None
    if not callable(function):
        raise LoaderError(f"expected --transform to name a function as package.module:function, got {reference!r}.")

    def transformed(batch: Batch) -> Batch:
        try:
            made: Batch = function(batch)
        except BeamPipesError:
            raise
        except Exception as error:
            raise LoaderError(
                f"--transform {reference} fails on a batch of {len(next(iter(batch.values()), ()))} rows: "
                f"{type(error).__name__}: {error}. It should take a dict of arrays, also one without rows, and "
                "return one."
            ) from error
        if not isinstance(made, Mapping):
            raise LoaderError(f"--transform {reference} should return a dict of arrays, got {brief(made)}.")
        return made

    return transformed
