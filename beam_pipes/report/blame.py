"""Which rows made the loss of a step: ranked by recorded losses, with what they hold, and where else they are.

    blame(loader, 1234, losses=RecordedLosses("run/losses"))
    →  rank 1: loss 9.87, notes/bob.txt@158, also read in step 310 (loss 9.91); equal content: notes/ann.txt@39

Which rows a step had is a function of the loader's state, so that they are known for steps whose losses nobody has
recorded; these come in the order of the batch. `never_falling` looks for rows that are not learned.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from beam_pipes.building.taken_down_records import SnapshotRecords
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.checks import integer
from beam_pipes.errors import BeamPipesError, LoaderError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.loader import Loader
from beam_pipes.loader.delivery import Delivery, rows_of_step, splits_of
from beam_pipes.loader.from_state import open_snapshot
from beam_pipes.report.examples import Medium, features_of, media_of_record
from beam_pipes.report.forgetting import epochs_until
from beam_pipes.report.language import Tokenizer, shown_tokens, token_features
from beam_pipes.report.page import sample_rate_of
from beam_pipes.report.shown import render, shown_value
from beam_pipes.transforms.dedup import cache_duplicates

_SHOWN_APPEARANCES = 8
# Two losses say little: noise falls in half of all pairs. A model that changes moves every loss by a little.
MIN_APPEARANCES = 3
MIN_FALL = 0.1


class Losses(Protocol):
    """Recorded losses: `beam_pipes.telemetry.RecordedLosses`."""

    @property
    def steps(self) -> Sequence[int]: ...

    def at(self, step: int) -> Mapping[tuple[int, int], float]:
        """(place in the global batch, segment or 0) → loss."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Appearance:
    """A step that has read the same record, with the loss of the row or piece there if it was recorded."""

    step: int
    loss: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlamedRow:
    """A row of a step, or the piece of a packed one.

    `loss` is None if it was not recorded. `delivery` says where it was and which source record it is (of a window: the
    first of `records`). `features` is what the record holds, empty if it is taken down. `appearances` are the steps of
    the run that read it, this one too. `duplicates` are records of the same content in the snapshot, and those that
    the build dropped as its duplicates, each in words.
    """

    loss: float | None
    delivery: Delivery
    records: int
    features: tuple[tuple[str, str], ...]
    appearances: tuple[Appearance, ...]
    duplicates: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """As JSON; losses that are no numbers are texts, `"nan"`."""
        return _json(dataclasses.asdict(self))  # type: ignore[return-value]

    def lines(self) -> Iterator[str]:
        """The row in words, its head first."""
        at = self.delivery
        segment = "" if at.segment is None else f", segment {at.segment}"
        more = f" and {self.records - 1} more records" if self.records > 1 else ""
        loss = "no loss recorded" if self.loss is None else f"loss {self.loss:.4g}"
        yield f"{loss}: {at.record_id}{more} (host {at.host_index}, row {at.index}{segment}; {at.split} {at.record})"
        if at.taken_down:
            yield "taken down: what it holds is not shown"
        yield from (f"{name}: {text}" for name, text in self.features)
        others = [each for each in self.appearances if each.step != at.step]
        if others:
            shown = ", ".join(
                f"{each.step:,}" + ("" if each.loss is None else f" (loss {each.loss:.4g})")
                for each in others[:_SHOWN_APPEARANCES]
            )
            left = len(others) - _SHOWN_APPEARANCES
            yield f"also read in steps {shown}" + (f" and {left:,} more" if left > 0 else "")
        yield from self.duplicates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blame:
    """The rows of a step, the worst first: NaN, infinity, then by loss. `median` is that of all losses of the step."""

    step: int
    epoch: int
    median: float | None
    rows: tuple[BlamedRow, ...]

    def to_json(self) -> dict[str, object]:
        """As JSON; losses that are no numbers are texts, `"nan"`."""
        return _json(dataclasses.asdict(self))  # type: ignore[return-value]

    def lines(self) -> Iterator[str]:
        """The ranking in words."""
        if self.median is None:
            found = "no losses were recorded; its rows, in their order:"
        else:
            found = f"the median loss of its rows is {self.median:.4g}; the worst:"
        yield f"step {self.step:,} (epoch {self.epoch}): {found}"
        yield from _ranked(self.rows)


