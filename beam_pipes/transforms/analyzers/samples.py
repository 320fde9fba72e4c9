"""A keyed sample of bounded size, and tokenizers trained on one.

The sample: the values with the smallest keys, as many as fit. It depends only on the records and a seed.

The tokenizers: a SentencePiece model, or one of the `tokenizers` library. The same input and library version give the
same file, byte for byte.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import heapq
import io
import itertools
import json
import os
import secrets
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.analysis.analyzer import Values
from beam_pipes.checks import choice, integer
from beam_pipes.errors import DeclarationError, SpecError
from beam_pipes.extras import require
from beam_pipes.transforms.analyzers.counts import FAN_IN

if TYPE_CHECKING:
    import tokenizers


_KEY_BYTES = 16
_ALL = (1 << 8 * _KEY_BYTES) - 1
_ROW = struct.Struct("<16sBI")

# Memory of a sampled value besides its bytes: its key, and Python's overhead for an object in a list.
ROW_BYTES = 64


class Sampled(NamedTuple):
    """A value of a sample, under its key."""

    key: bytes
    kind: int
    data: bytes

    @property
    def value(self) -> str | bytes:
        return self.data if self.kind else self.data.decode("utf-8", "surrogatepass")


def sample_key(seed: int, record_id: str, item: int) -> bytes:
    """The key of a record's value number `item`, 16 bytes, independent of how the input is divided."""
    text = f"{seed}\0{record_id}\0{item}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


class SampleOfShard(Accumulator):
    """Keeps the values with the smallest keys, at most `max_bytes` together.

    A value counts as its own bytes plus `ROW_BYTES`, which also bounds many short values. The sample of the whole is a
    subset of the samples of its parts: a value that fits into the whole fits into its part.
    """

    def __init__(self, *, max_bytes: int, seed: int) -> None:
        self._max_bytes = max_bytes
        self._seed = seed
        # Each entry is `inverted key + value`, so the largest key is at the root of the heap.
        self._heap: list[bytes] = []
        self._bytes = 0
        self._end: bytes | None = None  # the smallest key that did not fit; larger ones do not either
        self._last: tuple[str, int] = ("", -1)

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        for value, record_id in zip(values, record_ids, strict=True):
            item = self._last[1] + 1 if record_id == self._last[0] else 0
            self._last = record_id, item
            key = sample_key(self._seed, record_id, item)
            if self._end is None or key < self._end:
                self._keep(key, *_encoded(value))

    def save(self, path: str) -> None:
        self._heap.sort(reverse=True)
        write_sample(
            path,
            (Sampled(_inverted(row[:_KEY_BYTES]), row[_KEY_BYTES], row[_KEY_BYTES + 1 :]) for row in self._heap),
            self._end,
        )
        heapq.heapify(self._heap)

    def _keep(self, key: bytes, kind: int, data: bytes) -> None:
        heapq.heappush(self._heap, b"%b%c%b" % (_inverted(key), kind, data))
        self._bytes += len(data) + ROW_BYTES
        while self._bytes > self._max_bytes:
            dropped = heapq.heappop(self._heap)
            self._bytes -= len(dropped) - _KEY_BYTES - 1 + ROW_BYTES
            self._end = _inverted(dropped[:_KEY_BYTES])


