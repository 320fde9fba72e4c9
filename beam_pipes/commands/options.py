"""The options of `build`, `plan` and recipes that choose the runner and how it runs, and the options object of a
runner.

Options of several commands are declared once, as a dataclass: `Running` has those that choose a runner,
`Building` those of every command that builds. `with_groups` adds them to a command, and those of recipes, which
`recipes/options.py` declares.

Shared by the commands for tasks: how tasks are selected and reported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_type_hints

import typer

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import DEFAULT_KEEP
from beam_pipes.checks import choice
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.options import BeamOptions, LocalOptions, arguments_of
from beam_pipes.runners.portable import ENVIRONMENT_TYPES, PortableOptions
from beam_pipes.runners.progress import KINDS, counted

if TYPE_CHECKING:  # most uses of these commands name no tasks, and start faster without the import
    from _typeshed import DataclassInstance

    from beam_pipes.recipes.options import Option
    from beam_pipes.tasks.caches.cache_tasks import TaskCache

RUNNERS = ("local", "direct", "dataflow", "portable", "prism", "flink", "slurm", "kubernetes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Running:
    """The options that choose the runner and how it works. A field is an option: its name, its help and its default."""

    runner: Annotated[str, typer.Option(help=f"runner: {', '.join(RUNNERS)}")] = "local"
    workers: Annotated[
        int | None, typer.Option(help="local: worker processes [all cores]; slurm, kubernetes: jobs of the array")
    ] = None
    job_endpoint: Annotated[str | None, typer.Option(help="HOST:PORT of a running job server [portable, flink]")] = None
    environment_type: Annotated[
        str | None, typer.Option(help=f"how workers are started: {', '.join(ENVIRONMENT_TYPES)} [LOOPBACK]")
    ] = None
    environment_config: Annotated[
        str | None, typer.Option(help="worker pool HOST:PORT (EXTERNAL), image (DOCKER) or JSON (PROCESS)")
    ] = None
    parallelism: Annotated[int | None, typer.Option(help="worker processes per machine; on Flink, task slots")] = None
    shared_files: Annotated[
        bool, typer.Option("--shared-files", help="remote workers see this machine's files at the same paths")
    ] = False
    prism_location: Annotated[
        str | None, typer.Option(help="path of the prism binary [next to Python, or on PATH]")
    ] = None
    flink_master: Annotated[str | None, typer.Option(help="HOST:PORT of the Flink cluster [the job server's own]")] = (
        None
    )
    flink_job_server_jar: Annotated[
        str | None, typer.Option(help="Beam's Flink job server to start: a jar, or a directory of jars")
    ] = None

    def options(self, beam_args: Sequence[str]) -> LocalOptions | BeamOptions:
        """The options object of the runner. Raises `DeclarationError`."""
        choice(self.runner, of=RUNNERS, what="--runner")
        names = [field.name for field in dataclasses.fields(Running) if field.name not in ("runner", "workers")]
        of_servers = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in of_servers.items() if value is not None and value is not False}
        _require_own(self.runner, list(given))
        if self.runner == "local":
            if beam_args:
                raise DeclarationError(
                    f"options after -- go to Beam, which the local runner does not use: {' '.join(beam_args)}. "
                    "Choose --runner direct, or leave them out."
                )
            return LocalOptions(workers=self.workers)
        if self.runner in ("slurm", "kubernetes"):
            from beam_pipes.runners.clusters import KubernetesOptions, SlurmOptions

            workers = [] if self.workers is None else [f"--workers={self.workers}"]
            kind = SlurmOptions if self.runner == "slurm" else KubernetesOptions
            return kind.from_args([*workers, *beam_args])
        if self.workers is not None:
            raise DeclarationError(
                f"--workers belongs to --runner local, slurm and kubernetes; {self.runner!r} takes Beam's options "
                "after --."
            )
        if self.runner == "dataflow":
            from beam_pipes.runners.dataflow import DataflowOptions

            return DataflowOptions.from_args(beam_args)
        if self.runner != "direct":
            named = [f"--{name}={value}" for name, value in given.items()]
            return portable_options()[self.runner].from_args([*named, *beam_args])
        return BeamOptions(runner="DirectRunner", beam_args=tuple(beam_args))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Building(Running):
    """The options of every command that builds."""

    accept_code_change: Annotated[
        bool, typer.Option("--accept-code-change", help="build even if a stage's code changed but its version did not")
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="rebuild everything; keep the present snapshot until done")
    ] = False
    report: Annotated[bool | None, typer.Option(help="write report.html next to the manifest [for local caches]")] = (
        None
    )
    progress: Annotated[
        str | None,
        typer.Option(help=f"progress display: {', '.join(KINDS)} [stages on a terminal, log elsewhere]"),
    ] = None
    attempts: Annotated[
        int,
        typer.Option(min=1, help="maximum number of jobs to submit if workers or servers are lost; not local"),
    ] = 1
    detach: Annotated[
        bool,
        typer.Option("--detach", help="return once the job runs; see `beam-pipes jobs` [portable, flink, dataflow]"),
    ] = False
    plan: Annotated[
        str | None, typer.Option(help="plan saved by `beam-pipes plan --save`; refuse to build anything else")
    ] = None
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="number of old snapshots to keep besides the published one")
    ] = DEFAULT_KEEP

    def options(self, beam_args: Sequence[str]) -> LocalOptions | BeamOptions:
        """The options object of the runner. Raises `DeclarationError`."""
        options = super().options(beam_args)
        if self.attempts == 1 and not self.detach:
            return options
        if isinstance(options, LocalOptions):
            raise DeclarationError(
                f"{'--detach' if self.detach else '--attempts'} belongs to jobs of Beam's runners; 'local' runs in "
                "this process. Leave it out; a build that was stopped is run again by the same command."
            )
        return dataclasses.replace(options, attempts=self.attempts, detach=self.detach)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaring:
    """Options of the recipe commands besides the recipes' own."""

    to: Annotated[str | None, typer.Option("--to", help="cache directory")] = None
    print_python: Annotated[
        bool, typer.Option("--print-python", help="print the equivalent Python module without building")
    ] = False