def blame(
    loader: Loader,
    step: int,
    *,
    losses: Losses | None = None,
    count: int = 5,
    vocabulary: Tokenizer | None = None,
) -> Blame:
    """The `count` worst rows of a global batch; without `losses` of it, its first rows.

    Args:
        loader: of the run, as it was made then: same source, seed, order and batch size.
        step: from 0.
        losses: `RecordedLosses(directory)`. Appearances are searched up to its last step.
        count: rows to report: each is read from the cache and searched for in the run.
        vocabulary: decodes token ids.

    Raises what `loader.who` and `loader.when_record` raise.
    """
    count = integer(count, what="count", least=1, error=LoaderError)
    found = _rows_with_losses(loader, step, losses)
    with_loss = [loss for loss, _ in found if loss is not None]
    rows = sorted(found, key=lambda each: _badness(each[0]), reverse=True)[:count]
    last_step = max(step, losses.steps[-1]) if losses is not None and losses.steps else step
    return Blame(
        step=step,
        epoch=found[0][1][0].epoch if found else 0,
        median=statistics.median(with_loss) if with_loss else None,
        rows=tuple(_blamed(loader, each, losses, last_step, vocabulary) for each in rows),
    )


def never_falling(
    loader: Loader, losses: Losses, *, count: int = 5, vocabulary: Tokenizer | None = None
) -> tuple[BlamedRow, ...]:
    """The records that were read at least three times and whose loss never fell by a tenth of the first one.

    In the order of their last losses, the worst first: those that were low from the beginning come last. Records whose
    loss is 0 everywhere, as where a loss is masked, are left out. Holds 32 bytes per recorded loss.
    """
    count = integer(count, what="count", least=1, error=LoaderError)
    parts = [np.empty((0, 4))]
    for step in losses.steps:
        recorded = losses.at(step)
        read: list[tuple[float, ...]] = []
        for place, source, row, segments, records in rows_of_step(loader._run, step):
            if segments[0] is None:  # a window is one row
                segments, records = segments[:1], np.array([row])
            for segment, record in zip(segments, records.tolist(), strict=True):
                loss = _loss_in(recorded, place, segment)
                if loss is not None:
                    read.append((source, record, step, loss))
        parts.append(np.array(read, np.float64).reshape(-1, 4))
    seen = np.concatenate(parts)
    _, groups = np.unique(seen[:, :2], axis=0, return_inverse=True)
    order = np.argsort(groups.reshape(-1), kind="stable")
    worst: list[tuple[float, int]] = []
    for members in np.split(order, np.flatnonzero(np.diff(groups.reshape(-1)[order])) + 1):
        values = seen[members, 3]
        if len(values) >= MIN_APPEARANCES and values.any():
            if not (values[1:] <= values[0] - MIN_FALL * abs(values[0])).any():
                worst.append((_badness(float(values[-1])), int(members[-1])))
    made = []
    for _, at in sorted(worst, reverse=True)[:count]:
        source, record, step, loss = seen[at].tolist()
        here = [
            each
            for each in _rows_with_losses(loader, int(step), losses)
            if each[1][0].source == source and record in (each[1][0].record, each[1][0].row)
        ]
        match = next((each for each in here if each[0] == loss), here[0])
        made.append(_blamed(loader, match, losses, losses.steps[-1], vocabulary))
    return tuple(made)


def blame_html(loader: Loader, found: Blame | Sequence[BlamedRow]) -> str:
    """The rows of `blame` or `never_falling` as a page: what they say in words, with pictures to see, sound to play.

        Path("spike.html").write_text(blame_html(loader, blame(loader, 1234, losses=losses)), encoding="utf-8")

    The page needs neither network nor other files; what comes from data is escaped. Raises `MissingExtraError` without
    jinja2 (extra `cli`).
    """
    rows = found.rows if isinstance(found, Blame) else found
    title, *_ = found.lines() if isinstance(found, Blame) else never_falling_lines(rows)
    shown = []
    for row in rows:
        head, *lines = row.lines()
        shown.append((head, lines, [] if row.delivery.taken_down else list(_media_of(loader, row.delivery))))
    facts = {"title": title.rstrip(":"), "about": shown_value(loader.description.title, max_characters=400)}
    return render("blame.html.j2", {**facts, "rows": shown, "shown": shown_value})


def _media_of(loader: Loader, at: Delivery) -> Iterator[Medium]:
    split: Split = splits_of(loader._reader.stream)[at.source]
    if split.kind == "example":
        cache = cache_of(split)
        spec: Mapping[str, FeatureSpec] = cache.manifest.splits[split.name].spec or {}
        yield from media_of_record(split, at.record, spec, sample_rate=sample_rate_of(cache))


