"""The vocabulary: text to ids and back.

Three words: an *id* is an index into the vocabulary; *extra ids* are sentinels placed after the base ids, unless the
vocabulary says otherwise; the *base vocabulary* is what exists without them.

A vocabulary for what is ids already.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

PAD_ID = 0


class Vocabulary(abc.ABC):
    """Base of all vocabularies. `encode` and `decode` are plain Python; `encode_tf` and `decode_tf` need TensorFlow.

    A subclass writes `_encode`, `_decode`, `_base_vocab_size`, `eos_id` and `unk_id`. The TensorFlow pair has a default
    that calls the Python pair through `tf.numpy_function`: it works for every vocabulary, in the process that made it;
    override `_encode_tf` and `_decode_tf` where TensorFlow operations exist.

    Vocabularies compare equal, hash and fingerprint by content: class, configuration, and the bytes of their files.
    They are picklable; what cannot be pickled is made again from the content.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "encode_batch" not in vars(cls) and {"encode", "_encode"} & vars(cls).keys():
            cls.encode_batch = Vocabulary.encode_batch  # type: ignore[method-assign]  # an inherited one knows neither

    def __init__(self, extra_ids: int = 0) -> None:
        self._extra_ids = extra_ids or 0

    @property
    def bos_id(self) -> int | None:
        raise NotImplementedError("need to implement bos_id")

    @property
    @abc.abstractmethod
    def eos_id(self) -> Any:
        """Id of the end of a sequence; None where there is none."""

    @property
    def pad_id(self) -> int:
        return PAD_ID

    @property
    @abc.abstractmethod
    def unk_id(self) -> int | None:
        """Id of what the vocabulary does not know; None where there is none."""

    @property
    def extra_ids(self) -> int:
        return self._extra_ids

    @property
    def vocab_size(self) -> int:
        """Number of ids, extra ids included."""
        return self._base_vocab_size + self.extra_ids

    @property
    @abc.abstractmethod
    def _base_vocab_size(self) -> int:
        """Number of ids without the extra ids."""

    @abc.abstractmethod
    def _encode(self, s: Any) -> Sequence[Any]:
        """Text to ids, no EOS."""

    @abc.abstractmethod
    def _decode(self, ids: Sequence[Any]) -> Any:
        """Ids to text; ids the base vocabulary does not know have been replaced, and the sequence ends at EOS."""

    def encode(self, s: Any) -> Sequence[Any]:
        """Text to a list of ids, without EOS. `bytes` are taken as UTF-8."""
        return self._encode(s)

    def encode_batch(self, texts: Sequence[Any], *, threads: int = 1) -> Sequence[Sequence[Any]]:
        """`encode` of many texts. Vocabularies over a library that takes many at once override it.

        Args:
            threads: how many the library may use, where it asks; 1, as workers already share the cores.
        """
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[Any]) -> Any:
        """Ids to text. Unknown ids become `unk_id`; everything after the first EOS is dropped."""
        kept = [int(i) if hasattr(i, "dtype") and getattr(i, "ndim", 0) == 0 else i for i in ids]
        if self.unk_id is not None:
            size = self._base_vocab_size
            kept = [self.unk_id if i >= size else i for i in kept]
        if self.eos_id is not None and self.eos_id in kept:
            kept = kept[: kept.index(self.eos_id) + 1]
        return self._decode(kept)

    def encode_tf(self, s: Any) -> Any:
        """A string tensor to an int32 tensor of ids: scalar → rank 1, rank 1 → ragged. Needs TensorFlow."""
        return self._encode_tf(s)

    def decode_tf(self, ids: Any) -> Any:
        """An id tensor, its last axis the sequence, to a string tensor. Needs TensorFlow."""
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import clean_ids

        return self._decode_tf(clean_ids(ids, self))

    def _encode_tf(self, s: Any) -> Any:
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import encode_through_python

        return encode_through_python(self, s)

    def _decode_tf(self, ids: Any) -> Any:
        from beam_pipes.tasks.vocabularies.tensorflow_bridge import decode_through_python

        return decode_through_python(self, ids)

    def config(self) -> dict[str, Any]:
        """What makes this vocabulary what it is, as JSON-able values: options and digests of assets, never paths."""
        return {"extra_ids": self.extra_ids}

    def fingerprint(self) -> str:
        """Hex digest of class and `config`: equal vocabularies have equal fingerprints, in every process."""
        content = json.dumps([type(self).__qualname__, self.config()], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        return isinstance(other, Vocabulary) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash(type(self).__qualname__)

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={_short(value)}" for key, value in self.config().items())
        return f"{type(self).__name__}({options})"


def as_text(s: Any) -> str:
    """`str` of text given as `str`, `bytes` (UTF-8, undecodable bytes replaced), or a NumPy scalar of either."""
    if isinstance(s, str):
        return s
    if isinstance(s, bytes):
        return s.decode("utf-8", "replace")
    if hasattr(s, "item"):
        s = s.item()
    return s.decode("utf-8", "replace") if isinstance(s, bytes) else str(s)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class PassThroughVocabulary(Vocabulary):
    """Encodes and decodes nothing: `encode([1, 2]) == [1, 2]`. For features that arrive as ids or numbers.

    Args:
        size: number of ids; 0 where the feature is not made of ids.
        eos_id: decoding stops at it; None for no end.
    """

    def __init__(self, size: int, eos_id: Any = None) -> None:
        self._size = size
        self._eos_id = eos_id
        super().__init__()

    @property
    def size(self) -> int:
        return self._size

    @property
    def _base_vocab_size(self) -> int:
        return self._size

    @property
    def eos_id(self) -> Any:
        return self._eos_id

    @property
    def unk_id(self) -> int | None:
        return None

    def _encode(self, s: Sequence[Any]) -> Sequence[Any]:
        return s

    def _decode(self, ids: Sequence[Any]) -> Sequence[Any]:
        return ids

    def _encode_tf(self, s: Any) -> Any:
        return s

    def _decode_tf(self, ids: Any) -> Any:
        return ids

    def config(self) -> dict[str, Any]:
        return {"size": self._size, "eos_id": self._eos_id}
