"""The English frontend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DatasetError
from beam_pipes.transforms.audio import English, read_lexicon
from beam_pipes.transforms.audio.frontends import PHONEMES, SPELLINGS, pronounce


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("ship", "SH IH P"),
        ("thin", "TH IH N"),
        ("the", "DH AH"),
        ("knight", "N AY T"),
        ("singing", "S IH NG IH NG"),
        ("nation", "N AE SH AH N"),
        ("quick", "K W IH K"),
        ("judge", "JH AH JH"),
        ("lamb", "L AE M"),
        ("ox", "AA K S"),
        ("you're", "Y AW R"),
    ],
)
def test_words_are_pronounced_by_the_longest_spelling(word, phonemes):
    assert phonemes.split() == pronounce(word)


def test_text_becomes_phonemes_between_marks():
    frontend = English()

    assert ["<s>", "TH", "IH", "N", " ", "SH", "IH", "P", ".", "</s>"] == frontend.phoneticize("  Thin\n SHIP. ")
    assert ["<s>", "<unk>", "<unk>", "</s>"] == frontend.phoneticize("7é")


def test_phonemes_become_ids_and_come_back():
    frontend = English()

    ids = frontend("Thin ship?")

    assert np.int64 == ids.dtype
    assert [2, 44, 29, 35, 4, 42, 29, 39, 7, 3] == ids.tolist()
    assert frontend.phoneticize("Thin ship?") == frontend.reverse(ids)
    assert [1, 0] == frontend.numericalize(["QQ", "<pad>"]).tolist()
    assert 52 == len(frontend)


def test_a_lexicon_comes_before_the_rules(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text(";;; a comment\nWROTE  R OW1 T\nWROTE(1)  R AA1 T\nNATION  N EY1 SH AH0 N # noun\n\n")

    frontend = English(read_lexicon(path))

    assert "R OW T".split() == frontend.phoneticize("wrote")[1:-1]
    assert "N EY SH AH N".split() == frontend.phoneticize("Nation")[1:-1]
    assert "SH IH P".split() == frontend.phoneticize("ship")[1:-1]


@given(st.text())
def test_any_text_has_ids_that_are_never_padding(text):
    ids = English()(text)

    assert 2 == ids[0]
    assert 3 == ids[-1]
    assert 0 < ids.min() and ids.max() < 52


def test_every_rule_gives_phonemes():
    assert {phoneme for phonemes in SPELLINGS.values() for phoneme in phonemes.split()} <= set(PHONEMES)
    assert set("abcdefghijklmnopqrstuvwxyz") <= set(SPELLINGS)


def test_wrong_lexicons_and_ids_are_refused(tmp_path):
    (tmp_path / "bad.txt").write_text("WORD W ER1 D\nSILENT\n")

    with pytest.raises(DatasetError, match=r"^lexicon entry 'a' holds \['QQ'\], which are not phonemes: AA AE "):
        English({"a": ["AH", "QQ"]})
    with pytest.raises(DatasetError, match=r"bad\.txt:2: a lexicon line is a word and its phonemes, got 'SILENT'$"):
        read_lexicon(tmp_path / "bad.txt")
    with pytest.raises(DatasetError, match="^99 is not a phoneme id; ids run from 0 to 51$"):
        English().reverse([99])