def never_falling_lines(rows: Sequence[BlamedRow]) -> Iterator[str]:
    """`never_falling` in words."""
    if not rows:
        yield f"The loss of every record that was read {MIN_APPEARANCES} times or more has fallen by a tenth."
    else:
        yield f"Read {MIN_APPEARANCES} times or more, and the loss has never fallen by a tenth; the worst:"
        yield from _ranked(rows)


_Row = tuple[float | None, list[Delivery]]


def _rows_with_losses(loader: Loader, step: int, losses: Losses | None) -> list[_Row]:
    """Each row of a step, or piece of a packed one, with its records."""
    recorded = {} if losses is None else losses.at(step)
    delivered = loader.who(step)
    rows: dict[tuple[int, int | None], list[Delivery]] = defaultdict(list)
    for each in delivered:
        rows[each.position - delivered[0].position, each.segment].append(each)
    return [(_loss_in(recorded, place, segment), records) for (place, segment), records in rows.items()]


def _loss_in(recorded: Mapping[tuple[int, int], float], place: int, segment: int | None) -> float | None:
    """The loss of a piece, or that of its row where pieces were not recorded."""
    return recorded.get((place, segment or 0), recorded.get((place, 0)))


def _badness(loss: float | None) -> float:
    return -math.inf if loss is None else math.inf if math.isnan(loss) else loss


def _blamed(
    loader: Loader, row: _Row, losses: Losses | None, last_step: int, vocabulary: Tokenizer | None
) -> BlamedRow:
    loss, [at, *others] = row
    split: Split = splits_of(loader._reader.stream)[at.source]
    return BlamedRow(
        loss=loss,
        delivery=at,
        records=1 + len(others),
        features=() if at.taken_down else tuple(_features(split, at.record, vocabulary)),
        appearances=tuple(_appearances(loader, at, losses, last_step)),
        duplicates=tuple(duplicates_of(split, at.record_id)),
    )


def _features(split: Split, record: int, vocabulary: Tokenizer | None) -> Iterator[tuple[str, str]]:
    ids = [] if vocabulary is None else token_features(cache_of(split), split.name)
    for name, text in features_of(split, record):
        yield name, shown_tokens(vocabulary, split[record][name]) if vocabulary is not None and name in ids else text


def cache_of(split: Split) -> Cache:
    """The snapshot that a split belongs to."""
    return open_snapshot(split.path, split.manifest_id.partition("?")[0])


def _appearances(loader: Loader, at: Delivery, losses: Losses | None, last_step: int) -> Iterator[Appearance]:
    try:
        epochs = epochs_until(loader, last_step)
        places = loader.when_record(at.record_id, epochs=epochs, last_step=last_step)
    except LoaderError:  # a mixture of plans that are packed anew
        yield Appearance(step=at.step, loss=_loss_of(_rows_with_losses(loader, at.step, losses), at))
        return
    for step in dict.fromkeys(place.step for place in places if place.stands_in_for is None):
        yield Appearance(step=step, loss=_loss_of(_rows_with_losses(loader, step, losses), at))


def _loss_of(rows: Iterable[_Row], wanted: Delivery) -> float | None:
    """The worst loss of the rows that have a record."""
    found = [loss for loss, records in rows if any(_is_of(each, wanted) for each in records)]
    return max(found, key=_badness, default=None)


def _is_of(one: Delivery, other: Delivery) -> bool:
    return (one.source, one.record) == (other.source, other.record)


def duplicates_of(split: Split, record_id: str) -> Iterator[str]:
    """The records of the same content in the snapshot, and those dropped as duplicates of this one, in words."""
    cache = cache_of(split)
    found = SnapshotRecords.open(split.path, cache.manifest)
    if found is not None and found.lineage.has_digests:
        contents = found.lineage.contents_of([record_id])
        equal = [
            shard.record_id(int(ordinal))
            for digests in contents.values()
            for _, shard, ordinals in found.lineage.find_contents(digests)
            for ordinal in ordinals
        ]
        if others := [each for each in equal if each != record_id]:
            yield f"equal content: {', '.join(others)}"
    try:
        analyses = cache_duplicates(cache)
    except BeamPipesError:  # an asset that is not at hand is no reason to hide the row
        return
    for duplicates in analyses.values():
        for each in duplicates:
            if each.kept == record_id:
                yield f"{each.removed} was dropped as its {each.reason} (similarity {each.similarity:.2f})"


def _ranked(rows: Iterable[BlamedRow]) -> Iterator[str]:
    for rank, row in enumerate(rows, 1):
        head, *rest = row.lines()
        yield f"{rank}. {head}"
        yield from (f"   {line}" for line in rest)


def _json(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, (list, tuple)) else value
