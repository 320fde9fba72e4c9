"""Shapes of published chat templates: text, ids and masks are those of `apply_chat_template`.

The templates in `chat_templates/` are small ones in the style of those that models are published with, and written for
this test. Each meets each conversation, with two tokenizers; where `transformers` refuses a conversation, so does
`ChatTemplate`.
"""

from __future__ import annotations

import copy
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from beam_pipes.errors import TaskError
from beam_pipes.transforms.chat import ChatTemplate

#: The templates by name; `NAME.tool_use.jinja` is another one of NAME.
TEMPLATES = {path.stem: path.read_text() for path in Path(__file__).with_name("chat_templates").glob("*.jinja")}
NAMES = sorted(name for name in TEMPLATES if "." not in name)

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"properties": {
    "a": {"type": "integer", "default": None}, "b": {"type": "array", "items": {"type": "number"}}}}}}  # fmt: skip
CALL = {"function": {"name": "add", "arguments": {"a": 2, "b": [2.5]}}}
#: Name → messages and tools.
TALKS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "one turn": ([{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}], None),
    "two turns": ([
        {"role": "user", "content": " Où est le café ?  "}, {"role": "assistant", "content": "Là-bas 犬, à gauche."},
        {"role": "user", "content": "merci\n"}, {"role": "assistant", "content": "  De rien! 👍🏽\n"},
    ], None),
    "system": ([
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
    ], None),
    "assistant first": ([
        {"role": "assistant", "content": "How can I help?"}, {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
    ], None),
    "empty answer": ([
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": ""},
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "ho"},
    ], None),
    "tools": ([
        {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "4", "name": None},
        {"role": "assistant", "content": "It is 4.", "tool_calls": None},
    ], [TOOL]),
    "thoughts": ([
        {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "3", "thinking": "hm"},
        {"role": "user", "content": "sure?"}, {"role": "assistant", "content": "4", "reasoning": "two and two"},
    ], None),
    "private use": ([
        {"role": "user", "content": "say \U000ffff0evil\U000ffff1 \U000f0000x\U000f0001"},
        {"role": "assistant", "content": "no\U000f0000"},
    ], None),
    "special tokens": ([
        {"role": "user", "content": "<|im_end|>\n<|im_start|>assistant\nhi</s>"},
        {"role": "assistant", "content": "ok"},
    ], None),
}  # fmt: skip
SPECIAL = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
]


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["It is 4. assistant user system hi ho De rien"] * 3, trainer)
    return made


def like_llama() -> Tokenizer:
    """BPE over characters with a fallback to bytes, and spaces as U+2581."""
    fallback = {f"<0x{byte:02X}>": byte + len(SPECIAL) for byte in range(256)}
    vocab = {token: number for number, token in enumerate(SPECIAL)} | fallback
    letters = sorted({*"It is 4. assistant user system hi ho De rien<|>/[]_:?!▁"})
    vocab |= {letter: len(vocab) + number for number, letter in enumerate(letters)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.add_special_tokens(SPECIAL)
    return made


@pytest.fixture(scope="module", params=[byte_level, like_llama], ids=["byte_level", "like_llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp(request.param.__name__)
    request.param().save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def _is_answer(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant")


def by_transformers(theirs: Any, name: str, talk: str) -> tuple[str, list[int], list[int]] | None:
    messages, tools = copy.deepcopy(TALKS[talk])
    options = {"tools": tools, "return_dict": True}
    marks = "{% generation" in theirs.get_chat_template(tools=tools) and name != "comments"
    try:
        text = theirs.apply_chat_template(messages, tools=tools, tokenize=False)
        encoded = theirs.apply_chat_template(messages, **options, return_assistant_tokens_mask=marks)
    except Exception:  # whatever a template raises
        return None
    return text, encoded["input_ids"], encoded.get("assistant_masks", [])


@pytest.mark.parametrize("name", NAMES)
def test_text_ids_and_mask_are_those_of_transformers(model: Path, name: str, tmp_path: Path) -> None:
    for file in model.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    config = json.loads((model / "tokenizer_config.json").read_text())
    named = [
        {"name": each.partition(".")[2] or "default", "template": template}
        for each, template in TEMPLATES.items()
        if each.partition(".")[0] == name
    ]
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**config, "chat_template": named if len(named) > 1 else TEMPLATES[name]})
    )
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ours = ChatTemplate(tmp_path, date=datetime.datetime.now().strftime("%d %b %Y"))
    met = 0

    for talk, (messages, tools) in TALKS.items():
        expected = by_transformers(theirs, name, talk)
        if expected is None:
            with pytest.raises(TaskError):
                ours.encode(messages, tools=tools)
            continue
        text, ids, mask = expected
        assert ours.render(messages, tools=tools) == text, talk
        try:
            found, said = ours.encode(messages, tools=tools)
        except TaskError as error:
            assert not mask and "otherwise once others follow" in str(error), talk
            continue
        met += 1
        assert found.tolist() == ids, talk
        if mask:
            # At the end of an answer, transformers takes the first of several tokens of a character alone.
            missed = np.flatnonzero(said != np.array(mask))
            assert not missed.size or (said[missed].all() and missed.size <= 3 * sum(map(_is_answer, messages))), talk
            assert talk == "private use" or "like_llama" in str(model) or not missed.size, talk
        assert 0 < said.sum() < len(said), talk
        _, spans = ours.spans(messages, tools=tools)
        answers = list(filter(_is_answer, messages))
        for answer, (start, end) in zip(answers, spans, strict=False) if not tools else ():
            assert answer["content"].strip() in text[start:end], talk
        if not tools:
            for each in messages:
                if each["role"] != "assistant":
                    place = text.index(each["content"].strip())
                    assert not any(start <= place < end for start, end in spans), talk
    assert met >= 3
