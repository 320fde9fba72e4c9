"""The code model, end to end on some of this Python's own packages."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

from beam_pipes import Cache
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import Files
from examples import code_model, python_source

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("code_model") / "cache"
    packages = ["asyncio/*.py", "email/*.py", "json/*.py", "logging/*.py"]
    some = dataclasses.replace(python_source.declaration, source=Files(sysconfig.get_path("stdlib"), pattern=packages))
    build(some, path, options=LocalOptions(workers=1))
    return str(path)


def test_rows_hold_every_byte_of_every_file_once(cache: str) -> None:
    plan = code_model.rows(cache, "train", length=512)
    epoch = list(code_model.batches(plan, batch_size=8, last="partial"))

    totals = plan.totals["tokens"]
    split = Cache.open(cache)["train"]
    assert totals.tokens_in == totals.tokens_out == sum(split.lengths("tokens"))
    given = np.concatenate([batch["tokens"].numpy()[batch["segment_ids"].numpy() > 0] for batch in epoch])
    stored = np.concatenate([split[index]["tokens"] for index in range(len(split))])
    assert np.bincount(given, minlength=259).tolist() == np.bincount(stored, minlength=259).tolist()


def test_the_last_byte_of_a_row_s_file_is_its_end(cache: str) -> None:
    split = Cache.open(cache)["eval"]
    source = Path(sysconfig.get_path("stdlib"), split[0]["path"]).read_bytes()

    assert [byte + 3 for byte in source] + [1] == split[0]["tokens"].tolist()


def test_files_in_a_row_do_not_see_each_other(cache: str) -> None:
    torch.manual_seed(1)
    model = code_model.CodeModel(length=512)
    loader = code_model.batches(code_model.rows(cache, "train", length=512), batch_size=8)
    batch = next(batch for batch in loader if int(batch["segment_ids"].max()) > 1)
    second = batch["segment_ids"] == 2
    changed = dict(batch, tokens=torch.where(batch["segment_ids"] == 1, 100, batch["tokens"].long()))
    row = int(second.any(dim=1).nonzero()[0])

    before, after = model(batch), model(changed)

    torch.testing.assert_close(before[second], after[second])
    assert not torch.allclose(before[row][~second[row]], after[row][~second[row]])


def test_a_byte_is_not_predicted_from_what_comes_after_it(cache: str) -> None:
    torch.manual_seed(1)
    model = code_model.CodeModel(length=64)
    batch = next(iter(code_model.batches(code_model.rows(cache, "train", length=64), batch_size=4)))
    tokens = batch["tokens"].long()
    tokens[:, 40:] = 7

    before, after = model(batch), model(dict(batch, tokens=tokens))

    torch.testing.assert_close(before[:, :40], after[:, :40])


def test_it_learns_and_continues_where_it_stopped_as_if_it_had_not(cache: str, tmp_path: Path) -> None:
    whole, parts = str(tmp_path / "whole.pt"), str(tmp_path / "parts.pt")
    runs = [(10, whole), (6, parts), (4, parts)]
    commands = [[cache, "--steps", str(steps), "--checkpoint", checkpoint] for steps, checkpoint in runs]

    # In a process of its own: an optimizer of torch loads Triton, which ends a process that has loaded TensorFlow.
    program = f"from examples.code_model import main\nfor command in {commands!r}: main(command)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout

    first, begun, resumed = (float(loss) for loss in re.findall(r"step 1: ([\d.]+) nats a byte", printed))
    (later,) = (float(loss) for loss in re.findall(r"step 10: ([\d.]+) nats a byte", printed))
    unseen = [float(loss) for loss in re.findall(r"files that it never saw: ([\d.]+) nats a byte", printed)]
    assert 5 < first == begun < 7  # as good as guessing: log(259) is 5.6
    assert later < first - 1.5 and resumed < first - 1
    assert unseen[0] == unseen[2] < first - 1.5
    assert re.search(r"[\d,]+ bytes in [\d,]+ rows, 0\.\d\d% of them padding", printed)
    ends = [torch.load(checkpoint, weights_only=True) for checkpoint in (whole, parts)]
    assert ends[0]["loader"] == ends[1]["loader"]
    for name, values in ends[0]["model"].items():
        assert torch.equal(values, ends[1]["model"][name]), name
