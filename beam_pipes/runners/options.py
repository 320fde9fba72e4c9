"""One options object for each runner; the user's choices are printed, and stored beside the snapshot.

The fields of an options object are the table of its options: what each should be, and what Beam calls it.

A client for a job on a runner elsewhere, by its id: whether it runs, its messages, cancelling it.

It also finds what is only on this machine: local files that workers elsewhere cannot see, and whether a HOST:PORT is
this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import os
import re
import socket
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from beam_pipes.checks import integer, number
from beam_pipes.errors import DeclarationError
from beam_pipes.sources.file_source import FileSource
from beam_pipes.sources.source import Source
from beam_pipes.storage.local import is_remote

if TYPE_CHECKING:
    from typing_extensions import Self

    from beam_pipes.building.plan import BuildPlan
    from beam_pipes.building.references import DeclarationHandle
    from beam_pipes.building.shard_task import ShardReport, ShardTask
    from beam_pipes.publication.manifest import Manifest
    from beam_pipes.runners.progress import Counts, Progress
    from beam_pipes.storage.protocol import HeldLock


class Sendable(Protocol):
    """What has to reach workers: a `DeclarationHandle`."""

    def require_portable(self) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """A prepared build for a runner: its plan, the tasks that are left, and where its progress is shown.

    `lock` is the build lock, which the caller holds; `keep` is used by whoever publishes: see `build`.
    """

    handle: DeclarationHandle
    plan: BuildPlan
    tasks: Sequence[ShardTask]
    lock: HeldLock
    progress: Progress
    keep: int | None = None

    @functools.cached_property
    def counts(self) -> Counts:
        """What is done, which the runner keeps."""
        from beam_pipes.building.reading import SOURCE
        from beam_pipes.building.shard_output import WRITE
        from beam_pipes.runners.progress import Counts

        shards, words = self.plan.header.num_shards, self.plan.declaration.words
        return Counts(num_shards=shards, done_shards=shards - len(self.tasks), stages=[SOURCE, *words, WRITE])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """What a runner has published. `figures` go into the build record; `reports` are the local runner's."""

    manifest: Manifest
    figures: Mapping[str, object]
    reports: Sequence[ShardReport] = ()
    reused_shards: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """The local runner: worker processes on this machine.

    `workers`: how many; None takes as many as there are cores for this process. With 1 everything runs in the calling
    process, which also works for declarations that cannot be imported (a notebook).

    `stall_secs`: the seconds without a sign of life from a shard after which a line on standard error names it. A sign
    of life comes with every batch of records, so the default of five minutes is far above what expensive stages take.
    """

    workers: int | None = None
    stall_secs: float = 300.0
    template: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            integer(self.workers, what="workers", least=1)
        number(self.stall_secs, what="stall_secs", above=0)

    @property
    def num_workers(self) -> int:
        """The number of workers, resolved."""
        return self.workers if self.workers is not None else len(os.sched_getaffinity(0))

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Does nothing: this machine can run every build."""

    def require_server(self) -> None:
        """Does nothing: there is none."""

    def to_json(self) -> dict[str, object]:
        return {"runner": "local", "workers": self.num_workers}


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobState:
    """The state of a job. `words` are the server's own name for the state, or why nothing is known.

    | name | the job |
    | --- | --- |
    | `starting` | was accepted by its server and does no work yet |
    | `running` | is at work |
    | `done`, `failed`, `cancelled` | has ended |
    | `gone` | has ended: its server answers, but does not know it |
    | `unreachable` | may run: nothing answers |
    """

    name: Literal["starting", "running", "done", "failed", "cancelled", "gone", "unreachable"]
    words: str

    @property
    def lives(self) -> bool:
        """Whether the job is known to run."""
        return self.name in ("starting", "running")

    @property
    def ended(self) -> bool:
        """Whether the job is known to have ended."""
        return not self.lives and self.name != "unreachable"


# Servers' names for the states of jobs; under any other name a job runs.
_STATES: Mapping[str, Literal["starting", "done", "failed", "cancelled"]] = {
    **dict.fromkeys(("STOPPED", "STARTING", "QUEUED", "PENDING"), "starting"),
    **dict.fromkeys(("DONE", "DRAINED", "UPDATED", "FINISHED"), "done"),
    "FAILED": "failed",
    **dict.fromkeys(("CANCELLED", "CANCELED"), "cancelled"),
}


def state_of(words: str) -> JobState:
    """The state for which a server of Beam's, Dataflow or Flink uses this name."""
    return JobState(name=_STATES.get(words, "running"), words=words)


class RemoteJob(Protocol):
    """A job on a runner elsewhere, by its id."""

    def state(self) -> JobState: ...

    def messages(self) -> str:
        """The server's message about its failure, including a worker's traceback; empty if there is none."""

    def cancel(self) -> None:
        """Cancels it. Raises what the server's client raises, or a `BuildError` if that does not end it."""


@dataclasses.dataclass(frozen=True)
class Should:
    """What a value should be, in words, and whether it is."""

    words: str
    holds: Callable[[Any], bool]


