"""`beam-pipes tokens`, as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from beam_pipes import Cache
from beam_pipes.loader import pack

TEXTS = [f"line {n % 50} of the poem says {'and then ' * (n % 11)}no more" for n in range(400)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    for part in range(2):
        rows = [{"text": text, "n": n} for n, text in enumerate(TEXTS[part::2])]
        (tmp_path / f"corpus/{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def beam_pipes(where: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2])]), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipes", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=where,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def snapshot(printed: str) -> str:
    found = re.search(r"\(snapshot ([0-9a-f]{16})\)", printed)
    assert found is not None, printed
    return found[1]


def test_a_short_corpus_is_loaded_by_the_lines_that_are_printed(tmp_path: Path) -> None:
    rows = [{"text": "to be", "lang": "en"}, {"text": "sein", "lang": "de"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["tokens", "a.jsonl", "--tokenizer", "bytes", "--to", "cache", "--no-report", "--workers", "1"]

    printed = beam_pipes(tmp_path, *command).stdout

    assert "train: 11 tokens, 1 row of 2,048, " in printed
    names: dict[str, object] = {}
    exec(printed[printed.rindex("\n\n") :].replace("...", "break"), names)
    batch = names["batch"]
    assert isinstance(batch, dict) and len(batch["tokens"]) == 1


def test_a_command_makes_a_cache_says_how_it_packs_and_how_it_is_loaded(corpus: Path) -> None:
    command = ["tokens", "corpus", "--tokenizer", "bytes", "--split", "train=0.9,eval=0.1", "--to", "cache"]
    options = ["--pack-length", "64", "--keep-field", "n:int64", "--workers", "2", "--no-report"]

    printed = beam_pipes(corpus, *command, *options).stdout

    cache = Cache.open(str(corpus / "cache"))
    plan = pack(cache["train"], sequence_length=64, feature="tokens", overlong="split")
    total = sum(len(example["tokens"]) for example in cache["train"])
    assert printed.startswith("bytes: 259 ids.\n")
    assert f"train: {total / 1000:.3g} k tokens, {len(plan):,} rows of 64, {100 * plan.waste:.2f} % waste\n" in printed
    assert re.search(r"^eval: [\d,.]+ k? ?tokens, \d+ rows of 64", printed, re.MULTILINE)
    assert sorted(example["n"] for split in cache.splits for example in cache[split]) == sorted([*range(200)] * 2)
    assert not (corpus / "cache/snapshots" / cache.manifest.snapshot / "report.html").exists()

    loading = "\n".join(printed.splitlines()[-3:])
    assert loading.startswith("from beam_pipes.loader import Loader, pack\n")
    names: dict[str, object] = {}
    exec(loading.replace("...", "break"), names)
    assert names["batch"]["tokens"].shape == (8, 64)  # type: ignore[index]

    again = beam_pipes(corpus, *command, *options).stdout
    assert "is up to date" in again and "rows of 64" in again


def test_messages_of_a_chat_end_in_the_same_forecast(corpus: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    tokenizer.save(str(corpus / "tokenizer.json"))
    (corpus / "plain.jinja").write_text("{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}")
    talk = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "it is four"}]
    (corpus / "talks.jsonl").write_text((json.dumps({"messages": talk}) + "\n") * 20)
    command = ["tokens", "talks.jsonl", "--chat-template", "plain.jinja", "--tokenizer", "tokenizer.json"]

    printed = beam_pipes(corpus, *command, "--pack-length", "24", "--to", "cache", "--workers", "1").stdout
    (corpus / "talks.py").write_text(beam_pipes(corpus, *command, "--print-python").stdout)
    again = beam_pipes(corpus, "build", "talks:declaration", "--to", "cache").stdout

    assert f"is up to date (snapshot {snapshot(printed)})" in again
    assert "train: 660 tokens, 20 rows of 24, 0.00 % waste, 180 tokens cut off (--max-tokens 24 leaves such " in printed
    names: dict[str, object] = {}
    exec("\n".join(printed.splitlines()[-3:]).replace("...", "break"), names)
    batch = names["batch"]
    assert isinstance(batch, dict)
    assert {"tokens", "loss_weights", "tokens_segment_ids", "tokens_positions"} <= set(batch)
    assert printed.endswith("# tokens, loss_weights, tokens_segment_ids, tokens_positions\n")
    for option in (["--bos"], ["--no-eos"], ["--eos-token", "x"]):
        refused = beam_pipes(corpus, *command, *option, "--to", "c", check=False)
        assert f"{option[0]} does not go here: the chat template decides which tokens begin" in refused.stderr
    lone = beam_pipes(corpus, "tokens", "corpus", "--tokenizer", "bytes", "--only-last", "--to", "c", check=False)
    assert "--only-last does not go here: it is for messages: add --chat. Leave --only-last out." in lone.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--tokenizer", "bytes"],
        [
            *("--tokenizer", "bytes", "--split", "train=0.9,eval=0.1", "--by", "n", "--keep-field", "n:int64"),
            *("--dedup", "exact", "--min-tokens", "20", "--max-tokens", "90", "--seed", "3", "--no-eos"),
            *("--on-error", "dead_letter"),
        ],
    ],
    ids=["plain", "all_options"],
)
def test_the_module_that_is_printed_gives_the_same_snapshot(corpus: Path, options: list[str]) -> None:
    python = beam_pipes(corpus, "tokens", "corpus", *options, "--print-python").stdout
    assert [path.name for path in corpus.iterdir()] == ["corpus"]
    (corpus / "printed.py").write_text(python)

    direct = beam_pipes(corpus, "tokens", "corpus", *options, "--to", "direct", "--workers", "1").stdout
    printed = beam_pipes(corpus, "build", "printed:declaration", "--to", "printed", "--workers", "2").stdout

    assert snapshot(direct) == snapshot(printed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenizer", "bytes"], "name the directory of the cache: --to cache; or see the declaration"),
        (["--tokenizer", "nothing", "--to", "c"], "'nothing' is not a known tokenizer."),
        (
            ["--tokenizer", "bytes", "--to", "c", "--split", "train:0.9"],
            "--split should be names and shares, such as train=0.99,eval=0.01; got 'train:0.9'.",
        ),
        (["--tokenizer", "bytes", "--to", "c", "--split", "a=0.5,a=0.5"], "got 'a=0.5,a=0.5'."),
        (["--tokenizer", "bytes", "--to", "c", "--runner", "ray"], "--runner should be one of"),
    ],
)
def test_what_is_wrong_is_one_message(corpus: Path, options: list[str], message: str) -> None:
    done = beam_pipes(corpus, "tokens", "corpus", *options, check=False)

    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (corpus / "c").exists()


def test_options_that_drop_every_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "to be"}\n')
    command = ["tokens", "a.jsonl", "--tokenizer", "bytes", "--min-tokens", "99", "--to", "cache", "--workers", "1"]

    done = beam_pipes(tmp_path, *command, check=False)

    assert done.returncode == 1
    assert "tokenize: too_short 1" in done.stderr
    assert "Options that drop texts were given: --min-tokens 99." in done.stderr
