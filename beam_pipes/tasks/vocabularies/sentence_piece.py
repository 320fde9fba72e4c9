"""SentencePiece models."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfTensor, require, tensorflow
from beam_pipes.tasks.vocabularies.files import read_bytes
from beam_pipes.tasks.vocabularies.vocabulary import (
    TF_PURPOSE,
    Vocabulary,
    as_text,
    decode_through_python,
    encode_through_python,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from sentencepiece import SentencePieceProcessor


class SentencePieceVocabulary(Vocabulary):
    """Ids of a trained SentencePiece model (the `sentencepiece` library, in plain Python).

    With `extra_ids=3` the pieces `<extra_id_0>`, `<extra_id_1>`, `<extra_id_2>` are added after the model's own, in
    reverse: `<extra_id_0>` has the last id. The file is read once, on first use, and a pickled vocabulary contains its
    bytes; all equal vocabularies of a process share one model. Equality and fingerprint go by the bytes.

    Args:
        sentencepiece_model_file: path of the `.model` file; `gs://` and others through TensorFlow.
        extra_ids: number of sentinels to add.
        normalizer_spec_overrides: a `NormalizerSpec` message merged over the model's own.
        reverse_extra_ids: `<extra_id_0>` has the last id; False gives it the first.
        use_fast_tokenizer: accepted for compatibility; there is one tokenizer, the fast one.

    Raises:
        MissingExtraError: `sentencepiece` is not installed (when the model is first needed).
    """

    def __init__(
        self,
        sentencepiece_model_file: str,
        extra_ids: int = 0,
        normalizer_spec_overrides: Message | None = None,
        reverse_extra_ids: bool = True,
        use_fast_tokenizer: bool = False,
    ) -> None:
        self._path = os.fspath(sentencepiece_model_file)
        self._bytes: bytes | None = None
        self._normalizer = normalizer_spec_overrides and normalizer_spec_overrides.SerializeToString()
        self._reverse_extra_ids = reverse_extra_ids
        self._use_fast_tokenizer = use_fast_tokenizer
        self._lock = threading.Lock()
        super().__init__(extra_ids=extra_ids)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        del state["_lock"]
        state.pop("_loaded", None)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    @property
    def _model(self) -> tuple[SentencePieceProcessor, bytes]:
        loaded = self.__dict__.get("_loaded")
        if loaded is None:
            with self._lock:
                if self._bytes is None:
                    self._bytes = read_bytes(self._path)
                try:
                    loaded = _load(self._bytes, self.extra_ids, self._normalizer, self._reverse_extra_ids)
                except RuntimeError as error:  # the library's message names a line of its own source
                    raise TaskError(
                        f"expected a model of SentencePiece in {self._path!r}, found {len(self._bytes):,} bytes that "
                        f"begin with {self._bytes[:16]!r}. Give the .model that sentencepiece has trained, or the "
                        "tokenizer.json beside it (Llama 3's .model holds ranks of tiktoken).",
                        path=self._path,
                    ) from error
                self.__dict__["_loaded"] = loaded
        return loaded

    def load_model(self) -> None:
        """Reads the model now rather than at its first use."""
        _ = self._model

    @property
    def tokenizer(self) -> SentencePieceProcessor:
        """The `SentencePieceProcessor`."""
        return self._model[0]

    @property
    def tf_tokenizer(self) -> SentencePieceTfTokenizer:
        """The tokenizer as operations of TensorFlow, with the methods of `tensorflow_text.SentencepieceTokenizer`."""
        return SentencePieceTfTokenizer(self)

    @property
    def sp_model(self) -> bytes:
        """The serialized model, extra ids and overrides included."""
        return self._model[1]

    @property
    def sentencepiece_model_file(self) -> str:
        return self._path

    @property
    def bos_id(self) -> int | None:
        return int(self.tokenizer.bos_id())

    @property
    def eos_id(self) -> int | None:
        return int(self.tokenizer.eos_id())

    @property
    def unk_id(self) -> int | None:
        return int(self.tokenizer.unk_id())

    @property
    def vocab_size(self) -> int:
        """Number of pieces; the extra ids are pieces of the model, so they are counted once."""
        return self._base_vocab_size

    @property
    def _base_vocab_size(self) -> int:
        return int(self.tokenizer.get_piece_size())

    def _encode(self, s: str | bytes) -> list[int]:
        return self._model[0].encode(as_text(s))  # type: ignore[no-any-return]

    def encode_batch(self, texts: Sequence[str | bytes], *, threads: int = 1) -> list[list[int]]:
        """Many texts in one call into the library: the same ids, less time per text."""
        return self.tokenizer.encode([as_text(text) for text in texts], num_threads=threads)  # type: ignore[no-any-return]

    def name_of(self, token_id: int) -> str | None:
        is_control = token_id < self.tokenizer.get_piece_size() and self.tokenizer.is_control(token_id)
        return str(self.tokenizer.id_to_piece(token_id)) if is_control else None

    def _decode(self, ids: Sequence[int]) -> str:
        unknown = self.tokenizer.unk_id()
        size = self.tokenizer.get_piece_size()
        return self.tokenizer.decode([unknown if i >= size else int(i) for i in ids])  # type: ignore[no-any-return]

    def config(self) -> dict[str, object]:
        return {
            "model_sha256": _sha256(self.sp_model),
            "extra_ids": self.extra_ids,
            "reverse_extra_ids": self._reverse_extra_ids,
        }

    def __repr__(self) -> str:
        digest = hashlib.md5(self.sp_model, usedforsecurity=False).hexdigest()
        return f"SentencePieceVocabulary(file={self._path}, extra_ids={self.extra_ids}, spm_md5={digest})"


class SentencePieceTfTokenizer:
    """`tokenize(["this is"])` → ragged int32 `[[11, 8, 6, 3, 8, 6]]`, and back; a single text gives a vector.

    Ids are those of the model: EOS, padding and ids beyond the model are not handled.
    """

    def __init__(self, vocabulary: SentencePieceVocabulary) -> None:
        self._vocabulary = vocabulary

    def tokenize(self, input: object) -> TfTensor:
        return encode_through_python(self._vocabulary, input)

    def detokenize(self, input: object) -> TfTensor:
        return decode_through_python(self._vocabulary, input, self._vocabulary.tokenizer.decode)

    def vocab_size(self) -> TfTensor:
        return tensorflow(TF_PURPOSE).constant(self._vocabulary.vocab_size, "int32")

    def id_to_string(self, input: object) -> TfTensor:
        """The piece of each id."""
        pieces = [self._vocabulary.tokenizer.id_to_piece(i) for i in range(self._vocabulary.vocab_size)]
        return tensorflow(TF_PURPOSE).gather(pieces, input)

    def string_to_id(self, input: object) -> TfTensor:
        """The id of each piece; the id of unknown pieces if there is none."""
        tf = tensorflow(TF_PURPOSE)

        def ids(pieces: np.ndarray) -> np.ndarray:
            found = [self._vocabulary.tokenizer.piece_to_id(as_text(piece)) for piece in np.atleast_1d(pieces).flat]
            made: np.ndarray = np.array(found, np.int32).reshape(np.shape(pieces))
            return made

        return tf.ensure_shape(tf.numpy_function(ids, [input], tf.int32), tf.convert_to_tensor(input).shape)


@functools.lru_cache(maxsize=64)
def _sha256(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()


@functools.lru_cache(maxsize=64)
def _load(
    model: bytes, extra_ids: int, normalizer: bytes | None, reverse: bool
) -> tuple[SentencePieceProcessor, bytes]:
    sentencepiece = require("sentencepiece", purpose="SentencePieceVocabulary")
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    if extra_ids or normalizer:
        messages = require("sentencepiece.sentencepiece_model_pb2", purpose="SentencePieceVocabulary")
        proto = messages.ModelProto.FromString(model)
        sentinels = range(extra_ids)
        for i in reversed(sentinels) if reverse else sentinels:
            # The prefix makes the piece match after a space too, as in text.
            proto.pieces.add(piece=f"▁<extra_id_{i}>", score=0.0, type=messages.ModelProto.SentencePiece.USER_DEFINED)
        if normalizer:
            proto.normalizer_spec.MergeFromString(normalizer)
            proto.denormalizer_spec.MergeFromString(normalizer)
        model = proto.SerializeToString()
        processor.LoadFromSerializedProto(model)
    return processor, model
