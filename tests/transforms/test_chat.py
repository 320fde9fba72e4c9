"""Chat templates: the tokens and masks of transformers, as a stage, packed with loss weights."""

from __future__ import annotations

import json
import pickle
import re
import subprocess

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from beam_pipes import Cache, FeatureSpec, declare, stage
from beam_pipes.errors import TaskError
from beam_pipes.loader import Loader, pack
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import JSONLines
from beam_pipes.transforms.chat import ChatTemplate, chat_tokens, conversation_text
from beam_pipes.typed import drop

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
    thinking = "{% for m in messages %}{{ m.content }}{{ '<end>' if loop.last else '|' }}{% endfor %}"
    with pytest.raises(TaskError, match=r"writes message 2 otherwise once others follow.*Put {% generation %}"):
        ChatTemplate(model[0], template=thinking).encode(TALKS[1])


QWEN_3 = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and (loop.last or m.reasoning_content) and not messages[loop.index:] %}
{{- '<think>\n' + m.reasoning_content | default('') | trim + '\n</think>\n\n' }}{% endif %}
{{- m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest.mark.parametrize("said", ["hm", None, "<|im_start|>assistant\n"])
def test_an_answer_whose_thought_is_left_out_later_has_the_place_of_what_is_left(model, said):
    """As Qwen 3 and others write: the last answer alone begins with a thought. The user's text is never in a range."""
    answers = ["<|im_start|>assistant\nhi", "a", "", "b"]
    talk = [each for a in answers for each in ({"role": "user", "content": f"q<|im_start|>assistant\n{a}"},
            {"role": "assistant", "content": a, "reasoning_content": said})]  # fmt: skip
    chat = ChatTemplate(model[0], template=QWEN_3)

    text, spans = chat.spans(talk)

    thought = f"<think>\n{(said or '').strip()}\n</think>\n\n"
    assert [text[start:end] for start, end in spans] == [
        *(f"{answer}<|im_end|>\n" for answer in answers[:-1]), f"{thought}b<|im_end|>\n"
    ]  # fmt: skip
    assert all(text[:start].endswith("<|im_end|>\n<|im_start|>assistant\n") for start, _ in spans)


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


def test_what_is_missing_or_wrong_is_reported(model, tmp_path):
    directory, _ = model
    chat = ChatTemplate(directory)
    assert pickle.loads(pickle.dumps(chat)).encode(TALKS[0])[0].tolist() == chat.encode(TALKS[0])[0].tolist()
    assert str(directory) not in json.dumps(chat.fingerprint_config())
    dated = "{{ strftime_now('%d %b') }}{{ messages[0].content }}"
    assert ChatTemplate(directory, template=dated, date="26 Jul 2024").render(TALKS[0]) == "26 Jul 20242+2?"
    refused = "{{ raise_exception('roles should alternate') }}"
    mistakes = [
        (lambda: ChatTemplate(tmp_path), r"no '.*/tokenizer\.json'\. The directory holds nothing\. Name the one with"),
        (lambda: ChatTemplate("meta/llama"), r"no 'meta/llama'\. A model of the Hugging Face Hub is downloaded first"),
        (lambda: ChatTemplate(directory, template="{% for %}"), r"is not valid Jinja: .* \(line 1\)"),
        (lambda: ChatTemplate(directory, template=dated).render(TALKS[0]), r"asks for today's date.*date='26 Jul"),
        (lambda: ChatTemplate(directory, template=refused).render(TALKS[0]), r"these messages: roles should alternate"),
        (lambda: chat.render([{"role": "user", "content": 3}]), r"cannot write these messages: TypeError"),
        (lambda: chat.render([{"role": "user", "content": None}]), r"'dict object' has no attribute 'con"),
        (lambda: chat_tokens([{"text": 1}], chat=chat), r"should have the field 'messages', which is a list of me"),
        (lambda: chat_tokens([{"messages": "["}], chat=chat), r"a list of messages, or it as JSON"),
        (lambda: chat_tokens([{"messages": [1]}], chat=chat), r"should hold a list of dicts, found \[1\]"),
    ]  # fmt: skip
    for mistake, words in mistakes:
        with pytest.raises(TaskError, match=words):
            mistake()
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    with pytest.raises(TaskError, match=r"no chat template next to .*neither chat_template.jinja nor"):
        ChatTemplate(tmp_path)


def test_records_of_other_shapes_are_refused_by_their_names(model):
    chat = ChatTemplate(model[0])
    talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    for record, field, words in [
        ({"conversations": talk}, "conversations", r"0 of the field 'conversations' should have a 'role', and has "
         r"from, value\. This is the shape of ShareGPT\. Convert the file first: jq -c '\.conversations \|= map"),
        ({"instruction": "q", "input": "", "output": "a"}, "messages", r"is one of instructions \(Alpaca\): it has "
         r"instruction, input, output\. Convert the file first: jq -c '\.messages = .*' FILE > chat\.jsonl"),
        ({"prompt": "q", "completion": "a"}, "messages", r"of prompts and completions: it has prompt, completion"),
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, "messages", r"is one of preferences: it has prompt, chosen"),
        ({"question": "q", "answer": "a"}, "messages", r"is one of questions and answers"),
        ({"messages": [{"speaker": "a", "content": "q"}]}, "messages", r"have a 'role', and has speaker, content\. "
         r"Messages are dicts with 'role' and 'content'\. Rename their keys"),
        ({"conversations": talk}, "messages", r"and has 'conversations', which is one.*--text-fi"),
    ]:  # fmt: skip
        with pytest.raises(TaskError, match=words):
            chat_tokens([record], chat=chat, field=field)


def test_what_converts_other_shapes_keeps_questions_roles_and_the_words_of_the_system(model):
    chat = ChatTemplate(model[0])
    user, assistant = TALKS[0][-2:]
    talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    for record, words in [
        ({"instruction": "q", "context": None, "response": "a"}, r"\(Dolly\).*\.context // \"\".*: \.response"),
        (
            {"prompt": [user], "completion": [assistant]},
            r"'\.messages = \(\.prompt \+ \.completion\) \| del\(\.prompt, \.completion\)'",
        ),
        ({"prompt": [user], "chosen": "a", "rejected": "b"}, r"\(\.prompt \+ \[\{role: \"assistant\", "),
        ({"prompt": "q", "chosen": [assistant], "rejected": []}, r"content: \.prompt\}\] \+ \.chosen\) \| del"),
        ({"prompt": "q", "chosen": TALKS[0], "rejected": TALKS[0]}, r"Name it: --text-field chosen"),
        ({"rejected": TALKS[0], "chosen": TALKS[0]}, r"Name it: --text-field chosen"),
        ({"messages": talk}, r"\{\"human\": \"user\", \"gpt\": \"assistant\", .*\+ del\(\.from, \.value\)"),
        ({"messages": talk, "system": "s"}, r"\.messages = \(if \(\.system // \"\"\) != "),
        (
            {"messages": [{"role": "human", "content": "q"}, {"role": "ai", "content": "a"}]},
            r"map\(\.role \|= \(\{\"human\": \"user\", \"ai\": \"assistant\"\}\[\.\] // \.\)\)",
        ),
        (
            {"messages": [*TALKS[0], {"role": "gpt", "content": "a"}]},
            r"found 'user', 'assistant', 'gpt'\. Rename it fir",
        ),
        (
            {"messages": [{"role": "user", "parts": [{"text": "q"}]}]},
            r"has role, parts: the template does not write its",
        ),
        ({"messages": {"turns": TALKS[0]}}, r"and has 'turns', which is one\. Name it: --text-field messages\.turns"),
        ({"messages": {"messages": TALKS[0]}}, r"Name the list in it: --text-field messages\.messages"),
        ({"text": "q"}, r"and has text\. If 'text' is to be encoded as it is, leave out --chat"),
        ({"messages": str(TALKS[0])}, r"Python wrote it, as pandas does: write JSON, df\['messages'\]\.map\(json\.d"),
    ]:
        with pytest.raises(TaskError, match=words):
            chat_tokens([record], chat=chat)


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"instruction": "q", "input": "", "output": "a", "id": 7}, "user q, assistant a"),
        ({"instruction": "q", "output": "a", "input": "x", "system": "s", "history": [["h", "i"], ["j", "k"]]},
         "system s, user h, assistant i, user j, assistant k, user q\n\nx, assistant a"),
        ({"prompt": "q", "completion": "a", "label": True}, "user q, assistant a"),
        ({"prompt": "q", "completion": "a", "label": False}, ""),
        ({"messages": TALKS[0], "system": "s"}, "system s, user 2+2?, assistant It is 4."),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, "r"]}, TALKS[0][1]]},
         "user qr, assistant It is 4."),
        ({"messages": [{"role": "user", "content": [{"type": "image"}, {"text": "q"}]}, TALKS[0][1]]}, ""),
        ({"messages": TALKS[0], "images": ["a.png"]}, ""),
        ({"input": "q", "output": "a"}, "user q, assistant a"),
        ({"messages": [{"from": "human", "value": "q"}, {"from": "tool_response", "value": "3"},
                       {"from": "bing", "value": "a"}]}, "user q, tool 3, assistant a"),
        ({"messages": TALKS[0], "images": [], "functions": [{"name": "f"}]}, "user 2+2?, assistant It is 4."),
    ],
)  # fmt: skip
def test_programs_that_errors_advise_lose_nothing(model, record, messages, tmp_path):
    """Other fields stay; records are left out only where the message says so. Of `system` there may be null."""
    chat = ChatTemplate(model[0], template=CHATML)
    with pytest.raises(TaskError) as caught:
        chat_tokens([record], chat=chat)
    program = re.search(r"jq -c '([^']+)' FILE", str(caught.value))[1]
    records = [record, {**record, "system": None, "id": 8}]
    given = "".join(json.dumps(each) + "\n" for each in records)

    ran = subprocess.run(["jq", "-c", program], input=given, capture_output=True, text=True, timeout=60, check=True)

    made = [json.loads(line) for line in ran.stdout.splitlines()]
    texts = [", ".join(f"{each['role']} {each['content']}" for each in one["messages"]) for one in made]
    assert texts == ([messages, messages.removeprefix("system s, ")] if messages else [])
    assert [one.get("id") for one in made] == ([record.get("id"), 8] if messages else [])


