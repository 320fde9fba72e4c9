"""A look at a task: what each step makes of its first examples, in the terminal and as a page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from beam_pipes import tasks
from beam_pipes.commands.inspect import parse_lengths
from beam_pipes.commands.inspect_task import feature_lines, inspect_task, trace_task
from beam_pipes.errors import DeclarationError, UnknownNameError

ROOT = Path(__file__).parents[2]
BYTES = tasks.ByteVocabulary()


@tasks.python_map
def sentences(example):
    first = example["targets"].decode()
    return [{"inputs": f"<{first}>", "targets": sentence} for sentence in first.split(". ")]


@tasks.python_map
def noisy(example, rng):
    return {**example, "noise": rng.integers(1000, size=2)}


@tasks.python_map
def breaks(example):
    raise ValueError("an <unclear> example")


def make(*steps, after=(tasks.preprocessors.append_eos,)) -> tasks.Task:
    source = tasks.FunctionDataSource(lambda split, shuffle_files: [{"targets": "ab. c"}] * 5, ["train"])
    features = {"inputs": tasks.Feature(BYTES, add_eos=False), "targets": tasks.Feature(BYTES)}
    return tasks.Task("inspected", source, features, [*steps, tasks.CacheDatasetPlaceholder(), *after])


def test_examples_are_followed_through_every_step() -> None:
    task = make(sentences, noisy, tasks.preprocessors.tokenize)

    stages = trace_task(task, num_examples=2, sequence_length={"inputs": 5, "targets": 2}, seed=3)

    assert [(stage.title, len(stage.examples)) for stage in stages] == [
        ("raw", 2),
        ("step 0: sentences", 4),
        ("step 1: noisy", 4),
        ("step 2: tokenize", 4),
        ("cached", 4),
        ("step 3: append_eos", 4),
        ("trimmed", 4),
    ]
    assert stages[0].examples[0] == {"targets": b"ab. c"}
    assert stages[1].examples[1] == {"inputs": b"<ab. c>", "targets": b"c"}
    uncached = next(iter(task.examples({"inputs": 5, "targets": 2}, seed=3)))
    assert {name: np.asarray(value).tolist() for name, value in stages[-1].examples[0].items()} == {
        name: np.asarray(value).tolist() for name, value in uncached.items()
    }


def test_rows_are_converted_and_decoded() -> None:
    inspection = inspect_task(make(sentences, tasks.preprocessors.tokenize), num_examples=1)

    converted, decoded = inspection.stages[-2:]
    assert converted.title == "converter: EncDecFeatureConverter"
    assert converted.examples[0]["decoder_target_tokens"].tolist() == [*BYTES.encode("ab"), 1]
    assert decoded.examples[1] == {
        "encoder_input_tokens": "<ab. c>",
        "decoder_input_tokens": "c",
        "decoder_target_tokens": "c",
    }
    plain = inspect_task(make(sentences, tasks.preprocessors.tokenize), num_examples=1, converter=None)
    assert plain.stages[-1].examples[0] == {"inputs": "<ab. c>", "targets": "ab"}
    other = inspect_task(make(sentences, tasks.preprocessors.tokenize), num_examples=1, converter="lm")
    assert other.stages[-2].title == "converter: LMFeatureConverter"


def test_a_step_that_raises_is_shown_and_ends_the_trace() -> None:
    stages = trace_task(make(sentences, breaks, tasks.preprocessors.tokenize))

    assert [stage.title for stage in stages] == ["raw", "step 0: sentences", "step 1: breaks"]
    assert stages[-1].error is not None and "ValueError: an <unclear> example" in stages[-1].error
    assert inspect_task(make(breaks)).stages[-1].error is not None
    with pytest.raises(UnknownNameError, match="task 'inspected': there is no split 'test'. There are: train"):
        trace_task(make(sentences), "test")


def test_the_page_is_whole_and_escaped() -> None:
    class Page(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.seen: list[str] = []

        def handle_starttag(self, tag, attrs) -> None:
            self.seen.append(tag)
            assert not {name for name, _ in attrs} & {"src", "href"}
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag) -> None:
            assert self.open.pop() == tag

    html = inspect_task(make(sentences, breaks)).to_html()
    page = Page()
    page.feed(html)
    assert page.open == [] and "script" not in page.seen and page.seen.count("h2") == 3
    assert "an &lt;unclear&gt; example" in html and "&lt;ab. c&gt;" in html


def test_values_are_shown_briefly() -> None:
    example = {"ids": np.arange(30, dtype=np.int32), "text": "é".encode(), "n": np.float32(0.5), "long": b"a" * 500}
    assert list(feature_lines(example)) == [
        ("ids", "int32[30]", " ".join(map(str, range(24))) + " …"),
        ("text", "bytes[2]", "é"),
        ("n", "float32", "0.5"),
        ("long", "bytes[500]", "a" * 399 + "…"),
    ]
    assert list(feature_lines(b"a line")) == [("", "bytes[6]", "a line")]


def test_lengths_on_the_command_line() -> None:
    assert parse_lengths("inputs=512, targets=128") == {"inputs": 512, "targets": 128}
    assert parse_lengths(None) is None
    with pytest.raises(DeclarationError, match="--sequence-length should be like inputs=512,targets=128, got 'inputs'"):
        parse_lengths("inputs")


def run(arguments: list[str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.tsv").write_text("ab\tc\n[b]\t:one:\n")
    env = {**os.environ, "TASKS_DATA": str(tmp_path), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run([sys.executable, "-m", "beam_pipes", *arguments], env=env, capture_output=True, text=True)


def test_the_command_shows_tasks_and_writes_pages(tmp_path: Path) -> None:
    task = ["inspect", "--task", "plain:pairs", "--module-import", "tests.support.build_tasks"]

    shown = run([*task, "--num-examples", "2", "--split", "train"], tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"step 0: split_columns: 2 examples", shown.stdout)
    assert re.search(r"\[1\]\s+inputs\s+bytes\[3\]\s+\[b\]", shown.stdout)
    assert re.search(r"targets\s+bytes\[5\]\s+:one:", shown.stdout)
    written = run([*task, "--html", str(tmp_path / "page.html")], tmp_path)
    assert written.returncode == 0 and "plain:pairs, 7 stages." in written.stdout
    assert "EncDecFeatureConverter" in (tmp_path / "page.html").read_text()
    neither = run(["inspect"], tmp_path)
    assert neither.returncode == 1
    assert "name what to inspect: either the directory of a cache, or --task NAME" in neither.stderr
    both = run(["build", "m:d", "--tasks", "x", "--to", str(tmp_path)], tmp_path)
    assert both.returncode == 1 and "either package.module:name of a Declaration, or --tasks REGEX" in both.stderr
