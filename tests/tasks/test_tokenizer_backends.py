"""Backends of `TokenizersVocabulary`: tiktoken's ids are those of `tokenizers`, or it is not asked."""

from __future__ import annotations

import base64
import json
import pickle
import random
import re
import sys
import sysconfig
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from beam_pipes import Cache, build
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.recipes import tokens
from beam_pipes.tasks import TokenizersVocabulary, Vocabulary
from beam_pipes.tasks.vocabularies import TiktokenVocabulary
from beam_pipes.tasks.vocabularies.byte_pairs import PATTERNS, UnlikeTiktoken, byte_pairs, may_compose_anew
from beam_pipes.tasks.vocabularies.tokenizers import CHECKED_EVERY

EOS = "<|endoftext|>"
FILES = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py"))
TEXTS = [path.read_text(encoding="utf-8", errors="replace") for path in FILES]


def divided_by(pattern: str) -> object:
    split = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(pre_tokenizer: object | None = None, *, normalizer: object | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=[EOS, "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS[:20], "Ünïcödé Ελλάδα Привет мир 日本語 हिन्दी 👍🏽" * 20], trainer)
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return trained()


def right_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def hard_texts() -> Iterator[str]:
    """Texts of any characters, white space and what tokenizers divide at above all; added tokens in some."""
    drawn = random.Random(7)
    parts = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "a",
        "Zz",
        "12",
        "é",
        "e\u0301",
        "ß",
        "字",
        "👍🏽",
        "\u3000",
        "_",
    ]
    parts += [EOS, "<|pad|", "\x00", "\u2028", "\U00016d63", "१", "؟", "ﬁ"]
    for _ in range(400):
        some = drawn.choices(parts, k=drawn.randrange(30))
        yield "".join(one if drawn.random() < 0.8 else chr(drawn.randrange(0xD800)) for one in some)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()], ids=["as_it_is", "nfc"])
def test_tiktoken_gives_the_ids_of_tokenizers(pattern: str, normalizer: object) -> None:
    tokenizer = trained(divided_by(pattern), normalizer=normalizer)
    vocabulary = TokenizersVocabulary(tokenizer, eos_token=EOS)
    texts = [*TEXTS, *hard_texts()]

    assert (vocabulary.backend, vocabulary.backend_reason) == ("tiktoken", "")
    assert vocabulary.encode_batch(texts) == right_ids(tokenizer, texts)
    assert [vocabulary.encode(text) for text in texts] == right_ids(tokenizer, texts)
    arrays = vocabulary.encode_arrays(texts)
    assert [array.tolist() for array in arrays] == right_ids(tokenizer, texts)
    assert {array.dtype.name for array in arrays} == {"int32"}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_both_libraries_read_the_patterns_alike(pattern: str) -> None:
    """Around every border of a category, and every 61st code point: which letters and digits it is divided from."""
    vocab = {letter: rank for rank, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for left in "aA1.'Ġ":  # merges show where a piece ends; Ġ is a space
        for right in list(vocab)[:256]:
            if left != right and left + right not in vocab:
                vocab[left + right] = len(vocab)
                merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = divided_by(pattern)
    vocabulary = TokenizersVocabulary(tokenizer, backend="tiktoken")
    kinds = [unicodedata.category(chr(code)) for code in range(0x110000)]
    borders = {code for code in range(1, 0x110000) if kinds[code] != kinds[code - 1]}
    codes = sorted({*borders, *(code - 1 for code in borders), *range(0, 0x110000, 61)} - {*range(0xD800, 0xE000)})
    texts = [f"a{c}A{c}1{c}.{c} {c}'{c}\n{c} {c}  a" for c in map(chr, codes)]

    assert len(texts) > 20_000
    assert vocabulary.encode_batch(texts) == [
        each.ids for each in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def changed(tokenizer: Tokenizer, **parts: object) -> str:
    described = json.loads(tokenizer.to_str())
    for name, part in parts.items():
        described["model" if name in described["model"] else name] = (
            {**described["model"], name: part} if name in described["model"] else part
        )
    return json.dumps(described)


def swapped(items: list, first: int, second: int) -> list:
    items = list(items)
    items[first], items[second] = items[second], items[first]
    return items


WORDS = {"type": "Whitespace"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: {"pre_tokenizer": WORDS}, "its pre-tokenizer is Whitespace, not ByteLevel without a space in front"),
        (lambda t: {"pre_tokenizer": {**BYTES, "add_prefix_space": True}}, "not ByteLevel without a space in front"),
        (
            lambda t: {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [DIGITS, BYTES]}},
            "its pre-tokenizer is Digits and ByteLevel, which is more than one expression",
        ),
        (
            lambda t: {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        {"type": "Split", "pattern": {"Regex": "[a-z]+|."}, "behavior": "Isolated", "invert": False},
                        {**BYTES, "use_regex": False},
                    ],
                }
            },
            "it splits text by an expression that may differ in tiktoken",
        ),
        (lambda t: {"normalizer": {"type": "NFKC"}}, "its normalizer is NFKC, not NFC or none"),
        (lambda t: {"dropout": 0.1}, "its model has dropout=0.1"),
        (lambda t: {"merges": swapped(t["model"]["merges"], 0, 9)}, "its merges are not in the order of the ids"),
        (
            lambda t: {"vocab": {k: v for k, v in t["model"]["vocab"].items() if k != "Ń"}},
            "it lacks 1 of the 256 bytes",
        ),
        (lambda t: {"vocab": {**t["model"]["vocab"], "abcabc": 5000}}, "no merge gives its token 'abcabc'"),
    ],
)
def test_what_tiktoken_cannot_stand_for_is_left_to_tokenizers(tokenizer: Tokenizer, change, reason: str) -> None:
    text = changed(tokenizer, **change(json.loads(tokenizer.to_str())))
    with pytest.raises(UnlikeTiktoken) as raised:
        byte_pairs(text)

    assert reason in str(raised.value)