def test_a_list_of_parts_that_a_template_cannot_join_to_text_says_how_to_convert_it(model):
    parts = [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "a.png"}}]
    talk = [{"role": "user", "content": parts}, TALKS[0][1]]
    for template in (CHATML, PLAIN, "{% for m in messages %}{{ m.content.split('|')[0] }}{% endfor %}"):
        with pytest.raises(
            TaskError, match=r"message 0 has a list .* no text \(image_url\): this leaves such rec.*jq -c"
        ):
            ChatTemplate(model[0], template=template).encode(talk)
    of_parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    with pytest.raises(TaskError, match=r"such as .It is 4.* It writes lists of parts.*\(\.content \| strings\) \|= "):
        ChatTemplate(model[0], template=of_parts).encode(TALKS[0])


@pytest.mark.parametrize("template", [CHATML, PLAIN], ids=["blocks", "no blocks"])
def test_answers_of_weight_0_are_not_trained_on(model, template):
    chat = ChatTemplate(model[0], template=template)
    for key, off, on in (("weight", 0, 1), ("train", False, True), ("loss", False, None)):
        said = [{"role": "assistant", "content": text, key: value} for text, value in (("bad", off), ("good", on))]
        talk = [TALKS[0][0], said[0], TALKS[0][0], said[1]]

        ids, mask = chat.encode(talk)

        assert chat._library.decode(ids[mask == 1].tolist()).strip() == "good"
        assert ids.tolist() == chat.encode([{k: v for k, v in each.items() if k != key} for each in talk])[0].tolist()
        assert chat_tokens([{"messages": talk[:2]}], chat=chat) == [drop("no_answer")]
        assert not chat.encode([*talk, TALKS[0][0], said[0]], only_last=True)[1].any()
    with pytest.raises(TaskError, match=r"the 'weight' of an answer in the field 'messages' to be 0 or 1, found 0\.5"):
        chat.encode([TALKS[0][0], {"role": "assistant", "content": "a", "weight": 0.5}])


