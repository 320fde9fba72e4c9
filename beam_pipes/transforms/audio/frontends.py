"""Text to ids: English by phonemes or letters, Mandarin by syllables, any text by a vocabulary.

    English           "this"     → ["DH", "IH", "S"]                → ids        by a lexicon, else by spelling rules
    Chinese      "你好！"     → ["<s>", "ni3", "hao3", "！", "</s>"] → ids        pypinyin reads the characters
    EnglishCharacter  "Hi!"  → ["<s>", "hi!", "</s>"]               → ids, one for each character
    Vocab        symbols ↔ ids, special symbols first

All have the same methods. Parakeet reads Mandarin with g2pM; pypinyin is maintained, needs no model file, and
has the same notation: syllables with the tone as a digit, 5 for the neutral one, `u:` for ü (`lu:4`).

Phonemes are those of ARPAbet without stress, as in the CMU pronouncing dictionary: `AA` … `ZH`. The rules read the
longest known spelling from left to right ("th" before "t"). They are a stand-in that lets a job run from end to end
without downloads, and English spelling often defeats them ("wrote" → R AA T); for training a voice pass a
`lexicon`, e.g. the CMU dictionary's file by `read_lexicon`.
"""

from __future__ import annotations

import abc
import functools
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError
from beam_pipes.extras import require

PHONEMES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH"
).split()
PUNCTUATION = (" ", ",", ".", "?", "!", ";", ":", "-", "'")
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")

# Spelling → phonemes; at each place the longest is taken. "^" stands for the start of a word, "$" for its end.
SPELLINGS: dict[str, str] = {
    "tion": "SH AH N", "sion": "ZH AH N", "ough": "AO", "augh": "AO", "eigh": "EY", "ight": "AY T",
    "tch": "CH", "dge": "JH", "igh": "AY", "ing$": "IH NG", "are$": "EH R", "ore": "AO R", "^the$": "DH AH",
    "^of$": "AH V", "^to$": "T UW", "^you$": "Y UW", "^was$": "W AA Z", "^is$": "IH Z", "^a$": "AH", "^one$": "W AH N",
    "^kn": "N", "^wr": "R", "^ps": "S", "^wh": "W", "^x": "Z", "^y": "Y", "mb$": "M", "le$": "AH L",
    "y$": "IY", "^he$": "HH IY", "^she$": "SH IY", "^me$": "M IY", "^we$": "W IY", "^be$": "B IY", "^e$": "IY",
    "e$": "", "ai": "EY", "ay": "EY", "au": "AO", "aw": "AO", "ea": "IY", "ee": "IY",
    "ei": "IY", "ew": "UW", "ey": "IY", "ie": "IY", "oa": "OW", "oi": "OY", "oo": "UW", "ou": "AW", "ow": "AW",
    "oy": "OY", "ue": "UW", "ui": "UW", "ar": "AA R", "er": "ER", "ir": "ER", "or": "AO R", "ur": "ER",
    "ch": "CH", "ck": "K", "gh": "", "ng": "NG", "nk": "NG K", "ph": "F", "qu": "K W", "sh": "SH", "th": "TH",
    "bb": "B", "cc": "K", "dd": "D", "ff": "F", "gg": "G", "ll": "L", "mm": "M", "nn": "N", "pp": "P", "rr": "R",
    "ss": "S", "tt": "T", "zz": "Z", "ce": "S", "ci": "S IH", "cy": "S IY", "ge": "JH", "gi": "JH IH",
    "a": "AE", "b": "B", "c": "K", "d": "D", "e": "EH", "f": "F", "g": "G", "h": "HH", "i": "IH", "j": "JH", "k": "K",
    "l": "L", "m": "M", "n": "N", "o": "AA", "p": "P", "q": "K", "r": "R", "s": "S", "t": "T", "u": "AH", "v": "V",
    "w": "W", "x": "K S", "y": "IH", "z": "Z",
}  # fmt: skip
_RULES = sorted(SPELLINGS, key=lambda spelling: (len(spelling.strip("^$")), len(spelling)), reverse=True)
_SPELLING = re.compile("|".join(f"({rule})" for rule in _RULES))