def test_a_token_that_its_own_bytes_are_not_merged_to_is_found() -> None:
    """`abc` = `a` + `bc`, but `ab` is merged before `bc`: tiktoken would make `abc` of `ab` and `c`."""
    vocab = {letter: rank for rank, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {"ab": 256, "bc": 257, "abc": 258}
    unlike = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b"), ("b", "c"), ("a", "bc")]))
    unlike.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocabulary = TokenizersVocabulary(unlike)

    assert (vocabulary.backend, vocabulary.encode("abc")) == ("tokenizers", [256, vocab["c"]])
    assert vocabulary.backend_reason == "its token 'abc' is not what its own bytes are merged to"
    with pytest.raises(TaskError, match="tiktoken cannot replace this tokenizer: its token 'abc' is not what"):
        TokenizersVocabulary(unlike, backend="tiktoken")
    with pytest.raises(TaskError, match="backend should be one of auto, tokenizers, tiktoken, got 'fast'"):
        TokenizersVocabulary(unlike, backend="fast")


def test_vocabularies_travel_and_a_backend_that_was_chosen_is_part_of_them(tokenizer: Tokenizer) -> None:
    quick, slow = TokenizersVocabulary(tokenizer), TokenizersVocabulary(tokenizer, backend="tokenizers")
    carried = pickle.loads(pickle.dumps(quick))

    assert (quick.backend, slow.backend, carried.backend) == ("tiktoken", "tokenizers", "tiktoken")
    assert slow.backend_reason == 'backend="tokenizers" is asked for'
    assert quick == carried and quick.fingerprint() == carried.fingerprint()
    assert quick.fingerprint() != slow.fingerprint()  # so that no shard that tiktoken has encoded is used again
    assert carried.encode(TEXTS[0]) == slow.encode(TEXTS[0])


def test_what_was_proved_travels_and_is_believed_by_the_same_libraries_alone(tokenizer: Tokenizer) -> None:
    vocabulary = TokenizersVocabulary(tokenizer, eos_token=EOS)
    state = vocabulary.__getstate__()
    versions, reason = state["_found"]

    assert reason == "" and set(versions) == {"tokenizers", "tiktoken"}
    assert pickle.loads(pickle.dumps(vocabulary)).encode_batch(TEXTS[:5]) == right_ids(tokenizer, TEXTS[:5])
    for found, output in [((versions, "told so"), "told so"), (({**versions, "tiktoken": "0.1"}, "told so"), "")]:
        arrived = TokenizersVocabulary.__new__(TokenizersVocabulary)
        arrived.__setstate__({**state, "_found": found})
        assert arrived.backend_reason == output
        assert arrived.encode(TEXTS[0]) == vocabulary.encode(TEXTS[0])
    left = pickle.loads(pickle.dumps(TokenizersVocabulary(tokenizer, backend="tokenizers")))
    assert left.backend_reason == 'backend="tokenizers" is asked for'


def test_without_tiktoken_all_is_as_with_it(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = TokenizersVocabulary(tokenizer).encode_batch(TEXTS[:5])
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    vocabulary = TokenizersVocabulary(tokenizer)

    assert vocabulary.backend == "tokenizers"
    assert "tiktoken, which is not installed: pip install 'beam-pipes[text]'" in vocabulary.backend_reason
    assert vocabulary.encode_batch(TEXTS[:5]) == quick


def test_a_template_that_adds_tokens_is_left_to_tokenizers(tokenizer: Tokenizer) -> None:
    adding = Tokenizer.from_str(tokenizer.to_str())
    adding.post_processor = processors.TemplateProcessing(single=f"$A {EOS}", special_tokens=[(EOS, 0)])
    vocabulary = TokenizersVocabulary(adding, add_special_tokens=True)

    assert vocabulary.backend_reason == "its own template adds tokens (add_special_tokens=True)"
    assert vocabulary.encode_batch(["to be"])[0][-1] == 0
    assert TokenizersVocabulary(adding).encode("to be") == vocabulary.encode("to be")[:-1]


@pytest.mark.parametrize("backend", ["tiktoken", "tokenizers"])
def test_lone_surrogates_are_refused_by_both_backends(tokenizer: Tokenizer, backend: str) -> None:
    vocabulary = TokenizersVocabulary(tokenizer, backend=backend)
    message = (
        r"the text has '.ud83d' at character 2: half of a surrogate pair, which is not a character\. Repair the text"
    )

    with pytest.raises(TaskError, match=message):
        vocabulary.encode("ab\ud83d")
    with pytest.raises(TaskError, match=message):
        vocabulary.encode_batch(["a", "ab\ud83d", "c"])
    with pytest.raises(TaskError, match=message):
        vocabulary.encode_arrays(["ab\ud83d"])


def test_a_run_of_white_space_that_tiktoken_gives_up_on_is_left_to_tokenizers(tokenizer: Tokenizer) -> None:
    vocabulary = TokenizersVocabulary(tokenizer)
    text = f"a{' ' * 1_200_000}b"

    assert vocabulary.backend == "tiktoken"
    assert vocabulary.encode(text) == vocabulary.encode_batch([text])[0] == right_ids(tokenizer, [text])[0]


def test_code_points_that_other_versions_of_unicode_know_are_not_composed_here() -> None:
    assert not may_compose_anew("e\u0301 日本語 \U0001f44d")
    assert may_compose_anew("\U00016d63\U00016d67")  # Kirat Rai, of Unicode 16
    assert may_compose_anew("\u0378")  # assigned in no version so far


@pytest.mark.parametrize("on_error", ["fail", "drop", "dead_letter"])
def test_other_ids_while_encoding_end_the_build_whatever_becomes_of_bad_records(
    tokenizer: Tokenizer, on_error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of tiktoken that is wrong about one word, which is not among the texts of the proof."""
    rightly = tiktoken.Encoding.encode_to_numpy
    monkeypatch.setattr(
        tiktoken.Encoding,
        "encode_to_numpy",
        lambda self, text, **options: rightly(self, text.replace("wrong", "rgnow"), **options),
    )
    texts = [f"wrong {number}" for number in range(3 * CHECKED_EVERY)]
    compared = next(text for text in texts if zlib.crc32(text.encode()) % CHECKED_EVERY == 0)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = [{"text": text} for text in texts] + [{"other": 1}]  # records of the last batch are run one by one
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def built(**options: Any) -> Cache:
        recipe = tokens(tmp_path / "a.jsonl", tokenizer=tmp_path / "tokenizer.json", **options)
        return Cache.open(build(recipe.declaration(), to=tmp_path / "cache", workers=1).path)

    message = (
        f"tiktoken {tiktoken.__version__} gives other ids than tokenizers for the text '{compared}', so others that it "
        "has encoded may be wrong. Nothing is published. Encode all of them with tokenizers: backend='tokenizers' "
        "(--backend tokenizers)."
    )
    for _ in range(2):  # a second run, which finds the shards of the first, too
        with pytest.raises(DeclarationError, match=re.escape(message)):
            built(on_error=on_error)
    assert not (tmp_path / "cache/train").exists()
    if on_error != "fail":
        examples = list(built(on_error=on_error, backend="tokenizers")["train"])
        assert [example["tokens"].tolist()[:-1] for example in examples] == right_ids(tokenizer, texts)


# tiktoken's own encodings.


@pytest.fixture(scope="module")
def ranks_file(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ranks = byte_pairs(tokenizer.to_str()).ranks
    path = tmp_path_factory.mktemp("ranks") / "python.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def test_a_file_of_ranks_is_a_vocabulary(tokenizer: Tokenizer, ranks_file: Path) -> None:
    vocabulary: Vocabulary = TiktokenVocabulary(ranks_file, pattern="gpt2", special_tokens={EOS: 2000})
    text = "def f(x):\n    return x ** 2\n"

    assert vocabulary.encode(text) == right_ids(tokenizer, [text])[0]
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert (vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id, vocabulary.vocab_size) == (2000, None, None, 2001)
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
    assert vocabulary != TiktokenVocabulary(ranks_file, pattern="cl100k", special_tokens={EOS: 2000})
    assert TiktokenVocabulary(vocabulary.tokenizer) == vocabulary
    assert len(vocabulary.encode(EOS)) > 1


def test_a_file_is_taken_for_the_encoding_that_it_is_called_after(ranks_file: Path, tmp_path: Path) -> None:
    known = tmp_path / "r50k_base.tiktoken"
    known.write_bytes(ranks_file.read_bytes())

    assert TiktokenVocabulary(known).eos_id == 50256
    unknown = TiktokenVocabulary(ranks_file, pattern="gpt2", eos_token=None)
    assert TiktokenVocabulary(known).encode("12345") == unknown.encode("12345")
    assert TiktokenVocabulary(ranks_file, special_tokens={"<end>": 9000}, eos_token="<end>").eos_id == 9000


def test_wrong_files_names_and_tokens_are_reported(ranks_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tiktoken"
    broken.write_text("YQ== 0\nnot base64 at all\n")
    with pytest.raises(TaskError, match="line 2: expected the bytes of a token in base64 and its rank, found b'not ba"):
        TiktokenVocabulary(broken)
    broken.write_text("YQ== 0\n")
    with pytest.raises(TaskError, match="should have a token for each of the 256 bytes, and 255 have none"):
        TiktokenVocabulary(broken)
    with pytest.raises(TaskError, match="tiktoken has no encoding 'gpt5', and no such file exists; its encodings are"):
        TiktokenVocabulary("gpt5")
    with pytest.raises(TaskError, match="'python' has no special token '</s>', the eos_token; it has '<|endof"):
        TiktokenVocabulary(ranks_file, eos_token="</s>", special_tokens={EOS: 2000})
    with pytest.raises(TaskError, match=r"a file of ranks has none. Say its id, special_tokens=.'<.endoftext.>': …"):
        TiktokenVocabulary(ranks_file)


def test_an_encoding_that_cannot_be_downloaded_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "no-proxy-listens-here"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(blocked))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(
        TaskError, match="tiktoken cannot load the encoding 'o200k_base', which it downloads on first use"
    ):
        TiktokenVocabulary("o200k_base")


def test_white_space_that_tiktoken_gives_up_on_is_reported(ranks_file: Path) -> None:
    with pytest.raises(TaskError, match="tiktoken fails on a text of 1,200,001 characters"):
        TiktokenVocabulary(ranks_file, pattern="gpt2", eos_token=None).encode(" " * 1_200_000 + "a")
