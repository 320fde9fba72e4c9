"""Records on their way through a graph of units: batches, the context of a call, and failures.

A `Batch` holds consecutive records of one source shard with their intermediate values. Before a stage is called, the
engine sets the `RecordContext` of the thread: the unit and record that key draws and identities inside a stage. A
`Failure` describes how a record failed in a stage, in words that travel between processes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from beam_pipes.engine.account import Account
from beam_pipes.engine.graph import Ref
from beam_pipes.errors import DeclarationError, text_of
from beam_pipes.format.spec import ColumnValues, Record

if TYPE_CHECKING:
    from beam_pipes.engine.statistics import Statistic


# What `_set_stats`, `drop` and `count` leave behind during a call of a stage, by attribute name.
Left = dict[str, Any]


class RecordContext:
    """The place of one call of `transform`: unit, record and the position among the record's inputs of that unit.

    `stage` is the object whose `transform` is running. `index` is None while a whole batch is transformed at once:
    then there is no single record, and drawing is refused. `direct` marks a call from outside the engine, and
    what it calls. `counted` holds the statistics of `count` and `observe` in this call, by name; `left` is where the
    reasons of drops are kept.
    """

    __slots__ = (
        "answers",
        "content_of",
        "counted",
        "direct",
        "epoch",
        "index",
        "item",
        "left",
        "record_id_of",
        "seed",
        "stage",
        "unit",
    )

    def __init__(self, *, seed: int, unit: str, epoch: int = 0, stage: object = None, direct: bool = False) -> None:
        self.seed = seed
        self.unit = unit
        self.epoch = epoch
        self.stage = stage
        self.direct = direct
        self.record_id_of: Callable[[int], str] = str
        self.content_of: Callable[[int], bytes] | None = None
        self.index: int | None = 0
        self.item = 0
        self.counted: dict[str, Statistic] | None = None
        self.left: Left = {}
        #: The directory where answers of services are kept, if there is one.
        self.answers: str | None = None

    @property
    def record_id(self) -> str:
        """The id of the record being processed, such as `books/emma.txt@1024`: the same however the job is cut."""
        if self.index is None:
            raise DeclarationError(
                f"stage {self.unit!r} draws in transform_batch, where no single record keys the draw. Draw in "
                "transform, and omit transform_batch.",
                stage=self.unit,
            )
        return self.record_id_of(self.index)

    @property
    def content(self) -> bytes:
        """What identifies the record when its neighbours change: the name of its file if it is a whole file, else a
        digest of its content; its id if records have neither.
        """
        if self.content_of is None:
            return self.record_id.encode("utf-8", "surrogatepass")
        assert self.index is not None  # only asked for in `transform`
        return self.content_of(self.index)

    def key(self, *, size: int = 16) -> bytes:
        """`size` bytes that depend on (seed, unit, record, item, epoch) and nothing else."""
        text = f"{self.seed}\0{self.unit}\0{self.record_id}\0{self.item}\0{self.epoch}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


class ShownContext(RecordContext):
    """A context whose `index` is in memory that another process may read; -1 there means None."""

    __slots__ = ("_cell",)

    def __init__(self, context: RecordContext, cell: memoryview) -> None:
        self._cell = cell
        super().__init__(seed=context.seed, unit=context.unit, epoch=context.epoch, stage=context.stage)
        self.left, self.answers = context.left, context.answers

    @property
    def index(self) -> int | None:
        index = self._cell[0]
        return None if index < 0 else index

    @index.setter
    def index(self, index: int | None) -> None:
        self._cell[0] = -1 if index is None else index


class _Current(threading.local):
    context: RecordContext | None = None


_current = _Current()


def current_context() -> RecordContext | None:
    """The context of the call of `transform` that is running in this thread, or None outside of one."""
    return _current.context


def set_context(context: RecordContext | None) -> RecordContext | None:
    """Makes `context` the current one of this thread and returns the one before it."""
    previous = _current.context
    _current.context = context
    return previous


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with a record, and where.

    Words, not the exception: many exceptions cannot be pickled, and pickling loses the traceback of all. `dropped`
    means `on_error="drop"`: counted with a reason, not kept as a dead letter. `item` is the index of the failed input
    among those that the record has in this stage.
    """

    stage: str
    error_type: str
    message: str
    traceback: str
    dropped: bool
    item: int = 0

    @classmethod
    def of(cls, error: BaseException, *, stage: str, dropped: bool, item: int = 0) -> Failure:
        """`error` as a failure."""
        return cls(
            stage=stage,
            error_type=type(error).__name__,
            message=text_of(error),
            traceback=portable_traceback(error),
            dropped=dropped,
            item=item,
        )

    @property
    def reason(self) -> str:
        """The reason it is counted under if it is dropped: `error/ValueError`."""
        return f"error/{self.error_type}"


def error_in_short(stage: str, record_id: str, error_type: str, message: str) -> str:
    """A failed record as part of a message: `tokenize, a.txt@0: KeyError: 'text'`."""
    return f"{stage}, {record_id}: {error_type}: {message:.200}"