def test_the_last_turn_has_all_blocks_of_its_answer(model):
    """Some templates write the thought, the answer and the end of a turn in blocks of their own."""
    block = "{% generation %}{{ '<think>' + m.reasoning_content if m.reasoning_content else '' }}{% endgeneration %}|"
    block += "{% generation %}{{ m.content }}{% endgeneration %}|{% generation %}<|im_end|>{% endgeneration %}"
    template = "{% for m in messages %}{% if m.role == 'assistant' %}" + block + "{% else %}{{ m.content }}{% endif %}"
    chat = ChatTemplate(model[0], template=template + "{% endfor %}")
    for thought in (None, "hm"):
        talk = [*TALKS[1][:4], {**TALKS[1][4], "reasoning_content": thought}]

        ids, mask = chat.encode(talk, only_last=True)

        said = f"{'<think>hm' if thought else ''}  De rien!<|im_end|>"
        assert chat._library.decode(ids[mask == 1].tolist(), skip_special_tokens=False) == said


def test_an_answer_of_weight_0_needs_a_range_of_its_own(model):
    one = "{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}{% endgeneration %}"
    answers = [{"role": "assistant", "content": "a", "weight": 0}, {"role": "assistant", "content": "b"}]
    with pytest.raises(
        TaskError, match="message 0 of .* is not to be trained on .*one {% generation %} block for each"
    ):
        ChatTemplate(model[0], template=one).encode(answers)


