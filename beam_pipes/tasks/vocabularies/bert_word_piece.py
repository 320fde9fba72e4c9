"""WordPiece, as BERT uses it, in plain Python.

Text becomes *words* (at spaces, tabs and line breaks; punctuation and CJK characters stand alone), and a word becomes
*pieces*: the longest one of the vocabulary from the left, then the longest that begins with the suffix indicator, and
so on (Wu et al., 2016; Devlin et al., 2018).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NoReturn, cast, get_args

from beam_pipes.checks import choice
from beam_pipes.errors import TaskError
from beam_pipes.extras import absent_here, tensorflow
from beam_pipes.tasks.vocabularies.files import read_bytes
from beam_pipes.tasks.vocabularies.vocabulary import TF_PURPOSE, DType, Vocabulary, as_text

# Blocks of ideographs, each of which is a word.
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
#: Members of SeqIO's class that are not here → why, and what to use. Messages are made from it, and pages.
ABSENT = {
    "tf_tokenizer": "there is no tokenizer of tensorflow_text: `encode_tf` encodes, with the same ids",
    "tokenizer": "there is no tokenizer of tensorflow_text: `encode` encodes, with the same ids",
}
_FORMS = Literal["NFC", "NFD", "NFKC", "NFKD"]
_UNUSED = re.compile(r"(\[unused\d+\])")


class BertWordPieceVocabulary(Vocabulary):
    """Pieces of a `vocab.txt`: one per line, the line number is the id.

    With the pieces `un`, `##aff`, `##able`: `encode("unaffable")` gives their three ids; `decode` gives `unaffable`
    back, with one space between words.

    Args:
        vocab_lookup_table: path of the file, or a mapping or list of pieces.
        suffix_indicator: what pieces inside a word begin with.
        max_bytes_per_word: longer words are unknown.
        max_chars_per_token: longest piece without the indicator, if known.
        token_out_type: dtype of the ids of `encode_tf`.
        unknown_token: piece of a word that cannot be spelled; it must be in the vocabulary.
        split_unknown_characters: only a character that is in no piece is unknown, not its whole word.
        lower_case: fold case and strip accents.
        keep_whitespace: a run of white space is also a word, instead of only dividing words.
        normalization_form: "NFC", "NFD", "NFKC" or "NFKD" before everything else; not together with `lower_case`, which
            uses NFD.
        preserve_unused_token: `[unused7]` in the text is one piece.
        pad_id, start_of_sequence_id, end_of_sequence_id: ids of `[PAD]`, `[CLS]`, `[SEP]`.

    Raises:
        TaskError: the unknown token is not in the vocabulary.
    """

    def __init__(
        self,
        vocab_lookup_table: str | os.PathLike[str] | Mapping[str, int] | Iterable[str | bytes],
        suffix_indicator: str = "##",
        max_bytes_per_word: int = 100,
        max_chars_per_token: int | None = None,
        token_out_type: object = "int64",
        unknown_token: str = "[UNK]",
        split_unknown_characters: bool = False,
        lower_case: bool = False,
        keep_whitespace: bool = False,
        normalization_form: str | None = None,
        preserve_unused_token: bool = False,
        pad_id: int = 0,
        start_of_sequence_id: int = 101,
        end_of_sequence_id: int = 102,
    ) -> None:
        self._pieces = _read_pieces(vocab_lookup_table)
        self._id_of = {piece: i for i, piece in reversed(list(enumerate(self._pieces)))}
        self._suffix_indicator = suffix_indicator
        self._max_bytes_per_word = max_bytes_per_word
        longest = max(map(len, self._pieces), default=0)
        self._max_chars = min(longest, max_chars_per_token or longest)
        self._token_out_type = DType(token_out_type)
        self._unknown_token = unknown_token
        self._split_unknown_characters = split_unknown_characters
        self._lower_case = lower_case
        self._keep_whitespace = keep_whitespace
        self._normalization_form = _normalization_form(normalization_form)
        self._preserve_unused_token = preserve_unused_token
        self._pad_id = pad_id
        self._sos_id = start_of_sequence_id
        self._eos_id = end_of_sequence_id
        if unknown_token not in self._id_of:
            raise TaskError(f"the vocabulary has no unknown token {unknown_token!r}", token=unknown_token)
        super().__init__()

    def __getattr__(self, name: str) -> NoReturn:
        hint = absent_here(name, ABSENT, "SeqIO")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{'.' if hint else ''}{hint}")

    @property
    def sos_id(self) -> int | None:
        return self._sos_id

    @property
    def bos_id(self) -> int | None:
        return self._sos_id

    @property
    def eos_id(self) -> int | None:
        return self._eos_id

    @property
    def unk_id(self) -> int:
        return self._id_of[self._unknown_token]

    @property
    def pad_id(self) -> int:
        return self._pad_id

    @property
    def _base_vocab_size(self) -> int:
        """The pieces, and one more id that is never used: the original's table has a bucket there."""
        return len(self._pieces) + 1

    def _encode(self, s: object) -> list[int]:
        return [piece for word in self.words(as_text(s)) for piece in self._pieces_of(word)]

    def _decode(self, ids: Sequence[int]) -> str:
        words: list[str] = []
        for i in ids:
            piece = self._pieces[i] if i < len(self._pieces) else self._unknown_token
            if words and self._suffix_indicator and piece.startswith(self._suffix_indicator):
                words[-1] += piece[len(self._suffix_indicator) :]
            else:
                words.append(piece)
        return " ".join(words)

    def _encode_tf(self, s: object) -> object:
        return tensorflow(TF_PURPOSE).cast(super()._encode_tf(s), self._token_out_type)

    def words(self, text: str) -> Iterator[str]:
        """The words of a text, before they are divided into pieces."""
        for part in _UNUSED.split(text) if self._preserve_unused_token else [text]:
            if self._preserve_unused_token and _UNUSED.fullmatch(part):
                yield part
            else:
                yield from self._plain_words(self._normalised(part))

    def _normalised(self, text: str) -> str:
        if self._lower_case:
            folded = unicodedata.normalize("NFD", _folded(text))
            text = "".join(character for character in folded if unicodedata.category(character) != "Mn")
        elif self._normalization_form:
            text = unicodedata.normalize(self._normalization_form, text)
        # Line breaks and tabs are control characters too, but still divide words.
        return "".join(" " if unicodedata.category(c) in ("Cc", "Cf") else c for c in text)

    def _plain_words(self, text: str) -> Iterator[str]:
        for spaces, run in itertools.groupby(text, lambda character: character == " "):
            if spaces:
                if self._keep_whitespace:
                    yield "".join(run)
                continue
            word = ""
            for character in run:
                if not _stands_alone(character):
                    word += character
                    continue
                if word:
                    yield word
                    word = ""
                yield character
            if word:
                yield word

    def _pieces_of(self, word: str) -> list[int]:
        if len(word.encode("utf-8", "surrogatepass")) > self._max_bytes_per_word:
            return [self.unk_id]
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = self._suffix_indicator if start else ""
            for end in range(min(len(word), start + self._max_chars), start, -1):
                piece = self._id_of.get(prefix + word[start:end])
                if piece is not None:
                    pieces.append(piece)
                    start = end
                    break
            else:
                if not self._split_unknown_characters:
                    return [self.unk_id]
                pieces.append(self.unk_id)
                start += 1
        return pieces

    def config(self) -> dict[str, object]:
        return {
            "pieces_sha256": hashlib.sha256("\n".join(self._pieces).encode()).hexdigest(),
            "suffix_indicator": self._suffix_indicator,
            "max_bytes_per_word": self._max_bytes_per_word,
            "max_chars": self._max_chars,
            "token_out_type": self._token_out_type.name,
            "unknown_token": self._unknown_token,
            "split_unknown_characters": self._split_unknown_characters,
            "lower_case": self._lower_case,
            "keep_whitespace": self._keep_whitespace,
            "normalization_form": self._normalization_form,
            "preserve_unused_token": self._preserve_unused_token,
            "pad_id": self._pad_id,
            "sos_id": self._sos_id,
            "eos_id": self._eos_id,
        }


def _normalization_form(form: str | None) -> _FORMS | None:
    if form is None:
        return None
    found = choice(form.upper(), of=get_args(_FORMS), what="normalization_form", error=TaskError, form=form)
    return cast("_FORMS", found)


def _read_pieces(table: str | os.PathLike[str] | Mapping[str, int] | Iterable[str | bytes]) -> list[str]:
    if isinstance(table, (str, os.PathLike)):
        lines = read_bytes(table).decode("utf-8").split("\n")
        pieces = [line.rstrip("\r") for line in lines]
        return pieces[:-1] if pieces and not pieces[-1] else pieces
    if isinstance(table, Mapping):
        return sorted(table, key=lambda piece: table[piece])
    return [as_text(piece) for piece in table]


def _folded(text: str) -> str:
    """Case folding with compatibility forms (Unicode's NFKC_Casefold): `ﬁ` is `fi`, invisible format characters go."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    return "".join(c for c in unicodedata.normalize("NFKC", text.casefold()) if unicodedata.category(c) != "Cf")


def _stands_alone(character: str) -> bool:
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    if unicodedata.category(character).startswith("P"):
        return True
    return any(first <= code <= last for first, last in _CJK)
