"""Chat templates: the tokens and masks of transformers, as a stage, packed with loss weights."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from beam_pipes import Cache, FeatureSpec, declare, stage
from beam_pipes.errors import TaskError
from beam_pipes.loader import Loader, pack
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import JSONLines
from beam_pipes.transforms.chat import ChatTemplate, chat_tokens

CHATML = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA = """{{- bos_token }}
{%- if tools %}{{- '<|im_start|>system\\nTools: ' }}{% for tool in tools %}{{ tool | tojson }} {% endfor %}
    {{- '<|im_end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{- '<|im_start|>ipython\\n' + message.content | tojson + '<|im_end|>' }}
    {%- elif message.tool_calls is defined %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{- message.tool_calls[0].function | tojson + '<|im_end|>' }}
        {%- endgeneration %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{- message.content | trim + '<|im_end|>' }}{% endgeneration %}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

PLAIN = CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", "")

TALKS = [
    [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Où est le café ?  "},
        {"role": "assistant", "content": "Là-bas 犬, à gauche."},
        {"role": "user", "content": "merci"},
        {"role": "assistant", "content": "  De rien!"},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"a": "int", "b": "int"}}}]
CALLS = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "It is 4."},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<s>"]
    made.train_from_iterator(["It is 4. to be or not to be, assistant user"] * 3, trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))  # fmt: skip
    directory = tmp_path_factory.mktemp("model")
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="<|im_end|>")
    fast.chat_template = CHATML
    fast.save_pretrained(directory)
    return directory, fast


@pytest.mark.parametrize(
    ("template", "messages", "tools"),
    [(CHATML, TALKS[0], None), (CHATML, TALKS[1], None), (LLAMA, TALKS[1], None), (LLAMA, CALLS, TOOLS)],
)
def test_tokens_and_masks_are_those_of_transformers(model, template, messages, tools):
    directory, fast = model
    expected = fast.apply_chat_template(
        messages, tools=tools, chat_template=template, return_dict=True, return_assistant_tokens_mask=True
    )

    ids, mask = ChatTemplate(directory, template=template).encode(messages, tools=tools)

    assert ids.tolist() == expected["input_ids"] and mask.tolist() == expected["assistant_masks"]
    assert (ids.dtype, mask.dtype) == (np.int32, np.uint8) and 0 < mask.sum() < len(mask)
    for prompt in (False, True):
        text = fast.apply_chat_template(
            messages, tools=tools, chat_template=template, tokenize=False, add_generation_prompt=prompt
        )
        made = ChatTemplate(directory, template=template)
        assert made.render(messages, tools=tools, add_generation_prompt=prompt) == text


def test_without_generation_blocks_the_mask_is_what_each_answer_adds(model):
    directory, _ = model
    with_blocks, without = ChatTemplate(directory), ChatTemplate(directory, template=PLAIN)

    for messages in TALKS:
        text, spans = without.spans(messages)
        expected, marked = with_blocks.spans(messages)
        assert text == expected
        assert [text[start:end].removesuffix("\n") for start, end in spans] == [text[a:b] for a, b in marked]
    ids, last = with_blocks.encode(TALKS[1], only_last=True)
    assert "De rien" in with_blocks._library.decode(ids[last == 1].tolist()) and last.sum() < len(ids) // 2


def test_a_template_that_rewrites_earlier_turns_is_refused_without_blocks(model):
    thinking = "{% for m in messages %}{{ m.content if loop.last else m.content[:3] }}|{% endfor %}"
    with pytest.raises(TaskError, match=r"writes message 2 otherwise once others follow.*Put {% generation %}"):
        ChatTemplate(model[0], template=thinking).encode(TALKS[1])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stage_writes_tokens_and_weights_that_pack_and_load(model, tmp_path, workers):
    lines = [{"messages": TALKS[n % 2]} for n in range(40)] + [{"messages": TALKS[0][:1]}, {"messages": None}]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    chat = ChatTemplate(model[0])
    features = {"tokens": FeatureSpec("int32", shape=(None,)), "loss_weights": FeatureSpec("uint8", shape=(None,))}

    result = build(
        declare("chat", JSONLines(tmp_path / "chat.jsonl"), [stage(chat_tokens, chat=chat)], features=features),
        tmp_path / "cache",
        options=LocalOptions(workers=workers),
    )

    split = Cache.open(result.path)["train"]
    assert len(split) == 40
    ids, mask = chat.encode(TALKS[1])
    assert split[1]["tokens"].tolist() == ids.tolist() and split[1]["loss_weights"].tolist() == mask.tolist()
    assert {reason: n for unit in result.account.units.values() for reason, n in unit.dropped.items()} == {
        "no_answer": 2
    }
    plan = pack(split, sequence_length={"tokens": 256, "loss_weights": 256})
    batch = next(iter(Loader(plan, batch_size=2)))
    assert batch["loss_weights"].shape == batch["tokens"].shape == (2, 256)
    for of_tokens in ("segment_ids", "positions"):
        assert np.array_equal(batch[f"tokens_{of_tokens}"], batch[f"loss_weights_{of_tokens}"])
    assert (batch["loss_weights"][batch["tokens_segment_ids"] == 0] == 0).all() and batch["loss_weights"].any()


def test_what_is_missing_or_wrong_is_told(model, tmp_path):
    directory, _ = model
    chat = ChatTemplate(directory)
    assert pickle.loads(pickle.dumps(chat)).encode(TALKS[0])[0].tolist() == chat.encode(TALKS[0])[0].tolist()
    assert str(directory) not in json.dumps(chat.fingerprint_config())
    dated = "{{ strftime_now('%d %b') }}{{ messages[0].content }}"
    assert ChatTemplate(directory, template=dated, date="26 Jul 2024").render(TALKS[0]) == "26 Jul 20242+2?"
    refused = "{{ raise_exception('roles should alternate') }}"
    mistakes = [
        (lambda: ChatTemplate(tmp_path), r"tokenizer.json' cannot be read as a tokenizer.json"),
        (lambda: ChatTemplate(directory, template="{% for %}"), r"is not valid Jinja: .* \(line 1\)"),
        (lambda: ChatTemplate(directory, template=dated).render(TALKS[0]), r"asks for today's date.*date='26 Jul"),
        (lambda: ChatTemplate(directory, template=refused).render(TALKS[0]), r"these messages: roles should alternate"),
        (lambda: chat.render([{"role": "user", "content": None}]), r"cannot write these messages: TypeError"),
        (lambda: chat_tokens([{"text": 1}], chat=chat), r"should have the field 'messages', which is its messages"),
        (lambda: chat_tokens([{"messages": "["}], chat=chat), r"a list of messages, or it as JSON"),
        (lambda: chat_tokens([{"messages": [1]}], chat=chat), r"should hold a list of dicts, found \[1\]"),
    ]  # fmt: skip
    for mistake, words in mistakes:
        with pytest.raises(TaskError, match=words):
            mistake()
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    with pytest.raises(TaskError, match=r"no chat template next to .*neither chat_template.jinja nor"):
        ChatTemplate(tmp_path)
