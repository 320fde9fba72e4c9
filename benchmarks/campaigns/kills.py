"""The kill campaign: SIGKILL at random moments and at every labelled step, again and again, until the build is done."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from beam_pipes.cache import Cache
from beam_pipes.errors import CacheNotFoundError
from benchmarks.campaigns.builder import Builder, Outcome
from benchmarks.campaigns.declarations import (
    INPUT_VARIABLE,
    LINE_SECS_VARIABLE,
    LOG_VARIABLE,
    REFERENCE,
    executions,
    write_input,
)

# Files of a snapshot that are specific to one run.
_OF_ONE_RUN = ("build.json", "report.html")


@dataclasses.dataclass(kw_only=True)
class KillCounts:
    """The results of a kill campaign; `survived` counts the kills after which all guarantees held."""

    kills: int = 0
    survived: int = 0
    records_lost: int = 0
    records_duplicated: int = 0
    shards: int = 0
    shard_executions: int = 0
    executions_allowed: int = 0
    reads_meanwhile: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


class Scene:
    """A directory with an old snapshot published, an input that has changed since, and its expected bytes."""

    def __init__(self, directory: Path, *, files: int, changed: int, old: bool, line_secs: float = 0.0) -> None:
        self.cache = directory / "cache"
        self.log = directory / "log"
        self._input = directory / "input"
        self.env = {INPUT_VARIABLE: str(self._input), LINE_SECS_VARIABLE: str(line_secs)}
        self.snapshots: dict[str, dict[str, bytes]] = {}
        self.shards = changed if old else files
        self.builder = Builder(REFERENCE, env=self.env)
        if old:
            write_input(self._input, files=files)
            self._expect(self.cache)
        self.ids = write_input(self._input, files=files, version=1, changed=changed)
        self.secs = self._expect(directory / "undisturbed")
        self.wanted = list(self.snapshots)[-1]

    def _expect(self, directory: Path) -> float:
        outcome = self.builder.build(directory)
        assert outcome.succeeded, outcome
        snapshot = Cache.open(directory).manifest.snapshot
        self.snapshots[snapshot] = snapshot_files(directory, snapshot)
        return outcome.secs

    def build(self, **options: object) -> Outcome:
        return self.builder.build(self.cache, **{LOG_VARIABLE: str(self.log)}, **options)  # type: ignore[arg-type]

    def current(self) -> str | None:
        """The snapshot that a reader sees, after reading from it; None if there is none."""
        try:
            cache = Cache.open(self.cache)
        except CacheNotFoundError:
            return None
        for split in cache.splits:
            cache[split][len(cache[split]) - 1]
        return cache.manifest.snapshot

    def problems(self) -> Iterator[str]:
        """The problems in what a reader sees now."""
        current = self.current()
        if current is None:
            if len(self.snapshots) > 1:
                yield "the previous snapshot is gone"
            return
        if current not in self.snapshots:
            yield f"an unknown snapshot {current} is published"
            return
        found = snapshot_files(self.cache, current)
        expected = self.snapshots[current]
        different = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        if different:
            yield f"snapshot {current} differs in {different[:5]}"

    def final_problems(self) -> Iterator[str]:
        """The problems after the last, undisturbed build."""
        yield from self.problems()
        if self.current() != self.wanted:
            yield f"snapshot {self.current()} is published instead of {self.wanted}"
        left = [path.name for path in self.cache.rglob("*") if ".tmp-" in path.name or path.name == ".build.lock"]
        if left:
            yield f"left behind: {left[:5]}"

    def lost_and_duplicated(self) -> tuple[int, int]:
        """Input records missing from the published split, and those that occur more than once."""
        counts = Counter(int(example["id"]) for example in Cache.open(self.cache)["train"])
        return len(self.ids - counts.keys()), sum(count - 1 for count in counts.values())

    def close(self) -> None:
        self.builder.close()


def snapshot_files(cache: Path, snapshot: str) -> dict[str, bytes]:
    """The files of a snapshot by name, except those specific to one run."""
    directory = cache / "snapshots" / snapshot
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in _OF_ONE_RUN and not path.name.startswith(".tmp-")
    }


def kill_until_built(
    scene: Scene, kills: Iterable[dict[str, object]], counts: KillCounts, *, workers: int, watch: bool
) -> None:
    """Kills builds one after the other according to `kills`; then runs one undisturbed and checks everything."""

    def read() -> None:
        counts.reads_meanwhile += 1
        seen = scene.current()
        if seen is None and len(scene.snapshots) > 1 or seen is not None and seen not in scene.snapshots:
            counts.problems.append(f"a reader saw {seen}")

    killed = 0
    for kill in kills:
        outcome = scene.build(workers=workers, meanwhile=read if watch else None, **kill)
        died = outcome.killed or outcome.error_type == "WorkerDiedError"
        if not died and not outcome.succeeded:
            counts.problems.append(f"{kill}: {outcome.error_type}: {outcome.error}")
        found = [*scene.problems()]
        if outcome.orphans:
            found.append(f"{outcome.orphans} processes are left")
        if "Traceback" in outcome.told:
            found.append(f"it shows a traceback: {outcome.told[-500:]}")
        killed += died
        counts.survived += died and not found
        counts.problems += [f"{kill}: {problem}" for problem in found]
        if outcome.succeeded:
            break
    last = scene.build(workers=workers)
    if not last.succeeded:
        counts.problems.append(f"the build after the kills failed: {last.error}")
    counts.problems += scene.final_problems()
    lost, duplicated = scene.lost_and_duplicated()
    counts.kills += killed
    counts.records_lost += lost
    counts.records_duplicated += duplicated
    counts.shards += scene.shards
    counts.shard_executions += executions(scene.log)
    counts.executions_allowed += scene.shards + killed * workers
    if executions(scene.log) > scene.shards + killed * workers:
        counts.problems.append(
            f"{executions(scene.log)} executions of {scene.shards} shards, {killed} kills, {workers} workers"
        )


def random_kills(directory: Path, *, kills: int, seed: int = 0, files: int = 24, line_secs: float = 0.0) -> KillCounts:
    """SIGKILL at `kills` random moments, in as many scenes as needed: with one worker or two, cold or incremental."""
    rng = random.Random(seed)
    counts = KillCounts()
    number = 0
    while counts.kills < kills:
        workers = 1 + number % 2
        scene = Scene(
            directory / f"random-{number}",
            files=files,
            changed=files // 2,
            old=number % 4 < 2,
            line_secs=line_secs,
        )
        try:
            # Workers take a while to start; without this they would never be killed at work.
            longest = scene.secs * 0.9 + (0.5 if workers > 1 else 0.0)
            moments = [{"after_secs": rng.uniform(0.0, longest)} for _ in range(kills - counts.kills)]
            kill_until_built(scene, moments, counts, workers=workers, watch=True)
        finally:
            scene.close()
        number += 1
        if number > 20 * kills:
            raise RuntimeError(f"only {counts.kills} of {kills} builds were killed before they ended")
    return counts


def labelled_kills(directory: Path, labels: Iterable[str], *, files: int = 4, workers: int = 1) -> KillCounts:
    """SIGKILL at each of the steps `labels` (`label` or `label#n`), each in a build that follows a change of input."""
    counts = KillCounts()
    scene = Scene(directory, files=files, changed=files // 2, old=True)
    before = directory / "before"
    shutil.copytree(scene.cache, before)
    try:
        for label in labels:
            shutil.rmtree(scene.cache)
            shutil.copytree(before, scene.cache)
            scene.log.unlink(missing_ok=True)
            kills = counts.kills
            kill_until_built(scene, [{"at": label}], counts, workers=workers, watch=False)
            if counts.kills == kills:
                counts.problems.append(f"{label} was never reached")
    finally:
        scene.close()
    return counts
