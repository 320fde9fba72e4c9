"""The records of a split that meet a condition on their stored features, without another build.

    split.where("score > 0.8 and lang == 'en'")   ← a condition, read as Python and never run as Python
          │  parsed: which features it compares, and with what
          ▼
    columns of these features, a million records at once  →  one truth a record
          │
          ▼
    FilteredSplit: the numbers of the records that are left, ascending, over the same files

What is left is a function of the snapshot and the condition alone. Records that are taken down are judged by what is
stored of them, so that a takedown changes no row number and no loader's state; their stand-ins are drawn from the
records that are left, so that what a filter keeps out never comes back through it.

The same class holds the records that an older snapshot had (`Split.as_of`), and those added since (`Split.since`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from beam_pipes.cache.dtypes import Array
from beam_pipes.cache.publish import OlderShards
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec, Record
from beam_pipes.cache.takedown import stand_in_key, stand_ins
from beam_pipes.errors import CacheError, ExampleIndexError, SpecError

if TYPE_CHECKING:
    from beam_pipes.cache.columns import ColumnReader
    from beam_pipes.cache.shard_files import Places, ShardFiles


#: Records whose columns are held at once: 8 MB for a feature of 8 bytes. A multiple of 8.
RECORDS_AT_ONCE = 1 << 20

# Of columns, or of a column and a value: one truth a record.
_Compare = Callable[[Any, Any], Array]
_COMPARISONS: Mapping[type[ast.cmpop], _Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

# A text in quotes, or the name of a feature in backticks.
_QUOTED = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|`([^`]*)`""")
_PLACEHOLDER = "_in_backticks_"

_ALLOWED = (
    "A condition compares scalar features and len(feature) with numbers and texts (==, !=, <, <=, >, >=, in, not in), "
    "joined by and, or, not; put names that are not Python identifiers in backticks. Compute anything else in a stage"
)


@dataclasses.dataclass(frozen=True)
class _Column:
    """One feature of all records, or its length: a number, a text, or a truth."""

    feature: str
    kind: str  # "number", "text" or "truth"
    length: bool = False


# What a feature is compared with.
_Value = bool | int | float | str | bytes
_Operand = _Column | _Value


class _Texts:
    """The texts of many records, as their bytes one after the other: most are never made into objects of Python."""

    def __init__(self, values: Array, lengths: Array, objects: Callable[[], Array]) -> None:
        self._values = values
        self._lengths = lengths
        self._starts: Array = np.cumsum(lengths) - lengths
        self.objects = objects

    def equal(self, text: bytes) -> Array:
        """(n,) bool: which of them are this one. Byte by byte, of ever fewer records."""
        left = np.flatnonzero(self._lengths == len(text))
        for at, byte in enumerate(text):
            left = left[self._values[self._starts[left] + at] == byte]
        found = np.zeros(len(self._lengths), bool)
        found[left] = True
        return found


# Column → its values; gives one truth a record.
_Made = Mapping[_Column, Any]
_Test = Callable[[_Made], Array]