def test_a_record_without_tools_has_none(model):
    chat = ChatTemplate(model[0], template=LLAMA)
    plain = chat_tokens([{"messages": TALKS[0]}], chat=chat)[0]["tokens"].tolist()
    for tools in ({}, {"tools": None}, {"tools": []}, {"tools": ""}, {"tools": "null"}, {"tools": "[]"}):
        (row,) = chat_tokens([{"messages": TALKS[0], **tools}], chat=chat, tools_field="tools")
        assert row["tokens"].tolist() == plain
    (row,) = chat_tokens([{"messages": TALKS[0], "tools": json.dumps(TOOLS)}], chat=chat, tools_field="tools")
    assert row["tokens"].tolist() == chat.encode(TALKS[0], tools=TOOLS)[0].tolist() != plain


def test_nulls_of_parquet_are_dropped_and_those_of_json_are_meant(model):
    template = (
        "{% for m in messages %}{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ tools | tojson }}"
    )
    chat = ChatTemplate(model[0], template=template)
    call = {"function": {"name": "f", "arguments": {"a": 1, "b": None}}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    tools = [{"name": "f", "parameters": {"a": {"type": "int", "default": None}, "b": None}}]

    def text(record, **options):
        (row,) = chat_tokens([record], chat=chat, tools_field="tools", **options)
        return chat._library.decode(row["tokens"].tolist())

    kept = text({"messages": messages, "tools": tools})
    dropped = text({"messages": messages, "tools": tools}, drop_nulls=True)
    as_json = text({"messages": json.dumps(messages), "tools": json.dumps(tools)}, drop_nulls=True)

    assert kept == as_json and kept.count("null") == 3 and '"content"' not in kept
    assert "null" not in dropped and '"b"' not in dropped and '"a": 1' in dropped


def test_answers_that_are_null_are_dropped_and_counted(model):
    chat = ChatTemplate(model[0])
    question, nothing = {"role": "user", "content": "q"}, {"role": "assistant", "content": None, "name": "x"}
    records = [{"messages": [question, nothing, *TALKS[0]]}, {"messages": []}, {"messages": TALKS[0]}]

    *dropped, row = chat_tokens(records, chat=chat)

    assert dropped == [drop("no_answer")] * 2
    assert row["tokens"].tolist() == chat.encode(TALKS[0])[0].tolist()


def test_conversations_are_compared_by_messages_and_tools():
    tools = [{"name": "f", "parameters": None}]
    record = {"messages": [{"content": "q", "role": "user", "tool_calls": None}], "tools": tools}

    def text(record, **options):
        return conversation_text(record, tools_field="tools", **options)

    same = {"messages": json.dumps([{"role": "user", "content": "q"}]), "tools": [{"name": "f"}]}
    assert text(record, drop_nulls=True) == text(same) != text({**same, "tools": [{"name": "g"}]})
    assert conversation_text(record) == conversation_text(same) == '[[{"content": "q", "role": "user"}]]'
    assert conversation_text({"messages": 3}) is None and conversation_text({"messages": []}) is None


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ({"tools": TOOLS}, "'tools' beside its messages, .* Describe the tools to the template: --tools-field tools"),
        ({"system": "Be brief."}, "'system' beside .* Make it the first message: jq -c '.messages = "),
        ({"functions": [{"name": "add"}]}, "'functions' beside .*; then --tools-field tools"),
        ({"documents": [{"text": "t"}]}, "'documents' beside .* Write it into the messages, or set it in a template"),
        ({"chat_template_kwargs": {"mood": "good"}}, "'chat_template_kwargs' beside"),
        ({"mood": False}, "'mood' beside its messages, .*: False"),
    ],
    ids=["tools", "system", "functions", "documents", "kwargs", "variable"],
)
def test_what_stands_beside_messages_is_asked_about(model, beside, words):
    """`mood` is a variable of the template; `id` is none, so nothing is asked."""
    chat = ChatTemplate(model[0], template=CHATML + "{% if mood %}{{ mood }}{% endif %}")
    record = {"messages": TALKS[0], "id": 7}
    (plain,) = chat_tokens([record], chat=chat)
    with pytest.raises(TaskError, match=words) as caught:
        chat_tokens([{**record, **beside}], chat=chat)
    (name,) = beside
    assert f"jq -c 'del(.{name})' FILE > chat.jsonl, or store it beside the tokens (--keep-field {name})" in str(
        caught.value
    )
    with pytest.raises(TaskError, match=f"the record has 'json.{name}' beside"):
        chat_tokens([{"json": {**record, **beside}}], chat=chat, field="json.messages")

    (kept,) = chat_tokens([{**record, **beside}], chat=chat, keep={name: "str"})
    assert kept["tokens"].tolist() == plain["tokens"].tolist()
    for empty in (None, "", [], {}, "[]"):
        (same,) = chat_tokens([{**record, name: empty}], chat=chat)
        assert same["tokens"].tolist() == plain["tokens"].tolist()


