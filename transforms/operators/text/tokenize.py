"""`fn.tokenize`: text as token ids."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.tasks.vocabularies import SentencePieceVocabulary, TokenizersVocabulary, Vocabulary


class Tokenize(Operator):
    """Turns text (UTF-8 bytes) into token ids, (tokens,) int32.

    `tokenize(text, vocabulary="tokenizer.json", append_eos=True)` → `[464, 3290, 318, 257, 3290, 50256]`

    `vocabulary` is one of `beam_pipes.tasks.vocabularies`, the path of a `tokenizer.json`, or that of a SentencePiece
    `.model`. Bytes that are no UTF-8 are an error.
    """

    inputs = ("text",)
    positional = ("vocabulary",)
    vocabulary = Constant("any", doc="a vocabulary, or the path of a tokenizer.json or a .model")
    append_eos = Constant("bool", default=False, doc="whether the id that ends a sequence follows")
    max_length = Constant("int", default=None, doc="longer sequences are cut to so many ids, the end of it included")
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
        if self.max_length is not None and self.max_length < 1:
            raise self.argument_error(f"max_length should be at least 1, got {self.max_length}.")
        if self.dtype.kind not in "iu" or np.iinfo(self.dtype).max < self._vocabulary.vocab_size - 1:
            raise self.argument_error(
                f"dtype should hold ids below {self._vocabulary.vocab_size}, and {self.dtype} does not."
            )

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {**super().fingerprint_config(), "vocabulary": self._vocabulary.fingerprint()}

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if (spec.dtype is not None and spec.dtype != np.uint8) or spec.ndim not in (1, None):
            raise self.refuse(f"expected text as bytes, uint8[·], got {spec}")
        return TensorSpec(self.dtype, (None,))

    def run_batch(self, samples: Samples, text: TensorList) -> TensorList:
        many = self._vocabulary.encode_batch([self._decoded(one) for one in text])
        return TensorList([self._finished(ids) for ids in many])

    def _decoded(self, data: Any) -> str:
        try:
            return bytes(data.tobytes()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the text is no UTF-8: {error}") from error

    def _finished(self, ids: Any) -> Any:
        if not self.append_eos:
            return np.array(ids[: self.max_length], self.dtype)
        kept = list(ids) if self.max_length is None else list(ids)[: self.max_length - 1]
        return np.array([*kept, self._vocabulary.eos_id], self.dtype)