#: Argument of a recipe → its value, for the arguments given; `Annotated[Given, "recipe"]` in a command.
Given: TypeAlias = "dict[str, Any]"


def _options_of(recipe: Callable[..., object]) -> dict[str, tuple[inspect.Parameter, Option]]:
    """The arguments of a recipe that are options, those of all recipes included, as typer takes them."""
    from beam_pipes.recipes.written import Common, CommonOptions

    own = inspect.signature(recipe).parameters
    annotations = {name: each.annotation for name, each in own.items() if each.annotation.startswith("Annotated[")}
    marked = {name: eval(text, getattr(recipe, "__globals__", {})) for name, text in annotations.items()}
    defaults: dict[str, object] = {name: own[name].default for name in marked}
    defaults |= {field.name: field.default for field in dataclasses.fields(Common)} | {"name": None}
    found: dict[str, tuple[inspect.Parameter, Option]] = {}
    for name, mark in {**marked, **get_type_hints(CommonOptions, include_extras=True)}.items():
        declared, option = get_args(mark)
        default = defaults[name]
        if name in own and own[name].kind is not inspect.Parameter.KEYWORD_ONLY:
            kind: object = Annotated[list[str], typer.Argument(help=option.help)]
        else:
            names = () if option.name is None else (option.name,)
            shown = typer.Option(*names, help=option.help, min=option.least)
            kinds = [each for each in get_args(declared) or (declared,) if each in (str, int, float, bool)]
            if option.read is not None or option.repeated:
                kinds, default = [list[str] if option.repeated else str], None
            kind = Annotated[Union[tuple([*kinds, *[type(None)] * (default is None)])], shown]  # noqa: UP007
        found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default), option
    return found


