"""The commands; a command's module is imported when the command is used."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, MutableMapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

# Command → the first paragraph of its help, so that the list of commands can be shown without importing any.
SUMMARIES = {
    "new": "Write a project that runs: a declaration, its test, a training loop and a little text.",
    "build": "Build a cache, or resume an interrupted build. Options after -- go to Beam.",
    "tokens": "Build a cache of token ids from text or chat messages, ready for packing. Options after -- go to Beam.",
    "images": "Build a cache of images and labels from folders or tar archives. Options after -- go to Beam.",
    "audio": "Build a cache of sound and transcripts from WAV, FLAC, OGG, MP3 or AIFF. Options after -- go to Beam.",
    "table": "Build a cache of typed columns from CSV, TSV, JSON Lines or Parquet. Options after -- go to Beam.",
    "plan": "Check a declaration or tasks and print what a build would do and cost, without building.",
    "chaos": "Check that shards, retries and workers do not change a declaration's output; exit with 1 if they do.",
    "doctor": "Check, in a fresh virtual environment, that workers can import everything a declaration needs.",
    "doctor-loader": "Report whether training from a cache would be input-bound, and which loading stage costs most.",
    "inspect": "Show a cache's decoded examples, a loader's first batch, or a task's examples after each step.",
    "view": "Show a cache in the browser: rows, pictures, sound, tokens, histograms, dead letters, steps of a run, "
    "builds.",
    "stats": "Show how many records each stage read, wrote and dropped, and the statistics of all stages.",
    "verify": "Check every byte of a cache against its checksums; list all problems and exit with 1 if there are any.",
    "sign": "Check every byte of a snapshot and sign it, so that readers can insist on what was approved.",
    "report": "Write a self-contained HTML report: graph, counts, statistics, lengths, examples, timing, changes.",
    "diff": "Compare two snapshots: declaration, schema, splits, stage counts and data drift.",
    "export": "Export a cache to another system's format.",
    "disclose": "Write what caches hold, where it came from and what a run has read, for regulators and catalogues.",
    "status": "Show, from the files alone, what is published and the progress of running or unfinished builds.",
    "jobs": "Show the jobs that build a cache on other runners, and whether each is still running.",
    "attach": "Wait for the jobs of a cache, with progress, and finish the build as the command that started it would.",
    "cancel": "Cancel the jobs of a cache that are still running; finished shards are kept.",
    "work": "Take source shards of a job until none is left; what the workers of Slurm and Kubernetes jobs run.",
    "gc": "Remove old and unfinished snapshots and leftovers of dead builds; never while a build is writing.",
    "dead": "Count dead letters by stage and error, and show the first few with record, location and traceback.",
    "replay-dead": "Rerun a cache's dead letters and publish the result that a build of the repaired declaration "
    "would give.",
    "why": "Show whether a source record was written (and where), dropped (and why) or became a dead letter.",
    "duplicates": "Show which records were removed as duplicates, and which record each one duplicates.",
    "trace": "Run one source record through a declaration; show each stage's input, output, drops, counts and errors.",
    "who": "List the source records of a training step, using only the cache's index and the loader's state.",
    "when": "List the training steps that deliver a source record: the inverse of `who`.",
    "forget": "Report what a run has read of some records, which checkpoint is clean, and what holds traces of them.",
    "blame": "Rank the rows of a training step by recorded losses, with what they hold and where else they are.",
    "takedown": "Hide source records from every reader at once, without a build. Their bytes stay on disk: "
    "see docs/takedown.md.",
    "export-dali-index": "Write a DALI index for every shard, so that DALI's reader can open the cache.",
}


# For options that several commands have.
TASKS_HELP = "regular expression that must match a registered task's whole name (repeatable)"
MODULES_HELP = "module that registers tasks (repeatable)"
TOKENS_HELP = "show ids as tokens of this tokenizer (tokenizer.json, .model, tiktoken:NAME, bytes)"

# Command → the module that holds it, if its name differs.
_CHAPTERS = {
    "attach": "build",
    "audio": "recipes",
    "blame": "loading",
    "cancel": "build",
    "chaos": "build",
    "dead": "records",
    "diff": "caches",
    "disclose": "loading",
    "doctor": "caches",
    "doctor-loader": "loading",
    "duplicates": "records",
    "export": "caches",
    "export-dali-index": "caches",
    "forget": "loading",
    "gc": "caches",
    "images": "recipes",
    "jobs": "build",
    "new": "start",
    "replay-dead": "records",
    "report": "caches",
    "sign": "caches",
    "stats": "caches",
    "status": "caches",
    "takedown": "records",
    "table": "recipes",
    "tokens": "recipes",
    "trace": "records",
    "verify": "caches",
    "when": "loading",
    "who": "loading",
    "why": "records",
    "work": "build",
}


class _Files(MutableMapping[str, Any]):
    """Command → its typer form, created on first use."""

    def __init__(self) -> None:
        self._made: dict[str, object] = {}

    def __getitem__(self, name: str) -> object:
        if name not in self._made:
            if name not in SUMMARIES:
                raise KeyError(name)
            function = f"{name.replace('-', '_')}_command"
            chapter = import_module(f"{__name__}.{_CHAPTERS.get(name, name)}")
            # Help as plain text: a table cuts off words on narrow terminals, and markup swallows `[by suffix]`.
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            command = getattr(chapter, function)
            alone.command(name, cls=_Command)(getattr(command, "expanded", lambda: command)())
            self._made[name] = made = typer.main.get_command(alone)
            for parameter in made.params:
                _watch(parameter)
            gc.freeze()  # what `cli.main` imported lives as long as the process
            gc.enable()
        return self._made[name]

    def __setitem__(self, name: str, command: object) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**SUMMARIES, **self._made})

    def __len__(self) -> int:
        return len({**SUMMARIES, **self._made})


def _watch(parameter: Any) -> Any:
    if parameter is not None:
        parameter.process_value = partial(_processed, parameter)
    return parameter


def _processed(parameter: Any, context: Any, value: Any) -> Any:
    """The value of an option. Raises `typer.BadParameter`, which says what was found too."""
    made = _plainly(parameter, value)
    if made is not _UNSURE:
        return made if parameter.callback is None else parameter.callback(context, parameter, made)
    try:
        return type(parameter).process_value(parameter, context, value)
    except typer.BadParameter as error:
        if value is not None and repr(value) not in error.message:
            error.message = f"{error.message.rstrip('.')}; got {value!r}."
        raise


_UNSURE = object()


def _plainly(parameter: Any, value: Any) -> object:
    """What typer certainly makes of a value: itself, mostly. Asking typer takes 60 ms: it imports pydantic."""
    descriptor = getattr(parameter, "type_descriptor", None)  # older versions of typer do without pydantic
    if descriptor is None or parameter.required and not value:
        return _UNSURE
    kind, about = descriptor.annotation, descriptor.parameter_info
    is_several = parameter.multiple or parameter.nargs == -1
    if about.parser is not None or parameter.nargs not in (1, -1):
        return _UNSURE
    if value is None:
        return () if is_several else None
    if is_several:
        is_plain = kind == list[str] and type(value) in (list, tuple) and {*map(type, value)} <= {str}
        return [*value] if is_plain else _UNSURE
    if kind is int and type(value) is str and value.isascii() and value.isdecimal() and len(value) < 19:
        value = int(value)
    if kind not in (str, int, bool) or type(value) is not kind:
        return _UNSURE
    is_below, is_above = about.min is not None and value < about.min, about.max is not None and value > about.max
    return _UNSURE if is_below or is_above else value


class _Command(TyperCommand):
    def get_help_option(self, ctx: Any) -> Any:
        return _watch(super().get_help_option(ctx))


class _Commands(TyperGroup):
    """No command passes on an exit code from `sys.exit`: only user code calls that in a command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: MutableMapping[str, Any] = _Files()
        self._is_listing = False

    def get_help_option(self, ctx: Any) -> Any:
        return _watch(super().get_help_option(ctx))

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):
                raise  # from rich: the reader closed the pipe, as `head` does; not an error
            from beam_pipes.building.workers.process import exit_as_error

            raise exit_as_error(error) from error

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if self._is_listing:
            return TyperCommand(cmd_name, help=SUMMARIES[cmd_name])
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: object) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


app = typer.Typer(
    name="beam-pipes",
    cls=_Commands,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Declare once, cache with Apache Beam, train from ordinary TFRecords.\n\n"
    "Example: beam-pipes build examples.python_source:declaration --to .demo/python_source",
)


@app.callback()
def _without_a_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="show the version and exit")] = False,
) -> None:
    if version:
        import importlib.metadata
        import platform

        typer.echo(f"beam-pipes {importlib.metadata.version('beam-pipes')}, Python {platform.python_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        from beam_pipes.commands.start import show_what_is_here

        show_what_is_here()
