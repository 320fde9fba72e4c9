"""The state of a loader: its position, and everything that determines what comes next.

`LoaderState` is one JSON of less than a kilobyte, the same on every host; longer only if the rates of a mixture of more
than about 30 sources were changed during the run, because it then holds the position of each, or if records were added
to the source more than ten times, because each addition takes some 40 bytes. It does not hold the batch
size, the number of hosts, workers or epochs, nor the choice of features: those may change between saving and restoring,
but the order of the rows may not. It names the data, so that a state of other data is refused.
`Stateful` offers it in the forms of checkpoints: torch's, Grain's, and TensorFlow's, which is imported only then.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.extras import require
from beam_pipes.storage.checked_json import JsonObject, JsonValue

STATE_VERSION = 1
MOST_PERIOD = 1 << 20  # the rates of a mixture add up to at most this

# A state as checkpoints of torch and Orbax keep it: plain values by name, for `load_state_dict` to check.
StateDict = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of a mixture from row `start` on, at `rates`, where source i had given `counts[i]` rows.

    `streams` numbers the permutations of each source if sources were added or removed; None for 0, 1, 2, …
    """

    start: int
    counts: tuple[int, ...]
    rates: tuple[int, ...]
    streams: tuple[int, ...] | None = None


class Addition(NamedTuple):
    """Records that were added to the source during the run: until `epoch` it had the `rows` rows of `manifest`.

    The new records are read from row `position` of this epoch on, or from the next epoch on (None). `manifest` holds
    the first 16 digits of the id.
    """

    manifest: str
    rows: int
    epoch: int
    position: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoaderState:
    """A place in a sequence of rows.

    `epoch` and `position` say that the next row is row `position` of epoch `epoch`; all other fields identify the
    sequence. `source` names the data (manifest, split, rows, packing plan), `shuffle` the kind of order. `takedown` is
    the revision of takedowns at which it was saved, absent in JSON if there never were any; it affects nothing.
    `appended` lists the additions to the source since the run began, absent in JSON if there were none.
    """

    source: JsonObject
    order_version: int
    seed: int
    shuffle: str
    epoch: int
    position: int
    segment: Segment | None = None
    takedown: int = 0
    appended: tuple[Addition, ...] = ()
    version: int = STATE_VERSION

    def to_json(self) -> str:
        """`{"epoch":0,"order_version":1,"position":64,…}`: sorted keys, no spaces."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def to_dict(self) -> StateDict:
        """The state as plain Python values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["source"] = dict(self.source)
        if not self.takedown:
            del fields["takedown"]
        fields["appended"] = [list(addition) for addition in self.appended]
        if not self.appended:
            del fields["appended"]
        if self.segment is None:
            del fields["segment"]
        else:
            fields["segment"] = {
                "start": self.segment.start,
                "counts": list(self.segment.counts),
                "rates": list(self.segment.rates),
            }
            if self.segment.streams is not None:
                fields["segment"]["streams"] = list(self.segment.streams)
        return fields

    @classmethod
    def from_json(cls, text: str | bytes) -> LoaderState:
        """Reads what `to_json` wrote; raises `LoaderError` on anything else."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LoaderError(f"a loader state is one JSON object, got {text[:60]!r}: {error}") from error
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: object) -> LoaderState:
        """Reads what `to_dict` returned; raises `LoaderError` on anything else."""
        if not isinstance(value, Mapping):
            raise LoaderError(f"a loader state is one JSON object, got {type(value).__name__}")
        if value.get("version") != STATE_VERSION:
            raise LoaderError(
                f"this library reads loader states of version {STATE_VERSION}, got {value.get('version')!r}",
                found=value.get("version"),
            )
        known = {field.name for field in dataclasses.fields(cls)}
        missing, unknown = sorted(known - {"segment", "takedown", "appended"} - set(value)), sorted(set(value) - known)
        if missing or unknown:
            raise LoaderError(f"a loader state misses the fields {missing} and has the unknown ones {unknown}")
        fields = dict(value)
        try:
            for name in ("order_version", "seed", "epoch", "position", "takedown"):
                if name != "takedown" or name in fields:
                    fields[name] = _whole(name, fields[name], most=_MOST_SEED if name == "seed" else _MOST_ROWS)
            if "segment" in fields:
                fields["segment"] = _segment(fields["segment"])
            fields["appended"] = tuple(map(_addition, fields.get("appended", ())))
            for earlier, later in itertools.pairwise(fields["appended"]):
                if (later.epoch, later.rows) < (earlier.epoch, earlier.rows):
                    raise ValueError(f"additions should be in the order of the run, got {[*earlier]}, {[*later]}")
            fields["source"] = dict(fields["source"])
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise LoaderError(f"a loader state holds a malformed value: {error}") from error
        return cls(**fields)


_MOST_SEED = 2**64 - 1
_MOST_ROWS = 2**61  # positions and counts are summed up as int64


def _whole(name: str, number: object, *, most: int = _MOST_ROWS) -> int:
    """A number of a state as a Python number: a checkpoint may have turned it into NumPy's."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0:
        raise ValueError(f"{name} should be a non-negative integer, got {number!r:.60}")
    if number > most:
        raise ValueError(f"{name} should be at most {most}, got {number}")
    return int(number)


