"""Rows and their losses: recorded by training loops, and the planted bad row found again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sample_media import jpeg, wav
from typer.testing import CliRunner

from beam_pipes import Cache, Loader, build, stage
from beam_pipes.building.takedown import take_down, undo_takedown
from beam_pipes.commands import app
from beam_pipes.errors import CorruptRecordError, LoaderError
from beam_pipes.loader import Windows, pack
from beam_pipes.on_device import JaxDataLoader, TorchDataLoader
from beam_pipes.report import blame, never_falling
from beam_pipes.sources import TextLines
from beam_pipes.telemetry import LossRecorder, RecordedLosses

BAD = 13


@stage
def example(line: str) -> dict[str, object]:
    number = int(line.split()[-1])
    x = np.float32([number % 5, number % 3, 1])
    y = np.float32(1000 if number == BAD else x.sum())
    return {"x": x, "y": y, "text": line, "tokens": [number + 1] * (number % 4 + 1)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("blame")
    (directory / "in.txt").write_text("".join(f"note {number}\n" for number in range(40)) + f"note {BAD}\n")
    build("notes", TextLines(directory / "in.txt"), [example], to=directory / "cache", workers=1)
    return directory / "cache"


def loader(cache: Path, **options: object) -> Loader:
    options = {"batch_size": 8, "seed": 3, "epochs": None, "features": ["x", "y"], **options}
    return Loader(f"{cache}/train", **options)  # type: ignore[arg-type]


def train_torch(cache: Path, directory: Path, steps: int) -> None:
    native = loader(cache)
    weights = torch.zeros(3, requires_grad=True)
    with LossRecorder(directory, batches := TorchDataLoader(native)) as losses:
        for step, batch in zip(range(steps), batches, strict=False):
            per_row = (batch["x"] @ weights - batch["y"]).abs()
            per_row.mean().backward()
            losses.record(per_row, step=step)
            with torch.no_grad():
                weights -= 0.01 * weights.grad  # type: ignore[operator]
                weights.grad = None


def train_jax(cache: Path, directory: Path, steps: int) -> None:
    @jax.jit
    def update(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            per_row = jnp.abs(x @ weights - y)
            return per_row.mean(), per_row

        gradient, per_row = jax.grad(loss, has_aux=True)(weights)
        return weights - 0.01 * gradient, per_row.astype(jnp.bfloat16)

    weights = jnp.zeros(3)
    with LossRecorder(directory, batches := JaxDataLoader(loader(cache))) as losses:
        for step, batch in zip(range(steps), batches, strict=False):
            weights, per_row = update(weights, batch["x"], batch["y"])
            losses.record(per_row, step=step)


def step_of_the_bad_row(cache: Path, after: int = 0) -> int:
    return next(place.step for place in loader(cache).when_record("in.txt@94", epochs=9) if place.step >= after)


@pytest.mark.parametrize("train", [train_torch, train_jax])
def test_the_planted_row_has_rank_1(cache: Path, tmp_path: Path, train: object) -> None:
    train(cache, tmp_path / "losses", 25)  # type: ignore[operator]
    losses = RecordedLosses(tmp_path / "losses")
    step = step_of_the_bad_row(cache)

    found = blame(loader(cache), step, losses=losses, count=3)

    worst = found.rows[0]
    assert losses.steps == list(range(25))
    assert worst.delivery.record_id == "in.txt@94"
    assert worst.loss == pytest.approx(1000, rel=0.1)
    assert found.median is not None and found.median < 10
    assert [row.loss for row in found.rows] == sorted(losses.at(step).values(), reverse=True)[:3]
    assert dict(worst.features)["text"] == "note 13"
    read = {place.step for place in loader(cache).when_record("in.txt@94", epochs=6, last_step=24)}
    assert {each.step for each in worst.appearances} == read and len(read) >= 4
    assert all(each.loss == pytest.approx(1000, rel=0.1) for each in worst.appearances)
    assert worst.duplicates == ("equal content: in.txt@310",)
    never = never_falling(loader(cache), losses, count=2)
    assert {row.delivery.record_id for row in never} == {"in.txt@94", "in.txt@310"}


def test_rows_of_steps_that_were_never_recorded_are_known(cache: Path, tmp_path: Path) -> None:
    train_torch(cache, tmp_path, 2)
    found = blame(loader(cache), 1_000, losses=RecordedLosses(tmp_path), count=99)
    assert [row.loss for row in found.rows] == [None] * 8
    assert [row.delivery for row in found.rows] == loader(cache).who(1_000)
    assert next(found.lines()).startswith("step 1,000 (epoch 200): no losses were recorded; its rows, in their order:")
    assert blame(loader(cache), 3).median is None


def test_pieces_of_packed_rows_have_losses_of_their_own(cache: Path, tmp_path: Path) -> None:
    def packed(**options: object) -> Loader:
        plan = pack(Cache.open(cache)["train"], feature="tokens", sequence_length=16)
        return Loader(plan, batch_size=4, seed=1, **options)  # type: ignore[arg-type]

    # Each token's loss is its number, in two hosts' files, and the mean over a piece that number.
    for host in range(2):
        mine = packed(host_index=host, host_count=2)
        with LossRecorder(tmp_path, mine) as losses:
            for step, batch in enumerate(mine):
                losses.record(batch["tokens"].astype(np.float32), step=step, segment_ids=batch["segment_ids"])

    recorded = RecordedLosses(tmp_path)
    for step in recorded.steps:
        for row in blame(packed(), step, losses=recorded, count=100).rows:
            number = BAD if row.delivery.record == 40 else row.delivery.record
            assert row.loss == number + 1
    assert len(recorded.steps) == len(packed())


def test_rows_of_windows_and_whole_packed_rows_and_padding(cache: Path, tmp_path: Path) -> None:
    split = Cache.open(cache)["train"]
    windows = Loader(Windows(split, offsets={"tokens": range(2)}), batch_size=4, seed=1)
    with LossRecorder(tmp_path / "w", windows) as losses:
        losses.record(np.arange(4), step=0)
    found = blame(windows, 0, losses=RecordedLosses(tmp_path / "w"))
    assert [row.loss for row in found.rows] == [3, 2, 1, 0]
    asked = ["blame", str(tmp_path / "w"), "--step", "0", "--json"]
    for given in ([], ["--windows", "offsets={'tokens': range(2)}"]):
        assert json.loads(CliRunner().invoke(app, [*asked, *given]).stdout)["rows"] == found.to_json()["rows"]
    (tmp_path / "state").write_bytes(windows.get_state())
    asked = [str(cache), "--batch-size", "4", "--windows", "offsets={'tokens': range(2)}", "--json"]
    for given in (["--seed", "1"], ["--state", str(tmp_path / "state")]):
        who = json.loads(CliRunner().invoke(app, ["who", "--step", "3", *asked, *given]).stdout)
        assert [each["record_id"] for each in who] == [each.record_id for each in windows.who(3)]
        when = json.loads(CliRunner().invoke(app, ["when", who[0]["record_id"], *asked, *given]).stdout)
        assert (who[0]["step"], who[0]["index"]) in [(each["step"], each["index"]) for each in when]

    packed = Loader(pack(split, feature="tokens", sequence_length=16), batch_size=2, seed=1)
    with LossRecorder(tmp_path / "p", packed) as losses:
        losses.record([5.0, 7.0], step=0)
    rows = blame(packed, 0, losses=RecordedLosses(tmp_path / "p"), count=99).rows
    assert {(row.delivery.index, row.loss) for row in rows} == {(0, 5.0), (1, 7.0)}

    padded = loader(cache, last="pad", epochs=1)
    last = len(padded) - 1
    with LossRecorder(tmp_path / "l", padded) as losses:
        losses.record(np.full(8, np.nan), step=last)
    end = blame(padded, last, losses=RecordedLosses(tmp_path / "l"), count=99)
    assert len(end.rows) == 1 and json.dumps(end.to_json(), allow_nan=False).count('"nan"') == 3


def test_a_killed_training_leaves_a_file_that_the_next_one_continues(cache: Path, tmp_path: Path) -> None:
    script = f"""
