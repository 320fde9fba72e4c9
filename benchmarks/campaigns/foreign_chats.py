"""Conversations drawn at random, written by chat templates in the style of published ones, as `transformers` does.

`chat_templates/` holds the templates: `NAME.jinja`, and `NAME.tool_use.jinja` for another one of NAME, which writes
conversations with tools. They repeat what published templates do (loops, macros, namespaces, tools, thoughts, parts,
refusals), in words of our own.

The text, the ids and, where the template has `{% generation %}` blocks, the mask have to be those of
`apply_chat_template`, or both refuse. Where only we refuse, `ON_PURPOSE` says why.
"""

from __future__ import annotations

import copy
import datetime
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from beam_pipes.errors import TaskError
from beam_pipes.transforms.chat import ChatTemplate

Talk: TypeAlias = "tuple[list[dict[str, Any]], list[dict[str, Any]] | None]"

DIRECTORY = Path(__file__).with_name("chat_templates")
#: The names of the templates.
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.jinja") if "." not in path.stem)

#: Words of a refusal → why we refuse what `transformers` writes.
ON_PURPOSE = {
    "otherwise once others follow": "without generation blocks, and rewritten: no mask would be right",
    "a list of parts as its content": "a list of parts, written as Python's repr",
    "the template does not write its": "what a message says is left out",
}

_SPECIAL = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
]
_WORDS = "It is 4. assistant user system hi ho De rien"

# Pieces of what people say: scripts, white space, private use, special tokens, Jinja, thoughts, JSON.
_PIECES = (
    "It is 4.", "  là-bas 犬 \n", "\n\n", "\t", "👍🏽 👩‍👩‍👧", "e\u0301 ﬁ \u212b",
    "\u200b\u00a0\u2028", "\U000ffff0x\U000ffff1", "\U000f0000y\U000f0001", "\ue0f0\ue0f1\ue0f2",
    "<|im_end|>\n<|im_start|>assistant\n", "</s><s>", "[INST] [/INST]", "{{ messages }}",
    "{% generation %}z{% endgeneration %}", "<think>\nhm\n</think>\n\n", "/no_think",
    '{"a": [1, "\\u00e9"]}', "<tool_response>x</tool_response>", "'quoted' \"twice\" \\n & <b>",
    "नमस्ते ١٢٣", "\x00\x7f", "a" * 40,
)  # fmt: skip
_PARAMETERS: tuple[dict[str, Any], ...] = (
    {"properties": {"a": {"type": "integer", "default": None}, "b": {"type": "array", "items": {"type": "number"}}}},
    {"properties": {"where": {"type": "string", "enum": ["up", '"down"']}}, "required": ["where"]},
)
_TOOLS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"<{name}> é",
            "parameters": {"type": "object", **each},
            "return": {},
        },
    }
    for name, each in zip(("add", "look"), _PARAMETERS, strict=True)
)


class Outcome(NamedTuple):
    """What came of a conversation: "equal", "wider mask", "refused", "on purpose" or "wrong", and why."""

    what: str
    words: str = ""


# Tokenizers.


def _byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([_WORDS] * 3, trainer)
    return made


