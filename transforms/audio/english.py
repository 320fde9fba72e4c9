"""English text to phoneme ids: a pronouncing lexicon where there is one, spelling rules elsewhere.

Phonemes are those of ARPAbet without stress, as in the CMU pronouncing dictionary: `AA` … `ZH`. The rules read the
longest known spelling from left to right ("th" before "t"). They are a stand-in that makes a job run from end to end
with nothing downloaded, and English spelling defeats them often ("wrote" → R AA T); for training a voice pass a
`lexicon`, e.g. the CMU dictionary's file by `read_lexicon`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError

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

    Id 0 is `<pad>`, so that padding with 0 is never a phoneme.
    """

    def __init__(self, lexicon: Mapping[str, Sequence[str]] | None = None) -> None:
        self.lexicon = {word.lower(): tuple(phonemes) for word, phonemes in (lexicon or {}).items()}
        self.vocabulary = (*SPECIAL, *PUNCTUATION, *PHONEMES)
        self._ids = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        for word, phonemes in self.lexicon.items():
            unknown = [phoneme for phoneme in phonemes if phoneme not in PHONEMES]
            if unknown:
                raise DatasetError(
                    f"lexicon entry {word!r} holds {unknown}, which are no phonemes: {' '.join(PHONEMES)}"
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

    def numericalize(self, phonemes: Iterable[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns ids, int64; a symbol that is not in the vocabulary is `<unk>`, 1."""
        return np.array([self._ids.get(phoneme, 1) for phoneme in phonemes], dtype=np.int64)

    def reverse(self, ids: Iterable[int]) -> list[str]:
        """Returns the symbols of ids; raises `DatasetError` for a number that is no id."""
        symbols = []
        for number in ids:
            if not 0 <= number < len(self.vocabulary):
                raise DatasetError(f"{number} is no phoneme id; they run from 0 to {len(self.vocabulary) - 1}")
            symbols.append(self.vocabulary[number])
        return symbols

    def __call__(self, text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
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
    """Reads a lexicon in the CMU dictionary's format: `WORD  W ER1 D` a line, `;;;` comments, `WORD(2)` variants.

    Stress digits are dropped and the first variant of a word is kept. Raises `DatasetError` with the line's number
    where a line holds no phoneme.
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
