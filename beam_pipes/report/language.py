"""The language of a cache in numbers: token ids, counted and decoded with the tokenizer that made them.

    ids        [464, 3290, 318, 3290]             of records spread over the split
    tokens     The| dog| is| dog                  `pieces_of`: where one token ends and the next begins
    numbers    4 tokens, 0.286 tokens per byte, 0 % unknown, no repeated record

`report --tokens TOKENIZER` shows it on the page, `inspect --tokens TOKENIZER` prints examples in this way.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.reader import Cache
from beam_pipes.errors import DeclarationError
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.report.distributions import spread_rows
from beam_pipes.report.shown import Bar, bars_of_values, shown_value

# A share of one half is then known within 1 % (two standard deviations), and this many tokens fit into any memory.
SAMPLED_RECORDS = 20_000
_SAMPLED_TOKENS = 20_000_000
_READ_TEXTS = 200  # records that are decoded for tokens per byte
_SAMPLES = 3
_FREQUENT = 30
_PIECES_SHOWN = 80
_MOST_CATEGORIES = 30
_MOST_CATEGORY_BYTES = 64  # texts that are longer on average are not categories, and reading them would take long


class Tokenizer(Protocol):
    """The interface required of a vocabulary, such as those of `beam_pipes.tasks.vocabularies`."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def unk_id(self) -> int | None: ...

    def decode(self, ids: Iterable[int]) -> object: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrequentToken:
    """A token, its count, and its share of all tokens."""

    id: int
    piece: str
    count: int
    share: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
    """The tokens of one feature of a split, from `records` of its `of` records.

    distinct: different ids, out of `vocab_size`. unknown: the share of unknown tokens, None if the
    vocabulary has none. duplicates: the share of records whose tokens equal those of an earlier one in the sample.
    tokens_per_byte: of the decoded text in UTF-8, None if there is no text. lengths: bars over token counts.
    samples: records as (row, pieces). categories: text feature → (value, share) for those with few values, such as a
    language or a source.
    """

    split: str
    feature: str
    records: int
    of: int
    tokens: int
    distinct: int
    vocab_size: int
    unknown: float | None
    duplicates: float
    tokens_per_byte: float | None
    lengths: list[Bar]
    frequent: list[FrequentToken]
    samples: list[tuple[int, list[str]]]
    categories: dict[str, list[tuple[str, float]]]


def token_features(cache: Cache, split: str) -> list[str]:
    """The features of a split that may be ids: sequences of integers of varying length, weights of 0 and 1 apart."""
    spec = cache.manifest.splits[split].spec
    return sorted(name for name, feature in (spec or {}).items() if _may_be_ids(feature))


def _may_be_ids(feature: FeatureSpec) -> bool:
    is_sequence = feature.ragged and len(feature.shape) == 1 and feature.maximum != 1
    return is_sequence and np.dtype(feature.numpy_dtype).kind in "iu"