class Condition:
    """A condition on the features of a spec, parsed and checked.

        Condition("len(tokens) > 2 and lang in ('en', 'de')", spec).columns  →  len(tokens), lang

    Raises `SpecError` for what is no condition, for features that the spec does not have or that are no scalars, and
    where a number is compared with a text.
    """

    def __init__(self, text: str, spec: ExampleSpec) -> None:
        if not isinstance(text, str):
            raise SpecError(f'where: expected a condition such as "score > 0.8", got {type(text).__name__}.')
        self.text = text
        self._spec = spec
        self._names: list[str] = []
        self.columns: set[_Column] = set()

        def placeholder(found: re.Match[str]) -> str:
            if found[2] is None:
                return found[0]
            self._names.append(found[2])
            return f"{_PLACEHOLDER}{len(self._names) - 1}"

        try:
            tree = ast.parse(_QUOTED.sub(placeholder, text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SpecError(f"where({text!r}): this is not a condition ({error}). {_ALLOWED}.") from error
        self._test = self._truth(tree.body)

    def of(self, columns: ColumnReader, places: Places) -> Array:
        """(n,) bool: which of these records meet it."""
        made = {column: _values(column, columns, places) for column in self.columns}
        truth: Array = np.broadcast_to(np.asarray(self._test(made), bool), (len(places),))
        return truth

    def _refuse(self, node: ast.AST, why: str) -> SpecError:
        return SpecError(f"where({self.text!r}): {ast.unparse(node)}: {why}. {_ALLOWED}.")

    def _truth(self, node: ast.expr) -> _Test:
        if isinstance(node, ast.BoolOp):
            tests = [self._truth(value) for value in node.values]
            joined = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return lambda made: functools.reduce(joined, (test(made) for test in tests))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            negated = self._truth(node.operand)
            return lambda made: np.logical_not(negated(made))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        operand = self._operand(node)
        if isinstance(operand, _Column) and operand.kind == "truth":
            return lambda made: made[operand]
        raise self._refuse(node, "is neither a comparison nor a feature of dtype bool")

    def _comparison(self, node: ast.Compare) -> _Test:
        tests: list[_Test] = []
        left: _Operand | ast.expr = self._operand(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)):
                tests.append(self._membership(node, left, right_node, negated=isinstance(op, ast.NotIn)))
                left = right_node
                continue
            if isinstance(left, ast.expr):
                raise self._refuse(node, "goes on behind in (…)")
            right = self._operand(right_node)
            if type(op) not in _COMPARISONS:
                raise self._refuse(node, "compares by identity")
            tests.append(self._compared(node, _COMPARISONS[type(op)], left, right))
            left = right
        return lambda made: functools.reduce(np.logical_and, (test(made) for test in tests))

    def _compared(self, node: ast.Compare, compare: _Compare, left: _Operand, right: _Operand) -> _Test:
        left, right = self._alike(node, left, right), self._alike(node, right, left)
        if not isinstance(left, _Column) and not isinstance(right, _Column):
            raise self._refuse(node, "compares no feature")
        if compare in (operator.eq, operator.ne) and not (isinstance(left, _Column) and isinstance(right, _Column)):
            column, value = (left, right) if isinstance(left, _Column) else (right, left)
            assert isinstance(column, _Column)
            equals = compare is operator.eq
            return lambda made: _equal(made[column], value) == equals
        return lambda made: compare(_comparable(made, left), _comparable(made, right))

    def _membership(self, node: ast.Compare, left: _Operand | ast.expr, right: ast.expr, *, negated: bool) -> _Test:
        if not isinstance(left, _Column) or not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            raise self._refuse(node, "in asks whether a feature is one of a list of values, such as ('en', 'de')")
        values = []
        for item in right.elts:
            value = self._operand(item)
            if isinstance(value, _Column):
                raise self._refuse(item, "is a feature, but a list holds values")
            values.append(self._alike(node, value, left))

        def test(made: _Made) -> Array:
            tests = [_equal(made[left], value) for value in values]
            found: Array = functools.reduce(np.logical_or, tests, np.zeros(1, bool))
            return ~found if negated else found

        return test

    def _alike(self, node: ast.AST, operand: _Operand, other: _Operand) -> _Operand:
        """`operand`, as what it is compared with wants it: a text for a feature of bytes becomes bytes."""
        kinds = [_kind(one) for one in (operand, other)]
        if "text" in kinds and kinds[0] != kinds[1]:
            raise self._refuse(node, "compares a text with a number")
        if isinstance(other, _Column) and other.kind == "text" and not isinstance(operand, _Column):
            wants_bytes = self._spec[other.feature].dtype == "bytes"
            if wants_bytes and isinstance(operand, str):
                return operand.encode()
            if not wants_bytes and isinstance(operand, bytes):
                raise self._refuse(node, f"compares the feature {other.feature!r}, a str, with bytes")
        return operand

    def _operand(self, node: ast.expr) -> _Operand:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, bytes)):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            value = self._operand(node.operand)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.Name):
            return self._column(node, length=False)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.Name):
                return self._column(node.args[0], length=True)
        raise self._refuse(node, "is not a feature, length, number or text")

    def _column(self, node: ast.Name, *, length: bool) -> _Column:
        name = node.id
        if name.startswith(_PLACEHOLDER):
            name = self._names[int(name.removeprefix(_PLACEHOLDER))]
        if name not in self._spec:
            raise SpecError(
                f"where({self.text!r}): there is no feature {name!r}. The features are: {', '.join(self._spec)}.",
                feature=name,
            )
        spec = self._spec[name]
        if length:
            if not spec.shape and not spec.is_text:
                raise SpecError(
                    f"where({self.text!r}): the feature {name!r} is a scalar and has no len(). Compare the value "
                    "itself.",
                    feature=name,
                )
            column = _Column(name, "number", length=True)
        else:
            if spec.shape:
                raise SpecError(
                    f"where({self.text!r}): the feature {name!r} has the shape {spec.shape}, and a condition compares "
                    f"one value a record. Use len({name}), or store what you need of it as a scalar feature.",
                    feature=name,
                )
            column = _Column(name, _kind_of(spec))
        self.columns.add(column)
        return column


