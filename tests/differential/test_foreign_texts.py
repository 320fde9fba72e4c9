"""Chat templates and tokenizers that are drawn: texts, ids and masks are those of the libraries whose they are.

A few of each here, and thousands by `python -m benchmarks.foreign_texts`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers

from beam_pipes.errors import TaskError
from beam_pipes.tasks.vocabularies import ByteVocabulary, TokenizersVocabulary
from beam_pipes.tasks.vocabularies.pretrained import panics_as_errors
from benchmarks import foreign_texts
from benchmarks.campaigns import foreign_chats
from benchmarks.campaigns.foreign_chats import NAMES, Pair, talk
from benchmarks.campaigns.foreign_tokenizers import compared


def test_drawn_templates_and_tokenizers_give_what_their_libraries_give(tmp_path: Path) -> None:
    results = foreign_texts.run(tmp_path, conversations=4, tokenizers=30)

    assert results["problems"] == []
    assert results["templates"] > 30 and len(results["by_kind"]) == 7
    for kind, counts in results["by_kind"].items():
        assert counts["equal"] > sum(counts.values()) / 2, kind


def test_conversations_have_every_shape() -> None:
    talks = [talk(seed)[0] for seed in range(400)]
    assert {talk[0]["role"] for talk in talks} == {"system", "user", "assistant"}
    messages = [message for talk in talks for message in talk]
    keys = {key for message in messages for key in message}
    assert keys >= {"reasoning_content", "thinking", "reasoning", "tool_calls", "tool_call_id", "name"}
    assert any(isinstance(message.get("content"), list) for message in messages)
    assert any(message.get("content", "") is None for message in messages)


# The campaign would notice.


@pytest.mark.parametrize(("other", "words"), [("phi4", "text "), ("llama2", "refused by ")])
def test_another_template_is_noticed(other: str, words: str, tmp_path: Path) -> None:
    pair = Pair.opened("chatml", "byte level", tmp_path / "a")
    wrong = pair._replace(ours=Pair.opened(other, "byte level", tmp_path / "b").ours)

    found = [foreign_chats.compared(wrong, seed) for seed in range(30)]

    assert "chatml" in NAMES
    assert any(each.what == "wrong" and each.words.startswith(words) for each in found)


def test_another_tokenizer_and_a_refusal_are_noticed(tmp_path: Path) -> None:
    def refused() -> TokenizersVocabulary:
        raise TaskError("no")

    def fails() -> list[list[int]]:
        raise ValueError("no")

    wrong = compared(ByteVocabulary, lambda: [[1, 2]], ["to"])
    assert wrong.what == "wrong" and wrong.words == "'to' gives [119, 114], [119, 114] and [119, 114], and [1, 2]"
    assert compared(refused, lambda: [[1, 2]], ["to"])[:] == ("wrong", "refused by us alone: no")
    assert compared(ByteVocabulary, fails, ["to"])[:] == ("wrong", "refused by the library alone: ValueError: no")
    assert compared(refused, fails, ["to"])[:] == ("refused", "ValueError: no")


# What it found.


def _words(normalizer: normalizers.Normalizer, *added: AddedToken) -> Tokenizer:
    made = Tokenizer(models.WordLevel({"the": 0, "?": 1}, unk_token="?"))
    made.normalizer = normalizer
    made.add_tokens([*added])
    return made


def test_added_tokens_between_which_the_library_draws_are_refused() -> None:
    both = [AddedToken("The", normalized=True), AddedToken("the", normalized=True)]
    with pytest.raises(TaskError, match=r"'the' and 'The', which its normalizer makes equal .'the'.*by chance"):
        TokenizersVocabulary(_words(normalizers.Lowercase(), *both))
    as_they_are = [AddedToken("The", normalized=False), AddedToken("the", normalized=True)]
    vocabulary = TokenizersVocabulary(_words(normalizers.Lowercase(), *as_they_are))
    assert vocabulary.encode("The") != vocabulary.encode("the")


def test_an_added_token_that_is_normalized_away_is_refused() -> None:
    with pytest.raises(TaskError, match=r"the added token '\\n', of which its normalizer leaves nothing"):
        TokenizersVocabulary(_words(normalizers.Strip(), AddedToken("\n", normalized=True)))


def test_a_panic_of_rust_fails_a_record_and_not_the_process() -> None:
    library = _words(normalizers.Strip(), AddedToken("\n", normalized=True))
    with pytest.raises(TaskError, match="the tokenizers library itself breaks on this text: .*--on-error drop"):
        with panics_as_errors():
            library.encode("ßa")
