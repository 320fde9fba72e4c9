"""Every feature of a `tokenizer.json` against every hostile text: ids are those of `tokenizers`, whoever encodes.

A case changes one part of a byte-level BPE. It is right whichever library encodes; `quick` says for which features
tiktoken does, so that a proof that became too strict is noticed too.
"""

from __future__ import annotations

import copy
import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from beam_pipes.errors import TaskError
from beam_pipes.tasks import TokenizersVocabulary
from beam_pipes.tasks.vocabularies.byte_pairs import PATTERNS

NFD = "cafe\u0301"
TEXTS = [
    "",
    " ",
    "un café noir, le Café du coin; thé à la menthe",
    f"un {NFD} noir {NFD}{NFD} x{NFD}y",
    "the fog comes on little cat feet. the  fog",
    "<|end|>a <|end|> b  <|end|>\n<|end|>c<|end|><|end|>",
    "<tool>x <tool> y\t<tool>\nz a<tool>b",
    "word words sword word's the word",
    "\u212b \u2126 \ufb01 \u1e9b\u0323 \u00c5 A\u030a \u0344 \u0958 \u2adc \U0001d15e",
    "Ġquux quux  quux Ċ\n é Ã© ▁the ▁ the",
    "a\x00b\x7f\u200b\u00a0\u3000\u2028\u0085 \ufeffb\ufeff",
    "😀👍🏽 \U00016d63\U00016d67 हिन्दी 日本語 한국어 \u1100\u1161\u11a8",
    "It'S we'LL 'ſ 1234567 ١٢٣ Ⅷ½² x²",
    " \n\n  \r\n\t x   ",
    "aaaaaaaaaaaaaaaaaaaaaaaab" * 9,
]


def _described() -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    known = [text for text in TEXTS if "quux" not in text]
    tokenizer.train_from_iterator([*known * 3, NFD * 9, unicodedata.normalize("NFC", NFD) * 9], trainer)
    described: dict[str, Any] = json.loads(tokenizer.to_str())
    return described


DESCRIBED = _described()
NO_SPACE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SEQUENCE_A = {"Sequence": {"id": "A", "type_id": 0}}
SEQUENCE_B = {"Sequence": {"id": "B", "type_id": 0}}
BOS = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
SPECIAL = {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}

Change = Callable[[dict[str, Any]], object]


def added(content: str, *, in_vocab: bool = False, **flags: bool) -> Change:
    def change(described: dict[str, Any]) -> None:
        vocab = described["model"]["vocab"]
        token_id = vocab.get(content, len(vocab))
        if in_vocab:
            vocab[content] = token_id
        off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        described["added_tokens"].append({"id": token_id, "content": content, **off, **flags})

    return change


def part(name: str, value: object) -> Change:
    return lambda described: described.update({name: value})


def option(**options: object) -> Change:
    return lambda described: described["model"].update(options)


def all_of(*changes: Change) -> Change:
    return lambda described: [change(described) for change in changes]