def test_a_template_is_chosen_by_its_name_and_by_tools(model, tmp_path):
    (tmp_path / "tokenizer.json").write_text((model[0] / "tokenizer.json").read_text())
    named = {"default": "plain", "tool_use": "tools {{ tools | length }}", "rag": "rag"}
    listed = [{"name": name, "template": template} for name, template in named.items()]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    chat = ChatTemplate(tmp_path)

    assert (chat.render(TALKS[0]), chat.render(TALKS[0], tools=TOOLS)) == ("plain", "tools 1")
    assert ChatTemplate(tmp_path, template="rag").render(TALKS[0], tools=TOOLS) == "rag"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed[1:]}))
    with pytest.raises(
        TaskError, match="no chat template next to .*, only 'tool_use', 'rag': neither chat_template.jinja"
    ):
        ChatTemplate(tmp_path)


def test_a_block_whose_text_is_changed_later_is_refused(model):
    talk = [{"role": "assistant", "content": " hey "}]
    macro = "{% macro said(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
    chat = ChatTemplate(model[0], template=macro + "{{ said(messages[0]) }}|")

    assert chat.spans(talk) == (" hey |", [(0, 5)])
    with pytest.raises(TaskError, match="changes what a {% generation %} block has written, by a filter or a test"):
        ChatTemplate(model[0], template=macro + "{{ said(messages[0]) | trim }}|").spans(talk)