def _read(options: Mapping[str, tuple[inspect.Parameter, Option]], given: dict[str, object]) -> Given:
    """Extracts a recipe's arguments from the given ones; a list that was not given keeps the recipe's default."""
    values = {name: given.pop(name) for name in options}
    return {
        name: value if (read := options[name][1].read) is None else read(value)
        for name, value in values.items()
        if value is not None
    }


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Marks a command that takes options in groups, or those of a recipe: `expanded` when it is used."""
    command.expanded = functools.partial(expanded, command)  # type: ignore[attr-defined]
    return command


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer sees it: a parameter of a dataclass, such as `Building`, is replaced by the options in it, and
    one of `Annotated[Given, "name"]` by those of the recipe of this name."""
    groups: dict[str, type[DataclassInstance]] = {}
    recipes: dict[str, Mapping[str, tuple[inspect.Parameter, Option]]] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group = parameter.annotation
        if isinstance(recipe_name := (get_args(group) or (None,))[-1], str):
            recipe = getattr(importlib.import_module("beam_pipes.recipes"), recipe_name)
            there = {each.name for each in shown}  # a command may combine two recipes
            recipes[name] = {key: each for key, each in _options_of(recipe).items() if key not in there}
            shown += [option for option, _ in recipes[name].values()]
            continue
        if not isinstance(group, type) or not dataclasses.is_dataclass(group):
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        shown += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in dataclasses.fields(group)
        ]

    @functools.wraps(command)
    def taking_options(**given: object) -> None:
        grouped: dict[str, object] = {name: _read(options, given) for name, options in recipes.items()}
        for name, group in groups.items():
            make: Callable[..., object] = group
            grouped[name] = make(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**grouped, **given)

    taking_options.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    taking_options.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    del taking_options.__wrapped__  # typer would look at the command's own parameters
    return taking_options


def portable_options() -> Mapping[str, type[PortableOptions]]:
    """Name on the command line → the options of the runners that take jobs through Beam's Job API."""
    # Imported on demand: builds by the local runner start faster without them.
    from beam_pipes.runners.flink import FlinkOptions
    from beam_pipes.runners.servers import PrismOptions

    return {"portable": PortableOptions, "prism": PrismOptions, "flink": FlinkOptions}


def _require_own(runner: str, names: Sequence[str]) -> None:
    """Raises `DeclarationError` for an option that is another runner's."""
    for name in names:
        owners = [other for other, options in portable_options().items() if name in arguments_of(options)]
        if runner not in owners:
            raise DeclarationError(
                f"--{name.replace('_', '-')} belongs to --runner {', '.join(owners)}; {runner!r} does not take it."
            )


def require_one_of(declaration: str | None, tasks: Sequence[str]) -> None:
    """Raises `DeclarationError` unless either a declaration or tasks are named."""
    if (declaration is None) == (not tasks):
        raise DeclarationError(
            "name what to build: either package.module:name of a Declaration, or --tasks REGEX with --module-import."
        )


def declarations_of(
    tasks: Sequence[str], excluded: Sequence[str], modules: Sequence[str], to: str, *, base_seed: int, encoding: str
) -> Iterator[tuple[Declaration, str]]:
    """The declaration and the directory of each task that matches and can be cached; the others are named."""
    from beam_pipes.tasks.caches.cache_tasks import TaskCache, matching_tasks, task_declaration
    from beam_pipes.tasks.caches.offline import import_modules
    from beam_pipes.tasks.sources.places import get_task_dir_from_name

    import_modules(modules)
    for task in matching_tasks(tasks, excluded):
        path = os.path.join(to, get_task_dir_from_name(task.name))
        if not task.supports_caching:
            show_outcome(TaskCache(task=task.name, path=path, outcome="skipped", reason="no CacheDatasetPlaceholder"))
            continue
        declaration = task_declaration(
            task.name,
            modules_to_import=modules,
            base_seed=base_seed,
            encoding="raw" if encoding == "raw" else "list",
        )
        yield declaration, path


def show_outcome(cached: TaskCache) -> None:
    """One line for one task."""
    from beam_pipes.commands.caches import console

    line = str(cached)
    if cached.result is not None and not cached.result.up_to_date:
        account = cached.result.account
        reused = f", {cached.result.reused_shards} of them reused" if cached.result.reused_shards else ""
        counts = ", ".join(f"{split} {count:,}" for split, count in account.outputs.items())
        line += (
            f": {account.read:,} read, {counts} written, {account.dropped:,} dropped, "
            f"{counted(account.dead, 'dead letter')}; {counted(cached.result.num_shards, 'source shard')}{reused}; "
            f"{cached.result.secs:.1f} s"
        )
    console.print(line, markup=False)