def split(pattern: object, behavior: str = "Isolated", invert: bool = False) -> Change:
    dividing = {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    return part("pre_tokenizer", {"type": "Sequence", "pretokenizers": [dividing, NO_SPACE]})


def template(*pieces: object) -> Change:
    processor = {"type": "TemplateProcessing", "single": pieces, "pair": [SEQUENCE_A, SEQUENCE_B]}
    return part("post_processor", {**processor, "special_tokens": SPECIAL})


def legacy_merges(described: dict[str, Any]) -> None:
    described["model"]["merges"] = [" ".join(merge) for merge in described["model"]["merges"]]


def extra_vocab(*tokens: str) -> Change:
    def change(described: dict[str, Any]) -> None:
        vocab = described["model"]["vocab"]
        vocab.update({token: len(vocab) + at for at, token in enumerate(tokens)})

    return change


def gap(described: dict[str, Any]) -> None:
    """The end of a text behind unused ids, as in GPT-4's tokenizer."""
    described["model"]["vocab"]["<|end|>"] = described["added_tokens"][0]["id"] = 900


NFC, NFKC = {"type": "NFC"}, {"type": "NFKC"}
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
#: Feature → the change of the file, and whether tiktoken encodes.
FEATURES: dict[str, tuple[Change, bool]] = {
    "as it is": (lambda described: None, True),
    **{f"added {flag}": (added("<tool>", **{flag: True}), True) for flag in FLAGS},
    **{f"added word {flag}": (added("word", **{flag: True}), True) for flag in FLAGS},
    **{
        f"nfc, added {flag}": (all_of(part("normalizer", NFC), added("<tool>", **{flag: True})), True) for flag in FLAGS
    },
    "nfc": (part("normalizer", NFC), True),
    "nfc, added NFD": (all_of(part("normalizer", NFC), added(NFD)), True),
    "nfc, added NFD normalized": (all_of(part("normalizer", NFC), added(NFD, normalized=True)), False),
    "nfc, added NFC normalized": (all_of(part("normalizer", NFC), added("café", normalized=True)), True),
    "nfc, added angstrom normalized": (all_of(part("normalizer", NFC), added("\u212b", normalized=True)), False),
    "nfc, added new script normalized": (all_of(part("normalizer", NFC), added("\U00016d63", normalized=True)), False),
    "added NFD normalized": (added(NFD, normalized=True), True),
    "added that begin alike": (all_of(added("<tool>"), added("<tool>x"), added("wo"), added("words")), True),
    "added in the vocabulary": (added("<tool>", in_vocab=True), True),
    "added in spelling of bytes": (added("Ġquux", in_vocab=True), True),
    "added in spelling of bytes, ignore_merges": (
        all_of(option(ignore_merges=True), added("Ġquux", in_vocab=True)),
        False,
    ),
    "added é, ignore_merges": (all_of(option(ignore_merges=True), added("é", special=True)), True),
    "added ASCII, ignore_merges": (all_of(option(ignore_merges=True), added("quux", in_vocab=True)), True),
    "added empty": (added(""), True),
    "an id with a gap": (gap, True),
    "nfkc": (part("normalizer", NFKC), False),
    "lowercase": (part("normalizer", {"type": "Lowercase"}), False),
    "nfc in a sequence": (part("normalizer", {"type": "Sequence", "normalizers": [NFC]}), False),
    "prepend": (part("normalizer", {"type": "Prepend", "prepend": "x"}), False),
    "replace": (part("normalizer", {"type": "Replace", "pattern": {"String": "o"}, "content": "0"}), False),
    "strip": (part("normalizer", {"type": "Strip", "strip_left": True, "strip_right": True}), False),
    **{f"split by {name}": (split({"Regex": pattern}), True) for name, pattern in PATTERNS.items()},
    **{
        f"split {behavior}": (split({"Regex": PATTERNS["cl100k"]}, behavior), False)
        for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    },
    "split inverted": (split({"Regex": PATTERNS["cl100k"]}, "Removed", invert=True), False),
    "split by string": (split({"String": " "}), False),
    "split by other": (split({"Regex": r"\w+|\W"}), False),
    "a space in front": (part("pre_tokenizer", {**NO_SPACE, "add_prefix_space": True, "use_regex": True}), False),
    "not divided": (part("pre_tokenizer", NO_SPACE), False),
    "offsets not trimmed": (part("pre_tokenizer", {**NO_SPACE, "use_regex": True, "trim_offsets": False}), True),
    "digits first": (
        part(
            "pre_tokenizer",
            {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**NO_SPACE, "use_regex": True}],
            },
        ),
        False,
    ),
    "template": (template(BOS, SEQUENCE_A), True),
    "template that repeats": (template(SEQUENCE_A, SEQUENCE_A), False),
    "post-processors in a sequence": (
        part(
            "post_processor",
            {
                "type": "Sequence",
                "processors": [
                    NO_SPACE,
                    {
                        "type": "TemplateProcessing",
                        "single": [BOS, SEQUENCE_A],
                        "pair": [SEQUENCE_A, SEQUENCE_B],
                        "special_tokens": SPECIAL,
                    },
                ],
            },
        ),
        True,
    ),
    "roberta": (
        part(
            "post_processor",
            {
                "type": "RobertaProcessing",
                "sep": ["<|end|>", 0],
                "cls": ["<|end|>", 0],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
        ),
        True,
    ),
    "truncation and padding": (
        all_of(
            part("truncation", {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}),
            part(
                "padding",
                {
                    "strategy": {"Fixed": 64},
                    "direction": "Left",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "<|end|>",
                },
            ),
        ),
        True,
    ),
    "legacy merges": (legacy_merges, True),
    "ignore_merges": (option(ignore_merges=True), True),
    "ignore_merges, more tokens": (all_of(option(ignore_merges=True), extra_vocab("Ġquux", "menthe")), False),
    "more tokens": (extra_vocab("Ġquux"), False),
    "byte_fallback": (option(byte_fallback=True), False),
    "unk_token": (option(unk_token="<|end|>", fuse_unk=True), True),
    "an empty prefix and suffix": (option(continuing_subword_prefix="", end_of_word_suffix=""), True),
    "a suffix": (all_of(option(end_of_word_suffix="Ġ"), option(merges=[])), False),
    "dropout of nothing": (option(dropout=0.0), True),
}