class English:
    """Turns English text into phonemes, and phonemes into ids.

        frontend = English()
        frontend.phoneticize("Thin ship.")  → ["<s>", "TH", "IH", "N", " ", "SH", "IH", "P", ".", "</s>"]
        frontend.numericalize(["<s>", "TH"])  → array([2, 44])

    Args:
      lexicon: word in lower case → phonemes without stress; looked up before the rules. Empty by default.

    Id 0 is `<pad>`, so padding with 0 is never a phoneme.
    """

    def __init__(self, lexicon: Mapping[str, Sequence[str]] | None = None) -> None:
        self.lexicon = {word.lower(): tuple(phonemes) for word, phonemes in (lexicon or {}).items()}
        self.vocabulary = (*SPECIAL, *PUNCTUATION, *PHONEMES)
        self._ids = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        for word, phonemes in self.lexicon.items():
            unknown = [phoneme for phoneme in phonemes if phoneme not in PHONEMES]
            if unknown:
                raise DatasetError(
                    f"lexicon entry {word!r} holds {unknown}, which are not phonemes: {' '.join(PHONEMES)}"
                )

    def __len__(self) -> int:
        """The number of ids."""
        return len(self.vocabulary)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self)

    def phoneticize(self, text: str) -> list[str]:
        """Returns `<s>`, the phonemes of each word with a space between words and punctuation kept, `</s>`."""
        phonemes = ["<s>"]
        for token in re.findall(r"[a-z]+(?:'[a-z]+)*|[ ,.?!;:\-]|[^\s]", " ".join(text.lower().split())):
            if token[0].isascii() and token[0].isalpha():
                phonemes += self.lexicon.get(token) or pronounce(token)
            else:
                phonemes.append(token if token in PUNCTUATION else "<unk>")
        return [*phonemes, "</s>"]

    def numericalize(self, phonemes: Iterable[str]) -> npt.NDArray[np.int64]:
        """Returns ids, int64; a symbol that is not in the vocabulary is `<unk>`, 1."""
        return np.array([self._ids.get(phoneme, 1) for phoneme in phonemes], dtype=np.int64)

    def reverse(self, ids: Iterable[int]) -> list[str]:
        """Returns the symbols of ids; raises `DatasetError` for a number that is not an id."""
        symbols = []
        for number in ids:
            if not 0 <= number < len(self.vocabulary):
                raise DatasetError(f"{number} is not a phoneme id; ids run from 0 to {len(self.vocabulary) - 1}")
            symbols.append(self.vocabulary[number])
        return symbols

    def __call__(self, text: str) -> npt.NDArray[np.int64]:
        """Returns the ids of text: `numericalize(phoneticize(text))`."""
        return self.numericalize(self.phoneticize(text))


def pronounce(word: str) -> list[str]:
    """Returns the phonemes of one word in lower case by the spelling rules: "ship" → SH IH P."""
    phonemes: list[str] = []
    for match in _SPELLING.finditer(word.replace("'", "")):
        if match.lastindex is not None:
            phonemes += SPELLINGS[_RULES[match.lastindex - 1]].split()
    return phonemes


