"""Operators over text and tokens: `tokenize`, `pack` and `pad_batch`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from beam_pipes.graph.operator import Constant, Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, TensorList
from beam_pipes.loader.packing.fits import best_fit, first_fit
from beam_pipes.tasks.vocabularies import SentencePieceVocabulary, TokenizersVocabulary, Vocabulary
from beam_pipes.transforms.operators.arrays import saturated

METHODS = {"first_fit": first_fit, "best_fit": best_fit}


class Pack(Operator):
    """Packs the sequences of a batch into rows of `length`: tokens, segments, positions.

        pack([[7, 8], [5], [1, 2, 3]], length=4)
          → tokens     [[7, 8, 5, 0], [1, 2, 3, 0], [0, 0, 0, 0]]
            segments   [[1, 1, 2, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
            positions  [[0, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]]

    A batch has as many rows as sequences; unused ones are at its end and empty (segment 0 everywhere). Segments count
    from 1 within each row. To pack over a whole data set with almost no waste, plan it from the cache's index
    (`beam_pipes.loader`) instead.
    """

    inputs = ("sequences",)
    num_outputs = 3
    length = Constant("int", doc="tokens of a row", least=1)
    method = Constant(
        "str", default="first_fit", doc="'first_fit' keeps the order of rows, 'best_fit' wastes less", choices=METHODS
    )
    truncate = Constant("bool", default=False, doc="whether sequences longer than a row are cut")
    pad_value = Constant("int", default=0, doc="the padding of a row")

    mixes_samples = True

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        self.expect(spec, "sequences of rank 1", ranks=[1])
        shape = (int(self.length),)
        return [TensorSpec(spec.dtype, shape), TensorSpec.of("int32", shape), TensorSpec.of("int32", shape)]

    def run_batch(self, samples: Samples, sequences: TensorList) -> tuple[Array, Array, Array]:
        size = len(sequences)
        kept = [one[: self.length] if self.truncate else one for one in sequences]
        lengths = np.array([len(one) for one in kept], np.int64)
        if size and lengths.max() > self.length:
            raise ValueError(
                f"a sequence of {lengths.max()} tokens is longer than length={self.length}; cut it with truncate=True"
            )
        dtype = sequences.dtype if size else np.dtype("int32")
        tokens = np.full((size, self.length), self.pad_value, dtype)
        segments = np.zeros((size, self.length), np.int32)
        positions = np.zeros((size, self.length), np.int32)
        used = [0] * size
        counts = [0] * size
        filled = np.flatnonzero(lengths)
        rows = METHODS[self.method](lengths[filled], int(self.length)) if len(filled) else filled
        for index, row in zip(filled.tolist(), rows.tolist(), strict=True):
            one = kept[index]
            start, end = used[row], used[row] + len(one)
            counts[row] += 1
            tokens[row, start:end] = one
            segments[row, start:end] = counts[row]
            positions[row, start:end] = np.arange(len(one))
            used[row] = end
        return tokens, segments, positions


class PadBatch(Operator):
    """Pads sequences (along their first axis) to the longest of the batch, and gives their lengths.

    `pad_batch([[7, 8, 9], [5]])` → `[[7, 8, 9], [5, 0, 0]]`, `[3, 1]`

    With `length`, all batches are that long: constant shapes are compiled once. Longer sequences are an error, or are
    cut with `truncate`; their length is then the remaining one.
    """

    inputs = ("sequences",)
    num_outputs = 2
    length = Constant(
        "int", default=None, doc="the length of all batches; that of the longest sequence by default", least=1
    )
    multiple_of = Constant("int", default=1, doc="lengths are a multiple of it", least=1)
    pad_value = Constant("float", default=0.0, doc="the padding value")
    truncate = Constant("bool", default=False, doc="whether sequences longer than `length` are cut")

    @property
    def mixes_samples(self) -> bool:
        return self.length is None

    def check(self) -> None:
        if self.truncate and self.length is None:
            raise self.argument_error("truncate needs length.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        self.expect(spec, "sequences", least_rank=1)
        if spec.dtype is not None and saturated(np, np.array([self.pad_value]), spec.dtype)[0] != self.pad_value:
            raise self.refuse(f"pad_value={self.pad_value:g} is not {spec.dtype}")
        shape = None if spec.shape is None else (self._target(0) if self.length else None, *spec.shape[1:])
        return [spec.replace(shape=shape), TensorSpec.of("int32", ())]

    def _target(self, longest: int) -> int:
        wanted = int(self.length or longest)
        return -(-wanted // int(self.multiple_of)) * int(self.multiple_of)

    def run_batch(self, samples: Samples, sequences: TensorList) -> tuple[Array | TensorList, Array | TensorList]:
        lengths = np.array([len(one) for one in sequences], np.int64)
        if self.truncate:
            lengths = np.minimum(lengths, self.length)
        elif self.length is not None and len(lengths) and lengths.max() > self.length:
            raise ValueError(
                f"a sequence of {lengths.max()} is longer than length={self.length}; cut it with truncate=True"
            )
        if not len(lengths):
            return TensorList([]), TensorList(np.zeros(0, np.int32))
        target = self._target(int(lengths.max()))
        first = sequences[0]
        if any(one.shape[1:] != first.shape[1:] for one in sequences):
            raise ValueError("sequences should be alike but for their length")
        made = np.full((len(lengths), target, *first.shape[1:]), self.pad_value, first.dtype)
        for index, (one, length) in enumerate(zip(sequences, lengths.tolist(), strict=True)):
            made[index, :length] = one[:length]
        return made, lengths.astype(np.int32)


class Tokenize(Operator):
    """Turns text (UTF-8 bytes) into token ids, (tokens,) int32.

    `tokenize(text, vocabulary="tokenizer.json", append_eos=True)` → `[464, 3290, 318, 257, 3290, 50256]`

    `vocabulary` is one of `beam_pipes.tasks.vocabularies`, the path of a `tokenizer.json`, or that of a SentencePiece
    `.model`. Bytes that are not UTF-8 are an error.
    """

    inputs = ("text",)
    positional = ("vocabulary",)
    vocabulary = Constant("any", doc="a vocabulary, or the path of a tokenizer.json or a .model")
    append_eos = Constant("bool", default=False, doc="whether the id that ends a sequence is appended")
    max_length = Constant(
        "int", default=None, doc="maximum number of ids, including the end; longer sequences are cut", least=1
    )
    dtype = Constant("dtype", default="int32", doc="the dtype of ids")

    def check(self) -> None:
        given = self.vocabulary
        if isinstance(given, (str, os.PathLike)):
            path = os.fspath(given)
            if not os.path.isfile(path):
                raise self.argument_error(f"vocabulary: there is no file {path!r}.")
            self._vocabulary: Vocabulary = (
                SentencePieceVocabulary(path) if path.endswith(".model") else TokenizersVocabulary(path)
            )
        elif isinstance(given, Vocabulary):
            self._vocabulary = given
        else:
            raise self.argument_error(
                "vocabulary should be one of beam_pipes.tasks.vocabularies, or the path of a tokenizer.json or .model, "
                f"got {given!r:.60}."
            )
        if self.append_eos and self._vocabulary.eos_id is None:
            raise self.argument_error(
                "append_eos needs a vocabulary with an id that ends a sequence; this one has none."
            )
        if self.dtype.kind not in "iu" or np.iinfo(self.dtype).max < self._vocabulary.vocab_size - 1:
            raise self.argument_error(
                f"dtype should hold ids below {self._vocabulary.vocab_size}, and {self.dtype} does not."
            )

    def fingerprint_config(self) -> Mapping[str, object]:
        return {**super().fingerprint_config(), "vocabulary": self._vocabulary.fingerprint()}

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self.expect(inputs[0], "text as bytes, uint8[·]", ranks=[1], dtype="uint8")
        return TensorSpec(self.dtype, (None,))

    def run_batch(self, samples: Samples, text: TensorList) -> TensorList:
        many = self._vocabulary.encode_batch([self._decoded(one) for one in text])
        return TensorList([self._finished(ids) for ids in many])

    def _decoded(self, data: Array) -> str:
        try:
            return bytes(data.tobytes()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the text is not UTF-8: {error}") from error

    def _finished(self, ids: Sequence[int]) -> Array:
        if not self.append_eos:
            return np.array(ids[: self.max_length], self.dtype)
        kept = list(ids) if self.max_length is None else list(ids)[: self.max_length - 1]
        return np.array([*kept, self._vocabulary.eos_id], self.dtype)