def _segment(value: JsonValue) -> Segment:
    def several(name: str) -> tuple[int, ...]:
        return tuple(_whole(f"{name} of the segment", each) for each in value[name])

    segment = Segment(
        start=_whole("start of the segment", value["start"]),
        counts=several("counts"),
        rates=several("rates"),
        streams=several("streams") if "streams" in value else None,
    )
    if not 0 < sum(segment.rates) <= MOST_PERIOD:
        raise ValueError(f"rates of the segment should add up to 1 to {MOST_PERIOD}, got {sum(segment.rates)}")
    lengths = {len(segment.counts), len(segment.rates), len(segment.streams or segment.rates)}
    if len(lengths) > 1 or len(set(segment.streams or ())) < len(segment.streams or ()):
        raise ValueError(f"the segment should have a count, a rate and a stream for each source, got {value!r:.200}")
    # For sources that were removed during the run, only the total of rows is kept.
    given = sum(segment.counts)
    if given > segment.start or (given < segment.start and segment.streams is None):
        raise ValueError(f"the sources gave {given} rows before the segment, which starts at row {segment.start}")
    return segment


def _addition(value: JsonValue) -> Addition:
    manifest, rows, epoch, position = value
    if not isinstance(manifest, str):
        raise ValueError(f"appended should list [manifest, rows, epoch, position], got {value!r:.200}")
    within = None if position is None else _whole("position of an addition", position)
    found = Addition(manifest, _whole("rows of an addition", rows), _whole("epoch of an addition", epoch), within)
    if found.position is not None and found.position > found.rows:
        raise ValueError(f"an addition in an epoch of {found.rows} rows is at row {found.position}")
    return found


def check_same_sequence(saved: LoaderState, now: LoaderState) -> None:
    """Raises `StateMismatchError`, listing every difference, unless `saved` continues the sequence of `now`.

    `this state belongs to another sequence of rows: seed: 1 → 2; source.manifest: 'a81f…' → '09bc…' (saved → now). …`
    """
    was, new = _sequence_of(saved), _sequence_of(now)
    differences = [
        f"{name}: {was.get(name, 'absent')!r} → {new.get(name, 'absent')!r}"
        for name in sorted({*was, *new})
        if was.get(name, _ABSENT) != new.get(name, _ABSENT)
    ]
    if differences:
        newer = {each.partition(":")[0] for each in differences} <= {"source.manifest", "source.rows"}
        raise StateMismatchError(
            f"this state belongs to another sequence of rows: {'; '.join(differences)} (saved → now). "
            "Open the snapshot, and pass the seed, plan and sources, that the state was saved with; "
            + ("if files were added to it since, pass Loader(…, appended='next_epoch') or 'now'; " if newer else "")
            + "or start a new run.",
            differences=tuple(differences),
        )


_ABSENT = object()


def _sequence_of(state: LoaderState) -> dict[str, object]:
    fields: dict[str, object] = {
        "order_version": state.order_version,
        "seed": state.seed,
        "shuffle": state.shuffle,
    }
    _flatten("source", state.source, fields)
    return fields


def _flatten(prefix: str, value: object, into: dict[str, object]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{prefix}.{key}", item, into)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _flatten(f"{prefix}[{index}]", item, into)
    else:
        into[prefix] = value


class Stateful(abc.ABC):
    """What has a `LoaderState`, in the forms that checkpoints take."""

    @property
    @abc.abstractmethod
    def state(self) -> LoaderState: ...

    @abc.abstractmethod
    def restore(self, state: LoaderState) -> None:
        """Continues from a state."""

    def state_dict(self) -> StateDict:
        """The state as torch's checkpoints take it."""
        return self.state.to_dict()

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """`restore` of what `state_dict` gave."""
        self.restore(LoaderState.from_dict(state_dict))

    def get_state(self) -> bytes:
        """The state as Grain's checkpoint handler takes it: JSON, UTF-8."""
        return self.state.to_json().encode()

    def set_state(self, state: bytes | str) -> None:
        """`restore` of what `get_state` gave."""
        self.restore(LoaderState.from_json(state))

    def tf_checkpoint(self) -> object:
        """An object for `tf.train.Checkpoint(loader=loader.tf_checkpoint())` that saves and restores this loader.

        Its saved value is the state as JSON.
        """
        tf = require("tensorflow", purpose="Loader.tf_checkpoint")

        class LoaderCheckpoint(tf.train.experimental.PythonState):  # type: ignore[misc, name-defined]
            def serialize(of) -> str:
                return self.get_state().decode()

            def deserialize(of, string_value: str | bytes) -> None:
                self.set_state(string_value)

        return LoaderCheckpoint()