def read_lexicon(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Reads a lexicon in the CMU dictionary's format: one `WORD  W ER1 D` per line, `;;;` comments, `WORD(2)` variants.

    Stress digits are dropped and the first variant of a word is kept. Raises `DatasetError` with the line's number
    if a line holds no phoneme.
    """
    lexicon: dict[str, tuple[str, ...]] = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            words = line.partition("#")[0].split()
            if not words or words[0].startswith(";;;"):
                continue
            if len(words) < 2:
                raise DatasetError(f"{path}:{number}: a lexicon line is a word and its phonemes, got {line.strip()!r}")
            word = re.sub(r"\(\d+\)$", "", words[0]).lower()
            lexicon.setdefault(word, tuple(phoneme.rstrip("012") for phoneme in words[1:]))
    return lexicon


ENGLISH_PUNCTUATION = (" ", "-", "...", ",", ".", "?", "!")
CHINESE_PUNCTUATION = ("、", "，", "；", "：", "。", "？", "！")


class Vocab:
    """Symbols and their ids: `Vocab(["a", "b"])` has `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, `a` 4, `b` 5.

    Args:
      symbols: in the order of their ids; repeated ones are ignored.
      padding_symbol, unk_symbol, start_symbol, end_symbol: the first ids, in this order; None or "" omits one.

    `stoi` and `itos` are the two dicts; `padding_index`, `unk_index`, `start_index` and `end_index` are -1 for an
    omitted special symbol. `lookup` and `reverse` raise `DatasetError` for an unknown symbol or id.
    """

    def __init__(
        self,
        symbols: Iterable[str],
        padding_symbol: str | None = "<pad>",
        unk_symbol: str | None = "<unk>",
        start_symbol: str | None = "<s>",
        end_symbol: str | None = "</s>",
    ) -> None:
        self.padding_symbol, self.unk_symbol = padding_symbol, unk_symbol
        self.start_symbol, self.end_symbol = start_symbol, end_symbol
        special = [symbol for symbol in (padding_symbol, unk_symbol, start_symbol, end_symbol) if symbol]
        self.special_symbols = {symbol: number for number, symbol in enumerate(dict.fromkeys(special))}
        self.stoi = dict(self.special_symbols)
        self.itos = {number: symbol for symbol, number in self.stoi.items()}
        self.add_symbols(symbols)
        self.padding_index, self.unk_index, self.start_index, self.end_index = (
            self.stoi.get(symbol or "", -1) for symbol in (padding_symbol, unk_symbol, start_symbol, end_symbol)
        )

    @property
    def num_specials(self) -> int:
        """The number of ids of special symbols."""
        return len(self.special_symbols)

    def lookup(self, symbol: str) -> int:
        """Returns the id of a symbol."""
        if symbol not in self.stoi:
            raise DatasetError(f"{symbol!r} is not one of the {len(self)} symbols of the vocabulary")
        return self.stoi[symbol]

    def reverse(self, index: int) -> str:
        """Returns the symbol of an id."""
        if index not in self.itos:
            raise DatasetError(f"{index} is not an id; they run from 0 to {len(self) - 1}")
        return self.itos[index]

    def add_symbol(self, symbol: str) -> None:
        """Gives a new symbol the next id."""
        if symbol not in self.stoi:
            self.itos[len(self.stoi)] = symbol
            self.stoi[symbol] = len(self.stoi)

    def add_symbols(self, symbols: Iterable[str]) -> None:
        """Gives each new symbol the next id."""
        for symbol in symbols:
            self.add_symbol(symbol)

    def __len__(self) -> int:
        return len(self.stoi)

    def __repr__(self) -> str:
        return f"Vocab(size: {len(self)},\nstoi:\n{self.stoi})"


class _Frontend(abc.ABC):
    """The base of both: symbols of a text, and their ids by a `vocab`."""

    vocab: Vocab

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.vocab)

    @abc.abstractmethod
    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the symbols of a sentence, `</s>`."""

    def numericalize(self, phonemes: Iterable[str]) -> npt.NDArray[np.int64]:
        """Returns ids, int64; raises `DatasetError` for an unknown symbol."""
        return np.array([self.vocab.lookup(symbol) for symbol in phonemes], dtype=np.int64)

    def reverse(self, ids: Iterable[int]) -> list[str]:
        """Returns the symbols of ids."""
        return [self.vocab.reverse(int(number)) for number in ids]

    def __call__(self, sentence: str) -> npt.NDArray[np.int64]:
        """Returns the ids of a sentence: `numericalize(phoneticize(sentence))`."""
        return self.numericalize(self.phoneticize(sentence))


class EnglishCharacter(_Frontend):
    """English by letters: words in lower case without accents, and the ids of their characters.

    `EnglishCharacter().phoneticize("Café, 2!")` → `["<s>", "cafe,", "2!", "</s>"]`, whose ids are those of
    `<s> c a f e , ! </s>`: as in Parakeet, spaces have no id, and characters outside the vocabulary are omitted.
    """

    def __init__(self) -> None:
        self.vocab = Vocab([*"abcdefghijklmnopqrstuvwxyz", *ENGLISH_PUNCTUATION])

    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the words of a sentence with their punctuation, `</s>`."""
        decomposed = unicodedata.normalize("NFD", sentence.lower())
        plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
        return ["<s>", *plain.split(), "</s>"]

    def numericalize(self, phonemes: Iterable[str]) -> npt.NDArray[np.int64]:
        """Returns the id of each symbol, or of each character of a word, int64; omits unknown characters."""
        symbols = (symbol for word in phonemes for symbol in ([word] if word in self.vocab.stoi else word))
        return super().numericalize(symbol for symbol in symbols if symbol in self.vocab.stoi)


class Chinese(_Frontend):
    """Mandarin by syllables with tones, in simplified or traditional characters; needs `beam-pipes[chinese]`.

    `Chinese().phoneticize("绿色，旅行。")` → `["<s>", "lu:4", "se4", "，", "lu:3", "xing2", "。", "</s>"]`

    Characters with several readings are read by their phrase. Ids do not depend on the text: the vocabulary
    holds every syllable of pypinyin's dictionary, sorted, and Chinese punctuation.
    """

    def __init__(self) -> None:
        self.vocab = Vocab([*_syllables(), *CHINESE_PUNCTUATION])

    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the syllables and punctuation of a sentence, `</s>`; anything else is omitted."""
        pypinyin = require("pypinyin", purpose="Chinese")
        read = pypinyin.lazy_pinyin(
            sentence, style=pypinyin.Style.TONE3, neutral_tone_with_five=True, errors=list, v_to_u=True
        )
        symbols = (syllable.replace("ü", "u:") for syllable in read)
        return ["<s>", *(symbol for symbol in symbols if symbol in self.vocab.stoi), "</s>"]


@functools.cache
def _syllables() -> tuple[str, ...]:
    constants = require("pypinyin.constants", purpose="Chinese")
    convert = require("pypinyin.contrib.tone_convert", purpose="Chinese").to_tone3
    marked = {syllable for readings in constants.PINYIN_DICT.values() for syllable in readings.split(",")}
    found = {convert(syllable, v_to_u=True, neutral_tone_with_five=True).replace("ü", "u:") for syllable in marked}
    return tuple(
        sorted(syllable for syllable in found if syllable and syllable[0].isascii() and syllable[-1].isdigit())
    )
