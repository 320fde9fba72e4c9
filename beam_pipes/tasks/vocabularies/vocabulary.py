"""The vocabulary: text to ids and back.

Three words: an *id* is an index into the vocabulary; *extra ids* are sentinels placed after the base ids, unless the
vocabulary says otherwise; the *base vocabulary* is what exists without them.

`DType` names an element type. `Vocabulary` is the base of all, `PassThroughVocabulary` is for features that arrive as
ids. The functions at the end turn `encode` and `decode` into TensorFlow operations, for vocabularies without their own.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from beam_pipes.checks import choice
from beam_pipes.errors import TaskError
from beam_pipes.extras import TfTensor, tensorflow
from beam_pipes.format.dtypes import BOOL, BYTES, FLOATS, INTEGERS, numpy_dtype

_ALIASES = {"float": "float32", "int": "int32", "str": "string", "bytes": "string", "object": "string"}
_NAMES = frozenset({*INTEGERS, *FLOATS, BOOL, "string", "complex64", "complex128"})


class DType(str):
    """An element type by its name: `DType("int32") == tf.int32 == np.dtype("int32").name`.

    A string, so that NumPy, JAX and TensorFlow all accept it as a dtype (`tf.cast(x, feature.dtype)`,
    `np.zeros(3, feature.dtype)`), and so that declaring a feature imports none of them. Accepts TensorFlow dtypes,
    NumPy dtypes and scalar types, Python's `int, float, bool, str, bytes`, and names. `tf.string`, `str`, `bytes`
    and object arrays are all `string`.

    Raises:
        TaskError: the type is unknown.
    """

    __slots__ = ()

    def __new__(cls, dtype: object) -> DType:
        return super().__new__(cls, _name_of(dtype))

    @property
    def name(self) -> str:
        return str.__str__(self)

    @property
    def is_integer(self) -> bool:
        return self in INTEGERS

    @property
    def is_floating(self) -> bool:
        return self in FLOATS

    @property
    def is_bool(self) -> bool:
        return self == BOOL

    @property
    def is_string(self) -> bool:
        return self == "string"

    @property
    def as_numpy_dtype(self) -> np.dtype:
        """The NumPy dtype; strings are object arrays of `bytes`; bfloat16 needs ml_dtypes (of TensorFlow or JAX)."""
        return numpy_dtype(BYTES if self.is_string else self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return (DType, (self.name,))


def _name_of(dtype: Any) -> str:
    if isinstance(dtype, type) and dtype in (bool, int, float, str, bytes):
        name = {bool: "bool", int: "int32", float: "float32"}.get(dtype, "string")
    elif isinstance(dtype, str):
        name = dtype.__str__()
    elif isinstance(getattr(dtype, "name", None), str):  # np.dtype, tf.DType, torch-like and jnp dtypes
        name = dtype.name
    else:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
    name = _ALIASES.get(name, name)
    if name.startswith(("str", "bytes")):
        name = "string"
    return choice(name, of=sorted(_NAMES), what="the dtype of a feature", error=TaskError, dtype=name)


#: Text, as `str` or `bytes`; a `PassThroughVocabulary` takes and gives other values.
TextLike: TypeAlias = Any
#: An id, an int; a `PassThroughVocabulary` has whatever arrives as such.
TokenId: TypeAlias = Any

PAD_ID = 0
#: The purpose of TensorFlow in error messages.
TF_PURPOSE = "encode_tf and decode_tf"


class Vocabulary(abc.ABC):
    """Base of all vocabularies. `encode` and `decode` are plain Python; `encode_tf` and `decode_tf` need TensorFlow.

    A subclass writes `_encode`, `_decode`, `_base_vocab_size`, `eos_id` and `unk_id`. The TensorFlow pair has a default
    that calls the Python pair through `tf.numpy_function`: it works for every vocabulary, in the process that made it;
    override `_encode_tf` and `_decode_tf` if TensorFlow operations exist.

    Vocabularies compare equal, hash and fingerprint by content: class, configuration, and the bytes of their files.
    They are picklable; parts that cannot be pickled are recreated from the content.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "encode_batch" not in vars(cls) and {"encode", "_encode"} & vars(cls).keys():
            cls.encode_batch = Vocabulary.encode_batch  # type: ignore[method-assign]  # an inherited one knows neither
        if "encode_arrays" not in vars(cls) and {"encode", "_encode", "encode_batch"} & vars(cls).keys():
            cls.encode_arrays = Vocabulary.encode_arrays  # type: ignore[method-assign]

    def __init__(self, extra_ids: int = 0) -> None:
        self._extra_ids = extra_ids or 0

    @property
    def bos_id(self) -> int | None:
        raise NotImplementedError("need to implement bos_id")

    @property
    @abc.abstractmethod
    def eos_id(self) -> TokenId:
        """Id of the end of a sequence; None if there is none."""

    @property
    def pad_id(self) -> int:
        return PAD_ID

    @property
    @abc.abstractmethod
    def unk_id(self) -> int | None:
        """Id of unknown tokens; None if there is none."""

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
    def _encode(self, s: TextLike) -> Sequence[TokenId]:
        """Text to ids, no EOS."""

    @abc.abstractmethod
    def _decode(self, ids: Sequence[TokenId]) -> TextLike:
        """Ids to text; ids unknown to the base vocabulary are already replaced, and the sequence ends at EOS."""

    def encode(self, s: TextLike) -> Sequence[TokenId]:
        """Text to a list of ids, without EOS. `bytes` are taken as UTF-8."""
        return self._encode(s)

    def encode_batch(self, texts: Sequence[TextLike], *, threads: int = 1) -> Sequence[Sequence[TokenId]]:
        """`encode` of many texts. Vocabularies whose library encodes batches override it.

        Args:
            threads: number of threads for the library, if supported; 1, because workers already share the cores.
        """
        return [self.encode(text) for text in texts]

    def encode_arrays(self, texts: Sequence[TextLike], *, threads: int = 1) -> list[np.ndarray]:
        """`encode_batch` as arrays, (length,) int32 each. Vocabularies that can avoid lists of numbers override it."""
        return [np.array(ids, np.int32) for ids in self.encode_batch(texts, threads=threads)]

    def decode(self, ids: Iterable[TokenId]) -> TextLike:
        """Ids to text. Unknown ids become `unk_id`; everything after the first EOS is dropped."""
        kept = [int(i) if hasattr(i, "dtype") and getattr(i, "ndim", 0) == 0 else i for i in ids]
        if self.unk_id is not None:
            size = self._base_vocab_size
            kept = [self.unk_id if i >= size else i for i in kept]
        if self.eos_id is not None and self.eos_id in kept:
            kept = kept[: kept.index(self.eos_id) + 1]
        return self._decode(kept)

    def name_of(self, token_id: int) -> str | None:
        """The spelling of a special token, which `decode` leaves out; None for other ids."""
        return None

    def encode_tf(self, s: TfTensor) -> TfTensor:
        """A string tensor to an int32 tensor of ids: scalar → rank 1, rank 1 → ragged. Needs TensorFlow."""
        return self._encode_tf(s)

    def decode_tf(self, ids: TfTensor) -> TfTensor:
        """An id tensor, its last axis the sequence, to a string tensor. Needs TensorFlow."""
        return self._decode_tf(clean_ids(ids, self))

    def _encode_tf(self, s: object) -> object:
        return encode_through_python(self, s)

    def _decode_tf(self, ids: object) -> object:
        return decode_through_python(self, ids)

    def config(self) -> dict[str, object]:
        """The determining facts of this vocabulary, as JSON-able values: options and digests of assets, never paths."""
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