def should_match(pattern: str, example: str) -> Should:
    """`should_match("[a-z]+-[a-z]+[0-9]+", "europe-west1")` → "look like 'europe-west1'"."""
    return Should(f"look like {example!r}", lambda value: re.fullmatch(pattern, value) is not None)


# The form that gRPC accepts: a name or an IPv4 address, or an IPv6 address in brackets.
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def _is_endpoint(value: object) -> bool:
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    return found is not None and 0 < int(found["port"]) < 65536


def should_be_endpoint(example: str) -> Should:
    """HOST:PORT, such as `localhost:8099`."""
    return Should(f"be HOST:PORT, such as {example!r}", _is_endpoint)


_BOOL = Should("be true or false", lambda value: isinstance(value, bool))
AT_LEAST_ONE = Should("be a number, at least 1", lambda value: isinstance(value, int) and value >= 1)


@dataclasses.dataclass(frozen=True)
class Argument:
    """Marks a field of an options object as one of Beam's options: `num_workers: Annotated[int, Argument(…)]`.

    `beam` is what Beam calls it: None for the name of the field, "" for our own options, which Beam does not get.
    `kinds` are the types of its values, as the field declares them.
    """

    should: Should | None = None
    beam: str | None = None
    kinds: tuple[object, ...] = ()

    def read(self, text: str) -> object:
        """The value of the command line's `text`; the text itself if it is not of its type."""
        if bool in self.kinds:
            return {"": True, "true": True, "false": False}.get(text.lower(), text)
        return int(text) if int in self.kinds and text.isdecimal() else text

    def passed(self, value: object) -> list[str]:
        """How it is passed to Beam."""
        if value is None or not self.beam:
            return []
        if isinstance(value, bool):
            return [f"--{self.beam}" if value else f"--no_{self.beam}"]
        return [f"--{self.beam}={each}" for each in (value if isinstance(value, tuple) else (value,))]


def arguments_of(kind: type[BeamOptions]) -> Mapping[str, Argument]:
    """Field → argument, for fields that are marked as one and not fixed by the runner."""
    hints = typing.get_type_hints(kind, include_extras=True)
    table: dict[str, Argument] = {}
    for field in dataclasses.fields(kind):
        declared, *marks = typing.get_args(hints[field.name]) or (None,)
        if field.init and marks and isinstance(mark := marks[0], Argument):
            should = _BOOL if bool in (kinds := typing.get_args(declared) or (declared,)) else mark.should
            table[field.name] = Argument(should, field.name if mark.beam is None else mark.beam, kinds)
    return table


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """A Beam runner, by name, and options that are passed to Beam unchanged (`--name=value`).

    Runners with their own options have a subclass (`DataflowOptions`, `PortableOptions`).

    Args:
        attempts: the maximum number of jobs to submit. With more than one, a job lost with a worker or task manager is
            followed by another one for the unfinished shards. Errors of stages are never retried.
        detach: return as soon as the job runs, instead of waiting for its end; its record is `job` of the result.

    Raises:
        DeclarationError: `attempts` is less than one, the job could not continue without this process, or both are
            given.
    """

    runner: str = "DirectRunner"
    beam_args: tuple[str, ...] = ()
    attempts: int = 1
    detach: bool = False

    # The runner's name on the command line, and an example of its required options.
    NAME: ClassVar[str] = "direct"
    EXAMPLE: ClassVar[str] = ""
    # What launches the file that a job was written to.
    LAUNCH: ClassVar[str] = "gcloud dataflow jobs run NAME --gcs-location"
    # For services that bill CPU time: the condition under which the CPU hours of a forecast are the billed vCPU hours.
    BILLS: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        self.require("attempts", AT_LEAST_ONE, self.attempts)
        for name, argument in arguments_of(type(self)).items():
            if argument.should is not None:
                self.require(name, argument.should, getattr(self, name))
        if self.detach and (needs_us := self.needs_this_process()) is not None:
            raise DeclarationError(f"{self.NAME}: a job cannot be detached here: {needs_us}")
        if self.detach and self.attempts > 1:
            raise DeclarationError(
                f"{self.NAME}: attempts={self.attempts} needs this process to submit the next job, but detach "
                "lets it exit. Omit one of them; on Flink, the cluster's restart-strategy restarts detached jobs too."
            )

    def require(self, name: str, should: Should, value: object) -> None:
        """Raises `DeclarationError` for a given value that is not what it should be."""
        if value is not None and not should.holds(value):
            raise DeclarationError(f"{self.NAME}: {name} should {should.words}, got {value!r}.")

    @classmethod
    def from_args(cls, args: Sequence[str]) -> Self:
        """Options in Beam's spelling: `["--job_endpoint=localhost:8073", "--experiments=x"]`.

        Those that name arguments of this class are checked, the others are passed to Beam unchanged. Raises
        `DeclarationError` if one is given twice, is fixed by the runner, or is missing.
        """
        table = arguments_of(cls)
        names = {argument.beam: name for name, argument in table.items()} | {name: name for name in table}
        fixed = {field.name for field in dataclasses.fields(cls) if not field.init}
        given: dict[str, Any] = {}
        others = []
        for arg in joined(args):
            beam_name, equals, text = arg.removeprefix("--").partition("=")
            name = names.get(beam_name)
            if beam_name in fixed:
                raise DeclarationError(
                    f"{cls.NAME}: {beam_name} is set by this runner; choose --runner portable to name it."
                )
            if name is None or not equals and bool not in table[name].kinds:
                others.append(arg)
            elif Ellipsis in table[name].kinds:
                given[name] = (*given.get(name, ()), text)
            elif name in given:
                raise DeclarationError(f"{cls.NAME}: {name} is given twice: {given[name]!r} and {text!r}.")
            else:
                given[name] = table[name].read(text)
        needed = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
        if missing := [name for name in needed if name not in given]:
            raise DeclarationError(
                f"{cls.NAME}: {', '.join(missing)} should be given. Example: beam-pipes build "
                f"my_package.job:declaration --to gs://bucket/cache --runner {cls.NAME} {cls.EXAMPLE}"
            )
        return cls(**given, beam_args=tuple(others))

    def needs_this_process(self) -> str | None:
        """Why a job with these options ends with this process, and what to do about it; None if it does not."""
        return "it runs in this process. Choose --runner portable, flink or dataflow."

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob | None:
        """The job with this id, which was submitted with `beam_args`; None if jobs run in this process."""
        return None

    def pipeline_args(self) -> tuple[str, ...]:
        """All options for Beam, as `--name=value`."""
        table = arguments_of(type(self))
        return (*(arg for name in table for arg in table[name].passed(getattr(self, name))), *self.beam_args)

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Raises `DeclarationError` if this runner cannot build a cache in `root` from `source`."""

    @property
    def without_beam(self) -> str | None:
        """The runner's name if it runs source shards without Beam, and no pipelines; None for a runner of Beam."""
        return None

    @property
    def template(self) -> str | None:
        """Where the job is written as a template instead of being submitted; None: it is submitted."""
        return None

    def named(self, name: str, snapshot: str | None) -> BeamOptions:
        """These options for a job of the declaration `name`, under which runners that show names show it."""
        return self

    def require_server(self) -> None:
        """Raises `BuildError` if the server for the job is missing."""

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        """Held while a job runs: provides what the runner needs. Yields all options for Beam."""
        yield self.pipeline_args()

    def to_json(self) -> dict[str, object]:
        return {"runner": self.runner, "beam_args": without_secrets(self.pipeline_args())}