def merge_samples(paths: Sequence[str], target: str, *, max_bytes: int) -> None:
    """Writes the sample of the whole, given the samples of its parts."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
        while len(paths) > FAN_IN:  # limits the number of open files
            following = [os.path.join(scratch, secrets.token_hex(8)) for _ in range(0, len(paths), FAN_IN)]
            for number, path in enumerate(following):
                _merge(paths[number * FAN_IN : (number + 1) * FAN_IN], path, max_bytes=max_bytes)
            paths = following
        _merge(paths, target, max_bytes=max_bytes)


def _merge(paths: Sequence[str], target: str, *, max_bytes: int) -> None:
    ends = [end for path in paths if (end := _end(path)) is not None]
    end = min(ends, default=None)
    size = 0
    for row in heapq.merge(*map(read_sample, paths)):
        if end is not None and row.key >= end:
            break
        size += len(row.data) + ROW_BYTES
        if size > max_bytes:
            end = row.key
            break
    # Reread instead of kept, so that merging takes no memory.
    kept = itertools.takewhile(lambda row: end is None or row.key < end, heapq.merge(*map(read_sample, paths)))
    write_sample(target, kept, end)


def write_sample(path: str, rows: Iterable[Sampled], end: bytes | None) -> None:
    """Writes rows whose keys ascend. `end` is the smallest key left out, None if all fit."""
    with open(path, "wb") as file:
        file.write(json.dumps({"end": None if end is None else end.hex()}).encode() + b"\n")
        for row in rows:
            file.write(_ROW.pack(row.key, row.kind, len(row.data)) + row.data)


def read_sample(path: str) -> Iterator[Sampled]:
    """The values of a sample, in the order of their keys."""
    with open(path, "rb") as file:
        file.readline()
        while head := file.read(_ROW.size):
            key, kind, size = _ROW.unpack(head)
            yield Sampled(key, kind, file.read(size))


def _end(path: str) -> bytes | None:
    with open(path, "rb") as file:
        end = json.loads(file.readline())["end"]
    return None if end is None else bytes.fromhex(end)


def _inverted(key: bytes) -> bytes:
    return (~int.from_bytes(key, "big") & _ALL).to_bytes(_KEY_BYTES, "big")


def _encoded(value: object) -> tuple[int, bytes]:
    if isinstance(value, str):
        return 0, value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return 1, value
    raise SpecError(
        f"expected values to sample of the type str or bytes, got {type(value).__name__} {value!r:.60}. Give of=..., a "
        "pipeline that ends in one of them."
    )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class KeyedSample(Analyzer):
    """A uniform sample of the values (str or bytes): gives a list of them, in an equally random order.

    Every value has a key, a digest of the seed, the record's id and its number within the record; the sample is the
    values with the smallest keys, as many as fit into `max_bytes`. So it is the same however the input is divided into
    shards, and when files are added, values that were not sampled before stay out.

    Args:
        max_bytes: bytes of all sampled values (of str, in UTF-8) and 64 for each of them. About as much is in memory
            while a source shard is read.
        seed: another seed gives another sample.
    """

    version = 2
    accepts = (str, bytes)

    max_bytes: int = 16 << 20
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.max_bytes, least=1, what=f"analyzer {self.name!r}: max_bytes")

    def accumulator(self) -> Accumulator:
        return SampleOfShard(max_bytes=self.max_bytes, seed=self.seed)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        merge_samples(accumulators, target, max_bytes=self.max_bytes)

    def read(self, path: str) -> list[str | bytes]:
        return [row.value for row in read_sample(path)]


# Options set by this class: input, output, and those that make training repeatable.
_OURS = ("input", "sentence_iterator", "model_writer", "model_prefix", "num_threads", "vocab_size", "model_type")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SentencePieceModel(Analyzer):
    """Trains a SentencePiece model on a sample of the texts: gives a `SentencePieceProcessor`.

        pieces = SentencePieceModel("pieces", vocab_size=8_000)
        self.pieces.value().encode(line)

    The file is the model itself, as `SentencePieceVocabulary(cache.asset_path("pieces"))` reads it. The sample is that
    of `KeyedSample`, and training runs in one thread, so the same input gives the same model, byte for byte, with one
    version of the library.

    Args:
        vocab_size: number of pieces, the control symbols included.
        model_type: "unigram", "bpe", "word" or "char".
        max_bytes: bytes of text to train on, and 64 for each text; unigram models take about 100 bytes of memory for
            each byte of text.
        seed: of the sample.
        options: further options of `SentencePieceTrainer`, such as `{"character_coverage": 0.9995}`.

    Training happens where accumulators are merged, on the machine that launched the build.

    Raises `AnalysisError` if the sample is too small for this many pieces, `MissingExtraError` without the library.
    """

    version = 2
    input_type = str

    vocab_size: int
    model_type: str = "unigram"
    max_bytes: int = 16 << 20
    seed: int = 0
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        ours = sorted(set(self.options) & set(_OURS))
        if ours:
            raise DeclarationError(
                f"analyzer {self.name!r}: the options {ours} are not the trainer's to take: vocab_size and model_type "
                "are arguments of SentencePieceModel, and it decides about input, output and threads itself."
            )

    def accumulator(self) -> Accumulator:
        return SampleOfShard(max_bytes=self.max_bytes, seed=self.seed)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        library = require("sentencepiece", purpose="SentencePieceModel")
        with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
            sample = os.path.join(scratch, "sample")
            merge_samples(accumulators, sample, max_bytes=self.max_bytes)
            model = io.BytesIO()
            library.SentencePieceTrainer.train(
                sentence_iterator=_texts(sample),
                model_writer=model,
                vocab_size=self.vocab_size,
                model_type=self.model_type,
                num_threads=1,
                **{"minloglevel": 2, **self.options},
            )
        Path(target).write_bytes(model.getvalue())

    def read(self, path: str) -> object:
        library = require("sentencepiece", purpose="SentencePieceModel")
        return library.SentencePieceProcessor(model_file=path)


def _texts(sample: str) -> Iterator[str]:
    for row in read_sample(sample):
        yield str(row.value)


KINDS = ("byte_bpe", "bpe")

_THREADS = "TOKENIZERS_PARALLELISM"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TokenizersModel(Analyzer):
    """Trains a tokenizer of the `tokenizers` library on a sample of the texts: gives a `tokenizers.Tokenizer`.

        pieces = TokenizersModel("pieces", vocab_size=8_000)
        self.pieces.value().encode(line).ids

    The file is `tokenizer.json`, as `tokenizers` and `transformers` read it. The sample is that of `KeyedSample`, and
    training runs in one thread, so the same input gives the same file with one version of the library.

    Args:
        vocab_size: number of tokens, the special ones included.
        kind: "byte_bpe" (merges of bytes, as GPT-2's: nothing is unknown) or "bpe" (merges of characters, words apart
            at white space). The library's WordPiece trainer numbers pieces differently in every process, so it
            is not offered.
        min_frequency: pairs that occur less often are not merged.
        special_tokens: tokens with the first ids. "bpe" uses the first one as the unknown token.
        max_bytes: bytes of text to train on, and 64 for each text.
        seed: of the sample.

    Training happens where accumulators are merged: on the machine that launched the build.

    Raises `MissingExtraError` without the library.
    """

    version = 2
    input_type = str

    vocab_size: int
    kind: str = "byte_bpe"
    min_frequency: int = 2
    special_tokens: tuple[str, ...] = ()
    max_bytes: int = 16 << 20
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self.kind, of=KINDS, what=f"analyzer {self.name!r}: kind")
        if self.kind != "byte_bpe" and not self.special_tokens:
            raise DeclarationError(
                f"analyzer {self.name!r}: the kind {self.kind!r} needs a token for what is unknown, the first of "
                "special_tokens. Example: special_tokens=('[UNK]',)."
            )

    def accumulator(self) -> Accumulator:
        return SampleOfShard(max_bytes=self.max_bytes, seed=self.seed)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        tokenizer, trainer = self._untrained()
        with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch, _one_thread():
            sample = os.path.join(scratch, "sample")
            merge_samples(accumulators, sample, max_bytes=self.max_bytes)
            tokenizer.train_from_iterator((str(row.value) for row in read_sample(sample)), trainer)
        Path(target).write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")

    def read(self, path: str) -> object:
        library = require("tokenizers", purpose="TokenizersModel")
        return library.Tokenizer.from_file(path)

    def _untrained(self) -> tuple[tokenizers.Tokenizer, tokenizers.trainers.Trainer]:
        library = require("tokenizers", purpose="TokenizersModel")
        models, before, trainers = library.models, library.pre_tokenizers, library.trainers
        common = {
            "vocab_size": self.vocab_size,
            "min_frequency": self.min_frequency,
            "special_tokens": list(self.special_tokens),
            "show_progress": False,
        }
        if self.kind == "byte_bpe":
            tokenizer = library.Tokenizer(models.BPE())
            tokenizer.pre_tokenizer = before.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = library.decoders.ByteLevel()
            alphabet = before.ByteLevel.alphabet()
            return tokenizer, trainers.BpeTrainer(initial_alphabet=sorted(alphabet), **common)
        tokenizer = library.Tokenizer(models.BPE(unk_token=self.special_tokens[0]))
        tokenizer.pre_tokenizer = before.Whitespace()
        return tokenizer, trainers.BpeTrainer(**common)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The library counts words in threads, whose number it reads from the environment on every call."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