def as_text(s: object) -> str:
    """`str` of text given as `str`, `bytes` (UTF-8, undecodable bytes replaced), or a NumPy scalar of either.

    Raises `TaskError` for lone surrogates, see `utf8_of`.
    """
    if not isinstance(s, str | bytes) and hasattr(s, "item"):
        s = s.item()
    text = s.decode("utf-8", "replace") if isinstance(s, bytes) else str(s)
    if not text.isascii():
        utf8_of(text)
    return text


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class PassThroughVocabulary(Vocabulary):
    """Encodes and decodes nothing: `encode([1, 2]) == [1, 2]`. For features that arrive as ids or numbers.

    Args:
        size: number of ids; 0 if the feature does not consist of ids.
        eos_id: decoding stops at it; None for no end.
    """

    def __init__(self, size: int, eos_id: int | None = None) -> None:
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
    def eos_id(self) -> TokenId:
        return self._eos_id

    unk_id = None

    def _encode(self, s: Sequence[object]) -> Sequence[object]:
        return s

    def _decode(self, ids: Sequence[TokenId]) -> Sequence[TokenId]:
        return ids

    def _encode_tf(self, s: object) -> object:
        return s

    def _decode_tf(self, ids: object) -> object:
        return ids

    def config(self) -> dict[str, object]:
        return {"size": self._size, "eos_id": self._eos_id}


