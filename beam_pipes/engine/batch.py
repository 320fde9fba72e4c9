"""What travels between units: consecutive records of one source shard, with their live intermediate values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from beam_pipes.engine.account import Account
from beam_pipes.engine.failure import Failure
from beam_pipes.engine.graph import Ref

B = TypeVar("B", bound="Batch")

# For each record, the list of values that one output of one unit gave.
Column = list[Sequence[Any]]


class Records(Protocol):
    """The records of a batch as a source gives them (`sources.RecordBatch`)."""

    values: list[Any]

    def record_id(self, index: int, /) -> str: ...


class Batch:
    """Records of one source shard, in order, and the columns computed for them so far."""

    __slots__ = ("account", "columns", "drops", "failures", "records", "size")

    def __init__(self, records: Records, account: Account | None = None) -> None:
        self.records = records
        self.size = len(records.values)
        self.columns: dict[Ref, Column] = {Ref("", None): [(value,) for value in records.values]}
        self.failures: dict[int, Failure] = {}
        # Of each record, the inputs of units that gave nothing: (unit, reason), in the order of units.
        self.drops: dict[int, list[tuple[str, str]]] = {}
        self.account = Account() if account is None else account

    def copy(self: B) -> B:
        """The same batch, to be worked on while this one stays as it is; values are shared.

        A runner that retries a bundle in the same process hands out the very objects that it handed out before.
        """
        made = type(self).__new__(type(self))
        made.records, made.size = self.records, self.size
        made.columns = {ref: list(column) for ref, column in self.columns.items()}
        made.failures = dict(self.failures)
        made.drops = {index: list(drops) for index, drops in self.drops.items()}
        made.account = Account()
        made.account.merge_from(self.account)
        return made

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.records, self.size, self.columns, self.failures, self.drops, self.account)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.records, self.size, self.columns, self.failures, self.drops, self.account = state


class OneRecord:
    """A single value as the records of a batch; its id is computed only when something draws."""

    __slots__ = ("_record_id", "values")

    def __init__(self, value: Any, record_id: Callable[[], str]) -> None:
        self.values = [value]
        self._record_id = record_id

    def record_id(self, index: int) -> str:
        return self._record_id()
