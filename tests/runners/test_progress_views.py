"""What a build shows of itself: on a terminal that is emulated, in a notebook that a kernel runs, in logs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import limited_declarations
import nbclient
import nbformat
import pyte
import pytest

from beam_pipes.building.reading import ShardFigures, StageFigures
from beam_pipes.engine.account import Account, UnitAccount
from beam_pipes.errors import DeclarationError
from beam_pipes.runners import BeamOptions, LocalOptions, beam_job, build, progress_for
from beam_pipes.runners.progress import KINDS, Counts, LogLines, Progress, TerminalLine
from beam_pipes.runners.progress_views import StagesView


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color", "LANG": "C.UTF-8"}


class Terminal:
    """A terminal of the given size: what is written to `stream` appears on it; `text` is what stands there now."""

    def __init__(self, *, columns: int = 100, lines: int = 30) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._parser = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (lines, columns))
        self.stream = os.fdopen(theirs, "w")
        self._drawing = threading.Lock()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:  # nobody holds the other end any more
                return
            with self._drawing:
                self._parser.feed(data)

    @property
    def text(self) -> str:
        with self._drawing:
            return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def cursor_is_shown(self) -> bool:
        return not self._screen.cursor.hidden

    def close(self) -> str:
        """When all that was written is there, the text."""
        self.stream.close()
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
        os.close(self._ours)
        return self.text

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if not self.stream.closed:
            self.close()


class Command(Terminal):
    """`beam-pipes` on a terminal."""

    def __init__(self, *arguments: str, columns: int = 100, lines: int = 30) -> None:
        super().__init__(columns=columns, lines=lines)
        theirs = self.stream
        self.process = subprocess.Popen(
            [sys.executable, "-m", "beam_pipes", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
            start_new_session=True,
        )

    def wait_for(self, holds: Callable[[str], object]) -> str:
        """The text, as soon as it is so."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = self.text
            if holds(text):
                return text
            time.sleep(0.02)
        raise AssertionError(f"not seen within a minute; the terminal shows:\n{self.text}")

    def ended(self) -> str:
        """The text when the command has ended."""
        self.process.wait(timeout=60)
        return self.close()

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        super().__exit__(*error)