def clean_ids(ids: TfTensor, vocabulary: Vocabulary) -> TfTensor:
    """Unknown ids become `unk_id`, and everything after the first EOS of the last axis becomes `pad_id`."""
    tf = tensorflow(TF_PURPOSE)
    if vocabulary.unk_id is not None:
        size = tf.cast(vocabulary._base_vocab_size, ids.dtype)
        unknown = tf.cast(vocabulary.unk_id, ids.dtype)
        ids = tf.where(tf.less(ids, size), ids, unknown)
    if vocabulary.eos_id is not None:
        is_eos = tf.cast(tf.equal(ids, tf.cast(vocabulary.eos_id, ids.dtype)), tf.int32)
        if isinstance(ids, tf.RaggedTensor):
            ended = tf.ragged.map_flat_values(tf.identity, is_eos)
            before = ended.with_flat_values(_ragged_cumsum(tf, ended))
        else:
            before = tf.cumsum(is_eos, exclusive=True, axis=-1)
        ids = tf.where(tf.equal(before, 0), ids, tf.cast(vocabulary.pad_id, ids.dtype))
    return ids


def _ragged_cumsum(tf: ModuleType, ragged: TfTensor) -> TfTensor:
    values = tf.cumsum(ragged.flat_values, exclusive=True)
    starts = tf.gather(tf.concat([values, [0]], 0), ragged.nested_row_splits[-1][:-1])
    return values - tf.gather(starts, _row_ids(ragged))


def _row_ids(ragged: TfTensor) -> TfTensor:
    while ragged.ragged_rank > 1:
        ragged = ragged.values
    return ragged.value_rowids()


def encode_through_python(vocabulary: Vocabulary, s: TfTensor) -> TfTensor:
    """`encode` as an operation: a scalar gives rank 1; other ranks a ragged row a string. int32."""
    tf = tensorflow(TF_PURPOSE)
    if isinstance(s, tf.RaggedTensor):
        return tf.ragged.map_flat_values(lambda flat: encode_through_python(vocabulary, flat), s)
    s = tf.convert_to_tensor(s)
    if s.shape.rank is not None and s.shape.rank > 1:
        rows = tf.RaggedTensor.from_tensor(s, ragged_rank=s.shape.rank - 1)
        return rows.with_flat_values(encode_through_python(vocabulary, rows.flat_values))

    def encode_all(strings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [np.asarray(vocabulary.encode(string), np.int32) for string in np.atleast_1d(strings)]
        lengths = np.asarray([len(row) for row in rows], np.int64)
        return (np.concatenate(rows) if rows else np.zeros(0, np.int32)), lengths

    ids, lengths = tf.numpy_function(encode_all, [s], [tf.int32, tf.int64])
    ids.set_shape([None])
    lengths.set_shape([None])
    return ids if s.shape.rank == 0 else tf.RaggedTensor.from_row_lengths(ids, lengths)


def decode_through_python(
    vocabulary: Vocabulary, ids: TfTensor, decode: Callable[[list[int]], object] | None = None
) -> TfTensor:
    """`decode` as an operation over the last axis: `[..., length]` ids → `[...]` strings. None is the vocabulary's."""
    decode = decode or vocabulary.decode
    tf = tensorflow(TF_PURPOSE)
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(default_value=tf.cast(vocabulary.pad_id, ids.dtype))
    ids = tf.convert_to_tensor(ids)

    def decode_all(array: np.ndarray) -> np.ndarray:
        rows = array.reshape(-1, array.shape[-1]) if array.shape[-1] else np.zeros((int(np.prod(array.shape[:-1])), 0))
        texts = [as_bytes(decode([int(i) for i in row.tolist()])) for row in rows]
        decoded = np.empty(len(texts), object)
        decoded[:] = texts
        return decoded.reshape(array.shape[:-1])

    decoded = tf.numpy_function(decode_all, [ids], tf.string)
    decoded.set_shape(ids.shape[:-1])
    return decoded


def as_bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")


def utf8_of(text: str) -> bytes:
    """`text.encode()`. Raises `TaskError` for lone surrogates, which JSON can spell (`"\\ud83d"`)."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TaskError(
            f"the text has {text[error.start]!r} at character {error.start}: half of a surrogate pair, which is not a "
            "character. Repair the text, for example by text.encode('utf-8', 'replace').decode(), or drop the record."
        ) from error