def language_of(
    cache: Cache, split: str, feature: str, vocabulary: Tokenizer, *, records: int = SAMPLED_RECORDS
) -> Language:
    """Counts the tokens of up to `records` records that are spread over a split.

    Raises `DeclarationError` if ids are outside the vocabulary: another tokenizer made them.
    """
    opened, manifest = cache[split], cache.manifest.splits[split]
    sizes = np.asarray(manifest.records, np.int64)
    fitting = _SAMPLED_TOKENS * len(opened) // max(1, manifest.lengths[feature][0])
    count = max(1, min(records, len(opened), fitting))
    rows = np.unique(spread_rows(sizes, count)) if len(opened) else np.empty(0, np.int64)
    values, lengths = opened.gather_values(feature, rows)
    outside = (values < 0) | (values >= vocabulary.vocab_size)
    if outside.any():
        raise DeclarationError(
            f"{split}.{feature} has the id {values[outside][0]}, and the tokenizer has {vocabulary.vocab_size:,} ids. "
            "Name the tokenizer that the cache was built with."
        )
    counts = np.bincount(values.astype(np.int64), minlength=1)
    ends = np.cumsum(lengths)
    of_row = [values[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
    seen = Counter(row.tobytes() for row in of_row if len(row))
    filled = sum(seen.values())
    frequent = np.argsort(-counts, kind="stable")[:_FREQUENT]
    unknown = vocabulary.unk_id
    some = [of_row[at] for at in np.linspace(0, len(of_row) - 1, min(_READ_TEXTS, len(of_row)), dtype=np.int64)]
    num_bytes = sum(len(_text(vocabulary, row.tolist()).encode("utf-8", "surrogatepass")) for row in some)
    shown = np.linspace(0, len(rows) - 1, min(_SAMPLES, len(rows)), dtype=np.int64).tolist()
    total = int(lengths.sum())
    return Language(
        split=split,
        feature=feature,
        records=len(rows),
        of=len(opened),
        tokens=total,
        distinct=int(np.count_nonzero(counts)),
        vocab_size=vocabulary.vocab_size,
        unknown=None if unknown is None else float((values == unknown).sum() / max(1, total)),
        duplicates=(filled - len(seen)) / max(1, filled),
        tokens_per_byte=sum(map(len, some)) / num_bytes if num_bytes else None,
        lengths=bars_of_values(lengths),
        frequent=[
            FrequentToken(
                id=number,
                piece=_shown_piece(vocabulary, _text(vocabulary, [number]), number),
                count=int(counts[number]),
                share=float(counts[number] / total),
            )
            for number in frequent.tolist()
            if counts[number]
        ],
        samples=[(int(rows[at]), pieces_of(vocabulary, of_row[at].tolist())) for at in shown],
        categories=_categories(cache, split, rows),
    )


def pieces_of(vocabulary: Tokenizer, ids: Sequence[int], *, most: int = _PIECES_SHOWN) -> list[str]:
    """The text that each token adds: `[464, 3290]` → `["The", " dog"]`; up to `most`, then `…`.

    Tokens that hold only part of a character are combined into one piece. One without text, such as the end of a text,
    is shown by its name, `⟨</s>⟩`, or as its id: `⟨2⟩`.
    """
    pieces = [piece for _, piece in pieces_with_ends(vocabulary, ids[:most])]
    return [*pieces, "…"] if len(ids) > most else pieces


def pieces_with_ends(vocabulary: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The pieces of `pieces_of`, each with the number of ids up to its end."""
    before, first = "", 0
    for end in range(1, len(ids) + 1):
        text = _text(vocabulary, ids[:end])
        if text.endswith("\ufffd") and end < len(ids):
            continue  # the rest of a character is in the next token
        piece = text[len(before) :] if text.startswith(before) else _text(vocabulary, ids[first:end])
        yield end, _shown_piece(vocabulary, piece, ids[end - 1])
        before, first = text, end


def shown_tokens(vocabulary: Tokenizer, ids: npt.NDArray[np.int64] | Sequence[int]) -> str:
    """Tokens on one line, with their boundaries: `The| dog| is|⟨2⟩`."""
    return "|".join(pieces_of(vocabulary, [int(each) for each in ids]))


def shown_row(vocabulary: Tokenizer, batch: Mapping[str, np.ndarray], feature: str, row: int) -> list[str]:
    """The tokens of a row of a batch; for a packed one, of each of its segments: `["segment 1: The| dog", …]`."""
    ids = batch[feature][row]
    segments = batch.get(f"{feature}_segment_ids", batch.get("segment_ids"))
    if segments is None:
        return [shown_tokens(vocabulary, np.trim_zeros(ids, "b"))]
    numbers = range(1, int(segments[row].max(initial=0)) + 1)
    return [f"segment {number}: {shown_tokens(vocabulary, ids[segments[row] == number])}" for number in numbers]


def _text(vocabulary: Tokenizer, ids: Sequence[int]) -> str:
    text = vocabulary.decode(ids)
    return text if isinstance(text, str) else str(text)


def _shown_piece(vocabulary: Tokenizer, piece: str, number: int) -> str:
    if piece:
        return shown_value(piece.replace("\n", "\\n").replace("\t", "\\t"))
    name_of: Callable[[int], str | None] = getattr(vocabulary, "name_of", lambda _: None)
    return f"⟨{shown_value(name_of(number) or str(number))}⟩"


def _categories(cache: Cache, split: str, rows: npt.NDArray[np.int64]) -> dict[str, list[tuple[str, float]]]:
    opened, manifest = cache[split], cache.manifest.splits[split]
    spec: Mapping[str, FeatureSpec] = manifest.spec or {}
    found: dict[str, list[tuple[str, float]]] = {}
    for name, feature in spec.items() if len(rows) else ():
        if not feature.is_text or feature.shape or manifest.lengths[name][0] > _MOST_CATEGORY_BYTES * len(opened):
            continue
        counted = Counter(opened.gather(rows, features=[name])[name].tolist())
        if 1 < len(counted) <= min(_MOST_CATEGORIES, len(rows) // 2):
            found[name] = [(shown_value(value, max_characters=60), n / len(rows)) for value, n in counted.most_common()]
    return found