def rows(text: str) -> dict[str, list[str]]:
    """Stage → its cells, of a table that is drawn on a terminal."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split("[│┃]", line)][1:-1]
        if len(cells) > 4:
            found[cells[0]] = cells[1:]
    return found


def test_on_a_terminal_the_stages_are_seen_while_they_work_and_one_line_stays(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zz-slow.txt").write_text("slow\n" * 30)
    with Command("build", "sample_declarations:slow", "--to", str(tmp_path / "cache"), "--workers", "1") as terminal:
        working = terminal.wait_for(lambda text: rows(text).get("Slow", ["0"])[0] not in ("0", "526") and "%" in text)
        ended = terminal.ended()
        assert terminal.process.returncode == 0 and terminal.cursor_is_shown

    assert re.search(r"^\d+/\d+ shards, \d+ records \([\d,]+/s\), 0 dropped, 0 dead, 0:\d\d", working)
    table = rows(working)
    assert list(table) == ["stage", "source", "Slow", "write"]
    assert table["stage"][:6] == ["in", "out", "dropped", "dead", "in/s", "time"]
    shares = [int(table[name][5].removesuffix("%")) for name in ("source", "Slow", "write")]
    assert 98 <= sum(shares) <= 102
    assert "╸" in working or "━" in working
    assert re.match(r"\d+/\d+ shards, 526 records \([\d,]+/s\), 0 dropped, 0 dead, 0:\d\d\n", ended)
    assert "526 records read, 526 written" in ended and "What is in it:" in ended
    assert "in/s" not in ended


def test_what_is_seen_last_stays_when_a_build_fails(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("one two\n" * 3 + "boom\n")
    with Command("build", "sample_declarations:words", "--to", str(tmp_path / "cache"), "--workers", "1") as terminal:
        ended = terminal.ended()
        assert terminal.process.returncode == 1 and terminal.cursor_is_shown

    assert list(rows(ended))[1:3] == ["source", "SplitWords"]
    assert ended.index("SplitWords") < ended.index("beam-pipes: stage 'SplitWords' failed on record 'zzz.txt@24'")


def test_a_terminal_that_is_narrow_is_not_overrun(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zz-slow.txt").write_text("slow\n" * 20)
    arguments = ("build", "sample_declarations:slow", "--to", str(tmp_path / "cache"), "--workers", "1", "--no-report")
    with Command(*arguments, columns=48, lines=24) as terminal:
        terminal.wait_for(lambda text: "Slow" in text)
        ended = terminal.ended()

    assert "516 records" in ended
    assert ended.count("Slow") == 1  # in the account at the end: of the view nothing is left


def test_lines_of_others_stand_above_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(num_shards=2, stages=["source", "A"])
    with Terminal(lines=20) as terminal:
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        view = StagesView(terminal.stream)
        view.update(counts)
        print("beam-pipes: source shard 0 has reported nothing for 300 s", file=sys.stderr)
        counts.done_shards = 1
        view.close(counts)
        shown = terminal.close()

    first, second, *_ = shown.splitlines()
    assert first == "beam-pipes: source shard 0 has reported nothing for 300 s"
    assert second.startswith("1/2 shards, 0 records")
    assert list(rows(shown)) == ["stage", "source", "A"] and shown.count("shards, ") == 1


def test_logs_get_a_few_lines_and_programs_json_with_the_stages(text_input: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "beam_pipes", "build", "sample_declarations:words", "--no-report"]
    arguments += ["--workers", "1"]
    output = {}
    for kind in ("", "json", "line", "none"):
        options = ["--to", str(tmp_path / f"cache-{kind}"), *(["--progress", kind] if kind else [])]
        done = subprocess.run([*arguments, *options], capture_output=True, env=environment(), timeout=60)
        assert done.returncode == 0, done.stderr
        output[kind] = done.stderr.decode()

    *_, line = lines = output[""].splitlines()
    assert line.startswith("beam-pipes: ") and "shards, 496 records (" in line and len(lines) <= 11
    last = json.loads(output["json"].splitlines()[-1])
    assert (last["records"], last["shards_done"]) == (496, last["shards"])
    stages = last["stages"]
    assert list(stages) == ["source", "SplitWords", "CountLetters", "Initials", "RandomPartition", "write"]
    split = stages["SplitWords"]
    assert split["in"] == split["out"] + split["dropped"] == 496 and split["secs"] > 0
    assert output["line"].startswith("\r\x1b[K") and output["line"].count("\n") == 1
    assert "shards, 496 records (" in output["line"].split("\r\x1b[K")[-1]
    assert output["none"] == ""


def test_a_kind_that_there_is_not_is_refused_before_anything_is_built(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DeclarationError,
        match="progress should be one of stages, line, log, json, none, got 'bars'.",
    ):
        progress_for(kind="bars")
    options = ["build", "sample_declarations:words", "--to", str(tmp_path / "cache"), "--progress", "bars"]
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipes", *options],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 1 and "progress should be one of stages" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_a_log_has_a_line_at_each_tenth_and_after_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, counts = io.StringIO(), Counts(num_shards=1000, done_shards=300)
    shown = LogLines(stream)
    for done in range(300, 1001):
        counts.done_shards = done
        shown.update(counts)
    shown.close(counts)
    output = re.findall(r"(\d+)/1000", stream.getvalue())
    assert output == ["400", "500", "600", "700", "800", "900", "1000"]

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 31)
    counts.done_shards = 990
    shown.update(counts)
    assert stream.getvalue().count("\n") == len(output) + 1


@pytest.mark.parametrize(("term", "kind"), [("xterm", StagesView), ("dumb", LogLines), ("unknown", LogLines)])
def test_what_suits_a_terminal(term: str, kind: type[Progress], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        assert type(progress_for(stream).shown) is kind
        assert type(progress_for(stream, kind="line").shown) is TerminalLine
    os.close(ours)
    assert {"stages", "line", "log", "json", "none"} == KINDS.keys()


class Watching:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []

    def update(self, counts: Counts) -> None:
        self.seen.append(counts.to_json())

    def close(self, counts: Counts) -> None:
        self.seen.append(counts.to_json())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_figures_are_those_of_the_account(workers: int, text_input: Path, tmp_path: Path) -> None:
    watching = Watching()
    result = build(
        "sample_declarations:words", tmp_path / "cache", options=LocalOptions(workers=workers), progress=watching
    )

    last = watching.seen[-1]
    expected = Counts(num_shards=1)
    expected.set_to(result.account)
    plain = {name: {**stage, "secs": 0.0} for name, stage in last["stages"].items()}  # type: ignore[attr-defined]
    assert plain == expected.to_json()["stages"]
    assert (last["records"], last["dropped"]) == (result.account.read, result.account.dropped)
    assert all(stage["secs"] > 0 for stage in last["stages"].values())  # type: ignore[attr-defined]


def test_a_source_shard_that_is_begun_again_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limited_declarations.INPUT_VARIABLE, str(tmp_path / "input"))
    (tmp_path / "input").mkdir()
    lines = [f"crash {at}" if at in (20, 40) else f"word {at}" for at in range(60)]
    (tmp_path / "input/file.txt").write_text("\n".join(lines) + "\n")
    watching = Watching()

    result = build(
        "limited_declarations:limited", tmp_path / "cache", options=LocalOptions(workers=1), progress=watching
    )

    last = watching.seen[-1]
    assert (last["records"], last["dead"]) == (result.account.read, result.account.dead) == (60, 2)
    stages = last["stages"]
    assert stages["Number"]["in"] == 60 and stages["Number"]["secs"] > 0  # type: ignore[index]
    record = json.loads(next((tmp_path / "cache").glob("snapshots/*/build.json")).read_text())
    assert record["shards"][0]["stage_secs"]["Number"] > 0


def test_a_beam_run_is_seen_while_it_runs(text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam_job, "LOOK_EVERY_SECS", 0.1)
    (text_input / "zz-slow.txt").write_text("slow\n" * 20)
    watching = Watching()

    result = build("sample_declarations:slow", tmp_path / "cache", options=BeamOptions(), progress=watching)

    between = [seen for seen in watching.seen if 0 < seen["records"] < result.account.read]  # type: ignore[operator]
    assert between, watching.seen
    assert 0 < between[0]["stages"]["Slow"]["in"] < result.account.read  # type: ignore[index]
    assert between[0]["stages"]["Slow"]["secs"] == 0  # type: ignore[index]
    last = watching.seen[-1]
    assert (last["records"], last["shards_done"]) == (result.account.read, last["shards"])


NOTEBOOK = """
import sys
sys.modules["ipywidgets"] = None  # as if it were not installed
from beam_pipes.runners import LocalOptions, build, progress_for
result = build("sample_declarations:words", "cache", options=LocalOptions(workers=1), progress=progress_for())
"""


def test_a_notebook_without_widgets_gets_lines(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])

    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = notebook.cells[0].outputs
    assert {output["name"] for output in outputs} == {"stderr"}
    last = outputs[-1]["text"].splitlines()[-1]
    assert re.match(r"beam-pipes: (\d+)/\1 shards, 496 records", last)


def test_of_many_stages_the_costly_ones_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "15")
    stages = {f"Stage{number}": StageFigures(inputs=9, secs=number / 10) for number in range(40)}
    counts = Counts(num_shards=3, stages=stages)
    counts.add(ShardFigures(stages=stages))
    with Terminal(columns=80, lines=15) as terminal:
        view = StagesView(terminal.stream)
        view.update(counts)
        view.close(counts)
        text = terminal.close()

    assert list(rows(text))[1:] == [f"Stage{number}" for number in range(33, 40)]
    assert "33 more stages, each faster." in text and text.startswith("0/3 shards")


def test_figures_that_were_added_can_be_taken_back() -> None:
    account = Account(read=5, dropped=1, dead=1)
    account.units["A"] = UnitAccount(inputs=5, kept=3, outputs=6, dead=1, dropped={"x": 1})
    counts = Counts(num_shards=2, stages=["source", "A"])
    figures = ShardFigures.of(account, {"read": 0.5, "A": 2.0})
    counts.add(figures)
    assert counts.stages["A"] == StageFigures(inputs=5, outputs=6, dropped=1, dead=1, secs=2.0)
    assert counts.stages["source"].secs == 0.5

    counts.add(figures)
    counts.add(figures, times=-1)
    assert (counts.records, counts.dropped, counts.dead, counts.stages["A"].inputs) == (5, 1, 1, 5)
    counts.set_to(Account(read=7))
    assert (counts.records, counts.stages["A"].secs, counts.stages["A"].inputs) == (7, 2.0, 0)
