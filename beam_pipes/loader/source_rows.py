"""How many rows each source of a mixture has given: computed from positions, which costs nothing while they come."""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipes.loader.loader import Loader
from beam_pipes.loader.steps import Cursor
from beam_pipes.loader.stream import MixtureStream


class SourceRows:
    """Rows by source, over all hosts, of what a loader of a mixture handed out.

    rows = SourceRows(loader)                     # at the loader's cursor
    rows.moved_to(loader.epoch, loader.position)  # behind every batch
    rows.counts()  →  (70, 30)
    """

    def __init__(self, loader: Loader) -> None:
        stream = loader._reader.stream
        assert isinstance(stream, MixtureStream)
        self._loader = loader
        self._stream: MixtureStream = stream
        self._settled = [0] * len(stream.sources)
        self._since = self._at = Cursor(loader.epoch, loader.position)

    @staticmethod
    def are_known(loader: object) -> bool:
        """Whether this is a native loader of a mixture."""
        return isinstance(loader, Loader) and isinstance(loader._reader.stream, MixtureStream)

    def names(self) -> list[str]:
        """The sources by the last part of their cache's path; with their number where two are called alike."""
        paths = [rows.split.path.rstrip("/").rpartition("/")[2] for rows in self._stream.sources]
        return [name if paths.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(paths)]

    def moved_to(self, epoch: int, position: int) -> None:
        """Says that a batch was handed out and where the loader stands now."""
        now, stream = Cursor(epoch, position), self._loader._reader.stream
        if stream is not self._stream or now <= self._at:  # other rates, a restored state, a new run
            follows = now > self._at and epoch == self._at.epoch and position - self._at.position <= self._batch_size
            start = self._at if follows else Cursor(epoch, max(0, position - self._batch_size))
            self._settle(self._at)
            assert isinstance(stream, MixtureStream)
            self._stream, self._since = stream, start
        elif epoch != self._at.epoch:
            size = self._stream.size_of(self._at.epoch) or 0
            whole = size - size % self._batch_size if self._loader.last == "drop" else size
            self._settle(Cursor(self._at.epoch, whole))
            self._since = Cursor(epoch, 0)
        self._at = now

    def counts(self) -> tuple[int, ...]:
        """Rows of each source so far."""
        return tuple(a + b for a, b in zip(self._settled, self._between(self._at), strict=True))

    @property
    def _batch_size(self) -> int:
        return self._loader.batch_size

    def _settle(self, end: Cursor) -> None:
        self._settled = [a + b for a, b in zip(self._settled, self._between(end), strict=True)]

    def _between(self, end: Cursor) -> Sequence[int]:
        if end.epoch != self._since.epoch or end.position <= self._since.position:
            return [0] * len(self._settled)
        before = self._stream.counts_at(self._since.epoch, self._since.position)
        after = self._stream.counts_at(end.epoch, end.position)
        return [b - a for a, b in zip(before, after, strict=True)]