def _kind_of(spec: FeatureSpec) -> str:
    return "text" if spec.is_text else "truth" if spec.dtype == "bool" else "number"


def _kind(operand: _Operand) -> str:
    """The kind that a comparison sees, in which a truth is a number."""
    if isinstance(operand, _Column):
        return "text" if operand.kind == "text" else "number"
    return "text" if isinstance(operand, (str, bytes)) else "number"


def _equal(values: Array | _Texts, value: Any) -> Array:
    if isinstance(values, _Texts):
        return values.equal(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
    return np.asarray(values == value, bool)


def _comparable(made: _Made, operand: _Operand) -> Array | _Value:
    if not isinstance(operand, _Column):
        return operand
    values = made[operand]
    return values.objects() if isinstance(values, _Texts) else values


def _values(column: _Column, columns: ColumnReader, places: Places) -> Array | _Texts:
    if column.length:
        return columns.lengths(column.feature, places)
    if column.kind == "text":
        data, lengths = columns.runs(column.feature, places)
        return _Texts(data, lengths, lambda: columns.texts(column.feature, places))
    values = columns.stacked(column.feature, places)
    assert values is not None  # a scalar that is not text
    return values


def rows_where(
    condition: Condition, columns: ColumnReader, records: Array | int, place: Callable[[Array], Places]
) -> Array:
    """(k,), ascending: those of `records` (numbers, or how many from 0 on) that meet a condition.

    What is held at once is a bit a record, the columns of `RECORDS_AT_ONCE` of them, and what is returned: 4 bytes a
    record that is left, 8 where there are more than 2^32.
    """
    masks = []
    for begin, end in _portions(records if isinstance(records, int) else len(records)):
        some = np.arange(begin, end) if isinstance(records, int) else records[begin:end]
        masks.append(np.packbits(condition.of(columns, place(some))))
    return _rows_of(masks, records)


def _portions(total: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + RECORDS_AT_ONCE, total)) for begin in range(0, total, RECORDS_AT_ONCE))


def _rows_of(masks: Sequence[Array], records: Array | int) -> Array:
    """The records that masks of bits choose, one mask for each portion: allocated once, as large as it has to be."""
    total = records if isinstance(records, int) else len(records)
    counts = [int(_BITS_OF[mask].sum()) for mask in masks]
    dtype = (np.uint32 if total <= 1 << 32 else np.int64) if isinstance(records, int) else records.dtype
    rows = np.empty(sum(counts), dtype)
    at = 0
    for (begin, end), mask, count in zip(_portions(total), masks, counts, strict=True):
        chosen = np.flatnonzero(np.unpackbits(mask, count=end - begin))
        rows[at : at + count] = chosen + begin if isinstance(records, int) else records[begin:end][chosen]
        at += count
    return rows


# How many bits of each byte are set.
_BITS_OF = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)


def digest_of_rows(rows: Array) -> str:
    """Names a choice of rows: 12 hexadecimal digits of the sha256 of their numbers as little-endian int64."""
    digest = hashlib.sha256()
    for begin, end in _portions(len(rows)):
        digest.update(rows[begin:end].astype("<i8").tobytes())
    return digest.hexdigest()[:12]


def packed_rows(rows: Array, total: int) -> bytes:
    """`rows` out of `total` as one bit a record: what is pickled. `([0, 2], 3)` → `b"\\xa0"`."""
    masks = []
    for begin, end in _portions(total):
        first, last = bounds_of(rows, [begin, end])
        mask = np.zeros(end - begin, bool)
        mask[rows[first:last].astype(np.int64) - begin] = True
        masks.append(np.packbits(mask).tobytes())
    return b"".join(masks)