def job_name_of(name: str, snapshot: str | None) -> str:
    """The default name of a job: at most 45 lower-case letters, digits and `-`, beginning with a letter.

    job_name_of("My books, 2nd", "3f9a5b21c04d77e6")  →  "my-books-2nd-3f9a5b21"
    """
    words = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    words = words if words[:1].isalpha() else f"cache-{words}"
    return f"{words[:36].rstrip('-')}-{'analysis' if snapshot is None else snapshot[:8]}"


def joined(args: Sequence[str]) -> list[str]:
    """Options in one spelling: `["--project", "books", "--no_auth"]` → `["--project=books", "--no_auth"]`."""
    found: list[str] = []
    for arg in args:
        if not arg.startswith("-") and found and found[-1].startswith("--") and "=" not in found[-1]:
            found[-1] += f"={arg}"
        else:
            found.append(arg)
    return found


_SECRET = re.compile(r"secret|token|password|access_key|connection_string|credential", re.IGNORECASE)


def without_secrets(beam_args: Sequence[str]) -> list[str]:
    """Options for Beam that are safe to store: `--s3_secret_access_key=x` → `--s3_secret_access_key=…`.

    Caches are shared, and hold a record of each build.
    """
    found: list[str] = []
    hidden = False
    for arg in beam_args:
        name, equals, _ = arg.partition("=")
        is_option = name.startswith("-")
        found.append("…" if hidden and not is_option else arg)
        hidden = is_option and not equals and bool(_SECRET.search(name))
        if is_option and equals and _SECRET.search(name):
            found[-1] = f"{name}=…"
    return found


def require_remote(runner: str, root: str, source: Source, *, workers: str, or_else: str = "") -> None:
    """Raises `DeclarationError` for a cache or an input on this machine, which `workers` elsewhere cannot see."""
    if not is_remote(root):
        raise DeclarationError(
            f"{runner}: the cache is in {root!r}, which {workers} cannot see. Build to gs://…{or_else}."
        )
    if (entry := local_input(source)) is not None:
        raise DeclarationError(
            f"{runner}: the input {entry!r} is on this machine, where {workers} cannot see it. Copy it to gs://… "
            f"(gcloud storage cp --recursive) and declare that{or_else}."
        )


def local_input(source: Source) -> str | None:
    """The first file or directory of the input that is local, else None."""
    entries = [entry for each in source.parts() if isinstance(each, FileSource) for entry in each.selection().entries]
    return next((entry for entry in entries if not is_remote(entry)), None)


def is_this_machine(endpoint: str) -> bool:
    """Whether HOST:PORT is a loopback address or has this machine's own name; without a DNS lookup."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname())
