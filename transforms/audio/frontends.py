"""Text to ids in other ways than by English phonemes: a vocabulary, English letters, Mandarin syllables.

    Chinese      "你好！"     → ["<s>", "ni3", "hao3", "！", "</s>"] → ids        pypinyin reads the characters
    EnglishCharacter  "Hi!"  → ["<s>", "hi!", "</s>"]               → ids, one for each character
    Vocab        symbols ↔ ids, special symbols first

Both have the methods of `English`. Parakeet reads Mandarin with g2pM; pypinyin is maintained, needs no model file, and
has the same notation: syllables with the tone as a digit, 5 for the neutral one, `u:` for ü (`lu:4`).
"""

from __future__ import annotations

import abc
import functools
import unicodedata
from collections.abc import Iterable

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.extras import require

ENGLISH_PUNCTUATION = (" ", "-", "...", ",", ".", "?", "!")
CHINESE_PUNCTUATION = ("、", "，", "；", "：", "。", "？", "！")


class Vocab:
    """Symbols and their ids: `Vocab(["a", "b"])` has `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, `a` 4, `b` 5.

    Args:
      symbols: in the order of their ids; one that came before is left out.
      padding_symbol, unk_symbol, start_symbol, end_symbol: the first ids, in this order; None or "" leaves one out.

    `stoi` and `itos` are the two dicts; `padding_index`, `unk_index`, `start_index` and `end_index` are -1 for a
    special symbol that was left out. `lookup` and `reverse` raise `DatasetError` for an unknown symbol or id.
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
        """How many ids are those of special symbols."""
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
    """What both have: symbols of a text, and their ids by a `vocab`."""

    vocab: Vocab

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self.vocab)

    @abc.abstractmethod
    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the symbols of a sentence, `</s>`."""

    def numericalize(self, phonemes: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Returns ids, int64; raises `DatasetError` for a symbol that there is not."""
        return np.array([self.vocab.lookup(symbol) for symbol in phonemes], dtype=np.int64)

    def reverse(self, ids: Iterable[int]) -> list[str]:
        """Returns the symbols of ids."""
        return [self.vocab.reverse(int(number)) for number in ids]

    def __call__(self, sentence: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Returns the ids of a sentence: `numericalize(phoneticize(sentence))`."""
        return self.numericalize(self.phoneticize(sentence))


class EnglishCharacter(_Frontend):
    """English by letters: words in lower case without accents, and the ids of their characters.

    `EnglishCharacter().phoneticize("Café, 2!")` → `["<s>", "cafe,", "2!", "</s>"]`, whose ids are those of
    `<s> c a f e , ! </s>`: as in Parakeet, spaces have no id, and what the vocabulary lacks is left out.
    """

    def __init__(self) -> None:
        self.vocab = Vocab([*"abcdefghijklmnopqrstuvwxyz", *ENGLISH_PUNCTUATION])

    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the words of a sentence with their punctuation, `</s>`."""
        decomposed = unicodedata.normalize("NFD", sentence.lower())
        plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
        return ["<s>", *plain.split(), "</s>"]

    def numericalize(self, phonemes: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Returns the id of each symbol, or of each character of a word, int64; leaves unknown characters out."""
        symbols = (symbol for word in phonemes for symbol in ([word] if word in self.vocab.stoi else word))
        return super().numericalize(symbol for symbol in symbols if symbol in self.vocab.stoi)


class Chinese(_Frontend):
    """Mandarin by syllables with tones, in simplified or traditional characters; needs `beam-pipes[chinese]`.

    `Chinese().phoneticize("绿色，旅行。")` → `["<s>", "lu:4", "se4", "，", "lu:3", "xing2", "。", "</s>"]`

    Characters of several readings are read by the phrase they stand in. Ids do not depend on the text: the vocabulary
    holds every syllable of pypinyin's dictionary, sorted, and Chinese punctuation.
    """

    def __init__(self) -> None:
        self.vocab = Vocab([*_syllables(), *CHINESE_PUNCTUATION])

    def phoneticize(self, sentence: str) -> list[str]:
        """Returns `<s>`, the syllables and punctuation of a sentence, `</s>`; anything else is left out."""
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