def unpacked_rows(data: bytes, total: int) -> Array:
    """The inverse of `packed_rows`."""
    bits = np.frombuffer(data, np.uint8)
    return _rows_of([bits[begin // 8 : -(-end // 8)] for begin, end in _portions(total)], total)


def checked_indices(indices: Sequence[int] | Array, split: WholeSplit | ChosenRecords) -> Array:
    """`indices` of a split's records counted from the start; raises `ExampleIndexError` outside of them."""
    total, wanted = len(split), np.asarray(indices)
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise ExampleIndexError(f"{split!r}: expected a sequence of indices, got {wanted.dtype} {wanted.shape}")
    wanted = wanted.astype(np.int64)
    outside = (wanted < -total) | (wanted >= total)
    if outside.any():
        index = int(wanted[np.argmax(outside)])
        raise ExampleIndexError(f"{split!r}: there is no record {index}", split=split.name, index=index)
    checked: Array = np.where(wanted < 0, wanted + total, wanted)
    return checked


def bounds_of(rows: Array, records: Sequence[int] | Array) -> Array:
    """Where `records` would stand in `rows` (ascending): (k,) int64."""
    wanted = np.asarray(records, np.int64)
    inside = np.minimum(wanted, np.iinfo(rows.dtype).max).astype(rows.dtype)  # else all rows would be converted
    found: Array = np.where(wanted > inside.astype(np.int64), len(rows), np.searchsorted(rows, inside))
    return found


def positions_of(rows: Array, records: Sequence[int] | Array) -> Array:
    """(k,) int64, ascending: the positions in `rows` (ascending) of those `records` that are among them."""
    wanted = np.asarray(records, np.int64)
    at = bounds_of(rows, wanted)
    inside = at < len(rows)
    at, wanted = at[inside], wanted[inside]
    found: Array = at[rows[at] == wanted]
    return found


def rows_between(starts: Array, ends: Array, total: int) -> Array:
    """The numbers of several ranges of records out of `total`, as small as `rows_where` makes them.

    `([0, 7], [2, 9], 9)` → `[0, 1, 7, 8]`
    """
    dtype = np.uint32 if total <= 1 << 32 else np.int64
    ranges = [np.arange(start, end, dtype=dtype) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.concatenate([*ranges, np.empty(0, dtype)])


class StoredAs(NamedTuple):
    """Where chosen records are stored: `sizes[i]` of them in shard `shards[i]`. A block-wise order permutes these runs.

    `older` is the older snapshot that had the same runs, and `manifest_id` identified the records there.
    """

    shards: Array
    sizes: Array
    older: OlderShards | None = None
    manifest_id: str | None = None


def rows_of_older(rows: Array | None, begins: Array, older: OlderShards) -> tuple[Array, StoredAs]:
    """The `rows` (ascending; None: all) that an older snapshot had too, and how they were stored there.

    `begins` is the first record of each shard, and the number of all behind them.
    """
    shards, counts = np.asarray(older.shards, np.int64), np.asarray(older.records, np.int64)
    found, sizes = _chosen_between(rows, begins[shards], begins[shards] + counts, int(begins[-1]))
    manifest_id = older.manifest_id
    if rows is not None:
        numbers = found.astype(np.int64) - np.repeat(begins[shards] - (np.cumsum(counts) - counts), sizes)
        manifest_id = f"{manifest_id}?{digest_of_rows(numbers)}"
    return found, StoredAs(shards, sizes, older, manifest_id)


def rows_since(rows: Array | None, begins: Array, older: OlderShards) -> tuple[Array, StoredAs]:
    """The `rows` (ascending; None: all) that an older snapshot did not have."""
    taken = np.zeros(len(begins), np.int64)
    np.maximum.at(taken, np.asarray(older.shards, np.int64), np.asarray(older.records, np.int64))
    found, sizes = _chosen_between(rows, (begins + taken)[:-1], begins[1:], int(begins[-1]))
    shards = np.flatnonzero(sizes)  # the next snapshot may have more shards without any
    return found, StoredAs(shards, sizes[shards])


def _chosen_between(rows: Array | None, starts: Array, ends: Array, total: int) -> tuple[Array, Array]:
    """The `rows` (None: all) within ranges of records, and how many there are in each range."""
    if rows is None:
        return rows_between(starts, ends, total), ends - starts
    starts, ends = bounds_of(rows, starts), bounds_of(rows, ends)
    return rows[rows_between(starts, ends, len(rows))], ends - starts


def numbers_in(whole: WholeSplit, part: WholeSplit) -> Array:
    """The numbers in one split of the records of another one, both of one snapshot: (k,), ascending."""
    rows = part._chosen_rows
    assert rows is not None  # it is a part
    return rows if whole._chosen_rows is None else positions_of(whole._chosen_rows, rows)


class WholeSplit(Protocol):
    """What chosen records use of the split that they are chosen from, whose chapter comes after this one."""

    name: str
    _files: ShardFiles

    def __len__(self) -> int: ...
    @property
    def manifest_id(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def source_ordinals(self) -> Array: ...
    @property
    def removed_rows(self) -> Array: ...
    @property
    def _chosen_rows(self) -> Array | None: ...
    @property
    def _columns(self) -> ColumnReader: ...
    @property
    def _stand_in_key(self) -> int: ...
    def _decoded_record(self, payload: bytes) -> Record: ...
    def shard_of(self, index: int) -> int: ...
    def place_of(self, index: int) -> tuple[str, int]: ...
    def offset_of(self, index: int) -> int: ...
    def record_ids(self, indices: Sequence[int] | Array) -> list[str]: ...
    def rows_of(self, source_shard: int, ordinals: Sequence[int] | Array) -> Array: ...
    def lengths(self, feature: str, indices: Sequence[int] | Array | None = None) -> Array: ...
    def will_need(self, blocks: Array) -> None: ...
    def check_room(self, windows: Sequence[Array]) -> None: ...


class ChosenRecords:
    """The part of `FilteredSplit` that translates numbers: all that a split tells, of chosen ones of its records.

    `_split` is the whole split, `_rows` the numbers of the chosen records in it, ascending. `_stored` says in which
    shards they are, if that is known (`as_of`, `since`), and `chosen_by` in words which ones they are.
    """

    name: str
    _split: WholeSplit
    _rows: Array
    _stored: StoredAs | None
    chosen_by: str

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Record]:
        return (self._split._decoded_record(self.record_bytes(index)) for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self._split!r} {self.chosen_by}>"

    @property
    def manifest_id(self) -> str:
        """The id of the manifest, and a digest of which records are chosen."""
        if self._stored is not None and self._stored.manifest_id is not None:
            return self._stored.manifest_id
        return f"{self._split.manifest_id}?{self._digest}"

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of_rows(self._rows)

    @property
    def num_bytes(self) -> int:
        """The share of these records in the size of all shards, by their number."""
        return int(self._split.num_bytes * len(self) // max(1, len(self._split)))

    @property
    def shard_sizes(self) -> Array:
        if self._stored is not None:
            stored: Array = self._stored.sizes.copy()
            return stored
        files = self._split._files
        ends = bounds_of(self._rows, np.append(files.begins, files.num_records))
        sizes: Array = np.diff(ends)
        return sizes

    @property
    def source_ordinals(self) -> Array:
        ordinals: Array = self._split.source_ordinals[self._rows]
        return ordinals

    def shard_of(self, index: int) -> int:
        return int(self._split.shard_of(self._one(index)))

    def place_of(self, index: int) -> tuple[str, int]:
        name, position = self._split.place_of(self._one(index))
        return name, position

    def offset_of(self, index: int) -> int:
        return int(self._split.offset_of(self._one(index)))

    def record_bytes(self, index: int) -> bytes:
        return bytes(self._split._files.payload(int(self._rows[self.stand_ins([index])[0]])))

    @property
    def removed_rows(self) -> Array:
        return positions_of(self._rows, self._split.removed_rows)

    def stand_ins(self, indices: Sequence[int] | Array) -> Array:
        wanted = checked_indices(indices, self)
        removed = self.removed_rows
        if not len(removed):
            return wanted
        older = None if self._stored is None else self._stored.older
        # Those that the older snapshot drew: a run over it goes on with the records that it would have read.
        key = self._split._stand_in_key if older is None else stand_in_key(older.snapshot, self.name)
        return stand_ins(wanted, removed, len(self), key=key, where=repr(self))

    def record_ids(self, indices: Sequence[int] | Array) -> list[str]:
        return list(self._split.record_ids(self._rows[checked_indices(indices, self)]))

    def rows_of(self, source_shard: int, ordinals: Sequence[int] | Array) -> Array:
        return positions_of(self._rows, self._split.rows_of(source_shard, ordinals))

    def lengths(self, feature: str, indices: Sequence[int] | Array | None = None) -> Array:
        if indices is None:
            lengths: Array = self._split.lengths(feature)[self._rows]
        else:
            lengths = self._split._columns.lengths(feature, self._place(indices))
        return lengths

    def views(self, shard: int) -> dict[str, Array]:
        raise CacheError(f"{self!r}: views show whole shards, with the records that are left out. Use gather.")

    def will_need(self, blocks: Array) -> None:
        self._split.will_need(self._shards_of_blocks(blocks))

    def check_room(self, windows: Sequence[Array]) -> None:
        self._split.check_room([self._shards_of_blocks(blocks) for blocks in windows])

    def _shards_of_blocks(self, blocks: Array) -> Array:
        if self._stored is None:
            return blocks
        shards: Array = self._stored.shards[blocks[self._stored.sizes[blocks] > 0]]
        return shards

    def _place(self, indices: Sequence[int] | Array) -> Places:
        """The records to be read for these indices."""
        places: Places = self._split._files.place(self._rows[self.stand_ins(indices)])
        return places

    def _one(self, index: int) -> int:
        """The number of a record in the whole split; raises `ExampleIndexError` outside of these records."""
        return int(self._rows[checked_indices([index], self)[0]])
