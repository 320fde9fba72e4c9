"""Vocabularies in plain Python: known ids, round trips, equality by content."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import TaskError
from beam_pipes.tasks import (
    BertWordPieceVocabulary,
    ByteVocabulary,
    FullCodepointVocabulary,
    PartialCodepointVocabulary,
    PassThroughVocabulary,
    SentencePieceVocabulary,
    TokenizersVocabulary,
    UnigramVocabulary,
    Vocabulary,
)
from beam_pipes.tasks.vocabularies import TiktokenVocabulary

WORDPIECES = "[PAD] [UNK] [CLS] [SEP] un ##aff ##able hello world ! 你 好 don ' t ß stra ##ße a ##b ss ##ss ##e".split()


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    import sentencepiece

    directory = tmp_path_factory.mktemp("sentencepiece")
    corpus = directory / "corpus.txt"
    corpus.write_text("\n".join(f"this is sentence number {i} of a small corpus, is it not?" for i in range(200)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(directory / "model"),
        vocab_size=50,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return str(directory / "model.model")


@pytest.fixture(scope="module")
def tokenizer() -> object:
    import tokenizers

    model = tokenizers.models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "big": 3, "dog": 4}, unk_token="<unk>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def test_bytes_follow_three_special_ids() -> None:
    vocabulary = ByteVocabulary(extra_ids=10)

    assert vocabulary.encode("héy") == [107, 198, 172, 124]
    assert vocabulary.decode([107, 300, 260, 2, 0, 108]) == "hi"
    assert vocabulary.decode([107, 1, 108]) == "h"
    assert (vocabulary.vocab_size, vocabulary.eos_id, vocabulary.pad_id, vocabulary.unk_id) == (269, 1, 0, 2)
    assert vocabulary.extra_ids == 10
    assert vocabulary.bos_id is None


def test_bytes_that_are_not_utf8_are_skipped() -> None:
    assert ByteVocabulary().decode([198]) == ""


@given(st.text())
def test_bytes_round_trip_any_text(text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    vocabulary = ByteVocabulary()

    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_pass_through_stops_at_eos_and_changes_nothing() -> None:
    vocabulary = PassThroughVocabulary(size=10, eos_id=1)

    assert vocabulary.encode([1, 2, 3]) == [1, 2, 3]
    assert vocabulary.decode([3, 2, 1, 5, 12]) == [3, 2, 1]
    assert vocabulary.vocab_size == 10
    assert vocabulary.unk_id is None


def test_unigrams_have_ids_between_padding_and_unknown() -> None:
    whole = UnigramVocabulary(["the", "big", "dog"])
    split = UnigramVocabulary(["the", "big", "dog"], split_on_space=True)

    assert (whole.encode("the"), whole.encode("the big cat")) == ([1], [4])
    assert split.encode("the big cat") == [1, 2, 4]
    assert split.decode([1, 3, 9]) == "the dog UNK"
    assert whole.decode([3]) == "dog"
    assert (whole.vocab_size, whole.unk_id, whole.eos_id) == (5, 4, None)


def test_full_codepoints_are_their_numbers() -> None:
    vocabulary = FullCodepointVocabulary()

    assert vocabulary.encode("hé") == [104, 233]
    assert vocabulary.decode([104, 0xE005, 105]) == "h"
    assert (vocabulary.vocab_size, vocabulary.eos_id) == (1114111, 57349)


def test_partial_codepoints_know_their_set_only() -> None:
    vocabulary = PartialCodepointVocabulary([97, 98, 99], extra_ids=2)

    assert vocabulary.encode("abz") == [3, 4, 2]
    assert vocabulary.decode([3, 4, 2, 0, 1, 5]) == "ab\ue004\x00"
    assert (vocabulary.vocab_size, vocabulary.eos_id, vocabulary.unk_id) == (8, 1, 2)


def test_partial_codepoints_are_read_from_a_file_of_numbers(tmp_path) -> None:
    (tmp_path / "codes.txt").write_text("97\n98\n")
    (tmp_path / "letters.txt").write_text("97\nb\n")

    assert PartialCodepointVocabulary.create_from_file(str(tmp_path / "codes.txt")).encode("ab") == [3, 4]
    with pytest.raises(TaskError, match="line 2: expected a code point in decimal, got 'b'"):
        PartialCodepointVocabulary.create_from_file(str(tmp_path / "letters.txt"))


def test_sentencepiece_round_trips_and_has_its_own_special_ids(sentencepiece_model: str) -> None:
    vocabulary = SentencePieceVocabulary(sentencepiece_model)

    assert vocabulary.decode(vocabulary.encode("this is a sentence")) == "this is a sentence"
    assert vocabulary.encode(b"this") == vocabulary.encode("this")
    assert (vocabulary.vocab_size, vocabulary.eos_id, vocabulary.unk_id, vocabulary.bos_id) == (50, 1, 2, -1)
    assert vocabulary.encode_batch(["this", "is"]) == [vocabulary.encode("this"), vocabulary.encode("is")]


def test_sentencepiece_extra_ids_count_down_from_the_end(sentencepiece_model: str) -> None:
    reverse = SentencePieceVocabulary(sentencepiece_model, extra_ids=3)
    forward = SentencePieceVocabulary(sentencepiece_model, extra_ids=3, reverse_extra_ids=False)

    assert reverse.vocab_size == 53
    assert reverse.encode("this <extra_id_0>")[-1] == 52
    assert forward.encode("this <extra_id_0>")[-1] == 50
    assert reverse.decode(reverse.encode("this is <extra_id_1> a")) == "this is <extra_id_1> a"


def test_sentencepiece_compares_by_model_not_by_path(sentencepiece_model: str, tmp_path) -> None:
    copy = tmp_path / "copy.model"
    copy.write_bytes(open(sentencepiece_model, "rb").read())
    one, other = SentencePieceVocabulary(sentencepiece_model), SentencePieceVocabulary(str(copy))

    assert one == other
    assert one.fingerprint() == other.fingerprint()
    assert one != SentencePieceVocabulary(sentencepiece_model, extra_ids=1)
    assert pickle.loads(pickle.dumps(one)).encode("this is") == one.encode("this is")


def test_word_pieces_are_the_longest_from_the_left() -> None:
    vocabulary = BertWordPieceVocabulary(WORDPIECES, start_of_sequence_id=2, end_of_sequence_id=3)

    assert vocabulary.encode("hello unaffable, World!") == [7, 4, 5, 6, 1, 1, 9]
    assert vocabulary.decode([7, 4, 5, 6]) == "hello unaffable"
    assert vocabulary.encode("don't 你好") == [12, 13, 14, 10, 11]
    assert (vocabulary.sos_id, vocabulary.eos_id, vocabulary.unk_id, vocabulary.vocab_size) == (2, 3, 1, 24)


@pytest.mark.parametrize(
    ("options", "text", "ids"),
    [
        pytest.param({"lower_case": True}, "HELLO Straße", [7, 16, 21, 22], id="folded_case"),
        pytest.param({"lower_case": True}, "a\u200bb", [18, 19], id="invisible_characters_go"),
        pytest.param({}, "a\u200bb", [18, 1], id="control_characters_divide_words"),
        pytest.param({"split_unknown_characters": True}, "axb", [18, 1, 19], id="unknown_characters"),
        pytest.param({"max_bytes_per_word": 4}, "hello a", [1, 18], id="long_words_are_unknown"),
        pytest.param({}, "straße", [16, 17], id="accents_stay"),
    ],
)
def test_word_piece_options(options: dict, text: str, ids: list[int]) -> None:
    vocabulary = BertWordPieceVocabulary(WORDPIECES, start_of_sequence_id=2, end_of_sequence_id=3, **options)

    assert vocabulary.encode(text) == ids


def test_word_piece_wants_its_unknown_token_and_a_known_form() -> None:
    with pytest.raises(TaskError, match=r"the vocabulary has no unknown token '\[UNK\]'"):
        BertWordPieceVocabulary(["a", "b"])
    with pytest.raises(TaskError, match="normalization_form should be one of NFC, NFD, NFKC, NFKD, got 'NFX'"):
        BertWordPieceVocabulary(WORDPIECES, normalization_form="NFX")


def test_tokenizers_vocabulary_takes_special_tokens_by_name(tokenizer: object, tmp_path) -> None:
    vocabulary = TokenizersVocabulary(tokenizer, eos_token="</s>", pad_token="<pad>", extra_ids=5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))  # type: ignore[attr-defined]
    loaded = TokenizersVocabulary(str(tmp_path / "tokenizer.json"), eos_token="</s>", pad_token="<pad>", extra_ids=5)

    assert vocabulary.encode("big dog cat") == [3, 4, 2]
    assert vocabulary.decode([3, 4, 1, 3]).split()[:2] == ["big", "dog"]
    assert (vocabulary.eos_id, vocabulary.pad_id, vocabulary.unk_id, vocabulary.vocab_size) == (1, 0, 2, 10)
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
    assert loaded.encode_batch(["big", "dog"]) == [[3], [4]]
    with pytest.raises(TaskError, match="the tokenizer has no token '<eos>', given as eos_token"):
        TokenizersVocabulary(tokenizer, eos_token="<eos>")


EQUAL = [
    lambda: ByteVocabulary(extra_ids=2),
    lambda: PassThroughVocabulary(3, eos_id=1),
    lambda: UnigramVocabulary(["a", "b"]),
    lambda: FullCodepointVocabulary(),
    lambda: PartialCodepointVocabulary([97]),
    lambda: BertWordPieceVocabulary(WORDPIECES),
]


@pytest.mark.parametrize("make", EQUAL)
def test_vocabularies_compare_pickle_and_fingerprint_by_content(make) -> None:
    one, other = make(), make()

    assert one == other
    assert hash(one) == hash(other)
    assert one.fingerprint() == other.fingerprint()
    assert pickle.loads(pickle.dumps(one)) == one
    assert [one == different() for different in EQUAL].count(True) == 1


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = "from beam_pipes.tasks import ByteVocabulary; print(ByteVocabulary(extra_ids=2).fingerprint())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == ByteVocabulary(extra_ids=2).fingerprint()


def test_many_texts_are_encoded_as_each_of_them_is_whatever_a_subclass_changes(sentencepiece_model: str) -> None:
    class Lower(SentencePieceVocabulary):
        def _encode(self, s):
            return super()._encode(s.lower())

    class Counted(Lower):
        def encode_batch(self, texts, *, threads=1):
            return [[len(text)] for text in texts]

    class Longer(Counted):
        pass

    lower = Lower(sentencepiece_model)
    assert lower.encode_batch(["THIS", "is"]) == [lower.encode("this"), lower.encode("is")]
    assert lower.encode("this") != SentencePieceVocabulary(sentencepiece_model).encode("THIS")
    assert Longer(sentencepiece_model).encode_batch(["THIS"]) == [[4]]
    assert ByteVocabulary().encode_batch(["a", "bc"]) == [[100], [101, 102]]


def test_arrays_are_what_lists_are_whatever_a_subclass_changes(sentencepiece_model: str) -> None:
    class Lower(ByteVocabulary):
        def _encode(self, s):
            return super()._encode(s.lower())

    texts = ["This is", "", "Ü"]
    for vocabulary in (ByteVocabulary(), Lower(), SentencePieceVocabulary(sentencepiece_model)):
        arrays = vocabulary.encode_arrays(texts)
        assert [array.tolist() for array in arrays] == [vocabulary.encode(text) for text in texts]
        assert {array.dtype.name for array in arrays} == {"int32"}
    assert Lower().encode_arrays(["A"])[0].tolist() == ByteVocabulary().encode("a")


def test_an_own_vocabulary_needs_five_members() -> None:
    class Even(Vocabulary):
        eos_id = None
        unk_id = None
        _base_vocab_size = 10

        def _encode(self, s):
            return [2 * int(c) for c in s]

        def _decode(self, ids):
            return "".join(str(i // 2) for i in ids)

    assert Even().decode(Even().encode("123")) == "123"
    with pytest.raises(NotImplementedError, match="need to implement bos_id"):
        print(Even().bos_id)


def test_bytes_of_half_a_surrogate_pair_are_reported() -> None:
    message = (
        r"the text has '.ud83d' at character 1: half of a surrogate pair, which is not a character\. Repair the text"
    )

    with pytest.raises(TaskError, match=message):
        ByteVocabulary().encode("a\ud83d")
    with pytest.raises(TaskError, match=message):
        ByteVocabulary().encode_arrays(["a\ud83d"])


def test_a_model_that_was_trained_again_in_its_place_is_read_again(tmp_path: Path) -> None:
    import sentencepiece

    def trained(words: str) -> SentencePieceVocabulary:
        (tmp_path / "corpus.txt").write_text("\n".join(f"{words} {number}" for number in range(200)))
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "corpus.txt"), model_prefix=str(tmp_path / "m"), vocab_size=30, minloglevel=2
        )
        return SentencePieceVocabulary(str(tmp_path / "m.model"))

    first = trained("the fog comes on")
    ids, carried = first.encode("the fog xq"), pickle.dumps(first)
    second = trained("xq zj kv wq then")
    right = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model")).encode("the fog xq")

    assert second.encode("the fog xq") == right != ids
    assert first != second and first.fingerprint() != second.fingerprint()
    assert first.encode("the fog xq") == pickle.loads(carried).encode("the fog xq") == ids


def test_what_is_not_a_model_of_sentencepiece_is_reported(tmp_path: Path) -> None:
    for content in (b"", b"not a model"):
        (tmp_path / "m.model").write_bytes(content)
        with pytest.raises(TaskError, match=rf"model of SentencePiece in .*m\.model', found {len(content)} bytes that"):
            SentencePieceVocabulary(str(tmp_path / "m.model")).encode("a")


def test_half_a_surrogate_pair_is_refused_by_every_vocabulary(
    sentencepiece_model: str, tokenizer: object, tmp_path: Path
) -> None:
    ranks = tmp_path / "bytes.tiktoken"
    ranks.write_bytes(b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256)))
    vocabularies = [
        ByteVocabulary(),
        SentencePieceVocabulary(sentencepiece_model),
        TokenizersVocabulary(tokenizer),
        TiktokenVocabulary(ranks, eos_token=None),
        BertWordPieceVocabulary(WORDPIECES),
        FullCodepointVocabulary(),
        PartialCodepointVocabulary([97]),
        UnigramVocabulary(["a"]),
    ]
    message = r"the text has '.ud83d' at character 2: half of a surrogate pair, which is not a character\. Repair"
    for vocabulary in vocabularies:
        for encode in (
            vocabulary.encode,
            lambda text, to=vocabulary: to.encode_batch(["a", text]),
            lambda text, to=vocabulary: to.encode_arrays([text]),
        ):
            with pytest.raises(TaskError, match=message):
                encode("ab\ud83d")
        assert len(vocabulary.encode("\U0001f600")) > 0
