"""What lies beside a `tokenizer.json`: the tokens, ids and templates that `transformers` finds there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from beam_pipes.errors import TaskError
from beam_pipes.tasks import TokenizersVocabulary
from beam_pipes.tasks.vocabularies.pretrained import read_pretrained

FLAGS = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
TOKEN = {"content": "<tool>", **FLAGS, "special": True}
OWN = {"content": "</s>", **FLAGS, "special": True}
TYPED = {"__type": "AddedToken", **TOKEN}
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"

#: Case → the files beside the tokenizer.
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "names": {CONFIG: {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", **OWN}, "pad_token": None}},
    "decoder": {CONFIG: {"added_tokens_decoder": {"1": OWN, "300": TOKEN}}},
    "decoder, not special": {CONFIG: {"added_tokens_decoder": {"1": OWN, "300": {**TOKEN, "special": False}}}},
    "decoder changes flags": {CONFIG: {"added_tokens_decoder": {"1": {**OWN, "lstrip": True, "rstrip": True}}}},
    "decoder out of order": {CONFIG: {"added_tokens_decoder": {"301": {**TOKEN, "content": "<b>"}, "300": TOKEN}}},
    "decoder hides the map": {CONFIG: {"added_tokens_decoder": {"1": OWN}}, MAP: {"eos_token": "<s>"}},
    "additional": {CONFIG: {"additional_special_tokens": ["<tool>", "</s>"]}},
    "additional objects": {CONFIG: {"additional_special_tokens": [TYPED]}},
    "extra list": {CONFIG: {"extra_special_tokens": ["<tool>"]}},
    "extra names": {CONFIG: {"extra_special_tokens": {"tool_token": "<tool>", "image_token": "</s>"}}},
    "a name of its own": {CONFIG: {"tool_token": "<tool>", "add_bos_token": True, "other_token": None}},
    "map": {CONFIG: {}, MAP: {"bos_token": "<s>", "eos_token": {"content": "</s>", **FLAGS}}},
    "map alone": {MAP: {"bos_token": "<s>", "unk_token": "<unknown>"}},
    "map over configuration": {CONFIG: {"eos_token": "<s>"}, MAP: {"eos_token": "</s>"}},
    "map, additional": {CONFIG: {}, MAP: {"additional_special_tokens": ["<tool>"]}},
    "map, extra beside extra": {
        CONFIG: {"extra_special_tokens": ["<b>"]},
        MAP: {"extra_special_tokens": ["<tool>", "<b>"]},
    },
    "map, extra names": {CONFIG: {}, MAP: {"extra_special_tokens": {"tool_token": "<tool>"}}},
    "map, a name of its own": {CONFIG: {}, MAP: {"tool_token": {"content": "<tool>", **FLAGS}}},
    "added": {CONFIG: {}, ADDED: {"<tool>": 300, "<b>": 299}},
    "added, special by name": {CONFIG: {"eos_token": "<tool>"}, ADDED: {"<tool>": 300}},
    "named without an id": {CONFIG: {"pad_token": "<tool>", "unk_token": "the"}},
    "special in the vocabulary": {CONFIG: {"mask_token": "fog"}},
    "split": {CONFIG: {"split_special_tokens": True, "eos_token": "</s>"}},
}
TEXTS = ["a<tool>b", "a <tool> b</s>c", "the fog <s> x<b>", "<tool><b></s><unknown>the fog"]


def model(directory: Path, files: dict[str, Any]) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the fog"] * 9, trainer)
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    for name, content in files.items():
        if name == CONFIG:
            content = {"tokenizer_class": "PreTrainedTokenizerFast", **content}
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    directory = model(tmp_path / "model", {CONFIG: {}, **CASES[case]} if case != "map alone" else CASES[case])
    theirs = AutoTokenizer.from_pretrained(directory)

    found, vocabulary = read_pretrained(directory), TokenizersVocabulary(directory)

    assert dict(found.special) == theirs.special_tokens_map
    for text in TEXTS:
        assert vocabulary.encode(text) == theirs.encode(text, add_special_tokens=False), text
        as_text = theirs.encode(text, add_special_tokens=False, split_special_tokens=True)
        assert TokenizersVocabulary(directory, special_as_text=True).encode(text) == as_text, text
    assert vocabulary.vocab_size == len(theirs)
    added = json.loads(found.tokenizer_json)["added_tokens"]
    assert {token["id"]: token["content"] for token in added} == {
        token_id: token.content for token_id, token in theirs.added_tokens_decoder.items()
    }


def test_a_tokenizer_that_nothing_is_added_to_stays_as_it_is(tmp_path: Path) -> None:
    directory = model(tmp_path / "model", {CONFIG: {"added_tokens_decoder": {"1": OWN}, "eos_token": "</s>"}})
    alone = TokenizersVocabulary(Tokenizer.from_file(str(directory / "tokenizer.json")))

    assert read_pretrained(directory).tokenizer_json == (directory / "tokenizer.json").read_text()
    assert TokenizersVocabulary(directory / "tokenizer.json").encode(TEXTS[1]) == alone.encode(TEXTS[1])
    assert alone.fingerprint() != TokenizersVocabulary(directory, special_as_text=True).fingerprint()


def test_templates_are_those_of_transformers(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    cases: dict[str, dict[str, Any]] = {
        "none": {CONFIG: {}},
        "one": {CONFIG: {"chat_template": "one"}},
        "named": {CONFIG: {"chat_template": named}},
        "file over configuration": {CONFIG: {"chat_template": named}, "chat_template.jinja": "file"},
        "more files": {"chat_template.jinja": "file", "additional_chat_templates/tool_use.jinja": "more", CONFIG: {}},
        "only more files": {CONFIG: {"chat_template": "one"}, "additional_chat_templates/rag.jinja": "rag"},
    }
    for case, files in cases.items():
        directory = model(tmp_path / case, files)
        theirs = AutoTokenizer.from_pretrained(directory).chat_template
        expected = theirs if isinstance(theirs, dict) else {"default": theirs} if theirs else {}
        assert read_pretrained(directory).templates == expected, case


def test_files_that_cannot_be_understood_are_reported(tmp_path: Path) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({CONFIG: "{"}, r"tokenizer_config\.json' is not valid JSON: .*\. Repair it, or take it away\."),
        ({MAP: "[1]"}, r"special_tokens_map\.json' should hold a JSON object, found \[1\]\."),
        (
            {MAP: {"eos_token": ["</s>"]}},
            r"expected a special token as text, or as an object with 'content', found \['",
        ),
        ({CONFIG: {"fast_tokenizer_files": ["tokenizer.4.0.json"]}}, r"names 'tokenizer\.4\.0\.json' too\. Give the"),
    ]
    for number, (files, message) in enumerate(mistakes):
        directory = model(tmp_path / str(number), {})
        for name, content in files.items():
            (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(TaskError, match=message):
            read_pretrained(directory)
    directory = model(tmp_path / "named", {CONFIG: {"eos_token": "<absent>"}})
    with pytest.raises(
        TaskError, match="no token '<absent>', given as eos_token: a file beside it names that, and none"
    ):
        TokenizersVocabulary(directory, eos_token="<absent>")


def test_settings_that_the_configuration_has_otherwise_are_refused(tmp_path: Path) -> None:
    directory = model(tmp_path / "model", {CONFIG: {"add_prefix_space": True}})
    with pytest.raises(
        TaskError, match=r"has add_prefix_space false, and the tokenizer_config\.json beside it .* true\."
    ):
        read_pretrained(directory)
    (directory / CONFIG).write_text('{"add_prefix_space": false, "do_lower_case": true}')
    assert read_pretrained(directory).tokenizer_json

    bert = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    bert.normalizer = normalizers.Sequence([normalizers.BertNormalizer(lowercase=False)])
    bert.save(str(directory / "tokenizer.json"))
    with pytest.raises(TaskError, match=r"has lowercase false, and the tokenizer_config\.json beside it do_lower_case"):
        read_pretrained(directory)