def by_tokenizers(described: dict[str, Any]) -> list[list[int]]:
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


@pytest.mark.parametrize("feature", FEATURES)
def test_ids_are_those_of_tokenizers_whatever_the_file_has(feature: str) -> None:
    change, quick = FEATURES[feature]
    described = copy.deepcopy(DESCRIBED)
    change(described)

    vocabulary = TokenizersVocabulary(Tokenizer.from_str(json.dumps(described)))

    assert vocabulary.encode_batch(TEXTS) == by_tokenizers(described)
    assert [vocabulary.encode(text) for text in TEXTS] == by_tokenizers(described)
    assert [ids.tolist() for ids in vocabulary.encode_arrays(TEXTS)] == by_tokenizers(described)
    assert vocabulary.vocab_size > max(max(ids) for ids in by_tokenizers(described) if ids)
    assert (vocabulary.backend, bool(vocabulary.backend_reason)) == (
        ("tiktoken", False) if quick else ("tokenizers", True)
    )


def test_a_part_that_a_later_release_adds_is_left_to_tokenizers() -> None:
    from beam_pipes.tasks.vocabularies.byte_pairs import UnlikeTiktoken, byte_pairs

    with pytest.raises(UnlikeTiktoken, match="it has 'post_normalizer', which is not known here"):
        byte_pairs(json.dumps({**DESCRIBED, "post_normalizer": None}))
    with pytest.raises(UnlikeTiktoken, match="its model has merge_order='random'"):
        byte_pairs(json.dumps({**DESCRIBED, "model": {**DESCRIBED["model"], "merge_order": "random"}}))
    with pytest.raises(UnlikeTiktoken, match="Other, may change more than which special tokens are added"):
        byte_pairs(json.dumps({**DESCRIBED, "post_processor": {"type": "Other"}}))


def test_dropout_is_off_and_said(caplog: pytest.LogCaptureFixture) -> None:
    described = copy.deepcopy(DESCRIBED)
    described["model"]["dropout"] = 0.5

    vocabulary = TokenizersVocabulary(Tokenizer.from_str(json.dumps(described)))

    assert vocabulary.encode_batch(TEXTS) == by_tokenizers(DESCRIBED)
    assert "the dropout of the tokenizer, 0.5, is off: ids do not depend on chance." in caplog.text
    assert (vocabulary.dropout, vocabulary.backend_reason) == (0.5, "its model has dropout=0.5")
    assert vocabulary.config()["version"] == 2  # caches of ids that were drawn are built once more
    assert "version" not in TokenizersVocabulary(Tokenizer.from_str(json.dumps(DESCRIBED))).config()


def test_what_is_not_a_tokenizer_is_reported(tmp_path: Any) -> None:
    (tmp_path / "tokenizer.json").write_text('{"a": 1}')

    with pytest.raises(TaskError, match=r"tokenizer\.json' cannot be read as a tokenizer\.json: "):
        TokenizersVocabulary(tmp_path / "tokenizer.json")
