"""Builds remove the old snapshots that nobody needs, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from beam_pipes import Loader, build
from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError

REFERENCE = "sample_declarations:words"


def snapshots(cache: Path) -> set[str]:
    return {path.name for path in (cache / "snapshots").iterdir()}


def test_the_published_one_and_two_others_stay(text_input: Path, tmp_path: Path) -> None:
    made = []
    for number in range(5):
        (text_input / "sub" / f"more-{number}.txt").write_text("one more line\n")
        result = build(REFERENCE, to=tmp_path / "cache", workers=1)
        made.append(result.snapshot)
        assert result.removed == ((made[-4],) if number >= 3 else ())
        assert snapshots(tmp_path / "cache") == set(made[-3:])
    assert build(REFERENCE, to=tmp_path / "cache", workers=1).removed == ()


@pytest.mark.parametrize(("keep", "left"), [(0, 1), (1, 2), (None, 4)])
def test_more_or_fewer_may_be_kept(text_input: Path, tmp_path: Path, keep: int | None, left: int) -> None:
    for number in range(4):
        (text_input / "sub" / f"more-{number}.txt").write_text("one more line\n")
        build(REFERENCE, to=tmp_path / "cache", workers=1, keep=keep)
    assert len(snapshots(tmp_path / "cache")) == left
    assert Cache.open(tmp_path / "cache").verify().problems == ()


def test_a_loader_of_the_snapshot_before_continues(text_input: Path, tmp_path: Path) -> None:
    build(REFERENCE, to=tmp_path / "cache", workers=1)
    cache = Cache.open(tmp_path / "cache")
    batches = iter(Loader(cache[cache.splits[0]], batch_size=2, seed=1))
    next(batches)
    for number in range(2):
        (text_input / "sub" / f"more-{number}.txt").write_text("one more line\n")
        build(REFERENCE, to=tmp_path / "cache", workers=1)
    assert len(list(batches)) > 0


def test_the_command_says_so(text_input: Path, tmp_path: Path) -> None:
    first = build(REFERENCE, to=tmp_path / "cache", workers=1).snapshot
    (text_input / "sub" / "more.txt").write_text("one more line\n")
    arguments = ["build", REFERENCE, "--to", str(tmp_path / "cache"), "--workers", "1", "--keep", "0", "--no-report"]
    printed = CliRunner().invoke(app, arguments).output

    assert f"Old snapshots removed: {first} (--keep 0)." in printed


def test_a_number_below_zero_is_refused(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="keep should be an integer of at least 0, got -1"):
        build(REFERENCE, to=tmp_path / "cache", workers=1, keep=-1)


def test_what_cannot_be_removed_does_not_fail_a_build_that_is_published(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    build(REFERENCE, to=tmp_path / "cache", workers=1)
    (text_input / "sub" / "more.txt").write_text("one more line\n")

    def refused(path: str, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", refused)
        result = build(REFERENCE, to=tmp_path / "cache", workers=1, keep=0)

    assert result.removed == () and Cache.open(tmp_path / "cache").manifest.snapshot == result.snapshot
    output = capfd.readouterr().err
    assert f"old snapshots in {tmp_path / 'cache'} were not removed: " in output and "Permission denied" in output