def portable_traceback(error: BaseException) -> str:
    """The traceback after the last frame of this package, files named without their directories.

    `File "stages.py", line 12, in transform` …: the same on every machine and runner.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [i for i, frame in enumerate(frames) if "/beam_pipes/" in frame.filename.replace("\\", "/")]
    lines = []
    for frame in frames[ours[-1] + 1 if ours else 0 :]:
        file = frame.filename.replace("\\", "/").rpartition("/")[2]
        lines.append(f'  File "{file}", line {frame.lineno}, in {frame.name}\n    {frame.line}')
    return "\n".join([*lines, f"{type(error).__name__}: {text_of(error)}"])


B = TypeVar("B", bound="Batch")

# For each record, the list of values from one output of one unit.
Column = list[Sequence[Record]]


class Table:
    """Records that are rows, kept as columns: `{"n": array([1, 2])}` is `[{"n": 1}, {"n": 2}]`.

    Stages that know of columns work on these; for the others `rows` makes dicts, once. Nobody changes the columns.
    """

    __slots__ = ("columns", "size")

    def __init__(self, columns: Mapping[str, ColumnValues], size: int) -> None:
        self.columns = columns
        self.size = size

    @classmethod
    def of_rows(cls, rows: Sequence[Record]) -> Table | None:
        """The columns of dicts that all have the same keys in the same order; None for others."""
        if not rows or {*map(type, rows)} != {dict}:
            return None
        names = list(rows[0])
        if not names or not all(map(names.__eq__, map(list, rows))):
            return None
        columns = zip(*(row.values() for row in rows), strict=True)
        return cls(dict(zip(names, map(list, columns), strict=True)), len(rows))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Table:
        return Table({name: column[part] for name, column in self.columns.items()}, len(range(self.size)[part]))

    def __add__(self, other: Table | list[Record]) -> Table | list[Record]:
        if isinstance(other, Table) and list(self.columns) == list(other.columns):
            joined = {name: self.values(name) + other.values(name) for name in self.columns}
            return Table(joined, self.size + other.size)
        return self.rows() + list(other.rows() if isinstance(other, Table) else other)

    def __radd__(self, other: list[Record]) -> list[Record]:
        return other + self.rows()

    def values(self, name: str) -> list[Any]:
        """The values of a column; those of a list itself."""
        column = self.columns[name]
        return column if isinstance(column, list) else column.tolist()

    def rows(self) -> list[Record]:
        """The records, one dict each."""
        if not self.columns:
            return [{} for _ in range(self.size)]
        names = list(self.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*map(self.values, names), strict=True)]


def columns_of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Column → its values in the rows that have it."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return values


class Records(Protocol):
    """The records of a batch as a source gives them (`sources.RecordBatch`)."""

    @property
    def values(self) -> list[Record]: ...

    def record_id(self, index: int, /) -> str: ...

    def content(self, index: int, /) -> bytes: ...


class Batch:
    """Records of one source shard, in order, and the columns computed for them so far.

    Columns of one row for each record are in `tables` until somebody asks for their values.
    """

    __slots__ = ("account", "columns", "drops", "failures", "records", "size", "tables")

    def __init__(self, records: Records, account: Account | None = None) -> None:
        self.records = records
        self.columns: dict[Ref, Column] = {}
        self.tables: dict[Ref, Table] = {}
        table: Table | None = getattr(records, "table", None)
        if table is None:
            self.size = len(records.values)
            self.columns[Ref("", None)] = [(value,) for value in records.values]
        else:
            self.size = len(table)
            self.tables[Ref("", None)] = table
        self.failures: dict[int, Failure] = {}
        # For each record, the inputs for which a unit returned nothing: (unit, reason), in the order of units.
        self.drops: dict[int, list[tuple[str, str]]] = {}
        self.account = Account() if account is None else account

    def column(self, ref: Ref) -> Column:
        """The values of one output of one unit; from now on they are rows."""
        if ref in self.tables:
            self.columns[ref] = [(row,) for row in self.tables.pop(ref).rows()]
        return self.columns[ref]

    def all_columns(self) -> dict[Ref, Column]:
        """All that was computed so far, as rows."""
        for ref in list(self.tables):
            self.column(ref)
        return self.columns

    def copy(self: B, account: Account | None = None) -> B:
        """A copy of the batch to work on, with its own `account` or a copy; values are shared.

        A runner that retries a bundle in the same process hands out the same objects again.
        """
        made = type(self).__new__(type(self))
        made.records, made.size = self.records, self.size
        made.columns, made.tables = {ref: list(column) for ref, column in self.columns.items()}, dict(self.tables)
        made.failures = dict(self.failures)
        made.drops = {index: list(drops) for index, drops in self.drops.items()}
        if account is None:
            account = Account()
            account.merge_from(self.account)
        made.account = account
        return made

    def __getstate__(self) -> tuple[object, ...]:
        return (self.records, self.size, self.all_columns(), self.failures, self.drops, self.account)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.records, self.size, self.columns, self.failures, self.drops, self.account = state
        self.tables = {}


class OneRecord:
    """A single value as the records of a batch; its id and its content are computed only when a stage draws."""

    __slots__ = ("_content", "_record_id", "values")

    def __init__(self, value: object, record_id: Callable[[], str], content: Callable[[], bytes] | None = None) -> None:
        self.values = [value]
        self._record_id = record_id
        self._content = content

    def record_id(self, index: int) -> str:
        return self._record_id()

    def content(self, index: int) -> bytes:
        return self._record_id().encode("utf-8", "surrogatepass") if self._content is None else self._content()
