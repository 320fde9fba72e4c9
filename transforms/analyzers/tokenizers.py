"""Tokenizers trained on a keyed sample: a SentencePiece model, or one of the `tokenizers` library.

The same input and library version give the same file, byte for byte.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.transforms.analyzers.sample import SampleOfShard, merge_samples, read_sample

if TYPE_CHECKING:
    import tokenizers

# What this class decides: input and output, and what makes training repeatable.
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
        special_tokens: tokens with the first ids. "bpe" needs one for what is unknown: the first one.
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
        if self.kind not in KINDS:
            raise DeclarationError(
                f"analyzer {self.name!r}: unknown kind {self.kind!r}; choose one of: {', '.join(KINDS)}."
            )
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
    """The library counts words in threads, which it takes from the environment at every call."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before
