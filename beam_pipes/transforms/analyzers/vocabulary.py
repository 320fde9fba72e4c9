"""All tokens with their counts, most frequent first.

The most frequent values.
"""

from __future__ import annotations

import base64
import dataclasses
import heapq
import itertools
import json
import operator
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from json.encoder import encode_basestring_ascii

import numpy as np
import numpy.typing as npt

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.checks import integer
from beam_pipes.errors import DeclarationError, SpecError
from beam_pipes.transforms.analyzers.counts import (
    COUNTED,
    Row,
    Value,
    ValueCounts,
    key_of,
    kind_of,
    merged_counts,
    merged_files,
    read_run,
    value_of,
    write_run,
)

# Maximum number of rows sorted in memory, about 12 MB; more go to temporary files as sorted runs.
MOST_SORTED = 1 << 16

_RANK = struct.Struct(">Q")
_MOST = (1 << 64) - 1
_COUNT = operator.itemgetter(1)


class TokenTable:
    """Tokens and their ids: `tokens[i]` has the id `i` and was seen `counts[i]` times (int64; 0 for reserved ones).

        table["the"]                                    →  2
        table.ids(["the", "cat"], unknown="<unk>")      →  int32[2]

    `total` counts all tokens seen, `distinct` the different ones; both include tokens that were cut.
    """

    def __init__(self, tokens: list[Value], counts: Sequence[int], *, total: int, distinct: int) -> None:
        self.tokens = tokens
        self.counts = np.array(counts, np.int64)
        self.total = total
        self.distinct = distinct

    @cached_property
    def _ids(self) -> dict[Value, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: Value) -> bool:
        return token in self._ids

    def __getitem__(self, token: Value) -> int:
        """The id of a token. Raises `KeyError` for an unknown one."""
        return self._ids[token]

    def get(self, token: Value, default: int) -> int:
        """The id of a token, or `default`."""
        return self._ids.get(token, default)

    def ids(self, tokens: Sequence[Value], *, unknown: Value | None = None) -> npt.NDArray[np.int32]:
        """The ids of tokens, int32[len(tokens)]; unknown ones get the id of `unknown`.

        Raises `SpecError`, naming the token, for an unknown one if no `unknown` is given.
        """
        known = self._ids
        if unknown is not None:
            default = self[unknown]
            return np.array([known.get(token, default) for token in tokens], np.int32)
        try:
            return np.array([known[token] for token in tokens], np.int32)
        except KeyError as error:
            raise SpecError(
                f"the token {error.args[0]!r} is not among the {len(self)} of the vocabulary. Raise its size, lower "
                "min_count, or say what stands for it: unknown='<unk>', reserved=('<unk>',)."
            ) from None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Vocabulary(Analyzer):
    """Counts tokens, and numbers them by how often they occur: gives a `TokenTable`.

        words = Vocabulary("words", of=SplitWords(), reserved=("<pad>", "<unk>"), size=32_000)
        self.words.value().ids(line.split(), unknown="<unk>")

    Values are str, bytes or int, or lists or arrays of them, whose items count. Equal counts are in the order of the
    tokens (of UTF-8 bytes, of numbers), so the numbering is a function of the input alone.

    Args:
        min_count: tokens that occur less often are left out.
        size: the maximum number of tokens, including the reserved ones; None keeps all.
        reserved: tokens that get the first ids, whether they occur or not, with the count 0.

    Memory: a table of at most 2^18 distinct tokens, about 40 MB of words, while a source shard is read, and less while
    they are merged; the rest goes through temporary files. Users of the vocabulary hold all of it in memory.

    The file has a line of JSON (`kind`, `total`, `distinct`), then one for each token: `["the", 123]`; bytes in base64.
    """

    min_count: int = 1
    size: int | None = None
    reserved: tuple[Value, ...] = ()

    accepts = COUNTED

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.min_count, least=1, what=f"analyzer {self.name!r}: min_count")
        if self.size is not None and self.size <= len(self.reserved):
            raise DeclarationError(
                f"analyzer {self.name!r}: size should exceed the {len(self.reserved)} reserved tokens, got {self.size}."
            )
        if len(set(self.reserved)) < len(self.reserved):
            raise DeclarationError(f"analyzer {self.name!r}: reserved tokens are named twice: {self.reserved!r}.")

    def accumulator(self) -> Accumulator:
        return ValueCounts()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        with (
            merged_counts(accumulators, target) as (kind, blocks),
            tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch,
        ):
            totals = [0, 0]
            ordered = self._ordered(self._kept(kind, blocks, totals), scratch)  # has read all rows, so totals are known
            with open(target, "w", encoding="utf-8") as file:
                head = {"distinct": totals[1], "kind": kind, "total": totals[0]}
                file.write(json.dumps(head) + "\n")
                file.writelines(_line(token, 0) for token in self.reserved)
                for block in ordered:
                    file.writelines([_line(value_of(kind, key), count) for key, count in block])

    def read(self, path: str) -> TokenTable:
        with open(path, encoding="utf-8") as file:
            head = json.loads(file.readline())
            rows = [json.loads(line) for line in file]
        tokens = [base64.b64decode(token[0]) if isinstance(token, list) else token for token, _ in rows]
        return TokenTable(tokens, [count for _, count in rows], total=head["total"], distinct=head["distinct"])

    def class_names(self, value: TokenTable) -> list[str]:
        """The tokens, sorted by name, because the order of frequency may change with more data."""
        return sorted(map(str, value.tokens))

    def _kept(self, kind: str, blocks: Iterator[list[Row]], totals: list[int]) -> Iterator[list[Row]]:
        """The rows that are neither too rare nor reserved; adds all rows to `totals`."""
        reserved = {key_of(token) for token in self.reserved if kind_of(token) == kind}
        least = self.min_count
        for block in blocks:
            totals[0] += sum([count for _, count in block])
            totals[1] += len(block)
            yield [row for row in block if row[1] >= least and row[0] not in reserved]

    def _ordered(self, blocks: Iterator[list[Row]], scratch: str) -> Iterator[list[Row]]:
        """Rows that come in the order of their keys, most frequent first; at most `size` of them."""
        if self.size is None:
            return _sorted(blocks, scratch)
        left = self.size - len(self.reserved)
        if left <= MOST_SORTED:
            rows = itertools.chain.from_iterable(blocks)
            return iter([heapq.nlargest(left, rows, key=_COUNT)])  # among equal counts, the first rows
        return _first(_sorted(blocks, scratch), left)