import os, signal
import numpy as np
from beam_pipes import Loader
from beam_pipes.telemetry import LossRecorder
losses = LossRecorder({str(tmp_path)!r}, Loader({f"{cache}/train"!r}, batch_size=8, seed=3, epochs=None))
for step in range(50):
    losses.record(np.full(8, step), step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    [file] = tmp_path.glob("losses-*.tfrecord")
    whole = RecordedLosses(tmp_path)
    assert whole.steps == list(range(50))
    os.truncate(file, file.stat().st_size - 7)  # as a machine that loses power may leave it
    assert RecordedLosses(tmp_path).steps == list(range(49))

    with LossRecorder(tmp_path, loader(cache)) as losses:  # from a checkpoint of step 45
        for step in range(45, 60):
            losses.record(np.full(8, 1000 + step), step=step)
    again = RecordedLosses(tmp_path)
    assert again.steps == list(range(60))
    assert (again.at(44)[0, 0], again.at(45)[0, 0]) == (44, 1045)

    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(CorruptRecordError):
        RecordedLosses(tmp_path)


def test_a_restart_on_other_hosts_replaces_the_steps_again(cache: Path, tmp_path: Path) -> None:
    for hosts in (1, 2, 4):
        for host in range(hosts):
            with LossRecorder(tmp_path, loader(cache, host_index=host, host_count=hosts)) as losses:
                losses.record(np.full(8 // hosts, 10 * hosts + host), step=0)
    assert list(RecordedLosses(tmp_path).at(0).values()) == [40, 40, 41, 41, 42, 42, 43, 43]


def test_what_is_taken_down_is_not_shown(cache: Path) -> None:
    step = step_of_the_bad_row(cache)
    report = take_down(str(cache), ["in.txt@94"])
    try:
        lines = "\n".join(blame(loader(cache), step, count=8).lines())
    finally:
        undo_takedown(str(cache), report.number)
    assert "taken down: what it holds is not shown" in lines and "note 13" not in lines


def test_the_command_needs_nothing_but_the_directory(cache: Path, tmp_path: Path) -> None:
    train_torch(cache, tmp_path, 15)
    step = step_of_the_bad_row(cache)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "beam_pipes", "blame", *arguments], capture_output=True, text=True, timeout=120
        )

    shown = command(str(tmp_path), "--step", str(step), "-n", "1")
    assert shown.returncode == 0, shown.stderr
    words = " ".join(shown.stdout.split())
    assert f"step {step} (epoch 0): the median loss of its rows is" in words
    assert re.search(r"1\. loss (1000|999\.\d): in\.txt@94 \(host 0, row ", words)
    assert "text: note 13" in words and "equal content: in.txt@310" in words
    never = " ".join(command(str(tmp_path), "--never-falls", "-n", "1").stdout.split())
    assert "Read 3 times or more, and the loss has never fallen by a tenth; the worst: 1. loss 99" in never
    as_json = json.loads(command(str(tmp_path), "--never-falls", "--json").stdout)
    assert as_json[0]["delivery"]["record_id"] in ("in.txt@94", "in.txt@310")
    assert "say either which step to explain, --step 1234, or --never-falls." in command(str(tmp_path)).stderr


def test_the_page_of_a_spike_has_its_pictures_and_sound(tmp_path: Path) -> None:
    @stage
    def medium(line: str) -> dict[str, object]:
        if line == "2":
            return {"photo": b"\xff\xd8\xff<svg onload=alert(1)>", "speech": wav(4000, 8000), "text": "<b>damaged</b>"}
        return {"photo": jpeg(200, 100), "speech": wav(4000, 8000), "text": f"picture {line}"}

    (tmp_path / "in.txt").write_text("0\n1\n2\n3\n")
    build("media", TextLines(tmp_path / "in.txt"), [medium], to=tmp_path / "media", workers=1)
    native = Loader(f"{tmp_path}/media/train", batch_size=4, shuffle=False, epochs=None, features=["text"])
    with LossRecorder(tmp_path / "losses", native) as losses:
        for step in range(3):
            losses.record(np.array([1, 9, 5, 2]) / (1 if step < 2 else [4, 1, 4, 4]), step=step)

    def page(*arguments: str) -> str:
        html = tmp_path / "spike.html"
        done = CliRunner().invoke(app, ["blame", str(tmp_path / "losses"), *arguments, "--html", str(html)])
        assert done.exit_code == 0 and done.output.rstrip().endswith(f"{html}"), done.output
        return html.read_text(encoding="utf-8")

    worst, next_one = page("--step", "1", "-n", "2").split("<section")[1:]
    assert "1. loss 9: in.txt@2" in worst and 'src="data:image/jpeg;base64,' in worst and "200 × 100" in worst
    assert 'src="data:audio/wav;base64,' in worst and "<p>text: picture 1</p>" in worst
    assert "2. loss 5: in.txt@4" in next_one and "photo" not in next_one.partition("<img")[2]
    assert "not shown: " in next_one and "&lt;b&gt;damaged" in next_one and "<svg" not in next_one
    assert page("--never-falls").count("<section") == 1
    report = take_down(str(tmp_path / "media"), ids=["in.txt@2"], reason="wrong")
    assert report.number and "base64" not in page("--step", "1", "-n", "1").partition("<section")[2]


def test_what_cannot_be_recorded_is_refused(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="there are no recorded losses in .*LossRecorder"):
        RecordedLosses(tmp_path / "none")
    with pytest.raises(LoaderError, match="files at 's3://bucket/losses' do not. Record to a local directory"):
        LossRecorder("s3://bucket/losses", loader(cache))
    with pytest.raises(LoaderError, match="knows which row is where: got list. Pass the Loader of the training loop"):
        LossRecorder(tmp_path, [1, 2])
    with LossRecorder(tmp_path, loader(cache)) as losses:
        with pytest.raises(LoaderError, match=r"expected a loss for each row .* in step 0, \(8,\), got .* \(\)"):
            losses.record(3.5, step=0)
        with pytest.raises(LoaderError, match=r"a segment id for each token .* \(8, 4\), got .* \(8,\) and segment"):
            losses.record(np.zeros(8), step=0, segment_ids=np.ones((8, 4), np.int32))