def test_qwen_writes_an_empty_answer_without_the_line_of_its_prompt(model):
    template = (
        "{%- for m in messages %}{{- '<|im_start|>' + m.role }}{%- if m.content %}{{- '\\n' + m.content }}{%- endif %}"
        "{{- '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    )
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, *TALKS[0]]

    text, spans = ChatTemplate(model[0], template=template).spans(talk)

    assert [text[start:end] for start, end in spans] == ["<|im_end|>\n", "It is 4.<|im_end|>\n"]


def test_special_tokens_that_messages_spell_are_text_where_that_is_asked_for(model):
    said = "<|im_end|>\n<|im_start|>assistant\nit is <s>4"
    talk = [{"role": "user", "content": said}, {"role": "assistant", "content": "a <|im_end|> b"}, *TALKS[0]]
    for template in (CHATML, PLAIN):
        chat = ChatTemplate(model[0], template=template, special_as_text=True)
        parsed = ChatTemplate(model[0], template=template)

        ids, mask = chat.encode(talk)

        assert np.count_nonzero(ids == chat._library.token_to_id("<|im_end|>")) == 4
        text = chat._library.decode(ids.tolist(), skip_special_tokens=False)
        assert text == parsed.render(talk) and "\ue000" not in text
        answer = chat._library.decode(ids[mask == 1].tolist(), skip_special_tokens=False)
        assert answer.replace("\n", "") == "a <|im_end|> b<|im_end|>It is 4.<|im_end|>"
        for one, other in zip(chat.encode(TALKS[1]), parsed.encode(TALKS[1]), strict=True):
            assert np.array_equal(one, other)
        assert pickle.loads(pickle.dumps(chat)).encode(talk)[0].tolist() == ids.tolist()
        assert chat.fingerprint_config() != parsed.fingerprint_config()


def test_what_a_template_would_lose_or_write_as_python_is_refused_by_name(model):
    question, parts = {"role": "user", "content": "q"}, [{"type": "text", "text": "a"}]
    call = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}
    plain, looping = (
        "{% for m in messages %}{{ m.content }}|{% endfor %}",
        "{% for m in messages %}{% for part in m.content %}",
    )
    chat = ChatTemplate(model[0], template=plain)

    with pytest.raises(TaskError, match=r"message 1 has a 'function_call' \(OpenAI's, before tools\).*tool_calls = \["):
        chat.encode([question, call])
    with pytest.raises(TaskError, match=r"message 1 has a list of parts as its content \(OpenAI's\).*join\(\"\"\)"):
        chat.encode([question, {"role": "assistant", "content": parts}])
    lacking = "message 0 should have a 'content', and has role, text: the template does not write its 'text'.*= .text"
    with pytest.raises(TaskError, match=lacking):
        ChatTemplate(model[0], template=plain).encode([{"role": "assistant", "text": "a"}])
    with pytest.raises(TaskError, match=r"message 1 has an object as its content, .*\(\.text // tojson\)"):
        chat.encode([question, {"role": "assistant", "content": parts[0]}])
    written = ChatTemplate(model[0], template=looping + "{{ part.text }}{% endfor %}{% endfor %}")
    assert written.render([{"role": "assistant", "content": parts}]) == "a"
    assert written.encode([{"role": "assistant", "content": parts}])[1].all()
