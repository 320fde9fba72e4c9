"""A SentencePiece model, trained on a keyed sample."""

from __future__ import annotations

import dataclasses
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.transforms.analyzers.sample_file import SampleOfShard, merge_samples, read_sample

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

    Training happens where accumulators are merged: on the machine that launched the build.

    Raises `AnalysisError` where the sample is too small for so many pieces, `MissingExtraError` without the library.
    """

    version = 2
    input_type = str

    vocab_size: int
    model_type: str = "unigram"
    max_bytes: int = 16 << 20
    seed: int = 0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

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

    def read(self, path: str) -> Any:
        library = require("sentencepiece", purpose="SentencePieceModel")
        return library.SentencePieceProcessor(model_file=path)


def _texts(sample: str) -> Iterator[str]:
    for row in read_sample(sample):
        yield str(row.value)