def _first(blocks: Iterator[list[Row]], left: int) -> Iterator[list[Row]]:
    for block in blocks:
        yield block[:left]
        left -= len(block)
        if left <= 0:
            return


def _sorted(blocks: Iterator[list[Row]], scratch: str) -> Iterator[list[Row]]:
    """Rows given in the order of keys, most frequent first: sorted in pieces; several go to files."""
    runs: list[str] = []
    piece: list[Row] = []
    for block in blocks:
        piece += block
        if len(piece) >= MOST_SORTED:
            runs.append(_written(piece, scratch, len(runs)))
            piece = []
    if not runs:
        piece.sort(key=_COUNT, reverse=True)  # stable: equal counts stay in the order of keys
        return iter([piece])
    runs.append(_written(piece, scratch, len(runs)))
    skipped = _RANK.size
    return ([(key[skipped:], count) for key, count in block] for block in merged_files(runs, scratch, read=read_run))


def _written(piece: list[Row], scratch: str, number: int) -> str:
    piece.sort(key=_COUNT, reverse=True)
    path = os.path.join(scratch, f"sorted-{number}")
    with open(path, "wb") as file:  # the rank precedes the key, so that keys are in this order too
        write_run(file, [[(_RANK.pack(_MOST - count) + key, count) for key, count in piece]])
    return path


def _line(token: Value, count: int) -> str:
    if isinstance(token, str):
        return f"[{encode_basestring_ascii(token)}, {count}]\n"
    shown = token if isinstance(token, int) else f'["{base64.b64encode(token).decode("ascii")}"]'
    return f"[{shown}, {count}]\n"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Analyzer):
    """The `k` most frequent values with their counts: gives `[("the", 123), …]`, exact.

    Values are counted as by `Vocabulary`; equal counts are in the order of the values. Every value is counted, so this
    costs as much as a vocabulary.
    """

    k: int = 100

    accepts = COUNTED

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.k, least=1, what=f"analyzer {self.name!r}: k")

    def accumulator(self) -> Accumulator:
        return ValueCounts()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        self._vocabulary().merge(accumulators, target)

    def read(self, path: str) -> list[tuple[Value, int]]:
        table = self._vocabulary().read(path)
        return list(zip(table.tokens, table.counts.tolist(), strict=True))

    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.name, size=self.k)