def _like_llama() -> Tokenizer:
    """BPE over characters with a fallback to bytes, and spaces as U+2581."""
    fallback = {f"<0x{byte:02X}>": byte + len(_SPECIAL) for byte in range(256)}
    vocab = {token: number for number, token in enumerate(_SPECIAL)} | fallback
    letters = sorted({*f"{_WORDS}<|>/[]_:?!▁"} - {" "})
    vocab |= {letter: len(vocab) + number for number, letter in enumerate(letters)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.add_special_tokens(_SPECIAL)
    return made


def _unigram() -> Tokenizer:
    """Pieces with probabilities, over text in NFKC."""
    letters = sorted({*f"{_WORDS}<|>/[]_:?!\n▁"} - {" "})
    pieces = [*((token, 0.0) for token in _SPECIAL), *((letter, -4.0) for letter in letters), ("assistant", -2.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="never")
    made.add_special_tokens(_SPECIAL)
    return made


#: Name → what makes the tokenizer.
TOKENIZERS = {"byte level": _byte_level, "like Llama": _like_llama, "unigram": _unigram}


class Pair(NamedTuple):
    """One template and one tokenizer, opened by both sides."""

    name: str
    ours: ChatTemplate
    theirs: Any
    marks: bool

    @classmethod
    def opened(cls, name: str, tokenizer: str, directory: Path) -> Pair:
        """The template `name` beside a tokenizer, written to a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        TOKENIZERS[tokenizer]().save(str(directory / "tokenizer.json"))
        texts = {
            path.stem.partition(".")[2] or "default": path.read_text("utf-8")
            for path in sorted([*DIRECTORY.glob(f"{name}.jinja"), *DIRECTORY.glob(f"{name}.*.jinja")])
        }
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
        listed = [{"name": each, "template": text} for each, text in texts.items()]
        template = listed if len(listed) > 1 else texts["default"]
        (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
        asked = re.search(r"strftime_now\(['\"](.*?)['\"]\)", texts["default"])
        date = datetime.datetime.now().strftime(asked[1] if asked else "%d %b %Y")
        return cls(
            name, ChatTemplate(directory, date=date), AutoTokenizer.from_pretrained(directory), name != "comments"
        )


# Conversations.


def talk(seed: int) -> Talk:
    """A conversation: who speaks, in which order, what and with which keys is drawn. `w7.` is in message 7 alone."""
    draw = random.Random(seed)
    tools = [*draw.sample(_TOOLS, draw.randint(1, 2))] if draw.random() < 0.35 else None
    messages: list[dict[str, Any]] = []

    def say(role: str, **more: Any) -> None:
        words = "".join(draw.choices(_PIECES, k=draw.choice((0, 1, 1, 2, 3))))
        words = draw.choice((f"w{len(messages)}.{words}", f"{words}w{len(messages)}.", words))
        messages.append({"role": role, "content": words, **more})

    if draw.random() < 0.4:
        say("system")
    if draw.random() < 0.12:
        say("assistant")
    for _ in range(draw.choice((1, 1, 2, 3))):
        say("user")
        if tools and draw.random() < 0.7:
            _call(draw, say, messages)
        thought = {
            draw.choice(("reasoning_content", "thinking", "reasoning")): draw.choice(("hm", "\ntwo\nand two\n", ""))
        }
        say("assistant", **(thought if draw.random() < 0.3 else {}))
    shape = draw.random()
    if shape < 0.06:
        each = draw.choice(messages)
        each["content"] = [{"type": "text", "text": each.get("content") or "x"}, {"type": "text", "text": " and more"}]
    elif shape < 0.1:
        draw.choice(messages).update(name=None, tool_calls=None, refusal=None)
    elif shape < 0.12:
        messages.pop()
    elif shape < 0.14:
        messages.append(copy.deepcopy(draw.choice(messages)))
    return messages, tools


def _call(draw: random.Random, say: Any, messages: list[dict[str, Any]]) -> None:
    """A call of a tool and what it gives."""
    arguments: Any = {"a": draw.randint(-9, 9), "b": [2.5, 1e-7], "where": "é<&'"}
    if draw.random() < 0.3:
        arguments = json.dumps(arguments)
    number = draw.choice(("abcdefgh1", "call_1"))
    calls = [{"id": number, "type": "function", "function": {"name": "add", "arguments": arguments}}]
    say("assistant", tool_calls=calls * draw.choice((1, 1, 1, 2)))
    if draw.random() < 0.7:
        messages[-1]["content"] = None
        if draw.random() < 0.5:
            del messages[-1]["content"]
    say("tool", name=draw.choice((None, "add")), tool_call_id=number)


# Comparing.


def compared(pair: Pair, seed: int) -> Outcome:
    """The outcome of one conversation."""
    messages, tools = talk(seed)
    try:
        expected = _by_transformers(pair, *talk(seed))
        refusal = ""
    except Exception as error:  # whatever a template raises
        expected, refusal = None, f"{type(error).__name__}: {error}"
    try:
        text = pair.ours.render(messages, tools=tools)
        ids, mask = pair.ours.encode(messages, tools=tools)
    except TaskError as error:
        words = str(error)
        if expected is None:
            return Outcome("refused", refusal)
        reason = next((reason for part, reason in ON_PURPOSE.items() if part in words), None)
        return Outcome("wrong", f"refused by us alone: {words}") if reason is None else Outcome("on purpose", reason)
    if expected is None:
        return Outcome("wrong", f"refused by transformers alone: {refusal}")
    if (messages, tools) != talk(seed):
        return Outcome("wrong", "the messages were changed")
    if text != expected[0]:
        return Outcome("wrong", f"text {text!r} and {expected[0]!r}")
    if ids.tolist() != expected[1]:
        return Outcome("wrong", "other ids")
    if expected[2] is None:
        return Outcome("wrong", words) if (words := _misplaced(pair, messages, tools)) else Outcome("equal")
    theirs, spans = expected[2], expected[3]
    if (found := pair.ours.spans(messages, tools=tools)[1]) != spans:
        return Outcome("wrong", f"{found} and {spans} in {text!r}")
    if mask.tolist() == theirs:
        return Outcome("equal")
    missed = np.flatnonzero(mask != np.array(theirs))
    # transformers begins and ends with the token that a character begins, and stops at one that has none.
    return Outcome("wider mask") if mask[missed].all() else Outcome("wrong", f"mask {mask.tolist()} and {theirs}")


def _by_transformers(
    pair: Pair, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> tuple[str, list[int], list[int] | None, list[tuple[int, int]]]:
    template = pair.theirs.get_chat_template(tools=tools)
    marks = "{% generation" in template and pair.marks
    text = pair.theirs.apply_chat_template(messages, tools=tools, tokenize=False)
    encoded = pair.theirs.apply_chat_template(
        messages, tools=tools, return_dict=True, return_assistant_tokens_mask=marks
    )
    if not marks:
        return text, encoded["input_ids"], None, []
    plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
    given: dict[str, Any] = {"tools": tools, "chat_template": template, **pair.theirs.special_tokens_map}
    rendered: Any = render_jinja_template([plain], return_assistant_tokens_mask=True, **given)
    return text, encoded["input_ids"], encoded["assistant_masks"], rendered[1][0]


def _misplaced(pair: Pair, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """What is wrong with the places of answers that no template marks; empty if nothing is."""
    text, spans = pair.ours.spans(messages, tools=tools)
    inside = "".join(text[start:end] for start, end in spans)
    for at, message in enumerate(messages):
        word, content = f"w{at}.", message.get("content")
        if not isinstance(content, str) or word not in content or text.count(word) != 1:
            continue
        if (message["role"] == "assistant") != (word in inside):
            return f"message {at} of {message['role']}: {spans} of {text!r}"
    return ""


def outcomes(directory: Path, *, number: int, seed: int = 0) -> Iterator[tuple[str, int, Outcome]]:
    """Name of template and tokenizer, seed and outcome, of `number` conversations for each."""
    for at, name in enumerate(NAMES):
        for tokenizer in TOKENIZERS:
            pair = Pair.opened(name, tokenizer, directory / name / tokenizer)
            for each in range(number):
                drawn = seed + at + each * len(NAMES)
                yield f"{name}, {tokenizer}", drawn, compared(pair, drawn)
